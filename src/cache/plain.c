#include "cache/plain.h"

#include <assert.h>

static struct sn_plain *mutable_plain(struct sennit_cache *cache)
{
    return (struct sn_plain *)cache;
}

/* ---- one cache ------------------------------------------------------------------------------- */

static void plain_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    sn_kv_signature("plain", config, out, n_bytes);
}

static sennit_status plain_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_kv_check(config, err));
    return sn_page_tokens_check(config, err);
}

static sennit_status plain_init(struct sennit_cache *cache, struct sennit_error *err)
{
    (void)err;
    struct sn_plain *c = mutable_plain(cache);
    sn_kv_layout_init(&c->layout, &cache->config, cache->pool->kernels);
    c->paging = (struct sn_paging){
        .pool = cache->pool, .data_bytes = c->layout.page_bytes, .page_tokens = c->layout.page_tokens};
    return SENNIT_OK;
}

static void plain_release(struct sennit_cache *cache)
{
    struct sn_plain *c = mutable_plain(cache);
    sn_free(cache->pool->heap, SN_USE_MISC, c->undo, c->cap_undo * sizeof *c->undo);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint64_t plain_storage_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    return sn_paged_bytes(&sn_plain_of(cache)->paging, tokens);
}

/* Each snapshot can make the row copy the page and the table block that it goes on writing; a
 * verify round stands up to round_depth tokens past the row's length. */
static uint64_t plain_reserve_bytes(const struct sennit_cache *cache)
{
    const struct sn_paging *paging = &sn_plain_of(cache)->paging;
    uint64_t page = sn_page_bytes(paging), table = sn_table_bytes();
    uint64_t bytes = cache->config.n_snapshots * (page + table);
    if (cache->config.round_depth > 0) {
        uint64_t pages = sn_pages_of(paging, cache->config.round_depth);
        bytes += pages * page + (pages / SN_TABLE_PAGES + 1) * table;
    }
    return bytes;
}

static uint64_t plain_bytes_per_token(const struct sennit_cache *cache)
{
    const struct sn_paging *paging = &sn_plain_of(cache)->paging;
    return sn_page_bytes(paging) / paging->page_tokens;
}

static uint64_t plain_row_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    return sn_table_own_bytes(&sn_plain_of(cache)->paging, row->store);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static sennit_status plain_row_copy(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                                    struct sennit_error *err)
{
    (void)to, (void)err;
    sn_table_ref(src->store);
    dst->store = src->store;
    return SENNIT_OK;
}

static void plain_row_drop(struct sennit_cache *cache, struct sn_row *row)
{
    sn_table_drop(&sn_plain_of(cache)->paging, row->store);
}

static sennit_status plain_trim_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                        void **spare, struct sennit_error *err)
{
    struct sn_table *block = NULL;
    sennit_status status =
        sn_table_cut_prepare(&sn_plain_of(cache)->paging, row->store, row->n_tokens, n_tokens, &block, err);
    *spare = block;
    return status;
}

static void plain_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    struct sn_table *tail = row->store;
    sn_table_cut(&sn_plain_of(cache)->paging, &tail, row->n_tokens, n_tokens, spare);
    row->store = tail;
}

static void plain_trim_discard(struct sennit_cache *cache, void *spare)
{
    sn_table_spare_free(&sn_plain_of(cache)->paging, spare);
}

/* ---- spans and streams
 * --------------------------------------------------------------------------------------- */

static size_t plain_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    return 2 * (size_t)sn_pages_of(&sn_plain_of(cache)->paging, cache->rows[row].n_tokens);
}

static void plain_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    const struct sn_plain *c = sn_plain_of(cache);
    uint64_t size = c->paging.page_tokens, n_tokens = cache->rows[row].n_tokens;
    uint64_t n_pages = sn_pages_of(&c->paging, n_tokens);
    for (uint64_t p = 0; p < n_pages; p++) {
        const struct sn_page *page = sn_table_page(cache->rows[row].store, n_pages, p);
        uint64_t left = n_tokens - p * size;
        sn_kv_views(&c->layout, cache->config.k_type, page->data, row, p * size, left < size ? left : size,
                    out + 2 * p);
    }
}

