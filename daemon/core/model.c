#include "core/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/utf8.h"
#include "core/unmatched.h"

enum { CHUNK = MODEL_TASK_CHUNK, THREADS_LIMIT = 1 << 22, SLOTS_LIMIT = 1 << 20, OPEN_LIMIT = 1 << 20, PAUSE_LIMIT = 1 << 12,
       RANK_LIMIT = 1 << 16, FOLD_LOOKS = 4096 };

void model_init(struct model *model, uint32_t clock_kind, size_t anchors_kept, uint32_t tasks_kept)
{
    *model = (struct model){.clock_kind = clock_kind, .tasks_kept = tasks_kept};
    ticks_init(&model->clock, anchors_kept);
}

static void task_free(struct model_task *task)
{
    if (!task)
        return;
    free(task->name);
    free(task->coro_name);
    free(task);
}

static void threads_free(struct model_threads *threads)
{
    for (uint32_t i = 0; threads && i < MODEL_THREAD_CHUNK; i++)
        free(threads->thread[i].name);
    free(threads);
}

static void process_free(struct model_process *process)
{
    for (uint32_t i = 0; i < process->region_count; i++) {
        free(process->regions[i].file);
        histogram_finish(&process->regions[i].lengths);
    }
    histogram_finish(&process->other.lengths);
    for (uint32_t i = 0; i < process->word_count; i++)
        free(process->words[i]);
    for (uint32_t chunk = 0; chunk < process->thread_chunks; chunk++)
        threads_free(process->threads[chunk]);
    for (uint32_t chunk = 0; chunk < process->task_chunks; chunk++) {
        for (uint32_t i = 0; process->tasks[chunk] && i < CHUNK; i++)
            task_free(process->tasks[chunk][i]);
        free(process->tasks[chunk]);
    }
    free(process->regions);
    free(process->words);
    free(process->threads);
    free(process->living);
    free(process->tasks);
    free(process->slots);
    free(process->open);
    free(process->ended_open);
    free(process->unmatched);
    free(process->pauses);
    free(process->paces);
    steps_finish(&process->steps);
    free(process->host);
    free(process->program);
    free(process->directory);
    free(process->command);
    free(process);
}

void model_finish(struct model *model)
{
    for (uint32_t i = 0; i < model->process_count; i++)
        process_free(model->processes[i]);
    for (uint32_t i = 0; i < model->name_count; i++)
        free(model->names[i].text);
    free(model->processes);
    free(model->names);
    free(model->name_places);
    ticks_finish(&model->clock);
    *model = (struct model){0};
}

// Room for element `index` in a zeroed array that doubles. The index may be a hostile client's: what lies between is never touched, so
// it costs addresses and no memory.
static void *room_for(void *array, uint32_t *count, uint32_t index, size_t size)
{
    if (index < *count)
        return array;
    uint32_t larger = *count ? *count : 8;
    while (larger <= index)
        larger *= 2;
    void *made = alloc_zeroed(larger, size);
    if (*count)
        memcpy(made, array, *count * size);
    free(array);
    *count = larger;
    return made;
}

// ---- processes

struct model_process *model_add_process(struct model *model, const struct process_facts *facts)
{
    struct model_process *process = alloc_zeroed(1, sizeof *process);
    process->facts = *facts;
    process->status.rank = facts->rank;
    process->status.end_ns = SL_UNKNOWN;
    process->number = model->process_count;
    process->file_rank = -1;
    process->threads_kept = model->tasks_kept;
    process->keeps_lengths = model->octaves_kept > 0;
    process->octaves_left = model->octaves_kept;
    process->other.name = model_intern(model, "(other)", 7);
    process->other.minimum = UINT64_MAX;
    model->processes = alloc_resize(model->processes, model->process_count + 1, sizeof *model->processes);
    model->processes[model->process_count++] = process;
    return process;
}

void model_set_status(struct model_process *process, const struct process_status *status)
{
    process->status = *status;
    if (status->state > PROCESS_EXEC)
        process->status.state = PROCESS_VANISHED;
}

// ---- names

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

