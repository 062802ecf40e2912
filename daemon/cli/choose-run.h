// The run a command is about: the one named, or the only one that is being recorded.
#ifndef SL_CLI_CHOOSE_RUN_H
#define SL_CLI_CHOOSE_RUN_H

#include "base/rundir.h"

struct chosen_run {
    char rundir[RUNDIR_PATH_MAX];  // of its daemon
    char id[32];
};

// `name` may be NULL. 0, or -1 with the reason said: none, or several to choose from.
int choose_run(const char *rundir, const char *name, struct chosen_run *chosen);

#endif
