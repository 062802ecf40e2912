// Queries over unix sockets by libcurl. One daemon after the other: there are few, and each answers in milliseconds or
// is refused at once.
#include "cli/client.h"

#include <curl/curl.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/rundir.h"
#include "base/say.h"

enum {
    ANSWER_TIMEOUT_MS = 10000,
    BUSY_PATIENCE_MS = 30000,  // with a daemon that has too many connections
    BUSY_PAUSE_MS = 500,
    RESTARTS_MAX = 3,  // a reply whose pages went stale (410) is asked for again
    REPLY_BYTES_MAX = 256 * 1024 * 1024,
    STATUS_GONE = 410,
    STATUS_BUSY = 503,
};

// --- Where daemons may be ----------------------------------------------------------------------------------------------

struct place {
    char *rundir;      // or the socket itself
    bool is_socket;
    char reason[128];  // why there was no answer
};

struct places {
    struct place *list;
    int count;
};

static void add_place(struct places *places, char *rundir)
{
    places->list = alloc_resize(places->list, (size_t)places->count + 1, sizeof *places->list);
    places->list[places->count++] = (struct place){.rundir = rundir};
}

static int is_private(const struct dirent *entry)
{
    return strncmp(entry->d_name, "run-", 4) == 0;
}

static void add_private(struct places *places, const char *rundir)
{
    struct dirent **entries;
    int count = scandir(rundir, &entries, is_private, alphasort);
    for (int i = 0; i < count; i++) {
        char *path = alloc_printf("%s/%s", rundir, entries[i]->d_name);
        struct stat status;
        if (lstat(path, &status) == 0 && S_ISDIR(status.st_mode))
            add_place(places, path);
        else
            free(path);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

static bool is_trusted(const char *rundir)
{
    struct stat status;
    return lstat(rundir, &status) < 0 || status.st_uid == geteuid() || status.st_uid == 0;
}

static void places_init(struct places *places, const struct client_query *query)
{
    struct rundir_list list;
    *places = (struct places){0};
    for (int i = 0; query->sockets && query->sockets[i]; i++) {
        add_place(places, alloc_text(query->sockets[i]));
        places->list[i].is_socket = true;
    }
    if (query->sockets)
        return;
    if (query->only) {
        add_place(places, alloc_text(query->rundir));
        return;
    }
    rundir_places(&list, query->rundir);
    bool by_rule = list.count > 1;
    for (int i = 0; i < list.count; i++) {
        add_place(places, alloc_text(list.paths[i]));
        if (!by_rule || is_trusted(list.paths[i]))
            add_private(places, list.paths[i]);
        else
            snprintf(places->list[places->count - 1].reason, sizeof places->list->reason, "it belongs to another user");
    }
}

static void places_finish(struct places *places)
{
    for (int i = 0; i < places->count; i++)
        free(places->list[i].rundir);
    free(places->list);
}

// --- One request -------------------------------------------------------------------------------------------------------

enum outcome { ANSWERED, NOBODY, BUSY, FAILED };  // FAILED: somebody is there, and it has been said what went wrong

static size_t receive(char *bytes, size_t size, size_t count, void *into)
{
    struct buffer *body = into;
    if (body->length + size * count > REPLY_BYTES_MAX)
        return 0;
    buffer_append(body, bytes, size * count);
    return size * count;
}

static char *make_url(const struct client_query *query, const char *cursor)
{
    const char *parameters = query->parameters ? query->parameters : "";
    char *rest = client_escape(alloc_text(parameters), "cursor", cursor);
    char *url = alloc_printf("http://localhost%s%s%s", query->path, *rest ? "?" : "", rest);
    free(rest);
    return url;
}

static void set_up(CURL *curl, const char *socket_path, const char *url, bool post, struct buffer *body)
{
    curl_easy_reset(curl);
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket_path);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");  // whatever http_proxy says
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)ANSWER_TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
    if (post)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
}

static enum outcome transfer_failed(CURL *curl, CURLcode code, struct place *place, const char *path)
{
    long error = 0;
    if (code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR)  // it was closed unread: there are too many, or the daemon has just died
        return BUSY;
    curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &error);
    if (code == CURLE_COULDNT_CONNECT) {
        snprintf(place->reason, sizeof place->reason, "%s", error ? strerror((int)error) : curl_easy_strerror(code));
        return NOBODY;
    }
    if (code == CURLE_OPERATION_TIMEDOUT)
        say("the daemon in %s does not answer %s within %d s", place->rundir, path, ANSWER_TIMEOUT_MS / 1000);
    else
        say("asking the daemon in %s for %s failed: %s", place->rundir, path, curl_easy_strerror(code));
    return FAILED;
}

