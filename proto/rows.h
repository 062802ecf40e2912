// Thread and task rows: the tables that describe the lanes. A row has one writer at a time, by state:
//
//    FREE ──client──> LIVE ──client──> DONE ──daemon──> SPOOLED ──client──> LIVE (another thread or task)
//                       ^                │
//                       └────client──────┘  a thread that records again in a late destructor
//
// Text is UTF-8 of `length` bytes: inline up to SL_NAME_INLINE, else a chain of SL_NAME_BLOCK blocks that starts at `blocks`
// (an offset in the segment) and is recycled with the row. `seq` is odd while text is written; `version` rises with each
// change, so that a reader upserts what is new. Times are ticks of the segment's clock.
#ifndef SL_PROTO_ROWS_H
#define SL_PROTO_ROWS_H

#include "proto/lane.h"
#include "proto/layout.h"

enum sl_row_state { SL_ROW_FREE = 0, SL_ROW_LIVE = 1, SL_ROW_DONE = 2, SL_ROW_SPOOLED = 3 };

#define SL_NAME_INLINE       64
#define SL_NAME_BLOCK        256
#define SL_NAME_BLOCK_TEXT   248
#define SL_NAME_LENGTH_LIMIT (1u << 20)  // longer names are cut here, at a character

struct sl_name {
    uint32_t length;
    uint32_t zero;
    uint64_t blocks;
    char text[SL_NAME_INLINE];
};

struct sl_name_block {
    uint64_t next;  // offset of the next block, 0 at the end
    char text[SL_NAME_BLOCK_TEXT];
};

#define SL_THREAD_DAEMON 1u   // flag: detached, or a daemon thread of its language
#define SL_THREAD_NAMED  2u   // flag: the program gave the name; else it is the kernel's comm

struct sl_thread_row {
    uint32_t state;
    uint32_t index;
    uint32_t seq;
    uint32_t version;
    uint64_t ident;      // pthread_t
    uint32_t native_id;  // kernel tid
    uint32_t flags;
    uint64_t start;      // ticks at registration
    uint64_t end;        // ticks, 0 while alive
    uint64_t cpu_ns;     // exact, stored by the dying thread; 0 before
    uint32_t slot;       // its ring: number of the slot, all ones none
    uint32_t zero;
    struct sl_name name;
    uint64_t zero1[6];
};

struct sl_task_row {
    uint32_t state;
    uint32_t index;
    uint32_t seq;
    uint32_t version;
    uint64_t created;  // ticks
    uint64_t done;     // ticks, 0 before
    uint32_t kind;     // id of a word in the strings
    uint32_t finished;  // 1: its end was asked for (`done`), 2: and completed; between the two a step is in progress
    uint32_t noted;     // the client's own: the latest change of its trackers that this task has been told of
    uint32_t zero0;
    uint64_t zero[2];
    struct sl_name name;
    struct sl_name coro_name;
    uint64_t zero1[4];
    struct sl_lane lane;
    struct sl_entry stack[SL_TASK_ENTRIES];
};

SL_ASSERT_SIZE(sl_name, 80);
SL_ASSERT_SIZE(sl_name_block, SL_NAME_BLOCK);
SL_ASSERT_AT(sl_thread_row, name, 64);
SL_ASSERT_SIZE(sl_thread_row, 192);
SL_ASSERT_AT(sl_task_row, name, 64);
SL_ASSERT_AT(sl_task_row, lane, 256);
SL_ASSERT_SIZE(sl_task_row, 768);

#define SL_TASK_ROWS_LIMIT (1u << 16)  // unspooled rows; beyond, a task keeps its index and its calls count as "no row"

#endif
