/* What comes before the recurrence, for all kinds: the causal depthwise convolution and its tail. And the kind that
 * is nothing else: "short-conv". */
#include "cache/recur.h"

enum { CHANNELS = 256 }; /* of one item */

/* Item 0 .. n_normed - 1: one vector each; then ranges of channels; the gates last. */
static uint32_t n_normed(const struct sn_recurrent *c)
{
    return c->kind->n_normed ? c->kind->n_normed(c) : 0;
}

static size_t normed_channels(const struct sn_recurrent *c)
{
    return (size_t)n_normed(c) * c->base.config.recurrent.d_state;
}

static uint32_t n_ranges(const struct sn_recurrent *c)
{
    return (uint32_t)sn_div_up(c->base.config.recurrent.n_channels - normed_channels(c), CHANNELS);
}

uint32_t sn_recur_n_items(const struct sn_recurrent *c)
{
    return n_normed(c) + n_ranges(c) + (c->kind->gates != NULL);
}

/* Channel `first` of the input at token t of the span; negative: of the tokens before it. */
static const float *input(const struct sn_recur_job *job, ptrdiff_t t, size_t first)
{
    const struct sn_recurrent *c = job->c;
    size_t n_channels = c->base.config.recurrent.n_channels;
    if (t >= 0)
        return job->inputs + (size_t)t * c->n_input + first;
    if (!job->from)
        return c->constants->zero + first;
    ptrdiff_t n_tail = (ptrdiff_t)c->base.config.recurrent.kernel - 1;
    return job->from->data + (size_t)(n_tail + t) * n_channels + first;
}

/* The last kernel - 1 inputs, before the convolution overwrites them. */
static void keep_tail(const struct sn_recur_job *job, size_t first, size_t n)
{
    size_t n_channels = job->c->base.config.recurrent.n_channels, n_tail = job->c->base.config.recurrent.kernel - 1;
    for (size_t i = 0; i < n_tail; i++)
        memcpy(job->to->data + i * n_channels + first,
               input(job, (ptrdiff_t)job->n_tokens + (ptrdiff_t)i - (ptrdiff_t)n_tail, first), n * sizeof(float));
}

/* From the last token to the first, so that the inputs that are still needed are still there. */
static void convolve(const struct sn_recur_job *job, size_t first, size_t n)
{
    const struct sn_recurrent *c = job->c;
    const struct sn_recur_constants *k = c->constants;
    const float *x[SN_RECUR_MAX_KERNEL];
    size_t n_taps = c->base.config.recurrent.kernel, n_channels = c->base.config.recurrent.n_channels;
    struct sn_conv_args args = {.x = x,
                                .w = k->conv + first,
                                .ldw = n_channels,
                                .bias = k->conv_bias ? k->conv_bias + first : NULL,
                                .n_taps = n_taps,
                                .n = n,
                                .silu = c->kind->silu};
    keep_tail(job, first, n);
    bool straight = !c->kind->merge; /* the convolution is the output */
    if (straight && !job->out)
        return;
    for (size_t t = job->n_tokens; t-- > 0;) {
        for (size_t j = 0; j < n_taps; j++)
            x[j] = input(job, (ptrdiff_t)(t + j) - (ptrdiff_t)(n_taps - 1), first);
        args.y = straight ? job->out + t * job->out_stride + first : job->inputs + t * c->n_input + first;
        SN_CALL(c->base.pool->kernels, job->calls, conv, &args);
    }
}

void sn_recur_item(const struct sn_recur_job *job, uint32_t item)
{
    const struct sn_recurrent *c = job->c;
    uint32_t vectors = n_normed(c), d = c->base.config.recurrent.d_state;
    if (item < vectors) {
        convolve(job, (size_t)item * d, d);
        for (size_t t = 0; t < job->n_tokens; t++)
            c->kind->norm(job, item, job->inputs + t * c->n_input + (size_t)item * d);
    } else if (item - vectors < n_ranges(c)) {
        size_t first = normed_channels(c) + (size_t)(item - vectors) * CHANNELS;
        convolve(job, first, sn_min_size(CHANNELS, c->base.config.recurrent.n_channels - first));
    } else {
        c->kind->gates(job);
    }
}

/* ---- short convolution ----------------------------------------------------------------------------------------- */

static sennit_status short_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    const char *set = config->recurrent.n_heads                                        ? "n_heads"
                      : config->recurrent.n_key_heads                                  ? "n_key_heads"
                      : config->recurrent.d_state                                      ? "d_state"
                      : config->recurrent.d_head                                       ? "d_head"
                      : config->recurrent.key_head_mod                                 ? "key_head_mod"
                      : config->recurrent.a_log                                        ? "a_log"
                      : config->recurrent.dt_bias                                      ? "dt_bias"
                      : config->recurrent.d_skip                                       ? "d_skip"
                      : config->recurrent.dt_min != 0 || config->recurrent.dt_max != 0 ? "dt_min or dt_max"
                                                                                       : NULL;
    if (set)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: recurrent.%s means nothing to kind 'short-conv'; leave it 0", set);
    return SENNIT_OK;
}

static uint32_t short_n_merges(const struct sn_recurrent *c)
{
    (void)c;
    return 0;
}

const struct sn_recur_kind sn_recur_conv = {
    .name = "short-conv",
    .check = short_check,
    .n_merges = short_n_merges,
};
