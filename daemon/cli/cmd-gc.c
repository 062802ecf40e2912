// scoped-lane gc: what lies about on this machine, why, and away with what is finished.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/listing.h"
#include "cli/places.h"
#include "core/procfs.h"
#include "core/segment.h"

static const struct command_option options[] = {
    {.name = "dry-run", .letter = 'n', .help = "only show"},
    COMMAND_OPTIONS_FORM,
    COMMAND_OPTION_RUNDIR,
    {0},
};

static const struct table_column columns[] = {
    {"kind", "KIND", TABLE_TEXT},       {"path", "PATH", TABLE_TEXT},   {"bytes", "SIZE", TABLE_BYTES},
    {"state", "STATE", TABLE_TEXT},     {"unread", "UNREAD", TABLE_COUNT}, {"removed", "REMOVED", TABLE_BOOL},
    {0},
};

struct sweep {
    json_t *rows;
    bool dry_run;
};

static void add_row(struct sweep *sweep, const char *kind, const char *path, const char *state, int64_t unread, bool finished)
{
    struct stat status = {0};
    lstat(path, &status);
    bool removed = finished && !sweep->dry_run && (S_ISDIR(status.st_mode) ? rmdir(path) : unlink(path)) == 0;
    json_array_append_new(sweep->rows, json_pack("{s:s, s:s, s:I, s:s, s:o, s:b}", "kind", kind, "path", path, "bytes",
                                                 (json_int_t)status.st_size, "state", state, "unread",
                                                 unread < 0 ? json_null() : json_integer(unread), "removed", removed));
}

// ---- segments

static int64_t unread_records(const struct segment *segment)
{
    int64_t unread = 0;
    for (uint32_t i = 0; i < segment->slot_count; i++) {
        const struct sl_ring *ring = segment_ring(segment, i);
        unread += (int64_t)(sl_load_relaxed(&ring->head) - sl_load_relaxed(&ring->tail));
    }
    return unread;
}

// What a spool of its daemon still waits for: the last words of its process are in the segment alone.
static bool has_spools(const char *rundir)
{
    char *path = alloc_printf("%s/spools", rundir);
    DIR *directory = opendir(path);
    struct dirent *entry;
    bool found = false;
    while (directory && (entry = readdir(directory)))
        found |= entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    free(path);
    return found;
}

// A name says whose the file is, also where nothing is in it yet.
static bool owner_lives(const char *path)
{
    unsigned uid, pid;
    unsigned long long start_time;
    const char *slash = strrchr(path, '/');
    return sscanf(slash ? slash + 1 : path, SL_NAME_PREFIX "%u.%u.%llu.", &uid, &pid, &start_time) != 3 ||
           procfs_is_alive(pid, start_time);
}

static void look_at_segment(struct sweep *sweep, const char *path)
{
    char problem[256];
    struct segment segment;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    int result = segment_open(&segment, fd, path, problem);
    close(fd);
    if (result < 0) {
        bool unfinished = (result == -EAGAIN || result == -EBADMSG) && !owner_lives(path);
        add_row(sweep, "segment", path, unfinished ? "its process ended before it was finished" : problem, -1, unfinished);
        return;
    }
    const struct sl_segment *identity = &segment.identity;
    bool alive = procfs_is_alive(identity->pid, identity->start_time);
    bool served = places_listens(identity->place);
    int64_t unread = unread_records(&segment);
    bool awaited = unread || has_spools(identity->place);
    const char *state = alive    ? served ? "its process is recorded" : "its process lives, no daemon"
                        : served ? "its process has ended; its daemon will take it"
                        : awaited ? "its process and daemon are gone: salvage makes a run file of it"
                                 : "its process and daemon are gone";
    add_row(sweep, "segment", path, state, unread, !alive && !served && !awaited);
    segment_close(&segment);
}

static void sweep_segments(struct sweep *sweep)
{
    char prefix[64];
    int length = snprintf(prefix, sizeof prefix, SL_NAME_PREFIX "%u.", (unsigned)geteuid());
    DIR *directory = opendir(SL_SHM_DIRECTORY);
    struct dirent *entry;
    while (directory && (entry = readdir(directory)))
        if (strncmp(entry->d_name, prefix, (size_t)length) == 0) {
            char *path = alloc_printf(SL_SHM_DIRECTORY "/%s", entry->d_name);
            look_at_segment(sweep, path);
            free(path);
        }
    if (directory)
        closedir(directory);
}

// ---- runtime directories

static void sweep_spools(struct sweep *sweep, const char *rundir, bool served)
{
    char *path = alloc_printf("%s/spools", rundir), target[4096];
    DIR *directory = opendir(path);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        if (entry->d_name[0] == '.')
            continue;
        char *link = alloc_printf("%s/%s", path, entry->d_name);
        ssize_t length = readlink(link, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        if (access(target, F_OK) < 0)
            add_row(sweep, "spool link", link, "its spool is gone", -1, !served);
        else
            add_row(sweep, "spool", target, served ? "its daemon writes it" : "its daemon is gone: salvage makes a run file of it", -1, false);
        free(link);
    }
    if (directory)
        closedir(directory);
    if (!served)
        rmdir(path);
    free(path);
}

static void sweep_place(void *context, const char *rundir, bool is_private)
{
    static const char *const leftovers[] = {"register.sock", "query.sock", "lock", "log"};
    struct sweep *sweep = context;
    bool served = places_listens(rundir);
    sweep_spools(sweep, rundir, served);
    char *spools = alloc_printf("%s/spools", rundir);
    bool has_spools = access(spools, F_OK) == 0;
    free(spools);
    if (served || !is_private || has_spools)
        return;
    for (size_t i = 0; i < sizeof leftovers / sizeof *leftovers; i++) {
        char *path = alloc_printf("%s/%s", rundir, leftovers[i]);
        if (!sweep->dry_run)
            unlink(path);
        free(path);
    }
    add_row(sweep, "runtime directory", rundir, "its daemon is gone", -1, true);
}

static int run(const struct command_line *line)
{
    struct sweep sweep = {.rows = json_array(), .dry_run = command_given(line, "dry-run")};
    guard_install();
    sweep_segments(&sweep);
    places_visit(command_text(line, "rundir"), sweep_place, &sweep);
    if (listing_form(line) == TABLE_ALIGNED && json_array_size(sweep.rows) == 0)
        puts("nothing lies about");
    else
        table_print(stdout, listing_form(line), columns, sweep.rows, clock_monotonic_ns());
    json_decref(sweep.rows);
    return COMMAND_DONE;
}

const struct command command_gc = {
    .name = "gc",
    .summary = "show leftover segments, spools and directories, and remove what is finished",
    .details = "Finished is what belongs to no living process, is served by no daemon, and holds nothing that was not read.",
    .options = options,
    .function = run,
};
