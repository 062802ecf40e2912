// scoped-lane pause and resume: processes that record nothing for a while.
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/say.h"
#include "cli/choose-run.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/listing.h"

static const struct command_option options[] = {LISTING_FILTERS, COMMAND_OPTION_RUNDIR, {0}};

static int count_living(const json_t *rows)
{
    size_t index;
    json_t *row;
    int count = 0;
    json_array_foreach(rows, index, row)
    {
        const char *state = json_string_value(json_object_get(row, "state"));
        count += state && (strcmp(state, "live") == 0 || strcmp(state, "deaf") == 0);
    }
    return count;
}

// A pid says which run it is in; a rank does not.
static int run(const struct command_line *line, const char *path, const char *done)
{
    struct client_query query = {.rundir = command_text(line, "rundir"), .path = path, .post = true};
    struct chosen_run chosen;
    json_t *reply;
    char *parameters = client_escape(alloc_text(""), "pid", command_text(line, "pid"));
    parameters = client_escape(parameters, "rank", command_text(line, "rank"));
    if (command_given(line, "pid")) {
        parameters = client_escape(parameters, "run", command_text(line, "run"));
    } else if (choose_run(query.rundir, command_text(line, "run"), &chosen) == 0) {
        parameters = client_escape(parameters, "run", chosen.id);
        query.rundir = chosen.rundir;
        query.only = true;
    } else {
        free(parameters);
        return COMMAND_FAILED;
    }
    query.parameters = parameters;
    int result = client_ask(&query, &reply);
    free(parameters);
    if (result < 0)
        return COMMAND_FAILED;
    int count = count_living(json_object_get(reply, "rows"));
    json_decref(reply);
    if (count)
        say("%d process%s %s", count, count == 1 ? "" : "es", done);
    else
        say("no process of this description is being recorded");
    return count ? COMMAND_DONE : COMMAND_FAILED;
}

static int pause_run(const struct command_line *line)
{
    return run(line, "/v1/pause", "paused");
}

static int resume_run(const struct command_line *line)
{
    return run(line, "/v1/resume", "resumed");
}

const struct command command_pause = {
    .name = "pause",
    .summary = "have a run, rank or process record nothing for a while",
    .details = "Calls that are open are recorded when they end; those entered from now on are not, until resume.\n"
               "Live tables go on showing what each lane is in. Without --pid it is about the run named, or the only one.",
    .options = options,
    .function = pause_run,
};

const struct command command_resume = {
    .name = "resume",
    .summary = "have what pause has stopped record again",
    .details = "Calls that were entered in the meantime are not recorded, also when they end later.",
    .options = options,
    .function = resume_run,
};
