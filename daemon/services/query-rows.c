#include "services/query-rows.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "core/lanes.h"

static const char *const process_states[] = PROCESS_STATE_NAMES;
static const char *const loss_names[] = SL_LOSS_NAMES;

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
static bool wants(struct page *page, const struct row_key *key)
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

static int by_number(const void *a, const void *b)
{
    const struct run *one = *(struct run *const *)a, *other = *(struct run *const *)b;
    return one->number < other->number ? -1 : one->number > other->number;
}

typedef void (*on_run)(struct page *page, struct run *run);

static void each_run(struct page *page, on_run visit)
{
    size_t count = 0;
    for (const struct run *run = page->daemon->runs; run; run = run->next)
        count++;
    struct run **runs = alloc_zeroed(count, sizeof *runs);
    count = 0;
    for (struct run *run = page->daemon->runs; run; run = run->next) {
        bool named = !page->filter->run || strcmp(page->filter->run, run->id) == 0 ||
                     (strchr(run->key, ':') && strcmp(strrchr(run->key, ':') + 1, page->filter->run) == 0);
        if (named && (page->sees_all || run->uid == page->uid))
            runs[count++] = run;
    }
    qsort(runs, count, sizeof *runs, by_number);
    for (size_t i = 0; i < count && !page->more; i++)
        visit(page, runs[i]);
    free(runs);
}

static bool fits(const struct page *page, const struct model_process *process)
{
    const struct row_filter *filter = page->filter;
    return (!filter->has_rank || process->status.rank == filter->rank) && (!filter->has_pid || process->facts.pid == filter->pid);
}

typedef void (*on_process)(struct page *page, struct run *run, struct model_process *process);

static void each_process(struct page *page, struct run *run, on_process visit)
{
    for (uint32_t i = 0; i < run->model.process_count && !page->more; i++)
        if (fits(page, run->model.processes[i]))
            visit(page, run, run->model.processes[i]);
}

static struct client *client_of(const struct page *page, const struct model_process *process)
{
    for (struct client *client = page->daemon->clients; client; client = client->next)
        if (client->process == process)
            return client;
    return NULL;
}

// ---- pieces of rows

static void member_rank(struct json_writer *json, const char *key, int64_t rank, int64_t none)
{
    if (rank == none)
        jsonw_member_null(json, key);
    else
        jsonw_member_int(json, key, rank);
}

static void open_row(struct page *page, const struct run *run, const struct model_process *process)
{
    jsonw_object(page->json);
    jsonw_member_text(page->json, "run", run->id);
    jsonw_member_text(page->json, "host", process->host);
    member_rank(page->json, "rank", process->status.rank, SL_RANK_NONE);
    member_rank(page->json, "file_rank", process->file_rank, -1);
    jsonw_member_uint(page->json, "pid", process->facts.pid);
}

static int64_t time_of(struct run *run, const struct model_process *process, uint64_t ticks)
{
    return ticks ? model_time_ns(&run->model, process, ticks) : SL_UNKNOWN;
}

static void stack_of_view(struct page *page, struct run *run, struct model_process *process, const struct lane_view *view)
{
    jsonw_key(page->json, "stack");
    jsonw_array(page->json);
    for (uint32_t i = 0; i < view->depth; i++)
        jsonw_text(page->json, model_region_name(&run->model, model_region(process, view->calls[i].region)));
    jsonw_array_end(page->json);
    jsonw_member_time(page->json, "since_ns", time_of(run, process, view->since));
    jsonw_member_bool(page->json, "moving", view->moving);
}

// What a lane was in when its process ended.
static void stack_of_dead(struct page *page, struct run *run, struct model_process *process, uint32_t thread, uint32_t task)
{
    jsonw_key(page->json, "stack");
    jsonw_array(page->json);
    for (uint32_t i = 0; i < process->open_count; i++) {
        const struct open_facts *open = &process->open[i];
        if (open->thread == thread && open->task == task)
            jsonw_text(page->json, model_region_name(&run->model, model_region(process, open->region)));
    }
    jsonw_array_end(page->json);
    jsonw_member_time(page->json, "since_ns", time_of(run, process, process->status.last_event));
}

// ---- runs

static void run_row(struct page *page, struct run *run)
{
    struct row_key key = {run->number, 0, 0};
    if (!wants(page, &key))
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
    jsonw_member_double(json, "progress", run->progress);
    jsonw_member_text(json, "problem", run->problem);
    jsonw_object_end(json);
}

