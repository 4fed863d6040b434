/* Recurrent layers: rows whose state is replaced, never trimmed. One named case for each thing that went wrong in
 * batching engines (docs/contract.md lists them); every case runs for each kind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/fixture.h"
#include "cache/recur_common.h"

enum { MAX_WIDTH = 300, KERNEL = 4 };

static const char *kind; /* the one under test */

static struct geometry layer(void)
{
    struct geometry g = {.config = {.family = "recurrent", .round_depth = 6}};
    bool straight = strcmp(kind, "short-conv") == 0;
    struct recur_sizes s = {.kind = kind,
                            .n_heads = 4,
                            .n_key_heads = 2,
                            .d_state = 9,
                            .d_head = straight ? 300 : 20,
                            .kernel = KERNEL,
                            .bias = true,
                            .key_head_mod = true,
                            .skip = true};
    recur_geometry(&g, &s);
    return g;
}

/* Floats of a token's output. */
static size_t width_of(const struct fixture *f)
{
    return (size_t)n_heads_of(&f->g) * d_out_of(&f->g);
}

static void open_fixture(struct fixture *f, uint32_t n_workers)
{
    struct geometry g = layer();
    fixture_open(f, &g, 5, &(struct sennit_pool_options){.n_workers = n_workers});
    assert_true(width_of(f) <= MAX_WIDTH);
}

/* The sources go. */
static struct sennit_cache *joined(struct sennit_cache **sources, uint32_t n)
{
    struct sennit_cache *c = merged(sources, n);
    for (uint32_t i = 0; i < n; i++)
        sennit_cache_dispose(&sources[i]);
    return c;
}

/* The row's state is that of the n tokens alone, to the bit, and no NaN is in it; so is the output of one token more,
 * which the row keeps. */
static void assert_is(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n)
{
    float got[MAX_WIDTH], want[MAX_WIDTH];
    size_t a_bytes, b_bytes;
    struct sennit_cache *alone = serial(f, seed, n);
    assert_int_equal(sennit_cache_row_offset(c, row), n);
    uint8_t *a = canonical_row(c, row, &a_bytes), *b = canonical_row(alone, 0, &b_bytes);
    assert_int_equal(a_bytes, b_bytes);
    if (a_bytes)
        assert_memory_equal(a, b, a_bytes);
    for (size_t i = 0; i < a_bytes / 4; i++)
        assert_true(isfinite(((float *)(void *)a)[i]));
    feed(f, c, row, 9999, 1, got);
    feed(f, alone, 0, 9999, 1, want);
    assert_memory_equal(got, want, width_of(f) * sizeof *got);
    for (size_t i = 0; i < width_of(f); i++)
        assert_true(isfinite(got[i]));
    free(a);
    free(b);
    sennit_cache_dispose(&alone);
}

/* Rule 7. Rows of unequal length in one step, some with nothing to do, among free states full of
 * NaN: each is what it is alone, and no step touches a row that is not in it. */
static void unequal_rows_do_not_mix(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *gone[6], *rows[5];
    for (uint32_t i = 0; i < 6; i++)
        gone[i] = serial(&f, 70000 * i, 20); /* their freed states are NaN from here on */
    for (uint32_t i = 0; i < 6; i++)
        sennit_cache_dispose(&gone[i]);
    static const uint32_t start[] = {12, 3, 0, 1, 30}, add[] = {0, 7, 2, 0, 1};
    uint64_t tokens[5][7];
    for (uint32_t i = 0; i < 5; i++)
        rows[i] = serial(&f, 1000 * i, start[i]);
    struct sennit_cache *batch = joined(rows, 5);
    struct work_span spans[5];
    uint32_t n_spans = 0;
    const void *idle = batch->rows[0].store;
    for (uint32_t i = 0; i < 5; i++) {
        for (uint32_t t = 0; t < add[i]; t++)
            tokens[i][t] = 1000 * i + start[i] + t;
        if (add[i])
            spans[n_spans++] = (struct work_span){.row = i, .tokens = tokens[i], .n_tokens = add[i]};
    }
    struct step_options options = {.rng = &f.rng};
    OK(run_step(batch, &f.g, spans, n_spans, &options, err));
    assert_ptr_equal(batch->rows[0].store, idle);
    for (uint32_t i = 0; i < 5; i++)
        assert_is(&f, batch, i, 1000 * i, start[i] + add[i]);
    sennit_cache_dispose(&batch);
    close_fixture(&f);
}

