/* The specification of attention: one query at a time, one key at a time, in the order of
 * numerics.md. */
#include "kernel/elementary.h"
#include "kernel/scalar/attention.h"
#include "kernel/scalar/scalar.h"
#include "tensor/traits.h"

typedef float (*read_fn)(const void *data, size_t index);

static float read_f32(const void *data, size_t index)
{
    return ((const float *)data)[index];
}
static float read_f16(const void *data, size_t index)
{
    return sn_f16_to_f32(((const uint16_t *)data)[index]);
}
static float read_bf16(const void *data, size_t index)
{
    return sn_bf16_to_f32(((const uint16_t *)data)[index]);
}

/* s[key] = q . k[key] for the visible keys, ascending dimensions; K is [4][d_k][16]. */
static void scores(const struct sn_attn_args *a, read_fn read, const float *q, const void *k,
                   uint64_t visible, float s[64])
{
    float inverse = a->soft_cap != 0 ? 1.0f / a->soft_cap : 0;
    for (size_t key = 0; key < 64; key++) {
        if (!sees(visible, key))
            continue;
        float acc = 0;
        for (size_t d = 0; d < a->d_k; d++)
            acc = fmaf(q[d], read(k, (key / 16 * a->d_k + d) * 16 + key % 16), acc);
        s[key] = a->soft_cap != 0 ? a->soft_cap * sn_tanh_inline(acc * inverse) : acc;
    }
}

static void chunk(const struct sn_attn_args *a, read_fn read, const float *q, size_t c,
                  uint64_t visible, float *m, float *l, float *o)
{
    float s[64], p[64];
    scores(a, read, q, a->k_chunk[c], visible, s);
    float keep = chunk_weights(s, visible, m, l, p);
    for (size_t d = 0; d < a->d_v; d++)
        o[d] = o[d] * keep;
    for (size_t key = 0; key < 64; key++)
        if (sees(visible, key))
            for (size_t d = 0; d < a->d_v; d++)
                o[d] = fmaf(p[key], read(a->v_chunk[c], key * a->d_v + d), o[d]);
}

static inline void attention(const struct sn_attn_args *a, read_fn read)
{
    for (size_t i = 0; i < a->n_q; i++) {
        float *o = a->o + i * a->ldo;
        a->m[i] = -INFINITY;
        a->l[i] = 0;
        for (size_t d = 0; d < a->d_v; d++)
            o[d] = 0;
        for (size_t c = 0; c < a->n_chunks; c++) {
            uint64_t visible = a->visible[i * a->n_chunks + c];
            if (visible)
                chunk(a, read, a->q + i * a->ldq, c, visible, a->m + i, a->l + i, o);
        }
    }
}

void SCALAR(sn_attn_f32)(const struct sn_attn_args *a)
{
    attention(a, read_f32);
}
void SCALAR(sn_attn_f16)(const struct sn_attn_args *a)
{
    attention(a, read_f16);
}
void SCALAR(sn_attn_bf16)(const struct sn_attn_args *a)
{
    attention(a, read_bf16);
}

void SCALAR(sn_attn_merge)(float *m, float *l, float *o, float m2, float l2, const float *o2,
                           size_t d_v)
{
    if (m2 == -INFINITY && l2 == 0)
        return;
    if (*m == -INFINITY && *l == 0) {
        *m = m2;
        *l = l2;
        for (size_t d = 0; d < d_v; d++)
            o[d] = o2[d];
        return;
    }
    float top = m2 > *m ? m2 : *m;
    float keep = sn_exp_inline(*m - top), take = sn_exp_inline(m2 - top);
    *m = top;
    *l = fmaf(*l, keep, l2 * take);
    for (size_t d = 0; d < d_v; d++)
        o[d] = fmaf(o[d], keep, o2[d] * take);
}

void SCALAR(sn_attn_finish)(const float *o, float l, size_t d_v, float *out)
{
    for (size_t d = 0; d < d_v; d++)
        out[d] = o[d] / l;
}
