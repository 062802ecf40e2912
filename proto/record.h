// The record: 32 bytes, one closed interval that says all about itself. Nothing in a ring has to be paired, ordered or
// merged with anything else, and a lost record damages no other.
//
//            63      56 55                    48 47                            32 31         8 7          0
//   word 0   start (ticks)
//   word 1   kind       duration (ticks; CALL_BACK: the end, low 56 bits)
//   word 2   region, low 16 bits                 await (ticks; units of 512 ticks where the duration is >= 2^47)
//   word 3   task (32 bits, all ones = none)                                      parent's region  region, high 8
//
// Ids fit without masking: regions have 24 bits, tasks 32. Region 0 is no region. The thread is the ring's owner, which a
// THREAD record announces.
#ifndef SL_PROTO_RECORD_H
#define SL_PROTO_RECORD_H

#include <stdint.h>

#define SL_RECORD_BYTES 32

struct sl_record {
    uint64_t word[4];
};

// Numbers are never reused. A reader skips kinds it does not know; kinds from 16 on carry no call.
enum sl_record_kind {
    SL_SKIP = 0,           // nothing; duration 1: the record before this one is void too (an append was overtaken)
    SL_CALL = 1,           // a closed call
    SL_CALL_CROSSING = 2,  // closed, but not the top of its lane's stack
    SL_CALL_BACK = 3,      // the counter ran back meanwhile: the duration field holds the end, await unknown
    SL_CALL_LONG = 4,      // duration saturated
    SL_UNMATCHED = 5,      // an exit without an enter: when (start), region, task
    SL_ENDED_OPEN = 6,     // open when its task finished or its thread ended; duration until then; not a call
    SL_THREAD = 16,        // the ring's owner from here on: its index in the task field
    SL_STEP = 17,          // a closed step of a task that was slow, half a millisecond or so; the task's kind (a word) in the await field
    SL_DONE = 18,          // hint: the row of this task (its offset / 64 in the await field) is final
    SL_KIND_COUNT = 19
};

#define SL_REGION_BITS    24
#define SL_REGION_OTHER   0xffffffu  // "(other)": the table of names is full
#define SL_REGION_LAST    0xfffffeu  // the highest id that is handed out
#define SL_TASK_NONE      0xffffffffu
#define SL_DURATION_BITS  56
#define SL_DURATION_LONG  (UINT64_C(1) << 47)  // from here on await counts in units of 512 ticks
#define SL_AWAIT_SHIFT    9
#define SL_DURATION_LIMIT ((UINT64_C(1) << SL_DURATION_BITS) - 1)

static inline uint64_t sl_record_word1(unsigned kind, uint64_t duration)
{
    return (uint64_t)kind << SL_DURATION_BITS | duration;
}

static inline uint64_t sl_record_word2(uint32_t region, uint64_t await_field)
{
    return (uint64_t)region << 48 | await_field;
}

static inline uint64_t sl_record_word3(uint32_t region, uint32_t parent, uint32_t task)
{
    return (uint64_t)task << 32 | (uint32_t)(parent << 8) | region >> 16;
}

static inline uint64_t sl_record_start(const struct sl_record *record)
{
    return record->word[0];
}

static inline unsigned sl_record_kind(const struct sl_record *record)
{
    return (unsigned)(record->word[1] >> SL_DURATION_BITS);
}

static inline uint64_t sl_record_duration(const struct sl_record *record)
{
    return record->word[1] & SL_DURATION_LIMIT;
}

static inline uint64_t sl_record_await_field(const struct sl_record *record)
{
    return record->word[2] & ((UINT64_C(1) << 48) - 1);
}

static inline uint64_t sl_record_await(const struct sl_record *record)
{
    uint64_t field = sl_record_await_field(record);
    return sl_record_duration(record) >= SL_DURATION_LONG ? field << SL_AWAIT_SHIFT : field;
}

static inline uint32_t sl_record_region(const struct sl_record *record)
{
    return (uint32_t)(record->word[2] >> 48) | (uint32_t)(record->word[3] & 0xff) << 16;
}

static inline uint32_t sl_record_parent(const struct sl_record *record)
{
    return (uint32_t)record->word[3] >> 8;
}

static inline uint32_t sl_record_task(const struct sl_record *record)
{
    return (uint32_t)(record->word[3] >> 32);
}

// Is it a call in the sense of the ledger (design.md §8)?
static inline int sl_record_is_call(const struct sl_record *record)
{
    unsigned kind = sl_record_kind(record);
    return kind >= SL_CALL && kind <= SL_CALL_LONG;
}

#endif
