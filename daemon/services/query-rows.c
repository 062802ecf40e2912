// Runs, processes, the ledger.
#include "services/query-rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "core/unmatched.h"
#include "services/converter.h"

static const char *const process_states[] = PROCESS_STATE_NAMES;
static const char *const loss_names[] = SL_LOSS_NAMES;

// ---- runs

static void run_row(struct page *page, struct run *run)
{
    struct row_key key = {run->number, 0, 0};
    if (!page_wants(page, &key))
        return;
    struct ledger sum = {0};
    for (uint32_t i = 0; i < run->model.process_count; i++) {
        struct ledger ledger = model_ledger(run->model.processes[i]);
        sum.produced += ledger.produced;
        sum.stored += ledger.stored;
        for (int reason = 0; reason < SL_LOST_COUNT; reason++)
            sum.lost[reason] += ledger.lost[reason];
    }
    struct json_writer *json = page->json;
    jsonw_object(json);
    jsonw_member_text(json, "run", run->id);
    jsonw_member_text(json, "key", run->key);
    jsonw_member_text(json, "state", runs_state_name(run));
    jsonw_member_text(json, "file", run->output);
    jsonw_member_uint(json, "uid", run->uid);
    jsonw_member_uint(json, "part", run->part);
    jsonw_member_uint(json, "processes", run->model.process_count);
    jsonw_member_uint(json, "live", run->clients);
    jsonw_member_uint(json, "members", run->member_count);
    jsonw_member_uint(json, "unable", run->unable);
    jsonw_member_text(json, "unable_why", run->unable_words);
    jsonw_member_uint(json, "produced", sum.produced);
    jsonw_member_uint(json, "stored", sum.stored);
    jsonw_member_uint(json, "lost", model_lost(&sum));
    jsonw_member_double(json, "progress", run->state == RUN_PUBLISHED ? 1 : run->converter ? run->converter->progress : 0);
    jsonw_member_text(json, "problem", run->problem);
    jsonw_object_end(json);
}

void rows_runs(struct page *page)
{
    page_each_run(page, run_row);
}

// ---- processes

// The first of its exits without an enter, in words.
static void unmatched_why(struct page *page, struct run *run, struct model_process *process)
{
    char *words = process->unmatched_count ? unmatched_words(&run->model, process, &process->unmatched[0]) : NULL;
    jsonw_member_text(page->json, "unmatched_why", words);
    free(words);
}

static void process_row(struct page *page, struct run *run, struct model_process *process)
{
    struct row_key key = {run->number, process->number, 0};
    const char *state = process_states[process->status.state];
    if ((page->filter->state && strcmp(page->filter->state, state) != 0) || !page_wants(page, &key))
        return;
    struct ledger ledger = model_ledger(process);
    struct json_writer *json = page->json;
    row_open(page, run, process);
    jsonw_member_uint(json, "parent_pid", process->facts.parent_pid);
    jsonw_member_text(json, "program", process->program);
    jsonw_member_text(json, "state", state);
    const struct client *client = page_client_of(page, process);
    jsonw_member_bool(json, "paused", client && client->paused);
    if (process->status.has_exit)
        jsonw_member_int(json, "exit_status", process->status.exit_status);
    else
        jsonw_member_null(json, "exit_status");
    jsonw_member_uint(json, "threads", process->status.threads);
    jsonw_member_uint(json, "tasks", process->status.tasks);
    jsonw_member_uint(json, "calls", ledger.stored);
    jsonw_member_uint(json, "produced", ledger.produced);
    jsonw_member_uint(json, "stored", ledger.stored);
    jsonw_member_uint(json, "lost", model_lost(&ledger));
    jsonw_member_uint(json, "unmatched", ledger.unmatched);
    unmatched_why(page, run, process);
    jsonw_member_uint(json, "crossing", ledger.crossing);
    jsonw_member_uint(json, "abandoned", ledger.abandoned);
    jsonw_member_uint(json, "threads_folded", process->threads_folded);
    jsonw_member_uint(json, "tasks_folded", process->tasks_folded);
    jsonw_member_time(json, "last_event_ns", row_time(run, process, process->status.last_event));
    jsonw_object_end(json);
}

static void processes_of(struct page *page, struct run *run)
{
    page_each_process(page, run, process_row);
}

void rows_processes(struct page *page)
{
    page_each_run(page, processes_of);
}

// ---- loss

static void loss_row(struct page *page, struct run *run, struct model_process *process, uint32_t ring, const struct ledger *ledger, int reason)
{
    struct row_key key = {run->number, process->number, (uint64_t)(ring + 1u) * SL_LOST_COUNT + (uint64_t)reason};
    if (!ledger->lost[reason] || !page_wants(page, &key))
        return;
    row_open(page, run, process);
    uint32_t thread = model_ring_thread(process, ring);
    if (ring == FACTS_ELSEWHERE)
        jsonw_member_null(page->json, "ring");
    else
        jsonw_member_uint(page->json, "ring", ring);
    if (thread == FACTS_NO_THREAD)  // threads without a ring, or several that had this one in turn
        jsonw_member_null(page->json, "thread_index");
    else
        jsonw_member_uint(page->json, "thread_index", thread);
    jsonw_member_text(page->json, "reason", loss_names[reason]);
    jsonw_member_uint(page->json, "count", ledger->lost[reason]);
    jsonw_object_end(page->json);
}

