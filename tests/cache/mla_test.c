/* Compressed keys and values, by named cases: what users of other engines met, geometries that must be
 * refused, bytes, and layers that take another layer's selection. Random operations are conformance.c's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/fixture.h"
#include "cache/mla.h"
#include "cache/selection.h"

enum { HEADS = 4, DL = 64, DR = 10, DI = 6, IH = 3, TOP = 24, MAX_TOKENS = 400, MAX_STEP_ROWS = 4 };

static const struct {
    const char *family;
    bool coded;
} kinds[] = {{"mla", false}, {"mla", true}, {"mla-dsa", false}, {"mla-dsa", true}};

static void open_fixture(struct fixture *f, const char *family, bool coded, uint32_t n_workers)
{
    bool indexer = strcmp(family, "mla-dsa") == 0;
    struct geometry g = {.config = {.family = family, .k_type = SENNIT_F16, .round_depth = 8},
                         .group = HEADS,
                         .scale = 0.2f,
                         .d_q = DL + DR,
                         .d_out = DL,
                         .parts = {{SENNIT_ROLE_LATENT, 1, DL}, {SENNIT_ROLE_ROPE_KEY, 1, DR}},
                         .n_parts = 2};
    g.config.mla.d_latent = DL;
    g.config.mla.d_rope = DR;
    g.config.code.k_bits = coded ? 8 : 0;
    if (indexer) {
        g.config.index.n_heads = g.n_index_heads = IH;
        g.config.index.d_index = g.d_index = DI;
        g.config.index.top_k = TOP;
        g.config.index.type = SENNIT_F16;
        g.parts[g.n_parts++] = (struct part){SENNIT_ROLE_INDEX_KEY, 1, DI};
    }
    fixture_open(f, &g, 7, &(struct sennit_pool_options){.n_workers = n_workers});
}

/* ---- what others met ------------------------------------------------------------------------------------------- */

/* Prompts of 12 and 3 tokens in one batch, read in one step and written on token by token: at every step
 * each row equals its solo run. */
static void unequal_prompts_equal_solo(void **state)
{
    (void)state;
    enum { STEPS = 40 };
    static const uint32_t n[2] = {12, 3};
    for (size_t k = 0; k < SN_ARRAY_LEN(kinds); k++) {
        struct fixture f;
        open_fixture(&f, kinds[k].family, kinds[k].coded, 1);
        struct sennit_cache *fresh[] = {serial(&f, 0, 0), serial(&f, 0, 0)}, *batch = merged(fresh, 2);
        float got[2][12 * HEADS * DL], want[12 * HEADS * DL];
        for (uint32_t step = 0, at[2] = {0, 0}; step < STEPS; step++) {
            uint64_t tokens[2][12];
            struct work_span spans[2];
            for (uint32_t r = 0; r < 2; r++) {
                uint32_t m = step == 0 ? n[r] : 1;
                for (uint32_t i = 0; i < m; i++)
                    tokens[r][i] = 1000 * r + at[r] + i;
                spans[r] = (struct work_span){.row = r, .tokens = tokens[r], .n_tokens = m, .out = got[r]};
            }
            struct step_options options = {.rng = &f.rng};
            OK(run_step(batch, &f.g, spans, 2, &options, err));
            for (uint32_t r = 0; r < 2; r++) {
                uint32_t m = spans[r].n_tokens;
                feed(&f, fresh[r], 0, 1000 * r + at[r], m, want);
                assert_memory_equal(got[r], want, m * HEADS * DL * sizeof *want);
                at[r] += m;
            }
        }
        sennit_cache_dispose(&fresh[0]);
        sennit_cache_dispose(&fresh[1]);
        sennit_cache_dispose(&batch);
        close_fixture(&f);
    }
}

static void refused_with(struct fixture *f, const struct sennit_cache_config *config, const char *field)
{
    struct sennit_cache *none = NULL;
    struct sennit_error err = {0};
    assert_int_equal(sennit_cache_create(&none, f->pool, config, 1, &err), SENNIT_INVALID);
    assert_null(none);
    if (!strstr(err.message, field))
        die("refused with '%s', which does not name %s", err.message, field);
}

