#include "cache/padded.h"

#include <assert.h>

#include "cache/attend.h"

enum { PIECE = 64 }; /* tokens of a record that are moved at once */

static struct sn_padded *mutable_padded(struct sennit_cache *cache)
{
    return (struct sn_padded *)cache;
}

static const struct sn_kv_layout *layout_of(const struct sennit_cache *cache)
{
    return &sn_padded_of(cache)->layout;
}

/* ---- one cache ------------------------------------------------------------------------------------------------ */

enum { TAKES = SN_CONFIG_HEADS | SN_CONFIG_TYPES | SN_CONFIG_PAGES };

static sennit_status padded_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    SN_TRY(sn_kv_check(config, err));
    return sn_page_tokens_check(config, err);
}

static void padded_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    sn_kv_signature("padded", config, out, n_bytes);
}

static sennit_status padded_init(struct sennit_cache *cache, struct sennit_error *err)
{
    (void)err;
    sn_kv_layout_init(&mutable_padded(cache)->layout, &cache->config, cache->pool->kernels);
    return SENNIT_OK;
}

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

static uint64_t row_share(const struct sennit_cache *cache, uint64_t columns)
{
    const struct sn_kv_layout *l = layout_of(cache);
    return columns ? sn_rect_bytes(l, 1, sn_rect_width(l, columns)) : 0;
}

/* A snapshot that outlives the next append is a rectangle of its own. */
static uint64_t padded_storage_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(row_share(cache, tokens), 1 + (uint64_t)cache->config.n_snapshots, &bytes))
        return UINT64_MAX;
    return bytes;
}

static uint64_t padded_reserve_bytes(const struct sennit_cache *cache)
{
    return row_share(cache, cache->config.round_depth);
}

static uint64_t padded_bytes_per_token(const struct sennit_cache *cache)
{
    return sn_rect_column_bytes(layout_of(cache));
}

static bool sole_holder(const struct sennit_cache *cache)
{
    const struct sn_slot *head = sn_padded_head(cache);
    return head && head->n_refs == cache->n_rows;
}

/* Equal parts; what the host did not take back at a shrink is the first row's. */
static uint64_t padded_row_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    if (!sole_holder(cache))
        return 0;
    size_t n_bytes = sn_padded_head(cache)->n_bytes;
    return n_bytes / cache->n_rows + (row == cache->rows ? n_bytes % cache->n_rows : 0);
}

/* ---- shape ---------------------------------------------------------------------------------------------------- */

static uint64_t padded_left_pad(const struct sennit_cache *cache, uint32_t row)
{
    const struct sn_slot *slot = cache->rows[row].store;
    return slot ? slot->first - sn_padded_of(cache)->origin : 0;
}

/* The rows' order and the head's size are what they must be. */
static bool in_shape(const struct sennit_cache *cache, uint64_t width)
{
    const struct sn_slot *head = sn_padded_head(cache);
    bool fits = sn_padded_of(cache)->origin == 0 && head->n_slots == cache->n_rows && head->width == width;
    for (uint32_t i = 0; i < cache->n_rows && fits; i++)
        fits = sn_rect_index(cache->rows[i].store) == i;
    return fits;
}

/* Slot i becomes row i's. */
static void sort_slots(struct sennit_cache *cache)
{
    const struct sn_kv_layout *l = layout_of(cache);
    struct sn_slot *head = sn_padded_head(cache);
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        struct sn_slot *at = cache->rows[i].store, *to = &head[i];
        if (at == to)
            continue;
        uint32_t j = i + 1;
        while (j < cache->n_rows && cache->rows[j].store != to)
            j++;
        bool taken = j < cache->n_rows;
        sn_rect_move(l, to, at, taken);
        cache->rows[i].store = to;
        if (taken)
            cache->rows[j].store = at;
    }
}

static void padded_settle(struct sennit_cache *cache);

/* When the last snapshot of a rectangle goes, its owner is its sole holder again and gives back what it does not
 * need. */
static void padded_row_drop(struct sennit_cache *cache, struct sn_row *row)
{
    struct sn_slot *slot = row->store, *head = slot ? slot->head : NULL;
    row->store = NULL;
    if (!head)
        return;
    if (head->owner == cache)
        head->owner = NULL; /* a filter takes it again for the rows that stay */
    struct sennit_cache *owner = head->owner;
    bool last = owner && head->n_refs == owner->n_rows + 1 && !owner->step.open;
    sn_rect_drop(cache->pool, slot);
    if (last)
        padded_settle(owner);
}

