// Every call of a run with its place in the call stack, for `scoped-lane report --table calls`. Written as it is read,
// a rank at a time: there may be a hundred million.
#ifndef SL_CLI_REPORT_CALLS_H
#define SL_CLI_REPORT_CALLS_H

#include <stdio.h>

#include "cli/table.h"
#include "storage/scoped_lane_run.h"

// TABLE_JSON: an array of objects; else tab-separated values under a line of names. `rank` −1: all ranks, one after
// another. 0 or a negative errno with words in `error`, also where the calls of a lane do not nest.
int report_calls_print(FILE *to, enum table_form form, struct sl_run *run, int64_t rank, char error[SL_RUN_ERROR_MAX]);

#endif
