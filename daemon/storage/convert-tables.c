#include "storage/convert-tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "core/unmatched.h"

static const char *const process_states[] = PROCESS_STATE_NAMES;
static const char *const loss_names[] = SL_LOSS_NAMES;

#define GROW(array, count, room)                                              \
    do {                                                                      \
        if ((count) == (room)) {                                              \
            (room) = (room) ? (room) * 2 : 64;                                \
            (array) = alloc_resize((array), (size_t)(room), sizeof *(array)); \
        }                                                                     \
    } while (0)

// ---- gathering

void facts_add_crossing(struct convert_facts *facts, const struct model_process *process, const struct model_call *call)
{
    GROW(facts->crossing, facts->crossing_count, facts->crossing_room);
    facts->crossing[facts->crossing_count++] = (struct crossing_call){process->number, *call};
}

void facts_add_samples(struct convert_facts *facts, const struct model_process *process, const struct sample_facts *samples, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        GROW(facts->samples, facts->sample_count, facts->sample_room);
        facts->samples[facts->sample_count++] = (struct kept_sample){process->number, samples[i]};
    }
}

void facts_add_anchor(struct convert_facts *facts, const struct anchor *anchor)
{
    GROW(facts->anchors, facts->anchor_count, facts->anchor_room);
    facts->anchors[facts->anchor_count++] = *anchor;
}

void facts_prepare(struct convert_facts *facts, const struct model *model)
{
    facts->span_processes = model->process_count;
    facts->spans = alloc_zeroed(model->process_count, sizeof *facts->spans);
    facts->span_counts = alloc_zeroed(model->process_count, sizeof *facts->span_counts);
    for (uint32_t p = 0; p < model->process_count; p++) {
        facts->span_counts[p] = model->processes[p]->thread_count;
        facts->spans[p] = alloc_zeroed(facts->span_counts[p], sizeof **facts->spans);
    }
}

void facts_see_call(struct convert_facts *facts, const struct model_process *process, const struct model_call *call, int64_t start_ns,
                    int64_t end_ns)
{
    if (call->thread >= facts->span_counts[process->number])
        return;
    struct span *span = &facts->spans[process->number][call->thread];
    if (!span->last_ns || start_ns < span->first_ns)
        span->first_ns = start_ns;
    if (end_ns > span->last_ns)
        span->last_ns = end_ns;
}

void facts_finish(struct convert_facts *facts)
{
    for (uint32_t p = 0; p < facts->span_processes; p++)
        free(facts->spans[p]);
    free(facts->spans);
    free(facts->span_counts);
    free(facts->crossing);
    free(facts->samples);
    free(facts->anchors);
}

// ---- times

static int64_t time_of(struct model *model, const struct model_process *process, uint64_t ticks)
{
    return ticks ? model_time_ns(model, process, ticks) : SL_UNKNOWN;
}

int64_t facts_start_ns(const struct convert_facts *facts, struct model *model)
{
    int64_t start = INT64_MAX;
    for (uint32_t p = 0; p < model->process_count; p++) {
        struct model_process *process = model->processes[p];
        int64_t made = time_of(model, process, process->facts.created_ticks);
        if (made >= 0 && made < start)
            start = made;
        for (uint32_t i = 0; i < facts->span_counts[p]; i++) {
            const struct span *span = &facts->spans[p][i];
            const struct model_thread *thread = model_find_thread(process, i);
            int64_t began = thread && thread->known ? time_of(model, process, thread->facts.start) : SL_UNKNOWN;
            if (span->last_ns && span->first_ns < start)
                start = span->first_ns;
            if (began >= 0 && began < start)
                start = began;
        }
    }
    return start == INT64_MAX ? 0 : start;
}

// ---- lane tables

static uint32_t thread_rows(const struct model_process *process)
{
    for (uint32_t i = process->thread_count; i-- > 0;) {
        const struct model_thread *thread = model_find_thread(process, i);
        if (thread && (thread->known || thread->calls))
            return i + 1;
    }
    return 0;
}

