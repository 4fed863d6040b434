/* Affine codes with AVX2. vpmaddubsw adds pairs within 16 bits and saturates: bytes are cut into halves of 4 bits,
 * whose pairs are at most 2 * 15 * 127, so that 32 dimensions (8 pairs per lane) stay exact. */
#include "kernel/x86/avx2/coded.h"

struct widened {
    __m256i a, b;
};
INLINE struct widened widened(const uint8_t *p)
{
    return (struct widened){_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)),
                            _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p + 8)))};
}
/* 16 codes as f32: bytes, and the low and high halves of bytes. */
INLINE v16 v_bytes(const uint8_t *p)
{
    struct widened x = widened(p);
    return V_EACH(_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b));
}
INLINE v16 v_low(const uint8_t *p)
{
    struct widened x = widened(p);
    __m256i low = _mm256_set1_epi32(15);
    return V_EACH(_mm256_cvtepi32_ps(_mm256_and_si256(x.a, low)), _mm256_cvtepi32_ps(_mm256_and_si256(x.b, low)));
}
INLINE v16 v_high(const uint8_t *p)
{
    struct widened x = widened(p);
    return V_EACH(_mm256_cvtepi32_ps(_mm256_srli_epi32(x.a, 4)), _mm256_cvtepi32_ps(_mm256_srli_epi32(x.b, 4)));
}

struct coded;
typedef void score_fn(const struct coded *x, const uint8_t *codes, const uint16_t *scale, const uint16_t *bias,
                      size_t n_groups, size_t group, float *s);
enum { SCORE_KEYS = 16, SCORE_WALKS = 2 }; /* of one pass */
static score_fn *const score8_table[7], *const score4_table[7];

/* 16 registers: 3 x 2 x 2 accumulators, or 6 x 2. */
#define WIDE_CODED(X, B)   X(B, 1, 2) X(B, 2, 2) X(B, 3, 1) X(B, 4, 1) X(B, 5, 1) X(B, 6, 1)
#define NARROW_CODED(X, B) WIDE_CODED(X, B)
#define EXTRA_CODED(X, B)

#include "kernel/x86/affine.inc"

/* Neighbouring 16-bit sums of a key's lane as one 32-bit number. */
INLINE __m256i joined(__m256i t)
{
    return _mm256_madd_epi16(t, _mm256_set1_epi16(1));
}

/* What a group of dimensions adds to the scores of 8 keys. */
INLINE __m256 scored(__m256i t, const uint16_t *scale, const uint16_t *bias, float d, float s, __m256 acc)
{
    __m256 by = _mm256_mul_ps(vn_load_f16(scale), _mm256_set1_ps(d));
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(t), by, acc);
    return _mm256_fmadd_ps(vn_load_f16(bias), _mm256_set1_ps(s), acc);
}

#define S_QUERY(r)                                                                                                   \
    const int8_t *q##r = x->q[r];                                                                                    \
    __m256 a##r = _mm256_setzero_ps();
#define S_ZERO(r)        __m256i t##r = _mm256_setzero_si256();
#define S_PART(r)        __m256i l##r = _mm256_setzero_si256(), h##r = l##r;
#define S_ADD(sum, k, y) sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(k, y));
#define S_BYTES(r)                                                                                                   \
    {                                                                                                                \
        const __m256i y = four_codes(q##r + 4 * i);                                                                  \
        S_ADD(l##r, low, y) S_ADD(h##r, high, y)                                                                     \
    }
#define S_HALVES(r)                                                                                                  \
    {                                                                                                                \
        S_ADD(l##r, low, four_codes(q##r + 8 * i)) S_ADD(h##r, high, four_codes(q##r + 8 * i + 4))                   \
    }
#define S_JOIN_8(r) t##r = _mm256_add_epi32(t##r, _mm256_add_epi32(joined(l##r), _mm256_slli_epi32(joined(h##r), 4)));
#define S_JOIN_4(r) t##r = _mm256_add_epi32(t##r, joined(_mm256_add_epi16(l##r, h##r)));
#define S_DOTS_8(R)                                                                                                  \
    for (size_t i = part / 4; i < part / 4 + 8; i++) {                                                               \
        S_SPLIT ROWS_##R(S_BYTES)                                                                                    \
    }
#define S_DOTS_4(R)                                                                                                  \
    for (size_t i = part / 8; i < part / 8 + 4; i++) {                                                               \
        S_SPLIT ROWS_##R(S_HALVES)                                                                                   \
    }
#define S_SPLIT                                                                                                      \
    prefetch_lines(ahead, x->ahead_step), ahead += x->ahead_step;                                                    \
    const __m256i k = _mm256_loadu_si256((const void *)(codes + half * 32 + 64 * i));                                \
    const __m256i low = _mm256_and_si256(k, mask), high = _mm256_and_si256(_mm256_srli_epi16(k, 4), mask);
#define S_FLOAT(r)                                                                                                   \
    a##r = scored(t##r, scale + 16 * g + 8 * half, bias + 16 * g + 8 * half, x->d[r][g], x->s[r][g], a##r);          \
    q##r += group;
#define S_PUT(r) _mm256_storeu_ps(s + 64 * r + 8 * half, a##r);

#define DEFINE_CODED_SCORE(B, R)                                                                                     \
    static void score##B##_##R(const struct coded *x, const uint8_t *first, const uint16_t *scale,                   \
                               const uint16_t *bias, size_t n_groups, size_t group, float *s)                        \
    {                                                                                                                \
        uintptr_t ahead = x->ahead;                                                                                  \
        const __m256i mask = _mm256_set1_epi8(15);                                                                   \
        for (size_t half = 0; half < 2; half++) {                                                                    \
            const uint8_t *codes = first;                                                                            \
            ROWS_##R(S_QUERY) for (size_t g = 0; g < n_groups; g++, codes += 2 * B * group)                          \
            {                                                                                                        \
                ROWS_##R(S_ZERO) for (size_t part = 0; part < group; part += 32){                                    \
                    ROWS_##R(S_PART) S_DOTS_##B(R) ROWS_##R(S_JOIN_##B)} ROWS_##R(S_FLOAT)                           \
            }                                                                                                        \
            ROWS_##R(S_PUT)                                                                                          \
        }                                                                                                            \
    }
#define DEFINE_CODED_SCORES(B)                                                                                       \
    DEFINE_CODED_SCORE(B, 1)                                                                                         \
    DEFINE_CODED_SCORE(B, 2)                                                                                         \
    DEFINE_CODED_SCORE(B, 3)                                                                                         \
    DEFINE_CODED_SCORE(B, 4)                                                                                         \
    DEFINE_CODED_SCORE(B, 5)                                                                                         \
    DEFINE_CODED_SCORE(B, 6)                                                                                         \
    static score_fn *const score##B##_table[7] = {NULL,         score##B##_1, score##B##_2, score##B##_3,            \
                                                  score##B##_4, score##B##_5, score##B##_6};
DEFINE_CODED_SCORES(8)
DEFINE_CODED_SCORES(4)
