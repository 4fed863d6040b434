/* Family "recurrent": the life of its rows. recur.h says what a state is and how a step computes it.
 *
 *   storage  one state per row that has tokens
 *   reserve  with rounds: the state before the round, and the inputs of round_depth tokens; per snapshot: one state
 *   scratch  the inputs of a step, and one state per row of it. The object that a step replaces is the one that the
 *            next step fills: fresh memory costs more than the arithmetic */
#include "cache/recur.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <xxhash.h>

#include "kernel/math.h"

enum { MAX_DIM = 65536, MAX_CHANNELS = 1 << 24 };

static struct sn_recurrent *mutable_recurrent(struct sennit_cache *cache)
{
    return (struct sn_recurrent *)cache;
}

/* ---- what the kinds share -------------------------------------------------------------------------------------- */

float sn_recur_softplus(float x)
{
    return x > 20.0f ? x : sn_log1pf(sn_expf(x));
}

size_t sn_recur_block_at(const struct sn_recurrent *c, size_t head, size_t block)
{
    return c->matrix_at + (head * c->n_blocks + block) * c->base.config.recurrent.d_state * SN_RECUR_LANES;
}

const float *sn_recur_before(const struct sn_recur_job *job, size_t at, size_t n_floats)
{
    if (job->from)
        return job->from->data + at;
    memset(job->to->data + at, 0, n_floats * sizeof(float));
    return job->to->data + at;
}

static sennit_status check_dim(const char *field, uint32_t value, uint32_t least, uint32_t most,
                               struct sennit_error *err)
{
    if (value >= least && value <= most)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID, "cache config: recurrent.%s is %u; it must be %u to %u", field, value, least,
                   most);
}

sennit_status sn_recur_check_heads(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(check_dim("n_heads", config->recurrent.n_heads, 1, MAX_DIM, err));
    SN_TRY(check_dim("n_key_heads", config->recurrent.n_key_heads, 1, MAX_DIM, err));
    SN_TRY(check_dim("d_state", config->recurrent.d_state, 1, MAX_DIM, err));
    SN_TRY(check_dim("d_head", config->recurrent.d_head, 1, MAX_DIM, err));
    if (config->recurrent.n_heads % config->recurrent.n_key_heads != 0)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: recurrent.n_heads %u is no multiple of recurrent.n_key_heads %u",
                       config->recurrent.n_heads, config->recurrent.n_key_heads);
    if (!config->recurrent.a_log || !config->recurrent.dt_bias)
        return sn_fail(err, SENNIT_INVALID, "cache config: recurrent.a_log or recurrent.dt_bias is NULL");
    return SENNIT_OK;
}

/* ---- one cache ------------------------------------------------------------------------------------------------- */

