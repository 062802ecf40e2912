// Call stacks by scope-profiler's rules; lane ids and labels. Against scope-profiler's own they are compared,
// call by call, by tests/end/test_callstack_agrees.py.
#include <inttypes.h>

#include "run-fixture.h"

enum { NONE = -1 };

// Up to 16 calls "a", "b", … given as (start, end), in the order given; lanes where `threads` is set.
struct made {
    struct sl_calls calls;
    struct sl_call_stack stack;
    struct sl_nesting_error wrong;
    int result;
};

static struct made build(const int64_t (*times)[2], size_t count, const int64_t *threads, const int64_t *tasks)
{
    struct made made = {.calls.count = count};
    made.calls.start_ns = alloc_zeroed(count, sizeof(int64_t));
    made.calls.end_ns = alloc_zeroed(count, sizeof(int64_t));
    made.calls.region = alloc_zeroed(count, sizeof(uint32_t));
    made.calls.call_index = alloc_zeroed(count, sizeof(uint64_t));
    for (size_t i = 0; i < count; i++) {
        made.calls.start_ns[i] = times[i][0];
        made.calls.end_ns[i] = times[i][1];
        made.calls.region[i] = (uint32_t)i;
    }
    if (threads) {
        made.calls.thread = alloc_zeroed(count, sizeof(int64_t));
        memcpy(made.calls.thread, threads, count * sizeof(int64_t));
    }
    if (tasks) {
        made.calls.task = alloc_zeroed(count, sizeof(int64_t));
        memcpy(made.calls.task, tasks, count * sizeof(int64_t));
    }
    made.result = sl_call_stack_build(&made.calls, &made.stack, &made.wrong);
    return made;
}

static void finish(struct made *made)
{
    sl_calls_finish(&made->calls);
    sl_call_stack_finish(&made->stack);
}

// Of each call in the order given: the parent's number in that order, its depth, its exclusive time.
static void expect(const struct made *made, const int64_t *parents, const uint32_t *depths, const int64_t *exclusive)
{
    cr_assert_eq(made->result, 0);
    for (size_t i = 0; i < made->stack.count; i++) {
        uint64_t call = made->stack.order[i];
        int64_t parent = made->stack.parent[i];
        cr_assert_eq(parent < 0 ? NONE : (int64_t)made->stack.order[parent], parents[call], "parent of %c",
                     (int)('a' + call));
        cr_assert(!depths || made->stack.depth[i] == depths[call], "depth of %c", (int)('a' + call));
        cr_assert(!exclusive || made->stack.exclusive_ns[i] == exclusive[call], "exclusive of %c", (int)('a' + call));
        cr_assert_lt(parent, (int64_t)i, "parents stand first");
    }
}

#define TIMES(...) (const int64_t[][2]){__VA_ARGS__}
#define LIST(...) (const int64_t[]){__VA_ARGS__}
#define DEPTHS(...) (const uint32_t[]){__VA_ARGS__}

TestSuite(callstack, .timeout = 60);

// -- nesting ----------------------------------------------------------------------------------------------------------

Test(callstack, what_contains_is_the_parent_and_disjoint_calls_are_siblings)
{
    struct made made = build(TIMES({0, 100}, {10, 50}, {20, 30}, {60, 90}, {200, 300}), 5, NULL, NULL);
    expect(&made, LIST(NONE, 0, 1, 0, NONE), DEPTHS(0, 1, 2, 1, 0), LIST(30, 30, 10, 30, 100));
    finish(&made);
}

Test(callstack, touching_calls_are_siblings)
{
    struct made made = build(TIMES({0, 30}, {0, 10}, {10, 20}, {20, 30}), 4, NULL, NULL);
    expect(&made, LIST(NONE, 0, 0, 0), DEPTHS(0, 1, 1, 1), LIST(0, 10, 10, 10));
    finish(&made);
    made = build(TIMES({0, 10}, {10, 20}), 2, NULL, NULL);
    expect(&made, LIST(NONE, NONE), DEPTHS(0, 0), LIST(10, 10));
    finish(&made);
}

