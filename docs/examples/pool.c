// A pool of short-lived threads, recorded by scoped-lane: threads come with the work and go with it.
//
//     pool [-b BURSTS] [-t THREADS] [-j JOBS] [-n NUMBERS]
//
// Jobs come in bursts; each burst starts threads that end when there is no job left. A job counts the primes among the next
// numbers, and each size of job has a region of its own. Every thread has a row in the recording, with the CPU time it used,
// although only a few live at once; the rings they record to are passed on. What is printed is the same in every run.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <scoped_lane.h>

static sl_region_t session, burst, small_job, large_job;
static int bursts = 20, threads = 6, jobs = 40, numbers = 500;

// The jobs of one burst. Threads take them in order.
struct work {
    pthread_mutex_t lock;
    int burst, next_job, next_thread;
    long primes;
};

static int is_prime(long number)
{
    for (long i = 2; i * i <= number; i++)
        if (number % i == 0)
            return 0;
    return number > 1;
}

// Every fourth job is four times as large.
static long run_job(long number)
{
    sl_region_t size = number % 4 ? small_job : large_job;
    long first = number * 4 * numbers, count = number % 4 ? numbers : 4 * numbers, primes = 0;
    sl_enter(size);
    for (long i = 0; i < count; i++)
        primes += is_prime(first + i);
    sl_exit(size);
    return primes;
}

static void *thread_main(void *argument)
{
    struct work *work = argument;
    long primes = 0;
    pthread_mutex_lock(&work->lock);
    char name[48];
    snprintf(name, sizeof name, "burst %d, thread %d", work->burst, work->next_thread++);
    sl_thread_name(name);
    while (work->next_job < jobs) {
        long number = (long)work->burst * jobs + work->next_job++;
        pthread_mutex_unlock(&work->lock);
        primes += run_job(number);
        pthread_mutex_lock(&work->lock);
    }
    work->primes += primes;
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

static long run_burst(int number)
{
    struct work work = {.lock = PTHREAD_MUTEX_INITIALIZER, .burst = number};
    pthread_t *all = calloc((size_t)threads, sizeof *all);
    int started = 0;
    sl_enter(burst);
    while (all && started < threads && pthread_create(&all[started], NULL, thread_main, &work) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(all[i], NULL);
    sl_exit(burst);
    free(all);
    return started == threads ? work.primes : -1;
}

int main(int argc, char **argv)
{
    for (int option; (option = getopt(argc, argv, "b:t:j:n:")) != -1;) {
        switch (option) {
        case 'b': bursts = atoi(optarg); break;
        case 't': threads = atoi(optarg); break;
        case 'j': jobs = atoi(optarg); break;
        case 'n': numbers = atoi(optarg); break;
        default: return 2;
        }
    }
    session = sl_region("scope_profiler.session");
    burst = sl_region("burst");
    small_job = sl_region("small job");
    large_job = sl_region("large job");
    sl_thread_name("main");
    sl_enter(session);
    long primes = 0;
    for (int i = 0; i < bursts; i++) {
        long found = run_burst(i);
        if (found < 0) {
            fprintf(stderr, "pool: cannot start %d threads\n", threads);
            return 1;
        }
        primes += found;
    }
    sl_exit(session);
    printf("%d bursts, %d threads, %d jobs: %ld primes\n", bursts, bursts * threads, bursts * jobs, primes);
    return 0;
}
