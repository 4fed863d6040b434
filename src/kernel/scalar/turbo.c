/* The specification of TurboQuant codes: queries, keys, rotated values, and attention over them, in the order of
 * numerics.md "TurboQuant". */
#include "kernel/turbo.h"

#include "kernel/scalar/attention.h"
#include "kernel/scalar/scalar.h"
#include "tensor/traits.h"

enum { G = SN_TURBO_GROUP };

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

/* ---- queries and keys ----------------------------------------------------------------------------------------- */

/* Where dimension i, of 16, goes. */
static size_t place_of(size_t i, unsigned bits)
{
    if (bits == 2)
        return i % 4 * 4 + i / 4;
    return bits == 4 ? i / 8 * 8 + i % 2 * 4 + i % 8 / 2 : i;
}

static void query_group(const float *x, unsigned bits, int8_t *codes, float *d, float *sum)
{
    bool fault = has_fault(x, G);
    float amax = 0;
    int32_t total = 0;
    for (size_t i = 0; i < G && !fault; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    memset(codes, 0, G);
    *d = *sum = fault ? NAN : 0.0f;
    if (amax < 0x1p-100f) /* nothing to tell from zero; also a fault */
        return;
    float inverse = 127.0f / amax;
    for (size_t i = 0; i < G; i++) {
        int8_t code = (int8_t)within(rintf(x[i] * inverse), -127.0f, 127.0f);
        codes[i / 16 * 16 + place_of(i % 16, bits)] = code;
        total += code;
    }
    *d = amax / 127.0f;
    *sum = (float)total;
}

void SCALAR(sn_turbo_query)(const float *x, size_t n, unsigned bits, int8_t *codes, float *d, float *sum)
{
    for (size_t g = 0; g < n / G; g++)
        query_group(x + g * G, bits, codes + g * G, d + g, sum + g);
}

/* What is stored for the scale of a group with these extremes, max > min. */
static uint16_t key_scale(float low, float high, float top)
{
    float amax = high > -low ? high : -low, floor = amax * 0x1p-11f, step = (high - low) / top;
    uint16_t scale = sn_f32_to_f16_sat(step < floor ? floor : step);
    return sn_f16_to_f32(scale) < floor && scale < 0x7BFF ? (uint16_t)(scale + 1) : scale;
}

static void key_group(const float *x, unsigned bits, uint8_t codes[G], uint16_t *scale, uint16_t *zero)
{
    const float least = bits == 8 ? -127.0f : 0.0f, most = bits == 8 ? 127.0f : (float)((1u << bits) - 1);
    const float shift = bits == 8 ? 128.0f : 0.0f;
    float low = x[0], high = x[0];
    memset(codes, bits == 8 ? 128 : 0, G);
    *zero = 0;
    if (has_fault(x, G)) {
        *scale = 0x7E00;
        return;
    }
    for (size_t i = 1; i < G; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    if (low == high) {
        *scale = sn_f32_to_f16_sat(fabsf(low));
        *zero = low > 0 ? 0x3C00 : low < 0 ? 0xBC00 : 0;
        return;
    }
    *scale = key_scale(low, high, most - least);
    float s = sn_f16_to_f32(*scale), z = bits == 8 ? (high + low) / (2.0f * s) : low / s;
    z = within(rintf(z), -2048.0f, 2048.0f) + 0.0f; /* -0 becomes +0: which of them was the minimum is an accident */
    *zero = sn_f32_to_f16_sat(z);
    for (size_t i = 0; i < G; i++)
        codes[i] = (uint8_t)(within(rintf(x[i] / s - z), least, most) + shift);
}

void SCALAR(sn_turbo_keys)(const float *x, size_t n, unsigned bits, uint8_t *codes, uint16_t *scale, uint16_t *zero)
{
    for (size_t g = 0; g < n / G; g++) {
        uint8_t group[G];
        key_group(x + g * G, bits, group, scale + g, zero + g);
        sn_turbo_pack(group, bits, codes + g * bits * 4);
    }
}

/* ---- values --------------------------------------------------------------------------------------------------- */

static void stages(float *x, size_t d)
{
    for (size_t h = 1; h < d; h *= 2)
        for (size_t i = 0; i < d; i++)
            if (!(i & h)) {
                float a = x[i], b = x[i + h];
                x[i] = a + b;
                x[i + h] = a - b;
            }
}

static float signed_by(const uint64_t *signs, size_t i, float x)
{
    return signs[i / 64] >> i % 64 & 1 ? -x : x;
}

void SCALAR(sn_turbo_rotate)(float *x, size_t d)
{
    const uint64_t *signs = sn_turbo_signs(d);
    float norm = sn_turbo_norm(d);
    stages(x, d);
    for (size_t i = 0; i < d; i++)
        x[i] = signed_by(signs, i, x[i] * norm);
}

static void value_group(const float *y, unsigned bits, uint8_t codes[G], uint16_t *scale)
{
    const float *threshold = sn_turbo_thresholds(bits);
    float sums[16] = {0};
    memset(codes, 0, G);
    *scale = 0x7E00;
    if (has_fault(y, G))
        return;
    for (size_t i = 0; i < G; i++)
        sums[i % 16] = fmaf(y[i], y[i], sums[i % 16]);
    *scale = sn_f32_to_f16_sat(sqrtf(tree16(sums) * (1.0f / G)));
    float s = sn_f16_to_f32(*scale) + 1e-8f;
    for (size_t i = 0; i < G; i++) {
        float z = y[i] / s;
        for (unsigned step = 1u << (bits - 1); step > 0; step /= 2) /* thresholds ascend */
            if (z > threshold[codes[i] + step - 1])
                codes[i] = (uint8_t)(codes[i] + step);
    }
}

void SCALAR(sn_turbo_values)(const float *x, size_t d, unsigned bits, uint8_t *codes, uint16_t *scale)
{
    const uint64_t *signs = sn_turbo_signs(d);
    float y[SN_TURBO_MAX_DIM], norm = sn_turbo_norm(d);
    for (size_t i = 0; i < d; i++)
        y[i] = signed_by(signs, i, x[i]);
    stages(y, d);
    for (size_t i = 0; i < d; i++)
        y[i] = y[i] * norm;
    for (size_t g = 0; g < d / G; g++) {
        uint8_t group[G];
        value_group(y + g * G, bits, group, scale + g);
        sn_turbo_pack(group, bits, codes + g * bits * 4);
    }
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

/* Code i of a group whose stream's bytes 4j .. 4j + 3 are `stride` bytes apart. */
static unsigned code_at(const uint8_t *codes, size_t stride, unsigned bits, size_t i)
{
    size_t bit = i * bits, byte = bit / 8, next = byte + 1;
    unsigned x = codes[byte / 4 * stride + byte % 4];
    if (bit % 8 + bits > 8)
        x |= (unsigned)codes[next / 4 * stride + next % 4] << 8;
    return x >> bit % 8 & ((1u << bits) - 1);
}

/* acc = fma(t + zero * sum, scale * d_q, acc), groups ascending; t + zero * sum is a whole number below 2^24. */
static void scores(const struct sn_attn_turbo_args *a, size_t i, size_t c, uint64_t visible, float s[64])
{
    const struct sn_turbo_part *k = &a->k[c];
    size_t n_groups = a->a.d_k / G;
    const float *d_q = a->q_d + i * n_groups, *sum_q = a->q_sum + i * n_groups;
    const int8_t *q = a->q + i * a->a.d_k;
    float cap = a->a.soft_cap, inverse = cap != 0 ? 1.0f / cap : 0;
    int32_t shift = a->k_bits == 8 ? 128 : 0;
    for (size_t key = 0; key < 64; key++) {
        if (!sees(visible, key))
            continue;
        float acc = 0;
        for (size_t g = 0; g < n_groups; g++) {
            int32_t t = 0;
            size_t at = key / 16 * n_groups + g;
            const uint8_t *codes = k->codes + at * a->k_bits * 64 + key % 16 * 4;
            for (size_t d = 0; d < G; d++)
                t += q[g * G + d / 16 * 16 + place_of(d % 16, a->k_bits)] *
                     ((int32_t)code_at(codes, 64, a->k_bits, d) - shift);
            float whole = fmaf(sn_f16_to_f32(k->zero[at * 16 + key % 16]), sum_q[g], (float)t);
            acc = fmaf(whole, sn_f16_to_f32(k->scale[at * 16 + key % 16]) * d_q[g], acc);
        }
        s[key] = cap != 0 ? cap * sn_tanh_inline(acc * inverse) : acc;
    }
}

static void chunk(const struct sn_attn_turbo_args *a, size_t i, size_t c, uint64_t visible)
{
    const struct sn_turbo_part *v = &a->v[c];
    const float *centroid = sn_turbo_centroids(a->v_bits);
    float s[64], p[64], *o = a->a.o + i * a->a.ldo;
    scores(a, i, c, visible, s);
    float keep = chunk_weights(s, visible, a->a.m + i, a->a.l + i, p);
    for (size_t d = 0; d < a->a.d_v; d++)
        o[d] = o[d] * keep;
    for (size_t key = 0; key < 64; key++) {
        if (!sees(visible, key))
            continue;
        const uint8_t *codes = v->codes + key * (a->a.d_v * a->v_bits / 8);
        for (size_t g = 0; g < a->a.d_v / G; g++, codes += a->v_bits * 4) {
            float w = p[key] * sn_f16_to_f32(v->scale[g * 64 + key]);
            for (size_t d = 0; d < G; d++)
                o[g * G + d] = fmaf(w, centroid[code_at(codes, 4, a->v_bits, d)], o[g * G + d]);
        }
    }
}

void SCALAR(sn_attn_turbo)(const struct sn_attn_turbo_args *a)
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
