/* Changes of precision by name: who reads which form, where the boundary is, and every call around it that is
 * refused. */
#include "cache/delayed_common.h"

/* ---- who reads what ------------------------------------------------------------------------------------------- */

/* In f32, which keeps what comes: every output before start is the plain family's, every one from start on is the
 * encoded family's, its own token included, to the bit, in any chunks. */
static void queries_read_by_position(void **state)
{
    (void)state;
    static const uint64_t starts[] = {0, 1, 2, 15, 16, 17, 63, 64, 65, 100, 257};
    static float got[300][WIDTH], plain[300][WIDTH], code[300][WIDTH];
    for (size_t s = 0; s < SN_ARRAY_LEN(starts); s++)
        for (uint32_t chunk = 1; chunk <= 125; chunk += 31) {
            struct fixture f;
            open_fixture_on(&f, SENNIT_F32, starts[s], s % 2 ? 64 : 8, NULL);
            struct sennit_cache *all[3] = {serial(&f, 0, 0)};
            for (int i = 1; i < 3; i++) {
                struct sennit_cache_config config = {
                    .family = i == 1 ? "plain" : "affine", .n_kv_heads = H, .d_k = DK, .d_v = DV};
                if (i == 2)
                    config.code = codes.code;
                OK(sennit_cache_create(&all[i], f.pool, &config, 1, err));
            }
            feed_in(&f, all[0], 0, 1, 300, chunk, got[0]);
            feed(&f, all[1], 0, 1, 300, plain[0]);
            feed(&f, all[2], 0, 1, 300, code[0]);
            assert_memory_equal(got, plain, starts[s] * sizeof got[0]);
            assert_memory_equal(got + starts[s], code + starts[s], (300 - starts[s]) * sizeof got[0]);
            assert_memory_not_equal(plain[299], code[299], sizeof plain[299]);
            for (int i = 0; i < 3; i++)
                sennit_cache_dispose(&all[i]);
            close_fixture(&f);
        }
}

/* A row's boundary is its own count: rows of all lengths around it in one batch, each as it is alone. */
static void company_moves_no_boundary(void **state)
{
    (void)state;
    enum { N = 6, START = 20, STEPS = 12 };
    struct fixture f;
    open_fixture(&f, START, 8);
    struct sennit_cache *rows[N];
    for (uint32_t i = 0; i < N; i++)
        rows[i] = serial(&f, 1000 * i, 12 + 2 * i);
    struct sennit_cache *batch = merged(rows, N);
    for (uint32_t step = 0; step < STEPS; step++) {
        struct work_span spans[N];
        uint64_t tokens[N];
        float got[N][WIDTH], want[WIDTH];
        for (uint32_t i = 0; i < N; i++) {
            uint64_t n = 12 + 2 * i + step;
            tokens[i] = 1000 * i + n;
            spans[i] = (struct work_span){.row = i, .tokens = &tokens[i], .n_tokens = 1, .out = got[i]};
            assert_int_equal(sennit_cache_max_append_tokens(batch, i), n < START ? START - n : SENNIT_UNBOUNDED);
            assert_int_equal(floor_of(batch, i), n > START ? START : 0);
        }
        struct step_options options = {.rng = &f.rng};
        OK(run_step(batch, &f.g, spans, N, &options, err));
        for (uint32_t i = 0; i < N; i++) {
            feed(&f, rows[i], 0, tokens[i], 1, want);
            assert_memory_equal(got[i], want, sizeof want);
            assert_int_equal(encoded(batch, i), 12 + 2 * i + step >= START);
        }
    }
    for (uint32_t i = 0; i < N; i++)
        sennit_cache_dispose(&rows[i]);
    sennit_cache_dispose(&batch);
    close_fixture(&f);
}

/* A span that crosses is refused whole, whatever else is in the step; one that ends at start, or begins there, is
 * not. */
