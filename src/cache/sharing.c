/* Rows join, leave, are trimmed and rolled back with the source's, by their caller or as parts of one "composed"
 * cache; here they are nothing but lengths. A step claims the source's open step (lineage.h), and its attention is
 * the driver's, over the source's rows. */
#include "cache/sharing.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

static struct sn_sharing *mutable_sharing(struct sennit_cache *cache)
{
    return (struct sn_sharing *)cache;
}

/* ---- one cache ------------------------------------------------------------------------------------------------ */

enum { TAKES = SN_CONFIG_SOURCE };

static sennit_status sharing_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    const struct sennit_cache *source = config->source;
    if (!source)
        return sn_fail(err, SENNIT_INVALID, "cache config: family 'donor' needs a source, the cache that it reads");
    if (source->ops == &sn_family_donor)
        return SENNIT_OK; /* what that one reads */
    if (!source->ops->attend || source->ops->no_planes)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: source is of family '%s', whose keys and values another layer cannot read",
                       source->ops->name);
    return SENNIT_OK;
}

static void sharing_inherit(struct sennit_cache *cache, const struct sennit_cache *like)
{
    struct sn_sharing *c = mutable_sharing(cache);
    c->source = sn_lineage_ref(sn_sharing_of(like)->source);
    c->trims = sn_sharing_of(like)->trims;
    memcpy(c->dtype, sn_sharing_of(like)->dtype, sizeof c->dtype);
    cache->shape = like->shape;
}

static sennit_status sharing_init(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_sharing *c = mutable_sharing(cache);
    const struct sennit_cache *source = cache->config.source;
    if (c->source)
        return SENNIT_OK;
    cache->config.source = NULL; /* looked at in create alone */
    if (source->pool != cache->pool)
        return sn_fail(err, SENNIT_INVALID, "cache config: source belongs to another pool");
    c->source = sn_lineage_ref(source->ops == &sn_family_donor ? sn_sharing_of(source)->source : source->lineage);
    c->trims = sn_cache_trimmable(source);
    snprintf(c->dtype, sizeof c->dtype, "%s", sennit_cache_dtype(source));
    cache->shape = source->shape;
    if (source->config.max_tokens < cache->config.max_tokens)
        cache->config.max_tokens = source->config.max_tokens;
    char text[SN_SIGNATURE_BYTES];
    snprintf(text, sizeof text, "%s / %s", cache->ops->name, c->source->signature);
    return sn_cache_sign(cache, text, err);
}

static void sharing_release(struct sennit_cache *cache)
{
    sn_lineage_drop(mutable_sharing(cache)->source);
}

/* ---- rows are lengths ----------------------------------------------------------------------------------------- */

static uint64_t no_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    (void)cache, (void)tokens;
    return 0;
}

static uint64_t no_reserve(const struct sennit_cache *cache)
{
    (void)cache;
    return 0;
}

static uint64_t no_row_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    (void)cache, (void)row;
    return 0;
}

static sennit_status sharing_row_copy(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                                      struct sennit_error *err)
{
    (void)to, (void)src, (void)dst, (void)err;
    return SENNIT_OK;
}

static void sharing_row_drop(struct sennit_cache *cache, struct sn_row *row)
{
    (void)cache, (void)row;
}

static bool sharing_can_trim(const struct sennit_cache *cache)
{
    return sn_sharing_of(cache)->trims;
}

static sennit_status sharing_trim_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                          void **spare, struct sennit_error *err)
{
    (void)cache, (void)row, (void)n_tokens, (void)err;
    *spare = NULL;
    return SENNIT_OK;
}

static void sharing_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    (void)cache, (void)row, (void)n_tokens, (void)spare;
}

static void sharing_trim_discard(struct sennit_cache *cache, void *spare)
{
    (void)cache, (void)spare;
}

static size_t sharing_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    (void)cache, (void)row;
    return 0;
}

static void sharing_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    (void)cache, (void)row, (void)out;
}

static const char *sharing_dtype(const struct sennit_cache *cache)
{
    return sn_sharing_of(cache)->dtype;
}

static sennit_status sharing_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                       struct sennit_stream *stream, struct sennit_error *err)
{
    (void)cache, (void)row, (void)stream, (void)err;
    return SENNIT_OK;
}

static sennit_status sharing_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                       struct sennit_error *err)
{
    (void)cache, (void)row, (void)stream, (void)err;
    return SENNIT_OK;
}

