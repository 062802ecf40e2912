// Tasks through the real client library: steps that nest and move, ends that come from elsewhere, rows that are used again.
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "client/scoped_lane.h"
#include "tests/recorded.h"

TestSuite(task, .init = recorded_begin, .fini = recorded_end, .timeout = 300);

static sl_region_t a, b;

static void call(sl_region_t region)
{
    sl_enter(region);
    sl_exit(region);
}

static void names(void)
{
    a = sl_region("a");
    b = sl_region("b");
}

static void spin(uint64_t ticks)
{
    for (uint64_t start = sl_ticks_(); sl_ticks_() - start < ticks;)
        ;
}

static void run(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, body, argument), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

static const struct sl_lane *lane_of(uint32_t index)
{
    return &recorded_task(index)->lane;
}

// Of a finished task, or one between steps: every tick since its first step was either running or suspended.
static void expect_times_add_up(uint32_t index)
{
    const struct sl_lane *lane = lane_of(index);
    cr_assert_eq(lane->seq % 2, 0);
    cr_assert_eq(lane->stepping, 0);
    cr_assert_eq(lane->running + lane->suspended, lane->last_step_end - lane->first_step);
    cr_assert_leq(lane->longest_step, lane->running);
}

Test(task, a_task_is_a_row_with_names_and_a_lane_of_its_own)
{
    names();
    sl_task_t task = sl_task_create("greenlet", "worker \xc3\xa4", "fetch");
    const struct sl_task_row *row = recorded_task(0);
    cr_assert_eq(row->state, SL_ROW_LIVE);
    cr_assert_str_eq(recorded_name(&row->name), "worker \xc3\xa4");
    cr_assert_str_eq(recorded_name(&row->coro_name), "fetch");
    cr_assert_gt(row->created, 0);
    cr_assert_eq(row->done, 0);
    cr_assert_eq(row->lane.steps, 0);
    cr_assert_eq(sl_task_current(), 0);
    sl_task_step_in(task);
    cr_assert_eq(sl_task_current(), task);
    sl_enter(a);
    const struct lane_view *view = recorded_view(&row->lane, SL_TASK_ENTRIES);
    cr_assert_eq(view->depth, 1);
    cr_assert_eq(view->task, 0);
    cr_assert_eq(recorded_lane(0)->depth, 0, "the thread's own lane is another one");
    sl_exit(a);
    sl_task_step_out(task);
    cr_assert_eq(sl_task_current(), 0);
    struct sl_record record = recorded_nth(0, SL_CALL, 0);
    cr_assert_eq(sl_record_task(&record), 0);
    call(b);
    record = recorded_nth(0, SL_CALL, 1);
    cr_assert_eq(sl_record_task(&record), SL_TASK_NONE);
    sl_task_finish(task);
    cr_assert_eq(row->state, SL_ROW_DONE);
    cr_assert_geq(row->done, row->lane.last_step_end);
    record = recorded_nth(0, SL_DONE, 0);
    cr_assert_eq(sl_record_task(&record), 0);
    cr_assert_eq(sl_record_await_field(&record) * 64, (uint64_t)((const char *)row - recorded.map.base));
    expect_times_add_up(0);
}

Test(task, running_and_suspended_follow_the_steps)
{
    sl_task_t task = sl_task_create(NULL, NULL, NULL);
    const struct sl_lane *lane = lane_of(0);
    spin(100000);
    cr_assert_eq(lane->suspended, 0, "the wait before the first step counts as neither");
    uint64_t before = sl_ticks_();
    sl_task_step_in(task);
    cr_assert_eq(lane->steps, 1);
    cr_assert_neq(lane->stepping, 0);
    cr_assert_geq(lane->first_step, before);
    cr_assert_eq(lane->suspended, 0);
    spin(50000);
    sl_task_step_out(task);
    uint64_t running = lane->running, suspended = lane->suspended;
    cr_assert_geq(running, 50000);
    cr_assert_eq(suspended, 0);
    spin(200000);
    sl_task_step_in(task);
    cr_assert_geq(lane->suspended, 200000);
    cr_assert_eq(lane->running, running, "a step in progress is added when it is over");
    suspended = lane->suspended;
    sl_task_step_out(task);
    cr_assert_eq(lane->suspended, suspended);
    cr_assert_eq(lane->steps, 2);
    cr_assert_eq(lane->longest_step, running > lane->running - running ? running : lane->running - running);
    expect_times_add_up(0);
    sl_task_finish(task);
}