static void spans_do_not_cross(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 20, 8);
    struct sennit_cache *rows[] = {serial(&f, 1, 15), serial(&f, 100, 30)}, *batch = merged(rows, 2);
    uint64_t before = imprint(&f, batch);
    struct sennit_span spans[] = {{.row = 1, .pos = 30, .n_tokens = 5}, {.row = 0, .pos = 15, .n_tokens = 6}};
    REFUSED(SENNIT_RANGE, sennit_cache_append_begin(batch, spans, 2, HEADS, err));
    REFUSED(SENNIT_RANGE, try_one(&f, batch, 0, 6, err));
    REFUSED(SENNIT_RANGE, try_one(&f, batch, 1, MOST + 1, err)); /* above max_span */
    assert_true(imprint(&f, batch) == before);
    spans[1].n_tokens = 5;
    spans[1].first_token = 5;
    OK(sennit_cache_append_begin(batch, spans, 2, HEADS, err));
    sennit_cache_append_abort(batch);
    assert_true(imprint(&f, batch) == before);
    feed(&f, batch, 0, 16, 5, NULL);
    assert_true(!encoded(batch, 0) && sennit_cache_max_append_tokens(batch, 0) == SENNIT_UNBOUNDED);
    feed(&f, batch, 0, 21, 40, NULL);
    assert_true(encoded(batch, 0));
    assert_continues(&f, batch, 0, 1, 60);
    for (int i = 0; i < 2; i++)
        sennit_cache_dispose(&rows[i]);
    sennit_cache_dispose(&batch);
    close_fixture(&f);
}

/* ---- back to where it was ------------------------------------------------------------------------------------- */

/* Down to start exactly, a row trimmed there stays encoded, and below it is refused; a row that has not changed goes
 * anywhere. What can be published is what can be trimmed to. */
static void trims_end_at_start(void **state)
{
    (void)state;
    enum { START = 21 };
    for (uint32_t n = 1; n < 50; n++)
        for (uint32_t k = 1; k <= n; k++) {
            struct fixture f;
            open_fixture(&f, START, 8);
            struct sennit_cache *c = serial(&f, 1, n);
            uint64_t before = imprint(&f, c), floor = n > START ? START : 0;
            struct sennit_error err = {0};
            bool may = sennit_cache_can_publish_row(c, 0, n - k);
            assert_int_equal(floor_of(c, 0), floor);
            assert_true(may == (n - k >= floor));
            sennit_status status = sennit_cache_trim(c, k, k % 2 == 0, &err);
            if (k % 2 == 0 && n > START && k > n - START) /* the last append began at start */
                assert_int_equal(status, SENNIT_RANGE);
            else
                assert_int_equal(status, may ? SENNIT_OK : SENNIT_RANGE);
            if (status != SENNIT_OK)
                assert_true(imprint(&f, c) == before);
            uint32_t left = status == SENNIT_OK ? n - k : n;
            assert_true(encoded(c, 0) == (n > START) && floor_of(c, 0) == floor);
            assert_int_equal(sennit_pool_bytes(f.pool), stored(c, n > START, left));
            assert_continues(&f, c, 0, 1, left);
            sennit_cache_dispose(&c);
            close_fixture(&f);
        }
}

/* A round that begins below start ends there; one that begins at start changes the row, which then reads as any other
 * at start, whatever is kept. */
static void rounds_do_not_cross(void **state)
{
    (void)state;
    enum { START = 21, DEPTH = 8 };
    for (uint32_t at = START - DEPTH - 1; at < START + 3; at++)
        for (uint64_t keep = 0; keep <= DEPTH; keep++) {
            struct fixture f;
            open_fixture(&f, START, 8);
            struct sennit_cache *c = serial(&f, 1, at);
            uint32_t room = at < START && START - at < DEPTH ? START - at : DEPTH;
            if (keep > room) {
                sennit_cache_dispose(&c);
                close_fixture(&f);
                continue;
            }
            OK(sennit_cache_spec_round_begin(c, err));
            feed(&f, c, 0, 1 + at, (uint32_t)keep, NULL);
            uint64_t before = imprint(&f, c);
            if (room < DEPTH) {
                REFUSED(SENNIT_RANGE, try_one(&f, c, 0, room - (uint32_t)keep + 1, err));
                assert_true(imprint(&f, c) == before);
            }
            feed(&f, c, 0, 500, room - (uint32_t)keep, NULL);
            if (room < DEPTH)
                assert_int_equal(sennit_cache_max_append_tokens(c, 0), 0);
            OK(sennit_cache_spec_round_rollback(c, &keep, err));
            assert_true(encoded(c, 0) == (at >= START));
            assert_int_equal(floor_of(c, 0), at >= START ? START : 0);
            assert_continues(&f, c, 0, 1, at + (uint32_t)keep);
            sennit_cache_dispose(&c);
            close_fixture(&f);
        }
}

