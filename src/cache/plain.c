#include "cache/plain.h"

#include <assert.h>

enum { TAKES = SN_CONFIG_HEADS | SN_CONFIG_TYPES | SN_CONFIG_PAGES };

static sennit_status plain_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    SN_TRY(sn_kv_check(config, err));
    return sn_page_tokens_check(config, err);
}

static void plain_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    sn_kv_signature("plain", config, out, n_bytes);
}

/* ---- pages ---------------------------------------------------------------------------------------------------- */

static void plain_store(const struct sennit_cache *cache, uint8_t *data, size_t slot, sennit_role role,
                        uint32_t first_head, uint32_t n_heads, const float *x, uint32_t worker)
{
    const struct sn_kv_layout *l = &sn_plain_of(cache)->layout;
    bool key = role == SENNIT_ROLE_KEY;
    assert((key || role == SENNIT_ROLE_VALUE) && first_head + n_heads <= l->n_heads);
    sn_kv_store(l, data, slot, key, first_head, n_heads, x);
    cache->pool->calls[worker].n[l->store_id] += n_heads;
}

static void plain_fill_tail(const struct sennit_cache *cache, uint8_t *data, size_t from, uint8_t byte)
{
    sn_kv_fill_tail(&sn_plain_of(cache)->layout, data, from, byte);
}

static void plain_views(const struct sennit_cache *cache, const uint8_t *data, uint32_t row, uint64_t pos,
                        uint64_t n_tokens, struct sennit_span_view *out)
{
    sn_kv_views(&sn_plain_of(cache)->layout, cache->config.k_type, data, row, pos, n_tokens, out);
}

static const struct sn_page_ops plain_pages = {
    .store = plain_store,
    .fill_tail = plain_fill_tail,
    .n_views = 2,
    .views = plain_views,
};

static sennit_status plain_init(struct sennit_cache *cache, struct sennit_error *err)
{
    (void)err;
    struct sn_kv_layout *l = &((struct sn_plain *)cache)->layout;
    sn_kv_layout_init(l, &cache->config, cache->pool->kernels);
    sn_paged_init(cache, &plain_pages, l->page_bytes);
    return SENNIT_OK;
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

static size_t plain_segment_bytes(const struct sn_attend_source *src, size_t n_q)
{
    (void)n_q;
    return sn_kv_segment_bytes(&sn_plain_of(src->cache)->layout);
}

static void plain_segment(const struct sn_attend_job *job, const struct sn_attend_segment *segment)
{
    sn_kv_segment(job, segment, &sn_plain_of(job->src.cache)->layout, job->row_data, 0);
}

static const struct sn_attend_ops plain_attend = {
    .row_bytes = sn_paged_list_bytes,
    .row_fill = sn_paged_list,
    .segment_bytes = plain_segment_bytes,
    .segment = plain_segment,
};

static const struct sennit_cache_config example = {
    .family = "plain", .n_kv_heads = 8, .d_k = 128, .d_v = 128, .k_type = SENNIT_F16, .v_type = SENNIT_F16};

const struct sn_family sn_family_plain = {
    .name = "plain",
    .takes = TAKES,
    .object_bytes = sizeof(struct sn_plain),
    .example = &example,
    .trimmable = true,
    .attend = &plain_attend,
    .check = plain_check,
    .signature = plain_signature,
    .init = plain_init,
    SN_PAGED_ROW_SLOTS,
    .donor_attend = sn_attend_donor,
    SN_PAGED_STEP_SLOTS,
    SN_ATTEND_SLOTS,
};
