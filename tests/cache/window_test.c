/* Windows by name: what other engines got wrong when a window had moved on, at every length around W and its
 * multiples, with and without kept tokens, for pages of several sizes. The oracle keeps every key and hides some by a
 * mask. */
#include <stdio.h>
#include <stdlib.h>

#include "cache/fixture.h"
#include "cache/window.h"

enum { H = 2, GROUP = 2, HEADS = H * GROUP, DK = 32, DV = 32, WIDTH = HEADS * DV };

static const struct sennit_cache_config stores[] = {
    {.family = "plain"},
    {.family = "affine", .code = {.k_bits = 8, .v_bits = 4, .group = 32}},
};
static const struct sennit_cache_config *stored; /* by which of them the windows under test are */

static void open_fixture(struct fixture *f, uint32_t window, uint32_t slack, uint32_t n_kept, uint32_t page_tokens)
{
    struct geometry g = {.config = {.family = "window",
                                    .n_kv_heads = H,
                                    .d_k = DK,
                                    .d_v = DV,
                                    .k_type = stored->code.group ? 0 : SENNIT_F16,
                                    .v_type = stored->code.group ? 0 : SENNIT_F16,
                                    .page_tokens = page_tokens,
                                    .max_span = 600,
                                    .round_depth = 8,
                                    .window = {.tokens = window, .slack = slack, .n_kept = n_kept},
                                    .inner = stored,
                                    .n_inner = 1},
                         .group = GROUP,
                         .scale = 0.2f};
    fixture_open(f, &g, 11, NULL);
}

/* Tokens seed .. seed + n - 1, all of them, in the naive family, or in the one whose codes are stored. */
static struct sennit_cache *everything(struct fixture *f, uint64_t seed, uint32_t n)
{
    struct sennit_cache *c;
    struct sennit_cache_config config = {.family = stored->code.group ? stored->family : "naive",
                                         .code = stored->code,
                                         .n_kv_heads = H,
                                         .d_k = DK,
                                         .d_v = DV,
                                         .k_type = f->g.config.k_type,
                                         .v_type = f->g.config.v_type};
    OK(sennit_cache_create(&c, f->pool, &config, 1, err));
    feed(f, c, 0, seed, n, NULL);
    return c;
}

/* What the query of the token at `pos` of such a row sees through a band, by its family's masked attention. */
static void banded_answer(struct fixture *f, const struct sennit_cache *all, uint64_t token, uint64_t pos,
                          float out[WIDTH])
{
    static uint8_t mask[4096];
    float q[HEADS * DK];
    uint64_t n = sennit_cache_row_offset(all, 0);
    CHECK(n <= sizeof mask);
    for (uint64_t i = 0; i < n; i++)
        mask[i] = i <= pos && (pos - i < f->g.config.window.tokens || i < f->g.config.window.n_kept);
    struct sennit_donor_attention *view;
    token_query(token, SN_ARRAY_LEN(q), q);
    OK(sennit_cache_capture_donor_attention(all, &view, err));
    OK(sennit_donor_attend(view, q, HEADS, 1, f->g.scale, mask, out, err));
    sennit_donor_attention_free(view);
}

static const struct {
    uint32_t window, slack, n_kept, page_tokens;
} shapes[] = {{8, 3, 0, 4}, {64, 5, 0, 64}, {65, 64, 3, 16}, {7, 2, 20, 8}, {1, 1, 0, 2}, {100, 10, 64, 64}};

