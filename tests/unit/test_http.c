// The HTTP server on its loop, which runs in a thread; the tests are its clients, by libcurl and by bare sockets.
#include <criterion/criterion.h>
#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "services/http.h"

enum { DEADLINE_MS = 10000, LARGE_BYTES = 4 * 1024 * 1024 };

// --- The server --------------------------------------------------------------------------------------------------------

static struct {
    char directory[64], path[128];
    struct http_limits limits;
    struct http *http;
    uv_loop_t loop;
    uv_async_t stop;
    pthread_t thread;
    struct http_request *waiting;  // the /v1/wait or /v1/stream in progress
    int events;                    // what /v1/wake has counted
    int released;
    uv_prepare_t prepare;
    int turns, slow_turn;  // of the loop so far; and the latest in which /v1/slow was called
    bool crowded;          // it was called twice in one
    int64_t cpu_ns;        // of the thread, at the latest /v1/counts
} server;

static int handle_echo(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context;
    int64_t rank = -1;
    if (http_query_integer(request, "rank", &rank) < 0)
        return http_error(reply, 400, "rank is no whole number: %s", http_query(request, "rank"));
    struct json_writer json;
    jsonw_init(&json, &reply->body);
    jsonw_object(&json);
    jsonw_member_text(&json, "method", request->method);
    jsonw_member_int(&json, "uid", request->peer.uid);
    jsonw_member_int(&json, "gid", request->peer.gid);
    jsonw_member_int(&json, "pid", request->peer.pid);
    jsonw_member_int(&json, "rank", rank);
    jsonw_member_text(&json, "name", http_query(request, "name"));
    jsonw_object_end(&json);
    return 0;
}

static int handle_body(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context;
    cr_assert_eq(strlen(request->body), request->body_length);
    buffer_printf(&reply->body, "%zu:%s", request->body_length, request->body);
    reply->content_type = "text/plain";
    return 0;
}

static int handle_large(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context, (void)request;
    memset(buffer_extend(&reply->body, LARGE_BYTES), 'x', LARGE_BYTES);
    return 0;
}

static int handle_failure(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context, (void)request, (void)reply;
    return -ENOSPC;
}

static void release(void *state)
{
    (void)state;
    server.waiting = NULL;
    server.released++;
}

static int handle_wait(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context;
    if (!request->state) {
        request->state = &server;
        request->release = release;
        server.waiting = request;
        return HTTP_WAIT;
    }
    buffer_printf(&reply->body, "{\"events\":%d}", server.events);
    return 0;
}

static ssize_t read_events(struct http_request *request, char *into, size_t room)
{
    (void)request;
    if (server.events < 0)
        return HTTP_STREAM_END;
    if (server.events == 0)
        return HTTP_STREAM_WAIT;
    return snprintf(into, room, "{\"event\":%d}\n", server.events--);
}

static int handle_stream(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context;
    request->state = &server;
    request->release = release;
    server.waiting = request;
    reply->content_type = "application/x-ndjson";
    reply->read = read_events;
    return 0;
}

static int handle_wake(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context;
    int64_t count = 1;
    http_query_integer(request, "count", &count);
    server.events = (int)count;
    if (server.waiting) {
        http_wake(server.waiting);
        http_wake(server.waiting);
    }
    buffer_text(&reply->body, "{}");
    return 0;
}

static int handle_counts(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context, (void)request;
    struct http_counts counts;
    http_counts(server.http, &counts);
    server.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    buffer_printf(&reply->body, "now=%u refused=%d timed_out=%d queued=%zu released=%d waiting=%d", counts.connections_now,
                  (int)counts.refused, (int)counts.timed_out, counts.queued_bytes, server.released, !!server.waiting);
    return 0;
}

static void spend_ms(int64_t milliseconds)
{
    int64_t end_ns = clock_monotonic_ns() + milliseconds * 1000000;
    while (clock_monotonic_ns() < end_ns)
        ;
}