static const struct sn_recur_kind *find_kind(const char *name)
{
    static const struct sn_recur_kind *const kinds[] = {&sn_recur_deltanet, &sn_recur_mamba2, &sn_recur_conv};
    for (size_t i = 0; name && i < SN_ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

enum { TAKES = SN_CONFIG_RECURRENT };

static sennit_status recurrent_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    SN_TRY(sn_config_only(config, TAKES, err));
    const struct sn_recur_kind *kind = find_kind(config->recurrent.kind);
    if (!kind)
        return sn_fail(err, SENNIT_INVALID,
                       "cache config: recurrent.kind '%s' is unknown: use deltanet, mamba2 or short-conv",
                       config->recurrent.kind ? config->recurrent.kind : "(null)");
    SN_TRY(check_dim("n_channels", config->recurrent.n_channels, 1, MAX_CHANNELS, err));
    SN_TRY(check_dim("kernel", config->recurrent.kernel, 2, SN_RECUR_MAX_KERNEL, err));
    if (!config->recurrent.conv_weight)
        return sn_fail(err, SENNIT_INVALID, "cache config: recurrent.conv_weight is NULL");
    return kind->check(config, err);
}

static uint64_t hash_floats(const float *x, size_t n, uint64_t h)
{
    return x ? XXH3_64bits_withSeed(x, n * sizeof *x, h) : XXH3_64bits_withSeed("none", 4, h);
}

/* A state goes on only under the constants it was made with, so they are part of what it is. */
static uint64_t hash_constants(const struct sennit_cache_config *config)
{
    size_t n_channels = config->recurrent.n_channels, n_heads = config->recurrent.n_heads;
    float clamp[2] = {config->recurrent.dt_min, config->recurrent.dt_max};
    uint64_t h = hash_floats(config->recurrent.conv_weight, n_channels * config->recurrent.kernel, 0);
    h = hash_floats(config->recurrent.conv_bias, n_channels, h);
    h = hash_floats(config->recurrent.a_log, n_heads, h);
    h = hash_floats(config->recurrent.dt_bias, n_heads, h);
    h = hash_floats(config->recurrent.d_skip, n_heads, h);
    return hash_floats(clamp, 2, h);
}

static void recurrent_signature(const struct sennit_cache_config *config, char *out, size_t n_bytes)
{
    int n = snprintf(out, n_bytes, "recurrent %s conv %ux%u", config->recurrent.kind, config->recurrent.n_channels,
                     config->recurrent.kernel);
    if (config->recurrent.n_heads && n > 0 && (size_t)n < n_bytes)
        n += snprintf(out + n, n_bytes - (size_t)n, " h %u/%u%s %ux%u", config->recurrent.n_heads,
                      config->recurrent.n_key_heads, config->recurrent.key_head_mod ? "m" : "",
                      config->recurrent.d_state, config->recurrent.d_head);
    if (n > 0 && (size_t)n < n_bytes)
        snprintf(out + n, n_bytes - (size_t)n, " %016llx", (unsigned long long)hash_constants(config));
}

/* The next n floats of the block at *at, in whole cache lines. */
static float *take(float *data, size_t *at, size_t n)
{
    float *p = data + *at;
    *at += sn_round_up(n, 16);
    return p;
}

static float *take_copy(float *data, size_t *at, const float *from, size_t n)
{
    if (!from)
        return NULL;
    float *p = take(data, at, n);
    memcpy(p, from, n * sizeof *p);
    return p;
}

static sennit_status make_constants(struct sn_recurrent *c, struct sennit_error *err)
{
    const struct sennit_cache_config *config = &c->base.config;
    size_t n_channels = config->recurrent.n_channels, n_taps = config->recurrent.kernel;
    size_t n_heads = config->recurrent.n_heads;
    size_t floats =
        sn_round_up(n_channels * n_taps, 16) + 2 * sn_round_up(n_channels, 16) + 3 * sn_round_up(n_heads, 16);
    size_t n_bytes = sizeof(struct sn_recur_constants) + floats * sizeof(float), at = 0;
    struct sn_recur_constants *k = sn_calloc(c->base.pool->heap, SN_USE_MISC, 1, n_bytes);
    if (!k)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the constants of a recurrent layer");
    k->n_refs = 1;
    k->n_bytes = n_bytes;
    k->conv = take(k->data, &at, n_channels * n_taps);
    for (size_t i = 0; i < n_channels; i++)
        for (size_t j = 0; j < n_taps; j++)
            k->conv[j * n_channels + i] = config->recurrent.conv_weight[i * n_taps + j];
    k->conv_bias = take_copy(k->data, &at, config->recurrent.conv_bias, n_channels);
    k->rate = take_copy(k->data, &at, config->recurrent.a_log, n_heads);
    k->dt_bias = take_copy(k->data, &at, config->recurrent.dt_bias, n_heads);
    k->skip = take_copy(k->data, &at, config->recurrent.d_skip, n_heads);
    k->zero = take(k->data, &at, n_channels);
    for (size_t h = 0; h < n_heads; h++)
        k->rate[h] = sn_expf(k->rate[h]);
    c->constants = k;
    return SENNIT_OK;
}

/* The caller's arrays are not looked at again. */
static void forget_arrays(struct sennit_cache_config *config)
{
    config->recurrent.conv_weight = config->recurrent.conv_bias = NULL;
    config->recurrent.a_log = config->recurrent.dt_bias = config->recurrent.d_skip = NULL;
}

static void recurrent_inherit(struct sennit_cache *cache, const struct sennit_cache *like)
{
    struct sn_recurrent *c = mutable_recurrent(cache);
    c->constants = sn_recurrent_of(like)->constants;
    c->constants->n_refs++;
}

static sennit_status recurrent_init(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_recurrent *c = mutable_recurrent(cache);
    struct sennit_cache_config *config = &cache->config;
    c->kind = find_kind(config->recurrent.kind);
    config->recurrent.kind = c->kind->name;
    if (!c->constants) {
        struct sn_fpenv env = sn_fp_enter();
        sennit_status status = make_constants(c, err);
        sn_fp_leave(env);
        if (status != SENNIT_OK)
            return status;
    }
    forget_arrays(config);
    size_t n_heads = config->recurrent.n_heads;
    c->n_heads = n_heads ? (uint32_t)n_heads : 1;
    c->n_blocks = sn_div_up(config->recurrent.d_head, SN_RECUR_LANES);
    c->n_input = config->recurrent.n_channels + c->kind->n_gates * n_heads;
    c->tail_floats = (size_t)(config->recurrent.kernel - 1) * config->recurrent.n_channels;
    c->matrix_at = sn_round_up(c->tail_floats, 16);
    c->matrix_floats = n_heads * c->n_blocks * config->recurrent.d_state * SN_RECUR_LANES;
    c->n_items = sn_recur_n_items(c);
    c->n_merges = c->kind->n_merges(c);
    cache->shape.n_kv_heads = c->n_heads;
    cache->shape.d_v = n_heads ? config->recurrent.d_head : config->recurrent.n_channels;
    return SENNIT_OK;
}

/* ---- states and rounds ----------------------------------------------------------------------------------------- */

static size_t state_bytes(const struct sn_recurrent *c)
{
    return sizeof(struct sn_recur_state) + (c->matrix_at + c->matrix_floats) * sizeof(float);
}

static size_t record_bytes(const struct sn_recurrent *c)
{
    return c->base.config.round_depth * c->n_input * sizeof(float);
}

static void state_drop(const struct sn_recurrent *c, struct sn_recur_state *state)
{
    if (state && --state->n_refs == 0)
        sn_cache_pool_release(c->base.pool, state, state_bytes(c));
}

static void rounds_release(struct sn_recurrent *c)
{
    for (uint32_t i = 0; i < c->n_rounds; i++) {
        state_drop(c, c->rounds[i].old);
        sn_cache_pool_release(c->base.pool, c->rounds[i].inputs, record_bytes(c));
    }
    sn_free(c->base.pool->heap, SN_USE_MISC, c->rounds, c->n_rounds * sizeof *c->rounds);
    c->rounds = NULL;
    c->n_rounds = 0;
}

static void drop_next(struct sn_recurrent *c, uint32_t first)
{
    for (uint32_t i = first; i < c->cap_spans; i++) {
        sn_cache_pool_drop_next(c->base.pool, c->spans[i].next, state_bytes(c));
        c->spans[i].next = NULL;
    }
}

static void recurrent_release(struct sennit_cache *cache)
{
    struct sn_recurrent *c = mutable_recurrent(cache);
    struct sn_heap *heap = cache->pool->heap;
    rounds_release(c);
    drop_next(c, 0);
    sn_free(heap, SN_USE_MISC, c->spans, c->cap_spans * sizeof *c->spans);
    sn_free(heap, SN_USE_SCRATCH, c->inputs, c->cap_inputs * sizeof *c->inputs);
    if (c->constants && --c->constants->n_refs == 0)
        sn_free(heap, SN_USE_MISC, c->constants, c->constants->n_bytes);
}

static sennit_status recurrent_round_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_recurrent *c = mutable_recurrent(cache);
    if (cache->n_rows == 0)
        return SENNIT_OK;
    c->rounds = sn_calloc(cache->pool->heap, SN_USE_MISC, cache->n_rows, sizeof *c->rounds);
    if (!c->rounds)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a round of %u rows", cache->n_rows);
    c->n_rounds = cache->n_rows;
    for (uint32_t i = 0; i < cache->n_rows; i++) {
        c->rounds[i].inputs = sn_cache_pool_alloc(cache->pool, record_bytes(c));
        if (!c->rounds[i].inputs) {
            rounds_release(c);
            return sn_fail(err, SENNIT_NOMEM, "no memory for the inputs of a round of %u tokens",
                           cache->config.round_depth);
        }
        c->rounds[i].old = cache->rows[i].store;
        if (c->rounds[i].old)
            c->rounds[i].old->n_refs++;
    }
    return SENNIT_OK;
}

