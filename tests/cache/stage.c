#include "cache/stage.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/recur_common.h"

/* ---- kinds ----------------------------------------------------------------------------------------------------- */

static const struct sennit_cache_config coded_store = {.family = "affine",
                                                       .code = {.k_bits = 8, .v_bits = 4, .group = 32}};

static void small_pages(struct geometry *g)
{
    g->config.page_tokens = 4;
}

static void four_bits(struct geometry *g)
{
    g->config.page_tokens = 16;
    g->config.code.k_bits = g->config.code.v_bits = 4;
}

static void moving(struct geometry *g)
{
    g->config.page_tokens = 4;
    g->config.max_span = 200;
    g->config.window.tokens = 10;
    g->config.window.slack = 5;
    g->config.window.n_kept = 0;
}

static void moving_changing(struct geometry *g)
{
    static const struct sennit_cache_config late = {
        .family = "delayed", .start = 19, .inner = &coded_store, .n_inner = 1};
    moving(g);
    g->config.window.n_kept = 2;
    g->config.inner = &late;
}

static void moving_codes(struct geometry *g)
{
    moving(g);
    g->config.window.n_kept = 3;
    g->config.k_type = g->config.v_type = 0;
    g->config.inner = &coded_store;
}

static void coded_latent(struct geometry *g)
{
    g->config.page_tokens = 8;
    g->config.code.k_bits = 8;
    g->config.mla.d_latent = g->parts[0].d = g->d_out = 64;
    g->d_q = 64 + g->config.mla.d_rope;
}

static void mamba2(struct geometry *g)
{
    struct recur_sizes s = {
        .kind = "mamba2", .n_heads = 4, .n_key_heads = 2, .d_state = 9, .d_head = 20, .kernel = 4};
    recur_geometry(g, &s);
}

static void short_conv(struct geometry *g)
{
    struct recur_sizes s = {.kind = "short-conv", .d_head = 150, .kernel = 3, .bias = true};
    recur_geometry(g, &s);
}

static void two_bits(struct geometry *g)
{
    g->config.page_tokens = 8;
    g->config.d_k = g->config.d_v = 128;
    g->config.code.k_bits = g->config.code.v_bits = 2;
}

static const struct sennit_cache_config rotated_store = {.family = "turboquant", .code = {.k_bits = 5, .v_bits = 4}};

static void moving_rotated(struct geometry *g)
{
    moving(g);
    g->config.d_k = g->config.d_v = 64;
    g->config.k_type = g->config.v_type = 0;
    g->config.inner = &rotated_store;
}

static const struct kind further[] = {
    {"turboquant, 2 bits", "turboquant", two_bits},
    {"window of rotated codes", "window", moving_rotated},
    {"affine, 4 bits", "affine", four_bits},
    {"window that moves, then changes", "window-delayed", moving_changing},
    {"window that moves", "window", moving},
    {"window of codes, 3 kept", "window", moving_codes},
    {"mla, coded", "mla", coded_latent},
    {"mla-dsa, coded", "mla-dsa", coded_latent},
    {"recurrent, mamba2", "recurrent", mamba2},
    {"recurrent, short-conv", "recurrent", short_conv},
};

const struct kind *stage_kinds(size_t *n)
{
    static struct kind all[64];
    static char names[32][48];
    static size_t count, n_names;
    if (count == 0) {
        for (const struct tested_family *const *f = tested_families; *f; f++)
            all[count++] = (struct kind){(*f)->name, (*f)->name, NULL};
        for (size_t i = 0; i < SN_ARRAY_LEN(further); i++)
            all[count++] = further[i];
        for (const struct tested_family *const *f = tested_families; *f; f++)
            if ((*f)->paged) {
                snprintf(names[n_names], sizeof names[0], "%s, pages of 4", (*f)->name);
                all[count++] = (struct kind){names[n_names++], (*f)->name, small_pages};
            }
        CHECK(count <= SN_ARRAY_LEN(all));
    }
    *n = count;
    return all;
}

static const struct kind *turn;

