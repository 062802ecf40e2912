// Segments as a hostile client may make them: whatever the bytes say, the daemon refuses the segment, marks it broken or reads it; it
// neither faults nor loops.
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "core/drain.h"
#include "core/lanes.h"
#include "core/segment.h"
#include "tests/made_segment.h"

static struct made made;
static struct segment segment;
static char problem[256];
static struct buffer text;

static void begin(void)
{
    cr_assert_eq(guard_install(), 0);
    made = made_begin();
    cr_assert_neq(made.base, MAP_FAILED);
}

static void end(void)
{
    segment_close(&segment);
    buffer_finish(&text);
    made_end(&made);
}

TestSuite(segment, .init = begin, .fini = end, .timeout = 300);

static int open_it(void)
{
    problem[0] = 0;
    return segment_open(&segment, made.fd, "", problem);
}

static void expect_refused(int error, const char *words)
{
    int result = open_it();
    cr_assert_eq(result, -error, "%d (%s), not %d", result, problem, -error);
    cr_assert_not_null(strstr(problem, words), "'%s' is not in '%s'", words, problem);
    cr_assert_null(segment.map.base, "nothing stays mapped");
}

static void expect_broken_table(void)
{
    expect_refused(EBADMSG, "extents");
}

Test(segment, a_whole_one_is_taken_in)
{
    made_slot(&made, 0, 128);
    uint64_t threads = made_extent(&made, SL_EXTENT_THREADS, 0, 21, 4096);
    uint64_t tasks = made_extent(&made, SL_EXTENT_TASKS, 0, 85, 65536);
    uint64_t strings = made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 8192);
    made_extent(&made, SL_EXTENT_NAMES, 0, 16, 4096);
    made_extent(&made, SL_EXTENT_STACKS, 0, 1, SL_OVERFLOW_BYTES);
    made_slot(&made, 1, 512);
    cr_assert_eq(open_it(), 0, "%s", problem);
    cr_assert_eq(segment.slot_count, 2);
    cr_assert_eq(segment.slots[0].records, 128);
    cr_assert_eq(segment.slots[1].records, 512);
    cr_assert_eq(segment.thread_extents, 1);
    cr_assert_eq(segment.threads[0].offset, threads);
    cr_assert_eq(segment.threads[0].count, 21);
    cr_assert_eq(segment.tasks[0].offset, tasks);
    cr_assert_eq(segment.strings[0], strings);
    cr_assert_eq(segment.extents, 7);
    cr_assert_eq(segment.identity.pid, (uint32_t)getpid());
    cr_assert_not(segment_is_broken(&segment));
}

Test(segment, each_field_of_the_identity_is_checked)
{
    static const struct {
        size_t offset;
        uint32_t value;
        int error;
        const char *words;
    } wrongs[] = {
        {offsetof(struct sl_segment, magic), 0, EAGAIN, "magic"},
        {offsetof(struct sl_segment, magic) + 4, 0x31656e62, EAGAIN, "magic"},
        {offsetof(struct sl_segment, features), 1, EPROTONOSUPPORT, "features"},
        {offsetof(struct sl_segment, features), 0x80000000, EPROTONOSUPPORT, "features"},
        {offsetof(struct sl_segment, header_bytes), 4095, EBADMSG, "sizes"},
        {offsetof(struct sl_segment, header_bytes), 0, EBADMSG, "sizes"},
        {offsetof(struct sl_segment, record_bytes), 31, EBADMSG, "sizes"},
        {offsetof(struct sl_segment, record_bytes), 64, EBADMSG, "sizes"},
        {offsetof(struct sl_segment, thread_row_bytes), 0, EBADMSG, "sizes"},
        {offsetof(struct sl_segment, thread_row_bytes), 193, EBADMSG, "sizes"},
        {offsetof(struct sl_segment, task_row_bytes), 0xffffffff, EBADMSG, "sizes"},
        {offsetof(struct sl_segment, clock), 3, EBADMSG, "clock"},
        {offsetof(struct sl_segment, clock), 0xffffffff, EBADMSG, "clock"},
    };
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        uint32_t *field = made_at(&made, wrongs[i].offset), before = *field;
        *field = wrongs[i].value;
        expect_refused(wrongs[i].error, wrongs[i].words);
        *field = before;
    }
    cr_assert_eq(open_it(), 0, "and as it was before, it is taken: %s", problem);
}

