/* Composed caches by name: what they say of themselves, bounds, bytes, what one part refuses, prefixes that all parts
 * can give (rule 14), and every operation with an allocation failing in one of the parts (rule 15). Random operations
 * are conformance.c's. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cache/composed.h"
#include "cache/twin.h"

enum { WIDTH = 128 }; /* of the small fixtures */

static const char *const lines[] = {"composed", "composed-mla-dsa", "composed-window-full", "composed-hybrid"};

struct fixture {
    struct sennit_pool *pool;
    struct geometry g;
    struct rng rng;
};

static void open_fixture(struct fixture *f, const char *line)
{
    *f = (struct fixture){.rng = {11}, .g = {.scale = 0.25f, .config.round_depth = 8, .config.max_span = 100}};
    small_geometry(find_tested(line), &f->g);
    OK(sennit_pool_create(&f->pool, NULL, err));
    sn_cache_pool_set_poison(f->pool, true);
}

static void close_fixture(struct fixture *f)
{
    CHECK(sennit_pool_bytes(f->pool) == 0);
    sennit_pool_free(f->pool);
}

static sennit_status feed(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n,
                          float *out, struct sennit_error *err)
{
    uint64_t tokens[100];
    CHECK(n <= SN_ARRAY_LEN(tokens));
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = seed + i;
    struct work_span span = {.row = row, .tokens = tokens, .n_tokens = n, .out = out};
    struct step_options options = {.rng = &f->rng};
    return n ? run_step(c, &f->g, &span, 1, &options, err) : SENNIT_OK;
}

static struct sennit_cache *serial(struct fixture *f, uint64_t seed, uint32_t n)
{
    struct sennit_cache *c;
    OK(sennit_cache_create(&c, f->pool, &f->g.config, 1, err));
    for (uint32_t at = 0; at < n; at += 100)
        OK(feed(f, c, 0, seed + at, n - at < 100 ? n - at : 100, NULL, err));
    return c;
}

static struct sennit_cache *merged(struct sennit_cache **sources, uint32_t n)
{
    struct sennit_cache *c;
    OK(sennit_cache_make_empty_batch(sources[0], &c, err));
    OK(sennit_cache_merge_rows(c, (const struct sennit_cache *const *)sources, n, err));
    return c;
}

/* The next token's outputs of `row`, of all parts, equal those of the same n tokens alone. */
static void assert_continues(struct fixture *f, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n)
{
    float got[WIDTH], want[WIDTH];
    struct sennit_cache *alone = serial(f, seed, n);
    OK(feed(f, c, row, 9999, 1, got, err));
    OK(feed(f, alone, 0, 9999, 1, want, err));
    assert_memory_equal(got, want, sizeof got);
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(got[i] == got[i]);
    sennit_cache_dispose(&alone);
}

static const struct sennit_cache *part_of(const struct sennit_cache *c, uint32_t i)
{
    const struct sennit_cache_part *parts;
    CHECK(i < sennit_cache_composed(c, &parts));
    return parts[i].cache;
}

/* ---- what it is ----------------------------------------------------------------------------------------------- */

/* Parts are listed by role, stand where the whole stands, and may be asked and leased on their own. */
static void parts_are_listed(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-window-full");
    struct sennit_cache *rows[] = {serial(&f, 0, 70), serial(&f, 500, 3)}, *c = merged(rows, 2);
    const struct sennit_cache_part *parts;
    assert_int_equal(sennit_cache_composed(c, &parts), 2);
    assert_string_equal(parts[0].role, "first");
    assert_string_equal(parts[1].role, "second");
    assert_string_equal(sennit_cache_signature(parts[1].cache), "plain F16 kv 2 k 32 v 16");
    assert_string_equal(sennit_cache_signature(c),
                        "composed(first: window 10 slack 30 kept 3 / plain F16 kv 2 k 32 v "
                        "16 | second: plain F16 kv 2 k 32 v 16)");
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sennit_cache_composed(parts[i].cache, NULL), 0);
        assert_int_equal(sennit_cache_batch_size(parts[i].cache), 2);
        assert_int_equal(sennit_cache_row_offset(parts[i].cache, 0), 70);
        assert_int_equal(sennit_cache_row_offset(parts[i].cache, 1), 3);
        assert_int_equal(sennit_cache_offset(parts[i].cache), sennit_cache_offset(c));
    }
    struct sennit_state lease;
    OK(sennit_cache_state(c, &lease, err));
    uint32_t seen[2] = {0};
    for (size_t i = 0; i < lease.n_spans; i++)
        seen[lease.spans[i].part]++;
    assert_true(seen[0] > 0 && seen[1] > 0 && seen[0] + seen[1] == lease.n_spans);
    sennit_state_release(&lease);
    for (uint32_t i = 0; i < 2; i++)
        sennit_cache_dispose(&rows[i]);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Donors are the parts': the whole has no planes of its own. */
