// Reading run files: those that scope-profiler wrote (tests/reference), those of older schemas, and bad ones, each of
// which is refused in words. Values are compared with scope-profiler's own by tests/end/test_callstack_agrees.py.
#include <fcntl.h>
#include <math.h>
#include <sys/file.h>

#include "run-fixture.h"
#include "storage/report.h"

TestSuite(runread, .init = make_directory, .fini = remove_directory, .timeout = 120);

// -- reference files --------------------------------------------------------------------------------------------------

static uint64_t calls_of(const struct sl_run *run, const char *name)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < sl_run_row_count(run); i++)
        if (strcmp(sl_run_row(run, i)->name, name) == 0)
            calls += sl_run_row(run, i)->calls;
    return calls;
}

static size_t count_lanes(struct sl_run *run, uint32_t rank)
{
    struct sl_calls calls = read_calls(run, rank);
    struct sl_call_stack stack;
    struct sl_nesting_error wrong;
    struct sl_lane_split split;
    cr_assert_eq(sl_call_stack_build(&calls, &stack, &wrong), 0);
    cr_assert_eq(sl_call_stack_split(&stack, &split), 0);
    size_t count = split.lane_count;
    sl_lane_split_finish(&split);
    sl_call_stack_finish(&stack);
    sl_calls_finish(&calls);
    return count;
}

// The table of tests/reference/README.md.
static const struct {
    const char *file;
    int schema;
    uint32_t ranks;
    struct {
        const char *name;
        uint64_t calls;
    } regions[7];
    size_t lanes[4], threads[4], tasks[4];  // of each rank
} references[] = {
    {"untracked",
     3,
     1,
     {{"scope_profiler.session", 1}, {"solve", 3}, {"assemble", 3}, {"inner", 6}, {"descend", 4}, {"io/write", 1}},
     {1},
     {0},
     {0}},
    {"threads", 3, 1, {{"scope_profiler.session", 1}, {"outer", 6}, {"inner", 12}, {"wait", 1}}, {3}, {4}, {0}},
    {"asyncio",
     3,
     1,
     {{"scope_profiler.session", 1}, {"main", 1}, {"job", 5}, {"compute", 8}, {"fetch", 8}, {"never", 1}},
     {8},
     {1},
     {9}},
    {"uvloop",
     3,
     1,
     {{"scope_profiler.session", 1}, {"main", 1}, {"job", 5}, {"compute", 8}, {"fetch", 8}, {"never", 1}},
     {8},
     {1},
     {9}},
    {"greenlets", 3, 1, {{"ping", 4}, {"drive", 1}}, {3}, {1}, {3}},
    {"gevent", 3, 1, {{"fetch", 6}}, {3}, {1}, {5}},
    {"mixed",
     3,
     1,
     {{"scope_profiler.session", 1}, {"compute", 12}, {"job", 3}, {"fetch", 4}, {"main", 1}},
     {7},
     {5},
     {8}},
    {"ranks",
     3,
     4,
     {{"scope_profiler.session", 4}, {"step", 12}, {"compute", 12}, {"exchange", 12}, {"odd only", 2}},
     {1, 1, 1, 1},
     {0},
     {0}},
    {"ranks_lanes",
     3,
     4,
     {{"scope_profiler.session", 4}, {"step", 8}, {"worker", 4}, {"job", 4}, {"compute", 4}, {"fetch", 4}},
     {1, 4, 1, 6},
     {1, 2, 1, 4},
     {0, 5, 0, 5}},
    {"gzip", 3, 1, {{"scope_profiler.session", 1}, {"tick", 20000}}, {1}, {1}, {0}},
    {"native", 2, 1, {{"outer", 3}, {"inner", 6}}, {1}, {0}, {0}},
};

Test(runread, reads_what_scope_profiler_wrote)
{
    for (size_t i = 0; i < sizeof references / sizeof *references; i++) {
        char *path = reference(references[i].file);
        struct sl_run *run = open_run(path);
        size_t regions = 0, count;
        cr_assert_eq(sl_run_schema(run), references[i].schema, "%s", path);
        cr_assert_eq(sl_run_rank_count(run), references[i].ranks, "%s", path);
        for (; regions < 7 && references[i].regions[regions].name; regions++)
            cr_assert_eq(calls_of(run, references[i].regions[regions].name), references[i].regions[regions].calls,
                         "%s: %s", path, references[i].regions[regions].name);
        cr_assert_eq(sl_run_region_count(run), regions, "%s", path);
        for (uint32_t rank = 0; rank < references[i].ranks; rank++) {
            cr_assert_eq(count_lanes(run, rank), references[i].lanes[rank], "%s", path);
            sl_run_threads(run, rank, &count);
            cr_assert_eq(count, references[i].threads[rank], "%s", path);
            sl_run_tasks(run, rank, &count);
            cr_assert_eq(count, references[i].tasks[rank], "%s", path);
        }
        cr_assert_eq(sl_run_has_threads(run), references[i].threads[0] > 0);
        cr_assert_eq(sl_run_has_tasks(run), references[i].tasks[0] + references[i].tasks[1] > 0);
        sl_run_close(run);
    }
}

