/* What the specifications of attention share: from the scores of one chunk to its weights. */
#ifndef SN_SCALAR_ATTENTION_H
#define SN_SCALAR_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>

#include "kernel/elementary.h"

static inline bool sees(uint64_t visible, size_t key)
{
    return visible >> key & 1;
}

/* Folded 8, 4, 2, 1; t is used up. */
static inline float tree16(float t[16])
{
    for (size_t width = 8; width > 0; width /= 2)
        for (size_t i = 0; i < width; i++)
            t[i] = t[i] + t[i + width];
    return t[0];
}

/* (x0 + x1) + (x2 + x3) over the groups of 16 keys, then 8, 4, 2, 1. */
static inline float sum64(const float p[64])
{
    float t[16];
    for (size_t i = 0; i < 16; i++)
        t[i] = (p[i] + p[i + 16]) + (p[i + 32] + p[i + 48]);
    return tree16(t);
}

/* p = exp(s - m') of the visible keys, +0 of the others; brings m and l up to date. Returns what the old output is
 * multiplied by. */
static inline float chunk_weights(const float s[64], uint64_t visible, float *m, float *l, float p[64])
{
    float top = *m;
    for (size_t key = 0; key < 64; key++)
        if (sees(visible, key))
            top = s[key] > top ? s[key] : top;
    for (size_t key = 0; key < 64; key++)
        p[key] = sees(visible, key) ? sn_exp_inline(s[key] - top) : 0.0f;
    float keep = *m == -INFINITY ? 0.0f : sn_exp_inline(*m - top);
    *m = top;
    *l = fmaf(*l, keep, sum64(p));
    return keep;
}

#endif
