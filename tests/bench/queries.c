// What questions cost while 100 processes with 100 lanes each make 10^6 calls a second in all: how long the table of all lanes takes, in
// pages of 1,000, and the lanes of one rank; then, with 16 pollers at 10 Hz and 4 followers of whom one never reads, what the daemon
// spends on draining, and how long a call waits for it. It starts a daemon of its own, which may have more connections than 16.
//
//     queries [SECONDS]   of each phase, default 5
#include <fcntl.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

enum { PROCESSES = 100, TASKS = 99, BURST = 100, BURST_NS = 10000000, LOOK_NS = 500000, TABLES = 1000, POLLERS = 16, FOLLOWERS = 4,
       REPLY_MAX = 8 << 20 };

static char directory[] = "/tmp/sl-bench-XXXXXX";
static struct sockaddr_un address = {.sun_family = AF_UNIX};

static struct shared {
    int64_t longest_ns;  // that a call of the first process has waited in its ring
    int ready;
} *shared;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void pause_ns(int64_t ns)
{
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

__attribute__((format(printf, 1, 2), noreturn)) static void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("queries: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

// ---- the programs

static void *look_at_ring(void *argument)
{
    const struct sl_ring *ring = argument;
    uint64_t pending = 0;
    int64_t since_ns = 0;
    for (;; pause_ns(LOOK_NS)) {
        uint64_t head = sl_load_acquire(&ring->head), tail = sl_load_acquire(&ring->tail);
        if (pending && tail >= pending) {
            int64_t waited_ns = now_ns() - since_ns;
            if (waited_ns > __atomic_load_n(&shared->longest_ns, __ATOMIC_RELAXED))
                __atomic_store_n(&shared->longest_ns, waited_ns, __ATOMIC_RELAXED);
            pending = 0;
        }
        if (!pending && head != tail) {
            pending = head;
            since_ns = now_ns();
        }
    }
    return NULL;
}

__attribute__((noreturn)) static void be_program(int number)
{
    pthread_t looking;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sl_rank(number);
    sl_region_t work = sl_region("work"), wait = sl_region("wait");
    for (int i = 0; i < TASKS; i++) {
        sl_task_t task = sl_task_create("fiber", "waiting", "bench");
        sl_task_step_in(task);
        sl_enter(wait);
        sl_task_step_out(task);
    }
    sl_enter(sl_region("main"));
    if (!sl_is_active())
        give_up("nothing is recorded");
    if (number == 0)
        pthread_create(&looking, NULL, look_at_ring, sl_self_->ring);
    __atomic_add_fetch(&shared->ready, 1, __ATOMIC_RELEASE);
    for (int64_t next_ns = now_ns();; next_ns += BURST_NS) {
        for (int i = 0; i < BURST; i++) {
            sl_enter(work);
            sl_exit(work);
        }
        int64_t left_ns = next_ns + BURST_NS - now_ns();
        if (left_ns > 0)
            pause_ns(left_ns);
        else if (left_ns < -100 * (int64_t)BURST_NS)
            next_ns = now_ns();  // the machine has no room for this rate
    }
}

// ---- questions

static int connect_to(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        give_up("cannot connect to %s: %m", address.sun_path);
    return fd;
}

// The whole reply, in `reply` of REPLY_MAX bytes; returns its body.
static char *ask(int fd, const char *path, char *reply)
{
    size_t have = 0, whole = 0;
    dprintf(fd, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    while (!whole || have < whole) {
        ssize_t got = recv(fd, reply + have, REPLY_MAX - 1 - have, 0);
        if (got <= 0)
            give_up("GET %s: the connection ended: %s", path, have ? reply : "");
        have += (size_t)got;
        reply[have] = 0;
        char *body = strstr(reply, "\r\n\r\n"), *length = strcasestr(reply, "Content-Length: ");
        if (body && length)
            whole = (size_t)(body + 4 - reply) + strtoul(length + 16, NULL, 10);
    }
    if (strncmp(reply, "HTTP/1.1 200 ", 13) != 0)
        give_up("GET %s: %s", path, reply);
    return strstr(reply, "\r\n\r\n") + 4;
}

static int count(const char *text, const char *part)
{
    int found = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        found++;
    return found;
}

// All pages; how many rows there were.
static int ask_table(int fd, char *reply)
{
    char path[256] = "/v1/lanes?limit=1000";
    for (int rows = 0;;) {
        char *body = ask(fd, path, reply), *cursor = strstr(body, "\"cursor\":\"");
        rows += count(body, "\"lane\":");
        if (!cursor)
            return rows;
        snprintf(path, sizeof path, "/v1/lanes?limit=1000&cursor=%.*s", (int)strcspn(cursor + 10, "\""), cursor + 10);
    }
}

struct reading {
    double cpu, query, resident, stored, lost;
};

static double sum_of(const char *body, const char *name)
{
    double sum = 0;
    size_t length = strlen(name);
    for (const char *line = body; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, length) == 0 && (line[length] == '{' || line[length] == ' '))
            sum += strtod(memchr(line, ' ', strcspn(line, "\n")), NULL);
    return sum;
}

static struct reading read_metrics(int fd, char *reply)
{
    static const char member[] = "\"requests_cpu_ns\":";
    const char *spent = strstr(ask(fd, "/v1/status", reply), member);
    double query = spent ? strtod(spent + sizeof member - 1, NULL) / 1e9 : 0;
    const char *body = ask(fd, "/metrics", reply);
    return (struct reading){sum_of(body, "scoped_laned_cpu_seconds_total"), query, sum_of(body, "scoped_laned_resident_bytes"),
                            sum_of(body, "scoped_lane_calls_stored_total"), sum_of(body, "scoped_lane_calls_lost_total")};
}

static volatile int over;

static void *poll_now_and_then(void *unused)
{
    char *reply = malloc(REPLY_MAX);
    int fd = connect_to();
    for (int64_t next_ns = now_ns(); reply && !over; next_ns += 100000000) {
        ask(fd, "/v1/lanes?limit=1000", reply);
        int64_t left_ns = next_ns + 100000000 - now_ns();
        if (left_ns > 0)
            pause_ns(left_ns);
    }
    close(fd);
    free(reply);
    return unused;
}

static void *follow(void *unused)
{
    char bytes[65536];
    struct timeval patience = {.tv_usec = 200000};
    int fd = connect_to();
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    dprintf(fd, "GET /v1/follow?tasks HTTP/1.1\r\nHost: x\r\n\r\n");
    while (!over)
        if (unused || recv(fd, bytes, sizeof bytes, 0) < 0)  // one never reads
            pause_ns(1000000);
    close(fd);
    return NULL;
}

// ---- what is measured

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static void time_tables(int fd, char *reply)
{
    static double all[TABLES], one[TABLES];
    int rows = 0;
    for (int i = 0; i < TABLES; i++) {
        char path[64];
        snprintf(path, sizeof path, "/v1/lanes?rank=%d", i % PROCESSES);
        int64_t begin = now_ns();
        rows = ask_table(fd, reply);
        int64_t middle = now_ns();
        ask(fd, path, reply);
        all[i] = (double)(middle - begin) / 1e6;
        one[i] = (double)(now_ns() - middle) / 1e6;
    }
    qsort(all, TABLES, sizeof *all, by_value);
    qsort(one, TABLES, sizeof *one, by_value);
    printf("lanes                           %d, asked for 10000\n", rows);
    printf("all lanes in pages of 1,000     p99 %.1f ms (median %.1f), asked for at most 30\n", all[TABLES * 99 / 100], all[TABLES / 2]);
    printf("lanes of one rank               p99 %.2f ms (median %.2f), asked for at most 1\n", one[TABLES * 99 / 100], one[TABLES / 2]);
}

// ns of the daemon's CPU time for a drained call, questions not counted.
static double measure(int fd, char *reply, int seconds, const char *what, struct reading *after)
{
    struct reading before = read_metrics(fd, reply);
    __atomic_store_n(&shared->longest_ns, 0, __ATOMIC_RELAXED);
    int64_t begin = now_ns();
    pause_ns(seconds * INT64_C(1000000000));
    *after = read_metrics(fd, reply);
    double calls = after->stored - before.stored, spent = after->cpu - before.cpu - (after->query - before.query);
    double each_ns = calls > 0 ? spent / calls * 1e9 : 0;
    printf("%s: %.2f million calls/s, %.1f ns of the daemon for each, %.0f lost, longest wait in a ring %.1f ms, memory %.1f -> %.1f MiB\n", what,
           calls / (double)(now_ns() - begin) * 1e3, each_ns, after->lost - before.lost,
           (double)__atomic_load_n(&shared->longest_ns, __ATOMIC_RELAXED) / 1e6, before.resident / (1 << 20), after->resident / (1 << 20));
    return each_ns;
}

static void with_askers(int fd, char *reply, int seconds, double alone_ns)
{
    pthread_t threads[POLLERS + FOLLOWERS];
    struct reading after;
    for (int i = 0; i < POLLERS + FOLLOWERS; i++)
        pthread_create(&threads[i], NULL, i < POLLERS ? poll_now_and_then : follow, i == POLLERS ? "" : NULL);
    pause_ns(500000000);
    double each_ns = measure(fd, reply, seconds, "16 pollers, 4 followers", &after);
    over = 1;
    for (int i = 0; i < POLLERS + FOLLOWERS; i++)
        pthread_join(threads[i], NULL);
    printf("daemon's time for a call        %.2f of none, asked for at most 1.10; none lost, a wait of at most 20 ms, memory flat\n",
           alone_ns > 0 ? each_ns / alone_ns : 0);
}

// ---- processes

static pid_t start_daemon(const char *own_path)
{
    char path[PATH_MAX + 64], own[PATH_MAX];
    if (!realpath(own_path, own))
        give_up("%s: %m", own_path);
    snprintf(path, sizeof path, "%s/../../bin/scoped-laned", dirname(own));
    pid_t daemon = fork();
    if (daemon == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(path, "scoped-laned", "--rundir", directory, "--output", directory, "--connections-per-user", "40", "--stuck-after", "0", NULL);
        give_up("%s: %m", path);
    }
    for (int i = 0; i < 10000 && access(address.sun_path, F_OK) < 0; i++)
        pause_ns(1000000);
    return daemon;
}

// Nobody wants the run file: neither segments nor the daemon's directory are left.
static void end(pid_t daemon, const pid_t *programs)
{
    char command[128];
    for (int i = 0; i < PROCESSES; i++) {
        kill(programs[i], SIGKILL);
        waitpid(programs[i], NULL, 0);
    }
    kill(daemon, SIGKILL);
    waitpid(daemon, NULL, 0);
    for (int i = 0; i < PROCESSES; i++) {
        glob_t found;
        char pattern[64];
        snprintf(pattern, sizeof pattern, "/dev/shm/scoped-lane.%d.%d.*", (int)getuid(), (int)programs[i]);
        for (size_t j = 0; glob(pattern, 0, NULL, &found) == 0 && j < found.gl_pathc; j++)
            unlink(found.gl_pathv[j]);
    }
    snprintf(command, sizeof command, "rm -r %s", directory);
    if (system(command) != 0)
        give_up("%s is left", directory);
}

int main(int argc, char **argv)
{
    static pid_t programs[PROCESSES];
    int seconds = argc > 1 ? atoi(argv[1]) : 5;
    char *reply = malloc(REPLY_MAX);
    struct reading after;
    if (!reply || !mkdtemp(directory))
        give_up("%s: %m", directory);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/query.sock", directory);
    setenv("SCOPED_LANE_RUNDIR", directory, 1);
    setenv("SCOPED_LANE_RUN", "bench", 1);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    pid_t daemon = start_daemon(argv[0]);
    for (int i = 0; i < PROCESSES; i++) {
        programs[i] = fork();
        if (programs[i] == 0)
            be_program(i);
    }
    int fd = connect_to();
    for (int i = 0; i < 600 && ask_table(fd, reply) < PROCESSES * (TASKS + 1); i++)
        pause_ns(100000000);
    time_tables(fd, reply);
    double alone_ns = measure(fd, reply, seconds, "nobody asks            ", &after);
    with_askers(fd, reply, seconds, alone_ns);
    close(fd);
    end(daemon, programs);
    free(reply);
    return 0;
}
