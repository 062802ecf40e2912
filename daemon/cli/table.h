// The one printer of tables: every listing and the report go through it, so that all look alike and all have the same
// three forms. Rows are JSON objects, from a daemon's reply or made by the caller.
//
//     static const struct table_column columns[] = {
//         {"rank", "RANK", TABLE_COUNT},
//         {"cpu_ns", "CPU", TABLE_DURATION, .exact = "cpu_exact"},
//         {"stack", "STACK", TABLE_STACK, .shown = TABLE_CUT},
//         {0},
//     };
//     table_print(stdout, TABLE_ALIGNED, columns, json_object_get(reply, "rows"), now_ns);
#ifndef SL_CLI_TABLE_H
#define SL_CLI_TABLE_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum table_form { TABLE_ALIGNED, TABLE_JSON, TABLE_TSV };

// How a value is written in aligned text. In TSV numbers and times stay as they are, lists are joined.
enum table_kind {
    TABLE_TEXT,
    TABLE_COUNT,     // a number, to the right; an identifier that came as text too
    TABLE_DURATION,  // ns → "12.3 ms"
    TABLE_AGO,       // a time of the reply's clock → how long ago it was, "4.21 s"
    TABLE_BYTES,     // "1.50 MiB"
    TABLE_SHARE,     // 0..1 → "12.3 %"
    TABLE_DECIMAL,   // a number of any size, three significant digits
    TABLE_BOOL,      // yes, no
    TABLE_STACK,     // a list of names, outermost first → "step > halo"
};

// When a column is shown in aligned text; TSV has them all, always.
enum table_shown {
    TABLE_ALWAYS,     // where any row has the field at all
    TABLE_CUT,        // so, and cut at the right edge of a terminal
    TABLE_IF_VARIED,  // only where the rows differ in it: the run of a listing of one run says nothing
    TABLE_IF_ANY,     // only where some row has more than 0 or nothing in it
    TABLE_CUT_IF_ANY, // so, and cut
    TABLE_WRAP,       // as always, and in several lines where a terminal is too narrow
    TABLE_NEVER,
};

struct table_column {
    const char *field;  // of the row; NULL ends a list
    const char *header;
    enum table_kind kind;
    enum table_shown shown;
    const char *exact;  // a boolean field: where it is false the value is a lower bound and gets a ">"
};

// Prints `rows` (an array of objects). TABLE_JSON prints the array. Unknown values (null, absent) are "-" in text and
// empty in TSV. Text from programs is made harmless: control characters never reach the terminal. Without rows text
// prints nothing. 0 or -errno.
int table_print(FILE *to, enum table_form form, const struct table_column *columns, const json_t *rows, int64_t now_ns);

// One value as aligned text shows it, e.g. "12.3 ms", "4.21 s", "2 min 05 s"; "1.50 MiB".
enum { TABLE_VALUE_MAX = 32 };
void table_duration(int64_t duration_ns, char text[TABLE_VALUE_MAX]);
void table_bytes(uint64_t size_bytes, char text[TABLE_VALUE_MAX]);

// "step > halo" of an array of texts, appended to a fresh text the caller frees. "" for an empty list.
char *table_stack(const json_t *stack);

#endif
