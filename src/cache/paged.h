/* What all families whose rows are chains of pages (pages.h) have in common: every slot of the family table but
 * check, signature, init and the attention. Such a family is: a struct that begins with a struct sn_paged, a page
 * layout (struct sn_page_ops), and attention over pages (struct sn_attend_ops).
 *
 * row.store is the row's newest table block; NULL without tokens. */
#ifndef SN_CACHE_PAGED_H
#define SN_CACHE_PAGED_H

#include "cache/attend.h"
#include "cache/pages.h"

/* How a family lays positions out in a page of paging.page_tokens. All slots are mandatory. */
struct sn_page_ops {
    /* One token's heads first_head .. of one role, f32, head h at x + h * head dimension, into position `slot`.
     * Counts what it calls under `worker`. */
    void (*store)(const struct sennit_cache *cache, uint8_t *data, size_t slot, sennit_role role, uint32_t first_head,
                  uint32_t n_heads, const float *x, uint32_t worker);
    /* Sets every byte of positions `from` .. page_tokens - 1. */
    void (*fill_tail)(const struct sennit_cache *cache, uint8_t *data, size_t from, uint8_t byte);
    /* The page's spans in their fixed order: positions pos .. pos + n_tokens - 1, unwritten ones part of n_bytes. */
    size_t n_views;
    void (*views)(const struct sennit_cache *cache, const uint8_t *data, uint32_t row, uint64_t pos,
                  uint64_t n_tokens, struct sennit_span_view *out);
};

struct sn_paged {
    struct sennit_cache base; /* first */
    const struct sn_page_ops *ops;
    struct sn_paging paging;
    struct sn_growth *undo; /* [cap_undo], one per span of the open step */
    uint32_t cap_undo;
};

static inline const struct sn_paged *sn_paged_of(const struct sennit_cache *cache)
{
    return (const struct sn_paged *)cache;
}

/* The family of a configuration when its rows are such chains: one whose pages can lie within something else. NULL
 * otherwise. */
const struct sn_family *sn_paged_family(const struct sennit_cache_config *config);

/* From the family's init. page_bytes: of a page's data. */
void sn_paged_init(struct sennit_cache *cache, const struct sn_page_ops *ops, size_t page_bytes);

/* A row's spans, under the number `index`; tokens of a span of a row that has grown for it. Of any row whose pages
 * are the cache's form. */
size_t sn_paged_row_n_spans(const struct sennit_cache *cache, const struct sn_row *row);
void sn_paged_row_spans(const struct sennit_cache *cache, const struct sn_row *row, uint32_t index,
                        struct sennit_span_view *out);
void sn_paged_row_store(const struct sennit_cache *cache, const struct sn_row *row, const struct sennit_span *span,
                        uint32_t token, uint32_t n_tokens, sennit_role role, uint32_t first_head, uint32_t n_heads,
                        const float *data, size_t token_stride, uint32_t worker);
/* In a poisoned pool: the rest of the last page, before a span of n_new tokens is written. */
void sn_paged_row_poison(const struct sennit_cache *cache, const struct sn_row *row, uint64_t n_new);

/* Slots of the family table. */
void sn_paged_release(struct sennit_cache *cache);
uint64_t sn_paged_storage_bytes(const struct sennit_cache *cache, uint64_t tokens);
uint64_t sn_paged_reserve_bytes(const struct sennit_cache *cache);
uint64_t sn_paged_bytes_per_token(const struct sennit_cache *cache);
uint64_t sn_paged_row_bytes(const struct sennit_cache *cache, const struct sn_row *row);
sennit_status sn_paged_row_copy(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                                struct sennit_error *err);
void sn_paged_row_drop(struct sennit_cache *cache, struct sn_row *row);
sennit_status sn_paged_trim_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                    void **spare, struct sennit_error *err);
void sn_paged_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare);
void sn_paged_trim_discard(struct sennit_cache *cache, void *spare);
size_t sn_paged_n_spans(const struct sennit_cache *cache, uint32_t row);
void sn_paged_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out);
uint64_t sn_paged_body_bytes(const struct sennit_cache *cache, uint64_t tokens);
sennit_status sn_paged_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                 struct sennit_stream *stream, struct sennit_error *err);
sennit_status sn_paged_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                 struct sennit_error *err);
/* Grows every row for its span; reserves the attention driver's scratch where the family uses the driver. */
sennit_status sn_paged_step_begin(struct sennit_cache *cache, struct sennit_error *err);
void sn_paged_step_commit(struct sennit_cache *cache);
void sn_paged_step_abort(struct sennit_cache *cache);
void sn_paged_step_tile(struct sennit_cache *cache, uint32_t span_index, uint32_t token, uint32_t n_tokens,
                        sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                        size_t token_stride, uint32_t worker);

/* All of them for a family's table: what belongs to rows, and what belongs to the object and its steps, which some
 * families replace. */
/* clang-format off */
#define SN_PAGED_ROW_SLOTS \
    .storage_bytes = sn_paged_storage_bytes, \
    .reserve_bytes = sn_paged_reserve_bytes, \
    .bytes_per_token = sn_paged_bytes_per_token, \
    .row_bytes = sn_paged_row_bytes, \
    .row_copy = sn_paged_row_copy, \
    .row_drop = sn_paged_row_drop, \
    .trim_prepare = sn_paged_trim_prepare, \
    .trim_apply = sn_paged_trim_apply, \
    .trim_discard = sn_paged_trim_discard, \
    .n_spans = sn_paged_n_spans, \
    .spans = sn_paged_spans, \
    .body_bytes = sn_paged_body_bytes, \
    .save_body = sn_paged_save_body, \
    .load_body = sn_paged_load_body
#define SN_PAGED_STEP_SLOTS \
    .release = sn_paged_release, \
    .step_begin = sn_paged_step_begin, \
    .step_tile = sn_paged_step_tile, \
    .step_commit = sn_paged_step_commit, \
    .step_abort = sn_paged_step_abort
/* clang-format on */

/* row_bytes and row_fill of struct sn_attend_ops: row_data is struct sn_page *[pages], page p at index p. */
size_t sn_paged_list_bytes(const struct sn_attend_source *src, uint64_t n_tokens);
void sn_paged_list(const struct sn_attend_source *src, uint64_t n_tokens, void *out);

#endif
