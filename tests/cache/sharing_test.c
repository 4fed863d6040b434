/* Layers that read another layer's keys and values ("donor"), by name; and snapshots of them, which stay what they
 * are whatever becomes of their source. Random operations are conformance.c's (composed-donor). */
#include <math.h>
#include <stdlib.h>

#include "cache/sharing.h"
#include "cache/stage.h"

enum { MOST_ROWS = 4, MOST_TOKENS = 64 };

/* ---- a source and its donor, as a model drives them ------------------------------------------------------------ */

struct pair {
    struct sennit_cache *source, *donor;
};

static struct sennit_cache_config donor_config(const struct stage *s, const struct sennit_cache *source)
{
    return (struct sennit_cache_config){.family = "donor",
                                        .source = source,
                                        .max_span = s->g.config.max_span,
                                        .round_depth = s->g.config.round_depth};
}

static struct pair new_pair(struct stage *s)
{
    struct pair p = {.source = stage_new(s, 1)};
    struct sennit_cache_config config = donor_config(s, p.source);
    OK(sennit_cache_create(&p.donor, s->pool, &config, 1, err));
    return p;
}

static void free_pair(struct pair *p)
{
    sennit_cache_dispose(&p->source);
    sennit_cache_dispose(&p->donor);
}

static struct pair merge_pairs(const struct pair *a, const struct pair *b)
{
    struct pair p;
    const struct sennit_cache *sources[] = {a->source, b->source}, *donors[] = {a->donor, b->donor};
    OK(sennit_cache_make_empty_batch(a->source, &p.source, err));
    OK(sennit_cache_make_empty_batch(a->donor, &p.donor, err));
    OK(sennit_cache_merge_rows(p.source, sources, 2, err));
    OK(sennit_cache_merge_rows(p.donor, donors, 2, err));
    return p;
}

struct step {
    struct sennit_span spans[MOST_ROWS];
    uint64_t tokens[MOST_TOKENS];
    uint32_t n_spans, n_tokens;
    float *k, *v, *q, *out[2]; /* of the source, of the donor */
    size_t width;
};

static void add_span(struct step *t, const struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n)
{
    CHECK(t->n_spans < MOST_ROWS && t->n_tokens + n <= MOST_TOKENS);
    t->spans[t->n_spans++] = (struct sennit_span){
        .row = row, .pos = sennit_cache_row_offset(c, row), .n_tokens = n, .first_token = t->n_tokens};
    for (uint32_t i = 0; i < n; i++)
        t->tokens[t->n_tokens++] = seed + i;
}

static void make_step(struct step *t, const struct geometry *g)
{
    size_t nk = (size_t)g->config.n_kv_heads * g->config.d_k, nv = (size_t)g->config.n_kv_heads * g->config.d_v;
    size_t nq = nk * g->group;
    t->width = nv * g->group;
    t->k = must(calloc(t->n_tokens * nk, sizeof(float)));
    t->v = must(calloc(t->n_tokens * nv, sizeof(float)));
    t->q = must(calloc(t->n_tokens * nq, sizeof(float)));
    for (int i = 0; i < 2; i++)
        t->out[i] = must(calloc(t->n_tokens * t->width, sizeof(float)));
    for (size_t i = 0; i < t->n_tokens; i++) {
        token_vector(t->tokens[i], SENNIT_ROLE_KEY, nk, t->k + i * nk);
        token_vector(t->tokens[i], SENNIT_ROLE_VALUE, nv, t->v + i * nv);
        token_query(t->tokens[i], nq, t->q + i * nq);
    }
}

static void free_step(struct step *t)
{
    free(t->k);
    free(t->v);
    free(t->q);
    free(t->out[0]);
    free(t->out[1]);
}

