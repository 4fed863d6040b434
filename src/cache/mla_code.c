/* The latent in 8-bit codes: value = code * scale + bias, scale and bias per group of 64 along the rank. */
#include <math.h>

#include "cache/mla.h"
#include "tensor/traits.h"

/* True when an element is an infinity or NaN: all exponent bits set. */
static bool has_fault(const float *x)
{
    for (size_t i = 0; i < SN_MLA_GROUP; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        if ((bits & 0x7F800000) == 0x7F800000)
            return true;
    }
    return false;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

static void encode_group(const float *x, uint8_t *codes, uint16_t *scale, uint16_t *bias)
{
    float lo = x[0], hi = x[0];
    for (size_t i = 1; i < SN_MLA_GROUP; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    *bias = sn_f32_to_f16_sat(lo);
    *scale = sn_f32_to_f16_sat((hi - lo) / 255.0f);
    float s = sn_f16_to_f32(*scale), b = sn_f16_to_f32(*bias);
    for (size_t i = 0; i < SN_MLA_GROUP; i++) {
        float code = s == 0.0f ? 0.0f : (x[i] - b) / s;
        code = code < 0.0f ? 0.0f : code;
        code = code > 255.0f ? 255.0f : code;
        codes[i] = (uint8_t)rintf(code);
    }
}

void sn_mla_encode(const float *x, size_t n_groups, uint8_t *codes, uint16_t *scales, uint16_t *biases)
{
    for (size_t g = 0; g < n_groups; g++, x += SN_MLA_GROUP, codes += SN_MLA_GROUP) {
        if (!has_fault(x)) {
            encode_group(x, codes, &scales[g], &biases[g]);
            continue;
        }
        memset(codes, 0, SN_MLA_GROUP);
        scales[g] = biases[g] = sn_f32_to_f16_sat(NAN);
    }
}

/* ---- queries: codes [n_q][d_latent], then what a code is worth [n_q][groups], then sums [n_q][groups] ---------- */

size_t sn_mla_coded_prepare_bytes(const struct sn_mla *c, size_t n_q)
{
    return n_q * (c->d_latent + 2 * c->n_groups * sizeof(float));
}

/* Like an activation block, over the whole group. */
static void code_query(const float *x, int8_t *codes, float *d, float *s)
{
    bool fault = has_fault(x);
    float amax = 0;
    int32_t sum = 0;
    for (size_t i = 0; i < SN_MLA_GROUP && !fault; i++)
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    if (amax < 0x1p-100f) { /* nothing to tell from zero; also the codes of a fault */
        memset(codes, 0, SN_MLA_GROUP);
        *d = *s = fault ? NAN : 0.0f;
        return;
    }
    float inverse = 127.0f / amax;
    for (size_t i = 0; i < SN_MLA_GROUP; i++) {
        float q = rintf(x[i] * inverse);
        q = q < -127.0f ? -127.0f : q;
        q = q > 127.0f ? 127.0f : q;
        codes[i] = (int8_t)q;
        sum += codes[i];
    }
    *d = amax / 127.0f;
    *s = *d * (float)sum;
}

void sn_mla_coded_prepare(const struct sn_attend_job *job)
{
    const struct sn_mla *c = sn_mla_of(job->src.cache);
    int8_t *codes = job->work.prepared;
    float *d = (float *)(void *)(codes + (size_t)job->n_q * c->d_latent), *s = d + (size_t)job->n_q * c->n_groups;
    for (size_t i = 0; i < job->n_q; i++)
        for (size_t g = 0; g < c->n_groups; g++)
            code_query(job->work.q + i * job->d_k + g * SN_MLA_GROUP, codes + i * c->d_latent + g * SN_MLA_GROUP,
                       d + i * c->n_groups + g, s + i * c->n_groups + g);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

/* Of one chunk: codes, where they are not read in place, then scales, biases and the rope panel as f32. */
static size_t chunk_floats(const struct sn_mla *c)
{
    return SN_CHUNK_KEYS * (2 * (size_t)c->n_groups + c->d_rope);
}

size_t sn_mla_coded_segment_bytes(const struct sn_mla *c)
{
    return SN_SEGMENT_CHUNKS * (SN_CHUNK_KEYS * (size_t)c->d_latent + chunk_floats(c) * sizeof(float));
}

static float element(const uint8_t *data, size_t index, sennit_type type)
{
    if (type == SENNIT_F32)
        return ((const float *)(const void *)data)[index];
    uint16_t h = ((const uint16_t *)(const void *)data)[index];
    return type == SENNIT_F16 ? sn_f16_to_f32(h) : sn_bf16_to_f32(h);
}

static void gather(const struct sn_attend_job *job, const struct sn_mla *c, uint64_t first, uint64_t seen,
                   uint8_t *codes, float *floats, struct sn_latent8_chunk *out)
{
    sennit_type type = job->src.cache->config.k_type;
    bool in_place = c->page_tokens == SN_CHUNK_KEYS && !job->list;
    float *scale = floats, *bias = scale + SN_CHUNK_KEYS * c->n_groups, *rope = bias + SN_CHUNK_KEYS * c->n_groups;
    *out = (struct sn_latent8_chunk){.code = codes, .scale = scale, .bias = bias, .rope = rope};
    for (uint64_t left = seen; left; left &= left - 1) {
        size_t key = (size_t)__builtin_ctzll(left), slot;
        uint8_t *page = sn_mla_page(job, c, first + key, &slot);
        if (in_place)
            out->code = page;
        else
            memcpy(codes + key * c->d_latent, sn_mla_latent(c, page, slot), c->d_latent);
        for (size_t g = 0; g < c->n_groups; g++) {
            scale[g * SN_CHUNK_KEYS + key] = sn_f16_to_f32(sn_mla_scales(c, page, slot)[g]);
            bias[g * SN_CHUNK_KEYS + key] = sn_f16_to_f32(sn_mla_biases(c, page, slot)[g]);
        }
        const uint8_t *r = sn_mla_rope(c, page, slot);
        for (size_t d = 0; d < c->d_rope; d++)
            rope[(key / 16 * c->d_rope + d) * 16 + key % 16] = element(r, d, type);
    }
}

void sn_mla_coded_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    const struct sn_mla *c = sn_mla_of(job->src.cache);
    struct sn_latent8_chunk chunk[SN_SEGMENT_CHUNKS] = {0};
    float *floats = job->work.segment;
    uint8_t *codes = (uint8_t *)(floats + SN_SEGMENT_CHUNKS * chunk_floats(c));
    for (size_t i = 0; i < s->n_chunks; i++)
        if (s->seen[i])
            gather(job, c, s->first + i * SN_CHUNK_KEYS, s->seen[i], codes + i * SN_CHUNK_KEYS * c->d_latent,
                   floats + i * chunk_floats(c), &chunk[i]);
    const int8_t *q = job->work.prepared;
    const float *q_d = (const float *)(const void *)(q + (size_t)job->n_q * c->d_latent);
    struct sn_attn_latent8_args args = {.q_code = q,
                                        .q_d = q_d,
                                        .q_s = q_d + (size_t)job->n_q * c->n_groups,
                                        .q_rope = job->work.q + c->d_latent,
                                        .ldq = job->d_k,
                                        .n_q = job->n_q,
                                        .n_groups = c->n_groups,
                                        .d_rope = c->d_rope,
                                        .n_chunks = s->n_chunks,
                                        .chunk = chunk,
                                        .visible = s->visible,
                                        .soft_cap = job->soft_cap,
                                        .m = s->m,
                                        .l = s->l,
                                        .o = s->o,
                                        .ldo = job->d_v};
    SN_CALL(job->pool->kernels, &job->pool->calls[job->worker], attn_latent8, &args);
}
