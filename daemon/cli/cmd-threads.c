// scoped-lane threads: the threads of every process, what each is doing, and its CPU time.
#include "cli/listing.h"

static const struct command_option options[] = {COMMAND_OPTIONS_LISTING, LISTING_FILTERS, {0}};

static const struct table_column columns[] = {
    {"run", "RUN", TABLE_TEXT, TABLE_IF_VARIED},
    {"rank", "RANK", TABLE_COUNT},
    {"pid", "PID", TABLE_COUNT},
    {"index", "INDEX", TABLE_COUNT},
    {"ident", "IDENT", TABLE_COUNT, TABLE_NEVER},
    {"native_id", "TID", TABLE_COUNT},
    {"name", "NAME", TABLE_TEXT},
    {"daemon", "DAEMON", TABLE_BOOL, TABLE_IF_VARIED},
    {"state", "STATE", TABLE_TEXT},
    {"start_ns", "START", TABLE_AGO, TABLE_NEVER},
    {"end_ns", "END", TABLE_AGO, TABLE_NEVER},
    {"cpu_ns", "CPU", TABLE_DURATION, .exact = "cpu_exact"},
    {"cpu_exact", "EXACT", TABLE_BOOL, TABLE_NEVER},
    {"cpu_share", "NOW", TABLE_SHARE},
    {"run_queue_ns", "RUN QUEUE", TABLE_DURATION},
    {"switches", "SWITCHES", TABLE_COUNT, TABLE_NEVER},
    {"task_index", "TASK", TABLE_COUNT, TABLE_IF_VARIED},
    {"since_ns", "SINCE", TABLE_AGO},
    {"stack", "STACK", TABLE_STACK, TABLE_CUT},
    {0},
};

static const struct listing listing = {.path = "/v1/threads", .none = "no threads are known", .columns = columns, .folds = "threads"};

static int run(const struct command_line *line)
{
    return listing_run(line, &listing);
}

const struct command command_threads = {
    .name = "threads",
    .summary = "list threads: CPU time and the regions each is in",
    .details = "A CPU time with \">\" is sampled, a lower bound; without, the thread's own and exact. NOW is the share of a "
               "processor it had of late, RUN QUEUE how long it could run and had none. SINCE is how long "
               "the thread has neither entered nor left a region; STACK has the outermost region first.",
    .options = options,
    .function = run,
};
