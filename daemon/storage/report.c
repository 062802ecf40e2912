// See report.h. Region rows come from the file's own statistics; calls are read only where a self time is missing, or
// where threads are to be told what they did.
#include "storage/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "base/alloc.h"
#include "storage/wrap.h"

static const char session_name[] = "scope_profiler.session";

struct group_entry {
    char *key;
    size_t group;
    UT_hash_handle hh;
};

struct making {
    struct report *report;
    struct sl_run *run;
    int64_t rank;
    struct report_region *by_region;  // one for each region of the file
    char *error;
    struct group_entry *groups;
};

static bool is_wanted(const struct making *making, int64_t rank)
{
    return making->rank == REPORT_ALL_RANKS || making->rank == rank;
}

// -- regions ----------------------------------------------------------------------------------------------------------

static void add_row(struct making *making, const struct sl_run_row *row)
{
    struct report_region *region = &making->by_region[row->region];
    if (row->calls == 0)
        return;
    region->minimum_ns = region->calls && region->minimum_ns < row->minimum_ns ? region->minimum_ns : row->minimum_ns;
    region->maximum_ns = region->calls && region->maximum_ns > row->maximum_ns ? region->maximum_ns : row->maximum_ns;
    region->calls += row->calls;
    region->total_ns = wrap_add(region->total_ns, row->total_ns);
    region->ranks++;
    if (row->exclusive_ns >= 0 && region->self_ns != REPORT_UNKNOWN)
        region->self_ns = wrap_add(region->self_ns, row->exclusive_ns);
    making->report->calls += row->calls;
}

static int compare_regions(const void *a, const void *b)
{
    const struct report_region *left = a, *right = b;
    if (left->total_ns != right->total_ns)
        return left->total_ns > right->total_ns ? -1 : 1;
    return strcmp(left->name, right->name);
}

static void finish_regions(struct making *making)
{
    struct report *report = making->report;
    size_t kept = 0;
    for (size_t i = 0; i < sl_run_region_count(making->run); i++)
        if (making->by_region[i].calls)
            making->by_region[kept++] = making->by_region[i];
    report->regions = making->by_region;
    report->region_count = kept;
    for (size_t i = 0; i < kept; i++) {
        struct report_region *region = &report->regions[i];
        region->mean_ns = (double)region->total_ns / (double)region->calls;
        region->share = report->base_ns > 0 ? (double)region->total_ns / (double)report->base_ns : NAN;
    }
    qsort(report->regions, kept, sizeof *report->regions, compare_regions);
}

// How long the run took: by its metadata, else by its calls; and what shares are taken of.
static void find_base(struct making *making)
{
    struct report *report = making->report;
    int64_t start_ns, end_ns, first_ns = INT64_MAX, last_ns = INT64_MIN, session_ns = 0;
    for (size_t i = 0; i < sl_run_row_count(making->run); i++) {
        const struct sl_run_row *row = sl_run_row(making->run, i);
        if (!is_wanted(making, row->rank) || row->calls == 0)
            continue;
        first_ns = row->start_minimum_ns < first_ns ? row->start_minimum_ns : first_ns;
        last_ns = row->end_maximum_ns > last_ns ? row->end_maximum_ns : last_ns;
        session_ns = strcmp(row->name, session_name) == 0 ? wrap_add(session_ns, row->total_ns) : session_ns;
    }
    report->wall_ns = report->base_ns = REPORT_UNKNOWN;
    if (sl_run_metadata_int(making->run, "start_time_ns", &start_ns) &&
        sl_run_metadata_int(making->run, "finalize_time_ns", &end_ns) && end_ns >= start_ns)
        report->wall_ns = wrap_subtract(end_ns, start_ns);
    else if (report->calls && !sl_run_is_aggregate(making->run) && last_ns >= first_ns)
        report->wall_ns = wrap_subtract(last_ns, first_ns);
    if (session_ns > 0)
        report->base = "the session", report->base_ns = session_ns;
    else if (report->wall_ns > 0 && !__builtin_mul_overflow(report->wall_ns, (int64_t)report->ranks, &report->base_ns))
        report->base = "the run";
}

// -- threads ----------------------------------------------------------------------------------------------------------

static double wall_of(const struct making *making, const struct sl_run_thread *thread)
{
    int64_t end_ns;
    if (!thread->alive)
        return thread->wall_time;
    if (!sl_run_metadata_int(making->run, "finalize_time_ns", &end_ns))
        return NAN;
    return (double)wrap_subtract(end_ns, sl_run_origin_ns(making->run)) / 1e9 - thread->start_time;
}

