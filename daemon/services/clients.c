// Who is there. A client arrives in two ways: over register.sock (registration.c), with its segment's descriptor, or by the scan
// (scan.c), which finds segments by their names once a second (a busy or restarted daemon misses nothing). Identity comes from
// SO_PEERCRED and from the file's owner, never from what the client says.
//
// The end of a process: (pid, start time) is no longer there; its pidfd then tells the exit status. Socket EOF alone is a hint: a
// program may close descriptors it did not open ("deaf"), or execute another program ("exec").
#include "services/clients.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/say.h"
#include "base/testpoint.h"
#include "core/procfs.h"
#include "services/follow.h"
#include "services/watchdog.h"

void clients_refuse(struct daemon *daemon, pid_t pid, const char *path, const char *problem)
{
    daemon->refused++;
    snprintf(daemon->last_refusal, sizeof daemon->last_refusal, "process %d, segment %s: %s", (int)pid, path, problem);
    say("refused process %d: its segment %s: %s", (int)pid, path, problem);
}

// ---- adoption

struct client *clients_find(const struct daemon *daemon, dev_t device, ino_t inode)
{
    for (struct client *client = daemon->clients; client; client = client->next)
        if (client->segment.inode == inode && client->segment.device == device)
            return client;
    return NULL;
}

static struct process_facts facts_of(const struct client *client, uid_t uid, gid_t gid)
{
    const struct sl_segment *identity = &client->segment.identity;
    struct process_facts facts = {.pid = (uint32_t)client->pid, .parent_pid = identity->parent_pid,
                                  .start_time = client->start_time, .parent_start_time = identity->parent_start_time, .uid = uid,
                                  .gid = gid, .clock = identity->clock, .world_size = identity->world_size,
                                  .rank = sl_load_relaxed(&segment_header(&client->segment)->rank),
                                  .created_ticks = identity->created_ticks,
                                  .created_monotonic_ns = identity->created_monotonic_ns,
                                  .created_realtime_ns = identity->created_realtime_ns};
    memcpy(facts.uuid, identity->uuid, sizeof facts.uuid);
    return facts;
}

// The row of the model that it has: a new one, or the one that a daemon before us made for it. Is it new?
static bool find_process(struct client *client, uid_t uid, gid_t gid)
{
    struct daemon *daemon = client->daemon;
    client->process = restore_find(daemon, client->segment.identity.uuid, uid, &client->run);
    if (client->process && client->run->sealed) {
        client->run->clients++;
        runs_continue(client);
        client->run->clients--;  // whoever adopts it counts it
        return false;
    }
    if (client->process) {
        client->process->status.state = PROCESS_LIVE;
        return false;
    }
    client->run = runs_for_client(daemon, client, uid, gid);
    struct process_facts facts = facts_of(client, uid, gid);
    runs_find_parent(client->run, client, &facts);
    client->process = model_add_process(&client->run->model, &facts);
    client->process->host = alloc_text(daemon->host);
    spool_put_process(&client->run->spool, client->process);
    return true;
}

static void watch_pid(struct client *client)
{
    struct rlimit limit;
    client->pidfd = -1;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || client->daemon->client_count * 4 > limit.rlim_cur)
        return;  // few descriptors: the check by /proc serves
    client->pidfd = (int)syscall(SYS_pidfd_open, client->pid, 0);
    struct procfs_stat stat;
    bool is_it = procfs_stat((uint32_t)client->pid, 0, &stat) == 0 && stat.start_time == client->start_time;
    if (client->pidfd >= 0 && !is_it) {  // it has ended, and another has its number
        close(client->pidfd);
        client->pidfd = -1;
    }
}

// A look at a descriptor, where there is one, spares most looks into /proc, each of which takes twenty times as long.
static bool is_alive(const struct client *client)
{
    struct pollfd ended = {.fd = client->pidfd, .events = POLLIN};
    return (client->pidfd >= 0 && poll(&ended, 1, 0) <= 0) || procfs_is_alive((uint32_t)client->pid, client->start_time);
}

static void say_how_it_ended(struct client *client, bool exec);

static bool is_same_process(const struct model_process *one, const struct model_process *other)
{
    return one->facts.pid == other->facts.pid && one->facts.start_time == other->facts.start_time;
}