static void drop_all(struct sennit_cache *cache)
{
    for (uint32_t i = 0; i < cache->n_rows; i++)
        padded_row_drop(cache, &cache->rows[i]);
    mutable_padded(cache)->origin = 0;
}

/* After rows have gone or become shorter: a rectangle that nobody else holds becomes what they need. */
static void padded_settle(struct sennit_cache *cache)
{
    struct sn_padded *c = mutable_padded(cache);
    struct sn_slot *head = sn_padded_head(cache);
    bool empty = true;
    for (uint32_t i = 0; i < cache->n_rows && empty; i++)
        empty = cache->rows[i].n_tokens == 0;
    if (empty) {
        drop_all(cache);
        return;
    }
    uint64_t width = sn_rect_width(&c->layout, sennit_cache_offset(cache));
    if (!sole_holder(cache) || in_shape(cache, width))
        return;
    uint32_t n_refs = head->n_refs;
    sort_slots(cache);
    head = sn_rect_shrink(cache->pool, &c->layout, head, cache->n_rows, c->origin, width);
    head->n_refs = n_refs;
    c->origin = 0;
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        cache->rows[i].store = &head[i];
        if (cache->pool->poison)
            sn_rect_poison(&c->layout, &head[i], cache->rows[i].n_tokens);
    }
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

/* dst, of a cache without rows, gets a rectangle of its own. */
static sennit_status padded_row_copy(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                                     struct sennit_error *err)
{
    const struct sn_kv_layout *l = layout_of(to);
    if (src->n_tokens == 0)
        return SENNIT_OK;
    struct sn_slot *slot = sn_rect_new(to->pool, l, 1, sn_rect_width(l, src->n_tokens));
    if (!slot)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a copy of %llu tokens", (unsigned long long)src->n_tokens);
    sn_rect_copy(l, src->store, slot, src->n_tokens);
    sn_rect_ref(slot);
    slot->owner = to;
    dst->store = slot;
    return SENNIT_OK;
}

/* All rows end at the column of the longest. */
static sennit_status padded_merge(struct sennit_cache *cache, const struct sennit_cache *const *sources,
                                  uint32_t n_sources, uint32_t n_rows, struct sennit_error *err)
{
    const struct sn_kv_layout *l = layout_of(cache);
    uint64_t longest = 0;
    for (uint32_t i = 0; i < n_rows; i++)
        longest = cache->rows[i].n_tokens > longest ? cache->rows[i].n_tokens : longest;
    if (longest == 0)
        return SENNIT_OK;
    struct sn_slot *head = sn_rect_new(cache->pool, l, n_rows, sn_rect_width(l, longest));
    if (!head)
        return sn_fail(err, SENNIT_NOMEM, "merge_rows: no memory for %u rows of %llu columns", n_rows,
                       (unsigned long long)longest);
    struct sn_slot *slot = head;
    for (uint32_t i = 0; i < n_sources; i++)
        for (uint32_t r = 0; r < sources[i]->n_rows; r++, slot++) {
            const struct sn_row *row = &sources[i]->rows[r];
            slot->first = longest - row->n_tokens;
            sn_rect_copy(l, row->store, slot, row->n_tokens);
            cache->rows[slot - head].store = slot;
            sn_rect_ref(slot);
        }
    head->owner = cache;
    return SENNIT_OK;
}

static void padded_snapshot(struct sennit_cache *to, const struct sennit_cache *from)
{
    for (uint32_t i = 0; i < from->n_rows; i++) {
        to->rows[i].store = from->rows[i].store;
        sn_rect_ref(to->rows[i].store);
    }
    mutable_padded(to)->origin = sn_padded_of(from)->origin;
}

/* Padding that all rows have goes. */
static void padded_filtered(struct sennit_cache *cache)
{
    uint64_t common = UINT64_MAX;
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        uint64_t pad = padded_left_pad(cache, i);
        common = pad < common ? pad : common;
    }
    if (cache->n_rows > 0)
        mutable_padded(cache)->origin += common;
    if (sn_padded_head(cache))
        sn_padded_head(cache)->owner = cache;
    padded_settle(cache);
}

/* ---- trim ----------------------------------------------------------------------------------------------------- */

static sennit_status padded_trim_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                         void **spare, struct sennit_error *err)
{
    (void)cache, (void)row, (void)n_tokens, (void)err;
    *spare = NULL;
    return SENNIT_OK;
}

static void padded_trim_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    (void)spare;
    if (cache->pool->poison && sole_holder(cache))
        sn_rect_poison(layout_of(cache), row->store, n_tokens);
}

static void padded_trim_discard(struct sennit_cache *cache, void *spare)
{
    (void)cache, (void)spare; /* there never is one */
}

