// Spool to run file, in two passes: the first fills the model and counts the calls of each (rank, region); the second puts each
// call into its row's part of a scratch file, in ns of the timeline. Then every row is sorted and written.
//
// Order within a row is that of entry: by start; of equal starts the longer first; of equal intervals the later record first, for
// a parent is recorded after its child. (Lanes need not be kept apart: readers sort by time within each.)
#include "storage/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/testpoint.h"
#include "storage/convert-tables.h"
#include "storage/runwrite.h"
#include "storage/spool.h"

enum { CHUNK_CALLS = 8192 };

struct sorted_call {
    struct run_call call;
    uint64_t sequence;
};

// One (rank, region).
struct row {
    uint32_t name;
    struct model_process *process;
    const struct model_region *place;  // the first of its local regions: file and line
    uint64_t count, first, filled;     // in the scratch file
    int64_t exclusive_ns;
    bool whole;  // every call's parent is in the file: exclusive_ns can be told
};

struct conversion {
    const struct convert_options *options;
    struct convert_result *result;
    struct spool_reader reader;
    struct model model;        // of the first pass: complete
    struct model again;        // of the second
    struct row *rows;
    uint32_t row_count;
    uint32_t **row_of;         // by process number and local region id: 1 + row, 0 none
    uint64_t **counts;         // the same: calls
    uint32_t *counts_room;
    uint64_t calls;
    struct sorted_call *scratch;
    size_t scratch_bytes;
    uint64_t sequence;
    int64_t longest_await_ns;
    struct convert_facts facts;
};

static int fail(struct conversion *c, int error, const char *what, const char *path)
{
    snprintf(c->result->problem, sizeof c->result->problem, "cannot %s %s: %s", what, path, strerror(-error));
    return error;
}

static void progress(const struct conversion *c, double part)
{
    if (c->options->on_progress)
        c->options->on_progress(c->options->context, part);
}

// ---- first pass

static uint64_t *count_place(struct conversion *c, const struct model_process *process, uint32_t region)
{
    uint32_t number = process->number;
    if (region >= c->counts_room[number]) {
        uint32_t larger = c->counts_room[number] ? c->counts_room[number] : 64;
        while (larger <= region)
            larger *= 2;
        c->counts[number] = alloc_resize(c->counts[number], larger, sizeof **c->counts);
        memset(c->counts[number] + c->counts_room[number], 0, (larger - c->counts_room[number]) * sizeof **c->counts);
        c->counts_room[number] = larger;
    }
    return &c->counts[number][region];
}

// Ids nobody explained share the place of region 0, "(other)".
static uint32_t region_index(const struct model_process *process, uint32_t id)
{
    return id < process->region_count && process->regions[id].file ? id : 0;
}

static void count_call(void *context, struct model_process *process, const struct model_call *call)
{
    struct conversion *c = context;
    if (process->number >= c->facts.process_room) {  // a new process
        uint32_t room = c->facts.process_room, larger = room ? room * 2 : 16;
        while (larger <= process->number)
            larger *= 2;
        c->counts = alloc_resize(c->counts, larger, sizeof *c->counts);
        c->counts_room = alloc_resize(c->counts_room, larger, sizeof *c->counts_room);
        memset(c->counts + room, 0, (larger - room) * sizeof *c->counts);
        memset(c->counts_room + room, 0, (larger - room) * sizeof *c->counts_room);
        c->facts.process_room = larger;
    }
    if (call->kind == SL_CALL_CROSSING)
        facts_add_crossing(&c->facts, process, call);
    else
        ++*count_place(c, process, region_index(process, call->region));
}

static void keep_samples(void *context, struct model_process *process, const struct sample_facts *samples, uint32_t count)
{
    struct conversion *c = context;
    facts_add_samples(&c->facts, process, samples, count);
}

static void keep_anchor(void *context, const struct anchor *anchor)
{
    struct conversion *c = context;
    facts_add_anchor(&c->facts, anchor);
}

static void read_all(struct conversion *c, struct model *model, const struct spool_hooks *hooks, double from, double to)
{
    struct spool_frame frame;
    size_t told = 0;
    spool_rewind(&c->reader);
    while (spool_next(&c->reader, &frame)) {
        spool_apply(&c->reader, model, &frame, hooks);
        if (c->reader.at - told > c->reader.size / 100) {
            told = c->reader.at;
            progress(c, from + (to - from) * (double)told / (double)c->reader.size);
        }
    }
}

// ---- rows

// A ledger without holes: then every call's parent is in the file, and self times may be summed from the parents' regions.
static bool is_whole(const struct model_process *process)
{
    struct ledger ledger = model_ledger(process);
    for (uint32_t i = 0; i < process->slot_count; i++)
        if (process->slots[i].base.produced)  // an earlier part has calls whose parents are here
            return false;
    return !model_lost(&ledger) && !ledger.unmatched && !ledger.abandoned && !ledger.crossing && !process->open_count &&
           !process->ended_open_count;
}

