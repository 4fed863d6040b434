#include "cache/world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- worlds ---------------------------------------------------------------------------------- */

/* Any level this CPU has; the slow one seldom, and less where there is much to compute. */
static const char *random_isa(struct rng *rng, bool heavy)
{
    struct sn_cpu cpu = sn_cpu_detect();
    enum sn_isa levels[SN_ISA_COUNT];
    uint32_t n = 0;
    for (int isa = SN_ISA_SCALAR + 1; isa < SN_ISA_COUNT; isa++)
        if (sn_isa_available(&cpu, (enum sn_isa)isa))
            levels[n++] = (enum sn_isa)isa;
    if (n == 0 || rng_chance(rng, heavy ? 4 : 10))
        return sn_isa_name(SN_ISA_SCALAR);
    return sn_isa_name(levels[rng_below(rng, n)]);
}

static struct sennit_pool *open_pool(struct rng *rng, bool heavy)
{
    struct sennit_pool *pool;
    struct sennit_pool_options options = {.n_workers = N_WORKERS, .isa = random_isa(rng, heavy)};
    OK(sennit_pool_create(&pool, &options, err));
    sn_cache_pool_set_poison(pool, rng_chance(rng, 80));
    return pool;
}

/* 64 in half of the draws. */
static uint32_t random_page_tokens(struct rng *rng)
{
    return rng_chance(rng, 50) ? rng_below(rng, 2) * 64 : 1u << rng_below(rng, 7);
}

static uint32_t tiny_dimension(struct world *w, uint32_t least)
{
    uint32_t d = least + rng_below(&w->rng, 2), step = w->family->d_step;
    return step > d ? step : d;
}

static void cut_down(struct world *w, uint32_t least)
{
    if (w->family->tiny) {
        w->family->tiny(&w->rng, &w->g);
        return;
    }
    w->g.config.n_kv_heads = 1;
    w->g.config.d_k = w->g.config.d_v = tiny_dimension(w, least);
}

static void long_geometry(struct world *w)
{
    w->large = false;
    w->long_rows = true;
    w->max_len = 4300;
    w->g.config.max_tokens = 0;
    w->g.group = 1;
    cut_down(w, 1);
}

/* Four segments, so that the order of merging shows. */
static void segmented_geometry(struct world *w)
{
    w->large = false;
    w->segmented = true;
    w->max_len = 1000;
    w->g.config.max_tokens = 0;
    cut_down(w, 2);
    w->g.group = 1 + rng_below(&w->rng, 2);
}

struct sennit_cache *new_cache(struct world *w, struct sennit_pool *pool, const struct sennit_cache_config *config,
                               uint32_t n_rows)
{
    struct sennit_cache *c;
    OK(sennit_cache_create(&c, pool, config, n_rows, err));
    if (w->wrong && strcmp(config->family, family_of(w->family)) == 0)
        c->ops = w->wrong;
    return c;
}

void world_open(struct world *w, const struct tested_family *family, sennit_type type, uint64_t seed, uint32_t index,
                bool hostile, const struct sn_family *wrong, struct sn_pool *threads)
{
    *w = (struct world){.rng = {mix64(seed) ^ mix64(index + 1000)},
                        .family = family,
                        .hostile = hostile,
                        .wrong = wrong,
                        .threads = threads};
    struct rng *rng = &w->rng;
    w->large = rng_chance(rng, 10);
    w->max_len = rng_chance(rng, family->slow ? 95 : 75) ? 140 : 340;
    family->geometry(rng, &w->g, type, w->large);
    if (index % 16 == 5)
        long_geometry(w);
    if (index % 16 == 3)
        segmented_geometry(w);
    w->g.config.family = family_of(family);
    w->g.config.page_tokens = family->paged ? random_page_tokens(rng) : 0;
    if (hostile && family->paged)
        w->g.config.page_tokens = 1;
    w->g.config.max_span = 1 + rng_below(rng, 64);
    if (bounded_spans(w) && (w->long_rows || w->segmented || rng_chance(rng, 60)))
        w->g.config.max_span = w->long_rows || w->segmented ? (uint32_t)w->max_len : 130;
    w->g.config.round_depth = 2 + rng_below(rng, 9);
    w->g.config.n_snapshots = rng_below(rng, 3);
    w->g.scale = 1.0f / sqrtf((float)d_q_of(&w->g));
    w->g.soft_cap = rng_chance(rng, 20) ? 5.0f : 0.0f;
    for (size_t i = 0; i < SN_ARRAY_LEN(w->sinks); i++)
        w->sinks[i] = (float)rng_below(rng, 100) * 0.05f - 2.0f;
    w->g.sinks = rng_chance(rng, 30) ? w->sinks : NULL;
    if (family->settle)
        family->settle(rng, &w->g);
    w->pool = open_pool(rng, w->large || w->long_rows || w->segmented);
    sn_cache_pool_set_hostile(w->pool, hostile);
    w->solo_pool = open_pool(rng, w->large || w->long_rows || w->segmented);
    w->misc_at_start = atomic_load(&w->pool->heap->used[SN_USE_MISC]);
    w->main.c = new_cache(w, w->pool, &w->g.config, 0);
}

