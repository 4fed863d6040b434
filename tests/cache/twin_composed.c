/* Arrangements: a "composed" cache's parts, each held against the textbook of its own family, side by side. A head of
 * the whole is one output of one part (harness.h); the parts' bounds are theirs, nothing is added.
 *
 * A part that reads another one has a textbook too: the reader of a selection sees the keys that the source's full
 * sort marks; a donor has its source's textbook, of the source's tokens, under its own queries. */
#include <math.h>
#include <stdlib.h>

#include "cache/attend.h"
#include "cache/composed.h"
#include "cache/recur_common.h"
#include "cache/twin.h"

/* What a geometry of a composed cache points to. */
struct arrangement {
    struct geometry sub[MAX_SUBS]; /* first */
    struct sennit_cache_config inner[MAX_SUBS];
    const struct tested_family *line[MAX_SUBS]; /* of the part's family; of a donor: of its source's */
    uint32_t reads[MAX_SUBS];                   /* the part that it reads; its own number: none */
    uint32_t keys[MAX_SUBS];                    /* the part whose keys it attends to: its own but in donors */
    struct geometry twin_g[MAX_SUBS];           /* as the line's twin takes it */
};

static const char *const roles[MAX_SUBS] = {"first", "second", "third", "fourth"};

static const struct arrangement *arrangement_of(const struct geometry *g)
{
    return (const struct arrangement *)(const void *)g->sub;
}

/* What follows for the whole from its parts, which are a->sub [g->n_subs]. */
static void finish(struct geometry *g, struct arrangement *a)
{
    struct sennit_cache_config bounds = g->config;
    g->config = (struct sennit_cache_config){.family = "composed",
                                             .max_tokens = bounds.max_tokens,
                                             .max_span = bounds.max_span,
                                             .round_depth = bounds.round_depth,
                                             .n_snapshots = bounds.n_snapshots,
                                             .inner = a->inner,
                                             .n_inner = g->n_subs};
    g->sub = a->sub;
    g->group = g->d_q = g->d_out = 1;
    g->n_heads = 0;
    g->bounded_spans = false;
    for (uint32_t i = 0; i < g->n_subs; i++) {
        struct geometry *s = &a->sub[i];
        g->n_heads += n_heads_of(s) * d_out_of(s);
        g->bounded_spans |= a->line[i]->bounded_spans;
        if (s->config.max_tokens && (!g->config.max_tokens || s->config.max_tokens < g->config.max_tokens))
            g->config.max_tokens = s->config.max_tokens;
        a->inner[i] = s->config;
        a->inner[i].role = roles[i];
        a->inner[i].reads = a->reads[i] == i ? NULL : roles[a->reads[i]];
        a->twin_g[i] = *s;
        if (a->keys[i] == i)
            continue;
        a->twin_g[i].config = a->sub[a->keys[i]].config;
        a->twin_g[i].n_heads = a->twin_g[i].d_q = a->twin_g[i].d_out = 0;
    }
}

/* ---- parts ---------------------------------------------------------------------------------------------------- */

static void add_part(struct geometry *g, struct arrangement *a, const char *family)
{
    uint32_t i = g->n_subs++;
    CHECK(i < MAX_SUBS);
    a->sub[i] = (struct geometry){.scale = g->scale};
    a->line[i] = find_tested(family);
    a->reads[i] = a->keys[i] = i;
    CHECK(a->line[i]);
}

static void draw_part(struct rng *rng, struct geometry *g, struct arrangement *a, const char *family,
                      sennit_type type, bool large)
{
    add_part(g, a, family);
    uint32_t i = g->n_subs - 1;
    a->line[i]->geometry(rng, &a->sub[i], type, large);
    a->sub[i].config.family = family_of(a->line[i]);
}

/* A part like the one before, which has an indexer, without one. */
static void add_reader(struct geometry *g, struct arrangement *a)
{
    uint32_t i = g->n_subs;
    add_part(g, a, "mla-dsa");
    a->sub[i] = a->sub[i - 1];
    struct sennit_cache_config *c = &a->sub[i].config;
    a->reads[i] = i - 1;
    c->index.n_heads = c->index.d_index = 0;
    c->index.type = 0;
    mla_finish_geometry(&a->sub[i]);
}

