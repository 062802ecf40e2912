// churn [-n THREADS] [-a AT_ONCE] [-w]: THREADS threads over time, AT_ONCE of them alive at once. Thread number i calls itself
// "t<i>" and makes 1 + i % 7 calls of region "work". Prints a line when every thread has ended: how many threads, how many
// calls. With -w it then waits until its standard input ends.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <scoped_lane.h>

enum { AT_ONCE_MAX = 8192, STACK_BYTES = 64 << 10 };

static sl_region_t work;
static pthread_barrier_t all_alive;
static unsigned long calls;

static void *be_short(void *number)
{
    uintptr_t i = (uintptr_t)number;
    char name[24];
    snprintf(name, sizeof name, "t%lu", (unsigned long)i);
    sl_thread_name(name);
    for (uintptr_t call = 0; call < 1 + i % 7; call++) {
        sl_enter(work);
        sl_exit(work);
        __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    }
    pthread_barrier_wait(&all_alive);
    return NULL;
}

int main(int argc, char **argv)
{
    static pthread_t threads[AT_ONCE_MAX];
    unsigned long count = 1000, at_once = 64;
    int option, wait = 0;
    while ((option = getopt(argc, argv, "n:a:w")) != -1) {
        switch (option) {
        case 'n': count = strtoul(optarg, NULL, 10); break;
        case 'a': at_once = strtoul(optarg, NULL, 10); break;
        case 'w': wait = 1; break;
        default: return 2;
        }
    }
    if (optind != argc || at_once < 1 || at_once > AT_ONCE_MAX)
        return 2;

    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    work = sl_region("work");
    for (unsigned long begun = 0; begun < count;) {
        unsigned long group = count - begun < at_once ? count - begun : at_once;
        pthread_barrier_init(&all_alive, NULL, (unsigned)group);
        for (unsigned long i = 0; i < group; i++)
            if (pthread_create(&threads[i], &attributes, be_short, (void *)(uintptr_t)(begun + i)) != 0)
                return 1;
        for (unsigned long i = 0; i < group; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&all_alive);
        begun += group;
    }
    printf("%lu %lu\n", count, calls);
    fflush(stdout);
    if (wait)
        while (getchar() != EOF)
            continue;
    return 0;
}