/* Worlds of real heads and dimensions, of long rows, and at the scalar level are short: they take no longer than the
 * many others. */
uint32_t world_operations(const struct world *w, uint64_t n_ops)
{
    enum { SMALL = 250, LONG = 100, LARGE = 80, LEAST = 16, LEAST_WORLDS = 8, WEIGHT = 10000 };
    uint64_t weight = (uint64_t)n_heads_of(&w->g) * (d_q_of(&w->g) + d_out_of(&w->g)), share = n_ops / LEAST_WORLDS;
    bool scalar = w->pool->kernels->isa == SN_ISA_SCALAR || w->solo_pool->kernels->isa == SN_ISA_SCALAR;
    uint64_t n = w->long_rows || w->segmented || scalar ? LONG : SMALL;
    if (w->large)
        n = weight > WEIGHT ? LARGE * WEIGHT / weight : LARGE;
    if (w->large && w->family->slow)
        n = n / 4;
    n = share < n ? share : n;
    return n > LEAST ? (uint32_t)n : LEAST;
}

void world_close(struct world *w)
{
    mcache_dispose(&w->main);
    for (uint32_t i = 0; i < w->n_serial; i++)
        mcache_dispose(&w->serial[i]);
    for (uint32_t i = 0; i < MAX_DONORS; i++) {
        check_donor(w, &w->donors[i]);
        donor_free(&w->donors[i]);
    }
    for (uint32_t i = 0; i < MAX_SAVED; i++) {
        free(w->saved[i].stream.data);
        mrow_free(w->saved[i].copy);
    }
    CHECK(sennit_pool_bytes(w->pool) == 0 && sennit_pool_bytes(w->solo_pool) == 0);
    CHECK(atomic_load(&w->pool->heap->used[SN_USE_MISC]) == w->misc_at_start);
    sennit_pool_free(w->pool);
    sennit_pool_free(w->solo_pool);
}

/* ---- histories ------------------------------------------------------------------------------------------------ */

static void history_release(struct history *h)
{
    if (!h || --h->n_refs > 0)
        return;
    h->ops->release(h->twin);
    free(h->tokens);
    free(h);
}

static struct history *history_new(struct world *w)
{
    struct history *h = must(calloc(1, sizeof *h));
    h->ops = w->family->twin;
    h->twin = h->ops->create(&w->g);
    h->n_refs = 1;
    return h;
}

static void history_push(struct history *h, const uint64_t *tokens, uint64_t n)
{
    if (n == 0)
        return;
    if (h->n + n > h->cap) {
        h->cap = (h->n + n) * 2;
        h->tokens = must(realloc(h->tokens, h->cap * sizeof *h->tokens));
    }
    memcpy(h->tokens + h->n, tokens, n * sizeof *tokens);
    h->n += n;
}

/* So that the row's history ends where the row does. */
static void leave_others(struct world *w, struct mrow *row)
{
    struct history *h = row->history;
    if (h->n == row->n)
        return;
    if (h->n_refs > 1) {
        row->history = history_new(w);
        history_push(row->history, h->tokens, row->n);
        history_release(h);
        return;
    }
    h->n = row->n;
    if (h->n_fed > h->n) {
        h->ops->cut(h->twin, h->n);
        h->n_fed = h->n;
    }
}

static const struct twin *mrow_twin(const struct mrow *row)
{
    struct history *h = row->history;
    for (; h->n_fed < row->n; h->n_fed++)
        h->ops->append(h->twin, h->tokens[h->n_fed]);
    return h->twin;
}

/* ---- rows of the model ---------------------------------------------------------------------------------------- */

struct mrow *mrow_new(struct world *w)
{
    struct mrow *row = must(calloc(1, sizeof *row));
    row->history = history_new(w);
    return row;
}

void mrow_free(struct mrow *row)
{
    if (!row)
        return;
    sennit_cache_dispose(&row->solo);
    history_release(row->history);
    free(row);
}

