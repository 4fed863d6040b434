/* Compressed keys and values over a list of tokens, in double: key = (latent, rope key), value = latent, one of each
 * for all heads. With an indexer a query sees the top_k of a full sort of all earlier keys.
 *
 * Two things are decided by f32 arithmetic, as the specification says, because an ulp decides them: the codes of an
 * 8-bit latent and of its query (nearest integers), and the order of the indexer's scores (which keys are seen at
 * all). They are computed here again, from the formula; each score is also held against double. */
#include <math.h>
#include <stdlib.h>

#include "cache/mla.h"
#include "cache/twin.h"

enum { GROUP = 64 };

struct twin {
    const struct geometry *g;
    uint64_t n, cap;
    uint64_t *tokens;
    double *k;     /* [n][d_latent + d_rope], as stored and read back; coded: the rope part alone counts */
    double *code;  /* coded: [n][d_latent] codes, then [n][groups] scale and bias follow in s and b */
    double *s, *b; /* [n][groups] */
    float *index;  /* [n][d_index] */
};

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
    free(t->tokens);
    free(t->k);
    free(t->code);
    free(t->s);
    free(t->b);
    free(t->index);
    free(t);
}

static void *resized(void *p, uint64_t n, size_t bytes)
{
    return must(realloc(p, n * bytes + 1));
}

static void grow(struct twin *t)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t rank = c->mla.d_latent, groups = rank / GROUP + 1;
    if (t->n < t->cap)
        return;
    t->cap = t->cap * 2 + 16;
    t->tokens = resized(t->tokens, t->cap, sizeof *t->tokens);
    t->k = resized(t->k, t->cap, (rank + c->mla.d_rope) * sizeof *t->k);
    t->code = resized(t->code, t->cap, rank * sizeof *t->code);
    t->s = resized(t->s, t->cap, groups * sizeof *t->s);
    t->b = resized(t->b, t->cap, groups * sizeof *t->b);
    t->index = resized(t->index, t->cap, t->g->d_index * sizeof *t->index);
}

/* scale = (max - min) / 255 and bias = min, in f16; code = round((x - bias) / scale) within 0 .. 255. */
static void twin_encode(struct twin *t, const float *x)
{
    size_t rank = t->g->config.mla.d_latent, groups = rank / GROUP;
    for (size_t g = 0; g < groups; g++) {
        float lo = INFINITY, hi = -INFINITY;
        for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++) {
            lo = fminf(lo, x[i]);
            hi = fmaxf(hi, x[i]);
        }
        float bias = (float)stored_as(lo, SENNIT_F16), scale = (float)stored_as((hi - lo) / 255.0f, SENNIT_F16);
        t->b[t->n * groups + g] = bias;
        t->s[t->n * groups + g] = scale;
        for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++) {
            double code = scale > 0 ? nearbyint((double)((x[i] - bias) / scale)) : 0;
            t->code[t->n * rank + i] = fmin(fmax(code, 0), 255);
        }
    }
}

static void twin_append(struct twin *t, uint64_t token)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t rank = c->mla.d_latent, rope = c->mla.d_rope;
    grow(t);
    float *x = must(malloc((rank + rope) * sizeof *x));
    double *k = t->k + t->n * (rank + rope);
    token_vector(token, SENNIT_ROLE_LATENT, rank, x);
    token_vector(token, SENNIT_ROLE_ROPE_KEY, rope, x + rank);
    for (size_t i = 0; i < rank + rope; i++)
        k[i] = stored_as(x[i], c->k_type);
    if (c->code.k_bits)
        twin_encode(t, x);
    free(x);
    if (t->g->d_index > 0) {
        float *key = t->index + t->n * t->g->d_index;
        token_vector(token, SENNIT_ROLE_INDEX_KEY, t->g->d_index, key);
        for (size_t i = 0; i < t->g->d_index; i++)
            key[i] = (float)stored_as(key[i], c->index.type);
    }
    t->tokens[t->n++] = token;
}

