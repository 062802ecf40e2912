#include "services/pacing.h"

#include "base/clock.h"

#define INTERVAL_NS INT64_C(1000000000)
#define BUDGET_NS   INT64_C(1000000)  // of one turn of the loop

// One process, or one name of a run with enough of them; true when the interval has been looked at.
static bool look_at_part(struct run *run)
{
    struct model *model = &run->model;
    uint32_t part = run->pacing_part++;
    if (model->process_count < PACE_PROCESSES)
        return true;
    if (part < model->process_count) {
        if (model->processes[part]->status.state <= PROCESS_DEAF)
            pace_take(model, model->processes[part]);
        return false;
    }
    if (part - model->process_count >= pace_names(model))
        return true;
    pace_judge(model, part - model->process_count);
    return false;
}

// False when there is more to do than a turn of the loop may take.
static bool look_at_run(struct run *run, int64_t begin_ns)
{
    do {
        if (clock_monotonic_ns() - begin_ns > BUDGET_NS)
            return false;
    } while (!look_at_part(run));
    run->pacing_part = 0;
    return true;
}

void pacing_run(struct daemon *daemon)
{
    int64_t begin_ns = clock_monotonic_ns();
    for (struct run *run = daemon->runs; run; run = run->next) {
        if (run->state != RUN_RECORDING || (!run->pacing_part && begin_ns - run->paced_ns < INTERVAL_NS))
            continue;
        if (!run->pacing_part)
            run->paced_ns = begin_ns;
        if (!look_at_run(run, begin_ns))
            return;
    }
}
