#include "core/unmatched.h"

#include <stdlib.h>

#include "base/alloc.h"

enum { GROUPS_LIMIT = 256 };

void unmatched_count(struct model_process *process, uint32_t thread, const struct sl_record *record)
{
    uint32_t region = sl_record_region(record), task = sl_record_task(record), count = process->unmatched_count;
    struct model_unmatched *unmatched = NULL;
    for (uint32_t i = count; i-- > 0 && !unmatched;)  // the newest first: they repeat
        if (process->unmatched[i].region == region && process->unmatched[i].task == task && process->unmatched[i].thread == thread)
            unmatched = &process->unmatched[i];
    if (!unmatched && count == GROUPS_LIMIT) {
        process->unmatched_others++;
        return;
    }
    if (!unmatched) {
        process->unmatched = alloc_resize(process->unmatched, count + 1, sizeof *process->unmatched);
        unmatched = &process->unmatched[process->unmatched_count++];
        *unmatched = (struct model_unmatched){.task = task, .thread = thread, .region = region, .first = sl_record_start(record)};
    }
    unmatched->count++;
    unmatched->last = sl_record_start(record);
}

// May this open call be the one whose exit went astray?
static bool may_be(const struct open_facts *open, const struct model_unmatched *unmatched)
{
    bool same_lane = open->task == unmatched->task && (open->task != SL_TASK_NONE || open->thread == unmatched->thread);
    return open->region == unmatched->region && !same_lane && open->start <= unmatched->last;
}

static void look_through(const struct open_facts *list, uint32_t count, const struct model_unmatched *unmatched,
                         const struct open_facts **best, uint32_t *candidates)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!may_be(&list[i], unmatched))
            continue;
        ++*candidates;
        if (!*best || list[i].start > (*best)->start)
            *best = &list[i];
    }
}

const struct open_facts *unmatched_open(const struct model_process *process, const struct model_unmatched *unmatched, uint32_t *candidates)
{
    const struct open_facts *best = NULL;
    *candidates = 0;
    look_through(process->open, process->open_count, unmatched, &best, candidates);
    look_through(process->ended_open, process->ended_open_count, unmatched, &best, candidates);
    return best;
}

uint32_t unmatched_entered_by(const struct model_process *process, const struct open_facts *open)
{
    const struct model_task *task = open->task == SL_TASK_NONE ? NULL : model_task(process, open->task);
    return task ? task->facts.thread : open->thread;
}

static char *thread_words(const struct model_process *process, uint32_t thread)
{
    const struct model_thread *known = model_find_thread(process, thread);
    if (known && known->name)
        return alloc_printf("thread %u (%s)", thread, known->name);
    return thread == FACTS_NO_THREAD ? alloc_text("an unknown thread") : alloc_printf("thread %u", thread);
}

// A lane, and the thread that ran it.
static char *lane_words(const struct model_process *process, uint32_t thread, uint32_t task)
{
    char *on = thread_words(process, thread);
    if (task == SL_TASK_NONE)
        return on;
    const struct model_task *known = model_task(process, task);
    char *words = known ? alloc_printf("task %u (%s) on %s", task, known->name, on) : alloc_printf("task %u on %s", task, on);
    free(on);
    return words;
}

char *unmatched_words(const struct model *model, struct model_process *process, const struct model_unmatched *unmatched)
{
    const char *region = model_region_name(model, model_region(process, unmatched->region));
    uint32_t candidates;
    const struct open_facts *open = unmatched_open(process, unmatched, &candidates);
    char *left = lane_words(process, unmatched->thread, unmatched->task), *words;
    char *entered = open ? lane_words(process, unmatched_entered_by(process, open), open->task) : NULL;
    if (!open)
        words = alloc_printf("\"%s\" was left on %s, but is open on no lane", region, left);
    else if (candidates == 1)
        words = alloc_printf("\"%s\" was left on %s, but entered on %s", region, left, entered);
    else
        words = alloc_printf("\"%s\" was left on %s, but is open on %u other lanes, entered last on %s", region, left, candidates, entered);
    free(left);
    free(entered);
    return words;
}
