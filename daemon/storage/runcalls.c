// The calls of a rank, decoded: schema 1 and 2 store absolute times, schema 3 gaps between starts and durations, whose
// chain begins anew with each row. Also what the summary column would say, where a file does without it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/runread.h"
#include "storage/wrap.h"

enum { PIECE = 64 << 10 };  // calls read at a time where they are not all wanted

// -- reading ----------------------------------------------------------------------------------------------------------

static int read_column(struct sl_run *run, h5_id dataset, uint64_t first, uint64_t count, int64_t *into)
{
    return h5_read(dataset, H5_I64, first, count, into, &run->h5)
               ? run_fail(run, run->h5.code, "calls: %s", run->h5.text)
               : 0;
}

static int read_legacy_column(struct sl_run *run, size_t row, const char *name, uint64_t first, uint64_t count,
                              int64_t *into)
{
    uint64_t length = run->rows[row].calls;
    h5_id group = h5_group_open(run->file, run->groups[row], &run->h5);
    if (group < 0)
        return run_fail(run, (int)group, "%.300s: %s", run->groups[row], run->h5.text);
    h5_id dataset = run_open_ints(run, group, run->groups[row], name, &length);
    int result = dataset < 0 ? (int)dataset : read_column(run, dataset, first, count, into);
    h5_close(dataset);
    h5_close(group);
    return result;
}

int run_read_times(struct sl_run *run, size_t row, uint64_t first, uint64_t count, int64_t *previous, int64_t *start_ns,
                   int64_t *end_ns)
{
    int result;
    if (run->schema == 1) {
        result = read_legacy_column(run, row, "start_times", first, count, start_ns);
        return result ? result : read_legacy_column(run, row, "end_times", first, count, end_ns);
    }
    uint64_t offset = run->offsets[row] + first;
    result = read_column(run, run->events[EVENT_START], offset, count, start_ns);
    if (result == 0)
        result = read_column(run, run->events[EVENT_END], offset, count, end_ns);
    for (uint64_t i = 0; result == 0 && run->deltas && i < count; i++) {
        *previous = start_ns[i] = wrap_add(*previous, start_ns[i]);
        end_ns[i] = wrap_add(start_ns[i], end_ns[i]);
    }
    return result;
}

// -- statistics -------------------------------------------------------------------------------------------------------

static void add_call(struct sl_run_row *row, uint64_t number, int64_t start_ns, int64_t end_ns)
{
    int64_t duration = wrap_subtract(end_ns, start_ns);
    double distance = number ? (double)wrap_subtract(duration, row->first_ns) : 0;
    double apart = distance - row->mean_ns;  // Welford, of distances from the first duration until the row is done
    row->mean_ns += apart / (double)(number + 1);
    row->m2 += apart * (distance - row->mean_ns);
    row->total_ns = wrap_add(row->total_ns, duration);
    row->last_ns = duration;
    if (number == 0) {
        row->first_ns = row->minimum_ns = row->maximum_ns = duration;
        row->start_minimum_ns = start_ns, row->end_maximum_ns = end_ns;
        return;
    }
    row->minimum_ns = duration < row->minimum_ns ? duration : row->minimum_ns;
    row->maximum_ns = duration > row->maximum_ns ? duration : row->maximum_ns;
    row->start_minimum_ns = start_ns < row->start_minimum_ns ? start_ns : row->start_minimum_ns;
    row->end_maximum_ns = end_ns > row->end_maximum_ns ? end_ns : row->end_maximum_ns;
}

static int summarise_row(struct sl_run *run, size_t at, int64_t *start_ns, int64_t *end_ns)
{
    struct sl_run_row *row = &run->rows[at];
    int64_t previous = 0;
    row->mean_ns = row->m2 = 0;
    for (uint64_t done = 0; done < row->calls;) {
        uint64_t count = row->calls - done < PIECE ? row->calls - done : PIECE;
        int result = run_read_times(run, at, done, count, &previous, start_ns, end_ns);
        if (result)
            return result;
        for (uint64_t i = 0; i < count; i++)
            add_call(row, done + i, start_ns[i], end_ns[i]);
        done += count;
    }
    if (row->calls)
        row->mean_ns = (double)row->total_ns / (double)row->calls;
    return 0;
}