static uint64_t plain_body_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(sn_pages_of(&sn_plain_of(cache)->paging, tokens),
                               sn_plain_of(cache)->paging.data_bytes, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* The unwritten rest of the last page goes out as zeros: a record depends on the row's tokens
 * alone. */
static sennit_status save_last(const struct sn_plain *c, const struct sn_page *page, size_t n_tokens,
                               struct sennit_stream *stream, struct sennit_error *err)
{
    struct sn_heap *heap = c->base.pool->heap;
    uint8_t *copy = sn_alloc(heap, SN_USE_SCRATCH, c->paging.data_bytes);
    if (!copy)
        return sn_fail(err, SENNIT_NOMEM, "save: no memory for a copy of the last page");
    memcpy(copy, page->data, c->paging.data_bytes);
    sn_kv_fill_tail(&c->layout, copy, n_tokens, 0);
    sennit_status status = sn_stream_write(stream, copy, c->paging.data_bytes, err);
    sn_free(heap, SN_USE_SCRATCH, copy, c->paging.data_bytes);
    return status;
}

static sennit_status plain_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                     struct sennit_stream *stream, struct sennit_error *err)
{
    const struct sn_plain *c = sn_plain_of(cache);
    uint64_t n_pages = sn_pages_of(&c->paging, row->n_tokens), full = row->n_tokens / c->paging.page_tokens;
    for (uint64_t p = 0; p < full; p++)
        SN_TRY(sn_stream_write(stream, sn_table_page(row->store, n_pages, p)->data, c->paging.data_bytes, err));
    if (full == n_pages)
        return SENNIT_OK;
    return save_last(c, sn_table_page(row->store, n_pages, full), row->n_tokens % c->paging.page_tokens, stream, err);
}

static sennit_status plain_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                     struct sennit_error *err)
{
    const struct sn_plain *c = sn_plain_of(cache);
    struct sn_table *tail = NULL;
    sennit_status status = SENNIT_OK;
    for (uint64_t pos = 0; pos < row->n_tokens && status == SENNIT_OK; pos += c->paging.page_tokens) {
        struct sn_growth undo;
        status = sn_table_grow(&c->paging, &tail, pos, c->paging.page_tokens, &undo, err);
        if (status == SENNIT_OK) {
            sn_table_settle(&c->paging, &undo);
            status = sn_stream_read(stream, tail->page[tail->n_pages - 1]->data, c->paging.data_bytes, err);
        }
    }
    if (status == SENNIT_OK)
        row->store = tail;
    else
        sn_table_drop(&c->paging, tail);
    return status;
}

/* ---- the step -------------------------------------------------------------------------------- */

static sennit_status reserve_undo(struct sn_plain *c, uint32_t n_spans, struct sennit_error *err)
{
    if (n_spans <= c->cap_undo)
        return SENNIT_OK;
    struct sn_heap *heap = c->base.pool->heap;
    struct sn_growth *fresh = sn_calloc(heap, SN_USE_MISC, n_spans, sizeof *fresh);
    if (!fresh)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a step of %u spans", n_spans);
    sn_free(heap, SN_USE_MISC, c->undo, c->cap_undo * sizeof *fresh);
    c->undo = fresh;
    c->cap_undo = n_spans;
    return SENNIT_OK;
}

static void undo_spans(struct sn_plain *c, uint32_t n_spans)
{
    while (n_spans-- > 0) {
        struct sn_row *row = &c->base.rows[c->base.step.spans[n_spans].row];
        struct sn_table *tail = row->store;
        sn_table_undo(&c->paging, &tail, &c->undo[n_spans]);
        row->store = tail;
    }
}

static void poison_tail(const struct sn_plain *c, const struct sn_row *row, const struct sennit_span *span)
{
    if (!c->base.pool->poison || row->n_tokens % c->paging.page_tokens == 0)
        return;
    uint64_t n_pages = sn_pages_of(&c->paging, row->n_tokens + span->n_tokens);
    struct sn_page *page = sn_table_page(row->store, n_pages, row->n_tokens / c->paging.page_tokens);
    sn_kv_fill_tail(&c->layout, page->data, row->n_tokens % c->paging.page_tokens, 0xFF);
}

