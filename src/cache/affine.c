/* Family "affine": keys and values of every token as codes, on pages laid out as affine.h says. */
#include "cache/affine.h"

#include <assert.h>

#include "cache/paged.h"

struct sn_affine {
    struct sn_paged paged; /* first */
    struct sn_affine_layout layout;
};

static const struct sn_affine_layout *layout_of(const struct sennit_cache *cache)
{
    return &((const struct sn_affine *)cache)->layout;
}

enum { TAKES = SN_CONFIG_HEADS | SN_CONFIG_PAGES | SN_CONFIG_CODE };

static sennit_status affine_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    SN_TRY(sn_affine_check(config, err));
    return sn_page_tokens_check(config, err);
}

static const char *affine_dtype(const struct sennit_cache *cache)
{
    return sn_affine_dtype(&cache->config);
}

/* ---- pages ---------------------------------------------------------------------------------------------------- */

static void affine_store(const struct sennit_cache *cache, uint8_t *data, size_t slot, sennit_role role,
                         uint32_t first_head, uint32_t n_heads, const float *x, uint32_t worker)
{
    bool key = role == SENNIT_ROLE_KEY;
    assert((key || role == SENNIT_ROLE_VALUE) && first_head + n_heads <= layout_of(cache)->n_heads);
    sn_affine_store(layout_of(cache), cache->pool->kernels, &cache->pool->calls[worker], data, slot, key, first_head,
                    n_heads, x);
}

static void affine_fill_tail(const struct sennit_cache *cache, uint8_t *data, size_t from, uint8_t byte)
{
    sn_affine_fill_tail(layout_of(cache), data, from, byte);
}

static void affine_views(const struct sennit_cache *cache, const uint8_t *data, uint32_t row, uint64_t pos,
                         uint64_t n_tokens, struct sennit_span_view *out)
{
    sn_affine_views(layout_of(cache), data, row, pos, n_tokens, out);
}

static const struct sn_page_ops affine_pages = {
    .store = affine_store,
    .fill_tail = affine_fill_tail,
    .n_views = SN_AFFINE_VIEWS,
    .views = affine_views,
};

static sennit_status affine_init(struct sennit_cache *cache, struct sennit_error *err)
{
    (void)err;
    struct sn_affine_layout *l = &((struct sn_affine *)cache)->layout;
    sn_affine_layout_init(l, &cache->config);
    sn_paged_init(cache, &affine_pages, l->page_bytes);
    return SENNIT_OK;
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

static size_t affine_prepare_bytes(const struct sn_attend_source *src, size_t n_q)
{
    return sn_affine_prepare_bytes(layout_of(src->cache), n_q);
}

static void affine_prepare(const struct sn_attend_job *job)
{
    sn_affine_prepare(job, layout_of(job->src.cache));
}

static size_t affine_segment_bytes(const struct sn_attend_source *src, size_t n_q)
{
    (void)n_q;
    return sn_affine_segment_bytes(layout_of(src->cache));
}

static void affine_segment(const struct sn_attend_job *job, const struct sn_attend_segment *segment)
{
    sn_affine_segment(job, segment, layout_of(job->src.cache), job->row_data, 0);
}

static const struct sn_attend_ops affine_attend = {
    .row_bytes = sn_paged_list_bytes,
    .row_fill = sn_paged_list,
    .prepare_bytes = affine_prepare_bytes,
    .prepare = affine_prepare,
    .segment_bytes = affine_segment_bytes,
    .segment = affine_segment,
};

static const struct sennit_cache_config example = {
    .family = "affine", .n_kv_heads = 8, .d_k = 128, .d_v = 128, .code = {8, 8, 32}};

const struct sn_family sn_family_affine = {
    .name = "affine",
    .takes = TAKES,
    .object_bytes = sizeof(struct sn_affine),
    .example = &example,
    .trimmable = true,
    .attend = &affine_attend,
    .check = affine_check,
    .signature = sn_affine_signature,
    .init = affine_init,
    SN_PAGED_ROW_SLOTS,
    .dtype = affine_dtype,
    .donor_attend = sn_attend_donor,
    SN_PAGED_STEP_SLOTS,
    SN_ATTEND_SLOTS,
};
