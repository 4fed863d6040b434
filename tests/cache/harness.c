#include "cache/twin.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

int die_status = 1;

void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(die_status);
}

void *must(void *p)
{
    if (!p)
        die("the test itself is out of memory");
    return p;
}

/* ---- random numbers
 * ------------------------------------------------------------------------------------------ */

uint64_t mix64(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t rng_next(struct rng *r)
{
    r->state += UINT64_C(0x9E3779B97F4A7C15);
    return mix64(r->state);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    return (uint32_t)((rng_next(r) >> 32) * n >> 32);
}

void rng_shuffle(struct rng *r, uint32_t *list, uint32_t n)
{
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = rng_below(r, i), t = list[i - 1];
        list[i - 1] = list[j];
        list[j] = t;
    }
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void fill(uint64_t seed, size_t n, float amplitude, float *out)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        out[i] = ((float)(int32_t)(seed >> 32)) * (amplitude / 2147483648.0f);
    }
}

/* One token in 32 is loud, so that running maxima move and f16 saturates now and then. */
static float amplitude(uint64_t token)
{
    return mix64(token) % 32 == 0 ? 9.0f : 1.0f;
}

/* Ranges that recurrent layers stand. */
static float squash(sennit_role role, float x)
{
    float size = x < 0 ? -x : x;
    switch (role) {
    case SENNIT_ROLE_DECAY:
        return -size;
    case SENNIT_ROLE_BETA:
        return 0.5f + 0.49f * x / (1.0f + size);
    case SENNIT_ROLE_DT:
        return size;
    default:
        return x;
    }
}

void token_vector(uint64_t token, sennit_role role, size_t n, float *out)
{
    bool kv = role == SENNIT_ROLE_KEY || role == SENNIT_ROLE_VALUE;
    uint64_t seed = kv ? token * 4 + (uint64_t)role : mix64(token ^ 0x5EED) + (uint64_t)role;
    fill(mix64(seed), n, amplitude(token), out);
    for (size_t i = 0; !kv && i < n; i++)
        out[i] = squash(role, out[i]);
    if (role == SENNIT_ROLE_VALUE && mix64(token ^ 77) % 512 == 0)
        out[0] = 1e6f; /* beyond f16 */
}

void token_query(uint64_t token, size_t n, float *out)
{
    fill(mix64(token * 4 + 3), n, 1.5f, out);
}
void token_index_query(uint64_t token, size_t n, float *out)
{
    fill(mix64(token ^ 0x1D1), n, 1.5f, out);
}
void token_index_weight(uint64_t token, size_t n, float *out)
{
    fill(mix64(token ^ 0x1D2), n, 1.0f, out);
}

uint64_t part_token(uint64_t token, uint32_t i)
{
    return i ? mix64(token + i * UINT64_C(0xA24BAED4963EE407)) : token;
}

uint32_t parts_of(const struct geometry *g, struct part out[MAX_PARTS])
{
    const struct sennit_cache_config *c = &g->config;
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_subs; i++) {
        struct part own[MAX_PARTS];
        uint32_t n_own = parts_of(&g->sub[i], own);
        for (uint32_t k = 0; k < n_own; k++) {
            CHECK(n < MAX_PARTS);
            out[n] = own[k];
            out[n++].role = SENNIT_PART(i, own[k].role);
        }
    }
    if (g->n_subs > 0)
        return n;
    if (c->family && strcmp(c->family, "donor") == 0)
        return 0;
    if (g->n_parts > 0) {
        memcpy(out, g->parts, sizeof g->parts);
        return g->n_parts;
    }
    out[0] = (struct part){SENNIT_ROLE_KEY, c->n_kv_heads, c->d_k};
    out[1] = (struct part){SENNIT_ROLE_VALUE, c->n_kv_heads, c->d_v};
    return 2;
}

/* ---- steps ----------------------------------------------------------------------------------- */

struct tile {
    uint32_t span, token, n_tokens, head, n_heads, part;
};

/* The attention of a cache, or of one part of it. */
struct lane {
    const struct geometry *g;
    float *q, *index_q, *index_w, *out; /* out: [tokens][width] */
    size_t width;
};

struct step {
    struct sennit_cache *cache;
    const struct geometry *g;
    struct lane lanes[MAX_SUBS];
    uint32_t n_lanes;
    struct sennit_span *spans;
    struct part parts[MAX_PARTS];
    uint32_t n_parts;
    float *data[MAX_PARTS]; /* [tokens][heads * d] of each part */
    struct tile *tiles;
    uint32_t *order;
    uint32_t n_tiles, n_order;
    enum { TILES, ITEMS, MERGES } phase;
    struct sn_ticket ticket;
};