static void recurrent_round_commit(struct sennit_cache *cache)
{
    rounds_release(mutable_recurrent(cache));
}

static void run_alone(const struct sn_recur_job *job)
{
    struct sn_fpenv env = sn_fp_enter();
    for (uint32_t i = 0; i < job->c->n_items; i++)
        sn_recur_item(job, i);
    for (uint32_t i = 0; i < job->c->n_merges; i++)
        job->c->kind->merge(job, i);
    sn_fp_leave(env);
}

/* The row's object is nobody else's: a step of this round made it. So it can take what the replay gives. */
static void roll_back(struct sn_recurrent *c, uint32_t i, uint64_t keep)
{
    struct sn_row *row = &c->base.rows[i];
    struct sn_recur_round *round = &c->rounds[i];
    if (keep == row->n_window)
        return;
    if (keep == 0) {
        state_drop(c, row->store);
        row->store = round->old;
        round->old = NULL;
    } else {
        struct sn_recur_job job = {.c = c,
                                   .from = round->old,
                                   .to = row->store,
                                   .inputs = round->inputs,
                                   .n_tokens = (size_t)keep,
                                   .calls = sn_cache_pool_calls(c->base.pool, 0)};
        assert(job.to != job.from && job.to->n_refs == 1);
        run_alone(&job);
    }
    uint64_t dropped = row->n_window - keep;
    row->n_tokens -= dropped;
    row->n_last -= dropped < row->n_last ? dropped : row->n_last;
}

