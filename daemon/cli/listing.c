// The common part of ps, threads, tasks, regions, lanes, where, loss and status.
#include "cli/listing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/say.h"
#include "cli/client.h"

enum table_form listing_form(const struct command_line *line)
{
    return command_given(line, "json") ? TABLE_JSON : command_given(line, "tsv") ? TABLE_TSV : TABLE_ALIGNED;
}

// Each filter given on the command line, as the query's parameter of the same name.
char *listing_parameters(const struct command_line *line)
{
    static const char *const filters[] = {"run", "rank", "pid", "thread", "kind", "region", "state", "ranks", "after"};
    char *parameters = alloc_text("");
    for (int i = 0; i < line->given_count; i++) {
        if (strcmp(line->given[i].option->name, "suspended") == 0)
            parameters = client_escape(parameters, "state", "suspended");
        for (size_t filter = 0; filter < sizeof filters / sizeof *filters; filter++)
            if (strcmp(line->given[i].option->name, filters[filter]) == 0)
                parameters = client_escape(parameters, filters[filter], line->given[i].argument ? line->given[i].argument : "");
    }
    return parameters;
}

// Tasks and threads that have ended are no rows any more beyond a cap.
static void say_folded(const json_t *reply, const char *what, FILE *to)
{
    char key[32];
    snprintf(key, sizeof key, "%s_folded", what);
    json_int_t folded = json_integer_value(json_object_get(json_object_get(reply, "trust"), key));
    if (folded == 0)
        return;
    if (to == stdout)
        say("%" JSON_INTEGER_FORMAT " finished %s are not listed any more; run files have them", folded, what);
    else
        fprintf(to, "%" JSON_INTEGER_FORMAT " finished %s are not listed any more; run files have them\n", folded, what);
}

int listing_print(const struct command_line *line, FILE *to, const struct listing *listing, const json_t *reply)
{
    enum table_form form = listing_form(line);
    if (form == TABLE_JSON) {
        json_dumpf(reply, to, JSON_COMPACT);
        fputc('\n', to);
        return COMMAND_DONE;
    }
    const json_t *rows = json_object_get(reply, "rows");
    if (json_array_size(rows) == 0 && form == TABLE_ALIGNED)
        to == stdout ? say("%s", listing->none) : (void)fprintf(to, "%s\n", listing->none);
    if (listing->folds)
        say_folded(reply, listing->folds, to);
    int result = table_print(to, form, listing->columns, rows, json_integer_value(json_object_get(reply, "time_ns")));
    if (result < 0)
        say("cannot print the table: %s", strerror(-result));
    return result < 0 ? COMMAND_FAILED : COMMAND_DONE;
}

static int draw_listing(const struct command_line *line, FILE *to, void *context)
{
    const struct listing *listing = context;
    char *parameters = listing_parameters(line);
    struct client_query query = {.rundir = command_text(line, "rundir"), .path = listing->path, .parameters = parameters};
    json_t *reply;
    int result = client_ask(&query, &reply);
    free(parameters);
    if (result < 0)
        return COMMAND_FAILED;
    int status = listing_print(line, to, listing, reply);
    json_decref(reply);
    return result > 0 ? COMMAND_FAILED : status;
}

// One picture for the terminal: every line erased to its end, what does not fit left out, the rest of the screen erased.
static void put_picture(const char *text)
{
    struct winsize size;
    int room = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 ? size.ws_row - 1 : 24;
    fputs("\033[H", stdout);
    while (*text && room-- > 0) {
        size_t length = strcspn(text, "\n");
        printf("%.*s\033[K\n", (int)length, text);
        text += length + (text[length] == '\n');
    }
    fputs("\033[J", stdout);
}

// To memory first: a terminal then shows the new picture at once, without a blank in between.
static int draw_again(const struct command_line *line, listing_draw *draw, void *context, bool on_terminal)
{
    char *text = NULL;
    size_t length = 0;
    FILE *picture = open_memstream(&text, &length);
    if (!picture) {
        say("cannot draw: %s", strerror(errno));
        return COMMAND_FAILED;
    }
    int status = draw(line, picture, context);
    fclose(picture);
    if (on_terminal)
        put_picture(text);
    else
        fwrite(text, 1, length, stdout);
    free(text);
    return fflush(stdout) == 0 ? status : -1;
}

int listing_repeat(const struct command_line *line, listing_draw *draw, void *context)
{
    if (!command_given(line, "watch"))
        return draw(line, stdout, context);
    double seconds = command_seconds(line, "watch", 1.0);
    struct timespec pause = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    bool on_terminal = isatty(STDOUT_FILENO) && listing_form(line) == TABLE_ALIGNED;
    int status = COMMAND_FAILED;
    for (;;) {
        if (on_terminal && status != COMMAND_DONE) {  // what is said on stderr gets a screen of its own
            fputs("\033[H\033[2J", stdout);
            fflush(stdout);
        }
        status = draw_again(line, draw, context, on_terminal && status == COMMAND_DONE);
        if (status < 0)
            return COMMAND_FAILED;  // command_main says why
        nanosleep(&pause, NULL);    // and on, whatever came: a daemon that is not there yet may come
    }
}

int listing_run(const struct command_line *line, const struct listing *listing)
{
    return listing_repeat(line, draw_listing, (void *)listing);
}
