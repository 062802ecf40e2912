// The streaming JSON writer. All writing goes through buffer_extend with the room known beforehand; runs of plain
// characters are copied whole.
#include "base/json.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INTEGER_CHARS_MAX = 20 };

static const uint64_t exact_in_double = UINT64_C(1) << 53;

void jsonw_init(struct json_writer *json, struct buffer *out)
{
    *json = (struct json_writer){.out = out};
}

static void put(struct json_writer *json, char byte)
{
    *(char *)buffer_extend(json->out, 1) = byte;
}

static void separate(struct json_writer *json)
{
    if (json->comma)
        put(json, ',');
    json->comma = true;
}

static void enter(struct json_writer *json, char bracket)
{
    separate(json);
    put(json, bracket);
    json->comma = false;
    json->depth++;
}

static void leave(struct json_writer *json, char bracket)
{
    assert(json->depth > 0);
    put(json, bracket);
    json->comma = true;
    json->depth--;
}

void jsonw_object(struct json_writer *json)
{
    enter(json, '{');
}

void jsonw_object_end(struct json_writer *json)
{
    leave(json, '}');
}

void jsonw_array(struct json_writer *json)
{
    enter(json, '[');
}

void jsonw_array_end(struct json_writer *json)
{
    leave(json, ']');
}

void jsonw_key(struct json_writer *json, const char *key)
{
    size_t length = strlen(key);
    char *place = buffer_extend(json->out, length + 3 + json->comma);
    if (json->comma)
        *place++ = ',';
    *place++ = '"';
    memcpy(place, key, length);
    memcpy(place + length, "\":", 2);
    json->comma = false;
}

static const char digit_pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                  "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                  "8081828384858687888990919293949596979899";

// The digits, at the end of a field of INTEGER_CHARS_MAX; returns where they begin.
static char *digits(char *end, uint64_t number)
{
    while (number >= 100) {
        end -= 2;
        memcpy(end, digit_pairs + 2 * (number % 100), 2);
        number /= 100;
    }
    if (number >= 10) {
        end -= 2;
        memcpy(end, digit_pairs + 2 * number, 2);
    } else {
        *--end = (char)('0' + number);
    }
    return end;
}

static void integer(struct json_writer *json, uint64_t magnitude, bool negative)
{
    char field[INTEGER_CHARS_MAX + 1];
    char *end = field + sizeof field;
    char *begin = digits(end, magnitude);
    if (negative)
        *--begin = '-';
    separate(json);
    buffer_append(json->out, begin, (size_t)(end - begin));
}

void jsonw_int(struct json_writer *json, int64_t number)
{
    integer(json, number < 0 ? 0 - (uint64_t)number : (uint64_t)number, number < 0);
}

void jsonw_uint(struct json_writer *json, uint64_t number)
{
    integer(json, number, false);
}

void jsonw_id(struct json_writer *json, uint64_t identifier)
{
    if (identifier <= exact_in_double) {
        integer(json, identifier, false);
        return;
    }
    separate(json);
    put(json, '"');
    json->comma = false;
    integer(json, identifier, false);
    put(json, '"');
}

void jsonw_time(struct json_writer *json, int64_t time_ns)
{
    if (time_ns < 0)
        jsonw_null(json);
    else
        integer(json, (uint64_t)time_ns, false);
}

void jsonw_double(struct json_writer *json, double number)
{
    if (!isfinite(number)) {
        jsonw_null(json);
        return;
    }
    char text[40];
    int length = 0;
    for (int precision = 15; precision <= 17; precision++) {
        length = snprintf(text, sizeof text, "%.*g", precision, number);
        if (strtod(text, NULL) == number)
            break;
    }
    char *comma = memchr(text, ',', (size_t)length);  // a locale's decimal sign
    if (comma)
        *comma = '.';
    separate(json);
    buffer_append(json->out, text, (size_t)length);
}

void jsonw_bool(struct json_writer *json, bool truth)
{
    jsonw_raw(json, truth ? "true" : "false", truth ? 4 : 5);
}

void jsonw_null(struct json_writer *json)
{
    jsonw_raw(json, "null", 4);
}

void jsonw_raw(struct json_writer *json, const char *value, size_t length)
{
    separate(json);
    buffer_append(json->out, value, length);
}

static bool continues(const unsigned char *text, size_t length, size_t at, unsigned low, unsigned high)
{
    return at < length && text[at] >= low && text[at] <= high;
}

// Bytes of the well-formed sequence at `text` (no overlong forms, no surrogates), 0 if there is none.
static size_t sequence(const unsigned char *text, size_t length)
{
    unsigned lead = text[0];
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    size_t count = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (!continues(text, length, 1, low, high))
        return 0;
    for (size_t at = 2; at < count; at++)
        if (!continues(text, length, at, 0x80, 0xBF))
            return 0;
    return count;
}

static void escape(struct json_writer *json, unsigned char byte)
{
    static const char named[][2] = {{'"', '"'},  {'\\', '\\'}, {'\n', 'n'}, {'\t', 't'},
                                    {'\r', 'r'}, {'\b', 'b'},  {'\f', 'f'}};
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if (named[i][0] != (char)byte)
            continue;
        char *place = buffer_extend(json->out, 2);
        place[0] = '\\';
        place[1] = named[i][1];
        return;
    }
    buffer_printf(json->out, "\\u%04x", byte);
}

static bool plain(unsigned char byte)
{
    return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
}

void jsonw_text_length(struct json_writer *json, const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    separate(json);
    put(json, '"');
    for (size_t at = 0; at < length;) {
        size_t run = at;
        size_t count = 0;
        while (run < length && (plain(bytes[run]) || (bytes[run] >= 0x80 && (count = sequence(bytes + run, length - run)))))
            run += bytes[run] < 0x80 ? 1 : count;
        buffer_append(json->out, text + at, run - at);
        at = run;
        if (at == length)
            break;
        if (bytes[at] >= 0x80)
            buffer_text(json->out, "\xEF\xBF\xBD");  // U+FFFD
        else
            escape(json, bytes[at]);
        at++;
    }
    put(json, '"');
}

void jsonw_text(struct json_writer *json, const char *text)
{
    if (text)
        jsonw_text_length(json, text, strlen(text));
    else
        jsonw_null(json);
}

void jsonw_member_int(struct json_writer *json, const char *key, int64_t number)
{
    jsonw_key(json, key);
    jsonw_int(json, number);
}

void jsonw_member_uint(struct json_writer *json, const char *key, uint64_t number)
{
    jsonw_key(json, key);
    jsonw_uint(json, number);
}

void jsonw_member_id(struct json_writer *json, const char *key, uint64_t identifier)
{
    jsonw_key(json, key);
    jsonw_id(json, identifier);
}

void jsonw_member_time(struct json_writer *json, const char *key, int64_t time_ns)
{
    jsonw_key(json, key);
    jsonw_time(json, time_ns);
}

void jsonw_member_double(struct json_writer *json, const char *key, double number)
{
    jsonw_key(json, key);
    jsonw_double(json, number);
}

void jsonw_member_bool(struct json_writer *json, const char *key, bool truth)
{
    jsonw_key(json, key);
    jsonw_bool(json, truth);
}

void jsonw_member_null(struct json_writer *json, const char *key)
{
    jsonw_key(json, key);
    jsonw_null(json);
}

void jsonw_member_text(struct json_writer *json, const char *key, const char *text)
{
    jsonw_key(json, key);
    jsonw_text(json, text);
}