static void recurrent_round_rollback(struct sennit_cache *cache, const uint64_t *keep)
{
    struct sn_recurrent *c = mutable_recurrent(cache);
    for (uint32_t i = 0; i < c->n_rounds; i++)
        roll_back(c, i, keep[i]);
    rounds_release(c);
}

/* ---- bytes and questions --------------------------------------------------------------------------------------- */

static uint64_t recurrent_storage_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    return tokens ? state_bytes(sn_recurrent_of(cache)) : 0;
}

static uint64_t recurrent_reserve_bytes(const struct sennit_cache *cache)
{
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    uint64_t round = cache->config.round_depth ? state_bytes(c) + record_bytes(c) : 0, bytes;
    if (__builtin_mul_overflow((uint64_t)cache->config.n_snapshots, state_bytes(c), &bytes) ||
        __builtin_add_overflow(bytes, round, &bytes))
        return UINT64_MAX;
    return bytes;
}

static uint64_t recurrent_bytes_per_token(const struct sennit_cache *cache)
{
    (void)cache;
    return 0;
}

static uint64_t recurrent_row_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    const struct sn_recur_state *state = row->store, *old = NULL;
    uint64_t bytes = 0;
    if (c->n_rounds) {
        old = c->rounds[row - cache->rows].old;
        bytes += record_bytes(c);
    }
    uint32_t held = old == state ? 2 : 1; /* references of this row to its state */
    bytes += state && state->n_refs == held ? state_bytes(c) : 0;
    return bytes + (old && old != state && old->n_refs == 1 ? state_bytes(c) : 0);
}