static void make_rows(struct conversion *c)
{
    uint32_t *row_of_name = alloc_zeroed(c->model.name_count, sizeof *row_of_name);
    c->row_of = alloc_zeroed(c->model.process_count, sizeof *c->row_of);
    for (uint32_t p = 0; p < c->model.process_count; p++) {
        struct model_process *process = c->model.processes[p];
        uint32_t room = p < c->facts.process_room ? c->counts_room[p] : 0;
        memset(row_of_name, 0, c->model.name_count * sizeof *row_of_name);
        c->row_of[p] = alloc_zeroed(room, sizeof **c->row_of);
        for (uint32_t id = 0; id < room && process->file_rank >= 0; id++) {
            if (!c->counts[p][id])
                continue;
            const struct model_region *region = model_region(process, id);
            uint32_t *row = &row_of_name[region->name];
            if (!*row) {
                c->rows = alloc_resize(c->rows, c->row_count + 1, sizeof *c->rows);
                c->rows[c->row_count] = (struct row){.name = region->name, .process = process, .place = region,
                                                     .whole = is_whole(process)};
                *row = ++c->row_count;
            }
            c->row_of[p][id] = *row;
            c->rows[*row - 1].count += c->counts[p][id];
        }
    }
    free(row_of_name);
    for (uint32_t i = 0; i < c->row_count; i++) {
        c->rows[i].first = c->calls;
        c->calls += c->rows[i].count;
    }
}

