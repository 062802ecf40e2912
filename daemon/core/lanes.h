// What is open now, read from lane blocks in shared memory while their owner writes them.
#ifndef SL_CORE_LANES_H
#define SL_CORE_LANES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/segment.h"

#define LANES_DEPTH_LIMIT (SL_THREAD_ENTRIES + SL_OVERFLOW_ENTRIES)

struct lane_call {
    uint64_t start;   // ticks
    uint32_t region;  // the process's id
    bool recorded;    // false: entered while recording was paused, and will be no call
};

struct lane_view {
    uint32_t depth;     // calls below, outermost first
    uint32_t too_deep;  // open, but beyond what a lane holds
    uint32_t task, thread;
    uint64_t since;  // ticks
    bool moving;      // it changed while it was read: the calls are those that agreed
    struct lane_call calls[LANES_DEPTH_LIMIT];
};

// Reads the lane at `lane`, whose block has room for `entries` entries. Tries a few times, then says "moving"; never spins, for a
// spinning reader doubles the writer's cost.
void lanes_read(const struct segment *segment, const struct sl_lane *lane, uint32_t entries, struct lane_view *view);

// Reads a task's row and its lane. They are of one moment, or the view says "moving".
void lanes_read_task(const struct segment *segment, const struct sl_task_row *shared, struct sl_task_row *row, struct lane_view *view);

// Reads the block of a task without its stack. False when it changed all the while.
bool lanes_read_steps(const struct sl_lane *shared, struct sl_lane *lane);

#endif
