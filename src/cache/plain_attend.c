/* Attention over the pages of family "plain".
 *
 * Short spans (decode rows, verify windows) are cut into items of (KV head, segment of 256 keys);
 * each leaves a state (m, l, o) per query in the step scratch, and one merge per KV head joins the
 * segments in order. A row of one segment needs no merge. Long spans (prefill) are cut into items
 * of (query tile, KV head) that walk the segments in order and merge as they go. Either way a
 * query's numbers come from the same kernel calls in the same order: same bits.
 *
 * The plan lives in the pool's step scratch:
 *
 *     struct plan | struct plan_span [n_spans] | page pointers of all spans | m | l | o [d_v] of
 * all partial states
 */
#include <assert.h>
#include <math.h>

#include "cache/plain.h"
#include "kernel/math.h"

enum {
    SHORT_QUERIES = 16, /* queries of one KV head up to which a span is cut by segments */
    TILE_QUERIES = 96,  /* queries of one KV head in an item of a long span */
    LINE = 64
};

struct plan_span {
    uint32_t first_item, first_merge;
    uint32_t n_segments;
    uint32_t n_tiles; /* 0: cut by segments */
    uint64_t n_pages;
    size_t first_page;    /* in plan.pages */
    size_t first_partial; /* in plan.m, l and o; [kv head][segment][query] */
};

struct plan {
    uint32_t n_items, n_merges;
    uint32_t group, tile_tokens; /* query heads per KV head; tokens in an item of a long span */
    size_t n_pages, n_partials;
    struct plan_span *spans;
    struct sn_page **pages;
    float *m, *l, *o;
};

static uint64_t segments_of(uint64_t n_keys)
{
    return n_keys / SN_SEGMENT_KEYS + (n_keys % SN_SEGMENT_KEYS != 0);
}

static struct plan_span plan_span(const struct sennit_cache *cache, const struct sennit_span *span,
                                  struct plan *plan)
{
    uint64_t end = span->pos + span->n_tokens;
    uint32_t n_kv = cache->config.n_kv_heads;
    uint64_t n_queries = (uint64_t)span->n_tokens * plan->group;
    struct plan_span s = {.first_item = plan->n_items,
                          .first_merge = plan->n_merges,
                          .n_segments = (uint32_t)segments_of(end),
                          .n_pages = sn_pages_of(end),
                          .first_page = plan->n_pages,
                          .first_partial = plan->n_partials};
    plan->n_pages += s.n_pages;
    if (n_queries <= SHORT_QUERIES || span->n_tokens == 1) {
        plan->n_items += n_kv * s.n_segments;
        if (s.n_segments > 1) {
            plan->n_merges += n_kv;
            plan->n_partials += n_kv * s.n_segments * n_queries;
        }
    } else {
        s.n_tiles = (uint32_t)sn_div_up(span->n_tokens, plan->tile_tokens);
        plan->n_items += n_kv * s.n_tiles;
    }
    return s;
}

static struct plan plan_sizes(const struct sennit_cache *cache)
{
    struct plan plan = {.group = cache->step.n_heads / cache->config.n_kv_heads};
    plan.tile_tokens = plan.group < TILE_QUERIES ? TILE_QUERIES / plan.group : 1;
    for (uint32_t i = 0; i < cache->step.n_spans; i++)
        plan_span(cache, &cache->step.spans[i], &plan);
    return plan;
}

/* Places the plan's arrays after its head, or only adds up their sizes when base is NULL. */
static size_t plan_place(struct plan *plan, uint32_t n_spans, size_t d_v, uint8_t *base)
{
    size_t at = sn_round_up(sizeof *plan, LINE),
           sizes[5] = {
               n_spans * sizeof *plan->spans,          plan->n_pages * sizeof *plan->pages,
               plan->n_partials * sizeof(float),       plan->n_partials * sizeof(float),
               plan->n_partials * sizeof(float) * d_v,
           };
    void *part[5];
    for (size_t i = 0; i < SN_ARRAY_LEN(sizes); i++) {
        part[i] = base ? base + at : NULL;
        at += sn_round_up(sizes[i], LINE);
    }
    plan->spans = part[0];
    plan->pages = part[1];
    plan->m = part[2];
    plan->l = part[3];
    plan->o = part[4];
    return at;
}

