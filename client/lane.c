// Lanes, the cold side: everything about a stack that the inline path in scoped_lane.h leaves out. No function here takes the
// client's lock but lane_deepen.
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/state.h"

#define NESTED_LIMIT    64  // appends dropped as nested while head stands still, before the first is held to be abandoned
#define MARKED_LIMIT    16  // entries that exits crossed and that stay
#define CROSSED_REMOVED 2   // an entry crossed this often is removed
#define STACKS_APART    (64 << 10)  // two threads' stacks are not nearer than that
#define FULL_ROUNDS     64  // too deep enters, each after a too deep exit, on a stack that stays full: doubtful entries go too

// ---- appends

// Counts a call that cannot be stored. `busy` is set meanwhile, as for an append: should a handler leave by longjmp between the
// two counters, the next append squares them.
static void count_lost(struct producer *self, enum sl_loss reason)
{
    struct sl_ring *ring = self->hot.ring;
    if (!ring) {
        sl_fetch_add(&client->segment->elsewhere_produced, 1);
        SL_TESTPOINT_(lost_elsewhere_produced);
        sl_fetch_add(&client->segment->elsewhere_lost[reason], 1);
        SL_TESTPOINT_(lost_elsewhere_counted);
        return;
    }
    uint64_t busy = sl_load_relaxed(&self->hot.busy);
    if (!busy)
        sl_store_relaxed(&self->hot.busy, sl_frame_());
    sl_compiler_barrier();
    sl_bump(&ring->produced);
    SL_TESTPOINT_(lost_produced);
    sl_bump(&ring->lost[reason]);
    SL_TESTPOINT_(lost_counted);
    sl_compiler_barrier();
    if (!busy)
        sl_store_relaxed(&self->hot.busy, 0);
}

static bool take_turn(struct producer *self, uint64_t frame, bool call);
static bool has_room(struct producer *self, uint64_t head);

// The rest of the append of a call that has begun: `busy` is set, the call is counted.
static void publish(struct producer *self, const struct sl_record *call)
{
    struct sl_ring *ring = self->hot.ring;
    uint64_t head = sl_load_relaxed(&ring->head);
    if (head < self->hot.limit || has_room(self, head)) {
        struct sl_record *record = self->hot.records + (head & self->hot.mask);
        for (int i = 0; i < 4; i++)
            sl_store_relaxed(&record->word[i], call->word[i]);
        SL_TESTPOINT_(append_filled);
        sl_move(&ring->head, head, head + 1);  // fails where a handler overtook this append, and has counted it
        SL_TESTPOINT_(append_moved);
    }
    sl_compiler_barrier();
    sl_store_relaxed(&self->hot.busy, 0);
    SL_TESTPOINT_(append_done);
}

// The order of sl_append_call_, for calls of every kind.
static void append_call(struct producer *self, const struct sl_record *call, uint64_t frame)
{
    if (sl_load_relaxed(&self->hot.busy) && !take_turn(self, frame, true))
        return;
    sl_store_relaxed(&self->hot.busy, frame);
    sl_compiler_barrier();
    SL_TESTPOINT_(append_busy);
    sl_bump(&self->hot.ring->produced);
    sl_compiler_barrier();
    SL_TESTPOINT_(append_produced);
    publish(self, call);
}

bool lane_append(struct producer *self, const struct sl_record *record, uint64_t frame)
{
    struct sl_ring *ring = self->hot.ring;
    bool call = sl_record_is_call(record);
    if (!ring || self->unannounced) {
        if (call)
            count_lost(self, SL_LOST_NO_RING);
        return false;
    }
    if (call) {
        uint64_t before = sl_load_relaxed(&ring->head);
        append_call(self, record, frame);
        return sl_load_relaxed(&ring->head) != before;
    }
    // Not a call: outside the ledger, so `produced` stays and `others` rises once head has moved.
    if (sl_load_relaxed(&self->hot.busy) && !take_turn(self, frame, false))
        return false;
    sl_store_relaxed(&self->hot.busy, frame);
    sl_compiler_barrier();
    uint64_t head = sl_load_relaxed(&ring->head), tail = sl_load_acquire(&ring->tail);
    bool fits = head - tail <= self->hot.mask;
    if (fits) {
        self->hot.records[head & self->hot.mask] = *record;
        SL_TESTPOINT_(other_filled);
        if (sl_move(&ring->head, head, head + 1)) {
            SL_TESTPOINT_(other_moved);
            sl_bump(&ring->others);
            SL_TESTPOINT_(other_counted);
        }
    }
    sl_compiler_barrier();
    sl_store_relaxed(&self->hot.busy, 0);
    return fits;
}