/* A quantized latent is what its configuration says, or refused when the cache is made, never later. Every
 * field that cannot be, or that means nothing, is named. */
static void codes_are_supported_or_refused(void **state)
{
    (void)state;
    for (size_t k = 0; k < SN_ARRAY_LEN(kinds); k++) {
        struct fixture f;
        open_fixture(&f, kinds[k].family, kinds[k].coded, 1);
        struct sennit_cache_config right = f.g.config, c;
#define WRONG(field, assignment)                                                                                     \
    do {                                                                                                             \
        c = right;                                                                                                   \
        c.assignment;                                                                                                \
        refused_with(&f, &c, field);                                                                                 \
    } while (0)
        WRONG("code.k_bits", code.k_bits = 4);
        WRONG("code.k_bits", code.k_bits = 16);
        WRONG("code.v_bits", code.v_bits = 8);
        WRONG("code.group", code.group = 64);
        WRONG("mla.d_latent", mla.d_latent = 0);
        WRONG("mla.d_latent", mla.d_latent = UINT32_MAX);
        WRONG("mla.d_rope", mla.d_rope = 0);
        WRONG("mla.d_rope", mla.d_rope = 65537);
        WRONG("k_type", k_type = SENNIT_Q8_0);
        WRONG("v_type", v_type = SENNIT_F16);
        WRONG("n_kv_heads", n_kv_heads = 1);
        WRONG("d_k", d_k = DL);
        WRONG("d_v", d_v = DL);
        WRONG("page_tokens", page_tokens = 3);
        WRONG("start", start = 1);
        WRONG("window.tokens", window.tokens = 4);
        if (kinds[k].coded)
            WRONG("mla.d_latent", mla.d_latent = 96);
        if (strcmp(kinds[k].family, "mla") == 0) {
            WRONG("index.n_heads", index.n_heads = 1);
            WRONG("index.top_k", index.top_k = 1);
        } else {
            WRONG("index.n_heads", index.n_heads = 0);
            WRONG("index.d_index", index.d_index = 0);
            WRONG("index.top_k", index.top_k = 0);
            WRONG("index.top_k", index.top_k = UINT32_MAX);
            WRONG("index.type", index.type = SENNIT_BF16);
        }
        close_fixture(&f);
    }
}

/* Two bytes between rope keys and index keys of wider elements hold nothing, and are saved all the same: they must
 * not be what the memory held before. */
static void gaps_hold_nothing_old(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "mla-dsa", false, 1);
    f.g.config.page_tokens = 1;
    f.g.config.mla.d_rope = f.g.parts[1].d = 3;
    f.g.config.index.type = SENNIT_F32;
    f.g.d_q = DL + 3;
    struct sennit_cache *c = serial(&f, 0, 3);
    const struct sn_mla *m = sn_mla_of(c);
    const struct sn_table *table = c->rows[0].store;
    size_t end = m->rope_at + 3 * m->element_bytes;
    assert_int_equal(m->index_at - end, 2);
    for (uint32_t i = 0; i < 3; i++)
        for (size_t at = end; at < m->index_at; at++)
            assert_int_equal(table->page[i]->data[at], 0);
    sennit_cache_dispose(&c);
    close_fixture(&f);
}

/* Bytes per token show what is stored: once per token whatever the number of heads. */
static void bytes_are_what_is_stored(void **state)
{
    (void)state;
    for (size_t k = 0; k < SN_ARRAY_LEN(kinds); k++) {
        struct fixture f;
        open_fixture(&f, kinds[k].family, kinds[k].coded, 1);
        struct sennit_cache *c = serial(&f, 0, 0);
        uint64_t latent = kinds[k].coded ? DL + 4 * (DL / 64) : 2 * DL, index = f.g.d_index ? 2 * DI : 0;
        assert_int_equal(sennit_cache_bytes_per_token(c), latent + 2 * DR + index + 1); /* 1: the page's counter */
        assert_int_equal(c->ops->body_bytes(c, 64), 64 * (latent + 2 * DR + index));
        sennit_cache_dispose(&c);
        close_fixture(&f);
    }
}

/* 200 turns of a conversation that is rolled back, trimmed and written on, and aborted steps and
 * rounds: the bytes return to where they were, every time. */
