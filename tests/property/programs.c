// Random programs against the oracle: threads that enter and leave regions, make, step, finish and pass on tasks, on rings that fill up
// and under a counter that jumps, and a daemon that drains when it likes. Every field of every row and every call has to be
// what oracle.h says, exactly. The clock is a fake one; threads are real, but one acts at a time.
//
//     programs [-n PROGRAMS] [-s FIRST SEED] [-j JOBS] [-v]
//
// Each program runs in a process of its own. A failure names its seed: programs -s SEED -n 1 -v shows what it did.
#include <getopt.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "client/scoped_lane.h"
#include "tests/property/witness.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PROGRAMS = 1000 };
#else
enum { PROGRAMS = 10000 };
#endif
enum { PROGRAMS_LONG = 200000, PROGRAMS_ENOUGH = 1000, ACTORS = 12, MARKS = 8, FAILURES_SHOWN = 3, ROUNDS_FULL = 50 };

// ---- the fake clock, and what else the library asks of its surroundings

static uint64_t now, reads, drift;  // ticks; how often they were read; by how much each reading moves them on
static uint64_t cpu_ns;

uint64_t fake_ticks(void);
uint32_t __wrap_facts_clock_kind(void);
int64_t __wrap_facts_clock_ns(clockid_t clock);

uint64_t fake_ticks(void)
{
    uint64_t ticks = now;
    now += drift;
    reads++;
    return ticks;
}

uint32_t __wrap_facts_clock_kind(void)
{
    return SL_CLOCK_TSC;
}

int64_t __wrap_facts_clock_ns(clockid_t clock)
{
    return clock == CLOCK_THREAD_CPUTIME_ID ? (int64_t)cpu_ns : 1;
}

// ---- chance

static uint64_t seed, chance_state;

static uint64_t chance(void)
{
    uint64_t z = chance_state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint32_t below(uint32_t limit)
{
    return (uint32_t)(chance() % limit);
}

static bool once_in(uint32_t times)
{
    return below(times) == 0;
}

// ---- what happens, and what is said of it

enum op {
    OP_ENTER, OP_EXIT, OP_EXIT_ANY, OP_NEXT, OP_PAIRS, OP_DEEP, OP_NULL, OP_MARK, OP_UNWIND,
    OP_CREATE, OP_STEP_IN, OP_STEP_OUT, OP_FINISH, OP_RENAME, OP_CURRENT,
    OP_START, OP_END, OP_NAME,
    OP_DRAIN, OP_LOOK, OP_CROWD, OP_JUMP,
    OP_COUNT, OP_VAST
};

struct actor {
    pthread_t thread;
    sem_t go;
    int number;     // in o.threads
    uint32_t tid;
    uint64_t ident;
    bool alive;
    uint32_t rounds, left_full;  // enters that were too deep after an exit that was: the library draws conclusions from many
};

static struct actor actors[ACTORS];
static struct actor *ending;  // has handed over and returns
static uint32_t weights[OP_COUNT], weight_sum, ops_left;
static bool verbose, crowded, vast;
static struct {
    sl_mark_t mark;
    int task, actor;  // whose lane; the task's, else the actor's
    uint32_t depth;
} marks[MARKS];
static uint32_t mark_count;
static uint32_t ops_done;
static struct {
    uint64_t operations, open_at_once, places[O_PLACE_COUNT];
} *reached;  // by all programs, in memory they share

static void fail(const char *format, ...)
{
    va_list arguments;
    fflush(stdout);
    va_start(arguments, format);
    fprintf(stderr, "programs: seed %" PRIu64 ", after %u operations: ", seed, ops_done);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    _exit(1);
}

__attribute__((format(printf, 2, 3))) static void tell(const struct actor *self, const char *format, ...)
{
    va_list arguments;
    if (!verbose)
        return;
    va_start(arguments, format);
    printf("%6u  at %" PRIu64 "  thread %d  ", ops_done, now, (int)(self - actors));
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
}

static struct o_thread *thread_of(const struct actor *self)
{
    return &o.threads[self->number];
}

// ---- room: the segment cannot grow while it is "crowded"

static void crowd(bool on)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    witness_look();
    if (on)
        limit.rlim_cur = segment_header(&w.segment)->size;
    setrlimit(RLIMIT_FSIZE, &limit);
    crowded = on;
}

