/* Family "turboquant": keys as integer codes, values rotated and coded, on pages laid out as turbo.h says. */
#include <assert.h>

#include "cache/paged.h"
#include "cache/turbo.h"

struct sn_turboquant {
    struct sn_paged paged; /* first */
    struct sn_turbo_layout layout;
};

static const struct sn_turbo_layout *layout_of(const struct sennit_cache *cache)
{
    return &((const struct sn_turboquant *)cache)->layout;
}

enum { TAKES = SN_CONFIG_HEADS | SN_CONFIG_PAGES | SN_CONFIG_CODE };

static sennit_status turbo_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    SN_TRY(sn_turbo_check(config, err));
    return sn_page_tokens_check(config, err);
}

static const char *turbo_dtype(const struct sennit_cache *cache)
{
    return sn_turbo_dtype(&cache->config);
}

/* ---- pages ---------------------------------------------------------------------------------------------------- */

static void turbo_store(const struct sennit_cache *cache, uint8_t *data, size_t slot, sennit_role role,
                        uint32_t first_head, uint32_t n_heads, const float *x, uint32_t worker)
{
    bool key = role == SENNIT_ROLE_KEY;
    assert((key || role == SENNIT_ROLE_VALUE) && first_head + n_heads <= layout_of(cache)->n_heads);
    sn_turbo_store(layout_of(cache), cache->pool->kernels, &cache->pool->calls[worker], data, slot, key, first_head,
                   n_heads, x);
}

static void turbo_fill_tail(const struct sennit_cache *cache, uint8_t *data, size_t from, uint8_t byte)
{
    sn_turbo_fill_tail(layout_of(cache), data, from, byte);
}

static void turbo_views(const struct sennit_cache *cache, const uint8_t *data, uint32_t row, uint64_t pos,
                        uint64_t n_tokens, struct sennit_span_view *out)
{
    sn_turbo_views(layout_of(cache), data, row, pos, n_tokens, out);
}

static const struct sn_page_ops turbo_page_ops = {
    .store = turbo_store,
    .fill_tail = turbo_fill_tail,
    .n_views = SN_TURBO_VIEWS,
    .views = turbo_views,
};

static sennit_status turbo_init(struct sennit_cache *cache, struct sennit_error *err)
{
    (void)err;
    struct sn_turbo_layout *l = &((struct sn_turboquant *)cache)->layout;
    sn_turbo_defaults(&cache->config);
    sn_turbo_layout_init(l, &cache->config);
    sn_paged_init(cache, &turbo_page_ops, l->page_bytes);
    return SENNIT_OK;
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

static size_t turbo_prepare_bytes(const struct sn_attend_source *src, size_t n_q)
{
    return sn_turbo_prepare_bytes(layout_of(src->cache), n_q);
}

static void turbo_prepare(const struct sn_attend_job *job)
{
    sn_turbo_prepare(job, layout_of(job->src.cache));
}

static size_t turbo_segment_bytes(const struct sn_attend_source *src, size_t n_q)
{
    (void)n_q;
    return sn_turbo_segment_bytes(layout_of(src->cache));
}

static void turbo_segment(const struct sn_attend_job *job, const struct sn_attend_segment *segment)
{
    sn_turbo_segment(job, segment, layout_of(job->src.cache), job->row_data, 0);
}

static void turbo_finish(const struct sn_attend_source *src, uint32_t worker, float *out)
{
    sn_turbo_finish(src->cache->pool, layout_of(src->cache), worker, out);
}

static const struct sn_attend_ops turbo_attend = {
    .row_bytes = sn_paged_list_bytes,
    .row_fill = sn_paged_list,
    .prepare_bytes = turbo_prepare_bytes,
    .prepare = turbo_prepare,
    .segment_bytes = turbo_segment_bytes,
    .segment = turbo_segment,
    .finish = turbo_finish,
};

static const struct sennit_cache_config example = {
    .family = "turboquant", .n_kv_heads = 8, .d_k = 128, .d_v = 128, .code = {8, 3, 32}};

const struct sn_family sn_family_turboquant = {
    .name = "turboquant",
    .takes = TAKES,
    .example = &example,
    .object_bytes = sizeof(struct sn_turboquant),
    .trimmable = true,
    .attend = &turbo_attend,
    .check = turbo_check,
    .signature = sn_turbo_signature,
    .init = turbo_init,
    SN_PAGED_ROW_SLOTS,
    .dtype = turbo_dtype,
    .donor_attend = sn_attend_donor,
    SN_PAGED_STEP_SLOTS,
    SN_ATTEND_SLOTS,
};
