// Work that a library may crash on, in a process of its own: HDF5 1.10 follows damaged references of a file without
// looking.
#ifndef SL_CLI_ISOLATED_H
#define SL_CLI_ISOLATED_H

// Runs work(context) in a child and returns what it returned (0 to 255), as an exit status is. Where the child crashed, or an alarm()
// that it had set ended it, says "cannot read SUBJECT: …" and returns `crashed`. What the child changed in memory is lost. A child
// that a signal such as SIGINT or SIGPIPE ended takes this process with it.
int isolated_run(int (*work)(void *context), void *context, const char *subject, int crashed);

#endif
