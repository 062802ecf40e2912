#include "base/files.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int files_write_all(int fd, const void *bytes, size_t length)
{
    const char *rest = bytes;
    while (length) {
        ssize_t written = write(fd, rest, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        rest += written;
        length -= (size_t)written;
    }
    return 0;
}

int files_write_at(int fd, const void *bytes, size_t length, uint64_t offset)
{
    const char *rest = bytes;
    while (length) {
        ssize_t written = pwrite(fd, rest, length, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return -errno;
        rest += written;
        offset += (uint64_t)written;
        length -= (size_t)written;
    }
    return 0;
}

int files_read_all(const char *path, struct buffer *into)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int result = 0;
    for (;;) {
        size_t before = into->length;
        ssize_t got = read(fd, buffer_extend(into, 4096), 4096);
        into->length = before + (got > 0 ? (size_t)got : 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            result = -errno;
        if (got <= 0)
            break;
    }
    close(fd);
    return result;
}

int files_sync_directory(const char *path_of_a_file)
{
    char directory[4096];
    const char *slash = strrchr(path_of_a_file, '/');
    size_t length = slash ? (size_t)(slash - path_of_a_file) : 0;
    if (length >= sizeof directory)
        return -ENAMETOOLONG;
    memcpy(directory, path_of_a_file, length);
    directory[length] = 0;
    int fd = open(length ? directory : slash ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int result = fsync(fd) < 0 && errno != EINVAL ? -errno : 0;  // EINVAL: a file system that cannot
    close(fd);
    return result;
}

int files_make_directories(const char *path, mode_t mode)
{
    char part[4096];
    size_t length = strlen(path);
    if (length >= sizeof part)
        return -ENAMETOOLONG;
    for (size_t at = 1; at <= length; at++) {
        if (path[at] != '/' && path[at] != 0)
            continue;
        memcpy(part, path, at);
        part[at] = 0;
        if (mkdir(part, mode) < 0 && errno != EEXIST)
            return -errno;
    }
    struct stat status;
    if (stat(path, &status) < 0)
        return -errno;
    return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
}

int files_parse_size(const char *text, uint64_t *size_bytes)
{
    static const char units[] = "KMGT";
    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno)
        return -ERANGE;
    unsigned shift = 0;
    if (*end) {
        const char *unit = strchr(units, toupper((unsigned char)*end));
        if (!unit || end[1])
            return -EINVAL;
        shift = 10 * (unsigned)(unit - units + 1);
    }
    if (number > (UINT64_MAX >> shift))
        return -ERANGE;
    *size_bytes = (uint64_t)number << shift;
    return 0;
}
