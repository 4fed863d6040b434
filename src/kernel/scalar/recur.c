/* The specification of recurrent layers: one position at a time. */
#include "kernel/elementary.h"
#include "kernel/scalar/scalar.h"

void SCALAR(sn_conv)(const struct sn_conv_args *a)
{
    for (size_t i = 0; i < a->n; i++) {
        float acc = a->bias ? fmaf(a->w[i], a->x[0][i], a->bias[i]) : a->w[i] * a->x[0][i];
        for (size_t j = 1; j < a->n_taps; j++)
            acc = fmaf(a->w[j * a->ldw + i], a->x[j][i], acc);
        a->y[i] = a->silu ? acc / (1.0f + sn_exp_inline(-acc)) : acc;
    }
}

void SCALAR(sn_l2_norm)(const float *x, size_t n, float eps, float *y)
{
    float s[16] = {0};
    for (size_t i = 0; i < n; i++)
        s[i % 16] = fmaf(x[i], x[i], s[i % 16]);
    for (size_t width = 8; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++)
            s[i] = s[i] + s[i + width];
    float r = 1.0f / sqrtf(s[0] + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * r;
}

/* Four chains of 16 lanes each, folded. */
static float fold(float p[4][16], size_t lane)
{
    return (p[0][lane] + p[1][lane]) + (p[2][lane] + p[3][lane]);
}

void SCALAR(sn_delta_step)(const struct sn_delta_args *a)
{
    float p[4][16] = {{0}}, o[4][16] = {{0}}, u[16];
    for (size_t j = 0; j < a->d_state; j++)
        for (size_t i = 0; i < 16; i++)
            p[j % 4][i] = fmaf(a->from[j * 16 + i], a->k[j], p[j % 4][i]);
    for (size_t i = 0; i < 16; i++)
        u[i] = a->beta * fmaf(-a->decay, fold(p, i), a->v[i]);
    for (size_t j = 0; j < a->d_state; j++)
        for (size_t i = 0; i < 16; i++) {
            float s = fmaf(u[i], a->k[j], a->decay * a->from[j * 16 + i]);
            a->to[j * 16 + i] = s;
            o[j % 4][i] = fmaf(s, a->q[j], o[j % 4][i]);
        }
    for (size_t i = 0; i < 16; i++)
        a->out[i] = fold(o, i);
}

void SCALAR(sn_ssm_step)(const struct sn_ssm_args *a)
{
    for (size_t block = 0; block < a->n_blocks; block++) {
        const float *from = a->from + block * a->d_state * 16, *x = a->x + block * 16;
        float *to = a->to + block * a->d_state * 16, y[16] = {0}, dx[16];
        for (size_t i = 0; i < 16; i++)
            dx[i] = a->dt * x[i];
        for (size_t n = 0; n < a->d_state; n++)
            for (size_t i = 0; i < 16; i++) {
                float h = fmaf(dx[i], a->b[n], a->decay * from[n * 16 + i]);
                to[n * 16 + i] = h;
                y[i] = fmaf(h, a->c[n], y[i]);
            }
        for (size_t i = 0; i < 16; i++)
            a->out[block * 16 + i] = a->skip ? fmaf(*a->skip, x[i], y[i]) : y[i];
    }
}
