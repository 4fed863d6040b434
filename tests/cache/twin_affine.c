/* The textbook of affine codes, from the formulas: each group of a token's keys and values is coded and decoded, each
 * query is coded, and attention is softmax(cap(q K^T) with sink) V over what the codes stand for, in double.
 *
 * Codes are whole numbers that f32 arithmetic decides ((x - bias) / scale, rounded), and the numbers that it works
 * on, f16 scales, are rounded too: those few operations are repeated here in f32, or one number in thousands would
 * stand a whole step away. All that follows the codes is double. */
#include <math.h>
#include <stdlib.h>

#include "cache/paged.h"
#include "cache/twin.h"

struct twin {
    const struct geometry *g;
    uint64_t n, cap;
    double *k, *v;           /* [n][heads * d], decoded */
    double *size;            /* [n][heads]: largest |scale * code| + |bias| of a head's values */
    double *k_code, *k_bias; /* [n][heads * d]: the two parts of a decoded key */
};

/* The nearest number of binary16, ties to even. */
static float as_half(double x)
{
    if (x == 0.0)
        return 0.0f;
    int exponent = ilogb(x) < -14 ? -14 : ilogb(x);
    double spacing = ldexp(1.0, exponent - 10), y = nearbyint(x / spacing) * spacing;
    return (float)(y > 65504.0 ? 65504.0 : y < -65504.0 ? -65504.0 : y);
}

/* One group: out[i] = part[i] + *bias, part = code * scale. */
static void code_group(const float *x, size_t n, uint32_t bits, double *part, double *bias)
{
    float least = x[0], most = x[0], top = (float)((1u << bits) - 1);
    for (size_t i = 0; i < n; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    float b = as_half(least), scale = as_half((most - least) / top);
    for (size_t i = 0; i < n; i++) {
        float code = scale == 0.0f ? 0.0f : nearbyintf((x[i] - b) / scale);
        code = fminf(fmaxf(code, 0.0f), top);
        part[i] = (double)code * scale;
    }
    *bias = b;
}

static struct twin *twin_create(const struct geometry *g)
{
    struct twin *t = must(calloc(1, sizeof *t));
    t->g = g;
    return t;
}

static void twin_release(struct twin *t)
{
    if (!t)
        return;
    free(t->k);
    free(t->v);
    free(t->size);
    free(t->k_code);
    free(t->k_bias);
    free(t);
}

static void grow(struct twin *t, size_t nk, size_t nv)
{
    if (t->n < t->cap)
        return;
    t->cap = t->cap * 2 + 16;
    t->k = must(realloc(t->k, t->cap * nk * sizeof(double)));
    t->k_code = must(realloc(t->k_code, t->cap * nk * sizeof(double)));
    t->k_bias = must(realloc(t->k_bias, t->cap * nk * sizeof(double)));
    t->v = must(realloc(t->v, t->cap * nv * sizeof(double)));
    t->size = must(realloc(t->size, t->cap * t->g->config.n_kv_heads * sizeof(double)));
}

static void append_as(struct twin *t, uint64_t token, sennit_type type)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t nk = (size_t)c->n_kv_heads * c->d_k, nv = (size_t)c->n_kv_heads * c->d_v, group = c->code.group;
    grow(t, nk, nv);
    float *x = must(malloc((nk + nv) * sizeof *x));
    token_vector(token, SENNIT_ROLE_KEY, nk, x);
    token_vector(token, SENNIT_ROLE_VALUE, nv, x + nk);
    for (size_t i = 0; type != SENNIT_F32 && i < nk + nv; i++)
        x[i] = (float)stored_as(x[i], type);
    double part[64], bias, *size = t->size + t->n * c->n_kv_heads;
    for (size_t at = 0; at < nk; at += group) {
        code_group(x + at, group, c->code.k_bits, part, &bias);
        for (size_t i = 0; i < group; i++) {
            t->k_code[t->n * nk + at + i] = part[i];
            t->k_bias[t->n * nk + at + i] = bias;
            t->k[t->n * nk + at + i] = part[i] + bias;
        }
    }
    memset(size, 0, c->n_kv_heads * sizeof *size);
    for (size_t at = 0; at < nv; at += group) {
        code_group(x + nk + at, group, c->code.v_bits, part, &bias);
        for (size_t i = 0; i < group; i++) {
            t->v[t->n * nv + at + i] = part[i] + bias;
            size[at / c->d_v] = fmax(size[at / c->d_v], fabs(part[i]) + fabs(bias));
        }
    }
    free(x);
    t->n++;
}

static void twin_append(struct twin *t, uint64_t token)
{
    append_as(t, token, SENNIT_F32);
}

static void twin_cut(struct twin *t, uint64_t n_tokens)
{
    CHECK(n_tokens <= t->n);
    t->n = n_tokens;
}

