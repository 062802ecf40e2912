// Trackers, the side that reads them: records and columns in one block for the caller. malloc is not called under the lock,
// so the texts are measured, the block is made, and then filled; should a name have grown meanwhile, once more. The lock is
// let go every so many rows.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/facts.h"
#include "client/tracker.h"

#define RATE_AFTER_NS  100000000
#define RATE_TOLERANCE 1e-3

enum { THREADS_AT_ONCE = 32, TASKS_AT_ONCE = 512, SEQ_TRIES = 64, COMM_BYTES = 64 };

// ---- times

// The rate since the client's start is what converts long times best. Where the machine was suspended meanwhile it is no
// rate at all, but then it differs from the one that was found when the first tenth of a second had passed.
struct moment moment_now(void)
{
    struct moment now = {.ns_per_tick = 1};
    client_anchor(&now.ticks, &now.ns);
    int64_t ns = now.ns - client->anchor_ns;
    if (client->clock == SL_CLOCK_MONOTONIC || ns <= 0)
        return now;
    now.ns_per_tick = (double)ns / (double)(int64_t)(now.ticks - client->anchor_ticks);
    if (!client->ns_per_tick && ns > RATE_AFTER_NS)
        client->ns_per_tick = now.ns_per_tick;
    double ratio = client->ns_per_tick ? now.ns_per_tick / client->ns_per_tick : 1;
    if (!(ratio > 1 - RATE_TOLERANCE && ratio < 1 + RATE_TOLERANCE))
        now.ns_per_tick = client->ns_per_tick;
    return now;
}

static int64_t length_ns(const struct moment *now, uint64_t ticks)
{
    return now->ns_per_tick == 1 ? (int64_t)ticks : (int64_t)((double)ticks * now->ns_per_tick + 0.5);
}

static int64_t time_ns(const struct moment *now, uint64_t ticks)
{
    return ticks > now->ticks ? now->ns + length_ns(now, ticks - now->ticks) : now->ns - length_ns(now, now->ticks - ticks);
}

// The step fields of a lane, agreeing with one another.
struct steps {
    uint64_t steps, running, suspended, started, ended;
    uint32_t stepping, thread;
};

static struct steps read_steps(const struct sl_lane *lane)
{
    struct steps steps;
    uint32_t before, after;
    int tries = 0;
    do {
        before = sl_load_acquire(&lane->seq);  // pairs with end_write
        steps = (struct steps){sl_load_relaxed(&lane->steps),         sl_load_relaxed(&lane->running),
                               sl_load_relaxed(&lane->suspended),     sl_load_relaxed(&lane->step_started),
                               sl_load_relaxed(&lane->last_step_end), sl_load_relaxed(&lane->stepping),
                               sl_load_relaxed(&lane->thread)};
        sl_fence_acquire();
        after = sl_load_relaxed(&lane->seq);
    } while ((before != after || before % 2) && ++tries < SEQ_TRIES);
    return steps;
}

// What is in progress counts up to now, unless the task has ended.
struct task_times task_times_of(const struct sl_task_row *row, const struct moment *now)
{
    struct steps steps = read_steps(&row->lane);
    uint64_t done = sl_load_acquire(&row->done);  // after it was marked finished
    bool ended = done && !steps.stepping;
    bool is_running = steps.stepping && !(steps.stepping & TASK_PAUSED);
    uint64_t since = is_running ? steps.started : steps.ended;
    uint64_t progress = ended || !steps.steps || now->ticks < since ? 0 : now->ticks - since;
    *(is_running ? &steps.running : &steps.suspended) += progress;
    return (struct task_times){
        .created_ns = time_ns(now, row->created),
        .done_ns = ended ? time_ns(now, done) : SL_UNKNOWN,
        .steps = (int64_t)steps.steps,
        .running_ns = length_ns(now, steps.running),
        .suspended_ns = length_ns(now, steps.suspended),
        .step_started_ns = steps.started ? time_ns(now, steps.started) : 0,
        .last_step_end_ns = steps.ended ? time_ns(now, steps.ended) : 0,
        .is_running = is_running,
    };
}

int32_t task_thread_of(const struct sl_tracker *tracker, const struct sl_task_row *row)
{
    const struct map *map = task_is_local(row) ? &tracker->by_serial : &tracker->by_index;
    return (int32_t)map_get(map, sl_load_relaxed(&row->lane.thread));
}

// ---- texts, at the end of a block

struct texts_room {
    char *next;
    size_t left;
    bool full;
};

