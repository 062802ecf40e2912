// What on this machine stops or slows recording.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/files.h"
#include "cli/client.h"
#include "cli/doctor.h"
#include "cli/table.h"
#include "core/procfs.h"
#include "proto/hello.h"
#include "proto/segment.h"

#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY (1024 + 3)
#endif

enum {
    TMPFS_NUMBER = 0x01021994,
    RAMFS_NUMBER = 0x858458f6,
    FILES_FEW = 1024,
    SEGMENT_LEAST = 64 << 10,  // header, extents, the smallest ring
    RING_SHARE = 512,          // a ring gets at most this part of what is free: client/grow.c
};

// ---- the clock

static void read_line(const char *path, char *line, size_t size)
{
    struct buffer text = {0};
    files_read_all(path, &text);
    buffer_append(&text, "", 1);
    snprintf(line, size, "%.*s", (int)strcspn(text.data, "\n"), text.data);
    buffer_finish(&text);
}

static void look_at_clock(struct doctor *doctor)
{
    static const char *const directory = "/sys/devices/system/clocksource/clocksource0";
    char path[128], current[64], available[256];
    snprintf(path, sizeof path, "%s/current_clocksource", directory);
    read_line(path, current, sizeof current);
    snprintf(path, sizeof path, "%s/available_clocksource", directory);
    read_line(path, available, sizeof available);
    if (strcmp(current, "tsc") == 0 || strcmp(current, "arch_sys_counter") == 0)
        doctor_find(doctor, DOCTOR_OK, "clock source", NULL, "%s: times are read from the processor's counter", current);
    else if (strstr(available, "tsc"))
        doctor_find(
            doctor, DOCTOR_SLOW, "clock source",
            "boot with clocksource=tsc, where the kernel has not given the counter up for being unstable (see dmesg)",
            "%s, though tsc is there: each call asks the kernel for the time", current);
    else
        doctor_find(doctor, DOCTOR_SLOW, "clock source", NULL,
                    "%s: each call asks the kernel for the time, there is no counter to be had",
                    *current ? current : "not known");
}

// ---- the scheduler

// Linux groups the tasks of each session (sched_autogroup). Seen with 6.18.44, beside four ranks of Open MPI on two processors, which yield
// all the time: a daemon in a session of its own that could run and did not for 24 s. Within one group, and without groups, it waited not at
// all. From which version on, and up to which, is not known: later ones are taken for the same.
static void look_at_groups(struct doctor *doctor)
{
    struct utsname system;
    unsigned major = 0, minor = 0;
    char enabled[16];
    read_line("/proc/sys/kernel/sched_autogroup_enabled", enabled, sizeof enabled);
    if (uname(&system) < 0 || sscanf(system.release, "%u.%u", &major, &minor) != 2)
        return;
    bool is_grouped = strcmp(enabled, "1") == 0, is_like_6_18 = major > 6 || (major == 6 && minor >= 18);
    if (is_grouped && is_like_6_18)
        doctor_find(doctor, DOCTOR_SLOW, "sessions", "sysctl kernel.sched_autogroup_enabled=0",
                    "Linux %s, grouped by the scheduler: beside programs that yield all the time, as more MPI ranks than processors do, a daemon "
                    "of another session may get none for seconds, and calls are lost", system.release);
    else
        doctor_find(doctor, DOCTOR_OK, "sessions", NULL, "Linux %s, %s", system.release,
                    is_grouped ? "grouped by the scheduler" : "not grouped by the scheduler");
}

// ---- shared memory

