#include "core/pace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "core/model.h"

uint32_t pace_names(const struct model *model)
{
    return model->name_count < PACE_NAMES ? model->name_count : PACE_NAMES;
}

const struct pacing *pace_of(const struct model_process *process, uint32_t name)
{
    return name < process->pace_count && process->paces[name].judged ? &process->paces[name] : NULL;
}

// Regions of one name at several places are one.
static void add_up(const struct model_process *process, uint32_t names, uint64_t *calls, uint64_t *total)
{
    memset(calls, 0, names * sizeof *calls);
    memset(total, 0, names * sizeof *total);
    for (uint32_t id = 0; id < process->region_count; id++) {
        const struct model_region *region = &process->regions[id];
        if (region->file && region->name < names) {
            calls[region->name] += region->calls;
            total[region->name] += region->total;
        }
    }
}

void pace_take(const struct model *model, struct model_process *process)
{
    static uint64_t calls[PACE_NAMES], total[PACE_NAMES];
    uint32_t names = pace_names(model);
    if (names > process->pace_count) {
        process->paces = alloc_resize(process->paces, names, sizeof *process->paces);
        memset(process->paces + process->pace_count, 0, (names - process->pace_count) * sizeof *process->paces);
        process->pace_count = names;
    }
    add_up(process, names, calls, total);
    for (uint32_t name = 0; name < names; name++) {
        struct pacing *pace = &process->paces[name];
        uint64_t made = calls[name] - pace->calls;
        pace->fresh = made > 0;
        if (made)
            pace->mean_ns = (double)model_length_ns(model, process, total[name] - pace->total) / (double)made;
        pace->calls = calls[name];
        pace->total = total[name];
    }
}

static int rising(const void *a, const void *b)
{
    double one = *(const double *)a, other = *(const double *)b;
    return one < other ? -1 : one > other;
}

static double median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, rising);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

// Those with a mean, of processes that live; fresh ones alone where asked for. NULL has them counted.
static uint32_t gather(const struct model *model, uint32_t name, bool fresh, double *means)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->process_count; i++) {
        const struct model_process *process = model->processes[i];
        const struct pacing *pace = name < process->pace_count ? &process->paces[name] : NULL;
        if (!pace || pace->mean_ns <= 0 || process->status.state > PROCESS_DEAF || (fresh && !pace->fresh))
            continue;
        if (means)
            means[count] = pace->mean_ns;
        count++;
    }
    return count;
}

static void judge(struct pacing *pace, double middle, double spread)
{
    pace->score = (float)(0.6745 * (pace->mean_ns - middle) / spread);
    pace->share += (float)PACE_WEIGHT * ((float)pace_is_outlier(pace) - pace->share);
    pace->judged = true;
}

void pace_judge(struct model *model, uint32_t name)
{
    uint32_t fresh = gather(model, name, true, NULL), known = fresh ? gather(model, name, false, NULL) : 0;
    if (known < PACE_PROCESSES)
        return;
    double *means = alloc_zeroed(known, sizeof *means);
    bool fresh_alone = fresh >= PACE_PROCESSES && fresh * 2 >= known;
    uint32_t count = gather(model, name, fresh_alone, means);
    double middle = median(means, count);
    for (uint32_t i = 0; i < count; i++)
        means[i] = fabs(means[i] - middle);
    double spread = median(means, count), least = PACE_SPREAD * middle;
    free(means);
    for (uint32_t i = 0; i < model->process_count; i++) {
        struct model_process *process = model->processes[i];
        if (name < process->pace_count && process->paces[name].fresh && process->status.state <= PROCESS_DEAF)
            judge(&process->paces[name], middle, spread > least ? spread : least);
    }
}