static void twin_cut(struct twin *t, uint64_t n_tokens)
{
    CHECK(n_tokens <= t->n);
    t->n = n_tokens;
}

/* ---- which keys a query sees ---------------------------------------------------------------------------------- */

struct candidate {
    float score;
    uint64_t pos;
};

static int best_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->pos < y->pos ? -1 : x->pos > y->pos;
}

/* I = sum over heads of w * relu(q . k). The f32 chain is off by at most (d + 1) u sum |q k| per head, and (heads +
 * 1) u of what is summed. */
static float index_score(const struct twin *t, const float *q, const float *w, const float *key)
{
    size_t heads = t->g->n_index_heads, d = t->g->d_index;
    float sum = 0;
    double exact = 0, slack = 0, u = ldexp(1.0, -24);
    for (size_t h = 0; h < heads; h++) {
        float dot = 0;
        double wide = 0, size = 0;
        for (size_t i = 0; i < d; i++) {
            dot = fmaf(q[h * d + i], key[i], dot);
            wide += (double)q[h * d + i] * key[i];
            size += fabs((double)q[h * d + i] * key[i]);
        }
        sum = fmaf(w[h], dot > 0 ? dot : 0, sum);
        exact += w[h] * fmax(wide, 0);
        slack += fabs(w[h]) * size * ((double)d + (double)heads + 2) * u;
    }
    CHECK(fabs(sum - exact) <= slack * 1.01 + 1e-37);
    return sum;
}

/* Marks the keys that the token at n_keys - 1 sees; returns how many. */
static uint64_t choose(const struct twin *t, uint64_t n_keys, uint8_t *seen)
{
    uint64_t top = t->g->config.index.top_k, token = t->tokens[n_keys - 1];
    size_t heads = t->g->n_index_heads, d = t->g->d_index;
    memset(seen, heads == 0, n_keys);
    if (heads == 0)
        return n_keys;
    struct candidate *all = must(malloc(n_keys * sizeof *all));
    float *q = must(malloc((heads * d + heads) * sizeof *q)), *w = q + heads * d;
    token_index_query(token, heads * d, q);
    token_index_weight(token, heads, w);
    for (uint64_t i = 0; i < n_keys; i++)
        all[i] = (struct candidate){index_score(t, q, w, t->index + i * d), i};
    qsort(all, n_keys, sizeof *all, best_first);
    uint64_t n = top < n_keys ? top : n_keys;
    for (uint64_t i = 0; i < n; i++)
        seen[all[i].pos] = 1;
    free(all);
    free(q);
    return n;
}

void mla_twin_selects(const struct twin *t, uint64_t n_keys, uint8_t *seen)
{
    choose(t, n_keys, seen);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

/* A query as it is multiplied: scaled once in f32; coded, the latent part in codes of amax / 127 per group. */
struct coded_query {
    float *x;         /* [d_latent + d_rope] */
    double *code, *d; /* [d_latent], [groups] */
};

static struct coded_query code_query(const struct twin *t, const float *q)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t rank = c->mla.d_latent, n = rank + c->mla.d_rope, groups = rank / GROUP;
    struct coded_query out = {.x = must(malloc(n * sizeof(float))),
                              .code = must(malloc(rank * sizeof(double))),
                              .d = must(malloc((groups + 1) * sizeof(double)))};
    for (size_t i = 0; i < n; i++)
        out.x[i] = q[i] * t->g->scale;
    for (size_t g = 0; g < groups && c->code.k_bits; g++) {
        float amax = 0;
        for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++)
            amax = fmaxf(amax, fabsf(out.x[i]));
        out.d[g] = amax / 127.0f;
        for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++)
            out.code[i] = amax > 0 ? nearbyint((double)(out.x[i] * (127.0f / amax))) : 0;
    }
    return out;
}

static void free_query(struct coded_query *q)
{
    free(q->x);
    free(q->code);
    free(q->d);
}