Test(task, the_await_of_a_call_is_the_time_its_task_was_suspended_meanwhile)
{
    names();
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_task_step_in(task);
    sl_enter(a);
    sl_task_step_out(task);
    spin(300000);
    sl_task_step_in(task);
    sl_enter(b);
    sl_exit(b);
    sl_exit(a);
    sl_task_step_out(task);
    struct sl_record of_b = recorded_nth(0, SL_CALL, 0), of_a = recorded_nth(0, SL_CALL, 1);
    cr_assert_eq(sl_record_await(&of_b), 0);
    cr_assert_eq(sl_record_await(&of_a), lane_of(0)->suspended);
    cr_assert_geq(sl_record_await(&of_a), 300000);
    cr_assert_lt(sl_record_await(&of_a), sl_record_duration(&of_a));
    sl_task_finish(task);
}

Test(task, a_call_that_is_open_before_the_first_step_stays_its_threads)
{
    names();
    sl_enter(a);
    sl_task_t task = sl_task_create("greenlet", "t", "");
    sl_task_step_in(task);
    call(b);
    sl_exit(a);  // not on this lane
    sl_task_step_out(task);
    spin(50000);
    sl_task_step_in(task);
    sl_task_step_out(task);
    sl_exit(a);
    sl_task_finish(task);
    struct sl_record of_b = recorded_nth(0, SL_CALL, 0), of_a = recorded_nth(0, SL_CALL, 1);
    cr_assert_eq(sl_record_task(&of_b), 0);
    cr_assert_eq(sl_record_parent(&of_b), 0);
    cr_assert_eq(sl_record_region(&of_a), a);
    cr_assert_eq(sl_record_task(&of_a), SL_TASK_NONE);
    cr_assert_eq(sl_record_await(&of_a), 0, "a thread waits for nothing");
    cr_assert_eq(recorded_ring(0)->unmatched, 1);
    struct sl_record astray = recorded_nth(0, SL_UNMATCHED, 0);
    cr_assert_eq(sl_record_task(&astray), 0, "said with the lane it was made on");
}

// Three jobs on one thread that are all in a region at once and leave it as they entered, first in first out.
struct interleaved {
    uint64_t before[3], entered[3], inner_sum, outer_sum;  // by readings of our own, inside and outside of ours
};

static struct interleaved interleave(const sl_task_t *jobs, const sl_region_t *regions)
{
    struct interleaved own = {0};
    for (int i = 0; i < 3; i++) {
        sl_task_step_in(jobs[i]);
        own.before[i] = sl_ticks_();
        sl_enter(regions[i]);
        own.entered[i] = sl_ticks_();
        spin(20000);
        sl_task_step_out(jobs[i]);
    }
    for (int i = 0; i < 3; i++) {
        spin(20000);
        sl_task_step_in(jobs[i]);
        own.inner_sum += sl_ticks_() - own.entered[i];
        sl_exit(regions[i]);
        own.outer_sum += sl_ticks_() - own.before[i];
        sl_task_step_out(jobs[i]);
    }
    return own;
}

static void expect_entered_by(const struct sl_record *record, const struct interleaved *own, int job)
{
    cr_assert(sl_record_start(record) >= own->before[job] && sl_record_start(record) <= own->entered[job], "the call of job %d", job);
}

