/* How keys and values lie in a page of P positions, one byte per number:
 *
 *     keys   [n_kv_heads][P][d_k]
 *     values [n_kv_heads][P][d_v]
 *
 * so that one head's keys of a page, which load_chunk reads, lie side by side. */
#include "f8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- 8-bit floats: sign, exponent, mantissa -------------------------------------------------------------------- */

struct format {
    const char *name;
    const float *value; /* [256]: what a byte means */
    uint32_t mantissa_bits;
    int32_t bias;          /* of the exponent */
    uint32_t largest, nan; /* bytes of the largest finite number and of NaN, without sign */
};

/* The table of a format, written out by the compiler. A byte's magnitude is its mantissa, of m bits, in units of the
 * smallest number; where the exponent is not 0, with the hidden bit and doubled exponent - 1 times. */
#define EXPONENT(b, m)     (((b)&127) >> (m))
#define MANTISSA(b, m)     ((b) & ((1 << (m)) - 1))
#define NORMAL(b, m)       ((float)((1 << (m)) + MANTISSA(b, m)) * (float)(1ull << EXPONENT(b, m)) / 2)
#define MAGNITUDE(b, m)    (EXPONENT(b, m) ? NORMAL(b, m) : (float)MANTISSA(b, m))
#define NUMBER(b, m, unit) (((b)&128 ? -1.0f : 1.0f) * MAGNITUDE(b, m) * (unit))
/* e4m3 has no infinities, and one NaN per sign. e5m2 has both, as f16 has; infinities are never stored. */
#define E4M3(b)          (((b)&127) == 127 ? NAN : NUMBER(b, 3, 0x1p-9f))
#define INFINITE(b)      ((b)&128 ? -INFINITY : INFINITY)
#define E5M2(b)          (((b)&127) > 124 ? NAN : ((b)&127) == 124 ? INFINITE(b) : NUMBER(b, 2, 0x1p-16f))
#define FOUR(f, b)       f(b), f((b) + 1), f((b) + 2), f((b) + 3)
#define SIXTEEN(f, b)    FOUR(f, b), FOUR(f, (b) + 4), FOUR(f, (b) + 8), FOUR(f, (b) + 12)
#define SIXTY_FOUR(f, b) SIXTEEN(f, b), SIXTEEN(f, (b) + 16), SIXTEEN(f, (b) + 32), SIXTEEN(f, (b) + 48)
#define ALL(f)           SIXTY_FOUR(f, 0), SIXTY_FOUR(f, 64), SIXTY_FOUR(f, 128), SIXTY_FOUR(f, 192)

static const float e4m3_values[256] = {ALL(E4M3)};
static const float e5m2_values[256] = {ALL(E5M2)};
static const struct format e4m3 = {"e4m3", e4m3_values, 3, 7, 0x7E, 0x7F};
static const struct format e5m2 = {"e5m2", e5m2_values, 2, 15, 0x7B, 0x7F};

/* To the nearest, ties to the even mantissa; what is too large becomes the largest finite number, NaN stays NaN. */
static uint8_t encode(const struct format *f, float x)
{
    uint32_t bits, sign, rest, odd, code, shift = 23 - f->mantissa_bits;
    memcpy(&bits, &x, sizeof bits);
    sign = bits >> 24 & 128;
    bits &= 0x7FFFFFFF;
    if (bits > 0x7F800000)
        return (uint8_t)(sign | f->nan);
    int32_t exponent = (int32_t)(bits >> 23) - 127 + f->bias;
    if (exponent > 31)
        return (uint8_t)(sign | f->largest);
    rest = bits & 0x7FFFFF;
    if (exponent > 0) {
        rest |= (uint32_t)exponent << 23; /* a carry of the rounding moves on into the exponent, as it should */
    } else {                              /* below the smallest normal number: shift the hidden bit in */
        rest |= 1 << 23;
        shift += (uint32_t)(1 - exponent);
        if (shift > 25)
            return (uint8_t)sign;
    }
    odd = rest >> shift & 1;
    code = (rest + (1u << (shift - 1)) - 1 + odd) >> shift;
    return (uint8_t)(sign | (code > f->largest ? f->largest : code));
}

