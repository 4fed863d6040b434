/* The step: checks of append_begin, then forwarding. Tiles, items and merges set the floating-point
 * environment of docs/numerics.md on whatever thread calls them. */
#include <assert.h>

#include "cache/family.h"

static sennit_status check_span(struct sennit_cache *cache, const struct sennit_span *span, uint32_t i,
                                struct sennit_error *err)
{
    SN_TRY(sn_cache_check_row(cache, span->row, err));
    const struct sn_row *row = &cache->rows[span->row];
    if (row->marked)
        return sn_fail(err, SENNIT_INVALID, "append_begin: row %u has two spans", span->row);
    if (span->n_tokens == 0)
        return sn_fail(err, SENNIT_INVALID, "append_begin: span %u has no tokens", i);
    if (span->n_tokens - 1 > UINT32_MAX - span->first_token)
        return sn_fail(err, SENNIT_INVALID, "append_begin: span %u: first_token %u + %u tokens overflows", i,
                       span->first_token, span->n_tokens);
    if (span->pos != row->n_tokens)
        return sn_fail(err, SENNIT_INVALID, "append_begin: span %u starts at %llu, row %u stands at %llu", i,
                       (unsigned long long)span->pos, span->row, (unsigned long long)row->n_tokens);
    uint64_t max = cache->config.max_tokens;
    if (span->n_tokens > max - row->n_tokens)
        return sn_fail(err, SENNIT_RANGE, "append_begin: row %u has %llu tokens; %u more pass max_tokens %llu",
                       span->row, (unsigned long long)row->n_tokens, span->n_tokens, (unsigned long long)max);
    if (cache->round_open && span->n_tokens > cache->config.round_depth - row->n_window)
        return sn_fail(err, SENNIT_RANGE, "append_begin: row %u: %u tokens pass the round depth %u (window %llu)",
                       span->row, span->n_tokens, cache->config.round_depth, (unsigned long long)row->n_window);
    return SENNIT_OK;
}

static sennit_status check_spans(struct sennit_cache *cache, const struct sennit_span *spans, uint32_t n_spans,
                                 struct sennit_error *err)
{
    sennit_status status = SENNIT_OK;
    for (uint32_t i = 0; i < n_spans && status == SENNIT_OK; i++) {
        status = check_span(cache, &spans[i], i, err);
        if (status == SENNIT_OK)
            cache->rows[spans[i].row].marked = true;
    }
    for (uint32_t i = 0; i < cache->n_rows; i++)
        cache->rows[i].marked = false;
    return status;
}

uint32_t sn_cache_longest_span(const struct sennit_cache *cache)
{
    const struct sennit_cache_config *config = &cache->config;
    return config->round_depth > config->max_span ? config->round_depth : config->max_span;
}

sennit_status sn_cache_check_bounds(const struct sennit_cache *cache, struct sennit_error *err)
{
    uint32_t most = sn_cache_longest_span(cache);
    for (uint32_t i = 0; i < cache->step.n_spans; i++)
        if (cache->step.spans[i].n_tokens > most)
            return sn_fail(err, SENNIT_RANGE,
                           "append_begin: span %u has %u tokens; this cache was created for spans of up to %u", i,
                           cache->step.spans[i].n_tokens, most);
    return SENNIT_OK;
}

static sennit_status keep_spans(struct sennit_cache *cache, const struct sennit_span *spans, uint32_t n_spans,
                                struct sennit_error *err)
{
    struct sn_cache_step *step = &cache->step;
    if (n_spans > step->cap_spans) {
        struct sennit_span *fresh = sn_alloc(cache->pool->heap, SN_USE_MISC, n_spans * sizeof *fresh);
        if (!fresh)
            return sn_fail(err, SENNIT_NOMEM, "no memory for %u spans", n_spans);
        sn_free(cache->pool->heap, SN_USE_MISC, step->spans, step->cap_spans * sizeof *fresh);
        step->spans = fresh;
        step->cap_spans = n_spans;
    }
    memcpy(step->spans, spans, n_spans * sizeof *spans);
    step->n_spans = n_spans;
    return SENNIT_OK;
}

sennit_status sn_cache_begin(struct sennit_cache *cache, const struct sennit_span *spans, uint32_t n_spans,
                             uint32_t n_heads, const uint32_t *part_heads, struct sennit_error *err)
{
    if (cache->step.open)
        return sn_fail(err, SENNIT_STATE, "append_begin: a step is open; commit or abort it first");
    if (n_spans == 0)
        return sn_fail(err, SENNIT_INVALID, "append_begin: a step needs at least one span");
    if (n_heads == 0 || n_heads % cache->shape.n_kv_heads != 0)
        return sn_fail(err, SENNIT_INVALID, "append_begin: %u query heads are no multiple of %u KV heads", n_heads,
                       cache->shape.n_kv_heads);
    SN_TRY(check_spans(cache, spans, n_spans, err));
    SN_TRY(keep_spans(cache, spans, n_spans, err));
    cache->step.n_heads = n_heads;
    cache->step.part_heads = part_heads;
    sennit_status status = cache->ops->step_begin(cache, err);
    cache->step.part_heads = NULL;
    if (status != SENNIT_OK)
        return status;
    cache->step.open = true;
    cache->step.planned = false;
    sn_lineage_open(cache->lineage, cache);
    return SENNIT_OK;
}