static const char *put_text(struct texts_room *room, const char *text, size_t length)
{
    if (length >= room->left) {
        room->full = true;
        return "";
    }
    char *place = room->next;
    if (length)
        memcpy(place, text, length);
    place[length] = 0;
    room->next += length + 1;
    room->left -= length + 1;
    return place;
}

static const char *put_name(struct texts_room *room, const struct sl_name *name)
{
    if (name->length >= room->left) {
        room->full = true;
        return "";
    }
    char *place = room->next;
    name_read(name, place);
    place[name->length] = 0;
    room->next += name->length + 1;
    room->left -= name->length + 1;
    return place;
}

// ---- rows

static int64_t cpu_ns_of(struct thread_entry *entry)
{
    if (!entry->live)
        return entry->cpu_ns;
    struct timespec time;
    clockid_t clock = (clockid_t)(~(uint32_t)entry->native_id << 3 | 6);  // the kernel's way to name a thread's, by its tid
    if (clock_gettime(clock, &time) == 0) {
        int64_t cpu_ns = time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
        entry->cpu_ns = cpu_ns > entry->cpu_ns ? cpu_ns : entry->cpu_ns;
    }
    return entry->cpu_ns;
}

// A name that the kernel was told and we were not (pthread_setname_np).
static void look_at_comm(const struct thread_entry *entry)
{
    struct sl_thread_row *row = entry->live->row;
    char path[48], comm[COMM_BYTES];
    if (row->flags & SL_THREAD_NAMED)
        return;
    snprintf(path, sizeof path, "/proc/self/task/%lld/comm", (long long)entry->native_id);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, comm, sizeof comm - 1) : 0;
    if (fd >= 0)
        close(fd);
    if (length > 0) {
        comm[comm[length - 1] == '\n' ? length - 1 : length] = 0;
        thread_store_comm(row, comm);
    }
}

static int64_t current_task_of(const struct sl_tracker *tracker, const struct thread_entry *entry)
{
    uint64_t task = entry->live ? sl_load_relaxed(&entry->live->task) : 0;
    const struct sl_task_row *row = task ? task_row(task) : NULL;
    return row ? tracker_index_of_row(tracker, row) : SL_NO_TASK;
}

static struct sl_thread_record thread_record(const struct sl_tracker *tracker, uint64_t index, struct texts_room *room)
{
    struct thread_entry *entry = tracker_thread_at(tracker, index);
    if (entry->live)
        look_at_comm(entry);
    return (struct sl_thread_record){
        .index = (int64_t)index,
        .ident = entry->ident,
        .native_id = entry->native_id,
        .name = entry->live ? put_name(room, &entry->live->row->name) : put_text(room, entry->name, entry->name_length),
        .daemon = entry->live ? (entry->live->row->flags & SL_THREAD_DAEMON) != 0 : entry->daemon,
        .start_ns = entry->start_ns,
        .end_ns = entry->end_ns,
        .cpu_ns = cpu_ns_of(entry),
        .task_index = current_task_of(tracker, entry),
    };
}

static struct sl_task_record task_record(const struct sl_tracker *tracker, uint64_t index, const struct moment *now,
                                         struct texts_room *room)
{
    const struct task_entry *entry = tracker_task_at(tracker, index);
    const struct sl_task_row *row = entry->row;
    struct task_times times = row ? task_times_of(row, now) : entry->times;
    return (struct sl_task_record){
        .index = (int64_t)index,
        .kind = word_text(row ? row->kind : entry->kind),
        .name = row ? put_name(room, &row->name) : put_text(room, entry->name, entry->name_length),
        .coro_name = row ? put_name(room, &row->coro_name) : put_text(room, entry->coro_name, entry->coro_name_length),
        .thread_index = row ? task_thread_of(tracker, row) : entry->thread,
        .created_ns = times.created_ns,
        .done_ns = times.done_ns,
        .steps = times.steps,
        .running_ns = times.running_ns,
        .suspended_ns = times.suspended_ns,
        .step_started_ns = times.step_started_ns,
        .last_step_end_ns = times.last_step_end_ns,
        .is_running = times.is_running,
    };
}

// ---- ranges of rows

struct range {
    uint64_t first, count;
};

// The range, cut to what is there, and the bytes its texts take. False when the tracker has gone.
static bool measure_threads(sl_tracker_t tracker, struct range *range, size_t *bytes)
{
    struct guard guard;
    if (!tracker_enter(tracker, &guard))
        return false;
    uint64_t there = tracker->threads.count > range->first ? tracker->threads.count - range->first : 0;
    range->count = range->count < there ? range->count : there;
    for (uint64_t i = 0; i < range->count; i++) {
        const struct thread_entry *entry = tracker_thread_at(tracker, range->first + i);
        *bytes += entry->live ? entry->live->row->name.length + COMM_BYTES : entry->name_length + 1;
    }
    client_unlock(&guard);
    return true;
}