static void donors_are_the_parts(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-hybrid");
    struct sennit_cache *c = serial(&f, 0, 40);
    struct sennit_donor *donor = NULL;
    struct sennit_donor_attention *view = NULL;
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_rows(c, &donor, err));
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_attention(c, &view, err));
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_rows(part_of(c, 0), &donor, err));
    uint64_t bytes = sennit_pool_bytes(f.pool);
    OK(sennit_cache_capture_donor_attention(part_of(c, 1), &view, err));
    assert_int_equal(sennit_pool_bytes(f.pool), bytes); /* references, no copies */
    float q[4 * 32], before[4 * 16], after[4 * 16];
    token_query(3, SN_ARRAY_LEN(q), q);
    OK(sennit_donor_attend(view, q, 4, 1, 0.25f, NULL, before, err));
    OK(feed(&f, c, 0, 700, 30, NULL, err));
    sennit_cache_dispose(&c);
    OK(sennit_donor_attend(view, q, 4, 1, 0.25f, NULL, after, err));
    assert_memory_equal(before, after, sizeof before);
    sennit_donor_attention_free(view);
    close_fixture(&f);
}

/* Bytes are sums over the parts, each as a cache of its own under the whole's bounds. */
static void bytes_are_sums(void **state)
{
    (void)state;
    for (size_t l = 0; l < SN_ARRAY_LEN(lines); l++) {
        struct fixture f;
        open_fixture(&f, lines[l]);
        f.g.config.n_snapshots = 2;
        struct sennit_cache *c = serial(&f, 0, 90);
        uint64_t per_token = 0, current = 0, projected[200] = {0};
        for (uint32_t i = 0; i < f.g.n_subs; i++) {
            const struct sennit_cache *part = part_of(c, i);
            per_token += sennit_cache_bytes_per_token(part);
            current += sennit_cache_current_bytes(part, 0);
            struct sennit_cache_config own = f.g.config.inner[i];
            if (own.reads)
                own.index.from = part_of(c, i - 1);
            own.role = own.reads = NULL;
            own.max_span = own.max_span > f.g.config.max_span ? own.max_span : f.g.config.max_span;
            own.round_depth = f.g.config.round_depth;
            own.n_snapshots = 2;
            struct sennit_cache *alone;
            OK(sennit_cache_create(&alone, f.pool, &own, 0, err));
            assert_string_equal(sennit_cache_signature(alone), sennit_cache_signature(part));
            for (uint64_t n = 0; n < 200; n++)
                projected[n] += sennit_cache_projected_bytes(alone, n);
            sennit_cache_dispose(&alone);
        }
        assert_int_equal(sennit_cache_bytes_per_token(c), per_token);
        assert_int_equal(sennit_cache_current_bytes(c, 0), current);
        assert_int_equal(sennit_pool_bytes(f.pool), current);
        for (uint64_t n = 0; n < 200; n++)
            assert_int_equal(sennit_cache_projected_bytes(c, n), projected[n]);
        sennit_cache_dispose(&c);
        close_fixture(&f);
    }
}

/* Storage is what the allocator has given out, at every count. */
static void storage_is_exact(void **state)
{
    (void)state;
    for (size_t l = 0; l < SN_ARRAY_LEN(lines); l++) {
        struct fixture f;
        open_fixture(&f, lines[l]);
        struct sennit_cache *c = serial(&f, 0, 0);
        uint64_t reserve = sennit_cache_projected_bytes(c, 0);
        for (uint32_t n = 1; n <= 200; n++) {
            OK(feed(&f, c, 0, n, 1, NULL, err));
            assert_int_equal(sennit_cache_projected_bytes(c, n) - reserve, sennit_pool_bytes(f.pool));
        }
        assert_int_equal(sennit_cache_projected_bytes(c, UINT64_MAX), UINT64_MAX);
        sennit_cache_dispose(&c);
        close_fixture(&f);
    }
}

/* ---- creation ------------------------------------------------------------------------------------------------- */

static void refused_with(struct fixture *f, const struct sennit_cache_config *config, const char *word)
{
    struct sennit_cache *c = NULL;
    struct sennit_error error = {0};
    assert_int_equal(sennit_cache_create(&c, f->pool, config, 1, &error), SENNIT_INVALID);
    if (!strstr(error.message, word))
        die("the message does not say '%s': %s", word, error.message);
    assert_null(c);
}

