// scenes [-t THREADS] [-w] SCENE…: does with the library what a program can do, by the exported symbols (where the testpoints of the
// hot path are), and keeps a log of it in $SL_TALLY/<pid>.log, mapped shared, so that it survives kill -9: each entry is
// marked begun before and done after the library's function. tests/end/scenes.py reads it and knows what must be in the file.
//
//   -t THREADS  each scene in so many threads at once, not in the main thread
//   -w          after the scenes a line "done"; then waits until standard input ends, and plays "plain" once more
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define sl_enter sl_enter_inline_
#define sl_exit  sl_exit_inline_
#define sl_next  sl_next_inline_
#include <scoped_lane.h>

#include "proto/segment.h"
#undef sl_enter
#undef sl_exit
#undef sl_next
void sl_enter(sl_region_t region);
void sl_exit(sl_region_t region);
void sl_next(sl_region_t region);

enum { ENTRIES = 1 << 18, REGIONS = 16, NAME = 32, FULL_DEPTH = 1152 };

// The numbers are those of scenes.py.
enum op {
    OP_ENTER = 1,
    OP_EXIT,
    OP_NEXT,
    OP_CUT,      // the lane is cut back to depth `argument`
    OP_VOID,     // a call that was begun and is lost, as a handler that leaves an append by longjmp leaves it
    OP_TASK,     // task `lane` is made, its name "task-<lane>"
    OP_FINISH,   // task `lane` is over
    OP_RENAME,   // task `lane` becomes "renamed-<lane>" and very long
    OP_THREAD,   // this thread becomes "thread-<argument>"
    OP_UNSEEN,   // this thread may have no ring: its calls are lost, and not seen while they are open
};

struct entry {
    uint32_t op, argument;
    int32_t lane;  // task index, -1 the bare thread
    uint32_t thread;
    uint32_t begun, done;
};

struct log {
    uint64_t pid, entries;
    char regions[REGIONS][NAME];
    struct entry entry[ENTRIES];
};

static struct log *plays;
static sl_region_t regions[REGIONS];
static __thread int32_t lane = -1;

// ---- the log

static void open_log(void)
{
    char path[4096];
    const char *directory = getenv("SL_TALLY");
    snprintf(path, sizeof path, "%s/%d.log", directory ? directory : ".", (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof *plays) < 0)
        abort();
    plays = mmap(NULL, sizeof *plays, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (plays == MAP_FAILED)
        abort();
    plays->pid = (uint64_t)getpid();
}

static struct entry *begin(enum op op, uint32_t argument, int32_t on)
{
    uint64_t number = __atomic_fetch_add(&plays->entries, 1, __ATOMIC_RELAXED);
    if (number >= ENTRIES)
        abort();
    struct entry *entry = &plays->entry[number];
    entry->op = op;
    entry->argument = argument;
    entry->lane = on;
    entry->thread = (uint32_t)gettid();
    __atomic_store_n(&entry->begun, 1, __ATOMIC_RELEASE);
    return entry;
}

static void done(struct entry *entry)
{
    __atomic_store_n(&entry->done, 1, __ATOMIC_RELEASE);
}

static void enter(int region)
{
    struct entry *entry = begin(OP_ENTER, (uint32_t)region, lane);
    sl_enter(regions[region]);
    done(entry);
}

static void leave(int region)
{
    struct entry *entry = begin(OP_EXIT, (uint32_t)region, lane);
    sl_exit(regions[region]);
    done(entry);
}

static void next(int region)
{
    struct entry *entry = begin(OP_NEXT, (uint32_t)region, lane);
    sl_next(regions[region]);
    done(entry);
}

static void call(int region)
{
    enter(region);
    leave(region);
}

// ---- scenes of calls

static void plain(void)
{
    for (int i = 0; i < 20; i++) {
        enter(0);
        call(1);
        enter(2);
        next(3);
        call(0);
        next(1);
        leave(1);
        leave(0);
    }
}

// Has the daemon answered, and was its answer read? The header of the segment says so.
static int is_welcome(void)
{
    char line[4096];
    unsigned long start = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps && !start && fgets(line, sizeof line, maps))
        if (strstr(line, "/" SL_NAME_PREFIX))
            start = strtoul(line, NULL, 16);
    if (maps)
        fclose(maps);
    return !start || ((const struct sl_segment *)start)->wakeups;
}

static void names(void)
{
    char name[512];
    call(0);
    for (int i = 0; i < 40 || (i < 4000 && !is_welcome()); i++) {
        memset(name, 'n', sizeof name - 1);
        name[sizeof name - 1] = 0;
        snprintf(name, 16, "%p.%d", (void *)&name, i);
        name[strlen(name)] = 'n';
        sl_region_at(name, __FILE__, i + 1);
    }
    sl_rank(3);
}

