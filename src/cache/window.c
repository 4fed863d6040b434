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

static bool is_delayed(const struct sennit_cache_config *inner)
{
    return sn_family_of(inner) == &sn_family_delayed;
}

/* Its code, or where its rows change; what holds pages. */
static sennit_status check_store(const struct sennit_cache_config *config, struct sennit_error *err)
{
    const struct sennit_cache_config *inner = &config->inner[0];
    struct sennit_cache_config full = inner_config(config);
    const struct sn_family *ops = sn_paged_family(inner);
    if (is_delayed(inner)) {
        SN_TRY(sn_config_only(inner, SN_CONFIG_START | SN_CONFIG_INNER, err));
        return sn_forms_check(&full, inner, err);
    }
    if (!ops)
        return sn_fail(err, SENNIT_INVALID, "cache config: family '%s' cannot store the pages of a window",
                       inner->family ? inner->family : "(null)");
    SN_TRY(sn_config_only(inner, SN_CONFIG_CODE, err));
    return ops->check(&full, err);
}

static sennit_status check_inner(const struct sennit_cache_config *config, struct sennit_error *err)
{
    if (!config->inner || config->n_inner != 1)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: family 'window' needs one inner family, which stores its pages, not %u",
                       config->inner ? config->n_inner : 0);
    SN_TRY(sn_config_bare(&config->inner[0], "window", err));
    return check_store(config, err);
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
    size_t n = (size_t)snprintf(out, n_bytes, "window %u slack %u kept %u / ", config->window.tokens,
                                slack_of(config), config->window.n_kept);
    if (is_delayed(&config->inner[0]))
        sn_forms_signature(&full, &config->inner[0], out + n, n_bytes - n);
    else
        sn_paged_family(&full)->signature(&full, out + n, n_bytes - n);
}

/* ---- one cache ------------------------------------------------------------------------------------------------ */

static const struct sn_forms *forms_of(const struct sennit_cache *cache)
{
    return &sn_window_of(cache)->forms;
}

/* How pages of a row are laid out. */
static const struct sn_paged *paged_of(const struct sn_window *c, const struct sn_row *row)
{
    return sn_paged_of(sn_form(&c->forms, row));
}

static const struct sn_listing *listing_of(const struct sn_window *c, const struct sn_row *row)
{
    return sn_form_encoded(&c->forms, row) ? &c->encoded.listing : &c->plain.listing;
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
    const struct sennit_cache *form = sn_form_read(&c->forms, &cache->rows[row]);
    const struct sn_attend_ops *ops = form == c->forms.encoded ? &c->encoded.attend : &c->plain.attend;
    return (struct sn_attend_source){.ops = ops, .cache = form, .row = &cache->rows[row]};
}

/* Room for the kept pages, the window's and a step's; a bounded row never has more than its bound. */
static void set_form(struct sn_window *c, const struct sennit_cache *form, struct sn_window_form *out)
{
    const struct sennit_cache_config *config = &c->base.config;
    const struct sn_paging *paging = &sn_paged_of(form)->paging;
    uint64_t kept = sn_pages_of(paging, config->window.n_kept), window = sn_pages_of(paging, c->reach) + 1;
    uint64_t cap = kept + window + sn_pages_of(paging, sn_cache_longest_span(&c->base));
    if (config->max_tokens != SENNIT_UNBOUNDED)
        cap = sn_min_size(cap, sn_pages_of(paging, config->max_tokens));
    out->listing = (struct sn_listing){.paging = paging,
                                       .n_kept = (uint32_t)kept,
                                       .n_window = (uint32_t)window,
                                       .cap = (uint32_t)sn_min_size(cap, UINT32_MAX)};
    out->attend = *form->ops->attend;
    out->attend.row_fill = window_fill;
}

static sennit_status open_forms(struct sn_window *c, struct sennit_error *err)
{
    struct sennit_cache_config full = inner_config(&c->base.config);
    struct sennit_pool *pool = c->base.pool;
    if (!is_delayed(&c->inner_field)) {
        SN_TRY(sennit_cache_create(&c->forms.plain, pool, &full, 0, err));
        c->inner_field.family = c->forms.plain->config.family; /* the family's own name, for ever */
        return SENNIT_OK;
    }
    SN_TRY(sn_forms_init(&c->forms, pool, &full, &c->inner_field, err));
    c->inner_field.family = sn_family_delayed.name;
    c->inner_field.inner = &c->forms.inner;
    return SENNIT_OK;
}