Test(callstack, of_calls_that_start_together_the_longer_is_the_parent)
{
    struct made made = build(TIMES({5, 10}, {5, 30}, {5, 20}), 3, NULL, NULL);
    expect(&made, LIST(2, NONE, 1), DEPTHS(2, 0, 1), LIST(5, 10, 10));
    finish(&made);
}

Test(callstack, of_equal_intervals_one_is_in_the_other)
{
    struct made made = build(TIMES({5, 10}, {5, 10}, {5, 10}), 3, NULL, NULL);
    expect(&made, LIST(NONE, 0, 1), DEPTHS(0, 1, 2), LIST(0, 0, 5));
    finish(&made);
}

Test(callstack, more_equal_starts_than_a_small_sort_takes_still_come_longest_first)
{
    enum { MANY = 1000 };
    static int64_t times[MANY][2];
    for (int i = 0; i < MANY; i++)
        times[i][0] = 7, times[i][1] = 8 + (i * 337) % MANY;
    struct made made = build((const int64_t(*)[2])times, MANY, NULL, NULL);
    cr_assert_eq(made.result, 0);
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(made.calls.end_ns[made.stack.order[i]], 7 + MANY - i);
        cr_assert_eq(made.stack.depth[i], i);
    }
    finish(&made);
}

Test(callstack, recursion_grows_the_depth_and_keeps_call_numbers_apart)
{
    struct sl_calls calls = {.count = 4};
    int64_t starts[] = {0, 10, 20, 30}, ends[] = {100, 90, 80, 70};
    uint32_t regions[] = {0, 0, 0, 0};
    uint64_t indices[] = {0, 1, 2, 3};
    calls.start_ns = starts, calls.end_ns = ends, calls.region = regions, calls.call_index = indices;
    struct sl_call_stack stack;
    struct sl_nesting_error wrong;
    cr_assert_eq(sl_call_stack_build(&calls, &stack, &wrong), 0);
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(stack.depth[i], i);
        cr_assert_eq(stack.parent[i], i - 1);
        cr_assert_eq(calls.call_index[stack.order[i]], i);
    }
    sl_call_stack_finish(&stack);
}

Test(callstack, calls_of_no_length_lie_inside_and_at_the_start_but_not_at_the_end)
{
    struct made made = build(TIMES({10, 20}, {15, 15}, {10, 10}, {20, 20}), 4, NULL, NULL);
    expect(&made, LIST(NONE, 0, 0, NONE), DEPTHS(0, 1, 1, 0), LIST(10, 0, 0, 0));
    finish(&made);
    made = build(TIMES({5, 5}, {5, 5}, {6, 6}), 3, NULL, NULL);  // two at once: one in the other
    expect(&made, LIST(NONE, 0, NONE), DEPTHS(0, 1, 0), LIST(0, 0, 0));
    finish(&made);
}

Test(callstack, no_calls_make_an_empty_stack)
{
    struct made made = build(NULL, 0, NULL, NULL);
    cr_assert_eq(made.result, 0);
    cr_assert_eq(made.stack.count, 0);
    cr_assert_null(made.stack.lane);
    finish(&made);
}

// -- what does not nest -----------------------------------------------------------------------------------------------

Test(callstack, a_partial_overlap_is_named_with_both_regions_calls_and_intervals)
{
    struct written run = {.options = {.calls = 4}};
    char text[SL_RUN_ERROR_MAX];
    make_directory();
    written_begin(&run, "run.h5");
    written_row(&run, "outer", 2, (struct run_call[]){{0, 5}, {10, 20}}, 2);
    written_row(&run, "inner", 2, (struct run_call[]){{1, 2}, {15, 25}}, 2);
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    struct sl_calls calls = read_calls(read, 2);
    struct sl_call_stack stack;
    struct sl_nesting_error wrong;
    cr_assert_eq(sl_call_stack_build(&calls, &stack, &wrong), -EBADMSG);
    sl_nesting_error_text(read, 2, &wrong, text, sizeof text);
    cr_assert_str_eq(text,
                     "rank 2, unknown lane: calls are not properly nested: 'inner' call 1 [15, 25] ns starts inside "
                     "'outer' call 1 [10, 20] ns but ends after it");
    cr_assert_eq(stack.count, 0);
    sl_calls_finish(&calls);
    sl_run_close(read);
    remove_directory();
}