/* What a donor of the part before it, or of what that one reads, must say beside its group. */
static void shape_donor(struct arrangement *a, uint32_t i)
{
    const struct geometry *source = &a->sub[a->keys[i]];
    struct geometry *s = &a->sub[i];
    s->config = (struct sennit_cache_config){.family = "donor"};
    s->n_heads = source->config.n_kv_heads * s->group;
    s->d_q = d_q_of(source);
    s->d_out = d_out_of(source);
}

static void add_donor(struct geometry *g, struct arrangement *a, uint32_t group)
{
    uint32_t i = g->n_subs;
    add_part(g, a, a->line[i - 1]->name);
    a->reads[i] = i - 1;
    a->keys[i] = a->keys[i - 1];
    a->sub[i].group = group;
    shape_donor(a, i);
}

/* The reader keeps pace with what it reads. */
static void follow(struct arrangement *a, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (a->keys[i] != i)
            shape_donor(a, i);
        if (a->reads[i] == i || a->keys[i] != i)
            continue;
        a->sub[i].config.index.top_k = a->sub[a->reads[i]].config.index.top_k;
        a->sub[i].config.max_tokens = a->sub[a->reads[i]].config.max_tokens;
    }
}

/* ---- arrangements --------------------------------------------------------------------------------------------- */

/* As drawn for a world; what its batch has; what rows alone have, by page size. */
static struct arrangement drawn, batch, alone[8];
static bool fresh;

static void draw_any(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    static const char *const families[] = {
        "plain",   "affine",  "turboquant",         "window", "mla",    "mla-dsa",
        "delayed", "delayed", "delayed-turboquant", "naive",  "padded", "window-delayed"};
    uint64_t start = UINT64_MAX;
    uint32_t n = large ? 1 + rng_below(rng, 2) : 1 + rng_below(rng, 3);
    *g = (struct geometry){0};
    for (uint32_t i = 0; i < n; i++) {
        draw_part(rng, g, &drawn, families[rng_below(rng, SN_ARRAY_LEN(families))], type, large);
        struct sennit_cache_config *c = &drawn.sub[i].config;
        if (precision_start(c) == UINT64_MAX)
            continue;
        if (start != UINT64_MAX && c->start > 0) { /* the suite knows of one start per row; composed_test.c has two */
            c->start = start;
        } else if (start != UINT64_MAX) {
            g->n_subs--;
            draw_part(rng, g, &drawn, "plain", type, large);
            continue;
        }
        start = precision_start(c);
    }
    finish(g, &drawn);
    fresh = true;
}

static void draw_mla_dsa(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    *g = (struct geometry){0};
    draw_part(rng, g, &drawn, "mla", type, large);
    draw_part(rng, g, &drawn, "mla-dsa", type, large);
    add_reader(g, &drawn);
    finish(g, &drawn);
    fresh = true;
}

static void draw_window_full(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    *g = (struct geometry){0};
    draw_part(rng, g, &drawn, "window", type, large);
    draw_part(rng, g, &drawn, "plain", type, large);
    finish(g, &drawn);
    fresh = true;
}

static void draw_hybrid(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    bool first = rng_chance(rng, 50);
    *g = (struct geometry){0};
    draw_part(rng, g, &drawn, first ? "recurrent" : "plain", type, large);
    draw_part(rng, g, &drawn, first ? "plain" : "recurrent", type, large);
    finish(g, &drawn);
    fresh = true;
}

static void draw_donor(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    static const char *const families[] = {
        "plain", "plain", "affine", "turboquant", "window", "delayed", "delayed-turboquant", "window-delayed"};
    *g = (struct geometry){0};
    draw_part(rng, g, &drawn, families[rng_below(rng, SN_ARRAY_LEN(families))], type, large);
    for (uint32_t n = !large && rng_chance(rng, 40) ? 2 : 1; n > 0; n--)
        add_donor(g, &drawn, 1 + rng_below(rng, 4));
    finish(g, &drawn);
    fresh = true;
}