static void bad_arrangements_are_refused(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-mla-dsa");
    size_t misc = atomic_load(&f.pool->heap->used[SN_USE_MISC]);
    struct sennit_cache_config inner[9], c = f.g.config;
    char role[40];
    for (size_t i = 0; i < 9; i++) {
        inner[i] = f.g.config.inner[0];
        inner[i].role = "x";
    }
#define AGAIN() (memcpy(inner, f.g.config.inner, 3 * sizeof *inner), c = f.g.config, c.inner = inner)
    AGAIN(), c.n_inner = 0, refused_with(&f, &c, "1 to 8 parts");
    AGAIN(), c.n_inner = 9, refused_with(&f, &c, "1 to 8 parts");
    AGAIN(), c.inner = NULL, refused_with(&f, &c, "1 to 8 parts");
    AGAIN(), inner[1].role = NULL, refused_with(&f, &c, "inner[1].role");
    AGAIN(), inner[1].role = "", refused_with(&f, &c, "inner[1].role");
    AGAIN(), inner[1].role = "a|b", refused_with(&f, &c, "inner[1].role");
    memset(role, 'r', sizeof role);
    role[32] = 0;
    AGAIN(), inner[1].role = role, refused_with(&f, &c, "inner[1].role");
    AGAIN(), inner[1].role = inner[0].role, refused_with(&f, &c, "the same role");
    AGAIN(), inner[1].family = "bogus", refused_with(&f, &c, "inner[1].family 'bogus'");
    AGAIN(), inner[1].family = NULL, refused_with(&f, &c, "inner[1].family");
    AGAIN(), inner[1].family = "composed", refused_with(&f, &c, "inner[1] is itself");
    AGAIN(), inner[2].reads = "nobody", refused_with(&f, &c, "inner[2].reads 'nobody'");
    AGAIN(), inner[2].reads = inner[2].role, refused_with(&f, &c, "no earlier part");
    AGAIN(), inner[2].reads = inner[0].role, refused_with(&f, &c, "part 'third'"); /* of no indexer */
    AGAIN(), inner[0].reads = inner[1].role, refused_with(&f, &c, "reads no other cache");
    AGAIN(), inner[1].mla.d_latent = 0, refused_with(&f, &c, "part 'second': cache config: mla.d_latent");
    AGAIN(), inner[1].d_k = 3, refused_with(&f, &c, "part 'second'");
    AGAIN(), inner[1].max_span = 99, refused_with(&f, &c, "inner[1].max_span");
    AGAIN(), inner[1].round_depth = 7, refused_with(&f, &c, "inner[1].round_depth");
    AGAIN(), c.n_snapshots = 3, inner[1].n_snapshots = 2, refused_with(&f, &c, "inner[1].n_snapshots");
    AGAIN(), c.d_k = 1, refused_with(&f, &c, "d_k");
    AGAIN(), c.page_tokens = 64, refused_with(&f, &c, "page_tokens");
    AGAIN(), c.reads = "first", refused_with(&f, &c, "reads");
    c = inner[1], c.reads = "first", refused_with(&f, &c, "reads");
#undef AGAIN
    assert_int_equal(atomic_load(&f.pool->heap->used[SN_USE_MISC]), misc);
    close_fixture(&f);
}

/* As many parts of long signatures as there may be fit; what would not is refused, not cut off. */
static void long_signatures_are_whole(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-window-full");
    struct sennit_cache_config inner[8], c = f.g.config;
    char role[8][32];
    for (size_t i = 0; i < 8; i++) {
        inner[i] = f.g.config.inner[0];
        inner[i].page_tokens = 16;
        memset(role[i], 'r', 31);
        role[i][0] = (char)('0' + i), role[i][31] = 0;
        inner[i].role = role[i];
    }
    c.inner = inner, c.n_inner = 8;
    struct sennit_cache *one, *copy = NULL;
    OK(sennit_cache_create(&one, f.pool, &c, 1, err));
    assert_true(strlen(sennit_cache_signature(one)) > 512);
    assert_non_null(strstr(sennit_cache_signature(one), role[7]));
    struct memory m;
    struct sennit_stream s = memory_writer(&m);
    OK(sennit_cache_save(one, 0, &s, err));
    s = memory_reader(&m);
    OK(sennit_cache_load(one, &s, &copy, err));
    assert_string_equal(sennit_cache_signature(copy), sennit_cache_signature(one));
    free(m.data);
    sennit_cache_dispose(&one);
    sennit_cache_dispose(&copy);
    close_fixture(&f);
}

/* Roles, families, order and number of parts are the kind. */
static void other_arrangements_do_not_merge(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-window-full");
    struct sennit_cache *a = serial(&f, 0, 9), *b, *empty;
    OK(sennit_cache_make_empty_batch(a, &empty, err));
    for (int kind = 0; kind < 4; kind++) {
        struct sennit_cache_config inner[2], c = f.g.config;
        memcpy(inner, c.inner, sizeof inner);
        c.inner = inner;
        if (kind == 0)
            inner[1].role = "other";
        else if (kind == 1)
            c.n_inner = 1;
        else if (kind == 2)
            inner[1].k_type = inner[1].v_type = SENNIT_F32;
        else
            inner[0] = c.inner[1], inner[1] = f.g.config.inner[0];
        OK(sennit_cache_create(&b, f.pool, &c, 1, err));
        const struct sennit_cache *sources[] = {a, b};
        REFUSED(SENNIT_INVALID, sennit_cache_merge_rows(empty, sources, 2, err));
        assert_int_equal(sennit_cache_batch_size(empty), 0);
        assert_int_equal(sennit_cache_batch_size(part_of(empty, 0)), 0);
        sennit_cache_dispose(&b);
    }
    sennit_cache_dispose(&a);
    sennit_cache_dispose(&empty);
    close_fixture(&f);
}

