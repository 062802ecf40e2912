// Opening a run file: version, metadata, index, tables; and the small questions about what has been read. See
// scoped_lane_run.h.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "storage/runread.h"

// -- version ----------------------------------------------------------------------------------------------------------

static int wrong_type(struct sl_run *run, const char *key)
{
    return run_fail(run, -EINVAL, "not a run file: the attribute %s must be an integer", key);
}

// Without the attribute a file is of schema 1. So would be any other HDF5 file: something of a run has to be there.
static int read_missing_version(struct sl_run *run, const char *key)
{
    if (h5_exists(run->file, "region_table") || h5_exists(run->file, "rank_region_index"))
        return run_fail(run, -EINVAL, "not a run file: it has tables of one, but no attribute %s", key);
    run->schema = 1;
    return 0;
}

static int read_version(struct sl_run *run)
{
    static const char key[] = "scope_profiler_schema";
    struct h5_attribute version = {0};
    int kind = h5_attribute_get(run->file, key, &version, &run->h5);
    buffer_finish(&version.text);
    if (kind < 0)
        return run_fail(run, kind, "%s: %s", key, run->h5.text);
    if (kind == H5_ATTRIBUTE_NONE)
        return read_missing_version(run, key);
    if (kind != H5_ATTRIBUTE_INTEGER)
        return wrong_type(run, key);
    if (version.integer < 1)
        return run_fail(run, -EINVAL, "not a run file: schema %" PRId64 ", but versions are positive", version.integer);
    if (version.integer > 3)
        return run_fail(run, -ENOTSUP,
                        "schema %" PRId64 " is newer than 3, the newest this program knows: a newer scoped-lane is "
                        "needed",
                        version.integer);
    run->schema = (int)version.integer;
    return 0;
}

// Text of fixed length is bytes to scope-profiler, and never equal to "aggregate".
static int read_layout(struct sl_run *run)
{
    struct h5_attribute layout = {0};
    int kind = h5_attribute_get(run->file, "storage_layout", &layout, &run->h5);
    run->aggregate = kind == H5_ATTRIBUTE_TEXT && !layout.fixed && strcmp(layout.text.data, "aggregate") == 0;
    buffer_finish(&layout.text);
    return 0;
}

// -- metadata and facts -----------------------------------------------------------------------------------------------

struct attribute_list {
    struct run_attributes *into;
    h5_id object;
};

static void take_value(struct run_attribute *attribute, int kind, const struct h5_attribute *value)
{
    if (kind == H5_ATTRIBUTE_INTEGER) {
        attribute->text = alloc_printf("%" PRId64, value->integer);
        attribute->number = value->integer;
        attribute->is_number = true;
    } else if (kind == H5_ATTRIBUTE_REAL) {
        attribute->text = alloc_printf("%.17g", value->real);
        attribute->is_number = value->real > -9e18 && value->real < 9e18;
        attribute->number = attribute->is_number ? (int64_t)value->real : 0;
    } else if (kind == H5_ATTRIBUTE_TEXT) {
        struct buffer text = {0};
        utf8_append(&text, value->text.data, value->text.length - 1);
        buffer_append(&text, "", 1);
        attribute->text = text.data;
        char *end;
        errno = 0;
        attribute->number = strtoll(text.data, &end, 10);
        attribute->is_number = errno == 0 && end != text.data && *end == 0;
    }
}

static bool take_attribute(void *context, const char *name)
{
    struct attribute_list *list = context;
    struct h5_attribute value = {0};
    struct h5_error ignored;
    int kind = h5_attribute_get(list->object, name, &value, &ignored);
    struct run_attributes *into = list->into;
    if ((into->count & (into->count + 1)) == 0)  // full at 0, 1, 3, 7, …
        into->each = alloc_resize(into->each, into->count * 2 + 1, sizeof *into->each);
    struct run_attribute *attribute = &into->each[into->count++];
    *attribute = (struct run_attribute){.key = alloc_text(name)};
    take_value(attribute, kind, &value);
    buffer_finish(&value.text);
    return true;
}

static int read_attributes(struct sl_run *run, const char *group_name, struct run_attributes *into)
{
    if (!h5_exists(run->file, group_name))
        return 0;
    h5_id group = h5_group_open(run->file, group_name, &run->h5);
    if (group < 0)
        return run_fail(run, (int)group, "%s: %s", group_name, run->h5.text);
    struct attribute_list list = {into, group};
    int result = h5_attributes(group, take_attribute, &list, &run->h5);
    h5_close(group);
    return result ? run_fail(run, result, "%s: %s", group_name, run->h5.text) : 0;
}

