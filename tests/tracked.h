// What the tests of trackers share: a place with a daemon that never answers, without one, or where recording is off; rows by value;
// threads that do as they are told.
#ifndef TESTS_TRACKED_H
#define TESTS_TRACKED_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "client/scoped_lane.h"
#include "tests/recorded.h"

static inline void no_daemon(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/register.sock", place.directory);
    unlink(path);
    close(place.listener);
    place.listener = -1;
}

static inline void alone_begin(void)
{
    place_make(&place);
    no_daemon();
}

static inline void alone_end(void)
{
    cr_assert_eq(place_segment(&place, 0, NULL), -1, "a segment is made for trackers alone");
    place_remove(&place);
}

static inline void off_begin(void)
{
    alone_begin();
    setenv("SCOPED_LANE", "off", 1);
}

TestSuite(tracker_recording, .init = recorded_begin, .fini = recorded_end, .timeout = 120);
TestSuite(tracker_alone, .init = alone_begin, .fini = alone_end, .timeout = 120);
TestSuite(tracker_off, .init = off_begin, .fini = alone_end, .timeout = 120);

#define EITHER_WAY(name)                      \
    static void name(void);                   \
    Test(tracker_recording, name) { name(); } \
    Test(tracker_alone, name) { name(); }     \
    static void name(void)

enum { MS = 1000000 };

static inline int64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static inline int64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

// Passes the time, by the wall clock.
static inline void pass(int64_t ns)
{
    for (int64_t end = now_ns() + ns; now_ns() < end;)
        ;
}

static inline sl_tracker_t installed(void)
{
    sl_tracker_t tracker = sl_tracker_create();
    cr_assert_not_null(tracker);
    cr_assert_eq(sl_tracker_install(tracker), 0);
    return tracker;
}

static inline size_t threads_of(sl_tracker_t tracker)
{
    size_t count;
    free(sl_tracker_threads(tracker, &count));
    return count;
}

static inline size_t tasks_of(sl_tracker_t tracker)
{
    size_t count;
    free(sl_tracker_tasks(tracker, &count));
    return count;
}

// A row by value; its texts live in a few buffers that are used in turn.
static inline const char *keep(const char *text)
{
    static char kept[16][256];
    static int next;
    next = (next + 1) % 16;
    snprintf(kept[next], sizeof kept[next], "%s", text);
    return kept[next];
}

static inline struct sl_thread_record thread_of(sl_tracker_t tracker, int64_t index)
{
    struct sl_thread_record *row = sl_tracker_thread(tracker, index), copy;
    cr_assert_not_null(row, "no thread %ld", (long)index);
    copy = *row;
    copy.name = keep(row->name);
    free(row);
    return copy;
}

static inline struct sl_task_record task_of(sl_tracker_t tracker, int64_t index)
{
    struct sl_task_record *row = sl_tracker_task(tracker, index), copy;
    cr_assert_not_null(row, "no task %ld", (long)index);
    copy = *row;
    copy.kind = keep(row->kind);
    copy.name = keep(row->name);
    copy.coro_name = keep(row->coro_name);
    free(row);
    return copy;
}

// ---- threads that do as they are told

struct worker {
    pthread_t thread;
    atomic_int asked, done;
    void (*action)(void *);
    void *argument;
};

static inline void *work(void *data)
{
    struct worker *worker = data;
    for (int round = 1;; round++) {
        while (atomic_load(&worker->asked) < round)
            sched_yield();
        if (!worker->action)
            return NULL;
        worker->action(worker->argument);
        atomic_store(&worker->done, round);
    }
}

static inline void worker_start(struct worker *worker)
{
    *worker = (struct worker){0};
    cr_assert_eq(pthread_create(&worker->thread, NULL, work, worker), 0);
}

static inline void worker_do(struct worker *worker, void (*action)(void *), void *argument)
{
    worker->action = action;
    worker->argument = argument;
    int round = atomic_fetch_add(&worker->asked, 1) + 1;
    while (atomic_load(&worker->done) < round)
        sched_yield();
}

static inline void worker_end(struct worker *worker)
{
    worker->action = NULL;
    atomic_fetch_add(&worker->asked, 1);
    cr_assert_eq(pthread_join(worker->thread, NULL), 0);
}

static inline void call_once(void *unused)
{
    (void)unused;
    sl_region_t region = sl_region("a");
    sl_enter(region);
    sl_exit(region);
}

static inline void run(void (*action)(void *), void *argument)
{
    struct worker worker;
    worker_start(&worker);
    worker_do(&worker, action, argument);
    worker_end(&worker);
}

static inline void ask_index(void *answer)
{
    sl_tracker_t *tracker = answer;
    *(int64_t *)answer = sl_tracker_current_thread(*tracker);
}

static inline int64_t index_of(struct worker *worker, sl_tracker_t tracker)
{
    union {
        sl_tracker_t tracker;
        int64_t index;
    } ask = {tracker};
    worker_do(worker, ask_index, &ask);
    return ask.index;
}

static inline void step(void *task)
{
    sl_task_step_in(*(sl_task_t *)task);
    sl_task_step_out(*(sl_task_t *)task);
}

static inline void step_and_call(void *task)
{
    sl_task_step_in(*(sl_task_t *)task);
    call_once(NULL);
    sl_task_step_out(*(sl_task_t *)task);
}

static inline void enter_step(void *task)
{
    sl_task_step_in(*(sl_task_t *)task);
}

static inline void finish(void *task)
{
    sl_task_finish(*(sl_task_t *)task);
}

#endif
