// Calls and lanes, through the real client library: the test's own process records, the test reads its segment. Each test ends with
// the ledger of every ring (recorded_end).
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "client/scoped_lane.h"
#include "tests/recorded.h"

TestSuite(lane, .init = recorded_begin, .fini = recorded_end, .timeout = 300);

enum { DEEPEST = SL_THREAD_ENTRIES + SL_OVERFLOW_ENTRIES };

static void call(sl_region_t region)
{
    sl_enter(region);
    sl_exit(region);
}

// ---- calls

Test(lane, a_call_becomes_one_record)
{
    sl_region_t region = sl_region("step");
    call(region);
    cr_assert_eq(sl_is_active(), 1);
    cr_assert_eq(recorded_ring(0)->produced, 1);
    cr_assert_eq(recorded_ring(0)->others, 1, "the record that announces the thread");
    struct sl_record record = recorded_nth(0, SL_CALL, 0);
    cr_assert_eq(sl_record_region(&record), region);
    cr_assert_eq(sl_record_parent(&record), 0);
    cr_assert_eq(sl_record_task(&record), SL_TASK_NONE);
    cr_assert_eq(sl_record_await(&record), 0);
    cr_assert_gt(sl_record_start(&record), segment_header(&recorded)->created_ticks);
    struct sl_record announced = recorded_nth(0, SL_THREAD, 0);
    cr_assert_eq(sl_record_task(&announced), 0, "by thread 0");
    cr_assert_eq(recorded_lane(0)->since, sl_record_start(&record) + sl_record_duration(&record));
}

Test(lane, calls_nest_and_name_their_parent)
{
    sl_region_t a = sl_region("a"), b = sl_region("b"), c = sl_region("c");
    sl_enter(a);
    sl_enter(b);
    call(c);
    const struct lane_view *view = recorded_lane(0);
    cr_assert_eq(view->depth, 2);
    cr_assert_eq(view->calls[0].region, a);
    cr_assert_eq(view->calls[1].region, b);
    sl_exit(b);
    sl_exit(a);
    struct sl_record of_c = recorded_nth(0, SL_CALL, 0), of_b = recorded_nth(0, SL_CALL, 1), of_a = recorded_nth(0, SL_CALL, 2);
    cr_assert_eq(sl_record_region(&of_c), c);
    cr_assert_eq(sl_record_parent(&of_c), b);
    cr_assert_eq(sl_record_parent(&of_b), a);
    cr_assert_eq(sl_record_parent(&of_a), 0);
    cr_assert(sl_record_start(&of_a) <= sl_record_start(&of_b) && sl_record_start(&of_b) <= sl_record_start(&of_c));
    cr_assert_geq(sl_record_duration(&of_a), sl_record_duration(&of_b));
    cr_assert_eq(recorded_lane(0)->depth, 0);
}

Test(lane, next_closes_one_call_and_opens_its_sibling_at_the_same_time)
{
    sl_region_t a = sl_region("a"), b = sl_region("b"), outer = sl_region("outer");
    sl_enter(outer);
    sl_enter(a);
    sl_next(b);
    cr_assert_eq(recorded_lane(0)->calls[1].region, b);
    sl_exit(b);
    sl_exit(outer);
    struct sl_record of_a = recorded_nth(0, SL_CALL, 0), of_b = recorded_nth(0, SL_CALL, 1);
    cr_assert_eq(sl_record_start(&of_a) + sl_record_duration(&of_a), sl_record_start(&of_b));
    cr_assert_eq(sl_record_region(&of_b), b);
    cr_assert_eq(sl_record_parent(&of_b), outer);
    cr_assert_eq(recorded_ring(0)->produced, 3);
}

Test(lane, next_on_an_empty_lane_enters_and_counts_one_unmatched)
{
    sl_region_t a = sl_region("a");
    sl_next(a);
    cr_assert_eq(recorded_lane(0)->depth, 1);
    cr_assert_eq(recorded_ring(0)->unmatched, 1);
    sl_exit(a);
    cr_assert_eq(recorded_ring(0)->produced, 1);
}