/* A step that is given up leaves its row changed and otherwise as it was. */
static void an_aborted_step_keeps_the_change(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 21, 8);
    struct sennit_cache *rows[] = {serial(&f, 1, 21), serial(&f, 100, 9)}, *batch = merged(rows, 2);
    for (int i = 0; i < 2; i++)
        sennit_cache_dispose(&rows[i]);
    struct sennit_span spans[] = {{.row = 0, .pos = 21, .n_tokens = 9},
                                  {.row = 1, .pos = 9, .n_tokens = 3, .first_token = 9}};
    OK(sennit_cache_append_begin(batch, spans, 2, HEADS, err));
    sennit_cache_append_abort(batch);
    assert_int_equal(sennit_cache_row_offset(batch, 0), 21);
    assert_true(encoded(batch, 0) && floor_of(batch, 0) == 21 && !encoded(batch, 1));
    assert_int_equal(sennit_pool_bytes(f.pool), stored(batch, true, 21) + stored(batch, false, 9));
    assert_continues(&f, batch, 0, 1, 21);
    assert_continues(&f, batch, 1, 100, 9);
    sennit_cache_dispose(&batch);
    close_fixture(&f);
}

/* ---- streams and copies --------------------------------------------------------------------------------------- */

static struct sennit_cache *reloaded(const struct sennit_cache *c)
{
    struct memory m;
    struct sennit_cache *out = NULL;
    struct sennit_stream s = memory_writer(&m);
    OK(sennit_cache_save(c, 0, &s, err));
    s = memory_reader(&m);
    OK(sennit_cache_load(c, &s, &out, err));
    free(m.data);
    return out;
}

/* Form and floor go with the row; a record whose floor cannot be is refused. */
static void records_keep_the_form(void **state)
{
    (void)state;
    enum { START = 21 };
    struct fixture f;
    open_fixture(&f, START, 8);
    for (uint32_t n = 0; n < 40; n++) {
        struct sennit_cache *c = serial(&f, 1, n), *back = reloaded(c);
        assert_true(cache_fingerprint(c) == cache_fingerprint(back) && encoded(c, 0) == encoded(back, 0));
        assert_int_equal(sennit_cache_current_bytes(c, 0), sennit_cache_current_bytes(back, 0));
        assert_continues(&f, back, 0, 1, n);
        sennit_cache_dispose(&back);
        if (n > START) { /* trimmed to start, where it stays encoded */
            OK(sennit_cache_trim(c, n - START, false, err));
            back = reloaded(c);
            assert_true(encoded(back, 0) && floor_of(back, 0) == START);
            assert_continues(&f, back, 0, 1, START);
            REFUSED(SENNIT_RANGE, sennit_cache_trim(back, 1, false, err));
            sennit_cache_dispose(&back);
        }
        struct memory m;
        struct sennit_cache *out = NULL;
        struct sennit_stream s = memory_writer(&m);
        uint64_t bytes = sennit_pool_bytes(f.pool);
        bool code = encoded(c, 0);
        c->rows[0].floor = code ? START - 1 : n < START && n > 0 ? n : START + 1;
        uint64_t right = code ? START : 0;
        if (c->rows[0].floor <= sennit_cache_row_offset(c, 0)) {
            OK(sennit_cache_save(c, 0, &s, err));
            s = memory_reader(&m);
            REFUSED(SENNIT_FORMAT, sennit_cache_load(c, &s, &out, err));
            assert_true(!out && sennit_pool_bytes(f.pool) == bytes);
            free(m.data);
        }
        c->rows[0].floor = right;
        sennit_cache_dispose(&c);
    }
    close_fixture(&f);
}

