// Threads through the real client library: rows, names, exact processor time, and rings that pass from one thread to the next.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "client/scoped_lane.h"
#include "tests/recorded.h"

TestSuite(thread, .init = recorded_begin, .fini = recorded_end, .timeout = 300);

static sl_region_t a, b;

static void call(sl_region_t region)
{
    sl_enter(region);
    sl_exit(region);
}

static void run(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, body, argument), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
}

// ---- rows

Test(thread, a_thread_gets_its_row_with_its_first_call)
{
    call(sl_region("a"));
    const struct sl_thread_row *row = recorded_thread(0);
    cr_assert_eq(row->state, SL_ROW_LIVE);
    cr_assert_eq(row->native_id, (uint32_t)syscall(SYS_gettid));
    cr_assert_eq(row->ident, (uint64_t)pthread_self());
    cr_assert_eq(row->slot, 0);
    cr_assert_eq(row->end, 0);
    cr_assert_geq(row->start, segment_header(&recorded)->created_ticks);
    cr_assert_eq(row->flags & SL_THREAD_NAMED, 0);
    cr_assert_eq(row->seq % 2, 0);
    cr_assert_gt(row->name.length, 0, "the kernel's name for a start");
    cr_assert_eq(segment_header(&recorded)->threads, 1);
}

static int64_t burn(int64_t ns)
{
    struct timespec time;
    do
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    while (time.tv_sec * INT64_C(1000000000) + time.tv_nsec < ns);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void *burn_and_end(void *own)
{
    call(a);
    *(int64_t *)own = burn(20000000);
    return NULL;
}

Test(thread, an_ended_thread_leaves_its_exact_processor_time)
{
    int64_t own;
    a = sl_region("a");
    run(burn_and_end, &own);
    const struct sl_thread_row *row = recorded_thread(0);
    cr_assert_eq(row->state, SL_ROW_DONE);
    cr_assert_gt(row->end, row->start);
    cr_assert_geq(row->cpu_ns, (uint64_t)own);
    cr_assert_lt(row->cpu_ns, (uint64_t)own + 10000000, "%lu, own %ld", (unsigned long)row->cpu_ns, (long)own);
}

static void *leave_open(void *unused)
{
    sl_enter(a);
    sl_enter(b);
    return unused;
}

Test(thread, what_is_open_at_its_end_is_said_and_the_lane_is_empty_for_the_next)
{
    a = sl_region("a");
    b = sl_region("b");
    run(leave_open, NULL);
    cr_assert_eq(recorded_count(0, SL_ENDED_OPEN), 2);
    struct sl_record inner = recorded_nth(0, SL_ENDED_OPEN, 0), outer = recorded_nth(0, SL_ENDED_OPEN, 1);
    cr_assert_eq(sl_record_region(&inner), b);
    cr_assert_eq(sl_record_parent(&inner), a);
    cr_assert_eq(sl_record_region(&outer), a);
    cr_assert_eq(sl_record_start(&outer) + sl_record_duration(&outer), recorded_thread(0)->end);
    cr_assert_eq(recorded_ring(0)->produced, 0, "they are no calls");
    cr_assert_eq(recorded_lane(0)->depth, 0);
}

// ---- names

static const char *name_of(uint32_t index)
{
    return recorded_name(&recorded_thread(index)->name);
}

Test(thread, the_last_name_wins_whole)
{
    static const char long_name[] = "a name that is much longer than what lies inline in the row, so that it is chained through blocks, "
                                    "more than one of them, for each holds 248 bytes, and here they come: 0123456789 0123456789 "
                                    "0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 0123456789 end";
    sl_thread_name("first");
    cr_assert_str_eq(name_of(0), "first");
    cr_assert(recorded_thread(0)->flags & SL_THREAD_NAMED);
    uint32_t version = recorded_thread(0)->version;
    sl_thread_name(long_name);
    cr_assert_str_eq(name_of(0), long_name);
    cr_assert_gt(recorded_thread(0)->version, version);
    sl_thread_name("short again");
    cr_assert_str_eq(name_of(0), "short again");
    sl_thread_name("");
    cr_assert_str_eq(name_of(0), "");
    sl_thread_name(NULL);
    cr_assert_str_eq(name_of(0), "");
}

Test(thread, names_of_every_length_come_through)
{
    static char name[70001];
    static const size_t lengths[] = {0, 1, 63, 64, 65, 247, 248, 249, 495, 496, 497, 1000, 70000};
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            memset(name, 'a' + (int)(i + (size_t)round) % 26, lengths[i]);
            name[lengths[i]] = 0;
            sl_thread_name(name);
            cr_assert_str_eq(name_of(0), name);
        }
    uint64_t size = segment_header(&recorded)->size;
    for (int i = 0; i < 100; i++)
        sl_thread_name(i % 2 ? "short" : name);
    cr_assert_eq(segment_header(&recorded)->size, size, "the blocks of former names are used again");
}

