// Who is there. A client arrives in two ways: over register.sock, with its segment's descriptor, or by the scan, which finds
// segments by their names once a second (a busy or restarted daemon misses nothing). Identity comes from SO_PEERCRED and from
// the file's owner, never from what the client says.
//
// The end of a process: (pid, start time) is no longer there; its pidfd then tells the exit status. Socket EOF alone is a hint: a
// program may close descriptors it did not open ("deaf"), or execute another program ("exec").
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
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
#include "core/drain.h"
#include "core/procfs.h"
#include "proto/hello.h"
#include "services/daemon.h"
#include "services/follow.h"
#include "services/watchdog.h"

#define SHM_DIRECTORY     "/dev/shm"
#define UNFINISHED_NS     INT64_C(1000000000)
#define HELLO_PATIENCE_NS INT64_C(5000000000)
enum { FOREIGN_KEPT = 1024, DESCRIPTORS_KEPT = 24 };

// A connection before and after its client is known.
struct connection {
    struct daemon *daemon;
    struct client *client;  // NULL: no hello yet
    struct connection *next;
    int64_t since_ns;
    int fd;
    uv_poll_t poll;
    struct ucred peer;
};

static struct connection *connections;

// Segments that are not ours to read, so that the scan does not open them every second.
static ino_t foreign[FOREIGN_KEPT];
static unsigned foreign_next;

static bool is_foreign(ino_t inode)
{
    for (unsigned i = 0; i < FOREIGN_KEPT; i++)
        if (foreign[i] == inode)
            return true;
    return false;
}

static void note_foreign(ino_t inode)
{
    foreign[foreign_next++ % FOREIGN_KEPT] = inode;
}

static void refuse(struct daemon *daemon, pid_t pid, const char *path, const char *problem)
{
    daemon->refused++;
    snprintf(daemon->last_refusal, sizeof daemon->last_refusal, "process %d, segment %s: %s", (int)pid, path, problem);
    say("refused process %d: its segment %s: %s", (int)pid, path, problem);
}

// ---- adoption

static struct client *find_segment(const struct daemon *daemon, dev_t device, ino_t inode)
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

static bool may_serve(uid_t uid)
{
    return geteuid() == 0 || uid == geteuid();
}

// Opens what a descriptor holds, for the process it belongs to. NULL with the reason said.
static struct client *open_and_adopt(struct daemon *daemon, int fd, const char *path, pid_t pid, uid_t uid, gid_t gid)
{
    char problem[256];
    struct segment segment;
    struct stat status;
    if (fstat(fd, &status) < 0 || status.st_uid != uid || !may_serve(uid)) {
        refuse(daemon, pid, path, "it belongs to another user");
        return NULL;
    }
    int result = segment_open(&segment, fd, path, problem);
    if (result == -EAGAIN)
        return NULL;
    if (result < 0) {
        refuse(daemon, pid, path, problem);
        note_foreign(status.st_ino);
        return NULL;
    }
    if (restore_is_over(daemon, segment.identity.uuid)) {  // a hello that was read after its process had been found, and had ended
        segment_unlink(&segment);
        segment_close(&segment);
        return NULL;
    }
    return adopt(daemon, &segment, pid, uid, gid);
}

// ---- connections

static void connection_closed(uv_handle_t *handle)
{
    struct connection *connection = handle->data, **place = &connections;
    while (*place != connection)
        place = &(*place)->next;
    *place = connection->next;
    close(connection->fd);
    free(connection);
}

static void connection_close(struct connection *connection)
{
    if (connection->client) {
        connection->client->socket = -1;
        connection->client->socket_poll = NULL;
        connection->client = NULL;
    }
    if (uv_is_closing((uv_handle_t *)&connection->poll))
        return;  // it is in the list until the loop comes round
    uv_poll_stop(&connection->poll);
    uv_close((uv_handle_t *)&connection->poll, connection_closed);
}

static void send_welcome(struct connection *connection, enum sl_welcome_status status)
{
    struct sl_welcome welcome = {.magic = SL_WELCOME_MAGIC, .abi = SL_ABI_VERSION, .status = status, .daemon_pid = (uint32_t)getpid()};
    struct iovec bytes = {&welcome, sizeof welcome};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (status == SL_WELCOME_OK) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control.room;
        control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(&control.header), &connection->daemon->eventfd, sizeof(int));
    }
    sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void attach_socket(struct client *client, struct connection *connection)
{
    if (client->socket_poll)  // it has come again, on another socket: the earlier one is of no more use
        connection_close(client->socket_poll->data);
    client->socket = connection->fd;
    client->socket_poll = &connection->poll;
    connection->client = client;
    if (client->process->status.state == PROCESS_DEAF)
        client->process->status.state = PROCESS_LIVE;
    send_welcome(connection, SL_WELCOME_OK);
    TESTPOINT(welcome_sent);
}

