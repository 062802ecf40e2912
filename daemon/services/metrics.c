#include "services/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "core/procfs.h"
#include "services/follow.h"
#include "services/http.h"
#include "services/region-sums.h"
#include "services/step-sums.h"

enum { STEPS_PART = 1 << 24 };  // of a process, from here on its tasks' steps: before it come its lanes

enum family_number {
    REGION_CALLS, REGION_SECONDS, REGION_OPEN, REGION_OPEN_SECONDS, REGION_STUCK,
    STEP_SECONDS, LONGEST_STEP, PROCESSES, THREADS, TASKS, CPU, RUN_QUEUE, PRODUCED, STORED, LOST, UNMATCHED,
    UP, ALERTS, LEFT_OUT, INFO, DAEMON_CPU, DAEMON_MEMORY, DAEMON_RUNS, DAEMON_CLIENTS, DAEMON_REFUSED, PUMP_PERIOD, GENERATION,
    CLOCK_ERROR, CONNECTIONS, CONNECTIONS_REFUSED, REQUESTS, REQUEST_ERRORS, DEFERRED, QUEUED, FOLLOWERS, FOLLOW_LOST, FAMILIES
};

static const struct {
    const char *name, *type, *help;
} families[FAMILIES] = {
    [REGION_CALLS] = {"scoped_lane_region_calls_total", "counter", "Finished calls of a region on a rank."},
    [REGION_SECONDS] = {"scoped_lane_region_seconds_total", "counter", "Time in finished calls of a region on a rank."},
    [REGION_OPEN] = {"scoped_lane_region_open_calls", "gauge", "Calls of a region that are open now."},
    [REGION_OPEN_SECONDS] = {"scoped_lane_region_open_seconds", "gauge", "Time so far of the calls that are open now."},
    [REGION_STUCK] = {"scoped_lane_region_stuck_lanes", "gauge", "Lanes that are in a region and get nowhere."},
    [STEP_SECONDS] = {"scoped_lane_task_step_seconds", "histogram", "How long a step of a task held its thread."},
    [LONGEST_STEP] = {"scoped_lane_task_longest_step_seconds", "gauge", "The longest step of a task, one in progress too."},
    [PROCESSES] = {"scoped_lane_processes", "gauge", "Processes that are recorded now."},
    [THREADS] = {"scoped_lane_threads", "gauge", "Threads that live now."},
    [TASKS] = {"scoped_lane_tasks_created_total", "counter", "Tasks that were created."},
    [CPU] = {"scoped_lane_cpu_seconds_total", "counter", "CPU time of the threads that record."},
    [RUN_QUEUE] = {"scoped_lane_run_queue_seconds_total", "counter", "Time in which they could run and had no processor."},
    [PRODUCED] = {"scoped_lane_calls_produced_total", "counter", "Finished calls by the programs' own count."},
    [STORED] = {"scoped_lane_calls_stored_total", "counter", "Of them, those that are recorded."},
    [LOST] = {"scoped_lane_calls_lost_total", "counter", "Of them, those that were lost."},
    [UNMATCHED] = {"scoped_lane_exits_unmatched_total", "counter", "Exits from regions that were not open."},
    [UP] = {"scoped_laned_uptime_seconds", "gauge", "Since the daemon's start."},
    [ALERTS] = {"scoped_laned_alerts_total", "counter", "Alerts of stuck lanes."},
    [LEFT_OUT] = {"scoped_laned_series_left_out", "gauge", "Series that this reply lacks, for there would be too many."},
    [INFO] = {"scoped_laned_info", "gauge", "1, with the daemon's version."},
    [DAEMON_CPU] = {"scoped_laned_cpu_seconds_total", "counter", "The daemon's own CPU time."},
    [DAEMON_MEMORY] = {"scoped_laned_resident_bytes", "gauge", "The daemon's resident memory."},
    [DAEMON_RUNS] = {"scoped_laned_runs", "gauge", "Runs that are being recorded."},
    [DAEMON_CLIENTS] = {"scoped_laned_processes", "gauge", "Processes that are attached, of all users."},
    [DAEMON_REFUSED] = {"scoped_laned_registrations_refused_total", "counter", "Processes that were refused."},
    [PUMP_PERIOD] = {"scoped_laned_drain_period_seconds", "gauge", "Until the rings are looked at again."},
    [GENERATION] = {"scoped_laned_drains_total", "counter", "Drains that found something."},
    [CLOCK_ERROR] = {"scoped_laned_clock_error_seconds", "gauge", "Largest error of the conversion of ticks seen."},
    [CONNECTIONS] = {"scoped_laned_connections", "gauge", "Open connections on the query socket."},
    [CONNECTIONS_REFUSED] = {"scoped_laned_connections_refused_total", "counter", "Connections over a limit."},
    [REQUESTS] = {"scoped_laned_requests_total", "counter", "Requests on the query socket."},
    [REQUEST_ERRORS] = {"scoped_laned_request_errors_total", "counter", "Requests that were answered with an error."},
    [DEFERRED] = {"scoped_laned_requests_deferred_total", "counter", "Times that one waited for the loop's next turn."},
    [FOLLOWERS] = {"scoped_laned_followers", "gauge", "Readers of /v1/follow."},
    [FOLLOW_LOST] = {"scoped_laned_follow_lines_lost_total", "counter", "Lines that they were too slow for."},
    [QUEUED] = {"scoped_laned_queued_bytes", "gauge", "Replies that wait for their readers."},
};

