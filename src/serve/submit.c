/* From a body to requests of the engine: read, tokenize, check, submit. Runs on the preparation thread. */
#include <malloc.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "serve/alloc.h"
#include "serve/json.h"
#include "serve/prepare.h"

enum { LARGE_BODY = 1 << 20 };

/* One prompt as the engine takes it. */
struct ready {
    struct sennit_tokens tokens; /* owner of ids, unless the client sent ids */
    const int32_t *ids;
    size_t n_ids;
    uint32_t max_tokens;
    struct sennit_text echo;
};

static bool no_memory(struct sv_error *err)
{
    sv_fail(err, 503, "no_memory", NULL, "the server has no memory left for this request; try again");
    err->retry_after = 1;
    return false;
}

/* ---- checks ---------------------------------------------------------------------------------------------------- */

static bool check_model(const struct sv_facts *f, const struct sv_call *call, struct sv_error *err)
{
    if (!call->model || strcmp(call->model, f->alias) == 0)
        return true;
    if (f->info->name[0] && strcmp(call->model, f->info->name) == 0)
        return true;
    return sv_fail(err, 404, "model_not_found", "model", "there is no model '%.200s' here; this server runs '%s'",
                   call->model, f->alias);
}

static bool check_call(const struct sv_facts *f, const struct sv_call *call, struct sv_error *err)
{
    uint32_t n_choices = (call->n_prompts ? call->n_prompts : 1) * call->n;
    if (!check_model(f, call, err))
        return false;
    if (n_choices > f->queue)
        return sv_fail(err, 400, "too_many_choices", "n",
                       "%u answers are wanted, and this server lets %u requests wait (--queue)", n_choices, f->queue);
    if (call->n_top > f->info->n_vocab)
        return sv_fail(err, 400, "invalid_value", "logprobs",
                       "%u alternatives are wanted; the vocabulary has %u tokens", call->n_top, f->info->n_vocab);
    for (uint32_t i = 0; i < call->sampling.n_biases; i++)
        if (call->sampling.biases[i].id < 0 || (uint32_t)call->sampling.biases[i].id >= f->info->n_vocab)
            return sv_fail(err, 400, "invalid_value", "logit_bias", "token %d is outside the vocabulary of 0 to %u",
                           call->sampling.biases[i].id, f->info->n_vocab - 1);
    return true;
}

/* How long the answer may become; never cuts a prompt. */
static bool check_length(const struct sv_facts *f, const struct sv_call *call, const char *param, struct ready *r,
                         struct sv_error *err)
{
    uint64_t context = f->info->context_length;
    if (r->n_ids == 0)
        return sv_fail(err, 400, "empty_prompt", param, "the prompt is empty; it needs at least one token");
    if (call->has_max_tokens && r->n_ids + (uint64_t)call->max_tokens > context)
        return sv_fail(err, 400, "context_length_exceeded", param,
                       "the prompt has %zu tokens and max_tokens is %u, together %llu; the context of this model is "
                       "%llu tokens. Shorten the prompt, or lower max_tokens",
                       r->n_ids, call->max_tokens, (unsigned long long)(r->n_ids + (uint64_t)call->max_tokens),
                       (unsigned long long)context);
    if (!call->has_max_tokens && r->n_ids >= context)
        return sv_fail(err, 400, "context_length_exceeded", param,
                       "the prompt has %zu tokens; the context of this model is %llu tokens, which leaves no room "
                       "for an answer. Shorten the prompt",
                       r->n_ids, (unsigned long long)context);
    uint64_t room = context - r->n_ids;
    r->max_tokens = call->has_max_tokens ? call->max_tokens : (uint32_t)(room < f->max_tokens ? room : f->max_tokens);
    return true;
}

/* ---- tokens ---------------------------------------------------------------------------------------------------- */

/* Text of so many bytes may fit the context; tokenizing more would only hold up the others. UINT64_MAX = any. */
static uint64_t most_text(const struct sv_facts *f)
{
    uint64_t most;
    if (f->longest_token == 0 || __builtin_mul_overflow(f->info->context_length, f->longest_token, &most))
        return UINT64_MAX;
    return most;
}

