#include "core/segment.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"

enum { SLOTS_LIMIT = 1 << 20, EXTENTS_LIMIT = 1 << 21, READ_TRIES = 8 };

static int refuse(char *problem, int error, const char *words)
{
    snprintf(problem, 256, "%s", words);
    return -error;
}

static int check_identity(const struct sl_segment *header, uint64_t file_size, char *problem)
{
    if (header->magic != SL_MAGIC)
        return refuse(problem, EAGAIN, "no magic number: not a segment, or not finished");
    if (header->abi != SL_ABI_VERSION) {
        snprintf(problem, 256, "it has ABI version %u, this daemon reads version %u", header->abi, SL_ABI_VERSION);
        return -EPROTONOSUPPORT;
    }
    if (header->features != 0)
        return refuse(problem, EPROTONOSUPPORT, "it uses features this daemon does not know");
    if (header->header_bytes != SL_HEADER_BYTES || header->record_bytes != SL_RECORD_BYTES ||
        header->thread_row_bytes != sizeof(struct sl_thread_row) || header->task_row_bytes != sizeof(struct sl_task_row))
        return refuse(problem, EBADMSG, "its record or row sizes are not those of its ABI version");
    if (file_size < SL_HEADER_BYTES || file_size > SL_SEGMENT_LIMIT)
        return refuse(problem, EBADMSG, "its size is not that of a segment");
    if (header->clock > SL_CLOCK_ARM)
        return refuse(problem, EBADMSG, "its clock is of an unknown kind");
    return 0;
}

