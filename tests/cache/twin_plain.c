/* softmax(cap(q K^T * scale) with sink) V over a list of tokens, in double, as they are stored. */
#include <math.h>
#include <stdlib.h>

#include "cache/padded.h"
#include "cache/plain.h"
#include "cache/twin.h"

struct twin {
    const struct geometry *g;
    uint64_t n, cap;
    double *k, *v; /* [n][heads * d], after the storage type */
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
    free(t->k);
    free(t->v);
    free(t);
}

static void twin_append(struct twin *t, uint64_t token)
{
    const struct sennit_cache_config *c = &t->g->config;
    size_t nk = (size_t)c->n_kv_heads * c->d_k, nv = (size_t)c->n_kv_heads * c->d_v;
    if (t->n == t->cap) {
        t->cap = t->cap * 2 + 16;
        t->k = must(realloc(t->k, t->cap * nk * sizeof *t->k));
        t->v = must(realloc(t->v, t->cap * nv * sizeof *t->v));
    }
    float *x = must(malloc((nk + nv) * sizeof *x));
    token_vector(token, SENNIT_ROLE_KEY, nk, x);
    token_vector(token, SENNIT_ROLE_VALUE, nv, x + nk);
    for (size_t i = 0; i < nk; i++)
        t->k[t->n * nk + i] = stored_as(x[i], c->k_type);
    for (size_t i = 0; i < nv; i++)
        t->v[t->n * nv + i] = stored_as(x[nk + i], c->v_type);
    free(x);
    t->n++;
}

static void twin_cut(struct twin *t, uint64_t n_tokens)
{
    CHECK(n_tokens <= t->n);
    t->n = n_tokens;
}

/* One score; *size gathers the sum of |q * scale * k|, which bounds its rounding error. */
static double twin_score(const struct twin *t, const float *q, uint32_t kv, uint64_t key, double *size)
{
    const struct sennit_cache_config *c = &t->g->config;
    const double *k = t->k + (key * c->n_kv_heads + kv) * c->d_k;
    double s = 0, sum = 0, scale = t->g->scale, cap = t->g->soft_cap;
    for (size_t d = 0; d < c->d_k; d++) {
        double x = q[d] * scale * k[d];
        s += x;
        sum += fabs(x);
    }
    *size = sum > *size ? sum : *size;
    return cap != 0 ? cap * tanh(s / cap) : s;
}

/* The bound, with u = 2^-24: a score is a chain of d_k fused steps on a query that was rounded once
 * (error at most (d_k + 2) u sum|qk|; a soft cap adds a few u of the cap, and never steepens). A
 * weight p = exp(s - m) is off by twice that, relatively, and by 4u for exp. Sums over n keys, with
 * a rescale per chunk and segment, add (n + n / 16 + 40) u. The same again for the denominator. */
static double twin_bound(const struct twin *t, double size, uint64_t n, double largest)
{
    double u = ldexp(1.0, -24), cap = t->g->soft_cap;
    double score = ((double)t->g->config.d_k + 2) * u * size + 8 * u * cap;
    double relative = 2 * score + 4 * u + ((double)n + (double)n / 16 + 40) * u;
    return 2 * relative * (1 + relative) * largest + 1e-37;
}

static double twin_attend(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                          const float *sink, double *out)
{
    const struct sennit_cache_config *c = &t->g->config;
    uint32_t kv = head / t->g->group;
    double *s = must(malloc((n_keys + 1) * sizeof *s)), m = sink ? *sink : -INFINITY, size = 0, largest = 0, l = 0;
    CHECK(n_keys <= t->n);
    for (uint64_t j = 0; j < n_keys; j++) {
        s[j] = -INFINITY;
        if (!mask || mask[j])
            s[j] = twin_score(t, q, kv, j, &size);
        m = s[j] > m ? s[j] : m;
    }
    for (size_t d = 0; d < c->d_v; d++)
        out[d] = 0;
    for (uint64_t j = 0; j < n_keys; j++) {
        if (s[j] == -INFINITY)
            continue;
        double p = exp(s[j] - m);
        const double *v = t->v + (j * c->n_kv_heads + kv) * c->d_v;
        l += p;
        for (size_t d = 0; d < c->d_v; d++) {
            out[d] += p * v[d];
            largest = fabs(v[d]) > largest ? fabs(v[d]) : largest;
        }
    }
    l += sink ? exp(*sink - m) : 0;
    for (size_t d = 0; d < c->d_v; d++)
        out[d] = l > 0 ? out[d] / l : 0;
    free(s);
    return twin_bound(t, size, n_keys, largest);
}

