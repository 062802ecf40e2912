// Runs: the processes that end up in one file.
//
//    RECORDING ──over──> CONVERTING ──converter done──> PUBLISHED
//                             └──────failed──────────> FAILED (the spool stays)
//
// A run is over when its last process has ended and a second has passed, when the commands that wait for it have all left, on
// `finish`, or with the daemon. A process that comes later, or lives on, opens a continuation (-2.h5, …): what is published is
// never rewritten. The run file is written by a process of its own, with the run owner's identity.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/say.h"
#include "base/testpoint.h"
#include "core/procfs.h"
#include "services/converter.h"
#include "services/daemon.h"
#include "services/follow.h"
#include "services/watchdog.h"

#define IDLE_END_NS         1000000000     // after the last process
#define LATE_MEMBER_NS      10000000000    // for commands of a launcher that have not come yet
#define SYNC_PERIOD_NS      5000000000
enum { ANCHORS_KEPT = 1024, TASKS_KEPT = 10000, OCTAVES_KEPT = 1 << 15 /* 8 MiB */, RUNS_KEPT = 64, JOINED_MAX = 256, CONVERSIONS = 3,
       ANCESTORS_MAX = 64 };

static const char *const state_names[] = {"recording", "converting", "published", "failed"};

const char *runs_state_name(const struct run *run)
{
    return state_names[run->state];
}

// ---- making

static void make_id(struct run *run)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)clock_monotonic_ns() ^ (uint64_t)getpid() << 40;
    snprintf(run->id, sizeof run->id, "%016llx", (unsigned long long)number);
}

static struct run *make_run(struct daemon *daemon, const char *key, uid_t uid, gid_t gid)
{
    struct run *run = alloc_zeroed(1, sizeof *run);
    run->daemon = daemon;
    run->key = alloc_text(key);
    run->uid = uid;
    run->gid = gid;
    run->part = 1;
    run->schema = 2;
    run->number = ++daemon->runs_made;
    run->spool.fd = -1;
    make_id(run);
    model_init(&run->model, daemon->clock_kind, ANCHORS_KEPT, TASKS_KEPT);
    run->model.octaves_kept = OCTAVES_KEPT;
    run->next = daemon->runs;
    daemon->runs = run;
    return run;
}

static void run_free(struct run *run)
{
    model_finish(&run->model);
    if (run->spool.fd >= 0)
        spool_close(&run->spool);
    free(run->spool.path);
    buffer_finish(&run->spool.pending);
    free(run->key);
    free(run->output);
    free(run->problem);
    free(run->members);
    free(run->unable_words);
    free(run);
}

// The newest run of a key.
static struct run *find_key(const struct daemon *daemon, const char *key)
{
    for (struct run *run = daemon->runs; run; run = run->next)
        if (strcmp(run->key, key) == 0)
            return run;
    return NULL;
}

bool runs_is_called(const struct run *run, const char *name)
{
    const char *last = strrchr(run->key, ':');
    return strcmp(run->id, name) == 0 || strcmp(run->key, name) == 0 || (last && strcmp(last + 1, name) == 0);
}

struct run *runs_find(const struct daemon *daemon, const char *name, uid_t uid)
{
    for (struct run *run = daemon->runs; run; run = run->next)
        if (runs_is_called(run, name) && (run->uid == uid || uid == 0))
            return run;
    return NULL;
}

// The run of a key that still takes processes; a continuation where the last one is over.
static struct run *open_run(struct daemon *daemon, const char *key, uid_t uid, gid_t gid, bool *is_new)
{
    struct run *run = find_key(daemon, key);
    *is_new = !run || run->state != RUN_RECORDING || run->sealed;
    if (!*is_new)
        return run;
    struct run *made = make_run(daemon, key, uid, gid);
    if (run) {
        made->part = run->part + 1;
        made->schema = run->schema;
        made->compress = run->compress;
        char *stem = run->part == 1 ? alloc_text(run->output) : NULL;
        if (!stem) {  // the first part's name is what the number is added to
            const struct run *first = run;
            for (const struct run *other = daemon->runs; other; other = other->next)
                if (strcmp(other->key, key) == 0 && other->part == 1)
                    first = other;
            stem = alloc_text(first->output);
        }
        made->output = run_output_continuation(stem, made->part);
        free(stem);
    }
    return made;
}