Test(thread, a_name_beyond_the_limit_is_cut_at_a_character)
{
    static char name[(SL_NAME_LENGTH_LIMIT / 3 + 10) * 3 + 1];
    for (size_t i = 0; i + 3 < sizeof name; i += 3)
        memcpy(name + i, "\xe2\x82\xac", 3);  // the euro sign
    sl_thread_name(name);
    const char *text = name_of(0);
    cr_assert_eq(strlen(text), SL_NAME_LENGTH_LIMIT / 3 * 3);
    cr_assert_eq(memcmp(text, name, strlen(text)), 0);
}

Test(thread, invalid_utf8_is_replaced)
{
    static const char *const names[][2] = {
        {"gr\xc3\xbcn \xf0\x9f\x9a\x80", "gr\xc3\xbcn \xf0\x9f\x9a\x80"},
        {"a\xff" "b", "a\xef\xbf\xbd" "b"},
        {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
        {"overlong \xc0\xaf", "overlong \xef\xbf\xbd\xef\xbf\xbd"},
        {"surrogate \xed\xa0\x80", "surrogate \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"beyond \xf4\x90\x80\x80", "beyond \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        sl_thread_name(names[i][0]);
        cr_expect_str_eq(name_of(0), names[i][1]);
    }
    static char bad[101];
    memset(bad, 0xff, 100);
    sl_thread_name(bad);
    cr_assert_eq(strlen(name_of(0)), 300, "what grows beyond the inline part lies in blocks");
}

// ---- rings pass from thread to thread

static void *call_a(void *times)
{
    for (long i = 0; i < *(long *)times; i++)
        call(a);
    return NULL;
}

Test(thread, a_ring_passes_to_the_next_thread_which_says_so_in_band)
{
    a = sl_region("a");
    for (long times = 1; times <= 5; times++)
        run(call_a, &times);
    recorded_look(0);
    cr_assert_eq(recorded.slot_count, 1);
    cr_assert_eq(segment_header(&recorded)->threads, 5);
    static struct sl_record records[100];
    uint32_t count = recorded_all(0, records, 100), at = 0;
    cr_assert_eq(count, 5 + 15);
    for (uint32_t owner = 0; owner < 5; owner++) {
        cr_assert_eq(sl_record_kind(&records[at]), SL_THREAD);
        cr_assert_eq(sl_record_task(&records[at++]), owner);
        for (uint32_t i = 0; i <= owner; i++)
            cr_assert_eq(sl_record_kind(&records[at++]), SL_CALL);
        cr_assert_eq(recorded_thread(owner)->state, SL_ROW_DONE);
        cr_assert_eq(recorded_thread(owner)->slot, 0);
    }
    cr_assert_eq(recorded_ring(0)->produced, 15);
    cr_assert_eq(recorded_ring(0)->owner, SL_RING_FREE);
}

Test(thread, a_ring_too_full_to_say_who_has_it_keeps_the_new_owners_calls_out)
{
    setenv("SCOPED_LANE_RING", "16K", 1);
    a = sl_region("a");
    long times = 511;
    run(call_a, &times);
    cr_assert_eq(recorded_ring(0)->head, recorded.slots[0].records, "it is full");
    times = 10;
    run(call_a, &times);
    cr_assert_eq(recorded.slot_count, 1);
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_NO_RING], 10);
    cr_assert_eq(recorded_ring(0)->produced, 521);
    cr_assert_eq(recorded_calls(0), 511, "none is taken for the former owner's");
    drain_release(&recorded, 0, 100);
    run(call_a, &times);
    cr_assert_eq(recorded_ring(0)->produced, 531);
    cr_assert_eq(recorded_ring(0)->lost[SL_LOST_NO_RING], 10);
    struct sl_record records[12];
    cr_assert_eq(drain_copy(&recorded, 0, 512, records, 12), 11);
    cr_assert_eq(sl_record_kind(&records[0]), SL_THREAD);
    cr_assert_eq(sl_record_task(&records[0]), 2);
}

