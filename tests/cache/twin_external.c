/* A family from outside the library under the suite: the one that keeps f32 as it comes (support/raw_family.h), whose
 * textbook, and whose bits, are those of plain in f32. Others come as shared objects (outside.c). */
#include <stdlib.h>

#include "cache/paged.h"
#include "cache/twin.h"
#include "support/raw_family.h"

static void external_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    struct sennit_cache_config *c = &g->config;
    kv_geometry(rng, g, type, large);
    c->external = &raw_family;
    c->k_type = c->v_type = SENNIT_F32; /* no type: 0 */
    c->d_k = (c->d_k + 3) / 4 * 4;
}

static void external_small(struct geometry *g)
{
    g->config.external = &raw_family;
    g->config.k_type = g->config.v_type = SENNIT_F32;
}

static void open_plain(struct sennit_cache **out, struct sennit_pool *pool, struct geometry *g)
{
    g->config.family = "plain";
    g->config.external = NULL;
    g->config.page_tokens = 0;
    OK(sennit_cache_create(out, pool, &g->config, 1, err));
}

static void walk_external(const struct sennit_cache *cache, uint32_t row,
                          void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    walk_pages(cache, row, &sn_paged_of(cache)->paging, visit, ctx);
}

/* As plain's: all heads' keys of a token, then its values. */
static uint8_t *external_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans,
                                   size_t n_spans, uint64_t n_tokens, size_t *n_bytes)
{
    const struct sennit_cache_config *c = &like->config;
    size_t keys = sizeof(float) * c->n_kv_heads * c->d_k, values = sizeof(float) * c->n_kv_heads * c->d_v;
    uint64_t next = 0;
    *n_bytes = n_tokens * (keys + values);
    if (n_tokens == 0)
        return NULL;
    uint8_t *out = must(malloc(*n_bytes));
    for (size_t i = 0; i < n_spans; i += 2) {
        const uint8_t *k = spans[i].data, *v = spans[i + 1].data;
        CHECK(strcmp(spans[i].name, "key") == 0 && strcmp(spans[i + 1].name, "value") == 0);
        CHECK(spans[i].pos == next && spans[i + 1].pos == next && spans[i + 1].n_tokens == spans[i].n_tokens);
        for (size_t t = 0; t < spans[i].n_tokens; t++, next++) {
            CHECK(next < n_tokens);
            memcpy(out + next * (keys + values), k + t * keys, keys);
            memcpy(out + next * (keys + values) + keys, v + t * values, values);
        }
    }
    CHECK(next == n_tokens);
    return out;
}

const struct tested_family tested_external = {
    .name = "raw",
    .twin = &twin_plain,
    .geometry = external_geometry,
    .small = external_small,
    .d_step = 4,
    .paged = true,
    .oracles = {"raw", "plain"},
    .open_oracle = open_plain,
    .walk = walk_external,
    .canonical = external_canonical,
};
