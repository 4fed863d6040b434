/* A change of precision in the textbook's words: a query before `start` attends to what the plain type keeps of every
 * token, one at `start` or later to what the codes make of them: of the plain type's numbers for tokens before
 * `start`, of the tokens themselves from there on. Both are the twins of the families that store the two forms, with
 * their bounds. */
#include <stdlib.h>

#include "cache/delayed.h"
#include "cache/twin.h"
#include "cache/window.h"
#include "tensor/traits.h"

/* ---- the forms ------------------------------------------------------------------------------------------------ */

static const struct sennit_cache_config codes[] = {
    {.family = "affine", .code = {.k_bits = 8, .v_bits = 8, .group = 32}},
    {.family = "affine", .code = {.k_bits = 8, .v_bits = 4, .group = 32}},
    {.family = "affine", .code = {.k_bits = 4, .v_bits = 4, .group = 64}},
};
static const struct sennit_cache_config rotated[] = {
    {.family = "turboquant"}, /* 8 and 3 bits */
    {.family = "turboquant", .code = {.k_bits = 8, .v_bits = 4, .group = 32}},
    {.family = "turboquant", .code = {.k_bits = 4, .v_bits = 2}},
    {.family = "turboquant", .code = {.k_bits = 5, .v_bits = 8}},
};

static struct geometry form_geometry(const struct geometry *g, bool encoded)
{
    struct geometry form = *g;
    form.config.family = encoded ? g->config.inner[0].family : "plain";
    if (encoded) {
        form.config.code = g->config.inner[0].code;
        form.config.k_type = form.config.v_type = 0;
    }
    form.config.start = 0;
    form.config.inner = NULL;
    form.config.n_inner = 0;
    return form;
}

/* ---- the twin ------------------------------------------------------------------------------------------------- */

struct twin {
    const struct geometry *g;
    struct geometry form_g[2]; /* plain, encoded */
    const struct twin_ops *ops[2];
    struct twin *form[2]; /* of those ops */
    uint64_t n;
    bool changed;
};

static struct twin *twin_create(const struct geometry *g)
{
    struct twin *t = must(calloc(1, sizeof *t));
    t->g = g;
    for (int i = 0; i < 2; i++) {
        t->form_g[i] = form_geometry(g, i == 1);
        t->ops[i] = find_tested(t->form_g[i].config.family)->twin;
        t->form[i] = t->ops[i]->create(&t->form_g[i]);
    }
    return t;
}

static void twin_release(struct twin *t)
{
    for (int i = 0; t && i < 2; i++)
        t->ops[i]->release(t->form[i]);
    free(t);
}

static void twin_append(struct twin *t, uint64_t token)
{
    bool before = t->n < t->g->config.start;
    t->n++;
    if (!before) {
        t->ops[1]->append(t->form[1], token);
        return;
    }
    t->ops[0]->append(t->form[0], token);
    t->ops[1]->append_stored(t->form[1], token, t->g->config.k_type);
}

static void twin_cut(struct twin *t, uint64_t n_tokens)
{
    uint64_t start = t->g->config.start;
    t->ops[0]->cut(t->form[0], n_tokens < start ? n_tokens : t->n < start ? t->n : start);
    t->ops[1]->cut(t->form[1], n_tokens);
    t->n = n_tokens;
}

static void twin_change(struct twin *t, bool changed)
{
    t->changed = changed;
}

/* The query of a step stands at n_keys - 1. */
static double twin_attend(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                          const float *sink, double *out)
{
    bool encoded = n_keys > t->g->config.start || t->changed;
    ((struct twin *)(uintptr_t)t)->form_g[encoded].soft_cap = t->g->soft_cap; /* donors have none */
    return t->ops[encoded]->attend(t->form[encoded], q, head, n_keys, mask, sink, out);
}

static const struct twin_ops twin_delayed = {
    .create = twin_create,
    .release = twin_release,
    .append = twin_append,
    .cut = twin_cut,
    .attend = twin_attend,
    .change = twin_change,
};

/* ---- geometries ----------------------------------------------------------------------------------------------- */

static uint64_t random_start(struct rng *rng)
{
    static const uint32_t edges[] = {1, 16, 63, 64, 65, 128, 256, 257};
    uint32_t kind = rng_below(rng, 100);
    return kind < 8    ? 0
           : kind < 60 ? 1 + rng_below(rng, 60)
           : kind < 85 ? edges[rng_below(rng, 8)]
                       : rng_below(rng, 300);
}

