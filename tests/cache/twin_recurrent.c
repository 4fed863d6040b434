/* Gated DeltaNet, Mamba-2 and the short convolution from their formulas, position by position from the row's first
 * token, in double. Beside each number goes a bound of what f32 arithmetic in the specified order can make of it. */
#include <math.h>
#include <stdlib.h>

#include "cache/recur_common.h"

enum { N_CONSTANTS = 1 << 15 };
#define U 5.9604644775390625e-8 /* 2^-24 */

struct twin {
    const struct geometry *g;
    uint64_t n, cap;
    size_t n_input;
    float *x;             /* [n][n_input] */
    struct delta *deltas; /* [heads], of gated DeltaNet; each where the last question about its head left it */
    struct mamba *mambas; /* likewise */
};

/* ---- constants and geometries ---------------------------------------------------------------------------------- */

static const float *constants(float low, float high, uint64_t seed, size_t n)
{
    static float table[8][N_CONSTANTS];
    float *t = table[seed];
    CHECK(seed < SN_ARRAY_LEN(table) && n <= N_CONSTANTS);
    if (t[0] == 0) {
        struct rng rng = {seed};
        for (size_t i = 0; i < N_CONSTANTS; i++)
            t[i] = low + (high - low) * ((float)rng_below(&rng, 1 << 24) + 0.5f) / 16777216.0f;
    }
    return t;
}

void recur_geometry(struct geometry *g, const struct recur_sizes *s)
{
    struct sennit_cache_config *c = &g->config;
    bool delta = strcmp(s->kind, "deltanet") == 0, plain = strcmp(s->kind, "short-conv") == 0;
    c->n_kv_heads = c->d_k = c->d_v = c->page_tokens = 0;
    c->k_type = c->v_type = 0;
    uint32_t keys = s->n_key_heads * s->d_state;
    memset(&c->recurrent, 0, sizeof c->recurrent);
    c->recurrent.kind = s->kind;
    c->recurrent.n_channels = plain ? s->d_head : 2 * keys + s->n_heads * s->d_head;
    c->recurrent.kernel = s->kernel;
    c->recurrent.conv_weight = constants(-0.9f, 0.9f, 1, (size_t)c->recurrent.n_channels * s->kernel);
    c->recurrent.conv_bias = s->bias ? constants(-0.3f, 0.3f, 2, c->recurrent.n_channels) : NULL;
    g->d_q = 1;
    g->d_out = s->d_head;
    g->n_heads = plain ? 1 : s->n_heads;
    g->n_parts = 1;
    g->parts[0] = (struct part){SENNIT_ROLE_CONV_IN, c->recurrent.n_channels, 1};
    if (plain)
        return;
    c->recurrent.n_heads = s->n_heads;
    c->recurrent.n_key_heads = s->n_key_heads;
    c->recurrent.d_state = s->d_state;
    c->recurrent.d_head = s->d_head;
    c->recurrent.key_head_mod = delta && s->key_head_mod;
    c->recurrent.a_log = constants(-5.0f, 0.8f, 3, s->n_heads);
    c->recurrent.dt_bias = constants(-1.0f, 1.0f, 4, s->n_heads);
    c->recurrent.d_skip = !delta && s->skip ? constants(-1.0f, 1.0f, 5, s->n_heads) : NULL;
    c->recurrent.dt_min = !delta && s->clamp ? 0.05f : 0;
    c->recurrent.dt_max = !delta && s->clamp ? 2.0f : 0;
    g->parts[1] = (struct part){delta ? SENNIT_ROLE_DECAY : SENNIT_ROLE_DT, s->n_heads, 1};
    g->parts[2] = (struct part){SENNIT_ROLE_BETA, s->n_heads, 1};
    g->n_parts = delta ? 3 : 2;
}

