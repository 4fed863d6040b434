/* Family "donor": a layer without storage of its own, whose queries read another layer's keys and values. */
#ifndef SN_CACHE_SHARING_H
#define SN_CACHE_SHARING_H

#include "cache/attend.h"

struct sn_sharing {
    struct sennit_cache base;        /* first; its rows have lengths and no stores */
    struct sn_lineage *source;       /* whose steps are read */
    const struct sennit_cache *read; /* in a step: the cache whose rows, this step's tokens among them, are read */
    bool blind;                      /* planned when that one's step was over: outputs are NaN */
    bool trims;                      /* as the source */
    char dtype[64];                  /* the source's */
};

static inline const struct sn_sharing *sn_sharing_of(const struct sennit_cache *cache)
{
    return (const struct sn_sharing *)cache;
}

#endif