static void turns_leave_nothing(void **state)
{
    (void)state;
    for (size_t k = 0; k < SN_ARRAY_LEN(kinds); k++) {
        struct fixture f;
        open_fixture(&f, kinds[k].family, kinds[k].coded, 1);
        struct sennit_cache *c = serial(&f, 0, 0), *copy;
        feed(&f, c, 0, 1, 70, NULL);
        uint64_t base = sennit_pool_bytes(f.pool);
        for (uint32_t turn = 0; turn < 200; turn++) {
            uint64_t keep = 0;
            OK(sennit_cache_clone(c, 0, &copy, err));
            feed(&f, copy, 0, 500 + turn, 1 + turn % 90, NULL);
            OK(sennit_cache_spec_round_begin(copy, err));
            feed(&f, copy, 0, 900 + turn, 1 + turn % 8, NULL);
            if (turn % 3 == 0)
                OK(sennit_cache_spec_round_rollback(copy, &keep, err));
            struct sennit_span span = {.row = 0, .pos = sennit_cache_row_offset(copy, 0), .n_tokens = 5};
            if (turn % 3 == 0)
                OK(sennit_cache_append_begin(copy, &span, 1, HEADS, err));
            sennit_cache_dispose(&copy);
            assert_int_equal(sennit_pool_bytes(f.pool), base);
        }
        sennit_cache_dispose(&c);
        assert_int_equal(sennit_pool_bytes(f.pool), 0);
        close_fixture(&f);
    }
}

/* k drafts of which any number is kept, none and all included, and a refused trim: what follows is
 * the straight run's. */
static void rollbacks_are_straight_runs(void **state)
{
    (void)state;
    enum { K = 6 };
    for (size_t k = 0; k < SN_ARRAY_LEN(kinds); k++) {
        struct fixture f;
        open_fixture(&f, kinds[k].family, kinds[k].coded, 1);
        for (uint64_t keep = 0; keep <= K; keep++) {
            struct sennit_cache *c = serial(&f, 0, 0), *straight = serial(&f, 0, 0);
            float got[HEADS * DL], want[HEADS * DL];
            feed(&f, c, 0, 1, 61, NULL);
            OK(sennit_cache_spec_round_begin(c, err));
            feed(&f, c, 0, 62, K, NULL);
            OK(sennit_cache_spec_round_rollback(c, &keep, err));
            uint64_t before = cache_fingerprint(c);
            REFUSED(SENNIT_RANGE, sennit_cache_trim(c, 62 + keep, false, err));
            assert_int_equal(cache_fingerprint(c), before);
            feed(&f, straight, 0, 1, 61 + (uint32_t)keep, NULL);
            feed(&f, c, 0, 7777, 1, got);
            feed(&f, straight, 0, 7777, 1, want);
            assert_memory_equal(got, want, sizeof got);
            sennit_cache_dispose(&c);
            sennit_cache_dispose(&straight);
        }
        close_fixture(&f);
    }
}

/* A latent with an infinity or NaN, coded or not, makes the outputs that see it NaN, and no others. */
static void faults_reach_the_outputs(void **state)
{
    (void)state;
    static const float faults[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < 2 * SN_ARRAY_LEN(faults); k++) {
        struct fixture f;
        open_fixture(&f, "mla", k % 2, 1);
        f.g.config.k_type = SENNIT_F32;
        struct sennit_cache *c = serial(&f, 0, 0);
        float x[DL], rope[DR] = {0}, out[2][HEADS * DL], q[HEADS * (DL + DR)];
        token_query(3, SN_ARRAY_LEN(q), q);
        for (uint32_t i = 0; i < 2; i++) {
            struct sennit_span span = {.row = 0, .pos = i, .n_tokens = 1};
            struct sennit_attend_inputs in = {.query = q, .query_stride = SN_ARRAY_LEN(q), .scale = 0.2f};
            in.out = out[i], in.out_stride = HEADS * DL;
            uint32_t n_items, n_merges;
            token_vector(i, SENNIT_ROLE_LATENT, DL, x);
            if (i == 1)
                x[17] = faults[k / 2];
            OK(sennit_cache_append_begin(c, &span, 1, HEADS, err));
            sennit_cache_append_tile(c, 0, 0, 1, SENNIT_ROLE_LATENT, 0, 1, x, DL, 0);
            sennit_cache_append_tile(c, 0, 0, 1, SENNIT_ROLE_ROPE_KEY, 0, 1, rope, DR, 0);
            sennit_cache_attend_plan(c, &in, &n_items, &n_merges);
            CHECK(n_merges == 0);
            for (uint32_t item = 0; item < n_items; item++)
                sennit_cache_attend_item(c, item, 0);
            sennit_cache_append_commit(c);
        }
        bool any = false;
        for (size_t i = 0; i < HEADS * DL; i++) {
            assert_true(isfinite(out[0][i]));
            any |= !isfinite(out[1][i]);
        }
        assert_true(any);
        sennit_cache_dispose(&c);
        close_fixture(&f);
    }
}