static void store(const struct step *t, const struct geometry *g, struct sennit_cache *source)
{
    uint32_t h = g->config.n_kv_heads;
    size_t nk = (size_t)h * g->config.d_k, nv = (size_t)h * g->config.d_v;
    for (uint32_t i = 0; i < t->n_spans; i++) {
        const struct sennit_span *span = &t->spans[i];
        sennit_cache_append_tile(source, i, 0, span->n_tokens, SENNIT_ROLE_KEY, 0, h, t->k + span->first_token * nk,
                                 nk, 0);
        sennit_cache_append_tile(source, i, 0, span->n_tokens, SENNIT_ROLE_VALUE, 0, h, t->v + span->first_token * nv,
                                 nv, 0);
    }
}

static struct sennit_attend_inputs inputs_of(const struct step *t, const struct geometry *g, float *out)
{
    return (struct sennit_attend_inputs){.query = t->q,
                                         .query_stride = (size_t)n_heads_of(g) * d_q_of(g),
                                         .scale = g->scale,
                                         .out = out,
                                         .out_stride = t->width};
}

static void attend(const struct step *t, const struct geometry *g, struct sennit_cache *c, float *out)
{
    struct sennit_attend_inputs in = inputs_of(t, g, out);
    uint32_t n_items, n_merges;
    sennit_cache_attend_plan(c, &in, &n_items, &n_merges);
    for (uint32_t i = n_items; i-- > 0;)
        sennit_cache_attend_item(c, i, 0);
    for (uint32_t i = 0; i < n_merges; i++)
        sennit_cache_attend_merge(c, i, 0);
}

/* Under equal queries the donor's outputs are the source's. */
static void run_step_of(struct step *t, struct stage *s, struct pair *p)
{
    make_step(t, &s->g);
    OK(sennit_cache_append_begin(p->source, t->spans, t->n_spans, n_heads_of(&s->g), err));
    OK(sennit_cache_append_begin(p->donor, t->spans, t->n_spans, n_heads_of(&s->g), err));
    store(t, &s->g, p->source);
    attend(t, &s->g, p->source, t->out[0]);
    attend(t, &s->g, p->donor, t->out[1]);
    sennit_cache_append_commit(p->donor);
    sennit_cache_append_commit(p->source);
    if (memcmp(t->out[0], t->out[1], t->n_tokens * t->width * sizeof(float)) != 0)
        die("%s: the donor reads something else than its source", s->kind->name);
    for (size_t i = 0; i < t->n_tokens * t->width; i++)
        assert_true(isfinite(t->out[1][i]));
}

static void feed_pair(struct stage *s, struct pair *p, uint32_t row, uint64_t seed, uint32_t n)
{
    for (uint32_t at = 0; at < n;) {
        struct step t = {0};
        uint32_t most = n - at < MOST_TOKENS ? n - at : MOST_TOKENS;
        uint32_t cut = stage_round(p->source, row, most);
        add_span(&t, p->source, row, seed + at, cut);
        run_step_of(&t, s, p);
        free_step(&t);
        at += cut;
    }
}