static int handle_slow(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context;
    int64_t milliseconds = 3;
    http_query_integer(request, "ms", &milliseconds);
    server.crowded |= server.slow_turn == server.turns;
    server.slow_turn = server.turns;
    spend_ms(milliseconds);
    buffer_printf(&reply->body, "slow");
    return 0;
}

static void on_prepare(uv_prepare_t *prepare)
{
    (void)prepare;
    server.turns++;
}

static const char *const echo_parameters[] = {"rank", "name", NULL};
static const struct http_route routes[] = {
    {.method = "GET", .path = "/v1/echo", .parameters = echo_parameters, .handle = handle_echo},
    {.method = "POST", .path = "/v1/body", .handle = handle_body},
    {.method = "GET", .path = "/v1/large", .handle = handle_large},
    {.method = "GET", .path = "/v1/failure", .handle = handle_failure},
    {.method = "GET", .path = "/v1/wait", .handle = handle_wait},
    {.method = "GET", .path = "/v1/stream", .handle = handle_stream},
    {.method = "GET", .path = "/v1/wake", .handle = handle_wake},
    {.method = "GET", .path = "/v1/slow", .handle = handle_slow},
    {.method = "GET", .path = "/v1/counts", .handle = handle_counts},
    {0},
};

static void on_stop(uv_async_t *stop)
{
    http_close(server.http);
    uv_close((uv_handle_t *)stop, NULL);
    uv_close((uv_handle_t *)&server.prepare, NULL);
}

static void *serve(void *unused)
{
    (void)unused;
    uv_run(&server.loop, UV_RUN_DEFAULT);
    return NULL;
}

static int listen_on(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0, "%s", strerror(errno));
    cr_assert_eq(listen(fd, SOMAXCONN), 0);
    return fd;
}

static void server_start(void)
{
    signal(SIGPIPE, SIG_IGN);
    snprintf(server.directory, sizeof server.directory, "/tmp/test-http-XXXXXX");
    cr_assert_not_null(mkdtemp(server.directory));
    snprintf(server.path, sizeof server.path, "%s/query.sock", server.directory);
    int fd = listen_on(server.path);
    uv_loop_init(&server.loop);
    uv_async_init(&server.loop, &server.stop, on_stop);
    uv_prepare_init(&server.loop, &server.prepare);
    uv_prepare_start(&server.prepare, on_prepare);
    cr_assert_eq(http_open(&server.http, &server.loop, fd, &server.limits, routes, NULL), 0);
    cr_assert_eq(pthread_create(&server.thread, NULL, serve, NULL), 0);
}

// Joining shows that the loop ran out of handles, and closing the loop that none was left.
static void server_stop(void)
{
    uv_async_send(&server.stop);
    cr_assert_eq(pthread_join(server.thread, NULL), 0);
    cr_assert_eq(uv_loop_close(&server.loop), 0);
    unlink(server.path);
    rmdir(server.directory);
}

// --- Its clients -------------------------------------------------------------------------------------------------------

struct answer {
    long status;
    long new_connections;
    char *type;
    struct buffer body, headers;
};

static size_t take(char *bytes, size_t size, size_t count, void *into)
{
    buffer_append(into, bytes, size * count);
    return size * count;
}

static CURL *client(const char *url)
{
    CURL *curl = curl_easy_init();
    char whole[256];
    snprintf(whole, sizeof whole, "http://localhost%.200s", url);
    curl_easy_setopt(curl, CURLOPT_URL, whole);
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, server.path);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)DEADLINE_MS);
    return curl;
}

static CURLcode perform(CURL *curl, struct answer *answer)
{
    *answer = (struct answer){0};
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer->body);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, &answer->headers);
    CURLcode code = curl_easy_perform(curl);
    buffer_append(&answer->body, "", 1);
    buffer_append(&answer->headers, "", 1);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer->status);
    curl_easy_getinfo(curl, CURLINFO_NUM_CONNECTS, &answer->new_connections);
    curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &answer->type);
    return code;
}

static void answer_finish(struct answer *answer)
{
    buffer_finish(&answer->body);
    buffer_finish(&answer->headers);
}