// Rows for the threads of a rank; *first is where they begin. `region_ns` is to be added to.
static size_t add_threads(struct making *making, uint32_t rank, size_t *first)
{
    struct report *report = making->report;
    size_t count;
    const struct sl_run_thread *threads = sl_run_threads(making->run, rank, &count);
    *first = report->thread_count;
    report->threads = alloc_resize(report->threads, report->thread_count + count, sizeof *report->threads);
    for (size_t i = 0; i < count; i++)
        report->threads[report->thread_count++] =
            (struct report_thread){.thread = &threads[i], .wall_time = wall_of(making, &threads[i]), .cpu_exact = !threads[i].alive};
    return count;
}

// Tables of good files have row i at i.
static struct report_thread *find_thread(struct report_thread *threads, size_t count, int64_t index)
{
    if (index >= 0 && (uint64_t)index < count && threads[index].thread->index == index)
        return &threads[index];
    for (size_t i = 0; i < count; i++)
        if (threads[i].thread->index == index)
            return &threads[i];
    return NULL;
}

static int64_t thread_of_task(const struct sl_run_task *tasks, size_t count, int64_t index)
{
    if ((uint64_t)index < count && tasks[index].index == index)
        return tasks[index].thread_index;
    for (size_t i = 0; i < count; i++)
        if (tasks[i].index == index)
            return tasks[i].thread_index;
    return REPORT_UNKNOWN;
}

// A call counts for the thread it was recorded on. Time counts once, by the top-level calls of a lane, for the thread a
// task ran on last: the rule of scope-profiler's thread_summary.
static void charge_threads(struct making *making, uint32_t rank, const struct sl_calls *calls,
                           const struct sl_call_stack *stack, struct report_thread *threads, size_t count)
{
    size_t task_count;
    const struct sl_run_task *tasks = sl_run_tasks(making->run, rank, &task_count);
    for (size_t i = 0; i < stack->count; i++) {
        uint64_t call = stack->order[i];
        struct report_thread *on = find_thread(threads, count, calls->thread[call]);
        if (on)
            on->calls++;
        if (stack->parent[i] >= 0)
            continue;
        int64_t lane = stack->lane[i];
        int64_t index = lane >= 0 ? thread_of_task(tasks, task_count, lane) : lane == -1 ? REPORT_UNKNOWN : -2 - lane;
        struct report_thread *charged = find_thread(threads, count, index);
        if (charged)
            charged->region_ns =
                wrap_add(charged->region_ns, wrap_subtract(calls->end_ns[call], calls->start_ns[call]));
    }
}

// -- a rank's calls ---------------------------------------------------------------------------------------------------

static void remark(struct report *report, const char *text)
{
    report->remarks = alloc_resize(report->remarks, report->remark_count + 1, sizeof *report->remarks);
    report->remarks[report->remark_count++] = alloc_text(text);
}

static bool has_calls(const struct making *making, uint32_t rank, bool *lacks_self)
{
    bool any = false;
    *lacks_self = false;
    for (size_t i = 0; i < sl_run_row_count(making->run); i++) {
        const struct sl_run_row *row = sl_run_row(making->run, i);
        bool here = row->rank == rank && row->calls;
        any |= here;
        *lacks_self |= here && row->exclusive_ns < 0;
    }
    return any;
}

// Self times of the rank's rows that do not state theirs; `totals` NULL: they cannot be known.
static void add_self(struct making *making, uint32_t rank, const int64_t *totals)
{
    for (size_t i = 0; i < sl_run_row_count(making->run); i++) {
        const struct sl_run_row *row = sl_run_row(making->run, i);
        struct report_region *region = &making->by_region[row->region];
        if (row->rank != rank || row->exclusive_ns >= 0 || row->calls == 0 || region->self_ns == REPORT_UNKNOWN)
            continue;
        region->self_ns = totals ? wrap_add(region->self_ns, totals[row->region]) : REPORT_UNKNOWN;
    }
}

static void not_nested(struct making *making, uint32_t rank, const struct sl_nesting_error *wrong, size_t first)
{
    char text[SL_RUN_ERROR_MAX];
    sl_nesting_error_text(making->run, rank, wrong, text, sizeof text);
    remark(making->report, text);
    add_self(making, rank, NULL);
    for (size_t i = first; i < making->report->thread_count; i++)
        making->report->threads[i].region_ns = REPORT_UNKNOWN;
}

static int read_stack(struct making *making, uint32_t rank, size_t first, size_t threads)
{
    struct sl_calls calls;
    struct sl_call_stack stack;
    struct sl_nesting_error wrong;
    int result = sl_run_calls(making->run, rank, &calls, making->error);
    if (result)
        return result;
    int nested = sl_call_stack_build(&calls, &stack, &wrong);
    if (nested == -EBADMSG) {
        not_nested(making, rank, &wrong, first);
    } else if (nested == 0) {
        int64_t *totals = alloc_zeroed(sl_run_region_count(making->run), sizeof *totals);
        sl_call_stack_exclusive(&stack, &calls, totals);
        add_self(making, rank, totals);
        if (calls.thread && threads)
            charge_threads(making, rank, &calls, &stack, making->report->threads + first, threads);
        free(totals);
        sl_call_stack_finish(&stack);
    } else if (making->error) {
        snprintf(making->error, SL_RUN_ERROR_MAX, "cannot build the call stack of rank %u: %s", rank,
                 strerror(-nested));
    }
    sl_calls_finish(&calls);
    return nested == -EBADMSG ? 0 : nested;
}