static void open_solo(struct world *w, struct mrow *row)
{
    const char *const *oracles = w->family->oracles;
    uint32_t share = w->family->other_percent ? w->family->other_percent : 12;
    bool other = oracles[1] && !w->wrong && rng_chance(&w->rng, w->large && share < 50 ? share / 3 : share);
    row->solo_g = w->g;
    row->solo_g.config.family = oracles[other];
    if (w->family->paged) /* the page size changes nothing: the row alone has another */
        row->solo_g.config.page_tokens = other ? 0 : random_page_tokens(&w->rng);
    if (w->family->settle)
        w->family->settle(&w->rng, &row->solo_g);
    if (other && w->family->open_oracle)
        w->family->open_oracle(&row->solo, w->solo_pool, &row->solo_g);
    else
        row->solo = new_cache(w, w->solo_pool, &row->solo_g.config, 1);
    row->n_solo = 0;
}

uint64_t span_limit(const struct sennit_cache *c, uint32_t row)
{
    return sennit_cache_max_append_tokens(c, row);
}

bool is_due(const struct world *w, const struct mcache *m, uint32_t row)
{
    return m->rows[row]->n == precision_start(&w->g.config) && sennit_cache_minimum_reusable_offset(m->c, row) == 0;
}

bool match_precision(struct world *w, const struct sennit_cache *c, uint32_t r, struct mrow *row)
{
    static const uint32_t first = 0;
    uint64_t floor = sennit_cache_minimum_reusable_offset(c, r);
    struct sennit_cache *solo = w->family->changes_precision ? mrow_solo(w, row) : NULL;
    if (solo && floor > sennit_cache_minimum_reusable_offset(solo, 0)) {
        OK(sennit_cache_begin_prefill(solo, err));
        OK(sennit_cache_commit_prefill(solo, &first, 1, err));
        OK(sennit_cache_end_prefill(solo, err));
        CHECK(w->wrong || floor == sennit_cache_minimum_reusable_offset(solo, 0));
    }
    return solo && floor > 0;
}

/* The solo cache takes the row's next n tokens in chunks of its own choice. out: [n][n_heads * d_v], or NULL. */
static void solo_append(struct world *w, struct mrow *row, uint64_t n, float *out)
{
    size_t width = (size_t)n_heads_of(&w->g) * d_out_of(&w->g);
    struct step_options options = {.rng = rng_chance(&w->rng, 50) ? &w->rng : NULL};
    const uint64_t *tokens = row->history->tokens + row->n_solo;
    for (uint32_t at = 0, cut, left = (uint32_t)n; at < left; at += cut) {
        cut = left - at > 1 && rng_chance(&w->rng, 60) ? 1 + rng_below(&w->rng, left - at) : left - at;
        if (bounded_spans(w) && cut > w->g.config.max_span)
            cut = w->g.config.max_span;
        if (cut > span_limit(row->solo, 0))
            cut = (uint32_t)span_limit(row->solo, 0);
        struct work_span span = {.tokens = tokens + at, .n_tokens = cut, .out = out ? out + at * width : NULL};
        OK(run_step(row->solo, &row->solo_g, &span, 1, &options, err));
    }
    row->n_solo += n;
}

struct sennit_cache *mrow_solo(struct world *w, struct mrow *row)
{
    if (!row->solo)
        open_solo(w, row);
    if (row->n_solo < row->n)
        solo_append(w, row, row->n - row->n_solo, NULL);
    return row->solo;
}

struct mrow *mrow_copy(const struct mrow *row)
{
    struct mrow *copy = must(calloc(1, sizeof *copy));
    *copy = (struct mrow){.history = row->history, .n = row->n, .n_last = row->n_last, .high = row->high};
    copy->history->n_refs++;
    return copy;
}

void mrow_cut(struct mrow *row, uint64_t n_tokens)
{
    uint64_t dropped = row->n - n_tokens;
    if (dropped == 0)
        return;
    row->n_last -= dropped < row->n_last ? dropped : row->n_last;
    row->n = n_tokens;
    if (n_tokens == 0)
        row->high = 0;
    if (row->solo && row->n_solo > n_tokens)
        sennit_cache_dispose(&row->solo);
}

void mcache_settled(struct mcache *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        m->rows[i]->high = m->rows[i]->n > m->rows[i]->high ? m->rows[i]->n : m->rows[i]->high;
}

/* A rectangle, or one among the parts. */
static bool has_columns(const struct sennit_cache_config *c)
{
    bool any = c->family && find_tested(c->family) && find_tested(c->family)->rectangle;
    for (uint32_t i = 0; i < c->n_inner; i++)
        any |= has_columns(&c->inner[i]);
    return any;
}

void mcache_align(const struct world *w, struct mcache *m)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < m->n; i++)
        longest = m->rows[i]->n > longest ? m->rows[i]->n : longest;
    for (uint32_t i = 0; i < m->n; i++)
        m->pad[i] = has_columns(&w->g.config) ? longest - m->rows[i]->n : 0;
}

void mcache_shortened(struct mcache *m)
{
    bool empty = true;
    for (uint32_t i = 0; i < m->n; i++)
        empty &= m->rows[i]->n == 0;
    if (empty)
        memset(m->pad, 0, sizeof m->pad);
}

