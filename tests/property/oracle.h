// What a program's calls, threads and tasks have to become, by the rules of the documentation alone: lanes, steps, rings and
// ledgers once more in plain arrays. Nothing here is shared with the library or the daemon, not even a header: what is
// written below has been read out of docs/design.md and docs/format.md, so that a mistake on one side shows.
//
// The functions are named after the library's and are told the time and the thread. What the library may decide freely (which
// ring a thread gets, whether there was room for a row) they are told as well.
#ifndef TESTS_ORACLE_H
#define TESTS_ORACLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    NONE = -1,
    INLINE_OF_THREAD = 128,
    INLINE_OF_TASK = 16,
    OVERFLOW_ROOM = 1024,
    CROSSED_KEPT = 16,  // crossed entries that stay
    RINGS = 64,
    THREADS = 512,
    REGIONS = 64,
};

#define LONG_CALL (UINT64_C(1) << 47)  // from here on waiting is told in units of 512
#define LONGEST   ((UINT64_C(1) << 56) - 1)
#define SLOW_STEP (UINT64_C(1) << 19)  // such a step stands in a ring

// Numbers of the format.
enum oracle_kind { CALL = 1, CROSSING = 2, BACK = 3, LONG = 4, UNMATCHED = 5, ENDED_OPEN = 6, THREAD = 16, STEP = 17, DONE = 18 };
enum oracle_loss { RING_FULL, NO_RING, IN_SIGNAL, NO_ROW, TOO_DEEP, LOSSES };

// What programs have to reach, or they prove little.
#define O_PLACES(X)                                                                                                          \
    X(calls) X(crossing) X(counter_ran_back) X(long_calls) X(unmatched) X(ended_open) X(ring_full) X(no_ring) X(no_row)      \
    X(too_deep) X(abandoned) X(left_on_another_ring) X(left_on_another_full_ring) X(overflow_blocks) X(nested_steps)         \
    X(steps_put_back) X(clamped_steps) X(clamped_await) X(slow_steps) X(refused_steps) X(stale_handles) X(finished_while_suspended)        \
    X(finished_in_a_step) X(finished_in_anothers_step) X(threads_ended_in_a_step) X(rings_passed_on) X(rows_passed_on) X(unwound)
#define O_PLACE(name) O_##name,
enum { O_PLACES(O_PLACE) O_PLACE_COUNT };

struct o_entry {
    int thread;    // that entered it
    bool by_next;  // by another function than the others, so in another frame
    uint32_t region;
    uint64_t start, suspended;
    int crossed;
};

struct o_lane {
    struct o_entry *stack;
    uint32_t held, room;  // entries there are, and that there is room for
    uint32_t beyond;      // entered, but too deep
    uint32_t inline_room;
    bool overflow;
    uint64_t since;
    uint64_t suspended;   // of its task
};

struct o_task {
    uint64_t handle;
    uint32_t index;
    bool rowless;
    const char *kind;
    char *name, *coro_name;
    bool crowded_names;  // there may have been no room for long ones
    uint64_t created, done;
    bool over;     // nothing can change any more
    bool spooled;  // its row may be another's by now
    uint64_t steps, running, first_step, step_started, last_step_end, longest_step;
    int thread;    // of the last step; before it: that made it
    int stepping;  // thread whose step is in progress, NONE
    bool paused;   // that step, by a nested one
    int under;     // task its step interrupted, NONE
    uint64_t stored_calls;
    struct o_lane lane;
};

struct o_record {
    unsigned kind;
    uint32_t region, parent;
    uint32_t task;  // index; all ones: none
    uint64_t start, length, await;
    int thread;
};

struct o_ledger {
    uint64_t produced, lost[LOSSES];
    uint64_t others, unmatched, crossing, abandoned, refused, stale;
};

struct o_ring {
    uint64_t capacity, drained;
    struct o_record *records;  // all that were ever published
    uint64_t count, room;
    struct o_ledger ledger;
};

