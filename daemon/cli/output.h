// The run file a command is to write.
#ifndef SL_CLI_OUTPUT_H
#define SL_CLI_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>

enum { OUTPUT_PATH_MAX = 4096 };

// The absolute path of `named` (NULL: scoped-lane.h5 here), once it is sure that it can be written and that no file which is not a run
// would be overwritten. 0, or -1 with the reason said.
int output_settle(const char *named, char path[OUTPUT_PATH_MAX]);

struct output_tally {
    int64_t processes, stored, lost;
};

// What the run file `path` says of its calls; false when it is not the one of `run`, an id.
bool output_tally(const char *path, const char *run, struct output_tally *tally);

#endif