static sennit_status plain_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_plain *c = mutable_plain(cache);
    const struct sn_cache_step *step = &cache->step;
    SN_TRY(reserve_undo(c, step->n_spans, err));
    SN_TRY(sn_attend_reserve(cache, err));
    for (uint32_t i = 0; i < step->n_spans; i++) {
        const struct sennit_span *span = &step->spans[i];
        struct sn_row *row = &cache->rows[span->row];
        struct sn_table *tail = row->store;
        sennit_status status = sn_table_grow(&c->paging, &tail, row->n_tokens, span->n_tokens, &c->undo[i], err);
        row->store = tail;
        if (status != SENNIT_OK) {
            undo_spans(c, i);
            return status;
        }
        poison_tail(c, row, span);
    }
    return SENNIT_OK;
}

static void plain_step_commit(struct sennit_cache *cache)
{
    struct sn_plain *c = mutable_plain(cache);
    for (uint32_t i = 0; i < cache->step.n_spans; i++)
        sn_table_settle(&c->paging, &c->undo[i]);
}

static void plain_step_abort(struct sennit_cache *cache)
{
    undo_spans(mutable_plain(cache), cache->step.n_spans);
}

static void plain_step_tile(struct sennit_cache *cache, uint32_t span_index, uint32_t token, uint32_t n_tokens,
                            sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                            size_t token_stride, uint32_t worker)
{
    const struct sn_plain *c = sn_plain_of(cache);
    const struct sennit_span *span = &cache->step.spans[span_index];
    bool key = role == SENNIT_ROLE_KEY;
    assert((key || role == SENNIT_ROLE_VALUE) && first_head + n_heads <= cache->config.n_kv_heads);
    const struct sn_table *tail = cache->rows[span->row].store;
    uint64_t size = c->paging.page_tokens, n_pages = sn_pages_of(&c->paging, span->pos + span->n_tokens);
    uint8_t *page = NULL;
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint64_t pos = span->pos + token + t;
        if (!page || pos % size == 0)
            page = sn_table_page(tail, n_pages, pos / size)->data;
        sn_kv_store(&c->layout, page, pos % size, key, first_head, n_heads, data + t * token_stride);
    }
    cache->pool->calls[worker].n[c->layout.store_id] += (uint64_t)n_tokens * n_heads;
}

/* ---- attention: the driver's, over the row's pages ------------------------------------------------------------ */

static size_t plain_row_list_bytes(const struct sn_attend_source *src, uint64_t n_tokens)
{
    return sn_pages_of(&sn_plain_of(src->cache)->paging, n_tokens) * sizeof(struct sn_page *);
}

static void plain_row_list(const struct sn_attend_source *src, uint64_t n_tokens, void *out)
{
    sn_table_list(src->row->store, sn_pages_of(&sn_plain_of(src->cache)->paging, n_tokens), out);
}

static size_t plain_segment_bytes(const struct sn_attend_source *src, size_t n_q)
{
    (void)n_q;
    return sn_kv_segment_bytes(&sn_plain_of(src->cache)->layout);
}

static void plain_segment(const struct sn_attend_job *job, const struct sn_attend_segment *segment)
{
    sn_kv_segment(job, segment, &sn_plain_of(job->src.cache)->layout, job->row_data, 0);
}

static const struct sn_attend_ops plain_attend = {
    .row_bytes = plain_row_list_bytes,
    .row_fill = plain_row_list,
    .segment_bytes = plain_segment_bytes,
    .segment = plain_segment,
};

const struct sn_family sn_family_plain = {
    .name = "plain",
    .object_bytes = sizeof(struct sn_plain),
    .trimmable = true,
    .attend = &plain_attend,
    .check = plain_check,
    .signature = plain_signature,
    .init = plain_init,
    .release = plain_release,
    .storage_bytes = plain_storage_bytes,
    .reserve_bytes = plain_reserve_bytes,
    .bytes_per_token = plain_bytes_per_token,
    .row_bytes = plain_row_bytes,
    .row_copy = plain_row_copy,
    .row_drop = plain_row_drop,
    .trim_prepare = plain_trim_prepare,
    .trim_apply = plain_trim_apply,
    .trim_discard = plain_trim_discard,
    .n_spans = plain_n_spans,
    .spans = plain_spans,
    .donor_attend = sn_attend_donor,
    .body_bytes = plain_body_bytes,
    .save_body = plain_save_body,
    .load_body = plain_load_body,
    .step_begin = plain_step_begin,
    .step_tile = plain_step_tile,
    .step_commit = plain_step_commit,
    .step_abort = plain_step_abort,
    .attend_plan = sn_attend_plan,
    .attend_item = sn_attend_item,
    .attend_merge = sn_attend_merge,
};