Test(task, of_tasks_in_one_region_each_leaves_its_own_call_in_any_order)
{
    names();
    const sl_task_t jobs[3] = {sl_task_create("task", "0", ""), sl_task_create("task", "1", ""), sl_task_create("task", "2", "")};
    struct interleaved own = interleave(jobs, (sl_region_t[]){a, a, a});
    for (int i = 0; i < 3; i++) {
        struct sl_record record = recorded_nth(0, SL_CALL, (uint32_t)i);
        cr_assert_eq(sl_record_task(&record), (uint32_t)i);
        expect_entered_by(&record, &own, i);
        cr_assert_eq(sl_record_parent(&record), 0);
    }
    cr_assert_eq(recorded_ring(0)->crossing + recorded_ring(0)->unmatched, 0);
}

// Without tasks nothing tells jobs apart that are in one region: an exit closes the innermost call, durations change places, and only
// their number and sum are right. Of several regions each call is right that is a call, and all else is counted.
Test(task, of_jobs_that_are_no_tasks_calls_of_one_region_keep_their_sum_and_of_several_what_is_wrong_is_counted)
{
    names();
    struct interleaved own = interleave((sl_task_t[3]){0}, (sl_region_t[]){a, a, a});
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 3; i++) {
        struct sl_record record = recorded_nth(0, SL_CALL, i);
        expect_entered_by(&record, &own, 2 - (int)i);
        sum += sl_record_duration(&record);
    }
    cr_assert(sum >= own.inner_sum && sum <= own.outer_sum);
    cr_assert_eq(recorded_ring(0)->crossing + recorded_ring(0)->unmatched + recorded_ring(0)->abandoned, 0);
    own = interleave((sl_task_t[3]){0}, (sl_region_t[]){a, b, sl_region("c")});
    for (int i = 0; i < 2; i++) {
        struct sl_record record = recorded_nth(0, SL_CALL_CROSSING, (uint32_t)i);
        expect_entered_by(&record, &own, i);
    }
    cr_assert_eq(recorded_ring(0)->crossing, 2);
    cr_assert_eq(recorded_ring(0)->abandoned, 1, "the last one was crossed twice");
    cr_assert_eq(recorded_ring(0)->unmatched, 1);
    cr_assert_eq(recorded_ring(0)->produced, 5);
}

Test(task, steps_nest)
{
    names();
    sl_task_t outer = sl_task_create("greenlet", "outer", ""), inner = sl_task_create("greenlet", "inner", "");
    sl_task_step_in(outer);
    sl_enter(a);
    sl_task_step_in(inner);
    cr_assert_eq(sl_task_current(), inner);
    cr_assert_eq(lane_of(0)->last_step_end, lane_of(1)->step_started, "one out, the other in, at one reading of the clock");
    cr_assert_eq(lane_of(1)->under, outer);
    spin(100000);
    call(b);
    sl_task_step_out(inner);
    cr_assert_eq(sl_task_current(), outer);
    cr_assert_eq(lane_of(1)->last_step_end, lane_of(0)->step_started);
    cr_assert_eq(lane_of(0)->suspended, lane_of(1)->running);
    cr_assert_eq(lane_of(0)->steps, 2);
    cr_assert_eq(lane_of(1)->under, 0);
    sl_exit(a);
    sl_task_step_out(outer);
    cr_assert_eq(sl_task_current(), 0);
    struct sl_record of_b = recorded_nth(0, SL_CALL, 0), of_a = recorded_nth(0, SL_CALL, 1);
    cr_assert_eq(sl_record_task(&of_b), 1);
    cr_assert_eq(sl_record_parent(&of_b), 0, "another lane, another stack");
    cr_assert_eq(sl_record_task(&of_a), 0);
    cr_assert_eq(sl_record_await(&of_a), lane_of(0)->suspended);
    cr_assert_eq(recorded_ring(0)->steps_refused, 0);
    expect_times_add_up(0);
    expect_times_add_up(1);
}

