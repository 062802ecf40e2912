// The table printer: its three forms, humane units, and names that would harm a terminal.
#include <criterion/criterion.h>
#include <jansson.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "cli/table.h"

static const struct table_column columns[] = {
    {"run", "RUN", TABLE_TEXT, TABLE_IF_VARIED},
    {"rank", "RANK", TABLE_COUNT},
    {"name", "NAME", TABLE_TEXT},
    {"cpu_ns", "CPU", TABLE_DURATION, .exact = "cpu_exact"},
    {"since_ns", "SINCE", TABLE_AGO},
    {"daemon", "DAEMON", TABLE_BOOL, TABLE_NEVER},
    {"absent", "ABSENT", TABLE_COUNT},
    {"stack", "STACK", TABLE_STACK, TABLE_CUT},
    {0},
};

static const char rows_text[] =
    "[{\"run\":\"r1\",\"rank\":0,\"name\":\"main\",\"cpu_ns\":12345678,\"cpu_exact\":true,\"since_ns\":5790000000,"
    "\"daemon\":false,\"stack\":[\"step\",\"halo\"]},"
    "{\"run\":\"r1\",\"rank\":null,\"name\":\"grün\",\"cpu_ns\":900,\"cpu_exact\":false,\"since_ns\":null,"
    "\"daemon\":true,\"stack\":[]}]";

static void begin(void)
{
    setlocale(LC_CTYPE, "C.UTF-8");
}

TestSuite(table, .init = begin);

static char *print(enum table_form form, json_t *rows)
{
    char *text = NULL;
    size_t length = 0;
    FILE *to = open_memstream(&text, &length);
    cr_assert_eq(table_print(to, form, columns, rows, 10000000000), 0);
    fclose(to);
    return text;
}

static void expect(enum table_form form, json_t *rows, const char *expected)
{
    char *text = print(form, rows);
    cr_assert_str_eq(text, expected, "\n%s", text);
    free(text);
    json_decref(rows);
}

static json_t *rows(void)
{
    return json_loads(rows_text, 0, NULL);
}

Test(table, aligned_text_leaves_out_what_no_row_has_and_what_does_not_vary)
{
    expect(TABLE_ALIGNED, rows(),
           "RANK  NAME      CPU   SINCE  STACK\n"
           "   0  main  12.3 ms  4.21 s  step > halo\n"
           "   -  grün  >900 ns       -  -\n");
}

Test(table, a_column_that_varies_is_shown)
{
    json_t *given = rows();
    json_object_set_new(json_array_get(given, 1), "run", json_string("r2"));
    char *text = print(TABLE_ALIGNED, given);
    cr_assert_eq(strncmp(text, "RUN  RANK", 9), 0, "%s", text);
    free(text);
    json_decref(given);
}

Test(table, tsv_has_every_column_with_bare_numbers_and_nothing_for_the_unknown)
{
    expect(TABLE_TSV, rows(),
           "run\trank\tname\tcpu_ns\tsince_ns\tdaemon\tabsent\tstack\n"
           "r1\t0\tmain\t12345678\t5790000000\tfalse\t\tstep > halo\n"
           "r1\t\tgrün\t900\t\ttrue\t\t\n");
}

Test(table, json_is_the_rows_themselves)
{
    json_t *given = rows();
    char *text = print(TABLE_JSON, given);
    json_t *read = json_loads(text, 0, NULL);
    cr_assert(json_equal(read, given));
    json_decref(read);
    json_decref(given);
    free(text);
}

Test(table, without_rows_text_prints_nothing_and_tsv_its_header)
{
    expect(TABLE_ALIGNED, json_array(), "");
    expect(TABLE_TSV, json_array(), "run\trank\tname\tcpu_ns\tsince_ns\tdaemon\tabsent\tstack\n");
    expect(TABLE_JSON, json_array(), "[]\n");
}

Test(table, a_name_with_control_characters_cannot_reach_the_terminal_or_break_a_line)
{
    json_t *given = rows();
    json_object_set_new(json_array_get(given, 0), "name", json_string("a\x1b[31m\tb\nc\\d"));
    char *text = print(TABLE_ALIGNED, given);
    cr_assert_null(strchr(text, '\x1b'));
    int lines = 0;
    for (const char *at = text; *at; at++)
        lines += *at == '\n';
    cr_assert_eq(lines, 3, "%s", text);
    free(text);
    text = print(TABLE_TSV, given);
    cr_assert_not_null(strstr(text, "a\\x1b[31m\\tb\\nc\\\\d"), "%s", text);
    free(text);
    json_decref(given);
}

Test(table, durations_keep_three_digits_and_change_unit_where_a_reader_would)
{
    static const struct {
        int64_t ns;
        const char *text;
    } cases[] = {
        {0, "0 ns"},
        {999, "999 ns"},
        {1000, "1.00 us"},
        {12345, "12.3 us"},
        {999940, "1.00 ms"},
        {123456, "123 us"},
        {999950000, "1.00 s"},
        {12345678, "12.3 ms"},
        {4210000000, "4.21 s"},
        {42100000000, "42.1 s"},
        {99999999999, "100 s"},
        {100000000000, "1 min 40 s"},
        {125000000000, "2 min 05 s"},
        {3600000000000, "1 h 00 min"},
        {90061000000000, "1 d 01 h"},
        {-1500, "-1.50 us"},
        {INT64_MIN, "-106751 d 23 h"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[TABLE_VALUE_MAX];
        table_duration(cases[i].ns, text);
        cr_assert_str_eq(text, cases[i].text);
    }
}

Test(table, sizes_are_in_binary_units)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"}, {1023, "1023 B"}, {1024, "1.00 KiB"}, {1572864, "1.50 MiB"}, {UINT64_MAX, "16.0 EiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[TABLE_VALUE_MAX];
        table_bytes(cases[i].bytes, text);
        cr_assert_str_eq(text, cases[i].text);
    }
}
