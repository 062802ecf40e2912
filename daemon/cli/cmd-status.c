// scoped-lane status: each daemon that listens, and how it is: one name and value a line, whatever the daemon tells.
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/say.h"
#include "cli/client.h"
#include "cli/listing.h"

static const struct command_option options[] = {COMMAND_OPTIONS_LISTING, {0}};

static const struct table_column columns[] = {{"name", "NAME", TABLE_TEXT}, {"value", "VALUE", TABLE_TEXT, TABLE_CUT}, {0}};

static void add_line(json_t *lines, const char *name, const char *value)
{
    json_array_append_new(lines, json_pack("{s:s, s:s}", "name", name, "value", value));
}

// A number of a field whose name tells its unit, as a person reads it.
static void add_integer(json_t *lines, const char *name, json_int_t number)
{
    char text[TABLE_VALUE_MAX];
    size_t length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, "_ns") == 0)
        table_duration(number, text);
    else if (length > 6 && strcmp(name + length - 6, "_bytes") == 0 && number >= 0)
        table_bytes((uint64_t)number, text);
    else
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, number);
    add_line(lines, name, text);
}

static void add_value(json_t *lines, const char *name, const json_t *value);

static void add_members(json_t *lines, const char *prefix, const json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        char *name = alloc_printf("%s%s%s", prefix, *prefix ? "." : "", key);
        add_value(lines, name, value);
        free(name);
    }
}

static void add_elements(json_t *lines, const char *prefix, const json_t *array)
{
    size_t index;
    json_t *value;
    json_array_foreach(array, index, value)
    {
        char *name =
            json_array_size(array) == 1 && json_is_object(value) ? alloc_text("") : alloc_printf("%s[%zu]", prefix, index);
        add_value(lines, name, value);
        free(name);
    }
}

static void add_value(json_t *lines, const char *name, const json_t *value)
{
    if (json_is_object(value)) {
        add_members(lines, name, value);
    } else if (json_is_array(value)) {
        add_elements(lines, name, value);
    } else if (json_is_integer(value)) {
        add_integer(lines, name, json_integer_value(value));
    } else if (json_is_string(value)) {
        add_line(lines, name, json_string_value(value));
    } else if (!json_is_null(value)) {
        char *text = json_dumps(value, JSON_ENCODE_ANY);
        add_line(lines, name, text ? text : "");
        free(text);
    }
}

static int draw(const struct command_line *line, FILE *to, void *context)
{
    (void)context;
    struct client_query query = {.rundir = command_text(line, "rundir"), .path = "/v1/status"};
    enum table_form form = listing_form(line);
    json_t *replies;
    int result = client_ask_each(&query, &replies);
    if (result < 0)
        return COMMAND_FAILED;
    int printed = 0;
    size_t index;
    json_t *each;
    json_array_foreach(replies, index, each)
    {
        if (form == TABLE_JSON) {  // one object a line
            json_dumpf(json_object_get(each, "reply"), to, JSON_COMPACT);
            fputc('\n', to);
            continue;
        }
        json_t *lines = json_array();
        add_line(lines, "rundir", json_string_value(json_object_get(each, "rundir")));
        add_members(lines, "", json_object_get(each, "reply"));
        fputs(index && form == TABLE_ALIGNED ? "\n" : "", to);
        printed = printed < 0 ? printed : table_print(to, form, columns, lines, 0);
        json_decref(lines);
    }
    json_decref(replies);
    if (printed < 0)
        say("cannot print the table: %s", strerror(-printed));
    return result > 0 || printed < 0 ? COMMAND_FAILED : COMMAND_DONE;
}

static int run(const struct command_line *line)
{
    return listing_repeat(line, draw, NULL);
}

const struct command command_status = {
    .name = "status",
    .summary = "show the daemons that listen and how they are",
    .options = options,
    .function = run,
};
