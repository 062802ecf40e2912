// threads [-w]: starts threads of several kinds that make no call of the library, beside one that does, and lets them all live
// until the last is there. Prints its pid and then, a line each, "native id, name". With -w they live until its input ends;
// a line of it, "NUMBER NAME", renames one of the joinable ones by pthread_setname_np: 0 makes no call, 1 does.
//
// threads -r ROUNDS: in each round a thread is detached as soon as it is made, and then another is joined.
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <threads.h>
#include <unistd.h>

#include <scoped_lane.h>

enum { THREADS = 7 };

static pthread_barrier_t all_there;
static int waits;

static void live(const char *name)
{
    if (*name)
        prctl(PR_SET_NAME, name);
    char comm[16];
    prctl(PR_GET_NAME, comm);
    printf("%ld %s\n", (long)syscall(SYS_gettid), comm);
    pthread_barrier_wait(&all_there);
    pthread_barrier_wait(&all_there);
    for (volatile long i = 0; i < 1000000; i++)
        ;
}

static void *posix_thread(void *name)
{
    live(name);
    return NULL;
}

static void *recording_thread(void *name)
{
    sl_thread_name("named by the program");
    SL_SCOPE("work");
    return posix_thread(name);
}

static void *self_detaching_thread(void *name)
{
    pthread_detach(pthread_self());
    return posix_thread(name);
}

static int c11_thread(void *name)
{
    posix_thread(name);
    return 0;
}

static void *detached_thread(void *detached_now)
{
    sem_wait(detached_now);
    prctl(PR_SET_NAME, "detached");
    return NULL;
}

static void *joined_thread(void *unused)
{
    prctl(PR_SET_NAME, "joined");
    return unused;
}

static void make_rounds(int rounds)
{
    SL_SCOPE("main");
    sem_t *detached_now = calloc((size_t)rounds, sizeof *detached_now);  // one each: a late thread's would let the next one go too early
    for (int i = 0; i < rounds; i++) {
        pthread_t thread;
        sem_init(&detached_now[i], 0, 0);
        pthread_create(&thread, NULL, detached_thread, &detached_now[i]);
        pthread_detach(thread);
        sem_post(&detached_now[i]);
        pthread_create(&thread, NULL, joined_thread, NULL);
        pthread_join(thread, NULL);
    }
}

static void wait_for_the_last(void)
{
    struct stat tasks;
    while (stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 3)  // a directory for each thread
        sched_yield();
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "-r") == 0) {
        make_rounds(atoi(argv[2]));
        wait_for_the_last();
        return 0;
    }
    pthread_t joined[3], thread;
    thrd_t c11[2];
    pthread_attr_t detached;
    waits = argc > 1 && strcmp(argv[1], "-w") == 0;
    pthread_barrier_init(&all_there, NULL, THREADS + 1);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    printf("%d\n", (int)getpid());
    SL_SCOPE("main");
    pthread_create(&joined[0], NULL, posix_thread, "idle");
    pthread_create(&joined[1], NULL, recording_thread, "recording");
    pthread_create(&joined[2], NULL, posix_thread, "");
    pthread_create(&thread, &detached, posix_thread, "born detached");
    pthread_create(&thread, NULL, self_detaching_thread, "self-detached");
    thrd_create(&c11[0], c11_thread, "c11");
    thrd_create(&c11[1], c11_thread, "c11 detached");
    thrd_detach(c11[1]);
    pthread_barrier_wait(&all_there);
    fflush(stdout);
    unsigned number;
    char name[16];
    while (waits && scanf("%u %15[^\n]", &number, name) == 2)
        pthread_setname_np(joined[number % 3], name);
    pthread_barrier_wait(&all_there);
    for (int i = 0; i < 3; i++)
        pthread_join(joined[i], NULL);
    thrd_join(c11[0], NULL);
    wait_for_the_last();
    return 0;
}
