#include "cache/fixture.h"

#include <stdlib.h>

void fixture_open(struct fixture *f, const struct geometry *g, uint64_t seed,
                  const struct sennit_pool_options *options)
{
    *f = (struct fixture){.g = *g, .rng = {seed}};
    OK(sennit_pool_create(&f->pool, options, err));
    sn_cache_pool_set_poison(f->pool, true);
}

void close_fixture(struct fixture *f)
{
    CHECK(sennit_pool_bytes(f->pool) == 0);
    sennit_pool_free(f->pool);
}

void feed_in(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n, uint32_t chunk,
             float *out)
{
    uint64_t *tokens = must(malloc((n + 1) * sizeof *tokens));
    size_t width = (size_t)n_heads_of(&f->g) * d_out_of(&f->g);
    struct step_options options = {.rng = &f->rng};
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = seed + i;
    for (uint32_t at = 0, cut; at < n; at += cut) {
        uint64_t most = sennit_cache_max_append_tokens(c, row);
        cut = n - at < chunk ? n - at : chunk;
        cut = cut < most ? cut : (uint32_t)most;
        struct work_span span = {
            .row = row, .tokens = tokens + at, .n_tokens = cut, .out = out ? out + at * width : NULL};
        OK(run_step(c, &f->g, &span, 1, &options, err));
    }
    free(tokens);
}

void feed(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n, float *out)
{
    feed_in(f, c, row, seed, n, c->ops->bounded_span && !c->round_open ? c->config.max_span : UINT32_MAX, out);
}

struct sennit_cache *serial(struct fixture *f, uint64_t seed, uint32_t n)
{
    struct sennit_cache *c;
    OK(sennit_cache_create(&c, f->pool, &f->g.config, 1, err));
    feed(f, c, 0, seed, n, NULL);
    return c;
}

struct sennit_cache *merged(struct sennit_cache **rows, uint32_t n)
{
    struct sennit_cache *c;
    OK(sennit_cache_make_empty_batch(rows[0], &c, err));
    OK(sennit_cache_merge_rows(c, (const struct sennit_cache *const *)rows, n, err));
    return c;
}

uint64_t imprint(const struct fixture *f, const struct sennit_cache *c)
{
    return mix64(cache_fingerprint(c) ^ sennit_pool_bytes(f->pool));
}
