// The answers on query.sock: envelope, paging, filters, and what commands ask for. The rows are in query-rows.c.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "services/converter.h"
#include "services/daemon.h"
#include "services/follow.h"
#include "services/http.h"
#include "services/metrics.h"
#include "services/query-rows.h"
#include "services/watchdog.h"

enum { CURSOR_BYTES = 80 };

// ---- envelope

// It names a row by numbers that this daemon has given; another's, whose time of start it has, would leave out some rows or others.
static void write_cursor(char text[CURSOR_BYTES], const struct daemon *daemon, const struct row_key *key)
{
    snprintf(text, CURSOR_BYTES, "%llx.%llu.%llu.%llu", (unsigned long long)daemon->started_ns, (unsigned long long)key->run,
             (unsigned long long)key->process, (unsigned long long)key->index);
}

static bool parse_cursor(const char *text, unsigned long long *daemon, struct row_key *key)
{
    unsigned long long run, process, index;
    char end;
    if (sscanf(text, "%llx.%llu.%llu.%llu%c", daemon, &run, &process, &index, &end) != 4)
        return false;
    *key = (struct row_key){run, process, index};
    return true;
}

// 410, with a cursor from which all rows come.
static void reply_gone(const struct daemon *daemon, struct http_reply *reply)
{
    static const struct row_key before_all = {0, 0, 0};
    struct json_writer json;
    char cursor[CURSOR_BYTES];
    write_cursor(cursor, daemon, &before_all);
    reply->status = 410;
    jsonw_init(&json, &reply->body);
    jsonw_object(&json);
    jsonw_member_text(&json, "error", "the cursor is of a daemon that has ended; begin again, with the one given here");
    jsonw_member_text(&json, "cursor", cursor);
    jsonw_object_end(&json);
}

int query_integer(struct http_request *request, struct http_reply *reply, const char *name, int64_t *value, bool *has)
{
    int given = http_query_integer(request, name, value);
    *has = given > 0;
    if (given >= 0)
        return 0;
    http_error(reply, 400, "%s must be a whole number, not \"%s\"", name, http_query(request, name));
    return -1;
}

static int read_after(struct http_request *request, struct http_reply *reply, struct row_filter *filter)
{
    const char *text = http_query(request, "after");
    char *end;
    if (!text)
        return 0;
    double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds >= 0 && seconds < 1e9)) {  // more than that, or NaN, is no number of nanoseconds
        http_error(reply, 400, "after must be a number of seconds, not \"%s\"", text);
        return -1;
    }
    filter->has_after = true;
    filter->after_ns = (int64_t)(seconds * 1e9);
    return 0;
}

static int read_filter(struct http_request *request, struct http_reply *reply, struct row_filter *filter)
{
    filter->run = http_query(request, "run");
    filter->state = http_query(request, "state");
    filter->region = http_query(request, "region");
    filter->kind = http_query(request, "kind");
    filter->idle = http_query(request, "idle") != NULL;
    filter->lanes = http_query(request, "lanes");
    if (filter->lanes && strcmp(filter->lanes, "tasks") != 0 && strcmp(filter->lanes, "threads") != 0) {
        http_error(reply, 400, "lanes is tasks or threads, not \"%s\"", filter->lanes);
        return -1;
    }
    filter->ranks = http_query(request, "ranks") != NULL;
    return query_integer(request, reply, "rank", &filter->rank, &filter->has_rank) < 0 ||
                   query_integer(request, reply, "pid", &filter->pid, &filter->has_pid) < 0 ||
                   query_integer(request, reply, "thread", &filter->thread, &filter->has_thread) < 0 ||
                   read_after(request, reply, filter) < 0
               ? -1
               : 0;
}

static bool owns_all(const struct http_request *request)
{
    return request->peer.uid == 0 || request->peer.uid == geteuid();
}

