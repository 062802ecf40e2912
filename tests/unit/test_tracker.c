// A tracker's rows: threads, names, tasks, snapshots. What holds with a daemon and without is a test of both suites.
#include <math.h>

#include "storage/scoped_lane_run.h"
#include "tests/tracked.h"

// ---- threads

EITHER_WAY(the_calling_thread_has_one_record_and_the_next_ones_follow)
{
    sl_tracker_t tracker = installed();
    cr_assert_eq(sl_tracker_current_thread(tracker), 0);
    cr_assert_eq(sl_tracker_current_thread(tracker), 0);
    struct worker workers[3];
    for (int i = 0; i < 3; i++) {
        worker_start(&workers[i]);
        cr_assert_eq(index_of(&workers[i], tracker), i + 1);
        cr_assert_eq(index_of(&workers[i], tracker), i + 1);
    }
    cr_assert_eq(threads_of(tracker), 4);
    int64_t idents[4];
    for (int i = 0; i < 4; i++) {
        struct sl_thread_record row = thread_of(tracker, i);
        cr_assert_eq(row.index, i);
        cr_assert_eq(row.end_ns, SL_UNKNOWN);
        idents[i] = row.ident;
        for (int j = 0; j < i; j++)
            cr_assert_neq(idents[i], idents[j], "two living threads have one ident");
    }
    cr_assert_eq(idents[0], (int64_t)pthread_self());
    for (int i = 0; i < 3; i++)
        worker_end(&workers[i]);
    cr_assert_eq(threads_of(tracker), 4);
}

EITHER_WAY(a_record_of_the_calling_thread_says_who_it_is)
{
    sl_tracker_t tracker = installed();
    sl_thread_name("chief");
    int64_t before = now_ns();
    cr_assert_eq(sl_tracker_current_thread(tracker), 0);
    struct sl_thread_record row = thread_of(tracker, 0);
    cr_assert_str_eq(row.name, "chief");
    cr_assert_eq(row.ident, (int64_t)pthread_self());
    cr_assert_eq(row.native_id, (int64_t)gettid());
    cr_assert_eq(row.daemon, 0);
    cr_assert_eq(row.task_index, SL_NO_TASK);
    cr_assert_eq(row.end_ns, SL_UNKNOWN);
    cr_assert(row.start_ns <= before && before - row.start_ns < 1000 * MS, "the name was its first call");
    int64_t last = 0;
    for (int i = 0; i < 20; i++) {
        pass(MS);
        int64_t cpu = thread_of(tracker, 0).cpu_ns;
        cr_assert_gt(cpu, last, "processor time goes on");
        cr_assert_leq(cpu, clock_ns(CLOCK_THREAD_CPUTIME_ID));
        last = cpu;
    }
}

static void burn(void *cpu_ns)
{
    while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < 20 * MS)
        call_once(NULL);
    *(int64_t *)cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

EITHER_WAY(a_thread_that_was_joined_has_its_end_and_its_exact_processor_time)
{
    sl_tracker_t tracker = installed();
    int64_t own[3], before = now_ns();
    for (int i = 0; i < 3; i++)
        run(burn, &own[i]);
    for (int i = 0; i < 3; i++) {
        struct sl_thread_record row = thread_of(tracker, i);
        cr_assert_neq(row.ident, 0);
        cr_assert_geq(row.start_ns, before);
        cr_assert_gt(row.end_ns, row.start_ns);
        cr_assert_leq(row.end_ns, now_ns());
        cr_assert(row.cpu_ns >= own[i] && row.cpu_ns < own[i] + 5 * MS, "%ld ns, the thread itself read %ld", (long)row.cpu_ns, (long)own[i]);
        before = row.end_ns;
    }
    cr_assert_eq(threads_of(tracker), 3, "this thread made no call");
}

