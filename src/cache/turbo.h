/* TurboQuant keys and values: the geometry's rules and how a page holds them, for family "turboquant" and for those
 * that keep such pages within something else. Keys are integer codes with a zero; values are rotated and coded by the
 * nearest of a few levels; groups are of 32 along the head dimension. Bytes are those of kernel.h, "keys and values
 * as TurboQuant codes".
 *
 * A page of P positions, for H KV heads, lanes = 16 or P if less, ng = d / 32:
 *
 *     keys    codes [H][P / lanes][ng][bits][lanes][4 bytes], scale f16 [H][P / lanes][ng][lanes], then zero alike
 *     values  codes [H][P][d_v * bits / 8], scale f16 [H][ng][P]
 *
 * At P = 64 the attention slot reads a head's part in place; smaller pages are gathered into that shape, a chunk at a
 * time: the same slot, the same bits. Nothing is ever decoded and kept, and what is encoded is never encoded again.
 *
 * Attention runs in the rotated space throughout, merges included: it is linear in the values, so that one rotation
 * of each query's finished output (sn_turbo_finish) stands for one of every value. */
#ifndef SN_CACHE_TURBO_H
#define SN_CACHE_TURBO_H

#include "cache/attend.h"
#include "cache/pages.h"

/* SENNIT_INVALID with the field's name unless heads are in range, head dimensions are 64, 128, 256 or 512, bits of
 * keys 2, 4, 5 or 8, of values 2, 3, 4, 5 or 8 (or both 0: 8 and 3), and the group 32 or 0. */
sennit_status sn_turbo_check(const struct sennit_cache_config *config, struct sennit_error *err);
/* The configuration with what its zeros stand for. */
void sn_turbo_defaults(struct sennit_cache_config *config);
/* "turboquant k8 v3 kv 3 k 64 v 64" */
void sn_turbo_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes);
/* "turboquant k8 v3"; lives for ever. */
const char *sn_turbo_dtype(const struct sennit_cache_config *config);

/* Keys, or values: sizes are of one head in a page, offsets from the page's start. */
struct sn_turbo_plane {
    uint32_t d, bits, n_groups;
    size_t row_bytes;                /* codes of one token */
    size_t codes_bytes, scale_bytes; /* the zeros of keys take scale_bytes too */
    size_t codes, scale, zero;       /* zero of values: the plane's end */
};
struct sn_turbo_layout {
    uint32_t n_heads, page_tokens, lanes;
    struct sn_turbo_plane k, v;
    size_t page_bytes;
};
void sn_turbo_layout_init(struct sn_turbo_layout *l, const struct sennit_cache_config *config);

/* Encodes heads of one token (role key or value, f32 side by side) into position `slot` of a page. */
void sn_turbo_store(const struct sn_turbo_layout *l, const struct sn_kernels *kernels, struct sn_calls *calls,
                    uint8_t *data, size_t slot, bool key, uint32_t first_head, uint32_t n_heads, const float *x);
/* Sets every byte of positions `from` .. P - 1 of a page. */
void sn_turbo_fill_tail(const struct sn_turbo_layout *l, uint8_t *data, size_t from, uint8_t byte);
/* A page's five spans: "key", "key_scale", "key_zero", "value", "value_scale"; all heads, in the page's own layout,
 * unwritten positions included. Codes are bytes of a bit stream, under the type I8. */
enum { SN_TURBO_VIEWS = 5 };
void sn_turbo_views(const struct sn_turbo_layout *l, const uint8_t *data, uint32_t row, uint64_t pos,
                    uint64_t n_tokens, struct sennit_span_view out[SN_TURBO_VIEWS]);

/* Slots of struct sn_attend_ops for families on such pages: the job's queries as codes, one segment (pages[i] holds
 * positions (first_page + i) * P and on), and an output back from the rotated space. */
size_t sn_turbo_prepare_bytes(const struct sn_turbo_layout *l, size_t n_q);
void sn_turbo_prepare(const struct sn_attend_job *job, const struct sn_turbo_layout *l);
size_t sn_turbo_segment_bytes(const struct sn_turbo_layout *l);
void sn_turbo_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s,
                      const struct sn_turbo_layout *l, struct sn_page *const *pages, uint64_t first_page);
void sn_turbo_finish(struct sennit_pool *pool, const struct sn_turbo_layout *l, uint32_t worker, float *out);

#endif
