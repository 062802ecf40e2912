#include "storage/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/testpoint.h"
#include "storage/spool-frame.h"

#define WINDOW_LASTS_NS INT64_C(1000000000)

static const char magic[8] = "SLSPOOL1";

// ---- frames

// Opens a frame in the pending buffer: returns where its payload begins.
static size_t begin(struct spool *spool, enum spool_type type)
{
    struct frame_header header = {.marker = FRAME_MARKER, .type = (uint16_t)type};
    buffer_append(&spool->pending, &header, sizeof header);
    return spool->pending.length;
}

static void put_u32(struct spool *spool, uint32_t value)
{
    buffer_append(&spool->pending, &value, sizeof value);
}

static void end(struct spool *spool, size_t payload)
{
    static const char zeros[8];
    size_t length = spool->pending.length - payload;
    struct frame_header header;
    memcpy(&header, spool->pending.data + payload - sizeof header, sizeof header);
    header.length = (uint32_t)length;
    header.crc = frame_crc(&header, spool->pending.data + payload);
    memcpy(spool->pending.data + payload - sizeof header, &header, sizeof header);
    buffer_append(&spool->pending, zeros, FRAME_ALIGN(length) - length);
}

static void put_run(struct spool *spool, const struct spool_run *run)
{
    const char *texts[] = {run->key, run->output, run->host, run->boot, run->part, run->form};
    size_t payload = begin(spool, SPOOL_RUN);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const char *text = texts[i] ? texts[i] : "";
        buffer_append(&spool->pending, text, strlen(text) + 1);
    }
    end(spool, payload);
}

void spool_put_process(struct spool *spool, const struct model_process *process)
{
    const char *host = process->host ? process->host : "";
    size_t payload = begin(spool, SPOOL_PROCESS);
    buffer_append(&spool->pending, &process->facts, sizeof process->facts);
    buffer_append(&spool->pending, host, strlen(host) + 1);
    end(spool, payload);
}

void spool_put_string(struct spool *spool, uint32_t process, uint32_t type, uint32_t id, int32_t line, const char *name,
                      size_t name_length, const char *file, size_t file_length)
{
    size_t payload = begin(spool, SPOOL_STRING);
    struct frame_string head = {process, type, id, line, (uint32_t)name_length, (uint32_t)file_length};
    buffer_append(&spool->pending, &head, sizeof head);
    buffer_append(&spool->pending, name, name_length);
    buffer_append(&spool->pending, file, file_length);
    end(spool, payload);
}

struct sl_record *spool_begin_records(struct spool *spool, uint32_t process, uint32_t slot, uint64_t first, size_t limit)
{
    begin(spool, SPOOL_RECORDS);
    struct frame_records head = {process, slot, first};
    buffer_append(&spool->pending, &head, sizeof head);
    return buffer_extend(&spool->pending, limit * sizeof(struct sl_record));
}

void spool_end_records(struct spool *spool, struct sl_record *records, size_t count)
{
    size_t payload = (size_t)((char *)records - spool->pending.data) - sizeof(struct frame_records);
    spool->pending.length = (size_t)((char *)(records + count) - spool->pending.data);
    end(spool, payload);
}

void spool_put_records(struct spool *spool, uint32_t process, uint32_t slot, uint64_t first, const struct sl_record *records,
                       size_t count)
{
    struct sl_record *place = spool_begin_records(spool, process, slot, first, count);
    if (count)
        memcpy(place, records, count * sizeof *records);
    spool_end_records(spool, place, count);
}

void spool_put_dropped(struct spool *spool, uint32_t process, uint32_t slot, uint64_t next, uint64_t calls)
{
    size_t payload = begin(spool, SPOOL_DROPPED);
    struct frame_dropped head = {process, slot, next, calls};
    buffer_append(&spool->pending, &head, sizeof head);
    end(spool, payload);
}

static size_t begin_of_process(struct spool *spool, enum spool_type type, uint32_t process, uint32_t second)
{
    size_t payload = begin(spool, type);
    put_u32(spool, process);
    put_u32(spool, second);
    return payload;
}

void spool_put_thread(struct spool *spool, uint32_t process, const struct thread_facts *facts, const char *name)
{
    size_t payload = begin_of_process(spool, SPOOL_THREAD, process, 0);
    buffer_append(&spool->pending, facts, sizeof *facts);
    buffer_append(&spool->pending, name, facts->name_length);
    end(spool, payload);
}