EITHER_WAY(the_processor_time_of_another_living_thread_is_read_when_asked)
{
    sl_tracker_t tracker = installed();
    struct worker worker;
    int64_t own;
    worker_start(&worker);
    worker_do(&worker, burn, &own);
    cr_assert_geq(thread_of(tracker, 0).cpu_ns, own);
    cr_assert_eq(thread_of(tracker, 0).end_ns, SL_UNKNOWN);
    worker_end(&worker);
}

EITHER_WAY(a_thread_that_makes_no_call_is_not_known)
{
    sl_tracker_t tracker = installed();
    struct worker worker;
    worker_start(&worker);
    cr_assert_eq(threads_of(tracker), 0);
    worker_do(&worker, call_once, NULL);
    cr_assert_eq(threads_of(tracker), 1);
    worker_end(&worker);
}

EITHER_WAY(a_thread_alive_before_is_known_from_its_next_call)
{
    struct worker old;
    sl_tracker_t first = installed();
    worker_start(&old);
    worker_do(&old, call_once, NULL);
    call_once(NULL);
    sl_tracker_t second = installed();
    cr_assert_eq(threads_of(second), 0);
    int64_t before = now_ns();
    call_once(NULL);
    cr_assert_eq(threads_of(second), 1);
    cr_assert_geq(thread_of(second, 0).start_ns, before, "known since then");
    worker_do(&old, call_once, NULL);
    cr_assert_eq(threads_of(second), 2);
    cr_assert_eq(thread_of(second, 1).native_id, thread_of(first, 0).native_id, "each numbers in its own order");
    worker_end(&old);
    cr_assert_gt(thread_of(first, 0).end_ns, 0);
    cr_assert_eq(thread_of(first, 0).end_ns > 0, thread_of(second, 1).end_ns > 0);
}

EITHER_WAY(threads_one_after_the_other_with_one_ident_are_two)
{
    sl_tracker_t tracker = installed();
    for (int i = 0; i < 50; i++)
        run(call_once, NULL);
    cr_assert_eq(threads_of(tracker), 50);
    for (int i = 1; i < 50; i++) {
        struct sl_thread_record before = thread_of(tracker, i - 1), row = thread_of(tracker, i);
        cr_assert_geq(row.start_ns, before.end_ns);
        cr_assert_neq(row.native_id, before.native_id);
    }
}

static pthread_key_t late_key;

static void late(void *round)
{
    call_once(NULL);
    if ((intptr_t)round < 3)
        pthread_setspecific(late_key, (void *)((intptr_t)round + 1));
}

static void set_late(void *unused)
{
    (void)unused;
    call_once(NULL);
    pthread_setspecific(late_key, (void *)1);
}

EITHER_WAY(a_thread_that_calls_from_a_late_destructor_is_still_one)
{
    sl_tracker_t tracker = installed();
    call_once(NULL);  // so that the library's key is older
    pthread_key_create(&late_key, late);
    run(set_late, NULL);
    cr_assert_eq(threads_of(tracker), 2);
    cr_assert_gt(thread_of(tracker, 1).end_ns, thread_of(tracker, 1).start_ns);
}

// ---- names

static void name_by_us(void *name)
{
    sl_thread_name(name);
}

static void name_by_kernel(void *name)
{
    call_once(NULL);
    pthread_setname_np(pthread_self(), name);
}