void mcache_drop_padding(struct mcache *m)
{
    uint64_t common = UINT64_MAX;
    for (uint32_t i = 0; i < m->n; i++)
        common = m->pad[i] < common ? m->pad[i] : common;
    for (uint32_t i = 0; i < m->n; i++)
        m->pad[i] -= common;
    mcache_shortened(m);
}

void mcache_dispose(struct mcache *m)
{
    sennit_cache_dispose(&m->c);
    CHECK(m->c == NULL);
    sennit_cache_dispose(&m->c); /* twice is safe */
    for (uint32_t i = 0; i < m->n; i++)
        mrow_free(m->rows[i]);
    *m = (struct mcache){0};
}

/* ---- append ---------------------------------------------------------------------------------- */

/* A wrong variant is found out, as it must be. */
static _Noreturn void caught(uint32_t head, uint64_t n_keys, double error, double bound)
{
    printf("caught: head %u over %llu keys is off by %.3g, the bound is %.3g\n", head, (unsigned long long)n_keys,
           error, bound);
    exit(0);
}

static void hold_against_twin(struct world *w, const struct mrow *row, const float *q, uint32_t head, uint64_t n_keys,
                              const uint8_t *mask, const float *sink, const float *got)
{
    size_t d_v = d_out_of(&w->g);
    double *want = must(malloc(d_v * sizeof *want));
    double bound = w->family->twin->attend(mrow_twin(row), q, head, n_keys, mask, sink, want);
    for (size_t d = 0; d < d_v; d++) {
        double error = fabs(got[d] - want[d]);
        if (!(error <= bound) && w->wrong)
            caught(head, n_keys, error, bound);
        if (!(error <= bound))
            die("head %u over %llu keys, value %zu: %.9g, textbook %.9g: error %.3g above the "
                "bound %.3g",
                head, (unsigned long long)n_keys, d, got[d], want[d], error, bound);
        w->worst = error / bound > w->worst ? error / bound : w->worst;
    }
    free(want);
    w->n_twin++;
}

/* Outputs of the row's last n tokens. */
static void check_outputs(struct world *w, struct mrow *row, uint32_t n, const float *got, const float *solo)
{
    size_t heads = n_heads_of(&w->g), d_q = d_q_of(&w->g), d_v = d_out_of(&w->g), width = heads * d_v;
    for (size_t i = 0; i < n * width; i++)
        if (memcmp(&got[i], &solo[i], sizeof *got) != 0)
            die("token %zu of %u, head %zu, value %zu: %.9g, alone (%s): %.9g", i / width, n, i % width / d_v,
                i % d_v, got[i], row->solo_g.config.family, solo[i]);
    w->n_outputs += n;
    float *q = must(malloc(heads * d_q * sizeof *q));
    for (int k = 0; k < 2; k++) {
        uint32_t t = rng_below(&w->rng, n), head = rng_below(&w->rng, (uint32_t)heads);
        token_query(row->history->tokens[row->n - n + t], heads * d_q, q);
        hold_against_twin(w, row, q + head * d_q, head, row->n - n + t + 1, NULL,
                          w->g.sinks ? w->g.sinks + head : NULL, got + t * width + head * d_v);
    }
    free(q);
}

void mcache_append(struct world *w, struct mcache *m, const uint32_t *n, bool with_attention, bool abort)
{
    struct work_span spans[MAX_ROWS];
    uint64_t *tokens[MAX_ROWS];
    float *solo[MAX_ROWS] = {0};
    uint32_t n_spans = 0;
    size_t width = (size_t)n_heads_of(&w->g) * d_out_of(&w->g);
    for (uint32_t r = 0; r < m->n; r++) {
        if (n[r] == 0)
            continue;
        uint64_t *list = tokens[n_spans] = must(malloc(n[r] * sizeof *list));
        for (uint32_t t = 0; t < n[r]; t++)
            list[t] = rng_next(&w->rng);
        float *out = with_attention ? must(malloc(n[r] * width * sizeof *out)) : NULL;
        solo[n_spans] = with_attention ? must(malloc(n[r] * width * sizeof *out)) : NULL;
        spans[n_spans++] = (struct work_span){.row = r, .tokens = list, .n_tokens = n[r], .out = out};
    }
    bool changes = false; /* what a row in the step must become stays when the step is given up */
    for (uint32_t i = 0; i < n_spans; i++)
        changes |= is_due(w, m, spans[i].row);
    uint64_t before = abort ? cache_fingerprint(m->c) : 0, bytes = sennit_pool_bytes(w->pool);
    struct step_options options = {
        .rng = &w->rng, .threads = rng_chance(&w->rng, 4) ? w->threads : NULL, .abort = abort};
    OK(run_step(m->c, &w->g, spans, n_spans, &options, err));
    if (abort && !changes && !w->wrong) /* a wrong one may change at another time: the textbook's to find */
        CHECK(cache_fingerprint(m->c) == before && sennit_pool_bytes(w->pool) == bytes);
    for (uint32_t i = 0; abort && changes && !w->wrong && i < n_spans && !m->c->round_open; i++)
        check_row(w, m, spans[i].row);
    for (uint32_t r = 0; r < m->n && !abort; r++)
        m->rows[r]->n_last = 0;
    for (uint32_t i = 0; i < n_spans; i++) {
        struct mrow *row = m->rows[spans[i].row];
        if (!abort) {
            if (with_attention)
                mrow_solo(w, row);
            leave_others(w, row);
            history_push(row->history, tokens[i], spans[i].n_tokens);
            row->n += spans[i].n_tokens;
            row->n_last = spans[i].n_tokens;
            if (with_attention) {
                solo_append(w, row, spans[i].n_tokens, solo[i]);
                check_outputs(w, row, spans[i].n_tokens, spans[i].out, solo[i]);
            }
        }
        free(tokens[i]);
        free(spans[i].out);
        free(solo[i]);
    }
    m->stamp = abort ? m->stamp : 0;
    if (!m->c->round_open)
        mcache_settled(m);
}

