// Writes JSON into a buffer, piece by piece, without a tree: 10,000 rows of 15 fields take a few milliseconds. Commas are
// set by the writer; what it writes is always valid UTF-8. (The prefix is jsonw_, since json_ belongs to jansson.)
//
//     struct json_writer json;
//     jsonw_init(&json, &reply->body);
//     jsonw_object(&json);
//     jsonw_member_text(&json, "schema", "scoped-lane/threads/1");
//     jsonw_key(&json, "rows");
//     jsonw_array(&json);
//     …
//     jsonw_array_end(&json);
//     jsonw_object_end(&json);
#ifndef SL_BASE_JSON_H
#define SL_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"

struct json_writer {
    struct buffer *out;
    bool comma;  // a value stands before the next one in the same object or array
    int depth;   // open objects and arrays; 0 when the document is whole
};

void jsonw_init(struct json_writer *json, struct buffer *out);  // appends to what `out` holds

void jsonw_object(struct json_writer *json);
void jsonw_object_end(struct json_writer *json);
void jsonw_array(struct json_writer *json);
void jsonw_array_end(struct json_writer *json);
void jsonw_key(struct json_writer *json, const char *key);  // keys are ours: plain ASCII, written as they are

void jsonw_int(struct json_writer *json, int64_t number);
void jsonw_uint(struct json_writer *json, uint64_t number);
void jsonw_id(struct json_writer *json, uint64_t identifier);  // above 2^53 a string: jq and JavaScript keep all digits
void jsonw_time(struct json_writer *json, int64_t time_ns);    // a negative (unknown) time is null
void jsonw_double(struct json_writer *json, double number);    // shortest text that reads back equal; null when not finite
void jsonw_bool(struct json_writer *json, bool truth);
void jsonw_null(struct json_writer *json);

// Text of any bytes: control characters are escaped, each byte that is no part of valid UTF-8 becomes U+FFFD. NULL is null.
void jsonw_text(struct json_writer *json, const char *text);
void jsonw_text_length(struct json_writer *json, const char *text, size_t length);

// A finished JSON value from elsewhere, taken as it is.
void jsonw_raw(struct json_writer *json, const char *value, size_t length);

// A key and its value.
void jsonw_member_int(struct json_writer *json, const char *key, int64_t number);
void jsonw_member_uint(struct json_writer *json, const char *key, uint64_t number);
void jsonw_member_id(struct json_writer *json, const char *key, uint64_t identifier);
void jsonw_member_time(struct json_writer *json, const char *key, int64_t time_ns);
void jsonw_member_double(struct json_writer *json, const char *key, double number);
void jsonw_member_bool(struct json_writer *json, const char *key, bool truth);
void jsonw_member_null(struct json_writer *json, const char *key);
void jsonw_member_text(struct json_writer *json, const char *key, const char *text);

#endif
