// Segments are found by their names in the directories where clients put them, once a second: whoever could not register by the socket,
// because the daemon was busy, or came later, or has no descriptors left, is found here.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/say.h"
#include "core/procfs.h"
#include "services/clients.h"

#define UNFINISHED_NS INT64_C(1000000000)
enum { FOREIGN_KEPT = 1024 };

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

void scan_note_foreign(ino_t inode)
{
    foreign[foreign_next++ % FOREIGN_KEPT] = inode;
}

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
        scan_note_foreign(status.st_ino);
    } else if (header.magic == SL_MAGIC) {
        char path[4400];
        snprintf(path, sizeof path, "%s/%s", where, name);
        clients_open(daemon, fd, path, (pid_t)header.pid, status.st_uid, status.st_gid);
    } else {
        scan_note_foreign(status.st_ino);
    }
    close(fd);
}

static void scan_directory(struct daemon *daemon, const char *path)
{
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        unsigned uid;
        if (sscanf(entry->d_name, SL_NAME_PREFIX "%u.", &uid) != 1 || !clients_may_serve(uid) || is_foreign(entry->d_ino))
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
void scan_run(struct daemon *daemon)
{
    const char *other = getenv("SCOPED_LANE_SHM_DIR");
    scan_directory(daemon, SL_SHM_DIRECTORY);
    if (other && *other == '/' && strcmp(other, SL_SHM_DIRECTORY) != 0)
        scan_directory(daemon, other);
}
