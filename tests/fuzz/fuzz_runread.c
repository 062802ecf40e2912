// The reading library on files that are sound HDF5 and hold anything: a good run with some of its columns replaced by
// others, of any type, length and values. (Bytes of the file at random would find faults of HDF5.) Also the JSON
// scanner.
#include <fcntl.h>
#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/files.h"
#include "storage/jsonlist.h"
#include "storage/report.h"
#include "storage/runwrite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t take(struct input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

static int64_t take_number(struct input *input)
{
    static const int64_t strange[] = {INT64_MIN, INT64_MAX, INT32_MAX, UINT32_MAX, -2, (int64_t)1 << 40, 1000, 127};
    uint8_t byte = take(input);
    return byte < 200 ? byte - 1 : strange[byte % (sizeof strange / sizeof *strange)];
}

static void write_good(const char *path, int schema)
{
    struct runwrite *w;
    struct runwrite_options options = {.schema = schema, .calls = 5, .tasks = true, .highest_thread = 1};
    const struct run_call outer[] = {{0, 50, 0, 0, -1}, {60, 90, 5, 1, 0}}, inner[] = {{10, 20, 0, 0, -1}};
    const struct run_column columns[] = {{"rank", RUN_INT}, {"index", RUN_INT}, {"longest_step_ns", RUN_INT}};
    runwrite_open(&w, path, &options);
    for (uint32_t rank = 0; rank < 2; rank++) {
        runwrite_row_begin(w, runwrite_region(w, "outer", 5), rank, "a.c", 1);
        runwrite_row_calls(w, outer, 2);
        runwrite_row_end(w, 70);
    }
    runwrite_row_begin(w, runwrite_region(w, "inner", 5), 0, "", -1);
    runwrite_row_calls(w, inner, 1);
    runwrite_row_end(w, -1);
    for (uint32_t rank = 0; rank < 2; rank++) {
        runwrite_thread(w, &(struct run_thread){rank, 0, 1, 1, false, "main", 0, RUN_UNKNOWN, 0});
        runwrite_thread(w, &(struct run_thread){rank, 1, 2, 2, true, "worker", 0, 500, 7});
    }
    runwrite_task(w, &(struct run_task){0, 0, "task", "t", "c.d", 1, 0, RUN_UNKNOWN, 1, 1, 1});
    runwrite_table_begin(w, "tasks", 1, columns, 3);
    runwrite_table_row(w, (union run_value[]){{0}, {0}, {5}});
    runwrite_table_end(w);
    if (runwrite_publish(w))
        abort();
    runwrite_close(w);
}

// The good file is made once and copied from memory.
static void copy_good(const char *path, int schema)
{
    static struct buffer good[4];
    if (good[schema].length == 0) {
        write_good(path, schema);
        if (files_read_all(path, &good[schema]))
            abort();
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || files_write_all(fd, good[schema].data, good[schema].length))
        abort();
    close(fd);
}

static hid_t element_type(int which)
{
    switch (which % 6) {
    case 0: return H5Tcopy(H5T_NATIVE_INT8);
    case 1: return H5Tcopy(H5T_STD_U16BE);
    case 2: return H5Tcopy(H5T_NATIVE_DOUBLE);
    case 3: {
        hid_t text = H5Tcopy(H5T_C_S1);
        H5Tset_size(text, 5);
        return text;
    }
    default: return H5Tcopy(H5T_NATIVE_INT64);
    }
}

static void replace(hid_t file, const char *name, struct input *input)
{
    int64_t values[16];
    hsize_t length = take(input) % 8;
    hid_t type = element_type(take(input)), space = H5Screate_simple(1, &length, NULL);
    for (hsize_t i = 0; i < length; i++)
        values[i] = take_number(input);
    H5Ldelete(file, name, H5P_DEFAULT);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (dataset >= 0) {
        bool number = H5Tget_class(type) != H5T_STRING;
        H5Dwrite(dataset, number ? H5T_NATIVE_INT64 : type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
        H5Dclose(dataset);
    }
    H5Sclose(space);
    H5Tclose(type);
}

static void damage(const char *path, struct input *input)
{
    static const char *const names[] = {
        "rank_region_index/region_ids",     "rank_region_index/ranks",
        "rank_region_index/event_offsets",  "rank_region_index/event_counts",
        "rank_region_index/source_lines",   "rank_region_index/source_files",
        "rank_region_index/tags",           "rank_region_index/event_metadata",
        "rank_region_index/exclusive_totals", "rank_region_index/summary_statistics",
        "region_table/names",               "events/start_times",
        "events/end_times",                 "events/start_deltas",
        "events/durations",                 "events/thread_ids",
        "events/task_ids",                  "events/await_ns",
        "thread_table/ranks",               "thread_table/index",
        "thread_table/name",                "thread_table/end_ns",
        "task_table/ranks",                 "task_table/index",
        "task_table/thread_index",          "task_table/done_ns",
        "scoped_lane/tasks/rank",           "scoped_lane/tasks/index",
        "scoped_lane/tasks/longest_step_ns",
    };
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    for (int i = 0; i < 6 && input->size; i++) {
        uint8_t which = take(input);
        const char *name = names[which % (sizeof names / sizeof *names)];
        if (which >= 224)
            H5Ldelete(file, name, H5P_DEFAULT);
        else
            replace(file, name, input);
    }
    H5Fclose(file);
}

static void ask(const char *path)
{
    char error[SL_RUN_ERROR_MAX], text[64];
    struct sl_run *run;
    struct report report;
    if (sl_run_open(&run, path, error)) {
        if (!*error)
            abort();
        return;
    }
    size_t count;
    const uint32_t *ranks = sl_run_ranks(run, &count);
    for (size_t i = 0; i < count; i++) {
        struct sl_calls calls;
        struct sl_call_stack stack;
        struct sl_nesting_error wrong;
        if (sl_run_calls(run, ranks[i], &calls, error))
            continue;
        if (sl_call_stack_build(&calls, &stack, &wrong) == 0) {
            for (size_t call = 0; call < stack.count; call++)
                sl_call_path(run, &stack, &calls, call, text, sizeof text);
            sl_call_stack_finish(&stack);
        }
        sl_calls_finish(&calls);
    }
    if (report_make(&report, run, REPORT_ALL_RANKS, error) == 0)
        report_finish(&report);
    sl_run_close(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    uint8_t first = take(&input);
    char path[64];
    if (first % 8 == 7) {
        char *text = strndup((const char *)input.data, input.size);
        json_list_length(text);
        free(text);
        return 0;
    }
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    snprintf(path, sizeof path, "/dev/shm/sl-fuzz-%d.h5", (int)getpid());
    copy_good(path, 2 + first % 2);
    damage(path, &input);
    ask(path);
    unlink(path);
    return 0;
}
