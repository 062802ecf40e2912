// The service: one instance per runtime directory, its sockets, timers and signals.
//
// One instance: a lock on a file that is never unlinked (who unlinks it lets two daemons hold two locks of one name). The kernel
// drops the lock with the process, so after kill -9 the next daemon takes over at once; a stale socket is replaced when
// it is ours and a socket.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rundir.h"
#include "base/say.h"
#include "base/testpoint.h"
#include "core/guard.h"
#include "proto/hello.h"
#include "services/daemon.h"
#include "services/follow.h"
#include "services/http.h"
#include "services/manager.h"
#include "services/pacing.h"
#include "services/watchdog.h"

enum {
    SAMPLE_PERIOD_MS = 100,
    SAMPLE_SHARE = 333,          // sampling takes at most one part in so many of a core
    END_DEADLINE_MS = 60000,
    FOLLOWERS_PATIENCE_MS = 1000,
    PRIVATE_PATIENCE_MS = 30000,  // for the first command of a private daemon
};

// ---- what it opens

static int take_lock(struct daemon *daemon)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/lock", daemon->rundir);
    daemon->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (daemon->lock_fd < 0) {
        say("cannot open the lock %s: %s", path, strerror(errno));
        return -errno;
    }
    if (flock(daemon->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        say("cannot serve %s: another scoped-laned does (it holds %s)", daemon->rundir, path);
        return -EBUSY;
    }
    TESTPOINT(lock_taken);
    return 0;
}

// What a killed daemon left is replaced; anything else under that name is not ours to remove.
static int clear_place(const char *path)
{
    struct stat status;
    if (lstat(path, &status) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(status.st_mode) || status.st_uid != geteuid()) {
        say("cannot listen on %s: something else lies there", path);
        return -EEXIST;
    }
    return unlink(path) < 0 ? -errno : 0;
}

// The service manager's socket, where it has one, else our own.
static int listen_on(struct daemon *daemon, const char *name, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (rundir_socket(daemon->rundir, name, address.sun_path, sizeof address.sun_path) < 0) {
        say("cannot listen on %s/%s: the path is too long for a socket (%zu bytes, at most 107)", daemon->rundir, name,
            strlen(daemon->rundir) + 1 + strlen(name));
        return -ENAMETOOLONG;
    }
    int given = manager_socket(type, address.sun_path);
    if (given != -ENOENT) {
        daemon->sockets_given = given >= 0;
        return given;
    }
    int result = clear_place(address.sun_path);
    if (result < 0)
        return result;
    int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    mode_t mask = umask(geteuid() == 0 ? 0 : 0077);  // root serves everyone who can reach its directory
    result = bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, SOMAXCONN) < 0 ? -errno : 0;
    umask(mask);
    if (result < 0) {
        say("cannot listen on %s: %s", address.sun_path, strerror(-result));
        close(fd);
        return result;
    }
    TESTPOINT(socket_bound);
    return fd;
}

// Both paths are looked at before anything is made.
static int check_paths(const struct daemon *daemon)
{
    char path[108];
    if (rundir_socket(daemon->rundir, SL_REGISTER_SOCKET, path, sizeof path) == 0)
        return 0;
    say("cannot listen on %s/" SL_REGISTER_SOCKET ": the path is too long for a socket (%zu bytes, at most 107)", daemon->rundir,
        strlen(daemon->rundir) + sizeof SL_REGISTER_SOCKET);
    return -ENAMETOOLONG;
}

static int open_directory(struct daemon *daemon)
{
    struct rundir_list places;
    rundir_places(&places, daemon->settings.rundir);
    if (places.count == 1) {
        snprintf(daemon->rundir, sizeof daemon->rundir, "%s", places.paths[0]);
        int result = check_paths(daemon);
        if (result < 0)
            return result;
    }
    int result = rundir_own(daemon->settings.rundir, daemon->rundir);
    if (result < 0) {
        say("cannot use the runtime directory %s: %s", daemon->rundir, strerror(-result));
        return result;
    }
    return check_paths(daemon);
}