static void draw_tiny(struct rng *rng, struct geometry *g)
{
    g->config.max_tokens = 0;
    for (uint32_t i = 0; i < g->n_subs; i++) {
        struct geometry *s = &drawn.sub[i];
        s->config.max_tokens = 0;
        s->group = 1 + rng_below(rng, 2);
        if (drawn.reads[i] == i && drawn.line[i]->tiny) {
            drawn.line[i]->tiny(rng, s);
        } else if (drawn.reads[i] == i) {
            uint32_t step = drawn.line[i]->d_step;
            s->config.n_kv_heads = 1;
            s->config.d_k = s->config.d_v = step ? step : 2 + rng_below(rng, 2);
        }
        s->config.max_tokens = 0;
    }
    follow(&drawn, g->n_subs);
    finish(g, &drawn);
}

static uint32_t draw_page(struct rng *rng)
{
    return rng_chance(rng, 50) ? 64 : 1u << rng_below(rng, 7);
}

static void set_pages(struct arrangement *a, uint32_t i, uint32_t page)
{
    a->sub[i].config.page_tokens = a->line[i]->paged && a->keys[i] == i ? page : 0;
}

/* The first time after a draw for the batch, then for rows alone. */
static void settle(struct rng *rng, struct geometry *g)
{
    if (!fresh) {
        uint32_t page = draw_page(rng);
        struct arrangement *a = &alone[__builtin_ctz(page)];
        *a = batch;
        for (uint32_t i = 0; i < g->n_subs; i++)
            set_pages(a, i, page);
        finish(g, a);
        return;
    }
    fresh = false;
    batch = drawn;
    for (uint32_t i = 0; i < g->n_subs; i++) {
        struct geometry *s = &batch.sub[i];
        set_pages(&batch, i, g->config.page_tokens ? g->config.page_tokens : draw_page(rng));
        s->scale = 1.0f / sqrtf((float)d_q_of(s));
        s->soft_cap = g->soft_cap;
        s->sinks = g->sinks;
    }
    g->sinks = NULL;
    g->config.page_tokens = 0;
    finish(g, &batch);
}

/* ---- the twin ------------------------------------------------------------------------------------------------- */

struct twin {
    const struct geometry *g;
    struct twin *part[MAX_SUBS]; /* each of its own line's */
    uint64_t *tokens, n, cap;
};

static const struct twin_ops *ops_of(const struct twin *t, uint32_t i)
{
    return arrangement_of(t->g)->line[i]->twin;
}

static struct twin *twin_create(const struct geometry *g)
{
    struct twin *t = must(calloc(1, sizeof *t));
    t->g = g;
    for (uint32_t i = 0; i < g->n_subs; i++)
        t->part[i] = ops_of(t, i)->create(&arrangement_of(g)->twin_g[i]);
    return t;
}

static void twin_release(struct twin *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->g->n_subs; i++)
        ops_of(t, i)->release(t->part[i]);
    free(t->tokens);
    free(t);
}

static void twin_append(struct twin *t, uint64_t token)
{
    if (t->n == t->cap) {
        t->cap = t->cap * 2 + 16;
        t->tokens = must(realloc(t->tokens, t->cap * sizeof *t->tokens));
    }
    t->tokens[t->n++] = token;
    for (uint32_t i = 0; i < t->g->n_subs; i++)
        ops_of(t, i)->append(t->part[i], part_token(token, arrangement_of(t->g)->keys[i]));
}

static void twin_cut(struct twin *t, uint64_t n_tokens)
{
    t->n = n_tokens;
    for (uint32_t i = 0; i < t->g->n_subs; i++)
        ops_of(t, i)->cut(t->part[i], n_tokens);
}

