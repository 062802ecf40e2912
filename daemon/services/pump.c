// The pump: from a client's shared memory into its run's model and spool. The order makes it exactly once: copy and note
// what may be given back; write the spool; only then move tails and mark rows SPOOLED. When the spool cannot be written, nothing is
// given back, and the producers count what no longer fits.
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/say.h"
#include "base/testpoint.h"
#include "core/drain.h"
#include "core/lanes.h"
#include "core/procfs.h"
#include "core/unmatched.h"
#include "services/daemon.h"
#include "services/follow.h"

enum {
    BATCH_RECORDS = 8192,  // 256 KiB: they stay in the processor's cache from the copy to the write, and their room is given back soon
    FLUSH_BYTES = BATCH_RECORDS * SL_RECORD_BYTES,
    BUSY_SHARE = 8,        // a ring that is fuller than one part in so many asks for the next round at once
    TASK_SCAN_PERIOD_MS = 250,
    LEDGER_PERIOD_MS = 1000,
    OPEN_PERIOD_MS = 5000,
    ASTRAY_PERIOD_MS = 250,    // after an exit without an enter, while the enter's call is still open
    ASTRAY_SAID = 16,          // per process; all of them stand in the run file
    RETRY_PERIOD_MS = 100,     // of writing a spool that could not be written
    SLOWEST_MS = 250,
    SLOWEST_UNWOKEN_MS = 20,  // where some client cannot wake us
    TURN_NS = 1000000,        // of a turn of the loop; the rings and clients that are left have the next ones
};

static bool is_due(int64_t *last_ns, int64_t now_ns, int64_t period_ms, bool last)
{
    if (!last && now_ns - *last_ns < period_ms * 1000000)
        return false;
    *last_ns = now_ns;
    return true;
}

// ---- strings

static bool pump_strings(struct client *client)
{
    struct buffer text = {0};
    struct segment_string string;
    bool found = false;
    int result;
    while ((result = segment_next_string(&client->segment, &string, &text)) > 0) {
        found = true;
        model_string(&client->run->model, client->process, string.type, string.id, string.name, string.name_length, string.file,
                     string.file_length, string.line);
        spool_put_string(&client->run->spool, client->process->number, string.type, string.id, string.line, string.name,
                         string.name_length, string.file, string.file_length);
    }
    client->broken = client->broken || result < 0;
    buffer_finish(&text);
    TESTPOINT(strings_put);
    return found;
}

// ---- rows

static void note_spooled(struct client *client, uint32_t *state)
{
    if (client->spooled_count == client->spooled_room) {
        client->spooled_room = client->spooled_room ? client->spooled_room * 2 : 64;
        client->spooled_states = alloc_resize(client->spooled_states, client->spooled_room, sizeof *client->spooled_states);
    }
    client->spooled_states[client->spooled_count++] = state;
}

// What was seen of row `number`; the array grows with the rows.
static uint32_t *version_of(uint32_t **versions, uint32_t *count, uint32_t number)
{
    if (number >= *count) {
        uint32_t larger = *count ? *count : 64;
        while (larger <= number)
            larger *= 2;
        *versions = alloc_resize(*versions, larger, sizeof **versions);
        memset(*versions + *count, 0, (larger - *count) * sizeof **versions);
        *count = larger;
    }
    return &(*versions)[number];
}

// What was seen of a row: its version, and whether it was done. The version rises before the row is done, so a row seen between the two is
// looked at again.
static uint32_t mark_of(const uint32_t *version, uint32_t state)
{
    return sl_load_acquire(version) << 1 | (state == SL_ROW_DONE);
}

// The end of the thread that called exit stands in its row before the process has ended: it counts only then.
static struct thread_facts thread_facts_of(const struct sl_thread_row *row, bool process_ended, size_t name_length)
{
    bool over = row->state == SL_ROW_DONE || (process_ended && row->end);
    return (struct thread_facts){.index = row->index, .native_id = row->native_id, .ident = row->ident, .flags = row->flags,
                                 .slot = row->slot, .start = row->start, .end = over ? row->end : 0,
                                 .cpu_ns = row->cpu_ns, .cpu_exact = over,
                                 .name_length = (uint32_t)name_length};
}

