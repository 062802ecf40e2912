// The watchdog: lanes that are in a region and get nowhere.
//
//     a lane is stuck when its last change is older than
//         stuck-after, and than stuck-factor × the longest finished call of its innermost region on any rank
//
// About once a second each process is looked at. What is newly stuck in a run raises an alert: the roll call is written beside the run
// file (alert.c), the command runs, /metrics and /v1/follow tell. A lane that goes on is told too.
#ifndef SL_SERVICES_WATCHDOG_H
#define SL_SERVICES_WATCHDOG_H

#include "services/query-rows.h"

// A lane of a client that was stuck when it was looked at.
struct stuck {
    uint32_t thread, task;
    uint64_t since;  // ticks: when it changes, the lane has gone on
    uint32_t name;   // of the innermost region, in the run
    bool alerted;
};

void watchdog_run(struct daemon *daemon);  // often: it looks only at what is due, and not for long
void watchdog_forget(struct client *client);

// How long a lane has done nothing, and from when on it is stuck. False where it is in no region, or moves, or has ended.
struct quiet {
    uint32_t name;
    int64_t quiet_ns, longest_ns, limit_ns;
};
bool watchdog_measure(const struct page *page, const struct lane *lane, struct quiet *quiet);

void rows_stuck(struct page *page);

// ---- alert.c
// Tells whoever should know that these lanes of a run are stuck.
void alert_raise(struct run *run, uint32_t lanes);

#endif
