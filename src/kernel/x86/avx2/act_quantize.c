/* Activation block with AVX2: the arithmetic of scalar/act_quantize.c, lane by lane. */
#include <immintrin.h>
#include <math.h>

#include "kernel/packed.h"
#include "kernel/slots.h"

static inline uint32_t largest_of(__m256i v)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

static inline int32_t sum_of(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
    return _mm_cvtsi128_si32(s);
}

/* Writes 32 codes, rounded to nearest even by the default mode and within +-127; returns their sum.
 */
static inline int32_t code_block(const float *x, float inverse, uint8_t *codes)
{
    __m256i q[4], sum = _mm256_setzero_si256();
    for (size_t i = 0; i < 4; i++) {
        q[i] =
            _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse)));
        q[i] = _mm256_min_epi32(q[i], _mm256_set1_epi32(127));
        q[i] = _mm256_max_epi32(q[i], _mm256_set1_epi32(-127));
        sum = _mm256_add_epi32(sum, q[i]);
    }
    /* The packs work within 128-bit halves: put the groups of four back in order. */
    __m256i b = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    b = _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)codes, b);
    return sum_of(sum);
}

void sn_act_quantize_avx2(const float *x, size_t n_blocks, enum sn_act form, uint8_t *tile,
                          size_t row)
{
    for (size_t b = 0; b < n_blocks; b++, x += SN_BLOCK, tile += SN_TILE_BLOCK_BYTES) {
        uint8_t *codes = tile + row * SN_BLOCK;
        __m256i top = _mm256_setzero_si256();
        for (size_t i = 0; i < 4; i++) {
            __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 8 * i));
            top = _mm256_max_epi32(top, _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF)));
        }
        /* Magnitudes order like integers, and a fault is the largest of all. */
        uint32_t largest = largest_of(top);
        float amax, d = 0, s;
        int32_t sum = 0;
        memcpy(&amax, &largest, sizeof amax);
        if (largest < 0x7F800000 && amax >= 0x1p-100f) {
            d = amax / 127.0f;
            sum = code_block(x, 127.0f / amax, codes);
        } else {
            d = largest >= 0x7F800000 ? NAN : 0.0f;
            _mm256_storeu_si256((__m256i *)codes, _mm256_setzero_si256());
        }
        memcpy(tile + SN_TILE_SCALE + 4 * row, &d, sizeof d);
        s = d * (float)sum;
        sum *= -128;
        memcpy(tile + SN_TILE_THIRD + 4 * row, form == SN_ACT_Q8_SUM ? (const void *)&s : &sum, 4);
    }
}
