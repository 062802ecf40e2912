#include "core/histogram.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

uint64_t histogram_middle(uint32_t bucket)
{
    if (bucket < 2 * HISTOGRAM_SUB)
        return bucket;
    uint32_t shift = bucket / HISTOGRAM_SUB - 1;
    uint64_t low = (uint64_t)(HISTOGRAM_SUB + bucket % HISTOGRAM_SUB) << shift;
    return low + ((UINT64_C(1) << shift) - 1) / 2;
}

// Room for that octave too; false when too few are left.
static bool widen(struct histogram *histogram, uint32_t octave, uint32_t *octaves_left)
{
    bool is_empty = histogram->octaves == 0;
    uint32_t first = is_empty || octave < histogram->first ? octave : histogram->first;
    uint32_t end = is_empty || octave >= histogram->first + (uint32_t)histogram->octaves ? octave + 1 : histogram->first + (uint32_t)histogram->octaves;
    uint32_t more = end - first - histogram->octaves;
    if (more > *octaves_left)
        return false;
    uint64_t *counts = alloc_zeroed((size_t)(end - first) * HISTOGRAM_SUB, sizeof *counts);
    if (!is_empty)
        memcpy(counts + (histogram->first - first) * HISTOGRAM_SUB, histogram->counts,
               (size_t)histogram->octaves * HISTOGRAM_SUB * sizeof *counts);
    free(histogram->counts);
    *octaves_left -= more;
    histogram->counts = counts;
    histogram->first = (uint16_t)first;
    histogram->octaves = (uint16_t)(end - first);
    return true;
}

void histogram_add_slowly(struct histogram *histogram, uint64_t length, uint64_t count, uint32_t *octaves_left)
{
    uint32_t bucket = histogram_bucket(length);
    if (histogram->given_up)
        return;
    if (widen(histogram, bucket / HISTOGRAM_SUB, octaves_left)) {
        histogram->counts[bucket - histogram->first * (uint32_t)HISTOGRAM_SUB] += count;
        return;
    }
    *octaves_left += histogram->octaves;  // to those that can still use them
    histogram_finish(histogram);
    histogram->given_up = true;
}

bool histogram_quantile(const struct histogram *histogram, double share, uint64_t *length)
{
    uint32_t buckets = histogram->octaves * (uint32_t)HISTOGRAM_SUB, bucket = 0;
    uint64_t calls = 0, below = 0;
    for (uint32_t i = 0; i < buckets; i++)
        calls += histogram->counts[i];
    if (!calls || histogram->given_up)
        return false;
    double wanted = share * (double)calls;
    for (; bucket < buckets; bucket++) {
        below += histogram->counts[bucket];
        if (below && (double)below >= wanted)
            break;
    }
    *length = histogram_middle(bucket + histogram->first * (uint32_t)HISTOGRAM_SUB);
    return true;
}

void histogram_finish(struct histogram *histogram)
{
    free(histogram->counts);
    *histogram = (struct histogram){0};
}
