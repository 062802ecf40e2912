#include "cli/choose-run.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/say.h"
#include "cli/client.h"

static bool is_wanted(const json_t *row, const char *name)
{
    const char *state = json_string_value(json_object_get(row, "state"));
    return name || (state && strcmp(state, "recording") == 0);
}

static void take(struct chosen_run *chosen, const char *rundir, const json_t *row)
{
    snprintf(chosen->rundir, sizeof chosen->rundir, "%s", rundir);
    snprintf(chosen->id, sizeof chosen->id, "%s", json_string_value(json_object_get(row, "run")));
}

int choose_run(const char *rundir, const char *name, struct chosen_run *chosen)
{
    char *parameters = client_escape(alloc_text(""), "run", name);
    struct client_query query = {.rundir = rundir, .path = "/v1/runs", .parameters = parameters};
    json_t *replies, *reply, *row;
    size_t i, j;
    int found = 0, result = client_ask_each(&query, &replies);
    free(parameters);
    if (result < 0)
        return -1;
    json_array_foreach(replies, i, reply)
    {
        const char *where = json_string_value(json_object_get(reply, "rundir"));
        json_array_foreach(json_object_get(json_object_get(reply, "reply"), "rows"), j, row)
        {
            if (!is_wanted(row, name))
                continue;
            take(chosen, where, row);
            found++;
        }
    }
    json_decref(replies);
    if (found == 0)
        say(name ? "there is no run \"%s\"" : "no run is being recorded", name);
    else if (found > 1)
        say("%d runs are being recorded: name one with --run (scoped-lane ps --json lists them)", found);
    return found == 1 ? 0 : -1;
}
