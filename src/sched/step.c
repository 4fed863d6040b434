/* One step of the engine: take orders, admit, form the batch, run it, give out what it found. */
#include "sched/engine.h"

#include <errno.h>
#include <time.h>

/* ---- orders ---------------------------------------------------------------------------------------------------- */

void sn_engine_take_orders(struct sennit_engine *e)
{
    pthread_mutex_lock(&e->lock);
    if (e->inbox) {
        *e->waiting_end = e->inbox;
        e->waiting_end = e->inbox_end;
        e->inbox = NULL;
        e->inbox_end = &e->inbox;
    }
    while (e->new_sessions) {
        struct sennit_session *s = e->new_sessions;
        e->new_sessions = s->next;
        s->next = e->sessions;
        e->sessions = s;
    }
    e->poked = false;
    pthread_mutex_unlock(&e->lock);
}

static bool is_cancelled(struct sennit_request *r)
{
    pthread_mutex_lock(&r->engine->lock);
    bool cancelled = r->cancelled;
    pthread_mutex_unlock(&r->engine->lock);
    return cancelled;
}

static bool cancel_waiting(struct sennit_engine *e)
{
    bool any = false;
    struct sennit_request **at = &e->waiting;
    while (*at) {
        struct sennit_request *r = *at;
        if (!is_cancelled(r)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        r->next = NULL;
        any = true;
        pthread_mutex_lock(&e->lock);
        e->n_waiting--;
        pthread_mutex_unlock(&e->lock);
        sn_request_finish(r, SENNIT_FINISH_CANCELLED, NULL);
    }
    e->waiting_end = at;
    return any;
}

static bool cancel_rows(struct sennit_engine *e)
{
    bool any = false;
    for (uint32_t b = 0; b < e->n_rows; b++) {
        e->gone[b] = is_cancelled(e->rows[b]);
        if (e->gone[b])
            e->rows[b]->end_finish = SENNIT_FINISH_CANCELLED;
        any |= e->gone[b];
    }
    if (any)
        sn_engine_remove_rows(e, e->gone);
    return any;
}

/* ---- the batch ------------------------------------------------------------------------------------------------- */

static uint64_t append_limit(const struct sennit_engine *e, uint32_t row)
{
    uint64_t most = SENNIT_UNBOUNDED;
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++) {
        uint64_t n = sennit_cache_max_append_tokens(e->layers[l], row);
        most = n < most ? n : most;
    }
    return most;
}

/* Are the logits after the token at `pos` wanted? */
static bool wants_logits(const struct sennit_request *r, uint64_t pos)
{
    if (pos + 1 == r->n_tokens)
        return r->max_tokens > 0;
    return r->prompt_logprobs;
}

static struct sn_want want_of(const struct sennit_engine *e, uint32_t row)
{
    const struct sennit_request *r = e->rows[row];
    uint64_t caches = append_limit(e, row), group = sn_group_span_limit(r);
    return (struct sn_want){.n_pending = r->n_tokens - r->n_state,
                            .n_max = caches < group ? caches : group,
                            .all_logits = r->prompt_logprobs && r->n_tokens == r->n_prompt};
}

/* Adds the tokens of r's span to the forward. */
static void add_tokens(struct sn_forward *f, const struct sennit_request *r, uint32_t span, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t pos = r->n_state + i;
        if (wants_logits(r, pos))
            f->logit_tokens[f->n_logits++] = f->n_tokens;
        f->ids[f->n_tokens] = r->tokens[pos];
        f->token_span[f->n_tokens++] = span;
    }
}

/* Fills the step's spans and the forward's tokens; returns the number of spans. */
static uint32_t form_batch(struct sennit_engine *e)
{
    struct sn_forward *f = e->forward;
    for (uint32_t b = 0; b < e->n_rows; b++)
        e->wants[b] = want_of(e, b);
    sn_form_spans(e->wants, e->n_rows, e->cfg.chunk, e->cfg.step_tokens, f->max_logits, e->span_tokens);
    uint32_t n_spans = 0;
    f->n_tokens = f->n_logits = 0;
    for (uint32_t b = 0; b < e->n_rows; b++) {
        const struct sennit_request *r = e->rows[b];
        uint32_t n = e->span_tokens[b];
        if (n == 0)
            continue;
        e->spans[n_spans] =
            (struct sennit_span){.row = b, .pos = r->n_state, .n_tokens = n, .first_token = f->n_tokens};
        e->last_step[n_spans] = (struct sennit_step_span){.request_id = r->id, .pos = r->n_state, .n_tokens = n};
        add_tokens(f, r, n_spans++, n);
    }
    return n_spans;
}

static sennit_status begin_all(struct sennit_engine *e, uint32_t n_spans, struct sennit_error *err)
{
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++) {
        sennit_status st = sennit_cache_append_begin(e->layers[l], e->spans, n_spans, e->m->hp.n_heads, err);
        if (st == SENNIT_OK)
            continue;
        while (l-- > 0)
            sennit_cache_append_abort(e->layers[l]);
        return st;
    }
    return SENNIT_OK;
}