void rows_runs(struct page *page)
{
    each_run(page, run_row);
}

// ---- processes

static void process_row(struct page *page, struct run *run, struct model_process *process)
{
    struct row_key key = {run->number, process->number, 0};
    const char *state = process_states[process->status.state];
    if ((page->filter->state && strcmp(page->filter->state, state) != 0) || !wants(page, &key))
        return;
    struct ledger ledger = model_ledger(process);
    struct json_writer *json = page->json;
    open_row(page, run, process);
    jsonw_member_uint(json, "parent_pid", process->facts.parent_pid);
    jsonw_member_text(json, "program", process->program);
    jsonw_member_text(json, "state", state);
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
    jsonw_member_uint(json, "crossing", ledger.crossing);
    jsonw_member_uint(json, "abandoned", ledger.abandoned);
    jsonw_member_time(json, "last_event_ns", time_of(run, process, process->status.last_event));
    jsonw_object_end(json);
}

static void processes_of(struct page *page, struct run *run)
{
    each_process(page, run, process_row);
}

void rows_processes(struct page *page)
{
    each_run(page, processes_of);
}

// ---- threads

static const char *thread_state(const struct client *client, const struct model_process *process, const struct model_thread *thread)
{
    if (thread->facts.end)
        return "ended";
    return client && !client->gone ? "live" : process_states[process->status.state];
}

// The lane of a living thread, read now.
static bool read_thread_lane(const struct client *client, const struct model_thread *thread, struct lane_view *view)
{
    if (!client || client->gone || client->broken || thread->facts.end || thread->facts.slot >= client->segment.slot_count)
        return false;
    struct sl_ring *ring = segment_ring(&client->segment, thread->facts.slot);
    if (sl_load_relaxed(&ring->owner) != thread->facts.index)
        return false;
    lanes_read(&client->segment, sl_ring_lane(ring), SL_THREAD_ENTRIES, view);
    return true;
}

static void current_task(struct page *page, const struct model_process *process, uint32_t thread)
{
    for (uint32_t chunk = 0; chunk < process->task_chunks; chunk++)
        for (uint32_t i = 0; process->tasks[chunk] && i < 1024; i++) {
            const struct model_task *task = process->tasks[chunk][i];
            if (task && !task->facts.done && task->facts.stepping == thread + 1) {
                jsonw_member_uint(page->json, "task_index", task->facts.index);
                return;
            }
        }
    jsonw_member_null(page->json, "task_index");
}

static void thread_row(struct page *page, struct run *run, struct model_process *process, const struct client *client, uint32_t index)
{
    static struct lane_view view;
    struct row_key key = {run->number, process->number, index};
    const struct model_thread *thread = &process->threads[index];
    const char *state = thread_state(client, process, thread);
    if ((page->filter->state && strcmp(page->filter->state, state) != 0) || !wants(page, &key))
        return;
    struct json_writer *json = page->json;
    open_row(page, run, process);
    jsonw_member_uint(json, "index", index);
    jsonw_member_id(json, "ident", thread->facts.ident);
    jsonw_member_uint(json, "native_id", thread->facts.native_id);
    jsonw_member_text(json, "name", thread->name);
    jsonw_member_bool(json, "daemon", thread->facts.flags & SL_THREAD_DAEMON);
    jsonw_member_time(json, "start_ns", time_of(run, process, thread->facts.start));
    jsonw_member_time(json, "end_ns", time_of(run, process, thread->facts.end));
    jsonw_member_uint(json, "cpu_ns", thread->facts.cpu_ns);
    jsonw_member_bool(json, "cpu_exact", thread->facts.cpu_exact);
    jsonw_member_uint(json, "calls", thread->calls);
    jsonw_member_text(json, "state", state);
    current_task(page, process, index);
    if (read_thread_lane(client, thread, &view))
        stack_of_view(page, run, process, &view);
    else
        stack_of_dead(page, run, process, index, SL_TASK_NONE);
    jsonw_object_end(json);
}

static void threads_of_process(struct page *page, struct run *run, struct model_process *process)
{
    const struct client *client = client_of(page, process);
    for (uint32_t i = 0; i < process->thread_count && !page->more; i++)
        if (process->threads[i].known && (!page->filter->has_thread || page->filter->thread == i))
            thread_row(page, run, process, client, i);
}

