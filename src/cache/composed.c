#include "cache/composed.h"

#include <assert.h>
#include <stdio.h>

static struct sn_composed *mutable_composed(struct sennit_cache *cache)
{
    return (struct sn_composed *)cache;
}

/* ---- configuration -------------------------------------------------------------------------------------------- */

static sennit_status check_role(const struct sennit_cache_config *inner, uint32_t i, struct sennit_error *err)
{
    const char *role = inner[i].role;
    size_t n = role ? strlen(role) : 0;
    if (n == 0 || n >= SN_ROLE_BYTES || strspn(role, "abcdefghijklmnopqrstuvwxyz0123456789_-") != n)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: inner[%u].role '%s' must be 1 to %d characters of a-z, 0-9, '_' and '-'", i,
                       role ? role : "(null)", SN_ROLE_BYTES - 1);
    for (uint32_t j = 0; j < i; j++)
        if (strcmp(inner[j].role, role) == 0)
            return sn_fail(err, SENNIT_INVALID, "cache config: inner[%u] and inner[%u] have the same role '%s'", j, i,
                           role);
    return SENNIT_OK;
}

static sennit_status check_reads(const struct sennit_cache_config *inner, uint32_t i, const char *family,
                                 struct sennit_error *err)
{
    const char *reads = inner[i].reads;
    if (!reads)
        return SENNIT_OK;
    if (strcmp(family, "mla-dsa") != 0 && strcmp(family, "donor") != 0)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: inner[%u].reads: family '%s' reads no other cache; leave it NULL", i, family);
    if (inner[i].index.from || inner[i].source)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: inner[%u] reads a part and a cache (index.from, source): name one of them", i);
    for (uint32_t j = 0; j < i; j++)
        if (strcmp(inner[j].role, reads) == 0)
            return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: inner[%u].reads '%s': no earlier part has that role", i,
                   reads);
}

/* A part may have room for more than the whole promises, not for less. */
static sennit_status check_bound(const char *field, uint32_t i, uint32_t part, uint32_t whole,
                                 struct sennit_error *err)
{
    if (part == 0 || part >= whole)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: inner[%u].%s is %u, less than that of the whole, %u", i, field,
                   part, whole);
}

static sennit_status check_part(const struct sennit_cache_config *config, uint32_t i, struct sennit_error *err)
{
    const struct sennit_cache_config *part = &config->inner[i];
    SN_TRY(check_role(config->inner, i, err));
    const struct sn_family *family = sn_family_of(part);
    if (!family)
        return sn_fail(err, SENNIT_INVALID, "cache config: inner[%u].family '%s' is unknown", i,
                       part->family ? part->family : "(null)");
    if (family == &sn_family_composed)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: inner[%u] is itself '%s'; name its parts here, among the others", i,
                       config->family);
    SN_TRY(check_reads(config->inner, i, family->name, err));
    SN_TRY(check_bound("max_span", i, part->max_span, config->max_span, err));
    SN_TRY(check_bound("round_depth", i, part->round_depth, config->round_depth, err));
    return check_bound("n_snapshots", i, part->n_snapshots, config->n_snapshots, err);
}

enum { TAKES = SN_CONFIG_INNER };

static sennit_status composed_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    if (!config->inner || config->n_inner == 0 || config->n_inner > SN_COMPOSED_MAX_PARTS)
        return sn_fail(err, SENNIT_INVALID, "cache config: a composed cache has 1 to %d parts (inner), not %u",
                       SN_COMPOSED_MAX_PARTS, config->inner ? config->n_inner : 0);
    for (uint32_t i = 0; i < config->n_inner; i++)
        SN_TRY(check_part(config, i, err));
    return SENNIT_OK; /* what a part's own family says comes with its creation */
}

static sennit_status of_part(const struct sn_composed *c, uint32_t i, sennit_status status, struct sennit_error *err)
{
    if (status == SENNIT_OK || !err)
        return status;
    struct sennit_error inner = *err;
    return sn_fail(err, status, "part '%s': %s", c->role[i], inner.message);
}