static uint32_t task_rows(const struct model_process *process)
{
    uint32_t count = process->uses_tasks ? process->status.tasks : 0;
    for (uint32_t chunk = process->task_chunks; chunk-- > 0;)
        for (uint32_t i = 1024; process->tasks[chunk] && i-- > 0;)
            if (process->tasks[chunk][i])
                return count > chunk * 1024 + i + 1 ? count : chunk * 1024 + i + 1;
    return count;
}

void facts_highest(const struct model *model, struct runwrite_options *options)
{
    for (uint32_t p = 0; p < model->process_count; p++) {
        const struct model_process *process = model->processes[p];
        int32_t threads = (int32_t)thread_rows(process), tasks = (int32_t)task_rows(process);
        options->tasks |= tasks > 0;
        if (threads - 1 > options->highest_thread)
            options->highest_thread = threads - 1;
        if (tasks - 1 > options->highest_task)
            options->highest_task = tasks - 1;
    }
}

static void write_thread(const struct convert_facts *facts, struct model *model, const struct model_process *process, uint32_t index,
                         struct runwrite *w)
{
    static const struct model_thread lost;
    const struct model_thread *found = model_find_thread(process, index), *thread = found ? found : &lost;
    const struct span *span = &facts->spans[process->number][index];
    struct run_thread row = {.rank = (uint32_t)process->file_rank, .index = index, .ident = thread->facts.ident,
                             .native_id = thread->facts.native_id, .daemon = thread->facts.flags & SL_THREAD_DAEMON,
                             .name = thread->known ? thread->name : "(lost)", .cpu_ns = (int64_t)thread->facts.cpu_ns,
                             .start_ns = time_of(model, process, thread->facts.start),
                             .end_ns = time_of(model, process, thread->facts.end)};
    bool over = process->status.state >= PROCESS_ENDED;
    if (row.end_ns < 0 && over)  // it ended with its process
        row.end_ns = process->status.end_ns;
    if (!thread->known)
        row.start_ns = span->last_ns ? span->first_ns : time_of(model, process, process->facts.created_ticks);
    if (span->last_ns && span->first_ns < row.start_ns)
        row.start_ns = span->first_ns;
    if (row.end_ns >= 0 && span->last_ns > row.end_ns)
        row.end_ns = span->last_ns;
    if (row.end_ns >= 0 && row.end_ns < row.start_ns)
        row.end_ns = row.start_ns;
    runwrite_thread(w, &row);
}

// A length in ticks at the rate of the task's own life, so that running + suspended stays within its wall time.
static int64_t scaled(uint64_t ticks, uint64_t span, int64_t span_ns)
{
    return span ? (int64_t)((double)ticks / (double)span * (double)span_ns) : 0;
}

static void write_task(struct model *model, const struct model_process *process, uint32_t index, struct runwrite *w)
{
    const struct model_task *task = model_task(process, index);
    struct run_task row = {.rank = (uint32_t)process->file_rank, .index = index, .kind = "task", .name = "(lost)", .coro_name = "",
                           .created_ns = time_of(model, process, process->facts.created_ticks), .done_ns = RUN_UNKNOWN};
    if (task) {
        const struct task_facts *facts = &task->facts;
        uint64_t last = facts->done > facts->last_step_end ? facts->done : facts->last_step_end;
        row.kind = model_word(process, facts->kind);
        row.name = task->name;
        row.coro_name = task->coro_name;
        row.thread_index = facts->thread < thread_rows(process) ? facts->thread : 0;
        row.created_ns = time_of(model, process, facts->created);
        row.done_ns = time_of(model, process, facts->done);
        row.steps = (int64_t)facts->steps;
        if (last > facts->created) {
            int64_t span_ns = time_of(model, process, last) - row.created_ns;
            row.running_ns = scaled(facts->running, last - facts->created, span_ns);
            row.suspended_ns = scaled(facts->suspended, last - facts->created, span_ns);
        }
    }
    runwrite_task(w, &row);
}

static int by_rank(const void *a, const void *b)
{
    const struct model_process *one = *(struct model_process *const *)a, *other = *(struct model_process *const *)b;
    return one->file_rank < other->file_rank ? -1 : one->file_rank > other->file_rank;
}

