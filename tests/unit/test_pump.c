// The pump on a segment that the test's own process records, moment by moment: rows that change while they are read.
#include <pthread.h>
#include <time.h>

#include "client/scoped_lane.h"
#include "services/daemon.h"
#include "tests/recorded.h"

static struct daemon the_daemon;
static struct run run = {.daemon = &the_daemon, .spool = {.fd = -1}};  // without a spool calls are dropped, rows are taken
static struct client pumped;

static void begin(void)
{
    recorded_begin();
    model_init(&run.model, SL_CLOCK_TSC, 16, 0);
}

static void end(void)
{
    model_finish(&run.model);
    recorded_end();
}

TestSuite(pump, .init = begin, .fini = end, .timeout = 60);

static void pump(void)
{
    recorded_look(0);
    if (!pumped.run) {
        pumped = (struct client){.daemon = &the_daemon, .run = &run, .segment = recorded, .pid = getpid(), .socket = -1, .pidfd = -1};
        pumped.process = model_add_process(&run.model, &(struct process_facts){.pid = (uint32_t)getpid()});
    }
    pumped.tasks_scanned_ns = 0;
    pump_client(&pumped, false);
    cr_assert_not(pumped.broken);
}

Test(pump, a_task_row_that_is_seen_just_before_it_is_done_is_taken_once_it_is)
{
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_task_step_in(task);
    sl_task_step_out(task);
    sl_task_finish(task);
    struct sl_task_row *row = recorded_task(0);
    row->state = SL_ROW_LIVE;  // its version has risen, its state not yet changed
    pump();
    cr_assert_eq(model_task(pumped.process, 0)->facts.done, 0, "it has not ended yet");
    cr_assert_eq(row->state, SL_ROW_LIVE);
    row->state = SL_ROW_DONE;
    pump();
    cr_assert_eq(model_task(pumped.process, 0)->facts.done, row->done);
    cr_assert_eq(row->state, SL_ROW_SPOOLED, "its row may be another's");
}

Test(pump, a_task_whose_end_was_asked_for_in_its_step_goes_on_until_the_step_ends)
{
    sl_task_t task = sl_task_create("task", "t", "t");
    sl_task_step_in(task);
    sl_task_finish(task);
    sl_task_rename(task, "renamed");
    pump();
    cr_assert_eq(model_task(pumped.process, 0)->facts.done, 0);
    sl_task_step_out(task);
    pump();
    cr_assert_neq(model_task(pumped.process, 0)->facts.done, 0);
    cr_assert_eq(model_task(pumped.process, 0)->facts.steps, 1);
}

static void *record_a_call(void *unused)
{
    sl_region_t region = sl_region("a");
    sl_enter(region);
    sl_exit(region);
    return unused;
}

Test(pump, a_thread_row_that_is_seen_just_before_it_is_done_gets_its_exact_end)
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, record_a_call, NULL), 0);
    pthread_join(thread, NULL);
    struct sl_thread_row *row = recorded_thread(0);
    row->state = SL_ROW_LIVE;
    pump();
    cr_assert_eq(model_thread(pumped.process, 0)->facts.end, 0);
    row->state = SL_ROW_DONE;
    struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 5000 && row->state != SL_ROW_SPOOLED; i++) {  // once the kernel knows the thread no more
        pump();
        nanosleep(&pause, NULL);
    }
    cr_assert_eq(row->state, SL_ROW_SPOOLED);
    cr_assert_eq(model_thread(pumped.process, 0)->facts.end, row->end);
    cr_assert_eq(model_thread(pumped.process, 0)->facts.cpu_exact, 1);
    cr_assert_eq(model_thread(pumped.process, 0)->facts.cpu_ns, row->cpu_ns);
}
