// Trackers' lives: several at once, installed and uninstalled in any order, off, attach, fork, and many threads and tasks. What holds
// with a daemon and without is a test of both suites.
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "tests/tracked.h"

// ---- several trackers, life

EITHER_WAY(nothing_is_known_before_install_and_nothing_new_after_uninstall)
{
    sl_tracker_t tracker = sl_tracker_create();
    cr_assert_eq(sl_tracker_is_installed(tracker), 0);
    call_once(NULL);
    cr_assert_eq(threads_of(tracker), 0);
    cr_assert_eq(sl_tracker_uninstall(tracker), 0);
    cr_assert_eq(sl_tracker_install(tracker), 0);
    cr_assert_eq(sl_tracker_install(tracker), 0);
    cr_assert_eq(sl_tracker_is_installed(tracker), 1);
    struct worker known;
    worker_start(&known);
    worker_do(&known, call_once, NULL);
    sl_task_t task = sl_task_create("task", "t", "t");
    cr_assert_neq(task, 0);
    cr_assert_eq(sl_tracker_uninstall(tracker), 0);
    cr_assert_eq(sl_tracker_uninstall(tracker), 0);
    cr_assert_eq(sl_tracker_is_installed(tracker), 0);
    run(call_once, NULL);
    sl_task_finish(sl_task_create("task", "unknown", "t"));
    cr_assert_eq(threads_of(tracker), 2);
    cr_assert_eq(tasks_of(tracker), 1);
    worker_end(&known);
    step(&task);
    sl_task_finish(task);
    cr_assert_gt(thread_of(tracker, 0).end_ns, 0, "what it knows it follows to its end");
    cr_assert_gt(task_of(tracker, 0).done_ns, 0);
    cr_assert_eq(task_of(tracker, 0).steps, 1);
    cr_assert_eq(sl_tracker_install(tracker), 0);
    call_once(NULL);
    cr_assert_eq(threads_of(tracker), 2, "this thread is known from before");
    run(call_once, NULL);
    cr_assert_eq(threads_of(tracker), 3, "indices go on");
}

EITHER_WAY(a_tracker_that_was_never_installed_keeps_the_threads_that_ask_it)
{
    sl_tracker_t tracker = sl_tracker_create();
    cr_assert_eq(sl_tracker_current_thread(tracker), 0);
    struct worker worker;
    worker_start(&worker);
    cr_assert_eq(index_of(&worker, tracker), 1);
    worker_end(&worker);
    cr_assert_eq(threads_of(tracker), 2);
    cr_assert_gt(thread_of(tracker, 1).end_ns, 0);
    cr_assert_eq(thread_of(tracker, 0).end_ns, SL_UNKNOWN);
    run(call_once, NULL);
    cr_assert_eq(threads_of(tracker), 2);
}

// Tasks a, b, … are created between the steps of a script: "1+" installs tracker 1, "1-" takes it out, "." creates a task.
static void play(const char *script, const size_t expected[3])
{
    sl_tracker_t trackers[3];
    sl_region_t region = sl_region("a");
    for (int i = 0; i < 3; i++)
        trackers[i] = sl_tracker_create();
    for (const char *at = script; *at; at += *at == '.' ? 1 : 2) {
        if (at[1] == '+')
            sl_tracker_install(trackers[*at - '1']);
        else if (*at != '.')
            sl_tracker_uninstall(trackers[*at - '1']);
        else
            sl_task_finish(sl_task_create("task", "t", "t"));
        sl_enter(region);
        sl_exit(region);
    }
    for (int i = 0; i < 3; i++)
        cr_expect_eq(tasks_of(trackers[i]), expected[i], "%s: tracker %d knows %zu tasks, not %zu", script, i + 1, tasks_of(trackers[i]),
                     expected[i]);
    for (int i = 0; i < 3; i++)
        sl_tracker_destroy(trackers[i]);
}

EITHER_WAY(trackers_come_and_go_in_any_order)
{
    play(".1+.2+.3+.3-.2-.1-.", (size_t[]){5, 3, 1});
    play(".1+.2+.3+.1-.2-.3-.", (size_t[]){3, 3, 3});
    play("1+.2+.1-.3+.2-.1+.3-.", (size_t[]){4, 3, 3});
    play("1+1+.1-.1-.2+.2+", (size_t[]){1, 1, 0});
    int active = sl_is_active();
    sl_task_t task = sl_task_create("task", "t", "t");
    cr_assert_eq(task != 0, active, "as it was before any tracker");
    sl_task_finish(task);
}

