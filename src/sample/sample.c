#include "sample/sample.h"

#include "kernel/math.h"
#include "sample/philox.h"

#include <math.h>

/* ---- parameters ------------------------------------------------------------------------------------------------ */

/* The bounds keep the arithmetic free of inf - inf: with them only an overflow to one infinity can happen, which
 * saturate() takes back. */
enum { PENALTY_LIMIT = 1000000, REPETITION_LIMIT = 1000 };
static const float LEAST_TEMPERATURE = 1e-4f;

static bool within(float x, float limit) { return x >= -limit && x <= limit; }

sennit_status sn_sampling_check(const struct sn_sampling *s, uint32_t n_vocab, struct sennit_error *err)
{
    if (!(s->temperature == 0 || (s->temperature >= LEAST_TEMPERATURE && isfinite(s->temperature))))
        return sn_fail(err, SENNIT_INVALID, "temperature must be 0 (greedy) or a finite number >= %g, not %g",
                       (double)LEAST_TEMPERATURE, (double)s->temperature);
    if (!(s->top_p >= 0 && s->top_p <= 1))
        return sn_fail(err, SENNIT_INVALID, "top_p must be between 0 (off) and 1, not %g", (double)s->top_p);
    if (!(s->min_p >= 0 && s->min_p < 1))
        return sn_fail(err, SENNIT_INVALID, "min_p must be at least 0 (off) and below 1, not %g", (double)s->min_p);
    if (!(s->repetition_penalty >= 1.0f / REPETITION_LIMIT && s->repetition_penalty <= REPETITION_LIMIT))
        return sn_fail(err, SENNIT_INVALID, "repetition_penalty must be between %g and %d (1 = off), not %g",
                       1.0 / REPETITION_LIMIT, REPETITION_LIMIT, (double)s->repetition_penalty);
    if (!within(s->presence_penalty, PENALTY_LIMIT) || !within(s->frequency_penalty, PENALTY_LIMIT))
        return sn_fail(err, SENNIT_INVALID, "presence_penalty and frequency_penalty must be within +-%d",
                       PENALTY_LIMIT);
    for (uint32_t i = 0; i < s->n_biases; i++) {
        const struct sn_bias *b = &s->biases[i];
        if (b->id < 0 || (uint32_t)b->id >= n_vocab)
            return sn_fail(err, SENNIT_INVALID, "logit_bias names token %d; this vocabulary has 0 to %u", b->id,
                           n_vocab - 1);
        if (!within(b->bias, PENALTY_LIMIT))
            return sn_fail(err, SENNIT_INVALID, "logit_bias of token %d must be within +-%d", b->id, PENALTY_LIMIT);
    }
    return SENNIT_OK;
}

/* ---- working memory -------------------------------------------------------------------------------------------- */

sennit_status sn_sampler_init(struct sn_sampler *w, struct sn_heap *heap, uint32_t n_vocab, struct sennit_error *err)
{
    *w = (struct sn_sampler){.heap = heap, .n_vocab = n_vocab};
    w->logits = sn_calloc(heap, SN_USE_SCRATCH, n_vocab, sizeof *w->logits);
    w->probs = sn_calloc(heap, SN_USE_SCRATCH, n_vocab, sizeof *w->probs);
    w->order = sn_calloc(heap, SN_USE_SCRATCH, n_vocab, sizeof *w->order);
    w->counts = sn_calloc(heap, SN_USE_SCRATCH, n_vocab, sizeof *w->counts);
    w->keys = sn_calloc(heap, SN_USE_SCRATCH, 2 * (size_t)n_vocab, sizeof *w->keys);
    if (w->logits && w->probs && w->order && w->counts && w->keys)
        return SENNIT_OK;
    sn_sampler_release(w);
    return sn_fail(err, SENNIT_NOMEM, "no memory for sampling over %u tokens", n_vocab);
}

