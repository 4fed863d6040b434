/* Recurrent layers as the tests make them: constants that are the same in every run. */
#ifndef CACHE_RECUR_COMMON_H
#define CACHE_RECUR_COMMON_H

#include "cache/twin.h"

struct recur_sizes {
    const char *kind;
    uint32_t n_heads, n_key_heads, d_state, d_head; /* of short-conv: d_head channels */
    uint32_t kernel;
    bool bias, key_head_mod, skip, clamp;
};
/* Fills config and what else the harness goes by; round_depth, max_tokens, n_snapshots stay as they are. */
void recur_geometry(struct geometry *g, const struct recur_sizes *sizes);

#endif
