/* Requests: what was asked for, and the events that answer it. */
#include "sched/engine.h"

#include <errno.h>
#include <time.h>

/* Text of one answer; far above what max_tokens can give, it keeps a broken vocabulary from growing without end. */
static const size_t MAX_TEXT = (size_t)1 << 30;

static sennit_status copy_stops(struct sennit_request *r, const struct sennit_request_options *o)
{
    struct sn_heap *heap = &r->engine->heap;
    if (o->n_stop == 0)
        return SENNIT_OK;
    r->stops.strings = sn_calloc(heap, SN_USE_MISC, o->n_stop, sizeof *r->stops.strings);
    r->stops.lens = sn_calloc(heap, SN_USE_MISC, o->n_stop, sizeof *r->stops.lens);
    r->stops.n = o->n_stop;
    if (!r->stops.strings || !r->stops.lens)
        return SENNIT_NOMEM;
    for (uint32_t i = 0; i < o->n_stop; i++) {
        r->stops.lens[i] = strlen(o->stop[i]);
        r->stops.strings[i] = sn_strndup(heap, SN_USE_MISC, o->stop[i], r->stops.lens[i]);
        if (!r->stops.strings[i])
            return SENNIT_NOMEM;
    }
    return SENNIT_OK;
}

static sennit_status copy_sampling(struct sennit_request *r, const struct sennit_sampling *s)
{
    r->sampling = (struct sn_sampling){
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repetition_penalty = s->repetition_penalty == 0 ? 1 : s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .seed = s->seed,
        .choice = s->choice,
    };
    if (s->n_biases == 0)
        return SENNIT_OK;
    r->biases = sn_calloc(&r->engine->heap, SN_USE_MISC, s->n_biases, sizeof *r->biases);
    if (!r->biases)
        return SENNIT_NOMEM;
    for (uint32_t i = 0; i < s->n_biases; i++)
        r->biases[i] = (struct sn_bias){.id = s->biases[i].id, .bias = s->biases[i].bias};
    r->sampling.biases = r->biases;
    r->sampling.n_biases = s->n_biases;
    return SENNIT_OK;
}

/* What was given. The arrays that grow with max_tokens come at admission (sn_request_make_room): a queue of requests
 * holds its prompts and little else. */
static sennit_status copy_given(struct sennit_request *r, const struct sennit_request_options *o)
{
    struct sn_heap *heap = &r->engine->heap;
    size_t n = o->max_tokens;
    r->tokens = sn_calloc(heap, SN_USE_MISC, o->n_prompt, sizeof *r->tokens);
    r->tokens_cap = r->tokens ? o->n_prompt : 0;
    r->forced = o->forced ? sn_calloc(heap, SN_USE_MISC, n, sizeof *r->forced) : NULL;
    if (!r->tokens || (n && o->forced && !r->forced))
        return SENNIT_NOMEM;
    memcpy(r->tokens, o->prompt, o->n_prompt * sizeof *r->tokens);
    if (r->forced)
        memcpy(r->forced, o->forced, n * sizeof *r->forced);
    return SENNIT_OK;
}

/* What sn_request_make_room will take. The context and SN_MAX_LOGPROBS bound it far below 2^64. */
static uint64_t answer_bytes(const struct sennit_request_options *o)
{
    uint64_t n = o->max_tokens, n_top = o->n_logprobs;
    uint64_t n_reported = o->prompt_logprobs ? o->n_prompt : 0;
    return (o->n_prompt + n) * sizeof(int32_t) + n * sizeof(struct sn_token_event) +
           (n + 2) * n_top * sizeof(struct sennit_logprob) +
           n_reported * (sizeof(float) + n_top * sizeof(struct sennit_logprob));
}

uint64_t sn_request_need(const struct sennit_engine *e, const struct sennit_request_options *o)
{
    uint64_t sum;
    if (o->max_tokens == 0 && !o->prompt_logprobs)
        return 0;
    if (__builtin_add_overflow(sn_engine_row_projected(e, o->n_prompt + o->max_tokens), answer_bytes(o), &sum))
        return UINT64_MAX;
    return sum;
}