void sn_sampler_release(struct sn_sampler *w)
{
    if (!w->heap)
        return;
    size_t n = w->n_vocab;
    sn_free(w->heap, SN_USE_SCRATCH, w->logits, n * sizeof *w->logits);
    sn_free(w->heap, SN_USE_SCRATCH, w->probs, n * sizeof *w->probs);
    sn_free(w->heap, SN_USE_SCRATCH, w->order, n * sizeof *w->order);
    sn_free(w->heap, SN_USE_SCRATCH, w->counts, n * sizeof *w->counts);
    sn_free(w->heap, SN_USE_SCRATCH, w->keys, 2 * n * sizeof *w->keys);
    *w = (struct sn_sampler){0};
}

/* ---- steps ----------------------------------------------------------------------------------------------------- */

static void apply_biases(float *x, const struct sn_sampling *s)
{
    for (uint32_t i = 0; i < s->n_biases; i++)
        x[s->biases[i].id] = x[s->biases[i].id] + s->biases[i].bias;
}

/* Each distinct token of prompt and answer once: divided by the penalty when positive, multiplied otherwise. */
static void apply_repetition(struct sn_sampler *w, float *x, float penalty, const struct sn_history *h)
{
    const int32_t *lists[2] = {h->prompt, h->answer};
    const size_t sizes[2] = {h->n_prompt, h->n_answer};
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < sizes[l]; i++) {
            int32_t id = lists[l][i];
            if (w->counts[id]++ == 0)
                x[id] = x[id] > 0 ? x[id] / penalty : x[id] * penalty;
        }
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < sizes[l]; i++)
            w->counts[lists[l][i]] = 0;
}

/* x = (x - count * frequency) - presence for each token of the answer. */
static void apply_presence(struct sn_sampler *w, float *x, const struct sn_sampling *s, const struct sn_history *h)
{
    for (size_t i = 0; i < h->n_answer; i++)
        w->counts[h->answer[i]]++;
    for (size_t i = 0; i < h->n_answer; i++) {
        int32_t id = h->answer[i];
        if (w->counts[id] == 0)
            continue;
        x[id] = (x[id] - (float)w->counts[id] * s->frequency_penalty) - s->presence_penalty;
        w->counts[id] = 0;
    }
}

static float saturate(float x)
{
    x = x > FLT_MAX ? FLT_MAX : x;
    return x < -FLT_MAX ? -FLT_MAX : x;
}

static bool changes_logits(const struct sn_sampling *s)
{
    return s->n_biases || s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
}

/* An order-preserving map from float to unsigned, reversed: ascending keys are descending values. -0 counts as +0. */
static uint32_t descending_key(float x)
{
    uint32_t u;
    x = x == 0 ? 0.0f : x;
    memcpy(&u, &x, sizeof u);
    return u & 0x80000000u ? u : ~(u | 0x80000000u);
}

/* Candidates by (logit descending, id ascending): a stable radix sort of the keys, ids starting in ascending
 * order. */
