// Trackers: tables of threads and tasks in private memory. tracker.c fills them, tracker-read.c reads them, both under the
// client's lock. A live thread's or task's facts stay where they are (its page, its row); the table points there and takes
// a copy when it ends, since pages and rows are used again.
//
// The struct lies in memory that a fork child finds zeroed: there it is a tracker nobody has used. The tables are not
// mapped in the child at all.
#ifndef SL_CLIENT_TRACKER_H
#define SL_CLIENT_TRACKER_H

#include "client/scoped_lane_tracker.h"
#include "client/state.h"

struct thread_entry {
    struct producer *live;  // NULL once it has ended
    int64_t ident, native_id, start_ns, end_ns, cpu_ns;
    const char *name;  // once it has ended
    uint32_t name_length, daemon;
};

struct task_entry {
    struct sl_task_row *row;  // NULL once it has ended; what follows is filled in then
    const char *name, *coro_name;
    uint32_t name_length, coro_name_length;
    uint32_t kind;
    int32_t thread;
    struct task_times {
        int64_t created_ns, done_ns, steps, running_ns, suspended_ns, step_started_ns, last_step_end_ns, is_running;
    } times;
};

// Grows by remapping, so that its pages are the kernel's until they are used.
struct array {
    void *items;
    size_t bytes;
    uint64_t count;
};

// Numbers to 1 + index.
struct map {
    struct array array;
};

// Texts that never change, back to back.
struct texts {
    struct texts_chunk {
        struct texts_chunk *next;
        size_t bytes;
    } *chunks;
    char *next;
    size_t left;
};

enum tracker_state { TRACKER_NEW = 0, TRACKER_LISTED = 1, TRACKER_DESTROYED = 2 };

struct sl_tracker {
    uint32_t state;  // NEW also in a fork child
    uint32_t installed;
    struct sl_tracker *next;
    struct array threads, tasks;  // struct thread_entry, struct task_entry
    struct map by_serial;         // threads by their number in the process
    struct map by_index;          // threads by their number in the segment
    struct map by_row[2];         // living tasks by offset / 64 of their row: in the segment, in private memory
    struct texts texts;
};

static inline struct thread_entry *tracker_thread_at(const struct sl_tracker *tracker, uint64_t index)
{
    return (struct thread_entry *)tracker->threads.items + index;
}

static inline struct task_entry *tracker_task_at(const struct sl_tracker *tracker, uint64_t index)
{
    return (struct task_entry *)tracker->tasks.items + index;
}

int64_t map_get(const struct map *map, uint64_t key);  // -1: not there
int64_t tracker_index_of_row(const struct sl_tracker *tracker, const struct sl_task_row *row);
bool tracker_enter(sl_tracker_t tracker, struct guard *guard);  // takes the lock; false: none, or destroyed, and not taken

// Both clocks at one moment, and how one tells the other.
struct moment {
    uint64_t ticks;
    int64_t ns;
    double ns_per_tick;
};
struct moment moment_now(void);
struct task_times task_times_of(const struct sl_task_row *row, const struct moment *now);
int32_t task_thread_of(const struct sl_tracker *tracker, const struct sl_task_row *row);

#endif
