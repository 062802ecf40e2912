// A place for a test to record in without a daemon: a directory of its own with a register.sock that listens, which is all the
// client asks for, and room for the segment's file. Make it before the first call of the library. Static functions, so that
// module tests, plain programs and benches can all include this.
#ifndef TESTS_PLACE_H
#define TESTS_PLACE_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

struct place {
    char directory[64];
    int listener;
};

static inline int place_listen(const char *directory)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.80s/register.sock", directory);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, 64) < 0) {
        perror(address.sun_path);
        exit(2);
    }
    return fd;
}

// Makes it and names it in the environment. Nobody ever accepts: to the client that is a busy daemon.
static inline void place_make(struct place *place)
{
    snprintf(place->directory, sizeof place->directory, "%s/sl-test-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(place->directory)) {
        perror(place->directory);
        exit(2);
    }
    setenv("SCOPED_LANE_RUNDIR", place->directory, 1);
    setenv("SCOPED_LANE_SHM_DIR", place->directory, 1);
    unsetenv("SCOPED_LANE");
    unsetenv("SCOPED_LANE_RUN");
    place->listener = place_listen(place->directory);
}

// Opens the segment of process `pid` (0: any) once it is complete; -1 when there is none. `path` may be NULL.
static inline int place_segment(const struct place *place, pid_t pid, char path[256])
{
    DIR *directory = opendir(place->directory);
    int found = -1;
    for (struct dirent *entry; directory && found < 0 && (entry = readdir(directory));) {
        unsigned uid, owner;
        char name[256];
        if (sscanf(entry->d_name, "scoped-lane.%u.%u.", &uid, &owner) != 2 || (pid && (pid_t)owner != pid))
            continue;
        snprintf(name, sizeof name, "%.64s/%.180s", place->directory, entry->d_name);
        found = open(name, O_RDWR | O_CLOEXEC);
        if (path)
            snprintf(path, 256, "%s", name);
    }
    if (directory)
        closedir(directory);
    return found;
}

// Removes the directory with all files in it.
static inline void place_remove(struct place *place)
{
    DIR *directory = opendir(place->directory);
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        unlinkat(dirfd(directory), entry->d_name, 0);
    if (directory)
        closedir(directory);
    rmdir(place->directory);
    close(place->listener);
}

#endif
