// The tables of a run file (see runwrite.h): thread_table, task_table, and ours under /scoped_lane.
#include <errno.h>
#include <string.h>

#include "storage/runwrite-parts.h"

// -- tables of ours ---------------------------------------------------------------------------------------------------

static int begin(struct runwrite *w, struct growing_table *table, h5_id parent, const char *name,
                 const struct run_column *columns, size_t count)
{
    static const enum h5_type types[] = {[RUN_INT] = H5_I64, [RUN_REAL] = H5_F64, [RUN_TEXT] = H5_STRING};
    h5_id group = h5_group_create(parent, name, &w->error);
    if (group < 0)
        return (int)group;
    *table = (struct growing_table){.name = name, .group = group, .count = count, .last_rank = -1};
    for (size_t i = 0; i < count; i++)
        column_init(&table->columns[i], group, columns[i].name, types[columns[i].type], COLUMN_UNKNOWN,
                    w->options.compress);
    return 0;
}

static int append(struct runwrite *w, struct growing_table *table, const union run_value *values)
{
    int result = 0;
    for (size_t i = 0; result == 0 && i < table->count; i++) {
        struct column *column = &table->columns[i];
        if (column->type == H5_STRING)
            result = column_text(column, values[i].text ? values[i].text : "", &w->error);
        else if (column->type == H5_F64)
            result = column_real(column, values[i].real, &w->error);
        else
            result = column_int(column, values[i].integer, &w->error);
    }
    return result;
}

static int end(struct runwrite *w, struct growing_table *table)
{
    int result = 0;
    for (size_t i = 0; result == 0 && i < table->count; i++)
        result = column_end(&table->columns[i], &w->error);
    return result;
}

static void drop(struct growing_table *table)
{
    for (size_t i = 0; i < table->count; i++)
        column_drop(&table->columns[i]);
    h5_close(table->group);
    *table = (struct growing_table){0};
}

int runwrite_table_begin(struct runwrite *w, const char *name, int version, const struct run_column *columns,
                         size_t count)
{
    if (w->code)
        return w->code;
    if (w->own.group || count > RUN_COLUMNS_MAX)
        return runwrite_fail(w, -EINVAL, name, w->own.group ? "the last table has not been ended" : "too many columns");
    if (!w->own_group)
        w->own_group = h5_group_create(w->file, "scoped_lane", &w->error);
    if (w->own_group < 0 || begin(w, &w->own, w->own_group, name, columns, count) ||
        h5_attribute_put_int(w->own.group, "version", version, &w->error))
        return runwrite_fail_hdf5(w, name);
    return 0;
}

int runwrite_table_row(struct runwrite *w, const union run_value *values)
{
    if (w->code)
        return w->code;
    if (!w->own.group)
        return runwrite_fail(w, -EINVAL, "writing a row", "no table has been begun");
    return append(w, &w->own, values) ? runwrite_fail_hdf5(w, w->own.name) : 0;
}

int runwrite_table_end(struct runwrite *w)
{
    if (w->code)
        return w->code;
    if (!w->own.group)
        return runwrite_fail(w, -EINVAL, "ending a table", "none has been begun");
    int result = end(w, &w->own) ? runwrite_fail_hdf5(w, w->own.name) : 0;
    drop(&w->own);
    return result;
}

// -- lane tables ------------------------------------------------------------------------------------------------------

// Of two ranks the rows of the lower first; in a rank 0, 1, 2 …: users take results.threads[rank][i] by position.
static const char *out_of_order(struct growing_table *table, uint32_t rank, int64_t index)
{
    bool same = table->last_rank == rank;
    if (table->last_rank > rank)
        return "rows are not in order of rank";
    if (index != (same ? table->last_index + 1 : 0))
        return "rows of a rank are not numbered 0, 1, 2 …";
    table->last_rank = rank;
    table->last_index = index;
    return NULL;
}

// −1 means "not yet" in these tables, so a time that comes out as it is moved to the run's start.
static int64_t relative(const struct runwrite *w, int64_t time_ns)
{
    if (time_ns == RUN_UNKNOWN)
        return RUN_UNKNOWN;
    int64_t since_start = (int64_t)((uint64_t)time_ns - (uint64_t)w->options.start_ns);
    return since_start == -1 ? 0 : since_start;
}

static int lane_row(struct runwrite *w, struct growing_table *table, const char *name, const struct run_column *columns,
                    size_t count, const union run_value *values)
{
    if (w->code)
        return w->code;
    if (!w->options.threads || (table == &w->tasks && !w->options.tasks))
        return runwrite_fail(w, -EINVAL, name, "the run was opened as one that does not track them");
    if (!table->group && begin(w, table, w->file, name, columns, count))
        return runwrite_fail_hdf5(w, name);
    const char *wrong = out_of_order(table, (uint32_t)values[0].integer, values[1].integer);
    if (wrong)
        return runwrite_fail(w, -EINVAL, name, wrong);
    return append(w, table, values) ? runwrite_fail_hdf5(w, name) : 0;
}

int runwrite_thread(struct runwrite *w, const struct run_thread *thread)
{
    static const struct run_column columns[] = {
        {"ranks", RUN_INT}, {"index", RUN_INT},    {"ident", RUN_INT},  {"native_id", RUN_INT}, {"daemon", RUN_INT},
        {"name", RUN_TEXT}, {"start_ns", RUN_INT}, {"end_ns", RUN_INT}, {"cpu_ns", RUN_INT},
    };
    const union run_value values[] = {
        {.integer = thread->rank},
        {.integer = thread->index},
        {.integer = (int64_t)thread->ident},
        {.integer = thread->native_id},
        {.integer = thread->daemon},
        {.text = thread->name},
        {.integer = relative(w, thread->start_ns)},
        {.integer = relative(w, thread->end_ns)},
        {.integer = thread->cpu_ns},
    };
    return lane_row(w, &w->threads, "thread_table", columns, sizeof columns / sizeof *columns, values);
}

int runwrite_task(struct runwrite *w, const struct run_task *task)
{
    static const struct run_column columns[] = {
        {"ranks", RUN_INT},      {"index", RUN_INT},        {"kind", RUN_TEXT},      {"name", RUN_TEXT},
        {"coro_name", RUN_TEXT}, {"thread_index", RUN_INT}, {"created_ns", RUN_INT}, {"done_ns", RUN_INT},
        {"steps", RUN_INT},      {"running_ns", RUN_INT},   {"suspended_ns", RUN_INT},
    };
    const union run_value values[] = {
        {.integer = task->rank},
        {.integer = task->index},
        {.text = task->kind},
        {.text = task->name},
        {.text = task->coro_name},
        {.integer = task->thread_index},
        {.integer = relative(w, task->created_ns)},
        {.integer = relative(w, task->done_ns)},
        {.integer = task->steps},
        {.integer = task->running_ns},
        {.integer = task->suspended_ns},
    };
    return lane_row(w, &w->tasks, "task_table", columns, sizeof columns / sizeof *columns, values);
}

int run_tables_end(struct runwrite *w)
{
    int result = end(w, &w->threads);
    if (result == 0)
        result = end(w, &w->tasks);
    run_tables_drop(w);
    return result;
}

void run_tables_drop(struct runwrite *w)
{
    drop(&w->threads);
    drop(&w->tasks);
    drop(&w->own);
}