void spool_put_task(struct spool *spool, uint32_t process, const struct task_facts *facts, const char *name, const char *coro_name)
{
    size_t payload = begin_of_process(spool, SPOOL_TASK, process, 0);
    buffer_append(&spool->pending, facts, sizeof *facts);
    buffer_append(&spool->pending, name, facts->name_length);
    buffer_append(&spool->pending, coro_name, facts->coro_name_length);
    end(spool, payload);
}

void spool_put_anchor(struct spool *spool, uint32_t clock_kind, const struct anchor *anchor)
{
    size_t payload = begin_of_process(spool, SPOOL_ANCHOR, clock_kind, 0);
    buffer_append(&spool->pending, anchor, sizeof *anchor);
    end(spool, payload);
}

void spool_put_ledger(struct spool *spool, uint32_t process, uint32_t slot, const struct ledger *ledger)
{
    size_t payload = begin_of_process(spool, SPOOL_LEDGER, process, slot);
    buffer_append(&spool->pending, ledger, sizeof *ledger);
    end(spool, payload);
}

void spool_put_base(struct spool *spool, uint32_t process, uint32_t slot, uint64_t next, uint32_t owner, const struct ledger *base)
{
    size_t payload = begin(spool, SPOOL_BASE);
    struct frame_base head = {process, slot, next, owner, 0};
    buffer_append(&spool->pending, &head, sizeof head);
    buffer_append(&spool->pending, base, sizeof *base);
    end(spool, payload);
}

void spool_put_open(struct spool *spool, uint32_t process, const struct open_facts *open, uint32_t count)
{
    size_t payload = begin_of_process(spool, SPOOL_OPEN, process, count);
    buffer_append(&spool->pending, open, count * sizeof *open);
    end(spool, payload);
}

void spool_put_status(struct spool *spool, uint32_t process, const struct process_status *status)
{
    size_t payload = begin_of_process(spool, SPOOL_STATUS, process, 0);
    buffer_append(&spool->pending, status, sizeof *status);
    end(spool, payload);
}

void spool_put_samples(struct spool *spool, uint32_t process, const struct sample_facts *samples, uint32_t count)
{
    size_t payload = begin_of_process(spool, SPOOL_SAMPLES, process, count);
    buffer_append(&spool->pending, samples, count * sizeof *samples);
    end(spool, payload);
}

void spool_put_paused(struct spool *spool, uint32_t process, bool paused, int64_t now_ns)
{
    size_t payload = begin_of_process(spool, SPOOL_PAUSED, process, paused);
    buffer_append(&spool->pending, &now_ns, sizeof now_ns);
    end(spool, payload);
}

void spool_put_end(struct spool *spool, int64_t end_ns)
{
    size_t payload = begin(spool, SPOOL_END);
    buffer_append(&spool->pending, &end_ns, sizeof end_ns);
    end(spool, payload);
}

// ---- the file

int spool_create(struct spool *spool, const char *path, const struct spool_run *run, uint64_t limit_bytes)
{
    *spool = (struct spool){.limit_bytes = limit_bytes};
    spool->fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (spool->fd < 0)
        return -errno;
    TESTPOINT(spool_made);
    spool->path = alloc_text(path);
    struct spool_header header = {.version = SPOOL_VERSION, .created_realtime_ns = run->created_realtime_ns};
    memcpy(header.magic, magic, sizeof magic);
    memcpy(header.run_id, run->id, sizeof header.run_id);
    buffer_append(&spool->pending, &header, sizeof header);
    put_run(spool, run);
    int result = spool_flush(spool);
    if (result < 0) {
        unlink(path);
        spool_close(spool);
    }
    return result;
}

int spool_continue(struct spool *spool, const char *path, uint64_t valid_bytes, uint64_t limit_bytes)
{
    *spool = (struct spool){.limit_bytes = limit_bytes, .size_bytes = valid_bytes};
    spool->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (spool->fd < 0)
        return -errno;
    if (ftruncate(spool->fd, (off_t)valid_bytes) < 0) {
        int error = errno;
        close(spool->fd);
        spool->fd = -1;
        return -error;
    }
    TESTPOINT(spool_continued);
    spool->path = alloc_text(path);
    return 0;
}

// ---- windows

static void move_window(struct spool_window *to, struct spool_window *from)
{
    if (from->map.base)
        guard_remove(&from->map);
    *to = *from;
    if (to->map.base)
        guard_add(&to->map);
    *from = (struct spool_window){0};
}

static void unguard_and_drop(struct spool_window *window)
{
    if (window->map.base)
        guard_remove(&window->map);
    window_drop(window);
}

