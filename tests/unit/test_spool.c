// The spool: what is written comes back; cut or damaged anywhere, its longest valid prefix does, and a writer goes on behind it.
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/files.h"
#include "storage/spool-frame.h"
#include "storage/spool.h"

static char directory[] = "/tmp/sl-test-spool-XXXXXX", path[64], other[64];
static struct model model;
static struct spool spool;
static struct spool_reader reader;

static void begin(void)
{
    cr_assert_not_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/spool", directory);
    snprintf(other, sizeof other, "%s/other", directory);
    model_init(&model, SL_CLOCK_TSC, 0, 0);
    spool.fd = -1;
}

static void end(void)
{
    spool_close(&spool);
    spool_reader_close(&reader);
    model_finish(&model);
    unlink(path);
    unlink(other);
    rmdir(directory);
}

TestSuite(spool, .init = begin, .fini = end, .timeout = 300);

static void create(uint64_t limit)
{
    struct spool_run run = {.id = "0123456789abcde", .created_realtime_ns = 4711, .key = "run:key", .output = "/out put.h5",
                            .host = "host", .boot = "boot", .part = "2"};
    int result = spool_create(&spool, path, &run, limit);
    cr_assert_eq(result, 0, "%s", strerror(-result));
}

static struct sl_record call(uint64_t start, uint64_t duration)
{
    return (struct sl_record){{start, sl_record_word1(SL_CALL, duration), sl_record_word2(1, 0), sl_record_word3(1, 0, SL_TASK_NONE)}};
}

static void put_calls(uint64_t first, uint32_t count)
{
    struct sl_record records[64];
    for (uint32_t i = 0; i < count; i++)
        records[i] = call(1000 + first + i, 10);
    spool_put_records(&spool, 0, 0, first, records, count);
}

// A little of everything; frames end at ends[0 … count).
static size_t ends[64], end_count;

static void note_end(void)
{
    ends[end_count++] = spool.size_bytes + spool.pending.length;
}

static void put_everything(void)
{
    struct process_facts facts = {.pid = 4242, .rank = 3, .clock = SL_CLOCK_TSC};
    struct model_process process = {.facts = facts, .host = "host"};
    end_count = 0;
    note_end();  // header and RUN
    spool_put_process(&spool, &process);
    note_end();
    spool_put_string(&spool, 0, SL_STRING_REGION, 1, 12, "a region", 8, "file.c", 6);
    note_end();
    spool_put_anchor(&spool, SL_CLOCK_TSC, &(struct anchor){1000, 5000, 6000});
    note_end();
    put_calls(0, 3);
    note_end();
    spool_put_thread(&spool, 0, &(struct thread_facts){.index = 0, .native_id = 77, .name_length = 4}, "main");
    note_end();
    spool_put_task(&spool, 0, &(struct task_facts){.index = 9, .steps = 5, .name_length = 4, .coro_name_length = 3}, "task", "abc");
    note_end();
    put_calls(3, 2);
    note_end();
    spool_put_dropped(&spool, 0, 0, 10, 4);
    note_end();
    spool_put_ledger(&spool, 0, 0, &(struct ledger){.produced = 12, .lost = {[SL_LOST_RING_FULL] = 3, [SL_LOST_SPOOL_FULL] = 4}});
    note_end();
    spool_put_open(&spool, 0, (struct open_facts[]){{.thread = 0, .task = SL_TASK_NONE, .region = 1, .start = 7}}, 1);
    note_end();
    spool_put_samples(&spool, 0, (struct sample_facts[]){{.thread = 0, .state = 'R', .cpu_ns = 123}}, 1);
    note_end();
    spool_put_paused(&spool, 0, true, 40);
    note_end();
    spool_put_paused(&spool, 0, false, 50);
    note_end();
    spool_put_status(&spool, 0, &(struct process_status){.state = PROCESS_ENDED, .rank = 3, .end_ns = 99});
    note_end();
    spool_put_end(&spool, 55);
    note_end();
}

static void open_it(const char *name)
{
    int result = spool_open(&reader, name);
    cr_assert_eq(result, 0, "%s", strerror(-result));
}

// Reads all frames into the model; returns how many.
static uint32_t apply_all(void)
{
    struct spool_frame frame;
    uint32_t frames = 0;
    for (; spool_next(&reader, &frame); frames++)
        spool_apply(&reader, &model, &frame, NULL);
    return frames;
}