Test(callstack, the_same_overlap_on_two_threads_makes_two_roots)
{
    struct made made = build(TIMES({0, 10}, {5, 15}), 2, NULL, NULL);
    cr_assert_eq(made.result, -EBADMSG);
    finish(&made);
    made = build(TIMES({0, 10}, {5, 15}), 2, LIST(0, 1), NULL);
    expect(&made, LIST(NONE, NONE), DEPTHS(0, 0), LIST(10, 10));
    cr_assert_eq(made.stack.lane[0], -2);
    cr_assert_eq(made.stack.lane[1], -3);
    finish(&made);
}

Test(callstack, an_end_before_the_start_is_an_error)
{
    struct made made = build(TIMES({0, 10}, {7, 6}), 2, NULL, NULL);
    cr_assert_eq(made.result, -EBADMSG);
    cr_assert(made.wrong.backward);
    cr_assert_eq(made.wrong.inner.start_ns, 7);
    finish(&made);
}

Test(callstack, takes_times_from_end_to_end_of_the_integers)
{
    struct made made = build(TIMES({INT64_MIN, INT64_MAX}, {-5, 5}), 2, LIST(INT64_MAX, INT64_MAX), NULL);
    cr_assert_eq(made.result, 0);
    cr_assert_eq(made.stack.depth[1], 1);
    finish(&made);
}

// -- lanes ------------------------------------------------------------------------------------------------------------

Test(callstack, lane_ids_keep_threads_negative_and_let_the_task_win)
{
    int64_t lanes[4];
    sl_lane_ids(LIST(0, 1, 2, -1), NULL, 4, lanes);
    cr_assert_eq(memcmp(lanes, LIST(-2, -3, -4, -1), sizeof lanes), 0);
    sl_lane_ids(LIST(0, 1, 2, -1), LIST(-1, 7, -1, 0), 4, lanes);
    cr_assert_eq(memcmp(lanes, LIST(-2, 7, -4, 0), sizeof lanes), 0);
}

Test(callstack, a_task_is_one_lane_whichever_threads_it_runs_on)
{
    struct made made = build(TIMES({0, 100}, {10, 90}, {5, 95}), 3, LIST(0, 1, 0), LIST(4, 4, NONE));
    expect(&made, LIST(NONE, 0, NONE), DEPTHS(0, 1, 0), LIST(20, 80, 90));
    finish(&made);
}

Test(callstack, calls_of_no_known_thread_share_a_lane)
{
    struct made made = build(TIMES({0, 100}, {10, 90}, {20, 80}), 3, LIST(-1, -1, 0), NULL);
    expect(&made, LIST(NONE, 0, NONE), DEPTHS(0, 1, 0), LIST(20, 80, 60));
    cr_assert_eq(made.stack.lane[0], -1);
    finish(&made);
}

Test(callstack, without_threads_there_is_no_lane_array)
{
    struct made made = build(TIMES({0, 100}, {10, 90}), 2, NULL, LIST(1, 2));  // tasks alone are no lanes
    expect(&made, LIST(NONE, 0), DEPTHS(0, 1), LIST(20, 80));
    cr_assert_null(made.stack.lane);
    finish(&made);
}

Test(callstack, lanes_may_have_any_numbers)
{
    struct made made = build(TIMES({0, 100}, {10, 90}, {20, 80}, {30, 70}), 4, LIST(0, 0, INT64_MAX - 1, -7),
                             LIST(NONE, INT64_MAX, NONE, INT64_MAX));
    expect(&made, LIST(NONE, NONE, NONE, 1), DEPTHS(0, 0, 0, 1), LIST(100, 40, 60, 40));
    struct sl_lane_split split;
    cr_assert_eq(sl_call_stack_split(&made.stack, &split), 0);
    cr_assert_eq(split.lane_count, 3);
    cr_assert_eq(split.lanes[2].id, INT64_MAX);
    cr_assert_eq(split.lanes[2].count, 2);
    sl_lane_split_finish(&split);
    finish(&made);
}