// Makes the counters agree again: produced = calls in the ring since ever + lost.
static void square(struct sl_ring *ring)
{
    uint64_t lost = 0;
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        lost += ring->lost[reason];
    int64_t open = (int64_t)(ring->produced - (ring->head - ring->others) - lost);
    uint64_t *counter = open > 0 ? &ring->lost[SL_LOST_IN_SIGNAL] : &ring->others;
    sl_store_relaxed(counter, *counter + (uint64_t)(open > 0 ? open : -open));
}

// The append in progress will not come back, or not before this one: its slot is void, and a SKIP behind it says so, which it
// cannot overwrite should it come back after all. The slot itself is emptied too: what it held a lap ago may have been such a SKIP,
// which would void the record before it. On a ring too full for the two, only an append that cannot come back is taken over, as if it had
// never begun.
static bool take_over(struct producer *self, bool is_gone)
{
    static const uint64_t all = ~UINT64_C(0);
    struct sl_ring *ring = self->hot.ring;
    uint64_t mask;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof all);
    uint64_t head = ring->head, tail = sl_load_acquire(&ring->tail);
    bool fits = head - tail + 2 <= self->hot.mask + 1;
    if (fits) {
        square(ring);
        SL_TESTPOINT_(overtaken_squared);
        self->hot.records[head & self->hot.mask] = (struct sl_record){{0}};
        self->hot.records[(head + 1) & self->hot.mask] = (struct sl_record){{0, sl_record_word1(SL_SKIP, 1), 0, 0}};
        sl_store_release(&ring->head, head + 2);
        SL_TESTPOINT_(overtaken_moved);
        sl_store_relaxed(&ring->others, ring->others + 2);
        SL_TESTPOINT_(overtaken_counted);
        sl_store_relaxed(&self->hot.busy, 0);
    } else if (is_gone) {
        square(ring);
        sl_store_relaxed(&self->hot.busy, 0);
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
    return fits || is_gone;
}

// An append finds another in progress. True: it may go on. False: it is dropped, and counted when it is a call.
static bool take_turn(struct producer *self, uint64_t frame, bool call)
{
    int saved = errno;
    uint64_t busy = sl_load_relaxed(&self->hot.busy);
    stack_t alternate;
    bool nested = frame < busy;  // deeper: a handler runs on top of the append
    if (sigaltstack(NULL, &alternate) == 0 && !(alternate.ss_flags & SS_DISABLE)) {
        bool here = alternate.ss_flags & SS_ONSTACK, begun_here = busy - (uint64_t)(uintptr_t)alternate.ss_sp < alternate.ss_size;
        if (here != begun_here)  // two stacks: the handlers' lies on top
            nested = here;
    }
    errno = saved;
    uint64_t head = sl_load_relaxed(&self->hot.ring->head);
    if (self->dropped_head != head) {
        self->dropped_head = head;
        self->hot.dropped_in_a_row = 0;
    }
    if (nested && self->hot.dropped_in_a_row++ < NESTED_LIMIT) {
        if (call)
            count_lost(self, SL_LOST_IN_SIGNAL);
        return false;
    }
    if (!take_over(self, !nested)) {
        if (call)
            count_lost(self, SL_LOST_RING_FULL);
        return false;
    }
    errno = saved;
    return true;
}

