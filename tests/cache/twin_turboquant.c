/* The textbook of TurboQuant: each group of a token's keys is coded and decoded; each value is rotated, coded and
 * decoded, and stays in the rotated space; attention is softmax(cap(q K^T) with sink) V over what the codes stand
 * for, in double, rotated back at the end.
 *
 * As in twin_affine.c, what decides a code is repeated in f32 (the division by an f16 scale; the rotation of a value,
 * whose stages have one order), or one number in thousands would stand a whole step away. What follows is double. */
#include <math.h>
#include <stdlib.h>

#include "cache/paged.h"
#include "cache/twin.h"
#include "kernel/turbo.h"

enum { GROUP = 32 };

struct twin {
    const struct geometry *g;
    uint32_t k_bits, v_bits;
    uint64_t n, cap;
    double *k, *v; /* [n][heads * d], decoded; values rotated */
    double *size;  /* [n][heads]: length of a head's decoded value */
};

/* The nearest number of binary16, ties to even; *up: the next one above it. */
static float as_half(double x, float *up)
{
    int exponent = x == 0.0 || ilogb(x) < -14 ? -14 : ilogb(x);
    double spacing = ldexp(1.0, exponent - 10), y = nearbyint(x / spacing) * spacing;
    if (up)
        *up = (float)(y + spacing);
    return (float)(y > 65504.0 ? 65504.0 : y < -65504.0 ? -65504.0 : y);
}

static float clipped(float x, float least, float most)
{
    return fminf(fmaxf(x, least), most);
}