Test(task, steps_that_do_not_fit_are_refused_and_counted)
{
    sl_task_t one = sl_task_create("task", "one", ""), two = sl_task_create("task", "two", "");
    sl_task_step_out(one);
    cr_assert_eq(recorded_ring(0)->steps_refused, 1, "out without in");
    sl_task_step_in(one);
    sl_task_step_in(one);
    cr_assert_eq(recorded_ring(0)->steps_refused, 2, "in twice");
    sl_task_step_out(two);
    cr_assert_eq(recorded_ring(0)->steps_refused, 3, "out of another one");
    sl_task_step_in(two);
    sl_task_step_in(one);
    cr_assert_eq(recorded_ring(0)->steps_refused, 4, "in while it is interrupted");
    sl_task_step_out(one);
    cr_assert_eq(recorded_ring(0)->steps_refused, 5, "out while it is interrupted");
    cr_assert_eq(sl_task_current(), two);
    sl_task_step_out(two);
    sl_task_step_out(one);
    cr_assert_eq(recorded_ring(0)->steps_refused, 5);
    cr_assert_eq(lane_of(0)->steps, 2);
    cr_assert_eq(lane_of(1)->steps, 1);
    expect_times_add_up(0);
    expect_times_add_up(1);
}

Test(task, null_and_foreign_handles_do_nothing)
{
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_task_step_in(0);
    sl_task_step_out(0);
    sl_task_finish(0);
    sl_task_rename(0, "x");
    sl_task_rename(task, NULL);
    cr_assert_eq(recorded_ring(0)->steps_refused + recorded_ring(0)->stale_tasks, 0);
    const sl_task_t wrongs[] = {1, 7, task + 1, task ^ UINT64_C(1) << 60, UINT64_C(0x3fffffe) << 32};
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        sl_task_step_in(wrongs[i]);
        cr_expect_eq(sl_task_current(), 0, "handle %zu", i);
        sl_task_finish(wrongs[i]);
        sl_task_rename(wrongs[i], "x");
    }
    cr_assert_eq(recorded_ring(0)->stale_tasks, 3 * sizeof wrongs / sizeof *wrongs);
    cr_assert_eq(recorded_task(0)->state, SL_ROW_LIVE);
    cr_assert_str_eq(recorded_name(&recorded_task(0)->name), "t");
}

// ---- across threads

static sl_task_t shared;

static void *finish_call_elsewhere(void *unused)
{
    sl_task_step_in(shared);
    sl_exit(a);
    call(b);
    sl_task_step_out(shared);
    return unused;
}

Test(task, a_task_moves_between_threads_with_its_open_calls)
{
    names();
    shared = sl_task_create("task", "mover", "");
    sl_task_step_in(shared);
    sl_enter(a);
    sl_task_step_out(shared);
    cr_assert_eq(lane_of(0)->thread, 0);
    run(finish_call_elsewhere, NULL);
    cr_assert_eq(lane_of(0)->thread, 1);
    cr_assert_eq(recorded_ring(0)->produced, 0, "the record is the leaving thread's, once");
    cr_assert_eq(recorded_ring(1)->produced, 2);
    struct sl_record record = recorded_nth(1, SL_CALL, 0);
    cr_assert_eq(sl_record_region(&record), a);
    cr_assert_eq(sl_record_task(&record), 0);
    cr_assert_eq(recorded_ring(1)->unmatched, 0);
    sl_task_finish(shared);
    expect_times_add_up(0);
}

static _Atomic int phase;

static void wait_for_phase(int wanted)
{
    while (phase < wanted)
        sched_yield();
}

static void *hold_a_step(void *unused)
{
    sl_task_step_in(shared);
    sl_enter(a);
    phase = 1;
    wait_for_phase(2);
    sl_exit(a);
    sl_task_step_out(shared);
    return unused;
}

