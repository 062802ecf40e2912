// scoped-lane report: what a run file says, for people and for scripts.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/say.h"
#include "cli/command.h"
#include "cli/isolated.h"
#include "cli/listing.h"
#include "cli/report-calls.h"
#include "cli/report-rows.h"
#include "storage/wrap.h"

enum { ROWS_SHOWN = 100 };  // of a table that is there to be glanced at; --table shows all

static const struct command_option options[] = {
    {.name = "table", .argument = "NAME", .help = "only this table, and all of it"},
    {.name = "rank", .argument = "RANK", .kind = COMMAND_INTEGER, .help = "only this rank"},
    COMMAND_OPTIONS_FORM,
    {0},
};

// What a table is made of: rows that are computed, or a table of /scoped_lane of the same name.
struct part {
    const char *name;
    const char *title;  // in the text of the whole report; NULL: only by --table
    const struct table_column *columns;
    enum { PART_REGIONS, PART_THREADS, PART_GROUPS, PART_TASKS, PART_OWN } source;
};

static const struct part parts[] = {
    {"regions", "Regions", report_region_columns, PART_REGIONS},
    {"threads", "Threads", report_thread_columns, PART_THREADS},
    {"task_groups", "Tasks", report_task_group_columns, PART_GROUPS},
    {"loss", "Lost calls", report_loss_columns, PART_OWN},
    {"open_calls", "Calls open at the end", report_open_columns, PART_OWN},
    {"crossing", "Crossing calls", report_crossing_columns, PART_OWN},
    {"unmatched", "Exits without an enter", report_unmatched_columns, PART_OWN},
    {"processes", "Processes", report_process_columns, PART_OWN},
    {"tasks", NULL, report_task_columns, PART_TASKS},
};
enum { PARTS = sizeof parts / sizeof *parts };

struct context {
    struct sl_run *run;
    struct report report;
    const char *path;
    int64_t rank;
    char error[SL_RUN_ERROR_MAX];
};

// NULL, with words said, where the file's table cannot be read; an empty array where it has none.
static json_t *own_rows(struct context *context, const char *name)
{
    const struct sl_table *table;
    if (sl_run_table(context->run, name, &table, context->error)) {
        say("%s", context->error);
        return NULL;
    }
    return table ? report_rows_own(context->run, table, context->rank) : json_array();
}

static json_t *part_rows(struct context *context, const struct part *part)
{
    switch (part->source) {
    case PART_REGIONS: return report_rows_regions(&context->report);
    case PART_THREADS: return report_rows_threads(&context->report);
    case PART_GROUPS: return report_rows_task_groups(&context->report);
    case PART_TASKS: return report_rows_tasks(&context->report);
    default: return own_rows(context, part->name);
    }
}

// The end of the run as rows count time: what open calls are measured up to.
static int64_t end_ns(const struct context *context)
{
    int64_t end;
    return sl_run_metadata_int(context->run, "finalize_time_ns", &end)
               ? wrap_subtract(end, sl_run_origin_ns(context->run))
               : 0;
}

// -- the whole report as text -----------------------------------------------------------------------------------------

// Text of a file must not command a terminal.
static void put_plain(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

static void put_grouped(uint64_t number)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, number);
    for (int i = 0; i < length; i++)
        printf("%s%c", i && (length - i) % 3 == 0 ? "," : "", digits[i]);
}

static void print_head(const struct context *context)
{
    const struct report *report = &context->report;
    const char *label = sl_run_metadata_text(context->run, "label");
    char wall[TABLE_VALUE_MAX];
    put_plain(label && *label ? label : context->path);
    printf(": ");
    put_grouped(report->calls);
    printf(" calls on %" PRIu32 " rank%s", report->ranks, report->ranks == 1 ? "" : "s");
    if (report->wall_ns != REPORT_UNKNOWN) {
        table_duration(report->wall_ns, wall);
        printf(", %s", wall);
    }
    putchar('\n');
    if (sl_run_is_aggregate(context->run))
        puts("statistics only: the run did not keep its calls");
}

