// register.sock: a client connects, says hello with its segment's descriptor, and hears whether it is welcome; with the welcome it gets
// the daemon's eventfd. The connection stays, for its end is a hint that the process has ended.
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/testpoint.h"
#include "proto/hello.h"
#include "services/clients.h"

#define HELLO_PATIENCE_NS INT64_C(5000000000)
enum { DESCRIPTORS_KEPT = 24 };

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

void registration_hang_up(struct client *client)
{
    if (client->socket_poll)
        connection_close(client->socket_poll->data);
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
    registration_hang_up(client);  // it has come again, on another socket: the earlier one is of no more use
    client->socket = connection->fd;
    client->socket_poll = &connection->poll;
    connection->client = client;
    if (client->process->status.state == PROCESS_DEAF)
        client->process->status.state = PROCESS_LIVE;
    send_welcome(connection, SL_WELCOME_OK);
    TESTPOINT(welcome_sent);
}

// Says no, and takes away what was handed over, for a client that has ended meanwhile does not read this and would leave
// its segment for ever. Root is not led to other files by it: the kernel names the file, which lies in SL_SHM_DIRECTORY and is
// the sender's.
static void turn_away(struct connection *connection, enum sl_welcome_status status, int fd)
{
    char link[64], path[sizeof SL_SHM_DIRECTORY "/" + NAME_MAX];
    struct stat handed, named;
    unsigned uid;
    send_welcome(connection, status);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = fd < 0 ? -1 : readlink(link, path, sizeof path - 1);
    if (length < 0)
        return;
    path[length] = 0;
    if (sscanf(path, SL_SHM_DIRECTORY "/" SL_NAME_PREFIX "%u.", &uid) == 1 && uid == connection->peer.uid &&
        !strchr(path + sizeof SL_SHM_DIRECTORY, '/') && fstat(fd, &handed) == 0 && handed.st_uid == uid &&
        lstat(path, &named) == 0 && named.st_dev == handed.st_dev && named.st_ino == handed.st_ino)
        unlink(path);
}

// A first message. False: the connection is of no use.
static bool take_hello(struct connection *connection, const struct sl_hello *hello, size_t length, int fd)
{
    struct daemon *daemon = connection->daemon;
    if (length < offsetof(struct sl_hello, pid) || hello->magic != SL_HELLO_MAGIC) {
        clients_refuse(daemon, connection->peer.pid, "(none)", "it did not say hello in our protocol");
        return false;
    }
    if (hello->abi != SL_ABI_VERSION) {
        char problem[128];
        snprintf(problem, sizeof problem, "it has ABI version %u, this daemon reads version %u", hello->abi, SL_ABI_VERSION);
        clients_refuse(daemon, connection->peer.pid, "(not opened)", problem);
        turn_away(connection, SL_WELCOME_OTHER_ABI, fd);
        return false;
    }
    if (length != sizeof *hello || !memchr(hello->name, 0, sizeof hello->name) || !memchr(hello->run_key, 0, sizeof hello->run_key)) {
        clients_refuse(daemon, connection->peer.pid, "(none)", "its hello is cut short");
        return false;
    }
    if (hello->error) {
        runs_note_unable(daemon, connection->peer.uid, hello->run_key, connection->peer.pid, hello->name, (int)hello->error);
        return false;
    }
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0) {
        clients_refuse(daemon, connection->peer.pid, hello->name, "it sent no descriptor");
        return false;
    }
    struct client *client = clients_find(daemon, status.st_dev, status.st_ino);
    if (!client)
        client = clients_open(daemon, fd, hello->name, connection->peer.pid, connection->peer.uid, connection->peer.gid);
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
void registration_drop_silent(void)
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

int registration_listen(struct daemon *daemon, int fd)
{
    daemon->register_poll = alloc_zeroed(1, sizeof *daemon->register_poll);
    int result = uv_poll_init(&daemon->loop, daemon->register_poll, fd);
    if (result < 0)
        return result;
    daemon->register_poll->data = daemon;
    return uv_poll_start(daemon->register_poll, UV_READABLE, on_register);
}

static void free_handle(uv_handle_t *handle)
{
    free(handle);
}

void registration_close(struct daemon *daemon)
{
    if (daemon->register_poll && !uv_is_closing((uv_handle_t *)daemon->register_poll)) {
        int fd;
        uv_poll_stop(daemon->register_poll);
        if (uv_fileno((uv_handle_t *)daemon->register_poll, &fd) == 0)
            close(fd);
        uv_close((uv_handle_t *)daemon->register_poll, free_handle);
    }
}