// Is there room for a record at `head`? When not, the call is counted as lost. Also says when to look again.
static bool has_room(struct producer *self, uint64_t head)
{
    struct sl_ring *ring = self->hot.ring;
    uint64_t records = self->hot.mask + 1, tail = sl_load_acquire(&ring->tail);  // pairs with the daemon's release
    uint64_t used = head - tail;
    if (used >= records / 2 && self->woken != tail + 1 && attach_wake())
        self->woken = tail + 1;
    if (used >= records) {
        sl_bump(&ring->lost[SL_LOST_RING_FULL]);
        SL_TESTPOINT_(full_counted);
        self->hot.limit = head;
        return false;
    }
    uint64_t look = used < records / 2 ? tail + records / 2 : head + records / 8;
    self->hot.limit = look < tail + records ? look : tail + records;
    if (self->hot.limit <= head)
        self->hot.limit = head + 1;
    return true;
}

// ---- calls

static struct sl_record call_record(const struct sl_lane *lane, const struct sl_entry *entry, const struct sl_entry *below,
                                    unsigned kind, uint64_t now)
{
    uint64_t start = entry->start, duration = now - start, waited = lane->suspended - entry->suspended, field = 0;
    if (now < start && kind == SL_CALL) {  // the counter ran back: suspend or migration
        kind = SL_CALL_BACK;
        duration = now;
    } else if (now < start) {
        duration = 0;
    } else {
        if (duration > SL_DURATION_LIMIT) {
            duration = SL_DURATION_LIMIT;
            kind = kind == SL_CALL ? SL_CALL_LONG : kind;
        }
        if (waited > duration)
            waited = duration;
        field = duration >= SL_DURATION_LONG ? waited >> SL_AWAIT_SHIFT : waited;
    }
    uint32_t region = SL_ENTRY_REGION(entry->region);
    return (struct sl_record){{start, sl_record_word1(kind, duration & SL_DURATION_LIMIT), sl_record_word2(region, field),
                               sl_record_word3(region, SL_ENTRY_REGION(below->region), lane->task)}};
}

static const struct sl_entry *below(struct sl_lane *lane, uint32_t i)
{
    return i ? lane_entry(lane, i - 1) : &lane->bottom;
}

// `below`: the entry under it.
static void fill(struct sl_lane *lane, struct sl_entry *entry, const struct sl_entry *below, uint32_t region, uint64_t frame,
                 uint64_t now)
{
    bool paused = is_paused();
    sl_fence_release();  // as in sl_enter
    sl_store_relaxed(&entry->region, paused ? SL_ENTRY_REGION(below->region) : region);
    sl_store_relaxed(&entry->frame, (uint32_t)frame);
    sl_store_relaxed(&entry->suspended, paused ? region : lane->suspended);
    sl_store_relaxed(&lane->since, now);
    sl_store_release(&entry->start, paused ? now | SL_ENTRY_UNRECORDED : now);
    SL_TESTPOINT_(cold_filled);
}

static bool is_recorded(const struct sl_entry *entry)
{
    return !(entry->start & SL_ENTRY_UNRECORDED);
}

static uint32_t region_of(const struct sl_entry *entry)
{
    return is_recorded(entry) ? SL_ENTRY_REGION(entry->region) : (uint32_t)entry->suspended;
}

// Cuts the stack to `depth`, keeping the invariant: no start above depth.
static void cut(struct sl_lane *lane, uint32_t depth)
{
    uint32_t present = sl_load_relaxed(&lane->depth), capacity = lane_capacity(lane);
    for (uint32_t i = present < capacity ? present : capacity; i-- > depth;)
        sl_store_release(&lane_entry(lane, i)->start, 0);
    SL_TESTPOINT_(cut_zeroed);
    sl_store_release(&lane->depth, depth);
    SL_TESTPOINT_(cut_depth);
}

