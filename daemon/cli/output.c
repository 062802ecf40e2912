#include "cli/output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/say.h"
#include "cli/isolated.h"
#include "storage/scoped_lane_run.h"

enum { OPEN_PATIENCE_S = 30 };  // HDF5 1.10 may also run in circles on a damaged file

struct present {
    const char *named, *path;
};

static int expect_run_file(void *context)
{
    const struct present *present = context;
    char why[SL_RUN_ERROR_MAX];
    struct sl_run *run;
    alarm(OPEN_PATIENCE_S);
    if (sl_run_open(&run, present->path, why) < 0) {
        say("cannot write the run file %s: a file of that name is there that is not a run (%s)", present->named, why);
        return 1;
    }
    sl_run_close(run);
    return 0;
}

static int64_t sum_of(const struct sl_table *table, const char *name)
{
    const struct sl_table_column *column = sl_table_column(table, name);
    int64_t sum = 0;
    for (size_t i = 0; column && column->integers && i < table->rows; i++)
        sum += column->integers[i];
    return sum;
}

bool output_tally(const char *path, const char *run, struct output_tally *tally)
{
    char why[SL_RUN_ERROR_MAX];
    const struct sl_table *table = NULL;
    struct sl_run *file;
    if (sl_run_open(&file, path, why) < 0)
        return false;
    const char *id = sl_run_fact_text(file, "run");
    bool is_ours = id && strcmp(id, run) == 0 && sl_run_table(file, "processes", &table, why) == 0 && table;
    if (is_ours)
        *tally = (struct output_tally){(int64_t)table->rows, sum_of(table, "stored"), sum_of(table, "lost")};
    sl_run_close(file);
    return is_ours;
}

int output_settle(const char *named, char output[OUTPUT_PATH_MAX])
{
    char directory[4096];
    const char *path = named ? named : "scoped-lane.h5", *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct stat status;
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    char *full = realpath(directory, NULL);
    if (!full || access(full, W_OK | X_OK) < 0) {
        say("cannot write the run file %s: directory %s: %s", path, directory, strerror(errno));
        free(full);
        return -1;
    }
    int length = snprintf(output, OUTPUT_PATH_MAX, "%s/%s", strcmp(full, "/") ? full : "", name);
    free(full);
    if (length < 0 || length >= OUTPUT_PATH_MAX || !*name) {
        say("cannot write the run file %s: %s", path, *name ? strerror(ENAMETOOLONG) : "it names no file");
        return -1;
    }
    if (stat(output, &status) < 0)
        return 0;
    if (S_ISDIR(status.st_mode)) {
        say("cannot write the run file %s: %s", path, strerror(EISDIR));
        return -1;
    }
    struct present present = {path, output};
    return isolated_run(expect_run_file, &present, path, 1) == 0 ? 0 : -1;
}
