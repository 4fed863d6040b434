/* Family "naive": the oracle, kept for ever. One array per row, token after token, copied by every
 * operation; attention is one loop over keys in the order of docs/numerics.md, written without the
 * attention kernels. It shares nothing with family "plain" but the contract, and must give the same
 * bits. */
#include <assert.h>
#include <math.h>

#include "cache/kv.h"
#include "kernel/math.h"
#include "tensor/traits.h"

struct store {
    uint64_t n_tokens;           /* that there is room for */
    _Alignas(64) uint8_t data[]; /* [n_tokens]: K [heads][d_k], then V [heads][d_v] */
};

static size_t token_bytes(const struct sennit_cache *cache)
{
    const struct sennit_cache_config *c = &cache->config;
    return c->n_kv_heads * ((size_t)c->d_k + c->d_v) * sn_kv_element_bytes(c->k_type);
}

static uint64_t naive_storage_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    uint64_t bytes;
    if (tokens == 0)
        return 0;
    if (__builtin_mul_overflow(tokens, token_bytes(cache), &bytes) ||
        __builtin_add_overflow(bytes, sizeof(struct store), &bytes))
        return UINT64_MAX;
    return bytes;
}

/* Snapshots are copies that count for themselves; a round stands up to round_depth tokens past the
 * row's length. */
static uint64_t naive_reserve_bytes(const struct sennit_cache *cache)
{
    return cache->config.round_depth ? naive_storage_bytes(cache, cache->config.round_depth) : 0;
}

static uint64_t naive_bytes_per_token(const struct sennit_cache *cache)
{
    return token_bytes(cache);
}

static uint64_t naive_row_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    const struct store *s = row->store;
    return s ? naive_storage_bytes(cache, s->n_tokens) : 0;
}

static void naive_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    sn_kv_signature("naive", config, out, n_bytes);
}

enum { TAKES = SN_CONFIG_HEADS | SN_CONFIG_TYPES };

static sennit_status naive_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    return sn_kv_check(config, err);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Grows or shrinks a row's array to n tokens; false when memory is refused, with the row as it was.
 */
static bool resize(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens)
{
    struct store *old = row->store;
    size_t old_bytes = (size_t)naive_row_bytes(cache, row), new_bytes = (size_t)naive_storage_bytes(cache, n_tokens);
    if (n_tokens == 0) {
        sn_cache_pool_release(cache->pool, old, old_bytes);
        row->store = NULL;
        return true;
    }
    if (naive_storage_bytes(cache, n_tokens) > SIZE_MAX / 2)
        return false;
    struct store *fresh = sn_cache_pool_realloc(cache->pool, old, old_bytes, new_bytes);
    if (!fresh)
        return false;
    fresh->n_tokens = n_tokens;
    row->store = fresh;
    return true;
}

static sennit_status naive_row_copy(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                                    struct sennit_error *err)
{
    if (!resize(to, dst, src->n_tokens))
        return sn_fail(err, SENNIT_NOMEM, "no memory for a copy of %llu tokens", (unsigned long long)src->n_tokens);
    if (src->n_tokens > 0) {
        const struct store *from = src->store;
        memcpy(((struct store *)dst->store)->data, from->data, src->n_tokens * token_bytes(to));
    }
    return SENNIT_OK;
}

static void naive_row_drop(struct sennit_cache *cache, struct sn_row *row)
{
    resize(cache, row, 0);
}

static sennit_status naive_trim_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                        void **spare, struct sennit_error *err)
{
    (void)cache, (void)row, (void)n_tokens, (void)err;
    *spare = NULL;
    return SENNIT_OK;
}

/* A host that cannot shrink leaves the array as large as it was: the books say so. */
static void naive_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    (void)spare;
    resize(cache, row, n_tokens);
}

static void naive_trim_discard(struct sennit_cache *cache, void *spare)
{
    (void)cache, (void)spare;
}

static size_t naive_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    return cache->rows[row].n_tokens > 0;
}

static void naive_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    const struct sn_row *r = &cache->rows[row];
    if (r->n_tokens == 0)
        return;
    *out = (struct sennit_span_view){.name = "key_value",
                                     .type = cache->config.k_type,
                                     .row = row,
                                     .n_tokens = r->n_tokens,
                                     .data = ((const struct store *)r->store)->data,
                                     .n_bytes = r->n_tokens * token_bytes(cache)};
}

/* ---- streams --------------------------------------------------------------------------------- */

