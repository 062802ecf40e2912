// Writing run files. Whether scope-profiler takes them is asked by tests/end/test_run_file.py, with the files that the
// suite `files` leaves in the directory SL_RUN_FILES.
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "run-fixture.h"

// A file that HDF5 could not close stays with it: the tests of full disks leave some.
const char *__lsan_default_suppressions(void), *__lsan_default_options(void);

const char *__lsan_default_suppressions(void)
{
    return "leak:libhdf5";
}

const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}

// Stands before the C library's for HDF5 too: a file system without locks answers so.
static int flock_error;

int flock(int fd, int operation)
{
    errno = flock_error;
    return flock_error ? -1 : (int)syscall(SYS_flock, fd, operation);
}

TestSuite(runwrite, .init = make_directory, .fini = remove_directory, .timeout = 60);

// -- publication ------------------------------------------------------------------------------------------------------

Test(runwrite, has_its_final_name_only_when_it_is_published)
{
    struct written run = {.options = {.calls = 0}};
    written_begin(&run, "run.h5");
    cr_assert_eq(access(run.path, F_OK), -1);
    cr_assert_eq(count_files(), 1);
    cr_assert_eq(runwrite_publish(run.w), 0);
    cr_assert_eq(access(run.path, F_OK), 0);
    cr_assert_eq(count_files(), 1);
    runwrite_close(run.w);
    cr_assert_eq(count_files(), 1);
}

Test(runwrite, leaves_nothing_when_it_is_given_up)
{
    struct written run = {.options = {.calls = 3}};
    written_begin(&run, "run.h5");
    runwrite_close(run.w);
    cr_assert_eq(count_files(), 0);
}

Test(runwrite, keeps_the_old_file_byte_for_byte_when_it_fails)
{
    struct buffer before = {0}, after = {0};
    char *path = write_small("run.h5");
    files_read_all(path, &before);
    struct written run = {.options = {.calls = 3}};
    written_begin(&run, "run.h5");
    written_row(&run, "solve", 0, (struct run_call[]){{1, 2}}, 1);
    cr_assert_eq(runwrite_publish(run.w), -EINVAL);  // one of three calls
    cr_assert(strstr(runwrite_error(run.w), "fewer values"), "%s", runwrite_error(run.w));
    runwrite_close(run.w);
    files_read_all(path, &after);
    cr_assert_eq(before.length, after.length);
    cr_assert_eq(memcmp(before.data, after.data, before.length), 0);
    cr_assert_eq(count_files(), 1);
    buffer_finish(&before);
    buffer_finish(&after);
}

Test(runwrite, replaces_the_old_file_when_it_succeeds)
{
    char *path = write_small("run.h5");
    struct written run = {.options = {.calls = 1}};
    written_begin(&run, "run.h5");
    written_row(&run, "other", 0, (struct run_call[]){{1, 2}}, 1);
    written_end(&run);
    struct sl_run *read = open_run(path);
    cr_assert_str_eq(sl_run_region_name(read, 0), "other");
    sl_run_close(read);
}

Test(runwrite, says_what_it_could_not_do_on_what_and_why)
{
    struct runwrite *w;
    cr_assert_eq(runwrite_open(&w, "/nowhere/at/all/run.h5", &(struct runwrite_options){0}), -ENOENT);
    cr_assert_str_eq(runwrite_error(w),
                     "cannot write run file /nowhere/at/all/run.h5: making a temporary file beside it: "
                     "No such file or directory");
    runwrite_close(w);
    cr_assert_eq(runwrite_open(&w, test_directory, &(struct runwrite_options){0}), -EISDIR);
    runwrite_close(w);
}

Test(runwrite, says_that_the_disk_is_full_and_leaves_nothing)
{
    struct run_call call = {10, 20};
    struct written run = {.options = {.calls = 100000}};
    written_begin(&run, "run.h5");
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){65536, RLIM_INFINITY});
    runwrite_row_begin(run.w, runwrite_region(run.w, "a", 1), 0, NULL, -1);
    for (int i = 0; i < 100000; i++)
        runwrite_row_calls(run.w, &call, 1);
    runwrite_row_end(run.w, 0);
    cr_assert_eq(runwrite_publish(run.w), -EFBIG, "%s", runwrite_error(run.w));
    cr_assert(strstr(runwrite_error(run.w), "File too large"), "%s", runwrite_error(run.w));
    runwrite_close(run.w);
    cr_assert_eq(count_files(), 0);
}