Test(segment, another_abi_version_is_refused_with_both_numbers_named)
{
    made_header(&made)->abi = 4711;
    made_header(&made)->record_bytes = 48;  // another version may have other sizes: the version is what is said
    int result = open_it();
    cr_assert_eq(result, -EPROTONOSUPPORT);
    char own[16];
    snprintf(own, sizeof own, "version %d", SL_ABI_VERSION);
    cr_assert_not_null(strstr(problem, "version 4711"), "%s", problem);
    cr_assert_not_null(strstr(problem, own), "%s", problem);
}

Test(segment, the_run_key_and_the_place_always_end)
{
    memset(made_header(&made)->run_key, 'k', SL_RUN_KEY_BYTES);
    memset(made_header(&made)->place, 'p', SL_PLACE_BYTES);
    cr_assert_eq(open_it(), 0, "%s", problem);
    cr_assert_eq(strlen(segment.identity.run_key), SL_RUN_KEY_BYTES - 1);
    cr_assert_eq(strlen(segment.identity.place), SL_PLACE_BYTES - 1);
}

Test(segment, a_file_that_is_too_short_is_refused)
{
    cr_assert_eq(ftruncate(made.fd, SL_HEADER_BYTES - 1), 0);
    expect_refused(EBADMSG, "too short");
    cr_assert_eq(ftruncate(made.fd, 0), 0);
    expect_refused(EBADMSG, "too short");
}

Test(segment, what_is_not_a_file_is_refused)
{
    static const char *const others[] = {"/dev/zero", "/tmp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int fd = open(others[i], O_RDONLY | O_CLOEXEC);
        cr_assert_geq(fd, 0);
        cr_assert_eq(segment_open(&segment, fd, "", problem), -EBADMSG);
        close(fd);
    }
    cr_assert_eq(segment_open(&segment, -1, "", problem), -EBADF);
}

Test(segment, extents_lie_one_behind_the_other_in_whole_pages_and_in_the_file)
{
    uint64_t first = made_extent(&made, SL_EXTENT_NAMES, 0, 16, 8192);
    cr_assert_eq(made_resize(&made, 65536), 0);
    const struct sl_extent wrongs[] = {
        {.kind = SL_EXTENT_NAMES, .offset = first, .size = 4096},                        // the same place again
        {.kind = SL_EXTENT_NAMES, .offset = first + 4096, .size = 4096},                 // overlaps
        {.kind = SL_EXTENT_NAMES, .offset = 0, .size = 4096},                            // the header
        {.kind = SL_EXTENT_NAMES, .offset = first + 8192 + 8, .size = 4096},             // unaligned
        {.kind = SL_EXTENT_NAMES, .offset = first + 8192, .size = 0},                    // empty
        {.kind = SL_EXTENT_NAMES, .offset = first + 8192, .size = 65536},                // beyond the end
        {.kind = SL_EXTENT_NAMES, .offset = 65536, .size = 4096},                        // behind it
        {.kind = SL_EXTENT_NAMES, .offset = UINT64_C(0) - 4096, .size = 8192},           // around the end of numbers
        {.kind = SL_EXTENT_NAMES, .offset = first + 8192, .size = UINT64_C(0) - 4096},
        {.kind = SL_EXTENT_NAMES, .offset = SL_SEGMENT_LIMIT, .size = 4096},
        {.kind = 4711, .offset = first, .size = 4096},                                   // kinds of later versions keep the rules
    };
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        made_header(&made)->extents = made.table_used = 1;
        made_entry(&made, wrongs[i]);
        cr_expect_eq(open_it(), -EBADMSG, "extent %zu", i);
    }
    made_header(&made)->extents = made.table_used = 1;
    made_entry(&made, (struct sl_extent){.kind = 4711, .offset = first + 8192, .size = 4096});
    cr_assert_eq(open_it(), 0, "a kind of a later version is passed over: %s", problem);
}

Test(segment, a_size_beyond_all_bounds_is_refused)
{
    made_extent(&made, SL_EXTENT_NAMES, 0, 16, 4096);
    made_header(&made)->size = SL_SEGMENT_LIMIT + 1;
    expect_broken_table();
}

Test(segment, a_table_that_is_full_and_not_chained_is_refused)
{
    for (uint32_t i = 0; i < SL_TABLE_FIRST; i++)
        made_extent(&made, SL_EXTENT_NAMES, 0, 16, 4096);
    cr_assert_eq(open_it(), 0, "%s", problem);
    segment_close(&segment);
    made_header(&made)->extents++;
    expect_broken_table();
}

