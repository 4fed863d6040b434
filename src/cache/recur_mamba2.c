/* Mamba-2. Per token and head: dt = softplus(dt + dt_bias), clamped; h <- exp(-exp(A_log) dt) h + dt x B^T;
 * y = h C + D x. */
#include <math.h>

#include "cache/recur.h"
#include "kernel/math.h"

enum { BLOCKS = 4, LANES = BLOCKS * SN_RECUR_LANES }; /* of one merge: chains that run side by side */

static sennit_status mamba_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_recur_check_heads(config, err));
    uint64_t groups = (uint64_t)config->recurrent.n_key_heads * config->recurrent.d_state;
    uint64_t x = (uint64_t)config->recurrent.n_heads * config->recurrent.d_head;
    if (config->recurrent.n_channels != x + 2 * groups)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: recurrent.n_channels is %u; x, B and C of kind 'mamba2' make %llu",
                       config->recurrent.n_channels, (unsigned long long)(x + 2 * groups));
    if (config->recurrent.key_head_mod)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: recurrent.key_head_mod means nothing to kind 'mamba2'; leave it 0");
    float lo = config->recurrent.dt_min, hi = config->recurrent.dt_max;
    if (!(lo >= 0 && hi >= lo))
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: recurrent.dt_min %g and dt_max %g are no range of non-negative numbers",
                       (double)lo, (double)hi);
    return SENNIT_OK;
}

/* dt becomes the step's size; beside it what is left of the state. */
static void mamba_gates(const struct sn_recur_job *job)
{
    const struct sn_recur_constants *k = job->c->constants;
    const struct sennit_cache_config *config = &job->c->base.config;
    size_t n_heads = job->c->n_heads;
    float lo = config->recurrent.dt_min, hi = config->recurrent.dt_max;
    bool clamp = lo != 0 || hi != 0;
    for (size_t t = 0; t < job->n_tokens; t++) {
        float *dt = job->inputs + t * job->c->n_input + config->recurrent.n_channels, *decay = dt + n_heads;
        for (size_t h = 0; h < n_heads; h++) {
            float x = sn_recur_softplus(dt[h] + k->dt_bias[h]);
            if (clamp) {
                x = x < lo ? lo : x; /* keeps NaN */
                x = x > hi ? hi : x;
            }
            dt[h] = x;
            decay[h] = sn_expf(-k->rate[h] * x);
        }
    }
}

static uint32_t merges_of_head(const struct sn_recurrent *c)
{
    return (uint32_t)sn_div_up(c->n_blocks, BLOCKS);
}

static uint32_t mamba_n_merges(const struct sn_recurrent *c)
{
    return c->n_heads * merges_of_head(c);
}

/* One head, up to 64 lanes of its width. */
static void mamba_merge(const struct sn_recur_job *job, uint32_t merge)
{
    const struct sn_recurrent *c = job->c;
    const struct sennit_cache_config *config = &c->base.config;
    size_t head = merge / merges_of_head(c), block = merge % merges_of_head(c) * BLOCKS,
           d = config->recurrent.d_state;
    size_t n_blocks = sn_min_size(BLOCKS, c->n_blocks - block), lane = block * SN_RECUR_LANES;
    size_t n = sn_min_size(LANES, config->recurrent.d_head - lane), at = sn_recur_block_at(c, head, block);
    size_t group = head / (config->recurrent.n_heads / config->recurrent.n_key_heads);
    size_t x = head * config->recurrent.d_head + lane, gate = config->recurrent.n_channels + head;
    size_t b = (size_t)config->recurrent.n_heads * config->recurrent.d_head + group * d;
    float values[LANES] = {0}, out[LANES];
    struct sn_ssm_args args = {.from = sn_recur_before(job, at, n_blocks * d * SN_RECUR_LANES),
                               .to = job->to->data + at,
                               .n_blocks = n_blocks,
                               .d_state = d,
                               .x = values,
                               .skip = c->constants->skip ? c->constants->skip + head : NULL,
                               .out = out};
    for (size_t t = 0; t < job->n_tokens; t++) {
        const float *in = job->inputs + t * c->n_input;
        memcpy(values, in + x, n * sizeof *values);
        args.b = in + b;
        args.c = args.b + (size_t)config->recurrent.n_key_heads * d;
        args.dt = in[gate];
        args.decay = in[gate + c->n_heads];
        SN_CALL(c->base.pool->kernels, job->calls, ssm_step, &args);
        args.from = args.to;
        if (job->out)
            memcpy(job->out + t * job->out_stride + head * config->recurrent.d_head + lane, out, n * sizeof *out);
    }
}

const struct sn_recur_kind sn_recur_mamba2 = {
    .name = "mamba2",
    .silu = true,
    .n_gates = 2,
    .check = mamba_check,
    .gates = mamba_gates,
    .n_merges = mamba_n_merges,
    .merge = mamba_merge,
};