/* Rule 8. Never used with used, in every position, both orders, filtered, extracted, used. */
static void unused_rows_merge(void **state)
{
    (void)state;
    for (uint32_t mask = 0; mask < 8; mask++) {
        struct fixture f;
        open_fixture(&f, 1);
        struct sennit_cache *rows[3], *one;
        uint32_t n[3];
        for (uint32_t i = 0; i < 3; i++) {
            n[i] = mask >> i & 1 ? 5 + i : 0;
            rows[i] = serial(&f, 1000 * i, n[i]);
        }
        struct sennit_cache *batch = joined(rows, 3);
        uint32_t order[] = {2, 0, 1};
        OK(sennit_cache_filter_rows(batch, order, 3, err));
        OK(sennit_cache_extract_row(batch, 1, &one, err));
        for (uint32_t i = 0; i < 3; i++)
            assert_is(&f, batch, i, 1000 * order[i], n[order[i]]);
        sennit_cache_dispose(&batch);
        assert_is(&f, one, 0, 0, n[0]);
        sennit_cache_dispose(&one);
        close_fixture(&f);
    }
}

/* Rule 9. Every accept count of a window, from rows that have 0 to 6 tokens: nothing, part and all of
 * it; three rows that keep different counts at once. */
static void rollback_is_exact(void **state)
{
    (void)state;
    for (uint32_t start = 0; start < 7; start++)
        for (uint32_t window = 0; window <= 6; window++)
            for (uint32_t keep = 0; keep <= window; keep++) {
                struct fixture f;
                open_fixture(&f, 1);
                struct sennit_cache *rows[] = {serial(&f, 0, start), serial(&f, 1000, 2), serial(&f, 2000, start)};
                struct sennit_cache *batch = joined(rows, 3);
                uint64_t kept[] = {keep, 0, window - keep};
                OK(sennit_cache_spec_round_begin(batch, err));
                for (uint32_t i = 0; i < 3; i++) {
                    feed(&f, batch, i, 1000 * i + (i == 1 ? 2 : start), (uint32_t)kept[i], NULL);
                    feed(&f, batch, i, 77777, window - (uint32_t)kept[i], NULL);
                }
                OK(sennit_cache_spec_round_rollback(batch, kept, err));
                assert_int_equal(sennit_cache_current_bytes(batch, 0) == 0, start + keep == 0);
                assert_is(&f, batch, 0, 0, start + keep);
                assert_is(&f, batch, 1, 1000, 2);
                assert_is(&f, batch, 2, 2000, start + window - keep);
                sennit_cache_dispose(&batch);
                close_fixture(&f);
            }
}

/* Rule 9. Two drafts right, no draft, one wrong, no draft: the last accepted state goes on each time. */
static void rounds_follow_each_other(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *c = serial(&f, 0, 5);
    uint64_t keep = 1;
    OK(sennit_cache_spec_round_begin(c, err));
    feed(&f, c, 0, 5, 3, NULL);
    OK(sennit_cache_spec_round_commit(c, err));
    OK(sennit_cache_spec_round_begin(c, err));
    feed(&f, c, 0, 8, 1, NULL);
    OK(sennit_cache_spec_round_commit(c, err));
    OK(sennit_cache_spec_round_begin(c, err));
    feed(&f, c, 0, 9, 1, NULL);
    feed(&f, c, 0, 4242, 1, NULL);
    OK(sennit_cache_spec_round_rollback(c, &keep, err));
    OK(sennit_cache_spec_round_begin(c, err));
    OK(sennit_cache_spec_round_commit(c, err));
    feed(&f, c, 0, 10, 1, NULL);
    assert_is(&f, c, 0, 0, 11);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* What cannot be is refused, nothing changes, and the flags say so beforehand. */
static void trims_and_donors_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *c = serial(&f, 1, 12);
    struct sennit_donor *donor = NULL;
    struct sennit_donor_attention *view = NULL;
    uint64_t before = cache_fingerprint(c);
    assert_false(sennit_cache_is_trimmable(c));
    for (uint64_t n = 0; n < 14; n++) {
        REFUSED(SENNIT_UNSUPPORTED, sennit_cache_trim(c, n, n % 2, err));
        assert_int_equal(sennit_cache_can_publish_row(c, 0, n), n == 12); /* only at the exact count */
    }
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_rows(c, &donor, err));
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_attention(c, &view, err));
    assert_true(!donor && !view && cache_fingerprint(c) == before);
    assert_int_equal(sennit_cache_minimum_reusable_offset(c, -1), 0);
    assert_is(&f, c, 0, 1, 12);
    f.g.config.round_depth = 0;
    struct sennit_cache *flat = serial(&f, 1, 2);
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_spec_round_begin(flat, err));
    sennit_cache_dispose(&flat);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* A published row is a reference, and nothing that its source does afterwards reaches it. */