/* ---- layers without an indexer of their own -------------------------------------------------------------------- */

/* The same tokens in a layer with an indexer and in layers that read from it: with the same latents and queries the
 * outputs are the same. */
struct pair {
    struct sennit_cache *source, *reader[2];
};

static struct sennit_cache_config reader_config(const struct fixture *f, const struct sennit_cache *from)
{
    struct sennit_cache_config c = f->g.config;
    memset(&c.index, 0, sizeof c.index);
    c.index.from = from;
    c.index.top_k = TOP;
    return c;
}

static struct pair new_pair(struct fixture *f)
{
    struct pair p = {.source = serial(f, 0, 0)};
    struct sennit_cache_config c = reader_config(f, p.source);
    OK(sennit_cache_create(&p.reader[0], f->pool, &c, 1, err));
    c.index.from = p.reader[0]; /* whose selection is the source's */
    OK(sennit_cache_create(&p.reader[1], f->pool, &c, 1, err));
    return p;
}

static void free_pair(struct pair *p)
{
    sennit_cache_dispose(&p->source); /* first: the others do not hang on it */
    sennit_cache_dispose(&p->reader[0]);
    sennit_cache_dispose(&p->reader[1]);
}

struct pair_step {
    struct sennit_span spans[MAX_STEP_ROWS];
    uint32_t n_spans, n_tokens;
    uint64_t tokens[MAX_STEP_ROWS * MAX_TOKENS];
    float *part[3], *q, *index_q, *index_w, *out[3];
    struct sennit_cache *now;
    struct sn_ticket ticket;
    uint32_t n_items;
};

static void add_span(struct pair_step *s, const struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n)
{
    s->spans[s->n_spans++] = (struct sennit_span){
        .row = row, .pos = sennit_cache_row_offset(c, row), .n_tokens = n, .first_token = s->n_tokens};
    for (uint32_t i = 0; i < n; i++)
        s->tokens[s->n_tokens++] = seed + i;
}

static void make_inputs(struct pair_step *s)
{
    static const sennit_role roles[] = {SENNIT_ROLE_LATENT, SENNIT_ROLE_ROPE_KEY, SENNIT_ROLE_INDEX_KEY};
    static const size_t d[] = {DL, DR, DI};
    for (size_t p = 0; p < 3; p++) {
        s->part[p] = must(malloc(s->n_tokens * d[p] * sizeof(float)));
        s->out[p] = must(calloc(s->n_tokens, HEADS * DL * sizeof(float)));
        for (uint32_t t = 0; t < s->n_tokens; t++)
            token_vector(s->tokens[t], roles[p], d[p], s->part[p] + t * d[p]);
    }
    s->q = must(malloc(s->n_tokens * HEADS * (DL + DR) * sizeof(float)));
    s->index_q = must(malloc(s->n_tokens * IH * DI * sizeof(float)));
    s->index_w = must(malloc(s->n_tokens * IH * sizeof(float)));
    for (size_t t = 0; t < s->n_tokens; t++) {
        token_query(s->tokens[t], HEADS * (DL + DR), s->q + t * HEADS * (DL + DR));
        token_index_query(s->tokens[t], IH * DI, s->index_q + t * IH * DI);
        token_index_weight(s->tokens[t], IH, s->index_w + t * IH);
    }
}

