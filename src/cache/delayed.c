/* Family "delayed": rows are plain up to `start` positions and encoded from then on (forms.h), each by its own count.
 * Rows are chains of pages (pages.h) of one form throughout. */
#include "cache/delayed.h"

static struct sn_delayed *mutable_delayed(struct sennit_cache *cache)
{
    return (struct sn_delayed *)cache;
}

static const struct sn_forms *forms_of(const struct sennit_cache *cache)
{
    return &sn_delayed_of(cache)->forms;
}

static const struct sn_paging *paging_of(const struct sennit_cache *cache, const struct sn_row *row)
{
    return &sn_paged_of(sn_form(forms_of(cache), row))->paging;
}

/* ---- one cache ------------------------------------------------------------------------------------------------ */

enum { TAKES = SN_CONFIG_HEADS | SN_CONFIG_TYPES | SN_CONFIG_PAGES | SN_CONFIG_START | SN_CONFIG_INNER };

static sennit_status delayed_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    return sn_forms_check(config, config, err);
}

static void delayed_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    sn_forms_signature(config, config, out, n_bytes);
}

static sennit_status delayed_init(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_delayed *c = mutable_delayed(cache);
    SN_TRY(sn_forms_init(&c->forms, cache->pool, &cache->config, &cache->config, err));
    cache->config.inner = &c->forms.inner;
    return SENNIT_OK;
}

static void delayed_release(struct sennit_cache *cache)
{
    struct sn_delayed *c = mutable_delayed(cache);
    sn_forms_release(&c->forms);
    sn_free(cache->pool->heap, SN_USE_MISC, c->changes, c->cap_changes * sizeof *c->changes);
}

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

/* What the change of a row that owns its pages adds to its plain storage, at most: the pages of the tokens that come
 * with it, on its way to `tokens`, or one. */
static uint64_t change_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    const struct sn_forms *f = forms_of(cache);
    const struct sn_paging *paging = &sn_paged_of(f->encoded)->paging;
    uint64_t before = sn_pages_of(paging, f->start);
    uint64_t after = sn_pages_of(paging, sn_min_size(tokens, f->start + sn_cache_longest_span(cache)));
    uint64_t n_blocks = sn_div_up(after, SN_TABLE_PAGES) - sn_div_up(before, SN_TABLE_PAGES);
    return (after > before ? after - before : 1) * sn_page_bytes(paging) + n_blocks * sn_table_bytes();
}

/* The most on the way there. Snapshots of a plain row keep all its pages when it changes. */
static uint64_t delayed_storage_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    const struct sn_forms *f = forms_of(cache);
    uint64_t encoded = sn_paged_storage_bytes(f->encoded, tokens);
    if (f->start == 0)
        return encoded;
    uint64_t plain = sn_paged_storage_bytes(f->plain, sn_min_size(tokens, f->start));
    if (tokens < f->start)
        return plain;
    uint64_t most = sn_add_saturated(plain, change_bytes(cache, tokens));
    most = encoded > most ? encoded : most;
    return cache->config.n_snapshots > 0 ? sn_add_saturated(most, plain) : most;
}

/* Pages of the plain form, the larger one. */
static uint64_t delayed_reserve_bytes(const struct sennit_cache *cache)
{
    const struct sn_forms *f = forms_of(cache);
    return sn_paged_reserve_bytes(f->start == 0 ? f->encoded : f->plain);
}

static uint64_t delayed_bytes_per_token(const struct sennit_cache *cache)
{
    return sn_forms_bytes_per_token(forms_of(cache), cache);
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

static uint64_t delayed_max_append(const struct sennit_cache *cache, uint32_t row)
{
    return sn_form_max_append(forms_of(cache), cache, &cache->rows[row]);
}

static const char *delayed_dtype(const struct sennit_cache *cache)
{
    return sn_forms_dtype(forms_of(cache), cache);
}

static sennit_status delayed_trim_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                          void **spare, struct sennit_error *err)
{
    return sn_paged_trim_prepare(sn_form(forms_of(cache), row), row, n_tokens, spare, err);
}

static void delayed_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    sn_paged_trim_apply(sn_form(forms_of(cache), row), row, n_tokens, spare);
}

static void delayed_trim_discard(struct sennit_cache *cache, void *spare)
{
    sn_paged_trim_discard(forms_of(cache)->plain, spare); /* a block: of neither form */
}

static void delayed_row_drop(struct sennit_cache *cache, struct sn_row *row)
{
    sn_paged_row_drop(sn_form(forms_of(cache), row), row);
}

static size_t delayed_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    return sn_paged_row_n_spans(sn_form(forms_of(cache), &cache->rows[row]), &cache->rows[row]);
}

static void delayed_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    sn_paged_row_spans(sn_form(forms_of(cache), &cache->rows[row]), &cache->rows[row], row, out);
}

/* ---- streams -------------------------------------------------------------------------------------------------- */

static uint64_t delayed_row_body_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    return sn_paged_body_bytes(sn_form(forms_of(cache), row), row->n_tokens);
}

