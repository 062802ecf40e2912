// Windows of the spool: what is copied into them is what would have been written, whatever they begin and end at; and without
// them, or when they break, it is written.
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/spool.h"

static char directory[] = "/tmp/sl-test-window-XXXXXX", path[64];
static struct spool spool;
static uint64_t records, state = 1;

static uint64_t next_random(uint64_t below)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
}

static void begin(void)
{
    struct spool_run run = {.id = "0123456789abcde", .key = "run:key", .output = "/out.h5", .host = "host"};
    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/spool", directory);
    cr_assert_eq(guard_install(), 0);
    cr_assert_eq(spool_create(&spool, path, &run, 1 << 30), 0);
}

static void finish(void)
{
    spool_close(&spool);
    unlink(path);
    rmdir(directory);
}

TestSuite(window, .init = begin, .fini = finish, .timeout = 120);

static int lay_ready(void)
{
    uint64_t from, bytes;
    struct spool_window window, used = spool_used_window(&spool);
    window_drop(&used);
    if (!spool_wants_window(&spool, &from, &bytes))
        return 0;
    cr_assert_eq(from % 4096, 0);
    int result = window_make(&window, spool.fd, from, bytes);
    if (result == 0)
        spool_take_window(&spool, &window);
    return result;
}

static void put(uint32_t count)
{
    struct sl_record *place = spool_begin_records(&spool, 0, 0, records, count);
    for (uint32_t i = 0; i < count; i++)
        place[i] = (struct sl_record){{records + i, sl_record_word1(SL_CALL, 1), 0, sl_record_word3(0, 0, SL_TASK_NONE)}};
    spool_end_records(&spool, place, count);
    records += count;
}

// Every record that was put is in the file, once and in order, and nothing is torn.
static void expect_all(void)
{
    struct spool_reader reader;
    struct spool_frame frame;
    uint64_t found = 0;
    cr_assert_eq(spool_open(&reader, path), 0);
    while (spool_next(&reader, &frame)) {
        if (frame.type != SPOOL_RECORDS)
            continue;
        const struct sl_record *at = (const struct sl_record *)(const void *)(frame.payload + 16);
        for (size_t i = 0; i < (frame.length - 16) / sizeof *at; i++, found++)
            cr_assert_eq(sl_record_start(&at[i]), found);
    }
    cr_assert_eq(found, records);
    cr_assert_eq(reader.at, spool.size_bytes);
    cr_assert_not(spool_is_torn(&reader));
    spool_reader_close(&reader);
}

Test(window, frames_of_any_length_go_through_windows_of_any_size)
{
    for (int i = 0; i < 3000; i++) {
        put((uint32_t)next_random(400));
        cr_assert_eq(spool_flush(&spool), 0);
        if (next_random(3))  // now and then it comes too late, and the spool is written instead
            cr_assert_eq(lay_ready(), 0);
    }
    cr_assert_gt(spool.size_bytes, 8 << 20);
    cr_assert_gt(spool.window_bytes, WINDOW_BYTES_MIN, "they grow with what comes in");
    expect_all();
}

Test(window, a_frame_may_be_longer_than_all_that_lies_ready)
{
    cr_assert_eq(lay_ready(), 0);
    for (int i = 0; i < 4; i++) {
        put(20000);
        cr_assert_eq(spool_flush(&spool), 0);
        cr_assert_eq(lay_ready(), 0);
    }
    expect_all();
}

Test(window, what_lay_ready_is_gone_once_the_spool_is_closed)
{
    put(1000);
    cr_assert_eq(lay_ready(), 0);
    cr_assert_eq(spool_flush(&spool), 0);
    cr_assert_eq(lay_ready(), 0);
    struct stat status;
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_gt((uint64_t)status.st_size, spool.size_bytes);
    expect_all();
    uint64_t size = spool.size_bytes;
    spool_drop_windows(&spool);
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_eq((uint64_t)status.st_size, size);
    expect_all();
}

Test(window, a_file_that_is_cut_under_them_is_written_instead)
{
    put(100);
    cr_assert_eq(spool_flush(&spool), 0);
    cr_assert_eq(lay_ready(), 0);
    put(100);
    cr_assert_eq(spool_flush(&spool), 0);
    cr_assert_not_null(spool.window.map.base);
    cr_assert_eq(truncate(path, (off_t)spool.size_bytes), 0);
    put(1000);
    cr_assert_eq(spool_flush(&spool), 0);
    cr_assert_null(spool.window.map.base);
    expect_all();
}

Test(window, no_more_is_laid_ready_than_the_limit_lets_in)
{
    spool.limit_bytes = spool.size_bytes + 4096;
    uint64_t from, bytes;
    cr_assert(spool_wants_window(&spool, &from, &bytes));
    cr_assert_leq(from + bytes, spool.limit_bytes + 4096);
    put(200);
    cr_assert_eq(spool_flush(&spool), 0);
    cr_assert_not(spool_wants_window(&spool, &from, &bytes));
}

Test(window, a_nearly_full_disk_is_left_to_others)
{
    if (mount("tmpfs", directory, "tmpfs", 0, "size=1m") < 0)
        cr_skip_test("a file system of its own is for root: %s", strerror(errno));
    struct spool_run run = {.key = "k"};
    spool_close(&spool);
    cr_assert_eq(spool_create(&spool, path, &run, 1 << 30), 0);
    cr_assert_eq(lay_ready(), -ENOSPC);
    put(1000);
    cr_assert_eq(spool_flush(&spool), 0);
    expect_all();
    spool_close(&spool);
    cr_assert_eq(umount2(directory, MNT_DETACH), 0);
}