static void threads_of(struct page *page, struct run *run)
{
    each_process(page, run, threads_of_process);
}

void rows_threads(struct page *page)
{
    each_run(page, threads_of);
}

// ---- tasks

// A living task's times as of now come from its row: a step or suspension in progress is included.
static bool read_task_row(const struct client *client, const struct model_task *task, struct sl_task_row *row, struct lane_view *view)
{
    if (!client || client->gone || client->broken || task->facts.done || !task->row)
        return false;
    const struct sl_task_row *shared = segment_at(&client->segment, task->row, sizeof *shared);
    if (!shared || sl_load_relaxed(&shared->index) != task->facts.index || sl_load_acquire(&shared->state) != SL_ROW_LIVE)
        return false;
    struct buffer name = {0}, coro_name = {0};
    segment_task_row(&client->segment, shared, row, &name, &coro_name);
    buffer_finish(&name);
    buffer_finish(&coro_name);
    lanes_read(&client->segment, &shared->lane, SL_TASK_ENTRIES, view);
    return true;
}

static void task_times(struct page *page, struct run *run, struct model_process *process, const struct task_facts *facts, bool live)
{
    struct json_writer *json = page->json;
    int64_t running = model_length_ns(&run->model, process, facts->running);
    int64_t suspended = model_length_ns(&run->model, process, facts->suspended);
    int64_t longest = model_length_ns(&run->model, process, facts->longest_step);
    bool steps = facts->stepping && facts->stepping < 0x80000000u;
    if (live && steps) {
        int64_t step = page->now_ns - time_of(run, process, facts->step_started);
        running += step > 0 ? step : 0;
        longest = step > longest ? step : longest;
    } else if (live && facts->steps) {
        int64_t wait = page->now_ns - time_of(run, process, facts->last_step_end);
        suspended += wait > 0 ? wait : 0;
    }
    jsonw_member_uint(json, "steps", facts->steps);
    jsonw_member_int(json, "running_ns", running);
    jsonw_member_int(json, "suspended_ns", suspended);
    jsonw_member_int(json, "longest_step_ns", longest);
    jsonw_member_bool(json, "bound", facts->steps_bound);
    jsonw_member_text(json, "state", facts->done ? "done" : steps ? "running" : "suspended");
}

static void task_row(struct page *page, struct run *run, struct model_process *process, const struct client *client,
                     const struct model_task *task)
{
    static struct lane_view view;
    struct row_key key = {run->number, process->number, task->facts.index};
    struct sl_task_row row;
    struct task_facts facts = task->facts;
    if (!wants(page, &key))
        return;
    bool live = read_task_row(client, task, &row, &view);
    if (live) {
        facts.thread = row.lane.thread;
        facts.steps = row.lane.steps;
        facts.running = row.lane.running;
        facts.suspended = row.lane.suspended;
        facts.longest_step = row.lane.longest_step;
        facts.step_started = row.lane.step_started;
        facts.last_step_end = row.lane.last_step_end;
        facts.stepping = row.lane.stepping;
    }
    struct json_writer *json = page->json;
    open_row(page, run, process);
    jsonw_member_uint(json, "index", facts.index);
    jsonw_member_text(json, "kind", model_word(process, facts.kind));
    jsonw_member_text(json, "name", task->name);
    jsonw_member_text(json, "coro_name", task->coro_name);
    jsonw_member_uint(json, "thread_index", facts.thread);
    jsonw_member_time(json, "created_ns", time_of(run, process, facts.created));
    jsonw_member_time(json, "done_ns", time_of(run, process, facts.done));
    task_times(page, run, process, &facts, live);
    jsonw_member_uint(json, "calls", task->calls);
    if (live)
        stack_of_view(page, run, process, &view);
    else
        stack_of_dead(page, run, process, FACTS_NO_THREAD, facts.index);
    jsonw_object_end(json);
}

static void tasks_of_process(struct page *page, struct run *run, struct model_process *process)
{
    const struct client *client = client_of(page, process);
    for (uint32_t chunk = 0; chunk < process->task_chunks && !page->more; chunk++)
        for (uint32_t i = 0; process->tasks[chunk] && i < 1024 && !page->more; i++)
            if (process->tasks[chunk][i])
                task_row(page, run, process, client, process->tasks[chunk][i]);
}

static void tasks_of(struct page *page, struct run *run)
{
    each_process(page, run, tasks_of_process);
}

void rows_tasks(struct page *page)
{
    each_run(page, tasks_of);
}