static uint64_t delayed_body_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    struct sn_row row = sn_form_untrimmed(forms_of(cache), tokens);
    return delayed_row_body_bytes(cache, &row);
}

static sennit_status delayed_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                       struct sennit_stream *stream, struct sennit_error *err)
{
    return sn_paged_save_body(sn_form(forms_of(cache), row), row, stream, err);
}

static sennit_status delayed_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                       struct sennit_error *err)
{
    SN_TRY(sn_form_check_floor(forms_of(cache), row, err));
    return sn_paged_load_body(sn_form(forms_of(cache), row), row, stream, err);
}

/* ---- the change ----------------------------------------------------------------------------------------------- */

static sennit_status reserve_changes(struct sn_delayed *c, uint32_t n, struct sennit_error *err)
{
    if (n <= c->cap_changes)
        return SENNIT_OK;
    struct sn_heap *heap = c->base.pool->heap;
    struct sn_change *fresh = sn_calloc(heap, SN_USE_MISC, n, sizeof *fresh);
    if (!fresh)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a step of %u spans", n);
    sn_free(heap, SN_USE_MISC, c->changes, c->cap_changes * sizeof *fresh);
    c->changes = fresh;
    c->cap_changes = n;
    return SENNIT_OK;
}

/* All that the change of a row, and n_new tokens after it, will take. */
static sennit_status prepare_change(const struct sn_forms *f, const struct sn_row *row, uint64_t n_new,
                                    struct sn_change *change, struct sennit_error *err)
{
    struct sn_recoding r = sn_forms_recoding(f);
    struct sn_need need = sn_table_recode_need(&r, row->store, row->n_tokens, n_new);
    change->due = true;
    if (sn_supply_fill(r.to, need.n_pages, need.n_blocks, &change->supply))
        return SENNIT_OK;
    change->due = false;
    return sn_fail(err, SENNIT_NOMEM, "no memory for %llu cache pages of %zu bytes, for a change of precision",
                   (unsigned long long)need.n_pages, r.to->data_bytes);
}

static void make_change(const struct sn_forms *f, struct sn_row *row, uint64_t n_new, struct sn_change *change)
{
    struct sn_recoding r = sn_forms_recoding(f);
    struct sn_table *tail = row->store;
    struct sn_fpenv env = sn_fp_enter();
    sn_table_recode(&r, &tail, row->n_tokens, &change->supply);
    sn_fp_leave(env);
    sn_table_extend(r.to, &tail, row->n_tokens, n_new, &change->supply, &change->undo);
    sn_supply_drop(r.to, &change->supply);
    row->store = tail;
    row->floor = f->start;
    change->due = false;
}

static void drop_change(const struct sn_forms *f, struct sn_change *change)
{
    sn_supply_drop(&sn_paged_of(f->encoded)->paging, &change->supply);
    change->due = false;
}

static sennit_status delayed_commit_prefill(struct sennit_cache *cache, const uint32_t *rows, uint32_t n_rows,
                                            struct sennit_error *err)
{
    struct sn_delayed *c = mutable_delayed(cache);
    const struct sn_forms *f = &c->forms;
    SN_TRY(reserve_changes(c, n_rows, err));
    SN_TRY(sn_forms_reserve(f, err));
    for (uint32_t i = 0; i < n_rows; i++) {
        const struct sn_row *row = &cache->rows[rows[i]];
        c->changes[i] = (struct sn_change){0};
        sennit_status status = sn_form_due(f, row) ? prepare_change(f, row, 0, &c->changes[i], err) : SENNIT_OK;
        if (status != SENNIT_OK) {
            while (i-- > 0)
                drop_change(f, &c->changes[i]);
            return status;
        }
    }
    return SENNIT_OK;
}

static void delayed_apply_prefill(struct sennit_cache *cache, const uint32_t *rows, uint32_t n_rows)
{
    struct sn_delayed *c = mutable_delayed(cache);
    for (uint32_t i = 0; i < n_rows; i++)
        if (c->changes[i].due)
            make_change(&c->forms, &cache->rows[rows[i]], 0, &c->changes[i]);
}

static void delayed_discard_prefill(struct sennit_cache *cache, uint32_t n_rows)
{
    struct sn_delayed *c = mutable_delayed(cache);
    while (n_rows-- > 0)
        drop_change(&c->forms, &c->changes[n_rows]);
}

/* ---- the step -------------------------------------------------------------------------------------------------- */

static void undo_spans(struct sn_delayed *c, uint32_t n_spans)
{
    c->forms.stepping = false;
    while (n_spans-- > 0) {
        struct sn_row *row = &c->base.rows[c->base.step.spans[n_spans].row];
        struct sn_change *change = &c->changes[n_spans];
        if (change->due) {
            drop_change(&c->forms, change);
            continue;
        }
        struct sn_table *tail = row->store;
        sn_table_undo(paging_of(&c->base, row), &tail, &change->undo);
        row->store = tail;
    }
}