struct o_thread {
    bool registered, ended, spooled;
    bool has_row;
    uint32_t index;
    int ring;         // NONE
    bool announced;   // the ring says whose it is
    int current;      // task, NONE
    int under_rowless;  // what the step of a task without a row interrupted: nobody knows whether another thread steps that too
    uint32_t unaccounted;  // too deep enters whose level went when a full stack was cleaned
    uint64_t start, end, cpu_ns;
    char *name;
    bool named, crowded_name;
    uint64_t stored_calls;
    struct o_lane lane;
};

struct o_region {
    uint32_t id;
    const char *name;
    uint64_t calls, total, minimum, maximum;
    int64_t self;
};

static struct oracle {
    struct o_thread threads[THREADS];
    int thread_count;
    uint32_t indices;  // thread indices given out
    struct o_task *tasks;
    int task_count, task_room;
    struct o_ring rings[RINGS];
    int ring_count;
    struct o_ledger elsewhere;  // of threads without a ring
    struct o_region regions[REGIONS];
    int region_count;
    uint64_t reached[O_PLACE_COUNT];
} o;

static void o_reach(int place)
{
    o.reached[place]++;
}

// ---- rings and ledgers

static struct o_ledger *o_ledger(const struct o_thread *thread)
{
    return thread->ring == NONE ? &o.elsewhere : &o.rings[thread->ring].ledger;
}

static bool o_has_ring(const struct o_thread *thread)
{
    return thread->ring != NONE;
}

static void o_lose(struct o_thread *thread, enum oracle_loss reason)
{
    o_ledger(thread)->produced++;
    o_ledger(thread)->lost[reason]++;
    o_reach(reason == NO_RING ? O_no_ring : reason == NO_ROW ? O_no_row : O_too_deep);
}

static bool o_put(struct o_thread *thread, struct o_record record)
{
    struct o_ring *ring = &o.rings[thread->ring];
    if (ring->count - ring->drained >= ring->capacity)
        return false;
    if (ring->count == ring->room) {
        ring->room = ring->room ? ring->room * 2 : 256;
        ring->records = realloc(ring->records, ring->room * sizeof *ring->records);
    }
    record.thread = (int)thread->index;
    ring->records[ring->count++] = record;
    return true;
}

static void o_put_call(struct o_thread *thread, struct o_record record, bool moved)
{
    if (!o_has_ring(thread) || !thread->announced) {
        o_lose(thread, NO_RING);
        return;
    }
    o.rings[thread->ring].ledger.produced++;
    bool fits = o_put(thread, record);
    if (!fits)
        o.rings[thread->ring].ledger.lost[RING_FULL]++;
    o_reach(!fits ? O_ring_full : record.kind == CROSSING ? O_crossing : record.kind == BACK ? O_counter_ran_back : O_calls);
    if (record.length >= LONG_CALL && record.kind != BACK)
        o_reach(O_long_calls);
    if (moved)
        o_reach(fits ? O_left_on_another_ring : O_left_on_another_full_ring);
}

static bool o_put_other(struct o_thread *thread, struct o_record record)
{
    if (!o_has_ring(thread) || !thread->announced || !o_put(thread, record))
        return false;
    o.rings[thread->ring].ledger.others++;
    return true;
}

static void o_announce(struct o_thread *thread, uint64_t now)
{
    if (!o_has_ring(thread) || thread->announced)
        return;
    thread->announced = true;
    thread->announced = o_put_other(thread, (struct o_record){.kind = THREAD, .task = thread->index, .start = now});
}

// ---- lanes

static uint32_t o_lane_task(const struct o_thread *thread)
{
    return thread->current == NONE ? UINT32_MAX : o.tasks[thread->current].index;
}

// NULL: the thread has none, or its task has none.
static struct o_lane *o_lane(struct o_thread *thread)
{
    if (thread->current != NONE)
        return o.tasks[thread->current].rowless ? NULL : &o.tasks[thread->current].lane;
    return o_has_ring(thread) ? &thread->lane : NULL;
}

static void o_lane_init(struct o_lane *lane, uint32_t inline_room)
{
    *lane = (struct o_lane){.inline_room = inline_room, .room = inline_room};
    lane->stack = calloc(inline_room, sizeof *lane->stack);
}