// A file beside the spool that has no name, so that no kill leaves it; where the file system knows no such files, one that has its name
// for a moment.
static int open_nameless(char *template)
{
    char *directory = alloc_printf("%.*s", (int)(strrchr(template, '/') ? strrchr(template, '/') - template + 1 : 0), template);
    int fd = open(*directory ? directory : ".", O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    free(directory);
    if (fd >= 0)
        return fd;
    fd = mkostemp(template, O_CLOEXEC);
    if (fd >= 0)
        unlink(template);
    return fd;
}

static int make_scratch(struct conversion *c)
{
    c->scratch_bytes = c->calls * sizeof *c->scratch;
    if (!c->calls)
        return 0;
    char *path = alloc_printf("%s.sort-XXXXXX", c->options->spool);
    int fd = open_nameless(path);
    int result = fd < 0 ? -errno : 0;
    TESTPOINT(convert_scratch_made);
    if (result == 0)
        result = -posix_fallocate(fd, 0, (off_t)c->scratch_bytes);
    if (result == 0) {
        void *place = mmap(NULL, c->scratch_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        result = place == MAP_FAILED ? -errno : 0;
        c->scratch = result == 0 ? place : NULL;
    }
    if (fd >= 0)
        close(fd);
    if (result < 0)
        fail(c, result, "make the scratch file", path);
    free(path);
    return result;
}

// ---- second pass

static struct row *row_for(struct conversion *c, const struct model_process *process, uint32_t region)
{
    uint32_t number = process->number;
    if (number >= c->model.process_count || number >= c->facts.process_room || region >= c->counts_room[number])
        return NULL;
    uint32_t row = c->row_of[number][region];
    return row ? &c->rows[row - 1] : NULL;
}

// Waiting time as ns: the same part of the call in ns as it is in ticks.
static int64_t await_ns(const struct model_call *call, int64_t duration_ns)
{
    uint64_t duration = call->end - call->start;
    if (!call->await || !duration)
        return 0;
    int64_t ns = (int64_t)((double)call->await / (double)duration * (double)duration_ns + 0.5);
    return ns > duration_ns ? duration_ns : ns;
}

static void place_call(void *context, struct model_process *process, const struct model_call *call)
{
    struct conversion *c = context;
    if (call->kind == SL_CALL_CROSSING)
        return;
    struct row *row = row_for(c, process, region_index(process, call->region));
    if (!row || row->filled == row->count)
        return;
    struct model_process *complete = c->model.processes[process->number];
    int64_t start = model_time_ns(&c->model, complete, call->start), end = model_time_ns(&c->model, complete, call->end);
    if (end < start)
        end = start;
    int64_t waited = await_ns(call, end - start);
    if (waited > c->longest_await_ns)
        c->longest_await_ns = waited;
    c->scratch[row->first + row->filled++] =
        (struct sorted_call){{.start_ns = start, .end_ns = end, .await_ns = waited,
                              .thread = call->thread == FACTS_NO_THREAD ? RUN_UNKNOWN : (int32_t)call->thread,
                              .task = call->task == SL_TASK_NONE ? RUN_NO_TASK : (int32_t)call->task},
                             c->sequence++};
    facts_see_call(&c->facts, complete, call, start, end);
    row->exclusive_ns += end - start;
    struct row *parent = call->parent ? row_for(c, process, region_index(process, call->parent)) : NULL;
    if (parent)
        parent->exclusive_ns -= end - start;
}

static int by_entry(const void *a, const void *b)
{
    const struct sorted_call *one = a, *other = b;
    if (one->call.start_ns != other->call.start_ns)
        return one->call.start_ns < other->call.start_ns ? -1 : 1;
    if (one->call.end_ns != other->call.end_ns)
        return one->call.end_ns > other->call.end_ns ? -1 : 1;
    return one->sequence > other->sequence ? -1 : 1;
}

static void sort_row(const struct conversion *c, const struct row *row)
{
    struct sorted_call *calls = c->scratch + row->first;
    for (uint64_t i = 1; i < row->count; i++)
        if (by_entry(&calls[i - 1], &calls[i]) > 0) {
            qsort(calls, row->count, sizeof *calls, by_entry);
            return;
        }
}

static void write_row(struct conversion *c, struct runwrite *w, const struct row *row)
{
    static struct run_call chunk[CHUNK_CALLS];
    const struct model_name *name = &c->model.names[row->name];
    const struct sorted_call *calls = c->scratch + row->first;
    sort_row(c, row);
    runwrite_row_begin(w, runwrite_region(w, name->text, name->length), (uint32_t)row->process->file_rank,
                       row->place->file ? row->place->file : "", row->place->line);
    for (uint64_t done = 0; done < row->count;) {
        size_t part = row->count - done < CHUNK_CALLS ? (size_t)(row->count - done) : CHUNK_CALLS;
        for (size_t i = 0; i < part; i++)
            chunk[i] = calls[done + i].call;
        runwrite_row_calls(w, chunk, part);
        done += part;
    }
    runwrite_row_end(w, row->whole ? row->exclusive_ns : -1);
}

// ---- the file

static int write_file(struct conversion *c)
{
    struct runwrite *w;
    char tag[sizeof c->reader.run.id + 1] = {0};
    memcpy(tag, c->reader.run.id, sizeof c->reader.run.id);
    struct runwrite_options options = {.tag = tag, .schema = c->options->schema, .compress = c->options->compress, .calls = (int64_t)c->calls,
                                       .start_ns = facts_start_ns(&c->facts, &c->model), .threads = true,
                                       .longest_await_ns = c->longest_await_ns};
    facts_highest(&c->model, &options);
    runwrite_open(&w, c->options->output, &options);
    facts_write_metadata(&c->facts, &c->model, &c->reader, c->options->output, w);
    for (uint32_t i = 0; i < c->row_count; i++) {
        write_row(c, w, &c->rows[i]);
        TESTPOINT(convert_row_written);
        progress(c, 0.5 + 0.5 * (double)(c->rows[i].first + c->rows[i].count) / (double)(c->calls ? c->calls : 1));
    }
    facts_write_tables(&c->facts, &c->model, w);
    TESTPOINT(convert_tables_written);
    int result = runwrite_publish(w);
    if (result < 0)
        snprintf(c->result->problem, sizeof c->result->problem, "%s", runwrite_error(w));
    runwrite_close(w);
    return result;
}

static void finish(struct conversion *c)
{
    for (uint32_t p = 0; c->row_of && p < c->model.process_count; p++)
        free(c->row_of[p]);
    for (uint32_t p = 0; p < c->facts.process_room; p++)
        free(c->counts[p]);
    free(c->row_of);
    free(c->counts);
    free(c->counts_room);
    free(c->rows);
    if (c->scratch)
        munmap(c->scratch, c->scratch_bytes);
    facts_finish(&c->facts);
    model_finish(&c->model);
    model_finish(&c->again);
    spool_reader_close(&c->reader);
}

int convert(const struct convert_options *options, struct convert_result *result)
{
    struct conversion c = {.options = options, .result = result};
    *result = (struct convert_result){0};
    int status = spool_open(&c.reader, options->spool);
    if (status < 0)
        return fail(&c, status, "read the spool", options->spool);
    if (options->spool_bytes && options->spool_bytes < c.reader.size)
        c.reader.size = options->spool_bytes;
    TESTPOINT(convert_begun);
    model_init(&c.model, SL_CLOCK_MONOTONIC, 0, 0);
    model_init(&c.again, SL_CLOCK_MONOTONIC, 0, 0);
    read_all(&c, &c.model, &(struct spool_hooks){count_call, keep_samples, keep_anchor, &c}, 0, 0.25);
    c.reader.size = c.reader.at;  // a run that goes on (a snapshot's) may put more behind it meanwhile
    model_give_ranks(&c.model);
    make_rows(&c);
    facts_prepare(&c.facts, &c.model);
    status = make_scratch(&c);
    if (status == 0) {
        read_all(&c, &c.again, &(struct spool_hooks){.on_call = place_call, .context = &c}, 0.25, 0.5);
        status = write_file(&c);
    }
    for (uint32_t p = 0; p < c.model.process_count; p++) {
        struct ledger ledger = model_ledger(c.model.processes[p]);
        result->calls += ledger.stored;
        result->lost += model_lost(&ledger);
    }
    finish(&c);
    return status;
}
