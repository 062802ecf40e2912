// Both ends of a ring in one process: the client library produces, the daemon's drain consumes.
#include "client/scoped_lane.h"
#include "tests/recorded.h"

static sl_region_t a, b;

static void begin(void)
{
    setenv("SCOPED_LANE_RING", "16K", 1);
    recorded_begin();
    a = sl_region("a");
    b = sl_region("b");
}

TestSuite(ring, .init = begin, .fini = recorded_end, .timeout = 300);

enum { RECORDS = 512 };  // of 16 KiB

static uint64_t next_record, drained_calls;

static void call(sl_region_t region)
{
    sl_enter(region);
    sl_exit(region);
}

// Drains everything, at most `limit` records at a time, and checks that the calls come in the order they ended.
static void drain(uint32_t limit)
{
    static struct sl_record batch[RECORDS];
    static uint64_t last_end;
    recorded_look(0);
    for (int64_t count; (count = drain_copy(&recorded, 0, next_record, batch, limit)) != 0;) {
        cr_assert_gt(count, 0);
        cr_assert_leq(count, limit);
        for (int64_t i = 0; i < count; i++) {
            if (!sl_record_is_call(&batch[i]))
                continue;
            uint64_t end = sl_record_start(&batch[i]) + sl_record_duration(&batch[i]);
            cr_assert_geq(end, last_end);
            last_end = end;
            drained_calls++;
        }
        next_record += (uint64_t)count;
        drain_release(&recorded, 0, next_record);
    }
}

Test(ring, sequence_numbers_run_on_over_many_laps)
{
    for (int lap = 0; lap < 40; lap++) {
        for (int i = 0; i < 300; i++)
            call(i % 2 ? a : b);
        drain(1 + (uint32_t)lap % 7 * 100);
    }
    struct sl_ring *ring = recorded_ring(0);
    cr_assert_eq(ring->head, 40 * 300 + 1);
    cr_assert_eq(next_record, ring->head);
    cr_assert_eq(drained_calls, 40 * 300);
    cr_assert_eq(ring->produced, 40 * 300);
    cr_assert_eq(recorded_lost(ring), 0);
}

Test(ring, it_takes_as_many_as_it_holds_and_counts_the_rest)
{
    call(a);
    drain(RECORDS);
    for (int lap = 0; lap < 10; lap++) {
        uint64_t lost = recorded_lost(recorded_ring(0)), calls = drained_calls;
        for (int i = 0; i < RECORDS + lap * 37; i++)
            call(a);
        cr_assert_eq(recorded_ring(0)->head - recorded_ring(0)->tail, RECORDS);
        cr_assert_eq(recorded_ring(0)->lost[SL_LOST_RING_FULL] - lost, (uint64_t)lap * 37);
        drain(RECORDS);
        cr_assert_eq(drained_calls - calls, RECORDS);
    }
    struct sl_ring *ring = recorded_ring(0);
    cr_assert_eq(ring->produced, drained_calls + recorded_lost(ring));
}

Test(ring, room_for_one_is_room_for_one)
{
    for (int i = 0; i < RECORDS - 1; i++)
        call(a);
    drain(RECORDS);
    for (int i = 0; i < RECORDS; i++)
        call(a);
    for (int i = 0; i < 100; i++) {
        uint64_t lost = recorded_lost(recorded_ring(0));
        drain_release(&recorded, 0, ++next_record);
        call(a);
        cr_assert_eq(recorded_lost(recorded_ring(0)), lost);
        call(a);
        cr_assert_eq(recorded_lost(recorded_ring(0)), lost + 1);
    }
}