static void expect(CURL *curl, long status, const char *part)
{
    struct answer answer;
    CURLcode code = perform(curl, &answer);
    cr_assert_eq(code, CURLE_OK, "%s", curl_easy_strerror(code));
    cr_assert_eq(answer.status, status, "%ld: %s", answer.status, answer.body.data);
    cr_assert_not_null(strstr(answer.body.data, part), "%s: %s", part, answer.body.data);
    if (status >= 400)
        cr_assert_str_eq(answer.type, "application/json");
    answer_finish(&answer);
}

static void get(const char *url, long status, const char *part)
{
    CURL *curl = client(url);
    expect(curl, status, part);
    curl_easy_cleanup(curl);
}

// Asks /v1/counts until the reply holds `part`.
static void counts_until(const char *part)
{
    int64_t deadline_ns = clock_monotonic_ns() + DEADLINE_MS * INT64_C(1000000);
    for (;;) {
        CURL *curl = client("/v1/counts");
        struct answer answer;
        CURLcode code = perform(curl, &answer);
        bool there = code == CURLE_OK && answer.status == 200 && strstr(answer.body.data, part);
        bool late = clock_monotonic_ns() > deadline_ns;
        cr_assert(there || !late, "%s never came: %s", part, answer.body.data);
        answer_finish(&answer);
        curl_easy_cleanup(curl);
        if (there)
            return;
        poll(NULL, 0, 5);
    }
}

static int raw_open(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", server.path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0, "%s", strerror(errno));
    return fd;
}

static bool raw_send(int fd, const char *text)
{
    return send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text);
}

// Reads until `part` has come (true) or the connection has ended (false).
static bool raw_until(int fd, const char *part, struct buffer *seen)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    for (;;) {
        buffer_append(seen, "", 1);
        seen->length--;
        if (strstr(seen->data, part))
            return true;
        cr_assert_eq(poll(&ready, 1, DEADLINE_MS), 1, "nothing came; so far: %s", seen->data);
        char bytes[4096];
        ssize_t count = recv(fd, bytes, sizeof bytes, 0);
        if (count <= 0)
            return false;
        buffer_append(seen, bytes, (size_t)count);
    }
}

static void raw_expect(int fd, const char *part)
{
    struct buffer seen = {0};
    cr_assert(raw_until(fd, part, &seen), "%s: %s", part, seen.data);
    buffer_finish(&seen);
}

static void raw_expect_end(int fd)
{
    struct buffer seen = {0};
    cr_assert_not(raw_until(fd, "\x01", &seen));
    buffer_finish(&seen);
}

TestSuite(http, .init = server_start, .fini = server_stop, .timeout = 60);

// --- Requests and replies ----------------------------------------------------------------------------------------------

Test(http, a_handler_sees_method_parameters_and_the_peer_as_the_kernel_knows_it)
{
    char expected[256];
    snprintf(expected, sizeof expected,
             "{\"method\":\"GET\",\"uid\":%d,\"gid\":%d,\"pid\":%d,\"rank\":-3,\"name\":\"a b&\"}", (int)geteuid(),
             (int)getegid(), (int)getpid());
    get("/v1/echo?rank=-3&name=a%20b%26", 200, expected);
    get("/v1/echo?name", 200, "\"name\":\"\"");
    get("/v1/echo", 200, "\"name\":null");
}

Test(http, a_connection_is_kept_for_the_next_request)
{
    CURL *curl = client("/v1/echo");
    struct answer answer;
    for (int request = 0; request < 3; request++) {
        cr_assert_eq(perform(curl, &answer), CURLE_OK);
        cr_assert_eq(answer.status, 200);
        cr_assert_eq(answer.new_connections, request == 0);
        cr_assert_str_eq(answer.type, "application/json");
        answer_finish(&answer);
    }
    curl_easy_cleanup(curl);
}

