#include "services/step-sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "core/drain.h"
#include "services/query-rows.h"

enum {
    BATCH_RECORDS = 512,
    RINGS_PART = 1 << 24,  // from here on the process's rings, a part each: before it come its tasks, whose records are there by then
};

static const char other_kinds[] = "(other)";

static struct steps_now *now_of(struct steps_now now[STEPS_KINDS], struct model_process *process, uint32_t kind)
{
    return &now[steps_of(&process->steps, kind) - process->steps.of];
}

static void look_at_task(struct steps_now now[STEPS_KINDS], const struct page *page, struct run *run, struct model_process *process,
                         const struct client *client, const struct model_task *task)
{
    struct task_facts facts = task->facts;
    struct steps_now *sum = now_of(now, process, facts.kind);
    bool in_progress = task_steps_now(client, task, &facts) && task_is_stepping(&facts);
    int64_t so_far_ns = in_progress ? row_ago(page, run, process, facts.step_started) : 0;
    sum->steps += facts.steps - in_progress;
    sum->running += facts.running;
    sum->longest = facts.longest_step > sum->longest ? facts.longest_step : sum->longest;
    sum->in_progress_ns = so_far_ns > sum->in_progress_ns ? so_far_ns : sum->in_progress_ns;
}

static void look_at_tasks(struct steps_now now[STEPS_KINDS], const struct page *page, struct run *run, struct model_process *process,
                          const struct client *client, uint32_t chunk)
{
    for (uint32_t i = 0; process->tasks[chunk] && i < MODEL_TASK_CHUNK; i++)
        if (process->tasks[chunk][i])
            look_at_task(now, page, run, process, client, process->tasks[chunk][i]);
}

// Rows are read as they are now, so records that still wait in their rings count too.
static void look_at_ring(const struct run *run, struct model_process *process, const struct client *client, uint32_t slot_number)
{
    static struct sl_record records[BATCH_RECORDS];
    const struct model_slot *slot = model_slot(process, slot_number);
    uint64_t from = slot->steps_next > slot->next ? slot->steps_next : slot->next;
    for (int64_t waiting = drain_waiting(&client->segment, slot_number, from); waiting > 0;) {
        uint32_t count = drain_take(&client->segment, slot_number, from, (uint64_t)waiting, records, BATCH_RECORDS);
        model_steps_ahead(&run->model, process, slot_number, from, records, count);
        from += count;
        waiting -= count;
    }
}

// A row and the record of its latest step are not read at one moment, and those who work out rates take a count that falls for a new
// beginning.
static void tell(struct steps *steps, const struct steps_now *now)
{
    uint64_t total = steps->gone + now->steps, slow = steps->over[0];
    total = total > slow ? total : slow;
    for (int edge = 0; edge < STEPS_EDGES; edge++) {
        uint64_t under = total - steps->over[edge];
        steps->told_under[edge] = under > steps->told_under[edge] ? under : steps->told_under[edge];
    }
    steps->told = total > steps->told ? total : steps->told;
}

// Kinds are words of the program's: as with those of one process, the last place is for all that find none.
static struct step_sum *sum_of(struct step_sums *sums, const char *kind)
{
    for (uint32_t i = 0; i < sums->count; i++)
        if (strcmp(sums->of[i].kind, kind) == 0)
            return &sums->of[i];
    if (sums->count >= STEPS_KINDS - 1 && kind != other_kinds)
        return sum_of(sums, other_kinds);
    sums->of[sums->count] = (struct step_sum){.kind = alloc_text(kind)};
    return &sums->of[sums->count++];
}

static void add(struct step_sum *sum, const struct run *run, const struct model_process *process, const struct steps *steps,
                const struct steps_now *now)
{
    uint64_t longest = now->longest > steps->gone_longest ? now->longest : steps->gone_longest;
    int64_t longest_ns = model_length_ns(&run->model, process, longest);
    longest_ns = now->in_progress_ns > longest_ns ? now->in_progress_ns : longest_ns;
    sum->longest_ns = longest_ns > sum->longest_ns ? longest_ns : sum->longest_ns;
    sum->running_ns += model_length_ns(&run->model, process, steps->gone_running + now->running);
    sum->steps += steps->told;
    for (int edge = 0; edge < STEPS_EDGES; edge++)
        sum->under[edge] += steps->told_under[edge];
}

bool step_sums_add_part(struct step_sums *sums, struct page *page, struct run *run, struct model_process *process, uint32_t *part)
{
    const struct client *client = page_client_of(page, process);
    if (!process->uses_tasks)
        return false;
    if (*part < process->task_chunks) {
        look_at_tasks(sums->now, page, run, process, client, (*part)++);
        return true;
    }
    if (*part < RINGS_PART)
        *part = RINGS_PART;
    if (client && !client->broken && *part - RINGS_PART < client->segment.slot_count) {
        look_at_ring(run, process, client, (*part)++ - RINGS_PART);
        return true;
    }
    for (uint32_t i = 0; i < process->steps.count; i++) {
        struct steps *steps = &process->steps.of[i];
        const char *kind = steps->kind == STEPS_KIND_OTHER ? other_kinds : model_word(process, steps->kind);
        tell(steps, &sums->now[i]);
        add(sum_of(sums, kind), run, process, steps, &sums->now[i]);
    }
    memset(sums->now, 0, sizeof sums->now);
    return false;
}

void step_sums_finish(struct step_sums *sums)
{
    for (uint32_t i = 0; i < sums->count; i++)
        free(sums->of[i].kind);
    *sums = (struct step_sums){.count = 0};
}
