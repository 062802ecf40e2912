// signals [-j] [-u] [-f] [-a] [-s SECONDS] [-t THREADS]: threads that record while a timer of each sends it a signal every 100 us, whose
// handler records too. -j: the handler leaves by siglongjmp, out of whatever it met; -u: the thread then unwinds to its mark; -f: it
// calls from the very frame it jumps back to, not from a deeper one; -a: handlers have a stack of their own. It lasts SECONDS, and longer
// where the machine is busy, until each thread got more than 100 signals and, with -j, jumped more than 50 times; a minute at most.
//
// Each thread counts exits begun and exits completed, of both kinds, in single instructions: a jump makes the two differ by at most
// one. When the timers are off it makes TAIL further calls, which have to be recorded whole. Prints one JSON object a thread:
// the counts, and the counters of its ring.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <scoped_lane.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { TAIL = 10000, BURST = 100, THREADS_MAX = 16, STACK = 1 << 16, SIGNALS = 100, JUMPS = 50 };

static sl_region_t outer, a, b, c, handled, inner, tail;
static int jumps, unwinds, flat, alternate;
static double seconds = 1;

static struct self {
    pthread_t thread;
    sigjmp_buf back;
    volatile int may_jump;
    uint64_t begun, completed, jumped, signals;
    char stack[STACK];
} selves[THREADS_MAX];
static __thread struct self *self;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

// The three that count: what is between the two counters may be left by a jump.
#define COUNTED(call)              \
    do {                           \
        sl_bump(&self->begun);     \
        call;                      \
        sl_bump(&self->completed); \
    } while (0)

// siglongjmp lets signals through before it leaves the stack: one that waits comes on top of it, and where the machine is busy another on
// top of that. Those of a stack of their own that is half full return.
static int has_room(void)
{
    char here;
    return !alternate || &here - self->stack > STACK / 2;
}

static void on_signal(int number)
{
    (void)number;
    sl_bump(&self->signals);
    sl_enter(handled);
    sl_enter(inner);
    COUNTED(sl_next(inner));
    COUNTED(sl_exit(inner));
    COUNTED(sl_exit(handled));
    if (jumps && self->may_jump && has_room()) {
        sl_bump(&self->jumped);
        siglongjmp(self->back, 1);
    }
}

static inline __attribute__((always_inline)) void call_once(void)
{
    sl_enter(a);
    sl_enter(b);
    COUNTED(sl_next(c));
    COUNTED(sl_exit(c));
    COUNTED(sl_exit(a));
}

__attribute__((noinline)) static void call_deeper(int levels)
{
    if (levels)
        call_deeper(levels - 1);
    for (int i = 0; i < BURST; i++)
        call_once();
    __asm__ __volatile__("" : : : "memory");  // no tail call: each level has a frame
}

// Keeps the ring from filling up, and the file small: what is looked for here is what handlers do to calls, not what a flood does.
static void wait_for_room(void)
{
    struct sl_ring *ring = sl_self_->ring;
    double deadline = now() + 10;
    while (sl_load_relaxed(&ring->head) - sl_load_relaxed(&ring->tail) > ring->records / 16 && now() < deadline)
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
}

static int goes_on(double end)
{
    double left = end - now();
    return left > 0 || (left > -60 && (self->signals <= SIGNALS || (jumps && self->jumped <= JUMPS)));
}

__attribute__((noinline)) static void call_until(double end)
{
    sl_mark_t mark = sl_mark();
    if (sigsetjmp(self->back, 1) && unwinds)
        sl_unwind(mark);
    while (goes_on(end)) {
        self->may_jump = 0;
        wait_for_room();
        self->may_jump = 1;
        if (flat)
            for (int i = 0; i < 4 * BURST; i++)
                call_once();
        else
            call_deeper(3);
    }
    self->may_jump = 0;
}

static timer_t start_timer(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN};
    event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
    struct itimerspec period = {{0, 100000}, {0, 100000}};
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0 || timer_settime(timer, 0, &period, NULL) < 0) {
        perror("signals: timer");
        exit(1);
    }
    return timer;
}

static void say(const struct sl_ring *ring, uint32_t depth)
{
    char text[1024];
    int length = snprintf(text, sizeof text,
                          "{\"signals\": %llu, \"jumped\": %llu, \"begun\": %llu, \"completed\": %llu, \"produced\": %llu, "
                          "\"unmatched\": %llu, \"abandoned\": %llu, \"crossing\": %llu, \"depth\": %u, \"ring_full\": %llu, "
                          "\"in_signal\": %llu, \"too_deep\": %llu, \"other\": %llu}\n",
                          (unsigned long long)self->signals, (unsigned long long)self->jumped, (unsigned long long)self->begun,
                          (unsigned long long)self->completed, (unsigned long long)ring->produced, (unsigned long long)ring->unmatched,
                          (unsigned long long)ring->abandoned, (unsigned long long)ring->crossing, depth,
                          (unsigned long long)ring->lost[SL_LOST_RING_FULL], (unsigned long long)ring->lost[SL_LOST_IN_SIGNAL],
                          (unsigned long long)ring->lost[SL_LOST_TOO_DEEP],
                          (unsigned long long)(ring->lost[SL_LOST_NO_RING] + ring->lost[SL_LOST_NO_ROW]));
    if (write(1, text, (size_t)length) != length)
        exit(1);
}

static void *run(void *own)
{
    self = own;
    stack_t stack = {.ss_sp = self->stack, .ss_size = STACK};
    if (alternate)
        sigaltstack(&stack, NULL);
    sl_enter(outer);
    timer_t timer = start_timer();
    call_until(now() + seconds);
    timer_delete(timer);
    uint32_t depth = sl_ring_lane(sl_self_->ring)->depth;
    for (int i = 0; i < TAIL; i++) {
        if (i % BURST == 0)
            wait_for_room();
        sl_enter(tail);
        COUNTED(sl_exit(tail));
    }
    COUNTED(sl_exit(outer));
    say(sl_self_->ring, depth);
    return NULL;
}

int main(int argc, char **argv)
{
    int option, threads = 1;
    while ((option = getopt(argc, argv, "jufas:t:")) != -1) {
        switch (option) {
        case 'j': jumps = 1; break;
        case 'u': unwinds = 1; break;
        case 'f': flat = 1; break;
        case 'a': alternate = 1; break;
        case 's': seconds = atof(optarg); break;
        case 't': threads = atoi(optarg); break;
        default: return 2;
        }
    }
    if (optind != argc || threads < 1 || threads > THREADS_MAX)
        return 2;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | (alternate ? SA_ONSTACK : 0)};
    sigaction(SIGRTMIN, &action, NULL);
    outer = sl_region("outer"), a = sl_region("a"), b = sl_region("b"), c = sl_region("c");
    handled = sl_region("handled"), inner = sl_region("inner"), tail = sl_region("tail");
    for (int i = 0; i < threads; i++)
        if (pthread_create(&selves[i].thread, NULL, run, &selves[i]) != 0)
            return 1;
    for (int i = 0; i < threads; i++)
        pthread_join(selves[i].thread, NULL);
    return 0;
}