static void draw_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    static const char *const kinds[] = {"deltanet", "mamba2", "short-conv"};
    static const uint32_t small[] = {1, 2, 3, 5, 8, 15, 16, 17, 24, 32, 33}, big[] = {48, 64, 100, 128};
    (void)type;
    struct recur_sizes s = {.kind = kinds[rng_below(rng, 3)]};
    s.n_key_heads = 1 + rng_below(rng, large ? 8 : 3);
    s.n_heads = s.n_key_heads * (1 + rng_below(rng, large ? 8 / s.n_key_heads : 3));
    s.d_state = large ? big[rng_below(rng, SN_ARRAY_LEN(big))] : small[rng_below(rng, SN_ARRAY_LEN(small))];
    s.d_head = large ? big[rng_below(rng, SN_ARRAY_LEN(big))] : small[rng_below(rng, SN_ARRAY_LEN(small))];
    if (strcmp(s.kind, "short-conv") == 0)
        s.d_head = 1 + rng_below(rng, large ? 2000 : 300);
    else if (rng_chance(rng, 15))
        s.d_head = 65 + rng_below(rng, 40); /* more lanes than one merge of Mamba-2 takes */
    s.kernel = 2 + rng_below(rng, 4);
    s.bias = rng_chance(rng, 50);
    s.key_head_mod = rng_chance(rng, 50);
    s.skip = rng_chance(rng, 70);
    s.clamp = rng_chance(rng, 30);
    recur_geometry(g, &s);
    g->config.max_tokens = rng_chance(rng, 30) ? 60 + rng_below(rng, 300) : 0;
}

/* For long rows: not the large ones. */
static void redraw(struct rng *rng, struct geometry *g)
{
    draw_geometry(rng, g, SENNIT_F32, false);
    g->config.max_tokens = 0;
}

/* 4 heads of 32: what the small fixtures count on. */
static void small_deltanet(struct geometry *g)
{
    struct recur_sizes s = {
        .kind = "deltanet", .n_heads = 4, .n_key_heads = 2, .d_state = 8, .d_head = 32, .kernel = 4};
    recur_geometry(g, &s);
}

/* ---- the parts of the formulas, each with its error ------------------------------------------------------------ */

struct num {
    double x, e;
};

/* A chain of `kernel` fused steps, perhaps on a bias: (kernel + 1) u of the sum of magnitudes. */
static struct num convolved(const struct twin *t, uint64_t pos, size_t channel)
{
    const struct sennit_cache_config *c = &t->g->config;
    double sum = c->recurrent.conv_bias ? (double)c->recurrent.conv_bias[channel] : 0, size = fabs(sum);
    for (uint32_t back = 0; back < c->recurrent.kernel && back <= pos; back++) {
        const float *w = c->recurrent.conv_weight + channel * c->recurrent.kernel;
        double x = (double)w[c->recurrent.kernel - 1 - back] * (double)t->x[(pos - back) * t->n_input + channel];
        sum += x;
        size += fabs(x);
    }
    return (struct num){sum, (c->recurrent.kernel + 1) * U * size};
}

/* The slope of SiLU is at most 1.1; exp, sum and division add 8 u; exp saturates at 3.4e38. */
static struct num activated(const struct twin *t, uint64_t pos, size_t channel)
{
    struct num s = convolved(t, pos, channel);
    double y = s.x / (1 + exp(-s.x));
    return (struct num){y, 1.1 * s.e + 8 * U * fabs(y) + (fabs(s.x) + 100) * 4e-39};
}

/* softplus of a sum: the sum is rounded, the slope is at most min(1, value), exp is good to 4 u; two more steps. */
static struct num softplus_of(double a, double b)
{
    double x = a + b, y = x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    double slope = y < 1 ? y : 1;
    return (struct num){y, U * (slope * (fabs(x) + 4) + 3 * y) + 1e-37};
}

/* exp(-exp(a_log) s): the exponent is off by exp(a_log) times the error of s and 5 u of itself; exp by 4 u; it is
 * never below 1.18e-38. */
static struct num decay_of(double a_log, struct num s)
{
    double rate = exp(a_log), y = exp(-rate * s.x), off = rate * s.e + 5 * U * rate * s.x + 4 * U;
    return (struct num){y, y * off * (1 + off) + 1.3e-38};
}

static double norm_of(const double *x, size_t n, size_t stride)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i * stride] * x[i * stride];
    return sqrt(sum);
}

/* A vector of length 1, and a bound of its error's length: x / sqrt(x x + eps) is steeper nowhere than 1 / sqrt(x x +
 * eps); its sum of squares is 16 chains and a tree, and two more operations follow. */
static double unit_vector(const struct twin *t, uint64_t pos, size_t first, size_t d, double *out)
{
    double sum = 0, error = 0;
    for (size_t i = 0; i < d; i++) {
        struct num y = activated(t, pos, first + i);
        out[i] = y.x;
        sum += y.x * y.x;
        error += y.e * y.e;
    }
    double r = 1 / sqrt(sum + 1e-6);
    for (size_t i = 0; i < d; i++)
        out[i] *= r;
    return sqrt(error) * r + ((double)d / 16 + 12) * U * sqrt(sum) * r;
}

