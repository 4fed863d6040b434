/* Family "padded": keys and values of all rows of a cache in one dense tensor [rows][heads][columns][dimension] each,
 * for backends that want it so. Row b lies at columns left_pad .. left_pad + n_tokens - 1.
 *
 * Invariants, between calls:
 *   1. Rows without a rectangle have no tokens and store NULL; otherwise all rows of a cache are in the same one.
 *   2. Sole holder: slot i is row i, there are n_rows slots, origin is 0, and the width is that of
 *      sennit_cache_offset(): the least number of whole steps of page_tokens.
 *   3. While a snapshot holds it too (n_refs > n_rows) nobody writes it: a filter or a trim then changes stores,
 *      origin and lengths alone, and the next append copies the rows into a rectangle of their own. When the last
 *      snapshot goes first, the owner puts it in shape.
 *
 *                  merge, row_copy, load: a new one
 *       none -----------------------------------------> sole <--- step that fits: in place; filter, trim: in place
 *        ^  step_begin: a new one, exchanged at commit   ^  |
 *        |                                               |  | snapshot
 *        +---- no row has tokens any more                |  v
 *                                                        +- shared   step_begin: a copy */
#ifndef SN_CACHE_PADDED_H
#define SN_CACHE_PADDED_H

#include "cache/rect.h"

struct sn_padded {
    struct sennit_cache base; /* first */
    struct sn_kv_layout layout;
    uint64_t origin; /* columns of the rectangle before column 0 */
    /* of the open step */
    bool moved; /* the rows are in a new rectangle, still scratch */
    uint64_t old_origin;
};

static inline const struct sn_padded *sn_padded_of(const struct sennit_cache *cache)
{
    return (const struct sn_padded *)cache;
}

/* The rectangle of a cache; NULL: none. */
static inline struct sn_slot *sn_padded_head(const struct sennit_cache *cache)
{
    const struct sn_slot *slot = cache->n_rows ? cache->rows[0].store : NULL;
    return slot ? slot->head : NULL;
}

#endif
