// scoped-lane salvage: makes run files of what dead daemons and dead programs left. A daemon started for just that does the work, so
// there is one way to read a segment and a spool.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/say.h"
#include "cli/command.h"
#include "cli/places.h"

static const struct command_option options[] = {COMMAND_OPTION_RUNDIR, {0}};

struct outcome {
    int places, failed;
};

static void salvage_one(void *context, const char *rundir, bool is_private)
{
    struct outcome *outcome = context;
    char here[4096], *program;
    int status;
    if (places_listens(rundir) || !getcwd(here, sizeof here))
        return;
    program = places_daemon_program();
    pid_t pid = fork();
    if (pid == 0) {
        execlp(program, "scoped-laned", "--salvage", "-v", "--rundir", rundir, "--output", here, is_private ? "--private" : (char *)NULL,
               (char *)NULL);
        say("cannot start %s: %s", program, strerror(errno));
        _exit(COMMAND_FAILED);
    }
    free(program);
    outcome->places++;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        outcome->failed++;
}

static int run(const struct command_line *line)
{
    struct outcome outcome = {0};
    places_visit(command_text(line, "rundir"), salvage_one, &outcome);
    if (!outcome.places)
        say("there is nothing to salvage: no runtime directory without a daemon");
    return outcome.failed ? COMMAND_FAILED : COMMAND_DONE;
}

const struct command command_salvage = {
    .name = "salvage",
    .summary = "make run files of what dead daemons and programs left",
    .details = "Looks into every runtime directory in which no daemon listens. Spools become the run files they were meant for;\n"
               "segments that belong to no spool become run files here.",
    .options = options,
    .function = run,
};
