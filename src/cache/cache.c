/* The public functions: check everything that all families check alike, then let the family do it.
 * States and invariants are at the top of family.h. */
#include <assert.h>
#include <stdio.h>

#include "cache/family.h"
#include "sennit/family.h"

/* ---- checks ---------------------------------------------------------------------------------- */

sennit_status sn_cache_idle(const struct sennit_cache *cache, const char *what, struct sennit_error *err)
{
    if (!cache)
        return sn_fail(err, SENNIT_INVALID, "%s: the cache is NULL", what);
    if (cache->step.open)
        return sn_fail(err, SENNIT_STATE, "%s: a step is open; commit or abort it first", what);
    if (cache->round_open)
        return sn_fail(err, SENNIT_STATE, "%s: a verify round is open; commit it or roll it back first", what);
    return SENNIT_OK;
}

sennit_status sn_cache_check_row(const struct sennit_cache *cache, uint32_t row, struct sennit_error *err)
{
    if (row >= cache->n_rows)
        return sn_fail(err, SENNIT_RANGE, "row %u is outside the cache's %u rows", row, cache->n_rows);
    return SENNIT_OK;
}

/* ---- creation -------------------------------------------------------------------------------- */

static const struct sn_family *find_family(const struct sennit_cache_config *config, struct sennit_error *err)
{
    const struct sn_family *found = sn_family_of(config);
    const char *name = config->family;
    char list[256] = "";
    if (found)
        return found;
    for (const struct sn_family *const *f = sn_families; *f; f++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", (*f)->name);
    }
    sn_fail(err, SENNIT_NOT_FOUND, "no cache family '%s'; there are: %s", name ? name : "(null)", list);
    return NULL;
}

sennit_status sn_cache_sign(struct sennit_cache *cache, const char *signature, struct sennit_error *err)
{
    if (strlen(signature) >= SN_SIGNATURE_BYTES - 1)
        return sn_fail(err, SENNIT_INVALID, "cache config: the signature is longer than %d bytes: '%s'",
                       SN_SIGNATURE_BYTES - 2, signature);
    return sn_lineage_create(&cache->lineage, cache->pool->heap, signature, err);
}

/* What a cache is: as the one that it is made like, or as its family says. */
static sennit_status identify(struct sennit_cache *cache, const struct sennit_cache *like, struct sennit_error *err)
{
    char signature[SN_SIGNATURE_BYTES];
    if (like) {
        cache->lineage = sn_lineage_ref(like->lineage);
        return SENNIT_OK;
    }
    if (!cache->ops->signature)
        return SENNIT_OK;
    cache->ops->signature(&cache->config, signature, sizeof signature);
    return sn_cache_sign(cache, signature, err);
}

static sennit_status new_cache(const struct sn_family *ops, struct sennit_pool *pool,
                               const struct sennit_cache_config *config, const struct sennit_cache *like,
                               struct sennit_cache **out, struct sennit_error *err)
{
    struct sennit_cache *cache = sn_calloc(pool->heap, SN_USE_MISC, 1, ops->object_bytes);
    if (!cache)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a cache object");
    cache->ops = ops;
    cache->pool = pool;
    cache->config = *config;
    cache->config.family = ops->name;
    if (cache->config.max_tokens == 0)
        cache->config.max_tokens = SENNIT_UNBOUNDED;
    if (cache->config.max_span == 0)
        cache->config.max_span = 1;
    cache->shape = (struct sn_attend_shape){.n_kv_heads = config->n_kv_heads, .d_k = config->d_k, .d_v = config->d_v};
    pool->n_live++;
    sennit_status status = identify(cache, like, err);
    if (status == SENNIT_OK && like && ops->inherit)
        ops->inherit(cache, like);
    if (status == SENNIT_OK && ops->init)
        status = ops->init(cache, err);
    if (status != SENNIT_OK) {
        sennit_cache_dispose(&cache);
        return status;
    }
    *out = cache;
    return SENNIT_OK;
}

sennit_status sn_cache_new_like(const struct sennit_cache *like, struct sennit_cache **out, struct sennit_error *err)
{
    return new_cache(like->ops, like->pool, &like->config, like, out, err);
}