/* ---- one cache ------------------------------------------------------------------------------------------------ */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Part i as a cache of its own: the whole's bounds, and the part that it reads. */
static struct sennit_cache_config part_config(const struct sn_composed *c, uint32_t i)
{
    const struct sennit_cache_config *whole = &c->base.config;
    struct sennit_cache_config part = whole->inner[i];
    if (part.max_tokens == 0 || part.max_tokens > whole->max_tokens)
        part.max_tokens = whole->max_tokens;
    part.max_span = larger(part.max_span, whole->max_span);
    part.round_depth = larger(part.round_depth, whole->round_depth);
    part.n_snapshots = larger(part.n_snapshots, whole->n_snapshots);
    for (uint32_t j = 0; part.reads && j < i; j++) {
        if (strcmp(c->role[j], part.reads) != 0)
            continue;
        if (strcmp(sn_family_of(&part)->name, "donor") == 0)
            part.source = c->part[j];
        else
            part.index.from = c->part[j];
    }
    part.reads = part.role = NULL;
    return part;
}

static sennit_status make_parts(struct sn_composed *c, struct sennit_error *err)
{
    const struct sn_composed *like = c->like;
    uint32_t n = like ? like->n_parts : c->base.config.n_inner;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(c->role[i], like ? like->role[i] : c->base.config.inner[i].role,
               like ? SN_ROLE_BYTES : strlen(c->base.config.inner[i].role) + 1);
        struct sennit_cache_config config;
        sennit_status status;
        if (like) {
            status = sn_cache_new_like(like->part[i], &c->part[i], err);
        } else {
            config = part_config(c, i);
            status = sennit_cache_create(&c->part[i], c->base.pool, &config, 0, err);
        }
        SN_TRY(of_part(c, i, status, err));
        c->view[i] = (struct sennit_cache_part){.role = c->role[i], .cache = c->part[i]};
        c->n_parts++;
    }
    return SENNIT_OK;
}

/* "composed(all: plain F16 kv 2 k 64 v 64 | state: recurrent ... | more of all: donor / plain ...)": which part
 * another one reads decides its answers. */
static sennit_status sign(struct sn_composed *c, const struct sennit_cache_config *inner, struct sennit_error *err)
{
    char text[SN_SIGNATURE_BYTES];
    size_t n = (size_t)snprintf(text, sizeof text, "%s(", c->base.ops->name);
    for (uint32_t i = 0; i < c->n_parts && n < sizeof text; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s%s%s: %s", i ? " | " : "", c->role[i],
                              inner[i].reads ? " of " : "", inner[i].reads ? inner[i].reads : "",
                              sennit_cache_signature(c->part[i]));
    if (n < sizeof text)
        snprintf(text + n, sizeof text - n, ")");
    return sn_cache_sign(&c->base, text, err);
}

static void composed_inherit(struct sennit_cache *cache, const struct sennit_cache *like)
{
    mutable_composed(cache)->like = sn_composed_of(like);
}

static sennit_status composed_init(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    const struct sennit_cache_config *inner = cache->config.inner;
    sennit_status status = make_parts(c, err);
    c->like = NULL;
    cache->config.inner = NULL; /* the caller's */
    cache->config.n_inner = 0;
    cache->config.role = NULL;
    if (status != SENNIT_OK)
        return status;
    cache->shape.n_kv_heads = 1; /* every part checks its own */
    for (uint32_t i = 0; i < c->n_parts; i++) {
        uint64_t max = sennit_cache_max_tokens(c->part[i]);
        cache->config.max_tokens = max < cache->config.max_tokens ? max : cache->config.max_tokens;
    }
    return cache->lineage ? SENNIT_OK : sign(c, inner, err);
}

static void composed_release(struct sennit_cache *cache)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = c->n_parts; i-- > 0;) /* readers before what they read */
        sennit_cache_dispose(&c->part[i]);
}

/* ---- bytes and questions -------------------------------------------------------------------------------------- */

static uint64_t composed_storage_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    const struct sn_composed *c = sn_composed_of(cache);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_parts; i++)
        bytes = sn_add_saturated(bytes, c->part[i]->ops->storage_bytes(c->part[i], tokens));
    return bytes;
}

