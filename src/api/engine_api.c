/* The engine's public functions that check arguments: validate, then call inward. */
#include "cache/external.h"
#include "sched/engine.h"
#include "sennit/family.h"
#include "text/utf8.h"

enum { DEFAULT_ROWS = 16, MOST_ROWS = 4096, DEFAULT_CHUNK = 512, MOST_STEP_TOKENS = 1 << 20 };

static sennit_status resolve_isa(const char *name, enum sn_isa *out, struct sennit_error *err)
{
    struct sn_cpu cpu = sn_cpu_detect();
    *out = sn_isa_best(&cpu);
    if (!name)
        return SENNIT_OK;
    if (!sn_isa_parse(name, out))
        return sn_fail(err, SENNIT_INVALID, "unknown instruction set '%s'; use scalar, avx2 or avx512", name);
    if (!sn_isa_available(&cpu, *out))
        return sn_fail(err, SENNIT_UNSUPPORTED, "this CPU does not have %s; its best is %s", name,
                       sn_isa_name(sn_isa_best(&cpu)));
    return SENNIT_OK;
}

/* The library's own copy of a family's name: the caller's string ends with the call, the engine asks for it at every
 * admission. An unknown name is refused when the first cache is made. */
static const char *lasting_name(const char *family)
{
    for (const char *const *f = sennit_cache_families(); *f; f++)
        if (strcmp(*f, family) == 0)
            return *f;
    return family;
}

static bool has_code(const struct sennit_engine_options *o)
{
    return o->kv_code.k_bits || o->kv_code.v_bits || o->kv_code.group;
}

/* One of the library's: with types or with codes, as its entry says. */
static sennit_status resolve_own_family(const struct sennit_engine_options *o, struct sn_engine_config *c,
                                        struct sennit_error *err)
{
    struct sennit_cache_family_info info;
    bool coded = has_code(o);
    c->cache_family = lasting_name(o->cache_family ? o->cache_family : "plain");
    SN_TRY(sennit_cache_family_info(c->cache_family, &info, err));
    if (!(info.fields & SENNIT_FIELDS_CODE) && coded)
        return sn_fail(err, SENNIT_INVALID, "kv_code means nothing to the cache family '%s'; leave it 0", info.name);
    if (info.fields & SENNIT_FIELDS_TYPES)
        return SENNIT_OK;
    if (o->kv_type_set)
        return sn_fail(err, SENNIT_INVALID,
                       "kv_type means nothing to the cache family '%s'; leave kv_type_set false, and say kv_code",
                       info.name);
    c->kv_type = (sennit_type)0;
    c->k_bits = coded ? o->kv_code.k_bits : info.example->code.k_bits;
    c->v_bits = coded ? o->kv_code.v_bits : info.example->code.v_bits;
    c->group = coded ? o->kv_code.group : info.example->code.group;
    return SENNIT_OK;
}

/* Family and type of the caches; an external family may have no types. */
static sennit_status resolve_family(const struct sennit_engine_options *o, struct sn_engine_config *c,
                                    struct sennit_error *err)
{
    const struct sennit_family *external = o->cache_external;
    c->kv_type = o->kv_type_set ? o->kv_type : SENNIT_F16;
    if (!external)
        return resolve_own_family(o, c, err);
    SN_TRY(sn_external_check(external, err));
    if (o->cache_family && strcmp(o->cache_family, external->name) != 0)
        return sn_fail(
            err, SENNIT_INVALID,
            "cache_family is '%s' and cache_external is '%s'; leave cache_family NULL, or make it the same",
            o->cache_family, external->name);
    if (!(external->fields & SENNIT_FIELDS_CODE) && has_code(o))
        return sn_fail(err, SENNIT_INVALID, "kv_code means nothing to the cache family '%s'; leave it 0",
                       external->name);
    c->cache_external = external;
    c->cache_family = external->name;
    c->k_bits = o->kv_code.k_bits;
    c->v_bits = o->kv_code.v_bits;
    c->group = o->kv_code.group;
    if (external->fields & SENNIT_FIELDS_TYPES)
        return SENNIT_OK;
    if (o->kv_type_set)
        return sn_fail(err, SENNIT_INVALID, "kv_type means nothing to the cache family '%s'; leave kv_type_set false",
                       external->name);
    c->kv_type = (sennit_type)0; /* none: what a configuration holds that names no type */
    return SENNIT_OK;
}

