/* Planning and running attention; the terms are those of attend.h.
 *
 * Short spans (decode rows, verify windows) are cut into items of (KV head, segment); each leaves a state (m, l, o)
 * per query in the step scratch, and one merge per KV head joins the segments in order. A row of one segment needs no
 * merge. Long spans (prefill), and spans whose tokens select their keys, are cut into items that walk their segments
 * in order and merge as they go. Either way a query's numbers come from the same calls in the same order: same bits.
 *
 * The plan lives in the pool's step scratch, the parts on lines of 64 bytes:
 *
 *     struct plan | struct plan_span [n_spans] | row data of each span | m | l | o [d_v] of all partial states
 *
 * A worker's scratch holds one job's struct sn_attend_work; a donor's row data stands before it in worker 0's. */
#include <assert.h>
#include <math.h>

#include "cache/attend_job.h"

enum {
    SHORT_QUERIES = 16, /* queries of one KV head up to which a span is cut by segments */
    TILE_QUERIES = 96,  /* queries of one KV head in an item of a long span */
    LINE = 64
};

struct sn_attend_source sn_attend_source_of(const struct sennit_cache *cache, uint32_t row)
{
    const struct sn_attend_ops *ops = cache->ops->attend;
    if (ops->route)
        return ops->route(cache, row);
    return (struct sn_attend_source){.ops = ops, .cache = cache, .row = &cache->rows[row]};
}

/* ---- the plan ------------------------------------------------------------------------------------------------- */

struct plan_span {
    uint32_t first_item, first_merge;
    uint32_t n_tiles; /* 0: cut by segments */
    struct sn_attend_range range;
    size_t row_data;      /* from plan.row_data */
    size_t first_partial; /* in plan.m, l and o; [kv head][segment][query] */
};

struct plan {
    uint32_t n_items, n_merges;
    uint32_t group, tile_tokens; /* query heads per KV head; tokens in an item of a long span */
    size_t row_bytes, n_partials;
    struct plan_span *spans;
    uint8_t *row_data;
    float *m, *l, *o;
};

static struct plan_span plan_span(const struct sennit_cache *cache, const struct sennit_span *span, struct plan *plan)
{
    const struct sn_attend_shape *shape = &cache->shape;
    uint64_t end = span->pos + span->n_tokens, n_queries = (uint64_t)span->n_tokens * plan->group;
    struct sn_attend_source src = sn_attend_source_of(cache, span->row);
    struct plan_span s = {.first_item = plan->n_items,
                          .first_merge = plan->n_merges,
                          .range = sn_attend_range_of(sn_attend_window_start(shape, span->pos), shape->n_kept, end),
                          .row_data = plan->row_bytes,
                          .first_partial = plan->n_partials};
    if (src.ops->row_bytes)
        plan->row_bytes += sn_round_up(src.ops->row_bytes(&src, end), SN_ATTEND_LINE);
    if (shape->max_selected > 0) {
        s.n_tiles = span->n_tokens;
        plan->n_items += s.n_tiles;
    } else if (n_queries <= SHORT_QUERIES || span->n_tokens == 1) {
        plan->n_items += shape->n_kv_heads * s.range.n;
        if (s.range.n > 1) {
            plan->n_merges += shape->n_kv_heads;
            plan->n_partials += shape->n_kv_heads * s.range.n * n_queries;
        }
    } else {
        s.n_tiles = (uint32_t)sn_div_up(span->n_tokens, plan->tile_tokens);
        plan->n_items += shape->n_kv_heads * s.n_tiles;
    }
    return s;
}

static struct plan plan_sizes(const struct sennit_cache *cache)
{
    struct plan plan = {.group = cache->step.n_heads / cache->shape.n_kv_heads};
    plan.tile_tokens = plan.group < TILE_QUERIES && !cache->shape.max_selected ? TILE_QUERIES / plan.group : 1;
    for (uint32_t i = 0; i < cache->step.n_spans; i++)
        plan_span(cache, &cache->step.spans[i], &plan);
    return plan;
}

/* Places the plan's arrays after its head, or only adds up their sizes when base is NULL. */
static size_t plan_place(struct plan *plan, const struct sennit_cache *cache, uint8_t *base)
{
    size_t at = 0, f = sizeof(float);
    sn_attend_take(base, &at, sizeof *plan);
    plan->spans = sn_attend_take(base, &at, cache->step.n_spans * sizeof *plan->spans);
    plan->row_data = sn_attend_take(base, &at, plan->row_bytes);
    plan->m = sn_attend_take(base, &at, plan->n_partials * f);
    plan->l = sn_attend_take(base, &at, plan->n_partials * f);
    plan->o = sn_attend_take(base, &at, plan->n_partials * f * cache->shape.d_v);
    return at;
}

