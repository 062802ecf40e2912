// What tasks cost: a step (in + out) against an enter + exit pair, and a pair inside a task against one outside. Run it as
// `scoped-lane run -o FILE -- steps`.
//
// 400 laps of 4,000 iterations of each loop, in turn. A loop's time is the tenth percentile of its laps: what the machine can do when
// nobody disturbs it.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <scoped_lane.h>

enum { ITERATIONS = 4000, LAPS = 400 };

static sl_region_t region;
static sl_task_t task;

static double pairs(void)
{
    uint64_t begin = sl_ticks_();
    for (int i = 0; i < ITERATIONS; i++) {
        sl_enter(region);
        sl_exit(region);
    }
    return (double)(sl_ticks_() - begin);
}

static double pairs_inside(void)
{
    sl_task_step_in(task);
    double ticks = pairs();
    sl_task_step_out(task);
    return ticks;
}

static double steps(void)
{
    uint64_t begin = sl_ticks_();
    for (int i = 0; i < ITERATIONS; i++) {
        sl_task_step_in(task);
        sl_task_step_out(task);
    }
    return (double)(sl_ticks_() - begin);
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

// So that no lap runs into a full ring: that is another path.
static void wait_until_drained(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    const struct sl_ring *ring = sl_self_->ring;
    for (int i = 0; sl_load_relaxed(&ring->tail) != sl_load_relaxed(&ring->head); i++) {
        if (i == 10000) {
            fprintf(stderr, "steps: nobody drains the ring; run it under `scoped-lane run`\n");
            exit(1);
        }
        nanosleep(&pause, NULL);
    }
}

static double tenth(double *laps)
{
    qsort(laps, LAPS, sizeof *laps, by_value);
    return laps[LAPS / 10];
}

int main(void)
{
    static double outside[LAPS], inside[LAPS], stepped[LAPS];
    region = sl_region("region");
    task = sl_task_create("task", "stepped", "bench");
    sl_enter(region);
    sl_exit(region);
    if (!sl_is_active()) {
        fprintf(stderr, "steps: nothing is recorded; run it under `scoped-lane run`\n");
        return 1;
    }
    for (int lap = 0; lap < LAPS; lap++) {
        wait_until_drained();
        outside[lap] = pairs();
        inside[lap] = pairs_inside();
        stepped[lap] = steps();
    }
    sl_task_finish(task);
    double pair = tenth(outside), step = tenth(stepped) / pair, within = tenth(inside) / pair;
    printf("a step (in + out)      %.2f pairs, asked for at most 2.20\n", step);
    printf("a pair inside a task   %.2f pairs outside, asked for at most 1.05\n", within);
    return step > 2.2 || within > 1.05;
}
