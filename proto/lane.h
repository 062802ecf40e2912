// The lane block: what is open now, always true. One per ring slot (the bare-thread lane) and one in each task row.
//
//     0  depth · entries    since          task · thread       suspended            line 0: every enter and exit
//    32  seq · flags        steps          running             first_step
//    64  step_started       last_step_end  under               longest_step         line 1: steps
//    96  overflow           bottom (24 bytes of zero: the entry below the lowest)
//   128  stack[entries], 24 bytes each; entry i >= entries lies at overflow + 24 * (i - entries)
//
// One writer: the thread the lane belongs to, or that steps the task. Readers are other processes.
//
// Invariant: start = 0 in every slot at or above depth, whatever moment the writer is killed or interrupted at.
//   enter  depth + 1, then fill, start last     a signal handler that enters now nests above
//   exit   publish the record, start = 0, depth - 1
//   next   publish, start = 0, region and suspended, start
// A top entry with start 0 is being entered or left: readers leave it out. After a kill only an entry whose lane and start are
// those of the newest record of some ring can be both published and open: it counts as closed.
//
// While recording is paused (sl_segment.control) the daemon keeps `entries` at 0, the one word of a block that is its own once the block is
// there: so the inline path, which compares with it anyway, gives way to the cold path, and that looks at `control`. Calls entered
// meanwhile have their entries as ever, for what is open is to be seen, but no record: the top bit of `start` is set, which makes their
// duration one that the inline path leaves alone; `region` is that of the nearest call below that is recorded, which is so the parent
// of those above; their own is in `suspended`.
//
// The step fields change under `seq`, odd while they are written. A block found odd after its writer died is rebuilt from
// suspended = step_started - first_step - running and said to be a bound.
#ifndef SL_PROTO_LANE_H
#define SL_PROTO_LANE_H

#include "proto/atomic.h"
#include "proto/layout.h"
#include "proto/record.h"

#define SL_THREAD_ENTRIES   128   // inline in a ring slot
#define SL_TASK_ENTRIES     16    // inline in a task row
#define SL_OVERFLOW_ENTRIES 1024  // one block from the pool; deeper calls are counted "too deep"

#define SL_ENTRY_REGION(word) ((uint32_t)(word) & 0xffffffu)
#define SL_ENTRY_MARKS(word)  ((uint32_t)(word) >> 24)
#define SL_ENTRY_MARK_ONE     0x1000000u  // added each time an exit crosses the entry

// In `start`: entered while recording was paused.
#define SL_ENTRY_UNRECORDED_BIT 63
#define SL_ENTRY_UNRECORDED     (UINT64_C(1) << SL_ENTRY_UNRECORDED_BIT)

struct sl_entry {
    uint64_t start;      // ticks; 0: not open (being entered or left)
    uint64_t suspended;  // the lane's suspended time at entry; of an unrecorded one its region
    uint32_t region;     // id, and above it how many exits have crossed this entry
    uint32_t frame;      // low half of the caller's frame address: tells what a longjmp left behind
};

struct sl_lane {
    uint32_t depth;          // open entries
    uint32_t entries;        // room in stack[], 0 while recording is paused
    uint64_t since;          // ticks of the last change: enter, exit, next, step
    uint32_t task;           // index, SL_TASK_NONE for a bare thread
    uint32_t thread;         // index of the thread it is, or that ran the last step
    uint64_t suspended;      // total ticks between steps; 0 for a thread
    uint32_t seq;            // odd while the step fields are written
    uint32_t stepping;       // 1 + index of the thread whose step is in progress, 0 none
    uint64_t steps;
    uint64_t running;        // total ticks of closed steps
    uint64_t first_step;     // ticks, 0 before
    uint64_t step_started;   // ticks
    uint64_t last_step_end;  // ticks
    uint64_t under;          // handle of the task that this one's step interrupted, 0 none
    uint64_t longest_step;   // ticks
    uint64_t overflow;       // offset of the overflow block in the segment, 0 none
    struct sl_entry bottom;  // always zero: "the entry below" of a root call names region 0
};

SL_ASSERT_SIZE(sl_entry, 24);
SL_ASSERT_AT(sl_lane, suspended, 24);
SL_ASSERT_AT(sl_lane, seq, 32);
SL_ASSERT_AT(sl_lane, step_started, 64);
SL_ASSERT_AT(sl_lane, overflow, 96);
SL_ASSERT_AT(sl_lane, bottom, 104);
SL_ASSERT_SIZE(sl_lane, 128);

#define SL_THREAD_LANE_BYTES (128 + 24 * SL_THREAD_ENTRIES)
#define SL_TASK_LANE_BYTES   (128 + 24 * SL_TASK_ENTRIES)
#define SL_OVERFLOW_BYTES    (24 * SL_OVERFLOW_ENTRIES)

static inline struct sl_entry *sl_lane_stack(struct sl_lane *lane)
{
    return (struct sl_entry *)(void *)(lane + 1);
}

#endif
