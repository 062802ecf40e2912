#include "services/converter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/testpoint.h"

static void finish(struct converter *converter)
{
    const char *words = converter->last_words.length ? converter->last_words.data : "the converter failed without a word";
    if (converter->signal_number)
        converter->problem = alloc_printf("the converter was ended by signal %d", converter->signal_number);
    else if (converter->exit_status)
        converter->problem = alloc_text(words);
    converter->run->converters--;
    if (converter->done)
        converter->done(converter, converter->context);
    buffer_finish(&converter->line);
    buffer_finish(&converter->last_words);
    free(converter->problem);
    free(converter);
}

// Done when both have closed: the process has ended, and all it said was read.
static void on_closed(uv_handle_t *handle)
{
    struct converter *converter = handle->data;
    if (--converter->open_handles == 0)
        finish(converter);
}

static void on_exit_of(uv_process_t *process, int64_t exit_status, int signal_number)
{
    struct converter *converter = process->data;
    converter->exit_status = exit_status;
    converter->signal_number = signal_number;
    uv_close((uv_handle_t *)process, on_closed);
}

static void give_room(uv_handle_t *handle, size_t suggested, uv_buf_t *room)
{
    static char text[4096];
    (void)handle;
    (void)suggested;
    *room = uv_buf_init(text, sizeof text);
}

// It prints lines: "progress 0.42", "calls N lost M", or why it failed.
static void take_line(struct converter *converter)
{
    const char *line = converter->line.data;
    unsigned long long calls, lost;
    if (sscanf(line, "progress %lf", &converter->progress) == 1)
        return;
    if (sscanf(line, "calls %llu lost %llu", &calls, &lost) == 2) {
        converter->calls = calls;
        converter->lost = lost;
        return;
    }
    buffer_clear(&converter->last_words);
    buffer_append(&converter->last_words, line, strlen(line) + 1);
}

static void on_words(uv_stream_t *stream, ssize_t length, const uv_buf_t *words)
{
    struct converter *converter = stream->data;
    for (ssize_t i = 0; i < length; i++) {
        char letter = words->base[i] == '\n' ? 0 : words->base[i];
        buffer_append(&converter->line, &letter, 1);
        if (letter)
            continue;
        take_line(converter);
        buffer_clear(&converter->line);
    }
    if (length < 0)
        uv_close((uv_handle_t *)stream, on_closed);
}

static int spawn(struct converter *converter, uint64_t spool_bytes, const char *output)
{
    const struct run *run = converter->run;
    char parent[16], up_to[24];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    snprintf(up_to, sizeof up_to, "%llu", (unsigned long long)spool_bytes);
    const char *words[] = {"scoped-laned", "--convert", run->spool.path, "--up-to", up_to, "--to", output, "--parent", parent,
                           "--schema", run->schema == 3 ? "3" : "2", run->compress ? "--compress" : NULL, NULL};
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&converter->words},
                                     {.flags = UV_INHERIT_FD, .data.fd = 2}};
    uv_process_options_t options = {.file = "/proc/self/exe", .args = (char **)(uintptr_t)words, .exit_cb = on_exit_of, .stdio = stdio,
                                    .stdio_count = 3};
    if (geteuid() == 0 && run->uid != 0) {
        options.uid = run->uid;
        options.gid = run->gid;
        options.flags = UV_PROCESS_SETUID | UV_PROCESS_SETGID;
    }
    return uv_spawn(&run->daemon->loop, &converter->process, &options);
}

// Nothing has started: the handles close, and nobody is told.
static void give_up(struct converter *converter)
{
    converter->done = NULL;
    uv_close((uv_handle_t *)&converter->process, on_closed);
    uv_close((uv_handle_t *)&converter->words, on_closed);
}

int converter_start(struct run *run, uint64_t spool_bytes, const char *output, void (*done)(struct converter *, void *), void *context,
                    struct converter **converter)
{
    struct converter *made = alloc_zeroed(1, sizeof *made);
    made->run = run;
    made->done = done;
    made->context = context;
    made->open_handles = 2;
    uv_pipe_init(&run->daemon->loop, &made->words, 0);
    made->process.data = made->words.data = made;
    run->converters++;
    int result = spawn(made, spool_bytes, output);
    TESTPOINT(converter_started);
    if (result == 0)
        result = uv_read_start((uv_stream_t *)&made->words, give_room, on_words);
    if (result < 0) {
        give_up(made);
        return result;
    }
    *converter = made;
    return 0;
}