static void free_inputs(struct pair_step *s)
{
    for (size_t p = 0; p < 3; p++) {
        free(s->part[p]);
        free(s->out[p]);
    }
    free(s->q);
    free(s->index_q);
    free(s->index_w);
    *s = (struct pair_step){0};
}

static void store_tiles(struct pair_step *s, struct sennit_cache *c, bool indexer)
{
    for (uint32_t i = 0; i < s->n_spans; i++) {
        const struct sennit_span *span = &s->spans[i];
        size_t first = span->first_token;
        sennit_cache_append_tile(c, i, 0, span->n_tokens, SENNIT_ROLE_LATENT, 0, 1, s->part[0] + first * DL, DL, 0);
        sennit_cache_append_tile(c, i, 0, span->n_tokens, SENNIT_ROLE_ROPE_KEY, 0, 1, s->part[1] + first * DR, DR, 0);
        if (indexer)
            sennit_cache_append_tile(c, i, 0, span->n_tokens, SENNIT_ROLE_INDEX_KEY, 0, 1, s->part[2] + first * DI,
                                     DI, 0);
    }
}

static void work(void *ctx, int worker, int n_workers)
{
    struct pair_step *s = ctx;
    (void)n_workers;
    for (size_t i; (i = sn_ticket_take(&s->ticket)) < s->n_items;)
        sennit_cache_attend_item(s->now, (uint32_t)i, (uint32_t)worker);
}

static void attend(struct pair_step *s, struct sennit_cache *c, float *out, struct sn_pool *threads)
{
    struct sennit_attend_inputs in = {.query = s->q,
                                      .query_stride = HEADS * (DL + DR),
                                      .index_query = s->index_q,
                                      .index_weight = s->index_w,
                                      .scale = 0.2f,
                                      .out = out,
                                      .out_stride = HEADS * DL};
    uint32_t n_merges;
    s->now = c;
    sennit_cache_attend_plan(c, &in, &s->n_items, &n_merges);
    CHECK(n_merges == 0);
    atomic_store(&s->ticket.next, 0);
    if (threads)
        sn_pool_run(threads, work, s);
    else
        work(s, 0, 1);
}

/* One step of all three layers; the outputs stay in s->out. */
static void run_pair(struct pair_step *s, struct pair *p, struct sn_pool *threads)
{
    struct sennit_cache *all[] = {p->source, p->reader[0], p->reader[1]};
    make_inputs(s);
    for (size_t i = 0; i < 3; i++)
        OK(sennit_cache_append_begin(all[i], s->spans, s->n_spans, HEADS, err));
    for (size_t i = 0; i < 3; i++)
        store_tiles(s, all[i], i == 0);
    for (size_t i = 0; i < 3; i++)
        attend(s, all[i], s->out[i], threads);
    for (size_t i = 0; i < 3; i++)
        sennit_cache_append_commit(all[i]);
}

static void step_pair(struct pair *p, uint32_t row, uint64_t seed, uint32_t n)
{
    struct pair_step s = {0};
    add_span(&s, p->source, row, seed, n);
    run_pair(&s, p, NULL);
    assert_memory_equal(s.out[0], s.out[1], n * HEADS * DL * sizeof(float));
    assert_memory_equal(s.out[0], s.out[2], n * HEADS * DL * sizeof(float));
    free_inputs(&s);
}

