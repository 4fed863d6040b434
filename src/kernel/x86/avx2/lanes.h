/* Sixteen f32 lanes on AVX2: two registers of 8. The same words as avx512/lanes.h. */
#ifndef SN_LANES_AVX2_H
#define SN_LANES_AVX2_H

#include <immintrin.h>
#include <math.h>

#include "kernel/slots.h"

#define LEVEL(name) name##_avx2
#define INLINE      static inline __attribute__((always_inline))

typedef struct {
    __m256 a, b;
} v16;
typedef v16 m16; /* a truth value per lane: all bits or none */

#define V_EACH(expr_a, expr_b) ((v16){(expr_a), (expr_b)})

INLINE v16 v_set(float x)
{
    return V_EACH(_mm256_set1_ps(x), _mm256_set1_ps(x));
}
INLINE v16 v_zero(void)
{
    return V_EACH(_mm256_setzero_ps(), _mm256_setzero_ps());
}
INLINE v16 v_load(const float *p)
{
    return V_EACH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}
INLINE void v_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
INLINE m16 m_first(size_t n) /* n = 0 .. 16 */
{
    static const int32_t window[32] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                       -1, -1, -1, -1, -1, -1, -1, -1};
    return V_EACH(_mm256_loadu_ps((const float *)(window + 16 - n)),
                  _mm256_loadu_ps((const float *)(window + 24 - n)));
}
INLINE m16 m_bits(uint64_t bits)
{
    __m256i v = _mm256_set1_epi32((int)(bits & 0xFFFF));
    __m256i lo = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128), hi = _mm256_slli_epi32(lo, 8);
    return V_EACH(_mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(v, lo), lo)),
                  _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(v, hi), hi)));
}
INLINE unsigned m_to_bits(m16 m)
{
    return (unsigned)_mm256_movemask_ps(m.a) | (unsigned)_mm256_movemask_ps(m.b) << 8;
}
/* The first n = 0 .. 16 lanes; the others are +0, or not written. Touches no other memory. By way
 * of a buffer and not vmaskmovps: some emulators (QEMU 7.2) read all of its lanes and fault at a
 * protected page. Only tails come here. */
INLINE v16 v_load_n(const float *p, size_t n)
{
    float lanes[16] = {0};
    memcpy(lanes, p, n * sizeof *p);
    return v_load(lanes);
}
INLINE void v_store_n(float *p, size_t n, v16 x)
{
    float lanes[16];
    v_store(lanes, x);
    memcpy(p, lanes, n * sizeof *p);
}

INLINE v16 v_add(v16 x, v16 y)
{
    return V_EACH(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b));
}
INLINE v16 v_sub(v16 x, v16 y)
{
    return V_EACH(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b));
}
INLINE v16 v_mul(v16 x, v16 y)
{
    return V_EACH(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b));
}
INLINE v16 v_div(v16 x, v16 y)
{
    return V_EACH(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b));
}
INLINE v16 v_fma(v16 x, v16 y, v16 z)
{
    return V_EACH(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
/* x > y ? x : y and x < y ? x : y, so y where one of them is NaN. */
INLINE v16 v_greater(v16 x, v16 y)
{
    return V_EACH(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b));
}
INLINE v16 v_less(v16 x, v16 y)
{
    return V_EACH(_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b));
}
INLINE v16 v_select(m16 m, v16 yes, v16 no)
{
    return V_EACH(_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b));
}
INLINE m16 m_less(v16 x, v16 y)
{
    return V_EACH(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ));
}
INLINE m16 m_nan(v16 x)
{
    return V_EACH(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q));
}
INLINE __m256 not_finite8(__m256 x) /* all exponent bits set */
{
    __m256i e = _mm256_set1_epi32(0x7F800000);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(_mm256_castps_si256(x), e), e));
}
INLINE m16 m_not_finite(v16 x)
{
    return V_EACH(not_finite8(x.a), not_finite8(x.b));
}
INLINE v16 v_and(v16 x, v16 y)
{
    return V_EACH(_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b));
}
INLINE v16 v_or(v16 x, v16 y)
{
    return V_EACH(_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b));
}
INLINE v16 v_xor(v16 x, v16 y)
{
    return V_EACH(_mm256_xor_ps(x.a, y.a), _mm256_xor_ps(x.b, y.b));
}
INLINE __m256 add_exponent8(__m256 x, __m256 t)
{
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}
/* Adds the low bits of t to the exponent field of x. */
INLINE v16 v_add_exponent(v16 x, v16 t)
{
    return V_EACH(add_exponent8(x.a, t.a), add_exponent8(x.b, t.b));
}

