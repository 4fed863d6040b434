#include "cache/window.h"

#include <assert.h>
#include <stdio.h>

static struct sn_window *mutable_window(struct sennit_cache *cache)
{
    return (struct sn_window *)cache;
}

/* ---- configuration -------------------------------------------------------------------------------------------- */

enum { MAX_TOKENS = 1 << 30 }; /* of window, slack and kept tokens each: sums fit 32 bits */

/* Its name and code, and the geometry of this configuration. */
static struct sennit_cache_config inner_config(const struct sennit_cache_config *config)
{
    const struct sennit_cache_config *inner = &config->inner[0];
    return (struct sennit_cache_config){.family = inner->family,
                                        .n_kv_heads = config->n_kv_heads,
                                        .d_k = config->d_k,
                                        .d_v = config->d_v,
                                        .k_type = config->k_type,
                                        .v_type = config->v_type,
                                        .page_tokens = config->page_tokens,
                                        .code = inner->code,
                                        .external = inner->external};
}

static sennit_status check_count(const char *field, uint32_t value, uint32_t least, struct sennit_error *err)
{
    if (value >= least && value <= MAX_TOKENS)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: %s is %u; it must be %u to %d", field, value, least,
                   MAX_TOKENS);
}

static sennit_status check_inner(const struct sennit_cache_config *config, struct sennit_error *err)
{
    if (!config->inner || config->n_inner != 1)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: family 'window' needs one inner family, which stores its pages, not %u",
                       config->inner ? config->n_inner : 0);
    const struct sennit_cache_config *inner = &config->inner[0];
    const struct sn_family *ops = sn_paged_family(&config->inner[0]);
    if (!ops)
        return sn_fail(err, SENNIT_INVALID, "cache config: family '%s' cannot store the pages of a window",
                       inner->family ? inner->family : "(null)");
    SN_TRY(sn_config_bare(inner, "window", err));
    SN_TRY(sn_config_only(inner, SN_CONFIG_CODE, err));
    struct sennit_cache_config full = inner_config(config);
    return ops->check(&full, err);
}

enum { TAKES = SN_CONFIG_HEADS | SN_CONFIG_TYPES | SN_CONFIG_PAGES | SN_CONFIG_WINDOW | SN_CONFIG_INNER };

static sennit_status window_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    SN_TRY(check_count("window.tokens", config->window.tokens, 1, err));
    SN_TRY(check_count("window.slack", config->window.slack, 0, err));
    SN_TRY(check_count("window.n_kept", config->window.n_kept, 0, err));
    return check_inner(config, err);
}

static uint32_t slack_of(const struct sennit_cache_config *config)
{
    return config->window.slack ? config->window.slack : SN_WINDOW_SLACK;
}

static void window_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    struct sennit_cache_config full = inner_config(config);
    int n = snprintf(out, n_bytes, "window %u slack %u kept %u / ", config->window.tokens, slack_of(config),
                     config->window.n_kept);
    sn_paged_family(&config->inner[0])->signature(&full, out + n, n_bytes - (size_t)n);
}

/* ---- one cache ------------------------------------------------------------------------------------------------ */

static const struct sn_paged *paged_of(const struct sn_window *c)
{
    return sn_paged_of(c->inner);
}

/* row_data as the inner family reads it: pages of the row, page p at index p. Those that are gone have no entry, and
 * nobody looks there; poison makes sure. */
static void window_fill(const struct sn_attend_source *src, uint64_t n_tokens, void *out)
{
    const struct sn_page_list *list = src->row->store;
    struct sn_page **pages = out;
    size_t n = (size_t)sn_pages_of(&sn_paged_of(src->cache)->paging, n_tokens);
    if (!list)
        return;
    for (size_t i = 0; src->cache->pool->poison && i < n; i++)
        pages[i] = NULL;
    size_t kept = sn_min_size(list->n_kept, list->n_pages);
    memcpy(pages, list->page, kept * sizeof *pages);
    if (list->n_pages > kept)
        memcpy(pages + list->first, list->page + kept, (list->n_pages - kept) * sizeof *pages);
}

