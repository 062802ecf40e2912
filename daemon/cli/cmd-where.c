// scoped-lane where: the roll call. Lanes of all ranks grouped by the regions they are in, smallest group first, so that
// the one that went astray stands on top.
#include <stdlib.h>

#include "base/alloc.h"
#include "base/say.h"
#include "cli/client.h"
#include "cli/listing.h"
#include "cli/where.h"

static const struct command_option options[] = {
    {.name = "tasks", .help = "only tasks"},
    {.name = "threads", .help = "only threads, by what they are in outside of tasks"},
    {.name = "idle", .help = "lanes that are in no region too, as one group"},
    {.name = "socket",
     .argument = "SOCKET",
     .repeatable = true,
     .help = "ask the daemon of this query.sock, as one forwarded from another node"},
    COMMAND_OPTIONS_LISTING,
    LISTING_FILTER_RUN,
    {0},
};

const struct table_column where_columns[] = {
    {"host", "HOST", TABLE_TEXT, TABLE_IF_VARIED},
    {"ranks", "RANKS", TABLE_TEXT},
    {"rank_count", "COUNT", TABLE_COUNT},
    {"lanes", "LANES", TABLE_COUNT},
    {"state", "STATE", TABLE_TEXT},
    {"youngest_ns", "YOUNGEST", TABLE_DURATION},
    {"oldest_ns", "OLDEST", TABLE_DURATION},
    {"stack", "STACK", TABLE_STACK, TABLE_CUT},
    {0},
};

static const struct listing listing = {.path = "/v1/where", .none = "no lanes are known", .columns = where_columns};

static char *parameters_of(const struct command_line *line)
{
    char *parameters = listing_parameters(line);
    if (command_given(line, "tasks") != command_given(line, "threads"))
        parameters = client_escape(parameters, "lanes", command_given(line, "tasks") ? "tasks" : "threads");
    return command_given(line, "idle") ? client_escape(parameters, "idle", "1") : parameters;
}

static int draw(const struct command_line *line, FILE *to, void *context)
{
    const char *sockets[COMMAND_GIVEN_MAX + 1] = {NULL};
    (void)context;
    int count = 0;
    while ((sockets[count] = command_text_nth(line, "socket", count)))
        count++;
    char *parameters = parameters_of(line);
    struct client_query query = {.rundir = command_text(line, "rundir"),
                                 .path = listing.path,
                                 .parameters = parameters,
                                 .sockets = count ? sockets : NULL};
    json_t *reply;
    int result = client_ask(&query, &reply);
    free(parameters);
    if (result < 0)
        return COMMAND_FAILED;
    json_t *rows = json_object_get(reply, "rows");
    if (count)
        where_merge(rows);
    if (listing_form(line) == TABLE_ALIGNED)
        where_name_idle(rows);
    int status = listing_print(line, to, &listing, reply);
    json_decref(reply);
    return result > 0 ? COMMAND_FAILED : status;
}

static int run(const struct command_line *line)
{
    return listing_repeat(line, draw, NULL);
}

const struct command command_where = {
    .name = "where",
    .summary = "group the lanes of all ranks by where they are, the odd ones first",
    .details =
        "YOUNGEST and OLDEST are the times in that state of the lane that came last and of the one that came first.\n\n"
        "With --socket, which may be given for each node of a job, all nodes make one roll call.\n\n"
        "What the lanes of a process were in that has died is told too; of a run that is over where --run names it.",
    .options = options,
    .function = run,
};