Test(tracker_alone, after_the_last_uninstall_a_new_threads_call_costs_a_branch_again)
{
    call_once(NULL);
    cr_assert_eq(sl_self_->lane, SL_LANE_OFF_);
    sl_tracker_t first = installed(), second = installed();
    cr_assert_eq(sl_self_->lane, NULL, "the next call is looked at");
    call_once(NULL);
    cr_assert_eq(sl_self_->lane, SL_LANE_OFF_);
    sl_tracker_uninstall(first);
    run(call_once, NULL);
    cr_assert_eq(threads_of(second), 2);
    sl_tracker_uninstall(second);
    run(call_once, NULL);
    cr_assert_eq(threads_of(second), 2);
    cr_assert_eq(sl_is_active(), 0);
    cr_assert_eq(sl_task_create("task", "t", "t"), 0);
}

Test(tracker_recording, a_tracker_takes_the_inline_path_away_for_one_call)
{
    sl_region_t a = sl_region("a");
    call_once(NULL);
    cr_assert_not_null(sl_self_->lane);
    sl_enter(a);
    sl_tracker_t tracker = installed();
    cr_assert_null(sl_self_->lane);
    sl_exit(a);
    cr_assert_not_null(sl_self_->lane);
    call_once(NULL);
    cr_assert_eq(threads_of(tracker), 1);
    cr_assert_eq(recorded_ring(0)->produced, 3, "no call is lost over it");
}

Test(tracker_recording, the_segment_is_the_same_with_trackers_and_without)
{
    sl_tracker_t trackers[3] = {installed(), installed(), sl_tracker_create()};
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_tracker_install(trackers[2]);
    step(&task);
    run(call_once, NULL);
    run(call_once, NULL);
    cr_assert_eq(sl_tracker_current_thread(trackers[2]), 0);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(threads_of(trackers[i]), 3);
        cr_assert_eq(tasks_of(trackers[i]), 1);
    }
    recorded_look(0);
    cr_assert_eq(segment_header(&recorded)->threads, 3);
    cr_assert_eq(segment_header(&recorded)->tasks, 1);
    cr_assert_eq(recorded_task(0)->lane.steps, 1);
    cr_assert_eq(recorded_thread(2)->state, SL_ROW_DONE);
    sl_task_finish(task);
}

EITHER_WAY(a_tracker_is_destroyed_while_its_threads_and_tasks_live)
{
    sl_tracker_t tracker = installed(), other = installed();
    struct worker worker;
    worker_start(&worker);
    sl_task_t task = sl_task_create("task", "t", "t");
    worker_do(&worker, enter_step, &task);
    sl_tracker_destroy(tracker);
    cr_assert_eq(sl_tracker_current_thread(tracker), -EINVAL, "it is none any more");
    cr_assert_eq(sl_tracker_install(tracker), -EINVAL);
    cr_assert_eq(sl_tracker_is_installed(tracker), 0);
    sl_tracker_destroy(tracker);
    cr_assert_null(sl_tracker_snapshot(tracker, 0));
    worker_end(&worker);
    sl_task_finish(task);
    cr_assert_gt(thread_of(other, 1).end_ns, 0);
    cr_assert_gt(task_of(other, 0).done_ns, 0);
    sl_tracker_destroy(other);
    call_once(NULL);
}

EITHER_WAY(the_null_tracker_is_accepted)
{
    size_t count = 17;
    cr_assert_eq(sl_tracker_install(NULL), 0);
    cr_assert_eq(sl_tracker_uninstall(NULL), 0);
    cr_assert_eq(sl_tracker_is_installed(NULL), 0);
    cr_assert_eq(sl_tracker_current_thread(NULL), -EINVAL);
    cr_assert_eq(sl_tracker_task_index(NULL, 1), SL_NO_TASK);
    cr_assert_null(sl_tracker_threads(NULL, &count));
    cr_assert_eq(count, 0);
    cr_assert_null(sl_tracker_tasks(NULL, &count));
    cr_assert_null(sl_tracker_thread(NULL, 0));
    cr_assert_null(sl_tracker_task(NULL, 0));
    cr_assert_null(sl_tracker_snapshot(NULL, 0));
    sl_tracker_destroy(NULL);
    sl_tracker_t tracker = installed();
    cr_assert_null(sl_tracker_thread(tracker, 0));
    cr_assert_null(sl_tracker_thread(tracker, -1));
    cr_assert_null(sl_tracker_task(tracker, INT64_MAX));
}

