#include "cache/mla.h"

#include <assert.h>
#include <stdio.h>

/* ---- geometry ------------------------------------------------------------------------------------------------- */

static sennit_status check_dim(const char *field, uint32_t value, struct sennit_error *err)
{
    if (value >= 1 && value <= SN_KV_MAX_DIM)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: %s is %u; it must be 1 to %d", field, value, SN_KV_MAX_DIM);
}

static sennit_status check_code(const struct sennit_cache_config *config, struct sennit_error *err)
{
    if (config->code.k_bits != 0 && config->code.k_bits != 8)
        return sn_fail(err, SENNIT_INVALID, "cache config: code.k_bits is %u; a latent has 8-bit codes or none (0)",
                       config->code.k_bits);
    if (config->code.v_bits != 0)
        return sn_fail(
            err, SENNIT_INVALID,
            "cache config: code.v_bits means nothing to family '%s', whose value is the latent; leave it 0",
            config->family);
    if (config->code.group != 0)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: code.group means nothing to family '%s', whose groups are of %d; leave it 0",
                       config->family, SN_MLA_GROUP);
    if (config->code.k_bits != 0 && config->mla.d_latent % SN_MLA_GROUP != 0)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: mla.d_latent %u is no multiple of %d, as a coded latent must be",
                       config->mla.d_latent, SN_MLA_GROUP);
    return SENNIT_OK;
}

sennit_status sn_mla_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(check_dim("mla.d_latent", config->mla.d_latent, err));
    SN_TRY(check_dim("mla.d_rope", config->mla.d_rope, err));
    sennit_type type = config->k_type;
    if (type != SENNIT_F32 && type != SENNIT_F16 && type != SENNIT_BF16)
        return sn_fail(err, SENNIT_INVALID, "cache config: k_type %s cannot be stored here: use F32, F16 or BF16",
                       sennit_type_name(type));
    if (config->v_type != 0)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: v_type means nothing to family '%s', whose value is the latent; leave it 0",
                       config->family);
    return check_code(config, err);
}

void sn_mla_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    snprintf(out, n_bytes, "%s %s latent %u%s rope %u", config->family, sennit_type_name(config->k_type),
             config->mla.d_latent, config->code.k_bits ? " in 8 bits" : "", config->mla.d_rope);
}

/* ---- pages ---------------------------------------------------------------------------------------------------- */

static void store_latent(const struct sennit_cache *cache, uint8_t *page, size_t slot, const float *x,
                         uint32_t worker)
{
    const struct sn_mla *c = sn_mla_of(cache);
    if (c->n_groups > 0) {
        SN_CALL(cache->pool->kernels, &cache->pool->calls[worker], affine_encode, x, c->d_latent, SN_MLA_GROUP, 8,
                sn_mla_latent(c, page, slot), sn_mla_scales(c, page, slot), sn_mla_biases(c, page, slot));
        return;
    }
    c->store(x, c->d_latent, sn_mla_latent(c, page, slot), 1);
    cache->pool->calls[worker].n[c->store_id]++;
}

/* Between the rope keys and index keys of wider elements there can be two bytes that hold nothing: in pages of one
 * token alone, so that no two threads come here. A record of the row must not depend on what was in them. */
static void fill_gap(const struct sn_mla *c, uint8_t *page)
{
    size_t end = c->rope_at + c->page_tokens * c->d_rope * c->element_bytes;
    if (c->d_index > 0 && end < c->index_at)
        memset(page + end, 0, c->index_at - end);
}

