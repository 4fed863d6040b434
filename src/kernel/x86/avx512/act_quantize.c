/* Activation block with AVX-512: the arithmetic of scalar/act_quantize.c, lane by lane. */
#include <immintrin.h>
#include <math.h>

#include "kernel/packed.h"
#include "kernel/slots.h"

/* 16 codes: rounded to nearest even by the default mode, within +-127. */
static inline __m512i code16(__m512 x, __m512 inverse)
{
    __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
    return _mm512_max_epi32(_mm512_min_epi32(q, _mm512_set1_epi32(127)), _mm512_set1_epi32(-127));
}

void sn_act_quantize_avx512(const float *x, size_t n_blocks, enum sn_act form, uint8_t *tile,
                            size_t row)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    for (size_t b = 0; b < n_blocks; b++, x += SN_BLOCK, tile += SN_TILE_BLOCK_BYTES) {
        __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        __m512i m0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude);
        __m512i m1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude);
        /* Magnitudes order like integers, and a fault is the largest of all. */
        uint32_t top = (uint32_t)_mm512_reduce_max_epi32(_mm512_max_epi32(m0, m1));
        float amax, d = 0, s;
        int32_t sum = 0;
        memcpy(&amax, &top, sizeof amax);
        __m512i q0 = _mm512_setzero_si512(), q1 = q0;
        if (top >= 0x7F800000) {
            d = NAN;
        } else if (amax >= 0x1p-100f) {
            d = amax / 127.0f;
            __m512 inverse = _mm512_set1_ps(127.0f / amax);
            q0 = code16(x0, inverse);
            q1 = code16(x1, inverse);
            sum = _mm512_reduce_add_epi32(_mm512_add_epi32(q0, q1));
        }
        uint8_t *codes = tile + row * SN_BLOCK;
        _mm_storeu_si128((__m128i *)codes, _mm512_cvtepi32_epi8(q0));
        _mm_storeu_si128((__m128i *)(codes + 16), _mm512_cvtepi32_epi8(q1));
        memcpy(tile + SN_TILE_SCALE + 4 * row, &d, sizeof d);
        s = d * (float)sum;
        sum *= -128;
        memcpy(tile + SN_TILE_THIRD + 4 * row, form == SN_ACT_Q8_SUM ? (const void *)&s : &sum, 4);
    }
}
