// The run's tables: what records, strings, rows and counters add up to.
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/model.h"

static struct model model;
static struct model_process *process;

static struct model_process *add_process(int64_t rank)
{
    struct process_facts facts = {.pid = 100 + model.process_count, .rank = rank};
    return model_add_process(&model, &facts);
}

static void begin(void)
{
    model_init(&model, SL_CLOCK_TSC, 64, 0);
    process = add_process(SL_RANK_NONE);
}

static void end(void)
{
    model_finish(&model);
}

TestSuite(model, .init = begin, .fini = end, .timeout = 300);

static void name_region(uint32_t id, const char *name)
{
    model_string(&model, process, SL_STRING_REGION, id, name, strlen(name), "file.c", 6, 1);
}

static struct sl_record record(unsigned kind, uint64_t start, uint64_t duration, uint32_t region, uint32_t parent, uint32_t task)
{
    return (struct sl_record){{start, sl_record_word1(kind, duration), sl_record_word2(region, 0), sl_record_word3(region, parent, task)}};
}

static struct sl_record call(uint64_t start, uint64_t duration, uint32_t region, uint32_t parent)
{
    return record(SL_CALL, start, duration, region, parent, SL_TASK_NONE);
}

// Takes records in as the next ones of slot 0.
#define take(...) take_records((struct sl_record[]){__VA_ARGS__}, sizeof((struct sl_record[]){__VA_ARGS__}) / sizeof(struct sl_record))
static void take_records(const struct sl_record *records, size_t count)
{
    model_records(&model, process, 0, model_slot(process, 0)->next, records, count, -1, NULL, NULL);
}

// ---- regions and times

Test(model, a_call_counts_in_its_region_and_its_thread)
{
    name_region(1, "a");
    struct task_facts task = {.index = 5};
    model_set_task(&model, process, &task, "", "");
    take(record(SL_THREAD, 1, 0, 0, 0, 3), call(100, 10, 1, 0), call(200, 30, 1, 0), record(SL_CALL, 300, 20, 1, 0, 5));
    const struct model_region *region = model_region(process, 1);
    cr_assert_eq(region->calls, 3);
    cr_assert_eq(region->total, 60);
    cr_assert_eq(region->minimum, 10);
    cr_assert_eq(region->maximum, 30);
    cr_assert_eq(region->self, 60);
    cr_assert_eq(model_thread(process, 3)->calls, 3);
    cr_assert(process->uses_tasks);
    cr_assert_eq(process->status.last_event, 320);
    cr_assert_eq(model_calls(process), 3);
}

Test(model, self_time_is_total_less_the_children_also_in_recursion)
{
    name_region(1, "a");
    name_region(2, "b");
    // a 0..100 { a 10..50 { b 20..30 { a 22..25 } } }, ended from the inside out
    take(call(1022, 3, 1, 2), call(1020, 10, 2, 1), call(1010, 40, 1, 1), call(1000, 100, 1, 0));
    const struct model_region *a = model_region(process, 1), *b = model_region(process, 2);
    cr_assert_eq(a->total, 143);
    cr_assert_eq(a->self, (100 - 40) + (40 - 10) + 3);
    cr_assert_eq(b->total, 10);
    cr_assert_eq(b->self, 10 - 3);
    cr_assert_eq(a->self + b->self, 100, "the whole of what the outermost call took");
}

Test(model, a_crossing_call_counts_but_not_in_self)
{
    name_region(1, "a");
    name_region(2, "b");
    take(record(SL_CALL_CROSSING, 100, 50, 1, 2, SL_TASK_NONE));
    cr_assert_eq(model_region(process, 1)->calls, 1);
    cr_assert_eq(model_region(process, 1)->total, 50);
    cr_assert_eq(model_region(process, 1)->self, 0);
    cr_assert_eq(model_region(process, 2)->self, 0);
    cr_assert_eq(model_calls(process), 1);
}