Test(lane, a_null_region_does_nothing)
{
    call(sl_region("a"));
    sl_enter(0);
    sl_next(0);
    sl_exit(0);
    cr_assert_eq(sl_region(NULL), 0);
    cr_assert_eq(recorded_ring(0)->produced, 1);
    cr_assert_eq(recorded_ring(0)->unmatched, 0);
    sl_enter(sl_region("a"));
    sl_exit(0);
    sl_next(0);
    cr_assert_eq(recorded_lane(0)->depth, 1);
    sl_exit(sl_region("a"));
    cr_assert_eq(recorded_ring(0)->produced, 2);
}

Test(lane, an_exit_without_an_enter_is_counted_and_said)
{
    sl_region_t a = sl_region("a"), b = sl_region("b");
    sl_exit(a);
    sl_enter(a);
    sl_exit(b);
    sl_exit(a);
    sl_exit(a);
    cr_assert_eq(recorded_ring(0)->unmatched, 3);
    cr_assert_eq(recorded_ring(0)->produced, 1);
    cr_assert_eq(recorded_count(0, SL_UNMATCHED), 3);
    struct sl_record second = recorded_nth(0, SL_UNMATCHED, 1);
    cr_assert_eq(sl_record_region(&second), b);
    cr_assert_eq(sl_record_task(&second), SL_TASK_NONE);
}

Test(lane, errno_stays_what_it_was)
{
    errno = 4711;
    sl_region_t a = sl_region("a");
    call(a);
    sl_exit(a);
    for (int i = 0; i < DEEPEST + 10; i++)
        sl_enter(a);
    sl_thread_name("name");
    sl_task_finish(sl_task_create("task", "name", "name"));
    cr_assert_eq(errno, 4711);
    for (int i = 0; i < DEEPEST + 10; i++)
        sl_exit(a);
}

// ---- crossing

Test(lane, an_exit_closes_the_nearest_open_call_of_its_region_as_crossing)
{
    sl_region_t a = sl_region("a"), b = sl_region("b");
    sl_enter(a);
    sl_enter(b);
    sl_exit(a);
    cr_assert_eq(recorded_ring(0)->crossing, 1);
    struct sl_record record = recorded_nth(0, SL_CALL_CROSSING, 0);
    cr_assert_eq(sl_record_region(&record), a);
    cr_assert_eq(sl_record_parent(&record), 0);
    const struct lane_view *view = recorded_lane(0);
    cr_assert_eq(view->depth, 1);
    cr_assert_eq(view->calls[0].region, b);
    sl_exit(b);
    cr_assert_eq(recorded_ring(0)->produced, 2);
    cr_assert_eq(recorded_ring(0)->unmatched, 0);
    cr_assert_eq(recorded_count(0, SL_CALL), 1, "b itself does not cross");
    cr_assert_eq(recorded_ring(0)->abandoned, 0);
}

Test(lane, recursion_closes_the_innermost_call_of_the_region)
{
    sl_region_t a = sl_region("a"), b = sl_region("b");
    sl_enter(a);
    sl_enter(a);
    sl_enter(b);
    sl_exit(a);
    cr_assert_eq(recorded_lane(0)->depth, 2);
    sl_exit(b);
    sl_exit(a);
    struct sl_record inner = recorded_nth(0, SL_CALL_CROSSING, 0), outer = recorded_nth(0, SL_CALL, 1);
    cr_assert_gt(sl_record_start(&inner), sl_record_start(&outer));
    cr_assert_eq(recorded_ring(0)->produced, 3);
}

Test(lane, an_entry_crossed_twice_is_abandoned)
{
    sl_region_t outer = sl_region("outer"), left = sl_region("left behind");
    sl_enter(outer);
    sl_enter(outer);
    sl_enter(left);
    sl_exit(outer);
    cr_assert_eq(recorded_lane(0)->depth, 2, "crossed once it stays");
    sl_exit(outer);
    cr_assert_eq(recorded_lane(0)->depth, 0);
    cr_assert_eq(recorded_ring(0)->abandoned, 1);
    cr_assert_eq(recorded_ring(0)->produced, 2, "an abandoned entry is no call");
}