static uint64_t composed_reserve_bytes(const struct sennit_cache *cache)
{
    const struct sn_composed *c = sn_composed_of(cache);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_parts; i++)
        bytes = sn_add_saturated(bytes, c->part[i]->ops->reserve_bytes(c->part[i]));
    return bytes;
}

static uint64_t composed_bytes_per_token(const struct sennit_cache *cache)
{
    const struct sn_composed *c = sn_composed_of(cache);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_parts; i++)
        bytes = sn_add_saturated(bytes, sennit_cache_bytes_per_token(c->part[i]));
    return bytes;
}

static uint32_t index_of(const struct sn_composed *c, const struct sn_row *row)
{
    return (uint32_t)(row - c->base.rows);
}

static uint64_t composed_row_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    const struct sn_composed *c = sn_composed_of(cache);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_parts; i++)
        bytes = sn_add_saturated(bytes, sennit_cache_current_bytes(c->part[i], index_of(c, row)));
    return bytes;
}

static uint64_t composed_left_pad(const struct sennit_cache *cache, uint32_t row)
{
    const struct sn_composed *c = sn_composed_of(cache);
    uint64_t most = 0;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        uint64_t pad = sennit_cache_left_pad(c->part[i], row);
        most = pad > most ? pad : most;
    }
    return most;
}

static uint64_t composed_max_append(const struct sennit_cache *cache, uint32_t row)
{
    const struct sn_composed *c = sn_composed_of(cache);
    uint64_t least = SENNIT_UNBOUNDED;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        uint64_t n = sennit_cache_max_append_tokens(c->part[i], row);
        least = n < least ? n : least;
    }
    return least;
}

static bool composed_can_publish(const struct sennit_cache *cache, uint32_t row, uint64_t tokens)
{
    const struct sn_composed *c = sn_composed_of(cache);
    for (uint32_t i = 0; i < c->n_parts; i++)
        if (!sennit_cache_can_publish_row(c->part[i], row, tokens))
            return false;
    return true;
}

static const char *composed_dtype(const struct sennit_cache *cache)
{
    return cache->ops->name; /* each part has its own */
}

static uint32_t composed_parts(const struct sennit_cache *cache, const struct sennit_cache_part **parts)
{
    const struct sn_composed *c = sn_composed_of(cache);
    if (parts)
        *parts = c->view;
    return c->n_parts;
}

static void settle_floors(struct sn_composed *c)
{
    for (uint32_t r = 0; r < c->base.n_rows; r++) {
        uint64_t floor = 0;
        for (uint32_t i = 0; i < c->n_parts; i++)
            floor = c->part[i]->rows[r].floor > floor ? c->part[i]->rows[r].floor : floor;
        c->base.rows[r].floor = floor;
    }
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

/* One row in every part, which have none. */
static sennit_status composed_take_row(struct sennit_cache *cache, const struct sennit_cache *source, uint32_t row,
                                       struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        sennit_status status = sn_cache_reserve_rows(c->part[i], 1, err);
        if (status == SENNIT_OK)
            status = sn_cache_take_row(c->part[i], source ? sn_composed_of(source)->part[i] : NULL, row, err);
        if (status != SENNIT_OK) {
            while (i-- > 0)
                sn_cache_drop_rows(c->part[i], 0);
            return status;
        }
    }
    return SENNIT_OK;
}

static sennit_status composed_merge(struct sennit_cache *cache, const struct sennit_cache *const *sources,
                                    uint32_t n_sources, uint32_t n_rows, struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    struct sn_heap *heap = cache->pool->heap;
    size_t n_bytes = (n_sources + 1) * sizeof(struct sennit_cache *);
    const struct sennit_cache **list = sn_alloc(heap, SN_USE_SCRATCH, n_bytes);
    if (!list)
        return sn_fail(err, SENNIT_NOMEM, "no memory to merge %u caches", n_sources);
    sennit_status status = SENNIT_OK;
    for (uint32_t i = 0; i < c->n_parts && status == SENNIT_OK; i++) {
        for (uint32_t k = 0; k < n_sources; k++)
            list[k] = sn_composed_of(sources[k])->part[i];
        status = sn_cache_fill(c->part[i], list, n_sources, n_rows, err);
    }
    for (uint32_t i = 0; i < c->n_parts && status != SENNIT_OK; i++)
        sn_cache_drop_rows(c->part[i], 0);
    sn_free(heap, SN_USE_SCRATCH, list, n_bytes);
    return status;
}

