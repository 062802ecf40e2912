// Lane ids, thread and task tables, labels.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/runread.h"
#include "storage/wrap.h"

enum { THREAD_INTS = 8, TASK_INTS = 8 };

// -- from columns -----------------------------------------------------------------------------------------------------

// Index to lane and back.
static int64_t mirror(int64_t number)
{
    return wrap_subtract(-2, number);
}

void sl_lane_ids(const int64_t *threads, const int64_t *tasks, size_t count, int64_t *lanes)
{
    for (size_t i = 0; i < count; i++)
        lanes[i] = tasks && tasks[i] >= 0 ? tasks[i] : threads[i] < 0 ? -1 : mirror(threads[i]);
}

static double seconds(int64_t time_ns)
{
    return (double)time_ns / 1e9;
}

static double seconds_or_nan(int64_t time_ns)
{
    return time_ns == SL_RUN_UNKNOWN ? NAN : seconds(time_ns);
}

static void make_thread(uint32_t rank, const struct sl_run_thread_columns *columns, size_t i,
                        struct sl_run_thread *thread)
{
    *thread = (struct sl_run_thread){
        .rank = rank,
        .index = columns->index[i],
        .ident = (uint64_t)columns->ident[i],
        .native_id = columns->native_id[i],
        .name = columns->name[i],
        .daemon = columns->daemon[i] != 0,
        .alive = columns->end_ns[i] == SL_RUN_UNKNOWN,
        .start_time = seconds(columns->start_ns[i]),
        .end_time = seconds_or_nan(columns->end_ns[i]),
        .cpu_time = seconds(columns->cpu_ns[i]),
    };
    thread->wall_time = thread->end_time - thread->start_time;  // NaN stays NaN
}

static void make_task(uint32_t rank, const struct sl_run_task_columns *columns, size_t i, struct sl_run_task *task)
{
    *task = (struct sl_run_task){
        .rank = rank,
        .index = columns->index[i],
        .kind = columns->kind[i],
        .name = columns->name[i],
        .coro_name = columns->coro_name[i],
        .thread_index = columns->thread_index[i],
        .done = columns->done_ns[i] != SL_RUN_UNKNOWN,
        .created_time = seconds(columns->created_ns[i]),
        .done_time = seconds_or_nan(columns->done_ns[i]),
        .steps = columns->steps[i],
        .running_time = seconds(columns->running_ns[i]),
        .awaiting_time = seconds(columns->suspended_ns[i]),
    };
    task->wall_time = task->done_time - task->created_time;
}

void sl_lane_tables_from_columns(uint32_t rank, const struct sl_run_thread_columns *thread_columns,
                                 struct sl_run_thread *threads, const struct sl_run_task_columns *task_columns,
                                 struct sl_run_task *tasks)
{
    for (size_t i = 0; thread_columns && threads && i < thread_columns->count; i++)
        make_thread(rank, thread_columns, i, &threads[i]);
    for (size_t i = 0; task_columns && tasks && i < task_columns->count; i++)
        make_task(rank, task_columns, i, &tasks[i]);
}

// -- from the file ----------------------------------------------------------------------------------------------------

struct by_rank {
    int64_t rank;
    uint64_t row;
};

static int compare_ranks(const void *a, const void *b)
{
    const struct by_rank *left = a, *right = b;
    if (left->rank != right->rank)
        return left->rank < right->rank ? -1 : 1;
    return left->row < right->row ? -1 : left->row > right->row;
}

// Rows in order of rank, as they stand in the file within one, and where each rank's begin.
static int sort_ranks(struct sl_run *run, const char *table, const int64_t *ranks, uint64_t count,
                      struct by_rank **sorted, struct run_span **spans, size_t *span_count)
{
    struct by_rank *order = malloc((count + 1) * sizeof *order);
    struct run_span *found = malloc((count + 1) * sizeof *found);
    *sorted = order, *spans = found;
    if (!order || !found)
        return run_fail(run, -ENOMEM, "%s: %s", table, strerror(ENOMEM));
    bool ascending = true;
    for (uint64_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] > UINT32_MAX)
            return run_fail(run, -EINVAL, "%s/ranks: row %" PRIu64 " has rank %" PRId64, table, i, ranks[i]);
        order[i] = (struct by_rank){ranks[i], i};
        ascending = ascending && (i == 0 || ranks[i - 1] <= ranks[i]);
    }
    if (!ascending)
        qsort(order, count, sizeof *order, compare_ranks);
    for (uint64_t i = 0; i < count; i++) {
        if (i == 0 || order[i - 1].rank != order[i].rank)
            found[(*span_count)++] = (struct run_span){(uint32_t)order[i].rank, i, 0};
        found[*span_count - 1].count++;
    }
    return 0;
}

