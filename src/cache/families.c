#include "cache/external.h"

const struct sn_family *const sn_families[] = {
#define SN_FAMILY(name) &sn_family_##name,
#include "cache/families.list"
#undef SN_FAMILY
    NULL,
};

const struct sn_family *sn_family_of(const struct sennit_cache_config *config)
{
    if (config->external)
        return &sn_family_external;
    for (const struct sn_family *const *f = sn_families; config->family && *f; f++)
        if (strcmp((*f)->name, config->family) == 0)
            return *f;
    return NULL;
}

const char *const *sennit_cache_families(void)
{
    static const char *const names[] = {
#define SN_FAMILY(name) #name,
#define SN_FAMILY_AS(id, name) name,
#include "cache/families.list"
#undef SN_FAMILY
        NULL,
    };
    return names;
}
