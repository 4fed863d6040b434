/* What the families of compressed keys and values share ("mla", "mla-dsa"): the geometry's rules, how a page holds
 * tokens, and attention in the absorbed form: all query heads read one latent and one rope key per token, a key is
 * the latent followed by the rope key, a value is the latent.
 *
 * A page of P positions, in this order, each part with positions one after the other:
 *
 *     latent [P][d_latent] of k_type                          or, coded:  codes uint8 [P][d_latent],
 *                                                             scales f16 [P][d_latent / 64], biases f16 the same
 *     rope key [P][d_rope] of k_type
 *     index key [P / 16][d_index][16], P < 16: [d_index][P]   with an indexer only
 *
 * The latent lies once, as the values are read; a segment's keys are turned into panels in the worker's scratch. */
#ifndef SN_CACHE_MLA_H
#define SN_CACHE_MLA_H

#include "cache/kv.h"
#include "cache/paged.h"

enum {
    SN_MLA_GROUP = 64,         /* elements of a group of codes */
    SN_MLA_MAX_TOP_K = 1 << 20 /* selected keys: what a worker's list has room for */
};

struct sn_mla {
    struct sn_paged paged; /* first */
    uint32_t d_latent, d_rope, d_index, page_tokens;
    uint32_t n_groups; /* groups of codes of a latent; 0: not coded */
    size_t element_bytes, index_element_bytes;
    size_t latent_bytes; /* of one token */
    size_t scale_at, bias_at, rope_at, index_at, page_bytes;
    sn_store_fn store, index_store;
    sn_attn_fn attn;
    enum sn_kernel_id store_id, index_store_id, attn_id;
};

static inline const struct sn_mla *sn_mla_of(const struct sennit_cache *cache)
{
    return (const struct sn_mla *)cache;
}

/* mla.d_latent, d_rope, k_type, v_type and code. */
sennit_status sn_mla_check(const struct sennit_cache_config *config, struct sennit_error *err);
/* "mla f16 latent 512 rope 64", without the page size */
void sn_mla_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes);
/* The whole init of a family without fields of its own. d_index: 0 = no index keys. */
void sn_mla_init(struct sennit_cache *cache, uint32_t d_index);

/* Where the latent of position `slot` of a page starts; its scales and biases; its rope key. */
static inline uint8_t *sn_mla_latent(const struct sn_mla *c, uint8_t *page, size_t slot)
{
    return page + slot * c->latent_bytes;
}
static inline uint16_t *sn_mla_scales(const struct sn_mla *c, uint8_t *page, size_t slot)
{
    return (uint16_t *)(void *)(page + c->scale_at) + slot * c->n_groups;
}
static inline uint16_t *sn_mla_biases(const struct sn_mla *c, uint8_t *page, size_t slot)
{
    return (uint16_t *)(void *)(page + c->bias_at) + slot * c->n_groups;
}
static inline uint8_t *sn_mla_rope(const struct sn_mla *c, uint8_t *page, size_t slot)
{
    return page + c->rope_at + slot * c->d_rope * c->element_bytes;
}
/* The index key's first element; the others are sn_mla_index_lanes() elements apart. */
static inline size_t sn_mla_index_lanes(const struct sn_mla *c)
{
    return c->page_tokens < 16 ? c->page_tokens : 16;
}
static inline uint8_t *sn_mla_index(const struct sn_mla *c, uint8_t *page, size_t slot)
{
    size_t lanes = sn_mla_index_lanes(c);
    return page + c->index_at + (slot / lanes * c->d_index * lanes + slot % lanes) * c->index_element_bytes;
}

/* The page of a key number of a job, and its slot in it. */
static inline uint8_t *sn_mla_page(const struct sn_attend_job *job, const struct sn_mla *c, uint64_t key,
                                   size_t *slot)
{
    struct sn_page *const *pages = job->row_data;
    uint64_t pos = sn_attend_pos(job, key);
    *slot = pos % c->page_tokens;
    return pages[pos / c->page_tokens]->data;
}

/* Hooks of struct sn_attend_ops. */
size_t sn_mla_prepare_bytes(const struct sn_attend_source *src, size_t n_q);
void sn_mla_prepare(const struct sn_attend_job *job);
size_t sn_mla_segment_bytes(const struct sn_attend_source *src, size_t n_q);
void sn_mla_segment(const struct sn_attend_job *job, const struct sn_attend_segment *segment);

/* ---- the coded latent (mla_code.c) ---------------------------------------------------------------------------- */

size_t sn_mla_coded_prepare_bytes(const struct sn_mla *c, size_t n_q);
void sn_mla_coded_prepare(const struct sn_attend_job *job);
size_t sn_mla_coded_segment_bytes(const struct sn_mla *c);
void sn_mla_coded_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s);

#endif