/* ---- gated DeltaNet -------------------------------------------------------------------------------------------- */

struct delta {
    uint64_t pos; /* tokens that are in it */
    size_t d, n_values;
    double *k, *q; /* [d] */
    double ke, qe; /* lengths of their errors */
    struct num decay, beta;
    double *s; /* [d][n_values] */
    double *e; /* [n_values]: length of the error of a lane's column of s */
};

/* S <- decay S; S <- S + beta (v - S k) k^T, one lane.
 *
 * With k of length at most 1 and beta within 0 .. 1, the old error passes through decay (I - beta k k^T), which makes
 * no vector longer. New error comes from decay, beta, k and v, each by what it multiplies; from the sum S k, four
 * chains of d / 4; from u = beta (v - decay S k), and from the last two operations per element. */
static void delta_lane(struct delta *m, size_t lane, struct num v)
{
    size_t d = m->d, n = m->n_values;
    double *s = m->s + lane, a = 0, before = norm_of(s, d, n), kn = norm_of(m->k, d, 1) + m->ke;
    for (size_t j = 0; j < d; j++)
        a += s[j * n] * m->k[j];
    double decay = m->decay.x, beta = m->beta.x, rest = v.x - decay * a, dot = ((double)d / 4 + 4) * U;
    for (size_t j = 0; j < d; j++)
        s[j * n] = decay * s[j * n] + beta * rest * m->k[j];
    double size = before + m->e[lane];
    m->e[lane] = (decay + m->decay.e) * m->e[lane] + m->decay.e * size + m->beta.e * kn * fabs(rest) +
                 beta * (m->ke * fabs(rest) + kn * (v.e + decay * m->ke * size)) +
                 beta * decay * kn * kn * dot * size + 3 * U * beta * kn * (fabs(v.x) + decay * fabs(a)) +
                 2 * U * (decay * size + norm_of(s, d, n)) + 1e-36;
}

static void delta_position(const struct twin *t, struct delta *m, uint64_t pos, uint32_t head)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t n_keys = c->recurrent.n_key_heads, n_heads = c->recurrent.n_heads, d = m->d;
    size_t key = c->recurrent.key_head_mod ? head % n_keys : head / (n_heads / n_keys);
    const float *gates = t->x + pos * t->n_input + c->recurrent.n_channels;
    m->qe = unit_vector(t, pos, key * d, d, m->q);
    m->ke = unit_vector(t, pos, (n_keys + key) * d, d, m->k);
    double scale = 1 / sqrt((double)d);
    for (size_t j = 0; j < d; j++)
        m->q[j] *= scale;
    m->qe = m->qe * scale + 3 * U * norm_of(m->q, d, 1);
    m->decay = decay_of((double)c->recurrent.a_log[head],
                        softplus_of((double)gates[head], (double)c->recurrent.dt_bias[head]));
    double beta = 1 / (1 + exp(-(double)gates[n_heads + head]));
    m->beta = (struct num){beta, 8 * U * beta};
    for (size_t i = 0; i < m->n_values; i++)
        delta_lane(m, i, activated(t, pos, 2 * n_keys * d + head * m->n_values + i));
}

static void delta_free(struct delta *m)
{
    free(m->k);
    free(m->q);
    free(m->s);
    free(m->e);
    *m = (struct delta){0};
}

/* The state after n_tokens: on from where it was, or from the first token. */
static struct delta *delta_after(const struct twin *t, uint32_t head, uint64_t n_tokens)
{
    struct delta *m = &t->deltas[head];
    if (m->pos > n_tokens)
        delta_free(m);
    if (m->pos == 0) {
        m->d = t->g->config.recurrent.d_state;
        m->n_values = t->g->config.recurrent.d_head;
        m->k = must(calloc(m->d, sizeof *m->k));
        m->q = must(calloc(m->d, sizeof *m->q));
        m->s = must(calloc(m->d * m->n_values, sizeof *m->s));
        m->e = must(calloc(m->n_values, sizeof *m->e));
    }
    for (; m->pos < n_tokens; m->pos++)
        delta_position(t, m, m->pos, head);
    return m;
}