/* The query after its scale, as its codes have it: nearest multiple of a group's largest magnitude / 127. */
static void code_query(const struct twin *t, const float *q, double *out)
{
    size_t group = t->g->config.code.group;
    for (size_t at = 0; at < t->g->config.d_k; at += group) {
        float most = 0, x[64];
        for (size_t i = 0; i < group; i++) {
            x[i] = q[at + i] * t->g->scale;
            most = fmaxf(most, fabsf(x[i]));
        }
        float step = most / 127.0f, inverse = 127.0f / most;
        for (size_t i = 0; i < group; i++)
            out[at + i] = most < 0x1p-100f ? 0.0 : (double)step * fmin(fmax(nearbyintf(x[i] * inverse), -127), 127);
    }
}

/* One score; *size gathers the sums that are added up: per group |sum q * code part| and |bias * sum q|. */
static double twin_score(const struct twin *t, const double *q, uint32_t kv, uint64_t key, double *size)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t at = (key * c->n_kv_heads + kv) * c->d_k, group = c->code.group;
    double s = 0, sum = 0, cap = t->g->soft_cap;
    for (size_t g = 0; g < c->d_k; g += group) {
        double code = 0, bias = 0;
        for (size_t d = g; d < g + group; d++) {
            s += q[d] * t->k[at + d];
            code += q[d] * t->k_code[at + d];
            bias += q[d] * t->k_bias[at + d];
        }
        sum += fabs(code) + fabs(bias);
    }
    *size = fmax(*size, sum);
    return cap != 0 ? cap * tanh(s / cap) : s;
}

/* The bound, with u = 2^-24: a score is a chain of two fused steps per group of exact dots, whose factors scale * d_q
 * and d_q * sum were rounded once: at most (2 groups + 2) u times what was added up (a soft cap adds a few u of the
 * cap, and never steepens). A weight p = exp(s - m) is off by twice that, relatively, and by 4u for exp. A value's
 * share is p * scale, rounded, times its code, and p * bias; both sums over n keys, with a rescale per chunk and
 * segment and the 4 + 4 steps of the biases' chains and tree, add (n + n / 16 + 50) u of the largest |scale * code| +
 * |bias|. The same again for the denominator. */
static double twin_bound(const struct twin *t, double size, uint64_t n, double largest)
{
    double u = ldexp(1.0, -24), cap = t->g->soft_cap;
    double n_groups = (double)t->g->config.d_k / t->g->config.code.group;
    double score = (2 * n_groups + 2) * u * size + 8 * u * cap;
    double relative = 2 * score + 4 * u + ((double)n + (double)n / 16 + 50) * u;
    return 2 * relative * (1 + relative) * largest + 1e-37;
}

static double twin_attend(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                          const float *sink, double *out)
{
    const struct sennit_cache_config *c = &t->g->config;
    uint32_t kv = head / t->g->group;
    double *s = must(malloc((n_keys + 1 + c->d_k) * sizeof *s)), *coded = s + n_keys + 1;
    double m = sink ? *sink : -INFINITY, size = 0, largest = 0, l = 0;
    CHECK(n_keys <= t->n);
    code_query(t, q, coded);
    for (uint64_t j = 0; j < n_keys; j++) {
        s[j] = !mask || mask[j] ? twin_score(t, coded, kv, j, &size) : -INFINITY;
        m = fmax(m, s[j]);
    }
    memset(out, 0, c->d_v * sizeof *out);
    for (uint64_t j = 0; j < n_keys; j++) {
        if (s[j] == -INFINITY)
            continue;
        double p = exp(s[j] - m);
        const double *v = t->v + (j * c->n_kv_heads + kv) * c->d_v;
        l += p;
        largest = fmax(largest, t->size[j * c->n_kv_heads + kv]);
        for (size_t d = 0; d < c->d_v; d++)
            out[d] += p * v[d];
    }
    l += sink ? exp(*sink - m) : 0;
    for (size_t d = 0; d < c->d_v; d++)
        out[d] = l > 0 ? out[d] / l : 0;
    free(s);
    return twin_bound(t, size, n_keys, largest);
}

static const struct twin_ops twin_affine = {
    .create = twin_create,
    .release = twin_release,
    .append = twin_append,
    .cut = twin_cut,
    .attend = twin_attend,
    .append_stored = append_as,
};

/* ---- the family under the suite ------------------------------------------------------------------------------- */

/* Of all that codes can be: 8 and 4 bits, equal or not, groups of 32 and 64. */
static void affine_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    static const uint32_t dims[] = {32, 64, 96, 128, 160, 192, 256};
    struct sennit_cache_config *c = &g->config;
    kv_geometry(rng, g, type, large);
    uint32_t n = large ? SN_ARRAY_LEN(dims) : 3;
    c->k_type = c->v_type = SENNIT_F32; /* no type: 0 */
    c->d_k = dims[rng_below(rng, n)];
    c->d_v = rng_chance(rng, 60) ? c->d_k : dims[rng_below(rng, n)];
    c->code.k_bits = rng_chance(rng, 50) ? 8 : 4;
    c->code.v_bits = rng_chance(rng, 50) ? 8 : 4;
    c->code.group = c->d_k % 64 == 0 && c->d_v % 64 == 0 && rng_chance(rng, 60) ? 64 : 32;
}