/* Kinds of pages of keys and values that a donor reads. */
static bool can_be_read(const struct kind *kind)
{
    const char *family = family_of(find_tested(kind->line));
    return strcmp(family, "naive") != 0 && strcmp(family, "composed") != 0 && strncmp(family, "mla", 3) != 0 &&
           strcmp(family, "recurrent") != 0;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

/* This step's tokens among them; rows of unequal lengths, in layouts that come and go, trimmed and rolled back. */
static void donors_read_their_source(void **state)
{
    (void)state;
    size_t n;
    const struct kind *kinds = stage_kinds(&n);
    uint32_t tried = 0;
    for (size_t i = 0; i < n; i++) {
        if (!can_be_read(&kinds[i]))
            continue;
        struct stage s;
        stage_open_kind(&s, &kinds[i]);
        struct pair one = new_pair(&s), two = new_pair(&s), both;
        feed_pair(&s, &one, 0, 1, 40);
        feed_pair(&s, &one, 0, 41, 1);
        feed_pair(&s, &two, 0, 500, 3);
        both = merge_pairs(&one, &two);
        free_pair(&one);
        free_pair(&two);
        feed_pair(&s, &both, 1, 503, 2);
        uint64_t keep[] = {1, 0};
        OK(sennit_cache_spec_round_begin(both.source, err));
        OK(sennit_cache_spec_round_begin(both.donor, err));
        feed_pair(&s, &both, 0, 42, stage_round(both.source, 0, 4));
        OK(sennit_cache_spec_round_rollback(both.source, keep, err));
        OK(sennit_cache_spec_round_rollback(both.donor, keep, err));
        feed_pair(&s, &both, 0, 43, 2);
        if (sennit_cache_minimum_reusable_offset(both.source, -1) == 0) {
            OK(sennit_cache_trim(both.source, 1, false, err));
            OK(sennit_cache_trim(both.donor, 1, false, err));
        }
        static const uint32_t swap[] = {1, 0};
        OK(sennit_cache_filter_rows(both.source, swap, 2, err));
        OK(sennit_cache_filter_rows(both.donor, swap, 2, err));
        for (uint32_t r = 0; r < 2; r++)
            feed_pair(&s, &both, r, 700, 9);
        free_pair(&both);
        stage_close(&s);
        tried++;
    }
    assert_true(tried >= 10);
}

/* A donor of a donor reads what that one reads. */
static void donors_of_donors(void **state)
{
    (void)state;
    struct stage s;
    stage_open_kind(&s, &(struct kind){"plain", "plain", NULL});
    struct pair p = new_pair(&s), chain = {.source = p.source};
    struct sennit_cache_config config = donor_config(&s, p.donor);
    OK(sennit_cache_create(&chain.donor, s.pool, &config, 1, err));
    assert_string_equal(sennit_cache_signature(chain.donor), sennit_cache_signature(p.donor));
    feed_pair(&s, &chain, 0, 1, 70);
    sennit_cache_dispose(&p.donor);
    feed_pair(&s, &chain, 0, 71, 7);
    free_pair(&chain);
    stage_close(&s);
}

/* ---- what it is ------------------------------------------------------------------------------------------------ */

static void donors_store_nothing(void **state)
{
    (void)state;
    struct stage s;
    stage_open_kind(&s, &(struct kind){"affine", "affine", NULL});
    s.g.config.max_tokens = 300;
    struct pair p = new_pair(&s);
    feed_pair(&s, &p, 0, 1, 130);
    assert_int_equal(sennit_pool_bytes(s.pool), sennit_cache_current_bytes(p.source, 0));
    assert_int_equal(sennit_cache_projected_bytes(p.donor, UINT64_MAX), 0);
    assert_int_equal(sennit_cache_current_bytes(p.donor, 0), 0);
    assert_int_equal(sennit_cache_bytes_per_token(p.donor), 0);
    assert_int_equal(sennit_cache_row_offset(p.donor, 0), 130);
    assert_int_equal(sennit_cache_max_tokens(p.donor), 300);
    assert_int_equal(sennit_cache_composed(p.donor, NULL), 0);
    assert_string_equal(sennit_cache_dtype(p.donor), sennit_cache_dtype(p.source));
    assert_int_equal(strncmp(sennit_cache_signature(p.donor), "donor / affine k8", 17), 0);
    struct sennit_donor *planes = NULL;
    struct sennit_donor_attention *view = NULL;
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_rows(p.donor, &planes, err));
    REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_attention(p.donor, &view, err));
    struct memory m;
    struct sennit_stream w = memory_writer(&m);
    struct sennit_cache *again = NULL;
    OK(sennit_cache_save(p.donor, 0, &w, err));
    assert_true(m.n_bytes < 200);
    w = memory_reader(&m);
    OK(sennit_cache_load(p.donor, &w, &again, err));
    assert_int_equal(sennit_cache_row_offset(again, 0), 130);
    w = memory_reader(&m);
    struct sennit_cache *none = NULL;
    REFUSED(SENNIT_INVALID, sennit_cache_load(p.source, &w, &none, err)); /* never the source's kind */
    free(m.data);
    sennit_cache_dispose(&p.donor); /* the loaded row goes on reading */
    p.donor = again;
    feed_pair(&s, &p, 0, 131, 3);
    free_pair(&p);
    stage_close(&s);
}

