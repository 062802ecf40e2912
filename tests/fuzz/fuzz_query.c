// Hostile questions: bytes sent to query.sock of a daemon with two runs, a living process and one that was killed. Where the first byte
// is odd the rest is sent as it stands; else the second chooses path and method, and the rest is the query, so that what lies behind
// libmicrohttpd is reached. What a question would do beyond memory (files, other processes) is wrapped, see the Makefile.
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buffer.h"
#include "services/converter.h"
#include "services/daemon.h"
#include "services/follow.h"
#include "services/http.h"
#include "tests/made_segment.h"

enum { QUIET_TURNS = 4, REPLY_MAX = 8 << 20 };

static struct daemon fuzzed;
static struct client living;
static struct made made;
static struct sockaddr_un address = {.sun_family = AF_UNIX};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __wrap_scan_run(struct daemon *daemon);
void __wrap_clients_check(struct daemon *daemon);
void __wrap_runs_check(struct daemon *daemon);
struct run *__wrap_runs_join(struct daemon *daemon, const struct join *join, uid_t uid, gid_t gid, pid_t pid, char *problem, size_t size);
int __wrap_runs_snapshot(struct run *run, const char *output, void (*done)(struct converter *, void *), void *context,
                         struct converter **converter);

// ---- what is wrapped

static struct converter conversion;  // under way while `done` is set

void __wrap_scan_run(struct daemon *daemon)
{
    (void)daemon;
}

void __wrap_clients_check(struct daemon *daemon)
{
    (void)daemon;
}

void __wrap_runs_check(struct daemon *daemon)
{
    for (struct run *run = daemon->runs; run; run = run->next)
        run->finish_asked = false;
}

struct run *__wrap_runs_join(struct daemon *daemon, const struct join *join, uid_t uid, gid_t gid, pid_t pid, char *problem, size_t size)
{
    (void)uid, (void)gid, (void)pid;
    snprintf(problem, size, "cannot make a spool for %s: %s", join->output, strerror(EACCES));
    return strlen(join->key) % 2 ? daemon->runs : NULL;
}

int __wrap_runs_snapshot(struct run *run, const char *output, void (*done)(struct converter *, void *), void *context,
                         struct converter **converter)
{
    if (run->state != RUN_RECORDING || conversion.done)
        return -EBUSY;
    conversion = (struct converter){.done = done, .context = context, .calls = strlen(output)};
    *converter = &conversion;
    return 0;
}

static bool end_conversion(void)
{
    void (*done)(struct converter *, void *) = conversion.done;
    conversion.done = NULL;
    if (done)
        done(&conversion, conversion.context);
    return done != NULL;
}

// ---- the daemon

static void add_string(struct run *run, struct model_process *process, uint32_t type, uint32_t id, const char *name)
{
    model_string(&run->model, process, type, id, name, strlen(name), "file.c", 6, (int32_t)id);
}

static struct run *add_run(const char *id, const char *key, enum run_state state)
{
    struct run *run = calloc(1, sizeof *run);
    run->daemon = &fuzzed;
    snprintf(run->id, sizeof run->id, "%s", id);
    run->key = strdup(key);
    run->output = strdup("/tmp/fuzzed.h5");
    run->uid = getuid();
    run->state = state;
    run->number = ++fuzzed.runs_made;
    model_init(&run->model, fuzzed.clock_kind, 16, 0);
    run->model.octaves_kept = 1 << 12;
    ticks_add(&run->model.clock, &fuzzed.clock.anchors[0]);
    run->next = fuzzed.runs;
    fuzzed.runs = run;
    return run;
}