bool spool_wants_window(const struct spool *spool, uint64_t *from, uint64_t *bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (spool->fd < 0 || spool->next.map.base || spool->error)
        return false;
    *from = spool->window.map.base && spool->window.to > spool->size_bytes ? spool->window.to : spool->size_bytes & ~(page - 1);
    *bytes = spool->window_bytes ? spool->window_bytes : WINDOW_BYTES_MIN;
    if (*from >= spool->limit_bytes || spool->size_bytes >= spool->limit_bytes)
        return false;
    uint64_t rest = ((spool->limit_bytes - *from) + page - 1) & ~(page - 1);
    *bytes = *bytes < rest ? *bytes : rest;
    return true;
}

void spool_take_window(struct spool *spool, const struct spool_window *window)
{
    spool->next = *window;
    guard_add(&spool->next.map);
}

struct spool_window spool_used_window(struct spool *spool)
{
    struct spool_window used = spool->used;
    if (used.map.base)
        guard_remove(&spool->used.map);
    spool->used = (struct spool_window){0};
    return used;
}

// The next one comes into use: its size follows from how long this one has lasted.
static void next_window(struct spool *spool)
{
    int64_t now_ns = clock_monotonic_ns(), lasted_ns = now_ns - spool->window_begun_ns;
    uint64_t bytes = spool->window_bytes ? spool->window_bytes : WINDOW_BYTES_MIN;
    if (lasted_ns < WINDOW_LASTS_NS && bytes < WINDOW_BYTES_MAX)
        bytes *= 2;
    else if (lasted_ns > 8 * WINDOW_LASTS_NS && bytes > WINDOW_BYTES_MIN)
        bytes /= 2;
    spool->window_bytes = bytes;
    spool->window_begun_ns = now_ns;
    unguard_and_drop(&spool->used);
    move_window(&spool->used, &spool->window);
    move_window(&spool->window, &spool->next);
}

// The window that holds this place, NULL when none lies ready.
static struct spool_window *window_at(struct spool *spool, uint64_t at)
{
    while (spool->next.map.base && (!spool->window.map.base || at >= spool->window.to))
        next_window(spool);
    struct spool_window *window = &spool->window;
    return window->map.base && at >= window->from && at < window->to ? window : NULL;
}

void spool_drop_windows(struct spool *spool)
{
    bool lay_ready = spool->window.map.base || spool->next.map.base;
    unguard_and_drop(&spool->used);
    unguard_and_drop(&spool->window);
    unguard_and_drop(&spool->next);
    if (lay_ready && ftruncate(spool->fd, (off_t)spool->size_bytes) < 0)
        return;  // zeros follow the last frame then: they are none
}

// ---- flushing

// Copies from the place `at` on into what lies ready, as far as that reaches. Returns how much.
static size_t copy_out(struct spool *spool, uint64_t at, const char *bytes, size_t length)
{
    size_t done = 0;
    struct spool_window *window;
    while (done < length && (window = window_at(spool, at + done))) {
        uint64_t room = window->to - (at + done);
        size_t part = length - done < room ? length - done : (size_t)room;
        memcpy(window->map.base + (at + done - window->from), bytes + done, part);
        if (window->map.broken) {  // the file was cut under it: what was copied is nowhere
            spool_drop_windows(spool);
            return 0;
        }
        done += part;
    }
    return done;
}

int spool_flush(struct spool *spool)
{
    size_t length = spool->pending.length;
    if (!length)
        return 0;
    size_t copied = copy_out(spool, spool->size_bytes, spool->pending.data, length);
    TESTPOINT(spool_copied);
    int result = files_write_at(spool->fd, spool->pending.data + copied, length - copied, spool->size_bytes + copied);
    if (result < 0) {  // a part may be there: what counts is whole flushes
        spool_drop_windows(spool);
        int ignored = ftruncate(spool->fd, (off_t)spool->size_bytes);
        (void)ignored;
        spool->error = result;
        spool->full = true;
        return result;
    }
    TESTPOINT(spool_written);
    spool->size_bytes += length;
    spool->error = 0;
    spool->full = false;
    buffer_clear(&spool->pending);
    return 0;
}

bool spool_has_room(const struct spool *spool, size_t more_bytes)
{
    return spool->size_bytes + spool->pending.length + more_bytes <= spool->limit_bytes;
}

void spool_close(struct spool *spool)
{
    if (spool->fd >= 0) {
        spool_flush(spool);
        spool_drop_windows(spool);
        close(spool->fd);
    }
    spool->fd = -1;
    buffer_finish(&spool->pending);
    free(spool->path);
    spool->path = NULL;
}