static void write_lanes(const struct convert_facts *facts, struct model *model, struct runwrite *w)
{
    struct model_process **sorted = alloc_zeroed(model->process_count, sizeof *sorted);
    memcpy(sorted, model->processes, model->process_count * sizeof *sorted);
    qsort(sorted, model->process_count, sizeof *sorted, by_rank);
    for (uint32_t p = 0; p < model->process_count; p++)
        for (uint32_t i = 0, rows = thread_rows(sorted[p]); sorted[p]->file_rank >= 0 && i < rows; i++)
            write_thread(facts, model, sorted[p], i, w);
    for (uint32_t p = 0; p < model->process_count; p++)
        for (uint32_t i = 0, rows = task_rows(sorted[p]); sorted[p]->file_rank >= 0 && i < rows; i++)
            write_task(model, sorted[p], i, w);
    free(sorted);
}

// ---- our own tables

#define TABLE(w, name, columns) runwrite_table_begin((w), (name), 1, (columns), sizeof(columns) / sizeof *(columns))

static void loss_rows(const struct model_process *process, int64_t ring, const struct ledger *ledger, struct runwrite *w)
{
    uint32_t thread = ring < 0 ? FACTS_NO_THREAD : model_ring_thread(process, (uint32_t)ring);
    for (int reason = 0; reason < SL_LOST_COUNT; reason++)
        if (ledger->lost[reason])
            runwrite_table_row(w, (union run_value[]){{process->file_rank}, {process->facts.pid}, {ring},
                                                      {thread == FACTS_NO_THREAD ? -1 : (int64_t)thread},
                                                      {.text = loss_names[reason]}, {(int64_t)ledger->lost[reason]}});
}

static void write_loss(const struct model *model, struct runwrite *w)
{
    static const struct run_column columns[] = {
        {"rank", RUN_INT}, {"pid", RUN_INT}, {"ring", RUN_INT}, {"thread", RUN_INT}, {"reason", RUN_TEXT}, {"count", RUN_INT}};
    TABLE(w, "loss", columns);
    for (uint32_t p = 0; p < model->process_count; p++) {
        const struct model_process *process = model->processes[p];
        loss_rows(process, -1, &process->elsewhere, w);
        for (uint32_t i = 0; i < process->slot_count; i++)
            loss_rows(process, i, &process->slots[i].ledger, w);
    }
    runwrite_table_end(w);
}

// Open calls of a lane come outermost first, so a row's stack is its predecessor's and its own name.
static void open_rows(struct model *model, struct model_process *process, const struct open_facts *open, uint32_t count, bool ended,
                      struct runwrite *w)
{
    struct buffer stack = {0};
    for (uint32_t i = 0; i < count; i++) {
        const char *name = model_region_name(model, model_region(process, open[i].region));
        if (ended || open[i].position == 0)
            buffer_clear(&stack);
        else
            buffer_text(&stack, " > ");
        buffer_text(&stack, name);
        buffer_append(&stack, "", 1);
        stack.length--;
        runwrite_table_row(w, (union run_value[]){{process->file_rank}, {process->facts.pid}, {model_lane(open[i].thread, open[i].task)},
                                                  {.text = name}, {.text = stack.data}, {time_of(model, process, open[i].start)}});
    }
    buffer_finish(&stack);
}

static void write_open(struct model *model, struct runwrite *w)
{
    static const struct run_column columns[] = {{"rank", RUN_INT},    {"pid", RUN_INT},    {"lane", RUN_INT},
                                                {"region", RUN_TEXT}, {"stack", RUN_TEXT}, {"start_ns", RUN_INT}};
    TABLE(w, "open_calls", columns);
    for (uint32_t p = 0; p < model->process_count; p++) {
        struct model_process *process = model->processes[p];
        open_rows(model, process, process->ended_open, process->ended_open_count, true, w);
        open_rows(model, process, process->open, process->open_count, false, w);
    }
    runwrite_table_end(w);
}