Test(http, pipelined_requests_are_answered_in_order)
{
    int fd = raw_open();
    cr_assert(
        raw_send(fd, "GET /v1/echo?rank=1 HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/echo?rank=2 HTTP/1.1\r\nHost: x\r\n\r\n"));
    struct buffer seen = {0};
    cr_assert(raw_until(fd, "\"rank\":2", &seen));
    cr_assert_not_null(strstr(seen.data, "\"rank\":1"));
    buffer_finish(&seen);
    close(fd);
}

Test(http, a_path_that_is_none_gets_a_404_that_names_those_there_are)
{
    get("/v1/nonsense", 404, "/v1/nonsense");
    get("/v1/nonsense", 404, "GET /v1/echo, POST /v1/body");
    get("/", 404, "there are");
    get("/v1/echo/", 404, "there are");
}

Test(http, a_wrong_method_gets_a_405_that_names_the_right_one)
{
    CURL *curl = client("/v1/echo");
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, "DELETE");
    struct answer answer;
    cr_assert_eq(perform(curl, &answer), CURLE_OK);
    cr_assert_eq(answer.status, 405);
    cr_assert_not_null(strstr(answer.headers.data, "Allow: GET"), "%s", answer.headers.data);
    cr_assert_not_null(strstr(answer.body.data, "DELETE"));
    answer_finish(&answer);
    curl_easy_cleanup(curl);
    get("/v1/body", 405, "GET");
}

Test(http, head_gives_the_headers_alone)
{
    CURL *curl = client("/v1/echo");
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    expect(curl, 200, "");
    curl_easy_cleanup(curl);
}

Test(http, a_parameter_that_is_unknown_or_no_number_gets_a_400_that_says_so)
{
    get("/v1/echo?rnak=3", 400, "'rnak'; possible: rank, name");
    get("/v1/echo?rank=3x", 400, "rank is no whole number: 3x");
    get("/v1/echo?rank=", 400, "rank is no whole number");
    get("/v1/echo?rank=99999999999999999999", 400, "rank is no whole number");
}

Test(http, a_handler_that_fails_gives_a_500_with_the_reason)
{
    get("/v1/failure", 500, "No space left on device");
}

Test(http, a_posted_body_arrives_whole)
{
    CURL *curl = client("/v1/body");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "{\"run\":\"x\"}");
    expect(curl, 200, "11:{\"run\":\"x\"}");
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
    expect(curl, 200, "0:");
    curl_easy_cleanup(curl);
}

// --- Limits ------------------------------------------------------------------------------------------------------------

static void get_long(size_t length, long status)
{
    struct buffer request = {0};
    buffer_text(&request, "GET /v1/echo?name=");
    memset(buffer_extend(&request, length), 'n', length);
    buffer_text(&request, " HTTP/1.1\r\nHost: x\r\n\r\n");
    buffer_append(&request, "", 1);
    int fd = raw_open();
    raw_send(fd, request.data);  // a server that has answered early may not take all
    char expected[32];
    snprintf(expected, sizeof expected, "HTTP/1.1 %ld ", status);
    raw_expect(fd, expected);
    close(fd);
    buffer_finish(&request);
}

Test(http, an_oversized_url_gets_a_414)
{
    get_long(7 * 1024, 200);
    get_long(8 * 1024, 414);
    get_long(20 * 1024, 414);
    get_long(150 * 1024, 414);
    get("/v1/echo", 200, "uid");
}

Test(http, oversized_headers_get_a_431)
{
    CURL *curl = client("/v1/echo");
    char header[9 * 1024] = "X-Long: ";
    memset(header + 8, 'n', sizeof header - 9);
    struct curl_slist *list = curl_slist_append(NULL, header);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, list);
    expect(curl, 431, "at most 8192 bytes");
    curl_slist_free_all(list);
    curl_easy_cleanup(curl);
}

Test(http, an_oversized_body_gets_a_413_or_the_end_of_the_connection)
{
    int fd = raw_open();
    cr_assert(raw_send(fd, "POST /v1/body HTTP/1.1\r\nHost: x\r\nContent-Length: 65537\r\n\r\n"));
    raw_expect(fd, "HTTP/1.1 413 ");
    close(fd);

    fd = raw_open();
    cr_assert(raw_send(fd, "POST /v1/body HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"));
    char chunk[1024 + 16] = "400\r\n";
    memset(chunk + 5, 'b', 1024);
    memcpy(chunk + 5 + 1024, "\r\n", 3);
    int sent = 0;
    while (sent < 1000 && raw_send(fd, chunk))
        sent++;
    raw_expect_end(fd);
    close(fd);
    get("/v1/echo", 200, "uid");
}