// ---- timers

static void on_pump(uv_timer_t *timer);
static void on_pump_again(uv_idle_t *idle);

// At once is not a timer of 0 ms: libuv would run it again and again before it looks at any socket or signal.
static void pump(struct daemon *daemon)
{
    pump_all(daemon);
    sampler_run_busy(daemon);
    if (daemon->pump_busy || daemon->pump_unfinished) {
        uv_idle_start(&daemon->pump_idle, on_pump_again);
        return;
    }
    uv_idle_stop(&daemon->pump_idle);
    uv_timer_start(&daemon->pump_timer, on_pump, daemon->pump_period_ms, 0);
}

// The eventfd is shared with clients, who can clear O_NONBLOCK on it: a plain read could hang.
static void on_wake(uv_poll_t *poll, int status, int events)
{
    struct daemon *daemon = poll->data;
    uint64_t count;
    struct iovec room = {&count, sizeof count};
    (void)status;
    (void)events;
    if (preadv2(daemon->eventfd, &room, 1, -1, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP && read(daemon->eventfd, &count, sizeof count) < 0)
        return;
    daemon->pump_period_ms = 1;
    pump(daemon);  // which also moves the timer up: clients that were found busy do not wake us again
}

static void on_pump(uv_timer_t *timer)
{
    pump(timer->data);
}

static void on_pump_again(uv_idle_t *idle)
{
    pump(idle->data);
}

// What the sampling took is processor time: a daemon that was kept from running has not worked. Is there nothing left to do now?
static bool sample(struct daemon *daemon)
{
    int64_t now_ns = clock_monotonic_ns(), before_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    if (now_ns < daemon->sample_due_ns)
        return true;
    bool is_over = sampler_run(daemon);
    daemon->sample_cpu_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns;
    if (!is_over)
        return false;
    daemon->sample_due_ns = now_ns + daemon->sample_cpu_ns * SAMPLE_SHARE;
    daemon->sample_cpu_ns = 0;
    return true;
}

static void on_sample(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    bool is_over = sample(daemon);
    int64_t now_ns = clock_monotonic_ns();
    if (is_over || now_ns - daemon->checked_ns >= SAMPLE_PERIOD_MS * INT64_C(1000000)) {
        daemon->checked_ns = now_ns;
        clients_check(daemon);
        runs_check(daemon);
        watchdog_run(daemon);
        pacing_run(daemon);
    }
    uv_timer_start(timer, on_sample, is_over ? SAMPLE_PERIOD_MS : 1, 0);
}

static void add_anchor(struct daemon *daemon)
{
    struct anchor now = ticks_now(daemon->clock_kind);
    ticks_add(&daemon->clock, &now);
    for (struct run *run = daemon->runs; run; run = run->next)
        if (run->state == RUN_RECORDING && ticks_add(&run->model.clock, &now))
            spool_put_anchor(&run->spool, daemon->clock_kind, &now);
}

static bool private_is_done(const struct daemon *daemon, int64_t now_ns)
{
    if (!daemon->options.private_mode)
        return false;
    if (!daemon->had_member)
        return now_ns - daemon->started_ns > PRIVATE_PATIENCE_MS * INT64_C(1000000);
    return !daemon->clients && runs_settled(daemon);
}

static void on_second(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    add_anchor(daemon);
    registration_drop_silent();
    scan_run(daemon);
    leftovers_bound(daemon);
    restore_check(daemon);
    runs_forget(daemon);
    pause_check(daemon);
    manager_alive();
    if (daemon->options.salvage || (!daemon->ending && private_is_done(daemon, clock_monotonic_ns())))
        service_end(daemon);
}

// ---- the end

static void close_handle(uv_handle_t *handle, void *context)
{
    (void)context;
    if (!uv_is_closing(handle) && handle->type != UV_PROCESS && handle->type != UV_NAMED_PIPE)
        uv_close(handle, NULL);
}

static void unlink_socket(const struct daemon *daemon, const char *name)
{
    char path[108];
    if (!daemon->sockets_given && rundir_socket(daemon->rundir, name, path, sizeof path) == 0)
        unlink(path);
}

// They hear the last of it, unless they are slow.
static bool followers_have_gone(struct daemon *daemon)
{
    int64_t now_ns = clock_monotonic_ns();
    if (daemon->followers_until_ns == 0) {
        follow_end(daemon);
        daemon->followers_until_ns = now_ns + FOLLOWERS_PATIENCE_MS * INT64_C(1000000);
    }
    return !daemon->followers || now_ns > daemon->followers_until_ns;
}

static void on_end_timer(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    bool converting = false;
    manager_alive();
    for (const struct run *run = daemon->runs; run; run = run->next)
        converting |= run->state == RUN_CONVERTING;
    if (converting && clock_monotonic_ns() < daemon->end_deadline_ns)
        return;
    if (converting) {
        say("a run file is not finished after %d s: its spool is kept", END_DEADLINE_MS / 1000);
        daemon->exit_status = 1;
    }
    if (!followers_have_gone(daemon))
        return;
    http_close(daemon->http);
    daemon->http = NULL;
    unlink_socket(daemon, SL_QUERY_SOCKET);
    TESTPOINT(sockets_removed);
    uv_timer_stop(timer);
    uv_stop(&daemon->loop);
}

// Final drain, seal, convert; query.sock answers until that is done.
void service_end(struct daemon *daemon)
{
    if (daemon->ending)
        return;
    daemon->ending = true;
    manager_stopping();
    daemon->end_deadline_ns = clock_monotonic_ns() + END_DEADLINE_MS * INT64_C(1000000);
    uv_timer_stop(&daemon->pump_timer);
    uv_idle_stop(&daemon->pump_idle);
    uv_timer_stop(&daemon->second_timer);
    unlink_socket(daemon, SL_REGISTER_SOCKET);
    scan_run(daemon);
    clients_check(daemon);
    for (struct run *run = daemon->runs; run; run = run->next)
        runs_finish(run);
    clients_close_all(daemon);
    TESTPOINT(service_sealed);
    uv_timer_start(&daemon->sample_timer, on_end_timer, 1, 10);
}

// ---- the configuration, read again

static void say_kept(const struct setting *setting)
{
    say("the setting %s changes when the daemon is started again", setting->name);
}

static void take_configuration(struct daemon *daemon)
{
    struct settings fresh;
    char problem[SETTINGS_PROBLEM];
    settings_init(&fresh);
    if (settings_read(&fresh, daemon->options.config, problem) < 0 || settings_check(&fresh, problem) < 0) {
        say("%s; going on with the settings as they were", problem);
        settings_finish(&fresh);
        return;
    }
    settings_take(&daemon->settings, &fresh, say_kept);
    say_verbose = daemon->settings.verbose;
    say("read the configuration %s again", daemon->options.config);
}

static void reload(struct daemon *daemon)
{
    if (daemon->ending)
        return;
    manager_reloading();
    if (daemon->options.config)
        take_configuration(daemon);
    else
        say("there is no configuration file to be read again");
    manager_ready(daemon->rundir);
}

static void on_signal(uv_signal_t *handle, int number)
{
    struct daemon *daemon = handle->data;
    if (number == SIGHUP) {
        reload(daemon);
        return;
    }
    if (daemon->ending && number == SIGINT) {
        say("interrupted again: ending at once, spools are kept");
        _exit(1);
    }
    service_end(daemon);
}

// ---- start

static int start_timers(struct daemon *daemon)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    uv_timer_t *timers[] = {&daemon->pump_timer, &daemon->sample_timer, &daemon->second_timer};
    for (size_t i = 0; i < 3; i++) {
        uv_timer_init(&daemon->loop, timers[i]);
        timers[i]->data = daemon;
        uv_signal_init(&daemon->loop, &daemon->signals[i]);
        daemon->signals[i].data = daemon;
        int result = uv_signal_start(&daemon->signals[i], on_signal, numbers[i]);
        if (result < 0)
            return result;
    }
    uv_idle_init(&daemon->loop, &daemon->pump_idle);
    daemon->pump_idle.data = daemon;
    daemon->pump_period_ms = 1;
    uv_timer_start(&daemon->pump_timer, on_pump, 1, 0);
    uv_timer_start(&daemon->sample_timer, on_sample, SAMPLE_PERIOD_MS, 0);
    uv_timer_start(&daemon->second_timer, on_second, 0, 1000);
    return 0;
}

