// Trackers, the side that fills them: what threads and tasks tell, by the hooks of state.h, and the functions that start
// and stop it. All of it is cold: a thread looks at the client's epoch where it takes a cold path anyhow, a task's row says
// which epoch it has been told of, and steps are read from the row when somebody asks.
//
// install raises the epoch and takes the inline path away from every thread, so that its next call comes here.
#include "client/tracker.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "client/facts.h"

#define TEXTS_CHUNK_BYTES ((size_t)64 << 10)

// ---- memory

static bool array_reserve(struct array *array, size_t bytes)
{
    if (bytes <= array->bytes)
        return true;
    size_t larger = array->bytes ? array->bytes : 4096;
    while (larger < bytes)
        larger *= 2;
    void *items = array->items ? mremap(array->items, array->bytes, larger, MREMAP_MAYMOVE)
                               : mmap(NULL, larger, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (items == MAP_FAILED)
        return false;
    madvise(items, larger, MADV_DONTFORK);
    array->items = items;
    array->bytes = larger;
    return true;
}

static void *array_add(struct array *array, size_t item_bytes)
{
    if (!array_reserve(array, (array->count + 1) * item_bytes))
        return NULL;
    return (char *)array->items + array->count++ * item_bytes;
}

static void array_finish(struct array *array)
{
    if (array->items)
        munmap(array->items, array->bytes);
    *array = (struct array){0};
}

static bool map_put(struct map *map, uint64_t key, int64_t index)
{
    if (!array_reserve(&map->array, (key + 1) * sizeof(uint32_t)))
        return false;
    ((uint32_t *)map->array.items)[key] = (uint32_t)(index + 1);
    return true;
}

int64_t map_get(const struct map *map, uint64_t key)
{
    if (key >= map->array.bytes / sizeof(uint32_t))
        return -1;
    return (int64_t)((const uint32_t *)map->array.items)[key] - 1;
}

static char *texts_take(struct texts *texts, size_t bytes)
{
    if (bytes > texts->left) {
        size_t size = bytes + sizeof *texts->chunks > TEXTS_CHUNK_BYTES ? bytes + sizeof *texts->chunks : TEXTS_CHUNK_BYTES;
        struct texts_chunk *chunk = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED)
            return NULL;
        madvise(chunk, size, MADV_DONTFORK);
        *chunk = (struct texts_chunk){.next = texts->chunks, .bytes = size};
        texts->chunks = chunk;
        texts->next = (char *)(chunk + 1);
        texts->left = size - sizeof *chunk;
    }
    char *text = texts->next;
    texts->next += bytes;
    texts->left -= bytes;
    return text;
}

// Keeps a name that its row is about to lose.
static const char *keep_name(struct sl_tracker *tracker, const struct sl_name *name, uint32_t *length)
{
    char *text = texts_take(&tracker->texts, name->length);
    *length = text ? name->length : 0;
    if (text)
        name_read(name, text);
    return text;
}

static void texts_finish(struct texts *texts)
{
    while (texts->chunks) {
        struct texts_chunk *chunk = texts->chunks;
        texts->chunks = chunk->next;
        munmap(chunk, chunk->bytes);
    }
    *texts = (struct texts){0};
}

// ---- threads

static int64_t note_thread(struct sl_tracker *tracker, struct producer *self)
{
    int64_t index = map_get(&tracker->by_serial, self->serial);
    if (index < 0) {
        index = (int64_t)tracker->threads.count;
        struct thread_entry *entry = NULL;
        if (map_put(&tracker->by_serial, self->serial, index))
            entry = array_add(&tracker->threads, sizeof *entry);
        if (!entry) {
            if (map_get(&tracker->by_serial, self->serial) >= 0)
                map_put(&tracker->by_serial, self->serial, -1);
            return -ENOMEM;
        }
        *entry = (struct thread_entry){
            .ident = (int64_t)self->row->ident, .native_id = self->tid, .start_ns = facts_clock_ns(CLOCK_MONOTONIC)};
    }
    struct thread_entry *entry = tracker_thread_at(tracker, (uint64_t)index);
    entry->live = self;
    entry->end_ns = SL_UNKNOWN;
    if (!self->local)
        map_put(&tracker->by_index, self->index, index);
    return index;
}