// A done thread's row is final when the kernel no longer knows the thread: a late destructor may still revive it.
static bool thread_is_gone(const struct client *client, uint32_t tid)
{
    struct procfs_stat stat;
    return client->gone || procfs_stat((uint32_t)client->pid, tid, &stat) < 0;
}

static void set_thread(struct client *client, const struct thread_facts *facts, const char *name)
{
    const struct model_thread *thread = model_find_thread(client->process, facts->index);
    bool was_known = thread && thread->known, had_ended = was_known && thread->facts.end;
    bool is_renamed = was_known && strcmp(thread->name, name) != 0;
    model_set_thread(client->process, facts, name);
    spool_put_thread(&client->run->spool, client->process->number, facts, name);
    if (!was_known || is_renamed || !had_ended != !facts->end)
        follow_thread(client, facts, name, facts->end != 0);
}

static bool pump_thread(struct client *client, struct sl_thread_row *shared, uint32_t number)
{
    uint32_t *seen = version_of(&client->thread_versions, &client->thread_rows, number);
    uint32_t state = sl_load_acquire(&shared->state), mark = mark_of(&shared->version, state);
    if (state != SL_ROW_LIVE && state != SL_ROW_DONE)
        return false;
    bool is_new = mark != *seen || (client->gone && state == SL_ROW_LIVE && shared->end);
    struct sl_thread_row row;
    struct buffer name = {0};
    if (is_new && (segment_thread_row(&client->segment, shared, &row, &name) || client->gone)) {
        struct thread_facts facts = thread_facts_of(&row, client->gone, name.length);
        set_thread(client, &facts, name.data ? name.data : "");
        TESTPOINT(thread_put);
        *seen = mark;
    }
    buffer_finish(&name);
    if (state == SL_ROW_DONE && mark == *seen && thread_is_gone(client, sl_load_relaxed(&shared->native_id)))
        note_spooled(client, &shared->state);
    return is_new;
}

static bool pump_threads(struct client *client)
{
    bool found = false;
    for (uint32_t i = 0; i < client->segment.thread_extents; i++) {
        const struct segment_rows *rows = &client->segment.threads[i];
        struct sl_thread_row *row = (struct sl_thread_row *)(void *)(client->segment.map.base + rows->offset);
        for (uint32_t j = 0; j < rows->count; j++)
            found |= pump_thread(client, &row[j], rows->first + j);
    }
    return found;
}

// A block whose writer died within a step's change: suspended is rebuilt, and the row said to be a bound.
static void rebuild(struct task_facts *facts)
{
    facts->steps_bound = 1;
    uint64_t span = facts->step_started > facts->first_step ? facts->step_started - facts->first_step : 0;
    facts->suspended = span > facts->running ? span - facts->running : 0;
}

// An end that was asked for in the middle of a step stands in the row before the task has ended: it counts only then.
static struct task_facts task_facts_of(const struct sl_task_row *row, bool process_ended, size_t name_length, size_t coro_name_length)
{
    const struct sl_lane *lane = &row->lane;
    bool over = row->state == SL_ROW_DONE || process_ended;
    return (struct task_facts){.index = row->index, .thread = lane->thread, .kind = row->kind, .created = row->created,
                               .done = over ? row->done : 0, .steps = lane->steps, .running = lane->running, .suspended = lane->suspended,
                               .longest_step = lane->longest_step, .first_step = lane->first_step,
                               .step_started = lane->step_started, .last_step_end = lane->last_step_end,
                               .stepping = lane->stepping, .name_length = (uint32_t)name_length,
                               .coro_name_length = (uint32_t)coro_name_length};
}

