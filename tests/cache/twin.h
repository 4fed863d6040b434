/* The textbook twins: one per family, all tokens in a list, double precision, written from the
 * formula. They share no code with src/cache; only the geometry's numbers. */
#ifndef CACHE_TWIN_H
#define CACHE_TWIN_H

#include "cache/harness.h"

struct twin; /* one row */

struct twin_ops {
    struct twin *(*create)(const struct geometry *g);
    void (*release)(struct twin *t);
    void (*append)(struct twin *t, uint64_t token);
    void (*cut)(struct twin *t, uint64_t n_tokens);
    /* Output of query head `head` with query q [d_k] over keys 0 .. n_keys - 1 that mask (NULL or
     * [n_keys]) shows, into out [d_v]. Returns the largest absolute error that f32 arithmetic in
     * the specified order can explain. */
    double (*attend)(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys,
                     const uint8_t *mask, const float *sink, double *out);
};
extern const struct twin_ops twin_plain;

/* What the suite must know of a family. Adding one: its twin, and one line in families.c. */
struct tested_family {
    const char *name;
    const struct twin_ops *twin;
    void (*geometry)(struct rng *rng, struct geometry *g,
                     sennit_type type); /* config.family is set by the suite */
    const char *oracles[2]; /* whose bits it must give: its own alone in a cache, and another
                               family's (or NULL) */
    /* Calls visit for every object of one row's storage. */
    void (*walk)(const struct sennit_cache *cache, uint32_t row,
                 void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx);
};
extern const struct tested_family tested_families[];

#endif