static uint32_t *place_of(const struct model *model, const char *text, size_t length)
{
    for (uint64_t i = hash_of(text, length) & model->name_mask;; i = (i + 1) & model->name_mask) {
        uint32_t *place = &model->name_places[i];
        if (!*place)
            return place;
        const struct model_name *name = &model->names[*place - 1];
        if (name->length == length && memcmp(name->text, text, length) == 0)
            return place;
    }
}

static void rehash(struct model *model)
{
    model->name_mask = model->name_mask ? model->name_mask * 2 + 1 : 127;
    free(model->name_places);
    model->name_places = alloc_zeroed(model->name_mask + 1, sizeof *model->name_places);
    for (uint32_t i = 0; i < model->name_count; i++)
        *place_of(model, model->names[i].text, model->names[i].length) = i + 1;
}

uint32_t model_intern(struct model *model, const char *text, size_t length)
{
    if (model->name_count * 2 >= model->name_mask)
        rehash(model);
    uint32_t *place = place_of(model, text, length);
    if (*place)
        return *place - 1;
    char *copy = alloc_zeroed(length + 1, 1);
    memcpy(copy, text, length);
    model->names = alloc_resize(model->names, model->name_count + 1, sizeof *model->names);
    model->names[model->name_count++] = (struct model_name){copy, (uint32_t)length};
    *place = model->name_count;
    return model->name_count - 1;
}

static char *repaired(const char *text, size_t length)
{
    struct buffer clean = {0};
    utf8_append(&clean, text, length);
    buffer_append(&clean, "", 1);
    return alloc_resize(clean.data, clean.length, 1);  // many are kept: no room to spare
}

static void set_text(char **place, const char *text, size_t length)
{
    free(*place);
    *place = repaired(text, length);
}

static void set_region(struct model *model, struct model_process *process, uint32_t id, const char *name, size_t name_length,
                       const char *file, size_t file_length, int32_t line)
{
    if (id == 0 || id > SL_REGION_LAST)
        return;
    process->regions = room_for(process->regions, &process->region_count, id, sizeof *process->regions);
    struct model_region *region = &process->regions[id];
    if (region->file)
        return;  // told already
    char *clean = repaired(name, name_length);
    region->name = model_intern(model, clean, strlen(clean));
    region->file = repaired(file, file_length);
    region->line = line;
    region->minimum = UINT64_MAX;
    free(clean);
}

void model_string(struct model *model, struct model_process *process, uint32_t type, uint32_t id, const char *name, size_t name_length,
                  const char *file, size_t file_length, int32_t line)
{
    if (type == SL_STRING_REGION) {
        set_region(model, process, id, name, name_length, file, file_length, line);
    } else if (type == SL_STRING_WORD && id < 4096) {
        process->words = room_for(process->words, &process->word_count, id, sizeof *process->words);
        set_text(&process->words[id], name, name_length);
    } else if (type == SL_STRING_META) {
        char **place = id == SL_META_PROGRAM     ? &process->program
                       : id == SL_META_DIRECTORY ? &process->directory
                       : id == SL_META_COMMAND   ? &process->command
                                                 : NULL;
        if (place)
            set_text(place, name, name_length);
    }
}

struct model_region *model_region(struct model_process *process, uint32_t id)
{
    return id < process->region_count && process->regions[id].file ? &process->regions[id] : &process->other;
}

const char *model_region_name(const struct model *model, const struct model_region *region)
{
    return model->names[region->name].text;
}

const char *model_word(const struct model_process *process, uint32_t id)
{
    return id < process->word_count && process->words[id] ? process->words[id] : "task";
}

// ---- threads, tasks, slots

struct model_thread *model_find_thread(const struct model_process *process, uint32_t index)
{
    uint32_t chunk = index / MODEL_THREAD_CHUNK;
    return chunk < process->thread_chunks && process->threads[chunk] ? &process->threads[chunk]->thread[index % MODEL_THREAD_CHUNK] : NULL;
}

uint32_t model_next_thread(const struct model_process *process, uint32_t from)
{
    while (from < process->thread_count && !process->threads[from / MODEL_THREAD_CHUNK])
        from = (from / MODEL_THREAD_CHUNK + 1) * MODEL_THREAD_CHUNK;
    return from < process->thread_count ? from : process->thread_count;
}

