// Regions: one row per name, over the processes of a run that the filter lets pass; with `ranks` one for each process's.
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "services/query-rows.h"
#include "services/region-sums.h"

static void member_imbalance(struct json_writer *json, const struct region_sum *sum)
{
    int64_t total_ns = sum->closed_ns + sum->open_ns;
    if (total_ns > 0)
        jsonw_member_double(json, "imbalance", (double)sum->largest_ns * sum->processes / (double)total_ns);
    else
        jsonw_member_null(json, "imbalance");
}

// How it compares with the other processes of the run, by its latest calls; null where there are too few, or none has ended yet.
static void members_of_pace(struct json_writer *json, const struct pacing *pace)
{
    if (pace) {
        jsonw_member_double(json, "score", (double)pace->score);
        jsonw_member_bool(json, "outlier", pace_is_outlier(pace));
        jsonw_member_double(json, "outlier_share", (double)pace->share);
        jsonw_member_bool(json, "chronic", pace_is_chronic(pace));
        return;
    }
    jsonw_member_null(json, "score");
    jsonw_member_null(json, "outlier");
    jsonw_member_null(json, "outlier_share");
    jsonw_member_null(json, "chronic");
}

static void region_row(struct page *page, struct run *run, const struct model_process *process, uint32_t name, const struct region_sum *sum)
{
    struct row_key key = {run->number, process ? UINT64_C(1) + process->number : 0, name};
    const char *text = run->model.names[name].text;
    if ((!sum->calls && !sum->open) || (page->filter->region && strcmp(page->filter->region, text) != 0) || !page_wants(page, &key))
        return;
    struct json_writer *json = page->json;
    int64_t rank = process ? process->status.rank : page->filter->has_rank ? page->filter->rank : SL_RANK_NONE;
    jsonw_object(json);
    jsonw_member_text(json, "run", run->id);
    row_member_rank(json, "rank", rank, SL_RANK_NONE);
    if (process)
        jsonw_member_uint(json, "pid", process->facts.pid);
    jsonw_member_text(json, "name", text);
    jsonw_member_uint(json, "calls", sum->calls);
    jsonw_member_uint(json, "open", sum->open);
    jsonw_member_int(json, "total_ns", sum->closed_ns + sum->open_ns);
    jsonw_member_int(json, "self_ns", sum->self_ns);
    jsonw_member_time(json, "min_ns", sum->calls ? sum->min_ns : SL_UNKNOWN);
    jsonw_member_time(json, "max_ns", sum->calls ? sum->max_ns : SL_UNKNOWN);
    jsonw_member_time(json, "mean_ns", sum->calls ? sum->closed_ns / (int64_t)sum->calls : SL_UNKNOWN);
    jsonw_member_time(json, "p50_ns", region_sum_quantile(sum, 0.5));
    jsonw_member_time(json, "p99_ns", region_sum_quantile(sum, 0.99));
    jsonw_member_bool(json, "exact", !sum->bound);
    member_imbalance(json, sum);
    if (process)
        members_of_pace(json, pace_of(process, name));
    jsonw_object_end(json);
}

static void rows_of(struct page *page, struct run *run, struct model_process *process, struct region_sums *sums)
{
    for (uint32_t name = 0; name < sums->count; name++)
        region_row(page, run, process, name, &sums->of[name]);
    region_sums_finish(sums);
}

static void forget(void *context)
{
    region_sums_finish(context);
    free(context);
}

static void regions_of_process(struct page *page, struct run *run, struct model_process *process)
{
    struct region_sums *sums = page->context;
    if (!sums->of)
        region_sums_init(sums, run);
    region_sums_add(sums, page, run, process);
    if (!page->paused)
        rows_of(page, run, process, sums);
}

static void add_process(struct page *page, struct run *run, struct model_process *process)
{
    region_sums_add(page->context, page, run, process);
}

static void regions_of(struct page *page, struct run *run)
{
    struct region_sums *sums = page->context;
    if (page->filter->ranks) {
        page_each_process(page, run, regions_of_process);
        return;
    }
    if (!sums->of)
        region_sums_init(sums, run);
    page_each_process(page, run, add_process);
    if (!page->paused)
        rows_of(page, run, NULL, sums);
}

void rows_regions(struct page *page)
{
    if (!page->context) {
        page->context = alloc_zeroed(1, sizeof(struct region_sums));
        page->release = forget;
    }
    page_each_run(page, regions_of);
}
