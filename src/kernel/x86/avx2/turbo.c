/* TurboQuant codes with AVX2. vpmaddubsw adds pairs within 16 bits and saturates: codes of 8 bits are cut into halves
 * of 4, whose sums over a group are at most 32 * 15 * 127 / 2; those of 5 bits are joined after half a group
 * (16 * 31 * 127 / 2); so a group's dot is exact. */
#include "kernel/x86/avx2/coded.h"

/* Stages within a vector: lanes with bit h get (the other) - x, those without x + (the other). */
#define V_STAGE(h, bits, swapped)                                                                                    \
    INLINE __m256 stage_##h(__m256 x)                                                                                \
    {                                                                                                                \
        __m256 other = swapped;                                                                                      \
        return _mm256_blend_ps(_mm256_add_ps(x, other), _mm256_sub_ps(other, x), bits);                              \
    }                                                                                                                \
    INLINE v16 v_stage_##h(v16 x)                                                                                    \
    {                                                                                                                \
        return V_EACH(stage_##h(x.a), stage_##h(x.b));                                                               \
    }
V_STAGE(1, 0xAA, _mm256_permute_ps(x, 0xB1))
V_STAGE(2, 0xCC, _mm256_permute_ps(x, 0x4E))
V_STAGE(4, 0xF0, _mm256_permute2f128_ps(x, x, 1))
INLINE v16 v_stage_8(v16 x)
{
    return V_EACH(_mm256_add_ps(x.a, x.b), _mm256_sub_ps(x.a, x.b));
}

/* table[index] of whole numbers. */
INLINE v16 v_pick(const float *table, v16 index)
{
    return V_EACH(_mm256_i32gather_ps(table, _mm256_cvtps_epi32(index.a), 4),
                  _mm256_i32gather_ps(table, _mm256_cvtps_epi32(index.b), 4));
}

/* Eight of sixteen codes, each at the low end of its lane; what is above them are bits of the next ones. */
INLINE __m256i lowered8(const uint8_t *p, const uint8_t *lanes, const int32_t *shift)
{
    __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
    return _mm256_srlv_epi32(_mm256_shuffle_epi8(x, _mm256_loadu_si256((const void *)lanes)),
                             _mm256_loadu_si256((const void *)shift));
}
/* Levels of up to 3, 4 and 5 bits: the low 3 bits choose in a register, the others among registers. */
INLINE __m256 level8_3(__m256i x, const float *table)
{
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), x);
}
INLINE __m256 level8_4(__m256i x, const float *table)
{
    __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(x, 28));
    return _mm256_blendv_ps(level8_3(x, table), level8_3(x, table + 8), upper);
}
INLINE __m256 level8_5(__m256i x, const float *table)
{
    __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(x, 27));
    return _mm256_blendv_ps(level8_4(x, table), level8_4(x, table + 16), upper);
}
#define V_LEVEL(B, T)                                                                                                \
    INLINE v16 v_level_##B(const uint8_t *p, const uint8_t *lanes, const int32_t *shift, const float *table)         \
    {                                                                                                                \
        return V_EACH(level8_##T(lowered8(p, lanes, shift), table),                                                  \
                      level8_##T(lowered8(p, lanes + 32, shift + 8), table));                                        \
    }
V_LEVEL(2, 3)
V_LEVEL(3, 3)
V_LEVEL(4, 4)
V_LEVEL(5, 5)
INLINE v16 v_level_8(const uint8_t *p, const float *table)
{
    __m256i a = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
    __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p + 8)));
    return V_EACH(_mm256_i32gather_ps(table, a, 4), _mm256_i32gather_ps(table, b, 4));
}
INLINE void v_levels_8(const uint8_t *p, const float *table, v16 *x, v16 *y)
{
    *x = v_level_8(p, table);
    *y = v_level_8(p + 16, table);
}
#define v_table_8() sn_turbo_centroids(8)

struct coded;
typedef void score_fn(const struct coded *x, const uint8_t *codes, const uint16_t *scale, const uint16_t *zero,
                      size_t n_groups, float *s);
enum { SCORE_KEYS = 16, SCORE_WALKS = 2 }; /* of one pass */
static score_fn *const score2_table[7], *const score4_table[7], *const score5_table[7], *const score8_table[7];

