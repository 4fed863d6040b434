/* Any family of caches in a common shape, and steps that only make its rows longer: for benchmarks and tests that
 * are about rows, not numbers. Public headers alone: a family that is added to the library comes along by itself. */
#ifndef CACHE_FEED_H
#define CACHE_FEED_H

#include "sennit/cache.h"

enum { FEED_MAX_INNER = 8, FEED_MAX_PARTS = 16, FEED_SPAN = 256 };

/* One role of a step's tiles. */
struct feed_part {
    sennit_role role;
    uint32_t n_heads, d;
};

struct feed {
    struct sennit_cache_family_info info;
    struct sennit_cache_config config, inner[FEED_MAX_INNER];
    struct sennit_cache *source; /* of a family that reads another cache: that one, with one row of no tokens */
    struct sennit_cache **mirror; /* what is read: made from the source, with the rows of the cache that is fed */
    struct feed_part parts[FEED_MAX_PARTS];
    uint32_t n_parts, n_heads; /* n_heads: of queries */
    uint32_t d_query, d_out;   /* floats of one head's query and output */
    uint32_t n_index;          /* floats of a token's indexer queries */
    float *data;               /* FEED_SPAN tokens of the widest role */
};

/* The family's example, with these heads and dimensions where it has heads (0 = as they are). config may be changed
 * (bounds, pages) before caches are created from it; max_span is FEED_SPAN. feed_close releases it, after all its
 * caches. */
sennit_status feed_open(struct feed *f, const char *family, struct sennit_pool *pool, uint32_t n_kv_heads, uint32_t d,
                        struct sennit_error *err);
void feed_close(struct feed *f);

/* Opens a step of n[row] tokens (0 = none) for each row and hands over its tiles; the caller commits or aborts. A
 * family that reads another cache reads f's own, which is fed as long as it takes to keep up. */
sennit_status feed_begin(const struct feed *f, struct sennit_cache *cache, const uint32_t *n,
                         struct sennit_error *err);
/* Makes one row n_tokens longer, in spans of FEED_SPAN, cut where precision changes. */
sennit_status feed_row(const struct feed *f, struct sennit_cache *cache, uint32_t row, uint64_t n_tokens,
                       struct sennit_error *err);

#endif
