// Both sides of the shared memory as threads of one process, so that ThreadSanitizer sees them: the client library records through its
// inline functions while another thread drains, reads lanes, rows and counters as the daemon does. A plain program, for Criterion
// dies under ThreadSanitizer. Exits 0 when every call is accounted for.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/buffer.h"
#include "client/state.h"
#include "core/drain.h"
#include "core/lanes.h"
#include "core/segment.h"
#include "tests/place.h"

enum { ROUNDS = 100000, DEEP = 300, BATCH = 512, PRODUCERS = 2 };

static struct place place;
static struct segment segment;
static _Atomic int producing = PRODUCERS;
static sl_region_t a, b, c;

static void fail(const char *what, uint64_t found, uint64_t expected)
{
    fprintf(stderr, "ring_two_threads: %s: %llu, expected %llu\n", what, (unsigned long long)found, (unsigned long long)expected);
    exit(1);
}

static void *produce(void *name)
{
    char text[200];
    sl_task_t task = sl_task_create("task", name, "coroutine");
    for (int i = 0; i < ROUNDS; i++) {
        sl_enter(a);
        sl_enter(b);
        sl_next(c);
        sl_exit(c);
        sl_exit(a);
        if (i % 16)
            continue;
        sl_task_step_in(task);
        sl_enter(a);
        sl_exit(a);
        sl_task_step_out(task);
        if (i % 1024)
            continue;
        for (int deep = 0; deep < DEEP; deep++)
            sl_enter(a);
        for (int deep = 0; deep < DEEP; deep++)
            sl_exit(a);
        memset(text, 'a' + i / 1024 % 26, sizeof text);
        text[i / 1024 % sizeof text] = 0;
        sl_thread_name(text);
        sl_task_rename(task, text);
        sl_region(text);
        sl_task_finish(task);
        task = sl_task_create("task", name, text);
    }
    sl_task_finish(task);
    producing--;
    return NULL;
}

// What the daemon sees is mapped once more; here it has to be the very memory the client writes.
static void look_at_the_clients_memory(void)
{
    char problem[256] = "there is none";
    int fd = place_segment(&place, 0, NULL);
    if (fd < 0 || segment_open(&segment, fd, "", problem) < 0) {
        fprintf(stderr, "ring_two_threads: cannot open the segment: %s\n", problem);
        exit(1);
    }
    close(fd);
    guard_remove(&segment.map);
    munmap(segment.map.base, segment.map.size);
    segment.map.base = (char *)client->segment;
}

static uint64_t next[64], calls[64], records_seen;

static void drain(uint32_t slot)
{
    static struct sl_record batch[BATCH];
    for (int64_t count; (count = drain_copy(&segment, slot, next[slot], batch, BATCH)) != 0;) {
        if (count < 0)
            fail("a head that cannot be, in slot", slot, 0);
        for (int64_t i = 0; i < count; i++)
            calls[slot] += (uint64_t)sl_record_is_call(&batch[i]);
        records_seen += (uint64_t)count;
        next[slot] += (uint64_t)count;
        drain_release(&segment, slot, next[slot]);
    }
}

static uint64_t agreed, moving;

static void read_lane(const struct sl_lane *lane, uint32_t entries)
{
    static struct lane_view view;
    lanes_read(&segment, lane, entries, &view);
    agreed += !view.moving;
    moving += view.moving;
    for (uint32_t i = 0; i < view.depth; i++) {
        bool fits = i == 0 || view.depth > 2 ? view.calls[i].region == a : view.calls[i].region <= c;
        if (!fits || view.depth > DEEP)
            fail("an open call that was not, region", view.calls[i].region, a);
    }
}