static uint32_t o_parent(const struct o_lane *lane, uint32_t at)
{
    return at ? lane->stack[at - 1].region : 0;
}

static void o_remove(struct o_lane *lane, uint32_t at)
{
    memmove(&lane->stack[at], &lane->stack[at + 1], (--lane->held - at) * sizeof *lane->stack);
}

// The record of the entry `at` of a lane, ended now.
static struct o_record o_record_of(const struct o_lane *lane, uint32_t task, uint32_t at, unsigned kind, uint64_t now)
{
    const struct o_entry *entry = &lane->stack[at];
    struct o_record record = {.kind = kind, .region = entry->region, .parent = o_parent(lane, at), .task = task, .start = entry->start};
    if (now < entry->start) {
        if (kind == CALL) {
            record.kind = BACK;
            record.length = now & LONGEST;  // the end itself
        }
        return record;
    }
    record.length = now - entry->start;
    if (record.length > LONGEST) {
        record.length = LONGEST;
        if (kind == CALL)
            record.kind = LONG;
    }
    record.await = lane->suspended - entry->suspended;
    if (record.await > record.length) {
        record.await = record.length;
        o_reach(O_clamped_await);
    }
    if (record.length >= LONG_CALL)
        record.await -= record.await % 512;
    return record;
}

static void o_push(struct o_thread *thread, struct o_lane *lane, uint32_t region, bool by_next, uint64_t now)
{
    lane->stack[lane->held++] =
        (struct o_entry){.thread = (int)thread->index, .by_next = by_next, .region = region, .start = now, .suspended = lane->suspended};
    lane->since = now;
}

static bool o_wants_overflow(const struct o_lane *lane)
{
    return lane->held == lane->inline_room && !lane->overflow && !lane->beyond;
}

// An overflow block has come to the lane.
static void o_overflow(struct o_lane *lane)
{
    o_reach(O_overflow_blocks);
    lane->overflow = true;
    lane->room = lane->inline_room + OVERFLOW_ROOM;
    lane->stack = realloc(lane->stack, lane->room * sizeof *lane->stack);
}

// A full stack loses what exits have crossed; what is too deep then has no level any more.
static void o_clean(struct o_thread *thread, struct o_lane *lane)
{
    uint32_t removed = 0;
    for (uint32_t i = lane->held; i-- > 0;)
        if (lane->stack[i].crossed) {
            o_remove(lane, i);
            removed++;
        }
    if (!removed)
        return;
    o_reach(O_abandoned);
    if (o_has_ring(thread))
        o_ledger(thread)->abandoned += removed;
    thread->unaccounted += lane->beyond;
    lane->beyond = 0;
}

static void o_enter(struct o_thread *thread, uint32_t region, uint64_t now)
{
    o_announce(thread, now);
    struct o_lane *lane = o_lane(thread);
    if (!lane)
        return;
    if (lane->held == lane->room)
        o_clean(thread, lane);
    if (lane->held == lane->room)
        lane->beyond++;
    else
        o_push(thread, lane, region, false, now);
}

static void o_unmatched(struct o_thread *thread, uint32_t region, uint64_t now)
{
    if (thread->unaccounted) {
        thread->unaccounted--;
        o_lose(thread, TOO_DEEP);
        return;
    }
    o_reach(O_unmatched);
    if (o_has_ring(thread))
        o_ledger(thread)->unmatched++;
    o_put_other(thread, (struct o_record){.kind = UNMATCHED, .region = region, .task = o_lane_task(thread), .start = now});
}

// The entry `at` was left although others lie above it.
static void o_cross(struct o_thread *thread, struct o_lane *lane, uint32_t at)
{
    int kept = 0;
    for (uint32_t i = lane->held; i-- > 0;) {
        struct o_entry *entry = &lane->stack[i];
        if (i >= at)
            entry->crossed++;
        if (entry->crossed >= 2 || (entry->crossed && ++kept > CROSSED_KEPT)) {
            o_remove(lane, i);
            o_reach(O_abandoned);
            if (o_has_ring(thread))
                o_ledger(thread)->abandoned++;
        }
    }
}