/* Room for n rows in both lists; the rows that are there keep their place. */
sennit_status sn_cache_reserve_rows(struct sennit_cache *cache, uint32_t n_rows, struct sennit_error *err)
{
    if (n_rows <= cache->cap_rows)
        return SENNIT_OK;
    struct sn_heap *heap = cache->pool->heap;
    struct sn_row *rows = sn_calloc(heap, SN_USE_MISC, n_rows, sizeof *rows);
    struct sn_row *spare = sn_calloc(heap, SN_USE_MISC, n_rows, sizeof *spare);
    if (!rows || !spare) {
        sn_free(heap, SN_USE_MISC, rows, n_rows * sizeof *rows);
        sn_free(heap, SN_USE_MISC, spare, n_rows * sizeof *spare);
        return sn_fail(err, SENNIT_NOMEM, "no memory for %u rows", n_rows);
    }
    if (cache->n_rows)
        memcpy(rows, cache->rows, cache->n_rows * sizeof *rows);
    sn_free(heap, SN_USE_MISC, cache->rows, cache->cap_rows * sizeof *rows);
    sn_free(heap, SN_USE_MISC, cache->spare, cache->cap_rows * sizeof *spare);
    cache->rows = rows;
    cache->spare = spare;
    cache->cap_rows = n_rows;
    return SENNIT_OK;
}

sennit_status sennit_cache_create(struct sennit_cache **out, struct sennit_pool *pool,
                                  const struct sennit_cache_config *config, uint32_t n_rows, struct sennit_error *err)
{
    if (!out || !pool || !config)
        return sn_fail(err, SENNIT_INVALID, "sennit_cache_create: out, pool or config is NULL");
    if (n_rows > 1)
        return sn_fail(err, SENNIT_INVALID,
                       "a cache starts with 0 or 1 rows, not %u: create serial caches and merge them", n_rows);
    const struct sn_family *ops = find_family(config, err);
    if (!ops)
        return SENNIT_NOT_FOUND;
    SN_TRY(ops->check(config, err));
    struct sennit_cache *cache = NULL;
    SN_TRY(new_cache(ops, pool, config, NULL, &cache, err));
    sennit_status status = sn_cache_reserve_rows(cache, n_rows, err);
    if (status == SENNIT_OK && n_rows > 0)
        status = sn_cache_take_row(cache, NULL, 0, err);
    if (status != SENNIT_OK) {
        sennit_cache_dispose(&cache);
        return status;
    }
    *out = cache;
    return SENNIT_OK;
}

static struct sennit_cache_family_info info_of(const struct sn_family *ops)
{
    return (struct sennit_cache_family_info){
        .name = ops->name,
        .fields = ops->takes,
        .trimmable = ops->trimmable,
        .replays_rounds = ops->round_rollback != NULL,
        .donor_rows = !ops->no_planes,
        .donor_attention = ops->donor_attend != NULL,
        .precision_change = ops->changes_precision,
        .bounded_span = ops->bounded_span,
        .left_pads = ops->left_pad != NULL,
        .copies_rows = ops->copies_rows,
        .publish = !ops->trimmable    ? SENNIT_PUBLISH_EXACT
                   : ops->can_publish ? SENNIT_PUBLISH_RETAINED
                                      : SENNIT_PUBLISH_ANY,
        .example = ops->example,
    };
}

/* What an example's parts allow together. */
static void join_parts(struct sennit_cache_family_info *info)
{
    const struct sennit_cache_config *example = info->example;
    info->composed = info->trimmable = true;
    info->replays_rounds = info->precision_change = info->left_pads = false;
    info->publish = SENNIT_PUBLISH_ANY;
    for (uint32_t i = 0; i < example->n_inner; i++) {
        struct sennit_cache_family_info part = info_of(sn_family_of(&example->inner[i]));
        info->trimmable &= part.trimmable;
        info->replays_rounds |= part.replays_rounds;
        info->precision_change |= part.precision_change;
        info->bounded_span |= part.bounded_span;
        info->left_pads |= part.left_pads;
        info->copies_rows |= part.copies_rows;
        info->publish = part.publish > info->publish ? part.publish : info->publish;
    }
}

