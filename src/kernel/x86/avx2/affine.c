/* Affine codes with AVX2. vpmaddubsw adds pairs within 16 bits and saturates: of 4-bit codes a pair is at most
 * 2 * 15 * 127, so that 32 dimensions (8 pairs per lane) stay exact; 8-bit codes are multiplied as words (vpmaddwd),
 * the even dimensions of a key apart from the odd ones: that takes a mask and a shift for codes, and queries that
 * were taken apart before. */
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
enum { SCORE_KEYS = 16 }; /* of one pass; more than 4 queries walk over them twice, 8 keys at a time */
#define SCORE_WALKS(n) ((n) > 4 ? 2 : 1)
static score_fn *const score8_table[7], *const score4_table[7];
static void place_queries(struct coded *x, size_t n, size_t d, unsigned bits, int8_t *space);

/* 16 registers: 3 x 2 x 2 accumulators, or 6 x 2. */
#define WIDE_CODED(X, B)   X(B, 1, 2) X(B, 2, 2) X(B, 3, 1) X(B, 4, 1) X(B, 5, 1) X(B, 6, 1)
#define NARROW_CODED(X, B) WIDE_CODED(X, B)
#define EXTRA_CODED(X, B)

#include "kernel/x86/affine.inc"

/* Where keys have 8 bits: every query as words, those of the even dimensions (0 and 2, 4 and 6 ...), then those of
 * the odd ones; four_codes then takes two words. */
static void place_queries(struct coded *x, size_t n, size_t d, unsigned bits, int8_t *space)
{
    x->odd = d;
    for (size_t r = 0; r < n && bits == 8; r++, space += 2 * d) {
        for (size_t i = 0; i < d; i += 32) {
            __m256i q = _mm256_loadu_si256((const void *)(x->q[r] + i));
            _mm256_storeu_si256((void *)(space + i), _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8));
            _mm256_storeu_si256((void *)(space + d + i), _mm256_srai_epi16(q, 8));
        }
        x->q[r] = space;
    }
}

/* What a group of dimensions adds to the scores of 8 keys. */
INLINE __m256 scored(__m256i t, __m256 scale, __m256 bias, __m256 d, __m256 s, __m256 acc)
{
    acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(t), _mm256_mul_ps(scale, d), acc);
    return _mm256_fmadd_ps(bias, s, acc);
}

/* W, 1 or 2, is how many times 8 keys are walked over at once: accumulators t<row><8 keys>, a<row><8 keys>. */
#define S_QUERY(r)   const int8_t *q##r = x->q[r];
#define S_START_1(r) S_QUERY(r) __m256 a##r##0 = _mm256_setzero_ps();
#define S_START_2(r) S_START_1(r) __m256 a##r##1 = _mm256_setzero_ps();
#define S_ZERO_1(r)  __m256i t##r##0 = _mm256_setzero_si256();
#define S_ZERO_2(r)  S_ZERO_1(r) __m256i t##r##1 = _mm256_setzero_si256();
#define S_PART_1(r)  __m256i p##r##0 = _mm256_setzero_si256();
#define S_PART_2(r)  S_PART_1(r) __m256i p##r##1 = _mm256_setzero_si256();

/* 4 dimensions of 8-bit codes. Accumulators fill half of the registers: sums are to be taken in this order, since a
 * compiler that adds two products first needs more than there are. */
#define S_SETTLE(t) __asm__("" : "+x"(t));
#define S_WORDS(t, k, y)                                                                                             \
    t = _mm256_add_epi32(t, _mm256_madd_epi16(k, y));                                                                \
    S_SETTLE(t)
