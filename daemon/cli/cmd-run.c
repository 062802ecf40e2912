// scoped-lane run: starts a command and has it recorded; by the service where one listens, else by a private daemon.
//
// The daemon keeps a run open for each `scoped-lane run` that has joined it, so inside a launcher (mpirun -n 4 scoped-lane
// run ./app) the ranks' commands share one key, one private daemon and one file: the first takes the lock, the others join. A
// private daemon lives in <runtime directory>/run-<key>, where `scoped-lane ps` in another terminal finds it, and ends by
// itself when those who wait for it have gone.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/rundir.h"
#include "base/say.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/places.h"

enum {
    START_PATIENCE_MS = 10000,
    POLL_PERIOD_MS = 20,
    POLL_MEMBERS = 8,  // so many commands ask in that period, more in a longer one
    DYING_MS = 100,
    REFUSALS_MAX = 5,
    AHEAD_NICE = -10,
    GUARD_PERIOD_MS = 1000,   // how often a private daemon is looked after while the command runs
    CANNOT_RUN = 126,
    NOT_FOUND = 127,
};

static const struct command_option options[] = {
    COMMAND_OPTION_OUTPUT("the run file to write (default: scoped-lane.h5)"),
    {.name = "schema", .argument = "2|3", .kind = COMMAND_INTEGER, .help = "of the run file: absolute times (default), or gaps and durations"},
    {.name = "compress", .help = "compress the run file"},
    {.name = "require-complete", .help = "fail when calls are missing from the run file"},
    {.name = "all-threads", .help = "know each thread from its start, also one that records nothing"},
    {.name = "mpi", .help = "record MPI calls as regions, whether the program knows of scoped-lane or not"},
    COMMAND_OPTION_RUNDIR,
    {0},
};

struct session {
    const char *rundir_option;
    char output[OUTPUT_PATH_MAX];
    char key[64];
    int members;             // commands a launcher starts beside us
    int64_t schema;
    bool compress;
    bool require_complete;
    char *preload;           // the new LD_PRELOAD; NULL: as it is
    char rundir[RUNDIR_PATH_MAX];
    bool is_private;
    bool is_first;           // we started the daemon, or are the first to join at the service: the one who reports
    char run[32];            // its id at the daemon
    char first_run[32];      // that of the first daemon, before one was killed
    pid_t child;             // the command, when it has ended
    int exit_status;         // of it, -signal
};

// ---- which daemon

static uint64_t hash_text(uint64_t hash, const char *text)
{
    while (*text)
        hash = (hash ^ (unsigned char)*text++) * UINT64_C(0x100000001b3);
    return hash;
}