static void bad_sources_are_refused(void **state)
{
    (void)state;
    struct stage s, other;
    size_t n;
    const struct kind *kinds = stage_kinds(&n);
    stage_open_kind(&s, &(struct kind){"plain", "plain", NULL});
    struct sennit_cache *source = stage_new(&s, 0), *none = NULL;
    struct sennit_cache_config config = donor_config(&s, NULL);
    REFUSED(SENNIT_INVALID, sennit_cache_create(&none, s.pool, &config, 1, err));
    config.source = source;
    config.d_k = 32;
    REFUSED(SENNIT_INVALID, sennit_cache_create(&none, s.pool, &config, 1, err));
    for (size_t i = 0; i < n; i++) {
        stage_open_kind(&other, &kinds[i]);
        struct sennit_cache *c = stage_new(&other, 0);
        config = donor_config(&s, c);
        REFUSED(SENNIT_INVALID, sennit_cache_create(&none, s.pool, &config, 1, err)); /* at least of another pool */
        if (!can_be_read(&kinds[i]))
            REFUSED(SENNIT_INVALID, sennit_cache_create(&none, other.pool, &config, 1, err));
        sennit_cache_dispose(&c);
        stage_close(&other);
    }
    assert_null(none);
    sennit_cache_dispose(&source);
    stage_close(&s);
}

/* ---- order ----------------------------------------------------------------------------------------------------- */

/* A donor's step is refused, and changes nothing, unless one step of its source is open with the same spans, not yet
 * planned. */
static void donors_come_after_their_source(void **state)
{
    (void)state;
    struct stage s;
    stage_open_kind(&s, &(struct kind){"window", "window", NULL});
    struct pair p = new_pair(&s);
    struct sennit_cache *more;
    uint32_t heads = n_heads_of(&s.g);
    feed_pair(&s, &p, 0, 1, 20);
    struct sennit_span span = {.row = 0, .pos = 20, .n_tokens = 2}, shorter = {.row = 0, .pos = 20, .n_tokens = 1};
    uint64_t before = stage_imprint(&s, p.source);
    REFUSED(SENNIT_STATE, sennit_cache_append_begin(p.donor, &span, 1, heads, err));
    OK(sennit_cache_append_begin(p.source, &span, 1, heads, err));
    REFUSED(SENNIT_STATE, sennit_cache_append_begin(p.donor, &shorter, 1, heads, err));
    OK(sennit_cache_append_begin(p.donor, &span, 1, heads, err));
    sennit_cache_append_abort(p.donor);
    sennit_cache_append_abort(p.source);
    OK(sennit_cache_clone(p.source, 0, &more, err));
    OK(sennit_cache_append_begin(p.source, &span, 1, heads, err));
    OK(sennit_cache_append_begin(more, &span, 1, heads, err));
    REFUSED(SENNIT_STATE, sennit_cache_append_begin(p.donor, &span, 1, heads, err)); /* which of the two? */
    sennit_cache_dispose(&more);
    struct step t = {0};
    add_span(&t, p.source, 0, 21, 2);
    make_step(&t, &s.g);
    store(&t, &s.g, p.source);
    attend(&t, &s.g, p.source, t.out[0]);
    REFUSED(SENNIT_STATE, sennit_cache_append_begin(p.donor, &span, 1, heads, err));
    sennit_cache_append_abort(p.source);
    free_step(&t);
    assert_int_equal(stage_imprint(&s, p.source), before);
    assert_int_equal(sennit_cache_row_offset(p.donor, 0), 20);
    feed_pair(&s, &p, 0, 21, 2);
    free_pair(&p);
    stage_close(&s);
}

