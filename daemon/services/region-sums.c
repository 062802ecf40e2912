#include "services/region-sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "services/query-rows.h"
#include "services/watchdog.h"

// Regions may come while a page is paused.
static void make_room(struct region_sums *sums, const struct run *run)
{
    uint32_t count = run->model.name_count;
    if (sums->of && sums->count >= count)
        return;
    sums->of = alloc_resize(sums->of, count + 1, sizeof *sums->of);
    memset(&sums->of[sums->count], 0, (count - sums->count) * sizeof *sums->of);
    sums->count = count;
}

void region_sums_init(struct region_sums *sums, const struct run *run)
{
    *sums = (struct region_sums){0};
    make_room(sums, run);
}

void region_sums_finish(struct region_sums *sums)
{
    for (uint32_t i = 0; i < sums->count; i++)
        histogram_finish(&sums->of[i].lengths);
    free(sums->of);
    *sums = (struct region_sums){0};
}

static int64_t signed_length(const struct run *run, const struct model_process *process, int64_t ticks)
{
    return ticks < 0 ? -model_length_ns(&run->model, process, (uint64_t)-ticks) : model_length_ns(&run->model, process, (uint64_t)ticks);
}

// Counted once more in ns, for processes may differ in their clocks.
static void add_lengths(const struct run *run, const struct model_process *process, const struct histogram *lengths, struct region_sum *sum)
{
    uint32_t octaves_left = HISTOGRAM_OCTAVES;
    sum->lengths_lack |= lengths->given_up;
    for (uint32_t i = 0; i < lengths->octaves * (uint32_t)HISTOGRAM_SUB; i++) {
        uint64_t ticks = histogram_middle(lengths->first * (uint32_t)HISTOGRAM_SUB + i);
        if (lengths->counts[i])
            histogram_add(&sum->lengths, (uint64_t)model_length_ns(&run->model, process, ticks), lengths->counts[i], &octaves_left);
    }
}

static void add_closed(const struct run *run, const struct model_process *process, const struct model_region *region, struct region_sums *sums)
{
    if (!region->calls)
        return;
    struct region_sum *sum = &sums->of[region->name];
    int64_t minimum = model_length_ns(&run->model, process, region->minimum);
    int64_t maximum = model_length_ns(&run->model, process, region->maximum);
    int64_t total = model_length_ns(&run->model, process, region->total);
    sum->min_ns = !sum->calls || minimum < sum->min_ns ? minimum : sum->min_ns;
    sum->max_ns = maximum > sum->max_ns ? maximum : sum->max_ns;
    sum->calls += region->calls;
    sum->closed_ns += total;
    sum->process_ns += total;
    sum->self_ns += signed_length(run, process, region->self);
    add_lengths(run, process, &region->lengths, sum);
}

// The open calls of a lane: each adds its time so far, and takes it from the self time of the one below.
static void add_open(struct page *page, const struct lane *lane, void *context)
{
    struct region_sums *sums = context;
    struct region_sum *below = NULL;
    for (uint32_t i = 0; lane->view && i < lane->view->depth; i++) {
        const struct lane_call *call = &lane->view->calls[i];
        if (!call->recorded)
            continue;
        struct region_sum *sum = &sums->of[model_region(lane->process, call->region)->name];
        int64_t so_far = row_ago(page, lane->run, lane->process, call->start);
        sum->open++;
        sum->open_ns += so_far;
        sum->process_ns += so_far;
        sum->self_ns += so_far;
        if (below)
            below->self_ns -= so_far;
        below = sum;
    }
}

void region_sums_add(struct region_sums *sums, struct page *page, struct run *run, struct model_process *process)
{
    make_room(sums, run);
    if (page_first_part(page, run, process) == 0) {
        for (uint32_t id = 0; id < process->region_count; id++)
            if (process->regions[id].file)
                add_closed(run, process, &process->regions[id], sums);
        add_closed(run, process, &process->other, sums);
    }
    lanes_visit(page, run, process, add_open, sums);
    if (page->paused)
        return;
    const struct client *client = page_client_of(page, process);
    for (uint32_t i = 0; client && i < client->stuck_count; i++)
        sums->of[client->stuck[i].name].stuck++;
    struct ledger ledger = model_ledger(process);
    bool bound = model_lost(&ledger) > 0;
    for (uint32_t name = 0; name < sums->count; name++) {
        struct region_sum *sum = &sums->of[name];
        sum->processes += sum->process_ns > 0;
        sum->bound |= bound && sum->process_ns > 0;
        sum->largest_ns = sum->process_ns > sum->largest_ns ? sum->process_ns : sum->largest_ns;
        sum->process_ns = 0;
    }
}

// The middle of a bucket may lie outside of what was there.
int64_t region_sum_quantile(const struct region_sum *sum, double share)
{
    uint64_t length;
    if (sum->lengths_lack || !histogram_quantile(&sum->lengths, share, &length))
        return SL_UNKNOWN;
    int64_t length_ns = (int64_t)length;
    return length_ns < sum->min_ns ? sum->min_ns : length_ns > sum->max_ns ? sum->max_ns : length_ns;
}