Test(ring, every_kind_of_record_finds_the_ring_full)
{
    for (int i = 0; i < 2 * RECORDS; i++)
        call(a);
    uint64_t head = recorded_ring(0)->head;
    sl_exit(b);
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_task_step_in(task);
    sl_enter(a);
    sl_task_step_out(task);
    sl_task_finish(task);
    cr_assert_eq(recorded_ring(0)->head, head);
    cr_assert_eq(recorded_ring(0)->unmatched, 1, "counted, though not said");
    cr_assert_eq(recorded_task(0)->state, SL_ROW_DONE, "the row tells it too");
    drain(RECORDS);
    struct sl_ring *ring = recorded_ring(0);
    cr_assert_eq(ring->produced, drained_calls + recorded_lost(ring));
}

Test(ring, a_call_that_began_long_ago_keeps_its_length)
{
    call(a);
    struct sl_entry *entry = sl_lane_stack(sl_ring_lane(recorded_ring(0)));
    sl_enter(a);
    entry->start /= 2;  // half of the counter's life ago
    uint64_t start = entry->start;
    sl_exit(a);
    struct sl_record record = recorded_nth(0, SL_CALL, 1);
    cr_assert_eq(sl_record_start(&record), start);
    cr_assert_geq(sl_record_duration(&record), start);
}

Test(ring, a_counter_that_ran_back_is_said)
{
    sl_enter(a);
    uint64_t start = sl_ticks_() + (UINT64_C(1) << 50);
    sl_lane_stack(sl_ring_lane(recorded_ring(0)))->start = start;
    sl_exit(a);
    struct sl_record record = recorded_nth(0, SL_CALL_BACK, 0);
    cr_assert_eq(sl_record_start(&record), start);
    cr_assert_lt(sl_record_duration(&record), start, "the end, earlier than the start");
    cr_assert_gt(sl_record_duration(&record), start - (UINT64_C(1) << 50));
    cr_assert_eq(recorded_ring(0)->produced, 1);
}

Test(ring, an_await_is_never_longer_than_its_call)
{
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_task_step_in(task);
    sl_enter(a);
    recorded_task(0)->lane.suspended += UINT64_C(1) << 40;
    sl_exit(a);
    sl_task_step_out(task);
    struct sl_record record = recorded_nth(0, SL_CALL, 0);
    cr_assert_eq(sl_record_await(&record), sl_record_duration(&record));
}

// ---- records as bits

Test(ring, a_record_holds_every_value_of_every_field)
{
    static const uint32_t regions[] = {0, 1, 0xffff, 0x10000, 0xabcdef, SL_REGION_LAST, SL_REGION_OTHER};
    static const uint32_t tasks[] = {0, 1, 0x7fffffff, 0xfffffffe, SL_TASK_NONE};
    static const uint64_t durations[] = {0, 1, SL_DURATION_LONG - 1, SL_DURATION_LONG, SL_DURATION_LIMIT};
    for (unsigned kind = 0; kind < 256; kind += 5)
        for (size_t r = 0; r < sizeof regions / sizeof *regions; r++)
            for (size_t p = 0; p < sizeof regions / sizeof *regions; p++)
                for (size_t t = 0; t < sizeof tasks / sizeof *tasks; t++)
                    for (size_t d = 0; d < sizeof durations / sizeof *durations; d++) {
                        uint64_t await_field = durations[d] & ((UINT64_C(1) << 47) - 1);
                        struct sl_record record = {{UINT64_MAX, sl_record_word1(kind, durations[d]),
                                                    sl_record_word2(regions[r], await_field),
                                                    sl_record_word3(regions[r], regions[p], tasks[t])}};
                        cr_assert_eq(sl_record_kind(&record), kind);
                        cr_assert_eq(sl_record_duration(&record), durations[d]);
                        cr_assert_eq(sl_record_region(&record), regions[r]);
                        cr_assert_eq(sl_record_parent(&record), regions[p]);
                        cr_assert_eq(sl_record_task(&record), tasks[t]);
                        cr_assert_eq(sl_record_await_field(&record), await_field);
                        cr_assert_eq(sl_record_await(&record), durations[d] < SL_DURATION_LONG ? await_field : await_field << 9);
                    }
}