static void deep(void)
{
    for (int i = 0; i < FULL_DEPTH + 5; i++) {
        enter(i % 4);
        if (i % 200 == 199)
            next(i % 4);
    }
    next(4);
    for (int i = FULL_DEPTH + 5; i-- > 0;)
        leave(i == FULL_DEPTH + 4 ? 4 : i % 4);
}

static void crossing(void)
{
    enter(0);
    enter(1);
    enter(2);
    leave(1);  // crosses 2
    leave(0);  // crosses it again: it is held to be abandoned
    enter(3);
    enter(4);
    leave(3);
    leave(4);
}

static void unmatched(void)
{
    leave(5);
    next(6);
    leave(6);
}

static void jump(void)
{
    static __thread sigjmp_buf back;
    enter(0);
    sl_mark_t mark = sl_mark();
    if (sigsetjmp(back, 0) == 0) {
        enter(1);
        enter(2);
        siglongjmp(back, 1);
    }
    struct entry *entry = begin(OP_CUT, 1, lane);
    sl_unwind(mark);
    done(entry);
    leave(0);
}

// What a handler finds when it interrupts an append, and what it leaves when it leaves that by longjmp.
static void handlers(void)
{
    call(0);
    struct sl_producer *self = sl_self_;
    if (!self->ring)
        return;
    enter(1);
    self->busy = sl_frame_() + 4096;
    leave(1);
    self->busy = 0;
    struct entry *entry = begin(OP_VOID, 0, lane);
    self->busy = sl_frame_() - 65536;
    sl_bump(&self->ring->produced);
    call(2);  // finds it, and counts it as lost; until then it is in flight
    done(entry);
}

// More than a ring of 16K can hold, while nobody drains it: the daemon $SL_STOP is stopped meanwhile.
static void full(void)
{
    const char *text = getenv("SL_STOP");
    pid_t daemon = text ? atoi(text) : 0;
    for (int round = 0; round < 12; round++) {
        if (daemon > 0)
            kill(daemon, SIGSTOP);
        for (int i = 0; i < 700; i++)
            call(i % 4);
        if (daemon > 0)
            kill(daemon, SIGCONT);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);  // an idle daemon wants to be woken
    }
}

// ---- scenes of tasks

static void step(sl_task_t task, void (*play)(void))
{
    int32_t outer = lane;
    sl_task_step_in(task);
    lane = (int32_t)(uint32_t)task;
    play();
    sl_task_step_out(task);
    lane = outer;
}

static sl_task_t make(const char *kind)
{
    static uint32_t made;
    uint32_t number = __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    char name[32];
    struct entry *entry = begin(OP_TASK, number, -1);
    snprintf(name, sizeof name, "task-%u", number);
    sl_task_t task = sl_task_create(kind, name, "scene");
    entry->lane = (int32_t)(uint32_t)task;
    done(entry);
    return task;
}

static void finish(sl_task_t task)
{
    struct entry *entry = begin(OP_FINISH, 0, (int32_t)(uint32_t)task);
    sl_task_finish(task);
    done(entry);
}

static void rename_task(sl_task_t task)
{
    char name[1000];
    memset(name, 'x', sizeof name);
    name[snprintf(name, sizeof name, "renamed-%u-", (uint32_t)task)] = 'x';
    name[sizeof name - 1] = 0;
    struct entry *entry = begin(OP_RENAME, 0, (int32_t)(uint32_t)task);
    sl_task_rename(task, name);
    done(entry);
}

static void open_two(void)
{
    enter(7);
    enter(8);
}

static void leave_one(void)
{
    leave(8);
}

static void twenty_deep(void)
{
    for (int i = 0; i < 20; i++)
        enter(i % 4);
    for (int i = 20; i-- > 0;)
        leave(i % 4);
}

static __thread sl_task_t inner;

static void nest(void)
{
    enter(5);
    step(inner, plain);
    leave(5);
}

static void tasks(void)
{
    sl_task_t outer = make("task"), other = make("greenlet");
    inner = make("fiber");
    step(other, open_two);
    rename_task(other);
    step(outer, nest);
    step(outer, twenty_deep);
    step(other, leave_one);
    rename_task(other);
    finish(other);  // with a call open
    step(inner, plain);
    finish(inner);
    finish(outer);
}

static void *in_thread(void *task)
{
    sl_task_t *moving = task;
    step(*moving, leave_one);
    return NULL;
}

// A task that is entered here and left there.
static void moving(void)
{
    pthread_t thread;
    sl_task_t task = make("task");
    step(task, open_two);
    if (pthread_create(&thread, NULL, in_thread, &task) == 0)
        pthread_join(thread, NULL);
    finish(task);
}