// Two copies of the library in one image keep both their sockets, or both say goodbye.
static bool has_left_without_goodbye(const struct client *client)
{
    char byte;
    return client->socket >= 0 && recv(client->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 &&
           !sl_load_acquire(&segment_header(&client->segment)->goodbye);
}

static bool is_image_before(const struct client *one, const struct client *other)
{
    const struct sl_segment *mine = &one->segment.identity, *others = &other->segment.identity;
    return mine->image && others->image && mine->image != others->image && mine->created_monotonic_ns < others->created_monotonic_ns;
}

static void end_by_exec(struct client *client)
{
    client->gone = true;
    client->gone_ns = clock_monotonic_ns();
    say_how_it_ended(client, true);
}

// What the same process was before: a new image means that it executed another program, also where it has ended since. A scan may find
// the two in any order.
static void end_earlier_images(struct client *client)
{
    for (struct client *other = client->daemon->clients; other; other = other->next) {
        if (other == client || !is_same_process(other->process, client->process))
            continue;
        bool comes_after = is_image_before(client, other);
        if (comes_after && !client->gone)
            end_by_exec(client);
        if (!comes_after && !other->gone && (is_image_before(other, client) || has_left_without_goodbye(other)))
            end_by_exec(other);
    }
    const struct model *model = &client->run->model;
    for (uint32_t i = 0; i < model->process_count; i++) {
        struct model_process *process = model->processes[i];
        struct process_status *status = &process->status;
        bool unexplained = status->state == PROCESS_VANISHED || status->state == PROCESS_KILLED;
        if (process == client->process || !is_same_process(process, client->process) || !unexplained)
            continue;
        status->state = PROCESS_EXEC;
        status->has_exit = 0;
        spool_put_status(&client->run->spool, process->number, status);
    }
}

// Makes a client of a mapped segment.
static struct client *adopt(struct daemon *daemon, struct segment *segment, pid_t pid, uid_t uid, gid_t gid)
{
    struct client *client = alloc_zeroed(1, sizeof *client);
    client->daemon = daemon;
    client->segment = *segment;
    guard_remove(&segment->map);
    guard_add(&client->segment.map);
    client->socket = -1;
    client->pid = pid;
    client->start_time = segment->identity.start_time;
    bool is_new = find_process(client, uid, gid);
    end_earlier_images(client);
    parts_begin(client, is_new);
    watch_pid(client);
    client->run->clients++;
    client->run->idle_since_ns = 0;
    client->next = daemon->clients;
    daemon->clients = client;
    daemon->client_count++;
    struct sl_segment *header = segment_header(&client->segment);
    sl_store_relaxed(&header->daemon_pid, (uint32_t)getpid());
    sl_store_release(&header->adopted, 1);
    sl_store_relaxed(&header->sleeping, 1);
    pause_adopted(client);
    TESTPOINT(client_adopted);
    say_detail("process %d joins run %s", (int)pid, client->run->id);
    pump_client(client, false);
    follow_client(client);
    return client;
}

bool clients_may_serve(uid_t uid)
{
    return geteuid() == 0 || uid == geteuid();
}

struct client *clients_open(struct daemon *daemon, int fd, const char *path, pid_t pid, uid_t uid, gid_t gid)
{
    char problem[256];
    struct segment segment;
    struct stat status;
    if (fstat(fd, &status) < 0 || status.st_uid != uid || !clients_may_serve(uid)) {
        clients_refuse(daemon, pid, path, "it belongs to another user");
        return NULL;
    }
    int result = segment_open(&segment, fd, path, problem);
    if (result == -EAGAIN)
        return NULL;
    if (result < 0) {
        clients_refuse(daemon, pid, path, problem);
        scan_note_foreign(status.st_ino);
        return NULL;
    }
    if (restore_is_over(daemon, segment.identity.uuid)) {  // a hello that was read after its process had been found, and had ended
        segment_unlink(&segment);
        segment_close(&segment);
        return NULL;
    }
    return adopt(daemon, &segment, pid, uid, gid);
}

// ---- ends

#ifndef PIDFD_GET_INFO
struct pidfd_info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
    int32_t exit_code;
};
#define PIDFD_GET_INFO _IOWR(0xFF, 11, struct pidfd_info)
#endif
#ifndef PIDFD_INFO_EXIT
#define PIDFD_INFO_EXIT (UINT64_C(1) << 3)
#endif

// The exit status, where the kernel tells it (Linux 6.15, once the parent has reaped the process).
static bool exit_known(const struct client *client, int *wait_status)
{
    struct pidfd_info info = {.mask = PIDFD_INFO_EXIT};
    if (client->pidfd < 0 || ioctl(client->pidfd, PIDFD_GET_INFO, &info) < 0 || !(info.mask & PIDFD_INFO_EXIT))
        return false;
    *wait_status = info.exit_code;
    return true;
}