struct model_thread *model_thread(struct model_process *process, uint32_t index)
{
    if (index >= THREADS_LIMIT)
        return NULL;
    uint32_t chunk = index / MODEL_THREAD_CHUNK;
    process->threads = room_for(process->threads, &process->thread_chunks, chunk, sizeof *process->threads);
    if (!process->threads[chunk])
        process->threads[chunk] = alloc_zeroed(1, sizeof **process->threads);
    if (index >= process->thread_count)
        process->thread_count = index + 1;
    return &process->threads[chunk]->thread[index % MODEL_THREAD_CHUNK];
}

static void begin_to_live(struct model_process *process, struct model_thread *thread)
{
    if (process->living_count == process->living_room) {
        process->living_room = process->living_room ? process->living_room * 2 : 16;
        process->living = alloc_resize(process->living, process->living_room, sizeof *process->living);
    }
    process->living[process->living_count++] = thread->facts.index;
    thread->living = process->living_count;
}

static void cease_to_live(struct model_process *process, struct model_thread *thread)
{
    uint32_t last = process->living[--process->living_count];
    process->living[thread->living - 1] = last;
    model_find_thread(process, last)->living = thread->living;
    thread->living = 0;
}

// Beyond the cap, chunks of threads that have all ended leave the live tables; the spool has them.
static void fold_threads(struct model_process *process)
{
    for (uint32_t looks = 0; process->threads_kept && process->threads_known > process->threads_kept && looks < FOLD_LOOKS; looks++) {
        uint32_t chunk = process->thread_fold_next;
        bool is_last = (chunk + 1) * MODEL_THREAD_CHUNK >= process->thread_count;
        process->thread_fold_next = is_last ? 0 : chunk + 1;
        if (is_last || !process->threads[chunk] || process->threads[chunk]->ended < MODEL_THREAD_CHUNK)
            continue;
        for (uint32_t i = 0; i < MODEL_THREAD_CHUNK; i++) {
            process->folded_cpu_ns += process->threads[chunk]->thread[i].facts.cpu_ns;
            process->folded_wait_ns += process->threads[chunk]->thread[i].wait_ns;
        }
        threads_free(process->threads[chunk]);
        process->threads[chunk] = NULL;
        process->threads_known -= MODEL_THREAD_CHUNK;
        process->threads_folded += MODEL_THREAD_CHUNK;
    }
}

void model_set_thread(struct model_process *process, const struct thread_facts *facts, const char *name)
{
    struct model_thread *thread = model_thread(process, facts->index);
    if (!thread)
        return;
    struct model_threads *chunk = process->threads[facts->index / MODEL_THREAD_CHUNK];
    chunk->ended -= thread->known && thread->facts.end;
    process->threads_known += !thread->known;
    uint64_t sampled = thread->facts.cpu_ns;
    thread->facts = *facts;
    if (!facts->cpu_exact && sampled > facts->cpu_ns)
        thread->facts.cpu_ns = sampled;
    thread->known = true;
    set_text(&thread->name, name, facts->name_length);
    if (!facts->end && !thread->living)
        begin_to_live(process, thread);
    if (!facts->end)
        return;
    chunk->ended++;
    if (thread->living)
        cease_to_live(process, thread);
    fold_threads(process);
}

static struct model_task **task_place(struct model_process *process, uint32_t index)
{
    uint32_t chunk = index / CHUNK;
    process->tasks = room_for(process->tasks, &process->task_chunks, chunk, sizeof *process->tasks);
    if (!process->tasks[chunk])
        process->tasks[chunk] = alloc_zeroed(CHUNK, sizeof **process->tasks);
    return &process->tasks[chunk][index % CHUNK];
}

struct model_task *model_task(const struct model_process *process, uint32_t index)
{
    uint32_t chunk = index / CHUNK;
    return chunk < process->task_chunks && process->tasks[chunk] ? process->tasks[chunk][index % CHUNK] : NULL;
}

// A chunk that a later task may still need stays.
static void drop_chunk(struct model_process *process, uint32_t chunk)
{
    for (uint32_t i = 0; i < CHUNK; i++)
        if (process->tasks[chunk][i])
            return;
    if (chunk + 1 < process->task_chunks && process->tasks[chunk + 1]) {
        free(process->tasks[chunk]);
        process->tasks[chunk] = NULL;
    }
}

