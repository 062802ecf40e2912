// full_speed [-t THREADS] [-n PAIRS] [-b BURST -p PERIOD_US] [-m] [-w]: THREADS threads that make PAIRS calls each, counted
// by the program itself; as fast as they can, or in bursts of BURST every PERIOD_US. A thread that the machine made late
// catches up in bursts of the same size at half the period. With -m the time of each pair is measured. With -w it waits,
// once all calls are made, until its standard input ends.
//
// Prints a line for each thread: its name, its calls, the ns they took, the us it spent in the kernel, by how many ns the
// machine made the worst of its bursts late; with -m also the longest time of a pair that was not preempted in ns, how many
// pairs were preempted, and how often a pair gave the processor up of its own accord.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

enum { THREADS_MAX = 64, LOOK_AT_NS = 50000 };

struct worker {
    pthread_t thread;
    char name[16];
    sl_region_t region;
    uint64_t calls, slowest_ns, preempted;
    int64_t took_ns, late_ns;
    long system_us, given_up;
};

static uint64_t pairs = 1000000, burst;
static int64_t period_ns;
static int measured;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void make_pairs(struct worker *self, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        sl_enter(self->region);
        sl_exit(self->region);
        self->calls++;
    }
}

static void measure_pairs(struct worker *self, uint64_t count)
{
    struct rusage before, after;
    getrusage(RUSAGE_THREAD, &before);
    long given_up = before.ru_nvcsw;
    int64_t last = now_ns();
    for (uint64_t i = 0; i < count; i++) {
        sl_enter(self->region);
        sl_exit(self->region);
        self->calls++;
        int64_t now = now_ns();
        uint64_t took = (uint64_t)(now - last);
        last = now;
        if (took <= self->slowest_ns)
            continue;
        if (took > LOOK_AT_NS) {
            getrusage(RUSAGE_THREAD, &after);
            last = now_ns();
            if (after.ru_nivcsw != before.ru_nivcsw) {
                self->preempted++;
                before = after;
                continue;
            }
        }
        self->slowest_ns = took;
    }
    getrusage(RUSAGE_THREAD, &after);
    self->given_up += after.ru_nvcsw - given_up;
}

static void sleep_until(int64_t at_ns)
{
    struct timespec at = {at_ns / 1000000000, at_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
        continue;
}

static void *work(void *argument)
{
    struct worker *self = argument;
    void (*make)(struct worker *, uint64_t) = measured ? measure_pairs : make_pairs;
    sl_thread_name(self->name);
    int64_t begin = now_ns(), due = begin;
    while (self->calls < pairs) {
        uint64_t left = pairs - self->calls;
        make(self, burst && burst < left ? burst : left);
        due += period_ns;
        if (!period_ns)
            continue;
        int64_t earliest = now_ns() + period_ns / 2, wake = due > earliest ? due : earliest;
        sleep_until(wake);
        int64_t late_ns = now_ns() - wake;
        if (late_ns > self->late_ns)
            self->late_ns = late_ns;
    }
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    self->took_ns = now_ns() - begin;
    self->system_us = usage.ru_stime.tv_sec * 1000000 + usage.ru_stime.tv_usec;
    return NULL;
}

int main(int argc, char **argv)
{
    static struct worker workers[THREADS_MAX];
    int option, threads = 2, wait = 0;
    while ((option = getopt(argc, argv, "t:n:b:p:mw")) != -1) {
        switch (option) {
        case 't': threads = atoi(optarg); break;
        case 'n': pairs = strtoull(optarg, NULL, 10); break;
        case 'b': burst = strtoull(optarg, NULL, 10); break;
        case 'p': period_ns = atoll(optarg) * 1000; break;
        case 'm': measured = 1; break;
        case 'w': wait = 1; break;
        default: return 2;
        }
    }
    if (optind != argc || threads < 1 || threads > THREADS_MAX || !burst != !period_ns)
        return 2;

    for (int i = 0; i < threads; i++) {
        struct worker *worker = &workers[i];
        char region[16];
        snprintf(worker->name, sizeof worker->name, "speed %d", i);
        snprintf(region, sizeof region, "pair %d", i);
        worker->region = sl_region(region);
        if (pthread_create(&worker->thread, NULL, work, worker) != 0)
            return 1;
    }
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < threads; i++) {
        const struct worker *worker = &workers[i];
        printf("%s:%llu:%lld:%ld:%lld", worker->name, (unsigned long long)worker->calls, (long long)worker->took_ns,
               worker->system_us, (long long)worker->late_ns);
        if (measured)
            printf(":%llu:%llu:%ld", (unsigned long long)worker->slowest_ns, (unsigned long long)worker->preempted, worker->given_up);
        putchar('\n');
    }
    fflush(stdout);
    if (wait)
        while (getchar() != EOF)
            continue;
    return 0;
}
