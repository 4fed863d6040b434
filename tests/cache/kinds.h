/* What the named tests must know of how a family keeps numbers. */
#ifndef CACHE_KINDS_H
#define CACHE_KINDS_H

#include <string.h>

#include "cache/twin.h"

/* Values are rotated before they are coded. */
static inline bool is_rotated(const struct tested_family *f)
{
    return strstr(f->name, "turboquant") != NULL;
}

/* Keys and values as codes: types stand for numbers of bits. */
static inline bool is_coded(const struct tested_family *f)
{
    return strcmp(family_of(f), "affine") == 0 || strcmp(family_of(f), "turboquant") == 0;
}

/* What long rows end up as. */
static inline bool reads_codes(const struct tested_family *f)
{
    return is_coded(f) || strcmp(family_of(f), "delayed") == 0 || strcmp(f->name, "window-delayed") == 0;
}

/* From outside the library; keeps f32 alone. */
static inline bool is_external(const struct tested_family *f)
{
    return strcmp(family_of(f), "raw") == 0;
}

/* The storage type of keys and values, or of the one thing that a family keeps; without types: another dimension. */
static inline void set_type(const struct tested_family *f, struct sennit_cache_config *config, sennit_type type)
{
    if (is_external(f)) {
        config->d_v += 8 * (uint32_t)(type + 1);
        return;
    }
    if (is_coded(f)) {
        config->code.k_bits = type == SENNIT_BF16 ? 4 : 8;
        config->code.v_bits = type == SENNIT_F32 ? 8 : 4;
        return;
    }
    if (config->v_type == config->k_type)
        config->v_type = type;
    config->k_type = type;
}

#endif