static double delta_attend(const struct twin *t, uint32_t head, uint64_t n_tokens, double *out)
{
    const struct delta *m = delta_after(t, head, n_tokens);
    double bound = 0, qn = norm_of(m->q, m->d, 1);
    for (size_t i = 0; i < m->n_values; i++) {
        double size = norm_of(m->s + i, m->d, m->n_values);
        double e = m->e[i] * (qn + m->qe) + size * m->qe + ((double)m->d / 4 + 4) * U * size * qn + 1e-36;
        out[i] = 0;
        for (size_t j = 0; j < m->d; j++)
            out[i] += m->s[j * m->n_values + i] * m->q[j];
        bound = e > bound ? e : bound;
    }
    return 1.1 * bound; /* the rest is for products of errors */
}

/* ---- Mamba-2 --------------------------------------------------------------------------------------------------- */

struct mamba {
    uint64_t pos;                 /* tokens that are in it */
    struct num dt, decay, *b, *c; /* [d_state] */
    struct num *h;                /* [d_head][d_state] */
    struct num *y;                /* [d_head]: the last token's outputs */
};

/* h <- decay h + dt x B, one lane: the old error shrinks with decay, and each factor brings its own. Then y = h C, a
 * chain of d_state steps; + D x. */
static struct num mamba_lane(struct mamba *m, struct num *h, size_t d, struct num x, double skip)
{
    double y = 0, e = 0, size = 0;
    for (size_t n = 0; n < d; n++) {
        struct num old = h[n], b = m->b[n], c = m->c[n];
        double in = m->dt.x * x.x * b.x;
        h[n].x = m->decay.x * old.x + in;
        h[n].e = (m->decay.x + m->decay.e) * old.e + m->decay.e * fabs(old.x) + fabs(x.x * b.x) * m->dt.e +
                 m->dt.x * (fabs(b.x) * x.e + fabs(x.x) * b.e) + 3 * U * fabs(in) + 2 * U * fabs(m->decay.x * old.x) +
                 U * fabs(h[n].x) + 1e-37;
        y += h[n].x * c.x;
        e += fabs(c.x) * h[n].e + fabs(h[n].x) * c.e;
        size += fabs(h[n].x * c.x);
    }
    double all = y + skip * x.x;
    return (struct num){all, e + ((double)d + 2) * U * size + fabs(skip) * (x.e + 2 * U * fabs(x.x)) + U * fabs(all)};
}

static void mamba_position(const struct twin *t, struct mamba *m, uint64_t pos, uint32_t head)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t d = c->recurrent.d_state, n_values = c->recurrent.d_head, n_heads = c->recurrent.n_heads;
    size_t groups = c->recurrent.n_key_heads, group = head / (n_heads / groups);
    double skip = c->recurrent.d_skip ? (double)c->recurrent.d_skip[head] : 0;
    m->dt = softplus_of((double)t->x[pos * t->n_input + c->recurrent.n_channels + head],
                        (double)c->recurrent.dt_bias[head]);
    if (c->recurrent.dt_max > 0)
        m->dt.x = fmin(fmax(m->dt.x, (double)c->recurrent.dt_min), (double)c->recurrent.dt_max);
    m->decay = decay_of((double)c->recurrent.a_log[head], m->dt);
    for (size_t n = 0; n < d; n++) {
        m->b[n] = activated(t, pos, n_heads * n_values + group * d + n);
        m->c[n] = activated(t, pos, n_heads * n_values + (groups + group) * d + n);
    }
    for (size_t i = 0; i < n_values; i++)
        m->y[i] = mamba_lane(m, m->h + i * d, d, activated(t, pos, head * n_values + i), skip);
}

static void mamba_free(struct mamba *m)
{
    free(m->b);
    free(m->c);
    free(m->h);
    free(m->y);
    *m = (struct mamba){0};
}

/* As delta_after. */
static struct mamba *mamba_after(const struct twin *t, uint32_t head, uint64_t n_tokens)
{
    struct mamba *m = &t->mambas[head];
    size_t d = t->g->config.recurrent.d_state, n_values = t->g->config.recurrent.d_head;
    if (m->pos > n_tokens)
        mamba_free(m);
    if (m->pos == 0) {
        m->b = must(calloc(d, sizeof *m->b));
        m->c = must(calloc(d, sizeof *m->c));
        m->h = must(calloc(n_values * d, sizeof *m->h));
        m->y = must(calloc(n_values, sizeof *m->y));
    }
    for (; m->pos < n_tokens; m->pos++)
        mamba_position(t, m, m->pos, head);
    return m;
}

static double mamba_attend(const struct twin *t, uint32_t head, uint64_t n_tokens, double *out)
{
    const struct mamba *m = mamba_after(t, head, n_tokens);
    double bound = 0;
    for (size_t i = 0; i < t->g->config.recurrent.d_head; i++) {
        out[i] = m->y[i].x;
        bound = m->y[i].e > bound ? m->y[i].e : bound;
    }
    return 1.1 * bound + 1e-36;
}