struct loaded {
    uint64_t length;
    int64_t *ints[TASK_INTS];
};

static int load_all(struct sl_run *run, h5_id group, const char *table, const char *const *names, struct loaded *loaded)
{
    int result = 0;
    loaded->length = RUN_ANY_LENGTH;
    for (int i = 0; result == 0 && i < TASK_INTS; i++)
        result = run_load_ints(run, group, table, names[i], &loaded->length, &loaded->ints[i]);
    return result;
}

// A file may have daemon as integers of any width.
static int8_t *flags_of(const int64_t *values, uint64_t count)
{
    int8_t *flags = malloc(count + 1);
    for (uint64_t i = 0; flags && i < count; i++)
        flags[i] = values[i] != 0;
    return flags;
}

static int read_threads(struct sl_run *run, h5_id group)
{
    static const char table[] = "thread_table";
    static const char *const names[THREAD_INTS] = {"ranks",  "index",    "ident",  "native_id",
                                                   "daemon", "start_ns", "end_ns", "cpu_ns"};
    struct run_lanes *lanes = &run->lanes;
    struct loaded c = {0};
    struct by_rank *order = NULL;
    int8_t *daemon = NULL;
    int result = load_all(run, group, table, names, &c);
    if (result == 0)
        result = run_load_texts(run, group, table, "name", &c.length, RUN_STRICT, &lanes->thread_names);
    if (result == 0)
        result = sort_ranks(run, table, c.ints[0], c.length, &order, &lanes->thread_spans, &lanes->thread_span_count);
    if (result == 0 && (!(lanes->threads = calloc(c.length + 1, sizeof *lanes->threads)) ||
                        !(daemon = flags_of(c.ints[4], c.length))))
        result = run_fail(run, -ENOMEM, "%s: %s", table, strerror(ENOMEM));
    const struct sl_run_thread_columns columns = {c.length,  c.ints[1], c.ints[2], c.ints[3],                 daemon,
                                                  c.ints[5], c.ints[6], c.ints[7], lanes->thread_names.texts};
    for (uint64_t i = 0; result == 0 && i < c.length; i++)
        make_thread((uint32_t)order[i].rank, &columns, order[i].row, &lanes->threads[i]);
    for (int i = 0; i < THREAD_INTS; i++)
        free(c.ints[i]);
    free(daemon);
    free(order);
    return result;
}

static int read_tasks(struct sl_run *run, h5_id group)
{
    static const char table[] = "task_table";
    static const char *const names[TASK_INTS] = {"ranks",   "index", "thread_index", "created_ns",
                                                 "done_ns", "steps", "running_ns",   "suspended_ns"};
    struct run_lanes *lanes = &run->lanes;
    struct loaded c = {0};
    struct by_rank *order = NULL;
    int result = load_all(run, group, table, names, &c);
    if (result == 0)
        result = run_load_texts(run, group, table, "kind", &c.length, RUN_STRICT, &lanes->task_kinds);
    if (result == 0)
        result = run_load_texts(run, group, table, "name", &c.length, RUN_STRICT, &lanes->task_names);
    if (result == 0)
        result = run_load_texts(run, group, table, "coro_name", &c.length, RUN_STRICT, &lanes->coro_names);
    if (result == 0)
        result = sort_ranks(run, table, c.ints[0], c.length, &order, &lanes->task_spans, &lanes->task_span_count);
    if (result == 0 && !(lanes->tasks = calloc(c.length + 1, sizeof *lanes->tasks)))
        result = run_fail(run, -ENOMEM, "%s: %s", table, strerror(ENOMEM));
    const struct sl_run_task_columns columns = {c.length,
                                                c.ints[1],
                                                c.ints[2],
                                                c.ints[3],
                                                c.ints[4],
                                                c.ints[5],
                                                c.ints[6],
                                                c.ints[7],
                                                lanes->task_kinds.texts,
                                                lanes->task_names.texts,
                                                lanes->coro_names.texts};
    for (uint64_t i = 0; result == 0 && i < c.length; i++)
        make_task((uint32_t)order[i].rank, &columns, order[i].row, &lanes->tasks[i]);
    for (int i = 0; i < TASK_INTS; i++)
        free(c.ints[i]);
    free(order);
    return result;
}

