/* A window in the textbook's words: every key is kept, and a band mask says which ones a query sees. The rest is the
 * twin of the family that stores the pages, with its bound: fewer keys are summed than that bound allows for. Donors,
 * which come with a mask of their own, see what it shows. */
#include <stdlib.h>

#include "cache/twin.h"
#include "cache/window.h"

/* ---- the family that stores the pages ------------------------------------------------------------------------- */

static const struct sennit_cache_config stores[] = {
    {.family = "plain"},
    {.family = "affine", .code = {.k_bits = 8, .v_bits = 8, .group = 32}},
    {.family = "affine", .code = {.k_bits = 8, .v_bits = 4, .group = 32}},
    {.family = "affine", .code = {.k_bits = 4, .v_bits = 4, .group = 64}},
    {.family = "turboquant"},
    {.family = "turboquant", .code = {.k_bits = 4, .v_bits = 2, .group = 32}},
};

static bool is_rotated(const struct sennit_cache_config *store)
{
    return strcmp(store->family, "turboquant") == 0;
}

/* What head dimensions are multiples of; 0: no codes. */
static uint32_t step_of(const struct sennit_cache_config *store)
{
    return is_rotated(store) ? 64 : store->code.group;
}

static const struct tested_family *stored_by(const struct sennit_cache_config *config)
{
    const struct tested_family *f = find_tested(config->inner[0].family);
    CHECK(f);
    return f;
}

static struct geometry inner_geometry(const struct geometry *g)
{
    struct geometry inner = *g;
    inner.config.family = g->config.inner[0].family;
    inner.config.code = g->config.inner[0].code;
    inner.config.inner = NULL;
    inner.config.n_inner = 0;
    inner.config.window.tokens = inner.config.window.slack = inner.config.window.n_kept = 0;
    return inner;
}

/* ---- the twin ------------------------------------------------------------------------------------------------- */

struct twin {
    const struct geometry *g;
    struct geometry *inner_g;
    const struct twin_ops *ops;
    struct twin *inner; /* of those ops */
};

static struct twin *twin_create(const struct geometry *g)
{
    struct twin *t = must(calloc(1, sizeof *t));
    t->g = g;
    t->inner_g = must(malloc(sizeof *t->inner_g));
    *t->inner_g = inner_geometry(g);
    t->ops = stored_by(&g->config)->twin;
    t->inner = t->ops->create(t->inner_g);
    return t;
}

static void twin_release(struct twin *t)
{
    if (!t)
        return;
    t->ops->release(t->inner);
    free(t->inner_g);
    free(t);
}

static void twin_append(struct twin *t, uint64_t token)
{
    t->ops->append(t->inner, token);
}

static void twin_cut(struct twin *t, uint64_t n_tokens)
{
    t->ops->cut(t->inner, n_tokens);
}

static double twin_attend(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                          const float *sink, double *out)
{
    uint64_t pos = n_keys - 1, width = t->g->config.window.tokens, n_kept = t->g->config.window.n_kept;
    uint8_t *band = NULL;
    t->inner_g->soft_cap = t->g->soft_cap; /* donors have none */
    if (!mask && n_keys > 0) {
        band = must(malloc(n_keys));
        for (uint64_t i = 0; i < n_keys; i++)
            band[i] = i < n_kept || pos - i < width;
    }
    double bound = t->ops->attend(t->inner, q, head, n_keys, mask ? mask : band, sink, out);
    free(band);
    return bound;
}

static const struct twin_ops twin_window = {
    .create = twin_create,
    .release = twin_release,
    .append = twin_append,
    .cut = twin_cut,
    .attend = twin_attend,
};

/* ---- geometries ----------------------------------------------------------------------------------------------- */

