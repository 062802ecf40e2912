#include "base/rundir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/files.h"

static void add(struct rundir_list *list, const char *format, const char *text)
{
    int length = snprintf(list->paths[list->count], RUNDIR_PATH_MAX, format, text);
    if (length > 0 && length < RUNDIR_PATH_MAX)
        list->count++;
}

void rundir_places(struct rundir_list *list, const char *option)
{
    rundir_places_of(list, option ? option : getenv("SCOPED_LANE_RUNDIR"), getenv("XDG_RUNTIME_DIR"), geteuid());
}

void rundir_places_of(struct rundir_list *list, const char *named, const char *xdg, uid_t user)
{
    list->count = 0;
    if (named && *named) {
        char here[RUNDIR_PATH_MAX / 2];
        if (*named != '/' && getcwd(here, sizeof here))
            list->count = snprintf(list->paths[0], RUNDIR_PATH_MAX, "%s/%s", here, named) < RUNDIR_PATH_MAX;
        else
            add(list, "%s", named);
        return;
    }
    if (xdg && *xdg == '/')
        add(list, "%s/scoped-lane", xdg);
    add(list, "%s", "/run/scoped-lane");
    char uid[32];
    snprintf(uid, sizeof uid, "%u", (unsigned)user);
    add(list, "/tmp/scoped-lane-%s", uid);
}

// Ours, a directory, writable: another user's directory of that name in /tmp is not trusted.
static int usable(const char *path)
{
    struct stat status;
    if (lstat(path, &status) < 0)
        return -errno;
    if (!S_ISDIR(status.st_mode))
        return -ENOTDIR;
    if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)))
        return -EPERM;
    return access(path, W_OK | X_OK) < 0 ? -errno : 0;
}

int rundir_own(const char *option, char path[RUNDIR_PATH_MAX])
{
    struct rundir_list list;
    rundir_places(&list, option);
    int result = -ENOENT;
    for (int i = 0; i < list.count; i++) {
        const char *place = list.paths[i];
        snprintf(path, RUNDIR_PATH_MAX, "%s", place);
        mode_t mode = geteuid() == 0 && strncmp(place, "/run/", 5) == 0 ? 0755 : 0700;
        result = mkdir(place, mode) < 0 && errno != EEXIST ? -errno : 0;
        if (result == -ENOENT && list.count == 1)  // named by the user: make its parents too
            result = files_make_directories(place, mode);
        if (result == 0)
            result = usable(place);
        if (result == 0)
            return 0;
    }
    return result;
}

int rundir_socket(const char *rundir, const char *name, char *path, size_t size)
{
    int length = snprintf(path, size, "%s/%s", rundir, name);
    if (length < 0 || (size_t)length >= size || (size_t)length >= sizeof((struct sockaddr_un *)0)->sun_path)
        return -ENAMETOOLONG;
    return 0;
}

int rundir_connect_peer(const char *rundir, const char *name, int type, struct ucred *peer)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int result = rundir_socket(rundir, name, address.sun_path, sizeof address.sun_path);
    if (result < 0)
        return result;
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    socklen_t length = sizeof *peer;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &length) < 0)
        result = -errno;
    if (result < 0)
        close(fd);
    return result < 0 ? result : fd;
}

int rundir_connect(const char *rundir, const char *name, int type)
{
    struct ucred peer;
    int fd = rundir_connect_peer(rundir, name, type, &peer);
    if (fd < 0 || peer.uid == 0 || peer.uid == geteuid())
        return fd;
    close(fd);
    return -EACCES;
}
