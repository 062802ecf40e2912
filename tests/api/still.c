// still: lanes that stand still, each in a way of its own, and one that goes on. tests/end looks at what is told of them.
//
//     thread computes   in "long computation", on the processor all the time
//     thread waits      in "wait for message" until a line comes on stdin; then in "another wait"
//     thread blocks     steps task "blocker", which is in "blocking step" and never gives its thread back
//     thread works      enters and leaves "work" every few milliseconds; after a second line it stays in it
//     task sleeper      suspended in "await"
//     thread idle       in no region
//
// It says "still" when all are where they stay, a line for each line that it takes, and ends when stdin does.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

static volatile int over, hold;
static int message[2], never[2];
static int in_place;

static void is_in_place(void)
{
    __atomic_add_fetch(&in_place, 1, __ATOMIC_RELEASE);
}

static void pause_ms(long milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000}, NULL);
}

static void wait_on(const int pipe_ends[2])
{
    char byte;
    ssize_t got = read(pipe_ends[0], &byte, 1);
    (void)got;
}

static void *computes(void *unused)
{
    sl_thread_name("computes");
    sl_enter(sl_region("long computation"));
    is_in_place();
    while (!over)
        ;
    return unused;
}

static void *waits(void *unused)
{
    sl_thread_name("waits");
    sl_enter(sl_region("wait for message"));
    is_in_place();
    wait_on(message);
    sl_exit(sl_region("wait for message"));
    sl_enter(sl_region("another wait"));
    printf("went on\n");
    fflush(stdout);
    wait_on(never);
    return unused;
}

static void *blocks(void *unused)
{
    sl_thread_name("blocks");
    sl_task_t task = sl_task_create("fiber", "blocker", "block_main");
    sl_task_step_in(task);
    sl_enter(sl_region("blocking step"));
    is_in_place();
    wait_on(never);
    return unused;
}

static void *works(void *unused)
{
    sl_thread_name("works");
    sl_region_t work = sl_region("work");
    sl_enter(work);
    sl_exit(work);
    is_in_place();
    while (!over) {
        sl_enter(work);
        do
            pause_ms(5);
        while (hold && !over);
        sl_exit(work);
    }
    return unused;
}

static void *idle(void *unused)
{
    sl_thread_name("idle");
    sl_enter(sl_region("once"));
    sl_exit(sl_region("once"));
    is_in_place();
    wait_on(never);
    return unused;
}

int main(void)
{
    static void *(*const mains[])(void *) = {computes, waits, blocks, works, idle};
    enum { THREADS = sizeof mains / sizeof *mains };
    pthread_t threads[THREADS];
    char line[64];
    if (pipe(message) < 0 || pipe(never) < 0)
        return 1;
    sl_task_t sleeper = sl_task_create("fiber", "sleeper", "sleep_main");
    sl_task_step_in(sleeper);
    sl_enter(sl_region("await"));
    sl_task_step_out(sleeper);
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, mains[i], NULL))
            return 1;
    }
    while (__atomic_load_n(&in_place, __ATOMIC_ACQUIRE) < THREADS)
        pause_ms(1);
    printf("still %d\n", sl_is_active());
    fflush(stdout);
    for (int lines = 1; fgets(line, sizeof line, stdin); lines++) {
        hold = lines >= 2;
        if (write(message[1], "", 1) < 0)
            return 1;
    }
    over = 1;
    for (int i = 0; i < THREADS; i++)
        if (mains[i] == works)
            pthread_join(threads[i], NULL);  // the others end with the process
    return 0;
}