#define S_BYTES_1(r)                                                                                                 \
    {                                                                                                                \
        S_WORDS(t##r##0, e0, four_codes(q##r + 4 * i)) S_WORDS(t##r##0, o0, four_codes(q##r + odd + 4 * i))          \
    }
#define S_BYTES_2(r)                                                                                                 \
    {                                                                                                                \
        const __m256i y = four_codes(q##r + 4 * i);                                                                  \
        S_WORDS(t##r##0, e0, y) S_WORDS(t##r##1, e1, y)                                                              \
    }                                                                                                                \
    {                                                                                                                \
        const __m256i y = four_codes(q##r + odd + 4 * i);                                                            \
        S_WORDS(t##r##0, o0, y) S_WORDS(t##r##1, o1, y)                                                              \
    }
#define S_CODES(h)                                                                                                   \
    __m256i k##h = _mm256_loadu_si256((const void *)(codes + 32 * (half + h) + 64 * i));                             \
    S_SETTLE(k##h)
#define S_APART(h) S_CODES(h) const __m256i e##h = _mm256_and_si256(k##h, low), o##h = _mm256_srli_epi16(k##h, 8);
#define S_APART_1  S_APART(0)
#define S_APART_2  S_APART(0) S_APART(1)
#define S_LOW_8    _mm256_set1_epi16(255)
#define S_DOTS_8(R, W)                                                                                               \
    for (size_t i = 0; i < group / 4; i++) {                                                                         \
        AHEAD S_APART_##W ROWS_##R(S_BYTES_##W)                                                                      \
    }

/* 8 dimensions of 4-bit codes. */
#define S_PAIRS(p, k, y)                                                                                             \
    p = _mm256_add_epi16(p, _mm256_maddubs_epi16(k, y));                                                             \
    S_SETTLE(p)
#define S_HALVES_1(r)                                                                                                \
    {                                                                                                                \
        S_PAIRS(p##r##0, l0, four_codes(q##r + 8 * i)) S_PAIRS(p##r##0, h0, four_codes(q##r + 8 * i + 4))            \
    }
#define S_HALVES_2(r)                                                                                                \
    {                                                                                                                \
        const __m256i y = four_codes(q##r + 8 * i);                                                                  \
        S_PAIRS(p##r##0, l0, y) S_PAIRS(p##r##1, l1, y)                                                              \
    }                                                                                                                \
    {                                                                                                                \
        const __m256i y = four_codes(q##r + 8 * i + 4);                                                              \
        S_PAIRS(p##r##0, h0, y) S_PAIRS(p##r##1, h1, y)                                                              \
    }
#define S_CUT(n)                                                                                                     \
    S_CODES(n)                                                                                                       \
    const __m256i l##n = _mm256_and_si256(k##n, low), h##n = _mm256_and_si256(_mm256_srli_epi16(k##n, 4), low);
#define S_CUT_1 S_CUT(0)
#define S_CUT_2 S_CUT(0) S_CUT(1)
#define S_LOW_4 _mm256_set1_epi8(15)
/* Neighbouring 16-bit sums of a key's lane as one 32-bit number. */
#define S_JOIN(t, p) t = _mm256_add_epi32(t, _mm256_madd_epi16(p, _mm256_set1_epi16(1)));
#define S_JOIN_1(r)  S_JOIN(t##r##0, p##r##0)
#define S_JOIN_2(r)  S_JOIN_1(r) S_JOIN(t##r##1, p##r##1)
#define S_DOTS_4(R, W)                                                                                               \
    for (size_t part = 0; part < group / 8; part += 4) {                                                             \
        ROWS_##R(S_PART_##W) for (size_t i = part; i < part + 4;                                                     \
                                  i++){AHEAD S_CUT_##W ROWS_##R(S_HALVES_##W)} ROWS_##R(S_JOIN_##W)                  \
    }

#define AHEAD prefetch_lines(ahead, x->ahead_step), ahead += x->ahead_step;
#define S_SCALES(h)                                                                                                  \
    const __m256 scale##h = vn_load_f16(scale + 8 * (half + h)), bias##h = vn_load_f16(bias + 8 * (half + h));
#define S_SCALES_1 S_SCALES(0)
#define S_SCALES_2 S_SCALES(0) S_SCALES(1)
#define S_BY(r)    const __m256 d = _mm256_set1_ps(x->d[r][g]), sum = _mm256_set1_ps(x->s[r][g]);
#define S_ON(r, h) a##r##h = scored(t##r##h, scale##h, bias##h, d, sum, a##r##h);
#define S_FLOAT_1(r)                                                                                                 \
    {                                                                                                                \
        S_BY(r) S_ON(r, 0) q##r += group;                                                                            \
    }
#define S_FLOAT_2(r)                                                                                                 \
    {                                                                                                                \
        S_BY(r) S_ON(r, 0) S_ON(r, 1) q##r += group;                                                                 \
    }
#define S_PUT_1(r) _mm256_storeu_ps(s + 64 * r + 8 * half, a##r##0);
#define S_PUT_2(r) S_PUT_1(r) _mm256_storeu_ps(s + 64 * r + 8, a##r##1);

#define DEFINE_CODED_SCORE(B, R, W)                                                                                  \
    static void score##B##_##R(const struct coded *x, const uint8_t *first, const uint16_t *scales,                  \
                               const uint16_t *biases, size_t n_groups, size_t group, float *s)                      \
    {                                                                                                                \
        uintptr_t ahead = x->ahead;                                                                                  \
        const __m256i low = S_LOW_##B;                                                                               \
        const size_t odd = x->odd;                                                                                   \
        (void)odd;                                                                                                   \
        for (size_t half = 0; half < 2; half += W) {                                                                 \
            const uint8_t *codes = first;                                                                            \
            const uint16_t *scale = scales, *bias = biases;                                                          \
            ROWS_##R(S_START_##W) for (size_t g = 0; g < n_groups; g++)                                              \
            {                                                                                                        \
                ROWS_##R(S_ZERO_##W) S_DOTS_##B(R, W) S_SCALES_##W ROWS_##R(S_FLOAT_##W) codes += 2 * B * group;     \
                scale += 16, bias += 16;                                                                             \
            }                                                                                                        \
            ROWS_##R(S_PUT_##W)                                                                                      \
        }                                                                                                            \
    }
#define DEFINE_CODED_SCORES(B)                                                                                       \
    DEFINE_CODED_SCORE(B, 1, 2)                                                                                      \
    DEFINE_CODED_SCORE(B, 2, 2)                                                                                      \
    DEFINE_CODED_SCORE(B, 3, 2)                                                                                      \
    DEFINE_CODED_SCORE(B, 4, 2)                                                                                      \
    DEFINE_CODED_SCORE(B, 5, 1)                                                                                      \
    DEFINE_CODED_SCORE(B, 6, 1)                                                                                      \
    static score_fn *const score##B##_table[7] = {NULL,         score##B##_1, score##B##_2, score##B##_3,            \
                                                  score##B##_4, score##B##_5, score##B##_6};
DEFINE_CODED_SCORES(8)
DEFINE_CODED_SCORES(4)
