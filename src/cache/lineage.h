/* What a cache has in common with everything that is made from it (batches, clones, loaded rows): its signature, and
 * which of them has a step open, for the caches of other layers that read it ("mla-dsa" with index.from, "donor").
 * Layouts come and go under a scheduler; this object stays as long as any of them, or of their readers, does.
 *
 *     source: append_begin -> writer             reader: append_begin -> claims it   (the same rows and spans)
 *     source: commit or abort -> no writer       reader: commit or abort -> gives the claim back
 *
 * Threads: the owner's; items of a reader may look at `writer`, which stands still meanwhile. */
#ifndef SN_CACHE_LINEAGE_H
#define SN_CACHE_LINEAGE_H

#include "base/base.h"
#include "sennit/cache.h"

enum { SN_SIGNATURE_BYTES = 1024 }; /* the end's 0 included */

struct sn_lineage {
    struct sn_heap *heap;
    uint32_t n_refs;
    const struct sennit_cache *writer; /* whose open step can be read; NULL: nobody's */
    uint32_t n_open;                   /* open steps of the layer's caches */
    uint32_t n_claims;                 /* open steps of its readers */
    size_t n_bytes;
    char signature[];
};

/* *out: one reference. */
sennit_status sn_lineage_create(struct sn_lineage **out, struct sn_heap *heap, const char *signature,
                                struct sennit_error *err);
struct sn_lineage *sn_lineage_ref(struct sn_lineage *lineage); /* the layer */
void sn_lineage_drop(struct sn_lineage *lineage);              /* NULL is fine */

/* A step of one of the layer's caches: opened, closed (committed or aborted). */
void sn_lineage_open(struct sn_lineage *lineage, const struct sennit_cache *cache);
void sn_lineage_close(struct sn_lineage *lineage, const struct sennit_cache *cache);

/* A reader's step, whose spans are set. SENNIT_STATE unless exactly one cache of the layer has a step open, with the
 * same spans and its attention not yet planned. field: of the reader's configuration that names the layer. */
sennit_status sn_lineage_claim(struct sn_lineage *lineage, const struct sennit_cache *reader, const char *field,
                               struct sennit_error *err);
void sn_lineage_release(struct sn_lineage *lineage);

#endif
