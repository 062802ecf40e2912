// Exits without an enter: counted by lane, thread and region, and explained by what is open elsewhere.
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "core/unmatched.h"

static struct model model;
static struct model_process *process;

static void begin(void)
{
    model_init(&model, SL_CLOCK_TSC, 64, 0);
    process = model_add_process(&model, &(struct process_facts){.pid = 1});
    model_string(&model, process, SL_STRING_REGION, 1, "job", 3, "", 0, -1);
    for (uint32_t i = 0; i < 3; i++) {
        struct thread_facts thread = {.index = i, .name_length = 1};
        model_set_thread(process, &thread, (char[]){(char)('A' + i), 0});
    }
    struct task_facts task = {.index = 7, .thread = 2, .name_length = 5};
    model_set_task(&model, process, &task, "fiber", "");
}

static void end(void)
{
    model_finish(&model);
}

TestSuite(unmatched, .init = begin, .fini = end, .timeout = 60);

static void leave(uint32_t thread, uint32_t task, uint32_t region, uint64_t when)
{
    struct sl_record records[] = {{{when, sl_record_word1(SL_THREAD, 0), 0, sl_record_word3(0, 0, thread)}},
                                  {{when, sl_record_word1(SL_UNMATCHED, 0), sl_record_word2(region, 0), sl_record_word3(region, 0, task)}}};
    model_records(&model, process, 0, model_slot(process, 0)->next, records, 2, -1, NULL, NULL);
}

static void expect_words(uint32_t number, const char *wanted)
{
    char *words = unmatched_words(&model, process, &process->unmatched[number]);
    cr_assert_str_eq(words, wanted);
    free(words);
}

Test(unmatched, those_of_one_lane_thread_and_region_are_one_row)
{
    leave(0, SL_TASK_NONE, 1, 10);
    leave(0, SL_TASK_NONE, 1, 30);
    leave(1, SL_TASK_NONE, 1, 20);
    leave(1, 7, 1, 25);
    cr_assert_eq(process->unmatched_count, 3);
    cr_assert_eq(process->unmatched[0].count, 2);
    cr_assert_eq(process->unmatched[0].first, 10);
    cr_assert_eq(process->unmatched[0].last, 30);
    expect_words(0, "\"job\" was left on thread 0 (A), but is open on no lane");
    expect_words(2, "\"job\" was left on task 7 (fiber) on thread 1 (B), but is open on no lane");
}

Test(unmatched, the_enter_is_found_where_the_region_is_open)
{
    leave(0, SL_TASK_NONE, 1, 100);
    struct open_facts open[] = {{.thread = 1, .task = SL_TASK_NONE, .region = 1, .start = 50},
                                {.thread = 1, .task = SL_TASK_NONE, .region = 2, .start = 60},
                                {.thread = FACTS_NO_THREAD, .task = 7, .region = 1, .start = 70},
                                {.thread = 0, .task = SL_TASK_NONE, .region = 1, .start = 80},
                                {.thread = 2, .task = SL_TASK_NONE, .region = 1, .start = 101}};
    model_set_open(process, open, 1);
    expect_words(0, "\"job\" was left on thread 0 (A), but entered on thread 1 (B)");
    model_set_open(process, &open[2], 1);
    expect_words(0, "\"job\" was left on thread 0 (A), but entered on task 7 (fiber) on thread 2 (C)");
    model_set_open(process, open, 5);
    expect_words(0, "\"job\" was left on thread 0 (A), but is open on 2 other lanes, entered last on task 7 (fiber) on thread 2 (C)");
    model_set_open(process, &open[3], 2);
    expect_words(0, "\"job\" was left on thread 0 (A), but is open on no lane");
}

Test(unmatched, a_program_that_leaves_very_many_ways_is_bounded_and_counted)
{
    for (uint32_t i = 0; i < 1000; i++)
        leave(0, i, 1, i + 1);
    uint64_t count = process->unmatched_others;
    for (uint32_t i = 0; i < process->unmatched_count; i++)
        count += process->unmatched[i].count;
    cr_assert_eq(count, 1000);
    cr_assert_lt(process->unmatched_count, 1000);
}

Test(unmatched, a_ring_that_several_threads_had_is_no_threads)
{
    cr_assert_eq(model_ring_thread(process, 0), FACTS_NO_THREAD);
    leave(1, SL_TASK_NONE, 1, 1);
    leave(1, SL_TASK_NONE, 1, 2);
    cr_assert_eq(model_ring_thread(process, 0), 1);
    leave(2, SL_TASK_NONE, 1, 3);
    cr_assert_eq(model_ring_thread(process, 0), FACTS_NO_THREAD);
}