Test(segment, tables_are_chained)
{
    for (uint32_t i = 0; i + 1 < SL_TABLE_FIRST; i++)
        made_extent(&made, SL_EXTENT_NAMES, 0, 16, 4096);
    made_table(&made);
    for (uint32_t i = 0; i + 1 < SL_TABLE_NEXT; i++)
        made_extent(&made, SL_EXTENT_NAMES, 0, 16, 4096);
    made_table(&made);
    made_slot(&made, 0, 128);
    cr_assert_eq(open_it(), 0, "%s", problem);
    cr_assert_eq(segment.slot_count, 1);
    cr_assert_eq(segment.extents, SL_TABLE_FIRST + SL_TABLE_NEXT + 1);
}

Test(segment, a_chain_of_tables_ends)
{
    uint64_t offset = made_table(&made);
    made_entry(&made, (struct sl_extent){.kind = SL_EXTENT_TABLE, .offset = offset, .size = 4096});  // itself
    expect_broken_table();

    made_end(&made);
    made = made_begin();
    uint64_t before = made.size;
    for (int i = 0; i < 1000; i++)  // tables that hold nothing but the next table
        made_table(&made);
    cr_assert_eq(open_it(), 0, "%s", problem);
    cr_assert_gt(segment.end, before);
    segment_close(&segment);
    made_header(&made)->extents = UINT32_MAX;
    expect_broken_table();
    made_header(&made)->extents = 1000 + SL_TABLE_NEXT + 1;  // beyond the last table
    expect_broken_table();
}

Test(segment, a_table_that_is_too_small_for_its_entries_is_refused)
{
    cr_assert_eq(made_resize(&made, made.size + 4096), 0);
    made_entry(&made, (struct sl_extent){.kind = SL_EXTENT_TABLE, .offset = SL_HEADER_BYTES, .size = 4064});
    expect_broken_table();
}

Test(segment, slots_are_numbered_one_after_another)
{
    made_slot(&made, 1, 128);
    expect_broken_table();
    made.table[0].first = 0;
    made_slot(&made, 0, 128);
    expect_broken_table();
    made.table[1].first = 1;
    cr_assert_eq(open_it(), 0, "%s", problem);
}

Test(segment, the_ring_of_a_slot_holds_a_power_of_two_of_records)
{
    static const uint64_t wrongs[] = {4096, 3 * 4096, 4 * 4096, 6 * 4096, SL_SLOT_RECORDS_OFFSET + SL_RECORD_BYTES,
                                      SL_SLOT_RECORDS_OFFSET + 3 * SL_RECORD_BYTES};
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        made_header(&made)->extents = made.table_used = 0;
        cr_assert_eq(made_resize(&made, SL_HEADER_BYTES + wrongs[i]), 0);
        made_entry(&made, (struct sl_extent){.kind = SL_EXTENT_SLOT, .offset = SL_HEADER_BYTES, .size = wrongs[i]});
        int expected = wrongs[i] == 3 * 4096 ? 0 : -EBADMSG;  // two pages of records
        cr_expect_eq(open_it(), expected, "%lu bytes", (unsigned long)wrongs[i]);
        segment_close(&segment);
    }
    made_header(&made)->extents = made.table_used = 0;
    made_header(&made)->size = SL_SEGMENT_LIMIT;
    made_entry(&made, (struct sl_extent){.kind = SL_EXTENT_SLOT, .offset = SL_HEADER_BYTES,
                                         .size = SL_SLOT_RECORDS_OFFSET + 2 * (uint64_t)SL_RING_BYTES_MAX});
    expect_broken_table();
}

Test(segment, the_daemon_goes_by_the_extent_and_not_by_what_the_ring_says)
{
    struct sl_ring *ring = made_slot(&made, 0, 128);
    ring->records = 1u << 31;
    cr_assert_eq(open_it(), 0, "%s", problem);
    cr_assert_eq(segment.slots[0].records, 128);
}

Test(segment, rows_have_to_fit_their_extent)
{
    made_extent(&made, SL_EXTENT_THREADS, 0, 22, 4096);  // 21 fit
    expect_broken_table();
    made.table[0].count = 21;
    made_extent(&made, SL_EXTENT_TASKS, 0, 6, 4096);  // 5 fit
    expect_broken_table();
    made.table[1].count = UINT32_MAX;
    expect_broken_table();
    made.table[1].count = 5;
    cr_assert_eq(open_it(), 0, "%s", problem);
}

