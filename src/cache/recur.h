/* Family "recurrent": what its files share. A row's state is one counted object: the last kernel - 1 inputs of the
 * convolution, and one matrix per head. A step reads the old object and writes a new one, so giving the step up, or
 * keeping the old one for a round, costs nothing. One position after the other, always: the numbers depend on neither
 * span, batch nor threads.
 *
 * A step's work on one span, in two phases:
 *   items   convolution, activation and norms, in place in the step's inputs, by ranges of channels; the new tail;
 *           gates
 *   merges  the recurrence, by (head, some value lanes)
 * A round's rollback runs the same over the inputs that the round recorded. */
#ifndef SN_CACHE_RECUR_H
#define SN_CACHE_RECUR_H

#include "cache/family.h"

enum { SN_RECUR_LANES = 16, SN_RECUR_MAX_KERNEL = 64 };

/* Constants of a layer, shared by all caches made like each other: one block of n_bytes. */
struct sn_recur_constants {
    uint32_t n_refs;
    size_t n_bytes;
    float *conv;       /* [kernel][n_channels] */
    float *conv_bias;  /* [n_channels] or NULL */
    float *rate;       /* [n_heads] exp(a_log) */
    float *dt_bias;    /* [n_heads] */
    float *skip;       /* [n_heads] or NULL */
    float *zero;       /* [n_channels] of +0: taps before position 0 */
    _Alignas(64) float data[];
};

/* Reference-counted; changed by the step or the rollback that fills it, before anybody else has it. */
struct sn_recur_state {
    _Alignas(64) uint32_t n_refs;
    /* The tail [kernel - 1][n_channels], oldest first; from matrix_at on [head][block][d_state][16]. */
    _Alignas(64) float data[];
};

struct sn_recur_round {
    struct sn_recur_state *old; /* at the round's begin; NULL of a row without tokens */
    float *inputs;              /* [round_depth][n_input] */
};

struct sn_recur_span {
    struct sn_recur_state *next; /* to be filled; between steps: the object that the last step replaced, or NULL */
    size_t first;                /* row of inputs */
};

struct sn_recurrent {
    struct sennit_cache base; /* first */
    const struct sn_recur_kind *kind;
    struct sn_recur_constants *constants;
    uint32_t n_heads; /* as the step counts them: 1 for short-conv */
    size_t n_blocks;  /* of 16 lanes per head */
    size_t n_input;   /* floats of a token's inputs: channels, then the kind's gates */
    size_t tail_floats, matrix_at, matrix_floats;
    uint32_t n_items, n_merges; /* of one span */

    struct sn_recur_span *spans; /* [cap_spans] */
    uint32_t cap_spans;
    float *inputs; /* [cap_inputs] floats: [tokens of the step][n_input] */
    size_t cap_inputs;
    struct sn_recur_round *rounds; /* [n_rounds], while a round is open */
    uint32_t n_rounds;
};

static inline const struct sn_recurrent *sn_recurrent_of(const struct sennit_cache *cache)
{
    return (const struct sn_recurrent *)cache;
}

/* One span of a step, or what a rollback runs again. */
struct sn_recur_job {
    const struct sn_recurrent *c;
    const struct sn_recur_state *from; /* NULL: before position 0 */
    struct sn_recur_state *to;         /* another object than from */
    float *inputs;                     /* [n_tokens][n_input] */
    size_t n_tokens;
    float *out; /* of the span's first token, or NULL: the state alone is wanted */
    size_t out_stride;
    struct sn_calls *calls;
};

/* The mathematics of a kind: recur_deltanet.c, recur_mamba2.c, recur_conv.c. */
struct sn_recur_kind {
    const char *name;
    bool silu;          /* after the convolution */
    uint32_t n_gates;   /* numbers per token and head besides the channels */
    sennit_status (*check)(const struct sennit_cache_config *config, struct sennit_error *err);
    /* Channels 0 .. n_normed(c) * d_state - 1 are vectors of d_state that `norm` finishes. NULL, both: none. */
    uint32_t (*n_normed)(const struct sn_recurrent *c);
    void (*norm)(const struct sn_recur_job *job, uint32_t vector, float *x);
    void (*gates)(const struct sn_recur_job *job); /* in place, all tokens; NULL where n_gates is 0 */
    uint32_t (*n_merges)(const struct sn_recurrent *c);
    void (*merge)(const struct sn_recur_job *job, uint32_t merge); /* NULL where n_merges is 0 */
};
extern const struct sn_recur_kind sn_recur_deltanet, sn_recur_mamba2, sn_recur_conv;

/* recur_conv.c: items of one span. */
uint32_t sn_recur_n_items(const struct sn_recurrent *c);
void sn_recur_item(const struct sn_recur_job *job, uint32_t item);

/* log(1 + exp(x)), x itself above 20. */
float sn_recur_softplus(float x);
/* Dimensions of a head, groups that divide, constants that must be there. */
sennit_status sn_recur_check_heads(const struct sennit_cache_config *config, struct sennit_error *err);
/* The first of the state's floats for one block of one head. */
size_t sn_recur_block_at(const struct sn_recurrent *c, size_t head, size_t block);
/* What the block's state is before the job's first token: from's, or to's own after it was set to 0. */
const float *sn_recur_before(const struct sn_recur_job *job, size_t at, size_t n_floats);

#endif