Test(lane, of_more_than_16_crossed_entries_the_oldest_go)
{
    sl_region_t outer = sl_region("outer"), left = sl_region("left behind");
    sl_enter(outer);
    for (int i = 0; i < 20; i++)
        sl_enter(left);
    sl_exit(outer);
    cr_assert_eq(recorded_lane(0)->depth, 16);
    cr_assert_eq(recorded_ring(0)->abandoned, 4);
    for (int i = 0; i < 16; i++)
        sl_exit(left);
    cr_assert_eq(recorded_ring(0)->produced, 17);
    cr_assert_eq(recorded_ring(0)->unmatched, 0);
}

// ---- deep

Test(lane, calls_nest_through_the_overflow_block_and_deeper_ones_are_counted)
{
    sl_region_t regions[7];
    for (int i = 0; i < 7; i++)
        regions[i] = sl_region((char[]){(char)('a' + i), 0});
    for (int i = 0; i < DEEPEST + 100; i++)
        sl_enter(regions[i % 7]);
    const struct lane_view *view = recorded_lane(0);
    cr_assert_eq(view->depth, DEEPEST);
    cr_assert_eq(view->too_deep, 100);
    cr_assert_eq(view->calls[SL_THREAD_ENTRIES].region, regions[SL_THREAD_ENTRIES % 7]);
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_TOO_DEEP], 0, "nothing is lost yet");
    for (int i = DEEPEST + 100; i-- > 0;)
        sl_exit(regions[i % 7]);
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_TOO_DEEP], 100);
    cr_assert_eq(recorded_ring(0)->produced, DEEPEST + 100);
    cr_assert_eq(recorded_calls(0), DEEPEST);
    cr_assert_eq(recorded_ring(0)->unmatched, 0);
    cr_assert_eq(recorded_ring(0)->crossing, 0);
    cr_assert_eq(recorded_ring(0)->abandoned, 0);
    struct sl_record last = recorded_nth(0, SL_CALL, DEEPEST - 1);
    cr_assert_eq(sl_record_region(&last), regions[0]);
    call(regions[0]);
    cr_assert_eq(recorded_ring(0)->produced, DEEPEST + 101);
}

Test(lane, one_region_may_fill_the_stack_in_one_loop)
{
    sl_region_t region = sl_region("recursion without frames");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < DEEPEST + 100; i++)
            sl_enter(region);
        for (int i = 0; i < DEEPEST + 100; i++)
            sl_exit(region);
    }
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_TOO_DEEP], 300);
    cr_assert_eq(recorded_ring(0)->produced, 3 * (DEEPEST + 100));
    cr_assert_eq(recorded_ring(0)->abandoned, 0);
}

Test(lane, a_next_that_is_too_deep_counts_one)
{
    sl_region_t region = sl_region("deep");
    for (int i = 0; i < DEEPEST + 1; i++)
        sl_enter(region);
    sl_next(region);
    sl_next(region);
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_TOO_DEEP], 2);
    for (int i = 0; i < DEEPEST + 1; i++)
        sl_exit(region);
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_TOO_DEEP], 3);
    cr_assert_eq(recorded_ring(0)->produced, DEEPEST + 3);
}

// Each level in a frame of its own. The deepest one fills the stack, and goes on with another region: neither call is deeper than the other.
__attribute__((noinline)) static void recurse(sl_region_t region, sl_region_t other, int levels)
{
    sl_enter(region);
    if (levels > 1) {
        recurse(region, other, levels - 1);
        sl_exit(region);
        return;
    }
    sl_next(other);
    for (int i = 0; i < 3; i++)
        call(region);  // too deep
    sl_exit(other);
}