/* Lengths W - 1, W, W + 1 and around k W: exactly W keys, the last ones, and the kept ones. */
static void lengths_around_the_window(void **state)
{
    (void)state;
    for (size_t s = 0; s < SN_ARRAY_LEN(shapes); s++) {
        struct fixture f;
        open_fixture(&f, shapes[s].window, shapes[s].slack, shapes[s].n_kept, shapes[s].page_tokens);
        uint32_t w = shapes[s].window;
        struct sennit_cache *all = everything(&f, 1, 5 * w + 3);
        for (uint32_t k = 1; k <= 4; k++)
            for (uint32_t n = k * w - 1; n <= k * w + 1; n++) {
                float one[WIDTH], want[WIDTH], *many = must(calloc((size_t)(n + 1) * WIDTH, sizeof *many));
                struct sennit_cache *c = serial(&f, 1, n), *prompt = serial(&f, 0, 0);
                feed(&f, c, 0, 1 + n, 1, one); /* decoding after a prompt of n */
                feed(&f, prompt, 0, 1, n + 1, many);
                for (uint32_t p = 0; p <= n; p++) {
                    banded_answer(&f, all, 1 + p, p, want);
                    assert_memory_equal(want, many + (size_t)p * WIDTH, sizeof want);
                }
                assert_memory_equal(want, one, sizeof want);
                sennit_cache_dispose(&c);
                sennit_cache_dispose(&prompt);
                free(many);
            }
        sennit_cache_dispose(&all);
        close_fixture(&f);
    }
}

/* Rule 5: rows of any two lengths merged in both orders, going on for 2 W steps as each would alone. */
static void merge_and_continue(struct fixture *f, uint32_t na, uint32_t nb)
{
    uint32_t steps = 2 * f->g.config.window.tokens;
    const uint32_t n[2] = {na, nb};
    struct sennit_cache *rows[2] = {serial(f, 1000, na), serial(f, 9000, nb)}, *batch;
    OK(sennit_cache_create(&batch, f->pool, &f->g.config, 0, err));
    OK(sennit_cache_merge_rows(batch, (const struct sennit_cache *const *)rows, 2, err));
    for (uint32_t i = 0; i < steps; i++) {
        float got[2][WIDTH], want[WIDTH];
        uint64_t tokens[2] = {1000 + n[0] + i, 9000 + n[1] + i};
        struct work_span spans[2] = {{.row = 0, .tokens = &tokens[0], .n_tokens = 1, .out = got[0]},
                                     {.row = 1, .tokens = &tokens[1], .n_tokens = 1, .out = got[1]}};
        struct step_options options = {.rng = &f->rng};
        OK(run_step(batch, &f->g, spans, 2, &options, err));
        for (int r = 0; r < 2; r++) { /* the sources are the rows alone: they were not consumed */
            feed(f, rows[r], 0, tokens[r], 1, want);
            assert_memory_equal(got[r], want, sizeof want);
        }
    }
    for (int r = 0; r < 2; r++)
        sennit_cache_dispose(&rows[r]);
    sennit_cache_dispose(&batch);
}

static void wrapped_rows_merge_with_any(void **state)
{
    (void)state;
    for (size_t s = 0; s < SN_ARRAY_LEN(shapes); s++) {
        struct fixture f;
        open_fixture(&f, shapes[s].window, shapes[s].slack, shapes[s].n_kept, shapes[s].page_tokens);
        uint32_t w = shapes[s].window;
        const uint32_t lengths[] = {1, w - 1, w, w + 1, 2 * w + 3};
        for (size_t i = 0; i < SN_ARRAY_LEN(lengths); i++)
            for (size_t j = 0; j < SN_ARRAY_LEN(lengths); j++)
                merge_and_continue(&f, lengths[i], lengths[j]);
        close_fixture(&f);
    }
}

/* Rule 6: for every n fed and k dropped, either refused with the state unchanged, or as never fed. All of
 * the slack must be there right after an append; what is refused must not be publishable either. */
