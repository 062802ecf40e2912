// Pausing: processes that record nothing for the time being. A word in the segment says so (proto/lane.h), and each lane's
// `entries` makes the client look at it at its next call. Lanes that are made at this very moment are caught up with a
// second later; until then they lose nothing but that second.
#include "base/clock.h"
#include "services/daemon.h"

static void settle_lane(struct sl_lane *lane, uint32_t entries)
{
    if (sl_load_relaxed(&lane->entries) != entries)
        sl_store_relaxed(&lane->entries, entries);
}

static void settle(struct client *client)
{
    struct segment *segment = &client->segment;
    if (client->gone || client->broken || !segment_refresh(segment))
        return;
    for (uint32_t i = 0; i < segment->slot_count; i++)
        settle_lane(sl_ring_lane(segment_ring(segment, i)), client->paused ? 0 : SL_THREAD_ENTRIES);
    for (uint32_t i = 0; i < segment->task_extents; i++) {
        const struct segment_rows *rows = &segment->tasks[i];
        struct sl_task_row *row =
            (struct sl_task_row *)segment_at(segment, rows->offset, (uint64_t)rows->count * sizeof *row);
        for (uint32_t j = 0; row && j < rows->count; j++)
            if (sl_load_acquire(&row[j].state) == SL_ROW_LIVE)
                settle_lane(&row[j].lane, client->paused ? 0 : SL_TASK_ENTRIES);
    }
}

// In the spool, so that the run file tells of it.
void pause_note(struct client *client)
{
    int64_t now_ns = clock_monotonic_ns();
    if (!client->gone && model_set_paused(client->process, client->paused, now_ns))
        spool_put_paused(&client->run->spool, client->process->number, client->paused, now_ns);
}

void pause_client(struct client *client, bool paused)
{
    struct sl_segment *header = segment_header(&client->segment);
    uint32_t control = sl_load_relaxed(&header->control) & ~SL_CONTROL_PAUSED;
    client->paused = paused;
    client->unsettled = true;
    pause_note(client);
    sl_store_release(&header->control, paused ? control | SL_CONTROL_PAUSED : control);
    settle(client);
}

void pause_adopted(struct client *client)
{
    bool paused = sl_load_relaxed(&segment_header(&client->segment)->control) & SL_CONTROL_PAUSED;  // by a daemon before us
    if (paused || client->run->paused)
        pause_client(client, true);
    else
        pause_note(client);  // resumed, and the daemon before us could not say so any more
}

void pause_check(struct daemon *daemon)
{
    for (struct client *client = daemon->clients; client; client = client->next)
        if (client->paused || client->unsettled) {
            client->unsettled = false;
            settle(client);
        }
}
