// The HTTP server's sockets and loop: libmicrohttpd without a thread of its own. Its epoll fd is watched by a uv_poll; each
// readiness and each expiry of its own timeouts calls MHD_run, after which the timer is set anew from MHD_get_timeout. (A
// timer that only re-arms itself without MHD_run would spin on a zero timeout.) Requests are in http-exchange.c, the
// structs in http-parts.h.
#include "services/http.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/say.h"
#include "services/http-parts.h"

enum {
    TICK_MS = 500,
    POOL_FACTOR = 3,   // libmicrohttpd's memory per connection: its own too-long reply is HTML, ours comes well before it
    HANDLES = 5,       // poll, timer, tick, prepare, idle
    LEAVING_MAX = 32,  // connections beyond the limit that are open just to be refused, or to give way
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
    .turn_ms = 2,
};

// --- Connections -------------------------------------------------------------------------------------------------------

struct connection *http_connection(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

// The shutdown makes libmicrohttpd see the end of the connection and free it.
static void leave(struct connection *connection)
{
    connection->leaving = true;
    shutdown(connection->fd, SHUT_RDWR);
}

// Says why to a client whose request libmicrohttpd has not handed over, and closes. The few bytes fit any socket buffer.
static void cut(struct connection *connection, const char *status, const char *text)
{
    struct buffer body = {0}, whole = {0};
    http_write_error(&body, text);
    buffer_printf(&whole,
                  "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                  status, body.length);
    buffer_append(&whole, body.data, body.length);
    ssize_t sent = send(connection->fd, whole.data, whole.length, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent;  // a client that takes nothing goes without the words
    leave(connection);
    buffer_finish(&body);
    buffer_finish(&whole);
}

static struct http_peer peer_of(int fd)
{
    struct ucred credentials;
    socklen_t length = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
        return (struct http_peer){.uid = (uid_t)-1, .gid = (gid_t)-1, .fd = fd};
    return (struct http_peer){.uid = credentials.uid, .gid = credentials.gid, .pid = credentials.pid, .fd = fd};
}

// libmicrohttpd does not watch a suspended connection, nor look at one before its turn: a peer that left is found here.
static bool hung_up(int fd)
{
    struct pollfd poll_fd = {.fd = fd};  // POLLHUP and POLLERR come unasked; a mere half-close is still a reader
    return poll(&poll_fd, 1, 0) > 0 && (poll_fd.revents & (POLLHUP | POLLERR));
}

static bool has_input(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, 0) > 0;
}

// Answered, and no request line has come since. (Of a line that is here in part libmicrohttpd says nothing.)
static bool is_idle(const struct connection *connection)
{
    return connection->idle_since_ns && connection->phase == PHASE_HEADER &&
           (!has_input(connection->fd) || hung_up(connection->fd));
}

// Of all users (NULL), or of one; NULL where none is idle.
static struct connection *idle_longest(const struct http *http, const uid_t *uid)
{
    struct connection *longest = NULL;
    for (struct connection *connection = http->connections; connection; connection = connection->next)
        if (!connection->leaving && (!uid || connection->peer.uid == *uid) && is_idle(connection) &&
            (!longest || connection->idle_since_ns < longest->idle_since_ns))
            longest = connection;
    return longest;
}

// For one more connection of this user. Clients that keep theirs for the next question do not keep others out: the one that
// has been idle longest gives way. Why there is no room, NULL if there is.
static const char *make_room(const struct http *http, uid_t uid)
{
    unsigned all = 0, of_uid = 0;
    for (const struct connection *connection = http->connections; connection; connection = connection->next) {
        all += !connection->leaving;
        of_uid += !connection->leaving && connection->peer.uid == uid;
    }
    bool is_crowd = of_uid >= http->limits.connections_per_uid;
    if (!is_crowd && all < http->limits.connections)
        return NULL;
    struct connection *idle = idle_longest(http, is_crowd ? &uid : NULL);
    if (!idle)
        return is_crowd ? "too many connections of this user" : "too many connections";
    leave(idle);
    return NULL;
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
    connection->deadline_ns = http_after_ms(http->limits.header_timeout_ms);
    const char *reason = make_room(http, connection->peer.uid);
    connection->next = http->connections;
    if (connection->next)
        connection->next->previous = connection;
    http->connections = connection;
    *slot = connection;
    http->counts.connections++;
    http->counts.connections_now++;
    if (reason) {
        http->counts.refused++;
        cut(connection, "503 Service Unavailable", reason);
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

static void on_tick(uv_timer_t *tick)
{
    struct http *http = tick->data;
    int64_t now_ns = clock_monotonic_ns();
    for (struct connection *connection = http->connections; connection; connection = connection->next) {
        struct exchange *exchange = connection->exchange;
        if (connection->phase != PHASE_REPLY && !connection->leaving && now_ns > connection->deadline_ns) {
            http->counts.timed_out++;
            cut(connection, "408 Request Timeout", "the request did not arrive in time");
        } else if (exchange && exchange->suspended && hung_up(connection->fd)) {
            http_exchange_leave(exchange);
        }
    }
    if (!http->connections)
        uv_timer_stop(tick);
}

// --- The loop ----------------------------------------------------------------------------------------------------------

static void on_timeout(uv_timer_t *timer);

static void run(struct http *http)
{
    int64_t begin_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    MHD_run(http->daemon);
    http->counts.cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns;
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

void http_run_soon(struct http *http)
{
    if (!http->closing)
        uv_timer_start(&http->timer, on_timeout, 0, 0);
}

static void on_turn(uv_prepare_t *prepare)
{
    struct http *http = prepare->data;
    http->turn_ns = 0;
}

// An idle handle, for a timer of no time keeps libuv from looking at the sockets.
static void on_idle(uv_idle_t *idle)
{
    struct http *http = idle->data;
    while (http_next_in_turn(http))
        run(http);
    if (!http->first)
        uv_idle_stop(idle);
}

void http_turn_soon(struct http *http)
{
    if (!http->closing)
        uv_idle_start(&http->idle, on_idle);
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
    LIMIT(turn_ms);
#undef LIMIT
}

static struct MHD_Daemon *start(struct http *http, int listen_fd)
{
    return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, http_on_request,
                            http, MHD_OPTION_EXTERNAL_LOGGER, on_log, http, MHD_OPTION_LISTEN_SOCKET, listen_fd,
                            MHD_OPTION_CONNECTION_LIMIT, http->limits.connections + LEAVING_MAX,
                            MHD_OPTION_CONNECTION_TIMEOUT, http_seconds(http->limits.idle_timeout_ms),
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, POOL_FACTOR * http->limits.header_bytes,
                            MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, http, MHD_OPTION_NOTIFY_CONNECTION,
                            on_connection, http, MHD_OPTION_URI_LOG_CALLBACK, http_on_url, http, MHD_OPTION_END);
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
    int flags = fcntl(listen_fd, F_GETFL);
    if (flags < 0 || fcntl(listen_fd, F_SETFL, flags | O_NONBLOCK) < 0)  // a blocking accept would stop the loop
        return -errno;
    struct http *http = alloc_zeroed(1, sizeof *http);
    http->routes = routes;
    http->context = context;
    http->last = &http->first;
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
    uv_prepare_init(loop, &http->prepare);
    uv_idle_init(loop, &http->idle);
    http->poll.data = http->timer.data = http->tick.data = http->prepare.data = http->idle.data = http;
    http->handles_open = HANDLES;
    uv_poll_start(&http->poll, UV_READABLE, on_ready);
    uv_prepare_start(&http->prepare, on_turn);
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
        if (connection->exchange)
            http_exchange_leave(connection->exchange);  // stopping with a suspended connection is not allowed
    }
    uv_poll_stop(&http->poll);
    MHD_stop_daemon(http->daemon);  // closes the listening socket too
    uv_close((uv_handle_t *)&http->poll, on_closed);
    uv_close((uv_handle_t *)&http->timer, on_closed);
    uv_close((uv_handle_t *)&http->tick, on_closed);
    uv_close((uv_handle_t *)&http->prepare, on_closed);
    uv_close((uv_handle_t *)&http->idle, on_closed);
}

void http_counts(const struct http *http, struct http_counts *counts)
{
    *counts = http->counts;
}
