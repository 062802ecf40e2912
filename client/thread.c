// Threads: registration at first use, names, the end with exact CPU time, and slots, which outlive their owners. For a thread that others made
// known at its start no slot is made before its first call, step or task, which many of them never come to.
//
// A slot (ring and lane block) belongs to one thread after another. The next owner says so in the ring itself, by a THREAD
// record; until that fits, its calls count as "no ring". A row belongs to one thread; when it records again in a destructor
// that runs after ours, the row lives again.
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/facts.h"
#include "client/state.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define SLOT_LOOKS 256

static SL_TLS_ struct sl_thread_row *last_row;  // of this thread, after its end
static SL_TLS_ uint32_t last_index;
static SL_TLS_ uint32_t serial;  // 1 + the thread's, 0 none yet
static uint32_t serials;         // given out; in ordinary memory, as a fork child's thread keeps its own

static struct producer *take_page(void)
{
    if (!client->free_producers) {
        size_t bytes = 4096;
        char *pages = memory_wiped(16 * bytes);
        if (!pages)
            return NULL;
        for (int i = 15; i >= 0; i--) {
            struct producer *page = (struct producer *)(void *)(pages + (size_t)i * bytes);
            page->next_free = client->free_producers;
            client->free_producers = page;
        }
    }
    struct producer *page = client->free_producers;
    client->free_producers = page->next_free;
    memset(page, 0, sizeof *page);
    return page;
}

static bool slot_lists_grow(void)
{
    if (client->slot_count < client->slot_room)
        return true;
    uint32_t room = client->slot_room ? client->slot_room * 2 : 64;
    uint64_t *offsets = memory_private(room * sizeof *offsets);
    uint32_t *stack = memory_private(room * sizeof *stack);
    if (!offsets || !stack)
        return false;
    if (client->slot_count) {
        memcpy(offsets, client->slot_offsets, client->slot_count * sizeof *offsets);
        memcpy(stack, client->free_slots, client->free_slot_count * sizeof *stack);
    }
    client->slot_offsets = offsets;
    client->free_slots = stack;
    client->slot_room = room;
    return true;
}

// A new slot, its ring halved until it fits. The pages are touched before use: a first touch costs microseconds.
static bool make_slot(void)
{
    if (!slot_lists_grow())
        return false;
    uint64_t bytes = segment_ring_bytes(), offset = 0;
    for (; bytes >= SL_RING_BYTES_MIN && !offset; bytes /= 2) {
        offset = segment_extend(SL_EXTENT_SLOT, client->slot_count, 1, SL_SLOT_RECORDS_OFFSET + bytes);
        if (offset)
            break;
    }
    if (!offset)
        return false;
    struct sl_ring *ring = AT(offset);
    madvise(ring, SL_SLOT_RECORDS_OFFSET + bytes, MADV_POPULATE_WRITE);
    sl_store_relaxed(&ring->owner, SL_RING_FREE);
    struct sl_lane *lane = sl_ring_lane(ring);
    sl_store_relaxed(&lane->entries, is_paused() ? 0 : SL_THREAD_ENTRIES);
    sl_store_relaxed(&lane->task, SL_TASK_NONE);
    sl_store_release(&ring->records, (uint32_t)(bytes / SL_RECORD_BYTES));  // last: from here on readers look at the slot
    SL_TESTPOINT_(slot_made);
    client->slot_offsets[client->slot_count] = offset;
    client->free_slots[client->free_slot_count++] = client->slot_count++;
    return true;
}

static uint64_t waiting_records(uint32_t slot)
{
    const struct sl_ring *ring = AT(client->slot_offsets[slot]);
    return sl_load_relaxed(&ring->head) - sl_load_acquire(&ring->tail);
}

static bool is_half_full(uint32_t slot)
{
    const struct sl_ring *ring = AT(client->slot_offsets[slot]);
    return waiting_records(slot) > ring->records / 2;
}

