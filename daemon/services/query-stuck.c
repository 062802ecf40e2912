// Lanes that are in a region and get nowhere, as of now: with the state and the share of a processor that tell a call that is merely
// long from a lane that waits.
#include <string.h>

#include "services/watchdog.h"

static void stuck_row(struct page *page, const struct lane *lane, void *context)
{
    struct json_writer *json = page->json;
    bool is_task = lane->task != SL_TASK_NONE;
    struct row_key key = lane_key(lane);
    struct quiet quiet;
    (void)context;
    if (!watchdog_measure(page, lane, &quiet) || (page->filter->state && strcmp(page->filter->state, lane->state) != 0) ||
        !page_wants(page, &key))
        return;
    bool holds_thread = !is_task || strcmp(lane->state, "running") == 0;  // a suspended task has no part in what its thread does
    row_open(page, lane->run, lane->process);
    lane_members(json, lane);
    row_member_share(json, holds_thread ? model_find_thread(lane->process, lane->thread) : NULL);
    jsonw_member_text(json, "region", lane->run->model.names[quiet.name].text);
    jsonw_member_int(json, "quiet_ns", quiet.quiet_ns);
    jsonw_member_int(json, "limit_ns", quiet.limit_ns);
    jsonw_member_int(json, "longest_ns", quiet.longest_ns);
    row_stack_of_view(page, lane->run, lane->process, lane->view);
    jsonw_object_end(json);
}

static void stuck_of_process(struct page *page, struct run *run, struct model_process *process)
{
    lanes_visit(page, run, process, stuck_row, NULL);
}

static void stuck_of(struct page *page, struct run *run)
{
    if (run->state == RUN_RECORDING && (page->filter->has_after || page->daemon->settings.stuck_after))
        page_each_process(page, run, stuck_of_process);
}

void rows_stuck(struct page *page)
{
    page_each_run(page, stuck_of);
}