sennit_status sennit_cache_family_info(const char *name, struct sennit_cache_family_info *out,
                                       struct sennit_error *err)
{
    if (!out)
        return sn_fail(err, SENNIT_INVALID, "sennit_cache_family_info: out is NULL");
    const struct sn_family *ops = find_family(&(struct sennit_cache_config){.family = name}, err);
    if (!ops)
        return SENNIT_NOT_FOUND;
    *out = info_of(ops);
    if (ops->composed)
        join_parts(out);
    return SENNIT_OK;
}

void sn_cache_drop_rows(struct sennit_cache *cache, uint32_t n_rows)
{
    while (cache->n_rows > n_rows) {
        struct sn_row *row = &cache->rows[--cache->n_rows];
        cache->ops->row_drop(cache, row);
        *row = (struct sn_row){0};
    }
    if (cache->ops->keep_rows)
        cache->ops->keep_rows(cache, NULL, n_rows);
}

void sennit_cache_dispose(struct sennit_cache **pointer)
{
    if (!pointer || !*pointer)
        return;
    struct sennit_cache *cache = *pointer;
    *pointer = NULL;
    if (cache->step.open)
        sennit_cache_append_abort(cache);
    sn_cache_drop_rows(cache, 0);
    if (cache->ops->release)
        cache->ops->release(cache);
    struct sennit_pool *pool = cache->pool;
    sn_lineage_drop(cache->lineage);
    sn_free(pool->heap, SN_USE_MISC, cache->rows, cache->cap_rows * sizeof *cache->rows);
    sn_free(pool->heap, SN_USE_MISC, cache->spare, cache->cap_rows * sizeof *cache->spare);
    sn_free(pool->heap, SN_USE_MISC, cache->step.spans, cache->step.cap_spans * sizeof *cache->step.spans);
    sn_free(pool->heap, SN_USE_MISC, cache, cache->ops->object_bytes);
    pool->n_live--;
}

/* ---- questions ------------------------------------------------------------------------------- */

uint32_t sennit_cache_batch_size(const struct sennit_cache *cache)
{
    return cache->n_rows;
}

uint64_t sennit_cache_row_offset(const struct sennit_cache *cache, uint32_t row)
{
    return row < cache->n_rows ? cache->rows[row].n_tokens : 0;
}

uint64_t sennit_cache_left_pad(const struct sennit_cache *cache, uint32_t row)
{
    return cache->ops->left_pad && row < cache->n_rows ? cache->ops->left_pad(cache, row) : 0;
}

uint64_t sennit_cache_offset(const struct sennit_cache *cache)
{
    uint64_t head = 0;
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        uint64_t end = cache->rows[i].n_tokens + sennit_cache_left_pad(cache, i);
        head = end > head ? end : head;
    }
    return head;
}

uint64_t sennit_cache_max_tokens(const struct sennit_cache *cache)
{
    return cache->config.max_tokens;
}

uint64_t sennit_cache_minimum_reusable_offset(const struct sennit_cache *cache, int64_t row)
{
    if (row >= 0)
        return row < (int64_t)cache->n_rows ? cache->rows[row].floor : 0;
    uint64_t most = 0;
    for (uint32_t i = 0; i < cache->n_rows; i++)
        most = cache->rows[i].floor > most ? cache->rows[i].floor : most;
    return most;
}

bool sennit_cache_rope_offset_arr(const struct sennit_cache *cache, int32_t *out)
{
    uint64_t head = sennit_cache_offset(cache);
    bool ragged = false;
    for (uint32_t i = 0; i < cache->n_rows && !ragged; i++)
        ragged = cache->rows[i].n_tokens != head;
    for (uint32_t i = 0; i < cache->n_rows && ragged; i++)
        out[i] = (int32_t)cache->rows[i].n_tokens;
    return ragged;
}

uint64_t sennit_cache_projected_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    uint64_t sum;
    if (__builtin_add_overflow(cache->ops->storage_bytes(cache, tokens), cache->ops->reserve_bytes(cache), &sum))
        return UINT64_MAX;
    return sum;
}

