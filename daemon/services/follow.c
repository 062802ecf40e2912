#include "services/follow.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "services/query-page.h"

struct follower {
    struct follower *next;
    struct daemon *daemon;
    struct http_request *request;
    bool sees_all;
    char *run;  // only this one; NULL all
    int64_t rank, pid;
    bool has_rank, has_pid;  // only of such processes
    bool tasks;
    struct buffer queue;  // whole lines
    size_t sent;          // of it
    uint64_t lost;        // lines since the last that fitted
    bool ended;
};

static const char *const process_states[] = PROCESS_STATE_NAMES;
const char *const follow_parameters[] = {"run", "rank", "pid", "tasks", NULL};

// ---- queues

static bool sees(const struct follower *follower, const struct run *run)
{
    return (follower->sees_all || follower->request->peer.uid == run->uid) && (!follower->run || runs_is_called(run, follower->run));
}

// Lines of a run as a whole (NULL) are for all who see it.
static bool hears_of(const struct follower *follower, const struct model_process *process)
{
    return !process || ((!follower->has_rank || follower->rank == process->status.rank) &&
                        (!follower->has_pid || follower->pid == process->facts.pid));
}

static void make_room(struct follower *follower)
{
    struct buffer *queue = &follower->queue;
    if (follower->sent < queue->length / 2)
        return;
    queue->length -= follower->sent;
    memmove(queue->data, queue->data + follower->sent, queue->length);
    follower->sent = 0;
}

static void put(struct follower *follower, const struct buffer *line)
{
    if (follower->queue.length - follower->sent + line->length > follower->daemon->settings.reply_size) {
        follower->lost++;
        follower->daemon->follow_lost++;
        return;
    }
    if (follower->sent)
        make_room(follower);
    buffer_append(&follower->queue, line->data, line->length);
}

// ---- lines

static struct buffer line;
static struct json_writer json;

static struct json_writer *open_line(const char *event)
{
    buffer_clear(&line);
    jsonw_init(&json, &line);
    jsonw_object(&json);
    jsonw_member_time(&json, "time_ns", clock_monotonic_ns());
    jsonw_member_text(&json, "event", event);
    return &json;
}

static void close_line(void)
{
    jsonw_object_end(&json);
    buffer_append(&line, "\n", 1);
}

struct json_writer *follow_begin(const struct run *run, const char *event)
{
    if (!run->daemon->followers)
        return NULL;
    open_line(event);
    jsonw_member_text(&json, "run", run->id);
    return &json;
}

static void tell(const struct run *run, const struct model_process *process, bool is_task)
{
    close_line();
    for (struct follower *follower = run->daemon->followers; follower; follower = follower->next)
        if (sees(follower, run) && hears_of(follower, process) && (!is_task || follower->tasks)) {
            put(follower, &line);
            http_wake(follower->request);
        }
}

void follow_tell(const struct run *run, const struct model_process *process)
{
    tell(run, process, false);
}

static void members_of_run(const struct run *run)
{
    jsonw_member_text(&json, "state", runs_state_name(run));
    jsonw_member_text(&json, "file", run->output);
    jsonw_member_text(&json, "problem", run->problem);
}

static void members_of_process(const struct model_process *process)
{
    jsonw_member_text(&json, "host", process->host);
    row_member_rank(&json, "rank", process->status.rank, SL_RANK_NONE);
    jsonw_member_uint(&json, "pid", process->facts.pid);
}

static void member_state_of(const struct model_process *process)
{
    jsonw_member_text(&json, "state", process_states[process->status.state]);
    jsonw_member_text(&json, "program", process->program);
    if (process->status.has_exit)
        jsonw_member_int(&json, "exit_status", process->status.exit_status);
    else
        jsonw_member_null(&json, "exit_status");
}

void follow_run(struct run *run)
{
    uint32_t state = 1u + run->state;
    if (run->told_state == state)
        return;
    run->told_state = state;
    if (!follow_begin(run, "run"))
        return;
    members_of_run(run);
    follow_tell(run, NULL);
}

void follow_client(struct client *client)
{
    uint32_t state = 1u + client->process->status.state;
    if (client->told_state == state)
        return;
    client->told_state = state;
    follow_run(client->run);
    if (!follow_begin(client->run, "process"))
        return;
    members_of_process(client->process);
    member_state_of(client->process);
    follow_tell(client->run, client->process);
}

