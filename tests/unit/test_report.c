// What the report says of a run, before it is printed. Reference files are compared with scope-profiler's numbers by
// tests/end/test_callstack_agrees.py.
#include <fcntl.h>
#include <math.h>

#include "run-fixture.h"
#include "storage/report.h"

TestSuite(report, .init = make_directory, .fini = remove_directory, .timeout = 60);

static struct report report_of(struct sl_run *run, int64_t rank)
{
    char error[SL_RUN_ERROR_MAX] = "";
    struct report report;
    cr_assert_eq(report_make(&report, run, rank, error), 0, "%s", error);
    return report;
}

static const struct report_region *find_region(const struct report *report, const char *name)
{
    for (size_t i = 0; i < report->region_count; i++)
        if (strcmp(report->regions[i].name, name) == 0)
            return &report->regions[i];
    return NULL;
}

// Two ranks of a session around calls of solve; rank 1 has one call more.
static char *write_session(int64_t exclusive_total_ns)
{
    struct written run = {.options = {.calls = 7, .start_ns = 0}};
    written_begin(&run, "run.h5");
    runwrite_metadata_int(run.w, "finalize_time_ns", 2000);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct run_call session = {0, 1000}, solve[] = {{0, 100}, {100, 400}, {500, 900}};
        runwrite_row_begin(run.w, runwrite_region(run.w, "scope_profiler.session", 22), rank, NULL, -1);
        runwrite_row_calls(run.w, &session, 1);
        runwrite_row_end(run.w, -1);
        runwrite_row_begin(run.w, runwrite_region(run.w, "solve", 5), rank, NULL, -1);
        runwrite_row_calls(run.w, solve, 2 + rank);
        runwrite_row_end(run.w, exclusive_total_ns);
    }
    written_end(&run);
    return run.path;
}

Test(report, sums_regions_over_ranks_and_takes_shares_of_the_session)
{
    struct sl_run *run = open_run(write_session(-1));
    struct report report = report_of(run, REPORT_ALL_RANKS);
    cr_assert(report.calls == 7 && report.ranks == 2 && report.wall_ns == 2000 && report.region_count == 2);
    cr_assert_str_eq(report.base, "the session");
    cr_assert_eq(report.base_ns, 2000);
    cr_assert_str_eq(report.regions[0].name, "scope_profiler.session");  // the greatest total first
    const struct report_region *solve = &report.regions[1], *session = &report.regions[0];
    cr_assert(solve->calls == 5 && solve->ranks == 2 && solve->total_ns == 1200 && solve->self_ns == 1200);
    cr_assert(solve->minimum_ns == 100 && solve->maximum_ns == 400);
    cr_assert_float_eq(solve->mean_ns, 240, 1e-9);
    cr_assert_float_eq(solve->share, 0.6, 1e-9);
    cr_assert_eq(session->self_ns, 2000 - 1200);
    cr_assert_eq(report.remark_count, 0);
    report_finish(&report);
    sl_run_close(run);
}

Test(report, believes_self_times_that_the_file_states)
{
    struct sl_run *run = open_run(write_session(77));
    struct report report = report_of(run, REPORT_ALL_RANKS);
    cr_assert_eq(find_region(&report, "solve")->self_ns, 154);
    report_finish(&report);
    sl_run_close(run);
}

// Each region's self time, in a report of a file.
static size_t self_times(const char *path, int64_t *times, size_t room)
{
    struct sl_run *run = open_run(path);
    struct report report = report_of(run, REPORT_ALL_RANKS);
    size_t count = report.region_count;
    cr_assert(count > 0 && count <= room);
    for (size_t i = 0; i < count; i++)
        times[i] = report.regions[i].self_ns;
    report_finish(&report);
    sl_run_close(run);
    return count;
}

Test(report, makes_self_times_that_the_file_does_not_state_to_the_same_numbers)
{
    static const char *const files[] = {"untracked", "threads", "asyncio", "greenlets", "mixed", "ranks_lanes"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct buffer whole = {0};
        int64_t stated[16], made[16];
        char *path = in_directory("copy.h5");
        files_read_all(reference(files[i]), &whole);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        cr_assert_eq(files_write_all(fd, whole.data, whole.length), 0);
        close(fd);
        buffer_finish(&whole);
        size_t count = self_times(path, stated, 16);
        remove_link(path, "rank_region_index/exclusive_totals");
        cr_assert_eq(self_times(path, made, 16), count);
        for (size_t region = 0; region < count; region++)
            cr_assert_eq(made[region], stated[region], "%s, region %zu", files[i], region);
    }
}

