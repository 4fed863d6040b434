/* Rectangles by name: where rows lie after each operation, what is in the columns around them, and what a batch of
 * them costs. That outputs are those of each row alone is said by stage_same throughout, and by the suite. */
#include "cache/stage.h"

#include <stdio.h>
#include <stdlib.h>

#include "cache/kv.h"
#include "cache/padded.h"

enum { H = 2, GROUP = 2, D = 32, HEADS = H * GROUP, WIDTH = HEADS * D, E = 2, COLUMN = H * 2 * D * E };

static const struct kind padded = {"padded", "padded", NULL};

static void open_stage(struct stage *s, uint32_t page_tokens)
{
    stage_open_kind(s, &padded);
    s->g.config.page_tokens = page_tokens;
}

/* What one row of a rectangle of so many columns takes. */
static uint64_t share(const struct stage *s, uint64_t columns)
{
    uint64_t step = s->g.config.page_tokens ? s->g.config.page_tokens : 64;
    return columns ? 64 + (columns + step - 1) / step * step * COLUMN : 0;
}

/* Rows' first columns, and the head of the group; books as they must be. */
static void assert_columns(const struct stage *s, const struct sennit_cache *c, const uint64_t *pads, uint64_t offset)
{
    uint32_t n = sennit_cache_batch_size(c);
    assert_int_equal(sennit_cache_offset(c), offset);
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(sennit_cache_left_pad(c, r), pads[r]);
        assert_int_equal(sennit_cache_current_bytes(c, r), share(s, offset));
    }
}

/* Three rows of tokens 100, 200, 300 ... */
static struct sennit_cache *batch_of(struct stage *s, const uint32_t *lengths, uint32_t n)
{
    struct sennit_cache *rows[8] = {0};
    for (uint32_t i = 0; i < n; i++)
        rows[i] = stage_row(s, 1000 * (i + 1), lengths[i]);
    struct sennit_cache *c = stage_merge(s, rows, n);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(sennit_cache_row_offset(rows[i], 0), lengths[i]); /* neither consumed nor moved */
        assert_int_equal(sennit_cache_left_pad(rows[i], 0), 0);
        stage_same(s, rows[i], 0, 1000 * (i + 1), lengths[i]);
    }
    stage_dispose(rows, n);
    return c;
}

/* ---- arithmetic ------------------------------------------------------------------------------------------------ */

/* Every pair of unequal lengths in both orders, a row without tokens among them; then a running layout with more. */
static void joins_are_right_aligned(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {0, 1, 3, 4, 5, 64, 65, 130};
    for (size_t a = 0; a < SN_ARRAY_LEN(lengths); a++)
        for (size_t b = 0; b < SN_ARRAY_LEN(lengths); b++) {
            struct stage s;
            open_stage(&s, b % 2 ? 4 : 0);
            const uint32_t n[] = {lengths[a], lengths[b]};
            uint64_t most = n[0] > n[1] ? n[0] : n[1];
            struct sennit_cache *c = batch_of(&s, n, 2);
            assert_columns(&s, c, (uint64_t[]){most - n[0], most - n[1]}, most);
            struct sennit_cache *more[] = {c, stage_row(&s, 5000, 7), stage_row(&s, 6000, 70)};
            struct sennit_cache *joined = stage_merge(&s, more, 3);
            most = most > 70 ? most : 70;
            assert_columns(&s, joined, (uint64_t[]){most - n[0], most - n[1], most - 7, most - 70}, most);
            int32_t positions[4] = {-1, -1, -1, -1};
            assert_true(sennit_cache_rope_offset_arr(joined, positions));
            assert_true(positions[0] == (int32_t)n[0] && positions[1] == (int32_t)n[1] && positions[2] == 7 &&
                        positions[3] == 70);
            stage_dispose(more, 3);
            stage_same(&s, joined, 0, 1000, n[0]);
            stage_same(&s, joined, 1, 2000, n[1]);
            stage_same(&s, joined, 2, 5000, 7);
            stage_same(&s, joined, 3, 6000, 70);
            sennit_cache_dispose(&joined);
            stage_close(&s);
        }
}