/* What a part reads decides its answers, so it is part of the kind. */
static void readers_are_of_a_kind(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-window-full");
    struct sennit_cache_config inner[3] = {f.g.config.inner[1], f.g.config.inner[1], {.family = "donor"}};
    struct sennit_cache_config config = {.family = "composed", .inner = inner, .n_inner = 3};
    inner[0].role = "a", inner[1].role = "b", inner[2].role = "c";
    struct sennit_cache *c;
    inner[2].reads = "b"; /* of the same storage as "a" */
    OK(sennit_cache_create(&c, f.pool, &config, 1, err));
    CHECK(strstr(sennit_cache_signature(c), "| c of b: donor /"));
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* ---- steps ---------------------------------------------------------------------------------------------------- */

/* The tightest part bounds the whole, and nothing has changed after the refusal. */
static void bounds_are_the_least(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-window-full");
    struct sennit_cache_config inner[2];
    memcpy(inner, f.g.config.inner, sizeof inner);
    inner[1].max_tokens = 25;
    f.g.config.inner = inner;
    f.g.config.max_tokens = 60;
    struct sennit_cache *c = serial(&f, 0, 20);
    assert_int_equal(sennit_cache_max_tokens(c), 25);
    uint64_t before = cache_fingerprint(c), bytes = sennit_pool_bytes(f.pool);
    REFUSED(SENNIT_RANGE, feed(&f, c, 0, 20, 6, NULL, err));
    assert_true(cache_fingerprint(c) == before && sennit_pool_bytes(f.pool) == bytes);
    OK(feed(&f, c, 0, 20, 5, NULL, err));
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Heads per part are checked by the part: the whole step is refused. Plans may come in any order. */
static void heads_are_the_parts(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-hybrid");
    struct sennit_cache *c = serial(&f, 0, 20);
    struct sennit_span span = {.row = 0, .pos = 20, .n_tokens = 1};
    uint64_t before = cache_fingerprint(c), bytes = sennit_pool_bytes(f.pool);
    static const uint32_t good[] = {4, 6}, odd[] = {4, 3}, none[] = {4, 0}, other[] = {2, 6};
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin_parts(c, &span, 1, good, 1, err));
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin_parts(c, &span, 1, NULL, 2, err));
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin_parts(c, &span, 1, odd, 2, err));
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin_parts(c, &span, 1, none, 2, err));
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin_parts(c, &span, 1, other, 2, err));
    REFUSED(SENNIT_INVALID, sennit_cache_append_begin(c, &span, 1, 6, err)); /* not for the recurrent part */
    OK(sennit_cache_append_begin(c, &span, 1, 4, err));
    sennit_cache_append_abort(c);
    OK(sennit_cache_append_begin_parts(c, &span, 1, good, 2, err));
    float x[6 * 32] = {0};
    struct sennit_attend_inputs in = {.query = x, .query_stride = 6 * 32, .out = x, .out_stride = 6 * 16, .scale = 1};
    for (uint32_t i = 2; i-- > 0;) {
        uint32_t n_items, n_merges;
        in.part = i;
        sennit_cache_attend_plan(c, &in, &n_items, &n_merges);
        assert_true(n_items > 0);
    }
    sennit_cache_append_abort(c);
    assert_true(cache_fingerprint(c) == before && sennit_pool_bytes(f.pool) == bytes);
    const struct sennit_cache_config leaf = {.family = "plain", .n_kv_heads = 2, .d_k = 4, .d_v = 4};
    struct sennit_cache *one;
    OK(sennit_cache_create(&one, f.pool, &leaf, 1, err));
    span.pos = 0;
    OK(sennit_cache_append_begin_parts(one, &span, 1, good, 1, err));
    sennit_cache_dispose(&one);
    assert_continues(&f, c, 0, 0, 20);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* ---- one part refuses ----------------------------------------------------------------------------------------- */

/* The window has moved past what the full part could still give up: nobody gives anything up. */
static void one_part_refuses_a_trim(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-window-full");
    struct sennit_cache *rows[] = {serial(&f, 0, 90), serial(&f, 500, 35)}, *c = merged(rows, 2);
    uint64_t before = cache_fingerprint(c), bytes = sennit_pool_bytes(f.pool);
    assert_true(sennit_cache_is_trimmable(c));
    REFUSED(SENNIT_RANGE, sennit_cache_trim(c, 31, false, err)); /* row 0 reaches back 30; row 1 all the way */
    assert_true(cache_fingerprint(c) == before && sennit_pool_bytes(f.pool) == bytes);
    assert_false(sennit_cache_can_publish_row(c, 0, 59));
    assert_true(sennit_cache_can_publish_row(part_of(c, 1), 0, 59));
    assert_true(sennit_cache_can_publish_row(c, 0, 60));
    OK(sennit_cache_trim(c, 30, false, err));
    assert_continues(&f, c, 0, 0, 60);
    assert_continues(&f, c, 1, 500, 5);
    for (uint32_t i = 0; i < 2; i++)
        sennit_cache_dispose(&rows[i]);
    sennit_cache_dispose(&c);
    close_fixture(&f);
    open_fixture(&f, "composed-hybrid");
    c = serial(&f, 0, 20);
    assert_false(sennit_cache_is_trimmable(c)); /* all parts or none */
    assert_true(sennit_cache_is_trimmable(part_of(c, 1)));
    before = cache_fingerprint(c);
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_trim(c, 1, false, err));
    assert_int_equal(cache_fingerprint(c), before);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Every accept count in one batch: the recurrent part replays, the other one drops its tail, in step. */