static void window_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    static const uint32_t edges[] = {1, 2, 16, 63, 64, 65, 100, 128, 256, 300};
    const struct sennit_cache_config *inner = &stores[rng_chance(rng, 60) ? 0 : rng_below(rng, SN_ARRAY_LEN(stores))];
    uint32_t step = step_of(inner), most = is_rotated(inner) ? 2 : large ? 3 : 2;
    kv_geometry(rng, g, type, large);
    g->config.inner = inner;
    g->config.n_inner = 1;
    if (step > 0) {
        g->config.k_type = g->config.v_type = 0;
        g->config.d_k = step * (1 + rng_below(rng, most));
        g->config.d_v = step * (1 + rng_below(rng, most));
    }
    g->config.window.tokens =
        rng_chance(rng, 50) ? 1 + rng_below(rng, 40) : edges[rng_below(rng, SN_ARRAY_LEN(edges))];
    g->config.window.slack = rng_chance(rng, 20) ? 0 : 1 + rng_below(rng, 30);
    g->config.window.n_kept = rng_chance(rng, 50)   ? 0
                              : rng_chance(rng, 70) ? 1 + rng_below(rng, 8)
                                                    : rng_below(rng, 150);
}

static void window_tiny(struct rng *rng, struct geometry *g)
{
    uint32_t step = step_of(&g->config.inner[0]);
    g->config.n_kv_heads = 1;
    g->config.d_k = g->config.d_v = step ? step : 1 + rng_below(rng, 3);
}

/* A window that the fixtures fill at most in the test that feeds thousands of tokens. */
static void window_small(struct geometry *g)
{
    g->config.inner = &stores[0];
    g->config.n_inner = 1;
    g->config.window.tokens = 1500;
    g->config.window.slack = 50;
    g->config.window.n_kept = 70;
    g->config.max_span = 1100;
}

/* ---- wrong variants ------------------------------------------------------------------------------------------- */

static sennit_status narrow_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    cache->shape.window = cache->config.window.tokens > 1 ? cache->config.window.tokens - 1 : 1;
    return sn_family_window.step_begin(cache, err);
}

static sennit_status wide_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    cache->shape.window = cache->config.window.tokens + 1;
    return sn_family_window.step_begin(cache, err);
}

static sennit_status forgetful_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    cache->shape.n_kept = 0;
    return sn_family_window.step_begin(cache, err);
}

static sennit_status sharing_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    uint32_t w = cache->config.window.tokens, kept = cache->config.window.n_kept;
    cache->shape.window = w > kept ? w - kept : 1;
    return sn_family_window.step_begin(cache, err);
}

static void sinkless_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    cache->step.in.sinks = NULL;
    sn_family_window.attend_plan(cache, n_items, n_merges);
}

static const char *window_spoil(unsigned variant, struct sn_family *family)
{
    switch (variant) {
    case 1:
        family->step_begin = narrow_begin;
        return "W - 1 keys";
    case 2:
        family->step_begin = wide_begin;
        return "W + 1 keys";
    case 3:
        family->step_begin = forgetful_begin;
        return "the first tokens are stored and not seen";
    case 4:
        family->step_begin = sharing_begin;
        return "kept tokens take the place of others in the window";
    case 5:
        family->attend_plan = sinkless_plan;
        return "learned sinks left out";
    default:
        return NULL;
    }
}

/* ---- what is kept --------------------------------------------------------------------------------------------- */

static struct retention window_retention(const struct geometry *g, uint64_t high)
{
    const struct sennit_cache_config *c = &g->config;
    uint64_t slack = c->window.slack ? c->window.slack : 64, width = c->window.tokens, n_kept = c->window.n_kept;
    uint64_t start = high > width + slack - 1 ? high - (width + slack - 1) : 0;
    if (start <= n_kept)
        return (struct retention){0}; /* nothing but kept tokens lies before it */
    return (struct retention){.gap = n_kept, .gap_end = start, .trim_floor = start + width - 1};
}

/* The next query, at n_tokens, sees n_tokens - W + 1 and on. */
static void window_forget(const struct geometry *g, uint64_t n_tokens, uint8_t *canonical, size_t n_bytes)
{
    uint64_t width = g->config.window.tokens, n_kept = g->config.window.n_kept;
    for (uint64_t t = n_kept; t + width <= n_tokens; t++)
        memset(canonical + t * (n_bytes / n_tokens), 0, n_bytes / n_tokens);
}