static void composed_keep_rows(struct sennit_cache *cache, const uint32_t *keep, uint32_t n_keep)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        if (keep)
            sn_cache_keep_rows(c->part[i], keep, n_keep);
        else
            sn_cache_drop_rows(c->part[i], n_keep);
    }
}

static void composed_row_drop(struct sennit_cache *cache, struct sn_row *row)
{
    (void)cache, (void)row; /* keep_rows has the parts' */
}

/* ---- trim and rounds ------------------------------------------------------------------------------------------ */

static bool composed_can_trim(const struct sennit_cache *cache)
{
    const struct sn_composed *c = sn_composed_of(cache);
    for (uint32_t i = 0; i < c->n_parts; i++)
        if (!sn_cache_trimmable(c->part[i]))
            return false;
    return true;
}

/* In a rollback some parts do not trim but have a way of their own. */
static bool cuts(const struct sn_composed *c, const struct sennit_cache *part)
{
    return !c->base.round_open || !part->ops->round_rollback;
}

/* What the parts prepared lies in their spare rows, `store` of row i. */
static void discard_parts(struct sn_composed *c, uint32_t row, uint32_t n_parts)
{
    while (n_parts-- > 0) {
        struct sennit_cache *part = c->part[n_parts];
        void *spare = part->spare[row].store;
        if (cuts(c, part) && spare)
            part->ops->trim_discard(part, spare);
    }
}

static sennit_status composed_trim_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                           void **spare, struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    uint32_t r = index_of(c, row);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        struct sennit_cache *part = c->part[i];
        part->spare[r] = (struct sn_row){0};
        if (!cuts(c, part))
            continue;
        sennit_status status = part->ops->trim_prepare(part, &part->rows[r], n_tokens, &part->spare[r].store, err);
        if (status != SENNIT_OK) {
            discard_parts(c, r, i);
            return of_part(c, i, status, err);
        }
    }
    *spare = cache->rows + r; /* says that there is something to apply or to discard, and where */
    return SENNIT_OK;
}

static void composed_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    struct sn_composed *c = mutable_composed(cache);
    uint32_t r = index_of(c, row);
    (void)spare;
    for (uint32_t i = 0; i < c->n_parts; i++)
        if (cuts(c, c->part[i]))
            sn_cache_cut_row(c->part[i], r, n_tokens, c->part[i]->spare[r].store);
}

/* What parts do once all rows are cut. */
static void composed_trimmed(struct sennit_cache *cache)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++)
        if (cuts(c, c->part[i]) && c->part[i]->ops->trimmed)
            c->part[i]->ops->trimmed(c->part[i]);
}

static void composed_trim_discard(struct sennit_cache *cache, void *spare)
{
    struct sn_composed *c = mutable_composed(cache);
    discard_parts(c, index_of(c, spare), c->n_parts);
}

/* A round in which nothing was appended ends without a trace. */
static void leave_round(struct sn_composed *c, uint32_t n_parts)
{
    for (uint32_t i = 0; i < n_parts; i++) {
        if (c->part[i]->ops->round_commit)
            c->part[i]->ops->round_commit(c->part[i]);
        sn_cache_close_round(c->part[i]);
    }
}

static sennit_status composed_round_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        sennit_status status = sennit_cache_spec_round_begin(c->part[i], err);
        if (status != SENNIT_OK) {
            leave_round(c, i);
            return of_part(c, i, status, err);
        }
    }
    return SENNIT_OK;
}

static void composed_round_commit(struct sennit_cache *cache)
{
    struct sn_composed *c = mutable_composed(cache);
    leave_round(c, c->n_parts);
}

