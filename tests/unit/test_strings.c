// The string area: records that are ready, records whose writer was killed before they were, and extents that follow each other.
#include "client/scoped_lane.h"
#include "tests/made_segment.h"
#include "tests/recorded.h"
#include "tests/stepper.h"

TestSuite(strings, .timeout = 300);

// ---- built by hand

static struct made made;
static struct segment segment;
static struct segment_string string;
static struct buffer text;

static void begin_made(void)
{
    cr_assert_eq(guard_install(), 0);
    made = made_begin();
}

static void end_made(void)
{
    segment_close(&segment);
    buffer_finish(&text);
    made_end(&made);
}

static void open_made(void)
{
    char problem[256] = "";
    cr_assert_eq(segment_open(&segment, made.fd, "", problem), 0, "%s", problem);
}

static int next(void)
{
    cr_assert(segment_refresh(&segment));
    return segment_next_string(&segment, &string, &text);
}

static void expect_region(uint32_t id, const char *name, const char *file, int line)
{
    cr_assert_eq(next(), 1, "region %u is not there", id);
    cr_assert_eq(string.type, SL_STRING_REGION);
    cr_assert_eq(string.id, id);
    cr_assert_eq(string.line, line);
    cr_assert_eq(string.name_length, strlen(name));
    cr_assert_eq(memcmp(string.name, name, strlen(name)), 0);
    cr_assert_eq(string.file_length, strlen(file));
    cr_assert_eq(memcmp(string.file, file, strlen(file)), 0);
}

// Writes a record at `at` and returns where the next one goes.
static uint64_t put(uint64_t at, uint32_t state, uint32_t id, const char *name, const char *file)
{
    struct sl_string *record = made_at(&made, at);
    uint32_t length = (uint32_t)(sizeof *record + strlen(name) + strlen(file) + 7) & ~7u;
    *record = (struct sl_string){.id = id, .type = SL_STRING_REGION, .line = 7, .name_length = (uint32_t)strlen(name),
                                 .file_length = (uint32_t)strlen(file)};
    memcpy(record + 1, name, strlen(name));
    memcpy((char *)(record + 1) + strlen(name), file, strlen(file));
    sl_store_release(&record->header, state | length);
    return at + length;
}

Test(strings, they_are_read_in_order_each_once, .init = begin_made, .fini = end_made)
{
    open_made();
    cr_assert_eq(next(), 0, "no extent yet");
    uint64_t at = made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 8192);
    cr_assert_eq(next(), 0, "no string yet");
    at = put(at, SL_STRING_READY, 1, "one", "");
    at = put(at, SL_STRING_READY, 2, "", "");
    expect_region(1, "one", "", 7);
    expect_region(2, "", "", 7);
    cr_assert_eq(next(), 0);
    put(at, SL_STRING_READY, 3, "three", "file.c");
    expect_region(3, "three", "file.c", 7);
    cr_assert_eq(next(), 0);
    segment_rewind_strings(&segment);
    expect_region(1, "one", "", 7);
}

Test(strings, a_reserved_one_is_waited_for_while_it_is_the_last, .init = begin_made, .fini = end_made)
{
    open_made();
    uint64_t at = made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 8192);
    uint64_t second = put(at, SL_STRING_READY, 1, "one", "");
    put(second, SL_STRING_RESERVED, 2, "two", "");
    expect_region(1, "one", "", 7);
    cr_assert_eq(next(), 0);
    cr_assert_eq(next(), 0);
    put(second, SL_STRING_READY, 2, "two", "");
    expect_region(2, "two", "", 7);
}

Test(strings, a_reserved_one_with_another_behind_it_is_passed_over, .init = begin_made, .fini = end_made)
{
    open_made();
    uint64_t at = made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 4096);
    at = put(at, SL_STRING_RESERVED, 1, "its writer is dead", "");
    at = put(at, SL_STRING_RESERVED, 2, "and so is this one's", "");
    at = put(at, SL_STRING_READY, 3, "three", "");
    put(at, SL_STRING_RESERVED, 4, "four", "");
    expect_region(3, "three", "", 7);
    cr_assert_eq(next(), 0, "the fourth may still come");
    put(made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 4096), SL_STRING_READY, 5, "five", "");
    expect_region(5, "five", "", 7);
    cr_assert_eq(next(), 0);
}

Test(strings, extents_follow_each_other_full_or_not, .init = begin_made, .fini = end_made)
{
    static char name[4096];
    open_made();
    uint64_t first = made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 4096);
    memset(name, 'n', 4096 - sizeof(struct sl_string));
    cr_assert_eq(put(first, SL_STRING_READY, 1, name, ""), first + 4096, "to the last byte");
    uint64_t second = made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 4096);
    name[4096 - sizeof(struct sl_string) - 16] = 0;
    cr_assert_eq(put(second, SL_STRING_READY, 2, name, ""), second + 4096 - 16, "less than a header is left");
    made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 4096);  // and one that nothing was ever written to
    uint64_t fourth = made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 4096);
    put(fourth, SL_STRING_READY, 4, "four", "");
    cr_assert_eq(next(), 1);
    cr_assert_eq(string.name_length, 4096 - sizeof(struct sl_string));
    expect_region(2, name, "", 7);
    expect_region(4, "four", "", 7);
    cr_assert_eq(next(), 0);
}