static int write_limited(rlim_t limit_bytes)
{
    struct written run = {.options = {.calls = 1, .threads = true}};
    struct run_thread thread = {.name = "main", .end_ns = RUN_UNKNOWN};
    run.path = in_directory("run.h5");
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){limit_bytes, RLIM_INFINITY});
    runwrite_open(&run.w, run.path, &run.options);
    runwrite_row_begin(run.w, runwrite_region(run.w, "a", 1), 0, NULL, -1);
    runwrite_row_calls(run.w, (struct run_call[]){{10, 20}}, 1);
    runwrite_row_end(run.w, 0);
    runwrite_thread(run.w, &thread);
    int result = runwrite_publish(run.w);
    cr_assert_eq(strlen(runwrite_error(run.w)) > 0, result < 0);
    runwrite_close(run.w);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    return result;
}

Test(runwrite, writes_all_or_nothing_wherever_the_disk_is_full)
{
    char *path = in_directory("run.h5");
    int failed = 0;
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0;; limit += 512) {
        if (write_limited(limit) == 0)
            break;
        cr_assert_eq(count_files(), 0, "limit %ld", (long)limit);
        failed++;
    }
    cr_assert_gt(failed, 10);
    cr_assert_eq(count_files(), 1);
    sl_run_close(open_run(path));
}

Test(runwrite, keeps_its_first_error)
{
    struct written run = {.options = {.calls = 1}};
    written_begin(&run, "run.h5");
    cr_assert_eq(runwrite_row_end(run.w, 0), -EINVAL);
    cr_assert(strstr(runwrite_error(run.w), "none has been begun"));
    cr_assert_eq(runwrite_metadata_int(run.w, "a", 1), -EINVAL);
    cr_assert_eq(runwrite_row_begin(run.w, 99, 0, NULL, -1), -EINVAL);
    cr_assert_eq(runwrite_publish(run.w), -EINVAL);
    cr_assert(strstr(runwrite_error(run.w), "none has been begun"));
    runwrite_close(run.w);
}

Test(runwrite, needs_no_file_locks_nor_does_reading)
{
    static const int errors[] = {ENOSYS, EOPNOTSUPP, ENOLCK, EIO};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        flock_error = errors[i];
        sl_run_close(open_run(write_small("run.h5")));
    }
    flock_error = 0;
}

Test(runwrite, accepts_a_name_of_255_bytes)
{
    char name[256];
    memset(name, 'x', 255);
    name[255] = 0;
    char *path = write_small(name);
    sl_run_close(open_run(path));
}

// -- rules ------------------------------------------------------------------------------------------------------------

Test(runwrite, refuses_a_second_row_of_a_rank_and_region)
{
    struct written run = {.options = {.calls = 2}};
    written_begin(&run, "run.h5");
    written_row(&run, "solve", 3, (struct run_call[]){{1, 2}}, 1);
    runwrite_row_begin(run.w, runwrite_region(run.w, "solve", 5), 3, NULL, -1);
    runwrite_row_calls(run.w, (struct run_call[]){{3, 4}}, 1);
    cr_assert_eq(runwrite_row_end(run.w, 0), -EEXIST);
    runwrite_close(run.w);
}