// How far the numbers can be trusted, by the processes' own counts; files of scope-profiler do not say.
static void print_trust(struct context *context)
{
    static const struct {
        const char *column, *words;
    } counts[] = {
        {"lost", "calls lost"},
        {"unmatched", "exits without an enter"},
        {"crossing", "crossing calls"},
        {"abandoned", "calls abandoned by longjmp"},
    };
    json_t *rows = own_rows(context, "processes");
    const char *separator = "";
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        uint64_t sum = 0;
        for (size_t row = 0; row < json_array_size(rows); row++)
            sum += (uint64_t)json_integer_value(json_object_get(json_array_get(rows, row), counts[i].column));
        if (sum == 0)
            continue;
        printf("%s", separator);
        put_grouped(sum);
        printf(" %s", counts[i].words);
        separator = ", ";
    }
    if (json_array_size(rows))
        puts(*separator ? "" : "nothing was lost");
    json_decref(rows);
}

static void print_title(const struct context *context, const struct part *part)
{
    printf("\n%s", part->title);
    if (part->source == PART_REGIONS && context->report.base)
        printf(" (shares are of %s)", context->report.base);
    putchar('\n');
}

// Rows of the ledger that count nothing are left out of the text.
static json_t *worth_showing(const struct part *part, json_t *rows)
{
    if (strcmp(part->name, "loss"))
        return rows;
    for (size_t i = json_array_size(rows); i-- > 0;)
        if (json_integer_value(json_object_get(json_array_get(rows, i), "count")) == 0)
            json_array_remove(rows, i);
    return rows;
}

static int print_part(struct context *context, const struct part *part)
{
    json_t *rows = part_rows(context, part);
    if (!rows)
        return COMMAND_FAILED;
    rows = worth_showing(part, rows);
    size_t count = json_array_size(rows);
    if (count) {
        print_title(context, part);
        while (json_array_size(rows) > ROWS_SHOWN)
            json_array_remove(rows, json_array_size(rows) - 1);
        table_print(stdout, TABLE_ALIGNED, part->columns, rows, end_ns(context));
        if (count > ROWS_SHOWN)
            printf("… %zu more: --table %s\n", count - ROWS_SHOWN, part->name);
    }
    json_decref(rows);
    return COMMAND_DONE;
}

static int print_text(struct context *context)
{
    int status = COMMAND_DONE;
    print_head(context);
    print_trust(context);
    for (int i = 0; i < PARTS; i++)
        if (parts[i].title && print_part(context, &parts[i]))
            status = COMMAND_FAILED;
    fflush(stdout);
    for (size_t i = 0; i < context->report.remark_count; i++)
        say("%s", context->report.remarks[i]);
    return status;
}

// -- as JSON, and table by table --------------------------------------------------------------------------------------

