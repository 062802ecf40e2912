#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "storage/spool-frame.h"
#include "storage/spool.h"

static int map_file(struct spool_reader *reader, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    struct stat status;
    int result = fstat(fd, &status) < 0 ? -errno : 0;
    if (result == 0 && (!S_ISREG(status.st_mode) || (size_t)status.st_size < sizeof(struct spool_header)))
        result = -EBADMSG;
    if (result == 0) {
        void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED)
            result = -errno;
        reader->data = data;
        reader->size = (size_t)status.st_size;
    }
    close(fd);
    return result;
}

static void read_run(struct spool_reader *reader, const struct spool_frame *frame)
{
    char **texts[] = {&reader->run.key, &reader->run.output, &reader->run.host, &reader->run.boot, &reader->run.part, &reader->run.form};
    size_t at = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t length = strnlen(frame->payload + at, frame->length - at);
        free(*texts[i]);
        *texts[i] = strndup(frame->payload + at, length);
        at += length < frame->length - at ? length + 1 : length;
    }
}

int spool_open(struct spool_reader *reader, const char *path)
{
    *reader = (struct spool_reader){.end_ns = SL_UNKNOWN};
    int result = map_file(reader, path);
    if (result < 0)
        return result;
    struct spool_header header;
    memcpy(&header, reader->data, sizeof header);
    if (memcmp(header.magic, "SLSPOOL1", sizeof header.magic) != 0)
        result = -EBADMSG;
    else if (header.version != SPOOL_VERSION)
        result = -EPROTONOSUPPORT;
    if (result < 0) {
        spool_reader_close(reader);
        return result;
    }
    memcpy(reader->run.id, header.run_id, sizeof reader->run.id);
    reader->run.created_realtime_ns = header.created_realtime_ns;
    reader->at = sizeof header;
    struct spool_frame frame;
    if (spool_next(reader, &frame) && frame.type == SPOOL_RUN)
        read_run(reader, &frame);
    spool_rewind(reader);
    return 0;
}

void spool_reader_close(struct spool_reader *reader)
{
    if (reader->data)
        munmap((void *)(uintptr_t)reader->data, reader->size);
    free(reader->run.key);
    free(reader->run.output);
    free(reader->run.host);
    free(reader->run.boot);
    free(reader->run.part);
    free(reader->run.form);
    *reader = (struct spool_reader){0};
}

void spool_rewind(struct spool_reader *reader)
{
    reader->at = sizeof(struct spool_header);
}

int spool_next(struct spool_reader *reader, struct spool_frame *frame)
{
    struct frame_header header;
    if (reader->size - reader->at < sizeof header)
        return 0;
    memcpy(&header, reader->data + reader->at, sizeof header);
    size_t room = reader->size - reader->at - sizeof header;
    if (header.marker != FRAME_MARKER || FRAME_ALIGN((size_t)header.length) > room)
        return 0;
    const char *payload = reader->data + reader->at + sizeof header;
    if (frame_crc(&header, payload) != header.crc)
        return 0;
    for (size_t i = header.length; i < FRAME_ALIGN((size_t)header.length); i++)
        if (payload[i] != 0)
            return 0;
    *frame = (struct spool_frame){(enum spool_type)header.type, payload, header.length};
    reader->at += sizeof header + FRAME_ALIGN((size_t)header.length);
    return 1;
}

bool spool_is_torn(const struct spool_reader *reader)
{
    for (size_t i = reader->at; i < reader->size; i++)
        if (reader->data[i] != 0)
            return true;
    return false;
}

// ---- into the model

struct cursor {
    const char *at;
    size_t left;
};

static bool take(struct cursor *cursor, void *into, size_t length)
{
    if (cursor->left < length)
        return false;
    memcpy(into, cursor->at, length);
    cursor->at += length;
    cursor->left -= length;
    return true;
}

static struct model_process *process_of(const struct model *model, uint32_t number)
{
    return number < model->process_count ? model->processes[number] : NULL;
}

// Frames of a process begin with its number and one word more.
static struct model_process *take_process(struct cursor *cursor, const struct model *model, uint32_t *second)
{
    uint32_t number;
    return take(cursor, &number, sizeof number) && take(cursor, second, sizeof *second) ? process_of(model, number) : NULL;
}

static void apply_process(struct cursor *cursor, struct model *model)
{
    struct process_facts facts;
    if (!take(cursor, &facts, sizeof facts))
        return;
    struct model_process *process = model_add_process(model, &facts);
    process->host = strndup(cursor->at, strnlen(cursor->at, cursor->left));
}

static void apply_string(struct cursor *cursor, struct model *model)
{
    struct frame_string head;
    if (!take(cursor, &head, sizeof head) || head.name_length > cursor->left || head.file_length > cursor->left - head.name_length)
        return;
    struct model_process *process = process_of(model, head.process);
    if (process)
        model_string(model, process, head.type, head.id, cursor->at, head.name_length, cursor->at + head.name_length,
                     head.file_length, head.line);
}

static void apply_records(struct cursor *cursor, struct model *model, const struct spool_hooks *hooks)
{
    struct frame_records head;
    if (!take(cursor, &head, sizeof head))
        return;
    struct model_process *process = process_of(model, head.process);
    if (process)  // frames are aligned to 8, so the records may be used in place
        model_records(model, process, head.slot, head.first, (const struct sl_record *)(const void *)cursor->at,
                      cursor->left / sizeof(struct sl_record), -1, hooks ? hooks->on_call : NULL, hooks ? hooks->context : NULL);
}

