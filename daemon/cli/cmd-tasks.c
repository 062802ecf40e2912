// scoped-lane tasks: the cooperative lanes (asyncio tasks, greenlets, coroutines) of every process.
#include "cli/listing.h"

static const struct command_option options[] = {
    COMMAND_OPTIONS_LISTING,
    LISTING_FILTERS,
    {.name = "kind", .argument = "KIND", .help = "only tasks of this kind, such as task or greenlet"},
    {0},
};

static const struct table_column columns[] = {
    {"run", "RUN", TABLE_TEXT, TABLE_IF_VARIED},
    {"rank", "RANK", TABLE_COUNT},
    {"pid", "PID", TABLE_COUNT},
    {"index", "INDEX", TABLE_COUNT},
    {"kind", "KIND", TABLE_TEXT},
    {"name", "NAME", TABLE_TEXT},
    {"coro_name", "CORO", TABLE_TEXT},
    {"thread_index", "THREAD", TABLE_COUNT},
    {"state", "STATE", TABLE_TEXT},
    {"created_ns", "CREATED", TABLE_AGO, TABLE_NEVER},
    {"done_ns", "DONE", TABLE_AGO, TABLE_NEVER},
    {"steps", "STEPS", TABLE_COUNT},
    {"running_ns", "RUNNING", TABLE_DURATION},
    {"suspended_ns", "SUSPENDED", TABLE_DURATION},
    {"longest_step_ns", "LONGEST STEP", TABLE_DURATION},
    {"since_ns", "SINCE", TABLE_AGO},
    {"stack", "STACK", TABLE_STACK, TABLE_CUT},
    {0},
};

static const struct listing listing = {.path = "/v1/tasks", .none = "no tasks are known", .columns = columns, .folds = "tasks"};

static int run(const struct command_line *line)
{
    return listing_run(line, &listing);
}

const struct command command_tasks = {
    .name = "tasks",
    .summary = "list cooperative tasks: steps, time running and suspended",
    .details = "A step or a suspension in progress is included. LONGEST STEP says which task blocks its loop.",
    .options = options,
    .function = run,
};