static void trim_is_exact_or_refused(void **state)
{
    (void)state;
    for (size_t s = 0; s < SN_ARRAY_LEN(shapes); s++) {
        struct fixture f;
        open_fixture(&f, shapes[s].window, shapes[s].slack, shapes[s].n_kept, shapes[s].page_tokens);
        uint32_t reach = shapes[s].window + shapes[s].slack - 1, most = 2 * reach + 5, step = most > 60 ? 13 : 1;
        for (uint32_t n = 1; n <= most; n += step)
            for (uint32_t k = 1; k <= n; k += k < 8 || k + 8 > n ? 1 : step) {
                struct sennit_cache *c = serial(&f, 1, n);
                struct sennit_error err = {0};
                uint64_t before = imprint(&f, c);
                bool may = sennit_cache_can_publish_row(c, 0, n - k);
                sennit_status status = sennit_cache_trim(c, k, k % 2 == 0, &err);
                assert_true(k > shapes[s].slack || status == SENNIT_OK);
                assert_true(n <= reach + shapes[s].n_kept || k <= shapes[s].slack || status == SENNIT_RANGE);
                assert_true(may == (status == SENNIT_OK));
                uint32_t left = status == SENNIT_OK ? n - k : n;
                if (status != SENNIT_OK)
                    assert_true(imprint(&f, c) == before && err.message[0] != '\0');
                float got[3][WIDTH], want[3][WIDTH];
                struct sennit_cache *alone = serial(&f, 1, left);
                size_t n_got, n_want;
                uint8_t *x = canonical_row(c, 0, &n_got), *y = canonical_row(alone, 0, &n_want);
                assert_true(n_got == n_want && (n_got == 0 || memcmp(x, y, n_got) == 0));
                free(x);
                free(y);
                feed(&f, c, 0, 5000, 3, got[0]);
                feed(&f, alone, 0, 5000, 3, want[0]);
                assert_memory_equal(got, want, sizeof got);
                sennit_cache_dispose(&c);
                sennit_cache_dispose(&alone);
            }
        close_fixture(&f);
    }
}

/* Trims use the slack up, appends give it back: window 8, slack 3, numbers with which others kept wrong keys among
 * them. */
static void slack_is_used_up(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 8, 3, 0, 4);
    struct sennit_cache *c = serial(&f, 1, 30), *other;
    OK(sennit_cache_trim(c, 2, false, err));
    REFUSED(SENNIT_RANGE, sennit_cache_trim(c, 2, false, err));
    OK(sennit_cache_clone(c, 0, &other, err)); /* a clone has as much left as its source */
    REFUSED(SENNIT_RANGE, sennit_cache_trim(other, 2, true, err));
    OK(sennit_cache_trim(other, 1, false, err));
    REFUSED(SENNIT_RANGE, sennit_cache_trim(other, 1, false, err));
    OK(sennit_cache_trim(c, 1, false, err)); /* the clone's trim is not its source's */
    feed(&f, c, 0, 28, 3, NULL);
    REFUSED(SENNIT_RANGE, sennit_cache_trim(c, 4, true, err));
    OK(sennit_cache_trim(c, 3, true, err));
    feed(&f, c, 0, 28, 5, NULL);
    OK(sennit_cache_trim(c, 3, false, err));
    assert_int_equal(sennit_cache_row_offset(c, 0), 29);
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&other);
    close_fixture(&f);
}

/* A batch is trimmed as a whole or not at all: one row that cannot go back keeps all where they are. */
static void one_row_holds_the_batch(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 8, 3, 0, 4);
    struct sennit_cache *rows[2] = {serial(&f, 1, 6), serial(&f, 100, 40)}, *batch;
    OK(sennit_cache_create(&batch, f.pool, &f.g.config, 0, err));
    OK(sennit_cache_merge_rows(batch, (const struct sennit_cache *const *)rows, 2, err));
    uint64_t before = imprint(&f, batch);
    REFUSED(SENNIT_RANGE, sennit_cache_trim(batch, 4, false, err));
    assert_true(imprint(&f, batch) == before);
    OK(sennit_cache_trim(batch, 3, false, err));
    assert_int_equal(sennit_cache_row_offset(batch, 0), 3);
    for (int r = 0; r < 2; r++)
        sennit_cache_dispose(&rows[r]);
    sennit_cache_dispose(&batch);
    close_fixture(&f);
}

