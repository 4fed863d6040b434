#include "cache/affine.h"

#include <stdio.h>

#include "cache/kv.h"

/* ---- geometry ------------------------------------------------------------------------------------------------- */

static sennit_status check_bits(const char *field, uint32_t bits, struct sennit_error *err)
{
    if (bits == 4 || bits == 8)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: %s is %u; affine codes have 4 or 8 bits", field, bits);
}

static sennit_status check_group(const char *field, uint32_t d, uint32_t group, struct sennit_error *err)
{
    if (d % group == 0)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: code.group %u does not divide %s %u", group, field, d);
}

sennit_status sn_affine_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_kv_check_dims(config, err));
    SN_TRY(check_bits("code.k_bits", config->code.k_bits, err));
    SN_TRY(check_bits("code.v_bits", config->code.v_bits, err));
    if (config->code.group != 32 && config->code.group != 64)
        return sn_fail(err, SENNIT_INVALID, "cache config: code.group is %u; it must be 32 or 64",
                       config->code.group);
    SN_TRY(check_group("d_k", config->d_k, config->code.group, err));
    return check_group("d_v", config->d_v, config->code.group, err);
}

const char *sn_affine_dtype(const struct sennit_cache_config *config)
{
    static const char *const names[2][2][2] = {
        {{"affine k4 v4 g32", "affine k4 v4 g64"}, {"affine k4 v8 g32", "affine k4 v8 g64"}},
        {{"affine k8 v4 g32", "affine k8 v4 g64"}, {"affine k8 v8 g32", "affine k8 v8 g64"}}};
    return names[config->code.k_bits == 8][config->code.v_bits == 8][config->code.group == 64];
}

void sn_affine_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    snprintf(out, n_bytes, "%s kv %u k %u v %u", sn_affine_dtype(config), config->n_kv_heads, config->d_k,
             config->d_v);
    sn_page_tokens_sign(config, out, n_bytes);
}

/* Places a plane at `at`; returns where the next may begin. */
static size_t place_plane(struct sn_affine_plane *p, const struct sn_affine_layout *l, uint32_t d, uint32_t bits,
                          size_t at)
{
    *p = (struct sn_affine_plane){.d = d, .bits = bits, .n_groups = d / l->group};
    p->codes_bytes = l->page_tokens * ((size_t)d * bits / 8);
    p->scale_bytes = l->page_tokens * (size_t)p->n_groups * sizeof(uint16_t);
    p->codes = at;
    p->scale = p->codes + l->n_heads * p->codes_bytes;
    p->bias = p->scale + l->n_heads * p->scale_bytes;
    return p->bias + l->n_heads * p->scale_bytes;
}

void sn_affine_layout_init(struct sn_affine_layout *l, const struct sennit_cache_config *config)
{
    uint32_t p = sn_page_tokens(config);
    *l = (struct sn_affine_layout){
        .n_heads = config->n_kv_heads, .group = config->code.group, .page_tokens = p, .lanes = p < 16 ? p : 16};
    size_t at = place_plane(&l->k, l, config->d_k, config->code.k_bits, 0);
    l->page_bytes = place_plane(&l->v, l, config->d_v, config->code.v_bits, at);
}

/* ---- where a token's parts are -------------------------------------------------------------------------------- */

/* A token's codes are words of `bytes` bytes, `stride` bytes apart; its scales and biases `step` halves apart. */
struct place {
    uint8_t *codes;
    uint16_t *scale, *bias;
    size_t n_words, bytes, stride, step;
};