// Closes the gap at `hole`: entries from `from` on move down to it.
static void move_down(struct sl_lane *lane, uint32_t hole, uint32_t from)
{
    uint32_t depth = sl_load_relaxed(&lane->depth);
    for (uint32_t i = from; i < depth; i++, hole++) {
        struct sl_entry *to = lane_entry(lane, hole);
        const struct sl_entry *entry = lane_entry(lane, i);
        uint64_t start = entry->start;
        sl_store_release(&to->start, 0);
        SL_TESTPOINT_(down_zeroed);
        sl_fence_release();
        sl_store_relaxed(&to->suspended, entry->suspended);
        sl_store_relaxed(&to->region, entry->region);
        sl_store_relaxed(&to->frame, entry->frame);
        sl_store_release(&to->start, start);
        SL_TESTPOINT_(down_filled);
    }
    cut(lane, hole);
}

static void abandon(struct producer *self, struct sl_lane *lane, uint32_t i)
{
    if (self->hot.ring)
        sl_bump(&self->hot.ring->abandoned);
    SL_TESTPOINT_(abandoned_counted);
    move_down(lane, i, i + 1);
}

// A task that moves may have been entered on another thread's stack, whose frames say nothing about ours: of its entries only those
// nearby count as deeper.
static bool deeper_than(const struct sl_lane *lane, const struct sl_entry *entry, uint64_t frame)
{
    uint32_t by = (uint32_t)frame - entry->frame, limit = lane->task == SL_TASK_NONE ? INT32_MAX : STACKS_APART;
    return by && by <= limit;
}

static stack_t alternate_stack(void)
{
    int saved = errno;
    stack_t alternate;
    if (sigaltstack(NULL, &alternate) != 0 || (alternate.ss_flags & SS_DISABLE))
        alternate = (stack_t){.ss_flags = SS_DISABLE};
    errno = saved;
    return alternate;
}

static bool on_alternate_stack(void)
{
    return alternate_stack().ss_flags & SS_ONSTACK;
}

// Is the same region open once more from the same frame?
static bool has_twin(struct sl_lane *lane, uint32_t i)
{
    const struct sl_entry *entry = lane_entry(lane, i);
    for (uint32_t j = 0, capacity = lane_capacity(lane); j < capacity; j++) {
        const struct sl_entry *other = lane_entry(lane, j);
        if (j != i && other->frame == entry->frame && region_of(other) == region_of(entry))
            return true;
    }
    return false;
}

// Which entries of a full stack has a longjmp left behind? Marked ones, and those whose frame is deeper than the present one and so is
// gone. Where that does not help and the stack would stay full, doubtful ones too: those that an entry above them, from a shallower
// frame, says are gone (but a function that only enters for others may have made them), those of handlers on a stack of their own, one
// region open twice from one frame (but that may be a loop that nests), and those without a start (but that may be an enter that
// this handler has interrupted).
struct look {
    uint32_t frame, shallowest;
    bool insist;
    uint32_t handlers, handlers_size;  // where handlers have a stack of their own
};

static bool is_left_behind(struct look *look, struct sl_lane *lane, uint32_t i)
{
    const struct sl_entry *entry = lane_entry(lane, i);
    if (SL_ENTRY_MARKS(entry->region) || deeper_than(lane, entry, look->frame) || (!entry->start && entry->frame == look->frame))
        return true;
    if (!look->insist)
        return false;
    if (!entry->start || entry->frame - look->handlers < look->handlers_size || deeper_than(lane, entry, look->shallowest))
        return true;
    if (lane->task == SL_TASK_NONE)  // a task's entries need not lie on one stack
        look->shallowest = entry->frame;
    return has_twin(lane, i);
}