/* A round deeper than the slack, all of it rejected, leaves the row as it was, slack included. */
static void rounds_do_not_use_slack(void **state)
{
    (void)state;
    for (uint32_t start = 5; start < 40; start++)
        for (uint64_t keep = 0; keep <= 8; keep += 4) {
            struct fixture f;
            open_fixture(&f, 8, 3, 2, 2);
            struct sennit_cache *c = serial(&f, 1, start), *alone = serial(&f, 1, start + (uint32_t)keep);
            float got[WIDTH], want[WIDTH];
            OK(sennit_cache_spec_round_begin(c, err));
            feed(&f, c, 0, 1 + start, (uint32_t)keep, NULL);
            feed(&f, c, 0, 7000, 8 - (uint32_t)keep, NULL);
            OK(sennit_cache_spec_round_rollback(c, &keep, err));
            uint64_t from[2], to[2];
            c->ops->gap(c, 0, &from[0], &to[0]);
            alone->ops->gap(alone, 0, &from[1], &to[1]);
            assert_true(to[0] == to[1] && from[0] == from[1]);
            assert_true(cache_fingerprint(c) == cache_fingerprint(alone));
            OK(sennit_cache_trim(c, 3, false, err));
            OK(sennit_cache_trim(alone, 3, false, err));
            feed(&f, c, 0, 5000, 1, got);
            feed(&f, alone, 0, 5000, 1, want);
            assert_memory_equal(got, want, sizeof got);
            sennit_cache_dispose(&c);
            sennit_cache_dispose(&alone);
            close_fixture(&f);
        }
}

/* Chunks of several windows: right for every token, and never more storage than W + slack + chunk + 2 pages of
 * tokens, whatever the row's length; afterwards what a row fed token by token holds. */
static void chunks_above_the_window_are_bounded(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {1, 5, 64, 200, 600};
    for (size_t s = 0; s < SN_ARRAY_LEN(shapes); s++)
        for (size_t k = 0; k < SN_ARRAY_LEN(chunks); k++) {
            struct fixture f;
            open_fixture(&f, shapes[s].window, shapes[s].slack, 0, shapes[s].page_tokens);
            f.g.config.max_span = chunks[k];
            f.g.config.round_depth = 0;
            uint32_t total = 1800;
            struct sennit_cache *c = serial(&f, 1, 0), *all = everything(&f, 1, total);
            const struct sn_window_form *window = &sn_window_of(c)->plain;
            uint64_t others = sennit_pool_bytes(f.pool), list = sn_list_bytes(window->listing.cap);
            uint64_t page = sn_page_bytes(window->listing.paging), size = shapes[s].page_tokens;
            uint64_t bound = shapes[s].window + shapes[s].slack + chunks[k] + 2 * size; /* positions */
            float *out = must(calloc((size_t)chunks[k] * WIDTH, sizeof *out)), want[WIDTH];
            for (uint32_t at = 0; at + chunks[k] <= total; at += chunks[k]) {
                struct sennit_span span = {.row = 0, .pos = at, .n_tokens = chunks[k]};
                OK(sennit_cache_append_begin(c, &span, 1, HEADS, err)); /* the most is held within a step */
                uint64_t pages = (sennit_pool_bytes(f.pool) - others - list) / page;
                assert_true(pages * size < bound);
                assert_true(sennit_pool_bytes(f.pool) - others <= sennit_cache_projected_bytes(c, at + chunks[k]));
                sennit_cache_append_abort(c);
                bool look = at % 7 == 0 || at + 2 * chunks[k] > total;
                feed(&f, c, 0, 1 + at, chunks[k], look ? out : NULL);
                for (uint32_t t = 0; look && t < chunks[k]; t += 1 + chunks[k] / 9) {
                    banded_answer(&f, all, 1 + at + t, at + t, want);
                    assert_memory_equal(want, out + (size_t)t * WIDTH, sizeof want);
                }
                uint64_t n = sennit_cache_row_offset(c, 0), most = shapes[s].window + shapes[s].slack - 1;
                uint64_t held = sn_min_size(sn_div_up(n, size), sn_div_up(most, size) + 1);
                assert_int_equal(sennit_pool_bytes(f.pool) - others, list + held * page);
            }
            REFUSED(SENNIT_RANGE, sennit_cache_append_begin(
                                      c, &(struct sennit_span){.pos = sennit_cache_row_offset(c, 0), .n_tokens = 601},
                                      1, HEADS, err));
            free(out);
            sennit_cache_dispose(&c);
            sennit_cache_dispose(&all);
            close_fixture(&f);
        }
}

