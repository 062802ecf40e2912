// The roll call: its columns, and several nodes' as one.
#ifndef SL_CLI_WHERE_H
#define SL_CLI_WHERE_H

#include <jansson.h>

#include "cli/table.h"

extern const struct table_column where_columns[];

// For a person: names what lanes in no region are in.
void where_name_idle(json_t *rows);

// Makes one row of those that have the same stack, whichever run or host they are of: lanes add up, ranks are joined, `hosts` has all of
// them. The smallest first.
void where_merge(json_t *rows);

#endif