static struct sn_attend_source window_route(const struct sennit_cache *cache, uint32_t row)
{
    const struct sn_window *c = sn_window_of(cache);
    return (struct sn_attend_source){.ops = &c->attend, .cache = c->inner, .row = &cache->rows[row]};
}

/* Most new tokens that a row may stand past what it has settled. */
static uint32_t most_new(const struct sennit_cache *cache)
{
    const struct sennit_cache_config *config = &cache->config;
    return config->round_depth > config->max_span ? config->round_depth : config->max_span;
}

/* Room for the kept pages, the window's and a step's; a bounded row never has more than its bound. */
static void set_listing(struct sn_window *c)
{
    const struct sennit_cache_config *config = &c->base.config;
    const struct sn_paging *paging = &paged_of(c)->paging;
    c->reach = (uint64_t)config->window.tokens + config->window.slack - 1;
    uint64_t kept = sn_pages_of(paging, config->window.n_kept), window = sn_pages_of(paging, c->reach) + 1;
    uint64_t cap = kept + window + sn_pages_of(paging, most_new(&c->base));
    if (config->max_tokens != SENNIT_UNBOUNDED)
        cap = sn_min_size(cap, sn_pages_of(paging, config->max_tokens));
    c->listing = (struct sn_listing){.paging = paging,
                                     .n_kept = (uint32_t)kept,
                                     .n_window = (uint32_t)window,
                                     .cap = (uint32_t)sn_min_size(cap, UINT32_MAX)};
}

static sennit_status window_init(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_window *c = mutable_window(cache);
    c->inner_field = cache->config.inner[0];
    cache->config.inner = &c->inner_field;
    cache->config.window.slack = slack_of(&cache->config);
    cache->shape.window = cache->config.window.tokens;
    cache->shape.n_kept = cache->config.window.n_kept;
    struct sennit_cache_config full = inner_config(&cache->config);
    SN_TRY(sennit_cache_create(&c->inner, cache->pool, &full, 0, err));
    c->inner_field.family = c->inner->config.family; /* the family's own name, for ever */
    c->attend = *c->inner->ops->attend;
    c->attend.row_fill = window_fill;
    set_listing(c);
    return SENNIT_OK;
}

static void window_release(struct sennit_cache *cache)
{
    struct sn_window *c = mutable_window(cache);
    sennit_cache_dispose(&c->inner);
    sn_free(cache->pool->heap, SN_USE_MISC, c->undo, c->cap_undo * sizeof *c->undo);
}

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

static uint64_t window_storage_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    return sn_listed_bytes(&sn_window_of(cache)->listing, tokens);
}

/* A snapshot keeps a whole window alive once the row has moved on. A span of several tokens, or a round, stands past
 * the row's length before anything is given back; a single token takes the place of a dead page. */
static uint64_t window_reserve_bytes(const struct sennit_cache *cache)
{
    const struct sn_listing *g = &sn_window_of(cache)->listing;
    uint64_t page = sn_page_bytes(g->paging), bytes = 0, full;
    if (most_new(cache) > 1)
        bytes = sn_pages_of(g->paging, most_new(cache)) * page;
    if (cache->config.round_depth > 0) /* of a row without tokens that a round gives some */
        bytes += sn_list_bytes(g->cap);
    if (cache->config.n_snapshots == 0)
        return bytes;
    full = ((uint64_t)g->n_kept + g->n_window) * page + sn_list_bytes(g->cap) + page;
    if (__builtin_mul_overflow(full, cache->config.n_snapshots, &full) || __builtin_add_overflow(full, bytes, &bytes))
        return UINT64_MAX;
    return bytes;
}

static uint64_t window_bytes_per_token(const struct sennit_cache *cache)
{
    return sn_paged_bytes_per_token(sn_window_of(cache)->inner);
}

static uint64_t window_row_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    (void)cache;
    return sn_list_own_bytes(row->store);
}

/* ---- what is still there -------------------------------------------------------------------------------------- */