Test(model, a_call_whose_counter_ran_back_has_no_negative_length)
{
    name_region(1, "a");
    take(record(SL_CALL_BACK, 1000, 900, 1, 0, SL_TASK_NONE));
    cr_assert_eq(model_region(process, 1)->calls, 1);
    cr_assert_eq(model_region(process, 1)->total, 0);
}

Test(model, records_of_other_kinds_are_no_calls)
{
    name_region(1, "a");
    take(record(SL_SKIP, 1, 1, 1, 0, SL_TASK_NONE), record(SL_UNMATCHED, 2, 0, 1, 0, SL_TASK_NONE),
         record(SL_ENDED_OPEN, 3, 7, 1, 0, SL_TASK_NONE), record(SL_STEP, 4, 1, 1, 0, 1), record(SL_DONE, 5, 0, 1, 0, 1),
         record(77, 6, 1, 1, 0, SL_TASK_NONE), record(255, 7, 1, 1, 0, SL_TASK_NONE));
    cr_assert_eq(model_region(process, 1)->calls, 0);
    cr_assert_eq(model_calls(process), 0);
    cr_assert_eq(model_slot(process, 0)->next, 7);
    cr_assert_eq(process->ended_open_count, 1);
    cr_assert_eq(process->ended_open[0].region, 1);
    cr_assert_eq(process->ended_open[0].start, 3);
}

// A record of a step: the task's kind stands in the await field.
static struct sl_record step(uint64_t length_ns, uint32_t kind)
{
    struct sl_record one = record(SL_STEP, 10, length_ns, 0, 0, 1);
    one.word[2] = sl_record_word2(0, kind);
    return one;
}

Test(model, slow_steps_are_counted_by_kind_and_by_how_long_they_were)
{
    take(step(700000, 5), step(3000000, 5), step(3000000, 6), step(UINT64_C(11000000000), 5), step(1000000, 5));
    cr_assert_eq(process->steps.count, 2);
    const struct steps *steps = steps_of(&process->steps, 5);
    cr_assert_eq(steps->over[0], 2);
    cr_assert_eq(steps->over[1], 2);
    cr_assert_eq(steps->over[2], 1);
    cr_assert_eq(steps->over[STEPS_EDGES - 1], 1);
    cr_assert_eq(steps_of(&process->steps, 6)->over[0], 1);
}

Test(model, a_step_that_a_query_saw_in_its_ring_is_counted_once)
{
    const struct sl_record records[] = {step(3000000, 5), call(1, 2, 1, 0), step(3000000, 5), step(3000000, 5)};
    const uint64_t *over = steps_of(&process->steps, 5)->over;
    model_steps_ahead(&model, process, 0, 0, records, 2);
    cr_assert_eq(over[0], 1);
    cr_assert_eq(model_slot(process, 0)->next, 0, "nothing else of it is taken in");
    model_records(&model, process, 0, 0, records, 3, -1, NULL, NULL);
    cr_assert_eq(over[0], 2);
    model_steps_ahead(&model, process, 0, 2, records + 2, 2);
    cr_assert_eq(over[0], 3);
    model_records(&model, process, 0, 3, records + 3, 1, -1, NULL, NULL);
    cr_assert_eq(over[0], 3);
    cr_assert_eq(model_calls(process), 1);
}

Test(model, kinds_of_tasks_without_end_are_counted_together)
{
    for (uint32_t kind = 0; kind < 1000; kind++)
        steps_count_slow(steps_of(&process->steps, kind)->over, 2000000);
    cr_assert_eq(process->steps.count, STEPS_KINDS);
    cr_assert_eq(steps_of(&process->steps, 3)->over[0], 1);
    cr_assert_eq(steps_of(&process->steps, 999)->over[0], 1000 - (STEPS_KINDS - 1));
    cr_assert_eq(steps_of(&process->steps, 999)->kind, STEPS_KIND_OTHER);
}

