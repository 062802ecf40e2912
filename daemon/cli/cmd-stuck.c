// scoped-lane stuck: lanes that are in a region and get nowhere.
#include "cli/listing.h"

static const struct command_option options[] = {
    COMMAND_OPTIONS_LISTING,
    LISTING_FILTERS,
    {.name = "state", .argument = "STATE", .help = "only lanes in this state"},
    {.name = "after", .argument = "SECONDS", .kind = COMMAND_SECONDS,
     .help = "those that have done nothing for so long, instead of what the daemon holds for stuck"},
    {0},
};

static const struct table_column columns[] = {
    {"run", "RUN", TABLE_TEXT, TABLE_IF_VARIED},
    {"host", "HOST", TABLE_TEXT, TABLE_IF_VARIED},
    {"rank", "RANK", TABLE_COUNT},
    {"pid", "PID", TABLE_COUNT},
    {"lane", "LANE", TABLE_COUNT, TABLE_NEVER},
    {"label", "LABEL", TABLE_TEXT},
    {"state", "STATE", TABLE_TEXT},
    {"cpu_share", "NOW", TABLE_SHARE},
    {"quiet_ns", "FOR", TABLE_DURATION},
    {"longest_ns", "LONGEST CALL", TABLE_DURATION},
    {"limit_ns", "LIMIT", TABLE_DURATION, TABLE_NEVER},
    {"region", "REGION", TABLE_TEXT, TABLE_NEVER},
    {"stack", "STACK", TABLE_STACK, TABLE_CUT},
    {0},
};

static const struct listing listing = {.path = "/v1/stuck", .none = "no lane is stuck", .columns = columns};

static int run(const struct command_line *line)
{
    return listing_run(line, &listing);
}

const struct command command_stuck = {
    .name = "stuck",
    .summary = "list the lanes that are in a region and get nowhere",
    .details = "A lane is stuck when it has neither entered nor left a region for 30 seconds, and for ten times the longest call "
               "so far of the region it is in (settings of the daemon). STATE and NOW, its share of a processor of late, tell a "
               "call that is merely long from a lane that waits.",
    .options = options,
    .function = run,
};
