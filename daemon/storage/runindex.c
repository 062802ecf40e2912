// The index of schema 2 and 3: names, one row per (rank, region), and where its calls lie.
// What scope-profiler finds out late, or not at all, is said here when the file is opened.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "storage/jsonlist.h"
#include "storage/runread.h"

static const char index_name[] = "rank_region_index";

// Columns of the index while they are read.
struct columns {
    h5_id group;
    uint64_t length;
    int64_t *region_ids, *ranks, *offsets, *counts, *lines, *exclusive;
    int64_t *totals, *minimums, *maximums;  // aggregate layout
    struct h5_summary *summaries;
};

static void columns_finish(struct columns *columns)
{
    int64_t *arrays[] = {columns->region_ids, columns->ranks,     columns->offsets,  columns->counts,  columns->lines,
                         columns->exclusive,  columns->totals,    columns->minimums, columns->maximums};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
    free(columns->summaries);
    h5_close(columns->group);
}

static int load_ints(struct sl_run *run, struct columns *columns, const char *name, int64_t **into)
{
    return run_load_ints(run, columns->group, index_name, name, &columns->length, into);
}

static int load_summaries(struct sl_run *run, struct columns *columns)
{
    const char *name = "summary_statistics";
    struct h5_shape shape;
    h5_id dataset = h5_dataset_open(columns->group, name, &shape, &run->h5);
    if (dataset < 0)
        return run_fail(run, (int)dataset, "%s/%s: %s", index_name, name, run->h5.text);
    int result = 0;
    const char *missing = h5_summary_lacks(dataset);
    if (shape.dimensions != 1 || shape.length != columns->length || !shape.stored)
        result = run_fail(run, -EINVAL, "%s/%s does not have a row for each (rank, region)", index_name, name);
    else if (missing)
        result = run_fail(run, -EINVAL, "%s/%s: field %s is missing or no number", index_name, name, missing);
    else if (!(columns->summaries = calloc(columns->length + 1, sizeof *columns->summaries)))
        result = run_fail(run, -ENOMEM, "%s/%s: %s", index_name, name, strerror(ENOMEM));
    else if (h5_read(dataset, H5_SUMMARY, 0, columns->length, columns->summaries, &run->h5))
        result = run_fail(run, run->h5.code, "%s/%s: %s", index_name, name, run->h5.text);
    h5_close(dataset);
    return result;
}

// -- texts that hold JSON ---------------------------------------------------------------------------------------------

// "" and null are the empty list, and become it.
static int check_json(struct sl_run *run, const char *column, const char **list, uint64_t calls, bool per_call)
{
    const char *text = *list;
    int64_t length = *text ? json_list_length(text) : 0;
    if (length == JSON_LIST_NOT_JSON)
        return run_fail(run, -EINVAL, "%s/%s is not JSON: %.60s", index_name, column, text);
    if (length == JSON_LIST_NOT_A_LIST)
        return run_fail(run, -EINVAL, "%s/%s is no JSON list: %.60s", index_name, column, text);
    if (per_call && length && (uint64_t)length != calls)
        return run_fail(run, -EINVAL, "%s/%s has entries for %" PRId64 " calls, not %" PRIu64, index_name, column,
                        length, calls);
    *list = length ? text : "[]";
    return 0;
}

static int load_json_column(struct sl_run *run, struct columns *columns, const char *name, bool per_call, struct run_texts *texts)
{
    int result = run_load_texts(run, columns->group, index_name, name, &columns->length, RUN_REPAIR, texts);
    for (uint64_t i = 0; result == 0 && i < columns->length; i++)
        result = check_json(run, name, &texts->texts[i], (uint64_t)columns->counts[i], per_call);
    return result;
}

// -- columnar ---------------------------------------------------------------------------------------------------------