static void sort_all(struct sn_sampler *w, const float *x)
{
    enum { BITS = 11, BUCKETS = 1 << BITS };
    uint32_t n = w->n_vocab;
    uint64_t *from = w->keys, *to = w->keys + n;
    for (uint32_t i = 0; i < n; i++)
        from[i] = (uint64_t)descending_key(x[i]) << 32 | i;
    for (int shift = 32; shift < 64; shift += BITS) {
        uint32_t start[BUCKETS] = {0}, sum = 0;
        for (uint32_t i = 0; i < n; i++)
            start[from[i] >> shift & (BUCKETS - 1)]++;
        for (int b = 0; b < BUCKETS; b++) {
            uint32_t count = start[b];
            start[b] = sum;
            sum += count;
        }
        for (uint32_t i = 0; i < n; i++)
            to[start[from[i] >> shift & (BUCKETS - 1)]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    for (uint32_t i = 0; i < n; i++)
        w->order[i] = (uint32_t)from[i];
}

static float tree16(const float *p)
{
    float s[16];
    memcpy(s, p, sizeof s);
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; i++)
            s[i] = s[i] + s[i + width];
    return s[0];
}

/* Denominator over the kept candidates: e[id] in id order, lane id mod 16. `kept_only`: other ids are skipped. */
static float denominator(struct sn_sampler *w, const float *e, uint32_t n_kept)
{
    float lanes[16] = {0};
    if (n_kept == w->n_vocab) {
        for (uint32_t i = 0; i < n_kept; i++)
            lanes[i % 16] = lanes[i % 16] + e[i];
        return tree16(lanes);
    }
    for (uint32_t i = 0; i < n_kept; i++)
        w->counts[w->order[i]] = 1;
    for (uint32_t i = 0; i < w->n_vocab; i++)
        if (w->counts[i]) {
            lanes[i % 16] = lanes[i % 16] + e[i];
            w->counts[i] = 0;
        }
    return tree16(lanes);
}

/* Cuts the candidate list by top-p, then min-p; p[i] is the probability of candidate i. Returns how many stay (>=
 * 1). */
static uint32_t cut(const float *p, uint32_t n, float top_p, float min_p)
{
    if (top_p > 0 && top_p < 1) {
        float sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            sum = sum + p[i];
            if (sum >= top_p)
                n = i + 1;
        }
    }
    if (min_p > 0) {
        float floor = min_p * p[0];
        uint32_t kept = 1;
        while (kept < n && p[kept] >= floor)
            kept++;
        n = kept;
    }
    return n;
}

static uint32_t draw(const float *p, uint32_t n, float u)
{
    float total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        total = total + p[i];
    float target = u * total;
    for (uint32_t i = 0; i < n; i++) {
        sum = sum + p[i];
        if (sum > target)
            return i;
    }
    return n - 1; /* u * total rounded up to the sum itself */
}

static int32_t sample_random(struct sn_sampler *w, const struct sn_kernels *k, struct sn_calls *calls, float *x,
                             const struct sn_sampling *s, const struct sn_history *h)
{
    uint32_t n = w->n_vocab;
    for (uint32_t i = 0; i < n; i++)
        x[i] = saturate(x[i] / s->temperature);
    uint32_t kept = s->top_k && s->top_k < n ? s->top_k : n;
    if (kept < n)
        SN_CALL(k, calls, top_k, x, n, kept, w->order);
    else
        sort_all(w, x);
    float max = x[w->order[0]];
    for (uint32_t i = 0; i < n; i++)
        x[i] = x[i] - max;
    SN_CALL(k, calls, exp, x, n, x);
    float total = denominator(w, x, kept);
    for (uint32_t i = 0; i < kept; i++)
        w->probs[i] = x[w->order[i]] / total;
    kept = cut(w->probs, kept, s->top_p, s->min_p);
    return (int32_t)w->order[draw(w->probs, kept, sn_draw(s->seed, s->choice, h->n_answer))];
}

int32_t sn_sample(struct sn_sampler *w, const struct sn_kernels *k, struct sn_calls *calls, const float *raw,
                  const struct sn_sampling *s, const struct sn_history *h)
{
    uint32_t best;
    if (s->temperature == 0 && !changes_logits(s)) {
        SN_CALL(k, calls, top_k, raw, w->n_vocab, 1, &best);
        return (int32_t)best;
    }
    float *x = w->logits;
    memcpy(x, raw, w->n_vocab * sizeof *x);
    apply_biases(x, s);
    if (s->repetition_penalty != 1)
        apply_repetition(w, x, s->repetition_penalty, h);
    if (s->presence_penalty != 0 || s->frequency_penalty != 0)
        apply_presence(w, x, s, h);
    if (s->temperature == 0) {
        SN_CALL(k, calls, top_k, x, w->n_vocab, 1, &best);
        return (int32_t)best;
    }
    return sample_random(w, k, calls, x, s, h);
}

struct sn_lse sn_log_sum_exp(const struct sn_kernels *k, struct sn_calls *calls, const float *raw, size_t n)
{
    struct sn_lse lse;
    lse.max = SN_CALL(k, calls, max, raw, n);
    lse.log_sum = sn_logf(SN_CALL(k, calls, sum_exp, raw, n, lse.max));
    return lse;
}