/* One score; *size gathers the sum of the magnitudes of what is added up, which bounds its rounding error. */
static double score(const struct twin *t, const struct coded_query *q, uint64_t key, double *size)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t rank = c->mla.d_latent, n = rank + c->mla.d_rope, groups = rank / GROUP;
    const double *k = t->k + key * n;
    double s = 0, sum = 0, cap = t->g->soft_cap;
    for (size_t i = c->code.k_bits ? rank : 0; i < n; i++) {
        s += q->x[i] * k[i];
        sum += fabs(q->x[i] * k[i]);
    }
    for (size_t g = 0; g < groups && c->code.k_bits; g++) {
        double dot = 0, codes = 0, scale = t->s[key * groups + g], bias = t->b[key * groups + g];
        for (size_t i = g * GROUP; i < (g + 1) * GROUP; i++) {
            dot += q->code[i] * t->code[key * rank + i];
            codes += q->code[i];
        }
        s += dot * scale * q->d[g] + bias * codes * q->d[g];
        sum += fabs(dot * scale * q->d[g]) + fabs(bias * codes * q->d[g]);
    }
    *size = sum > *size ? sum : *size;
    return cap != 0 ? cap * tanh(s / cap) : s;
}

/* Element d of a value, and the magnitude of what it is made of. */
static double value(const struct twin *t, uint64_t key, size_t d, double *size)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t rank = c->mla.d_latent, groups = rank / GROUP;
    double v = t->k[key * (rank + c->mla.d_rope) + d], magnitude = fabs(v);
    if (c->code.k_bits) {
        double scale = t->s[key * groups + d / GROUP], bias = t->b[key * groups + d / GROUP];
        v = t->code[key * rank + d] * scale + bias;
        magnitude = t->code[key * rank + d] * scale + fabs(bias);
    }
    *size = magnitude > *size ? magnitude : *size;
    return v;
}

/* The bound, with u = 2^-24: a score is a chain of at most d_latent + d_rope fused steps (coded: two per group, of
 * factors that were rounded twice, instead of 64), so off by (d + 4) u times the sum of magnitudes; a soft cap adds
 * a few u of the cap, and never steepens. A weight exp(s - m) is off by twice that, relatively, and by 4u for exp;
 * a coded value's scale adds 1u. Sums over n keys, with a rescale per chunk and segment and, coded, the biases' sum
 * per chunk, add (n + n / 8 + 40) u. The same again for the denominator. */
static double bound(const struct twin *t, double size, uint64_t n, double largest)
{
    double u = ldexp(1.0, -24), cap = t->g->soft_cap, d = t->g->config.mla.d_latent + t->g->config.mla.d_rope;
    double off = (d + 4) * u * size + 8 * u * cap;
    double relative = 2 * off + 5 * u + ((double)n + (double)n / 8 + 40) * u;
    return 2 * relative * (1 + relative) * largest + 1e-37;
}

static double twin_attend(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                          const float *sink, double *out)
{
    size_t rank = t->g->config.mla.d_latent;
    double *s = must(malloc(n_keys * sizeof *s)), m = sink ? *sink : -INFINITY, size = 0, largest = 0, l = 0;
    uint8_t *seen = must(malloc(n_keys));
    struct coded_query coded = code_query(t, q);
    (void)head; /* all heads read the same keys */
    CHECK(n_keys >= 1 && n_keys <= t->n);
    uint64_t n = n_keys;
    if (mask) /* a selection made elsewhere */
        memcpy(seen, mask, n_keys);
    else
        n = choose(t, n_keys, seen);
    for (uint64_t j = 0; j < n_keys; j++) {
        s[j] = seen[j] ? score(t, &coded, j, &size) : -INFINITY;
        m = s[j] > m ? s[j] : m;
    }
    for (size_t d = 0; d < rank; d++)
        out[d] = 0;
    for (uint64_t j = 0; j < n_keys; j++) {
        double p = seen[j] ? exp(s[j] - m) : 0;
        l += p;
        for (size_t d = 0; d < rank && seen[j]; d++)
            out[d] += p * value(t, j, d, &largest);
    }
    l += sink ? exp(*sink - m) : 0;
    for (size_t d = 0; d < rank; d++)
        out[d] /= l;
    free_query(&coded);
    free(s);
    free(seen);
    return bound(t, size, n, largest);
}