static uint64_t kept(const struct sn_row *row, uint64_t keep)
{
    return row->n_tokens - row->n_window + keep;
}

static sennit_status composed_round_prepare(struct sennit_cache *cache, const uint64_t *keep,
                                            struct sennit_error *err)
{
    for (uint32_t r = 0; r < cache->n_rows; r++) {
        const struct sn_row *row = &cache->rows[r];
        sennit_status status = composed_trim_prepare(cache, row, kept(row, keep[r]), &cache->spare[r].store, err);
        if (status != SENNIT_OK) {
            while (r-- > 0)
                composed_trim_discard(cache, cache->rows + r);
            return status;
        }
    }
    return SENNIT_OK;
}

static void composed_round_rollback(struct sennit_cache *cache, const uint64_t *keep)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t r = 0; r < cache->n_rows; r++)
        sn_cache_cut_row(cache, r, kept(&cache->rows[r], keep[r]), cache->rows + r);
    composed_trimmed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        if (c->part[i]->ops->round_rollback)
            c->part[i]->ops->round_rollback(c->part[i], keep);
        sn_cache_close_round(c->part[i]);
    }
    settle_floors(c);
}

/* ---- prefill maintenance -------------------------------------------------------------------------------------- */

static sennit_status composed_end_prefill(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++)
        SN_TRY(of_part(c, i, sennit_cache_end_prefill(c->part[i], err), err));
    return SENNIT_OK;
}

static sennit_status composed_begin_prefill(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        sennit_status status = sennit_cache_begin_prefill(c->part[i], err);
        if (status != SENNIT_OK) {
            while (i-- > 0)
                (void)sennit_cache_end_prefill(c->part[i], NULL);
            return status;
        }
    }
    return SENNIT_OK;
}

static sennit_status composed_commit_prefill(struct sennit_cache *cache, const uint32_t *rows, uint32_t n_rows,
                                             struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        struct sennit_cache *part = c->part[i];
        sennit_status status =
            part->ops->commit_prefill ? part->ops->commit_prefill(part, rows, n_rows, err) : SENNIT_OK;
        if (status != SENNIT_OK) {
            while (i-- > 0)
                if (c->part[i]->ops->commit_prefill)
                    c->part[i]->ops->discard_prefill(c->part[i], n_rows);
            return status;
        }
    }
    return SENNIT_OK;
}

static void composed_apply_prefill(struct sennit_cache *cache, const uint32_t *rows, uint32_t n_rows)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++)
        if (c->part[i]->ops->commit_prefill)
            c->part[i]->ops->apply_prefill(c->part[i], rows, n_rows);
    settle_floors(c);
}

/* ---- spans and streams ---------------------------------------------------------------------------------------- */

static size_t composed_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    const struct sn_composed *c = sn_composed_of(cache);
    size_t n = 0;
    for (uint32_t i = 0; i < c->n_parts; i++)
        n += c->part[i]->ops->n_spans(c->part[i], row);
    return n;
}

static void composed_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    const struct sn_composed *c = sn_composed_of(cache);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        size_t n = c->part[i]->ops->n_spans(c->part[i], row);
        c->part[i]->ops->spans(c->part[i], row, out);
        for (size_t k = 0; k < n; k++)
            out[k].part = i;
        out += n;
    }
}

static uint64_t composed_body_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    const struct sn_composed *c = sn_composed_of(cache);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_parts; i++)
        bytes = sn_add_saturated(
            bytes, sn_add_saturated(2 * sizeof(uint64_t), c->part[i]->ops->body_bytes(c->part[i], tokens)));
    return bytes;
}

/* Where rows of such a cache change their precision; 0: nowhere, or from their first token. */
static uint64_t start_of(const struct sennit_cache_config *config)
{
    return config->start || config->n_inner == 0 ? config->start : start_of(&config->inner[0]);
}