EITHER_WAY(the_last_name_of_a_thread_wins_whoever_gives_it)
{
    sl_tracker_t tracker = installed();
    struct worker worker;
    worker_start(&worker);
    worker_do(&worker, name_by_kernel, "by kernel");
    cr_assert_str_eq(thread_of(tracker, 0).name, "by kernel");
    pthread_setname_np(worker.thread, "from outside");
    cr_assert_str_eq(thread_of(tracker, 0).name, "from outside");
    char longer[200];
    memset(longer, 'x', 199);
    longer[199] = 0;
    worker_do(&worker, name_by_us, longer);
    cr_assert_str_eq(thread_of(tracker, 0).name, longer);
    worker_do(&worker, name_by_kernel, "kernel again");
    cr_assert_str_eq(thread_of(tracker, 0).name, longer, "a name the program gave is whole and stays");
    worker_do(&worker, name_by_us, "");
    cr_assert_str_eq(thread_of(tracker, 0).name, "");
    worker_do(&worker, name_by_us, "bad \xff byte");
    cr_assert_str_eq(thread_of(tracker, 0).name, "bad \xef\xbf\xbd byte");
    worker_end(&worker);
    cr_assert_str_eq(thread_of(tracker, 0).name, "bad \xef\xbf\xbd byte");
    run(name_by_kernel, "the very last");
    cr_assert_str_eq(thread_of(tracker, 1).name, "the very last");
}

EITHER_WAY(names_of_a_megabyte_come_out_whole)
{
    enum { LENGTH = SL_NAME_LENGTH_LIMIT };
    static char name[LENGTH + 100];
    sl_tracker_t tracker = installed();
    for (int i = 0; i < LENGTH + 99; i++)
        name[i] = (char)('a' + i % 26);
    for (int round = 0; round < 3; round++) {
        sl_thread_name(name);
        sl_task_t task = sl_task_create("task", name, name + 1);
        struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, 0);
        cr_assert_eq(strlen(snapshot->threads.name[0]), LENGTH);
        cr_assert_eq(memcmp(snapshot->threads.name[0], name, LENGTH), 0);
        cr_assert_eq(memcmp(snapshot->tasks.coro_name[round], name + 1, LENGTH), 0);
        free(snapshot);
        sl_task_finish(task);
        snapshot = sl_tracker_snapshot(tracker, 0);
        cr_assert_eq(memcmp(snapshot->tasks.name[round], name, LENGTH), 0);
        free(snapshot);
        sl_thread_name("short");
    }
}

EITHER_WAY(a_task_may_be_renamed_until_it_has_ended)
{
    sl_tracker_t tracker = installed();
    sl_task_t task = sl_task_create("task", "Task-1", "main");
    sl_task_rename(task, "given later \xc3\xa4");
    cr_assert_str_eq(task_of(tracker, 0).name, "given later \xc3\xa4");
    sl_task_finish(task);
    sl_task_rename(task, "too late");
    cr_assert_str_eq(task_of(tracker, 0).name, "given later \xc3\xa4");
    cr_assert_str_eq(task_of(tracker, 0).coro_name, "main");
}

static void be_daemon(void *is_daemon)
{
    sl_thread_daemon(*(int *)is_daemon);
}

EITHER_WAY(a_thread_says_whether_it_is_a_daemon)
{
    sl_tracker_t tracker = installed();
    run(be_daemon, &(int){1});
    run(be_daemon, &(int){0});
    cr_assert_eq(thread_of(tracker, 0).daemon, 1);
    cr_assert_eq(thread_of(tracker, 1).daemon, 0);
    struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, 0);
    cr_assert_eq(snapshot->threads.daemon[0], 1);
    cr_assert_eq(snapshot->threads.daemon[1], 0);
    free(snapshot);
}

// ---- tasks

// When something happened, seen from outside: between the two. The program may lose the processor at any point.
struct when {
    int64_t from, to;
};

#define WHEN(statement)                      \
    ({                                       \
        struct when when_ = {now_ns(), 0};   \
        statement;                           \
        when_.to = now_ns();                 \
        when_;                               \
    })

enum { CLOCK_ERROR = 20000 };  // ns, of a time that was taken in ticks

static void expect_within(int64_t value, int64_t least, int64_t most, const char *what)
{
    cr_expect(value >= least - CLOCK_ERROR && value <= most + CLOCK_ERROR, "%s: %ld, not %ld to %ld", what, (long)value, (long)least, (long)most);
}

static void expect_at(int64_t time_ns, struct when when, const char *what)
{
    expect_within(time_ns, when.from, when.to, what);
}

