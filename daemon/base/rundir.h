// Runtime directories: where a daemon's sockets and its lock lie, and where clients and commands look for them.
// One rule for all (design.md §5): --rundir, else SCOPED_LANE_RUNDIR, else $XDG_RUNTIME_DIR/scoped-lane where usable,
// else /run/scoped-lane, else /tmp/scoped-lane-<uid>. The client has the same list in client/facts.c. Relative names are taken from the
// working directory, as it is now.
#ifndef SL_BASE_RUNDIR_H
#define SL_BASE_RUNDIR_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>

enum { RUNDIR_MAX = 4, RUNDIR_PATH_MAX = 4096 };

struct rundir_list {
    int count;
    char paths[RUNDIR_MAX][RUNDIR_PATH_MAX];
};

// The places where a process of that user looks which has these two variables, NULL where it has them not.
void rundir_places_of(struct rundir_list *list, const char *rundir, const char *xdg_runtime_dir, uid_t uid);

// The places to look for a daemon, best first. `option` is the --rundir argument or NULL; with it, or with the variable, there is one.
void rundir_places(struct rundir_list *list, const char *option);

// The directory a new daemon takes: the first that can be made and is ours (0700 when below /tmp). 0 or -errno; `path` names
// what was tried either way.
int rundir_own(const char *option, char path[RUNDIR_PATH_MAX]);

// "<rundir>/<name>" when it fits a socket address (107 bytes), else -ENAMETOOLONG.
int rundir_socket(const char *rundir, const char *name, char *path, size_t size);

// A socket of `type` connected to <rundir>/<name>, and who listens there; or -errno.
int rundir_connect_peer(const char *rundir, const char *name, int type, struct ucred *peer);

// The same, or -errno. Who listens must be root or ourselves (-EACCES): anyone may make a
// directory in /tmp.
int rundir_connect(const char *rundir, const char *name, int type);

#endif