// False: the thread's present lane has no entries of its own, each exit is a call that is not there.
static bool o_has_lane(struct o_thread *thread)
{
    if (o_lane(thread))
        return true;
    o_lose(thread, o_has_ring(thread) ? NO_ROW : NO_RING);
    return false;
}

static void o_exit(struct o_thread *thread, uint32_t region, uint64_t now)
{
    o_announce(thread, now);
    if (!o_has_lane(thread))
        return;
    struct o_lane *lane = o_lane(thread);
    if (lane->beyond) {
        lane->beyond--;
        o_lose(thread, TOO_DEEP);
        return;
    }
    uint32_t at = lane->held;
    while (at && lane->stack[at - 1].region != region)
        at--;
    if (!at--) {
        o_unmatched(thread, region, now);
        return;
    }
    bool crossing = at + 1 < lane->held;
    o_put_call(thread, o_record_of(lane, o_lane_task(thread), at, crossing ? CROSSING : CALL, now),
               lane->stack[at].thread != (int)thread->index);
    lane->since = now;
    o_remove(lane, at);
    if (!crossing)
        return;
    if (o_has_ring(thread))
        o_ledger(thread)->crossing++;
    o_cross(thread, lane, at);
}

static void o_next(struct o_thread *thread, uint32_t region, uint64_t now)
{
    o_announce(thread, now);
    if (!o_has_lane(thread))
        return;
    struct o_lane *lane = o_lane(thread);
    if (lane->beyond) {
        o_lose(thread, TOO_DEEP);
    } else if (!lane->held) {
        o_unmatched(thread, region, now);
        o_push(thread, lane, region, true, now);
    } else {
        o_put_call(thread, o_record_of(lane, o_lane_task(thread), lane->held - 1, CALL, now),
                   lane->stack[lane->held - 1].thread != (int)thread->index);
        lane->held--;
        o_push(thread, lane, region, true, now);
    }
}

// Cuts the lane back to `depth`; what goes is abandoned.
static void o_unwind(struct o_thread *thread, uint32_t depth)
{
    struct o_lane *lane = o_lane(thread);
    uint32_t present = lane ? lane->held + lane->beyond : 0;
    if (depth >= present)
        return;
    o_reach(O_unwound);
    if (o_has_ring(thread))
        o_ledger(thread)->abandoned += present - depth;
    lane->beyond = depth > lane->room ? depth - lane->room : 0;
    lane->held = depth - lane->beyond;
}

// What is open when a lane ends, innermost first.
static void o_lane_end(struct o_thread *thread, struct o_lane *lane, uint32_t task, uint64_t now)
{
    for (uint32_t i = lane->held; i-- > 0;)
        if (o_put_other(thread, o_record_of(lane, task, i, ENDED_OPEN, now)))
            o_reach(O_ended_open);
    lane->held = lane->beyond = 0;
    lane->overflow = false;
    lane->room = lane->inline_room;
}

// ---- steps

static void o_step_begins(struct o_thread *thread, int number, uint64_t now)
{
    struct o_task *task = &o.tasks[number];
    if (now < task->last_step_end) {
        now = task->last_step_end;
        o_reach(O_clamped_steps);
    }
    if (task->steps++)
        task->lane.suspended += now - task->last_step_end;
    else
        task->first_step = now;
    task->step_started = task->lane.since = now;
    task->stepping = task->thread = (int)thread->index;
    task->paused = false;
}

static void o_step_ends(struct o_task *task, uint64_t now)
{
    if (now < task->step_started)
        now = task->step_started;
    task->running += now - task->step_started;
    if (now - task->step_started > task->longest_step)
        task->longest_step = now - task->step_started;
    task->last_step_end = task->lane.since = now;
}

// A step that held its thread for long stands in the ring of that, by docs/format.md.
static void o_tell_step(struct o_thread *thread, const struct o_task *task, uint64_t now)
{
    uint64_t length = now - task->step_started;
    if (now <= task->step_started || length < SLOW_STEP)
        return;
    o_reach(O_slow_steps);
    o_put_other(thread, (struct o_record){.kind = STEP, .task = task->index, .start = task->step_started,
                                          .length = length < LONGEST ? length : LONGEST});
}

