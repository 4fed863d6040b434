#include "cache_feed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a step hands over ------------------------------------------------------------------------------------ */

static void add_part(struct feed *f, sennit_role role, uint32_t n_heads, uint32_t d)
{
    for (uint32_t i = 0; i < f->n_parts; i++)
        if (f->parts[i].role == role)
            return;
    if (n_heads > 0 && d > 0 && f->n_parts < FEED_MAX_PARTS)
        f->parts[f->n_parts++] = (struct feed_part){role, n_heads, d};
}

/* The roles of one configuration, and of the parts that it is made of. */
static void add_parts(struct feed *f, const struct sennit_cache_config *c, unsigned part, bool composed)
{
    add_part(f, SENNIT_PART(part, SENNIT_ROLE_KEY), c->n_kv_heads, c->d_k);
    add_part(f, SENNIT_PART(part, SENNIT_ROLE_VALUE), c->n_kv_heads, c->d_v);
    add_part(f, SENNIT_PART(part, SENNIT_ROLE_LATENT), 1, c->mla.d_latent);
    add_part(f, SENNIT_PART(part, SENNIT_ROLE_ROPE_KEY), 1, c->mla.d_rope);
    add_part(f, SENNIT_PART(part, SENNIT_ROLE_INDEX_KEY), 1, c->index.d_index);
    const char *kind = c->recurrent.kind;
    uint32_t heads = c->recurrent.n_heads;
    add_part(f, SENNIT_PART(part, SENNIT_ROLE_CONV_IN), c->recurrent.n_channels, 1);
    add_part(f, SENNIT_PART(part, SENNIT_ROLE_DECAY), kind && strcmp(kind, "deltanet") == 0 ? heads : 0, 1);
    add_part(f, SENNIT_PART(part, SENNIT_ROLE_BETA), kind && strcmp(kind, "deltanet") == 0 ? heads : 0, 1);
    add_part(f, SENNIT_PART(part, SENNIT_ROLE_DT), kind && strcmp(kind, "mamba2") == 0 ? heads : 0, 1);
    if (f->n_heads == 0) {
        bool conv_only = kind && heads == 0;
        f->n_heads = c->n_kv_heads ? c->n_kv_heads : c->mla.d_latent ? 4 : kind && heads ? heads : conv_only;
        f->d_query = c->n_kv_heads ? c->d_k : c->mla.d_latent + c->mla.d_rope;
        f->d_out = c->n_kv_heads     ? c->d_v
                   : c->mla.d_latent ? c->mla.d_latent
                   : conv_only       ? c->recurrent.n_channels
                                     : c->recurrent.d_head;
    }
    if (c->index.n_heads * c->index.d_index > f->n_index)
        f->n_index = c->index.n_heads * c->index.d_index;
    for (uint32_t i = 0; composed && i < c->n_inner; i++)
        add_parts(f, &c->inner[i], i, false);
}

static void shape(struct sennit_cache_config *c, uint32_t n_kv_heads, uint32_t d)
{
    if (c->n_kv_heads && n_kv_heads)
        c->n_kv_heads = n_kv_heads;
    if (c->d_k && d)
        c->d_k = d;
    if (c->d_v && d)
        c->d_v = d;
}

