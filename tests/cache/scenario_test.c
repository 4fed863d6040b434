/* What users of batching engines have met, as scenarios: each for every kind of cache where it means something.
 * docs/testing.md has the table of all of them, with those that one family's own tests or whole engines play. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/stage.h"

/* ---- prompts of unequal length --------------------------------------------------------------------------------- */

/* Prompts of 12 and 3 tokens, read in one step and written on token by token: every step of each row is its own. */
static void unequal_prompts_are_read_together(void **state)
{
    (void)state;
    enum { STEPS = 30, LONG = 12, SHORT = 3 };
    struct stage s;
    stage_open(&s);
    struct sennit_cache *alone[] = {stage_new(&s, 1), stage_new(&s, 1)}, *c = stage_merge(&s, alone, 2);
    float *out[] = {stage_out(&s, LONG), stage_out(&s, SHORT)}, *want = stage_out(&s, LONG);
    uint64_t at[] = {1, 1000};
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t n[] = {step ? 1 : LONG, step ? 1 : SHORT};
        struct feed feeds[] = {{0, n[0], at[0], out[0]}, {1, n[1], at[1], out[1]}};
        stage_feeds(&s, c, feeds, 2);
        for (uint32_t r = 0; r < 2; r++, at[r - 1] += n[r - 1]) {
            stage_feed(&s, alone[r], 0, at[r], n[r], want);
            assert_memory_equal(want, out[r], n[r] * s.width * sizeof *want);
        }
    }
    free(want);
    for (int r = 0; r < 2; r++)
        free(out[r]);
    stage_dispose(alone, 2);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- grouped heads --------------------------------------------------------------------------------------------- */

/* Several query heads per head of keys, for one row and for several of unequal lengths, around the edges of pages: as
 * alone, and as the textbook says of what is stored. */
static void grouped_heads_in_batches(void **state)
{
    (void)state;
    static const uint32_t batches[] = {1, 2, 3}, lengths[] = {1, 63, 64, 65, 66};
    static const struct {
        uint32_t n_heads, n_kv_heads;
    } heads[] = {{8, 2}, {8, 8}, {4, 1}, {6, 2}};
    struct stage s;
    for (size_t h = 0; h < SN_ARRAY_LEN(heads); h++) {
        stage_open(&s);
        if (s.g.config.n_kv_heads == 0) {
            stage_close(&s);
            skip();
        }
        s.g.config.n_kv_heads = heads[h].n_kv_heads;
        s.g.group = heads[h].n_heads / heads[h].n_kv_heads;
        s.width = (size_t)n_heads_of(&s.g) * d_out_of(&s.g);
        for (size_t b = 0; b < SN_ARRAY_LEN(batches); b++)
            for (size_t l = 0; l < SN_ARRAY_LEN(lengths); l++) {
                struct sennit_cache *rows[3], *c;
                struct feed feeds[3];
                for (uint32_t r = 0; r < batches[b]; r++) {
                    uint32_t n = lengths[l] > 20 * r ? lengths[l] - 20 * r : 1;
                    rows[r] = stage_new(&s, 1);
                    feeds[r] = (struct feed){.row = r, .seed = 5000 * r, .n = n, .out = stage_out(&s, n)};
                }
                c = stage_merge(&s, rows, batches[b]);
                stage_feeds(&s, c, feeds, batches[b]);
                for (uint32_t r = 0; r < batches[b]; r++) {
                    float *want = stage_out(&s, feeds[r].n);
                    stage_feed(&s, rows[r], 0, feeds[r].seed, feeds[r].n, want);
                    assert_memory_equal(want, feeds[r].out, feeds[r].n * s.width * sizeof *want);
                    stage_textbook(&s, feeds[r].seed, feeds[r].n, want + (feeds[r].n - 1) * s.width);
                    free(want);
                    free(feeds[r].out);
                }
                stage_dispose(rows, batches[b]);
                sennit_cache_dispose(&c);
            }
        stage_close(&s);
    }
}

/* ---- codes ----------------------------------------------------------------------------------------------------- */

