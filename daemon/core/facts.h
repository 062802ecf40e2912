// What is known of a process, a thread, a task, a ring: fixed-width structs that the live tables hold, the spool stores as they
// are, and the converter reads back. Times are ticks of the segment's clock where the name says so. A change here is a
// change of the spool's version (storage/spool.h) and of docs/format.md.
#ifndef SL_CORE_FACTS_H
#define SL_CORE_FACTS_H

#include <stdint.h>

#include "proto/layout.h"
#include "proto/ring.h"

#define FACTS_NO_THREAD 0xffffffffu

enum process_state {
    PROCESS_LIVE = 0,
    PROCESS_DEAF = 1,      // alive, but closed our socket: polled on
    PROCESS_ENDED = 2,     // said goodbye
    PROCESS_KILLED = 3,    // by a signal, known
    PROCESS_VANISHED = 4,  // gone without goodbye, how is not known
    PROCESS_EXEC = 5       // the pid lives on with another program
};

#define PROCESS_STATE_NAMES {"live", "deaf", "ended", "killed", "vanished", "exec"}

struct process_facts {
    uint8_t uuid[16];  // of the segment
    uint32_t pid;
    uint32_t parent_pid;
    uint64_t start_time;  // clock ticks since boot
    uint64_t parent_start_time;
    uint32_t uid, gid;
    uint32_t clock;  // enum sl_clock_kind
    int32_t world_size;
    int64_t rank;  // claim, SL_RANK_NONE none
    uint64_t created_ticks;
    int64_t created_monotonic_ns, created_realtime_ns;
};

// How a process stands or ended; the last one written wins.
struct process_status {
    uint32_t state;       // enum process_state
    int32_t exit_status;  // valid with has_exit: exit code, or -signal
    uint32_t has_exit;
    uint32_t threads, tasks;  // indices given out
    uint32_t goodbye;
    int64_t rank;
    int64_t end_ns;         // monotonic; SL_UNKNOWN while it lives
    uint64_t last_event;  // ticks of the newest record or change of a lane; 0 none
};

struct thread_facts {
    uint32_t index;
    uint32_t native_id;
    uint64_t ident;
    uint32_t flags;  // SL_THREAD_DAEMON …
    uint32_t slot;   // SL_RING_FREE none
    uint64_t start, end;  // ticks; end 0: alive
    uint64_t cpu_ns;
    uint32_t cpu_exact;
    uint32_t name_length;
};

struct task_facts {
    uint32_t index;
    uint32_t thread;  // of the last step
    uint32_t kind;    // word
    uint32_t steps_bound;  // 1: rebuilt after a death in mid-step, a bound
    uint64_t created, done;  // ticks; done 0: not
    uint64_t steps, running, suspended, longest_step;
    uint64_t first_step, step_started, last_step_end;
    uint32_t stepping;  // a step is in progress
    uint32_t name_length, coro_name_length;
    uint32_t zero;
};

// The counters of one ring, and what the daemon adds. Slot FACTS_ELSEWHERE: calls of threads that have no ring.
#define FACTS_ELSEWHERE 0xffffffffu

struct ledger {
    uint64_t produced;  // the producer's own counter
    uint64_t stored;    // calls in the spool
    uint64_t lost[SL_LOST_COUNT];
    uint64_t unmatched, abandoned, crossing, steps_refused, stale_tasks;
};

// A call that is open: in live tables, in snapshots of lane blocks, at death.
struct open_facts {
    uint32_t thread;  // FACTS_NO_THREAD for a task's lane
    uint32_t task;    // SL_TASK_NONE for a bare thread
    uint32_t region, position;  // 0 is the outermost
    uint64_t start;
};

struct sample_facts {
    uint32_t thread;
    uint32_t state;  // the letter of /proc's stat
    uint64_t cpu_ns, wait_ns;
    int64_t time_ns;
};

SL_ASSERT_SIZE(process_facts, 88);
SL_ASSERT_SIZE(process_status, 48);
SL_ASSERT_SIZE(thread_facts, 56);
SL_ASSERT_SIZE(task_facts, 104);
SL_ASSERT_SIZE(ledger, 16 + 8 * SL_LOST_COUNT + 40);
SL_ASSERT_SIZE(open_facts, 24);
SL_ASSERT_SIZE(sample_facts, 32);

#endif
