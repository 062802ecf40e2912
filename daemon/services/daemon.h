// The daemon: what its parts share. One libuv loop, one thread.
//
//    registration.c  register.sock: hello and welcome
//    scan.c      the scan for segments
//    clients.c   who is there: adoption, liveness, the end of a process
//    pump.c      rings, rows and strings of a client into its run's model and spool
//    parts.c     where one run file of a process ends and the next one begins
//    leftovers.c segments of the dead, bounded
//    pause.c     processes that record nothing for the time being
//    pacing.c    processes that are slower than the others
//    sampler.c   CPU time of threads from /proc
//    runs.c      which run a process belongs to, when a run ends, the converter
//    background.c  what would hold up the loop
//    query.c     the answers on query.sock
//    service.c   lock, sockets, signals, the loop
//
// Lifetimes: a run outlives its clients (its model is what queries show) until it is forgotten; a client lives from adoption
// until its segment is drained after its process has ended.
#ifndef SL_SERVICES_DAEMON_H
#define SL_SERVICES_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "core/model.h"
#include "core/segment.h"
#include "services/settings.h"
#include "storage/spool.h"

struct converter;

// What is no setting: how this daemon was started.
struct daemon_options {
    const char *config;   // the configuration file, NULL none
    bool private_mode;    // started by `scoped-lane run`: ends when its members have gone and their run is published
    bool salvage;         // makes files of what lies here, and ends
    int ready_fd;         // a byte is written here when ready; -1 none
};

enum run_state { RUN_RECORDING, RUN_CONVERTING, RUN_PUBLISHED, RUN_FAILED };

// A `scoped-lane run` that waits for this run.
struct member {
    pid_t pid;
    uint64_t start_time;
    bool left;
};

struct run {
    struct daemon *daemon;
    struct run *next;
    uint64_t number;  // rising
    char id[17];      // 64 bits in hex
    char *key;      // "uid:…"
    uid_t uid;
    gid_t gid;
    enum run_state state;
    char *output;   // the run file's final path; NULL until known
    int schema;     // of the run file: 2 or 3
    bool compress;
    char *problem;  // why it failed; NULL
    struct model model;
    struct spool spool;
    bool has_spool;
    uint32_t part;            // 1, then continuations 2, 3 …
    uint32_t clients;         // still attached
    struct member *members;
    uint32_t member_count;
    uint32_t members_expected;
    bool finish_asked;
    bool paused;              // all of it: processes that come are paused too
    bool sealed;              // restored, and its spool says that it has ended: only its file is missing
    bool restored;            // from the spool a daemon before us left
    int64_t idle_since_ns;    // when its last client went; 0 while there are some, or none came yet
    int64_t flush_tried_ns;
    bool syncing, readying;   // background_sync, background_ready are at work
    bool refresh_windows;
    int64_t ready_after_ns;   // no window of the spool could be made: not tried before
    uint32_t unable;          // processes that could not make a segment
    char *unable_words;
    struct converter *converter;  // of its file, while it runs
    uint32_t converters;          // that one, and snapshots in the making
    uint32_t conversions;         // of its file, begun so far
    uint32_t told_state;          // to followers: 1 + state, 0 none
    int64_t stuck_since_ns, alerted_ns;  // a lane is stuck that no alert has told of; the last alert
    uint32_t alerts;
    int64_t paced_ns;      // when the latest interval ended (core/pace.h)
    uint32_t pacing_part;  // of the look at it that is in progress
};