static sennit_status resolve_sizes(const struct sennit_engine_options *o, struct sn_engine_config *c,
                                   struct sennit_error *err)
{
    c->n_threads = o->n_threads ? o->n_threads : (uint32_t)sn_cpu_count();
    c->max_rows = o->max_rows ? o->max_rows : DEFAULT_ROWS;
    c->chunk = o->chunk ? o->chunk : DEFAULT_CHUNK;
    if (c->n_threads > 1024)
        return sn_fail(err, SENNIT_INVALID, "n_threads is %u; at most 1024 are possible", c->n_threads);
    if (c->max_rows > MOST_ROWS)
        return sn_fail(err, SENNIT_INVALID, "max_rows is %u; at most %d are possible", c->max_rows, MOST_ROWS);
    if (c->chunk > MOST_STEP_TOKENS)
        return sn_fail(err, SENNIT_INVALID, "chunk is %u; at most %d are possible", c->chunk, MOST_STEP_TOKENS);
    c->step_tokens = o->step_tokens ? o->step_tokens : c->max_rows + c->chunk;
    if (c->step_tokens < c->max_rows || c->step_tokens > 2 * MOST_STEP_TOKENS)
        return sn_fail(
            err, SENNIT_INVALID,
            "step_tokens is %u; it must be at least max_rows (%u), so that every row can move, and at most %d",
            c->step_tokens, c->max_rows, 2 * MOST_STEP_TOKENS);
    if (c->chunk > c->step_tokens)
        c->chunk = c->step_tokens;
    return SENNIT_OK;
}

/* Only builds for tests can fail on purpose. */
static sennit_status resolve_faults(const struct sennit_engine_options *o, struct sn_engine_config *c,
                                    struct sennit_error *err)
{
#ifdef SENNIT_TEST_HOOKS
    (void)err;
    c->fail_at_step = o->test.fail_at_step;
    c->stall_at_step = o->test.stall_at_step;
    c->stall_ms = o->test.stall_ms;
#else
    (void)c;
    if (o->test.fail_at_step || o->test.stall_at_step || o->test.stall_ms)
        return sn_fail(err, SENNIT_UNSUPPORTED,
                       "this library was built without test hooks (SENNIT_TEST_HOOKS); it cannot fail on purpose");
#endif
    return SENNIT_OK;
}

sennit_status sennit_engine_create(struct sennit_engine **out, const struct sennit_model *model,
                                   const struct sennit_engine_options *options, struct sennit_error *err)
{
    if (!out || !model)
        return sn_fail(err, SENNIT_INVALID, "out and model must not be NULL");
    struct sennit_engine_options o = options ? *options : (struct sennit_engine_options){0};
    struct sn_engine_config c = {
        .log = o.logger,
        .allocator = o.allocator,
        .pin = !o.no_pin,
        .max_waiting = o.max_waiting,
        .notify = o.notify,
        .notify_ctx = o.notify_ctx,
    };
    SN_TRY(resolve_family(&o, &c, err));
    SN_TRY(resolve_faults(&o, &c, err));
    SN_TRY(resolve_isa(o.isa, &c.isa, err));
    SN_TRY(resolve_sizes(&o, &c, err));
    c.cache_bytes = o.cache_bytes ? o.cache_bytes : sn_memory_available() / 2;
    if (c.cache_bytes == 0)
        return sn_fail(err, SENNIT_INVALID, "the available memory cannot be read here; set cache_bytes");
    return sn_engine_create(out, model, &c, err);
}

static sennit_status check_prompt(const struct sennit_engine *e, const struct sennit_request_options *o,
                                  struct sennit_error *err)
{
    const struct sn_hparams *hp = &e->m->hp;
    if (!o->prompt || o->n_prompt == 0)
        return sn_fail(err, SENNIT_INVALID, "the prompt is empty; it needs at least one token");
    for (size_t i = 0; i < o->n_prompt; i++)
        if (o->prompt[i] < 0 || (uint32_t)o->prompt[i] >= hp->n_vocab)
            return sn_fail(err, SENNIT_INVALID, "prompt token %zu is %d; this vocabulary has 0 to %u", i,
                           o->prompt[i], hp->n_vocab - 1);
    for (uint32_t i = 0; o->forced && i < o->max_tokens; i++)
        if (o->forced[i] < 0 || (uint32_t)o->forced[i] >= hp->n_vocab)
            return sn_fail(err, SENNIT_INVALID, "forced token %u is %d; this vocabulary has 0 to %u", i, o->forced[i],
                           hp->n_vocab - 1);
    if (o->n_prompt > hp->context_length || o->max_tokens > hp->context_length - o->n_prompt)
        return sn_fail(err, SENNIT_RANGE,
                       "%zu prompt tokens and %u more do not fit the context of %llu; shorten the prompt or lower "
                       "max_tokens",
                       o->n_prompt, o->max_tokens, (unsigned long long)hp->context_length);
    return SENNIT_OK;
}

static sennit_status check_request(const struct sennit_engine *e, const struct sennit_request_options *o,
                                   struct sennit_error *err)
{
    SN_TRY(check_prompt(e, o, err));
    if (o->n_logprobs > SN_MAX_LOGPROBS || o->n_logprobs > e->m->hp.n_vocab)
        return sn_fail(err, SENNIT_INVALID,
                       "n_logprobs is %u; at most %d and no more than the vocabulary are possible", o->n_logprobs,
                       SN_MAX_LOGPROBS);
    for (uint32_t i = 0; i < o->n_stop; i++)
        if (!o->stop || !o->stop[i] || o->stop[i][0] == '\0')
            return sn_fail(err, SENNIT_INVALID, "stop string %u is empty", i);
    for (uint32_t i = 0; i < o->n_stop; i++)
        if (sn_utf8_valid_prefix(o->stop[i], strlen(o->stop[i])) != strlen(o->stop[i]))
            return sn_fail(err, SENNIT_INVALID, "stop string %u is not UTF-8; it could cut a character in two", i);
    if (o->sampling.n_biases && !o->sampling.biases)
        return sn_fail(err, SENNIT_INVALID, "n_biases is %u, but biases is NULL", o->sampling.n_biases);
    if (o->session && o->session->engine != e)
        return sn_fail(err, SENNIT_INVALID, "the session belongs to another engine");
    if (o->session && o->prompt_logprobs)
        return sn_fail(err, SENNIT_INVALID,
                       "prompt_logprobs with a session: the tokens that the session holds are not read again");
    return SENNIT_OK;
}