// The body as JSON and the HTTP status.
static enum outcome request(CURL *curl, struct place *place, const struct client_query *query, const char *cursor,
                            json_t **reply, long *status)
{
    char socket_path[RUNDIR_PATH_MAX];
    *reply = NULL;
    int result = place->is_socket ? 0 : rundir_socket(place->rundir, "query.sock", socket_path, sizeof socket_path);
    if (result < 0) {
        snprintf(place->reason, sizeof place->reason, "its socket path is too long");
        return NOBODY;
    }
    struct buffer body = {0};
    char *url = make_url(query, cursor);
    set_up(curl, place->is_socket ? place->rundir : socket_path, url, query->post, &body);
    CURLcode code = curl_easy_perform(curl);
    free(url);
    enum outcome outcome = ANSWERED;
    json_error_t error;
    if (code != CURLE_OK) {
        outcome = transfer_failed(curl, code, place, query->path);
    } else {
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, status);
        *reply = json_loadb(body.data ? body.data : "", body.length, JSON_ALLOW_NUL, &error);
        if (!json_is_object(*reply) && *status < 400) {
            say("the daemon in %s answers %s with what is not JSON: %s", place->rundir, query->path, error.text);
            outcome = FAILED;
        }
    }
    buffer_finish(&body);
    return outcome;
}

// --- All pages of one daemon -------------------------------------------------------------------------------------------

static char *cursor_of(const json_t *reply)
{
    const json_t *cursor = json_object_get(reply, "cursor");
    if (json_is_string(cursor))
        return alloc_text(json_string_value(cursor));
    if (json_is_integer(cursor))
        return alloc_printf("%" JSON_INTEGER_FORMAT, json_integer_value(cursor));
    return NULL;
}

static enum outcome refused(const struct place *place, const struct client_query *query, long status, const json_t *reply)
{
    const char *reason = json_string_value(json_object_get(reply, "error"));
    if (status == 404)
        say("the daemon in %s does not offer %s (404): %s", place->rundir, query->path, reason ? reason : "not found");
    else
        say("the daemon in %s refuses %s (%ld): %s", place->rundir, query->path, status,
            reason ? reason : "no reason given");
    return FAILED;
}

// Adds a page's rows to those before it; returns the cursor of the next, NULL at the end.
static char *add_page(json_t **whole, json_t *page)
{
    char *cursor = cursor_of(page);
    if (!*whole) {
        *whole = page;
    } else {
        json_array_extend(json_object_get(*whole, "rows"), json_object_get(page, "rows"));
        json_decref(page);
    }
    json_object_set_new(*whole, "cursor", json_null());
    return cursor;
}

// The same, as often as the daemon says that it is busy: the ranks of a launcher all come at once.
static enum outcome request_patiently(CURL *curl, struct place *place, const struct client_query *query, const char *cursor,
                                      json_t **reply, long *status)
{
    for (int waited_ms = 0, pause_ms = 10 + (int)getpid() % 16;; pause_ms *= 2) {  // not all at once again
        enum outcome outcome = request(curl, place, query, cursor, reply, status);
        if (outcome != BUSY && !(outcome == ANSWERED && *status == STATUS_BUSY))
            return outcome;
        if (waited_ms >= BUSY_PATIENCE_MS) {
            if (outcome == BUSY)
                say("the daemon in %s closes the connection when asked for %s", place->rundir, query->path);
            return outcome == BUSY ? FAILED : outcome;
        }
        json_decref(*reply);
        pause_ms = pause_ms > BUSY_PAUSE_MS ? BUSY_PAUSE_MS : pause_ms;
        poll(NULL, 0, pause_ms);
        waited_ms += pause_ms;
    }
}

