// Several nodes' roll calls as one, and the lines of top.
#include <criterion/criterion.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "cli/top.h"
#include "cli/where.h"

// ---- where

static json_t *row(const char *host, const char *ranks, int lanes, const char *stack)
{
    return json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:s, s:[s]}", "run", host, "host", host, "ranks", ranks, "lanes", lanes, "rank_count",
                     0, "youngest_ns", lanes * 10, "oldest_ns", lanes * 100, "state", "waiting", "stack", stack);
}

static const char *text_of(const json_t *rows, size_t i, const char *key)
{
    return json_string_value(json_object_get(json_array_get(rows, i), key));
}

static int number_of(const json_t *rows, size_t i, const char *key)
{
    return (int)json_integer_value(json_object_get(json_array_get(rows, i), key));
}

Test(views, equal_stacks_of_several_nodes_are_one_group_the_smallest_first)
{
    json_t *rows = json_pack("[o, o, o, o]", row("a", "0-2,7", 4, "step"), row("b", "3,5-6", 3, "step"), row("b", "4", 1, "stray"),
                             row("c", "8,unranked", 2, "step"));
    where_merge(rows);
    cr_assert_eq(json_array_size(rows), 2);
    cr_assert_str_eq(text_of(rows, 0, "ranks"), "4");
    cr_assert_str_eq(text_of(rows, 0, "host"), "b");
    cr_assert_str_eq(text_of(rows, 1, "ranks"), "0-3,5-8,unranked");
    cr_assert_str_eq(text_of(rows, 1, "host"), "a,b,c");
    cr_assert_null(text_of(rows, 1, "run"), "of several runs");
    cr_assert_eq(number_of(rows, 1, "rank_count"), 8);
    cr_assert_eq(number_of(rows, 1, "lanes"), 9);
    cr_assert_eq(number_of(rows, 1, "youngest_ns"), 20);
    cr_assert_eq(number_of(rows, 1, "oldest_ns"), 400);
    json_decref(rows);
}

Test(views, ranks_below_zero_and_overlapping_ones_are_joined)
{
    json_t *rows = json_pack("[o, o]", row("a", "-5--3,-1", 4, "step"), row("a", "-4-0,2", 6, "step"));
    where_merge(rows);
    cr_assert_str_eq(text_of(rows, 0, "ranks"), "-5-0,2");
    cr_assert_eq(number_of(rows, 0, "rank_count"), 7);
    json_decref(rows);
}

Test(views, no_rows_stay_none)
{
    json_t *rows = json_array();
    where_merge(rows);
    where_name_idle(rows);
    cr_assert_eq(json_array_size(rows), 0);
    json_decref(rows);
}

// ---- top

static void expect_fit(const char *text, int columns, bool pad, const char *fitted)
{
    char *found = top_fit(text, columns, pad);
    cr_expect_str_eq(found, fitted, "'%s' in %d columns is '%s'", text, columns, found);
    free(found);
}

Test(views, a_line_is_cut_and_filled_by_columns_and_harmless)
{
    cr_assert_not_null(setlocale(LC_CTYPE, "C.UTF-8"));
    expect_fit("halo", 6, true, "halo  ");
    expect_fit("halo", 6, false, "halo");
    expect_fit("allreduce", 6, true, "allred");
    expect_fit("süß", 3, true, "süß");
    expect_fit("世界", 3, true, "世 ");
    expect_fit("a\033[2Jb", 10, false, "a?[2Jb");
    expect_fit("a\xff" "b\xc3", 10, false, "a?b?");
    expect_fit("", 2, true, "  ");
}

static json_t *no_reply(void)
{
    return json_object();
}

// A sample of one rank with these lanes, as top_sample would have made it.
static void sample_of(struct top_sample *sample, const struct top_lane *lanes, size_t count)
{
    *sample = (struct top_sample){.run_count = 1};
    for (size_t i = 0; i < sizeof sample->replies / sizeof *sample->replies; i++)
        sample->replies[i] = no_reply();
    sample->runs = calloc(1, sizeof *sample->runs);
    sample->runs[0] = (struct top_run){.id = "r", .state = "recording", .file = "r.h5", .rank_count = 1, .ranks = calloc(1, sizeof(struct top_rank))};
    sample->runs[0].ranks[0] = (struct top_rank){.host = "h", .state = "live", .rank = 3, .lane_count = count, .lanes = calloc(count, sizeof *lanes)};
    for (size_t i = 0; i < count; i++) {
        sample->runs[0].ranks[0].lanes[i] = lanes[i];
        sample->runs[0].ranks[0].lanes[i].stack = strdup(lanes[i].stack);
    }
}

Test(views, busy_lanes_come_first_and_idle_ones_in_the_same_regions_are_one_line)
{
    struct top_lane lanes[] = {
        {.label = "w1", .state = "waiting", .stack = "", .cpu = 0}, {.label = "slow", .state = "running", .stack = "b", .cpu = 0.2},
        {.label = "w2", .state = "waiting", .stack = "", .cpu = 0}, {.label = "fast", .state = "running", .stack = "a", .cpu = 0.9},
        {.label = "new", .state = "running", .stack = "c", .cpu = 0}, {.label = "one", .state = "waiting", .stack = "db", .cpu = 0},
    };
    struct top_sample sample;
    struct top_lines lines;
    struct top_view view = {.sort = TOP_BY_CPU};
    sample_of(&sample, lanes, 6);
    top_lines(&sample, &view, &lines);
    static const char *const expected[] = {"run r", "rank 3", "fast", "slow", "new", "one", "2 idle"};
    cr_assert_eq(lines.count, 7);
    for (size_t i = 0; i < 7; i++)
        cr_expect_not_null(strstr(lines.list[i].text, expected[i]), "line %zu has no %s: %s", i, expected[i], lines.list[i].text);
    cr_assert_eq(lines.lanes, 6);
    cr_assert_eq(lines.busy, 3);
    top_lines_finish(&lines);

    view = (struct top_view){.sort = TOP_BY_NAME, .unfolded = true, .filter = "w"};
    top_lines(&sample, &view, &lines);
    cr_assert_eq(lines.count, 7, "all that wait or have a w in their name, one by one");
    top_lines_finish(&lines);
    view = (struct top_view){.filter = "rank 4"};
    top_lines(&sample, &view, &lines);
    cr_assert_eq(lines.count, 1, "the run");
    top_lines_finish(&lines);
    top_sample_finish(&sample);
}