// Two threads that have made calls of two regions, two tasks, calls that are open, lost and unmatched.
static struct model_process *add_process(struct run *run, int64_t rank, uint32_t state)
{
    static const char *const names[] = {"outer \"a\"", "inner", "\xff bad", "a > b"};
    uint64_t now = ticks_now(fuzzed.clock_kind).ticks;
    struct process_facts facts = {.pid = 1000 + (uint32_t)rank, .rank = rank, .clock = fuzzed.clock_kind};
    struct model_process *process = model_add_process(&run->model, &facts);
    struct process_status status = {.state = state, .threads = 2, .tasks = 2, .rank = rank, .end_ns = SL_UNKNOWN, .last_event = now};
    model_set_status(process, &status);
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        add_string(run, process, SL_STRING_REGION, i + 1, names[i]);
    add_string(run, process, SL_STRING_WORD, 1, "fiber");
    for (uint32_t i = 0; i < 2; i++) {
        struct thread_facts thread = {.index = i, .native_id = 77 + i, .ident = UINT64_MAX - i, .slot = i, .start = now - 1000000};
        struct task_facts task = {.index = i, .kind = 1, .thread = i, .steps = 3, .done = i ? now : 0};
        model_set_thread(process, &thread, "thread");
        model_set_task(&run->model, process, &task, "task", "coro");
    }
    struct sl_record records[] = {{{0, sl_record_word1(SL_THREAD, 0), 0, 0}}, made_call(now - 900000, 5000, 1),
                                  made_call(now - 800000, 300, 2), made_call(now - 700000, 70, 3)};
    model_records(&run->model, process, 0, 0, records, sizeof records / sizeof *records, -1, NULL, NULL);
    struct ledger ledger = {.produced = 5, .unmatched = 1, .lost = {[0] = 2}};
    model_set_ledger(process, 0, &ledger);
    struct open_facts open[] = {{.thread = 0, .task = SL_TASK_NONE, .region = 1, .start = now - 600000},
                                {.thread = FACTS_NO_THREAD, .task = 0, .region = 2, .start = now - 500000}};
    model_set_open(process, open, 2);
    return process;
}

static void add_client(struct run *run, struct model_process *process)
{
    char problem[256];
    made = made_begin();
    for (uint32_t i = 0; i < 2; i++) {
        struct sl_ring *ring = made_slot(&made, i, 128);
        ring->owner = i;
        sl_ring_lane(ring)->depth = i;
        sl_lane_stack(sl_ring_lane(ring))[0] = (struct sl_entry){.start = 900, .region = 1};
    }
    living = (struct client){.daemon = &fuzzed, .run = run, .process = process, .pid = getpid(), .socket = -1, .pidfd = -1};
    if (segment_open(&living.segment, made.fd, "", problem) < 0)
        abort();
    fuzzed.clients = &living;
    fuzzed.client_count = run->clients = 1;
}

static void remove_directory(void)
{
    unlink(address.sun_path);
    rmdir(fuzzed.rundir);
}

static void start(void)
{
    snprintf(fuzzed.rundir, sizeof fuzzed.rundir, "/tmp/sl-fuzz-XXXXXX");
    if (!mkdtemp(fuzzed.rundir) || atexit(remove_directory) != 0)
        abort();
    snprintf(address.sun_path, sizeof address.sun_path, "%.80s/query.sock", fuzzed.rundir);
    settings_init(&fuzzed.settings);
    fuzzed.settings.connections_per_user = fuzzed.settings.connections;
    fuzzed.clock_kind = ticks_machine_kind();
    ticks_init(&fuzzed.clock, 16);
    struct anchor now = ticks_now(fuzzed.clock_kind);
    ticks_add(&fuzzed.clock, &now);
    add_process(add_run("00000000000000aa", "0:run:old", RUN_PUBLISHED), 1, PROCESS_KILLED);
    struct run *run = add_run("00000000000000bb", "0:run:now", RUN_RECORDING);
    add_process(run, SL_RANK_NONE, PROCESS_VANISHED);
    add_client(run, add_process(run, 0, PROCESS_LIVE));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, SOMAXCONN) < 0 || uv_loop_init(&fuzzed.loop) < 0 ||
        query_listen(&fuzzed, fd) < 0)
        abort();
}

// ---- a question and its answer

static const char *const paths[] = {"/v1/status", "/v1/clock", "/v1/config", "/v1/stuck", "/v1/follow", "/metrics", "/v1/runs", "/v1/processes",
                                    "/v1/threads", "/v1/tasks", "/v1/regions", "/v1/loss", "/v1/unmatched", "/v1/lanes", "/v1/where",
                                    "/v1/join", "/v1/leave", "/v1/finish", "/v1/snapshot", "/v1/pause", "/v1/resume", "/v1/nothing"};
