// From a spool to a run file. Runs in a process of its own, with the run owner's identity.
#ifndef SL_STORAGE_CONVERT_H
#define SL_STORAGE_CONVERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct convert_options {
    const char *spool;
    const char *output;
    uint64_t spool_bytes;  // only so much of it: of a run that goes on, whose ledger holds just there; 0 all
    int schema;     // 2 or 3
    bool compress;
    void (*on_progress)(void *context, double part);  // 0 … 1; NULL
    void *context;
};

struct convert_result {
    uint64_t calls, lost;
    char problem[1024];  // what was tried, on what, and why it failed
};

// Reads the spool twice: to count, and to sort each row's calls in a scratch file beside it. The output is complete or not there.
// 0 or -errno.
int convert(const struct convert_options *options, struct convert_result *result);

#endif