Test(model, regions_nobody_has_named_are_counted_as_other)
{
    take(call(1, 5, 7, 0), call(2, 6, SL_REGION_OTHER, 0), call(3, 7, 0, 0));
    cr_assert_eq(process->other.calls, 3);
    cr_assert_str_eq(model_region_name(&model, model_region(process, 7)), "(other)");
    name_region(7, "late");
    take(call(10, 1, 7, 0));
    cr_assert_eq(model_region(process, 7)->calls, 1);
    cr_assert_str_eq(model_region_name(&model, model_region(process, 7)), "late");
}

Test(model, one_name_is_one_whatever_process_and_place)
{
    name_region(1, "same");
    name_region(2, "same");
    process = add_process(SL_RANK_NONE);
    name_region(9, "same");
    name_region(10, "other");
    cr_assert_eq(model_region(process, 9)->name, model_region(model.processes[0], 1)->name);
    cr_assert_eq(model_region(model.processes[0], 2)->name, model_region(model.processes[0], 1)->name);
    cr_assert_neq(model_region(process, 10)->name, model_region(process, 9)->name);
    char name[16];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "%d", i);
        uint32_t id = model_intern(&model, name, strlen(name));
        cr_assert_eq(model_intern(&model, name, strlen(name)), id);
        cr_assert_str_eq(model.names[id].text, name);
    }
    cr_assert_eq(model_intern(&model, "same", 4), model_region(process, 9)->name);
}

Test(model, invalid_utf8_is_repaired)
{
    model_string(&model, process, SL_STRING_REGION, 1, "a\xff" "b", 3, "f\xfe", 2, 1);
    cr_assert_str_eq(model_region_name(&model, model_region(process, 1)), "a\xef\xbf\xbd" "b");
    cr_assert_str_eq(model_region(process, 1)->file, "f\xef\xbf\xbd");
    struct thread_facts thread = {.index = 0, .name_length = 2};
    model_set_thread(process, &thread, "\xc3(");
    cr_assert_str_eq(model_thread(process, 0)->name, "\xef\xbf\xbd(");
    model_string(&model, process, SL_STRING_META, SL_META_PROGRAM, "/bin/x", 6, "", 0, -1);
    cr_assert_str_eq(process->program, "/bin/x");
    model_string(&model, process, SL_STRING_WORD, 3, "fiber", 5, "", 0, -1);
    cr_assert_str_eq(model_word(process, 3), "fiber");
    cr_assert_str_eq(model_word(process, 4), "task");
}

// ---- rings and the ledger

Test(model, what_was_taken_in_before_is_passed_over)
{
    name_region(1, "a");
    const struct sl_record records[] = {call(1, 1, 1, 0), call(2, 1, 1, 0), call(3, 1, 1, 0), call(4, 1, 1, 0)};
    model_records(&model, process, 0, 0, records, 3, -1, NULL, NULL);
    model_records(&model, process, 0, 0, records, 3, -1, NULL, NULL);
    cr_assert_eq(model_calls(process), 3);
    model_records(&model, process, 0, 1, records + 1, 3, -1, NULL, NULL);
    cr_assert_eq(model_calls(process), 4);
    cr_assert_eq(model_slot(process, 0)->next, 4);
}

Test(model, a_ring_has_the_owner_it_was_last_told)
{
    name_region(1, "a");
    take(call(1, 1, 1, 0));
    cr_assert_eq(process->thread_count, 0, "nobody knows whose it was");
    take(record(SL_THREAD, 2, 0, 0, 0, 0), call(3, 1, 1, 0), record(SL_THREAD, 4, 0, 0, 0, 1), call(5, 1, 1, 0), call(6, 1, 1, 0));
    cr_assert_eq(model_thread(process, 0)->calls, 1);
    cr_assert_eq(model_thread(process, 1)->calls, 2);
}

static uint32_t seen_thread;
static void on_call(void *context, struct model_process *of, const struct model_call *seen)
{
    cr_assert_eq(of, process);
    seen_thread = seen->thread;
    *(uint64_t *)context += seen->end - seen->start;
}

