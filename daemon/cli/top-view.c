#include "cli/top.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>
#include <wctype.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "cli/table.h"

enum { LABEL_COLUMNS = 18 };

const char *const top_sort_names[TOP_SORTS] = {"cpu", "age", "calls", "name"};

static const double busy_share = 0.01;  // of a processor: below, a lane that is not seen running is idle

// ---- order

static enum top_sort order;

static int descending(double a, double b)
{
    return a > b ? -1 : a < b;
}

static int64_t oldest(const struct top_rank *rank)
{
    int64_t age_ns = 0;
    for (size_t i = 0; i < rank->lane_count; i++)
        age_ns = rank->lanes[i].age_ns > age_ns ? rank->lanes[i].age_ns : age_ns;
    return age_ns;
}

static bool is_idle(const struct top_lane *lane)
{
    return lane->cpu < busy_share && strcmp(lane->state, "running") != 0 && strcmp(lane->state, "moving") != 0;
}

static int compare_lanes(const void *a, const void *b)
{
    const struct top_lane *one = a, *other = b;
    int result = order == TOP_BY_NAME  ? strcmp(one->label, other->label)
                 : order == TOP_BY_AGE ? descending((double)one->age_ns, (double)other->age_ns)
                                       : descending(one->cpu, other->cpu);
    if (result == 0)
        result = is_idle(one) - is_idle(other);
    return result ? result : strcmp(one->label, other->label);
}

static int compare_ranks(const void *a, const void *b)
{
    const struct top_rank *one = a, *other = b;
    int result = order == TOP_BY_CPU     ? descending(one->cpu, other->cpu)
                 : order == TOP_BY_CALLS ? descending(one->calls_per_s, other->calls_per_s)
                 : order == TOP_BY_AGE   ? descending((double)oldest(one), (double)oldest(other))
                                         : 0;
    if (result)
        return result;
    return one->rank != other->rank ? (one->rank < other->rank ? -1 : 1)
           : one->pid < other->pid  ? -1
                                    : one->pid > other->pid;
}

static int compare_runs(const void *a, const void *b)
{
    const struct top_run *one = a, *other = b;
    int result = order == TOP_BY_CPU     ? descending(one->cpu, other->cpu)
                 : order == TOP_BY_CALLS ? descending(one->calls_per_s, other->calls_per_s)
                                         : 0;
    return result ? result : strcmp(one->id, other->id);
}

static void sort_some(void *list, size_t count, size_t size, int (*compare)(const void *, const void *))
{
    if (count)  // else there is no list
        qsort(list, count, size, compare);
}

static void sort_all(struct top_sample *sample, enum top_sort sort)
{
    order = sort;
    for (size_t i = 0; i < sample->run_count; i++) {
        struct top_run *run = &sample->runs[i];
        for (size_t j = 0; j < run->rank_count; j++)
            sort_some(run->ranks[j].lanes, run->ranks[j].lane_count, sizeof *run->ranks[j].lanes, compare_lanes);
        sort_some(run->ranks, run->rank_count, sizeof *run->ranks, compare_ranks);
    }
    sort_some(sample->runs, sample->run_count, sizeof *sample->runs, compare_runs);
}

// ---- text

char *top_fit(const char *text, int columns, bool pad)
{
    struct buffer out = {0};
    mbstate_t state = {0};
    int used = 0;
    while (*text) {
        wchar_t wide;
        size_t length = mbrtowc(&wide, text, MB_CUR_MAX, &state);
        bool sound = length != (size_t)-1 && length != (size_t)-2 && length > 0 && iswprint((wint_t)wide);
        int width = sound ? wcwidth(wide) : 1;
        if (used + width > columns)
            break;
        if (length == (size_t)-1 || length == (size_t)-2) {
            memset(&state, 0, sizeof state);
            length = 1;
        }
        buffer_append(&out, sound ? text : "?", sound ? length : 1);
        used += width;
        text += length;
    }
    while (pad && used++ < columns)
        buffer_text(&out, " ");
    buffer_append(&out, "", 1);
    return out.data;
}

static void add_line(struct top_lines *lines, enum top_kind kind, char *text)
{
    lines->list = alloc_resize(lines->list, lines->count + 1, sizeof *lines->list);
    lines->list[lines->count++] = (struct top_line){kind, text};
}

static const char *share_text(double share, char text[16])
{
    snprintf(text, 16, share < 0 ? "-" : "%.0f %%", 100 * share);
    return text;
}

static const char *rate_text(double per_s, char text[16])
{
    snprintf(text, 16,
             per_s < 0      ? "-"
             : per_s >= 1e6 ? "%.1fM/s"
             : per_s >= 1e4 ? "%.0fk/s"
                            : "%.0f/s",
             per_s >= 1e6   ? per_s / 1e6
             : per_s >= 1e4 ? per_s / 1e3
                            : per_s);
    return text;
}