static int print_json(struct context *context)
{
    const struct report *report = &context->report;
    const char *label = sl_run_metadata_text(context->run, "label");
    json_t *whole = json_object(), *remarks = json_array();
    json_object_set_new(whole, "schema", json_string("scoped-lane/report/1"));
    json_object_set_new(whole, "file", json_string(context->path));
    json_object_set_new(whole, "label", label ? json_string(label) : json_null());
    json_object_set_new(whole, "file_schema", json_integer(sl_run_schema(context->run)));
    json_object_set_new(whole, "start_time_ns", json_integer(sl_run_origin_ns(context->run)));
    json_object_set_new(whole, "ranks", json_integer(report->ranks));
    json_object_set_new(whole, "calls", json_integer((json_int_t)report->calls));
    json_object_set_new(whole, "wall_ns",
                        report->wall_ns == REPORT_UNKNOWN ? json_null() : json_integer(report->wall_ns));
    json_object_set_new(whole, "share_of", report->base ? json_string(report->base) : json_null());
    int status = COMMAND_DONE;
    for (int i = 0; i < PARTS; i++) {
        json_t *rows = parts[i].title ? part_rows(context, &parts[i]) : NULL;
        if (rows)
            json_object_set_new(whole, parts[i].name, rows);
        else if (parts[i].title)
            status = COMMAND_FAILED;
    }
    for (size_t i = 0; i < report->remark_count; i++)
        json_array_append_new(remarks, json_string(report->remarks[i]));
    json_object_set_new(whole, "remarks", remarks);
    json_dumpf(whole, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(whole);
    return status;
}

static int print_rows(const struct part *part, struct context *context, enum table_form form)
{
    json_t *rows = part_rows(context, part);
    if (!rows)
        return COMMAND_FAILED;
    table_print(stdout, form, part->columns, rows, end_ns(context));
    json_decref(rows);
    return COMMAND_DONE;
}

// A table of /scoped_lane with all its columns.
static int print_own(struct context *context, const char *name, enum table_form form)
{
    const struct sl_table *table;
    if (sl_run_table(context->run, name, &table, context->error)) {
        say("%s", context->error);
        return COMMAND_FAILED;
    }
    if (!table) {
        say("%s has no table %s", context->path, name);
        return COMMAND_FAILED;
    }
    struct table_column *columns = report_columns_own(table);
    json_t *rows = report_rows_own(context->run, table, context->rank);
    table_print(stdout, form, columns, rows, end_ns(context));
    json_decref(rows);
    free(columns);
    return COMMAND_DONE;
}

static const struct part *find_part(const char *name)
{
    for (int i = 0; i < PARTS; i++)
        if (strcmp(parts[i].name, name) == 0)
            return &parts[i];
    return NULL;
}

static int print_table(struct context *context, const char *name, enum table_form form)
{
    const struct part *part = find_part(name);
    return part && part->source != PART_OWN ? print_rows(part, context, form) : print_own(context, name, form);
}

static int print(struct context *context, const struct command_line *line)
{
    enum table_form form = listing_form(line);
    const char *table = command_text(line, "table");
    if (table && strcmp(table, "calls") == 0) {
        if (report_calls_print(stdout, form, context->run, context->rank, context->error) == 0)
            return COMMAND_DONE;
        say("%s", context->error);
        return COMMAND_FAILED;
    }
    if (report_make(&context->report, context->run, context->rank, context->error)) {
        say("%s", context->error);
        return COMMAND_FAILED;
    }
    int status = table                ? print_table(context, table, form) :
                 form == TABLE_JSON   ? print_json(context) :
                 form == TABLE_TSV    ? print_table(context, "regions", form) :
                                        print_text(context);
    report_finish(&context->report);
    return status;
}

static int report(void *context_of_work)
{
    const struct command_line *line = context_of_work;
    struct context context = {.path = line->operands[0], .rank = command_integer(line, "rank", REPORT_ALL_RANKS)};
    if (sl_run_open(&context.run, context.path, context.error)) {
        say("%s", context.error);
        return COMMAND_FAILED;
    }
    int status = print(&context, line);
    sl_run_close(context.run);
    return status;
}

static int run(const struct command_line *line)
{
    return isolated_run(report, (void *)line, line->operands[0], COMMAND_FAILED);
}

const struct command command_report = {
    .name = "report",
    .operands = "FILE",
    .operands_min = 1,
    .operands_max = 1,
    .summary = "show what a run file says",
    .details =
        "FILE is a run file of scoped-lane or of scope-profiler. Regions come first, then threads, tasks by what they "
        "run, and what was lost, open at the end, crossing, or left without an enter. Tables for --table: regions, threads, task_groups, "
        "tasks, "
        "calls (each with its place in the call stack), and those of scoped-lane: loss, open_calls, crossing, "
        "unmatched, processes, clock, samples. Without --table, --tsv prints the regions.",
    .options = options,
    .function = run,
};