static uint64_t naive_body_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    uint64_t bytes;
    return __builtin_mul_overflow(tokens, token_bytes(cache), &bytes) ? UINT64_MAX : bytes;
}

static sennit_status naive_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                     struct sennit_stream *stream, struct sennit_error *err)
{
    if (row->n_tokens == 0)
        return SENNIT_OK;
    return sn_stream_write(stream, ((const struct store *)row->store)->data, row->n_tokens * token_bytes(cache), err);
}

static sennit_status naive_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                     struct sennit_error *err)
{
    size_t bytes = token_bytes(cache);
    for (uint64_t t = 0; t < row->n_tokens; t++) {
        sennit_status status = SENNIT_OK;
        if (!resize(cache, row, t + 1))
            status = sn_fail(err, SENNIT_NOMEM, "load: no memory for token %llu", (unsigned long long)t);
        if (status == SENNIT_OK)
            status = sn_stream_read(stream, ((struct store *)row->store)->data + t * bytes, bytes, err);
        if (status != SENNIT_OK) {
            resize(cache, row, 0);
            return status;
        }
    }
    return SENNIT_OK;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* A worker's: two states' o, and one key or value. */
static size_t scratch_floats(const struct sennit_cache *cache)
{
    return 2 * (size_t)cache->config.d_v + sn_max_size(cache->config.d_k, cache->config.d_v);
}

static void shrink_spans(struct sennit_cache *cache, uint32_t n_spans)
{
    for (uint32_t i = 0; i < n_spans; i++) {
        struct sn_row *row = &cache->rows[cache->step.spans[i].row];
        resize(cache, row, row->n_tokens);
    }
}

static sennit_status naive_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    SN_TRY(sn_cache_pool_reserve_workers(cache->pool, scratch_floats(cache) * sizeof(float), err));
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        const struct sennit_span *span = &cache->step.spans[i];
        if (resize(cache, &cache->rows[span->row], span->pos + span->n_tokens))
            continue;
        shrink_spans(cache, i);
        return sn_fail(err, SENNIT_NOMEM, "no memory for %u more tokens", span->n_tokens);
    }
    return SENNIT_OK;
}

static void naive_step_tile(struct sennit_cache *cache, uint32_t span_index, uint32_t token, uint32_t n_tokens,
                            sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                            size_t token_stride, uint32_t worker)
{
    (void)worker;
    const struct sennit_span *span = &cache->step.spans[span_index];
    const struct sennit_cache_config *config = &cache->config;
    struct store *store = cache->rows[span->row].store;
    size_t d = role == SENNIT_ROLE_KEY ? config->d_k : config->d_v;
    size_t start = role == SENNIT_ROLE_KEY ? 0 : (size_t)config->n_kv_heads * config->d_k;
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint8_t *at = store->data + (span->pos + token + t) * token_bytes(cache);
        for (size_t i = 0; i < n_heads * d; i++) {
            float x = data[t * token_stride + i];
            size_t element = start + first_head * d + i;
            if (config->k_type == SENNIT_F32)
                ((float *)(void *)at)[element] = x;
            else
                ((uint16_t *)(void *)at)[element] =
                    config->k_type == SENNIT_F16 ? sn_f32_to_f16_sat(x) : sn_f32_to_bf16(x);
        }
    }
}

static void naive_step_commit(struct sennit_cache *cache)
{
    (void)cache; /* the arrays have grown already */
}

