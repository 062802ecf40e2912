// The HTTP server: libmicrohttpd without a thread of its own. Its epoll fd is watched by a uv_poll; each readiness and
// each expiry of its own timeouts calls MHD_run, after which the timer is set anew from MHD_get_timeout. (A timer that
// only re-arms itself without MHD_run would spin on a zero timeout.)
//
// A connection is, from our side, always in one of three phases:
//
//     accepted ──▶ PHASE_HEADER ──headers there──▶ PHASE_BODY ──all there──▶ PHASE_REPLY ─┐
//                      ▲       (deadline)              (deadline)      (write timeout)    │
//                      └──────────────────── reply sent, kept alive ─────────────────────┘
//
// libmicrohttpd knows idle time only, which a byte every few seconds defeats; the deadlines of the first two are kept
// here, by a tick that runs while there are connections.
#include "services/http.h"

#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/say.h"

enum {
    TICK_MS = 500,
    STREAM_BLOCK_BYTES = 16 * 1024,
    POOL_FACTOR = 3,  // libmicrohttpd's memory per connection: its own too-long reply is HTML, ours comes well before it
    HANDLES = 3,      // poll, timer, tick
};

const struct http_limits http_limits_default = {
    .connections = 64,
    .connections_per_uid = 16,
    .header_bytes = 8 * 1024,
    .body_bytes = 64 * 1024,
    .reply_bytes = 1024 * 1024,
    .queued_bytes = 64 * 1024 * 1024,
    .header_timeout_ms = 5000,
    .idle_timeout_ms = 30000,
    .write_timeout_ms = 10000,
};

struct http {
    struct MHD_Daemon *daemon;
    struct http_limits limits;
    const struct http_route *routes;
    void *context;
    struct connection *connections;  // all that are open
    struct http_counts counts;
    bool closing;
    int handles_open;
    uv_poll_t poll;    // libmicrohttpd's epoll fd
    uv_timer_t timer;  // its next timeout
    uv_timer_t tick;   // our deadlines
};

enum phase { PHASE_HEADER, PHASE_BODY, PHASE_REPLY };

struct connection {
    struct connection *previous, *next;
    struct http *http;
    struct MHD_Connection *mhd;
    struct exchange *exchange;  // the request in progress, NULL between requests
    struct http_peer peer;
    int fd;
    enum phase phase;
    int64_t deadline_ns;  // of PHASE_HEADER and PHASE_BODY
    size_t url_bytes;     // of the latest request, with its query
    bool refused;
};

// A request and its reply. http_request comes first: handlers hold its address.
struct exchange {
    struct http_request request;
    struct connection *connection;
    struct buffer body;
    size_t queued_bytes;
    ssize_t (*read)(struct http_request *request, char *into, size_t room);
    bool suspended;
    bool woken;  // http_wake came before the wait did
    bool gone;   // the peer hung up, or the server closes
};

static int64_t after_ms(int64_t milliseconds)
{
    return clock_monotonic_ns() + milliseconds * 1000000;
}

// --- Replies -----------------------------------------------------------------------------------------------------------

static void write_error(struct buffer *body, const char *text)
{
    struct json_writer json;
    jsonw_init(&json, body);
    jsonw_object(&json);
    jsonw_member_text(&json, "error", text);
    jsonw_object_end(&json);
    buffer_text(body, "\n");
}

int http_error(struct http_reply *reply, int status, const char *format, ...)
{
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    buffer_clear(&reply->body);
    write_error(&reply->body, text);
    reply->status = status;
    reply->content_type = "application/json";
    reply->read = NULL;
    return 0;
}