/* A source that has ended its step may have let go of pages: the donor answers with NaN, and touches nothing. */
static void nothing_is_read_of_an_ended_step(void **state)
{
    (void)state;
    struct stage s;
    stage_open_kind(&s, &(struct kind){"window", "window", NULL});
    struct pair p = new_pair(&s);
    feed_pair(&s, &p, 0, 1, 20);
    for (int gone = 0; gone < 2; gone++) {
        struct step t = {0};
        add_span(&t, p.source, 0, 21, 2);
        make_step(&t, &s.g);
        OK(sennit_cache_append_begin(p.source, t.spans, 1, n_heads_of(&s.g), err));
        OK(sennit_cache_append_begin(p.donor, t.spans, 1, n_heads_of(&s.g), err));
        store(&t, &s.g, p.source);
        if (gone)
            sennit_cache_dispose(&p.source);
        else
            sennit_cache_append_abort(p.source);
        attend(&t, &s.g, p.donor, t.out[1]);
        for (size_t i = 0; i < t.n_tokens * t.width; i++)
            assert_true(isnan(t.out[1][i]));
        sennit_cache_append_abort(p.donor);
        free_step(&t);
    }
    free_pair(&p);
    stage_close(&s);
}

/* The same when the source's step ends, or the source goes, after the donor's plan: before its items, or between them
 * and the merges. */
static void nothing_is_read_after_the_plan(void **state)
{
    (void)state;
    static const char *const kinds[] = {"window", "padded", "delayed"};
    for (size_t k = 0; k < 12; k++) {
        bool gone = k & 1, late = k & 2;
        struct stage s;
        stage_open_kind(&s, &(struct kind){kinds[k / 4], kinds[k / 4], NULL});
        struct pair p = new_pair(&s);
        feed_pair(&s, &p, 0, 1, 20);
        struct step t = {0};
        add_span(&t, p.source, 0, 21, 2);
        make_step(&t, &s.g);
        OK(sennit_cache_append_begin(p.source, t.spans, 1, n_heads_of(&s.g), err));
        OK(sennit_cache_append_begin(p.donor, t.spans, 1, n_heads_of(&s.g), err));
        store(&t, &s.g, p.source);
        struct sennit_attend_inputs in = inputs_of(&t, &s.g, t.out[1]);
        uint32_t n_items, n_merges;
        sennit_cache_attend_plan(p.donor, &in, &n_items, &n_merges);
        for (uint32_t i = 0; late && i < n_items; i++)
            sennit_cache_attend_item(p.donor, i, 0);
        if (gone)
            sennit_cache_dispose(&p.source);
        else
            sennit_cache_append_abort(p.source);
        for (uint32_t i = 0; !late && i < n_items; i++)
            sennit_cache_attend_item(p.donor, i, 0);
        for (uint32_t i = 0; i < n_merges; i++)
            sennit_cache_attend_merge(p.donor, i, 0);
        for (size_t i = 0; i < t.n_tokens * t.width; i++)
            assert_true(isnan(t.out[1][i]) || (late && n_merges == 0));
        sennit_cache_append_abort(p.donor);
        free_step(&t);
        free_pair(&p);
        stage_close(&s);
    }
}

/* ---- snapshots ------------------------------------------------------------------------------------------------ */

static uint64_t planes_hash(const struct sennit_donor *d, const struct sennit_cache *like)
{
    uint64_t h = d->n_planes;
    for (uint32_t r = 0; r < d->n_rows; r++) {
        size_t n;
        uint8_t *row = canonical_spans(like, d->planes, d->n_planes, r, d->offsets[r], &n);
        for (size_t i = 0; i < n; i++)
            h = h * UINT64_C(0x100000001B3) ^ row[i];
        free(row);
    }
    return h;
}

/* A snapshot costs no storage, and neither appends, conversions, trims, rounds, filters nor the end of its source
 * change it: what the source writes goes elsewhere. */