void follow_thread(const struct client *client, const struct thread_facts *facts, const char *name, bool ended)
{
    if (!follow_begin(client->run, "thread"))
        return;
    members_of_process(client->process);
    jsonw_member_uint(&json, "index", facts->index);
    jsonw_member_uint(&json, "native_id", facts->native_id);
    jsonw_member_text(&json, "name", name);
    jsonw_member_text(&json, "state", ended ? "ended" : "live");
    follow_tell(client->run, client->process);
}

void follow_task(const struct client *client, const struct task_facts *facts, const char *name, bool ended)
{
    if (!follow_begin(client->run, "task"))
        return;
    members_of_process(client->process);
    jsonw_member_uint(&json, "index", facts->index);
    jsonw_member_text(&json, "kind", model_word(client->process, facts->kind));
    jsonw_member_text(&json, "name", name);
    jsonw_member_text(&json, "state", ended ? "done" : "live");
    tell(client->run, client->process, true);
}

// ---- a follower

static void put_lost(struct follower *follower)
{
    open_line("lost");
    jsonw_member_uint(&json, "lines", follower->lost);
    close_line();
    follower->lost = 0;
    put(follower, &line);
}

static ssize_t read_lines(struct http_request *request, char *into, size_t room)
{
    struct follower *follower = request->state;
    struct buffer *queue = &follower->queue;
    if (follower->lost && queue->length - follower->sent < follower->daemon->settings.reply_size / 2)
        put_lost(follower);
    size_t count = queue->length - follower->sent;
    if (!count)
        return follower->ended ? HTTP_STREAM_END : HTTP_STREAM_WAIT;
    count = count < room ? count : room;
    memcpy(into, queue->data + follower->sent, count);
    follower->sent += count;
    if (follower->sent == queue->length) {
        buffer_clear(queue);
        follower->sent = 0;
    }
    return (ssize_t)count;
}

static void release(void *state)
{
    struct follower *follower = state, **place = &follower->daemon->followers;
    while (*place != follower)
        place = &(*place)->next;
    *place = follower->next;
    buffer_finish(&follower->queue);
    free(follower->run);
    free(follower);
}

// How things stand at the beginning: runs that are not over, and their processes that live.
static void put_state(struct follower *follower)
{
    const struct daemon *daemon = follower->daemon;
    open_line("hello");
    jsonw_member_text(&json, "schema", "scoped-lane/follow/1");
    jsonw_member_text(&json, "host", daemon->host);
    close_line();
    put(follower, &line);
    for (const struct run *run = daemon->runs; run; run = run->next) {
        if (!sees(follower, run) || run->state > RUN_CONVERTING)
            continue;
        open_line("run");
        jsonw_member_text(&json, "run", run->id);
        members_of_run(run);
        jsonw_member_bool(&json, "initial", true);
        close_line();
        put(follower, &line);
    }
    for (const struct client *client = daemon->clients; client; client = client->next) {
        if (!sees(follower, client->run) || !hears_of(follower, client->process))
            continue;
        open_line("process");
        jsonw_member_text(&json, "run", client->run->id);
        members_of_process(client->process);
        member_state_of(client->process);
        jsonw_member_bool(&json, "initial", true);
        close_line();
        put(follower, &line);
    }
}

int follow_get(void *context, struct http_request *request, struct http_reply *reply)
{
    struct daemon *daemon = context;
    const char *run = http_query(request, "run");
    struct follower *follower = alloc_zeroed(1, sizeof *follower);
    *follower = (struct follower){.next = daemon->followers, .daemon = daemon, .request = request,
                                  .sees_all = query_sees_all(daemon, request), .run = run ? alloc_text(run) : NULL,
                                  .tasks = http_query(request, "tasks") != NULL};
    if (query_integer(request, reply, "rank", &follower->rank, &follower->has_rank) < 0 ||
        query_integer(request, reply, "pid", &follower->pid, &follower->has_pid) < 0) {
        free(follower->run);
        free(follower);
        return 0;
    }
    daemon->followers = follower;
    request->state = follower;
    request->release = release;
    put_state(follower);
    reply->content_type = "application/x-ndjson";
    reply->read = read_lines;
    return 0;
}

void follow_end(struct daemon *daemon)
{
    for (struct follower *follower = daemon->followers; follower; follower = follower->next) {
        follower->ended = true;
        http_wake(follower->request);
    }
}

void follow_counts(const struct daemon *daemon, unsigned *followers, uint64_t *lost)
{
    *followers = 0;
    *lost = daemon->follow_lost;
    for (const struct follower *follower = daemon->followers; follower; follower = follower->next)
        ++*followers;
}