Test(task, a_finish_during_a_step_elsewhere_is_completed_by_that_step)
{
    pthread_t thread;
    names();
    shared = sl_task_create("task", "t", "");
    cr_assert_eq(pthread_create(&thread, NULL, hold_a_step, NULL), 0);
    wait_for_phase(1);
    sl_task_step_in(shared);
    cr_assert_eq(recorded_ring(1)->steps_refused + recorded_ring(0)->steps_refused, 1, "another thread steps it");
    sl_task_finish(shared);
    sl_task_finish(shared);
    cr_assert_eq(recorded_task(0)->state, SL_ROW_LIVE);
    phase = 2;
    pthread_join(thread, NULL);
    cr_assert_eq(recorded_task(0)->state, SL_ROW_DONE);
    cr_assert_neq(recorded_task(0)->done, 0);
    cr_assert_eq(recorded_count(0, SL_DONE) + recorded_count(1, SL_DONE), 1);
    expect_times_add_up(0);
}

static void *end_within_a_step(void *unused)
{
    sl_task_step_in(shared);
    sl_enter(a);
    phase = 1;
    wait_for_phase(2);
    return unused;
}

Test(task, a_thread_that_ends_within_a_step_ends_the_step)
{
    pthread_t thread;
    names();
    shared = sl_task_create("task", "t", "");
    cr_assert_eq(pthread_create(&thread, NULL, end_within_a_step, NULL), 0);
    wait_for_phase(1);
    phase = 2;
    pthread_join(thread, NULL);
    cr_assert_eq(lane_of(0)->depth, 1, "its call is still open, and may be left elsewhere");
    expect_times_add_up(0);
    sl_task_step_in(shared);
    sl_exit(a);
    sl_task_step_out(shared);
    cr_assert_eq(lane_of(0)->steps, 2);
    sl_task_finish(shared);
    cr_assert_eq(recorded_task(0)->state, SL_ROW_DONE);
}

Test(task, a_finish_during_the_last_step_of_a_thread_is_completed_by_its_end)
{
    pthread_t thread;
    names();
    shared = sl_task_create("task", "t", "");
    cr_assert_eq(pthread_create(&thread, NULL, end_within_a_step, NULL), 0);
    wait_for_phase(1);
    sl_task_finish(shared);
    phase = 2;
    pthread_join(thread, NULL);
    cr_assert_eq(recorded_task(0)->state, SL_ROW_DONE);
    cr_assert_eq(recorded_count(0, SL_ENDED_OPEN) + recorded_count(1, SL_ENDED_OPEN), 1);
    cr_assert_eq(lane_of(0)->depth, 0);
    expect_times_add_up(0);
}

// Every round a finish meets the step_out of another thread; exactly one of the two has to complete the row.
enum { ROUNDS = 20000 };
static _Atomic(sl_task_t) offered;

static void *step_what_is_offered(void *unused)
{
    for (int round = 0; round < ROUNDS; round++) {
        sl_task_t task;
        while (!(task = offered))
            ;
        sl_task_step_in(task);
        offered = 0;
        sl_task_step_out(task);
    }
    return unused;
}