// A time from one moment to another, or the sum of two such.
static void expect_length(int64_t value, struct when from, struct when to, const char *what)
{
    expect_within(value, to.from - from.to, to.to - from.from, what);
}

EITHER_WAY(steps_run_the_time_between_is_suspended_and_the_wait_before_the_first_is_neither)
{
    sl_tracker_t tracker = installed();
    sl_task_t task;
    pass(5 * MS);
    struct when created = WHEN(task = sl_task_create("greenlet", "worker", "fetch"));
    struct sl_task_record row = task_of(tracker, 0);
    cr_assert_str_eq(row.kind, "greenlet");
    cr_assert_str_eq(row.name, "worker");
    cr_assert_str_eq(row.coro_name, "fetch");
    expect_at(row.created_ns, created, "created");
    cr_assert_eq(row.done_ns, SL_UNKNOWN);
    cr_assert_eq(row.steps + row.running_ns + row.suspended_ns + row.is_running + row.step_started_ns + row.last_step_end_ns, 0);
    cr_assert_eq(row.thread_index, 0, "of its creator");
    pass(3 * MS);
    struct when in1 = WHEN(sl_task_step_in(task));
    pass(2 * MS);
    struct when out1 = WHEN(sl_task_step_out(task));
    row = task_of(tracker, 0);
    cr_assert_eq(row.steps, 1);
    expect_length(row.running_ns, in1, out1, "running after a step");
    expect_at(row.step_started_ns, in1, "start of the step");
    expect_at(row.last_step_end_ns, out1, "end of the step");
    pass(4 * MS);
    struct when in2 = WHEN(sl_task_step_in(task)), out2 = WHEN(sl_task_step_out(task));
    pass(MS);
    struct when done = WHEN(sl_task_finish(task));
    pass(MS);
    row = task_of(tracker, 0);
    cr_assert_eq(row.steps, 2);
    expect_length(row.suspended_ns, out1, in2, "suspended");
    expect_within(row.running_ns, out1.from - in1.to + out2.from - in2.to, out1.to - in1.from + out2.to - in2.from, "running");
    expect_at(row.created_ns, created, "created, in the end");
    expect_at(row.done_ns, done, "done");
    cr_assert_leq(row.running_ns + row.suspended_ns, row.done_ns - row.created_ns);
    cr_assert_eq(row.is_running, 0);
}

EITHER_WAY(what_is_in_progress_counts_up_to_now)
{
    sl_tracker_t tracker = installed();
    sl_task_t task = sl_task_create("task", "t", "t");
    struct sl_task_record row;
    pass(2 * MS);
    cr_assert_eq(task_of(tracker, 0).suspended_ns, 0, "the wait before the first step");
    struct when in = WHEN(sl_task_step_in(task));
    pass(2 * MS);
    struct when look = WHEN(row = task_of(tracker, 0));
    cr_assert_eq(row.is_running, 1);
    cr_assert_eq(row.steps, 1);
    expect_length(row.running_ns, in, look, "a step in progress");
    cr_assert_eq(row.suspended_ns, 0);
    expect_at(row.step_started_ns + row.running_ns, look, "closed steps are what is left");
    cr_assert_eq(thread_of(tracker, 0).task_index, 0);
    struct when out = WHEN(sl_task_step_out(task));
    pass(3 * MS);
    look = WHEN(row = task_of(tracker, 0));
    expect_length(row.suspended_ns, out, look, "a suspension in progress");
    expect_length(row.running_ns, in, out, "the closed step");
    cr_assert_eq(thread_of(tracker, 0).task_index, SL_NO_TASK);
}

