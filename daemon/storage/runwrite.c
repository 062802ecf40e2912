// See runwrite.h. Calls arrive as rows of structs and leave as columns: a batch is turned over at a time, and the
// columns collect it (column.h). Names are written last, when it is known which have rows.
#include "storage/runwrite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>

#include "base/alloc.h"
#include "base/files.h"
#include "base/testpoint.h"
#include "base/utf8.h"
#include "core/procfs.h"
#include "storage/runwrite-parts.h"

enum { TEXT_LIMIT = 60000 };                 // of a metadata value, as scope-profiler cuts it
static const int64_t TIME_LIMIT_NS = INT64_C(1) << 62;  // its reader doubles times

struct run_region {
    char *name;
    uint32_t number;   // runwrite_region's
    int64_t position;  // in region_table/names, −1 without a row
    UT_hash_handle hh;
};

struct run_pair {
    uint64_t rank_and_region;
    UT_hash_handle hh;
};

// -- errors -----------------------------------------------------------------------------------------------------------

int runwrite_fail(struct runwrite *w, int code, const char *what, const char *why)
{
    if (w->code)
        return w->code;
    w->code = code;
    snprintf(w->message, sizeof w->message, "cannot write run file %s: %s: %s", w->path, what, why);
    return code;
}

int runwrite_fail_hdf5(struct runwrite *w, const char *what)
{
    return runwrite_fail(w, w->error.code, what, w->error.text);
}

const char *runwrite_error(const struct runwrite *w)
{
    return w->message;
}

// -- opening ----------------------------------------------------------------------------------------------------------

#define TEMPORARY ".scoped-lane-"

// Files of our tag whose writer is no more: it was killed. Their names say which process it was.
static void clear_away(const struct runwrite *w, const char *directory)
{
    DIR *files = opendir(*directory ? directory : ".");
    struct dirent *entry;
    size_t length = strlen(w->options.tag);
    while (files && (entry = readdir(files))) {
        unsigned pid;
        unsigned long long start_time;
        const char *tag = entry->d_name + strlen(TEMPORARY);
        if (strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0 && strncmp(tag, w->options.tag, length) == 0 &&
            sscanf(tag + length, "-%u.%llu-", &pid, &start_time) == 2 && !procfs_is_alive(pid, start_time))
            unlinkat(dirfd(files), entry->d_name, 0);
    }
    if (files)
        closedir(files);
}