static bool pump_task(struct client *client, struct sl_task_row *shared, uint32_t number, bool all)
{
    uint32_t *seen = version_of(&client->task_versions, &client->task_rows, number);
    uint32_t state = sl_load_acquire(&shared->state), mark = mark_of(&shared->version, state);
    if ((state != SL_ROW_LIVE && state != SL_ROW_DONE) || (mark == *seen && !(all && state == SL_ROW_LIVE)))
        return false;
    struct sl_task_row row;
    struct buffer name = {0}, coro_name = {0};
    bool whole = segment_task_row(&client->segment, shared, &row, &name, &coro_name);
    if (whole || client->gone) {
        struct task_facts facts = task_facts_of(&row, client->gone, name.length, coro_name.length);
        if (!whole)
            rebuild(&facts);
        const char *names[2] = {name.data ? name.data : "", coro_name.data ? coro_name.data : ""};
        const struct model_task *known = model_task(client->process, facts.index);
        bool is_change = !known || !known->facts.done != !facts.done;
        model_set_task(&client->run->model, client->process, &facts, names[0], names[1]);
        if (is_change)
            follow_task(client, &facts, names[0], facts.done != 0);
        struct model_task *task = model_task(client->process, facts.index);
        if (task)
            task->row = (uint64_t)((const char *)shared - client->segment.map.base);
        spool_put_task(&client->run->spool, client->process->number, &facts, names[0], names[1]);
        TESTPOINT(task_put);
        *seen = mark;
        if (state == SL_ROW_DONE)
            note_spooled(client, &shared->state);
    }
    buffer_finish(&name);
    buffer_finish(&coro_name);
    return true;
}

static bool pump_tasks(struct client *client, bool all)
{
    bool found = false;
    for (uint32_t i = 0; i < client->segment.task_extents; i++) {
        const struct segment_rows *rows = &client->segment.tasks[i];
        struct sl_task_row *row = (struct sl_task_row *)(void *)(client->segment.map.base + rows->offset);
        for (uint32_t j = 0; j < rows->count; j++)
            found |= pump_task(client, &row[j], rows->first + j, all);
    }
    return found;
}

// A DONE record names its row, so that finished rows are freed promptly and not only by the scan.
static void pump_done_row(struct client *client, uint64_t offset)
{
    for (uint32_t j = 0; j < client->segment.task_extents; j++) {
        const struct segment_rows *rows = &client->segment.tasks[j];
        uint64_t within = offset - rows->offset;
        if (offset < rows->offset || within % sizeof(struct sl_task_row) || within / sizeof(struct sl_task_row) >= rows->count)
            continue;
        struct sl_task_row *row = (struct sl_task_row *)(void *)(client->segment.map.base + offset);
        if (sl_load_acquire(&row->state) == SL_ROW_DONE)
            pump_task(client, row, rows->first + (uint32_t)(within / sizeof *row), false);
        return;
    }
}

// The rows that the records name: kept, because writing them may move the records.
static uint32_t find_done_rows(const struct sl_record *records, uint32_t count, uint64_t offsets[BATCH_RECORDS])
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < count; i++)
        if (sl_record_kind(&records[i]) == SL_DONE)
            offsets[found++] = sl_record_await_field(&records[i]) << 6;
    return found;
}

// ---- rings

static void note_release(struct client *client, uint32_t slot, uint64_t next)
{
    if (client->release_count == client->release_room) {
        client->release_room = client->release_room ? client->release_room * 2 : 16;
        client->releases = alloc_resize(client->releases, client->release_room, sizeof *client->releases);
    }
    client->releases[client->release_count++] = (struct release){slot, next};
}

static size_t count_calls(const struct sl_record *records, size_t count)
{
    size_t calls = 0;
    for (size_t i = 0; i < count; i++)
        calls += (size_t)sl_record_is_call(&records[i]);
    return calls;
}

