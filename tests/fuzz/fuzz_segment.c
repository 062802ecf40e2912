// A segment of hostile bytes, read as the daemon reads it. The input is a list of changes to a whole segment, up to a length of zero
// made before it is opened, the others under the reader's hands. A change is
//   a byte: which of the places below (4 bits), the unit of the offset (2 bits: 1, 4, 8, 32), cut the file there (2 bits, both set)
//   the offset from the place, the length, the bytes
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buffer.h"
#include "core/drain.h"
#include "core/lanes.h"
#include "core/model.h"
#include "core/segment.h"
#include "tests/made_segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BATCH = 64, ROUNDS = 3 };

static struct made made;
static uint64_t places[16];  // where something decides what is read
static char whole[1 << 16];
static uint64_t whole_size;

static void put_string(char *at, uint32_t id, const char *name)
{
    struct sl_string string = {.id = id, .type = SL_STRING_REGION, .name_length = (uint32_t)strlen(name)};
    uint32_t length = (uint32_t)(sizeof string + strlen(name) + 7) & ~7u;
    string.header = SL_STRING_READY | length;
    memcpy(at, &string, sizeof string);
    memcpy(at + sizeof string, name, strlen(name));
}

// A segment with something of everything in it, in few bytes.
static void make_whole(void)
{
    made = made_begin();
    struct sl_ring *ring = made_slot(&made, 0, 128);
    for (uint64_t i = 0; i < 70; i++)
        made_publish(ring, made_call(1000 + i, 1 + i % 7, 1 + (uint32_t)i % 3));
    sl_ring_records(ring)[3] = (struct sl_record){{1, sl_record_word1(SL_THREAD, 0), 0, 0}};
    sl_ring_records(ring)[9] = (struct sl_record){{1, sl_record_word1(SL_SKIP, 1), 0, 0}};
    ring->produced = 70;
    sl_ring_lane(ring)->depth = 2;
    sl_lane_stack(sl_ring_lane(ring))[0] = (struct sl_entry){.start = 900, .region = 1};
    sl_lane_stack(sl_ring_lane(ring))[1] = (struct sl_entry){.start = 950, .region = 2};
    struct sl_thread_row *thread = made_at(&made, made_extent(&made, SL_EXTENT_THREADS, 0, 21, 4096));
    thread[0] = (struct sl_thread_row){.state = SL_ROW_LIVE, .version = 1, .name = {.length = 4, .text = "main"}};
    uint64_t names = made_extent(&made, SL_EXTENT_NAMES, 0, 16, 4096);
    thread[1] = (struct sl_thread_row){.state = SL_ROW_DONE, .index = 1, .version = 1, .name = {.length = 300, .blocks = names}};
    ((struct sl_name_block *)made_at(&made, names))->next = names + SL_NAME_BLOCK;
    struct sl_task_row *task = made_at(&made, made_extent(&made, SL_EXTENT_TASKS, 0, 5, 4096));
    task[0] = (struct sl_task_row){.state = SL_ROW_LIVE, .version = 1, .name = {.length = 1, .text = "t"}};
    task[0].lane.entries = SL_TASK_ENTRIES;
    task[0].lane.overflow = made_extent(&made, SL_EXTENT_STACKS, 0, 1, SL_OVERFLOW_BYTES);
    task[0].lane.depth = 20;
    char *strings = made_at(&made, made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 4096));
    put_string(strings, 1, "one");
    put_string(strings + 32, 2, "two");
    const void *found[] = {made.base, &made_header(&made)->size, made_header(&made)->table, &made_header(&made)->table[4], ring,
                           sl_ring_lane(ring), sl_lane_stack(sl_ring_lane(ring)), sl_ring_records(ring), sl_ring_records(ring) + 64,
                           thread, &thread[1], made.base + names, task, &task[0].lane, made.base + task[0].lane.overflow, strings};
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        places[i] = (uint64_t)((const char *)found[i] - made.base);
    if (made.size > sizeof whole)
        abort();
    whole_size = made.size;
    memcpy(whole, made.base, whole_size);
}

