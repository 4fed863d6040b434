#include "cache/paged.h"

static struct sn_paged *mutable_paged(struct sennit_cache *cache)
{
    return (struct sn_paged *)cache;
}

const struct sn_family *sn_paged_family(const struct sennit_cache_config *config)
{
    const struct sn_family *f = sn_family_of(config);
    bool paged = f && f->step_tile == sn_paged_step_tile && f->attend && f->attend->row_fill == sn_paged_list;
    return paged ? f : NULL;
}

/* ---- one cache ----------------------------------------------------------------------------------------------- */

void sn_paged_init(struct sennit_cache *cache, const struct sn_page_ops *ops, size_t page_bytes)
{
    struct sn_paged *c = mutable_paged(cache);
    c->ops = ops;
    c->paging = (struct sn_paging){
        .pool = cache->pool, .data_bytes = page_bytes, .page_tokens = sn_page_tokens(&cache->config)};
}

void sn_paged_release(struct sennit_cache *cache)
{
    struct sn_paged *c = mutable_paged(cache);
    sn_free(cache->pool->heap, SN_USE_MISC, c->undo, c->cap_undo * sizeof *c->undo);
}

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

uint64_t sn_paged_storage_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    return sn_paged_bytes(&sn_paged_of(cache)->paging, tokens);
}

/* Each snapshot can make the row copy the page and the table block that it goes on writing; a
 * verify round stands up to round_depth tokens past the row's length. */
uint64_t sn_paged_reserve_bytes(const struct sennit_cache *cache)
{
    const struct sn_paging *paging = &sn_paged_of(cache)->paging;
    uint64_t page = sn_page_bytes(paging), table = sn_table_bytes();
    uint64_t bytes = cache->config.n_snapshots * (page + table);
    if (cache->config.round_depth > 0) {
        uint64_t pages = sn_pages_of(paging, cache->config.round_depth);
        bytes += pages * page + (pages / SN_TABLE_PAGES + 1) * table;
    }
    return bytes;
}

uint64_t sn_paged_bytes_per_token(const struct sennit_cache *cache)
{
    const struct sn_paging *paging = &sn_paged_of(cache)->paging;
    return sn_page_bytes(paging) / paging->page_tokens;
}

uint64_t sn_paged_row_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    (void)cache;
    return sn_table_own_bytes(row->store);
}

/* ---- rows ------------------------------------------------------------------------------------ */

sennit_status sn_paged_row_copy(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                                struct sennit_error *err)
{
    (void)to, (void)err;
    sn_table_ref(src->store);
    dst->store = src->store;
    return SENNIT_OK;
}

void sn_paged_row_drop(struct sennit_cache *cache, struct sn_row *row)
{
    sn_table_drop(&sn_paged_of(cache)->paging, row->store);
}

sennit_status sn_paged_trim_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                    void **spare, struct sennit_error *err)
{
    struct sn_table *block = NULL;
    sennit_status status =
        sn_table_cut_prepare(&sn_paged_of(cache)->paging, row->store, row->n_tokens, n_tokens, &block, err);
    *spare = block;
    return status;
}

void sn_paged_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    struct sn_table *tail = row->store;
    sn_table_cut(&sn_paged_of(cache)->paging, &tail, row->n_tokens, n_tokens, spare);
    row->store = tail;
}

void sn_paged_trim_discard(struct sennit_cache *cache, void *spare)
{
    sn_table_spare_free(&sn_paged_of(cache)->paging, spare);
}

/* ---- spans and streams ---------------------------------------------------------------------------------------- */

size_t sn_paged_row_n_spans(const struct sennit_cache *cache, const struct sn_row *row)
{
    const struct sn_paged *c = sn_paged_of(cache);
    return c->ops->n_views * (size_t)sn_pages_of(&c->paging, row->n_tokens);
}

void sn_paged_row_spans(const struct sennit_cache *cache, const struct sn_row *row, uint32_t index,
                        struct sennit_span_view *out)
{
    const struct sn_paged *c = sn_paged_of(cache);
    uint64_t size = c->paging.page_tokens, n_pages = sn_pages_of(&c->paging, row->n_tokens);
    uint64_t end = 0; /* of the blocks that are still to be listed, newest first */
    for (const struct sn_table *t = row->store; t; t = t->parent)
        end += t->n_pages;
    for (const struct sn_table *t = row->store; t; end -= t->n_pages, t = t->parent)
        for (uint64_t i = 0, p = end - t->n_pages; i < t->n_pages && p < n_pages; i++, p++) {
            uint64_t left = row->n_tokens - p * size;
            c->ops->views(cache, t->page[i]->data, index, p * size, left < size ? left : size,
                          out + c->ops->n_views * p);
        }
}

size_t sn_paged_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    return sn_paged_row_n_spans(cache, &cache->rows[row]);
}

void sn_paged_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    sn_paged_row_spans(cache, &cache->rows[row], row, out);
}

