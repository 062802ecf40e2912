// Regions: one row per name, over the processes of a run that the filter lets pass. Closed calls come from the model; those that are
// open now are read from the lane blocks and count up to now.
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "services/query-rows.h"

struct sums {
    uint64_t calls, open;
    int64_t closed_ns, total_ns, self_ns, min_ns, max_ns;
    int64_t process_ns, largest_ns;  // of the process being added; of the process with most
    uint32_t processes;              // that have the region
    bool bound;                      // one of them has lost calls, which do not say of which region
};

static int64_t signed_length(const struct run *run, const struct model_process *process, int64_t ticks)
{
    return ticks < 0 ? -model_length_ns(&run->model, process, (uint64_t)-ticks) : model_length_ns(&run->model, process, (uint64_t)ticks);
}

static void add_closed(const struct run *run, const struct model_process *process, const struct model_region *region, struct sums *sums)
{
    if (!region->calls)
        return;
    struct sums *sum = &sums[region->name];
    int64_t minimum = model_length_ns(&run->model, process, region->minimum);
    int64_t maximum = model_length_ns(&run->model, process, region->maximum);
    int64_t total = model_length_ns(&run->model, process, region->total);
    sum->min_ns = !sum->calls || minimum < sum->min_ns ? minimum : sum->min_ns;
    sum->max_ns = maximum > sum->max_ns ? maximum : sum->max_ns;
    sum->calls += region->calls;
    sum->closed_ns += total;
    sum->process_ns += total;
    sum->self_ns += signed_length(run, process, region->self);
}

// The open calls of a lane: each adds its time so far, and takes it from the self time of the one below.
static void add_open(struct page *page, const struct lane *lane, void *context)
{
    struct sums *sums = context, *below = NULL;
    for (uint32_t i = 0; lane->view && i < lane->view->depth; i++) {
        const struct lane_call *call = &lane->view->calls[i];
        if (!call->recorded)
            continue;
        struct sums *sum = &sums[model_region(lane->process, call->region)->name];
        int64_t so_far = page->now_ns - row_time(lane->run, lane->process, call->start);
        so_far = so_far < 0 ? 0 : so_far;
        sum->open++;
        sum->process_ns += so_far;
        sum->self_ns += so_far;
        if (below)
            below->self_ns -= so_far;
        below = sum;
    }
}

static void add_process(struct page *page, struct run *run, struct model_process *process, struct sums *sums)
{
    for (uint32_t id = 0; id < process->region_count; id++)
        if (process->regions[id].file)
            add_closed(run, process, &process->regions[id], sums);
    add_closed(run, process, &process->other, sums);
    lanes_visit(page, run, process, add_open, sums);
    struct ledger ledger = model_ledger(process);
    bool bound = model_lost(&ledger) > 0;
    for (uint32_t name = 0; name < run->model.name_count; name++) {
        struct sums *sum = &sums[name];
        sum->processes += sum->process_ns > 0;
        sum->bound |= bound && sum->process_ns > 0;
        sum->total_ns += sum->process_ns;
        sum->largest_ns = sum->process_ns > sum->largest_ns ? sum->process_ns : sum->largest_ns;
        sum->process_ns = 0;
    }
}

static void region_row(struct page *page, struct run *run, uint32_t name, const struct sums *sum)
{
    struct row_key key = {run->number, 0, name};
    const char *text = run->model.names[name].text;
    if ((!sum->calls && !sum->open) || (page->filter->region && strcmp(page->filter->region, text) != 0) || !page_wants(page, &key))
        return;
    struct json_writer *json = page->json;
    jsonw_object(json);
    jsonw_member_text(json, "run", run->id);
    row_member_rank(json, "rank", page->filter->has_rank ? page->filter->rank : SL_RANK_NONE, SL_RANK_NONE);
    jsonw_member_text(json, "name", text);
    jsonw_member_uint(json, "calls", sum->calls);
    jsonw_member_uint(json, "open", sum->open);
    jsonw_member_int(json, "total_ns", sum->total_ns);
    jsonw_member_int(json, "self_ns", sum->self_ns);
    jsonw_member_time(json, "min_ns", sum->calls ? sum->min_ns : SL_UNKNOWN);
    jsonw_member_time(json, "max_ns", sum->calls ? sum->max_ns : SL_UNKNOWN);
    jsonw_member_time(json, "mean_ns", sum->calls ? sum->closed_ns / (int64_t)sum->calls : SL_UNKNOWN);
    jsonw_member_bool(json, "exact", !sum->bound);
    if (sum->total_ns > 0)
        jsonw_member_double(json, "imbalance", (double)sum->largest_ns * sum->processes / (double)sum->total_ns);
    else
        jsonw_member_null(json, "imbalance");
    jsonw_object_end(json);
}

static void regions_of(struct page *page, struct run *run)
{
    struct sums *sums = alloc_zeroed(run->model.name_count, sizeof *sums);
    for (uint32_t i = 0; i < run->model.process_count; i++)
        if (page_fits(page, run->model.processes[i]))
            add_process(page, run, run->model.processes[i], sums);
    for (uint32_t name = 0; name < run->model.name_count; name++)
        region_row(page, run, name, &sums[name]);
    free(sums);
}

void rows_regions(struct page *page)
{
    page_each_run(page, regions_of);
}
