#include "services/watchdog.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "services/follow.h"

#define LOOK_PERIOD_NS INT64_C(1000000000)
#define LOOK_BUDGET_NS INT64_C(2000000)     // of one turn of the loop
#define GATHER_NS      INT64_C(1500000000)  // from the first stuck lane to the alert: the others are found meanwhile

// ---- what is stuck

// The longest finished call of a region, over all ranks: asked for seldom, and mostly of the same region again.
static int64_t longest_of(const struct run *run, uint32_t name)
{
    int64_t longest_ns = 0;
    for (uint32_t i = 0; i < run->model.process_count; i++) {
        const struct model_process *process = run->model.processes[i];
        for (uint32_t id = 0; id < process->region_count; id++) {
            const struct model_region *region = &process->regions[id];
            if (!region->file || region->name != name || !region->calls)
                continue;
            int64_t length_ns = model_length_ns(&run->model, process, region->maximum);
            longest_ns = length_ns > longest_ns ? length_ns : longest_ns;
        }
    }
    return longest_ns;
}

static int64_t longest_kept(const struct run *run, uint32_t name, int64_t now_ns)
{
    static struct {
        const struct run *run;
        uint32_t name;
        int64_t now_ns, longest_ns;
    } kept;
    if (kept.run != run || kept.name != name || kept.now_ns != now_ns) {
        kept.longest_ns = longest_of(run, name);
        kept.run = run;
        kept.name = name;
        kept.now_ns = now_ns;
    }
    return kept.longest_ns;
}

bool watchdog_measure(const struct page *page, const struct lane *lane, struct quiet *quiet)
{
    const struct settings *settings = &page->daemon->settings;
    int64_t least_ns = page->filter->has_after ? page->filter->after_ns : (int64_t)settings->stuck_after * 1000000;
    if (!lane->view || !lane->view->depth || lane->view->moving || !lane->view->since)
        return false;
    quiet->quiet_ns = row_ago(page, lane->run, lane->process, lane->view->since);
    if (quiet->quiet_ns < least_ns)
        return false;
    quiet->name = model_region(lane->process, lane->view->calls[lane->view->depth - 1].region)->name;
    quiet->longest_ns = longest_kept(lane->run, quiet->name, page->now_ns);
    quiet->limit_ns = least_ns;
    int64_t longer_ns;
    if (__builtin_mul_overflow(quiet->longest_ns, (int64_t)settings->stuck_factor, &longer_ns))
        longer_ns = INT64_MAX;
    if (!page->filter->has_after && longer_ns > least_ns)
        quiet->limit_ns = longer_ns;
    return quiet->quiet_ns >= quiet->limit_ns;
}

// ---- looking

// Rising in the order of a look.
static uint64_t place_of(const struct stuck *lane)
{
    return lane->task != SL_TASK_NONE ? UINT64_C(1) << 32 | lane->task : lane->thread;
}

// The lane in a list of a look, with nothing done since; NULL.
static const struct stuck *find(const struct stuck *list, uint32_t count, const struct stuck *lane)
{
    uint32_t from = 0, to = count;
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (place_of(&list[middle]) < place_of(lane))
            from = middle + 1;
        else
            to = middle;
    }
    return from < count && place_of(&list[from]) == place_of(lane) && list[from].since == lane->since ? &list[from] : NULL;
}

static void members_of_lane(struct json_writer *json, const struct client *client, const struct stuck *lane)
{
    bool is_task = lane->task != SL_TASK_NONE;
    row_member_rank(json, "rank", client->process->status.rank, SL_RANK_NONE);
    jsonw_member_uint(json, "pid", client->process->facts.pid);
    jsonw_member_int(json, "lane", model_lane(is_task ? FACTS_NO_THREAD : lane->thread, lane->task));
    jsonw_member_text(json, "region", client->run->model.names[lane->name].text);
}

static void tell(struct client *client, const struct stuck *lane, const char *state)
{
    struct json_writer *json = follow_begin(client->run, "lane");
    if (!json)
        return;
    members_of_lane(json, client, lane);
    jsonw_member_text(json, "state", state);
    follow_tell(client->run, client->process);
}