/* Parts keep step, so that the largest floor tells those of all parts. */
static uint64_t composed_row_body_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    const struct sn_composed *c = sn_composed_of(cache);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        uint64_t start = start_of(&c->part[i]->config);
        struct sn_row own = {.n_tokens = row->n_tokens, .floor = start <= row->floor ? start : 0};
        bytes = sn_add_saturated(bytes, sn_add_saturated(2 * sizeof(uint64_t), sn_row_body_bytes(c->part[i], &own)));
    }
    return bytes;
}

static sennit_status composed_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                        struct sennit_stream *stream, struct sennit_error *err)
{
    const struct sn_composed *c = sn_composed_of(cache);
    for (uint32_t i = 0; i < c->n_parts; i++) {
        const struct sennit_cache *part = c->part[i];
        const struct sn_row *own = &part->rows[index_of(c, row)];
        uint64_t head[2] = {own->floor, sn_row_body_bytes(part, own)};
        SN_TRY(sn_stream_write(stream, head, sizeof head, err));
        SN_TRY(part->ops->save_body(part, own, stream, err));
    }
    return SENNIT_OK;
}

static sennit_status load_part(struct sennit_cache *part, uint64_t n_tokens, struct sennit_stream *stream,
                               struct sennit_error *err)
{
    struct sn_row row = {.n_tokens = n_tokens};
    uint64_t head[2];
    SN_TRY(sn_stream_read(stream, head, sizeof head, err));
    row.floor = head[0];
    if (head[0] > n_tokens || head[1] != sn_row_body_bytes(part, &row))
        return sn_fail(err, SENNIT_FORMAT, "saved row: floor %llu and %llu body bytes do not fit %llu tokens",
                       (unsigned long long)head[0], (unsigned long long)head[1], (unsigned long long)n_tokens);
    SN_TRY(sn_cache_reserve_rows(part, 1, err));
    SN_TRY(part->ops->load_body(part, &row, stream, err));
    part->rows[0] = row;
    part->n_rows = 1;
    return SENNIT_OK;
}

static sennit_status composed_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                        struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    uint64_t floor = 0;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        sennit_status status = load_part(c->part[i], row->n_tokens, stream, err);
        if (status != SENNIT_OK)
            return of_part(c, i, status, err); /* the cache goes, and what the earlier parts have read with it */
        floor = c->part[i]->rows[0].floor > floor ? c->part[i]->rows[0].floor : floor;
    }
    if (floor != row->floor)
        return sn_fail(err, SENNIT_FORMAT, "saved row: reusable offset %llu, its parts' is %llu",
                       (unsigned long long)row->floor, (unsigned long long)floor);
    return SENNIT_OK;
}

/* ---- the step ------------------------------------------------------------------------------------------------- */

static sennit_status composed_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_composed *c = mutable_composed(cache);
    const struct sn_cache_step *step = &cache->step;
    c->planned = NULL;
    for (uint32_t i = 0; i < c->n_parts; i++) {
        uint32_t n_heads = step->part_heads ? step->part_heads[i] : step->n_heads;
        sennit_status status = sn_cache_begin(c->part[i], step->spans, step->n_spans, n_heads, NULL, err);
        if (status != SENNIT_OK) {
            while (i-- > 0)
                sennit_cache_append_abort(c->part[i]);
            return status;
        }
    }
    return SENNIT_OK;
}

/* What parts cannot take back comes when all of them have begun. */
static void composed_step_begun(struct sennit_cache *cache)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = 0; i < c->n_parts; i++)
        if (c->part[i]->ops->step_begun)
            c->part[i]->ops->step_begun(c->part[i]);
    settle_floors(c);
}

static void composed_step_tile(struct sennit_cache *cache, uint32_t span, uint32_t token, uint32_t n_tokens,
                               sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                               size_t token_stride, uint32_t worker)
{
    const struct sn_composed *c = sn_composed_of(cache);
    unsigned i = (unsigned)role >> SN_PART_SHIFT;
    assert(i < c->n_parts);
    role = (sennit_role)((unsigned)role & ((1u << SN_PART_SHIFT) - 1));
    c->part[i]->ops->step_tile(c->part[i], span, token, n_tokens, role, first_head, n_heads, data, token_stride,
                               worker);
}