static _Atomic int waiting, go;

static void *call_and_wait(void *unused)
{
    call(a);
    waiting++;
    while (!go)
        sched_yield();
    for (int i = 0; i < 1000; i++)
        call(a);
    return unused;
}

Test(thread, threads_at_once_have_a_ring_each)
{
    enum { THREADS = 20 };
    pthread_t threads[THREADS];
    a = sl_region("a");
    for (int i = 0; i < THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, call_and_wait, NULL), 0);
    while (waiting < THREADS)
        sched_yield();
    recorded_look(0);
    cr_assert_eq(recorded.slot_count, THREADS);
    cr_assert_eq(recorded.slots[7].records, SL_RING_BYTES_DEFAULT / SL_RECORD_BYTES);
    cr_assert_eq(recorded.slots[8].records, SL_RING_BYTES_DEFAULT / SL_RECORD_BYTES / 2, "halved from the ninth on");
    cr_assert_eq(recorded.slots[16].records, SL_RING_BYTES_DEFAULT / SL_RECORD_BYTES / 4);
    go = 1;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    uint64_t produced = 0;
    for (uint32_t slot = 0; slot < THREADS; slot++)
        produced += recorded_ring(slot)->produced;
    cr_assert_eq(produced, THREADS * 1001);
}

Test(thread, many_short_threads_need_few_rings_and_rows)
{
    a = sl_region("a");
    long times = 2;
    for (int i = 0; i < 2000; i++) {
        run(call_a, &times);
        if (i % 10 == 0) {  // as the daemon does
            recorded_look(0);
            for (uint32_t n = 0;; n++) {
                struct sl_thread_row *row = recorded_row(recorded.threads, recorded.thread_extents, n, sizeof *row);
                if (!row)
                    break;
                if (sl_load_acquire(&row->state) == SL_ROW_DONE)
                    sl_store_release(&row->state, SL_ROW_SPOOLED);
            }
        }
    }
    recorded_look(0);
    cr_assert_eq(recorded.slot_count, 1);
    cr_assert_eq(segment_header(&recorded)->threads, 2000);
    cr_assert_eq(recorded_ring(0)->produced, 4000);
    cr_assert_leq(recorded.thread_extents, 2);
}

static pthread_barrier_t together;

static void *call_together(void *unused)
{
    call(a);
    pthread_barrier_wait(&together);
    return unused;
}

Test(thread, short_threads_fill_all_rings_that_are_free_before_any_call_is_lost)
{
    enum { RINGS = 3 };
    setenv("SCOPED_LANE_RING", "16K", 1);
    a = sl_region("a");
    pthread_t threads[RINGS];
    pthread_barrier_init(&together, NULL, RINGS);
    for (int i = 0; i < RINGS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, call_together, NULL), 0);
    for (int i = 0; i < RINGS; i++)
        pthread_join(threads[i], NULL);
    long times = 2;
    for (int i = 0; i < 500; i++)  // 3 records each; nobody drains
        run(call_a, &times);
    recorded_look(0);
    cr_assert_eq(recorded.slot_count, RINGS);
    uint64_t produced = 0, lost = 0;
    for (uint32_t slot = 0; slot < RINGS; slot++) {
        produced += recorded_ring(slot)->produced;
        lost += recorded_lost(recorded_ring(slot));
    }
    cr_assert_eq(produced, RINGS + 1000);
    cr_assert_eq(lost, 0);
}