// ---- regions: one row per name over the run's processes that the filter lets pass

struct sums {
    uint64_t calls, open;
    int64_t total_ns, self_ns, min_ns, max_ns;
};

static void add_region(struct run *run, const struct model_process *process, const struct model_region *region, struct sums *sums)
{
    if (!region->calls)
        return;
    struct sums *sum = &sums[region->name];
    int64_t minimum = model_length_ns(&run->model, process, region->minimum);
    int64_t maximum = model_length_ns(&run->model, process, region->maximum);
    sum->min_ns = !sum->calls || minimum < sum->min_ns ? minimum : sum->min_ns;
    sum->max_ns = maximum > sum->max_ns ? maximum : sum->max_ns;
    sum->calls += region->calls;
    sum->total_ns += model_length_ns(&run->model, process, region->total);
    int64_t self = region->self;
    sum->self_ns += self < 0 ? -model_length_ns(&run->model, process, (uint64_t)-self)
                             : model_length_ns(&run->model, process, (uint64_t)self);
}

static void region_row(struct page *page, struct run *run, uint32_t name, const struct sums *sum)
{
    struct row_key key = {run->number, 0, name};
    const char *text = run->model.names[name].text;
    if (!sum->calls || (page->filter->region && strcmp(page->filter->region, text) != 0) || !wants(page, &key))
        return;
    struct json_writer *json = page->json;
    jsonw_object(json);
    jsonw_member_text(json, "run", run->id);
    member_rank(json, "rank", page->filter->has_rank ? page->filter->rank : SL_RANK_NONE, SL_RANK_NONE);
    jsonw_member_text(json, "name", text);
    jsonw_member_uint(json, "calls", sum->calls);
    jsonw_member_int(json, "total_ns", sum->total_ns);
    jsonw_member_int(json, "self_ns", sum->self_ns);
    jsonw_member_int(json, "min_ns", sum->min_ns);
    jsonw_member_int(json, "max_ns", sum->max_ns);
    jsonw_member_int(json, "mean_ns", sum->total_ns / (int64_t)sum->calls);
    jsonw_object_end(json);
}

static void regions_of(struct page *page, struct run *run)
{
    struct sums *sums = alloc_zeroed(run->model.name_count, sizeof *sums);
    for (uint32_t i = 0; i < run->model.process_count; i++) {
        const struct model_process *process = run->model.processes[i];
        if (!fits(page, process))
            continue;
        for (uint32_t id = 0; id < process->region_count; id++)
            if (process->regions[id].file)
                add_region(run, process, &process->regions[id], sums);
        add_region(run, process, &process->other, sums);
    }
    for (uint32_t name = 0; name < run->model.name_count; name++)
        region_row(page, run, name, &sums[name]);
    free(sums);
}

void rows_regions(struct page *page)
{
    each_run(page, regions_of);
}

// ---- loss

static void loss_row(struct page *page, struct run *run, struct model_process *process, uint32_t ring, const struct ledger *ledger, int reason)
{
    struct row_key key = {run->number, process->number, (uint64_t)(ring + 1u) * SL_LOST_COUNT + (uint64_t)reason};
    if (!ledger->lost[reason] || !wants(page, &key))
        return;
    open_row(page, run, process);
    if (ring == FACTS_ELSEWHERE)
        jsonw_member_null(page->json, "ring");
    else
        jsonw_member_uint(page->json, "ring", ring);
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
    each_process(page, run, loss_of_process);
}

void rows_loss(struct page *page)
{
    each_run(page, loss_of);
}

// ---- trust

void rows_trust(struct json_writer *json, const struct page *page)
{
    struct ledger sum = {0};
    uint64_t untracked = 0;
    int64_t error_ns = page->daemon->clock.error_ns;
    for (const struct run *run = page->daemon->runs; run; run = run->next) {
        if (!page->sees_all && run->uid != page->uid)
            continue;
        for (uint32_t i = 0; i < run->model.process_count; i++) {
            struct ledger ledger = model_ledger(run->model.processes[i]);
            for (int reason = 0; reason < SL_LOST_COUNT; reason++)
                sum.lost[reason] += ledger.lost[reason];
            sum.unmatched += ledger.unmatched;
        }
    }
    for (const struct client *client = page->daemon->clients; client; client = client->next)
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
    jsonw_member_int(json, "clock_error_ns", error_ns);
    jsonw_object_end(json);
}
