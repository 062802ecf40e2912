// From a ring to the daemon: records are copied once, then looked at. The order that makes it exactly once is the caller's:
// drain_take, append to the spool, drain_release.
#ifndef SL_CORE_DRAIN_H
#define SL_CORE_DRAIN_H

#include <stdint.h>

#include "core/segment.h"

// How many records wait from sequence number `from` on; -1 when the ring's head cannot be right (the ring is broken).
int64_t drain_waiting(const struct segment *segment, uint32_t slot, uint64_t from);

// Copies up to `limit` of the `waiting` records from `from` on (drain_waiting said so). Returns how many. A record made void by
// the SKIP behind it is copied as SKIP; the two are never parted. `limit` >= 2.
uint32_t drain_take(const struct segment *segment, uint32_t slot, uint64_t from, uint64_t waiting, struct sl_record *into, uint32_t limit);

// Both at once: how many, or -1.
int64_t drain_copy(const struct segment *segment, uint32_t slot, uint64_t from, struct sl_record *into, uint32_t limit);

// Gives the room up to `next` back to the producer.
void drain_release(const struct segment *segment, uint32_t slot, uint64_t next);

#endif