// A name beside the final one that no *.h5 pattern catches. Made here and exclusively, so that HDF5, which opens by
// name, finds a file of ours.
static int make_temporary(struct runwrite *w, const char *directory)
{
    struct procfs_stat self = {0};
    struct stat status;
    if (stat(w->path, &status) == 0 && S_ISDIR(status.st_mode))
        return runwrite_fail(w, -EISDIR, "taking the name", strerror(EISDIR));
    procfs_stat((uint32_t)getpid(), 0, &self);
    for (int attempt = 0; attempt < 16; attempt++) {
        uint64_t random = 0;
        (void)!getrandom(&random, sizeof random, 0);
        free(w->temporary);
        w->temporary = alloc_printf("%s" TEMPORARY "%s-%u.%llu-%016" PRIx64 ".tmp", directory, w->options.tag ? w->options.tag : "",
                                    (unsigned)getpid(), (unsigned long long)self.start_time, random);
        int fd = open(w->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            close(fd);
            w->created = true;
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    int code = -errno;
    return runwrite_fail(w, code, "making a temporary file beside it", strerror(-code));
}

static int put_text(struct runwrite *w, h5_id object, const char *key, const char *value)
{
    struct buffer text = {0};
    size_t length = strlen(value);
    utf8_append(&text, value, length > TEXT_LIMIT ? TEXT_LIMIT : length);
    if (length > TEXT_LIMIT)
        buffer_text(&text, "...[truncated]");
    buffer_append(&text, "", 1);
    int result = h5_attribute_put_text(object, key, text.data, &w->error);
    buffer_finish(&text);
    return result;
}

static int make_groups(struct runwrite *w)
{
    struct h5_error *error = &w->error;
    int result = h5_attribute_put_int(w->file, "scope_profiler_schema", w->options.schema, error);
    if (result == 0)
        result = h5_attribute_put_text(w->file, "storage_layout", "columnar", error);
    if (result)
        return result;
    w->metadata = h5_group_create(w->file, "metadata", error);
    w->index_group = w->metadata < 0 ? -1 : h5_group_create(w->file, "rank_region_index", error);
    w->event_group = w->index_group < 0 ? -1 : h5_group_create(w->file, "events", error);
    if (w->event_group < 0)
        return error->code;
    return h5_attribute_put_int(w->metadata, "start_time_ns", w->options.start_ns, error);
}

static enum h5_type narrowest(int64_t highest)
{
    return highest <= INT8_MAX ? H5_I8 : highest <= INT16_MAX ? H5_I16 : highest <= INT32_MAX ? H5_I32 : H5_I64;
}

static void init_columns(struct runwrite *w)
{
    static const struct {
        const char *name;
        enum h5_type type;
    } index[INDEX_COLUMNS] = {
        [INDEX_REGION] = {"region_ids", H5_U32},        [INDEX_RANK] = {"ranks", H5_U32},
        [INDEX_OFFSET] = {"event_offsets", H5_U64},     [INDEX_COUNT] = {"event_counts", H5_U64},
        [INDEX_LINE] = {"source_lines", H5_I64},        [INDEX_FILE] = {"source_files", H5_STRING},
        [INDEX_TEXT] = {"source_texts", H5_STRING},     [INDEX_TAGS] = {"tags", H5_STRING},
        [INDEX_EXCLUSIVE] = {"exclusive_totals", H5_I64}, [INDEX_SUMMARY] = {"summary_statistics", H5_SUMMARY},
    };
    const struct runwrite_options *options = &w->options;
    bool deltas = options->schema == 3;
    int64_t longest = options->longest_await_ns;
    for (int i = 0; i < INDEX_COLUMNS; i++)
        column_init(&w->index[i], w->index_group, index[i].name, index[i].type, COLUMN_UNKNOWN, options->compress);
    const char *names[EVENT_COLUMNS] = {deltas ? "start_deltas" : "start_times", deltas ? "durations" : "end_times",
                                        "thread_ids", "task_ids", "await_ns"};
    enum h5_type types[EVENT_COLUMNS] = {H5_I64, H5_I64, narrowest(options->highest_thread),
                                         narrowest(options->highest_task),
                                         narrowest(longest > 0 ? longest : INT64_MAX)};
    for (int i = 0; i < EVENT_COLUMNS; i++)
        column_init(&w->events[i], w->event_group, names[i], types[i], options->calls, options->compress);
}

int runwrite_open(struct runwrite **out, const char *path, const struct runwrite_options *options)
{
    struct runwrite *w = *out = alloc_zeroed(1, sizeof *w);
    w->path = alloc_text(path);
    w->options = *options;
    w->options.schema = options->schema ? options->schema : 2;
    w->options.threads |= options->tasks;
    if (w->options.schema != 2 && w->options.schema != 3)
        return runwrite_fail(w, -EINVAL, "choosing the schema", "only 2 and 3 can be written");
    const char *slash = strrchr(path, '/');
    char *directory = alloc_printf("%.*s", slash ? (int)(slash - path) + 1 : 0, path);
    if (options->tag)
        clear_away(w, directory);
    int result = make_temporary(w, directory);
    free(directory);
    if (result)
        return result;
    TESTPOINT(file_made);
    w->file = h5_create(w->temporary, &w->error);
    if (w->file < 0 || make_groups(w) < 0)
        return runwrite_fail_hdf5(w, "beginning it");
    init_columns(w);
    return 0;
}

// -- metadata ---------------------------------------------------------------------------------------------------------

int runwrite_metadata_int(struct runwrite *w, const char *key, int64_t value)
{
    if (w->code)
        return w->code;
    return h5_attribute_put_int(w->metadata, key, value, &w->error) ? runwrite_fail_hdf5(w, key) : 0;
}

int runwrite_metadata_text(struct runwrite *w, const char *key, const char *value)
{
    if (w->code)
        return w->code;
    return put_text(w, w->metadata, key, value) ? runwrite_fail_hdf5(w, key) : 0;
}

static int own_group(struct runwrite *w)
{
    if (!w->own_group)
        w->own_group = h5_group_create(w->file, "scoped_lane", &w->error);
    return w->own_group < 0 ? (int)w->own_group : 0;
}

int runwrite_fact_int(struct runwrite *w, const char *key, int64_t value)
{
    if (w->code)
        return w->code;
    return own_group(w) || h5_attribute_put_int(w->own_group, key, value, &w->error) ? runwrite_fail_hdf5(w, key) : 0;
}

int runwrite_fact_text(struct runwrite *w, const char *key, const char *value)
{
    if (w->code)
        return w->code;
    return own_group(w) || put_text(w, w->own_group, key, value) ? runwrite_fail_hdf5(w, key) : 0;
}

// -- region names -----------------------------------------------------------------------------------------------------

// What the file can hold: no zero byte, no broken UTF-8, and no " > ", by which scope-profiler joins the names of a
// path.
static void clean_name(struct buffer *into, const char *name, size_t length)
{
    size_t from = 0;
    for (size_t at = 0; at < length; at++) {
        bool arrow = name[at] == '>' && at > 0 && name[at - 1] == ' ' && at + 1 < length && name[at + 1] == ' ';
        if (!arrow && name[at] != 0)
            continue;
        utf8_append(into, name + from, at - from);
        buffer_text(into, arrow ? "\u203a" : "\ufffd");
        from = at + 1;
    }
    utf8_append(into, name + from, length - from);
}

uint32_t runwrite_region(struct runwrite *w, const char *name, size_t length)
{
    struct buffer clean = {0};
    struct run_region *region;
    clean_name(&clean, name, length);
    HASH_FIND(hh, w->by_name, clean.data, clean.length, region);
    if (!region) {
        region = alloc_zeroed(1, sizeof *region);
        size_t size = clean.length;
        buffer_append(&clean, "", 1);
        region->name = alloc_text(clean.data);
        region->number = w->region_count;
        region->position = -1;
        HASH_ADD_KEYPTR(hh, w->by_name, region->name, size, region);
        if (w->region_count == w->region_capacity) {
            w->region_capacity = w->region_capacity ? w->region_capacity * 2 : 64;
            w->regions = alloc_resize(w->regions, w->region_capacity, sizeof *w->regions);
            w->named = alloc_resize(w->named, w->region_capacity, sizeof *w->named);
        }
        w->regions[w->region_count++] = region;
    }
    buffer_finish(&clean);
    return region->number;
}

static int write_names(struct runwrite *w)
{
    struct column names;
    h5_id group = h5_group_create(w->file, "region_table", &w->error);
    if (group < 0)
        return (int)group;
    column_init(&names, group, "names", H5_STRING, COLUMN_UNKNOWN, false);
    int result = 0;
    for (uint32_t i = 0; result == 0 && i < w->named_count; i++)
        result = column_text(&names, w->named[i]->name, &w->error);
    if (result == 0)
        result = column_end(&names, &w->error);
    column_drop(&names);
    h5_close(group);
    return result;
}

// -- rows and calls ---------------------------------------------------------------------------------------------------

int runwrite_row_begin(struct runwrite *w, uint32_t region, uint32_t rank, const char *source_file, int64_t source_line)
{
    if (w->code)
        return w->code;
    if (w->row.open)
        return runwrite_fail(w, -EINVAL, "beginning a row", "the last one has not been ended");
    if (region >= w->region_count)
        return runwrite_fail(w, -EINVAL, "beginning a row", "no such region");
    w->row = (struct run_row){
        .open = true,
        .region = region,
        .rank = rank,
        .source_file = alloc_text(source_file ? source_file : ""),
        .source_line = source_line,
        .first = w->calls,
    };
    return 0;
}

struct batch {
    int64_t columns[EVENT_COLUMNS][CALL_BATCH];
    int64_t durations[CALL_BATCH];
};

static const char *turn_over(struct batch *batch, const struct run_call *calls, size_t count, bool tasks)
{
    bool backward = false, far = false, waits = false;
    for (size_t i = 0; i < count; i++) {
        const struct run_call *call = &calls[i];
        int64_t duration = (int64_t)((uint64_t)call->end_ns - (uint64_t)call->start_ns);
        batch->columns[EVENT_START][i] = call->start_ns;
        batch->columns[EVENT_END][i] = call->end_ns;
        batch->columns[EVENT_THREAD][i] = call->thread;
        batch->columns[EVENT_TASK][i] = call->task;
        batch->columns[EVENT_AWAIT][i] = call->await_ns;
        batch->durations[i] = duration;
        backward |= call->end_ns < call->start_ns;
        far |= call->start_ns <= -TIME_LIMIT_NS || call->end_ns >= TIME_LIMIT_NS;
        waits |= call->await_ns < 0 || call->await_ns > duration;
    }
    return backward ? "a call ends before it starts" : far ? "a call's time is beyond 2^62 ns" :
           waits && tasks ? "a call waits for less than nothing or longer than it lasts" : NULL;
}

static int64_t add_saturating(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? (a < 0 ? INT64_MIN : INT64_MAX) : sum;
}

// Mean and squares of the batch by two passes over it, joined to those so far by the rule of Chan, Golub and LeVeque,
// all of them of distances from the first duration: no small difference of large sums, whatever the durations.
static void summarise(struct run_row *row, const struct batch *batch, size_t count)
{
    struct h5_summary *all = &row->summary;
    const int64_t *durations = batch->durations, *starts = batch->columns[EVENT_START],
                  *ends = batch->columns[EVENT_END];
    if (row->count == 0) {
        all->minimum = INT64_MAX, all->maximum = INT64_MIN;
        all->start_minimum = INT64_MAX, all->end_maximum = INT64_MIN;
        all->first = durations[0];
    }
    all->last = durations[count - 1];
    int64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total = add_saturating(total, durations[i]);
        all->minimum = durations[i] < all->minimum ? durations[i] : all->minimum;
        all->maximum = durations[i] > all->maximum ? durations[i] : all->maximum;
        all->start_minimum = starts[i] < all->start_minimum ? starts[i] : all->start_minimum;
        all->end_maximum = ends[i] > all->end_maximum ? ends[i] : all->end_maximum;
    }
    double mean = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        mean += (double)(durations[i] - all->first);
    mean /= (double)count;
    for (size_t i = 0; i < count; i++) {
        double distance = (double)(durations[i] - all->first) - mean;
        squares += distance * distance;
    }
    double before = (double)row->count, together = before + (double)count, apart = mean - all->mean;
    all->mean += apart * (double)count / together;
    all->m2 += squares + apart * apart * before * (double)count / together;
    all->total = add_saturating(all->total, total);
}

// Start gaps within a row; the chain begins with the absolute time of the row's first call.
static void make_deltas(struct run_row *row, struct batch *batch, size_t count)
{
    int64_t *starts = batch->columns[EVENT_START], previous = row->count ? row->previous_start_ns : 0;
    for (size_t i = 0; i < count; i++) {
        int64_t start = starts[i];
        starts[i] = start - previous;
        previous = start;
    }
    row->previous_start_ns = previous;
    memcpy(batch->columns[EVENT_END], batch->durations, count * sizeof *batch->durations);
}

static int write_batch(struct runwrite *w, const struct run_call *calls, size_t count)
{
    struct batch batch;
    const char *wrong = turn_over(&batch, calls, count, w->options.tasks);
    if (wrong)
        return runwrite_fail(w, -EINVAL, w->regions[w->row.region]->name, wrong);
    summarise(&w->row, &batch, count);
    if (w->options.schema == 3)
        make_deltas(&w->row, &batch, count);
    int columns = w->options.tasks ? EVENT_COLUMNS : w->options.threads ? EVENT_THREAD + 1 : EVENT_END + 1;
    for (int i = 0; i < columns; i++)
        if (column_ints(&w->events[i], batch.columns[i], count, &w->error))
            return runwrite_fail_hdf5(w, "writing calls");
    w->row.count += count;
    w->calls += count;
    return 0;
}

int runwrite_row_calls(struct runwrite *w, const struct run_call *calls, size_t count)
{
    if (!w->code && !w->row.open)
        runwrite_fail(w, -EINVAL, "writing calls", "no row has been begun");
    while (!w->code && count) {
        size_t now = count < CALL_BATCH ? count : CALL_BATCH;
        write_batch(w, calls, now);
        calls += now;
        count -= now;
    }
    return w->code;
}

static int64_t position_of(struct runwrite *w, struct run_region *region)
{
    if (region->position < 0) {
        region->position = w->named_count;
        w->named[w->named_count++] = region;
    }
    return region->position;
}

static bool pair_is_new(struct runwrite *w, const struct run_row *row)
{
    uint64_t key = (uint64_t)row->rank << 32 | row->region;
    struct run_pair *pair;
    HASH_FIND(hh, w->pairs, &key, sizeof key, pair);
    if (pair)
        return false;
    pair = alloc_zeroed(1, sizeof *pair);
    pair->rank_and_region = key;
    HASH_ADD(hh, w->pairs, rank_and_region, sizeof key, pair);
    return true;
}

static int write_index_row(struct runwrite *w, int64_t exclusive_total_ns)
{
    struct run_row *row = &w->row;
    struct h5_error *error = &w->error;
    int64_t integers[INDEX_COLUMNS] = {
        [INDEX_REGION] = position_of(w, w->regions[row->region]),
        [INDEX_RANK] = row->rank,
        [INDEX_OFFSET] = (int64_t)row->first,
        [INDEX_COUNT] = (int64_t)row->count,
        [INDEX_LINE] = row->source_line,
        [INDEX_EXCLUSIVE] = exclusive_total_ns,
    };
    const char *texts[INDEX_COLUMNS] = {[INDEX_FILE] = row->source_file, [INDEX_TEXT] = "", [INDEX_TAGS] = "[]"};
    int result = 0;
    row->summary.mean = (double)row->summary.total / (double)row->count;
    for (int i = 0; result == 0 && i < INDEX_COLUMNS; i++)
        result = i == INDEX_SUMMARY ? column_summary(&w->index[i], &row->summary, error) :
                 texts[i]           ? column_text(&w->index[i], texts[i], error) :
                                      column_int(&w->index[i], integers[i], error);
    return result ? runwrite_fail_hdf5(w, "writing the index") : 0;
}

int runwrite_row_end(struct runwrite *w, int64_t exclusive_total_ns)
{
    if (w->code)
        return w->code;
    if (!w->row.open)
        return runwrite_fail(w, -EINVAL, "ending a row", "none has been begun");
    if (w->row.count && !pair_is_new(w, &w->row))
        runwrite_fail(w, -EEXIST, w->regions[w->row.region]->name, "the rank already has a row of this region");
    else if (w->row.count)
        write_index_row(w, exclusive_total_ns);
    free(w->row.source_file);
    w->row.source_file = NULL;
    w->row.open = false;
    return w->code;
}

// -- the end ----------------------------------------------------------------------------------------------------------

static int end_columns(struct runwrite *w)
{
    int events = w->options.tasks ? EVENT_COLUMNS : w->options.threads ? EVENT_THREAD + 1 : EVENT_END + 1;
    int result = 0;
    for (int i = 0; result == 0 && i < events; i++)
        result = column_end(&w->events[i], &w->error);
    for (int i = 0; result == 0 && i < INDEX_COLUMNS; i++)
        result = column_end(&w->index[i], &w->error);
    return result ? result : write_names(w);
}

static void close_groups(struct runwrite *w)
{
    for (int i = 0; i < EVENT_COLUMNS; i++)
        column_drop(&w->events[i]);
    for (int i = 0; i < INDEX_COLUMNS; i++)
        column_drop(&w->index[i]);
    run_tables_drop(w);
    h5_id *groups[] = {&w->metadata, &w->index_group, &w->event_group, &w->own_group};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        h5_close(*groups[i]);
        *groups[i] = 0;
    }
}