Test(model, every_stored_call_is_given_on_and_a_lost_one_is_not)
{
    uint64_t sum = 0;
    const struct sl_record records[] = {record(SL_THREAD, 1, 0, 0, 0, 4), call(1, 10, 1, 0), record(SL_CALL_LONG, 2, 20, 1, 0, 1)};
    model_records(&model, process, 2, 0, records, 3, -1, on_call, &sum);
    cr_assert_eq(sum, 30);
    cr_assert_eq(seen_thread, 4);
    model_records(&model, process, 2, 3, records, 3, SL_LOST_SPOOL_FULL, on_call, &sum);
    cr_assert_eq(sum, 30);
    cr_assert_eq(model_slot(process, 2)->ledger.stored, 2);
    cr_assert_eq(model_slot(process, 2)->ledger.lost[SL_LOST_SPOOL_FULL], 2);
    cr_assert_eq(model_slot(process, 2)->calls, 4);
    cr_assert_eq(process->other.calls, 4, "statistics go on");
}

Test(model, the_ledger_adds_up_over_rings_and_keeps_what_the_daemon_counted)
{
    const struct sl_record records[] = {call(1, 1, 1, 0), call(2, 1, 1, 0)};
    model_records(&model, process, 0, 0, records, 2, -1, NULL, NULL);
    model_records(&model, process, 1, 0, records, 2, SL_LOST_SPOOL_FULL, NULL, NULL);
    for (int i = 0; i < 3; i++) {  // read again and again
        model_set_ledger(process, 0, &(struct ledger){.produced = 5, .lost = {[SL_LOST_RING_FULL] = 3}, .unmatched = 1});
        model_set_ledger(process, 1, &(struct ledger){.produced = 3, .lost = {[SL_LOST_TOO_DEEP] = 1}, .crossing = 2});
        model_set_ledger(process, FACTS_ELSEWHERE, &(struct ledger){.produced = 7, .lost = {[SL_LOST_NO_RING] = 7}});
    }
    struct ledger sum = model_ledger(process);
    cr_assert_eq(sum.produced, 15);
    cr_assert_eq(sum.stored, 2);
    cr_assert_eq(sum.lost[SL_LOST_SPOOL_FULL], 2);
    cr_assert_eq(model_lost(&sum), 3 + 1 + 7 + 2);
    cr_assert_eq(sum.produced, sum.stored + model_lost(&sum));
    cr_assert_eq(sum.unmatched, 1);
    cr_assert_eq(sum.crossing, 2);
}

Test(model, a_restored_ledger_does_not_count_stored_calls_twice)
{
    const struct sl_record records[] = {call(1, 1, 1, 0)};
    model_records(&model, process, 0, 0, records, 1, -1, NULL, NULL);
    struct ledger ledger = {.produced = 4, .stored = 1, .lost = {[SL_LOST_RING_FULL] = 2, [SL_LOST_IN_FLIGHT] = 1}};
    model_restore_ledger(process, 0, &ledger);
    model_restore_ledger(process, 0, &ledger);
    struct ledger sum = model_ledger(process);
    cr_assert_eq(sum.stored, 1);
    cr_assert_eq(sum.produced, sum.stored + model_lost(&sum));
}

Test(model, a_continuation_counts_from_where_the_part_before_it_ended)
{
    struct model_slot *slot = model_slot(process, 0);
    struct ledger before = {.produced = 10, .stored = 7, .lost = {[SL_LOST_RING_FULL] = 3}, .unmatched = 2};
    model_rebase(&slot->base, &before);
    const struct sl_record records[] = {call(1, 1, 1, 0)};
    model_records(&model, process, 0, 0, records, 1, -1, NULL, NULL);
    model_set_ledger(process, 0, &(struct ledger){.produced = 12, .lost = {[SL_LOST_RING_FULL] = 4}, .unmatched = 2});
    struct ledger sum = model_ledger(process);
    cr_assert_eq(sum.produced, 2);
    cr_assert_eq(sum.lost[SL_LOST_RING_FULL], 1);
    cr_assert_eq(sum.unmatched, 0);
    cr_assert_eq(sum.produced, sum.stored + model_lost(&sum));
}

