// Times of a run's regions, added up over processes: closed calls from the model, open ones from the lane blocks as of now.
#ifndef SL_SERVICES_REGION_SUMS_H
#define SL_SERVICES_REGION_SUMS_H

#include "services/query-page.h"

struct region_sum {
    uint64_t calls, open;
    int64_t closed_ns, open_ns, self_ns, min_ns, max_ns;  // min, max of closed calls
    int64_t process_ns, largest_ns;  // of the process being added; of the process with most
    uint32_t processes;              // that have the region
    uint32_t stuck;                  // lanes that were in it and got nowhere, when looked at last
    bool bound;                      // one of them has lost calls, which do not say of which region
    bool lengths_lack;               // some of the calls are in no histogram
    struct histogram lengths;        // ns
};

struct region_sums {
    struct region_sum *of;  // by the name's number in the run
    uint32_t count;
};

void region_sums_init(struct region_sums *sums, const struct run *run);
void region_sums_finish(struct region_sums *sums);
// A process with very many lanes is not all added where the page pauses; called again when it goes on, it adds the rest.
void region_sums_add(struct region_sums *sums, struct page *page, struct run *run, struct model_process *process);

// A quantile of the closed calls; SL_UNKNOWN where it is not known.
int64_t region_sum_quantile(const struct region_sum *sum, double share);

#endif
