// What a killed daemon left: its spools, named in <rundir>/spools, and the segments of its clients. A new daemon reads each
// spool into a run, goes on at its end, and gives every segment back to the process it belongs to (by the segment's uuid); so
// one run stays one file, and every call is in it once.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/say.h"
#include "core/procfs.h"
#include "services/daemon.h"

char *restore_link(const struct run *run)
{
    return alloc_printf("%s/spools/%s", run->daemon->rundir, run->id);
}

static bool is_this_boot(const struct spool_reader *reader)
{
    char boot[40];
    return procfs_boot_id(boot) == 0 && reader->run.boot && strcmp(boot, reader->run.boot) == 0;
}

// Its key begins with the user's number; a user of root's daemon can write into their spool whatever they like.
static bool is_owners(const struct spool_reader *reader, uid_t uid)
{
    char *end;
    if (!reader->run.key || geteuid() != 0)
        return reader->run.key != NULL;
    return strtoul(reader->run.key, &end, 10) == uid && end != reader->run.key && *end == ':';
}

// Nobody knows when: the machine was gone before its processes were.
static void end_with_the_machine(struct run *run)
{
    for (uint32_t i = 0; i < run->model.process_count; i++) {
        struct model_process *process = run->model.processes[i];
        if (process->status.state >= PROCESS_ENDED)
            continue;
        process->status.state = PROCESS_VANISHED;
        spool_put_status(&run->spool, process->number, &process->status);
    }
}

// Goes on with a spool. A run that had ended already, or that another boot made, only needs its file.
static void go_on(struct daemon *daemon, struct spool_reader *reader, const char *path, const struct stat *status)
{
    struct run *run = runs_restore(daemon, reader, status->st_uid, status->st_gid);
    uint64_t limit = daemon->settings.spool_limit ? daemon->settings.spool_limit : UINT64_MAX;
    bool torn = spool_is_torn(reader);
    run_rights_take(run->uid, run->gid);
    int result = spool_continue(&run->spool, path, reader->at, limit);
    run_rights_return();
    if (result < 0) {
        say("cannot go on with the spool %s: %s", path, strerror(-result));
        run->state = RUN_FAILED;
        return;
    }
    run->has_spool = true;
    say("run %s goes on: %s, %zu bytes%s", run->id, path, reader->at, torn ? " (what followed was torn, and is cut off)" : "");
    run->sealed = reader->end_ns != SL_UNKNOWN || !is_this_boot(reader);
    if (!is_this_boot(reader))
        end_with_the_machine(run);
}

static int open_spool(struct spool_reader *reader, const char *path, const struct stat *status)
{
    int result = spool_open(reader, path);
    if (result == -EBADMSG && status->st_size == 0 && S_ISREG(status->st_mode))  // killed before anything was in it
        return unlink(path) < 0 ? -errno : -ENOENT;
    if (result == 0 && !is_owners(reader, status->st_uid)) {
        spool_reader_close(reader);
        return -EBADMSG;
    }
    return result;
}

static void restore_one(struct daemon *daemon, const char *link)
{
    char path[4096];
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0)
        return;
    path[length] = 0;
    struct spool_reader reader;
    struct stat status = {0};
    int result = lstat(path, &status) < 0 ? -errno : 0;
    if (result == 0) {  // it lies where its user may change what the name leads to
        run_rights_take(status.st_uid, status.st_gid);
        result = open_spool(&reader, path, &status);
        run_rights_return();
    }
    if (result == -ENOENT) {
        unlink(link);
        return;
    }
    if (result < 0) {
        say("cannot read the spool %s: %s", path,
            result == -EPROTONOSUPPORT ? "it is of another version, which has to finish it" : strerror(-result));
        return;
    }
    go_on(daemon, &reader, path, &status);
    spool_reader_close(&reader);
}

struct link {
    char *path;
    int64_t made_ns;
};

static int by_age(const void *a, const void *b)
{
    const struct link *one = a, *other = b;
    return one->made_ns < other->made_ns ? -1 : one->made_ns > other->made_ns;
}

// The oldest first, for a continuation comes after what it continues.
void restore_runs(struct daemon *daemon)
{
    char *directory = alloc_printf("%s/spools", daemon->rundir);
    DIR *entries = opendir(directory);
    struct dirent *entry;
    struct link *links = NULL;
    size_t count = 0;
    while (entries && (entry = readdir(entries))) {
        struct stat status;
        if (entry->d_name[0] == '.' || fstatat(dirfd(entries), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        links = alloc_resize(links, count + 1, sizeof *links);
        links[count++] = (struct link){alloc_printf("%s/%s", directory, entry->d_name),
                                       status.st_mtim.tv_sec * INT64_C(1000000000) + status.st_mtim.tv_nsec};
    }
    if (entries)
        closedir(entries);
    if (count)
        qsort(links, count, sizeof *links, by_age);
    for (size_t i = 0; i < count; i++) {
        restore_one(daemon, links[i].path);
        free(links[i].path);
    }
    free(links);
    free(directory);
}

static struct model_process *find_in(const struct run *run, const uint8_t uuid[16])
{
    for (uint32_t i = 0; i < run->model.process_count; i++)
        if (memcmp(run->model.processes[i]->facts.uuid, uuid, 16) == 0)
            return run->model.processes[i];
    return NULL;
}

// Its latest part: runs are newest first.
struct model_process *restore_find(const struct daemon *daemon, const uint8_t uuid[16], uid_t uid, struct run **run)
{
    for (struct run *each = daemon->runs; each; each = each->next) {
        struct model_process *found = each->restored && each->uid == uid ? find_in(each, uuid) : NULL;
        if (found && each->state == RUN_RECORDING) {
            *run = each;
            return found;
        }
    }
    return NULL;
}

bool restore_is_over(const struct daemon *daemon, const uint8_t uuid[16])
{
    for (const struct run *each = daemon->runs; each; each = each->next) {
        const struct model_process *found = each->restored && each->state == RUN_RECORDING ? NULL : find_in(each, uuid);
        if (found && found->status.state >= PROCESS_ENDED)
            return true;
    }
    return false;
}

static bool has_client(const struct daemon *daemon, const struct model_process *process)
{
    for (const struct client *client = daemon->clients; client; client = client->next)
        if (client->process == process)
            return true;
    return false;
}

// A process whose segment is not to be found any more (its name was removed) may live on; when it has ended, that is all there is
// to know of it.
static void check_process(struct run *run, struct model_process *process)
{
    if (procfs_is_alive(process->facts.pid, process->facts.start_time) || has_client(run->daemon, process))
        return;
    process->status.state = process->status.goodbye ? PROCESS_ENDED : PROCESS_VANISHED;
    process->status.end_ns = clock_monotonic_ns();
    spool_put_status(&run->spool, process->number, &process->status);
}

void restore_check(struct daemon *daemon)
{
    for (struct run *run = daemon->runs; run; run = run->next)
        for (uint32_t i = 0; run->restored && !run->sealed && run->state == RUN_RECORDING && i < run->model.process_count; i++)
            if (run->model.processes[i]->status.state < PROCESS_ENDED)
                check_process(run, run->model.processes[i]);
}