// ---- operations: the library's, then the oracle's

// The clock before an operation. Where the library may read it only once, each reading moves it on.
static void advance(const struct actor *self, bool one_reading)
{
    const struct o_thread *thread = thread_of(self);
    now += once_in(4) ? 0 : once_in(50) ? below(1000000) : below(100);
    drift = one_reading && thread->registered && (!o_has_ring(thread) || thread->announced) ? below(3) : 0;
    reads = 0;
}

static void one_reading_at_most(const char *what)
{
    if (drift && reads > 1)
        fail("%s reads the clock %" PRIu64 " times", what, reads);
    drift = 0;
}

static const char *thread_comm(void)
{
    static char comm[32];
    prctl(PR_GET_NAME, comm);
    return comm;
}

// The library has just met this thread, or will do so in the operation at `when`.
static void registered(struct actor *self, uint64_t when)
{
    struct o_thread *thread = thread_of(self);
    if (thread->registered)
        return;
    int ring = witness_ring_of(o.indices);
    bool has_row = witness_thread(o.indices) != NULL;
    if ((ring == NONE || !has_row) && !crowded)
        fail("thread %u has no %s although there was room", o.indices, ring == NONE ? "ring" : "row");
    for (int i = 0; i < ACTORS && ring != NONE; i++)
        if (actors[i].alive && &actors[i] != self && thread_of(&actors[i])->registered && thread_of(&actors[i])->ring == ring)
            fail("ring %d is given to two threads", ring);
    o_register(thread, ring, ring == NONE ? 0 : segment_ring(&w.segment, (uint32_t)ring)->records, has_row, when);
    thread->name = o_text(thread_comm());
}

static sl_region_t some_region(void)
{
    return o.regions[below((uint32_t)o.region_count)].id;
}

// The lane's overflow block, if it came with the operation just made.
static void see_overflow(struct actor *self)
{
    struct o_lane *lane = o_lane(thread_of(self));
    if (!lane || !o_wants_overflow(lane))
        return;
    const struct o_thread *thread = thread_of(self);
    const struct sl_lane *shared = thread->current == NONE ? sl_ring_lane(segment_ring(&w.segment, (uint32_t)thread->ring))
                                                           : &witness_task(o.tasks[thread->current].index)->lane;
    if (shared->overflow)
        o_overflow(lane);
    else if (!crowded)
        fail("a lane has no overflow block although there was room");
}

// Where a stack is full, what was entered in a deeper frame than the present one is taken for left behind by a longjmp. So all enters
// have the same frame, deeper than that of the nexts.
__attribute__((noipa)) static void enter_here(sl_region_t region)
{
    char frame[512];
    __asm__ __volatile__("" : : "r"(frame) : "memory");
    sl_enter(region);
    __asm__ __volatile__("" : : "r"(frame) : "memory");
}

// Enters, or goes on with.
__attribute__((noipa)) static void do_enter(struct actor *self, sl_region_t region, bool next)
{
    const struct o_lane *before = thread_of(self)->registered ? o_lane(thread_of(self)) : NULL;
    uint32_t beyond = before ? before->beyond : 0;
    advance(self, !next || (before && before->held));
    uint64_t when = now;
    if (next)
        sl_next(region);
    else
        enter_here(region);
    one_reading_at_most(next ? "sl_next" : "sl_enter");
    registered(self, when);
    if (next) {
        o_next(thread_of(self), region, when);
        return;
    }
    see_overflow(self);
    o_enter(thread_of(self), region, when);
    if (before && before->beyond > beyond) {
        self->rounds += self->left_full;
        self->left_full = 0;
    }
}

static void do_exit(struct actor *self, sl_region_t region)
{
    const struct o_lane *lane = thread_of(self)->registered ? o_lane(thread_of(self)) : NULL;
    advance(self, true);
    uint64_t when = now;
    if (lane && lane->beyond)
        self->left_full = 1;
    sl_exit(region);
    one_reading_at_most("sl_exit");
    registered(self, when);
    o_exit(thread_of(self), region, when);
}

static sl_region_t top_region(const struct actor *self)
{
    const struct o_lane *lane = thread_of(self)->registered ? o_lane(thread_of(self)) : NULL;
    return lane && lane->held && !lane->beyond ? lane->stack[lane->held - 1].region : some_region();
}