static void say_how_it_ended(struct client *client, bool exec)
{
    struct process_status *status = &client->process->status;
    int wait_status;
    status->goodbye = sl_load_acquire(&segment_header(&client->segment)->goodbye);
    status->state = exec ? PROCESS_EXEC : status->goodbye ? PROCESS_ENDED : PROCESS_VANISHED;
    status->end_ns = clock_monotonic_ns();
    if (exec)
        return;
    if (exit_known(client, &wait_status)) {
        status->has_exit = 1;
        status->exit_status = WIFSIGNALED(wait_status) ? -WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    }
    if (status->has_exit && status->exit_status < 0)
        status->state = PROCESS_KILLED;
}

static bool still_there(struct client *client, int64_t now_ns, bool *exec)
{
    if (!is_alive(client))
        return false;
    if (client->socket >= 0 || now_ns - client->maps_checked_ns < 1000000000)
        return true;
    int maps = client->segment.path[0] ? procfs_maps_file((uint32_t)client->pid, client->segment.path) : 1;
    if (maps < 0)
        return true;  // dying: a moment later it is a zombie
    client->maps_checked_ns = now_ns;
    if (maps == 0) {
        *exec = is_alive(client);
        return false;
    }
    if (client->process->status.state == PROCESS_LIVE)
        client->process->status.state = PROCESS_DEAF;
    return true;
}

static void client_free(struct client *client)
{
    sampler_forget(client);
    watchdog_forget(client);
    segment_close(&client->segment);
    if (client->pidfd >= 0)
        close(client->pidfd);
    free(client->thread_versions);
    free(client->task_versions);
    free(client->releases);
    free(client->spooled_states);
    free(client);
}

static void unlink_from_list(struct client *client)
{
    struct client **place = &client->daemon->clients;
    while (*place != client)
        place = &(*place)->next;
    *place = client->next;
    client->daemon->client_count--;
}

void client_close(struct client *client)
{
    struct run *run = client->run;
    follow_client(client);
    registration_hang_up(client);
    unlink_from_list(client);
    segment_unlink(&client->segment);
    TESTPOINT(segment_unlinked);
    if (--run->clients == 0)
        run->idle_since_ns = clock_monotonic_ns();
    client_free(client);
}

// Everything it left is taken in; the exit status may come a moment after the end, when its parent has reaped it.
static void wind_up(struct client *client, int64_t now_ns)
{
    int wait_status;
    const struct process_status *status = &client->process->status;
    bool wait_for_status = client->pidfd >= 0 && status->state != PROCESS_EXEC && !status->has_exit &&
                           !exit_known(client, &wait_status) && now_ns - client->gone_ns < 200000000;
    if (wait_for_status || (client->run->spool.error && runs_flush(client->run) < 0 && !client->daemon->ending))
        return;  // the exit status is not known yet; or the disk is full, and what is left waits in the segment
    if (client->process->status.state != PROCESS_EXEC)
        say_how_it_ended(client, false);
    pump_client(client, true);
    if (client->broken)
        say("process %d: its segment %s does not hold together any more: what was read of it is kept", (int)client->pid,
            client->segment.path);
    if (client->run->spool.error && !client->daemon->ending)
        return;
    say_detail("process %d has left run %s", (int)client->pid, client->run->id);
    client_close(client);
}

void clients_check(struct daemon *daemon)
{
    int64_t now_ns = clock_monotonic_ns();
    for (struct client *client = daemon->clients, *next; client; client = next) {
        bool exec = false;
        next = client->next;
        if (!client->gone && !client->broken && still_there(client, now_ns, &exec)) {
            follow_client(client);
            continue;
        }
        if (!client->gone) {
            client->gone = true;
            client->gone_ns = now_ns;
            say_how_it_ended(client, exec);
            pump_client(client, true);  // its exit status may be waited for: meanwhile what was open is shown, not what had been
        }
        wind_up(client, now_ns);
    }
}

void clients_close_all(struct daemon *daemon)
{
    while (daemon->clients) {
        struct client *client = daemon->clients;
        sl_store_release(&segment_header(&client->segment)->adopted, 0);
        TESTPOINT(client_left_behind);
        unlink_from_list(client);
        client->run->clients--;
        registration_hang_up(client);
        client_free(client);
    }
    registration_close(daemon);
}
