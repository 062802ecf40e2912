// Fibers on worker threads, recorded by scoped-lane: each fiber is a lane of its own, whichever thread resumes it.
//
//     fibers [-f FIBERS] [-w WORKERS] [-r ROUNDS] [-n LENGTH] [-c]
//
// Each fiber computes in rounds and hands its thread over after each. Workers take the fiber that has waited longest from one
// queue, so that fibers wander over the threads; regions that a fiber has open wander with it. What is printed is the same in
// every run with the same arguments. -c adds what the workers' own clocks say, to compare the recording with.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <scoped_lane.h>

enum { STACK_BYTES = 64 << 10 };

static sl_region_t session, life, one_round, compute, yield;
static int fibers = 64, workers = 4, rounds = 50, length = 100000, check;

struct fiber {
    ucontext_t context;
    ucontext_t *resumer;  // of the worker that runs it now
    sl_task_t task;
    int number, over;
    uint64_t sum;
    char stack[STACK_BYTES];
};

// All of this under the lock: fibers that wait for a thread, in a ring with room for all, and sums.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct fiber **waiting;
static int first_waiting, waiting_count, living;
static uint64_t sum;
static long resumes;
static int64_t busy_ns;  // by the workers' own clock: from before each resume to after it

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

// -- fibers

static void hand_over(struct fiber *self)
{
    sl_enter(yield);  // entered on this thread, left on the one that resumes us
    swapcontext(&self->context, self->resumer);
    sl_exit(yield);
}

static uint64_t some_numbers(uint64_t state)
{
    sl_enter(compute);
    for (int i = 0; i < length; i++)
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    sl_exit(compute);
    return state >> 32;
}

static void fiber_main(unsigned low, unsigned high)
{
    struct fiber *self = (struct fiber *)((uintptr_t)high << 32 | low);  // makecontext passes ints
    sl_enter(life);
    for (int i = 0; i < rounds; i++) {
        sl_enter(one_round);
        self->sum += some_numbers((uint64_t)self->number * 1000 + (uint64_t)i);
        hand_over(self);
        sl_exit(one_round);
    }
    sl_exit(life);
    self->over = 1;
    setcontext(self->resumer);
}

static void prepare(struct fiber *fiber)
{
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = sizeof fiber->stack;
    makecontext(&fiber->context, (void (*)(void))fiber_main, 2, (unsigned)(uintptr_t)fiber, (unsigned)((uintptr_t)fiber >> 32));
}

static struct fiber *fiber_create(int number)
{
    struct fiber *fiber = calloc(1, sizeof *fiber);
    char name[32];
    if (!fiber)
        return NULL;
    snprintf(name, sizeof name, "fiber %d", number);
    fiber->number = number;
    fiber->task = sl_task_create("fiber", name, "fiber_main");
    prepare(fiber);
    return fiber;
}

// -- workers

// The fiber that has waited longest; NULL when all are over.
static struct fiber *take(void)
{
    struct fiber *fiber = NULL;
    pthread_mutex_lock(&lock);
    while (!waiting_count && living)
        pthread_cond_wait(&changed, &lock);
    if (waiting_count) {
        fiber = waiting[first_waiting];
        first_waiting = (first_waiting + 1) % fibers;
        waiting_count--;
    }
    pthread_mutex_unlock(&lock);
    return fiber;
}

static void put_back(struct fiber *fiber, int64_t spent_ns)
{
    pthread_mutex_lock(&lock);
    resumes++;
    busy_ns += spent_ns;
    if (fiber->over) {
        living--;
        sum += fiber->sum;
        free(fiber);
    } else {
        waiting[(first_waiting + waiting_count++) % fibers] = fiber;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void *worker_main(void *number)
{
    char name[32];
    snprintf(name, sizeof name, "worker %d", (int)(intptr_t)number);
    sl_thread_name(name);
    for (struct fiber *fiber; (fiber = take());) {
        ucontext_t here;
        int64_t start_ns = clock_ns(CLOCK_MONOTONIC);
        sl_task_step_in(fiber->task);  // from here on what is entered and left belongs to the fiber
        fiber->resumer = &here;
        swapcontext(&here, &fiber->context);
        sl_task_step_out(fiber->task);
        int64_t spent_ns = clock_ns(CLOCK_MONOTONIC) - start_ns;
        if (fiber->over)
            sl_task_finish(fiber->task);
        put_back(fiber, spent_ns);
    }
    return NULL;
}

static int options(int argc, char **argv)
{
    for (int option; (option = getopt(argc, argv, "f:w:r:n:c")) != -1;) {
        if (option == '?')
            return -1;
        int *number = option == 'f' ? &fibers : option == 'w' ? &workers : option == 'r' ? &rounds : option == 'n' ? &length : &check;
        *number = optarg ? atoi(optarg) : 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (options(argc, argv) < 0)
        return 2;
    session = sl_region("scope_profiler.session");
    life = sl_region("life");
    one_round = sl_region("round");
    compute = sl_region("compute");
    yield = sl_region("yield");
    sl_thread_name("main");
    sl_enter(session);
    waiting = calloc((size_t)fibers, sizeof *waiting);
    for (living = 0; living < fibers; living++)
        if (!waiting || !(waiting[waiting_count++] = fiber_create(living)))
            return 1;
    pthread_t threads[workers];
    for (int i = 0; i < workers; i++)
        if (pthread_create(&threads[i], NULL, worker_main, (void *)(intptr_t)i) != 0)
            return 1;
    for (int i = 0; i < workers; i++)
        pthread_join(threads[i], NULL);
    free(waiting);
    sl_exit(session);
    printf("%d fibers on %d workers, %d rounds: %ld resumes, sum %016llx\n", fibers, workers, rounds, resumes, (unsigned long long)sum);
    if (check)
        printf("busy %lld ns, cpu %lld ns\n", (long long)busy_ns, (long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID));
    return 0;
}
