// The settings of scoped-laned: one table says all about them. Each is a long option of the command line and a key of the
// configuration file; --help, /v1/config and the manual's test read the same table. The command line wins over the file, and the file over
// the defaults.
#ifndef SL_SERVICES_SETTINGS_H
#define SL_SERVICES_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum setting_kind {
    SETTING_TEXT,       // char *, NULL none
    SETTING_GROUP,      // the same, a group of the system's by its name or number
    SETTING_DIRECTORY,  // the same, absolute once settings_check has passed
    SETTING_SIZE,       // uint64_t bytes: "512M"
    SETTING_COUNT,      // uint64_t
    SETTING_SECONDS,    // uint64_t milliseconds: "0.5"
    SETTING_SWITCH,     // uint64_t 0 or 1: "yes", "no"; as an option without an argument
};

enum setting_source { SETTING_BY_DEFAULT, SETTING_BY_FILE, SETTING_BY_COMMAND_LINE };

enum { SETTINGS_ROOM = 32, SETTINGS_PROBLEM = 1024 };

// The values. Texts are the table's own and go with settings_finish.
struct settings {
    char *rundir;  // NULL: by base/rundir.h
    char *output;  // directory of service runs; NULL: the first process's working directory
    char *spool;   // directory of spools; NULL: beside the output
    uint64_t spool_limit;  // bytes per run; 0: the smaller of 16 GiB and half of what is free
    uint64_t quota;        // bytes of a user's segments whose process and daemon are gone; 0: a quarter of /dev/shm
    uint64_t stuck_after, stuck_factor;
    char *stuck_command;
    char *observers_group;
    gid_t observers_gid;  // its number once settings_check has passed, where there is one
    uint64_t metrics_series;
    uint64_t connections, connections_per_user, header_size, reply_size, page_rows, queued_size;
    uint64_t header_timeout, idle_timeout, write_timeout, query_turn;
    uint64_t verbose;
    uint8_t source[SETTINGS_ROOM];  // enum setting_source, by place in the table
};

struct setting {
    const char *name;  // NULL ends the table
    enum setting_kind kind;
    bool while_running;  // may change when the file is read again
    size_t offset;       // in struct settings
    uint64_t otherwise, least, most;  // of the numbers
    const char *argument;  // "DIR"; NULL: a switch
    const char *help;
};

extern const struct setting settings_table[];

void settings_init(struct settings *settings);  // the defaults
void settings_finish(struct settings *settings);

// Each says in `problem` why it returns -EINVAL; -errno from reading a file.
int settings_set(struct settings *settings, const char *name, const char *value, enum setting_source source, char problem[SETTINGS_PROBLEM]);
int settings_read(struct settings *settings, const char *path, char problem[SETTINGS_PROBLEM]);
int settings_check(struct settings *settings, char problem[SETTINGS_PROBLEM]);  // directories are there, and become absolute; groups too

// Takes over what `fresh` says and may change; calls `kept` with each setting that would have changed and must not. What of `fresh`
// is not taken over is freed.
void settings_take(struct settings *settings, struct settings *fresh, void (*kept)(const struct setting *setting));

static inline char **setting_text(const struct settings *settings, const struct setting *setting)
{
    return (char **)(uintptr_t)((const char *)settings + setting->offset);
}

static inline uint64_t *setting_number(const struct settings *settings, const struct setting *setting)
{
    return (uint64_t *)(uintptr_t)((const char *)settings + setting->offset);
}

static inline bool setting_is_text(const struct setting *setting)
{
    return setting->kind <= SETTING_DIRECTORY;
}

#endif