/* Output `output` of part i. */
static double attend_part(const struct twin *t, uint32_t i, uint32_t output, uint64_t n_keys, double *out)
{
    const struct geometry *s = &t->g->sub[i];
    uint32_t head = output / d_out_of(s), reads = arrangement_of(t->g)->reads[i];
    size_t d_q = d_q_of(s), n = n_heads_of(s) * d_q;
    float *q = must(malloc((n + 1) * sizeof *q));
    double *all = must(malloc(d_out_of(s) * sizeof *all));
    uint8_t *seen = NULL;
    if (reads != i && arrangement_of(t->g)->keys[i] == i) {
        seen = must(malloc(n_keys));
        mla_twin_selects(t->part[reads], n_keys, seen);
    }
    token_query(part_token(t->tokens[n_keys - 1], i), n, q);
    double bound =
        ops_of(t, i)->attend(t->part[i], q + head * d_q, head, n_keys, seen, s->sinks ? s->sinks + head : NULL, all);
    *out = all[output % d_out_of(s)];
    free(q);
    free(all);
    free(seen);
    return bound;
}

static double twin_attend(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                          const float *sink, double *out)
{
    (void)q, (void)sink;
    CHECK(!mask && n_keys >= 1 && n_keys <= t->n);
    uint32_t i = 0;
    for (; head >= n_heads_of(&t->g->sub[i]) * d_out_of(&t->g->sub[i]); i++)
        head -= n_heads_of(&t->g->sub[i]) * d_out_of(&t->g->sub[i]);
    return attend_part(t, i, head, n_keys, out);
}

static const struct twin_ops twin_composed = {
    .create = twin_create,
    .release = twin_release,
    .append = twin_append,
    .cut = twin_cut,
    .attend = twin_attend,
};

/* ---- stored state --------------------------------------------------------------------------------------------- */

/* No part may be short of what the whole is asked for. */
static struct retention retention(const struct geometry *g, uint64_t high)
{
    struct retention all = {0};
    for (uint32_t i = 0; i < g->n_subs; i++) {
        struct retention own = retention_of(arrangement_of(g)->line[i], &arrangement_of(g)->twin_g[i], high);
        all.trim_floor = own.trim_floor > all.trim_floor ? own.trim_floor : all.trim_floor;
    }
    return all;
}

static void walk(const struct sennit_cache *cache, uint32_t row,
                 void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    const struct sennit_cache_part *parts;
    for (uint32_t i = 0, n = sennit_cache_composed(cache, &parts); i < n; i++)
        tested_of(parts[i].cache)->walk(parts[i].cache, row, visit, ctx);
}

/* For each part: u64 bytes | its own canonical form. */
static uint8_t *canonical(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                          uint64_t n_tokens, size_t *n_bytes)
{
    const struct sennit_cache_part *parts;
    uint32_t n_parts = sennit_cache_composed(like, &parts);
    uint8_t *out = NULL;
    size_t at = 0, used = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        size_t n = 0, bytes = 0;
        while (at + n < n_spans && spans[at + n].part == i)
            n++;
        uint8_t *own = tested_of(parts[i].cache)->canonical(parts[i].cache, spans + at, n, n_tokens, &bytes);
        out = must(realloc(out, used + sizeof(uint64_t) + bytes));
        memcpy(out + used, &(uint64_t){bytes}, sizeof(uint64_t));
        if (bytes)
            memcpy(out + used + sizeof(uint64_t), own, bytes);
        used += sizeof(uint64_t) + bytes;
        at += n;
        free(own);
    }
    CHECK(at == n_spans);
    *n_bytes = used;
    return out;
}

/* ---- wrong variants ------------------------------------------------------------------------------------------- */

static uint32_t last_of(const struct sennit_cache *cache)
{
    return sn_composed_of(cache)->n_parts - 1;
}

/* The last part's attention under another scale. */
static void half_scale(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    if (cache->step.in.part == last_of(cache))
        cache->step.in.scale *= 0.5f;
    sn_family_composed.attend_plan(cache, n_items, n_merges);
}

static void other_cap(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    if (cache->step.in.part == last_of(cache))
        cache->step.in.soft_cap = cache->step.in.soft_cap == 0 ? 1.0f : 0;
    sn_family_composed.attend_plan(cache, n_items, n_merges);
}

