/* The members of the contract one by one: what is refused, what flags, bounds and bytes say, and what calls then do;
 * each for every family. The rules are rules_test.c's, what needs many operations is conformance.c's. */
#include <stdio.h>
#include <stdlib.h>

#include "cache/fixture.h"
#include "cache/kinds.h"
#include "cache/pages.h"
#include "tensor/traits.h"

enum { H = 2, GROUP = 2, DK = 32, DV = 32, WIDTH = H * GROUP * DV };

static const struct tested_family *tested; /* the line under test */
static const char *family;                 /* its family */
static uint32_t page_tokens;               /* and its page size; 0 = 64 */

/* Recurrent state has no keys, element types, pages, trims or donors; recurrent_test.c has its own cases. */
static bool no_keys(void)
{
    return tested->no_keys;
}

static void open_fixture(struct fixture *f, uint32_t n_workers)
{
    struct geometry g = {.config = {.n_kv_heads = H,
                                    .d_k = DK,
                                    .d_v = DV,
                                    .k_type = SENNIT_F16,
                                    .v_type = SENNIT_F16,
                                    .page_tokens = page_tokens,
                                    .round_depth = 8},
                         .group = GROUP,
                         .scale = 0.25f};
    small_geometry(tested, &g);
    fixture_open(f, &g, 5, &(struct sennit_pool_options){.n_workers = n_workers});
}

/* The next token's output of `row` equals that of the same n tokens alone. */
static void assert_continues(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n)
{
    float got[WIDTH], want[WIDTH];
    struct sennit_cache *alone = serial(f, seed, n);
    feed(f, c, row, 9999, 1, got);
    feed(f, alone, 0, 9999, 1, want);
    assert_memory_equal(got, want, sizeof got);
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(got[i] == got[i]); /* no NaN of a free slot came out (rule 7) */
    sennit_cache_dispose(&alone);
}

static void other_kinds_are_refused(void **state)
{
    (void)state;
    if (no_keys())
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *a = serial(&f, 1, 5), *empty, *b;
    OK(sennit_cache_make_empty_batch(a, &empty, err));
    struct sennit_cache_config other = f.g.config;
    set_type(tested, &other, SENNIT_BF16);
    OK(sennit_cache_create(&b, f.pool, &other, 1, err));
    const struct sennit_cache *sources[] = {a, b};
    REFUSED(SENNIT_INVALID, sennit_cache_merge_rows(empty, sources, 2, err));
    assert_int_equal(sennit_cache_batch_size(empty), 0);
    other.v_type = SENNIT_F16;
    struct sennit_cache *none = NULL;
    REFUSED(SENNIT_INVALID, sennit_cache_create(&none, f.pool, &other, 1, err));
    other = f.g.config;
    other.d_k = other.d_k ? 0 : 7; /* none where there must be one, or one that means nothing */
    REFUSED(SENNIT_INVALID, sennit_cache_create(&none, f.pool, &other, 1, err));
    other = f.g.config;
    other.family = "bogus";
    other.external = NULL;
    REFUSED(SENNIT_NOT_FOUND, sennit_cache_create(&none, f.pool, &other, 1, err));
    REFUSED(SENNIT_INVALID, sennit_cache_create(&none, f.pool, &f.g.config, 2, err));
    assert_null(none);
    sennit_cache_dispose(&a);
    sennit_cache_dispose(&b);
    sennit_cache_dispose(&empty);
    close_fixture(&f);
}

/* Rule 11: bytes per token show the type in force. Storage equals the allocator's count around
 * every page boundary. */
