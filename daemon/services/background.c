// What would hold up the loop goes to libuv's threads: a spool of hundreds of megabytes takes longer to reach the disk than a
// ring takes to fill, and while it does, who writes to the same file may wait for as long.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/say.h"
#include "base/testpoint.h"
#include "services/daemon.h"

#define READY_RETRY_NS INT64_C(1000000000)

struct sync_work {
    uv_work_t request;
    struct run *run;
    int fd;  // its own: the run may close the spool meanwhile
    int error;
};

static void bring_to_disk(uv_work_t *request)
{
    struct sync_work *work = request->data;
    work->error = fdatasync(work->fd) < 0 ? errno : 0;
    TESTPOINT(spool_synced);
    close(work->fd);
}

static void on_synced(uv_work_t *request, int status)
{
    struct sync_work *work = request->data;
    (void)status;
    work->run->syncing = false;
    work->run->refresh_windows = true;  // what has been brought to the disk is written to with a fault first
    if (work->error)
        say("cannot bring the spool of run %s to the disk: %s", work->run->id, strerror(work->error));
    background_ready(work->run);
    free(work);
}

void background_sync(struct run *run)
{
    run->spool.synced_ns = clock_monotonic_ns();
    int fd = run->syncing ? -1 : fcntl(run->spool.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return;
    struct sync_work *work = alloc_zeroed(1, sizeof *work);
    *work = (struct sync_work){.run = run, .fd = fd, .request.data = work};
    run->syncing = true;
    uv_queue_work(&run->daemon->loop, &work->request, bring_to_disk, on_synced);
}

// ---- windows of the spool

struct ready_work {
    uv_work_t request;
    struct run *run;
    int fd;
    uint64_t from, bytes;  // bytes 0: none is wanted
    struct spool_window used, refresh[2], made;
    int result;
};

static void make_ready(uv_work_t *request)
{
    struct ready_work *work = request->data;
    window_drop(&work->used);
    window_refresh(&work->refresh[0]);
    window_refresh(&work->refresh[1]);
    if (work->bytes)
        work->result = window_make(&work->made, work->fd, work->from, work->bytes);
    close(work->fd);
}

static void on_ready(uv_work_t *request, int status)
{
    struct ready_work *work = request->data;
    struct run *run = work->run;
    (void)status;
    run->readying = false;
    if (work->result < 0)
        run->ready_after_ns = work->result == -EOPNOTSUPP ? INT64_MAX : clock_monotonic_ns() + READY_RETRY_NS;
    else if (work->made.map.base && run->spool.fd >= 0 && !run->spool.error)
        spool_take_window(&run->spool, &work->made);
    else
        window_drop(&work->made);
    free(work);
    background_ready(run);
}

static void start_readying(struct run *run, const struct ready_work *what)
{
    int fd = fcntl(run->spool.fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return;
    struct ready_work *work = alloc_zeroed(1, sizeof *work);
    *work = *what;
    work->request.data = work;
    work->fd = fd;
    run->readying = true;
    uv_queue_work(&run->daemon->loop, &work->request, make_ready, on_ready);
}

void background_ready(struct run *run)
{
    struct ready_work work = {.run = run};
    if (run->readying || run->spool.fd < 0 || clock_monotonic_ns() < run->ready_after_ns)
        return;
    bool wants = spool_wants_window(&run->spool, &work.from, &work.bytes);
    if (!wants && !run->spool.used.map.base && !run->refresh_windows)
        return;
    work.used = spool_used_window(&run->spool);
    if (run->refresh_windows) {
        work.refresh[0] = run->spool.window;
        work.refresh[1] = run->spool.next;
    }
    run->refresh_windows = false;
    if (!wants)
        work.bytes = 0;
    start_readying(run, &work);
}