/* Rows of both forms in one layout, merged, reordered, extracted, with their floors. */
static void forms_share_a_batch(void **state)
{
    (void)state;
    enum { START = 21 };
    static const uint32_t n[] = {5, 60, 21, 22, 0}, order[] = {3, 0, 4, 1, 2};
    struct fixture f;
    open_fixture(&f, START, 8);
    struct sennit_cache *rows[5], *one;
    for (uint32_t i = 0; i < 5; i++)
        rows[i] = serial(&f, 1000 * i, n[i]);
    OK(sennit_cache_trim(rows[1], 60 - START, false, err));
    struct sennit_cache *batch = merged(rows, 5);
    for (uint32_t i = 0; i < 5; i++)
        sennit_cache_dispose(&rows[i]);
    assert_int_equal(sennit_cache_minimum_reusable_offset(batch, -1), START);
    assert_string_equal(sn_forms_dtype(forms_of(batch), batch), "mixed");
    OK(sennit_cache_filter_rows(batch, order, 5, err));
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t was = order[i], left = was == 1 ? START : n[was];
        bool code = was == 1 || was == 3;
        OK(sennit_cache_extract_row(batch, i, &one, err));
        assert_true(encoded(batch, i) == code && encoded(one, 0) == code);
        assert_int_equal(floor_of(one, 0), code ? START : 0);
        assert_continues(&f, one, 0, 1000 * was, left);
        assert_continues(&f, batch, i, 1000 * was, left);
        sennit_cache_dispose(&one);
    }
    sennit_cache_dispose(&batch);
    close_fixture(&f);
}

/* ---- prefill maintenance -------------------------------------------------------------------------------------- */

static void prefill_suspends_the_change(void **state)
{
    (void)state;
    enum { START = 21 };
    struct fixture f;
    open_fixture(&f, START, 8);
    struct sennit_cache *rows[] = {serial(&f, 0, 15), serial(&f, 1000, 21), serial(&f, 2000, 21),
                                   serial(&f, 3000, 30)};
    struct sennit_cache *batch = merged(rows, 4), *copy;
    static const uint32_t one[] = {1}, all[] = {3, 2, 1, 0}, twice[] = {1, 1}, none[] = {4};
    REFUSED(SENNIT_STATE, sennit_cache_end_prefill(batch, err));
    REFUSED(SENNIT_STATE, sennit_cache_commit_prefill(batch, one, 1, err));
    OK(sennit_cache_begin_prefill(batch, err));
    REFUSED(SENNIT_STATE, sennit_cache_begin_prefill(batch, err));
    REFUSED(SENNIT_INVALID, sennit_cache_commit_prefill(batch, twice, 2, err));
    REFUSED(SENNIT_RANGE, sennit_cache_commit_prefill(batch, none, 1, err));
    feed(&f, batch, 0, 15, 6, NULL); /* up to start */
    feed(&f, batch, 3, 3030, 5, NULL);
    uint64_t before = imprint(&f, batch);
    for (uint32_t r = 0; r < 3; r++) {
        REFUSED(SENNIT_RANGE, try_one(&f, batch, r, 1, err));
        assert_int_equal(sennit_cache_max_append_tokens(batch, r), 0);
    }
    OK(sennit_cache_spec_round_begin(batch, err)); /* no way round it */
    REFUSED(SENNIT_RANGE, try_one(&f, batch, 1, 1, err));
    OK(sennit_cache_spec_round_commit(batch, err));
    assert_true(imprint(&f, batch) == before);
    OK(sennit_cache_commit_prefill(batch, one, 1, err));
    assert_true(!encoded(batch, 0) && encoded(batch, 1) && !encoded(batch, 2) && encoded(batch, 3));
    feed(&f, batch, 1, 1021, 4, NULL);
    REFUSED(SENNIT_RANGE, try_one(&f, batch, 0, 1, err));
    OK(sennit_cache_clone(batch, 2, &copy, err)); /* suspended is the layout, not the row */
    feed(&f, copy, 0, 2021, 1, NULL);
    OK(sennit_cache_end_prefill(batch, err));
    assert_true(!encoded(batch, 0) && !encoded(batch, 2)); /* due at their next token */
    feed(&f, batch, 0, 21, 1, NULL);
    assert_true(encoded(batch, 0));
    OK(sennit_cache_begin_prefill(batch, err));
    OK(sennit_cache_commit_prefill(batch, all, 4, err));
    OK(sennit_cache_end_prefill(batch, err));
    assert_true(encoded(batch, 2));
    static const uint32_t left[] = {22, 25, 21, 35};
    for (uint32_t r = 0; r < 4; r++) {
        assert_continues(&f, batch, r, 1000 * r, left[r]);
        sennit_cache_dispose(&rows[r]);
    }
    sennit_cache_dispose(&copy);
    sennit_cache_dispose(&batch);
    close_fixture(&f);
}