struct client {
    struct daemon *daemon;
    struct client *next;
    struct run *run;
    struct model_process *process;
    struct segment segment;
    pid_t pid;
    uint64_t start_time;
    int socket;             // -1 none
    uv_poll_t *socket_poll;
    int pidfd;              // -1 none
    bool gone;              // the process has ended
    bool broken;
    bool paused, unsettled;  // unsettled: lanes may have been made while this changed
    int64_t gone_ns;
    uint32_t pump_round, sample_pass;  // which it has had
    uint32_t next_ring;  // of the round in progress
    int64_t maps_checked_ns;
    // what was seen of rows, by number
    uint32_t *thread_versions, *task_versions;
    uint32_t thread_rows, task_rows;
    int64_t tasks_scanned_ns, ledger_ns, open_ns, samples_ns, dropped_ns;
    bool drops_due;  // in this round: what the spool has no room for may be put as dropped
    // to be given back once the spool has it
    struct release {
        uint32_t slot;
        uint64_t next;
    } *releases;
    uint32_t release_count, release_room;
    uint32_t **spooled_states;
    uint32_t spooled_count, spooled_room;
    uint32_t unmatched_said;
    uint32_t told_state;  // of its process, to followers: 1 + state, 0 none
    struct stuck *stuck, *looking;  // lanes, when looked at last; and of the look in progress, which is at that part of them
    uint32_t stuck_count, looking_count, looking_room, looking_part;
    int64_t looked_ns;
    struct schedstat *schedstat;  // descriptors by thread
};

struct daemon {
    struct daemon_options options;
    struct settings settings;
    uv_loop_t loop;
    char rundir[4096];
    char host[256];
    int lock_fd;
    int eventfd;
    uint32_t clock_kind;
    struct ticks clock;          // anchors of this machine, shared by all runs
    struct client *clients;
    uint32_t client_count;
    struct run *runs;            // newest first
    uint64_t runs_made;
    uint64_t generation;         // rises with each drain that found something
    uv_poll_t *register_poll, *wake_poll;
    uv_timer_t pump_timer, sample_timer, second_timer;
    uv_idle_t pump_idle;         // instead of the timer, while rings are that full
    uv_signal_t signals[3];
    struct http *http;
    bool ending;
    int64_t started_ns;
    int64_t end_deadline_ns;
    int64_t sample_due_ns;       // threads are not sampled before
    int64_t sample_cpu_ns;       // what this pass over them has taken
    uint32_t sample_pass, sample_turns;  // turns of the loop, of the pass
    int64_t checked_ns;          // clients, runs, and whether lanes are stuck
    uint32_t pump_period_ms;
    uint32_t pump_round;
    bool pump_unfinished;        // not all clients have had this round
    bool pump_found;             // something, in this round
    bool pump_busy;              // a ring was found so full that the next round follows at once
    uint64_t refused;
    char last_refusal[512];
    int exit_status;
    bool had_member;
    int64_t leftovers_ns;        // when they were last looked at
    bool sockets_given;  // by the service manager: they stay when we go
    uint64_t alerts;
    uint32_t alert_commands;  // that run
    struct follower *followers;
    int64_t followers_until_ns;  // at our end: when those that have not gone are left
    uint64_t follow_lost;  // lines that they were too slow for
    unsigned listings;     // answers in the making, over several turns of the loop: no run is forgotten meanwhile
};

// ---- service.c
int service_run(const struct daemon_options *options, const struct settings *settings);  // until it is told to end; the exit status
void service_end(struct daemon *daemon);                // final drain, seal, convert, exit

// ---- registration.c
int registration_listen(struct daemon *daemon, int fd);  // takes the listening register.sock over
void registration_drop_silent(void);                     // each second: who connects and says nothing only holds a descriptor

// ---- scan.c
void scan_run(struct daemon *daemon);  // adopts segments that lie in the directory

// ---- clients.c
void clients_check(struct daemon *daemon);           // who has ended?
void clients_close_all(struct daemon *daemon);       // at the daemon's end: segments stay, for the next one, unless drained
void client_close(struct client *client);            // the process is over and drained

// ---- pump.c
void pump_client(struct client *client, bool last);  // a whole round; last: everything, open calls too
void pump_all(struct daemon *daemon);
void pump_names(struct daemon *daemon);  // before a look at lane blocks: an idle daemon may not know a region yet that is open there

// ---- parts.c
// Adopted: where its rings go on, and what earlier files account for. Is its process new to the run, or was it in the run's spool?
void parts_begin(struct client *client, bool is_new);
void parts_end(struct client *client);  // its run has ended and it lives: what the files so far account for

// ---- leftovers.c
void leftovers_bound(struct daemon *daemon);  // once a minute: removes the oldest of what is beyond a user's quota

// ---- pause.c
void pause_client(struct client *client, bool paused);
void pause_note(struct client *client);     // where its part of the run begins
void pause_adopted(struct client *client);  // has it been paused before it was adopted, or its run?
void pause_check(struct daemon *daemon);    // each second: lanes that were made meanwhile

