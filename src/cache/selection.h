/* The keys that an indexer selected in one step, handed on from the layer that has it to layers without one.
 *
 * The object is shared, by reference, by a cache with an indexer, by all caches made like it (batches, clones, loaded
 * rows), and by all caches that were created to read from it. Who may read what is the source layer's to say
 * (lineage.h): readers claim its open step; the source's items then store their lists here, the readers' items read
 * them.
 *
 * The lists live until the next step is claimed. Threads: items store and read lists of their own tokens; all else on
 * the owner's. */
#ifndef SN_CACHE_SELECTION_H
#define SN_CACHE_SELECTION_H

#include "cache/family.h"

struct sn_selection {
    struct sn_heap *heap;
    uint32_t n_refs;
    uint32_t width;         /* room of one list */
    uint32_t *count, *list; /* [cap_tokens], [cap_list]: of token i at list + i * width; count 0: not yet */
    size_t cap_tokens, cap_list;
};

/* *out: one reference. */
sennit_status sn_selection_create(struct sn_selection **out, struct sn_heap *heap, struct sennit_error *err);
void sn_selection_drop(struct sn_selection *s); /* NULL is fine */

/* Lists of all tokens of a reader's step, none of them filled in; top_k bounds them. With the first claim of a step.
 * SENNIT_NOMEM. */
sennit_status sn_selection_reserve(struct sn_selection *s, const struct sn_cache_step *step, uint32_t top_k,
                                   struct sennit_error *err);

/* The list of the token at `pos` of a row of a cache's open step (source or reader). Store does nothing where nobody
 * has claimed the source's step; read returns 0 where nothing was stored. */
void sn_selection_store(struct sn_selection *s, const struct sennit_cache *source, uint32_t row, uint64_t pos,
                        const uint32_t *list, uint32_t n);
uint32_t sn_selection_read(const struct sn_selection *s, const struct sennit_cache *reader, uint32_t row,
                           uint64_t pos, uint32_t *list);

#endif