// A process, then its parent, and so on, as far as /proc knows them: {pid, 0} where the next one up has ended meanwhile.
struct ascent {
    uint32_t pid, parent_pid;
    uint64_t start_time, parent_start_time;  // 0 not known
    int depth;
};

static struct ascent ascent_from(const struct client *client)
{
    const struct sl_segment *identity = &client->segment.identity;
    return (struct ascent){.pid = (uint32_t)client->pid, .start_time = client->start_time, .parent_pid = identity->parent_pid,
                           .parent_start_time = identity->parent_start_time};
}

static bool ascend(struct ascent *at)
{
    struct procfs_stat stat;
    if (at->parent_pid <= 1 || ++at->depth >= ANCESTORS_MAX)
        return false;
    bool is_there = procfs_stat(at->parent_pid, 0, &stat) == 0 && (!at->parent_start_time || stat.start_time == at->parent_start_time);
    at->pid = at->parent_pid;
    at->start_time = is_there ? stat.start_time : at->parent_start_time;
    at->parent_pid = is_there ? stat.parent_pid : 0;
    at->parent_start_time = 0;
    return true;
}

static bool has_process(const struct run *run, uint32_t pid, uint64_t start_time)
{
    for (uint32_t i = 0; i < run->model.process_count; i++) {
        const struct process_facts *facts = &run->model.processes[i]->facts;
        if (facts->pid == pid && facts->start_time == start_time)
            return true;
    }
    return false;
}

// The key of a process without one of its own: the run of what it was before an exec, of its nearest registered ancestor (also
// of one that has ended: its child may have come to us later), else its own. Other users' processes are no ancestors.
static char *key_by_ancestors(struct daemon *daemon, const struct client *client, uid_t uid)
{
    struct ascent at = ascent_from(client);
    do
        for (const struct run *run = daemon->runs; run; run = run->next)
            if (run->uid == uid && has_process(run, at.pid, at.start_time))
                return alloc_text(run->key);
    while (ascend(&at));
    const uint8_t *uuid = client->segment.identity.uuid;
    return alloc_printf("%u:own:%02x%02x%02x%02x%02x%02x%02x%02x", (unsigned)client->segment.identity.uid, uuid[0], uuid[1], uuid[2],
                        uuid[3], uuid[4], uuid[5], uuid[6], uuid[7]);
}

void runs_find_parent(const struct run *run, const struct client *client, struct process_facts *facts)
{
    for (struct ascent at = ascent_from(client); ascend(&at);)
        if (has_process(run, at.pid, at.start_time)) {
            facts->parent_pid = at.pid;
            facts->parent_start_time = at.start_time;
            return;
        }
}

struct run *runs_for_client(struct daemon *daemon, const struct client *client, uid_t uid, gid_t gid)
{
    const char *named = client->segment.identity.run_key;
    char *key = *named ? alloc_printf("%u:%s", (unsigned)uid, named) : key_by_ancestors(daemon, client, uid);
    bool is_new;
    struct run *run = open_run(daemon, key, uid, gid, &is_new);
    free(key);
    if (!is_new)
        return run;
    if (!run->output)
        run->output = run_output_default(run, client);
    if (run_spool_make(run) < 0)
        say("%s; the calls of this run are counted as lost", run->problem);
    return run;
}

// Each has a descriptor here, and a user could ask for one after another.
static int waiting_runs(const struct daemon *daemon, uid_t uid)
{
    int count = 0;
    for (const struct run *run = daemon->runs; run; run = run->next)
        count += run->uid == uid && run->state == RUN_RECORDING && run->model.process_count == 0;
    return count;
}