static void keep_steps(struct model_process *process, const struct task_facts *facts)
{
    struct steps *steps = steps_of(&process->steps, facts->kind);
    steps->gone += facts->steps;
    steps->gone_running += facts->running;
    steps->gone_longest = facts->longest_step > steps->gone_longest ? facts->longest_step : steps->gone_longest;
}

// Beyond the cap the oldest finished tasks leave the live tables; the spool has them. A hand moves over the indices, so that each is looked
// at seldom; those that still live wait for its next round.
static void fold(struct model *model, struct model_process *process)
{
    uint64_t end = (uint64_t)process->task_chunks * CHUNK;
    for (uint32_t looks = 0; model->tasks_kept && process->tasks_known > model->tasks_kept && looks < FOLD_LOOKS; looks++) {
        uint32_t index = process->fold_next < end ? (uint32_t)process->fold_next : 0, chunk = index / CHUNK;
        process->fold_next = process->tasks[chunk] ? index + UINT64_C(1) : (chunk + UINT64_C(1)) * CHUNK;
        struct model_task *task = model_task(process, index);
        if (task && task->facts.done) {
            keep_steps(process, &task->facts);
            process->tasks[chunk][index % CHUNK] = NULL;
            task_free(task);
            process->tasks_known--;
            process->tasks_folded++;
        }
        if (process->tasks[chunk] && process->fold_next % CHUNK == 0)
            drop_chunk(process, chunk);
    }
}

void model_set_task(struct model *model, struct model_process *process, const struct task_facts *facts, const char *name,
                    const char *coro_name)
{
    if (facts->index == SL_TASK_NONE)
        return;
    struct model_task **place = task_place(process, facts->index);
    if (!*place) {
        *place = alloc_zeroed(1, sizeof **place);
        process->tasks_known++;
    }
    process->uses_tasks = true;
    (*place)->facts = *facts;
    set_text(&(*place)->name, name, facts->name_length);
    set_text(&(*place)->coro_name, coro_name, facts->coro_name_length);
    fold(model, process);
}

struct model_slot *model_slot(struct model_process *process, uint32_t slot)
{
    if (slot >= SLOTS_LIMIT)
        return NULL;
    uint32_t before = process->slot_count;
    process->slots = room_for(process->slots, &process->slot_count, slot, sizeof *process->slots);
    for (uint32_t i = before; i < process->slot_count; i++)
        process->slots[i].owner = SL_RING_FREE;
    return &process->slots[slot];
}

// ---- records

static struct model_call call_of(const struct model_slot *slot, const struct sl_record *record)
{
    struct model_call call = {.region = sl_record_region(record), .parent = sl_record_parent(record), .thread = slot->owner,
                              .task = sl_record_task(record), .start = sl_record_start(record), .kind = sl_record_kind(record)};
    uint64_t duration = sl_record_duration(record);
    if (call.kind == SL_CALL_BACK) {  // the field is the end, which lies before the start on this counter: no length is known
        call.end = call.start;
    } else {
        call.end = call.start + duration;
        call.await = sl_record_await(record);
        if (call.await > duration)
            call.await = duration;
    }
    return call;
}

static void keep_ended_open(struct model_process *process, const struct model_call *call)
{
    if (process->ended_open_count >= OPEN_LIMIT)
        return;
    process->ended_open = alloc_resize(process->ended_open, process->ended_open_count + 1, sizeof *process->ended_open);
    process->ended_open[process->ended_open_count++] =
        (struct open_facts){.thread = call->thread, .task = call->task, .region = call->region, .start = call->start};
}

static void add_self(struct model_region *region, uint64_t duration)
{
    region->self = (int64_t)((uint64_t)region->self + duration);  // in unsigned numbers, which may run over
}

static void count_call(struct model_process *process, const struct sl_record *record, uint64_t duration)
{
    struct model_region *region = model_region(process, sl_record_region(record));
    uint32_t parent = sl_record_parent(record), task_index = sl_record_task(record);
    region->calls++;
    region->total += duration;
    if (duration < region->minimum)
        region->minimum = duration;
    if (duration > region->maximum)
        region->maximum = duration;
    if (process->keeps_lengths)
        histogram_add(&region->lengths, duration, 1, &process->octaves_left);
    if (sl_record_kind(record) != SL_CALL_CROSSING) {
        add_self(region, duration);
        if (parent)
            add_self(model_region(process, parent), -duration);
    }
    if (task_index != SL_TASK_NONE)
        process->uses_tasks = true;
}