static uint64_t end;  // of the file, as it is now

static void cut(uint64_t size)
{
    end = size;
    if (ftruncate(made.fd, (off_t)size) < 0)
        abort();
}

// Applies changes until the input, or a length of zero, ends them. Returns what is left.
static size_t change(const uint8_t *data, size_t size)
{
    static const uint8_t units[] = {1, 4, 8, 32};
    while (size >= 3) {
        uint64_t offset = places[data[0] & 15] + (uint64_t)data[1] * units[data[0] >> 4 & 3];
        bool cuts = data[0] >> 6 == 3;
        size_t length = data[2];
        data += 3, size -= 3;
        if (!length)
            break;
        length = length < size ? length : size;
        if (cuts && offset < end)
            cut(offset);
        else if (offset + length <= end)
            memcpy(made.base + offset, data, length);
        data += length, size -= length;
    }
    return size;
}

static void read_rows(const struct segment *segment)
{
    static struct buffer name, other;
    static struct lane_view view;
    for (uint32_t i = 0; i < segment->thread_extents && i < 8; i++) {
        struct sl_thread_row *row = (void *)(segment->map.base + segment->threads[i].offset), copy;
        for (uint32_t j = 0; j < segment->threads[i].count && j < 8; j++)
            segment_thread_row(segment, &row[j], &copy, &name);
    }
    for (uint32_t i = 0; i < segment->task_extents && i < 8; i++) {
        struct sl_task_row *row = (void *)(segment->map.base + segment->tasks[i].offset), copy;
        for (uint32_t j = 0; j < segment->tasks[i].count && j < 8; j++) {
            segment_task_row(segment, &row[j], &copy, &name, &other);
            lanes_read(segment, &row[j].lane, SL_TASK_ENTRIES, &view);
        }
    }
    for (uint32_t slot = 0; slot < segment->slot_count && slot < 8; slot++)
        lanes_read(segment, sl_ring_lane(segment_ring(segment, slot)), SL_THREAD_ENTRIES, &view);
}

static void read_round(struct segment *segment, struct model *model, struct model_process *process)
{
    static struct buffer text;
    struct segment_string string;
    while (segment_next_string(segment, &string, &text) > 0)
        model_string(model, process, string.type, string.id & 0xfff, string.name, string.name_length, string.file,
                     string.file_length, string.line);
    for (uint32_t slot = 0; slot < segment->slot_count && slot < 8; slot++) {
        struct sl_record batch[BATCH];
        uint64_t next = model_slot(process, slot)->next;
        int64_t count = drain_copy(segment, slot, next, batch, BATCH);
        if (count <= 0)
            continue;
        for (int64_t i = 0; i < count; i++)  // owners with large numbers cost addresses only, but asking for those is slow
            batch[i].word[3] &= UINT64_C(0x3ffffffffff);
        model_records(model, process, slot, next, batch, (size_t)count, -1, NULL, NULL);
        drain_release(segment, slot, next + (uint64_t)count);
    }
    read_rows(segment);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!whole_size) {
        make_whole();
        guard_install();  // after libFuzzer's own handler
    }
    cut(whole_size);
    memcpy(made.base, whole, whole_size);
    size_t left = change(data, size);
    struct segment segment;
    char problem[256];
    if (segment_open(&segment, made.fd, "", problem) == 0) {
        struct model model;
        model_init(&model, SL_CLOCK_TSC, 16, 4);
        model.octaves_kept = 16;
        struct process_facts facts = {.pid = segment.identity.pid};
        struct model_process *process = model_add_process(&model, &facts);
        for (int round = 0; round < ROUNDS; round++) {
            read_round(&segment, &model, process);
            left = change(data + size - left, left);
            if (!segment_refresh(&segment))
                break;
        }
        segment_close(&segment);
        model_finish(&model);
    }
    return 0;
}
