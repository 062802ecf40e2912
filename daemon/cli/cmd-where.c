// scoped-lane where: the roll call. Lanes of all ranks grouped by the regions they are in, smallest group first, so that
// the one that went astray stands on top.
#include "cli/listing.h"
#include "cli/where.h"

static const struct command_option options[] = {COMMAND_OPTIONS_LISTING, LISTING_FILTER_RUN, {0}};

const struct table_column where_columns[] = {
    {"ranks", "RANKS", TABLE_TEXT},
    {"rank_count", "COUNT", TABLE_COUNT},
    {"lanes", "LANES", TABLE_COUNT},
    {"state", "STATE", TABLE_TEXT},
    {"youngest_ns", "YOUNGEST", TABLE_DURATION},
    {"oldest_ns", "OLDEST", TABLE_DURATION},
    {"stack", "STACK", TABLE_STACK, TABLE_CUT},
    {0},
};

static const struct listing listing = {.path = "/v1/where", .none = "no lanes are known", .columns = where_columns};

static int run(const struct command_line *line)
{
    return listing_run(line, &listing);
}

const struct command command_where = {
    .name = "where",
    .summary = "group the lanes of all ranks by where they are, the odd ones first",
    .details = "YOUNGEST and OLDEST are the times in that state of the lane that came last and of the one that came first.",
    .options = options,
    .function = run,
};