Test(spool, what_is_written_comes_back)
{
    create(1 << 30);
    put_everything();
    cr_assert_eq(spool_flush(&spool), 0);
    open_it(path);
    cr_assert_eq(memcmp(reader.run.id, "0123456789abcde", 16), 0);
    cr_assert_eq(reader.run.created_realtime_ns, 4711);
    cr_assert_str_eq(reader.run.key, "run:key");
    cr_assert_str_eq(reader.run.output, "/out put.h5");
    cr_assert_str_eq(reader.run.host, "host");
    cr_assert_str_eq(reader.run.boot, "boot");
    cr_assert_str_eq(reader.run.part, "2");
    cr_assert_eq(reader.end_ns, SL_UNKNOWN);
    cr_assert_eq(apply_all(), 16);
    cr_assert_eq(reader.at, spool.size_bytes);
    cr_assert_eq(reader.end_ns, 55);
    cr_assert_eq(model.process_count, 1);
    struct model_process *process = model.processes[0];
    cr_assert_eq(process->facts.pid, 4242);
    cr_assert_str_eq(process->host, "host");
    cr_assert_str_eq(model_region_name(&model, model_region(process, 1)), "a region");
    cr_assert_eq(model_region(process, 1)->calls, 5);
    cr_assert_eq(model_region(process, 1)->line, 12);
    cr_assert_eq(model_thread(process, 0)->facts.native_id, 77);
    cr_assert_eq(model_thread(process, 0)->facts.cpu_ns, 123);
    cr_assert_str_eq(model_thread(process, 0)->name, "main");
    cr_assert_eq(model_task(process, 9)->facts.steps, 5);
    cr_assert_str_eq(model_task(process, 9)->coro_name, "abc");
    cr_assert_eq(model_slot(process, 0)->next, 10);
    struct ledger ledger = model_ledger(process);
    cr_assert_eq(ledger.stored, 5);
    cr_assert_eq(ledger.produced, ledger.stored + model_lost(&ledger));
    cr_assert_eq(process->open_count, 1);
    cr_assert_eq(process->pause_count, 1);
    cr_assert_eq(process->pauses[0].begin_ns, 40);
    cr_assert_eq(process->pauses[0].end_ns, 50);
    cr_assert_eq(process->status.state, PROCESS_ENDED);
    cr_assert_eq(model_time_ns(&model, process, 1000), 5000);
}

Test(spool, nothing_is_overwritten_and_nothing_else_is_read)
{
    struct spool_run run = {.key = "k"};
    create(1 << 30);
    struct spool second;
    cr_assert_eq(spool_create(&second, path, &run, 1), -EEXIST);
    spool_close(&second);
    cr_assert_eq(symlink(path, other), 0);
    cr_assert_eq(spool_open(&reader, other), -ELOOP);
    cr_assert_eq(spool_continue(&second, other, 64, 1), -ELOOP);
    spool_close(&second);
    struct stat status;
    cr_assert_eq(stat(path, &status), 0);
    cr_assert_eq(status.st_mode & 0777, 0600);
    cr_assert_eq(spool_open(&reader, directory), -EBADMSG);
    cr_assert_eq(spool_open(&reader, "/dev/null"), -EBADMSG);
    cr_assert_eq(spool_open(&reader, "/nowhere/spool"), -ENOENT);
}

static struct buffer bytes;