/* ---- spans and streams ---------------------------------------------------------------------------------------- */

static size_t padded_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    return cache->rows[row].n_tokens > 0 ? 2 : 0;
}

static void padded_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    const struct sn_kv_layout *l = layout_of(cache);
    const struct sn_slot *slot = cache->rows[row].store;
    if (cache->rows[row].n_tokens == 0)
        return;
    uint64_t width = slot->head->width, n = l->n_heads * width * l->element_bytes;
    struct sennit_span_view view = {.name = "key",
                                    .type = cache->config.k_type,
                                    .row = row,
                                    .n_tokens = cache->rows[row].n_tokens,
                                    .data = sn_rect_key(l, slot, 0, 0),
                                    .n_bytes = n * l->d_k,
                                    .column = slot->first,
                                    .n_columns = width};
    out[0] = view;
    view.name = "value";
    view.data = sn_rect_value(l, slot, 0, 0);
    view.n_bytes = n * l->d_v;
    out[1] = view;
}

/* A record is token after token: K [heads][d_k], V [heads][d_v]. */
static uint64_t padded_body_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    uint64_t bytes;
    return __builtin_mul_overflow(tokens, sn_rect_column_bytes(layout_of(cache)), &bytes) ? UINT64_MAX : bytes;
}

/* Tokens pos .. pos + n - 1 between their columns and a piece of a record. */
static void move_tokens(const struct sn_kv_layout *l, const struct sn_slot *slot, uint64_t pos, size_t n,
                        uint8_t *piece, bool save)
{
    for (size_t t = 0; t < n; t++)
        for (int value = 0; value < 2; value++)
            for (size_t h = 0; h < l->n_heads; h++) {
                uint64_t column = slot->first + pos + t;
                size_t bytes = (value ? l->d_v : l->d_k) * l->element_bytes;
                uint8_t *at = value ? sn_rect_value(l, slot, h, column) : sn_rect_key(l, slot, h, column);
                if (save)
                    memcpy(piece, at, bytes);
                else
                    memcpy(at, piece, bytes);
                piece += bytes;
            }
}

static sennit_status padded_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                      struct sennit_stream *stream, struct sennit_error *err)
{
    const struct sn_kv_layout *l = layout_of(cache);
    struct sn_heap *heap = cache->pool->heap;
    size_t token = sn_rect_column_bytes(l);
    if (row->n_tokens == 0)
        return SENNIT_OK;
    uint8_t *piece = sn_alloc(heap, SN_USE_SCRATCH, PIECE * token);
    if (!piece)
        return sn_fail(err, SENNIT_NOMEM, "save: no memory for a piece of %d tokens", PIECE);
    sennit_status status = SENNIT_OK;
    for (uint64_t pos = 0; pos < row->n_tokens && status == SENNIT_OK; pos += PIECE) {
        size_t n = (size_t)sn_min_size(PIECE, row->n_tokens - pos);
        move_tokens(l, row->store, pos, n, piece, true);
        status = sn_stream_write(stream, piece, n * token, err);
    }
    sn_free(heap, SN_USE_SCRATCH, piece, PIECE * token);
    return status;
}

/* Room for n tokens, at least twice what there was, and never more than the row will need: a stream that lies about
 * its length costs no more than twice what it has. */
static sennit_status grow_loaded(struct sennit_cache *cache, struct sn_row *row, uint64_t pos, uint64_t n,
                                 struct sennit_error *err)
{
    const struct sn_kv_layout *l = layout_of(cache);
    struct sn_slot *old = row->store;
    uint64_t room = old ? old->width : 0, full = sn_rect_width(l, row->n_tokens);
    if (n <= room)
        return SENNIT_OK;
    uint64_t width = sn_rect_width(l, n > 2 * room ? n : 2 * room);
    struct sn_slot *fresh = sn_rect_new_next(cache->pool, l, 1, width < full ? width : full);
    if (!fresh)
        return sn_fail(err, SENNIT_NOMEM, "load: no memory for %llu tokens", (unsigned long long)n);
    if (old)
        sn_rect_copy(l, old, fresh, pos);
    sn_rect_drop(cache->pool, old);
    sn_rect_adopt(cache->pool, fresh);
    sn_rect_ref(fresh);
    fresh->owner = cache;
    row->store = fresh;
    return SENNIT_OK;
}