sennit_status sn_attend_reserve(struct sennit_cache *cache, struct sennit_error *err)
{
    struct plan plan = plan_sizes(cache);
    size_t most = 0;
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        const struct sennit_span *span = &cache->step.spans[i];
        struct sn_attend_source src = sn_attend_source_of(cache, span->row);
        struct sn_attend_work w;
        size_t n = sn_max_size(sn_min_size(span->n_tokens, plan.tile_tokens) * plan.group, SHORT_QUERIES);
        most = sn_max_size(most, sn_attend_place(&cache->shape, &src, n, span->pos + span->n_tokens, NULL, &w));
    }
    SN_TRY(sn_cache_pool_reserve_workers(cache->pool, most, err));
    return sn_cache_pool_reserve_step(cache->pool, plan_place(&plan, cache, NULL), err);
}

void sn_attend_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    struct plan sizes = plan_sizes(cache), *plan = cache->pool->step.data;
    plan_place(&sizes, cache, cache->pool->step.data);
    *plan = sizes;
    plan->n_items = plan->n_merges = 0;
    plan->row_bytes = plan->n_partials = 0;
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        const struct sennit_span *span = &cache->step.spans[i];
        struct sn_attend_source src = sn_attend_source_of(cache, span->row);
        struct plan_span s = plan_span(cache, span, plan);
        if (src.ops->row_fill)
            src.ops->row_fill(&src, span->pos + span->n_tokens, plan->row_data + s.row_data);
        plan->spans[i] = s;
    }
    *n_items = plan->n_items;
    *n_merges = plan->n_merges;
}

/* ---- items ---------------------------------------------------------------------------------------------------- */