/* The same layer without its codes, in f32, and its textbook. NULL: the kind has none, or only another kind's. */
static const struct twin_ops *uncoded(const struct stage *s, struct geometry *g, uint32_t *bits)
{
    const struct sennit_cache_config *c = &s->g.config, *store = c->n_inner == 1 ? c->inner : c;
    *g = s->g;
    *bits =
        store->code.k_bits < store->code.v_bits || store->code.v_bits == 0 ? store->code.k_bits : store->code.v_bits;
    if (store->code.k_bits == 0 || c->start > 0 || c->n_inner > 1)
        return NULL;
    g->config.k_type = SENNIT_F32;
    g->config.code.k_bits = g->config.code.v_bits = g->config.code.group = 0;
    if (c->n_kv_heads == 0)
        return s->tested->twin;
    g->config.family = "plain";
    g->config.v_type = SENNIT_F32;
    return find_tested("plain")->twin;
}

/* Sums of squares of the last of n tokens' outputs, and of their distance from what the layer without codes gives. */
static void distance(const struct twin_ops *ops, const struct geometry *g, uint64_t seed, uint32_t n,
                     const float *got, double sums[2])
{
    struct twin *twin = ops->create(g);
    size_t heads = n_heads_of(g), d_q = d_q_of(g), d_out = d_out_of(g);
    float *q = must(malloc(heads * d_q * sizeof *q));
    double *want = must(malloc(d_out * sizeof *want));
    for (uint32_t i = 0; i < n; i++)
        ops->append(twin, seed + i);
    token_query(seed + n - 1, heads * d_q, q);
    for (uint32_t h = 0; h < heads; h++) {
        ops->attend(twin, q + h * d_q, h, n, NULL, NULL, want);
        for (size_t d = 0; d < d_out; d++) {
            sums[0] += want[d] * want[d];
            sums[1] += (got[h * d_out + d] - want[d]) * (got[h * d_out + d] - want[d]);
        }
    }
    ops->release(twin);
    free(q);
    free(want);
}

/* Codes answer nearly as what they stand for, in a batch: a uniform code of b bits is off by its range / (2^b - 1) /
 * sqrt(12), 0.4 % of values that fill the range with 8 bits, 6.7 % with 4; a few times that is allowed. */