EITHER_WAY(errno_stays_what_it_was)
{
    errno = 4711;
    sl_tracker_t tracker = installed();
    sl_tracker_current_thread(tracker);
    sl_task_t task = sl_task_create("task", "t", "t");
    step(&task);
    size_t count;
    free(sl_tracker_threads(tracker, &count));
    free(sl_tracker_snapshot(tracker, 0));
    sl_task_finish(task);
    sl_tracker_uninstall(tracker);
    sl_tracker_destroy(tracker);
    cr_assert_eq(errno, 4711);
}

// ---- signals

static sl_tracker_t handled;
static volatile sig_atomic_t handler_tasks;

static void on_alarm(int number)
{
    (void)number;
    int saved = errno;
    sl_task_t task = sl_task_create("signal", "made by a handler, with a name that does not fit into the sixty-four bytes of a row", "h");
    step_and_call(&task);
    sl_task_rename(task, "renamed");
    sl_task_finish(task);
    handler_tasks += task != 0;
    cr_assert_geq(sl_tracker_current_thread(handled), 0);
    cr_assert_eq(sl_tracker_is_installed(handled), 1);
    sl_tracker_t own = sl_tracker_create();
    sl_tracker_install(own);
    sl_tracker_destroy(own);
    cr_assert_eq(errno, saved);
}

EITHER_WAY(a_handler_may_do_all_that_returns_no_block)
{
    handled = installed();
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    size_t own = 0;
    for (int64_t end = now_ns() + 500 * MS; now_ns() < end; own++) {
        sl_task_t task = sl_task_create("task", "made outside, with a name that does not fit into the sixty-four bytes of a row", "t");
        step_and_call(&task);
        sl_task_finish(task);
        if (own % 64 == 0)
            free(sl_tracker_snapshot(handled, 0));
    }
    setitimer(ITIMER_REAL, &never, NULL);
    struct sl_snapshot *snapshot = sl_tracker_snapshot(handled, 0);
    size_t by_handler = 0;
    for (size_t i = 0; i < snapshot->tasks.count; i++) {
        by_handler += strcmp(snapshot->tasks.kind[i], "signal") == 0;
        cr_assert(snapshot->tasks.done_ns[i] >= snapshot->tasks.created_ns[i]);
    }
    cr_assert_gt(by_handler, 100);
    cr_assert_eq(by_handler, (size_t)handler_tasks);
    cr_assert_eq(snapshot->tasks.count, own + by_handler);
    free(snapshot);
}

// ---- off, attach

Test(tracker_off, a_program_that_must_not_record_may_still_track)
{
    sl_tracker_t tracker = installed();
    sl_task_t task = sl_task_create("task", "t", "t");
    step(&task);
    run(call_once, NULL);
    sl_task_finish(task);
    cr_assert_eq(threads_of(tracker), 2);
    cr_assert_eq(task_of(tracker, 0).steps, 1);
    cr_assert_eq(sl_is_active(), 0);
    cr_assert_eq(sl_attach(), -EPERM);
    cr_assert_eq(sl_tracker_current_thread(tracker), 0);
    run(call_once, NULL);
    cr_assert_eq(threads_of(tracker), 3);
}

