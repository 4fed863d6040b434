/* Gated DeltaNet. Per token and head, in the order of docs/numerics.md: g = -exp(A_log) softplus(a + dt_bias), beta =
 * sigmoid(b); S <- exp(g) S; e = v - S k; S <- S + beta e k^T; o = S q. q and k have length 1, q is scaled. */
#include <math.h>

#include "cache/recur.h"
#include "kernel/math.h"

#define L2_EPS 1e-6f
enum { BLOCKS = 4 }; /* of one merge */

static sennit_status delta_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_recur_check_heads(config, err));
    uint64_t keys = (uint64_t)config->recurrent.n_key_heads * config->recurrent.d_state;
    uint64_t values = (uint64_t)config->recurrent.n_heads * config->recurrent.d_head;
    if (config->recurrent.n_channels != 2 * keys + values)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: recurrent.n_channels is %u; q, k and v of kind 'deltanet' make %llu",
                       config->recurrent.n_channels, (unsigned long long)(2 * keys + values));
    if (config->recurrent.d_skip || config->recurrent.dt_min != 0 || config->recurrent.dt_max != 0)
        return sn_fail(
            err, SENNIT_INVALID,
            "cache config: recurrent.d_skip, dt_min and dt_max mean nothing to kind 'deltanet'; leave them 0");
    return SENNIT_OK;
}

/* q heads, then k heads. */
static uint32_t delta_n_normed(const struct sn_recurrent *c)
{
    return 2 * c->base.config.recurrent.n_key_heads;
}

static void delta_norm(const struct sn_recur_job *job, uint32_t vector, float *x)
{
    const struct sn_kernels *kernels = job->c->base.pool->kernels;
    size_t d = job->c->base.config.recurrent.d_state;
    SN_CALL(kernels, job->calls, l2_norm, x, d, L2_EPS, x);
    if (vector < job->c->base.config.recurrent.n_key_heads)
        SN_CALL(kernels, job->calls, scale, x, d, 1.0f / sqrtf((float)d));
}

/* a becomes exp(g), b becomes beta. */
static void delta_gates(const struct sn_recur_job *job)
{
    const struct sn_recur_constants *k = job->c->constants;
    size_t n_heads = job->c->n_heads, n_channels = job->c->base.config.recurrent.n_channels;
    for (size_t t = 0; t < job->n_tokens; t++) {
        float *decay = job->inputs + t * job->c->n_input + n_channels, *beta = decay + n_heads;
        for (size_t h = 0; h < n_heads; h++) {
            decay[h] = sn_expf(-k->rate[h] * sn_recur_softplus(decay[h] + k->dt_bias[h]));
            beta[h] = 1.0f / (1.0f + sn_expf(-beta[h]));
        }
    }
}

static uint32_t merges_of_head(const struct sn_recurrent *c)
{
    return (uint32_t)sn_div_up(c->n_blocks, BLOCKS);
}

static uint32_t delta_n_merges(const struct sn_recurrent *c)
{
    return c->n_heads * merges_of_head(c);
}

static size_t key_head(const struct sennit_cache_config *config, size_t head)
{
    size_t n = config->recurrent.n_key_heads;
    return config->recurrent.key_head_mod ? head % n : head / (config->recurrent.n_heads / n);
}

/* One position of one block. Lanes beyond the head's width run along as values of +0. */
static void delta_block(const struct sn_recur_job *job, struct sn_delta_args *args, const float *v, size_t n,
                        float *out)
{
    float values[SN_RECUR_LANES] = {0}, result[SN_RECUR_LANES];
    memcpy(values, v, n * sizeof *values);
    args->v = values;
    args->out = result;
    SN_CALL(job->c->base.pool->kernels, job->calls, delta_step, args);
    if (out)
        memcpy(out, result, n * sizeof *out);
}

/* One head, up to 64 of its value lanes: their states and the token's q and k stay near. */
static void delta_merge(const struct sn_recur_job *job, uint32_t merge)
{
    const struct sn_recurrent *c = job->c;
    const struct sennit_cache_config *config = &c->base.config;
    size_t head = merge / merges_of_head(c), first = merge % merges_of_head(c) * BLOCKS,
           d = config->recurrent.d_state;
    size_t n_blocks = sn_min_size(BLOCKS, c->n_blocks - first), block = d * SN_RECUR_LANES;
    size_t q = key_head(config, head) * d, k = q + (size_t)config->recurrent.n_key_heads * d;
    size_t lane = head * config->recurrent.d_head + first * SN_RECUR_LANES;
    size_t v = 2 * (size_t)config->recurrent.n_key_heads * d + lane, gate = config->recurrent.n_channels + head;
    size_t left = config->recurrent.d_head - first * SN_RECUR_LANES, at = sn_recur_block_at(c, head, first);
    const float *from = sn_recur_before(job, at, n_blocks * block);
    float *to = job->to->data + at;
    for (size_t t = 0; t < job->n_tokens; t++, from = to) {
        const float *x = job->inputs + t * c->n_input;
        float *out = job->out ? job->out + t * job->out_stride + lane : NULL;
        struct sn_delta_args args = {
            .d_state = d, .k = x + k, .q = x + q, .decay = x[gate], .beta = x[gate + c->n_heads]};
        for (size_t b = 0; b < n_blocks; b++) {
            size_t done = b * SN_RECUR_LANES;
            args.from = from + b * block;
            args.to = to + b * block;
            delta_block(job, &args, x + v + done, sn_min_size(SN_RECUR_LANES, left - done), out ? out + done : NULL);
        }
    }
}

const struct sn_recur_kind sn_recur_deltanet = {
    .name = "deltanet",
    .silu = true,
    .n_gates = 2,
    .check = delta_check,
    .n_normed = delta_n_normed,
    .norm = delta_norm,
    .gates = delta_gates,
    .n_merges = delta_n_merges,
    .merge = delta_merge,
};
