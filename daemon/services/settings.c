#include "services/settings.h"

#include <errno.h>
#include <grp.h>
#include <ini.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/files.h"

#define OFFSET(field) .offset = offsetof(struct settings, field)
#define DAY_MS        UINT64_C(86400000)
#define KIB           UINT64_C(1024)

const struct setting settings_table[] = {
    {"rundir", SETTING_TEXT, OFFSET(rundir), .argument = "DIR", .help = "where its sockets lie"},
    {"output", SETTING_DIRECTORY, .while_running = true, OFFSET(output), .argument = "DIR",
     .help = "where run files go (default: the first process's working directory)"},
    {"spool", SETTING_DIRECTORY, .while_running = true, OFFSET(spool), .argument = "DIR",
     .help = "where spools lie (default: beside the run file)"},
    {"spool-limit", SETTING_SIZE, .while_running = true, OFFSET(spool_limit), 0, 0, UINT64_MAX, "SIZE",
     "of one run's spool (default: 16G, or half of what is free)"},
    {"quota", SETTING_SIZE, .while_running = true, OFFSET(quota), 0, 0, UINT64_MAX, "SIZE",
     "of a user's segments whose process and daemon are gone (default: a quarter of /dev/shm)"},
    {"stuck-after", SETTING_SECONDS, .while_running = true, OFFSET(stuck_after), 30000, 0, 365 * DAY_MS, "SECONDS",
     "a lane in a region that does nothing for so long is stuck; 0: none is (default: 30)"},
    {"stuck-factor", SETTING_COUNT, .while_running = true, OFFSET(stuck_factor), 10, 1, 1000000, "N",
     "and for N times the region's longest call so far (default: 10)"},
    {"stuck-command", SETTING_TEXT, .while_running = true, OFFSET(stuck_command), .argument = "COMMAND",
     .help = "what the shell runs when lanes are found stuck (default: nothing)"},
    {"observers-group", SETTING_GROUP, .while_running = true, OFFSET(observers_group), .argument = "GROUP",
     .help = "whose members see all users' runs (default: none)"},
    {"metrics-series", SETTING_COUNT, .while_running = true, OFFSET(metrics_series), 10000, 100, 10000000, "N",
     "how many series of runs /metrics may have (default: 10000)"},
    {"connections", SETTING_COUNT, OFFSET(connections), 64, 1, 10000, "N", "that may ask at a time (default: 64)"},
    {"connections-per-user", SETTING_COUNT, OFFSET(connections_per_user), 16, 1, 10000, "N", "of them, of one user (default: 16)"},
    {"header-size", SETTING_SIZE, OFFSET(header_size), 8 * KIB, KIB, KIB * KIB, "SIZE", "of a question's line and headers (default: 8K)"},
    {"reply-size", SETTING_SIZE, OFFSET(reply_size), KIB * KIB, 64 * KIB, KIB * KIB * KIB, "SIZE",
     "at which a page of rows ends, and of what waits for a follower (default: 1M)"},
    {"page-rows", SETTING_COUNT, OFFSET(page_rows), 1000, 1, 1000000, "N", "at most of an answer, more are on its next page (default: 1000)"},
    {"queued-size", SETTING_SIZE, OFFSET(queued_size), 64 * KIB * KIB, KIB * KIB, KIB * KIB * KIB * KIB, "SIZE",
     "of all answers that wait for their readers (default: 64M)"},
    {"header-timeout", SETTING_SECONDS, OFFSET(header_timeout), 5000, 100, DAY_MS, "SECONDS", "for a question's headers (default: 5)"},
    {"idle-timeout", SETTING_SECONDS, OFFSET(idle_timeout), 30000, 1000, DAY_MS, "SECONDS", "between questions (default: 30)"},
    {"write-timeout", SETTING_SECONDS, OFFSET(write_timeout), 10000, 1000, DAY_MS, "SECONDS",
     "for a reader that takes nothing of its answer (default: 10)"},
    {"query-turn", SETTING_SECONDS, OFFSET(query_turn), 2, 1, 10000, "SECONDS",
     "after which further questions wait for the loop's next turn (default: 0.002)"},
    {"verbose", SETTING_SWITCH, .while_running = true, OFFSET(verbose), 0, 0, 1, NULL, "say more"},
    {0},
};