int stage_run(int argc, char **argv, const struct CMUnitTest *tests, size_t n_tests)
{
    size_t n;
    const struct kind *kinds = stage_kinds(&n);
    int failed = 0;
    all_families_are_tested();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    for (turn = kinds; turn < kinds + n; turn++) {
        if (argc > 2 && fnmatch(argv[2], turn->name, 0) != 0)
            continue;
        printf("kind %s\n", turn->name);
        fflush(stdout); /* a test that ends the program leaves at least this */
        failed += _cmocka_run_group_tests(turn->name, tests, n_tests, NULL, NULL);
    }
    return failed;
}

void stage_open(struct stage *s)
{
    stage_open_kind(s, turn);
}

void stage_open_kind(struct stage *s, const struct kind *kind)
{
    *s = (struct stage){.kind = kind, .tested = find_tested(kind->line), .rng = {17}};
    CHECK(s->tested);
    s->g = (struct geometry){
        .config =
            {.n_kv_heads = 2, .d_k = 32, .d_v = 32, .k_type = SENNIT_F16, .v_type = SENNIT_F16, .round_depth = 8},
        .group = 2,
        .scale = 0.25f};
    small_geometry(s->tested, &s->g);
    if (kind->shape)
        kind->shape(&s->g);
    s->width = (size_t)n_heads_of(&s->g) * d_out_of(&s->g);
    OK(sennit_pool_create(&s->pool, NULL, err));
    sn_cache_pool_set_poison(s->pool, true);
}

