/* What the families that keep plain keys and values have in common: their geometry rules and their
 * signature. */
#ifndef SN_CACHE_KV_H
#define SN_CACHE_KV_H

#include "cache/family.h"

enum {
    SN_KV_MAX_DIM = 65536
}; /* heads and head dimensions: no product of sizes overflows below it */

/* SENNIT_INVALID with the field's name unless heads and dimensions are in range and both types are
 * the same one of f32, f16 and bf16. */
sennit_status sn_kv_check(const struct sennit_cache_config *config, struct sennit_error *err);
/* "plain f16 kv 3 k 64 v 64" */
void sn_kv_signature(const char *family, const struct sennit_cache_config *config, char *out,
                     size_t n_bytes);
/* 4 for f32, 2 otherwise. */
size_t sn_kv_element_bytes(sennit_type type);

#endif
