// Memory ordering behind a few names, for C11 and C++17 alike. Each use says which one it pairs with.
//
// Two operations are special. A word that only its own thread writes, but whose signal handlers may write it too, is bumped
// by one instruction (sl_bump) and moved by a compare-and-set without a bus lock (sl_move): atomic against a handler on the
// same thread, not against other processors, and as cheap as a plain store.
#ifndef SL_PROTO_ATOMIC_H
#define SL_PROTO_ATOMIC_H

#include <stdint.h>

#define sl_load_relaxed(place)         __atomic_load_n((place), __ATOMIC_RELAXED)
#define sl_load_acquire(place)         __atomic_load_n((place), __ATOMIC_ACQUIRE)
#define sl_store_relaxed(place, value) __atomic_store_n((place), (value), __ATOMIC_RELAXED)
#define sl_store_release(place, value) __atomic_store_n((place), (value), __ATOMIC_RELEASE)
#define sl_fetch_add(place, value)     __atomic_fetch_add((place), (value), __ATOMIC_RELAXED)
#define sl_compiler_barrier()          __atomic_signal_fence(__ATOMIC_SEQ_CST)

#define sl_likely(condition)   __builtin_expect(!!(condition), 1)
#define sl_unlikely(condition) __builtin_expect(!!(condition), 0)
#if (defined(__clang__) && __clang_major__ >= 11) || (!defined(__clang__) && defined(__GNUC__) && __GNUC__ >= 9)
#define sl_perhaps(condition) __builtin_expect_with_probability(!!(condition), 1, 0.6)  // either; true falls through
#else
#define sl_perhaps(condition) (condition)
#endif

#if defined(__SANITIZE_THREAD__)
#define SL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SL_TSAN 1
#endif
#endif

// ThreadSanitizer knows no fences, and compilers warn of them. All that is read while it may be written is read and written by
// atomic accesses, between which there is no race to report; what a fence orders it cannot check.
#ifdef SL_TSAN
#define sl_fence_acquire() sl_compiler_barrier()
#define sl_fence_release() sl_compiler_barrier()
#else
#define sl_fence_acquire() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define sl_fence_release() __atomic_thread_fence(__ATOMIC_RELEASE)
#endif

// Copies what another thread or process may be writing: `bytes` a multiple of 8, both places aligned to 8. Each word is one that
// was there; whether they belong together is for a sequence word to say.
static inline void sl_copy_shared(void *to, const void *from, uint64_t bytes)
{
    uint64_t *words = (uint64_t *)to;
    const uint64_t *shared = (const uint64_t *)from;
    for (uint64_t i = 0; i < bytes / 8; i++)
        words[i] = sl_load_relaxed(&shared[i]);
}

// *place += 1, in one instruction where the processor has one with a memory operand.
static inline void sl_bump(uint64_t *place)
{
#if defined(__x86_64__) && !defined(SL_TSAN)
    __asm__ __volatile__("incq %0" : "+m"(*place) : : "cc");
#else
    __atomic_fetch_add(place, 1, __ATOMIC_RELAXED);
#endif
}

// Where *place is still `from`, makes it `to` and returns 1; else 0. A release store towards other processors: whoever
// loads `to` with acquire sees everything written before.
static inline int sl_move(uint64_t *place, uint64_t from, uint64_t to)
{
#if defined(__x86_64__) && !defined(SL_TSAN)
    unsigned char moved;
    __asm__ __volatile__("cmpxchgq %3, %0" : "+m"(*place), "+a"(from), "=@ccz"(moved) : "r"(to) : "memory");
    return moved;
#else
    return __atomic_compare_exchange_n(place, &from, to, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
#endif
}

#endif