// The slot that was given back last, for it is the warmest, unless short-lived threads have filled its ring faster than the daemon drains
// it: then one further down.
static uint32_t choose_slot(void)
{
    uint32_t *top = client->free_slots + --client->free_slot_count, *best = top, *at = top;
    for (uint32_t looks = 0; looks < SLOT_LOOKS && is_half_full(*best) && at > client->free_slots; looks++)
        if (waiting_records(*--at) < waiting_records(*best))
            best = at;
    uint32_t slot = *best;
    *best = *top;
    return slot;
}

static void take_slot(struct producer *self)
{
    self->slot = SL_RING_FREE;
    if (!client->free_slot_count && !make_slot())
        return;
    self->slot = choose_slot();
    struct sl_ring *ring = AT(client->slot_offsets[self->slot]);
    self->hot.ring = ring;
    self->hot.records = sl_ring_records(ring);
    self->hot.mask = ring->records - 1;
    self->hot.limit = ring->head;  // look at once
    sl_store_relaxed(&ring->owner, self->index);
    struct sl_lane *lane = sl_ring_lane(ring);
    sl_store_relaxed(&lane->thread, self->index);
    sl_store_relaxed(&lane->since, client_ticks());  // not the last owner's
    SL_TESTPOINT_(slot_taken);
    self->unannounced = 1;
}

void thread_announce(struct producer *self)
{
    struct sl_record record = {{client_ticks(), sl_record_word1(SL_THREAD, 0), 0, sl_record_word3(0, 0, self->index)}};
    self->unannounced = 0;
    if (!lane_append(self, &record, sl_frame_()))
        self->unannounced = 1;
    lane_use(self, self->lane);
    SL_TESTPOINT_(slot_announced);
}

static struct sl_thread_row *revive(void)
{
    struct sl_thread_row *row = last_row;
    last_row = NULL;
    if (!row || row->index != last_index || sl_load_acquire(&row->state) != SL_ROW_DONE)
        return NULL;
    return row;
}

void thread_store_comm(struct sl_thread_row *row, const char *comm)
{
    if (!row->name.blocks && row->name.length == strlen(comm) && memcmp(row->name.text, comm, row->name.length) == 0)
        return;
    sl_store_relaxed(&row->seq, row->seq + 1);
    sl_fence_release();
    name_store(&row->name, comm);
    sl_store_release(&row->seq, row->seq + 1);
    sl_store_release(&row->version, row->version + 1);
}

// The kernel's name for the calling thread, as pthread_setname_np left it.
void thread_store_own_comm(struct sl_thread_row *row)
{
    char comm[32] = "";
    prctl(PR_GET_NAME, comm);
    thread_store_comm(row, comm);
}

static void name_row(struct sl_thread_row *row, const char *name)
{
    name_store(&row->name, name);
    sl_store_relaxed(&row->flags, row->flags | SL_THREAD_NAMED);
}

// `before`: the row this thread had without a segment, NULL none.
static void fill_row(struct producer *self, struct sl_thread_row *row, struct sl_thread_row *before, const char *name)
{
    row->ident = (uint64_t)pthread_self();
    row->native_id = self->tid;
    row->flags = before ? before->flags : 0;
    row->start = client_ticks();
    if (name) {
        name_row(row, name);
    } else if (before && (before->flags & SL_THREAD_NAMED)) {
        name_copy(&row->name, &before->name);
        name_drop(&before->name);
    } else {
        name_drop(&row->name);
        thread_store_own_comm(row);
    }
}

static void publish_row(struct sl_thread_row *row)
{
    sl_store_relaxed(&row->end, 0);
    sl_store_relaxed(&row->cpu_ns, 0);
    sl_store_relaxed(&row->slot, SL_RING_FREE);
    sl_store_release(&row->version, row->version + 1);
    sl_store_release(&row->state, SL_ROW_LIVE);
    SL_TESTPOINT_(thread_live);
}

