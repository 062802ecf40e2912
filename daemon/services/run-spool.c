// Where a run's file and spool lie, and the making of the spool.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/say.h"
#include "base/testpoint.h"
#include "core/procfs.h"
#include "services/daemon.h"

#define SPOOL_LIMIT_DEFAULT (UINT64_C(16) << 30)

// ---- paths

static bool is_writable_directory(const char *path, uid_t uid, gid_t gid)
{
    struct stat status;
    if (stat(path, &status) < 0 || !S_ISDIR(status.st_mode))
        return false;
    if (uid == geteuid())
        return access(path, W_OK | X_OK) == 0;
    mode_t bits = status.st_uid == uid ? status.st_mode >> 6 : status.st_gid == gid ? status.st_mode >> 3 : status.st_mode;
    return (bits & 3) == 3;
}

// In the runtime directory; where we serve others a directory of theirs, for it is with their rights that files are made.
static char *directory_of_ours(const struct daemon *daemon, uid_t uid, gid_t gid)
{
    char *runs = alloc_printf("%s/runs", daemon->rundir);
    mkdir(runs, geteuid() == 0 ? 0711 : 0700);
    if (uid == geteuid())
        return runs;
    char *users = alloc_printf("%s/%u", runs, (unsigned)uid);
    if (mkdir(users, 0700) == 0 && lchown(users, uid, gid) < 0)
        rmdir(users);
    free(runs);
    return users;
}

static char *directory_for(struct daemon *daemon, const struct client *client, uid_t uid, gid_t gid)
{
    char link[64], path[4096];
    if (daemon->settings.output)
        return alloc_text(daemon->settings.output);
    snprintf(link, sizeof link, "/proc/%d/cwd", (int)client->pid);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0) {
        path[length] = 0;
        if (is_writable_directory(path, uid, gid))
            return alloc_text(path);
    }
    return directory_of_ours(daemon, uid, gid);
}

static char *program_of(const struct client *client)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/%d/exe", (int)client->pid);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return alloc_text("process");
    path[length] = 0;
    const char *slash = strrchr(path, '/');
    return alloc_text(slash ? slash + 1 : path);
}

// <directory>/<program>-<host>-<local time>-<run id>.h5
char *run_output_default(const struct run *run, const struct client *client)
{
    struct daemon *daemon = run->daemon;
    char when[32];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(when, sizeof when, "%Y%m%dT%H%M%S", &local);
    char *directory = directory_for(daemon, client, run->uid, run->gid), *program = program_of(client);
    char *path = alloc_printf("%s/%s-%s-%s-%s.h5", directory, program, daemon->host, when, run->id);
    free(directory);
    free(program);
    return path;
}

// run.h5 → run-2.h5
char *run_output_continuation(const char *output, uint32_t part)
{
    size_t length = strlen(output), stem = length > 3 && strcmp(output + length - 3, ".h5") == 0 ? length - 3 : length;
    return alloc_printf("%.*s-%u%s", (int)stem, output, part, output + stem);
}

static char *spool_path_of(const struct run *run)
{
    const char *directory = run->daemon->settings.spool;
    if (!directory)
        return alloc_printf("%s.%s.spool", run->output, run->id);
    const char *slash = strrchr(run->output, '/');
    return alloc_printf("%s/%s.%s.spool", directory, slash ? slash + 1 : run->output, run->id);
}

static uint64_t spool_limit_at(const struct daemon *daemon, const char *path)
{
    if (daemon->settings.spool_limit)
        return daemon->settings.spool_limit;
    char directory[4096];
    const char *slash = strrchr(path, '/');
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    struct statvfs space;
    uint64_t half = statvfs(*directory ? directory : "/", &space) == 0 ? (uint64_t)space.f_bavail * space.f_frsize / 2 : 0;
    return half && half < SPOOL_LIMIT_DEFAULT ? half : SPOOL_LIMIT_DEFAULT;
}

// ---- the spool

void run_spool_anchors(struct run *run)
{
    struct daemon *daemon = run->daemon;
    struct anchor now = ticks_now(daemon->clock_kind), first = daemon->clock.anchors[0];
    ticks_add(&daemon->clock, &now);
    const struct anchor chosen[] = {first, now};
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        if (ticks_add(&run->model.clock, &chosen[i]))
            spool_put_anchor(&run->spool, daemon->clock_kind, &chosen[i]);
}

// As root we serve others: what lies in their directories is made and removed with their rights, not ours.
void run_rights_take(uid_t uid, gid_t gid)
{
    if (geteuid() == 0 && uid != 0) {
        setfsgid(gid);
        setfsuid(uid);
    }
}

void run_rights_return(void)
{
    setfsuid(geteuid());
    setfsgid(getegid());
}

// The runtime directory names the spools in use, for the daemon after a killed one.
static void name_spool(const struct run *run, const char *path)
{
    char *link = restore_link(run), *directory = alloc_printf("%s/spools", run->daemon->rundir);
    mkdir(directory, 0700);
    if (symlink(path, link) < 0)
        say("cannot note the spool %s as %s: %s; a restarted daemon will not find it", path, link, strerror(errno));
    TESTPOINT(spool_named);
    free(link);
    free(directory);
}

void run_spool_drop(struct run *run)
{
    char *link = restore_link(run);
    run_rights_take(run->uid, run->gid);
    unlink(run->spool.path);
    run_rights_return();
    TESTPOINT(spool_dropped);
    unlink(link);
    TESTPOINT(link_dropped);
    free(link);
}

// The spool is made at once, so that an output that cannot be written is found out before anything is recorded.
int run_spool_make(struct run *run)
{
    char *path = spool_path_of(run);
    char boot[40], part[16], form[4];
    procfs_boot_id(boot);
    snprintf(part, sizeof part, "%u", run->part);
    snprintf(form, sizeof form, "%d%s", run->schema, run->compress ? "z" : "");
    struct spool_run facts = {.created_realtime_ns = clock_ns(CLOCK_REALTIME), .key = run->key, .output = run->output,
                              .host = run->daemon->host, .boot = boot, .part = part, .form = form};
    memcpy(facts.id, run->id, sizeof facts.id);
    name_spool(run, path);  // first: what a kill leaves has to be found
    run_rights_take(run->uid, run->gid);
    int result = spool_create(&run->spool, path, &facts, spool_limit_at(run->daemon, path));
    run_rights_return();
    run->has_spool = result == 0;
    if (result < 0) {
        free(run->problem);
        run->problem = alloc_printf("cannot make the spool %s: %s", path, strerror(-result));
        char *link = restore_link(run);
        unlink(link);
        free(link);
    } else {
        run_spool_anchors(run);
    }
    free(path);
    return result;
}

int runs_flush(struct run *run)
{
    if (!run->has_spool) {
        buffer_clear(&run->spool.pending);
        return 0;
    }
    bool was_good = !run->spool.error;
    run->flush_tried_ns = clock_monotonic_ns();
    int result = spool_flush(&run->spool);
    if (result < 0 && was_good)
        say("cannot write the spool %s: %s; what the rings cannot hold is counted as lost", run->spool.path, strerror(-result));
    if (result == 0)
        background_ready(run);
    return result;
}