// ---- destructors

static pthread_key_t late;

static void record_in_destructor(void *rounds)
{
    call(b);
    if (rounds > (void *)1)
        pthread_setspecific(late, (char *)rounds - 1);
}

static void *end_with_destructors(void *unused)
{
    pthread_setspecific(late, (void *)3);
    call(a);
    return unused;
}

Test(thread, destructors_that_record_are_recorded_under_the_same_thread)
{
    a = sl_region("a");
    b = sl_region("b");
    cr_assert_eq(pthread_key_create(&late, record_in_destructor), 0);
    run(end_with_destructors, NULL);
    cr_assert_eq(recorded_ring(0)->produced, 4);
    cr_assert_eq(segment_header(&recorded)->threads, 1, "one thread, however often it comes back");
    const struct sl_thread_row *row = recorded_thread(0);
    cr_assert_eq(row->state, SL_ROW_DONE);
    cr_assert_neq(row->end, 0);
    static struct sl_record records[100];
    uint32_t count = recorded_all(0, records, 100);
    for (uint32_t i = 0; i < count; i++)
        if (sl_record_kind(&records[i]) == SL_THREAD)
            cr_assert_eq(sl_record_task(&records[i]), 0);
}

static void name_in_destructor(void *name)
{
    static int rounds;
    if (rounds++ == 0)
        pthread_setspecific(late, name);  // once more, when ours has run
    else
        sl_thread_name(name);
}

static void *end_with_a_name(void *name)
{
    pthread_setspecific(late, name);
    sl_thread_name("first");
    return NULL;
}

Test(thread, a_name_given_by_a_late_destructor_is_that_of_the_same_thread)
{
    cr_assert_eq(pthread_key_create(&late, name_in_destructor), 0);
    run(end_with_a_name, "last");
    const struct sl_thread_row *row = recorded_thread(0);
    cr_assert_str_eq(name_of(0), "last");
    cr_assert(row->flags & SL_THREAD_NAMED);
    cr_assert_eq(row->state, SL_ROW_DONE);
    cr_assert_eq(row->seq % 2, 0);
    cr_assert_eq(segment_header(&recorded)->threads, 1);
}

static void *wait_to_be_cancelled(void *unused)
{
    sl_enter(a);
    waiting++;
    for (;;)
        pthread_testcancel();
    return unused;
}

Test(thread, a_cancelled_thread_ends_like_any_other)
{
    pthread_t thread;
    a = sl_region("a");
    b = sl_region("b");
    cr_assert_eq(pthread_create(&thread, NULL, wait_to_be_cancelled, NULL), 0);
    while (!waiting)
        sched_yield();
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    cr_assert_eq(recorded_thread(0)->state, SL_ROW_DONE);
    cr_assert_eq(recorded_count(0, SL_ENDED_OPEN), 1);
}

static void *end_early(void *row)
{
    call(a);
    sl_thread_ended_();
    sl_thread_ended_();
    *(uint32_t *)row = recorded_thread(0)->state;
    return NULL;
}

static void *end_early_and_record(void *row)
{
    end_early(row);
    call(b);
    *(uint32_t *)row = recorded_thread(1)->state;
    return NULL;
}

Test(thread, a_thread_may_end_before_its_pthread_does_and_comes_back_when_it_records)
{
    uint32_t state = SL_ROW_FREE;
    a = sl_region("a");
    b = sl_region("b");
    run(end_early, &state);
    cr_assert_eq(state, SL_ROW_DONE);
    cr_assert_gt(recorded_thread(0)->cpu_ns, 0);
    run(end_early_and_record, &state);
    cr_assert_eq(state, SL_ROW_LIVE);
    cr_assert_eq(recorded_thread(1)->state, SL_ROW_DONE);
    cr_assert_eq(segment_header(&recorded)->threads, 2);
}