/* ---- the family ------------------------------------------------------------------------------------------------ */

typedef struct sennit_family_geometry geometry;

static size_t keys_bytes(const geometry *g)
{
    return (size_t)g->n_kv_heads * g->page_tokens * g->d_k;
}

static size_t page_bytes(const geometry *g)
{
    return keys_bytes(g) + (size_t)g->n_kv_heads * g->page_tokens * g->d_v;
}

/* Where the key or the value of one position of one head begins. */
static uint8_t *place(const geometry *g, const void *page, bool key, uint32_t head, uint32_t slot)
{
    uint8_t *first = (uint8_t *)(uintptr_t)page + (key ? 0 : keys_bytes(g));
    return first + ((size_t)head * g->page_tokens + slot) * (key ? g->d_k : g->d_v);
}

static void signature(const geometry *g, char *out, size_t n_bytes)
{
    snprintf(out, n_bytes, "%s", ((const struct format *)g->ctx)->name);
}

static void spans(const geometry *g, struct sennit_family_span *out)
{
    size_t keys = keys_bytes(g);
    out[0] = (struct sennit_family_span){.name = "key", .type = SENNIT_I8, .offset = 0, .n_bytes = keys};
    out[1] = (struct sennit_family_span){
        .name = "value", .type = SENNIT_I8, .offset = keys, .n_bytes = page_bytes(g) - keys};
}

static void store(const geometry *g, void *page, uint32_t slot, sennit_role role, uint32_t first_head,
                  uint32_t n_heads, const float *x)
{
    bool key = role == SENNIT_ROLE_KEY;
    uint32_t d = key ? g->d_k : g->d_v;
    for (uint32_t h = 0; h < n_heads; h++) {
        uint8_t *to = place(g, page, key, first_head + h, slot);
        for (uint32_t i = 0; i < d; i++)
            to[i] = encode(g->ctx, x[(size_t)h * d + i]);
    }
}

static void fill_tail(const geometry *g, void *page, uint32_t from, uint8_t byte)
{
    for (uint32_t h = 0; h < g->n_kv_heads; h++) {
        memset(place(g, page, true, h, from), byte, (size_t)(g->page_tokens - from) * g->d_k);
        memset(place(g, page, false, h, from), byte, (size_t)(g->page_tokens - from) * g->d_v);
    }
}

static void decode(const float *value, const uint8_t *from, size_t n, float *restrict to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = value[from[i]];
}

/* Whole pages at a time: positions that nobody wants, or wrote, come along and are not looked at. */
static void load_chunk(const geometry *g, const struct sennit_family_chunk *chunk, float *k, float *v)
{
    const struct format *f = g->ctx;
    size_t p = g->page_tokens;
    for (size_t first = 0; first < SENNIT_FAMILY_CHUNK; first += p) {
        const void *page = chunk->pages[first / p];
        if (!page)
            continue;
        decode(f->value, place(g, page, true, chunk->kv_head, 0), p * g->d_k, k + first * g->d_k);
        decode(f->value, place(g, page, false, chunk->kv_head, 0), p * g->d_v, v + first * g->d_v);
    }
}

#define F8(its_name, format)                                                                                         \
    {                                                                                                                \
        .struct_bytes = sizeof(struct sennit_family), .name = (its_name), .ctx = &(format), .n_spans = 2,            \
        .signature = signature, .page_bytes = page_bytes, .spans = spans, .store = store, .fill_tail = fill_tail,    \
        .load_chunk = load_chunk                                                                                     \
    }
const struct sennit_family f8_e4m3 = F8("f8", e4m3);
const struct sennit_family f8_e5m2 = F8("f8-e5m2", e5m2);
