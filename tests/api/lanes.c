// What programs do with lanes, one deed a run: tests/end/test_lanes.py looks at what is made of it.
//
//     lanes moved       a coroutine is resumed on another thread between enter and exit
//     lanes astray      jobs are begun on one thread and ended on another, without a task or without a step
//     lanes crossing    regions are left in the wrong order
//     lanes burst N     two threads make N calls each as fast as they can, when told by a line on stdin
//     lanes fork        a child goes on in the region its parent has open, when told by a line on stdin
//     lanes crowd A B   A threads at once, B over time
//     lanes spin        ten threads, one of which burns CPU time for two seconds
//     lanes tag         five threads in one region, at once
//     lanes rounds T R  T threads make R rounds of outer{inner} inside main's session, each round begun by all at once; waits at its end
//     lanes across      a thread is in a call when told by a line on stdin that a new part of the run has begun
//     lanes left        main returns while a detached thread is in a call
//
// What the test cannot know is printed. Where it says "waits", the program ends when stdin does.
#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void call(sl_region_t region)
{
    sl_enter(region);
    sl_exit(region);
}

static void wait_for_eof(void)
{
    printf("waits\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
}

// Runs a function on a thread of its own, to its end.
static void on_thread(const char *name, void (*function)(void *), void *argument);

struct errand {
    const char *name;
    void (*function)(void *);
    void *argument;
};

static void *errand_main(void *errand_of)
{
    const struct errand *errand = errand_of;
    sl_thread_name(errand->name);
    errand->function(errand->argument);
    return NULL;
}

static void on_thread(const char *name, void (*function)(void *), void *argument)
{
    struct errand errand = {name, function, argument};
    pthread_t thread;
    if (pthread_create(&thread, NULL, errand_main, &errand) != 0)
        abort();
    pthread_join(thread, NULL);
}

// -- moved

static sl_region_t work, inner;
static sl_task_t coroutine;

static void begin_work(void *unused)
{
    (void)unused;
    sl_task_step_in(coroutine);
    sl_enter(work);
    call(inner);
    sl_task_step_out(coroutine);
}

static void end_work(void *unused)
{
    (void)unused;
    sl_task_step_in(coroutine);
    call(inner);
    sl_exit(work);
    sl_task_step_out(coroutine);
}

static void moved(void)
{
    coroutine = sl_task_create("coroutine", "job", "work()");
    on_thread("one", begin_work, NULL);
    on_thread("two", end_work, NULL);
    sl_task_finish(coroutine);
}

// -- astray: threads that live on, so that a look at the live tables shows what is open where

static pthread_barrier_t barrier;

static void *begin_astray(void *unused)
{
    (void)unused;
    sl_thread_name("one");
    sl_enter(work);  // no task: the call is this thread's
    sl_task_step_in(coroutine);
    sl_enter(inner);  // the task's
    sl_task_step_out(coroutine);
    pthread_barrier_wait(&barrier);  // now the other
    pthread_barrier_wait(&barrier);  // now the test
    return NULL;
}

static void *end_astray(void *unused)
{
    (void)unused;
    sl_thread_name("two");
    call(sl_region("own"));
    pthread_barrier_wait(&barrier);
    sl_exit(work);
    sl_exit(inner);  // the step was forgotten
    sl_exit(inner);
    sl_exit(sl_region("never entered"));
    wait_for_eof();
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void astray(void)
{
    pthread_t one, two;
    coroutine = sl_task_create("coroutine", "job", "work()");
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&one, NULL, begin_astray, NULL);
    pthread_create(&two, NULL, end_astray, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
}

// -- crossing

static void crossing(void)
{
    for (int i = 0; i < 3; i++) {
        sl_enter(work);
        sl_enter(inner);
        sl_exit(work);
        sl_exit(inner);
    }
    call(work);
}

// -- burst

static long burst_calls;

static void *burst_main(void *name)
{
    sl_thread_name(name);
    sl_enter(inner);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (long i = 0; i < burst_calls; i++)
        call(work);
    sl_exit(inner);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);  // until the test has looked
    return NULL;
}

static void burst(long calls)
{
    pthread_t threads[2];
    burst_calls = calls;
    pthread_barrier_init(&barrier, NULL, 3);
    pthread_create(&threads[0], NULL, burst_main, "one");
    pthread_create(&threads[1], NULL, burst_main, "two");
    pthread_barrier_wait(&barrier);
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF)
        exit(2);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    printf("%ld calls each\n", calls + 1);
    wait_for_eof();
    pthread_barrier_wait(&barrier);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

// -- fork

static void in_child(void)
{
    pid_t child = fork();
    if (child == 0) {
        sl_exit(work);  // the parent's
        for (int i = 0; i < 3; i++)
            call(inner);
        printf("child %d, recording %d\n", (int)getpid(), sl_is_active());
        exit(0);
    }
    waitpid(child, NULL, 0);
}

// -- crowd

static pthread_barrier_t crowd_here;
static unsigned long crowd_without_time;

static void *crowd_main(void *together)
{
    call(work);
    if (together) {
        pthread_barrier_wait(&crowd_here);
        pthread_barrier_wait(&crowd_here);
    }
    call(inner);
    // What a hypervisor took may be taken off a thread that began just then: Linux says 0 ns of 2 in 400,000 threads that spun for 8 us.
    __atomic_fetch_add(&crowd_without_time, clock_ns(CLOCK_THREAD_CPUTIME_ID) == 0, __ATOMIC_RELAXED);
    return NULL;
}

static void crowd(long at_once, long over_time)
{
    pthread_t *threads = calloc((size_t)at_once, sizeof *threads);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&crowd_here, NULL, (unsigned)at_once + 1);
    for (long i = 0; i < at_once; i++)
        if (!threads || pthread_create(&threads[i], &small, crowd_main, threads) != 0)
            abort();
    pthread_barrier_wait(&crowd_here);
    wait_for_eof();
    pthread_barrier_wait(&crowd_here);
    for (long i = 0; i < at_once; i++)
        pthread_join(threads[i], NULL);
    for (long i = 0; i < over_time; i++) {
        if (pthread_create(&threads[0], &small, crowd_main, NULL) != 0)
            abort();
        pthread_join(threads[0], NULL);
    }
    printf("%lu without processor time\n", crowd_without_time);
    free(threads);
}