static void mla_store(const struct sennit_cache *cache, uint8_t *page, size_t slot, sennit_role role,
                      uint32_t first_head, uint32_t n_heads, const float *x, uint32_t worker)
{
    const struct sn_mla *c = sn_mla_of(cache);
    (void)first_head, (void)n_heads;
    assert(first_head == 0 && n_heads == 1);
    switch (role) {
    case SENNIT_ROLE_LATENT:
        store_latent(cache, page, slot, x, worker);
        break;
    case SENNIT_ROLE_ROPE_KEY:
        c->store(x, c->d_rope, sn_mla_rope(c, page, slot), 1);
        fill_gap(c, page);
        cache->pool->calls[worker].n[c->store_id]++;
        break;
    default:
        assert(role == SENNIT_ROLE_INDEX_KEY && c->d_index > 0);
        c->index_store(x, c->d_index, sn_mla_index(c, page, slot), sn_mla_index_lanes(c));
        cache->pool->calls[worker].n[c->index_store_id]++;
        break;
    }
}

static void mla_fill_tail(const struct sennit_cache *cache, uint8_t *page, size_t from, uint8_t byte)
{
    const struct sn_mla *c = sn_mla_of(cache);
    size_t n = c->page_tokens - from, lanes = sn_mla_index_lanes(c);
    memset(sn_mla_latent(c, page, from), byte, n * c->latent_bytes);
    memset(sn_mla_scales(c, page, from), byte, n * c->n_groups * sizeof(uint16_t));
    memset(sn_mla_biases(c, page, from), byte, n * c->n_groups * sizeof(uint16_t));
    memset(sn_mla_rope(c, page, from), byte, n * c->d_rope * c->element_bytes);
    for (size_t slot = from; slot < c->page_tokens && c->d_index > 0; slot++)
        for (size_t d = 0; d < c->d_index; d++)
            memset(sn_mla_index(c, page, slot) + d * lanes * c->index_element_bytes, byte, c->index_element_bytes);
}

static void mla_views(const struct sennit_cache *cache, const uint8_t *page, uint32_t row, uint64_t pos,
                      uint64_t n_tokens, struct sennit_span_view *out)
{
    const struct sn_mla *c = sn_mla_of(cache);
    const struct sennit_cache_config *config = &cache->config;
    size_t p = c->page_tokens, group_bytes = p * c->n_groups * sizeof(uint16_t);
    struct sennit_span_view view = {.row = row, .pos = pos, .n_tokens = n_tokens};
    view.name = "latent", view.type = c->n_groups ? SENNIT_I8 : config->k_type;
    view.data = page, view.n_bytes = p * c->latent_bytes;
    *out++ = view;
    if (c->n_groups > 0) {
        view.name = "latent_scale", view.type = SENNIT_F16, view.data = page + c->scale_at,
        view.n_bytes = group_bytes;
        *out++ = view;
        view.name = "latent_bias", view.data = page + c->bias_at;
        *out++ = view;
    }
    view.name = "rope_key", view.type = config->k_type;
    view.data = page + c->rope_at, view.n_bytes = p * c->d_rope * c->element_bytes;
    *out++ = view;
    if (c->d_index > 0) {
        view.name = "index_key", view.type = config->index.type;
        view.data = page + c->index_at, view.n_bytes = p * c->d_index * c->index_element_bytes;
        *out = view;
    }
}

/* By what a page holds: coded or not, with index keys or without. */
#define PAGES(n)                                                                                                     \
    {                                                                                                                \
        .store = mla_store, .fill_tail = mla_fill_tail, .n_views = (n), .views = mla_views                           \
    }
static const struct sn_page_ops page_ops[2][2] = {{PAGES(2), PAGES(3)}, {PAGES(4), PAGES(5)}};

static void pick_slots(struct sn_mla *c, const struct sennit_cache_config *config, const struct sn_kernels *k)
{
    switch (config->k_type) {
    case SENNIT_F32:
        c->store = k->store_f32, c->store_id = SN_K_store_f32, c->attn = k->attn_f32, c->attn_id = SN_K_attn_f32;
        break;
    case SENNIT_F16:
        c->store = k->store_f16, c->store_id = SN_K_store_f16, c->attn = k->attn_f16, c->attn_id = SN_K_attn_f16;
        break;
    default:
        c->store = k->store_bf16, c->store_id = SN_K_store_bf16, c->attn = k->attn_bf16, c->attn_id = SN_K_attn_bf16;
        break;
    }
    bool wide = config->index.type == SENNIT_F32;
    c->index_store = wide ? k->store_f32 : k->store_f16;
    c->index_store_id = wide ? SN_K_store_f32 : SN_K_store_f16;
}