Test(report, is_about_one_rank_when_asked)
{
    struct sl_run *run = open_run(write_session(-1));
    struct report report = report_of(run, 1);
    cr_assert(report.calls == 4 && report.ranks == 1 && report.base_ns == 1000);
    cr_assert_eq(find_region(&report, "solve")->total_ns, 800);
    report_finish(&report);
    report = report_of(run, 9);
    cr_assert(report.calls == 0 && report.ranks == 0 && report.region_count == 0);
    report_finish(&report);
    sl_run_close(run);
}

Test(report, takes_shares_of_the_run_without_a_session_and_of_its_calls_without_an_end)
{
    struct written written = {.options = {.calls = 2}};
    for (int with_end = 0; with_end < 2; with_end++) {
        written_begin(&written, "run.h5");
        if (with_end)
            runwrite_metadata_int(written.w, "finalize_time_ns", 1000);
        written_row(&written, "a", 0, (struct run_call[]){{100, 200}, {300, 500}}, 2);
        written_end(&written);
        struct sl_run *run = open_run(written.path);
        struct report report = report_of(run, REPORT_ALL_RANKS);
        cr_assert_str_eq(report.base, "the run");
        cr_assert_eq(report.base_ns, with_end ? 1000 : 400);
        cr_assert_float_eq(report.regions[0].share, with_end ? 0.3 : 0.75, 1e-9);
        report_finish(&report);
        sl_run_close(run);
    }
}

Test(report, says_which_calls_do_not_nest_and_goes_on)
{
    struct written written = {.options = {.calls = 4, .threads = true}};
    written_begin(&written, "run.h5");
    written_row(&written, "outer", 0, (struct run_call[]){{0, 100, 0, 0, -1}}, 1);
    written_row(&written, "inner", 0, (struct run_call[]){{50, 150, 0, 0, -1}}, 1);
    written_row(&written, "outer", 1, (struct run_call[]){{0, 100, 0, 0, -1}}, 1);
    written_row(&written, "inner", 1, (struct run_call[]){{50, 80, 0, 0, -1}}, 1);
    for (uint32_t rank = 0; rank < 2; rank++)
        runwrite_thread(written.w, &(struct run_thread){rank, 0, 1, 1, false, "main", 0, 200, 50});
    written_end(&written);
    struct sl_run *run = open_run(written.path);
    struct report report = report_of(run, REPORT_ALL_RANKS);
    cr_assert_eq(report.remark_count, 1);
    cr_assert_str_eq(report.remarks[0],
                     "rank 0, main: calls are not properly nested: 'inner' call 0 [50, 150] ns starts "
                     "inside 'outer' call 0 [0, 100] ns but ends after it");
    cr_assert_eq(find_region(&report, "outer")->self_ns, REPORT_UNKNOWN);
    cr_assert_eq(find_region(&report, "outer")->total_ns, 200);
    cr_assert_eq(report.threads[0].region_ns, REPORT_UNKNOWN);
    cr_assert(report.threads[1].region_ns == 100 && report.threads[1].calls == 2);
    report_finish(&report);
    sl_run_close(run);
}

