// Threads, tasks, lanes: what stands in the lane blocks now.
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "services/query-rows.h"

#define TASK_PAUSED 0x80000000u  // in sl_lane.stepping: a nested step holds the thread

static const char *const process_states[] = PROCESS_STATE_NAMES;

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

// The task whose step each thread is in, by thread index: SL_TASK_NONE for none. Freed by the caller.
static uint32_t *current_tasks(const struct client *client, const struct model_process *process)
{
    uint32_t *current = alloc_zeroed(process->thread_count, sizeof *current);
    memset(current, 0xff, process->thread_count * sizeof *current);
    for (uint32_t i = 0; client && !client->gone && !client->broken && i < client->segment.task_extents; i++) {
        const struct segment_rows *rows = &client->segment.tasks[i];
        const struct sl_task_row *row = segment_at(&client->segment, rows->offset, (uint64_t)rows->count * sizeof *row);
        for (uint32_t j = 0; row && j < rows->count; j++) {
            uint32_t stepping = sl_load_acquire(&row[j].lane.stepping);
            if (sl_load_acquire(&row[j].state) == SL_ROW_LIVE && stepping && stepping <= process->thread_count)
                current[stepping - 1] = sl_load_relaxed(&row[j].index);
        }
    }
    return current;
}

// Calls it lost; null where its ring was others' too, for a ring counts for all.
static void member_lost(struct json_writer *json, const struct model_process *process, const struct model_thread *thread, uint32_t index)
{
    if (model_ring_thread(process, thread->facts.slot) == index)
        jsonw_member_uint(json, "lost", model_lost(&process->slots[thread->facts.slot].ledger));
    else
        jsonw_member_null(json, "lost");
}

static void thread_row(struct page *page, struct run *run, struct model_process *process, const struct client *client, uint32_t index,
                       uint32_t task)
{
    static struct lane_view view;
    struct row_key key = {run->number, process->number, index};
    const struct model_thread *thread = model_find_thread(process, index);
    const char *state = thread_state(client, process, thread);
    if ((page->filter->state && strcmp(page->filter->state, state) != 0) || !page_wants(page, &key))
        return;
    struct json_writer *json = page->json;
    row_open(page, run, process);
    jsonw_member_uint(json, "index", index);
    jsonw_member_id(json, "ident", thread->facts.ident);
    jsonw_member_uint(json, "native_id", thread->facts.native_id);
    jsonw_member_text(json, "name", thread->name);
    jsonw_member_bool(json, "daemon", thread->facts.flags & SL_THREAD_DAEMON);
    jsonw_member_time(json, "start_ns", row_time(run, process, thread->facts.start));
    jsonw_member_time(json, "end_ns", row_time(run, process, thread->facts.end));
    jsonw_member_uint(json, "cpu_ns", thread->facts.cpu_ns);
    jsonw_member_bool(json, "cpu_exact", thread->facts.cpu_exact);
    row_member_share(json, thread);
    jsonw_member_uint(json, "run_queue_ns", thread->wait_ns);
    jsonw_member_uint(json, "switches", thread->switches);
    jsonw_member_uint(json, "calls", thread->calls);
    member_lost(json, process, thread, index);
    jsonw_member_text(json, "state", state);
    if (task == SL_TASK_NONE)
        jsonw_member_null(json, "task_index");
    else
        jsonw_member_uint(json, "task_index", task);
    if (read_thread_lane(client, thread, &view))
        row_stack_of_view(page, run, process, &view);
    else
        row_stack_of_dead(page, run, process, index, SL_TASK_NONE);
    jsonw_object_end(json);
}

static void threads_of_process(struct page *page, struct run *run, struct model_process *process)
{
    const struct client *client = page_client_of(page, process);
    uint32_t *current = current_tasks(client, process);
    for (uint32_t i = model_next_thread(process, 0); i < process->thread_count && !page->more; i = model_next_thread(process, i + 1))
        if (model_find_thread(process, i)->known && (!page->filter->has_thread || page->filter->thread == i))
            thread_row(page, run, process, client, i, current[i]);
    free(current);
}

static void threads_of(struct page *page, struct run *run)
{
    page_each_process(page, run, threads_of_process);
}

void rows_threads(struct page *page)
{
    page_each_run(page, threads_of);
}

// ---- tasks

// The row of a task that has not ended as far as is known; NULL where it is another's.
static const struct sl_task_row *shared_row(const struct client *client, const struct model_task *task)
{
    if (!client || client->gone || client->broken || task->facts.done || !task->row)
        return NULL;
    const struct sl_task_row *shared = segment_at(&client->segment, task->row, sizeof *shared);
    return shared && sl_load_relaxed(&shared->index) == task->facts.index ? shared : NULL;
}

// A living task's times as of now come from its row: a step or suspension in progress is included.
static bool read_task_row(const struct client *client, const struct model_task *task, struct sl_task_row *row, struct lane_view *view)
{
    const struct sl_task_row *shared = shared_row(client, task);
    if (!shared || sl_load_acquire(&shared->state) != SL_ROW_LIVE)
        return false;
    lanes_read_task(&client->segment, shared, row, view);
    return true;
}

