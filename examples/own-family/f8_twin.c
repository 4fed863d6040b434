/* What sennit-conformance must know of "f8" (sennit/conformance.h): a textbook twin, which rounds by arithmetic in
 * double and shares nothing with f8.c but its names; how a stored token looks; and wrong families that only the twin
 * can tell from the right one. */
#include <stdlib.h>
#include <string.h>

#include <sennit/conformance.h>

#include "f8.h"

/* ---- the twin -------------------------------------------------------------------------------------------------- */

/* The formats by their numbers. */
struct rounding {
    int mantissa_bits, least_exponent;
    double largest;
};

static struct rounding rounding_of(const struct sennit_family_geometry *g)
{
    if (g->ctx == f8_e5m2.ctx)
        return (struct rounding){2, -14, 57344};
    return (struct rounding){3, -6, 448};
}

struct twin {
    const struct sennit_family_geometry *g;
    uint32_t group;
    uint64_t n, room;
    double *k, *v; /* [n][n_kv_heads * d], rounded */
};

static void *enough(void *p)
{
    if (!p)
        abort(); /* the test itself is out of memory */
    return p;
}

static void *twin_create(const struct sennit_family_geometry *g, uint32_t group)
{
    struct twin *t = enough(calloc(1, sizeof *t));
    t->g = g;
    t->group = group;
    return t;
}

static void twin_release(void *twin)
{
    struct twin *t = twin;
    free(t->k);
    free(t->v);
    free(t);
}

/* The nearest multiple of the spacing at that exponent, ties to even. */
static double rounded(struct rounding r, float x)
{
    if (x == 0 || isnan(x))
        return x;
    int exponent = isinf(x) ? 100 : ilogb(x);
    double spacing = ldexp(1, (exponent < r.least_exponent ? r.least_exponent : exponent) - r.mantissa_bits);
    double y = isinf(x) ? x : nearbyint(x / spacing) * spacing;
    return y > r.largest ? r.largest : y < -r.largest ? -r.largest : y;
}

static void twin_append(void *twin, const float *k, const float *v)
{
    struct twin *t = twin;
    struct rounding r = rounding_of(t->g);
    size_t nk = (size_t)t->g->n_kv_heads * t->g->d_k, nv = (size_t)t->g->n_kv_heads * t->g->d_v;
    if (t->n == t->room) {
        t->room = t->room * 2 + 16;
        t->k = enough(realloc(t->k, t->room * nk * sizeof *t->k));
        t->v = enough(realloc(t->v, t->room * nv * sizeof *t->v));
    }
    for (size_t i = 0; i < nk; i++)
        t->k[t->n * nk + i] = rounded(r, k[i]);
    for (size_t i = 0; i < nv; i++)
        t->v[t->n * nv + i] = rounded(r, v[i]);
    t->n++;
}

static void twin_cut(void *twin, uint64_t n_tokens)
{
    ((struct twin *)twin)->n = n_tokens;
}

/* f8 numbers are f32 numbers, so load_chunk is exact, and the bound is that of attention in f32. */
static double twin_attend(const void *twin, const struct sennit_twin_query *query, double *out)
{
    const struct twin *t = twin;
    size_t d_k = t->g->d_k, d_v = t->g->d_v, heads = t->g->n_kv_heads, head = query->head / t->group;
    return sennit_textbook_attend(query, d_k, d_v, t->k + head * d_k, heads * d_k, t->v + head * d_v, heads * d_v,
                                  out);
}

/* ---- a stored token -------------------------------------------------------------------------------------------- */

static size_t token_bytes(const struct sennit_family_geometry *g)
{
    return (size_t)g->n_kv_heads * (g->d_k + g->d_v);
}

/* Its keys, head after head, then its values. */
static void token(const struct sennit_family_geometry *g, const struct sennit_span_view *spans, uint32_t slot,
                  uint8_t *out)
{
    for (int i = 0; i < 2; i++) {
        size_t d = i ? g->d_v : g->d_k, head_bytes = spans[i].n_bytes / g->n_kv_heads;
        for (size_t h = 0; h < g->n_kv_heads; h++, out += d)
            memcpy(out, (const uint8_t *)spans[i].data + h * head_bytes + slot * d, d);
    }
}

