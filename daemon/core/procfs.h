// The operating system's view of processes and threads: /proc, in one file.
#ifndef SL_CORE_PROCFS_H
#define SL_CORE_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buffer;

struct procfs_stat {
    char state;           // R, S, D, Z, X …
    char name[64];        // of the process or thread, as the kernel has it
    uint32_t parent_pid;
    uint32_t threads;
    uint64_t start_time;  // clock ticks since boot
};

// Reads /proc/PID/stat, or of one thread when tid is not 0. 0 or -errno (-ENOENT, -ESRCH: gone).
int procfs_stat(uint32_t pid, uint32_t tid, struct procfs_stat *stat);
// The text of a stat file; the name in it may hold blanks, parentheses, anything. 0 or -EINVAL.
int procfs_parse_stat(const char *text, struct procfs_stat *stat);

// /proc/PID/task/TID/schedstat: ns on a processor, ns waiting for one, how often it was given one. 0 or -errno.
struct procfs_schedstat {
    uint64_t cpu_ns, wait_ns, slices;
};
int procfs_parse_schedstat(const char *text, struct procfs_schedstat *schedstat);
int procfs_open_schedstat(uint32_t pid, uint32_t tid);                 // a descriptor for procfs_read_schedstat, or -errno
int procfs_read_schedstat(int fd, struct procfs_schedstat *schedstat);  // by pread: the descriptor stays good

int procfs_comm(uint32_t pid, uint32_t tid, char name[64]);  // without the line end; 0 or -errno
uint64_t procfs_resident_bytes(void);                           // our own; 0 unknown
int procfs_boot_id(char id[40]);                              // of this boot of the machine; 0 or -errno
// Does the process still map this file? 1 yes, 0 no, -ESRCH: it maps nothing, for it is on its way out.
int procfs_maps_file(uint32_t pid, const char *path);
// The first file it maps whose path has `part` in it, as the kernel writes it: "… (deleted)". 1 found, 0 not, or -errno.
int procfs_find_map(uint32_t pid, const char *part, char *path, size_t size);
int procfs_uid(uint32_t pid, uid_t *uid);  // the effective one; 0 or -errno
// A variable of the environment that it was started with. 1 set, 0 not, or -errno.
int procfs_variable(uint32_t pid, const char *name, char *value, size_t size);
int procfs_is_secure(uint32_t pid);               // started with rights that are not its user's (AT_SECURE)? 1, 0 or -errno
int procfs_same_mounts(uint32_t pid);             // does it see the files that we see? 1, 0 or -errno
// The same process, and no zombie; one whose main thread has ended before the others is none.
bool procfs_is_alive(uint32_t pid, uint64_t start_time);

#endif