static bool o_is_real(int number)
{
    return number != NONE && !o.tasks[number].rowless;
}

static void o_refuse(struct o_thread *thread)
{
    o_reach(O_refused_steps);
    if (o_has_ring(thread))
        o_ledger(thread)->refused++;
}

static void o_stale(struct o_thread *thread)
{
    o_reach(O_stale_handles);
    if (o_has_ring(thread))
        o_ledger(thread)->stale++;
}

static int *o_under(struct o_thread *thread, int number)
{
    return o.tasks[number].rowless ? &thread->under_rowless : &o.tasks[number].under;
}

// Is a task without a row somewhere in this thread's chain of steps? There is one place for such a step.
static bool o_steps_rowless(const struct o_thread *thread)
{
    for (int at = thread->current; at != NONE; at = o.tasks[at].under)
        if (o.tasks[at].rowless)
            return true;
    return false;
}

static void o_step_in(struct o_thread *thread, int number, uint64_t now)
{
    struct o_task *task = &o.tasks[number];
    if (!task->rowless && task->over) {
        o_stale(thread);
        return;
    }
    if (task->rowless ? o_steps_rowless(thread) : task->stepping != NONE) {
        o_refuse(thread);
        return;
    }
    int outer = o_is_real(thread->current) ? thread->current : NONE;
    struct o_task closed = outer == NONE ? (struct o_task){0} : o.tasks[outer];
    if (outer != NONE) {
        o_step_ends(&o.tasks[outer], now);
        o.tasks[thread->current].paused = true;
        o_reach(O_nested_steps);
    }
    *o_under(thread, number) = thread->current;
    thread->current = number;
    if (!task->rowless)
        o_step_begins(thread, number, now);
    if (outer != NONE)
        o_tell_step(thread, &closed, now);
}

// The end that was asked for while a step was in progress.
static void o_complete(struct o_thread *thread, struct o_task *task)
{
    if (!task->done || task->over)
        return;
    task->over = true;
    o_lane_end(thread, &task->lane, task->index, task->done);
    o_put_other(thread, (struct o_record){.kind = DONE, .task = task->index, .start = task->done});
}

static void o_step_out(struct o_thread *thread, int number, uint64_t now)
{
    struct o_task *task = &o.tasks[number];
    if (thread->current != number) {
        o_refuse(thread);
        return;
    }
    int under = *o_under(thread, number);
    *o_under(thread, number) = NONE;
    struct o_task closed = *task;
    if (!task->rowless) {
        o_step_ends(task, now);
        task->stepping = NONE;
    }
    thread->current = under;
    if (o_is_real(under)) {
        o_step_begins(thread, under, now);
        o_reach(O_steps_put_back);
    }
    if (task->rowless)
        return;
    o_tell_step(thread, &closed, now);
    o_complete(thread, task);
}

static void o_finish(struct o_thread *thread, int number, uint64_t now)
{
    struct o_task *task = &o.tasks[number];
    if (task->over) {
        o_stale(thread);
        return;
    }
    if (!task->done) {
        task->done = now;
        o_reach(task->stepping == NONE                  ? O_finished_while_suspended
                : task->stepping == (int)thread->index ? O_finished_in_a_step
                                                       : O_finished_in_anothers_step);
    }
    if (task->stepping == NONE)
        o_complete(thread, task);
}

// ---- threads and tasks

static struct o_thread *o_thread_new(void)
{
    struct o_thread *thread = &o.threads[o.thread_count++];
    *thread = (struct o_thread){.ring = NONE, .current = NONE, .under_rowless = NONE};
    return thread;
}

static void o_register(struct o_thread *thread, int ring, uint64_t capacity, bool has_row, uint64_t now)
{
    thread->registered = true;
    thread->index = o.indices++;
    thread->ring = ring;
    thread->has_row = has_row;
    thread->start = now;
    if (ring == NONE)
        return;
    o_lane_init(&thread->lane, INLINE_OF_THREAD);
    thread->lane.since = now;
    if (ring >= o.ring_count)
        o.ring_count = ring + 1;
    else
        o_reach(O_rings_passed_on);
    o.rings[ring].capacity = capacity;
    o_announce(thread, now);
}

