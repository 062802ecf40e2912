// Tables by libsmartcols, which measures columns (wide characters too), cuts at the terminal's edge and writes control
// characters as \xNN.
#include "cli/table.h"

#include <errno.h>
#include <inttypes.h>
#include <libsmartcols.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"

void table_duration(int64_t duration_ns, char text[TABLE_VALUE_MAX])
{
    static const struct {
        double ns;
        const char *name;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}};
    const char *sign = duration_ns < 0 ? "-" : "";
    uint64_t ns = duration_ns < 0 ? 0 - (uint64_t)duration_ns : (uint64_t)duration_ns;
    uint64_t seconds = ns / UINT64_C(1000000000);
    if (ns < 1000) {
        snprintf(text, TABLE_VALUE_MAX, "%s%" PRIu64 " ns", sign, ns);
    } else if (seconds < 100) {
        double value = (double)ns;
        int unit = 0;
        while (unit < 2 && value < units[unit].ns * 0.9995)  // 999,950 us reads 1.00 s
            unit++;
        value /= units[unit].ns;
        snprintf(text, TABLE_VALUE_MAX, "%s%.*f %s", sign,
                 value < 9.995   ? 2
                 : value < 99.95 ? 1
                                 : 0,
                 value, units[unit].name);
    } else if (seconds < 3600) {
        snprintf(text, TABLE_VALUE_MAX, "%s%" PRIu64 " min %02" PRIu64 " s", sign, seconds / 60, seconds % 60);
    } else if (seconds < 86400) {
        snprintf(text, TABLE_VALUE_MAX, "%s%" PRIu64 " h %02" PRIu64 " min", sign, seconds / 3600, seconds / 60 % 60);
    } else {
        snprintf(text, TABLE_VALUE_MAX, "%s%" PRIu64 " d %02" PRIu64 " h", sign, seconds / 86400, seconds / 3600 % 24);
    }
}

void table_bytes(uint64_t size_bytes, char text[TABLE_VALUE_MAX])
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (size_bytes < 1024) {
        snprintf(text, TABLE_VALUE_MAX, "%" PRIu64 " B", size_bytes);
        return;
    }
    double value = (double)size_bytes / 1024;
    int unit = 0;
    while (unit < 5 && value >= 999.5) {
        value /= 1024;
        unit++;
    }
    snprintf(text, TABLE_VALUE_MAX, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, names[unit]);
}

static void append_stack(struct buffer *into, const json_t *stack)
{
    size_t index;
    json_t *name;
    json_array_foreach(stack, index, name)
    {
        buffer_text(into, index ? " > " : "");
        buffer_text(into, json_is_string(name) ? json_string_value(name) : "?");
    }
}

char *table_stack(const json_t *stack)
{
    struct buffer text = {0};
    append_stack(&text, stack);
    buffer_append(&text, "", 1);
    return text.data;
}