static bool too_much_text(const struct sv_facts *f, const char *param, struct sv_error *err)
{
    return sv_fail(err, 400, "context_length_exceeded", param,
                   "the prompt has more than %llu bytes, which no tokens could bring into the context of this model, "
                   "%llu tokens. Shorten the prompt",
                   (unsigned long long)most_text(f), (unsigned long long)f->info->context_length);
}

static bool chat_tokens(const struct sv_facts *f, const struct sv_call *call, struct ready *r, struct sv_error *err)
{
    struct sennit_error e = {0};
    if (!f->info->chat_template)
        return sv_fail(err, 400, "no_chat_template", "messages",
                       "the model '%s' has no chat template; use /v1/completions", f->alias);
    const struct sennit_render_options options = {.most_bytes = most_text(f)};
    sv_json_watch();
    sennit_status st = sennit_chat_tokenize(f->model, call->vars_json, &options, &r->tokens, &e);
    if (sv_json_starved() || st == SENNIT_NOMEM)
        return no_memory(err);
    if (st == SENNIT_RANGE)
        return too_much_text(f, "messages", err);
    if (st != SENNIT_OK)
        return sv_fail_status(err, &e, "messages");
    r->ids = r->tokens.ids;
    r->n_ids = r->tokens.n_ids;
    return check_length(f, call, "messages", r, err);
}

static bool check_ids(const struct sv_facts *f, const struct ready *r, struct sv_error *err)
{
    for (size_t i = 0; i < r->n_ids; i++)
        if (r->ids[i] < 0 || (uint32_t)r->ids[i] >= f->info->n_vocab)
            return sv_fail(err, 400, "invalid_value", "prompt",
                           "token %zu of the prompt is %d; this vocabulary has 0 to %u", i, r->ids[i],
                           f->info->n_vocab - 1);
    return true;
}

static bool prompt_tokens(const struct sv_facts *f, const struct sv_call *call, const struct sv_prompt *prompt,
                          struct ready *r, struct sv_error *err)
{
    struct sennit_error e = {0};
    if (prompt->text) {
        if (prompt->n_text > most_text(f))
            return too_much_text(f, "prompt", err);
        uint32_t flags = SENNIT_TOKENIZE_BOS | (call->parse_special ? SENNIT_TOKENIZE_SPECIAL : 0u);
        if (sennit_tokenize(f->tokenizer, prompt->text, prompt->n_text, flags, &r->tokens, &e) != SENNIT_OK)
            return e.code == SENNIT_NOMEM ? no_memory(err) : sv_fail_status(err, &e, "prompt");
        r->ids = r->tokens.ids;
        r->n_ids = r->tokens.n_ids;
    } else {
        r->ids = prompt->ids;
        r->n_ids = prompt->n_ids;
        if (!check_ids(f, r, err))
            return false;
        if (call->echo && sennit_detokenize(f->tokenizer, r->ids, r->n_ids, true, &r->echo, &e) != SENNIT_OK)
            return e.code == SENNIT_NOMEM ? no_memory(err) : sv_fail_status(err, &e, "prompt");
    }
    return check_length(f, call, "prompt", r, err);
}

static bool all_tokens(const struct sv_facts *f, const struct sv_job *job, struct ready *ready, uint32_t n_ready,
                       struct sv_error *err)
{
    const struct sv_call *call = &job->call;
    if (call->endpoint == SV_CHAT)
        return chat_tokens(f, call, &ready[0], err);
    for (uint32_t i = 0; i < n_ready && !atomic_load(&job->abandoned); i++)
        if (!prompt_tokens(f, call, &call->prompts[i], &ready[i], err))
            return false;
    return true;
}

/* ---- answer and requests --------------------------------------------------------------------------------------- */

/* About the bytes of a token in an answer: its text; {"token":...,"logprob":...,"bytes":[...]} of an alternative. */
enum { TEXT_BYTES = 8, LOGPROB_BYTES = 96 };

