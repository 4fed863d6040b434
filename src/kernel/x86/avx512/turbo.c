/* TurboQuant codes with AVX-512 VNNI: vpdpbusd multiplies codes, unsigned, by signed query codes, and does not
 * saturate (32 * 255 * 127 < 2^31), so the dot of a group is exact. Levels are looked up by vpermps, in one register
 * or two. */
#include "kernel/x86/avx512/coded.h"

/* Stages within a vector: lanes with bit h get (the other) - x, those without x + (the other). */
#define V_STAGE(h, lanes, swapped)                                                                                   \
    INLINE v16 v_stage_##h(v16 x)                                                                                    \
    {                                                                                                                \
        v16 other = swapped;                                                                                         \
        return _mm512_mask_sub_ps(_mm512_add_ps(x, other), lanes, other, x);                                         \
    }
V_STAGE(1, 0xAAAA, _mm512_permute_ps(x, 0xB1))
V_STAGE(2, 0xCCCC, _mm512_permute_ps(x, 0x4E))
V_STAGE(4, 0xF0F0, _mm512_shuffle_f32x4(x, x, 0xB1))
V_STAGE(8, 0xFF00, _mm512_shuffle_f32x4(x, x, 0x4E))

/* table[index] of whole numbers. */
INLINE v16 v_pick(const float *table, v16 index)
{
    return _mm512_i32gather_ps(_mm512_cvtps_epi32(index), table, 4);
}

/* Sixteen codes, each at the low end of its lane; what is above them are bits of the next ones. */
INLINE __m512i lowered(const uint8_t *p, const uint8_t *lanes, const int32_t *shift)
{
    __m512i x = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p));
    return _mm512_srlv_epi32(_mm512_shuffle_epi8(x, _mm512_loadu_si512(lanes)), _mm512_loadu_si512(shift));
}
INLINE v16 v_level_4(const uint8_t *p, const uint8_t *lanes, const int32_t *shift, const float *table)
{
    return _mm512_permutexvar_ps(lowered(p, lanes, shift), v_load(table));
}
#define v_level_2 v_level_4
#define v_level_3 v_level_4
INLINE v16 v_level_5(const uint8_t *p, const uint8_t *lanes, const int32_t *shift, const float *table)
{
    return _mm512_permutex2var_ps(v_load(table), lowered(p, lanes, shift), v_load(table + 16));
}
/* 32 codes of 8 bits. The levels are the same on both sides of 0, so that 7 bits choose among 128, a sign apart; each
 * half of those f32 is a table of 128 words in four registers. Words are put so that joining the halves, which works
 * within quarters, leaves 16 dimensions side by side. */
INLINE __m512i word_of(__m512i index, __mmask32 upper, const uint16_t *t)
{
    __m512i low = _mm512_permutex2var_epi16(_mm512_loadu_si512(t), index, _mm512_loadu_si512(t + 32));
    __m512i high = _mm512_permutex2var_epi16(_mm512_loadu_si512(t + 64), index, _mm512_loadu_si512(t + 96));
    return _mm512_mask_blend_epi16(upper, low, high);
}
INLINE void v_levels_8(const uint8_t *p, const uint16_t *table, v16 *x, v16 *y)
{
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m512i code = _mm512_cvtepu8_epi16(_mm256_permutevar8x32_epi32(_mm256_loadu_si256((const void *)p), order));
    __mmask32 negative = _mm512_testn_epi16_mask(code, _mm512_set1_epi16(128));
    __m512i index = _mm512_mask_sub_epi16(code, negative, _mm512_set1_epi16(255), code);
    __mmask32 upper = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64));
    __m512i low = word_of(index, upper, table), high = word_of(index, upper, table + 128);
    high = _mm512_mask_add_epi16(high, negative, high, _mm512_set1_epi16((short)0x8000));
    *x = _mm512_castsi512_ps(_mm512_unpacklo_epi16(low, high));
    *y = _mm512_castsi512_ps(_mm512_unpackhi_epi16(low, high));
}
#define v_table_8() sn_turbo_halves()