uint64_t sn_paged_body_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(sn_pages_of(&sn_paged_of(cache)->paging, tokens),
                               sn_paged_of(cache)->paging.data_bytes, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* The unwritten rest of the last page goes out as zeros: a record depends on the row's tokens
 * alone. */
static sennit_status save_last(const struct sn_paged *c, const struct sn_page *page, size_t n_tokens,
                               struct sennit_stream *stream, struct sennit_error *err)
{
    struct sn_heap *heap = c->base.pool->heap;
    uint8_t *copy = sn_alloc(heap, SN_USE_SCRATCH, c->paging.data_bytes);
    if (!copy)
        return sn_fail(err, SENNIT_NOMEM, "save: no memory for a copy of the last page");
    memcpy(copy, page->data, c->paging.data_bytes);
    c->ops->fill_tail(&c->base, copy, n_tokens, 0);
    sennit_status status = sn_stream_write(stream, copy, c->paging.data_bytes, err);
    sn_free(heap, SN_USE_SCRATCH, copy, c->paging.data_bytes);
    return status;
}

sennit_status sn_paged_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                 struct sennit_stream *stream, struct sennit_error *err)
{
    const struct sn_paged *c = sn_paged_of(cache);
    uint64_t n_pages = sn_pages_of(&c->paging, row->n_tokens), full = row->n_tokens / c->paging.page_tokens;
    for (uint64_t p = 0; p < full; p++)
        SN_TRY(sn_stream_write(stream, sn_table_page(row->store, n_pages, p)->data, c->paging.data_bytes, err));
    if (full == n_pages)
        return SENNIT_OK;
    return save_last(c, sn_table_page(row->store, n_pages, full), row->n_tokens % c->paging.page_tokens, stream, err);
}

sennit_status sn_paged_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                 struct sennit_error *err)
{
    const struct sn_paged *c = sn_paged_of(cache);
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

static sennit_status reserve_undo(struct sn_paged *c, uint32_t n_spans, struct sennit_error *err)
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

static void undo_spans(struct sn_paged *c, uint32_t n_spans)
{
    while (n_spans-- > 0) {
        struct sn_row *row = &c->base.rows[c->base.step.spans[n_spans].row];
        struct sn_table *tail = row->store;
        sn_table_undo(&c->paging, &tail, &c->undo[n_spans]);
        row->store = tail;
    }
}

void sn_paged_row_poison(const struct sennit_cache *cache, const struct sn_row *row, uint64_t n_new)
{
    const struct sn_paged *c = sn_paged_of(cache);
    if (!cache->pool->poison || row->n_tokens % c->paging.page_tokens == 0)
        return;
    uint64_t n_pages = sn_pages_of(&c->paging, row->n_tokens + n_new);
    struct sn_page *page = sn_table_page(row->store, n_pages, row->n_tokens / c->paging.page_tokens);
    c->ops->fill_tail(cache, page->data, row->n_tokens % c->paging.page_tokens, 0xFF);
}

sennit_status sn_paged_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_paged *c = mutable_paged(cache);
    const struct sn_cache_step *step = &cache->step;
    SN_TRY(reserve_undo(c, step->n_spans, err));
    if (cache->ops->attend)
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
        sn_paged_row_poison(cache, row, span->n_tokens);
    }
    return SENNIT_OK;
}

void sn_paged_step_commit(struct sennit_cache *cache)
{
    struct sn_paged *c = mutable_paged(cache);
    for (uint32_t i = 0; i < cache->step.n_spans; i++)
        sn_table_settle(&c->paging, &c->undo[i]);
}

void sn_paged_step_abort(struct sennit_cache *cache)
{
    undo_spans(mutable_paged(cache), cache->step.n_spans);
}

void sn_paged_row_store(const struct sennit_cache *cache, const struct sn_row *row, const struct sennit_span *span,
                        uint32_t token, uint32_t n_tokens, sennit_role role, uint32_t first_head, uint32_t n_heads,
                        const float *data, size_t token_stride, uint32_t worker)
{
    const struct sn_paged *c = sn_paged_of(cache);
    uint64_t size = c->paging.page_tokens, n_pages = sn_pages_of(&c->paging, span->pos + span->n_tokens);
    uint8_t *page = NULL;
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint64_t pos = span->pos + token + t;
        if (!page || pos % size == 0)
            page = sn_table_page(row->store, n_pages, pos / size)->data;
        c->ops->store(cache, page, pos % size, role, first_head, n_heads, data + t * token_stride, worker);
    }
}

void sn_paged_step_tile(struct sennit_cache *cache, uint32_t span_index, uint32_t token, uint32_t n_tokens,
                        sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                        size_t token_stride, uint32_t worker)
{
    const struct sennit_span *span = &cache->step.spans[span_index];
    sn_paged_row_store(cache, &cache->rows[span->row], span, token, n_tokens, role, first_head, n_heads, data,
                       token_stride, worker);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

size_t sn_paged_list_bytes(const struct sn_attend_source *src, uint64_t n_tokens)
{
    return sn_pages_of(&sn_paged_of(src->cache)->paging, n_tokens) * sizeof(struct sn_page *);
}

void sn_paged_list(const struct sn_attend_source *src, uint64_t n_tokens, void *out)
{
    sn_table_list(src->row->store, sn_pages_of(&sn_paged_of(src->cache)->paging, n_tokens), out);
}
