/* Sixteen f32 lanes on AVX-512. The templates in the folder above (*.inc) are written in these
 * words; avx2/lanes.h has the same words for pairs of 8-lane registers. */
#ifndef SN_LANES_AVX512_H
#define SN_LANES_AVX512_H

#include <immintrin.h>
#include <math.h>

#include "kernel/slots.h"

#define LEVEL(name) name##_avx512
#define INLINE      static inline __attribute__((always_inline))

typedef __m512 v16;
typedef __mmask16 m16; /* a truth value per lane */

INLINE v16 v_set(float a)
{
    return _mm512_set1_ps(a);
}
INLINE v16 v_zero(void)
{
    return _mm512_setzero_ps();
}
INLINE v16 v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
INLINE void v_store(float *p, v16 a)
{
    _mm512_storeu_ps(p, a);
}
INLINE m16 m_first(size_t n)
{
    return (m16)((1u << n) - 1);
} /* n = 0 .. 16 */
INLINE m16 m_bits(uint64_t bits)
{
    return (m16)bits;
}
INLINE unsigned m_to_bits(m16 m)
{
    return m;
}
/* The first n = 0 .. 16 lanes; the others are +0, or not written. Touches no other memory. */
INLINE v16 v_load_n(const float *p, size_t n)
{
    return _mm512_maskz_loadu_ps(m_first(n), p);
}
INLINE void v_store_n(float *p, size_t n, v16 a)
{
    _mm512_mask_storeu_ps(p, m_first(n), a);
}

INLINE v16 v_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
INLINE v16 v_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}
INLINE v16 v_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
INLINE v16 v_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
INLINE v16 v_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* a > b ? a : b and a < b ? a : b, so b where one of them is NaN. */
INLINE v16 v_greater(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
INLINE v16 v_less(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}
INLINE v16 v_select(m16 m, v16 yes, v16 no)
{
    return _mm512_mask_mov_ps(no, m, yes);
}
INLINE m16 m_less(v16 a, v16 b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
INLINE m16 m_nan(v16 a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
INLINE m16 m_not_finite(v16 a) /* all exponent bits set */
{
    __m512i e = _mm512_set1_epi32(0x7F800000);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(_mm512_castps_si512(a), e), e);
}
INLINE v16 v_and(v16 a, v16 b)
{
    return _mm512_and_ps(a, b);
}
INLINE v16 v_or(v16 a, v16 b)
{
    return _mm512_or_ps(a, b);
}
INLINE v16 v_xor(v16 a, v16 b)
{
    return _mm512_xor_ps(a, b);
}
/* Adds the low bits of t to the exponent field of a. */
INLINE v16 v_add_exponent(v16 a, v16 t)
{
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

/* Folds 8, 4, 2, 1. */
INLINE float v_tree_sum(v16 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}
INLINE float v_top(v16 v) /* no lane is NaN */
{
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_shuffle_ps(b, b, 1)));
}

/* a, b = 32 floats in order; even and odd ones, and back. */
INLINE void v_unzip(v16 a, v16 b, v16 *even, v16 *odd)
{
    __m512i i = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, i, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(i, _mm512_set1_epi32(1)), b);
}
INLINE void v_zip(v16 even, v16 odd, v16 *a, v16 *b)
{
    __m512i i = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *a = _mm512_permutex2var_ps(even, i, odd);
    *b = _mm512_permutex2var_ps(even, _mm512_add_epi32(i, _mm512_set1_epi32(8)), odd);
}

/* Sixteen 16-bit results of a store. */
INLINE __m256i v_to_f16(v16 a)
{
    a = v_less(v_set(65504.0f), v_greater(v_set(-65504.0f), a)); /* keeps NaN */
    return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE __m256i v_to_bf16(v16 a)
{
    __m512i u = _mm512_castps_si512(a), top = _mm512_srli_epi32(u, 16);
    __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(
        _mm512_add_epi32(_mm512_add_epi32(u, odd), _mm512_set1_epi32(0x7FFF)), 16);
    return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(r, m_nan(a), top, _mm512_set1_epi32(0x40)));
}

/* The native register: what the inner loops of attention count in. */
typedef __m512 vn;
enum { VN = 16 };
INLINE vn vn_set(float a)
{
    return _mm512_set1_ps(a);
}
INLINE vn vn_zero(void)
{
    return _mm512_setzero_ps();
}
INLINE vn vn_mul(vn a, vn b)
{
    return _mm512_mul_ps(a, b);
}
INLINE vn vn_fma(vn a, vn b, vn c)
{
    return _mm512_fmadd_ps(a, b, c);
}
INLINE void vn_store(float *p, vn a)
{
    _mm512_storeu_ps(p, a);
}
INLINE vn vn_load_f32(const float *p)
{
    return _mm512_loadu_ps(p);
}
INLINE vn vn_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
INLINE vn vn_load_bf16(const uint16_t *p)
{
    __m512i u = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
}

#endif
