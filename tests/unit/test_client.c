// How the command finds daemons and puts their pages together, against small servers in runtime directories of the test.
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <uv.h>

#include "base/buffer.h"
#include "cli/client.h"
#include "services/http.h"

enum { SERVERS_MAX = 3, PATH_MAX_HERE = 100 };

struct server {
    int number;
    struct http *http;
    int stale_left;  // pages answered with 410 before it goes well
    int requests;
};

static char root[64];
static uv_loop_t loop;
static uv_async_t stop;
static pthread_t thread;
static struct server servers[SERVERS_MAX];
static int server_count;

// Rows 10n … 10n+4 of server n, two a page.
static int handle_rows(void *context, struct http_request *request, struct http_reply *reply)
{
    struct server *server = context;
    int64_t from = 0, rank = -1;
    server->requests++;
    http_query_integer(request, "cursor", &from);
    http_query_integer(request, "rank", &rank);
    if (from && server->stale_left) {
        server->stale_left--;
        return http_error(reply, 410, "the page is gone");
    }
    buffer_printf(&reply->body,
                  "{\"schema\":\"scoped-lane/rows/1\",\"time_ns\":%d,\"generation\":1,\"trust\":{\"lost\":%d,"
                  "\"lost_by_reason\":{\"ring full\":%d},\"clock_error_ns\":%d},\"rows\":[",
                  100 + server->number, server->number + 1, server->number + 1, server->number);
    for (int64_t row = from; row < from + 2 && row < 5; row++)
        buffer_printf(&reply->body, "%s{\"row\":%d,\"rank\":%d}", row > from ? "," : "", (int)(10 * server->number + row),
                      (int)rank);
    if (from + 2 < 5)
        buffer_printf(&reply->body, "],\"cursor\":\"%d\"}", (int)from + 2);
    else
        buffer_text(&reply->body, "],\"cursor\":null}");
    return 0;
}

static int handle_nonsense(void *context, struct http_request *request, struct http_reply *reply)
{
    (void)context, (void)request;
    buffer_text(&reply->body, "<html>");
    return 0;
}

static const struct http_route routes[] = {
    {.method = "GET", .path = "/v1/rows", .handle = handle_rows},
    {.method = "GET", .path = "/v1/nonsense", .handle = handle_nonsense},
    {0},
};

static void on_stop(uv_async_t *handle)
{
    for (int i = 0; i < server_count; i++)
        http_close(servers[i].http);
    uv_close((uv_handle_t *)handle, NULL);
}

static void *serve(void *unused)
{
    (void)unused;
    uv_run(&loop, UV_RUN_DEFAULT);
    return NULL;
}