static const struct twin_ops twin_mla = {
    .create = twin_create,
    .release = twin_release,
    .append = twin_append,
    .cut = twin_cut,
    .attend = twin_attend,
};

/* ---- geometry ------------------------------------------------------------------------------------------------- */

/* What the harness must know, from the configuration. */
void mla_finish_geometry(struct geometry *g)
{
    const struct sennit_cache_config *c = &g->config;
    g->n_parts = 0;
    g->parts[g->n_parts++] = (struct part){SENNIT_ROLE_LATENT, 1, c->mla.d_latent};
    g->parts[g->n_parts++] = (struct part){SENNIT_ROLE_ROPE_KEY, 1, c->mla.d_rope};
    g->n_index_heads = c->index.n_heads;
    g->d_index = c->index.d_index;
    if (g->d_index > 0)
        g->parts[g->n_parts++] = (struct part){SENNIT_ROLE_INDEX_KEY, 1, g->d_index};
    g->d_q = c->mla.d_latent + c->mla.d_rope;
    g->d_out = c->mla.d_latent;
}

static void mla_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    static const uint32_t small[] = {1, 2, 3, 8, 15, 16, 17, 32, 33, 64};
    static const uint32_t big[] = {64, 96, 128, 192, 256, 512};
    struct sennit_cache_config *c = &g->config;
    *c = (struct sennit_cache_config){.k_type = type};
    c->mla.d_latent = large ? big[rng_below(rng, SN_ARRAY_LEN(big))] : small[rng_below(rng, SN_ARRAY_LEN(small))];
    c->mla.d_rope = large ? 32u << rng_below(rng, 2) : small[rng_below(rng, 8)];
    if (rng_chance(rng, 30)) {
        c->code.k_bits = 8;
        c->mla.d_latent = GROUP * (1 + rng_below(rng, large ? 8 : 2));
    }
    c->max_tokens = rng_chance(rng, 30) ? 60 + rng_below(rng, 300) : 0;
    g->group = 1 + rng_below(rng, large ? 16 : 6);
    mla_finish_geometry(g);
}

/* One or two heads of the indexer tie often, at 0. */
static void dsa_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large)
{
    struct sennit_cache_config *c = &g->config;
    mla_geometry(rng, g, type, large);
    c->index.n_heads = 1 + rng_below(rng, rng_chance(rng, 50) ? 2 : large ? 8 : 4);
    c->index.d_index = 1 + rng_below(rng, large ? 64 : 20);
    c->index.top_k = 1 + rng_below(rng, rng_chance(rng, 50) ? 12 : 200);
    c->index.type = rng_chance(rng, 50) ? SENNIT_F16 : SENNIT_F32;
    mla_finish_geometry(g);
}

static void mla_tiny(struct rng *rng, struct geometry *g)
{
    g->config.code.k_bits = 0;
    g->config.mla.d_latent = 1 + rng_below(rng, 3);
    g->config.mla.d_rope = 1 + rng_below(rng, 2);
    if (g->config.index.n_heads > 0) {
        g->config.index.n_heads = 1 + rng_below(rng, 2);
        g->config.index.d_index = 1 + rng_below(rng, 3);
        g->config.index.top_k = 200 + rng_below(rng, 400);
    }
    mla_finish_geometry(g);
}

/* As wide as the fixtures: outputs of 32, and 128 elements of k_type per token. */
static void mla_small(struct geometry *g)
{
    g->config.n_kv_heads = g->config.d_k = g->config.d_v = 0;
    g->config.v_type = 0;
    g->config.mla.d_latent = 32;
    g->config.mla.d_rope = 96;
    g->group = 4;
    mla_finish_geometry(g);
}