uint64_t sennit_cache_current_bytes(const struct sennit_cache *cache, uint32_t row)
{
    return row < cache->n_rows ? cache->ops->row_bytes(cache, &cache->rows[row]) : 0;
}

uint64_t sennit_cache_bytes_per_token(const struct sennit_cache *cache)
{
    return cache->ops->bytes_per_token(cache);
}

bool sennit_cache_can_publish_row(const struct sennit_cache *cache, uint32_t row, uint64_t tokens)
{
    if (row >= cache->n_rows || cache->round_open || cache->step.open)
        return false;
    if (cache->ops->can_publish)
        return cache->ops->can_publish(cache, row, tokens);
    return tokens >= cache->rows[row].floor && tokens <= cache->rows[row].n_tokens;
}

/* What can be published of a leaf is every length from some one up to its count, so the longest that is wanted
 * decides; of a whole, what all parts can give. */
uint64_t sennit_cache_reusable_tokens(const struct sennit_cache *cache, uint32_t row, uint64_t tokens)
{
    const struct sennit_cache_part *parts;
    uint64_t n = sennit_cache_row_offset(cache, row);
    n = tokens < n ? tokens : n;
    for (uint32_t i = 0, n_parts = sennit_cache_composed(cache, &parts); i < n_parts; i++)
        n = sennit_cache_reusable_tokens(parts[i].cache, row, n);
    return sennit_cache_can_publish_row(cache, row, n) ? n : 0;
}

uint64_t sennit_cache_max_append_tokens(const struct sennit_cache *cache, uint32_t row)
{
    return cache->ops->max_append && row < cache->n_rows ? cache->ops->max_append(cache, row) : SENNIT_UNBOUNDED;
}

bool sennit_cache_is_trimmable(const struct sennit_cache *cache)
{
    return sn_cache_trimmable(cache);
}

bool sn_cache_trimmable(const struct sennit_cache *cache)
{
    return cache->ops->trimmable && (!cache->ops->can_trim || cache->ops->can_trim(cache));
}

const char *sennit_cache_signature(const struct sennit_cache *cache)
{
    return cache->lineage->signature;
}

const char *sennit_cache_dtype(const struct sennit_cache *cache)
{
    return cache->ops->dtype ? cache->ops->dtype(cache) : sennit_type_name(cache->config.k_type);
}

uint32_t sennit_cache_composed(const struct sennit_cache *cache, const struct sennit_cache_part **parts)
{
    if (cache->ops->composed)
        return cache->ops->composed(cache, parts);
    if (parts)
        *parts = NULL;
    return 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

sennit_status sennit_cache_make_empty_batch(const struct sennit_cache *cache, struct sennit_cache **out,
                                            struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "make_empty_batch", err));
    if (!out)
        return sn_fail(err, SENNIT_INVALID, "make_empty_batch: out is NULL");
    return sn_cache_new_like(cache, out, err);
}

/* A row like src that has no store yet. */
static struct sn_row row_like(const struct sn_row *src)
{
    return (struct sn_row){.n_tokens = src->n_tokens, .floor = src->floor, .n_last = src->n_last};
}

sennit_status sn_cache_take_row(struct sennit_cache *cache, const struct sennit_cache *source, uint32_t row,
                                struct sennit_error *err)
{
    struct sn_row *dst = &cache->rows[cache->n_rows];
    sennit_status status = SENNIT_OK;
    *dst = source ? row_like(&source->rows[row]) : (struct sn_row){0};
    if (cache->ops->take_row)
        status = cache->ops->take_row(cache, source, row, err);
    else if (source)
        status = cache->ops->row_copy(cache, &source->rows[row], dst, err);
    if (status != SENNIT_OK)
        *dst = (struct sn_row){0};
    else
        cache->n_rows++;
    return status;
}

/* Of configurations that sign alike: the family from outside that is not the same object in both, itself or as inner
 * storage; NULL: all are. */