static enum outcome ask_pages(CURL *curl, struct place *place, const struct client_query *query, json_t **whole)
{
    char *cursor = NULL;
    int restarts = 0;
    *whole = NULL;
    for (;;) {
        json_t *page;
        long status = 0;
        enum outcome outcome = request_patiently(curl, place, query, cursor, &page, &status);
        free(cursor);
        cursor = NULL;
        if (outcome == ANSWERED && status < 400) {
            cursor = add_page(whole, page);
            if (!cursor)
                return ANSWERED;
            continue;
        }
        json_decref(*whole);
        *whole = NULL;
        if (outcome == ANSWERED && (status != STATUS_GONE || restarts++ == RESTARTS_MAX))
            outcome = refused(place, query, status, page);
        json_decref(page);
        if (outcome != ANSWERED)
            return outcome;
    }
}

// --- All daemons -------------------------------------------------------------------------------------------------------

static void say_nobody(const struct places *places)
{
    struct buffer tried = {0};
    for (int i = 0; i < places->count; i++)
        buffer_printf(&tried, "%s%s (%s)", i ? ", " : "", places->list[i].rundir, places->list[i].reason);
    buffer_append(&tried, "", 1);
    say("no daemon: tried %s", tried.data);
    buffer_finish(&tried);
}

int client_ask_each(const struct client_query *query, json_t **replies)
{
    struct places places;
    int failed = 0;
    places_init(&places, query);
    CURL *curl = curl_easy_init();
    *replies = json_array();
    for (int i = 0; curl && i < places.count; i++) {
        struct place *place = &places.list[i];
        json_t *reply = NULL;
        enum outcome outcome = place->reason[0] ? NOBODY : ask_pages(curl, place, query, &reply);
        if (outcome == ANSWERED)
            json_array_append_new(*replies, json_pack("{s:s, s:o}", "rundir", place->rundir, "reply", reply));
        if (outcome == NOBODY && place->is_socket) {
            say("no daemon answers on %s: %s", place->rundir, place->reason);
            outcome = FAILED;
        }
        failed += outcome == FAILED;
    }
    curl_easy_cleanup(curl);
    bool answered = json_array_size(*replies) > 0;
    if (!answered && !failed && !query->quiet)
        say_nobody(&places);
    places_finish(&places);
    if (answered)
        return failed > 0;
    json_decref(*replies);
    *replies = NULL;
    return failed ? -EIO : -ENOENT;
}

// Numbers add up, except for an error, which is as large as the largest; unknown plus something is something.
static void add_trust(json_t *sum, const json_t *more)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)more, key, value)
    {
        json_t *there = json_object_get(sum, key);
        if (json_is_object(there) && json_is_object(value)) {
            add_trust(there, value);
        } else if (json_is_integer(there) && json_is_integer(value)) {
            json_int_t a = json_integer_value(there), b = json_integer_value(value);
            bool is_bound = strcmp(key, "clock_error_ns") == 0;
            json_object_set_new(sum, key, json_integer(is_bound ? (a > b ? a : b) : a + b));
        } else if (!there || json_is_null(there)) {
            json_object_set(sum, key, value);
        }
    }
}

static void keep_larger(json_t *whole, const json_t *more, const char *key)
{
    const json_t *value = json_object_get(more, key);
    if (json_integer_value(value) > json_integer_value(json_object_get(whole, key)))
        json_object_set(whole, key, (json_t *)value);
}

int client_ask(const struct client_query *query, json_t **reply)
{
    json_t *replies;
    int result = client_ask_each(query, &replies);
    *reply = NULL;
    if (result < 0)
        return result;
    *reply = json_incref(json_object_get(json_array_get(replies, 0), "reply"));
    for (size_t i = 1; i < json_array_size(replies); i++) {
        const json_t *more = json_object_get(json_array_get(replies, i), "reply");
        json_array_extend(json_object_get(*reply, "rows"), json_object_get(more, "rows"));
        add_trust(json_object_get(*reply, "trust"), json_object_get(more, "trust"));
        keep_larger(*reply, more, "time_ns");
        keep_larger(*reply, more, "generation");
        json_object_set_new(*reply, "daemons", json_integer((json_int_t)i + 1));
    }
    json_decref(replies);
    return result;
}

char *client_escape(char *parameters, const char *name, const char *value)
{
    if (!value)
        return parameters;
    char *escaped = curl_easy_escape(NULL, value, 0);
    char *longer = alloc_printf("%s%s%s=%s", parameters, *parameters ? "&" : "", name, escaped ? escaped : "");
    curl_free(escaped);
    free(parameters);
    return longer;
}