// Says why to a client whose request libmicrohttpd has not handed over, and closes. The shutdown makes libmicrohttpd see
// the end of the connection and free it; the few bytes fit any socket buffer.
static void cut(struct connection *connection, const char *status, const char *text)
{
    struct buffer body = {0}, whole = {0};
    write_error(&body, text);
    buffer_printf(&whole,
                  "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                  status, body.length);
    buffer_append(&whole, body.data, body.length);
    ssize_t sent = send(connection->fd, whole.data, whole.length, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent;  // a client that takes nothing goes without the words
    shutdown(connection->fd, SHUT_RDWR);
    buffer_finish(&body);
    buffer_finish(&whole);
}

static void suspend(struct exchange *exchange)
{
    MHD_suspend_connection(exchange->connection->mhd);
    if (exchange->woken) {
        exchange->woken = false;
        MHD_resume_connection(exchange->connection->mhd);
        return;
    }
    exchange->suspended = true;
}

static void resume(struct exchange *exchange)
{
    if (!exchange->suspended)
        return;
    exchange->suspended = false;
    MHD_resume_connection(exchange->connection->mhd);  // writes to its event fd, so that the loop turns to it
}

void http_wake(struct http_request *request)
{
    struct exchange *exchange = (struct exchange *)request;
    if (exchange->suspended)
        resume(exchange);
    else
        exchange->woken = true;
}

static ssize_t read_stream(void *context, uint64_t position, char *into, size_t room)
{
    (void)position;
    struct exchange *exchange = context;
    if (exchange->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    exchange->woken = false;
    ssize_t count = exchange->read(&exchange->request, into, room);
    assert(count <= (ssize_t)room);
    if (count == HTTP_STREAM_WAIT)
        suspend(exchange);
    return count < 0 ? MHD_CONTENT_READER_END_OF_STREAM : count;
}

static struct MHD_Response *make_response(struct exchange *exchange, struct http_reply *reply)
{
    if (reply->read) {
        buffer_finish(&reply->body);
        exchange->read = reply->read;
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK_BYTES, read_stream, exchange, NULL);
    }
    struct http *http = exchange->connection->http;
    if (http->counts.queued_bytes + reply->body.length > http->limits.queued_bytes)
        http_error(reply, 503, "replies of %zu bytes wait for their readers already; try again later",
                   http->counts.queued_bytes);
    struct MHD_Response *response =
        MHD_create_response_from_buffer(reply->body.length, reply->body.data, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        buffer_finish(&reply->body);
        return NULL;
    }
    exchange->queued_bytes = reply->body.length;
    http->counts.queued_bytes += exchange->queued_bytes;
    return response;
}

static void allow_header(struct http *http, const char *path, struct MHD_Response *response)
{
    for (const struct http_route *route = http->routes; route->method; route++)
        if (strcmp(route->path, path) == 0)
            MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, route->method);
}

static enum MHD_Result send_reply(struct exchange *exchange, struct http_reply *reply)
{
    struct connection *connection = exchange->connection;
    struct http *http = connection->http;
    struct MHD_Response *response = make_response(exchange, reply);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type);
    if (reply->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        allow_header(http, exchange->request.path, response);
    if (reply->status >= 400)
        http->counts.errors++;
    connection->phase = PHASE_REPLY;
    MHD_set_connection_option(connection->mhd, MHD_CONNECTION_OPTION_TIMEOUT, (http->limits.write_timeout_ms + 999) / 1000);
    enum MHD_Result result = MHD_queue_response(connection->mhd, (unsigned)reply->status, response);
    MHD_destroy_response(response);
    return result;
}

// --- Requests ----------------------------------------------------------------------------------------------------------

const char *http_query(struct http_request *request, const char *name)
{
    struct exchange *exchange = (struct exchange *)request;
    const char *value = NULL;
    size_t length = 0;
    if (MHD_lookup_connection_value_n(exchange->connection->mhd, MHD_GET_ARGUMENT_KIND, name, strlen(name), &value,
                                      &length) == MHD_NO)
        return NULL;
    return value ? value : "";
}

int http_query_integer(struct http_request *request, const char *name, int64_t *number)
{
    const char *text = http_query(request, name);
    if (!text)
        return 0;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end)
        return -EINVAL;
    *number = value;
    return 1;
}

static void not_found(struct http *http, const struct http_request *request, struct http_reply *reply)
{
    char paths[1024];
    size_t length = 0;
    paths[0] = 0;
    for (const struct http_route *route = http->routes; route->method && length < sizeof paths; route++)
        length += (size_t)snprintf(paths + length, sizeof paths - length, "%s%s %s", length ? ", " : "", route->method,
                                   route->path);
    http_error(reply, MHD_HTTP_NOT_FOUND, "no such path: %.256s; there are: %s", request->path, paths);
}

struct parameter_check {
    const struct http_route *route;
    char unknown[128];  // empty: all are known
};

static enum MHD_Result check_parameter(void *context, enum MHD_ValueKind kind, const char *name, const char *value)
{
    (void)kind, (void)value;
    struct parameter_check *check = context;
    for (const char *const *known = check->route->parameters; *known; known++)
        if (strcmp(*known, name) == 0)
            return MHD_YES;
    snprintf(check->unknown, sizeof check->unknown, "%s", *name ? name : "(empty)");
    return MHD_NO;
}