// So that the library does not begin to doubt what stands on a stack that stays full.
static bool may_enter(const struct actor *self)
{
    const struct o_lane *lane = thread_of(self)->registered ? o_lane(thread_of(self)) : NULL;
    return !lane || lane->held + 1 < lane->room || self->rounds < ROUNDS_FULL;
}

#define IN_PLACE __attribute__((always_inline)) static inline

IN_PLACE void deep(struct actor *self)
{
    uint32_t count = vast || once_in(3) ? 1000 + below(300) : 10 + below(200);
    tell(self, "enters %u calls", count);
    for (uint32_t i = 0; i < count && may_enter(self); i++)
        do_enter(self, some_region(), false);
    if (vast || once_in(2))
        return;
    tell(self, "leaves %u calls", count);
    for (uint32_t i = 0; i < count; i++)
        do_exit(self, top_region(self));
}

IN_PLACE void pairs(struct actor *self)
{
    uint32_t count = once_in(4) ? 200 + below(600) : 1 + below(20);
    sl_region_t region = some_region();
    tell(self, "%u pairs of region %u", count, region);
    for (uint32_t i = 0; i < count && may_enter(self); i++) {
        do_enter(self, region, false);
        do_exit(self, region);
    }
}

static void do_null(struct actor *self)
{
    tell(self, "null handles");
    sl_enter(0);
    sl_exit(0);
    sl_next(0);
    sl_unwind(0);
    sl_task_step_in(0);
    sl_task_step_out(0);
    sl_task_finish(0);
    sl_task_rename(0, "nobody");
    if (sl_region(NULL) != 0)
        fail("a region without a name");
}

static void do_mark(struct actor *self)
{
    advance(self, false);
    sl_mark_t mark = sl_mark();
    registered(self, now);
    const struct o_thread *thread = thread_of(self);
    const struct o_lane *lane = o_lane(thread_of(self));
    tell(self, "mark %" PRIx64, mark);
    if (!lane)
        return;
    uint32_t at = mark_count < MARKS ? mark_count++ : below(MARKS);
    marks[at].mark = mark;
    marks[at].task = thread->current;
    marks[at].actor = self->number;
    marks[at].depth = lane->held + lane->beyond;
}

static void do_unwind(struct actor *self)
{
    if (!mark_count)
        return;
    uint32_t at = below(mark_count);
    const struct o_thread *thread = thread_of(self);
    if (marks[at].task == NONE && marks[at].actor != self->number)
        return;  // bare threads' lanes are not told apart by their marks
    tell(self, "unwinds to %u of task %d", marks[at].depth, marks[at].task);
    sl_unwind(marks[at].mark);
    if (thread->registered && thread->current == marks[at].task)
        o_unwind(thread_of(self), marks[at].depth);
}

// ---- tasks

static char *some_text(void)
{
    static const char *const pieces[] = {"a", "worker ", "ü", "€", "😀", "\xff", "\xc3", "\xe2\x82", "\xed\xa0\x80", "\xf0\x9f\x98", "0"};
    uint32_t limit = once_in(5) ? 300 : once_in(3) ? 40 : 6;
    uint32_t count = below(limit);
    char *text = calloc(8, count + 1), *to = text;
    for (uint32_t i = 0; i < count; i++)
        to = stpcpy(to, pieces[once_in(3) ? below(sizeof pieces / sizeof *pieces) : below(2)]);
    return text;
}

static const char *some_kind(void)
{
    static const char *const kinds[] = {"task", "greenlet", "fiber"};
    return kinds[crowded ? 0 : below(3)];
}

static void do_create(struct actor *self)
{
    char *name = some_text(), *coro_name = some_text();
    const char *kind = some_kind();
    advance(self, false);
    uint64_t when = now;
    sl_task_t handle = sl_task_create(kind, name, coro_name);
    registered(self, when);
    if (!handle)
        fail("no task");
    const struct sl_task_row *row = witness_task((uint32_t)o.task_count);
    bool rowless = !row;
    if (rowless && !crowded)
        fail("task %d has no row although there was room", o.task_count);
    int number = o_create(thread_of(self), handle, rowless, kind, o_text(name), o_text(coro_name), when);
    o.tasks[number].crowded_names = crowded;
    if (row && row->version > 1)
        o_reach(O_rows_passed_on);
    tell(self, "makes task %d%s", number, rowless ? " without a row" : "");
    free(name);
    free(coro_name);
}