// Its slot is told when it has one.
static void take_row(struct producer *self, struct sl_thread_row *before, const char *name)
{
    struct sl_thread_row *row = self->local ? NULL : revive();
    if (row) {
        self->index = row->index;
    } else {
        self->index = self->local ? self->serial : sl_fetch_add(&client->segment->threads, 1);
        row = self->local ? NULL : pool_take(&client->threads, SL_EXTENT_THREADS, sizeof *row, 1u << 20);
        if (!row)
            row = &self->own_row;  // nobody but trackers sees it
        if (row != before)
            fill_row(self, row, before, name);
        SL_TESTPOINT_(thread_filled);
    }
    row->index = self->index;
    self->row = row;
    publish_row(row);
}

static void take_ring(struct producer *self)
{
    struct sl_thread_row *row = self->row;
    take_slot(self);
    sl_store_relaxed(&row->slot, self->slot);
    sl_store_release(&row->version, row->version + 1);
    SL_TESTPOINT_(thread_slot_told);
    lane_use(self, self->task ? &self->rowless : thread_lane(self));
    if (self->hot.ring)
        thread_announce(self);
}

// The thread has acted on the client's present epoch; its calls take the inline path again, or none where there is no segment.
static void settle(struct producer *self)
{
    tracker_thread_seen(self);
    self->seen = client->epoch;
    lane_use(self, self->lane);
}

static void link_page(struct producer *self)
{
    self->next = client->producers;
    if (self->next)
        self->next->previous = self;
    client->producers = self;
}

static void unlink_page(struct producer *self)
{
    if (self->next)
        self->next->previous = self->previous;
    if (self->previous)
        self->previous->next = self->next;
    else
        client->producers = self->next;
}

static struct producer *make_producer(const char *name)
{
    struct producer *self = take_page();
    if (!self)
        return NULL;
    self->tid = (uint32_t)syscall(SYS_gettid);
    if (!serial)
        serial = ++serials;
    self->serial = serial - 1;
    self->local = client->phase == CLIENT_LOCAL;
    self->slot = SL_RING_FREE;
    self->seen = client->epoch - 1;  // the first call comes by thread_register
    take_row(self, NULL, name);
    if (client->key_made)
        pthread_setspecific(client->key, self);
    link_page(self);
    sl_self_ = &self->hot;
    SL_TESTPOINT_(thread_registered);
    if (!self->local)
        attach_poll();
    return self;
}

struct producer *thread_register(void)
{
    struct producer *self = producer_self();
    if (!self)
        self = make_producer(NULL);
    if (!self || self->seen == client->epoch)
        return self;
    if (self->local && client->phase == CLIENT_RECORDING) {  // sl_attach has found a daemon meanwhile
        self->local = 0;
        take_row(self, self->row, NULL);
    }
    if (!self->local && !self->hot.ring)
        take_ring(self);
    settle(self);
    return self;
}

static bool is_off(void)
{
    return sl_self_ == &client_idle.hot && sl_load_relaxed(&client_idle.hot.lane) == SL_LANE_OFF_;
}

// Under the lock: may the calling thread have a page?
static bool may_come(void)
{
    if (!producer_self())
        sl_self_ = &client_idle.hot;  // also where a fork wiped the page
    return client_start() || client->phase == CLIENT_LOCAL;
}

struct producer *thread_producer(void)
{
    struct producer *self = producer_self();
    if (self && sl_likely(self->seen == sl_load_acquire(&client->epoch)))  // pairs with client_stir
        return self;
    struct guard guard;
    if (is_off() || !client_begin())
        return NULL;
    client_lock(&guard);
    self = may_come() ? thread_register() : producer_self();
    client_unlock(&guard);
    return self;
}

