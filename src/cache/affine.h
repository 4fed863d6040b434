/* Keys and values as affine codes of 8 or 4 bits, in groups of 32 or 64 along the head dimension: the geometry's
 * rules and how a page holds them, for family "affine" and for those that keep such pages within something else.
 *
 * A page of P positions, for H KV heads, lanes = 16 or P if less, ng = d / group:
 *
 *     keys    codes [H][P / lanes][d_k / n][lanes][4 bytes], n = 4 at 8 bits, 8 at 4 bits
 *             scale f16 [H][P / lanes][ng][lanes], then bias alike
 *     values  codes [H][P][d_v * bits / 8], scale f16 [H][ng][P], bias alike
 *
 * Bytes and halves within are those of kernel.h, "keys and values as codes". At P = 64 the attention slot reads a
 * head's part in place; smaller pages are gathered into that shape, a chunk at a time: the same slot, the same bits.
 * Nothing is ever decoded and kept, and what is encoded is never encoded again. */
#ifndef SN_CACHE_AFFINE_H
#define SN_CACHE_AFFINE_H

#include "cache/attend.h"
#include "cache/pages.h"

/* SENNIT_INVALID with the field's name unless heads and dimensions are in range, bits are 4 or 8, and the group is 32
 * or 64 and divides both dimensions. */
sennit_status sn_affine_check(const struct sennit_cache_config *config, struct sennit_error *err);
/* "affine k8 v4 g32 kv 3 k 64 v 64" */
void sn_affine_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes);
/* "affine k8 v4 g32"; lives for ever. */
const char *sn_affine_dtype(const struct sennit_cache_config *config);

/* Keys, or values: sizes are of one head in a page, offsets from the page's start. */
struct sn_affine_plane {
    uint32_t d, bits, n_groups;
    size_t codes_bytes, scale_bytes; /* the biases take scale_bytes too */
    size_t codes, scale, bias;
};
struct sn_affine_layout {
    uint32_t n_heads, group, page_tokens, lanes;
    struct sn_affine_plane k, v;
    size_t page_bytes;
};
void sn_affine_layout_init(struct sn_affine_layout *l, const struct sennit_cache_config *config);

/* Encodes heads of one token (role key or value, f32 side by side) into position `slot` of a page. */
void sn_affine_store(const struct sn_affine_layout *l, const struct sn_kernels *kernels, struct sn_calls *calls,
                     uint8_t *data, size_t slot, bool key, uint32_t first_head, uint32_t n_heads, const float *x);
/* Sets every byte of positions `from` .. P - 1 of a page. */
void sn_affine_fill_tail(const struct sn_affine_layout *l, uint8_t *data, size_t from, uint8_t byte);
/* A page's six spans: "key", "key_scale", "key_bias", "value", "value_scale", "value_bias"; all heads, in the page's
 * own layout, unwritten positions included. Codes are bytes without a sign, under the type I8. */
enum { SN_AFFINE_VIEWS = 6 };
void sn_affine_views(const struct sn_affine_layout *l, const uint8_t *data, uint32_t row, uint64_t pos,
                     uint64_t n_tokens, struct sennit_span_view out[SN_AFFINE_VIEWS]);

/* Slots of struct sn_attend_ops for families on such pages: the job's queries as codes, and one segment;
 * pages[i] holds positions (first_page + i) * P and on. */
size_t sn_affine_prepare_bytes(const struct sn_affine_layout *l, size_t n_q);
void sn_affine_prepare(const struct sn_attend_job *job, const struct sn_affine_layout *l);
size_t sn_affine_segment_bytes(const struct sn_affine_layout *l);
void sn_affine_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s,
                       const struct sn_affine_layout *l, struct sn_page *const *pages, uint64_t first_page);

#endif