static void projected_bytes_are_exact(void **state)
{
    (void)state;
    if (no_keys() || is_external(tested))
        skip();
    static const sennit_type types[] = {SENNIT_F32, SENNIT_F16, SENNIT_BF16};
    uint64_t per_token[3];
    for (size_t t = 0; t < 3; t++) {
        struct fixture f;
        open_fixture(&f, 1);
        set_type(tested, &f.g.config, types[t]);
        f.g.config.round_depth = 0;
        f.g.config.max_span = 1;
        struct sennit_cache *c = serial(&f, 0, 0), *empty;
        OK(sennit_cache_make_empty_batch(c, &empty, err));
        per_token[t] = sennit_cache_bytes_per_token(c);
        assert_int_equal(sennit_cache_projected_bytes(c, 0), 0); /* no reserve for (1, 0, 0) */
        uint64_t last = 0;
        for (uint32_t n = 1; n <= 64 * 64; n++) {
            feed(&f, c, 0, n, 1, NULL);
            uint64_t projected = sennit_cache_projected_bytes(empty, n);
            uint64_t bytes = sennit_pool_bytes(f.pool);
            /* A change of precision takes the most on the way; delayed_test.c says how much. */
            assert_true(projected == bytes || (tested->changes_precision && projected > bytes && n >= 50));
            assert_int_equal(bytes, atomic_load(&f.pool->heap->used[SN_USE_CACHE]));
            assert_int_equal(bytes, sennit_cache_current_bytes(c, 0));
            assert_true(projected >= last);
            last = projected;
        }
        if (!tested->retention) /* a row that lets go of old tokens has a bound */
            assert_int_equal(sennit_cache_projected_bytes(c, UINT64_MAX), UINT64_MAX);
        sennit_cache_dispose(&c);
        sennit_cache_dispose(&empty);
        close_fixture(&f);
    }
    if (is_coded(tested)) {
        assert_int_equal(per_token[0] - per_token[1], H * DV / 2);
        assert_int_equal(per_token[1] - per_token[2], H * DK / 2);
        return;
    }
    assert_int_equal(per_token[1], per_token[2]);
    assert_int_equal(per_token[0] - per_token[1], 2 * H * (DK + DV));
}

/* Rows are chains of page tables: what the next tests look into. Lists that let pages go have tests of their own. */
static bool chained(void)
{
    return tested->paged && !tested->retention && !tested->rectangle;
}

/* The reserve covers what snapshots and an open round make a row hold. */
static void reserve_covers_the_peak(void **state)
{
    (void)state;
    if (!chained())
        skip();
    for (uint32_t n = 1; n <= 130; n++) {
        struct fixture f;
        open_fixture(&f, 1);
        f.g.config.n_snapshots = 2;
        struct sennit_cache *c = serial(&f, 0, n), *s1, *s2;
        uint64_t bound = sennit_cache_projected_bytes(c, n + 1);
        OK(sennit_cache_clone(c, 0, &s1, err));
        feed(&f, c, 0, n, 1, NULL);
        assert_true(sennit_pool_bytes(f.pool) <= bound);
        OK(sennit_cache_clone(c, 0, &s2, err));
        OK(sennit_cache_spec_round_begin(c, err));
        uint64_t most = sennit_cache_max_append_tokens(c, 0);
        feed(&f, c, 0, 5555, most < f.g.config.round_depth ? (uint32_t)most : f.g.config.round_depth, NULL);
        assert_true(sennit_pool_bytes(f.pool) <= bound);
        uint64_t keep = 0;
        OK(sennit_cache_spec_round_rollback(c, &keep, err));
        sennit_cache_dispose(&s1);
        sennit_cache_dispose(&s2);
        sennit_cache_dispose(&c);
        close_fixture(&f);
    }
}

/* A clone of a long row moves no tokens, and the first write after it copies one page at
 * most. */
static void clones_are_references(void **state)
{
    (void)state;
    if (!chained())
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *c = serial(&f, 0, 64 * 130 + 5), *copy;
    uint32_t size = page_tokens ? page_tokens : 64;
    uint64_t before = sennit_pool_bytes(f.pool), page = size * sennit_cache_bytes_per_token(c);
    OK(sennit_cache_clone(c, 0, &copy, err));
    assert_int_equal(sennit_pool_bytes(f.pool), before);
    assert_int_equal(sennit_cache_current_bytes(c, 0), 0);
    assert_int_equal(sennit_cache_current_bytes(copy, 0), 0);
    feed(&f, copy, 0, 3, 1, NULL);
    assert_int_equal(sennit_pool_bytes(f.pool), before + page + sn_table_bytes());
    assert_int_equal(sennit_cache_current_bytes(copy, 0), page + sn_table_bytes());
    /* Publish: a clone trimmed to a length. It keeps no page beyond it. */
    OK(sennit_cache_trim(copy, 64 * 100, false, err));
    assert_true(sennit_cache_can_publish_row(c, 0, 64 * 30));
    sennit_cache_dispose(&c);
    uint64_t pages = sn_div_up(sennit_cache_row_offset(copy, 0), size);
    assert_int_equal(sennit_pool_bytes(f.pool), pages * page + sn_div_up(pages, SN_TABLE_PAGES) * sn_table_bytes());
    sennit_cache_dispose(&copy);
    close_fixture(&f);
}