// Calls that follow each other in a ring are of one thread: its counters, the slot's and the process's change once for all.
struct taking {
    const struct model *model;
    struct model_process *process;
    struct model_slot *slot;
    uint64_t calls;   // since the last change of owner
    uint64_t newest;  // end
    int lost_reason;
    model_on_call on_call;
    void *context;
};

static void account(struct taking *taking)
{
    struct model_slot *slot = taking->slot;
    struct model_thread *thread = taking->calls ? model_thread(taking->process, slot->owner) : NULL;
    if (thread)
        thread->calls += taking->calls;
    slot->calls += taking->calls;
    if (taking->lost_reason >= 0)
        slot->ledger.lost[taking->lost_reason] += taking->calls;
    else
        slot->ledger.stored += taking->calls;
    taking->calls = 0;
}

static void take_call(struct taking *taking, const struct sl_record *record)
{
    uint64_t duration = sl_record_duration(record), end = sl_record_start(record) + duration;
    bool is_told = taking->on_call && taking->lost_reason < 0, runs_back = sl_record_kind(record) == SL_CALL_BACK;
    taking->calls++;
    if (!is_told && !runs_back) {
        count_call(taking->process, record, duration);
    } else {
        struct model_call call = call_of(taking->slot, record);
        count_call(taking->process, record, call.end - call.start);
        if (is_told)
            taking->on_call(taking->context, taking->process, &call);
    }
    if (end > taking->newest && !runs_back)
        taking->newest = end;
}

static void count_step(const struct model *model, struct model_process *process, struct model_slot *slot, uint64_t number,
                       const struct sl_record *record)
{
    if (number < slot->steps_next)  // a query was ahead
        return;
    struct steps *steps = steps_of(&process->steps, (uint32_t)sl_record_await_field(record));
    steps_count_slow(steps->over, model_length_ns(model, process, sl_record_duration(record)));
}

void model_steps_ahead(const struct model *model, struct model_process *process, uint32_t slot_number, uint64_t first,
                       const struct sl_record *records, size_t count)
{
    struct model_slot *slot = model_slot(process, slot_number);
    if (!slot || first + count <= slot->steps_next)
        return;
    for (size_t i = first < slot->next ? slot->next - first : 0; i < count; i++)
        if (sl_record_kind(&records[i]) == SL_STEP)
            count_step(model, process, slot, first + i, &records[i]);
    slot->steps_next = first + count;
}

static void take_other(struct taking *taking, uint64_t number, const struct sl_record *record)
{
    if (sl_record_kind(record) == SL_THREAD) {
        account(taking);
        taking->slot->shared |= taking->slot->owner != SL_RING_FREE && taking->slot->owner != sl_record_task(record);
        taking->slot->owner = sl_record_task(record);
    } else if (sl_record_kind(record) == SL_UNMATCHED) {
        unmatched_count(taking->process, taking->slot->owner, record);
    } else if (sl_record_kind(record) == SL_ENDED_OPEN) {
        struct model_call call = call_of(taking->slot, record);
        keep_ended_open(taking->process, &call);
    } else if (sl_record_kind(record) == SL_STEP) {
        count_step(taking->model, taking->process, taking->slot, number, record);
    }
}

// What a kill may have left open though it is published.
static void note_newest(struct model_slot *slot, const struct sl_record *record)
{
    slot->newest_start = sl_record_start(record);
    slot->newest_task = sl_record_task(record);
    slot->newest_thread = slot->owner;
}

void model_records(struct model *model, struct model_process *process, uint32_t slot_number, uint64_t first,
                   const struct sl_record *records, size_t count, int lost_reason, model_on_call on_call, void *context)
{
    struct model_slot *slot = model_slot(process, slot_number);
    if (!slot || first + count <= slot->next)
        return;
    struct taking taking = {.model = model, .process = process, .slot = slot, .newest = process->status.last_event, .lost_reason = lost_reason,
                            .on_call = on_call, .context = context};
    const struct sl_record *newest_call = NULL;
    for (size_t i = first < slot->next ? slot->next - first : 0; i < count; i++) {  // those before were taken in earlier
        if (sl_record_is_call(&records[i])) {
            take_call(&taking, newest_call = &records[i]);
        } else {
            if (newest_call)
                note_newest(slot, newest_call);
            newest_call = NULL;
            take_other(&taking, first + i, &records[i]);
        }
    }
    if (newest_call)
        note_newest(slot, newest_call);
    account(&taking);
    process->status.last_event = taking.newest;
    slot->next = first + count;
}

