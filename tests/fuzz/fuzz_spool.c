// A spool of hostile bytes, read into a model. Where the first byte is odd the rest is the file as it stands; else it is a list of
// frames (type, two bytes of length, payload), to which the headers with their checksums are made here, so that what lies
// behind them is reached.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/files.h"
#include "storage/spool-frame.h"
#include "storage/spool.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_frames(struct buffer *file, const uint8_t *data, size_t size)
{
    struct spool_header header = {.version = SPOOL_VERSION};
    memcpy(header.magic, "SLSPOOL1", sizeof header.magic);
    buffer_append(file, &header, sizeof header);
    while (size >= 3) {
        size_t length = (size_t)(data[1] | data[2] << 8) % (size - 2);
        struct frame_header frame = {.marker = FRAME_MARKER, .type = data[0], .length = (uint32_t)length};
        frame.crc = frame_crc(&frame, data + 3);
        buffer_append(file, &frame, sizeof frame);
        buffer_append(file, data + 3, length);
        buffer_append(file, "\0\0\0\0\0\0\0", FRAME_ALIGN(length) - length);
        data += 3 + length, size -= 3 + length;
    }
}

static uint64_t seen;

static void on_call(void *context, struct model_process *process, const struct model_call *call)
{
    (void)context, (void)process;
    seen += call->end - call->start + call->await;
}

static void on_samples(void *context, struct model_process *process, const struct sample_facts *samples, uint32_t count)
{
    (void)context, (void)process;
    for (uint32_t i = 0; i < count; i++)
        seen += samples[i].cpu_ns;
}

static void on_anchor(void *context, const struct anchor *anchor)
{
    (void)context;
    seen += anchor->ticks;
}

static void look_at(struct model *model)
{
    model_give_ranks(model);
    for (uint32_t i = 0; i < model->process_count; i++) {
        struct model_process *process = model->processes[i];
        struct ledger ledger = model_ledger(process);
        seen += model_lost(&ledger) + model_calls(process) + (uint64_t)process->file_rank;
        for (uint32_t j = 0; j < process->open_count; j++)
            seen += model_is_published(process, &process->open[j]) + strlen(model_region_name(model, model_region(process, process->open[j].region)));
        seen += (uint64_t)model_time_ns(model, process, process->status.last_event);
        seen += (uint64_t)model_length_ns(model, process, process->facts.created_ticks);
    }
}

static char path[64];

static void remove_file(void)
{
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    static const struct spool_hooks hooks = {on_call, on_samples, on_anchor, NULL};
    if (fd < 0) {
        snprintf(path, sizeof path, "/dev/shm/sl-fuzz-spool-%d", (int)getpid());
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0 || atexit(remove_file) != 0)
            abort();
    }
    if (!size)
        return 0;
    struct buffer file = {0};
    if (data[0] & 1)
        buffer_append(&file, data + 1, size - 1);
    else
        make_frames(&file, data + 1, size - 1);
    if (ftruncate(fd, 0) < 0 || lseek(fd, 0, SEEK_SET) < 0 || files_write_all(fd, file.data, file.length) < 0)
        abort();
    struct spool_reader reader;
    if (spool_open(&reader, path) == 0) {
        struct model model;
        struct spool_frame frame;
        model_init(&model, SL_CLOCK_TSC, 0, 0);
        model.octaves_kept = 16;
        while (spool_next(&reader, &frame))
            spool_apply(&reader, &model, &frame, &hooks);
        look_at(&model);
        model_finish(&model);
        spool_reader_close(&reader);
    }
    buffer_finish(&file);
    return 0;
}