static const char *const loss_names[] = SL_LOSS_NAMES;

// The processes of a rank, those that claim it, come one after another, by what they claimed at the beginning.
struct claimant {
    struct model_process *process;
    int64_t claim;
};

struct metrics {
    struct daemon *daemon;
    struct row_filter filter;
    struct page page;
    struct buffer lines[FAMILIES];  // the samples of a family stand together
    uint64_t series, left_out;
    // of the run in the making
    struct claimant *claimants;
    uint32_t count, next, first;  // first: of the rank in the making
    char *labels;                 // run="…",rank="…" of it, without braces
    struct region_sums sums;
    struct step_sums steps;
};

// ---- samples

static void label_value(struct buffer *line, const char *text)
{
    for (; *text; text++) {
        if (*text == '\\' || *text == '"')
            buffer_append(line, "\\", 1);
        if (*text == '\n')
            buffer_text(line, "\\n");
        else
            buffer_append(line, text, 1);
    }
}

static void sample(struct metrics *metrics, enum family_number family, const char *labels, double value)
{
    buffer_printf(&metrics->lines[family], "%s%s %.17g\n", families[family].name, labels, value);
}

// Is there room for so many more series of runs? They count as left out where there is none.
static bool run_has_room(struct metrics *metrics, uint64_t series)
{
    bool room = metrics->series + series <= metrics->page.daemon->settings.metrics_series;
    *(room ? &metrics->series : &metrics->left_out) += series;
    return room;
}

static void run_sample(struct metrics *metrics, enum family_number family, const char *labels, double value)
{
    if (run_has_room(metrics, 1))
        sample(metrics, family, labels, value);
}

static double seconds(int64_t ns)
{
    return (double)ns / 1e9;
}

// ---- a rank of a run

static void rank_sample(struct metrics *metrics, enum family_number family, double value)
{
    char *labels = alloc_printf("{%s}", metrics->labels);
    run_sample(metrics, family, labels, value);
    free(labels);
}

static void write_loss(struct metrics *metrics, const struct ledger *ledger)
{
    for (int reason = 0; reason < SL_LOST_COUNT; reason++) {
        if (!ledger->lost[reason])
            continue;
        char *labels = alloc_printf("{%s,reason=\"%s\"}", metrics->labels, loss_names[reason]);
        run_sample(metrics, LOST, labels, (double)ledger->lost[reason]);
        free(labels);
    }
}

static void add_ledger(struct ledger *sum, const struct ledger *ledger)
{
    sum->produced += ledger->produced;
    sum->stored += ledger->stored;
    sum->unmatched += ledger->unmatched;
    for (int reason = 0; reason < SL_LOST_COUNT; reason++)
        sum->lost[reason] += ledger->lost[reason];
}

static void write_tables(struct metrics *metrics)
{
    struct ledger ledger = {0};
    uint64_t live = 0, living = 0, tasks = 0, cpu_ns = 0, wait_ns = 0;
    for (uint32_t i = metrics->first; i < metrics->next; i++) {
        struct model_process *process = metrics->claimants[i].process;
        struct ledger one = model_ledger(process);
        add_ledger(&ledger, &one);
        live += process->status.state <= PROCESS_DEAF;
        living += process->status.state <= PROCESS_DEAF ? process->living_count : 0;
        tasks += process->status.tasks;
        model_add_cpu(process, &cpu_ns, &wait_ns);
    }
    rank_sample(metrics, PROCESSES, (double)live);
    rank_sample(metrics, THREADS, (double)living);
    rank_sample(metrics, TASKS, (double)tasks);
    rank_sample(metrics, CPU, seconds((int64_t)cpu_ns));
    rank_sample(metrics, RUN_QUEUE, seconds((int64_t)wait_ns));
    rank_sample(metrics, PRODUCED, (double)ledger.produced);
    rank_sample(metrics, STORED, (double)ledger.stored);
    rank_sample(metrics, UNMATCHED, (double)ledger.unmatched);
    write_loss(metrics, &ledger);
}