/* The picture of docs/contract.md, step by step. */
static void rows_grow_at_their_own_ends(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 1);
    struct sennit_cache *c = batch_of(&s, (const uint32_t[]){5, 2, 4}, 3);
    assert_columns(&s, c, (uint64_t[]){0, 3, 1}, 5);
    const struct feed feeds[] = {{.row = 0, .n = 2, .seed = 1005}, {.row = 1, .n = 3, .seed = 2002}};
    stage_feeds(&s, c, feeds, 2);
    assert_columns(&s, c, (uint64_t[]){0, 3, 1}, 8); /* the row that reaches furthest is not the longest */
    int32_t positions[3];
    assert_true(sennit_cache_rope_offset_arr(c, positions));
    assert_true(positions[0] == 7 && positions[1] == 5 && positions[2] == 4);
    OK(sennit_cache_trim(c, 1, false, err));
    assert_columns(&s, c, (uint64_t[]){0, 3, 1}, 7);
    OK(sennit_cache_filter_rows(c, (const uint32_t[]){2, 1}, 2, err));
    assert_columns(&s, c, (uint64_t[]){0, 2}, 6);
    stage_same(&s, c, 0, 3000, 3);
    stage_same(&s, c, 1, 2000, 4);
    struct sennit_cache *again = stage_merge(&s, (struct sennit_cache *[]){c}, 1);
    assert_columns(&s, again, (uint64_t[]){1, 0}, 4); /* a merge aligns */
    stage_feed(&s, again, 0, 3003, 66, NULL);
    stage_same(&s, again, 0, 3000, 69);
    stage_same(&s, again, 1, 2000, 4);
    sennit_cache_dispose(&again);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* Every subset of four rows in every rotation: what all that stay have in front goes, and nothing more. */
static void common_padding_goes(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {3, 10, 6, 1};
    for (uint32_t set = 0; set < 16; set++)
        for (uint32_t turn = 0; turn < 4; turn++) {
            struct stage s;
            open_stage(&s, 2);
            struct sennit_cache *c = batch_of(&s, lengths, 4);
            uint32_t keep[4], n = 0;
            uint64_t pads[4], longest = 0;
            for (uint32_t i = 0; i < 4; i++)
                if (set >> (i + turn) % 4 & 1)
                    keep[n++] = (i + turn) % 4;
            for (uint32_t i = 0; i < n; i++)
                longest = lengths[keep[i]] > longest ? lengths[keep[i]] : longest;
            for (uint32_t i = 0; i < n; i++)
                pads[i] = longest - lengths[keep[i]];
            OK(sennit_cache_filter_rows(c, keep, n, err));
            assert_columns(&s, c, pads, longest);
            assert_int_equal(sennit_pool_bytes(s.pool), n * share(&s, longest));
            for (uint32_t i = 0; i < n; i++)
                stage_same(&s, c, i, 1000 * (keep[i] + 1), lengths[keep[i]]);
            for (uint32_t i = 0; i < n; i++) {
                stage_feed(&s, c, i, 1000 * (keep[i] + 1) + lengths[keep[i]], 3 + i, NULL);
                stage_same(&s, c, i, 1000 * (keep[i] + 1), lengths[keep[i]] + 3 + i);
            }
            sennit_cache_dispose(&c);
            stage_close(&s);
        }
}

/* Rounds that keep another number of tokens in each row; appends go on from there. */
static void rollbacks_leave_ragged_rows(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 4);
    struct sennit_cache *c = batch_of(&s, (const uint32_t[]){9, 2, 7}, 3);
    const uint64_t keep[] = {0, 4, 8};
    OK(sennit_cache_spec_round_begin(c, err));
    for (uint32_t r = 0; r < 3; r++) {
        const uint32_t n[] = {9, 2, 7};
        stage_feed(&s, c, r, 1000 * (r + 1) + n[r], (uint32_t)keep[r], NULL);
        stage_feed(&s, c, r, 77777, 8 - (uint32_t)keep[r], NULL);
    }
    assert_int_equal(sennit_cache_offset(c), 17);
    OK(sennit_cache_spec_round_rollback(c, keep, err));
    assert_columns(&s, c, (uint64_t[]){0, 7, 2}, 17);
    OK(sennit_cache_trim(c, 6, false, err));
    assert_columns(&s, c, (uint64_t[]){0, 7, 2}, 11);
    static const struct {
        uint32_t had, more;
    } row[] = {{3, 5}, {0, 9}, {9, 1}};
    for (uint32_t r = 0; r < 3; r++)
        stage_same(&s, c, r, 1000 * (r + 1), row[r].had);
    for (uint32_t r = 0; r < 3; r++) {
        stage_feed(&s, c, r, 1000 * (r + 1) + row[r].had, row[r].more, NULL);
        stage_same(&s, c, r, 1000 * (r + 1), row[r].had + row[r].more);
    }
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* Rows that have lost everything: the rectangle and the padding go, the rows stay. */
static void emptied_rows_hold_nothing(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 4);
    struct sennit_cache *c = batch_of(&s, (const uint32_t[]){6, 6}, 2);
    OK(sennit_cache_trim(c, 6, false, err));
    assert_columns(&s, c, (uint64_t[]){0, 0}, 0);
    assert_int_equal(sennit_pool_bytes(s.pool), 0);
    assert_false(sennit_cache_rope_offset_arr(c, NULL));
    stage_feed(&s, c, 1, 2000, 5, NULL);
    assert_columns(&s, c, (uint64_t[]){0, 0}, 5);
    stage_same(&s, c, 0, 1000, 0);
    stage_same(&s, c, 1, 2000, 5);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- the columns around --------------------------------------------------------------------------------------- */