sennit_status sn_request_make_room(struct sennit_request *r, struct sennit_error *err)
{
    struct sn_heap *heap = &r->engine->heap;
    size_t n = r->max_tokens, n_top = r->n_logprobs, cap = r->n_prompt + n;
    size_t n_reported = r->prompt_logprobs ? r->n_prompt : 0;
    r->events = sn_calloc(heap, SN_USE_MISC, n, sizeof *r->events);
    r->tops = sn_calloc(heap, SN_USE_MISC, n * n_top, sizeof *r->tops);
    r->step_top = sn_calloc(heap, SN_USE_MISC, n_top, sizeof *r->step_top);
    r->reader_top = sn_calloc(heap, SN_USE_MISC, n_top, sizeof *r->reader_top);
    r->prompt_logprob = sn_calloc(heap, SN_USE_MISC, n_reported, sizeof *r->prompt_logprob);
    r->prompt_tops = sn_calloc(heap, SN_USE_MISC, n_reported * n_top, sizeof *r->prompt_tops);
    int32_t *tokens = sn_realloc(heap, SN_USE_MISC, r->tokens, r->tokens_cap * sizeof *tokens, cap * sizeof *tokens);
    if (tokens) {
        r->tokens = tokens;
        r->tokens_cap = cap;
    }
    if (!tokens || (n && !r->events) || (n && n_top && !r->tops) || (n_top && (!r->step_top || !r->reader_top)) ||
        (n_reported && (!r->prompt_logprob || (n_top && !r->prompt_tops))))
        return sn_fail(err, SENNIT_NOMEM, "no memory for an answer of %u tokens to %zu", r->max_tokens, r->n_prompt);
    return SENNIT_OK;
}

void sn_request_destroy(struct sennit_request *r)
{
    struct sn_heap *heap = &r->engine->heap;
    size_t n = r->max_tokens;
    for (uint32_t i = 0; r->stops.strings && r->stops.lens && i < r->stops.n; i++)
        sn_free(heap, SN_USE_MISC, r->stops.strings[i], r->stops.lens[i] + 1);
    sn_free(heap, SN_USE_MISC, r->stops.strings, r->stops.n * sizeof *r->stops.strings);
    sn_free(heap, SN_USE_MISC, r->stops.lens, r->stops.n * sizeof *r->stops.lens);
    sn_free(heap, SN_USE_MISC, r->biases, r->sampling.n_biases * sizeof *r->biases);
    sn_free(heap, SN_USE_MISC, r->tokens, r->tokens_cap * sizeof *r->tokens);
    sn_free(heap, SN_USE_MISC, r->events, n * sizeof *r->events);
    sn_free(heap, SN_USE_MISC, r->tops, n * r->n_logprobs * sizeof *r->tops);
    sn_free(heap, SN_USE_MISC, r->step_top, r->n_logprobs * sizeof *r->step_top);
    sn_free(heap, SN_USE_MISC, r->prompt_logprob, r->n_prompt * sizeof *r->prompt_logprob);
    sn_free(heap, SN_USE_MISC, r->prompt_tops, r->n_prompt * r->n_logprobs * sizeof *r->prompt_tops);
    sn_free(heap, SN_USE_MISC, r->reader_top, r->n_logprobs * sizeof *r->reader_top);
    sn_free(heap, SN_USE_MISC, r->forced, n * sizeof *r->forced);
    sn_buf_free(&r->text);
    sn_buf_free(&r->out);
    sn_buf_free(&r->reader_text);
    pthread_cond_destroy(&r->changed);
    sn_free(heap, SN_USE_MISC, r, sizeof *r);
}

