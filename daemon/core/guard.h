// The SIGBUS guard: a client can truncate its segment while we read it. The handler puts a zero page under the faulting
// address and marks the mapping broken; the reader goes on with zeros, finds the mark and drops the process.
#ifndef SL_CORE_GUARD_H
#define SL_CORE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

struct guarded {
    char *base;
    size_t size;
    volatile bool broken;
};

int guard_install(void);                    // the handler; 0 or -errno. Once per process
void guard_add(struct guarded *mapping);    // from the one thread that maps
void guard_remove(struct guarded *mapping);

#endif