/* Every column outside the rows, in all slots, becomes this. */
static void spoil_padding(const struct sennit_cache *c, uint16_t what)
{
    struct sennit_state lease;
    OK(sennit_cache_state(c, &lease, err));
    for (size_t i = 0; i < lease.n_spans; i++) {
        const struct sennit_span_view *v = &lease.spans[i];
        uint16_t *data = (uint16_t *)(uintptr_t)v->data;
        for (size_t h = 0; h < H; h++)
            for (uint64_t column = 0; column < v->n_columns; column++)
                for (size_t d = 0; d < D; d++)
                    if (column < v->column || column >= v->column + v->n_tokens)
                        data[(h * v->n_columns + column) * D + d] = what;
    }
    sennit_state_release(&lease);
}

/* NaN, infinity, a large number and zero in all padding: nothing of it is seen, by one query or by many, in steps or
 * by donors; by the textbook's word too. */
static void padding_is_never_seen(void **state)
{
    (void)state;
    static const uint16_t garbage[] = {0x7E00, 0x7C00, 0xFC00, 0x7BFF, 0};
    static const uint32_t lengths[] = {300, 40, 1}, spans[] = {1, 7};
    for (size_t g = 0; g < SN_ARRAY_LEN(garbage); g++)
        for (size_t k = 0; k < SN_ARRAY_LEN(spans); k++) {
            struct stage s;
            open_stage(&s, 0);
            struct sennit_cache *c = batch_of(&s, lengths, 3);
            struct sennit_donor_attention *view;
            float q[3 * HEADS * D], out[2][3 * WIDTH];
            token_query(8, SN_ARRAY_LEN(q), q);
            for (int after = 0; after < 2; after++) {
                OK(sennit_cache_capture_donor_attention(c, &view, err));
                OK(sennit_donor_attend(view, q, HEADS, 1, 0.25f, NULL, out[after], err));
                sennit_donor_attention_free(view);
                spoil_padding(c, garbage[g]);
            }
            assert_memory_equal(out[0], out[1], sizeof out[0]);
            for (uint32_t r = 0; r < 3; r++) {
                float *got = stage_out(&s, spans[k]), *want = stage_out(&s, spans[k]);
                struct sennit_cache *alone = stage_row(&s, 1000 * (r + 1), lengths[r]);
                stage_feed(&s, c, r, 1000 * (r + 1) + lengths[r], spans[k], got);
                stage_feed(&s, alone, 0, 1000 * (r + 1) + lengths[r], spans[k], want);
                assert_memory_equal(got, want, spans[k] * WIDTH * sizeof *got);
                stage_textbook(&s, 1000 * (r + 1), lengths[r] + spans[k], got + (spans[k] - 1) * WIDTH);
                sennit_cache_dispose(&alone);
                free(got);
                free(want);
                spoil_padding(c, garbage[g]);
            }
            sennit_cache_dispose(&c);
            stage_close(&s);
        }
}

