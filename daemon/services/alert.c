// What an alert does: the roll call in a file beside the run file, written on another thread and with the run owner's rights; then the
// command of the administrator, and a word to all who listen.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/say.h"
#include "services/follow.h"
#include "services/watchdog.h"

enum { FILES_PER_RUN = 100, COMMANDS_AT_ONCE = 4, ROWS = 1000, BYTES = 4 << 20 };

extern char **environ;

struct alert {
    uv_work_t work;
    uv_process_t process;
    struct daemon *daemon;
    char run[17], *output;
    uid_t uid;
    gid_t gid;
    uint32_t lanes;
    char *path;          // of the roll call; NULL: there is none
    struct buffer text;
    int error;
};

static void alert_free(struct alert *alert)
{
    buffer_finish(&alert->text);
    free(alert->output);
    free(alert->path);
    free(alert);
}

// ---- the roll call

static void rows_member(struct page *page, const char *key, void (*rows)(struct page *))
{
    page->count = 0;
    page->more = false;
    jsonw_key(page->json, key);
    jsonw_array(page->json);
    rows(page);
    page_finish(page);
    jsonw_array_end(page->json);
}

static void write_roll_call(struct run *run, uint32_t lanes, struct buffer *text)
{
    struct row_filter filter = {.run = run->id};
    struct json_writer json;
    struct page page = {.json = &json, .daemon = run->daemon, .filter = &filter, .sees_all = true, .limit = ROWS, .bytes_max = BYTES,
                        .now_ns = clock_monotonic_ns()};
    jsonw_init(&json, text);
    jsonw_object(&json);
    jsonw_member_text(&json, "schema", "scoped-lane/alert/1");
    jsonw_member_time(&json, "time_ns", page.now_ns);
    jsonw_member_id(&json, "realtime_ns", (uint64_t)clock_ns(CLOCK_REALTIME));
    jsonw_member_text(&json, "run", run->id);
    jsonw_member_text(&json, "file", run->output);
    jsonw_member_uint(&json, "lanes", lanes);
    rows_trust(&json, &page);
    rows_member(&page, "where", rows_where);
    rows_member(&page, "stuck", rows_stuck);
    jsonw_object_end(&json);
    buffer_append(text, "\n", 1);
}

// run.h5 → run.stuck-20261129T231500.json
static char *path_beside(const char *output)
{
    size_t length = strlen(output), stem = length > 3 && strcmp(output + length - 3, ".h5") == 0 ? length - 3 : length;
    char when[32];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(when, sizeof when, "%Y%m%dT%H%M%S", &local);
    return alloc_printf("%.*s.stuck-%s.json", (int)stem, output, when);
}

static void write_file(uv_work_t *work)
{
    struct alert *alert = work->data;
    run_rights_take(alert->uid, alert->gid);
    int fd = open(alert->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    alert->error = fd < 0 ? errno : -files_write_all(fd, alert->text.data, alert->text.length);
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && alert->error)
        unlink(alert->path);
    run_rights_return();
}

// ---- the command

static void on_closed(uv_handle_t *handle)
{
    alert_free(handle->data);
}

static void on_exit_of(uv_process_t *process, int64_t exit_status, int signal_number)
{
    struct alert *alert = process->data;
    alert->daemon->alert_commands--;
    if (exit_status || signal_number)
        say("the stuck-command of run %s ended with %s %d", alert->run, signal_number ? "signal" : "status",
            signal_number ? signal_number : (int)exit_status);
    uv_close((uv_handle_t *)process, on_closed);
}

// Ours, and what the alert is about. The command's own programs are not recorded.
static char **make_environment(const struct alert *alert)
{
    size_t count = 0, kept = 0;
    while (environ[count])
        count++;
    char **variables = alloc_zeroed(count + 6, sizeof *variables);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "SCOPED_LANE=", 12) != 0 && strncmp(environ[i], "SCOPED_LANE_ALERT_", 18) != 0)
            variables[kept++] = alloc_text(environ[i]);
    variables[kept++] = alloc_text("SCOPED_LANE=off");
    variables[kept++] = alloc_printf("SCOPED_LANE_ALERT_RUN=%s", alert->run);
    variables[kept++] = alloc_printf("SCOPED_LANE_ALERT_RUN_FILE=%s", alert->output);
    variables[kept++] = alloc_printf("SCOPED_LANE_ALERT_LANES=%u", alert->lanes);
    variables[kept++] = alloc_printf("SCOPED_LANE_ALERT_FILE=%s", alert->path ? alert->path : "");
    return variables;
}

static int spawn(struct alert *alert)
{
    const char *words[] = {"sh", "-c", alert->daemon->settings.stuck_command, NULL};
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE}, {.flags = UV_INHERIT_FD, .data.fd = 2}, {.flags = UV_INHERIT_FD, .data.fd = 2}};
    char **variables = make_environment(alert);
    uv_process_options_t options = {.file = "/bin/sh", .args = (char **)(uintptr_t)words, .env = variables, .exit_cb = on_exit_of,
                                    .stdio = stdio, .stdio_count = 3};
    int result = uv_spawn(&alert->daemon->loop, &alert->process, &options);
    for (size_t i = 0; variables[i]; i++)
        free(variables[i]);
    free(variables);
    return result;
}

static void run_command(struct alert *alert)
{
    if (!alert->daemon->settings.stuck_command) {
        alert_free(alert);
        return;
    }
    if (alert->daemon->alert_commands >= COMMANDS_AT_ONCE) {
        say("the stuck-command is not run for run %s: %d of them run already", alert->run, COMMANDS_AT_ONCE);
        alert_free(alert);
        return;
    }
    alert->process.data = alert;
    alert->daemon->alert_commands++;
    int result = spawn(alert);
    if (result == 0)
        return;
    alert->daemon->alert_commands--;
    say("cannot run the stuck-command: %s", uv_strerror(result));
    uv_close((uv_handle_t *)&alert->process, on_closed);
}

// ---- all of it

static void tell(struct alert *alert)
{
    say("run %s: %u lanes are stuck%s%s", alert->run, alert->lanes, alert->path ? ", the roll call is in " : "",
        alert->path ? alert->path : "");
    const struct run *run = runs_find(alert->daemon, alert->run, 0);
    struct json_writer *json = run ? follow_begin(run, "alert") : NULL;
    if (json) {
        jsonw_member_uint(json, "lanes", alert->lanes);
        jsonw_member_text(json, "file", alert->path);
        follow_tell(run, NULL);
    }
    run_command(alert);
}

static void on_written(uv_work_t *work, int status)
{
    struct alert *alert = work->data;
    (void)status;
    if (alert->error) {
        say("cannot write the roll call %s: %s", alert->path, strerror(alert->error));
        free(alert->path);
        alert->path = NULL;
    }
    tell(alert);
}

void alert_raise(struct run *run, uint32_t lanes)
{
    struct daemon *daemon = run->daemon;
    struct alert *alert = alloc_zeroed(1, sizeof *alert);
    *alert = (struct alert){.daemon = daemon, .output = alloc_text(run->output), .uid = run->uid, .gid = run->gid, .lanes = lanes};
    memcpy(alert->run, run->id, sizeof alert->run);
    alert->work.data = alert;
    daemon->alerts++;
    if (run->alerts++ >= FILES_PER_RUN) {
        tell(alert);
        return;
    }
    alert->path = path_beside(run->output);
    write_roll_call(run, lanes, &alert->text);
    uv_queue_work(&daemon->loop, &alert->work, write_file, on_written);
}
