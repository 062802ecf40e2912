// Assertions that hold in C11 and C++17, for the layout headers.
#ifndef SL_PROTO_LAYOUT_H
#define SL_PROTO_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define SL_ASSERT_LAYOUT(condition) static_assert(condition, #condition)
#else
#define SL_ASSERT_LAYOUT(condition) _Static_assert(condition, #condition)
#endif
#define SL_ASSERT_AT(type, field, offset) SL_ASSERT_LAYOUT(offsetof(struct type, field) == (offset))
#define SL_ASSERT_SIZE(type, size)        SL_ASSERT_LAYOUT(sizeof(struct type) == (size))

// Times that are not known, as in scope_profiler.concurrency.
#define SL_UNKNOWN (-1)
#define SL_NO_TASK (-1)
#define SL_CPU_SAMPLE_MASK 255

#endif
