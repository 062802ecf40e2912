// The segment: one process image's shared memory, made by the client, adopted by the daemon.
//
//   name   /scoped-lane.<uid>.<pid>.<start time>.<64-bit random hex>      0600, in /dev/shm or SCOPED_LANE_SHM_DIR
//
//      0   identity: written once, before the magic (release, last)
//    512   the client's line: how large, how many extents, rank, goodbye
//    640   counters several client threads add to: calls of threads that have no ring
//    768   the daemon's line
//   1024   the first table of extents, 96 entries of 32 bytes
//   4096   extents, each aligned to 4096
//
// It only grows: posix_fallocate at the end (a hole would be a SIGBUS on a full tmpfs), then the extent's entry, then
// `extents` with release. The last entry of a full table is of kind EXTENTS and says where the next table lies.
// Offsets, never pointers. One writer per cache line. No lock.
//
// What must change with a layout: SL_ABI_VERSION, docs/format.md, the test that reads the old form.
#ifndef SL_PROTO_SEGMENT_H
#define SL_PROTO_SEGMENT_H

#include "proto/layout.h"
#include "proto/ring.h"
#include "proto/rows.h"
#include "proto/strings.h"

#define SL_MAGIC          UINT64_C(0x31656e616c2d6c73)  // "sl-lane1", little endian
#define SL_ABI_VERSION    1
#define SL_NAME_PREFIX    "scoped-lane."
#define SL_SHM_DIRECTORY  "/dev/shm"  // where SCOPED_LANE_SHM_DIR says no other
#define SL_SEGMENT_LIMIT  (UINT64_C(4) << 30)
#define SL_HEADER_BYTES   4096
#define SL_EXTENT_ALIGN   4096
#define SL_RUN_KEY_BYTES  256
#define SL_PLACE_BYTES    112
#define SL_TABLE_FIRST    96
#define SL_TABLE_NEXT     128
#define SL_RANK_NONE      INT64_MIN
#define SL_CONTROL_PAUSED 1u  // calls that are entered now get no record: proto/lane.h

enum sl_clock_kind { SL_CLOCK_MONOTONIC = 0, SL_CLOCK_TSC = 1, SL_CLOCK_ARM = 2 };

enum sl_extent_kind {
    SL_EXTENT_TABLE = 1,     // the next table of extents
    SL_EXTENT_SLOT = 2,      // one ring slot; `first` is its number
    SL_EXTENT_THREADS = 3,   // thread rows
    SL_EXTENT_TASKS = 4,     // task rows
    SL_EXTENT_STRINGS = 5,
    SL_EXTENT_NAMES = 6,     // blocks of long names
    SL_EXTENT_STACKS = 7     // overflow blocks of lanes
};

struct sl_extent {
    uint32_t kind;
    uint32_t first;  // number of its first slot or row
    uint32_t count;  // slots, rows, blocks in it
    uint32_t zero;
    uint64_t offset;
    uint64_t size;
};

struct sl_segment {
    uint64_t magic;
    uint32_t abi;
    uint32_t features;  // none yet; a reader refuses bits it does not know
    uint32_t header_bytes;
    uint32_t record_bytes;
    uint32_t thread_row_bytes;
    uint32_t task_row_bytes;
    uint8_t uuid[16];
    uint32_t pid;
    uint32_t parent_pid;
    uint64_t start_time;         // /proc/PID/stat field 22, clock ticks since boot
    uint64_t parent_start_time;  // the same of the parent, 0 unknown
    uint32_t uid;
    uint32_t clock;              // enum sl_clock_kind
    uint64_t created_ticks;      // the three read together when the segment was made: the first anchor
    int64_t created_monotonic_ns;
    int64_t created_realtime_ns;
    int32_t world_size;  // as the launcher says, 0 unknown
    uint32_t fork_depth;  // how many forks followed since the program was executed
    char run_key[SL_RUN_KEY_BYTES];  // "" leaves it to the daemon, which knows the ancestors
    char place[SL_PLACE_BYTES];      // runtime directory of the daemon it is meant for: another one's scan leaves it alone
    uint64_t image;  // where the kernel put its vdso: the same in all copies of the library in an image, another after exec; 0 unknown
    uint64_t zero0[3];

    // 512: the client's line
    uint64_t size;      // bytes of the file that are mapped and allocated
    uint32_t extents;   // entries published
    uint32_t goodbye;   // 1 once the program has ended in an orderly way
    uint32_t threads;   // thread indices given out
    uint32_t tasks;     // task indices given out
    int64_t rank;       // claimed rank, SL_RANK_NONE when none
    uint64_t regions;   // region ids given out
    uint32_t wakeups;   // 1 while the client can write to the daemon's eventfd
    uint32_t untracked; // tasks that escaped tracking, as the client was told
    uint64_t zero1[10];

    // 640: calls of threads that have no ring (added to by several threads, with a locked instruction)
    uint64_t elsewhere_produced;
    uint64_t elsewhere_lost[SL_LOST_CLIENT_COUNT];
    uint64_t zero2[10];

    // 768: the daemon's line
    uint32_t control;   // SL_CONTROL_…
    uint32_t sleeping;  // 1: the daemon waits, a wake-up is welcome
    uint32_t daemon_pid;
    uint32_t adopted;   // 1 once a daemon reads this segment
    struct sl_accounted accounted;  // of the calls of threads that have no ring
    uint64_t zero3[18];

    // 1024
    struct sl_extent table[SL_TABLE_FIRST];
};

SL_ASSERT_SIZE(sl_extent, 32);
SL_ASSERT_AT(sl_segment, run_key, 112);
SL_ASSERT_AT(sl_segment, place, 368);
SL_ASSERT_AT(sl_segment, size, 512);
SL_ASSERT_AT(sl_segment, elsewhere_produced, 640);
SL_ASSERT_AT(sl_segment, control, 768);
SL_ASSERT_AT(sl_segment, table, 1024);
SL_ASSERT_SIZE(sl_segment, SL_HEADER_BYTES);

#endif
