#include "cache/kv.h"

#include <stdio.h>

static sennit_status check_dim(const char *field, uint32_t value, struct sennit_error *err)
{
    if (value >= 1 && value <= SN_KV_MAX_DIM)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: %s is %u; it must be 1 to %d", field, value, SN_KV_MAX_DIM);
}

sennit_status sn_kv_check_dims(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(check_dim("n_kv_heads", config->n_kv_heads, err));
    SN_TRY(check_dim("d_k", config->d_k, err));
    return check_dim("d_v", config->d_v, err);
}

sennit_status sn_kv_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_kv_check_dims(config, err));
    sennit_type type = config->k_type;
    if (type != SENNIT_F32 && type != SENNIT_F16 && type != SENNIT_BF16)
        return sn_fail(err, SENNIT_INVALID, "cache config: k_type %s cannot be stored here: use F32, F16 or BF16",
                       sennit_type_name(type));
    if (config->v_type != type)
        return sn_fail(err, SENNIT_INVALID, "cache config: v_type %s differs from k_type %s; they must be equal",
                       sennit_type_name(config->v_type), sennit_type_name(type));
    return SENNIT_OK;
}

void sn_kv_signature(const char *family, const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    snprintf(out, n_bytes, "%s %s kv %u k %u v %u", family, sennit_type_name(config->k_type), config->n_kv_heads,
             config->d_k, config->d_v);
    sn_page_tokens_sign(config, out, n_bytes);
}

size_t sn_kv_element_bytes(sennit_type type)
{
    return type == SENNIT_F32 ? 4 : 2;
}

void sn_kv_layout_init(struct sn_kv_layout *l, const struct sennit_cache_config *config,
                       const struct sn_kernels *kernels)
{
    uint32_t p = sn_page_tokens(config);
    *l = (struct sn_kv_layout){.n_heads = config->n_kv_heads,
                               .d_k = config->d_k,
                               .d_v = config->d_v,
                               .page_tokens = p,
                               .lanes = p < 16 ? p : 16,
                               .element_bytes = sn_kv_element_bytes(config->k_type)};
    l->k_head_bytes = p * (size_t)config->d_k * l->element_bytes;
    l->v_head_bytes = p * (size_t)config->d_v * l->element_bytes;
    l->v_offset = config->n_kv_heads * l->k_head_bytes;
    l->page_bytes = config->n_kv_heads * (l->k_head_bytes + l->v_head_bytes);
    switch (config->k_type) {
    case SENNIT_F32:
        l->store = kernels->store_f32, l->store_id = SN_K_store_f32;
        l->attn = kernels->attn_f32, l->attn_id = SN_K_attn_f32;
        break;
    case SENNIT_F16:
        l->store = kernels->store_f16, l->store_id = SN_K_store_f16;
        l->attn = kernels->attn_f16, l->attn_id = SN_K_attn_f16;
        break;
    default:
        l->store = kernels->store_bf16, l->store_id = SN_K_store_bf16;
        l->attn = kernels->attn_bf16, l->attn_id = SN_K_attn_bf16;
        break;
    }
}

void sn_kv_fill_tail(const struct sn_kv_layout *l, uint8_t *data, size_t from, uint8_t byte)
{
    size_t e = l->element_bytes;
    for (size_t h = 0; h < l->n_heads; h++) {
        for (size_t t = from; t < l->page_tokens; t++) {
            uint8_t *k = sn_kv_key_at(l, data, h, t);
            for (size_t d = 0; d < l->d_k; d++)
                memset(k + d * l->lanes * e, byte, e);
        }
        memset(sn_kv_value_at(l, data, h, from), byte, (l->page_tokens - from) * l->d_v * e);
    }
}

void sn_kv_store(const struct sn_kv_layout *l, uint8_t *data, size_t slot, bool key, uint32_t first_head,
                 uint32_t n_heads, const float *x)
{
    for (size_t h = 0; h < n_heads; h++) {
        if (key)
            l->store(x + h * l->d_k, l->d_k, sn_kv_key_at(l, data, first_head + h, slot), l->lanes);
        else
            l->store(x + h * l->d_v, l->d_v, sn_kv_value_at(l, data, first_head + h, slot), 1);
    }
}