// Says no, and takes away what was handed over, for a client that has ended meanwhile does not read this and would leave
// its segment for ever. Root is not led to other files by it: the kernel names the file, which lies in SHM_DIRECTORY and is
// the sender's.
static void turn_away(struct connection *connection, enum sl_welcome_status status, int fd)
{
    char link[64], path[sizeof SHM_DIRECTORY "/" + NAME_MAX];
    struct stat handed, named;
    unsigned uid;
    send_welcome(connection, status);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = fd < 0 ? -1 : readlink(link, path, sizeof path - 1);
    if (length < 0)
        return;
    path[length] = 0;
    if (sscanf(path, SHM_DIRECTORY "/" SL_NAME_PREFIX "%u.", &uid) == 1 && uid == connection->peer.uid &&
        !strchr(path + sizeof SHM_DIRECTORY, '/') && fstat(fd, &handed) == 0 && handed.st_uid == uid &&
        lstat(path, &named) == 0 && named.st_dev == handed.st_dev && named.st_ino == handed.st_ino)
        unlink(path);
}

// A first message. False: the connection is of no use.
static bool take_hello(struct connection *connection, const struct sl_hello *hello, size_t length, int fd)
{
    struct daemon *daemon = connection->daemon;
    if (length < offsetof(struct sl_hello, pid) || hello->magic != SL_HELLO_MAGIC) {
        refuse(daemon, connection->peer.pid, "(none)", "it did not say hello in our protocol");
        return false;
    }
    if (hello->abi != SL_ABI_VERSION) {
        char problem[128];
        snprintf(problem, sizeof problem, "it has ABI version %u, this daemon reads version %u", hello->abi, SL_ABI_VERSION);
        refuse(daemon, connection->peer.pid, "(not opened)", problem);
        turn_away(connection, SL_WELCOME_OTHER_ABI, fd);
        return false;
    }
    if (length != sizeof *hello || !memchr(hello->name, 0, sizeof hello->name) || !memchr(hello->run_key, 0, sizeof hello->run_key)) {
        refuse(daemon, connection->peer.pid, "(none)", "its hello is cut short");
        return false;
    }
    if (hello->error) {
        runs_note_unable(daemon, connection->peer.uid, hello->run_key, connection->peer.pid, hello->name, (int)hello->error);
        return false;
    }
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0) {
        refuse(daemon, connection->peer.pid, hello->name, "it sent no descriptor");
        return false;
    }
    struct client *client = find_segment(daemon, status.st_dev, status.st_ino);
    if (!client)
        client = open_and_adopt(daemon, fd, hello->name, connection->peer.pid, connection->peer.uid, connection->peer.gid);
    if (!client) {
        turn_away(connection, SL_WELCOME_REFUSED, fd);
        return false;
    }
    attach_socket(client, connection);
    return true;
}

// Reads one message: its length, 0 at the end of the stream, -errno.
static ssize_t receive(int from, struct sl_hello *hello, int *fd)
{
    struct iovec bytes = {hello, sizeof *hello};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(8 * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    *fd = -1;
    ssize_t length = recvmsg(from, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0)
        return -errno;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int got;
            memcpy(&got, CMSG_DATA(header) + i * sizeof got, sizeof got);
            if (*fd < 0)
                *fd = got;
            else
                close(got);
        }
    }
    return length;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct connection *connection = poll->data;
    struct sl_hello hello;
    int fd;
    (void)events;
    ssize_t length = status < 0 ? 0 : receive(connection->fd, &hello, &fd);
    if (length == -EAGAIN || length == -EINTR)
        return;
    bool good = length > 0 && (connection->client || take_hello(connection, &hello, (size_t)length, fd));
    if (length > 0 && fd >= 0)
        close(fd);
    if (good)
        return;
    struct daemon *daemon = connection->daemon;
    struct client *client = connection->client;
    connection_close(connection);
    if (client)  // EOF: has it ended, closed its descriptors, or become another program?
        client->maps_checked_ns = 0;
    clients_check(daemon);
}

static void accept_one(struct daemon *daemon, int fd)
{
    struct connection *connection = alloc_zeroed(1, sizeof *connection);
    socklen_t size = sizeof connection->peer;
    connection->daemon = daemon;
    connection->fd = fd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &connection->peer, &size) < 0 || uv_poll_init(&daemon->loop, &connection->poll, fd) < 0) {
        close(fd);
        free(connection);
        return;
    }
    connection->poll.data = connection;
    connection->since_ns = clock_monotonic_ns();
    connection->next = connections;
    connections = connection;
    uv_poll_start(&connection->poll, UV_READABLE | UV_DISCONNECT, on_connection);
}

// Who connects and says nothing only holds a descriptor.
static void drop_silent(void)
{
    int64_t now_ns = clock_monotonic_ns();
    for (struct connection *connection = connections; connection; connection = connection->next)
        if (!connection->client && now_ns - connection->since_ns > HELLO_PATIENCE_NS)
            connection_close(connection);
}

// Few descriptors are left: those have better uses. The client is found by the scan, and tries again later.
static bool is_scarce(int fd)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd + DESCRIPTORS_KEPT >= limit.rlim_cur;
}

