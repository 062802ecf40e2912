// scoped_lane.h: mark regions, threads and tasks of a program, for scoped-laned to record. C11 and C++17.
//
//     #include <scoped_lane.h>
//
//     void step(void)
//     {
//         SL_SCOPE("step");                 // until the end of the block, however it is left
//         ...
//     }
//
// What holds for every function here: it never blocks on the daemon, prints, exits, aborts, allocates on the hot path or
// changes errno. Where no daemon is there, nothing is recorded and a call costs one predicted branch. Handles are small
// values; a null handle (0) is accepted and does nothing. All may be called from any thread and from signal handlers;
// after fork the child records nothing unless SCOPED_LANE_FORK=follow.
//
// Link with -lscoped_lane (pkg-config scoped-lane).
#ifndef SCOPED_LANE_H
#define SCOPED_LANE_H

#include <stdint.h>

#include "proto/atomic.h"
#include "proto/lane.h"
#include "proto/record.h"
#include "proto/ring.h"

#include "client/scoped_lane_tracker.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SL_PUBLIC __attribute__((visibility("default")))
// Inline without optimisation too: what the functions note of their frame has to be their caller's, whichever of them it calls.
#define SL_INLINE_ static inline __attribute__((always_inline))

typedef uint32_t sl_region_t;  // 0: null
typedef uint64_t sl_task_t;    // 0: null
typedef uint64_t sl_mark_t;

// ---- regions

// The region of this name, made if need be. Names are UTF-8 of any length, copied. The same name (and, for sl_region_at,
// the same place) gives the same region for the life of the process; keep it in a static variable. Works while recording is
// off. NULL gives the null region; when 16,777,214 regions exist, "(other)".
SL_PUBLIC sl_region_t sl_region(const char *name);
SL_PUBLIC sl_region_t sl_region_at(const char *name, const char *file, int line);

// Opens and closes a call of the region on the calling thread's present lane: its current task, else the thread itself. A call
// belongs to the lane, so it may be left on another thread than it was entered on when its task has moved. sl_exit closes
// the nearest open call of the region; if that is not the innermost one it is recorded as crossing; an exit without an
// enter is counted. sl_next leaves the innermost call and enters `region` with one clock reading, half the cost of a pair.
SL_INLINE_ void sl_enter(sl_region_t region);
SL_INLINE_ void sl_exit(sl_region_t region);
SL_INLINE_ void sl_next(sl_region_t region);

// SL_SCOPE("name"): a region from here to the end of the block, also when it is left by return, break or a C++ exception.

// The lane's depth, to cut back to after setjmp returned a second time: calls entered since are dropped and counted.
SL_PUBLIC sl_mark_t sl_mark(void);
SL_PUBLIC void sl_unwind(sl_mark_t mark);

// ---- the process and its threads

SL_PUBLIC void sl_thread_name(const char *name);  // of the calling thread; UTF-8, any length, the last one wins
SL_PUBLIC void sl_thread_daemon(int is_daemon);   // of the calling thread: nobody waits for its end
SL_PUBLIC void sl_rank(int64_t rank);             // the process's rank in its run; the launcher's variables set it otherwise
SL_PUBLIC int sl_is_active(void);                 // 1 while this process records
// Looks for a daemon again, after there was none at start. 0 when the process records now, else -errno.
SL_PUBLIC int sl_attach(void);

// ---- tasks: cooperative lanes

// A task of a kind ("task", "greenlet", "fiber", any word) with names for people. Returns the null task when nothing is
// recorded. Steps may be made by any thread, one at a time; a step within a step suspends the outer one meanwhile.
SL_PUBLIC sl_task_t sl_task_create(const char *kind, const char *name, const char *coro_name);
SL_PUBLIC void sl_task_step_in(sl_task_t task);
SL_PUBLIC void sl_task_step_out(sl_task_t task);
SL_PUBLIC void sl_task_finish(sl_task_t task);  // the first call wins
SL_PUBLIC void sl_task_rename(sl_task_t task, const char *name);
SL_PUBLIC sl_task_t sl_task_current(void);

// ---- below: the hot path, inline. Not an interface.

