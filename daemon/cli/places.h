// The runtime directories on this machine, private ones too, and the daemons' program.
#ifndef SL_CLI_PLACES_H
#define SL_CLI_PLACES_H

#include <stdbool.h>

// Calls `visit` with each runtime directory of base/rundir.h and each run-* in it that is there and ours.
void places_visit(const char *rundir_option, void (*visit)(void *context, const char *rundir, bool is_private), void *context);

bool places_listens(const char *rundir);  // does a daemon answer on its query.sock?
char *places_daemon_program(void);        // scoped-laned beside this program, else by PATH; freed by the caller

#endif
