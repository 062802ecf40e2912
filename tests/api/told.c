// told: does what its standard input says, a line at a time, and says "done N" after line N:
//
//   enter NAME   exit NAME   next NAME   calls NAME COUNT
//   pace NAME COUNT   so many calls, a million a second
//   idle NAME COUNT   so many threads called "pool" that make a call of it and then wait for ever
//   busy NAME COUNT   so many threads called "burner" that never leave it, nor let go of their processor
//   hold NAME COUNT   so many fibers that are suspended in it
//   step NAME MS   a step of fiber "handler" with a call of it that lasts so long; after that it is suspended
//
// told -s THREADS: so many threads and a task on each make calls as fast as they can until the input ends; then one line:
// how many calls were made.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

static void *wait_for_ever(void *name)
{
    sl_region_t region = sl_region(name);
    sl_thread_name("pool");
    sl_enter(region);
    sl_exit(region);
    for (;;)
        pause();
    return NULL;
}

static void *burn(void *name)
{
    sl_thread_name("burner");
    sl_enter(sl_region(name));
    for (volatile long i = 0;; i++)
        ;
    return NULL;
}

static void start(void *(*function)(void *), const char *name, int count)
{
    char *copy = strdup(name);
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, function, copy);
        pthread_detach(thread);
    }
}

static void hold(sl_region_t region, int count)
{
    for (int i = 0; i < count; i++) {
        sl_task_t task = sl_task_create("fiber", "held", "holder");
        sl_task_step_in(task);
        sl_enter(region);
        sl_task_step_out(task);
    }
}

static void step(sl_region_t region, int milliseconds)
{
    static sl_task_t task;
    static int made;
    if (!made++)
        task = sl_task_create("fiber", "handler", "handle");
    sl_task_step_in(task);
    sl_enter(region);
    nanosleep(&(struct timespec){.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000L}, NULL);
    sl_exit(region);
    sl_task_step_out(task);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void pace(sl_region_t region, int count)
{
    int64_t begin_ns = now_ns();
    for (int i = 0; i < count; i++) {
        sl_enter(region);
        sl_exit(region);
        while (i % 100 == 99 && now_ns() - begin_ns < i * INT64_C(1000))
            ;
    }
}

static void obey(const char *word, const char *name, int count)
{
    sl_region_t region = sl_region(name);
    if (strcmp(word, "enter") == 0)
        sl_enter(region);
    if (strcmp(word, "exit") == 0)
        sl_exit(region);
    if (strcmp(word, "next") == 0)
        sl_next(region);
    if (strcmp(word, "idle") == 0)
        start(wait_for_ever, name, count);
    if (strcmp(word, "busy") == 0)
        start(burn, name, count);
    if (strcmp(word, "pace") == 0)
        pace(region, count);
    if (strcmp(word, "hold") == 0)
        hold(region, count);
    if (strcmp(word, "step") == 0)
        step(region, count);
    for (int i = 0; strcmp(word, "calls") == 0 && i < count; i++) {
        sl_enter(region);
        sl_exit(region);
    }
}

static int over;

static void *spin(void *calls)
{
    sl_region_t outer = sl_region("outer"), inner = sl_region("inner"), last = sl_region("last");
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        sl_task_t task = sl_task_create("fiber", "spinning", NULL);
        sl_enter(outer);
        sl_task_step_in(task);
        sl_enter(outer);
        for (int i = 0; i < 100; i++) {
            sl_enter(inner);
            sl_next(last);
            sl_exit(last);
        }
        sl_exit(outer);
        sl_task_step_out(task);
        sl_task_finish(task);
        sl_exit(outer);
        *(long *)calls += 202;
    }
    return NULL;
}

static int spin_all(int count)
{
    pthread_t threads[64];
    long calls[64] = {0}, sum = 0;
    for (int i = 0; i < count && i < 64; i++)
        pthread_create(&threads[i], NULL, spin, &calls[i]);
    while (getchar() != EOF)
        ;
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < count && i < 64; i++) {
        pthread_join(threads[i], NULL);
        sum += calls[i];
    }
    printf("%ld\n", sum);
    return 0;
}

int main(int argc, char **argv)
{
    char line[256], word[16], name[64];
    if (argc == 3 && strcmp(argv[1], "-s") == 0)
        return spin_all(atoi(argv[2]));
    for (int number = 1; fgets(line, sizeof line, stdin); number++) {
        int count = 0;
        if (sscanf(line, "%15s %63s %d", word, name, &count) < 2)
            return 2;
        obey(word, name, count);
        printf("done %d\n", number);
        fflush(stdout);
    }
    return 0;
}
