// The subcommands, in the order `scoped-lane --help` shows them: a word for each file cmd-WORD.c; resume is in cmd-pause.c.
#ifndef SL_CLI_COMMANDS_H
#define SL_CLI_COMMANDS_H

#include "cli/command.h"

#define COMMANDS(X) X(run) X(ps) X(threads) X(tasks) X(regions) X(lanes) X(where) X(stuck) X(top) X(loss) X(status) X(report) X(snapshot) \
    X(finish) X(pause) X(resume) X(salvage) X(gc) X(doctor)

#define COMMAND_DECLARE(name) extern const struct command command_##name;
COMMANDS(COMMAND_DECLARE)
#undef COMMAND_DECLARE

#endif