static void over_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large,
                          const struct sennit_cache_config *inner)
{
    kv_geometry(rng, g, type, large);
    g->config.inner = inner;
    g->config.n_inner = 1;
    g->config.start = random_start(rng);
}

static void affine_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    const struct sennit_cache_config *inner = &codes[rng_below(rng, SN_ARRAY_LEN(codes))];
    uint32_t step = inner->code.group;
    over_geometry(rng, g, type, large, inner);
    g->config.d_k = step * (1 + rng_below(rng, large ? 3 : 2));
    g->config.d_v = step * (1 + rng_below(rng, large ? 3 : 2));
}

static void turbo_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    uint32_t most = large ? 3 : rng_chance(rng, 80) ? 1 : 2;
    over_geometry(rng, g, type, large, &rotated[rng_below(rng, SN_ARRAY_LEN(rotated))]);
    g->config.d_k = 64u << rng_below(rng, most);
    g->config.d_v = 64u << rng_below(rng, most);
}

static void affine_tiny(struct rng *rng, struct geometry *g)
{
    (void)rng;
    g->config.n_kv_heads = 1;
    g->config.d_k = g->config.d_v = g->config.inner[0].code.group;
}

static void turbo_tiny(struct rng *rng, struct geometry *g)
{
    (void)rng;
    g->config.n_kv_heads = 1;
    g->config.d_k = g->config.d_v = 64;
}

static void affine_small(struct geometry *g)
{
    g->config.inner = &codes[1];
    g->config.n_inner = 1;
    g->config.start = 50;
    g->config.max_span = 9000;
}

static void turbo_small(struct geometry *g)
{
    affine_small(g);
    g->config.inner = &rotated[1];
    g->config.n_kv_heads = 1;
    g->config.d_k = g->config.d_v = 64;
}

/* ---- wrong variants ------------------------------------------------------------------------------------------- */

/* Where the variant changes precision instead. Rows alone do the same; what the configuration says is the textbook's
 * alone. */
static uint64_t (*wrong_start)(uint64_t start);
static const struct sn_family *rightly; /* the family that the variant is made of */

static uint64_t one_late(uint64_t start)
{
    return start + 1;
}
static uint64_t one_early(uint64_t start)
{
    return start > 0 ? start - 1 : 0;
}
static uint64_t never(uint64_t start)
{
    (void)start;
    return SN_FORMS_MAX_START;
}
static uint64_t at_once(uint64_t start)
{
    (void)start;
    return 0;
}
static uint64_t at_whole_lanes(uint64_t start)
{
    return sn_round_up(start, 16);
}

static void misplace(const struct sennit_cache *cache)
{
    bool window = rightly == &sn_family_window;
    const struct sennit_cache_config *config = window ? &cache->config.inner[0] : &cache->config;
    const struct sn_forms *f = window ? &sn_window_of(cache)->forms : &sn_delayed_of(cache)->forms;
    ((struct sn_forms *)(uintptr_t)f)->start = wrong_start(config->start);
}

static sennit_status wrong_init(struct sennit_cache *cache, struct sennit_error *err)
{
    sennit_status status = rightly->init(cache, err);
    misplace(cache);
    return status;
}

static uint64_t wrong_max_append(const struct sennit_cache *cache, uint32_t row)
{
    misplace(cache);
    return rightly->max_append(cache, row);
}

static sennit_status wrong_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    misplace(cache);
    return rightly->step_begin(cache, err);
}

const char *spoil_start(unsigned variant, struct sn_family *family, const struct sn_family *right)
{
    static const struct {
        uint64_t (*start)(uint64_t start);
        const char *what;
    } wrong[] = {
        {one_late, "the query at start reads plain keys"},
        {one_early, "the query before start reads encoded keys"},
        {never, "the change is accepted and never made"},
        {at_once, "encoded from the first token"},
        {at_whole_lanes, "start rounded up to what a kernel likes"},
    };
    if (variant == 0 || variant > SN_ARRAY_LEN(wrong))
        return NULL;
    rightly = right;
    wrong_start = wrong[variant - 1].start;
    family->init = wrong_init;
    family->max_append = wrong_max_append;
    family->step_begin = wrong_begin;
    return wrong[variant - 1].what;
}