static void do_one(struct step *s, uint32_t index, uint32_t worker)
{
    if (s->phase == ITEMS) {
        sennit_cache_attend_item(s->cache, index, worker);
    } else if (s->phase == MERGES) {
        sennit_cache_attend_merge(s->cache, index, worker);
    } else {
        const struct tile *t = &s->tiles[index];
        const struct part *p = &s->parts[t->part];
        size_t stride = (size_t)p->n_heads * p->d, first = s->spans[t->span].first_token + t->token;
        const float *data = s->data[t->part] + first * stride + t->head * p->d;
        sennit_cache_append_tile(s->cache, t->span, t->token, t->n_tokens, p->role, t->head, t->n_heads, data, stride,
                                 worker);
    }
}

static void work(void *ctx, int worker, int n_workers)
{
    (void)n_workers;
    struct step *s = ctx;
    for (size_t i; (i = sn_ticket_take(&s->ticket)) < s->n_order;)
        do_one(s, s->order[i], (uint32_t)worker);
}

static void run_phase(struct step *s, uint32_t n, const struct step_options *o)
{
    s->order = must(realloc(s->order, (n + 1) * sizeof *s->order));
    s->n_order = n;
    for (uint32_t i = 0; i < n; i++)
        s->order[i] = i;
    if (o->rng)
        rng_shuffle(o->rng, s->order, n);
    atomic_store(&s->ticket.next, 0);
    if (o->threads)
        sn_pool_run(o->threads, work, s);
    else
        work(s, o->rng ? (int)rng_below(o->rng, s->cache->pool->n_workers) : 0, 1);
}

/* Cuts one part of one span into random tiles. */
static void cut_part(struct step *s, uint32_t span, uint32_t part, uint32_t *cap, struct rng *rng)
{
    uint32_t n_heads = s->parts[part].n_heads;
    for (uint32_t t = 0, n; t < s->spans[span].n_tokens; t += n) {
        uint32_t left = s->spans[span].n_tokens - t;
        n = rng && left > 1 ? 1 + rng_below(rng, left) : left;
        for (uint32_t h = 0, m; h < n_heads; h += m) {
            m = rng && rng_chance(rng, 30) ? 1 : n_heads - h;
            if (s->n_tiles == *cap) {
                *cap = *cap * 2 + 16;
                s->tiles = must(realloc(s->tiles, *cap * sizeof *s->tiles));
            }
            s->tiles[s->n_tiles++] = (struct tile){span, t, n, h, m, part};
        }
    }
}

static void cut_tiles(struct step *s, uint32_t n_spans, struct rng *rng)
{
    uint32_t cap = 0;
    for (uint32_t i = 0; i < n_spans; i++)
        for (uint32_t p = 0; p < s->n_parts; p++)
            cut_part(s, i, p, &cap, rng);
}

/* Flat positions for the spans, in random order. Returns the number of tokens. */
static uint32_t place_spans(struct step *s, const struct work_span *spans, uint32_t n_spans, struct rng *rng)
{
    uint32_t order[64], total = 0;
    CHECK(n_spans <= 64);
    for (uint32_t i = 0; i < n_spans; i++)
        order[i] = i;
    if (rng)
        rng_shuffle(rng, order, n_spans);
    for (uint32_t i = 0; i < n_spans; i++) {
        const struct work_span *w = &spans[order[i]];
        s->spans[order[i]] = (struct sennit_span){.row = w->row,
                                                  .pos = sennit_cache_row_offset(s->cache, w->row),
                                                  .n_tokens = w->n_tokens,
                                                  .first_token = total};
        total += w->n_tokens;
    }
    return total;
}

static float *floats(size_t n)
{
    return must(malloc((n + 1) * sizeof(float)));
}

static void open_lanes(struct step *s)
{
    const struct geometry *g = s->g;
    s->n_lanes = g->n_subs ? g->n_subs : 1;
    CHECK(s->n_lanes <= MAX_SUBS);
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        const struct geometry *own = g->n_subs ? &g->sub[i] : g;
        s->lanes[i] = (struct lane){.g = own, .width = (size_t)n_heads_of(own) * d_out_of(own)};
    }
}

