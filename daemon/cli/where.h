// The roll call, for others that show it.
#ifndef SL_CLI_WHERE_H
#define SL_CLI_WHERE_H

#include "cli/table.h"

extern const struct table_column where_columns[];

#endif
