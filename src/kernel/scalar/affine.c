/* The specification of affine codes: queries, encoding, and attention over them, in the order of numerics.md
 * "Quantized KV". */
#include "kernel/scalar/attention.h"
#include "kernel/scalar/scalar.h"
#include "tensor/traits.h"

static bool has_fault(const float *x, size_t n)
{
    bool fault = false;
    for (size_t i = 0; i < n; i++)
        fault |= (sn_to_bits(x[i]) & 0x7F800000) == 0x7F800000;
    return fault;
}

static float within(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* ---- coding --------------------------------------------------------------------------------------------------- */

static void query_group(const float *x, size_t n, int8_t *codes, float *d, float *s)
{
    bool fault = has_fault(x, n);
    float amax = 0;
    int32_t sum = 0;
    for (size_t i = 0; i < n && !fault; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    memset(codes, 0, n);
    *d = fault ? NAN : 0.0f;
    *s = *d;
    if (amax < 0x1p-100f) /* nothing to tell from zero; also a fault */
        return;
    float inverse = 127.0f / amax;
    for (size_t i = 0; i < n; i++) {
        codes[i] = (int8_t)within(rintf(x[i] * inverse), -127.0f, 127.0f);
        sum += codes[i];
    }
    *d = amax / 127.0f;
    *s = *d * (float)sum;
}

void SCALAR(sn_code_query)(const float *x, size_t n, size_t group, int8_t *codes, float *d, float *s)
{
    for (size_t g = 0; g < n / group; g++)
        query_group(x + g * group, group, codes + g * group, d + g, s + g);
}

static void encode_group(const float *x, size_t n, float most, uint8_t *codes, uint16_t *scale, uint16_t *bias)
{
    memset(codes, 0, n);
    if (has_fault(x, n)) {
        *scale = *bias = 0x7E00;
        return;
    }
    float low = x[0], high = x[0];
    for (size_t i = 1; i < n; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    *bias = sn_f32_to_f16_sat(low + 0.0f); /* -0 becomes +0: which of them was the minimum is an accident */
    *scale = sn_f32_to_f16_sat((high - low) / most);
    float b = sn_f16_to_f32(*bias), step = sn_f16_to_f32(*scale);
    for (size_t i = 0; i < n && step > 0; i++)
        codes[i] = (uint8_t)rintf(within((x[i] - b) / step, 0.0f, most));
}

void SCALAR(sn_affine_encode)(const float *x, size_t n, size_t group, unsigned bits, uint8_t *codes, uint16_t *scale,
                              uint16_t *bias)
{
    for (size_t g = 0; g < n / group; g++)
        encode_group(x + g * group, group, bits == 8 ? 255.0f : 15.0f, codes + g * group, scale + g, bias + g);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

static int32_t key_code(const struct sn_attn_affine_args *a, const uint8_t *codes, size_t key, size_t d)
{
    if (a->k_bits == 8)
        return codes[((key / 16 * (a->a.d_k / 4) + d / 4) * 16 + key % 16) * 4 + d % 4];
    uint8_t both = codes[((key / 16 * (a->a.d_k / 8) + d / 8) * 16 + key % 16) * 4 + d % 4];
    return d / 4 % 2 ? both >> 4 : both & 15;
}

static float value_code(const struct sn_attn_affine_args *a, const uint8_t *codes, size_t key, size_t d)
{
    if (a->v_bits == 8)
        return codes[key * a->a.d_v + d];
    uint8_t both = codes[key * (a->a.d_v / 2) + d / 32 * 16 + d % 16];
    return (float)(d / 16 % 2 ? both >> 4 : both & 15);
}

/* acc = fma(t, scale * d_q, acc); acc = fma(bias, s_q, acc), groups ascending; t is exact. */
static void scores(const struct sn_attn_affine_args *a, size_t i, size_t c, uint64_t visible, float s[64])
{
    const struct sn_affine_part *k = &a->k[c];
    size_t n_groups = a->a.d_k / a->group;
    const float *d_q = a->q_d + i * n_groups, *s_q = a->q_s + i * n_groups;
    const int8_t *q = a->q + i * a->a.d_k;
    float cap = a->a.soft_cap, inverse = cap != 0 ? 1.0f / cap : 0;
    for (size_t key = 0; key < 64; key++) {
        if (!sees(visible, key))
            continue;
        float acc = 0;
        for (size_t g = 0; g < n_groups; g++) {
            int32_t t = 0;
            size_t at = (key / 16 * n_groups + g) * 16 + key % 16;
            for (size_t d = g * a->group; d < (g + 1) * a->group; d++)
                t += q[d] * key_code(a, k->codes, key, d);
            acc = fmaf((float)t, sn_f16_to_f32(k->scale[at]) * d_q[g], acc);
            acc = fmaf(sn_f16_to_f32(k->bias[at]), s_q[g], acc);
        }
        s[key] = cap != 0 ? cap * sn_tanh_inline(acc * inverse) : acc;
    }
}

/* One group of dimensions: o = fma(p * scale, code, o), keys ascending, then + the weighted biases. */
static void value_group(const struct sn_attn_affine_args *a, size_t c, size_t g, uint64_t visible, const float p[64],
                        float *o)
{
    const struct sn_affine_part *v = &a->v[c];
    float sums[16] = {0};
    for (size_t key = 0; key < 64; key++) {
        if (!sees(visible, key))
            continue;
        float w = p[key] * sn_f16_to_f32(v->scale[g * 64 + key]);
        for (size_t d = g * a->group; d < (g + 1) * a->group; d++)
            o[d] = fmaf(w, value_code(a, v->codes, key, d), o[d]);
        sums[key % 16] = fmaf(p[key], sn_f16_to_f32(v->bias[g * 64 + key]), sums[key % 16]);
    }
    float sum = tree16(sums);
    for (size_t d = g * a->group; d < (g + 1) * a->group; d++)
        o[d] = o[d] + sum;
}

static void chunk(const struct sn_attn_affine_args *a, size_t i, size_t c, uint64_t visible)
{
    float s[64], p[64], *o = a->a.o + i * a->a.ldo;
    scores(a, i, c, visible, s);
    float keep = chunk_weights(s, visible, a->a.m + i, a->a.l + i, p);
    for (size_t d = 0; d < a->a.d_v; d++)
        o[d] = o[d] * keep;
    for (size_t g = 0; g < a->a.d_v / a->group; g++)
        value_group(a, c, g, visible, p, o);
}

void SCALAR(sn_attn_affine)(const struct sn_attn_affine_args *a)
{
    for (size_t i = 0; i < a->a.n_q; i++) {
        a->a.m[i] = -INFINITY;
        a->a.l[i] = 0;
        memset(a->a.o + i * a->a.ldo, 0, a->a.d_v * sizeof *a->a.o);
        for (size_t c = 0; c < a->a.n_chunks; c++) {
            uint64_t visible = a->a.visible[i * a->a.n_chunks + c];
            if (visible)
                chunk(a, i, c, visible);
        }
    }
}
