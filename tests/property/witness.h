// What was recorded, read as the daemon reads it (its core: segment, drain, lanes, model), and compared with the oracle. Records are
// also taken apart here by hand, so that a mistake in the format's own accessors shows too.
#ifndef TESTS_WITNESS_H
#define TESTS_WITNESS_H

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "base/buffer.h"
#include "core/drain.h"
#include "core/lanes.h"
#include "core/model.h"
#include "core/segment.h"
#include "tests/place.h"
#include "tests/property/oracle.h"

// Fails the program of this seed, with words.
__attribute__((noreturn, format(printf, 1, 2))) static void fail(const char *format, ...);

static struct place place;

static struct witness {
    struct segment segment;
    struct model model;
    struct model_process *process;
    uint64_t checked[RINGS];       // records compared, by ring
    const struct o_record *expected;  // the one that was drained last
    bool called;                   // … and the core has made a call of it
    uint64_t ended_open, unmatched;
    struct buffer text, more_text;
} w;

#define EQUAL(what, found, wanted, ...)                                                                              \
    do {                                                                                                             \
        uint64_t found_ = (uint64_t)(found), wanted_ = (uint64_t)(wanted);                                           \
        if (found_ != wanted_) {                                                                                     \
            char whose_[128];                                                                                        \
            snprintf(whose_, sizeof whose_, __VA_ARGS__);                                                            \
            fail("%s: %s is %" PRIu64 " (%" PRIx64 "), not %" PRIu64 " (%" PRIx64 ")", whose_, what, found_, found_, \
                 wanted_, wanted_);                                                                                  \
        }                                                                                                            \
    } while (0)

// ---- the segment

static void witness_look(void)
{
    if (!w.segment.map.base) {
        char problem[256] = "there is none", path[256];
        int fd = place_segment(&place, getpid(), path);
        if (fd < 0 || segment_open(&w.segment, fd, path, problem) < 0)
            fail("cannot open the segment: %s", problem);
        close(fd);
    }
    if (!segment_refresh(&w.segment))
        fail("the geometry of the segment is broken");
}

// The ring whose owner is this thread; NONE.
static int witness_ring_of(uint32_t index)
{
    witness_look();
    for (uint32_t i = 0; i < w.segment.slot_count; i++)
        if (segment_ring(&w.segment, i)->owner == index)
            return (int)i;
    return NONE;
}

// The row of that index that is in use; NULL.
static void *witness_row(const struct segment_rows *extents, uint32_t count, size_t bytes, uint32_t index)
{
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = 0; j < extents[i].count; j++) {
            uint32_t *row = (uint32_t *)(void *)(w.segment.map.base + extents[i].offset + j * bytes);  // state, index
            if ((row[0] == SL_ROW_LIVE || row[0] == SL_ROW_DONE) && row[1] == index)
                return row;
        }
    return NULL;
}

static struct sl_task_row *witness_task(uint32_t index)
{
    witness_look();
    return witness_row(w.segment.tasks, w.segment.task_extents, sizeof(struct sl_task_row), index);
}

static struct sl_thread_row *witness_thread(uint32_t index)
{
    witness_look();
    return witness_row(w.segment.threads, w.segment.thread_extents, sizeof(struct sl_thread_row), index);
}

// ---- rows

static void check_text(const char *what, const char *found, const char *wanted, bool crowded, uint32_t index)
{
    // Where there was no room for a long name it is cut, at a character.
    bool good = crowded ? strncmp(found, wanted, strlen(found)) == 0 && (wanted[strlen(found)] & 0xc0) != 0x80 : strcmp(found, wanted) == 0;
    if (!good)
        fail("%s %u: \"%s\" (%zu bytes), not \"%s\" (%zu)", what, index, found, strlen(found), wanted, strlen(wanted));
}

// Two entries of one region, frame and tick: readers cannot tell that from an entry that is being moved, and show it once.
static bool is_taken_for_copy(const struct o_entry *entry, const struct o_entry *beneath)
{
    return entry->start == beneath->start && entry->region == beneath->region && entry->thread == beneath->thread &&
           entry->by_next == beneath->by_next;
}

