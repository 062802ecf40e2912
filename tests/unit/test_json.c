// The JSON writer: what it writes is what a strict parser (jansson) reads back.
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"

static struct buffer out;
static struct json_writer json;

static void begin(void)
{
    buffer_clear(&out);
    jsonw_init(&json, &out);
}

static void end(void)
{
    buffer_finish(&out);
}

TestSuite(json, .init = begin, .fini = end);

static void expect(const char *text)
{
    cr_assert_eq(json.depth, 0, "everything is closed");
    buffer_append(&out, "", 1);
    cr_assert_str_eq(out.data, text);
}

Test(json, sets_commas_between_members_and_elements_at_every_depth)
{
    jsonw_object(&json);
    jsonw_key(&json, "empty");
    jsonw_array(&json);
    jsonw_array_end(&json);
    jsonw_key(&json, "list");
    jsonw_array(&json);
    jsonw_int(&json, 1);
    jsonw_object(&json);
    jsonw_object_end(&json);
    jsonw_object(&json);
    jsonw_member_null(&json, "a");
    jsonw_member_bool(&json, "b", true);
    jsonw_object_end(&json);
    jsonw_raw(&json, "[2,3]", 5);
    jsonw_array_end(&json);
    jsonw_member_bool(&json, "last", false);
    jsonw_object_end(&json);
    expect("{\"empty\":[],\"list\":[1,{},{\"a\":null,\"b\":true},[2,3]],\"last\":false}");
}

Test(json, writes_every_integer_whole)
{
    jsonw_array(&json);
    jsonw_int(&json, 0);
    jsonw_int(&json, -1);
    jsonw_int(&json, 10);
    jsonw_int(&json, 99);
    jsonw_int(&json, 100);
    jsonw_int(&json, -12345);
    jsonw_int(&json, INT64_MIN);
    jsonw_int(&json, INT64_MAX);
    jsonw_uint(&json, UINT64_MAX);
    jsonw_array_end(&json);
    expect("[0,-1,10,99,100,-12345,-9223372036854775808,9223372036854775807,18446744073709551615]");
}

Test(json, identifiers_above_2_to_the_53_are_strings_and_unknown_times_are_null)
{
    jsonw_array(&json);
    jsonw_id(&json, UINT64_C(9007199254740992));
    jsonw_id(&json, UINT64_C(9007199254740993));
    jsonw_id(&json, UINT64_MAX);
    jsonw_time(&json, -1);
    jsonw_time(&json, 0);
    jsonw_time(&json, 1234567890123);
    jsonw_array_end(&json);
    expect("[9007199254740992,\"9007199254740993\",\"18446744073709551615\",null,0,1234567890123]");
}

Test(json, doubles_read_back_equal_and_what_is_not_finite_is_null)
{
    static const double numbers[] = {0.0, 1.0, -0.5, 0.1, 1.0 / 3.0, 1e300, 5e-324, 1.7976931348623157e308, 123456789.125};
    enum { COUNT = sizeof numbers / sizeof *numbers };
    jsonw_array(&json);
    for (int i = 0; i < COUNT; i++)
        jsonw_double(&json, numbers[i]);
    jsonw_double(&json, NAN);
    jsonw_double(&json, -INFINITY);
    jsonw_array_end(&json);
    json_t *read = json_loadb(out.data, out.length, 0, NULL);
    cr_assert_not_null(read);
    for (int i = 0; i < COUNT; i++)
        cr_assert(json_number_value(json_array_get(read, (size_t)i)) == numbers[i], "number %d", i);
    cr_assert(json_is_null(json_array_get(read, COUNT)));
    cr_assert(json_is_null(json_array_get(read, COUNT + 1)));
    json_decref(read);
}

Test(json, control_characters_quotes_and_backslashes_are_escaped)
{
    jsonw_text(&json, "a\"b\\c\n\t\r\b\f\x01\x1f\x7f");
    expect("\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001\\u001f\x7f\"");
}

Test(json, valid_utf8_stays_and_each_other_byte_becomes_the_replacement_character)
{
    static const struct {
        const char *given, *written;
    } cases[] = {
        {"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x9A\x80", "\"gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x9A\x80\""},
        {"\x80x", "\"\xEF\xBF\xBDx\""},
        {"\xC3", "\"\xEF\xBF\xBD\""},
        {"\xC0\xAF", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},                  // overlong
        {"\xED\xA0\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},  // surrogate
        {"\xF4\x90\x80\x80", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\""},
        {"\xE2\x82", "\"\xEF\xBF\xBD\xEF\xBF\xBD\""},  // cut in between
        {"\xFF\xC3\xBC", "\"\xEF\xBF\xBD\xC3\xBC\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin();
        jsonw_text(&json, cases[i].given);
        expect(cases[i].written);
    }
}

Test(json, any_bytes_at_all_give_a_text_that_a_strict_parser_accepts)
{
    unsigned char bytes[64];
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 20000; round++) {
        for (size_t i = 0; i < sizeof bytes; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            bytes[i] = (unsigned char)(random >> 24);
        }
        begin();
        jsonw_text_length(&json, (char *)bytes, (size_t)(random % sizeof bytes));
        json_t *read = json_loadb(out.data, out.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        cr_assert_not_null(read);
        json_decref(read);
    }
}

Test(json, null_text_is_null_and_text_may_hold_zero_bytes)
{
    jsonw_array(&json);
    jsonw_text(&json, NULL);
    jsonw_text_length(&json, "a\0b", 3);
    jsonw_text(&json, "");
    jsonw_array_end(&json);
    expect("[null,\"a\\u0000b\",\"\"]");
}

static void write_row(int row)
{
    static const char *const stack[] = {"step", "halo", "scope_profiler.session"};
    jsonw_object(&json);
    jsonw_member_text(&json, "run", "0123456789abcdef");
    jsonw_member_int(&json, "rank", row % 64);
    jsonw_member_int(&json, "pid", 100000 + row);
    jsonw_member_int(&json, "index", row);
    jsonw_member_id(&json, "ident", UINT64_C(139637976727232) + (uint64_t)row);
    jsonw_member_int(&json, "native_id", 4000000 + row);
    jsonw_member_text(&json, "name", "worker thread");
    jsonw_member_bool(&json, "daemon", false);
    jsonw_member_time(&json, "start_ns", 123456789012345 + row);
    jsonw_member_time(&json, "end_ns", -1);
    jsonw_member_time(&json, "cpu_ns", 1234567890 + row);
    jsonw_member_bool(&json, "cpu_exact", false);
    jsonw_member_text(&json, "state", "live");
    jsonw_member_null(&json, "task_index");
    jsonw_key(&json, "stack");
    jsonw_array(&json);
    for (int i = 0; i < 3; i++)
        jsonw_text(&json, stack[i]);
    jsonw_array_end(&json);
    jsonw_object_end(&json);
}

Test(json, ten_thousand_rows_take_milliseconds)
{
    int64_t fastest_ns = INT64_MAX;
    for (int round = 0; round < 5; round++) {
        begin();
        int64_t start_ns = clock_monotonic_ns();
        jsonw_array(&json);
        for (int row = 0; row < 10000; row++)
            write_row(row);
        jsonw_array_end(&json);
        int64_t taken_ns = clock_monotonic_ns() - start_ns;
        fastest_ns = taken_ns < fastest_ns ? taken_ns : fastest_ns;
    }
    cr_log_info("10,000 rows, %zu bytes: %.2f ms", out.length, (double)fastest_ns / 1e6);
    cr_assert_lt(fastest_ns, 200 * 1000000, "generous: sanitizers and busy machines; it takes 3 to 5 ms otherwise");
}