// A batch that finds no room: the number of its calls, and what it says beside them: whose they are from there on, and what was open
// at an end.
static void put_dropped(struct run *run, uint32_t process, uint32_t slot, uint64_t first, const struct sl_record *records, size_t count)
{
    size_t from = 0;
    for (size_t i = 0; i < count; i++) {
        if (sl_record_kind(&records[i]) != SL_THREAD && sl_record_kind(&records[i]) != SL_ENDED_OPEN)
            continue;
        if (i > from)
            spool_put_dropped(&run->spool, process, slot, first + i, count_calls(records + from, i - from));
        spool_put_records(&run->spool, process, slot, first + i, &records[i], 1);
        from = i + 1;
    }
    if (count > from)
        spool_put_dropped(&run->spool, process, slot, first + count, count_calls(records + from, count - from));
}

// Takes in up to a batch of the records that wait; returns how many.
static uint32_t take_batch(struct client *client, uint32_t slot, uint64_t first, uint64_t waiting)
{
    static struct sl_record dropped[BATCH_RECORDS];
    static uint64_t done_rows[BATCH_RECORDS];
    struct run *run = client->run;
    uint32_t process = client->process->number, limit = waiting < BATCH_RECORDS ? (uint32_t)waiting : BATCH_RECORDS;
    bool room = run->has_spool && spool_has_room(&run->spool, limit * sizeof *dropped);
    struct sl_record *records = room ? spool_begin_records(&run->spool, process, slot, first, limit) : dropped;
    uint32_t count = drain_take(&client->segment, slot, first, waiting, records, limit > 1 ? limit : 2);
    uint32_t done = client->segment.task_extents ? find_done_rows(records, count, done_rows) : 0;
    model_records(&run->model, client->process, slot, first, records, count, room ? -1 : SL_LOST_SPOOL_FULL, NULL, NULL);
    TESTPOINT(records_copied);
    if (room) {
        spool_end_records(&run->spool, records, count);
        TESTPOINT(records_put);
    } else {
        put_dropped(run, process, slot, first, records, count);
        TESTPOINT(dropped_put);
    }
    for (uint32_t i = 0; i < done; i++)
        pump_done_row(client, done_rows[i]);
    return count;
}