// Mostly a recent one that still lives; now and then a finished one.
static int some_task(void)
{
    if (!o.task_count)
        return NONE;
    int number = (int)below((uint32_t)o.task_count);
    for (int i = 0; i < 4 && o.tasks[number].over && !once_in(8); i++)
        number = (int)below((uint32_t)o.task_count);
    return number;
}

static void do_step_in(struct actor *self)
{
    int number = some_task();
    if (number == NONE)
        return;
    tell(self, "steps into task %d", number);
    advance(self, true);
    uint64_t when = now;
    sl_task_step_in(o.tasks[number].handle);
    one_reading_at_most("sl_task_step_in");
    registered(self, when);
    o_step_in(thread_of(self), number, when);
}

static void do_step_out(struct actor *self)
{
    int number = thread_of(self)->registered && !once_in(10) ? thread_of(self)->current : some_task();
    if (number == NONE)
        return;
    tell(self, "steps out of task %d", number);
    advance(self, true);
    uint64_t when = now;
    sl_task_step_out(o.tasks[number].handle);
    one_reading_at_most("sl_task_step_out");
    registered(self, when);
    o_step_out(thread_of(self), number, when);
}

static void do_finish(struct actor *self)
{
    int number = some_task();
    if (number == NONE)
        return;
    tell(self, "finishes task %d", number);
    advance(self, true);
    uint64_t when = now;
    sl_task_finish(o.tasks[number].handle);
    one_reading_at_most("sl_task_finish");
    if (o.tasks[number].rowless)
        return;
    registered(self, when);
    o_finish(thread_of(self), number, when);
}

static void do_rename(struct actor *self)
{
    int number = some_task();
    if (number == NONE)
        return;
    char *name = some_text();
    tell(self, "renames task %d", number);
    advance(self, false);
    uint64_t when = now;
    sl_task_rename(o.tasks[number].handle, name);
    if (!o.tasks[number].rowless) {
        registered(self, when);
        if (o.tasks[number].over) {
            o_stale(thread_of(self));
        } else {
            free(o.tasks[number].name);
            o.tasks[number].name = o_text(name);
            o.tasks[number].crowded_names |= crowded;
        }
    }
    free(name);
}

static void do_current(struct actor *self)
{
    sl_task_t wanted = thread_of(self)->current == NONE ? 0 : o.tasks[thread_of(self)->current].handle;
    EQUAL("the current task", sl_task_current(), wanted, "thread %d", self->number);
}

static void do_name(struct actor *self)
{
    char *name = some_text();
    tell(self, "names itself");
    advance(self, false);
    sl_thread_name(name);
    registered(self, now);
    struct o_thread *thread = thread_of(self);
    if (thread->has_row) {
        free(thread->name);
        thread->name = o_text(name);
        thread->named = true;
        thread->crowded_name = crowded;
    }
    free(name);
}

// ---- the daemon

static void count_open(void)
{
    uint64_t open = 0;
    for (int i = 0; i < o.task_count; i++)
        open += o.tasks[i].lane.held;
    if (open > reached->open_at_once)
        reached->open_at_once = open;
}

// What a reader sees now, without taking anything.
static void look(void)
{
    count_open();
    witness_look();
    read_strings();
    for (int i = 0; i < ACTORS; i++) {
        if (!actors[i].alive)
            continue;
        struct o_thread *thread = thread_of(&actors[i]);
        if (!thread->registered)
            continue;
        if (o_has_ring(thread))
            check_lane(sl_ring_lane(segment_ring(&w.segment, (uint32_t)thread->ring)), SL_THREAD_ENTRIES, &thread->lane, UINT32_MAX,
                       thread->index, "thread", thread->index);
        struct sl_thread_row *row = witness_thread(thread->index);
        if (!row != !thread->has_row)
            fail("thread %u: its row has %s", thread->index, row ? "come" : "gone");
        if (row)
            check_thread_row(row, thread, actors[i].ident, actors[i].tid);
    }
    for (int i = 0; i < o.task_count; i++) {
        struct o_task *task = &o.tasks[i];
        if (task->spooled || task->rowless)
            continue;
        struct sl_task_row *row = witness_task(task->index);
        if (!row)
            fail("task %u: its row has gone", task->index);
        check_task_row(row, task, task->crowded_names);
    }
    check_rings();
}