/* ---- the twin -------------------------------------------------------------------------------------------------- */

static struct twin *twin_create(const struct geometry *g)
{
    struct twin *t = must(calloc(1, sizeof *t));
    size_t n_heads = g->config.recurrent.n_heads + 1;
    t->g = g;
    t->deltas = must(calloc(n_heads, sizeof *t->deltas));
    t->mambas = must(calloc(n_heads, sizeof *t->mambas));
    for (uint32_t p = 0; p < g->n_parts; p++)
        t->n_input += g->parts[p].n_heads;
    return t;
}

static void twin_release(struct twin *t)
{
    if (!t)
        return;
    for (uint32_t i = 0; i < t->g->config.recurrent.n_heads; i++) {
        delta_free(&t->deltas[i]);
        mamba_free(&t->mambas[i]);
    }
    free(t->deltas);
    free(t->mambas);
    free(t->x);
    free(t);
}

static void twin_append(struct twin *t, uint64_t token)
{
    if (t->n == t->cap) {
        t->cap = t->cap * 2 + 16;
        t->x = must(realloc(t->x, t->cap * t->n_input * sizeof *t->x));
    }
    float *x = t->x + t->n++ * t->n_input;
    for (uint32_t p = 0; p < t->g->n_parts; x += t->g->parts[p++].n_heads)
        token_vector(token, t->g->parts[p].role, t->g->parts[p].n_heads, x);
}

static void twin_cut(struct twin *t, uint64_t n_tokens)
{
    CHECK(n_tokens <= t->n);
    t->n = n_tokens;
    for (uint32_t i = 0; i < t->g->config.recurrent.n_heads; i++) {
        if (t->deltas[i].pos > n_tokens)
            delta_free(&t->deltas[i]);
        if (t->mambas[i].pos > n_tokens)
            mamba_free(&t->mambas[i]);
    }
}

static double twin_attend(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                          const float *sink, double *out)
{
    (void)q, (void)sink;
    CHECK(n_keys >= 1 && n_keys <= t->n && !mask);
    const struct sennit_cache_config *c = &t->g->config;
    if (strcmp(c->recurrent.kind, "deltanet") == 0)
        return delta_attend(t, head, n_keys, out);
    if (strcmp(c->recurrent.kind, "mamba2") == 0)
        return mamba_attend(t, head, n_keys, out);
    double bound = 0;
    for (size_t i = 0; i < c->recurrent.n_channels; i++) {
        struct num y = convolved(t, n_keys - 1, i);
        out[i] = y.x;
        bound = y.e > bound ? y.e : bound;
    }
    return bound + 1e-37;
}

/* ---- wrong families -------------------------------------------------------------------------------------------- */

static struct sn_kernels honest; /* of any level: all have the same bits */

/* e = v - S k with the state not yet decayed. */
static void late_decay(const struct sn_delta_args *a)
{
    struct sn_delta_args b = *a;
    b.decay = 1;
    honest.delta_step(&b);
    for (size_t i = 0; i < a->d_state * 16; i++)
        a->to[i] *= a->decay;
}

/* Linear attention with a gate: nothing is taken out of the state before something is put in. */
static void no_delta(const struct sn_delta_args *a)
{
    for (size_t i = 0; i < 16; i++)
        a->out[i] = 0;
    for (size_t j = 0; j < a->d_state; j++)
        for (size_t i = 0; i < 16; i++) {
            a->to[j * 16 + i] = a->decay * a->from[j * 16 + i] + a->beta * a->v[i] * a->k[j];
            a->out[i] += a->to[j * 16 + i] * a->q[j];
        }
}

/* The newest input under the oldest tap. */
static void reversed_taps(const struct sn_conv_args *a)
{
    const float *x[64];
    struct sn_conv_args b = *a;
    for (size_t j = 0; j < a->n_taps; j++)
        x[j] = a->x[a->n_taps - 1 - j];
    b.x = x;
    honest.conv(&b);
}

static void no_activation(const struct sn_conv_args *a)
{
    struct sn_conv_args b = *a;
    b.silu = false;
    honest.conv(&b);
}

/* The mean of the squares for their sum. */
static void rms_for_l2(const float *x, size_t n, float eps, float *y)
{
    honest.l2_norm(x, n, eps, y);
    for (size_t i = 0; i < n; i++)
        y[i] *= sqrtf((float)n);
}