EITHER_WAY(the_first_finish_wins)
{
    sl_tracker_t tracker = installed();
    sl_task_t task = sl_task_create("task", "t", "t");
    cr_assert_eq(sl_tracker_task_index(tracker, task), 0);
    sl_task_finish(task);
    int64_t done = task_of(tracker, 0).done_ns;
    cr_assert_gt(done, 0);
    pass(MS);
    sl_task_finish(task);
    sl_task_step_in(task);
    sl_task_step_out(task);
    cr_assert_eq(task_of(tracker, 0).done_ns, done);
    cr_assert_eq(task_of(tracker, 0).steps, 0);
    cr_assert_eq(sl_tracker_task_index(tracker, task), SL_NO_TASK);
    cr_assert_eq(sl_task_current(), 0);
}

EITHER_WAY(a_step_within_a_step_suspends_the_outer_task)
{
    sl_tracker_t tracker = installed();
    sl_task_t outer = sl_task_create("task", "outer", "o"), inner = sl_task_create("task", "inner", "i");
    struct sl_task_record row;
    struct when in = WHEN(sl_task_step_in(outer));
    pass(MS);
    struct when change = WHEN(sl_task_step_in(inner));
    pass(2 * MS);
    cr_assert_eq(thread_of(tracker, 0).task_index, 1);
    struct when look = WHEN(row = task_of(tracker, 0));
    cr_assert_eq(row.is_running, 0);
    expect_length(row.suspended_ns, change, look, "suspended so far");
    struct when back = WHEN(sl_task_step_out(inner));
    cr_assert_eq(thread_of(tracker, 0).task_index, 0);
    cr_assert_eq(sl_task_current(), outer);
    pass(MS);
    struct when out = WHEN(sl_task_step_out(outer); sl_task_finish(outer));
    row = task_of(tracker, 0);
    expect_length(row.suspended_ns, change, back, "outer was suspended");
    expect_within(row.running_ns, change.from - in.to + out.from - back.to, change.to - in.from + out.to - back.from, "outer ran");
    cr_assert_eq(row.steps, 2);
    expect_length(task_of(tracker, 1).running_ns, change, back, "inner ran");
}

EITHER_WAY(a_task_that_moves_names_the_thread_of_its_last_step)
{
    sl_tracker_t tracker = installed();
    sl_task_t task = sl_task_create("fiber", "t", "t");
    struct worker workers[2];
    for (int i = 0; i < 2; i++) {
        worker_start(&workers[i]);
        worker_do(&workers[i], step, &task);
        cr_assert_eq(task_of(tracker, 0).thread_index, i + 1);
    }
    worker_do(&workers[0], step, &task);
    cr_assert_eq(task_of(tracker, 0).thread_index, 1);
    worker_end(&workers[0]);
    worker_end(&workers[1]);
    sl_task_finish(task);
    cr_assert_eq(task_of(tracker, 0).thread_index, 1, "also after that thread's end");
    cr_assert_eq(task_of(tracker, 0).steps, 3);
}

EITHER_WAY(a_task_finished_elsewhere_during_its_step_is_done_when_the_step_ends)
{
    sl_tracker_t tracker = installed();
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_task_step_in(task);
    run(finish, &task);
    int64_t asked = now_ns();
    cr_assert_eq(task_of(tracker, 0).done_ns, SL_UNKNOWN);
    pass(MS);
    sl_task_step_out(task);
    expect_within(task_of(tracker, 0).done_ns, 0, asked, "done when it was asked for");
    cr_assert_geq(task_of(tracker, 0).running_ns, MS);
}

EITHER_WAY(a_step_ends_with_its_thread)
{
    sl_tracker_t tracker = installed();
    sl_task_t task = sl_task_create("task", "t", "t");
    run(enter_step, &task);
    struct sl_task_record row = task_of(tracker, 0);
    cr_assert_eq(row.is_running, 0);
    cr_assert_eq(row.steps, 1);
    cr_assert_eq(row.thread_index, 1);
    sl_task_step_in(task);
    cr_assert_eq(task_of(tracker, 0).is_running, 1);
    sl_task_step_out(task);
    cr_assert_eq(task_of(tracker, 0).steps, 2);
}