static void composed_step_commit(struct sennit_cache *cache)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = c->n_parts; i-- > 0;) /* readers before what they read */
        sennit_cache_append_commit(c->part[i]);
    settle_floors(c);
}

static void composed_step_abort(struct sennit_cache *cache)
{
    struct sn_composed *c = mutable_composed(cache);
    for (uint32_t i = c->n_parts; i-- > 0;)
        sennit_cache_append_abort(c->part[i]);
}

static void composed_attend_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    struct sn_composed *c = mutable_composed(cache);
    struct sennit_attend_inputs in = cache->step.in;
    c->planned = c->part[in.part];
    in.part = 0;
    sennit_cache_attend_plan(c->planned, &in, n_items, n_merges);
}

static void composed_attend_item(struct sennit_cache *cache, uint32_t item, uint32_t worker)
{
    struct sennit_cache *part = sn_composed_of(cache)->planned;
    part->ops->attend_item(part, item, worker);
}

static void composed_attend_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker)
{
    struct sennit_cache *part = sn_composed_of(cache)->planned;
    part->ops->attend_merge(part, merge, worker);
}

/* A layer that attends to a window and to everything. */
static const struct sennit_cache_config example_pages = {.family = "plain"};
static const struct sennit_cache_config example_parts[] = {{.family = "window",
                                                            .role = "near",
                                                            .n_kv_heads = 8,
                                                            .d_k = 128,
                                                            .d_v = 128,
                                                            .k_type = SENNIT_F16,
                                                            .v_type = SENNIT_F16,
                                                            .window = {.tokens = 1024},
                                                            .inner = &example_pages,
                                                            .n_inner = 1},
                                                           {.family = "plain",
                                                            .role = "all",
                                                            .n_kv_heads = 8,
                                                            .d_k = 128,
                                                            .d_v = 128,
                                                            .k_type = SENNIT_F16,
                                                            .v_type = SENNIT_F16}};
static const struct sennit_cache_config example = {
    .family = "composed", .inner = example_parts, .n_inner = SN_ARRAY_LEN(example_parts)};

const struct sn_family sn_family_composed = {
    .name = "composed",
    .takes = TAKES,
    .object_bytes = sizeof(struct sn_composed),
    .example = &example,
    .trimmable = true,
    .no_planes = true,
    .check = composed_check,
    .init = composed_init,
    .inherit = composed_inherit,
    .release = composed_release,
    .storage_bytes = composed_storage_bytes,
    .reserve_bytes = composed_reserve_bytes,
    .bytes_per_token = composed_bytes_per_token,
    .row_bytes = composed_row_bytes,
    .left_pad = composed_left_pad,
    .max_append = composed_max_append,
    .can_publish = composed_can_publish,
    .composed = composed_parts,
    .dtype = composed_dtype,
    .merge = composed_merge,
    .trimmed = composed_trimmed,
    .take_row = composed_take_row,
    .keep_rows = composed_keep_rows,
    .row_drop = composed_row_drop,
    .can_trim = composed_can_trim,
    .trim_prepare = composed_trim_prepare,
    .trim_apply = composed_trim_apply,
    .trim_discard = composed_trim_discard,
    .round_begin = composed_round_begin,
    .round_commit = composed_round_commit,
    .round_prepare = composed_round_prepare,
    .round_rollback = composed_round_rollback,
    .begin_prefill = composed_begin_prefill,
    .commit_prefill = composed_commit_prefill,
    .apply_prefill = composed_apply_prefill,
    .end_prefill = composed_end_prefill,
    .n_spans = composed_n_spans,
    .spans = composed_spans,
    .body_bytes = composed_body_bytes,
    .row_body_bytes = composed_row_body_bytes,
    .save_body = composed_save_body,
    .load_body = composed_load_body,
    .step_begin = composed_step_begin,
    .step_begun = composed_step_begun,
    .step_tile = composed_step_tile,
    .step_commit = composed_step_commit,
    .step_abort = composed_step_abort,
    .attend_plan = composed_attend_plan,
    .attend_item = composed_attend_item,
    .attend_merge = composed_attend_merge,
};