static void check_lane(const struct sl_lane *shared, uint32_t entries, const struct o_lane *lane, uint32_t task, uint32_t thread,
                       const char *what, uint32_t index)
{
    static struct lane_view view;
    lanes_read(&w.segment, shared, entries, &view);
    EQUAL("moving", view.moving, 0, "%s %u", what, index);
    EQUAL("too deep", view.too_deep, lane->beyond, "%s %u", what, index);
    EQUAL("task", view.task, task, "lane of %s %u", what, index);
    EQUAL("thread", view.thread, thread, "lane of %s %u", what, index);
    EQUAL("since", view.since, lane->since, "%s %u", what, index);
    uint32_t seen = 0;
    for (uint32_t i = 0; i < lane->held; i++) {
        const struct o_entry *entry = &lane->stack[i];
        if (i && is_taken_for_copy(entry, entry - 1))
            continue;
        if (seen == view.depth)
            fail("%s %u: only %u calls are open, not %u", what, index, view.depth, lane->held);
        EQUAL("region", view.calls[seen].region, entry->region, "%s %u, open call %u of %u", what, index, i, view.depth);
        EQUAL("start", view.calls[seen].start, entry->start, "%s %u, open call %u of %u", what, index, i, view.depth);
        seen++;
    }
    EQUAL("depth", view.depth, seen, "%s %u", what, index);
}

static void check_task_row(struct sl_task_row *shared, const struct o_task *task, bool crowded)
{
    struct sl_task_row row;
    if (!segment_task_row(&w.segment, shared, &row, &w.text, &w.more_text))
        fail("task %u: its row moves", task->index);
    const struct sl_lane *lane = &row.lane;
#define FIELD(name, found, wanted) EQUAL(name, found, wanted, "task %u", task->index)
    FIELD("state", row.state, task->over ? SL_ROW_DONE : SL_ROW_LIVE);
    FIELD("created", row.created, task->created);
    FIELD("done", row.done, task->done);
    FIELD("steps", lane->steps, task->steps);
    FIELD("running", lane->running, task->running);
    FIELD("suspended", lane->suspended, task->lane.suspended);
    FIELD("first step", lane->first_step, task->first_step);
    FIELD("step started", lane->step_started, task->step_started);
    FIELD("last step end", lane->last_step_end, task->last_step_end);
    FIELD("longest step", lane->longest_step, task->longest_step);
    FIELD("stepping", lane->stepping, task->stepping == NONE ? 0 : (uint32_t)task->stepping + 1 + (task->paused ? 0x80000000u : 0));
#undef FIELD
    if (strcmp(model_word(w.process, row.kind), task->kind) != 0)
        fail("task %u: kind \"%s\", not \"%s\"", task->index, model_word(w.process, row.kind), task->kind);
    check_text("name of task", w.text.data, task->name, crowded, task->index);
    check_text("coro_name of task", w.more_text.data, task->coro_name, crowded, task->index);
    check_lane(&shared->lane, SL_TASK_ENTRIES, &task->lane, task->index, (uint32_t)task->thread, "task", task->index);
}

static void check_thread_row(struct sl_thread_row *shared, const struct o_thread *thread, uint64_t ident, uint32_t tid)
{
    struct sl_thread_row row;
    if (!segment_thread_row(&w.segment, shared, &row, &w.text))
        fail("thread %u: its row moves", thread->index);
#define FIELD(name, found, wanted) EQUAL(name, found, wanted, "thread %u", thread->index)
    FIELD("state", row.state, thread->ended ? SL_ROW_DONE : SL_ROW_LIVE);
    FIELD("start", row.start, thread->start);
    FIELD("end", row.end, thread->end);
    FIELD("cpu_ns", row.cpu_ns, thread->cpu_ns);
    FIELD("ident", row.ident, ident);
    FIELD("native_id", row.native_id, tid);
    FIELD("flags", row.flags, thread->named ? SL_THREAD_NAMED : 0);
    FIELD("slot", row.slot, (uint32_t)thread->ring);
#undef FIELD
    check_text("name of thread", w.text.data, thread->name, thread->crowded_name, thread->index);
}