// ---- ledgers

static struct ledger *ledger_of(struct model_process *process, uint32_t slot)
{
    if (slot == FACTS_ELSEWHERE)
        return &process->elsewhere;
    struct model_slot *at = model_slot(process, slot);
    return at ? &at->ledger : NULL;
}

void model_rebase(struct ledger *base, const struct ledger *accounted)
{
    base->produced += accounted->stored + model_lost(accounted);
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        base->lost[reason] += accounted->lost[reason];
    base->unmatched += accounted->unmatched;
    base->abandoned += accounted->abandoned;
    base->crossing += accounted->crossing;
    base->steps_refused += accounted->steps_refused;
    base->stale_tasks += accounted->stale_tasks;
}

void model_set_ledger(struct model_process *process, uint32_t slot, const struct ledger *ledger)
{
    struct ledger *to = ledger_of(process, slot);
    if (!to)
        return;
    const struct ledger *base = slot == FACTS_ELSEWHERE ? &process->elsewhere_base : &process->slots[slot].base;
    to->produced = ledger->produced - base->produced;
    for (int reason = 0; reason < SL_LOST_CLIENT_COUNT; reason++)
        to->lost[reason] = ledger->lost[reason] - base->lost[reason];
    to->unmatched = ledger->unmatched - base->unmatched;
    to->abandoned = ledger->abandoned - base->abandoned;
    to->crossing = ledger->crossing - base->crossing;
    to->steps_refused = ledger->steps_refused - base->steps_refused;
    to->stale_tasks = ledger->stale_tasks - base->stale_tasks;
}

void model_restore_ledger(struct model_process *process, uint32_t slot, const struct ledger *ledger)
{
    struct ledger *to = ledger_of(process, slot);
    if (to) {
        uint64_t stored = to->stored;  // counted from the records themselves
        *to = *ledger;
        to->stored = stored;
    }
}

static void add_ledger(struct ledger *sum, const struct ledger *ledger)
{
    sum->produced += ledger->produced;
    sum->stored += ledger->stored;
    for (int reason = 0; reason < SL_LOST_COUNT; reason++)
        sum->lost[reason] += ledger->lost[reason];
    sum->unmatched += ledger->unmatched;
    sum->abandoned += ledger->abandoned;
    sum->crossing += ledger->crossing;
    sum->steps_refused += ledger->steps_refused;
    sum->stale_tasks += ledger->stale_tasks;
}

struct ledger model_ledger(const struct model_process *process)
{
    struct ledger sum = {0};
    for (uint32_t i = 0; i < process->slot_count; i++)
        add_ledger(&sum, &process->slots[i].ledger);
    add_ledger(&sum, &process->elsewhere);
    return sum;
}

uint64_t model_lost(const struct ledger *ledger)
{
    uint64_t lost = 0;
    for (int reason = 0; reason < SL_LOST_COUNT; reason++)
        lost += ledger->lost[reason];
    return lost;
}

uint64_t model_calls(const struct model_process *process)
{
    uint64_t calls = 0;
    for (uint32_t i = 0; i < process->slot_count; i++)
        calls += process->slots[i].ledger.stored;
    return calls;
}

void model_add_cpu(struct model_process *process, uint64_t *cpu_ns, uint64_t *wait_ns)
{
    uint64_t cpu = process->folded_cpu_ns, wait = process->folded_wait_ns;
    for (uint32_t i = model_next_thread(process, 0); i < process->thread_count; i = model_next_thread(process, i + 1)) {
        cpu += model_find_thread(process, i)->facts.cpu_ns;
        wait += model_find_thread(process, i)->wait_ns;
    }
    process->told_cpu_ns = cpu > process->told_cpu_ns ? cpu : process->told_cpu_ns;
    process->told_wait_ns = wait > process->told_wait_ns ? wait : process->told_wait_ns;
    *cpu_ns += process->told_cpu_ns;
    *wait_ns += process->told_wait_ns;
}