Test(task, a_finish_that_meets_a_step_out_is_completed_once)
{
    pthread_t thread;
    setenv("SCOPED_LANE_RING", "4M", 1);
    cr_assert_eq(pthread_create(&thread, NULL, step_what_is_offered, NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        sl_task_t task = sl_task_create("task", "t", "");
        offered = task;
        while (offered)
            ;
        sl_task_finish(task);
    }
    pthread_join(thread, NULL);
    recorded_look(0);
    cr_assert_eq(segment_header(&recorded)->tasks, ROUNDS);
    uint32_t done = 0;
    for (uint32_t n = 0;; n++) {
        const struct sl_task_row *row = recorded_row(recorded.tasks, recorded.task_extents, n, sizeof *row);
        if (!row)
            break;
        if (row->state == SL_ROW_FREE)
            continue;
        cr_assert_neq(row->state, SL_ROW_LIVE, "task %u is not completed", row->index);
        cr_assert_geq(row->done, row->created);
        cr_assert_leq(row->done, sl_ticks_());
        done += row->state == SL_ROW_DONE;
    }
    cr_assert_eq(done, ROUNDS);
    cr_assert_eq(recorded_count(0, SL_DONE) + recorded_count(1, SL_DONE), ROUNDS);
}

static _Atomic bool enough;

// While it is suspended its call is open; within a step it is closed for a while.
static void *leave_and_enter(void *unused)
{
    while (!enough) {
        sl_task_step_in(shared);
        sl_exit(a);
        spin(500);
        sl_enter(a);
        sl_task_step_out(shared);
        spin(500);
    }
    return unused;
}

Test(task, its_row_and_stack_are_read_as_of_one_moment_or_said_to_move)
{
    static struct lane_view view;
    pthread_t thread;
    names();
    shared = sl_task_create("task", "t", "");
    sl_task_step_in(shared);
    sl_enter(a);
    sl_task_step_out(shared);
    const struct sl_task_row *row = recorded_task(0);
    cr_assert_eq(pthread_create(&thread, NULL, leave_and_enter, NULL), 0);
    uint32_t suspended = 0, wrong = 0;
    while (suspended < 200000) {
        struct sl_task_row copy;
        lanes_read_task(&recorded, row, &copy, &view);
        if (view.moving || copy.lane.stepping)
            continue;
        suspended++;
        wrong += view.depth != 1;
    }
    enough = true;
    pthread_join(thread, NULL);
    cr_assert_eq(wrong, 0);
    sl_task_finish(shared);
}

// ---- open calls, deep stacks, longer names

Test(task, calls_open_at_its_finish_are_said)
{
    names();
    sl_task_t task = sl_task_create("task", "t", "");
    sl_task_step_in(task);
    sl_enter(a);
    sl_enter(b);
    sl_task_step_out(task);
    sl_task_finish(task);
    cr_assert_eq(recorded_count(0, SL_ENDED_OPEN), 2);
    struct sl_record outer = recorded_nth(0, SL_ENDED_OPEN, 1);
    cr_assert_eq(sl_record_region(&outer), a);
    cr_assert_eq(sl_record_task(&outer), 0);
    cr_assert_eq(sl_record_start(&outer) + sl_record_duration(&outer), recorded_task(0)->done);
    cr_assert_eq(lane_of(0)->depth, 0);
    cr_assert_eq(recorded_ring(0)->produced, 0);
}

Test(task, a_tasks_stack_overflows_into_a_block_that_comes_back)
{
    names();
    uint64_t size = 0;
    for (int round = 0; round < 20; round++) {
        sl_task_t task = sl_task_create("task", "t", "");
        sl_task_step_in(task);
        for (int i = 0; i < 100; i++)
            sl_enter(a);
        uint32_t index = (uint32_t)round;
        cr_assert_eq(recorded_view(lane_of(index), SL_TASK_ENTRIES)->depth, 100);
        recorded_expect_lane_whole(lane_of(index), SL_TASK_ENTRIES);
        for (int i = 0; i < 100 - round % 3; i++)
            sl_exit(a);
        sl_task_step_out(task);
        sl_task_finish(task);
        cr_assert_eq(lane_of(index)->overflow, 0);
        if (round == 0)
            size = segment_header(&recorded)->size;
    }
    cr_assert_eq(segment_header(&recorded)->size, size, "one block serves all");
    cr_assert_eq(recorded_ring(0)->produced, 20 * 100 - (7 * 0 + 7 * 1 + 6 * 2));
}

Test(task, it_is_renamed_at_any_length)
{
    static char name[5000];
    memset(name, 'n', sizeof name - 1);
    sl_task_t task = sl_task_create("task", name, "coro");
    cr_assert_str_eq(recorded_name(&recorded_task(0)->name), name);
    sl_task_rename(task, "short");
    cr_assert_str_eq(recorded_name(&recorded_task(0)->name), "short");
    cr_assert_str_eq(recorded_name(&recorded_task(0)->coro_name), "coro");
    uint32_t version = recorded_task(0)->version;
    sl_task_rename(task, name);
    cr_assert_str_eq(recorded_name(&recorded_task(0)->name), name);
    cr_assert_gt(recorded_task(0)->version, version);
    sl_task_finish(task);
    sl_task_rename(task, "late");
    cr_assert_eq(recorded_ring(0)->stale_tasks, 1);
    cr_assert_str_eq(recorded_name(&recorded_task(0)->name), name);
}

Test(task, kinds_are_words_of_the_segment)
{
    static const char *const kinds[] = {"task", "greenlet", "fiber", "task", "a kind with \xc3\xbc", "fiber"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        sl_task_create(kinds[i], "", "");
    recorded_look(0);
    struct segment_string string;
    struct buffer text = {0};
    char words[16][64] = {{0}};
    while (segment_next_string(&recorded, &string, &text) > 0)
        if (string.type == SL_STRING_WORD)
            memcpy(words[string.id % 16], string.name, string.name_length);
    for (uint32_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        cr_expect_str_eq(words[recorded_task(i)->kind % 16], kinds[i]);
    cr_assert_eq(recorded_task(0)->kind, recorded_task(3)->kind);
    buffer_finish(&text);
}

// ---- rows that are used again, rows that run out

static void spool_done_rows(void)
{
    recorded_look(0);
    for (uint32_t n = 0;; n++) {
        struct sl_task_row *row = recorded_row(recorded.tasks, recorded.task_extents, n, sizeof *row);
        if (!row)
            return;
        if (sl_load_acquire(&row->state) == SL_ROW_DONE)
            sl_store_release(&row->state, SL_ROW_SPOOLED);
    }
}

Test(task, spooled_rows_are_used_again_and_old_handles_of_them_are_stale)
{
    enum { TASKS = 20000 };
    static sl_task_t handles[TASKS];
    setenv("SCOPED_LANE_RING", "4M", 1);
    names();
    for (uint32_t i = 0; i < TASKS; i++) {
        handles[i] = sl_task_create("task", "t", "");
        sl_task_step_in(handles[i]);
        call(a);
        sl_task_step_out(handles[i]);
        sl_task_finish(handles[i]);
        if (i % 20 == 0)
            spool_done_rows();
    }
    spool_done_rows();
    recorded_look(0);
    uint32_t rows = 0;
    for (uint32_t i = 0; i < recorded.task_extents; i++)
        rows += recorded.tasks[i].count;
    cr_assert_leq(rows, 512, "%u rows for %d tasks, 20 at once", rows, TASKS);
    cr_assert_eq(segment_header(&recorded)->tasks, TASKS);
    cr_assert_eq(recorded_ring(0)->produced, TASKS);
    uint64_t stale = recorded_ring(0)->stale_tasks;
    cr_assert_eq(stale, 0);
    sl_task_t now = sl_task_create("task", "now", "");
    for (uint32_t i = 0; i < TASKS; i++)
        sl_task_step_in(handles[i]);
    cr_assert_eq(recorded_ring(0)->stale_tasks, TASKS);
    cr_assert_eq(sl_task_current(), 0);
    sl_task_step_in(now);
    cr_assert_eq(sl_task_current(), now);
    sl_task_step_out(now);
}

Test(task, a_task_without_a_row_keeps_its_index_and_its_calls_are_counted)
{
    static sl_task_t handles[SL_TASK_ROWS_LIMIT + 2];
    names();
    for (uint32_t i = 0; i < SL_TASK_ROWS_LIMIT + 2; i++)
        handles[i] = sl_task_create("task", "t", "");
    sl_task_t one = handles[SL_TASK_ROWS_LIMIT], other = handles[SL_TASK_ROWS_LIMIT + 1], with_row = handles[0];
    recorded_look(0);
    cr_assert_eq(segment_header(&recorded)->tasks, SL_TASK_ROWS_LIMIT + 2);
    cr_assert_eq((uint32_t)one, SL_TASK_ROWS_LIMIT);
    sl_task_step_in(one);
    cr_assert_eq(sl_task_current(), one);
    call(a);
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_NO_ROW], 1);
    sl_task_step_in(with_row);
    call(a);
    cr_assert_eq(recorded_calls(0), 1);
    sl_task_step_in(other);  // one at a time
    cr_assert_eq(sl_task_current(), with_row);
    cr_assert_eq(recorded_ring(0)->steps_refused, 1);
    sl_task_step_out(with_row);
    cr_assert_eq(sl_task_current(), one);
    sl_task_step_out(one);
    cr_assert_eq(sl_task_current(), 0);
    call(a);
    cr_assert_eq(recorded_calls(0), 2);
    sl_task_step_in(other);
    sl_next(b);
    sl_exit(b);
    sl_task_step_out(other);
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_NO_ROW], 3);
    sl_task_finish(other);
    sl_task_rename(other, "x");
    cr_assert_eq(recorded_ring(0)->stale_tasks, 0);
    expect_times_add_up(0);
}