// Inside a launcher all ranks find the same key; else it is new.
static void settle_key(struct session *session)
{
    const char *namespace = getenv("PMIX_NAMESPACE"), *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    const char *size = getenv("OMPI_COMM_WORLD_SIZE") ? getenv("OMPI_COMM_WORLD_SIZE") : getenv("SLURM_NTASKS");
    static const char *const servers[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"};
    uint64_t key = UINT64_C(0xcbf29ce484222325);
    session->members = 1;
    if (namespace && *namespace) {
        key = hash_text(key, namespace);
        for (size_t i = 0; i < sizeof servers / sizeof *servers; i++)
            if (getenv(servers[i]))
                key = hash_text(key, getenv(servers[i]));
    } else if (job && step) {
        key = hash_text(hash_text(hash_text(key, job), "."), step);
    } else if (getrandom(&key, sizeof key, 0) != sizeof key) {
        key = (uint64_t)clock_monotonic_ns() << 20 ^ (uint64_t)getpid();
    }
    if (((namespace && *namespace) || (job && step)) && size)
        session->members = atoi(size) > 0 ? atoi(size) : 1;
    snprintf(session->key, sizeof session->key, "%016" PRIx64, key);
}

static bool find_service(struct session *session)
{
    struct rundir_list places;
    rundir_places(&places, session->rundir_option);
    for (int i = 0; i < places.count; i++)
        if (places_listens(places.paths[i])) {
            snprintf(session->rundir, sizeof session->rundir, "%s", places.paths[i]);
            return true;
        }
    return false;
}

// The recorder gets the processor before the command, which may have more threads that want one than there are: by its priority where we may
// raise it, not for the processes that it starts; else by a session of its own, since Linux shares processors among sessions (autogroup)
// where no cgroups do. Not by both: Linux 6.18 keeps sessions waiting beside others that yield all the time (doctor-machine.c). Either way
// what ends the command's process group, Ctrl-C above all, leaves the recorder alone.
static void go_ahead(void)
{
    struct sched_param parameters;
    errno = 0;
    if (nice(AHEAD_NICE) == -1 && errno) {
        setsid();
        return;
    }
    setpgid(0, 0);
    if (sched_getparam(0, &parameters) == 0)
        sched_setscheduler(0, sched_getscheduler(0) | SCHED_RESET_ON_FORK, &parameters);
}

static pid_t spawn_daemon(const char *rundir, int ready)
{
    char number[16], *program = places_daemon_program();
    snprintf(number, sizeof number, "%d", ready);
    pid_t pid = fork();
    if (pid != 0) {
        free(program);
        return pid;
    }
    go_ahead();
    char *log = alloc_printf("%s/log", rundir);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), null = open("/dev/null", O_RDWR);
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(out >= 0 ? out : null, STDERR_FILENO);
    fcntl(ready, F_SETFD, 0);
    execlp(program, "scoped-laned", "--private", "--rundir", rundir, "--ready-fd", number, (char *)NULL);
    _exit(NOT_FOUND);
}

// The daemon's last words, when it could not start.
static void show_log(const char *rundir)
{
    struct buffer text = {0};
    char *log = alloc_printf("%s/log", rundir);
    if (files_read_all(log, &text) == 0 && text.length) {
        buffer_append(&text, "", 1);
        fputs(text.data, stderr);
    }
    buffer_finish(&text);
    free(log);
}

// True once the daemon said it is ready; false when it ended before, as it does when another one holds the lock.
static bool start_daemon(struct session *session)
{
    int ready[2];
    char word;
    if (pipe2(ready, O_CLOEXEC) < 0)
        return false;
    pid_t pid = spawn_daemon(session->rundir, ready[1]);
    close(ready[1]);
    struct pollfd wait_for = {.fd = ready[0], .events = POLLIN};
    bool started = pid > 0 && poll(&wait_for, 1, START_PATIENCE_MS) > 0 && read(ready[0], &word, 1) == 1;
    close(ready[0]);
    if (!started && pid > 0)
        waitpid(pid, NULL, 0);
    return started;
}

static int open_private(struct session *session)
{
    char place[RUNDIR_PATH_MAX];
    int result = rundir_own(session->rundir_option, place);
    if (result < 0) {
        say("cannot use the runtime directory %s: %s", place, strerror(-result));
        return -1;
    }
    int length = snprintf(session->rundir, sizeof session->rundir, "%s/run-%s", place, session->key);
    if (length < 0 || (size_t)length >= sizeof session->rundir) {
        say("cannot use the runtime directory %s: %s", place, strerror(ENAMETOOLONG));
        return -1;
    }
    session->is_private = true;
    int64_t deadline_ns = clock_monotonic_ns() + START_PATIENCE_MS * INT64_C(1000000);
    while (clock_monotonic_ns() < deadline_ns) {
        if (places_listens(session->rundir))
            return 0;
        if (mkdir(session->rundir, 0700) < 0 && errno != EEXIST)
            break;
        if (start_daemon(session)) {
            session->is_first = true;
            return 0;
        }
        poll(NULL, 0, POLL_PERIOD_MS);  // another rank's daemon is starting, or has just ended
    }
    say("cannot start a daemon in %s", session->rundir);
    show_log(session->rundir);
    return -1;
}

// ---- talking to it

