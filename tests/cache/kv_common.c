/* What the twins of families of keys and values share: geometries, walking pages, canonical form. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "cache/kv.h"
#include "cache/twin.h"

void walk_pages(const struct sennit_cache *cache, uint32_t row, const struct sn_paging *paging,
                void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    uint64_t n_pages = 0;
    for (const struct sn_table *t = cache->rows[row].store; t; t = t->parent) {
        visit(ctx, t, sn_table_bytes());
        n_pages += t->n_pages;
        for (uint32_t i = 0; i < t->n_pages; i++)
            visit(ctx, t->page[i], sn_page_cost(t->page[i]));
    }
    if (!cache->step.open)
        CHECK(n_pages == sn_pages_of(paging, cache->rows[row].n_tokens)); /* no page beyond the row's end */
}

/* Heads, groups and dimensions of all kinds; keys and values of different sizes; bounded and unbounded rows. */
void kv_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    static const uint32_t small[] = {1, 2, 3, 8, 15, 16, 17, 32, 33, 48, 64};
    static const uint32_t big[] = {32, 40, 64, 80, 96, 100, 128, 192, 255, 256};
    const uint32_t *dims = large ? big : small;
    uint32_t n_dims = large ? SN_ARRAY_LEN(big) : SN_ARRAY_LEN(small);
    struct sennit_cache_config *c = &g->config;
    c->n_kv_heads = 1 + rng_below(rng, large ? 8 : 3);
    c->d_k = dims[rng_below(rng, n_dims)];
    c->d_v = rng_chance(rng, 40) ? c->d_k : dims[rng_below(rng, n_dims)];
    c->k_type = c->v_type = type;
    c->max_tokens = rng_chance(rng, 30) ? 60 + rng_below(rng, 300) : 0;
    g->group = 1 + rng_below(rng, large ? 8 : 4);
}

/* ---- storage types -------------------------------------------------------------------------------------------- */

static double round_to(double x, int mantissa_bits, int min_exponent, double largest)
{
    if (x == 0.0)
        return x;
    int exponent = ilogb(x) < min_exponent ? min_exponent : ilogb(x);
    double spacing = ldexp(1.0, exponent - mantissa_bits);
    double y = nearbyint(x / spacing) * spacing;
    return y > largest ? largest : y < -largest ? -largest : y;
}

double stored_as(float x, sennit_type type)
{
    if (type == SENNIT_F16)
        return round_to(x, 10, -14, 65504.0);
    if (type == SENNIT_BF16)
        return round_to(x, 7, -126, DBL_MAX);
    return x;
}

/* ---- canonical form ------------------------------------------------------------------------------------------- */

size_t kv_canonical_token_bytes(const struct sennit_cache_config *c)
{
    return (size_t)c->n_kv_heads * ((size_t)c->d_k + c->d_v) * sn_kv_element_bytes(c->k_type);
}

void copy_elements(uint8_t *to, const uint8_t *from, size_t step, size_t n, size_t e)
{
    if (step == 1)
        memcpy(to, from, n * e);
    else if (e == 2)
        for (size_t i = 0; i < n; i++)
            memcpy(to + 2 * i, from + 2 * i * step, 2);
    else if (e == 4)
        for (size_t i = 0; i < n; i++)
            memcpy(to + 4 * i, from + 4 * i * step, 4);
    else
        for (size_t i = 0; i < n; i++)
            memcpy(to + e * i, from + e * i * step, e);
}

/* One page part, P positions: keys are [head][group of up to 16][d][16], values [head][P][d]. */
static void copy_part(const struct sennit_span_view *s, const struct sennit_cache_config *c, bool key, uint8_t *out)
{
    size_t p = sn_page_tokens(c), lanes = p < 16 ? p : 16, d = key ? c->d_k : c->d_v;
    size_t e = sn_kv_element_bytes(c->k_type), token_bytes = kv_canonical_token_bytes(c);
    const uint8_t *data = s->data;
    CHECK(s->n_tokens <= p && s->pos % p == 0 && s->n_bytes == p * d * e * c->n_kv_heads);
    for (size_t t = 0; t < s->n_tokens; t++)
        for (size_t h = 0; h < c->n_kv_heads; h++) {
            uint8_t *dst = out + t * token_bytes + h * d * e;
            if (!key) {
                memcpy(dst, data + (h * p + t) * d * e, d * e);
                continue;
            }
            copy_elements(dst, data + (h * p * d + t / lanes * d * lanes + t % lanes) * e, lanes, d, e);
        }
}