static const struct sennit_family *other_family(const struct sennit_cache_config *a,
                                                const struct sennit_cache_config *b)
{
    const struct sennit_family *other = a->external != b->external ? a->external : NULL;
    for (uint32_t i = 0; !other && a->inner && b->inner && i < a->n_inner && i < b->n_inner; i++)
        other = other_family(&a->inner[i], &b->inner[i]);
    return other;
}

/* The same of two caches, in all parts. */
static const struct sennit_family *other_families(const struct sennit_cache *a, const struct sennit_cache *b)
{
    const struct sennit_cache_part *x, *y;
    const struct sennit_family *other = other_family(&a->config, &b->config);
    uint32_t n = sennit_cache_composed(a, &x);
    for (uint32_t i = 0; !other && i < n && i < sennit_cache_composed(b, &y); i++)
        other = other_families(x[i].cache, y[i].cache);
    return other;
}

static sennit_status check_source(const struct sennit_cache *cache, const struct sennit_cache *source, uint32_t i,
                                  struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(source, "merge_rows source", err));
    if (strcmp(source->lineage->signature, cache->lineage->signature) != 0)
        return sn_fail(err, SENNIT_INVALID, "merge_rows: source %u is '%s', this layout is '%s'", i,
                       source->lineage->signature, cache->lineage->signature);
    const struct sennit_family *other = other_families(source, cache);
    if (other)
        return sn_fail(err, SENNIT_INVALID, "merge_rows: source %u is of another family that is called '%s' too", i,
                       other->name);
    if (source->pool != cache->pool)
        return sn_fail(err, SENNIT_INVALID, "merge_rows: source %u belongs to another pool", i);
    if (i > 0 && source->n_rows != 1)
        return sn_fail(err, SENNIT_INVALID, "merge_rows: source %u has %u rows; only the first may be a layout", i,
                       source->n_rows);
    for (uint32_t r = 0; r < source->n_rows; r++)
        if (source->rows[r].n_tokens > cache->config.max_tokens)
            return sn_fail(
                err, SENNIT_RANGE, "merge_rows: row %u of source %u has %llu tokens, above max_tokens %llu", r, i,
                (unsigned long long)source->rows[r].n_tokens, (unsigned long long)cache->config.max_tokens);
    return SENNIT_OK;
}

static sennit_status merge_whole(struct sennit_cache *cache, const struct sennit_cache *const *sources,
                                 uint32_t n_sources, uint32_t n_rows, struct sennit_error *err)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < n_sources; i++)
        for (uint32_t r = 0; r < sources[i]->n_rows; r++)
            cache->rows[at++] = row_like(&sources[i]->rows[r]);
    sennit_status status = cache->ops->merge(cache, sources, n_sources, n_rows, err);
    if (status == SENNIT_OK)
        cache->n_rows = n_rows;
    for (uint32_t i = cache->n_rows; i < n_rows; i++)
        cache->rows[i] = (struct sn_row){0};
    return status;
}

sennit_status sn_cache_fill(struct sennit_cache *cache, const struct sennit_cache *const *sources, uint32_t n_sources,
                            uint32_t n_rows, struct sennit_error *err)
{
    SN_TRY(sn_cache_reserve_rows(cache, n_rows, err));
    if (cache->ops->merge)
        return merge_whole(cache, sources, n_sources, n_rows, err);
    for (uint32_t i = 0; i < n_sources; i++) {
        for (uint32_t r = 0; r < sources[i]->n_rows; r++) {
            sennit_status status = sn_cache_take_row(cache, sources[i], r, err);
            if (status != SENNIT_OK) {
                sn_cache_drop_rows(cache, 0);
                return status;
            }
        }
    }
    return SENNIT_OK;
}

sennit_status sn_cache_snapshot(struct sennit_cache *to, const struct sennit_cache *from, struct sennit_error *err)
{
    if (!from->ops->snapshot)
        return sennit_cache_merge_rows(to, &from, 1, err);
    SN_TRY(sn_cache_reserve_rows(to, from->n_rows, err));
    for (uint32_t i = 0; i < from->n_rows; i++)
        to->rows[i] = row_like(&from->rows[i]);
    to->n_rows = from->n_rows;
    from->ops->snapshot(to, from);
    return SENNIT_OK;
}

