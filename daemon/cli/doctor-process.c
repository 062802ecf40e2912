// Why a process records nothing. The same questions that the client asks itself when it starts (client/process.c), in the
// same order, answered from outside.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/client.h"
#include "cli/doctor.h"
#include "cli/places.h"
#include "core/procfs.h"
#include "core/segment.h"

struct patient {
    struct doctor *doctor;
    uint32_t pid;
    uid_t uid;
    uint64_t start_time;
    char name[64];
};

// The library's own text, which is in a program that it was linked into, stripped or not.
static bool holds_library(uint32_t pid)
{
    static const char text[] = "/" SL_NAME_PREFIX "%u.%u.%llu.";
    char path[64];
    struct stat status;
    snprintf(path, sizeof path, "/proc/%u/exe", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    void *bytes = fstat(fd, &status) == 0 ? mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    close(fd);
    if (bytes == MAP_FAILED)
        return false;
    bool found = memmem(bytes, (size_t)status.st_size, text, sizeof text - 1) != NULL;
    munmap(bytes, (size_t)status.st_size);
    return found;
}

static bool look_at_library(const struct patient *patient)
{
    char path[4096];
    if (procfs_find_map(patient->pid, "/libscoped_lane.so", path, sizeof path) > 0) {
        doctor_find(patient->doctor, DOCTOR_OK, "library", NULL, "%s", path);
        return true;
    }
    if (holds_library(patient->pid)) {
        doctor_find(patient->doctor, DOCTOR_OK, "library", NULL, "linked into the program itself");
        return true;
    }
    doctor_find(patient->doctor, DOCTOR_STOPS, "library",
                "link it with -lscoped_lane; MPI calls of programs without it are recorded by scoped-lane run --mpi",
                "%s uses no libscoped_lane", patient->name);
    return false;
}

// ---- it has a segment

static void look_at_ledger(const struct patient *patient, const struct segment *segment)
{
    uint64_t produced = sl_load_relaxed(&segment_header(segment)->elsewhere_produced), lost = 0, waiting = 0, full = 0;
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        lost += sl_load_relaxed(&segment_header(segment)->elsewhere_lost[reason]);
    for (uint32_t i = 0; i < segment->slot_count; i++) {
        const struct sl_ring *ring = segment_ring(segment, i);
        uint64_t used = sl_load_relaxed(&ring->head) - sl_load_relaxed(&ring->tail);
        produced += sl_load_relaxed(&ring->produced);
        for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
            lost += sl_load_relaxed(&ring->lost[reason]);
        waiting += used;
        full += used >= segment->slots[i].records;
    }
    doctor_find(patient->doctor, DOCTOR_OK, "calls", NULL, "%" PRIu64 " have ended", produced);
    if (lost)
        doctor_find(patient->doctor, DOCTOR_SLOW, "calls", "scoped-lane loss says why; larger rings by SCOPED_LANE_RING",
                    "%" PRIu64 " of them were lost", lost);
    if (full)
        doctor_find(patient->doctor, DOCTOR_STOPS, "rings", "is its daemon stopped? see the process of scoped-laned",
                    "%" PRIu64 " of %u are full, %" PRIu64 " records wait: nobody takes them", full, segment->slot_count,
                    waiting);
}

static void look_into_segment(const struct patient *patient, const struct segment *segment)
{
    struct doctor *doctor = patient->doctor;
    const struct sl_segment *header = segment_header(segment);
    const char *place = segment->identity.place;
    bool listens = places_listens(place);
    uint32_t daemon_pid = sl_load_relaxed(&header->daemon_pid);
    if (!listens)
        doctor_find(doctor, DOCTOR_STOPS, "daemon",
                    "start scoped-laned with this runtime directory: it goes on where the last one ended",
                    "it is recorded for the daemon of %s, where nobody listens; its rings fill up", place);
    else if (!sl_load_relaxed(&header->adopted))
        doctor_find(doctor, DOCTOR_NOTE, "daemon",
                    "scoped-lane status tells of refusals; it is found within a second otherwise",
                    "the daemon of %s has not taken it yet", place);
    else
        doctor_find(doctor, DOCTOR_OK, "daemon", NULL, "process %u, in %s", daemon_pid, place);
    if (sl_load_relaxed(&header->control) & SL_CONTROL_PAUSED)
        doctor_find(doctor, DOCTOR_STOPS, "paused", "scoped-lane resume", "recording is paused");
    if (!sl_load_relaxed(&header->wakeups))
        doctor_find(
            doctor, DOCTOR_NOTE, "wake-up", NULL,
            "it does not wake the daemon, which looks every 20 ms: it has not had to yet, or its descriptors were closed");
    if (segment->identity.clock == SL_CLOCK_MONOTONIC)
        doctor_find(doctor, DOCTOR_SLOW, "clock", "see the machine's clock source: scoped-lane doctor",
                    "each call asks the kernel for the time");
    look_at_ledger(patient, segment);
}

static void look_at_segment(const struct patient *patient, char *path)
{
    char problem[256], *deleted = strstr(path, " (deleted)");
    struct segment segment;
    if (deleted) {
        doctor_find(patient->doctor, DOCTOR_STOPS, "segment",
                    "scoped-lane status has the latest refusal; a new start of the program is recorded again",
                    "its shared memory was removed: refused by the daemon, or its process was taken for ended");
        return;
    }
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int result = fd < 0 ? -errno : segment_open(&segment, fd, path, problem);
    if (fd < 0)
        snprintf(problem, sizeof problem, "%s", strerror(-result));
    if (fd >= 0)
        close(fd);
    if (result < 0) {
        bool other = result == -EPROTONOSUPPORT;
        doctor_find(patient->doctor, DOCTOR_STOPS, "segment",
                    other ? "link the program with the library of this version" : NULL, "%s: %s", path, problem);
        return;
    }
    if (segment.identity.pid != patient->pid || segment.identity.start_time != patient->start_time)
        doctor_find(patient->doctor, DOCTOR_STOPS, "fork", "set SCOPED_LANE_FORK=follow for its parent",
                    "it is a child of process %u, which records, and children do not unless told to", segment.identity.pid);
    else
        look_into_segment(patient, &segment);
    segment_close(&segment);
}

// ---- it has none

static bool is_off(const struct patient *patient)
{
    char value[16];
    if (procfs_variable(patient->pid, "SCOPED_LANE", value, sizeof value) > 0 && strcmp(value, "off") == 0) {
        doctor_find(patient->doctor, DOCTOR_STOPS, "switched off", "start it without SCOPED_LANE=off",
                    "SCOPED_LANE=off is in its environment");
        return true;
    }
    if (procfs_is_secure(patient->pid) == 1) {
        doctor_find(
            patient->doctor, DOCTOR_STOPS, "setuid", "run it by the user whose rights it takes",
            "it runs with other rights than its user's (setuid, setgid, capabilities), and such programs record nothing");
        return true;
    }
    return false;
}

static void look_at_places(const struct patient *patient)
{
    char rundir[1024], xdg[1024];
    struct rundir_list places;
    bool named = procfs_variable(patient->pid, "SCOPED_LANE_RUNDIR", rundir, sizeof rundir) > 0 && *rundir;
    bool has_xdg = procfs_variable(patient->pid, "XDG_RUNTIME_DIR", xdg, sizeof xdg) > 0;
    int there = 0;
    rundir_places_of(&places, named ? rundir : NULL, has_xdg ? xdg : NULL, patient->uid);
    for (int i = 0; i < places.count; i++)
        there += doctor_place(patient->doctor, places.paths[i], patient->uid);
    if (there)
        doctor_find(patient->doctor, DOCTOR_STOPS, "start", "start it again, or have it call sl_attach",
                    "a daemon listens where it looks, and it is not recorded: it has made no call yet, or looked before "
                    "the daemon was there");
    else
        doctor_find(patient->doctor, DOCTOR_STOPS, "daemon",
                    named
                        ? "start scoped-laned with this runtime directory, or start the program without SCOPED_LANE_RUNDIR"
                        : "start scoped-laned before it, or start it with scoped-lane run",
                    "none that it trusts listens where it looks%s", named ? " (SCOPED_LANE_RUNDIR)" : "");
}

// As it sees it: a container has a /dev/shm of its own.
static void look_at_its_shm(const struct patient *patient)
{
    char directory[1024];
    bool named = procfs_variable(patient->pid, "SCOPED_LANE_SHM_DIR", directory, sizeof directory) > 0 && *directory == '/';
    if (!named)
        snprintf(directory, sizeof directory, SL_SHM_DIRECTORY);
    char *seen = procfs_same_mounts(patient->pid) == 0 ? alloc_printf("/proc/%u/root%s", patient->pid, directory) : alloc_text(directory);
    doctor_shm(patient->doctor, seen);
    free(seen);
}

// It, or one of its kind, has told a daemon why it could not make a segment.
static void look_at_unable(const struct patient *patient)
{
    struct client_query query = {.path = "/v1/runs", .quiet = true};
    json_t *reply, *row;
    size_t i;
    if (client_ask(&query, &reply) < 0)
        return;
    json_array_foreach(json_object_get(reply, "rows"), i, row)
    {
        const char *why = json_string_value(json_object_get(row, "unable_why"));
        if (why)
            doctor_find(patient->doctor, DOCTOR_NOTE, "told", NULL, "run %s: %s",
                        json_string_value(json_object_get(row, "run")), why);
    }
    json_decref(reply);
}

// Its own segment rather than one that it has from its parent.
static int find_segment(const struct patient *patient, char *path, size_t size)
{
    char own[64];
    snprintf(own, sizeof own, SL_NAME_PREFIX "%u.%u.", (unsigned)patient->uid, patient->pid);
    int found = procfs_find_map(patient->pid, own, path, size);
    return found ? found : procfs_find_map(patient->pid, SL_NAME_PREFIX, path, size);
}

void doctor_process(struct doctor *doctor, uint32_t pid)
{
    struct patient patient = {.doctor = doctor, .pid = pid};
    struct procfs_stat stat;
    char path[4096];
    int result = procfs_stat(pid, 0, &stat);
    if (result < 0 || stat.state == 'Z') {
        doctor_find(doctor, DOCTOR_STOPS, "process", NULL, "%u: %s", pid,
                    result < 0 ? "there is no such process" : "it has ended, and its parent has not been told");
        return;
    }
    patient.start_time = stat.start_time;
    snprintf(patient.name, sizeof patient.name, "%s", stat.name);
    result = procfs_uid(pid, &patient.uid);
    int found = result < 0 ? result : find_segment(&patient, path, sizeof path);
    if (found < 0) {
        doctor_find(doctor, DOCTOR_STOPS, "process", "ask as its user, or as root",
                    "%u (%s) of user %u cannot be looked into: %s", pid, stat.name, (unsigned)patient.uid,
                    strerror(-found));
        return;
    }
    doctor_find(doctor, DOCTOR_OK, "process", NULL, "%u (%s) of user %u", pid, stat.name, (unsigned)patient.uid);
    if (procfs_same_mounts(pid) == 0)
        doctor_find(doctor, DOCTOR_NOTE, "container",
                    "give it the runtime directory and /dev/shm of the daemon, or run doctor inside",
                    "it has its own view of the file system: what is said of runtime directories is said of ours");
    if (found > 0) {
        look_at_segment(&patient, path);
    } else if (look_at_library(&patient) && !is_off(&patient)) {
        look_at_its_shm(&patient);
        look_at_places(&patient);
        look_at_unable(&patient);
    }
}