/* y from the state before this token. */
static void early_output(const struct sn_ssm_args *a)
{
    float old[64] = {0};
    for (size_t i = 0; i < a->n_blocks * 16; i++)
        for (size_t n = 0; n < a->d_state; n++)
            old[i] += a->from[(i / 16 * a->d_state + n) * 16 + i % 16] * a->c[n];
    honest.ssm_step(a);
    memcpy(a->out, old, a->n_blocks * 16 * sizeof *old);
}

/* dt in the decay alone, not with the input. */
static void undiscretized(const struct sn_ssm_args *a)
{
    struct sn_ssm_args b = *a;
    b.dt = 1;
    honest.ssm_step(&b);
}

static unsigned wrong; /* the variant */

static void make_wrong(struct sn_kernels *k)
{
    if (!honest.conv)
        honest = *k;
    k->delta_step = wrong == 1 ? late_decay : wrong == 2 ? no_delta : k->delta_step;
    k->conv = wrong == 3 ? reversed_taps : wrong == 4 ? no_activation : k->conv;
    k->l2_norm = wrong == 5 ? rms_for_l2 : k->l2_norm;
    k->ssm_step = wrong == 6 ? early_output : wrong == 7 ? undiscretized : k->ssm_step;
}

/* Whatever a cache computes comes after a step of its pool. */
static sennit_status wrong_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    make_wrong(&cache->pool->own_kernels);
    return sn_family_recurrent.step_begin(cache, err);
}

static const char *spoil(unsigned variant, struct sn_family *family)
{
    static const char *const what[] = {"the decay comes last",
                                       "linear attention without the delta",
                                       "taps reversed",
                                       "no SiLU",
                                       "the mean of squares for their sum",
                                       "y of the state before",
                                       "dt not with the input"};
    family->step_begin = wrong_begin;
    wrong = variant;
    return variant <= SN_ARRAY_LEN(what) ? what[variant - 1] : NULL;
}

/* ---- what the suite must know ---------------------------------------------------------------------------------- */

static const struct twin_ops twin_recurrent = {
    .create = twin_create,
    .release = twin_release,
    .append = twin_append,
    .cut = twin_cut,
    .attend = twin_attend,
};

static void walk_state(const struct sennit_cache *cache, uint32_t row,
                       void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    if (cache->rows[row].store)
        visit(ctx, cache->rows[row].store, (size_t)cache->ops->storage_bytes(cache, 1));
}

/* The tail as it is; of the matrix [head][block][d_state][16] the lanes that are values: [head][d_state][d_head]. */
static uint8_t *recur_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                                uint64_t n_tokens, size_t *n_bytes)
{
    const struct sennit_cache_config *c = &like->config;
    size_t d = c->recurrent.d_state, n = c->recurrent.d_head, n_heads = c->recurrent.n_heads;
    size_t blocks = sn_div_up(n, 16), tail = (size_t)(c->recurrent.kernel - 1) * c->recurrent.n_channels;
    *n_bytes = 0;
    if (n_tokens == 0)
        return NULL;
    CHECK(n_spans == (n_heads ? 2 : 1) && strcmp(spans[0].name, "conv") == 0 && spans[0].n_bytes == 4 * tail);
    CHECK(spans[0].n_tokens == n_tokens && spans[0].type == SENNIT_F32);
    *n_bytes = 4 * (tail + n_heads * d * n);
    float *out = must(malloc(*n_bytes)), *at = out + tail;
    memcpy(out, spans[0].data, 4 * tail);
    if (n_heads == 0)
        return (uint8_t *)out;
    CHECK(strcmp(spans[1].name, "state") == 0 && spans[1].n_bytes == 4 * n_heads * blocks * d * 16);
    const float *s = spans[1].data;
    for (size_t h = 0; h < n_heads; h++)
        for (size_t j = 0; j < d; j++)
            for (size_t i = 0; i < n; i++)
                *at++ = s[((h * blocks + i / 16) * d + j) * 16 + i % 16];
    return (uint8_t *)out;
}

const struct tested_family tested_recurrent = {
    .name = "recurrent",
    .twin = &twin_recurrent,
    .geometry = draw_geometry,
    .small = small_deltanet,
    .tiny = redraw,
    .no_keys = true,
    .spoil = spoil,
    .oracles = {"recurrent", NULL},
    .walk = walk_state,
    .canonical = recur_canonical,
};
