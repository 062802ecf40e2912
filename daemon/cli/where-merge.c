// Roll calls of several nodes as one. Each node's daemon has a run of its own for the same job, so rows are joined by what
// their lanes are in.
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "cli/where.h"

enum { HOSTS_NAMED = 3 };  // more are counted

// ---- ranks: "0,2-3,unranked"

struct span {
    int64_t first, last;
};

struct ranks {
    struct span *list;
    size_t count;
    bool unranked;
};

static void add_ranks(struct ranks *ranks, const char *text)
{
    while (text && *text) {
        char *end;
        struct span span;
        span.first = span.last = strtoll(text, &end, 10);
        if (end == text) {
            ranks->unranked = true;
        } else {
            if (*end == '-')
                span.last = strtoll(end + 1, &end, 10);
            ranks->list = alloc_resize(ranks->list, ranks->count + 1, sizeof *ranks->list);
            ranks->list[ranks->count++] = span;
        }
        text = strchr(end, ',');
        text = text ? text + 1 : NULL;
    }
}

static int by_first(const void *a, const void *b)
{
    const struct span *one = a, *other = b;
    return one->first < other->first ? -1 : one->first > other->first;
}

// Sets the row's `ranks` and `rank_count`.
static void set_ranks(json_t *row, struct ranks *ranks)
{
    struct buffer text = {0};
    int64_t count = 0;
    if (ranks->count)
        qsort(ranks->list, ranks->count, sizeof *ranks->list, by_first);
    for (size_t i = 0; i < ranks->count;) {
        struct span span = ranks->list[i++];
        for (; i < ranks->count && ranks->list[i].first <= span.last + 1; i++)
            span.last = ranks->list[i].last > span.last ? ranks->list[i].last : span.last;
        buffer_printf(&text, "%s%" PRId64, text.length ? "," : "", span.first);
        if (span.last > span.first)
            buffer_printf(&text, "-%" PRId64, span.last);
        count += span.last - span.first + 1;
    }
    if (ranks->unranked)
        buffer_text(&text, text.length ? ",unranked" : "unranked");
    buffer_append(&text, "", 1);
    json_object_set_new(row, "ranks", json_string(text.data));
    json_object_set_new(row, "rank_count", json_integer(count));
    buffer_finish(&text);
}

// ---- hosts

static void add_host(json_t *row, const char *host)
{
    json_t *hosts = json_object_get(row, "hosts"), *each;
    size_t i;
    if (!hosts) {
        hosts = json_array();
        json_object_set_new(row, "hosts", hosts);
    }
    json_array_foreach(hosts, i, each) if (strcmp(json_string_value(each), host) == 0) return;
    json_array_append_new(hosts, json_string(host));
}

static void set_host(json_t *row)
{
    const json_t *hosts = json_object_get(row, "hosts");
    size_t count = json_array_size(hosts);
    struct buffer text = {0};
    if (count > HOSTS_NAMED)
        buffer_printf(&text, "%zu hosts", count);
    for (size_t i = 0; i < count && count <= HOSTS_NAMED; i++)
        buffer_printf(&text, "%s%s", i ? "," : "", json_string_value(json_array_get(hosts, i)));
    buffer_append(&text, "", 1);
    json_object_set_new(row, "host", json_string(text.data));
    buffer_finish(&text);
}

// ---- rows

static int64_t integer_of(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

static void join(json_t *into, const json_t *row)
{
    struct ranks ranks = {0};
    int64_t youngest = integer_of(row, "youngest_ns"), oldest = integer_of(row, "oldest_ns");
    add_ranks(&ranks, json_string_value(json_object_get(into, "ranks")));
    add_ranks(&ranks, json_string_value(json_object_get(row, "ranks")));
    set_ranks(into, &ranks);
    free(ranks.list);
    json_object_set_new(into, "lanes", json_integer(integer_of(into, "lanes") + integer_of(row, "lanes")));
    if (youngest < integer_of(into, "youngest_ns"))
        json_object_set_new(into, "youngest_ns", json_integer(youngest));
    if (oldest > integer_of(into, "oldest_ns"))
        json_object_set_new(into, "oldest_ns", json_integer(oldest));
    if (!json_equal(json_object_get(into, "state"), json_object_get(row, "state")))
        json_object_set_new(into, "state", json_string("mixed"));
    if (!json_equal(json_object_get(into, "run"), json_object_get(row, "run")))
        json_object_set_new(into, "run", json_null());
}

static int by_lanes(const void *a, const void *b)
{
    const json_t *one = *(json_t *const *)a, *other = *(json_t *const *)b;
    int64_t difference = integer_of(one, "lanes") - integer_of(other, "lanes");
    if (difference == 0)
        difference = integer_of(other, "oldest_ns") - integer_of(one, "oldest_ns");
    return difference < 0 ? -1 : difference > 0;
}

static json_t *row_of(json_t **list, size_t count, const json_t *row)
{
    for (size_t i = 0; i < count; i++)
        if (json_equal(json_object_get(list[i], "stack"), json_object_get(row, "stack")))
            return list[i];
    return NULL;
}

void where_merge(json_t *rows)
{
    size_t count = 0, i;
    json_t **list = alloc_zeroed(json_array_size(rows) + 1, sizeof *list), *row;
    json_array_foreach(rows, i, row)
    {
        const char *host = json_string_value(json_object_get(row, "host"));
        json_t *same = row_of(list, count, row);
        if (same)
            join(same, row);
        else
            list[count++] = json_incref(row);
        add_host(same ? same : row, host ? host : "?");
    }
    qsort(list, count, sizeof *list, by_lanes);
    json_array_clear(rows);
    for (i = 0; i < count; i++) {
        set_host(list[i]);
        json_array_append_new(rows, list[i]);
    }
    free(list);
}

void where_name_idle(json_t *rows)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        int64_t lanes = integer_of(row, "lanes"), ranks = integer_of(row, "rank_count");
        char text[64] = "(in no region)";
        if (lanes > 1 && lanes > ranks)
            snprintf(text, sizeof text, "(%" PRId64 " idle)", lanes);
        if (json_array_size(json_object_get(row, "stack")) == 0)
            json_object_set_new(row, "stack", json_string(text));
    }
}