Test(runread, reads_the_aggregate_layout)
{
    struct sl_run *run = open_run(reference("aggregate"));
    cr_assert(sl_run_is_aggregate(run));
    const struct sl_run_row *row = find_row(run, "solve", 0);
    cr_assert(row && row->calls == 5 && row->exclusive_ns >= 0 && isnan(row->m2));
    cr_assert(row->minimum_ns <= row->maximum_ns && row->total_ns >= 5 * row->minimum_ns);
    struct sl_calls calls = read_calls(run, 0);
    cr_assert_eq(calls.count, 0);
    sl_calls_finish(&calls);
    sl_run_close(run);
}

Test(runread, knows_threads_in_order_of_registration_alive_or_ended)
{
    struct sl_run *run = open_run(reference("threads"));
    static const char *const names[] = {"MainThread", "idle", "alpha", "beta"};
    size_t count;
    const struct sl_run_thread *threads = sl_run_threads(run, 0, &count);
    cr_assert_eq(count, 4);
    for (size_t i = 0; i < 4; i++) {
        cr_assert_str_eq(threads[i].name, names[i]);
        cr_assert_eq(threads[i].index, (int64_t)i);
        cr_assert_eq(threads[i].alive, i < 2);
        cr_assert_eq(isnan(threads[i].end_time), i < 2);
        cr_assert_eq(isnan(threads[i].wall_time), i < 2);
        cr_assert(i < 2 || (threads[i].wall_time > 0 && threads[i].cpu_time > 0));
        cr_assert(threads[i].ident != 0 && threads[i].native_id > 0);
        cr_assert_eq(threads[i].daemon, i == 1);
        for (size_t j = 0; j < i; j++)
            cr_assert_neq(threads[i].ident, threads[j].ident);
    }
    sl_run_close(run);
}

Test(runread, knows_tasks_and_how_long_they_ran_and_waited)
{
    struct sl_run *run = open_run(reference("asyncio"));
    size_t count;
    const struct sl_run_task *tasks = sl_run_tasks(run, 0, &count);
    cr_assert_eq(count, 9);
    for (size_t i = 0; i < count; i++) {
        cr_assert_str_eq(tasks[i].kind, "task");
        cr_assert_eq(strncmp(tasks[i].name, "Task-", 5), 0);
        cr_assert(tasks[i].done && tasks[i].thread_index == 0 && tasks[i].steps >= 1);
        cr_assert_geq(tasks[i].wall_time + 1e-6, tasks[i].running_time + tasks[i].awaiting_time);
    }
    cr_assert_str_eq(tasks[0].coro_name, "tasks_main");
    sl_run_close(run);
}

// -- tables from columns ----------------------------------------------------------------------------------------------

Test(runread, turns_columns_into_rows_in_seconds)
{
    int64_t index[] = {0, 1}, ident[] = {11, 12}, native[] = {21, 22};
    int8_t daemon[] = {0, 1};
    int64_t start[] = {500000000, 1000000000}, end[] = {SL_RUN_UNKNOWN, 3000000000}, cpu[] = {1, 2000000000};
    const char *names[] = {"main", "worker"}, *kinds[] = {"task", "greenlet"}, *coros[] = {"a.b", ""};
    const struct sl_run_thread_columns thread_columns = {2, index, ident, native, daemon, start, end, cpu, names};
    int64_t thread_of[] = {0, 1}, steps[] = {2, 5};
    const struct sl_run_task_columns task_columns = {2,   index, thread_of, start, end,  steps,
                                                     cpu, cpu,   kinds,     names, coros};
    struct sl_run_thread threads[2];
    struct sl_run_task tasks[2];
    sl_lane_tables_from_columns(3, &thread_columns, threads, &task_columns, tasks);
    cr_assert(threads[0].rank == 3 && threads[0].alive && isnan(threads[0].end_time) && isnan(threads[0].wall_time));
    cr_assert(!threads[1].alive && threads[1].daemon && threads[1].wall_time == 2 && threads[1].cpu_time == 2);
    cr_assert(threads[0].start_time == 0.5 && threads[0].ident == 11 && !threads[0].daemon);
    cr_assert(!tasks[0].done && isnan(tasks[0].done_time) && isnan(tasks[0].wall_time));
    cr_assert(tasks[1].done && tasks[1].wall_time == 2 && tasks[1].running_time == 2 && tasks[1].steps == 5);
    cr_assert_str_eq(tasks[1].kind, "greenlet");
    sl_lane_tables_from_columns(3, NULL, NULL, NULL, NULL);
}

// -- older schemas ----------------------------------------------------------------------------------------------------

static const int64_t golden_starts[] = {10, 20, 40}, golden_ends[] = {15, 33, 55};

static void make_int_attribute(hid_t object, const char *name, int64_t value)
{
    hid_t space = H5Screate(H5S_SCALAR), attribute;
    attribute = H5Acreate2(object, name, H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, H5T_NATIVE_INT64, &value);
    H5Aclose(attribute);
    H5Sclose(space);
}

static void make_text_attribute(hid_t object, const char *name, const char *value)
{
    hid_t space = H5Screate(H5S_SCALAR), type = text_type();
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, &value);
    H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
}

static void make_texts_attribute(hid_t object, const char *name, hsize_t count, const char *const *values)
{
    hid_t space = H5Screate_simple(1, &count, NULL), type = text_type();
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, values);
    H5Aclose(attribute);
    H5Tclose(type);
    H5Sclose(space);
}