/* ---- choosing (any worker) ------------------------------------------------------------------------------------- */

/* Returns the log-probability of id; top: [n_top] the most likely tokens. */
static float report(struct sennit_engine *e, const float *logits, int32_t id, struct sennit_logprob *top,
                    uint32_t n_top, struct sn_lane *lane)
{
    uint32_t n = e->m->hp.n_vocab;
    struct sn_lse lse = sn_log_sum_exp(&e->kernels, lane->calls, logits, n);
    if (n_top == 0)
        return sn_logprob(lse, logits[id]);
    uint32_t best[SN_MAX_LOGPROBS];
    SN_CALL(&e->kernels, lane->calls, top_k, logits, n, n_top, best);
    for (uint32_t i = 0; i < n_top; i++)
        top[i] = (struct sennit_logprob){.id = (int32_t)best[i], .logprob = sn_logprob(lse, logits[best[i]])};
    return sn_logprob(lse, logits[id]);
}

/* The digest is over the f32 bits, least significant byte first. */
static void digest_logits(struct sennit_request *r, const float *logits, size_t n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    XXH3_64bits_update(&r->digest, logits, n * sizeof *logits);
#else
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &logits[i], sizeof u);
        u = __builtin_bswap32(u);
        XXH3_64bits_update(&r->digest, &u, sizeof u);
    }
#endif
}

/* Several workers may be at one row's prompt at once: each writes its own token's entries. Fault flags say that
 * logits were not finite. */
static void on_prompt_logits(struct sennit_engine *e, struct sennit_request *r, uint32_t token, size_t pos,
                             const float *logits, struct sn_lane *lane)
{
    struct sennit_logprob *top = r->n_logprobs ? r->prompt_tops + (pos + 1) * r->n_logprobs : NULL;
    if (!SN_CALL(&e->kernels, lane->calls, all_finite, logits, e->m->hp.n_vocab))
        e->forward->fault[token] = 1;
    else
        r->prompt_logprob[pos + 1] = report(e, logits, r->tokens[pos + 1], top, r->n_logprobs, lane);
}

static void on_logits(void *ctx, uint32_t index, const float *logits, struct sn_lane *lane)
{
    struct sennit_engine *e = ctx;
    uint32_t n = e->m->hp.n_vocab, token = e->forward->logit_tokens[index];
    const struct sennit_span *span = &e->spans[e->forward->token_span[token]];
    struct sennit_request *r = e->rows[span->row];
    size_t pos = span->pos + (token - span->first_token);
    if (pos + 1 < r->n_prompt) {
        on_prompt_logits(e, r, token, pos, logits, lane);
        return;
    }
    r->choice = (struct sn_choice){.id = -1, .sampled = -1};
    if (!SN_CALL(&e->kernels, lane->calls, all_finite, logits, n)) {
        r->choice.not_finite = true;
        return;
    }
    digest_logits(r, logits, n);
    size_t n_answer = r->n_tokens - r->n_prompt;
    struct sn_history h = {r->tokens, r->n_prompt, r->tokens + r->n_prompt, n_answer};
    int32_t id = sn_sample(&e->samplers[lane->index], &e->kernels, lane->calls, logits, &r->sampling, &h);
    r->choice.sampled = id;
    r->choice.id = r->forced ? r->forced[n_answer] : id;
    if (r->want_logprob)
        r->choice.logprob = report(e, logits, r->choice.id, r->step_top, r->n_logprobs, lane);
}

/* ---- after the step -------------------------------------------------------------------------------------------- */

static sennit_status not_finite(struct sennit_request *r, struct sennit_error *err)
{
    return sn_fail(
        err, SENNIT_NUMERIC,
        "a NaN or an infinity reached the answer at token %zu; the model file may be damaged, or its weights "
        "may overflow",
        r->n_state);
}

/* Brings row b up to date; true when it ends. */
static bool settle_row(struct sennit_engine *e, const struct sennit_span *span)
{
    struct sn_forward *f = e->forward;
    struct sennit_request *r = e->rows[span->row];
    r->n_state += span->n_tokens;
    if (r->n_tokens == r->n_prompt)
        r->n_prefill_spans++;
    bool fault = false;
    for (uint32_t i = 0; i < span->n_tokens; i++)
        fault |= f->fault[span->first_token + i] != 0;
    bool read_all = r->n_state == r->n_tokens, chose = read_all && r->max_tokens > 0;
    if (fault || (chose && r->choice.not_finite)) {
        r->end_finish = SENNIT_FINISH_ERROR;
        not_finite(r, &r->end_error);
        sn_log(&e->cfg.log, SENNIT_LOG_WARN, "request %llu: %s", (unsigned long long)r->id, r->end_error.message);
        return true;
    }
    if (r->prompt_logprobs && r->n_tokens == r->n_prompt)
        sn_request_give_prompt(r);
    if (!read_all)
        return false;
    r->end_finish = SENNIT_FINISH_LENGTH; /* nothing but the prompt was asked for */
    if (!chose)
        return true;
    r->end_finish = sn_request_take_choice(r, &r->end_error);
    return r->end_finish != SENNIT_FINISH_NONE;
}