/* The books are level after every end, disposing twice is safe, also inside a step and a
 * round. */
static void nothing_is_left(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    size_t misc = atomic_load(&f.pool->heap->used[SN_USE_MISC]);
    for (uint32_t round = 0; round < 20; round++) {
        struct sennit_cache *c = serial(&f, round, 10 * round);
        if (round % 2)
            OK(sennit_cache_spec_round_begin(c, err));
        struct sennit_span span = {.row = 0, .pos = 10 * round, .n_tokens = 3};
        if (round % 3 == 0)
            OK(begin_step(c, &f.g, &span, 1, err));
        sennit_cache_dispose(&c);
        sennit_cache_dispose(&c);
        assert_int_equal(sennit_pool_bytes(f.pool), 0);
        assert_int_equal(atomic_load(&f.pool->heap->used[SN_USE_MISC]), misc);
    }
    close_fixture(&f);
}

/* 16 rows, 3 rounds: equal between rounds, distinct between rows. */
static void rows_do_not_mix(void **state)
{
    (void)state;
    static float out[3][16][WIDTH];
    struct fixture f;
    open_fixture(&f, 1);
    for (uint32_t round = 0; round < 3; round++) {
        struct sennit_cache *rows[16], *batch;
        uint64_t tokens[16];
        struct work_span spans[16];
        for (uint32_t i = 0; i < 16; i++) {
            rows[i] = serial(&f, 1000 * i, 5 + 20 * i);
            tokens[i] = 4;
            spans[i] = (struct work_span){.row = i, .tokens = &tokens[i], .n_tokens = 1, .out = out[round][i]};
        }
        batch = merged(rows, 16);
        struct step_options options = {.rng = &f.rng};
        OK(run_step(batch, &f.g, spans, 16, &options, err));
        for (uint32_t i = 0; i < 16; i++)
            sennit_cache_dispose(&rows[i]);
        sennit_cache_dispose(&batch);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_memory_equal(out[0], out[2], sizeof out[0]);
    for (uint32_t i = 0; i < 16; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_memory_not_equal(out[0][i], out[0][j], sizeof out[0][i]);
    close_fixture(&f);
}

/* What the flags say is what the calls do. */
static void flags_are_true(void **state)
{
    (void)state;
    if (no_keys())
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *c = serial(&f, 1, 10);
    assert_true(sennit_cache_is_trimmable(c));
    OK(sennit_cache_trim(c, 3, false, err));
    assert_int_equal(sennit_cache_row_offset(c, 0), 7);
    for (uint64_t n = 0; n < 12; n++)
        assert_int_equal(sennit_cache_can_publish_row(c, 0, n), n <= 7); /* rule 12: only tokens that entered */
    assert_false(sennit_cache_can_publish_row(c, 1, 0));
    assert_int_equal(sennit_cache_composed(c, NULL), 0);
    assert_continues(&f, c, 0, 1, 7);
    struct sennit_cache_config config = f.g.config;
    config.round_depth = 0;
    struct sennit_cache *flat;
    OK(sennit_cache_create(&flat, f.pool, &config, 1, err));
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_spec_round_begin(flat, err));
    sennit_cache_dispose(&flat);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

static void bypass_reaches_the_last_append(void **state)
{
    (void)state;
    if (no_keys())
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *c = serial(&f, 1, 10);
    feed(&f, c, 0, 11, 6, NULL);
    REFUSED(SENNIT_RANGE, sennit_cache_trim(c, 7, true, err));
    OK(sennit_cache_trim(c, 4, true, err));
    REFUSED(SENNIT_RANGE, sennit_cache_trim(c, 3, true, err));
    OK(sennit_cache_trim(c, 2, true, err));
    assert_int_equal(sennit_cache_row_offset(c, 0), 10);
    OK(sennit_cache_trim(c, 10, false, err));
    REFUSED(SENNIT_RANGE, sennit_cache_trim(c, 1, false, err));
    assert_continues(&f, c, 0, 1, 0);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* A round's depth is a bound, and max_tokens is one inside it too. */
static void bounds_hold_inside_rounds(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    f.g.config.max_tokens = 12;
    struct sennit_cache *c = serial(&f, 1, 6);
    struct sennit_span span = {.row = 0, .pos = 6, .n_tokens = 7};
    OK(sennit_cache_spec_round_begin(c, err));
    REFUSED(SENNIT_RANGE, begin_step(c, &f.g, &span, 1, err)); /* 13 > max_tokens */
    f.g.config.max_tokens = 0;
    OK(sennit_cache_spec_round_commit(c, err));
    sennit_cache_dispose(&c);
    c = serial(&f, 1, 6);
    OK(sennit_cache_spec_round_begin(c, err));
    span.n_tokens = 9;
    REFUSED(SENNIT_RANGE, begin_step(c, &f.g, &span, 1, err)); /* 9 > round_depth */
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Rule 15: a stream cut anywhere, or with any bit flipped, leaves nothing; the row that was saved
 * loads to the bit. */
static void damaged_streams_are_refused(void **state)
{
    (void)state;
    if (no_keys())
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *c = serial(&f, 1, 70), *out = NULL;
    struct memory m;
    struct sennit_stream s = memory_writer(&m);
    OK(sennit_cache_save(c, 0, &s, err));
    uint64_t bytes = sennit_pool_bytes(f.pool);
    for (size_t at = 0; at < m.n_bytes; at += at < 200 ? 1 : 37) {
        struct sennit_error err = {0};
        s = memory_reader(&m);
        m.fail_at = at;
        assert_int_equal(sennit_cache_load(c, &s, &out, &err), SENNIT_FORMAT);
        s = memory_reader(&m);
        m.data[at] ^= (uint8_t)(1 << at % 8);
        sennit_status status = sennit_cache_load(c, &s, &out, &err);
        assert_true(status == SENNIT_FORMAT || status == SENNIT_INVALID);
        m.data[at] ^= (uint8_t)(1 << at % 8);
        assert_true(!out && sennit_pool_bytes(f.pool) == bytes);
    }
    /* A length that lies is stopped by what the stream holds, not by memory. */
    uint64_t huge = UINT64_C(1) << 40;
    size_t at = 8 + 12 + strlen(sennit_cache_signature(c));
    memcpy(m.data + at, &huge, sizeof huge);
    s = memory_reader(&m);
    s.limit = 0;
    REFUSED(SENNIT_FORMAT, sennit_cache_load(c, &s, &out, err));
    uint64_t body = c->ops->body_bytes(c, huge);
    memcpy(m.data + at + 16, &body, sizeof body);
    s = memory_reader(&m);
    s.limit = 0;
    REFUSED(SENNIT_FORMAT, sennit_cache_load(c, &s, &out, err));
    assert_int_equal(sennit_pool_bytes(f.pool), bytes);
    free(m.data);
    s = memory_writer(&m);
    m.fail_at = 300;
    REFUSED(SENNIT_IO, sennit_cache_save(c, 0, &s, err));
    free(m.data);
    s = memory_writer(&m);
    OK(sennit_cache_save(c, 0, &s, err));
    s = memory_reader(&m);
    OK(sennit_cache_load(c, &s, &out, err));
    assert_continues(&f, out, 0, 1, 70);
    sennit_cache_dispose(&out);
    struct sennit_cache_config other = f.g.config;
    set_type(tested, &other, SENNIT_F32);
    struct sennit_cache *like;
    OK(sennit_cache_create(&like, f.pool, &other, 0, err));
    s = memory_reader(&m);
    REFUSED(SENNIT_INVALID, sennit_cache_load(like, &s, &out, err));
    sennit_cache_dispose(&like);
    free(m.data);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return sn_f16_to_f32(h);
}

/* Dimension i of a token's value, out of a row's canonical form. */
static float stored_value(const struct sennit_cache_config *c, const uint8_t *row, size_t token, size_t head,
                          size_t i)
{
    if (is_external(tested))
        return ((const float *)(const void *)row)[token * H * (DK + DV) + H * DK + head * DV + i];
    if (!reads_codes(tested))
        return half_at(row + token * kv_canonical_token_bytes(c) + 2 * (H * DK + head * DV + i));
    const uint8_t *value = row + token * H * (DK + DV + 8) + H * (DK + 4) + head * (DV + 4); /* one group each */
    return half_at(value + DV) * (float)value[i] + half_at(value + DV + 2);
}

/* Donors outlive and ignore what happens to their source. */
static void donors_do_not_change(void **state)
{
    (void)state;
    if (no_keys())
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *c = serial(&f, 1, 70);
    struct sennit_donor *d = NULL;
    struct sennit_donor_attention *a = NULL;
    if (c->ops->no_planes) {
        REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_rows(c, &d, err));
        REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_attention(c, &a, err));
        assert_true(!d && !a);
        assert_continues(&f, c, 0, 1, 70);
        sennit_cache_dispose(&c);
        close_fixture(&f);
        return;
    }
    float q[H * GROUP * DK], before[WIDTH], after[WIDTH];
    token_query(3, H * GROUP * DK, q);
    OK(sennit_cache_capture_donor_rows(c, &d, err));
    OK(sennit_cache_capture_donor_attention(c, &a, err));
    const char *dtype = is_rotated(tested) ? "turboquant k8 v4" : reads_codes(tested) ? "affine k8 v4 g32" : "F16";
    assert_string_equal(a->dtype, is_external(tested) ? "raw as it comes" : dtype);
    OK(sennit_donor_attend(a, q, n_heads_of(&f.g), 1, 0.25f, NULL, before, err));
    size_t n, m;
    uint8_t *x = canonical_spans(sn_donor_cache(d), d->planes, d->n_planes, 0, 70, &n);
    OK(sennit_cache_trim(c, 10, false, err));
    feed(&f, c, 0, 800, 30, NULL);
    sennit_cache_dispose(&c);
    uint8_t *y = canonical_spans(sn_donor_cache(d), d->planes, d->n_planes, 0, 70, &m);
    assert_true(n == m && memcmp(x, y, n) == 0);
    OK(sennit_donor_attend(a, q, n_heads_of(&f.g), 1, 0.25f, NULL, after, err));
    assert_memory_equal(before, after, sizeof before);
    uint8_t mask[70] = {0};
    OK(sennit_donor_attend(a, q, n_heads_of(&f.g), 1, 0.25f, mask, after, err));
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(after[i] == 0.0f); /* a query that sees nothing gives zeros */
    mask[7] = 1;                       /* one key: its value */
    OK(sennit_donor_attend(a, q, n_heads_of(&f.g), 1, 0.25f, mask, after, err));
    for (size_t h = 0; h < H * GROUP && !is_rotated(tested); h++) /* turbo_test.c has the other */
        for (size_t i = 0; i < DV; i++)
            assert_true(after[h * DV + i] == stored_value(&f.g.config, x, 7, h / GROUP, i));
    if (f.g.config.n_kv_heads != 1) /* no multiple */
        REFUSED(SENNIT_INVALID, sennit_donor_attend(a, q, 3, 1, 0.25f, NULL, after, err));
    free(x);
    free(y);
    sennit_donor_free(d);
    sennit_donor_attention_free(a);
    close_fixture(&f);
}

/* Two threads on one ragged step, several segments: the same bits as one, and clean under the
 * thread sanitizer. */
static void threads_change_nothing(void **state)
{
    (void)state;
    enum { LONG = 40 };
    static float out[2][LONG + 1][WIDTH];
    struct fixture f;
    open_fixture(&f, 2);
    struct sn_heap heap;
    struct sn_pool *threads;
    sn_heap_init(&heap, NULL);
    OK(sn_pool_create(&threads, &heap, 2, false, err));
    for (int two = 0; two < 2; two++) {
        struct sennit_cache *rows[] = {serial(&f, 0, 600), serial(&f, 5000, 250)}, *batch = merged(rows, 2);
        uint64_t tokens[LONG];
        for (uint32_t i = 0; i < LONG; i++)
            tokens[i] = 30000 + i;
        struct work_span spans[] = {{.row = 0, .tokens = tokens, .n_tokens = 1, .out = out[two][LONG]},
                                    {.row = 1, .tokens = tokens, .n_tokens = LONG, .out = out[two][0]}};
        struct step_options options = {.rng = &f.rng, .threads = two ? threads : NULL};
        OK(run_step(batch, &f.g, spans, 2, &options, err));
        sennit_cache_dispose(&rows[0]);
        sennit_cache_dispose(&rows[1]);
        sennit_cache_dispose(&batch);
    }
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    sn_pool_destroy(threads);
    close_fixture(&f);
}

/* A token's output is the same from a decode step, from a prefill tile and from another family of the same bits, over
 * five segments whose merging order matters. */
static void decode_equals_prefill(void **state)
{
    (void)state;
    if (no_keys())
        skip();
    enum { BEFORE = 1100, LAST = 30 };
    static float one[LAST][WIDTH], many[LAST][WIDTH], other[LAST][WIDTH];
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *a = serial(&f, 0, BEFORE), *b = serial(&f, 0, BEFORE), *c;
    for (uint32_t i = 0; i < LAST; i++)
        feed(&f, a, 0, BEFORE + i, 1, one[i]);
    feed(&f, b, 0, BEFORE, LAST, many[0]);
    assert_memory_equal(one, many, sizeof one);
    struct geometry other_g = f.g;
    if (tested->oracles[1]) {
        other_g.config.family = tested->oracles[1];
        other_g.config.page_tokens = 0;
    }
    if (tested->open_oracle)
        tested->open_oracle(&c, f.pool, &other_g);
    else
        OK(sennit_cache_create(&c, f.pool, &other_g.config, 1, err));
    feed(&f, c, 0, 0, BEFORE, NULL);
    feed(&f, c, 0, BEFORE, LAST, other[0]);
    assert_memory_equal(one, other, sizeof one);
    sennit_cache_dispose(&a);
    sennit_cache_dispose(&b);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Learned sinks and a soft cap take part in the same order everywhere: checked against one key by
 * hand. */
static void sink_joins_the_sum(void **state)
{
    (void)state;
    if (no_keys())
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    static const float sinks[] = {0.5f, 100.0f, -100.0f, 0.0f};
    float out[WIDTH], plain[WIDTH];
    struct sennit_cache *c = serial(&f, 0, 0);
    feed(&f, c, 0, 42, 1, plain);
    OK(sennit_cache_trim(c, 1, false, err));
    f.g.sinks = sinks;
    feed(&f, c, 0, 42, 1, out);
    size_t d_v = d_out_of(&f.g);
    for (size_t d = 0; d < d_v; d++)
        assert_true(out[d_v + d] * out[d_v + d] < 1e-20f); /* a sink of 100 takes all */
    for (size_t d = 2 * d_v; d < 3 * d_v && n_heads_of(&f.g) > 2; d++)
        assert_true(out[d] == plain[d]); /* one of -100 nothing */
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Steps of several caches may be open at once; a begin that must grow the scratch of another's plan
 * is refused. */
static void plans_do_not_collide(void **state)
{
    (void)state;
    if (strcmp(family, "plain") != 0)
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *a = serial(&f, 0, 10), *b = serial(&f, 0, 2500);
    struct sennit_span one = {.row = 0, .pos = 10, .n_tokens = 1}, big = {.row = 0, .pos = 2500, .n_tokens = 4};
    float x[WIDTH * 8] = {0};
    struct sennit_attend_inputs in = {.query = x, .out = x, .scale = 1};
    uint32_t items, merges;
    OK(sennit_cache_append_begin(a, &one, 1, H * GROUP, err));
    sennit_cache_attend_plan(a, &in, &items, &merges);
    if (f.pool->step.n_bytes < 9000) /* what b's partial results take */
        REFUSED(SENNIT_STATE, sennit_cache_append_begin(b, &big, 1, H * GROUP, err));
    sennit_cache_append_abort(a);
    OK(sennit_cache_append_begin(b, &big, 1, H * GROUP, err));
    sennit_cache_attend_plan(b, &in, &items, &merges);
    assert_true(items == H * 10 && merges == H);
    sennit_cache_append_abort(b);
    sennit_cache_dispose(&a);
    sennit_cache_dispose(&b);
    close_fixture(&f);
}

/* Sizes that cannot be are refused; stores of different page sizes are different kinds. */
static void page_sizes_are_kinds(void **state)
{
    (void)state;
    if (no_keys())
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    static const uint32_t wrong[] = {3, 5, 63, 65, 128, UINT32_MAX};
    struct sennit_cache *c = serial(&f, 1, 70), *other = NULL, *batch, *out = NULL;
    struct sennit_cache_config config = f.g.config;
    for (size_t i = 0; i < SN_ARRAY_LEN(wrong); i++) {
        config.page_tokens = wrong[i];
        REFUSED(SENNIT_INVALID, sennit_cache_create(&other, f.pool, &config, 1, err));
    }
    config.page_tokens = 16;
    if (!tested->paged) {
        REFUSED(SENNIT_INVALID, sennit_cache_create(&other, f.pool, &config, 1, err));
        sennit_cache_dispose(&c);
        close_fixture(&f);
        return;
    }
    OK(sennit_cache_create(&other, f.pool, &config, 1, err));
    OK(sennit_cache_make_empty_batch(other, &batch, err));
    const struct sennit_cache *sources[] = {other, c};
    if (strcmp(family, "plain") == 0)
        assert_string_equal(sennit_cache_signature(other), "plain F16 kv 2 k 32 v 32 / p16");
    assert_non_null(strstr(sennit_cache_signature(other), " / p16"));
    REFUSED(SENNIT_INVALID, sennit_cache_merge_rows(batch, sources, 2, err));
    struct memory m;
    struct sennit_stream s = memory_writer(&m);
    OK(sennit_cache_save(c, 0, &s, err));
    s = memory_reader(&m);
    REFUSED(SENNIT_INVALID, sennit_cache_load(other, &s, &out, err));
    config.page_tokens = 64; /* the default by its name */
    struct sennit_cache *same;
    OK(sennit_cache_create(&same, f.pool, &config, 1, err));
    assert_int_equal(strcmp(sennit_cache_signature(same), sennit_cache_signature(c)) == 0, page_tokens == 0);
    free(m.data);
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&other);
    sennit_cache_dispose(&batch);
    sennit_cache_dispose(&same);
    close_fixture(&f);
}

/* The hostile build does what it says: an append moves the last block and page, a trim the block; the bits stay. */
static void hostile_storage_moves(void **state)
{
    (void)state;
    if (!chained())
        skip();
    struct fixture f;
    open_fixture(&f, 1);
    sn_cache_pool_set_hostile(f.pool, true);
    struct sennit_cache *c = serial(&f, 1, 64);
    for (uint32_t n = 64; n < 70; n++) {
        const struct sn_table *before = c->rows[0].store;
        const struct sn_page *page = before->page[before->n_pages - 1];
        feed(&f, c, 0, 1 + n, 1, NULL);
        const struct sn_table *after = c->rows[0].store;
        assert_ptr_not_equal(before, after);
        for (uint32_t i = 0; i < after->n_pages; i++)
            assert_ptr_not_equal(page, after->page[i]);
    }
    const struct sn_table *before = c->rows[0].store;
    OK(sennit_cache_trim(c, 1, false, err));
    assert_ptr_not_equal(before, c->rows[0].store);
    assert_int_equal(sennit_pool_bytes(f.pool), sennit_cache_current_bytes(c, 0));
    assert_continues(&f, c, 0, 1, 69);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_kinds_are_refused),
        cmocka_unit_test(projected_bytes_are_exact),
        cmocka_unit_test(reserve_covers_the_peak),
        cmocka_unit_test(clones_are_references),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(rows_do_not_mix),
        cmocka_unit_test(flags_are_true),
        cmocka_unit_test(bypass_reaches_the_last_append),
        cmocka_unit_test(bounds_hold_inside_rounds),
        cmocka_unit_test(damaged_streams_are_refused),
        cmocka_unit_test(donors_do_not_change),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(decode_equals_prefill),
        cmocka_unit_test(sink_joins_the_sum),
        cmocka_unit_test(plans_do_not_collide),
        cmocka_unit_test(page_sizes_are_kinds),
        cmocka_unit_test(hostile_storage_moves),
    };
    int failed = 0;
    all_families_are_tested();
    for (const struct tested_family *const *f = tested_families; *f; f++) {
        tested = *f;
        family = family_of(tested);
        printf("family %s\n", tested->name);
        failed += cmocka_run_group_tests_name(tested->name, tests, NULL, NULL);
    }
    page_tokens = 4;
    for (const struct tested_family *const *f = tested_families; *f; f++) {
        tested = *f;
        family = family_of(tested);
        if (!tested->paged)
            continue;
        printf("family %s, pages of 4\n", tested->name);
        failed += cmocka_run_group_tests_name("pages of 4", tests, NULL, NULL);
    }
    return failed != 0;
}
