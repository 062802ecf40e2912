// What a call costs while a daemon reads along, against two bare rdtsc in the same process: sl_enter + sl_exit, sl_next, a task's
// step in + out; and a pair of a process that records nothing, in ns. Run it as `scoped-lane run -o FILE -- pair`.
//
// Laps of 8,000 iterations; a group is 40 laps of each loop, in turn; ten groups. A lap's figure is its time over that of the bare
// rdtsc beside it. The figure of a loop is the lowest of the groups' medians: what the machine can do when nobody disturbs it; p10, p50
// and p90 of all its laps stand beside it. Before each lap the ring is drained, and a loop that lost a call gets no figure.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

enum { ITERATIONS = 8000, LAPS = 40, GROUPS = 10, DRAIN_DEADLINE_S = 10 };

static sl_region_t region, other;
static sl_task_t task;

static void run_bare(void)
{
    for (int i = 0; i < ITERATIONS; i++) {
        sl_ticks_();
        sl_ticks_();
    }
}

static void run_pair(void)
{
    for (int i = 0; i < ITERATIONS; i++) {
        sl_enter(region);
        sl_exit(region);
    }
}

static void run_next(void)
{
    sl_enter(region);
    for (int i = 0; i < ITERATIONS / 2; i++) {
        sl_next(other);
        sl_next(region);
    }
    sl_exit(region);
}

static void run_step(void)
{
    for (int i = 0; i < ITERATIONS; i++) {
        sl_task_step_in(task);
        sl_task_step_out(task);
    }
}

static struct loop {
    const char *name;
    void (*run)(void);
    double asked;  // ratio; 0: no figure was asked for
    double ratios[GROUPS * LAPS];
    double lowest;
    uint64_t lost;
} loops[] = {
    {"sl_enter + sl_exit", run_pair, 1.10, {0}, 0, 0},
    {"sl_next", run_next, 0.65, {0}, 0, 0},
    {"step in + step out", run_step, 0, {0}, 0, 0},
};
enum { LOOPS = sizeof loops / sizeof *loops };

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double quantile(double *values, int count, double q)
{
    qsort(values, (size_t)count, sizeof *values, by_value);
    return values[(int)(q * (count - 1) + 0.5)];
}

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double lap(void (*run)(void))
{
    uint64_t begin = sl_ticks_();
    run();
    return (double)(sl_ticks_() - begin) / ITERATIONS;
}

// ---- while a daemon reads along

static uint64_t lost(const struct sl_ring *ring)
{
    uint64_t sum = 0;
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        sum += ring->lost[reason];
    return sum;
}

static void wait_until_drained(const struct sl_ring *ring)
{
    double deadline = seconds() + DRAIN_DEADLINE_S;
    while (sl_load_relaxed(&ring->tail) != ring->head) {
        if (seconds() > deadline) {
            fprintf(stderr, "pair: nobody has drained the ring for %d s: is there a daemon? Run it under `scoped-lane run`\n", DRAIN_DEADLINE_S);
            exit(1);
        }
        sched_yield();
    }
}

static void measure_group(struct sl_ring *ring, int group)
{
    for (int i = 0; i < LAPS; i++)
        for (int j = 0; j < LOOPS; j++) {
            wait_until_drained(ring);
            uint64_t before = lost(ring);
            double bare = lap(run_bare), own = lap(loops[j].run);
            loops[j].ratios[group * LAPS + i] = own / bare;
            loops[j].lost += lost(ring) - before;
        }
    for (int j = 0; j < LOOPS; j++) {
        double median[LAPS];
        memcpy(median, loops[j].ratios + group * LAPS, sizeof median);
        double p50 = quantile(median, LAPS, 0.5);
        if (group == 0 || p50 < loops[j].lowest)
            loops[j].lowest = p50;
    }
}

// ---- in a process that records nothing

static double *off_ns;

static void measure_off(void)
{
    double lowest = 0, all[GROUPS * LAPS], ns_per_tick, begin_s = seconds();
    uint64_t begin = sl_ticks_();
    region = sl_region("off");
    for (int group = 0; group < GROUPS; group++) {
        double group_laps[LAPS];
        for (int i = 0; i < LAPS; i++)
            all[group * LAPS + i] = group_laps[i] = lap(run_pair);
        double p50 = quantile(group_laps, LAPS, 0.5);
        lowest = group == 0 || p50 < lowest ? p50 : lowest;
    }
    ns_per_tick = (seconds() - begin_s) * 1e9 / (double)(sl_ticks_() - begin);
    off_ns[0] = lowest * ns_per_tick;
    off_ns[1] = quantile(all, GROUPS * LAPS, 0.1) * ns_per_tick;
    off_ns[2] = quantile(all, GROUPS * LAPS, 0.5) * ns_per_tick;
    off_ns[3] = quantile(all, GROUPS * LAPS, 0.9) * ns_per_tick;
    off_ns[4] = sl_is_active();
}

static int run_off(void)
{
    int status = -1;
    off_ns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (off_ns == MAP_FAILED)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        setenv("SCOPED_LANE", "off", 1);
        measure_off();
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0 && off_ns[4] == 0 ? 0 : -1;
}

int main(void)
{
    int failed = 0;
    if (run_off() < 0) {
        fprintf(stderr, "pair: cannot measure a process that records nothing\n");
        return 1;
    }
    region = sl_region("pair");
    other = sl_region("other");
    sl_enter(region);
    sl_exit(region);
    task = sl_task_create("task", "task", "");
    if (!sl_is_active()) {
        fprintf(stderr, "pair: nothing is recorded: no daemon was found. Run it under `scoped-lane run`\n");
        return 1;
    }
    for (int group = 0; group < GROUPS; group++)
        measure_group(sl_self_->ring, group);
    sl_task_finish(task);

    printf("%-20s %7s %7s %7s %7s %7s\n", "to 2 x rdtsc", "ratio", "p10", "p50", "p90", "asked");
    for (int j = 0; j < LOOPS; j++) {
        struct loop *loop = &loops[j];
        if (loop->lost) {
            printf("%-20s no figure: it lost %llu calls\n", loop->name, (unsigned long long)loop->lost);
            failed = 1;
            continue;
        }
        int count = GROUPS * LAPS;
        double p10 = quantile(loop->ratios, count, 0.1), p50 = quantile(loop->ratios, count, 0.5), p90 = quantile(loop->ratios, count, 0.9);
        printf("%-20s %7.3f %7.3f %7.3f %7.3f", loop->name, loop->lowest, p10, p50, p90);
        printf(loop->asked ? " %7.2f%s\n" : "       -\n", loop->asked, loop->lowest > loop->asked ? "  over" : "");
    }
    printf("%-20s %7.3f %7.3f %7.3f %7.3f %7.2f%s\n", "off, ns a pair", off_ns[0], off_ns[1], off_ns[2], off_ns[3], 1.0,
           off_ns[0] > 1.0 ? "  over" : "");
    return failed;
}
