// From the counter to the timeline: interpolation, extrapolation, jumps of the rate, and anchors that cannot be.
#include <criterion/criterion.h>
#include <stdlib.h>

#include "base/clock.h"
#include "core/ticks.h"
#include "proto/segment.h"

static struct ticks ticks;

static void end(void)
{
    ticks_finish(&ticks);
}

TestSuite(ticks, .fini = end, .timeout = 300);

static bool add(uint64_t at, int64_t ns)
{
    return ticks_add(&ticks, &(struct anchor){.ticks = at, .monotonic_ns = ns, .realtime_ns = ns});
}

#define SECOND INT64_C(1000000000)

Test(ticks, without_an_anchor_ticks_are_taken_for_nanoseconds)
{
    ticks_init(&ticks, 0);
    cr_assert_eq(ticks_to_ns(&ticks, 12345), 12345);
    add(100, 5000);
    cr_assert_eq(ticks_to_ns(&ticks, 103), 5003, "one alone says nothing of the rate");
    cr_assert_eq(ticks_to_ns(&ticks, 97), 4997);
}

Test(ticks, between_anchors_time_is_interpolated)
{
    ticks_init(&ticks, 0);
    add(0, 10 * SECOND);
    add(2000000000, 11 * SECOND);   // 2 GHz
    add(4000100000, 12 * SECOND);   // 50 ppm faster
    cr_assert_eq(ticks_to_ns(&ticks, 0), 10 * SECOND);
    cr_assert_eq(ticks_to_ns(&ticks, 1000000000), 10 * SECOND + SECOND / 2);
    cr_assert_eq(ticks_to_ns(&ticks, 2000000000), 11 * SECOND);
    cr_assert_eq(ticks_to_ns(&ticks, 3000050000), 11 * SECOND + SECOND / 2);
    cr_assert_eq(ticks_to_ns(&ticks, 4000100000), 12 * SECOND);
    cr_assert_eq(ticks.stretches, 1);
}

Test(ticks, outside_of_them_it_is_extrapolated_by_the_nearest_piece)
{
    ticks_init(&ticks, 0);
    add(2000000000, 11 * SECOND);
    add(4000000000, 12 * SECOND);
    add(5000000000, 13 * SECOND);  // the rate has halved
    cr_assert_eq(ticks_to_ns(&ticks, 1000000000), 10 * SECOND + SECOND / 2);
    cr_assert_eq(ticks_to_ns(&ticks, 6000000000), 14 * SECOND);
}

Test(ticks, a_jump_of_the_rate_starts_a_stretch_and_is_no_error)
{
    ticks_init(&ticks, 0);
    for (int i = 0; i < 10; i++)
        add((uint64_t)i * 2000000000, i * SECOND);
    cr_assert_eq(ticks.stretches, 1);
    cr_assert_eq(ticks.error_ns, 0);
    add(UINT64_C(20000000000), 70 * SECOND);  // the machine slept for a minute and the counter with it
    cr_assert_eq(ticks.stretches, 2);
    cr_assert_eq(ticks.error_ns, 0);
    cr_assert_eq(ticks_to_ns(&ticks, UINT64_C(18000000000)), 9 * SECOND, "what lay before it stays where it was");
    cr_assert_eq(ticks_to_ns(&ticks, UINT64_C(20000000000)), 70 * SECOND);
}

Test(ticks, the_error_is_the_largest_distance_between_what_was_said_and_what_came)
{
    ticks_init(&ticks, 0);
    add(0, 0);
    add(2000000000, SECOND);
    add(4000000000, 2 * SECOND + 700);
    cr_assert_eq(ticks.error_ns, 700);
    add(6000000000, 3 * SECOND + 1300);
    cr_assert_eq(ticks.error_ns, 700);
    cr_assert_eq(ticks.stretches, 1);
}

Test(ticks, anchors_that_run_back_are_dropped)
{
    ticks_init(&ticks, 0);
    cr_assert(add(1000, 1000));
    cr_assert(add(2000000000, SECOND));
    cr_assert_not(add(1999999999, 2 * SECOND));
    cr_assert_not(add(2000000000, 2 * SECOND));
    cr_assert_not(add(3000000000, SECOND));
    cr_assert_not(add(3000000000, SECOND - 1));
    cr_assert_eq(ticks.count, 2);
}

Test(ticks, many_anchors_are_thinned_and_time_stays_monotone)
{
    ticks_init(&ticks, 64);
    uint64_t at = 1000000;
    int64_t ns = 5 * SECOND;
    srand(1);
    for (int i = 0; i < 5000; i++) {
        at += 3000000000u + (uint64_t)(rand() % 1000);
        ns += SECOND + rand() % 300 - 150;
        cr_assert(add(at, ns));
        cr_assert_leq(ticks.count, 64);
        cr_assert_eq(ticks_to_ns(&ticks, at), ns, "the newest is always kept");
    }
    int64_t before = INT64_MIN;
    for (uint64_t t = 0; t < at + 10000000000u; t += at / 20000) {
        int64_t now = ticks_to_ns(&ticks, t);
        cr_assert_geq(now, before, "at %lu", (unsigned long)t);
        before = now;
    }
    before = INT64_MAX;
    for (uint64_t t = at + 10000000000u; t > at / 20000; t -= at / 20000) {
        int64_t now = ticks_to_ns(&ticks, t);
        cr_assert_leq(now, before);
        before = now;
    }
}