static const struct run_attribute *find(const struct run_attributes *attributes, const char *key)
{
    for (size_t i = 0; i < attributes->count; i++)
        if (strcmp(attributes->each[i].key, key) == 0)
            return &attributes->each[i];
    return NULL;
}

static const char *find_text(const struct run_attributes *attributes, const char *key)
{
    const struct run_attribute *attribute = find(attributes, key);
    return attribute ? attribute->text : NULL;
}

static bool find_int(const struct run_attributes *attributes, const char *key, int64_t *value)
{
    const struct run_attribute *attribute = find(attributes, key);
    if (attribute && attribute->is_number)
        *value = attribute->number;
    return attribute && attribute->is_number;
}

static void attributes_finish(struct run_attributes *attributes)
{
    for (size_t i = 0; i < attributes->count; i++) {
        free(attributes->each[i].key);
        free(attributes->each[i].text);
    }
    free(attributes->each);
}

// -- what follows from the rows ---------------------------------------------------------------------------------------

static int count_ranks(struct sl_run *run)
{
    if (run->schema == 1 || run->row_count == 0)
        return 0;
    int64_t size = 1;
    const struct run_attribute *stated = find(&run->metadata, "mpi_size");
    if (stated && !find_int(&run->metadata, "mpi_size", &size))
        return run_fail(run, -EINVAL, "metadata: mpi_size is not a number");
    uint64_t ranks = size < 0 ? 0 : size > UINT32_MAX ? UINT32_MAX : (uint64_t)size;
    for (size_t i = 0; i < run->row_count; i++)
        if (run->rows[i].rank >= ranks)
            ranks = (uint64_t)run->rows[i].rank + 1;
    run->rank_count = ranks > UINT32_MAX ? UINT32_MAX : (uint32_t)ranks;
    return 0;
}