static void write_other(size_t length)
{
    int fd = open(other, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(files_write_all(fd, bytes.data, length), 0);
    close(fd);
}

static void make_everything(void)
{
    create(1 << 30);
    put_everything();
    cr_assert_eq(spool_flush(&spool), 0);
    cr_assert_eq(files_read_all(path, &bytes), 0);
    cr_assert_eq(bytes.length, ends[end_count - 1]);
}

// The end of the last frame that lies within `length`.
static size_t valid_within(size_t length)
{
    size_t valid = sizeof(struct spool_header);
    for (size_t i = 0; i < end_count; i++)
        if (ends[i] <= length)
            valid = ends[i];
    return valid;
}

// Goes on behind what was valid, and reads it all.
static void expect_to_go_on(size_t valid)
{
    struct spool again;
    cr_assert_eq(spool_continue(&again, other, valid, 1 << 30), 0);
    spool_put_end(&again, 1234);
    spool_close(&again);
    open_it(other);
    struct spool_frame frame;
    while (spool_next(&reader, &frame))
        if (frame.type == SPOOL_END)
            spool_apply(&reader, &model, &frame, NULL);
    cr_assert_eq(reader.at, valid + 24, "and nothing behind it");
    cr_assert_eq(reader.size, reader.at);
    cr_assert_eq(reader.end_ns, 1234);
    spool_reader_close(&reader);
}

Test(spool, cut_at_every_byte_its_longest_valid_prefix_comes_back)
{
    make_everything();
    for (size_t length = 0; length <= bytes.length; length++) {
        write_other(length);
        if (length < sizeof(struct spool_header)) {
            cr_assert_eq(spool_open(&reader, other), -EBADMSG);
            continue;
        }
        open_it(other);
        struct spool_frame frame;
        while (spool_next(&reader, &frame))
            ;
        size_t valid = reader.at;
        cr_assert_eq(valid, valid_within(length), "cut to %zu bytes", length);
        spool_reader_close(&reader);
        expect_to_go_on(valid);
    }
    buffer_finish(&bytes);
}

Test(spool, flipped_at_every_byte_its_longest_valid_prefix_comes_back)
{
    make_everything();
    uint32_t refused = 0, shorter = 0, whole = 0;
    for (size_t at = 0; at < bytes.length; at++) {
        for (unsigned flip = 1; flip < 256; flip = flip * 3 + 1) {
            bytes.data[at] ^= (char)flip;
            write_other(bytes.length);
            bytes.data[at] ^= (char)flip;
            int result = spool_open(&reader, other);
            if (result < 0) {
                cr_assert(at < 12, "only magic and version are a reason to refuse it, not byte %zu", at);
                refused++;
                continue;
            }
            struct spool_frame frame;
            while (spool_next(&reader, &frame))
                cr_assert(at >= sizeof(struct spool_header) || frame.payload, "frames do not depend on the header");
            size_t valid = reader.at, expected = valid_within(at);
            if (at >= sizeof(struct spool_header) && valid == expected) {
                shorter++;
            } else {
                cr_assert_eq(valid, bytes.length, "byte %zu, valid %zu: neither the prefix nor everything", at, valid);
                whole++;
            }
            spool_reader_close(&reader);
            if (flip == 1 && at % 7 == 0)
                expect_to_go_on(valid);
        }
    }
    cr_assert_gt(refused, 0);
    cr_assert_gt(shorter, (uint32_t)bytes.length * 4, "nearly every byte matters");
    buffer_finish(&bytes);
}

Test(spool, padding_that_is_not_zero_is_damage_too)
{
    make_everything();
    size_t padded = ends[4];  // THREAD: 68 bytes of payload
    cr_assert_eq(bytes.data[ends[5] - 1], 0);
    bytes.data[ends[5] - 1] = 1;
    write_other(bytes.length);
    open_it(other);
    struct spool_frame frame;
    while (spool_next(&reader, &frame))
        ;
    cr_assert_eq(reader.at, padded);
    buffer_finish(&bytes);
}

Test(spool, another_version_is_refused_by_name)
{
    make_everything();
    bytes.data[8]++;
    write_other(bytes.length);
    cr_assert_eq(spool_open(&reader, other), -EPROTONOSUPPORT);
    buffer_finish(&bytes);
}

// ---- full

Test(spool, beyond_the_limit_there_is_no_room_for_records)
{
    create(4096);
    put_everything();
    cr_assert(spool_has_room(&spool, 1024));
    cr_assert_not(spool_has_room(&spool, 4096));
    cr_assert_eq(spool_flush(&spool), 0);
    cr_assert_not(spool_has_room(&spool, 4096 - spool.size_bytes + 1));
    cr_assert(spool_has_room(&spool, 4096 - spool.size_bytes));
    spool_put_end(&spool, 1);
    cr_assert_eq(spool_flush(&spool), 0, "tables and the ledger still go in");
}

// A flush that fails halfway leaves whole flushes in the file and its frames pending; once there is room again, they go in.
static void fill_up_and_recover(void (*make_room)(void))
{
    put_everything();
    cr_assert_eq(spool_flush(&spool), 0);
    uint64_t good = spool.size_bytes;
    uint64_t next = 10;
    int result = 0;
    for (int i = 0; i < 10000 && result == 0; i++) {
        good = spool.size_bytes;
        for (int j = 0; j < 50; j++, next += 64)
            put_calls(next, 64);
        result = spool_flush(&spool);
    }
    cr_assert(result == -ENOSPC || result == -EFBIG, "%s", strerror(-result));
    cr_assert_eq(spool.error, result);
    cr_assert(spool.full);
    cr_assert_eq(spool.size_bytes, good);
    cr_assert_neq(spool_flush(&spool), 0, "and again");
    struct stat status;
    cr_assert_eq(fstat(spool.fd, &status), 0);
    cr_assert_eq((uint64_t)status.st_size, good);
    open_it(path);
    struct spool_frame frame;
    while (spool_next(&reader, &frame))
        ;
    cr_assert_eq(reader.at, good, "what is there is whole");
    spool_reader_close(&reader);
    make_room();
    cr_assert_eq(spool_flush(&spool), 0);
    cr_assert_eq(spool.error, 0);
    cr_assert_not(spool.full);
    open_it(path);
    apply_all();
    cr_assert_eq(reader.at, spool.size_bytes);
    cr_assert_eq(model_slot(model.processes[0], 0)->next, next, "nothing is missing in between");
    cr_assert_eq(model_ledger(model.processes[0]).stored, 5 + (next - 10));
}

static void raise_the_limit(void)
{
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}), 0);
}