/* A backend's reading: one tensor for keys and one for values, every token where strides say. */
static void rows_lie_in_one_tensor(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {5, 0, 20, 9};
    struct stage s;
    open_stage(&s, 8);
    struct sennit_cache *c = batch_of(&s, lengths, 4);
    struct sennit_state lease;
    OK(sennit_cache_state(c, &lease, err));
    assert_int_equal(lease.n_spans, 6); /* a row without tokens has none */
    const uint16_t *tensor[2] = {0};
    for (size_t i = 0; i < lease.n_spans; i++) {
        const struct sennit_span_view *v = &lease.spans[i];
        assert_string_equal(v->name, i % 2 ? "value" : "key");
        assert_true(v->type == SENNIT_F16 && v->n_columns == 24 && v->n_bytes == H * 24 * D * E);
        assert_int_equal(v->column, sennit_cache_left_pad(c, v->row));
        tensor[i % 2] = (const void *)((const uint8_t *)v->data - v->row * v->n_bytes);
    }
    for (uint32_t b = 0; b < 4; b++)
        for (uint32_t p = 0; p < lengths[b]; p++)
            for (int value = 0; value < 2; value++) {
                float x[H * D];
                uint16_t stored[H * D];
                token_vector(1000 * (b + 1) + p, value ? SENNIT_ROLE_VALUE : SENNIT_ROLE_KEY, H * D, x);
                s.pool->kernels->store_f16(x, H * D, stored, 1);
                for (size_t h = 0; h < H; h++)
                    assert_memory_equal(tensor[value] + ((b * H + h) * 24 + sennit_cache_left_pad(c, b) + p) * D,
                                        stored + h * D, D * E);
            }
    sennit_state_release(&lease);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

/* A batch that gets at most N more tokens per row holds no more than B * projected_bytes(offset + N), whichever rows
 * get them; nor does any moment of it, while the rectangle that takes the old one's place is scratch. */
static void a_batch_is_within_its_projection(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {50, 3, 20, 0};
    enum { N = 40 };
    struct stage s;
    open_stage(&s, 16);
    s.g.config.round_depth = 0;
    struct sennit_cache *c = batch_of(&s, lengths, 4);
    struct sn_heap *heap = s.pool->heap;
    uint32_t had[4];
    memcpy(had, lengths, sizeof had);
    for (uint32_t round = 0; round < 6; round++) {
        uint64_t offset = sennit_cache_offset(c), most = 4 * sennit_cache_projected_bytes(c, offset + N);
        uint32_t first = round % 4; /* the others may stand still */
        for (uint32_t t = 0; t < N; t++) {
            uint32_t n_spans = 0;
            struct sennit_span spans[4];
            for (uint32_t r = 0; r < 4; r++)
                if (r == first || rng_chance(&s.rng, 20))
                    spans[n_spans] = (struct sennit_span){r, had[r], 1, n_spans}, n_spans++;
            uint64_t before = sennit_pool_bytes(s.pool);
            size_t scratch = atomic_load(&heap->used[SN_USE_SCRATCH]);
            OK(sennit_cache_append_begin(c, spans, n_spans, HEADS, err));
            assert_int_equal(sennit_pool_bytes(s.pool), before); /* the old one alone, until the exchange */
            uint64_t wider = atomic_load(&heap->used[SN_USE_SCRATCH]) - scratch;
            sennit_cache_append_abort(c); /* gives it back */
            assert_int_equal(sennit_pool_bytes(s.pool), before);
            for (uint32_t i = 0; i < n_spans; i++)
                stage_feed(&s, c, spans[i].row, 1000 * (spans[i].row + 1) + had[spans[i].row], 1, NULL),
                    had[spans[i].row]++;
            uint64_t after = sennit_pool_bytes(s.pool);
            assert_true(after <= most);
            assert_true(after == before || wider >= after); /* attention's scratch is in it the first time */
            assert_int_equal(after, 4 * share(&s, sennit_cache_offset(c)));
        }
        assert_true(sennit_cache_offset(c) <= offset + N);
    }
    for (uint32_t r = 0; r < 4; r++)
        stage_same(&s, c, r, 1000 * (r + 1), had[r]);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* A host that says how often it was asked, and may refuse to shrink. */
static bool stubborn;

static void *host(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)ctx;
    if (new_bytes == 0) {
        free(ptr);
        return NULL;
    }
    if (ptr && new_bytes < old_bytes && stubborn)
        return NULL;
    void *fresh = must(aligned_alloc(64, sn_round_up(new_bytes, 64)));
    if (ptr) {
        memcpy(fresh, ptr, sn_min_size(old_bytes, new_bytes));
        free(ptr);
    }
    return fresh;
}

/* Filters and trims ask for no memory, take every refusal to shrink, and keep true books. */
static void filters_and_trims_take_no_memory(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {30, 100, 7, 64, 50};
    for (int refuses = 0; refuses < 2; refuses++) {
        struct stage s;
        open_stage(&s, 0);
        sennit_pool_free(s.pool);
        struct sennit_pool_options options = {.allocator = {host, NULL}};
        OK(sennit_pool_create(&s.pool, &options, err));
        sn_cache_pool_set_poison(s.pool, true);
        struct sennit_cache *c = batch_of(&s, lengths, 5);
        uint64_t calls = atomic_load(&s.pool->heap->n_calls), all = sennit_pool_bytes(s.pool);
        stubborn = refuses;
        sn_heap_fail_at(s.pool->heap, 1);
        OK(sennit_cache_filter_rows(c, (const uint32_t[]){4, 2, 0}, 3, err));
        OK(sennit_cache_trim(c, 2, false, err));
        assert_int_equal(atomic_load(&s.pool->heap->n_calls), calls);
        sn_heap_fail_at(s.pool->heap, 0);
        stubborn = false;
        assert_int_equal(sennit_pool_bytes(s.pool), refuses ? all : 3 * share(&s, 48));
        uint64_t sum = 0;
        for (uint32_t r = 0; r < 3; r++)
            sum += sennit_cache_current_bytes(c, r);
        assert_int_equal(sum, sennit_pool_bytes(s.pool));
        stage_same(&s, c, 0, 5000, 48);
        stage_same(&s, c, 1, 3000, 5);
        stage_same(&s, c, 2, 1000, 28);
        stage_feed(&s, c, 1, 3005, 70, NULL); /* a new one: the books are those of its size again */
        assert_int_equal(sennit_pool_bytes(s.pool), 3 * share(&s, sennit_cache_offset(c)));
        stage_same(&s, c, 1, 3000, 75);
        sennit_cache_dispose(&c);
        stage_close(&s);
    }
}

static void extract_pins_nothing(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 0);
    struct sennit_cache *c = batch_of(&s, (const uint32_t[]){70, 300, 10}, 3), *one, *prefix;
    OK(sennit_cache_extract_row(c, 2, &one, err));
    OK(sennit_cache_clone(c, 1, &prefix, err));
    OK(sennit_cache_trim(prefix, 100, false, err)); /* published at 200 */
    sennit_cache_dispose(&c);
    assert_int_equal(sennit_pool_bytes(s.pool), share(&s, 10) + share(&s, 200));
    assert_columns(&s, one, (uint64_t[]){0}, 10);
    assert_columns(&s, prefix, (uint64_t[]){0}, 200);
    stage_same(&s, one, 0, 3000, 10);
    stage_same(&s, prefix, 0, 2000, 200);
    sennit_cache_dispose(&one);
    sennit_cache_dispose(&prefix);
    stage_close(&s);
}