// A full stack: removes what a longjmp has left. True when something went, so also what lay above the block's end.
static bool clean(struct producer *self, struct sl_lane *lane, uint64_t frame)
{
    stack_t handlers = alternate_stack();
    if (handlers.ss_flags & SS_ONSTACK)
        return false;
    struct look look = {.frame = (uint32_t)frame, .shallowest = (uint32_t)frame, .insist = self->full_rounds >= FULL_ROUNDS,
                        .handlers = (uint32_t)(uintptr_t)handlers.ss_sp,
                        .handlers_size = handlers.ss_flags & SS_DISABLE ? 0 : (uint32_t)handlers.ss_size};
    uint32_t capacity = lane_capacity(lane), depth = sl_load_relaxed(&lane->depth), removed = 0;
    uint64_t left[(SL_THREAD_ENTRIES + SL_OVERFLOW_ENTRIES) / 64] = {0};
    for (uint32_t i = capacity; i-- > 0;)
        if (is_left_behind(&look, lane, i)) {
            left[i / 64] |= UINT64_C(1) << i % 64;
            removed++;
        }
    if (!removed)
        return false;
    self->unaccounted += depth - capacity;
    cut(lane, capacity);
    for (uint32_t i = capacity; i-- > 0;)
        if (left[i / 64] >> i % 64 & 1)
            abandon(self, lane, i);
    return true;
}

static bool deepen(struct sl_lane *lane)
{
    struct guard guard;
    client_lock(&guard);
    uint64_t block = lane->overflow ? lane->overflow : blocks_take(&client->stacks, SL_EXTENT_STACKS, SL_OVERFLOW_BYTES);
    if (block && !lane->overflow) {
        memset(AT(block), 0, SL_OVERFLOW_BYTES);
        sl_store_release(&lane->overflow, block);
        SL_TESTPOINT_(deepened);
    }
    client_unlock(&guard);
    return block != 0;
}

static void enter(struct producer *self, uint32_t region, uint64_t frame)
{
    struct sl_lane *lane = self->lane;
    uint32_t depth = sl_load_relaxed(&lane->depth);
    if (depth == lane_room(lane) && !lane->overflow)  // not above: what was too deep meanwhile left no entry
        deepen(lane);
    if (depth >= lane_capacity(lane)) {
        if (clean(self, lane, frame))
            depth = sl_load_relaxed(&lane->depth);
        if (depth >= lane_capacity(lane)) {
            self->full_rounds += self->left_full;
            self->left_full = 0;
            sl_store_release(&lane->depth, depth + 1);  // too deep: its exit counts it
            SL_TESTPOINT_(too_deep_depth);
            return;
        }
    }
    self->full_rounds = 0;
    sl_store_release(&lane->depth, depth + 1);
    SL_TESTPOINT_(cold_depth);
    fill(lane, lane_entry(lane, depth), below(lane, depth), region, frame, client_ticks());
}

// The thread's state, ready to be worked on; NULL where there is nothing to do.
static struct producer *ready(void)
{
    struct producer *self = thread_producer();
    if (!self || self->local)
        return NULL;
    if (self->unannounced)
        thread_announce(self);
    return self;
}

SL_PUBLIC void sl_enter_cold_(sl_region_t region, uint64_t frame)
{
    if (!region)
        return;
    struct producer *self = ready();
    if (self && self->lane && self->lane != &self->rowless)
        enter(self, region, frame);
}

static void count_unmatched(struct producer *self, uint32_t region, uint64_t now, uint64_t frame)
{
    if (self->unaccounted) {  // the enter was too deep, on a stack that has been cleaned since
        self->unaccounted--;
        count_lost(self, SL_LOST_TOO_DEEP);
        return;
    }
    struct sl_record record = {{now, sl_record_word1(SL_UNMATCHED, 0), sl_record_word2(region, 0),
                                sl_record_word3(region, 0, self->lane->task)}};
    if (self->hot.ring)
        sl_bump(&self->hot.ring->unmatched);
    SL_TESTPOINT_(unmatched_counted);
    lane_append(self, &record, frame);
}

