/* Donors and state leases. A snapshot is an internal cache that holds its own references to the
 * rows; a family needs to know nothing of it. */
#include "cache/family.h"

/* ---- spans ----------------------------------------------------------------------------------- */

static sennit_status list_spans(const struct sennit_cache *cache, struct sennit_span_view **out, size_t *n_out,
                                struct sennit_error *err)
{
    size_t n = 0, at = 0;
    for (uint32_t i = 0; i < cache->n_rows; i++)
        n += cache->ops->n_spans(cache, i);
    *out = NULL;
    *n_out = n;
    if (n == 0)
        return SENNIT_OK;
    struct sennit_span_view *views = sn_calloc(cache->pool->heap, SN_USE_MISC, n, sizeof *views);
    if (!views)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %zu storage spans", n);
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        cache->ops->spans(cache, i, views + at);
        at += cache->ops->n_spans(cache, i);
    }
    *out = views;
    return SENNIT_OK;
}

sennit_status sennit_cache_state(const struct sennit_cache *cache, struct sennit_state *out, struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "state", err));
    if (!out)
        return sn_fail(err, SENNIT_INVALID, "state: out is NULL");
    struct sennit_span_view *spans;
    size_t n;
    SN_TRY(list_spans(cache, &spans, &n, err));
    *out = (struct sennit_state){.spans = spans, .n_spans = n, .needs_dispose = n > 0, .owner = cache->pool};
    return SENNIT_OK;
}

void sennit_state_release(struct sennit_state *state)
{
    if (!state || !state->owner)
        return;
    struct sennit_pool *pool = state->owner;
    sn_free(pool->heap, SN_USE_MISC, (void *)(uintptr_t)state->spans, state->n_spans * sizeof *state->spans);
    *state = (struct sennit_state){0};
}

/* ---- snapshots ------------------------------------------------------------------------------- */

/* Rows by reference, and offsets, starts and ends in one array of 3 * n_rows. */
struct snapshot {
    struct sennit_cache *cache;
    uint64_t *numbers;
    uint64_t width;
};

static void snapshot_release(struct snapshot *s, struct sn_heap *heap, uint32_t n_rows)
{
    sn_free(heap, SN_USE_MISC, s->numbers, 3 * (size_t)n_rows * sizeof *s->numbers);
    sennit_cache_dispose(&s->cache);
}

static sennit_status snapshot_take(const struct sennit_cache *cache, struct snapshot *s, struct sennit_error *err)
{
    uint32_t n = cache->n_rows;
    *s = (struct snapshot){0};
    SN_TRY(sn_cache_new_like(cache, &s->cache, err));
    sennit_status status = sn_cache_snapshot(s->cache, cache, err);
    if (status == SENNIT_OK && n > 0) {
        s->numbers = sn_calloc(cache->pool->heap, SN_USE_MISC, 3 * (size_t)n, sizeof *s->numbers);
        if (!s->numbers)
            status = sn_fail(err, SENNIT_NOMEM, "no memory for a donor of %u rows", n);
    }
    if (status != SENNIT_OK) {
        snapshot_release(s, cache->pool->heap, n);
        return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint64_t end = cache->rows[i].n_tokens;
        uint64_t start = cache->ops->first_pos ? cache->ops->first_pos(cache, i) : 0;
        s->numbers[i] = s->numbers[2 * n + i] = end;
        s->numbers[n + i] = start;
        s->width = end - start > s->width ? end - start : s->width;
    }
    return SENNIT_OK;
}

struct donor {
    struct sennit_donor pub; /* first: the two pointers convert */
    struct snapshot snapshot;
};

sennit_status sennit_cache_capture_donor_rows(const struct sennit_cache *cache, struct sennit_donor **out,
                                              struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "capture_donor_rows", err));
    if (!out)
        return sn_fail(err, SENNIT_INVALID, "capture_donor_rows: out is NULL");
    if (cache->ops->no_planes)
        return sn_fail(err, SENNIT_UNSUPPORTED, "capture_donor_rows: family '%s' has no planes of keys and values",
                       cache->ops->name);
    struct sn_heap *heap = cache->pool->heap;
    struct donor *donor = sn_calloc(heap, SN_USE_MISC, 1, sizeof *donor);
    if (!donor)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a donor");
    sennit_status status = snapshot_take(cache, &donor->snapshot, err);
    if (status != SENNIT_OK) {
        sn_free(heap, SN_USE_MISC, donor, sizeof *donor);
        return status;
    }
    struct sennit_span_view *planes = NULL;
    uint32_t n = cache->n_rows;
    const uint64_t *numbers = donor->snapshot.numbers;
    status = list_spans(donor->snapshot.cache, &planes, &donor->pub.n_planes, err);
    donor->pub = (struct sennit_donor){
        .n_rows = n,
        .offsets = numbers,
        .starts = numbers ? numbers + n : NULL,
        .ends = numbers ? numbers + 2 * (size_t)n : NULL,
        .width = donor->snapshot.width,
        .planes = planes,
        .n_planes = donor->pub.n_planes,
    };
    if (status != SENNIT_OK) {
        sennit_donor_free(&donor->pub);
        return status;
    }
    *out = &donor->pub;
    return SENNIT_OK;
}

