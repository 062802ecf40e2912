#include "cli/top.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "cli/client.h"
#include "cli/table.h"

enum { RUNS, PROCESSES, LANES, THREADS, TASKS };

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "-";
}

static int64_t integer_of(const json_t *row, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(row, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

static char *key_of(const json_t *row, const char *what, int64_t number)
{
    return alloc_printf("%s %s.%lld.%lld", what, text_of(row, "run"), (long long)integer_of(row, "pid", 0),
                        (long long)number);
}

// ---- counters, and how fast they grew

static void count(struct top_sample *sample, const json_t *row, const char *what, int64_t number, int64_t value)
{
    char *key = key_of(row, what, number);
    json_object_set_new(sample->counters.values, key, json_integer(value));
    free(key);
}

static void note_share(struct top_sample *sample, const json_t *row)
{
    json_t *told = json_object_get(row, "cpu_share");
    if (!json_is_number(told))
        return;
    char *key = key_of(row, "lane", -2 - integer_of(row, "index", 0));
    json_object_set(sample->shares, key, told);
    free(key);
}

static void count_all(struct top_sample *sample)
{
    size_t i;
    json_t *row;
    sample->counters.values = json_object();
    json_array_foreach(json_object_get(sample->replies[THREADS], "rows"), i, row)
        count(sample, row, "lane", -2 - integer_of(row, "index", 0), integer_of(row, "cpu_ns", 0));
    sample->shares = json_object();
    json_array_foreach(json_object_get(sample->replies[THREADS], "rows"), i, row)
        note_share(sample, row);
    json_array_foreach(json_object_get(sample->replies[TASKS], "rows"), i, row)
        count(sample, row, "lane", integer_of(row, "index", 0), integer_of(row, "running_ns", 0));
    json_array_foreach(json_object_get(sample->replies[PROCESSES], "rows"), i, row)
        count(sample, row, "calls", 0, integer_of(row, "produced", 0));
}

// Per nanosecond; < 0 where there is nothing to compare with.
static double rate(const struct top_counters *before, const struct top_sample *sample, const json_t *row, const char *what,
                   int64_t number)
{
    if (!before || sample->counters.time_ns <= before->time_ns)
        return -1;
    char *key = key_of(row, what, number);
    const json_t *first = json_object_get(before->values, key), *second = json_object_get(sample->counters.values, key);
    free(key);
    if (!first || !second)
        return -1;
    json_int_t grown = json_integer_value(second) - json_integer_value(first);
    return grown > 0 ? (double)grown / (double)(sample->counters.time_ns - before->time_ns) : 0;
}

// A daemon that says itself what share of a processor a thread had knows better, for it knows when it looked.
static double share(const struct top_counters *before, const struct top_sample *sample, const json_t *row, int64_t lane)
{
    char *key = key_of(row, "lane", lane);
    const json_t *told = json_object_get(sample->shares, key);
    free(key);
    return told ? json_number_value(told) : rate(before, sample, row, "lane", lane);
}

static void add_rate(double *sum, double more)
{
    if (more >= 0)
        *sum = *sum < 0 ? more : *sum + more;
}

// ---- the tree

static struct top_run *run_of(struct top_sample *sample, const json_t *row)
{
    for (size_t i = 0; i < sample->run_count; i++)
        if (strcmp(sample->runs[i].id, text_of(row, "run")) == 0)
            return &sample->runs[i];
    return NULL;
}

static struct top_rank *rank_of(struct top_run *run, const json_t *row)
{
    for (size_t i = 0; i < run->rank_count; i++)
        if (run->ranks[i].pid == integer_of(row, "pid", 0))
            return &run->ranks[i];
    return NULL;
}

static void add_run(struct top_sample *sample, const json_t *row)
{
    if (strcmp(text_of(row, "state"), "recording") != 0)
        return;
    sample->runs = alloc_resize(sample->runs, sample->run_count + 1, sizeof *sample->runs);
    sample->runs[sample->run_count++] = (struct top_run){.id = text_of(row, "run"),
                                                         .state = text_of(row, "state"),
                                                         .file = text_of(row, "file"),
                                                         .cpu = -1,
                                                         .calls_per_s = -1,
                                                         .lost = integer_of(row, "lost", 0)};
}

static void add_rank(struct top_sample *sample, const struct top_counters *before, const json_t *row)
{
    struct top_run *run = run_of(sample, row);
    const char *state = text_of(row, "state");
    if (!run || (strcmp(state, "live") != 0 && strcmp(state, "deaf") != 0))
        return;
    double calls = rate(before, sample, row, "calls", 0);
    run->ranks = alloc_resize(run->ranks, run->rank_count + 1, sizeof *run->ranks);
    run->ranks[run->rank_count++] = (struct top_rank){.host = text_of(row, "host"),
                                                      .state = state,
                                                      .rank = integer_of(row, "rank", -1),
                                                      .pid = integer_of(row, "pid", 0),
                                                      .cpu = -1,
                                                      .paused = json_is_true(json_object_get(row, "paused")),
                                                      .calls_per_s = calls < 0 ? calls : calls * 1e9,
                                                      .calls = integer_of(row, "produced", 0),
                                                      .lost = integer_of(row, "lost", 0)};
    add_rate(&run->calls_per_s, calls < 0 ? calls : calls * 1e9);
}

// A thread's time includes that of the tasks it steps: only threads add up.
static void add_lane(struct top_sample *sample, const struct top_counters *before, const json_t *row)
{
    struct top_run *run = run_of(sample, row);
    struct top_rank *rank = run ? rank_of(run, row) : NULL;
    if (!rank)
        return;
    int64_t number = integer_of(row, "lane", -1), since = integer_of(row, "since_ns", sample->counters.time_ns);
    double cpu = share(before, sample, row, number);
    rank->lanes = alloc_resize(rank->lanes, rank->lane_count + 1, sizeof *rank->lanes);
    rank->lanes[rank->lane_count++] =
        (struct top_lane){.label = text_of(row, "label"),
                          .state = text_of(row, "state"),
                          .stack = table_stack(json_object_get(row, "stack")),
                          .cpu = cpu,
                          .age_ns = since < sample->counters.time_ns ? sample->counters.time_ns - since : 0};
    if (number < 0) {
        add_rate(&rank->cpu, cpu);
        add_rate(&run->cpu, cpu);
    }
}

int top_sample(const char *rundir, bool quiet, const struct top_counters *before, struct top_sample *sample)
{
    static const char *const paths[] = {"/v1/runs", "/v1/processes", "/v1/lanes", "/v1/threads", "/v1/tasks"};
    size_t i;
    json_t *row;
    *sample = (struct top_sample){0};
    for (size_t reply = 0; reply < sizeof paths / sizeof *paths; reply++) {
        struct client_query query = {.rundir = rundir, .path = paths[reply], .quiet = quiet};
        int result = client_ask(&query, &sample->replies[reply]);
        if (result < 0) {
            top_sample_finish(sample);
            return result;
        }
    }
    sample->counters.time_ns = integer_of(sample->replies[THREADS], "time_ns", 0);
    count_all(sample);
    json_array_foreach(json_object_get(sample->replies[RUNS], "rows"), i, row) add_run(sample, row);
    json_array_foreach(json_object_get(sample->replies[PROCESSES], "rows"), i, row) add_rank(sample, before, row);
    json_array_foreach(json_object_get(sample->replies[LANES], "rows"), i, row) add_lane(sample, before, row);
    return 0;
}

void top_sample_finish(struct top_sample *sample)
{
    for (size_t i = 0; i < sample->run_count; i++) {
        for (size_t j = 0; j < sample->runs[i].rank_count; j++) {
            for (size_t k = 0; k < sample->runs[i].ranks[j].lane_count; k++)
                free(sample->runs[i].ranks[j].lanes[k].stack);
            free(sample->runs[i].ranks[j].lanes);
        }
        free(sample->runs[i].ranks);
    }
    free(sample->runs);
    for (size_t i = 0; i < sizeof sample->replies / sizeof *sample->replies; i++)
        json_decref(sample->replies[i]);
    json_decref(sample->counters.values);
    json_decref(sample->shares);
    *sample = (struct top_sample){0};
}