Test(tracker_recording, threads_and_tasks_go_on_when_a_daemon_comes_later)
{
    no_daemon();
    sl_tracker_t tracker = installed();
    struct worker worker, idle;
    worker_start(&worker);
    worker_start(&idle);
    sl_thread_name("a name that was given before there was any segment, and too long for the row itself");
    sl_task_t task = sl_task_create("fiber", "t", "t"), moving = sl_task_create("fiber", "m", "m");
    worker_do(&worker, step_and_call, &task);
    worker_do(&worker, enter_step, &moving);
    worker_do(&idle, call_once, NULL);
    cr_assert_eq(sl_attach(), -ENOENT);
    worker_do(&worker, step_and_call, &task);
    cr_assert_eq(task_of(tracker, 0).steps, 2, "a vain attach changes nothing");
    place.listener = place_listen(place.directory);
    cr_assert_eq(sl_attach(), 0);
    cr_assert_eq(sl_is_active(), 1);
    call_once(NULL);
    worker_do(&worker, step_and_call, &task);
    worker_do(&worker, call_once, NULL);
    cr_assert_eq(threads_of(tracker), 3, "the same threads");
    cr_assert_eq(task_of(tracker, 0).steps, 3);
    cr_assert_eq(task_of(tracker, 0).thread_index, 1);
    cr_assert_eq(task_of(tracker, 1).is_running, 1, "its step went on");
    sl_task_t fresh = sl_task_create("fiber", "f", "f");
    worker_do(&worker, step_and_call, &fresh);
    sl_task_finish(fresh);
    sl_task_finish(task);
    cr_assert_gt(task_of(tracker, 0).done_ns, 0);
    cr_assert_eq(task_of(tracker, 2).thread_index, 1);
    cr_assert_str_eq(recorded_name(&recorded_thread(0)->name), "a name that was given before there was any segment, and too long for the row itself");
    cr_assert_eq(segment_header(&recorded)->threads, 2, "the idle one has made no call since");
    cr_assert_eq(segment_header(&recorded)->tasks, 1, "those from before are the tracker's alone");
    cr_assert_eq(recorded_ring(0)->produced, 1);
    cr_assert_eq(recorded_ring(1)->lost[SL_LOST_NO_ROW], 2, "and so their calls have no lane in the run");
    cr_assert_eq(recorded_ring(1)->produced, 3);
    worker_end(&worker);
    worker_end(&idle);
    cr_assert_gt(thread_of(tracker, 2).end_ns, 0);
    cr_assert_eq(task_of(tracker, 1).is_running, 0);
}

Test(tracker_recording, tasks_beyond_the_segments_room_are_tracked_none_the_less)
{
    enum { MORE = SL_TASK_ROWS_LIMIT + 1000 };
    static sl_task_t tasks[MORE];
    sl_tracker_t tracker = installed();
    for (int i = 0; i < MORE; i++)
        tasks[i] = sl_task_create("task", "t", "t");
    for (int i = 0; i < MORE; i++)
        step(&tasks[i]);
    step_and_call(&tasks[MORE - 1]);
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_NO_ROW], 1);
    for (int i = 0; i < MORE; i++)
        sl_task_finish(tasks[i]);
    struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, 0);
    cr_assert_eq(snapshot->tasks.count, MORE);
    for (int i = 0; i < MORE; i++)
        cr_assert(snapshot->tasks.steps[i] == 1 + (i == MORE - 1) && snapshot->tasks.done_ns[i] >= snapshot->tasks.created_ns[i]);
    free(snapshot);
}

// ---- fork

static void wait_for(pid_t pid)
{
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's status is %#x", (unsigned)status);
}

EITHER_WAY(the_child_of_a_fork_has_an_empty_tracker_until_it_installs_it)
{
    sl_tracker_t tracker = installed(), other = installed();
    sl_task_t task = sl_task_create("task", "parent's", "t");
    sl_task_step_in(task);
    run(call_once, NULL);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 20; i++) {
            sl_task_t own = sl_task_create("task", "t", "t");
            step(&own);
            sl_task_finish(own);
        }
        call_once(NULL);
        sl_task_step_out(task);
        sl_task_finish(task);
        int wrong = threads_of(tracker) || tasks_of(tracker) || sl_tracker_is_installed(tracker) || sl_tracker_is_installed(other);
        sl_tracker_uninstall(tracker);
        sl_tracker_uninstall(tracker);
        if (wrong || threads_of(tracker))
            _exit(1);
        sl_tracker_install(tracker);
        sl_task_t own = sl_task_create("task", "child's", "t");
        sl_task_step_in(task);
        if (sl_tracker_current_thread(tracker) != 0 || sl_tracker_task_index(tracker, own) != 0 || tasks_of(tracker) != 1 ||
            strcmp(task_of(tracker, 0).name, "child's") != 0)
            _exit(2);
        run(call_once, NULL);
        sl_tracker_destroy(other);
        sl_tracker_destroy(other);
        _exit(threads_of(tracker) == 2 && thread_of(tracker, 0).native_id == getpid() && thread_of(tracker, 1).end_ns > 0 ? 0 : 3);
    }
    wait_for(child);
    cr_assert_eq(threads_of(tracker), 2);
    cr_assert_eq(tasks_of(tracker), 1);
    cr_assert_eq(task_of(tracker, 0).is_running, 1);
    sl_task_step_out(task);
    sl_task_finish(task);
    cr_assert_eq(task_of(tracker, 0).steps, 1);
    cr_assert_eq(task_of(other, 0).steps, 1);
    call_once(NULL);
    run(call_once, NULL);
    cr_assert_eq(threads_of(tracker), 3);
}