#ifndef SL_TESTPOINT_
#define SL_TESTPOINT_(name)  // the library's own sources have testpoints here: client/testpoint.h
#endif

// The calling thread's private state: what the inline code needs. `lane` is NULL wherever the cold path has to decide: not
// registered yet, child of a fork, no ring, no usable counter; SL_LANE_OFF_ where recording is off and nothing is to be done. Other
// threads of the process may take `lane` away, so that the next call looks at what has changed. Off is what the code falls
// through to: a pair that jumps twice for nothing costs a nanosecond, and one that records does not notice, beside the counter.
#define SL_LANE_OFF_ ((struct sl_lane *)1)
struct sl_producer {
    struct sl_lane *lane;
    struct sl_ring *ring;
    struct sl_record *records;
    uint64_t mask;   // records - 1
    uint64_t limit;  // head at which the cold path must look: half full, full
    uint64_t busy;   // frame address of the append in progress, 0 none
    uint64_t dropped_in_a_row;
};

#ifdef __clang__
#define SL_TLS_ __thread __attribute__((tls_model("initial-exec")))
#else
#define SL_TLS_ __attribute__((tls_model("initial-exec"))) __thread
#endif
extern SL_PUBLIC SL_TLS_ struct sl_producer *sl_self_;

#ifndef SL_ENTER_COLD_
#define SL_ENTER_COLD_ sl_enter_cold_  // the Python module has something to do before
#endif
SL_PUBLIC void sl_enter_cold_(sl_region_t region, uint64_t frame);
SL_PUBLIC void sl_exit_cold_(sl_region_t region, uint64_t now, uint64_t frame);  // now 0: not read yet
SL_PUBLIC void sl_next_cold_(sl_region_t region, uint64_t now, uint64_t frame);
SL_PUBLIC int sl_thread_started_(int is_detached);   // 0 while off; for libscoped_lane_threads.so, as is the next one
SL_PUBLIC int sl_thread_detached_(uint64_t ident);   // 0: no such thread is registered
// For the Python module: what it knows of the calling thread, at once; that the thread ends here, as far as its row tells; the nearest open call of the region on a task's lane
// is left, where no thread steps it (0: none there); sl_attach() in the child of a fork that is followed, whatever the environment says.
SL_PUBLIC void sl_thread_introduce_(const char *name, int is_daemon);
SL_PUBLIC void sl_thread_ended_(void);
SL_PUBLIC int sl_task_exit_(sl_task_t task, sl_region_t region);
SL_PUBLIC int sl_follow_(void);
SL_PUBLIC void sl_exit_late_(struct sl_entry *entry, uint64_t now);  // the append has begun, the ring may be full
SL_PUBLIC void sl_next_late_(struct sl_entry *entry, uint64_t now, sl_region_t region, uint64_t frame);