static int open_sockets(struct daemon *daemon)
{
    int fd = listen_on(daemon, SL_REGISTER_SOCKET, SOCK_SEQPACKET);
    int result = fd < 0 ? fd : registration_listen(daemon, fd);
    if (result < 0)
        return result;
    fd = listen_on(daemon, SL_QUERY_SOCKET, SOCK_STREAM);
    result = fd < 0 ? fd : query_listen(daemon, fd);
    if (result < 0)
        unlink_socket(daemon, SL_REGISTER_SOCKET);
    return result;
}

static int open_wake(struct daemon *daemon)
{
    static uv_poll_t poll;
    daemon->eventfd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (daemon->eventfd < 0)
        return -errno;
    daemon->wake_poll = &poll;
    int result = uv_poll_init(&daemon->loop, daemon->wake_poll, daemon->eventfd);
    daemon->wake_poll->data = daemon;
    return result < 0 ? result : uv_poll_start(daemon->wake_poll, UV_READABLE, on_wake);
}

static void tell_ready(struct daemon *daemon)
{
    say("ready: serving %s", daemon->rundir);
    if (daemon->options.ready_fd >= 0) {
        if (write(daemon->options.ready_fd, "", 1) < 0)
            say_detail("nobody waits to hear that we are ready: %s", strerror(errno));
        close(daemon->options.ready_fd);
    }
    manager_ready(daemon->rundir);
}