Test(http, nonsense_instead_of_http_ends_that_connection_only)
{
    static const char *const nonsense[] = {"\r\n\r\n\r\n", "\x16\x03\x01\x02\x03", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n",
                                           "é\n\n"};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        int fd = raw_open();
        raw_send(fd, nonsense[i]);
        shutdown(fd, SHUT_WR);
        raw_expect_end(fd);
        close(fd);
    }
    get("/v1/echo", 200, "uid");
    counts_until("now=1 ");
}

Test(http, of_a_hundred_connections_of_one_user_the_first_16_are_served_and_the_rest_get_a_503)
{
    enum { COUNT = 100 };
    int fds[COUNT], served = 0, refused = 0;
    for (int i = 0; i < COUNT; i++)
        fds[i] = raw_open();
    for (int i = COUNT; i-- > 0;) {  // the last first: when it has heard, all have been accepted, and none was idle then
        struct buffer seen = {0};
        raw_send(fds[i], "GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n");
        raw_until(fds[i], "\r\n\r\n", &seen);
        served += strstr(seen.data, "HTTP/1.1 200 ") != NULL;
        refused += strstr(seen.data, "HTTP/1.1 503 ") != NULL;
        buffer_finish(&seen);
    }
    cr_assert_eq(served, 16, "%d", served);
    cr_assert_eq(refused, COUNT - 16, "%d", refused);
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    counts_until("now=1 ");
}

static void ask_on(int fd)
{
    cr_assert(raw_send(fd, "GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n"));
    raw_expect(fd, "uid");
}

// As many as a user may have, each answered once, the first of them idle longest.
enum { KEPT = 16 };

static void keep(int fds[KEPT])
{
    for (int i = 0; i < KEPT; i++) {
        fds[i] = raw_open();
        ask_on(fds[i]);
    }
}

static void close_kept(const int fds[KEPT], int one_more)
{
    for (int i = 0; i < KEPT; i++)
        close(fds[i]);
    close(one_more);
    counts_until("now=1 refused=0 ");
}

Test(http, of_connections_that_are_kept_the_one_that_is_idle_longest_gives_way_and_no_other)
{
    int fds[KEPT];
    keep(fds);
    ask_on(fds[0]);
    int one_more = raw_open();
    ask_on(one_more);
    raw_expect_end(fds[1]);
    for (int i = 0; i < KEPT; i++)
        if (i != 1)
            ask_on(fds[i]);
    ask_on(one_more);
    close_kept(fds, one_more);
}

Test(http, a_connection_whose_next_request_has_come_in_part_does_not_give_way)
{
    int fds[KEPT];
    keep(fds);
    cr_assert(raw_send(fds[0], "GET /v1/echo HTTP/1.1\r\nHo"));
    ask_on(fds[KEPT - 1]);  // when this is answered, that part has been read
    int one_more = raw_open();
    ask_on(one_more);
    raw_expect_end(fds[1]);
    cr_assert(raw_send(fds[0], "st: x\r\n\r\n"));
    raw_expect(fds[0], "uid");
    close_kept(fds, one_more);
}

static void crowd(void)
{
    server.limits = (struct http_limits){.connections = 4};
    server_start();
}

Test(http_crowd, beyond_the_limit_for_all_there_is_a_503_at_once_too, .init = crowd, .fini = server_stop, .timeout = 60)
{
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = raw_open();
        cr_assert(raw_send(fds[i], "GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n"));  // which does not end: none is idle
        raw_expect(fds[i], "ndjson");
    }
    int fifth = raw_open();
    raw_expect(fifth, "HTTP/1.1 503 ");
    raw_expect_end(fifth);
    close(fifth);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    counts_until("now=1 ");
}

