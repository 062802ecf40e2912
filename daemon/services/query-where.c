// The roll call: lanes of all ranks grouped by equal stacks, the smallest group first, for the one that went astray is in it.
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "services/query-rows.h"

struct group {
    const struct run *run;
    uint32_t *names;  // of the run's regions, outermost first
    uint32_t depth;
    int64_t *ranks;
    uint32_t lanes;
    int64_t youngest_ns, oldest_ns;  // time in this state
    const char *state;
    uint32_t unranked;
};

struct groups {
    struct group *list;
    uint32_t count;
    uint32_t lanes;   // in all of them
    uint32_t before;  // before the process that is looked at
    bool has_after;   // the page is not the first
};

static void groups_free(void *context)
{
    struct groups *groups = context;
    for (uint32_t i = 0; i < groups->count; i++) {
        free(groups->list[i].names);
        free(groups->list[i].ranks);
    }
    free(groups->list);
    free(groups);
}

static struct group *group_of(struct groups *groups, const struct run *run, const uint32_t *names, uint32_t depth)
{
    for (uint32_t i = 0; i < groups->count; i++) {
        struct group *group = &groups->list[i];
        if (group->run == run && group->depth == depth && (!depth || memcmp(group->names, names, depth * sizeof *names) == 0))
            return group;
    }
    groups->list = alloc_resize(groups->list, groups->count + 1, sizeof *groups->list);
    struct group *group = &groups->list[groups->count++];
    *group = (struct group){.run = run, .depth = depth, .names = alloc_zeroed(depth, sizeof *names), .youngest_ns = INT64_MAX};
    if (depth)
        memcpy(group->names, names, depth * sizeof *names);
    return group;
}

static uint32_t stack_names(const struct lane *lane, uint32_t *names)
{
    uint32_t depth = 0;
    if (lane->view) {
        for (; depth < lane->view->depth; depth++)
            names[depth] = model_region(lane->process, lane->view->calls[depth].region)->name;
        return depth;
    }
    bool is_task = lane->task != SL_TASK_NONE;
    for (uint32_t i = 0; i < lane->process->open_count && depth < LANES_DEPTH_LIMIT; i++) {
        const struct open_facts *open = &lane->process->open[i];
        if (open->task == lane->task && (is_task || open->thread == lane->thread))
            names[depth++] = model_region(lane->process, open->region)->name;
    }
    return depth;
}

static bool is_wanted(const struct page *page, const struct lane *lane)
{
    bool is_task = lane->task != SL_TASK_NONE;
    if (page->filter->lanes && is_task != (strcmp(page->filter->lanes, "tasks") == 0))
        return false;
    return !page->filter->state || strcmp(page->filter->state, lane->state) == 0;
}

static void add_to_group(struct page *page, struct groups *groups, const struct lane *lane, const uint32_t *names, uint32_t depth)
{
    uint64_t since = lane->view ? lane->view->since : lane->process->status.last_event;
    struct group *group = group_of(groups, lane->run, names, depth);
    groups->lanes++;
    int64_t rank = lane->process->status.rank, time_ns = row_ago(page, lane->run, lane->process, since);
    group->ranks = alloc_resize(group->ranks, group->lanes + 1, sizeof *group->ranks);
    group->ranks[group->lanes++] = rank;
    group->unranked += rank == SL_RANK_NONE;
    group->youngest_ns = time_ns < group->youngest_ns ? time_ns : group->youngest_ns;
    group->oldest_ns = time_ns > group->oldest_ns ? time_ns : group->oldest_ns;
    group->state = !group->state || strcmp(group->state, lane->state) == 0 ? lane->state : "mixed";
}

static void add_lane(struct page *page, const struct lane *lane, void *context)
{
    static uint32_t names[LANES_DEPTH_LIMIT];
    uint32_t depth = stack_names(lane, names);
    bool is_idle = !depth && lane->view;  // one that has ended is not
    if ((depth || (is_idle && page->filter->idle)) && is_wanted(page, lane))
        add_to_group(page, context, lane, names, depth);
}