static void dsa_small(struct geometry *g)
{
    mla_small(g);
    g->config.index.n_heads = 2;
    g->config.index.d_index = 5;
    g->config.index.top_k = 20;
    g->config.index.type = SENNIT_F16;
    mla_finish_geometry(g);
}

/* ---- stored state --------------------------------------------------------------------------------------------- */

static void walk_mla(const struct sennit_cache *cache, uint32_t row,
                     void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    walk_pages(cache, row, &sn_paged_of(cache)->paging, visit, ctx);
}

static size_t type_bytes(sennit_type type)
{
    return type == SENNIT_F32 ? 4 : 2;
}

/* Bytes of one token in a span of that name, and the size of an element. 0: no such span here. */
static size_t part_bytes(const struct sennit_cache_config *c, const char *name, size_t *element)
{
    bool coded = c->code.k_bits != 0;
    *element = type_bytes(c->k_type);
    if (strcmp(name, "latent") == 0) {
        *element = coded ? 1 : *element;
        return c->mla.d_latent * *element;
    }
    if (strcmp(name, "rope_key") == 0)
        return c->mla.d_rope * *element;
    if (strcmp(name, "index_key") == 0) {
        *element = type_bytes(c->index.type);
        return c->index.d_index * *element;
    }
    *element = 2;
    CHECK(strcmp(name, "latent_scale") == 0 || strcmp(name, "latent_bias") == 0);
    return coded ? c->mla.d_latent / GROUP * 2 : 0;
}

/* All parts of each token side by side, in the order latent, scale, bias, rope key, index key. */
static uint8_t *mla_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                              uint64_t n_tokens, size_t *n_bytes)
{
    static const char *const names[] = {"latent", "latent_scale", "latent_bias", "rope_key", "index_key"};
    const struct sennit_cache_config *c = &like->config;
    size_t p = sn_page_tokens(c), at[SN_ARRAY_LEN(names)], total = 0, e;
    uint64_t next[SN_ARRAY_LEN(names)] = {0};
    for (size_t i = 0; i < SN_ARRAY_LEN(names); i++) {
        at[i] = total;
        total += part_bytes(c, names[i], &e);
    }
    *n_bytes = n_tokens * total;
    if (n_tokens == 0)
        return NULL;
    uint8_t *out = must(calloc(n_tokens, total));
    for (size_t i = 0; i < n_spans; i++) {
        const struct sennit_span_view *s = &spans[i];
        size_t part = 0;
        while (strcmp(s->name, names[part]) != 0)
            CHECK(++part < SN_ARRAY_LEN(names));
        size_t bytes = part_bytes(c, s->name, &e), lanes = part == 4 ? (p < 16 ? p : 16) : 1, n = bytes / e;
        const uint8_t *data = s->data;
        CHECK(s->pos == next[part] && s->n_bytes == p * bytes && s->pos + s->n_tokens <= n_tokens);
        next[part] += s->n_tokens;
        for (size_t t = 0; t < s->n_tokens; t++)
            copy_elements(out + (s->pos + t) * total + at[part], data + (t / lanes * n * lanes + t % lanes) * e,
                          lanes, n, e);
    }
    for (size_t i = 0; i < SN_ARRAY_LEN(names); i++)
        CHECK(next[i] == (part_bytes(c, names[i], &e) ? n_tokens : 0));
    return out;
}

/* ---- wrong variants ------------------------------------------------------------------------------------------- */

static struct sn_attend_ops wrong;
static const struct sn_attend_ops *right;

static void forget_rope(const struct sn_attend_job *job)
{
    size_t rank = job->d_v;
    for (size_t i = 0; i < job->n_q; i++)
        memset(job->work.q + i * job->d_k + rank, 0, (job->d_k - rank) * sizeof(float));
    right->prepare(job);
}

static void forget_last_of_latent(const struct sn_attend_job *job)
{
    for (size_t i = 0; i < job->n_q; i++)
        job->work.q[i * job->d_k + job->d_v - 1] = 0;
    right->prepare(job);
}