/* ---- a worker's scratch
 * -------------------------------------------------------------------------------------- */

/* For n queries: scaled queries, visibility, the running state, a segment's state, the kernel's
 * own. */
struct work {
    float *q;          /* [n][d_k] */
    uint64_t *visible; /* [n][chunks of the segment] */
    float *m, *l, *o;  /* [n], [n], [n][d_v] */
    float *m2, *l2, *o2;
    void *kernel;
};

static size_t work_place(const struct sennit_cache *cache, size_t n, uint8_t *base, struct work *w)
{
    size_t d_k = cache->config.d_k, d_v = cache->config.d_v, at = 0,
           sizes[9] = {
               n * d_k * sizeof(float),
               n * SN_SEGMENT_CHUNKS * sizeof(uint64_t),
               n * sizeof(float),
               n * sizeof(float),
               n * d_v * sizeof(float),
               n * sizeof(float),
               n * sizeof(float),
               n * d_v * sizeof(float),
               sn_attn_scratch_bytes(n, d_k, d_v),
           };
    void *part[9];
    for (size_t i = 0; i < SN_ARRAY_LEN(sizes); i++) {
        part[i] = base ? base + at : NULL;
        at += sn_round_up(sizes[i], LINE);
    }
    *w = (struct work){.q = part[0],
                       .visible = part[1],
                       .m = part[2],
                       .l = part[3],
                       .o = part[4],
                       .m2 = part[5],
                       .l2 = part[6],
                       .o2 = part[7],
                       .kernel = part[8]};
    return at;
}

sennit_status sn_plain_reserve(struct sennit_cache *cache, struct sennit_error *err)
{
    struct plan plan = plan_sizes(cache);
    size_t most = 0;
    for (uint32_t i = 0; i < cache->step.n_spans; i++)
        most = sn_max_size(most, sn_min_size(cache->step.spans[i].n_tokens, plan.tile_tokens));
    most = sn_max_size(most * plan.group, SHORT_QUERIES);
    struct work w;
    SN_TRY(sn_cache_pool_reserve_workers(cache->pool, work_place(cache, most, NULL, &w), err));
    return sn_cache_pool_reserve_step(
        cache->pool, plan_place(&plan, cache->step.n_spans, cache->config.d_v, NULL), err);
}

void sn_plain_attend_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    struct plan sizes = plan_sizes(cache), *plan = cache->pool->step.data;
    plan_place(&sizes, cache->step.n_spans, cache->config.d_v, cache->pool->step.data);
    *plan = sizes;
    plan->n_items = plan->n_merges = 0;
    plan->n_pages = plan->n_partials = 0;
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        const struct sennit_span *span = &cache->step.spans[i];
        struct plan_span s = plan_span(cache, span, plan);
        sn_table_list(cache->rows[span->row].store, s.n_pages, plan->pages + s.first_page);
        plan->spans[i] = s;
    }
    *n_items = plan->n_items;
    *n_merges = plan->n_merges;
}

/* ---- segments -------------------------------------------------------------------------------- */

/* n_q queries of one KV head of one row, scaled and in work.q. */
struct job {
    const struct sn_plain *c;
    struct sn_page *const *pages;
    uint32_t kv_head, worker;
    size_t n_q;
    uint64_t n_keys; /* keys at or past this position are seen by none */
    float soft_cap;
    struct work work;
};

/* Runs one segment into (m, l, o). work.visible is set for `chunks_in(job, segment)` chunks per
 * query. */
static size_t chunks_in(const struct job *job, uint64_t segment)
{
    uint64_t left = job->n_keys - segment * SN_SEGMENT_KEYS;
    return (size_t)sn_min_size(SN_SEGMENT_CHUNKS, sn_div_up(left, SN_CHUNK_KEYS));
}