static void write_crossing(const struct convert_facts *facts, struct model *model, struct runwrite *w)
{
    static const struct run_column columns[] = {{"rank", RUN_INT},     {"lane", RUN_INT},   {"thread", RUN_INT}, {"region", RUN_TEXT},
                                                {"start_ns", RUN_INT}, {"end_ns", RUN_INT}, {"await_ns", RUN_INT}};
    TABLE(w, "crossing", columns);
    for (uint64_t i = 0; i < facts->crossing_count; i++) {
        const struct model_call *call = &facts->crossing[i].call;
        struct model_process *process = model->processes[facts->crossing[i].process];
        runwrite_table_row(w, (union run_value[]){{process->file_rank}, {model_lane(call->thread, call->task)},
                                                  {call->thread == FACTS_NO_THREAD ? -1 : (int64_t)call->thread},
                                                  {.text = model_region_name(model, model_region(process, call->region))},
                                                  {time_of(model, process, call->start)}, {time_of(model, process, call->end)},
                                                  {model_length_ns(model, process, call->await)}});
    }
    runwrite_table_end(w);
}

static void write_unmatched(struct model *model, struct runwrite *w)
{
    static const struct run_column columns[] = {
        {"rank", RUN_INT},     {"pid", RUN_INT},     {"lane", RUN_INT},         {"thread", RUN_INT},         {"region", RUN_TEXT}, {"count", RUN_INT},
        {"first_ns", RUN_INT}, {"last_ns", RUN_INT}, {"entered_lane", RUN_INT}, {"entered_thread", RUN_INT}, {"entered_ns", RUN_INT},
        {"why", RUN_TEXT}};
    TABLE(w, "unmatched", columns);
    for (uint32_t p = 0; p < model->process_count; p++) {
        struct model_process *process = model->processes[p];
        for (uint32_t i = 0; i < process->unmatched_count; i++) {
            const struct model_unmatched *unmatched = &process->unmatched[i];
            uint32_t candidates;
            const struct open_facts *open = unmatched_open(process, unmatched, &candidates);
            uint32_t thread = open ? unmatched_entered_by(process, open) : FACTS_NO_THREAD;
            char *why = unmatched_words(model, process, unmatched);
            runwrite_table_row(
                w, (union run_value[]){{process->file_rank}, {process->facts.pid}, {model_lane(unmatched->thread, unmatched->task)},
                                       {unmatched->thread == FACTS_NO_THREAD ? -1 : (int64_t)unmatched->thread},
                                       {.text = model_region_name(model, model_region(process, unmatched->region))},
                                       {(int64_t)unmatched->count}, {time_of(model, process, unmatched->first)},
                                       {time_of(model, process, unmatched->last)},
                                       {open ? model_lane(open->thread, open->task) : -1},
                                       {thread == FACTS_NO_THREAD ? -1 : (int64_t)thread},
                                       {open ? time_of(model, process, open->start) : SL_UNKNOWN}, {.text = why}});
            free(why);
        }
    }
    runwrite_table_end(w);
}

// What is ours to say of threads beside scope-profiler's table.
static void write_thread_facts(const struct model *model, struct runwrite *w)
{
    static const struct run_column columns[] = {{"rank", RUN_INT}, {"index", RUN_INT}, {"cpu_exact", RUN_INT}};
    TABLE(w, "threads", columns);
    for (uint32_t p = 0; p < model->process_count; p++) {
        const struct model_process *process = model->processes[p];
        for (uint32_t i = 0, rows = thread_rows(process); process->file_rank >= 0 && i < rows; i++) {
            const struct model_thread *thread = model_find_thread(process, i);
            runwrite_table_row(w, (union run_value[]){{process->file_rank}, {i}, {thread && thread->facts.cpu_exact}});
        }
    }
    runwrite_table_end(w);
}

