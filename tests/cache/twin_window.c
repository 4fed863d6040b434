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

/* Where rows change on their way through the window, and before and after it is full. */
#define OVER(at, codes)                                                                                              \
    {                                                                                                                \
        .family = "delayed", .start = (at), .inner = (codes), .n_inner = 1                                           \
    }
static const struct sennit_cache_config changing[] = {
    OVER(0, &stores[1]),  OVER(1, &stores[2]),  OVER(3, &stores[3]),   OVER(7, &stores[2]),   OVER(16, &stores[1]),
    OVER(20, &stores[4]), OVER(33, &stores[2]), OVER(50, &stores[3]),  OVER(63, &stores[1]),  OVER(64, &stores[5]),
    OVER(65, &stores[2]), OVER(90, &stores[4]), OVER(130, &stores[2]), OVER(257, &stores[1]),
};

static bool is_delayed(const struct sennit_cache_config *store)
{
    return strcmp(store->family, "delayed") == 0;
}

static bool is_rotated(const struct sennit_cache_config *store)
{
    return strcmp(store->family, "turboquant") == 0;
}

/* What head dimensions are multiples of; 0: no codes. */
static uint32_t step_of(const struct sennit_cache_config *store)
{
    if (is_delayed(store))
        return step_of(&store->inner[0]);
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
    inner.config.start = g->config.inner[0].start;
    inner.config.inner = g->config.inner[0].inner;
    inner.config.n_inner = g->config.inner[0].n_inner;
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

static void twin_change(struct twin *t, bool changed)
{
    t->ops->change(t->inner, changed);
}

#define TWIN                                                                                                         \
    .create = twin_create, .release = twin_release, .append = twin_append, .cut = twin_cut, .attend = twin_attend
static const struct twin_ops twin_window = {TWIN};
static const struct twin_ops twin_changing_window = {TWIN, .change = twin_change};

/* ---- geometries ----------------------------------------------------------------------------------------------- */

static void stored_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large,
                            const struct sennit_cache_config *inner)
{
    static const uint32_t edges[] = {1, 2, 16, 63, 64, 65, 100, 128, 256, 300};
    bool turbo = is_rotated(is_delayed(inner) ? &inner->inner[0] : inner);
    uint32_t step = step_of(inner), most = turbo ? 2 : large ? 3 : 2;
    kv_geometry(rng, g, type, large);
    g->config.inner = inner;
    g->config.n_inner = 1;
    if (step > 0) {
        if (!is_delayed(inner))
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

static void window_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    stored_geometry(rng, g, type, large, &stores[rng_chance(rng, 60) ? 0 : rng_below(rng, SN_ARRAY_LEN(stores))]);
}

static void changing_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    const struct sennit_cache_config *inner = &changing[rng_below(rng, SN_ARRAY_LEN(changing))];
    stored_geometry(rng, g, type, large, inner);
    if (inner->start > 6 && rng_chance(rng, 50)) { /* it has moved on by then: some pages are dead */
        g->config.window.tokens = 1 + rng_below(rng, (uint32_t)inner->start / 2);
        g->config.window.slack = 1 + rng_below(rng, 4);
        g->config.window.n_kept = rng_below(rng, 4);
    }
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

static void changing_small(struct geometry *g)
{
    static const struct sennit_cache_config at_50 = OVER(50, &stores[2]);
    window_small(g);
    g->config.inner = &at_50;
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

/* Bytes of one token in the form's canonical form. */
static size_t blank_token_bytes(const struct sennit_cache *form)
{
    const struct sn_paged *paged = sn_paged_of(form);
    uint8_t *blank = must(calloc(1, paged->paging.data_bytes));
    struct sennit_span_view page[8];
    size_t bytes;
    paged->ops->views(form, blank, 0, 0, 1, page);
    free(find_tested(form->ops->name)->canonical(form, page, paged->ops->n_views, 1, &bytes));
    free(blank);
    return bytes;
}

/* Page by page as the form has it; what is gone is zeros. */
static uint8_t *canonical_pages(const struct sennit_cache *form, const struct sennit_span_view *spans, size_t n_spans,
                                uint64_t n_tokens, uint64_t *end, size_t *n_bytes)
{
    size_t n_views = sn_paged_of(form)->ops->n_views, token_bytes = blank_token_bytes(form);
    uint8_t *out = must(calloc(n_tokens, token_bytes));
    *n_bytes = n_tokens * token_bytes;
    *end = 0;
    for (size_t i = 0; i < n_spans; i += n_views) {
        struct sennit_span_view page[8];
        CHECK(n_views <= SN_ARRAY_LEN(page) && i + n_views <= n_spans && spans[i].pos >= *end);
        uint64_t pos = spans[i].pos, n = spans[i].n_tokens;
        for (size_t v = 0; v < n_views; v++) {
            page[v] = spans[i + v];
            CHECK(page[v].pos == pos && page[v].n_tokens == n);
            page[v].pos = 0;
        }
        size_t bytes;
        uint8_t *part = find_tested(form->ops->name)->canonical(form, page, n_views, n, &bytes);
        CHECK(bytes == n * token_bytes);
        memcpy(out + pos * token_bytes, part, bytes);
        free(part);
        *end = pos + n;
    }
    return out;
}

static uint8_t *window_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans,
                                 size_t n_spans, uint64_t n_tokens, size_t *n_bytes)
{
    const struct sn_forms *f = &sn_window_of(like)->forms;
    bool plain = !f->encoded || (n_spans == 0 ? n_tokens < f->start : spans[0].type == f->plain->config.k_type);
    uint64_t end;
    *n_bytes = 0;
    if (n_tokens == 0)
        return NULL;
    uint8_t *out = canonical_pages(plain ? f->plain : f->encoded, spans, n_spans, n_tokens, &end, n_bytes);
    CHECK(end == n_tokens || like->config.window.tokens == 1); /* one, trimmed: the next query sees itself only */
    if (plain && f->encoded && n_tokens >= f->start) {         /* as it is about to be */
        uint8_t *changed = changed_canonical(f, out, n_tokens, n_bytes);
        free(out);
        out = changed;
    }
    struct geometry g = {.config = like->config};
    window_forget(&g, n_tokens, out, *n_bytes);
    return out;
}

static void walk_lists(const struct sennit_cache *cache, uint32_t row,
                       void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    const struct sn_row *r = &cache->rows[row];
    const struct sn_page_list *list = r->store;
    const struct sn_paging *paging = &sn_paged_of(sn_form(&sn_window_of(cache)->forms, r))->paging;
    if (!list)
        return;
    visit(ctx, list, sn_list_bytes(list->cap));
    for (uint32_t i = 0; i < list->n_pages; i++) {
        visit(ctx, list->page[i], sn_page_cost(list->page[i]));
        CHECK(list->page[i]->data_bytes == paging->data_bytes); /* all of one form */
    }
    uint64_t pages = sn_pages_of(paging, r->n_tokens);
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

/* Variants 1 .. 5 change elsewhere, the others are the window's. */
static const char *changing_spoil(unsigned variant, struct sn_family *family)
{
    return variant <= 5 ? spoil_start(variant, family, &sn_family_window) : window_spoil(variant - 5, family);
}

/* The second oracle is whatever stores the pages: open_oracle says. */
#define COMMON                                                                                                       \
    .family = "window", .tiny = window_tiny, .paged = true, .bounded_spans = true, .retention = window_retention,    \
    .forget = window_forget, .oracles = {"window", "plain"}, .open_oracle = open_banded, .walk = walk_lists,         \
    .canonical = window_canonical

const struct tested_family tested_window = {
    .name = "window",
    .twin = &twin_window,
    .geometry = window_geometry,
    .small = window_small,
    .spoil = window_spoil,
    COMMON,
};
const struct tested_family tested_window_delayed = {
    .name = "window-delayed",
    .twin = &twin_changing_window,
    .geometry = changing_geometry,
    .small = changing_small,
    .spoil = changing_spoil,
    .changes_precision = true,
    COMMON,
};
