// /v1/follow: a line of JSON for each change of state, as it happens: runs, processes, threads, tasks where asked for, lanes that are
// stuck. Each follower has a queue of its own; one that reads too slowly loses lines and is told how many, one that does not read at
// all is dropped by the server's write timeout. Nothing here waits for a reader.
#ifndef SL_SERVICES_FOLLOW_H
#define SL_SERVICES_FOLLOW_H

#include "services/daemon.h"
#include "services/http.h"

extern const char *const follow_parameters[];
int follow_get(void *context, struct http_request *request, struct http_reply *reply);

// Each tells when the state is another than it told last; cheap when nobody follows.
void follow_run(struct run *run);
void follow_client(struct client *client);  // its process

// Began, or has another name, when `ended` is false.
void follow_thread(const struct client *client, const struct thread_facts *facts, const char *name, bool ended);
void follow_task(const struct client *client, const struct task_facts *facts, const char *name, bool ended);

// An event of another kind: NULL when nobody would hear it, else an object that is open, with time, event and run, to be completed with
// members and ended by follow_tell, which says whose it is: a process's, or the whole run's (NULL).
struct json_writer *follow_begin(const struct run *run, const char *event);
void follow_tell(const struct run *run, const struct model_process *process);

void follow_end(struct daemon *daemon);  // every follower's stream ends once it has what was told

// Followers now, lines they have lost so far.
void follow_counts(const struct daemon *daemon, unsigned *followers, uint64_t *lost);

#endif