sennit_status sennit_cache_merge_rows(struct sennit_cache *cache, const struct sennit_cache *const *sources,
                                      uint32_t n_sources, struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "merge_rows", err));
    if (cache->n_rows != 0)
        return sn_fail(err, SENNIT_STATE, "merge_rows: this layout has %u rows; merge into an empty one",
                       cache->n_rows);
    if (!sources && n_sources)
        return sn_fail(err, SENNIT_INVALID, "merge_rows: sources is NULL");
    uint64_t total = 0;
    for (uint32_t i = 0; i < n_sources; i++) {
        SN_TRY(check_source(cache, sources[i], i, err));
        total += sources[i]->n_rows;
    }
    if (total > UINT32_MAX)
        return sn_fail(err, SENNIT_RANGE, "merge_rows: %llu rows are too many", (unsigned long long)total);
    return sn_cache_fill(cache, sources, n_sources, (uint32_t)total, err);
}

static sennit_status copy_out(const struct sennit_cache *cache, uint32_t row, struct sennit_cache **out,
                              const char *what, struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, what, err));
    SN_TRY(sn_cache_check_row(cache, row, err));
    if (!out)
        return sn_fail(err, SENNIT_INVALID, "%s: out is NULL", what);
    struct sennit_cache *fresh = NULL;
    SN_TRY(sn_cache_new_like(cache, &fresh, err));
    sennit_status status = sn_cache_reserve_rows(fresh, 1, err);
    if (status == SENNIT_OK)
        status = sn_cache_take_row(fresh, cache, row, err);
    if (status != SENNIT_OK) {
        sennit_cache_dispose(&fresh);
        return status;
    }
    *out = fresh;
    return SENNIT_OK;
}

sennit_status sennit_cache_extract_row(const struct sennit_cache *cache, uint32_t row, struct sennit_cache **out,
                                       struct sennit_error *err)
{
    return copy_out(cache, row, out, "extract_row", err);
}

sennit_status sennit_cache_clone(const struct sennit_cache *cache, uint32_t row, struct sennit_cache **out,
                                 struct sennit_error *err)
{
    return copy_out(cache, row, out, "clone", err);
}

/* Marks the listed rows; afterwards marks are set exactly on those, or nowhere when the list is
 * bad. */
static sennit_status mark_rows(struct sennit_cache *cache, const uint32_t *list, uint32_t n, const char *what,
                               struct sennit_error *err)
{
    sennit_status status = SENNIT_OK;
    for (uint32_t i = 0; i < n && status == SENNIT_OK; i++) {
        status = sn_cache_check_row(cache, list[i], err);
        if (status == SENNIT_OK && cache->rows[list[i]].marked)
            status = sn_fail(err, SENNIT_INVALID, "%s: row %u is listed twice", what, list[i]);
        else if (status == SENNIT_OK)
            cache->rows[list[i]].marked = true;
    }
    for (uint32_t i = 0; i < cache->n_rows && status != SENNIT_OK; i++)
        cache->rows[i].marked = false;
    return status;
}

void sn_cache_keep_rows(struct sennit_cache *cache, const uint32_t *keep, uint32_t n_keep)
{
    for (uint32_t i = 0; i < n_keep; i++)
        cache->rows[keep[i]].marked = true;
    for (uint32_t i = 0; i < n_keep; i++)
        cache->spare[i] = cache->rows[keep[i]];
    for (uint32_t i = 0; i < cache->n_rows; i++)
        if (!cache->rows[i].marked)
            cache->ops->row_drop(cache, &cache->rows[i]);
    for (uint32_t i = 0; i < cache->n_rows; i++)
        cache->rows[i] = (struct sn_row){0};
    struct sn_row *old = cache->rows;
    cache->rows = cache->spare;
    cache->spare = old;
    cache->n_rows = n_keep;
    for (uint32_t i = 0; i < n_keep; i++)
        cache->rows[i].marked = false;
    if (cache->ops->keep_rows)
        cache->ops->keep_rows(cache, keep, n_keep);
    if (cache->ops->filtered)
        cache->ops->filtered(cache);
}

