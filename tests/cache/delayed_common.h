/* What the named tests of changes of precision share: a small cache of family "delayed", and rows fed as it asks. */
#ifndef CACHE_DELAYED_COMMON_H
#define CACHE_DELAYED_COMMON_H

#include <stdio.h>
#include <stdlib.h>

#include "cache/delayed.h"
#include "cache/fixture.h"
#include "cache/window.h"

enum { H = 2, GROUP = 2, HEADS = H * GROUP, DK = 32, DV = 32, WIDTH = HEADS * DV, MOST = 400 };

static const struct sennit_cache_config codes = {.family = "affine", .code = {.k_bits = 8, .v_bits = 4, .group = 32}};

static bool windowed; /* rows in a window, which moves on before most of the tests' starts */

/* The configuration as the store of a window, or as it is. */
static inline void put_in_window(struct sennit_cache_config *c)
{
    static struct sennit_cache_config inner[4]; /* of the last ones */
    static uint32_t next;
    if (!windowed)
        return;
    struct sennit_cache_config *store = &inner[next++ % 4];
    *store = (struct sennit_cache_config){
        .family = c->family, .code = c->code, .start = c->start, .inner = c->inner, .n_inner = c->n_inner};
    memset(&c->code, 0, sizeof c->code);
    c->family = "window";
    c->start = 0;
    c->window.tokens = 12;
    c->window.slack = 3;
    c->window.n_kept = 5;
    c->inner = store;
    c->n_inner = 1;
}

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
    put_in_window(&g.config);
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

static inline const struct sn_forms *forms_of(const struct sennit_cache *c)
{
    return windowed ? &sn_window_of(c)->forms : &sn_delayed_of(c)->forms;
}

static inline bool encoded(const struct sennit_cache *c, uint32_t row)
{
    return sn_form_encoded(forms_of(c), &c->rows[row]);
}

static inline const struct sn_paging *paging_of(const struct sennit_cache *c, bool code)
{
    const struct sn_forms *f = forms_of(c);
    return &sn_paged_of(code ? f->encoded : f->plain)->paging;
}

/* What n tokens in one form take, nothing shared. */
static inline uint64_t stored(const struct sennit_cache *c, bool code, uint64_t n)
{
    if (!windowed)
        return sn_paged_bytes(paging_of(c, code), n);
    const struct sn_window *w = sn_window_of(c);
    return sn_listed_bytes(code ? &w->encoded.listing : &w->plain.listing, n);
}

#endif
