/* Words for codes with AVX2: what affine.c and turbo.c share. */
#ifndef SN_CODED_AVX2_H
#define SN_CODED_AVX2_H

#include "kernel/x86/avx2/lanes.h"

INLINE v16 v_halves(const uint16_t *p)
{
    return V_EACH(vn_load_f16(p), vn_load_f16(p + 8));
}

/* Rounds 16 numbers within the range of a byte to nearest even and stores them; returns them. */
INLINE v16 store_codes(int8_t *to, v16 x)
{
    __m256i a = _mm256_cvtps_epi32(x.a), b = _mm256_cvtps_epi32(x.b), low = _mm256_set1_epi32(255);
    __m256i words = _mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
    words = _mm256_permute4x64_epi64(words, 0xD8);
    __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128((void *)to, bytes);
    return V_EACH(_mm256_cvtepi32_ps(a), _mm256_cvtepi32_ps(b));
}

INLINE __m256i four_codes(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}

#endif