Test(lane, on_a_full_stack_a_call_begun_by_next_is_not_taken_for_left_behind)
{
    sl_region_t region = sl_region("region"), other = sl_region("other");
    recurse(region, other, DEEPEST);
    const struct sl_ring *ring = recorded_ring(0);
    cr_assert_eq(ring->abandoned, 0);
    cr_assert_eq(ring->unmatched, 0);
    cr_assert_eq(ring->lost[SL_LOST_TOO_DEEP], 3);
    cr_assert_eq(ring->produced, DEEPEST + 4);
    cr_assert_eq(recorded_lane(0)->depth, 0);
}

// ---- leaving by longjmp

static jmp_buf back;

static void enter_in_a_deeper_frame(sl_region_t region, int levels);
static void (*volatile go_deeper)(sl_region_t, int) = enter_in_a_deeper_frame;

__attribute__((noinline)) static void enter_in_a_deeper_frame(sl_region_t region, int levels)
{
    sl_enter(region);
    if (levels == 1)
        longjmp(back, 1);
    go_deeper(region, levels - 1);
    sl_exit(region);
}

Test(lane, a_stack_full_of_what_longjmp_left_in_deeper_frames_is_cleaned)
{
    sl_region_t region = sl_region("left"), other = sl_region("other");
    static volatile int jumps;
    if (setjmp(back))
        jumps++;
    if (jumps < 2 * DEEPEST / 3)
        go_deeper(region, 3);
    uint64_t produced = recorded_ring(0)->produced;
    for (int i = 0; i < 100; i++)
        call(other);
    cr_assert_eq(recorded_ring(0)->produced, produced + 100);
    cr_assert_eq(recorded_calls(0), 100, "all of them were recorded");
    cr_assert_gt(recorded_ring(0)->abandoned, DEEPEST - SL_THREAD_ENTRIES);
}

// The worst program: its loop jumps back into the very frame that entered, so an entry left behind looks like an outer one.
Test(lane, a_stack_full_of_what_longjmp_left_in_the_same_frame_is_cleaned)
{
    sl_region_t outer = sl_region("outer"), a = sl_region("a"), b = sl_region("b");
    static volatile long rounds, exits;
    sl_enter(outer);
    setjmp(back);
    while (rounds++ < 20000) {
        sl_enter(a);
        if (rounds % 2)
            longjmp(back, 1);
        sl_enter(b);
        if (rounds % 3 == 0)
            longjmp(back, 1);
        sl_exit(b);
        exits++;
        sl_exit(a);
        exits++;
    }
    uint64_t lost = recorded_ring(0)->lost[SL_LOST_TOO_DEEP];
    cr_assert_eq(recorded_ring(0)->produced, (uint64_t)exits);
    cr_assert_lt(lost, (uint64_t)exits / 5, "of %ld exits %lu were too deep", exits, (unsigned long)lost);
    sl_exit(outer);
    cr_assert_eq(recorded_ring(0)->unmatched, 0, "what was open outside is still known");
    cr_assert_eq(recorded_ring(0)->produced, (uint64_t)exits + 1);
}

// Calls at several depths of the C stack, each left at any moment; what stays behind lies in frames that come again.
static long own_exits;

__attribute__((noinline)) static void call_at_levels(sl_region_t a, sl_region_t b, int levels)
{
    if (levels)
        call_at_levels(a, b, levels - 1);
    for (int i = 0; i < 20; i++) {
        sl_enter(a);
        if (rand() % 97 == 0)
            longjmp(back, 1);
        sl_enter(b);
        if (rand() % 97 == 0)
            longjmp(back, 1);
        sl_exit(b);
        sl_exit(a);
        own_exits += 2;
    }
    __asm__ __volatile__("" : : : "memory");
}

