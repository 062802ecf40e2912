// forks SCENE: a program that forks, executes, closes descriptors or ends in one of the ways programs do, and makes calls all
// the while. Every process adds a line "pid region calls" to the file $FORKS_LOG for what it has made itself. Scenes that
// execute another program run $FORKS_PAIRS.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

extern char **environ;

static void fail(const char *what)
{
    perror(what);
    _exit(3);
}

static void note(const char *region, int count)
{
    char line[128];
    int length = snprintf(line, sizeof line, "%d %s %d\n", (int)syscall(SYS_getpid), region, count);
    int fd = open(getenv("FORKS_LOG"), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)length) != length)
        fail("FORKS_LOG");
    close(fd);
}

static void make(const char *region, int count)
{
    sl_region_t id = sl_region(region);
    for (int i = 0; i < count; i++) {
        sl_enter(id);
        sl_exit(id);
    }
    note(region, count);
}

static void wait_for(pid_t pid)
{
    int status;
    if (pid < 0)
        fail("fork");
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            fail("waitpid");
    if (status != 0) {
        fprintf(stderr, "process %d: status %x\n", (int)pid, (unsigned)status);
        _exit(3);
    }
}

// Holds region "held" around `go`, which makes the children.
static void around(void (*go)(void))
{
    sl_region_t held = sl_region("held");
    sl_enter(held);
    make("before", 3);
    go();
    make("after", 4);
    sl_exit(held);
    note("held", 1);
}

// In a child: what was open in the parent is not open here.
static void be_a_child(void)
{
    make("child", 5);
    sl_exit(sl_region("held"));
    make("child again", 2);
}

static void fork_one(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        be_a_child();
        exit(0);
    }
    wait_for(pid);
}

static void fork_leaving_at_once(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        be_a_child();
        _exit(0);
    }
    wait_for(pid);
}

static void clone_one(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        be_a_child();
        _exit(0);
    }
    wait_for(pid);
}

static void vfork_one(void)
{
    static sl_region_t lent;
    lent = sl_region("vfork child");
    pid_t pid = vfork();
    if (pid == 0) {  // suspends the parent and runs as its thread
        for (int i = 0; i < 6; i++) {
            sl_enter(lent);
            sl_exit(lent);
        }
        _exit(0);
    }
    wait_for(pid);
    note("vfork child", 6);
}

static char *pairs[] = {NULL, (char *)"-n", (char *)"7", (char *)"executed", NULL};

static void vfork_and_execute(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execv(pairs[0], pairs);
        _exit(127);
    }
    wait_for(pid);
}

static void spawn(void)
{
    pid_t pid;
    if (posix_spawn(&pid, pairs[0], NULL, NULL, pairs, environ) != 0)
        fail("posix_spawn");
    wait_for(pid);
}

static void fork_twice(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        make("child", 5);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            make("grandchild", 6);
            exit(0);
        }
        wait_for(grandchild);
        make("child again", 2);
        exit(0);
    }
    wait_for(pid);
}

static void fork_many(void)
{
    pid_t pids[20];
    for (int i = 0; i < 20; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            make("child", i + 1);
            exit(0);
        }
    }
    for (int i = 0; i < 20; i++)
        wait_for(pids[i]);
}

static void daemonise(void)
{
    make("before", 3);
    if (daemon(1, 1) < 0)
        fail("daemon");
    make("daemon", 5);
}

static void execute(void)
{
    sl_enter(sl_region("held"));
    make("before", 3);
    execv(pairs[0], pairs);
    fail(pairs[0]);
}

// ---- descriptors

enum { LOW = 3, LOW_END = 40, HIGH = 500, HIGH_END = 540, HIGHER = 690, HIGHER_END = 730 };
static const int ranges[][2] = {{LOW, LOW_END}, {HIGH, HIGH_END}, {HIGHER, HIGHER_END}};

static void take_number(int number, const char *directory)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/fd%d", directory, number);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || (fd != number && (dup2(fd, number) < 0 || close(fd) < 0)))
        fail(path);
}

static void *make_on_a_thread(void *region)
{
    make(region, 50000);
    return NULL;
}

static void record_on(void)
{
    pthread_t thread;
    make("after", 50000);  // more than a ring: the daemon is to be woken
    for (int i = 0; i < 3; i++) {
        char region[32];
        snprintf(region, sizeof region, "after %d", i);
        if (pthread_create(&thread, NULL, make_on_a_thread, region) != 0)
            fail("pthread_create");
        pthread_join(thread, NULL);
    }
}

