// See report-rows.h. Fields have the names of the daemon's replies where they say the same (design.md §9).
#include "cli/report-rows.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "storage/wrap.h"

const struct table_column report_region_columns[] = {
    {"name", "REGION", TABLE_TEXT},         {"ranks", "RANKS", TABLE_COUNT, TABLE_IF_VARIED},
    {"calls", "CALLS", TABLE_COUNT, .exact = "exact"}, {"total_ns", "TOTAL", TABLE_DURATION, .exact = "exact"},
    {"self_ns", "SELF", TABLE_DURATION},    {"mean_ns", "MEAN", TABLE_DURATION},
    {"min_ns", "MIN", TABLE_DURATION},      {"max_ns", "MAX", TABLE_DURATION},
    {"share", "SHARE", TABLE_SHARE},        {0},
};

const struct table_column report_thread_columns[] = {
    {"rank", "RANK", TABLE_COUNT},
    {"index", "THREAD", TABLE_COUNT},
    {"name", "NAME", TABLE_TEXT},
    {"ident", "IDENT", TABLE_TEXT, TABLE_NEVER},
    {"native_id", "TID", TABLE_COUNT, TABLE_NEVER},
    {"daemon", "DAEMON", TABLE_BOOL, TABLE_IF_VARIED},
    {"state", "STATE", TABLE_TEXT},
    {"start_ns", "START", TABLE_DURATION, TABLE_NEVER},
    {"end_ns", "END", TABLE_DURATION, TABLE_NEVER},
    {"wall_ns", "WALL", TABLE_DURATION},
    {"cpu_ns", "CPU", TABLE_DURATION, .exact = "cpu_exact"},
    {"cpu_exact", "EXACT", TABLE_BOOL, TABLE_NEVER},
    {"region_ns", "IN REGIONS", TABLE_DURATION},
    {"calls", "CALLS", TABLE_COUNT},
    {0},
};

const struct table_column report_task_group_columns[] = {
    {"kind", "KIND", TABLE_TEXT},
    {"name", "TASKS OF", TABLE_TEXT},
    {"tasks", "TASKS", TABLE_COUNT},
    {"done", "DONE", TABLE_COUNT},
    {"steps", "STEPS", TABLE_COUNT},
    {"running_ns", "RUNNING", TABLE_DURATION},
    {"suspended_ns", "SUSPENDED", TABLE_DURATION},
    {"longest_step_ns", "LONGEST STEP", TABLE_DURATION},
    {0},
};

const struct table_column report_task_columns[] = {
    {"rank", "RANK", TABLE_COUNT},
    {"index", "INDEX", TABLE_COUNT},
    {"kind", "KIND", TABLE_TEXT},
    {"name", "NAME", TABLE_TEXT},
    {"coro_name", "CORO", TABLE_TEXT},
    {"thread_index", "THREAD", TABLE_COUNT},
    {"state", "STATE", TABLE_TEXT},
    {"created_ns", "CREATED", TABLE_DURATION, TABLE_NEVER},
    {"done_ns", "DONE", TABLE_DURATION, TABLE_NEVER},
    {"wall_ns", "WALL", TABLE_DURATION},
    {"steps", "STEPS", TABLE_COUNT},
    {"running_ns", "RUNNING", TABLE_DURATION},
    {"suspended_ns", "SUSPENDED", TABLE_DURATION},
    {"longest_step_ns", "LONGEST STEP", TABLE_DURATION},
    {"bound", "BOUND", TABLE_BOOL, TABLE_IF_VARIED},
    {0},
};

const struct table_column report_loss_columns[] = {
    {"rank", "RANK", TABLE_COUNT},
    {"ring", "RING", TABLE_COUNT},
    {"thread", "THREAD", TABLE_COUNT},
    {"reason", "REASON", TABLE_TEXT},
    {"count", "CALLS", TABLE_COUNT},
    {0},
};

const struct table_column report_open_columns[] = {
    {"rank", "RANK", TABLE_COUNT},        {"label", "LANE", TABLE_TEXT},
    {"region", "REGION", TABLE_TEXT},     {"start_ns", "OPEN FOR", TABLE_AGO},
    {"stack", "STACK", TABLE_TEXT, TABLE_CUT}, {0},
};

const struct table_column report_crossing_columns[] = {
    {"rank", "RANK", TABLE_COUNT},
    {"label", "LANE", TABLE_TEXT},
    {"region", "REGION", TABLE_TEXT},
    {"start_ns", "START", TABLE_DURATION},
    {"duration_ns", "DURATION", TABLE_DURATION},
    {0},
};

