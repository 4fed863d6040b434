/* The specification of attention over a latent in 8-bit codes, and of the indexer's scores; numerics.md "Quantized
 * KV", "8-bit latent", "DSA". */
#include "kernel/elementary.h"
#include "kernel/scalar/scalar.h"
#include "tensor/traits.h"

/* ---- the coded latent ----------------------------------------------------------------------------------------- */

static bool sees(uint64_t visible, size_t key)
{
    return visible >> key & 1;
}

/* One query against one key: groups ascending, then the rope key in the same chain. */
static float score(const struct sn_attn_latent8_args *a, const struct sn_latent8_chunk *c, size_t i, size_t key)
{
    size_t rank = a->n_groups * SN_LATENT_GROUP;
    const float *q = a->q_rope + i * a->ldq;
    float acc = 0;
    for (size_t g = 0; g < a->n_groups; g++) {
        const int8_t *codes = a->q_code + i * rank + g * SN_LATENT_GROUP;
        const uint8_t *key_codes = c->code + key * rank + g * SN_LATENT_GROUP;
        int32_t t = 0;
        for (size_t d = 0; d < SN_LATENT_GROUP; d++)
            t += codes[d] * key_codes[d];
        acc = fmaf((float)t, c->scale[g * 64 + key] * a->q_d[i * a->n_groups + g], acc);
        acc = fmaf(c->bias[g * 64 + key], a->q_s[i * a->n_groups + g], acc);
    }
    for (size_t d = 0; d < a->d_rope; d++)
        acc = fmaf(q[d], c->rope[(key / 16 * a->d_rope + d) * 16 + key % 16], acc);
    return a->soft_cap != 0 ? a->soft_cap * sn_tanh_inline(acc * (1.0f / a->soft_cap)) : acc;
}

static float tree16(float t[16])
{
    for (size_t width = 8; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++)
            t[i] = t[i] + t[i + width];
    return t[0];
}

/* (x0 + x1) + (x2 + x3) over the groups of 16 keys, then 8, 4, 2, 1. */
static float sum64(const float p[64])
{
    float t[16];
    for (size_t i = 0; i < 16; i++)
        t[i] = (p[i] + p[i + 16]) + (p[i + 32] + p[i + 48]);
    return tree16(t);
}

/* One group of the output: weighted codes key by key, then what the biases add. */
static void values(const struct sn_latent8_chunk *c, size_t rank, size_t g, uint64_t visible, const float p[64],
                   float *o)
{
    float bias[16] = {0};
    for (size_t key = 0; key < 64; key++) {
        if (!sees(visible, key))
            continue;
        const uint8_t *codes = c->code + key * rank + g * SN_LATENT_GROUP;
        float w = p[key] * c->scale[g * 64 + key];
        for (size_t d = 0; d < SN_LATENT_GROUP; d++)
            o[d] = fmaf(w, (float)codes[d], o[d]);
        bias[key % 16] = fmaf(p[key], c->bias[g * 64 + key], bias[key % 16]);
    }
    float sum = tree16(bias);
    for (size_t d = 0; d < SN_LATENT_GROUP; d++)
        o[d] = o[d] + sum;
}

static void chunk(const struct sn_attn_latent8_args *a, size_t i, size_t index, uint64_t visible)
{
    const struct sn_latent8_chunk *c = &a->chunk[index];
    size_t rank = a->n_groups * SN_LATENT_GROUP;
    float s[64], p[64] = {0}, top = a->m[i], *o = a->o + i * a->ldo;
    for (size_t key = 0; key < 64; key++) {
        if (!sees(visible, key))
            continue;
        s[key] = score(a, c, i, key);
        top = s[key] > top ? s[key] : top;
    }
    for (size_t key = 0; key < 64; key++)
        if (sees(visible, key))
            p[key] = sn_exp_inline(s[key] - top);
    float keep = a->m[i] == -INFINITY ? 0.0f : sn_exp_inline(a->m[i] - top);
    a->m[i] = top;
    a->l[i] = fmaf(a->l[i], keep, sum64(p));
    for (size_t d = 0; d < rank; d++)
        o[d] = o[d] * keep;
    for (size_t g = 0; g < a->n_groups; g++)
        values(c, rank, g, visible, p, o + g * SN_LATENT_GROUP);
}

void SCALAR(sn_attn_latent8)(const struct sn_attn_latent8_args *a)
{
    for (size_t i = 0; i < a->n_q; i++) {
        a->m[i] = -INFINITY;
        a->l[i] = 0;
        for (size_t d = 0; d < a->n_groups * SN_LATENT_GROUP; d++)
            a->o[i * a->ldo + d] = 0;
        for (size_t c = 0; c < a->n_chunks; c++)
            if (a->visible[i * a->n_chunks + c])
                chunk(a, i, c, a->visible[i * a->n_chunks + c]);
    }
}

/* ---- the indexer ---------------------------------------------------------------------------------------------- */

typedef float (*read_fn)(const void *data, size_t index);

static float read_f32(const void *data, size_t index)
{
    return ((const float *)data)[index];
}
static float read_f16(const void *data, size_t index)
{
    return sn_f16_to_f32(((const uint16_t *)data)[index]);
}

/* Sixteen keys at a time: [d][16]. */
static inline void index_scores(const struct sn_index_args *a, read_fn read)
{
    for (size_t group = 0; group < 4; group++) {
        float dot[16], sum[16] = {0};
        if (!(a->wanted >> 16 * group & 0xFFFF))
            continue;
        for (size_t h = 0; h < a->n_heads; h++) {
            for (size_t j = 0; j < 16; j++)
                dot[j] = 0;
            for (size_t d = 0; d < a->d; d++)
                for (size_t j = 0; j < 16; j++)
                    dot[j] = fmaf(a->q[h * a->d + d], read(a->k, (group * a->d + d) * 16 + j), dot[j]);
            for (size_t j = 0; j < 16; j++)
                sum[j] = fmaf(a->w[h], dot[j] < 0 ? 0.0f : dot[j], sum[j]);
        }
        for (size_t j = 0; j < 16; j++)
            a->out[16 * group + j] = sum[j];
    }
}

void SCALAR(sn_index_f32)(const struct sn_index_args *a)
{
    index_scores(a, read_f32);
}
void SCALAR(sn_index_f16)(const struct sn_index_args *a)
{
    index_scores(a, read_f16);
}