void thread_ended(void *page)
{
    struct producer *self = producer_self();
    if (!self || self != page)
        return;
    struct guard guard;
    client_lock(&guard);
    uint64_t now = client_ticks();
    struct sl_thread_row *row = self->row;
    task_thread_ended(self);
    if (!(row->flags & SL_THREAD_NAMED))
        thread_store_own_comm(row);
    tracker_thread_ended(self);
    if (self->hot.ring) {
        lane_end(self, sl_ring_lane(self->hot.ring), now);
        lane_shrink(sl_ring_lane(self->hot.ring));
        sl_store_relaxed(&self->hot.ring->owner, SL_RING_FREE);
        SL_TESTPOINT_(slot_given_back);
        client->free_slots[client->free_slot_count++] = self->slot;
    }
    if (row == &self->own_row) {
        name_drop(&row->name);
    } else {
        sl_store_relaxed(&row->end, now);
        sl_store_relaxed(&row->cpu_ns, (uint64_t)facts_clock_ns(CLOCK_THREAD_CPUTIME_ID));
        sl_store_relaxed(&row->version, row->version + 1);
        sl_store_release(&row->state, SL_ROW_DONE);
        SL_TESTPOINT_(thread_done);
        last_row = row;
        last_index = self->index;
    }
    unlink_page(self);
    sl_self_ = &client_idle.hot;
    self->tid = 0;
    sl_store_relaxed(&self->hot.lane, NULL);
    self->next_free = client->free_producers;
    client->free_producers = self;
    client_unlock(&guard);
}

static void rename_row(struct sl_thread_row *row, const char *name)
{
    sl_store_relaxed(&row->seq, row->seq + 1);
    sl_fence_release();
    name_row(row, name);
    SL_TESTPOINT_(thread_name_stored);
    sl_store_release(&row->seq, row->seq + 1);
    sl_store_release(&row->version, row->version + 1);
    SL_TESTPOINT_(thread_named);
}

static void set_daemon(struct sl_thread_row *row, bool is_daemon)
{
    row->flags = is_daemon ? row->flags | SL_THREAD_DAEMON : row->flags & ~SL_THREAD_DAEMON;
    sl_store_release(&row->version, row->version + 1);
}

static void tell_daemon(struct producer *self, bool is_daemon)
{
    self->daemon_told = 1;
    set_daemon(self->row, is_daemon);
}

SL_PUBLIC void sl_thread_daemon(int is_daemon)
{
    struct producer *self = thread_producer();
    if (!self)
        return;
    struct guard guard;
    client_lock(&guard);
    tell_daemon(self, is_daemon);
    client_unlock(&guard);
}

// One section for all of it; a thread that is not registered yet has its name from the start. `name` NULL: the kernel's. `records`: it will
// make calls. Where nobody knows, it has a ring if there is one, and otherwise makes one when it needs it. False while off.
static bool introduce(const char *name, bool is_daemon, bool records)
{
    struct guard guard;
    if (is_off() || !client_begin())
        return false;
    client_lock(&guard);
    struct producer *self = producer_self();
    bool is_new = !self && !last_row, may = may_come();
    if (may && !self)
        self = make_producer(name);
    if (may && (records || client->free_slot_count))
        self = thread_register();
    else if (self)
        tracker_thread_seen(self);
    if (self && name && !is_new)
        rename_row(self->row, name);
    if (self && is_daemon)
        tell_daemon(self, true);
    client_unlock(&guard);
    return self != NULL;
}

SL_PUBLIC void sl_thread_name(const char *name)
{
    if (name)
        introduce(name, false, true);
}

SL_PUBLIC void sl_thread_introduce_(const char *name, int is_daemon)
{
    introduce(name, is_daemon, false);
}

SL_PUBLIC int sl_thread_started_(int is_detached)
{
    bool is_known = introduce(NULL, false, false);
    if (is_known && is_detached)
        sl_thread_detached_((uint64_t)pthread_self());
    return is_known;
}

// The destructor of the thread's key finds nothing left to do, unless the thread records once more.
SL_PUBLIC void sl_thread_ended_(void)
{
    struct producer *self = producer_self();
    if (self)
        thread_ended(self);
}

SL_PUBLIC int sl_thread_detached_(uint64_t ident)
{
    struct guard guard;
    int found = 0;
    if (!client_begin())
        return 0;
    client_lock(&guard);
    for (struct producer *thread = client->producers; thread && !found; thread = thread->next)
        if (thread->row->ident == ident) {
            found = 1;
            if (!thread->daemon_told)
                set_daemon(thread->row, true);
        }
    client_unlock(&guard);
    return found;
}
