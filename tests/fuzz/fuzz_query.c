// Hostile requests at the query socket: what follows "GET " in a request, parsed by the server, routed, its parameters read, and answered
// from the tables of a run. Nothing is posted: that would make files where the request says.
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "services/daemon.h"

enum { TURNS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct daemon server;
static struct run made;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t length;

static void name(struct model_process *process, uint32_t type, uint32_t id, const char *text)
{
    model_string(&made.model, process, type, id, text, strlen(text), "file.c", 6, 1);
}

// A process that lives no more: with regions, a thread, tasks, an open call, a loss, and an exit without an enter.
static void add_process(int64_t rank)
{
    struct process_facts facts = {.pid = 100 + (uint32_t)rank, .rank = rank};
    struct process_status status = {.state = PROCESS_KILLED, .rank = rank, .last_event = 900};
    struct thread_facts thread = {.name_length = 4, .start = 1, .slot = 0};
    struct open_facts open = {.task = SL_TASK_NONE, .region = 1, .start = 800};
    struct ledger ledger = {.produced = 4, .lost = {1}};
    struct model_process *process = model_add_process(&made.model, &facts);
    process->host = alloc_text("host");
    model_set_status(process, &status);
    name(process, SL_STRING_REGION, 1, "step");
    name(process, SL_STRING_REGION, 2, "odd \" \\ \n name");
    name(process, SL_STRING_WORD, 1, "fiber");
    model_set_thread(process, &thread, "main");
    for (uint32_t i = 0; i < 3; i++) {
        struct task_facts task = {.index = i, .kind = 1, .created = 1, .done = i, .steps = 2, .name_length = 1, .coro_name_length = 1};
        model_set_task(&made.model, process, &task, "t", "c");
    }
    const struct sl_record records[] = {
        {{1, sl_record_word1(SL_THREAD, 0), 0, sl_record_word3(0, 0, 0)}},
        {{100, sl_record_word1(SL_CALL, 50), sl_record_word2(2, 0), sl_record_word3(2, 1, SL_TASK_NONE)}},
        {{200, sl_record_word1(SL_CALL, 700), sl_record_word2(1, 0), sl_record_word3(1, 0, 1)}},
        {{300, sl_record_word1(SL_UNMATCHED, 0), sl_record_word2(1, 0), sl_record_word3(1, 0, SL_TASK_NONE)}},
    };
    model_records(&made.model, process, 0, 0, records, 4, -1, NULL, NULL);
    model_set_ledger(process, 0, &ledger);
    model_set_open(process, &open, 1);
}

static void start(void)
{
    // An abstract name: nothing is left of it.
    length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                         (size_t)snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "fuzz-query.%d", (int)getpid()));
    uv_loop_init(&server.loop);
    settings_init(&server.settings);
    ticks_init(&server.clock, 16);
    made = (struct run){.daemon = &server, .number = 1, .id = "00c0ffee00c0ffee", .key = "0:own:1", .output = "/nowhere.h5", .part = 1};
    model_init(&made.model, SL_CLOCK_MONOTONIC, 16, 0);
    made.model.octaves_kept = 64;
    server.runs = &made;
    for (int64_t rank = 0; rank < 3; rank++)
        add_process(rank);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, 16) < 0 || query_listen(&server, fd) < 0)
        abort();
}

static int connect_to_server(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, length) < 0)
        abort();
    return fd;
}

static void turn(void)
{
    uv_run(&server.loop, UV_RUN_NOWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int started;
    if (!started++)
        start();
    if (size > 16384 || memmem(data, size, "POST", 4))
        return 0;
    struct buffer request = {0};
    char reply[65536];
    buffer_text(&request, "GET ");
    buffer_append(&request, data, size);
    buffer_text(&request, " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    int fd = connect_to_server();
    ssize_t sent = send(fd, request.data, request.length, MSG_NOSIGNAL), got = -1;
    (void)sent;
    for (int i = 0; i < TURNS && got != 0; i++) {
        turn();
        got = recv(fd, reply, sizeof reply, MSG_DONTWAIT);
    }
    close(fd);
    for (int i = 0; i < 4; i++)
        turn();
    buffer_finish(&request);
    return 0;
}