static struct place place_of(const struct sn_affine_layout *l, uint8_t *data, bool key, size_t head, size_t slot)
{
    const struct sn_affine_plane *p = key ? &l->k : &l->v;
    size_t row_bytes = (size_t)p->d * p->bits / 8, first = slot / l->lanes * l->lanes, lane = slot - first;
    struct place at = {.codes = data + p->codes + head * p->codes_bytes,
                       .scale = (void *)(data + p->scale + head * p->scale_bytes),
                       .bias = (void *)(data + p->bias + head * p->scale_bytes)};
    size_t half;
    if (key) {
        at.codes += first * row_bytes + lane * 4;
        at.n_words = row_bytes / 4, at.bytes = 4, at.stride = 4 * (size_t)l->lanes;
        half = first * p->n_groups + lane, at.step = l->lanes;
    } else {
        at.codes += slot * row_bytes;
        at.n_words = 1, at.bytes = at.stride = row_bytes;
        half = slot, at.step = l->page_tokens;
    }
    at.scale += half;
    at.bias += half;
    return at;
}

/* ---- writing -------------------------------------------------------------------------------------------------- */

enum { PIECE = 512 }; /* dimensions that are encoded at a time: whole groups */

/* Dimensions i + j low and i + apart + j high, j < apart; n of them, into words of `apart` bytes. */
static void pack_halves(uint8_t *codes, size_t n, size_t apart)
{
    for (size_t i = 0, to = 0; i < n; i += 2 * apart)
        for (size_t j = 0; j < apart; j++)
            codes[to++] = (uint8_t)(codes[i + j] | codes[i + apart + j] << 4);
}

static void store_head(const struct sn_affine_layout *l, const struct sn_kernels *kernels, uint8_t *data, size_t slot,
                       bool key, size_t head, const float *x)
{
    const struct sn_affine_plane *p = key ? &l->k : &l->v;
    struct place at = place_of(l, data, key, head, slot);
    for (size_t d = 0; d < p->d; d += PIECE) {
        uint8_t codes[PIECE];
        uint16_t scale[PIECE / 32], bias[PIECE / 32];
        size_t n = sn_min_size(PIECE, p->d - d), n_bytes = n * p->bits / 8, first = d / l->group;
        kernels->affine_encode(x + d, n, l->group, p->bits, codes, scale, bias);
        if (p->bits == 4)
            pack_halves(codes, n, key ? 4 : 16);
        if (!key)
            memcpy(at.codes + d * p->bits / 8, codes, n_bytes);
        else
            for (size_t i = 0; i < n_bytes; i += 4)
                memcpy(at.codes + (d * p->bits / 8 + i) / 4 * at.stride, codes + i, 4);
        for (size_t g = 0; g < n / l->group; g++) {
            at.scale[(first + g) * at.step] = scale[g];
            at.bias[(first + g) * at.step] = bias[g];
        }
    }
}

void sn_affine_store(const struct sn_affine_layout *l, const struct sn_kernels *kernels, struct sn_calls *calls,
                     uint8_t *data, size_t slot, bool key, uint32_t first_head, uint32_t n_heads, const float *x)
{
    for (size_t h = 0; h < n_heads; h++)
        store_head(l, kernels, data, slot, key, first_head + h, x + h * (key ? l->k.d : l->v.d));
    calls->n[SN_K_affine_encode] += n_heads;
}

void sn_affine_fill_tail(const struct sn_affine_layout *l, uint8_t *data, size_t from, uint8_t byte)
{
    for (size_t i = 0; i < 2 * (size_t)l->n_heads; i++)
        for (size_t slot = from; slot < l->page_tokens; slot++) {
            struct place at = place_of(l, data, i % 2, i / 2, slot);
            for (size_t word = 0; word < at.n_words; word++)
                memset(at.codes + word * at.stride, byte, at.bytes);
            for (size_t g = 0; g < (i % 2 ? l->k.n_groups : l->v.n_groups); g++) {
                memset(at.scale + g * at.step, byte, sizeof *at.scale);
                memset(at.bias + g * at.step, byte, sizeof *at.bias);
            }
        }
}