static void make_queries(struct step *s, uint32_t lane, const struct work_span *spans, uint32_t n_spans,
                         uint32_t total)
{
    struct lane *l = &s->lanes[lane];
    size_t nq = (size_t)n_heads_of(l->g) * d_q_of(l->g), ni = l->g->n_index_heads, nd = ni * l->g->d_index;
    l->q = floats(total * nq);
    l->index_q = floats(total * nd);
    l->index_w = floats(total * ni);
    l->out = floats(total * l->width);
    for (uint32_t i = 0; i < n_spans; i++)
        for (uint32_t t = 0; t < spans[i].n_tokens && spans[0].out; t++) {
            size_t at = s->spans[i].first_token + t;
            uint64_t token = part_token(spans[i].tokens[t], lane);
            token_query(token, nq, l->q + at * nq);
            token_index_query(token, nd, l->index_q + at * nd);
            token_index_weight(token, ni, l->index_w + at * ni);
        }
}

static uint32_t sub_of(const struct part *p)
{
    return (uint32_t)p->role >> 8;
}

static sennit_role leaf_role(const struct part *p)
{
    return (sennit_role)((uint32_t)p->role & 0xFF);
}

static void make_inputs(struct step *s, const struct work_span *spans, uint32_t n_spans, uint32_t total)
{
    for (uint32_t p = 0; p < s->n_parts; p++) {
        size_t n = (size_t)s->parts[p].n_heads * s->parts[p].d;
        s->data[p] = floats(total * n);
        for (uint32_t i = 0; i < n_spans; i++)
            for (uint32_t t = 0; t < spans[i].n_tokens; t++)
                token_vector(part_token(spans[i].tokens[t], sub_of(&s->parts[p])), leaf_role(&s->parts[p]), n,
                             s->data[p] + (s->spans[i].first_token + t) * n);
    }
    for (uint32_t i = 0; i < s->n_lanes; i++)
        make_queries(s, i, spans, n_spans, total);
}

static void attend(struct step *s, uint32_t lane, const struct step_options *o)
{
    const struct lane *l = &s->lanes[lane];
    bool index = l->g->n_index_heads > 0;
    struct sennit_attend_inputs in = {.query = l->q,
                                      .query_stride = (size_t)n_heads_of(l->g) * d_q_of(l->g),
                                      .index_query = index ? l->index_q : NULL,
                                      .index_weight = index ? l->index_w : NULL,
                                      .part = lane,
                                      .scale = l->g->scale,
                                      .soft_cap = l->g->soft_cap,
                                      .sinks = l->g->sinks,
                                      .out = l->out,
                                      .out_stride = l->width};
    uint32_t n_items, n_merges;
    sennit_cache_attend_plan(s->cache, &in, &n_items, &n_merges);
    s->phase = ITEMS;
    run_phase(s, n_items, o);
    s->phase = MERGES;
    run_phase(s, n_merges, o);
}

/* Lanes side by side. */
static void hand_out(const struct step *s, const struct work_span *spans, uint32_t n_spans)
{
    size_t width = 0, at = 0;
    for (uint32_t k = 0; k < s->n_lanes; k++)
        width += s->lanes[k].width;
    for (uint32_t k = 0; k < s->n_lanes; at += s->lanes[k++].width)
        for (uint32_t i = 0; i < n_spans; i++)
            for (uint32_t t = 0; t < spans[i].n_tokens; t++)
                memcpy(spans[i].out + t * width + at,
                       s->lanes[k].out + (s->spans[i].first_token + t) * s->lanes[k].width,
                       s->lanes[k].width * sizeof(float));
}

sennit_status begin_step(struct sennit_cache *cache, const struct geometry *g, const struct sennit_span *spans,
                         uint32_t n_spans, struct sennit_error *err)
{
    uint32_t heads[MAX_SUBS];
    if (g->n_subs == 0)
        return sennit_cache_append_begin(cache, spans, n_spans, n_heads_of(g), err);
    for (uint32_t i = 0; i < g->n_subs; i++)
        heads[i] = n_heads_of(&g->sub[i]);
    return sennit_cache_append_begin_parts(cache, spans, n_spans, heads, g->n_subs, err);
}

static void free_step(struct step *s)
{
    free(s->spans);
    for (uint32_t p = 0; p < s->n_parts; p++)
        free(s->data[p]);
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        free(s->lanes[i].q);
        free(s->lanes[i].index_q);
        free(s->lanes[i].index_w);
        free(s->lanes[i].out);
    }
    free(s->tiles);
    free(s->order);
}