/* Columns [head][column][d]. */
static void copy_columns(const struct sennit_span_view *s, const struct sennit_cache_config *c, bool key,
                         uint8_t *out)
{
    size_t d = key ? c->d_k : c->d_v, e = sn_kv_element_bytes(c->k_type), token_bytes = kv_canonical_token_bytes(c);
    const uint8_t *data = s->data;
    CHECK(s->pos == 0 && s->column + s->n_tokens <= s->n_columns);
    CHECK(s->n_bytes == s->n_columns * d * e * c->n_kv_heads);
    for (size_t t = 0; t < s->n_tokens; t++)
        for (size_t h = 0; h < c->n_kv_heads; h++)
            memcpy(out + t * token_bytes + h * d * e, data + (h * s->n_columns + s->column + t) * d * e, d * e);
}

uint8_t *kv_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                      uint64_t n_tokens, size_t *n_bytes)
{
    const struct sennit_cache_config *c = &like->config;
    size_t bytes = kv_canonical_token_bytes(c);
    *n_bytes = n_tokens * bytes;
    if (n_tokens == 0)
        return NULL;
    uint8_t *out = must(calloc(n_tokens, bytes));
    uint64_t next_key = 0, next_value = 0;
    for (size_t i = 0; i < n_spans; i++) {
        const struct sennit_span_view *s = &spans[i];
        CHECK(s->type == c->k_type && s->pos + s->n_tokens <= n_tokens);
        uint8_t *at = out + s->pos * bytes;
        bool key = strcmp(s->name, "key") == 0;
        if (strcmp(s->name, "key_value") == 0) {
            CHECK(s->n_bytes == s->n_tokens * bytes);
            memcpy(at, s->data, s->n_bytes);
            next_key = next_value = s->n_tokens;
            continue;
        }
        CHECK(key || strcmp(s->name, "value") == 0);
        uint64_t *next = key ? &next_key : &next_value;
        CHECK(s->pos == *next);
        *next += s->n_tokens;
        at += key ? 0 : c->n_kv_heads * c->d_k * sn_kv_element_bytes(c->k_type);
        if (s->n_columns > 0)
            copy_columns(s, c, key, at);
        else
            copy_part(s, c, key, at);
    }
    CHECK(next_key == n_tokens && next_value == n_tokens);
    return out;
}

/* ---- wrong variants ------------------------------------------------------------------------------------------- */

static unsigned wrong; /* the variant */
static void (*right_plan)(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges);

static void wrong_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    struct sennit_attend_inputs *in = &cache->step.in;
    if (wrong == 1)
        in->sinks = NULL;
    else if (wrong == 2)
        in->soft_cap = 0;
    else
        in->scale *= 1.001f;
    right_plan(cache, n_items, n_merges);
}

const char *kv_spoil(unsigned variant, struct sn_family *family)
{
    static const char *const what[] = {"learned sinks left out", "the soft cap left out",
                                       "a scale off by a thousandth"};
    if (variant == 0 || variant > SN_ARRAY_LEN(what))
        return NULL;
    wrong = variant;
    right_plan = family->attend_plan;
    family->attend_plan = wrong_plan;
    return what[variant - 1];
}

uint8_t *coded_canonical(const struct sennit_cache_config *c, const struct coded_form *form,
                         const struct sennit_span_view *spans, size_t n_spans, uint64_t n_tokens, size_t *n_bytes)
{
    *n_bytes = n_tokens * form->token_bytes;
    if (n_tokens == 0)
        return NULL;
    uint8_t *out = must(calloc(n_tokens, form->token_bytes));
    uint64_t next = 0;
    CHECK(n_spans % form->n_names == 0);
    for (size_t i = 0; i < n_spans; i += form->n_names) {
        for (size_t k = 0; k < form->n_names; k++)
            CHECK(strcmp(spans[i + k].name, form->names[k]) == 0 && spans[i + k].pos == next &&
                  spans[i + k].n_tokens == spans[i].n_tokens);
        uint8_t *at = out + next * form->token_bytes;
        next += spans[i].n_tokens;
        CHECK(next <= n_tokens);
        form->copy(c, spans + i, true, at);
        form->copy(c, spans + i + form->n_key, false, at + form->value_at);
    }
    CHECK(next == n_tokens);
    return out;
}