// Whose process connected: its groups were those that the kernel knew then.
static bool is_in_group(const struct http_peer *peer, gid_t group)
{
    enum { USUAL = 64 };
    gid_t usual[USUAL], *groups = usual;
    socklen_t size = sizeof usual;
    if (peer->gid == group)
        return true;
    int result = getsockopt(peer->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
    if (result < 0 && errno == ERANGE) {  // size says how much there is
        groups = alloc_zeroed(1, size);
        result = getsockopt(peer->fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
    }
    bool is_member = false;
    for (size_t i = 0; result == 0 && i < size / sizeof *groups; i++)
        is_member |= groups[i] == group;
    if (groups != usual)
        free(groups);
    return is_member;
}

bool query_sees_all(const struct daemon *daemon, const struct http_request *request)
{
    const struct settings *settings = &daemon->settings;
    return owns_all(request) || (settings->observers_group && is_in_group(&request->peer, settings->observers_gid));
}

static int read_page(struct http_request *request, struct http_reply *reply, struct page *page)
{
    int64_t most = (int64_t)page->daemon->settings.page_rows, limit = most;
    unsigned long long daemon = 0;
    const char *cursor = http_query(request, "cursor");
    if (http_query_integer(request, "limit", &limit) < 0 || limit < 1 || limit > most) {
        http_error(reply, 400, "limit must be a whole number from 1 to %lld", (long long)most);
        return -1;
    }
    page->limit = (uint32_t)limit;
    page->has_after = cursor != NULL;
    if (cursor && !parse_cursor(cursor, &daemon, &page->after)) {
        http_error(reply, 400, "cursor \"%s\" is not one of ours", cursor);
        return -1;
    }
    if (cursor && daemon != (unsigned long long)page->daemon->started_ns) {
        reply_gone(page->daemon, reply);
        return -1;
    }
    return 0;
}

static void open_envelope(struct json_writer *json, const struct page *page, const char *table)
{
    char schema[64];
    snprintf(schema, sizeof schema, "scoped-lane/%s/1", table);
    jsonw_object(json);
    jsonw_member_text(json, "schema", schema);
    jsonw_member_time(json, "time_ns", page->now_ns);
    jsonw_member_uint(json, "generation", page->daemon->generation);
    rows_trust(json, page);
    jsonw_key(json, "rows");
    jsonw_array(json);
}

static void close_envelope(struct json_writer *json, const struct page *page)
{
    jsonw_array_end(json);
    if (page->more) {
        char cursor[CURSOR_BYTES];
        write_cursor(cursor, page->daemon, &page->last);
        jsonw_member_text(json, "cursor", cursor);
    } else {
        jsonw_member_null(json, "cursor");
    }
    jsonw_object_end(json);
}

// A listing in the making, for its request.
struct listing {
    struct daemon *daemon;
    struct row_filter filter;
    struct json_writer json;
    struct buffer body;
    struct page page;
};

static void listing_release(void *state)
{
    struct listing *listing = state;
    listing->daemon->listings--;
    page_finish(&listing->page);
    buffer_finish(&listing->body);
    free(listing);
}

// What changes something does so with what is the asker's own.
static bool chooses_among_all(const struct daemon *daemon, const struct http_request *request)
{
    return strcmp(request->method, "POST") == 0 ? owns_all(request) : query_sees_all(daemon, request);
}

// NULL with the reply made when there is something wrong with the request.
static struct listing *begin_listing(struct daemon *daemon, struct http_request *request, struct http_reply *reply, const char *table)
{
    struct listing *listing = alloc_zeroed(1, sizeof *listing);
    listing->daemon = daemon;
    listing->page = (struct page){.json = &listing->json, .daemon = daemon, .filter = &listing->filter, .uid = request->peer.uid,
                                  .sees_all = chooses_among_all(daemon, request), .bytes_max = request->reply_bytes_max, .now_ns = clock_monotonic_ns()};
    if (read_filter(request, reply, &listing->filter) < 0 || read_page(request, reply, &listing->page) < 0) {
        free(listing);
        return NULL;
    }
    daemon->listings++;
    request->state = listing;
    request->release = listing_release;
    pump_names(daemon);
    jsonw_init(&listing->json, &listing->body);
    open_envelope(&listing->json, &listing->page, table);
    return listing;
}

enum pace { AT_ONCE, IN_TURNS };

static int listing(struct daemon *daemon, struct http_request *request, struct http_reply *reply, const char *table,
                   void (*rows)(struct page *), enum pace pace)
{
    struct listing *listing = request->state ? request->state : begin_listing(daemon, request, reply, table);
    if (!listing)
        return 0;
    struct page *page = &listing->page;
    page_begin_turn(page, pace == IN_TURNS ? request->until_ns : 0);
    rows(page);
    if (page->paused)
        return HTTP_AGAIN;
    close_envelope(&listing->json, page);
    reply->body = listing->body;
    listing->body = (struct buffer){0};
    request->state = NULL;
    request->release = NULL;
    listing_release(listing);
    return 0;
}

#define LISTING(name, pace)                                                                      \
    static int get_##name(void *context, struct http_request *request, struct http_reply *reply) \
    {                                                                                            \
        return listing(context, request, reply, #name, rows_##name, pace);                       \
    }
// What the tables say is of one generation. What the lane blocks say is of the moment when each is read.
LISTING(runs, AT_ONCE)
LISTING(processes, AT_ONCE)
LISTING(threads, AT_ONCE)
LISTING(tasks, IN_TURNS)
LISTING(regions, IN_TURNS)
LISTING(loss, AT_ONCE)
LISTING(unmatched, AT_ONCE)
LISTING(lanes, IN_TURNS)
LISTING(where, IN_TURNS)
LISTING(stuck, IN_TURNS)
LISTING(status, AT_ONCE)
LISTING(clock, AT_ONCE)
LISTING(config, AT_ONCE)

// ---- what `scoped-lane run` asks for

static int reply_run(struct daemon *daemon, struct http_request *request, struct http_reply *reply, const struct run *run)
{
    struct row_filter filter = {.run = run->id};
    struct json_writer json;
    struct page page = {.json = &json, .daemon = daemon, .filter = &filter, .uid = request->peer.uid,
                        .sees_all = query_sees_all(daemon, request), .limit = 1, .bytes_max = request->reply_bytes_max,
                        .now_ns = clock_monotonic_ns()};
    jsonw_init(&json, &reply->body);
    open_envelope(&json, &page, "runs");
    rows_runs(&page);
    close_envelope(&json, &page);
    return 0;
}

static int post_join(void *context, struct http_request *request, struct http_reply *reply)
{
    struct daemon *daemon = context;
    char problem[1024];
    int64_t expected = 1, schema = 2, compress = 0;
    const char *key = http_query(request, "run"), *output = http_query(request, "output");
    if (!key || !*key || !output || *output != '/' || http_query_integer(request, "members", &expected) < 0 ||
        http_query_integer(request, "schema", &schema) < 0 || schema < 2 || schema > 3 ||
        http_query_integer(request, "compress", &compress) < 0)
        return http_error(reply, 400, "join takes run=KEY, output=ABSOLUTE PATH, members=N, schema=2 or 3, and compress=1 or 0");
    struct join join = {.key = key, .output = output, .again = http_query(request, "again"), .schema = (int)schema,
                        .expected = expected > 0 && expected < 1 << 24 ? (uint32_t)expected : 1, .compress = compress != 0};
    struct run *run = runs_join(daemon, &join, request->peer.uid, request->peer.gid, request->peer.pid, problem, sizeof problem);
    if (!run)
        return http_error(reply, 409, "%s", problem);
    return reply_run(daemon, request, reply, run);
}

// The run a POST names, when the asker may have it; else NULL with the reply made.
static struct run *named_run(struct daemon *daemon, struct http_request *request, struct http_reply *reply)
{
    const char *name = http_query(request, "run");
    struct run *run = name ? runs_find(daemon, name, request->peer.uid) : NULL;
    if (!run)
        http_error(reply, 404, "you have no run \"%s\"", name ? name : "");
    return run;
}

static int post_leave(void *context, struct http_request *request, struct http_reply *reply)
{
    struct daemon *daemon = context;
    struct run *run = named_run(daemon, request, reply);
    int64_t pid = 0, exit_status = 0;
    bool has_pid, has_exit;
    if (!run || query_integer(request, reply, "pid", &pid, &has_pid) < 0 ||
        query_integer(request, reply, "exit_status", &exit_status, &has_exit) < 0)
        return 0;
    if (exit_status < -64 || exit_status > 255)
        return http_error(reply, 400, "leave takes run=RUN, and pid=PID and exit_status=N, -N for a signal, of who was its parent");
    runs_leave(run, request->peer.pid);
    scan_run(daemon);
    clients_check(daemon);
    if (has_exit)
        runs_note_exit(run, (uint32_t)pid, (int)exit_status);
    runs_check(daemon);
    return reply_run(daemon, request, reply, run);
}

static int post_finish(void *context, struct http_request *request, struct http_reply *reply)
{
    struct daemon *daemon = context;
    struct run *run = named_run(daemon, request, reply);
    if (!run)
        return 0;
    run->finish_asked = true;
    clients_check(daemon);
    runs_check(daemon);
    return reply_run(daemon, request, reply, run);
}

// Pauses or resumes the processes that run, rank and pid choose, a whole run for those of it that are still to come too. The reply has
// their rows.
static void pause_run(struct page *page, struct run *run, bool paused)
{
    for (struct client *client = page->daemon->clients; client; client = client->next)
        if (client->run == run && page_fits(page, client->process))
            pause_client(client, paused);
    if (!page->filter->has_rank && !page->filter->has_pid)
        run->paused = paused;
}

static void pause_one(struct page *page, struct run *run)
{
    pause_run(page, run, true);
}

static void resume_one(struct page *page, struct run *run)
{
    pause_run(page, run, false);
}

static void rows_paused(struct page *page)
{
    page_each_run(page, pause_one);
    rows_processes(page);
}

static void rows_resumed(struct page *page)
{
    page_each_run(page, resume_one);
    rows_processes(page);
}

static bool is_chosen(struct http_request *request, struct http_reply *reply)
{
    if (http_query(request, "run") || http_query(request, "rank") || http_query(request, "pid"))
        return true;
    http_error(reply, 400, "which processes? it takes run=RUN, rank=N, pid=PID, one or more of them");
    return false;
}

static int post_pause(void *context, struct http_request *request, struct http_reply *reply)
{
    return is_chosen(request, reply) ? listing(context, request, reply, "processes", rows_paused, AT_ONCE) : 0;
}

static int post_resume(void *context, struct http_request *request, struct http_reply *reply)
{
    return is_chosen(request, reply) ? listing(context, request, reply, "processes", rows_resumed, AT_ONCE) : 0;
}

// A snapshot in the making, for the request that waits for it.
struct snapshot {
    struct http_request *request;
    struct converter *converter;  // NULL: done
    char *output, *problem;
    uint64_t calls;
};

static void snapshot_done(struct converter *converter, void *context)
{
    struct snapshot *snapshot = context;
    snapshot->converter = NULL;
    snapshot->problem = converter->problem ? alloc_text(converter->problem) : NULL;
    snapshot->calls = converter->calls;
    http_wake(snapshot->request);
}

static void snapshot_release(void *state)
{
    struct snapshot *snapshot = state;
    if (snapshot->converter)
        snapshot->converter->done = NULL;  // the asker has gone; the file is made all the same
    free(snapshot->output);
    free(snapshot->problem);
    free(snapshot);
}

static int start_snapshot(struct daemon *daemon, struct http_request *request, struct http_reply *reply)
{
    const char *output = http_query(request, "output");
    struct run *run = named_run(daemon, request, reply);
    if (!run)
        return 0;
    if (!output || *output != '/')
        return http_error(reply, 400, "snapshot takes run=RUN and output=ABSOLUTE PATH");
    struct snapshot *snapshot = alloc_zeroed(1, sizeof *snapshot);
    snapshot->request = request;
    snapshot->output = alloc_text(output);
    int result = runs_snapshot(run, output, snapshot_done, snapshot, &snapshot->converter);
    if (result < 0) {
        snapshot_release(snapshot);
        return http_error(reply, 409, "cannot make a snapshot of run %s: %s", run->id,
                          run->state == RUN_RECORDING ? strerror(-result) : "it is over");
    }
    request->state = snapshot;
    request->release = snapshot_release;
    return HTTP_WAIT;
}

static int post_snapshot(void *context, struct http_request *request, struct http_reply *reply)
{
    struct snapshot *snapshot = request->state;
    struct json_writer json;
    if (!snapshot)
        return start_snapshot(context, request, reply);
    if (snapshot->converter)
        return HTTP_WAIT;
    if (snapshot->problem)
        return http_error(reply, 409, "%s", snapshot->problem);
    jsonw_init(&json, &reply->body);
    jsonw_object(&json);
    jsonw_member_text(&json, "schema", "scoped-lane/snapshot/1");
    jsonw_member_time(&json, "time_ns", clock_monotonic_ns());
    jsonw_key(&json, "rows");
    jsonw_array(&json);
    jsonw_object(&json);
    jsonw_member_text(&json, "file", snapshot->output);
    jsonw_member_uint(&json, "calls", snapshot->calls);
    jsonw_object_end(&json);
    jsonw_array_end(&json);
    jsonw_member_null(&json, "cursor");
    jsonw_object_end(&json);
    return 0;
}

static void metrics_release(void *state)
{
    struct metrics *metrics = state;
    metrics_free(metrics);
}

static int get_metrics(void *context, struct http_request *request, struct http_reply *reply)
{
    struct daemon *daemon = context;
    struct metrics *metrics = request->state;
    if (!metrics) {
        pump_names(daemon);
        request->state = metrics = metrics_begin(daemon, request->peer.uid, query_sees_all(daemon, request));
        request->release = metrics_release;
    }
    if (!metrics_write(metrics, request->until_ns, &reply->body))
        return HTTP_AGAIN;
    reply->content_type = "text/plain; version=0.0.4; charset=utf-8";
    return 0;
}

static const char *const row_parameters[] = {"run", "rank", "pid", "thread", "kind", "region", "state", "idle", "ranks", "after", "limit",
                                              "cursor", NULL};
static const char *const where_parameters[] = {"run", "rank", "pid", "state", "lanes", "idle", "limit", "cursor", NULL};
static const char *const join_parameters[] = {"run", "output", "members", "schema", "compress", "again", NULL};
static const char *const snapshot_parameters[] = {"run", "output", NULL};
static const char *const run_parameters[] = {"run", NULL};
static const char *const leave_parameters[] = {"run", "pid", "exit_status", NULL};
static const char *const pause_parameters[] = {"run", "rank", "pid", NULL};
static const char *const no_parameters[] = {NULL};

static const struct http_route routes[] = {
    {"GET", "/v1/status", row_parameters, get_status},
    {"GET", "/v1/clock", row_parameters, get_clock},
    {"GET", "/v1/config", row_parameters, get_config},
    {"GET", "/v1/stuck", row_parameters, get_stuck},
    {"GET", "/v1/follow", follow_parameters, follow_get},
    {"GET", "/metrics", no_parameters, get_metrics},
    {"GET", "/v1/runs", row_parameters, get_runs},
    {"GET", "/v1/processes", row_parameters, get_processes},
    {"GET", "/v1/threads", row_parameters, get_threads},
    {"GET", "/v1/tasks", row_parameters, get_tasks},
    {"GET", "/v1/regions", row_parameters, get_regions},
    {"GET", "/v1/loss", row_parameters, get_loss},
    {"GET", "/v1/unmatched", row_parameters, get_unmatched},
    {"GET", "/v1/lanes", row_parameters, get_lanes},
    {"GET", "/v1/where", where_parameters, get_where},
    {"POST", "/v1/join", join_parameters, post_join},
    {"POST", "/v1/leave", leave_parameters, post_leave},
    {"POST", "/v1/finish", run_parameters, post_finish},
    {"POST", "/v1/snapshot", snapshot_parameters, post_snapshot},
    {"POST", "/v1/pause", pause_parameters, post_pause},
    {"POST", "/v1/resume", pause_parameters, post_resume},
    {0},
};

int query_listen(struct daemon *daemon, int fd)
{
    const struct settings *settings = &daemon->settings;
    struct http_limits limits = {.connections = (unsigned)settings->connections,
                                 .connections_per_uid = (unsigned)settings->connections_per_user,
                                 .header_bytes = settings->header_size,
                                 .reply_bytes = settings->reply_size,
                                 .queued_bytes = settings->queued_size,
                                 .header_timeout_ms = (unsigned)settings->header_timeout,
                                 .idle_timeout_ms = (unsigned)settings->idle_timeout,
                                 .write_timeout_ms = (unsigned)settings->write_timeout,
                                 .turn_ms = (unsigned)settings->query_turn};
    return http_open(&daemon->http, &daemon->loop, fd, &limits, routes, daemon);
}