// After the call at `i` was closed although others lie above it: those are marked; what was crossed twice, and the oldest
// marked ones beyond the limit, are removed.
static void remove_crossed(struct producer *self, struct sl_lane *lane, uint32_t i)
{
    move_down(lane, i, i + 1);
    uint32_t marked = 0;
    for (uint32_t j = sl_load_relaxed(&lane->depth); j-- > 0;) {
        struct sl_entry *entry = lane_entry(lane, j);
        if (j >= i)
            sl_store_relaxed(&entry->region, entry->region + SL_ENTRY_MARK_ONE);
        SL_TESTPOINT_(crossed_marked);
        uint32_t marks = SL_ENTRY_MARKS(entry->region);
        if (marks >= CROSSED_REMOVED || (marks && ++marked > MARKED_LIMIT))
            abandon(self, lane, j);
    }
}

// What lies above entry i: open calls, and slots that an interrupted enter is still going to fill.
struct above {
    uint32_t open, pending;
};

static struct above look_above(struct sl_lane *lane, uint32_t i, uint64_t frame)
{
    struct above above = {0, 0};
    for (uint32_t j = i + 1, depth = sl_load_relaxed(&lane->depth); j < depth; j++) {
        const struct sl_entry *entry = lane_entry(lane, j);
        if (entry->start)
            above.open++;
        else if (!deeper_than(lane, entry, frame) || on_alternate_stack())  // else its frame is gone: a longjmp left the slot behind
            above.pending++;
    }
    return above;
}

static void close_at(struct producer *self, struct sl_lane *lane, uint32_t i, uint64_t now, uint64_t frame)
{
    struct sl_entry *entry = lane_entry(lane, i);
    struct above above = look_above(lane, i, frame);
    if (is_recorded(entry)) {
        struct sl_record record = call_record(lane, entry, below(lane, i), above.open ? SL_CALL_CROSSING : SL_CALL, now);
        lane_append(self, &record, frame);
        if (above.open && self->hot.ring)
            sl_bump(&self->hot.ring->crossing);
    }
    SL_TESTPOINT_(cold_published);
    sl_store_relaxed(&lane->since, now);
    if (above.pending)
        sl_store_release(&entry->start, 0);  // nothing may move now; the hole goes when what lies above has gone
    else if (above.open)
        remove_crossed(self, lane, i);
    else
        cut(lane, i);
}

bool lane_leave(struct producer *self, struct sl_lane *lane, uint32_t region, uint64_t now, uint64_t frame)
{
    uint32_t depth = sl_load_relaxed(&lane->depth);
    if (depth > lane_capacity(lane))
        return false;
    for (uint32_t i = depth; i-- > 0;) {
        const struct sl_entry *entry = lane_entry(lane, i);
        if (entry->start && region_of(entry) == region) {
            close_at(self, lane, i, now, frame);
            return true;
        }
    }
    return false;
}

static void leave(struct producer *self, uint32_t region, uint64_t now, uint64_t frame)
{
    struct sl_lane *lane = self->lane;
    uint32_t depth = sl_load_relaxed(&lane->depth), capacity = lane_capacity(lane);
    if (depth > capacity) {
        count_lost(self, SL_LOST_TOO_DEEP);
        sl_store_release(&lane->depth, depth - 1);
        SL_TESTPOINT_(too_deep_left);
        self->left_full = 1;
        return;
    }
    if (!lane_leave(self, lane, region, now, frame))
        count_unmatched(self, region, now, frame);
}

// A lane without entries of its own: each exit is a call that is not there.
static bool is_only_counted(struct producer *self)
{
    if (self->lane && self->lane != &self->rowless)
        return false;
    count_lost(self, self->hot.ring ? SL_LOST_NO_ROW : SL_LOST_NO_RING);
    return true;
}

SL_PUBLIC void sl_exit_cold_(sl_region_t region, uint64_t now, uint64_t frame)
{
    if (!region)
        return;
    struct producer *self = ready();
    if (self && !is_only_counted(self))
        leave(self, region, now ? now : client_ticks(), frame);
}

