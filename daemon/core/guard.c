#include "core/guard.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"

static struct guarded **mappings;
static size_t mapping_count, mapping_room;

static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    uintptr_t address = (uintptr_t)info->si_addr, page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (size_t i = 0; i < mapping_count; i++) {
        struct guarded *mapping = mappings[i];
        if (address - (uintptr_t)mapping->base >= mapping->size)
            continue;
        void *place = (void *)(address & ~(page - 1));
        if (mmap(place, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
            break;
        mapping->broken = true;
        return;
    }
    signal(signal_number, SIG_DFL);  // not ours: a fault of our own, shown as such when the instruction runs again
}

int guard_install(void)
{
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    return sigaction(SIGBUS, &action, NULL) < 0 ? -errno : 0;
}

void guard_add(struct guarded *mapping)
{
    if (mapping_count == mapping_room) {
        mapping_room = mapping_room ? mapping_room * 2 : 64;
        mappings = alloc_resize(mappings, mapping_room, sizeof *mappings);
    }
    mapping->broken = false;
    mappings[mapping_count++] = mapping;
}

void guard_remove(struct guarded *mapping)
{
    for (size_t i = 0; i < mapping_count; i++)
        if (mappings[i] == mapping) {
            mappings[i] = mappings[--mapping_count];
            return;
        }
}