/* ---- the step ------------------------------------------------------------------------------------------------- */

static sennit_status sharing_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_sharing *c = mutable_sharing(cache);
    SN_TRY(sn_lineage_claim(c->source, cache, "source", err));
    c->read = c->source->writer;
    sennit_status status = sn_attend_reserve(cache, err);
    if (status != SENNIT_OK) {
        sn_lineage_release(c->source);
        c->read = NULL;
    }
    return status;
}

static void sharing_step_tile(struct sennit_cache *cache, uint32_t span, uint32_t token, uint32_t n_tokens,
                              sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                              size_t token_stride, uint32_t worker)
{
    (void)cache, (void)span, (void)token, (void)n_tokens, (void)role, (void)first_head, (void)n_heads, (void)data;
    (void)token_stride, (void)worker;
    assert(0 && "a layer that reads another one's keys and values gets none");
}

static void sharing_step_end(struct sennit_cache *cache)
{
    struct sn_sharing *c = mutable_sharing(cache);
    sn_lineage_release(c->source);
    c->read = NULL;
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

static struct sn_attend_source sharing_route(const struct sennit_cache *cache, uint32_t row)
{
    return sn_attend_source_of(sn_sharing_of(cache)->read, row);
}

/* A source whose step is over may have let go of what is to be read: no answer must pass for one. */
static void sharing_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    struct sn_sharing *c = mutable_sharing(cache);
    c->blind = c->source->writer != c->read;
    *n_items = cache->step.n_spans;
    *n_merges = 0;
    if (!c->blind)
        sn_attend_plan(cache, n_items, n_merges);
}

/* The source's step can also end, or the source go, between the plan and the items. */
static bool is_blind(const struct sn_sharing *c)
{
    return c->blind || c->source->writer != c->read;
}

static void no_answer(const struct sennit_cache *cache, uint32_t span_index)
{
    const struct sennit_span *span = &cache->step.spans[span_index];
    const struct sennit_attend_inputs *in = &cache->step.in;
    for (size_t t = 0; t < span->n_tokens; t++)
        for (size_t i = 0; i < (size_t)cache->step.n_heads * cache->shape.d_v; i++)
            in->out[(span->first_token + t) * in->out_stride + i] = NAN;
}

/* A plan has an item for each span at least. */
static void sharing_item(struct sennit_cache *cache, uint32_t item, uint32_t worker)
{
    if (!is_blind(sn_sharing_of(cache)))
        sn_attend_item(cache, item, worker);
    else if (item < cache->step.n_spans)
        no_answer(cache, item);
}

/* Items may have run before that end: what they left is not to be joined. */
static void sharing_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker)
{
    bool blind = is_blind(sn_sharing_of(cache));
    if (!blind)
        sn_attend_merge(cache, merge, worker);
    for (uint32_t i = 0; blind && merge == 0 && i < cache->step.n_spans; i++)
        no_answer(cache, i);
}

static const struct sn_attend_ops sharing_attend = {.route = sharing_route};
static const struct sennit_cache_config example = {.family = "donor"};

const struct sn_family sn_family_donor = {
    .name = "donor",
    .takes = TAKES,
    .object_bytes = sizeof(struct sn_sharing),
    .example = &example,
    .trimmable = true,
    .no_planes = true,
    .attend = &sharing_attend,
    .check = sharing_check,
    .init = sharing_init,
    .inherit = sharing_inherit,
    .release = sharing_release,
    .storage_bytes = no_bytes,
    .reserve_bytes = no_reserve,
    .bytes_per_token = no_reserve,
    .row_bytes = no_row_bytes,
    .row_copy = sharing_row_copy,
    .row_drop = sharing_row_drop,
    .can_trim = sharing_can_trim,
    .trim_prepare = sharing_trim_prepare,
    .trim_apply = sharing_trim_apply,
    .trim_discard = sharing_trim_discard,
    .n_spans = sharing_n_spans,
    .spans = sharing_spans,
    .dtype = sharing_dtype,
    .body_bytes = no_bytes,
    .save_body = sharing_save_body,
    .load_body = sharing_load_body,
    .step_begin = sharing_step_begin,
    .step_tile = sharing_step_tile,
    .step_commit = sharing_step_end,
    .step_abort = sharing_step_end,
    .attend_plan = sharing_plan,
    .attend_item = sharing_item,
    .attend_merge = sharing_merge,
};