static void naive_step_abort(struct sennit_cache *cache)
{
    shrink_spans(cache, cache->step.n_spans);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* One query: which keys, in what row, and how. */
struct query {
    const struct sennit_cache *cache;
    const struct store *store;
    const float *q;
    const uint8_t *mask; /* NULL or one byte per key */
    const float *sink;   /* NULL or one logit */
    uint64_t n_keys;     /* keys 0 .. n_keys - 1 at most */
    uint32_t kv_head;
    float scale, soft_cap;
    size_t stride; /* bytes of one token */
    float *row;    /* [max(d_k, d_v)] scratch: one key or value */
};

/* n elements of one token as f32, from element `index` of its record. */
static void read(const struct query *a, uint64_t pos, size_t index, size_t n, float *out)
{
    const void *at = a->store->data + pos * a->stride;
    switch (a->cache->config.k_type) {
    case SENNIT_F32:
        memcpy(out, (const float *)at + index, n * sizeof *out);
        break;
    case SENNIT_F16:
        for (size_t i = 0; i < n; i++)
            out[i] = sn_f16_to_f32(((const uint16_t *)at)[index + i]);
        break;
    default:
        for (size_t i = 0; i < n; i++)
            out[i] = sn_bf16_to_f32(((const uint16_t *)at)[index + i]);
        break;
    }
}

static bool visible(const struct query *a, uint64_t pos)
{
    return pos < a->n_keys && (!a->mask || a->mask[pos]);
}

static float score(const struct query *a, uint64_t pos)
{
    size_t d_k = a->cache->config.d_k;
    float s = 0.0f;
    read(a, pos, a->kv_head * d_k, d_k, a->row);
    for (size_t d = 0; d < d_k; d++)
        s = fmaf(a->q[d] * a->scale, a->row[d], s);
    return a->soft_cap != 0.0f ? a->soft_cap * sn_tanhf(s * (1.0f / a->soft_cap)) : s;
}

/* Softmax state of the keys so far: the largest score, the sum, the weighted values. */
struct state {
    float m, l;
    float *o;
};

static void clear(struct state *s, size_t d_v)
{
    s->m = -INFINITY;
    s->l = 0.0f;
    for (size_t d = 0; d < d_v; d++)
        s->o[d] = 0.0f;
}

static void add_chunk(const struct query *a, uint64_t first, struct state *s)
{
    size_t d_k = a->cache->config.d_k, d_v = a->cache->config.d_v;
    size_t value = a->cache->config.n_kv_heads * d_k + a->kv_head * d_v;
    float p[SN_CHUNK_KEYS], fold[16], m = s->m;
    bool any = false;
    for (uint64_t j = 0; j < SN_CHUNK_KEYS; j++) {
        p[j] = 0.0f;
        if (!visible(a, first + j))
            continue;
        any = true;
        p[j] = score(a, first + j);
        m = p[j] > m ? p[j] : m;
    }
    if (!any)
        return;
    for (uint64_t j = 0; j < SN_CHUNK_KEYS; j++)
        p[j] = visible(a, first + j) ? sn_expf(p[j] - m) : 0.0f;
    for (size_t j = 0; j < 16; j++)
        fold[j] = (p[j] + p[16 + j]) + (p[32 + j] + p[48 + j]);
    for (size_t half = 8; half >= 1; half /= 2)
        for (size_t j = 0; j < half; j++)
            fold[j] += fold[half + j];
    float c = s->m == -INFINITY ? 0.0f : sn_expf(s->m - m);
    s->l = fmaf(s->l, c, fold[0]);
    s->m = m;
    for (size_t d = 0; d < d_v; d++)
        s->o[d] *= c;
    for (uint64_t j = 0; j < SN_CHUNK_KEYS; j++) {
        if (!visible(a, first + j))
            continue;
        read(a, first + j, value, d_v, a->row);
        for (size_t d = 0; d < d_v; d++)
            s->o[d] = fmaf(p[j], a->row[d], s->o[d]);
    }
}

/* Joins the next segment's state. */
static void join(struct state *s, const struct state *next, size_t d_v)
{
    if (next->m == -INFINITY && next->l == 0.0f)
        return;
    bool fresh = s->m == -INFINITY && s->l == 0.0f;
    float m = next->m > s->m ? next->m : s->m;
    float a = fresh ? 0.0f : sn_expf(s->m - m), b = fresh ? 1.0f : sn_expf(next->m - m);
    for (size_t d = 0; d < d_v; d++)
        s->o[d] = fresh ? next->o[d] : fmaf(s->o[d], a, next->o[d] * b);
    s->l = fresh ? next->l : fmaf(s->l, a, next->l * b);
    s->m = fresh ? next->m : m;
}

/* scratch: scratch_floats() floats. */
static void attend(struct query *a, float *scratch, float *out)
{
    size_t d_v = a->cache->config.d_v;
    a->stride = token_bytes(a->cache);
    a->row = scratch + 2 * d_v;
    struct state all = {.o = scratch}, segment = {.o = scratch + d_v};
    clear(&all, d_v);
    for (uint64_t first = 0; first < a->n_keys; first += SN_SEGMENT_KEYS) {
        clear(&segment, d_v);
        for (uint64_t c = 0; c < SN_SEGMENT_KEYS && first + c < a->n_keys; c += SN_CHUNK_KEYS)
            add_chunk(a, first + c, &segment);
        join(&all, &segment, d_v);
    }
    bool nothing = all.m == -INFINITY && all.l == 0.0f;
    if (a->sink) {
        float m = *a->sink > all.m ? *a->sink : all.m, c = sn_expf(all.m - m);
        all.l = fmaf(all.l, c, sn_expf(*a->sink - m));
        for (size_t d = 0; d < d_v; d++)
            all.o[d] *= c;
    }
    for (size_t d = 0; d < d_v; d++)
        out[d] = nothing ? 0.0f : all.o[d] / all.l;
}

/* One item per token and query head; nothing to merge. */
static void naive_attend_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < cache->step.n_spans; i++)
        n += cache->step.spans[i].n_tokens * cache->step.n_heads;
    *n_items = n;
    *n_merges = 0;
}