Test(segment, what_is_added_later_is_taken_in_by_a_refresh)
{
    cr_assert_eq(open_it(), 0, "%s", problem);
    cr_assert(segment_refresh(&segment));
    cr_assert_eq(segment.slot_count, 0);
    made_slot(&made, 0, 128);
    cr_assert(segment_refresh(&segment));
    cr_assert_eq(segment.slot_count, 1);
    made_header(&made)->extents = 0;
    cr_assert_not(segment_refresh(&segment), "extents never become fewer");
}

Test(segment, text_is_found_only_within_the_extents)
{
    uint64_t names = made_extent(&made, SL_EXTENT_NAMES, 0, 16, 4096);
    cr_assert_eq(made_resize(&made, made.size + 4096), 0);
    cr_assert_eq(open_it(), 0, "%s", problem);
    cr_assert_not_null(segment_at(&segment, names, 4096));
    cr_assert_null(segment_at(&segment, names, 4097));
    cr_assert_null(segment_at(&segment, names + 4096, 1), "in the file, but in no extent");
    cr_assert_null(segment_at(&segment, 0, 8), "the header");
    cr_assert_null(segment_at(&segment, UINT64_MAX, 8));
    cr_assert_null(segment_at(&segment, names, UINT64_MAX));
}

// ---- files that shrink or are not there

Test(segment, a_file_cut_short_breaks_the_segment_and_nothing_else)
{
    struct sl_ring *ring = made_slot(&made, 0, 1024);
    made_publish(ring, made_call(1, 1, 1));
    cr_assert_eq(open_it(), 0, "%s", problem);
    ring->head = 1024;
    cr_assert_eq(ftruncate(made.fd, SL_HEADER_BYTES + SL_SLOT_RECORDS_OFFSET), 0);
    static struct sl_record records[1024];
    memset(records, 0xff, sizeof records);
    cr_assert_eq(drain_copy(&segment, 0, 0, records, 1024), 1024, "eight pages are missing");
    cr_assert(segment_is_broken(&segment));
    for (int i = 0; i < 1024; i++)
        cr_assert_eq(sl_record_kind(&records[i]), SL_SKIP);
    cr_assert_eq(ftruncate(made.fd, 0), 0);
    made_header(&made);
    cr_assert_eq(drain_copy(&segment, 0, 0, records, 1024), 0, "the ring's own page is gone too");
    cr_assert_not(segment_refresh(&segment), "a broken segment is not read further");
}

Test(segment, a_size_that_the_file_does_not_have_breaks_the_segment)
{
    made_header(&made)->size = UINT64_C(1) << 30;
    made_entry(&made, (struct sl_extent){.kind = SL_EXTENT_TABLE, .offset = UINT64_C(512) << 20, .size = 4096});
    made_header(&made)->extents = 2;  // the second one would lie in a table that is not there
    cr_assert_eq(open_it(), -EBADMSG);
}

Test(segment, a_fault_elsewhere_is_not_taken_for_the_segments, .signal = SIGBUS)
{
    made_slot(&made, 0, 128);
    cr_assert_eq(open_it(), 0, "%s", problem);
    int fd = memfd_create("other", MFD_CLOEXEC);
    volatile char *place = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    (void)place[0];
}

// ---- names

static struct sl_name_block *block_at(uint64_t offset)
{
    return made_at(&made, offset);
}

static uint64_t open_with_names(void)
{
    uint64_t names = made_extent(&made, SL_EXTENT_NAMES, 0, 16, 4096);
    cr_assert_eq(open_it(), 0, "%s", problem);
    return names;
}

Test(segment, names_are_read_inline_and_from_blocks)
{
    uint64_t names = open_with_names();
    struct sl_name name = {.length = 5, .text = "hello"};
    cr_assert(segment_name(&segment, &name, &text));
    cr_assert_str_eq(text.data, "hello");
    name.length = 0;
    cr_assert(segment_name(&segment, &name, &text));
    cr_assert_eq(text.length, 0);

    memset(block_at(names)->text, 'a', SL_NAME_BLOCK_TEXT);
    block_at(names)->next = names + 512;
    memset(block_at(names + 512)->text, 'b', SL_NAME_BLOCK_TEXT);
    name = (struct sl_name){.length = SL_NAME_BLOCK_TEXT + 3, .blocks = names};
    cr_assert(segment_name(&segment, &name, &text));
    cr_assert_eq(text.length, SL_NAME_BLOCK_TEXT + 3);
    cr_assert_eq(text.data[SL_NAME_BLOCK_TEXT - 1], 'a');
    cr_assert_str_eq(text.data + SL_NAME_BLOCK_TEXT, "bbb");
}

