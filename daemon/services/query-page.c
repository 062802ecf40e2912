#include "services/query-page.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"

// ---- walking

static bool is_after(const struct page *page, const struct row_key *key)
{
    const struct row_key *after = &page->after;
    if (!page->has_after)
        return true;
    if (key->run != after->run)
        return key->run > after->run;
    return key->process != after->process ? key->process > after->process : key->index > after->index;
}

// May a row with this key be written now? Says so in page->more when it is the page's end that forbids it.
bool page_wants(struct page *page, const struct row_key *key)
{
    if (page->more || !is_after(page, key))
        return false;
    if (page->count >= page->limit || page->json->out->length > page->bytes_max) {
        page->more = true;
        return false;
    }
    page->count++;
    page->last = *key;
    return true;
}

void page_finish(struct page *page)
{
    if (page->release)
        page->release(page->context);
    page->release = NULL;
    page->context = NULL;
}

static int by_number(const void *a, const void *b)
{
    const struct run *one = *(struct run *const *)a, *other = *(struct run *const *)b;
    return one->number < other->number ? -1 : one->number > other->number;
}

// Nothing of a run or a process is behind a cursor that is behind it: a page of many does not look at all before it.
static bool run_is_over(const struct page *page, const struct run *run)
{
    return (page->has_after && run->number < page->after.run) || (page->resumed && run->number < page->at.run);
}

static bool process_is_over(const struct page *page, const struct run *run, const struct model_process *process)
{
    if (page->resumed && run->number == page->at.run && process->number < page->at.process)
        return true;
    return page->has_after && run->number == page->after.run && process->number + UINT64_C(1) < page->after.process;  // regions count from 1
}

void page_begin_turn(struct page *page, int64_t until_ns)
{
    page->until_ns = until_ns;
    page->resumed = page->paused;
    page->paused = page->moved = false;
}

bool page_pauses(struct page *page, const struct run *run, const struct model_process *process, uint32_t part)
{
    bool is_late = page->until_ns && page->moved && clock_monotonic_ns() >= page->until_ns;
    page->moved = true;
    if (!is_late)
        return false;
    page->paused = true;
    page->at = (struct row_key){run->number, process->number, part};
    return true;
}

uint32_t page_first_part(const struct page *page, const struct run *run, const struct model_process *process)
{
    bool is_here = page->resumed && run->number == page->at.run && process->number == page->at.process;
    return is_here ? (uint32_t)page->at.index : 0;
}

void page_each_run(struct page *page, page_on_run visit)
{
    size_t count = 0;
    for (const struct run *run = page->daemon->runs; run; run = run->next)
        count++;
    struct run **runs = alloc_zeroed(count, sizeof *runs);
    count = 0;
    for (struct run *run = page->daemon->runs; run; run = run->next) {
        bool named = !page->filter->run || runs_is_called(run, page->filter->run);
        if (named && !run_is_over(page, run) && (page->sees_all || run->uid == page->uid))
            runs[count++] = run;
    }
    qsort(runs, count, sizeof *runs, by_number);
    for (size_t i = 0; i < count && !page->more && !page->paused; i++)
        visit(page, runs[i]);
    free(runs);
}

bool page_fits(const struct page *page, const struct model_process *process)
{
    const struct row_filter *filter = page->filter;
    return (!filter->has_rank || process->status.rank == filter->rank) && (!filter->has_pid || process->facts.pid == filter->pid);
}

void page_each_process(struct page *page, struct run *run, page_on_process visit)
{
    for (uint32_t i = 0; i < run->model.process_count && !page->more && !page->paused; i++) {
        struct model_process *process = run->model.processes[i];
        if (!page_fits(page, process) || process_is_over(page, run, process))
            continue;
        if (!page_pauses(page, run, process, page_first_part(page, run, process)))
            visit(page, run, process);
    }
}

struct client *page_client_of(const struct page *page, const struct model_process *process)
{
    for (struct client *client = page->daemon->clients; client; client = client->next)
        if (client->process == process)
            return client;
    return NULL;
}

// ---- pieces of rows

void row_member_rank(struct json_writer *json, const char *key, int64_t rank, int64_t none)
{
    if (rank == none)
        jsonw_member_null(json, key);
    else
        jsonw_member_int(json, key, rank);
}

void row_open(struct page *page, const struct run *run, const struct model_process *process)
{
    jsonw_object(page->json);
    jsonw_member_text(page->json, "run", run->id);
    jsonw_member_text(page->json, "host", process->host);
    row_member_rank(page->json, "rank", process->status.rank, SL_RANK_NONE);
    row_member_rank(page->json, "file_rank", process->file_rank, -1);
    jsonw_member_uint(page->json, "pid", process->facts.pid);
}

// Of a thread that has been looked at twice, and lives.
void row_member_share(struct json_writer *json, const struct model_thread *thread)
{
    if (thread && thread->share_ns && thread->cpu_share >= 0 && !thread->facts.end)
        jsonw_member_double(json, "cpu_share", thread->cpu_share);
    else
        jsonw_member_null(json, "cpu_share");
}

int64_t row_time(struct run *run, const struct model_process *process, uint64_t ticks)
{
    return ticks ? model_time_ns(&run->model, process, ticks) : SL_UNKNOWN;
}

// The program says when: it may be any number.
int64_t row_ago(const struct page *page, struct run *run, const struct model_process *process, uint64_t ticks)
{
    int64_t time_ns = row_time(run, process, ticks);
    return time_ns >= page->now_ns ? 0 : page->now_ns - (time_ns > 0 ? time_ns : 0);
}

void row_stack_of_view(struct page *page, struct run *run, struct model_process *process, const struct lane_view *view)
{
    jsonw_key(page->json, "stack");
    jsonw_array(page->json);
    for (uint32_t i = 0; i < view->depth; i++)
        jsonw_text(page->json, model_region_name(&run->model, model_region(process, view->calls[i].region)));
    jsonw_array_end(page->json);
    jsonw_member_time(page->json, "since_ns", row_time(run, process, view->since));
    jsonw_member_bool(page->json, "moving", view->moving);
}

// What a lane was in when its process ended.
void row_stack_of_dead(struct page *page, struct run *run, struct model_process *process, uint32_t thread, uint32_t task)
{
    jsonw_key(page->json, "stack");
    jsonw_array(page->json);
    for (uint32_t i = 0; i < process->open_count; i++) {
        const struct open_facts *open = &process->open[i];
        if (open->thread == thread && open->task == task)
            jsonw_text(page->json, model_region_name(&run->model, model_region(process, open->region)));
    }
    jsonw_array_end(page->json);
    jsonw_member_time(page->json, "since_ns", row_time(run, process, process->status.last_event));
}