/* Decoding in a full window neither takes nor gives back a byte, and never passes what was projected. */
static void a_full_window_is_steady(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 100, 28, 5, 16);
    f.g.config.max_span = 1;
    f.g.config.round_depth = 0;
    struct sennit_cache *c = serial(&f, 1, 0);
    assert_int_equal(sennit_cache_projected_bytes(c, 0), 0);
    uint64_t full = 0;
    for (uint32_t n = 0; n < 600; n++) {
        struct sennit_span span = {.row = 0, .pos = n, .n_tokens = 1};
        OK(sennit_cache_append_begin(c, &span, 1, HEADS, err));
        assert_true(sennit_pool_bytes(f.pool) <= sennit_cache_projected_bytes(c, n + 1));
        sennit_cache_append_abort(c);
        feed(&f, c, 0, n, 1, NULL);
        assert_int_equal(sennit_pool_bytes(f.pool), sennit_cache_projected_bytes(c, n + 1));
        if (n == 300)
            full = sennit_pool_bytes(f.pool);
        assert_true(n < 300 || sennit_pool_bytes(f.pool) == full);
    }
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Snapshots keep whole windows alive, and the projection says so. */
static void reserve_covers_snapshots(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 20, 4, 3, 4);
    f.g.config.n_snapshots = 2;
    f.g.config.max_span = 1;
    struct sennit_cache *c = serial(&f, 1, 0), *s1 = NULL, *s2 = NULL;
    for (uint32_t i = 0; i < 50; i++)
        feed(&f, c, 0, 1 + i, 1, NULL);
    uint64_t bound = sennit_cache_projected_bytes(c, 50);
    for (uint32_t i = 0; i < 120; i++) {
        if (i == 7)
            OK(sennit_cache_clone(c, 0, &s1, err));
        if (i == 50)
            OK(sennit_cache_clone(c, 0, &s2, err));
        feed(&f, c, 0, 51 + i, 1, NULL);
        assert_true(sennit_pool_bytes(f.pool) <= bound);
    }
    OK(sennit_cache_spec_round_begin(c, err));
    feed(&f, c, 0, 5555, 8, NULL);
    assert_true(sennit_pool_bytes(f.pool) <= bound);
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&s1);
    sennit_cache_dispose(&s2);
    close_fixture(&f);
}

/* The first tokens stay visible at their own positions for ever, in decode, in prefill, in donors, after a reload. */
static void kept_tokens_stay(void **state)
{
    (void)state;
    static const uint32_t kept[] = {1, 4, 64, 65, 200};
    for (size_t k = 0; k < SN_ARRAY_LEN(kept); k++) {
        struct fixture f;
        open_fixture(&f, 16, 4, kept[k], 8);
        struct sennit_cache *all = everything(&f, 1, 420), *c = serial(&f, 1, 400), *back = NULL;
        float got[WIDTH], want[WIDTH], q[HEADS * DK];
        struct memory m;
        struct sennit_stream s = memory_writer(&m);
        OK(sennit_cache_save(c, 0, &s, err));
        s = memory_reader(&m);
        OK(sennit_cache_load(c, &s, &back, err));
        struct sennit_donor_attention *view, *whole;
        OK(sennit_cache_capture_donor_attention(c, &view, err));
        OK(sennit_cache_capture_donor_attention(all, &whole, err));
        assert_true(view->starts[0] == 0 && view->ends[0] == 400);
        uint8_t mask[420];
        for (uint32_t i = 0; i < 420; i++) /* all that is there: kept, window, slack */
            mask[i] = i < kept[k] || (i >= 400 - 19 && i < 400);
        token_query(77, SN_ARRAY_LEN(q), q);
        OK(sennit_donor_attend(view, q, HEADS, 1, f.g.scale, NULL, got, err));
        OK(sennit_donor_attend(whole, q, HEADS, 1, f.g.scale, mask, want, err));
        assert_memory_equal(got, want, sizeof got);
        for (uint32_t i = 0; i < 20; i++) {
            banded_answer(&f, all, 401 + i, 400 + i, want);
            feed(&f, c, 0, 401 + i, 1, got);
            assert_memory_equal(got, want, sizeof got);
            feed(&f, back, 0, 401 + i, 1, got);
            assert_memory_equal(got, want, sizeof got);
        }
        sennit_donor_attention_free(view);
        sennit_donor_attention_free(whole);
        free(m.data);
        sennit_cache_dispose(&all);
        sennit_cache_dispose(&c);
        sennit_cache_dispose(&back);
        close_fixture(&f);
    }
}

