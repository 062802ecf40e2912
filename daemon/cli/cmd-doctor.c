// scoped-lane doctor: what on this machine stops or slows recording, and why a process records nothing.
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/say.h"
#include "cli/doctor.h"
#include "cli/listing.h"
#include "core/guard.h"

static const struct command_option options[] = {
    {.name = "pid", .argument = "PID", .kind = COMMAND_INTEGER, .help = "why does this process record nothing?"},
    COMMAND_OPTIONS_FORM,
    COMMAND_OPTION_RUNDIR,
    {0},
};

static const struct table_column columns[] = {
    {"severity", "", TABLE_TEXT},
    {"check", "LOOKED AT", TABLE_TEXT},
    {"found", "FOUND", TABLE_TEXT, TABLE_WRAP},
    {"advice", "TO DO", TABLE_TEXT, TABLE_WRAP},
    {0},
};

void doctor_find(struct doctor *doctor, enum severity severity, const char *check, const char *advice, const char *format,
                 ...)
{
    static const char *const words[] = {"ok", "note", "slow", "STOPS"};
    char *found = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&found, format, arguments) < 0)
        found = NULL;
    va_end(arguments);
    json_array_append_new(doctor->rows,
                          json_pack("{s:s, s:s, s:s, s:o}", "severity", words[severity], "check", check, "found",
                                    found ? found : "?", "advice", advice ? json_string(advice) : json_null()));
    free(found);
    doctor->stops += severity == DOCTOR_STOPS;
}

static int print(const struct command_line *line, const struct doctor *doctor)
{
    if (listing_form(line) == TABLE_JSON) {
        json_t *reply = json_pack("{s:s, s:I, s:O}", "schema", "scoped-lane/doctor/1", "time_ns",
                                  (json_int_t)clock_monotonic_ns(), "rows", doctor->rows);
        json_dumpf(reply, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(reply);
        return 0;
    }
    return table_print(stdout, listing_form(line), columns, doctor->rows, 0);
}

static int run(const struct command_line *line)
{
    struct doctor doctor = {0};
    int64_t pid = command_integer(line, "pid", 0);
    if (command_given(line, "pid") && (pid <= 0 || pid > INT32_MAX)) {
        say("doctor: %" PRId64 " is no process's number", pid);
        return COMMAND_MISUSED;
    }
    doctor.rows = json_array();
    guard_install();
    if (pid)
        doctor_process(&doctor, (uint32_t)pid);
    else
        doctor_machine(&doctor, command_text(line, "rundir"));
    int result = print(line, &doctor);
    json_decref(doctor.rows);
    return result < 0 || doctor.stops ? COMMAND_FAILED : COMMAND_DONE;
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "say what on this machine stops or slows recording, or why a process records nothing",
    .details = "Ends with 1 when it found something that stops recording.",
    .options = options,
    .function = run,
};