static void hurry(void)
{
    server.limits = (struct http_limits){.header_timeout_ms = 200, .idle_timeout_ms = 1000, .write_timeout_ms = 1000};
    server_start();
}

TestSuite(http_slow, .init = hurry, .fini = server_stop, .timeout = 60);

Test(http_slow, a_client_that_stops_within_its_headers_gets_a_408_and_stops_nobody)
{
    int fd = raw_open();
    cr_assert(raw_send(fd, "GET /v1/echo HTTP/1.1\r\nHo"));
    get("/v1/echo", 200, "uid");
    raw_expect(fd, "HTTP/1.1 408 ");
    raw_expect_end(fd);
    close(fd);
    counts_until("timed_out=1 ");
}

Test(http_slow, a_client_that_sends_a_byte_now_and_then_is_cut_all_the_same)
{
    int fd = raw_open();
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int64_t deadline_ns = clock_monotonic_ns() + DEADLINE_MS * INT64_C(1000000);
    raw_send(fd, "GET /");
    while (poll(&ready, 1, 50) == 0) {
        raw_send(fd, "x");
        cr_assert_lt(clock_monotonic_ns(), deadline_ns);
    }
    raw_expect(fd, "HTTP/1.1 408 ");
    close(fd);
}

Test(http_slow, a_body_that_does_not_come_is_cut)
{
    int fd = raw_open();
    cr_assert(raw_send(fd, "POST /v1/body HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc"));
    raw_expect_end(fd);
    close(fd);
    counts_until("now=1 ");
}

Test(http_slow, an_idle_connection_is_closed)
{
    int fd = raw_open();
    cr_assert(raw_send(fd, "GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n"));
    raw_expect(fd, "uid");
    raw_expect_end(fd);
    close(fd);
}

Test(http_slow, a_client_that_never_reads_is_cut_and_holds_up_nobody)
{
    int fd = raw_open();
    int small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    cr_assert(raw_send(fd, "GET /v1/large HTTP/1.1\r\nHost: x\r\n\r\n"));
    counts_until("queued=4194304");
    get("/v1/echo", 200, "uid");
    counts_until("queued=0");
    counts_until("now=1 ");
    close(fd);
}

static void scarce(void)
{
    server.limits = (struct http_limits){.queued_bytes = LARGE_BYTES + 1000};
    server_start();
}

Test(http_scarce, replies_beyond_the_memory_for_all_get_a_503, .init = scarce, .fini = server_stop, .timeout = 60)
{
    int fd = raw_open();
    cr_assert(raw_send(fd, "GET /v1/large HTTP/1.1\r\nHost: x\r\n\r\n"));
    counts_until("queued=4194304");
    get("/v1/large", 503, "try again later");
    close(fd);
    counts_until("queued=0");
    CURL *curl = client("/v1/large");
    expect(curl, 200, "xxxx");
    curl_easy_cleanup(curl);
}

// --- Turns -------------------------------------------------------------------------------------------------------------

Test(http, requests_beyond_what_a_turn_may_take_wait_for_the_next_turns)
{
    enum { COUNT = 10 };
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++)
        fds[i] = raw_open();
    cr_assert(raw_send(fds[0], "GET /v1/slow?ms=200 HTTP/1.1\r\nHost: x\r\n\r\n"));  // the others come meanwhile
    for (int i = 1; i < COUNT; i++)
        cr_assert(raw_send(fds[i], "GET /v1/slow HTTP/1.1\r\nHost: x\r\n\r\n"));
    for (int i = 0; i < COUNT; i++)
        raw_expect(fds[i], "slow");
    cr_assert_not(server.crowded);
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    counts_until("now=1 ");
}

