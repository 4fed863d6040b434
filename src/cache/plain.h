/* Family "plain": keys and values of every token, f32, f16 or bf16, on pages.
 *
 * A page, for H KV heads (64 = SN_PAGE_TOKENS positions, element type T):
 *
 *     K [H][4 groups][d_k][16 keys]   the lane of a score is a key: no horizontal sum
 *     V [H][64][d_v]
 *
 * plain.c stores, plain_attend.c reads. */
#ifndef SN_CACHE_PLAIN_H
#define SN_CACHE_PLAIN_H

#include "cache/family.h"
#include "cache/kv.h"
#include "cache/pages.h"

struct sn_plain {
    struct sennit_cache base; /* first */
    struct sn_paging paging;
    size_t element_bytes;
    size_t k_head_bytes, v_head_bytes; /* of one head in a page */
    size_t v_offset;                   /* of the V part in a page */
    sn_store_fn store;
    sn_attn_fn attn;
    enum sn_kernel_id store_id, attn_id; /* for the count of calls */
    struct sn_growth *undo;              /* [cap_undo], one per span of the open step */
    uint32_t cap_undo;
};

static inline const struct sn_plain *sn_plain_of(const struct sennit_cache *cache)
{
    return (const struct sn_plain *)cache;
}

/* plain_attend.c: slots of the family table, and the scratch of the step that is being opened. */
sennit_status sn_plain_reserve(struct sennit_cache *cache, struct sennit_error *err);
void sn_plain_attend_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges);
void sn_plain_attend_item(struct sennit_cache *cache, uint32_t item, uint32_t worker);
void sn_plain_attend_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker);
sennit_status sn_plain_donor_attend(struct sennit_cache *cache, uint32_t row,
                                    const struct sn_donor_args *args, struct sennit_error *err);

#endif