const char *top_header(void)
{
    return "   CPU  STATE           SINCE  LANE               STACK";
}

// CPU, state, since; then what there is to say.
static char *columns_text(double cpu, const char *state, int64_t age_ns, const char *label, const char *stack)
{
    char share[16], age[TABLE_VALUE_MAX];
    table_duration(age_ns, age);
    char *name = top_fit(label, LABEL_COLUMNS, true);
    char *text = alloc_printf("%6s  %-10s  %9s  %s %s", share_text(cpu, share), state, age, name, stack);
    free(name);
    return text;
}

// ---- lines

static bool is_chosen(const struct top_view *view, const struct top_rank *rank, const struct top_lane *lane)
{
    char number[32];
    snprintf(number, sizeof number, "rank %lld", (long long)rank->rank);
    return !*view->filter || strstr(lane->label, view->filter) || strstr(lane->stack, view->filter) ||
           strstr(lane->state, view->filter) || strcmp(number, view->filter) == 0;
}

static void add_lane(struct top_lines *lines, const struct top_lane *lane)
{
    add_line(lines, TOP_LANE, columns_text(lane->cpu, lane->state, lane->age_ns, lane->label, lane->stack));
}

// Idle lanes that are in the same regions become one line.
static void add_idle(struct top_lines *lines, const struct top_view *view, const struct top_rank *rank, size_t first,
                     bool *done)
{
    const struct top_lane *lane = &rank->lanes[first];
    size_t count = 0;
    int64_t age_ns = 0;
    for (size_t i = first; i < rank->lane_count; i++) {
        const struct top_lane *other = &rank->lanes[i];
        if (done[i] || !is_idle(other) || !is_chosen(view, rank, other) || strcmp(other->stack, lane->stack) != 0)
            continue;
        done[i] = true;
        count++;
        age_ns = other->age_ns > age_ns ? other->age_ns : age_ns;
    }
    if (count == 1) {
        add_lane(lines, lane);
        return;
    }
    char label[32];
    snprintf(label, sizeof label, "%zu idle", count);
    add_line(lines, TOP_IDLE, columns_text(0, "", age_ns, label, lane->stack));
}

static void add_lanes(struct top_lines *lines, const struct top_view *view, const struct top_rank *rank)
{
    bool *done = alloc_zeroed(rank->lane_count + 1, sizeof *done);
    for (size_t i = 0; i < rank->lane_count; i++) {
        const struct top_lane *lane = &rank->lanes[i];
        if (done[i] || !is_chosen(view, rank, lane))
            continue;
        lines->lanes++;
        lines->busy += !is_idle(lane);
        if (view->unfolded || !is_idle(lane))
            add_lane(lines, lane);
    }
    for (size_t i = 0; i < rank->lane_count && !view->unfolded; i++)
        if (!done[i] && is_idle(&rank->lanes[i]) && is_chosen(view, rank, &rank->lanes[i]))
            add_idle(lines, view, rank, i, done);
    free(done);
}

static bool has_chosen(const struct top_view *view, const struct top_rank *rank)
{
    for (size_t i = 0; i < rank->lane_count; i++)
        if (is_chosen(view, rank, &rank->lanes[i]))
            return true;
    return !*view->filter;
}

static void add_rank(struct top_lines *lines, const struct top_view *view, const struct top_rank *rank)
{
    char share[16], calls[16], name[32] = "no rank", lost[40] = "";
    if (rank->rank >= 0)
        snprintf(name, sizeof name, "rank %lld", (long long)rank->rank);
    if (rank->lost)
        snprintf(lost, sizeof lost, ", %lld LOST", (long long)rank->lost);
    lines->ranks++;
    add_line(lines, TOP_RANK,
             alloc_printf("%6s  %-10s  %-9s  pid %lld on %s, %s calls%s", share_text(rank->cpu, share),
                          rank->paused ? "paused" : rank->state, name, (long long)rank->pid, rank->host,
                          rate_text(rank->calls_per_s, calls), lost));
    add_lanes(lines, view, rank);
}

void top_lines(struct top_sample *sample, const struct top_view *view, struct top_lines *lines)
{
    *lines = (struct top_lines){0};
    sort_all(sample, view->sort);
    for (size_t i = 0; i < sample->run_count; i++) {
        const struct top_run *run = &sample->runs[i];
        char share[16], calls[16];
        add_line(lines, TOP_RUN,
                 alloc_printf("%6s  run %s: %zu process%s, %s calls, %s", share_text(run->cpu, share), run->id,
                              run->rank_count, run->rank_count == 1 ? "" : "es", rate_text(run->calls_per_s, calls),
                              run->file));
        for (size_t j = 0; j < run->rank_count; j++)
            if (has_chosen(view, &run->ranks[j]))
                add_rank(lines, view, &run->ranks[j]);
    }
}

void top_lines_finish(struct top_lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        free(lines->list[i].text);
    free(lines->list);
    *lines = (struct top_lines){0};
}