static int load_columnar(struct sl_run *run, struct columns *columns)
{
    struct run_texts texts = {0};
    int result = load_ints(run, columns, "region_ids", &columns->region_ids);
    if (result == 0)
        result = load_ints(run, columns, "ranks", &columns->ranks);
    if (result == 0)
        result = load_ints(run, columns, "event_offsets", &columns->offsets);
    if (result == 0)
        result = load_ints(run, columns, "event_counts", &columns->counts);
    if (result == 0)
        result = load_ints(run, columns, "source_lines", &columns->lines);
    if (result == 0 && h5_exists(columns->group, "exclusive_totals"))
        result = load_ints(run, columns, "exclusive_totals", &columns->exclusive);
    if (result == 0)
        result =
            run_load_texts(run, columns->group, index_name, "source_files", &columns->length, RUN_REPAIR, &run->files);
    if (result == 0)
        result = run_load_texts(run, columns->group, index_name, "source_texts", &columns->length, RUN_REPAIR, &texts);
    run_texts_finish(&texts);
    if (result == 0)
        result = load_json_column(run, columns, "tags", false, &run->tags);
    if (result == 0 && h5_exists(columns->group, "event_metadata"))
        result = load_json_column(run, columns, "event_metadata", true, &run->call_metadata);
    if (result == 0 && h5_exists(columns->group, "summary_statistics"))
        result = load_summaries(run, columns);
    return result;
}

static int open_event_columns(struct sl_run *run)
{
    h5_id group = h5_group_open(run->file, "events", &run->h5);
    if (group < 0)
        return run_fail(run, -EINVAL, "events: %s", run->h5.text);
    run->deltas = h5_exists(group, "start_deltas");
    const char *names[EVENT_COLUMNS] = {run->deltas ? "start_deltas" : "start_times",
                                        run->deltas ? "durations" : "end_times", "thread_ids", "task_ids", "await_ns"};
    int result = 0;
    uint64_t length = RUN_ANY_LENGTH;
    for (int i = 0; result == 0 && i < EVENT_COLUMNS; i++) {
        bool optional = i >= EVENT_THREAD;
        if (optional && !h5_exists(group, names[i]))
            continue;
        uint64_t own_length = RUN_ANY_LENGTH;
        h5_id dataset = run_open_ints(run, group, "events", names[i], &own_length);
        if (dataset < 0)
            result = (int)dataset;
        else if (i > 0 && own_length < length)  // surplus is ignored, as scope-profiler does
            result = run_fail(run, -EINVAL, "events/%s has %" PRIu64 " values for %" PRIu64 " calls", names[i],
                              own_length, length);
        run->events[i] = dataset > 0 ? dataset : 0;
        length = i == 0 ? own_length : length;
    }
    run->event_count = length;
    h5_close(group);
    return result;
}

// -- checks -----------------------------------------------------------------------------------------------------------

struct known_name {
    const char *name;
    uint32_t region;
    UT_hash_handle hh;
};

static int names_are_unique(struct sl_run *run)
{
    struct known_name *known = NULL, *found, *all = calloc(run->region_count + 1, sizeof *all);
    int result = all ? 0 : run_fail(run, -ENOMEM, "region_table/names: %s", strerror(ENOMEM));
    for (size_t i = 0; result == 0 && i < run->region_count; i++) {
        all[i].name = run->names.texts[i];
        HASH_FIND_STR(known, all[i].name, found);
        if (found)
            result = run_fail(run, -EINVAL, "region_table/names: '%.100s' is there twice", all[i].name);
        else
            HASH_ADD_KEYPTR(hh, known, all[i].name, strlen(all[i].name), &all[i]);
    }
    HASH_CLEAR(hh, known);
    free(all);
    return result;
}