SL_INLINE_ uint64_t sl_ticks_(void)
{
#if defined(SL_FAKE_TICKS)
    extern uint64_t SL_FAKE_TICKS(void);
    return SL_FAKE_TICKS();
#elif defined(__x86_64__)
    uint32_t low, high;
    __asm__ __volatile__("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ __volatile__("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return 1;  // never reached: without a counter `lane` stays NULL
#endif
}

// The stack pointer: lower is deeper. (SL_FRAME_: the exported copies have frames of their own, and take the caller's. The Python module
// counts frames within one unit as the same.)
#ifndef SL_FRAME_UNIT_
#define SL_FRAME_UNIT_ 1
#endif
SL_INLINE_ uint64_t sl_frame_(void)
{
#if defined(SL_FRAME_)
    return SL_FRAME_;
#elif defined(__x86_64__)
    uint64_t frame;
    __asm__ __volatile__("movq %%rsp, %0" : "=r"(frame));
    return frame & ~(uint64_t)(SL_FRAME_UNIT_ - 1);
#else
    return (uint64_t)(uintptr_t)__builtin_frame_address(0) & ~(uint64_t)(SL_FRAME_UNIT_ - 1);
#endif
}

// Appends an ordinary call: duration below 2^47 ticks, no other append in progress. The order makes it safe against handlers and
// kills: see proto/ring.h. 0: it has begun, and the cold path has to end it, for the ring may be full. Nothing is called in between, so
// that nothing has to be kept for afterwards.
SL_INLINE_ int sl_append_call_(struct sl_producer *self, struct sl_lane *lane, struct sl_entry *entry, sl_region_t region, uint64_t start,
                               uint64_t duration)
{
    struct sl_ring *ring = self->ring;
    sl_store_relaxed(&self->busy, sl_frame_());
    sl_compiler_barrier();
    SL_TESTPOINT_(append_busy);
    sl_bump(&ring->produced);
    sl_compiler_barrier();
    SL_TESTPOINT_(append_produced);
    uint64_t head = sl_load_relaxed(&ring->head);
    if (sl_unlikely(head >= self->limit))
        return 0;
    uint64_t waited = lane->suspended - entry->suspended;
    if (waited > duration)
        waited = duration;
    struct sl_record *record = self->records + (head & self->mask);
    sl_store_relaxed(&record->word[0], start);
    sl_store_relaxed(&record->word[1], sl_record_word1(SL_CALL, duration));
    sl_store_relaxed(&record->word[2], sl_record_word2(region, waited));
    sl_store_relaxed(&record->word[3], sl_record_word3(region, SL_ENTRY_REGION(entry[-1].region), lane->task));
    SL_TESTPOINT_(append_filled);
    sl_move(&ring->head, head, head + 1);  // fails where a handler overtook this append, and has counted it
    SL_TESTPOINT_(append_moved);
    sl_compiler_barrier();
    sl_store_relaxed(&self->busy, 0);
    SL_TESTPOINT_(append_done);
    return 1;
}

SL_INLINE_ void sl_enter(sl_region_t region)
{
    struct sl_producer *self = sl_self_;
    struct sl_lane *lane = sl_load_relaxed(&self->lane);
    if (sl_perhaps(lane == SL_LANE_OFF_))
        return;
    if (sl_unlikely(!lane)) {
        SL_ENTER_COLD_(region, sl_frame_());
        return;
    }
    uint32_t depth = sl_load_relaxed(&lane->depth);
    if (sl_unlikely(depth >= lane->entries || !region)) {
        sl_enter_cold_(region, sl_frame_());
        return;
    }
    struct sl_entry *entry = sl_lane_stack(lane) + depth;
    sl_store_release(&lane->depth, depth + 1);
    SL_TESTPOINT_(enter_depth);
    sl_fence_release();  // pairs with the reader's acquire fence: who sees the new region sees start = 0 as well
    sl_store_relaxed(&entry->region, region);
    sl_store_relaxed(&entry->frame, (uint32_t)sl_frame_());
    sl_store_relaxed(&entry->suspended, lane->suspended);
    uint64_t now = sl_ticks_();
    sl_store_relaxed(&lane->since, now);
    sl_store_release(&entry->start, now);
    SL_TESTPOINT_(enter_filled);
}

SL_INLINE_ void sl_exit(sl_region_t region)
{
    struct sl_producer *self = sl_self_;
    struct sl_lane *lane = sl_load_relaxed(&self->lane);
    if (sl_perhaps(lane == SL_LANE_OFF_))
        return;
    if (sl_unlikely(!lane)) {
        sl_exit_cold_(region, 0, sl_frame_());
        return;
    }
    uint64_t now = sl_ticks_();
    uint32_t top = sl_load_relaxed(&lane->depth) - 1;
    struct sl_entry *entry = sl_lane_stack(lane) + top;
    if (sl_unlikely(top >= lane->entries || entry->region != region)) {
        sl_exit_cold_(region, now, sl_frame_());
        return;
    }
    uint64_t start = sl_load_relaxed(&entry->start), duration = now - start;
    if (sl_unlikely(!start || duration >= SL_DURATION_LONG || sl_load_relaxed(&self->busy))) {
        sl_exit_cold_(region, now, sl_frame_());
        return;
    }
    if (sl_unlikely(!sl_append_call_(self, lane, entry, region, start, duration))) {
        sl_exit_late_(entry, now);
        return;
    }
    sl_store_release(&entry->start, 0);
    SL_TESTPOINT_(exit_zeroed);
    sl_store_relaxed(&lane->since, now);
    sl_store_release(&lane->depth, top);
    SL_TESTPOINT_(exit_depth);
}

SL_INLINE_ void sl_next(sl_region_t region)
{
    struct sl_producer *self = sl_self_;
    struct sl_lane *lane = sl_load_relaxed(&self->lane);
    if (sl_perhaps(lane == SL_LANE_OFF_))
        return;
    if (sl_unlikely(!lane)) {
        sl_next_cold_(region, 0, sl_frame_());
        return;
    }
    uint64_t now = sl_ticks_();
    uint32_t depth = sl_load_relaxed(&lane->depth), top = depth - 1;
    struct sl_entry *entry = sl_lane_stack(lane) + top;
    if (sl_unlikely(top >= lane->entries || !region)) {
        sl_next_cold_(region, now, sl_frame_());
        return;
    }
    uint64_t start = sl_load_relaxed(&entry->start), duration = now - start;
    if (sl_unlikely(!start || duration >= SL_DURATION_LONG || sl_load_relaxed(&self->busy))) {
        sl_next_cold_(region, now, sl_frame_());
        return;
    }
    if (sl_unlikely(!sl_append_call_(self, lane, entry, SL_ENTRY_REGION(entry->region), start, duration))) {
        sl_next_late_(entry, now, region, sl_frame_());
        return;
    }
    sl_store_release(&entry->start, 0);
    SL_TESTPOINT_(next_zeroed);
    sl_fence_release();  // as in sl_enter
    sl_store_relaxed(&entry->region, region);
    sl_store_relaxed(&entry->frame, (uint32_t)sl_frame_());
    sl_store_relaxed(&entry->suspended, lane->suspended);
    sl_store_relaxed(&lane->since, now);
    sl_store_relaxed(&lane->depth, depth);  // a handler may have left this very call
    sl_store_release(&entry->start, now);
    SL_TESTPOINT_(next_filled);
}

// One look-up per place: the id is kept in a static variable of the block, also in inline functions and templates.
static inline sl_region_t sl_region_once_(sl_region_t *place, const char *name, const char *file, int line)
{
    sl_region_t region = sl_load_relaxed(place);
    if (sl_unlikely(!region)) {
        region = sl_region_at(name, file, line);
        sl_store_relaxed(place, region);
    }
    return region;
}

#define SL_JOIN2_(a, b) a##b
#define SL_JOIN_(a, b)  SL_JOIN2_(a, b)

#ifdef __cplusplus
}  // extern "C"

