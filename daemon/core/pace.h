// Which process is slower than the others in a region, now and then or all the time.
//
// Once an interval each process's calls of a region since the interval before give a mean length; the processes of a run that have finished
// some in it are compared, or, where these are the fewer, all by their latest. A process is an outlier when its modified z-score,
//
//     0.6745 × (mean − median of the means) / MAD        MAD: the median of the distances from that median
//
// is above 3.5 (B. Iglewicz, D. C. Hoaglin: How to Detect and Handle Outliers, ASQC Quality Press 1993). A slow one moves neither median, as it
// would mean and deviation. MAD counts as 2 % of the median at least: where the others agree that well, 10 % slower is what is told.
// Chronic is who was an outlier in more than half of its latest intervals, by an exponentially weighted mean.
//
// Nothing of it is asked of the program: the daemon has the counts.
#ifndef SL_CORE_PACE_H
#define SL_CORE_PACE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    PACE_NAMES = 2048,   // regions of a run that are looked at: the first
    PACE_PROCESSES = 3,  // with fewer there is nothing to compare
};

#define PACE_SCORE   3.5
#define PACE_SPREAD  0.02  // of the median: the least MAD
#define PACE_WEIGHT  0.25  // of the latest interval
#define PACE_CHRONIC 0.5

// Of a region in a process; all zero before the first interval.
struct pacing {
    uint64_t calls, total;  // finished, and ticks in them, at the end of the latest interval
    double mean_ns;         // of a call, in the latest interval with any; 0 none
    float score;            // modified z-score then
    float share;            // of intervals in which it was an outlier, the latest counting most
    bool fresh;             // some calls ended in the latest interval
    bool judged;            // score and share are known
};

struct model;
struct model_process;

// An interval ends: first for each process, then for each name below pace_names.
void pace_take(const struct model *model, struct model_process *process);
uint32_t pace_names(const struct model *model);
void pace_judge(struct model *model, uint32_t name);

// NULL where nothing is known.
const struct pacing *pace_of(const struct model_process *process, uint32_t name);
static inline bool pace_is_outlier(const struct pacing *pace)
{
    return pace->score > PACE_SCORE;
}

static inline bool pace_is_chronic(const struct pacing *pace)
{
    return pace->share > PACE_CHRONIC;
}

#endif
