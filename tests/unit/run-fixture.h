// What the tests of run files share: a directory for each test, and runs written in few words.
//
//     struct written run = {.options = {.calls = 3, …}};
//     written_begin(&run, "run.h5");
//     written_row(&run, "solve", 0, (struct run_call[]){{10, 20}, {30, 40}}, 2);
//     written_end(&run);
//     struct sl_run *read = open_run(run.path);
#ifndef SL_TESTS_RUN_FIXTURE_H
#define SL_TESTS_RUN_FIXTURE_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/files.h"
#include "storage/runwrite.h"
#include "storage/scoped_lane_run.h"

static char test_directory[64];

// Paths a test was given, freed at its end.
static char *given_paths[10000];
static size_t given_count;

static inline char *give_path(char *path)
{
    cr_assert_lt(given_count, sizeof given_paths / sizeof *given_paths);
    return given_paths[given_count++] = path;
}

static inline void make_directory(void)
{
    strcpy(test_directory, "/tmp/sl-unit-XXXXXX");
    cr_assert(mkdtemp(test_directory));
}

static inline void remove_directory(void)
{
    DIR *directory = opendir(test_directory);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", test_directory, entry->d_name);
        unlink(path);
    }
    if (directory)
        closedir(directory);
    rmdir(test_directory);
    while (given_count)
        free(given_paths[--given_count]);
}

// The path of a name in the test's directory; lives as long as the test.
static inline char *in_directory(const char *name)
{
    return give_path(alloc_printf("%s/%s", test_directory, name));
}

// Files in the directory, hidden ones too.
static inline int count_files(void)
{
    DIR *directory = opendir(test_directory);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory));)
        count += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
    closedir(directory);
    return count;
}

static inline char *reference(const char *name)
{
    const char *root = getenv("SL_SOURCE_DIR");
    return give_path(alloc_printf("%s/tests/reference/%s.h5", root ? root : ".", name));
}

// -- writing ----------------------------------------------------------------------------------------------------------

struct written {
    struct runwrite_options options;
    struct runwrite *w;
    char *path;
};

static inline void written_begin(struct written *run, const char *name)
{
    run->path = in_directory(name);
    cr_assert_eq(runwrite_open(&run->w, run->path, &run->options), 0, "%s", runwrite_error(run->w));
}

static inline void written_row(struct written *run, const char *region, uint32_t rank, const struct run_call *calls,
                               size_t count)
{
    runwrite_row_begin(run->w, runwrite_region(run->w, region, strlen(region)), rank, "here.c", 7);
    runwrite_row_calls(run->w, calls, count);
    cr_assert_eq(runwrite_row_end(run->w, -1), 0, "%s", runwrite_error(run->w));
}

static inline void written_end(struct written *run)
{
    cr_assert_eq(runwrite_publish(run->w), 0, "%s", runwrite_error(run->w));
    runwrite_close(run->w);
}

// One region "solve" of rank 0 with three calls.
static inline char *write_small(const char *name)
{
    struct written run = {.options = {.calls = 3}};
    written_begin(&run, name);
    written_row(&run, "solve", 0, (struct run_call[]){{10, 15, .thread = -1, .task = -1}, {20, 33}, {40, 55}}, 3);
    written_end(&run);
    return run.path;
}

// -- reading ----------------------------------------------------------------------------------------------------------

static inline struct sl_run *open_run(const char *path)
{
    char error[SL_RUN_ERROR_MAX] = "";
    struct sl_run *run;
    cr_assert_eq(sl_run_open(&run, path, error), 0, "%s", error);
    return run;
}

// The run is refused with these words somewhere in its message, which begins with what was tried, on what.
static inline void refuse_run(const char *path, const char *words)
{
    char error[SL_RUN_ERROR_MAX] = "", *begin = alloc_printf("cannot open %s: ", path);
    struct sl_run *run;
    int result = sl_run_open(&run, path, error);
    cr_assert_lt(result, 0, "%s was opened", path);
    cr_assert_null(run);
    cr_assert_eq(strncmp(error, begin, strlen(begin)), 0, "%s", error);
    cr_assert(strstr(error, words), "'%s' is not in: %s", words, error);
    free(begin);
}

static inline struct sl_calls read_calls(struct sl_run *run, uint32_t rank)
{
    char error[SL_RUN_ERROR_MAX] = "";
    struct sl_calls calls;
    cr_assert_eq(sl_run_calls(run, rank, &calls, error), 0, "%s", error);
    return calls;
}

static inline const struct sl_run_row *find_row(const struct sl_run *run, const char *name, uint32_t rank)
{
    for (size_t i = 0; i < sl_run_row_count(run); i++) {
        const struct sl_run_row *row = sl_run_row(run, i);
        if (row->rank == rank && strcmp(row->name, name) == 0)
            return row;
    }
    return NULL;
}

// -- damaging ---------------------------------------------------------------------------------------------------------

static inline void damage_begin(const char *path, hid_t *file)
{
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    *file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    cr_assert_geq(*file, 0);
}

static inline void remove_link(const char *path, const char *name)
{
    hid_t file;
    damage_begin(path, &file);
    cr_assert_geq(H5Ldelete(file, name, H5P_DEFAULT), 0);
    H5Fclose(file);
}

// Puts a dataset of `count` elements in the place of another.
static inline void replace_dataset(const char *path, const char *name, hid_t type, hsize_t count, const void *values)
{
    hid_t file;
    damage_begin(path, &file);
    H5Ldelete(file, name, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, &count, NULL);
    hid_t dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert_geq(dataset, 0);
    H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Fclose(file);
}

static inline void replace_ints(const char *path, const char *name, hsize_t count, const int64_t *values)
{
    replace_dataset(path, name, H5T_NATIVE_INT64, count, values);
}

static inline hid_t text_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
}

static inline void replace_texts(const char *path, const char *name, hsize_t count, const char *const *values)
{
    hid_t type = text_type();
    replace_dataset(path, name, type, count, values);
    H5Tclose(type);
}

// Puts an attribute of a group in the place of another; `space` is closed.
static inline void replace_attribute(const char *path, const char *group, const char *name, hid_t type, hid_t space,
                                     const void *value)
{
    hid_t file;
    damage_begin(path, &file);
    hid_t object = H5Gopen2(file, group, H5P_DEFAULT);
    H5Adelete(object, name);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert_geq(attribute, 0);
    H5Awrite(attribute, type, value);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Gclose(object);
    H5Fclose(file);
}

#endif