// ---- records

// By docs/format.md: start; kind and duration; region, waiting; task, parent's region, region.
static struct o_record take_apart(const struct sl_record *record)
{
    const uint64_t *word = record->word;
    struct o_record apart = {.kind = (unsigned)(word[1] >> 56), .start = word[0], .length = word[1] & 0xffffffffffffff,
                             .await = word[2] & 0xffffffffffff, .region = (uint32_t)(word[2] >> 48 | (word[3] & 0xff) << 16),
                             .parent = (uint32_t)(word[3] >> 8 & 0xffffff), .task = (uint32_t)(word[3] >> 32)};
    if (apart.length >> 47)
        apart.await <<= 9;
    if (apart.kind == DONE || apart.kind == STEP)  // its row, a hint; its kind, whose number the client gives
        apart.await = 0;
    return apart;
}

static void check_record(uint32_t ring, uint64_t number, const struct sl_record *record)
{
    if (number >= o.rings[ring].count)
        fail("ring %u: record %" PRIu64 " is one too many", ring, number);
    const struct o_record *wanted = &o.rings[ring].records[number];
    struct o_record found = take_apart(record);
#define FIELD(name, field) EQUAL(name, found.field, wanted->field, "ring %u, record %" PRIu64 " of kind %u", ring, number, wanted->kind)
    FIELD("kind", kind);
    FIELD("region", region);
    FIELD("parent", parent);
    FIELD("task", task);
    FIELD("start", start);
    FIELD("length", length);
    FIELD("await", await);
#undef FIELD
}

static bool is_call(unsigned kind)
{
    return kind >= CALL && kind <= LONG;
}

// What the core makes of a record.
static void on_call(void *context, struct model_process *process, const struct model_call *call)
{
    const struct o_record *wanted = w.expected;
    const char *where = context;
    w.called = true;
#define FIELD(name, found, wanted) EQUAL(name, found, wanted, "call from %s", where)
    FIELD("region", call->region, wanted->region);
    FIELD("parent", call->parent, wanted->parent);
    FIELD("thread", call->thread, wanted->thread);
    FIELD("task", call->task, wanted->task);
    FIELD("start", call->start, wanted->start);
    FIELD("end", call->end, wanted->kind == BACK ? wanted->start : wanted->start + wanted->length);
    FIELD("await", call->await, wanted->await);
    FIELD("kind", call->kind, wanted->kind);
#undef FIELD
    const char *name = model_region_name(&w.model, model_region(process, call->region));
    if (strcmp(name, o_region(wanted->region)->name) != 0)
        fail("call from %s: region \"%s\", not \"%s\"", where, name, o_region(wanted->region)->name);
    o_count(wanted);
    for (int i = 0; i < o.thread_count; i++)
        if (o.threads[i].registered && (int)o.threads[i].index == wanted->thread)
            o.threads[i].stored_calls++;
    if (wanted->task != UINT32_MAX)
        o.tasks[wanted->task].stored_calls++;
}

static void drain_ring(uint32_t ring, uint32_t limit)
{
    static struct sl_record batch[4096];
    char where[32];
    snprintf(where, sizeof where, "ring %u", ring);
    for (;;) {
        struct model_slot *slot = model_slot(w.process, ring);
        uint64_t first = slot->next;
        int64_t count = drain_copy(&w.segment, ring, first, batch, limit);
        if (count < 0)
            fail("ring %u: its head cannot be right", ring);
        if (count == 0)
            break;
        for (int64_t i = 0; i < count; i++) {
            check_record(ring, first + (uint64_t)i, &batch[i]);
            w.expected = &o.rings[ring].records[first + (uint64_t)i];
            w.called = false;
            model_records(&w.model, w.process, ring, first + (uint64_t)i, &batch[i], 1, -1, on_call, where);
            EQUAL("number of calls", w.called, is_call(w.expected->kind), "ring %u, record %" PRIu64, ring, first + (uint64_t)i);
            w.ended_open += w.expected->kind == ENDED_OPEN;
            w.unmatched += w.expected->kind == UNMATCHED;
        }
        drain_release(&w.segment, ring, first + (uint64_t)count);
        o.rings[ring].drained = first + (uint64_t)count;
    }
    EQUAL("number of records", w.process->slots[ring].next, o.rings[ring].count, "ring %u", ring);
}