static sennit_status begin(struct sennit_cache *cache, const struct sennit_span *spans, uint32_t n_spans,
                           uint32_t n_heads, const uint32_t *part_heads, struct sennit_error *err)
{
    SN_TRY(sn_cache_begin(cache, spans, n_spans, n_heads, part_heads, err));
    if (cache->ops->step_begun)
        cache->ops->step_begun(cache);
    return SENNIT_OK;
}

sennit_status sennit_cache_append_begin(struct sennit_cache *cache, const struct sennit_span *spans, uint32_t n_spans,
                                        uint32_t n_heads, struct sennit_error *err)
{
    if (!cache || (!spans && n_spans))
        return sn_fail(err, SENNIT_INVALID, "append_begin: the cache or the spans are NULL");
    return begin(cache, spans, n_spans, n_heads, NULL, err);
}

sennit_status sennit_cache_append_begin_parts(struct sennit_cache *cache, const struct sennit_span *spans,
                                              uint32_t n_spans, const uint32_t *n_heads, uint32_t n_parts,
                                              struct sennit_error *err)
{
    if (!cache || (!spans && n_spans) || !n_heads)
        return sn_fail(err, SENNIT_INVALID, "append_begin_parts: the cache, the spans or n_heads are NULL");
    uint32_t own = sennit_cache_composed(cache, NULL);
    if (n_parts != (own ? own : 1))
        return sn_fail(err, SENNIT_INVALID, "append_begin_parts: query heads of %u parts for a cache of %u", n_parts,
                       own ? own : 1);
    return begin(cache, spans, n_spans, n_heads[0], own ? n_heads : NULL, err);
}

void sennit_cache_append_tile(struct sennit_cache *cache, uint32_t span, uint32_t token, uint32_t n_tokens,
                              sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                              size_t token_stride, uint32_t worker)
{
    assert(cache->step.open && span < cache->step.n_spans && worker < cache->pool->n_workers);
    assert(token + n_tokens <= cache->step.spans[span].n_tokens);
    struct sn_fpenv env = sn_fp_enter();
    cache->ops->step_tile(cache, span, token, n_tokens, role, first_head, n_heads, data, token_stride, worker);
    sn_fp_leave(env);
}

static void close_step(struct sennit_cache *cache)
{
    cache->step.open = false;
    cache->step.planned = false;
    if (cache->pool->planner == cache)
        cache->pool->planner = NULL;
    sn_lineage_close(cache->lineage, cache);
}

void sennit_cache_append_commit(struct sennit_cache *cache)
{
    if (!cache->step.open)
        return;
    cache->ops->step_commit(cache);
    for (uint32_t i = 0; i < cache->n_rows; i++)
        cache->rows[i].n_last = 0;
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        struct sn_row *row = &cache->rows[cache->step.spans[i].row];
        row->n_tokens += cache->step.spans[i].n_tokens;
        row->n_last = cache->step.spans[i].n_tokens;
        row->n_window += cache->round_open ? cache->step.spans[i].n_tokens : 0;
    }
    close_step(cache);
}

void sennit_cache_append_abort(struct sennit_cache *cache)
{
    if (!cache->step.open)
        return;
    cache->ops->step_abort(cache);
    close_step(cache);
}

void sennit_cache_attend_plan(struct sennit_cache *cache, const struct sennit_attend_inputs *inputs,
                              uint32_t *n_items, uint32_t *n_merges)
{
    assert(cache->step.open && (inputs->part == 0 || inputs->part < sennit_cache_composed(cache, NULL)));
    cache->step.in = *inputs;
    cache->step.planned = true;
    cache->pool->planner = cache;
    cache->ops->attend_plan(cache, n_items, n_merges);
}

void sennit_cache_attend_item(struct sennit_cache *cache, uint32_t item, uint32_t worker)
{
    assert(cache->step.planned && worker < cache->pool->n_workers);
    struct sn_fpenv env = sn_fp_enter();
    cache->ops->attend_item(cache, item, worker);
    sn_fp_leave(env);
}

void sennit_cache_attend_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker)
{
    assert(cache->step.planned && worker < cache->pool->n_workers);
    struct sn_fpenv env = sn_fp_enter();
    cache->ops->attend_merge(cache, merge, worker);
    sn_fp_leave(env);
}