void sn_mla_init(struct sennit_cache *cache, uint32_t d_index)
{
    struct sn_mla *c = (struct sn_mla *)cache;
    const struct sennit_cache_config *config = &cache->config;
    size_t p = sn_page_tokens(config);
    c->d_latent = config->mla.d_latent;
    c->d_rope = config->mla.d_rope;
    c->d_index = d_index;
    c->page_tokens = (uint32_t)p;
    c->n_groups = config->code.k_bits ? c->d_latent / SN_MLA_GROUP : 0;
    c->element_bytes = sn_kv_element_bytes(config->k_type);
    c->index_element_bytes = sn_kv_element_bytes(config->index.type);
    c->latent_bytes = c->n_groups ? c->d_latent : c->d_latent * c->element_bytes;
    c->scale_at = p * c->latent_bytes;
    c->bias_at = c->scale_at + p * c->n_groups * sizeof(uint16_t);
    c->rope_at = c->bias_at + p * c->n_groups * sizeof(uint16_t);
    c->index_at = c->rope_at + p * c->d_rope * c->element_bytes;
    if (d_index > 0)
        c->index_at = sn_round_up(c->index_at, c->index_element_bytes);
    c->page_bytes = c->index_at + p * d_index * c->index_element_bytes;
    pick_slots(c, config, cache->pool->kernels);
    cache->shape.n_kv_heads = 1;
    cache->shape.d_k = c->d_latent + c->d_rope;
    cache->shape.d_v = c->d_latent;
    sn_paged_init(cache, &page_ops[c->n_groups > 0][d_index > 0], c->page_bytes);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

size_t sn_mla_prepare_bytes(const struct sn_attend_source *src, size_t n_q)
{
    const struct sn_mla *c = sn_mla_of(src->cache);
    return c->n_groups ? sn_mla_coded_prepare_bytes(c, n_q) : 0;
}

void sn_mla_prepare(const struct sn_attend_job *job)
{
    if (sn_mla_of(job->src.cache)->n_groups)
        sn_mla_coded_prepare(job);
}

/* K panels of a segment, and V where it is not read in place. */
size_t sn_mla_segment_bytes(const struct sn_attend_source *src, size_t n_q)
{
    const struct sn_mla *c = sn_mla_of(src->cache);
    (void)n_q;
    if (c->n_groups)
        return sn_mla_coded_segment_bytes(c);
    return SN_SEGMENT_KEYS * (2 * (size_t)c->d_latent + c->d_rope) * c->element_bytes;
}

/* Lanes of a panel, dimensions first .. of it, from rows of n elements; lanes without a row stay as they are. */
static void turn16(const uint16_t *const rows[16], size_t n, uint16_t *panel)
{
    for (size_t lane = 0; lane < 16; lane++)
        for (size_t d = 0; rows[lane] && d < n; d++)
            panel[d * 16 + lane] = rows[lane][d];
}

static void turn32(const uint32_t *const rows[16], size_t n, uint32_t *panel)
{
    for (size_t lane = 0; lane < 16; lane++)
        for (size_t d = 0; rows[lane] && d < n; d++)
            panel[d * 16 + lane] = rows[lane][d];
}

static void turn(const uint8_t *const rows[16], size_t n, size_t element_bytes, uint8_t *panel)
{
    const void *list[16];
    memcpy(list, rows, sizeof list);
    if (element_bytes == 2)
        turn16((const uint16_t *const *)list, n, (uint16_t *)(void *)panel);
    else
        turn32((const uint32_t *const *)list, n, (uint32_t *)(void *)panel);
}

/* Keys of one chunk that somebody sees into a K panel [4][d_latent + d_rope][16] and, where v is not NULL, values
 * into v [64][d_latent]. */
static void gather(const struct sn_attend_job *job, const struct sn_mla *c, uint64_t first, uint64_t seen, uint8_t *k,
                   uint8_t *v)
{
    size_t e = c->element_bytes, group_bytes = 16 * ((size_t)c->d_latent + c->d_rope) * e;
    for (size_t g = 0; g < 4; g++, k += group_bytes) {
        const uint8_t *latent[16] = {0}, *rope[16] = {0};
        if (!(seen >> 16 * g & 0xFFFF))
            continue;
        for (size_t lane = 0; lane < 16; lane++) {
            size_t key = 16 * g + lane, slot;
            if (!(seen >> key & 1))
                continue;
            uint8_t *page = sn_mla_page(job, c, first + key, &slot);
            latent[lane] = sn_mla_latent(c, page, slot);
            rope[lane] = sn_mla_rope(c, page, slot);
            if (v)
                memcpy(v + key * c->latent_bytes, latent[lane], c->latent_bytes);
        }
        turn(latent, c->d_latent, e, k);
        turn(rope, c->d_rope, e, k + 16 * c->d_latent * e);
    }
}

void sn_mla_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    const struct sn_mla *c = sn_mla_of(job->src.cache);
    if (c->n_groups) {
        sn_mla_coded_segment(job, s);
        return;
    }
    const void *k[SN_SEGMENT_CHUNKS], *v[SN_SEGMENT_CHUNKS];
    size_t k_bytes = SN_CHUNK_KEYS * job->d_k * c->element_bytes, v_bytes = SN_CHUNK_KEYS * c->latent_bytes;
    uint8_t *keys = job->work.segment, *values = keys + SN_SEGMENT_CHUNKS * k_bytes;
    bool in_place = c->page_tokens == SN_CHUNK_KEYS && !job->list;
    for (size_t i = 0; i < s->n_chunks; i++) {
        uint64_t first = s->first + i * SN_CHUNK_KEYS;
        size_t slot;
        k[i] = keys + i * k_bytes;
        v[i] = values + i * v_bytes;
        if (!s->seen[i])
            continue;
        gather(job, c, first, s->seen[i], keys + i * k_bytes, in_place ? NULL : values + i * v_bytes);
        if (in_place)
            v[i] = sn_mla_page(job, c, first, &slot);
    }
    sn_attend_slot(job, s, c->attn, c->attn_id, k, v);
}