int run_summarise(struct sl_run *run)
{
    int64_t *times = malloc(2 * PIECE * sizeof *times);
    if (!times)
        return run_fail(run, -ENOMEM, "calls: %s", strerror(ENOMEM));
    int result = 0;
    for (size_t i = 0; result == 0 && i < run->row_count; i++)
        result = summarise_row(run, i, times, times + PIECE);
    free(times);
    return result;
}

// -- the calls of a rank ----------------------------------------------------------------------------------------------

// Where the rank's rows begin in by_rank.
static size_t rows_of_rank(const struct sl_run *run, uint32_t rank)
{
    size_t low = 0, high = run->row_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (run->rows[run->by_rank[middle]].rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int make_room(const struct sl_run *run, struct sl_calls *calls, uint64_t count)
{
    if (count >= SIZE_MAX / sizeof(int64_t))
        return -ENOMEM;
    size_t size = (size_t)(count + 1) * sizeof(int64_t);
    calls->start_ns = malloc(size);
    calls->end_ns = malloc(size);
    calls->region = malloc((size_t)(count + 1) * sizeof *calls->region);
    calls->call_index = malloc(size);
    bool there = calls->start_ns && calls->end_ns && calls->region && calls->call_index;
    int64_t **optional[EVENT_COLUMNS] = {
        [EVENT_THREAD] = &calls->thread, [EVENT_TASK] = &calls->task, [EVENT_AWAIT] = &calls->await_ns};
    for (int i = EVENT_THREAD; i < EVENT_COLUMNS; i++)
        if (run->events[i])
            there = (*optional[i] = malloc(size)) && there;
    return there ? 0 : -ENOMEM;
}

static int read_row(struct sl_run *run, size_t at, struct sl_calls *calls)
{
    const struct sl_run_row *row = &run->rows[at];
    size_t to = calls->count;
    int64_t previous = 0;
    int result = run_read_times(run, at, 0, row->calls, &previous, calls->start_ns + to, calls->end_ns + to);
    int64_t *optional[EVENT_COLUMNS] = {
        [EVENT_THREAD] = calls->thread, [EVENT_TASK] = calls->task, [EVENT_AWAIT] = calls->await_ns};
    for (int i = EVENT_THREAD; result == 0 && i < EVENT_COLUMNS; i++)
        if (optional[i])
            result = read_column(run, run->events[i], run->offsets[at], row->calls, optional[i] + to);
    for (uint64_t i = 0; result == 0 && i < row->calls; i++) {
        calls->region[to + i] = row->region;
        calls->call_index[to + i] = i;
    }
    calls->count += result ? 0 : row->calls;
    return result;
}

int sl_run_calls(struct sl_run *run, uint32_t rank, struct sl_calls *calls, char error[SL_RUN_ERROR_MAX])
{
    *calls = (struct sl_calls){.rank = rank};
    run->error = error;
    uint64_t count = 0;
    size_t first = rows_of_rank(run, rank), end = first;
    if (!run->aggregate)
        for (; end < run->row_count && run->rows[run->by_rank[end]].rank == rank; end++)
            count += run->rows[run->by_rank[end]].calls;
    int result = make_room(run, calls, count);
    if (result)
        run_fail(run, result, "calls of rank %u: %s", rank, strerror(ENOMEM));
    for (size_t i = first; result == 0 && i < end; i++)
        result = read_row(run, run->by_rank[i], calls);
    if (result)
        sl_calls_finish(calls);
    run->error = NULL;
    return result;
}

void sl_calls_finish(struct sl_calls *calls)
{
    free(calls->start_ns);
    free(calls->end_ns);
    free(calls->region);
    free(calls->call_index);
    free(calls->thread);
    free(calls->task);
    free(calls->await_ns);
    *calls = (struct sl_calls){0};
}
