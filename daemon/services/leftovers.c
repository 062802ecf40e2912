// Leftovers: segments whose process has ended and whose daemon is gone. `scoped-lane salvage` makes run files of them. Where nobody asks
// for that, jobs that are killed together with their daemons would fill the memory of the machine; so each user's are bounded, and the
// oldest go first. What of them had been drained is in their spools.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rundir.h"
#include "base/say.h"
#include "core/procfs.h"
#include "services/daemon.h"

#define PERIOD_NS INT64_C(60000000000)
enum { SHARE = 4 };  // of the file system, where no quota is given

struct leftover {
    char *name;
    uid_t uid;
    uint64_t bytes;
    int64_t made_ns;
};

struct heap {
    struct leftover *list;
    size_t count;
};

static bool is_served(const char *rundir)
{
    int fd = rundir_connect(rundir, "query.sock", SOCK_STREAM);
    if (fd >= 0)
        close(fd);
    return fd >= 0 || fd == -EACCES;  // somebody else's daemon
}

// Where its daemon is, or was. False where the file does not say so: it is in the making, or of another version, which has to see to it.
static bool read_place(int fd, char place[SL_PLACE_BYTES])
{
    struct sl_segment header;
    if (pread(fd, &header, offsetof(struct sl_segment, size), 0) != (ssize_t)offsetof(struct sl_segment, size) || header.magic != SL_MAGIC ||
        header.abi != SL_ABI_VERSION)
        return false;
    memcpy(place, header.place, SL_PLACE_BYTES);
    place[SL_PLACE_BYTES - 1] = 0;
    return true;
}

static void look_at(struct heap *heap, int directory, const char *name)
{
    unsigned uid, pid;
    unsigned long long start_time;
    struct stat status;
    char place[SL_PLACE_BYTES];
    if (sscanf(name, SL_NAME_PREFIX "%u.%u.%llu.", &uid, &pid, &start_time) != 3 || (geteuid() != 0 && uid != geteuid()) ||
        procfs_is_alive(pid, start_time))
        return;
    int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == uid && read_place(fd, place) && !is_served(place)) {
        heap->list = alloc_resize(heap->list, heap->count + 1, sizeof *heap->list);
        heap->list[heap->count++] =
            (struct leftover){alloc_text(name), uid, (uint64_t)status.st_blocks * 512,
                              status.st_mtim.tv_sec * INT64_C(1000000000) + status.st_mtim.tv_nsec};
    }
    close(fd);
}

// By user, the newest first.
static int by_user_and_age(const void *a, const void *b)
{
    const struct leftover *one = a, *other = b;
    if (one->uid != other->uid)
        return one->uid < other->uid ? -1 : 1;
    return one->made_ns > other->made_ns ? -1 : one->made_ns < other->made_ns;
}

static uint64_t quota_of(const struct daemon *daemon)
{
    struct statvfs space;
    if (daemon->settings.quota)
        return daemon->settings.quota;
    return statvfs(SL_SHM_DIRECTORY, &space) == 0 ? (uint64_t)space.f_blocks * space.f_frsize / SHARE : UINT64_MAX;
}

// Keeps of one user's leftovers what the quota holds; how many there are of that user.
static size_t bound(const struct leftover *leftovers, size_t count, int directory, uint64_t quota)
{
    uint64_t kept = 0, removed_bytes = 0;
    size_t of_user = 0, removed = 0;
    for (; of_user < count && leftovers[of_user].uid == leftovers[0].uid; of_user++) {
        const struct leftover *each = &leftovers[of_user];
        if (removed == 0 && kept + each->bytes <= quota) {
            kept += each->bytes;
        } else if (unlinkat(directory, each->name, 0) == 0) {
            removed++;
            removed_bytes += each->bytes;
        }
    }
    if (removed)
        say("removed %zu segments, %llu KiB, of dead processes of user %u whose daemons are gone: more than %llu KiB of them lay in "
            SL_SHM_DIRECTORY "; scoped-lane salvage makes run files of what is left",
            removed, (unsigned long long)removed_bytes >> 10, (unsigned)leftovers[0].uid, (unsigned long long)quota >> 10);
    return of_user;
}

void leftovers_bound(struct daemon *daemon)
{
    struct heap heap = {0};
    int64_t now_ns = clock_monotonic_ns();
    if (daemon->leftovers_ns && now_ns - daemon->leftovers_ns < PERIOD_NS)
        return;
    daemon->leftovers_ns = now_ns;
    DIR *directory = opendir(SL_SHM_DIRECTORY);
    struct dirent *entry;
    if (!directory)
        return;
    while ((entry = readdir(directory)))
        look_at(&heap, dirfd(directory), entry->d_name);
    if (heap.count)
        qsort(heap.list, heap.count, sizeof *heap.list, by_user_and_age);
    uint64_t quota = quota_of(daemon);
    for (size_t at = 0; at < heap.count;)
        at += bound(heap.list + at, heap.count - at, dirfd(directory), quota);
    closedir(directory);
    for (size_t i = 0; i < heap.count; i++)
        free(heap.list[i].name);
    free(heap.list);
}