/* Donors stay what they were while the window of their source moves on and gives its pages back. */
static void donors_outlive_the_window(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 16, 4, 0, 4);
    struct sennit_cache *c = serial(&f, 1, 100);
    struct sennit_donor *rows;
    struct sennit_donor_attention *view;
    float q[HEADS * DK], before[WIDTH], after[WIDTH];
    OK(sennit_cache_capture_donor_rows(c, &rows, err));
    OK(sennit_cache_capture_donor_attention(c, &view, err));
    assert_true(rows->offsets[0] == 100 && rows->starts[0] == 81 && rows->ends[0] == 100 && rows->width == 19);
    assert_true(view->starts[0] == 81 && view->width == 19);
    size_t n, m;
    uint8_t *x = canonical_spans(sn_donor_cache(rows), rows->planes, rows->n_planes, 0, 100, &n);
    token_query(3, SN_ARRAY_LEN(q), q);
    OK(sennit_donor_attend(view, q, HEADS, 1, f.g.scale, NULL, before, err));
    uint64_t bytes = sennit_pool_bytes(f.pool);
    for (uint32_t i = 0; i < 300; i++)
        feed(&f, c, 0, 200 + i, 1, NULL);
    assert_true(sennit_pool_bytes(f.pool) <= 2 * bytes + 4096);
    sennit_cache_dispose(&c);
    uint8_t *y = canonical_spans(sn_donor_cache(rows), rows->planes, rows->n_planes, 0, 100, &m);
    assert_true(n == m && memcmp(x, y, n) == 0);
    OK(sennit_donor_attend(view, q, HEADS, 1, f.g.scale, NULL, after, err));
    assert_memory_equal(before, after, sizeof before);
    free(x);
    free(y);
    sennit_donor_free(rows);
    sennit_donor_attention_free(view);
    close_fixture(&f);
}

/* After every front trim a record round-trips with its slack; one that claims what cannot be is refused.
 * */
static void records_keep_the_slack(void **state)
{
    (void)state;
    for (size_t s = 0; s < SN_ARRAY_LEN(shapes); s++) {
        struct fixture f;
        open_fixture(&f, shapes[s].window, shapes[s].slack, shapes[s].n_kept, shapes[s].page_tokens);
        uint32_t reach = shapes[s].window + shapes[s].slack;
        for (uint32_t n = 1; n < 2 * reach + 3; n += 1 + reach / 9)
            for (uint32_t k = 0; k < n; k += k < 3 || n < 40 ? 1 : n / 7) {
                struct sennit_cache *c = serial(&f, 1, n), *back = NULL;
                if (!sennit_cache_can_publish_row(c, 0, n - k)) {
                    sennit_cache_dispose(&c);
                    break;
                }
                OK(sennit_cache_trim(c, k, false, err));
                struct memory m;
                struct sennit_stream w = memory_writer(&m);
                OK(sennit_cache_save(c, 0, &w, err));
                w = memory_reader(&m);
                OK(sennit_cache_load(c, &w, &back, err));
                assert_true(cache_fingerprint(c) == cache_fingerprint(back));
                for (uint32_t left = 0; left <= n - k; left++)
                    assert_true(sennit_cache_can_publish_row(c, 0, left) ==
                                sennit_cache_can_publish_row(back, 0, left));
                float got[2][WIDTH];
                uint32_t drop = 0;
                while (drop < n - k && sennit_cache_can_publish_row(c, 0, n - k - drop - 1))
                    drop++;
                assert_true(k + drop >= sn_min_size(n, shapes[s].slack));
                OK(sennit_cache_trim(back, drop, false, err));
                OK(sennit_cache_trim(c, drop, false, err));
                feed(&f, back, 0, 4000, 1, got[0]);
                feed(&f, c, 0, 4000, 1, got[1]);
                assert_memory_equal(got[0], got[1], sizeof got[0]);
                free(m.data);
                sennit_cache_dispose(&c);
                sennit_cache_dispose(&back);
            }
        close_fixture(&f);
    }
}

