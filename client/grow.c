// The segment's file: made, named, grown at its end. Everything here runs under the client's lock.
//
// Space is allocated before it is used: on a full tmpfs a hole is a SIGBUS for whoever touches it. The descriptor is a
// convenience: programs close what they did not open, so the file is opened by name again where need be, and a kept
// descriptor is used only while it still is this file.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "client/facts.h"
#include "client/state.h"

static uint64_t random64(void)
{
    uint64_t value = 0;
    if (getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value)
        value = (uint64_t)client_ticks() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)(uintptr_t)&value ^ (uint64_t)getpid();
    return value;
}

int file_identify(int fd, struct file_id *id)
{
    struct stat status;
    if (fstat(fd, &status) < 0)
        return -errno;
    *id = (struct file_id){status.st_dev, status.st_ino};
    return 0;
}

bool file_is(int fd, const struct file_id *id)
{
    struct file_id now;
    return fd >= 0 && file_identify(fd, &now) == 0 && now.device == id->device && now.inode == id->inode;
}

// A descriptor of the segment: by name, else the kept one. The caller closes it when it is not client->file.
static int reopen(void)
{
    int fd = open(client->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file_is(fd, &client->file_id))
        return fd;
    if (fd >= 0)
        close(fd);
    return file_is(client->file, &client->file_id) ? client->file : -1;
}

// Allocates [size, size + more) of the file, whose place is reserved. 0 or -errno.
static int grow(int fd, uint64_t more)
{
    if (client->size + more > client->reserved)
        return -ENOMEM;
    int error = posix_fallocate(fd, (off_t)client->size, (off_t)more);
    if (error)
        return -error;
    SL_TESTPOINT_(file_grown);
    if (!memory_open(client->segment, client->size, client->size + more))
        return -errno;
    sl_store_relaxed(&client->size, client->size + more);
    return 0;
}

// Maps as much of the file as it may ever have, closed. Pages are opened as it grows, so growing needs no further mapping, and all
// offsets are from one base.
static int map_all(int fd)
{
    for (uint64_t size = SL_SEGMENT_LIMIT; size >= 64 << 20; size /= 2) {
        void *place = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (place != MAP_FAILED) {
            madvise(place, size, MADV_DONTDUMP);
            client->segment = place;
            client->reserved = size;
            return 0;
        }
    }
    return -errno;
}