static void code_key(const float *x, uint32_t bits, double *out)
{
    float least = x[0], most = x[0], up;
    for (size_t i = 0; i < GROUP; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    if (least == most) {
        for (size_t i = 0; i < GROUP; i++)
            out[i] = copysign(as_half(fabsf(least), NULL), least);
        return;
    }
    float levels = bits == 8 ? 254.0f : (float)((1u << bits) - 1), floor = fmaxf(most, -least) / 2048.0f;
    float scale = as_half(fmaxf((most - least) / levels, floor), &up);
    if (scale < floor)
        scale = up;
    float zero = nearbyintf(bits == 8 ? (most + least) / (2.0f * scale) : least / scale);
    for (size_t i = 0; i < GROUP; i++) {
        float code = nearbyintf(x[i] / scale - zero);
        code = bits == 8 ? clipped(code, -127.0f, 127.0f) : clipped(code, 0.0f, levels);
        out[i] = ((double)code + zero) * scale;
    }
}

/* ---- rotation ------------------------------------------------------------------------------------------------- */

static bool is_flipped(uint32_t d, uint32_t i)
{
    uint64_t z = d + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return (z ^ z >> 31) & 1;
}

/* Halves first: their stages are the nearer ones. */
static void hadamard(float *x, uint32_t n)
{
    if (n == 1)
        return;
    hadamard(x, n / 2);
    hadamard(x + n / 2, n / 2);
    for (uint32_t i = 0; i < n / 2; i++) {
        float a = x[i], b = x[i + n / 2];
        x[i] = a + b;
        x[i + n / 2] = a - b;
    }
}

/* The matrix itself: entry (i, j) is -1 where i and j share an odd number of bits. */
static void rotate_back(const double *y, uint32_t d, double *out)
{
    for (uint32_t i = 0; i < d; i++) {
        double sum = 0;
        for (uint32_t j = 0; j < d; j++)
            sum += __builtin_popcount(i & j) % 2 ? -y[j] : y[j];
        out[i] = (is_flipped(d, i) ? -sum : sum) / sqrt(d);
    }
}

/* Levels ascend; of two that are equally near, the lower one. */
static double nearest(double z, const float *levels, uint32_t n)
{
    uint32_t low = 0;
    for (uint32_t step = n / 2; step > 0; step /= 2)
        low += levels[low + step] <= z ? step : 0;
    return low + 1 < n && fabs(z - levels[low + 1]) < fabs(z - levels[low]) ? levels[low + 1] : levels[low];
}

static void code_value(const float *x, uint32_t d, uint32_t bits, double *out)
{
    float y[512], norm = (float)(1.0 / sqrt(d));
    for (uint32_t i = 0; i < d; i++)
        y[i] = is_flipped(d, i) ? -x[i] : x[i];
    hadamard(y, d);
    for (uint32_t i = 0; i < d; i++)
        y[i] *= norm;
    for (uint32_t at = 0; at < d; at += GROUP) {
        float s[16] = {0};
        for (uint32_t i = 0; i < GROUP; i++)
            s[i % 16] = fmaf(y[at + i], y[at + i], s[i % 16]);
        for (uint32_t n = 8; n > 0; n /= 2)
            for (uint32_t i = 0; i < n; i++)
                s[i] += s[i + n];
        float scale = as_half(sqrtf(s[0] / GROUP), NULL), by = scale + 1e-8f;
        for (uint32_t i = 0; i < GROUP; i++)
            out[at + i] = nearest(y[at + i] / by, sn_turbo_centroids(bits), 1u << bits) * scale;
    }
}

/* ---- rows ----------------------------------------------------------------------------------------------------- */

static struct twin *twin_create(const struct geometry *g)
{
    struct twin *t = must(calloc(1, sizeof *t));
    bool chosen = g->config.code.k_bits != 0;
    t->g = g;
    t->k_bits = chosen ? g->config.code.k_bits : 8;
    t->v_bits = chosen ? g->config.code.v_bits : 3;
    return t;
}

static void twin_release(struct twin *t)
{
    if (!t)
        return;
    free(t->k);
    free(t->v);
    free(t->size);
    free(t);
}

static void append_as(struct twin *t, uint64_t token, sennit_type type)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t heads = c->n_kv_heads, nk = heads * c->d_k, nv = heads * c->d_v;
    if (t->n == t->cap) {
        t->cap = t->cap * 2 + 16;
        t->k = must(realloc(t->k, t->cap * nk * sizeof(double)));
        t->v = must(realloc(t->v, t->cap * nv * sizeof(double)));
        t->size = must(realloc(t->size, t->cap * heads * sizeof(double)));
    }
    float *x = must(malloc((nk + nv) * sizeof *x));
    token_vector(token, SENNIT_ROLE_KEY, nk, x);
    token_vector(token, SENNIT_ROLE_VALUE, nv, x + nk);
    for (size_t i = 0; type != SENNIT_F32 && i < nk + nv; i++)
        x[i] = (float)stored_as(x[i], type);
    for (size_t at = 0; at < nk; at += GROUP)
        code_key(x + at, t->k_bits, t->k + t->n * nk + at);
    for (size_t h = 0; h < heads; h++) {
        double *v = t->v + t->n * nv + h * c->d_v, sum = 0;
        code_value(x + nk + h * c->d_v, c->d_v, t->v_bits, v);
        for (uint32_t d = 0; d < c->d_v; d++)
            sum += v[d] * v[d];
        t->size[t->n * heads + h] = sqrt(sum);
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
    for (size_t at = 0; at < t->g->config.d_k; at += GROUP) {
        float most = 0, x[GROUP];
        for (size_t i = 0; i < GROUP; i++) {
            x[i] = q[at + i] * t->g->scale;
            most = fmaxf(most, fabsf(x[i]));
        }
        float step = most / 127.0f, inverse = 127.0f / most;
        for (size_t i = 0; i < GROUP; i++)
            out[at + i] = most < 0x1p-100f ? 0.0 : (double)step * clipped(nearbyintf(x[i] * inverse), -127, 127);
    }
}

/* One score; *size gathers what is added up: |sum q * key| of each group. */
static double twin_score(const struct twin *t, const double *q, uint32_t kv, uint64_t key, double *size)
{
    const struct sennit_cache_config *c = &t->g->config;
    const double *k = t->k + (key * c->n_kv_heads + kv) * c->d_k;
    double s = 0, sum = 0, cap = t->g->soft_cap;
    for (size_t at = 0; at < c->d_k; at += GROUP) {
        double part = 0;
        for (size_t d = at; d < at + GROUP; d++)
            part += q[d] * k[d];
        s += part;
        sum += fabs(part);
    }
    *size = fmax(*size, sum);
    return cap != 0 ? cap * tanh(s / cap) : s;
}

/* The bound, with u = 2^-24: a score is a chain of one fused step per group of an exact whole number and a factor,
 * scale * d_q, that was rounded once (d_q itself too): at most (groups + 3) u times what was added up (a soft cap
 * adds a few u of the cap, and never steepens). A weight p = exp(s - m) is off by twice that, relatively, and by 4u
 * for exp. A value's share is p * scale, rounded, times its level; a sum over n keys, with a rescale per chunk and
 * segment, adds (n + n / 16 + 12) u. The same again for the denominator. All of it is relative to the values'
 * lengths, which the rotation back keeps: the longest one bounds any dimension's error. That rotation adds u per
 * stage, and for its factor, of the output's length. */
static double twin_bound(const struct twin *t, double size, uint64_t n, double longest)
{
    double u = ldexp(1.0, -24), cap = t->g->soft_cap;
    double n_groups = (double)t->g->config.d_k / GROUP, n_stages = log2(t->g->config.d_v);
    double score = (n_groups + 3) * u * size + 8 * u * cap;
    double relative = 2 * score + 4 * u + ((double)n + (double)n / 16 + 12) * u;
    return (2 * relative * (1 + relative) + (n_stages + 3) * u) * longest + 1e-37;
}

static double twin_attend(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                          const float *sink, double *out)
{
    const struct sennit_cache_config *c = &t->g->config;
    uint32_t kv = head / t->g->group;
    double *s = must(malloc((n_keys + 1 + c->d_k + c->d_v) * sizeof *s)), *coded = s + n_keys + 1,
           *y = coded + c->d_k;
    double m = sink ? *sink : -INFINITY, size = 0, longest = 0, l = 0;
    CHECK(n_keys <= t->n);
    code_query(t, q, coded);
    for (uint64_t j = 0; j < n_keys; j++) {
        s[j] = !mask || mask[j] ? twin_score(t, coded, kv, j, &size) : -INFINITY;
        m = fmax(m, s[j]);
    }
    memset(y, 0, c->d_v * sizeof *y);
    for (uint64_t j = 0; j < n_keys; j++) {
        if (s[j] == -INFINITY)
            continue;
        double p = exp(s[j] - m);
        const double *v = t->v + (j * c->n_kv_heads + kv) * c->d_v;
        l += p;
        longest = fmax(longest, t->size[j * c->n_kv_heads + kv]);
        for (size_t d = 0; d < c->d_v; d++)
            y[d] += p * v[d];
    }
    l += sink ? exp(*sink - m) : 0;
    for (size_t d = 0; d < c->d_v; d++)
        y[d] = l > 0 ? y[d] / l : 0;
    rotate_back(y, c->d_v, out);
    free(s);
    return twin_bound(t, size, n_keys, longest);
}

static const struct twin_ops twin_turboquant = {
    .create = twin_create,
    .release = twin_release,
    .append = twin_append,
    .cut = twin_cut,
    .attend = twin_attend,
    .append_stored = append_as,
};

/* ---- wrong variants ------------------------------------------------------------------------------------------- */

/* One table for all pools of a run: the right one's bits are the same on every level. */
static struct sn_kernels right, wrong;
static void (*spoil_table)(void);

static sennit_status wrong_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    if (cache->pool->kernels != &wrong) {
        right = wrong = *cache->pool->kernels;
        spoil_table();
        cache->pool->kernels = &wrong;
    }
    return sn_family_turboquant.step_begin(cache, err);
}