// -- spin

static sem_t entered;

static void *spin_main(void *spins)
{
    sl_thread_name(spins ? "spinner" : "idler");
    sl_enter(spins ? work : inner);
    sem_post(&entered);
    for (int64_t end_ns = clock_ns(CLOCK_MONOTONIC) + INT64_C(2000000000); spins && clock_ns(CLOCK_MONOTONIC) < end_ns;)
        ;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    sl_exit(spins ? work : inner);
    return NULL;
}

static void spin(void)
{
    pthread_t threads[10];
    pthread_barrier_init(&barrier, NULL, 11);
    sem_init(&entered, 0, 0);
    for (int i = 0; i < 10; i++) {  // one after another: a thread that registers beside others waits for them, in CPU time too
        pthread_create(&threads[i], NULL, spin_main, i == 0 ? threads : NULL);
        sem_wait(&entered);
    }
    pthread_barrier_wait(&barrier);
    printf("cpu %" PRId64 " ns\n", clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    wait_for_eof();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 10; i++)
        pthread_join(threads[i], NULL);
    printf("cpu at the end %" PRId64 " ns\n", clock_ns(CLOCK_PROCESS_CPUTIME_ID));
}

// -- tag

static void *tag_main(void *unused)
{
    (void)unused;
    sl_region_t tag = sl_region("tag");
    sl_enter(tag);
    pthread_barrier_wait(&barrier);  // all are in it at once
    call(inner);
    sl_exit(tag);
    return NULL;
}

static void tag(void)
{
    pthread_t threads[5];
    pthread_barrier_init(&barrier, NULL, 5);
    for (int i = 0; i < 5; i++)
        pthread_create(&threads[i], NULL, tag_main, NULL);
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
}

// -- rounds

static sl_region_t outer;
static long round_count;

static void *rounds_main(void *name)
{
    sl_thread_name(name);
    for (long i = 0; i < round_count; i++) {
        pthread_barrier_wait(&barrier);
        sl_enter(outer);
        call(inner);
        sl_exit(outer);
    }
    return NULL;
}

static void rounds(long count, long each)
{
    pthread_t threads[count];
    char names[count][32];
    outer = sl_region_at("outer", __FILE__, __LINE__);
    sl_region_t session = sl_region("scope_profiler.session");
    sl_thread_name("MainThread");
    round_count = each;
    pthread_barrier_init(&barrier, NULL, (unsigned)count);
    sl_enter(session);
    for (long i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "worker-%ld", i);
        pthread_create(&threads[i], NULL, rounds_main, names[i]);
    }
    for (long i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    wait_for_eof();
    sl_exit(session);
}

// -- across

static void *across_main(void *unused)
{
    (void)unused;
    sl_thread_name("one");
    for (int i = 0; i < 3; i++)
        call(work);
    sl_enter(work);
    pthread_barrier_wait(&barrier);  // it is in the call
    pthread_barrier_wait(&barrier);  // a new part has begun
    call(inner);
    sl_exit(work);
    call(work);
    return NULL;
}

static void later(void *unused)
{
    (void)unused;
    call(work);
}

static void across(void)
{
    pthread_t one;
    sl_thread_name("main");
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&one, NULL, across_main, NULL);
    pthread_barrier_wait(&barrier);
    printf("ready\n");
    fflush(stdout);
    if (getchar() == EOF)
        exit(2);
    pthread_barrier_wait(&barrier);
    pthread_join(one, NULL);
    on_thread("two", later, NULL);
}

// -- left

static void *left_main(void *unused)
{
    sl_thread_name("left behind");
    sl_enter(work);
    call(inner);
    pthread_barrier_wait(&barrier);
    while (pause())
        ;
    return unused;
}

static void leave(void)
{
    pthread_t thread;
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, left_main, NULL);
    pthread_detach(thread);
    pthread_barrier_wait(&barrier);
}

int main(int argc, char **argv)
{
    const char *deed = argc > 1 ? argv[1] : "";
    long first = argc > 2 ? atol(argv[2]) : 0, second = argc > 3 ? atol(argv[3]) : 0;
    work = sl_region("work");
    inner = sl_region("inner");
    if (strcmp(deed, "moved") == 0) {
        moved();
    } else if (strcmp(deed, "astray") == 0) {
        astray();
    } else if (strcmp(deed, "crossing") == 0) {
        crossing();
    } else if (strcmp(deed, "burst") == 0) {
        burst(first);
    } else if (strcmp(deed, "fork") == 0) {
        sl_enter(work);
        printf("ready\n");
        fflush(stdout);
        if (getchar() == EOF)
            return 2;
        in_child();
        sl_exit(work);
    } else if (strcmp(deed, "crowd") == 0) {
        crowd(first, second);
    } else if (strcmp(deed, "spin") == 0) {
        spin();
    } else if (strcmp(deed, "tag") == 0) {
        tag();
    } else if (strcmp(deed, "rounds") == 0) {
        rounds(first, second);
    } else if (strcmp(deed, "across") == 0) {
        across();
    } else if (strcmp(deed, "left") == 0) {
        leave();
    } else {
        return 2;
    }
    return 0;
}