static const char *delayed_spoil(unsigned variant, struct sn_family *family)
{
    return spoil_start(variant, family, &sn_family_delayed);
}

/* ---- storage -------------------------------------------------------------------------------------------------- */

/* Pages of both forms know their size. */
static void walk_delayed(const struct sennit_cache *cache, uint32_t row,
                         void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    const struct sn_forms *f = &sn_delayed_of(cache)->forms;
    const struct sn_paging *paging = &sn_paged_of(sn_form(f, &cache->rows[row]))->paging;
    walk_pages(cache, row, paging, visit, ctx);
    for (const struct sn_table *t = cache->rows[row].store; t; t = t->parent)
        for (uint32_t i = 0; i < t->n_pages; i++)
            CHECK(t->page[i]->data_bytes == paging->data_bytes);
}

uint8_t *changed_canonical(const struct sn_forms *f, const uint8_t *plain, uint64_t n_tokens, size_t *n_bytes)
{
    const struct sn_paged *to = sn_paged_of(f->encoded);
    const struct sennit_cache_config *c = &f->plain->config;
    size_t nk = (size_t)c->n_kv_heads * c->d_k, nv = (size_t)c->n_kv_heads * c->d_v, size = to->paging.page_tokens;
    size_t n_pages = sn_div_up(n_tokens, size), n_views = to->ops->n_views;
    uint8_t *pages = must(calloc(n_pages, to->paging.data_bytes));
    struct sennit_span_view *views = must(calloc(n_pages * n_views, sizeof *views));
    float *x = must(malloc((nk + nv) * sizeof *x));
    for (uint64_t t = 0; t < n_tokens; t++) {
        uint8_t *page = pages + t / size * to->paging.data_bytes;
        CHECK(sn_dequantize_row(c->k_type, plain + t * kv_canonical_token_bytes(c), nk + nv, x));
        to->ops->store(f->encoded, page, t % size, SENNIT_ROLE_KEY, 0, c->n_kv_heads, x, 0);
        to->ops->store(f->encoded, page, t % size, SENNIT_ROLE_VALUE, 0, c->n_kv_heads, x + nk, 0);
    }
    for (size_t p = 0; p < n_pages; p++) {
        uint64_t left = n_tokens - p * size;
        to->ops->views(f->encoded, pages + p * to->paging.data_bytes, 0, p * size, left < size ? left : size,
                       views + p * n_views);
    }
    uint8_t *out =
        find_tested(f->encoded->ops->name)->canonical(f->encoded, views, n_pages * n_views, n_tokens, n_bytes);
    free(pages);
    free(views);
    free(x);
    return out;
}

/* What a later query reads: of a row that stands at `start`, the codes, whether they are made already or not. */
static uint8_t *delayed_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans,
                                  size_t n_spans, uint64_t n_tokens, size_t *n_bytes)
{
    const struct sn_forms *f = &sn_delayed_of(like)->forms;
    *n_bytes = 0;
    if (n_tokens == 0)
        return NULL;
    if (spans[0].type != f->plain->config.k_type)
        return find_tested(f->encoded->ops->name)->canonical(f->encoded, spans, n_spans, n_tokens, n_bytes);
    uint8_t *plain = kv_canonical(f->plain, spans, n_spans, n_tokens, n_bytes);
    if (n_tokens < f->start)
        return plain;
    uint8_t *out = changed_canonical(f, plain, n_tokens, n_bytes);
    free(plain);
    return out;
}

#define COMMON                                                                                                       \
    .family = "delayed", .twin = &twin_delayed, .paged = true, .changes_precision = true, .bounded_spans = true,     \
    .spoil = delayed_spoil, .oracles = {"delayed", NULL}, .walk = walk_delayed, .canonical = delayed_canonical

const struct tested_family tested_delayed = {
    .name = "delayed",
    .geometry = affine_geometry,
    .small = affine_small,
    .tiny = affine_tiny,
    COMMON,
};
const struct tested_family tested_delayed_turboquant = {
    .name = "delayed-turboquant",
    .geometry = turbo_geometry,
    .small = turbo_small,
    .tiny = turbo_tiny,
    COMMON,
};
