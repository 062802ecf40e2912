// What a service manager (systemd) gives and hears, without its library: sockets by LISTEN_FDS, and words on NOTIFY_SOCKET.
#ifndef SL_SERVICES_MANAGER_H
#define SL_SERVICES_MANAGER_H

// At the start: notes what the environment says, and takes it out, for it is not meant for our children. `notifies` false: a daemon that
// is nobody's service keeps quiet.
void manager_init(int notifies);

// The listening unix socket of that type that we were given, at `path`; -ENOENT: none. Any other is a mistake: -EINVAL, said.
int manager_socket(int type, const char *path);

void manager_ready(const char *status);  // also after a reload
void manager_reloading(void);
void manager_stopping(void);
void manager_alive(void);  // the watchdog's sign of life: at most once a second, and only where one is wanted

#endif
