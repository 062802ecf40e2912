// Where one run file of a process ends and the next begins: what the segment says of it, also where nobody has said anything.
#include <stdlib.h>

#include "client/scoped_lane.h"
#include "services/daemon.h"
#include "tests/recorded.h"

enum { CALLS = 10, TAKEN = 4, TAIL = 1 + TAKEN, LOST = 3, LATER = 2 };  // a THREAD record stands before the calls

static struct daemon the_daemon;
static struct run run = {.daemon = &the_daemon, .spool = {.fd = -1, .path = (char *)"run.spool"}};
static struct client client;
static struct sl_ring *ring;

static void lose(uint64_t calls)
{
    ring->produced += calls;
    ring->lost[SL_LOST_RING_FULL] += calls;
}

// Ten calls and three that were lost; a daemon has taken four, and moved the tail.
static void begin(void)
{
    recorded_begin();
    model_init(&run.model, SL_CLOCK_TSC, 16, 0);
    sl_region_t region = sl_region("a");
    for (int i = 0; i < CALLS; i++) {
        sl_enter(region);
        sl_exit(region);
    }
    ring = recorded_ring(0);
    lose(LOST);
    ring->tail = TAIL;
    client = (struct client){.daemon = &the_daemon, .run = &run, .segment = recorded, .pid = getpid(), .socket = -1, .pidfd = -1};
    client.process = model_add_process(&run.model, &(struct process_facts){.pid = (uint32_t)getpid()});
}

static void end(void)
{
    buffer_finish(&run.spool.pending);
    model_finish(&run.model);
    recorded_end();
}

TestSuite(parts, .init = begin, .fini = end, .timeout = 60);

static const struct model_slot *begin_part(bool is_new)
{
    parts_begin(&client, is_new);
    return model_slot(client.process, 0);
}

static void expect_guessed(const struct model_slot *slot)
{
    cr_expect_eq(slot->next, TAIL);
    cr_expect_eq(slot->owner, 0);
    cr_expect_eq(slot->base.produced, TAKEN + LOST);
    cr_expect_eq(slot->base.lost[SL_LOST_RING_FULL], LOST);
}

Test(parts, where_nobody_left_a_word_all_that_was_lost_counts_as_told)
{
    cr_assert_eq(ring->accounted.parts, 0, "the words lie zero in a segment of before");
    expect_guessed(begin_part(true));
}

// The part that the daemon before us has ended.
static void end_part(void)
{
    struct model_slot *slot = model_slot(client.process, 0);
    slot->next = TAIL;
    slot->owner = 0;
    slot->ledger = (struct ledger){.produced = TAKEN + LOST, .stored = TAKEN, .lost[SL_LOST_RING_FULL] = LOST};
    parts_end(&client);
    client.process = model_add_process(&run.model, &(struct process_facts){.pid = (uint32_t)getpid()});
}

Test(parts, what_the_files_so_far_account_for_is_taken_off_and_what_is_lost_later_is_not)
{
    end_part();
    cr_assert_eq(ring->accounted.parts, 1);
    lose(LATER);
    const struct model_slot *slot = begin_part(true);
    cr_expect_eq(slot->next, TAIL);
    cr_expect_eq(slot->base.produced, TAKEN + LOST);
    model_set_ledger(client.process, 0, &(struct ledger){.produced = ring->produced, .lost[SL_LOST_RING_FULL] = LOST + LATER});
    cr_expect_eq(slot->ledger.produced, CALLS - TAKEN + LATER);
    cr_expect_eq(slot->ledger.lost[SL_LOST_RING_FULL], LATER);
}

Test(parts, a_third_part_takes_both_before_it_off)
{
    end_part();
    struct model_slot *slot = model_slot(client.process, 0);
    parts_begin(&client, true);
    slot->ledger = (struct ledger){.produced = CALLS - TAKEN, .stored = CALLS - TAKEN};
    slot->next = ring->tail = 1 + CALLS;
    parts_end(&client);
    cr_assert_eq(ring->accounted.parts, 2);
    client.process = model_add_process(&run.model, &(struct process_facts){.pid = (uint32_t)getpid()});
    cr_expect_eq(begin_part(true)->base.produced, CALLS + LOST);
}

Test(parts, a_daemon_that_was_killed_while_it_wrote_has_left_no_word)
{
    end_part();
    ring->accounted.parts = 0;
    ring->accounted.produced = 1;
    expect_guessed(begin_part(true));
}

Test(parts, numbers_beyond_the_producers_own_are_not_believed)
{
    end_part();
    ring->accounted.produced = ring->produced + 1;
    expect_guessed(begin_part(true));
}

Test(parts, calls_that_a_damaged_spool_has_lost_are_counted_in_its_run)
{
    const struct model_slot *slot = begin_part(false);
    cr_expect_eq(slot->next, TAIL);
    cr_expect_eq(slot->base.produced, 0);
    cr_expect_eq(slot->ledger.lost[SL_LOST_SPOOL_FULL], TAKEN);
}

Test(parts, a_spool_that_is_ahead_of_the_tail_moves_it)
{
    model_slot(client.process, 0)->next = TAIL + 1;
    const struct model_slot *slot = begin_part(false);
    cr_expect_eq(slot->next, TAIL + 1);
    cr_expect_eq(ring->tail, TAIL + 1);
    cr_expect_eq(slot->ledger.lost[SL_LOST_SPOOL_FULL], 0);
}
