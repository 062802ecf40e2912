// A client's segment as the daemon sees it: hostile bytes behind a checked geometry.
//
// Every number that decides where we read is copied out of shared memory once, checked, and used from the copy. The whole of
// SL_SEGMENT_LIMIT is mapped at once (pages come to life as the file grows) and the descriptor is closed; a file cut short
// meets the guard. Nothing here allocates by a number of the peer's beyond the checked bounds.
#ifndef SL_CORE_SEGMENT_H
#define SL_CORE_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/guard.h"
#include "proto/segment.h"

struct segment_slot {
    uint64_t offset;
    uint32_t records;  // a power of two
};

struct segment_rows {
    uint64_t offset;
    uint32_t first, count;
};

struct segment {
    struct guarded map;
    char path[256];  // "" unknown; unlinked only while it names this file
    dev_t device;
    ino_t inode;
    struct sl_segment identity;  // the first 512 bytes, copied once
    // geometry seen so far
    uint64_t end;            // end of the last extent
    uint32_t extents;        // entries taken in
    uint64_t table;          // offset of the present table
    uint32_t table_used, table_room;
    struct segment_slot *slots;
    uint32_t slot_count;
    struct segment_rows *threads, *tasks;
    uint32_t thread_extents, task_extents;
    uint64_t *strings, *string_ends;
    uint32_t string_extents;
    uint32_t string_extent;  // where reading stands
    uint64_t string_next;
};

// Maps and checks a segment; the descriptor stays the caller's. `problem` (at least 256 bytes) receives what is wrong, also the two ABI
// numbers when it is another version (-EPROTONOSUPPORT). 0 or -errno.
int segment_open(struct segment *segment, int fd, const char *path, char *problem);
void segment_close(struct segment *segment);
void segment_unlink(const struct segment *segment);  // removes the name when it still names this file

// Takes in new extents. False when the geometry is broken: the process is dropped.
bool segment_refresh(struct segment *segment);

static inline bool segment_is_broken(const struct segment *segment)
{
    return segment->map.broken;
}

static inline struct sl_segment *segment_header(const struct segment *segment)
{
    return (struct sl_segment *)(void *)segment->map.base;
}

static inline struct sl_ring *segment_ring(const struct segment *segment, uint32_t slot)
{
    return (struct sl_ring *)(void *)(segment->map.base + segment->slots[slot].offset);
}

// `length` bytes at `offset`, or NULL when they do not lie within the extents seen.
const void *segment_at(const struct segment *segment, uint64_t offset, uint64_t length);

// The next string record that is ready, copied into `text` (name, then file). 1 read, 0 none now, -1 broken.
struct segment_string {
    uint32_t type, id;
    int32_t line;
    uint32_t name_length, file_length;
    const char *name, *file;  // into a buffer that the next call overwrites; not zero-terminated
};
struct buffer;
void segment_rewind_strings(struct segment *segment);  // read them all again
int segment_next_string(struct segment *segment, struct segment_string *string, struct buffer *text);

// Copies a row's text (UTF-8, checked and repaired by the caller) of at most SL_NAME_LENGTH_LIMIT bytes, zero-terminated. False when it moved.
bool segment_name(const struct segment *segment, const struct sl_name *name, struct buffer *text);

// A consistent copy of a row: retried while its seq is odd or changes. False: moving, try later.
bool segment_thread_row(const struct segment *segment, const struct sl_thread_row *row, struct sl_thread_row *copy, struct buffer *name);
bool segment_task_row(const struct segment *segment, const struct sl_task_row *row, struct sl_task_row *copy, struct buffer *name,
                      struct buffer *coro_name);

#endif