/* ---- donors --------------------------------------------------------------------------------------------------- */

/* A snapshot costs nothing until the source writes; then each has its own; what was projected for both is enough. */
static void donors_are_references_until_a_write(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 16);
    s.g.config.n_snapshots = 1;
    struct sennit_cache *c = batch_of(&s, (const uint32_t[]){20, 33}, 2);
    struct sennit_donor *d;
    uint64_t before = sennit_pool_bytes(s.pool);
    OK(sennit_cache_capture_donor_rows(c, &d, err));
    assert_int_equal(sennit_pool_bytes(s.pool), before);
    assert_int_equal(sennit_cache_current_bytes(c, 0), 0); /* the pool's, while both have it */
    size_t n, m;
    uint8_t *was = canonical_spans(sn_donor_cache(d), d->planes, d->n_planes, 1, 33, &n);
    stage_feed(&s, c, 1, 2033, 1, NULL);
    assert_int_equal(sennit_pool_bytes(s.pool), before + 2 * share(&s, 34));
    assert_true(sennit_pool_bytes(s.pool) <= 2 * sennit_cache_projected_bytes(c, 34));
    uint8_t *is = canonical_spans(sn_donor_cache(d), d->planes, d->n_planes, 1, 33, &m);
    assert_true(n == m && memcmp(was, is, n) == 0);
    sennit_donor_free(d);
    assert_int_equal(sennit_pool_bytes(s.pool), 2 * share(&s, 34));
    stage_same(&s, c, 0, 1000, 20);
    stage_same(&s, c, 1, 2000, 34);
    free(was);
    free(is);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* What a filter and a trim cannot give back while a donor holds it comes back with the donor, whether it goes alone,
 * while a step is open that is given up, or as one of two. */
