// scoped-lane regions: calls and times of each region so far.
#include "cli/listing.h"

static const struct command_option options[] = {
    COMMAND_OPTIONS_LISTING,
    LISTING_FILTER_RUN,
    LISTING_FILTER_RANK,
    {.name = "region", .argument = "NAME", .help = "only this region"},
    {.name = "ranks", .help = "a row for each rank instead of one for all"},
    {0},
};

static const struct table_column columns[] = {
    {"run", "RUN", TABLE_TEXT, TABLE_IF_VARIED},
    {"rank", "RANK", TABLE_COUNT, TABLE_IF_VARIED},
    {"pid", "PID", TABLE_COUNT, TABLE_IF_VARIED},
    {"name", "REGION", TABLE_TEXT},
    {"calls", "CALLS", TABLE_COUNT, .exact = "exact"},
    {"open", "OPEN", TABLE_COUNT},
    {"total_ns", "TOTAL", TABLE_DURATION, .exact = "exact"},
    {"self_ns", "SELF", TABLE_DURATION},
    {"mean_ns", "MEAN", TABLE_DURATION},
    {"min_ns", "MIN", TABLE_DURATION},
    {"p50_ns", "P50", TABLE_DURATION},
    {"p99_ns", "P99", TABLE_DURATION},
    {"max_ns", "MAX", TABLE_DURATION},
    {"imbalance", "IMBALANCE", TABLE_DECIMAL},
    {"score", "SCORE", TABLE_DECIMAL, TABLE_IF_ANY},
    {"outlier", "OUTLIER", TABLE_BOOL, TABLE_IF_ANY},
    {"outlier_share", "SHARE", TABLE_SHARE, TABLE_NEVER},
    {"chronic", "CHRONIC", TABLE_BOOL, TABLE_IF_ANY},
    {0},
};

static const struct listing listing = {.path = "/v1/regions", .none = "no regions are known", .columns = columns};

static int run(const struct command_line *line)
{
    return listing_run(line, &listing);
}

const struct command command_regions = {
    .name = "regions",
    .summary = "list regions: calls, total and self time, spread, imbalance",
    .details = "Calls still open count in OPEN, TOTAL and SELF. A \">\" marks lower bounds: calls were lost. P50 and P99 are the times that half and 99 of 100 "
               "finished calls do not exceed, within 5 percent. IMBALANCE is the largest rank's total over the mean. With --ranks "
               "OUTLIER is who was much slower than the others (SCORE above 3.5) in the latest second, CHRONIC who is so most of the time.",
    .options = options,
    .function = run,
};