static void read_rows(void)
{
    static struct buffer name, other;
    for (uint32_t i = 0; i < segment.thread_extents; i++) {
        struct sl_thread_row *row = (void *)(segment.map.base + segment.threads[i].offset), copy;
        for (uint32_t j = 0; j < segment.threads[i].count; j++)
            if (sl_load_acquire(&row[j].state) != SL_ROW_FREE && segment_thread_row(&segment, &row[j], &copy, &name))
                for (size_t k = 1; k < name.length && (copy.flags & SL_THREAD_NAMED); k++)
                    if (name.data[k] != name.data[0])
                        fail("a name that is neither the old nor the new one", (uint64_t)name.data[k], (uint64_t)name.data[0]);
    }
    for (uint32_t i = 0; i < segment.task_extents; i++) {
        struct sl_task_row *row = (void *)(segment.map.base + segment.tasks[i].offset), copy;
        for (uint32_t j = 0; j < segment.tasks[i].count; j++) {
            uint32_t state = sl_load_acquire(&row[j].state);
            if (state != SL_ROW_LIVE && state != SL_ROW_DONE)
                continue;
            read_lane(&row[j].lane, SL_TASK_ENTRIES);
            bool whole = segment_task_row(&segment, &row[j], &copy, &name, &other);
            const struct sl_lane *lane = &copy.lane;
            if (whole && lane->steps && !lane->stepping && lane->running + lane->suspended != lane->last_step_end - lane->first_step)
                fail("running and suspended of a task", lane->running + lane->suspended, lane->last_step_end - lane->first_step);
            if (whole && state == SL_ROW_DONE)
                sl_store_release(&row[j].state, SL_ROW_SPOOLED);
        }
    }
}

static void read_strings(void)
{
    static struct buffer text;
    struct segment_string string;
    int result;
    while ((result = segment_next_string(&segment, &string, &text)) > 0)
        ;
    if (result < 0)
        fail("a string that cannot be", 0, 0);
}

static void *consume(void *unused)
{
    for (int rounds = 0, last = 0; !last; rounds++) {
        last = producing == 0;
        if (!segment_refresh(&segment))
            fail("a geometry that cannot be", 0, 0);
        for (uint32_t slot = 0; slot < segment.slot_count; slot++) {
            drain(slot);
            read_lane(sl_ring_lane(segment_ring(&segment, slot)), SL_THREAD_ENTRIES);
            const struct sl_ring *ring = segment_ring(&segment, slot);
            uint64_t lost = sl_load_relaxed(&ring->lost[SL_LOST_RING_FULL]), produced = sl_load_relaxed(&ring->produced);
            if (produced < lost)
                fail("produced", produced, lost);
        }
        if (rounds % 8 == 0 || last) {
            read_strings();
            read_rows();
        }
    }
    return unused;
}

int main(void)
{
    pthread_t consumer, producers[PRODUCERS];
    setenv("SCOPED_LANE_RING", "64K", 1);
    place_make(&place);
    a = sl_region("a"), b = sl_region("b"), c = sl_region("c");
    sl_enter(a);
    sl_exit(a);
    look_at_the_clients_memory();
    pthread_create(&consumer, NULL, consume, NULL);
    for (int i = 0; i < PRODUCERS; i++)
        pthread_create(&producers[i], NULL, produce, i ? "one" : "other");
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i], NULL);
    pthread_join(consumer, NULL);

    uint64_t produced = 0, lost = 0, drained = 0;
    for (uint32_t slot = 0; slot < segment.slot_count; slot++) {
        const struct sl_ring *ring = segment_ring(&segment, slot);
        uint64_t lost_here = 0;
        drain(slot);
        for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
            lost_here += ring->lost[reason];
        if (ring->produced != calls[slot] + lost_here)
            fail("produced, which is not drained + lost", ring->produced, calls[slot] + lost_here);
        produced += ring->produced, lost += lost_here, drained += calls[slot];
    }
    uint64_t own = 1 + (uint64_t)PRODUCERS * (3 * ROUNDS + ROUNDS / 16 + (ROUNDS / 1024 + 1) * DEEP);
    if (produced != own)
        fail("calls produced, which the program counted itself", produced, own);
    printf("ring_two_threads: %llu calls, %llu drained, %llu lost; %llu lanes read, %llu moving\n", (unsigned long long)produced,
           (unsigned long long)drained, (unsigned long long)lost, (unsigned long long)agreed, (unsigned long long)moving);
    place_remove(&place);
    return 0;
}
