#include "cache/kv.h"

#include <stdio.h>

static sennit_status check_dim(const char *field, uint32_t value, struct sennit_error *err)
{
    if (value >= 1 && value <= SN_KV_MAX_DIM)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: %s is %u; it must be 1 to %d", field, value,
                   SN_KV_MAX_DIM);
}

sennit_status sn_kv_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(check_dim("n_kv_heads", config->n_kv_heads, err));
    SN_TRY(check_dim("d_k", config->d_k, err));
    SN_TRY(check_dim("d_v", config->d_v, err));
    sennit_type type = config->k_type;
    if (type != SENNIT_F32 && type != SENNIT_F16 && type != SENNIT_BF16)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: k_type %s cannot be stored here: use F32, F16 or BF16",
                       sennit_type_name(type));
    if (config->v_type != type)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: v_type %s differs from k_type %s; they must be equal",
                       sennit_type_name(config->v_type), sennit_type_name(type));
    return SENNIT_OK;
}

void sn_kv_signature(const char *family, const struct sennit_cache_config *config, char *out,
                     size_t n_bytes)
{
    snprintf(out, n_bytes, "%s %s kv %u k %u v %u", family, sennit_type_name(config->k_type),
             config->n_kv_heads, config->d_k, config->d_v);
}

size_t sn_kv_element_bytes(sennit_type type)
{
    return type == SENNIT_F32 ? 4 : 2;
}
