#include "core/lanes.h"

#include <string.h>

#include "base/buffer.h"

enum { TRIES = 8, TASK_TRIES = 3 };

static const struct sl_entry *entry_at(const struct segment *segment, const struct sl_lane *lane, uint32_t entries, uint64_t overflow,
                                       uint32_t i)
{
    if (i < entries)
        return (const struct sl_entry *)(const void *)(lane + 1) + i;
    if (!overflow || overflow % 8)
        return NULL;
    return segment_at(segment, overflow + (uint64_t)(i - entries) * sizeof(struct sl_entry), sizeof(struct sl_entry));
}

// Removing an entry from the middle moves those above it down, each being there twice for a moment, which a kill makes last.
static bool is_copy(const struct sl_entry *entry, const struct sl_entry *below, uint64_t start)
{
    return below && start && sl_load_relaxed(&below->start) == start &&
           sl_load_relaxed(&below->frame) == sl_load_relaxed(&entry->frame) &&
           SL_ENTRY_REGION(sl_load_relaxed(&below->region)) == SL_ENTRY_REGION(sl_load_relaxed(&entry->region));
}

// One pass: depth and starts. Returns true when a second look at them agrees.
static bool pass(const struct segment *segment, const struct sl_lane *lane, uint32_t entries, struct lane_view *view)
{
    uint32_t depth = sl_load_acquire(&lane->depth);
    uint64_t overflow = sl_load_relaxed(&lane->overflow);
    uint32_t room = entries + (overflow ? SL_OVERFLOW_ENTRIES : 0), held = depth < room ? depth : room;
    view->task = sl_load_relaxed(&lane->task);
    view->thread = sl_load_relaxed(&lane->thread);
    view->since = sl_load_relaxed(&lane->since);
    view->too_deep = depth - held;
    view->depth = 0;
    bool agrees = true;
    const struct sl_entry *below = NULL;
    for (uint32_t i = 0; i < held && i < LANES_DEPTH_LIMIT; i++) {
        const struct sl_entry *entry = entry_at(segment, lane, entries, overflow, i);
        if (!entry)
            break;
        uint64_t start = sl_load_acquire(&entry->start);
        bool recorded = !(start & SL_ENTRY_UNRECORDED);
        uint32_t region = recorded ? sl_load_relaxed(&entry->region) : (uint32_t)sl_load_relaxed(&entry->suspended);
        sl_fence_acquire();
        if (sl_load_relaxed(&entry->start) != start) {
            agrees = false;
            break;
        }
        if (start && !is_copy(entry, below, start))  // 0: being entered or left
            view->calls[view->depth++] = (struct lane_call){start & ~SL_ENTRY_UNRECORDED, SL_ENTRY_REGION(region), recorded};
        below = entry;
    }
    sl_fence_acquire();
    return agrees && sl_load_relaxed(&lane->depth) == depth && sl_load_relaxed(&lane->since) == view->since;
}

void lanes_read(const struct segment *segment, const struct sl_lane *lane, uint32_t entries, struct lane_view *view)
{
    for (int i = 0; i < TRIES; i++) {
        view->moving = !pass(segment, lane, entries, view);
        if (!view->moving)
            return;
    }
}

// `since` tells: every step, enter and exit changes it.
void lanes_read_task(const struct segment *segment, const struct sl_task_row *shared, struct sl_task_row *row, struct lane_view *view)
{
    struct buffer name = {0}, coro_name = {0};
    bool agree = false;
    for (int i = 0; i < TASK_TRIES && !agree; i++) {
        bool whole = segment_task_row(segment, shared, row, &name, &coro_name);
        lanes_read(segment, &shared->lane, SL_TASK_ENTRIES, view);
        agree = whole && view->since == row->lane.since;
    }
    view->moving |= !agree;
    buffer_finish(&name);
    buffer_finish(&coro_name);
}

bool lanes_read_steps(const struct sl_lane *shared, struct sl_lane *lane)
{
    for (int i = 0; i < TRIES; i++) {
        uint32_t before = sl_load_acquire(&shared->seq);
        sl_copy_shared(lane, shared, sizeof *lane);
        sl_fence_acquire();
        if (!(before & 1) && sl_load_relaxed(&shared->seq) == before)
            return true;
    }
    return false;
}