static sennit_status load_pieces(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                 uint8_t *piece, struct sennit_error *err)
{
    const struct sn_kv_layout *l = layout_of(cache);
    for (uint64_t pos = 0; pos < row->n_tokens; pos += PIECE) {
        size_t n = (size_t)sn_min_size(PIECE, row->n_tokens - pos);
        SN_TRY(sn_stream_read(stream, piece, n * sn_rect_column_bytes(l), err));
        SN_TRY(grow_loaded(cache, row, pos, pos + n, err));
        move_tokens(l, row->store, pos, n, piece, false);
    }
    return SENNIT_OK;
}

static sennit_status padded_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                      struct sennit_error *err)
{
    size_t bytes = PIECE * sn_rect_column_bytes(layout_of(cache));
    if (row->n_tokens == 0)
        return SENNIT_OK;
    uint8_t *piece = sn_alloc(cache->pool->heap, SN_USE_SCRATCH, bytes);
    if (!piece)
        return sn_fail(err, SENNIT_NOMEM, "load: no memory for a piece of %d tokens", PIECE);
    sennit_status status = load_pieces(cache, row, stream, piece, err);
    sn_free(cache->pool->heap, SN_USE_SCRATCH, piece, bytes);
    if (status != SENNIT_OK)
        padded_row_drop(cache, row);
    return status;
}

/* ---- the step ------------------------------------------------------------------------------------------------- */

/* Columns in use once the step's tokens are in; false: that many cannot be. */
static bool columns_after(const struct sennit_cache *cache, uint64_t *columns)
{
    *columns = sennit_cache_offset(cache);
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        const struct sennit_span *span = &cache->step.spans[i];
        uint64_t end;
        if (__builtin_add_overflow(padded_left_pad(cache, span->row) + span->pos, span->n_tokens, &end))
            return false;
        *columns = end > *columns ? end : *columns;
    }
    return true;
}

/* The rows into a rectangle of their own; what they had is kept until the step ends. */
static sennit_status rebuild(struct sn_padded *c, uint64_t width, struct sennit_error *err)
{
    struct sennit_cache *cache = &c->base;
    struct sn_slot *head = sn_rect_new_next(cache->pool, &c->layout, cache->n_rows, width);
    if (!head)
        return sn_fail(err, SENNIT_NOMEM, "append_begin: no memory for %u rows of %llu columns", cache->n_rows,
                       (unsigned long long)width);
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        struct sn_row *row = &cache->rows[i];
        head[i].first = padded_left_pad(cache, i);
        if (row->store)
            sn_rect_copy(&c->layout, row->store, &head[i], row->n_tokens);
        head[i].old = row->store;
        sn_rect_ref(&head[i]);
    }
    for (uint32_t i = 0; i < cache->n_rows; i++)
        cache->rows[i].store = &head[i];
    c->moved = true;
    c->old_origin = c->origin;
    c->origin = 0;
    return SENNIT_OK;
}

static sennit_status padded_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_padded *c = mutable_padded(cache);
    uint64_t columns;
    SN_TRY(sn_attend_reserve(cache, err));
    if (!columns_after(cache, &columns))
        return sn_fail(err, SENNIT_NOMEM, "append_begin: no memory for that many columns");
    uint64_t width = sn_rect_width(&c->layout, columns);
    c->moved = false;
    if (!sole_holder(cache) || !in_shape(cache, width) || cache->pool->hostile)
        return rebuild(c, width, err);
    for (uint32_t i = 0; i < cache->step.n_spans && cache->pool->poison; i++) {
        const struct sn_row *row = &cache->rows[cache->step.spans[i].row];
        sn_rect_poison(&c->layout, row->store, row->n_tokens);
    }
    return SENNIT_OK;
}

static void padded_step_tile(struct sennit_cache *cache, uint32_t span_index, uint32_t token, uint32_t n_tokens,
                             sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                             size_t token_stride, uint32_t worker)
{
    const struct sn_kv_layout *l = layout_of(cache);
    const struct sennit_span *span = &cache->step.spans[span_index];
    const struct sn_slot *slot = cache->rows[span->row].store;
    bool key = role == SENNIT_ROLE_KEY;
    size_t d = key ? l->d_k : l->d_v;
    assert((key || role == SENNIT_ROLE_VALUE) && first_head + n_heads <= l->n_heads);
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t h = 0; h < n_heads; h++) {
            uint64_t column = slot->first + span->pos + token + t;
            uint8_t *at =
                key ? sn_rect_key(l, slot, first_head + h, column) : sn_rect_value(l, slot, first_head + h, column);
            l->store(data + t * token_stride + h * d, d, at, 1);
        }
    cache->pool->calls[worker].n[l->store_id] += (uint64_t)n_tokens * n_heads;
}