static void naive_attend_item(struct sennit_cache *cache, uint32_t item, uint32_t worker)
{
    const struct sennit_attend_inputs *in = &cache->step.in;
    const struct sennit_span *span = cache->step.spans;
    uint32_t n_heads = cache->step.n_heads, group = n_heads / cache->config.n_kv_heads;
    for (; item >= span->n_tokens * n_heads; span++)
        item -= span->n_tokens * n_heads;
    uint32_t t = item / n_heads, head = item % n_heads;
    size_t token = span->first_token + t;
    struct query a = {.cache = cache,
                      .store = cache->rows[span->row].store,
                      .q = in->query + token * in->query_stride + (size_t)head * cache->config.d_k,
                      .sink = in->sinks ? in->sinks + head : NULL,
                      .n_keys = span->pos + t + 1,
                      .kv_head = head / group,
                      .scale = in->scale,
                      .soft_cap = in->soft_cap};
    attend(&a, cache->pool->worker[worker].data, in->out + token * in->out_stride + (size_t)head * cache->config.d_v);
}

static void naive_attend_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker)
{
    (void)cache, (void)worker;
    assert(merge == UINT32_MAX && "family naive has no merges");
    (void)merge;
}

static sennit_status naive_donor_attend(struct sennit_cache *cache, uint32_t row, const struct sn_donor_args *args,
                                        struct sennit_error *err)
{
    size_t d_k = cache->config.d_k, d_v = cache->config.d_v;
    SN_TRY(sn_cache_pool_reserve_workers(cache->pool, scratch_floats(cache) * sizeof(float), err));
    for (uint32_t head = 0; head < args->n_heads; head++) {
        for (uint32_t t = 0; t < args->n_q; t++) {
            size_t i = (size_t)head * args->n_q + t;
            struct query a = {.cache = cache,
                              .store = cache->rows[row].store,
                              .q = args->q + i * d_k,
                              .mask = args->mask ? args->mask + t * args->width : NULL,
                              .n_keys = cache->rows[row].n_tokens,
                              .kv_head = head / (args->n_heads / cache->config.n_kv_heads),
                              .scale = args->scale};
            attend(&a, cache->pool->worker[0].data, args->out + i * d_v);
        }
    }
    return SENNIT_OK;
}

static const struct sennit_cache_config example = {
    .family = "naive", .n_kv_heads = 8, .d_k = 128, .d_v = 128, .k_type = SENNIT_F16, .v_type = SENNIT_F16};

const struct sn_family sn_family_naive = {
    .name = "naive",
    .takes = TAKES,
    .object_bytes = sizeof(struct sennit_cache),
    .example = &example,
    .copies_rows = true,
    .trimmable = true,
    .check = naive_check,
    .signature = naive_signature,
    .storage_bytes = naive_storage_bytes,
    .reserve_bytes = naive_reserve_bytes,
    .bytes_per_token = naive_bytes_per_token,
    .row_bytes = naive_row_bytes,
    .row_copy = naive_row_copy,
    .row_drop = naive_row_drop,
    .trim_prepare = naive_trim_prepare,
    .trim_apply = naive_trim_apply,
    .trim_discard = naive_trim_discard,
    .n_spans = naive_n_spans,
    .spans = naive_spans,
    .donor_attend = naive_donor_attend,
    .body_bytes = naive_body_bytes,
    .save_body = naive_save_body,
    .load_body = naive_load_body,
    .step_begin = naive_step_begin,
    .step_tile = naive_step_tile,
    .step_commit = naive_step_commit,
    .step_abort = naive_step_abort,
    .attend_plan = naive_attend_plan,
    .attend_item = naive_attend_item,
    .attend_merge = naive_attend_merge,
};
