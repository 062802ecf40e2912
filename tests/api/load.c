// load [-t THREADS] [-p PAUSE]: calls and tasks without end, in THREADS threads (default 1) that pause PAUSE microseconds after every
// 100 calls (default 0: never), until standard input ends. Each thread counts in $SL_TALLY/<pid>.load, mapped shared, so that it
// survives kill -9: the exits that it has begun, and those that have returned. tests/end/load.py reads it.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

enum { THREADS = 16, DEPTH = 4, BURST = 100 };

struct counts {
    uint64_t begun, done;
    uint64_t native_id, zero[5];  // a cache line each
};

struct tally {
    uint64_t pid, threads;
    uint64_t zero[6];
    struct counts thread[THREADS];
};

static struct tally *tally;
static sl_region_t regions[DEPTH];
static long pause_us;
static volatile int over;

static void open_tally(void)
{
    char path[4096];
    const char *directory = getenv("SL_TALLY");
    snprintf(path, sizeof path, "%s/%d.load", directory ? directory : ".", (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *tally) < 0)
        abort();
    tally = mmap(NULL, sizeof *tally, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (tally == MAP_FAILED)
        abort();
    tally->pid = (uint64_t)getpid();
}

static void leave(struct counts *counts, sl_region_t region)
{
    __atomic_store_n(&counts->begun, counts->begun + 1, __ATOMIC_RELEASE);
    sl_exit(region);
    __atomic_store_n(&counts->done, counts->done + 1, __ATOMIC_RELEASE);
}

static void next(struct counts *counts, sl_region_t region)
{
    __atomic_store_n(&counts->begun, counts->begun + 1, __ATOMIC_RELEASE);
    sl_next(region);
    __atomic_store_n(&counts->done, counts->done + 1, __ATOMIC_RELEASE);
}

// BURST calls: nested ones, and siblings.
static void burst(struct counts *counts)
{
    for (int i = 0; i < BURST / (DEPTH + 1); i++) {
        for (int depth = 0; depth < DEPTH; depth++)
            sl_enter(regions[depth]);
        next(counts, regions[DEPTH - 2]);
        leave(counts, regions[DEPTH - 2]);
        for (int depth = DEPTH - 1; depth-- > 0;)
            leave(counts, regions[depth]);
    }
}

static void *work(void *place)
{
    struct counts *counts = place;
    sl_task_t task = sl_task_create("task", "steady", "load");
    counts->native_id = (uint64_t)gettid();
    for (unsigned round = 0; !over; round++) {
        sl_task_t brief = round % 16 == 0 ? sl_task_create("task", "brief", "load") : 0;
        sl_task_t stepped = brief ? brief : round % 4 ? task : 0;
        if (stepped)
            sl_task_step_in(stepped);
        burst(counts);
        if (stepped)
            sl_task_step_out(stepped);
        if (brief)
            sl_task_finish(brief);
        if (pause_us)
            nanosleep(&(struct timespec){.tv_nsec = pause_us * 1000}, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t thread[THREADS];
    int option, count = 1;
    while ((option = getopt(argc, argv, "t:p:")) != -1) {
        switch (option) {
        case 't': count = atoi(optarg); break;
        case 'p': pause_us = atol(optarg); break;
        default: return 2;
        }
    }
    if (count < 1 || count > THREADS || pause_us < 0 || pause_us > 999999)
        return 2;
    open_tally();
    for (int depth = 0; depth < DEPTH; depth++) {
        char name[16];
        snprintf(name, sizeof name, "depth %d", depth);
        regions[depth] = sl_region(name);
    }
    tally->threads = (uint64_t)count;
    for (int i = 0; i < count; i++)
        if (pthread_create(&thread[i], NULL, work, &tally->thread[i]) != 0)
            abort();
    while (getchar() != EOF)
        ;
    over = 1;
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    return 0;
}