/* ---- wrong families -------------------------------------------------------------------------------------------- */

/* What some of them make of a number before the right family stores it. */
static float cut_off(float x) /* towards zero instead of to the nearest */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits &= 0xFFF00000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float no_small(float x) /* numbers below the smallest normal one become 0 */
{
    return fabsf(x) < 0x1p-6f ? 0 : x;
}

static float wraps(float x) /* what is too large becomes 0 instead of the largest number */
{
    return fabsf(x) > 448 ? 0 : x;
}

static void store_changed(const struct sennit_family_geometry *g, void *page, uint32_t slot, sennit_role role,
                          uint32_t first_head, uint32_t n_heads, const float *x, float (*change)(float))
{
    size_t d = role == SENNIT_ROLE_KEY ? g->d_k : g->d_v;
    float *y = enough(malloc(n_heads * d * sizeof *y));
    for (size_t i = 0; i < n_heads * d; i++)
        y[i] = change(x[i]);
    f8_e4m3.store(g, page, slot, role, first_head, n_heads, y);
    free(y);
}

#define STORE(name, change)                                                                                          \
    static void name(const struct sennit_family_geometry *g, void *page, uint32_t slot, sennit_role role,            \
                     uint32_t first_head, uint32_t n_heads, const float *x)                                          \
    {                                                                                                                \
        store_changed(g, page, slot, role, first_head, n_heads, x, change);                                          \
    }
STORE(store_cut_off, cut_off)
STORE(store_no_small, no_small)
STORE(store_wraps, wraps)

/* Each head reads the keys of the next one. */
static void load_next_head(const struct sennit_family_geometry *g, const struct sennit_family_chunk *chunk, float *k,
                           float *v)
{
    struct sennit_family_chunk other = *chunk;
    other.kv_head = (chunk->kv_head + 1) % g->n_kv_heads;
    f8_e4m3.load_chunk(g, &other, k, v);
}

/* The last key of 64 reads the one before it. */
static void load_late(const struct sennit_family_geometry *g, const struct sennit_family_chunk *chunk, float *k,
                      float *v)
{
    f8_e4m3.load_chunk(g, chunk, k, v);
    if (chunk->wanted >> 63)
        memcpy(k + (size_t)63 * g->d_k, k + (size_t)62 * g->d_k, g->d_k * sizeof *k);
}

static const struct sennit_family *wrong(unsigned variant, const char **what)
{
    static struct sennit_family f;
    f = f8_e4m3;
    switch (variant) {
    case 1:
        *what = "rounds towards zero";
        f.store = store_cut_off;
        return &f;
    case 2:
        *what = "too large becomes 0";
        f.store = store_wraps;
        return &f;
    case 3:
        *what = "no numbers below the smallest normal one";
        f.store = store_no_small;
        return &f;
    case 4:
        *what = "heads read the next one's keys and values";
        f.load_chunk = load_next_head;
        return &f;
    case 5:
        *what = "key 63 of a chunk reads key 62";
        f.load_chunk = load_late;
        return &f;
    default:
        return NULL;
    }
}

/* ---- the entry ------------------------------------------------------------------------------------------------- */

#define CONFORMANCE(its_family, its_wrong)                                                                           \
    {                                                                                                                \
        .struct_bytes = sizeof(struct sennit_conformance), .family = &(its_family), .create = twin_create,           \
        .release = twin_release, .append = twin_append, .cut = twin_cut, .attend = twin_attend,                      \
        .token_bytes = token_bytes, .token = token, .wrong = (its_wrong)                                             \
    }
static const struct sennit_conformance e4m3 = CONFORMANCE(f8_e4m3, wrong);
static const struct sennit_conformance e5m2 = CONFORMANCE(f8_e5m2, NULL);

const struct sennit_conformance *const *sennit_conformance_families(void)
{
    static const struct sennit_conformance *const all[] = {&e4m3, &e5m2, NULL};
    return all;
}