// ---- open calls

Test(model, a_call_that_is_open_and_published_is_the_newest_of_some_ring)
{
    take(record(SL_THREAD, 1, 0, 0, 0, 2), call(100, 5, 1, 0), call(200, 5, 1, 0));
    const struct sl_record of_task = record(SL_CALL, 300, 5, 1, 0, 8);
    model_records(&model, process, 1, 0, &of_task, 1, -1, NULL, NULL);
    const struct {
        struct open_facts open;
        bool published;
    } cases[] = {
        {{.thread = 2, .task = SL_TASK_NONE, .start = 200}, true},
        {{.thread = 2, .task = SL_TASK_NONE, .start = 100}, false},  // not the newest any more
        {{.thread = 3, .task = SL_TASK_NONE, .start = 200}, false},  // another lane
        {{.thread = 2, .task = 8, .start = 200}, false},
        {{.thread = 2, .task = SL_TASK_NONE, .start = 0}, false},    // of a ring without calls
        {{.thread = FACTS_NO_THREAD, .task = 8, .start = 300}, true},  // a task's, whoever left it
        {{.thread = FACTS_NO_THREAD, .task = 9, .start = 300}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_eq(model_is_published(process, &cases[i].open), cases[i].published, "case %zu", i);
}

Test(model, the_latest_snapshot_of_open_calls_is_kept)
{
    const struct open_facts open[] = {{.thread = 1, .start = 5}, {.thread = 2, .start = 6}};
    model_set_open(process, open, 2);
    cr_assert_eq(process->open_count, 2);
    cr_assert_eq(process->open[1].start, 6);
    model_set_open(process, NULL, 0);
    cr_assert_eq(process->open_count, 0);
    model_set_open(process, open, 1);
    cr_assert_eq(process->open_count, 1);
}

Test(model, pauses_are_told_once_and_beyond_the_limit_as_one)
{
    cr_assert_not(model_set_paused(process, false, 1), "it was not paused");
    cr_assert(model_set_paused(process, true, 10));
    cr_assert_not(model_set_paused(process, true, 11));
    cr_assert_eq(process->pauses[0].end_ns, SL_UNKNOWN);
    cr_assert(model_set_paused(process, false, 20));
    cr_assert_not(model_set_paused(process, false, 21));
    for (int64_t i = 3; i < 20000; i++)
        cr_assert(model_set_paused(process, i % 2 == 1, i * 10));
    cr_assert_eq(process->pause_count, 4096);
    cr_assert_eq(process->pauses[0].begin_ns, 10);
    cr_assert_eq(process->pauses[0].end_ns, 20);
    cr_assert_eq(process->pauses[4095].begin_ns, 10 + 4095 * 20);
    cr_assert_eq(process->pauses[4095].end_ns, SL_UNKNOWN);
    model_set_paused(process, false, 200000);
    cr_assert_eq(process->pauses[4095].end_ns, 200000);
}

// ---- threads and tasks

Test(model, a_sample_of_a_living_thread_is_a_lower_bound_until_the_exact_time_comes)
{
    struct thread_facts facts = {.index = 1, .cpu_ns = 0, .name_length = 1};
    model_set_thread(process, &facts, "a");
    model_thread(process, 1)->facts.cpu_ns = 500;  // sampled
    model_set_thread(process, &facts, "b");
    cr_assert_eq(model_thread(process, 1)->facts.cpu_ns, 500, "a rename takes nothing away");
    cr_assert_str_eq(model_thread(process, 1)->name, "b");
    facts.cpu_ns = 400;
    facts.cpu_exact = 1;
    model_set_thread(process, &facts, "b");
    cr_assert_eq(model_thread(process, 1)->facts.cpu_ns, 400);
}

Test(model, sums_of_processor_time_never_go_back)
{
    struct thread_facts facts = {.index = 1};
    model_set_thread(process, &facts, "");
    model_thread(process, 1)->facts.cpu_ns = 500;  // sampled, while it ended
    model_thread(process, 1)->wait_ns = 70;
    uint64_t cpu_ns = 1, wait_ns = 1;
    model_add_cpu(process, &cpu_ns, &wait_ns);
    cr_assert_eq(cpu_ns, 501);
    cr_assert_eq(wait_ns, 71);
    facts = (struct thread_facts){.index = 1, .cpu_ns = 400, .cpu_exact = 1, .start = 1, .end = 2};
    model_set_thread(process, &facts, "");
    cpu_ns = wait_ns = 0;
    model_add_cpu(process, &cpu_ns, &wait_ns);
    cr_assert_eq(cpu_ns, 500);
    model_set_thread(process, &(struct thread_facts){.index = 2, .cpu_ns = 300}, "");
    cpu_ns = wait_ns = 0;
    model_add_cpu(process, &cpu_ns, &wait_ns);
    cr_assert_eq(cpu_ns, 700);
    cr_assert_eq(wait_ns, 70);
}

Test(model, finished_tasks_beyond_the_cap_are_folded)
{
    model.tasks_kept = 10;
    for (uint32_t i = 0; i < 100; i++) {
        struct task_facts task = {.index = i, .created = 1};
        model_set_task(&model, process, &task, "name", "coro");
        task.done = 2;
        model_set_task(&model, process, &task, "name", "coro");
    }
    cr_assert_eq(process->tasks_known, 10);
    cr_assert_eq(process->tasks_folded, 90);
    uint32_t live = 0;
    for (uint32_t i = 0; i < 100; i++)
        live += model_task(process, i) != NULL;
    cr_assert_eq(live, 10);
    cr_assert_not_null(model_task(process, 99), "the oldest go first");
    struct task_facts task = {.index = SL_TASK_NONE - 1, .created = 1};
    model_set_task(&model, process, &task, "", "");
    cr_assert_not_null(model_task(process, SL_TASK_NONE - 1), "one that is not finished is never folded");
    for (uint32_t i = 0; i < 5000; i++)
        model_set_task(&model, process, &(struct task_facts){.index = 1000 + i, .created = 1, .done = 2}, "", "");
    cr_assert_leq(process->tasks_known, 10 + 1);
}

Test(model, very_many_tasks_take_no_more_memory_than_those_that_are_kept)
{
    model.tasks_kept = 100;
    for (uint32_t i = 0; i < 200000; i++) {
        struct task_facts task = {.index = i, .created = 1};
        model_set_task(&model, process, &task, "", "");
        if (i < 50)
            continue;  // these live on; the others end 50 tasks later
        task.index = i - 50 < 50 ? i : i - 50;
        task.done = 2;
        model_set_task(&model, process, &task, "", "");
    }
    cr_assert_leq(process->tasks_known, 101 + 50);
    cr_assert_geq(process->tasks_known + process->tasks_folded, 200000);
    cr_assert_not_null(model_task(process, 0));
    cr_assert_null(model_task(process, 100000));
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < process->task_chunks; i++)
        chunks += process->tasks[i] != NULL;
    cr_assert_lt(chunks, 6);
}

static void set_thread(uint32_t index, uint64_t end)
{
    struct thread_facts thread = {.index = index, .start = 1, .end = end};
    model_set_thread(process, &thread, "");
}

Test(model, very_many_threads_take_no_more_memory_than_those_that_are_kept)
{
    process->threads_kept = 1000;
    for (uint32_t i = 0; i < 1000000; i++) {
        set_thread(i, 0);
        if (i >= 64 && i % 5000)  // 64 at once; one in 5000 lives on
            set_thread(i - 64, 2);
        cr_assert_leq(process->living_count, 65 + i / 5000);
    }
    cr_assert_eq(process->thread_count, 1000000);
    cr_assert_eq(process->threads_known + process->threads_folded, 1000000);
    cr_assert_not_null(model_find_thread(process, 999999));
    cr_assert_not_null(model_find_thread(process, 5000 - 64), "one that lives is never folded");
    cr_assert_eq(model_find_thread(process, 5000 - 64)->facts.end, 0);
    cr_assert_null(model_find_thread(process, 500000));
    uint32_t found = 0, chunks = 0;
    for (uint32_t i = model_next_thread(process, 0); i < process->thread_count; i = model_next_thread(process, i + 1))
        found += model_find_thread(process, i)->known;
    cr_assert_eq(found, process->threads_known);
    for (uint32_t i = 0; i < process->thread_chunks; i++)
        chunks += process->threads[i] != NULL;
    cr_assert_lt(chunks, 200 + 10, "a chunk for each that lives, and those that are kept");
}

Test(model, the_living_are_those_that_have_begun_and_not_ended)
{
    for (uint32_t i = 0; i < 10; i++)
        set_thread(i, 0);
    for (uint32_t i = 0; i < 10; i += 3)
        set_thread(i, 5);
    set_thread(3, 0);  // recorded again in a late destructor
    set_thread(4, 0);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < process->living_count; i++)
        seen |= 1u << process->living[i];
    cr_assert_eq(seen, 0x3ffu & ~(1u << 0 | 1u << 6 | 1u << 9));
    cr_assert_eq(process->living_count, 7);
}

