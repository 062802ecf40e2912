#include "core/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/files.h"

static void path_of(char path[80], uint32_t pid, uint32_t tid, const char *file)
{
    if (tid)
        snprintf(path, 80, "/proc/%u/task/%u/%s", pid, tid, file);
    else
        snprintf(path, 80, "/proc/%u/%s", pid, file);
}

static int read_small(uint32_t pid, uint32_t tid, const char *file, char *text, size_t size)
{
    char path[80];
    path_of(path, pid, tid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t length = read(fd, text, size - 1);
    int error = errno;
    close(fd);
    if (length < 0)
        return -error;
    text[length] = 0;
    return 0;
}

int procfs_parse_stat(const char *text, struct procfs_stat *stat)
{
    const char *name = strchr(text, '('), *field = strrchr(text, ')');
    if (!name || !field || field < name || field[1] != ' ' || !field[2])
        return -EINVAL;
    snprintf(stat->name, sizeof stat->name, "%.*s", (int)(field - name - 1), name + 1);
    stat->state = field[2];
    unsigned long parent, threads;
    unsigned long long start;
    // state ppid … threads is the 20th field, start time the 22nd, the state being the 3rd
    if (sscanf(field + 3, " %lu %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu %*s %llu", &parent, &threads, &start) != 3)
        return -EINVAL;
    stat->parent_pid = (uint32_t)parent;
    stat->threads = (uint32_t)threads;
    stat->start_time = start;
    return 0;
}

int procfs_stat(uint32_t pid, uint32_t tid, struct procfs_stat *stat)
{
    char text[1024];
    int result = read_small(pid, tid, "stat", text, sizeof text);
    return result < 0 ? result : procfs_parse_stat(text, stat);
}

int procfs_parse_schedstat(const char *text, struct procfs_schedstat *schedstat)
{
    unsigned long long cpu, wait, slices;
    if (sscanf(text, "%llu %llu %llu", &cpu, &wait, &slices) != 3)
        return -EINVAL;
    *schedstat = (struct procfs_schedstat){cpu, wait, slices};
    return 0;
}

int procfs_open_schedstat(uint32_t pid, uint32_t tid)
{
    char path[80];
    path_of(path, pid, tid, "schedstat");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int procfs_read_schedstat(int fd, struct procfs_schedstat *schedstat)
{
    char text[128];
    ssize_t length = pread(fd, text, sizeof text - 1, 0);
    if (length < 0)
        return -errno;
    text[length] = 0;
    return procfs_parse_schedstat(text, schedstat);
}

int procfs_comm(uint32_t pid, uint32_t tid, char name[64])
{
    int result = read_small(pid, tid, "comm", name, 64);
    if (result == 0)
        name[strcspn(name, "\n")] = 0;
    return result;
}

uint64_t procfs_resident_bytes(void)
{
    char text[128];
    unsigned long long size, resident;
    if (read_small((uint32_t)getpid(), 0, "statm", text, sizeof text) < 0 || sscanf(text, "%llu %llu", &size, &resident) != 2)
        return 0;
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

int procfs_boot_id(char id[40])
{
    struct buffer text = {0};
    int result = files_read_all("/proc/sys/kernel/random/boot_id", &text);
    buffer_append(&text, "", 1);
    snprintf(id, 40, "%.36s", result == 0 ? text.data : "");
    buffer_finish(&text);
    return result;
}

int procfs_maps_file(uint32_t pid, const char *path)
{
    char maps[80], first[2];
    struct buffer text = {0};
    path_of(maps, pid, 0, "maps");
    files_read_all(maps, &text);
    buffer_append(&text, "", 1);
    bool found = strstr(text.data, path) != NULL;
    buffer_finish(&text);
    if (found)
        return 1;
    // Memory that went while we read has cut the text short; whether it went shows now.
    return read_small(pid, 0, "maps", first, sizeof first) == 0 && *first ? 0 : -ESRCH;
}

static int read_whole(uint32_t pid, const char *file, struct buffer *text)
{
    char path[80];
    path_of(path, pid, 0, file);
    int result = files_read_all(path, text);
    buffer_append(text, "", 1);
    return result;
}

int procfs_find_map(uint32_t pid, const char *part, char *path, size_t size)
{
    struct buffer text = {0};
    int result = read_whole(pid, "maps", &text);
    char *rest = text.data, *line;
    while (result == 0 && (line = strsep(&rest, "\n"))) {
        const char *file = strchr(line, '/');
        if (file && strstr(file, part)) {
            snprintf(path, size, "%s", file);
            result = 1;
        }
    }
    buffer_finish(&text);
    return result;
}

int procfs_uid(uint32_t pid, uid_t *uid)
{
    struct buffer text = {0};
    int result = read_whole(pid, "status", &text);
    const char *line = result == 0 ? strstr(text.data, "\nUid:") : NULL;
    unsigned effective;
    if (result == 0 && (!line || sscanf(line, "\nUid: %*u %u", &effective) != 1))
        result = -EINVAL;
    if (result == 0)
        *uid = effective;
    buffer_finish(&text);
    return result;
}

int procfs_variable(uint32_t pid, const char *name, char *value, size_t size)
{
    struct buffer text = {0};
    int result = read_whole(pid, "environ", &text);
    size_t length = strlen(name);
    for (const char *at = text.data, *end = text.data + text.length; result == 0 && at < end; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=') {
            snprintf(value, size, "%s", at + length + 1);
            result = 1;
        }
    buffer_finish(&text);
    return result;
}

int procfs_is_secure(uint32_t pid)
{
    struct buffer text = {0};
    int result = read_whole(pid, "auxv", &text);
    for (size_t at = 0; result == 0 && at + 2 * sizeof(unsigned long) <= text.length; at += 2 * sizeof(unsigned long)) {
        unsigned long pair[2];
        memcpy(pair, text.data + at, sizeof pair);
        if (pair[0] == AT_SECURE)
            result = pair[1] != 0;
    }
    buffer_finish(&text);
    return result;
}

int procfs_same_mounts(uint32_t pid)
{
    char path[80], theirs[64] = "", ours[64] = "";
    path_of(path, pid, 0, "ns/mnt");
    if (readlink(path, theirs, sizeof theirs - 1) < 0 || readlink("/proc/self/ns/mnt", ours, sizeof ours - 1) < 0)
        return -errno;
    return strcmp(theirs, ours) == 0;
}

bool procfs_is_alive(uint32_t pid, uint64_t start_time)
{
    struct procfs_stat stat;
    if (procfs_stat(pid, 0, &stat) < 0 || stat.start_time != start_time || stat.state == 'X')
        return false;
    return stat.state != 'Z' || stat.threads > 1;
}
