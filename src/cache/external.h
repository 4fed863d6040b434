/* Families from outside the library (sennit/family.h): one family table for all of them; whose they are stands in the
 * configuration. */
#ifndef SN_CACHE_EXTERNAL_H
#define SN_CACHE_EXTERNAL_H

#include "cache/family.h"
#include "sennit/family.h"

/* Not in sn_families: a configuration with `external` finds it. */
extern const struct sn_family sn_family_external;

/* What its functions get for a cache of this configuration, which has been checked. */
struct sennit_family_geometry sn_external_geometry(const struct sennit_cache_config *config);
/* What does not depend on a geometry: the struct's size, its name, its slots. SENNIT_INVALID, SENNIT_UNSUPPORTED. */
sennit_status sn_external_check(const struct sennit_family *family, struct sennit_error *err);

#endif