const struct table_column report_unmatched_columns[] = {
    {"rank", "RANK", TABLE_COUNT},
    {"count", "EXITS", TABLE_COUNT},
    {"region", "REGION", TABLE_TEXT},
    {"label", "LANE", TABLE_TEXT},
    {"why", "WHY", TABLE_TEXT, TABLE_CUT},
    {0},
};

const struct table_column report_process_columns[] = {
    {"rank", "RANK", TABLE_COUNT},
    {"claimed_rank", "CLAIMED", TABLE_COUNT, TABLE_IF_VARIED},
    {"pid", "PID", TABLE_COUNT},
    {"host", "HOST", TABLE_TEXT, TABLE_IF_VARIED},
    {"state", "STATE", TABLE_TEXT},
    {"exit_status", "STATUS", TABLE_COUNT},
    {"produced", "CALLS", TABLE_COUNT},
    {"lost", "LOST", TABLE_COUNT},
    {"duration_ns", "LIVED", TABLE_DURATION},
    {0},
};

// -- values that may be unknown ---------------------------------------------------------------------------------------

static json_t *ns_or_null(int64_t time_ns)
{
    return time_ns == REPORT_UNKNOWN ? json_null() : json_integer(time_ns);
}

static json_t *seconds_or_null(double seconds)
{
    return isfinite(seconds) && fabs(seconds) < 9e9 ? json_integer(llround(seconds * 1e9)) : json_null();
}

static json_t *real_or_null(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

// -- of the report ----------------------------------------------------------------------------------------------------

json_t *report_rows_regions(const struct report *report)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < report->region_count; i++) {
        const struct report_region *region = &report->regions[i];
        json_t *row = json_object();
        json_object_set_new(row, "name", json_string(region->name));
        json_object_set_new(row, "ranks", json_integer(region->ranks));
        json_object_set_new(row, "calls", json_integer((json_int_t)region->calls));
        json_object_set_new(row, "total_ns", json_integer(region->total_ns));
        json_object_set_new(row, "self_ns", ns_or_null(region->self_ns));
        json_object_set_new(row, "mean_ns", real_or_null(region->mean_ns));
        json_object_set_new(row, "min_ns", json_integer(region->minimum_ns));
        json_object_set_new(row, "max_ns", json_integer(region->maximum_ns));
        json_object_set_new(row, "share", real_or_null(region->share));
        json_object_set_new(row, "exact", json_boolean(!report->lost));
        json_array_append_new(rows, row);
    }
    return rows;
}

json_t *report_rows_threads(const struct report *report)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < report->thread_count; i++) {
        const struct report_thread *line = &report->threads[i];
        const struct sl_run_thread *thread = line->thread;
        json_t *row = json_object();
        json_object_set_new(row, "rank", json_integer(thread->rank));
        json_object_set_new(row, "index", json_integer(thread->index));
        json_object_set_new(row, "name", json_string(thread->name));
        json_object_set_new(row, "ident", json_sprintf("%llu", (unsigned long long)thread->ident));
        json_object_set_new(row, "native_id", json_integer(thread->native_id));
        json_object_set_new(row, "daemon", json_boolean(thread->daemon));
        json_object_set_new(row, "state", json_string(thread->alive ? "alive" : "ended"));
        json_object_set_new(row, "start_ns", seconds_or_null(thread->start_time));
        json_object_set_new(row, "end_ns", seconds_or_null(thread->end_time));
        json_object_set_new(row, "wall_ns", seconds_or_null(line->wall_time));
        json_object_set_new(row, "cpu_ns", seconds_or_null(thread->cpu_time));
        json_object_set_new(row, "cpu_exact", json_boolean(line->cpu_exact));
        json_object_set_new(row, "region_ns", ns_or_null(line->region_ns));
        json_object_set_new(row, "calls", json_integer((json_int_t)line->calls));
        json_array_append_new(rows, row);
    }
    return rows;
}

json_t *report_rows_task_groups(const struct report *report)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < report->group_count; i++) {
        const struct report_task_group *group = &report->groups[i];
        json_t *row = json_object();
        json_object_set_new(row, "kind", json_string(group->kind));
        json_object_set_new(row, "name", json_string(group->name));
        json_object_set_new(row, "tasks", json_integer((json_int_t)group->tasks));
        json_object_set_new(row, "done", json_integer((json_int_t)group->done));
        json_object_set_new(row, "steps", json_integer(group->steps));
        json_object_set_new(row, "running_ns", seconds_or_null(group->running_time));
        json_object_set_new(row, "suspended_ns", seconds_or_null(group->awaiting_time));
        if (group->longest_step_ns != REPORT_UNKNOWN)
            json_object_set_new(row, "longest_step_ns", json_integer(group->longest_step_ns));
        json_array_append_new(rows, row);
    }
    return rows;
}

