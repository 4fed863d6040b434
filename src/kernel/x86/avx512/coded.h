/* Words for codes with AVX-512: what affine.c and turbo.c share. */
#ifndef SN_CODED_AVX512_H
#define SN_CODED_AVX512_H

#include "kernel/x86/avx512/lanes.h"

INLINE v16 v_halves(const uint16_t *p)
{
    return vn_load_f16(p);
}

/* acc + *x * code. Inline assembly because the operand can be broadcast from memory at no cost, and compilers prefer
 * a register for what is used twice. */
INLINE v16 v_fma_from(const float *x, v16 code, v16 acc)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(code), "m"(*x));
    return acc;
}

/* Rounds 16 numbers within the range of a byte to nearest even and stores them; returns them. */
INLINE v16 store_codes(int8_t *to, v16 x)
{
    __m512i q = _mm512_cvtps_epi32(x);
    _mm_storeu_si128((void *)to, _mm512_cvtepi32_epi8(q));
    return _mm512_cvtepi32_ps(q);
}

INLINE __m512i four_codes(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

#endif