/* ---- checks ---------------------------------------------------------------------------------- */

/* What the row alone stores, and the row in the batch must. */
static uint8_t *canonical_solo(struct world *w, struct mrow *row, size_t *n)
{
    uint8_t *solo = canonical_row(mrow_solo(w, row), 0, n);
    if (w->family->forget && solo)
        w->family->forget(&w->g, row->n, solo, *n);
    return solo;
}

void check_row(struct world *w, const struct mcache *m, uint32_t r)
{
    size_t n, n_solo;
    struct mrow *row = m->rows[r];
    uint8_t *got = canonical_row(m->c, r, &n), *solo = canonical_solo(w, row, &n_solo);
    if (n != n_solo)
        die("row %u stores %zu bytes, alone %zu", r, n, n_solo);
    for (size_t i = 0; n > 0 && memcmp(got, solo, n) != 0 && i < n; i++)
        if (got[i] != solo[i])
            die("row %u of %llu tokens: byte %zu of %zu is %02x, alone %02x", r, (unsigned long long)row->n, i, n,
                got[i], solo[i]);
    free(got);
    free(solo);
    w->n_states++;
}

void check_rows(struct world *w, const struct mcache *m)
{
    if (m->n <= 2 || rng_chance(&w->rng, 25)) {
        for (uint32_t r = 0; r < m->n; r++)
            check_row(w, m, r);
        return;
    }
    uint32_t r = rng_below(&w->rng, m->n);
    check_row(w, m, r);
    check_row(w, m, (r + 1 + rng_below(&w->rng, m->n - 1)) % m->n);
}

/* What one more token costs is what the second page costs, which no table block or full window hides. */
static void check_slope(const struct world *w, const struct sennit_cache *c)
{
    uint64_t p = w->g.config.page_tokens ? w->g.config.page_tokens : SN_MAX_PAGE_TOKENS;
    if (!w->family->paged || w->family->changes_precision)
        return;
    uint64_t page = sennit_cache_projected_bytes(c, 2 * p) - sennit_cache_projected_bytes(c, p);
    uint64_t copies = w->family->rectangle ? 1 + w->g.config.n_snapshots : 1; /* a snapshot is a whole one */
    CHECK(sennit_cache_bytes_per_token(c) * copies == page / p);
}

/* A donor still has the storage that m had when it was captured. */
static bool held(const struct world *w, const struct mcache *m)
{
    bool any = false;
    for (uint32_t i = 0; i < MAX_DONORS; i++)
        any |= m->stamp != 0 && w->donors[i].stamp == m->stamp;
    return any;
}

/* A rectangle: rows in their order, each at its columns, and each charged for all columns that there are; while a
 * donor holds it, it is as it was. */