Test(runwrite, refuses_a_call_that_ends_before_it_starts_or_waits_longer_than_it_lasts)
{
    const struct run_call bad[] = {
        {20, 10, 0, 0, 0}, {10, 20, 11, 0, 0}, {10, 20, -1, 0, 0}, {INT64_MAX - 1, INT64_MAX, 0, 0, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct written run = {.options = {.calls = 1, .tasks = true}};
        written_begin(&run, "run.h5");
        runwrite_row_begin(run.w, runwrite_region(run.w, "solve", 5), 0, NULL, -1);
        cr_assert_eq(runwrite_row_calls(run.w, &bad[i], 1), -EINVAL);
        runwrite_close(run.w);
    }
}

Test(runwrite, refuses_lane_rows_out_of_order)
{
    struct run_thread thread = {.name = "main", .index = 1};
    struct written run = {.options = {.threads = true}};
    written_begin(&run, "run.h5");
    cr_assert_eq(runwrite_thread(run.w, &thread), -EINVAL);
    runwrite_close(run.w);
    written_begin(&run, "run.h5");
    thread.index = 0, thread.rank = 1;
    cr_assert_eq(runwrite_thread(run.w, &thread), 0);
    thread.rank = 0;
    cr_assert_eq(runwrite_thread(run.w, &thread), -EINVAL);
    runwrite_close(run.w);
}

Test(runwrite, refuses_a_lane_beyond_the_one_promised)
{
    struct written run = {.options = {.calls = 1, .threads = true, .highest_thread = 127}};
    written_begin(&run, "run.h5");
    runwrite_row_begin(run.w, runwrite_region(run.w, "solve", 5), 0, NULL, -1);
    cr_assert_eq(runwrite_row_calls(run.w, (struct run_call[]){{1, 2, .thread = 128}}, 1), -ERANGE);
    runwrite_close(run.w);
}

Test(runwrite, leaves_out_rows_without_calls_and_names_without_rows)
{
    struct written run = {.options = {.calls = 1}};
    written_begin(&run, "run.h5");
    runwrite_region(run.w, "orphan", 6);
    written_row(&run, "empty", 0, NULL, 0);
    written_row(&run, "full", 0, (struct run_call[]){{1, 2}}, 1);
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    cr_assert_eq(sl_run_region_count(read), 1);
    cr_assert_eq(sl_run_row_count(read), 1);
    cr_assert_str_eq(sl_run_region_name(read, 0), "full");
    sl_run_close(read);
}

Test(runwrite, replaces_what_a_name_cannot_hold)
{
    struct written run = {.options = {.calls = 1}};
    written_begin(&run, "run.h5");
    uint32_t arrow = runwrite_region(run.w, "a > > b", 7), zero = runwrite_region(run.w, "a\0b", 3);
    cr_assert_eq(runwrite_region(run.w, "a \u203a \u203a b", 11), arrow);
    cr_assert_eq(runwrite_region(run.w, "a\ufffdb", 5), zero);
    cr_assert_eq(runwrite_region(run.w, "a\xff" "b", 3), zero);
    cr_assert_neq(runwrite_region(run.w, "a>b", 3), arrow);
    runwrite_row_begin(run.w, arrow, 0, "bad\xff.c", -1);
    runwrite_row_calls(run.w, (struct run_call[]){{1, 2}}, 1);
    runwrite_row_end(run.w, 1);
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    cr_assert_str_eq(sl_run_region_name(read, 0), "a \u203a \u203a b");
    cr_assert_str_eq(sl_run_row(read, 0)->source_file, "bad\ufffd.c");
    sl_run_close(read);
}

Test(runwrite, keeps_names_of_any_kind_and_length)
{
    char *lengthy = alloc_zeroed(70001, 1);
    memset(lengthy, 'y', 70000);
    const char *names[] = {"", ".", "a/b", "I/O: a/b", "two\nlines", "\u00e4\u4e2d\U0001f600", lengthy};
    int count = sizeof names / sizeof *names;
    struct written run = {.options = {.calls = count}};
    written_begin(&run, "run.h5");
    for (int i = 0; i < count; i++)
        written_row(&run, names[i], 0, (struct run_call[]){{i, i + 1}}, 1);
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    cr_assert_eq(sl_run_region_count(read), count);
    for (int i = 0; i < count; i++)
        cr_assert_str_eq(sl_run_region_name(read, (size_t)i), names[i]);
    sl_run_close(read);
    free(lengthy);
}

// -- content ----------------------------------------------------------------------------------------------------------

// Writes the calls in pieces of odd sizes and reads them back.
static void round_trip(struct runwrite_options options, int count)
{
    struct run_call *calls = alloc_zeroed((size_t)count, sizeof *calls);
    uint64_t random = 1;
    int64_t now = 1000000;
    for (int i = 0; i < count; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        now += (int64_t)(random >> 50) - 4000;  // starts go back, too
        calls[i] = (struct run_call){now, now + (int64_t)(random >> 40 & 0xffff), (int64_t)(random >> 40 & 0xff00) / 2,
                                     (int32_t)(random >> 33) % (options.highest_thread + 2) - 1,
                                     (int32_t)(random >> 34) % (options.highest_task + 2) - 1};
        calls[i].thread = calls[i].thread < -1 ? 0 : calls[i].thread;
        calls[i].task = calls[i].task < -1 ? 0 : calls[i].task;
    }
    options.calls = options.calls ? options.calls : 2 * count;
    struct written run = {.options = options};
    written_begin(&run, "run.h5");
    for (uint32_t rank = 0; rank < 2; rank++) {
        runwrite_row_begin(run.w, runwrite_region(run.w, "r", 1), rank, NULL, -1);
        for (int done = 0, piece = 1; done < count; done += piece, piece = piece * 3 % 4999 + 1) {
            piece = piece > count - done ? count - done : piece;
            runwrite_row_calls(run.w, calls + done, (size_t)piece);
        }
        runwrite_row_end(run.w, -1);
    }
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    cr_assert_eq(sl_run_has_threads(read), options.threads || options.tasks);
    cr_assert_eq(sl_run_has_tasks(read), options.tasks);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct sl_calls back = read_calls(read, rank);
        cr_assert_eq(back.count, count);
        for (int i = 0; i < count; i++) {
            cr_assert(back.start_ns[i] == calls[i].start_ns && back.end_ns[i] == calls[i].end_ns, "call %d", i);
            cr_assert(!back.thread || back.thread[i] == calls[i].thread);
            cr_assert(!back.task || (back.task[i] == calls[i].task && back.await_ns[i] == calls[i].await_ns));
        }
        sl_calls_finish(&back);
    }
    sl_run_close(read);
    free(calls);
}

