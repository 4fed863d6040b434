#include "cache/twin.h"

#include "cache/pages.h"
#include "cache/plain.h"

typedef void (*visit_fn)(void *ctx, const void *p, size_t bytes);

static void walk_pages(const struct sennit_cache *cache, uint32_t row, visit_fn visit, void *ctx)
{
    const struct sn_plain *c = (const struct sn_plain *)cache;
    uint64_t n_pages = 0;
    for (const struct sn_table *t = cache->rows[row].store; t; t = t->parent) {
        visit(ctx, t, sn_table_bytes());
        n_pages += t->n_pages;
        for (uint32_t i = 0; i < t->n_pages; i++)
            visit(ctx, t->page[i], sn_page_bytes(&c->paging));
    }
    if (!cache->step.open)
        CHECK(n_pages ==
              sn_pages_of(
                  cache->rows[row].n_tokens)); /* no page beyond the row's end is kept alive */
}

static void walk_array(const struct sennit_cache *cache, uint32_t row, visit_fn visit, void *ctx)
{
    if (cache->rows[row].store)
        visit(ctx, cache->rows[row].store, (size_t)cache->ops->row_bytes(cache, &cache->rows[row]));
}

/* Heads, groups and dimensions of all kinds; keys and values of different sizes; bounded and
 * unbounded rows. */
static void kv_geometry(struct rng *rng, struct geometry *g, sennit_type type)
{
    static const uint32_t dims[] = {1, 2, 3, 8, 15, 16, 17, 32, 33, 48, 64};
    struct sennit_cache_config *c = &g->config;
    c->n_kv_heads = 1 + rng_below(rng, 3);
    c->d_k = dims[rng_below(rng, SN_ARRAY_LEN(dims))];
    c->d_v = rng_chance(rng, 40) ? c->d_k : dims[rng_below(rng, SN_ARRAY_LEN(dims))];
    c->k_type = c->v_type = type;
    c->max_tokens = rng_chance(rng, 30) ? 60 + rng_below(rng, 300) : 0;
    g->group = 1 + rng_below(rng, 4);
}

const struct tested_family tested_families[] = {
    {"plain", &twin_plain, kv_geometry, {"plain", "naive"}, walk_pages},
    {"naive", &twin_plain, kv_geometry, {"naive", NULL}, walk_array},
    {0},
};