/* A clone moves no tokens, and its first write copies the list and one page, whatever the row's length. */
static void clones_are_references(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 100, 10, 20, 16);
    for (uint32_t n = 199; n < 217; n++) {
        struct sennit_cache *c = serial(&f, 1, n), *copy;
        const struct sn_listing *g = &sn_window_of(c)->plain.listing;
        uint64_t before = sennit_pool_bytes(f.pool), list = sn_list_bytes(g->cap), page = sn_page_bytes(g->paging);
        OK(sennit_cache_clone(c, 0, &copy, err));
        assert_int_equal(sennit_pool_bytes(f.pool), before);
        assert_int_equal(sennit_cache_current_bytes(c, 0), 0);
        feed(&f, copy, 0, 3, 1, NULL);
        assert_int_equal(sennit_pool_bytes(f.pool), before + list + page);
        REFUSED(SENNIT_RANGE, sennit_cache_trim(copy, 11, false, err));
        OK(sennit_cache_trim(copy, 10, false, err));
        assert_true(sennit_cache_current_bytes(copy, 0) <= list + page);
        sennit_cache_dispose(&c);
        float got[WIDTH], want[WIDTH];
        struct sennit_cache *alone = serial(&f, 1, n - 9);
        feed(&f, copy, 0, 5000, 1, got);
        feed(&f, alone, 0, 5000, 1, want);
        assert_memory_equal(got, want, sizeof got);
        sennit_cache_dispose(&copy);
        sennit_cache_dispose(&alone);
    }
    close_fixture(&f);
}

/* Pages go back as the window moves on, with snapshots and rounds coming and going. */
static void pages_come_back(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 16, 4, 2, 4);
    struct sennit_cache *c = serial(&f, 1, 200);
    uint64_t usual = sennit_pool_bytes(f.pool), keep = 3;
    for (uint32_t turn = 0; turn < 200; turn++) {
        struct sennit_cache *snapshot;
        OK(sennit_cache_clone(c, 0, &snapshot, err));
        OK(sennit_cache_spec_round_begin(c, err));
        feed(&f, c, 0, 300 + 9 * turn, 8, NULL);
        OK(sennit_cache_spec_round_rollback(c, &keep, err));
        feed(&f, c, 0, 300 + 9 * turn, 1 + turn % 30, NULL);
        sennit_cache_dispose(&snapshot);
        assert_true(sennit_pool_bytes(f.pool) == usual);
    }
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Rows of one window merge into a cache made for longer spans, and can then take them. */
static void bounds_are_the_caches_own(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 16, 4, 0, 4);
    f.g.config.max_span = 3;
    struct sennit_cache *c = NULL, *wide, *alone;
    OK(sennit_cache_create(&c, f.pool, &f.g.config, 1, err));
    for (uint32_t i = 0; i < 30; i++)
        feed(&f, c, 0, 1 + i, 1, NULL);
    f.g.config.max_span = 300;
    OK(sennit_cache_create(&wide, f.pool, &f.g.config, 0, err));
    const struct sennit_cache *sources[] = {c};
    OK(sennit_cache_merge_rows(wide, sources, 1, err));
    sennit_cache_dispose(&c); /* the list that is too short for such spans is the layout's alone */
    alone = serial(&f, 1, 30);
    static float got[300][WIDTH], want[300][WIDTH];
    feed(&f, wide, 0, 31, 300, got[0]);
    feed(&f, alone, 0, 31, 300, want[0]);
    assert_memory_equal(got, want, sizeof got);
    assert_int_equal(sennit_cache_current_bytes(wide, 0), sennit_cache_current_bytes(alone, 0));
    sennit_cache_dispose(&wide);
    sennit_cache_dispose(&alone);
    close_fixture(&f);
}