/* ---- configurations ------------------------------------------------------------------------------------------- */

static void bad_forms_are_refused(void **state)
{
    (void)state;
    static const struct sennit_cache_config bad_inner[] = {
        {.family = "plain"},
        {.family = "naive"},
        {.family = "window"},
        {.family = "delayed"},
        {.family = "mla"},
        {.family = "bogus"},
        {.family = NULL},
        {.family = "affine"},
        {.family = "affine", .code = {.k_bits = 8, .v_bits = 8, .group = 64}}, /* does not divide 32 */
        {.family = "affine", .code = {.k_bits = 8, .v_bits = 8, .group = 32}, .d_k = 32},
        {.family = "affine", .code = {.k_bits = 8, .v_bits = 8, .group = 32}, .max_tokens = 5},
        {.family = "affine", .code = {.k_bits = 8, .v_bits = 8, .group = 32}, .start = 5},
        {.family = "affine", .code = {.k_bits = 8, .v_bits = 8, .group = 32}, .role = "inner"},
    };
    struct fixture f;
    open_fixture(&f, 21, 8);
    struct sennit_cache *c = NULL;
    for (size_t i = 0; i < SN_ARRAY_LEN(bad_inner); i++) {
        struct sennit_cache_config config = f.g.config;
        config.inner = &bad_inner[i];
        REFUSED(SENNIT_INVALID, sennit_cache_create(&c, f.pool, &config, 1, err));
    }
    for (int i = 0; i < 7; i++) {
        struct sennit_cache_config config = f.g.config;
        config.n_inner = i == 0 ? 0 : i == 1 ? 2 : 1;
        config.inner = i == 2 ? NULL : &codes;
        config.start = i == 3 ? UINT64_MAX : 21;
        config.code.group = i == 4 ? 32 : 0;
        config.window.tokens = i == 5;
        config.k_type = i == 6 ? SENNIT_I8 : SENNIT_F16;
        REFUSED(SENNIT_INVALID, sennit_cache_create(&c, f.pool, &config, 1, err));
    }
    struct sennit_cache_config plain = f.g.config;
    plain.family = "plain";
    plain.n_inner = 0;
    plain.inner = NULL;
    REFUSED(SENNIT_INVALID, sennit_cache_create(&c, f.pool, &plain, 1, err));
    assert_null(c);
    struct sennit_cache *other, *empty;
    c = serial(&f, 1, 5);
    assert_string_equal(sennit_cache_signature(c), "delayed 21 / plain F16 / affine k8 v4 g32 kv 2 k 32 v 32 / p8");
    f.g.config.start = 22;
    other = serial(&f, 1, 5);
    OK(sennit_cache_make_empty_batch(c, &empty, err));
    const struct sennit_cache *sources[] = {other};
    REFUSED(SENNIT_INVALID, sennit_cache_merge_rows(empty, sources, 1, err));
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&other);
    sennit_cache_dispose(&empty);
    close_fixture(&f);
}

