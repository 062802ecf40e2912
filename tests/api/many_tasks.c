// Very many tasks one after another, few of them alive at once: tests/end/test_many_tasks.py looks at what they cost and leave.
//
//     many_tasks TASKS ALIVE [PAUSE]
//
// Each task makes two steps with a call that lasts over both and one within each, among the steps of the ALIVE - 1 tasks that were made
// before and after it. PAUSE is how many ns are burnt for each task. In the middle the program says so and waits for a line.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <scoped_lane.h>

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void burn(long pause_ns)
{
    for (long end_ns = now_ns() + pause_ns; pause_ns && now_ns() < end_ns;)
        ;
}

static sl_region_t life, part;

static void step(sl_task_t task, int last)
{
    sl_task_step_in(task);
    if (!last)
        sl_enter(life);
    sl_enter(part);
    sl_exit(part);
    if (last)
        sl_exit(life);
    sl_task_step_out(task);
}

int main(int argc, char **argv)
{
    long tasks = argc > 1 ? atol(argv[1]) : 0, alive = argc > 2 ? atol(argv[2]) : 0, pause_ns = argc > 3 ? atol(argv[3]) : 0;
    if (tasks < alive || alive < 1)
        return 2;
    sl_task_t *window = calloc((size_t)alive, sizeof *window);
    life = sl_region("life");
    part = sl_region("part");
    for (long i = 0; window && i < tasks + alive; i++) {
        sl_task_t *place = &window[i % alive];
        if (i >= alive) {
            step(*place, 1);
            sl_task_finish(*place);
        }
        if (i < tasks) {
            char name[32];
            snprintf(name, sizeof name, "task %ld", i);
            *place = sl_task_create("task", name, "generation");
            step(*place, 0);
        }
        burn(pause_ns);
        if (i == tasks / 2) {
            printf("half\n");
            fflush(stdout);
            if (getchar() == EOF)
                return 2;
        }
    }
    printf("%ld calls\n", 3 * tasks);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    free(window);
    return 0;
}
