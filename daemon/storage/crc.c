#include "storage/crc.h"

#include <zlib.h>

#if defined(__x86_64__)
#include <immintrin.h>

// V. Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction, Intel 2009: constants for the
// reflected polynomial of zlib. x^(4*128+32), x^(4*128-32); x^(128+32), x^(128-32); x^64; the polynomial and its inverse.
#define FOLD_BY_64 _mm_set_epi64x(0x1c6e41596, 0x154442bd4)
#define FOLD_BY_16 _mm_set_epi64x(0x0ccaa009e, 0x1751997d0)
#define FOLD_HALF  _mm_set_epi64x(0, 0x163cd6124)
#define BARRETT    _mm_set_epi64x(0x1f7011641, 0x1db710641)
#define MULTIPLY   __attribute__((target("pclmul,sse4.1")))

static inline MULTIPLY __m128i load(const char *bytes)
{
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

static inline MULTIPLY __m128i fold(__m128i sum, __m128i next, __m128i by)
{
    return _mm_xor_si128(next, _mm_xor_si128(_mm_clmulepi64_si128(sum, by, 0x00), _mm_clmulepi64_si128(sum, by, 0x11)));
}

// 16 bytes to 32 bits.
static inline MULTIPLY uint32_t reduce(__m128i sum)
{
    const __m128i low = _mm_setr_epi32(-1, 0, -1, 0);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, FOLD_BY_16, 0x10));
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, low), FOLD_HALF, 0x00));
    __m128i quotient = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, low), BARRETT, 0x10), low);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, _mm_clmulepi64_si128(quotient, BARRETT, 0x00)), 1);
}

// `length` is a multiple of 16, at least 64.
static MULTIPLY uint32_t by_multiplication(uint32_t crc, const char *bytes, size_t length)
{
    __m128i sum[4];
    for (int i = 0; i < 4; i++)
        sum[i] = load(bytes + 16 * i);
    sum[0] = _mm_xor_si128(sum[0], _mm_cvtsi32_si128((int)~crc));
    for (bytes += 64, length -= 64; length >= 64; bytes += 64, length -= 64)
        for (int i = 0; i < 4; i++)
            sum[i] = fold(sum[i], load(bytes + 16 * i), FOLD_BY_64);
    for (int i = 1; i < 4; i++)
        sum[0] = fold(sum[0], sum[i], FOLD_BY_16);
    for (; length; bytes += 16, length -= 16)
        sum[0] = fold(sum[0], load(bytes), FOLD_BY_16);
    return ~reduce(sum[0]);
}

uint32_t crc_update(uint32_t crc, const void *bytes, size_t length)
{
    size_t whole = length & ~(size_t)15;
    if (whole < 64 || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1"))
        return (uint32_t)crc32(crc, bytes, (uInt)length);
    crc = by_multiplication(crc, bytes, whole);
    return whole == length ? crc : (uint32_t)crc32(crc, (const Bytef *)bytes + whole, (uInt)(length - whole));
}

#else

uint32_t crc_update(uint32_t crc, const void *bytes, size_t length)
{
    return (uint32_t)crc32(crc, bytes, (uInt)length);
}

#endif
