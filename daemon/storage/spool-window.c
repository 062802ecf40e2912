#include "storage/spool-window.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { SPACE_SHARE = 16 };  // a window takes at most one part in so many of the free space

static void touch_each_page(char *base, size_t size)
{
    for (size_t at = 0; at < size; at += (size_t)sysconf(_SC_PAGESIZE))
        __atomic_fetch_or(base + at, 0, __ATOMIC_RELAXED);  // the first page may hold what is written already
}

int window_make(struct spool_window *window, int fd, uint64_t from, uint64_t bytes)
{
    struct statvfs space;
    *window = (struct spool_window){.from = from, .to = from + bytes};
    if (fstatvfs(fd, &space) < 0)
        return -errno;
    if (bytes > (uint64_t)space.f_bavail * space.f_frsize / SPACE_SHARE)
        return -ENOSPC;
    if (fallocate(fd, 0, (off_t)from, (off_t)bytes) < 0)
        return -errno;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
    if (base == MAP_FAILED)
        return -errno;
    madvise(base, bytes, MADV_DONTDUMP);
    if (madvise(base, bytes, MADV_POPULATE_WRITE) < 0 && errno == EINVAL)
        touch_each_page(base, bytes);
    window->map.base = base;
    window->map.size = bytes;
    return 0;
}

void window_refresh(const struct spool_window *window)
{
    if (window->map.base)
        madvise(window->map.base, window->map.size, MADV_POPULATE_WRITE);
}

void window_drop(struct spool_window *window)
{
    if (window->map.base)
        munmap(window->map.base, window->map.size);
    *window = (struct spool_window){0};
}
