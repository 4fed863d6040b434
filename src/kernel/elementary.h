/* The f32 exp, tanh and erf, operation by operation. This is the specification that the vector
 * forms in x86/ repeat; inline so that the scalar kernels get them with their own compiler flags.
 * Coefficients: exp and tanh from Cephes (Moshier, expf.c, tanhf.c), erf after N. Juffa (a minimax
 * fit of 1 - exp(polynomial)). */
#ifndef SN_ELEMENTARY_H
#define SN_ELEMENTARY_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernel/math.h"

static inline float sn_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t sn_to_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

/* exp(x) = 2^n * exp(r), n = rint(x / ln 2), |r| <= ln(2) / 2. The clamps keep every result a
 * normal number, so 2^n is an addition to the exponent field. n is read from the low bits of n
 * + 1.5 * 2^23: no conversion that a NaN could upset; the last line gives NaN back its due. */
static inline float sn_exp_inline(float x)
{
    float c = x < SN_EXP_LO ? SN_EXP_LO : x;
    c = c > SN_EXP_HI ? SN_EXP_HI : c;
    float t = fmaf(c, 1.44269504f, 12582912.0f);
    float n = t - 12582912.0f;
    float r = fmaf(n, -0.693359375f, c);
    r = fmaf(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f; /* 1 last: r + 1 first would cost accuracy and monotony */
    float y = sn_from_bits(sn_to_bits(p) + (sn_to_bits(t) << 23));
    return x != x ? x : y;
}

/* With the sign of x: |x| < 0.625: |x| + |x|^3 P(x^2); else 1 - 2 / (exp(2|x|) + 1). */
static inline float sn_tanh_inline(float x)
{
    uint32_t sign = sn_to_bits(x) & 0x80000000u;
    float a = sn_from_bits(sn_to_bits(x) ^ sign), z = x * x;
    float p = -5.70498872745e-3f;
    p = fmaf(p, z, 2.06390887954e-2f);
    p = fmaf(p, z, -5.37397155531e-2f);
    p = fmaf(p, z, 1.33314422036e-1f);
    p = fmaf(p, z, -3.33332819422e-1f);
    float small = fmaf(p * z, a, a);
    float big = 1.0f - 2.0f / (sn_exp_inline(a + a) + 1.0f);
    float y = a < 0.625f ? small : big;
    return x != x ? x : sn_from_bits(sn_to_bits(y) | sign);
}

/* With the sign of x: |x| <= 0.927734375: |x| + |x| P(x^2); else 1 - exp(-|x| + |x| Q(|x|)); 1 from
 * 4 on. */
static inline float sn_erf_inline(float x)
{
    uint32_t sign = sn_to_bits(x) & 0x80000000u;
    float a = sn_from_bits(sn_to_bits(x) ^ sign);
    float t = a > 4.0f ? 4.0f : a, z = t * t;
    float q = fmaf(-1.72853470e-5f, t, 3.83197126e-4f);
    float u = fmaf(-3.88396438e-3f, t, 2.42546219e-2f);
    q = fmaf(q, z, u);
    q = fmaf(q, t, -1.06777877e-1f);
    q = fmaf(q, t, -6.34846687e-1f);
    q = fmaf(q, t, -1.28717512e-1f);
    q = fmaf(q, t, -t);
    float big = 1.0f - sn_exp_inline(q);
    float p = -5.96761703e-4f;
    p = fmaf(p, z, 4.99119423e-3f);
    p = fmaf(p, z, -2.67681349e-2f);
    p = fmaf(p, z, 1.12819925e-1f);
    p = fmaf(p, z, -3.76125336e-1f);
    p = fmaf(p, z, 1.28379166e-1f);
    float small = fmaf(p, t, t);
    float y = a > 0.927734375f ? big : small;
    return x != x ? x : sn_from_bits(sn_to_bits(y) | sign);
}

#endif
