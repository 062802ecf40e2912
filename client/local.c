// Without a segment: threads and tasks that only trackers follow, because no daemon is there, or because the segment has no
// row left for a task. Nothing here is seen by a daemon. Everything runs under the client's lock.
#include <sys/mman.h>

#include "client/state.h"

#define OPENED_AT_ONCE (1 << 20)  // bytes of rows

bool local_begin(void)
{
    if (client->phase == CLIENT_RECORDING || client->phase == CLIENT_LOCAL)
        return true;
    client_live();
    sl_store_release(&client->phase, CLIENT_LOCAL);
    return true;
}

// Room for as many rows as a handle can name, or for as many as the process may have.
static bool reserve(struct local_tasks *tasks)
{
    for (uint64_t size = SL_SEGMENT_LIMIT; size >= OPENED_AT_ONCE; size /= 2) {
        void *place = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (place == MAP_FAILED)
            continue;
        madvise(place, size, MADV_DONTFORK);
        madvise(place, size, MADV_DONTDUMP);
        sl_store_relaxed(&tasks->base, place);
        tasks->reserved = size;
        return true;
    }
    return false;
}

struct sl_task_row *local_task_take(void)
{
    struct local_tasks *tasks = &client->local_tasks;
    struct sl_task_row *row;
    if (tasks->free) {
        row = (struct sl_task_row *)(void *)(tasks->base + tasks->free - 1);
        tasks->free = row->created;
    } else {
        if (!tasks->base && !reserve(tasks))
            return NULL;
        if (tasks->size + LOCAL_TASK_BYTES > tasks->opened) {
            if (tasks->opened == tasks->reserved || !memory_open(tasks->base, tasks->opened, tasks->opened + OPENED_AT_ONCE))
                return NULL;
            tasks->opened += OPENED_AT_ONCE;
        }
        row = (struct sl_task_row *)(void *)(tasks->base + tasks->size);
        sl_store_release(&tasks->size, tasks->size + LOCAL_TASK_BYTES);
    }
    row->index = tasks->count++;
    return row;
}

void local_task_give(struct sl_task_row *row)
{
    struct local_tasks *tasks = &client->local_tasks;
    name_drop(&row->name);
    name_drop(&row->coro_name);
    sl_store_release(&row->state, SL_ROW_FREE);
    row->created = tasks->free;
    tasks->free = 1 + (uint64_t)((char *)row - tasks->base);
}