/* The level next to the nearest one, in the first dimension of each group. */
static void neighbouring_values(const float *x, size_t d, unsigned bits, uint8_t *codes, uint16_t *scale)
{
    right.turbo_values(x, d, bits, codes, scale);
    for (size_t g = 0; g < d / GROUP; g++)
        codes[g * bits * 4] ^= 1;
}

static void unsigned_rotate(float *x, size_t d)
{
    right.turbo_rotate(x, d);
    for (uint32_t i = 0; i < d; i++)
        x[i] = is_flipped((uint32_t)d, i) ? -x[i] : x[i];
}

static void zeroless_attention(const struct sn_attn_turbo_args *a)
{
    static const uint16_t zeros[64 * 512 / GROUP];
    struct sn_turbo_part k[SN_SEGMENT_CHUNKS];
    struct sn_attn_turbo_args args = *a;
    for (size_t c = 0; c < a->a.n_chunks; c++) {
        k[c] = a->k[c];
        k[c].zero = zeros;
    }
    args.k = k;
    right.attn_turbo(&args);
}

static void neighbouring_scales(const struct sn_attn_turbo_args *a)
{
    struct sn_turbo_part v[SN_SEGMENT_CHUNKS];
    struct sn_attn_turbo_args args = *a;
    uint16_t scale[SN_SEGMENT_CHUNKS][64 * 512 / GROUP];
    size_t n = 64 * (a->a.d_v / GROUP);
    for (size_t c = 0; c < a->a.n_chunks; c++) {
        v[c] = a->v[c];
        memcpy(scale[c], v[c].scale + 64, (n - 64) * sizeof *scale[c]);
        memcpy(scale[c] + n - 64, v[c].scale, 64 * sizeof *scale[c]);
        v[c].scale = scale[c];
    }
    args.v = v;
    right.attn_turbo(&args);
}

