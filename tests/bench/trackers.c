// What a task costs a program that keeps a tracker and records nothing: 200,000 tasks one after another, 30,000 of them alive at a time,
// and all of them, against 20,000. A program that pays more for each the more there are would show it here.
//
// Turns are taken; a figure is the lowest of its laps.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <scoped_lane.h>

enum { FEW = 20000, MANY = 200000, LAPS = 5 };

static struct loop {
    const char *name;
    int count, alive;
    double lowest_ns;
} loops[] = {
    {"20,000 tasks, 100 at a time", FEW, 100, 0},
    {"200,000 tasks, 100 at a time", MANY, 100, 0},
    {"200,000 tasks, 30,000 at a time", MANY, 30000, 0},
    {"200,000 tasks at once", MANY, MANY, 0},
};
enum { LOOPS = sizeof loops / sizeof *loops };

static double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

// ns a task, from its creation to its row in a snapshot.
static double lap_ns(int count, int alive)
{
    static sl_task_t tasks[MANY];
    sl_tracker_t tracker = sl_tracker_create();
    double begin = now_ns();
    sl_tracker_install(tracker);
    for (int i = 0; i < count + alive; i++) {
        if (i >= alive)
            sl_task_finish(tasks[i % alive]);
        if (i < count) {
            tasks[i % alive] = sl_task_create("task", "Task", "body");
            sl_task_step_in(tasks[i % alive]);
            sl_task_step_out(tasks[i % alive]);
        }
    }
    struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, 0);
    double took = now_ns() - begin;
    if (!snapshot || snapshot->tasks.count != (size_t)count) {
        fprintf(stderr, "trackers: not every task has its row\n");
        exit(1);
    }
    free(snapshot);
    sl_tracker_destroy(tracker);
    return took / count;
}

int main(void)
{
    int over = 0;
    setenv("SCOPED_LANE", "off", 1);
    for (int lap = 0; lap < LAPS; lap++)
        for (int i = 0; i < LOOPS; i++) {
            double ns = lap_ns(loops[i].count, loops[i].alive);
            loops[i].lowest_ns = lap == 0 || ns < loops[i].lowest_ns ? ns : loops[i].lowest_ns;
        }
    for (int i = 0; i < LOOPS; i++) {
        double ratio = loops[i].lowest_ns / loops[0].lowest_ns;
        printf("%-32s %6.0f ns each", loops[i].name, loops[i].lowest_ns);
        printf(i ? ", %.2f times as much, asked for at most 2.50\n" : "\n", ratio);
        over |= ratio > 2.5;
    }
    return over;
}