Test(strings, lengths_that_cannot_be_break_the_segment, .init = begin_made, .fini = end_made)
{
    static const uint32_t headers[] = {
        SL_STRING_READY | 8,      SL_STRING_READY | 16,     SL_STRING_READY | 31,         SL_STRING_READY | 4104,
        SL_STRING_READY | SL_STRING_LENGTH,                 SL_STRING_READY,              SL_STRING_RESERVED,
        SL_STRING_RESERVED | 20,  SL_STRING_RESERVED | 8192, 1,                           0x3fffffff,
    };
    uint64_t at = made_extent(&made, SL_EXTENT_STRINGS, 0, 0, 4096);
    open_made();
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        ((struct sl_string *)made_at(&made, at))->header = headers[i];
        cr_expect_eq(next(), -1, "header %#x", headers[i]);
    }
    static const uint32_t lengths[][2] = {{9, 0}, {0, 9}, {5, 4}, {UINT32_MAX, 0}, {0, UINT32_MAX}, {UINT32_MAX, 9}, {8, UINT32_MAX - 7}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        *(struct sl_string *)made_at(&made, at) = (struct sl_string){.header = SL_STRING_READY | 32, .name_length = lengths[i][0],
                                                                     .file_length = lengths[i][1]};
        cr_expect_eq(next(), -1, "lengths %u, %u", lengths[i][0], lengths[i][1]);
    }
}

// ---- written by the client

static char long_name[70001];
static pid_t child;

static void begin_recorded(void)
{
    recorded_begin();
    memset(long_name, 'x', 300);  // a step for each byte
}

static void end_recorded(void)
{
    if (child)
        stepper_kill(child);
    buffer_finish(&text);
    recorded_end();
}

// The strings from where reading stands: regions have to be known and whole. Returns how many regions.
static uint32_t read_regions(void)
{
    uint32_t found = 0;
    int result;
    recorded_look(child);
    while ((result = segment_next_string(&recorded, &string, &text)) > 0) {
        if (string.type != SL_STRING_REGION)
            continue;
        found++;
        switch (string.id) {
        case 1:
            cr_assert(string.name_length == 1 && string.name[0] == 'a');
            break;
        case 2:
            cr_assert_eq(string.name_length, strlen(long_name));
            cr_assert_eq(memcmp(string.name, long_name, string.name_length), 0);
            cr_assert(string.file_length == 6 && memcmp(string.file, "file.c", 6) == 0);
            cr_assert_eq(string.line, 42);
            break;
        case 3:
            cr_assert_eq(string.name_length, 0);
            cr_assert_eq(string.line, -1);
            break;
        default:
            cr_assert(0, "region %u", string.id);
        }
    }
    cr_assert_eq(result, 0);
    return found;
}

static void name_regions(void)
{
    sl_enter(sl_region("a"));
    stepper_mark();
    sl_region_at(long_name, "file.c", 42);
    sl_region("");
    stepper_mark();
    sl_exit(sl_region("a"));
}

Test(strings, names_of_0_and_of_70000_bytes_come_through, .init = begin_recorded, .fini = end_recorded)
{
    memset(long_name, 'x', 70000);
    child = stepper_start(name_regions);
    cr_assert_eq(read_regions(), 1);
    cr_assert_eq(stepper_run(child), STEPPER_AT_MARK);
    cr_assert_eq(read_regions(), 2);
    segment_rewind_strings(&recorded);
    cr_assert_eq(read_regions(), 3);
}

// The header of the record that would be the next one to read, 0 none.
static uint32_t *next_header(void)
{
    recorded_look(child);
    struct segment look = recorded;
    while (segment_next_string(&look, &string, &text) > 0)
        ;
    return (uint32_t *)(void *)(recorded.map.base + look.string_next);
}

static bool is_reserved(const uint32_t *header)
{
    return (sl_load_acquire(header) & SL_STRING_STATE) == SL_STRING_RESERVED;
}

Test(strings, at_every_instruction_a_string_is_there_whole_or_not_at_all, .init = begin_recorded, .fini = end_recorded)
{
    child = stepper_start(name_regions);
    cr_assert_eq(read_regions(), 1);
    uint32_t steps = 0, reserved = 0, found = 0;
    do {
        uint32_t now = read_regions();
        cr_assert_leq(now, 1, "one after the other");
        found += now;
        reserved += is_reserved(next_header());
        steps++;
    } while (stepper_step(child, 0) == STEPPER_STEPPED);
    found += read_regions();
    cr_assert_eq(found, 2);
    cr_assert_gt(reserved, 0, "moments when a record was reserved were among the %u", steps);
}

// The child is killed with its record reserved; whoever finds the segment reads on behind it.
Test(strings, one_whose_writer_was_killed_in_between_is_passed_over, .init = begin_recorded, .fini = end_recorded)
{
    child = stepper_start(name_regions);
    cr_assert_eq(read_regions(), 1);
    uint32_t *header;
    do {
        header = next_header();
        cr_assert_eq(stepper_step(child, 0), STEPPER_STEPPED);
    } while (!is_reserved(header));
    stepper_kill(child);
    cr_assert_eq(read_regions(), 0);
    cr_assert(is_reserved(header));
    struct sl_string *after = (struct sl_string *)(void *)((char *)header + (*header & SL_STRING_LENGTH));
    *after = (struct sl_string){.id = 3, .type = SL_STRING_REGION, .line = -1};
    sl_store_release(&after->header, SL_STRING_READY | (uint32_t)sizeof *after);
    cr_assert_eq(read_regions(), 1, "the later one is read");
    child = 0;
}