Test(report, charges_calls_to_the_thread_they_ended_on_and_time_to_the_tasks_last_thread)
{
    struct written written = {.options = {.calls = 4, .tasks = true, .highest_thread = 1}};
    const struct run_column columns[] = {{"rank", RUN_INT}, {"index", RUN_INT}, {"longest_step_ns", RUN_INT}, {"bound", RUN_INT}};
    const struct run_column exactness[] = {{"rank", RUN_INT}, {"index", RUN_INT}, {"cpu_exact", RUN_INT}};
    written_begin(&written, "run.h5");
    runwrite_metadata_int(written.w, "finalize_time_ns", 1000);
    written_row(&written, "bare", 0, (struct run_call[]){{0, 100, 0, 0, -1}}, 1);
    written_row(&written, "moved", 0, (struct run_call[]){{0, 300, 50, 0, 0}, {10, 50, 0, 1, 0}, {400, 500, 0, 1, 0}},
                3);
    runwrite_thread(written.w, &(struct run_thread){0, 0, 1, 1, false, "main", 0, RUN_UNKNOWN, 50});
    runwrite_thread(written.w, &(struct run_thread){0, 1, 1, 1, false, "worker", 100, 700, 50});
    runwrite_task(written.w, &(struct run_task){0, 0, "fiber", "one", "job", 1, 0, 900, 3, 100, 200});
    runwrite_task(written.w, &(struct run_task){0, 1, "fiber", "two", "job", 0, 0, RUN_UNKNOWN, 2, 10, 20});
    runwrite_task(written.w, &(struct run_task){0, 2, "fiber", "plain", "", 0, 0, 900, 1, 500, 0});
    runwrite_table_begin(written.w, "tasks", 1, columns, 4);
    runwrite_table_row(written.w, (union run_value[]){{0}, {0}, {60}, {0}});
    runwrite_table_row(written.w, (union run_value[]){{0}, {1}, {9}, {1}});
    runwrite_table_row(written.w, (union run_value[]){{7}, {-1}, {900}, {1}});  // no such task
    runwrite_table_end(written.w);
    runwrite_table_begin(written.w, "threads", 1, exactness, 3);
    runwrite_table_row(written.w, (union run_value[]){{0}, {1}, {0}});
    runwrite_table_row(written.w, (union run_value[]){{1}, {0}, {1}});  // no such thread
    runwrite_table_end(written.w);
    written_end(&written);
    struct sl_run *run = open_run(written.path);
    struct report report = report_of(run, REPORT_ALL_RANKS);
    cr_assert_eq(report.thread_count, 2);
    cr_assert(report.threads[0].calls == 2 && report.threads[0].region_ns == 100);
    cr_assert(report.threads[1].calls == 2 && report.threads[1].region_ns == 400);
    cr_assert_float_eq(report.threads[0].wall_time, 1e-6, 1e-15);  // alive: until the end of the run
    cr_assert_float_eq(report.threads[1].wall_time, 600e-9, 1e-15);
    cr_assert(!report.threads[0].cpu_exact, "alive");
    cr_assert(!report.threads[1].cpu_exact, "killed: the file says that it is the last sample");
    cr_assert_eq(report.task_count, 3);
    cr_assert(report.tasks[0].longest_step_ns == 60 && !report.tasks[0].bound);
    cr_assert(report.tasks[1].longest_step_ns == 9 && report.tasks[1].bound);
    cr_assert_eq(report.tasks[2].longest_step_ns, REPORT_UNKNOWN);
    cr_assert_eq(report.group_count, 2);
    cr_assert_str_eq(report.groups[0].name, "plain");  // without a coroutine by its own name; the longest running first
    cr_assert_eq(report.groups[0].longest_step_ns, REPORT_UNKNOWN);
    const struct report_task_group *jobs = &report.groups[1];
    cr_assert_str_eq(jobs->name, "job");
    cr_assert(jobs->tasks == 2 && jobs->done == 1 && jobs->steps == 5 && jobs->longest_step_ns == 60);
    cr_assert_float_eq(jobs->running_time, 110e-9, 1e-15);
    cr_assert_float_eq(jobs->awaiting_time, 220e-9, 1e-15);
    report_finish(&report);
    sl_run_close(run);
}

Test(report, lists_threads_of_ranks_that_called_nothing)
{
    struct written written = {.options = {.threads = true}};
    written_begin(&written, "run.h5");
    runwrite_thread(written.w, &(struct run_thread){3, 0, 1, 1, false, "idle", 0, RUN_UNKNOWN, 50});
    written_end(&written);
    struct sl_run *run = open_run(written.path);
    struct report report = report_of(run, REPORT_ALL_RANKS);
    cr_assert(report.calls == 0 && report.thread_count == 1 && isnan(report.threads[0].wall_time));
    cr_assert(report.wall_ns == REPORT_UNKNOWN && report.base == NULL);
    report_finish(&report);
    sl_run_close(run);
}

Test(report, knows_what_a_file_of_sums_states)
{
    struct sl_run *run = open_run(reference("aggregate"));
    struct report report = report_of(run, REPORT_ALL_RANKS);
    const struct report_region *solve = find_region(&report, "solve");
    cr_assert(report.calls == 11 && solve->calls == 5 && solve->self_ns >= 0 && solve->self_ns < solve->total_ns);
    report_finish(&report);
    sl_run_close(run);
}
