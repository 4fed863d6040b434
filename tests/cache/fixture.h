/* What named tests of one family share: a pool whose storage is poisoned, a geometry, and rows of tokens seed,
 * seed + 1 ... Tests that run for every kind of cache have stage.h. */
#ifndef CACHE_FIXTURE_H
#define CACHE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cache/twin.h"

struct fixture {
    struct sennit_pool *pool;
    struct geometry g; /* may be changed before the first cache is made */
    struct rng rng;
};

void fixture_open(struct fixture *f, const struct geometry *g, uint64_t seed,
                  const struct sennit_pool_options *options);
void close_fixture(struct fixture *f); /* dies of a leak */

/* Tokens seed, seed + 1 ... to one row, in spans of at most `chunk`, cut where the cache says; feed: in one span, if
 * it may. out: [n][heads * d_out] or NULL. */
void feed_in(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n, uint32_t chunk,
             float *out);
void feed(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n, float *out);
/* A serial cache of n such tokens. */
struct sennit_cache *serial(struct fixture *f, uint64_t seed, uint32_t n);
/* The rows (one at least) in a new layout; the sources stay. */
struct sennit_cache *merged(struct sennit_cache **rows, uint32_t n);
/* What the cache stores, with the bytes of its pool: equal where nothing has changed. */
uint64_t imprint(const struct fixture *f, const struct sennit_cache *c);

#endif
