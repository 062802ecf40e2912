// What the client reads once from its surroundings. Plain system calls and a few libc functions that do not allocate.
#include "client/facts.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static struct facts facts;

int64_t facts_clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static ssize_t read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t length = read(fd, text, size - 1);
    close(fd);
    text[length > 0 ? length : 0] = 0;
    return length;
}

uint64_t facts_start_time(uint32_t pid)
{
    char path[48], text[1024];
    if (pid)
        snprintf(path, sizeof path, "/proc/%u/stat", pid);
    if (read_text(pid ? path : "/proc/self/stat", text, sizeof text) <= 0)
        return 0;
    char *field = strrchr(text, ')');  // the name before it may hold anything
    for (int i = 2; field && i < 22; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

uint32_t facts_clock_kind(void)
{
    char source[32];
    if (read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source) <= 0)
        return SL_CLOCK_MONOTONIC;
#if defined(__x86_64__)
    if (strcmp(source, "tsc\n") == 0)
        return SL_CLOCK_TSC;
#elif defined(__aarch64__)
    if (strcmp(source, "arch_sys_counter\n") == 0)
        return SL_CLOCK_ARM;
#endif
    return SL_CLOCK_MONOTONIC;
}

static void add_place(const char *directory, const char *tail)
{
    char *place = facts.places[facts.place_count];
    int length = snprintf(place, sizeof facts.places[0], "%s%s", directory, tail);
    if (length > 0 && (size_t)length < sizeof facts.places[0])
        facts.place_count++;
}

// The same list as daemon/base/rundir.c.
static void read_places(void)
{
    const char *named = getenv("SCOPED_LANE_RUNDIR");
    if (named && *named) {
        char here[1024];
        if (*named != '/' && getcwd(here, sizeof here - 1)) {
            strcat(here, "/");
            add_place(here, named);
        } else {
            add_place(named, "");
        }
        return;
    }
    const char *xdg = getenv("XDG_RUNTIME_DIR");
    if (xdg && *xdg == '/')
        add_place(xdg, "/scoped-lane");
    add_place("/run/scoped-lane", "");
    char uid[16];
    snprintf(uid, sizeof uid, "%u", (unsigned)geteuid());
    add_place("/tmp/scoped-lane-", uid);
}

static bool number(const char *variable, int64_t *value)
{
    const char *text = getenv(variable);
    if (!text || !*text)
        return false;
    char *end;
    long long parsed = strtoll(text, &end, 10);
    if (*end)
        return false;
    *value = parsed;
    return true;
}

static void read_rank(void)
{
    static const char *const ranks[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"};
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
    facts.rank = SL_RANK_NONE;
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks && facts.rank == SL_RANK_NONE; i++)
        number(ranks[i], &facts.rank);
    int64_t size = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && size == 0; i++)
        number(sizes[i], &size);
    facts.world_size = size > 0 && size <= INT32_MAX ? (int32_t)size : 0;
}

// Which run this process belongs to, by design.md §5; empty leaves it to the daemon, which knows the ancestors.
static void read_run_key(void)
{
    const char *run = getenv("SCOPED_LANE_RUN");
    if (run && *run) {
        snprintf(facts.run_key, sizeof facts.run_key, "run:%s", run);
        return;
    }
    const char *namespace = getenv("PMIX_NAMESPACE");
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    if (namespace && *namespace) {
        static const char *const servers[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21",
                                              "PMIX_SERVER_URI2", "PMIX_SERVER_URI"};
        for (size_t i = 0; i < sizeof servers / sizeof *servers; i++) {
            const char *server = getenv(servers[i]);
            if (server && *server) {
                snprintf(facts.run_key, sizeof facts.run_key, "pmix:%s:%s", namespace, server);
                return;
            }
        }
        uint32_t parent = (uint32_t)getppid();
        snprintf(facts.run_key, sizeof facts.run_key, "pmix:%s:%u.%llu", namespace, parent,
                 (unsigned long long)facts_start_time(parent));
    } else if (job && step && *job && *step) {
        snprintf(facts.run_key, sizeof facts.run_key, "slurm:%s.%s", job, step);
    }
}

static void read_ring_bytes(void)
{
    facts.ring_bytes = SL_RING_BYTES_DEFAULT;
    const char *text = getenv("SCOPED_LANE_RING");
    if (!text || *text < '0' || *text > '9')
        return;
    char *end;
    uint64_t size = strtoull(text, &end, 10);
    if (*end == 'K' || *end == 'k')
        size <<= 10, end++;
    else if (*end == 'M' || *end == 'm')
        size <<= 20, end++;
    if (*end || size == 0)
        return;
    if (size < SL_RING_BYTES_MIN)
        size = SL_RING_BYTES_MIN;
    if (size > SL_RING_BYTES_MAX)
        size = SL_RING_BYTES_MAX;
    facts.ring_bytes = UINT64_C(1) << (63 - __builtin_clzll(size));
}

struct facts *facts_get(void)
{
    if (facts.read)
        return &facts;
    facts.read = true;
    const char *mode = getenv("SCOPED_LANE"), *fork_mode = getenv("SCOPED_LANE_FORK"), *shm = getenv("SCOPED_LANE_SHM_DIR");
    facts.off = getauxval(AT_SECURE) || (mode && strcmp(mode, "off") == 0);
    facts.follow = fork_mode && strcmp(fork_mode, "follow") == 0;
    snprintf(facts.shm_directory, sizeof facts.shm_directory, "%s", shm && *shm == '/' ? shm : SL_SHM_DIRECTORY);
    read_places();
    read_rank();
    read_run_key();
    read_ring_bytes();
    ssize_t length = readlink("/proc/self/exe", facts.program, sizeof facts.program - 1);
    facts.program[length > 0 ? length : 0] = 0;
    if (!getcwd(facts.directory, sizeof facts.directory))
        facts.directory[0] = 0;
    return &facts;
}