sennit_status feed_open(struct feed *f, const char *family, struct sennit_pool *pool, uint32_t n_kv_heads, uint32_t d,
                        struct sennit_error *err)
{
    *f = (struct feed){0};
    sennit_status status = sennit_cache_family_info(family, &f->info, err);
    if (status != SENNIT_OK)
        return status;
    if (!f->info.example) {
        *err = (struct sennit_error){.code = SENNIT_INVALID};
        snprintf(err->message, sizeof err->message, "family '%s' has no example in its table", family);
        return SENNIT_INVALID;
    }
    f->config = *f->info.example;
    shape(&f->config, n_kv_heads, d);
    f->config.max_span = FEED_SPAN;
    for (uint32_t i = 0; i < f->config.n_inner && i < FEED_MAX_INNER; i++) {
        f->inner[i] = f->config.inner[i];
        shape(&f->inner[i], n_kv_heads, d);
    }
    f->config.inner = f->config.n_inner ? f->inner : NULL;
    if (f->info.fields & SENNIT_FIELDS_SOURCE) {
        struct sennit_cache_family_info plain;
        status = sennit_cache_family_info("plain", &plain, err);
        if (status != SENNIT_OK)
            return status;
        struct sennit_cache_config source = *plain.example;
        shape(&source, n_kv_heads, d);
        status = sennit_cache_create(&f->source, pool, &source, 1, err);
        if (status != SENNIT_OK)
            return status;
        f->config.source = f->source;
        f->mirror = calloc(1, sizeof *f->mirror);
        if (!f->mirror)
            return SENNIT_NOMEM;
        add_parts(f, &source, 0, false);
    }
    add_parts(f, &f->config, 0, f->info.composed);
    size_t widest = 1;
    for (uint32_t i = 0; i < f->n_parts; i++) {
        size_t width = (size_t)f->parts[i].n_heads * f->parts[i].d;
        widest = width > widest ? width : widest;
    }
    f->data = malloc(widest * FEED_SPAN * sizeof *f->data);
    for (size_t i = 0; f->data && i < widest * FEED_SPAN; i++)
        f->data[i] = 0.25f + 0.5f * (float)(i % 61) / 61; /* a gate, a step width and a number alike */
    return SENNIT_OK;
}