// Asks the one daemon; the first row of its reply, or NULL with the reason said.
static json_t *ask(const struct session *session, const char *path, bool post, char *parameters)
{
    struct client_query query = {.rundir = session->rundir, .path = path, .parameters = parameters, .post = post, .only = true};
    json_t *reply = NULL, *row = NULL;
    if (client_ask(&query, &reply) >= 0)
        row = json_incref(json_array_get(json_object_get(reply, "rows"), 0));
    json_decref(reply);
    free(parameters);
    return row;
}

static char *run_parameter(const struct session *session)
{
    return client_escape(alloc_text(""), "run", session->run);
}

static int join(struct session *session)
{
    char members[16];
    snprintf(members, sizeof members, "%d", session->members);
    char *parameters = client_escape(alloc_text(""), "run", session->key);
    parameters = client_escape(parameters, "output", session->output);
    parameters = client_escape(parameters, "schema", session->schema == 3 ? "3" : "2");
    parameters = client_escape(parameters, "compress", session->compress ? "1" : "0");
    parameters = client_escape(parameters, "again", session->run);
    json_t *row = ask(session, "/v1/join", true, client_escape(parameters, "members", members));
    if (!row)
        return -1;
    snprintf(session->run, sizeof session->run, "%s", json_string_value(json_object_get(row, "run")));
    if (!*session->first_run) {
        snprintf(session->first_run, sizeof session->first_run, "%s", session->run);
        session->is_first = session->is_private ? session->is_first : json_integer_value(json_object_get(row, "members")) == 1;
    }
    json_decref(row);
    return 0;
}

// A daemon that was killed: a service is somebody else's to start again, a private one is ours. The new one goes on with what the
// old one left. True when it is there.
static bool revive(struct session *session)
{
    int refused = 0;
    for (int waited_ms = 0; waited_ms < START_PATIENCE_MS && refused < REFUSALS_MAX; waited_ms += POLL_PERIOD_MS) {
        bool there = places_listens(session->rundir) || (session->is_private && start_daemon(session));
        if (there && join(session) == 0)
            return true;
        refused += there;  // or what listened was one that is dying
        poll(NULL, 0, POLL_PERIOD_MS);
    }
    return false;
}

// Whether the one that did not answer is dying shows a moment later.
static bool still_listens(const struct session *session)
{
    poll(NULL, 0, DYING_MS);
    return places_listens(session->rundir);
}

// ---- the command

// Our libraries lie in ../lib, seen from this program, installed as well as built. Adds one to those the command is started with.
static int preload(struct session *session, const char *option, const char *name)
{
    const char *before = session->preload ? session->preload : getenv("LD_PRELOAD");
    char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    for (int i = 0; i < 2; i++)
        *(strrchr(path, '/') ? strrchr(path, '/') : path) = 0;
    char *library = alloc_printf("%s/lib/%s", path, name);
    if (access(library, R_OK) < 0 || strpbrk(library, " :")) {
        say("run cannot do --%s: %s: %s", option, library, strpbrk(library, " :") ? "LD_PRELOAD takes no blank or colon" : strerror(errno));
        free(library);
        return -1;
    }
    char *all = before && *before ? alloc_printf("%s:%s", library, before) : alloc_text(library);
    free(session->preload);
    free(library);
    session->preload = all;
    return 0;
}

static int settle_preload(struct session *session, const struct command_line *line)
{
    if (command_given(line, "all-threads") && preload(session, "all-threads", "libscoped_lane_threads.so") < 0)
        return -1;
    return command_given(line, "mpi") ? preload(session, "mpi", "libscoped_lane_mpi.so") : 0;
}

static pid_t child;
static struct sigaction inherited[4];  // of SIGTERM, SIGHUP, SIGINT, SIGQUIT

static void pass_on(int number)
{
    if (child > 0)
        kill(child, number);
}

static void watch_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        // the terminal sends INT and QUIT to the command too: we wait for what it makes of them
        bool is_passed_on = numbers[i] == SIGTERM || numbers[i] == SIGHUP;
        struct sigaction action = {.sa_handler = is_passed_on ? pass_on : SIG_IGN, .sa_flags = SA_RESTART};
        sigaction(numbers[i], &action, &inherited[i]);
        if (inherited[i].sa_handler == SIG_IGN)  // nohup: it stays ignored
            sigaction(numbers[i], &inherited[i], NULL);
    }
}