static void run_segment(const struct job *job, uint64_t segment, float *m, float *l, float *o)
{
    const struct sn_plain *c = job->c;
    const void *k[SN_SEGMENT_CHUNKS], *v[SN_SEGMENT_CHUNKS];
    size_t n_chunks = chunks_in(job, segment);
    for (size_t i = 0; i < n_chunks; i++) {
        const uint8_t *data = job->pages[segment * SN_SEGMENT_CHUNKS + i]->data;
        k[i] = data + job->kv_head * c->k_head_bytes;
        v[i] = data + c->v_offset + job->kv_head * c->v_head_bytes;
    }
    size_t d_k = c->base.config.d_k, d_v = c->base.config.d_v;
    struct sn_attn_args args = {.q = job->work.q,
                                .ldq = d_k,
                                .n_q = job->n_q,
                                .d_k = d_k,
                                .d_v = d_v,
                                .n_chunks = n_chunks,
                                .k_chunk = k,
                                .v_chunk = v,
                                .visible = job->work.visible,
                                .soft_cap = job->soft_cap,
                                .m = m,
                                .l = l,
                                .o = o,
                                .ldo = d_v,
                                .scratch = job->work.kernel};
    c->base.pool->calls[job->worker].n[c->attn_id]++;
    c->attn(&args);
}