sennit_status sennit_cache_filter_rows(struct sennit_cache *cache, const uint32_t *keep, uint32_t n_keep,
                                       struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "filter_rows", err));
    if (!keep && n_keep)
        return sn_fail(err, SENNIT_INVALID, "filter_rows: keep is NULL");
    SN_TRY(mark_rows(cache, keep, n_keep, "filter_rows", err));
    sn_cache_keep_rows(cache, keep, n_keep);
    return SENNIT_OK;
}

void sn_cache_cut_row(struct sennit_cache *cache, uint32_t i, uint64_t n_tokens, void *spare)
{
    struct sn_row *row = &cache->rows[i];
    uint64_t dropped = row->n_tokens - n_tokens;
    if (dropped > 0 || spare)
        cache->ops->trim_apply(cache, row, n_tokens, spare);
    row->n_tokens = n_tokens;
    row->n_last -= dropped < row->n_last ? dropped : row->n_last;
}

/* Cuts row i to length(i) tokens for every row, or changes nothing. spare[i].store holds what apply
 * will need. */
typedef uint64_t (*length_fn)(const struct sennit_cache *cache, uint32_t row, const void *arg);

static sennit_status cut_rows(struct sennit_cache *cache, length_fn length, const void *arg, struct sennit_error *err)
{
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        cache->spare[i] = (struct sn_row){0};
        sennit_status status =
            cache->ops->trim_prepare(cache, &cache->rows[i], length(cache, i, arg), &cache->spare[i].store, err);
        if (status != SENNIT_OK) {
            while (i-- > 0)
                if (cache->spare[i].store)
                    cache->ops->trim_discard(cache, cache->spare[i].store);
            return status;
        }
    }
    for (uint32_t i = 0; i < cache->n_rows; i++)
        sn_cache_cut_row(cache, i, length(cache, i, arg), cache->spare[i].store);
    if (cache->ops->trimmed)
        cache->ops->trimmed(cache);
    return SENNIT_OK;
}

static uint64_t trimmed_length(const struct sennit_cache *cache, uint32_t row, const void *arg)
{
    return cache->rows[row].n_tokens - *(const uint64_t *)arg;
}

sennit_status sennit_cache_trim(struct sennit_cache *cache, uint64_t n, bool bypass, struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "trim", err));
    if (!sn_cache_trimmable(cache))
        return sn_fail(err, SENNIT_UNSUPPORTED, "trim: a cache '%s' cannot drop tokens", cache->lineage->signature);
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        const struct sn_row *row = &cache->rows[i];
        if (n > row->n_tokens || row->n_tokens - n < row->floor)
            return sn_fail(err, SENNIT_RANGE, "trim: row %u has %llu tokens and floor %llu; %llu cannot be dropped",
                           i, (unsigned long long)row->n_tokens, (unsigned long long)row->floor,
                           (unsigned long long)n);
        if (bypass && n > row->n_last)
            return sn_fail(err, SENNIT_RANGE, "trim: bypass reaches the last append of row %u, %llu tokens, not %llu",
                           i, (unsigned long long)row->n_last, (unsigned long long)n);
    }
    return n == 0 ? SENNIT_OK : cut_rows(cache, trimmed_length, &n, err);
}

/* ---- rounds ---------------------------------------------------------------------------------- */

sennit_status sennit_cache_spec_round_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "spec_round_begin", err));
    if (cache->config.round_depth == 0)
        return sn_fail(err, SENNIT_UNSUPPORTED, "spec_round_begin: the cache was created with round_depth 0");
    if (cache->ops->round_begin)
        SN_TRY(cache->ops->round_begin(cache, err));
    for (uint32_t i = 0; i < cache->n_rows; i++)
        cache->rows[i].n_window = 0;
    cache->round_open = true;
    return SENNIT_OK;
}

static sennit_status check_round(const struct sennit_cache *cache, const char *what, struct sennit_error *err)
{
    if (!cache)
        return sn_fail(err, SENNIT_INVALID, "%s: the cache is NULL", what);
    if (!cache->round_open)
        return sn_fail(err, SENNIT_STATE, "%s: no verify round is open", what);
    if (cache->step.open)
        return sn_fail(err, SENNIT_STATE, "%s: a step is open; commit or abort it first", what);
    return SENNIT_OK;
}

