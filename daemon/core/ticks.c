#include "core/ticks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/files.h"
#include "proto/segment.h"

#define RATE_JUMP   0.001
#define CLOSE_NS    100000000  // an anchor this near to the one before replaces it: a short piece has a noisy rate
#define READING_NS  100        // what two readings, of two clocks each, may lie apart from the truth together

void ticks_init(struct ticks *ticks, size_t keep)
{
    *ticks = (struct ticks){.keep = keep, .ns_per_tick = 1, .stretches = 1};
}

void ticks_finish(struct ticks *ticks)
{
    free(ticks->anchors);
    ticks->anchors = NULL;
    ticks->count = ticks->room = 0;
}

// Anchors also come from files: whatever they say, the sums below have a result.
static int64_t difference(int64_t a, int64_t b)
{
    int64_t result;
    return __builtin_sub_overflow(a, b, &result) ? (a < b ? INT64_MIN : INT64_MAX) : result;
}

static int64_t plus_ns(int64_t from_ns, double ns)
{
    int64_t length = ns >= 9e18 ? INT64_MAX : ns <= -9e18 ? INT64_MIN : (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5), result;
    return __builtin_add_overflow(from_ns, length, &result) ? (length < 0 ? INT64_MIN : INT64_MAX) : result;
}

static double rate(const struct anchor *from, const struct anchor *to)
{
    return (double)difference(to->monotonic_ns, from->monotonic_ns) / (double)(to->ticks - from->ticks);
}

// Beyond `keep`, every second one of the older half goes: live values need the recent ones, the old ones stay in the spool.
static void thin(struct ticks *ticks)
{
    size_t kept = 0, half = ticks->count / 2;
    for (size_t i = 0; i < ticks->count; i++)
        if (i == 0 || i >= half || i % 2 == 0)
            ticks->anchors[kept++] = ticks->anchors[i];
    ticks->count = kept;
    ticks->recent = 0;
}

// The rate of lengths. Over the longest stretch for who has all anchors. For who tells of sums while it learns, they must not go back:
// the least that the readings allow, which comes nearer to the truth from below, unless the rate itself fell for good.
static void learn(struct ticks *ticks, const struct anchor *anchor)
{
    double stretch = (double)(anchor->ticks - ticks->base.ticks), now = rate(&ticks->base, anchor), off = READING_NS / stretch;
    if (!ticks->keep) {
        if (stretch >= ticks->longest) {
            ticks->longest = stretch;
            ticks->ns_per_tick = now;
        }
        return;
    }
    bool is_first = ticks->count == 1;
    if (is_first || now - off > ticks->ns_per_tick || now + off < ticks->ns_per_tick * (1 - RATE_JUMP))
        ticks->ns_per_tick = now > off ? now - off : 0;
}

// Further apart than the readings explain.
static bool is_jump(const struct anchor *before, const struct anchor *last, const struct anchor *anchor)
{
    double was = rate(before, last), allowed = was * RATE_JUMP + READING_NS / (double)(anchor->ticks - last->ticks);
    return fabs(rate(last, anchor) - was) > allowed;
}

static void judge(struct ticks *ticks, const struct anchor *anchor)
{
    const struct anchor *last = &ticks->anchors[ticks->count - 1];
    if (ticks->count >= 2) {
        if (is_jump(last - 1, last, anchor)) {
            ticks->stretches++;
            ticks->base = *anchor;
            return;
        }
        int64_t predicted = ticks_to_ns(ticks, anchor->ticks), real = anchor->monotonic_ns;
        int64_t error = real > predicted ? difference(real, predicted) : difference(predicted, real);
        if (error > ticks->error_ns)
            ticks->error_ns = error;
    }
    learn(ticks, anchor);
}