// Takes finished rows, as the daemon does once its spool has them.
static void take_rows(void)
{
    for (int i = 0; i < o.task_count; i++) {
        struct o_task *task = &o.tasks[i];
        if (task->rowless || !task->over || task->spooled || once_in(4))
            continue;
        witness_task(task->index)->state = SL_ROW_SPOOLED;
        task->spooled = true;
    }
    for (uint32_t i = 0; i < w.segment.thread_extents; i++) {
        struct sl_thread_row *rows = (struct sl_thread_row *)(void *)(w.segment.map.base + w.segment.threads[i].offset);
        for (uint32_t j = 0; j < w.segment.threads[i].count; j++)
            if (rows[j].state == SL_ROW_DONE && !once_in(4))
                rows[j].state = SL_ROW_SPOOLED;
    }
}

static void do_drain(struct actor *self)
{
    tell(self, "the daemon drains");
    look();
    for (uint32_t i = 0; i < w.segment.slot_count; i++)
        if (!once_in(5))
            drain_ring(i, 2 + below(once_in(2) ? 10 : 4094));
    take_rows();
}

// ---- threads

static void hand_over(struct actor *self, struct actor *to)
{
    if (self == to)
        return;
    sem_post(&to->go);
    while (sem_wait(&self->go) < 0)
        ;
}

// The first actor waits for the end of another.
static void bury(void)
{
    if (!ending)
        return;
    struct actor *dead = ending;
    struct o_thread *thread = thread_of(dead);
    ending = NULL;
    pthread_join(dead->thread, NULL);
    dead->alive = false;
    o_thread_end(thread, now, cpu_ns);
    if (!thread->registered || !thread->has_row)
        return;
    struct sl_thread_row *row = witness_thread(thread->index);
    if (!row)
        fail("thread %u: its row has gone at its end", thread->index);
    check_thread_row(row, thread, dead->ident, dead->tid);
}

static void act(struct actor *self);

static void *actor_main(void *argument)
{
    struct actor *self = argument;
    while (sem_wait(&self->go) < 0)
        ;
    self->tid = (uint32_t)syscall(SYS_gettid);
    self->ident = (uint64_t)pthread_self();
    act(self);
    return NULL;
}

static void do_start(struct actor *self)
{
    struct actor *actor = actors;
    while (actor < actors + ACTORS && actor->alive)
        actor++;
    if (actor == actors + ACTORS || o.thread_count == THREADS)
        return;
    tell(self, "starts thread %d", (int)(actor - actors));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    actor->number = (int)(o_thread_new() - o.threads);
    actor->alive = true;
    actor->rounds = actor->left_full = 0;
    if (pthread_create(&actor->thread, &attributes, actor_main, actor) != 0)
        fail("no thread");
    pthread_attr_destroy(&attributes);
}

// ---- the program

static void do_jump(struct actor *self)
{
    switch (below(vast ? 2 : 6)) {
    case 0: now -= below(2000) < now ? below(2000) : 0; break;
    case 1: now += below(1u << 30); break;
    case 2: now += UINT64_C(1) << (40 + below(9)); break;
    case 3: now += (UINT64_C(1) << 47) - 2 + below(4); break;
    case 4: now -= now > UINT64_C(1) << 50 ? UINT64_C(1) << 48 : 0; break;
    default: now += once_in(4) ? UINT64_C(1) << 56 : below(1000);
    }
    cpu_ns += below(1000000);
    tell(self, "the clock jumps");
}

static enum op some_op(void)
{
    if (!ops_done)
        return OP_ENTER;  // makes the segment
    if (ops_done == 1 && vast)
        return OP_VAST;
    uint32_t at = below(weight_sum);
    enum op op = 0;
    while (at >= weights[op])
        at -= weights[op++];
    return op;
}

// More than 70,000 calls open at once.
IN_PLACE void open_very_many(struct actor *self)
{
    for (int i = 0; i < 70; i++) {
        do_create(self);
        int number = o.task_count - 1;
        sl_task_step_in(o.tasks[number].handle);
        o_step_in(thread_of(self), number, now);
        for (int j = 0; j < 1040; j++)
            do_enter(self, some_region(), false);
        if (once_in(3) && may_enter(self))
            do_enter(self, some_region(), false);
        sl_task_step_out(o.tasks[number].handle);
        o_step_out(thread_of(self), number, now);
    }
}