/* Every fifth position of the last part is stored as zeros. */
static void forgetful_tile(struct sennit_cache *cache, uint32_t span, uint32_t token, uint32_t n_tokens,
                           sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                           size_t token_stride, uint32_t worker)
{
    float *zeros = must(calloc(token_stride, sizeof *zeros));
    for (uint32_t t = 0; t < n_tokens; t++) {
        bool lost =
            (unsigned)role >> SN_PART_SHIFT == last_of(cache) && (cache->step.spans[span].pos + token + t) % 5 == 4;
        sn_family_composed.step_tile(cache, span, token + t, 1, role, first_head, n_heads,
                                     lost ? zeros : data + t * token_stride, token_stride, worker);
    }
    free(zeros);
}

static const char *spoil(unsigned variant, struct sn_family *family)
{
    switch (variant) {
    case 1:
        family->attend_plan = half_scale;
        return "the last part's queries are scaled by half";
    case 2:
        family->attend_plan = other_cap;
        return "the last part has a soft cap of its own";
    case 3:
        family->step_tile = forgetful_tile;
        return "the last part loses every fifth token";
    default:
        return NULL;
    }
}

/* ---- wrong donors --------------------------------------------------------------------------------------------- */

static struct sn_family wrong_donor;
static struct sn_attend_ops wrong_donor_ops;
static void (*wrong_segment)(const struct sn_attend_job *job, const struct sn_attend_segment *s);
static _Thread_local struct sn_attend_ops wrong_source_ops;
static _Thread_local const struct sn_attend_ops *right_source_ops;

/* The newest key that each query may see is not seen, unless it is alone. */
static void miss_newest(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    for (size_t i = 0; i < job->n_q; i++) {
        uint64_t pos = job->pos + i / job->group, chunk = (pos - s->first) / SN_CHUNK_KEYS;
        if (pos > 0 && pos >= s->first && chunk < s->n_chunks)
            job->work.visible[i * s->n_chunks + chunk] &= ~(UINT64_C(1) << pos % SN_CHUNK_KEYS);
    }
    right_source_ops->segment(job, s);
}

static void first_head(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    struct sn_attend_job other = *job;
    other.kv_head = 0;
    right_source_ops->segment(&other, s);
}

static struct sn_attend_source wrong_route(const struct sennit_cache *cache, uint32_t row)
{
    struct sn_attend_source source = sn_family_donor.attend->route(cache, row);
    right_source_ops = source.ops;
    wrong_source_ops = *source.ops;
    wrong_source_ops.segment = wrong_segment;
    source.ops = &wrong_source_ops;
    return source;
}

static sennit_status wrong_donor_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    sn_composed_of(cache)->part[last_of(cache)]->ops = &wrong_donor;
    return sn_family_composed.step_begin(cache, err);
}

/* As if the caller had scaled the queries already. */
static void no_scale(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    cache->step.in.scale = 1;
    sn_family_donor.attend_plan(cache, n_items, n_merges);
}

static const char *spoil_donor(unsigned variant, struct sn_family *family)
{
    wrong_donor = sn_family_donor;
    wrong_donor_ops.route = wrong_route;
    family->step_begin = wrong_donor_begin;
    switch (variant) {
    case 1:
        wrong_donor.attend = &wrong_donor_ops;
        wrong_segment = miss_newest;
        return "the donor reads one key too few";
    case 2:
        wrong_donor.attend = &wrong_donor_ops;
        wrong_segment = first_head;
        return "the donor reads the first head for all";
    case 3:
        wrong_donor.attend_plan = no_scale;
        return "the donor's queries are not scaled";
    default:
        return NULL;
    }
}

/* ---- faults in operations on rows ----------------------------------------------------------------------------- */

static struct sn_composed *edit(struct sennit_cache *cache)
{
    return (struct sn_composed *)cache;
}

static struct sennit_cache *last_part(struct sennit_cache *cache)
{
    return edit(cache)->part[last_of(cache)];
}