Test(runwrite, keeps_every_call_in_schema_2_and_3)
{
    round_trip((struct runwrite_options){.schema = 2}, 5000);
    round_trip((struct runwrite_options){.schema = 3}, 5000);
    round_trip((struct runwrite_options){.schema = 3}, 1);
}

Test(runwrite, keeps_every_call_with_lanes_of_any_width)
{
    for (int schema = 2; schema <= 3; schema++) {
        round_trip((struct runwrite_options){.schema = schema, .threads = true, .highest_thread = 3}, 3000);
        round_trip(
            (struct runwrite_options){
                .schema = schema, .tasks = true, .highest_thread = 127, .highest_task = 128, .longest_await_ns = 32767},
            3000);
        round_trip((struct runwrite_options){.schema = schema,
                                             .tasks = true,
                                             .highest_thread = 128,
                                             .highest_task = 40000,
                                             .longest_await_ns = 1 << 20},
                   3000);
        round_trip(
            (struct runwrite_options){.schema = schema, .tasks = true, .highest_thread = 32768, .highest_task = 1},
            3000);
    }
}

Test(runwrite, keeps_every_call_compressed_and_of_unknown_number)
{
    round_trip((struct runwrite_options){.compress = true, .tasks = true, .highest_thread = 9, .highest_task = 99},
               40000);
    round_trip((struct runwrite_options){.compress = true, .schema = 3}, 100);
    round_trip((struct runwrite_options){.calls = RUNWRITE_CALLS_UNKNOWN, .threads = true, .highest_thread = 9}, 100);
    round_trip((struct runwrite_options){.calls = RUNWRITE_CALLS_UNKNOWN, .threads = true, .highest_thread = 9}, 40000);
}

// The file's size in memory, the type and layout of one dataset.
struct stored {
    size_t width;
    H5D_layout_t layout;
    int filters;
};

static struct stored look_at(const char *path, const char *name)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT), dataset = H5Dopen2(file, name, H5P_DEFAULT);
    hid_t type = H5Dget_type(dataset), list = H5Dget_create_plist(dataset);
    struct stored stored = {H5Tget_size(type), H5Pget_layout(list), H5Pget_nfilters(list)};
    H5Pclose(list);
    H5Tclose(type);
    H5Dclose(dataset);
    H5Fclose(file);
    return stored;
}

static void write_many(struct written *run, int count)
{
    struct run_call call = {10, 20};
    written_begin(run, "run.h5");
    runwrite_row_begin(run->w, runwrite_region(run->w, "r", 1), 0, NULL, -1);
    for (int i = 0; i < count; i++)
        runwrite_row_calls(run->w, &call, 1);
    runwrite_row_end(run->w, -1);
    written_end(run);
}