static void check_rectangle(const struct world *w, const struct mcache *m, uint64_t offset)
{
    const struct sennit_cache_config *c = &w->g.config;
    uint64_t step = c->page_tokens ? c->page_tokens : 64, width = (offset + step - 1) / step * step;
    uint64_t share = width ? 64 + width * c->n_kv_heads * (c->d_k + c->d_v) * (c->k_type == SENNIT_F32 ? 4 : 2) : 0;
    struct sennit_state state;
    bool shared = held(w, m);
    for (uint32_t r = 0; r < m->n; r++)
        CHECK(sennit_cache_current_bytes(m->c, r) == (shared ? 0 : share));
    CHECK(sennit_cache_projected_bytes(m->c, offset) ==
          (1 + c->n_snapshots) * share + sennit_cache_projected_bytes(m->c, 0));
    if (shared)
        return;
    OK(sennit_cache_state(m->c, &state, err));
    const uint8_t *tensor[2] = {0};
    for (size_t i = 0; i < state.n_spans; i++) {
        const struct sennit_span_view *s = &state.spans[i], *first = &state.spans[i % 2];
        const uint8_t *start = (const uint8_t *)s->data - s->row * s->n_bytes;
        CHECK(s->column == m->pad[s->row] && s->n_columns == width && s->n_bytes == first->n_bytes);
        CHECK(i < 2 || start == tensor[i % 2]);
        tensor[i % 2] = start;
    }
    sennit_state_release(&state);
}

/* The row's floor and boundary follow from its own count. */
static void check_precision(const struct world *w, const struct mcache *m, uint32_t r)
{
    uint64_t start = precision_start(&w->g.config), n = m->rows[r]->n;
    uint64_t floor = sennit_cache_minimum_reusable_offset(m->c, r);
    CHECK(sennit_cache_max_append_tokens(m->c, r) ==
          (start != UINT64_MAX && n < start ? start - n : SENNIT_UNBOUNDED));
    CHECK(floor == 0 || (floor == start && n >= start && !sennit_cache_can_publish_row(m->c, r, floor - 1)));
    CHECK(floor == start || m->rows[r]->high <= start);
    CHECK(sennit_cache_minimum_reusable_offset(m->c, -1) >= floor);
}

void check_questions(struct world *w, const struct mcache *m)
{
    int32_t positions[MAX_ROWS];
    uint64_t head = 0;
    bool ragged = false;
    CHECK(sennit_cache_batch_size(m->c) == m->n);
    for (uint32_t r = 0; r < m->n; r++) {
        uint64_t n = m->rows[r]->n;
        CHECK(sennit_cache_row_offset(m->c, r) == n && sennit_cache_left_pad(m->c, r) == m->pad[r]);
        CHECK(sennit_cache_can_publish_row(m->c, r, n) && !sennit_cache_can_publish_row(m->c, r, n + 1));
        CHECK(n == 0 || sennit_cache_is_trimmable(m->c) || !sennit_cache_can_publish_row(m->c, r, n - 1));
        uint64_t least = retention_of(w->family, &w->g, m->rows[r]->high).trim_floor;
        CHECK(least == 0 || !sennit_cache_can_publish_row(m->c, r, least - 1));
        uint64_t floor = sennit_cache_minimum_reusable_offset(m->c, r);
        CHECK(!w->family->retention || sennit_cache_can_publish_row(m->c, r, least > floor ? least : floor));
        if (!w->wrong || !w->family->changes_precision)
            check_precision(w, m, r);
        head = n + m->pad[r] > head ? n + m->pad[r] : head;
    }
    for (uint32_t r = 0; r < m->n; r++)
        ragged |= m->rows[r]->n != head;
    uint64_t bound = w->g.config.max_tokens;
    CHECK(sennit_cache_max_tokens(m->c) == (bound ? bound : SENNIT_UNBOUNDED));
    check_slope(w, m->c);
    CHECK(sennit_cache_offset(m->c) == head);
    CHECK(sennit_cache_rope_offset_arr(m->c, positions) == ragged);
    for (uint32_t r = 0; r < m->n && ragged; r++)
        CHECK(positions[r] == (int32_t)m->rows[r]->n);
    CHECK(strncmp(sennit_cache_signature(m->c), family_of(w->family), strlen(family_of(w->family))) == 0);
    CHECK(w->family->changes_precision || sennit_cache_minimum_reusable_offset(m->c, -1) == 0);
    if (w->family->rectangle)
        check_rectangle(w, m, head);
}

/* A row of a rectangle has as many columns as the row that reaches furthest. */
void check_within_projection(const struct world *w, const struct mcache *m, bool round)
{
    uint64_t columns = 0;
    for (uint32_t r = 0; r < m->n; r++)
        columns = m->pad[r] + m->rows[r]->high > columns ? m->pad[r] + m->rows[r]->high : columns;
    for (uint32_t r = 0; r < m->n; r++) {
        uint64_t high = has_columns(&w->g.config) ? columns : m->rows[r]->high,
                 now = sennit_cache_current_bytes(m->c, r);
        uint64_t most = sennit_cache_projected_bytes(m->c, high);
        most -= round ? 0 : sennit_cache_projected_bytes(m->c, 0); /* the reserve */
        if (now > most)
            die("row %u holds %llu bytes; projected for %llu tokens: %llu", r, (unsigned long long)now,
                (unsigned long long)high, (unsigned long long)most);
    }
}

