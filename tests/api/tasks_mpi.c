// Tasks on threads on ranks: each rank has THREADS threads that step TASKS tasks each from one queue, so that tasks wander over the
// rank's threads. A task's job lasts over all its steps. What each task itself counts goes to $SL_TALLY/tasks.RANK, a line a task:
//
//     name  steps  calls  ns waited between steps, at least and at most  ns from first step to last, at least and at most
//
//     tasks_mpi THREADS TASKS STEPS [FILE]
//
// With FILE, all wait in mid-job until it is there.
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

struct task {
    sl_task_t handle;
    char name[48];
    int step;
    long calls;
    int64_t began_before, began_after;  // around the enter of its job
    int64_t out_before, out_after;      // around the latest step out
    int64_t waited_least, waited_most, job_least, job_most;
};

static sl_region_t job, part, allreduce;
static int threads, tasks, steps;
static struct task *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static int next_task, over;

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void burn(int64_t ns)
{
    for (int64_t end_ns = now_ns() + ns; now_ns() < end_ns;)
        ;
}

// One step of a state machine, as a coroutine without a stack of its own makes them.
static void step(struct task *task)
{
    int64_t in_before = now_ns();
    sl_task_step_in(task->handle);
    int64_t in_after = now_ns();
    if (task->step == 0) {
        task->began_before = now_ns();
        sl_enter(job);
        task->began_after = now_ns();
    } else {
        task->waited_least += in_before - task->out_after;
        task->waited_most += in_after - task->out_before;
    }
    sl_enter(part);
    burn(20000);
    sl_exit(part);
    task->calls++;
    if (++task->step == steps) {
        int64_t before = now_ns();
        sl_exit(job);
        task->job_most = now_ns() - task->began_before;
        task->job_least = before - task->began_after;
        task->calls++;
    }
    task->out_before = now_ns();
    sl_task_step_out(task->handle);
    task->out_after = now_ns();
    if (task->step == steps)
        sl_task_finish(task->handle);
}

static struct task *take(void)
{
    pthread_mutex_lock(&lock);
    struct task *task = next_task < threads * tasks ? &all[next_task++] : NULL;
    pthread_mutex_unlock(&lock);
    return task;
}

// A round: every task makes one step.
static void *thread_main(void *name)
{
    sl_thread_name(name);
    for (;;) {
        pthread_barrier_wait(&barrier);
        if (over)
            return NULL;
        for (struct task *task; (task = take());)
            step(task);
        pthread_barrier_wait(&barrier);
    }
}

static void tell(int rank)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/tasks.%d", getenv("SL_TALLY") ? getenv("SL_TALLY") : ".", rank);
    FILE *file = fopen(path, "w");
    if (!file)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = 0; i < threads * tasks; i++)
        fprintf(file, "%s %d %ld %lld %lld %lld %lld\n", all[i].name, all[i].step, all[i].calls, (long long)all[i].waited_least,
                (long long)all[i].waited_most, (long long)all[i].job_least, (long long)all[i].job_most);
    fclose(file);
}

int main(int argc, char **argv)
{
    int rank, level, sum;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 4)
        return 2;
    threads = atoi(argv[1]);
    tasks = atoi(argv[2]);
    steps = atoi(argv[3]);
    job = sl_region("job");
    part = sl_region("part");
    allreduce = sl_region("allreduce");
    sl_thread_name("main");
    all = calloc((size_t)(threads * tasks), sizeof *all);
    for (int i = 0; i < threads * tasks; i++) {
        snprintf(all[i].name, sizeof all[i].name, "rank%d-task%d", rank, i);
        all[i].handle = sl_task_create("coroutine", all[i].name, "job_steps");
    }
    pthread_t team[threads];
    char names[threads][32];
    pthread_barrier_init(&barrier, NULL, (unsigned)threads + 1);
    for (int i = 0; i < threads; i++) {
        snprintf(names[i], sizeof names[i], "worker %d", i);
        pthread_create(&team[i], NULL, thread_main, names[i]);
    }
    sl_enter(sl_region("scope_profiler.session"));
    for (int i = 0; i < steps; i++) {
        if (argc > 4 && i == steps / 2)
            while (access(argv[4], F_OK) != 0)
                usleep(10000);
        next_task = 0;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        sl_enter(allreduce);
        MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        sl_exit(allreduce);
    }
    over = 1;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < threads; i++)
        pthread_join(team[i], NULL);
    sl_exit(sl_region("scope_profiler.session"));
    tell(rank);
    MPI_Finalize();
    return 0;
}