static bool parameters_known(struct exchange *exchange, const struct http_route *route, struct http_reply *reply)
{
    struct parameter_check check = {.route = route};
    if (!route->parameters)
        return true;
    MHD_get_connection_values(exchange->connection->mhd, MHD_GET_ARGUMENT_KIND, check_parameter, &check);
    if (!check.unknown[0])
        return true;
    char names[512];
    size_t length = 0;
    snprintf(names, sizeof names, "none");
    for (const char *const *known = route->parameters; *known && length < sizeof names; known++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", length ? ", " : "", *known);
    http_error(reply, MHD_HTTP_BAD_REQUEST, "%s takes no parameter '%s'; possible: %s", route->path, check.unknown, names);
    return false;
}

// 0 with a reply, or HTTP_WAIT.
static int dispatch(struct exchange *exchange, struct http_reply *reply)
{
    struct http *http = exchange->connection->http;
    struct http_request *request = &exchange->request;
    bool path_known = false;
    for (const struct http_route *route = http->routes; route->method; route++) {
        if (strcmp(route->path, request->path) != 0)
            continue;
        path_known = true;
        if (strcmp(route->method, request->method) != 0)
            continue;
        if (!parameters_known(exchange, route, reply))
            return 0;
        int result = route->handle(http->context, request, reply);
        return result < 0 ? http_error(reply, MHD_HTTP_INTERNAL_SERVER_ERROR, "%s: %s", request->path, strerror(-result))
                          : result;
    }
    if (!path_known)
        not_found(http, request, reply);
    else
        http_error(reply, MHD_HTTP_METHOD_NOT_ALLOWED, "%s does not take %.32s", request->path, request->method);
    return 0;
}

static enum MHD_Result answer(struct exchange *exchange)
{
    struct http_reply reply = {.status = MHD_HTTP_OK, .content_type = "application/json"};
    struct connection *connection = exchange->connection;
    exchange->request.body = exchange->body.data ? exchange->body.data : "";
    exchange->request.body_length = exchange->body.length;
    connection->phase = PHASE_REPLY;
    exchange->woken = false;
    int result = dispatch(exchange, &reply);
    if (result == HTTP_WAIT) {
        buffer_finish(&reply.body);
        suspend(exchange);
        return MHD_YES;
    }
    return send_reply(exchange, &reply);
}

static enum MHD_Result answer_error(struct exchange *exchange, int status, const char *text, size_t limit_bytes)
{
    struct http_reply reply = {0};
    http_error(&reply, status, "%s: at most %zu bytes are read", text, limit_bytes);
    return send_reply(exchange, &reply);
}

static struct connection *connection_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void *on_url(void *context, const char *url, struct MHD_Connection *mhd)
{
    (void)context;
    struct connection *connection = connection_of(mhd);
    if (connection)
        connection->url_bytes = strlen(url);
    return NULL;
}

static size_t header_bytes(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info ? info->header_size : 0;
}

static bool body_announced_too_long(const struct exchange *exchange)
{
    const char *text =
        MHD_lookup_connection_value(exchange->connection->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text && strtoull(text, NULL, 10) > exchange->connection->http->limits.body_bytes;
}

// The headers are there: opens the exchange, and answers at once what can only be refused.
static enum MHD_Result begin_exchange(struct connection *connection, const char *path, const char *method, void **slot)
{
    struct http *http = connection->http;
    struct exchange *exchange = alloc_zeroed(1, sizeof *exchange);
    exchange->connection = connection;
    exchange->request = (struct http_request){
        .method = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0 ? MHD_HTTP_METHOD_GET : method,
        .path = path,
        .peer = connection->peer,
        .reply_bytes_max = http->limits.reply_bytes,
    };
    *slot = exchange;
    connection->exchange = exchange;
    connection->phase = PHASE_BODY;
    connection->deadline_ns = after_ms(http->limits.idle_timeout_ms);
    http->counts.requests++;
    if (header_bytes(connection->mhd) > http->limits.header_bytes)
        return connection->url_bytes > http->limits.header_bytes / 2
                   ? answer_error(exchange, MHD_HTTP_URI_TOO_LONG, "the URL is too long", http->limits.header_bytes)
                   : answer_error(exchange, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too long",
                                  http->limits.header_bytes);
    if (body_announced_too_long(exchange))
        return answer_error(exchange, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too long", http->limits.body_bytes);
    return MHD_YES;
}

// libmicrohttpd's handler: once when the headers are there, once for each piece of body, once at the end, and again after
// each resume.
static enum MHD_Result on_request(void *context, struct MHD_Connection *mhd, const char *path, const char *method,
                                  const char *version, const char *upload, size_t *upload_bytes, void **slot)
{
    (void)context, (void)version;
    struct connection *connection = connection_of(mhd);
    struct exchange *exchange = *slot;
    if (!connection || connection->refused || (exchange && exchange->gone))
        return MHD_NO;
    if (!exchange)
        return begin_exchange(connection, path, method, slot);
    if (*upload_bytes) {
        if (exchange->body.length + *upload_bytes > connection->http->limits.body_bytes)
            return MHD_NO;  // sent in chunks, its length never announced: closed
        buffer_append(&exchange->body, upload, *upload_bytes);
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (exchange->body.data) {  // a terminating zero beyond the length
        buffer_append(&exchange->body, "", 1);
        exchange->body.length--;
    }
    return answer(exchange);
}

static void on_completed(void *context, struct MHD_Connection *mhd, void **slot, enum MHD_RequestTerminationCode code)
{
    (void)context, (void)mhd, (void)code;
    struct exchange *exchange = *slot;
    if (!exchange)
        return;
    struct connection *connection = exchange->connection;
    struct http *http = connection->http;
    if (exchange->request.release)
        exchange->request.release(exchange->request.state);
    http->counts.queued_bytes -= exchange->queued_bytes;
    connection->exchange = NULL;
    connection->phase = PHASE_HEADER;
    connection->deadline_ns = after_ms((int64_t)http->limits.idle_timeout_ms + http->limits.header_timeout_ms);
    if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, (http->limits.idle_timeout_ms + 999) / 1000);
    buffer_finish(&exchange->body);
    free(exchange);
    *slot = NULL;
}

// --- Connections -------------------------------------------------------------------------------------------------------

static struct http_peer peer_of(int fd)
{
    struct ucred credentials;
    socklen_t length = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
        return (struct http_peer){.uid = (uid_t)-1, .gid = (gid_t)-1};
    return (struct http_peer){.uid = credentials.uid, .gid = credentials.gid, .pid = credentials.pid};
}

static unsigned connections_of(const struct http *http, uid_t uid)
{
    unsigned count = 0;
    for (const struct connection *connection = http->connections; connection; connection = connection->next)
        count += connection->peer.uid == uid && !connection->refused;
    return count;
}

static void on_tick(uv_timer_t *tick);

static void connection_open(struct http *http, struct MHD_Connection *mhd, void **slot)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct connection *connection = alloc_zeroed(1, sizeof *connection);
    connection->http = http;
    connection->mhd = mhd;
    connection->fd = info->connect_fd;
    connection->peer = peer_of(connection->fd);
    connection->phase = PHASE_HEADER;
    connection->deadline_ns = after_ms(http->limits.header_timeout_ms);
    connection->refused = connections_of(http, connection->peer.uid) >= http->limits.connections_per_uid;
    connection->next = http->connections;
    if (connection->next)
        connection->next->previous = connection;
    http->connections = connection;
    *slot = connection;
    http->counts.connections++;
    http->counts.connections_now++;
    if (connection->refused) {
        http->counts.refused++;
        cut(connection, "503 Service Unavailable", "too many connections of this user");
    }
    if (!uv_is_active((uv_handle_t *)&http->tick))
        uv_timer_start(&http->tick, on_tick, TICK_MS, TICK_MS);
}

static void connection_closed(struct http *http, void **slot)
{
    struct connection *connection = *slot;
    if (!connection)
        return;
    if (connection->previous)
        connection->previous->next = connection->next;
    else
        http->connections = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
    http->counts.connections_now--;
    free(connection);
    *slot = NULL;
}

static void on_connection(void *context, struct MHD_Connection *mhd, void **slot, enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        connection_open(context, mhd, slot);
    else
        connection_closed(context, slot);
}

// libmicrohttpd does not watch a suspended connection; a peer that left meanwhile is found here.
static bool hung_up(int fd)
{
    struct pollfd poll_fd = {.fd = fd};  // POLLHUP and POLLERR come unasked; a mere half-close is still a reader
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLHUP | POLLERR));
}