/* First retained position of a row. */
static uint64_t first_pos(const struct world *w, const struct mrow *row)
{
    struct retention kept = retention_of(w->family, &w->g, row->high);
    return kept.gap == 0 ? kept.gap_end : 0;
}

static void check_donor_rows(struct world *w, const struct mdonor *d)
{
    CHECK(d->rows->n_rows == d->n);
    for (uint32_t r = 0; r < d->n; r++) {
        size_t n, n_solo;
        uint64_t tokens = d->copy[r]->n;
        CHECK(d->rows->offsets[r] == tokens && d->rows->starts[r] == first_pos(w, d->copy[r]) &&
              d->rows->ends[r] == tokens);
        uint8_t *got = canonical_spans(sn_donor_cache(d->rows), d->rows->planes, d->rows->n_planes, r, tokens, &n);
        uint8_t *solo = canonical_solo(w, d->copy[r], &n_solo);
        if (n != n_solo || (n && memcmp(got, solo, n) != 0))
            die("donor row %u changed after its capture", r);
        free(got);
        free(solo);
    }
    w->n_states += d->n;
}

/* Which of row r's keys 0 .. n - 1 a view shows: those that are there and that the mask, which counts from the view's
 * first position, does not hide. out: [n_q][n]. */
static void show_keys(const struct world *w, const struct mdonor *d, uint32_t r, uint32_t n_q, const uint8_t *mask,
                      uint8_t *out)
{
    struct retention kept = retention_of(w->family, &w->g, d->copy[r]->high);
    uint64_t n = d->copy[r]->n, start = d->view->starts[r];
    CHECK(start == first_pos(w, d->copy[r]));
    for (size_t t = 0; t < n_q; t++)
        for (uint64_t p = 0; p < n; p++)
            out[t * n + p] = (p < kept.gap || p >= kept.gap_end) && (!mask || mask[t * d->view->width + (p - start)]);
}

/* The view's rows against views of the same rows alone, and one query of each against the textbook.
 */
static void check_view(struct world *w, const struct mdonor *d)
{
    size_t d_q = d_q_of(&w->g), d_v = d_out_of(&w->g);
    uint32_t heads = n_heads_of(&w->g), n_q = 1 + rng_below(&w->rng, 3), n = d->n;
    size_t q_row = (size_t)heads * n_q * d_q, o_row = (size_t)heads * n_q * d_v, width = d->view->width;
    float *q = must(calloc(n * q_row + 1, sizeof *q)), *out = must(calloc(n * o_row + 1, sizeof *out));
    float *solo_out = must(calloc(o_row, sizeof *solo_out));
    uint8_t *mask = must(calloc(n * n_q * width + 1, 1));
    token_query(rng_next(&w->rng), n * q_row, q);
    size_t from = rng_chance(&w->rng, 30) ? rng_below(&w->rng, (uint32_t)width + 1) : 0; /* as a window hides keys */
    for (size_t i = 0; i < n * n_q * width; i++)
        mask[i] = i % width >= from && rng_chance(&w->rng, 70);
    bool masked = rng_chance(&w->rng, 60);
    if (masked && rng_chance(&w->rng, 30) && n > 0)
        memset(mask, 0, width); /* the first query sees nothing */
    OK(sennit_donor_attend(d->view, q, heads, n_q, w->g.scale, masked ? mask : NULL, out, err));
    for (uint32_t r = 0; r < n; r++) {
        struct sennit_donor_attention *alone;
        bool changed = match_precision(w, sn_view_cache(d->view), r, d->copy[r]);
        OK(sennit_cache_capture_donor_attention(mrow_solo(w, d->copy[r]), &alone, err));
        bool hidden = masked || w->family->retention;
        uint8_t *all_mask = must(calloc(n_q * (d->copy[r]->n + 1), 1)), *solo_mask = all_mask;
        show_keys(w, d, r, n_q, masked ? mask + r * n_q * width : NULL, all_mask);
        if (alone->starts[0] > 0) { /* from its first key on */
            solo_mask = must(calloc(n_q * (alone->width + 1), 1));
            for (size_t t = 0; t < n_q; t++)
                memcpy(solo_mask + t * alone->width, all_mask + t * d->copy[r]->n + alone->starts[0], alone->width);
        }
        OK(sennit_donor_attend(alone, q + r * q_row, heads, n_q, w->g.scale, hidden ? solo_mask : NULL, solo_out,
                               err));
        if (memcmp(solo_out, out + r * o_row, o_row * sizeof *out) != 0)
            die("donor attention of row %u differs from the row alone", r);
        uint32_t head = rng_below(&w->rng, heads), t = rng_below(&w->rng, n_q);
        float cap = w->g.soft_cap;
        w->g.soft_cap = 0; /* donors have none */
        if (w->family->twin->change)
            w->family->twin->change(d->copy[r]->history->twin, changed);
        hold_against_twin(w, d->copy[r], q + r * q_row + (head * n_q + t) * d_q, head, d->copy[r]->n,
                          hidden ? all_mask + t * d->copy[r]->n : NULL, NULL,
                          out + r * o_row + (head * n_q + t) * d_v);
        w->g.soft_cap = cap;
        if (changed)
            w->family->twin->change(d->copy[r]->history->twin, false);
        sennit_donor_attention_free(alone);
        if (solo_mask != all_mask)
            free(solo_mask);
        free(all_mask);
    }
    free(q);
    free(out);
    free(solo_out);
    free(mask);
}