static void write_regions(struct metrics *metrics, const struct run *run)
{
    for (uint32_t name = 0; name < metrics->sums.count; name++) {
        const struct region_sum *sum = &metrics->sums.of[name];
        if (!sum->calls && !sum->open)
            continue;
        struct buffer labels = {0};
        buffer_printf(&labels, "{%s,region=\"", metrics->labels);
        label_value(&labels, run->model.names[name].text);
        buffer_append(&labels, "\"}", 3);
        run_sample(metrics, REGION_CALLS, labels.data, (double)sum->calls);
        run_sample(metrics, REGION_SECONDS, labels.data, seconds(sum->closed_ns));
        run_sample(metrics, REGION_OPEN, labels.data, (double)sum->open);
        run_sample(metrics, REGION_OPEN_SECONDS, labels.data, seconds(sum->open_ns));
        run_sample(metrics, REGION_STUCK, labels.data, sum->stuck);
        buffer_finish(&labels);
    }
}

// A histogram is there as a whole or not at all. `labels` without the closing brace.
static void write_step_lengths(struct metrics *metrics, const char *labels, const struct step_sum *sum)
{
    struct buffer *lines = &metrics->lines[STEP_SECONDS];
    const char *name = families[STEP_SECONDS].name;
    if (!run_has_room(metrics, STEPS_EDGES + 3))
        return;
    for (int edge = 0; edge < STEPS_EDGES; edge++)
        buffer_printf(lines, "%s_bucket%s,le=\"%g\"} %llu\n", name, labels, seconds(steps_edges_ns[edge]),
                      (unsigned long long)sum->under[edge]);
    buffer_printf(lines, "%s_bucket%s,le=\"+Inf\"} %llu\n", name, labels, (unsigned long long)sum->steps);
    buffer_printf(lines, "%s_sum%s} %.17g\n", name, labels, seconds(sum->running_ns));
    buffer_printf(lines, "%s_count%s} %llu\n", name, labels, (unsigned long long)sum->steps);
}

static void write_steps(struct metrics *metrics, const struct step_sums *sums)
{
    for (uint32_t i = 0; i < sums->count; i++) {
        struct buffer labels = {0};
        buffer_printf(&labels, "{%s,kind=\"", metrics->labels);
        label_value(&labels, sums->of[i].kind);
        buffer_printf(&labels, "\"");
        write_step_lengths(metrics, labels.data, &sums->of[i]);
        buffer_printf(&labels, "}");
        run_sample(metrics, LONGEST_STEP, labels.data, seconds(sums->of[i].longest_ns));
        buffer_finish(&labels);
    }
}

static void begin_rank(struct metrics *metrics, const struct run *run)
{
    int64_t claim = metrics->claimants[metrics->next].claim;
    metrics->first = metrics->next;
    metrics->labels = claim == SL_RANK_NONE ? alloc_printf("run=\"%s\",rank=\"none\"", run->id)
                                            : alloc_printf("run=\"%s\",rank=\"%lld\"", run->id, (long long)claim);
    region_sums_init(&metrics->sums, run);
}

static void forget_rank(struct metrics *metrics)
{
    free(metrics->labels);
    metrics->labels = NULL;
    region_sums_finish(&metrics->sums);
    step_sums_finish(&metrics->steps);
}

// ---- a run

static int by_claim(const void *a, const void *b)
{
    const struct claimant *one = a, *other = b;
    if (one->claim != other->claim)
        return one->claim < other->claim ? -1 : 1;
    return one->process->number < other->process->number ? -1 : one->process->number > other->process->number;
}

static void begin_run(struct metrics *metrics, struct run *run)
{
    metrics->count = run->model.process_count;
    metrics->next = 0;
    metrics->claimants = alloc_zeroed(metrics->count + 1, sizeof *metrics->claimants);
    for (uint32_t i = 0; i < metrics->count; i++)
        metrics->claimants[i] = (struct claimant){run->model.processes[i], run->model.processes[i]->status.rank};
    qsort(metrics->claimants, metrics->count, sizeof *metrics->claimants, by_claim);
}

static void forget_run(struct metrics *metrics)
{
    free(metrics->claimants);
    metrics->claimants = NULL;
}

// Part by part: its lanes, then its tasks' steps. False where the page pauses.
static bool add_process(struct metrics *metrics, struct page *page, struct run *run, struct model_process *process)
{
    uint32_t part = page_first_part(page, run, process), steps_part = part < STEPS_PART ? 0 : part - STEPS_PART;
    if (part < STEPS_PART)
        region_sums_add(&metrics->sums, page, run, process);
    while (!page->paused && step_sums_add_part(&metrics->steps, page, run, process, &steps_part))
        page_pauses(page, run, process, STEPS_PART + steps_part);
    return !page->paused;
}

