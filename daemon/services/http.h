// An HTTP/1.1 server on a unix socket inside the libuv loop: routes, peer credentials, limits, streams. No thread; a bad
// client costs itself and nobody else.
//
//     static int threads(void *context, struct http_request *request, struct http_reply *reply)
//     {
//         int64_t limit = 1000;
//         if (http_query_integer(request, "limit", &limit) < 0)
//             return http_error(reply, 400, "limit must be a whole number");
//         …write reply->body…
//         return 0;
//     }
//     static const char *const thread_parameters[] = {"rank", "limit", NULL};
//     static const struct http_route routes[] = {
//         {.method = "GET", .path = "/v1/threads", .parameters = thread_parameters, .handle = threads},
//         {0},
//     };
//     int result = http_open(&http, loop, listen_fd, NULL, routes, context);
//
// A handler that has no answer yet returns HTTP_WAIT, and is called again after http_wake(request). A stream (/v1/follow)
// is a reply with `read`: it is asked for bytes only when the client has taken the earlier ones, so a slow reader holds
// one block here and the rest is the handler's own affair.
//
// All functions are called on the loop's thread, and all callbacks come on it.
#ifndef SL_SERVICES_HTTP_H
#define SL_SERVICES_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/buffer.h"

struct http;

// Limits of one server; a zero field takes the default. Idle and write timeouts are rounded up to seconds.
struct http_limits {
    unsigned connections;          // in all: 64; beyond: 503 and closed
    unsigned connections_per_uid;  // 16; beyond: 503 and closed
    size_t header_bytes;           // request line and headers: 8 KiB; beyond: 414 or 431
    size_t body_bytes;             // of a POST: 64 KiB; beyond: 413
    size_t reply_bytes;            // a handler should end a page at this length: 1 MiB (request->reply_bytes_max)
    size_t queued_bytes;           // replies in memory over all connections: 64 MiB; beyond: 503
    unsigned header_timeout_ms;    // from connect to the end of the first headers: 5 s; then 408 and closed
    unsigned idle_timeout_ms;      // between requests, and for a body: 30 s
    unsigned write_timeout_ms;     // a client that takes nothing of its reply: 10 s; closed
    unsigned turn_ms;              // for handlers, of each turn of the loop: 2 ms; the other requests wait for the next, in order
};

extern const struct http_limits http_limits_default;

struct http_peer {
    uid_t uid;  // by SO_PEERCRED, at connect; (uid_t)-1: unknown
    gid_t gid;
    pid_t pid;
    int fd;  // of the connection
};

struct http_request {
    const char *method;  // "GET" for HEAD too
    const char *path;
    struct http_peer peer;
    const char *body;  // of a POST, zero-terminated; "" without one
    size_t body_length;
    size_t reply_bytes_max;
    int64_t until_ns;  // when what it may take of this turn of the loop is over, CLOCK_MONOTONIC
    // The handler's own, kept between its calls, NULL at the first; and what it sets to be called once with that state
    // when the request is over, however it ended.
    void *state;
    void (*release)(void *state);
};

enum http_progress {
    HTTP_WAIT = 1,         // of a handler: call me again after http_wake
    HTTP_AGAIN = 2,        // of a handler: my part of this turn of the loop is over, call me again in the next
    HTTP_STREAM_WAIT = 0,  // of `read`: nothing now, ask me again after http_wake
    HTTP_STREAM_END = -1,  // of `read`: the end
};

struct http_reply {
    int status;                // 200 unless changed
    const char *content_type;  // "application/json" unless changed; static text
    struct buffer body;        // handed over: the handler never frees it
    // Instead of a body: fills up to `room` bytes (a hundred or more; lines may be cut anywhere) and returns their count,
    // or HTTP_STREAM_WAIT or HTTP_STREAM_END. Called until the request is released.
    ssize_t (*read)(struct http_request *request, char *into, size_t room);
};

// Answers one request: 0 with `reply` filled, HTTP_WAIT, HTTP_AGAIN, or -errno (500 with its text).
typedef int (*http_handler)(void *context, struct http_request *request, struct http_reply *reply);

struct http_route {
    const char *method;  // "GET" (answers HEAD too) or "POST"; NULL ends the list
    const char *path;
    const char *const *parameters;  // names the query may have, ended by NULL: others get a 400; NULL: not checked
    http_handler handle;
};

// Serves `routes` (kept by reference) on a listening unix stream socket, which is taken over. Paths that are not routes
// get a 404 that names them, other methods a 405. `limits` NULL: the defaults. 0 or -errno; on failure listen_fd is still
// the caller's.
int http_open(struct http **http, uv_loop_t *loop, int listen_fd, const struct http_limits *limits,
              const struct http_route *routes, void *context);

// Closes every connection (each request is released) and the socket. The handles close with the loop's next turns, and
// the memory goes with the last of them: run the loop until it has nothing left. Not from within a handler. NULL does
// nothing.
void http_close(struct http *http);

// Goes on with a request that waits. May be called at any time before its release; twice is once.
void http_wake(struct http_request *request);

// The value of ?name=value, NULL when not given, "" for ?name. Lives as long as the request.
const char *http_query(struct http_request *request, const char *name);

// 1 and the number, 0 when not given (`number` untouched), -EINVAL when it is no whole number.
int http_query_integer(struct http_request *request, const char *name, int64_t *number);

// Makes the reply {"error": "..."} with that status; returns 0 for the handler to return.
int http_error(struct http_reply *reply, int status, const char *format, ...) __attribute__((format(printf, 3, 4)));

// What the server has seen since it opened; for /v1/status and /metrics.
struct http_counts {
    uint64_t connections;  // accepted
    uint64_t refused;      // of them: over a limit
    uint64_t timed_out;    // cut because headers or a body did not come
    uint64_t requests;
    uint64_t errors;    // replies of 400 and above
    uint64_t deferred;  // times that one had to wait for a turn of the loop
    unsigned connections_now;
    size_t queued_bytes;  // replies in memory now
    int64_t cpu_ns;       // of the loop's thread, in here
};
void http_counts(const struct http *http, struct http_counts *counts);

#endif