static void rounds_end_together(void **state)
{
    (void)state;
    for (size_t l = 0; l < SN_ARRAY_LEN(lines); l++) {
        struct fixture f;
        open_fixture(&f, lines[l]);
        static const uint64_t keep[] = {0, 2, 5};
        struct sennit_cache *rows[3];
        for (uint32_t i = 0; i < 3; i++)
            rows[i] = serial(&f, 1000 * i, 62);
        struct sennit_cache *c = merged(rows, 3);
        OK(sennit_cache_spec_round_begin(c, err));
        for (uint32_t i = 0; i < 3; i++) {
            OK(feed(&f, c, i, 1000 * i + 62, (uint32_t)keep[i], NULL, err));
            OK(feed(&f, c, i, 77777, 5 - (uint32_t)keep[i], NULL, err));
        }
        OK(sennit_cache_spec_round_rollback(c, keep, err));
        for (uint32_t i = 0; i < 3; i++)
            assert_continues(&f, c, i, 1000 * i, 62 + (uint32_t)keep[i]);
        for (uint32_t i = 0; i < 3; i++)
            sennit_cache_dispose(&rows[i]);
        sennit_cache_dispose(&c);
        close_fixture(&f);
    }
}

/* Rule 14. A prompt has `common` tokens in common with a row: what all parts can restore is the least of what each
 * can, and from there on a new row goes on as if it had been fed those tokens. */
static void hit(struct fixture *f, struct sennit_cache *c, uint64_t common, uint64_t want)
{
    struct sennit_cache *fresh;
    uint64_t n = sennit_cache_reusable_tokens(c, 0, common), least = UINT64_MAX;
    for (uint32_t i = 0; i < f->g.n_subs; i++) {
        uint64_t own = sennit_cache_reusable_tokens(part_of(c, i), 0, common);
        least = own < least ? own : least;
        assert_true(sennit_cache_can_publish_row(part_of(c, i), 0, n) || n == 0);
    }
    assert_int_equal(n, want);
    assert_int_equal(n, least);
    if (n == 0)
        return;
    OK(sennit_cache_clone(c, 0, &fresh, err));
    if (n < sennit_cache_row_offset(c, 0))
        OK(sennit_cache_trim(fresh, sennit_cache_row_offset(c, 0) - n, false, err));
    assert_continues(f, fresh, 0, 0, (uint32_t)n);
    sennit_cache_dispose(&fresh);
}