static bool recurrent_can_publish(const struct sennit_cache *cache, uint32_t row, uint64_t tokens)
{
    return tokens == cache->rows[row].n_tokens;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

static sennit_status recurrent_row_copy(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                                        struct sennit_error *err)
{
    (void)to, (void)err;
    dst->store = src->store;
    if (src->store)
        ((struct sn_recur_state *)src->store)->n_refs++;
    return SENNIT_OK;
}

static void recurrent_row_drop(struct sennit_cache *cache, struct sn_row *row)
{
    state_drop(sn_recurrent_of(cache), row->store);
}

/* ---- spans and streams ----------------------------------------------------------------------------------------- */

static size_t recurrent_n_spans(const struct sennit_cache *cache, uint32_t row)
{
    return cache->rows[row].n_tokens == 0 ? 0 : sn_recurrent_of(cache)->matrix_floats ? 2 : 1;
}

static void recurrent_spans(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out)
{
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    const struct sn_recur_state *state = cache->rows[row].store;
    size_t n = recurrent_n_spans(cache, row);
    struct sennit_span_view view = {.type = SENNIT_F32, .row = row, .n_tokens = cache->rows[row].n_tokens};
    for (size_t i = 0; i < n; i++) {
        out[i] = view;
        out[i].name = i ? "state" : "conv";
        out[i].data = state->data + (i ? c->matrix_at : 0);
        out[i].n_bytes = (i ? c->matrix_floats : c->tail_floats) * sizeof(float);
    }
}

static uint64_t recurrent_body_bytes(const struct sennit_cache *cache, uint64_t tokens)
{
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    return tokens ? (c->tail_floats + c->matrix_floats) * sizeof(float) : 0;
}

static sennit_status recurrent_save_body(const struct sennit_cache *cache, const struct sn_row *row,
                                         struct sennit_stream *stream, struct sennit_error *err)
{
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    const struct sn_recur_state *state = row->store;
    if (row->n_tokens == 0)
        return SENNIT_OK;
    SN_TRY(sn_stream_write(stream, state->data, c->tail_floats * sizeof(float), err));
    return sn_stream_write(stream, state->data + c->matrix_at, c->matrix_floats * sizeof(float), err);
}

static sennit_status recurrent_load_body(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                                         struct sennit_error *err)
{
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    if (row->n_tokens == 0)
        return SENNIT_OK;
    struct sn_recur_state *state = sn_cache_pool_alloc(cache->pool, state_bytes(c));
    if (!state)
        return sn_fail(err, SENNIT_NOMEM, "load: no memory for a state of %zu bytes", state_bytes(c));
    state->n_refs = 1;
    sennit_status status = sn_stream_read(stream, state->data, c->tail_floats * sizeof(float), err);
    if (status == SENNIT_OK)
        status = sn_stream_read(stream, state->data + c->matrix_at, c->matrix_floats * sizeof(float), err);
    if (status == SENNIT_OK)
        row->store = state;
    else
        state_drop(c, state);
    return status;
}

/* ---- the step -------------------------------------------------------------------------------------------------- */

static sennit_status reserve_spans(struct sn_recurrent *c, struct sennit_error *err)
{
    uint32_t n = c->base.step.n_spans;
    if (n <= c->cap_spans)
        return SENNIT_OK;
    struct sn_heap *heap = c->base.pool->heap;
    struct sn_recur_span *fresh = sn_calloc(heap, SN_USE_MISC, n, sizeof *fresh);
    if (!fresh)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a step of %u spans", n);
    if (c->cap_spans)
        memcpy(fresh, c->spans, c->cap_spans * sizeof *fresh);
    sn_free(heap, SN_USE_MISC, c->spans, c->cap_spans * sizeof *fresh);
    c->spans = fresh;
    c->cap_spans = n;
    return SENNIT_OK;
}

static sennit_status reserve_inputs(struct sn_recurrent *c, size_t n_tokens, struct sennit_error *err)
{
    struct sn_heap *heap = c->base.pool->heap;
    size_t floats = n_tokens * c->n_input;
    if (floats > c->cap_inputs) {
        float *fresh = sn_alloc(heap, SN_USE_SCRATCH, floats * sizeof *fresh);
        if (!fresh)
            return sn_fail(err, SENNIT_NOMEM, "no memory for the inputs of %zu tokens", n_tokens);
        sn_free(heap, SN_USE_SCRATCH, c->inputs, c->cap_inputs * sizeof *fresh);
        c->inputs = fresh;
        c->cap_inputs = floats;
    }
    if (c->base.pool->poison)
        memset(c->inputs, 0xFF, c->cap_inputs * sizeof *c->inputs);
    return SENNIT_OK;
}

static sennit_status recurrent_step_begin(struct sennit_cache *cache, struct sennit_error *err)
{
    struct sn_recurrent *c = mutable_recurrent(cache);
    if (cache->step.n_heads != c->n_heads)
        return sn_fail(err, SENNIT_INVALID, "append_begin: %u heads; this layer has %u", cache->step.n_heads,
                       c->n_heads);
    SN_TRY(reserve_spans(c, err));
    size_t n_tokens = 0;
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        c->spans[i].first = n_tokens;
        n_tokens += cache->step.spans[i].n_tokens;
    }
    SN_TRY(reserve_inputs(c, n_tokens, err));
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        if (!c->spans[i].next)
            c->spans[i].next = sn_cache_pool_alloc_next(cache->pool, state_bytes(c));
        if (!c->spans[i].next)
            return sn_fail(err, SENNIT_NOMEM, "no memory for the state of row %u", cache->step.spans[i].row);
        if (cache->pool->poison)
            memset(c->spans[i].next, 0xFF, state_bytes(c));
        c->spans[i].next->n_refs = 1;
    }
    return SENNIT_OK;
}

