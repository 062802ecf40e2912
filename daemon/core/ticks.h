// From ticks to the timeline. Records carry the raw counter; anchors (ticks, monotonic, realtime), taken when a process is
// adopted, every second and at the end, say where the counter was. Between two anchors time is interpolated, outside them
// extrapolated. Neighbouring anchors whose rates differ by more than 1000 ppm (suspend, migration) start a new stretch.
#ifndef SL_CORE_TICKS_H
#define SL_CORE_TICKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct anchor {
    uint64_t ticks;
    int64_t monotonic_ns;
    int64_t realtime_ns;
};

struct ticks {
    struct anchor *anchors;  // by rising ticks
    size_t count, room;
    size_t keep;              // at most so many (the daemon); 0: all (the converter)
    size_t recent;            // where the latest conversion fell: the next is seldom far
    double ns_per_tick;       // of lengths: with `keep` it only grows while the counter keeps its pace
    struct anchor base;       // where the present stretch starts
    double longest;           // ticks: of the stretches so far; without `keep` the longest gives the rate
    int64_t error_ns;         // largest distance seen between a new anchor and what the ones before it predicted
    uint32_t stretches;       // 1 + jumps of the rate
};

void ticks_init(struct ticks *ticks, size_t keep);
void ticks_finish(struct ticks *ticks);

// Adds an anchor that we took ourselves. One that would run back against its neighbours is dropped: false.
bool ticks_add(struct ticks *ticks, const struct anchor *anchor);

// Nanoseconds of CLOCK_MONOTONIC; without any anchor the ticks themselves. Monotone in `at`.
int64_t ticks_to_ns(struct ticks *ticks, uint64_t at);

// A length in ticks, by the rate of a stretch: for statistics, not for positions. With `keep` the same length is never told shorter than
// before, and is too short by 100 ns at most for as long as it was observed: counters made of lengths must not go back.
int64_t ticks_length_ns(const struct ticks *ticks, uint64_t length);

// Reads counter and clocks together, the tightest of a few tries. `kind` is enum sl_clock_kind.
struct anchor ticks_now(uint32_t kind);

// The machine's kind: the counter only where the kernel itself keeps time by it.
uint32_t ticks_machine_kind(void);

#endif
