/* What the named tests that run for every kind of cache share: a pool, one kind's small geometry, and rows of tokens
 * seed, seed + 1 ... that can be held against the same tokens alone. */
#ifndef CACHE_STAGE_H
#define CACHE_STAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cache/twin.h"

/* A line of tested.list, and what makes this kind differ from the line's small fixture. */
struct kind {
    const char *name, *line;
    void (*shape)(struct geometry *g); /* NULL: nothing */
};

struct stage {
    struct sennit_pool *pool;
    const struct kind *kind;
    const struct tested_family *tested;
    struct geometry g; /* may be changed before the first cache is made */
    struct rng rng;
    size_t width; /* floats of one token's output */
};

/* Runs the tests once for every line of tested.list, which has all families, and for every further kind of stage.c.
 * Arguments: a pattern of test names, and of kinds; without them, all. Returns the number of failures. */
int stage_run(int argc, char **argv, const struct CMUnitTest *tests, size_t n_tests);
/* Every kind, for tests of several at once; the count into *n. */
const struct kind *stage_kinds(size_t *n);

void stage_open(struct stage *s);                               /* of the kind whose turn it is */
void stage_open_kind(struct stage *s, const struct kind *kind); /* storage is poisoned */
void stage_close(struct stage *s);                              /* dies of a leak */

struct sennit_cache *stage_new(struct stage *s, uint32_t n_rows);
/* A serial cache of n tokens from `seed` on. */
struct sennit_cache *stage_row(struct stage *s, uint64_t seed, uint32_t n);
/* The rows in a new layout; the sources stay. */
struct sennit_cache *stage_merge(struct stage *s, struct sennit_cache *const *rows, uint32_t n);
void stage_dispose(struct sennit_cache **caches, uint32_t n);

/* Tokens seed .. seed + n - 1 for one row. out: [n][width], in all feeds of one call or in none. */
struct feed {
    uint32_t row, n;
    uint64_t seed;
    float *out;
};
/* Appends and attends, in one step where no row's change of precision cuts it. */
void stage_feeds(struct stage *s, struct sennit_cache *c, const struct feed *feeds, uint32_t n_feeds);
void stage_feed(struct stage *s, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n, float *out);
/* Within a round: as many of n tokens as the row takes without a change of precision, which no round crosses. Returns
 * how many. */
uint32_t stage_draft(struct stage *s, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n);
float *stage_out(const struct stage *s, uint32_t n_tokens); /* malloc'd, zeroed */

/* The row holds n tokens from `seed` on, to the bit as if it had been fed them alone, and would answer so; it stays
 * as it is. */
void stage_same(struct stage *s, const struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n);
/* The output got[width] of the last of n tokens from `seed` on is within the bound of the kind's textbook. */
void stage_textbook(const struct stage *s, uint64_t seed, uint32_t n, const float *got);
/* What the cache stores, with the bytes of its pool: equal where nothing has changed. */
uint64_t stage_imprint(const struct stage *s, const struct sennit_cache *c);
/* The length around which something changes in this kind: its window, its start, else a page (8 where rows have
 * none). */
uint32_t stage_edge(const struct stage *s);
/* The longest round that the row can take without a change of precision in it. */
uint32_t stage_round(const struct sennit_cache *c, uint32_t row, uint32_t most);

#endif