// -- tasks ------------------------------------------------------------------------------------------------------------

static struct report_task_group *group_of(struct making *making, const struct sl_run_task *task)
{
    struct report *report = making->report;
    const char *name = *task->coro_name ? task->coro_name : task->name;
    char *key = alloc_printf("%s\n%s", task->kind, name);
    struct group_entry *entry;
    HASH_FIND_STR(making->groups, key, entry);
    if (entry) {
        free(key);
        return &report->groups[entry->group];
    }
    entry = alloc_zeroed(1, sizeof *entry);
    entry->key = key;
    entry->group = report->group_count;
    HASH_ADD_KEYPTR(hh, making->groups, entry->key, strlen(entry->key), entry);
    report->groups = alloc_resize(report->groups, report->group_count + 1, sizeof *report->groups);
    report->groups[report->group_count] =
        (struct report_task_group){.kind = task->kind, .name = name, .longest_step_ns = REPORT_UNKNOWN};
    return &report->groups[report->group_count++];
}

static void add_tasks(struct making *making, uint32_t rank)
{
    size_t count;
    const struct sl_run_task *tasks = sl_run_tasks(making->run, rank, &count);
    struct report *report = making->report;
    report->tasks = alloc_resize(report->tasks, report->task_count + count, sizeof *report->tasks);
    for (size_t i = 0; i < count; i++) {
        struct report_task_group *group = group_of(making, &tasks[i]);
        report->tasks[report->task_count++] = (struct report_task){.task = &tasks[i], .longest_step_ns = REPORT_UNKNOWN};
        group->tasks++;
        group->done += tasks[i].done;
        group->steps = wrap_add(group->steps, tasks[i].steps);
        group->running_time += tasks[i].running_time;
        group->awaiting_time += tasks[i].awaiting_time;
    }
}

// NULL: it has no such column, or not of integers.
static const int64_t *integers(const struct sl_table *table, const char *name)
{
    const struct sl_table_column *column = table ? sl_table_column(table, name) : NULL;
    return column ? column->integers : NULL;
}

static int add_lost(struct making *making)
{
    const struct sl_table *table;
    int result = sl_run_table(making->run, "loss", &table, making->error);
    if (result || !table)
        return result;
    const int64_t *ranks = integers(table, "rank"), *counts = integers(table, "count");
    for (size_t row = 0; ranks && counts && row < table->rows; row++)
        if (is_wanted(making, ranks[row]))
            making->report->lost += (uint64_t)counts[row];
    return 0;
}

// Calls that were entered while recording was paused are nowhere, not among the lost either.
static int add_pauses(struct making *making)
{
    const struct sl_table *table;
    int result = sl_run_table(making->run, "pauses", &table, making->error);
    const int64_t *ranks = integers(table, "rank"), *begins = integers(table, "begin_ns"), *ends = integers(table, "end_ns");
    int64_t total_ns = 0, last_ns;
    size_t pauses = 0;
    if (result || !ranks || !begins || !ends)
        return result;
    if (!sl_run_metadata_int(making->run, "finalize_time_ns", &last_ns))
        last_ns = INT64_MIN;
    for (size_t row = 0; row < table->rows; row++) {
        int64_t end_ns = ends[row] == REPORT_UNKNOWN ? last_ns : ends[row];
        if (!is_wanted(making, ranks[row]))
            continue;
        total_ns = wrap_add(total_ns, end_ns > begins[row] ? wrap_subtract(end_ns, begins[row]) : 0);
        pauses++;
    }
    if (pauses) {
        char text[SL_RUN_ERROR_MAX];
        snprintf(text, sizeof text, "recording was paused: %zu %s, %.3f s in all; what was entered meanwhile is not in this file", pauses,
                 pauses == 1 ? "pause of a process" : "pauses of processes", (double)total_ns / 1e9);
        remark(making->report, text);
    }
    return 0;
}

// -- what scope-profiler's tables have no column for: files of ours keep it in tables (rank, index, …) ----------------------

struct place {
    int64_t rank, index;
};

static int compare_places(int64_t rank, int64_t index, const struct place *place)
{
    if (place->rank != rank)
        return place->rank < rank ? -1 : 1;
    return place->index < index ? -1 : place->index > index;
}

