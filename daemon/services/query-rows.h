// Rows of the listings: what the tables and the lane blocks say now, as JSON.
#ifndef SL_SERVICES_QUERY_ROWS_H
#define SL_SERVICES_QUERY_ROWS_H

#include "services/query-page.h"

// A lane as it stands now.
struct lane {
    struct run *run;
    struct model_process *process;
    uint32_t thread, task;  // FACTS_NO_THREAD, SL_TASK_NONE
    const char *state;
    const struct lane_view *view;  // NULL: of a process that has ended; its open calls tell
};

typedef void (*lanes_on_lane)(struct page *page, const struct lane *lane, void *context);
// Part by part, where all at once would take too long: from 0 on, until it is false that there are more.
bool lanes_visit_part(struct page *page, struct run *run, struct model_process *process, uint32_t part, lanes_on_lane visit, void *context);
// All of them, or from where the page stopped, until it has to stop: page->paused, or page->more.
void lanes_visit(struct page *page, struct run *run, struct model_process *process, lanes_on_lane visit, void *context);

struct row_key lane_key(const struct lane *lane);
void lane_members(struct json_writer *json, const struct lane *lane);  // lane, label, thread_index, task_index, state

// The steps of a task as of now, into its facts; false where its row is not to be had, and they stand as drained.
bool task_steps_now(const struct client *client, const struct model_task *task, struct task_facts *facts);
bool task_is_stepping(const struct task_facts *facts);

// Each writes the rows of its listing that fit the page.
void rows_status(struct page *page);  // of the daemon itself
void rows_clock(struct page *page);
void rows_config(struct page *page);
void rows_runs(struct page *page);
void rows_processes(struct page *page);
void rows_regions(struct page *page);  // calls that are open count in open, total and self as of now
void rows_loss(struct page *page);
void rows_unmatched(struct page *page);
void rows_threads(struct page *page);
void rows_tasks(struct page *page);
void rows_lanes(struct page *page);
void rows_where(struct page *page);

// What every reply says of its own trustworthiness.
void rows_trust(struct json_writer *json, const struct page *page);

#endif