/* 16 registers: 2 x 2 x 2 accumulators, or 6 x 2. */
#define WIDE_CODED(X, B)   X(B, 1, 2) X(B, 2, 2) X(B, 3, 1) X(B, 4, 1) X(B, 5, 1) X(B, 6, 1)
#define NARROW_CODED(X, B) WIDE_CODED(X, B)
#define EXTRA_CODED(X, B)

#include "kernel/x86/turbo.inc"

/* Neighbouring 16-bit sums of a key's lane as one 32-bit number. */
INLINE __m256i joined(__m256i t)
{
    return _mm256_madd_epi16(t, _mm256_set1_epi16(1));
}

#define S_QUERY(r)                                                                                                   \
    const int8_t *q##r = x->q[r];                                                                                    \
    __m256 a##r = _mm256_setzero_ps();
#define S_PART(r) __m256i l##r = _mm256_setzero_si256(), h##r = l##r;
#define S_ADD(sum, r)                                                                                                \
    sum##r = _mm256_add_epi16(sum##r, _mm256_maddubs_epi16(k, four_codes(q##r)));                                    \
    q##r += 4;
#define S_LOW(r)  S_ADD(l, r)
#define S_HIGH(r) S_ADD(h, r)
/* Both halves of codes of 8 bits meet the same four codes of a query. */
#define S_BOTH(r)                                                                                                    \
    {                                                                                                                \
        const __m256i y = four_codes(q##r);                                                                          \
        l##r = _mm256_add_epi16(l##r, _mm256_maddubs_epi16(low, y));                                                 \
        h##r = _mm256_add_epi16(h##r, _mm256_maddubs_epi16(high, y));                                                \
        q##r += 4;                                                                                                   \
    }
/* Codes k of four dimensions of 8 keys against four codes of every query. */
#define S_FOUR(R, PART, from)                                                                                        \
    {                                                                                                                \
        const __m256i k = from;                                                                                      \
        ROWS_##R(PART)                                                                                               \
    }

/* Word i of the streams of 8 keys. */
#define WORD(i)                  _mm256_loadu_si256((const void *)(codes + 64 * (i)))
#define FIELD(word, shift, mask) _mm256_and_si256(_mm256_srli_epi32(word, shift), mask)

#define S_GROUP_8(R)                                                                                                 \
    for (size_t i = 0; i < 8; i++) {                                                                                 \
        prefetch_lines(ahead, x->ahead_step), ahead += x->ahead_step;                                                \
        const __m256i w = WORD(i), mask = _mm256_set1_epi8(15), low = _mm256_and_si256(w, mask);                     \
        const __m256i high = FIELD(w, 4, mask);                                                                      \
        ROWS_##R(S_BOTH)                                                                                             \
    }
#define S_GROUP_4(R)                                                                                                 \
    for (size_t i = 0; i < 4; i++) {                                                                                 \
        prefetch_lines(ahead, x->ahead_step), ahead += x->ahead_step;                                                \
        const __m256i w = WORD(i), mask = _mm256_set1_epi8(15);                                                      \
        S_FOUR(R, S_LOW, _mm256_and_si256(w, mask))                                                                  \
        S_FOUR(R, S_HIGH, FIELD(w, 4, mask))                                                                         \
    }
#define S_GROUP_2(R)                                                                                                 \
    for (size_t i = 0; i < 2; i++) {                                                                                 \
        prefetch_lines(ahead, x->ahead_step), ahead += x->ahead_step;                                                \
        const __m256i w = WORD(i), mask = _mm256_set1_epi8(3);                                                       \
        S_FOUR(R, S_LOW, _mm256_and_si256(w, mask))                                                                  \
        S_FOUR(R, S_HIGH, FIELD(w, 2, mask))                                                                         \
        S_FOUR(R, S_LOW, FIELD(w, 4, mask))                                                                          \
        S_FOUR(R, S_HIGH, FIELD(w, 6, mask))                                                                         \
    }

/* Four codes of 5 bits from the low 20 bits of each lane, a byte each. */
INLINE __m256i spread(__m256i x)
{
    const __m256i even = _mm256_set1_epi32(0x3FF), low = _mm256_set1_epi16(31);
    const __m256i high = _mm256_set1_epi16(31 << 8);
    x = _mm256_or_si256(_mm256_and_si256(x, even),
                        _mm256_and_si256(_mm256_slli_epi32(x, 6), _mm256_slli_epi32(even, 16)));
    return _mm256_or_si256(_mm256_and_si256(x, low), _mm256_and_si256(_mm256_slli_epi32(x, 3), high));
}
#define WITHIN(i, shift) spread(_mm256_srli_epi32(WORD(i), shift))
/* From bit `shift` of one word, and on into the next. */
#define ACROSS(i, shift)                                                                                             \
    spread(_mm256_or_si256(_mm256_srli_epi32(WORD(i), shift), _mm256_slli_epi32(WORD(i + 1), 32 - (shift))))
#define S_GROUP_5(R)                                                                                                 \
    prefetch_lines(ahead, 5 * x->ahead_step), ahead += 5 * x->ahead_step;                                            \
    S_FOUR(R, S_LOW, WITHIN(0, 0))                                                                                   \
    S_FOUR(R, S_LOW, ACROSS(0, 20))                                                                                  \
    S_FOUR(R, S_LOW, WITHIN(1, 8))                                                                                   \
    S_FOUR(R, S_LOW, ACROSS(1, 28))                                                                                  \
    S_FOUR(R, S_HIGH, ACROSS(2, 16))                                                                                 \
    S_FOUR(R, S_HIGH, WITHIN(3, 4))                                                                                  \
    S_FOUR(R, S_HIGH, ACROSS(3, 24))                                                                                 \
    S_FOUR(R, S_HIGH, WITHIN(4, 12))

#define S_SUM_8(r) _mm256_add_epi32(joined(l##r), _mm256_slli_epi32(joined(h##r), 4))
#define S_SUM_5(r) _mm256_add_epi32(joined(l##r), joined(h##r))
#define S_SUM_4(r) S_SUM_5(r)
#define S_SUM_2(r) S_SUM_5(r)
#define S_FLOAT_OF(B, r)                                                                                             \
    {                                                                                                                \
        const __m256 t = _mm256_cvtepi32_ps(S_SUM_##B(r));                                                           \
        const __m256 whole = _mm256_fmadd_ps(zeros, _mm256_set1_ps(x->s[r][g]), t);                                  \
        a##r = _mm256_fmadd_ps(whole, _mm256_mul_ps(scales, _mm256_set1_ps(x->d[r][g])), a##r);                      \
    }
#define S_FLOAT_8(r) S_FLOAT_OF(8, r)
#define S_FLOAT_5(r) S_FLOAT_OF(5, r)
#define S_FLOAT_4(r) S_FLOAT_OF(4, r)
#define S_FLOAT_2(r) S_FLOAT_OF(2, r)
#define S_PUT(r)     _mm256_storeu_ps(s + 64 * r + 8 * half, a##r);

/* Codes of 8 bits are stored with 128 added: so much less is what the zero adds for each code. */
#define DEFINE_CODED_SCORE(B, R)                                                                                     \
    static void score##B##_##R(const struct coded *x, const uint8_t *first, const uint16_t *scale,                   \
                               const uint16_t *zero, size_t n_groups, float *s)                                      \
    {                                                                                                                \
        uintptr_t ahead = x->ahead;                                                                                  \
        const __m256 shift = _mm256_set1_ps(B == 8 ? 128.0f : 0.0f);                                                 \
        for (size_t half = 0; half < 2; half++) {                                                                    \
            const uint8_t *codes = first + 32 * half;                                                                \
            ROWS_##R(S_QUERY) for (size_t g = 0; g < n_groups; g++, codes += B * 64)                                 \
            {                                                                                                        \
                ROWS_##R(S_PART) S_GROUP_##B(R) const __m256 scales = vn_load_f16(scale + 16 * g + 8 * half);        \
                const __m256 zeros = _mm256_sub_ps(vn_load_f16(zero + 16 * g + 8 * half), shift);                    \
                ROWS_##R(S_FLOAT_##B)                                                                                \
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
DEFINE_CODED_SCORES(2)
DEFINE_CODED_SCORES(4)
DEFINE_CODED_SCORES(5)
DEFINE_CODED_SCORES(8)