// What is ours to say of tasks beside scope-profiler's table.
static void write_task_facts(struct model *model, struct runwrite *w)
{
    static const struct run_column columns[] = {{"rank", RUN_INT}, {"index", RUN_INT}, {"longest_step_ns", RUN_INT}, {"bound", RUN_INT}};
    TABLE(w, "tasks", columns);
    for (uint32_t p = 0; p < model->process_count; p++) {
        const struct model_process *process = model->processes[p];
        for (uint32_t i = 0, rows = task_rows(process); process->file_rank >= 0 && i < rows; i++) {
            const struct model_task *task = model_task(process, i);
            if (task)
                runwrite_table_row(w, (union run_value[]){{process->file_rank}, {i}, {model_length_ns(model, process, task->facts.longest_step)},
                                                          {task->facts.steps_bound}});
        }
    }
    runwrite_table_end(w);
}

static void write_processes(struct model *model, struct runwrite *w)
{
    static const struct run_column columns[] = {
        {"rank", RUN_INT},     {"claimed_rank", RUN_INT}, {"pid", RUN_INT},       {"parent_pid", RUN_INT}, {"host", RUN_TEXT},
        {"program", RUN_TEXT}, {"start_ns", RUN_INT},     {"end_ns", RUN_INT},    {"state", RUN_TEXT},     {"exit_status", RUN_INT},
        {"has_exit", RUN_INT}, {"last_event_ns", RUN_INT}, {"threads", RUN_INT},  {"tasks", RUN_INT},      {"produced", RUN_INT},
        {"stored", RUN_INT},   {"lost", RUN_INT},         {"unmatched", RUN_INT}, {"crossing", RUN_INT},   {"abandoned", RUN_INT}};
    TABLE(w, "processes", columns);
    for (uint32_t p = 0; p < model->process_count; p++) {
        const struct model_process *process = model->processes[p];
        const struct process_status *status = &process->status;
        struct ledger ledger = model_ledger(process);
        int64_t claim = status->rank == SL_RANK_NONE ? SL_UNKNOWN : status->rank;
        runwrite_table_row(
            w, (union run_value[]){{process->file_rank}, {claim}, {process->facts.pid}, {process->facts.parent_pid},
                                   {.text = process->host ? process->host : ""}, {.text = process->program ? process->program : ""},
                                   {time_of(model, process, process->facts.created_ticks)}, {status->end_ns},
                                   {.text = process_states[status->state]}, {status->has_exit ? status->exit_status : 0},
                                   {status->has_exit}, {time_of(model, process, status->last_event)}, {status->threads},
                                   {status->tasks}, {(int64_t)ledger.produced}, {(int64_t)ledger.stored},
                                   {(int64_t)model_lost(&ledger)}, {(int64_t)ledger.unmatched}, {(int64_t)ledger.crossing},
                                   {(int64_t)ledger.abandoned}});
    }
    runwrite_table_end(w);
}

static void write_clock(const struct convert_facts *facts, struct runwrite *w)
{
    static const struct run_column columns[] = {{"ticks", RUN_INT}, {"monotonic_ns", RUN_INT}, {"realtime_ns", RUN_INT}};
    TABLE(w, "clock", columns);
    for (uint64_t i = 0; i < facts->anchor_count; i++) {
        const struct anchor *anchor = &facts->anchors[i];
        runwrite_table_row(w, (union run_value[]){{(int64_t)anchor->ticks}, {anchor->monotonic_ns}, {anchor->realtime_ns}});
    }
    runwrite_table_end(w);
}

static void write_samples(const struct convert_facts *facts, const struct model *model, struct runwrite *w)
{
    static const struct run_column columns[] = {{"rank", RUN_INT},   {"thread", RUN_INT},  {"time_ns", RUN_INT},
                                                {"cpu_ns", RUN_INT}, {"wait_ns", RUN_INT}, {"state", RUN_TEXT}};
    TABLE(w, "samples", columns);
    for (uint64_t i = 0; i < facts->sample_count; i++) {
        const struct sample_facts *sample = &facts->samples[i].sample;
        char state[2] = {(char)sample->state, 0};
        runwrite_table_row(w, (union run_value[]){{model->processes[facts->samples[i].process]->file_rank}, {sample->thread},
                                                  {sample->time_ns}, {(int64_t)sample->cpu_ns}, {(int64_t)sample->wait_ns},
                                                  {.text = state}});
    }
    runwrite_table_end(w);
}