static sennit_status window_init(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_window *c = mutable_window(cache);
    c->inner_field = cache->config.inner[0];
    cache->config.inner = &c->inner_field;
    cache->config.window.slack = slack_of(&cache->config);
    cache->shape.window = cache->config.window.tokens;
    cache->shape.n_kept = cache->config.window.n_kept;
    c->reach = (uint64_t)cache->config.window.tokens + cache->config.window.slack - 1;
    SN_TRY(open_forms(c, err));
    set_form(c, c->forms.plain, &c->plain);
    if (c->forms.encoded)
        set_form(c, c->forms.encoded, &c->encoded);
    return SENNIT_OK;
}

static void window_release(struct sennit_cache *cache)
{
    struct sn_window *c = mutable_window(cache);
    sn_forms_release(&c->forms);
    sn_free(cache->pool->heap, SN_USE_MISC, c->changes, c->cap_changes * sizeof *c->changes);
}

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

/* The pages of the tokens that come with the change of a row's form, on its way to `tokens`, or one. */
static uint64_t change_bytes(const struct sn_window *c, uint64_t tokens)
{
    const struct sn_paging *paging = c->encoded.listing.paging;
    uint64_t start = c->forms.start, before = sn_pages_of(paging, start);
    uint64_t after = sn_pages_of(paging, sn_min_size(tokens, start + sn_cache_longest_span(&c->base)));
    return (after > before ? after - before : 1) * sn_page_bytes(paging);
}

/* The most on the way there. */
static uint64_t window_storage_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    const struct sn_window *c = sn_window_of(cache);
    const struct sn_forms *f = &c->forms;
    if (!f->encoded || tokens < f->start)
        return sn_listed_bytes(&c->plain.listing, tokens);
    uint64_t encoded = sn_listed_bytes(&c->encoded.listing, tokens);
    if (f->start == 0)
        return encoded;
    uint64_t most = sn_add_saturated(sn_listed_bytes(&c->plain.listing, f->start), change_bytes(c, tokens));
    return encoded > most ? encoded : most;
}

/* A snapshot keeps a whole window alive once the row has moved on. A span of several tokens, or a round, stands past
 * the row's length before anything is given back; a single token takes the place of a dead page. */
static uint64_t window_reserve_bytes(const struct sennit_cache *cache)
{
    const struct sn_window *c = sn_window_of(cache);
    const struct sn_listing *g = c->forms.encoded && c->forms.start == 0 ? &c->encoded.listing : &c->plain.listing;
    uint64_t page = sn_page_bytes(g->paging), bytes = 0, full;
    if (sn_cache_longest_span(cache) > 1)
        bytes = sn_pages_of(g->paging, sn_cache_longest_span(cache)) * page;
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
    return sn_forms_bytes_per_token(forms_of(cache), cache);
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
    return tokens >= r->floor && tokens <= r->n_tokens && reaches(cache, start_of(r), tokens);
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
    return sn_forms_dtype(forms_of(cache), cache);
}

static uint64_t window_max_append(const struct sennit_cache *cache, uint32_t row)
{
    return sn_form_max_append(forms_of(cache), cache, &cache->rows[row]);
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

/* A reference, unless the other cache's spans need a longer list. */
static sennit_status window_row_copy(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                                     struct sennit_error *err)
{
    const struct sn_listing *g = listing_of(sn_window_of(to), src);
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
    sn_list_drop(listing_of(sn_window_of(cache), row), row->store);
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
    SN_TRY(sn_list_cut_prepare(listing_of(sn_window_of(cache), row), row->store, n_tokens, &list, err));
    *spare = list;
    return SENNIT_OK;
}

static void window_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    struct sn_page_list *list = row->store;
    sn_list_cut(listing_of(sn_window_of(cache), row), &list, n_tokens, spare);
    row->store = list;
}

static void window_trim_discard(struct sennit_cache *cache, void *spare)
{
    sn_list_spare_free(&sn_window_of(cache)->plain.listing, spare); /* a list of either form */
}

/* A round that ends lets go of what its rows no longer need. */
static void window_round_closed(struct sennit_cache *cache)
{
    const struct sn_window *c = sn_window_of(cache);
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        const struct sn_row *row = &cache->rows[i];
        if (row->n_window > 0 && row->store)
            sn_list_advance(listing_of(c, row), row->store, start_at(cache, row->n_tokens));
    }
}

/* ---- spans ---------------------------------------------------------------------------------------------------- */