// ---- what a hostile client may say

static long resident_kilobytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    cr_assert_eq(fscanf(file, "%*d %ld", &pages), 1);
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

Test(model, numbers_at_every_limit_cost_little_memory)
{
    long before = resident_kilobytes();
    name_region(SL_REGION_LAST, "last");
    name_region(SL_REGION_OTHER, "beyond");
    name_region(0, "null");
    static const uint32_t threads[] = {0, (1 << 22) - 1, 1 << 22, 0x7fffffff, 0x80000000, 0xfffffffe, SL_RING_FREE};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        take(record(SL_THREAD, 1, 0, 0, 0, threads[i]), record(SL_CALL, 1, 1, SL_REGION_LAST, SL_REGION_LAST, threads[i]));
        struct thread_facts thread = {.index = threads[i]};
        struct task_facts task = {.index = threads[i]};
        model_set_thread(process, &thread, "");
        model_set_task(&model, process, &task, "", "");
        model_string(&model, process, SL_STRING_WORD, threads[i], "w", 1, "", 0, 0);
        model_string(&model, process, threads[i], threads[i], "w", 1, "", 0, 0);
    }
    cr_assert_str_eq(model_region_name(&model, model_region(process, SL_REGION_LAST)), "last");
    cr_assert_null(model_slot(process, UINT32_MAX));
    long after = resident_kilobytes();
    cr_assert_lt(after - before, 200000, "%ld KiB", after - before);
}