void sn_kv_views(const struct sn_kv_layout *l, sennit_type type, const uint8_t *data, uint32_t row, uint64_t pos,
                 uint64_t n_tokens, struct sennit_span_view out[2])
{
    struct sennit_span_view view = {.name = "key",
                                    .type = type,
                                    .row = row,
                                    .pos = pos,
                                    .n_tokens = n_tokens,
                                    .data = data,
                                    .n_bytes = l->v_offset};
    out[0] = view;
    view.name = "value";
    view.data = data + l->v_offset;
    view.n_bytes = l->page_bytes - l->v_offset;
    out[1] = view;
}

/* ---- reading ------------------------------------------------------------------------------------------------- */

size_t sn_kv_segment_bytes(const struct sn_kv_layout *l)
{
    return l->page_tokens == SN_CHUNK_KEYS ? 0 : SN_SEGMENT_KEYS * ((size_t)l->d_k + l->d_v) * l->element_bytes;
}

/* One page's keys of one head into lanes lane .. lane + P - 1 of a chunk's panel, [4][d_k][16]. */
static void gather_keys(const struct sn_kv_layout *l, const uint8_t *from, size_t lane, uint8_t *panel)
{
    size_t e = l->element_bytes, row_bytes = l->lanes * e;
    if (l->lanes == 16) {
        memcpy(panel + lane * l->d_k * e, from, l->k_head_bytes);
        return;
    }
    uint8_t *to = panel + (lane / 16 * l->d_k * 16 + lane % 16) * e;
    for (size_t d = 0; d < l->d_k; d++)
        memcpy(to + d * 16 * e, from + d * row_bytes, row_bytes);
}

/* The pages of one chunk that hold keys which somebody sees; others may be gone. */
static void gather_chunk(const struct sn_attend_job *job, const struct sn_kv_layout *l, struct sn_page *const *pages,
                         uint64_t first_page, uint64_t first, uint64_t seen, uint8_t *k, uint8_t *v)
{
    uint64_t page_mask = UINT64_MAX >> (64 - l->page_tokens);
    for (size_t lane = 0; lane < SN_CHUNK_KEYS; lane += l->page_tokens) {
        if (!(seen >> lane & page_mask))
            continue;
        uint8_t *data = pages[(first + lane) / l->page_tokens - first_page]->data;
        gather_keys(l, sn_kv_key_at(l, data, job->kv_head, 0), lane, k);
        memcpy(v + lane * l->d_v * l->element_bytes, sn_kv_value_at(l, data, job->kv_head, 0), l->v_head_bytes);
    }
}

void sn_kv_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s, const struct sn_kv_layout *l,
                   struct sn_page *const *pages, uint64_t first_page)
{
    const void *k[SN_SEGMENT_CHUNKS], *v[SN_SEGMENT_CHUNKS];
    size_t k_chunk = SN_CHUNK_KEYS * l->d_k * l->element_bytes, v_chunk = SN_CHUNK_KEYS * l->d_v * l->element_bytes;
    uint8_t *keys = job->work.segment, *values = keys + SN_SEGMENT_CHUNKS * k_chunk;
    for (size_t c = 0; c < s->n_chunks; c++) {
        uint64_t first = s->first + c * SN_CHUNK_KEYS;
        k[c] = keys + c * k_chunk;
        v[c] = values + c * v_chunk;
        if (!s->seen[c])
            continue;
        if (l->page_tokens != SN_CHUNK_KEYS) {
            gather_chunk(job, l, pages, first_page, first, s->seen[c], keys + c * k_chunk, values + c * v_chunk);
            continue;
        }
        uint8_t *data = pages[first / SN_CHUNK_KEYS - first_page]->data;
        k[c] = sn_kv_key_at(l, data, job->kv_head, 0);
        v[c] = sn_kv_value_at(l, data, job->kv_head, 0);
    }
    sn_attend_slot(job, s, l->attn, l->attn_id, k, v);
}
