/* Affine codes with AVX-512 VNNI: vpdpbusd multiplies codes, unsigned, by signed query codes, and does not saturate
 * (64 * 255 * 127 < 2^31), so the dot of a group is exact. */
#include "kernel/x86/avx512/coded.h"

/* 16 codes as f32: bytes, and the low and high halves of bytes. */
INLINE __m512i widened(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}
INLINE v16 v_bytes(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(widened(p));
}
INLINE v16 v_low(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_and_si512(widened(p), _mm512_set1_epi32(15)));
}
INLINE v16 v_high(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(widened(p), 4));
}

struct coded;
typedef void score_fn(const struct coded *x, const uint8_t *codes, const uint16_t *scale, const uint16_t *bias,
                      size_t n_groups, size_t group, float *s);
enum { SCORE_KEYS = 32 }; /* of one pass: two vectors of 16 */
#define SCORE_WALKS(n) 1
static score_fn *const score8_table[7], *const score4_table[7];
#define place_queries(x, n, d, bits, space) (void)(space) /* they are read as they are */

#define VALUES_OF(X, B, N) X(B, 1, N) X(B, 2, N) X(B, 3, N) X(B, 4, N) X(B, 5, N) X(B, 6, N)
#define WIDE_CODED(X, B)   VALUES_OF(X, B, 4)
#define NARROW_CODED(X, B) VALUES_OF(X, B, 2)
#define EXTRA_CODED(X, B)  NARROW_CODED(X, B)

#include "kernel/x86/affine.inc"

#define S_QUERY(r)                                                                                                   \
    const int8_t *q##r = x->q[r];                                                                                    \
    v16 a##r##0 = v_zero(), a##r##1 = v_zero();
#define S_ZERO(r) __m512i t##r##0 = _mm512_setzero_si512(), t##r##1 = t##r##0;
#define S_DOT(r, at, k0, k1)                                                                                         \
    {                                                                                                                \
        const __m512i y = four_codes(q##r + (at));                                                                   \
        t##r##0 = _mm512_dpbusd_epi32(t##r##0, k0, y);                                                               \
        t##r##1 = _mm512_dpbusd_epi32(t##r##1, k1, y);                                                               \
    }
#define S_BYTES(r) S_DOT(r, 4 * i, k0, k1)
#define S_LOW(r)   S_DOT(r, 8 * i, l0, l1)
#define S_HIGH(r)  S_DOT(r, 8 * i + 4, h0, h1)
#define S_FLOAT(r)                                                                                                   \
    {                                                                                                                \
        const v16 d = v_set(x->d[r][g]), sum = v_set(x->s[r][g]);                                                    \
        a##r##0 = v_fma(_mm512_cvtepi32_ps(t##r##0), v_mul(scale0, d), a##r##0);                                     \
        a##r##1 = v_fma(_mm512_cvtepi32_ps(t##r##1), v_mul(scale1, d), a##r##1);                                     \
        a##r##0 = v_fma(bias0, sum, a##r##0);                                                                        \
        a##r##1 = v_fma(bias1, sum, a##r##1);                                                                        \
        q##r += group;                                                                                               \
    }
#define S_PUT(r)                                                                                                     \
    v_store(s + 64 * r, a##r##0);                                                                                    \
    v_store(s + 64 * r + 16, a##r##1);
#define AHEAD prefetch_lines(ahead, x->ahead_step), ahead += x->ahead_step;
/* One group of dimensions of 2 x 16 keys. */
#define S_DOTS_8(R)                                                                                                  \
    for (size_t i = 0; i < group / 4; i++) {                                                                         \
        AHEAD                                                                                                        \
        const __m512i k0 = _mm512_loadu_si512(codes + 64 * i), k1 = _mm512_loadu_si512(codes + second + 64 * i);     \
        ROWS_##R(S_BYTES)                                                                                            \
    }                                                                                                                \
    codes += 16 * group;
#define S_DOTS_4(R)                                                                                                  \
    for (size_t i = 0; i < group / 8; i++) {                                                                         \
        AHEAD                                                                                                        \
        const __m512i k0 = _mm512_loadu_si512(codes + 64 * i), k1 = _mm512_loadu_si512(codes + second + 64 * i);     \
        const __m512i low = _mm512_set1_epi8(15), l0 = _mm512_and_si512(k0, low), l1 = _mm512_and_si512(k1, low);    \
        const __m512i h0 = _mm512_and_si512(_mm512_srli_epi16(k0, 4), low);                                          \
        const __m512i h1 = _mm512_and_si512(_mm512_srli_epi16(k1, 4), low);                                          \
        ROWS_##R(S_LOW) ROWS_##R(S_HIGH)                                                                             \
    }                                                                                                                \
    codes += 8 * group;

#define DEFINE_CODED_SCORE(B, R)                                                                                     \
    static void score##B##_##R(const struct coded *x, const uint8_t *codes, const uint16_t *scale,                   \
                               const uint16_t *bias, size_t n_groups, size_t group, float *s)                        \
    {                                                                                                                \
        const size_t second = n_groups * group * 2 * B;                                                              \
        uintptr_t ahead = x->ahead;                                                                                  \
        ROWS_##R(S_QUERY) for (size_t g = 0; g < n_groups; g++)                                                      \
        {                                                                                                            \
            ROWS_##R(S_ZERO) S_DOTS_##B(R) const v16 scale0 = v_halves(scale + 16 * g),                              \
                                                     scale1 = v_halves(scale + 16 * (n_groups + g));                 \
            const v16 bias0 = v_halves(bias + 16 * g), bias1 = v_halves(bias + 16 * (n_groups + g));                 \
            ROWS_##R(S_FLOAT)                                                                                        \
        }                                                                                                            \
        ROWS_##R(S_PUT)                                                                                              \
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