struct run *runs_join(struct daemon *daemon, const struct join *join, uid_t uid, gid_t gid, pid_t pid, char *problem, size_t size)
{
    char *full = alloc_printf("%u:run:%s", (unsigned)uid, join->key);
    struct procfs_stat stat = {0};
    bool is_new = false;
    struct run *run = join->again && *join->again ? runs_find(daemon, join->again, uid) : NULL;
    if (!run && waiting_runs(daemon, uid) >= JOINED_MAX) {
        snprintf(problem, size, "%d runs of yours wait for a process already", JOINED_MAX);
        free(full);
        return NULL;
    }
    if (!run)
        run = open_run(daemon, full, uid, gid, &is_new);
    free(full);
    if (is_new) {
        if (!run->output)
            run->output = alloc_text(join->output);
        run->schema = join->schema;
        run->compress = join->compress;
        if (run_spool_make(run) < 0) {
            snprintf(problem, size, "%s", run->problem);
            daemon->runs = run->next;  // it is the newest; who asked knows why there is none
            run_free(run);
            return NULL;
        }
    }
    procfs_stat((uint32_t)pid, 0, &stat);
    for (uint32_t i = 0; i < run->member_count; i++)
        if (run->members[i].pid == pid && run->members[i].start_time == stat.start_time)
            return run;  // it had heard no answer
    run->members = alloc_resize(run->members, run->member_count + 1, sizeof *run->members);
    run->members[run->member_count++] = (struct member){.pid = pid, .start_time = stat.start_time};
    if (join->expected > run->members_expected)
        run->members_expected = join->expected;
    daemon->had_member = true;
    return run;
}

bool runs_leave(struct run *run, pid_t pid)
{
    for (uint32_t i = 0; i < run->member_count; i++)
        if (run->members[i].pid == pid && !run->members[i].left) {
            run->members[i].left = true;
            return true;
        }
    return false;
}

void runs_note_exit(struct run *run, uint32_t pid, int exit_status)
{
    for (uint32_t i = run->model.process_count; i > 0; i--) {
        struct model_process *process = run->model.processes[i - 1];
        struct process_status *status = &process->status;
        if (process->facts.pid != pid)
            continue;
        if (status->has_exit || status->state <= PROCESS_DEAF)
            return;
        status->has_exit = 1;
        status->exit_status = exit_status;
        if (exit_status < 0)
            status->state = PROCESS_KILLED;
        if (run->state == RUN_RECORDING)
            spool_put_status(&run->spool, process->number, status);
        return;
    }
}

void runs_note_unable(struct daemon *daemon, uid_t uid, const char *key, pid_t pid, const char *path, int error)
{
    say("process %d records nothing: it cannot make its segment %s: %s", (int)pid, path, strerror(error));
    char *full = alloc_printf("%u:%s", (unsigned)uid, key);
    struct run *run = *key ? find_key(daemon, full) : NULL;
    free(full);
    if (!run)
        return;
    run->unable++;
    free(run->unable_words);
    run->unable_words = alloc_printf("cannot make the segment %s: %s", path, strerror(error));
}

// ---- what a daemon before us left

struct run *runs_restore(struct daemon *daemon, struct spool_reader *reader, uid_t uid, gid_t gid)
{
    struct run *run = make_run(daemon, reader->run.key, uid, gid);
    memcpy(run->id, reader->run.id, sizeof reader->run.id);
    run->output = alloc_text(reader->run.output);
    run->part = reader->run.part && atoi(reader->run.part) > 0 ? (uint32_t)atoi(reader->run.part) : 1;
    run->schema = reader->run.form && *reader->run.form == '3' ? 3 : 2;
    run->compress = reader->run.form && strchr(reader->run.form, 'z');
    run->restored = true;
    run->idle_since_ns = clock_monotonic_ns();
    struct spool_frame frame;
    while (spool_next(reader, &frame))
        spool_apply(reader, &run->model, &frame, NULL);
    TESTPOINT(run_restored);
    return run;
}

bool runs_wait_for_restored(const struct run *run)
{
    for (uint32_t i = 0; i < run->model.process_count; i++)
        if (run->model.processes[i]->status.state < PROCESS_ENDED)
            return true;
    return false;
}

// ---- ending

static void convert(struct run *run);