static void what_donors_held_comes_back(void **state)
{
    (void)state;
    for (int when = 0; when < 4; when++) {
        struct stage s;
        open_stage(&s, 4);
        struct sennit_cache *c = batch_of(&s, (const uint32_t[]){40, 9, 20}, 3);
        struct sennit_donor *d, *second = NULL;
        OK(sennit_cache_capture_donor_rows(c, &d, err));
        if (when == 2)
            OK(sennit_cache_capture_donor_rows(c, &second, err));
        uint64_t all = sennit_pool_bytes(s.pool);
        OK(sennit_cache_filter_rows(c, (const uint32_t[]){2, 1}, 2, err));
        OK(sennit_cache_trim(c, 5, false, err));
        assert_int_equal(sennit_pool_bytes(s.pool), all);
        assert_true(sennit_cache_left_pad(c, 0) == 0 && sennit_cache_left_pad(c, 1) == 11);
        assert_int_equal(sennit_cache_offset(c), 15);
        stage_same(&s, c, 0, 3000, 15);
        struct sennit_span span = {.row = 1, .pos = 4, .n_tokens = 1};
        if (when == 1)
            OK(sennit_cache_append_begin(c, &span, 1, HEADS, err));
        if (when == 3) { /* the source goes on instead */
            stage_feed(&s, c, 1, 2004, 3, NULL);
            assert_int_equal(sennit_pool_bytes(s.pool), all + 2 * share(&s, 18));
        }
        assert_true(d->offsets[0] == 40 && d->offsets[1] == 9 && d->offsets[2] == 20);
        sennit_donor_free(d);
        sennit_donor_free(second);
        if (when == 1)
            sennit_cache_append_abort(c);
        assert_columns(&s, c, (uint64_t[]){0, 11}, when == 3 ? 18 : 15);
        assert_int_equal(sennit_pool_bytes(s.pool), 2 * share(&s, sennit_cache_offset(c)));
        stage_same(&s, c, 0, 3000, 15);
        stage_same(&s, c, 1, 2000, when == 3 ? 7 : 4);
        sennit_cache_dispose(&c);
        stage_close(&s);
    }
}

/* The donor outlives its source, and a source that was emptied, and reads the same. */
static void donors_outlive_their_source(void **state)
{
    (void)state;
    for (int how = 0; how < 2; how++) {
        struct stage s;
        open_stage(&s, 0);
        struct sennit_cache *c = batch_of(&s, (const uint32_t[]){70, 5}, 2);
        struct sennit_donor_attention *view;
        float q[2 * HEADS * D], out[2][2 * WIDTH];
        token_query(3, SN_ARRAY_LEN(q), q);
        OK(sennit_cache_capture_donor_attention(c, &view, err));
        OK(sennit_donor_attend(view, q, HEADS, 1, 0.25f, NULL, out[0], err));
        if (how == 0)
            OK(sennit_cache_filter_rows(c, NULL, 0, err));
        else
            sennit_cache_dispose(&c);
        OK(sennit_donor_attend(view, q, HEADS, 1, 0.25f, NULL, out[1], err));
        assert_memory_equal(out[0], out[1], sizeof out[0]);
        sennit_donor_attention_free(view);
        assert_int_equal(sennit_pool_bytes(s.pool), 0);
        sennit_cache_dispose(&c);
        stage_close(&s);
    }
}

/* ---- records, and what is refused ----------------------------------------------------------------------------- */

/* A record is the row's tokens: the same from any company, and in plain's order of tokens whatever the columns. */
static void records_know_no_padding(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 0);
    struct sennit_cache *c = batch_of(&s, (const uint32_t[]){700, 150}, 2), *alone = stage_row(&s, 2000, 150),
                        *loaded;
    struct memory batched, single;
    struct sennit_stream w = memory_writer(&batched);
    OK(sennit_cache_save(c, 1, &w, err));
    w = memory_writer(&single);
    OK(sennit_cache_save(alone, 0, &w, err));
    assert_true(batched.n_bytes == single.n_bytes && memcmp(batched.data, single.data, batched.n_bytes) == 0);
    size_t n;
    uint8_t *tokens = canonical_row(alone, 0, &n);
    assert_int_equal(n, 150 * COLUMN);
    assert_memory_equal(single.data + single.n_bytes - 8 - n, tokens, n);
    uint64_t before = sennit_pool_bytes(s.pool);
    w = memory_reader(&batched);
    OK(sennit_cache_load(c, &w, &loaded, err));
    assert_int_equal(sennit_pool_bytes(s.pool), before + share(&s, 150));
    assert_columns(&s, loaded, (uint64_t[]){0}, 150);
    stage_same(&s, loaded, 0, 2000, 150);
    free(tokens);
    free(batched.data);
    free(single.data);
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&alone);
    sennit_cache_dispose(&loaded);
    stage_close(&s);
}