Test(task, rows_that_come_back_after_they_had_run_out_are_found)
{
    static sl_task_t handles[SL_TASK_ROWS_LIMIT];
    for (uint32_t i = 0; i < SL_TASK_ROWS_LIMIT; i++)
        handles[i] = sl_task_create("task", "t", "");
    sl_task_finish(handles[SL_TASK_ROWS_LIMIT / 2]);
    spool_done_rows();
    uint32_t rows = 0;
    for (int i = 0; i < 300; i++) {  // a hand moves over the rows: the one that is free is found within one round
        sl_task_t task = sl_task_create("task", "again", "");
        uint64_t lost = recorded_ring(0)->lost[SL_LOST_NO_ROW];
        sl_task_step_in(task);
        sl_enter(1);
        sl_exit(1);
        sl_task_step_out(task);
        rows += recorded_ring(0)->lost[SL_LOST_NO_ROW] == lost;
    }
    cr_assert_eq(rows, 1);
}

Test(task, a_call_may_be_left_on_a_task_s_lane_from_elsewhere)
{
    names();
    sl_task_t task = sl_task_create("task", "generator", "user"), other = sl_task_create("task", "closer", "aclose");
    cr_assert_eq(sl_task_exit_(0, a), 0);
    cr_assert_eq(sl_task_exit_(task, a), 0, "it is not open");
    sl_task_step_in(task);
    sl_enter(a);
    cr_assert_eq(sl_task_exit_(task, a), 0, "its own step leaves by sl_exit");
    sl_task_step_in(other);
    sl_enter(a);
    cr_assert_eq(sl_task_exit_(task, a), 1, "its step is suspended by this one");
    cr_assert_eq(sl_task_exit_(task, a), 0);
    sl_task_step_out(other);
    sl_enter(b);
    sl_task_step_out(task);
    cr_assert_eq(sl_task_exit_(task, b), 1);
    sl_task_finish(task);
    cr_assert_eq(sl_task_exit_(task, b), 0, "it has ended");
    struct sl_record record = recorded_nth(0, SL_CALL, 0);
    cr_assert_eq(sl_record_task(&record), 0);
    cr_assert_eq(sl_record_region(&record), a);
    record = recorded_nth(0, SL_CALL, 1);
    cr_assert_eq(sl_record_task(&record), 0);
    cr_assert_eq(sl_record_region(&record), b);
    cr_assert_eq(recorded_count(0, SL_CALL), 2);
    cr_assert_eq(recorded_count(0, SL_UNMATCHED), 0);
    cr_assert_eq(lane_of(1)->depth, 1, "the other's own call is open still");
}