Test(segment, a_chain_of_blocks_that_bites_its_tail_ends_with_the_length)
{
    uint64_t names = open_with_names();
    block_at(names)->next = names + 256;
    block_at(names + 256)->next = names;
    struct sl_name name = {.length = SL_NAME_LENGTH_LIMIT, .blocks = names};
    cr_assert(segment_name(&segment, &name, &text));
    cr_assert_eq(text.length, SL_NAME_LENGTH_LIMIT);
}

Test(segment, names_that_cannot_be_are_not_read)
{
    uint64_t names = open_with_names();
    const struct sl_name wrongs[] = {
        {.length = SL_NAME_INLINE + 1},                                     // no blocks
        {.length = SL_NAME_LENGTH_LIMIT + 1, .blocks = names},
        {.length = UINT32_MAX, .blocks = names},
        {.length = 300, .blocks = names},                                   // the chain ends too soon
        {.length = 100, .blocks = 8},                                       // in the header
        {.length = 100, .blocks = names + 4096 - 128},                      // over the edge
        {.length = 100, .blocks = names + 4},                               // unaligned
        {.length = 100, .blocks = UINT64_MAX - 7},
    };
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++)
        cr_expect_not(segment_name(&segment, &wrongs[i], &text), "name %zu", i);
}

// ---- rows

Test(segment, rows_that_are_being_written_are_said_to_move)
{
    uint64_t threads = made_extent(&made, SL_EXTENT_THREADS, 0, 21, 4096), tasks = made_extent(&made, SL_EXTENT_TASKS, 0, 5, 4096);
    cr_assert_eq(open_it(), 0, "%s", problem);
    struct sl_thread_row *thread = made_at(&made, threads), thread_copy;
    struct sl_task_row *task = made_at(&made, tasks), task_copy;
    struct buffer other = {0};
    *thread = (struct sl_thread_row){.state = SL_ROW_LIVE, .index = 7, .seq = 2, .name = {.length = 4, .text = "name"}};
    *task = (struct sl_task_row){.state = SL_ROW_LIVE, .index = 9, .seq = 4, .name = {.length = 3, .text = "one"},
                                 .coro_name = {.length = 3, .text = "two"}};
    cr_assert(segment_thread_row(&segment, thread, &thread_copy, &text));
    cr_assert_eq(thread_copy.index, 7);
    cr_assert_str_eq(text.data, "name");
    cr_assert(segment_task_row(&segment, task, &task_copy, &text, &other));
    cr_assert_eq(task_copy.index, 9);
    cr_assert_str_eq(other.data, "two");
    thread->seq = task->seq = 5;
    cr_assert_not(segment_thread_row(&segment, thread, &thread_copy, &text));
    cr_assert_not(segment_task_row(&segment, task, &task_copy, &text, &other));
    task->seq = 6;
    task->lane.seq = 1;
    cr_assert_not(segment_task_row(&segment, task, &task_copy, &text, &other));
    task->lane.seq = 2;
    task->name.length = SL_NAME_INLINE + 1;
    cr_assert_not(segment_task_row(&segment, task, &task_copy, &text, &other));
    buffer_finish(&other);
}

// ---- lane blocks

static struct lane_view view;

static struct sl_lane *open_with_lane(void)
{
    struct sl_ring *ring = made_slot(&made, 0, 128);
    cr_assert_eq(open_it(), 0, "%s", problem);
    return sl_ring_lane(ring);
}

static void read_lane(void)
{
    lanes_read(&segment, sl_ring_lane(segment_ring(&segment, 0)), SL_THREAD_ENTRIES, &view);
}

Test(segment, a_lane_shows_what_is_open_and_not_what_is_being_entered_or_left)
{
    struct sl_lane *lane = open_with_lane();
    sl_lane_stack(lane)[0] = (struct sl_entry){.start = 100, .region = 1 | 3 * SL_ENTRY_MARK_ONE};
    sl_lane_stack(lane)[1] = (struct sl_entry){.start = 0, .region = 2};
    sl_lane_stack(lane)[2] = (struct sl_entry){.start = 300, .region = 3};
    sl_lane_stack(lane)[3] = (struct sl_entry){.start = 400, .region = 4};
    lane->depth = 3;
    lane->since = 300;
    read_lane();
    cr_assert_not(view.moving);
    cr_assert_eq(view.depth, 2);
    cr_assert_eq(view.calls[0].region, 1, "marks are not part of the region");
    cr_assert_eq(view.calls[1].region, 3);
    cr_assert_eq(view.since, 300);
    cr_assert_eq(view.task, SL_TASK_NONE);
}

