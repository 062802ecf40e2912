// scoped-lane loss: what was not stored, ring by ring, and why.
#include "cli/listing.h"

static const struct command_option options[] = {COMMAND_OPTIONS_LISTING, LISTING_FILTERS, {0}};

static const struct table_column columns[] = {
    {"run", "RUN", TABLE_TEXT, TABLE_IF_VARIED},
    {"rank", "RANK", TABLE_COUNT},
    {"pid", "PID", TABLE_COUNT},
    {"ring", "RING", TABLE_COUNT},
    {"thread_index", "THREAD", TABLE_COUNT},
    {"reason", "REASON", TABLE_TEXT},
    {"count", "CALLS", TABLE_COUNT},
    {0},
};

static const struct listing listing = {.path = "/v1/loss", .none = "nothing was lost", .columns = columns};

static int run(const struct command_line *line)
{
    return listing_run(line, &listing);
}

const struct command command_loss = {
    .name = "loss",
    .summary = "list the calls that were lost, by ring and reason",
    .options = options,
    .function = run,
};