// Killed, by who needs memory for one, it is tried again.
static void on_converted(struct converter *converter, void *context)
{
    struct run *run = context;
    run->converter = NULL;
    if (converter->signal_number && run->conversions < CONVERSIONS) {
        say("run %s: %s; its file is made once more", run->id, converter->problem);
        convert(run);
        follow_run(run);
        return;
    }
    if (!converter->problem) {
        run->state = RUN_PUBLISHED;
        TESTPOINT(converter_succeeded);
        run_spool_drop(run);
        say_detail("run %s: %s", run->id, run->output);
    } else {
        run->state = RUN_FAILED;
        free(run->problem);
        run->problem = alloc_printf("%s; the spool %s is kept", converter->problem, run->spool.path);
        say("run %s: %s", run->id, run->problem);
    }
    free(run->spool.path);
    run->spool.path = NULL;
    follow_run(run);
}

static void convert(struct run *run)
{
    int result = converter_start(run, 0, run->output, on_converted, run, &run->converter);
    run->conversions++;
    if (result == 0)
        return;
    run->state = RUN_FAILED;
    free(run->problem);
    run->problem = alloc_printf("cannot start the converter: %s; the spool %s is kept", uv_strerror(result), run->spool.path);
    say("run %s: %s", run->id, run->problem);
}

// A process that lives on when its run ends goes on in a continuation; what it has told is read again from its segment.
static void move_client(struct client *client, struct run *to)
{
    struct model_process *before = client->process;
    client->run->clients--;
    client->run = to;
    to->clients++;
    to->idle_since_ns = 0;
    client->process = model_add_process(&to->model, &before->facts);
    client->process->host = alloc_text(before->host);
    spool_put_process(&to->spool, client->process);
    TESTPOINT(client_moved);
    for (uint32_t i = 0; i < client->segment.slot_count; i++) {
        struct model_slot *slot = model_slot(client->process, i), *old = model_slot(before, i);
        slot->next = old->next;
        slot->owner = old->owner;
        slot->base = old->base;
        model_rebase(&slot->base, &old->ledger);
        spool_put_base(&to->spool, client->process->number, i, slot->next, slot->owner, &slot->base);
    }
    client->process->elsewhere_base = before->elsewhere_base;
    model_rebase(&client->process->elsewhere_base, &before->elsewhere);
    spool_put_base(&to->spool, client->process->number, FACTS_ELSEWHERE, 0, SL_RING_FREE, &client->process->elsewhere_base);
    pause_note(client);
    segment_rewind_strings(&client->segment);
    for (uint32_t i = 0; i < client->thread_rows; i++)
        client->thread_versions[i] = 0;
    for (uint32_t i = 0; i < client->task_rows; i++)
        client->task_versions[i] = 0;
    client->tasks_scanned_ns = client->ledger_ns = client->open_ns = 0;
    client->unmatched_said = client->told_state = 0;
    watchdog_forget(client);  // its regions have other numbers there
}

void runs_continue(struct client *client)
{
    const struct run *run = client->run;
    bool is_new;
    struct run *next = open_run(run->daemon, run->key, run->uid, run->gid, &is_new);
    next->paused |= run->paused;
    if (is_new && run_spool_make(next) < 0)
        say("%s; the calls of this run are counted as lost", next->problem);
    move_client(client, next);
}

static void keep_the_living(struct run *run, bool written)
{
    for (struct client *client = run->daemon->clients; client; client = client->next) {
        if (client->run != run)
            continue;
        if (written)
            parts_end(client);
        TESTPOINT(part_ended);
        if (!run->daemon->ending)  // at our end it stays in its segment, for the next daemon
            runs_continue(client);
    }
}

