#include "cli/output.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/say.h"
#include "storage/scoped_lane_run.h"

static bool is_run_file(const char *path, char why[SL_RUN_ERROR_MAX])
{
    struct sl_run *run;
    if (sl_run_open(&run, path, why) < 0)
        return false;
    sl_run_close(run);
    return true;
}

int output_settle(const char *named, char output[OUTPUT_PATH_MAX])
{
    char directory[4096], why[SL_RUN_ERROR_MAX];
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
    if (is_run_file(output, why))
        return 0;
    say("cannot write the run file %s: a file of that name is there that is not a run (%s)", path, why);
    return -1;
}