static uint32_t find_span(const struct plan *plan, uint32_t n_spans, uint32_t index, bool merge)
{
    uint32_t low = 0, high = n_spans - 1;
    while (low < high) { /* the last span that starts at or before index */
        uint32_t mid = low + (high - low + 1) / 2;
        uint32_t first = merge ? plan->spans[mid].first_merge : plan->spans[mid].first_item;
        if (first <= index)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

/* Tokens `token` .. of span i: their queries into work.q. */
static void open_job(struct sn_attend_job *job, const struct sennit_cache *cache, const struct plan *plan, uint32_t i,
                     uint32_t kv_head, uint32_t token, uint32_t n_tokens, uint32_t worker)
{
    const struct sennit_attend_inputs *in = &cache->step.in;
    const struct sennit_span *span = &cache->step.spans[i];
    *job = (struct sn_attend_job){.src = sn_attend_source_of(cache, span->row),
                                  .pool = cache->pool,
                                  .shape = &cache->shape,
                                  .row_data = plan->row_data + plan->spans[i].row_data,
                                  .kv_head = kv_head,
                                  .group = plan->group,
                                  .worker = worker,
                                  .n_q = n_tokens * plan->group,
                                  .token = span->first_token + token,
                                  .pos = span->pos + token,
                                  .n_keys = span->pos + token + n_tokens,
                                  .d_k = cache->shape.d_k,
                                  .d_v = cache->shape.d_v,
                                  .scale = in->scale,
                                  .soft_cap = in->soft_cap,
                                  .in = in};
    sn_attend_place(&cache->shape, &job->src, job->n_q, job->n_keys, cache->pool->worker[worker].data, &job->work);
    for (uint32_t t = 0; t < n_tokens; t++) {
        const float *q = in->query + (size_t)(job->token + t) * in->query_stride;
        for (uint32_t j = 0; j < plan->group; j++)
            sn_attend_scale(job, (size_t)t * plan->group + j, q + (size_t)(kv_head * plan->group + j) * job->d_k);
    }
    if (job->src.ops->prepare)
        job->src.ops->prepare(job);
}

/* Query i of the tokens from flat index `token` on: its output. */
static void close_query(const struct sennit_cache *cache, const struct sn_attend_source *src, uint32_t group,
                        uint32_t kv_head, uint32_t token, size_t i, uint32_t worker, float m, float l, float *o)
{
    const struct sennit_attend_inputs *in = &cache->step.in;
    size_t head = kv_head * group + i % group, t = token + i / group, d_v = cache->shape.d_v;
    sn_attend_finish(cache->pool, src, worker, in->sinks ? in->sinks + head : NULL, m, l, o, d_v,
                     in->out + t * in->out_stride + head * d_v);
}

static void close_job(const struct sennit_cache *cache, const struct sn_attend_job *job)
{
    const struct sn_attend_work *w = &job->work;
    for (size_t i = 0; i < job->n_q; i++)
        close_query(cache, &job->src, job->group, job->kv_head, job->token, i, job->worker, w->m[i], w->l[i],
                    w->o + i * job->d_v);
}

static void segment_item(const struct sennit_cache *cache, const struct plan *plan, uint32_t i, uint32_t kv_head,
                         uint32_t segment, uint32_t worker)
{
    const struct plan_span *p = &plan->spans[i];
    struct sn_attend_job job;
    struct sn_attend_segment s;
    open_job(&job, cache, plan, i, kv_head, 0, cache->step.spans[i].n_tokens, worker);
    bool seen = sn_attend_look(&job, sn_attend_segment_at(&p->range, segment), &s);
    size_t at = p->first_partial + ((size_t)kv_head * p->range.n + segment) * job.n_q;
    bool alone = p->range.n == 1;
    float *m = alone ? job.work.m : plan->m + at, *l = alone ? job.work.l : plan->l + at;
    if (seen)
        sn_attend_run(&job, &s, m, l, alone ? job.work.o : plan->o + at * job.d_v);
    else
        sn_attend_clear(job.n_q, m, l);
    if (alone)
        close_job(cache, &job);
}

static void tile_item(const struct sennit_cache *cache, const struct plan *plan, uint32_t i, uint32_t kv_head,
                      uint32_t tile, uint32_t worker)
{
    const struct sn_attend_shape *shape = &cache->shape;
    struct sn_attend_job job;
    uint32_t token = tile * plan->tile_tokens;
    uint32_t n_tokens = (uint32_t)sn_min_size(plan->tile_tokens, cache->step.spans[i].n_tokens - token);
    open_job(&job, cache, plan, i, kv_head, token, n_tokens, worker);
    struct sn_attend_range range =
        sn_attend_range_of(sn_attend_window_start(shape, job.pos), shape->n_kept, job.n_keys);
    sn_attend_walk(&job, &range);
    close_job(cache, &job);
}

/* One query token with the keys that it selects, all KV heads. */
static void select_item(const struct sennit_cache *cache, const struct plan *plan, uint32_t i, uint32_t token,
                        uint32_t worker)
{
    uint32_t n = 0;
    for (uint32_t kv_head = 0; kv_head < cache->shape.n_kv_heads; kv_head++) {
        struct sn_attend_job job;
        open_job(&job, cache, plan, i, kv_head, token, 1, worker);
        if (kv_head == 0)
            n = job.src.ops->select(&job, job.work.list);
        assert(n >= 1 && n <= cache->shape.max_selected);
        job.list = job.work.list;
        job.n_keys = n;
        struct sn_attend_range range = sn_attend_range_of(0, 0, n);
        sn_attend_walk(&job, &range);
        close_job(cache, &job);
    }
}

void sn_attend_item(struct sennit_cache *cache, uint32_t item, uint32_t worker)
{
    const struct plan *plan = cache->pool->step.data;
    assert(item < plan->n_items);
    uint32_t i = find_span(plan, cache->step.n_spans, item, false), n_kv = cache->shape.n_kv_heads;
    const struct plan_span *s = &plan->spans[i];
    item -= s->first_item;
    if (cache->shape.max_selected > 0)
        select_item(cache, plan, i, s->n_tiles - 1 - item, worker);
    else if (s->n_tiles == 0)
        segment_item(cache, plan, i, item / s->range.n, item % s->range.n, worker);
    else /* the last tiles see the most keys: first */
        tile_item(cache, plan, i, item % n_kv, s->n_tiles - 1 - item / n_kv, worker);
}

void sn_attend_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker)
{
    const struct plan *plan = cache->pool->step.data;
    assert(merge < plan->n_merges);
    uint32_t i = find_span(plan, cache->step.n_spans, merge, true);
    const struct plan_span *s = &plan->spans[i];
    const struct sennit_span *span = &cache->step.spans[i];
    struct sn_attend_source src = sn_attend_source_of(cache, span->row);
    uint32_t kv_head = merge - s->first_merge;
    size_t n_q = (size_t)span->n_tokens * plan->group, d_v = cache->shape.d_v;
    size_t first = s->first_partial + (size_t)kv_head * s->range.n * n_q;
    for (size_t q = 0; q < n_q; q++) {
        float *m = plan->m + first + q, *l = plan->l + first + q, *o = plan->o + (first + q) * d_v;
        for (size_t k = 1; k < s->range.n; k++) {
            size_t at = first + k * n_q + q;
            SN_CALL(cache->pool->kernels, &cache->pool->calls[worker], attn_merge, m, l, o, plan->m[at], plan->l[at],
                    plan->o + at * d_v, d_v);
        }
        close_query(cache, &src, plan->group, kv_head, span->first_token, q, worker, *m, *l, o);
    }
}

/* ---- donors --------------------------------------------------------------------------------------------------- */

/* Queries job->token .. + n - 1 of one KV head. */
static void donor_tile(struct sn_attend_job *job, uint32_t n)
{
    const struct sn_donor_args *args = job->donor;
    const struct sn_attend_work *w = &job->work;
    job->n_q = n * job->group;
    for (size_t i = 0; i < job->n_q; i++) {
        size_t head = job->kv_head * job->group + i % job->group, t = job->token + i / job->group;
        sn_attend_scale(job, i, args->q + (head * args->n_q + t) * job->d_k);
    }
    if (job->src.ops->prepare)
        job->src.ops->prepare(job);
    struct sn_attend_range range = sn_attend_range_of(job->start, 0, job->n_keys);
    if (job->gap_end > job->gap)
        range = sn_attend_range_of(job->gap_end, job->gap, job->n_keys);
    sn_attend_walk(job, &range);
    for (size_t i = 0; i < job->n_q; i++) {
        size_t head = job->kv_head * job->group + i % job->group, t = job->token + i / job->group;
        float *out = args->out + (head * args->n_q + t) * job->d_v;
        if (w->m[i] == -INFINITY && w->l[i] == 0)
            memset(out, 0, job->d_v * sizeof *out);
        else
            sn_attend_finish(job->pool, &job->src, 0, NULL, w->m[i], w->l[i], w->o + i * job->d_v, job->d_v, out);
    }
}

sennit_status sn_attend_donor(struct sennit_cache *cache, uint32_t row, const struct sn_donor_args *args,
                              struct sennit_error *err)
{
    const struct sn_attend_shape *shape = &cache->shape;
    struct sn_attend_job job = {.src = sn_attend_source_of(cache, row),
                                .pool = cache->pool,
                                .shape = shape,
                                .group = args->n_heads / shape->n_kv_heads,
                                .n_keys = cache->rows[row].n_tokens,
                                .start = cache->ops->first_pos ? cache->ops->first_pos(cache, row) : 0,
                                .d_k = shape->d_k,
                                .d_v = shape->d_v,
                                .scale = args->scale,
                                .donor = args};
    const struct sn_attend_ops *ops = job.src.ops;
    if (cache->ops->gap)
        cache->ops->gap(cache, row, &job.gap, &job.gap_end);
    uint32_t tile = job.group < TILE_QUERIES ? TILE_QUERIES / job.group : 1;
    size_t n = (size_t)tile * job.group;
    size_t row_bytes = ops->row_bytes ? sn_round_up(ops->row_bytes(&job.src, job.n_keys), SN_ATTEND_LINE) : 0;
    size_t n_bytes = sn_attend_place(shape, &job.src, n, job.n_keys, NULL, &job.work);
    SN_TRY(sn_cache_pool_reserve_workers(cache->pool, row_bytes + n_bytes, err));
    uint8_t *scratch = cache->pool->worker[0].data;
    job.row_data = scratch;
    if (ops->row_fill)
        ops->row_fill(&job.src, job.n_keys, scratch);
    sn_attend_place(shape, &job.src, n, job.n_keys, scratch + row_bytes, &job.work);
    for (job.kv_head = 0; job.kv_head < shape->n_kv_heads; job.kv_head++)
        for (job.token = 0; job.token < args->n_q; job.token += tile)
            donor_tile(&job, (uint32_t)sn_min_size(tile, args->n_q - job.token));
    return SENNIT_OK;
}
