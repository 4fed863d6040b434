#include "cache/turbo.h"

#include <stdio.h>

#include "cache/kv.h"
#include "kernel/turbo.h"

/* ---- geometry ------------------------------------------------------------------------------------------------- */

static sennit_status check_dim(const char *field, uint32_t d, struct sennit_error *err)
{
    if (sn_turbo_dim(d))
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID,
                   "cache config: %s is %u; turboquant takes head dimensions of 64, 128, 256 or 512", field, d);
}

sennit_status sn_turbo_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    struct sennit_cache_config full = *config;
    sn_turbo_defaults(&full);
    SN_TRY(sn_kv_check_dims(config, err));
    SN_TRY(check_dim("d_k", config->d_k, err));
    SN_TRY(check_dim("d_v", config->d_v, err));
    if (!sn_turbo_key_bits(full.code.k_bits))
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: code.k_bits is %u; turboquant keys have 2, 4, 5 or 8 bits (both 0: 8 and 3)",
                       full.code.k_bits);
    if (!sn_turbo_value_bits(full.code.v_bits))
        return sn_fail(
            err, SENNIT_INVALID,
            "cache config: code.v_bits is %u; turboquant values have 2, 3, 4, 5 or 8 bits (both 0: 8 and 3)",
            full.code.v_bits);
    if (full.code.group != SN_TURBO_GROUP)
        return sn_fail(err, SENNIT_INVALID, "cache config: code.group is %u; turboquant has groups of 32 (or 0)",
                       full.code.group);
    return SENNIT_OK;
}

void sn_turbo_defaults(struct sennit_cache_config *config)
{
    if (config->code.k_bits == 0 && config->code.v_bits == 0)
        config->code.k_bits = 8, config->code.v_bits = 3;
    if (config->code.group == 0)
        config->code.group = SN_TURBO_GROUP;
}

const char *sn_turbo_dtype(const struct sennit_cache_config *config)
{
    static const char *const names[4][5] = {
        {"turboquant k2 v2", "turboquant k2 v3", "turboquant k2 v4", "turboquant k2 v5", "turboquant k2 v8"},
        {"turboquant k4 v2", "turboquant k4 v3", "turboquant k4 v4", "turboquant k4 v5", "turboquant k4 v8"},
        {"turboquant k5 v2", "turboquant k5 v3", "turboquant k5 v4", "turboquant k5 v5", "turboquant k5 v8"},
        {"turboquant k8 v2", "turboquant k8 v3", "turboquant k8 v4", "turboquant k8 v5", "turboquant k8 v8"}};
    struct sennit_cache_config full = *config;
    sn_turbo_defaults(&full);
    uint32_t k = full.code.k_bits, v = full.code.v_bits;
    return names[k == 8 ? 3 : k / 2 + k % 2 - 1][v == 8 ? 4 : v - 2];
}

void sn_turbo_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    snprintf(out, n_bytes, "%s kv %u k %u v %u", sn_turbo_dtype(config), config->n_kv_heads, config->d_k,
             config->d_v);
    sn_page_tokens_sign(config, out, n_bytes);
}

/* Places a plane at `at`; returns where the next may begin. */
static size_t place_plane(struct sn_turbo_plane *p, const struct sn_turbo_layout *l, uint32_t d, uint32_t bits,
                          bool key, size_t at)
{
    *p = (struct sn_turbo_plane){.d = d, .bits = bits, .n_groups = d / SN_TURBO_GROUP};
    p->row_bytes = (size_t)d * bits / 8;
    p->codes_bytes = l->page_tokens * p->row_bytes;
    p->scale_bytes = l->page_tokens * (size_t)p->n_groups * sizeof(uint16_t);
    p->codes = at;
    p->scale = p->codes + l->n_heads * p->codes_bytes;
    p->zero = p->scale + l->n_heads * p->scale_bytes;
    return p->zero + (key ? l->n_heads * p->scale_bytes : 0);
}

