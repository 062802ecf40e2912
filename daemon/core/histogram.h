// How long the calls of a region took: buckets that widen with the length, 32 to each power of two, so that a quantile is off by
// less than 1.6 %, and by less than 3.2 % where the buckets were counted once more in another unit. Lengths below 64 are exact.
//
//     octave   0        1         2          k
//     lengths  0..31    32..63    64..127    2^(k+4) .. 2^(k+5) - 1
//     bucket   1        1         2          2^(k-1) wide
//
// Memory follows the lengths seen: 256 bytes for each octave from the smallest to the largest, taken from a number of octaves that
// many histograms share. One that finds none left is given up, and has no quantiles.
#ifndef SL_CORE_HISTOGRAM_H
#define SL_CORE_HISTOGRAM_H

#include <stdbool.h>
#include <stdint.h>

enum { HISTOGRAM_BITS = 5, HISTOGRAM_SUB = 1 << HISTOGRAM_BITS, HISTOGRAM_OCTAVES = 64 - HISTOGRAM_BITS + 1 };

struct histogram {
    uint64_t *counts;  // HISTOGRAM_SUB for each of its octaves
    uint16_t first, octaves;
    bool given_up;
};

static inline uint32_t histogram_bucket(uint64_t length)
{
    if (length < HISTOGRAM_SUB)
        return (uint32_t)length;
    uint32_t shift = 63u - HISTOGRAM_BITS - (uint32_t)__builtin_clzll(length);
    return shift * HISTOGRAM_SUB + (uint32_t)(length >> shift);
}

uint64_t histogram_middle(uint32_t bucket);  // the length that stands for all of a bucket

// Adds `count` calls of that length; new octaves are taken from *octaves_left.
void histogram_add_slowly(struct histogram *histogram, uint64_t length, uint64_t count, uint32_t *octaves_left);
static inline void histogram_add(struct histogram *histogram, uint64_t length, uint64_t count, uint32_t *octaves_left)
{
    uint32_t place = histogram_bucket(length) - histogram->first * (uint32_t)HISTOGRAM_SUB;
    if (__builtin_expect(place < histogram->octaves * (uint32_t)HISTOGRAM_SUB, 1))
        histogram->counts[place] += count;
    else
        histogram_add_slowly(histogram, length, count, octaves_left);
}

// The smallest length that at least `share` (0..1) of the calls do not exceed. False when there are no calls, or it was given up.
bool histogram_quantile(const struct histogram *histogram, double share, uint64_t *length);

void histogram_finish(struct histogram *histogram);

#endif