/* A rectangle that cannot be had is refused with everything as it was. */
static void a_rectangle_too_large_is_refused(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 4);
    struct sennit_cache *c = batch_of(&s, (const uint32_t[]){10, 4}, 2), *empty;
    struct sn_heap *heap = s.pool->heap;
    OK(sennit_cache_make_empty_batch(c, &empty, err));
    struct sennit_span span = {.row = 1, .pos = 4, .n_tokens = 100};
    const struct sennit_cache *source = c;
    uint64_t before = stage_imprint(&s, c);
    OK(sennit_cache_append_begin(c, &span, 1, HEADS, err)); /* attention's scratch is there now */
    sennit_cache_append_abort(c);
    atomic_store(&heap->limit, atomic_load(&heap->total) + 2000);
    REFUSED(SENNIT_NOMEM, sennit_cache_append_begin(c, &span, 1, HEADS, err));
    REFUSED(SENNIT_NOMEM, sennit_cache_merge_rows(empty, &source, 1, err));
    assert_int_equal(sennit_cache_batch_size(empty), 0);
    span.n_tokens = UINT32_MAX;
    REFUSED(SENNIT_NOMEM, sennit_cache_append_begin(c, &span, 1, HEADS, err));
    atomic_store(&heap->limit, 0);
    assert_true(stage_imprint(&s, c) == before);
    assert_int_equal(sennit_cache_projected_bytes(c, UINT64_MAX), UINT64_MAX);
    assert_int_equal(sennit_cache_projected_bytes(c, UINT64_MAX / COLUMN), UINT64_MAX);
    OK(sennit_cache_merge_rows(empty, &source, 1, err));
    stage_same(&s, empty, 1, 2000, 4);
    sennit_cache_dispose(&empty);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

static void refused_with(struct stage *s, struct sennit_cache_config config, const char *word)
{
    struct sennit_cache *c = NULL;
    struct sennit_error err = {0};
    assert_int_equal(sennit_cache_create(&c, s->pool, &config, 1, &err), SENNIT_INVALID);
    assert_true(!c && strstr(err.message, word));
}

static void bad_geometries_are_refused(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 0);
    struct sennit_cache_config right = s.g.config, c;
    c = right, c.n_kv_heads = 0, refused_with(&s, c, "n_kv_heads");
    c = right, c.d_k = 0, refused_with(&s, c, "d_k");
    c = right, c.d_v = SN_KV_MAX_DIM + 1, refused_with(&s, c, "d_v");
    c = right, c.k_type = SENNIT_Q8_0, refused_with(&s, c, "k_type");
    c = right, c.v_type = SENNIT_F32, refused_with(&s, c, "v_type");
    c = right, c.page_tokens = 48, refused_with(&s, c, "page_tokens");
    c = right, c.code.k_bits = 8, refused_with(&s, c, "code.k_bits");
    c = right, c.window.tokens = 9, refused_with(&s, c, "window.tokens");
    c = right, c.start = 9, refused_with(&s, c, "start");
    stage_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_are_right_aligned),
        cmocka_unit_test(rows_grow_at_their_own_ends),
        cmocka_unit_test(common_padding_goes),
        cmocka_unit_test(rollbacks_leave_ragged_rows),
        cmocka_unit_test(emptied_rows_hold_nothing),
        cmocka_unit_test(padding_is_never_seen),
        cmocka_unit_test(rows_lie_in_one_tensor),
        cmocka_unit_test(a_batch_is_within_its_projection),
        cmocka_unit_test(filters_and_trims_take_no_memory),
        cmocka_unit_test(extract_pins_nothing),
        cmocka_unit_test(donors_are_references_until_a_write),
        cmocka_unit_test(what_donors_held_comes_back),
        cmocka_unit_test(donors_outlive_their_source),
        cmocka_unit_test(records_know_no_padding),
        cmocka_unit_test(a_rectangle_too_large_is_refused),
        cmocka_unit_test(bad_geometries_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
