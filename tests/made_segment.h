// A segment built by hand, right or wrong, in a memory file: what the tests of the daemon's reading side feed it.
#ifndef TESTS_MADE_SEGMENT_H
#define TESTS_MADE_SEGMENT_H

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/segment.h"

struct made {
    int fd;
    char *base;  // MADE_ROOM bytes are mapped, `size` of them are in the file
    uint64_t size;
    struct sl_extent *table;
    uint32_t table_used;
};

#define MADE_ROOM (UINT64_C(64) << 20)

static inline struct sl_segment *made_header(const struct made *made)
{
    return (struct sl_segment *)(void *)made->base;
}

static inline void *made_at(const struct made *made, uint64_t offset)
{
    return made->base + offset;
}

static inline int made_resize(struct made *made, uint64_t size)
{
    made->size = size;
    made_header(made)->size = size;
    return ftruncate(made->fd, (off_t)size);
}

// A header without extents.
static inline struct made made_begin(void)
{
    struct made made = {.fd = memfd_create("segment", MFD_CLOEXEC)};
    if (made.fd < 0 || ftruncate(made.fd, SL_HEADER_BYTES) < 0)
        return made;
    made.base = mmap(NULL, MADE_ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
    made.table = made_header(&made)->table;
    made.size = SL_HEADER_BYTES;
    *made_header(&made) = (struct sl_segment){.magic = SL_MAGIC, .abi = SL_ABI_VERSION, .header_bytes = SL_HEADER_BYTES,
                                              .record_bytes = SL_RECORD_BYTES, .thread_row_bytes = sizeof(struct sl_thread_row),
                                              .task_row_bytes = sizeof(struct sl_task_row), .pid = (uint32_t)getpid(),
                                              .size = SL_HEADER_BYTES, .rank = SL_RANK_NONE};
    return made;
}

static inline void made_end(struct made *made)
{
    munmap(made->base, MADE_ROOM);
    close(made->fd);
}

// Writes an entry as it is, without making the file longer.
static inline void made_entry(struct made *made, struct sl_extent entry)
{
    made->table[made->table_used++] = entry;
    sl_store_release(&made_header(made)->extents, made_header(made)->extents + 1);
}

// A good extent at the end of the file; returns its offset.
static inline uint64_t made_extent(struct made *made, uint32_t kind, uint32_t first, uint32_t count, uint64_t size)
{
    uint64_t offset = made->size;
    size = (size + SL_EXTENT_ALIGN - 1) & ~(uint64_t)(SL_EXTENT_ALIGN - 1);
    if (made_resize(made, offset + size) < 0)
        return 0;
    made_entry(made, (struct sl_extent){.kind = kind, .first = first, .count = count, .offset = offset, .size = size});
    return offset;
}

// The next table of extents, in the last entry of the present one.
static inline uint64_t made_table(struct made *made)
{
    uint64_t offset = made_extent(made, SL_EXTENT_TABLE, 0, SL_TABLE_NEXT, SL_TABLE_NEXT * sizeof(struct sl_extent));
    made->table = made_at(made, offset);
    made->table_used = 0;
    return offset;
}

// A slot whose ring holds `records` records, a power of two from 128 (a page) on.
static inline struct sl_ring *made_slot(struct made *made, uint32_t number, uint32_t records)
{
    uint64_t offset = made_extent(made, SL_EXTENT_SLOT, number, 1, SL_SLOT_RECORDS_OFFSET + (uint64_t)records * SL_RECORD_BYTES);
    struct sl_ring *ring = made_at(made, offset);
    ring->records = records;
    ring->owner = SL_RING_FREE;
    sl_ring_lane(ring)->entries = SL_THREAD_ENTRIES;
    sl_ring_lane(ring)->task = SL_TASK_NONE;
    return ring;
}

static inline struct sl_record made_call(uint64_t start, uint64_t duration, uint32_t region)
{
    return (struct sl_record){{start, sl_record_word1(SL_CALL, duration), sl_record_word2(region, 0),
                               sl_record_word3(region, 0, SL_TASK_NONE)}};
}

// Publishes a record as a producer does.
static inline void made_publish(struct sl_ring *ring, struct sl_record record)
{
    uint64_t head = ring->head;
    sl_ring_records(ring)[head & (ring->records - 1)] = record;
    sl_store_release(&ring->head, head + 1);
}

#endif
