// One conversion of a spool into a run file, in a process of its own with the run owner's identity: a crash of it costs nobody
// else, and a killed one leaves no half file.
#ifndef SL_SERVICES_CONVERTER_H
#define SL_SERVICES_CONVERTER_H

#include <stdint.h>
#include <uv.h>

#include "base/buffer.h"
#include "services/daemon.h"

struct converter {
    struct run *run;  // counted in run->converters until it is done
    double progress;  // 0 … 1
    uint64_t calls, lost;
    char *problem;    // NULL: the file is there
    void (*done)(struct converter *converter, void *context);  // may be set to NULL by one who no longer waits
    void *context;
    // its own
    uv_process_t process;
    uv_pipe_t words;
    struct buffer line, last_words;
    int open_handles;
    int64_t exit_status;
    int signal_number;
};

// Starts it on the first `spool_bytes` of the run's spool, 0 for all of it; `done` is called once, from the loop, after which the
// converter frees itself. 0 or -errno (then `done` is not called).
int converter_start(struct run *run, uint64_t spool_bytes, const char *output, void (*done)(struct converter *, void *), void *context,
                    struct converter **converter);

#endif