static int compare_present(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static int list_ranks(struct sl_run *run)
{
    const struct run_lanes *lanes = &run->lanes;
    size_t most = run->row_count + lanes->thread_span_count + lanes->task_span_count, found = 0;
    uint32_t *ranks = run->present = malloc((most + 1) * sizeof *ranks);
    if (!ranks)
        return run_fail(run, -ENOMEM, "%s", strerror(ENOMEM));
    for (size_t i = 0; i < run->row_count; i++)
        ranks[found++] = run->rows[i].rank;
    for (size_t i = 0; i < lanes->thread_span_count; i++)
        ranks[found++] = lanes->thread_spans[i].rank;
    for (size_t i = 0; i < lanes->task_span_count; i++)
        ranks[found++] = lanes->task_spans[i].rank;
    qsort(ranks, found, sizeof *ranks, compare_present);
    for (size_t i = 0; i < found; i++)
        if (i == 0 || ranks[i - 1] != ranks[i])  // what has been moved down is equal to what it is compared with
            ranks[run->present_count++] = ranks[i];
    return 0;
}

struct row_key {
    uint32_t rank;
    int64_t first_ns;  // entry of the region, on any rank
    uint32_t region;
    size_t row;
};

static int compare_keys(const void *a, const void *b)
{
    const struct row_key *left = a, *right = b;
    if (left->rank != right->rank)
        return left->rank < right->rank ? -1 : 1;
    if (left->first_ns != right->first_ns)
        return left->first_ns < right->first_ns ? -1 : 1;
    return left->region < right->region ? -1 : left->region > right->region;
}

// scope-profiler sorts regions by their first entry on any rank, and equal intervals nest in the order of their
// regions.
static int sort_rows(struct sl_run *run)
{
    int64_t *first_ns = malloc((run->region_count + 1) * sizeof *first_ns);
    struct row_key *keys = malloc((run->row_count + 1) * sizeof *keys);
    run->by_rank = malloc((run->row_count + 1) * sizeof *run->by_rank);
    int result = first_ns && keys && run->by_rank ? 0 : run_fail(run, -ENOMEM, "%s", strerror(ENOMEM));
    for (size_t i = 0; result == 0 && i < run->region_count; i++)
        first_ns[i] = INT64_MAX;
    for (size_t i = 0; result == 0 && i < run->row_count; i++)
        if (run->rows[i].start_minimum_ns < first_ns[run->rows[i].region])
            first_ns[run->rows[i].region] = run->rows[i].start_minimum_ns;
    for (size_t i = 0; result == 0 && i < run->row_count; i++)
        keys[i] = (struct row_key){run->rows[i].rank, first_ns[run->rows[i].region], run->rows[i].region, i};
    if (result == 0)
        qsort(keys, run->row_count, sizeof *keys, compare_keys);
    for (size_t i = 0; result == 0 && i < run->row_count; i++)
        run->by_rank[i] = keys[i].row;
    free(keys);
    free(first_ns);
    return result;
}

static void find_origin(struct sl_run *run)
{
    if (find_int(&run->metadata, "start_time_ns", &run->origin_ns))
        return;
    bool any = false;
    for (size_t i = 0; i < run->row_count; i++) {
        const struct sl_run_row *row = &run->rows[i];
        if (row->calls && !run->aggregate && (!any || row->start_minimum_ns < run->origin_ns)) {
            run->origin_ns = row->start_minimum_ns;
            any = true;
        }
    }
}

// -- opening and closing ----------------------------------------------------------------------------------------------

static int read_all(struct sl_run *run)
{
    int result = read_version(run);
    if (result == 0)
        result = read_layout(run);
    if (result == 0)
        result = read_attributes(run, "metadata", &run->metadata);
    if (result == 0)
        result = run->schema == 1 ? run_read_legacy(run) : run_read_index(run);
    if (result == 0 && run->schema == 1 && run->rank_count == 0 && run->metadata.count == 0)
        result = run_fail(run, -EINVAL, "not a run file: it has no attribute scope_profiler_schema, and no ranks");
    if (result == 0 && run->schema > 1)
        result = run_read_lanes(run);
    if (result == 0 && run->schema > 1)
        result = read_attributes(run, "scoped_lane", &run->facts);
    if (result == 0)
        result = count_ranks(run);
    if (result == 0)
        result = list_ranks(run);
    if (result == 0)
        result = sort_rows(run);
    if (result == 0)
        find_origin(run);
    return result;
}

int sl_run_open(struct sl_run **out, const char *path, char error[SL_RUN_ERROR_MAX])
{
    struct sl_run *run = alloc_zeroed(1, sizeof *run);
    *out = NULL;
    run->path = alloc_text(path);
    run->error = error;
    run->doing = "open";
    run->file = h5_open(path, &run->h5);
    int result = run->file < 0 ? (int)run->file : read_all(run);
    if (run->file == -EINVAL)
        run_fail(run, result, "not a run file: %s", run->h5.text);
    else if (run->file < 0)
        run_fail(run, result, "%s", run->h5.text);
    run->error = NULL;
    run->doing = "read";
    if (result)
        sl_run_close(run);
    else
        *out = run;
    return result;
}

void sl_run_close(struct sl_run *run)
{
    if (!run)
        return;
    for (int i = 0; i < EVENT_COLUMNS; i++)
        h5_close(run->events[i]);
    if (run->file > 0)
        h5_close_file(run->file, &run->h5);
    for (size_t i = 0; run->groups && i < run->row_count; i++)
        free(run->groups[i]);
    run_tables_finish(run);
    run_lanes_finish(&run->lanes);
    attributes_finish(&run->metadata);
    attributes_finish(&run->facts);
    run_texts_finish(&run->names);
    run_texts_finish(&run->files);
    run_texts_finish(&run->tags);
    run_texts_finish(&run->call_metadata);
    free(run->groups);
    free(run->present);
    free(run->by_rank);
    free(run->offsets);
    free(run->rows);
    free(run->path);
    free(run);
}

// -- questions --------------------------------------------------------------------------------------------------------

int sl_run_schema(const struct sl_run *run)
{
    return run->schema;
}

bool sl_run_is_aggregate(const struct sl_run *run)
{
    return run->aggregate;
}

bool sl_run_has_threads(const struct sl_run *run)
{
    return run->events[EVENT_THREAD] > 0;
}

bool sl_run_has_tasks(const struct sl_run *run)
{
    return run->events[EVENT_TASK] > 0;
}

uint32_t sl_run_rank_count(const struct sl_run *run)
{
    return run->rank_count;
}

const uint32_t *sl_run_ranks(const struct sl_run *run, size_t *count)
{
    *count = run->present_count;
    return run->present;
}

const char *sl_run_metadata_text(const struct sl_run *run, const char *key)
{
    return find_text(&run->metadata, key);
}

bool sl_run_metadata_int(const struct sl_run *run, const char *key, int64_t *value)
{
    return find_int(&run->metadata, key, value);
}

const char *sl_run_fact_text(const struct sl_run *run, const char *key)
{
    return find_text(&run->facts, key);
}

bool sl_run_fact_int(const struct sl_run *run, const char *key, int64_t *value)
{
    return find_int(&run->facts, key, value);
}

int64_t sl_run_origin_ns(const struct sl_run *run)
{
    return run->origin_ns;
}

size_t sl_run_region_count(const struct sl_run *run)
{
    return run->region_count;
}

const char *sl_run_region_name(const struct sl_run *run, size_t region)
{
    return run->names.texts[region];
}

size_t sl_run_row_count(const struct sl_run *run)
{
    return run->row_count;
}

const struct sl_run_row *sl_run_row(const struct sl_run *run, size_t row)
{
    return &run->rows[row];
}