static size_t role_at(const struct sn_recurrent *c, sennit_role role)
{
    size_t gates = c->base.config.recurrent.n_channels;
    bool delta = c->kind == &sn_recur_deltanet;
    assert(role == SENNIT_ROLE_CONV_IN || (delta && (role == SENNIT_ROLE_DECAY || role == SENNIT_ROLE_BETA)) ||
           (c->kind == &sn_recur_mamba2 && role == SENNIT_ROLE_DT));
    return role == SENNIT_ROLE_CONV_IN ? 0 : delta && role == SENNIT_ROLE_BETA ? gates + c->n_heads : gates;
}

static void recurrent_step_tile(struct sennit_cache *cache, uint32_t span_index, uint32_t token, uint32_t n_tokens,
                                sennit_role role, uint32_t first_head, uint32_t n_heads, const float *data,
                                size_t token_stride, uint32_t worker)
{
    (void)worker;
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    const struct sennit_span *span = &cache->step.spans[span_index];
    size_t at = role_at(c, role) + first_head;
    float *inputs = c->inputs + c->spans[span_index].first * c->n_input, *record = NULL;
    if (c->n_rounds)
        record = c->rounds[span->row].inputs + cache->rows[span->row].n_window * c->n_input;
    for (size_t t = token; t < (size_t)token + n_tokens; t++, data += token_stride) {
        memcpy(inputs + t * c->n_input + at, data, n_heads * sizeof *data);
        if (record)
            memcpy(record + t * c->n_input + at, data, n_heads * sizeof *data);
    }
}

static struct sn_recur_job step_job(const struct sn_recurrent *c, uint32_t span_index, uint32_t worker)
{
    const struct sennit_cache *cache = &c->base;
    const struct sennit_attend_inputs *in = &cache->step.in;
    const struct sennit_span *span = &cache->step.spans[span_index];
    const struct sn_recur_span *s = &c->spans[span_index];
    struct sn_recur_job job = {.c = c,
                               .from = cache->rows[span->row].store,
                               .to = s->next,
                               .inputs = c->inputs + s->first * c->n_input,
                               .n_tokens = span->n_tokens,
                               .calls = sn_cache_pool_calls(cache->pool, worker)};
    if (cache->step.planned && in->out) {
        job.out = in->out + span->first_token * in->out_stride;
        job.out_stride = in->out_stride;
    }
    return job;
}