__attribute__((noipa)) static void perform(struct actor *self, enum op op)
{
    sl_region_t region;
    switch (op) {
    case OP_ENTER:
        if (!may_enter(self))
            break;
        region = some_region();
        tell(self, "enters %u", region);
        do_enter(self, region, false);
        break;
    case OP_EXIT:
        region = top_region(self);
        tell(self, "leaves %u", region);
        do_exit(self, region);
        break;
    case OP_EXIT_ANY:
        region = some_region();
        tell(self, "leaves any %u", region);
        do_exit(self, region);
        break;
    case OP_NEXT:
        region = some_region();
        tell(self, "goes on with %u", region);
        do_enter(self, region, true);
        break;
    case OP_PAIRS: pairs(self); break;
    case OP_DEEP: deep(self); break;
    case OP_NULL: do_null(self); break;
    case OP_MARK: do_mark(self); break;
    case OP_UNWIND: do_unwind(self); break;
    case OP_CREATE: do_create(self); break;
    case OP_STEP_IN: do_step_in(self); break;
    case OP_STEP_OUT: do_step_out(self); break;
    case OP_FINISH: do_finish(self); break;
    case OP_RENAME: do_rename(self); break;
    case OP_CURRENT: do_current(self); break;
    case OP_START: do_start(self); break;
    case OP_NAME: do_name(self); break;
    case OP_DRAIN: do_drain(self); break;
    case OP_LOOK: look(); break;
    case OP_CROWD:
        tell(self, crowded ? "there is room again" : "there is no room");
        crowd(!crowded);
        break;
    case OP_JUMP: do_jump(self); break;
    case OP_VAST: open_very_many(self); break;
    case OP_END:
    case OP_COUNT: break;
    }
    __asm__ __volatile__("");  // no jump into the last call: it would have another frame
}

static struct actor *some_actor(struct actor *self)
{
    if (ops_done < 2 || !once_in(6))
        return self;
    struct actor *chosen = &actors[below(ACTORS)];
    return chosen->alive ? chosen : self;
}

// Acts until the program is over (the first actor) or this thread's end.
static void act(struct actor *self)
{
    while (ops_left) {
        if (self == actors)
            bury();
        struct actor *next = some_actor(self);
        if (next != self) {
            hand_over(self, next);
            continue;
        }
        enum op op = some_op();
        ops_left--;
        if (op != OP_END) {
            perform(self, op);
        } else if (self != actors) {
            tell(self, "ends");
            ending = self;
            sem_post(&actors[0].go);
            return;
        }
        ops_done++;
    }
    if (self != actors)
        hand_over(self, actors);
    bury();
}

static void choose_weights(void)
{
    static const uint32_t usual[OP_COUNT] = {
        [OP_ENTER] = 30, [OP_EXIT] = 25, [OP_EXIT_ANY] = 5, [OP_NEXT] = 5, [OP_PAIRS] = 5, [OP_DEEP] = 1, [OP_NULL] = 1, [OP_MARK] = 3,
        [OP_UNWIND] = 2, [OP_CREATE] = 8, [OP_STEP_IN] = 15, [OP_STEP_OUT] = 14, [OP_FINISH] = 5, [OP_RENAME] = 2, [OP_CURRENT] = 2,
        [OP_START] = 4, [OP_END] = 2, [OP_NAME] = 2, [OP_DRAIN] = 3, [OP_LOOK] = 2, [OP_CROWD] = 1, [OP_JUMP] = 3,
    };
    for (int op = 0; op < OP_COUNT; op++) {
        weights[op] = once_in(6) ? 0 : once_in(6) ? usual[op] * 5 : usual[op];
        weight_sum += weights[op];
    }
    weights[OP_ENTER]++;
    weights[OP_STEP_IN]++;
    weight_sum += 2;
}

static void name_regions(void)
{
    static const char *const names[] = {"a", "b", "c", "solve", "exchange", "", "ü", "a > b"};
    int count = 1 + (int)below(8);
    for (int i = 0; i < count; i++) {
        sl_region_t id = once_in(3) ? sl_region_at(names[i], "x.c", i) : sl_region(names[i]);
        o.regions[o.region_count++] = (struct o_region){.id = id, .name = names[i]};
    }
}