static void clones_share_and_stay(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *c = serial(&f, 0, 9), *copy;
    uint64_t one = sennit_pool_bytes(f.pool), keep = 0;
    OK(sennit_cache_clone(c, 0, &copy, err));
    assert_int_equal(sennit_pool_bytes(f.pool), one);
    assert_int_equal(sennit_cache_current_bytes(c, 0), 0);
    feed(&f, c, 0, 9, 4, NULL);
    assert_int_equal(sennit_pool_bytes(f.pool), 2 * one);
    OK(sennit_cache_spec_round_begin(c, err));
    feed(&f, c, 0, 13, 2, NULL);
    OK(sennit_cache_spec_round_rollback(c, &keep, err));
    assert_is(&f, c, 0, 0, 13);
    sennit_cache_dispose(&c);
    assert_int_equal(sennit_pool_bytes(f.pool), one);
    assert_int_equal(sennit_cache_current_bytes(copy, 0), one);
    assert_is(&f, copy, 0, 0, 9);
    sennit_cache_dispose(&copy);
    close_fixture(&f);
}

/* The constant is the constant; rounds and snapshots are in the reserve, which the pool never passes. */
static void bytes_are_constant(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    f.g.config.round_depth = 0;
    struct sennit_cache *c = serial(&f, 0, 0);
    assert_int_equal(sennit_cache_bytes_per_token(c), 0);
    assert_int_equal(sennit_cache_projected_bytes(c, 0), 0);
    uint64_t one = sennit_cache_projected_bytes(c, 1);
    for (uint32_t n = 1; n <= 30; n++) {
        feed(&f, c, 0, n, 1, NULL);
        assert_int_equal(sennit_pool_bytes(f.pool), one);
        assert_int_equal(atomic_load(&f.pool->heap->used[SN_USE_CACHE]), one);
        assert_int_equal(sennit_cache_current_bytes(c, 0), one);
        assert_int_equal(sennit_cache_projected_bytes(c, n), one);
    }
    assert_int_equal(sennit_cache_projected_bytes(c, UINT64_MAX), one);
    sennit_cache_dispose(&c);
    f.g.config.round_depth = 5;
    f.g.config.n_snapshots = 2;
    c = serial(&f, 0, 3);
    uint64_t bound = sennit_cache_projected_bytes(c, 3), keep = 2, most = 0;
    struct sennit_cache *s1, *s2;
    OK(sennit_cache_clone(c, 0, &s1, err));
    feed(&f, c, 0, 3, 1, NULL);
    OK(sennit_cache_clone(c, 0, &s2, err));
    feed(&f, c, 0, 4, 1, NULL);
    OK(sennit_cache_spec_round_begin(c, err));
    for (uint32_t i = 0; i < 5; i++) {
        feed(&f, c, 0, 100 + i, 1, NULL);
        most = sennit_pool_bytes(f.pool) > most ? sennit_pool_bytes(f.pool) : most;
        assert_int_equal(sennit_cache_current_bytes(c, 0), sennit_pool_bytes(f.pool) - 2 * one);
    }
    assert_int_equal(most, bound);
    OK(sennit_cache_spec_round_rollback(c, &keep, err));
    assert_int_equal(sennit_pool_bytes(f.pool), 3 * one);
    sennit_cache_dispose(&s1);
    sennit_cache_dispose(&s2);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* A row of any length, shorter than the convolution too, survives its record; a damaged one does not. */
static void records_round_trip(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    for (uint32_t n = 0; n < KERNEL + 4; n++) {
        struct sennit_cache *c = serial(&f, 1, n), *out = NULL;
        struct memory m;
        struct sennit_stream s = memory_writer(&m);
        OK(sennit_cache_save(c, 0, &s, err));
        uint64_t bytes = sennit_pool_bytes(f.pool);
        for (size_t at = 0; at < m.n_bytes; at += at < 150 ? 1 : 61) {
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
        s = memory_reader(&m);
        OK(sennit_cache_load(c, &s, &out, err));
        assert_is(&f, out, 0, 1, n);
        free(m.data);
        sennit_cache_dispose(&c);
        sennit_cache_dispose(&out);
    }
    close_fixture(&f);
}

/* The constants are copied at creation, shared by what is made from a cache, and part of the kind. */
static void constants_are_the_layers(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    struct sennit_cache *a = serial(&f, 0, 4), *b, *copy, *empty;
    size_t n = (size_t)f.g.config.recurrent.n_channels * KERNEL;
    float *mine = must(malloc(n * sizeof *mine));
    memcpy(mine, f.g.config.recurrent.conv_weight, n * sizeof *mine);
    struct sennit_cache_config other = f.g.config;
    other.recurrent.conv_weight = mine;
    OK(sennit_cache_create(&b, f.pool, &other, 1, err));
    for (size_t i = 0; i < n; i++)
        mine[i] = NAN;
    assert_string_equal(sennit_cache_signature(a), sennit_cache_signature(b));
    feed(&f, b, 0, 0, 4, NULL);
    OK(sennit_cache_clone(b, 0, &copy, err));
    sennit_cache_dispose(&b);
    assert_is(&f, copy, 0, 0, 4);
    sennit_cache_dispose(&copy);
    memcpy(mine, f.g.config.recurrent.conv_weight, n * sizeof *mine);
    mine[n - 1] += 1;
    OK(sennit_cache_create(&b, f.pool, &other, 1, err));
    assert_string_not_equal(sennit_cache_signature(a), sennit_cache_signature(b));
    OK(sennit_cache_make_empty_batch(a, &empty, err));
    const struct sennit_cache *sources[] = {a, b};
    REFUSED(SENNIT_INVALID, sennit_cache_merge_rows(empty, sources, 2, err));
    assert_int_equal(sennit_cache_batch_size(empty), 0);
    free(mine);
    sennit_cache_dispose(&a);
    sennit_cache_dispose(&b);
    sennit_cache_dispose(&empty);
    close_fixture(&f);
}

/* One by one, in one span, by two threads, without outputs, after a step that was given up: the same bits. */
static void steps_of_any_shape_agree(void **state)
{
    (void)state;
    enum { N = 20 };
    static float one[N * MAX_WIDTH], many[N * MAX_WIDTH];
    struct fixture f;
    open_fixture(&f, 2);
    struct sn_heap heap;
    struct sn_pool *threads;
    sn_heap_init(&heap, NULL);
    OK(sn_pool_create(&threads, &heap, 2, false, err));
    struct sennit_cache *a = serial(&f, 0, 0), *b = serial(&f, 0, 0), *c = serial(&f, 0, N);
    uint64_t tokens[N];
    for (uint32_t i = 0; i < N; i++) {
        tokens[i] = i;
        feed(&f, a, 0, i, 1, one + i * width_of(&f));
    }
    struct work_span span = {.tokens = tokens, .n_tokens = N, .out = many};
    struct step_options options = {.rng = &f.rng, .threads = threads, .abort = true};
    uint64_t bytes = sennit_pool_bytes(f.pool);
    OK(run_step(b, &f.g, &span, 1, &options, err));
    assert_int_equal(sennit_pool_bytes(f.pool), bytes);
    assert_is(&f, b, 0, 0, 0); /* and it has taken a token */
    sennit_cache_dispose(&b);
    b = serial(&f, 0, 0);
    options.abort = false;
    memset(many, 0, sizeof many);
    OK(run_step(b, &f.g, &span, 1, &options, err));
    assert_memory_equal(one, many, N * width_of(&f) * sizeof *one);
    assert_is(&f, a, 0, 0, N);
    assert_is(&f, b, 0, 0, N);
    assert_is(&f, c, 0, 0, N);
    sennit_cache_dispose(&a);
    sennit_cache_dispose(&b);
    sennit_cache_dispose(&c);
    sn_pool_destroy(threads);
    close_fixture(&f);
}

/* ---- what cannot be -------------------------------------------------------------------------------------------- */

static void refuse(struct fixture *f, const struct sennit_cache_config *config, const char *word)
{
    struct sennit_error err = {0};
    struct sennit_cache *c = NULL;
    assert_int_equal(sennit_cache_create(&c, f->pool, config, 1, &err), SENNIT_INVALID);
    if (c || !strstr(err.message, word))
        die("%s: '%s' does not speak of %s", kind, err.message, word);
}

#define WRONG(field, value, word)                                                                                    \
    do {                                                                                                             \
        struct sennit_cache_config config = f.g.config;                                                              \
        config.field = (value);                                                                                      \
        refuse(&f, &config, word);                                                                                   \
    } while (0)

static void bad_geometries_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, 1);
    static const float number = 0;
    bool delta = strcmp(kind, "deltanet") == 0, mamba = strcmp(kind, "mamba2") == 0;
    WRONG(recurrent.kind, NULL, "kind");
    WRONG(recurrent.kind, "lstm", "lstm");
    WRONG(recurrent.kernel, 1, "kernel");
    WRONG(recurrent.kernel, 65, "kernel");
    WRONG(recurrent.n_channels, 0, "n_channels");
    WRONG(recurrent.n_channels, UINT32_MAX, "n_channels");
    WRONG(recurrent.conv_weight, NULL, "conv_weight");
    WRONG(n_kv_heads, 2, "n_kv_heads");
    WRONG(d_v, 2, "d_v");
    WRONG(k_type, SENNIT_F16, "k_type");
    WRONG(page_tokens, 64, "page_tokens");
    WRONG(window.tokens, 5, "window.tokens");
    WRONG(code.k_bits, 8, "code.k_bits");
    if (delta || mamba) {
        WRONG(recurrent.n_channels, f.g.config.recurrent.n_channels - 1, "n_channels");
        WRONG(recurrent.n_heads, 0, "n_heads");
        WRONG(recurrent.n_heads, 5, "n_heads");
        WRONG(recurrent.n_key_heads, 0, "n_key_heads");
        WRONG(recurrent.d_state, 0, "d_state");
        WRONG(recurrent.d_head, 70000, "d_head");
        WRONG(recurrent.a_log, NULL, "a_log");
        WRONG(recurrent.dt_bias, NULL, "dt_bias");
    } else {
        WRONG(recurrent.n_heads, 1, "n_heads");
        WRONG(recurrent.a_log, &number, "a_log");
        WRONG(recurrent.d_state, 3, "d_state");
    }
    if (!mamba) {
        WRONG(recurrent.d_skip, &number, "d_skip");
        WRONG(recurrent.dt_max, 1, "dt_max");
    } else {
        WRONG(recurrent.key_head_mod, true, "key_head_mod");
        WRONG(recurrent.dt_min, 3, "dt_min");
        WRONG(recurrent.dt_max, NAN, "dt_max");
    }
    struct sennit_cache *c = serial(&f, 0, 2);
    struct sennit_span span = {.row = 0, .pos = 2, .n_tokens = 1};
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin(c, &span, 1, 2 * n_heads_of(&f.g), err));
    assert_is(&f, c, 0, 0, 2);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_rows_do_not_mix),
        cmocka_unit_test(unused_rows_merge),
        cmocka_unit_test(rollback_is_exact),
        cmocka_unit_test(rounds_follow_each_other),
        cmocka_unit_test(trims_and_donors_are_refused),
        cmocka_unit_test(clones_share_and_stay),
        cmocka_unit_test(bytes_are_constant),
        cmocka_unit_test(records_round_trip),
        cmocka_unit_test(constants_are_the_layers),
        cmocka_unit_test(steps_of_any_shape_agree),
        cmocka_unit_test(bad_geometries_are_refused),
    };
    static const char *const kinds[] = {"deltanet", "mamba2", "short-conv"};
    int failed = 0;
    for (size_t i = 0; i < SN_ARRAY_LEN(kinds); i++) {
        kind = kinds[i];
        printf("kind %s\n", kind);
        failed += cmocka_run_group_tests_name(kind, tests, NULL, NULL);
    }
    return failed != 0;
}
