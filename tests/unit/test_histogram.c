// Quantiles out of buckets, against the sorted lengths themselves.
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "core/histogram.h"
#include "core/model.h"

enum { LENGTHS = 3000, ROUNDS = 200 };

static uint64_t state = 88172645463325252u;

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static int by_value(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

// Lengths of all sizes, of one size, of two that lie far apart, and such as calls have: many alike and a long tail.
static uint64_t random_length(int round)
{
    double even = (double)(random_bits() >> 11) / 9007199254740992.0;
    switch (round % 4) {
    case 0: return random_bits() >> (8 + random_bits() % 56);  // as long as a record can tell
    case 1: return UINT64_C(1) << round % 50 | (random_bits() & 7);
    case 2: return random_bits() & 1 ? 40 : UINT64_C(3000000000);
    default: return (uint64_t)(1000 * pow(1 - even, -1.5));
    }
}

static void is_near(uint64_t told, uint64_t truth, double error)
{
    double difference = told > truth ? (double)(told - truth) : (double)(truth - told);
    cr_assert_leq(difference, error * (double)truth, "%llu told for %llu", (unsigned long long)told, (unsigned long long)truth);
}

static uint64_t quantile(const struct histogram *histogram, double share)
{
    uint64_t length = 0;
    cr_assert(histogram_quantile(histogram, share, &length));
    return length;
}

Test(histogram, a_quantile_is_off_by_less_than_1_6_percent_and_3_2_when_counted_again_in_another_unit)
{
    static uint64_t lengths[LENGTHS];
    static const double shares[] = {0.001, 0.25, 0.5, 0.9, 0.99, 1};
    for (int round = 0; round < ROUNDS; round++) {
        struct histogram histogram = {0}, again = {0};
        uint32_t left = HISTOGRAM_OCTAVES, left_again = HISTOGRAM_OCTAVES;
        size_t count = 1 + random_bits() % LENGTHS;
        for (size_t i = 0; i < count; i++) {
            lengths[i] = random_length(round);
            histogram_add(&histogram, lengths[i], 1, &left);
        }
        double unit = 0.3 + (double)(round % 7) / 3;  // ns to a tick
        for (uint32_t i = 0; i < histogram.octaves * (uint32_t)HISTOGRAM_SUB; i++)
            if (histogram.counts[i])
                histogram_add(&again, (uint64_t)((double)histogram_middle(histogram.first * (uint32_t)HISTOGRAM_SUB + i) * unit + 0.5),
                              histogram.counts[i], &left_again);
        qsort(lengths, count, sizeof *lengths, by_value);
        for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
            size_t place = (size_t)ceil(shares[i] * (double)count);
            uint64_t truth = lengths[place ? place - 1 : 0];
            is_near(quantile(&histogram, shares[i]), truth, 1.0 / 64);
            if ((double)truth * unit > 1000)  // below, whole ns are the larger error
                is_near((uint64_t)((double)quantile(&again, shares[i]) / unit), truth, 0.032);
        }
        histogram_finish(&histogram);
        histogram_finish(&again);
    }
}

Test(histogram, every_length_has_a_bucket_and_the_bucket_s_middle_lies_in_it)
{
    for (int bit = 0; bit < 64; bit++)
        for (int i = 0; i < 200; i++) {
            uint64_t length = UINT64_C(1) << bit | (random_bits() & ((UINT64_C(1) << bit) - 1));
            uint32_t bucket = histogram_bucket(length);
            cr_assert_lt(bucket, (uint32_t)HISTOGRAM_OCTAVES * HISTOGRAM_SUB);
            cr_assert_eq(histogram_bucket(histogram_middle(bucket)), bucket);
        }
    cr_assert_eq(histogram_bucket(0), 0);
    cr_assert_eq(histogram_bucket(UINT64_MAX), (uint32_t)HISTOGRAM_OCTAVES * HISTOGRAM_SUB - 1);
}

Test(histogram, without_calls_there_is_no_quantile)
{
    struct histogram histogram = {0};
    uint64_t length;
    cr_assert_not(histogram_quantile(&histogram, 0.5, &length));
}

Test(histogram, what_finds_no_room_is_given_up_and_leaves_its_room_to_others)
{
    struct histogram one = {0}, other = {0};
    uint32_t left = 3;
    uint64_t length;
    histogram_add(&one, 10, 1, &left);
    histogram_add(&one, 100, 1, &left);
    cr_assert_eq(left, 0);
    histogram_add(&one, 1000000, 1, &left);
    cr_assert(one.given_up);
    cr_assert_eq(left, 3);
    cr_assert_not(histogram_quantile(&one, 0.5, &length));
    histogram_add(&one, 10, 1, &left);
    cr_assert_not(histogram_quantile(&one, 0.5, &length), "a part of the calls would tell lies");
    histogram_add(&other, 7, 1, &left);
    cr_assert_eq(quantile(&other, 0.5), 7);
    histogram_finish(&one);
    histogram_finish(&other);
}

// A client that names millions of regions, each with calls of all lengths, gets no more than its process may have.
Test(histogram, a_process_has_a_bounded_number_of_octaves)
{
    struct model model;
    struct process_facts facts = {.pid = 1};
    model_init(&model, SL_CLOCK_MONOTONIC, 16, 0);
    model.octaves_kept = 64;
    struct model_process *process = model_add_process(&model, &facts);
    for (uint32_t id = 1; id <= 50; id++) {
        model_string(&model, process, SL_STRING_REGION, id, "r", 1, "f", 1, 1);
        struct sl_record records[] = {
            {{1, sl_record_word1(SL_CALL, 5), sl_record_word2(id, 0), sl_record_word3(id, 0, SL_TASK_NONE)}},
            {{1, sl_record_word1(SL_CALL, 5000000), sl_record_word2(id, 0), sl_record_word3(id, 0, SL_TASK_NONE)}},
        };
        model_records(&model, process, 0, model_slot(process, 0)->next, records, 2, -1, NULL, NULL);
    }
    uint32_t taken = 0, given_up = 0;
    for (uint32_t id = 1; id <= 50; id++) {
        taken += process->regions[id].lengths.octaves;
        given_up += process->regions[id].lengths.given_up;
    }
    cr_assert_eq(taken + process->octaves_left, 64);
    cr_assert(given_up > 0 && given_up < 50);
    model_finish(&model);
}
