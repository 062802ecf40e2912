// The tables of `scoped-lane report` as JSON rows, for the common printer (cli/table.h). Points in time are nanoseconds
// from the start of the run, in the tables of /scoped_lane too. Each function returns a new array.
#ifndef SL_CLI_REPORT_ROWS_H
#define SL_CLI_REPORT_ROWS_H

#include <jansson.h>

#include "cli/table.h"
#include "storage/report.h"

json_t *report_rows_regions(const struct report *report);
json_t *report_rows_threads(const struct report *report);
json_t *report_rows_task_groups(const struct report *report);
json_t *report_rows_tasks(const struct report *report);  // every one

// A table of /scoped_lane; those with a column "rank" restricted to one.
json_t *report_rows_own(const struct sl_run *run, const struct sl_table *table, int64_t rank);

// Columns for a table of /scoped_lane, all that it has: for TSV. The caller frees.
struct table_column *report_columns_own(const struct sl_table *table);

extern const struct table_column report_region_columns[], report_thread_columns[], report_task_group_columns[],
    report_task_columns[], report_loss_columns[], report_open_columns[], report_crossing_columns[], report_unmatched_columns[],
    report_process_columns[];

#endif
