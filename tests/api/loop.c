// loop KIND MS...: an event loop. A step of each of so many milliseconds, in turn by four tasks, the first of which ends then; prints of
// each step two lengths in ns between which its own lies. Then one step lasts until the end of the input.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <scoped_lane.h>

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void work(double milliseconds)
{
    int64_t end_ns = now_ns() + (int64_t)(milliseconds * 1e6), left_ns;
    while ((left_ns = end_ns - now_ns()) > 0)
        nanosleep(&(struct timespec){left_ns / 1000000000, left_ns % 1000000000}, NULL);
}

int main(int count, char **words)
{
    sl_task_t tasks[4];
    for (int i = 0; i < 4; i++)
        tasks[i] = sl_task_create(words[1], "handler", "handle");
    for (int i = 2; i < count; i++) {
        int64_t before_ns = now_ns();
        sl_task_step_in(tasks[i % 4]);
        int64_t in_ns = now_ns();
        work(atof(words[i]));
        int64_t out_ns = now_ns();
        sl_task_step_out(tasks[i % 4]);
        printf("%" PRId64 " %" PRId64 "\n", out_ns - in_ns, now_ns() - before_ns);
    }
    sl_task_finish(tasks[0]);
    sl_task_step_in(tasks[1]);
    printf("waits\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    sl_task_step_out(tasks[1]);
    return 0;
}
