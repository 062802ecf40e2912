// Tasks: rows that threads carry through steps. Steps may be made by any thread, one thread at a time; that is the program's
// own order (a coroutine cannot run twice at once), so a row needs no lock. What does not fit the row's state (a step out of
// a task that is not the current one, a step into one that is being stepped) is counted and ignored.
//
// A handle names the row and the index it had:   local (1 bit) · generation (5) · offset / 64 (26) · index (32)
// where they disagree, the row has been recycled and the call does nothing. The generation is that of the process: handles from
// before a fork mean nothing in the child. A task that got no row has all ones for an offset: its steps only switch
// the lane off, its calls count as "no row". So do those of a task whose row is local, in private memory for trackers to read: no
// lane of its own stands in the segment.
#include <string.h>

#include "client/state.h"

#define NO_ROW    0x3ffffffu
#define UNIT_BITS TASK_UNIT_BITS

#define LOOKS_FOR_STEP_END 2000  // some microseconds

enum finish { FINISH_ASKED = 1, FINISH_DONE = 2 };  // sl_task_row.finished, 0 before

static sl_task_t handle_of(uint64_t offset_units, uint32_t index)
{
    return (uint64_t)client->generation << 58 | offset_units << 32 | index;
}

static sl_task_t local_handle_of(const struct sl_task_row *row)
{
    uint64_t offset = (uint64_t)((const char *)row - client->local_tasks.base);
    return UINT64_C(1) << 63 | handle_of(offset >> UNIT_BITS, row->index);
}

static uint64_t units_of(sl_task_t task)
{
    return task >> 32 & NO_ROW;
}

static bool is_local(sl_task_t task)
{
    return task >> 63;
}

static bool is_rowless(sl_task_t task)
{
    return units_of(task) == NO_ROW;
}

static struct sl_task_row *local_row_at(uint64_t offset)
{
    bool there = offset + LOCAL_TASK_BYTES <= sl_load_acquire(&client->local_tasks.size);
    return there ? (void *)(client->local_tasks.base + offset) : NULL;
}

static inline struct sl_task_row *row_at(uint64_t offset, bool local)
{
    if (sl_unlikely(local))
        return local_row_at(offset);
    return offset + sizeof(struct sl_task_row) > sl_load_relaxed(&client->size) ? NULL : AT(offset);
}

// The row, when the handle still means it.
static inline struct sl_task_row *row_of(sl_task_t task)
{
    if ((task >> 58 & 31) != client->generation)
        return NULL;
    struct sl_task_row *row = row_at(units_of(task) << UNIT_BITS, is_local(task));
    return row && row->index == (uint32_t)task && sl_load_relaxed(&row->state) == SL_ROW_LIVE ? row : NULL;
}

static void count_refused(struct producer *self)
{
    if (self->hot.ring)
        sl_bump(&self->hot.ring->steps_refused);
}

// The row for an operation by the calling thread; NULL with the reason counted.
static inline struct sl_task_row *row_for(struct producer *self, sl_task_t task)
{
    struct sl_task_row *row = row_of(task);
    if (!row && self->hot.ring)
        sl_bump(&self->hot.ring->stale_tasks);
    return row;
}

struct sl_task_row *task_row(sl_task_t task)
{
    return is_rowless(task) ? NULL : row_of(task);
}

// ---- steps: scope_profiler.concurrency's rules, see design.md §2

static inline uint32_t thread_for(const struct producer *self, sl_task_t task)
{
    return is_local(task) ? self->serial : self->index;
}

// Before the clock is read: a thread that is preempted between that and its stores would have readers count on, and then take time back.
static inline void begin_write(struct sl_lane *lane)
{
    sl_store_relaxed(&lane->seq, (lane->seq + 1) | 1);  // it is odd already where a longjmp left it so
    sl_fence_release();
    SL_TESTPOINT_(step_odd);
}

static inline void end_write(struct sl_lane *lane)
{
    sl_store_release(&lane->seq, (lane->seq | 1) + 1);  // even already where a handler's step came in between
}

// Both end what begin_write began.
static inline void open_step(struct sl_lane *lane, uint32_t thread, uint64_t now)
{
    if (now < lane->last_step_end)
        now = lane->last_step_end;
    if (lane->steps)
        sl_store_relaxed(&lane->suspended, lane->suspended + (now - lane->last_step_end));
    else
        sl_store_relaxed(&lane->first_step, now);
    SL_TESTPOINT_(step_suspended_told);
    sl_store_relaxed(&lane->steps, lane->steps + 1);
    sl_store_relaxed(&lane->step_started, now);
    sl_store_relaxed(&lane->stepping, thread + 1);
    sl_store_relaxed(&lane->thread, thread);
    sl_store_relaxed(&lane->since, now);
    end_write(lane);
    SL_TESTPOINT_(step_opened);
}