Test(spool, a_file_that_must_not_grow_is_an_error_and_no_end)
{
    signal(SIGXFSZ, SIG_IGN);
    create(1 << 30);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000000, RLIM_INFINITY}), 0);
    fill_up_and_recover(raise_the_limit);
}

static void enlarge_the_disk(void)
{
    cr_assert_eq(mount("tmpfs", directory, "tmpfs", MS_REMOUNT, "size=64m"), 0);
}

Test(spool, a_full_disk_is_an_error_and_no_end)
{
    if (mount("tmpfs", directory, "tmpfs", 0, "size=1m") < 0)
        cr_skip_test("a file system of its own is for root: %s", strerror(errno));
    create(1 << 30);
    fill_up_and_recover(enlarge_the_disk);
    spool_close(&spool);
    spool_reader_close(&reader);
    cr_assert_eq(umount2(directory, MNT_DETACH), 0);
}

Test(spool, a_spool_that_cannot_even_begin_leaves_nothing)
{
    struct spool_run run = {.key = "k"};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){10, RLIM_INFINITY}), 0);
    cr_assert_eq(spool_create(&spool, path, &run, 1 << 30), -EFBIG);
    cr_assert_neq(access(path, F_OK), 0);
    raise_the_limit();
}

// ---- payloads

static void put_raw(uint16_t type, const void *payload, uint32_t length)
{
    struct frame_header header = {.marker = FRAME_MARKER, .type = type, .length = length};
    header.crc = frame_crc(&header, payload);
    buffer_append(&spool.pending, &header, sizeof header);
    buffer_append(&spool.pending, payload, length);
    buffer_append(&spool.pending, "\0\0\0\0\0\0\0", FRAME_ALIGN((size_t)length) - length);
}

Test(spool, payloads_of_every_length_and_type_are_applied_or_passed_over)
{
    static char payload[300];
    create(1 << 30);
    struct model_process process = {.facts = {.pid = 1}};
    spool_put_process(&spool, &process);
    for (int fill = 0; fill < 3; fill++) {
        memset(payload, fill == 2 ? 0xff : fill, sizeof payload);
        for (uint16_t type = 0; type < 20; type++)
            for (uint32_t length = 0; length < sizeof payload; length += length < 140 ? 1 : 13)
                if (type != SPOOL_PROCESS)
                    put_raw(type, payload, length);
    }
    spool_put_end(&spool, 77);
    cr_assert_eq(spool_flush(&spool), 0);
    open_it(path);
    apply_all();
    cr_assert_eq(reader.at, reader.size);
    cr_assert_eq(reader.end_ns, 77, "it was read to the end");
    cr_assert_eq(model.process_count, 1);
}

Test(spool, frames_of_a_process_that_was_never_named_are_passed_over)
{
    create(1 << 30);
    put_everything();
    cr_assert_eq(spool_flush(&spool), 0);
    open_it(path);
    struct spool_frame frame;
    while (spool_next(&reader, &frame))
        if (frame.type != SPOOL_PROCESS)
            spool_apply(&reader, &model, &frame, NULL);
    cr_assert_eq(model.process_count, 0);
}
