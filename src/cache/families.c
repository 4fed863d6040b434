#include "cache/family.h"

const struct sn_family *const sn_families[] = {
#define SN_FAMILY(name) &sn_family_##name,
#include "cache/families.list"
#undef SN_FAMILY
    NULL,
};

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
