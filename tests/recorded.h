// What the client library has recorded, read from its segment as the daemon does it: for tests that hold the library to its own word.
#ifndef TESTS_RECORDED_H
#define TESTS_RECORDED_H

#include <criterion/criterion.h>
#include <sys/mman.h>

#include "base/buffer.h"
#include "core/drain.h"
#include "core/lanes.h"
#include "core/segment.h"
#include "tests/place.h"

enum { RECORDED_MAX = 1 << 19 };

static struct place place;
static struct segment recorded;

// Opens the segment of a process (0: this one), or looks again at what it has grown to.
static inline void recorded_look(pid_t pid)
{
    if (!recorded.map.base) {
        char problem[256] = "there is none", path[256];
        int fd = place_segment(&place, pid ? pid : getpid(), path);
        cr_assert(fd >= 0 && segment_open(&recorded, fd, path, problem) == 0, "cannot open the segment: %s", problem);
        close(fd);
    }
    cr_assert(segment_refresh(&recorded));
}

static inline void recorded_begin(void)
{
    cr_assert_eq(guard_install(), 0);
    place_make(&place);
}

static inline struct sl_ring *recorded_ring(uint32_t slot)
{
    recorded_look(0);
    cr_assert_lt(slot, recorded.slot_count);
    return segment_ring(&recorded, slot);
}

static inline uint64_t recorded_lost(const struct sl_ring *ring)
{
    uint64_t lost = 0;
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        lost += sl_load_relaxed(&ring->lost[reason]);
    return lost;
}

// All records of a slot that nobody has drained, those in void slots as SKIP. Returns how many there are; `into` has room for `limit`.
static inline uint32_t recorded_all(uint32_t slot, struct sl_record *into, uint32_t limit)
{
    struct sl_ring *ring = recorded_ring(slot);
    cr_assert_eq(ring->tail, 0, "somebody drains it");
    cr_assert_leq(ring->head, limit);
    int64_t count = drain_copy(&recorded, slot, 0, into, limit);
    cr_assert_eq((uint64_t)count, ring->head);
    return (uint32_t)count;
}

static inline uint64_t recorded_calls(uint32_t slot)
{
    static struct sl_record records[RECORDED_MAX];
    uint32_t count = recorded_all(slot, records, RECORDED_MAX);
    uint64_t calls = 0;
    for (uint32_t i = 0; i < count; i++)
        calls += (uint64_t)sl_record_is_call(&records[i]);
    return calls;
}

// The ledger of every ring nobody drains: produced = calls in it + lost.
static inline void recorded_expect_ledger(void)
{
    recorded_look(0);
    for (uint32_t slot = 0; slot < recorded.slot_count; slot++) {
        struct sl_ring *ring = recorded_ring(slot);
        if (ring->tail == 0)
            cr_expect_eq(ring->produced, recorded_calls(slot) + recorded_lost(ring), "slot %u: produced %lu, calls %lu, lost %lu", slot,
                         (unsigned long)ring->produced, (unsigned long)recorded_calls(slot), (unsigned long)recorded_lost(ring));
    }
}

// The nth record of a kind (from 0) in a slot; fails the test when there is none.
static inline struct sl_record recorded_nth(uint32_t slot, unsigned kind, uint32_t nth)
{
    static struct sl_record records[RECORDED_MAX];
    uint32_t count = recorded_all(slot, records, RECORDED_MAX);
    for (uint32_t i = 0; i < count; i++)
        if (sl_record_kind(&records[i]) == kind && nth-- == 0)
            return records[i];
    cr_assert(0, "no such record of kind %u in slot %u", kind, slot);
    return (struct sl_record){{0}};
}

static inline uint32_t recorded_count(uint32_t slot, unsigned kind)
{
    static struct sl_record records[RECORDED_MAX];
    uint32_t found = 0, count = recorded_all(slot, records, RECORDED_MAX);
    for (uint32_t i = 0; i < count; i++)
        found += sl_record_kind(&records[i]) == kind;
    return found;
}

// The invariant of a lane block: no start at or above depth.
static inline void recorded_expect_lane_whole(const struct sl_lane *lane, uint32_t entries)
{
    const struct sl_entry *stack = (const struct sl_entry *)(const void *)(lane + 1);
    for (uint32_t i = lane->depth; i < entries; i++)
        cr_expect_eq(stack[i].start, 0, "an open entry at %u, above depth %u", i, lane->depth);
    for (uint32_t i = 0; lane->overflow && i < SL_OVERFLOW_ENTRIES; i++) {
        const struct sl_entry *entry = segment_at(&recorded, lane->overflow + i * sizeof *entry, sizeof *entry);
        cr_assert_not_null(entry);
        if (i + entries >= lane->depth)
            cr_expect_eq(entry->start, 0, "an open entry at %u, above depth %u", i + entries, lane->depth);
    }
}

static inline const struct lane_view *recorded_view(const struct sl_lane *lane, uint32_t entries)
{
    static struct lane_view view;
    recorded_look(0);
    lanes_read(&recorded, lane, entries, &view);
    cr_assert_not(view.moving);
    return &view;
}

// The lane of a slot's bare thread, as a reader sees it.
static inline const struct lane_view *recorded_lane(uint32_t slot)
{
    return recorded_view(sl_ring_lane(recorded_ring(slot)), SL_THREAD_ENTRIES);
}

// Every test ends with the ledger and the invariant of all rings.
static inline void recorded_end(void)
{
    if (recorded.map.base) {
        recorded_expect_ledger();
        for (uint32_t slot = 0; slot < recorded.slot_count; slot++)
            recorded_expect_lane_whole(sl_ring_lane(recorded_ring(slot)), SL_THREAD_ENTRIES);
    }
    segment_close(&recorded);
    place_remove(&place);
}

// Row number n of a table, NULL beyond it.
static inline void *recorded_row(const struct segment_rows *rows, uint32_t extents, uint32_t n, size_t row_bytes)
{
    for (uint32_t i = 0; i < extents; i++)
        if (n - rows[i].first < rows[i].count)
            return recorded.map.base + rows[i].offset + (uint64_t)(n - rows[i].first) * row_bytes;
    return NULL;
}

static inline struct sl_thread_row *recorded_thread(uint32_t index)
{
    recorded_look(0);
    for (uint32_t n = 0;; n++) {
        struct sl_thread_row *row = recorded_row(recorded.threads, recorded.thread_extents, n, sizeof *row);
        cr_assert_not_null(row, "no row of thread %u", index);
        if (row->state != SL_ROW_FREE && row->index == index)
            return row;
    }
}

static inline struct sl_task_row *recorded_task(uint32_t index)
{
    recorded_look(0);
    for (uint32_t n = 0;; n++) {
        struct sl_task_row *row = recorded_row(recorded.tasks, recorded.task_extents, n, sizeof *row);
        cr_assert_not_null(row, "no row of task %u", index);
        if (row->state != SL_ROW_FREE && row->index == index)
            return row;
    }
}

// A name as text that lives until the next call.
static inline const char *recorded_name(const struct sl_name *name)
{
    static struct buffer text;
    cr_assert(segment_name(&recorded, name, &text));
    return text.data;
}

#endif
