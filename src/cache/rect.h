/* One rectangle of keys and values for several rows: what family "padded" stores. Counted; whoever changes it must be
 * its only holder.
 *
 *     slot 0 | slot 1 ... | K [slots][heads][width][d_k] | V [slots][heads][width][d_v]
 *
 * A slot is a line of 64 bytes: where a row lies. A row's store points to its slot, and every such pointer is one
 * reference. `head` is slot 0, which speaks for the whole. Columns of a slot that hold no token of its row hold
 * anything, and may be written only by a sole holder.
 *
 * A rectangle that takes the place of another is filled as scratch beside it and becomes storage in the exchange, so
 * that what caches hold is never counted twice. */
#ifndef SN_CACHE_RECT_H
#define SN_CACHE_RECT_H

#include "cache/kv.h"

struct sn_slot {
    _Alignas(64) struct sn_slot *head;
    uint64_t first;      /* column of the row's position 0 */
    struct sn_slot *old; /* while a step is open: where the row lay before */
    /* of the head alone */
    uint64_t width; /* columns */
    size_t n_bytes; /* of the whole allocation */
    uint32_t n_slots, n_refs;
    struct sennit_cache *owner; /* whose rectangle it is; NULL: only snapshots have it */
};

/* Columns that are taken for so many in use: whole steps of page_tokens. UINT64_MAX when that does not fit. */
uint64_t sn_rect_width(const struct sn_kv_layout *l, uint64_t columns);
/* Bytes of a rectangle; of one column of one slot. UINT64_MAX when it does not fit. */
uint64_t sn_rect_bytes(const struct sn_kv_layout *l, uint32_t n_slots, uint64_t width);
uint64_t sn_rect_column_bytes(const struct sn_kv_layout *l);

/* n_slots slots without references, as storage, or as scratch that is to replace something. NULL when memory is
 * refused. */
struct sn_slot *sn_rect_new(struct sennit_pool *pool, const struct sn_kv_layout *l, uint32_t n_slots, uint64_t width);
struct sn_slot *sn_rect_new_next(struct sennit_pool *pool, const struct sn_kv_layout *l, uint32_t n_slots,
                                 uint64_t width);
void sn_rect_adopt(struct sennit_pool *pool, struct sn_slot *head);   /* scratch becomes storage */
void sn_rect_discard(struct sennit_pool *pool, struct sn_slot *head); /* scratch goes; NULL is fine */

/* A row's reference to its slot; NULL is fine. */
void sn_rect_ref(struct sn_slot *slot);
void sn_rect_drop(struct sennit_pool *pool, struct sn_slot *slot);

static inline uint32_t sn_rect_index(const struct sn_slot *slot)
{
    return (uint32_t)(slot - slot->head);
}

/* Where one head's key or value of a column starts; the next column's is d_k or d_v elements on. */
uint8_t *sn_rect_key(const struct sn_kv_layout *l, const struct sn_slot *slot, size_t head, uint64_t column);
uint8_t *sn_rect_value(const struct sn_kv_layout *l, const struct sn_slot *slot, size_t head, uint64_t column);

/* The first n tokens of a row, between rectangles. */
void sn_rect_copy(const struct sn_kv_layout *l, const struct sn_slot *from, const struct sn_slot *to, uint64_t n);
/* NaNs into all columns of a slot but `first` .. first + n - 1. */
void sn_rect_poison(const struct sn_kv_layout *l, const struct sn_slot *slot, uint64_t n);

/* In place, without memory: slot a takes what slot b holds, and, if `swap`, the other way round. */
void sn_rect_move(const struct sn_kv_layout *l, struct sn_slot *a, struct sn_slot *b, bool swap);
/* The first n_slots slots stay, with columns from .. from + width - 1; the rest is given back, unless the host
 * refuses to shrink: then n_bytes stays. Returns the head, which may have moved. */
struct sn_slot *sn_rect_shrink(struct sennit_pool *pool, const struct sn_kv_layout *l, struct sn_slot *head,
                               uint32_t n_slots, uint64_t from, uint64_t width);

#endif
