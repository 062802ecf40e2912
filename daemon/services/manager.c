#include "services/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/say.h"

enum { FIRST_FD = 3, FDS_LIMIT = 64 };

static int given;  // descriptors, from FIRST_FD on
static struct sockaddr_un notify;
static socklen_t notify_length;  // 0: nobody wants to hear
static int wants_life;
static int64_t life_ns;

// ---- the environment

static int is_for_us(const char *variable)
{
    const char *pid = getenv(variable);
    return pid && strtoll(pid, NULL, 10) == getpid();
}

static void note_notify(const char *path)
{
    size_t length = strlen(path);
    if ((*path != '/' && *path != '@') || length >= sizeof notify.sun_path)
        return;
    notify.sun_family = AF_UNIX;
    memcpy(notify.sun_path, path, length);
    if (*path == '@')
        notify.sun_path[0] = 0;
    notify_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
}

void manager_init(int notifies)
{
    static const char *const ours[] = {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"};
    const char *fds = getenv("LISTEN_FDS"), *path = getenv("NOTIFY_SOCKET");
    if (fds && is_for_us("LISTEN_PID"))
        given = atoi(fds) < FDS_LIMIT ? atoi(fds) : FDS_LIMIT;
    for (int fd = FIRST_FD; fd < FIRST_FD + given; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (notifies && path)
        note_notify(path);
    wants_life = getenv("WATCHDOG_USEC") && (!getenv("WATCHDOG_PID") || is_for_us("WATCHDOG_PID"));
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        unsetenv(ours[i]);
}

// ---- sockets

static int number_of(int fd, int option)
{
    int value = 0;
    socklen_t size = sizeof value;
    return getsockopt(fd, SOL_SOCKET, option, &value, &size) < 0 ? -1 : value;
}

// Programs say in their segments which directory they found us by: it has to be ours.
static int lies_at(int fd, const char *path)
{
    struct sockaddr_un address = {0};
    socklen_t size = sizeof address - 1;
    struct stat one, other;
    if (getsockname(fd, (struct sockaddr *)&address, &size) < 0 || address.sun_family != AF_UNIX)
        return 0;
    return stat(address.sun_path, &one) == 0 && stat(path, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

int manager_socket(int type, const char *path)
{
    for (int fd = FIRST_FD; fd < FIRST_FD + given; fd++) {
        if (number_of(fd, SO_TYPE) != type || number_of(fd, SO_ACCEPTCONN) != 1)
            continue;
        if (!lies_at(fd, path)) {
            say("cannot use the socket that the service manager gives as descriptor %d: it is not %s", fd, path);
            return -EINVAL;
        }
        int flags = fcntl(fd, F_GETFL);
        return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? -errno : fd;
    }
    return -ENOENT;
}

// ---- words

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void tell(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    int fd = notify_length ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;
    if (fd < 0)
        return;
    size_t size = (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
    if (sendto(fd, text, size, MSG_NOSIGNAL, (struct sockaddr *)&notify, notify_length) < 0)
        say_detail("cannot tell the service manager: %s", strerror(errno));
    close(fd);
}

void manager_ready(const char *status)
{
    tell("READY=1\nSTATUS=%s", status);
}

void manager_reloading(void)
{
    tell("RELOADING=1\nMONOTONIC_USEC=%lld", (long long)(clock_monotonic_ns() / 1000));
}

void manager_stopping(void)
{
    tell("STOPPING=1");
}

void manager_alive(void)
{
    int64_t now_ns = clock_monotonic_ns();
    if (!wants_life || now_ns - life_ns < 900000000)
        return;
    life_ns = now_ns;
    tell("WATCHDOG=1");
}