static void on_tick(uv_timer_t *tick)
{
    struct http *http = tick->data;
    int64_t now_ns = clock_monotonic_ns();
    for (struct connection *connection = http->connections; connection; connection = connection->next) {
        struct exchange *exchange = connection->exchange;
        if (connection->phase != PHASE_REPLY && !connection->refused && now_ns > connection->deadline_ns) {
            connection->refused = true;
            http->counts.timed_out++;
            cut(connection, "408 Request Timeout", "the request did not arrive in time");
        } else if (exchange && exchange->suspended && hung_up(connection->fd)) {
            exchange->gone = true;
            resume(exchange);
        }
    }
    if (!http->connections)
        uv_timer_stop(tick);
}

// --- The loop ----------------------------------------------------------------------------------------------------------

static void on_timeout(uv_timer_t *timer);

static void run(struct http *http)
{
    MHD_run(http->daemon);
    MHD_UNSIGNED_LONG_LONG timeout_ms;
    if (MHD_get_timeout(http->daemon, &timeout_ms) == MHD_YES)
        uv_timer_start(&http->timer, on_timeout, timeout_ms, 0);
    else
        uv_timer_stop(&http->timer);
}

static void on_timeout(uv_timer_t *timer)
{
    run(timer->data);
}

static void on_ready(uv_poll_t *handle, int status, int events)
{
    (void)status, (void)events;
    run(handle->data);
}

