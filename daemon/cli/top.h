// What `top` shows: runs, their ranks, their lanes, with what each did since the last look. top-sample.c asks the daemons,
// top-view.c makes lines of text of it, cmd-top.c has the terminal.
#ifndef SL_CLI_TOP_H
#define SL_CLI_TOP_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct top_lane {
    const char *label, *state;
    char *stack;     // "step > halo"
    double cpu;      // share of a processor since `before`, of a task the time it was stepped; < 0 not known yet
    int64_t age_ns;  // since it entered or left a region
};

struct top_rank {
    const char *host, *state;
    int64_t rank, pid;  // rank < 0: none
    bool paused;
    double cpu, calls_per_s;  // < 0 not known yet
    int64_t calls, lost;
    struct top_lane *lanes;
    size_t lane_count;
};

struct top_run {
    const char *id, *state, *file;
    double cpu, calls_per_s;
    int64_t lost;
    struct top_rank *ranks;
    size_t rank_count;
};

// What grows, by lane and process, at a time: the difference of two says how fast.
struct top_counters {
    json_t *values;
    int64_t time_ns;
};

struct top_sample {
    json_t *replies[5];  // the texts above are theirs
    struct top_counters counters;
    json_t *shares;  // of a processor, by lane, where the daemon tells them
    struct top_run *runs;  // those that are being recorded
    size_t run_count;
};

// What is to be seen now. `before` may be NULL. 0, or -errno with the reason said unless `quiet`.
int top_sample(const char *rundir, bool quiet, const struct top_counters *before, struct top_sample *sample);
void top_sample_finish(struct top_sample *sample);  // one that is all zero has nothing

enum top_sort { TOP_BY_CPU, TOP_BY_AGE, TOP_BY_CALLS, TOP_BY_NAME, TOP_SORTS };
extern const char *const top_sort_names[TOP_SORTS];

struct top_view {
    enum top_sort sort;
    char filter[64];  // only lanes whose rank, label, state or stack has this in it; "" all
    bool unfolded;    // idle lanes one by one
};

enum top_kind { TOP_RUN, TOP_RANK, TOP_LANE, TOP_IDLE };

struct top_line {
    enum top_kind kind;
    char *text;
};

struct top_lines {
    struct top_line *list;
    size_t count;
    size_t ranks, lanes, busy;
};

void top_lines(struct top_sample *sample, const struct top_view *view, struct top_lines *lines);  // sorts the sample
void top_lines_finish(struct top_lines *lines);
const char *top_header(void);

// As much of a text as fits so many columns, and blanks up to them where `pad`; what is no character of a screen is "?".
// Freed by the caller.
char *top_fit(const char *text, int columns, bool pad);

#endif