static void add_stand_in(struct page *page, const struct lane *lane, void *context)
{
    struct groups *groups = context;
    if (groups->lanes == groups->before && lane->view && lane->task == SL_TASK_NONE && is_wanted(page, lane))
        add_to_group(page, groups, lane, NULL, 0);
}

static int by_size(const void *a, const void *b)
{
    const struct group *one = a, *other = b;
    if (one->lanes != other->lanes)
        return one->lanes < other->lanes ? -1 : 1;
    return one->oldest_ns > other->oldest_ns ? -1 : one->oldest_ns < other->oldest_ns;
}

static int by_value(const void *a, const void *b)
{
    int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
    return one < other ? -1 : one > other;
}

// "0,2-3": sorted, each rank once. Returns how many ranks there are.
static uint32_t rank_text(struct group *group, struct buffer *text)
{
    uint32_t ranks = 0;
    qsort(group->ranks, group->lanes, sizeof *group->ranks, by_value);
    for (uint32_t i = group->unranked; i < group->lanes;) {
        int64_t first = group->ranks[i], last = first;
        for (; i < group->lanes && group->ranks[i] <= last + 1; i++) {
            ranks += i == group->unranked || group->ranks[i] != group->ranks[i - 1];
            last = group->ranks[i];
        }
        buffer_printf(text, text->length ? ",%lld" : "%lld", (long long)first);
        if (last > first)
            buffer_printf(text, "-%lld", (long long)last);
    }
    if (group->unranked)
        buffer_text(text, text->length ? ",unranked" : "unranked");
    buffer_append(text, "", 1);
    return ranks;
}

static void group_row(struct page *page, struct group *group)
{
    struct json_writer *json = page->json;
    struct buffer ranks = {0};
    uint32_t count = rank_text(group, &ranks);
    jsonw_object(json);
    jsonw_member_text(json, "run", group->run->id);
    jsonw_member_text(json, "host", page->daemon->host);
    jsonw_key(json, "stack");
    jsonw_array(json);
    for (uint32_t i = 0; i < group->depth; i++)
        jsonw_text(json, group->run->model.names[group->names[i]].text);
    jsonw_array_end(json);
    jsonw_member_uint(json, "lanes", group->lanes);
    jsonw_member_text(json, "ranks", ranks.data);
    jsonw_member_uint(json, "rank_count", count);
    jsonw_member_int(json, "youngest_ns", group->youngest_ns);
    jsonw_member_int(json, "oldest_ns", group->oldest_ns);
    jsonw_member_text(json, "state", group->state);
    jsonw_object_end(json);
    buffer_finish(&ranks);
}

// Nobody is missing in a roll call: of a process none of whose lanes is in a region its first thread is told all the same.
static void gather_process(struct page *page, struct run *run, struct model_process *process)
{
    struct groups *groups = page->context;
    if (page_first_part(page, run, process) == 0)
        groups->before = groups->lanes;
    lanes_visit(page, run, process, add_lane, groups);
    if (!page->paused && groups->lanes == groups->before)
        lanes_visit_part(page, run, process, 0, add_stand_in, groups);
}

static void gather_run(struct page *page, struct run *run)
{
    if (run->state == RUN_RECORDING || page->filter->run)  // of one that is over: what its lanes were in
        page_each_process(page, run, gather_process);
}

void rows_where(struct page *page)
{
    struct groups *groups = page->context;
    if (!groups) {
        page->context = groups = alloc_zeroed(1, sizeof *groups);
        page->release = groups_free;
        groups->has_after = page->has_after;
    }
    page->has_after = false;  // all lanes are looked at: it counts groups
    page_each_run(page, gather_run);
    if (page->paused)
        return;
    if (groups->count)
        qsort(groups->list, groups->count, sizeof *groups->list, by_size);
    page->has_after = groups->has_after;
    for (uint32_t i = 0; i < groups->count; i++) {
        struct row_key key = {0, 0, i + 1};
        if (page_wants(page, &key))
            group_row(page, &groups->list[i]);
    }
}