static void look_at_lane(struct page *page, const struct lane *lane, void *context)
{
    struct client *client = context;
    struct quiet quiet;
    if (!watchdog_measure(page, lane, &quiet))
        return;
    struct stuck stuck = {.thread = lane->thread, .task = lane->task, .since = lane->view->since, .name = quiet.name};
    if (client->looking_count == client->looking_room) {
        client->looking_room = client->looking_room ? client->looking_room * 2 : 8;
        client->looking = alloc_resize(client->looking, client->looking_room, sizeof *client->looking);
    }
    client->looking[client->looking_count++] = stuck;
}

// What was stuck and is so no more has gone on. An alert may have been raised since the look began.
static void end_look(struct client *client)
{
    for (uint32_t i = 0; i < client->stuck_count; i++)
        if (!find(client->looking, client->looking_count, &client->stuck[i]))
            tell(client, &client->stuck[i], "goes on");
    for (uint32_t i = 0; i < client->looking_count; i++) {
        const struct stuck *known = find(client->stuck, client->stuck_count, &client->looking[i]);
        client->looking[i].alerted = known && known->alerted;
        if (!known)
            tell(client, &client->looking[i], "stuck");
    }
    free(client->stuck);
    client->stuck = client->looking;
    client->stuck_count = client->looking_count;
    client->looking = NULL;
    client->looking_count = client->looking_room = client->looking_part = 0;
}

// A part of its lanes; true when that was the last.
static bool look_at_part(struct client *client, int64_t now_ns)
{
    static const struct row_filter everything;
    struct page page = {.daemon = client->daemon, .filter = &everything, .now_ns = now_ns};
    bool is_paused = sl_load_relaxed(&segment_header(&client->segment)->control) & 1;
    if (client->daemon->settings.stuck_after && !is_paused &&
        lanes_visit_part(&page, client->run, client->process, client->looking_part++, look_at_lane, client))
        return false;
    end_look(client);
    return true;
}

void watchdog_forget(struct client *client)
{
    free(client->stuck);
    free(client->looking);
    client->stuck = client->looking = NULL;
    client->stuck_count = client->looking_count = client->looking_room = client->looking_part = 0;
}

// ---- alerts

// Lanes of the run that no alert has told of; they are marked as told of when asked to.
static uint32_t count_new(struct run *run, bool mark)
{
    uint32_t count = 0;
    for (struct client *client = run->daemon->clients; client; client = client->next)
        for (uint32_t i = 0; client->run == run && i < client->stuck_count; i++) {
            count += !client->stuck[i].alerted;
            client->stuck[i].alerted |= mark;
        }
    return count;
}

// Not before the others have been looked at too, nor sooner than stuck-after after the last one.
static void alert_if_due(struct run *run, int64_t now_ns)
{
    int64_t pause_ns = (int64_t)run->daemon->settings.stuck_after * 1000000;
    if (!count_new(run, false)) {
        run->stuck_since_ns = 0;
        return;
    }
    if (!run->stuck_since_ns)
        run->stuck_since_ns = now_ns;
    if (now_ns - run->stuck_since_ns < GATHER_NS || (run->alerted_ns && now_ns - run->alerted_ns < pause_ns))
        return;
    run->alerted_ns = now_ns;
    run->stuck_since_ns = 0;
    alert_raise(run, count_new(run, true));
}

// False when there is more to do than a turn of the loop may take.
static bool look_at_client(struct client *client, int64_t now_ns)
{
    do {
        if (clock_monotonic_ns() - now_ns > LOOK_BUDGET_NS)
            return false;
    } while (!look_at_part(client, now_ns));
    client->looked_ns = now_ns;
    return true;
}

// One whose look is in progress, else the one that has waited longest.
static struct client *next_due(const struct daemon *daemon, int64_t now_ns)
{
    struct client *next = NULL;
    for (struct client *client = daemon->clients; client; client = client->next) {
        if (client->gone || client->broken || now_ns - client->looked_ns < LOOK_PERIOD_NS)
            continue;
        if (client->looking_part)
            return client;
        if (!next || client->looked_ns < next->looked_ns)
            next = client;
    }
    return next;
}

void watchdog_run(struct daemon *daemon)
{
    int64_t now_ns = clock_monotonic_ns();
    struct client *client;
    while ((client = next_due(daemon, now_ns)) && look_at_client(client, now_ns))
        ;
    for (struct run *run = daemon->runs; run; run = run->next)
        if (run->state == RUN_RECORDING)
            alert_if_due(run, now_ns);
}