static void take_steps(struct task_facts *facts, const struct sl_lane *lane)
{
    facts->thread = lane->thread;
    facts->steps = lane->steps;
    facts->running = lane->running;
    facts->suspended = lane->suspended;
    facts->longest_step = lane->longest_step;
    facts->step_started = lane->step_started;
    facts->last_step_end = lane->last_step_end;
    facts->stepping = lane->stepping;
}

// A task that has just ended has its row until that has been drained: what it says never goes back.
bool task_steps_now(const struct client *client, const struct model_task *task, struct task_facts *facts)
{
    const struct sl_task_row *shared = shared_row(client, task);
    struct sl_lane lane;
    if (!shared || !lanes_read_steps(&shared->lane, &lane) || sl_load_relaxed(&shared->index) != task->facts.index)
        return false;
    take_steps(facts, &lane);
    return true;
}

bool task_is_stepping(const struct task_facts *facts)
{
    return facts->stepping && facts->stepping < TASK_PAUSED;
}

static const char *task_state(const struct task_facts *facts)
{
    return facts->done ? "done" : task_is_stepping(facts) ? "running" : "suspended";
}

static int64_t larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

// A row that was being written all the while it was looked at may have a step's time already and the step still open: what is in progress
// is not added then, and no time goes back.
static void task_times(struct page *page, struct run *run, struct model_process *process, struct model_task *task,
                       const struct task_facts *facts, bool live, bool moving)
{
    struct json_writer *json = page->json;
    int64_t running = model_length_ns(&run->model, process, facts->running);
    int64_t suspended = model_length_ns(&run->model, process, facts->suspended);
    int64_t longest = model_length_ns(&run->model, process, facts->longest_step);
    if (live && moving) {
        running = larger(running, task->told_running_ns);
        suspended = larger(suspended, task->told_suspended_ns);
    } else if (live && task_is_stepping(facts)) {
        int64_t step = row_ago(page, run, process, facts->step_started);
        running += step;
        longest = larger(longest, step);
    } else if (live && facts->steps) {
        suspended += row_ago(page, run, process, facts->last_step_end);
    }
    task->told_running_ns = running;
    task->told_suspended_ns = suspended;
    jsonw_member_uint(json, "steps", facts->steps);
    jsonw_member_int(json, "running_ns", running);
    jsonw_member_int(json, "suspended_ns", suspended);
    jsonw_member_int(json, "longest_step_ns", longest);
    jsonw_member_bool(json, "bound", facts->steps_bound);
    jsonw_member_text(json, "state", task_state(facts));
}

static void task_row(struct page *page, struct run *run, struct model_process *process, const struct client *client,
                     struct model_task *task)
{
    static struct lane_view view;
    struct row_key key = {run->number, process->number, task->facts.index};
    struct sl_task_row row;
    struct task_facts facts = task->facts;
    bool live = read_task_row(client, task, &row, &view);
    if (live)
        take_steps(&facts, &row.lane);
    const char *kind = model_word(process, facts.kind), *state = task_state(&facts);
    if ((page->filter->kind && strcmp(page->filter->kind, kind) != 0) ||
        (page->filter->state && strcmp(page->filter->state, state) != 0) || !page_wants(page, &key))
        return;
    struct json_writer *json = page->json;
    row_open(page, run, process);
    jsonw_member_uint(json, "index", facts.index);
    jsonw_member_text(json, "kind", kind);
    jsonw_member_text(json, "name", task->name);
    jsonw_member_text(json, "coro_name", task->coro_name);
    jsonw_member_uint(json, "thread_index", facts.thread);
    jsonw_member_time(json, "created_ns", row_time(run, process, facts.created));
    jsonw_member_time(json, "done_ns", row_time(run, process, facts.done));
    task_times(page, run, process, task, &facts, live, live && view.moving);
    if (live)
        row_stack_of_view(page, run, process, &view);
    else
        row_stack_of_dead(page, run, process, FACTS_NO_THREAD, facts.index);
    jsonw_object_end(json);
}

static void tasks_of_process(struct page *page, struct run *run, struct model_process *process)
{
    const struct client *client = page_client_of(page, process);
    uint32_t first = page_first_part(page, run, process);
    for (uint32_t chunk = first; chunk < process->task_chunks && !page->more; chunk++) {
        if (chunk > first && page_pauses(page, run, process, chunk))
            return;
        for (uint32_t i = 0; process->tasks[chunk] && i < MODEL_TASK_CHUNK && !page->more; i++)
            if (process->tasks[chunk][i])
                task_row(page, run, process, client, process->tasks[chunk][i]);
    }
}

static void tasks_of(struct page *page, struct run *run)
{
    page_each_process(page, run, tasks_of_process);
}

void rows_tasks(struct page *page)
{
    page_each_run(page, tasks_of);
}

// ---- lanes

static const char *os_state_name(char letter)
{
    return letter == 'R' ? "running" : letter == 'D' ? "disk" : letter == 'T' || letter == 't' ? "stopped" : "waiting";
}