int64_t model_lane(uint32_t thread, uint32_t task)
{
    return task != SL_TASK_NONE ? (int64_t)task : thread == FACTS_NO_THREAD ? -1 : -2 - (int64_t)thread;
}

uint32_t model_ring_thread(const struct model_process *process, uint32_t slot)
{
    if (slot >= process->slot_count || process->slots[slot].shared)
        return FACTS_NO_THREAD;
    return process->slots[slot].owner;  // SL_RING_FREE is no thread either
}

// ---- open calls

void model_set_open(struct model_process *process, const struct open_facts *open, uint32_t count)
{
    if (count > OPEN_LIMIT)
        count = OPEN_LIMIT;
    process->open = alloc_resize(process->open, count, sizeof *open);
    if (count)
        memcpy(process->open, open, count * sizeof *open);
    process->open_count = count;
}

bool model_is_published(const struct model_process *process, const struct open_facts *open)
{
    for (uint32_t i = 0; i < process->slot_count; i++) {
        const struct model_slot *slot = &process->slots[i];
        if (slot->calls && slot->newest_start == open->start && slot->newest_task == open->task &&
            (open->task != SL_TASK_NONE || slot->newest_thread == open->thread))
            return true;
    }
    return false;
}

bool model_has_ended_open(const struct model_process *process, const struct open_facts *open)
{
    for (uint32_t i = 0; i < process->ended_open_count; i++) {
        const struct open_facts *ended = &process->ended_open[i];
        if (ended->start == open->start && ended->task == open->task &&
            (open->task != SL_TASK_NONE || ended->thread == open->thread))
            return true;
    }
    return false;
}

// ---- pauses

// Beyond the limit the last one is stretched: what is told of pauses is never less than there were.
bool model_set_paused(struct model_process *process, bool paused, int64_t now_ns)
{
    struct model_pause *last = process->pause_count ? &process->pauses[process->pause_count - 1] : NULL;
    bool is_paused = last && last->end_ns == SL_UNKNOWN;
    if (paused == is_paused)
        return false;
    if (!paused) {
        last->end_ns = now_ns;
    } else if (process->pause_count == PAUSE_LIMIT) {
        last->end_ns = SL_UNKNOWN;
    } else {
        process->pauses = alloc_resize(process->pauses, process->pause_count + 1, sizeof *process->pauses);
        process->pauses[process->pause_count++] = (struct model_pause){now_ns, SL_UNKNOWN};
    }
    return true;
}

// ---- time

int64_t model_time_ns(struct model *model, const struct model_process *process, uint64_t ticks)
{
    if (process->facts.clock == SL_CLOCK_MONOTONIC || process->facts.clock != model->clock_kind)
        return (int64_t)ticks;
    return ticks_to_ns(&model->clock, ticks);
}

int64_t model_length_ns(const struct model *model, const struct model_process *process, uint64_t ticks)
{
    if (process->facts.clock == SL_CLOCK_MONOTONIC || process->facts.clock != model->clock_kind)
        return (int64_t)ticks;
    return ticks_length_ns(&model->clock, ticks);
}

// ---- ranks

void model_give_ranks(struct model *model)
{
    bool *taken = alloc_zeroed(RANK_LIMIT, sizeof *taken);
    int64_t next = 0;
    for (uint32_t i = 0; i < model->process_count; i++) {
        struct model_process *process = model->processes[i];
        int64_t claim = process->status.rank;
        process->file_rank = -1;
        int64_t world = process->facts.world_size;
        if (world > next && world <= RANK_LIMIT && claim >= 0 && claim < RANK_LIMIT)
            next = world;
        if (!model_calls(process) || claim < 0 || claim >= RANK_LIMIT)
            continue;
        if (claim >= next)
            next = claim + 1;
        if (!taken[claim]) {
            taken[claim] = true;
            process->file_rank = claim;
        }
    }
    for (uint32_t i = 0; i < model->process_count; i++) {
        struct model_process *process = model->processes[i];
        if (process->file_rank < 0 && model_calls(process))
            process->file_rank = next++;
    }
    free(taken);
}