bool ticks_add(struct ticks *ticks, const struct anchor *anchor)
{
    if (ticks->count) {
        const struct anchor *last = &ticks->anchors[ticks->count - 1];
        if (anchor->ticks <= last->ticks || anchor->monotonic_ns <= last->monotonic_ns)
            return false;
        judge(ticks, anchor);
        if (ticks->count > 1 && difference(anchor->monotonic_ns, last->monotonic_ns) < CLOSE_NS)
            ticks->count--;
    } else {
        ticks->base = *anchor;
    }
    if (ticks->keep && ticks->count >= ticks->keep)
        thin(ticks);
    if (ticks->count == ticks->room) {
        ticks->room = ticks->room ? ticks->room * 2 : 16;
        ticks->anchors = alloc_resize(ticks->anchors, ticks->room, sizeof *ticks->anchors);
    }
    ticks->anchors[ticks->count++] = *anchor;
    return true;
}

// The anchor that starts the piece `at` lies in: its predecessor and it, or it and its successor, give the rate.
static size_t piece_of(struct ticks *ticks, uint64_t at)
{
    size_t last = ticks->count - 2, i = ticks->recent;
    if (i <= last && at >= ticks->anchors[i].ticks && (i == last || at < ticks->anchors[i + 1].ticks))
        return i;
    size_t low = 0, high = last;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (ticks->anchors[middle].ticks <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return ticks->recent = low;
}

int64_t ticks_to_ns(struct ticks *ticks, uint64_t at)
{
    if (ticks->count == 0)
        return (int64_t)at;
    const struct anchor *from = &ticks->anchors[0];
    double ns_per_tick = ticks->ns_per_tick;
    if (ticks->count >= 2) {
        from = &ticks->anchors[piece_of(ticks, at)];
        ns_per_tick = rate(from, from + 1);
    }
    int64_t distance = (int64_t)(at - from->ticks);
    return plus_ns(from->monotonic_ns, (double)distance * ns_per_tick);
}

int64_t ticks_length_ns(const struct ticks *ticks, uint64_t length)
{
    return plus_ns(0, (double)length * ticks->ns_per_tick);
}

static uint64_t counter(uint32_t kind)
{
#if defined(__x86_64__)
    if (kind == SL_CLOCK_TSC) {
        uint32_t low, high;
        __asm__ __volatile__("lfence\n\trdtsc" : "=a"(low), "=d"(high) : : "memory");
        return (uint64_t)high << 32 | low;
    }
#elif defined(__aarch64__)
    if (kind == SL_CLOCK_ARM) {
        uint64_t value;
        __asm__ __volatile__("isb\n\tmrs %0, cntvct_el0" : "=r"(value) : : "memory");
        return value;
    }
#endif
    (void)kind;
    return (uint64_t)clock_monotonic_ns();
}

struct anchor ticks_now(uint32_t kind)
{
    struct anchor best = {0};
    uint64_t best_width = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        uint64_t before = counter(kind);
        int64_t monotonic = clock_monotonic_ns();
        uint64_t after = counter(kind);
        if (after - before >= best_width)
            continue;
        best_width = after - before;
        best.ticks = before + best_width / 2;
        best.monotonic_ns = monotonic;
        best.realtime_ns = clock_ns(CLOCK_REALTIME);
    }
    if (kind == SL_CLOCK_MONOTONIC)
        best.ticks = (uint64_t)best.monotonic_ns;
    return best;
}

uint32_t ticks_machine_kind(void)
{
    struct buffer text = {0};
    uint32_t kind = SL_CLOCK_MONOTONIC;
    if (files_read_all("/sys/devices/system/clocksource/clocksource0/current_clocksource", &text) == 0) {
        buffer_append(&text, "", 1);
#if defined(__x86_64__)
        if (strcmp(text.data, "tsc\n") == 0)
            kind = SL_CLOCK_TSC;
#elif defined(__aarch64__)
        if (strcmp(text.data, "arch_sys_counter\n") == 0)
            kind = SL_CLOCK_ARM;
#endif
    }
    buffer_finish(&text);
    return kind;
}