static void run_program(void)
{
    chance_state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    static const char *const rings[] = {"16K", "16K", "64K", "256K"};
    setenv("SCOPED_LANE_RING", rings[below(4)], 1);
    signal(SIGXFSZ, SIG_IGN);
    now = (UINT64_C(1) << (20 + below(36))) + below(1000);
    vast = seed % 200 == 7;
    choose_weights();
    ops_left = once_in(20) ? 2000 : 20 + below(400);
    for (int i = 0; i < ACTORS; i++)
        sem_init(&actors[i].go, 0, 0);
    actors[0] = (struct actor){.go = actors[0].go, .alive = true, .tid = (uint32_t)getpid(), .ident = (uint64_t)pthread_self()};
    o_thread_new();
    name_regions();

    model_init(&w.model, SL_CLOCK_MONOTONIC, 0, 0);
    w.process = model_add_process(&w.model, &(struct process_facts){.pid = (uint32_t)getpid(), .clock = SL_CLOCK_MONOTONIC});
    act(actors);
    if (crowded)
        crowd(false);
    look();
    for (uint32_t i = 0; i < w.segment.slot_count; i++)
        drain_ring(i, 4096);
    check_rings();
    check_sums();
    __atomic_fetch_add(&reached->operations, ops_done, __ATOMIC_RELAXED);
    for (int i = 0; i < O_PLACE_COUNT; i++)
        __atomic_fetch_add(&reached->places[i], o.reached[i], __ATOMIC_RELAXED);
}

// ---- many programs

static int run_in_child(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        run_program();
        fflush(stdout);
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        ;
    if (WIFSIGNALED(status))
        fprintf(stderr, "programs: seed %" PRIu64 ": ended by signal %d\n", seed, WTERMSIG(status));
    // nobody answered it; its segment is no use any more
    for (int fd; (fd = accept(place.listener, NULL, NULL)) >= 0;)
        close(fd);
    char path[256];
    int segment = place_segment(&place, child, path);
    if (segment >= 0) {
        close(segment);
        unlink(path);
    }
    return status != 0;
}

static int run_many(uint64_t first, uint64_t count, unsigned job, unsigned jobs)
{
    int failures = 0;
    place_make(&place);
    for (uint64_t i = job; i < count && failures < FAILURES_SHOWN; i += jobs) {
        seed = first + i;
        failures += run_in_child();
    }
    place_remove(&place);
    return failures;
}

// Random programs prove little if they do not come where it is difficult.
static bool reached_all(void)
{
    static const char *const names[] = {
#define NAME(name) #name,
        O_PLACES(NAME)};
    bool all = reached->open_at_once > 70000;
    printf("  %" PRIu64 " operations, up to %" PRIu64 " calls open at once\n", reached->operations, reached->open_at_once);
    for (int i = 0; i < O_PLACE_COUNT; i++) {
        printf("  %-28s %" PRIu64 "\n", names[i], reached->places[i]);
        all &= reached->places[i] > 0;
    }
    return all;
}

int main(int argc, char **argv)
{
    uint64_t count = getenv("SL_LONG") ? PROGRAMS_LONG : PROGRAMS, first = 1;
    unsigned jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    for (int option; (option = getopt(argc, argv, "n:s:j:v")) != -1;) {
        switch (option) {
        case 'n': count = strtoull(optarg, NULL, 10); break;
        case 's': first = strtoull(optarg, NULL, 10); break;
        case 'j': jobs = (unsigned)atoi(optarg); break;
        case 'v': verbose = true; break;
        default: return 2;
        }
    }
    reached = mmap(NULL, sizeof *reached, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (guard_install() < 0 || reached == MAP_FAILED)
        return 2;
    int failed = 0;
    for (unsigned job = 0; job < jobs; job++)
        if (fork() == 0)
            _exit(run_many(first, count, job, jobs) != 0);
    for (int status; wait(&status) > 0;)
        failed |= status != 0;
    if (!failed && count >= PROGRAMS_ENOUGH && !reached_all()) {
        fprintf(stderr, "programs: the generator has not reached all it has to\n");
        failed = 1;
    }
    printf("programs: %" PRIu64 " from seed %" PRIu64 ": %s\n", count, first, failed ? "FAILED" : "all as the oracle says");
    return failed;
}
