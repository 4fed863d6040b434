/* The latent in 8-bit codes: value = code * scale + bias, scale and bias per group of 64 along the rank. */
#include "cache/mla.h"
#include "tensor/traits.h"

/* ---- queries: codes [n_q][d_latent], then what a code is worth [n_q][groups], then sums [n_q][groups] ---------- */

size_t sn_mla_coded_prepare_bytes(const struct sn_mla *c, size_t n_q)
{
    return n_q * (c->d_latent + 2 * c->n_groups * sizeof(float));
}

void sn_mla_coded_prepare(const struct sn_attend_job *job)
{
    const struct sn_mla *c = sn_mla_of(job->src.cache);
    size_t rank = c->d_latent, groups = c->n_groups;
    int8_t *codes = job->work.prepared;
    float *d = (float *)(void *)(codes + job->n_q * rank), *s = d + job->n_q * groups;
    for (size_t i = 0; i < job->n_q; i++)
        SN_CALL(job->pool->kernels, &job->pool->calls[job->worker], code_query, job->work.q + i * job->d_k, rank,
                SN_MLA_GROUP, codes + i * rank, d + i * groups, s + i * groups);
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
