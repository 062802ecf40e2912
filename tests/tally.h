// The program's own count of its calls, independent of the library: -include this before a program's source and each
// sl_enter, sl_exit and sl_next is also counted here, per thread and region, with two clock readings outside the library
// and two inside. What the library records for a call lies between the inner and the outer time.
//
// The counts live in a file mapped shared, $SL_TALLY/<pid>.tally, so that they survive kill -9. tests/end/tally.py reads
// it; the two change together. A call counts here once its sl_exit has returned.
#ifndef TALLY_H
#define TALLY_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

enum { TALLY_REGIONS = 32, TALLY_THREADS = 64, TALLY_DEPTH = 32, TALLY_NAME = 64 };

struct tally_count {
    uint64_t calls, outer_ns, inner_ns;
};

struct tally_thread {
    char name[TALLY_NAME];
    uint64_t native_id;
    uint64_t depth;
    uint64_t stack[TALLY_DEPTH];  // open regions, outermost first
    struct tally_count counts[TALLY_REGIONS];
};

struct tally {
    uint64_t pid;
    int64_t rank;  // as Open MPI says, -1 without
    uint64_t threads;
    char names[TALLY_REGIONS][TALLY_NAME];
    struct tally_thread thread[TALLY_THREADS];
};

struct tally_open {
    uint64_t outer, inner;
};

static struct tally *tally_;
static __thread struct tally_thread *tally_self_;
static __thread struct tally_open tally_open_[TALLY_DEPTH];

static inline uint64_t tally_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((constructor)) static void tally_open(void)
{
    static struct tally elsewhere;
    const char *directory = getenv("SL_TALLY"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    tally_ = &elsewhere;
    if (directory) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.tally", directory, (int)getpid());
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || ftruncate(fd, sizeof *tally_) < 0)
            abort();
        tally_ = (struct tally *)mmap(NULL, sizeof *tally_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (tally_ == MAP_FAILED)
            abort();
    }
    tally_->rank = rank ? atoll(rank) : -1;
    __atomic_store_n(&tally_->pid, (uint64_t)getpid(), __ATOMIC_RELEASE);  // last: readers pass over a tally without
}

static inline struct tally_thread *tally_self(void)
{
    if (!tally_self_) {
        uint64_t index = __atomic_fetch_add(&tally_->threads, 1, __ATOMIC_RELAXED);
        if (index >= TALLY_THREADS)
            abort();
        tally_self_ = &tally_->thread[index];
        tally_self_->native_id = (uint64_t)gettid();
    }
    return tally_self_;
}

static inline sl_region_t tally_region(const char *name)
{
    sl_region_t region = sl_region(name);
    if (region >= TALLY_REGIONS)
        abort();
    snprintf(tally_->names[region], TALLY_NAME, "%s", name);
    return region;
}

static inline void tally_thread_name(const char *name)
{
    snprintf(tally_self()->name, TALLY_NAME, "%s", name);
    sl_thread_name(name);
}

static inline void tally_push(struct tally_thread *self, sl_region_t region, struct tally_open open)
{
    if (self->depth >= TALLY_DEPTH)
        abort();
    tally_open_[self->depth] = open;
    self->stack[self->depth] = region;
    self->depth++;
}

static inline void tally_pop(struct tally_thread *self, uint64_t inner, uint64_t outer)
{
    if (self->depth == 0)
        abort();
    self->depth--;
    struct tally_open open = tally_open_[self->depth];
    struct tally_count *count = &self->counts[self->stack[self->depth]];
    count->outer_ns += outer - open.outer;
    count->inner_ns += inner - open.inner;
    count->calls++;
}

static inline void tally_enter(sl_region_t region)
{
    struct tally_open open = {.outer = tally_now()};
    sl_enter(region);
    open.inner = tally_now();
    tally_push(tally_self(), region, open);
}

static inline void tally_exit(sl_region_t region)
{
    uint64_t inner = tally_now();
    sl_exit(region);
    tally_pop(tally_self(), inner, tally_now());
}

static inline void tally_next(sl_region_t region)
{
    uint64_t before = tally_now();
    sl_next(region);
    uint64_t after = tally_now();
    tally_pop(tally_self(), before, after);
    tally_push(tally_self(), region, (struct tally_open){before, after});
}

#define sl_region(name)      tally_region(name)
#define sl_thread_name(name) tally_thread_name(name)
#define sl_enter(region)     tally_enter(region)
#define sl_exit(region)      tally_exit(region)
#define sl_next(region)      tally_next(region)

#endif