static void seal_and_convert(struct run *run)
{
    struct daemon *daemon = run->daemon;
    for (struct client *client = daemon->clients, *next; client; client = next) {
        next = client->next;
        if (client->run != run)
            continue;
        pump_client(client, true);
        if (client->gone)  // nothing of it is to come; it has no place in a continuation
            client_close(client);
    }
    if (!run->sealed) {  // the clock of another boot is another
        run_spool_anchors(run);
        spool_put_end(&run->spool, clock_monotonic_ns());
    }
    int result = runs_flush(run);
    TESTPOINT(run_ended);
    run->state = RUN_CONVERTING;
    keep_the_living(run, result == 0);
    TESTPOINT(living_kept);
    if (!run->has_spool) {
        run->state = RUN_FAILED;
        return;
    }
    if (result < 0) {
        run->state = RUN_FAILED;
        free(run->problem);
        run->problem = alloc_printf("cannot write the spool %s: %s; it is kept, without what was recorded last", run->spool.path,
                                    strerror(-result));
        say("run %s: %s", run->id, run->problem);
        return;
    }
    background_sync(run);
    spool_drop_windows(&run->spool);
    close(run->spool.fd);
    run->spool.fd = -1;
    buffer_finish(&run->spool.pending);
    if (run->model.process_count == 0) {  // nobody came: no file
        run_spool_drop(run);
        run->state = RUN_PUBLISHED;
        return;
    }
    convert(run);
}

void runs_finish(struct run *run)
{
    if (run->state == RUN_RECORDING)
        seal_and_convert(run);
    follow_run(run);
}

int runs_snapshot(struct run *run, const char *output, void (*done)(struct converter *, void *), void *context,
                  struct converter **converter)
{
    if (run->state != RUN_RECORDING || !run->has_spool)
        return -EINVAL;
    for (struct client *client = run->daemon->clients; client; client = client->next)
        if (client->run == run)
            pump_client(client, true);
    run_spool_anchors(run);
    int result = runs_flush(run);
    return result < 0 ? result : converter_start(run, run->spool.size_bytes, output, done, context, converter);
}

static bool member_is_there(const struct member *member)
{
    return !member->left && procfs_is_alive((uint32_t)member->pid, member->start_time);
}

static bool members_are_done(const struct run *run, int64_t now_ns)
{
    for (uint32_t i = 0; i < run->member_count; i++)
        if (member_is_there(&run->members[i]))
            return false;
    bool all_came = run->member_count >= run->members_expected;
    return all_came || (run->idle_since_ns && now_ns - run->idle_since_ns > LATE_MEMBER_NS);
}

static bool is_over(const struct run *run, int64_t now_ns)
{
    if (run->finish_asked || run->sealed)
        return true;
    if (run->member_count)
        return members_are_done(run, now_ns);
    if (run->restored && runs_wait_for_restored(run))
        return false;
    return run->clients == 0 && run->idle_since_ns && now_ns - run->idle_since_ns > IDLE_END_NS;
}

void runs_check(struct daemon *daemon)
{
    int64_t now_ns = clock_monotonic_ns();
    for (struct run *run = daemon->runs, *next; run; run = next) {
        next = run->next;
        follow_run(run);
        if (run->state != RUN_RECORDING)
            continue;
        if (is_over(run, now_ns))
            runs_finish(run);
        else if (run->has_spool && now_ns - run->spool.synced_ns > SYNC_PERIOD_NS)
            background_sync(run);
    }
}

bool runs_settled(const struct daemon *daemon)
{
    for (const struct run *run = daemon->runs; run; run = run->next) {
        if (run->state == RUN_RECORDING || run->state == RUN_CONVERTING)
            return false;
        for (uint32_t i = 0; i < run->member_count; i++)  // those who wait for the outcome have to hear it
            if (procfs_is_alive((uint32_t)run->members[i].pid, run->members[i].start_time))
                return false;
    }
    return true;
}

void runs_forget(struct daemon *daemon)
{
    unsigned kept = 0;
    if (daemon->listings)  // one in the making may be of it
        return;
    for (struct run **place = &daemon->runs; *place;) {
        struct run *run = *place;
        bool over = run->state == RUN_PUBLISHED || run->state == RUN_FAILED;
        if (over && run->clients == 0 && !run->converters && !run->syncing && !run->readying && ++kept > RUNS_KEPT) {
            *place = run->next;
            run_free(run);
        } else {
            place = &run->next;
        }
    }
}

void runs_free_all(struct daemon *daemon)
{
    while (daemon->runs) {
        struct run *run = daemon->runs;
        daemon->runs = run->next;
        run_free(run);
    }
}