static void recurrent_attend_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges)
{
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    *n_items = cache->step.n_spans * c->n_items;
    *n_merges = cache->step.n_spans * c->n_merges;
}

static void recurrent_attend_item(struct sennit_cache *cache, uint32_t item, uint32_t worker)
{
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    struct sn_recur_job job = step_job(c, item / c->n_items, worker);
    sn_recur_item(&job, item % c->n_items);
}

static void recurrent_attend_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker)
{
    const struct sn_recurrent *c = sn_recurrent_of(cache);
    struct sn_recur_job job = step_job(c, merge / c->n_merges, worker);
    c->kind->merge(&job, merge % c->n_merges);
}

/* Nobody planned, so nobody wants outputs; the tokens have entered the row all the same. */
static void recurrent_step_commit(struct sennit_cache *cache)
{
    struct sn_recurrent *c = mutable_recurrent(cache);
    for (uint32_t i = 0; i < cache->step.n_spans; i++) {
        struct sn_row *row = &cache->rows[cache->step.spans[i].row];
        if (!cache->step.planned) {
            struct sn_recur_job job = step_job(c, i, 0);
            run_alone(&job);
        }
        struct sn_recur_state *old = row->store;
        row->store = c->spans[i].next;
        c->spans[i].next = NULL;
        if (old && old->n_refs == 1) {
            c->spans[i].next = old;
            sn_cache_pool_retire(cache->pool, state_bytes(c));
        } else {
            state_drop(c, old);
        }
        sn_cache_pool_adopt_next(cache->pool, state_bytes(c));
    }
    drop_next(c, cache->step.n_spans);
}

static void recurrent_step_abort(struct sennit_cache *cache)
{
    (void)cache; /* the rows have what they had; the next step fills the same objects */
}

/* Four heads of a gated DeltaNet, all weights zero. */
static const float example_conv[1024 * 4], example_gates[4];
static const struct sennit_cache_config example = {.family = "recurrent",
                                                   .recurrent = {.kind = "deltanet",
                                                                 .n_heads = 4,
                                                                 .n_key_heads = 2,
                                                                 .d_state = 128,
                                                                 .d_head = 128,
                                                                 .n_channels = 1024,
                                                                 .kernel = 4,
                                                                 .conv_weight = example_conv,
                                                                 .a_log = example_gates,
                                                                 .dt_bias = example_gates}};

const struct sn_family sn_family_recurrent = {
    .name = "recurrent",
    .takes = TAKES,
    .object_bytes = sizeof(struct sn_recurrent),
    .example = &example,
    .no_planes = true,
    .check = recurrent_check,
    .signature = recurrent_signature,
    .init = recurrent_init,
    .inherit = recurrent_inherit,
    .release = recurrent_release,
    .storage_bytes = recurrent_storage_bytes,
    .reserve_bytes = recurrent_reserve_bytes,
    .bytes_per_token = recurrent_bytes_per_token,
    .row_bytes = recurrent_row_bytes,
    .can_publish = recurrent_can_publish,
    .row_copy = recurrent_row_copy,
    .row_drop = recurrent_row_drop,
    .round_begin = recurrent_round_begin,
    .round_commit = recurrent_round_commit,
    .round_rollback = recurrent_round_rollback,
    .n_spans = recurrent_n_spans,
    .spans = recurrent_spans,
    .body_bytes = recurrent_body_bytes,
    .save_body = recurrent_save_body,
    .load_body = recurrent_load_body,
    .step_begin = recurrent_step_begin,
    .step_tile = recurrent_step_tile,
    .step_commit = recurrent_step_commit,
    .step_abort = recurrent_step_abort,
    .attend_plan = recurrent_attend_plan,
    .attend_item = recurrent_attend_item,
    .attend_merge = recurrent_attend_merge,
};