/* The first n of 64 keys. */
static uint64_t low_bits(uint64_t n)
{
    return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/* Query i stands at position pos + i / group and sees itself and everything before. */
static void see_causal(const struct job *job, uint64_t segment, uint64_t pos, uint32_t group)
{
    size_t n_chunks = chunks_in(job, segment);
    for (size_t i = 0; i < job->n_q; i++) {
        uint64_t seen = pos + i / group + 1;
        for (size_t j = 0; j < n_chunks; j++) {
            uint64_t first = segment * SN_SEGMENT_KEYS + j * SN_CHUNK_KEYS;
            job->work.visible[i * n_chunks + j] = seen > first ? low_bits(seen - first) : 0;
        }
    }
}

/* Merges the segment state (m2, l2, o2) of every query into (m, l, o). */
static void merge_states(const struct job *job)
{
    const struct work *w = &job->work;
    size_t d_v = job->c->base.config.d_v;
    struct sennit_pool *pool = job->c->base.pool;
    for (size_t i = 0; i < job->n_q; i++)
        SN_CALL(pool->kernels, &pool->calls[job->worker], attn_merge, &w->m[i], &w->l[i],
                w->o + i * d_v, w->m2[i], w->l2[i], w->o2 + i * d_v, d_v);
}

/* The learned sink, then o / l. */
static void finish(const struct sennit_cache *cache, uint32_t worker, const float *sink, float m,
                   float l, float *o, float *out)
{
    size_t d_v = cache->config.d_v;
    if (sink) {
        float z = *sink, top = z > m ? z : m;
        float keep = sn_expf(m - top);
        l = fmaf(l, keep, sn_expf(z - top));
        for (size_t d = 0; d < d_v; d++)
            o[d] = o[d] * keep;
    }
    SN_CALL(cache->pool->kernels, &cache->pool->calls[worker], attn_finish, o, l, d_v, out);
}

static void scale_query(const float *q, size_t d_k, float scale, float *out)
{
    for (size_t d = 0; d < d_k; d++)
        out[d] = q[d] * scale;
}

/* ---- items of a step
 * ----------------------------------------------------------------------------------------- */

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

/* Queries of tokens `token` .. of the span into work.q, token by token, head by head. */
static void open_job(struct job *job, const struct sennit_cache *cache, const struct plan *plan,
                     const struct plan_span *s, const struct sennit_span *span, uint32_t kv_head,
                     uint32_t token, uint32_t n_tokens, uint32_t worker)
{
    const struct sennit_attend_inputs *in = &cache->step.in;
    size_t d_k = cache->config.d_k;
    *job = (struct job){.c = sn_plain_of(cache),
                        .pages = plan->pages + s->first_page,
                        .kv_head = kv_head,
                        .worker = worker,
                        .n_q = (size_t)n_tokens * plan->group,
                        .n_keys = span->pos + token + n_tokens,
                        .soft_cap = in->soft_cap};
    work_place(cache, job->n_q, cache->pool->worker[worker].data, &job->work);
    for (uint32_t t = 0; t < n_tokens; t++) {
        const float *q = in->query + (size_t)(span->first_token + token + t) * in->query_stride;
        for (uint32_t j = 0; j < plan->group; j++)
            scale_query(q + (size_t)(kv_head * plan->group + j) * d_k, d_k, in->scale,
                        job->work.q + ((size_t)t * plan->group + j) * d_k);
    }
}

static void close_query(const struct sennit_cache *cache, const struct plan *plan,
                        const struct sennit_span *span, uint32_t kv_head, uint32_t token, size_t i,
                        uint32_t worker, float m, float l, float *o)
{
    const struct sennit_attend_inputs *in = &cache->step.in;
    size_t head = kv_head * plan->group + i % plan->group,
           t = span->first_token + token + i / plan->group;
    finish(cache, worker, in->sinks ? in->sinks + head : NULL, m, l, o,
           in->out + t * in->out_stride + head * cache->config.d_v);
}

static void segment_item(const struct sennit_cache *cache, const struct plan *plan,
                         const struct plan_span *s, const struct sennit_span *span,
                         uint32_t kv_head, uint32_t segment, uint32_t worker)
{
    struct job job;
    size_t d_v = cache->config.d_v;
    open_job(&job, cache, plan, s, span, kv_head, 0, span->n_tokens, worker);
    see_causal(&job, segment, span->pos, plan->group);
    if (s->n_segments > 1) {
        size_t at = s->first_partial + ((size_t)kv_head * s->n_segments + segment) * job.n_q;
        run_segment(&job, segment, plan->m + at, plan->l + at, plan->o + at * d_v);
        return;
    }
    const struct work *w = &job.work;
    run_segment(&job, segment, w->m, w->l, w->o);
    for (size_t i = 0; i < job.n_q; i++)
        close_query(cache, plan, span, kv_head, 0, i, worker, w->m[i], w->l[i], w->o + i * d_v);
}

static void tile_item(const struct sennit_cache *cache, const struct plan *plan,
                      const struct plan_span *s, const struct sennit_span *span, uint32_t kv_head,
                      uint32_t tile, uint32_t worker)
{
    struct job job;
    size_t d_v = cache->config.d_v;
    uint32_t token = tile * plan->tile_tokens;
    uint32_t n_tokens = (uint32_t)sn_min_size(plan->tile_tokens, span->n_tokens - token);
    open_job(&job, cache, plan, s, span, kv_head, token, n_tokens, worker);
    const struct work *w = &job.work;
    uint64_t n_segments = segments_of(job.n_keys);
    for (uint64_t segment = 0; segment < n_segments; segment++) {
        see_causal(&job, segment, span->pos + token, plan->group);
        if (segment == 0) {
            run_segment(&job, segment, w->m, w->l, w->o);
            continue;
        }
        run_segment(&job, segment, w->m2, w->l2, w->o2);
        merge_states(&job);
    }
    for (size_t i = 0; i < job.n_q; i++)
        close_query(cache, plan, span, kv_head, token, i, worker, w->m[i], w->l[i], w->o + i * d_v);
}

void sn_plain_attend_item(struct sennit_cache *cache, uint32_t item, uint32_t worker)
{
    const struct plan *plan = cache->pool->step.data;
    assert(item < plan->n_items);
    uint32_t i = find_span(plan, cache->step.n_spans, item, false), n_kv = cache->config.n_kv_heads;
    const struct plan_span *s = &plan->spans[i];
    const struct sennit_span *span = &cache->step.spans[i];
    item -= s->first_item;
    if (s->n_tiles == 0)
        segment_item(cache, plan, s, span, item / s->n_segments, item % s->n_segments, worker);
    else /* the last tiles see the most keys: first */
        tile_item(cache, plan, s, span, item % n_kv, s->n_tiles - 1 - item / n_kv, worker);
}

void sn_plain_attend_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker)
{
    const struct plan *plan = cache->pool->step.data;
    assert(merge < plan->n_merges);
    uint32_t i = find_span(plan, cache->step.n_spans, merge, true);
    const struct plan_span *s = &plan->spans[i];
    const struct sennit_span *span = &cache->step.spans[i];
    uint32_t kv_head = merge - s->first_merge;
    size_t n_q = (size_t)span->n_tokens * plan->group, d_v = cache->config.d_v;
    size_t first = s->first_partial + (size_t)kv_head * s->n_segments * n_q;
    for (size_t q = 0; q < n_q; q++) {
        float *m = plan->m + first + q, *l = plan->l + first + q, *o = plan->o + (first + q) * d_v;
        for (size_t k = 1; k < s->n_segments; k++) {
            size_t at = first + k * n_q + q;
            SN_CALL(cache->pool->kernels, &cache->pool->calls[worker], attn_merge, m, l, o,
                    plan->m[at], plan->l[at], plan->o + at * d_v, d_v);
        }
        close_query(cache, plan, span, kv_head, 0, q, worker, *m, *l, o);
    }
}

