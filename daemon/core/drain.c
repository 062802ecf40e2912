#include "core/drain.h"

#include <string.h>

static bool voids_previous(const struct sl_record *record)
{
    return sl_record_kind(record) == SL_SKIP && sl_record_duration(record) == 1;
}

int64_t drain_waiting(const struct segment *segment, uint32_t slot, uint64_t from)
{
    uint64_t head = sl_load_acquire(&segment_ring(segment, slot)->head);  // pairs with sl_move in the producer
    uint64_t waiting = head - from;
    return waiting > segment->slots[slot].records ? -1 : (int64_t)waiting;
}

uint32_t drain_take(const struct segment *segment, uint32_t slot, uint64_t from, uint64_t waiting, struct sl_record *into, uint32_t limit)
{
    struct sl_ring *ring = segment_ring(segment, slot);
    uint64_t records = segment->slots[slot].records;
    uint64_t count = waiting < limit ? waiting : limit;
    const struct sl_record *shared = sl_ring_records(ring);
    for (uint64_t done = 0; done < count;) {
        uint64_t at = (from + done) & (records - 1), part = records - at < count - done ? records - at : count - done;
        memcpy(into + done, shared + at, part * sizeof *into);
        done += part;
    }
    for (uint64_t i = 1; i < count; i++)
        if (voids_previous(&into[i]))
            into[i - 1] = (struct sl_record){{0}};
    if (count < waiting && count > 1)  // what follows may void the last one: it stays for the next round, with its SKIP
        count--;
    return (uint32_t)count;
}

int64_t drain_copy(const struct segment *segment, uint32_t slot, uint64_t from, struct sl_record *into, uint32_t limit)
{
    int64_t waiting = drain_waiting(segment, slot, from);
    return waiting < 0 ? -1 : (int64_t)drain_take(segment, slot, from, (uint64_t)waiting, into, limit);
}

void drain_release(const struct segment *segment, uint32_t slot, uint64_t next)
{
    sl_store_release(&segment_ring(segment, slot)->tail, next);  // pairs with has_room in the producer
}