/* The same as a window's store: everything but the code and start is the window's own. */
static void bad_forms_in_windows_are_refused(void **state)
{
    (void)state;
    static const struct sennit_cache_config plain = {.family = "plain"}, twice = {.family = "delayed", .start = 3};
    static const struct sennit_cache_config bad[] = {
        {.family = "delayed", .start = 21},
        {.family = "delayed", .start = 21, .inner = &codes, .n_inner = 2},
        {.family = "delayed", .start = 21, .inner = &plain, .n_inner = 1},
        {.family = "delayed", .start = 21, .inner = &twice, .n_inner = 1},
        {.family = "delayed", .start = UINT64_MAX, .inner = &codes, .n_inner = 1},
        {.family = "delayed", .start = 21, .inner = &codes, .n_inner = 1, .k_type = SENNIT_F16},
        {.family = "delayed", .start = 21, .inner = &codes, .n_inner = 1, .d_k = 32},
        {.family = "delayed", .start = 21, .inner = &codes, .n_inner = 1, .page_tokens = 8},
        {.family = "delayed", .start = 21, .inner = &codes, .n_inner = 1, .max_span = 8},
        {.family = "delayed", .start = 21, .inner = &codes, .n_inner = 1, .code = {.group = 32}},
        {.family = "plain", .start = 21},
    };
    windowed = true;
    struct fixture f;
    open_fixture(&f, 21, 8);
    windowed = false;
    struct sennit_cache *c = NULL;
    for (size_t i = 0; i < SN_ARRAY_LEN(bad); i++) {
        struct sennit_cache_config config = f.g.config;
        config.inner = &bad[i];
        REFUSED(SENNIT_INVALID, sennit_cache_create(&c, f.pool, &config, 1, err));
    }
    struct sennit_cache_config config = f.g.config;
    config.start = 21; /* not the window's own */
    REFUSED(SENNIT_INVALID, sennit_cache_create(&c, f.pool, &config, 1, err));
    config = f.g.config;
    config.k_type = config.v_type = SENNIT_Q8_0;
    REFUSED(SENNIT_INVALID, sennit_cache_create(&c, f.pool, &config, 1, err));
    assert_null(c);
    OK(sennit_cache_create(&c, f.pool, &f.g.config, 1, err));
    assert_string_equal(sennit_cache_signature(c), "window 12 slack 3 kept 5 / delayed 21 / plain F16 / affine k8 v4 "
                                                   "g32 kv 2 k 32 v 32 / p8");
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Start 0: encoded from the first token, as the encoded family alone; nothing ever changes. */
static void start_zero_is_encoded(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 0, 8);
    f.g.config.max_span = 1;
    f.g.config.round_depth = 0;
    struct sennit_cache *c = serial(&f, 1, 0), *code;
    struct sennit_cache_config config = {
        .family = "affine", .n_kv_heads = H, .d_k = DK, .d_v = DV, .page_tokens = 8, .code = codes.code};
    OK(sennit_cache_create(&code, f.pool, &config, 1, err));
    assert_int_equal(sennit_cache_bytes_per_token(c), sennit_cache_bytes_per_token(code));
    for (uint32_t n = 0; n < 40; n++) {
        float got[WIDTH], want[WIDTH];
        assert_int_equal(sennit_cache_max_append_tokens(c, 0), SENNIT_UNBOUNDED);
        assert_int_equal(sennit_cache_projected_bytes(c, n), sennit_cache_projected_bytes(code, n));
        feed(&f, c, 0, n, 1, got);
        feed(&f, code, 0, n, 1, want);
        assert_memory_equal(got, want, sizeof got);
        assert_int_equal(floor_of(c, 0), 0);
    }
    struct sennit_cache *back = reloaded(c);
    assert_true(encoded(back, 0));
    OK(sennit_cache_trim(back, 40, false, err));
    sennit_cache_dispose(&back);
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&code);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_read_by_position),
        cmocka_unit_test(company_moves_no_boundary),
        cmocka_unit_test(spans_do_not_cross),
        cmocka_unit_test(trims_end_at_start),
        cmocka_unit_test(rounds_do_not_cross),
        cmocka_unit_test(an_aborted_step_keeps_the_change),
        cmocka_unit_test(records_keep_the_form),
        cmocka_unit_test(forms_share_a_batch),
        cmocka_unit_test(prefill_suspends_the_change),
        cmocka_unit_test(bad_forms_are_refused),
        cmocka_unit_test(bad_forms_in_windows_are_refused),
        cmocka_unit_test(start_zero_is_encoded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
