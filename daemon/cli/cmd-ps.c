// scoped-lane ps: the processes of every run that a daemon knows, with the ledger of each.
#include "cli/listing.h"

static const struct command_option options[] = {COMMAND_OPTIONS_LISTING, LISTING_FILTERS, {0}};

static const struct table_column columns[] = {
    {"run", "RUN", TABLE_TEXT, TABLE_IF_VARIED},
    {"host", "HOST", TABLE_TEXT, TABLE_IF_VARIED},
    {"rank", "RANK", TABLE_COUNT},
    {"file_rank", "FILE RANK", TABLE_COUNT, TABLE_NEVER},
    {"pid", "PID", TABLE_COUNT},
    {"state", "STATE", TABLE_TEXT},
    {"paused", "PAUSED", TABLE_BOOL, TABLE_IF_ANY},
    {"exit_status", "EXIT", TABLE_COUNT, TABLE_IF_VARIED},
    {"threads", "THREADS", TABLE_COUNT},
    {"tasks", "TASKS", TABLE_COUNT},
    {"calls", "CALLS", TABLE_COUNT},
    {"produced", "PRODUCED", TABLE_COUNT},
    {"stored", "STORED", TABLE_COUNT},
    {"lost", "LOST", TABLE_COUNT},
    {"crossing", "CROSSING", TABLE_COUNT, TABLE_IF_ANY},
    {"unmatched", "UNMATCHED", TABLE_COUNT, TABLE_IF_ANY},
    {"last_event_ns", "LAST EVENT", TABLE_AGO},
    {"unmatched_why", "UNMATCHED BECAUSE", TABLE_TEXT, TABLE_CUT_IF_ANY},
    {0},
};

static const struct listing listing = {.path = "/v1/processes", .none = "no processes are known", .columns = columns};

static int run(const struct command_line *line)
{
    return listing_run(line, &listing);
}

const struct command command_ps = {
    .name = "ps",
    .summary = "list the processes that are or were recorded",
    .details = "PRODUCED is the program's own count of finished calls: it is STORED + LOST, or calls are on their way. "
               "CROSSING counts exits that were not the innermost call's, UNMATCHED exits without an enter, with the reason of the first. "
               "LAST EVENT is how long ago the process last entered or left a region.",
    .options = options,
    .function = run,
};