sennit_status run_step(struct sennit_cache *cache, const struct geometry *g, const struct work_span *spans,
                       uint32_t n_spans, const struct step_options *options, struct sennit_error *err)
{
    struct step s = {.cache = cache, .g = g};
    s.n_parts = parts_of(g, s.parts);
    open_lanes(&s);
    s.spans = must(calloc(n_spans, sizeof *s.spans));
    uint32_t total = place_spans(&s, spans, n_spans, options->rng);
    sennit_status status = begin_step(cache, g, s.spans, n_spans, err);
    for (uint32_t i = 0; i < n_spans; i++) /* positions are those before the append until it is committed */
        CHECK(sennit_cache_row_offset(cache, s.spans[i].row) == s.spans[i].pos);
    if (status == SENNIT_OK) {
        make_inputs(&s, spans, n_spans, total);
        cut_tiles(&s, n_spans, options->rng);
        s.phase = TILES;
        run_phase(&s, s.n_tiles, options);
        for (uint32_t i = 0; i < s.n_lanes && spans[0].out; i++)
            attend(&s, i, options);
        if (spans[0].out)
            hand_out(&s, spans, n_spans);
        if (options->abort)
            sennit_cache_append_abort(cache);
        else
            sennit_cache_append_commit(cache);
    }
    free_step(&s);
    return status;
}

/* ---- stored state
 * -------------------------------------------------------------------------------------------- */

uint8_t *canonical_spans(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                         uint32_t row, uint64_t n_tokens, size_t *n_bytes)
{
    struct sennit_span_view *own = must(malloc((n_spans + 1) * sizeof *own));
    size_t n = 0;
    for (size_t i = 0; i < n_spans; i++)
        if (spans[i].row == row)
            own[n++] = spans[i];
    uint8_t *out = tested_of(like)->canonical(like, own, n, n_tokens, n_bytes);
    free(own);
    return out;
}

uint8_t *canonical_row(const struct sennit_cache *cache, uint32_t row, size_t *n_bytes)
{
    struct sennit_state state;
    OK(sennit_cache_state(cache, &state, err));
    uint8_t *out =
        canonical_spans(cache, state.spans, state.n_spans, row, sennit_cache_row_offset(cache, row), n_bytes);
    sennit_state_release(&state);
    return out;
}

uint64_t row_gone(const struct sennit_cache *cache, uint32_t row)
{
    const struct sennit_cache_part *parts;
    uint64_t from = 0, to = 0, h = 0;
    uint32_t n = sennit_cache_composed(cache, &parts);
    for (uint32_t i = 0; i < n; i++) {
        CHECK(parts[i].cache->n_rows == cache->n_rows &&
              parts[i].cache->rows[row].n_tokens == cache->rows[row].n_tokens);
        h = mix64(h ^ row_gone(parts[i].cache, row));
    }
    if (cache->ops->gap)
        cache->ops->gap(cache, row, &from, &to);
    return h ^ (from << 32 ^ to);
}

uint64_t cache_fingerprint(const struct sennit_cache *cache)
{
    uint64_t h = mix64(cache->n_rows + 1);
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        /* Not through sennit_cache_state: that is refused while a round is open. */
        size_t n = cache->ops->n_spans(cache, i), bytes;
        struct sennit_span_view *views = must(calloc(n + 1, sizeof *views));
        cache->ops->spans(cache, i, views);
        uint8_t *data = canonical_spans(cache, views, n, i, cache->rows[i].n_tokens, &bytes);
        uint64_t gone = row_gone(cache, i);
        uint64_t part[5] = {h, bytes ? XXH3_64bits(data, bytes) : 0, cache->rows[i].n_tokens, cache->rows[i].floor,
                            gone};
        h = XXH3_64bits(part, sizeof part);
        free(data);
        free(views);
    }
    return h;
}

/* ---- memory streams
 * ------------------------------------------------------------------------------------------ */

static bool memory_write(void *ctx, void *data, size_t n)
{
    struct memory *m = ctx;
    if (m->n_bytes + n > m->fail_at)
        return false;
    if (m->n_bytes + n > m->cap) {
        m->cap = (m->n_bytes + n) * 2;
        m->data = must(realloc(m->data, m->cap));
    }
    memcpy(m->data + m->n_bytes, data, n);
    m->n_bytes += n;
    return true;
}

static bool memory_read(void *ctx, void *data, size_t n)
{
    struct memory *m = ctx;
    if (m->pos + n > m->n_bytes || m->pos + n > m->fail_at)
        return false;
    memcpy(data, m->data + m->pos, n);
    m->pos += n;
    return true;
}

struct sennit_stream memory_writer(struct memory *m)
{
    *m = (struct memory){.fail_at = SIZE_MAX};
    return (struct sennit_stream){.move = memory_write, .ctx = m};
}

struct sennit_stream memory_reader(struct memory *m)
{
    m->pos = 0;
    m->fail_at = SIZE_MAX;
    return (struct sennit_stream){.move = memory_read, .ctx = m, .limit = m->n_bytes};
}
