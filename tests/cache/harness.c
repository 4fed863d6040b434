#include "cache/twin.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
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

void token_vector(uint64_t token, sennit_role role, size_t n, float *out)
{
    fill(mix64(token * 4 + (uint64_t)role), n, amplitude(token), out);
    if (role == SENNIT_ROLE_VALUE && mix64(token ^ 77) % 512 == 0)
        out[0] = 1e6f; /* beyond f16 */
}

void token_query(uint64_t token, size_t n, float *out)
{
    fill(mix64(token * 4 + 3), n, 1.5f, out);
}

/* ---- steps ----------------------------------------------------------------------------------- */

struct tile {
    uint32_t span, token, n_tokens, head, n_heads;
    sennit_role role;
};

struct step {
    struct sennit_cache *cache;
    const struct geometry *g;
    struct sennit_span *spans;
    float *k, *v, *q, *out;
    struct tile *tiles;
    uint32_t *order;
    uint32_t n_tiles, n_order;
    enum { TILES, ITEMS, MERGES } phase;
    struct sn_ticket ticket;
};

static void do_one(struct step *s, uint32_t index, uint32_t worker)
{
    const struct sennit_cache_config *c = &s->g->config;
    if (s->phase == ITEMS) {
        sennit_cache_attend_item(s->cache, index, worker);
    } else if (s->phase == MERGES) {
        sennit_cache_attend_merge(s->cache, index, worker);
    } else {
        const struct tile *t = &s->tiles[index];
        bool key = t->role == SENNIT_ROLE_KEY;
        size_t d = key ? c->d_k : c->d_v, stride = c->n_kv_heads * d;
        size_t first = s->spans[t->span].first_token + t->token;
        const float *data = (key ? s->k : s->v) + first * stride + t->head * d;
        sennit_cache_append_tile(s->cache, t->span, t->token, t->n_tokens, t->role, t->head, t->n_heads, data, stride,
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

/* Cuts every span's tokens and heads into random tiles. */
static void cut_tiles(struct step *s, uint32_t n_spans, struct rng *rng)
{
    uint32_t n_kv = s->g->config.n_kv_heads, cap = 0;
    for (uint32_t i = 0; i < n_spans; i++)
        for (int role = 0; role < 2; role++) {
            for (uint32_t t = 0, n; t < s->spans[i].n_tokens; t += n) {
                uint32_t left = s->spans[i].n_tokens - t;
                n = rng && left > 1 ? 1 + rng_below(rng, left) : left;
                for (uint32_t h = 0, m; h < n_kv; h += m) {
                    m = rng && rng_chance(rng, 30) ? 1 : n_kv - h;
                    if (s->n_tiles == cap) {
                        cap = cap * 2 + 16;
                        s->tiles = must(realloc(s->tiles, cap * sizeof *s->tiles));
                    }
                    s->tiles[s->n_tiles++] = (struct tile){i, t, n, h, m, role ? SENNIT_ROLE_VALUE : SENNIT_ROLE_KEY};
                }
            }
        }
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

static void make_inputs(struct step *s, const struct work_span *spans, uint32_t n_spans, uint32_t total)
{
    const struct sennit_cache_config *c = &s->g->config;
    size_t nk = (size_t)c->n_kv_heads * c->d_k, nv = (size_t)c->n_kv_heads * c->d_v, nq = nk * s->g->group;
    s->k = must(malloc(total * nk * sizeof(float)));
    s->v = must(malloc(total * nv * sizeof(float)));
    s->q = must(malloc(total * nq * sizeof(float)));
    s->out = must(malloc(total * nv * s->g->group * sizeof(float)));
    for (uint32_t i = 0; i < n_spans; i++)
        for (uint32_t t = 0; t < spans[i].n_tokens; t++) {
            size_t at = s->spans[i].first_token + t;
            token_vector(spans[i].tokens[t], SENNIT_ROLE_KEY, nk, s->k + at * nk);
            token_vector(spans[i].tokens[t], SENNIT_ROLE_VALUE, nv, s->v + at * nv);
            if (spans[0].out)
                token_query(spans[i].tokens[t], nq, s->q + at * nq);
        }
}

static void attend(struct step *s, const struct work_span *spans, uint32_t n_spans, const struct step_options *o)
{
    const struct sennit_cache_config *c = &s->g->config;
    size_t n_heads = n_heads_of(s->g), width = n_heads * c->d_v;
    struct sennit_attend_inputs in = {.query = s->q,
                                      .query_stride = n_heads * c->d_k,
                                      .scale = s->g->scale,
                                      .soft_cap = s->g->soft_cap,
                                      .sinks = s->g->sinks,
                                      .out = s->out,
                                      .out_stride = width};
    uint32_t n_items, n_merges;
    sennit_cache_attend_plan(s->cache, &in, &n_items, &n_merges);
    s->phase = ITEMS;
    run_phase(s, n_items, o);
    s->phase = MERGES;
    run_phase(s, n_merges, o);
    for (uint32_t i = 0; i < n_spans; i++)
        memcpy(spans[i].out, s->out + s->spans[i].first_token * width, spans[i].n_tokens * width * sizeof(float));
}

sennit_status run_step(struct sennit_cache *cache, const struct geometry *g, const struct work_span *spans,
                       uint32_t n_spans, const struct step_options *options, struct sennit_error *err)
{
    struct step s = {.cache = cache, .g = g};
    s.spans = must(calloc(n_spans, sizeof *s.spans));
    uint32_t total = place_spans(&s, spans, n_spans, options->rng);
    sennit_status status = sennit_cache_append_begin(cache, s.spans, n_spans, n_heads_of(g), err);
    if (status == SENNIT_OK) {
        make_inputs(&s, spans, n_spans, total);
        cut_tiles(&s, n_spans, options->rng);
        s.phase = TILES;
        run_phase(&s, s.n_tiles, options);
        if (spans[0].out)
            attend(&s, spans, n_spans, options);
        if (options->abort)
            sennit_cache_append_abort(cache);
        else
            sennit_cache_append_commit(cache);
    }
    free(s.spans);
    free(s.k);
    free(s.v);
    free(s.q);
    free(s.out);
    free(s.tiles);
    free(s.order);
    return status;
}

/* ---- stored state
 * -------------------------------------------------------------------------------------------- */

static const struct tested_family *tested(const struct sennit_cache *cache)
{
    const struct tested_family *const *f = tested_families;
    while (*f && strcmp((*f)->name, cache->ops->name) != 0)
        f++;
    if (!*f)
        die("family '%s' has no line in tested.list", cache->ops->name);
    return *f;
}

uint8_t *canonical_spans(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                         uint32_t row, uint64_t n_tokens, size_t *n_bytes)
{
    struct sennit_span_view *own = must(malloc((n_spans + 1) * sizeof *own));
    size_t n = 0;
    for (size_t i = 0; i < n_spans; i++)
        if (spans[i].row == row)
            own[n++] = spans[i];
    uint8_t *out = tested(like)->canonical(like, own, n, n_tokens, n_bytes);
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

uint64_t cache_fingerprint(const struct sennit_cache *cache)
{
    uint64_t h = mix64(cache->n_rows + 1);
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        /* Not through sennit_cache_state: that is refused while a round is open. */
        size_t n = cache->ops->n_spans(cache, i), bytes;
        struct sennit_span_view *views = must(calloc(n + 1, sizeof *views));
        cache->ops->spans(cache, i, views);
        uint8_t *data = canonical_spans(cache, views, n, i, cache->rows[i].n_tokens, &bytes);
        uint64_t part[4] = {h, bytes ? XXH3_64bits(data, bytes) : 0, cache->rows[i].n_tokens, cache->rows[i].floor};
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