static void read_strings(void)
{
    struct segment_string string;
    int result;
    while ((result = segment_next_string(&w.segment, &string, &w.text)) > 0)
        model_string(&w.model, w.process, string.type, string.id, string.name, string.name_length, string.file, string.file_length,
                     string.line);
    if (result < 0)
        fail("the strings do not hold together");
}

// ---- ledgers and sums

static void check_ledger(const struct o_ledger *wanted, const uint64_t *produced, const uint64_t *lost, const char *what, int number)
{
    EQUAL("produced", *produced, wanted->produced, "%s %d", what, number);
    for (int reason = 0; reason < LOSSES; reason++) {
        static const char *const names[] = SL_LOSS_NAMES;
        EQUAL(names[reason], lost[reason], wanted->lost[reason], "loss of %s %d", what, number);
    }
}

static void check_rings(void)
{
    EQUAL("number", w.segment.slot_count, o.ring_count, "%s", "rings");
    for (int i = 0; i < o.ring_count; i++) {
        const struct sl_ring *ring = segment_ring(&w.segment, (uint32_t)i);
        const struct o_ledger *wanted = &o.rings[i].ledger;
        check_ledger(wanted, &ring->produced, ring->lost, "ring", i);
        EQUAL("head", ring->head, o.rings[i].count, "ring %d", i);
        EQUAL("others", ring->others, wanted->others, "ring %d", i);
        EQUAL("unmatched", ring->unmatched, wanted->unmatched, "ring %d", i);
        EQUAL("crossing", ring->crossing, wanted->crossing, "ring %d", i);
        EQUAL("abandoned", ring->abandoned, wanted->abandoned, "ring %d", i);
        EQUAL("refused steps", ring->steps_refused, wanted->refused, "ring %d", i);
        EQUAL("stale tasks", ring->stale_tasks, wanted->stale, "ring %d", i);
        uint64_t lost = 0;
        for (int reason = 0; reason < LOSSES; reason++)
            lost += wanted->lost[reason];
        EQUAL("produced", wanted->produced, o.rings[i].count - wanted->others + lost, "the oracle's own ring %d", i);
    }
    const struct sl_segment *header = segment_header(&w.segment);
    check_ledger(&o.elsewhere, &header->elsewhere_produced, header->elsewhere_lost, "threads without a ring", 0);
    EQUAL("threads", header->threads, o.indices, "%s", "segment");
    EQUAL("tasks", header->tasks, o.task_count, "%s", "segment");
}

static void check_sums(void)
{
    for (int i = 0; i < o.region_count; i++) {
        const struct o_region *wanted = &o.regions[i];
        const struct model_region *region = model_region(w.process, wanted->id);
        EQUAL("calls", region->calls, wanted->calls, "region %s", wanted->name);
        EQUAL("total", region->total, wanted->total, "region %s", wanted->name);
        EQUAL("self", region->self, wanted->self, "region %s", wanted->name);
        EQUAL("minimum", region->minimum, wanted->calls ? wanted->minimum : UINT64_MAX, "region %s", wanted->name);
        EQUAL("maximum", region->maximum, wanted->maximum, "region %s", wanted->name);
    }
    for (int i = 0; i < o.thread_count; i++)
        if (o.threads[i].registered && o.threads[i].stored_calls)
            EQUAL("calls", model_thread(w.process, o.threads[i].index)->calls, o.threads[i].stored_calls, "thread %u", o.threads[i].index);
    uint64_t unmatched = w.process->unmatched_others;
    for (uint32_t i = 0; i < w.process->unmatched_count; i++)
        unmatched += w.process->unmatched[i].count;
    EQUAL("number", unmatched, w.unmatched, "%s", "exits without an enter");
    EQUAL("number", w.process->ended_open_count, w.ended_open, "%s", "calls that ended open");
}

#endif