static int make_file(void)
{
    const struct facts *facts = facts_get();
    for (int attempt = 0; attempt < 8; attempt++) {
        int length = snprintf(client->path, sizeof client->path, "%s/" SL_NAME_PREFIX "%u.%u.%llu.%016llx", facts->shm_directory,
                              (unsigned)geteuid(), (unsigned)getpid(), (unsigned long long)facts_start_time(0),
                              (unsigned long long)random64());
        if (length < 0 || (size_t)length >= sizeof client->path)
            return -ENAMETOOLONG;
        int fd = open(client->path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
        SL_TESTPOINT_(file_made);
        if (fd >= 0)
            return fd;
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

int file_move_high(int fd)
{
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 512);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

static void describe(void)
{
    struct sl_segment *segment = client->segment;
    struct facts *facts = facts_get();
    segment->abi = SL_ABI_VERSION;
    segment->header_bytes = SL_HEADER_BYTES;
    segment->record_bytes = SL_RECORD_BYTES;
    segment->thread_row_bytes = sizeof(struct sl_thread_row);
    segment->task_row_bytes = sizeof(struct sl_task_row);
    uint64_t uuid[2] = {random64(), random64()};
    memcpy(segment->uuid, uuid, sizeof uuid);
    segment->pid = (uint32_t)getpid();
    segment->start_time = facts_start_time(0);
    bool forked = facts->recorded_pid && facts->recorded_pid != segment->pid;
    segment->parent_pid = forked ? facts->recorded_pid : (uint32_t)getppid();
    segment->parent_start_time = forked ? facts->recorded_start_time : facts_start_time(segment->parent_pid);
    facts->recorded_pid = segment->pid;
    facts->recorded_start_time = segment->start_time;
    segment->uid = geteuid();
    segment->clock = client->clock;
    segment->created_ticks = client_ticks();
    segment->created_monotonic_ns = facts_clock_ns(CLOCK_MONOTONIC);
    segment->created_realtime_ns = facts_clock_ns(CLOCK_REALTIME);
    segment->world_size = facts->world_size;
    segment->fork_depth = facts->fork_depth;
    segment->image = getauxval(AT_SYSINFO_EHDR);
    segment->rank = facts->rank;
    memcpy(segment->run_key, facts->run_key, sizeof segment->run_key);
    snprintf(segment->place, sizeof segment->place, "%s", facts->places[client->place]);
    segment->size = client->size;
    SL_TESTPOINT_(segment_described);
}

int segment_create(void)
{
    int fd = make_file();
    if (fd < 0)
        return fd;
    fd = file_move_high(fd);
    int result = file_identify(fd, &client->file_id);
    client->size = 0;
    if (result == 0)
        result = map_all(fd);
    if (result == 0)
        result = grow(fd, SL_HEADER_BYTES);
    if (result < 0) {
        unlink(client->path);
        close(fd);
        if (client->segment)
            munmap(client->segment, client->reserved);
        client->segment = NULL;
        return result;
    }
    client->file = fd;
    client->table = client->segment->table;
    client->table_used = 0;
    client->table_room = SL_TABLE_FIRST;
    describe();
    return 0;
}

// Writes an entry of the table and publishes it; the daemon's acquire load of `extents` sees the entry and the extent.
static void publish(enum sl_extent_kind kind, uint32_t first, uint32_t count, uint64_t offset, uint64_t size)
{
    struct sl_extent *entry = &client->table[client->table_used++];
    *entry = (struct sl_extent){.kind = kind, .first = first, .count = count, .offset = offset, .size = size};
    SL_TESTPOINT_(extent_written);
    sl_store_release(&client->segment->size, client->size);
    SL_TESTPOINT_(extent_sized);
    sl_store_release(&client->segment->extents, client->segment->extents + 1);
    SL_TESTPOINT_(extent_published);
}

uint64_t segment_extend(enum sl_extent_kind kind, uint32_t first, uint32_t count, uint64_t size)
{
    size = (size + SL_EXTENT_ALIGN - 1) & ~(uint64_t)(SL_EXTENT_ALIGN - 1);
    int fd = reopen();
    if (fd < 0)
        return 0;
    uint64_t offset = 0;
    bool table_full = client->table_used + 1 == client->table_room;
    if (!table_full || grow(fd, SL_TABLE_NEXT * sizeof(struct sl_extent)) == 0) {
        if (table_full) {
            uint64_t place = client->size - SL_TABLE_NEXT * sizeof(struct sl_extent);
            publish(SL_EXTENT_TABLE, 0, SL_TABLE_NEXT, place, SL_TABLE_NEXT * sizeof(struct sl_extent));
            client->table = AT(place);
            client->table_used = 0;
            client->table_room = SL_TABLE_NEXT;
            SL_TESTPOINT_(table_changed);
        }
        if (grow(fd, size) == 0) {
            offset = client->size - size;
            publish(kind, first, count, offset, size);
        }
    }
    if (fd != client->file)
        close(fd);
    return offset;
}

static uint64_t power_of_two_below(uint64_t value)
{
    return value ? UINT64_C(1) << (63 - __builtin_clzll(value)) : 0;
}

uint64_t segment_ring_bytes(void)
{
    uint64_t size = facts_get()->ring_bytes;
    for (uint32_t slots = 8; slots <= client->slot_count && size > SL_RING_BYTES_MIN; slots *= 2)
        size /= 2;
    struct statvfs space;
    if (statvfs(facts_get()->shm_directory, &space) == 0) {
        uint64_t free_bytes = (uint64_t)space.f_bavail * space.f_frsize;
        uint64_t share = power_of_two_below(free_bytes / 512);
        if (share < size)
            size = share;
    }
    return size < SL_RING_BYTES_MIN ? SL_RING_BYTES_MIN : size;
}