enum { PATHS = sizeof paths / sizeof *paths, FIRST_POST = 15 };

static void make_request(struct buffer *request, const uint8_t *data, size_t size)
{
    unsigned path = data[0] % 32 % PATHS;
    const char *method = data[0] & 32 ? "HEAD" : path >= FIRST_POST ? "POST" : "GET";
    buffer_printf(request, "%s %s?", method, paths[path]);
    buffer_append(request, data + 1, size - 1);
    buffer_printf(request, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
}

// True when bytes came, or the end.
static bool take(int fd, struct buffer *reply, bool *over)
{
    char bytes[65536];
    ssize_t count = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    *over = count == 0 || (count < 0 && errno != EAGAIN);
    if (count > 0 && reply->length < REPLY_MAX)
        buffer_append(reply, bytes, (size_t)count);
    return count > 0;
}

static void turn(void)
{
    uv_run(&fuzzed.loop, UV_RUN_NOWAIT);
}

// Until the reply is over, or nothing comes any more.
static void read_reply(int fd, struct buffer *reply)
{
    bool over = false;
    for (int quiet = 0; !over && quiet < QUIET_TURNS;) {
        turn();
        quiet = take(fd, reply, &over) || end_conversion() ? 0 : quiet + 1;
        if (quiet == QUIET_TURNS && fuzzed.followers && !fuzzed.ending) {
            fuzzed.ending = true;  // once: it reads its last lines
            follow_end(&fuzzed);
            quiet = 0;
        }
    }
    fuzzed.ending = false;
}

static void fail(const char *what, const struct buffer *reply)
{
    fprintf(stderr, "%s: %.*s\n", what, (int)reply->length, reply->data);
    abort();
}

// The answer to a request that was whole: a status of HTTP, and JSON, with `error` where it is one.
static void check_reply(const struct buffer *reply, bool has_body)
{
    int status = 0;
    const char *body = memmem(reply->data, reply->length, "\r\n\r\n", 4);
    if (sscanf(reply->data, "HTTP/1.1 %d ", &status) != 1 || status < 200 || status > 599 || !body)
        fail("no reply of HTTP", reply);
    if (!has_body || !memmem(reply->data, (size_t)(body - reply->data), "application/json", 16))
        return;
    json_t *root = json_loadb(body + 4, reply->length - (size_t)(body + 4 - reply->data), 0, NULL);
    if (!json_is_object(root) || (status >= 400) != json_is_string(json_object_get(root, "error")) ||
        (status < 400 && !json_is_array(json_object_get(root, "rows"))))
        fail("no reply of ours", reply);
    json_decref(root);
}

static bool is_text(const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i] <= ' ' || data[i] >= 127 || data[i] == '#')
            return false;
    return true;
}

// Nothing stays behind: no connection, no memory, no follower.
static void check_end(const struct buffer *reply)
{
    struct http_counts counts;
    for (int i = 0; i < 100; i++) {
        turn();
        http_counts(fuzzed.http, &counts);
        if (!counts.connections_now)
            break;
        usleep(i > 10 ? 20000 : 0);  // a request that waits is let go by the tick
    }
    if (counts.connections_now || counts.queued_bytes || fuzzed.followers || conversion.done || fuzzed.runs_made != 2)
        fail("something stays behind", reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer request = {0}, reply = {0};
    if (size < 3)
        return 0;
    if (!fuzzed.http)
        start();
    bool made_here = !(data[0] & 1);
    if (made_here)
        make_request(&request, data + 1, size - 1);
    else
        buffer_append(&request, data + 1, size - 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        abort();
    turn();
    ssize_t sent = send(fd, request.data, request.length, MSG_DONTWAIT | MSG_NOSIGNAL);
    read_reply(fd, &reply);
    buffer_append(&reply, "", 1);
    reply.length--;
    if (made_here && sent == (ssize_t)request.length && is_text(data + 2, size - 2))
        check_reply(&reply, !(data[1] & 32));
    close(fd);
    check_end(&reply);
    buffer_finish(&request);
    buffer_finish(&reply);
    return 0;
}