sennit_status sn_request_create(struct sennit_request **out, struct sennit_engine *e,
                                const struct sennit_request_options *o, struct sennit_error *err)
{
    struct sennit_request *r = sn_calloc(&e->heap, SN_USE_MISC, 1, sizeof *r);
    if (!r)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the request");
    r->engine = e;
    r->n_prompt = r->n_tokens = o->n_prompt;
    r->max_tokens = o->max_tokens;
    r->n_logprobs = o->n_logprobs;
    r->want_logprob = o->want_logprob || o->n_logprobs;
    r->ignore_eos = o->ignore_eos;
    r->prompt_logprobs = o->prompt_logprobs;
    sn_buf_init(&r->text, &e->heap, SN_USE_TEXT, MAX_TEXT);
    sn_buf_init(&r->out, &e->heap, SN_USE_TEXT, MAX_TEXT);
    sn_buf_init(&r->reader_text, &e->heap, SN_USE_TEXT, MAX_TEXT);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&r->changed, &attr);
    pthread_condattr_destroy(&attr);
    sennit_status st = copy_sampling(r, &o->sampling);
    if (st == SENNIT_OK)
        st = copy_stops(r, o);
    if (st == SENNIT_OK)
        st = copy_given(r, o);
    if (st != SENNIT_OK) {
        sn_request_destroy(r);
        return sn_fail(err, st, "no memory for a request of %zu prompt tokens and %u more", o->n_prompt,
                       o->max_tokens);
    }
    sn_detok_init(&r->detok, e->m->vocab.t, !o->keep_special);
    XXH3_64bits_reset(&r->digest);
    *out = r;
    return SENNIT_OK;
}

sennit_status sn_engine_may_queue_locked(const struct sennit_engine *e, uint32_t n, struct sennit_error *err)
{
    uint32_t most = e->cfg.max_waiting;
    if (e->failed)
        return sn_engine_failed_locked(e, err);
    if (most && (n > most || e->n_waiting > most - n))
        return sn_fail(err, SENNIT_BUSY,
                       "the queue is full: %u waiting and %u more, and at most %u may wait; try again later",
                       e->n_waiting, n, most);
    return SENNIT_OK;
}

/* Under the lock. */
static void push(struct sennit_engine *e, struct sennit_request *r, struct sennit_session *session)
{
    r->session = session;
    r->id = ++e->next_id;
    r->n_refs = 2;
    e->n_refs++;
    *e->inbox_end = r;
    e->inbox_end = &r->next;
    e->n_waiting++;
    sn_engine_count_request_locked(e);
}