void sn_affine_views(const struct sn_affine_layout *l, const uint8_t *data, uint32_t row, uint64_t pos,
                     uint64_t n_tokens, struct sennit_span_view out[SN_AFFINE_VIEWS])
{
    static const char *const names[SN_AFFINE_VIEWS] = {"key",   "key_scale",   "key_bias",
                                                       "value", "value_scale", "value_bias"};
    const size_t starts[] = {l->k.codes, l->k.scale, l->k.bias, l->v.codes, l->v.scale, l->v.bias, l->page_bytes};
    for (size_t i = 0; i < SN_AFFINE_VIEWS; i++)
        out[i] = (struct sennit_span_view){.name = names[i],
                                           .type = i % 3 == 0 ? SENNIT_I8 : SENNIT_F16,
                                           .row = row,
                                           .pos = pos,
                                           .n_tokens = n_tokens,
                                           .data = data + starts[i],
                                           .n_bytes = starts[i + 1] - starts[i]};
}

/* ---- queries -------------------------------------------------------------------------------------------------- */

/* Of all queries of a job: d, s, then the codes. */
size_t sn_affine_prepare_bytes(const struct sn_affine_layout *l, size_t n_q)
{
    return n_q * (2 * sizeof(float) * l->k.n_groups + l->k.d);
}

void sn_affine_prepare(const struct sn_attend_job *job, const struct sn_affine_layout *l)
{
    size_t n_scales = (size_t)job->n_q * l->k.n_groups;
    float *d = job->work.prepared;
    SN_CALL(job->pool->kernels, &job->pool->calls[job->worker], code_query, job->work.q, (size_t)job->n_q * l->k.d,
            l->group, (int8_t *)(d + 2 * n_scales), d, d + n_scales);
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

static struct sn_affine_part part_of(const struct sn_affine_plane *p, uint8_t *data, size_t head)
{
    return (struct sn_affine_part){.codes = data + p->codes + head * p->codes_bytes,
                                   .scale = (const void *)(data + p->scale + head * p->scale_bytes),
                                   .bias = (const void *)(data + p->bias + head * p->scale_bytes)};
}

static size_t chunk_bytes(const struct sn_affine_plane *p)
{
    return SN_CHUNK_KEYS * ((size_t)p->d * p->bits / 8 + 2 * sizeof(uint16_t) * p->n_groups);
}

size_t sn_affine_segment_bytes(const struct sn_affine_layout *l)
{
    return l->page_tokens == SN_CHUNK_KEYS ? 0 : SN_SEGMENT_CHUNKS * (chunk_bytes(&l->k) + chunk_bytes(&l->v));
}

/* n rows of n_bytes from one array of rows into another, strides apart. */
static void copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride, size_t n, size_t n_bytes)
{
    for (size_t i = 0; i < n; i++)
        memcpy((uint8_t *)to + i * to_stride, (const uint8_t *)from + i * from_stride, n_bytes);
}

/* One page's keys into lanes lane .. lane + P - 1 of a chunk's parts at `to`. */
static void gather_keys(const struct sn_affine_layout *l, struct sn_affine_part from, size_t lane, uint8_t *to)
{
    const struct sn_affine_plane *p = &l->k;
    size_t row_bytes = (size_t)p->d * p->bits / 8, half_bytes = 2 * (size_t)p->n_groups;
    uint8_t *scale = to + SN_CHUNK_KEYS * row_bytes, *bias = scale + SN_CHUNK_KEYS * half_bytes;
    if (l->lanes == 16) {
        memcpy(to + lane * row_bytes, from.codes, p->codes_bytes);
        memcpy(scale + lane * half_bytes, from.scale, p->scale_bytes);
        memcpy(bias + lane * half_bytes, from.bias, p->scale_bytes);
        return;
    }
    size_t first = lane / 16 * 16, at = lane % 16, n = l->lanes;
    copy_rows(to + first * row_bytes + 4 * at, 64, from.codes, 4 * n, row_bytes / 4, 4 * n);
    copy_rows(scale + first * half_bytes + 2 * at, 32, from.scale, 2 * n, p->n_groups, 2 * n);
    copy_rows(bias + first * half_bytes + 2 * at, 32, from.bias, 2 * n, p->n_groups, 2 * n);
}