/* Where what is retained starts: 0 as long as only kept tokens lie before it, for then nothing is gone. */
static uint64_t gone_before(const struct sennit_cache *cache, uint64_t start)
{
    return start > cache->config.window.n_kept ? start : 0;
}

/* Of a row that was fed n_tokens and never trimmed. */
static uint64_t start_at(const struct sennit_cache *cache, uint64_t n_tokens)
{
    uint64_t reach = sn_window_of(cache)->reach;
    return gone_before(cache, n_tokens > reach ? n_tokens - reach : 0);
}

static uint64_t start_of(const struct sn_row *row)
{
    const struct sn_page_list *list = row->store;
    return list ? list->start : 0;
}

/* May a row whose positions from `start` on are there be cut to n_tokens? */
static bool reaches(const struct sennit_cache *cache, uint64_t start, uint64_t n_tokens)
{
    return start == 0 || n_tokens + 1 >= start + cache->config.window.tokens;
}

static bool window_can_publish(const struct sennit_cache *cache, uint32_t row, uint64_t tokens)
{
    const struct sn_row *r = &cache->rows[row];
    return tokens <= r->n_tokens && reaches(cache, start_of(r), tokens);
}

static void window_gap(const struct sennit_cache *cache, uint32_t row, uint64_t *from, uint64_t *to)
{
    *to = start_of(&cache->rows[row]);
    *from = *to > 0 ? cache->config.window.n_kept : 0;
}

static uint64_t window_first_pos(const struct sennit_cache *cache, uint32_t row)
{
    return cache->config.window.n_kept > 0 ? 0 : start_of(&cache->rows[row]);
}

static const char *window_dtype(const struct sennit_cache *cache)
{
    const struct sennit_cache *inner = sn_window_of(cache)->inner;
    return inner->ops->dtype ? inner->ops->dtype(inner) : sennit_type_name(inner->config.k_type);
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

/* A reference, unless the other cache's spans need a longer list. */
static sennit_status window_row_copy(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                                     struct sennit_error *err)
{
    const struct sn_listing *g = &sn_window_of(to)->listing;
    struct sn_page_list *list = src->store;
    if (list && list->cap != g->cap) {
        list = sn_list_copy(g, list, list->n_pages);
        if (!list)
            return sn_fail(err, SENNIT_NOMEM, "no memory for a list of pages");
    } else {
        sn_list_ref(list);
    }
    dst->store = list;
    return SENNIT_OK;
}

static void window_row_drop(struct sennit_cache *cache, struct sn_row *row)
{
    sn_list_drop(&sn_window_of(cache)->listing, row->store);
}

static sennit_status window_trim_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                         void **spare, struct sennit_error *err)
{
    struct sn_page_list *list = NULL;
    if (!reaches(cache, start_of(row), n_tokens))
        return sn_fail(err, SENNIT_RANGE,
                       "trim: the window has moved on: of a row of %llu tokens, positions before %llu are gone; it "
                       "cannot go back to %llu tokens",
                       (unsigned long long)row->n_tokens, (unsigned long long)start_of(row),
                       (unsigned long long)n_tokens);
    SN_TRY(sn_list_cut_prepare(&sn_window_of(cache)->listing, row->store, n_tokens, &list, err));
    *spare = list;
    return SENNIT_OK;
}

static void window_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    struct sn_page_list *list = row->store;
    sn_list_cut(&sn_window_of(cache)->listing, &list, n_tokens, spare);
    row->store = list;
}

static void window_trim_discard(struct sennit_cache *cache, void *spare)
{
    sn_list_spare_free(&sn_window_of(cache)->listing, spare);
}

/* A round that ends lets go of what its rows no longer need. */
static void window_round_closed(struct sennit_cache *cache)
{
    const struct sn_window *c = sn_window_of(cache);
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        const struct sn_row *row = &cache->rows[i];
        if (row->n_window > 0 && row->store)
            sn_list_advance(&c->listing, row->store, start_at(cache, row->n_tokens));
    }
}

/* ---- spans ---------------------------------------------------------------------------------------------------- */