Test(lane, a_stack_full_of_what_longjmp_left_at_several_levels_is_cleaned)
{
    setenv("SCOPED_LANE_RING", "16M", 1);
    sl_region_t outer = sl_region("outer"), a = sl_region("a"), b = sl_region("b");
    static volatile int rounds;
    sl_enter(outer);
    setjmp(back);
    while (rounds++ < 6000)
        call_at_levels(a, b, 3);
    uint64_t lost = recorded_ring(0)->lost[SL_LOST_TOO_DEEP];
    cr_assert_eq(recorded_ring(0)->produced, (uint64_t)own_exits);
    cr_assert_lt(lost, (uint64_t)own_exits / 20, "of %ld exits %lu were too deep", own_exits, (unsigned long)lost);
    sl_exit(outer);
    cr_assert_eq(recorded_ring(0)->unmatched, 0, "what was open outside is still known");
}

Test(lane, a_mark_cuts_the_lane_back)
{
    sl_region_t a = sl_region("a"), b = sl_region("b");
    sl_mark_t start = sl_mark();
    sl_enter(a);
    sl_mark_t mark = sl_mark();
    sl_enter(b);
    sl_enter(b);
    sl_unwind(mark);
    cr_assert_eq(recorded_lane(0)->depth, 1);
    cr_assert_eq(recorded_ring(0)->abandoned, 2);
    sl_unwind(mark);
    cr_assert_eq(recorded_ring(0)->abandoned, 2, "nothing was left");
    sl_exit(a);
    cr_assert_eq(recorded_ring(0)->produced, 1);
    sl_enter(a);
    sl_enter(b);
    sl_unwind(start);
    cr_assert_eq(recorded_lane(0)->depth, 0, "a mark taken before the first call is a mark");
}

Test(lane, a_mark_is_of_its_lane)
{
    sl_region_t a = sl_region("a");
    sl_mark_t bare = sl_mark();
    sl_enter(a);
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_task_step_in(task);
    sl_mark_t in_task = sl_mark();
    sl_enter(a);
    sl_unwind(0);
    sl_unwind(bare);
    cr_assert_eq(recorded_task(0)->lane.depth, 1, "neither the null mark nor another lane's cuts");
    sl_unwind(in_task);
    cr_assert_eq(recorded_task(0)->lane.depth, 0);
    sl_task_step_out(task);
    cr_assert_eq(recorded_lane(0)->depth, 1);
    sl_unwind(in_task);
    cr_assert_eq(recorded_lane(0)->depth, 1);
    sl_exit(a);
    sl_task_finish(task);
}

Test(lane, a_mark_cuts_back_what_was_too_deep)
{
    sl_region_t a = sl_region("a");
    sl_mark_t mark = sl_mark();
    for (int i = 0; i < DEEPEST + 5; i++)
        sl_enter(a);
    sl_unwind(mark);
    cr_assert_eq(recorded_lane(0)->depth, 0);
    call(a);
    cr_assert_eq(recorded_ring(0)->produced, 1);
}

// ---- a full ring

Test(lane, a_full_ring_drops_and_counts_and_goes_on_when_there_is_room)
{
    setenv("SCOPED_LANE_RING", "16K", 1);
    sl_region_t region = sl_region("a");
    uint64_t calls = 0;
    for (; calls < 2000; calls++)
        call(region);
    struct sl_ring *ring = recorded_ring(0);
    uint64_t records = recorded.slots[0].records;
    cr_assert_eq(records, 512);
    cr_assert_eq(ring->head, records);
    cr_assert_eq(ring->produced, calls);
    cr_assert_eq(ring->lost[SL_LOST_RING_FULL], calls - (records - 1), "one record announces the thread");
    drain_release(&recorded, 0, 100);
    for (int i = 0; i < 150; i++)
        call(region);
    cr_assert_eq(ring->head, records + 100);
    cr_assert_eq(ring->produced, calls + 150);
    cr_assert_eq(ring->lost[SL_LOST_RING_FULL], calls - (records - 1) + 50);
    uint64_t stored = ring->head - ring->others;
    cr_assert_eq(ring->produced, stored + recorded_lost(ring));
}

// ---- paused, as the daemon does it

