// scoped-lane lanes: every lane, thread or task, and the regions it is in now.
#include "base/say.h"
#include "cli/listing.h"

static const struct command_option options[] = {
    COMMAND_OPTIONS_LISTING,
    LISTING_FILTERS,
    {.name = "state", .argument = "STATE", .help = "only lanes in this state"},
    {.name = "suspended", .help = "only tasks that are suspended; the same as --state suspended"},
    {0},
};

static const struct table_column columns[] = {
    {"run", "RUN", TABLE_TEXT, TABLE_IF_VARIED},
    {"host", "HOST", TABLE_TEXT, TABLE_IF_VARIED},
    {"rank", "RANK", TABLE_COUNT},
    {"pid", "PID", TABLE_COUNT},
    {"lane", "LANE", TABLE_COUNT},
    {"label", "LABEL", TABLE_TEXT},
    {"thread_index", "THREAD", TABLE_COUNT},
    {"task_index", "TASK", TABLE_COUNT, TABLE_IF_VARIED},
    {"state", "STATE", TABLE_TEXT},
    {"since_ns", "SINCE", TABLE_AGO},
    {"stack", "STACK", TABLE_STACK, TABLE_CUT},
    {0},
};

static const struct listing listing = {.path = "/v1/lanes", .none = "no lanes are known", .columns = columns};

static int run(const struct command_line *line)
{
    if (command_given(line, "suspended") && command_given(line, "state")) {
        say("--suspended says which state: --state goes without it");
        return COMMAND_MISUSED;
    }
    return listing_run(line, &listing);
}

const struct command command_lanes = {
    .name = "lanes",
    .summary = "list lanes, threads and tasks alike, with the regions each is in",
    .details = "A lane's number is its task's index, or -2 minus its thread's index where it is a bare thread.",
    .options = options,
    .function = run,
};