/* The last part keeps one token more. */
static sennit_status short_prepare(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                   void **spare, struct sennit_error *err)
{
    struct sennit_cache *part = last_part(cache);
    size_t r = (size_t)(row - cache->rows);
    SN_TRY(sn_family_composed.trim_prepare(cache, row, n_tokens, spare, err));
    if (part->spare[r].store)
        part->ops->trim_discard(part, part->spare[r].store);
    part->spare[r].store = NULL;
    n_tokens += n_tokens < row->n_tokens;
    return part->ops->trim_prepare(part, &part->rows[r], n_tokens, &part->spare[r].store, err);
}

static void short_apply(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare)
{
    struct sn_composed *c = edit(cache);
    uint32_t r = (uint32_t)(row - cache->rows);
    (void)spare;
    for (uint32_t i = 0; i < c->n_parts; i++)
        sn_cache_cut_row(c->part[i], r, n_tokens + (i == c->n_parts - 1 && n_tokens < row->n_tokens),
                         c->part[i]->spare[r].store);
}

/* The last part keeps the whole window of a round. */
static void partial_rollback(struct sennit_cache *cache, const uint64_t *keep)
{
    struct sn_composed *c = edit(cache);
    struct sennit_cache *part = last_part(cache);
    for (uint32_t r = 0; r < part->n_rows; r++)
        if (part->spare[r].store)
            part->ops->trim_discard(part, part->spare[r].store);
    c->n_parts--;
    sn_family_composed.round_rollback(cache, keep);
    c->n_parts++;
    OK(sennit_cache_spec_round_commit(part, err));
}

static void partial_keep(struct sennit_cache *cache, const uint32_t *keep, uint32_t n_keep)
{
    struct sn_composed *c = edit(cache);
    if (!keep) {
        sn_family_composed.keep_rows(cache, keep, n_keep);
        return;
    }
    c->n_parts--;
    sn_family_composed.keep_rows(cache, keep, n_keep);
    c->n_parts++;
}

static void partial_commit(struct sennit_cache *cache)
{
    sennit_cache_append_abort(last_part(cache));
    sn_family_composed.step_commit(cache);
}

/* The last part takes its first row twice. */
static sennit_status other_rows(struct sennit_cache *cache, const struct sennit_cache *const *sources,
                                uint32_t n_sources, uint32_t n_rows, struct sennit_error *err)
{
    struct sn_composed *c = edit(cache);
    if (n_sources < 2 || sources[0]->n_rows != 1)
        return sn_family_composed.merge(cache, sources, n_sources, n_rows, err);
    const struct sennit_cache *list[MAX_SUBS * 16];
    CHECK(n_sources < SN_ARRAY_LEN(list));
    c->n_parts--;
    sennit_status status = sn_family_composed.merge(cache, sources, n_sources, n_rows, err);
    c->n_parts++;
    SN_TRY(status);
    for (uint32_t i = 0; i < n_sources; i++)
        list[i] = sn_composed_of(sources[i == 1 ? 0 : i])->part[last_of(cache)];
    return sn_cache_fill(last_part(cache), list, n_sources, n_rows, err);
}

static const char *fault(unsigned variant, struct sn_family *family)
{
    switch (variant) {
    case 1:
        family->trim_prepare = short_prepare;
        family->trim_apply = short_apply;
        return "the last part is trimmed by one token less";
    case 2:
        family->round_rollback = partial_rollback;
        return "the last part is left out of rollbacks";
    case 3:
        family->keep_rows = partial_keep;
        return "the last part keeps all rows";
    case 4:
        family->step_commit = partial_commit;
        return "the last part's steps are given up";
    case 5:
        family->merge = other_rows;
        return "the last part takes a row twice";
    default:
        return NULL;
    }
}

/* ---- the small fixtures: 4 heads in every part, 128 outputs --------------------------------------------------- */

/* Small parts: 4 query heads of d_out. */
static void small_keys(struct geometry *g, struct arrangement *a, const char *family, uint32_t d_out)
{
    add_part(g, a, family);
    struct geometry *s = &a->sub[g->n_subs - 1];
    s->group = 2;
    s->config = (struct sennit_cache_config){
        .family = family, .n_kv_heads = 2, .d_k = 32, .d_v = d_out, .k_type = SENNIT_F16, .v_type = SENNIT_F16};
}

