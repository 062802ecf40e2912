// The string area: append-only, in extents. A writer claims space by a compare-and-set of the record's header from zero to
// (length | RESERVED), fills it, and marks it READY with release; a killed writer leaves a record that readers can skip, since
// its length is known. A header of zero ends the extent; where a later STRINGS extent exists, nothing more follows in this one.
//
//    0  header: length of the whole record in bytes, a multiple of 8 · state in the top two bits
//    4  id      region number, word number, or META key
//    8  type · zero
//   12  line    source line, -1 unknown
//   16  name_length
//   20  file_length
//   24  name bytes, then file bytes, then zeros
#ifndef SL_PROTO_STRINGS_H
#define SL_PROTO_STRINGS_H

#include "proto/layout.h"

#define SL_STRING_RESERVED 0x40000000u
#define SL_STRING_READY    0x80000000u
#define SL_STRING_STATE    0xc0000000u
#define SL_STRING_LENGTH   0x3fffffffu

enum sl_string_type {
    SL_STRING_REGION = 1,  // a region: name, file, line
    SL_STRING_WORD = 2,    // a task kind
    SL_STRING_META = 3     // a fact about the process: enum sl_meta in id, text in name
};

enum sl_meta {
    SL_META_PROGRAM = 1,    // path of the executable
    SL_META_DIRECTORY = 2,  // working directory at start
    SL_META_COMMAND = 3     // command line, arguments joined by blanks
};

struct sl_string {
    uint32_t header;
    uint32_t id;
    uint32_t type;
    int32_t line;
    uint32_t name_length;
    uint32_t file_length;
};

SL_ASSERT_SIZE(sl_string, 24);

#define SL_STRING_NAME_LIMIT (1u << 24)  // bytes of one name or path; longer ones are cut

static inline const char *sl_string_text(const struct sl_string *string)
{
    return (const char *)(string + 1);
}

#endif
