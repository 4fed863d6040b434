/* The specification of everything that works on one row: norm, rotation, gates, sums. */
#include "kernel/elementary.h"
#include "kernel/scalar/scalar.h"
#include "kernel/select.h"

/* 16 partial sums folded 8, 4, 2, 1. */
static float tree16(float s[16])
{
    for (size_t width = 8; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++)
            s[i] = s[i] + s[i + width];
    return s[0];
}

void SCALAR(sn_rms_norm)(const float *x, const float *w, size_t n, float eps, float *y)
{
    float s[16] = {0};
    for (size_t i = 0; i < n; i++)
        s[i % 16] = fmaf(x[i], x[i], s[i % 16]);
    float r = 1.0f / sqrtf(tree16(s) / (float)n + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = (x[i] * r) * w[i];
}

static void rotate(float *a, float *b, float cos, float sin)
{
    float x1 = *a, x2 = *b;
    *a = fmaf(x1, cos, -(x2 * sin));
    *b = fmaf(x2, cos, x1 * sin);
}

void SCALAR(sn_rope_pair)(float *x, const float *cos, const float *sin, size_t n_pairs)
{
    for (size_t i = 0; i < n_pairs; i++)
        rotate(x + 2 * i, x + 2 * i + 1, cos[i], sin[i]);
}

void SCALAR(sn_rope_half)(float *x, const float *cos, const float *sin, size_t n_pairs)
{
    for (size_t i = 0; i < n_pairs; i++)
        rotate(x + i, x + i + n_pairs, cos[i], sin[i]);
}

void SCALAR(sn_silu_mul)(const float *g, const float *u, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = g[i] / (1.0f + sn_exp_inline(-g[i])) * u[i];
}

void SCALAR(sn_gelu_tanh_mul)(const float *g, const float *u, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++) {
        float cube = fmaf(0.044715f * g[i], g[i] * g[i], g[i]);
        y[i] = (0.5f * g[i]) * (1.0f + sn_tanh_inline(0.79788456f * cube)) * u[i];
    }
}

void SCALAR(sn_gelu_erf_mul)(const float *g, const float *u, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = (0.5f * g[i]) * (1.0f + sn_erf_inline(g[i] * 0.70710678f)) * u[i];
}

void SCALAR(sn_add)(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] + y[i];
}

void SCALAR(sn_soft_cap)(float *x, size_t n, float cap)
{
    float inverse = 1.0f / cap;
    for (size_t i = 0; i < n; i++)
        x[i] = cap * sn_tanh_inline(x[i] * inverse);
}

void SCALAR(sn_scale)(float *x, size_t n, float a)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] * a;
}

float SCALAR(sn_max)(const float *x, size_t n)
{
    float m = -INFINITY;
    for (size_t i = 0; i < n; i++)
        m = x[i] > m ? x[i] : m;
    return m;
}

float SCALAR(sn_sum_exp)(const float *x, size_t n, float max)
{
    float s[16] = {0};
    for (size_t i = 0; i < n; i++)
        s[i % 16] = s[i % 16] + sn_exp_inline(x[i] - max);
    return tree16(s);
}

bool SCALAR(sn_all_finite)(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((sn_to_bits(x[i]) & 0x7F800000u) == 0x7F800000u)
            return false;
    return true;
}

void SCALAR(sn_top_k)(const float *x, size_t n, size_t k, uint32_t *out)
{
    if (k == 0)
        return;
    sn_select_start(x, out, k);
    for (size_t i = k; i < n; i++)
        if (x[i] > x[out[0]]) /* an equal value comes later, so it loses */
            sn_select_sink(x, out, k, 0, (uint32_t)i);
    sn_select_finish(x, out, k);
}

void SCALAR(sn_exp)(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sn_exp_inline(x[i]);
}

void SCALAR(sn_tanh)(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sn_tanh_inline(x[i]);
}

void SCALAR(sn_erf)(const float *x, size_t n, float *y)
{
    for (size_t i = 0; i < n; i++)
        y[i] = sn_erf_inline(x[i]);
}