static void padded_step_commit(struct sennit_cache *cache)
{
    struct sn_padded *c = mutable_padded(cache);
    if (!c->moved)
        return;
    struct sn_slot *head = sn_padded_head(cache);
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        padded_row_drop(cache, &(struct sn_row){.store = head[i].old});
        head[i].old = NULL;
    }
    sn_rect_adopt(cache->pool, head);
    head->owner = cache;
    c->moved = false;
}

static void padded_step_abort(struct sennit_cache *cache)
{
    struct sn_padded *c = mutable_padded(cache);
    if (!c->moved)
        return;
    struct sn_slot *head = sn_padded_head(cache);
    for (uint32_t i = 0; i < cache->n_rows; i++)
        cache->rows[i].store = head[i].old;
    sn_rect_discard(cache->pool, head);
    c->origin = c->old_origin;
    c->moved = false;
    padded_settle(cache); /* the last snapshot may have gone meanwhile */
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

static size_t padded_segment_bytes(const struct sn_attend_source *src, size_t n_q)
{
    const struct sn_kv_layout *l = layout_of(src->cache);
    (void)n_q;
    return SN_SEGMENT_KEYS * l->d_k * l->element_bytes;
}

/* One key into its lane of a panel [4][d_k][16]. */
static void put_key(const uint8_t *key, size_t d_k, size_t element_bytes, uint8_t *lane)
{
    if (element_bytes == sizeof(float)) {
        const float *from = (const void *)key;
        float *to = (void *)lane;
        for (size_t d = 0; d < d_k; d++)
            to[16 * d] = from[d];
        return;
    }
    const uint16_t *from = (const void *)key;
    uint16_t *to = (void *)lane;
    for (size_t d = 0; d < d_k; d++)
        to[16 * d] = from[d];
}

/* Keys are turned into panels, those alone that some query sees: a column outside the row is never read. Values lie
 * as the slots want them. */
static void padded_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    const struct sn_kv_layout *l = layout_of(job->src.cache);
    const struct sn_slot *slot = job->src.row->store;
    const void *k[SN_SEGMENT_CHUNKS], *v[SN_SEGMENT_CHUNKS];
    size_t e = l->element_bytes, chunk = SN_CHUNK_KEYS * l->d_k * e, d_k = l->d_k;
    for (size_t c = 0; c < s->n_chunks; c++) {
        uint8_t *panel = (uint8_t *)job->work.segment + c * chunk;
        uint64_t column = slot->first + s->first + c * SN_CHUNK_KEYS;
        k[c] = panel;
        v[c] = s->seen[c] ? sn_rect_value(l, slot, job->kv_head, column) : NULL;
        for (uint64_t left = s->seen[c]; left; left &= left - 1) {
            size_t j = (size_t)__builtin_ctzll(left);
            put_key(sn_rect_key(l, slot, job->kv_head, column + j), d_k, e, panel + (j / 16 * d_k * 16 + j % 16) * e);
        }
    }
    sn_attend_slot(job, s, l->attn, l->attn_id, k, v);
}

static const struct sn_attend_ops padded_attend = {
    .segment_bytes = padded_segment_bytes,
    .segment = padded_segment,
};

static const struct sennit_cache_config example = {
    .family = "padded", .n_kv_heads = 8, .d_k = 128, .d_v = 128, .k_type = SENNIT_F16, .v_type = SENNIT_F16};

const struct sn_family sn_family_padded = {
    .name = "padded",
    .takes = TAKES,
    .object_bytes = sizeof(struct sn_padded),
    .example = &example,
    .trimmable = true,
    .copies_rows = true,
    .attend = &padded_attend,
    .check = padded_check,
    .signature = padded_signature,
    .init = padded_init,
    .storage_bytes = padded_storage_bytes,
    .reserve_bytes = padded_reserve_bytes,
    .bytes_per_token = padded_bytes_per_token,
    .row_bytes = padded_row_bytes,
    .left_pad = padded_left_pad,
    .row_copy = padded_row_copy,
    .row_drop = padded_row_drop,
    .merge = padded_merge,
    .snapshot = padded_snapshot,
    .filtered = padded_filtered,
    .trim_prepare = padded_trim_prepare,
    .trim_apply = padded_trim_apply,
    .trim_discard = padded_trim_discard,
    .trimmed = padded_settle,
    .n_spans = padded_n_spans,
    .spans = padded_spans,
    .donor_attend = sn_attend_donor,
    .body_bytes = padded_body_bytes,
    .save_body = padded_save_body,
    .load_body = padded_load_body,
    .step_begin = padded_step_begin,
    .step_tile = padded_step_tile,
    .step_commit = padded_step_commit,
    .step_abort = padded_step_abort,
    SN_ATTEND_SLOTS,
};