static void make_times(hid_t group, const char *name, const int64_t *values, hsize_t count, hid_t stored)
{
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t dataset = H5Dcreate2(group, name, stored, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(dataset);
    H5Sclose(space);
}

static void make_legacy_region(hid_t file, const char *path, const int64_t *starts, const int64_t *ends, hsize_t count)
{
    hid_t list = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(list, 1);
    hid_t group = H5Gcreate2(file, path, list, H5P_DEFAULT, H5P_DEFAULT);
    make_times(group, "start_times", starts, count, H5T_STD_I64BE);
    make_times(group, "end_times", ends, count, H5T_STD_I64LE);
    make_text_attribute(group, "source_file", "golden.py");
    make_int_attribute(group, "source_lineno", 7);
    make_texts_attribute(group, "tags", 2, (const char *[]){"golden", "\"\xc3\xa4\""});
    H5Gclose(group);
    H5Pclose(list);
}

static void check_golden(const struct sl_run_row *row, struct sl_run *run, uint32_t rank)
{
    struct sl_calls calls = read_calls(run, rank);
    cr_assert_eq(calls.count, 3);
    for (int i = 0; i < 3; i++)
        cr_assert(calls.start_ns[i] == golden_starts[i] && calls.end_ns[i] == golden_ends[i]);
    cr_assert(row && row->calls == 3 && row->total_ns == 33 && row->minimum_ns == 5 && row->maximum_ns == 15);
    cr_assert(row->first_ns == 5 && row->last_ns == 15 && row->start_minimum_ns == 10 && row->end_maximum_ns == 55);
    cr_assert_float_eq(row->mean_ns, 11, 1e-12);
    cr_assert_float_eq(row->m2, 56, 1e-9);
    cr_assert_eq(row->source_line, 7);
    cr_assert_str_eq(row->call_metadata, "[]");
    sl_calls_finish(&calls);
}

Test(runread, reads_schema_1_with_ranks_in_numeric_order)
{
    char *path = in_directory("old.h5");
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    for (int rank = 11; rank >= 0; rank--) {
        char group[64];
        snprintf(group, sizeof group, "rank%d/regions/golden", rank);
        make_legacy_region(file, group, golden_starts, golden_ends, 3);
    }
    make_legacy_region(file, "rank3/regions/other", golden_starts, golden_ends, 0);
    H5Gclose(H5Gcreate2(file, "rankless", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(file);
    struct sl_run *run = open_run(path);
    cr_assert_eq(sl_run_schema(run), 1);
    cr_assert_eq(sl_run_rank_count(run), 12);
    cr_assert_eq(sl_run_row_count(run), 13);
    size_t count;
    const uint32_t *ranks = sl_run_ranks(run, &count);
    cr_assert_eq(count, 12);
    for (uint32_t rank = 0; rank < 12; rank++) {
        cr_assert_eq(ranks[rank], rank);
        check_golden(find_row(run, "golden", rank), run, rank);
        cr_assert_str_eq(find_row(run, "golden", rank)->source_file, "golden.py");
        cr_assert_str_eq(find_row(run, "golden", rank)->tags, "[\"golden\",\"\\\"\xc3\xa4\\\"\"]");
    }
    cr_assert_eq(sl_run_row(run, 2)->rank, 2);
    cr_assert_eq(sl_run_row(run, 11)->rank, 10);
    cr_assert_eq(sl_run_origin_ns(run), 10);
    sl_run_close(run);
}

Test(runread, reads_schema_2_and_3_to_the_same_numbers)
{
    for (int schema = 2; schema <= 3; schema++) {
        struct written written = {.options = {.schema = schema, .calls = 3}};
        written_begin(&written, "run.h5");
        written_row(&written, "golden", 0, (struct run_call[]){{10, 15}, {20, 33}, {40, 55}}, 3);
        written_end(&written);
        replace_texts(written.path, "rank_region_index/tags", 1, (const char *[]){"[\"golden\"]"});
        for (int again = 0; again < 2; again++) {  // with the summary column, then from the calls
            struct sl_run *run = open_run(written.path);
            cr_assert_eq(sl_run_schema(run), schema);
            check_golden(find_row(run, "golden", 0), run, 0);
            cr_assert_str_eq(find_row(run, "golden", 0)->tags, "[\"golden\"]");
            sl_run_close(run);
            if (again == 0)
                remove_link(written.path, "rank_region_index/summary_statistics");
        }
    }
}

Test(runread, tells_schema_2_from_3_by_the_columns_alone)
{
    hid_t file;
    struct written written = {.options = {.schema = 3, .calls = 3}};
    written_begin(&written, "run.h5");
    written_row(&written, "golden", 0, (struct run_call[]){{10, 15}, {20, 33}, {40, 55}}, 3);
    written_end(&written);
    damage_begin(written.path, &file);
    H5Adelete(file, "scope_profiler_schema");
    make_int_attribute(file, "scope_profiler_schema", 2);
    H5Fclose(file);
    struct sl_run *run = open_run(written.path);
    check_golden(find_row(run, "golden", 0), run, 0);
    sl_run_close(run);
}

Test(runread, takes_integers_of_any_width_and_byte_order)
{
    char *path = write_small("run.h5");
    replace_dataset(path, "rank_region_index/ranks", H5T_NATIVE_INT8, 1, (int8_t[]){0});
    replace_dataset(path, "rank_region_index/event_counts", H5T_NATIVE_UINT16, 1, (uint16_t[]){3});
    replace_dataset(path, "events/start_times", H5T_NATIVE_INT32, 3, (int32_t[]){10, 20, 40});
    hid_t file;
    damage_begin(path, &file);
    hid_t group = H5Gopen2(file, "events", H5P_DEFAULT);
    H5Ldelete(group, "end_times", H5P_DEFAULT);
    make_times(group, "end_times", golden_ends, 3, H5T_STD_U16BE);
    H5Gclose(group);
    H5Fclose(file);
    struct sl_run *run = open_run(path);
    check_golden(find_row(run, "solve", 0), run, 0);
    sl_run_close(run);
}

Test(runread, reads_absent_optional_columns_as_absent)
{
    char *path = write_small("run.h5");
    remove_link(path, "rank_region_index/exclusive_totals");
    struct sl_run *run = open_run(path);
    struct sl_calls calls = read_calls(run, 0);
    cr_assert(!calls.thread && !calls.task && !calls.await_ns);
    cr_assert_eq(sl_run_row(run, 0)->exclusive_ns, -1);
    size_t count;
    cr_assert_null(sl_run_threads(run, 0, &count));
    cr_assert_eq(count, 0);
    sl_calls_finish(&calls);
    sl_run_close(run);
}

Test(runread, has_of_each_rank_the_regions_that_it_called)
{
    struct written run = {.options = {.calls = 3}};
    written_begin(&run, "run.h5");
    written_row(&run, "all", 0, (struct run_call[]){{10, 20}}, 1);
    written_row(&run, "all", 1, (struct run_call[]){{10, 20}}, 1);
    written_row(&run, "odd only", 1, (struct run_call[]){{12, 18}}, 1);
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    for (uint32_t rank = 0; rank < 4; rank++) {
        struct sl_calls calls = read_calls(read, rank);
        struct sl_call_stack stack;
        struct sl_nesting_error wrong;
        cr_assert_eq(calls.count, rank < 2 ? 1 + rank : 0);
        cr_assert_eq(sl_call_stack_build(&calls, &stack, &wrong), 0);
        cr_assert_eq(stack.count, calls.count);
        cr_assert_eq(find_row(read, "odd only", rank) != NULL, rank == 1);
        sl_call_stack_finish(&stack);
        sl_calls_finish(&calls);
    }
    sl_run_close(read);
}

Test(runread, takes_a_rank_without_threads_in_a_tracked_file_for_one_unknown_lane)
{
    struct written run = {.options = {.calls = 4, .tasks = true}};
    char label[64];
    size_t count;
    written_begin(&run, "run.h5");
    written_row(&run, "outer", 0, (struct run_call[]){{0, 50, 0, 0, -1}}, 1);
    written_row(&run, "inner", 0, (struct run_call[]){{10, 60, 5, 0, 0}}, 1);  // a task's: another lane
    written_row(&run, "outer", 1, (struct run_call[]){{0, 50, 0, -1, -1}}, 1);
    written_row(&run, "inner", 1, (struct run_call[]){{10, 20, 0, -1, -1}}, 1);
    runwrite_thread(run.w, &(struct run_thread){0, 0, 1, 1, false, "main", 0, RUN_UNKNOWN, 0});
    runwrite_task(run.w, &(struct run_task){0, 0, "task", "t", "c", 0, 0, RUN_UNKNOWN, 1, 1, 1});
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    struct sl_calls calls = read_calls(read, 1);
    struct sl_call_stack stack;
    struct sl_nesting_error wrong;
    cr_assert_eq(sl_call_stack_build(&calls, &stack, &wrong), 0);
    cr_assert(stack.count == 2 && stack.lane[0] == -1 && stack.lane[1] == -1 && stack.parent[1] == 0);
    cr_assert_null(sl_run_threads(read, 1, &count));
    cr_assert_null(sl_run_tasks(read, 1, &count));
    sl_lane_label(read, 1, stack.lane[0], label, sizeof label);
    cr_assert_str_eq(label, "unknown lane");
    sl_call_stack_finish(&stack);
    sl_calls_finish(&calls);
    cr_assert_eq(count_lanes(read, 0), 2);
    sl_run_close(read);
}

Test(runread, ignores_metadata_datasets_and_groups_it_does_not_know)
{
    char *path = write_small("run.h5");
    int64_t numbers[] = {1, 2};
    replace_ints(path, "events/call_colours", 2, numbers);
    replace_ints(path, "rank_region_index/moods", 2, numbers);
    hsize_t two = 2;
    replace_attribute(path, "metadata", "modules", H5T_NATIVE_INT64, H5Screate_simple(1, &two, NULL), numbers);
    replace_attribute(path, "metadata", "nothing", H5T_NATIVE_INT64, H5Screate(H5S_NULL), numbers);
    replace_attribute(path, "metadata", "load", H5T_NATIVE_DOUBLE, H5Screate(H5S_SCALAR), &(double){1.5});
    hsize_t none = 0;
    hid_t text = text_type();
    replace_attribute(path, "metadata", "paths", text, H5Screate_simple(1, &two, NULL), (const char *[]){"a", "b"});
    replace_attribute(path, "metadata", "empty", text, H5Screate_simple(1, &none, NULL), NULL);
    H5Tclose(text);
    struct sl_run *run = open_run(path);
    cr_assert_null(sl_run_metadata_text(run, "modules"));
    cr_assert_null(sl_run_metadata_text(run, "paths"));
    cr_assert_null(sl_run_metadata_text(run, "empty"));
    cr_assert_null(sl_run_metadata_text(run, "absent"));
    cr_assert_str_eq(sl_run_metadata_text(run, "load"), "1.5");
    sl_run_close(run);
}

// -- what is no run file ----------------------------------------------------------------------------------------------

static char *write_bytes(const char *name, const void *bytes, size_t length)
{
    char *path = in_directory(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_eq(files_write_all(fd, bytes, length), 0);
    close(fd);
    return path;
}

Test(runread, refuses_what_is_no_hdf5_file)
{
    refuse_run(in_directory("absent.h5"), "No such file or directory");
    refuse_run(test_directory, "Is a directory");
    refuse_run(write_bytes("empty.h5", "", 0), "not a run file: it is empty");
    refuse_run(write_bytes("text.h5", "hello, world\n", 13), "not a run file: it is not HDF5");
    refuse_run("/dev/null", "not a regular file");
    char *fifo = in_directory("fifo");
    mkfifo(fifo, 0600);
    refuse_run(fifo, "not a regular file");
}

Test(runread, refuses_a_file_cut_off_anywhere)
{
    struct buffer whole = {0};
    char *path = write_small("run.h5");
    files_read_all(path, &whole);
    for (size_t length = 1; length < whole.length; length += 97)
        refuse_run(write_bytes("cut.h5", whole.data, length), "not a run file: it is ");
    buffer_finish(&whole);
}

Test(runread, refuses_a_file_that_is_being_written)
{
    char *path = write_small("run.h5");
    int fd = open(path, O_RDWR);
    flock(fd, LOCK_EX);
    refuse_run(path, "another program has it open for writing");
    close(fd);
    sl_run_close(open_run(path));
}

Test(runread, refuses_hdf5_files_of_other_programs)
{
    char *path = in_directory("other.h5");
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, "temperature", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    H5Fclose(file);
    refuse_run(path, "not a run file: it has no attribute scope_profiler_schema");
    path = write_small("run.h5");
    damage_begin(path, &file);
    H5Adelete(file, "scope_profiler_schema");
    H5Fclose(file);
    refuse_run(path, "no attribute scope_profiler_schema");
}

Test(runread, refuses_versions_that_are_not_1_to_3)
{
    const struct {
        int64_t version;
        const char *words;
    } cases[] = {{0, "versions are positive"}, {-1, "versions are positive"}, {4, "newer than 3"}};
    char *path = write_small("run.h5");
    for (int i = 0; i < 3; i++) {
        replace_attribute(path, "/", "scope_profiler_schema", H5T_NATIVE_INT64, H5Screate(H5S_SCALAR),
                          &cases[i].version);
        refuse_run(path, cases[i].words);
    }
}

Test(runread, refuses_versions_that_are_not_an_integer)
{
    const char *words = "scope_profiler_schema must be an integer", *two = "2";
    char *path = write_small("run.h5");
    hsize_t one = 1;
    hid_t text = text_type(), truth = H5Tenum_create(H5T_NATIVE_INT8);
    H5Tenum_insert(truth, "FALSE", &(int8_t){0});
    H5Tenum_insert(truth, "TRUE", &(int8_t){1});
    replace_attribute(path, "/", "scope_profiler_schema", H5T_NATIVE_DOUBLE, H5Screate(H5S_SCALAR), &(double){2.5});
    refuse_run(path, words);
    replace_attribute(path, "/", "scope_profiler_schema", text, H5Screate(H5S_SCALAR), &two);
    refuse_run(path, words);
    replace_attribute(path, "/", "scope_profiler_schema", truth, H5Screate(H5S_SCALAR), &(int8_t){1});
    refuse_run(path, words);
    replace_attribute(path, "/", "scope_profiler_schema", H5T_NATIVE_INT64, H5Screate_simple(1, &one, NULL),
                      &(int64_t){2});
    refuse_run(path, words);
    replace_attribute(path, "/", "scope_profiler_schema", H5T_STD_U16BE, H5Screate(H5S_SCALAR), &(uint16_t){0x0200});
    sl_run_close(open_run(path));
    H5Tclose(text);
    H5Tclose(truth);
}

// -- what contradicts itself ------------------------------------------------------------------------------------------

Test(runread, refuses_missing_groups_and_required_columns)
{
    static const char *const required[] = {
        "region_table",
        "region_table/names",
        "rank_region_index",
        "rank_region_index/region_ids",
        "rank_region_index/ranks",
        "rank_region_index/event_offsets",
        "rank_region_index/event_counts",
        "rank_region_index/source_lines",
        "rank_region_index/source_files",
        "rank_region_index/source_texts",
        "rank_region_index/tags",
        "events",
        "events/start_times",
        "events/end_times",
    };
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        char *path = write_small("run.h5");
        remove_link(path, required[i]);
        refuse_run(path, required[i]);
    }
}

Test(runread, refuses_rows_past_the_end_and_rows_that_share_calls)
{
    char *path = write_small("run.h5");
    replace_ints(path, "rank_region_index/event_counts", 1, (int64_t[]){4});
    refuse_run(path, "cut off or damaged: row 0 of the index ends with call 4, but only 3 are there");
    replace_ints(path, "rank_region_index/event_counts", 1, (int64_t[]){-1});
    refuse_run(path, "has -1 calls");
    struct written run = {.options = {.calls = 4}};
    written_begin(&run, "two.h5");
    written_row(&run, "a", 0, (struct run_call[]){{1, 2}, {3, 4}}, 2);
    written_row(&run, "b", 0, (struct run_call[]){{5, 6}, {7, 8}}, 2);
    written_end(&run);
    replace_ints(run.path, "rank_region_index/event_offsets", 2, (int64_t[]){0, 1});
    refuse_run(run.path, "two rows of the index share calls");
    replace_ints(run.path, "rank_region_index/event_offsets", 2, (int64_t[]){2, 0});  // any order of rows is good
    sl_run_close(open_run(run.path));
    replace_ints(run.path, "rank_region_index/event_offsets", 2, (int64_t[]){0, INT64_MAX});
    refuse_run(run.path, "cut off or damaged");
}

Test(runread, refuses_pairs_twice_regions_out_of_range_and_equal_names)
{
    struct written run = {.options = {.calls = 2}};
    const char *same[] = {"a", "a"};
    written_begin(&run, "run.h5");
    written_row(&run, "a", 0, (struct run_call[]){{1, 2}}, 1);
    written_row(&run, "b", 0, (struct run_call[]){{5, 6}}, 1);
    written_end(&run);
    replace_ints(run.path, "rank_region_index/region_ids", 2, (int64_t[]){1, 1});
    refuse_run(run.path, "rank 0 has two rows of 'b'");
    replace_ints(run.path, "rank_region_index/region_ids", 2, (int64_t[]){0, 2});
    refuse_run(run.path, "row 1 names region 2 of 2");
    replace_ints(run.path, "rank_region_index/region_ids", 2, (int64_t[]){0, 1});
    replace_ints(run.path, "rank_region_index/ranks", 2, (int64_t[]){0, -3});
    refuse_run(run.path, "row 1 has rank -3");
    replace_ints(run.path, "rank_region_index/ranks", 2, (int64_t[]){0, 0});
    sl_run_close(open_run(run.path));
    replace_texts(run.path, "region_table/names", 2, same);
    refuse_run(run.path, "'a' is there twice");
}

Test(runread, refuses_columns_of_another_length_kind_or_shape)
{
    char *path = write_small("run.h5");
    replace_ints(path, "rank_region_index/ranks", 2, (int64_t[]){0, 0});
    refuse_run(path, "rank_region_index/ranks has 2 values, not 1");
    replace_dataset(path, "rank_region_index/ranks", H5T_NATIVE_DOUBLE, 1, (double[]){0});
    refuse_run(path, "rank_region_index/ranks: it does not hold integers");
    path = write_small("short.h5");
    replace_ints(path, "events/end_times", 2, golden_ends);
    refuse_run(path, "events/end_times has 2 values for 3 calls");
    path = write_small("lanes.h5");
    replace_ints(path, "events/thread_ids", 2, golden_ends);
    refuse_run(path, "events/thread_ids has 2 values for 3 calls");
    replace_ints(path, "events/thread_ids", 4, (int64_t[]){0, 0, 0, 0});  // surplus is ignored
    sl_run_close(open_run(path));
}

Test(runread, refuses_a_summary_that_is_not_right)
{
    char *path = write_small("run.h5");
    hid_t half = H5Tcreate(H5T_COMPOUND, 16);
    H5Tinsert(half, "total", 0, H5T_NATIVE_INT64);
    H5Tinsert(half, "mean", 8, H5T_NATIVE_DOUBLE);
    replace_dataset(path, "rank_region_index/summary_statistics", half, 1, (int64_t[]){1, 2});
    refuse_run(path, "field minimum is missing");
    replace_ints(path, "rank_region_index/summary_statistics", 1, (int64_t[]){1});
    refuse_run(path, "field total is missing");
    path = write_small("rows.h5");
    replace_dataset(path, "rank_region_index/summary_statistics", half, 2, (int64_t[]){1, 2, 3, 4});
    refuse_run(path, "does not have a row for each");
    H5Tclose(half);
}

Test(runread, refuses_tags_and_call_metadata_that_are_not_json)
{
    const struct {
        const char *column, *text, *words;
    } cases[] = {
        {"tags", "golden", "tags is not JSON: golden"},
        {"tags", "[\"a\"", "tags is not JSON"},
        {"tags", "{\"a\": 1}", "tags is no JSON list"},
        {"event_metadata", "[{}, {}]", "event_metadata has entries for 2 calls, not 3"},
        {"event_metadata", "[{}, {}, {}] x", "event_metadata is not JSON"},
        {"tags", "[\"a\\u00e4\", \"b\"]", NULL},
        {"tags", "", NULL},
        {"event_metadata", " null ", NULL},
        {"event_metadata", "[]", NULL},
        {"event_metadata", "[{}, {\"n\": [1, -2.5e3, true, {\"x\": NaN}]}, {}]", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = write_small("run.h5"), *column = alloc_printf("rank_region_index/%s", cases[i].column);
        replace_texts(path, column, 1, &cases[i].text);
        if (cases[i].words)
            refuse_run(path, cases[i].words);
        else
            sl_run_close(open_run(path));
        free(column);
    }
}

Test(runread, gives_tags_and_call_metadata_as_they_are)
{
    char *path = write_small("run.h5");
    const char *metadata = "[{\"n\": 1}, {}, {\"text\": \"\xc3\xa4\"}]";
    replace_texts(path, "rank_region_index/event_metadata", 1, &metadata);
    struct sl_run *run = open_run(path);
    cr_assert_str_eq(sl_run_row(run, 0)->call_metadata, metadata);
    cr_assert_str_eq(sl_run_row(run, 0)->tags, "[]");
    sl_run_close(run);
    replace_texts(path, "rank_region_index/tags", 1, (const char *[]){""});
    replace_texts(path, "rank_region_index/event_metadata", 1, (const char *[]){" null "});
    run = open_run(path);
    cr_assert_str_eq(sl_run_row(run, 0)->call_metadata, "[]");
    cr_assert_str_eq(sl_run_row(run, 0)->tags, "[]");
    sl_run_close(run);
}

Test(runread, refuses_an_mpi_size_that_is_no_number)
{
    char *path = write_small("run.h5");
    const char *many = "many", *five = "5";
    hid_t text = text_type();
    replace_attribute(path, "metadata", "mpi_size", text, H5Screate(H5S_SCALAR), &many);
    refuse_run(path, "mpi_size is not a number");
    replace_attribute(path, "metadata", "mpi_size", text, H5Screate(H5S_SCALAR), &five);
    struct sl_run *run = open_run(path);
    cr_assert_eq(sl_run_rank_count(run), 5);
    sl_run_close(run);
    H5Tclose(text);
}

Test(runread, refuses_lane_tables_with_broken_text_or_columns_missing)
{
    static const char *const columns[] = {"thread_table/index", "thread_table/name", "thread_table/cpu_ns",
                                          "task_table/kind", "task_table/steps"};
    struct written run = {.options = {.calls = 1, .tasks = true}};
    for (int i = 0; i < 8; i++) {
        written_begin(&run, "run.h5");
        written_row(&run, "r", 0, (struct run_call[]){{0, 5, 0, 0, 0}}, 1);
        runwrite_thread(run.w, &(struct run_thread){0, 0, 1, 1, false, "main", 0, RUN_UNKNOWN, 0});
        runwrite_task(run.w, &(struct run_task){0, 0, "task", "t", "c", 0, 0, RUN_UNKNOWN, 1, 1, 1});
        written_end(&run);
        if (i < 5) {
            remove_link(run.path, columns[i]);
            refuse_run(run.path, give_path(alloc_printf("%s: it is missing", columns[i])));
        } else if (i == 5) {
            replace_texts(run.path, "thread_table/name", 1, (const char *[]){"m\xff"});
            refuse_run(run.path, "thread_table/name: text 0 is not UTF-8");
        } else if (i == 6) {
            replace_texts(run.path, "task_table/coro_name", 1, (const char *[]){"\xed\xa0\x80"});
            refuse_run(run.path, "task_table/coro_name: text 0 is not UTF-8");
        } else {
            replace_ints(run.path, "thread_table/cpu_ns", 2, golden_ends);
            refuse_run(run.path, "thread_table/cpu_ns has 2 values, not 1");
        }
    }
}

Test(runread, repairs_broken_text_elsewhere)
{
    char *path = write_small("run.h5");
    replace_texts(path, "region_table/names", 1, (const char *[]){"s\xffve"});
    replace_texts(path, "rank_region_index/source_files", 1, (const char *[]){"a\xe4.c"});
    struct sl_run *run = open_run(path);
    cr_assert_str_eq(sl_run_region_name(run, 0), "s\ufffdve");
    cr_assert_str_eq(sl_run_row(run, 0)->source_file, "a\ufffd.c");
    sl_run_close(run);
}

Test(runread, reads_texts_of_fixed_length)
{
    hid_t fixed = H5Tcopy(H5T_C_S1);
    H5Tset_size(fixed, 8);
    char *path = write_small("run.h5");
    replace_dataset(path, "region_table/names", fixed, 1, "solve\0\0\0");
    replace_dataset(path, "rank_region_index/tags", fixed, 1, "[\"abcd\"]");  // all eight, no zero
    struct sl_run *run = open_run(path);
    cr_assert_str_eq(sl_run_region_name(run, 0), "solve");
    sl_run_close(run);
    H5Tclose(fixed);
}

Test(runread, does_not_follow_links_into_other_files)
{
    char *path = write_small("run.h5"), *other = write_small("other.h5");
    hid_t file;
    damage_begin(path, &file);
    H5Ldelete(file, "events", H5P_DEFAULT);
    H5Lcreate_external(other, "/events", file, "events", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    refuse_run(path, "link into another file");
    path = write_small("outside.h5");
    damage_begin(path, &file);
    H5Ldelete(file, "events/start_times", H5P_DEFAULT);
    hsize_t three = 3;
    hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &three, NULL);
    H5Pset_external(list, "/etc/passwd", 0, 24);
    H5Dclose(H5Dcreate2(file, "events/start_times", H5T_NATIVE_INT64, space, H5P_DEFAULT, list, H5P_DEFAULT));
    H5Pclose(list);
    H5Sclose(space);
    H5Fclose(file);
    refuse_run(path, "its data lie in another file");
}

Test(runread, asks_for_no_memory_that_a_small_file_only_claims)
{
    char *path = write_small("run.h5");
    hid_t file;
    damage_begin(path, &file);
    static const char *const names[] = {"events/start_times", "events/end_times"};
    for (int i = 0; i < 2; i++) {
        hsize_t length = (hsize_t)1 << 40, chunk = 1 << 20;
        H5Ldelete(file, names[i], H5P_DEFAULT);
        hid_t list = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &length, NULL);
        H5Pset_chunk(list, 1, &chunk);
        H5Dclose(H5Dcreate2(file, names[i], H5T_NATIVE_INT64, space, H5P_DEFAULT, list, H5P_DEFAULT));
        H5Pclose(list);
        H5Sclose(space);
    }
    H5Fclose(file);
    refuse_run(path, "it claims more values than the file holds");
}

// -- any numbers anywhere ---------------------------------------------------------------------------------------------

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static int64_t strange_number(uint64_t *random)
{
    static const int64_t strange[] = {0, 1, -1, 2, 3, 4, INT64_MAX, INT64_MIN, INT32_MAX, UINT32_MAX, INT64_MAX - 1,
                                      INT64_MIN + 1, (int64_t)1 << 40, -2};
    return strange[next_random(random) % (sizeof strange / sizeof *strange)];
}

// Everything the library can be asked about a run.
static void ask_everything(const char *path)
{
    char error[SL_RUN_ERROR_MAX], text[64];
    struct sl_run *run;
    struct report report;
    if (sl_run_open(&run, path, error))
        return;
    size_t rank_count, count;
    const uint32_t *ranks = sl_run_ranks(run, &rank_count);
    for (size_t i = 0; i < rank_count; i++) {
        struct sl_calls calls;
        struct sl_call_stack stack;
        struct sl_nesting_error wrong;
        struct sl_lane_split split;
        sl_run_threads(run, ranks[i], &count);
        sl_run_tasks(run, ranks[i], &count);
        if (sl_run_calls(run, ranks[i], &calls, error))
            continue;
        if (sl_call_stack_build(&calls, &stack, &wrong) == 0) {
            for (size_t call = 0; call < stack.count; call++) {
                sl_call_path(run, &stack, &calls, call, text, sizeof text);
                sl_lane_label(run, ranks[i], stack.lane ? stack.lane[call] : -1, text, sizeof text);
            }
            if (sl_call_stack_split(&stack, &split) == 0)
                sl_lane_split_finish(&split);
            sl_call_stack_finish(&stack);
        } else {
            sl_nesting_error_text(run, ranks[i], &wrong, text, sizeof text);
        }
        sl_calls_finish(&calls);
    }
    if (report_make(&report, run, REPORT_ALL_RANKS, error) == 0)
        report_finish(&report);
    sl_run_close(run);
}

static char *write_lanes(int schema)
{
    struct written run = {.options = {.schema = schema, .calls = 6, .tasks = true, .highest_thread = 1}};
    written_begin(&run, "lanes.h5");
    runwrite_metadata_int(run.w, "finalize_time_ns", 1000);
    for (uint32_t rank = 0; rank < 2; rank++)
        written_row(&run, "outer", rank, (struct run_call[]){{0, 50, 0, 0, -1}, {60, 90, 5, 1, 0}}, 2);
    written_row(&run, "inner", 0, (struct run_call[]){{10, 20, 0, 0, -1}, {60, 70, 5, 1, 0}}, 2);
    for (uint32_t rank = 0; rank < 2; rank++) {
        runwrite_thread(run.w, &(struct run_thread){rank, 0, 1, 1, false, "main", 0, RUN_UNKNOWN, 0});
        runwrite_thread(run.w, &(struct run_thread){rank, 1, 2, 2, true, "worker", 0, 500, 7});
    }
    runwrite_task(run.w, &(struct run_task){0, 0, "task", "t", "c.d", 1, 0, RUN_UNKNOWN, 1, 1, 1});
    written_end(&run);
    return run.path;
}

Test(runread, survives_any_numbers_in_any_columns)
{
    static const struct {
        const char *name;
        hsize_t count;
    } columns[] = {
        {"rank_region_index/region_ids", 3},    {"rank_region_index/ranks", 3},
        {"rank_region_index/event_offsets", 3}, {"rank_region_index/event_counts", 3},
        {"rank_region_index/source_lines", 3},  {"rank_region_index/exclusive_totals", 3},
        {"events/thread_ids", 6},               {"events/task_ids", 6},
        {"events/await_ns", 6},                 {"thread_table/ranks", 4},
        {"thread_table/index", 4},              {"thread_table/start_ns", 4},
        {"thread_table/end_ns", 4},             {"thread_table/cpu_ns", 4},
        {"task_table/thread_index", 1},         {"task_table/index", 1},
        {"task_table/done_ns", 1},              {"task_table/ranks", 1},
        {"events/start_times", 6},              {"events/end_times", 6},
        {"events/start_deltas", 6},             {"events/durations", 6},
    };
    enum { COLUMNS = sizeof columns / sizeof *columns };
    uint64_t random = 1;
    for (int round = 0; round < 400; round++) {
        int schema = 2 + round % 2;
        char *path = write_lanes(schema);
        if (round % 3)
            remove_link(path, "rank_region_index/summary_statistics");
        for (int change = 0; change <= round % 4; change++) {
            int which = (int)(next_random(&random) % (COLUMNS - 4)) + (schema == 3 && next_random(&random) % 2 ? 4 : 0);
            int64_t values[6];
            for (int i = 0; i < 6; i++)
                values[i] = strange_number(&random);
            replace_ints(path, columns[which].name, columns[which].count, values);
        }
        ask_everything(path);
    }
}
