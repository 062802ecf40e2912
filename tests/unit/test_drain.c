// The daemon's end of a ring, against rings made by hand: batches, void records, heads that cannot be.
#include <criterion/criterion.h>
#include <stdlib.h>

#include "core/drain.h"
#include "core/segment.h"
#include "tests/made_segment.h"

static struct made made;
static struct segment segment;
static struct sl_ring *ring;
static struct sl_record batch[512];

enum { RECORDS = 128 };

static void begin(void)
{
    char problem[256] = "";
    cr_assert_eq(guard_install(), 0);
    made = made_begin();
    ring = made_slot(&made, 0, RECORDS);
    cr_assert_eq(segment_open(&segment, made.fd, "", problem), 0, "%s", problem);
}

static void end(void)
{
    segment_close(&segment);
    made_end(&made);
}

TestSuite(drain, .init = begin, .fini = end, .timeout = 300);

static void publish(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        made_publish(ring, made_call(1000 + ring->head, 1, 1));
}

static void publish_skip(uint64_t voids)
{
    made_publish(ring, (struct sl_record){{0, sl_record_word1(SL_SKIP, voids), 0, 0}});
}

static int64_t copy(uint64_t from, uint32_t limit)
{
    memset(batch, 0xee, sizeof batch);
    int64_t count = drain_copy(&segment, 0, from, batch, limit);
    for (int64_t i = count < 0 ? 0 : count; i < 512 && i < limit; i++)
        if (i > count)
            cr_assert_eq(batch[i].word[0], UINT64_C(0xeeeeeeeeeeeeeeee), "nothing is written beyond what was asked for");
    return count;
}

Test(drain, an_empty_ring_gives_nothing)
{
    cr_assert_eq(copy(0, 512), 0);
    publish(3);
    cr_assert_eq(copy(3, 512), 0);
}

Test(drain, records_come_in_order_across_the_seam)
{
    uint64_t next = 0;
    for (int round = 0; round < 50; round++) {
        publish(100);
        for (int64_t count; (count = copy(next, 37)) > 0; next += (uint64_t)count) {
            for (int64_t i = 0; i < count; i++)
                cr_assert_eq(sl_record_start(&batch[i]), 1000 + next + (uint64_t)i);
            drain_release(&segment, 0, next + (uint64_t)count);
        }
        cr_assert_eq(next, ring->head);
        cr_assert_eq(ring->tail, next);
    }
}

Test(drain, a_full_ring_is_read_whole)
{
    publish(60);
    drain_release(&segment, 0, 60);
    publish(RECORDS);
    cr_assert_eq(copy(60, 512), RECORDS);
    cr_assert_eq(sl_record_start(&batch[RECORDS - 1]), 1000 + 60 + RECORDS - 1);
}

Test(drain, a_head_that_cannot_be_says_that_the_ring_is_broken)
{
    static const uint64_t heads[] = {RECORDS + 11, UINT64_MAX, UINT64_MAX / 2, 9, 0};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        ring->head = heads[i];
        cr_expect_eq(copy(10, 512), -1, "head %lu", (unsigned long)heads[i]);
    }
    ring->head = RECORDS + 10;
    cr_expect_eq(copy(10, 512), RECORDS);
    ring->head = 5;  // numbers may run over their end
    cr_expect_eq(copy(UINT64_MAX - 4, 512), 10);
}

Test(drain, what_the_ring_says_of_its_size_and_tail_does_not_matter)
{
    publish(5);
    ring->records = 1u << 30;
    ring->tail = UINT64_MAX;
    cr_assert_eq(copy(0, 512), 5);
}

Test(drain, a_skip_voids_the_record_before_it)
{
    publish(3);
    publish_skip(1);
    publish(1);
    cr_assert_eq(copy(0, 512), 5);
    static const unsigned kinds[] = {SL_CALL, SL_CALL, SL_SKIP, SL_SKIP, SL_CALL};
    for (int i = 0; i < 5; i++)
        cr_assert_eq(sl_record_kind(&batch[i]), kinds[i]);
    cr_assert_eq(sl_record_duration(&batch[2]), 0, "made void, it voids nothing itself");
}

Test(drain, a_skip_alone_voids_nothing_else)
{
    publish(1);
    publish_skip(0);
    publish(1);
    cr_assert_eq(copy(0, 512), 3);
    cr_assert_eq(sl_record_kind(&batch[0]), SL_CALL);
    publish_skip(1);
    cr_assert_eq(copy(3, 512), 1, "its record was given out before: it should not be, but nothing happens");
    cr_assert_eq(sl_record_kind(&batch[0]), SL_SKIP);
}

Test(drain, no_limit_parts_a_record_from_the_skip_that_voids_it)
{
    for (uint32_t limit = 2; limit < 12; limit++) {
        uint64_t first = ring->head, next = first;
        drain_release(&segment, 0, first);
        uint32_t good = 0;
        for (int i = 0; i < 10; i++) {
            publish((uint64_t)i % 3);
            made_publish(ring, made_call(13, 1, 1));  // void
            publish_skip(1);
        }
        for (int64_t count; (count = copy(next, limit)) > 0; next += (uint64_t)count)
            for (int64_t i = 0; i < count; i++) {
                cr_assert_neq(sl_record_start(&batch[i]), 13, "a void record was given out, limit %u", limit);
                good += (uint32_t)sl_record_is_call(&batch[i]);
            }
        cr_assert_eq(next, ring->head, "and all was read in the end");
        cr_assert_eq(good, 9);
    }
}

Test(drain, a_producer_that_is_at_work_meanwhile_is_read_up_to_where_it_was)
{
    publish(10);
    sl_ring_records(ring)[10] = made_call(999, 1, 1);  // filled, not published
    cr_assert_eq(copy(0, 512), 10);
}