static void set_paused(bool paused)
{
    struct sl_lane *lane = sl_ring_lane(recorded_ring(0));
    sl_store_release(&segment_header(&recorded)->control, paused ? SL_CONTROL_PAUSED : 0);
    sl_store_relaxed(&lane->entries, paused ? 0 : SL_THREAD_ENTRIES);
}

Test(lane, while_paused_what_is_open_is_seen_and_only_what_was_open_before_is_recorded)
{
    sl_region_t a = sl_region("a"), b = sl_region("b"), c = sl_region("c");
    sl_enter(a);
    set_paused(true);
    sl_enter(b);
    sl_enter(c);
    const struct lane_view *view = recorded_lane(0);
    cr_assert_eq(view->depth, 3);
    cr_assert(view->calls[0].region == a && view->calls[1].region == b && view->calls[2].region == c);
    cr_assert(view->calls[0].recorded && !view->calls[1].recorded && !view->calls[2].recorded);
    cr_assert(view->calls[0].start <= view->calls[1].start && view->calls[1].start <= view->calls[2].start);
    sl_exit(c);
    sl_next(c);
    sl_exit(c);
    cr_assert_eq(recorded_ring(0)->produced, 0);
    sl_exit(a);
    set_paused(false);
    call(b);
    cr_assert_eq(recorded_lane(0)->depth, 0);
    cr_assert_eq(recorded_ring(0)->produced, 2);
    cr_assert_eq(recorded_ring(0)->unmatched + recorded_ring(0)->crossing, 0);
    struct sl_record of_a = recorded_nth(0, SL_CALL, 0), of_b = recorded_nth(0, SL_CALL, 1);
    cr_assert_eq(sl_record_region(&of_a), a);
    cr_assert_eq(sl_record_region(&of_b), b);
}

Test(lane, what_was_entered_while_paused_is_no_call_when_it_ends_later)
{
    sl_region_t a = sl_region("a"), b = sl_region("b"), c = sl_region("c");
    sl_enter(a);
    set_paused(true);
    sl_enter(a);
    sl_enter(b);
    set_paused(false);
    call(c);
    sl_next(c);
    call(b);
    sl_exit(c);
    cr_assert_eq(recorded_ring(0)->produced, 3, "c twice, b once");
    sl_exit(a);
    cr_assert_eq(recorded_ring(0)->produced, 3, "the inner a");
    sl_exit(a);
    cr_assert_eq(recorded_ring(0)->produced, 4);
    for (int i = 0; i < 4; i++) {
        static const char *const names[] = {"the first c", "b in c", "the second c", "a"};
        struct sl_record record = recorded_nth(0, SL_CALL, (uint32_t)i);
        cr_assert_eq(sl_record_region(&record), i == 3 ? a : i == 1 ? b : c, "%s", names[i]);
        cr_assert_eq(sl_record_parent(&record), i == 3 ? 0 : i == 1 ? c : a, "%s lies in the nearest call that has a record", names[i]);
    }
    cr_assert_eq(recorded_ring(0)->unmatched + recorded_ring(0)->crossing + recorded_ring(0)->abandoned, 0);
}

Test(lane, while_paused_a_crossing_exit_closes_its_own_call_and_stacks_grow)
{
    sl_region_t a = sl_region("a"), b = sl_region("b");
    call(b);
    set_paused(true);
    sl_enter(a);
    sl_enter(b);
    sl_exit(a);
    cr_assert_eq(recorded_lane(0)->depth, 1);
    cr_assert_eq(recorded_lane(0)->calls[0].region, b);
    sl_exit(b);
    for (int i = 0; i < SL_THREAD_ENTRIES + 10; i++)
        sl_enter(a);
    cr_assert_eq(recorded_lane(0)->depth, SL_THREAD_ENTRIES + 10);
    set_paused(false);
    call(b);
    for (int i = 0; i < SL_THREAD_ENTRIES + 10; i++)
        sl_exit(a);
    cr_assert_eq(recorded_lane(0)->depth, 0);
    cr_assert_eq(recorded_ring(0)->produced, 2);
    cr_assert_eq(recorded_ring(0)->unmatched, 0);
}