/* Pages with a position that is still there: 0 .. *kept - 1, and *first .. *end - 1. */
static void live_pages(const struct sn_window *c, uint64_t start, uint64_t n_tokens, uint64_t *kept, uint64_t *first,
                       uint64_t *end)
{
    uint64_t page = start / c->listing.paging->page_tokens;
    *end = sn_pages_of(c->listing.paging, n_tokens);
    *kept = sn_min_size(c->listing.n_kept, *end);
    *first = page > *kept ? page : *kept;
}

static size_t window_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    const struct sn_window *c = sn_window_of(cache);
    uint64_t kept, first, end;
    live_pages(c, start_of(&cache->rows[row]), cache->rows[row].n_tokens, &kept, &first, &end);
    return paged_of(c)->ops->n_views * (size_t)(kept + (end - first));
}

static void window_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    const struct sn_window *c = sn_window_of(cache);
    const struct sn_page_ops *ops = paged_of(c)->ops;
    const struct sn_row *r = &cache->rows[row];
    uint64_t kept, first, end, size = c->listing.paging->page_tokens;
    live_pages(c, start_of(r), r->n_tokens, &kept, &first, &end);
    for (uint64_t i = 0; i < kept + (end - first); i++) {
        uint64_t p = i < kept ? i : first + (i - kept), left = r->n_tokens - p * size;
        ops->views(c->inner, sn_list_page(r->store, p)->data, row, p * size, left < size ? left : size,
                   out + ops->n_views * i);
    }
}

/* ---- streams --------------------------------------------------------------------------------------------------- */

/* A record of n tokens: u64 start | the live pages of a row of n tokens that was never trimmed. Pages that a trimmed
 * row does not have are zeros, and read no further. */
static void record_pages(const struct sn_window *c, uint64_t n_tokens, uint64_t *kept, uint64_t *first, uint64_t *end)
{
    live_pages(c, start_at(&c->base, n_tokens), n_tokens, kept, first, end);
}

static uint64_t window_body_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    const struct sn_window *c = sn_window_of(cache);
    uint64_t kept, first, end, bytes;
    if (tokens == 0)
        return 0;
    record_pages(c, tokens, &kept, &first, &end);
    if (__builtin_mul_overflow(kept + (end - first), c->listing.paging->data_bytes, &bytes) ||
        __builtin_add_overflow(bytes, sizeof(uint64_t), &bytes))
        return UINT64_MAX;
    return bytes;
}

/* Page p into `copy`, as it goes out: what nobody wrote, and what is gone, as zeros. */
static void record_page(const struct sn_window *c, const struct sn_row *row, uint64_t p, uint8_t *copy)
{
    const struct sn_paging *paging = c->listing.paging;
    uint64_t size = paging->page_tokens;
    if (p >= c->listing.n_kept && p < start_of(row) / size) {
        memset(copy, 0, paging->data_bytes);
        return;
    }
    memcpy(copy, sn_list_page(row->store, p)->data, paging->data_bytes);
    if ((p + 1) * size > row->n_tokens)
        paged_of(c)->ops->fill_tail(c->inner, copy, row->n_tokens % size, 0);
}

static sennit_status window_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                      struct sennit_stream *stream, struct sennit_error *err)
{
    const struct sn_window *c = sn_window_of(cache);
    struct sn_heap *heap = cache->pool->heap;
    size_t bytes = c->listing.paging->data_bytes;
    uint64_t kept, first, end, start = start_of(row);
    if (row->n_tokens == 0)
        return SENNIT_OK;
    uint8_t *copy = sn_alloc(heap, SN_USE_SCRATCH, bytes);
    if (!copy)
        return sn_fail(err, SENNIT_NOMEM, "save: no memory for a copy of a page");
    record_pages(c, row->n_tokens, &kept, &first, &end);
    sennit_status status = sn_stream_write(stream, &start, sizeof start, err);
    for (uint64_t i = 0; i < kept + (end - first) && status == SENNIT_OK; i++) {
        record_page(c, row, i < kept ? i : first + (i - kept), copy);
        status = sn_stream_write(stream, copy, bytes, err);
    }
    sn_free(heap, SN_USE_SCRATCH, copy, bytes);
    return status;
}