/* An answer that is not streamed is kept until its last choice ends, however long the others have been there. */
static bool check_whole(const struct sv_call *call, const struct ready *ready, uint32_t n_ready, struct sv_error *err)
{
    uint64_t per_token = TEXT_BYTES + (call->logprobs ? LOGPROB_BYTES * (1 + (uint64_t)call->n_top) : 0), sum = 0;
    for (uint32_t i = 0; i < n_ready; i++) {
        uint64_t n = ready[i].max_tokens + (call->echo ? ready[i].n_ids : 0);
        sum += n * per_token * call->n; /* below 2^33 tokens, 2^11 bytes and 2^7 answers in all */
    }
    if (call->stream || sum <= SV_MOST_ANSWER_BYTES)
        return true;
    return sv_fail(err, 400, "answer_too_large", NULL,
                   "the answer may grow to about %llu MiB, and this server keeps at most %d MiB for one that is not "
                   "streamed. Stream it, or ask for fewer tokens (max_tokens), answers (n) or log-probabilities",
                   (unsigned long long)(sum >> 20), SV_MOST_ANSWER_BYTES >> 20);
}

/* 53 bits, which every JSON reader keeps exactly. */
static uint64_t draw_seed(void)
{
    uint64_t seed = 0;
    (void)!getrandom(&seed, sizeof seed, 0);
    return seed >> 11;
}

static bool make_answer(const struct sv_facts *f, struct sv_job *job, const struct ready *ready, uint32_t n_ready,
                        uint64_t seed, struct sv_error *err)
{
    const struct sv_call *call = &job->call;
    const struct sv_answer_options options = {
        .endpoint = call->endpoint,
        .stream = call->stream,
        .include_usage = call->include_usage,
        .echo = call->echo,
        .logprobs = call->logprobs,
        .id = job->id,
        .created = (int64_t)time(NULL),
        .model = f->alias,
        .fingerprint = f->fingerprint,
        .seed = seed,
        .tokenizer = f->tokenizer,
        .n_choices = n_ready * call->n,
        .n_per_prompt = call->n,
    };
    job->answer = sv_answer_create(&options);
    job->choices = sv_calloc(options.n_choices, sizeof *job->choices);
    if (!job->answer || !job->choices)
        return no_memory(err);
    job->n_choices = options.n_choices;
    for (uint32_t i = 0; i < n_ready; i++) {
        const struct sv_prompt *p = call->endpoint == SV_CHAT ? NULL : &call->prompts[i];
        const char *echo = !call->echo || !p ? NULL : p->text ? p->text : ready[i].echo.data;
        sv_answer_prompt(job->answer, i, ready[i].ids, ready[i].n_ids, echo,
                         !echo     ? 0
                         : p->text ? p->n_text
                                   : ready[i].echo.n_bytes);
    }
    return sv_answer_failed(job->answer) ? no_memory(err) : true;
}

static bool refused(const struct sennit_error *e, struct sv_error *err)
{
    switch (e->code) {
    case SENNIT_BUSY:
        sv_fail(err, 429, "queue_full", NULL, "as many requests are waiting as may (--queue); try again");
        err->retry_after = 1;
        return false;
    case SENNIT_TOO_BIG:
        return sv_fail(err, 400, "cache_budget_exceeded", NULL, "%s", e->message);
    case SENNIT_NOMEM:
        return no_memory(err);
    case SENNIT_STATE:
        return sv_fail(err, 503, "engine_failed", NULL, "the engine takes no requests: %s", e->message);
    default:
        return sv_fail_status(err, e, NULL);
    }
}

static struct sennit_request_options request_options(const struct sv_call *call, const struct ready *r, uint64_t seed)
{
    struct sennit_request_options o = {
        .prompt = r->ids,
        .n_prompt = r->n_ids,
        .max_tokens = r->max_tokens,
        .sampling = call->sampling,
        .stop = (const char *const *)call->stop,
        .n_stop = call->n_stop,
        .ignore_eos = call->ignore_eos,
        .n_logprobs = call->n_top,
        .want_logprob = call->logprobs,
        .prompt_logprobs = call->echo && call->logprobs,
    };
    o.sampling.seed = seed;
    o.sampling.choice = 0;
    return o;
}