static void prefixes_are_restored_by_all(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-window-full");
    struct sennit_cache *c = serial(&f, 0, 90);
    hit(&f, c, 200, 90);
    hit(&f, c, 90, 90);
    hit(&f, c, 61, 61);
    hit(&f, c, 60, 60);
    assert_int_equal(sennit_cache_reusable_tokens(part_of(c, 1), 0, 59), 59);
    hit(&f, c, 59, 0); /* the full part alone could */
    hit(&f, c, 0, 0);
    sennit_cache_dispose(&c);
    c = serial(&f, 0, 40); /* the window has not let go yet */
    hit(&f, c, 7, 7);
    sennit_cache_dispose(&c);
    close_fixture(&f);
    open_fixture(&f, "composed-hybrid");
    c = serial(&f, 0, 33);
    assert_int_equal(sennit_cache_reusable_tokens(part_of(c, 1), 0, 32), 32);
    hit(&f, c, 32, 0);
    hit(&f, c, 33, 33);
    hit(&f, c, 80, 33);
    assert_int_equal(sennit_cache_reusable_tokens(c, 1, 80), 0); /* no such row */
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* ---- rule 15 -------------------------------------------------------------------------------------------------- */

struct scene {
    struct fixture f;
    struct sennit_cache *a, *b, *c, *out; /* c: a and b merged */
    struct memory saved;
};

static void open_scene(struct scene *s, const char *line)
{
    open_fixture(&s->f, line);
    s->a = serial(&s->f, 0, 65);
    s->b = serial(&s->f, 300, 20);
    struct sennit_cache *rows[] = {s->a, s->b};
    s->c = merged(rows, 2);
    s->out = NULL;
    struct sennit_stream w = memory_writer(&s->saved);
    OK(sennit_cache_save(s->c, 0, &w, err));
}

static void close_scene(struct scene *s)
{
    sennit_cache_dispose(&s->a);
    sennit_cache_dispose(&s->b);
    sennit_cache_dispose(&s->c);
    sennit_cache_dispose(&s->out);
    free(s->saved.data);
    close_fixture(&s->f);
}

static sennit_status do_create(struct scene *s, struct sennit_error *err)
{
    return sennit_cache_create(&s->out, s->f.pool, &s->f.g.config, 1, err);
}

static sennit_status do_empty(struct scene *s, struct sennit_error *err)
{
    return sennit_cache_make_empty_batch(s->c, &s->out, err);
}

static sennit_status do_clone(struct scene *s, struct sennit_error *err)
{
    return sennit_cache_clone(s->c, 1, &s->out, err);
}

static sennit_status do_merge(struct scene *s, struct sennit_error *err)
{
    const struct sennit_cache *sources[] = {s->c, s->a, s->b};
    return sennit_cache_merge_rows(s->out, sources, 3, err);
}

static sennit_status do_append(struct scene *s, struct sennit_error *err)
{
    return feed(&s->f, s->c, 0, 65, 3, NULL, err);
}

static sennit_status do_trim(struct scene *s, struct sennit_error *err)
{
    return sennit_cache_is_trimmable(s->c) ? sennit_cache_trim(s->c, 2, false, err) : SENNIT_OK;
}

static sennit_status do_round_begin(struct scene *s, struct sennit_error *err)
{
    return sennit_cache_spec_round_begin(s->c, err);
}

static sennit_status do_rollback(struct scene *s, struct sennit_error *err)
{
    static const uint64_t keep[] = {1, 0};
    return sennit_cache_spec_round_rollback(s->c, keep, err);
}

static sennit_status do_save(struct scene *s, struct sennit_error *err)
{
    struct memory m;
    struct sennit_stream w = memory_writer(&m);
    sennit_status status = sennit_cache_save(s->c, 1, &w, err);
    free(m.data);
    return status;
}

static sennit_status do_load(struct scene *s, struct sennit_error *err)
{
    struct sennit_stream r = memory_reader(&s->saved);
    return sennit_cache_load(s->c, &r, &s->out, err);
}

static sennit_status do_filter(struct scene *s, struct sennit_error *err)
{
    static const uint32_t keep[] = {1, 0};
    return sennit_cache_filter_rows(s->c, keep, 2, err);
}

/* The n-th allocation fails, until none does: after each failure the whole, and each part, is what it was, and so are
 * the bytes. Two allocations at least where every part must allocate; pages that move make more of them. */
static uint32_t fail_everywhere(struct scene *s, sennit_status (*run)(struct scene *, struct sennit_error *))
{
    struct sn_heap *heap = s->f.pool->heap;
    for (uint64_t n = 1;; n++) {
        uint64_t before = cache_fingerprint(s->c), bytes = sennit_pool_bytes(s->f.pool);
        uint64_t own = sennit_cache_current_bytes(s->c, 0) + sennit_cache_current_bytes(s->c, 1);
        struct sennit_error err = {0};
        sn_heap_fail_at(heap, n);
        sennit_status status = run(s, &err);
        sn_heap_fail_at(heap, 0);
        if (status == SENNIT_OK)
            return (uint32_t)n - 1;
        assert_int_equal(status, SENNIT_NOMEM);
        assert_true(!s->out || sennit_cache_batch_size(s->out) == 0);
        assert_true(cache_fingerprint(s->c) == before && sennit_pool_bytes(s->f.pool) == bytes);
        assert_int_equal(sennit_cache_current_bytes(s->c, 0) + sennit_cache_current_bytes(s->c, 1), own);
    }
}

static void a_part_that_fails_fails_all(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        sennit_status (*run)(struct scene *, struct sennit_error *);
        uint32_t least; /* failures at least; room that an attempt has made stays made */
    } ops[] = {{"create", do_create, 6},     {"make_empty_batch", do_empty, 3},
               {"clone", do_clone, 6},       {"merge", do_merge, 3},
               {"append", do_append, 4},     {"trim", do_trim, 2},
               {"round", do_round_begin, 0}, {"save", do_save, 2},
               {"load", do_load, 6},         {"filter", do_filter, 0}};
    for (size_t l = 0; l < SN_ARRAY_LEN(lines); l++) {
        for (size_t i = 0; i < SN_ARRAY_LEN(ops); i++) {
            struct scene s;
            open_scene(&s, lines[l]);
            sn_cache_pool_set_hostile(s.f.pool, true);
            if (ops[i].run == do_merge)
                OK(do_empty(&s, err));
            uint32_t n = fail_everywhere(&s, ops[i].run);
            bool hybrid = strcmp(lines[l], "composed-hybrid") == 0;
            if (n < ops[i].least && !(hybrid && (i == 5 || i == 7)))
                die("%s: %s: only %u allocations", lines[l], ops[i].name, n);
            if (i == 4)
                assert_continues(&s.f, s.c, 0, 0, 68);
            else if (i == 5 && !hybrid)
                assert_continues(&s.f, s.c, 0, 0, 63);
            else if (i == 6)
                OK(sennit_cache_spec_round_commit(s.c, err));
            close_scene(&s);
        }
    }
}

/* A rollback that fails in one part has rolled back none; the round is still open, and the next attempt succeeds. */
static void a_rollback_that_fails_fails_all(void **state)
{
    (void)state;
    for (size_t l = 0; l < SN_ARRAY_LEN(lines); l++) {
        struct scene s;
        open_scene(&s, lines[l]);
        sn_cache_pool_set_hostile(s.f.pool, true);
        OK(sennit_cache_spec_round_begin(s.c, err));
        OK(feed(&s.f, s.c, 0, 65, 3, NULL, err));
        uint32_t n = fail_everywhere(&s, do_rollback);
        assert_true(n >= 1);
        REFUSED(SENNIT_STATE, sennit_cache_spec_round_commit(s.c, err));
        assert_continues(&s.f, s.c, 0, 0, 66);
        close_scene(&s);
    }
}