void doctor_shm(struct doctor *doctor, const char *directory)
{
    struct statfs space;
    char size[TABLE_VALUE_MAX], room[TABLE_VALUE_MAX], ring[TABLE_VALUE_MAX];
    if (statfs(directory, &space) < 0 || access(directory, W_OK | X_OK) < 0) {
        doctor_find(doctor, DOCTOR_STOPS, "shared memory",
                    "mount a tmpfs there, or name another directory with SCOPED_LANE_SHM_DIR",
                    "no file can be made in %s: %s", directory, strerror(errno));
        return;
    }
    uint64_t free_bytes = (uint64_t)space.f_bavail * (uint64_t)space.f_bsize, ring_bytes = free_bytes / RING_SHARE;
    table_bytes((uint64_t)space.f_blocks * (uint64_t)space.f_bsize, size);
    table_bytes(free_bytes, room);
    table_bytes(ring_bytes, ring);
    if (free_bytes < SEGMENT_LEAST)
        doctor_find(doctor, DOCTOR_STOPS, "shared memory",
                    "make room in it or enlarge it (mount -o remount,size=1G); scoped-lane gc removes leftovers",
                    "%s is full: %s of %s are free", directory, room, size);
    else if (ring_bytes < SL_RING_BYTES_MIN)
        doctor_find(
            doctor, DOCTOR_SLOW, "shared memory", "enlarge it (mount -o remount,size=1G); a container's with --shm-size",
            "%s has %s of %s free: rings are the smallest, and not every thread may get one", directory, room, size);
    else if (ring_bytes < SL_RING_BYTES_DEFAULT)
        doctor_find(doctor, DOCTOR_NOTE, "shared memory", "enlarge it where calls are lost for full rings",
                    "%s has %s of %s free: new rings have at most %s", directory, room, size, ring);
    else
        doctor_find(doctor, DOCTOR_OK, "shared memory", NULL, "%s has %s of %s free", directory, room, size);
    if ((uint64_t)space.f_type != TMPFS_NUMBER && (uint64_t)space.f_type != RAMFS_NUMBER)
        doctor_find(doctor, DOCTOR_SLOW, "shared memory", "name a directory of a tmpfs with SCOPED_LANE_SHM_DIR",
                    "%s lies on a disk, to which what is recorded is written", directory);
}

// ---- where daemons listen

static bool is_sound(struct doctor *doctor, const char *place, uid_t uid)
{
    struct stat status;
    char path[108];
    if (rundir_socket(place, SL_REGISTER_SOCKET, path, sizeof path) < 0) {
        doctor_find(doctor, DOCTOR_STOPS, "runtime directory", "choose a shorter one with SCOPED_LANE_RUNDIR",
                    "%s: the path of a socket in it is longer than the 107 bytes a socket may have", place);
        return false;
    }
    if (lstat(place, &status) < 0) {
        doctor_find(doctor, DOCTOR_NOTE, "runtime directory", NULL, "%s: %s", place, strerror(errno));
        return false;
    }
    if (!S_ISDIR(status.st_mode)) {
        doctor_find(doctor, DOCTOR_STOPS, "runtime directory", "remove it", "%s is no directory", place);
        return false;
    }
    if (status.st_uid != uid && status.st_uid != 0) {
        doctor_find(doctor, DOCTOR_NOTE, "runtime directory", "use another one, by SCOPED_LANE_RUNDIR, or have it removed",
                    "%s belongs to user %u, and is not trusted", place, (unsigned)status.st_uid);
        return false;
    }
    if (status.st_mode & (S_IWGRP | S_IWOTH))
        doctor_find(doctor, DOCTOR_NOTE, "runtime directory", "chmod go-w; a daemon will not start there",
                    "%s may be written by others (mode %03o)", place, (unsigned)status.st_mode & 0777);
    return true;
}

bool doctor_place(struct doctor *doctor, const char *place, uid_t uid)
{
    struct ucred peer;
    if (!is_sound(doctor, place, uid))
        return false;
    int fd = rundir_connect_peer(place, SL_REGISTER_SOCKET, SOCK_SEQPACKET | SOCK_NONBLOCK, &peer);
    if (fd >= 0)
        close(fd);
    if (fd == -EAGAIN) {
        doctor_find(doctor, DOCTOR_NOTE, "daemon", NULL,
                    "%s: one is there and busy; processes register by their shared memory", place);
        return true;
    }
    if (fd < 0) {
        bool stale = fd == -ECONNREFUSED;
        doctor_find(doctor, DOCTOR_NOTE, "daemon",
                    fd == -EACCES ? "it is another user's"
                    : stale       ? "its daemon has gone: scoped-lane salvage makes run files of what it left"
                                  : NULL,
                    "%s: nobody listens (%s)", place, strerror(-fd));
        return false;
    }
    bool trusted = peer.uid == 0 || peer.uid == uid;
    doctor_find(doctor, trusted ? DOCTOR_OK : DOCTOR_NOTE, "daemon",
                trusted ? NULL
                        : "processes of another user than root's and their own are not trusted: start one of your own",
                "%s: process %d of user %u listens", place, (int)peer.pid, (unsigned)peer.uid);
    return trusted;
}

static void look_at_places(struct doctor *doctor, const char *option)
{
    struct rundir_list places;
    int there = 0;
    rundir_places(&places, option);
    for (int i = 0; i < places.count; i++)
        there += doctor_place(doctor, places.paths[i], geteuid());
    if (!there)
        doctor_find(doctor, DOCTOR_NOTE, "daemon", "start scoped-laned, or programs with scoped-lane run, which brings one",
                    "none listens: programs that are started as they are record nothing");
}

