// Requests and replies: from the parsed headers to the last byte of the answer. What the loop and the sockets do is in
// http.c.
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "services/http-parts.h"

enum { STREAM_BLOCK_BYTES = 16 * 1024 };

// --- Replies -----------------------------------------------------------------------------------------------------------

void http_write_error(struct buffer *body, const char *text)
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
    http_write_error(&reply->body, text);
    reply->status = status;
    reply->content_type = "application/json";
    reply->read = NULL;
    return 0;
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
    MHD_resume_connection(exchange->connection->mhd);
    http_run_soon(exchange->connection->http);
}

// --- Turns -------------------------------------------------------------------------------------------------------------

static int64_t turn_limit_ns(const struct http *http)
{
    return http->limits.turn_ms * INT64_C(1000000);
}

// Rings have to be drained between answers, however many are asked for at once.
static bool has_to_wait(const struct exchange *exchange)
{
    const struct http *http = exchange->connection->http;
    return !exchange->due && (http->first || http->turn_ns >= turn_limit_ns(http));
}

static void enqueue(struct exchange *exchange)
{
    struct http *http = exchange->connection->http;
    http->counts.deferred++;
    exchange->queued = exchange->suspended = true;
    exchange->next = NULL;
    *http->last = exchange;
    http->last = &exchange->next;
    MHD_suspend_connection(exchange->connection->mhd);
    http_turn_soon(http);
}

static void dequeue(struct exchange *exchange)
{
    struct http *http = exchange->connection->http;
    struct exchange **place = &http->first;
    while (*place != exchange)
        place = &(*place)->next;
    *place = exchange->next;
    if (http->last == &exchange->next)
        http->last = place;
    exchange->queued = false;
}

bool http_next_in_turn(struct http *http)
{
    struct exchange *exchange = http->first;
    if (!exchange || http->turn_ns >= turn_limit_ns(http))
        return false;
    dequeue(exchange);
    exchange->due = true;
    exchange->suspended = false;
    MHD_resume_connection(exchange->connection->mhd);
    return true;
}

void http_exchange_leave(struct exchange *exchange)
{
    exchange->gone = true;
    resume(exchange);
}

void http_wake(struct http_request *request)
{
    struct exchange *exchange = (struct exchange *)request;
    if (exchange->suspended && !exchange->queued)
        resume(exchange);
    else
        exchange->woken = !exchange->queued;  // its turn comes
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
    MHD_set_connection_option(connection->mhd, MHD_CONNECTION_OPTION_TIMEOUT, http_seconds(http->limits.write_timeout_ms));
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

// 0 with a reply, HTTP_WAIT or HTTP_AGAIN.
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
    if (has_to_wait(exchange)) {
        enqueue(exchange);
        return MHD_YES;
    }
    exchange->request.body = exchange->body.data ? exchange->body.data : "";
    exchange->request.body_length = exchange->body.length;
    connection->phase = PHASE_REPLY;
    exchange->due = exchange->woken = false;
    struct http *http = connection->http;
    int64_t begin_ns = clock_monotonic_ns();
    exchange->request.until_ns = begin_ns + turn_limit_ns(http) - http->turn_ns;
    int result = dispatch(exchange, &reply);
    http->turn_ns += clock_monotonic_ns() - begin_ns;
    if (result == HTTP_WAIT || result == HTTP_AGAIN) {
        buffer_finish(&reply.body);
        if (result == HTTP_WAIT)
            suspend(exchange);
        else
            enqueue(exchange);
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

void *http_on_url(void *context, const char *url, struct MHD_Connection *mhd)
{
    (void)context;
    struct connection *connection = http_connection(mhd);
    if (connection) {
        connection->url_bytes = strlen(url);
        connection->idle_since_ns = 0;
    }
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
    connection->deadline_ns = http_after_ms(http->limits.idle_timeout_ms);
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
enum MHD_Result http_on_request(void *context, struct MHD_Connection *mhd, const char *path, const char *method,
                                const char *version, const char *upload, size_t *upload_bytes, void **slot)
{
    (void)context, (void)version;
    struct connection *connection = http_connection(mhd);
    struct exchange *exchange = *slot;
    if (!connection || connection->leaving || (exchange && exchange->gone))
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

void http_on_completed(void *context, struct MHD_Connection *mhd, void **slot, enum MHD_RequestTerminationCode code)
{
    (void)context, (void)mhd, (void)code;
    struct exchange *exchange = *slot;
    if (!exchange)
        return;
    struct connection *connection = exchange->connection;
    struct http *http = connection->http;
    if (exchange->queued)
        dequeue(exchange);
    if (exchange->request.release)
        exchange->request.release(exchange->request.state);
    http->counts.queued_bytes -= exchange->queued_bytes;
    connection->exchange = NULL;
    connection->phase = PHASE_HEADER;
    connection->idle_since_ns = clock_monotonic_ns();
    connection->deadline_ns = http_after_ms((int64_t)http->limits.idle_timeout_ms + http->limits.header_timeout_ms);
    if (code == MHD_REQUEST_TERMINATED_COMPLETED_OK)
        MHD_set_connection_option(mhd, MHD_CONNECTION_OPTION_TIMEOUT, http_seconds(http->limits.idle_timeout_ms));
    buffer_finish(&exchange->body);
    free(exchange);
    *slot = NULL;
}
