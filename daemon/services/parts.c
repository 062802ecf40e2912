// Parts: a process that lives on when its run ends, by `finish` or with the daemon, goes on in another run file. Where a file ends,
// the daemon writes into the segment what the files so far account for, ring by ring; whoever begins the next part takes that off the
// producer's counters. So what is lost while no daemon is there is lost in the next part, and no call is in two.
#include "base/say.h"
#include "base/testpoint.h"
#include "core/drain.h"
#include "services/daemon.h"

enum { BASE_TRIES = 1000 };

// ---- the end of a part

// Killed within it, the daemon leaves parts 0; the run that has ended is in its spool then, which tells the same.
static void write_accounted(struct sl_accounted *to, const struct ledger *ledger, uint32_t owner)
{
    uint32_t parts = sl_load_relaxed(&to->parts);
    sl_store_relaxed(&to->parts, 0);
    sl_compiler_barrier();
    TESTPOINT(accounts_opened);
    sl_store_relaxed(&to->produced, ledger->produced);
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        sl_store_relaxed(&to->lost[reason], ledger->lost[reason]);
    sl_store_relaxed(&to->unmatched, ledger->unmatched);
    sl_store_relaxed(&to->abandoned, ledger->abandoned);
    sl_store_relaxed(&to->crossing, ledger->crossing);
    sl_store_relaxed(&to->steps_refused, ledger->steps_refused);
    sl_store_relaxed(&to->stale_tasks, ledger->stale_tasks);
    sl_store_relaxed(&to->owner, owner);
    sl_store_release(&to->parts, parts + 1);
    TESTPOINT(accounts_closed);
}

void parts_end(struct client *client)
{
    struct model_process *process = client->process;
    for (uint32_t i = 0; i < client->segment.slot_count; i++) {
        const struct model_slot *slot = model_slot(process, i);
        struct ledger accounted = slot->base;
        model_rebase(&accounted, &slot->ledger);
        write_accounted(&segment_ring(&client->segment, i)->accounted, &accounted, slot->owner);
    }
    struct ledger accounted = process->elsewhere_base;
    model_rebase(&accounted, &process->elsewhere);
    write_accounted(&segment_header(&client->segment)->accounted, &accounted, SL_RING_FREE);
}

// ---- the beginning of the next one

// False where no part has ended, or the numbers cannot be right.
static bool read_accounted(const struct sl_accounted *from, uint64_t produced, struct ledger *base)
{
    if (!sl_load_acquire(&from->parts) || sl_load_relaxed(&from->produced) > produced)
        return false;
    *base = (struct ledger){.produced = sl_load_relaxed(&from->produced), .unmatched = sl_load_relaxed(&from->unmatched),
                            .abandoned = sl_load_relaxed(&from->abandoned), .crossing = sl_load_relaxed(&from->crossing),
                            .steps_refused = sl_load_relaxed(&from->steps_refused),
                            .stale_tasks = sl_load_relaxed(&from->stale_tasks)};
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        base->lost[reason] = sl_load_relaxed(&from->lost[reason]);
    return true;
}

// How many calls have been published before the tail; their owner there. The owner of what lies between the tail and the next THREAD record
// is the present one only when there is no such record.
static uint64_t calls_before(struct client *client, uint32_t number, uint64_t tail, uint32_t *owner)
{
    struct sl_ring *ring = segment_ring(&client->segment, number);
    uint64_t others, head, unread = 0, records = client->segment.slots[number].records;
    int tries = 0;
    do {  // the two belong together
        others = sl_load_acquire(&ring->others);
        head = sl_load_acquire(&ring->head);
    } while (sl_load_acquire(&ring->others) != others && ++tries < BASE_TRIES);
    *owner = sl_load_relaxed(&ring->owner);
    for (uint64_t at = tail; at < head && at - tail < records; at++) {
        const struct sl_record *record = &sl_ring_records(ring)[at & (records - 1)];
        unread += (uint64_t)sl_record_is_call(record);
        if (sl_record_kind(record) == SL_THREAD)
            *owner = SL_RING_FREE;
    }
    return head - others - unread;
}

// A daemon has taken records and left no word of it: all that is lost so far counts as told.
static void guess_base(struct client *client, uint32_t number, struct model_slot *slot, uint64_t tail)
{
    const struct sl_ring *ring = segment_ring(&client->segment, number);
    struct ledger now = {.unmatched = sl_load_relaxed(&ring->unmatched), .abandoned = sl_load_relaxed(&ring->abandoned),
                         .crossing = sl_load_relaxed(&ring->crossing)};
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        now.lost[reason] = sl_load_relaxed(&ring->lost[reason]);
    now.stored = calls_before(client, number, tail, &slot->owner);
    slot->base = (struct ledger){0};
    model_rebase(&slot->base, &now);
}

// The end of this run's spool was damaged: the calls between what is left of it and the tail are nowhere.
static void count_missing(struct client *client, uint32_t number, struct model_slot *slot, uint64_t tail)
{
    uint64_t taken = calls_before(client, number, tail, &slot->owner), known = slot->base.produced;
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        known -= slot->base.lost[reason];
    known += slot->ledger.stored + slot->ledger.lost[SL_LOST_SPOOL_FULL];
    uint64_t missing = taken > known ? taken - known : 0;
    slot->next = tail;
    slot->calls += missing;
    slot->ledger.lost[SL_LOST_SPOOL_FULL] += missing;
    spool_put_dropped(&client->run->spool, client->process->number, number, tail, missing);
    if (missing)
        say("process %d: the spool %s has lost %llu calls of ring %u", (int)client->pid, client->run->spool.path,
            (unsigned long long)missing, (unsigned)number);
}

static void begin_ring(struct client *client, uint32_t number, bool is_new)
{
    const struct sl_ring *ring = segment_ring(&client->segment, number);
    struct model_slot *slot = model_slot(client->process, number);
    uint64_t tail = sl_load_relaxed(&ring->tail), head = sl_load_acquire(&ring->head);
    if (slot->next >= tail && slot->next <= head && slot->next > 0) {  // the spool's end; the last tail may not have been moved
        drain_release(&client->segment, number, slot->next);
        return;
    }
    bool has_base = !slot->next && tail && read_accounted(&ring->accounted, sl_load_relaxed(&ring->produced), &slot->base);
    if (!has_base && !is_new && tail) {
        count_missing(client, number, slot, tail);
        return;
    }
    slot->next = tail;
    slot->owner = sl_load_relaxed(has_base ? &ring->accounted.owner : &ring->owner);
    if (!tail)
        return;
    if (!has_base)
        guess_base(client, number, slot, tail);
    spool_put_base(&client->run->spool, client->process->number, number, tail, slot->owner, &slot->base);
}

void parts_begin(struct client *client, bool is_new)
{
    struct model_process *process = client->process;
    const struct sl_segment *header = segment_header(&client->segment);
    for (uint32_t i = 0; i < client->segment.slot_count; i++)
        begin_ring(client, i, is_new);
    if (!process->elsewhere_base.produced &&
        read_accounted(&header->accounted, sl_load_relaxed(&header->elsewhere_produced), &process->elsewhere_base))
        spool_put_base(&client->run->spool, process->number, FACTS_ELSEWHERE, 0, SL_RING_FREE, &process->elsewhere_base);
}