Test(tracker_alone, the_child_of_a_fork_looks_for_no_daemon_that_its_parent_did_not_find)
{
    sl_tracker_t tracker = installed();
    call_once(NULL);
    place.listener = place_listen(place.directory);
    pid_t child = fork();
    if (child == 0) {
        call_once(NULL);
        sl_tracker_install(tracker);
        call_once(NULL);
        _exit(sl_is_active() || threads_of(tracker) != 1);
    }
    wait_for(child);
    no_daemon();
}

static atomic_int stop;

static void churn(void *tracker)
{
    while (!atomic_load(&stop)) {
        sl_task_t task = sl_task_create("task", "a name of which the tracker takes a copy when the task has ended", "t");
        step(&task);
        sl_task_finish(task);
        free(sl_tracker_thread(*(sl_tracker_t *)tracker, 0));
    }
}

static void fork_and_track(void *tracker)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        if (threads_of(*(sl_tracker_t *)tracker))
            _exit(1);
        sl_tracker_install(*(sl_tracker_t *)tracker);
        sl_task_finish(sl_task_create("task", "a name of which the tracker takes a copy when the task has ended", "t"));
        _exit(threads_of(*(sl_tracker_t *)tracker) != 1 || tasks_of(*(sl_tracker_t *)tracker) != 1);
    }
    wait_for(child);
}

EITHER_WAY(a_fork_from_a_worker_while_others_hold_the_lock)
{
    sl_tracker_t tracker = installed();
    struct worker busy, forking;
    worker_start(&busy);
    worker_start(&forking);
    busy.action = churn;
    busy.argument = &tracker;
    atomic_fetch_add(&busy.asked, 1);
    for (int i = 0; i < 50; i++)
        worker_do(&forking, fork_and_track, &tracker);
    atomic_store(&stop, 1);
    while (!atomic_load(&busy.done))
        sched_yield();
    worker_end(&busy);
    worker_end(&forking);
    cr_assert_gt(tasks_of(tracker), 0);
}

// ---- many

// What they cost is for tests/bench/trackers.c to say.
static void track_tasks(int count, int alive)
{
    static sl_task_t tasks[200000];
    cr_assert_leq(alive, 200000);
    sl_tracker_t tracker = installed();
    for (int i = 0; i < count + alive; i++) {
        if (i >= alive)
            sl_task_finish(tasks[i % alive]);
        if (i < count) {
            tasks[i % alive] = sl_task_create("task", "Task", "body");
            step(&tasks[i % alive]);
        }
    }
    struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, 0);
    int wrong = 0;
    cr_assert_eq(snapshot->tasks.count, (size_t)count);
    for (int i = 0; i < count; i++)
        wrong += snapshot->tasks.steps[i] != 1 || snapshot->tasks.done_ns[i] <= 0 || snapshot->tasks.index[i] != i;
    cr_assert_eq(wrong, 0);
    free(snapshot);
    sl_tracker_destroy(tracker);
}

Test(tracker_alone, of_very_many_tasks_each_has_its_row_however_many_live_at_a_time)
{
    track_tasks(200000, 100);
    track_tasks(200000, 30000);
    track_tasks(200000, 200000);
}

static void *live_and_die(void *unused)
{
    call_once(unused);
    return NULL;
}

EITHER_WAY(two_thousand_threads_at_once)
{
    enum { THREADS = 2000 };
    static struct worker workers[THREADS];
    setenv("SCOPED_LANE_RING", "16K", 1);
    sl_tracker_t tracker = installed();
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    int made = 0;
    for (; made < THREADS && pthread_create(&workers[made].thread, &small, live_and_die, NULL) == 0; made++)
        ;
    for (int i = 0; i < made; i++)
        pthread_join(workers[i].thread, NULL);
    cr_assert_eq(threads_of(tracker), (size_t)made);
    struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, 0);
    for (int i = 0; i < made; i++)
        cr_assert(snapshot->threads.end_ns[i] >= snapshot->threads.start_ns[i] && snapshot->threads.index[i] == i);
    free(snapshot);
}