void sn_turbo_layout_init(struct sn_turbo_layout *l, const struct sennit_cache_config *config)
{
    struct sennit_cache_config full = *config;
    sn_turbo_defaults(&full);
    uint32_t p = sn_page_tokens(config);
    *l = (struct sn_turbo_layout){.n_heads = config->n_kv_heads, .page_tokens = p, .lanes = p < 16 ? p : 16};
    size_t at = place_plane(&l->k, l, config->d_k, full.code.k_bits, true, 0);
    l->page_bytes = place_plane(&l->v, l, config->d_v, full.code.v_bits, false, at);
}

/* ---- where a token's parts are -------------------------------------------------------------------------------- */

/* A token's codes are n_words pieces of `bytes` bytes, `stride` bytes apart; its scales (and zeros) `step` halves
 * apart. */
struct place {
    uint8_t *codes;
    uint16_t *scale, *zero; /* zero: NULL for values */
    size_t n_words, bytes, stride, step;
};

static struct place place_of(const struct sn_turbo_layout *l, uint8_t *data, bool key, size_t head, size_t slot)
{
    const struct sn_turbo_plane *p = key ? &l->k : &l->v;
    size_t first = slot / l->lanes * l->lanes, lane = slot - first, half;
    struct place at = {.codes = data + p->codes + head * p->codes_bytes};
    if (key) {
        at.codes += first * p->row_bytes + lane * 4;
        at.n_words = p->row_bytes / 4, at.bytes = 4, at.stride = 4 * (size_t)l->lanes;
        half = first * p->n_groups + lane, at.step = l->lanes;
    } else {
        at.codes += slot * p->row_bytes;
        at.n_words = 1, at.bytes = at.stride = p->row_bytes;
        half = slot, at.step = l->page_tokens;
    }
    half += head * p->scale_bytes / 2;
    at.scale = (uint16_t *)(void *)(data + p->scale) + half;
    at.zero = key ? (uint16_t *)(void *)(data + p->zero) + half : NULL;
    return at;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

enum { MOST_GROUPS = SN_TURBO_MAX_DIM / SN_TURBO_GROUP };

static void store_head(const struct sn_turbo_layout *l, const struct sn_kernels *kernels, uint8_t *data, size_t slot,
                       bool key, size_t head, const float *x)
{
    const struct sn_turbo_plane *p = key ? &l->k : &l->v;
    struct place at = place_of(l, data, key, head, slot);
    uint8_t codes[SN_TURBO_MAX_DIM];
    uint16_t scale[MOST_GROUPS], zero[MOST_GROUPS];
    if (key)
        kernels->turbo_keys(x, p->d, p->bits, codes, scale, zero);
    else
        kernels->turbo_values(x, p->d, p->bits, codes, scale);
    for (size_t i = 0; i < at.n_words; i++)
        memcpy(at.codes + i * at.stride, codes + i * at.bytes, at.bytes);
    for (size_t g = 0; g < p->n_groups; g++) {
        at.scale[g * at.step] = scale[g];
        if (key)
            at.zero[g * at.step] = zero[g];
    }
}

void sn_turbo_store(const struct sn_turbo_layout *l, const struct sn_kernels *kernels, struct sn_calls *calls,
                    uint8_t *data, size_t slot, bool key, uint32_t first_head, uint32_t n_heads, const float *x)
{
    for (size_t h = 0; h < n_heads; h++)
        store_head(l, kernels, data, slot, key, first_head + h, x + h * (key ? l->k.d : l->v.d));
    calls->n[key ? SN_K_turbo_keys : SN_K_turbo_values] += n_heads;
}

void sn_turbo_fill_tail(const struct sn_turbo_layout *l, uint8_t *data, size_t from, uint8_t byte)
{
    for (size_t i = 0; i < 2 * (size_t)l->n_heads; i++)
        for (size_t slot = from; slot < l->page_tokens; slot++) {
            struct place at = place_of(l, data, i % 2, i / 2, slot);
            for (size_t word = 0; word < at.n_words; word++)
                memset(at.codes + word * at.stride, byte, at.bytes);
            for (size_t g = 0; g < (i % 2 ? l->k.n_groups : l->v.n_groups); g++) {
                memset(at.scale + g * at.step, byte, sizeof *at.scale);
                if (at.zero)
                    memset(at.zero + g * at.step, byte, sizeof *at.zero);
            }
        }
}

void sn_turbo_views(const struct sn_turbo_layout *l, const uint8_t *data, uint32_t row, uint64_t pos,
                    uint64_t n_tokens, struct sennit_span_view out[SN_TURBO_VIEWS])
{
    static const char *const names[SN_TURBO_VIEWS] = {"key", "key_scale", "key_zero", "value", "value_scale"};
    const size_t starts[] = {l->k.codes, l->k.scale, l->k.zero, l->v.codes, l->v.scale, l->page_bytes};
    for (size_t i = 0; i < SN_TURBO_VIEWS; i++)
        out[i] = (struct sennit_span_view){.name = names[i],
                                           .type = i % 3 == 0 ? SENNIT_I8 : SENNIT_F16,
                                           .row = row,
                                           .pos = pos,
                                           .n_tokens = n_tokens,
                                           .data = data + starts[i],
                                           .n_bytes = starts[i + 1] - starts[i]};
}

/* ---- queries -------------------------------------------------------------------------------------------------- */

/* Of all queries of a job: d, sum, then the codes. */
size_t sn_turbo_prepare_bytes(const struct sn_turbo_layout *l, size_t n_q)
{
    return n_q * (2 * sizeof(float) * l->k.n_groups + l->k.d);
}

void sn_turbo_prepare(const struct sn_attend_job *job, const struct sn_turbo_layout *l)
{
    size_t n_scales = (size_t)job->n_q * l->k.n_groups;
    float *d = job->work.prepared;
    SN_CALL(job->pool->kernels, &job->pool->calls[job->worker], turbo_query, job->work.q, (size_t)job->n_q * l->k.d,
            l->k.bits, (int8_t *)(d + 2 * n_scales), d, d + n_scales);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

static struct sn_turbo_part part_of(const struct sn_turbo_plane *p, bool key, uint8_t *data, size_t head)
{
    return (struct sn_turbo_part){.codes = data + p->codes + head * p->codes_bytes,
                                  .scale = (const void *)(data + p->scale + head * p->scale_bytes),
                                  .zero = key ? (const void *)(data + p->zero + head * p->scale_bytes) : NULL};
}

static size_t chunk_bytes(const struct sn_turbo_plane *p, bool key)
{
    return SN_CHUNK_KEYS * (p->row_bytes + (key ? 2 : 1) * sizeof(uint16_t) * p->n_groups);
}

size_t sn_turbo_segment_bytes(const struct sn_turbo_layout *l)
{
    return l->page_tokens == SN_CHUNK_KEYS
               ? 0
               : SN_SEGMENT_CHUNKS * (chunk_bytes(&l->k, true) + chunk_bytes(&l->v, false));
}

/* n rows of n_bytes from one array of rows into another, strides apart. */
static void copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride, size_t n, size_t n_bytes)
{
    for (size_t i = 0; i < n; i++)
        memcpy((uint8_t *)to + i * to_stride, (const uint8_t *)from + i * from_stride, n_bytes);
}

/* One page's keys into lanes lane .. lane + P - 1 of a chunk's parts at `to`. */
static void gather_keys(const struct sn_turbo_layout *l, struct sn_turbo_part from, size_t lane, uint8_t *to)
{
    const struct sn_turbo_plane *p = &l->k;
    size_t half_bytes = 2 * (size_t)p->n_groups;
    uint8_t *scale = to + SN_CHUNK_KEYS * p->row_bytes, *zero = scale + SN_CHUNK_KEYS * half_bytes;
    if (l->lanes == 16) {
        memcpy(to + lane * p->row_bytes, from.codes, p->codes_bytes);
        memcpy(scale + lane * half_bytes, from.scale, p->scale_bytes);
        memcpy(zero + lane * half_bytes, from.zero, p->scale_bytes);
        return;
    }
    size_t first = lane / 16 * 16, at = lane % 16, n = l->lanes;
    copy_rows(to + first * p->row_bytes + 4 * at, 64, from.codes, 4 * n, p->row_bytes / 4, 4 * n);
    copy_rows(scale + first * half_bytes + 2 * at, 32, from.scale, 2 * n, p->n_groups, 2 * n);
    copy_rows(zero + first * half_bytes + 2 * at, 32, from.zero, 2 * n, p->n_groups, 2 * n);
}

static void gather_values(const struct sn_turbo_layout *l, struct sn_turbo_part from, size_t lane, uint8_t *to)
{
    const struct sn_turbo_plane *p = &l->v;
    size_t n = l->page_tokens;
    memcpy(to + lane * p->row_bytes, from.codes, p->codes_bytes);
    copy_rows(to + SN_CHUNK_KEYS * p->row_bytes + 2 * lane, 2 * SN_CHUNK_KEYS, from.scale, 2 * n, p->n_groups, 2 * n);
}

/* The pages of one chunk that hold keys which somebody sees, into k and v; others may be gone. */
static void gather_chunk(const struct sn_attend_job *job, const struct sn_turbo_layout *l,
                         struct sn_page *const *pages, uint64_t seen, uint8_t *k, uint8_t *v)
{
    uint64_t page_mask = UINT64_MAX >> (64 - l->page_tokens);
    for (size_t lane = 0; lane < SN_CHUNK_KEYS; lane += l->page_tokens) {
        if (!(seen >> lane & page_mask))
            continue;
        uint8_t *data = pages[lane / l->page_tokens]->data;
        gather_keys(l, part_of(&l->k, true, data, job->kv_head), lane, k);
        gather_values(l, part_of(&l->v, false, data, job->kv_head), lane, v);
    }
}

static struct sn_turbo_part gathered(const struct sn_turbo_plane *p, bool key, const uint8_t *at)
{
    const uint8_t *scale = at + SN_CHUNK_KEYS * p->row_bytes;
    return (struct sn_turbo_part){.codes = at,
                                  .scale = (const void *)scale,
                                  .zero = key ? (const void *)(scale + SN_CHUNK_KEYS * 2 * p->n_groups) : NULL};
}

/* Where chunk c of a segment is read: in place, or gathered into the job's scratch. */
static void find_chunk(const struct sn_attend_job *job, const struct sn_turbo_layout *l, struct sn_page *const *pages,
                       size_t c, uint64_t seen, struct sn_turbo_part *k, struct sn_turbo_part *v)
{
    if (l->page_tokens == SN_CHUNK_KEYS) {
        *k = part_of(&l->k, true, pages[0]->data, job->kv_head);
        *v = part_of(&l->v, false, pages[0]->data, job->kv_head);
        return;
    }
    uint8_t *keys = (uint8_t *)job->work.segment + c * (chunk_bytes(&l->k, true) + chunk_bytes(&l->v, false));
    uint8_t *values = keys + chunk_bytes(&l->k, true);
    gather_chunk(job, l, pages, seen, keys, values);
    *k = gathered(&l->k, true, keys);
    *v = gathered(&l->v, false, values);
}

void sn_turbo_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s,
                      const struct sn_turbo_layout *l, struct sn_page *const *pages, uint64_t first_page)
{
    struct sn_turbo_part k[SN_SEGMENT_CHUNKS], v[SN_SEGMENT_CHUNKS];
    size_t real = 0, n_scales = (size_t)job->n_q * l->k.n_groups;
    while (!s->seen[real])
        real++;
    for (size_t i = 0; i < s->n_chunks; i++) { /* a chunk that nobody sees stands for one that somebody does */
        size_t c = (real + i) % s->n_chunks;
        k[c] = k[real], v[c] = v[real];
        if (s->seen[c])
            find_chunk(job, l, pages + ((s->first + c * SN_CHUNK_KEYS) / l->page_tokens - first_page), c, s->seen[c],
                       k + c, v + c);
    }
    const float *d = job->work.prepared;
    struct sn_attn_turbo_args args = {.a = sn_attend_args(job, s),
                                      .k = k,
                                      .v = v,
                                      .k_bits = l->k.bits,
                                      .v_bits = l->v.bits,
                                      .q = (const int8_t *)(d + 2 * n_scales),
                                      .q_d = d,
                                      .q_sum = d + n_scales};
    SN_CALL(job->pool->kernels, &job->pool->calls[job->worker], attn_turbo, &args);
}

void sn_turbo_finish(struct sennit_pool *pool, const struct sn_turbo_layout *l, uint32_t worker, float *out)
{
    SN_CALL(pool->kernels, &pool->calls[worker], turbo_rotate, out, l->v.d);
}