static bool measure_tasks(sl_tracker_t tracker, struct range *range, size_t *bytes)
{
    struct guard guard;
    if (!tracker_enter(tracker, &guard))
        return false;
    uint64_t there = tracker->tasks.count > range->first ? tracker->tasks.count - range->first : 0;
    range->count = range->count < there ? range->count : there;
    for (uint64_t i = 0; i < range->count; i++) {
        const struct task_entry *entry = tracker_task_at(tracker, range->first + i);
        *bytes += entry->row ? entry->row->name.length + entry->row->coro_name.length + 2
                             : entry->name_length + entry->coro_name_length + 2;
    }
    client_unlock(&guard);
    return true;
}

typedef void (*take_thread)(void *into, size_t i, const struct sl_thread_record *record);
typedef void (*take_task)(void *into, size_t i, const struct sl_task_record *record);

static bool fill_threads(sl_tracker_t tracker, struct range range, struct texts_room *room, take_thread take, void *into)
{
    for (uint64_t i = 0; i < range.count;) {
        struct guard guard;
        if (!tracker_enter(tracker, &guard))
            return false;
        for (uint64_t end = i + THREADS_AT_ONCE; i < range.count && i < end; i++) {
            struct sl_thread_record record = thread_record(tracker, range.first + i, room);
            take(into, i, &record);
        }
        client_unlock(&guard);
    }
    return true;
}

static bool fill_tasks(sl_tracker_t tracker, struct range range, struct texts_room *room, take_task take, void *into)
{
    for (uint64_t i = 0; i < range.count;) {
        struct guard guard;
        if (!tracker_enter(tracker, &guard))
            return false;
        struct moment now = moment_now();
        for (uint64_t end = i + TASKS_AT_ONCE; i < range.count && i < end; i++) {
            struct sl_task_record record = task_record(tracker, range.first + i, &now, room);
            take(into, i, &record);
        }
        client_unlock(&guard);
    }
    return true;
}

static void *take_memory(size_t bytes)
{
    int saved = errno;
    void *memory = malloc(bytes ? bytes : 1);
    errno = saved;
    return memory;
}

// ---- records

static void take_thread_row(void *into, size_t i, const struct sl_thread_record *record)
{
    ((struct sl_thread_record *)into)[i] = *record;
}

static void take_task_row(void *into, size_t i, const struct sl_task_record *record)
{
    ((struct sl_task_record *)into)[i] = *record;
}

static struct sl_thread_record *read_threads(sl_tracker_t tracker, struct range range, size_t *count)
{
    for (;;) {
        size_t texts = 0;
        if (!measure_threads(tracker, &range, &texts))
            return NULL;
        struct sl_thread_record *rows = take_memory(range.count * sizeof *rows + texts);
        struct texts_room room = {(char *)(rows + range.count), texts, false};
        *count = range.count;
        bool there = rows && fill_threads(tracker, range, &room, take_thread_row, rows);
        if (there && !room.full)
            return rows;
        free(rows);
        if (!there)
            return NULL;
    }
}

static struct sl_task_record *read_tasks(sl_tracker_t tracker, struct range range, size_t *count)
{
    for (;;) {
        size_t texts = 0;
        if (!measure_tasks(tracker, &range, &texts))
            return NULL;
        struct sl_task_record *rows = take_memory(range.count * sizeof *rows + texts);
        struct texts_room room = {(char *)(rows + range.count), texts, false};
        *count = range.count;
        bool there = rows && fill_tasks(tracker, range, &room, take_task_row, rows);
        if (there && !room.full)
            return rows;
        free(rows);
        if (!there)
            return NULL;
    }
}

SL_PUBLIC struct sl_thread_record *sl_tracker_threads(sl_tracker_t tracker, size_t *count)
{
    *count = 0;
    return read_threads(tracker, (struct range){0, UINT64_MAX}, count);
}

SL_PUBLIC struct sl_task_record *sl_tracker_tasks(sl_tracker_t tracker, size_t *count)
{
    *count = 0;
    return read_tasks(tracker, (struct range){0, UINT64_MAX}, count);
}