static void visit_thread(struct page *page, struct run *run, struct model_process *process, const struct client *client, uint32_t index,
                         lanes_on_lane visit, void *context)
{
    static struct lane_view view;
    const struct model_thread *thread = model_find_thread(process, index);
    struct lane lane = {.run = run, .process = process, .thread = index, .task = SL_TASK_NONE};
    if (thread->facts.end || !thread->known)
        return;
    lane.state = thread_state(client, process, thread);
    if (read_thread_lane(client, thread, &view)) {
        lane.view = &view;
        lane.state = view.moving ? "moving" : thread->os_state ? os_state_name(thread->os_state) : lane.state;
    }
    visit(page, &lane, context);
}

static void visit_task(struct page *page, struct run *run, struct model_process *process, const struct client *client,
                       const struct model_task *task, lanes_on_lane visit, void *context)
{
    static struct lane_view view;
    struct sl_task_row row;
    struct lane lane = {.run = run, .process = process, .thread = task->facts.thread, .task = task->facts.index};
    if (task->facts.done)
        return;
    lane.state = process_states[process->status.state];
    if (read_task_row(client, task, &row, &view)) {
        lane.view = &view;
        lane.thread = row.lane.thread;
        lane.state = view.moving ? "moving" : row.lane.stepping && row.lane.stepping < TASK_PAUSED ? "running" : "suspended";
    } else if (client && !client->gone) {
        return;  // done since the last scan
    }
    visit(page, &lane, context);
}

bool lanes_visit_part(struct page *page, struct run *run, struct model_process *process, uint32_t part, lanes_on_lane visit, void *context)
{
    const struct client *client = page_client_of(page, process);
    if (part == 0)
        for (uint32_t i = model_next_thread(process, 0); i < process->thread_count; i = model_next_thread(process, i + 1))
            visit_thread(page, run, process, client, i, visit, context);
    else if (part <= process->task_chunks)
        for (uint32_t i = 0; process->tasks[part - 1] && i < MODEL_TASK_CHUNK; i++)
            if (process->tasks[part - 1][i])
                visit_task(page, run, process, client, process->tasks[part - 1][i], visit, context);
    return part < process->task_chunks;
}

void lanes_visit(struct page *page, struct run *run, struct model_process *process, lanes_on_lane visit, void *context)
{
    uint32_t part = page_first_part(page, run, process);
    bool is_cut = page->has_after && run->number == page->after.run && process->number == page->after.process;
    if (is_cut && page->after.index >> 32 && part <= (uint32_t)page->after.index / MODEL_TASK_CHUNK)
        part = 1 + (uint32_t)page->after.index / MODEL_TASK_CHUNK;  // lanes before the cursor's task are not looked at
    while (lanes_visit_part(page, run, process, part, visit, context) && !page->more &&
           !page_pauses(page, run, process, part + 1))
        part++;
}

static char *lane_label(const struct lane *lane)
{
    const struct model_process *process = lane->process;
    const struct model_thread *known = model_find_thread(process, lane->thread);
    const char *thread = known && known->name ? known->name : "?";
    const struct model_task *task = lane->task == SL_TASK_NONE ? NULL : model_task(process, lane->task);
    return task ? alloc_printf("%s (%s) on %s", task->name, task->coro_name, thread) : alloc_text(thread);
}

struct row_key lane_key(const struct lane *lane)
{
    bool is_task = lane->task != SL_TASK_NONE;
    return (struct row_key){lane->run->number, lane->process->number, is_task ? UINT64_C(1) << 32 | lane->task : lane->thread};
}

// Lanes are numbered as in run files: a task's index, else -2 - thread.
void lane_members(struct json_writer *json, const struct lane *lane)
{
    bool is_task = lane->task != SL_TASK_NONE;
    char *label = lane_label(lane);
    jsonw_member_int(json, "lane", is_task ? (int64_t)lane->task : -2 - (int64_t)lane->thread);
    jsonw_member_text(json, "label", label);
    jsonw_member_uint(json, "thread_index", lane->thread);
    if (is_task)
        jsonw_member_uint(json, "task_index", lane->task);
    else
        jsonw_member_null(json, "task_index");
    jsonw_member_text(json, "state", lane->state);
    free(label);
}

static void lane_row(struct page *page, const struct lane *lane, void *context)
{
    struct row_key key = lane_key(lane);
    (void)context;
    if ((page->filter->state && strcmp(page->filter->state, lane->state) != 0) || !page_wants(page, &key))
        return;
    row_open(page, lane->run, lane->process);
    lane_members(page->json, lane);
    if (lane->view)
        row_stack_of_view(page, lane->run, lane->process, lane->view);
    else
        row_stack_of_dead(page, lane->run, lane->process, lane->task != SL_TASK_NONE ? FACTS_NO_THREAD : lane->thread, lane->task);
    jsonw_object_end(page->json);
}

static void lanes_of_process(struct page *page, struct run *run, struct model_process *process)
{
    lanes_visit(page, run, process, lane_row, NULL);
}

static void lanes_of(struct page *page, struct run *run)
{
    page_each_process(page, run, lanes_of_process);
}

void rows_lanes(struct page *page)
{
    page_each_run(page, lanes_of);
}
