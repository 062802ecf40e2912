// How long the steps of a process's tasks held their threads, by kind of task. Slow steps come one by one, as records; how many there
// were in all, and how long together, is in the tasks' rows, and of tasks that have left the tables is kept here. So the histogram is
// whole although short steps cost nothing: those that no record tells of are below its first edge.
#ifndef SL_CORE_STEPS_H
#define SL_CORE_STEPS_H

#include <stdint.h>

enum { STEPS_EDGES = 13, STEPS_KINDS = 16 };

#define STEPS_KIND_OTHER 0xffffffffu  // the kinds that there was no room for

extern const int64_t steps_edges_ns[STEPS_EDGES];  // rising; the first is above what the client holds for slow

struct steps {
    uint32_t kind;               // a word of the process, or STEPS_KIND_OTHER
    uint64_t over[STEPS_EDGES];  // steps longer than that edge
    uint64_t gone;               // steps of the tasks that have left the tables
    uint64_t gone_running, gone_longest;  // ticks
    uint64_t told, told_under[STEPS_EDGES];  // what was said last: steps in all, and those not longer; it never goes back
};

struct steps_table {
    struct steps *of;  // at most STEPS_KINDS
    uint32_t count;
};

struct steps *steps_of(struct steps_table *table, uint32_t kind);  // made if need be
void steps_count_slow(uint64_t over[STEPS_EDGES], int64_t length_ns);
void steps_finish(struct steps_table *table);

#endif
