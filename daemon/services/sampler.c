// CPU time of living threads, from /proc/PID/task/TID/schedstat: every period, and for a thread whose drained calls have
// grown by CPU_SAMPLE_MASK + 1. It is a lower bound until the dying thread stores its own exact time. Beside that, what the kernel
// knows about them: the state, and the name, which pthread_setname_np changes without our hearing of it.
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "core/procfs.h"
#include "services/daemon.h"

#define SPOOL_PERIOD_NS 1000000000
#define BUSY_PERIOD_NS  10000000  // a thread is not sampled more often than this, however many calls it makes

// A kept descriptor where there are plenty, else one for the moment; -errno.
static int descriptor(struct client *client, uint32_t index, uint32_t tid, bool *keep)
{
    if (index >= client->schedstat_count) {
        uint32_t larger = client->schedstat_count ? client->schedstat_count : 16;
        while (larger <= index)
            larger *= 2;
        client->schedstat = alloc_resize(client->schedstat, larger, sizeof *client->schedstat);
        for (uint32_t i = client->schedstat_count; i < larger; i++)
            client->schedstat[i] = -1;
        client->schedstat_count = larger;
    }
    struct rlimit limit;
    if (client->schedstat[index] < 0) {
        int fd = procfs_open_schedstat((uint32_t)client->pid, tid);
        *keep = fd >= 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd < limit.rlim_cur / 4;
        if (*keep)
            client->schedstat[index] = fd;
        return fd;
    }
    *keep = true;
    return client->schedstat[index];
}

static void drop(struct client *client, uint32_t index)
{
    if (index < client->schedstat_count && client->schedstat[index] >= 0) {
        close(client->schedstat[index]);
        client->schedstat[index] = -1;
    }
}

void sampler_forget(struct client *client)
{
    for (uint32_t i = 0; i < client->schedstat_count; i++)
        drop(client, i);
    free(client->schedstat);
    client->schedstat = NULL;
    client->schedstat_count = 0;
}

static void sample_thread(struct client *client, uint32_t index, struct model_thread *thread, int64_t now_ns)
{
    struct procfs_schedstat schedstat;
    bool keep;
    int fd = descriptor(client, index, thread->facts.native_id, &keep);
    if (fd < 0)
        return;
    if (procfs_read_schedstat(fd, &schedstat) < 0) {
        if (keep)
            drop(client, index);
    } else if (schedstat.cpu_ns > thread->facts.cpu_ns) {
        thread->facts.cpu_ns = schedstat.cpu_ns;
        thread->wait_ns = schedstat.wait_ns;
    }
    if (!keep)
        close(fd);
    thread->sampled_ns = now_ns;
    thread->calls_at_sample = thread->calls;
}

static bool is_busy(const struct model_thread *thread, int64_t now_ns)
{
    return thread->calls - thread->calls_at_sample > SL_CPU_SAMPLE_MASK && now_ns - thread->sampled_ns > BUSY_PERIOD_NS;
}

static void sample_client(struct client *client, bool busy_only, int64_t now_ns)
{
    struct model_process *process = client->process;
    for (uint32_t i = 0; i < process->thread_count; i++) {
        struct model_thread *thread = &process->threads[i];
        if (!thread->known || thread->facts.end)
            drop(client, i);
        else if (!busy_only || is_busy(thread, now_ns))
            sample_thread(client, i, thread, now_ns);
    }
}

// A name that the program gave us itself is better than the kernel's fifteen bytes.
static void look_at_name(struct client *client, struct model_thread *thread)
{
    char comm[64];
    struct buffer name = {0};
    if ((thread->facts.flags & SL_THREAD_NAMED) || procfs_comm((uint32_t)client->pid, thread->facts.native_id, comm) < 0)
        return;
    utf8_append(&name, comm, strlen(comm));
    struct thread_facts facts = thread->facts;
    facts.name_length = (uint32_t)name.length;
    buffer_append(&name, "", 1);
    if (!thread->name || strcmp(thread->name, name.data) != 0) {
        model_set_thread(client->process, &facts, name.data);
        spool_put_thread(&client->run->spool, client->process->number, &facts, name.data);
    }
    buffer_finish(&name);
}

static void spool_samples(struct client *client, int64_t now_ns)
{
    struct model_process *process = client->process;
    struct sample_facts *samples = alloc_zeroed(process->thread_count, sizeof *samples);
    uint32_t count = 0;
    for (uint32_t i = 0; i < process->thread_count; i++) {
        struct model_thread *thread = &process->threads[i];
        struct procfs_stat stat = {.state = '?'};
        if (!thread->known || thread->facts.end)
            continue;
        procfs_stat((uint32_t)client->pid, thread->facts.native_id, &stat);
        thread->os_state = stat.state;
        look_at_name(client, thread);
        samples[count++] = (struct sample_facts){.thread = i, .state = (uint32_t)stat.state, .cpu_ns = thread->facts.cpu_ns,
                                                 .wait_ns = thread->wait_ns, .time_ns = now_ns};
    }
    if (count)
        spool_put_samples(&client->run->spool, process->number, samples, count);
    free(samples);
    client->samples_ns = now_ns;
}

void sampler_run(struct daemon *daemon, bool busy_only)
{
    int64_t now_ns = clock_monotonic_ns();
    for (struct client *client = daemon->clients; client; client = client->next) {
        if (client->gone || client->broken)
            continue;
        sample_client(client, busy_only, now_ns);
        if (!busy_only && now_ns - client->samples_ns >= SPOOL_PERIOD_NS)
            spool_samples(client, now_ns);
    }
}
