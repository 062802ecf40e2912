// scoped-lane snapshot: a complete run file as of now; the program goes on unpaused.
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/say.h"
#include "cli/choose-run.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/listing.h"
#include "cli/output.h"

static const struct command_option options[] = {
    COMMAND_OPTION_OUTPUT("the run file to write (default: scoped-lane.h5)"),
    LISTING_FILTER_RUN,
    COMMAND_OPTION_RUNDIR,
    {0},
};

static int run(const struct command_line *line)
{
    struct chosen_run chosen;
    char output[OUTPUT_PATH_MAX];
    json_t *reply;
    if (output_settle(command_text(line, "output"), output) < 0 ||
        choose_run(command_text(line, "rundir"), command_text(line, "run"), &chosen) < 0)
        return COMMAND_FAILED;
    char *parameters = client_escape(client_escape(alloc_text(""), "run", chosen.id), "output", output);
    struct client_query query = {.rundir = chosen.rundir, .path = "/v1/snapshot", .parameters = parameters, .post = true, .only = true};
    int result = client_ask(&query, &reply);
    free(parameters);
    if (result < 0)
        return COMMAND_FAILED;
    const json_t *row = json_array_get(json_object_get(reply, "rows"), 0);
    say("%s: %" JSON_INTEGER_FORMAT " calls so far", output, json_integer_value(json_object_get(row, "calls")));
    json_decref(reply);
    return COMMAND_DONE;
}

const struct command command_snapshot = {
    .name = "snapshot",
    .summary = "write a run file of what is recorded so far",
    .details = "The program is not paused. The file holds all calls that had ended; those still open are listed in it.",
    .options = options,
    .function = run,
};