static sennit_status check_group(const struct sennit_request_options *o, uint32_t n, struct sennit_error *err)
{
    if (n == 0)
        return sn_fail(err, SENNIT_INVALID, "n is 0; at least one answer must be asked for");
    if (n == 1)
        return SENNIT_OK;
    if (o->forced || o->session || o->prompt_logprobs)
        return sn_fail(err, SENNIT_INVALID, "%s with %u answers to one prompt; it is for a single one",
                       o->forced    ? "forced"
                       : o->session ? "a session"
                                    : "prompt_logprobs",
                       n);
    if (n - 1 > UINT32_MAX - o->sampling.choice)
        return sn_fail(err, SENNIT_INVALID, "choice %u and %u after it are above %u", o->sampling.choice, n - 1,
                       UINT32_MAX);
    return SENNIT_OK;
}

/* group: whether its prompt will be shared, so that the reader promises the room of a snapshot too. */
static sennit_status check_size(const struct sennit_engine *e, const struct sennit_request_options *o, bool group,
                                struct sennit_error *err)
{
    uint64_t need = sn_request_need(e, o), shared = group ? sn_engine_projected(e, o->n_prompt - 1) : 0;
    if (__builtin_add_overflow(need, shared, &need))
        need = UINT64_MAX;
    if (sn_admit(need, 0, e->cfg.cache_bytes, 0, 1) != SN_NEVER)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_TOO_BIG,
                   "%zu prompt tokens and %u more need %llu bytes for caches and answer; the whole budget is %llu "
                   "bytes. Raise the cache budget, or ask for less",
                   o->n_prompt, o->max_tokens, (unsigned long long)need, (unsigned long long)e->cfg.cache_bytes);
}

static sennit_status make_requests(struct sennit_engine *e, const struct sennit_request_options *o, uint32_t n,
                                   struct sn_group *group, struct sennit_request **out, struct sennit_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        SN_TRY(sn_request_create(&out[i], e, o, err));
        out[i]->sampling.choice += i;
        out[i]->need = sn_request_need(e, o);
        out[i]->group = group;
    }
    return sn_sampling_check(&out[0]->sampling, e->m->hp.n_vocab, err);
}

sennit_status sennit_engine_submit_n(struct sennit_engine *e, const struct sennit_request_options *o, uint32_t n,
                                     struct sennit_request **out, struct sennit_error *err)
{
    struct sn_group *group = NULL;
    if (!e || !o || !out)
        return sn_fail(err, SENNIT_INVALID, "engine, options and out must not be NULL");
    SN_TRY(check_group(o, n, err));
    SN_TRY(check_request(e, o, err));
    bool shares = n > 1 && o->n_prompt > 1 && o->max_tokens > 0;
    SN_TRY(check_size(e, o, shares, err));
    memset(out, 0, n * sizeof *out);
    sennit_status st = shares ? sn_group_create(&group, e, n, o->n_prompt, err) : SENNIT_OK;
    if (st == SENNIT_OK)
        st = make_requests(e, o, n, group, out, err);
    if (st == SENNIT_OK)
        st = sn_engine_enqueue(e, out, n, o->session, err);
    if (st == SENNIT_OK)
        return SENNIT_OK;
    for (uint32_t i = 0; i < n && out[i]; i++) {
        sn_request_destroy(out[i]);
        out[i] = NULL;
    }
    sn_group_free(e, group);
    return st;
}

sennit_status sennit_engine_submit(struct sennit_engine *e, const struct sennit_request_options *o,
                                   struct sennit_request **out, struct sennit_error *err)
{
    struct sennit_request *r;
    if (!out)
        return sn_fail(err, SENNIT_INVALID, "engine, options and out must not be NULL");
    SN_TRY(sennit_engine_submit_n(e, o, 1, &r, err));
    *out = r;
    return SENNIT_OK;
}

sennit_status sennit_engine_step(struct sennit_engine *e, bool *worked, struct sennit_error *err)
{
    if (!e || !worked)
        return sn_fail(err, SENNIT_INVALID, "engine and worked must not be NULL");
    pthread_mutex_lock(&e->lock);
    bool other = e->has_thread && !e->failed;
    pthread_mutex_unlock(&e->lock);
    if (other)
        return sn_fail(err, SENNIT_STATE, "the engine's own thread makes its steps; stop it first");
    return sn_engine_step(e, worked, err);
}