// Up to its end, or to where the page pauses.
static void write_run(struct page *page, struct run *run)
{
    struct metrics *metrics = page->context;
    if (!metrics->claimants && run->state != RUN_RECORDING)
        return;
    if (!metrics->claimants)
        begin_run(metrics, run);
    while (metrics->next < metrics->count) {
        const struct claimant *claimant = &metrics->claimants[metrics->next];
        if (page_pauses(page, run, claimant->process, page_first_part(page, run, claimant->process)))
            return;
        if (!metrics->labels)
            begin_rank(metrics, run);
        if (!add_process(metrics, page, run, claimant->process))
            return;
        metrics->next++;
        if (metrics->next < metrics->count && claimant[1].claim == claimant->claim)
            continue;
        write_tables(metrics);
        write_regions(metrics, run);
        write_steps(metrics, &metrics->steps);
        forget_rank(metrics);
    }
    forget_run(metrics);
}

// ---- the daemon

static void write_daemon(struct metrics *metrics)
{
    const struct daemon *daemon = metrics->page.daemon;
    struct http_counts counts;
    uint64_t runs = 0;
    for (const struct run *run = daemon->runs; run; run = run->next)
        runs += run->state == RUN_RECORDING;
    http_counts(daemon->http, &counts);
    sample(metrics, UP, "", seconds(metrics->page.now_ns - daemon->started_ns));
    sample(metrics, ALERTS, "", (double)daemon->alerts);
    sample(metrics, LEFT_OUT, "", (double)metrics->left_out);
    sample(metrics, INFO, "{version=\"" SL_VERSION "\"}", 1);
    sample(metrics, DAEMON_CPU, "", seconds(clock_ns(CLOCK_PROCESS_CPUTIME_ID)));
    sample(metrics, DAEMON_MEMORY, "", (double)procfs_resident_bytes());
    sample(metrics, DAEMON_RUNS, "", (double)runs);
    sample(metrics, DAEMON_CLIENTS, "", daemon->client_count);
    sample(metrics, DAEMON_REFUSED, "", (double)daemon->refused);
    sample(metrics, PUMP_PERIOD, "", (double)daemon->pump_period_ms / 1000);
    sample(metrics, GENERATION, "", (double)daemon->generation);
    sample(metrics, CLOCK_ERROR, "", seconds(daemon->clock.error_ns));
    sample(metrics, CONNECTIONS, "", counts.connections_now);
    sample(metrics, CONNECTIONS_REFUSED, "", (double)counts.refused);
    sample(metrics, REQUESTS, "", (double)counts.requests);
    sample(metrics, REQUEST_ERRORS, "", (double)counts.errors);
    sample(metrics, DEFERRED, "", (double)counts.deferred);
    sample(metrics, QUEUED, "", (double)counts.queued_bytes);
    uint64_t lines_lost;
    unsigned followers;
    follow_counts(daemon, &followers, &lines_lost);
    sample(metrics, FOLLOWERS, "", followers);
    sample(metrics, FOLLOW_LOST, "", (double)lines_lost);
}

struct metrics *metrics_begin(struct daemon *daemon, uid_t uid, bool sees_all)
{
    struct metrics *metrics = alloc_zeroed(1, sizeof *metrics);
    metrics->daemon = daemon;
    metrics->page = (struct page){.daemon = daemon, .filter = &metrics->filter, .uid = uid, .sees_all = sees_all, .context = metrics,
                                  .now_ns = clock_monotonic_ns()};
    daemon->listings++;
    return metrics;
}

bool metrics_write(struct metrics *metrics, int64_t until_ns, struct buffer *body)
{
    struct page *page = &metrics->page;
    page_begin_turn(page, until_ns);
    page_each_run(page, write_run);
    if (page->paused)
        return false;
    write_daemon(metrics);
    for (int i = 0; i < FAMILIES; i++) {
        if (!metrics->lines[i].length)
            continue;
        buffer_printf(body, "# HELP %s %s\n# TYPE %s %s\n", families[i].name, families[i].help, families[i].name, families[i].type);
        buffer_append(body, metrics->lines[i].data, metrics->lines[i].length);
    }
    return true;
}

void metrics_free(struct metrics *metrics)
{
    metrics->daemon->listings--;
    for (int i = 0; i < FAMILIES; i++)
        buffer_finish(&metrics->lines[i]);
    forget_rank(metrics);
    forget_run(metrics);
    free(metrics);
}
