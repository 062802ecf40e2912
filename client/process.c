// The process: its one lock, its start, its end.
//
// The lock is for cold paths only (a new thread, region, extent) and lies in private memory: who dies with it held takes the
// whole process along, and a fork child finds it free. Signals are blocked while it is held, so a handler never meets
// its own thread's lock; cancellation is off, so a thread is never unwound with it. Who waits for it sleeps: a thread of real-time
// priority that only yielded would keep the one that holds it from running.
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/facts.h"
#include "client/state.h"

struct client *client;
struct producer client_idle;
SL_PUBLIC SL_TLS_ struct sl_producer *sl_self_ = &client_idle.hot;

// In ordinary memory: a fork child whose `client` is zeroed knows by them what it is.
static bool has_recorded;
static int was_off;  // why this process, or the parent it inherits from, does not record; 0 not decided
static uint32_t generations;

static void set_mask(int how, const uint64_t *set, uint64_t *old)
{
    syscall(SYS_rt_sigprocmask, how, set, old, sizeof *set);
}

// The struct itself is made without the lock; two threads may race, one page is lost then.
bool client_begin(void)
{
    struct client *present = sl_load_acquire(&client);
    if (present)
        return true;
    struct client *made = memory_wiped((sizeof *made + 4095) & ~(size_t)4095);
    if (!made)
        return false;
    __atomic_compare_exchange_n(&client, &present, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return true;
}

static void guard_open(struct guard *guard)
{
    static const uint64_t all = ~UINT64_C(0);
    guard->saved_errno = errno;
    set_mask(SIG_SETMASK, &all, &guard->mask);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &guard->cancel_state);
}

static void guard_close(const struct guard *guard)
{
    pthread_setcancelstate(guard->cancel_state, NULL);
    set_mask(SIG_SETMASK, &guard->mask, NULL);
    errno = guard->saved_errno;
}

// ---- the lock: Drepper, "Futexes Are Tricky", the third mutex

#define LOCK_TRIES 64  // most sections are over before a thread would be asleep

enum lock_state { LOCK_FREE = 0, LOCK_TAKEN = 1, LOCK_AWAITED = 2 };