static void bad_windows_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 16, 4, 2, 16);
    static const struct sennit_cache_config bad_inner[] = {
        {.family = "naive"},
        {.family = "window"},
        {.family = "mla"},
        {.family = "bogus"},
        {.family = NULL},
        {.family = "plain", .d_k = 32},
        {.family = "plain", .max_tokens = 5},
        {.family = "plain", .code = {.group = 32}},
    };
    struct sennit_cache *c = NULL;
    for (size_t i = 0; i < SN_ARRAY_LEN(bad_inner); i++) {
        struct sennit_cache_config config = f.g.config;
        config.inner = &bad_inner[i];
        REFUSED(SENNIT_INVALID, sennit_cache_create(&c, f.pool, &config, 1, err));
    }
    for (int i = 0; i < 7; i++) {
        struct sennit_cache_config config = f.g.config;
        config.window.tokens = i == 0 ? 0 : i == 1 ? UINT32_MAX : 16;
        config.window.slack = i == 2 ? UINT32_MAX : 4;
        config.window.n_kept = i == 3 ? UINT32_MAX : 2;
        config.n_inner = i == 4 ? 0 : i == 5 ? 2 : 1;
        config.start = i == 6;
        REFUSED(SENNIT_INVALID, sennit_cache_create(&c, f.pool, &config, 1, err));
    }
    struct sennit_cache_config plain = f.g.config;
    plain.family = "plain";
    REFUSED(SENNIT_INVALID, sennit_cache_create(&c, f.pool, &plain, 1, err));
    /* Each number is part of the kind; slack 0 is 64 by its name. */
    struct sennit_cache *other, *empty;
    c = serial(&f, 1, 5);
    if (stored == &stores[0])
        assert_string_equal(sennit_cache_signature(c), "window 16 slack 4 kept 2 / plain F16 kv 2 k 32 v 32 / p16");
    for (int i = 0; i < 3; i++) {
        struct sennit_cache_config config = f.g.config;
        config.window.tokens += i == 0;
        config.window.slack += i == 1;
        config.window.n_kept += i == 2;
        OK(sennit_cache_create(&other, f.pool, &config, 1, err));
        OK(sennit_cache_make_empty_batch(c, &empty, err));
        const struct sennit_cache *sources[] = {other};
        REFUSED(SENNIT_INVALID, sennit_cache_merge_rows(empty, sources, 1, err));
        sennit_cache_dispose(&other);
        sennit_cache_dispose(&empty);
    }
    f.g.config.window.slack = 0;
    OK(sennit_cache_create(&other, f.pool, &f.g.config, 1, err));
    assert_non_null(strstr(sennit_cache_signature(other), "slack 64"));
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&other);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_around_the_window),
        cmocka_unit_test(wrapped_rows_merge_with_any),
        cmocka_unit_test(trim_is_exact_or_refused),
        cmocka_unit_test(slack_is_used_up),
        cmocka_unit_test(one_row_holds_the_batch),
        cmocka_unit_test(rounds_do_not_use_slack),
        cmocka_unit_test(chunks_above_the_window_are_bounded),
        cmocka_unit_test(a_full_window_is_steady),
        cmocka_unit_test(reserve_covers_snapshots),
        cmocka_unit_test(kept_tokens_stay),
        cmocka_unit_test(donors_outlive_the_window),
        cmocka_unit_test(records_keep_the_slack),
        cmocka_unit_test(clones_are_references),
        cmocka_unit_test(pages_come_back),
        cmocka_unit_test(bounds_are_the_caches_own),
        cmocka_unit_test(bad_windows_are_refused),
    };
    int failed = 0;
    for (stored = stores; stored < stores + SN_ARRAY_LEN(stores); stored++)
        failed += cmocka_run_group_tests_name(stored->family, tests, NULL, NULL);
    return failed != 0;
}
