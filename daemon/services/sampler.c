// CPU time of living threads, from /proc/PID/task/TID/schedstat: every period, and for a thread whose drained calls have
// grown by CPU_SAMPLE_MASK + 1. It is a lower bound until the dying thread stores its own exact time. Beside that, what the kernel
// knows about them: the state, and the name, which pthread_setname_np changes without our hearing of it.
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uthash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/testpoint.h"
#include "base/utf8.h"
#include "core/procfs.h"
#include "services/daemon.h"

#define SPOOL_PERIOD_NS 1000000000
#define TURN_NS         500000      // of a turn of the loop
#define SPOOL_TURNS     8           // of a pass: a state is read from /proc for each thread
#define BUSY_PERIOD_NS  10000000  // a thread is not sampled more often than this, however many calls it makes

struct schedstat {
    uint32_t thread;
    int fd;
    UT_hash_handle hh;
};

// A kept descriptor where there are plenty, else one for the moment; -errno.
static int descriptor(struct client *client, uint32_t index, uint32_t tid, struct schedstat **kept)
{
    struct rlimit limit;
    HASH_FIND(hh, client->schedstat, &index, sizeof index, *kept);
    if (*kept)
        return (*kept)->fd;
    int fd = procfs_open_schedstat((uint32_t)client->pid, tid);
    if (fd < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0 || (rlim_t)fd >= limit.rlim_cur / 4)
        return fd;
    *kept = alloc_zeroed(1, sizeof **kept);
    **kept = (struct schedstat){.thread = index, .fd = fd};
    HASH_ADD(hh, client->schedstat, thread, sizeof index, *kept);
    return fd;
}

static void drop(struct client *client, struct schedstat *schedstat)
{
    HASH_DEL(client->schedstat, schedstat);
    close(schedstat->fd);
    free(schedstat);
}

void sampler_forget(struct client *client)
{
    struct schedstat *schedstat, *next;
    HASH_ITER(hh, client->schedstat, schedstat, next)
        drop(client, schedstat);
}

static void drop_the_ended(struct client *client)
{
    struct schedstat *schedstat, *next;
    HASH_ITER(hh, client->schedstat, schedstat, next) {
        const struct model_thread *thread = model_find_thread(client->process, schedstat->thread);
        if (!thread || !thread->living)
            drop(client, schedstat);
    }
}

static void sample_thread(struct client *client, uint32_t index, struct model_thread *thread, int64_t now_ns)
{
    struct procfs_schedstat schedstat;
    struct schedstat *kept;
    int fd = descriptor(client, index, thread->facts.native_id, &kept);
    if (fd < 0)
        return;
    bool is_read = procfs_read_schedstat(fd, &schedstat) == 0;
    if (is_read) {
        thread->facts.cpu_ns = schedstat.cpu_ns > thread->facts.cpu_ns ? schedstat.cpu_ns : thread->facts.cpu_ns;
        thread->wait_ns = schedstat.wait_ns > thread->wait_ns ? schedstat.wait_ns : thread->wait_ns;
        thread->switches = schedstat.slices;
    }
    if (!kept)
        close(fd);
    else if (!is_read)
        drop(client, kept);
    thread->sampled_ns = now_ns;
    thread->calls_at_sample = thread->calls;
}

// Over a whole period: the kernel counts in steps of some milliseconds, so that a shorter one would tell little.
static void note_share(struct model_thread *thread, int64_t now_ns)
{
    uint64_t cpu_ns = thread->facts.cpu_ns;
    if (thread->sampled_ns != now_ns)  // it could not be read
        return;
    double share = thread->share_ns ? (double)(cpu_ns - thread->share_cpu_ns) / (double)(now_ns - thread->share_ns) : -1;
    thread->cpu_share = share > 1 ? 1 : share;
    thread->share_ns = now_ns;
    thread->share_cpu_ns = cpu_ns;
}

static bool is_busy(const struct model_thread *thread, int64_t now_ns)
{
    return thread->calls - thread->calls_at_sample > SL_CPU_SAMPLE_MASK && now_ns - thread->sampled_ns > BUSY_PERIOD_NS;
}

static void sample_client(struct client *client, bool busy_only, int64_t now_ns)
{
    struct model_process *process = client->process;
    for (uint32_t i = 0; i < process->living_count; i++) {
        struct model_thread *thread = model_find_thread(process, process->living[i]);
        if (!busy_only || is_busy(thread, now_ns))
            sample_thread(client, process->living[i], thread, now_ns);
        if (!busy_only)
            note_share(thread, now_ns);
    }
    if (!busy_only)
        drop_the_ended(client);
}

// A name that the program gave us itself is better than the kernel's fifteen bytes.
static void look_at_name(struct client *client, struct model_thread *thread, const char *comm)
{
    struct buffer name = {0};
    if (thread->facts.flags & SL_THREAD_NAMED)
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
    struct sample_facts *samples = alloc_zeroed(process->living_count, sizeof *samples);
    uint32_t count = 0;
    for (uint32_t i = 0; i < process->living_count; i++) {
        struct model_thread *thread = model_find_thread(process, process->living[i]);
        struct procfs_stat stat = {.state = '?'};
        if (procfs_stat((uint32_t)client->pid, thread->facts.native_id, &stat) == 0)
            look_at_name(client, thread, stat.name);
        thread->os_state = stat.state;
        samples[count++] = (struct sample_facts){.thread = thread->facts.index, .state = (uint32_t)stat.state, .cpu_ns = thread->facts.cpu_ns,
                                                 .wait_ns = thread->wait_ns, .time_ns = now_ns};
    }
    if (count)
        spool_put_samples(&client->run->spool, process->number, samples, count);
    TESTPOINT(samples_put);
    free(samples);
    client->samples_ns = now_ns;
}

static struct client *longest_due(const struct daemon *daemon, int64_t now_ns)
{
    struct client *longest = NULL;
    for (struct client *client = daemon->clients; client; client = client->next)
        if (!client->gone && !client->broken && now_ns - client->samples_ns >= SPOOL_PERIOD_NS &&
            (!longest || client->samples_ns < longest->samples_ns))
            longest = client;
    return longest;
}

static bool is_sampled(const struct client *client)
{
    return !client->gone && !client->broken;
}

void sampler_run_busy(struct daemon *daemon)
{
    int64_t now_ns = clock_monotonic_ns();
    for (struct client *client = daemon->clients; client; client = client->next)
        if (is_sampled(client))
            sample_client(client, true, now_ns);
}

// Many threads take turns, so that neither rings nor questions are left alone for long.
bool sampler_run(struct daemon *daemon)
{
    int64_t now_ns = clock_monotonic_ns(), end_ns = now_ns + TURN_NS;
    if (!daemon->sample_turns++)
        daemon->sample_pass++;
    for (struct client *client = daemon->clients; client; client = client->next) {
        if (!is_sampled(client) || client->sample_pass == daemon->sample_pass)
            continue;
        if (clock_monotonic_ns() >= end_ns)
            return false;
        client->sample_pass = daemon->sample_pass;
        sample_client(client, false, now_ns);
        daemon->sample_turns = 1;
    }
    struct client *due;
    while ((due = longest_due(daemon, now_ns)) && daemon->sample_turns <= SPOOL_TURNS) {
        if (clock_monotonic_ns() >= end_ns)
            return false;
        spool_samples(due, now_ns);
    }
    daemon->sample_turns = 0;
    return true;
}