Test(callstack, splitting_gives_lanes_ascending_and_parents_by_position_in_the_lane)
{
    struct made made = build(TIMES({0, 100}, {1, 99}, {2, 50}, {3, 40}, {60, 90}), 5, LIST(0, 1, 0, 1, 1), NULL);
    struct sl_lane_split split;
    cr_assert_eq(made.result, 0);
    cr_assert_eq(sl_call_stack_split(&made.stack, &split), 0);
    cr_assert_eq(split.lane_count, 2);
    cr_assert(split.lanes[0].id == -3 && split.lanes[0].first == 0 && split.lanes[0].count == 3);
    cr_assert(split.lanes[1].id == -2 && split.lanes[1].first == 3 && split.lanes[1].count == 2);
    cr_assert_eq(memcmp(split.calls, ((uint64_t[]){1, 3, 4, 0, 2}), 5 * sizeof(uint64_t)), 0);
    cr_assert_eq(memcmp(split.parent, LIST(NONE, 0, 0, NONE, 0), 5 * sizeof(int64_t)), 0);
    sl_lane_split_finish(&split);
    finish(&made);
}

Test(callstack, splitting_without_lanes_gives_one_and_nothing_gives_none)
{
    struct made made = build(TIMES({0, 100}, {1, 99}), 2, NULL, NULL);
    struct sl_lane_split split;
    cr_assert_eq(sl_call_stack_split(&made.stack, &split), 0);
    cr_assert(split.lane_count == 1 && split.lanes[0].id == -1 && split.lanes[0].count == 2);
    sl_lane_split_finish(&split);
    finish(&made);
    made = build(TIMES({0, 100}, {1, 99}, {2, 50}), 3, LIST(5, 5, 5), NULL);  // one lane that has a number
    cr_assert_eq(sl_call_stack_split(&made.stack, &split), 0);
    cr_assert(split.lane_count == 1 && split.lanes[0].id == -7 && split.lanes[0].count == 3);
    for (size_t i = 0; i < 3; i++)
        cr_assert(split.calls[i] == i && split.parent[i] == made.stack.parent[i], "as they were");
    sl_lane_split_finish(&split);
    finish(&made);
    made = build(NULL, 0, NULL, NULL);
    cr_assert_eq(sl_call_stack_split(&made.stack, &split), 0);
    cr_assert_eq(split.lane_count, 0);
    sl_lane_split_finish(&split);
    finish(&made);
}