static void codes_stay_near_what_they_stand_for(void **state)
{
    (void)state;
    enum { N = 10, ROWS = 3 };
    struct stage s;
    struct geometry plain;
    uint32_t bits;
    stage_open(&s);
    const struct twin_ops *ops = uncoded(&s, &plain, &bits);
    if (!ops) {
        stage_close(&s);
        skip();
    }
    double sums[2] = {0, 0};
    struct sennit_cache *rows[ROWS], *c;
    struct feed feeds[ROWS];
    for (uint32_t r = 0; r < ROWS; r++) {
        rows[r] = stage_new(&s, 1);
        feeds[r] = (struct feed){.row = r, .seed = 40 + 100 * r, .n = N - 2 * r, .out = stage_out(&s, N)};
    }
    c = stage_merge(&s, rows, ROWS);
    stage_feeds(&s, c, feeds, ROWS);
    for (uint32_t r = 0; r < ROWS; r++) {
        distance(ops, &plain, feeds[r].seed, feeds[r].n, feeds[r].out + (feeds[r].n - 1) * s.width, sums);
        free(feeds[r].out);
    }
    double share = sqrt(sums[1] / sums[0]);
    printf("%s: %.2f %% of the answers' size away from those without codes\n", s.kind->name, 100 * share);
    assert_true(share > 0 && share < (bits == 8 ? 0.015 : bits >= 4 ? 0.15 : bits == 3 ? 0.3 : 0.6));
    stage_dispose(rows, ROWS);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

static bool same_plane(const struct sennit_span_view *a, const struct sennit_span_view *b)
{
    return a->row == b->row && a->part == b->part && strcmp(a->name, b->name) == 0;
}

/* Rows ascending; of each name, positions ascending, without a hole but the one that the row says, to the row's end.
 */
static void assert_ordered(const struct sennit_cache *c)
{
    struct sennit_state lease;
    OK(sennit_cache_state(c, &lease, err));
    for (uint32_t r = 0; r < sennit_cache_batch_size(c); r++) {
        uint64_t n = sennit_cache_row_offset(c, r);
        for (size_t i = 0; i < lease.n_spans; i++) {
            const struct sennit_span_view *first = &lease.spans[i];
            uint64_t gap = 0, gap_end = 0;
            bool seen = first->row != r;
            for (size_t k = 0; k < i && !seen; k++)
                seen = same_plane(&lease.spans[k], first);
            if (seen)
                continue;
            const struct sennit_cache *part = c;
            const struct sennit_cache_part *parts;
            if (sennit_cache_composed(c, &parts) > 0)
                part = parts[first->part].cache;
            if (part->ops->gap)
                part->ops->gap(part, r, &gap, &gap_end);
            uint64_t next = first->pos;
            assert_true(next == 0 || next <= gap_end);
            for (size_t k = i; k < lease.n_spans; k++) {
                const struct sennit_span_view *v = &lease.spans[k];
                if (!same_plane(v, first))
                    continue;
                assert_true(v->pos == next || (v->pos > next && next >= gap && v->pos <= gap_end));
                assert_true(v->n_tokens > 0 && v->n_bytes > 0 && v->data);
                next = v->pos + v->n_tokens;
            }
            assert_int_equal(next, n);
        }
    }
    for (size_t i = 1; i < lease.n_spans; i++)
        assert_true(lease.spans[i - 1].row <= lease.spans[i].row);
    sennit_state_release(&lease);
}

/* What is stored reads in the order of the text, however long the row has run, been cut, rolled back, merged and
 * reordered; and it is what the model of a plain list of tokens says. */
static void storage_reads_in_the_order_of_the_text(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    const uint32_t edge = stage_edge(&s);
    for (uint32_t n = 1; n < 4 * edge; n += 1 + edge / 5) {
        struct sennit_cache *rows[] = {stage_row(&s, 1, n), stage_row(&s, 2000, 2 * edge), stage_row(&s, 4000, 1)};
        struct sennit_cache *c = stage_merge(&s, rows, 3);
        static const uint32_t order[] = {2, 0, 1};
        uint32_t left = n;
        stage_dispose(rows, 3);
        OK(sennit_cache_filter_rows(c, order, 3, err));
        assert_ordered(c);
        uint64_t keep[] = {0, 1, 0};
        uint32_t depth = stage_round(c, 1, 3);
        OK(sennit_cache_spec_round_begin(c, err));
        stage_feed(&s, c, 1, 1 + n, 1, NULL);
        stage_feed(&s, c, 1, 9000, depth - 1, NULL);
        OK(sennit_cache_spec_round_rollback(c, keep, err));
        left++;
        assert_ordered(c);
        stage_feed(&s, c, 0, 4001, 3, NULL);
        if (sennit_cache_is_trimmable(c) && sennit_cache_trim(c, 2, false, NULL) == SENNIT_OK)
            left -= 2;
        assert_ordered(c);
        stage_same(&s, c, 1, 1, left);
        sennit_cache_dispose(&c);
    }
    stage_close(&s);
}

/* ---- records --------------------------------------------------------------------------------------------------- */

/* Fed in pieces longer than anything that is kept, cut, saved, loaded and written on: as if it had stayed. */
static void records_round_trip_at_every_length(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    const uint32_t edge = stage_edge(&s), most = 3 * edge + 5, stride = most / 30 | 1;
    for (uint32_t n = 0; n < most; n += stride)
        for (uint32_t k = 0; k < 4 && k <= n; k++) {
            struct sennit_cache *c = stage_row(&s, 1, n), *back = NULL;
            if (k > 0 &&
                (!sennit_cache_can_publish_row(c, 0, n - k) || sennit_cache_trim(c, k, false, NULL) != SENNIT_OK)) {
                sennit_cache_dispose(&c);
                continue;
            }
            struct memory m;
            struct sennit_stream stream = memory_writer(&m);
            OK(sennit_cache_save(c, 0, &stream, err));
            stream = memory_reader(&m);
            OK(sennit_cache_load(c, &stream, &back, err));
            assert_string_equal(sennit_cache_signature(back), sennit_cache_signature(c));
            assert_true(cache_fingerprint(back) == cache_fingerprint(c));
            assert_int_equal(sennit_cache_minimum_reusable_offset(back, 0),
                             sennit_cache_minimum_reusable_offset(c, 0));
            assert_int_equal(sennit_cache_max_append_tokens(back, 0), sennit_cache_max_append_tokens(c, 0));
            for (uint32_t p = 0; p <= n + 1; p++)
                assert_int_equal(sennit_cache_can_publish_row(back, 0, p), sennit_cache_can_publish_row(c, 0, p));
            stage_same(&s, back, 0, 1, n - k);
            free(m.data);
            sennit_cache_dispose(&c);
            sennit_cache_dispose(&back);
        }
    stage_close(&s);
}

/* ---- many turns ------------------------------------------------------------------------------------------------ */

/* 200 turns on one row, with drafts, given up steps, snapshots, and ends in the middle of everything: after each the
 * bytes are what they were, and answers keep coming. */
static void two_hundred_turns_leave_nothing(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    struct sennit_cache *c = stage_row(&s, 1, 2 * stage_edge(&s) + 3), *turn, *kept;
    uint32_t n = (uint32_t)sennit_cache_row_offset(c, 0);
    uint64_t base = sennit_pool_bytes(s.pool);
    size_t objects = atomic_load(&s.pool->heap->used[SN_USE_MISC]);
    for (uint32_t i = 0; i < 200; i++) {
        OK(sennit_cache_clone(c, 0, &turn, err));
        stage_feed(&s, turn, 0, 5000 + i, 1 + i % 90, NULL);
        OK(sennit_cache_clone(turn, 0, &kept, err));
        OK(sennit_cache_spec_round_begin(turn, err));
        uint64_t keep = stage_draft(&s, turn, 0, 9000 + i, 1 + i % 7) / 2;
        if (i % 3 == 0)
            OK(sennit_cache_spec_round_rollback(turn, &keep, err));
        if (i % 5 == 0 && sennit_cache_max_append_tokens(turn, 0) > 0) {
            struct sennit_span span = {.pos = sennit_cache_row_offset(turn, 0), .n_tokens = 1};
            OK(begin_step(turn, &s.g, &span, 1, err));
        }
        sennit_cache_dispose(i % 2 ? &turn : &kept);
        sennit_cache_dispose(i % 2 ? &kept : &turn);
        sennit_cache_dispose(&turn); /* twice is safe */
        assert_int_equal(sennit_pool_bytes(s.pool), base);
        assert_int_equal(atomic_load(&s.pool->heap->used[SN_USE_MISC]), objects);
        if (i % 50 == 0)
            stage_same(&s, c, 0, 1, n);
    }
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- rejected drafts ------------------------------------------------------------------------------------------- */

/* All of the last step is rejected: the state is the one before it, not only the length. */
static void all_drafts_rejected(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    const uint32_t edge = stage_edge(&s);
    for (uint32_t n = 0; n < 2 * edge + 4; n += 1 + edge / 8)
        for (uint32_t drafts = 1; drafts <= 8; drafts += 1 + drafts) {
            struct sennit_cache *c = stage_row(&s, 1, n);
            uint64_t none = 0, before = cache_fingerprint(c), floor = sennit_cache_minimum_reusable_offset(c, 0);
            OK(sennit_cache_spec_round_begin(c, err));
            stage_draft(&s, c, 0, 9000, drafts);
            OK(sennit_cache_spec_round_rollback(c, &none, err));
            /* A row that stands where its precision changes stays changed, and answers the same. */
            bool changed = sennit_cache_minimum_reusable_offset(c, 0) > floor;
            assert_true(changed ? sennit_cache_minimum_reusable_offset(c, 0) == n : cache_fingerprint(c) == before);
            stage_same(&s, c, 0, 1, n);
            sennit_cache_dispose(&c);
        }
    stage_close(&s);
}

/* Two drafts right, none, one wrong, none, all right, some right: the last accepted state goes on each time, and
 * the answers are those of a run without drafts. */
static void drafts_come_and_go(void **state)
{
    (void)state;
    static const struct {
        uint32_t right, wrong;
        bool commit;
    } rounds[] = {{2, 0, false}, {0, 0, false}, {0, 1, false}, {0, 0, true},
                  {3, 0, true},  {1, 2, false}, {3, 1, false}};
    struct stage s;
    stage_open(&s);
    for (uint32_t start = 1; start < 2 * stage_edge(&s) + 4; start += 1 + stage_edge(&s) / 6) {
        struct sennit_cache *c = stage_row(&s, 1, start), *greedy = stage_row(&s, 1, start);
        float *got = stage_out(&s, 1), *want = stage_out(&s, 1);
        uint32_t n = start;
        for (size_t i = 0; i < SN_ARRAY_LEN(rounds); i++) {
            /* the pending token goes first, then what was drafted behind it */
            uint32_t depth = stage_round(c, 0, 1 + rounds[i].right + rounds[i].wrong);
            uint32_t right = 1 + rounds[i].right < depth ? 1 + rounds[i].right : depth;
            uint64_t keep = right;
            OK(sennit_cache_spec_round_begin(c, err));
            stage_feed(&s, c, 0, 1 + n, right, NULL);
            stage_feed(&s, c, 0, 9000, depth - right, NULL);
            if (rounds[i].commit && depth == right)
                OK(sennit_cache_spec_round_commit(c, err));
            else
                OK(sennit_cache_spec_round_rollback(c, &keep, err));
            stage_feed(&s, greedy, 0, 1 + n, right, NULL);
            n += right;
            stage_feed(&s, c, 0, 1 + n, 1, got); /* a step outside of rounds */
            stage_feed(&s, greedy, 0, 1 + n, 1, want);
            n++;
            assert_memory_equal(got, want, s.width * sizeof *got);
        }
        stage_same(&s, c, 0, 1, n);
        free(got);
        free(want);
        sennit_cache_dispose(&c);
        sennit_cache_dispose(&greedy);
    }
    stage_close(&s);
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

/* A trim is done, or refused with nothing changed: by the kind, by the row, or because memory ran out in the middle
 * of it. Whoever is refused has two ways on, and both are right: the row as it was, or the prefix read again. */
static void a_refusal_leaves_two_ways_on(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    const uint32_t n = 2 * stage_edge(&s) + 9;
    for (uint32_t drop = 1; drop < n; drop += 1 + n / 12)
        for (uint64_t fail = 0; fail < 3; fail++) {
            struct sennit_cache *rows[] = {stage_row(&s, 1, n), stage_row(&s, 1000, n)},
                                *c = stage_merge(&s, rows, 2);
            struct sennit_error err = {0};
            uint64_t before = stage_imprint(&s, c);
            if (fail > 0)
                sn_heap_fail_at(s.pool->heap, fail); /* the rows share their storage: a cut takes some */
            sennit_status status = sennit_cache_trim(c, drop, false, &err);
            sn_heap_fail_at(s.pool->heap, 0);
            uint32_t left = status == SENNIT_OK ? n - drop : n;
            assert_true(status == SENNIT_OK || err.message[0] != '\0');
            if (status != SENNIT_OK)
                assert_true(stage_imprint(&s, c) == before);
            stage_same(&s, c, 0, 1, left);
            stage_same(&s, c, 1, 1000, left);
            struct sennit_cache *again = stage_row(&s, 1, n - drop);
            stage_same(&s, again, 0, 1, n - drop);
            sennit_cache_dispose(&again);
            stage_dispose(rows, 2);
            sennit_cache_dispose(&c);
        }
    stage_close(&s);
}

/* Positions follow from the text. A row cannot be told to go on elsewhere, before or behind its end: no shift of
 * positions, of keys that are stored rotated and perhaps coded, is pretended. */
static void positions_do_not_shift(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    struct sennit_cache *c = stage_row(&s, 1, 20);
    uint64_t before = stage_imprint(&s, c);
    static const uint64_t elsewhere[] = {0, 5, 19, 21, 20 + 64, UINT64_MAX};
    for (size_t i = 0; i < SN_ARRAY_LEN(elsewhere); i++) {
        struct sennit_span span = {.row = 0, .pos = elsewhere[i], .n_tokens = 1};
        REFUSED(SENNIT_INVALID, begin_step(c, &s.g, &span, 1, err));
    }
    assert_true(stage_imprint(&s, c) == before);
    if (sennit_cache_is_trimmable(c) && sennit_cache_trim(c, 4, false, NULL) == SENNIT_OK) {
        struct sennit_span span = {.row = 0, .pos = 20, .n_tokens = 1};
        REFUSED(SENNIT_INVALID, begin_step(c, &s.g, &span, 1, err));
        stage_same(&s, c, 0, 1, 16);
    }
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- capabilities ---------------------------------------------------------------------------------------------- */

/* Every operation does what the flags say of it, or is refused as they say: nothing is claimed that does not work,
 * and nothing works that is not claimed. */
static void capabilities_are_true(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    struct sennit_cache *c = stage_row(&s, 1, 12);
    struct sennit_donor *donor = NULL;
    struct sennit_donor_attention *view = NULL;
    const uint32_t row = 0;
    const struct sennit_cache_part *parts;
    struct sennit_state lease;
    float *out = stage_out(&s, 1);
    if (sennit_cache_is_trimmable(c))
        OK(sennit_cache_trim(c, 1, false, err));
    else
        REFUSED(SENNIT_UNSUPPORTED, sennit_cache_trim(c, 1, false, err));
    uint32_t n = (uint32_t)sennit_cache_row_offset(c, 0);
    assert_int_equal(n, sennit_cache_is_trimmable(c) ? 11 : 12);
    assert_true(sennit_cache_can_publish_row(c, 0, n) && !sennit_cache_can_publish_row(c, 1, 0));
    if (c->ops->no_planes) {
        REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_rows(c, &donor, err));
        REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_attention(c, &view, err));
    } else {
        OK(sennit_cache_capture_donor_rows(c, &donor, err));
        OK(sennit_cache_capture_donor_attention(c, &view, err));
        float *queries = must(calloc((size_t)n_heads_of(&s.g) * d_q_of(&s.g), sizeof *queries));
        OK(sennit_donor_attend(view, queries, n_heads_of(&s.g), 1, 1, NULL, out, err));
        free(queries);
    }
    sennit_donor_free(donor);
    sennit_donor_attention_free(view);
    OK(sennit_cache_begin_prefill(c, err));
    OK(sennit_cache_commit_prefill(c, &row, 1, err));
    OK(sennit_cache_end_prefill(c, err));
    OK(sennit_cache_state(c, &lease, err));
    sennit_state_release(&lease);
    uint32_t n_parts = sennit_cache_composed(c, &parts);
    for (uint32_t i = 0; i < n_parts; i++)
        assert_true(parts[i].role && parts[i].cache && sennit_cache_row_offset(parts[i].cache, 0) == n);
    assert_true(sennit_cache_max_append_tokens(c, 0) == SENNIT_UNBOUNDED || s.tested->changes_precision);
    OK(sennit_cache_spec_round_begin(c, err));
    OK(sennit_cache_spec_round_commit(c, err));
    stage_same(&s, c, 0, 1, n);
    sennit_cache_dispose(&c);
    s.g.config.round_depth = 0; /* asked for no rounds: has none */
    c = stage_row(&s, 1, 3);
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_spec_round_begin(c, err));
    s.g.config.max_tokens = 3; /* and a bound is one */
    sennit_cache_dispose(&c);
    c = stage_row(&s, 1, 3);
    struct sennit_span span = {.row = 0, .pos = 3, .n_tokens = 1};
    uint64_t before = stage_imprint(&s, c);
    REFUSED(SENNIT_RANGE, begin_step(c, &s.g, &span, 1, err));
    assert_true(stage_imprint(&s, c) == before);
    free(out);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* An optional call on c: it works where the family can, and elsewhere it is refused with nothing changed. */
static void held_to(const struct stage *s, const struct sennit_cache *c, uint64_t before, bool able,
                    sennit_status status, const char *what)
{
    if (status != (able ? SENNIT_OK : SENNIT_UNSUPPORTED))
        die("%s: %s is %s, but gave %s", s->kind->name, what, able ? "claimed" : "not claimed",
            sennit_status_name(status));
    if (!able && stage_imprint(s, c) != before)
        die("%s: %s was refused and changed something", s->kind->name, what);
}

/* Every length that can be published is one that a clone can be cut to, or its own; every other is refused. */
static void published_lengths(struct stage *s, const struct sennit_cache *c, uint32_t n)
{
    uint64_t before = stage_imprint(s, c);
    for (uint32_t i = 0; i < n; i++) {
        struct sennit_cache *copy;
        OK(sennit_cache_clone(c, 0, &copy, err));
        bool able = sennit_cache_can_publish_row(c, 0, i);
        struct sennit_error why = {0};
        sennit_status refusal = sennit_cache_is_trimmable(c) ? SENNIT_RANGE : SENNIT_UNSUPPORTED;
        assert_int_equal(sennit_cache_trim(copy, n - i, false, &why), able ? SENNIT_OK : refusal);
        stage_same(s, copy, 0, 1, able ? i : n);
        sennit_cache_dispose(&copy);
        assert_true(stage_imprint(s, c) == before);
    }
    assert_true(sennit_cache_can_publish_row(c, 0, n) && !sennit_cache_can_publish_row(c, 0, n + 1));
}

/* What the table of families says of a kind, optional operation by optional operation. */
static void calls_do_what_families_say(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    struct sennit_cache_family_info info = {.trimmable = true, .donor_rows = true, .donor_attention = true};
    if (!s.g.config.external) /* those are of pages of keys and values */
        OK(sennit_cache_family_info(s.g.config.family, &info, err));
    struct sennit_cache *c = stage_row(&s, 1, 12), *copy;
    struct sennit_donor *donor = NULL;
    struct sennit_donor_attention *view = NULL;
    struct sennit_error why = {0};
    uint64_t before = stage_imprint(&s, c);
    bool trims = info.composed ? sennit_cache_is_trimmable(c) : info.trimmable;
    assert_int_equal(sennit_cache_is_trimmable(c), trims);
    assert_int_equal(sennit_cache_composed(c, NULL) > 0, info.composed);
    held_to(&s, c, before, info.donor_rows, sennit_cache_capture_donor_rows(c, &donor, &why), "donor_rows");
    held_to(&s, c, before, info.donor_attention, sennit_cache_capture_donor_attention(c, &view, &why),
            "donor_attention");
    assert_true((donor != NULL) == info.donor_rows && (view != NULL) == info.donor_attention);
    sennit_donor_free(donor);
    sennit_donor_attention_free(view);
    assert_true(stage_imprint(&s, c) == before);
    published_lengths(&s, c, 12);
    OK(sennit_cache_clone(c, 0, &copy, err));
    held_to(&s, copy, stage_imprint(&s, copy), trims, sennit_cache_trim(copy, 1, false, &why), "trim");
    stage_same(&s, copy, 0, 1, trims ? 11 : 12);
    sennit_cache_dispose(&copy);
    sennit_cache_dispose(&c);
    s.g.config.round_depth = 0;
    c = stage_row(&s, 1, 3);
    held_to(&s, c, stage_imprint(&s, c), false, sennit_cache_spec_round_begin(c, &why), "a round of depth 0");
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* ---- what a round costs ---------------------------------------------------------------------------------------- */

/* To open a round copies no state: the rows' storage is the same objects, and what is taken beside them is of a size
 * that was announced whatever the row's length. To reject all of it gives back all that it took. */
static void a_round_copies_nothing_when_it_opens(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    struct sennit_cache *rows[] = {stage_row(&s, 1, 700), stage_row(&s, 1000, 3)}, *c = stage_merge(&s, rows, 2);
    stage_dispose(rows, 2);
    uint64_t bytes = sennit_pool_bytes(s.pool), none[] = {0, 0};
    for (uint32_t i = 0; i < 5; i++) {
        const void *store[] = {c->rows[0].store, c->rows[1].store};
        uint64_t before = sennit_pool_bytes(s.pool);
        OK(sennit_cache_spec_round_begin(c, err));
        assert_true(sennit_pool_bytes(s.pool) - before <= 2 * sennit_cache_projected_bytes(c, 0));
        assert_true(c->rows[0].store == store[0] && c->rows[1].store == store[1]);
        struct feed feeds[] = {{.row = 0, .seed = 9000, .n = 3}, {.row = 1, .seed = 9100, .n = 2}};
        stage_feeds(&s, c, feeds, 2);
        OK(sennit_cache_spec_round_rollback(c, none, err));
        assert_true(sennit_pool_bytes(s.pool) <= bytes);
    }
    stage_same(&s, c, 0, 1, 700);
    stage_same(&s, c, 1, 1000, 3);
    sennit_cache_dispose(&c);
    stage_close(&s);
}

/* All that a row and its snapshots hold, but for snapshots that are copies and hold themselves. */
static uint64_t held(const struct stage *s, struct sennit_cache *const *snapshots, const bool *copied)
{
    uint64_t bytes = sennit_pool_bytes(s->pool);
    assert_int_equal(bytes, atomic_load(&s->pool->heap->used[SN_USE_CACHE]));
    for (int i = 0; i < 2; i++)
        bytes -= copied[i] ? sennit_cache_current_bytes(snapshots[i], 0) : 0;
    return bytes;
}

/* Whether it takes storage of its own. */
static bool snapshot(struct stage *s, const struct sennit_cache *c, struct sennit_cache **out)
{
    uint64_t before = sennit_pool_bytes(s->pool);
    OK(sennit_cache_clone(c, 0, out, err));
    return sennit_pool_bytes(s->pool) > before;
}

/* What rounds and snapshots hold is bounded, counted, and was announced: never above projected_bytes, all of it in
 * the pool's count. */
static void rounds_and_snapshots_are_in_the_projection(void **state)
{
    (void)state;
    struct stage s;
    stage_open(&s);
    s.g.config.n_snapshots = 2;
    s.g.config.max_span = 8;
    for (uint32_t n = 1; n < 2 * stage_edge(&s) + 3; n += 1 + stage_edge(&s) / 10) {
        struct sennit_cache *c = stage_new(&s, 1), *snapshots[2];
        bool copied[2] = {false, false};
        for (uint32_t i = 0; i < n; i++)
            stage_feed(&s, c, 0, 1 + i, 1, NULL);
        uint64_t bound = sennit_cache_projected_bytes(c, n + 2), keep = 0;
        copied[0] = snapshot(&s, c, &snapshots[0]);
        stage_feed(&s, c, 0, 1 + n, 1, NULL);
        copied[1] = snapshot(&s, c, &snapshots[1]);
        stage_feed(&s, c, 0, 2 + n, 1, NULL); /* neither is what the round begins from */
        uint32_t depth = stage_round(c, 0, s.g.config.round_depth);
        OK(sennit_cache_spec_round_begin(c, err));
        for (uint32_t i = 0; i < depth; i++) {
            struct sennit_span span = {.pos = sennit_cache_row_offset(c, 0), .n_tokens = 1};
            OK(begin_step(c, &s.g, &span, 1, err));
            assert_true(held(&s, snapshots, copied) <= bound);
            sennit_cache_append_abort(c);
            stage_feed(&s, c, 0, 9000 + i, 1, NULL);
            assert_true(held(&s, snapshots, copied) <= bound);
            assert_true(sennit_cache_current_bytes(c, 0) <= bound);
        }
        OK(sennit_cache_spec_round_rollback(c, &keep, err));
        assert_true(held(&s, snapshots, copied) <= bound);
        stage_dispose(snapshots, 2);
        stage_same(&s, c, 0, 1, n + 2);
        sennit_cache_dispose(&c);
    }
    stage_close(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_prompts_are_read_together),
        cmocka_unit_test(grouped_heads_in_batches),
        cmocka_unit_test(codes_stay_near_what_they_stand_for),
        cmocka_unit_test(storage_reads_in_the_order_of_the_text),
        cmocka_unit_test(records_round_trip_at_every_length),
        cmocka_unit_test(two_hundred_turns_leave_nothing),
        cmocka_unit_test(all_drafts_rejected),
        cmocka_unit_test(drafts_come_and_go),
        cmocka_unit_test(a_refusal_leaves_two_ways_on),
        cmocka_unit_test(positions_do_not_shift),
        cmocka_unit_test(capabilities_are_true),
        cmocka_unit_test(calls_do_what_families_say),
        cmocka_unit_test(a_round_copies_nothing_when_it_opens),
        cmocka_unit_test(rounds_and_snapshots_are_in_the_projection),
    };
    return stage_run(argc, argv, tests, SN_ARRAY_LEN(tests));
}