/* Folds 8, 4, 2, 1. */
INLINE float v_tree_sum(v16 v)
{
    __m256 x = _mm256_add_ps(v.a, v.b);
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_shuffle_ps(y, y, 1)));
}
INLINE float v_top(v16 v) /* no lane is NaN */
{
    __m256 x = _mm256_max_ps(v.a, v.b);
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_shuffle_ps(y, y, 1)));
}

INLINE __m256 in_order(__m256 x) /* quarters 0 2 1 3 */
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xD8));
}
/* x, y = 32 floats in order; even and odd ones, and back. */
INLINE void v_unzip(v16 x, v16 y, v16 *even, v16 *odd)
{
    *even = V_EACH(in_order(_mm256_shuffle_ps(x.a, x.b, 0x88)),
                   in_order(_mm256_shuffle_ps(y.a, y.b, 0x88)));
    *odd = V_EACH(in_order(_mm256_shuffle_ps(x.a, x.b, 0xDD)),
                  in_order(_mm256_shuffle_ps(y.a, y.b, 0xDD)));
}
INLINE v16 zip8(__m256 even, __m256 odd)
{
    __m256 lo = _mm256_unpacklo_ps(even, odd), hi = _mm256_unpackhi_ps(even, odd);
    return V_EACH(_mm256_permute2f128_ps(lo, hi, 0x20), _mm256_permute2f128_ps(lo, hi, 0x31));
}
INLINE void v_zip(v16 even, v16 odd, v16 *x, v16 *y)
{
    *x = zip8(even.a, odd.a);
    *y = zip8(even.b, odd.b);
}

/* Sixteen 16-bit results of a store. */
INLINE __m256i v_to_f16(v16 x)
{
    x = v_less(v_set(65504.0f), v_greater(v_set(-65504.0f), x)); /* keeps NaN */
    return _mm256_set_m128i(_mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
                            _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE __m256i bf16_8(__m256 x) /* results in 32-bit lanes */
{
    __m256i u = _mm256_castps_si256(x), top = _mm256_srli_epi32(u, 16);
    __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    __m256i r = _mm256_srli_epi32(
        _mm256_add_epi32(_mm256_add_epi32(u, odd), _mm256_set1_epi32(0x7FFF)), 16);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(r, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);
}
INLINE __m256i v_to_bf16(v16 x)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(bf16_8(x.a), bf16_8(x.b)), 0xD8);
}

/* The native register: what the inner loops of attention count in. */
typedef __m256 vn;
enum { VN = 8 };
INLINE vn vn_set(float a)
{
    return _mm256_set1_ps(a);
}
INLINE vn vn_zero(void)
{
    return _mm256_setzero_ps();
}
INLINE vn vn_mul(vn a, vn b)
{
    return _mm256_mul_ps(a, b);
}
INLINE vn vn_fma(vn a, vn b, vn c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE void vn_store(float *p, vn a)
{
    _mm256_storeu_ps(p, a);
}
INLINE vn vn_load_f32(const float *p)
{
    return _mm256_loadu_ps(p);
}
INLINE vn vn_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}
INLINE vn vn_load_bf16(const uint16_t *p)
{
    __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(u, 16));
}

#endif