/* Bytes of one token in the storing family's canonical form. */
static size_t blank_token_bytes(const struct sn_window *c, const struct tested_family *inner)
{
    const struct sn_paged *paged = sn_paged_of(c->inner);
    uint8_t *blank = must(calloc(1, paged->paging.data_bytes));
    struct sennit_span_view page[8];
    size_t bytes;
    paged->ops->views(c->inner, blank, 0, 0, 1, page);
    free(inner->canonical(c->inner, page, paged->ops->n_views, 1, &bytes));
    free(blank);
    return bytes;
}

/* Page by page as the storing family has it. */
static uint8_t *window_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans,
                                 size_t n_spans, uint64_t n_tokens, size_t *n_bytes)
{
    const struct sn_window *c = sn_window_of(like);
    const struct tested_family *inner = stored_by(&like->config);
    size_t n_views = sn_paged_of(c->inner)->ops->n_views, token_bytes = 0;
    uint8_t *out = NULL;
    uint64_t next = 0;
    for (size_t i = 0; i < n_spans; i += n_views) {
        struct sennit_span_view page[8];
        CHECK(n_views <= SN_ARRAY_LEN(page) && i + n_views <= n_spans && spans[i].pos >= next);
        uint64_t pos = spans[i].pos, n = spans[i].n_tokens;
        for (size_t v = 0; v < n_views; v++) {
            page[v] = spans[i + v];
            CHECK(page[v].pos == pos && page[v].n_tokens == n);
            page[v].pos = 0;
        }
        size_t bytes;
        uint8_t *part = inner->canonical(c->inner, page, n_views, n, &bytes);
        token_bytes = bytes / n;
        if (!out)
            out = must(calloc(n_tokens, token_bytes));
        memcpy(out + pos * token_bytes, part, bytes);
        free(part);
        next = pos + n;
    }
    CHECK(next == n_tokens || like->config.window.tokens == 1);
    if (!out && n_tokens > 0) { /* a window of one, trimmed: the next query sees itself only */
        token_bytes = blank_token_bytes(c, inner);
        out = must(calloc(n_tokens, token_bytes));
    }
    *n_bytes = n_tokens * token_bytes;
    if (out) {
        struct geometry g = {.config = like->config};
        window_forget(&g, n_tokens, out, *n_bytes);
    }
    return out;
}

static void walk_lists(const struct sennit_cache *cache, uint32_t row,
                       void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    const struct sn_page_list *list = cache->rows[row].store;
    const struct sn_paging *paging = sn_window_of(cache)->listing.paging;
    if (!list)
        return;
    visit(ctx, list, sn_list_bytes(list->cap));
    for (uint32_t i = 0; i < list->n_pages; i++)
        visit(ctx, list->page[i], sn_page_cost(list->page[i]));
    uint64_t pages = sn_pages_of(paging, cache->rows[row].n_tokens);
    if (!cache->step.open) /* no page beyond the row's end */
        CHECK(list->n_pages == (pages <= list->n_kept ? pages : list->n_kept + (pages - list->first)));
}

/* Unlimited storage under the driver's band mask. */
static void open_banded(struct sennit_cache **out, struct sennit_pool *pool, struct geometry *g)
{
    struct sn_attend_shape band = {.window = g->config.window.tokens, .n_kept = g->config.window.n_kept};
    *g = inner_geometry(g);
    g->config.page_tokens = 0;
    OK(sennit_cache_create(out, pool, &g->config, 1, err));
    (*out)->shape.window = band.window;
    (*out)->shape.n_kept = band.n_kept;
}

const struct tested_family tested_window = {
    .name = "window",
    .twin = &twin_window,
    .geometry = window_geometry,
    .small = window_small,
    .tiny = window_tiny,
    .paged = true,
    .bounded_spans = true,
    .retention = window_retention,
    .forget = window_forget,
    .spoil = window_spoil,
    .oracles = {"window", "plain"}, /* or whatever stores the pages: open_oracle says */
    .open_oracle = open_banded,
    .walk = walk_lists,
    .canonical = window_canonical,
};