static void loss_of_process(struct page *page, struct run *run, struct model_process *process)
{
    for (int reason = 0; reason < SL_LOST_COUNT; reason++)
        loss_row(page, run, process, FACTS_ELSEWHERE, &process->elsewhere, reason);
    for (uint32_t i = 0; i < process->slot_count; i++)
        for (int reason = 0; reason < SL_LOST_COUNT; reason++)
            loss_row(page, run, process, i, &process->slots[i].ledger, reason);
}

static void loss_of(struct page *page, struct run *run)
{
    page_each_process(page, run, loss_of_process);
}

void rows_loss(struct page *page)
{
    page_each_run(page, loss_of);
}

// ---- exits without an enter

static void unmatched_row(struct page *page, struct run *run, struct model_process *process, uint32_t number)
{
    const struct model_unmatched *unmatched = &process->unmatched[number];
    struct row_key key = {run->number, process->number, number};
    if (!page_wants(page, &key))
        return;
    struct json_writer *json = page->json;
    uint32_t candidates;
    const struct open_facts *open = unmatched_open(process, unmatched, &candidates);
    char *why = unmatched_words(&run->model, process, unmatched);
    row_open(page, run, process);
    jsonw_member_text(json, "region", model_region_name(&run->model, model_region(process, unmatched->region)));
    jsonw_member_int(json, "lane", model_lane(unmatched->thread, unmatched->task));
    jsonw_member_uint(json, "thread_index", unmatched->thread);
    jsonw_member_uint(json, "count", unmatched->count);
    jsonw_member_time(json, "first_ns", row_time(run, process, unmatched->first));
    jsonw_member_time(json, "last_ns", row_time(run, process, unmatched->last));
    if (open) {
        jsonw_member_int(json, "entered_lane", model_lane(open->thread, open->task));
        jsonw_member_uint(json, "entered_thread_index", unmatched_entered_by(process, open));
        jsonw_member_time(json, "entered_ns", row_time(run, process, open->start));
    } else {
        jsonw_member_null(json, "entered_lane");
        jsonw_member_null(json, "entered_thread_index");
        jsonw_member_null(json, "entered_ns");
    }
    jsonw_member_text(json, "why", why);
    jsonw_object_end(json);
    free(why);
}

static void unmatched_of_process(struct page *page, struct run *run, struct model_process *process)
{
    for (uint32_t i = 0; i < process->unmatched_count && !page->more; i++)
        unmatched_row(page, run, process, i);
}

static void unmatched_of(struct page *page, struct run *run)
{
    page_each_process(page, run, unmatched_of_process);
}

void rows_unmatched(struct page *page)
{
    page_each_run(page, unmatched_of);
}

// ---- trust

void rows_trust(struct json_writer *json, const struct page *page)
{
    struct ledger sum = {0};
    uint64_t untracked = 0, threads_folded = 0, tasks_folded = 0;
    int64_t error_ns = page->daemon->clock.error_ns;
    for (const struct run *run = page->daemon->runs; run; run = run->next) {
        if (!page->sees_all && run->uid != page->uid)
            continue;
        for (uint32_t i = 0; i < run->model.process_count; i++) {
            struct ledger ledger = model_ledger(run->model.processes[i]);
            for (int reason = 0; reason < SL_LOST_COUNT; reason++)
                sum.lost[reason] += ledger.lost[reason];
            sum.unmatched += ledger.unmatched;
            threads_folded += run->model.processes[i]->threads_folded;
            tasks_folded += run->model.processes[i]->tasks_folded;
        }
    }
    for (const struct client *client = page->daemon->clients; client; client = client->next)
        if (page->sees_all || client->run->uid == page->uid)
            untracked += sl_load_relaxed(&segment_header(&client->segment)->untracked);
    jsonw_key(json, "trust");
    jsonw_object(json);
    jsonw_member_uint(json, "lost", model_lost(&sum));
    jsonw_key(json, "lost_by_reason");
    jsonw_object(json);
    for (int reason = 0; reason < SL_LOST_COUNT; reason++)
        if (sum.lost[reason])
            jsonw_member_uint(json, loss_names[reason], sum.lost[reason]);
    jsonw_object_end(json);
    jsonw_member_uint(json, "unmatched", sum.unmatched);
    jsonw_member_uint(json, "untracked", untracked);
    jsonw_member_uint(json, "threads_folded", threads_folded);
    jsonw_member_uint(json, "tasks_folded", tasks_folded);
    jsonw_member_int(json, "clock_error_ns", error_ns);
    jsonw_object_end(json);
}
