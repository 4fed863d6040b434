/* Who sees which key: the shapes of visibility that checks of attention go through. */
#ifndef SN_KCHECK_MASKS_H
#define SN_KCHECK_MASKS_H

#include "kcheck/kcheck.h"

enum kcheck_mask {
    KC_MASK_ALL,
    KC_MASK_PREFIX, /* each query one key more */
    KC_MASK_WINDOW,
    KC_MASK_SPARSE,
    KC_MASK_SINGLE,
    KC_MASK_SOME_EMPTY,
    KC_MASK_SAME_PREFIX,
    KC_N_MASKS
};

/* visible: [n_q][n_chunks], for struct sn_attn_args. */
void kcheck_masks(struct kcheck *c, enum kcheck_mask kind, size_t n_q, size_t n_chunks, uint64_t *visible);

#endif
