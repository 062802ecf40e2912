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