/* Rows of unequal lengths, layouts that come and go, several threads: the readers see what the source selected. */
static void readers_see_the_selection(void **state)
{
    (void)state;
    struct sn_heap heap;
    struct sn_pool *threads;
    sn_heap_init(&heap, NULL);
    OK(sn_pool_create(&threads, &heap, 2, false, err));
    for (int coded = 0; coded < 2; coded++) {
        struct fixture f;
        open_fixture(&f, "mla-dsa", coded, 2);
        struct pair row[2] = {new_pair(&f), new_pair(&f)}, batch;
        struct sennit_cache **parts[] = {&batch.source, &batch.reader[0], &batch.reader[1]};
        step_pair(&row[0], 0, 1, 90);
        step_pair(&row[0], 0, 91, 1);
        step_pair(&row[1], 0, 5000, 3);
        for (size_t i = 0; i < 3; i++) {
            struct sennit_cache *sources[] = {i ? row[0].reader[i - 1] : row[0].source,
                                              i ? row[1].reader[i - 1] : row[1].source};
            *parts[i] = merged(sources, 2);
        }
        free_pair(&row[0]);
        free_pair(&row[1]);
        for (uint32_t turn = 0; turn < 8; turn++) {
            struct pair_step s = {0};
            add_span(&s, batch.source, 1, 6000 + 10 * turn, turn % 3 ? 1 : 40);
            add_span(&s, batch.source, 0, 9000 + 10 * turn, turn % 2 ? 1 : 7);
            run_pair(&s, &batch, turn % 2 ? threads : NULL);
            assert_memory_equal(s.out[0], s.out[1], s.n_tokens * HEADS * DL * sizeof(float));
            assert_memory_equal(s.out[0], s.out[2], s.n_tokens * HEADS * DL * sizeof(float));
            for (size_t i = 0; i < s.n_tokens * HEADS * DL; i++)
                assert_true(isfinite(s.out[0][i]));
            free_inputs(&s);
        }
        free_pair(&batch);
        close_fixture(&f);
    }
    sn_pool_destroy(threads);
}

/* A reader keeps no index keys, and has a kind of its own. */
static void readers_store_no_index_keys(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "mla-dsa", false, 1);
    struct pair p = new_pair(&f);
    assert_int_equal(sennit_cache_bytes_per_token(p.source) - sennit_cache_bytes_per_token(p.reader[0]), 2 * DI);
    assert_string_equal(sennit_cache_signature(p.source),
                        "mla-dsa F16 latent 64 rope 10 / index F16 heads 3 d 6 top 24");
    assert_string_equal(sennit_cache_signature(p.reader[0]), "mla-dsa F16 latent 64 rope 10 / top 24 elsewhere");
    struct sennit_cache_config c = reader_config(&f, p.source);
    c.index.top_k = TOP + 1;
    refused_with(&f, &c, "index.top_k");
    c = reader_config(&f, p.source);
    c.index.d_index = DI;
    refused_with(&f, &c, "d_index");
    struct sennit_cache *other;
    struct sennit_cache_config plain = {.family = "plain", .n_kv_heads = 1, .d_k = 1, .d_v = 1};
    OK(sennit_cache_create(&other, f.pool, &plain, 1, err));
    c = reader_config(&f, other);
    refused_with(&f, &c, "index.from");
    sennit_cache_dispose(&other);
    free_pair(&p);
    close_fixture(&f);
}

/* A reader's step is refused, and changes nothing, unless the source's is open with the same spans and not
 * planned. */
static void readers_come_after_their_source(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "mla-dsa", false, 1);
    struct pair p = new_pair(&f);
    struct sennit_cache *more, *r = p.reader[0];
    step_pair(&p, 0, 1, 70);
    uint64_t before = cache_fingerprint(r), bytes = sennit_pool_bytes(f.pool);
    struct sennit_span span = {.row = 0, .pos = 70, .n_tokens = 2}, shorter = {.row = 0, .pos = 70, .n_tokens = 1};
    REFUSED(SENNIT_STATE, sennit_cache_append_begin(r, &span, 1, HEADS, err));
    OK(sennit_cache_append_begin(p.source, &span, 1, HEADS, err));
    REFUSED(SENNIT_STATE, sennit_cache_append_begin(r, &shorter, 1, HEADS, err));
    OK(sennit_cache_append_begin(r, &span, 1, HEADS, err));
    sennit_cache_append_abort(r);
    OK(sennit_cache_clone(p.reader[1], 0, &more, err));
    sennit_cache_dispose(&more);
    sennit_cache_append_abort(p.source);
    OK(sennit_cache_clone(p.source, 0, &more, err)); /* a second layout of the same layer, with a step of its own */
    OK(sennit_cache_append_begin(p.source, &span, 1, HEADS, err));
    OK(sennit_cache_append_begin(more, &span, 1, HEADS, err));
    REFUSED(SENNIT_STATE, sennit_cache_append_begin(r, &span, 1, HEADS, err));
    sennit_cache_dispose(&more); /* within its step */
    sennit_cache_append_abort(p.source);
    struct pair_step s = {0};
    add_span(&s, p.source, 0, 71, 2);
    make_inputs(&s);
    OK(sennit_cache_append_begin(p.source, s.spans, 1, HEADS, err));
    store_tiles(&s, p.source, true);
    attend(&s, p.source, s.out[0], NULL);
    REFUSED(SENNIT_STATE, sennit_cache_append_begin(r, s.spans, 1, HEADS, err));
    sennit_cache_append_abort(p.source);
    free_inputs(&s);
    assert_true(cache_fingerprint(r) == before && sennit_pool_bytes(f.pool) == bytes);
    step_pair(&p, 0, 71, 2);
    free_pair(&p);
    close_fixture(&f);
}