static void affine_small(struct geometry *g)
{
    g->config.k_type = g->config.v_type = SENNIT_F32;
    g->config.code.k_bits = 8;
    g->config.code.v_bits = 4;
    g->config.code.group = 32;
}

static void walk_affine(const struct sennit_cache *cache, uint32_t row,
                        void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    walk_pages(cache, row, &sn_paged_of(cache)->paging, visit, ctx);
}

/* ---- canonical form ------------------------------------------------------------------------------------------- */

/* Per token and head: codes of the key, one byte each, its scales, its biases; then those of the value. */
static size_t head_bytes(const struct sennit_cache_config *c, bool key)
{
    size_t d = key ? c->d_k : c->d_v;
    return d + 4 * (d / c->code.group);
}

static size_t token_bytes(const struct sennit_cache_config *c)
{
    return c->n_kv_heads * (head_bytes(c, true) + head_bytes(c, false));
}

/* d codes out of words of `run` bytes, `stride` bytes apart; of 4 bits: a word's low halves, then its high ones. */
static void unpack(const uint8_t *from, size_t stride, size_t run, size_t bits, size_t d, uint8_t *to)
{
    for (size_t at = 0; at < d; from += stride) {
        for (size_t i = 0; i < run; i++)
            to[at + i] = bits == 8 ? from[i] : from[i] & 15;
        at += run;
        for (size_t i = 0; i < run && bits == 4; i++)
            to[at + i] = from[i] >> 4;
        at += bits == 4 ? run : 0;
    }
}

/* The codes of token t of head h. Keys: [16 tokens or the page][word][token] of 4 bytes; values: 16 bytes a word. */
static void codes_of(const struct sennit_cache_config *c, const uint8_t *codes, bool key, size_t h, size_t t,
                     uint8_t *to)
{
    size_t p = sn_page_tokens(c), lanes = p < 16 ? p : 16, bits = key ? c->code.k_bits : c->code.v_bits;
    size_t d = key ? c->d_k : c->d_v, row = d * bits / 8;
    const uint8_t *head = codes + h * p * row;
    if (key)
        unpack(head + t / lanes * lanes * row + t % lanes * 4, lanes * 4, 4, bits, d, to);
    else
        unpack(head + t * row, 16, 16, bits, d, to);
}

static size_t scale_at(const struct sennit_cache_config *c, bool key, size_t h, size_t t, size_t g)
{
    size_t p = sn_page_tokens(c), lanes = p < 16 ? p : 16, ng = (key ? c->d_k : c->d_v) / c->code.group;
    return h * p * ng + (key ? (t / lanes * ng + g) * lanes + t % lanes : g * p + t);
}

/* One page's three spans of keys, or of values, into the tokens' places. */
static void copy_part(const struct sennit_cache_config *c, const struct sennit_span_view *s, bool key, uint8_t *out)
{
    size_t d = key ? c->d_k : c->d_v, ng = d / c->code.group, p = sn_page_tokens(c);
    CHECK(s[0].n_bytes == c->n_kv_heads * p * d * (key ? c->code.k_bits : c->code.v_bits) / 8);
    CHECK(s[1].n_bytes == c->n_kv_heads * p * ng * 2 && s[2].n_bytes == s[1].n_bytes);
    CHECK(s[0].type == SENNIT_I8 && s[1].type == SENNIT_F16 && s[2].type == SENNIT_F16);
    for (size_t t = 0; t < s->n_tokens; t++)
        for (size_t h = 0; h < c->n_kv_heads; h++) {
            uint8_t *to = out + t * token_bytes(c) + h * head_bytes(c, key);
            codes_of(c, s[0].data, key, h, t, to);
            for (size_t g = 0; g < ng; g++) {
                size_t from = 2 * scale_at(c, key, h, t, g);
                memcpy(to + d + 2 * g, (const uint8_t *)s[1].data + from, 2);
                memcpy(to + d + 2 * ng + 2 * g, (const uint8_t *)s[2].data + from, 2);
            }
        }
}

static uint8_t *affine_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans,
                                 size_t n_spans, uint64_t n_tokens, size_t *n_bytes)
{
    static const char *const names[] = {"key", "key_scale", "key_bias", "value", "value_scale", "value_bias"};
    const struct sennit_cache_config *c = &like->config;
    struct coded_form form = {names, 6, 3, token_bytes(c), c->n_kv_heads * head_bytes(c, true), copy_part};
    return coded_canonical(c, &form, spans, n_spans, n_tokens, n_bytes);
}

const struct tested_family tested_affine = {
    .name = "affine",
    .twin = &twin_affine,
    .geometry = affine_geometry,
    .small = affine_small,
    .d_step = 64, /* for both groups */
    .paged = true,
    .spoil = kv_spoil,
    .oracles = {"affine", NULL},
    .walk = walk_affine,
    .canonical = affine_canonical,
};
