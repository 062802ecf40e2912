// A stretch of the spool's file that lies ready: its blocks are allocated, its pages mapped and present. Writing into it is
// copying, and waits for no lock or queue of the file system, which can take longer than a ring takes to fill. What is
// copied there is in the page cache like what is written, and survives us.
//
// A spool has two: the one it writes to and the one that follows. They are made ahead, on another thread, as large as what
// comes in about a second, but bounded, for they count as resident memory. Without them (a file system that cannot allocate,
// a nearly full disk, too much at once) the spool is written.
#ifndef SL_STORAGE_SPOOL_WINDOW_H
#define SL_STORAGE_SPOOL_WINDOW_H

#include <stdint.h>

#include "core/guard.h"

#define WINDOW_BYTES_MIN (UINT64_C(128) << 10)
#define WINDOW_BYTES_MAX (UINT64_C(16) << 20)

struct spool_window {
    struct guarded map;  // base NULL: there is none
    uint64_t from, to;   // in the file; multiples of the page
};

// May be called on any thread. `from` and `bytes` are multiples of the page. 0; -EOPNOTSUPP where it can never be; -ENOSPC
// where little is left that others will want.
int window_make(struct spool_window *window, int fd, uint64_t from, uint64_t bytes);
// Makes its pages writable at once again after they have been brought to the disk. On any thread.
void window_refresh(const struct spool_window *window);
// On any thread; it must not be guarded any more.
void window_drop(struct spool_window *window);

#endif
