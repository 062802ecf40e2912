// The ring: how closed intervals leave the program. One per slot, single producer (the thread that owns the slot), single
// consumer (the daemon). A slot is an extent of its own:
//
//       0  sl_ring: 128 bytes the producer writes, 128 bytes the daemon writes
//     256  lane block of the bare thread, SL_THREAD_ENTRIES entries
//    4096  records, a power of two of bytes
//
// Sequence numbers count records since the slot was made, over all its owners; record n lies at n & (records - 1).
//
// An append, in this order, so that a handler on the same thread and a kill at any moment leave the ledger exact:
//   busy = frame · produced += 1 · read head · fill · head moves from the value read · busy = 0
// `produced` counts calls whose append began; it is never computed. head pairs with the daemon's acquire load; the daemon's
// release of tail pairs with the producer's acquire when its own copy says "full".
#ifndef SL_PROTO_RING_H
#define SL_PROTO_RING_H

#include "proto/atomic.h"
#include "proto/lane.h"
#include "proto/layout.h"
#include "proto/record.h"

// Why a call is not there. Numbers are never reused. The first five are counted by the client, the others by the daemon.
enum sl_loss {
    SL_LOST_RING_FULL = 0,
    SL_LOST_NO_RING = 1,
    SL_LOST_IN_SIGNAL = 2,
    SL_LOST_NO_ROW = 3,
    SL_LOST_TOO_DEEP = 4,
    SL_LOST_CLIENT_COUNT = 5,
    SL_LOST_SPOOL_FULL = 5,
    SL_LOST_IN_FLIGHT = 6,
    SL_LOST_COUNT = 7
};

#define SL_LOSS_NAMES \
    {"ring full", "no ring", "in signal handler", "no row", "too deep", "spool full", "in flight"}

// What earlier run files account for, as the daemon writes it when such a file ends while the process lives on.
struct sl_accounted {
    uint64_t produced;  // calls stored, or lost for any reason
    uint64_t lost[SL_LOST_CLIENT_COUNT];
    uint64_t unmatched, abandoned, crossing, steps_refused, stale_tasks;
    uint32_t owner;  // of the ring at tail, SL_RING_FREE none
    uint32_t parts;  // files that have ended, written last; 0: none, and the rest means nothing
};

SL_ASSERT_SIZE(sl_accounted, 96);

struct sl_ring {
    // the producer's lines
    uint64_t head;      // records published
    uint64_t produced;  // calls whose append began, lost ones included
    uint64_t lost[SL_LOST_CLIENT_COUNT];
    uint64_t others;        // records published that are not calls
    uint64_t unmatched;     // exits without an enter
    uint64_t abandoned;     // entries removed because a longjmp left them behind
    uint64_t steps_refused;  // step_in, step_out that did not fit the task's state
    uint64_t stale_tasks;   // handles of finished, recycled tasks
    uint64_t crossing;      // calls closed that were not the top
    uint32_t owner;         // thread index of the present owner, all ones when free
    uint32_t records;       // a power of two
    uint64_t zero0[2];
    // the daemon's lines
    uint64_t tail;  // records consumed
    struct sl_accounted accounted;
    uint64_t zero1[3];
};

SL_ASSERT_AT(sl_ring, others, 56);
SL_ASSERT_AT(sl_ring, unmatched, 64);
SL_ASSERT_AT(sl_ring, owner, 104);
SL_ASSERT_AT(sl_ring, tail, 128);
SL_ASSERT_AT(sl_ring, accounted, 136);
SL_ASSERT_SIZE(sl_ring, 256);

#define SL_RING_FREE           0xffffffffu
#define SL_SLOT_LANE_OFFSET    256
#define SL_SLOT_RECORDS_OFFSET 4096
#define SL_RING_BYTES_DEFAULT  (1u << 20)
#define SL_RING_BYTES_MIN      (16u << 10)
#define SL_RING_BYTES_MAX      (1u << 30)

SL_ASSERT_LAYOUT(SL_SLOT_LANE_OFFSET + SL_THREAD_LANE_BYTES <= SL_SLOT_RECORDS_OFFSET);

static inline struct sl_lane *sl_ring_lane(struct sl_ring *ring)
{
    return (struct sl_lane *)(void *)((char *)ring + SL_SLOT_LANE_OFFSET);
}

static inline struct sl_record *sl_ring_records(struct sl_ring *ring)
{
    return (struct sl_record *)(void *)((char *)ring + SL_SLOT_RECORDS_OFFSET);
}

#endif