void tracker_thread_seen(struct producer *self)
{
    for (struct sl_tracker *tracker = client->trackers; tracker; tracker = tracker->next)
        if (tracker->installed || map_get(&tracker->by_serial, self->serial) >= 0)
            note_thread(tracker, self);
}

void tracker_thread_ended(struct producer *self)
{
    for (struct sl_tracker *tracker = client->trackers; tracker; tracker = tracker->next) {
        int64_t index = map_get(&tracker->by_serial, self->serial);
        if (index < 0)
            continue;
        struct thread_entry *entry = tracker_thread_at(tracker, (uint64_t)index);
        entry->live = NULL;
        entry->daemon = (self->row->flags & SL_THREAD_DAEMON) != 0;
        entry->name = keep_name(tracker, &self->row->name, &entry->name_length);
        entry->cpu_ns = facts_clock_ns(CLOCK_THREAD_CPUTIME_ID);
        entry->end_ns = facts_clock_ns(CLOCK_MONOTONIC);
    }
}

// ---- tasks

static uint64_t unit_of(const struct sl_task_row *row)
{
    const char *base = task_is_local(row) ? client->local_tasks.base : (const char *)client->segment;
    return (uint64_t)((const char *)row - base) >> TASK_UNIT_BITS;
}

int64_t tracker_index_of_row(const struct sl_tracker *tracker, const struct sl_task_row *row)
{
    return map_get(&tracker->by_row[task_is_local(row)], unit_of(row));
}

static void note_task(struct sl_tracker *tracker, struct sl_task_row *row)
{
    struct map *map = &tracker->by_row[task_is_local(row)];
    uint64_t unit = unit_of(row);
    if (map_get(map, unit) >= 0 || !map_put(map, unit, -1))
        return;
    int64_t index = (int64_t)tracker->tasks.count;
    struct task_entry *entry = array_add(&tracker->tasks, sizeof *entry);
    if (!entry)
        return;
    *entry = (struct task_entry){.row = row};
    map_put(map, unit, index);
}

void tracker_task_seen(struct sl_task_row *row)
{
    for (struct sl_tracker *tracker = client->trackers; tracker; tracker = tracker->next)
        if (tracker->installed)
            note_task(tracker, row);
    sl_store_relaxed(&row->noted, client->epoch);
}

void tracker_task_ended(struct sl_task_row *row)
{
    struct moment now = {0};
    for (struct sl_tracker *tracker = client->trackers; tracker; tracker = tracker->next) {
        int64_t index = tracker_index_of_row(tracker, row);
        if (index < 0)
            continue;
        if (!now.ns)
            now = moment_now();
        struct task_entry *entry = tracker_task_at(tracker, (uint64_t)index);
        entry->times = task_times_of(row, &now);
        entry->kind = row->kind;
        entry->thread = task_thread_of(tracker, row);
        entry->name = keep_name(tracker, &row->name, &entry->name_length);
        entry->coro_name = keep_name(tracker, &row->coro_name, &entry->coro_name_length);
        entry->row = NULL;
        map_put(&tracker->by_row[task_is_local(row)], unit_of(row), -1);
    }
}

// ---- life

static void list(struct sl_tracker *tracker)
{
    tracker->state = TRACKER_LISTED;
    tracker->next = client->trackers;
    sl_store_relaxed(&client->trackers, tracker);
}

static void unlist(struct sl_tracker *tracker)
{
    if (client->trackers == tracker) {
        sl_store_relaxed(&client->trackers, tracker->next);
        return;
    }
    struct sl_tracker *before = client->trackers;
    while (before->next != tracker)
        before = before->next;
    before->next = tracker->next;
}