static json_t *task_row(const struct report_task *line)
{
    const struct sl_run_task *task = line->task;
    json_t *row = json_object();
    json_object_set_new(row, "rank", json_integer(task->rank));
    json_object_set_new(row, "index", json_integer(task->index));
    json_object_set_new(row, "kind", json_string(task->kind));
    json_object_set_new(row, "name", json_string(task->name));
    json_object_set_new(row, "coro_name", json_string(task->coro_name));
    json_object_set_new(row, "thread_index", json_integer(task->thread_index));
    json_object_set_new(row, "state", json_string(task->done ? "done" : "unfinished"));
    json_object_set_new(row, "created_ns", seconds_or_null(task->created_time));
    json_object_set_new(row, "done_ns", seconds_or_null(task->done_time));
    json_object_set_new(row, "wall_ns", seconds_or_null(task->wall_time));
    json_object_set_new(row, "steps", json_integer(task->steps));
    json_object_set_new(row, "running_ns", seconds_or_null(task->running_time));
    json_object_set_new(row, "suspended_ns", seconds_or_null(task->awaiting_time));
    json_object_set_new(row, "longest_step_ns", ns_or_null(line->longest_step_ns));
    json_object_set_new(row, "bound", json_boolean(line->bound));
    return row;
}

json_t *report_rows_tasks(const struct report *report)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < report->task_count; i++)
        json_array_append_new(rows, task_row(&report->tasks[i]));
    return rows;
}

// -- of the file's own tables -----------------------------------------------------------------------------------------

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(name, *names))
        names++;
    return *names;
}

static json_t *own_value(const struct sl_run *run, const struct sl_table_column *column, size_t row)
{
    static const char *const points_in_time[] = {"start_ns", "end_ns", "last_event_ns", "time_ns", NULL};
    if (column->type == SL_TABLE_TEXT)
        return json_string(column->texts[row]);
    if (column->type == SL_TABLE_REAL)
        return real_or_null(column->reals[row]);
    int64_t value = column->integers[row];
    if (!is_one_of(column->name, points_in_time))
        return json_integer(value);
    return value == SL_RUN_UNKNOWN ? json_null() : json_integer(wrap_subtract(value, sl_run_origin_ns(run)));
}

static int64_t own_int(const struct sl_table *table, const char *name, size_t row, int64_t otherwise)
{
    const struct sl_table_column *column = sl_table_column(table, name);
    return column && column->integers ? column->integers[row] : otherwise;
}

// A lane in words, how long what has a start and an end lasted, and no exit status where none is known.
static void add_derived(const struct sl_run *run, const struct sl_table *table, size_t at, int64_t rank, json_t *row)
{
    const struct sl_table_column *lane = sl_table_column(table, "lane");
    int64_t start_ns = own_int(table, "start_ns", at, REPORT_UNKNOWN),
            end_ns = own_int(table, "end_ns", at, REPORT_UNKNOWN);
    if (lane && lane->integers && rank >= 0 && rank <= UINT32_MAX) {
        char label[256];
        sl_lane_label(run, (uint32_t)rank, lane->integers[at], label, sizeof label);
        json_object_set_new(row, "label", json_string(label));
    }
    if (start_ns != REPORT_UNKNOWN && end_ns != REPORT_UNKNOWN && end_ns >= start_ns)
        json_object_set_new(row, "duration_ns", json_integer(wrap_subtract(end_ns, start_ns)));
    if (own_int(table, "has_exit", at, 1) == 0)
        json_object_set_new(row, "exit_status", json_null());
}

json_t *report_rows_own(const struct sl_run *run, const struct sl_table *table, int64_t rank)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < table->rows; i++) {
        int64_t here = own_int(table, "rank", i, REPORT_ALL_RANKS);
        if (rank != REPORT_ALL_RANKS && here != REPORT_ALL_RANKS && here != rank)
            continue;
        json_t *row = json_object();
        for (size_t column = 0; column < table->column_count; column++)
            json_object_set_new(row, table->columns[column].name, own_value(run, &table->columns[column], i));
        add_derived(run, table, i, here, row);
        json_array_append_new(rows, row);
    }
    return rows;
}

struct table_column *report_columns_own(const struct sl_table *table)
{
    struct table_column *columns = alloc_zeroed(table->column_count + 1, sizeof *columns);
    for (size_t i = 0; i < table->column_count; i++) {
        const struct sl_table_column *column = &table->columns[i];
        enum table_kind kind = column->type == SL_TABLE_TEXT ? TABLE_TEXT : TABLE_COUNT;
        columns[i] = (struct table_column){.field = column->name, .header = column->name, .kind = kind};
    }
    return columns;
}