static int start(struct daemon *daemon)
{
    int result = open_directory(daemon);
    if (result == 0)
        result = take_lock(daemon);
    if (result < 0)
        return result;
    gethostname(daemon->host, sizeof daemon->host - 1);
    daemon->clock_kind = ticks_machine_kind();
    ticks_init(&daemon->clock, 1024);
    add_anchor(daemon);
    guard_install();
    signal(SIGPIPE, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);  // whoever started us may have blocked what the loop lives on
    result = open_wake(daemon);
    if (result == 0)
        restore_runs(daemon);
    if (result == 0)
        result = open_sockets(daemon);
    if (result == 0)
        result = start_timers(daemon);
    return result;
}

// A private daemon's directory was made for its run alone.
static void remove_directory(const struct daemon *daemon)
{
    static const char *const names[] = {"log", "lock", "spools"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[4200];
        snprintf(path, sizeof path, "%s/%s", daemon->rundir, names[i]);
        if (unlink(path) < 0)
            rmdir(path);
    }
    rmdir(daemon->rundir);
}

int service_run(const struct daemon_options *options, const struct settings *settings)
{
    static struct daemon daemon;
    daemon.options = *options;
    daemon.settings = *settings;
    daemon.lock_fd = daemon.eventfd = -1;
    daemon.started_ns = clock_monotonic_ns();
    manager_init(!options->private_mode && !options->salvage);
    if (uv_loop_init(&daemon.loop) < 0 || start(&daemon) < 0)
        return 1;
    tell_ready(&daemon);
    TESTPOINT(ready_told);
    uv_run(&daemon.loop, UV_RUN_DEFAULT);
    uv_walk(&daemon.loop, close_handle, NULL);
    uv_run(&daemon.loop, UV_RUN_NOWAIT);
    runs_free_all(&daemon);
    ticks_finish(&daemon.clock);
    settings_finish(&daemon.settings);
    if (daemon.options.private_mode)
        remove_directory(&daemon);
    return daemon.exit_status;
}