Test(runwrite, stores_lanes_in_the_narrowest_type)
{
    struct written narrow = {.options = {.calls = 1, .tasks = true, .highest_thread = 127, .highest_task = 128,
                                         .longest_await_ns = 40000}};
    write_many(&narrow, 1);
    cr_assert_eq(look_at(narrow.path, "events/thread_ids").width, 1);
    cr_assert_eq(look_at(narrow.path, "events/task_ids").width, 2);
    cr_assert_eq(look_at(narrow.path, "events/await_ns").width, 4);
    struct written wide = {.options = {.calls = 1, .tasks = true, .highest_thread = 32768}};
    write_many(&wide, 1);
    cr_assert_eq(look_at(wide.path, "events/thread_ids").width, 4);
    cr_assert_eq(look_at(wide.path, "events/await_ns").width, 8);
}

Test(runwrite, has_no_lane_columns_where_nothing_was_tracked)
{
    char *path = write_small("run.h5");
    hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
    const char *absent[] = {"events/thread_ids", "events/task_ids", "events/await_ns", "thread_table", "task_table",
                            "scoped_lane"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        cr_assert_eq(H5Lexists(file, absent[i], H5P_DEFAULT), 0, "%s", absent[i]);
    H5Fclose(file);
}

Test(runwrite, keeps_small_files_small_and_contiguous)
{
    struct written run = {.options = {.calls = 1000, .compress = true}};
    struct stat status;
    write_many(&run, 1000);
    cr_assert_eq(look_at(run.path, "events/start_times").layout, H5D_CONTIGUOUS);
    cr_assert_eq(look_at(run.path, "rank_region_index/ranks").layout, H5D_CONTIGUOUS);
    stat(run.path, &status);
    cr_assert_lt(status.st_size, 40 << 10);
}

Test(runwrite, compresses_what_is_over_64_KiB_when_asked_and_only_then)
{
    struct written plain = {.options = {.calls = 20000}}, packed = {.options = {.calls = 20000, .compress = true}};
    write_many(&plain, 20000);
    cr_assert_eq(look_at(plain.path, "events/start_times").layout, H5D_CONTIGUOUS);
    write_many(&packed, 20000);
    struct stored stored = look_at(packed.path, "events/start_times");
    cr_assert_eq(stored.layout, H5D_CHUNKED);
    cr_assert_eq(stored.filters, 2);  // shuffle, deflate
}

Test(runwrite, writes_the_same_bytes_for_the_same_run)
{
    struct buffer one = {0}, other = {0};
    files_read_all(write_small("one.h5"), &one);
    files_read_all(write_small("other.h5"), &other);
    cr_assert_eq(one.length, other.length);
    cr_assert_eq(memcmp(one.data, other.data, one.length), 0);
    buffer_finish(&one);
    buffer_finish(&other);
}

// -- summaries --------------------------------------------------------------------------------------------------------

Test(runwrite, summarises_rows_as_two_passes_over_all_calls_would)
{
    enum { CALLS = 100000 };
    struct run_call *calls = alloc_zeroed(CALLS, sizeof *calls);
    long double total = 0, squares = 0;
    for (int i = 0; i < CALLS; i++) {  // long calls that differ little: what a naive sum of squares gets wrong
        calls[i] = (struct run_call){i * 10, i * 10 + INT64_C(3600000000000) + i % 7};
        total += calls[i].end_ns - calls[i].start_ns;
    }
    long double mean = total / CALLS;
    for (int i = 0; i < CALLS; i++)
        squares += (calls[i].end_ns - calls[i].start_ns - mean) * (calls[i].end_ns - calls[i].start_ns - mean);
    struct written run = {.options = {.calls = CALLS}};
    written_begin(&run, "run.h5");
    written_row(&run, "r", 0, calls, CALLS);
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    const struct sl_run_row *row = sl_run_row(read, 0);
    cr_assert_eq(row->total_ns, (int64_t)total);
    cr_assert_eq(row->minimum_ns, INT64_C(3600000000000));
    cr_assert_eq(row->maximum_ns, INT64_C(3600000000006));
    cr_assert_eq(row->first_ns, INT64_C(3600000000000));
    cr_assert_eq(row->last_ns, calls[CALLS - 1].end_ns - calls[CALLS - 1].start_ns);
    cr_assert_eq(row->start_minimum_ns, 0);
    cr_assert_eq(row->end_maximum_ns, calls[CALLS - 1].end_ns);
    cr_assert_float_eq(row->mean_ns, (double)mean, 1e-3);
    cr_assert_float_eq(row->m2, (double)squares, (double)squares * 1e-9);
    sl_run_close(read);
    free(calls);
}

// -- tables -----------------------------------------------------------------------------------------------------------

Test(runwrite, writes_lane_tables_relative_to_the_start_and_avoids_minus_one)
{
    struct written run = {.options = {.calls = 1, .start_ns = 1000, .tasks = true}};
    written_begin(&run, "run.h5");
    written_row(&run, "r", 2, (struct run_call[]){{1000, 1005, 2, 0, 0}}, 1);
    struct run_thread thread = {2, 0, 0x7fffffffff, 77, true, "m\xc3\xff", 999, 999, 5};
    struct run_task task = {2, 0, "fiber", "t", "a.b", 0, 1001, RUN_UNKNOWN, 3, 10, 20};
    cr_assert_eq(runwrite_thread(run.w, &thread), 0);
    cr_assert_eq(runwrite_task(run.w, &task), 0);
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    size_t count;
    const struct sl_run_thread *threads = sl_run_threads(read, 2, &count);
    cr_assert_eq(count, 1);
    cr_assert(!threads->alive && threads->end_time == 0 && threads->start_time == 0);
    cr_assert_str_eq(threads->name, "m\ufffd\ufffd");
    cr_assert(threads->daemon && threads->ident == 0x7fffffffff && threads->native_id == 77);
    const struct sl_run_task *tasks = sl_run_tasks(read, 2, &count);
    cr_assert_eq(count, 1);
    cr_assert(!tasks->done && isnan(tasks->done_time) && isnan(tasks->wall_time));
    cr_assert_float_eq(tasks->created_time, 1e-9, 1e-15);
    cr_assert_float_eq(tasks->running_time, 10e-9, 1e-15);
    cr_assert_float_eq(tasks->awaiting_time, 20e-9, 1e-15);
    cr_assert_str_eq(tasks->kind, "fiber");
    cr_assert_null(sl_run_tasks(read, 1, &count));
    cr_assert_eq(count, 0);
    sl_run_close(read);
}

Test(runwrite, keeps_tables_of_ours_of_any_length)
{
    const struct run_column columns[] = {{"rank", RUN_INT}, {"reason", RUN_TEXT}, {"share", RUN_REAL}};
    for (int rows = 0; rows <= 20000; rows = rows * 9 + 20) {
        struct written run = {.options = {.compress = rows % 2 == 0}};
        written_begin(&run, "run.h5");
        runwrite_fact_text(run.w, "run_id", "abc");
        runwrite_fact_int(run.w, "produced", 12);
        cr_assert_eq(runwrite_table_begin(run.w, "loss", 3, columns, 3), 0);
        for (int i = 0; i < rows; i++) {
            char reason[32];
            snprintf(reason, sizeof reason, "reason %d", i);
            runwrite_table_row(run.w, (union run_value[]){{.integer = -i}, {.text = reason}, {.real = i / 4.0}});
        }
        cr_assert_eq(runwrite_table_end(run.w), 0);
        runwrite_table_begin(run.w, "empty", 1, columns, 1);
        runwrite_table_end(run.w);
        written_end(&run);
        struct sl_run *read = open_run(run.path);
        const struct sl_table *table;
        cr_assert_eq(sl_run_table(read, "loss", &table, NULL), 0);
        cr_assert_eq(table->rows, rows);
        cr_assert_eq(table->version, 3);
        if (rows) {
            cr_assert_eq(sl_table_column(table, "rank")->integers[rows - 1], -(rows - 1));
            cr_assert_float_eq(sl_table_column(table, "share")->reals[rows - 1], (rows - 1) / 4.0, 0);
            cr_assert_eq(atoi(sl_table_column(table, "reason")->texts[rows - 1] + 7), rows - 1);
        }
        cr_assert_null(sl_table_column(table, "absent"));
        cr_assert_eq(sl_run_table(read, "empty", &table, NULL), 0);
        cr_assert(table && table->rows == 0 && table->column_count == 1);
        cr_assert_eq(sl_run_table(read, "absent", &table, NULL), 0);
        cr_assert_null(table);
        cr_assert_str_eq(sl_run_fact_text(read, "run_id"), "abc");
        sl_run_close(read);
    }
}

Test(runwrite, cuts_metadata_beyond_60000_bytes_and_refuses_a_key_twice)
{
    char *lengthy = alloc_zeroed(70001, 1);
    memset(lengthy, 'y', 70000);
    struct written run = {.options = {.start_ns = 5}};
    written_begin(&run, "run.h5");
    runwrite_metadata_text(run.w, "PATH", lengthy);
    runwrite_metadata_text(run.w, "label", "a\xff");
    runwrite_metadata_int(run.w, "mpi_size", 4);
    written_end(&run);
    struct sl_run *read = open_run(run.path);
    const char *path = sl_run_metadata_text(read, "PATH");
    cr_assert_eq(strlen(path), 60000 + strlen("...[truncated]"));
    cr_assert_str_eq(path + 60000, "...[truncated]");
    cr_assert_str_eq(sl_run_metadata_text(read, "label"), "a\ufffd");
    cr_assert_str_eq(sl_run_metadata_text(read, "start_time_ns"), "5");
    cr_assert_eq(sl_run_origin_ns(read), 5);
    sl_run_close(read);
    free(lengthy);
    struct written twice = {.options = {.start_ns = 5}};
    written_begin(&twice, "run.h5");
    cr_assert_eq(runwrite_metadata_int(twice.w, "start_time_ns", 6), -EEXIST);
    runwrite_close(twice.w);
}

// -- files for scope-profiler to judge --------------------------------------------------------------------------------

static struct written judged_begin(const char *name, struct runwrite_options options)
{
    const char *directory = getenv("SL_RUN_FILES");
    struct written run = {.options = options};
    if (!directory)
        cr_skip_test("SL_RUN_FILES is not set");
    run.path = give_path(alloc_printf("%s/%s.h5", directory, name));
    cr_assert_eq(runwrite_open(&run.w, run.path, &run.options), 0, "%s", runwrite_error(run.w));
    runwrite_metadata_text(run.w, "label", name);
    runwrite_metadata_text(run.w, "timestamp", "2025-01-02T03:04:05.678901+00:00");
    runwrite_metadata_text(run.w, "platform", "test");
    runwrite_metadata_text(run.w, "python_version", "none");
    runwrite_metadata_text(run.w, "scope_profiler_version", "none");
    runwrite_metadata_int(run.w, "finalize_time_ns", options.start_ns + 1000000);
    return run;
}

enum { RANKS = 4, THREADS = 3, TASKS = 5, ROUNDS = 6 };
static const int64_t start_ns = INT64_C(5000000000000);

// Each thread: a session with rounds of step{compute, compute}; each task: calls of fetch that wait, tasks moving over
// the threads, spread over one another in time.
static size_t thread_calls(struct run_call *step, struct run_call *compute)
{
    size_t count = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int thread = 0; thread < THREADS; thread++) {
            int64_t now = start_ns + 1000 + round * 1000 + thread * 7;
            step[count] = (struct run_call){now, now + 800, 0, thread, RUN_NO_TASK};
            compute[2 * count] = (struct run_call){now, now + 300, 0, thread, RUN_NO_TASK};
            compute[2 * count + 1] = (struct run_call){now + 300, now + 800, 0, thread, RUN_NO_TASK};
            count++;
        }
    return count;
}

