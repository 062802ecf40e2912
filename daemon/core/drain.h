// From a ring to the daemon: records are copied once, then looked at. The order that makes it exactly once is the caller's:
// drain_copy, append to the spool, drain_release.
#ifndef SL_CORE_DRAIN_H
#define SL_CORE_DRAIN_H

#include <stdint.h>

#include "core/segment.h"

// Copies up to `limit` records from sequence number `from` on. Returns how many, 0 none, -1 when the ring's head cannot be
// right (the ring is broken). A record made void by the SKIP behind it is copied as SKIP; the two are never parted. `limit` >= 2.
int64_t drain_copy(const struct segment *segment, uint32_t slot, uint64_t from, struct sl_record *into, uint32_t limit);

// Gives the room up to `next` back to the producer.
void drain_release(const struct segment *segment, uint32_t slot, uint64_t next);

#endif