static int sync_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int result = fsync(fd) < 0 ? -errno : 0;
    close(fd);
    return result;
}

static int close_file(struct runwrite *w)
{
    h5_id file = w->file;
    close_groups(w);
    w->file = 0;
    return file > 0 && h5_close_file(file, &w->error) ? runwrite_fail_hdf5(w, "closing it") : 0;
}

int runwrite_publish(struct runwrite *w)
{
    if (w->code)
        return w->code;
    if (!w->created)
        return runwrite_fail(w, -EINVAL, "publishing", "it has been published");
    if (w->row.open || w->own.group)
        return runwrite_fail(w, -EINVAL, "publishing", "a row or a table has not been ended");
    if (end_columns(w) || run_tables_end(w))
        return runwrite_fail_hdf5(w, "finishing it");
    if (close_file(w))
        return w->code;
    TESTPOINT(file_closed);
    int result = sync_file(w->temporary);
    TESTPOINT(file_synced);
    if (result)
        return runwrite_fail(w, result, "fsync", strerror(-result));
    if (rename(w->temporary, w->path) < 0) {
        result = -errno;
        return runwrite_fail(w, result, "giving it its name", strerror(-result));
    }
    TESTPOINT(file_renamed);
    w->created = false;
    result = files_sync_directory(w->path);
    TESTPOINT(file_published);
    return result ? runwrite_fail(w, result, "fsync of its directory", strerror(-result)) : 0;
}

static void free_names(struct runwrite *w)
{
    struct run_region *region, *next_region;
    HASH_ITER(hh, w->by_name, region, next_region) {
        HASH_DEL(w->by_name, region);
        free(region->name);
        free(region);
    }
    struct run_pair *pair, *next_pair;
    HASH_ITER(hh, w->pairs, pair, next_pair) {
        HASH_DEL(w->pairs, pair);
        free(pair);
    }
    free(w->regions);
    free(w->named);
}

void runwrite_close(struct runwrite *w)
{
    if (!w)
        return;
    close_file(w);
    if (w->created) {
        (void)!truncate(w->temporary, 0);  // HDF5 keeps a file open that it could not close
        unlink(w->temporary);
    }
    free_names(w);
    free(w->row.source_file);
    free(w->temporary);
    free(w->path);
    free(w);
}
