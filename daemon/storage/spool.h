// The spool: what a run has said so far, append-only, beside the output. It is what makes "exactly once" true: records are
// copied from a ring, appended here, and only then given back to the producer. A killed daemon's successor reads it
// and goes on where it ends; the converter makes the run file from it.
//
//   file    header (64 bytes), then frames, each aligned to 8 bytes
//   header  "SLSPOOL1" · version u32 · zero u32 · run id (16 bytes) · created realtime ns i64 · zeros
//   frame   marker u32 · type u16 · zero u16 · length of the payload u32 · CRC-32 (zlib) of type, length and payload u32
//           payload, padded with zeros to 8 bytes
//
// The first frame that does not hold together ends the spool: what follows it is not looked at, and a writer that goes on cuts
// it off. docs/format.md has the payloads as tables.
#ifndef SL_STORAGE_SPOOL_H
#define SL_STORAGE_SPOOL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buffer.h"
#include "core/model.h"
#include "storage/spool-window.h"

#define SPOOL_VERSION 1

enum spool_type {
    SPOOL_RUN = 1,      // key, output path, host, boot id, part, form: texts ended by zeros
    SPOOL_PROCESS = 2,  // process_facts, host text
    SPOOL_STRING = 3,   // process, type, id, line, name length, file length: u32; texts
    SPOOL_RECORDS = 4,  // process u32, slot u32, first u64, records
    SPOOL_THREAD = 5,   // process u32, zero u32, thread_facts, name
    SPOOL_TASK = 6,     // process u32, zero u32, task_facts, name, coro_name
    SPOOL_ANCHOR = 7,   // clock kind u32, zero u32, anchor
    SPOOL_LEDGER = 8,   // process u32, slot u32, ledger
    SPOOL_OPEN = 9,     // process u32, count u32, open_facts
    SPOOL_STATUS = 10,  // process u32, zero u32, process_status
    SPOOL_SAMPLES = 11,  // process u32, count u32, sample_facts
    SPOOL_DROPPED = 12,  // process u32, slot u32, next u64, calls u64: records passed over because the spool was full
    SPOOL_END = 13,      // monotonic ns i64: the run has ended, nothing follows
    SPOOL_BASE = 14,     // process u32, slot u32, next u64, owner u32, zero u32, ledger: where this file's part of a ring begins
    SPOOL_PAUSED = 15    // process u32, paused u32, monotonic ns i64: from now on it records no call that is entered, or does again
};

struct spool_run {
    uint8_t id[16];
    int64_t created_realtime_ns;
    char *key, *output, *host;
    char *boot;  // the machine's boot: after another one, its ticks mean nothing any more
    char *part;  // "1", continuations "2", …
    char *form;  // of the run file: schema "2" or "3", with a "z" behind it compressed
};

// ---- writing

struct spool {
    int fd;
    char *path;
    struct buffer pending;    // frames not written yet
    uint64_t size_bytes;      // of the file, pending not included
    uint64_t limit_bytes;     // records beyond it are dropped and counted
    bool full;                // the latest flush failed
    int error;                // -errno of the latest failed write, 0 none
    struct spool_window window, next;  // what lies ready from here on, and behind that
    struct spool_window used;          // the one before
    uint64_t window_bytes;             // of the next
    int64_t window_begun_ns;
    int64_t synced_ns;        // when it was last brought to the disk, by its owner
};

// Makes a new spool (0600, must not exist). 0 or -errno.
int spool_create(struct spool *spool, const char *path, const struct spool_run *run, uint64_t limit_bytes);
// Goes on with an existing one after its last good frame (`valid_bytes`, from spool_read).
int spool_continue(struct spool *spool, const char *path, uint64_t valid_bytes, uint64_t limit_bytes);
void spool_close(struct spool *spool);  // flushes; the file stays

