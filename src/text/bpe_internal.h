/* Inside of BPE, shared by bpe.c (table, short words) and bpe_long.c (long words). */
#ifndef SN_TEXT_BPE_INTERNAL_H
#define SN_TEXT_BPE_INTERNAL_H

#include "text/bpe.h"

struct sn_bpe_pair {
    int32_t left, right; /* left == SN_BPE_NONE: free slot */
    uint32_t rank;
};

/* One token of the word being merged, in a doubly linked list over an array. Invariants during
 * merging:
 *  - positions in list order are ascending; symbol 0 is always alive (merges keep the left side);
 *  - a dead symbol has id SN_BPE_NONE and no neighbour points to it;
 *  - every adjacent pair of live symbols that has a rank was queued with that rank. */
struct sn_bpe_symbol {
    int32_t id;
    int32_t prev, next; /* SN_BPE_NONE at the ends */
};

/* The slot that holds the pair, or the free one where it would go. */
static inline struct sn_bpe_pair *sn_bpe_find(const struct sn_bpe *b, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    size_t i = (size_t)(h >> 20 ^ h >> 44) & (b->n_slots - 1);
    while (b->pairs[i].left != SN_BPE_NONE &&
           (b->pairs[i].left != left || b->pairs[i].right != right))
        i = (i + 1) & (b->n_slots - 1);
    return &b->pairs[i];
}

/* A queue entry: rank above, position of the left side below, so that numbers compare as merges do.
 */
static inline uint64_t sn_bpe_key(uint32_t rank, int32_t at)
{
    return (uint64_t)rank << 32 | (uint32_t)at;
}

/* Carries out a queued merge, unless a neighbour changed since it was queued. True when it did. */
static inline bool sn_bpe_merge(const struct sn_bpe *b, struct sn_bpe_symbol *sym, uint64_t key)
{
    int32_t at = (int32_t)(uint32_t)key;
    int32_t next = sym[at].next;
    if (sym[at].id == SN_BPE_NONE || next == SN_BPE_NONE)
        return false;
    int32_t result = b->result[key >> 32];
    const struct sn_bpe_pair *p = sn_bpe_find(b, sym[at].id, sym[next].id);
    if (p->left == SN_BPE_NONE || b->result[p->rank] != result)
        return false;
    sym[at].id = result;
    sym[at].next = sym[next].next;
    sym[next].id = SN_BPE_NONE;
    if (sym[at].next != SN_BPE_NONE)
        sym[sym[at].next].prev = at;
    return true;
}

/* The heap queue: four children per node, smallest key first. */
void sn_bpe_queue_push(uint64_t *q, size_t *n, uint64_t key);
uint64_t sn_bpe_queue_pop(uint64_t *q, size_t *n);

/* Merges all of a long word. */
sennit_status sn_bpe_merge_long(const struct sn_bpe *b, struct sn_bpe_symbol *sym, size_t n,
                                struct sennit_error *err);

#endif