Test(model, sums_that_run_over_are_wrong_and_nothing_worse)
{
    name_region(1, "a");
    for (int i = 0; i < 1000; i++)
        take(record(SL_CALL, UINT64_MAX, SL_DURATION_LIMIT, 1, 1, SL_TASK_NONE), record(SL_CALL_LONG, 1, SL_DURATION_LIMIT, 1, 0, 0),
             record(SL_CALL_BACK, UINT64_MAX, 0, 1, 1, 0));
    cr_assert_eq(model_region(process, 1)->calls, 3000);
    const struct sl_record one = call(1, 1, 1, 0);
    model_records(&model, process, 1, UINT64_MAX, &one, 1, -1, NULL, NULL);
    model_records(&model, process, 1, UINT64_MAX - 5, &one, 1, -1, NULL, NULL);
}

// ---- ranks

static struct model_process *add_with_calls(int64_t rank, int32_t world_size)
{
    struct process_facts facts = {.rank = rank, .world_size = world_size};
    process = model_add_process(&model, &facts);
    take(call(1, 1, 1, 0));
    return process;
}

static void expect_ranks(const int64_t *expected, uint32_t count)
{
    model_give_ranks(&model);
    cr_assert_eq(model.process_count, count + 1);
    cr_assert_eq(model.processes[0]->file_rank, -1, "one without calls has none");
    for (uint32_t i = 0; i < count; i++)
        cr_expect_eq(model.processes[i + 1]->file_rank, expected[i], "process %u has rank %ld, not %ld", i,
                     (long)model.processes[i + 1]->file_rank, (long)expected[i]);
}