/* Pages with a position that is still there: 0 .. *kept - 1, and *first .. *end - 1. */
static void live_pages(const struct sn_window *c, uint64_t start, uint64_t n_tokens, uint64_t *kept, uint64_t *first,
                       uint64_t *end)
{
    const struct sn_listing *g = &c->plain.listing; /* bounds of either form */
    uint64_t page = start / g->paging->page_tokens;
    *end = sn_pages_of(g->paging, n_tokens);
    *kept = sn_min_size(g->n_kept, *end);
    *first = page > *kept ? page : *kept;
}

static size_t window_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    const struct sn_window *c = sn_window_of(cache);
    const struct sn_row *r = &cache->rows[row];
    uint64_t kept, first, end;
    live_pages(c, start_of(r), r->n_tokens, &kept, &first, &end);
    return paged_of(c, r)->ops->n_views * (size_t)(kept + (end - first));
}

static void window_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    const struct sn_window *c = sn_window_of(cache);
    const struct sn_row *r = &cache->rows[row];
    const struct sn_page_ops *ops = paged_of(c, r)->ops;
    uint64_t kept, first, end, size = listing_of(c, r)->paging->page_tokens;
    live_pages(c, start_of(r), r->n_tokens, &kept, &first, &end);
    for (uint64_t i = 0; i < kept + (end - first); i++) {
        uint64_t p = i < kept ? i : first + (i - kept), left = r->n_tokens - p * size;
        ops->views(sn_form(&c->forms, r), sn_list_page(r->store, p)->data, row, p * size, left < size ? left : size,
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

static uint64_t window_row_body_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    const struct sn_window *c = sn_window_of(cache);
    uint64_t kept, first, end, bytes;
    if (row->n_tokens == 0)
        return 0;
    record_pages(c, row->n_tokens, &kept, &first, &end);
    if (__builtin_mul_overflow(kept + (end - first), listing_of(c, row)->paging->data_bytes, &bytes) ||
        __builtin_add_overflow(bytes, sizeof(uint64_t), &bytes))
        return UINT64_MAX;
    return bytes;
}

static uint64_t window_body_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    struct sn_row row = sn_form_untrimmed(forms_of(cache), tokens);
    return window_row_body_bytes(cache, &row);
}

/* Page p into `copy`, as it goes out: what nobody wrote, and what is gone, as zeros. */
static void record_page(const struct sn_window *c, const struct sn_row *row, uint64_t p, uint8_t *copy)
{
    const struct sn_paging *paging = listing_of(c, row)->paging;
    uint64_t size = paging->page_tokens;
    if (p >= c->plain.listing.n_kept && p < start_of(row) / size) {
        memset(copy, 0, paging->data_bytes);
        return;
    }
    memcpy(copy, sn_list_page(row->store, p)->data, paging->data_bytes);
    if ((p + 1) * size > row->n_tokens)
        paged_of(c, row)->ops->fill_tail(sn_form(&c->forms, row), copy, row->n_tokens % size, 0);
}