static sennit_status load_pages(const struct sn_window *c, uint64_t n_tokens, struct sn_page_list *list,
                                struct sennit_stream *stream, struct sennit_error *err)
{
    const struct sn_paging *paging = c->listing.paging;
    uint64_t kept, first, end, live = list->start / paging->page_tokens;
    record_pages(c, n_tokens, &kept, &first, &end);
    list->first = first > list->n_kept ? first : list->n_kept;
    for (uint64_t i = 0; i < kept + (end - first); i++) {
        struct sn_page *page = sn_page_new(paging);
        if (!page)
            return sn_fail(err, SENNIT_NOMEM, "load: no memory for a cache page of %zu bytes", paging->data_bytes);
        sennit_status status = sn_stream_read(stream, page->data, paging->data_bytes, err);
        if (status != SENNIT_OK || (i >= kept && first + (i - kept) < live)) {
            sn_page_drop(paging, page);
            list->first += status == SENNIT_OK;
            SN_TRY(status);
            continue;
        }
        list->page[list->n_pages++] = page;
    }
    return SENNIT_OK;
}

static sennit_status window_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                      struct sennit_error *err)
{
    const struct sn_window *c = sn_window_of(cache);
    uint64_t start = 0;
    if (row->n_tokens == 0)
        return SENNIT_OK;
    SN_TRY(sn_stream_read(stream, &start, sizeof start, err));
    if (start < start_at(cache, row->n_tokens) || start > row->n_tokens || start != gone_before(cache, start) ||
        !reaches(cache, start, row->n_tokens))
        return sn_fail(err, SENNIT_FORMAT, "saved row: of %llu tokens, those before %llu are said to be gone",
                       (unsigned long long)row->n_tokens, (unsigned long long)start);
    struct sn_page_list *list = sn_list_new(&c->listing);
    if (!list)
        return sn_fail(err, SENNIT_NOMEM, "load: no memory for a list of pages");
    list->start = start;
    sennit_status status = load_pages(c, row->n_tokens, list, stream, err);
    if (status == SENNIT_OK)
        row->store = list;
    else
        sn_list_drop(&c->listing, list);
    return status;
}

/* ---- the step -------------------------------------------------------------------------------------------------- */

static sennit_status check_lengths(const struct sennit_cache *cache, struct sennit_error *err)
{
    for (uint32_t i = 0; i < cache->step.n_spans; i++)
        if (cache->step.spans[i].n_tokens > most_new(cache))
            return sn_fail(err, SENNIT_RANGE,
                           "append_begin: span %u has %u tokens; this window was created for spans of up to %u", i,
                           cache->step.spans[i].n_tokens, most_new(cache));
    return SENNIT_OK;
}

static sennit_status reserve_undo(struct sn_window *c, uint32_t n_spans, struct sennit_error *err)
{
    if (n_spans <= c->cap_undo)
        return SENNIT_OK;
    struct sn_heap *heap = c->base.pool->heap;
    struct sn_list_growth *fresh = sn_calloc(heap, SN_USE_MISC, n_spans, sizeof *fresh);
    if (!fresh)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a step of %u spans", n_spans);
    sn_free(heap, SN_USE_MISC, c->undo, c->cap_undo * sizeof *fresh);
    c->undo = fresh;
    c->cap_undo = n_spans;
    return SENNIT_OK;
}

static void undo_spans(struct sn_window *c, uint32_t n_spans)
{
    while (n_spans-- > 0) {
        struct sn_row *row = &c->base.rows[c->base.step.spans[n_spans].row];
        struct sn_page_list *list = row->store;
        sn_list_undo(&c->listing, &list, &c->undo[n_spans]);
        row->store = list;
    }
}

static void poison_tail(const struct sn_window *c, const struct sn_row *row)
{
    uint64_t size = c->listing.paging->page_tokens, slot = row->n_tokens % size;
    if (c->base.pool->poison && slot != 0)
        paged_of(c)->ops->fill_tail(c->inner, sn_list_page(row->store, row->n_tokens / size)->data, slot, 0xFF);
}