static void write_rank(struct written *run, uint32_t rank, bool lanes, bool tasks)
{
    struct run_call step[ROUNDS * THREADS], compute[2 * ROUNDS * THREADS], fetch[ROUNDS * TASKS];
    size_t count = thread_calls(step, compute);
    if (!lanes)
        count = 1;  // threads overlap: untracked, one round of one thread nests
    struct run_call session = {start_ns + 500, start_ns + 900000, 0, 0, RUN_NO_TASK};
    runwrite_row_begin(run->w, runwrite_region(run->w, "scope_profiler.session", 22), rank, NULL, -1);
    runwrite_row_calls(run->w, &session, 1);
    runwrite_row_end(run->w, -1);
    written_row(run, "step > halo", rank, step, count);
    written_row(run, "compute", rank, compute, 2 * count);
    for (int i = 0; tasks && i < ROUNDS * TASKS; i++) {
        int task = i % TASKS;
        int64_t now = start_ns + 1000 + i * 100;
        fetch[i] = (struct run_call){now, now + 100 * TASKS - 1, 300, (task + i) % THREADS, task};
    }
    if (tasks)
        written_row(run, "fetch", rank, fetch, ROUNDS * TASKS);
}

static void write_lanes(struct written *run, bool tasks)
{
    for (uint32_t rank = 0; rank < RANKS; rank++)
        for (int i = 0; i < THREADS; i++) {
            struct run_thread thread = {rank,
                                        i,
                                        0x7f0000001000u + (unsigned)i,
                                        1000 + i,
                                        i == 2,
                                        i ? "wor\xc3ker" : "main",
                                        start_ns + i,
                                        i ? start_ns + 999000 : RUN_UNKNOWN,
                                        500000 + i};
            runwrite_thread(run->w, &thread);
        }
    for (uint32_t rank = 0; tasks && rank < RANKS; rank++)
        for (int i = 0; i < TASKS; i++) {
            struct run_task task = {rank,
                                    i,
                                    "fiber",
                                    i ? "job\xff" : "",
                                    "pool.<locals>.job",
                                    i % THREADS,
                                    start_ns - 1,
                                    i ? start_ns + 990000 : RUN_UNKNOWN,
                                    2 * ROUNDS,
                                    1200,
                                    1800};
            runwrite_task(run->w, &task);
        }
}