static void write_pauses(const struct model *model, struct runwrite *w)
{
    static const struct run_column columns[] = {{"rank", RUN_INT}, {"begin_ns", RUN_INT}, {"end_ns", RUN_INT}};
    TABLE(w, "pauses", columns);
    for (uint32_t i = 0; i < model->process_count; i++) {
        const struct model_process *process = model->processes[i];
        for (uint32_t j = 0; j < process->pause_count; j++)
            runwrite_table_row(w, (union run_value[]){{process->file_rank}, {process->pauses[j].begin_ns}, {process->pauses[j].end_ns}});
    }
    runwrite_table_end(w);
}

void facts_write_tables(const struct convert_facts *facts, struct model *model, struct runwrite *w)
{
    write_lanes(facts, model, w);
    write_loss(model, w);
    write_open(model, w);
    write_crossing(facts, model, w);
    write_unmatched(model, w);
    write_thread_facts(model, w);
    write_task_facts(model, w);
    write_processes(model, w);
    write_clock(facts, w);
    write_samples(facts, model, w);
    write_pauses(model, w);
}

// ---- metadata

static void write_timestamp(struct runwrite *w)
{
    char text[64], zone[8];
    struct timespec now;
    struct tm local;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &local);
    size_t length = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &local);
    strftime(zone, sizeof zone, "%z", &local);  // +0200
    snprintf(text + length, sizeof text - length, ".%06ld%.3s:%.2s", now.tv_nsec / 1000, zone, zone + 3);
    runwrite_metadata_text(w, "timestamp", text);
}

static void write_label(const char *output, struct runwrite *w)
{
    const char *slash = strrchr(output, '/'), *name = slash ? slash + 1 : output;
    size_t length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, ".h5") == 0)
        length -= 3;
    char *label = alloc_printf("%.*s", (int)length, name);
    runwrite_metadata_text(w, "label", label);
    free(label);
}

void facts_write_metadata(const struct convert_facts *facts, struct model *model, const struct spool_reader *reader, const char *output,
                          struct runwrite *w)
{
    int64_t ranks = 0, finalize = reader->end_ns;
    const struct model_process *first = model->process_count ? model->processes[0] : NULL;
    struct utsname system;
    char id[17];
    for (uint32_t p = 0; p < model->process_count; p++) {
        const struct model_process *process = model->processes[p];
        if (process->file_rank >= ranks)
            ranks = process->file_rank + 1;
    }
    if (finalize < 0 && facts->anchor_count)
        finalize = facts->anchors[facts->anchor_count - 1].monotonic_ns;
    write_timestamp(w);
    write_label(output, w);
    uname(&system);
    char *platform = alloc_printf("%s-%s-%s", system.sysname, system.release, system.machine);
    runwrite_metadata_text(w, "platform", platform);
    free(platform);
    runwrite_metadata_text(w, "python_version", "none");
    runwrite_metadata_text(w, "scope_profiler_version", "scoped-lane " SL_VERSION);
    runwrite_metadata_text(w, "source", "native");
    runwrite_metadata_text(w, "hostname", reader->run.host ? reader->run.host : "");
    if (first && first->directory)
        runwrite_metadata_text(w, "working_directory", first->directory);
    runwrite_metadata_int(w, "mpi_size", ranks > 0 ? ranks : 1);
    runwrite_metadata_int(w, "num_nodes", 1);
    runwrite_metadata_int(w, "total_cores", sysconf(_SC_NPROCESSORS_ONLN));
    runwrite_metadata_int(w, "omp_num_threads", 1);
    if (finalize >= 0)
        runwrite_metadata_int(w, "finalize_time_ns", finalize);
    snprintf(id, sizeof id, "%.16s", (const char *)reader->run.id);
    runwrite_fact_text(w, "run", id);
    runwrite_fact_int(w, "clock_error_ns", model->clock.error_ns);
    runwrite_fact_int(w, "clock_stretches", model->clock.stretches);
}
