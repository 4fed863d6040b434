/* What the named tests of changes of precision share: a small cache of family "delayed", and rows fed as it asks. */
#ifndef CACHE_DELAYED_COMMON_H
#define CACHE_DELAYED_COMMON_H

#include <stdio.h>
#include <stdlib.h>

#include "cache/delayed.h"
#include "cache/fixture.h"

enum { H = 2, GROUP = 2, HEADS = H * GROUP, DK = 32, DV = 32, WIDTH = HEADS * DV, MOST = 400 };

static const struct sennit_cache_config codes = {.family = "affine", .code = {.k_bits = 8, .v_bits = 4, .group = 32}};

static inline void open_fixture_on(struct fixture *f, sennit_type type, uint64_t start, uint32_t page_tokens,
                                   const struct sennit_allocator *host)
{
    struct geometry g = {.config = {.family = "delayed",
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
    struct sennit_pool_options options = {0};
    if (host)
        options.allocator = *host;
    fixture_open(f, &g, 7, &options);
}

static inline void open_fixture(struct fixture *f, uint64_t start, uint32_t page_tokens)
{
    open_fixture_on(f, SENNIT_F16, start, page_tokens, NULL);
}

/* One token to a row, however it ends. */
static inline sennit_status try_one(const struct fixture *f, struct sennit_cache *c, uint32_t row, uint32_t n_tokens,
                                    struct sennit_error *err)
{
    struct sennit_span span = {.row = row, .pos = sennit_cache_row_offset(c, row), .n_tokens = n_tokens};
    return sennit_cache_append_begin(c, &span, 1, n_heads_of(&f->g), err);
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