_Static_assert(sizeof settings_table / sizeof *settings_table <= SETTINGS_ROOM, "room for the source of each setting");

void settings_init(struct settings *settings)
{
    *settings = (struct settings){0};
    for (const struct setting *setting = settings_table; setting->name; setting++)
        if (!setting_is_text(setting))
            *setting_number(settings, setting) = setting->otherwise;
}

void settings_finish(struct settings *settings)
{
    for (const struct setting *setting = settings_table; setting->name; setting++)
        if (setting_is_text(setting))
            free(*setting_text(settings, setting));
}

static const struct setting *find(const char *name)
{
    for (const struct setting *setting = settings_table; setting->name; setting++)
        if (strcmp(setting->name, name) == 0)
            return setting;
    return NULL;
}

// ---- values

static bool parse_seconds(const char *text, uint64_t *milliseconds)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end || !isfinite(seconds) || seconds < 0 || seconds > 1e12)
        return false;
    *milliseconds = (uint64_t)(seconds * 1000 + 0.5);
    return true;
}

static bool parse_count(const char *text, uint64_t *count)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || errno || *end)
        return false;
    *count = value;
    return true;
}

static bool parse_switch(const char *text, uint64_t *on)
{
    bool is_yes = strcmp(text, "yes") == 0 || strcmp(text, "1") == 0 || strcmp(text, "true") == 0;
    *on = is_yes;
    return is_yes || strcmp(text, "no") == 0 || strcmp(text, "0") == 0 || strcmp(text, "false") == 0;
}

static bool parse(const struct setting *setting, const char *text, uint64_t *number)
{
    switch (setting->kind) {
    case SETTING_SIZE: return files_parse_size(text, number) == 0;
    case SETTING_SECONDS: return parse_seconds(text, number);
    case SETTING_SWITCH: return parse_switch(text, number);
    default: return parse_count(text, number);
    }
}

static const char *kind_words(enum setting_kind kind)
{
    return kind == SETTING_SIZE      ? "no size; 512M and 16G are"
           : kind == SETTING_SECONDS ? "no number of seconds; 30 and 0.5 are"
           : kind == SETTING_SWITCH  ? "neither yes nor no"
                                     : "no whole number";
}

// A bound as it is written.
static void bound_text(const struct setting *setting, uint64_t bound, char text[32])
{
    if (setting->kind == SETTING_SECONDS)
        snprintf(text, 32, "%g", (double)bound / 1000);
    else
        snprintf(text, 32, "%llu", (unsigned long long)bound);
}

int settings_set(struct settings *settings, const char *name, const char *value, enum setting_source source, char problem[SETTINGS_PROBLEM])
{
    const struct setting *setting = find(name);
    uint64_t number;
    if (!setting) {
        snprintf(problem, SETTINGS_PROBLEM, "there is no setting \"%s\"", name);
        return -EINVAL;
    }
    if (setting_is_text(setting)) {
        free(*setting_text(settings, setting));
        *setting_text(settings, setting) = *value ? alloc_text(value) : NULL;
    } else if (!parse(setting, value, &number)) {
        snprintf(problem, SETTINGS_PROBLEM, "%s \"%s\" is %s", name, value, kind_words(setting->kind));
        return -EINVAL;
    } else if (number < setting->least || number > setting->most) {
        char least[32], most[32];
        bound_text(setting, setting->least, least);
        bound_text(setting, setting->most, most);
        snprintf(problem, SETTINGS_PROBLEM, "%s \"%s\" is not between %s and %s", name, value, least, most);
        return -EINVAL;
    } else {
        *setting_number(settings, setting) = number;
    }
    settings->source[setting - settings_table] = (uint8_t)source;
    return 0;
}

// ---- the file

struct reading {
    struct settings *settings;
    FILE *file;
    int line;
    char *problem;
};

// libinih reads lines of bounded length, takes the rest for a line of its own, and one that begins with a blank for more of the one before:
// neither would be noticed.
static char *read_line(char *line, int size, void *context)
{
    struct reading *reading = context;
    if (*reading->problem || !fgets(line, size, reading->file))
        return NULL;
    reading->line++;
    size_t length = strlen(line), blanks = strspn(line, " \t");
    if (length + 1 == (size_t)size && line[length - 1] != '\n') {
        snprintf(reading->problem, SETTINGS_PROBLEM, "it has more than %d characters", size - 2);
        return NULL;
    }
    memmove(line, line + blanks, length - blanks + 1);
    return line;
}