void sennit_donor_free(struct sennit_donor *pub)
{
    if (!pub)
        return;
    struct donor *donor = (struct donor *)pub;
    struct sn_heap *heap = donor->snapshot.cache->pool->heap;
    sn_free(heap, SN_USE_MISC, (void *)(uintptr_t)pub->planes, pub->planes ? pub->n_planes * sizeof *pub->planes : 0);
    snapshot_release(&donor->snapshot, heap, pub->n_rows);
    sn_free(heap, SN_USE_MISC, donor, sizeof *donor);
}

/* ---- attention views
 * ----------------------------------------------------------------------------------------- */

struct view {
    struct sennit_donor_attention pub; /* first */
    struct snapshot snapshot;
};

sennit_status sennit_cache_capture_donor_attention(const struct sennit_cache *cache,
                                                   struct sennit_donor_attention **out, struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "capture_donor_attention", err));
    if (!out)
        return sn_fail(err, SENNIT_INVALID, "capture_donor_attention: out is NULL");
    if (!cache->ops->donor_attend)
        return sn_fail(err, SENNIT_UNSUPPORTED, "capture_donor_attention: family '%s' has no attention over keys",
                       cache->ops->name);
    struct sn_heap *heap = cache->pool->heap;
    struct view *view = sn_calloc(heap, SN_USE_MISC, 1, sizeof *view);
    if (!view)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a donor's attention view");
    sennit_status status = snapshot_take(cache, &view->snapshot, err);
    if (status != SENNIT_OK) {
        sn_free(heap, SN_USE_MISC, view, sizeof *view);
        return status;
    }
    uint32_t n = cache->n_rows;
    const uint64_t *numbers = view->snapshot.numbers;
    view->pub = (struct sennit_donor_attention){
        .n_rows = n,
        .offsets = numbers,
        .starts = numbers ? numbers + n : NULL,
        .ends = numbers ? numbers + 2 * (size_t)n : NULL,
        .width = view->snapshot.width,
        .dtype = cache->ops->dtype ? cache->ops->dtype(view->snapshot.cache) : sennit_type_name(cache->config.k_type),
        .n_kv_heads = cache->shape.n_kv_heads,
        .d_k = cache->shape.d_k,
        .d_v = cache->shape.d_v,
    };
    *out = &view->pub;
    return SENNIT_OK;
}

sennit_status sennit_donor_attend(struct sennit_donor_attention *pub, const float *q, uint32_t n_heads, uint32_t n_q,
                                  float scale, const uint8_t *mask, float *out, struct sennit_error *err)
{
    if (!pub || !q || !out)
        return sn_fail(err, SENNIT_INVALID, "donor_attend: the view, q or out is NULL");
    if (n_heads == 0 || n_heads % pub->n_kv_heads != 0)
        return sn_fail(err, SENNIT_INVALID, "donor_attend: %u query heads are no multiple of %u KV heads", n_heads,
                       pub->n_kv_heads);
    struct sennit_cache *cache = ((struct view *)pub)->snapshot.cache;
    sennit_status status = SENNIT_OK;
    struct sn_fpenv env = sn_fp_enter();
    for (uint32_t i = 0; i < pub->n_rows && status == SENNIT_OK && n_q > 0; i++) {
        size_t queries = (size_t)n_heads * n_q;
        struct sn_donor_args args = {
            .q = q + i * queries * pub->d_k,
            .n_heads = n_heads,
            .n_q = n_q,
            .scale = scale,
            .mask = mask ? mask + (size_t)i * n_q * pub->width : NULL,
            .width = pub->width,
            .out = out + i * queries * pub->d_v,
        };
        status = cache->ops->donor_attend(cache, i, &args, err);
    }
    sn_fp_leave(env);
    return status;
}

void sennit_donor_attention_free(struct sennit_donor_attention *pub)
{
    if (!pub)
        return;
    struct view *view = (struct view *)pub;
    struct sn_heap *heap = view->snapshot.cache->pool->heap;
    snapshot_release(&view->snapshot, heap, pub->n_rows);
    sn_free(heap, SN_USE_MISC, view, sizeof *view);
}

const struct sennit_cache *sn_donor_cache(const struct sennit_donor *donor)
{
    return ((const struct donor *)donor)->snapshot.cache;
}

const struct sennit_cache *sn_view_cache(const struct sennit_donor_attention *view)
{
    return ((const struct view *)view)->snapshot.cache;
}