/* The first key of the row is never seen, unless it is alone. */
static void forget_first_key(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    for (size_t i = 0; i < job->n_q && s->first == 0; i++)
        if (job->work.visible[i * s->n_chunks] > 1)
            job->work.visible[i * s->n_chunks] &= ~UINT64_C(1);
    right->segment(job, s);
}

static uint32_t one_too_few(const struct sn_attend_job *job, uint32_t *list)
{
    uint32_t n = right->select(job, list);
    return n > 1 ? n - 1 : n;
}

/* The scores are the family's own; the last of equal ones wins. */
static uint32_t ties_to_the_higher(const struct sn_attend_job *job, uint32_t *list)
{
    uint32_t n = right->select(job, list), at = 0;
    const float *scores = job->work.select;
    if (n == job->n_keys)
        return n;
    float least = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        least = scores[list[i]] < least ? scores[list[i]] : least;
    uint32_t equal = 0;
    for (uint64_t i = 0; i < job->n_keys; i++)
        equal += scores[i] == least;
    uint32_t above = 0;
    for (uint64_t i = 0; i < job->n_keys; i++)
        above += scores[i] > least;
    uint32_t skip = equal - (n - above);
    for (uint32_t i = 0; i < job->n_keys; i++) {
        if (scores[i] > least || (scores[i] == least && skip == 0))
            list[at++] = i;
        else if (scores[i] == least)
            skip--;
    }
    CHECK(at == n);
    return n;
}

/* The first head of the indexer speaks for all. */
static uint32_t first_index_head(const struct sn_attend_job *job, uint32_t *list)
{
    struct sennit_attend_inputs in = *job->in;
    struct sn_attend_job other = *job;
    size_t n = job->src.cache->config.index.n_heads, token = job->token;
    float *w = must(calloc((token + 1) * n, sizeof *w));
    w[token * n] = in.index_weight[token * n];
    in.index_weight = w;
    other.in = &in;
    uint32_t n_list = right->select(&other, list);
    free(w);
    return n_list;
}

static const char *spoil(unsigned variant, struct sn_family *family, bool indexer)
{
    right = family->attend;
    wrong = *right;
    family->attend = &wrong;
    switch (variant) {
    case 1:
        wrong.prepare = forget_rope;
        return "the rope part is missing";
    case 2:
        wrong.prepare = forget_last_of_latent;
        return "the last element of the latent plays no part in scores";
    case 3:
        wrong.segment = forget_first_key;
        return "the first key is not seen";
    case 4:
        wrong.select = one_too_few;
        return indexer ? "one key too few is selected" : NULL;
    case 5:
        wrong.select = ties_to_the_higher;
        return indexer ? "ties go to the higher position" : NULL;
    case 6:
        wrong.select = first_index_head;
        return indexer ? "one head of the indexer speaks for all" : NULL;
    default:
        return NULL;
    }
}

static const char *spoil_mla(unsigned variant, struct sn_family *family)
{
    return spoil(variant, family, false);
}

static const char *spoil_dsa(unsigned variant, struct sn_family *family)
{
    return spoil(variant, family, true);
}

const struct tested_family tested_mla = {
    .name = "mla",
    .twin = &twin_mla,
    .geometry = mla_geometry,
    .small = mla_small,
    .tiny = mla_tiny,
    .paged = true,
    .oracles = {"mla", NULL},
    .spoil = spoil_mla,
    .walk = walk_mla,
    .canonical = mla_canonical,
};
const struct tested_family tested_mla_dsa = {
    .name = "mla-dsa",
    .twin = &twin_mla,
    .geometry = dsa_geometry,
    .small = dsa_small,
    .tiny = mla_tiny,
    .paged = true,
    .oracles = {"mla-dsa", NULL},
    .spoil = spoil_dsa,
    .walk = walk_mla,
    .canonical = mla_canonical,
};
