// What all listings do alike: ask, print in the form asked for, and again with --watch. A listing is a path, columns, and
// the struct command of its file.
#ifndef SL_CLI_LISTING_H
#define SL_CLI_LISTING_H

#include "cli/command.h"
#include "cli/table.h"

struct listing {
    const char *path;  // "/v1/threads"
    const char *none;  // what to say (to stderr) of a reply without rows: "no threads are known"
    const struct table_column *columns;
    const char *folds;  // "tasks": those beyond a cap are only counted; says how many. NULL
};

// The filters of the query of the same name; an option a listing has not is one it cannot be given.
#define LISTING_FILTER_RUN                                                                                                 \
    {                                                                                                                      \
        .name = "run", .argument = "RUN", .help = "only this run"                                                          \
    }
#define LISTING_FILTER_RANK                                                                                                \
    {                                                                                                                      \
        .name = "rank", .argument = "RANK", .kind = COMMAND_INTEGER, .help = "only this rank"                              \
    }
#define LISTING_FILTER_PID                                                                                                 \
    {                                                                                                                      \
        .name = "pid", .argument = "PID", .kind = COMMAND_INTEGER, .help = "only this process"                             \
    }
#define LISTING_FILTERS LISTING_FILTER_RUN, LISTING_FILTER_RANK, LISTING_FILTER_PID

// The exit status. The command's options are COMMAND_OPTIONS_LISTING and any filters.
int listing_run(const struct command_line *line, const struct listing *listing);

// Its parts, for one that does more: the query's parameters that the filters given are (freed by the caller), and the printing.
char *listing_parameters(const struct command_line *line);
int listing_print(const struct command_line *line, FILE *to, const struct listing *listing, const json_t *reply);

// Writes one picture to `to` and returns an exit status.
typedef int listing_draw(const struct command_line *line, FILE *to, void *context);

// Draws once; with --watch again and again until a signal ends the program. On a terminal each picture replaces the last
// and is cut at the bottom of the screen.
int listing_repeat(const struct command_line *line, listing_draw *draw, void *context);

// --json, --tsv, or aligned text.
enum table_form listing_form(const struct command_line *line);

#endif
