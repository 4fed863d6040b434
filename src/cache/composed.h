/* Family "composed": one row made of several states, each kept by a whole cache of its own family, the parts. The
 * parts have the same rows in the same order, always; every operation happens in all of them or in none.
 *
 *   rows     merge, take_row, keep_rows: in each part. One that cannot take rows makes the earlier ones drop theirs
 *   trim     each part prepares, then each part applies; the first that refuses makes the earlier ones discard
 *   rounds   begin: in each part, undone by an empty commit. Rollback: parts that trim prepare first, which alone
 *            can fail; then all apply, and the others roll back, which cannot
 *   prefill  each part reserves what its change will take, then all change
 *   step     begin: in each part, undone by abort, before any changes for good; plan, items and merges are those of
 *            one part after the other
 *   save     for each part: u64 floor | u64 body bytes | body; one record, one checksum
 *
 * A row of the whole has counts (struct sn_row) and no store; its floor is the largest of its parts'. */
#ifndef SN_CACHE_COMPOSED_H
#define SN_CACHE_COMPOSED_H

#include "cache/family.h"

enum { SN_COMPOSED_MAX_PARTS = 8, SN_ROLE_BYTES = 32, SN_PART_SHIFT = 8 };

struct sn_composed {
    struct sennit_cache base;       /* first */
    const struct sn_composed *like; /* within init */
    uint32_t n_parts;
    struct sennit_cache *part[SN_COMPOSED_MAX_PARTS];
    char role[SN_COMPOSED_MAX_PARTS][SN_ROLE_BYTES];
    struct sennit_cache_part view[SN_COMPOSED_MAX_PARTS]; /* the same, as sennit_cache_composed shows it */
    struct sennit_cache *planned;                         /* the part whose plan is in the pool's scratch */
};

static inline const struct sn_composed *sn_composed_of(const struct sennit_cache *cache)
{
    return (const struct sn_composed *)cache;
}

#endif