static void on_log(void *context, const char *format, va_list arguments)
{
    (void)context;
    char text[512];
    vsnprintf(text, sizeof text, format, arguments);
    text[strcspn(text, "\n")] = 0;
    say_detail("query socket: %s", text);
}

static void limits_fill(struct http_limits *limits, const struct http_limits *given)
{
    const struct http_limits none = {0}, *from = given ? given : &none, *otherwise = &http_limits_default;
#define LIMIT(field) limits->field = from->field ? from->field : otherwise->field
    LIMIT(connections);
    LIMIT(connections_per_uid);
    LIMIT(header_bytes);
    LIMIT(body_bytes);
    LIMIT(reply_bytes);
    LIMIT(queued_bytes);
    LIMIT(header_timeout_ms);
    LIMIT(idle_timeout_ms);
    LIMIT(write_timeout_ms);
#undef LIMIT
}

static struct MHD_Daemon *start(struct http *http, int listen_fd)
{
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, http,
                            MHD_OPTION_EXTERNAL_LOGGER, on_log, http, MHD_OPTION_LISTEN_SOCKET, listen_fd,
                            MHD_OPTION_CONNECTION_LIMIT, http->limits.connections, MHD_OPTION_CONNECTION_TIMEOUT,
                            (http->limits.idle_timeout_ms + 999) / 1000, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            POOL_FACTOR * http->limits.header_bytes, MHD_OPTION_NOTIFY_COMPLETED, on_completed, http,
                            MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_URI_LOG_CALLBACK, on_url, http,
                            MHD_OPTION_END);
}

static void on_closed(uv_handle_t *handle)
{
    struct http *http = handle->data;
    if (--http->handles_open == 0)
        free(http);
}

int http_open(struct http **http_out, uv_loop_t *loop, int listen_fd, const struct http_limits *limits,
              const struct http_route *routes, void *context)
{
    struct http *http = alloc_zeroed(1, sizeof *http);
    http->routes = routes;
    http->context = context;
    limits_fill(&http->limits, limits);
    http->daemon = start(http, listen_fd);
    int result = -EIO;
    if (!http->daemon)
        goto no_daemon;
    int epoll_fd = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
    result = uv_poll_init(loop, &http->poll, epoll_fd);
    if (result < 0)
        goto no_poll;
    uv_timer_init(loop, &http->timer);
    uv_timer_init(loop, &http->tick);
    http->poll.data = http->timer.data = http->tick.data = http;
    http->handles_open = HANDLES;
    uv_poll_start(&http->poll, UV_READABLE, on_ready);
    *http_out = http;
    return 0;
no_poll:
    MHD_quiesce_daemon(http->daemon);  // keeps the socket open for the caller
    MHD_stop_daemon(http->daemon);
no_daemon:
    free(http);
    return result;
}

void http_close(struct http *http)
{
    if (!http || http->closing)
        return;
    http->closing = true;
    MHD_run(http->daemon);  // what can still be sent goes out
    for (struct connection *connection = http->connections; connection; connection = connection->next) {
        if (!connection->exchange)
            continue;
        connection->exchange->gone = true;
        resume(connection->exchange);  // stopping with a suspended connection is not allowed
    }
    uv_poll_stop(&http->poll);
    MHD_stop_daemon(http->daemon);  // closes the listening socket too
    uv_close((uv_handle_t *)&http->poll, on_closed);
    uv_close((uv_handle_t *)&http->timer, on_closed);
    uv_close((uv_handle_t *)&http->tick, on_closed);
}

void http_counts(const struct http *http, struct http_counts *counts)
{
    *counts = http->counts;
}