static void small_window(struct geometry *g, struct arrangement *a, uint32_t d_out)
{
    static const struct sennit_cache_config store = {.family = "plain"};
    small_keys(g, a, "window", d_out);
    struct sennit_cache_config *c = &a->sub[g->n_subs - 1].config;
    c->inner = &store;
    c->n_inner = 1;
    c->window.tokens = 10;
    c->window.slack = 30;
    c->window.n_kept = 3;
}

static void small_latent(struct geometry *g, struct arrangement *a, const char *family, uint32_t d_out)
{
    add_part(g, a, family);
    struct geometry *s = &a->sub[g->n_subs - 1];
    s->config = (struct sennit_cache_config){.family = family, .k_type = SENNIT_F16};
    s->config.mla.d_latent = d_out;
    s->config.mla.d_rope = 5;
    s->group = 4;
    if (strcmp(family, "mla-dsa") == 0) {
        s->config.index.n_heads = 2;
        s->config.index.d_index = 5;
        s->config.index.top_k = 20;
        s->config.index.type = SENNIT_F16;
    }
    mla_finish_geometry(s);
}

static void small_any(struct geometry *g)
{
    static struct arrangement a;
    small_keys(g, &a, "plain", 8);
    small_latent(g, &a, "mla", 16);
    small_keys(g, &a, "naive", 8);
    finish(g, &a);
}

static void small_mla_dsa(struct geometry *g)
{
    static struct arrangement a;
    small_latent(g, &a, "mla", 8);
    small_latent(g, &a, "mla-dsa", 12);
    add_reader(g, &a);
    finish(g, &a);
}

static void small_window_full(struct geometry *g)
{
    static struct arrangement a;
    small_window(g, &a, 16);
    g->config.max_span = 1100;
    small_keys(g, &a, "plain", 16);
    finish(g, &a);
}

static void small_donor(struct geometry *g)
{
    static struct arrangement a;
    small_keys(g, &a, "plain", 16);
    add_donor(g, &a, 2);
    finish(g, &a);
}

static void small_hybrid(struct geometry *g)
{
    static struct arrangement a;
    struct recur_sizes sizes = {
        .kind = "deltanet", .n_heads = 4, .n_key_heads = 2, .d_state = 8, .d_head = 16, .kernel = 4};
    add_part(g, &a, "recurrent");
    recur_geometry(&a.sub[0], &sizes);
    a.sub[0].config.family = "recurrent";
    small_keys(g, &a, "plain", 16);
    finish(g, &a);
}

/* ---- the lines ------------------------------------------------------------------------------------------------ */

/* clang-format off */
#define ARRANGEMENT(draw, fixture, wrong) \
    .family = "composed", \
    .twin = &twin_composed, \
    .geometry = (draw), \
    .settle = settle, \
    .tiny = draw_tiny, \
    .small = (fixture), \
    .no_keys = true, \
    .spoil = (wrong), \
    .fault = fault, \
    .oracles = {"composed", NULL}, \
    .walk = walk, \
    .canonical = canonical
/* clang-format on */

const struct tested_family tested_composed = {
    .name = "composed",
    ARRANGEMENT(draw_any, small_any, spoil),
    .retention = retention,
    .changes_precision = true,
};
const struct tested_family tested_composed_mla_dsa = {
    .name = "composed-mla-dsa",
    ARRANGEMENT(draw_mla_dsa, small_mla_dsa, spoil),
};
const struct tested_family tested_composed_window_full = {
    .name = "composed-window-full",
    ARRANGEMENT(draw_window_full, small_window_full, spoil),
    .retention = retention,
};
const struct tested_family tested_composed_hybrid = {
    .name = "composed-hybrid",
    ARRANGEMENT(draw_hybrid, small_hybrid, spoil),
};
/* No donor stands alone. */
const struct tested_family tested_composed_donor = {
    .name = "composed-donor",
    .also = "donor",
    ARRANGEMENT(draw_donor, small_donor, spoil_donor),
    .retention = retention,
    .changes_precision = true,
};
