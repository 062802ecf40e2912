// costs N: N times what tests/callgrind.sh counts the instructions of, each in a function of its own. It records against a
// register.sock that it makes itself, unless SCOPED_LANE=off.
#include <stdio.h>
#include <stdlib.h>

#include <scoped_lane.h>

#include "tests/place.h"

#define COUNTED __attribute__((noinline, noclone, used)) static

COUNTED void do_nothing(sl_region_t region)
{
    __asm__ __volatile__("" : : "r"(region));
}

COUNTED void do_enter(sl_region_t region)
{
    sl_enter(region);
}

COUNTED void do_exit(sl_region_t region)
{
    sl_exit(region);
}

COUNTED void do_next(sl_region_t region)
{
    sl_next(region);
}

COUNTED void do_enter_inside(sl_region_t region)
{
    sl_enter(region);
}

COUNTED void do_exit_inside(sl_region_t region)
{
    sl_exit(region);
}

COUNTED void do_step_in(sl_task_t task)
{
    sl_task_step_in(task);
}

COUNTED void do_step_out(sl_task_t task)
{
    sl_task_step_out(task);
}

COUNTED sl_task_t do_create(void)
{
    return sl_task_create("task", "Task-1234567", "measures.<locals>.work");
}

COUNTED void do_finish(sl_task_t task)
{
    sl_task_finish(task);
}

int main(int argc, char **argv)
{
    struct place place;
    long times = argc > 1 ? atol(argv[1]) : 1;
    const char *mode = getenv("SCOPED_LANE");
    int off = mode && strcmp(mode, "off") == 0;
    if (!off)
        place_make(&place);
    sl_region_t region = sl_region("region"), other = sl_region("other");
    sl_task_t task = sl_task_create("task", "task", "");
    for (long i = 0; i < times; i++) {
        do_nothing(region);
        do_enter(region);
        do_next(other);
        do_exit(other);
        do_step_in(task);
        do_enter_inside(region);
        do_exit_inside(region);
        do_step_out(task);
        do_finish(do_create());
    }
    int wrong = sl_is_active() == off;
    if (!off) {
        uint64_t produced = sl_self_->ring ? sl_self_->ring->produced : 0;
        wrong = wrong || produced != (uint64_t)times * 3;
        place_remove(&place);
    }
    if (wrong)
        fprintf(stderr, "costs: it does not record as it should\n");
    return wrong;
}