static int row_is_sound(struct sl_run *run, const struct columns *columns, uint64_t i)
{
    int64_t region = columns->region_ids[i], rank = columns->ranks[i], count = columns->counts[i];
    if (region < 0 || (uint64_t)region >= run->region_count)
        return run_fail(run, -EINVAL, "%s/region_ids: row %" PRIu64 " names region %" PRId64 " of %zu", index_name, i,
                        region, run->region_count);
    if (rank < 0 || rank > UINT32_MAX)
        return run_fail(run, -EINVAL, "%s/ranks: row %" PRIu64 " has rank %" PRId64, index_name, i, rank);
    if (count < 0)
        return run_fail(run, -EINVAL, "%s: row %" PRIu64 " has %" PRId64 " calls", index_name, i, count);
    if (run->aggregate)
        return 0;
    int64_t offset = columns->offsets[i];
    if (offset < 0 || (uint64_t)offset > run->event_count || (uint64_t)count > run->event_count - (uint64_t)offset)
        return run_fail(run, -EINVAL, "it is cut off or damaged: row %" PRIu64 " of the index ends with call %" PRIu64
                        ", but only %" PRIu64 " are there", i, (uint64_t)offset + (uint64_t)count, run->event_count);
    return 0;
}

static int64_t compare_number(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

// qsort has no context: what is sorted carries its keys.
struct keyed {
    uint64_t first, second;
    size_t row;
};

static int compare_keyed(const void *a, const void *b)
{
    const struct keyed *left = a, *right = b;
    int64_t order = compare_number(left->first, right->first);
    order = order ? order : compare_number(left->second, right->second);
    return (int)(order ? order : compare_number(left->row, right->row));
}

static int rows_are_apart(struct sl_run *run, struct keyed *keyed)
{
    uint64_t end = 0;
    for (size_t i = 0; i < run->row_count; i++)
        keyed[i] = (struct keyed){run->offsets[i], 0, i};
    qsort(keyed, run->row_count, sizeof *keyed, compare_keyed);
    for (size_t i = 0; i < run->row_count; i++) {
        if (keyed[i].first < end)
            return run_fail(run, -EINVAL, "it is damaged: two rows of the index share calls");
        end = keyed[i].first + run->rows[keyed[i].row].calls;
    }
    return 0;
}

static int pairs_are_unique(struct sl_run *run, struct keyed *keyed)
{
    for (size_t i = 0; i < run->row_count; i++)
        keyed[i] = (struct keyed){run->rows[i].rank, run->rows[i].region, i};
    qsort(keyed, run->row_count, sizeof *keyed, compare_keyed);
    for (size_t i = 1; i < run->row_count; i++)
        if (keyed[i].first == keyed[i - 1].first && keyed[i].second == keyed[i - 1].second)
            return run_fail(run, -EINVAL, "%s: rank %" PRIu64 " has two rows of '%.100s'", index_name, keyed[i].first,
                            run->rows[keyed[i].row].name);
    return 0;
}

static int rows_fit_together(struct sl_run *run)
{
    struct keyed *keyed = calloc(run->row_count + 1, sizeof *keyed);
    if (!keyed)
        return run_fail(run, -ENOMEM, "%s: %s", index_name, strerror(ENOMEM));
    int result = pairs_are_unique(run, keyed);
    if (result == 0 && !run->aggregate)
        result = rows_are_apart(run, keyed);
    free(keyed);
    return result;
}

// -- rows -------------------------------------------------------------------------------------------------------------

static void take_summary(struct sl_run_row *row, const struct h5_summary *summary)
{
    row->total_ns = summary->total;
    row->minimum_ns = summary->minimum, row->maximum_ns = summary->maximum;
    row->first_ns = summary->first, row->last_ns = summary->last;
    row->start_minimum_ns = summary->start_minimum, row->end_maximum_ns = summary->end_maximum;
    row->mean_ns = row->calls ? (double)summary->total / (double)row->calls : 0;
    row->m2 = summary->m2;
}

static void take_aggregate(struct sl_run_row *row, const struct columns *columns, uint64_t i)
{
    row->total_ns = columns->totals[i];
    row->minimum_ns = columns->minimums[i], row->maximum_ns = columns->maximums[i];
    row->mean_ns = row->calls ? (double)row->total_ns / (double)row->calls : 0;
    row->m2 = NAN;
}

static int take_rows(struct sl_run *run, const struct columns *columns)
{
    run->rows = calloc(columns->length + 1, sizeof *run->rows);
    run->offsets = calloc(columns->length + 1, sizeof *run->offsets);
    if (!run->rows || !run->offsets)
        return run_fail(run, -ENOMEM, "%s: %s", index_name, strerror(ENOMEM));
    for (uint64_t i = 0; i < columns->length; i++) {
        int result = row_is_sound(run, columns, i);
        if (result)
            return result;
        struct sl_run_row *row = &run->rows[i];
        row->region = (uint32_t)columns->region_ids[i];
        row->rank = (uint32_t)columns->ranks[i];
        row->name = run->names.texts[row->region];
        row->calls = (uint64_t)columns->counts[i];
        row->source_file = run->files.texts ? run->files.texts[i] : "";
        row->tags = run->tags.texts ? run->tags.texts[i] : "[]";
        row->call_metadata = run->call_metadata.texts ? run->call_metadata.texts[i] : "[]";
        row->source_line = columns->lines && columns->lines[i] >= 0 ? columns->lines[i] : -1;
        row->exclusive_ns = columns->exclusive && columns->exclusive[i] >= 0 ? columns->exclusive[i] : -1;
        run->offsets[i] = columns->offsets ? (uint64_t)columns->offsets[i] : 0;
        if (columns->summaries)
            take_summary(row, &columns->summaries[i]);
        else if (run->aggregate)
            take_aggregate(row, columns, i);
    }
    run->row_count = columns->length;
    return rows_fit_together(run);
}

static int load_aggregate(struct sl_run *run, struct columns *columns)
{
    const struct {
        const char *name;
        int64_t **into;
    } wanted[] = {
        {"region_ids", &columns->region_ids},       {"ranks", &columns->ranks},
        {"aggregate_counts", &columns->counts},     {"aggregate_totals", &columns->totals},
        {"aggregate_minimums", &columns->minimums}, {"aggregate_maximums", &columns->maximums},
        {"aggregate_exclusives", &columns->exclusive},
    };
    int result = 0;
    for (size_t i = 0; result == 0 && i < sizeof wanted / sizeof *wanted; i++)
        result = load_ints(run, columns, wanted[i].name, wanted[i].into);
    return result;
}

static int load_names(struct sl_run *run)
{
    h5_id group = h5_group_open(run->file, "region_table", &run->h5);
    if (group < 0)
        return run_fail(run, -EINVAL, "region_table: %s", run->h5.text);
    uint64_t length = RUN_ANY_LENGTH;
    int result = run_load_texts(run, group, "region_table", "names", &length, RUN_REPAIR, &run->names);
    h5_close(group);
    if (result == 0 && length > UINT32_MAX)
        result = run_fail(run, -EINVAL, "region_table/names: too many");
    run->region_count = result ? 0 : length;
    return result ? result : names_are_unique(run);
}

int run_read_index(struct sl_run *run)
{
    int result = load_names(run);
    if (result)
        return result;
    struct columns columns = {.length = RUN_ANY_LENGTH};
    columns.group = h5_group_open(run->file, index_name, &run->h5);
    if (columns.group < 0)
        return run_fail(run, -EINVAL, "%s: %s", index_name, run->h5.text);
    result = run->aggregate ? load_aggregate(run, &columns) : load_columnar(run, &columns);
    if (result == 0 && !run->aggregate)
        result = open_event_columns(run);
    if (result == 0)
        result = take_rows(run, &columns);
    bool summarised = columns.summaries || run->aggregate;
    columns_finish(&columns);
    return result || summarised ? result : run_summarise(run);
}