void sn_cache_close_round(struct sennit_cache *cache)
{
    if (cache->ops->round_closed)
        cache->ops->round_closed(cache);
    for (uint32_t i = 0; i < cache->n_rows; i++)
        cache->rows[i].n_window = 0;
    cache->round_open = false;
}

sennit_status sennit_cache_spec_round_commit(struct sennit_cache *cache, struct sennit_error *err)
{
    SN_TRY(check_round(cache, "spec_round_commit", err));
    if (cache->ops->round_commit)
        cache->ops->round_commit(cache);
    sn_cache_close_round(cache);
    return SENNIT_OK;
}

static uint64_t kept_length(const struct sennit_cache *cache, uint32_t row, const void *arg)
{
    return cache->rows[row].n_tokens - cache->rows[row].n_window + ((const uint64_t *)arg)[row];
}

sennit_status sennit_cache_spec_round_rollback(struct sennit_cache *cache, const uint64_t *keep,
                                               struct sennit_error *err)
{
    SN_TRY(check_round(cache, "spec_round_rollback", err));
    if (!keep && cache->n_rows)
        return sn_fail(err, SENNIT_INVALID, "spec_round_rollback: keep is NULL");
    for (uint32_t i = 0; i < cache->n_rows; i++)
        if (keep[i] > cache->rows[i].n_window)
            return sn_fail(err, SENNIT_RANGE,
                           "spec_round_rollback: row %u cannot keep %llu of a window of %llu tokens", i,
                           (unsigned long long)keep[i], (unsigned long long)cache->rows[i].n_window);
    if (cache->ops->round_prepare)
        SN_TRY(cache->ops->round_prepare(cache, keep, err));
    if (cache->ops->round_rollback)
        cache->ops->round_rollback(cache, keep);
    else
        SN_TRY(cut_rows(cache, kept_length, keep, err));
    sn_cache_close_round(cache);
    return SENNIT_OK;
}

/* ---- prefill maintenance
 * ------------------------------------------------------------------------------------- */

static sennit_status check_prefill(const struct sennit_cache *cache, bool open, const char *what,
                                   struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, what, err));
    if (cache->prefill_open == open)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_STATE, open ? "%s: begin_prefill first" : "%s: shared prefill has begun already",
                   what);
}

sennit_status sennit_cache_begin_prefill(struct sennit_cache *cache, struct sennit_error *err)
{
    SN_TRY(check_prefill(cache, false, "begin_prefill", err));
    if (cache->ops->begin_prefill)
        SN_TRY(cache->ops->begin_prefill(cache, err));
    cache->prefill_open = true;
    return SENNIT_OK;
}

sennit_status sennit_cache_commit_prefill(struct sennit_cache *cache, const uint32_t *rows, uint32_t n_rows,
                                          struct sennit_error *err)
{
    SN_TRY(sn_cache_idle(cache, "commit_prefill", err));
    if (!rows && n_rows)
        return sn_fail(err, SENNIT_INVALID, "commit_prefill: rows is NULL");
    SN_TRY(mark_rows(cache, rows, n_rows, "commit_prefill", err));
    for (uint32_t i = 0; i < cache->n_rows; i++)
        cache->rows[i].marked = false;
    SN_TRY(check_prefill(cache, true, "commit_prefill", err));
    if (cache->ops->commit_prefill) {
        SN_TRY(cache->ops->commit_prefill(cache, rows, n_rows, err));
        cache->ops->apply_prefill(cache, rows, n_rows);
    }
    return SENNIT_OK;
}

sennit_status sennit_cache_end_prefill(struct sennit_cache *cache, struct sennit_error *err)
{
    SN_TRY(check_prefill(cache, true, "end_prefill", err));
    if (cache->ops->end_prefill)
        SN_TRY(cache->ops->end_prefill(cache, err));
    cache->prefill_open = false;
    return SENNIT_OK;
}