// The spool has it: tails move, rows may be reused.
static void give_back(struct client *client)
{
    for (uint32_t i = 0; i < client->release_count; i++) {
        drain_release(&client->segment, client->releases[i].slot, client->releases[i].next);
        TESTPOINT(tail_moved);
    }
    for (uint32_t i = 0; i < client->spooled_count; i++) {
        uint32_t done = SL_ROW_DONE;
        __atomic_compare_exchange_n(client->spooled_states[i], &done, SL_ROW_SPOOLED, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
        TESTPOINT(row_spooled);
    }
    client->release_count = client->spooled_count = 0;
}

static bool flush(struct client *client)
{
    if (runs_flush(client->run) < 0)
        return false;
    give_back(client);
    return true;
}

// Beyond the spool's limit each look at a ring would still put a frame: so a ring is taken from once a second there, or when a quarter full.
static bool may_wait(const struct client *client, uint32_t number, uint64_t waiting)
{
    const struct run *run = client->run;
    bool room = run->has_spool && spool_has_room(&run->spool, waiting * SL_RECORD_BYTES);
    return !room && !client->drops_due && waiting < client->segment.slots[number].records / 4;
}

// Drains what waits in a ring now; what comes meanwhile is for the next round, so that no ring waits for another's producer.
static bool pump_ring(struct client *client, uint32_t number, bool last)
{
    struct model_slot *slot = model_slot(client->process, number);
    int64_t waiting = drain_waiting(&client->segment, number, slot->next);
    if (waiting < 0)
        client->broken = true;
    if (waiting <= 0)
        return false;
    if (!last && may_wait(client, number, (uint64_t)waiting))
        return true;
    if ((uint64_t)waiting > client->segment.slots[number].records / BUSY_SHARE)
        client->daemon->pump_busy = true;
    if (!segment_refresh(&client->segment))  // the table of names may have grown since this round began
        client->broken = true;
    pump_strings(client);  // a record's names were published before it: they are there now, and go first
    while (waiting > 0) {
        uint64_t first = slot->next;
        uint32_t count = take_batch(client, number, first, (uint64_t)waiting);
        waiting -= count;
        note_release(client, number, first + count);
        if (client->run->spool.pending.length >= FLUSH_BYTES && !flush(client))
            break;
    }
    return true;
}

static struct ledger read_ledger(const struct sl_ring *ring)
{
    struct ledger ledger = {.produced = sl_load_relaxed(&ring->produced), .unmatched = sl_load_relaxed(&ring->unmatched),
                            .abandoned = sl_load_relaxed(&ring->abandoned), .crossing = sl_load_relaxed(&ring->crossing),
                            .steps_refused = sl_load_relaxed(&ring->steps_refused),
                            .stale_tasks = sl_load_relaxed(&ring->stale_tasks)};
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        ledger.lost[reason] = sl_load_relaxed(&ring->lost[reason]);
    return ledger;
}

// After its end a process's ring may hold one call that was begun and never published; of the threads that had no ring, each one.
static void count_in_flight(struct ledger *ledger)
{
    uint64_t known = ledger->stored + model_lost(ledger) - ledger->lost[SL_LOST_IN_FLIGHT];
    ledger->lost[SL_LOST_IN_FLIGHT] = ledger->produced > known ? ledger->produced - known : 0;
}

// What a file accounts for when it ends, while the process goes on: a call that was begun is for the next one.
static void cut_ledger(struct ledger *ledger)
{
    ledger->produced = ledger->stored + model_lost(ledger);
}

static void pump_ledgers(struct client *client, bool spool_them, bool last)
{
    struct model_process *process = client->process;
    for (uint32_t i = 0; i < client->segment.slot_count; i++) {
        struct ledger ledger = read_ledger(segment_ring(&client->segment, i));
        model_set_ledger(process, i, &ledger);
        struct model_slot *slot = model_slot(process, i);
        if (client->gone)
            count_in_flight(&slot->ledger);
        else if (last)
            cut_ledger(&slot->ledger);
        if (spool_them)
            spool_put_ledger(&client->run->spool, process->number, i, &slot->ledger);
    }
    const struct sl_segment *header = segment_header(&client->segment);
    struct ledger elsewhere = {.produced = sl_load_relaxed(&header->elsewhere_produced)};
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        elsewhere.lost[reason] = sl_load_relaxed(&header->elsewhere_lost[reason]);
    model_set_ledger(process, FACTS_ELSEWHERE, &elsewhere);
    if (client->gone)
        count_in_flight(&process->elsewhere);
    else if (last)
        cut_ledger(&process->elsewhere);
    if (spool_them)
        spool_put_ledger(&client->run->spool, process->number, FACTS_ELSEWHERE, &process->elsewhere);
    TESTPOINT(ledgers_read);
}

// ---- open calls

struct open_list {
    struct open_facts *facts;
    uint32_t count, room;
};

static void add_open(struct client *client, struct open_list *list, const struct lane_view *view, bool is_task)
{
    for (uint32_t i = 0; i < view->depth; i++) {
        struct open_facts open = {.thread = is_task ? FACTS_NO_THREAD : view->thread,
                                  .task = is_task ? view->task : SL_TASK_NONE, .region = view->calls[i].region, .position = i,
                                  .start = view->calls[i].start};
        if (model_is_published(client->process, &open) || (client->gone && model_has_ended_open(client->process, &open)))
            continue;
        if (list->count == list->room) {
            list->room = list->room ? list->room * 2 : 64;
            list->facts = alloc_resize(list->facts, list->room, sizeof *list->facts);
        }
        list->facts[list->count++] = open;
    }
    if (view->since > client->process->status.last_event)
        client->process->status.last_event = view->since;
}

static void pump_open(struct client *client)
{
    struct open_list list = {0};
    static struct lane_view view;
    for (uint32_t i = 0; i < client->segment.slot_count; i++) {
        struct sl_ring *ring = segment_ring(&client->segment, i);
        lanes_read(&client->segment, sl_ring_lane(ring), SL_THREAD_ENTRIES, &view);
        add_open(client, &list, &view, false);
    }
    for (uint32_t i = 0; i < client->segment.task_extents; i++) {
        const struct segment_rows *rows = &client->segment.tasks[i];
        struct sl_task_row *row = (struct sl_task_row *)(void *)(client->segment.map.base + rows->offset);
        for (uint32_t j = 0; j < rows->count; j++) {
            if (sl_load_acquire(&row[j].state) != SL_ROW_LIVE)
                continue;
            lanes_read(&client->segment, &row[j].lane, SL_TASK_ENTRIES, &view);
            add_open(client, &list, &view, true);
            struct model_task *task = view.depth ? model_task(client->process, view.task) : NULL;
            if (task)
                task->facts.thread = view.thread;  // who has entered them: a row is not taken again for each step
        }
    }
    model_set_open(client->process, list.facts, list.count);
    spool_put_open(&client->run->spool, client->process->number, list.facts, list.count);
    TESTPOINT(open_put);
    free(list.facts);
}

// Once for each lane, thread and region.
static void say_unmatched(struct client *client)
{
    struct model_process *process = client->process;
    for (; client->unmatched_said < process->unmatched_count && client->unmatched_said < ASTRAY_SAID; client->unmatched_said++) {
        char *words = unmatched_words(&client->run->model, process, &process->unmatched[client->unmatched_said]);
        say("process %d: %s", (int)client->pid, words);
        free(words);
    }
}

static void pump_status(struct client *client)
{
    const struct sl_segment *header = segment_header(&client->segment);
    struct process_status *status = &client->process->status;
    status->threads = sl_load_relaxed(&header->threads);
    status->tasks = sl_load_relaxed(&header->tasks);
    status->rank = sl_load_relaxed(&header->rank);
    status->goodbye = sl_load_acquire(&header->goodbye);
}

// ---- together

// While the spool cannot be written, records stay in their rings, and nothing is said that will be said again.
static bool is_stuck(const struct client *client)
{
    struct run *run = client->run;
    if (!run->has_spool || !run->spool.error)
        return false;
    return clock_monotonic_ns() - run->flush_tried_ns < RETRY_PERIOD_MS * INT64_C(1000000) || runs_flush(run) < 0;
}

// The last words on a process whose segment can no longer be read.
static void put_what_is_known(struct client *client)
{
    struct model_process *process = client->process;
    for (uint32_t i = 0; i < process->slot_count; i++) {
        struct ledger *ledger = &process->slots[i].ledger;
        uint64_t known = ledger->stored + model_lost(ledger);
        ledger->produced = ledger->produced > known ? ledger->produced : known;
        count_in_flight(ledger);
        spool_put_ledger(&client->run->spool, process->number, i, ledger);
    }
    spool_put_ledger(&client->run->spool, process->number, FACTS_ELSEWHERE, &process->elsewhere);
    spool_put_status(&client->run->spool, process->number, &process->status);
    runs_flush(client->run);
}

static void pump_tables(struct client *client, bool last)
{
    int64_t now_ns = clock_monotonic_ns();
    pump_ledgers(client, is_due(&client->ledger_ns, now_ns, LEDGER_PERIOD_MS, last), last);
    pump_status(client);
    bool astray = client->unmatched_said < client->process->unmatched_count && client->unmatched_said < ASTRAY_SAID;
    if (is_due(&client->open_ns, now_ns, astray ? ASTRAY_PERIOD_MS : OPEN_PERIOD_MS, last)) {
        if (astray)
            pump_tasks(client, false);  // for their names
        pump_open(client);
        say_unmatched(client);
    }
    if (!last)
        return;
    spool_put_status(&client->run->spool, client->process->number, &client->process->status);
    TESTPOINT(status_put);
}

// Rings, up to the end of the turn (0: none): are those all of this round? The clock is read where something was found: most rings are empty
// most of the time.
static bool pump_rings(struct client *client, int64_t end_ns, bool last, bool *found)
{
    uint32_t count = client->segment.slot_count;
    while (client->next_ring < count) {
        if (!pump_ring(client, client->next_ring++, last))
            continue;
        *found = true;
        if (end_ns && client->next_ring < count && clock_monotonic_ns() >= end_ns)
            return false;
    }
    client->next_ring = 0;
    return true;
}

// A round of a client, up to the end of the turn: is it over? Ledgers are read all the same, so that the tables agree in between.
static bool pump_until(struct client *client, int64_t end_ns, bool last, bool *any)
{
    bool stuck = is_stuck(client);
    if (last || stuck)
        client->next_ring = 0;
    if (client->broken || !segment_refresh(&client->segment)) {
        client->broken = true;
        if (last && !stuck)
            put_what_is_known(client);
        return true;
    }
    if (stuck) {
        if (!client->gone)  // then what its rings still hold would look like calls in flight
            pump_ledgers(client, false, false);
        return true;
    }
    bool found = pump_strings(client);
    found |= pump_threads(client);
    if (!client->next_ring)
        client->drops_due = is_due(&client->dropped_ns, clock_monotonic_ns(), LEDGER_PERIOD_MS, last);
    bool over = pump_rings(client, end_ns, last, &found);
    if (over && is_due(&client->tasks_scanned_ns, clock_monotonic_ns(), TASK_SCAN_PERIOD_MS, last))
        found |= pump_tasks(client, last);
    if (over)
        pump_tables(client, last);
    else
        pump_ledgers(client, false, false);
    client->broken = client->broken || segment_is_broken(&client->segment);
    flush(client);
    if (found)
        client->daemon->generation++;
    *any |= found;
    return over;
}

void pump_client(struct client *client, bool last)
{
    bool found = false;
    pump_until(client, 0, last, &found);
}

void pump_names(struct daemon *daemon)
{
    for (struct client *client = daemon->clients; client; client = client->next)
        if (!client->broken && !is_stuck(client) && segment_refresh(&client->segment))
            pump_strings(client);
}

// Busy: at once, or soon again; idle: slower and slower, as long as the clients can wake us.
static void set_period(struct daemon *daemon, bool found)
{
    uint32_t slowest = SLOWEST_MS;
    for (struct client *client = daemon->clients; client; client = client->next)
        if (client->socket < 0 || !sl_load_relaxed(&segment_header(&client->segment)->wakeups))
            slowest = SLOWEST_UNWOKEN_MS;
    uint32_t period = daemon->pump_busy ? 0 : found ? 1 : daemon->pump_period_ms * 2 + !daemon->pump_period_ms;
    daemon->pump_period_ms = period > slowest ? slowest : period;
}

// Those that have not had this round, until the turn is over: is the round?
static bool pump_those_left(struct daemon *daemon)
{
    int64_t end_ns = clock_monotonic_ns() + TURN_NS;
    for (struct client *client = daemon->clients; client; client = client->next) {
        if (client->pump_round == daemon->pump_round)
            continue;
        if (clock_monotonic_ns() >= end_ns)
            return false;
        if (!pump_until(client, end_ns, false, &daemon->pump_found))
            return false;
        client->pump_round = daemon->pump_round;
    }
    return true;
}

void pump_all(struct daemon *daemon)
{
    if (!daemon->pump_unfinished) {
        daemon->pump_round++;
        daemon->pump_found = daemon->pump_busy = false;
    }
    daemon->pump_unfinished = !pump_those_left(daemon);
    if (daemon->pump_unfinished)
        return;
    bool found = daemon->pump_found;
    set_period(daemon, found);
    for (struct client *client = daemon->clients; client; client = client->next)
        sl_store_relaxed(&segment_header(&client->segment)->sleeping, !found);  // busy, we look again in a millisecond unasked
}