// A step that held its thread for long leaves a record: so it is known how long the others of a loop had to wait. Before the step is
// closed, for then the row may be another thread's at once.
static __attribute__((noinline, cold)) void tell_slow_step(struct producer *self, const struct sl_task_row *row, uint64_t length)
{
    if (task_is_local(row))
        return;
    struct sl_record record = {{row->lane.step_started,
                                sl_record_word1(SL_STEP, length < SL_DURATION_LIMIT ? length : SL_DURATION_LIMIT), row->kind,
                                sl_record_word3(0, 0, row->index)}};
    lane_append(self, &record, sl_frame_());
}

SL_INLINE_ void close_step(struct producer *self, struct sl_task_row *row, uint64_t now, uint32_t stepping)
{
    struct sl_lane *lane = &row->lane;
    if (now < lane->step_started)
        now = lane->step_started;
    uint64_t length = now - lane->step_started;
    if (sl_unlikely(length >= client->slow_step))
        tell_slow_step(self, row, length);
    sl_store_relaxed(&lane->running, lane->running + length);
    SL_TESTPOINT_(step_running_told);
    if (length > lane->longest_step)
        sl_store_relaxed(&lane->longest_step, length);
    sl_store_relaxed(&lane->last_step_end, now);
    sl_store_relaxed(&lane->stepping, stepping);
    sl_store_relaxed(&lane->since, now);
    end_write(lane);
    SL_TESTPOINT_(step_closed);
}

// While steps change hands nothing is current: a handler that steps a task of its own in between then has no step to suspend and put
// back, which would count a step twice, or open one that has just been closed and is never closed again.
static inline void set_none_current(struct producer *self)
{
    sl_store_relaxed(&self->task, 0);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    self->task_row = NULL;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

// The row of the current task. `task` says which it is; a handler may come before `task_row` has followed.
static inline struct sl_task_row *current_row(const struct producer *self)
{
    if (!self->task)
        return NULL;
    return sl_likely(self->task_row != NULL) ? self->task_row : task_row(self->task);
}

static inline void set_task(struct producer *self, sl_task_t task, struct sl_task_row *row)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    sl_store_relaxed(&self->task, task);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    self->task_row = row;
}

// Makes `task` current without a step: its lane, the stand-in, or the bare thread's.
static inline void set_current(struct producer *self, sl_task_t task, struct sl_task_row *row)
{
    set_task(self, task, row);
    lane_use(self, row && !is_local(task) ? &row->lane : task ? &self->rowless : thread_lane(self));
    SL_TESTPOINT_(lane_changed);
}

static void give_overflow_back(struct sl_lane *lane, bool locked)
{
    struct guard guard;
    if (!lane->overflow)
        return;
    if (!locked)
        client_lock(&guard);
    lane_shrink(lane);
    if (!locked)
        client_unlock(&guard);
}

static void tell_trackers(struct sl_task_row *row, bool locked)
{
    struct guard guard;
    if (!locked)
        client_lock(&guard);
    tracker_task_ended(row);
    if (task_is_local(row))
        local_task_give(row);
    if (!locked)
        client_unlock(&guard);
}