bool tracker_enter(sl_tracker_t tracker, struct guard *guard)
{
    if (!tracker || !client_begin())
        return false;
    client_lock(guard);
    if (tracker->state == TRACKER_NEW)
        list(tracker);
    if (tracker->state == TRACKER_LISTED)
        return true;
    client_unlock(guard);
    return false;
}

SL_PUBLIC sl_tracker_t sl_tracker_create(void)
{
    struct guard guard;
    if (!client_begin())
        return NULL;
    client_lock(&guard);
    struct sl_tracker *tracker = client->free_trackers;
    if (tracker)
        client->free_trackers = tracker->next;
    else
        tracker = memory_wiped(4096);
    if (tracker) {
        *tracker = (struct sl_tracker){0};
        list(tracker);
    }
    client_unlock(&guard);
    return tracker;
}

static void uninstall(struct sl_tracker *tracker)
{
    if (!tracker->installed)
        return;
    tracker->installed = 0;
    sl_store_relaxed(&client->trackers_installed, client->trackers_installed - 1);
    if (!client->trackers_installed && client->phase == CLIENT_LOCAL)
        client_idle_is_off(true);
}

// The struct's page is kept: a second destroy finds out there.
SL_PUBLIC void sl_tracker_destroy(sl_tracker_t tracker)
{
    struct guard guard;
    if (!tracker_enter(tracker, &guard))
        return;
    uninstall(tracker);
    unlist(tracker);
    array_finish(&tracker->threads);
    array_finish(&tracker->tasks);
    array_finish(&tracker->by_serial.array);
    array_finish(&tracker->by_index.array);
    array_finish(&tracker->by_row[0].array);
    array_finish(&tracker->by_row[1].array);
    texts_finish(&tracker->texts);
    tracker->state = TRACKER_DESTROYED;
    tracker->next = client->free_trackers;
    client->free_trackers = tracker;
    client_unlock(&guard);
}

SL_PUBLIC int sl_tracker_install(sl_tracker_t tracker)
{
    struct guard guard;
    if (!tracker_enter(tracker, &guard))
        return tracker ? -EINVAL : 0;
    if (!tracker->installed) {
        if (!client_start())
            local_begin();
        tracker->installed = 1;
        sl_store_relaxed(&client->trackers_installed, client->trackers_installed + 1);
        client_stir();
        client_idle_is_off(false);
    }
    client_unlock(&guard);
    return 0;
}

SL_PUBLIC int sl_tracker_uninstall(sl_tracker_t tracker)
{
    struct guard guard;
    if (!tracker_enter(tracker, &guard))
        return tracker ? -EINVAL : 0;
    uninstall(tracker);
    client_unlock(&guard);
    return 0;
}

SL_PUBLIC int sl_tracker_is_installed(sl_tracker_t tracker)
{
    struct guard guard;
    if (!tracker_enter(tracker, &guard))
        return 0;
    int installed = tracker->installed != 0;
    client_unlock(&guard);
    return installed;
}

SL_PUBLIC int64_t sl_tracker_current_thread(sl_tracker_t tracker)
{
    struct guard guard;
    if (!tracker_enter(tracker, &guard))
        return -EINVAL;
    if (!client_start())
        local_begin();
    struct producer *self = thread_register();
    int64_t index = self ? note_thread(tracker, self) : -ENOMEM;
    client_unlock(&guard);
    return index;
}

SL_PUBLIC int64_t sl_tracker_task_index(sl_tracker_t tracker, sl_task_t task)
{
    struct guard guard;
    if (!tracker_enter(tracker, &guard))
        return SL_NO_TASK;
    const struct sl_task_row *row = task ? task_row(task) : NULL;
    int64_t index = row ? tracker_index_of_row(tracker, row) : SL_NO_TASK;
    client_unlock(&guard);
    return index;
}