static int on_key(void *context, const char *section, const char *name, const char *value)
{
    struct reading *reading = context;
    if (*section) {
        snprintf(reading->problem, SETTINGS_PROBLEM, "there are no sections, but [%s] begins one", section);
        return 0;
    }
    return settings_set(reading->settings, name, value, SETTING_BY_FILE, reading->problem) == 0;
}

int settings_read(struct settings *settings, const char *path, char problem[SETTINGS_PROBLEM])
{
    char why[SETTINGS_PROBLEM] = "";
    FILE *file = fopen(path, "re");
    if (!file) {
        int error = errno;
        snprintf(problem, SETTINGS_PROBLEM, "cannot read the configuration %s: %s", path, strerror(error));
        return -error;
    }
    struct reading reading = {settings, file, 0, why};
    int line = ini_parse_stream(read_line, &reading, on_key, &reading);
    bool failed = ferror(file);
    fclose(file);
    if (line == 0 && !failed && !*why)
        return 0;
    snprintf(problem, SETTINGS_PROBLEM, "cannot use the configuration %s, line %d: %.700s", path, line ? line : reading.line,
             failed ? "it cannot be read" : *why ? why : "it is no line \"key = value\"");
    return -EINVAL;
}

static int check_group(struct settings *settings, char problem[SETTINGS_PROBLEM])
{
    const char *name = settings->observers_group;
    uint64_t number;
    if (!name)
        return 0;
    if (parse_count(name, &number) && number < (gid_t)-1) {
        settings->observers_gid = (gid_t)number;
        return 0;
    }
    const struct group *group = getgrnam(name);
    if (!group) {
        snprintf(problem, SETTINGS_PROBLEM, "cannot use the observers-group %s: there is no such group", name);
        return -ENOENT;
    }
    settings->observers_gid = group->gr_gid;
    return 0;
}

int settings_check(struct settings *settings, char problem[SETTINGS_PROBLEM])
{
    int result = check_group(settings, problem);
    if (result < 0)
        return result;
    for (const struct setting *setting = settings_table; setting->name; setting++) {
        char **path = setting->kind == SETTING_DIRECTORY ? setting_text(settings, setting) : NULL;
        if (!path || !*path)
            continue;
        char *full = realpath(*path, NULL);
        if (!full || access(full, W_OK | X_OK) < 0) {
            int error = errno;
            snprintf(problem, SETTINGS_PROBLEM, "cannot use the %s directory %s: %s", setting->name, *path, strerror(error));
            free(full);
            return -error;
        }
        free(*path);
        *path = full;
    }
    return 0;
}

// ---- while it runs

static bool differs(const struct settings *one, const struct settings *other, const struct setting *setting)
{
    if (!setting_is_text(setting))
        return *setting_number(one, setting) != *setting_number(other, setting);
    const char *a = *setting_text(one, setting), *b = *setting_text(other, setting);
    return (a == NULL) != (b == NULL) || (a && strcmp(a, b) != 0);
}

void settings_take(struct settings *settings, struct settings *fresh, void (*kept)(const struct setting *setting))
{
    for (const struct setting *setting = settings_table; setting->name; setting++) {
        size_t place = (size_t)(setting - settings_table);
        if (settings->source[place] == SETTING_BY_COMMAND_LINE)
            continue;
        if (!setting->while_running) {
            if (differs(settings, fresh, setting))
                kept(setting);
            continue;
        }
        settings->source[place] = fresh->source[place];
        if (setting->kind == SETTING_GROUP)
            settings->observers_gid = fresh->observers_gid;
        if (setting_is_text(setting)) {
            free(*setting_text(settings, setting));
            *setting_text(settings, setting) = *setting_text(fresh, setting);
            *setting_text(fresh, setting) = NULL;
        } else {
            *setting_number(settings, setting) = *setting_number(fresh, setting);
        }
    }
    settings_finish(fresh);
}
