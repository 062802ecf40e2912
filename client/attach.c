// The socket to the daemon: it only adds speed. Registration is the creation of the segment, which the daemon also finds by
// its name. Nothing here waits.
//
// Programs close descriptors they did not open, and their numbers come back as other files. So the socket is used only while
// it is the file it was, and so is the eventfd, which is kept under two numbers that must still name one description too.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/facts.h"
#include "client/state.h"
#include "proto/hello.h"

#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY (1024 + 3)
#endif
#define KCMP_SAME_FILE  0
#define RETRY_PERIOD_NS 1000000000

// The segment is read and written by who gets its descriptor: that may be root or ourselves, not whoever was first to listen in a
// directory like /tmp.
static bool is_trusted(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    bool trusted = getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == 0 || peer.uid == geteuid());
    if (!trusted)
        errno = EACCES;
    return trusted;
}

static int connect_to(const char *place)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/" SL_REGISTER_SOCKET, place);
    if (length < 0 || (size_t)length >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && is_trusted(fd))
        return fd;
    int error = errno ? errno : EACCES;
    close(fd);
    return -error;
}

int attach_socket(void)
{
    const struct facts *facts = facts_get();
    int result = -ENOENT;
    client->socket_tried_ns = facts_clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < facts->place_count; i++) {
        int fd = connect_to(facts->places[i]);
        client->place = i;
        if (fd == -EAGAIN || fd == -EMFILE || fd == -ENFILE)
            return 0;  // busy, or no descriptor to be had: it will find the segment by its name
        if (fd < 0) {
            if (result == -ENOENT)
                result = fd;
            continue;
        }
        client->socket = file_move_high(fd);
        SL_TESTPOINT_(connected);
        file_identify(client->socket, &client->socket_id);
        return 0;
    }
    return result;
}

static bool socket_is_ours(void)
{
    return file_is(client->socket, &client->socket_id);
}

// All anonymous files have one inode, so which of them it is the two numbers tell.
static bool wake_is_whole(void)
{
    if (!file_is(client->wake[0], &client->wake_id))
        return false;
    int same = fcntl(client->wake[0], F_DUPFD_QUERY, client->wake[1]);
    if (same >= 0)
        return same == 1;
    if (errno != EINVAL)
        return false;
    pid_t self = (pid_t)client->segment->pid;
    return syscall(SYS_kcmp, self, self, KCMP_SAME_FILE, client->wake[0], client->wake[1]) == 0;
}

static void forget_wake(void)
{
    client->wake[0] = client->wake[1] = -1;
    sl_store_release(&client->segment->wakeups, 0);
}

// With the connection goes the eventfd: whoever reads it is gone, and another daemon has one of its own.
static void drop_socket(void)
{
    if (socket_is_ours())
        close(client->socket);
    client->socket = -1;
    client->welcomed = 0;
    if (client->wake[1] >= 0 && wake_is_whole()) {
        close(client->wake[0]);
        close(client->wake[1]);
    }
    if (client->segment)
        forget_wake();
}

static void send_hello(uint32_t error)
{
    struct sl_hello hello = {.magic = SL_HELLO_MAGIC, .abi = SL_ABI_VERSION, .bytes = sizeof hello, .pid = (uint32_t)getpid(),
                             .error = error};
    if (strlen(client->path) < sizeof hello.name)
        memcpy(hello.name, client->path, strlen(client->path));
    memcpy(hello.run_key, facts_get()->run_key, sizeof hello.run_key);
    struct iovec bytes = {&hello, sizeof hello};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (!error) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control.room;
        control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(&control.header), &client->file, sizeof(int));
    }
    if (sendmsg(client->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        drop_socket();
    SL_TESTPOINT_(hello_sent);
}

void attach_hello(void)
{
    if (socket_is_ours() && file_is(client->file, &client->file_id))
        send_hello(0);
}

void attach_sorry(int error)
{
    if (!socket_is_ours())
        return;
    send_hello((uint32_t)error);
    drop_socket();
}

static void take_eventfd(int fd)
{
    client->wake[0] = fd;
    client->wake[1] = file_identify(fd, &client->wake_id) == 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 700) : -1;
    sl_store_release(&client->segment->wakeups, client->wake[1] >= 0);
    SL_TESTPOINT_(welcome_taken);
}

// Reads a welcome when one is there. True while the socket is good.
static bool read_welcome(void)
{
    struct sl_welcome welcome;
    struct iovec bytes = {&welcome, sizeof welcome};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    ssize_t length = recvmsg(client->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0)
        return errno == EAGAIN || errno == EINTR;
    client->welcomed = 1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int))) {
        int fd;
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
        if (length == sizeof welcome && welcome.magic == SL_WELCOME_MAGIC && client->wake[0] < 0)
            take_eventfd(fd);
        else
            close(fd);
    }
    if (length == sizeof welcome && welcome.magic == SL_WELCOME_MAGIC && welcome.status != SL_WELCOME_OK) {
        unlink(client->path);  // the daemon has said why: nobody will read it
        client->refused = 1;
    }
    return length > 0;
}

void attach_poll_now(void)
{
    if (client->socket >= 0) {
        if (socket_is_ours() && read_welcome())
            return;
        drop_socket();
    }
    if (client->refused || facts_clock_ns(CLOCK_MONOTONIC) - client->socket_tried_ns < RETRY_PERIOD_NS)
        return;
    if (attach_socket() == 0)
        attach_hello();
}

void attach_poll(void)
{
    int64_t now_ns = facts_clock_ns(CLOCK_MONOTONIC);
    if (client->welcomed && now_ns - client->looked_ns < RETRY_PERIOD_NS)
        return;
    client->looked_ns = now_ns;
    attach_poll_now();
}

// Under the lock, so that no other thread gives the numbers back to the program meanwhile.
static void wake(void)
{
    static const uint64_t one = 1;
    attach_poll();  // a program that has long registered its threads and regions comes by here
    if (client->wake[1] >= 0 && !wake_is_whole())
        forget_wake();
    if (client->wake[1] < 0)
        return;
    (void)!write(client->wake[0], &one, sizeof one);
}

bool attach_wake(void)
{
    struct guard guard;
    if (!sl_load_relaxed(&client->segment->sleeping) || !client_try_lock(&guard))
        return false;
    wake();
    client_unlock(&guard);
    return true;
}