static void gather_values(const struct sn_affine_layout *l, struct sn_affine_part from, size_t lane, uint8_t *to)
{
    const struct sn_affine_plane *p = &l->v;
    size_t row_bytes = (size_t)p->d * p->bits / 8, half_bytes = 2 * (size_t)p->n_groups, n = l->page_tokens;
    uint8_t *scale = to + SN_CHUNK_KEYS * row_bytes, *bias = scale + SN_CHUNK_KEYS * half_bytes;
    memcpy(to + lane * row_bytes, from.codes, p->codes_bytes);
    copy_rows(scale + 2 * lane, 2 * SN_CHUNK_KEYS, from.scale, 2 * n, p->n_groups, 2 * n);
    copy_rows(bias + 2 * lane, 2 * SN_CHUNK_KEYS, from.bias, 2 * n, p->n_groups, 2 * n);
}

/* The pages of one chunk that hold keys which somebody sees, into k and v; others may be gone. */
static void gather_chunk(const struct sn_attend_job *job, const struct sn_affine_layout *l,
                         struct sn_page *const *pages, uint64_t seen, uint8_t *k, uint8_t *v)
{
    uint64_t page_mask = UINT64_MAX >> (64 - l->page_tokens);
    for (size_t lane = 0; lane < SN_CHUNK_KEYS; lane += l->page_tokens) {
        if (!(seen >> lane & page_mask))
            continue;
        uint8_t *data = pages[lane / l->page_tokens]->data;
        gather_keys(l, part_of(&l->k, data, job->kv_head), lane, k);
        gather_values(l, part_of(&l->v, data, job->kv_head), lane, v);
    }
}

static struct sn_affine_part gathered(const struct sn_affine_plane *p, const uint8_t *at)
{
    const uint8_t *scale = at + SN_CHUNK_KEYS * ((size_t)p->d * p->bits / 8);
    return (struct sn_affine_part){at, (const void *)scale, (const void *)(scale + SN_CHUNK_KEYS * 2 * p->n_groups)};
}

/* Where chunk c of a segment is read: in place, or gathered into the job's scratch. */
static void find_chunk(const struct sn_attend_job *job, const struct sn_affine_layout *l,
                       struct sn_page *const *pages, size_t c, uint64_t seen, struct sn_affine_part *k,
                       struct sn_affine_part *v)
{
    if (l->page_tokens == SN_CHUNK_KEYS) {
        *k = part_of(&l->k, pages[0]->data, job->kv_head);
        *v = part_of(&l->v, pages[0]->data, job->kv_head);
        return;
    }
    uint8_t *keys = (uint8_t *)job->work.segment + c * (chunk_bytes(&l->k) + chunk_bytes(&l->v));
    uint8_t *values = keys + chunk_bytes(&l->k);
    gather_chunk(job, l, pages, seen, keys, values);
    *k = gathered(&l->k, keys);
    *v = gathered(&l->v, values);
}

void sn_affine_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s,
                       const struct sn_affine_layout *l, struct sn_page *const *pages, uint64_t first_page)
{
    struct sn_affine_part k[SN_SEGMENT_CHUNKS], v[SN_SEGMENT_CHUNKS];
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
    struct sn_attn_affine_args args = {.a = sn_attend_args(job, s),
                                       .k = k,
                                       .v = v,
                                       .k_bits = l->k.bits,
                                       .v_bits = l->v.bits,
                                       .group = l->group,
                                       .q = (const int8_t *)(d + 2 * n_scales),
                                       .q_d = d,
                                       .q_s = d + n_scales};
    SN_CALL(job->pool->kernels, &job->pool->calls[job->worker], attn_affine, &args);
}