/* ---- donors ---------------------------------------------------------------------------------- */

/* The bits of one chunk of a mask row; keys at or past n_keys are hidden whatever it says. */
static uint64_t mask_bits(const uint8_t *mask, uint64_t first, uint64_t n_keys)
{
    uint64_t n = n_keys > first ? n_keys - first : 0, bits = low_bits(n);
    for (uint64_t j = 0; mask && j < n && j < SN_CHUNK_KEYS; j++)
        if (!mask[first + j])
            bits &= ~(UINT64_C(1) << j);
    return bits;
}

static void see_mask(const struct job *job, uint64_t segment, const struct sn_donor_args *args,
                     uint32_t first_query, uint32_t group)
{
    size_t n_chunks = chunks_in(job, segment);
    for (size_t i = 0; i < job->n_q; i++) {
        const uint8_t *mask =
            args->mask ? args->mask + (first_query + i / group) * args->width : NULL;
        for (size_t j = 0; j < n_chunks; j++)
            job->work.visible[i * n_chunks + j] =
                i % group
                    ? job->work.visible[(i - 1) * n_chunks + j]
                    : mask_bits(mask, segment * SN_SEGMENT_KEYS + j * SN_CHUNK_KEYS, job->n_keys);
    }
}

static void donor_tile(struct job *job, const struct sn_donor_args *args, uint32_t first_query,
                       uint32_t n, uint32_t group)
{
    size_t d_k = job->c->base.config.d_k, d_v = job->c->base.config.d_v;
    const struct work *w = &job->work;
    job->n_q = (size_t)n * group;
    for (size_t i = 0; i < job->n_q; i++) {
        size_t head = job->kv_head * group + i % group, t = first_query + i / group;
        scale_query(args->q + (head * args->n_q + t) * d_k, d_k, args->scale, w->q + i * d_k);
        w->m[i] = -INFINITY;
        w->l[i] = 0;
    }
    uint64_t n_segments = segments_of(job->n_keys);
    for (uint64_t segment = 0; segment < n_segments; segment++) {
        see_mask(job, segment, args, first_query, group);
        run_segment(job, segment, w->m2, w->l2, w->o2);
        merge_states(job);
    }
    for (size_t i = 0; i < job->n_q; i++) {
        size_t head = job->kv_head * group + i % group, t = first_query + i / group;
        float *out = args->out + (head * args->n_q + t) * d_v;
        if (w->m[i] == -INFINITY && w->l[i] == 0)
            memset(out, 0, d_v * sizeof *out);
        else
            finish(&job->c->base, 0, NULL, w->m[i], w->l[i], w->o + i * d_v, out);
    }
}

sennit_status sn_plain_donor_attend(struct sennit_cache *cache, uint32_t row,
                                    const struct sn_donor_args *args, struct sennit_error *err)
{
    uint32_t group = args->n_heads / cache->config.n_kv_heads;
    uint32_t tile = group < TILE_QUERIES ? TILE_QUERIES / group : 1;
    uint64_t n_keys = cache->rows[row].n_tokens, n_pages = sn_pages_of(n_keys);
    size_t list_bytes = sn_round_up(n_pages * sizeof(struct sn_page *), LINE);
    struct job job = {.c = sn_plain_of(cache), .n_keys = n_keys};
    size_t work_bytes = work_place(cache, (size_t)tile * group, NULL, &job.work);
    SN_TRY(sn_cache_pool_reserve_workers(cache->pool, list_bytes + work_bytes, err));
    uint8_t *scratch = cache->pool->worker[0].data;
    struct sn_page **pages = (struct sn_page **)(void *)scratch;
    sn_table_list(cache->rows[row].store, n_pages, pages);
    work_place(cache, (size_t)tile * group, scratch + list_bytes, &job.work);
    job.pages = pages;
    for (job.kv_head = 0; job.kv_head < cache->config.n_kv_heads; job.kv_head++)
        for (uint32_t t = 0; t < args->n_q; t += tile)
            donor_tile(&job, args, t, (uint32_t)sn_min_size(tile, args->n_q - t), group);
    return SENNIT_OK;
}