/* A reader whose source has not run answers with NaN, never with what an earlier step selected. */
static void nothing_old_is_read(void **state)
{
    (void)state;
    struct fixture f;
    open_fixture(&f, "mla-dsa", true, 1);
    struct pair p = new_pair(&f);
    struct pair_step s = {0};
    step_pair(&p, 0, 1, 70);
    add_span(&s, p.source, 0, 71, 2);
    make_inputs(&s);
    OK(sennit_cache_append_begin(p.source, s.spans, 1, HEADS, err));
    OK(sennit_cache_append_begin(p.reader[0], s.spans, 1, HEADS, err));
    store_tiles(&s, p.source, true);
    store_tiles(&s, p.reader[0], false);
    attend(&s, p.reader[0], s.out[1], NULL);
    for (size_t i = 0; i < s.n_tokens * HEADS * DL; i++)
        assert_true(isnan(s.out[1][i]));
    sennit_cache_append_abort(p.reader[0]);
    sennit_cache_append_abort(p.source);
    free_inputs(&s);
    step_pair(&p, 0, 71, 2);
    free_pair(&p);
    close_fixture(&f);
}

/* Every allocation of a reader's life fails in turn. */
static void readers_survive_refused_memory(void **state)
{
    (void)state;
    for (uint64_t n = 1;; n++) {
        struct fixture f;
        struct sennit_error why = {0};
        struct sennit_cache *r = NULL;
        open_fixture(&f, "mla-dsa", false, 1);
        struct sn_heap *heap = f.pool->heap;
        struct sennit_cache *source = serial(&f, 0, 0);
        struct sennit_cache_config c = reader_config(&f, source);
        struct sennit_span span = {.row = 0, .pos = 0, .n_tokens = 70};
        OK(sennit_cache_append_begin(source, &span, 1, HEADS, err));
        size_t scratch = atomic_load(&heap->used[SN_USE_SCRATCH]);
        sn_heap_fail_at(heap, n);
        sennit_status status = sennit_cache_create(&r, f.pool, &c, 1, &why);
        bool made = status == SENNIT_OK;
        if (made)
            status = sennit_cache_append_begin(r, &span, 1, HEADS, &why);
        sn_heap_fail_at(heap, 0);
        assert_true(status == SENNIT_OK || status == SENNIT_NOMEM);
        if (status == SENNIT_NOMEM && made) {
            assert_int_equal(sennit_cache_row_offset(r, 0), 0);
            OK(sennit_cache_append_begin(r, &span, 1, HEADS, err));
        }
        sennit_cache_dispose(&source);
        sennit_cache_dispose(&r);
        assert_true(atomic_load(&heap->used[SN_USE_SCRATCH]) <= scratch + 4096 * 64);
        close_fixture(&f);
        if (status == SENNIT_OK) {
            assert_true(n > 5);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_prompts_equal_solo),      cmocka_unit_test(codes_are_supported_or_refused),
        cmocka_unit_test(bytes_are_what_is_stored),        cmocka_unit_test(turns_leave_nothing),
        cmocka_unit_test(rollbacks_are_straight_runs),     cmocka_unit_test(faults_reach_the_outputs),
        cmocka_unit_test(readers_see_the_selection),       cmocka_unit_test(readers_store_no_index_keys),
        cmocka_unit_test(readers_come_after_their_source), cmocka_unit_test(nothing_old_is_read),
        cmocka_unit_test(readers_survive_refused_memory),  cmocka_unit_test(gaps_hold_nothing_old),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
