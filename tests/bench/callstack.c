// What lanes cost a reader: the call stacks of 10^6 calls on one lane and on 100,000, a task each. scope-profiler needs 0.18 s for the
// one and 22 s for the other.
//
// Turns are taken; a figure is the lowest of its laps, by the thread's own CPU clock: what the machine can do when nobody disturbs it.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "storage/scoped_lane_run.h"

enum { CALLS = 1000000, LANES = 100000, LAPS = 10 };

static void *column(size_t size)
{
    void *memory = calloc(CALLS, size);
    if (!memory) {
        fprintf(stderr, "callstack: no memory\n");
        exit(1);
    }
    return memory;
}

// Groups of ten calls, one around nine. Regions one after another, as a file has them.
static struct sl_calls make_calls(int64_t lanes)
{
    struct sl_calls calls = {.count = CALLS};
    int64_t groups = CALLS / 10, at = 0;
    calls.start_ns = column(sizeof *calls.start_ns);
    calls.end_ns = column(sizeof *calls.end_ns);
    calls.region = column(sizeof *calls.region);
    calls.call_index = column(sizeof *calls.call_index);
    calls.thread = column(sizeof *calls.thread);
    calls.task = column(sizeof *calls.task);
    for (; at < groups; at++) {
        calls.start_ns[at] = at * 1000, calls.end_ns[at] = at * 1000 + 900;
        calls.task[at] = at % lanes;
    }
    for (int64_t i = 0; at < CALLS; i++, at++) {
        calls.start_ns[at] = i / 9 * 1000 + i % 9 * 100, calls.end_ns[at] = calls.start_ns[at] + 70;
        calls.task[at] = i / 9 % lanes;
        calls.region[at] = 1;
    }
    return calls;
}

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static double lap_ms(const struct sl_calls *calls)
{
    struct sl_call_stack stack;
    struct sl_nesting_error wrong;
    double begin = cpu_ms();
    if (sl_call_stack_build(calls, &stack, &wrong) < 0) {
        fprintf(stderr, "callstack: the calls do not nest\n");
        exit(1);
    }
    double took = cpu_ms() - begin;
    sl_call_stack_finish(&stack);
    return took;
}

int main(void)
{
    struct sl_calls one = make_calls(1), many = make_calls(LANES);
    double best_one = 0, best_many = 0;
    for (int i = 0; i < LAPS; i++) {
        double of_one = lap_ms(&one), of_many = lap_ms(&many);
        best_one = i == 0 || of_one < best_one ? of_one : best_one;
        best_many = i == 0 || of_many < best_many ? of_many : best_many;
    }
    sl_calls_finish(&one);
    sl_calls_finish(&many);
    double ratio = best_many / best_one;
    printf("10^6 calls, 1 lane        %.1f ms\n", best_one);
    printf("10^6 calls, 100,000 lanes %.1f ms, %.2f times as much, asked for at most 1.50\n", best_many, ratio);
    return ratio > 1.5;
}
