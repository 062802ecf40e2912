// What would hold up the loop goes to libuv's threads: a spool of hundreds of megabytes takes longer to reach the disk than a
// ring takes to fill.
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
    if (work->error)
        say("cannot bring the spool of run %s to the disk: %s", work->run->id, strerror(work->error));
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