static void restore_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaction(numbers[i], &inherited[i], NULL);
}

static void become(const struct session *session, char **words, int trouble)
{
    restore_signals();
    setenv("SCOPED_LANE_RUN", session->key, 1);
    setenv("SCOPED_LANE_RUNDIR", session->rundir, 1);
    if (session->preload)
        setenv("LD_PRELOAD", session->preload, 1);
    execvp(words[0], words);
    int error = errno;
    if (write(trouble, &error, sizeof error) < 0)
        _exit(NOT_FOUND);
    _exit(error == ENOENT ? NOT_FOUND : CANNOT_RUN);
}

// Waits for its end, and looks after the daemon meanwhile.
static int wait_for_child(struct session *session)
{
    static const struct timespec period = {GUARD_PERIOD_MS / 1000, GUARD_PERIOD_MS % 1000 * 1000000};
    int status;
    sigset_t ended;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    for (;;) {
        pid_t pid = waitpid(child, &status, WNOHANG);
        if (pid == child) {
            session->child = pid;
            session->exit_status = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
            return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        }
        if (sigtimedwait(&ended, NULL, &period) < 0 && errno == EAGAIN && !places_listens(session->rundir) && session->is_private)
            revive(session);
    }
}

// Runs it to its end; the status a shell would give.
static int run_command(struct session *session, char **words)
{
    int trouble[2], error;
    sigset_t ended, before;
    if (pipe2(trouble, O_CLOEXEC) < 0) {
        say("cannot start %s: %s", words[0], strerror(errno));
        return COMMAND_FAILED;
    }
    watch_signals();
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);  // taken by sigtimedwait
    sigprocmask(SIG_BLOCK, &ended, &before);
    child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        become(session, words, trouble[1]);
    }
    close(trouble[1]);
    if (child < 0 || read(trouble[0], &error, sizeof error) == sizeof error)
        say("cannot run %s: %s", words[0], strerror(child < 0 ? errno : error));
    close(trouble[0]);
    if (child < 0)
        return COMMAND_FAILED;
    int status = wait_for_child(session);
    child = 0;
    return status;
}

// ---- the outcome

static void draw_progress(double part)
{
    enum { WIDTH = 40 };
    int done = (int)(part * WIDTH);
    fprintf(stderr, "\rwriting the run file [%.*s%*s] %3.0f %%", done, "########################################", WIDTH - done, "",
            part * 100);
    fflush(stderr);
}

// Only the parent learns for certain how a process ended.
static void leave(const struct session *session)
{
    char *parameters = run_parameter(session);
    if (session->child) {
        char *with_end = alloc_printf("%s&pid=%d&exit_status=%d", parameters, (int)session->child, session->exit_status);
        free(parameters);
        parameters = with_end;
    }
    json_decref(ask(session, "/v1/leave", true, parameters));
}

// Waits until the file is there, or will not be. The run's row, NULL when the daemon has gone for good.
static json_t *wait_for_file(struct session *session)
{
    bool bar = isatty(STDERR_FILENO) && session->is_first, drawn = false;
    for (;;) {
        json_t *row = ask(session, "/v1/runs", false, run_parameter(session));
        const char *state = json_string_value(json_object_get(row, "state"));
        if (!state && revive(session)) {
            leave(session);
            continue;
        }
        if (!state || strcmp(state, "published") == 0 || strcmp(state, "failed") == 0) {
            if (drawn)
                fputs("\r\033[K", stderr);
            return row;
        }
        if (bar && strcmp(state, "converting") == 0) {
            draw_progress(json_number_value(json_object_get(row, "progress")));
            drawn = true;
        }
        json_decref(row);
        poll(NULL, 0, POLL_PERIOD_MS * (1 + session->members / POLL_MEMBERS));
    }
}