SL_PUBLIC struct sl_thread_record *sl_tracker_thread(sl_tracker_t tracker, int64_t index)
{
    size_t count = 0;
    struct sl_thread_record *row = index < 0 ? NULL : read_threads(tracker, (struct range){(uint64_t)index, 1}, &count);
    if (count)
        return row;
    free(row);
    return NULL;
}

SL_PUBLIC struct sl_task_record *sl_tracker_task(sl_tracker_t tracker, int64_t index)
{
    size_t count = 0;
    struct sl_task_record *row = index < 0 ? NULL : read_tasks(tracker, (struct range){(uint64_t)index, 1}, &count);
    if (count)
        return row;
    free(row);
    return NULL;
}

// ---- columns

struct shifted {
    struct sl_snapshot *snapshot;
    int64_t origin_ns;
};

static int64_t shift(int64_t time_ns, int64_t origin_ns)
{
    return time_ns == SL_UNKNOWN ? SL_UNKNOWN : time_ns - origin_ns;
}

static void take_thread_columns(void *into, size_t i, const struct sl_thread_record *record)
{
    const struct shifted *to = into;
    struct sl_thread_columns *columns = &to->snapshot->threads;
    columns->index[i] = record->index;
    columns->ident[i] = record->ident;
    columns->native_id[i] = record->native_id;
    columns->name[i] = record->name;
    columns->daemon[i] = (int8_t)record->daemon;
    columns->start_ns[i] = shift(record->start_ns, to->origin_ns);
    columns->end_ns[i] = shift(record->end_ns, to->origin_ns);
    columns->cpu_ns[i] = record->cpu_ns;
}

static void take_task_columns(void *into, size_t i, const struct sl_task_record *record)
{
    const struct shifted *to = into;
    struct sl_task_columns *columns = &to->snapshot->tasks;
    columns->index[i] = record->index;
    columns->kind[i] = record->kind;
    columns->name[i] = record->name;
    columns->coro_name[i] = record->coro_name;
    columns->thread_index[i] = record->thread_index;
    columns->created_ns[i] = shift(record->created_ns, to->origin_ns);
    columns->done_ns[i] = shift(record->done_ns, to->origin_ns);
    columns->steps[i] = record->steps;
    columns->running_ns[i] = record->running_ns;
    columns->suspended_ns[i] = record->suspended_ns;
}

#define THREAD_ROW_BYTES (7 * sizeof(int64_t) + sizeof(int8_t))
#define TASK_ROW_BYTES   (10 * sizeof(int64_t))

// Lays the columns out behind the struct, the widest first. What follows them is for texts.
static char *lay_out(struct sl_snapshot *snapshot, size_t threads, size_t tasks)
{
    int64_t *next = (int64_t *)(void *)(snapshot + 1);
    struct sl_thread_columns *t = &snapshot->threads;
    struct sl_task_columns *k = &snapshot->tasks;
    int64_t **numbers[] = {&t->index,  &t->ident,      &t->native_id,    &t->start_ns,   &t->end_ns,
                           &t->cpu_ns, &k->index,      &k->thread_index, &k->created_ns, &k->done_ns,
                           &k->steps,  &k->running_ns, &k->suspended_ns};
    const char ***texts[] = {&t->name, &k->kind, &k->name, &k->coro_name};
    t->count = threads;
    k->count = tasks;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        *numbers[i] = next;
        next += i < 6 ? threads : tasks;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i] = (const char **)(void *)next;
        next += i < 1 ? threads : tasks;
    }
    t->daemon = (int8_t *)next;
    return (char *)next + threads;
}

SL_PUBLIC struct sl_snapshot *sl_tracker_snapshot(sl_tracker_t tracker, int64_t origin_ns)
{
    for (;;) {
        struct range threads = {0, UINT64_MAX}, tasks = {0, UINT64_MAX};
        size_t texts = 0;
        if (!measure_threads(tracker, &threads, &texts) || !measure_tasks(tracker, &tasks, &texts))
            return NULL;
        struct sl_snapshot *snapshot =
            take_memory(sizeof *snapshot + threads.count * THREAD_ROW_BYTES + tasks.count * TASK_ROW_BYTES + texts);
        if (!snapshot)
            return NULL;
        struct texts_room room = {lay_out(snapshot, threads.count, tasks.count), texts, false};
        struct shifted into = {snapshot, origin_ns};
        bool there = fill_threads(tracker, threads, &room, take_thread_columns, &into) &&
                     fill_tasks(tracker, tasks, &room, take_task_columns, &into);
        if (there && !room.full)
            return snapshot;
        free(snapshot);
        if (!there)
            return NULL;
    }
}