namespace scoped_lane_detail {
class scope {
  public:
    __attribute__((always_inline)) explicit scope(sl_region_t region) noexcept : region_(region) { sl_enter(region); }
    ~scope() { sl_exit(region_); }
    scope(const scope &) = delete;
    scope &operator=(const scope &) = delete;

  private:
    const sl_region_t region_;
};
}  // namespace scoped_lane_detail

#define SL_SCOPE(name)                                         \
    static sl_region_t SL_JOIN_(sl_region_here_, __LINE__);    \
    const ::scoped_lane_detail::scope SL_JOIN_(sl_scope_here_, __LINE__)( \
        ::sl_region_once_(&SL_JOIN_(sl_region_here_, __LINE__), name, __FILE__, __LINE__))
#else
SL_INLINE_ sl_region_t sl_scope_open_(sl_region_t region)
{
    sl_enter(region);
    return region;
}

static inline void sl_scope_close_(const sl_region_t *region)
{
    sl_exit(*region);
}

#define SL_SCOPE(name)                                                                                        \
    static sl_region_t SL_JOIN_(sl_region_here_, __LINE__);                                                   \
    __attribute__((cleanup(sl_scope_close_), unused)) const sl_region_t SL_JOIN_(sl_scope_here_, __LINE__) =  \
        sl_scope_open_(sl_region_once_(&SL_JOIN_(sl_region_here_, __LINE__), name, __FILE__, __LINE__))
#endif

#endif