static void o_thread_end(struct o_thread *thread, uint64_t now, uint64_t cpu_ns)
{
    thread->ended = true;
    if (!thread->registered)
        return;
    int number = thread->current;
    if (number != NONE)
        o_reach(O_threads_ended_in_a_step);
    thread->current = NONE;
    for (int under; number != NONE; number = under) {
        struct o_task *task = &o.tasks[number];
        under = *o_under(thread, number);
        *o_under(thread, number) = NONE;
        if (task->rowless)
            continue;
        if (!task->paused) {
            o_tell_step(thread, task, now);
            o_step_ends(task, now);
        }
        task->stepping = NONE;
        task->paused = false;
        o_complete(thread, task);
    }
    if (o_has_ring(thread))
        o_lane_end(thread, &thread->lane, UINT32_MAX, now);
    thread->end = now;
    thread->cpu_ns = cpu_ns;
}

static int o_create(struct o_thread *thread, uint64_t handle, bool rowless, const char *kind, char *name, char *coro_name, uint64_t now)
{
    if (o.task_count == o.task_room) {
        o.task_room = o.task_room ? o.task_room * 2 : 64;
        o.tasks = realloc(o.tasks, (size_t)o.task_room * sizeof *o.tasks);
    }
    struct o_task *task = &o.tasks[o.task_count];
    *task = (struct o_task){.handle = handle, .index = (uint32_t)o.task_count, .rowless = rowless, .kind = kind, .name = name,
                            .coro_name = coro_name, .created = now, .thread = (int)thread->index, .stepping = NONE, .under = NONE};
    if (!rowless) {
        o_lane_init(&task->lane, INLINE_OF_TASK);
        task->lane.since = now;
    }
    return o.task_count++;
}

// ---- what readers make of the records

static struct o_region *o_region(uint32_t id)
{
    for (int i = 0; i < o.region_count; i++)
        if (o.regions[i].id == id)
            return &o.regions[i];
    return NULL;
}

// A call has been drained. `length` is what readers take it for.
static void o_count(const struct o_record *record)
{
    uint64_t length = record->kind == BACK ? 0 : record->length;
    struct o_region *region = o_region(record->region), *parent = o_region(record->parent);
    region->minimum = region->calls && region->minimum < length ? region->minimum : length;
    region->maximum = region->maximum > length ? region->maximum : length;
    region->calls++;
    region->total += length;
    if (record->kind == CROSSING)
        return;
    region->self += (int64_t)length;
    if (parent)
        parent->self -= (int64_t)length;
}

// Text as it has to come out: what is not well-formed UTF-8 becomes U+FFFD, byte by byte. The caller frees.
static char *o_text(const char *text)
{
    char *clean = calloc(3, strlen(text) + 1), *to = clean;
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        int more = *at < 0x80 ? 0 : *at >= 0xc2 && *at < 0xe0 ? 1 : *at >= 0xe0 && *at < 0xf0 ? 2 : *at >= 0xf0 && *at < 0xf5 ? 3 : -1;
        uint32_t point = more == 1 ? *at & 0x1f : more == 2 ? *at & 0x0f : *at & 0x07;
        for (int i = 1; i <= more; i++) {
            if ((at[i] & 0xc0) != 0x80)
                more = -1;
            else
                point = point << 6 | (at[i] & 0x3f);
        }
        if ((more == 2 && (point < 0x800 || (point >= 0xd800 && point < 0xe000))) || (more == 3 && (point < 0x10000 || point > 0x10ffff)))
            more = -1;
        if (more < 0) {
            memcpy(to, "\xef\xbf\xbd", 3);
            to += 3;
            at++;
        } else {
            memcpy(to, at, (size_t)more + 1);
            to += more + 1;
            at += more + 1;
        }
    }
    return clean;
}

#endif