// A daemon that was killed when the file was there and the spool gone: the next one has nothing of the run. The file has.
static void hear_the_file(const struct session *session, json_t *row)
{
    const char *state = json_string_value(json_object_get(row, "state"));
    struct output_tally tally;
    if (!state || strcmp(state, "published") != 0 || json_integer_value(json_object_get(row, "processes")) ||
        !output_tally(session->output, session->first_run, &tally))
        return;
    json_object_set_new(row, "processes", json_integer(tally.processes));
    json_object_set_new(row, "stored", json_integer(tally.stored));
    json_object_set_new(row, "lost", json_integer(tally.lost));
}

static int64_t number_of(const json_t *row, const char *key)
{
    return json_integer_value(json_object_get(row, key));
}

// Says what came of it. COMMAND_FAILED where there is no file, or where it has not all that it was required to have.
static int report(const struct session *session, const json_t *row, const char *command)
{
    const char *state = json_string_value(json_object_get(row, "state")), *problem = json_string_value(json_object_get(row, "problem"));
    const char *file = json_string_value(json_object_get(row, "file")), *unable = json_string_value(json_object_get(row, "unable_why"));
    if (!state || strcmp(state, "published") != 0) {
        say("cannot write the run file %s: %s", file ? file : session->output, problem ? problem : "the daemon has gone; see its spool beside it");
        return COMMAND_FAILED;
    }
    int64_t processes = number_of(row, "processes"), lost = number_of(row, "lost");
    bool is_complete = processes && !lost && !unable;
    int outcome = session->require_complete && !is_complete ? COMMAND_FAILED : COMMAND_DONE;
    if (!session->is_first)
        return outcome;
    if (unable)
        say("%" PRId64 " process(es) recorded nothing: %s", number_of(row, "unable"), unable);
    if (!processes) {
        if (!unable)
            say("nothing was recorded: no process of %s uses libscoped_lane", command);
        return outcome;
    }
    char loss[64] = "none lost";
    if (lost)
        snprintf(loss, sizeof loss, "%" PRId64 " LOST", lost);
    say("%s: %" PRId64 " calls of %" PRId64 " process%s, %s", file, number_of(row, "stored"), processes, processes == 1 ? "" : "es", loss);
    return outcome;
}

static int run(const struct command_line *line)
{
    struct session session = {.rundir_option = command_text(line, "rundir"), .schema = command_integer(line, "schema", 2),
                              .compress = command_given(line, "compress"),
                              .require_complete = command_given(line, "require-complete")};
    if (session.schema != 2 && session.schema != 3) {
        say("--schema is 2 or 3, not %" PRId64, session.schema);
        return COMMAND_MISUSED;
    }
    if (settle_preload(&session, line) < 0)
        return COMMAND_FAILED;
    if (output_settle(command_text(line, "output"), session.output) < 0)
        return COMMAND_FAILED;
    settle_key(&session);
    if (!find_service(&session) && open_private(&session) < 0)
        return COMMAND_FAILED;
    if (join(&session) < 0 && (still_listens(&session) || !revive(&session)))  // refused, or killed over it
        return COMMAND_FAILED;
    int status = run_command(&session, line->operands);
    if (places_listens(session.rundir))
        leave(&session);
    json_t *row = wait_for_file(&session);
    hear_the_file(&session, row);
    int outcome = report(&session, row, line->operands[0]);
    json_decref(row);
    free(session.preload);
    return outcome == COMMAND_DONE ? status : outcome;
}

const struct command command_run = {
    .name = "run",
    .operands = "[--] CMD...",
    .operands_min = 1,
    .operands_max = COMMAND_ANY,
    .stops_at_operand = true,
    .summary = "run a command and record it into a run file",
    .details = "Uses the service where one listens, else a daemon of its own. Ends with the command's exit status (128 + the\n"
               "signal's number where one ended it), or 1 when the run file could not be written, or has not every call although\n"
               "that was required. Works inside a launcher too:\n"
               "mpirun -n 4 scoped-lane run ./app makes one file.",
    .options = options,
    .function = run,
};