static int compare_to_thread(const void *key, const void *row)
{
    const struct report_thread *thread = row;
    return compare_places(thread->thread->rank, thread->thread->index, key);
}

static int compare_to_task(const void *key, const void *row)
{
    const struct report_task *task = row;
    return compare_places(task->task->rank, task->task->index, key);
}

static int add_thread_facts(struct making *making)
{
    struct report *report = making->report;
    const struct sl_table *table;
    int result = sl_run_table(making->run, "threads", &table, making->error);
    const int64_t *ranks = integers(table, "rank"), *indices = integers(table, "index"), *exact = integers(table, "cpu_exact");
    if (result || !ranks || !indices || !exact)
        return result;
    for (size_t row = 0; row < table->rows && report->thread_count; row++) {
        struct report_thread *thread = bsearch(&(struct place){ranks[row], indices[row]}, report->threads, report->thread_count,
                                               sizeof *report->threads, compare_to_thread);
        if (thread)
            thread->cpu_exact = exact[row] != 0;
    }
    return 0;
}

static int add_task_facts(struct making *making)
{
    struct report *report = making->report;
    const struct sl_table *table;
    int result = sl_run_table(making->run, "tasks", &table, making->error);
    const int64_t *ranks = integers(table, "rank"), *indices = integers(table, "index"), *steps = integers(table, "longest_step_ns"),
                  *bounds = integers(table, "bound");
    if (result || !ranks || !indices || !steps)
        return result;
    for (size_t row = 0; row < table->rows && report->task_count; row++) {
        struct report_task *task = bsearch(&(struct place){ranks[row], indices[row]}, report->tasks, report->task_count,
                                           sizeof *report->tasks, compare_to_task);
        if (!task)
            continue;
        struct report_task_group *group = group_of(making, task->task);
        task->longest_step_ns = steps[row];
        task->bound = bounds && bounds[row];
        if (steps[row] > group->longest_step_ns)
            group->longest_step_ns = steps[row];
    }
    return 0;
}

static int compare_groups(const void *a, const void *b)
{
    const struct report_task_group *left = a, *right = b;
    if (left->running_time != right->running_time)
        return left->running_time > right->running_time ? -1 : 1;
    int order = strcmp(left->kind, right->kind);
    return order ? order : strcmp(left->name, right->name);
}

static void forget_groups(struct making *making)
{
    struct group_entry *entry, *next;
    HASH_ITER(hh, making->groups, entry, next) {
        HASH_DEL(making->groups, entry);
        free(entry->key);
        free(entry);
    }
}

// -- all of it --------------------------------------------------------------------------------------------------------

static int add_rank(struct making *making, uint32_t rank)
{
    bool lacks_self, any = has_calls(making, rank, &lacks_self);
    size_t first, threads = add_threads(making, rank, &first);
    add_tasks(making, rank);
    making->report->ranks += any;
    bool needed = lacks_self || (any && threads && sl_run_has_threads(making->run));
    return needed && !sl_run_is_aggregate(making->run) ? read_stack(making, rank, first, threads) : 0;
}

static int add_lanes(struct making *making)
{
    size_t count;
    const uint32_t *ranks = sl_run_ranks(making->run, &count);
    int result = 0;
    for (size_t i = 0; result == 0 && i < count; i++)
        if (is_wanted(making, ranks[i]))
            result = add_rank(making, ranks[i]);
    if (result == 0)
        result = add_thread_facts(making);
    if (result == 0)
        result = add_task_facts(making);
    if (result == 0)
        result = add_lost(making);
    if (result == 0)
        result = add_pauses(making);
    forget_groups(making);
    if (making->report->group_count)
        qsort(making->report->groups, making->report->group_count, sizeof *making->report->groups, compare_groups);
    return result;
}

int report_make(struct report *report, struct sl_run *run, int64_t rank, char error[SL_RUN_ERROR_MAX])
{
    struct making making = {.report = report, .run = run, .rank = rank, .error = error};
    *report = (struct report){0};
    making.by_region = alloc_zeroed(sl_run_region_count(run) + 1, sizeof *making.by_region);
    for (size_t i = 0; i < sl_run_region_count(run); i++)
        making.by_region[i].name = sl_run_region_name(run, i);
    for (size_t i = 0; i < sl_run_row_count(run); i++)
        if (is_wanted(&making, sl_run_row(run, i)->rank))
            add_row(&making, sl_run_row(run, i));
    int result = add_lanes(&making);
    find_base(&making);
    finish_regions(&making);
    if (result)
        report_finish(report);
    return result;
}

void report_finish(struct report *report)
{
    for (size_t i = 0; i < report->remark_count; i++)
        free(report->remarks[i]);
    free(report->remarks);
    free(report->regions);
    free(report->threads);
    free(report->tasks);
    free(report->groups);
    *report = (struct report){0};
}