static void apply_dropped(struct cursor *cursor, struct model *model)
{
    struct frame_dropped head;
    if (!take(cursor, &head, sizeof head))
        return;
    struct model_process *process = process_of(model, head.process);
    struct model_slot *slot = process ? model_slot(process, head.slot) : NULL;
    if (!slot || head.next <= slot->next)
        return;
    slot->next = head.next;
    slot->calls += head.calls;
    slot->ledger.lost[SL_LOST_SPOOL_FULL] += head.calls;
}

static void apply_thread(struct cursor *cursor, struct model *model)
{
    uint32_t zero;
    struct thread_facts facts;
    struct model_process *process = take_process(cursor, model, &zero);
    if (process && take(cursor, &facts, sizeof facts) && facts.name_length <= cursor->left)
        model_set_thread(process, &facts, cursor->at);
}

static void apply_task(struct cursor *cursor, struct model *model)
{
    uint32_t zero;
    struct task_facts facts;
    struct model_process *process = take_process(cursor, model, &zero);
    if (process && take(cursor, &facts, sizeof facts) && facts.name_length <= cursor->left &&
        facts.coro_name_length <= cursor->left - facts.name_length)
        model_set_task(model, process, &facts, cursor->at, cursor->at + facts.name_length);
}

static void apply_anchor(struct cursor *cursor, struct model *model, const struct spool_hooks *hooks)
{
    uint32_t kind, zero;
    struct anchor anchor;
    if (!take(cursor, &kind, sizeof kind) || !take(cursor, &zero, sizeof zero) || !take(cursor, &anchor, sizeof anchor))
        return;
    model->clock_kind = kind;
    ticks_add(&model->clock, &anchor);
    if (hooks && hooks->on_anchor)
        hooks->on_anchor(hooks->context, &anchor);
}

static void apply_ledger(struct cursor *cursor, struct model *model)
{
    uint32_t slot;
    struct ledger ledger;
    struct model_process *process = take_process(cursor, model, &slot);
    if (process && take(cursor, &ledger, sizeof ledger))
        model_restore_ledger(process, slot, &ledger);
}

static void apply_base(struct cursor *cursor, struct model *model)
{
    struct frame_base head;
    struct ledger base;
    if (!take(cursor, &head, sizeof head) || !take(cursor, &base, sizeof base))
        return;
    struct model_process *process = process_of(model, head.process);
    struct model_slot *slot = process && head.slot != FACTS_ELSEWHERE ? model_slot(process, head.slot) : NULL;
    if (slot) {
        slot->next = head.next;
        slot->owner = head.owner;
        slot->base = base;
    } else if (process && head.slot == FACTS_ELSEWHERE) {
        process->elsewhere_base = base;
    }
}

static void apply_open(struct cursor *cursor, struct model *model)
{
    uint32_t count;
    struct model_process *process = take_process(cursor, model, &count);
    if (process && count <= cursor->left / sizeof(struct open_facts))
        model_set_open(process, (const struct open_facts *)(const void *)cursor->at, count);
}

static void apply_status(struct cursor *cursor, struct model *model)
{
    uint32_t zero;
    struct process_status status;
    struct model_process *process = take_process(cursor, model, &zero);
    if (process && take(cursor, &status, sizeof status))
        model_set_status(process, &status);
}

static void apply_samples(struct cursor *cursor, struct model *model, const struct spool_hooks *hooks)
{
    uint32_t count;
    struct model_process *process = take_process(cursor, model, &count);
    if (!process || count > cursor->left / sizeof(struct sample_facts))
        return;
    const struct sample_facts *samples = (const struct sample_facts *)(const void *)cursor->at;
    for (uint32_t i = 0; i < count; i++) {
        struct model_thread *thread = model_thread(process, samples[i].thread);
        if (thread && !thread->facts.cpu_exact && samples[i].cpu_ns > thread->facts.cpu_ns)
            thread->facts.cpu_ns = samples[i].cpu_ns;
    }
    if (hooks && hooks->on_samples)
        hooks->on_samples(hooks->context, process, samples, count);
}

static void apply_paused(struct cursor *cursor, struct model *model)
{
    uint32_t paused;
    int64_t now_ns;
    struct model_process *process = take_process(cursor, model, &paused);
    if (process && take(cursor, &now_ns, sizeof now_ns))
        model_set_paused(process, paused != 0, now_ns);
}

void spool_apply(struct spool_reader *reader, struct model *model, const struct spool_frame *frame, const struct spool_hooks *hooks)
{
    struct cursor cursor = {frame->payload, frame->length};
    switch (frame->type) {
    case SPOOL_PROCESS:
        apply_process(&cursor, model);
        break;
    case SPOOL_STRING:
        apply_string(&cursor, model);
        break;
    case SPOOL_RECORDS:
        apply_records(&cursor, model, hooks);
        break;
    case SPOOL_THREAD:
        apply_thread(&cursor, model);
        break;
    case SPOOL_TASK:
        apply_task(&cursor, model);
        break;
    case SPOOL_ANCHOR:
        apply_anchor(&cursor, model, hooks);
        break;
    case SPOOL_LEDGER:
        apply_ledger(&cursor, model);
        break;
    case SPOOL_OPEN:
        apply_open(&cursor, model);
        break;
    case SPOOL_STATUS:
        apply_status(&cursor, model);
        break;
    case SPOOL_SAMPLES:
        apply_samples(&cursor, model, hooks);
        break;
    case SPOOL_DROPPED:
        apply_dropped(&cursor, model);
        break;
    case SPOOL_BASE:
        apply_base(&cursor, model);
        break;
    case SPOOL_PAUSED:
        apply_paused(&cursor, model);
        break;
    case SPOOL_END:
        take(&cursor, &reader->end_ns, sizeof reader->end_ns);
        break;
    case SPOOL_RUN:
        break;
    }
}
