// About once a second each run is looked at for processes that are slower than the others in a region (core/pace.h), part by part, so that
// no turn of the loop takes long.
#ifndef SL_SERVICES_PACING_H
#define SL_SERVICES_PACING_H

#include "services/daemon.h"

void pacing_run(struct daemon *daemon);

#endif