/* Damage anywhere in any part's share of a record is refused whole. */
static void damage_in_any_part_is_refused(void **state)
{
    (void)state;
    for (size_t l = 0; l < SN_ARRAY_LEN(lines); l++) {
        struct scene s;
        open_scene(&s, lines[l]);
        struct memory *m = &s.saved;
        uint64_t bytes = sennit_pool_bytes(s.f.pool);
        for (size_t at = 0; at < m->n_bytes; at += at < 500 ? 1 : 41) {
            struct sennit_error err = {0};
            struct sennit_stream r = memory_reader(m);
            m->fail_at = at;
            assert_int_equal(sennit_cache_load(s.c, &r, &s.out, &err), SENNIT_FORMAT);
            r = memory_reader(m);
            m->data[at] ^= (uint8_t)(1 << at % 8);
            sennit_status status = sennit_cache_load(s.c, &r, &s.out, &err);
            assert_true(status == SENNIT_FORMAT || status == SENNIT_INVALID);
            m->data[at] ^= (uint8_t)(1 << at % 8);
            assert_true(!s.out && sennit_pool_bytes(s.f.pool) == bytes);
        }
        struct sennit_stream r = memory_reader(m);
        OK(sennit_cache_load(s.c, &r, &s.out, err));
        assert_continues(&s.f, s.out, 0, 0, 65);
        close_scene(&s);
    }
}

/* ---- parts that change their precision ------------------------------------------------------------------------ */

/* Two parts that are plain up to `first` and `second` positions; each with 4 query heads and 64 outputs. */
static void open_changing(struct fixture *f, uint64_t first, uint64_t second)
{
    static struct geometry sub[2];
    static struct sennit_cache_config inner[2];
    static const struct sennit_cache_config codes = {.family = "affine", .code = {8, 8, 32}};
    *f = (struct fixture){.rng = {11}, .g = {.scale = 0.25f, .config.round_depth = 8}};
    for (uint32_t i = 0; i < 2; i++) {
        sub[i] = (struct geometry){.group = 2, .scale = 0.25f, .d_out = 32};
        sub[i].config = (struct sennit_cache_config){.family = "delayed",
                                                     .n_kv_heads = 1,
                                                     .d_k = 32,
                                                     .d_v = 32,
                                                     .k_type = SENNIT_F16,
                                                     .v_type = SENNIT_F16,
                                                     .page_tokens = 8,
                                                     .start = i ? second : first,
                                                     .inner = &codes,
                                                     .n_inner = 1};
        inner[i] = sub[i].config;
        inner[i].role = i ? "late" : "early";
    }
    f->g.config = (struct sennit_cache_config){
        .family = "composed", .max_span = 64, .round_depth = 8, .inner = inner, .n_inner = 2};
    f->g.sub = sub;
    f->g.n_subs = 2;
    f->g.n_heads = WIDTH;
    f->g.d_q = f->g.d_out = 1;
    OK(sennit_pool_create(&f->pool, NULL, err));
    sn_cache_pool_set_poison(f->pool, true);
}

/* Boundaries are the nearest part's, floors the farthest one's; a record tells both parts' forms. */
static void every_part_changes_at_its_own_start(void **state)
{
    (void)state;
    struct fixture f;
    open_changing(&f, 10, 20);
    struct sennit_cache *c = serial(&f, 0, 0), *copy = NULL;
    for (uint32_t n = 0; n < 30;) {
        uint64_t left = sennit_cache_max_append_tokens(c, 0);
        assert_int_equal(left, n < 10 ? 10 - n : n < 20 ? 20 - n : SENNIT_UNBOUNDED);
        if (left < 60)
            REFUSED(SENNIT_RANGE, feed(&f, c, 0, n, (uint32_t)left + 1, NULL, err));
        OK(feed(&f, c, 0, n, left < 4 ? (uint32_t)left : 4, NULL, err));
        n = (uint32_t)sennit_cache_row_offset(c, 0);
        assert_int_equal(sennit_cache_minimum_reusable_offset(c, 0), n > 20 ? 20 : n > 10 ? 10 : 0);
        struct memory m;
        struct sennit_stream s = memory_writer(&m);
        OK(sennit_cache_save(c, 0, &s, err));
        s = memory_reader(&m);
        OK(sennit_cache_load(c, &s, &copy, err));
        assert_int_equal(cache_fingerprint(copy), cache_fingerprint(c));
        assert_int_equal(sennit_cache_minimum_reusable_offset(part_of(copy, 0), 0), n > 10 ? 10 : 0);
        free(m.data);
        sennit_cache_dispose(&copy);
    }
    assert_int_equal(sennit_cache_reusable_tokens(c, 0, 20), 20);
    assert_int_equal(sennit_cache_reusable_tokens(c, 0, 19), 0);
    assert_int_equal(sennit_cache_reusable_tokens(part_of(c, 0), 0, 19), 19);
    REFUSED(SENNIT_RANGE, sennit_cache_trim(c, sennit_cache_row_offset(c, 0) - 19, false, err));
    OK(sennit_cache_trim(c, sennit_cache_row_offset(c, 0) - 20, false, err));
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

static sennit_status do_change(struct scene *s, struct sennit_error *err)
{
    static const uint32_t rows[] = {0, 1};
    return sennit_cache_commit_prefill(s->c, rows, 2, err);
}

/* Both parts are due at once, by an append or by prefill maintenance: an allocation that fails in the second one
 * leaves the first one plain. Pages that are shared, and pages that are not. */
static void parts_change_together_or_not_at_all(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct scene s = {0};
        bool prefill = kind & 1, shared = kind & 2;
        open_changing(&s.f, 12, 12);
        s.a = serial(&s.f, 0, 12);
        s.b = serial(&s.f, 300, 12);
        struct sennit_cache *rows[] = {s.a, s.b};
        s.c = merged(rows, 2);
        if (!shared) {
            sennit_cache_dispose(&s.a);
            sennit_cache_dispose(&s.b);
        }
        if (prefill)
            OK(sennit_cache_begin_prefill(s.c, err));
        uint32_t n = 0;
        if (prefill) {
            n = fail_everywhere(&s, do_change);
        } else {
            struct work_span spans[2];
            uint64_t tokens[2] = {12, 312};
            struct step_options options = {.rng = &s.f.rng};
            for (uint32_t r = 0; r < 2; r++)
                spans[r] = (struct work_span){.row = r, .tokens = &tokens[r], .n_tokens = 1};
            for (;; n++) {
                struct sennit_error why = {0};
                uint64_t before = cache_fingerprint(s.c), bytes = sennit_pool_bytes(s.f.pool);
                sn_heap_fail_at(s.f.pool->heap, n + 1);
                sennit_status status = run_step(s.c, &s.f.g, spans, 2, &options, &why);
                sn_heap_fail_at(s.f.pool->heap, 0);
                if (status == SENNIT_OK)
                    break;
                assert_int_equal(status, SENNIT_NOMEM);
                assert_true(cache_fingerprint(s.c) == before && sennit_pool_bytes(s.f.pool) == bytes);
            }
        }
        assert_true(n >= 4);
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(sennit_cache_minimum_reusable_offset(part_of(s.c, i), -1), 12);
        assert_int_equal(sennit_cache_minimum_reusable_offset(s.c, 0), 12);
        if (prefill)
            OK(sennit_cache_end_prefill(s.c, err));
        sennit_cache_dispose(&s.a);
        sennit_cache_dispose(&s.b);
        sennit_cache_dispose(&s.c);
        close_fixture(&s.f);
    }
}

