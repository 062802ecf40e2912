// Sums of numbers that come out of a file: any bits are possible, and what overflows wraps around instead of being
// undefined.
#ifndef SL_STORAGE_WRAP_H
#define SL_STORAGE_WRAP_H

#include <stdint.h>

static inline int64_t wrap_add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

static inline int64_t wrap_subtract(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a - (uint64_t)b);
}

#endif
