// What http.c (sockets, deadlines, the loop) and http-exchange.c (requests and their replies) share.
//
// A connection is, from our side, always in one of three phases:
//
//     accepted ──▶ PHASE_HEADER ──headers there──▶ PHASE_BODY ──all there──▶ PHASE_REPLY ─┐
//                      ▲       (deadline)              (deadline)      (write timeout)    │
//                      └──────────────────── reply sent, kept alive ──────────────────────┘
//
// libmicrohttpd knows idle time only, which a byte every few seconds defeats; the deadlines of the first two phases are
// kept by a tick of http.c that runs while there are connections.
#ifndef SL_SERVICES_HTTP_PARTS_H
#define SL_SERVICES_HTTP_PARTS_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "services/http.h"

struct http {
    struct MHD_Daemon *daemon;
    struct http_limits limits;
    const struct http_route *routes;
    void *context;
    struct connection *connections;  // all that are open
    struct http_counts counts;
    bool closing;
    int64_t turn_ns;                  // what handlers have taken of this turn of the loop
    struct exchange *first, **last;  // requests that have to wait for a turn of theirs, in the order in which they came
    int handles_open;
    uv_poll_t poll;    // libmicrohttpd's epoll fd
    uv_timer_t timer;  // its next timeout
    uv_timer_t tick;   // our deadlines
    uv_prepare_t prepare;  // a turn begins
    uv_idle_t idle;        // active while requests wait
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
    int64_t deadline_ns;    // of PHASE_HEADER and PHASE_BODY
    size_t url_bytes;       // of the latest request, with its query
    int64_t idle_since_ns;  // when its latest reply was sent; 0 before the first, and from the next request line on
    bool leaving;           // shut down by us, and not counted any more
};

// A request and its reply. http_request comes first: handlers hold its address.
struct exchange {
    struct http_request request;
    struct connection *connection;
    struct buffer body;
    size_t queued_bytes;
    ssize_t (*read)(struct http_request *request, char *into, size_t room);
    struct exchange *next;  // of those that wait for a turn
    bool queued;            // it is one of them
    bool due;               // it has waited, and is to be answered now
    bool suspended;
    bool woken;  // http_wake came before the wait did
    bool gone;   // the peer hung up, or the server closes
};

static inline int64_t http_after_ms(int64_t milliseconds)
{
    return clock_monotonic_ns() + milliseconds * 1000000;
}

// libmicrohttpd counts in seconds.
static inline unsigned http_seconds(unsigned milliseconds)
{
    return (milliseconds + 999) / 1000;
}

// The connection that libmicrohttpd's is for, NULL before it was noticed.
struct connection *http_connection(struct MHD_Connection *mhd);

// Of http-exchange.c: libmicrohttpd's callbacks for the URL, the request and its end; and what suspends and resumes.
void *http_on_url(void *context, const char *url, struct MHD_Connection *mhd);
enum MHD_Result http_on_request(void *context, struct MHD_Connection *mhd, const char *path, const char *method,
                                const char *version, const char *upload, size_t *upload_bytes, void **slot);
void http_on_completed(void *context, struct MHD_Connection *mhd, void **slot, enum MHD_RequestTerminationCode code);
void http_exchange_leave(struct exchange *exchange);  // the peer is gone: the waiting handler or stream ends
void http_write_error(struct buffer *body, const char *text);

// Takes the request that has waited longest for a turn out of the queue, to be gone on with at the next MHD_run. False: there is none, or
// no time for it in this turn.
bool http_next_in_turn(struct http *http);

// Has the server run once more from the loop: a connection that is resumed from outside it would wait for the next event.
void http_run_soon(struct http *http);
void http_turn_soon(struct http *http);  // the same for the queue of those that wait for a turn

#endif