static void *one_call(void *region)
{
    call(*(sl_region_t *)region);
    return NULL;
}

Test(lane, threads_and_tasks_that_begin_while_paused_record_nothing)
{
    sl_region_t a = sl_region("a");
    sl_enter(a);
    set_paused(true);
    pthread_t thread;
    pthread_create(&thread, NULL, one_call, &a);
    pthread_join(thread, NULL);
    sl_task_t task = sl_task_create(NULL, "task", NULL);
    sl_task_step_in(task);
    call(a);
    sl_task_step_out(task);
    sl_task_finish(task);
    recorded_look(0);
    cr_assert_eq(recorded_ring(0)->produced + recorded_ring(1)->produced, 0);
    set_paused(false);
    sl_exit(a);
    cr_assert_eq(recorded_ring(0)->produced, 1);
}

// ---- names of regions

Test(lane, a_region_is_one_for_each_name_and_place)
{
    sl_region_t a = sl_region("a");
    cr_assert_eq(sl_region("a"), a);
    cr_assert_neq(sl_region("b"), a);
    sl_region_t here = sl_region_at("a", "x.c", 1);
    cr_assert_neq(here, a);
    cr_assert_eq(sl_region_at("a", "x.c", 1), here);
    cr_assert_neq(sl_region_at("a", "x.c", 2), here);
    cr_assert_neq(sl_region_at("a", "y.c", 1), here);
    cr_assert_eq(sl_region_at("a", NULL, 0), a);
    cr_assert_eq(sl_region_at(NULL, "x.c", 1), 0);
    cr_assert_neq(sl_region(""), 0, "the empty name is a name");
    for (int i = 0; i < 10000; i++) {
        char name[32];
        snprintf(name, sizeof name, "region %d", i);
        sl_region_t region = sl_region(name);
        cr_assert_eq(sl_region(name), region);
    }
    cr_assert_eq(sl_region("a"), a);
    call(a);
    recorded_look(0);
    cr_assert_eq(segment_header(&recorded)->regions, 10006);
}

static void scope_in_a_loop(int times)
{
    for (int i = 0; i < times; i++) {
        SL_SCOPE("scope");
        if (i % 2)
            continue;
    }
}

Test(lane, a_scope_ends_however_it_is_left)
{
    scope_in_a_loop(10);
    cr_assert_eq(recorded_ring(0)->produced, 10);
    cr_assert_eq(recorded_lane(0)->depth, 0);
    cr_assert_eq(segment_header(&recorded)->regions, 1);
}

// ---- a process without a daemon, a child of fork

Test(lane, without_a_daemon_nothing_is_recorded_until_attach_finds_one)
{
    char path[128];
    snprintf(path, sizeof path, "%s/register.sock", place.directory);
    unlink(path);
    close(place.listener);
    sl_region_t before = sl_region("before");
    call(before);
    cr_assert_eq(sl_is_active(), 0);
    cr_assert_eq(sl_task_create("task", "t", "t"), 0);
    cr_assert_eq(sl_attach(), -ENOENT);
    cr_assert_eq(place_segment(&place, 0, NULL), -1);
    place.listener = place_listen(place.directory);
    call(before);
    cr_assert_eq(sl_is_active(), 0, "a daemon that comes later is not looked for");
    cr_assert_eq(sl_attach(), 0);
    cr_assert_eq(sl_is_active(), 1);
    call(before);
    call(sl_region("after"));
    cr_assert_eq(recorded_ring(0)->produced, 2);
    struct sl_record record = recorded_nth(0, SL_CALL, 0);
    cr_assert_eq(sl_record_region(&record), before, "ids survive");
    struct segment_string string;
    struct buffer text = {0};
    int regions = 0;
    while (segment_next_string(&recorded, &string, &text) > 0)
        if (string.type == SL_STRING_REGION && regions++ == 0) {
            cr_assert_eq(string.id, before);
            cr_assert_eq(string.name_length, 6);
            cr_assert_eq(memcmp(string.name, "before", 6), 0);
        }
    cr_assert_eq(regions, 2);
    buffer_finish(&text);
}