int segment_open(struct segment *segment, int fd, const char *path, char *problem)
{
    *segment = (struct segment){.end = SL_HEADER_BYTES, .table = offsetof(struct sl_segment, table), .table_room = SL_TABLE_FIRST};
    snprintf(segment->path, sizeof segment->path, "%s", path ? path : "");
    struct stat status;
    if (fstat(fd, &status) < 0)
        return refuse(problem, errno, "its file cannot be looked at");
    if (!S_ISREG(status.st_mode) || status.st_size < SL_HEADER_BYTES)
        return refuse(problem, EBADMSG, "its file is too short for a segment");
    segment->device = status.st_dev;
    segment->inode = status.st_ino;
    void *base = mmap(NULL, SL_SEGMENT_LIMIT, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return refuse(problem, errno, "it cannot be mapped");
    segment->map.base = base;
    segment->map.size = SL_SEGMENT_LIMIT;
    madvise(base, SL_SEGMENT_LIMIT, MADV_DONTDUMP);
    guard_add(&segment->map);
    uint64_t magic = sl_load_acquire(&segment_header(segment)->magic);
    memcpy(&segment->identity, base, offsetof(struct sl_segment, size));
    segment->identity.magic = magic;
    segment->identity.run_key[SL_RUN_KEY_BYTES - 1] = segment->identity.place[SL_PLACE_BYTES - 1] = 0;
    int result = check_identity(&segment->identity, (uint64_t)status.st_size, problem);
    if (result == 0 && (!segment_refresh(segment) || segment_is_broken(segment)))
        result = refuse(problem, EBADMSG, "its table of extents does not hold together");
    if (result < 0)
        segment_close(segment);
    return result;
}

void segment_close(struct segment *segment)
{
    if (segment->map.base) {
        guard_remove(&segment->map);
        munmap(segment->map.base, segment->map.size);
    }
    free(segment->slots);
    free(segment->threads);
    free(segment->tasks);
    free(segment->strings);
    free(segment->string_ends);
    segment->map.base = NULL;
    segment->slots = NULL;
    segment->threads = segment->tasks = NULL;
    segment->strings = segment->string_ends = NULL;
    segment->slot_count = segment->thread_extents = segment->task_extents = segment->string_extents = 0;
}

void segment_unlink(const struct segment *segment)
{
    struct stat status;
    if (segment->path[0] && lstat(segment->path, &status) == 0 && status.st_dev == segment->device &&
        status.st_ino == segment->inode)
        unlink(segment->path);
}

// ---- geometry

static bool add_slot(struct segment *segment, const struct sl_extent *extent)
{
    if (extent->first != segment->slot_count || extent->size <= SL_SLOT_RECORDS_OFFSET || segment->slot_count >= SLOTS_LIMIT)
        return false;
    uint64_t records = (extent->size - SL_SLOT_RECORDS_OFFSET) / SL_RECORD_BYTES;
    if (records & (records - 1) || records < 2 || records > SL_RING_BYTES_MAX / SL_RECORD_BYTES)
        return false;
    segment->slots = alloc_resize(segment->slots, segment->slot_count + 1, sizeof *segment->slots);
    segment->slots[segment->slot_count++] = (struct segment_slot){extent->offset, (uint32_t)records};
    return true;
}

static bool add_rows(struct segment_rows **rows, uint32_t *count, const struct sl_extent *extent, size_t row_bytes)
{
    if (extent->count > extent->size / row_bytes)
        return false;
    *rows = alloc_resize(*rows, *count + 1, sizeof **rows);
    (*rows)[(*count)++] = (struct segment_rows){extent->offset, extent->first, extent->count};
    return true;
}

static bool add_strings(struct segment *segment, const struct sl_extent *extent)
{
    uint32_t count = segment->string_extents + 1;
    segment->strings = alloc_resize(segment->strings, count, sizeof *segment->strings);
    segment->string_ends = alloc_resize(segment->string_ends, count, sizeof *segment->string_ends);
    segment->strings[count - 1] = extent->offset;
    segment->string_ends[count - 1] = extent->offset + extent->size;
    if (count == 1)
        segment->string_next = extent->offset;
    segment->string_extents = count;
    return true;
}

static bool add_extent(struct segment *segment, const struct sl_extent *extent, uint64_t size)
{
    if (extent->offset < segment->end || extent->offset % SL_EXTENT_ALIGN || extent->size == 0 || extent->size > size ||
        extent->offset > size - extent->size)
        return false;
    segment->end = extent->offset + extent->size;
    switch (extent->kind) {
    case SL_EXTENT_TABLE:
        if (extent->size < SL_TABLE_NEXT * sizeof(struct sl_extent))
            return false;
        segment->table = extent->offset;
        segment->table_used = 0;
        segment->table_room = SL_TABLE_NEXT;
        return true;
    case SL_EXTENT_SLOT:
        return add_slot(segment, extent);
    case SL_EXTENT_THREADS:
        return add_rows(&segment->threads, &segment->thread_extents, extent, sizeof(struct sl_thread_row));
    case SL_EXTENT_TASKS:
        return add_rows(&segment->tasks, &segment->task_extents, extent, sizeof(struct sl_task_row));
    case SL_EXTENT_STRINGS:
        return add_strings(segment, extent);
    default:
        return true;  // names, stacks: reached by offset; kinds of later versions: skipped
    }
}

bool segment_refresh(struct segment *segment)
{
    const struct sl_segment *header = segment_header(segment);
    uint32_t published = sl_load_acquire(&header->extents);  // pairs with the client's release in publish()
    if (published == segment->extents)
        return true;
    uint64_t size = sl_load_relaxed(&header->size);
    if (published < segment->extents || published > EXTENTS_LIMIT || size > SL_SEGMENT_LIMIT)
        return false;
    while (segment->extents < published) {
        if (segment->table_used >= segment->table_room)
            return false;
        struct sl_extent extent;
        memcpy(&extent, segment->map.base + segment->table + segment->table_used * sizeof extent, sizeof extent);
        segment->table_used++;
        if (!add_extent(segment, &extent, size))
            return false;
        segment->extents++;
    }
    return !segment_is_broken(segment);
}

const void *segment_at(const struct segment *segment, uint64_t offset, uint64_t length)
{
    if (offset < SL_HEADER_BYTES || length > segment->end || offset > segment->end - length)
        return NULL;
    return segment->map.base + offset;
}

// ---- strings

// Past a header of zero lies nothing more once a later extent exists.
static bool next_extent(struct segment *segment)
{
    if (segment->string_extent + 1 >= segment->string_extents)
        return false;
    segment->string_next = segment->strings[++segment->string_extent];
    return true;
}

void segment_rewind_strings(struct segment *segment)
{
    segment->string_extent = 0;
    segment->string_next = segment->string_extents ? segment->strings[0] : 0;
}

int segment_next_string(struct segment *segment, struct segment_string *string, struct buffer *text)
{
    while (segment->string_extent < segment->string_extents) {
        uint64_t end = segment->string_ends[segment->string_extent], at = segment->string_next;
        if (end - at < sizeof(struct sl_string)) {
            if (!next_extent(segment))
                return 0;
            continue;
        }
        const struct sl_string *shared = (const struct sl_string *)(const void *)(segment->map.base + at);
        uint32_t header = sl_load_acquire(&shared->header);  // pairs with the release that marks it ready
        uint64_t length = header & SL_STRING_LENGTH;
        if (header == 0) {
            if (!next_extent(segment))
                return 0;
            continue;
        }
        if (length < sizeof *shared || length % 8 || length > end - at)
            return -1;
        if ((header & SL_STRING_STATE) != SL_STRING_READY) {
            // Being written, or its writer was killed: a later record, or the end of the process, tells which. The client
            // writes strings one after another, so what follows a reserved one can only come after its writer died.
            const struct sl_string *after = (const struct sl_string *)(const void *)(segment->map.base + at + length);
            bool is_last = end - at - length < sizeof *shared || sl_load_acquire(&after->header) == 0;
            if (is_last && segment->string_extent + 1 == segment->string_extents)
                return 0;
            segment->string_next = at + length;
            continue;
        }
        struct sl_string copy = *shared;
        uint64_t room = length - sizeof copy;
        if (copy.name_length > room || copy.file_length > room - copy.name_length)
            return -1;
        buffer_clear(text);
        buffer_append(text, sl_string_text(shared), copy.name_length + copy.file_length);
        *string = (struct segment_string){.type = copy.type, .id = copy.id, .line = copy.line, .name_length = copy.name_length,
                                          .file_length = copy.file_length, .name = text->data ? text->data : "",
                                          .file = text->data ? text->data + copy.name_length : ""};
        segment->string_next = at + length;
        return 1;
    }
    return 0;
}

// ---- rows

bool segment_name(const struct segment *segment, const struct sl_name *name, struct buffer *text)
{
    uint32_t left = name->length;
    uint64_t block = name->blocks;
    buffer_clear(text);
    if (left > SL_NAME_LENGTH_LIMIT || (!block && left > SL_NAME_INLINE))
        return false;
    if (!block)
        buffer_append(text, name->text, left);
    while (block && left) {
        const struct sl_name_block *at = segment_at(segment, block, sizeof *at);
        if (!at || block % sizeof(uint64_t))
            return false;
        uint32_t part = left < SL_NAME_BLOCK_TEXT ? left : SL_NAME_BLOCK_TEXT;
        struct sl_name_block copy;
        sl_copy_shared(&copy, at, sizeof copy);
        buffer_append(text, copy.text, part);
        left -= part;
        block = copy.next;
    }
    buffer_append(text, "", 1);
    text->length--;
    return left == 0 || name->blocks == 0;
}

bool segment_thread_row(const struct segment *segment, const struct sl_thread_row *row, struct sl_thread_row *copy, struct buffer *name)
{
    for (int i = 0; i < READ_TRIES; i++) {
        uint32_t before = sl_load_acquire(&row->seq);
        sl_copy_shared(copy, row, sizeof *copy);
        bool whole = segment_name(segment, &copy->name, name);
        sl_fence_acquire();
        if (!(before & 1) && sl_load_relaxed(&row->seq) == before && whole)
            return true;
    }
    return false;
}

bool segment_task_row(const struct segment *segment, const struct sl_task_row *row, struct sl_task_row *copy, struct buffer *name,
                      struct buffer *coro_name)
{
    for (int i = 0; i < READ_TRIES; i++) {
        uint32_t before = sl_load_acquire(&row->seq), lane_before = sl_load_acquire(&row->lane.seq);
        sl_copy_shared(copy, row, offsetof(struct sl_task_row, stack));
        bool whole = segment_name(segment, &copy->name, name) && segment_name(segment, &copy->coro_name, coro_name);
        sl_fence_acquire();
        if (!(before & 1) && !(lane_before & 1) && sl_load_relaxed(&row->seq) == before &&
            sl_load_relaxed(&row->lane.seq) == lane_before && whole)
            return true;
    }
    return false;
}
