// What /proc says, and what it may say: names that look like the rest of the line, fields that are missing, processes that are gone.
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/procfs.h"

TestSuite(procfs, .timeout = 300);

static const char rest[] = " S 1234 4242 4242 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654321 225280 300 18446744073709551615 1 1 0 0";

static void expect_parsed(const char *name)
{
    char text[1024];
    struct procfs_stat stat = {0};
    snprintf(text, sizeof text, "4711 (%s)%s\n", name, rest);
    cr_assert_eq(procfs_parse_stat(text, &stat), 0, "%s", text);
    cr_assert_str_eq(stat.name, name, "%s", text);
    cr_assert_eq(stat.state, 'S', "%s", text);
    cr_assert_eq(stat.parent_pid, 1234, "%s", text);
    cr_assert_eq(stat.start_time, 987654321, "%s", text);
}

Test(procfs, a_name_may_hold_anything)
{
    static const char *const names[] = {"sh", "", "a b", "a) R 1 (b", "(((", ")))", ") R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20",
                                        "line\nfeed", "tab\there", "gr\xc3\xbcn", "\xff\xfe", "1 (x) S 1", "a\\040b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_parsed(names[i]);
}

Test(procfs, what_is_no_stat_line_is_refused)
{
    static const char *const lines[] = {"", "4711", "4711 (sh", "4711 (sh)", "4711 (sh) ", "4711 (sh)S 1", "4711 (sh) S", "4711 (sh) S x",
                                        "4711 (sh) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18",
                                        "4711 (sh) S 1 4242 4242 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0", ")", ") S"};
    struct procfs_stat stat;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cr_expect_eq(procfs_parse_stat(lines[i], &stat), -EINVAL, "'%s'", lines[i]);
}

Test(procfs, schedstat_is_three_numbers)
{
    struct procfs_schedstat schedstat;
    cr_assert_eq(procfs_parse_schedstat("18446744073709551615 2 3\n", &schedstat), 0);
    cr_assert_eq(schedstat.cpu_ns, UINT64_MAX);
    cr_assert_eq(schedstat.wait_ns, 2);
    cr_assert_eq(schedstat.slices, 3);
    cr_assert_eq(procfs_parse_schedstat("1 2\n", &schedstat), -EINVAL);
    cr_assert_eq(procfs_parse_schedstat("", &schedstat), -EINVAL);
    cr_assert_eq(procfs_parse_schedstat("x 2 3", &schedstat), -EINVAL);
}

// ---- real ones

Test(procfs, it_reads_this_process_whatever_it_calls_itself)
{
    struct procfs_stat stat, again;
    char name[64];
    cr_assert_eq(procfs_stat((uint32_t)getpid(), 0, &stat), 0);
    cr_assert_eq(stat.parent_pid, (uint32_t)getppid());
    cr_assert_gt(stat.start_time, 0);
    cr_assert_eq(stat.state, 'R');
    prctl(PR_SET_NAME, "a) R 1 (b");
    cr_assert_eq(procfs_stat((uint32_t)getpid(), 0, &again), 0);
    cr_assert_eq(again.parent_pid, stat.parent_pid);
    cr_assert_eq(again.start_time, stat.start_time);
    cr_assert_eq(procfs_comm((uint32_t)getpid(), 0, name), 0);
    cr_assert_str_eq(name, "a) R 1 (b");
}

static _Atomic uint32_t tid, done;

static void *sit(void *unused)
{
    prctl(PR_SET_NAME, "sitting (x) Z");
    tid = (uint32_t)syscall(SYS_gettid);
    while (!done)
        pause();
    return unused;
}

static void on_signal(int number)
{
    (void)number;
}

Test(procfs, it_reads_threads_and_says_when_they_are_gone)
{
    pthread_t thread;
    struct procfs_stat stat;
    struct procfs_schedstat first, second;
    signal(SIGUSR1, on_signal);
    cr_assert_eq(pthread_create(&thread, NULL, sit, NULL), 0);
    while (!tid)
        sched_yield();
    cr_assert_eq(procfs_stat((uint32_t)getpid(), tid, &stat), 0);
    char name[64];
    cr_assert_eq(procfs_comm((uint32_t)getpid(), tid, name), 0);
    cr_assert_str_eq(name, "sitting (x) Z");
    int fd = procfs_open_schedstat((uint32_t)getpid(), (uint32_t)getpid());
    cr_assert_geq(fd, 0);
    cr_assert_eq(procfs_read_schedstat(fd, &first), 0);
    do  // the same descriptor shows time going by
        cr_assert_eq(procfs_read_schedstat(fd, &second), 0);
    while (second.cpu_ns < first.cpu_ns + 1000000);
    close(fd);
    int of_thread = procfs_open_schedstat((uint32_t)getpid(), tid);
    cr_assert_geq(of_thread, 0);
    done = 1;
    while (procfs_stat((uint32_t)getpid(), tid, &stat) == 0)
        pthread_kill(thread, SIGUSR1);
    pthread_join(thread, NULL);
    int result = procfs_stat((uint32_t)getpid(), tid, &stat);
    cr_assert(result == -ENOENT || result == -ESRCH, "%d", result);
    result = procfs_read_schedstat(of_thread, &first);
    cr_assert(result == -ESRCH || result == -ENOENT, "%d", result);
    close(of_thread);
    cr_assert_eq(procfs_open_schedstat((uint32_t)getpid(), tid), -ENOENT);
}

Test(procfs, a_child_is_running_dead_and_gone)
{
    struct procfs_stat stat;
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pause();
        _exit(0);
    }
    do
        cr_assert_eq(procfs_stat((uint32_t)child, 0, &stat), 0);
    while (stat.state != 'S');
    cr_assert_eq(stat.parent_pid, (uint32_t)getpid());
    kill(child, SIGKILL);
    do
        cr_assert_eq(procfs_stat((uint32_t)child, 0, &stat), 0);
    while (stat.state != 'Z');
    waitpid(child, NULL, 0);
    cr_assert_eq(procfs_stat((uint32_t)child, 0, &stat), -ENOENT);
}