/* A dense tensor beside pages: padding that merges bring and drops that take it away stay that part's affair. */
static void a_rectangle_can_be_a_part(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "composed-window-full");
    static struct geometry sub[2];
    static struct sennit_cache_config inner[2];
    for (uint32_t i = 0; i < 2; i++) {
        sub[i] = f.g.sub[1];
        sub[i].config.family = i ? "plain" : "padded";
        inner[i] = sub[i].config;
        inner[i].role = i ? "pages" : "tensor";
    }
    f.g.sub = sub;
    f.g.config.inner = inner;
    struct sennit_cache *rows[] = {serial(&f, 0, 40), serial(&f, 500, 9), serial(&f, 900, 0)};
    struct sennit_cache *c = merged(rows, 3), *one;
    static const uint32_t keep[] = {1, 2};
    assert_int_equal(sennit_cache_left_pad(c, 1), 31);
    assert_int_equal(sennit_cache_offset(c), 40);
    assert_continues(&f, c, 1, 500, 9);
    OK(sennit_cache_trim(c, 0, false, err));
    OK(sennit_cache_filter_rows(c, keep, 2, err));
    OK(sennit_cache_spec_round_begin(c, err));
    OK(feed(&f, c, 1, 900, 5, NULL, err));
    static const uint64_t kept_tokens[] = {0, 3};
    OK(sennit_cache_spec_round_rollback(c, kept_tokens, err));
    OK(sennit_cache_extract_row(c, 1, &one, err));
    assert_continues(&f, c, 1, 900, 3);
    assert_continues(&f, one, 0, 900, 3);
    for (uint32_t i = 0; i < 3; i++)
        sennit_cache_dispose(&rows[i]);
    sennit_cache_dispose(&c);
    sennit_cache_dispose(&one);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_listed),
        cmocka_unit_test(donors_are_the_parts),
        cmocka_unit_test(bytes_are_sums),
        cmocka_unit_test(storage_is_exact),
        cmocka_unit_test(bad_arrangements_are_refused),
        cmocka_unit_test(long_signatures_are_whole),
        cmocka_unit_test(other_arrangements_do_not_merge),
        cmocka_unit_test(readers_are_of_a_kind),
        cmocka_unit_test(bounds_are_the_least),
        cmocka_unit_test(heads_are_the_parts),
        cmocka_unit_test(one_part_refuses_a_trim),
        cmocka_unit_test(rounds_end_together),
        cmocka_unit_test(prefixes_are_restored_by_all),
        cmocka_unit_test(a_part_that_fails_fails_all),
        cmocka_unit_test(a_rollback_that_fails_fails_all),
        cmocka_unit_test(damage_in_any_part_is_refused),
        cmocka_unit_test(every_part_changes_at_its_own_start),
        cmocka_unit_test(parts_change_together_or_not_at_all),
        cmocka_unit_test(a_rectangle_can_be_a_part),
    };
    return cmocka_run_group_tests_name("composed", tests, NULL, NULL);
}
