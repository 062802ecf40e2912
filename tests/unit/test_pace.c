// Who is slower than the others, and whether now and then or all the time.
#include <criterion/criterion.h>
#include <stdio.h>

#include "core/model.h"

enum { RANKS = 8 };

static struct model model;
static struct model_process *ranks[RANKS];
static uint32_t solve, other;

static void set_up(void)
{
    model_init(&model, SL_CLOCK_MONOTONIC, 0, 0);
    for (uint32_t i = 0; i < RANKS; i++) {
        struct process_facts facts = {.pid = i + 1, .clock = SL_CLOCK_MONOTONIC, .rank = i};
        ranks[i] = model_add_process(&model, &facts);
        model_string(&model, ranks[i], SL_STRING_REGION, 1, "solve", 5, "a.c", 3, 7);
        model_string(&model, ranks[i], SL_STRING_REGION, 2, "other", 5, "a.c", 3, 8);
        model_string(&model, ranks[i], SL_STRING_REGION, 3, "solve", 5, "b.c", 3, 9);
    }
    solve = ranks[0]->regions[1].name;
    other = ranks[0]->regions[2].name;
}

static void tear_down(void)
{
    model_finish(&model);
}

TestSuite(pace, .init = set_up, .fini = tear_down);

static void call(uint32_t rank, uint32_t id, uint64_t calls, double length_ns)
{
    ranks[rank]->regions[id].calls += calls;
    ranks[rank]->regions[id].total += (uint64_t)((double)calls * length_ns);
}

static void interval(void)
{
    for (uint32_t i = 0; i < RANKS; i++)
        pace_take(&model, ranks[i]);
    for (uint32_t name = 0; name < pace_names(&model); name++)
        pace_judge(&model, name);
}

// An interval in which each makes ten calls, one of them slower by a factor; the others differ by the noise of real ones.
static void round_of(uint32_t slow, double factor)
{
    for (uint32_t i = 0; i < RANKS; i++)
        call(i, 1, 10, 1e6 * (1 + 0.002 * i) * (i == slow ? factor : 1));
    interval();
}

static uint32_t outliers(void)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < RANKS; i++)
        set |= (uint32_t)(pace_of(ranks[i], solve) && pace_is_outlier(pace_of(ranks[i], solve))) << i;
    return set;
}

static uint32_t chronic(void)
{
    uint32_t set = 0;
    for (uint32_t i = 0; i < RANKS; i++)
        set |= (uint32_t)(pace_of(ranks[i], solve) && pace_is_chronic(pace_of(ranks[i], solve))) << i;
    return set;
}

Test(pace, a_rank_that_is_slower_by_a_third_is_an_outlier_and_after_some_intervals_chronic)
{
    round_of(3, 1.3);
    cr_assert_eq(outliers(), 1 << 3);
    cr_assert_eq(chronic(), 0);
    for (int i = 0; i < 5; i++)
        round_of(3, 1.3);
    cr_assert_eq(outliers(), 1 << 3);
    cr_assert_eq(chronic(), 1 << 3);
}

Test(pace, a_rank_that_was_slow_once_is_not_chronic)
{
    for (int i = 0; i < 10; i++)
        round_of(3, i == 4 ? 20 : 1);
    cr_assert_eq(outliers(), 0);
    cr_assert_eq(chronic(), 0);
    cr_assert_gt(pace_of(ranks[3], solve)->share, 0);
    round_of(5, 20);
    cr_assert_eq(outliers(), 1 << 5);
    cr_assert_eq(chronic(), 0);
}

Test(pace, one_that_was_slow_for_long_and_is_no_more_is_chronic_for_a_while)
{
    for (int i = 0; i < 10; i++)
        round_of(3, 1.3);
    round_of(3, 1);
    cr_assert_eq(outliers(), 0);
    cr_assert_eq(chronic(), 1 << 3);
    for (int i = 0; i < 5; i++)
        round_of(3, 1);
    cr_assert_eq(chronic(), 0);
}

Test(pace, nobody_is_an_outlier_where_all_are_equal_or_nearly)
{
    for (int i = 0; i < 20; i++) {
        for (uint32_t rank = 0; rank < RANKS; rank++)
            call(rank, 1, 10, 1e6 + (rank == (uint32_t)i % RANKS ? 5e4 : 0));  // by turns 5 % slower than all others, who agree exactly
        interval();
        cr_assert_eq(outliers(), 0);
    }
    cr_assert_eq(pace_of(ranks[0], solve)->share, 0);
}

Test(pace, two_slow_ones_do_not_hide_one_another_and_a_fast_one_is_none)
{
    for (uint32_t i = 0; i < RANKS; i++)
        call(i, 1, 10, 1e6 * (i == 1 || i == 6 ? 2 : i == 4 ? 0.5 : 1));
    interval();
    cr_assert_eq(outliers(), 1 << 1 | 1 << 6);
    cr_assert_lt(pace_of(ranks[4], solve)->score, -PACE_SCORE);
}

Test(pace, the_score_is_that_of_iglewicz_and_hoaglin)
{
    static const double lengths[RANKS] = {100, 110, 120, 130, 140, 150, 160, 300};  // median 135, MAD 20
    for (uint32_t i = 0; i < RANKS; i++)
        call(i, 1, 1, lengths[i]);
    interval();
    for (uint32_t i = 0; i < RANKS; i++)
        cr_assert_float_eq(pace_of(ranks[i], solve)->score, 0.6745 * (lengths[i] - 135) / 20, 1e-4);
}

Test(pace, the_calls_of_an_interval_count_and_not_those_before)
{
    for (int i = 0; i < 20; i++)
        round_of(RANKS, 1);
    round_of(2, 1.3);
    cr_assert_eq(outliers(), 1 << 2);
}

Test(pace, calls_longer_than_an_interval_are_compared_by_the_latest_of_each)
{
    for (int turn = 0; turn < 3 * RANKS; turn++) {  // one ends in each interval
        uint32_t rank = (uint32_t)turn % RANKS;
        call(rank, 1, 1, rank == 6 ? 1.3e10 : 1e10);
        interval();
    }
    cr_assert_eq(outliers(), 1 << 6);
    float share = pace_of(ranks[6], solve)->share;
    interval();  // in which none has ended
    cr_assert_eq(pace_of(ranks[6], solve)->share, share);
}

Test(pace, a_region_is_its_name_wherever_it_stands)
{
    for (uint32_t i = 0; i < RANKS; i++)
        call(i, i % 2 ? 1 : 3, 10, i == 2 ? 1.3e6 : 1e6);
    interval();
    cr_assert_eq(outliers(), 1 << 2);
    cr_assert_null(pace_of(ranks[2], other));
}

Test(pace, two_have_nobody_to_compare_with)
{
    call(0, 1, 10, 1e6);
    call(1, 1, 10, 9e6);
    interval();
    cr_assert_null(pace_of(ranks[0], solve));
}

Test(pace, names_without_end_take_no_memory_without_end)
{
    for (uint32_t id = 10; id < 10000; id++) {
        char name[16];
        int length = snprintf(name, sizeof name, "r%u", id);
        model_string(&model, ranks[0], SL_STRING_REGION, id, name, (size_t)length, "", 0, -1);
    }
    round_of(3, 1.3);
    cr_assert_eq(ranks[0]->pace_count, PACE_NAMES);
    cr_assert_eq(outliers(), 1 << 3);
}