sennit_status sn_engine_enqueue(struct sennit_engine *e, struct sennit_request *const *requests, uint32_t n,
                                struct sennit_session *session, struct sennit_error *err)
{
    pthread_mutex_lock(&e->lock);
    sennit_status st = sn_engine_may_queue_locked(e, n, err);
    if (st == SENNIT_OK && session && session->busy)
        st = sn_fail(err, SENNIT_STATE, "the session is in use by another request; wait for its END event");
    if (st == SENNIT_OK) {
        if (session)
            session->busy = true;
        for (uint32_t i = 0; i < n; i++)
            push(e, requests[i], session);
        pthread_cond_broadcast(&e->wake);
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

void sn_request_unref_locked(struct sennit_request *r)
{
    struct sennit_engine *e = r->engine;
    if (--r->n_refs > 0) {
        pthread_mutex_unlock(&e->lock);
        return;
    }
    sn_request_destroy(r);
    sn_engine_unref_locked(e);
}

/* ---- giving events (owner's thread) ---------------------------------------------------------------------------- */

/* Gives out text up to `end` of r->text. Under the lock. */
static sennit_status give_text(struct sennit_request *r, size_t end)
{
    if (end <= r->n_given)
        return SENNIT_OK;
    SN_TRY(sn_buf_append(&r->out, r->text.data + r->n_given, end - r->n_given));
    r->n_given = end;
    return SENNIT_OK;
}

void sn_request_finish(struct sennit_request *r, sennit_finish finish, const struct sennit_error *error)
{
    struct sennit_engine *e = r->engine;
    sn_group_leave(e, r);
    if (!r->stop_hit)
        (void)sn_detok_flush(&r->detok, &r->text, NULL); /* a character cut short becomes U+FFFD */
    e->told = true;
    pthread_mutex_lock(&e->lock);
    if (!r->stop_hit)
        (void)give_text(r, r->text.len);
    r->state = SN_REQ_DONE;
    r->finish = finish;
    r->end_ns = sn_now_ns();
    e->load.n_finished[finish]++;
    if (error)
        r->error = *error;
    if (r->session)
        r->session->busy = false;
    pthread_cond_broadcast(&r->changed);
    sn_request_unref_locked(r);
}

void sn_request_give_prompt(struct sennit_request *r)
{
    pthread_mutex_lock(&r->engine->lock);
    r->n_prompt_events = sn_min_size(r->n_state + 1, r->n_prompt);
    r->engine->told = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->engine->lock);
}

static void give_event(struct sennit_request *r)
{
    struct sn_token_event *ev = &r->events[r->n_events];
    *ev = (struct sn_token_event){
        .id = r->choice.id,
        .forced_choice = r->choice.sampled,
        .logprob = r->choice.logprob,
        .text_end = r->out.len,
        .n_top = r->n_logprobs,
        .time_ns = sn_now_ns(),
    };
    if (r->n_logprobs)
        memcpy(r->tops + r->n_events * r->n_logprobs, r->step_top, r->n_logprobs * sizeof *r->tops);
    r->n_events++;
    r->engine->n_answer_tokens++;
    r->engine->told = true;
    pthread_cond_broadcast(&r->changed);
}

sennit_finish sn_request_take_choice(struct sennit_request *r, struct sennit_error *err)
{
    struct sennit_engine *e = r->engine;
    r->tokens[r->n_tokens++] = r->choice.id;
    size_t n_answer = r->n_tokens - r->n_prompt;
    bool ends = !r->ignore_eos && !r->forced && sn_token_ends(e->m->vocab.t, r->choice.id);
    if (sn_detok_feed(&r->detok, r->choice.id, &r->text, err) != SENNIT_OK)
        return SENNIT_FINISH_ERROR;
    size_t safe = r->text.len;
    bool stopped = r->stops.n && sn_stop_scan(&r->stops, r->text.data, r->n_given, r->text.len, &safe);
    pthread_mutex_lock(&e->lock);
    sennit_status st = give_text(r, safe);
    if (st == SENNIT_OK)
        give_event(r);
    pthread_mutex_unlock(&e->lock);
    if (st != SENNIT_OK) {
        sn_fail(err, st, "no memory for the answer's text");
        return SENNIT_FINISH_ERROR;
    }
    r->stop_hit = stopped;
    if (stopped || ends)
        return SENNIT_FINISH_STOP;
    return n_answer == r->max_tokens ? SENNIT_FINISH_LENGTH : SENNIT_FINISH_NONE;
}

/* ---- the user's side (any thread) ------------------------------------------------------------------------------ */

void sennit_request_cancel(struct sennit_request *r)
{
    if (!r)
        return;
    struct sennit_engine *e = r->engine;
    pthread_mutex_lock(&e->lock);
    r->cancelled = true;
    e->poked = true;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
}

uint64_t sennit_request_id(const struct sennit_request *r)
{
    return r->id;
}

void sennit_request_free(struct sennit_request *r)
{
    if (!r)
        return;
    sennit_request_cancel(r);
    pthread_mutex_lock(&r->engine->lock);
    sn_request_unref_locked(r);
}

static void deadline_in(struct timespec *at, int ms)
{
    clock_gettime(CLOCK_MONOTONIC, at);
    at->tv_sec += ms / 1000;
    at->tv_nsec += (long)(ms % 1000) * 1000000;
    if (at->tv_nsec >= 1000000000) {
        at->tv_nsec -= 1000000000;
        at->tv_sec++;
    }
}

static bool has_event(const struct sennit_request *r)
{
    return (r->started && !r->start_read) || r->n_prompt_read < r->n_prompt_events || r->n_read < r->n_events ||
           (r->state == SN_REQ_DONE && !r->end_read);
}

/* Copies the text up to `end` for the reader: the shared buffer may move as soon as the lock is released. */
static sennit_status read_text(struct sennit_request *r, size_t end, struct sennit_event *out)
{
    size_t n = end - r->text_read;
    r->reader_text.len = 0;
    SN_TRY(sn_buf_append(&r->reader_text, r->out.data ? r->out.data + r->text_read : "", n));
    r->text_read = end;
    out->text = r->reader_text.data;
    out->n_text = n;
    return SENNIT_OK;
}

static void read_prompt(struct sennit_request *r, struct sennit_event *out)
{
    size_t at = r->n_prompt_read++;
    out->kind = SENNIT_EVENT_PROMPT;
    out->id = r->tokens[at];
    out->logprob = r->prompt_logprob[at];
    out->n_top = at ? r->n_logprobs : 0;
    if (out->n_top) {
        memcpy(r->reader_top, r->prompt_tops + at * r->n_logprobs, out->n_top * sizeof *r->reader_top);
        out->top = r->reader_top;
    }
}

static sennit_status read_token(struct sennit_request *r, struct sennit_event *out)
{
    const struct sn_token_event *ev = &r->events[r->n_read];
    SN_TRY(read_text(r, ev->text_end, out));
    out->kind = SENNIT_EVENT_TOKEN;
    out->time_ns = ev->time_ns;
    out->id = ev->id;
    out->forced_choice = ev->forced_choice;
    out->logprob = ev->logprob;
    out->n_top = ev->n_top;
    if (ev->n_top) {
        memcpy(r->reader_top, r->tops + r->n_read * r->n_logprobs, ev->n_top * sizeof *r->tops);
        out->top = r->reader_top;
    }
    r->n_read++;
    return SENNIT_OK;
}

static sennit_status read_end(struct sennit_request *r, struct sennit_event *out)
{
    SN_TRY(read_text(r, r->out.len, out));
    out->kind = SENNIT_EVENT_END;
    out->time_ns = r->end_ns;
    out->finish = r->finish;
    out->error = r->error;
    out->digest = XXH3_64bits_digest(&r->digest);
    out->n_prompt = r->n_prompt;
    out->n_reused = r->n_reused;
    out->n_generated = r->n_events; /* not a token that was chosen and then had no memory for its text */
    out->n_prefill_spans = r->n_prefill_spans;
    r->end_read = true;
    return SENNIT_OK;
}

void sennit_request_poll(const struct sennit_request *r, struct sennit_request_state *out)
{
    if (!out)
        return;
    *out = (struct sennit_request_state){0};
    if (!r)
        return;
    pthread_mutex_lock(&r->engine->lock);
    out->started = r->started;
    out->ended = r->state == SN_REQ_DONE;
    out->n_ready = (r->started && !r->start_read) + (r->n_prompt_events - r->n_prompt_read) +
                   (r->n_events - r->n_read) + (out->ended && !r->end_read);
    pthread_mutex_unlock(&r->engine->lock);
}

sennit_status sennit_request_next_event(struct sennit_request *r, struct sennit_event *out, int timeout_ms,
                                        struct sennit_error *err)
{
    if (!r || !out)
        return sn_fail(err, SENNIT_INVALID, "request and out must not be NULL");
    struct sennit_engine *e = r->engine;
    struct timespec until;
    if (timeout_ms > 0)
        deadline_in(&until, timeout_ms);
    *out = (struct sennit_event){.kind = SENNIT_EVENT_NONE, .text = "", .forced_choice = -1};
    pthread_mutex_lock(&e->lock);
    while (!has_event(r) && !r->end_read && timeout_ms != 0) {
        if (timeout_ms < 0)
            pthread_cond_wait(&r->changed, &e->lock);
        else if (pthread_cond_timedwait(&r->changed, &e->lock, &until) == ETIMEDOUT)
            break;
    }
    sennit_status st = SENNIT_OK;
    if (r->started && !r->start_read) {
        r->start_read = true;
        out->kind = SENNIT_EVENT_START;
        out->time_ns = r->start_ns;
    } else if (r->n_prompt_read < r->n_prompt_events) {
        read_prompt(r, out);
    } else if (r->n_read < r->n_events) {
        st = read_token(r, out);
    } else if (r->state == SN_REQ_DONE && !r->end_read) {
        st = read_end(r, out);
    }
    pthread_mutex_unlock(&e->lock);
    if (st == SENNIT_NOMEM || st == SENNIT_TOO_BIG)
        return sn_fail(err, st, "no memory for the event's text; ask again");
    return st;
}

const char *sennit_finish_name(sennit_finish finish)
{
    static const char *const names[] = {"none", "stop", "length", "cancelled", "error"};
    return (size_t)finish < SN_ARRAY_LEN(names) ? names[finish] : "unknown";
}
