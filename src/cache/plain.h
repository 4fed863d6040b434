/* Family "plain": keys and values of every token, f32, f16 or bf16, on pages laid out as kv.h says. */
#ifndef SN_CACHE_PLAIN_H
#define SN_CACHE_PLAIN_H

#include "cache/family.h"
#include "cache/kv.h"
#include "cache/paged.h"

struct sn_plain {
    struct sn_paged paged; /* first */
    struct sn_kv_layout layout;
};

static inline const struct sn_plain *sn_plain_of(const struct sennit_cache *cache)
{
    return (const struct sn_plain *)cache;
}

#endif