// Sums of lengths are counters to those who ask for them: one that goes back by a nanosecond is a reset to Prometheus, which then counts
// the whole of it once more.
Test(ticks, a_length_never_shrinks_while_the_rate_is_learnt)
{
    ticks_init(&ticks, 64);
    srand(2);
    int64_t ns = 5 * SECOND, before = 0;
    for (int second = 0; second < 5000; second++) {
        cr_assert(add((uint64_t)second * 2500000000u + 1, ns + (int64_t)second * SECOND + rand() % 80 - 40));
        int64_t hour = ticks_length_ns(&ticks, UINT64_C(9000000000000));
        cr_assert_geq(hour, before, "%ld ns less after %d s", (long)(before - hour), second);
        if (second)
            before = hour;
    }
    cr_assert_leq(before, 3600 * SECOND + 40 * 3600 / 5000);
    cr_assert_geq(before, 3600 * SECOND - 400, "it is learnt all the same: %ld", (long)before);
}

Test(ticks, one_sleep_of_the_counter_is_not_taken_for_the_rate)
{
    ticks_init(&ticks, 64);
    int64_t slept = 0;
    for (int second = 0; second < 1000; second++) {
        if (second == 10)
            slept = 60 * SECOND;
        cr_assert(add((uint64_t)second * 2000000000u, second * SECOND + slept));
    }
    cr_assert_float_eq((double)ticks_length_ns(&ticks, 2000000000), 1e9, 10);
}

Test(ticks, a_rate_that_falls_for_good_is_followed)
{
    ticks_init(&ticks, 64);
    uint64_t at = 0;
    for (int second = 0; second < 1000; second++) {
        cr_assert(add(at, second * SECOND));
        at += second < 500 ? 2000000000u : 3000000000u;
    }
    cr_assert_float_eq((double)ticks_length_ns(&ticks, 3000000000), 1e9, 10);
}

Test(ticks, who_has_all_anchors_takes_the_rate_over_the_whole)
{
    ticks_init(&ticks, 0);
    add(0, 0);
    add(2000000000, SECOND + 20);
    add(4000000000, 2 * SECOND - 20);
    cr_assert_eq(ticks_length_ns(&ticks, 4000000000), 2 * SECOND - 20);
}

Test(ticks, hostile_anchors_do_no_harm)
{
    static const struct anchor anchors[] = {
        {1, INT64_MIN, 0}, {2, INT64_MIN + 1, 0}, {UINT64_MAX / 2, 0, 0}, {UINT64_MAX / 2 + 1, INT64_MAX - 1, 0}, {UINT64_MAX, INT64_MAX, 0},
    };
    for (size_t keep = 0; keep <= 64; keep += 64) {
        ticks_finish(&ticks);
        ticks_init(&ticks, keep);
        for (size_t i = 0; i < sizeof anchors / sizeof *anchors; i++) {
            ticks_add(&ticks, &anchors[i]);
            for (unsigned shift = 0; shift < 64; shift++)
                ticks_to_ns(&ticks, UINT64_MAX >> shift);
            cr_assert_geq(ticks_length_ns(&ticks, UINT64_MAX), 0);
        }
        cr_assert_eq(ticks_to_ns(&ticks, 1), INT64_MIN);
    }
}

Test(ticks, the_machines_counter_is_converted_within_a_microsecond)
{
    uint32_t kind = ticks_machine_kind();
    ticks_init(&ticks, 0);
    int64_t begin = clock_monotonic_ns(), last = 0;
    while (clock_monotonic_ns() - begin < SECOND * 7 / 10) {
        if (clock_monotonic_ns() - last < SECOND / 5)
            continue;
        struct anchor now = ticks_now(kind);
        last = now.monotonic_ns;
        ticks_add(&ticks, &now);
    }
    cr_assert_geq(ticks.count, 3);
    int64_t worst = INT64_MAX;  // the best of some tries: the two readings may be torn apart by the scheduler
    for (int i = 0; i < 50; i++) {
        struct anchor now = ticks_now(kind);
        int64_t error = llabs(ticks_to_ns(&ticks, now.ticks) - now.monotonic_ns);
        worst = error < worst ? error : worst;
    }
    cr_assert_lt(worst, 1000, "%ld ns", (long)worst);
    cr_assert_lt(llabs(ticks_length_ns(&ticks, ticks.anchors[1].ticks - ticks.anchors[0].ticks) -
                       (ticks.anchors[1].monotonic_ns - ticks.anchors[0].monotonic_ns)), 100000);
}