static sennit_status prepare_span(struct sn_delayed *c, uint32_t i, struct sennit_error *err)
{
    const struct sennit_span *span = &c->base.step.spans[i];
    struct sn_row *row = &c->base.rows[span->row];
    struct sn_change *change = &c->changes[i];
    *change = (struct sn_change){0};
    if (sn_form_due(&c->forms, row))
        return prepare_change(&c->forms, row, span->n_tokens, change, err);
    struct sn_table *tail = row->store;
    sennit_status status =
        sn_table_grow(paging_of(&c->base, row), &tail, row->n_tokens, span->n_tokens, &change->undo, err);
    row->store = tail;
    return status;
}

/* All that can fail; rows that are due change once it has succeeded. */
static sennit_status delayed_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_delayed *c = mutable_delayed(cache);
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

static void delayed_step_begun(struct sennit_cache *cache)
{
    struct sn_delayed *c = mutable_delayed(cache);
    const struct sn_cache_step *step = &cache->step;
    c->forms.stepping = false;
    for (uint32_t i = 0; i < step->n_spans; i++) {
        struct sn_row *row = &cache->rows[step->spans[i].row];
        if (c->changes[i].due)
            make_change(&c->forms, row, step->spans[i].n_tokens, &c->changes[i]);
        sn_paged_row_poison(sn_form(&c->forms, row), row, step->spans[i].n_tokens);
    }
}

static void delayed_step_commit(struct sennit_cache *cache)
{
    struct sn_delayed *c = mutable_delayed(cache);
    for (uint32_t i = 0; i < cache->step.n_spans; i++)
        sn_table_settle(paging_of(cache, &cache->rows[cache->step.spans[i].row]), &c->changes[i].undo);
}

/* A row that changed for the step stays changed: its length is as before, and nothing reads it before `start` any
 * more. */
static void delayed_step_abort(struct sennit_cache *cache)
{
    undo_spans(mutable_delayed(cache), cache->step.n_spans);
}

static void delayed_step_tile(struct sennit_cache *cache, uint32_t span_index, uint32_t token, uint32_t n_tokens,
                              sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                              size_t token_stride, uint32_t worker)
{
    const struct sennit_span *span = &cache->step.spans[span_index];
    const struct sn_row *row = &cache->rows[span->row];
    sn_paged_row_store(sn_form(forms_of(cache), row), row, span, token, n_tokens, role, first_head, n_heads, data,
                       token_stride, worker);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

static struct sn_attend_source delayed_route(const struct sennit_cache *cache, uint32_t row)
{
    const struct sennit_cache *form = sn_form_read(forms_of(cache), &cache->rows[row]);
    return (struct sn_attend_source){.ops = form->ops->attend, .cache = form, .row = &cache->rows[row]};
}

static const struct sn_attend_ops delayed_attend = {.route = delayed_route};

static const struct sennit_cache_config example_inner = {.family = "affine", .code = {8, 8, 64}};
static const struct sennit_cache_config example = {.family = "delayed",
                                                   .n_kv_heads = 8,
                                                   .d_k = 128,
                                                   .d_v = 128,
                                                   .k_type = SENNIT_F16,
                                                   .v_type = SENNIT_F16,
                                                   .start = 1024,
                                                   .inner = &example_inner,
                                                   .n_inner = 1};

const struct sn_family sn_family_delayed = {
    .name = "delayed",
    .object_bytes = sizeof(struct sn_delayed),
    .example = &example,
    .changes_precision = true,
    .bounded_span = true,
    .trimmable = true,
    .takes = TAKES,
    .attend = &delayed_attend,
    .check = delayed_check,
    .signature = delayed_signature,
    .init = delayed_init,
    .release = delayed_release,
    .storage_bytes = delayed_storage_bytes,
    .reserve_bytes = delayed_reserve_bytes,
    .bytes_per_token = delayed_bytes_per_token,
    .row_bytes = sn_paged_row_bytes,
    .max_append = delayed_max_append,
    .row_copy = sn_paged_row_copy,
    .row_drop = delayed_row_drop,
    .trim_prepare = delayed_trim_prepare,
    .trim_apply = delayed_trim_apply,
    .trim_discard = delayed_trim_discard,
    .commit_prefill = delayed_commit_prefill,
    .apply_prefill = delayed_apply_prefill,
    .discard_prefill = delayed_discard_prefill,
    .n_spans = delayed_n_spans,
    .spans = delayed_spans,
    .dtype = delayed_dtype,
    .donor_attend = sn_attend_donor,
    .body_bytes = delayed_body_bytes,
    .row_body_bytes = delayed_row_body_bytes,
    .save_body = delayed_save_body,
    .load_body = delayed_load_body,
    .step_begin = delayed_step_begin,
    .step_begun = delayed_step_begun,
    .step_tile = delayed_step_tile,
    .step_commit = delayed_step_commit,
    .step_abort = delayed_step_abort,
    SN_ATTEND_SLOTS,
};
