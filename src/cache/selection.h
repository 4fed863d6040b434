/* The keys that an indexer selected in one step, handed on from the layer that has it to layers without one.
 *
 * The object is shared, by reference, by a cache with an indexer, by all caches made like it (batches, clones, loaded
 * rows), and by all caches that were created to read from it: layouts come and go under a scheduler, the object
 * stays.
 *
 *     source: append_begin -> writer        reader: append_begin -> claims it     (the same rows and spans)
 *     source: its items store their lists, if somebody has claimed them
 *     reader: its items read them
 *     source: commit or abort -> no writer  reader: commit or abort -> gives the claim back
 *
 * The lists live until the next step is claimed. Threads: items store and read lists of their own tokens; all else on
 * the owner's. */
#ifndef SN_CACHE_SELECTION_H
#define SN_CACHE_SELECTION_H

#include "cache/family.h"

struct sn_selection {
    struct sn_heap *heap;
    uint32_t n_refs;
    const struct sennit_cache *writer; /* whose open step the lists are of; NULL: none that can be claimed */
    uint32_t n_open;                   /* open steps of caches that could write */
    uint32_t n_claims;                 /* open steps of readers */
    uint32_t width;                    /* room of one list */
    uint32_t *count, *list; /* [cap_tokens], [cap_list]: of token i at list + i * width; count 0: not yet */
    size_t cap_tokens, cap_list;
};

/* *out: one reference. */
sennit_status sn_selection_create(struct sn_selection **out, struct sn_heap *heap, struct sennit_error *err);
void sn_selection_drop(struct sn_selection *s); /* NULL is fine */

/* A source's step, opened and closed (committed or aborted). */
void sn_selection_open(struct sn_selection *s, const struct sennit_cache *source);
void sn_selection_close(struct sn_selection *s, const struct sennit_cache *source);
/* A reader's. SENNIT_STATE unless exactly one source has a step open, with the same spans and its attention not yet
 * planned; SENNIT_NOMEM. top_k bounds the lists. */
sennit_status sn_selection_claim(struct sn_selection *s, const struct sennit_cache *reader, uint32_t top_k,
                                 struct sennit_error *err);
void sn_selection_release(struct sn_selection *s);

/* The list of the token at `pos` of a row of cache's open step (source or reader). Store does nothing where nobody
 * has claimed it; read returns 0 where nothing was stored. */
void sn_selection_store(struct sn_selection *s, const struct sennit_cache *source, uint32_t row, uint64_t pos,
                        const uint32_t *list, uint32_t n);
uint32_t sn_selection_read(const struct sn_selection *s, const struct sennit_cache *reader, uint32_t row,
                           uint64_t pos, uint32_t *list);

#endif