static void *outlive(void *unused)
{
    pause();
    return unused;
}

Test(procfs, a_process_whose_main_thread_has_ended_lives_as_long_as_another)
{
    struct procfs_stat stat;
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        pthread_create(&thread, NULL, outlive, NULL);
        pthread_exit(NULL);
    }
    do
        cr_assert_eq(procfs_stat((uint32_t)child, 0, &stat), 0);
    while (stat.state != 'Z');
    cr_assert_eq(stat.threads, 2);
    cr_assert(procfs_is_alive((uint32_t)child, stat.start_time));
    cr_assert_eq(procfs_maps_file((uint32_t)child, "/"), -ESRCH, "its memory does not show");
    cr_assert_not(procfs_is_alive((uint32_t)child, stat.start_time + 1));
    kill(child, SIGKILL);
    while (procfs_is_alive((uint32_t)child, stat.start_time))
        sched_yield();
    waitpid(child, NULL, 0);
}

Test(procfs, a_mapped_file_is_seen_until_it_is_unmapped)
{
    char path[] = "/tmp/sl-test-map-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(ftruncate(fd, 4096), 0);
    cr_assert_not(procfs_maps_file((uint32_t)getpid(), path));
    void *place = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    cr_assert(procfs_maps_file((uint32_t)getpid(), path));
    unlink(path);
    cr_assert(procfs_maps_file((uint32_t)getpid(), path), "also when its name is gone");
    munmap(place, 4096);
    cr_assert_not(procfs_maps_file((uint32_t)getpid(), path));
    cr_assert_eq(procfs_maps_file(UINT32_MAX, path), -ESRCH);
    close(fd);
}
