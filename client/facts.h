// What the client reads once from its surroundings: environment, /proc, launcher.
#ifndef SL_CLIENT_FACTS_H
#define SL_CLIENT_FACTS_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "proto/segment.h"

struct facts {
    bool read;
    bool off;     // SCOPED_LANE=off, or a setuid program
    bool follow;  // SCOPED_LANE_FORK=follow
    uint32_t fork_depth;
    uint32_t recorded_pid;  // the latest process that recorded: after forks the nearest ancestor that did, 0 none
    uint64_t recorded_start_time;
    uint64_t ring_bytes;
    int64_t rank;
    int32_t world_size;
    int place_count;
    char places[4][108];  // runtime directories, best first
    char shm_directory[160];
    char run_key[SL_RUN_KEY_BYTES];
    char program[1024];
    char directory[1024];
};

struct facts *facts_get(void);            // reads them on the first call; under the client's lock
uint64_t facts_start_time(uint32_t pid);  // of a process (0: this one) in clock ticks since boot; 0 unknown
int64_t facts_clock_ns(clockid_t clock);
uint32_t facts_clock_kind(void);          // enum sl_clock_kind: the counter only where the kernel itself trusts it

#endif