EITHER_WAY(a_task_alive_before_is_known_from_its_next_step_with_what_it_did)
{
    sl_tracker_t first = installed();
    sl_task_t other = sl_task_create("task", "never stepped again", "o"), task = sl_task_create("task", "old", "t");
    int64_t created = task_of(first, 1).created_ns;
    step(&task);
    pass(MS);
    sl_tracker_t second = installed();
    cr_assert_eq(tasks_of(second), 0);
    cr_assert_eq(sl_tracker_task_index(second, task), SL_NO_TASK);
    sl_task_step_in(task);
    cr_assert_eq(sl_tracker_task_index(second, task), 0);
    cr_assert_eq(sl_tracker_task_index(first, task), 1, "each has numbers of its own");
    struct sl_task_record row = task_of(second, 0);
    cr_assert_str_eq(row.name, "old");
    cr_assert_eq(row.steps, 2);
    expect_within(row.created_ns, created, created, "created");
    cr_assert_geq(row.suspended_ns, MS);
    sl_task_step_out(task);
    sl_task_finish(task);
    sl_task_finish(other);
    cr_assert_eq(tasks_of(second), 1);
    cr_assert_gt(task_of(second, 0).done_ns, 0);
    cr_assert_gt(task_of(first, 0).done_ns, 0);
    cr_assert_gt(task_of(first, 1).done_ns, 0);
}

EITHER_WAY(a_handle_whose_row_is_used_again_means_nothing)
{
    sl_tracker_t tracker = installed();
    sl_task_t old = sl_task_create("task", "old", "t");
    sl_task_finish(old);
    for (int i = 0; i < 1000; i++) {
        sl_task_t task = sl_task_create("task", "new", "t");
        cr_assert_neq(task, old);
        step(&old);
        sl_task_finish(old);
        cr_assert_eq(task_of(tracker, i + 1).steps, 0);
        cr_assert_eq(task_of(tracker, i + 1).done_ns, SL_UNKNOWN);
        sl_task_finish(task);
    }
}

// ---- snapshot

EITHER_WAY(a_snapshot_becomes_the_rows_that_run_files_are_read_into)
{
    sl_tracker_t tracker = installed();
    run(be_daemon, &(int){1});
    call_once(NULL);
    sl_task_t done = sl_task_create("greenlet", "a", "b.c"), open = sl_task_create("task", "c", "d");
    sl_task_step_in(done);
    pass(MS);
    sl_task_step_out(done);
    pass(MS);
    step(&done);
    sl_task_finish(done);
    struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, now_ns() - 1000 * MS);
    const struct sl_thread_columns *t = &snapshot->threads;
    const struct sl_task_columns *k = &snapshot->tasks;
    const struct sl_run_thread_columns thread_columns = {
        t->count, t->index, t->ident, t->native_id, t->daemon, t->start_ns, t->end_ns, t->cpu_ns, t->name};
    const struct sl_run_task_columns task_columns = {k->count,      k->index,        k->thread_index, k->created_ns, k->done_ns, k->steps,
                                                     k->running_ns, k->suspended_ns, k->kind,         k->name,       k->coro_name};
    struct sl_run_thread threads[2];
    struct sl_run_task tasks[2];
    cr_assert(t->count == 2 && k->count == 2);
    sl_lane_tables_from_columns(2, &thread_columns, threads, &task_columns, tasks);
    cr_assert(threads[0].rank == 2 && threads[1].rank == 2 && tasks[0].rank == 2 && tasks[1].rank == 2);
    cr_assert(threads[0].daemon && !threads[0].alive && threads[0].wall_time > 0 && threads[0].cpu_time > 0);
    cr_assert(!threads[1].daemon && threads[1].alive && isnan(threads[1].wall_time) && isnan(threads[1].end_time));
    cr_assert_eq(threads[1].ident, (uint64_t)pthread_self());
    cr_assert_eq(threads[1].native_id, gettid());
    cr_assert(tasks[0].done && tasks[0].steps == 2 && tasks[0].running_time >= 1e-3 - 1e-5 && tasks[0].awaiting_time >= 1e-3 - 1e-5);
    cr_assert(tasks[0].wall_time >= tasks[0].running_time + tasks[0].awaiting_time - 1e-5 && tasks[0].created_time > 0);
    cr_assert_str_eq(tasks[0].kind, "greenlet");
    cr_assert_str_eq(tasks[0].coro_name, "b.c");
    cr_assert_eq(tasks[0].thread_index, 1);
    cr_assert(!tasks[1].done && isnan(tasks[1].done_time) && isnan(tasks[1].wall_time) && tasks[1].steps == 0);
    free(snapshot);
    sl_task_finish(open);
}