static void begin(void)
{
    signal(SIGPIPE, SIG_IGN);
    snprintf(root, sizeof root, "/tmp/test-client-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    setenv("SCOPED_LANE_RUNDIR", root, 1);
    uv_loop_init(&loop);
    uv_async_init(&loop, &stop, on_stop);
    cr_redirect_stderr();
}

// A server in root/<below>; before go().
static void add_server(const char *below)
{
    char directory[PATH_MAX_HERE];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct server *server = &servers[server_count];
    snprintf(directory, sizeof directory, "%.40s/%.40s", root, below);
    mkdir(directory, 0700);
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/query.sock", directory);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0, "%s", strerror(errno));
    cr_assert_eq(listen(fd, 16), 0);
    server->number = server_count++;
    cr_assert_eq(http_open(&server->http, &loop, fd, NULL, routes, server), 0);
}

static void go(void)
{
    cr_assert_eq(pthread_create(&thread, NULL, serve, NULL), 0);
}

static void end(void)
{
    char command[128];
    uv_async_send(&stop);
    if (!thread)
        go();
    pthread_join(thread, NULL);
    cr_assert_eq(uv_loop_close(&loop), 0);
    snprintf(command, sizeof command, "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

TestSuite(client, .init = begin, .fini = end, .timeout = 60);

static void expect_said(const char *part)
{
    char text[4096];
    fflush(stderr);
    size_t length = fread(text, 1, sizeof text - 1, cr_get_redirected_stderr());
    text[length] = 0;
    cr_assert_not_null(strstr(text, part), "'%s' is not in: %s", part, text);
}

static void expect_rows(const json_t *reply, const char *expected)
{
    struct buffer rows = {0};
    size_t index;
    json_t *row;
    json_array_foreach(json_object_get(reply, "rows"), index, row)
    {
        buffer_printf(&rows, "%s%d", index ? " " : "", (int)json_integer_value(json_object_get(row, "row")));
    }
    buffer_append(&rows, "", 1);
    cr_assert_str_eq(rows.data, expected);
    buffer_finish(&rows);
}

static const struct client_query rows_query = {.path = "/v1/rows"};

Test(client, all_pages_of_a_reply_come_as_one)
{
    json_t *reply;
    add_server(".");
    go();
    cr_assert_eq(client_ask(&rows_query, &reply), 0);
    expect_rows(reply, "0 1 2 3 4");
    cr_assert(json_is_null(json_object_get(reply, "cursor")));
    cr_assert_null(json_object_get(reply, "daemons"));
    cr_assert_eq(servers[0].requests, 3);
    json_decref(reply);
}

Test(client, private_daemons_below_the_runtime_directory_are_asked_too_and_their_rows_merged)
{
    json_t *reply;
    add_server(".");
    add_server("run-a");
    add_server("run-b");
    go();
    cr_assert_eq(client_ask(&rows_query, &reply), 0);
    expect_rows(reply, "0 1 2 3 4 10 11 12 13 14 20 21 22 23 24");
    const json_t *trust = json_object_get(reply, "trust");
    cr_assert_eq(json_integer_value(json_object_get(trust, "lost")), 6);
    cr_assert_eq(json_integer_value(json_object_get(json_object_get(trust, "lost_by_reason"), "ring full")), 6);
    cr_assert_eq(json_integer_value(json_object_get(trust, "clock_error_ns")), 2);
    cr_assert_eq(json_integer_value(json_object_get(reply, "time_ns")), 102);
    cr_assert_eq(json_integer_value(json_object_get(reply, "daemons")), 3);
    json_decref(reply);
}

Test(client, private_daemons_alone_are_enough_and_a_dead_one_is_passed_over)
{
    char dead[PATH_MAX_HERE];
    json_t *reply;
    snprintf(dead, sizeof dead, "%s/run-0", root);
    mkdir(dead, 0700);
    add_server("run-a");
    add_server("other");  // no private daemon's name
    go();
    cr_assert_eq(client_ask(&rows_query, &reply), 0);
    expect_rows(reply, "0 1 2 3 4");
    json_decref(reply);
}

Test(client, an_option_names_the_one_directory_to_ask)
{
    char directory[PATH_MAX_HERE];
    json_t *reply;
    add_server(".");
    add_server("run-b");
    go();
    snprintf(directory, sizeof directory, "%s/run-b", root);
    struct client_query query = {.rundir = directory, .path = "/v1/rows"};
    cr_assert_eq(client_ask(&query, &reply), 0);
    expect_rows(reply, "10 11 12 13 14");
    json_decref(reply);
}

Test(client, parameters_are_sent_escaped_with_every_page)
{
    json_t *reply;
    add_server(".");
    go();
    char *parameters = client_escape(client_escape(strdup(""), "run", "a b&c=d"), "rank", "3");
    cr_assert_str_eq(parameters, "run=a%20b%26c%3Dd&rank=3");
    struct client_query query = {.path = "/v1/rows", .parameters = parameters};
    cr_assert_eq(client_ask(&query, &reply), 0);
    const json_t *last = json_array_get(json_object_get(reply, "rows"), 4);
    cr_assert_eq(json_integer_value(json_object_get(last, "rank")), 3);
    json_decref(reply);
    free(parameters);
}

Test(client, pages_that_went_stale_are_asked_for_afresh)
{
    json_t *reply;
    add_server(".");
    servers[0].stale_left = 2;
    go();
    cr_assert_eq(client_ask(&rows_query, &reply), 0);
    expect_rows(reply, "0 1 2 3 4");
    json_decref(reply);
}

Test(client, pages_that_stay_stale_are_given_up)
{
    json_t *reply;
    add_server(".");
    servers[0].stale_left = 1000;
    go();
    cr_assert_lt(client_ask(&rows_query, &reply), 0);
    cr_assert_null(reply);
    expect_said("refuses /v1/rows (410): the page is gone");
}

Test(client, nobody_there_is_told_with_each_place_and_its_reason)
{
    json_t *reply;
    char dead[PATH_MAX_HERE], expected[512];
    snprintf(dead, sizeof dead, "%.60s/run-dead", root);
    mkdir(dead, 0700);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/query.sock", dead);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    cr_assert_eq(client_ask(&rows_query, &reply), -ENOENT);
    snprintf(expected, sizeof expected, "no daemon: tried %s (No such file or directory), %s (Connection refused)", root,
             dead);
    expect_said(expected);
}

Test(client, every_default_place_is_named_when_nobody_is_there)
{
    json_t *reply;
    unsetenv("SCOPED_LANE_RUNDIR");
    setenv("XDG_RUNTIME_DIR", root, 1);
    struct client_query query = {.path = "/v1/never-there"};
    int result = client_ask(&query, &reply);
    if (result == -ENOENT)  // unless this machine has a daemon of its own, which then answers 404
        expect_said("/scoped-lane (No such file or directory), /run/scoped-lane (");
}

Test(client, a_socket_path_that_is_too_long_is_told)
{
    char name[200];
    json_t *reply;
    memset(name, 'n', sizeof name - 1);
    name[0] = '/';
    name[sizeof name - 1] = 0;
    struct client_query query = {.rundir = name, .path = "/v1/rows"};
    cr_assert_eq(client_ask(&query, &reply), -ENOENT);
    expect_said("(its socket path is too long)");
}

Test(client, an_endpoint_the_daemon_has_not_is_told)
{
    struct client_query query = {.path = "/v1/tasks"};
    json_t *reply;
    add_server(".");
    go();
    cr_assert_eq(client_ask(&query, &reply), -EIO);
    expect_said("does not offer /v1/tasks (404): no such path: /v1/tasks; there are: GET /v1/rows");
}

Test(client, what_is_not_json_is_told)
{
    struct client_query query = {.path = "/v1/nonsense"};
    json_t *reply;
    add_server(".");
    go();
    cr_assert_eq(client_ask(&query, &reply), -EIO);
    expect_said("with what is not JSON");
}