static void write_judged(const char *name, int schema, bool compress, bool lanes, bool tasks)
{
    int per_rank = lanes ? 1 + 3 * ROUNDS * THREADS + (tasks ? ROUNDS * TASKS : 0) : 4;
    struct written run = judged_begin(name, (struct runwrite_options){
                                                .schema = schema, .compress = compress, .start_ns = start_ns,
                                                .calls = RANKS * per_rank, .threads = lanes, .tasks = tasks,
                                                .highest_thread = THREADS - 1, .highest_task = TASKS - 1,
                                                .longest_await_ns = 300});
    for (uint32_t rank = 0; rank < RANKS; rank++)
        write_rank(&run, rank, lanes, tasks);
    if (lanes)
        write_lanes(&run, tasks);
    runwrite_table_begin(run.w, "loss", 1, (struct run_column[]){{"rank", RUN_INT}, {"reason", RUN_TEXT}}, 2);
    runwrite_table_row(run.w, (union run_value[]){{.integer = 0}, {.text = "ring full"}});
    runwrite_table_end(run.w);
    written_end(&run);
}

Test(files, untracked_in_both_schemas)
{
    write_judged("untracked2", 2, false, false, false);
    write_judged("untracked3", 3, false, false, false);
}

Test(files, with_threads)
{
    write_judged("threads2", 2, false, true, false);
}

Test(files, with_tasks_that_move_in_both_schemas)
{
    write_judged("tasks2", 2, false, true, true);
    write_judged("tasks3", 3, true, true, true);
}

Test(files, without_a_call)
{
    struct written run = judged_begin("empty", (struct runwrite_options){.start_ns = start_ns});
    written_end(&run);
}

Test(files, compressed)
{
    struct written run = judged_begin(
        "packed", (struct runwrite_options){
                      .schema = 3, .compress = true, .start_ns = start_ns, .calls = 20000, .threads = true});
    runwrite_row_begin(run.w, runwrite_region(run.w, "tick", 4), 0, NULL, -1);
    for (int64_t i = 0; i < 20000; i++) {
        struct run_call call = {start_ns + i * 40, start_ns + i * 40 + i % 30, 0, 0, RUN_NO_TASK};
        runwrite_row_calls(run.w, &call, 1);
    }
    runwrite_row_end(run.w, -1);
    struct run_thread thread = {0, 0, 1, 1, false, "main", start_ns, RUN_UNKNOWN, 0};
    runwrite_thread(run.w, &thread);
    written_end(&run);
}
