// /metrics: what Prometheus gathers, in its text format.
#ifndef SL_SERVICES_METRICS_H
#define SL_SERVICES_METRICS_H

#include "services/query-page.h"

// Of the page the daemon, the asker and the time count. Series of runs that are being recorded, by run and rank, and by region:
// up to a number of them, beyond it the rest are left out and counted. Never one for each task or thread.
void metrics_write(struct page *page, struct buffer *body);

#endif