static bool take_lock(void)
{
    uint32_t expected = LOCK_FREE;
    return __atomic_compare_exchange_n(&client->lock, &expected, LOCK_TAKEN, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

// Whoever has slept takes it as awaited, since others may sleep as well: one wake-up too many is the price.
static void await_lock(void)
{
    while (__atomic_exchange_n(&client->lock, LOCK_AWAITED, __ATOMIC_ACQUIRE) != LOCK_FREE)
        syscall(SYS_futex, &client->lock, FUTEX_WAIT_PRIVATE, LOCK_AWAITED, NULL);
}

static void release_lock(void)
{
    if (__atomic_exchange_n(&client->lock, LOCK_FREE, __ATOMIC_RELEASE) == LOCK_AWAITED)
        syscall(SYS_futex, &client->lock, FUTEX_WAKE_PRIVATE, 1);
}

void client_lock(struct guard *guard)
{
    guard_open(guard);
    for (int tries = 0; tries < LOCK_TRIES; tries++)
        if (take_lock())
            return;
    await_lock();
}

bool client_try_lock(struct guard *guard)
{
    guard_open(guard);
    if (take_lock())
        return true;
    guard_close(guard);
    return false;
}

void client_unlock(struct guard *guard)
{
    release_lock();
    guard_close(guard);
}

uint64_t client_ticks(void)
{
    return client->clock == SL_CLOCK_MONOTONIC ? (uint64_t)facts_clock_ns(CLOCK_MONOTONIC) : sl_ticks_();
}

void client_anchor(uint64_t *ticks, int64_t *ns)
{
    uint64_t shortest = UINT64_MAX;
    for (int tries = 0; tries < 4; tries++) {  // the closest pair: something may come in between
        uint64_t before = client_ticks();
        int64_t now_ns = facts_clock_ns(CLOCK_MONOTONIC);
        uint64_t width = client_ticks() - before;
        if (width < shortest) {
            shortest = width;
            *ticks = before + width / 2;
            *ns = now_ns;
        }
        if (width < 500)
            break;
    }
}

static bool off(int error)
{
    was_off = client->off_errno = error;
    if (client->phase == CLIENT_LOCAL)
        return false;
    sl_store_relaxed(&client->phase, CLIENT_OFF);
    client_idle_is_off(true);
    return false;
}

static void tell_facts(void)
{
    const struct facts *facts = facts_get();
    strings_add(SL_STRING_META, SL_META_PROGRAM, facts->program, "", -1);
    strings_add(SL_STRING_META, SL_META_DIRECTORY, facts->directory, "", -1);
}

// Half a millisecond or less: the rate of a TSC is not known here, but 1 GHz is the least that there is.
static uint64_t slow_step_ticks(uint32_t clock)
{
#if defined(__aarch64__) && !defined(SL_FAKE_TICKS)
    uint64_t rate;
    __asm__("mrs %0, cntfrq_el0" : "=r"(rate));
    if (clock == SL_CLOCK_ARM)
        return rate / 2000;
#endif
    return clock == SL_CLOCK_TSC ? 1u << 19 : 500000;
}

void client_live(void)
{
    if (!client->generation) {
        client->generation = generations++ % 31 + 1;
        client->clock = facts_clock_kind();
        client->slow_step = slow_step_ticks(client->clock);
        client_anchor(&client->anchor_ticks, &client->anchor_ns);
    }
    if (!client->key_made && pthread_key_create(&client->key, thread_ended) == 0)
        client->key_made = 1;
}

void client_stir(void)
{
    sl_store_release(&client->epoch, client->epoch + 1);
    for (struct producer *thread = client->producers; thread; thread = thread->next) {
        sl_store_relaxed(&thread->hot.lane, NULL);
    }
}

static int make_segment(void)
{
    int result = attach_socket();
    if (result < 0)
        return result;
    client_live();
    result = segment_create();
    if (result < 0)
        attach_sorry(-result);
    return result;
}

static bool start(void)
{
    struct facts *facts = facts_get();
    bool forked = has_recorded;
    client->file = client->socket = client->wake[0] = client->wake[1] = -1;
    if (facts->off)
        return off(EPERM);
    if (forked && !facts->follow)
        return off(ECHILD);
    if (forked)
        facts->fork_depth++;
    int result = make_segment();
    if (result < 0)
        return off(-result);
    tell_facts();
    regions_publish_all();
    has_recorded = true;
    sl_store_release(&client->phase, CLIENT_RECORDING);
    client_idle_is_off(false);  // a fork child inherits it from a parent that was off
    sl_store_release(&client->segment->magic, SL_MAGIC);  // last: from here on a daemon may adopt it
    SL_TESTPOINT_(magic_written);
    attach_hello();
    client_stir();  // threads registered before, for trackers, come over
    return true;
}

bool client_start(void)
{
    if (client->phase != CLIENT_NEW)
        return client->phase == CLIENT_RECORDING;
    return was_off && !has_recorded ? off(was_off) : start();
}

SL_PUBLIC int sl_is_active(void)
{
    return client && sl_load_relaxed(&client->phase) == CLIENT_RECORDING;
}

SL_PUBLIC int sl_attach(void)
{
    struct guard guard;
    if (!client_begin())
        return -ENOMEM;
    client_lock(&guard);
    bool recording = client->phase == CLIENT_RECORDING || start();
    int result = recording ? 0 : -client->off_errno;
    client_unlock(&guard);
    return result;
}

SL_PUBLIC int sl_follow_(void)
{
    struct facts *facts = facts_get();
    bool follow = facts->follow;
    facts->follow = true;
    int result = sl_attach();
    facts->follow = follow;  // this child's own are another matter
    return result;
}

SL_PUBLIC void sl_rank(int64_t rank)
{
    struct guard guard;
    if (!client_begin())
        return;
    client_lock(&guard);
    facts_get()->rank = rank;
    if (client_start())
        sl_store_relaxed(&client->segment->rank, rank);
    SL_TESTPOINT_(rank_claimed);
    client_unlock(&guard);
}

// No daemon reads this segment any more, and the last one has taken everything: nobody will miss it.
static bool is_left_empty(void)
{
    if (!client->segment->daemon_pid || sl_load_acquire(&client->segment->adopted))
        return false;
    for (uint32_t i = 0; i < client->slot_count; i++) {
        const struct sl_ring *ring = AT(client->slot_offsets[i]);
        if (sl_load_relaxed(&ring->head) != sl_load_relaxed(&ring->tail))
            return false;
    }
    return true;
}

__attribute__((destructor)) static void goodbye(void)
{
    struct guard guard;
    if (!client || client->phase != CLIENT_RECORDING)
        return;
    client_lock(&guard);
    struct producer *self = producer_self();
    if (self && !(self->row->flags & SL_THREAD_NAMED))
        thread_store_own_comm(self->row);
    if (self) {  // no destructor runs for the thread that calls exit
        self->row->end = client_ticks();
        self->row->cpu_ns = (uint64_t)facts_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        sl_store_release(&self->row->version, self->row->version + 1);
        SL_TESTPOINT_(exiting_thread_ended);
    }
    sl_store_release(&client->segment->goodbye, 1);
    SL_TESTPOINT_(goodbye_said);
    attach_poll_now();
    if (is_left_empty())
        unlink(client->path);
    SL_TESTPOINT_(process_left);
    client_unlock(&guard);
}
