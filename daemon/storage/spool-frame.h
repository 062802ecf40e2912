// Frames of the spool on disk, for its writer and its reader.
#ifndef SL_STORAGE_SPOOL_FRAME_H
#define SL_STORAGE_SPOOL_FRAME_H

#include <stdint.h>
#include <zlib.h>

#include "proto/layout.h"

#define FRAME_MARKER        0x4d52464cu  // "LFRM"
#define FRAME_ALIGN(length) (((length) + 7) & ~(size_t)7)

struct spool_header {
    char magic[8];
    uint32_t version;
    uint32_t zero;
    uint8_t run_id[16];
    int64_t created_realtime_ns;
    uint64_t zeros[3];
};

struct frame_header {
    uint32_t marker;
    uint16_t type;
    uint16_t zero;
    uint32_t length;
    uint32_t crc;
};

struct frame_string {
    uint32_t process, type, id;
    int32_t line;
    uint32_t name_length, file_length;
};

struct frame_records {
    uint32_t process, slot;
    uint64_t first;
};

struct frame_dropped {
    uint32_t process, slot;
    uint64_t next, calls;
};

struct frame_base {
    uint32_t process, slot;
    uint64_t next;
    uint32_t owner, zero;
};

SL_ASSERT_SIZE(spool_header, 64);
SL_ASSERT_SIZE(frame_header, 16);
SL_ASSERT_SIZE(frame_string, 24);
SL_ASSERT_SIZE(frame_records, 16);
SL_ASSERT_SIZE(frame_dropped, 24);
SL_ASSERT_SIZE(frame_base, 24);

static inline uint32_t frame_crc(const struct frame_header *header, const void *payload)
{
    uLong crc = crc32(0, (const Bytef *)&header->type, 4 + sizeof header->length);
    return (uint32_t)crc32(crc, payload, header->length);
}

#endif