EITHER_WAY(a_snapshot_is_shifted_and_leaves_unknown_times_alone)
{
    sl_tracker_t tracker = installed();
    struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, 17);
    cr_assert_eq(snapshot->threads.count, 0);
    cr_assert_eq(snapshot->tasks.count, 0);
    free(snapshot);
    run(call_once, NULL);
    call_once(NULL);
    snapshot = sl_tracker_snapshot(tracker, 0);
    cr_assert_eq(snapshot->threads.count, 2);
    cr_assert_eq(snapshot->tasks.count, 0);
    free(snapshot);
    sl_task_t done = sl_task_create("greenlet", "a", "b"), open = sl_task_create("task", "c", "d");
    step(&done);
    sl_task_finish(done);
    step(&open);
    int64_t origin = now_ns() - 50 * MS;
    struct sl_snapshot *plain = sl_tracker_snapshot(tracker, 0);
    snapshot = sl_tracker_snapshot(tracker, origin);
    for (size_t i = 0; i < 2; i++) {
        cr_assert_eq(snapshot->threads.index[i], (int64_t)i);
        cr_assert_eq(snapshot->threads.ident[i], plain->threads.ident[i]);
        cr_assert_eq(snapshot->threads.native_id[i], plain->threads.native_id[i]);
        cr_assert_str_eq(snapshot->threads.name[i], plain->threads.name[i]);
        cr_assert_eq(snapshot->threads.start_ns[i], plain->threads.start_ns[i] - origin);
        cr_assert_geq(snapshot->threads.cpu_ns[i], plain->threads.cpu_ns[i], "not shifted");
    }
    cr_assert_eq(snapshot->threads.end_ns[0], plain->threads.end_ns[0] - origin);
    cr_assert_eq(snapshot->threads.end_ns[1], SL_UNKNOWN);
    cr_assert_eq(snapshot->tasks.count, 2);
    cr_assert_eq(snapshot->tasks.created_ns[0], plain->tasks.created_ns[0] - origin);
    cr_assert_eq(snapshot->tasks.done_ns[0], plain->tasks.done_ns[0] - origin);
    cr_assert_eq(snapshot->tasks.done_ns[1], SL_UNKNOWN);
    cr_assert_eq(snapshot->tasks.running_ns[0], plain->tasks.running_ns[0], "not shifted");
    cr_assert_eq(snapshot->tasks.suspended_ns[0], plain->tasks.suspended_ns[0]);
    cr_assert_eq(snapshot->tasks.steps[0], 1);
    cr_assert_eq(snapshot->tasks.index[1], 1);
    cr_assert_eq(snapshot->tasks.thread_index[1], 1);
    cr_assert_str_eq(snapshot->tasks.kind[0], "greenlet");
    cr_assert_str_eq(snapshot->tasks.kind[1], "task");
    cr_assert_str_eq(snapshot->tasks.name[1], "c");
    cr_assert_str_eq(snapshot->tasks.coro_name[1], "d");
    free(plain);
    sl_tracker_destroy(tracker);
    cr_assert_str_eq(snapshot->tasks.coro_name[0], "b", "it outlives the tracker");
    free(snapshot);
}
