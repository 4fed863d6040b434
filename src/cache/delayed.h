/* Family "delayed": see forms.h and delayed.c. */
#ifndef SN_CACHE_DELAYED_H
#define SN_CACHE_DELAYED_H

#include "cache/forms.h"

/* What becomes of one row in the open step. */
struct sn_change {
    bool due;                /* the supply is there for the row's change, which has not been made */
    struct sn_supply supply; /* else empty */
    struct sn_growth undo;   /* of a row that is not due */
};

struct sn_delayed {
    struct sennit_cache base; /* first */
    struct sn_forms forms;
    struct sn_change *changes; /* [cap_changes], one per span of the open step */
    uint32_t cap_changes;
};

static inline const struct sn_delayed *sn_delayed_of(const struct sennit_cache *cache)
{
    return (const struct sn_delayed *)cache;
}

#endif
