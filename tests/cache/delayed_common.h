/* What the named tests of changes of precision share: a small cache of family "delayed", and rows fed as it asks. */
#ifndef CACHE_DELAYED_COMMON_H
#define CACHE_DELAYED_COMMON_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cache/delayed.h"
#include "cache/harness.h"
#include "cache/twin.h"

enum { H = 2, GROUP = 2, HEADS = H * GROUP, DK = 32, DV = 32, WIDTH = HEADS * DV, MOST = 400 };

static const struct sennit_cache_config codes = {.family = "affine", .code = {.k_bits = 8, .v_bits = 4, .group = 32}};

struct fixture {
    struct sennit_pool *pool;
    struct geometry g;
    struct rng rng;
};

static inline void open_fixture_on(struct fixture *f, sennit_type type, uint64_t start, uint32_t page_tokens,
                                   const struct sennit_allocator *host)
{
    *f = (struct fixture){.rng = {7}};
    f->g = (struct geometry){.config = {.family = "delayed",
                                        .n_kv_heads = H,
                                        .d_k = DK,
                                        .d_v = DV,
                                        .k_type = type,
                                        .v_type = type,
                                        .page_tokens = page_tokens,
                                        .max_span = MOST,
                                        .round_depth = 8,
                                        .start = start,
                                        .inner = &codes,
                                        .n_inner = 1},
                             .group = GROUP,
                             .scale = 0.2f};
    struct sennit_pool_options options = {.n_workers = 1};
    if (host)
        options.allocator = *host;
    OK(sennit_pool_create(&f->pool, &options, err));
    sn_cache_pool_set_poison(f->pool, true);
}

static inline void open_fixture(struct fixture *f, uint64_t start, uint32_t page_tokens)
{
    open_fixture_on(f, SENNIT_F16, start, page_tokens, NULL);
}

static inline void close_fixture(struct fixture *f)
{
    CHECK(sennit_pool_bytes(f->pool) == 0);
    sennit_pool_free(f->pool);
}

/* Tokens seed, seed + 1 ... to one row, in spans of at most `chunk`, cut where the cache says; out [n][WIDTH] or
 * NULL. */
static inline void feed_in(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n,
                           uint32_t chunk, float *out)
{
    uint64_t tokens[MOST];
    struct step_options options = {.rng = &f->rng};
    CHECK(n <= MOST);
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = seed + i;
    for (uint32_t at = 0, cut; at < n; at += cut) {
        uint64_t most = sennit_cache_max_append_tokens(c, row);
        cut = n - at < chunk ? n - at : chunk;
        cut = cut < most ? cut : (uint32_t)most;
        struct work_span span = {
            .row = row, .tokens = tokens + at, .n_tokens = cut, .out = out ? out + (size_t)at * WIDTH : NULL};
        OK(run_step(c, &f->g, &span, 1, &options, err));
    }
}

static inline void feed(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n,
                        float *out)
{
    feed_in(f, c, row, seed, n, MOST, out);
}

static inline struct sennit_cache *serial(struct fixture *f, uint64_t seed, uint32_t n)
{
    struct sennit_cache *c;
    OK(sennit_cache_create(&c, f->pool, &f->g.config, 1, err));
    feed(f, c, 0, seed, n, NULL);
    return c;
}

static inline struct sennit_cache *merged(struct fixture *f, struct sennit_cache **rows, uint32_t n)
{
    struct sennit_cache *c;
    OK(sennit_cache_create(&c, f->pool, &f->g.config, 0, err));
    OK(sennit_cache_merge_rows(c, (const struct sennit_cache *const *)rows, n, err));
    return c;
}

/* One token to a row, however it ends. */
static inline sennit_status try_one(const struct fixture *f, struct sennit_cache *c, uint32_t row, uint32_t n_tokens,
                                    struct sennit_error *err)
{
    struct sennit_span span = {.row = row, .pos = sennit_cache_row_offset(c, row), .n_tokens = n_tokens};
    return sennit_cache_append_begin(c, &span, 1, n_heads_of(&f->g), err);
}

static inline uint64_t imprint(const struct fixture *f, const struct sennit_cache *c)
{
    return mix64(cache_fingerprint(c) ^ sennit_pool_bytes(f->pool));
}

/* The next 3 tokens of `row` are those of the same n tokens alone; the row and its like stay as they are. */
static inline void assert_continues(struct fixture *f, const struct sennit_cache *c, uint32_t row, uint64_t seed,
                                    uint32_t n)
{
    float got[3][WIDTH], want[3][WIDTH];
    struct sennit_cache *alone = serial(f, seed, n), *copy;
    OK(sennit_cache_clone(c, row, &copy, err));
    feed(f, copy, 0, 9999, 3, got[0]);
    feed(f, alone, 0, 9999, 3, want[0]);
    assert_memory_equal(got, want, sizeof got);
    sennit_cache_dispose(&alone);
    sennit_cache_dispose(&copy);
}

static inline uint64_t floor_of(const struct sennit_cache *c, uint32_t row)
{
    return sennit_cache_minimum_reusable_offset(c, row);
}

static inline bool encoded(const struct sennit_cache *c, uint32_t row)
{
    return sn_form_encoded(&sn_delayed_of(c)->forms, &c->rows[row]);
}

static inline const struct sn_paging *paging_of(const struct sennit_cache *c, bool code)
{
    const struct sn_forms *f = &sn_delayed_of(c)->forms;
    return &sn_paged_of(code ? f->encoded : f->plain)->paging;
}

#endif