/* The answers to one prompt. A prompt whose own log-probabilities are wanted is read once per answer: the engine
 * shares such a prompt with nobody. */
static bool submit_prompt(const struct sv_facts *f, const struct sv_call *call, const struct ready *r, uint64_t seed,
                          struct sv_choice *choices, struct sv_error *err)
{
    struct sennit_request_options o = request_options(call, r, seed);
    struct sennit_request *requests[SV_MOST_CHOICES] = {0};
    struct sennit_error e = {0};
    bool together = !o.prompt_logprobs;
    sennit_status st = SENNIT_OK;
    if (together)
        st = sennit_engine_submit_n(f->engine, &o, call->n, requests, &e);
    for (uint32_t i = 0; !together && st == SENNIT_OK && i < call->n; i++) {
        o.sampling.choice = i;
        st = sennit_engine_submit(f->engine, &o, &requests[i], &e);
    }
    for (uint32_t i = 0; i < call->n; i++)
        choices[i].request = together && st != SENNIT_OK ? NULL : requests[i];
    return st == SENNIT_OK ? true : refused(&e, err);
}

/* All prompts or none. */
static bool submit_all(const struct sv_facts *f, struct sv_job *job, const struct ready *ready, uint32_t n_ready,
                       uint64_t seed, struct sv_error *err)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < n_ready; i++)
        ok = submit_prompt(f, &job->call, &ready[i], seed, job->choices + i * job->call.n, err);
    for (uint32_t i = 0; !ok && i < job->n_choices; i++) {
        sennit_request_free(job->choices[i].request);
        job->choices[i].request = NULL;
    }
    return ok;
}

/* ---- the whole ------------------------------------------------------------------------------------------------- */

static void keep_prompt(struct sv_job *job)
{
    const struct sv_call *call = &job->call;
    const char *text = call->endpoint == SV_CHAT ? call->vars_json : call->n_prompts ? call->prompts[0].text : NULL;
    size_t n = !text ? 0 : call->endpoint == SV_CHAT ? strlen(text) : call->prompts[0].n_text;
    job->prompt_text = text ? sv_copy(text, n) : NULL; /* without memory the log goes without */
    job->n_prompt_text = job->prompt_text ? n : 0;
}

static bool prepare(const struct sv_facts *f, struct sv_job *job, struct ready *ready, uint32_t n_ready)
{
    const struct sv_call *call = &job->call;
    struct sv_error *err = &job->error;
    uint64_t seed = call->has_seed ? call->seed : draw_seed();
    if (!all_tokens(f, job, ready, n_ready, err))
        return false;
    if (atomic_load(&job->abandoned))
        return true;
    return check_whole(call, ready, n_ready, err) && make_answer(f, job, ready, n_ready, seed, err) &&
           submit_all(f, job, ready, n_ready, seed, err);
}

static bool read_and_prepare(const struct sv_facts *f, struct sv_job *job)
{
    struct sv_call *call = &job->call;
    if (!sv_call_parse(job->endpoint, job->body ? job->body : "", job->n_body, f->developer_role, call, &job->error))
        return false;
    job->stream = call->stream;
    if (f->keep_prompts)
        keep_prompt(job);
    if (!check_call(f, call, &job->error))
        return false;
    uint32_t n_ready = call->endpoint == SV_CHAT ? 1 : call->n_prompts;
    struct ready *ready = sv_calloc(n_ready ? n_ready : 1, sizeof *ready);
    if (!ready)
        return no_memory(&job->error);
    bool ok = prepare(f, job, ready, n_ready);
    for (uint32_t i = 0; i < n_ready; i++) {
        sennit_tokens_free(&ready[i].tokens);
        sennit_text_free(&ready[i].echo);
    }
    sv_free(ready);
    return ok;
}

/* What a large body has left free in between would stay with the process. */
static void give_memory_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void sv_prepare_job(const struct sv_facts *f, struct sv_job *job)
{
    if (atomic_load(&job->abandoned))
        return;
    if (!read_and_prepare(f, job))
        job->failed = true;
    sv_call_release(&job->call);
    if (job->n_body > LARGE_BODY)
        give_memory_back();
}
