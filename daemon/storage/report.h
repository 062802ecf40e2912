// What `scoped-lane report` has to say of a run file, as rows: sums over ranks, self times (as the file states them,
// else from the call stacks), and what each thread and kind of task did. No terminal and no JSON here.
#ifndef SL_STORAGE_REPORT_H
#define SL_STORAGE_REPORT_H

#include "storage/scoped_lane_run.h"

enum { REPORT_ALL_RANKS = -1, REPORT_UNKNOWN = -1 };

// Over the ranks the report is about.
struct report_region {
    const char *name;
    uint32_t ranks;      // that called it
    uint64_t calls;
    int64_t total_ns;
    int64_t self_ns;     // REPORT_UNKNOWN where the calls of a rank do not nest
    int64_t minimum_ns, maximum_ns;
    double mean_ns;
    double share;        // of report.base_ns; NaN where that is not known
};

struct report_thread {
    const struct sl_run_thread *thread;
    uint64_t calls;
    int64_t region_ns;   // its top-level calls, and those of the tasks that ran on it last; or REPORT_UNKNOWN
    double wall_time;    // seconds; of a thread that lived at the end of the run until then
    bool cpu_exact;      // else its CPU time is the last sample of it, a lower bound
};

struct report_task {
    const struct sl_run_task *task;
    int64_t longest_step_ns;  // REPORT_UNKNOWN where the file does not tell
    bool bound;               // its process died in mid-step: running and suspended are bounds
};

// Tasks of one kind and coroutine (of one name where they have no coroutine), on all ranks.
struct report_task_group {
    const char *kind, *name;
    uint64_t tasks, done;
    int64_t steps;
    double running_time, awaiting_time;
    int64_t longest_step_ns;  // REPORT_UNKNOWN where the file does not tell
};

struct report {
    uint64_t calls;
    uint64_t lost;        // as the file says: with any, calls and totals of regions are lower bounds
    uint32_t ranks;       // that have calls
    int64_t wall_ns;      // from setup to finalize, else from the first call to the last; REPORT_UNKNOWN
    int64_t base_ns;      // what shares are shares of: the session's total, else wall times ranks; REPORT_UNKNOWN
    const char *base;     // in words: "the session", "the run", NULL
    size_t region_count, thread_count, task_count, group_count, remark_count;
    struct report_region *regions;   // the greatest total first
    struct report_thread *threads;   // by rank and index
    struct report_task *tasks;       // likewise
    struct report_task_group *groups;  // the most running time first
    char **remarks;       // what had to be left out, and why: a line each
};

// `rank` or REPORT_ALL_RANKS. The report's texts are the run's. Takes memory for the calls of one rank at a time, and
// only where call stacks are needed.
int report_make(struct report *report, struct sl_run *run, int64_t rank, char error[SL_RUN_ERROR_MAX]);
void report_finish(struct report *report);

#endif
