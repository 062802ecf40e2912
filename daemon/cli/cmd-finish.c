// scoped-lane finish: ends a run now and has its file written; processes that live on go into a continuation.
#include <jansson.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/say.h"
#include "cli/choose-run.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/listing.h"

static const struct command_option options[] = {LISTING_FILTER_RUN, COMMAND_OPTION_RUNDIR, {0}};

static int run(const struct command_line *line)
{
    struct chosen_run chosen;
    json_t *reply;
    if (choose_run(command_text(line, "rundir"), command_text(line, "run"), &chosen) < 0)
        return COMMAND_FAILED;
    char *parameters = client_escape(alloc_text(""), "run", chosen.id);
    struct client_query query = {.rundir = chosen.rundir, .path = "/v1/finish", .parameters = parameters, .post = true, .only = true};
    int result = client_ask(&query, &reply);
    free(parameters);
    if (result < 0)
        return COMMAND_FAILED;
    const json_t *row = json_array_get(json_object_get(reply, "rows"), 0);
    say("run %s is finished: %s", chosen.id, json_string_value(json_object_get(row, "file")));
    json_decref(reply);
    return COMMAND_DONE;
}

const struct command command_finish = {
    .name = "finish",
    .summary = "end a run now and write its file",
    .details = "Processes of the run that live on are recorded into a continuation (run-2.h5, …).",
    .options = options,
    .function = run,
};