// Completes a row whose end was asked for while no step is in progress. The finishing thread and the one that steps out may both find
// it so: one of them does it.
static void complete(struct producer *self, struct sl_task_row *row, bool locked)
{
    uint32_t asked = FINISH_ASKED;
    if (!__atomic_compare_exchange_n(&row->finished, &asked, FINISH_DONE, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    SL_TESTPOINT_(finish_claimed);
    bool local = task_is_local(row);
    if (local || sl_load_relaxed(&client->trackers))
        tell_trackers(row, locked);
    if (local)
        return;
    lane_end(self, &row->lane, row->done);
    give_overflow_back(&row->lane, locked);
    sl_store_relaxed(&row->version, row->version + 1);
    struct sl_record record = {{row->done, sl_record_word1(SL_DONE, 0), OFFSET_OF(row) >> UNIT_BITS,
                                sl_record_word3(0, 0, row->index)}};
    sl_store_release(&row->state, SL_ROW_DONE);  // from here on the row is the daemon's
    SL_TESTPOINT_(task_done);
    lane_append(self, &record, sl_frame_());
    SL_TESTPOINT_(task_done_published);
}

static inline struct producer *stepping_producer(void)
{
    struct producer *self = producer_self();
    return sl_likely(self && self->seen == sl_load_acquire(&client->epoch)) ? self : thread_producer();
}

static inline uint64_t step_ticks(void)
{
    uint64_t now = client_ticks();
    SL_TESTPOINT_(step_clock_read);
    return now;
}

// The row's task is stepped for the first time since a tracker was installed.
static __attribute__((noinline)) void note(struct sl_task_row *row)
{
    struct guard guard;
    client_lock(&guard);
    tracker_task_seen(row);
    client_unlock(&guard);
}

static __attribute__((noinline)) void step_in(sl_task_t task)
{
    struct producer *self = task ? stepping_producer() : NULL;
    if (!self)
        return;
    struct sl_task_row *row = NULL;
    if (!is_rowless(task)) {
        row = row_for(self, task);
        if (!row)
            return;
    }
    struct sl_lane *lane = row ? &row->lane : &self->rowless;
    if (sl_load_relaxed(&lane->stepping)) {
        count_refused(self);
        return;
    }
    if (row && sl_unlikely(sl_load_relaxed(&row->noted) != self->seen))
        note(row);
    struct sl_task_row *outer = current_row(self);
    sl_task_t under = self->task;
    set_none_current(self);
    if (outer)
        begin_write(&outer->lane);
    if (row)
        begin_write(lane);
    uint64_t now = step_ticks();
    if (outer)
        close_step(self, outer, now, TASK_PAUSED | (thread_for(self, under) + 1));
    sl_store_relaxed(&lane->under, under);
    if (row)
        open_step(lane, thread_for(self, task), now);
    else
        lane->stepping = self->index + 1;
    set_current(self, task, row);
}

static __attribute__((noinline)) void step_out(sl_task_t task)
{
    struct producer *self = task ? stepping_producer() : NULL;
    if (!self)
        return;
    if (self->task != task) {
        count_refused(self);
        return;
    }
    struct sl_task_row *row = self->task_row;
    struct sl_lane *lane = row ? &row->lane : &self->rowless;
    sl_task_t under = lane->under;
    struct sl_task_row *outer = under && !is_rowless(under) ? row_of(under) : NULL;
    set_none_current(self);
    if (row)
        begin_write(lane);
    if (outer)
        begin_write(&outer->lane);
    uint64_t now = step_ticks();
    sl_store_relaxed(&lane->under, 0);
    if (row)
        close_step(self, row, now, 0);
    else
        lane->stepping = 0;
    if (outer)
        open_step(&outer->lane, thread_for(self, under), now);
    set_current(self, outer || is_rowless(under) ? under : 0, outer);
    if (row && sl_unlikely(sl_load_acquire(&row->finished)))
        complete(self, row, false);
}

// A step is as frequent as a call, and nearly all are plain: between a registered thread's own lane and a row in the segment, with nothing
// new to look at. Where calls take the inline path, `hot.lane` says most of that; what is left is asked here.
static inline bool steps_plainly(const struct producer *self)
{
    return (uintptr_t)sl_load_relaxed(&self->hot.lane) > (uintptr_t)SL_LANE_OFF_ && self->seen == sl_load_acquire(&client->epoch);
}

// Marks the row as changing, then reads the clock.
static inline uint64_t begin_plain_step(struct sl_lane *lane)
{
    begin_write(lane);
    uint64_t now = sl_ticks_();
    SL_TESTPOINT_(step_clock_read);
    return now;
}

static inline void change_lane(struct producer *self, struct sl_lane *lane)
{
    self->lane = lane;
    sl_store_relaxed(&self->hot.lane, lane);
    SL_TESTPOINT_(lane_changed);
}

SL_PUBLIC void sl_task_step_in(sl_task_t task)
{
    struct producer *self = (struct producer *)(void *)sl_self_;
    struct sl_task_row *row = sl_likely(steps_plainly(self) && !self->task && !is_local(task)) ? row_of(task) : NULL;
    if (sl_unlikely(!row || sl_load_relaxed(&row->lane.stepping) || sl_load_relaxed(&row->noted) != self->seen)) {
        step_in(task);
        return;
    }
    uint64_t now = begin_plain_step(&row->lane);
    sl_store_relaxed(&row->lane.under, 0);
    open_step(&row->lane, self->index, now);
    set_task(self, task, row);
    change_lane(self, &row->lane);
}

SL_PUBLIC void sl_task_step_out(sl_task_t task)
{
    struct producer *self = (struct producer *)(void *)sl_self_;
    struct sl_task_row *row = sl_likely(steps_plainly(self) && self->task == task && task) ? self->task_row : NULL;
    if (sl_unlikely(!row || row->lane.under)) {
        step_out(task);
        return;
    }
    set_none_current(self);
    uint64_t now = begin_plain_step(&row->lane);
    close_step(self, row, now, 0);
    change_lane(self, sl_ring_lane(self->hot.ring));
    if (sl_unlikely(sl_load_acquire(&row->finished)))
        complete(self, row, false);
}

SL_PUBLIC sl_task_t sl_task_current(void)
{
    struct producer *self = producer_self();
    return self ? self->task : 0;
}

// ---- life

// The daemon has read the row since it was last written: its lines come from another processor, which takes longer than all the rest.
static void fetch_row(uint64_t offset)
{
    const char *row = AT(offset);
    for (size_t at = 0; at <= offsetof(struct sl_task_row, stack); at += 64)
        __builtin_prefetch(row + at, 1);
}

// Rows for this thread, a handful at a time, so that creation seldom takes the lock.
static struct sl_task_row *take_row(struct producer *self)
{
    if (!self->free_task_count) {
        struct guard guard;
        client_lock(&guard);
        while (self->free_task_count < sizeof self->free_tasks / sizeof *self->free_tasks) {
            struct sl_task_row *row = pool_take(&client->tasks, SL_EXTENT_TASKS, sizeof *row, SL_TASK_ROWS_LIMIT);
            if (!row)
                break;
            self->free_tasks[self->free_task_count++] = OFFSET_OF(row);
        }
        client_unlock(&guard);
    }
    for (uint32_t count; (count = sl_load_relaxed(&self->free_task_count)) != 0;) {
        uint64_t offset = self->free_tasks[count - 1];
        if (count > 1)
            fetch_row(self->free_tasks[count - 2]);  // the next task's
        if (__atomic_compare_exchange_n(&self->free_task_count, &count, count - 1, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            return AT(offset);  // else a handler has taken it
    }
    return NULL;
}

static void store_names(struct sl_task_row *row, const char *name, const char *coro_name)
{
    struct guard guard;
    if (sl_likely(name_store_plain(&row->name, name) && name_store_plain(&row->coro_name, coro_name)))
        return;
    bool lock = row->name.blocks || row->coro_name.blocks || !name_is_short(name) || !name_is_short(coro_name);
    if (lock)
        client_lock(&guard);
    name_store(&row->name, name);
    name_store(&row->coro_name, coro_name);
    if (lock)
        client_unlock(&guard);
}

static void begin_life(struct producer *self, struct sl_task_row *row, uint32_t kind)
{
    row->created = client_ticks();
    row->done = 0;
    row->finished = 0;
    row->kind = kind;
    row->noted = self->seen;
    // The stack is empty already: no start above depth, and depth is 0 when a row ends.
    memset(&row->lane, 0, sizeof row->lane);
    bool local = task_is_local(row);
    row->lane.entries = !local && is_paused() ? 0 : SL_TASK_ENTRIES;
    row->lane.task = row->index;
    row->lane.thread = local ? self->serial : self->index;
    row->lane.since = row->created;
}

// A task that trackers alone will know; the null task when none is installed.
static sl_task_t create_local(struct producer *self, uint32_t kind, const char *name, const char *coro_name)
{
    struct guard guard;
    client_lock(&guard);
    struct sl_task_row *row = client->trackers_installed ? local_task_take() : NULL;
    sl_task_t task = 0;
    if (row) {
        name_store(&row->name, name);
        name_store(&row->coro_name, coro_name);
        begin_life(self, row, kind);
        sl_store_release(&row->state, SL_ROW_LIVE);
        tracker_task_seen(row);
        task = local_handle_of(row);
    }
    client_unlock(&guard);
    return task;
}

SL_PUBLIC sl_task_t sl_task_create(const char *kind, const char *name, const char *coro_name)
{
    struct producer *self = thread_producer();
    if (!self)
        return 0;
    uint32_t word = word_intern(kind ? kind : "task");
    name = name ? name : "";
    coro_name = coro_name ? coro_name : "";
    if (self->local)
        return create_local(self, word, name, coro_name);
    uint32_t index = sl_fetch_add(&client->segment->tasks, 1);
    struct sl_task_row *row = take_row(self);
    if (!row) {
        sl_task_t task = sl_load_relaxed(&client->trackers_installed) ? create_local(self, word, name, coro_name) : 0;
        return task ? task : handle_of(NO_ROW, index);
    }
    sl_store_relaxed(&row->seq, row->seq + 1);
    sl_fence_release();
    row->index = index;
    store_names(row, name, coro_name);
    SL_TESTPOINT_(task_filled);
    begin_life(self, row, word);
    row->version++;
    sl_store_release(&row->seq, row->seq + 1);
    sl_store_release(&row->state, SL_ROW_LIVE);
    SL_TESTPOINT_(task_live);
    if (sl_load_relaxed(&client->trackers_installed))
        note(row);
    return handle_of(OFFSET_OF(row) >> UNIT_BITS, index);
}

SL_PUBLIC void sl_task_finish(sl_task_t task)
{
    struct producer *self = task && !is_rowless(task) ? thread_producer() : NULL;
    struct sl_task_row *row = self ? row_for(self, task) : NULL;
    if (!row)
        return;
    uint64_t none = 0;
    if (!__atomic_compare_exchange_n(&row->done, &none, client_ticks(), 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    __atomic_store_n(&row->finished, FINISH_ASKED, __ATOMIC_SEQ_CST);
    SL_TESTPOINT_(finish_asked);
    // A step that ends just now may have looked for our mark before it was there, while its own store, that it has ended, is still
    // under way. A fence there would cost every step; looking a little longer here costs only this rare case.
    for (int look = 0; look < LOOKS_FOR_STEP_END; look++) {
        uint32_t stepping = __atomic_load_n(&row->lane.stepping, __ATOMIC_SEQ_CST);
        if (!stepping)
            complete(self, row, false);
        if (!stepping || (stepping & ~TASK_PAUSED) == thread_for(self, task) + 1)  // our own step completes it when it ends
            return;
    }
}

SL_PUBLIC void sl_task_rename(sl_task_t task, const char *name)
{
    struct producer *self = task && name && !is_rowless(task) ? thread_producer() : NULL;
    struct sl_task_row *row = self ? row_for(self, task) : NULL;
    if (!row)
        return;
    struct guard guard;
    client_lock(&guard);
    sl_store_relaxed(&row->seq, row->seq + 1);
    sl_fence_release();
    name_store(&row->name, name);
    SL_TESTPOINT_(task_name_stored);
    sl_store_release(&row->seq, row->seq + 1);
    sl_store_release(&row->version, row->version + 1);
    SL_TESTPOINT_(task_renamed);
    client_unlock(&guard);
}

SL_PUBLIC int sl_task_exit_(sl_task_t task, sl_region_t region)
{
    struct producer *self = task && region && !is_rowless(task) && !is_local(task) ? thread_producer() : NULL;
    struct sl_task_row *row = self && !self->local ? row_of(task) : NULL;
    if (!row)
        return 0;
    uint32_t stepping = sl_load_relaxed(&row->lane.stepping);
    if (stepping && stepping != (TASK_PAUSED | (thread_for(self, task) + 1)))  // it is its thread's to write
        return 0;
    return lane_leave(self, &row->lane, region, client_ticks(), sl_frame_());
}

void task_thread_ended(struct producer *self)
{
    sl_task_t task = self->task;
    set_current(self, 0, NULL);
    while (task) {
        struct sl_task_row *row = is_rowless(task) ? NULL : row_of(task);
        struct sl_lane *lane = row ? &row->lane : &self->rowless;
        sl_task_t under = lane->under;
        lane->under = 0;
        if (row && !(lane->stepping & TASK_PAUSED)) {
            begin_write(lane);
            close_step(self, row, step_ticks(), 0);
        } else {
            sl_store_relaxed(&lane->stepping, 0);
        }
        if (row)
            complete(self, row, true);
        task = row || is_rowless(task) ? under : 0;
    }
    while (self->free_task_count) {  // not used: back to where the moving hand finds them
        struct sl_task_row *row = AT(self->free_tasks[--self->free_task_count]);
        sl_store_release(&row->state, SL_ROW_SPOOLED);
        SL_TESTPOINT_(row_returned);
    }
}