static int read_table(struct sl_run *run, const char *name, int (*read)(struct sl_run *run, h5_id group))
{
    if (!h5_exists(run->file, name))
        return 0;
    h5_id group = h5_group_open(run->file, name, &run->h5);
    if (group < 0)
        return run_fail(run, (int)group, "%s: %s", name, run->h5.text);
    int result = read(run, group);
    h5_close(group);
    return result;
}

int run_read_lanes(struct sl_run *run)
{
    int result = read_table(run, "thread_table", read_threads);
    return result ? result : read_table(run, "task_table", read_tasks);
}

void run_lanes_finish(struct run_lanes *lanes)
{
    run_texts_finish(&lanes->thread_names);
    run_texts_finish(&lanes->task_kinds);
    run_texts_finish(&lanes->task_names);
    run_texts_finish(&lanes->coro_names);
    free(lanes->thread_spans);
    free(lanes->task_spans);
    free(lanes->threads);
    free(lanes->tasks);
}

// -- looking up -------------------------------------------------------------------------------------------------------

static const struct run_span *find_span(const struct run_span *spans, size_t count, uint32_t rank)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (spans[middle].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && spans[low].rank == rank ? &spans[low] : NULL;
}

const struct sl_run_thread *sl_run_threads(const struct sl_run *run, uint32_t rank, size_t *count)
{
    const struct run_span *span = find_span(run->lanes.thread_spans, run->lanes.thread_span_count, rank);
    *count = span ? span->count : 0;
    return span ? run->lanes.threads + span->first : NULL;
}

const struct sl_run_task *sl_run_tasks(const struct sl_run *run, uint32_t rank, size_t *count)
{
    const struct run_span *span = find_span(run->lanes.task_spans, run->lanes.task_span_count, rank);
    *count = span ? span->count : 0;
    return span ? run->lanes.tasks + span->first : NULL;
}

// In a good file the row of index i is row i; in others it may be anywhere.
static const struct sl_run_thread *find_thread(const struct sl_run *run, uint32_t rank, int64_t index)
{
    size_t count;
    const struct sl_run_thread *threads = sl_run_threads(run, rank, &count);
    if (index >= 0 && (uint64_t)index < count && threads[index].index == index)
        return &threads[index];
    for (size_t i = 0; i < count; i++)
        if (threads[i].index == index)
            return &threads[i];
    return NULL;
}

static const struct sl_run_task *find_task(const struct sl_run *run, uint32_t rank, int64_t index)
{
    size_t count;
    const struct sl_run_task *tasks = sl_run_tasks(run, rank, &count);
    if (index >= 0 && (uint64_t)index < count && tasks[index].index == index)
        return &tasks[index];
    for (size_t i = 0; i < count; i++)
        if (tasks[i].index == index)
            return &tasks[i];
    return NULL;
}

static int thread_label(const struct sl_run *run, uint32_t rank, int64_t index, char *text, size_t size)
{
    const struct sl_run_thread *thread = index < 0 ? NULL : find_thread(run, rank, index);
    if (index < 0)
        return snprintf(text, size, "unknown lane");
    return thread ? snprintf(text, size, "%s", thread->name) : snprintf(text, size, "thread %" PRId64, index);
}

int sl_lane_label(const struct sl_run *run, uint32_t rank, int64_t lane, char *text, size_t size)
{
    if (lane < 0)
        return thread_label(run, rank, lane == -1 ? -1 : mirror(lane), text, size);
    const struct sl_run_task *task = find_task(run, rank, lane);
    if (!task)
        return snprintf(text, size, "task %" PRId64, lane);
    const char *dot = strrchr(task->coro_name, '.');
    int head = snprintf(text, size, "%s (%s) on ", task->name, dot ? dot + 1 : task->coro_name);
    if (head < 0)
        return head;
    size_t used = (size_t)head < size ? (size_t)head : size;
    int tail = thread_label(run, rank, task->thread_index, size > used ? text + used : NULL, size - used);
    return tail < 0 ? tail : head + tail;
}