Test(model, claims_are_granted)
{
    for (int64_t rank = 3; rank >= 0; rank--)
        add_with_calls(rank, 4);
    expect_ranks((int64_t[]){3, 2, 1, 0}, 4);
}

Test(model, the_first_of_two_that_claim_one_rank_gets_it)
{
    add_with_calls(0, 0);
    add_with_calls(0, 0);
    add_with_calls(1, 0);
    add_with_calls(0, 0);
    expect_ranks((int64_t[]){0, 2, 1, 3}, 4);
}

Test(model, claims_that_cannot_be_follow_the_others)
{
    add_with_calls(70000, 0);
    add_with_calls(-3, 0);
    add_with_calls(1, 0);
    add_with_calls(65536, 0);
    add_with_calls(INT64_MAX, 0);
    add_with_calls(65535, 0);
    expect_ranks((int64_t[]){65536, 65537, 1, 65538, 65539, 65535}, 6);
}

Test(model, the_unranked_follow_also_when_they_come_first)
{
    add_with_calls(SL_RANK_NONE, 0);
    add_with_calls(SL_RANK_NONE, 0);
    add_with_calls(1, 0);
    add_with_calls(0, 0);
    expect_ranks((int64_t[]){2, 3, 1, 0}, 4);
}

Test(model, they_follow_after_the_whole_world)
{
    add_with_calls(SL_RANK_NONE, 0);
    add_with_calls(1, 8);
    expect_ranks((int64_t[]){8, 1}, 2);
}

Test(model, a_world_beyond_all_bounds_is_not_believed)
{
    add_with_calls(SL_RANK_NONE, 0);
    add_with_calls(1, INT32_MAX);
    add_with_calls(2, -5);
    model_give_ranks(&model);
    cr_assert_leq(model.processes[1]->file_rank, 65536, "%ld", (long)model.processes[1]->file_rank);
}

Test(model, sixteen_processes_of_no_launcher_are_numbered_in_order)
{
    int64_t expected[16];
    for (int i = 0; i < 16; i++) {
        add_with_calls(SL_RANK_NONE, 0);
        expected[i] = i;
    }
    expect_ranks(expected, 16);
}

Test(model, a_claim_of_a_process_without_calls_takes_no_rank)
{
    process = add_process(0);
    add_with_calls(0, 0);
    model_give_ranks(&model);
    cr_assert_eq(model.processes[1]->file_rank, -1);
    cr_assert_eq(model.processes[2]->file_rank, 0);
}

Test(model, the_rank_that_a_program_has_set_later_counts)
{
    struct model_process *one = add_with_calls(SL_RANK_NONE, 0);
    struct process_status status = one->status;
    status.rank = 5;
    model_set_status(one, &status);
    model_give_ranks(&model);
    cr_assert_eq(one->file_rank, 5);
}

// ---- time

Test(model, ticks_of_another_clock_are_nanoseconds)
{
    ticks_add(&model.clock, &(struct anchor){.ticks = 1000, .monotonic_ns = 5000});
    ticks_add(&model.clock, &(struct anchor){.ticks = 500001000, .monotonic_ns = 1000005000});
    process->facts.clock = SL_CLOCK_TSC;
    cr_assert_eq(model_time_ns(&model, process, 1500), 6000);
    cr_assert_eq(model_length_ns(&model, process, 100), 200);
    process->facts.clock = SL_CLOCK_MONOTONIC;
    cr_assert_eq(model_time_ns(&model, process, 1500), 1500);
    cr_assert_eq(model_length_ns(&model, process, 100), 100);
}