struct coded;
typedef void score_fn(const struct coded *x, const uint8_t *codes, const uint16_t *scale, const uint16_t *zero,
                      size_t n_groups, float *s);
enum { SCORE_KEYS = 32, SCORE_WALKS = 1 }; /* of one pass: two vectors of 16 */
static score_fn *const score2_table[7], *const score4_table[7], *const score5_table[7], *const score8_table[7];

#define WIDE_CODED(X, B)   X(B, 1, 4) X(B, 2, 4) X(B, 3, 4) X(B, 4, 4) X(B, 5, 4) X(B, 6, 4)
#define NARROW_CODED(X, B) WIDE_CODED(X, B) /* dimensions are multiples of 64 */
#define EXTRA_CODED(X, B)

#include "kernel/x86/turbo.inc"

#define S_QUERY(r)                                                                                                   \
    const int8_t *q##r = x->q[r];                                                                                    \
    v16 a##r##0 = v_zero(), a##r##1 = v_zero();
#define S_ZERO(r) __m512i t##r##0 = _mm512_setzero_si512(), t##r##1 = t##r##0;
/* Codes k0 and k1 of four dimensions of 2 x 16 keys against four codes of every query. */
#define S_DOT(r)                                                                                                     \
    {                                                                                                                \
        const __m512i y = four_codes(q##r);                                                                          \
        q##r += 4;                                                                                                   \
        t##r##0 = _mm512_dpbusd_epi32(t##r##0, k0, y);                                                               \
        t##r##1 = _mm512_dpbusd_epi32(t##r##1, k1, y);                                                               \
    }
#define S_FOUR(R, from0, from1)                                                                                      \
    {                                                                                                                \
        const __m512i k0 = from0, k1 = from1;                                                                        \
        ROWS_##R(S_DOT)                                                                                              \
    }
#define S_FLOAT(r)                                                                                                   \
    {                                                                                                                \
        const v16 d = v_set(x->d[r][g]), sum = v_set(x->s[r][g]);                                                    \
        a##r##0 = v_fma(v_fma(zero0, sum, _mm512_cvtepi32_ps(t##r##0)), v_mul(scale0, d), a##r##0);                  \
        a##r##1 = v_fma(v_fma(zero1, sum, _mm512_cvtepi32_ps(t##r##1)), v_mul(scale1, d), a##r##1);                  \
    }
#define S_PUT(r)                                                                                                     \
    v_store(s + 64 * r, a##r##0);                                                                                    \
    v_store(s + 64 * r + 16, a##r##1);

/* Word i of the streams of 16 keys; of the second 16. */
#define WORD_0(i)                _mm512_loadu_si512(codes + 64 * (i))
#define WORD_1(i)                _mm512_loadu_si512(codes + second + 64 * (i))
#define FIELD(word, shift, mask) _mm512_and_si512(_mm512_srli_epi32(word, shift), mask)

#define S_GROUP_8(R)                                                                                                 \
    for (size_t i = 0; i < 8; i++) {                                                                                 \
        prefetch_lines(ahead, x->ahead_step), ahead += x->ahead_step;                                                \
        S_FOUR(R, WORD_0(i), WORD_1(i))                                                                              \
    }
#define S_GROUP_4(R)                                                                                                 \
    for (size_t i = 0; i < 4; i++) {                                                                                 \
        prefetch_lines(ahead, x->ahead_step), ahead += x->ahead_step;                                                \
        const __m512i w0 = WORD_0(i), w1 = WORD_1(i), mask = _mm512_set1_epi8(15);                                   \
        S_FOUR(R, _mm512_and_si512(w0, mask), _mm512_and_si512(w1, mask))                                            \
        S_FOUR(R, FIELD(w0, 4, mask), FIELD(w1, 4, mask))                                                            \
    }
#define S_GROUP_2(R)                                                                                                 \
    for (size_t i = 0; i < 2; i++) {                                                                                 \
        prefetch_lines(ahead, x->ahead_step), ahead += x->ahead_step;                                                \
        const __m512i w0 = WORD_0(i), w1 = WORD_1(i), mask = _mm512_set1_epi8(3);                                    \
        S_FOUR(R, _mm512_and_si512(w0, mask), _mm512_and_si512(w1, mask))                                            \
        S_FOUR(R, FIELD(w0, 2, mask), FIELD(w1, 2, mask))                                                            \
        S_FOUR(R, FIELD(w0, 4, mask), FIELD(w1, 4, mask))                                                            \
        S_FOUR(R, FIELD(w0, 6, mask), FIELD(w1, 6, mask))                                                            \
    }

/* Four codes of 5 bits from the low 20 bits of each lane, a byte each. */
INLINE __m512i spread(__m512i x)
{
    const __m512i even = _mm512_set1_epi32(0x3FF), low = _mm512_set1_epi16(31);
    const __m512i high = _mm512_set1_epi16(31 << 8);
    x = _mm512_or_si512(_mm512_and_si512(x, even),
                        _mm512_and_si512(_mm512_slli_epi32(x, 6), _mm512_slli_epi32(even, 16)));
    return _mm512_or_si512(_mm512_and_si512(x, low), _mm512_and_si512(_mm512_slli_epi32(x, 3), high));
}
/* From bit `shift` of one word, and on into the next. */
INLINE __m512i across(__m512i word, int shift, __m512i next)
{
    return _mm512_or_si512(_mm512_srli_epi32(word, (unsigned)shift), _mm512_slli_epi32(next, (unsigned)(32 - shift)));
}
#define S_WITHIN(R, i, shift)                                                                                        \
    S_FOUR(R, spread(_mm512_srli_epi32(WORD_0(i), shift)), spread(_mm512_srli_epi32(WORD_1(i), shift)))
#define S_ACROSS(R, i, shift)                                                                                        \
    S_FOUR(R, spread(across(WORD_0(i), shift, WORD_0(i + 1))), spread(across(WORD_1(i), shift, WORD_1(i + 1))))
#define S_GROUP_5(R)                                                                                                 \
    prefetch_lines(ahead, 5 * x->ahead_step), ahead += 5 * x->ahead_step;                                            \
    S_WITHIN(R, 0, 0)                                                                                                \
    S_ACROSS(R, 0, 20)                                                                                               \
    S_WITHIN(R, 1, 8)                                                                                                \
    S_ACROSS(R, 1, 28)                                                                                               \
    S_ACROSS(R, 2, 16)                                                                                               \
    S_WITHIN(R, 3, 4)                                                                                                \
    S_ACROSS(R, 3, 24)                                                                                               \
    S_WITHIN(R, 4, 12)

/* Codes of 8 bits are stored with 128 added: so much less is what the zero adds for each code. */
#define DEFINE_CODED_SCORE(B, R)                                                                                     \
    static void score##B##_##R(const struct coded *x, const uint8_t *codes, const uint16_t *scale,                   \
                               const uint16_t *zero, size_t n_groups, float *s)                                      \
    {                                                                                                                \
        const size_t second = n_groups * B * 64;                                                                     \
        const v16 shift = v_set(B == 8 ? 128.0f : 0.0f);                                                             \
        uintptr_t ahead = x->ahead;                                                                                  \
        ROWS_##R(S_QUERY) for (size_t g = 0; g < n_groups; g++, codes += B * 64)                                     \
        {                                                                                                            \
            ROWS_##R(S_ZERO) S_GROUP_##B(R) const v16 scale0 = v_halves(scale + 16 * g),                             \
                                                      scale1 = v_halves(scale + 16 * (n_groups + g));                \
            const v16 zero0 = v_sub(v_halves(zero + 16 * g), shift),                                                 \
                      zero1 = v_sub(v_halves(zero + 16 * (n_groups + g)), shift);                                    \
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
DEFINE_CODED_SCORES(2)
DEFINE_CODED_SCORES(4)
DEFINE_CODED_SCORES(5)
DEFINE_CODED_SCORES(8)