/* ---- the family ----------------------------------------------------------------------------------------------- */

enum { TAKES = SN_CONFIG_TYPES | SN_CONFIG_PAGES | SN_CONFIG_CODE | SN_CONFIG_MLA };

static sennit_status mla_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    SN_TRY(sn_mla_check(config, err));
    return sn_page_tokens_check(config, err);
}

static void mla_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    sn_mla_signature(config, out, n_bytes);
    sn_page_tokens_sign(config, out, n_bytes);
}

static sennit_status mla_init(struct sennit_cache *cache, struct sennit_error *err)
{
    (void)err;
    sn_mla_init(cache, 0);
    return SENNIT_OK;
}

static const struct sn_attend_ops mla_attend = {
    .row_bytes = sn_paged_list_bytes,
    .row_fill = sn_paged_list,
    .prepare_bytes = sn_mla_prepare_bytes,
    .prepare = sn_mla_prepare,
    .segment_bytes = sn_mla_segment_bytes,
    .segment = sn_mla_segment,
};

static const struct sennit_cache_config example = {.family = "mla", .k_type = SENNIT_F16, .mla = {512, 64}};

const struct sn_family sn_family_mla = {
    .name = "mla",
    .takes = TAKES,
    .object_bytes = sizeof(struct sn_mla),
    .example = &example,
    .trimmable = true,
    .no_planes = true,
    .attend = &mla_attend,
    .check = mla_check,
    .signature = mla_signature,
    .init = mla_init,
    SN_PAGED_ROW_SLOTS,
    SN_PAGED_STEP_SLOTS,
    SN_ATTEND_SLOTS,
};