// Frames are gathered in memory; spool_flush writes them. All of a flush is in the page cache, or none of it counts: on
// failure the next one begins where it began, and the frames stay pending. 0 or -errno.
int spool_flush(struct spool *spool);
// The stretch of the file that should be made ready next (window_make, then spool_take_window); false when there is enough.
bool spool_wants_window(const struct spool *spool, uint64_t *from, uint64_t *bytes);
void spool_take_window(struct spool *spool, const struct spool_window *window);
struct spool_window spool_used_window(struct spool *spool);  // to be dropped, on any thread; there may be none
void spool_drop_windows(struct spool *spool);  // and what lay ready behind the last frame
// May records still be stored? False beyond the limit. While the disk is full frames stay pending instead: what has been copied from
// a ring is not given back before it is written, so no more than the rings hold can gather.
bool spool_has_room(const struct spool *spool, size_t more_bytes);

void spool_put_process(struct spool *spool, const struct model_process *process);
void spool_put_string(struct spool *spool, uint32_t process, uint32_t type, uint32_t id, int32_t line, const char *name,
                      size_t name_length, const char *file, size_t file_length);
void spool_put_records(struct spool *spool, uint32_t process, uint32_t slot, uint64_t first, const struct sl_record *records,
                       size_t count);
// The same, filled in place: room for `limit` records, of which spool_end_records makes the frame. Nothing else may be put meanwhile.
struct sl_record *spool_begin_records(struct spool *spool, uint32_t process, uint32_t slot, uint64_t first, size_t limit);
void spool_end_records(struct spool *spool, struct sl_record *records, size_t count);
void spool_put_dropped(struct spool *spool, uint32_t process, uint32_t slot, uint64_t next, uint64_t calls);
void spool_put_thread(struct spool *spool, uint32_t process, const struct thread_facts *facts, const char *name);
void spool_put_task(struct spool *spool, uint32_t process, const struct task_facts *facts, const char *name, const char *coro_name);
void spool_put_anchor(struct spool *spool, uint32_t clock_kind, const struct anchor *anchor);
void spool_put_ledger(struct spool *spool, uint32_t process, uint32_t slot, const struct ledger *ledger);
void spool_put_base(struct spool *spool, uint32_t process, uint32_t slot, uint64_t next, uint32_t owner, const struct ledger *base);
void spool_put_open(struct spool *spool, uint32_t process, const struct open_facts *open, uint32_t count);
void spool_put_status(struct spool *spool, uint32_t process, const struct process_status *status);
void spool_put_samples(struct spool *spool, uint32_t process, const struct sample_facts *samples, uint32_t count);
void spool_put_paused(struct spool *spool, uint32_t process, bool paused, int64_t now_ns);
void spool_put_end(struct spool *spool, int64_t end_ns);

// ---- reading

struct spool_reader {
    const char *data;  // the file, mapped
    size_t size;
    size_t at;         // of the next frame
    struct spool_run run;
    int64_t end_ns;    // SL_UNKNOWN while no END frame was read
};

// Maps a spool. 0, or -errno; -EBADMSG when it is none, -EPROTONOSUPPORT when it is of another version.
int spool_open(struct spool_reader *reader, const char *path);
void spool_reader_close(struct spool_reader *reader);
void spool_rewind(struct spool_reader *reader);

struct spool_frame {
    enum spool_type type;
    const char *payload;
    size_t length;
};

// The next good frame: 1, or 0 at the end of what holds together (reader->at is then the valid length).
int spool_next(struct spool_reader *reader, struct spool_frame *frame);
// After the last: does more follow than zeros, which a writer that was killed had laid ready?
bool spool_is_torn(const struct spool_reader *reader);

// Applies a frame to the model; payloads that do not fit their type are passed over. on_samples may be NULL.
struct spool_hooks {
    model_on_call on_call;
    void (*on_samples)(void *context, struct model_process *process, const struct sample_facts *samples, uint32_t count);
    void (*on_anchor)(void *context, const struct anchor *anchor);
    void *context;
};
void spool_apply(struct spool_reader *reader, struct model *model, const struct spool_frame *frame, const struct spool_hooks *hooks);

#endif
