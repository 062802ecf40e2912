// What the two ways in which a client arrives share.
#ifndef SL_SERVICES_CLIENTS_H
#define SL_SERVICES_CLIENTS_H

#include <stdbool.h>
#include <sys/types.h>

#include "services/daemon.h"

// ---- clients.c
struct client *clients_find(const struct daemon *daemon, dev_t device, ino_t inode);  // by its segment; NULL
// A client of what a descriptor holds, for the process it belongs to. NULL with the reason said.
struct client *clients_open(struct daemon *daemon, int fd, const char *path, pid_t pid, uid_t uid, gid_t gid);
void clients_refuse(struct daemon *daemon, pid_t pid, const char *path, const char *problem);  // says so, and keeps it for /v1/status
bool clients_may_serve(uid_t uid);

// ---- registration.c
void registration_hang_up(struct client *client);
void registration_close(struct daemon *daemon);

// ---- scan.c
void scan_note_foreign(ino_t inode);  // not ours to read: it is not opened every second

#endif