static int has_eventfd(void)
{
    char path[64], target[64];
    for (int fd = 3; fd < 1024; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (strcmp(target, "anon_inode:[eventfd]") == 0)
            return 1;
    }
    return 0;
}

// From then on the library has a descriptor that it writes to. It reads the daemon's answer where it names a region.
static void wait_for_eventfd(void)
{
    char region[32];
    for (int i = 0; !has_eventfd(); i++) {
        if (i == 10000)
            fail("no eventfd has come");
        snprintf(region, sizeof region, "waits %d", i);
        sl_region(region);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

// Closes what it did not open, as daemons do, and opens files under the same numbers. Nothing may be written to or closed.
static void close_from(void)
{
    const char *directory = getenv("FORKS_FILES");
    make("before", 3);
    wait_for_eventfd();
    if (syscall(SYS_close_range, 3, ~0u, 0) < 0)
        fail("close_range");
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        for (int number = ranges[i][0]; number < ranges[i][1]; number++)
            take_number(number, directory);
    record_on();
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        for (int number = ranges[i][0]; number < ranges[i][1]; number++) {
            struct stat status;
            if (fstat(number, &status) < 0 || status.st_size != 0 || lseek(number, 0, SEEK_CUR) != 0)
                fail("one of the program's files");
        }
}

// The same with sockets: nothing may arrive at their other ends.
static void close_from_to_sockets(void)
{
    int ends[2];
    char byte;
    make("before", 3);
    wait_for_eventfd();
    if (syscall(SYS_close_range, 3, ~0u, 0) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, ends) < 0)
        fail("socketpair");
    int other = fcntl(ends[1], F_DUPFD, 2000);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        for (int number = ranges[i][0]; number < ranges[i][1]; number++)
            if (dup2(ends[0], number) < 0)
                fail("dup2");
    record_on();
    if (recv(other, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
        fail("something came over the program's socket, or it was closed");
}

// ---- ends

static pthread_key_t key;

static void record_again(void *passes)
{
    intptr_t left = (intptr_t)passes;
    make("destructor", 1);
    if (left > 1)
        pthread_setspecific(key, (void *)(left - 1));
}

static void *end_with_destructors(void *passes)
{
    make("thread", 2);
    pthread_setspecific(key, passes);
    return NULL;
}

static void tsd(void)
{
    pthread_t thread;
    pthread_key_create(&key, record_again);  // after or before the library's own key: both orders come by
    for (intptr_t i = 0; i < 8; i++) {
        if (pthread_create(&thread, NULL, end_with_destructors, (void *)(i % 4 + 1)) != 0)
            fail("pthread_create");
        pthread_join(thread, NULL);
    }
}

static int makes_early, makes_late;

__attribute__((constructor)) static void early(void)
{
    makes_early = getenv("FORKS_EARLY") != NULL;
    if (makes_early)
        make("constructor", 2);
}

__attribute__((destructor)) static void late(void)
{
    if (makes_late)
        make("destructor", 3);
}

static void at_exit(void)
{
    make("atexit", 2);
}

static void early_and_late(void)
{
    makes_late = 1;
    atexit(at_exit);
    make("main", 4);
}

static void leave_at_once(void)
{
    sl_enter(sl_region("held"));
    make("main", 4);
    _exit(7);
}

static void go_around_fork(void) { around(fork_one); }
static void go_around_exit_at_once(void) { around(fork_leaving_at_once); }
static void go_around_clone(void) { around(clone_one); }
static void go_around_vfork(void) { around(vfork_one); }
static void go_around_vfork_exec(void) { around(vfork_and_execute); }
static void go_around_spawn(void) { around(spawn); }
static void go_around_double(void) { around(fork_twice); }
static void go_around_many(void) { around(fork_many); }

static const struct scene {
    const char *name;
    void (*go)(void);
} scenes[] = {
    {"fork", go_around_fork},           {"fork and _exit", go_around_exit_at_once}, {"clone", go_around_clone},
    {"vfork", go_around_vfork},         {"vfork and exec", go_around_vfork_exec},   {"posix_spawn", go_around_spawn},
    {"double fork", go_around_double},  {"many forks", go_around_many},             {"daemon", daemonise},
    {"exec", execute},                  {"closefrom", close_from},                  {"closefrom, sockets", close_from_to_sockets},
    {"thread-specific data", tsd},      {"early and late", early_and_late},         {"_exit", leave_at_once},
};

int main(int argc, char **argv)
{
    pairs[0] = getenv("FORKS_PAIRS");
    for (size_t i = 0; argc == 2 && i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(scenes[i].name, argv[1]) == 0) {
            scenes[i].go();
            return 0;
        }
    return 2;
}
