// scoped_lane_tracker.h: registries of a program's threads and tasks, for the program itself to read. scoped_lane.h
// includes it.
//
//     sl_tracker_t tracker = sl_tracker_create();
//     sl_tracker_install(tracker);
//     ...                                                // threads come and go, tasks are created, stepped, finished
//     struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, start_ns);
//     for (size_t i = 0; i < snapshot->threads.count; i++)
//         printf("%s: %lld ns\n", snapshot->threads.name[i], (long long)snapshot->threads.cpu_ns[i]);
//     free(snapshot);
//     sl_tracker_destroy(tracker);
//
// A tracker numbers threads and tasks in the order in which it learns of them. There may be several; each has its own
// numbers and is installed and uninstalled in any order. A tracker needs no daemon, and works with SCOPED_LANE=off too: it
// is the program that asks for it. It keeps tables and nothing else: what it knows is not in the run file, and it records
// no call.
//
// While it is installed, it learns of a thread at the thread's next call of this library, sl_enter included, and of a task
// when it is created, or stepped, in which case its row tells of the time before as well. What it knows it follows to its
// end, also once it is uninstalled. It keeps every row until it is destroyed: about 100 bytes and the texts for each thread
// and task there ever was.
//
// Times are ns of CLOCK_MONOTONIC. An unknown one is SL_UNKNOWN (-1): the end of what goes on.
//
// Threads: every function may be called from any thread. Signals: from handlers only those that return no block. Errors
// leave errno alone. fork: in the child a tracker is empty and not installed; it may be installed, or destroyed. Results
// come in one block of malloc, texts included, that the caller frees with free(); NULL where there is no memory. The null
// tracker (NULL) is accepted and does nothing.
#ifndef SCOPED_LANE_TRACKER_H
#define SCOPED_LANE_TRACKER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SL_PUBLIC
#define SL_PUBLIC __attribute__((visibility("default")))
#endif

typedef struct sl_tracker *sl_tracker_t;

struct sl_thread_record {
    int64_t index;       // from 0, in the order of registration with this tracker
    int64_t ident;       // pthread_t
    int64_t native_id;   // the kernel's
    const char *name;    // UTF-8; the latest
    int64_t daemon;      // 1: nobody waits for its end
    int64_t start_ns;    // when this tracker learned of it
    int64_t end_ns;      // SL_UNKNOWN: it is alive
    int64_t cpu_ns;      // since the thread began, as of this reading or of its end
    int64_t task_index;  // of the task whose step it is in, SL_NO_TASK
};

// A step in progress counts in running_ns up to this reading, a suspension in progress in suspended_ns. What closed steps
// alone make is running_ns less the time since step_started_ns where is_running.
struct sl_task_record {
    int64_t index;     // from 0, in the order of creation
    const char *kind;  // "task", "greenlet", …
    const char *name;  // the latest
    const char *coro_name;
    int64_t thread_index;  // of the last step, before any of its creator; SL_UNKNOWN: a thread this tracker does not know
    int64_t created_ns;
    int64_t done_ns;  // SL_UNKNOWN: not yet
    int64_t steps;
    int64_t running_ns;
    int64_t suspended_ns;      // between steps; the wait before the first counts nowhere
    int64_t step_started_ns;   // of the latest step, 0 before any
    int64_t last_step_end_ns;  // of the latest closed step, 0 before any
    int64_t is_running;        // 1: a step is in progress
};

// The same as columns, each of `count` entries.
struct sl_thread_columns {
    size_t count;
    int64_t *index, *ident, *native_id;
    const char **name;
    int8_t *daemon;
    int64_t *start_ns, *end_ns, *cpu_ns;
};

struct sl_task_columns {
    size_t count;
    int64_t *index;
    const char **kind, **name, **coro_name;
    int64_t *thread_index, *created_ns, *done_ns, *steps, *running_ns, *suspended_ns;
};

struct sl_snapshot {
    struct sl_thread_columns threads;
    struct sl_task_columns tasks;
};

// A tracker that is not installed; NULL where there is no memory.
SL_PUBLIC sl_tracker_t sl_tracker_create(void);
// Uninstalls it and gives its memory back. Rows handed out stay good.
SL_PUBLIC void sl_tracker_destroy(sl_tracker_t tracker);

// From here on it learns of threads and tasks, until it is uninstalled. Both may be called again to no effect. 0, or -EINVAL
// when it has been destroyed.
SL_PUBLIC int sl_tracker_install(sl_tracker_t tracker);
SL_PUBLIC int sl_tracker_uninstall(sl_tracker_t tracker);
SL_PUBLIC int sl_tracker_is_installed(sl_tracker_t tracker);  // 1 or 0

// The calling thread's index; the tracker learns of it, installed or not. -ENOMEM, -EINVAL for the null tracker.
SL_PUBLIC int64_t sl_tracker_current_thread(sl_tracker_t tracker);
// A task's index; SL_NO_TASK when it has ended, or the tracker does not know it.
SL_PUBLIC int64_t sl_tracker_task_index(sl_tracker_t tracker, uint64_t task);

// One row; NULL also when there is none of this index.
SL_PUBLIC struct sl_thread_record *sl_tracker_thread(sl_tracker_t tracker, int64_t index);
SL_PUBLIC struct sl_task_record *sl_tracker_task(sl_tracker_t tracker, int64_t index);
// All rows, in order, how many in *count. The rows of one reading may differ by the time it takes.
SL_PUBLIC struct sl_thread_record *sl_tracker_threads(sl_tracker_t tracker, size_t *count);
SL_PUBLIC struct sl_task_record *sl_tracker_tasks(sl_tracker_t tracker, size_t *count);
// Both tables; start_ns, end_ns, created_ns and done_ns less origin_ns, unknown ones left alone.
SL_PUBLIC struct sl_snapshot *sl_tracker_snapshot(sl_tracker_t tracker, int64_t origin_ns);

#ifdef __cplusplus
}
#endif

#endif
