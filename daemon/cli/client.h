// Asks the daemons that listen: finds them, gets every page of a reply by HTTP over query.sock, and merges what several
// daemons say.
//
// Where they are: each runtime directory of base/rundir.h, and in it each directory `run-*`, where `scoped-lane run` keeps
// a private daemon; so that `ps` in another terminal shows private daemons too. With --rundir or SCOPED_LANE_RUNDIR it is
// that directory and the `run-*` in it. A directory found by rule must belong to us or to root: anyone may make one in
// /tmp.
#ifndef SL_CLI_CLIENT_H
#define SL_CLI_CLIENT_H

#include <jansson.h>
#include <stdbool.h>

struct client_query {
    const char *rundir;      // the --rundir argument or NULL
    const char *path;        // "/v1/threads"
    const char *parameters;  // "rank=3&pid=12", values escaped (client_escape); NULL: none
    bool post;
    const char *const *sockets;  // NULL: by `rundir`; else these query sockets, ended by NULL, and each has to answer
    bool quiet;  // that nobody listens is not said
    bool only;  // the daemon of `rundir` itself, not the private ones below it
};

// An array of {"rundir": DIRECTORY, "reply": OBJECT}, one for each daemon that answered, all pages in one reply. The caller
// drops it. Returns 0; 1 when some daemon answered with an error or not at all while others did well; -errno when none did,
// and then there is no array. What failed has been said on stderr: "no daemon: tried A (No such file or directory), …".
int client_ask_each(const struct client_query *query, json_t **replies);

// The same as one reply: the rows of all, their trust added up, the latest time; "daemons" counts them where there are
// several.
int client_ask(const struct client_query *query, json_t **reply);

// ?name=value with the value escaped, to be appended to `parameters` ("" at first); the result replaces it and is freed by
// the caller.
char *client_escape(char *parameters, const char *name, const char *value);

#endif