// Until a row comes back: its handle names the same place again.
static void recycling(void)
{
    uint32_t first = 0;
    call(0);
    for (int i = 0; i < 3000; i++) {
        sl_task_t task = make("task");
        step(task, leave_one);  // unmatched
        finish(task);
        uint32_t place = (uint32_t)(task >> 32);
        if (i == 0)
            first = place;
        else if (place == first)
            return;
        if (i > 100)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

// ---- scenes of threads

static pthread_key_t late;

static void record_late(void *rounds)
{
    uintptr_t left = (uintptr_t)rounds;
    call(9);
    if (left > 1)
        pthread_setspecific(late, (void *)(left - 1));
}

static void name_thread(uint32_t number, int length)
{
    char name[300];
    memset(name, 't', sizeof name);
    name[snprintf(name, sizeof name, "thread-%u-", number)] = 't';
    name[length] = 0;
    struct entry *entry = begin(OP_THREAD, number, -1);
    sl_thread_name(name);
    done(entry);
}

static void *short_life(void *argument)
{
    uint32_t number = (uint32_t)(uintptr_t)argument;
    call(0);
    name_thread(number, number % 2 ? 40 : 290);
    if (number % 3 == 0)
        pthread_setspecific(late, (void *)(uintptr_t)2);
    plain();
    if (number % 3 == 1)
        enter(10);
    if (number % 4 == 0) {
        inner = make("task");
        step(inner, plain);
    }
    return NULL;
}

static void threads(void)
{
    static uint32_t made;
    pthread_t thread[4];
    for (int round = 0; round < 5; round++) {
        int together = round < 3 ? 1 : 4;
        for (int i = 0; i < together; i++) {
            uintptr_t number = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
            if (pthread_create(&thread[i], NULL, short_life, (void *)number) != 0)
                abort();
        }
        for (int i = 0; i < together; i++)
            pthread_join(thread[i], NULL);
    }
}

static void *calls_only(void *unused)
{
    (void)unused;
    done(begin(OP_UNSEEN, 0, -1));
    plain();
    return NULL;
}

// The segment cannot grow any more: a thread without a ring.
static void no_ring(void)
{
    struct rlimit before, none;
    pthread_t thread;
    call(0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    none = (struct rlimit){4096, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
    if (pthread_create(&thread, NULL, calls_only, NULL) == 0)
        pthread_join(thread, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
}

// More extents than the first table of them has room for.
static void tables(void)
{
    enum { LENGTH = 40000 };
    static char name[LENGTH];
    call(0);
    for (int i = 0; i < 110; i++) {
        memset(name, 'x', LENGTH - 1);
        name[snprintf(name, LENGTH, "%d-", i)] = 'x';
        sl_region(name);
    }
    call(1);
}

// ---- together

static const struct scene {
    const char *name;
    void (*play)(void);
} scenes[] = {{"plain", plain},   {"names", names},         {"deep", deep},       {"crossing", crossing}, {"unmatched", unmatched},
              {"jump", jump},     {"handlers", handlers},   {"full", full},       {"tasks", tasks},       {"moving", moving},
              {"threads", threads}, {"recycling", recycling}, {"no_ring", no_ring}, {"tables", tables}};

static char **chosen;

static void play_all(void)
{
    for (char **name = chosen; *name; name++) {
        const struct scene *scene = scenes;
        while (scene < scenes + sizeof scenes / sizeof *scenes && strcmp(scene->name, *name) != 0)
            scene++;
        if (scene == scenes + sizeof scenes / sizeof *scenes)
            abort();
        scene->play();
    }
}

static void *play_in_thread(void *unused)
{
    (void)unused;
    play_all();
    return NULL;
}

int main(int argc, char **argv)
{
    int option, count = 0, wait = 0;
    pthread_t thread[16];
    while ((option = getopt(argc, argv, "t:w")) != -1) {
        switch (option) {
        case 't': count = atoi(optarg); break;
        case 'w': wait = 1; break;
        default: return 2;
        }
    }
    if (optind == argc || count > 16)
        return 2;
    chosen = argv + optind;
    open_log();
    for (int i = 0; i < REGIONS; i++) {
        snprintf(plays->regions[i], NAME, "region %d", i);
        regions[i] = sl_region(plays->regions[i]);
    }
    pthread_key_create(&late, record_late);
    for (int i = 0; i < count; i++)
        if (pthread_create(&thread[i], NULL, play_in_thread, NULL) != 0)
            abort();
    for (int i = 0; i < count; i++)
        pthread_join(thread[i], NULL);
    if (count == 0)
        play_all();
    if (wait) {
        puts("done");
        fflush(stdout);
        while (getchar() != EOF)
            ;
        plain();
    }
    return 0;
}