// ---- what daemons say of themselves

static void look_at_daemon(struct doctor *doctor, const char *rundir, const json_t *row)
{
    json_int_t refused = json_integer_value(json_object_get(row, "refused"));
    const char *last = json_string_value(json_object_get(row, "last_refusal"));
    json_int_t deaf = json_integer_value(json_object_get(row, "without_socket")),
               processes = json_integer_value(json_object_get(row, "processes"));
    if (refused)
        doctor_find(doctor, DOCTOR_NOTE, "refused",
                    "a program that speaks another version has to be linked with this one's library",
                    "%s: %" JSON_INTEGER_FORMAT " so far; the latest: %s", rundir, refused, last ? last : "?");
    if (deaf)
        doctor_find(doctor, DOCTOR_NOTE, "sockets",
                    "raise the daemon's limit of open files, unless its programs close what they did not open",
                    "%s: %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                    " processes are recorded without a socket; they cannot wake it",
                    rundir, deaf, processes);
}

static void look_at_daemons(struct doctor *doctor, const char *option)
{
    struct client_query query = {.rundir = option, .path = "/v1/status", .quiet = true};
    json_t *replies, *each;
    size_t i;
    if (client_ask_each(&query, &replies) < 0)
        return;
    json_array_foreach(replies, i, each)
    {
        const json_t *rows = json_object_get(json_object_get(each, "reply"), "rows");
        look_at_daemon(doctor, json_string_value(json_object_get(each, "rundir")), json_array_get(rows, 0));
    }
    json_decref(replies);
}

// ---- limits and leftovers

static void look_at_files(struct doctor *doctor)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < FILES_FEW)
        doctor_find(doctor, DOCTOR_SLOW, "open files", "raise it for the daemon: ulimit -n, or LimitNOFILE= of its unit",
                    "%" PRIu64 " at most: beyond, processes are recorded without a socket", (uint64_t)files.rlim_cur);
    else
        doctor_find(doctor, DOCTOR_OK, "open files", NULL, "%" PRIu64 " at most", (uint64_t)files.rlim_cur);
}

// A client writes to the daemon's eventfd only where it can tell that the number still is that file.
static void look_at_wakeups(struct doctor *doctor)
{
    int fd = dup(STDERR_FILENO), same = fcntl(fd, F_DUPFD_QUERY, STDERR_FILENO);
    bool told = same >= 0 || syscall(SYS_kcmp, getpid(), getpid(), 0, fd, STDERR_FILENO) == 0;
    if (fd >= 0)
        close(fd);
    if (told)
        doctor_find(doctor, DOCTOR_OK, "wake-up", NULL, "by %s", same >= 0 ? "F_DUPFD_QUERY" : "kcmp");
    else
        doctor_find(
            doctor, DOCTOR_SLOW, "wake-up", "Linux 6.10 has F_DUPFD_QUERY; before, allow kcmp (seccomp, CONFIG_KCMP)",
            "off: programs cannot tell whether a descriptor still is the daemon's, which looks every 20 ms instead");
}

static void look_at_leftovers(struct doctor *doctor, const char *directory)
{
    unsigned uid, pid, count = 0;
    unsigned long long start_time;
    uint64_t bytes = 0;
    DIR *entries = opendir(directory);
    struct dirent *entry;
    while (entries && (entry = readdir(entries))) {
        struct stat status;
        if (sscanf(entry->d_name, SL_NAME_PREFIX "%u.%u.%llu.", &uid, &pid, &start_time) != 3 || uid != geteuid() ||
            procfs_is_alive(pid, start_time) || fstatat(dirfd(entries), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        count++;
        bytes += (uint64_t)status.st_blocks * 512;
    }
    if (entries)
        closedir(entries);
    char size[TABLE_VALUE_MAX];
    table_bytes(bytes, size);
    if (count)
        doctor_find(doctor, DOCTOR_NOTE, "leftovers",
                    "scoped-lane gc tells of what, scoped-lane salvage makes run files of it",
                    "%u segments of processes that have ended hold %s of %s", count, size, directory);
}

void doctor_machine(struct doctor *doctor, const char *rundir_option)
{
    const char *directory = getenv("SCOPED_LANE_SHM_DIR");
    directory = directory && *directory == '/' ? directory : SL_SHM_DIRECTORY;
    look_at_clock(doctor);
    look_at_groups(doctor);
    doctor_shm(doctor, directory);
    look_at_places(doctor, rundir_option);
    look_at_daemons(doctor, rundir_option);
    look_at_files(doctor);
    look_at_wakeups(doctor);
    look_at_leftovers(doctor, directory);
}
