// Memory straight from the kernel: malloc may belong to the program, or be interrupted by the handler we run in.
#include <sys/mman.h>
#include <unistd.h>

#include "client/state.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

static void *map(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void *memory_wiped(size_t size)
{
    void *memory = map(size);
    if (memory && madvise(memory, size, MADV_WIPEONFORK) != 0) {
        munmap(memory, size);
        return NULL;
    }
    return memory;
}

void *memory_private(size_t size)
{
    static char *chunk;
    static size_t left;
    size = (size + 15) & ~(size_t)15;
    if (size > 64 << 10)
        return map((size + 4095) & ~(size_t)4095);
    if (size > left) {
        char *fresh = map(256 << 10);
        if (!fresh)
            return NULL;
        chunk = fresh;
        left = 256 << 10;
    }
    left -= size;  // first: a fork of another thread between the two must not see more than there is
    void *memory = chunk;
    chunk += size;
    return memory;
}

bool memory_open(void *reserved, uint64_t from, uint64_t to)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    from &= ~(page - 1);
    to = (to + page - 1) & ~(page - 1);
    return mprotect((char *)reserved + from, to - from, PROT_READ | PROT_WRITE) == 0;
}