/* Zero as a half step off, as where it is taken from the minimum and forgotten to be a whole number. */
static void unrounded_zero(const float *x, size_t n, unsigned bits, uint8_t *codes, uint16_t *scale, uint16_t *zero)
{
    right.turbo_keys(x, n, bits, codes, scale, zero);
    for (size_t g = 0; g < n / GROUP; g++)
        zero[g] = zero[g] & 0x7FFF ? (uint16_t)(zero[g] ^ 1) : zero[g];
}

static void spoil_values(void)
{
    wrong.turbo_values = neighbouring_values;
}

static void spoil_rotate(void)
{
    wrong.turbo_rotate = unsigned_rotate;
}

static void spoil_zero(void)
{
    wrong.attn_turbo = zeroless_attention;
}

static void spoil_scales(void)
{
    wrong.attn_turbo = neighbouring_scales;
}

static void spoil_keys(void)
{
    wrong.turbo_keys = unrounded_zero;
}

static const char *turbo_spoil(unsigned variant, struct sn_family *family)
{
    static struct sn_attend_ops unrotated;
    static const struct {
        const char *what;
        void (*spoil)(void);
    } variants[] = {{"a level beside the nearest", spoil_values},
                    {"signs left out on the way back", spoil_rotate},
                    {"zeros of keys left out", spoil_zero},
                    {"scales of the next group of values", spoil_scales},
                    {"zeros that are no whole numbers", spoil_keys}};
    if (variant >= 1 && variant <= SN_ARRAY_LEN(variants)) {
        spoil_table = variants[variant - 1].spoil;
        family->step_begin = wrong_begin;
        return variants[variant - 1].what;
    }
    if (variant != SN_ARRAY_LEN(variants) + 1)
        return NULL;
    unrotated = *family->attend;
    unrotated.finish = NULL;
    family->attend = &unrotated;
    return "outputs left in the rotated space";
}

/* ---- the family under the suite ------------------------------------------------------------------------------- */

