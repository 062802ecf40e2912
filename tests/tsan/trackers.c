// Trackers that threads fill, read, install and uninstall all at once, without a daemon and then with one. ThreadSanitizer
// watches; the counts are checked at the end.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/scoped_lane.h"
#include "tests/place.h"

enum { STEPPERS = 3, ROUNDS = 2000, SHARED = 64 };

static sl_tracker_t tracker;
static atomic_int stop;
static _Atomic sl_task_t shared[SHARED];  // tasks that any thread steps: taken out, stepped, put back

static void call(sl_region_t region)
{
    sl_enter(region);
    sl_exit(region);
}

static void *step(void *number)
{
    sl_region_t region = sl_region("stepper");
    unsigned seed = (unsigned)(uintptr_t)number;
    for (int i = 0; i < ROUNDS; i++) {
        sl_task_t task = sl_task_create("fiber", "of one thread", "step");
        sl_task_step_in(task);
        call(region);
        sl_task_t other = atomic_exchange(&shared[rand_r(&seed) % SHARED], 0);
        sl_task_step_in(other);
        call(region);
        sl_task_step_out(other);
        if (i % 16 == 0)
            sl_task_rename(other, "renamed, and so often that it no longer fits the sixty-four bytes of its row");
        if (other && i % 64 == 0) {
            sl_task_finish(other);
            other = sl_task_create("fiber", "of all threads", "step");
        }
        if (other)
            atomic_store(&shared[rand_r(&seed) % SHARED], other);
        sl_task_step_out(task);
        sl_task_finish(task);
        if (i % 128 == 0)
            sl_thread_name(i % 256 ? "even" : "a name that is longer than the sixty-four bytes that a row has room for");
    }
    return NULL;
}

static void *short_life(void *unused)
{
    call(sl_region("short"));
    return unused;
}

static void *spawn(void *unused)
{
    for (int i = 0; i < 200; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, short_life, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return unused;
}

static void *look(void *unused)
{
    while (!atomic_load(&stop)) {
        size_t count;
        free(sl_tracker_threads(tracker, &count));
        free(sl_tracker_task(tracker, 0));
        struct sl_snapshot *snapshot = sl_tracker_snapshot(tracker, 0);
        for (size_t i = 0; i < snapshot->tasks.count; i++)
            if (snapshot->tasks.running_ns[i] < 0 || snapshot->tasks.suspended_ns[i] < 0)
                abort();
        free(snapshot);
    }
    return unused;
}

static void *come_and_go(void *unused)
{
    while (!atomic_load(&stop)) {
        sl_tracker_t mine = sl_tracker_create();
        sl_tracker_install(mine);
        sl_tracker_current_thread(mine);
        sl_task_finish(sl_task_create("task", "t", "t"));
        sl_tracker_uninstall(mine);
        sl_tracker_destroy(mine);
    }
    return unused;
}

int main(void)
{
    struct place place;
    place_make(&place);
    char path[128];
    snprintf(path, sizeof path, "%s/register.sock", place.directory);
    unlink(path);
    close(place.listener);
    tracker = sl_tracker_create();
    sl_tracker_install(tracker);
    for (int i = 0; i < SHARED; i++)
        shared[i] = sl_task_create("fiber", "of all threads", "step");
    pthread_t steppers[STEPPERS], spawner, looker, comer;
    pthread_create(&looker, NULL, look, NULL);
    pthread_create(&comer, NULL, come_and_go, NULL);
    for (uintptr_t i = 0; i < STEPPERS; i++)
        pthread_create(&steppers[i], NULL, step, (void *)i);
    pthread_create(&spawner, NULL, spawn, NULL);
    pthread_join(spawner, NULL);
    place.listener = place_listen(place.directory);
    int attached = sl_attach();
    pthread_create(&spawner, NULL, spawn, NULL);
    for (int i = 0; i < STEPPERS; i++)
        pthread_join(steppers[i], NULL);
    pthread_join(spawner, NULL);
    atomic_store(&stop, 1);
    pthread_join(looker, NULL);
    pthread_join(comer, NULL);
    size_t threads, tasks;
    free(sl_tracker_threads(tracker, &threads));
    struct sl_task_record *rows = sl_tracker_tasks(tracker, &tasks);
    size_t own = 0, wrong = 0;
    for (size_t i = 0; i < tasks; i++) {
        if (strcmp(rows[i].name, "of one thread") != 0)
            continue;
        own++;
        wrong += rows[i].done_ns == SL_UNKNOWN || rows[i].steps < 1;
    }
    free(rows);
    sl_tracker_destroy(tracker);
    place_remove(&place);
    printf("attached: %s; %zu threads, %zu tasks, %zu of steppers, %zu wrong\n", attached == 0 ? "yes" : "no", threads,
           tasks, own, wrong);
    // the one who looks makes no call that would make it known
    return attached != 0 || threads != STEPPERS + 400 + 2 || own != STEPPERS * ROUNDS || wrong;
}
