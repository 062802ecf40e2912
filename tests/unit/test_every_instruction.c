// The client led one instruction at a time: at each of them a reader, or whoever finds the segment after a kill, sees nothing but the
// truth, and a signal handler does no harm.
#include <errno.h>
#include <setjmp.h>
#include <sys/mman.h>

#include "client/scoped_lane.h"
#include "tests/recorded.h"
#include "tests/stepper.h"

enum { a = 1, b, c };  // what sl_region gives out, in both processes
static pid_t child;

// The child's own count, in memory it shares with the test.
static struct own {
    uint64_t begun, completed;  // exits and nexts
    uint64_t jumps;
} *own;

static void begin(void)
{
    recorded_begin();
    own = mmap(NULL, sizeof *own, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void end(void)
{
    if (child)
        stepper_kill(child);
    recorded_end();
}

TestSuite(every_instruction, .init = begin, .fini = end, .timeout = 300);

static void names(void)
{
    if (sl_region("a") != a || sl_region("b") != b || sl_region("c") != c)
        _exit(78);
    sl_enter(a);
    sl_exit(a);
}

// ---- calls

static void nest(void)
{
    names();
    stepper_mark();
    sl_enter(a);
    sl_enter(b);
    sl_next(c);
    sl_exit(c);
    sl_exit(a);
    stepper_mark();
}

static bool is_published(uint64_t start)
{
    static struct sl_record records[1024];
    for (uint32_t i = recorded_all(0, records, 1024); i-- > 0;)
        if (sl_record_is_call(&records[i]) && sl_record_start(&records[i]) == start)
            return true;
    return false;
}

Test(every_instruction, open_calls_and_the_ledger_are_true)
{
    child = stepper_start(nest);
    recorded_look(child);
    const struct sl_ring *ring = recorded_ring(0);
    const struct sl_lane *lane = sl_ring_lane(recorded_ring(0));
    int steps = 0, deepest = 0, in_flight = 0, published_and_open = 0;
    while (stepper_step(child, 0) > 0) {
        steps++;
        recorded_expect_lane_whole(lane, SL_THREAD_ENTRIES);
        uint64_t missing = ring->produced - recorded_calls(0) - recorded_lost(ring);
        cr_assert_leq(missing, 1, "after instruction %d: produced %lu, calls %lu", steps, (unsigned long)ring->produced,
                      (unsigned long)recorded_calls(0));
        in_flight += missing == 1;
        const struct lane_view *view = recorded_lane(0);
        cr_assert_leq(view->depth, 2);
        for (uint32_t i = 0; i < view->depth; i++) {
            uint32_t region = view->calls[i].region;
            cr_assert(i == 0 ? region == a : region == b || region == c);
            if (!is_published(view->calls[i].start))
                continue;
            published_and_open++;
            cr_assert_eq(i + 1, view->depth, "only the top entry can be both published and open");
            struct sl_record newest = sl_ring_records(recorded_ring(0))[ring->head - 1];
            cr_assert_eq(sl_record_start(&newest), view->calls[i].start, "and it is the newest record");
        }
        deepest = (int)view->depth > deepest ? (int)view->depth : deepest;
    }
    cr_assert_gt(steps, 100);
    cr_assert_eq(deepest, 2);
    cr_assert_gt(in_flight, 0, "the moments between produced and head were among them");
    cr_assert_gt(published_and_open, 0, "so were those between head and start = 0");
    cr_assert_eq(ring->produced, 4);
}

// ---- steps of a task

static void step_a_task(void)
{
    names();
    sl_task_t task = sl_task_create("task", "t", "");
    sl_task_t other = sl_task_create("task", "other", "");
    stepper_mark();
    for (int i = 0; i < 3; i++) {
        sl_task_step_in(task);
        sl_task_step_in(other);
        sl_task_step_out(other);
        sl_task_step_out(task);
    }
    sl_task_finish(task);
    stepper_mark();
}

// During a step, outside of its changes, this is the suspended time. From a block whose writer was killed within a change it is what the
// daemon rebuilds the suspended time from.
static uint64_t suspended_by_the_rest(const struct sl_lane *lane)
{
    uint64_t span = lane->step_started - lane->first_step;
    return lane->step_started > lane->first_step && span > lane->running ? span - lane->running : 0;
}

Test(every_instruction, the_times_of_a_task_are_true_or_known_to_be_moving)
{
    child = stepper_start(step_a_task);
    recorded_look(child);
    const struct sl_task_row *row = recorded_task(0);
    struct sl_task_row copy;
    struct buffer name = {0}, coro_name = {0};
    uint64_t last_suspended = 0, last_running = 0, rebuilt = 0;
    int moving = 0, rebuilt_exactly = 0;
    while (stepper_step(child, 0) > 0) {
        if (!segment_task_row(&recorded, row, &copy, &name, &coro_name)) {
            moving++;
            uint64_t bound = suspended_by_the_rest(&row->lane);
            rebuilt = bound > rebuilt ? bound : rebuilt;
            continue;
        }
        const struct sl_lane *lane = &copy.lane;
        cr_assert_leq(rebuilt, lane->suspended, "what would have been rebuilt is a lower bound");
        rebuilt_exactly += rebuilt && rebuilt == lane->suspended;
        rebuilt = 0;
        cr_assert(lane->suspended >= last_suspended && lane->running >= last_running);
        last_suspended = lane->suspended;
        last_running = lane->running;
        if (!lane->steps)
            continue;
        if (lane->stepping && !(lane->stepping >> 31))
            cr_assert_eq(lane->suspended, suspended_by_the_rest(lane));
        else
            cr_assert_eq(lane->running + lane->suspended, lane->last_step_end - lane->first_step);
        cr_assert_leq(lane->longest_step, lane->running);
    }
    cr_assert_gt(moving, 0);
    cr_assert_gt(rebuilt_exactly, 0);
    cr_assert_eq(row->state, SL_ROW_DONE);
    cr_assert_eq(row->lane.steps, 6);
    buffer_finish(&name);
    buffer_finish(&coro_name);
}

// ---- names

static char long_name[1000];

static void rename_the_thread(void)
{
    sl_thread_name("first");
    stepper_mark();
    sl_thread_name(long_name);
    sl_thread_name("last");
    stepper_mark();
}

Test(every_instruction, a_name_is_the_old_or_the_new_one)
{
    memset(long_name, 'n', sizeof long_name - 1);
    child = stepper_start(rename_the_thread);
    recorded_look(child);
    const struct sl_thread_row *row = recorded_thread(0);
    const char *expected[] = {"first", long_name, "last"};
    struct sl_thread_row copy;
    struct buffer name = {0};
    int now = 0, moving = 0;
    while (stepper_step(child, 0) > 0) {
        recorded_look(child);
        if (!segment_thread_row(&recorded, row, &copy, &name)) {
            moving++;
            continue;
        }
        if (now < 2 && strcmp(name.data, expected[now]) != 0)
            now++;
        cr_assert_str_eq(name.data, expected[now]);
    }
    cr_assert_eq(now, 2);
    cr_assert_gt(moving, 0);
    buffer_finish(&name);
}

// ---- registration

static void register_it(void)
{
    stepper_mark();
    sl_region_t region = sl_region("a");
    sl_enter(region);
    sl_exit(region);
    stepper_mark();
}

Test(every_instruction, a_segment_is_adopted_whole_or_not_yet)
{
    child = stepper_start(register_it);
    int steps = 0, too_short = 0, unfinished = 0, good = 0;
    for (; stepper_step(child, 0) > 0; steps++) {
        if (steps % 13)
            continue;
        char problem[256] = "";
        int fd = place_segment(&place, child, NULL);
        if (fd < 0) {
            cr_assert_eq(good, 0);
            continue;
        }
        struct segment segment;
        int result = segment_open(&segment, fd, "", problem);
        close(fd);
        if (result == 0) {
            good++;
            cr_assert_eq(segment.identity.pid, (uint32_t)child);
            for (uint32_t slot = 0; slot < segment.slot_count; slot++) {
                struct sl_record record[2];
                cr_assert_geq(drain_copy(&segment, slot, 0, record, 2), 0);
            }
            segment_close(&segment);
            continue;
        }
        cr_assert_eq(good, 0, "it was good and is %d now: %s", result, problem);
        too_short += result == -EBADMSG;
        unfinished += result == -EAGAIN;
        cr_assert(result == -EBADMSG || result == -EAGAIN, "%d: %s", result, problem);
    }
    cr_assert_gt(unfinished, 0, "%d steps, %d too short", steps, too_short);
    cr_assert_gt(good, 0);
    recorded_look(child);
    cr_assert_eq(recorded_ring(0)->produced, 1);
}

// ---- a signal handler

static sigjmp_buf back;
static bool jumps, crosses, unwinds;
static int calls_before;

static void on_signal(int number)
{
    (void)number;
    if (crosses) {
        sl_bump(&own->begun);
        sl_exit(a);
        sl_bump(&own->completed);
    }
    sl_enter(b);
    sl_enter(c);
    sl_bump(&own->begun);
    sl_exit(c);
    sl_bump(&own->completed);
    sl_bump(&own->begun);
    sl_next(b);
    sl_bump(&own->completed);
    sl_bump(&own->begun);
    sl_exit(b);
    sl_bump(&own->completed);
    if (jumps) {
        own->jumps++;
        siglongjmp(back, 1);
    }
}

static void handle_signals(bool on_a_stack_of_their_own)
{
    static char stack[1 << 16];
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = on_a_stack_of_their_own ? SA_ONSTACK : 0};
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    if (on_a_stack_of_their_own)
        sigaltstack(&alternate, NULL);
    sigaction(SIGUSR1, &action, NULL);
}

// One call after another for ever, a mark before each round.
static void call_for_ever(void)
{
    names();
    sl_mark_t mark = sl_mark();
    for (int i = 0; i < calls_before; i++) {
        sl_enter(a);
        sl_bump(&own->begun);
        sl_exit(a);
        sl_bump(&own->completed);
    }
    for (;;) {
        if (sigsetjmp(back, 1) != 0) {
            if (unwinds)
                sl_unwind(mark);
            continue;
        }
        stepper_mark();
        sl_enter(a);
        sl_bump(&own->begun);
        sl_next(b);
        sl_bump(&own->completed);
        sl_bump(&own->begun);
        sl_exit(b);
        sl_bump(&own->completed);
    }
}

static void call_for_ever_with_signals(void)
{
    handle_signals(false);
    call_for_ever();
}

static void call_for_ever_with_signals_on_a_stack_of_their_own(void)
{
    handle_signals(true);
    call_for_ever();
}

// Steps for ever, one task within another; the handler makes one of its own each time.
static void step_in_a_handler(int number)
{
    (void)number;
    sl_task_t task = sl_task_create("signal", "made by a handler", "");
    sl_task_step_in(task);
    sl_enter(b);
    sl_exit(b);
    sl_task_step_out(task);
    sl_task_finish(task);
}

static void step_for_ever(void)
{
    struct sigaction action = {.sa_handler = step_in_a_handler};
    sigaction(SIGUSR1, &action, NULL);
    names();
    sl_task_t outer = sl_task_create("task", "outer", ""), inner = sl_task_create("task", "inner", "");
    for (;;) {
        stepper_mark();
        sl_task_step_in(outer);
        sl_task_step_in(inner);
        sl_enter(a);
        sl_exit(a);
        sl_task_step_out(inner);
        sl_task_step_out(outer);
        own->completed++;
        own->begun |= sl_task_current();
    }
}

// Round after round the signal comes one instruction later, until it comes behind the last one; `each` looks after each round.
static int signal_at_every_instruction(void (*each)(void))
{
    int rounds = 0;
    recorded_look(child);
    for (bool inside = true; inside && rounds < 500; rounds++) {
        for (int i = 0; i < rounds && inside; i++)
            inside = stepper_step(child, 0) > 0;
        if (inside && stepper_step(child, SIGUSR1) != STEPPER_AT_MARK)
            cr_assert_eq(stepper_run(child), STEPPER_AT_MARK);
        each();
    }
    return rounds;
}

static void expect_every_call_once(void)
{
    const struct sl_ring *ring = recorded_ring(0);
    uint64_t calls = recorded_calls(0), lost = recorded_lost(ring), other = ring->unmatched;
    cr_assert_eq(ring->produced, calls + lost);
    cr_assert_eq(own->begun, own->completed);
    cr_assert_eq(ring->produced + other, own->completed + 1, "one was made before the rounds");
    const struct sl_lane *lane = sl_ring_lane(recorded_ring(0));
    recorded_expect_lane_whole(lane, SL_THREAD_ENTRIES);
    cr_assert_eq(recorded_lane(0)->depth, 0, "nothing is open between the rounds");
}

static void expect_every_call_once_and_nothing_unmatched(void)
{
    expect_every_call_once();
    cr_assert_eq(recorded_ring(0)->unmatched, 0);
    cr_assert_eq(recorded_ring(0)->crossing, 0);
    cr_assert_eq(recorded_ring(0)->abandoned, 0);
}

Test(every_instruction, a_handler_that_records_loses_at_most_its_own_calls)
{
    child = stepper_start(call_for_ever_with_signals);
    int rounds = signal_at_every_instruction(expect_every_call_once_and_nothing_unmatched);
    cr_assert_gt(rounds, 100);
    uint64_t in_signal = recorded_ring(0)->lost[SL_LOST_IN_SIGNAL];
    cr_assert_eq(recorded_lost(recorded_ring(0)), in_signal);
    cr_assert_gt(in_signal, 0, "appends were interrupted");
    cr_assert_lt(in_signal, own->completed / 4, "and only those cost anything");
}

Test(every_instruction, so_does_one_on_a_stack_of_its_own)
{
    child = stepper_start(call_for_ever_with_signals_on_a_stack_of_their_own);
    signal_at_every_instruction(expect_every_call_once_and_nothing_unmatched);
    cr_assert_gt(recorded_ring(0)->lost[SL_LOST_IN_SIGNAL], 0);
}

// There every append is ended by the cold path.
Test(every_instruction, a_handler_on_a_full_ring_leaves_every_call_counted)
{
    setenv("SCOPED_LANE_RING", "16K", 1);
    calls_before = 600;
    child = stepper_start(call_for_ever_with_signals);
    signal_at_every_instruction(expect_every_call_once_and_nothing_unmatched);
    cr_assert_eq(recorded_calls(0), 511);
    cr_assert_gt(recorded_ring(0)->lost[SL_LOST_IN_SIGNAL], 0);
    cr_assert_gt(recorded_ring(0)->lost[SL_LOST_RING_FULL], recorded_ring(0)->lost[SL_LOST_IN_SIGNAL]);
}

Test(every_instruction, a_handler_that_leaves_a_call_of_the_program_loses_none)
{
    crosses = true;
    child = stepper_start(call_for_ever_with_signals);
    signal_at_every_instruction(expect_every_call_once);
    cr_assert_lt(recorded_ring(0)->unmatched, own->completed / 2);
}

static void expect_no_step_in_progress(void)
{
    cr_assert_eq(own->begun, 0, "no task is current");
    cr_assert_eq(recorded_ring(0)->steps_refused, 0);
    for (uint32_t i = 0; i < segment_header(&recorded)->tasks; i++) {
        const struct sl_task_row *row = recorded_task(i);
        const struct sl_lane *lane = &row->lane;
        bool by_handler = i >= 2;
        cr_assert_eq(row->state, by_handler ? SL_ROW_DONE : SL_ROW_LIVE, "task %u after round %lu", i, (unsigned long)own->completed);
        cr_assert_eq(lane->stepping, 0, "task %u after round %lu", i, (unsigned long)own->completed);
        cr_assert_eq(lane->under, 0);
        cr_assert_eq(lane->seq % 2, 0);
        cr_assert_eq(lane->running + lane->suspended, lane->last_step_end - lane->first_step,
                     "task %u after round %lu: running %lu, suspended %lu, steps %lu, from %lu to %lu", i, (unsigned long)own->completed,
                     lane->running, lane->suspended, lane->steps, lane->first_step, lane->last_step_end);
        if (i == 1)
            cr_assert_geq(lane->steps, own->completed);
    }
}

Test(every_instruction, a_handler_that_steps_a_task_leaves_the_steps_of_others_whole)
{
    child = stepper_start(step_for_ever);
    int rounds = signal_at_every_instruction(expect_no_step_in_progress);
    cr_assert_gt(rounds, 150);
}

// What a longjmp leaves open stays on the lane until it is cleaned; what it interrupts is counted by the next append.
static void expect_no_exit_uncounted(void)
{
    const struct sl_ring *ring = recorded_ring(0);
    uint64_t calls = recorded_calls(0), lost = recorded_lost(ring), in_flight = ring->produced - calls - lost;
    cr_assert_leq(in_flight, 1);
    uint64_t produced = ring->produced + ring->unmatched - 1;
    cr_assert(own->completed <= produced && produced <= own->begun, "completed %lu, produced %lu, begun %lu",
              (unsigned long)own->completed, (unsigned long)produced, (unsigned long)own->begun);
    cr_assert_leq(own->begun - own->completed, own->jumps);
    recorded_expect_lane_whole(sl_ring_lane(recorded_ring(0)), SL_THREAD_ENTRIES);
}

static void expect_recording_goes_on(void)
{
    const struct sl_ring *ring = recorded_ring(0);
    uint64_t calls = recorded_calls(0);
    cr_assert_eq(stepper_run(child), 0);
    cr_assert_eq(stepper_run(child), 0);
    cr_assert_eq(recorded_calls(0), calls + 4, "two rounds without a signal are recorded whole");
    cr_assert_eq(ring->produced, recorded_calls(0) + recorded_lost(ring), "and the ledger is square again");
}

static void jump_at_every_instruction(void (*body)(void), bool with_mark)
{
    jumps = true;
    unwinds = with_mark;
    child = stepper_start(body);
    signal_at_every_instruction(expect_no_exit_uncounted);
    cr_assert_gt(own->jumps, 100);
    expect_recording_goes_on();
    if (with_mark)
        cr_assert_eq(recorded_lane(0)->depth, 0);
}

Test(every_instruction, a_handler_that_leaves_by_longjmp_leaves_the_ledger_exact)
{
    jump_at_every_instruction(call_for_ever_with_signals, false);
}

Test(every_instruction, so_does_one_on_a_full_ring)
{
    setenv("SCOPED_LANE_RING", "16K", 1);
    calls_before = 600;
    jumps = unwinds = true;
    child = stepper_start(call_for_ever_with_signals);
    signal_at_every_instruction(expect_no_exit_uncounted);
    cr_assert_gt(own->jumps, 100);
}

Test(every_instruction, so_does_one_whose_program_unwinds)
{
    jump_at_every_instruction(call_for_ever_with_signals, true);
}

Test(every_instruction, so_does_one_that_leaves_a_stack_of_its_own)
{
    jump_at_every_instruction(call_for_ever_with_signals_on_a_stack_of_their_own, false);
}

Test(every_instruction, so_does_one_that_leaves_a_stack_of_its_own_when_the_program_unwinds)
{
    jump_at_every_instruction(call_for_ever_with_signals_on_a_stack_of_their_own, true);
}