static void snapshots_are_references_that_last(void **state)
{
    (void)state;
    size_t n;
    const struct kind *kinds = stage_kinds(&n);
    for (size_t i = 0; i < n; i++) {
        struct stage s;
        stage_open_kind(&s, &kinds[i]);
        struct sennit_cache *rows[] = {stage_row(&s, 1, 37), stage_row(&s, 500, 9)}, *c = stage_merge(&s, rows, 2);
        struct sennit_donor *planes = NULL;
        struct sennit_donor_attention *view = NULL;
        stage_dispose(rows, 2);
        uint64_t bytes = sennit_pool_bytes(s.pool);
        if (c->ops->no_planes) {
            REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_rows(c, &planes, err));
            REFUSED(SENNIT_UNSUPPORTED, sennit_cache_capture_donor_attention(c, &view, err));
            assert_true(!planes && !view && sennit_pool_bytes(s.pool) == bytes);
            sennit_cache_dispose(&c);
            stage_close(&s);
            continue;
        }
        OK(sennit_cache_capture_donor_rows(c, &planes, err));
        if (c->ops->donor_attend)
            OK(sennit_cache_capture_donor_attention(c, &view, err));
        if (strcmp(c->ops->name, "naive") != 0) /* the oracle copies */
            assert_int_equal(sennit_pool_bytes(s.pool), bytes);
        const struct sennit_cache *like = sn_donor_cache(planes);
        uint32_t heads = n_heads_of(&s.g);
        float *q = must(calloc((size_t)2 * heads * d_q_of(&s.g), sizeof *q)), *want = stage_out(&s, 2),
              *got = stage_out(&s, 2);
        token_query(4, (size_t)2 * heads * d_q_of(&s.g), q);
        if (view)
            OK(sennit_donor_attend(view, q, heads, 1, s.g.scale, NULL, want, err));
        uint64_t hash = planes_hash(planes, like);
        for (int turn = 0; turn < 7; turn++) {
            uint64_t keep[] = {1, 0};
            static const uint32_t last[] = {1};
            if (turn == 0) {
                stage_feed(&s, c, 0, 38, 1, NULL);
            } else if (turn == 1) {
                if (sennit_cache_can_publish_row(c, 0, 37) && sennit_cache_can_publish_row(c, 1, 8))
                    OK(sennit_cache_trim(c, 1, false, err));
            } else if (turn == 2) {
                OK(sennit_cache_spec_round_begin(c, err));
                stage_feed(&s, c, 0, 9000, stage_round(c, 0, 4), NULL);
                OK(sennit_cache_spec_round_rollback(c, keep, err));
            } else if (turn == 3) {
                for (uint32_t r = 0; r < 2; r++) /* over any start */
                    stage_feed(&s, c, r, 600, 140, NULL);
            } else if (turn == 4) {
                OK(sennit_cache_filter_rows(c, last, 1, err));
            } else if (turn == 5) {
                stage_feed(&s, c, 0, 4000, 20, NULL);
            } else {
                sennit_cache_dispose(&c);
            }
            if (view)
                OK(sennit_donor_attend(view, q, heads, 1, s.g.scale, NULL, got, err));
            if (planes_hash(planes, like) != hash || memcmp(got, want, 2 * s.width * sizeof *got) != 0)
                die("%s: a snapshot has changed in turn %d", kinds[i].name, turn);
        }
        free(q);
        free(want);
        free(got);
        sennit_donor_free(planes);
        sennit_donor_attention_free(view);
        stage_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(donors_read_their_source),       cmocka_unit_test(donors_of_donors),
        cmocka_unit_test(donors_store_nothing),           cmocka_unit_test(bad_sources_are_refused),
        cmocka_unit_test(donors_come_after_their_source), cmocka_unit_test(nothing_is_read_of_an_ended_step),
        cmocka_unit_test(nothing_is_read_after_the_plan), cmocka_unit_test(snapshots_are_references_that_last),
    };
    return cmocka_run_group_tests_name("sharing", tests, NULL, NULL);
}