SL_PUBLIC void sl_next_cold_(sl_region_t region, uint64_t now, uint64_t frame)
{
    if (!region)
        return;
    struct producer *self = ready();
    if (!self || is_only_counted(self))
        return;
    struct sl_lane *lane = self->lane;
    uint32_t depth = sl_load_relaxed(&lane->depth);
    if (!now)
        now = client_ticks();
    if (depth == 0) {
        count_unmatched(self, region, now, frame);
        enter(self, region, frame);
    } else if (depth > lane_capacity(lane)) {
        count_lost(self, SL_LOST_TOO_DEEP);
    } else {
        struct sl_entry *entry = lane_entry(lane, depth - 1);
        if (entry->start && is_recorded(entry)) {
            struct sl_record record = call_record(lane, entry, below(lane, depth - 1), SL_CALL, now);
            lane_append(self, &record, frame);
        }
        sl_store_release(&entry->start, 0);
        SL_TESTPOINT_(cold_next_zeroed);
        fill(lane, entry, below(lane, depth - 1), region, frame, now);
    }
}

// What the inline functions leave to be done when they have counted a call and find that the ring may be full.
static struct sl_lane *publish_late(struct producer *self, struct sl_entry *entry, uint64_t now)
{
    struct sl_lane *lane = self->lane;
    struct sl_record record = call_record(lane, entry, entry - 1, SL_CALL, now);
    publish(self, &record);
    sl_store_release(&entry->start, 0);
    return lane;
}

SL_PUBLIC void sl_exit_late_(struct sl_entry *entry, uint64_t now)
{
    struct sl_lane *lane = publish_late(producer_self(), entry, now);
    SL_TESTPOINT_(exit_zeroed);
    sl_store_relaxed(&lane->since, now);
    sl_store_release(&lane->depth, (uint32_t)(entry - sl_lane_stack(lane)));
    SL_TESTPOINT_(exit_depth);
}

SL_PUBLIC void sl_next_late_(struct sl_entry *entry, uint64_t now, sl_region_t region, uint64_t frame)
{
    struct sl_lane *lane = publish_late(producer_self(), entry, now);
    SL_TESTPOINT_(next_zeroed);
    sl_store_relaxed(&lane->depth, (uint32_t)(entry - sl_lane_stack(lane)) + 1);
    fill(lane, entry, entry - 1, region, frame, now);
}

void lane_end(struct producer *self, struct sl_lane *lane, uint64_t now)
{
    uint32_t depth = sl_load_relaxed(&lane->depth), capacity = lane_capacity(lane);
    for (uint32_t i = depth < capacity ? depth : capacity; i-- > 0;) {
        const struct sl_entry *entry = lane_entry(lane, i);
        if (!entry->start || !is_recorded(entry))
            continue;
        struct sl_record record = call_record(lane, entry, below(lane, i), SL_ENDED_OPEN, now);
        lane_append(self, &record, sl_frame_());
        SL_TESTPOINT_(ended_open_published);
    }
    cut(lane, 0);
}

void lane_shrink(struct sl_lane *lane)
{
    uint64_t block = lane->overflow;
    sl_store_release(&lane->overflow, 0);
    if (block)
        blocks_give(&client->stacks, block);
}

// The mark of a lane: 1 + its depth, and whose it is.
SL_PUBLIC sl_mark_t sl_mark(void)
{
    struct producer *self = thread_producer();
    if (!self || !self->lane)
        return 0;
    return (uint64_t)self->lane->task << 32 | (sl_load_relaxed(&self->lane->depth) + 1);
}

SL_PUBLIC void sl_unwind(sl_mark_t mark)
{
    struct producer *self = producer_self();
    uint32_t depth = (uint32_t)mark - 1;
    if (!self || !self->lane || self->lane->task != (uint32_t)(mark >> 32))
        return;
    struct sl_lane *lane = self->lane;
    uint32_t present = sl_load_relaxed(&lane->depth);
    if (depth >= present)  // also the null mark
        return;
    if (self->hot.ring)
        sl_store_relaxed(&self->hot.ring->abandoned, self->hot.ring->abandoned + (present - depth));
    SL_TESTPOINT_(unwound_counted);
    cut(lane, depth);
}