Test(lane, off_means_off)
{
    setenv("SCOPED_LANE", "off", 1);
    call(sl_region("a"));
    cr_assert_eq(sl_is_active(), 0);
    cr_assert_eq(sl_attach(), -EPERM);
    cr_assert_eq(place_segment(&place, 0, NULL), -1);
}

static pid_t wait_for(pid_t pid)
{
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child's status is %#x", (unsigned)status);
    return pid;
}

Test(lane, the_child_of_a_fork_stands_down_and_touches_nothing)
{
    sl_region_t a = sl_region("a"), b = sl_region("b");
    sl_enter(a);
    static char before[SL_SLOT_RECORDS_OFFSET + 64 * SL_RECORD_BYTES], header[SL_HEADER_BYTES];
    memcpy(before, recorded_ring(0), sizeof before);
    memcpy(header, segment_header(&recorded), sizeof header);
    pid_t child = fork();
    if (child == 0) {
        sl_exit(a);
        call(b);
        sl_next(b);
        sl_thread_name("child");
        sl_region_t c = sl_region("made in the child");
        call(c);
        _exit(sl_is_active() || !c || sl_task_create("task", "t", "t"));
    }
    wait_for(child);
    cr_assert_eq(memcmp(before, recorded_ring(0), sizeof before), 0);
    cr_assert_eq(memcmp(header, segment_header(&recorded), sizeof header), 0);
    cr_assert_eq(place_segment(&place, child, NULL), -1);
    sl_exit(a);
    cr_assert_eq(recorded_ring(0)->produced, 1);
}

Test(lane, a_fork_is_followed_on_request)
{
    setenv("SCOPED_LANE_FORK", "follow", 1);
    sl_region_t a = sl_region("a");
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_enter(a);
    int ready[2], go[2];
    cr_assert_eq(pipe(ready) | pipe(go), 0);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sl_exit(a);  // was opened by the parent
        call(a);
        call(sl_region("b"));
        sl_task_step_in(task);  // the parent's, nothing here
        char byte;
        if (write(ready[1], "", 1) != 1 || read(go[0], &byte, 1) != 1)
            _exit(1);
        _exit(!sl_is_active());
    }
    char byte;
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    sl_exit(a);
    cr_assert_eq(recorded_ring(0)->produced, 1, "the parent's own");
    cr_assert_eq(segment_header(&recorded)->fork_depth, 0);
    segment_close(&recorded);

    recorded_look(child);
    cr_assert_eq(segment_header(&recorded)->pid, (uint32_t)child);
    cr_assert_eq(segment_header(&recorded)->fork_depth, 1);
    cr_assert_eq(segment_header(&recorded)->tasks, 0);
    cr_assert_eq(recorded_ring(0)->produced, 2);
    cr_assert_eq(recorded_ring(0)->unmatched, 1);
    cr_assert_eq(recorded_ring(0)->stale_tasks, 1);
    struct sl_record record = recorded_nth(0, SL_CALL, 0);
    cr_assert_eq(sl_record_region(&record), a, "ids survive");
    cr_assert_eq(write(go[1], "", 1), 1);
    wait_for(child);
    segment_close(&recorded);
}

Test(lane, a_child_of_a_process_without_a_daemon_may_attach)
{
    char path[128];
    snprintf(path, sizeof path, "%s/register.sock", place.directory);
    unlink(path);
    close(place.listener);
    sl_region_t a = sl_region("a");
    call(a);
    cr_assert_eq(sl_is_active(), 0);
    place.listener = place_listen(place.directory);
    pid_t child = fork();
    if (child == 0) {
        call(a);
        if (sl_is_active() || sl_attach() != 0)
            _exit(1);
        call(a);
        _exit(0);
    }
    wait_for(child);
    recorded_look(child);
    cr_assert_eq(recorded_ring(0)->produced, 1);
}