static sennit_status window_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                      struct sennit_stream *stream, struct sennit_error *err)
{
    const struct sn_window *c = sn_window_of(cache);
    struct sn_heap *heap = cache->pool->heap;
    size_t bytes = listing_of(c, row)->paging->data_bytes;
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

static sennit_status load_pages(const struct sn_window *c, const struct sn_row *row, struct sn_page_list *list,
                                struct sennit_stream *stream, struct sennit_error *err)
{
    const struct sn_paging *paging = listing_of(c, row)->paging;
    uint64_t kept, first, end, live = list->start / paging->page_tokens;
    record_pages(c, row->n_tokens, &kept, &first, &end);
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
    SN_TRY(sn_form_check_floor(&c->forms, row, err));
    if (row->n_tokens == 0)
        return SENNIT_OK;
    SN_TRY(sn_stream_read(stream, &start, sizeof start, err));
    if (start < start_at(cache, row->n_tokens) || start > row->n_tokens || start != gone_before(cache, start) ||
        !reaches(cache, start, row->n_tokens))
        return sn_fail(err, SENNIT_FORMAT, "saved row: of %llu tokens, those before %llu are said to be gone",
                       (unsigned long long)row->n_tokens, (unsigned long long)start);
    const struct sn_listing *g = listing_of(c, row);
    struct sn_page_list *list = sn_list_new(g);
    if (!list)
        return sn_fail(err, SENNIT_NOMEM, "load: no memory for a list of pages");
    list->start = start;
    sennit_status status = load_pages(c, row, list, stream, err);
    if (status == SENNIT_OK)
        row->store = list;
    else
        sn_list_drop(g, list);
    return status;
}

/* ---- the change of form --------------------------------------------------------------------------------------- */

static sennit_status reserve_changes(struct sn_window *c, uint32_t n, struct sennit_error *err)
{
    if (n <= c->cap_changes)
        return SENNIT_OK;
    struct sn_heap *heap = c->base.pool->heap;
    struct sn_window_change *fresh = sn_calloc(heap, SN_USE_MISC, n, sizeof *fresh);
    if (!fresh)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a step of %u spans", n);
    sn_free(heap, SN_USE_MISC, c->changes, c->cap_changes * sizeof *fresh);
    c->changes = fresh;
    c->cap_changes = n;
    return SENNIT_OK;
}

static void drop_change(struct sn_window *c, struct sn_window_change *change)
{
    const struct sn_listing *g = &c->encoded.listing;
    sn_list_drop(g, change->supply.list);
    change->supply.list = NULL;
    sn_supply_drop(g->paging, &change->supply);
    change->due = false;
}

/* All that the change of a row, and n_new tokens after it, will take. */
static sennit_status prepare_change(struct sn_window *c, const struct sn_row *row, uint64_t n_new,
                                    struct sn_window_change *change, struct sennit_error *err)
{
    const struct sn_listing *g = &c->encoded.listing;
    struct sn_recoding r = sn_forms_recoding(&c->forms);
    struct sn_need need = sn_list_recode_need(&r, row->store, row->n_tokens, n_new);
    bool ok = sn_supply_fill(g->paging, need.n_pages, 0, &change->supply);
    if (ok && need.list)
        ok = (change->supply.list = sn_list_new(g)) != NULL;
    change->due = true;
    if (ok)
        return SENNIT_OK;
    drop_change(c, change);
    return sn_fail(err, SENNIT_NOMEM, "no memory for %llu cache pages of %zu bytes, for a change of precision",
                   (unsigned long long)need.n_pages, g->paging->data_bytes);
}

static void make_change(struct sn_window *c, struct sn_row *row, uint64_t n_new, struct sn_window_change *change)
{
    const struct sn_listing *g = &c->encoded.listing;
    struct sn_recoding r = sn_forms_recoding(&c->forms);
    struct sn_page_list *list = row->store;
    struct sn_fpenv env = sn_fp_enter();
    sn_list_recode(&r, g, &list, row->n_tokens, &change->supply);
    sn_fp_leave(env);
    sn_list_extend(g, list, row->n_tokens, n_new, &change->supply, &change->undo);
    drop_change(c, change);
    row->store = list;
    row->floor = c->forms.start;
}

static sennit_status window_commit_prefill(struct sennit_cache *cache, const uint32_t *rows, uint32_t n_rows,
                                           struct sennit_error *err)
{
    struct sn_window *c = mutable_window(cache);
    if (!c->forms.encoded)
        return SENNIT_OK;
    SN_TRY(reserve_changes(c, n_rows, err));
    SN_TRY(sn_forms_reserve(&c->forms, err));
    for (uint32_t i = 0; i < n_rows; i++) {
        const struct sn_row *row = &cache->rows[rows[i]];
        c->changes[i] = (struct sn_window_change){0};
        sennit_status status =
            sn_form_due(&c->forms, row) ? prepare_change(c, row, 0, &c->changes[i], err) : SENNIT_OK;
        if (status != SENNIT_OK) {
            while (i-- > 0)
                drop_change(c, &c->changes[i]);
            return status;
        }
    }
    return SENNIT_OK;
}

static void window_apply_prefill(struct sennit_cache *cache, const uint32_t *rows, uint32_t n_rows)
{
    struct sn_window *c = mutable_window(cache);
    for (uint32_t i = 0; c->forms.encoded && i < n_rows; i++)
        if (c->changes[i].due)
            make_change(c, &cache->rows[rows[i]], 0, &c->changes[i]);
}

static void window_discard_prefill(struct sennit_cache *cache, uint32_t n_rows)
{
    struct sn_window *c = mutable_window(cache);
    while (c->forms.encoded && n_rows-- > 0)
        drop_change(c, &c->changes[n_rows]);
}

/* ---- the step -------------------------------------------------------------------------------------------------- */

static void undo_spans(struct sn_window *c, uint32_t n_spans)
{
    c->forms.stepping = false;
    while (n_spans-- > 0) {
        struct sn_row *row = &c->base.rows[c->base.step.spans[n_spans].row];
        struct sn_page_list *list = row->store;
        if (c->changes[n_spans].due) {
            drop_change(c, &c->changes[n_spans]);
            continue;
        }
        sn_list_undo(listing_of(c, row), &list, &c->changes[n_spans].undo);
        row->store = list;
    }
}

static void poison_tail(const struct sn_window *c, const struct sn_row *row)
{
    uint64_t size = listing_of(c, row)->paging->page_tokens, slot = row->n_tokens % size;
    if (c->base.pool->poison && slot != 0)
        paged_of(c, row)->ops->fill_tail(sn_form(&c->forms, row),
                                         sn_list_page(row->store, row->n_tokens / size)->data, slot, 0xFF);
}

static sennit_status prepare_span(struct sn_window *c, uint32_t i, struct sennit_error *err)
{
    const struct sennit_span *span = &c->base.step.spans[i];
    struct sn_row *row = &c->base.rows[span->row];
    c->changes[i] = (struct sn_window_change){0};
    if (sn_form_due(&c->forms, row))
        return prepare_change(c, row, span->n_tokens, &c->changes[i], err);
    struct sn_page_list *list = row->store;
    sennit_status status =
        sn_list_grow(listing_of(c, row), &list, row->n_tokens, span->n_tokens, &c->changes[i].undo, err);
    row->store = list;
    return status;
}

/* All that can fail; rows that are due change their form once it has succeeded. */
static sennit_status window_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_window *c = mutable_window(cache);
    const struct sn_cache_step *step = &cache->step;
    SN_TRY(sn_cache_check_bounds(cache, err));
    SN_TRY(sn_forms_check_step(&c->forms, cache, err));
    SN_TRY(reserve_changes(c, step->n_spans, err));
    SN_TRY(sn_forms_reserve_step(&c->forms, cache, err));
    for (uint32_t i = 0; i < step->n_spans; i++) {
        sennit_status status = prepare_span(c, i, err);
        if (status != SENNIT_OK) {
            undo_spans(c, i);
            return status;
        }
    }
    return SENNIT_OK;
}

