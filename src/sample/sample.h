/* From logits to a token: the pipeline of docs/numerics.md "Sampling", one pure function per step.
 *
 *   raw logits -> bias -> penalties -> temperature -> top-k -> top-p -> min-p -> draw
 *
 * Candidates are ordered by (logit descending, id ascending). Log-probabilities come from the raw logits. */
#ifndef SN_SAMPLE_H
#define SN_SAMPLE_H

#include "base/base.h"
#include "kernel/kernel.h"

struct sn_bias {
    int32_t id;
    float bias;
};

struct sn_sampling {
    float temperature; /* 0 = greedy */
    uint32_t top_k;    /* 0 = off */
    float top_p;       /* 0 or 1 = off */
    float min_p;       /* 0 = off */
    float repetition_penalty; /* 1 = off */
    float presence_penalty, frequency_penalty;
    uint64_t seed;
    uint32_t choice;
    const struct sn_bias *biases;
    uint32_t n_biases;
};

/* SENNIT_INVALID with the parameter's name, its value and its range. n_vocab bounds the bias ids. */
sennit_status sn_sampling_check(const struct sn_sampling *s, uint32_t n_vocab, struct sennit_error *err);

/* Working memory of one thread, for one vocabulary. */
struct sn_sampler {
    struct sn_heap *heap;
    uint32_t n_vocab;
    float *logits;       /* [n_vocab] changed copy */
    float *probs;        /* [n_vocab] */
    uint32_t *order;     /* [n_vocab] candidates */
    uint32_t *counts;    /* [n_vocab] occurrences; all zero between calls */
    uint64_t *keys;      /* [2 * n_vocab] radix sort */
};
sennit_status sn_sampler_init(struct sn_sampler *w, struct sn_heap *heap, uint32_t n_vocab, struct sennit_error *err);
void sn_sampler_release(struct sn_sampler *w); /* safe on zeroed */

/* What the penalties look at. */
struct sn_history {
    const int32_t *prompt;
    size_t n_prompt;
    const int32_t *answer;
    size_t n_answer; /* also the row's own step: the draw's counter */
};

/* Chooses a token. raw: f32 [n_vocab], all finite (the caller has checked), not changed. */
int32_t sn_sample(struct sn_sampler *w, const struct sn_kernels *k, struct sn_calls *calls, const float *raw,
                  const struct sn_sampling *s, const struct sn_history *h);

/* log-softmax of raw: value of `id`, (x - max) - log(sum of exp(x - max)). */
struct sn_lse {
    float max, log_sum;
};
struct sn_lse sn_log_sum_exp(const struct sn_kernels *k, struct sn_calls *calls, const float *raw, size_t n);
static inline float sn_logprob(struct sn_lse lse, float x) { return (x - lse.max) - lse.log_sum; }

#endif