void feed_close(struct feed *f)
{
    if (f->mirror)
        sennit_cache_dispose(f->mirror);
    free(f->mirror);
    sennit_cache_dispose(&f->source);
    free(f->data);
    *f = (struct feed){0};
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static void hand_over(const struct feed *f, struct sennit_cache *cache, uint32_t span, uint32_t n_tokens)
{
    for (uint32_t i = 0; i < f->n_parts; i++) {
        const struct feed_part *p = &f->parts[i];
        size_t width = (size_t)p->n_heads * p->d;
        for (uint32_t t = 0, n; t < n_tokens; t += n) {
            n = n_tokens - t < FEED_SPAN ? n_tokens - t : FEED_SPAN;
            sennit_cache_append_tile(cache, span, t, n, p->role, 0, p->n_heads, f->data, width, 0);
        }
    }
}

static sennit_status begin(const struct feed *f, struct sennit_cache *cache, const struct sennit_span *spans,
                           uint32_t n_spans, struct sennit_error *err)
{
    sennit_status status = sennit_cache_append_begin(cache, spans, n_spans, f->n_heads, err);
    for (uint32_t i = 0; i < n_spans && status == SENNIT_OK; i++)
        hand_over(f, cache, i, spans[i].n_tokens);
    return status;
}

/* A serial cache of n tokens, out of the old mirror's row where there is one: all tokens are alike. */
static sennit_status mirror_row(const struct feed *f, const struct sennit_cache *old, uint32_t r, uint64_t n,
                                struct sennit_cache **row, struct sennit_error *err)
{
    bool there = old && r < sennit_cache_batch_size(old);
    sennit_status status = sennit_cache_clone(there ? old : f->source, there ? r : 0, row, err);
    if (status == SENNIT_OK && sennit_cache_row_offset(*row, 0) > n)
        status = sennit_cache_trim(*row, sennit_cache_row_offset(*row, 0) - n, false, err);
    while (status == SENNIT_OK && sennit_cache_row_offset(*row, 0) < n) {
        uint64_t pos = sennit_cache_row_offset(*row, 0), left = n - pos;
        struct sennit_span span = {.pos = pos, .n_tokens = (uint32_t)(left < FEED_SPAN ? left : FEED_SPAN)};
        status = begin(f, *row, &span, 1, err);
        if (status == SENNIT_OK)
            sennit_cache_append_commit(*row);
    }
    return status;
}

static bool level(const struct sennit_cache *a, const struct sennit_cache *b)
{
    uint32_t n = sennit_cache_batch_size(a);
    bool same = sennit_cache_batch_size(b) == n;
    for (uint32_t r = 0; same && r < n; r++)
        same = sennit_cache_row_offset(a, r) == sennit_cache_row_offset(b, r);
    return same;
}

/* The mirror has the cache's rows. */
static sennit_status keep_up(const struct feed *f, const struct sennit_cache *cache, struct sennit_error *err)
{
    uint32_t n_rows = sennit_cache_batch_size(cache);
    if (*f->mirror && level(*f->mirror, cache)) { /* the step before was given up, if there was one */
        sennit_cache_append_abort(*f->mirror);
        return SENNIT_OK;
    }
    if (*f->mirror)
        sennit_cache_append_commit(*f->mirror);
    if (*f->mirror && level(*f->mirror, cache))
        return SENNIT_OK;
    struct sennit_cache *fresh = NULL, **rows = calloc((size_t)n_rows + 1, sizeof(struct sennit_cache *));
    sennit_status status = rows ? sennit_cache_make_empty_batch(f->source, &fresh, err) : SENNIT_NOMEM;
    for (uint32_t r = 0; r < n_rows && status == SENNIT_OK; r++)
        status = mirror_row(f, *f->mirror, r, sennit_cache_row_offset(cache, r), &rows[r], err);
    if (status == SENNIT_OK)
        status = sennit_cache_merge_rows(fresh, (const struct sennit_cache *const *)rows, n_rows, err);
    for (uint32_t r = 0; rows && r < n_rows; r++)
        sennit_cache_dispose(&rows[r]);
    free(rows);
    sennit_cache_dispose(f->mirror);
    *f->mirror = fresh;
    return status;
}

sennit_status feed_begin(const struct feed *f, struct sennit_cache *cache, const uint32_t *n,
                         struct sennit_error *err)
{
    uint32_t n_rows = sennit_cache_batch_size(cache), n_spans = 0, first = 0;
    struct sennit_span *spans = calloc(n_rows + 1, sizeof *spans);
    if (!spans || !f->data) {
        free(spans);
        return SENNIT_NOMEM;
    }
    for (uint32_t row = 0; row < n_rows; row++) {
        if (n[row] == 0)
            continue;
        spans[n_spans++] = (struct sennit_span){
            .row = row, .pos = sennit_cache_row_offset(cache, row), .n_tokens = n[row], .first_token = first};
        first += n[row];
    }
    sennit_status status = f->source ? keep_up(f, cache, err) : SENNIT_OK;
    if (status == SENNIT_OK)
        status = begin(f, f->source ? *f->mirror : cache, spans, n_spans, err);
    if (status == SENNIT_OK && f->source)
        status = sennit_cache_append_begin(cache, spans, n_spans, f->n_heads, err);
    free(spans);
    return status;
}

sennit_status feed_row(const struct feed *f, struct sennit_cache *cache, uint32_t row, uint64_t n_tokens,
                       struct sennit_error *err)
{
    uint32_t *n = calloc((size_t)sennit_cache_batch_size(cache) + 1, sizeof *n);
    sennit_status status = n ? SENNIT_OK : SENNIT_NOMEM;
    for (uint64_t left = n_tokens; left > 0 && status == SENNIT_OK; left -= n[row]) {
        uint64_t most = sennit_cache_max_append_tokens(cache, row);
        most = most < left ? most : left;
        n[row] = (uint32_t)(most < FEED_SPAN ? most : FEED_SPAN);
        status = feed_begin(f, cache, n, err);
        if (status == SENNIT_OK)
            sennit_cache_append_commit(cache);
    }
    free(n);
    return status;
}