void check_donor(struct world *w, struct mdonor *d)
{
    if (d->rows)
        check_donor_rows(w, d);
    if (d->view)
        check_view(w, d);
}

void donor_free(struct mdonor *d)
{
    sennit_donor_free(d->rows);
    sennit_donor_attention_free(d->view);
    for (uint32_t i = 0; i < d->n; i++)
        mrow_free(d->copy[i]);
    *d = (struct mdonor){0};
}

/* ---- accounting
 * ---------------------------------------------------------------------------------------------- */

struct object {
    const void *p;
    size_t bytes;
    uint32_t row; /* which of all rows reached it first */
    bool shared;  /* and so did another */
};
/* Objects in a list, and a table of them by address; what an earlier census left in a slot counts as empty. */
struct census {
    struct object *list;
    size_t n, cap;
    struct slot {
        uint64_t census;
        size_t at;
    } * slot;
    size_t n_slots; /* a power of two, at least 2 * cap */
    uint64_t number;
    uint32_t row;
};

static struct slot *find_slot(const struct census *c, const void *p)
{
    size_t i = (size_t)mix64((uint64_t)(uintptr_t)p) & (c->n_slots - 1);
    while (c->slot[i].census == c->number && c->list[c->slot[i].at].p != p)
        i = (i + 1) & (c->n_slots - 1);
    return &c->slot[i];
}

static void enlarge(struct census *c)
{
    c->cap = c->cap ? 2 * c->cap : 1024;
    c->n_slots = 2 * c->cap;
    c->list = must(realloc(c->list, c->cap * sizeof *c->list));
    free(c->slot);
    c->slot = must(calloc(c->n_slots, sizeof *c->slot));
    for (size_t i = 0; i < c->n; i++)
        *find_slot(c, c->list[i].p) = (struct slot){c->number, i};
}

static void visit(void *ctx, const void *p, size_t bytes)
{
    struct census *c = ctx;
    if (c->n == c->cap)
        enlarge(c);
    struct slot *s = find_slot(c, p);
    if (s->census == c->number) {
        c->list[s->at].shared = true;
        return;
    }
    *s = (struct slot){c->number, c->n};
    c->list[c->n++] = (struct object){p, bytes, c->row, false};
}

static void count_cache(struct world *w, struct census *c, const struct sennit_cache *cache)
{
    for (uint32_t r = 0; r < cache->n_rows; r++, c->row++)
        w->family->walk(cache, r, visit, c);
}

/* Every object once = the pool's count = the allocator's; what only one row reaches = current_bytes
 * of that row. */
void check_accounting(struct world *w)
{
    static struct census c; /* kept for its table */
    c.n = 0;
    c.row = 0;
    c.number++;
    uint64_t unique = 0, claimed = 0, own = 0;
    const struct sennit_cache *first = w->main.c;
    count_cache(w, &c, first);
    for (uint32_t i = 0; i < w->n_serial; i++)
        count_cache(w, &c, w->serial[i].c);
    for (uint32_t i = 0; i < MAX_DONORS; i++) {
        if (w->donors[i].rows)
            count_cache(w, &c, sn_donor_cache(w->donors[i].rows));
        if (w->donors[i].view)
            count_cache(w, &c, sn_view_cache(w->donors[i].view));
    }
    for (size_t i = 0; i < c.n; i++) {
        unique += c.list[i].bytes;
        own += !c.list[i].shared && c.list[i].row < first->n_rows ? c.list[i].bytes : 0;
    }
    for (uint32_t r = 0; r < first->n_rows; r++)
        claimed += sennit_cache_current_bytes(first, r);
    if (unique != sennit_pool_bytes(w->pool) || unique != atomic_load(&w->pool->heap->used[SN_USE_CACHE]))
        die("storage in use is %llu bytes, the pool says %llu, the allocator %zu", (unsigned long long)unique,
            (unsigned long long)sennit_pool_bytes(w->pool), atomic_load(&w->pool->heap->used[SN_USE_CACHE]));
    if (own != claimed)
        die("the rows own %llu bytes, current_bytes says %llu", (unsigned long long)own, (unsigned long long)claimed);
}