Test(callstack, labels_name_threads_tasks_and_what_has_no_row)
{
    char *path, text[128];
    struct written run = {.options = {.calls = 1, .tasks = true}};
    make_directory();
    written_begin(&run, "run.h5");
    written_row(&run, "r", 0, (struct run_call[]){{0, 5, 0, 0, 0}}, 1);
    runwrite_thread(run.w, &(struct run_thread){0, 0, 1, 1, false, "MainThread", 0, RUN_UNKNOWN, 0});
    runwrite_thread(run.w, &(struct run_thread){0, 1, 1, 1, false, "worker", 0, RUN_UNKNOWN, 0});
    runwrite_task(run.w, &(struct run_task){0, 0, "task", "Task-1", "app.<locals>.job", 0, 0, RUN_UNKNOWN, 1, 1, 1});
    runwrite_task(run.w, &(struct run_task){0, 1, "task", "Task-2", "job", 7, 0, RUN_UNKNOWN, 1, 1, 1});
    runwrite_task(run.w, &(struct run_task){0, 2, "task", "Task-3", "", -5, 0, RUN_UNKNOWN, 1, 1, 1});
    path = run.path;
    written_end(&run);
    struct sl_run *read = open_run(path);
    const struct {
        int64_t lane;
        const char *label;
    } cases[] = {
        {-2, "MainThread"}, {-3, "worker"},   {-1, "unknown lane"},                   {-99, "thread 97"},
        {7, "task 7"},      {0, "Task-1 (job) on MainThread"}, {1, "Task-2 (job) on thread 7"},
        {2, "Task-3 () on unknown lane"}, {INT64_MAX, "task 9223372036854775807"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_assert_eq(sl_lane_label(read, 0, cases[i].lane, text, sizeof text), (int)strlen(cases[i].label));
        cr_assert_str_eq(text, cases[i].label);
        cr_assert_eq(sl_lane_label(read, 0, cases[i].lane, text, 9), (int)strlen(cases[i].label));  // as snprintf
        cr_assert_eq(strncmp(text, cases[i].label, 8), 0);
        cr_assert_leq(strlen(text), 8);
    }
    sl_run_close(read);
    remove_directory();
}

Test(callstack, paths_join_names_from_the_root)
{
    struct written run = {.options = {.calls = 3}};
    char text[64];
    make_directory();
    written_begin(&run, "run.h5");
    written_row(&run, "main", 0, (struct run_call[]){{0, 100}}, 1);
    written_row(&run, "solve", 0, (struct run_call[]){{10, 90}}, 1);
    written_row(&run, "\u00e4", 0, (struct run_call[]){{20, 80}}, 1);
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    struct sl_calls calls = read_calls(read, 0);
    struct sl_call_stack stack;
    struct sl_nesting_error wrong;
    cr_assert_eq(sl_call_stack_build(&calls, &stack, &wrong), 0);
    const char *whole = "main > solve > \u00e4";
    for (size_t size = 0; size <= sizeof text; size++) {
        memset(text, '!', sizeof text);
        cr_assert_eq(sl_call_path(read, &stack, &calls, 2, text, size), strlen(whole));
        size_t kept = size == 0 ? 0 : size - 1 < strlen(whole) ? size - 1 : strlen(whole);
        cr_assert_eq(strncmp(text, whole, kept), 0);
        cr_assert(size == 0 ? text[0] == '!' : text[kept] == 0);
    }
    cr_assert_eq(sl_call_path(read, &stack, &calls, 0, text, sizeof text), 4);
    cr_assert_str_eq(text, "main");
    sl_call_stack_finish(&stack);
    sl_calls_finish(&calls);
    sl_run_close(read);
    remove_directory();
}

// -- properties -------------------------------------------------------------------------------------------------------

// Random forests on several lanes, made by a recursion that knows the parents; then shuffled.
enum { FOREST = 400 };

struct forest {
    size_t count;
    int64_t times[FOREST][2], parents[FOREST], threads[FOREST], tasks[FOREST];
};

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void grow(struct forest *forest, uint64_t *random, int64_t start, int64_t end, int64_t parent, int64_t thread,
                 int64_t task, int depth)
{
    int64_t now = start;
    while (forest->count < FOREST && now < end) {
        int64_t first = now + (int64_t)(next_random(random) % 5), last = first + (int64_t)(next_random(random) % 40);
        if (last > end || (parent != NONE && first >= end))
            return;
        size_t call = forest->count++;
        forest->times[call][0] = first, forest->times[call][1] = last;
        forest->parents[call] = parent, forest->threads[call] = thread, forest->tasks[call] = task;
        if (depth < 5 && last - first > 2)
            grow(forest, random, first + (first + 1 < last), last - 1, (int64_t)call, thread, task, depth + 1);
        now = last + (first == last);  // nothing starts where a call of no length is
    }
}

static void shuffle(struct forest *forest, uint64_t *random)
{
    for (size_t i = forest->count; i-- > 1;) {
        size_t other = next_random(random) % (i + 1);
#define SWAP(TYPE, A, B) do { TYPE kept = A; A = B; B = kept; } while (0)
        SWAP(int64_t, forest->times[i][0], forest->times[other][0]);
        SWAP(int64_t, forest->times[i][1], forest->times[other][1]);
        SWAP(int64_t, forest->threads[i], forest->threads[other]);
        SWAP(int64_t, forest->tasks[i], forest->tasks[other]);
        SWAP(int64_t, forest->parents[i], forest->parents[other]);
        for (size_t call = 0; call < forest->count; call++)
            if (forest->parents[call] == (int64_t)i || forest->parents[call] == (int64_t)other)
                forest->parents[call] = forest->parents[call] == (int64_t)i ? (int64_t)other : (int64_t)i;
    }
}

static void check_forest(uint64_t seed)
{
    struct forest forest = {0};
    uint64_t random = seed;
    int lanes = 1 + (int)(next_random(&random) % 6);
    for (int lane = 0; lane < lanes; lane++)
        grow(&forest, &random, (int64_t)(next_random(&random) % 50), 400, NONE, lane % 3, lane < 2 ? NONE : lane * 3,
             0);
    shuffle(&forest, &random);
    struct made made = build((const int64_t(*)[2])forest.times, forest.count, forest.threads, forest.tasks);
    cr_assert_eq(made.result, 0, "seed %" PRIu64, seed);
    int64_t exclusive = 0, roots = 0;
    for (size_t i = 0; i < made.stack.count; i++) {
        uint64_t call = made.stack.order[i];
        int64_t parent = made.stack.parent[i];
        int64_t duration = forest.times[call][1] - forest.times[call][0];
        cr_assert_eq(parent < 0 ? NONE : (int64_t)made.stack.order[parent], forest.parents[call], "seed %" PRIu64,
                     seed);
        cr_assert_geq(made.stack.exclusive_ns[i], 0);
        exclusive += made.stack.exclusive_ns[i];
        roots += parent < 0 ? duration : 0;
    }
    cr_assert_eq(exclusive, roots);
    finish(&made);
}

Test(callstack, finds_the_parents_of_random_forests_in_any_order)
{
    for (uint64_t seed = 1; seed <= 2000; seed++)
        check_forest(seed);
}

Test(callstack, children_of_a_call_left_out_hang_on_the_nearest_remaining_one)
{
    struct made whole = build(TIMES({0, 100}, {10, 90}, {20, 80}), 3, NULL, NULL);
    expect(&whole, LIST(NONE, 0, 1), NULL, NULL);
    finish(&whole);
    struct made part = build(TIMES({0, 100}, {20, 80}), 2, NULL, NULL);
    expect(&part, LIST(NONE, 0), DEPTHS(0, 1), LIST(40, 60));
    finish(&part);
}

// -- very many --------------------------------------------------------------------------------------------------------

// How long it takes is for tests/bench/callstack.c to say.
Test(callstack, each_of_100000_lanes_nests_by_itself)
{
    enum { LANES = 100000, PER_LANE = 10, CALLS = LANES * PER_LANE };
    int64_t(*times)[2] = alloc_zeroed(CALLS, sizeof *times), *threads = alloc_zeroed(CALLS, sizeof *threads),
           *tasks = alloc_zeroed(CALLS, sizeof *tasks);
    for (int64_t call = 0; call < CALLS; call++) {  // all lanes overlap: of each one call around nine that touch
        int64_t lane = call % LANES, part = call / LANES;
        times[call][0] = lane + (part ? part * 10 * LANES : 0);
        times[call][1] = part ? times[call][0] + 10 * LANES : lane + PER_LANE * 10 * LANES;
        tasks[call] = lane;
        threads[call] = call % 7;
    }
    struct made made = build((const int64_t(*)[2])times, CALLS, threads, tasks);
    struct sl_lane_split split;
    cr_assert_eq(made.result, 0);
    size_t wrong = 0;
    for (size_t i = 0; i < made.stack.count; i++) {
        int64_t call = (int64_t)made.stack.order[i], parent = made.stack.parent[i];
        wrong += (parent < 0 ? NONE : (int64_t)made.stack.order[parent]) != (call < LANES ? NONE : call % LANES);
        wrong += made.stack.exclusive_ns[i] != 10 * LANES;
    }
    cr_assert_eq(wrong, 0);
    cr_assert_eq(sl_call_stack_split(&made.stack, &split), 0);
    cr_assert_eq(split.lane_count, LANES);
    for (size_t lane = 0; lane < split.lane_count; lane++)
        wrong += split.lanes[lane].id != (int64_t)lane || split.lanes[lane].count != PER_LANE;
    cr_assert_eq(wrong, 0);
    sl_lane_split_finish(&split);
    finish(&made);
    free(times);
    free(threads);
    free(tasks);
}
