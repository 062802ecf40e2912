// How long tasks' steps held their threads, as of now, by kind of task, added up over processes.
#ifndef SL_SERVICES_STEP_SUMS_H
#define SL_SERVICES_STEP_SUMS_H

#include "core/steps.h"
#include "services/query-page.h"

struct step_sum {
    char *kind;
    uint64_t steps;               // that have ended
    uint64_t under[STEPS_EDGES];  // of them, not longer than that edge
    int64_t running_ns;           // in them
    int64_t longest_ns;           // a step in progress counts too
};

// What a process says now, beside what is kept in its table: by place there.
struct steps_now {
    uint64_t steps, running, longest;
    int64_t in_progress_ns;
};

struct step_sums {
    struct step_sum of[STEPS_KINDS];
    uint32_t count;
    struct steps_now now[STEPS_KINDS];  // of the process that is being added
};

// Adds a process, part by part, from 0 on, and moves `part` on: false when that was the last.
bool step_sums_add_part(struct step_sums *sums, struct page *page, struct run *run, struct model_process *process, uint32_t *part);
void step_sums_finish(struct step_sums *sums);  // empty again

#endif