// ---- sampler.c
bool sampler_run(struct daemon *daemon);       // all threads, in as many calls as it takes: was this the last one of the pass?
void sampler_run_busy(struct daemon *daemon);  // those with many calls since their last sample
void sampler_forget(struct client *client);

// ---- runs.c
struct run *runs_for_client(struct daemon *daemon, const struct client *client, uid_t uid, gid_t gid);
// Its parent is the nearest ancestor that is in the run, where there is one: shells and servers of forks are left out.
void runs_find_parent(const struct run *run, const struct client *client, struct process_facts *facts);
struct run *runs_find(const struct daemon *daemon, const char *name, uid_t uid);  // the newest one of that name that `uid` may have
bool runs_is_called(const struct run *run, const char *name);                     // its id, its key, or the key's last part
// What a `scoped-lane run` asks for.
struct join {
    const char *key, *output;
    const char *again;  // the id of the run it joined at a daemon before us, "" or NULL none
    uint32_t expected;
    int schema;
    bool compress;
};
struct run *runs_join(struct daemon *daemon, const struct join *join, uid_t uid, gid_t gid, pid_t pid, char *problem, size_t size);
bool runs_leave(struct run *run, pid_t pid);
void runs_note_exit(struct run *run, uint32_t pid, int exit_status);  // its parent tells how its latest process of that number ended
void runs_finish(struct run *run);          // ends it now
// A complete run file as of now, the program unpaused; `done` as in converter.h. 0 or -errno.
int runs_snapshot(struct run *run, const char *output, void (*done)(struct converter *, void *), void *context,
                  struct converter **converter);
void runs_check(struct daemon *daemon);     // ends what is over
void runs_forget(struct daemon *daemon);    // those that are long over
bool runs_settled(const struct daemon *daemon);
void runs_free_all(struct daemon *daemon);
const char *runs_state_name(const struct run *run);
void runs_note_unable(struct daemon *daemon, uid_t uid, const char *key, pid_t pid, const char *path, int error);

// ---- run-spool.c
char *run_output_default(const struct run *run, const struct client *client);  // <dir>/<program>-<host>-<local time>-<run id>.h5
char *run_output_continuation(const char *output, uint32_t part);               // run.h5 -> run-2.h5
int run_spool_make(struct run *run);      // 0, or -errno with the reason in run->problem
void run_spool_drop(struct run *run);     // the file is published: the spool goes
void run_spool_anchors(struct run *run);  // a fresh anchor
void run_rights_take(uid_t uid, gid_t gid);  // this thread's access to files, for root who serves others
void run_rights_return(void);
int runs_flush(struct run *run);          // what is pending goes to the spool; 0 or -errno

struct spool_reader;
struct run *runs_restore(struct daemon *daemon, struct spool_reader *reader, uid_t uid, gid_t gid);  // RECORDING, its spool closed
void runs_continue(struct client *client);  // a process of a run that is over goes on in a continuation
bool runs_wait_for_restored(const struct run *run);  // does a process of it live that has not come back yet?

// ---- restore.c
void restore_runs(struct daemon *daemon);   // at the start: what the last daemon of this directory left
void restore_check(struct daemon *daemon);  // restored processes that have ended meanwhile
struct model_process *restore_find(const struct daemon *daemon, const uint8_t uuid[16], uid_t uid, struct run **run);
bool restore_is_over(const struct daemon *daemon, const uint8_t uuid[16]);  // has this process been wound up already?
char *restore_link(const struct run *run);  // where the runtime directory names a run's spool

// ---- background.c
void background_ready(struct run *run);  // windows of its spool, where they are wanted
void background_sync(struct run *run);  // its spool to the disk, on another thread; the run is not freed meanwhile

// ---- query.c
struct http_request;
struct http_reply;
// A parameter; -1 with the reply made when it is no whole number.
int query_integer(struct http_request *request, struct http_reply *reply, const char *name, int64_t *value, bool *has);
bool query_sees_all(const struct daemon *daemon, const struct http_request *request);  // root, the daemon's user, observers
int query_listen(struct daemon *daemon, int fd);

#endif