Test(http, a_peer_that_leaves_before_its_turn_takes_nothing_from_the_others)
{
    enum { COUNT = 10 };
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++)
        fds[i] = raw_open();
    for (int i = 0; i < COUNT; i++)
        cr_assert(raw_send(fds[i], "GET /v1/slow?ms=50 HTTP/1.1\r\nHost: x\r\n\r\n"));
    raw_expect(fds[0], "slow");
    for (int i = 0; i < COUNT; i += 2)
        close(fds[i]);
    for (int i = 1; i < COUNT; i += 2) {
        raw_expect(fds[i], "slow");
        close(fds[i]);
    }
    counts_until("now=1 ");
}

Test(http, closing_releases_those_that_wait_for_a_turn)
{
    enum { COUNT = 10 };
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = raw_open();
        cr_assert(raw_send(fds[i], "GET /v1/slow?ms=50 HTTP/1.1\r\nHost: x\r\n\r\n"));
    }
    raw_expect(fds[0], "slow");  // and server_stop comes
}

// --- Waiting and streams -----------------------------------------------------------------------------------------------

Test(http, a_handler_that_waits_is_called_again_when_woken)
{
    int fd = raw_open();
    cr_assert(raw_send(fd, "GET /v1/wait HTTP/1.1\r\nHost: x\r\n\r\n"));
    counts_until("waiting=1");
    get("/v1/wake?count=7", 200, "{}");
    raw_expect(fd, "{\"events\":7}");
    counts_until("released=1");
    close(fd);
}

Test(http, a_stream_gives_each_event_as_it_comes_and_ends_when_told)
{
    int fd = raw_open();
    struct buffer seen = {0};
    cr_assert(raw_send(fd, "GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n"));
    counts_until("waiting=1");
    for (int round = 0; round < 5; round++) {
        buffer_clear(&seen);
        get("/v1/wake?count=2", 200, "{}");
        cr_assert(raw_until(fd, "{\"event\":2}", &seen));
        cr_assert(raw_until(fd, "{\"event\":1}", &seen));
    }
    get("/v1/wake?count=-1", 200, "{}");
    cr_assert(raw_until(fd, "0\r\n\r\n", &seen));
    counts_until("released=1");
    buffer_finish(&seen);
    close(fd);
}

Test(http, a_peer_that_leaves_while_it_waits_is_noticed)
{
    static const char *const requests[] = {"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n",
                                           "GET /v1/wait HTTP/1.1\r\nHost: x\r\n\r\n"};
    for (int i = 0; i < 2; i++) {
        char released[32];
        int fd = raw_open();
        cr_assert(raw_send(fd, requests[i]));
        counts_until("waiting=1");
        close(fd);
        snprintf(released, sizeof released, "released=%d", i + 1);
        counts_until(released);
    }
    counts_until("now=1 ");
}

Test(http, closing_releases_what_waits_and_what_streams)
{
    int stream = raw_open(), half = raw_open(), idle = raw_open();
    cr_assert(raw_send(stream, "GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n"));
    cr_assert(raw_send(half, "GET /v1/ec"));
    cr_assert(raw_send(idle, "GET /v1/echo HTTP/1.1\r\nHost: x\r\n\r\n"));
    raw_expect(idle, "uid");
    counts_until("waiting=1");
    uv_async_send(&server.stop);
    raw_expect_end(stream);
    raw_expect_end(half);
    raw_expect_end(idle);
    cr_assert_eq(pthread_join(server.thread, NULL), 0);
    cr_assert_eq(server.released, 1);
    cr_assert_eq(uv_loop_close(&server.loop), 0);
    close(stream), close(half), close(idle);
    server_start();  // for the end of the suite
}

Test(http, idle_connections_and_waiting_streams_cost_no_cpu)
{
    int stream = raw_open(), half = raw_open();
    cr_assert(raw_send(stream, "GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n"));
    raw_expect(stream, "200 OK");
    cr_assert(raw_send(half, "GET /v1/ec"));
    counts_until("waiting=1");
    int64_t before_ns = server.cpu_ns;
    struct pollfd silent = {.fd = half, .events = POLLIN};
    cr_assert_eq(poll(&silent, 1, 700), 0);
    counts_until("waiting=1");
    cr_assert_lt(server.cpu_ns - before_ns, 100 * 1000000);
    close(stream), close(half);
}