static void count_step(struct sennit_engine *e, uint32_t n_spans)
{
    struct sn_forward *f = e->forward;
    struct sennit_stats *s = &e->stats;
    s->n_steps++;
    s->n_decode_steps += f->n_tokens == n_spans;
    s->n_spans += n_spans;
    s->n_tokens += f->n_tokens;
    s->n_logit_rows += f->n_logits;
    s->most_rows_in_step = n_spans > s->most_rows_in_step ? n_spans : s->most_rows_in_step;
    for (uint32_t i = 0; i < f->n_lanes; i++)
        s->weight_bytes_read += f->lanes[i].weight_bytes;
    e->n_last = n_spans;
    for (uint32_t i = 0; i < n_spans; i++) {
        const struct sennit_span *span = &e->spans[i];
        size_t n_prompt = e->rows[span->row]->n_prompt;
        if (span->pos < n_prompt)
            e->n_prompt_tokens += sn_min_size(span->n_tokens, n_prompt - span->pos);
    }
}

/* The batch cannot run, for want of memory that admission could not foresee: the youngest row gives way, so that the
 * others go on. */
static void give_up_youngest(struct sennit_engine *e, const struct sennit_error *err)
{
    memset(e->gone, 0, e->cfg.max_rows * sizeof *e->gone);
    struct sennit_request *r = e->rows[e->n_rows - 1];
    r->end_finish = SENNIT_FINISH_ERROR;
    r->end_error = *err;
    sn_log(&e->cfg.log, SENNIT_LOG_WARN, "request %llu gave way at token %zu, so that %u others can go on: %s",
           (unsigned long long)r->id, r->n_state, e->n_rows - 1, err->message);
    e->gone[e->n_rows - 1] = true;
    sn_engine_remove_rows(e, e->gone);
}

static void run_batch(struct sennit_engine *e, uint32_t n_spans)
{
    struct sn_forward *f = e->forward;
    f->caches = e->layers;
    f->spans = e->spans;
    f->n_spans = n_spans;
    f->on_logits = on_logits;
    f->on_logits_ctx = e;
    sn_forward_run(f);
    count_step(e, n_spans);
    memset(e->gone, 0, e->cfg.max_rows * sizeof *e->gone);
    bool any = false;
    for (uint32_t i = 0; i < n_spans; i++) {
        bool ended = settle_row(e, &e->spans[i]);
        e->gone[e->spans[i].row] = ended;
        if (!ended)
            sn_group_after_span(e, e->rows[e->spans[i].row], e->spans[i].row);
        any |= ended;
    }
    if (any)
        sn_engine_remove_rows(e, e->gone);
}

void sn_engine_cancel_all(struct sennit_engine *e)
{
    sn_engine_take_orders(e);
    pthread_mutex_lock(&e->lock);
    for (struct sennit_request *r = e->waiting; r; r = r->next)
        r->cancelled = true;
    for (uint32_t b = 0; b < e->n_rows; b++)
        e->rows[b]->cancelled = true;
    pthread_mutex_unlock(&e->lock);
    cancel_waiting(e);
    cancel_rows(e);
    sn_engine_publish(e);
}

/* A fault that a test asked for: this step takes longer. */
static void stall(const struct sennit_engine *e)
{
    uint32_t ms = e->cfg.stall_ms;
    if (e->cfg.stall_at_step == 0 || e->stats.n_steps + 1 != e->cfg.stall_at_step)
        return;
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

/* All of a step but what it makes public. */
static bool work(struct sennit_engine *e)
{
    struct sennit_error problem = {0};
    bool worked = cancel_waiting(e);
    worked |= cancel_rows(e);
    sn_session_sweep(e);
    worked |= sn_engine_admit(e);
    if (e->n_rows == 0)
        return worked;
    stall(e);
    uint32_t n_spans = form_batch(e);
    if (begin_all(e, n_spans, &problem) == SENNIT_OK)
        run_batch(e, n_spans);
    else
        give_up_youngest(e, &problem);
    return true;
}

sennit_status sn_engine_step(struct sennit_engine *e, bool *worked, struct sennit_error *err)
{
    struct sennit_error failure = {0};
    *worked = false;
    if (e->failed) { /* only this thread sets it */
        if (err)
            *err = e->failure;
        return e->failure.code;
    }
    sn_engine_take_orders(e);
    if (sn_engine_check(e, &failure) != SENNIT_OK) {
        *worked = true;
        sn_engine_fail(e, &failure);
        if (err)
            *err = failure;
        return failure.code;
    }
    *worked = work(e);
    sn_engine_publish(e);
    return SENNIT_OK;
}