// A kill may come while an entry is removed from the middle and those above it move down.
Test(segment, a_call_whose_entry_is_there_twice_is_open_once)
{
    struct sl_lane *lane = open_with_lane();
    const struct sl_entry outer = {.start = 100, .region = 1, .frame = 900}, inner = {.start = 300, .region = 3, .frame = 800};
    sl_lane_stack(lane)[0] = outer;
    sl_lane_stack(lane)[1] = sl_lane_stack(lane)[2] = inner;
    sl_lane_stack(lane)[3] = (struct sl_entry){.start = 300, .region = 4, .frame = 800};
    lane->depth = 4;
    read_lane();
    cr_assert_eq(view.depth, 3);
    cr_assert_eq(view.calls[1].region, 3);
    cr_assert_eq(view.calls[2].region, 4, "another call of the same start");
}

Test(segment, a_lane_of_any_depth_is_read_within_its_room)
{
    struct sl_lane *lane = open_with_lane();
    for (int i = 0; i < SL_THREAD_ENTRIES; i++)
        sl_lane_stack(lane)[i].start = 1 + (uint64_t)i;
    static const uint32_t depths[] = {SL_THREAD_ENTRIES, SL_THREAD_ENTRIES + 1, 0x7fffffff, 0x80000000, UINT32_MAX};
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        lane->depth = depths[i];
        read_lane();
        cr_assert_eq(view.depth, SL_THREAD_ENTRIES);
        cr_assert_eq(view.too_deep, depths[i] - SL_THREAD_ENTRIES);
    }
    lane->entries = UINT32_MAX;  // what the block says of its own room does not count
    read_lane();
    cr_assert_eq(view.depth, SL_THREAD_ENTRIES);
}

Test(segment, an_overflow_block_anywhere_does_no_harm)
{
    struct sl_lane *lane = open_with_lane();
    for (int i = 0; i < SL_THREAD_ENTRIES; i++)
        sl_lane_stack(lane)[i].start = 1 + (uint64_t)i;
    lane->depth = LANES_DEPTH_LIMIT + 7;
    const uint64_t wrongs[] = {8, SL_HEADER_BYTES + 1, made.size - 16, UINT64_MAX - 7, UINT64_C(0) - 24, SL_SEGMENT_LIMIT};
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        lane->overflow = wrongs[i];
        read_lane();
        cr_expect_eq(view.depth, SL_THREAD_ENTRIES, "overflow block %zu", i);
    }
    uint64_t block = made_extent(&made, SL_EXTENT_STACKS, 0, 1, SL_OVERFLOW_BYTES);
    struct sl_entry *entries = made_at(&made, block);
    for (int i = 0; i < SL_OVERFLOW_ENTRIES; i++)
        entries[i] = (struct sl_entry){.start = 2 + (uint64_t)i, .region = 5};
    cr_assert(segment_refresh(&segment));
    lane->overflow = block;
    read_lane();
    cr_assert_eq(view.depth, LANES_DEPTH_LIMIT);
    cr_assert_eq(view.too_deep, 7);
    cr_assert_eq(view.calls[LANES_DEPTH_LIMIT - 1].start, 1 + SL_OVERFLOW_ENTRIES);
}

// ---- the name of the file

Test(segment, the_name_is_removed_only_while_it_names_this_file)
{
    char path[] = "/tmp/sl-test-XXXXXX", other[] = "/tmp/sl-test-XXXXXX";
    int fd = mkstemp(path), fd_of_other = mkstemp(other);
    cr_assert(fd >= 0 && fd_of_other >= 0);
    cr_assert_eq(write(fd, made.base, SL_HEADER_BYTES), SL_HEADER_BYTES);
    cr_assert_eq(segment_open(&segment, fd, path, problem), 0, "%s", problem);
    cr_assert_eq(rename(other, path), 0);
    segment_unlink(&segment);
    cr_assert_eq(access(path, F_OK), 0, "another file has the name now");
    segment_close(&segment);
    cr_assert_eq(write(fd_of_other, made.base, SL_HEADER_BYTES), SL_HEADER_BYTES);
    cr_assert_eq(segment_open(&segment, fd_of_other, path, problem), 0, "%s", problem);
    segment_unlink(&segment);
    cr_assert_neq(access(path, F_OK), 0);
    close(fd);
    close(fd_of_other);
}