static sennit_status window_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_window *c = mutable_window(cache);
    const struct sn_cache_step *step = &cache->step;
    SN_TRY(check_lengths(cache, err));
    SN_TRY(reserve_undo(c, step->n_spans, err));
    SN_TRY(sn_attend_reserve(cache, err));
    for (uint32_t i = 0; i < step->n_spans; i++) {
        struct sn_row *row = &cache->rows[step->spans[i].row];
        struct sn_page_list *list = row->store;
        sennit_status status =
            sn_list_grow(&c->listing, &list, row->n_tokens, step->spans[i].n_tokens, &c->undo[i], err);
        row->store = list;
        if (status != SENNIT_OK) {
            undo_spans(c, i);
            return status;
        }
        poison_tail(c, row);
    }
    return SENNIT_OK;
}

/* Within a round nothing is let go: it may be rolled back. */
static void window_step_commit(struct sennit_cache *cache)
{
    const struct sn_window *c = sn_window_of(cache);
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        const struct sennit_span *span = &cache->step.spans[i];
        sn_list_settle(&c->listing, &c->undo[i]);
        if (!cache->round_open)
            sn_list_advance(&c->listing, cache->rows[span->row].store, start_at(cache, span->pos + span->n_tokens));
    }
}

static void window_step_abort(struct sennit_cache *cache)
{
    undo_spans(mutable_window(cache), cache->step.n_spans);
}

static void window_step_tile(struct sennit_cache *cache, uint32_t span_index, uint32_t token, uint32_t n_tokens,
                             sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                             size_t token_stride, uint32_t worker)
{
    const struct sn_window *c = sn_window_of(cache);
    const struct sennit_span *span = &cache->step.spans[span_index];
    const struct sn_page_list *list = cache->rows[span->row].store;
    uint64_t size = c->listing.paging->page_tokens;
    uint8_t *page = NULL;
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint64_t pos = span->pos + token + t;
        if (!page || pos % size == 0)
            page = sn_list_page(list, pos / size)->data;
        paged_of(c)->ops->store(c->inner, page, pos % size, role, first_head, n_heads, data + t * token_stride,
                                worker);
    }
}

static const struct sn_attend_ops window_attend = {.route = window_route};

static const struct sennit_cache_config example_inner = {.family = "plain"};
static const struct sennit_cache_config example = {.family = "window",
                                                   .n_kv_heads = 8,
                                                   .d_k = 128,
                                                   .d_v = 128,
                                                   .k_type = SENNIT_F16,
                                                   .v_type = SENNIT_F16,
                                                   .window = {.tokens = 1024},
                                                   .inner = &example_inner,
                                                   .n_inner = 1};

const struct sn_family sn_family_window = {
    .name = "window",
    .takes = TAKES,
    .object_bytes = sizeof(struct sn_window),
    .example = &example,
    .bounded_span = true,
    .trimmable = true,
    .attend = &window_attend,
    .check = window_check,
    .signature = window_signature,
    .init = window_init,
    .release = window_release,
    .storage_bytes = window_storage_bytes,
    .reserve_bytes = window_reserve_bytes,
    .bytes_per_token = window_bytes_per_token,
    .row_bytes = window_row_bytes,
    .can_publish = window_can_publish,
    .row_copy = window_row_copy,
    .row_drop = window_row_drop,
    .trim_prepare = window_trim_prepare,
    .trim_apply = window_trim_apply,
    .trim_discard = window_trim_discard,
    .round_closed = window_round_closed,
    .n_spans = window_n_spans,
    .spans = window_spans,
    .first_pos = window_first_pos,
    .gap = window_gap,
    .dtype = window_dtype,
    .donor_attend = sn_attend_donor,
    .body_bytes = window_body_bytes,
    .save_body = window_save_body,
    .load_body = window_load_body,
    .step_begin = window_step_begin,
    .step_tile = window_step_tile,
    .step_commit = window_step_commit,
    .step_abort = window_step_abort,
    SN_ATTEND_SLOTS,
};