// Any value without regard to its column: numbers and texts as they are, what is nested as JSON.
static void append_plain(struct buffer *into, const json_t *value)
{
    if (json_is_string(value)) {
        buffer_text(into, json_string_value(value));
    } else if (json_is_integer(value)) {
        buffer_printf(into, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        buffer_printf(into, "%.9g", json_real_value(value));
    } else if (json_is_boolean(value)) {
        buffer_text(into, json_is_true(value) ? "true" : "false");
    } else if (!json_is_null(value)) {
        char *dump = json_dumps(value, JSON_COMPACT);
        buffer_text(into, dump ? dump : "");
        free(dump);
    }
}

static bool is_unknown(const json_t *value)
{
    return !value || json_is_null(value);
}

static void append_number(struct buffer *into, const struct table_column *column, const json_t *value, int64_t now_ns)
{
    char text[TABLE_VALUE_MAX];
    double number = json_number_value(value);
    int64_t integer = json_is_integer(value) ? json_integer_value(value) : (int64_t)number;
    switch (column->kind) {
    case TABLE_DURATION: table_duration(integer, text); break;
    case TABLE_AGO: table_duration(integer < now_ns ? now_ns - integer : 0, text); break;
    case TABLE_BYTES: table_bytes(integer < 0 ? 0 : (uint64_t)integer, text); break;
    case TABLE_SHARE: snprintf(text, sizeof text, "%.1f %%", 100 * number); break;
    case TABLE_DECIMAL: snprintf(text, sizeof text, "%.3g", number); break;
    default: append_plain(into, value); return;
    }
    buffer_text(into, text);
}

// The cell of aligned text; zero-terminated.
static void format_cell(struct buffer *into, const struct table_column *column, const json_t *row, int64_t now_ns)
{
    const json_t *value = json_object_get(row, column->field);
    buffer_clear(into);
    if (column->exact && json_is_false(json_object_get(row, column->exact)) && !is_unknown(value))
        buffer_text(into, ">");
    if (json_is_array(value) && column->kind == TABLE_STACK)
        append_stack(into, value);
    else if (json_is_number(value))
        append_number(into, column, value, now_ns);
    else if (json_is_boolean(value))
        buffer_text(into, json_is_true(value) ? "yes" : "no");
    else if (!is_unknown(value))
        append_plain(into, value);
    if (into->length == 0)
        buffer_text(into, "-");
    buffer_append(into, "", 1);
}

static bool is_shown(const struct table_column *column, const json_t *rows)
{
    const json_t *first = json_object_get(json_array_get(rows, 0), column->field);
    bool there = false, varied = false, any = false;
    size_t index;
    json_t *row;
    json_array_foreach(rows, index, row)
    {
        const json_t *value = json_object_get(row, column->field);
        there = there || value;
        varied = varied || !first != !value || (value && !json_equal(value, first));
        any = any || (value && !is_unknown(value) && !json_is_false(value) && !(json_is_number(value) && json_number_value(value) == 0));
    }
    switch (column->shown) {
    case TABLE_NEVER: return false;
    case TABLE_IF_VARIED: return varied;
    case TABLE_IF_ANY:
    case TABLE_CUT_IF_ANY: return any;
    default: return there;
    }
}

static bool is_cut(const struct table_column *column)
{
    return column->shown == TABLE_CUT || column->shown == TABLE_CUT_IF_ANY;
}

static bool is_left(const struct table_column *column)
{
    return column->kind == TABLE_TEXT || column->kind == TABLE_STACK || column->kind == TABLE_BOOL;
}

static int fill(struct libscols_table *table, const struct table_column *columns, const bool *shown, const json_t *rows,
                int64_t now_ns)
{
    struct buffer text = {0};
    int result = 0;
    size_t index;
    json_t *row;
    json_array_foreach(rows, index, row)
    {
        struct libscols_line *line = scols_table_new_line(table, NULL);
        size_t cell = 0;
        for (int i = 0; line && columns[i].field && result == 0; i++) {
            if (!shown[i])
                continue;
            format_cell(&text, &columns[i], row, now_ns);
            result = scols_line_set_data(line, cell++, text.data);
        }
        if (!line)
            result = -ENOMEM;
        if (result < 0)
            break;
    }
    buffer_finish(&text);
    return result;
}

static int print_aligned(FILE *to, const struct table_column *columns, const json_t *rows, int64_t now_ns)
{
    if (json_array_size(rows) == 0)
        return 0;
    struct libscols_table *table = scols_new_table();
    if (!table)
        return -ENOMEM;
    bool shown[64] = {false};
    int result = 0;
    scols_table_set_stream(table, to);
    scols_table_set_column_separator(table, "  ");
    scols_table_enable_minout(table, 1);  // no blanks at the end of lines
    for (int i = 0; columns[i].field && i < 64 && result == 0; i++) {
        shown[i] = is_shown(&columns[i], rows);
        int flags = (is_left(&columns[i]) ? 0 : SCOLS_FL_RIGHT) | (is_cut(&columns[i]) ? SCOLS_FL_TRUNC : 0) |
                    (columns[i].shown == TABLE_WRAP ? SCOLS_FL_WRAP : 0);
        if (shown[i] && !scols_table_new_column(table, columns[i].header, 0, flags))
            result = -ENOMEM;
    }
    if (result == 0)
        result = fill(table, columns, shown, rows, now_ns);
    if (result == 0)
        result = scols_print_table(table);
    scols_unref_table(table);
    return result < 0 ? result : 0;
}

// A value must not look like a separator, nor reach a terminal as a command: escaped as in C.
static void put_escaped(FILE *to, const char *text)
{
    for (; *text; text++) {
        unsigned char byte = (unsigned char)*text;
        switch (byte) {
        case '\t': fputs("\\t", to); break;
        case '\n': fputs("\\n", to); break;
        case '\\': fputs("\\\\", to); break;
        default:
            if (byte < 0x20 || byte == 0x7f)
                fprintf(to, "\\x%02x", byte);
            else
                fputc(byte, to);
        }
    }
}

static void print_tsv(FILE *to, const struct table_column *columns, const json_t *rows)
{
    struct buffer text = {0};
    for (int i = 0; columns[i].field; i++)
        fprintf(to, "%s%s", i ? "\t" : "", columns[i].field);
    fputc('\n', to);
    size_t index;
    json_t *row;
    json_array_foreach(rows, index, row)
    {
        for (int i = 0; columns[i].field; i++) {
            const json_t *value = json_object_get(row, columns[i].field);
            buffer_clear(&text);
            if (json_is_array(value) && columns[i].kind == TABLE_STACK)
                append_stack(&text, value);
            else if (value)
                append_plain(&text, value);
            buffer_append(&text, "", 1);
            fputs(i ? "\t" : "", to);
            put_escaped(to, text.data);
        }
        fputc('\n', to);
    }
    buffer_finish(&text);
}

int table_print(FILE *to, enum table_form form, const struct table_column *columns, const json_t *rows, int64_t now_ns)
{
    if (form == TABLE_ALIGNED)
        return print_aligned(to, columns, rows, now_ns);
    if (form == TABLE_TSV) {
        print_tsv(to, columns, rows);
    } else {
        json_dumpf(rows, to, JSON_COMPACT);
        fputc('\n', to);
    }
    return ferror(to) ? -EIO : 0;
}