static void on_register(uv_poll_t *poll, int status, int events)
{
    struct daemon *daemon = poll->data;
    (void)events;
    if (status < 0)
        return;
    int listening;
    uv_fileno((uv_handle_t *)poll, &listening);
    for (int i = 0; i < 256; i++) {
        int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        if (is_scarce(fd))
            close(fd);
        else
            accept_one(daemon, fd);
    }
}

int clients_listen(struct daemon *daemon, int fd)
{
    daemon->register_poll = alloc_zeroed(1, sizeof *daemon->register_poll);
    int result = uv_poll_init(&daemon->loop, daemon->register_poll, fd);
    if (result < 0)
        return result;
    daemon->register_poll->data = daemon;
    return uv_poll_start(daemon->register_poll, UV_READABLE, on_register);
}

// ---- the scan

static bool is_same_directory(const char *one, const char *other)
{
    struct stat a, b;
    return strcmp(one, other) == 0 ||
           (stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

// A file that got no further than its beginning, because its process was killed there: nobody will miss it. Time has to pass, for the
// process may be one that /proc does not show us.
static void remove_unfinished(int directory, const char *name, const struct stat *status)
{
    unsigned uid, pid;
    unsigned long long start_time;
    struct stat now;
    if (sscanf(name, SL_NAME_PREFIX "%u.%u.%llu.", &uid, &pid, &start_time) != 3 || procfs_is_alive(pid, start_time) ||
        clock_ns(CLOCK_REALTIME) - status->st_ctim.tv_sec * INT64_C(1000000000) < UNFINISHED_NS)
        return;
    if (fstatat(directory, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && now.st_ino == status->st_ino && unlinkat(directory, name, 0) == 0)
        say_detail("removed %s, which process %u had not finished when it ended", name, pid);
}

// A segment that lies in the directory: is it meant for this daemon?
static void scan_one(struct daemon *daemon, const char *where, int directory, const char *name, unsigned uid)
{
    struct sl_segment header;
    struct stat status;
    int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return;
    if (fstat(fd, &status) < 0 || status.st_uid != uid || !S_ISREG(status.st_mode)) {
        close(fd);  // another user's file under that name
        return;
    }
    if (pread(fd, &header, offsetof(struct sl_segment, size), 0) != (ssize_t)offsetof(struct sl_segment, size) || !header.magic) {
        close(fd);  // it is still being made
        remove_unfinished(directory, name, &status);
        return;
    }
    header.place[sizeof header.place - 1] = 0;
    if (header.magic == SL_MAGIC && header.abi == SL_ABI_VERSION && !is_same_directory(header.place, daemon->rundir)) {
        note_foreign(status.st_ino);
    } else if (header.magic == SL_MAGIC) {
        char path[4400];
        snprintf(path, sizeof path, "%s/%s", where, name);
        open_and_adopt(daemon, fd, path, (pid_t)header.pid, status.st_uid, status.st_gid);
    } else {
        note_foreign(status.st_ino);
    }
    close(fd);
}

static void scan_directory(struct daemon *daemon, const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        unsigned uid;
        if (sscanf(entry->d_name, SL_NAME_PREFIX "%u.", &uid) != 1 || !may_serve(uid) || is_foreign(entry->d_ino))
            continue;
        bool known = false;
        for (struct client *client = daemon->clients; client && !known; client = client->next)
            known = client->segment.inode == entry->d_ino;
        if (!known)
            scan_one(daemon, path, dirfd(directory), entry->d_name, uid);
    }
    if (directory)
        closedir(directory);
}

// Where segments lie: /dev/shm, and where the daemon's own environment says that clients put them.
void clients_scan(struct daemon *daemon)
{
    const char *other = getenv("SCOPED_LANE_SHM_DIR");
    drop_silent();
    scan_directory(daemon, SHM_DIRECTORY);
    if (other && *other == '/' && strcmp(other, SHM_DIRECTORY) != 0)
        scan_directory(daemon, other);
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
    if (exec || !exit_known(client, &wait_status))
        return;
    status->has_exit = 1;
    status->exit_status = WIFSIGNALED(wait_status) ? -WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    if (WIFSIGNALED(wait_status))
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
    if (client->socket_poll)
        connection_close(client->socket_poll->data);
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
    bool wait_for_status = client->pidfd >= 0 && client->process->status.state != PROCESS_EXEC &&
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

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

void clients_close_all(struct daemon *daemon)
{
    while (daemon->clients) {
        struct client *client = daemon->clients;
        sl_store_release(&segment_header(&client->segment)->adopted, 0);
        TESTPOINT(client_left_behind);
        unlink_from_list(client);
        client->run->clients--;
        if (client->socket_poll)
            connection_close(client->socket_poll->data);
        client_free(client);
    }
    if (daemon->register_poll && !uv_is_closing((uv_handle_t *)daemon->register_poll)) {
        int fd;
        uv_poll_stop(daemon->register_poll);
        if (uv_fileno((uv_handle_t *)daemon->register_poll, &fd) == 0)
            close(fd);
        uv_close((uv_handle_t *)daemon->register_poll, free_handle);
    }
}