static void window_step_begun(struct sennit_cache *cache)
{
    struct sn_window *c = mutable_window(cache);
    const struct sn_cache_step *step = &cache->step;
    c->forms.stepping = false;
    for (uint32_t i = 0; i < step->n_spans; i++) {
        struct sn_row *row = &cache->rows[step->spans[i].row];
        if (c->changes[i].due)
            make_change(c, row, step->spans[i].n_tokens, &c->changes[i]);
        poison_tail(c, row);
    }
}

/* Within a round nothing is let go: it may be rolled back. */
static void window_step_commit(struct sennit_cache *cache)
{
    const struct sn_window *c = sn_window_of(cache);
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        const struct sennit_span *span = &cache->step.spans[i];
        const struct sn_row *row = &cache->rows[span->row];
        sn_list_settle(listing_of(c, row), &c->changes[i].undo);
        if (!cache->round_open)
            sn_list_advance(listing_of(c, row), row->store, start_at(cache, span->pos + span->n_tokens));
    }
}

/* A row that changed for the step stays changed. */
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
    const struct sn_row *row = &cache->rows[span->row];
    const struct sennit_cache *form = sn_form(&c->forms, row);
    uint64_t size = listing_of(c, row)->paging->page_tokens;
    uint8_t *page = NULL;
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint64_t pos = span->pos + token + t;
        if (!page || pos % size == 0)
            page = sn_list_page(row->store, pos / size)->data;
        sn_paged_of(form)->ops->store(form, page, pos % size, role, first_head, n_heads, data + t * token_stride,
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
    .max_append = window_max_append,
    .can_publish = window_can_publish,
    .row_copy = window_row_copy,
    .row_drop = window_row_drop,
    .trim_prepare = window_trim_prepare,
    .trim_apply = window_trim_apply,
    .trim_discard = window_trim_discard,
    .round_closed = window_round_closed,
    .commit_prefill = window_commit_prefill,
    .apply_prefill = window_apply_prefill,
    .discard_prefill = window_discard_prefill,
    .n_spans = window_n_spans,
    .spans = window_spans,
    .first_pos = window_first_pos,
    .gap = window_gap,
    .dtype = window_dtype,
    .donor_attend = sn_attend_donor,
    .body_bytes = window_body_bytes,
    .row_body_bytes = window_row_body_bytes,
    .save_body = window_save_body,
    .load_body = window_load_body,
    .step_begin = window_step_begin,
    .step_begun = window_step_begun,
    .step_tile = window_step_tile,
    .step_commit = window_step_commit,
    .step_abort = window_step_abort,
    SN_ATTEND_SLOTS,
};
