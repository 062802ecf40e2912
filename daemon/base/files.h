// Small jobs on files and descriptors that every layer above needs.
#ifndef SL_BASE_FILES_H
#define SL_BASE_FILES_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buffer.h"

int files_write_all(int fd, const void *bytes, size_t length);  // 0 or -errno; goes on after short writes and EINTR
int files_write_at(int fd, const void *bytes, size_t length, uint64_t offset);  // the same, at a place
int files_read_all(const char *path, struct buffer *into);      // appends; works on /proc; 0 or -errno
int files_sync_directory(const char *path_of_a_file);           // fsync of the directory that holds it; 0 or -errno
int files_make_directories(const char *path, mode_t mode);      // as mkdir -p; 0 or -errno

// "64", "256K", "1M", "16G" (binary units) → bytes. 0, or -EINVAL when it is no size, -ERANGE when too large.
int files_parse_size(const char *text, uint64_t *size_bytes);

#endif