static void turbo_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    static const uint32_t dims[] = {64, 128, 256, 512}, k_bits[] = {2, 4, 5, 8}, v_bits[] = {2, 3, 4, 5, 8};
    struct sennit_cache_config *c = &g->config;
    kv_geometry(rng, g, type, large);
    uint32_t n = large ? 4 : rng_chance(rng, 60) ? 1 : 2;
    c->k_type = c->v_type = SENNIT_F32; /* no type: 0 */
    c->d_k = dims[rng_below(rng, n)];
    c->d_v = rng_chance(rng, 40) ? c->d_k : dims[rng_below(rng, n)];
    c->code.group = rng_chance(rng, 50) ? 32 : 0;
    if (rng_chance(rng, 20))
        return; /* 8 and 3 */
    c->code.k_bits = k_bits[rng_below(rng, 4)];
    c->code.v_bits = v_bits[rng_below(rng, 5)];
}

static void turbo_small(struct geometry *g)
{
    g->config.k_type = g->config.v_type = SENNIT_F32;
    g->config.n_kv_heads = 1;
    g->config.d_k = g->config.d_v = 64;
    g->config.code.k_bits = 8;
    g->config.code.v_bits = 4;
}

static void walk_turbo(const struct sennit_cache *cache, uint32_t row,
                       void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    walk_pages(cache, row, &sn_paged_of(cache)->paging, visit, ctx);
}

/* ---- canonical form ------------------------------------------------------------------------------------------- */

/* Per token and head: the key's stream of codes, its scales, its zeros; then the value's stream and scales. */
static size_t head_bytes(const struct sennit_cache_config *c, bool key)
{
    size_t d = key ? c->d_k : c->d_v, bits = key ? c->code.k_bits : c->code.v_bits;
    return d * bits / 8 + (key ? 4 : 2) * (d / GROUP);
}

static size_t token_bytes(const struct sennit_cache_config *c)
{
    return c->n_kv_heads * (head_bytes(c, true) + head_bytes(c, false));
}

/* One page's spans of keys (3), or of values (2), into the tokens' places. */
static void copy_part(const struct sennit_cache_config *c, const struct sennit_span_view *s, bool key, uint8_t *out)
{
    size_t d = key ? c->d_k : c->d_v, ng = d / GROUP, p = sn_page_tokens(c), lanes = p < 16 ? p : 16;
    size_t row = d * (key ? c->code.k_bits : c->code.v_bits) / 8, n_halves = key ? 2 : 1;
    CHECK(s[0].n_bytes == c->n_kv_heads * p * row && s[0].type == SENNIT_I8);
    for (size_t i = 1; i <= n_halves; i++)
        CHECK(s[i].n_bytes == c->n_kv_heads * p * ng * 2 && s[i].type == SENNIT_F16);
    for (size_t t = 0; t < s->n_tokens; t++)
        for (size_t h = 0; h < c->n_kv_heads; h++) {
            uint8_t *to = out + t * token_bytes(c) + h * head_bytes(c, key);
            const uint8_t *codes = (const uint8_t *)s[0].data + h * p * row;
            for (size_t i = 0; i < row; i += 4)
                memcpy(to + i, codes + (key ? t / lanes * lanes * row + i * lanes + t % lanes * 4 : t * row + i), 4);
            for (size_t g = 0; g < n_halves * ng; g++) {
                size_t at = h * p * ng + (key ? (t / lanes * ng + g % ng) * lanes + t % lanes : g % ng * p + t);
                memcpy(to + row + 2 * g, (const uint8_t *)s[1 + g / ng].data + 2 * at, 2);
            }
        }
}

static uint8_t *turbo_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                                uint64_t n_tokens, size_t *n_bytes)
{
    static const char *const names[] = {"key", "key_scale", "key_zero", "value", "value_scale"};
    const struct sennit_cache_config *c = &like->config;
    struct coded_form form = {names, 5, 3, token_bytes(c), c->n_kv_heads * head_bytes(c, true), copy_part};
    return coded_canonical(c, &form, spans, n_spans, n_tokens, n_bytes);
}

const struct tested_family tested_turboquant = {
    .name = "turboquant",
    .twin = &twin_turboquant,
    .geometry = turbo_geometry,
    .small = turbo_small,
    .d_step = 64,
    .paged = true,
    .spoil = turbo_spoil,
    .oracles = {"turboquant", NULL},
    .walk = walk_turbo,
    .canonical = turbo_canonical,
};
