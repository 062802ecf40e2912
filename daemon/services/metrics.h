// /metrics: what Prometheus gathers, in its text format.
#ifndef SL_SERVICES_METRICS_H
#define SL_SERVICES_METRICS_H

#include "services/query-page.h"

struct metrics;

// For an asker: series of the runs that are being recorded, by run and rank, and by region: up to a number of them, beyond it the rest are
// left out and counted. Never one for each task or thread.
struct metrics *metrics_begin(struct daemon *daemon, uid_t uid, bool sees_all);

// Gathers until that time, CLOCK_MONOTONIC. False: there is more, to be gathered in another turn of the loop; true: all stands in `body`.
bool metrics_write(struct metrics *metrics, int64_t until_ns, struct buffer *body);

void metrics_free(struct metrics *metrics);

#endif
