/* What the families that keep plain keys and values have in common: their geometry rules, their signature, and how a
 * page holds them.
 *
 * A page of P positions, for H KV heads and an element type T:
 *
 *     K [H][P / 16 groups][d_k][16 keys]   the lane of a score is a key: no horizontal sum. P < 16: [H][d_k][P]
 *     V [H][P][d_v]
 *
 * At P = 64 one head's part is what the attention slots read (kernel.h), in place; smaller pages are gathered into
 * that shape, a chunk of 64 keys at a time: the same slots, the same bits. */
#ifndef SN_CACHE_KV_H
#define SN_CACHE_KV_H

#include "cache/attend.h"
#include "cache/pages.h"

enum { SN_KV_MAX_DIM = 65536 }; /* heads and head dimensions: no product of sizes overflows below it */

/* SENNIT_INVALID with the field's name unless heads and dimensions are in range. */
sennit_status sn_kv_check_dims(const struct sennit_cache_config *config, struct sennit_error *err);
/* The same, and unless both types are the same one of f32, f16 and bf16. */
sennit_status sn_kv_check(const struct sennit_cache_config *config, struct sennit_error *err);
/* "plain f16 kv 3 k 64 v 64" */
void sn_kv_signature(const char *family, const struct sennit_cache_config *config, char *out, size_t n_bytes);
/* 4 for f32, 2 otherwise. */
size_t sn_kv_element_bytes(sennit_type type);

/* A page's layout and the slots that write and read its type. */
struct sn_kv_layout {
    uint32_t n_heads, d_k, d_v, page_tokens, lanes; /* lanes: keys of a group in a page: 16, or page_tokens if less */
    size_t element_bytes;
    size_t k_head_bytes, v_head_bytes; /* of one head in a page */
    size_t v_offset;                   /* of the V part in a page */
    size_t page_bytes;                 /* of a page's data */
    sn_store_fn store;
    sn_attn_fn attn;
    enum sn_kernel_id store_id, attn_id; /* for the count of calls */
};
void sn_kv_layout_init(struct sn_kv_layout *l, const struct sennit_cache_config *config,
                       const struct sn_kernels *kernels);

/* Where a head's key (elements `lanes` apart) and value (side by side) of position `slot` of a page start. */
static inline uint8_t *sn_kv_key_at(const struct sn_kv_layout *l, uint8_t *data, size_t head, size_t slot)
{
    return data + head * l->k_head_bytes + (slot / l->lanes * l->d_k * l->lanes + slot % l->lanes) * l->element_bytes;
}
static inline uint8_t *sn_kv_value_at(const struct sn_kv_layout *l, uint8_t *data, size_t head, size_t slot)
{
    return data + l->v_offset + head * l->v_head_bytes + slot * l->d_v * l->element_bytes;
}

/* Sets every byte of positions `from` .. P - 1 of a page. */
void sn_kv_fill_tail(const struct sn_kv_layout *l, uint8_t *data, size_t from, uint8_t byte);
/* Heads of one token (role key or value, f32 side by side) into position `slot` of a page. */
void sn_kv_store(const struct sn_kv_layout *l, uint8_t *data, size_t slot, bool key, uint32_t first_head,
                 uint32_t n_heads, const float *x);
/* A page's two spans, "key" and "value": all heads, in the page's own layout, unwritten positions included. */
void sn_kv_views(const struct sn_kv_layout *l, sennit_type type, const uint8_t *data, uint32_t row, uint64_t pos,
                 uint64_t n_tokens, struct sennit_span_view out[2]);

/* `segment` and `segment_bytes` of families on such pages: pages[i] holds positions (first_page + i) * P and on. */
void sn_kv_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s, const struct sn_kv_layout *l,
                   struct sn_page *const *pages, uint64_t first_page);
size_t sn_kv_segment_bytes(const struct sn_kv_layout *l);

#endif