void stage_close(struct stage *s)
{
    if (sennit_pool_bytes(s->pool) != 0)
        die("%s: %llu bytes are left", s->kind->name, (unsigned long long)sennit_pool_bytes(s->pool));
    sennit_pool_free(s->pool);
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

struct sennit_cache *stage_new(struct stage *s, uint32_t n_rows)
{
    struct sennit_cache *c;
    OK(sennit_cache_create(&c, s->pool, &s->g.config, n_rows, err));
    return c;
}

struct sennit_cache *stage_row(struct stage *s, uint64_t seed, uint32_t n)
{
    struct sennit_cache *c = stage_new(s, 1);
    stage_feed(s, c, 0, seed, n, NULL);
    return c;
}

struct sennit_cache *stage_merge(struct stage *s, struct sennit_cache *const *rows, uint32_t n)
{
    struct sennit_cache *c = stage_new(s, 0);
    OK(sennit_cache_merge_rows(c, (const struct sennit_cache *const *)rows, n, err));
    return c;
}

void stage_dispose(struct sennit_cache **caches, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        sennit_cache_dispose(&caches[i]);
}

float *stage_out(const struct stage *s, uint32_t n_tokens)
{
    return must(calloc((n_tokens + 1) * s->width, sizeof(float)));
}

static bool bounded(const struct sennit_cache *c)
{
    const struct sennit_cache_part *parts;
    bool any = c->ops->bounded_span;
    for (uint32_t i = 0, n = sennit_cache_composed(c, &parts); i < n; i++)
        any |= bounded(parts[i].cache);
    return any;
}

/* Tokens of `n` that the row takes before its precision changes, in one span. */
static uint32_t take(const struct sennit_cache *c, uint32_t row, uint32_t n)
{
    uint64_t left = sennit_cache_max_append_tokens(c, row);
    if (bounded(c) && n > c->config.max_span)
        n = c->config.max_span;
    return left > 0 && left < n ? (uint32_t)left : n;
}

void stage_feeds(struct stage *s, struct sennit_cache *c, const struct feed *feeds, uint32_t n_feeds)
{
    enum { MOST = 16 };
    uint32_t at[MOST] = {0}, n_spans;
    uint64_t *tokens[MOST];
    CHECK(n_feeds <= MOST);
    for (uint32_t i = 0; i < n_feeds; i++) {
        tokens[i] = must(malloc((feeds[i].n + 1) * sizeof *tokens[i]));
        for (uint32_t t = 0; t < feeds[i].n; t++)
            tokens[i][t] = feeds[i].seed + t;
    }
    do {
        struct work_span spans[MOST];
        n_spans = 0;
        for (uint32_t i = 0; i < n_feeds; i++) {
            if (at[i] == feeds[i].n)
                continue;
            uint32_t n = take(c, feeds[i].row, feeds[i].n - at[i]);
            spans[n_spans++] = (struct work_span){.row = feeds[i].row,
                                                  .tokens = tokens[i] + at[i],
                                                  .n_tokens = n,
                                                  .out = feeds[i].out ? feeds[i].out + at[i] * s->width : NULL};
            at[i] += n;
        }
        struct step_options options = {.rng = &s->rng};
        if (n_spans > 0)
            OK(run_step(c, &s->g, spans, n_spans, &options, err));
    } while (n_spans > 0);
    for (uint32_t i = 0; i < n_feeds; i++)
        free(tokens[i]);
}

void stage_feed(struct stage *s, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n, float *out)
{
    struct feed feed = {.row = row, .seed = seed, .n = n, .out = out};
    stage_feeds(s, c, &feed, 1);
}

uint32_t stage_draft(struct stage *s, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n)
{
    uint64_t left = sennit_cache_max_append_tokens(c, row);
    n = left < n ? (uint32_t)left : n;
    stage_feed(s, c, row, seed, n, NULL);
    return n;
}

void stage_same(struct stage *s, const struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n)
{
    enum { PROBES = 2 };
    struct sennit_cache *alone = stage_row(s, seed, n), *copy;
    float *got = stage_out(s, PROBES), *want = stage_out(s, PROBES);
    size_t n_got, n_want;
    if (sennit_cache_row_offset(c, row) != n)
        die("%s: row %u has %llu tokens, not %u", s->kind->name, row,
            (unsigned long long)sennit_cache_row_offset(c, row), n);
    uint8_t *x = canonical_row(c, row, &n_got), *y = canonical_row(alone, 0, &n_want);
    if (n_got != n_want || (n_got && memcmp(x, y, n_got) != 0))
        die("%s: row %u of %u tokens does not store what it would alone", s->kind->name, row, n);
    OK(sennit_cache_clone(c, row, &copy, err));
    stage_feed(s, copy, 0, 424242, PROBES, got);
    stage_feed(s, alone, 0, 424242, PROBES, want);
    if (memcmp(got, want, PROBES * s->width * sizeof *got) != 0)
        die("%s: row %u of %u tokens does not answer as it would alone", s->kind->name, row, n);
    for (size_t i = 0; i < PROBES * s->width; i++)
        if (got[i] != got[i])
            die("%s: row %u of %u tokens answers with a NaN of storage that nobody wrote", s->kind->name, row, n);
    sennit_cache_dispose(&alone);
    sennit_cache_dispose(&copy);
    free(x);
    free(y);
    free(got);
    free(want);
}

void stage_textbook(const struct stage *s, uint64_t seed, uint32_t n, const float *got)
{
    const struct twin_ops *ops = s->tested->twin;
    struct twin *twin = ops->create(&s->g);
    size_t heads = n_heads_of(&s->g), d_q = d_q_of(&s->g), d_out = d_out_of(&s->g);
    float *q = must(malloc((heads * d_q + 1) * sizeof *q));
    double *want = must(malloc(d_out * sizeof *want));
    for (uint32_t i = 0; i < n; i++)
        ops->append(twin, seed + i);
    token_query(seed + n - 1, heads * d_q, q);
    for (uint32_t h = 0; h < heads; h++) {
        double bound = ops->attend(twin, q + h * d_q, h, n, NULL, NULL, want);
        for (size_t d = 0; d < d_out; d++)
            if (!(fabs(got[h * d_out + d] - want[d]) <= bound))
                die("%s, %u heads, %u tokens: head %u, value %zu: %.9g, textbook %.9g, bound %.3g", s->kind->name,
                    (unsigned)heads, n, h, d, got[h * d_out + d], want[d], bound);
    }
    ops->release(twin);
    free(q);
    free(want);
}

uint64_t stage_imprint(const struct stage *s, const struct sennit_cache *c)
{
    return mix64(cache_fingerprint(c) ^ mix64(sennit_pool_bytes(s->pool)));
}

uint32_t stage_edge(const struct stage *s)
{
    const struct sennit_cache_config *c = &s->g.config;
    if (c->window.tokens && c->window.tokens <= 64)
        return c->window.tokens;
    if (c->start > 1 && c->start <= 64)
        return (uint32_t)c->start;
    return s->tested->paged ? sn_page_tokens(c) : 8;
}

uint32_t stage_round(const struct sennit_cache *c, uint32_t row, uint32_t most)
{
    return take(c, row, most);
}