const struct twin_ops twin_plain = {
    .create = twin_create,
    .release = twin_release,
    .append = twin_append,
    .cut = twin_cut,
    .attend = twin_attend,
};

/* ---- the families that must agree with it --------------------------------------------------------------------- */

static void walk_plain(const struct sennit_cache *cache, uint32_t row,
                       void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    walk_pages(cache, row, &sn_paged_of(cache)->paging, visit, ctx);
}

static void walk_array(const struct sennit_cache *cache, uint32_t row,
                       void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    if (cache->rows[row].store)
        visit(ctx, cache->rows[row].store, (size_t)cache->ops->row_bytes(cache, &cache->rows[row]));
}

const struct tested_family tested_plain = {
    .name = "plain",
    .twin = &twin_plain,
    .geometry = kv_geometry,
    .paged = true,
    .spoil = kv_spoil,
    .oracles = {"plain", "naive"},
    .walk = walk_plain,
    .canonical = kv_canonical,
};
const struct tested_family tested_naive = {
    .name = "naive",
    .twin = &twin_plain,
    .geometry = kv_geometry,
    .spoil = kv_spoil,
    .oracles = {"naive", "plain"},
    .other_percent = 88,
    .slow = true,
    .walk = walk_array,
    .canonical = kv_canonical,
};

/* ---- padded --------------------------------------------------------------------------------------------------- */

/* A rectangle that nobody else holds in its rows' parts, one address each; else as one object. */
static void walk_rectangle(const struct sennit_cache *cache, uint32_t row,
                           void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx)
{
    const struct sn_slot *head = sn_padded_head(cache);
    if (head && head->n_refs == cache->n_rows)
        visit(ctx, (const uint8_t *)head + row, (size_t)cache->ops->row_bytes(cache, &cache->rows[row]));
    else if (head && row == 0)
        visit(ctx, head, head->n_bytes);
}

static void right_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    sn_family_padded.attend->segment(job, s);
}

/* One more key of zeros in the first segment: its score is 0, its value nothing. */
static void padding_seen(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    right_segment(job, s);
    for (size_t i = 0; i < job->n_q && s->first == 0; i++) {
        float m = s->m[i] > 0 ? s->m[i] : 0, c = expf(s->m[i] - m);
        s->l[i] = s->l[i] * c + expf(-m);
        for (size_t d = 0; d < job->d_v; d++)
            s->o[i * job->d_v + d] *= c;
        s->m[i] = m;
    }
}

/* Every query's last key hidden, but for the row's first token. */
static void early_edge(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    for (size_t i = 0; i < job->n_q && !job->donor; i++) {
        uint64_t pos = job->pos + i / job->group, at = pos - s->first;
        if (pos > 0 && pos >= s->first && at / SN_CHUNK_KEYS < s->n_chunks)
            job->work.visible[i * s->n_chunks + at / SN_CHUNK_KEYS] &= ~(UINT64_C(1) << at % SN_CHUNK_KEYS);
    }
    right_segment(job, s);
}

static void next_head(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    struct sn_attend_job other = *job;
    other.kv_head = (job->kv_head + 1) % job->shape->n_kv_heads;
    right_segment(&other, s);
}

/* From the second segment on, each key and value is read from the column before its own. */
static void column_before(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    struct sn_attend_segment other = *s;
    other.first -= s->first > 0;
    right_segment(job, &other);
}

static const char *padded_spoil(unsigned variant, struct sn_family *family)
{
    static const struct {
        void (*segment)(const struct sn_attend_job *job, const struct sn_attend_segment *s);
        const char *what;
    } wrong[] = {{padding_seen, "a column of padding is seen"},
                 {early_edge, "a query does not see its own column"},
                 {next_head, "keys and values of the next head"},
                 {column_before, "one column off"}};
    static struct sn_attend_ops ops;
    if (variant > SN_ARRAY_LEN(wrong))
        return NULL;
    ops = *family->attend;
    ops.segment = wrong[variant - 1].segment;
    family->attend = &ops;
    return wrong[variant - 1].what;
}

const struct tested_family tested_padded = {
    .name = "padded",
    .twin = &twin_plain,
    .geometry = kv_geometry,
    .paged = true,
    .rectangle = true,
    .spoil = padded_spoil,
    .oracles = {"padded", "plain"},
    .walk = walk_rectangle,
    .canonical = kv_canonical,
};
