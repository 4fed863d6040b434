/* Making, running and freeing an engine. */
#include "sched/engine.h"

#include <errno.h>
#include <time.h>

struct sennit_cache_config sn_engine_cache_config(const struct sennit_engine *e, uint32_t layer)
{
    struct sennit_cache_config c = sn_model_cache_config(e->m, layer, e->cfg.cache_family, e->cfg.kv_type);
    c.max_tokens = e->m->hp.context_length;
    c.max_span = e->cfg.chunk;
    c.external = e->cfg.cache_external;
    c.code.k_bits = e->cfg.k_bits;
    c.code.v_bits = e->cfg.v_bits;
    c.code.group = e->cfg.group;
    return c;
}

uint64_t sn_engine_projected(const struct sennit_engine *e, uint64_t tokens)
{
    uint64_t sum = 0;
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++)
        if (__builtin_add_overflow(sum, sennit_cache_projected_bytes(e->proto[l], tokens), &sum))
            return UINT64_MAX; /* a family's own answer when it cannot be counted */
    return sum;
}

uint64_t sn_engine_row_projected(const struct sennit_engine *e, uint64_t tokens)
{
    return sn_engine_projected(e, e->shares_columns ? 2 * (uint64_t)e->m->hp.context_length : tokens);
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

static void dispose_layers(struct sennit_engine *e, struct sennit_cache **layers)
{
    uint32_t n = e->m->hp.n_layers;
    for (uint32_t l = 0; layers && l < n; l++)
        sennit_cache_dispose(&layers[l]);
    sn_free(&e->heap, SN_USE_MISC, layers, n * sizeof(struct sennit_cache *));
}

/* Frees what the steps need; requests and sessions keep only the engine's heap and lock. */
static void release_machine(struct sennit_engine *e)
{
    uint32_t n_rows = e->cfg.max_rows, n_threads = e->cfg.n_threads;
    struct sn_heap *h = &e->heap;
    dispose_layers(e, e->layers);
    dispose_layers(e, e->fresh);
    dispose_layers(e, e->proto);
    sn_forward_free(e->forward);
    for (uint32_t i = 0; e->samplers && i < n_threads; i++)
        sn_sampler_release(&e->samplers[i]);
    sn_free(h, SN_USE_SCRATCH, e->samplers, n_threads * sizeof *e->samplers);
    if (e->pages)
        sennit_pool_free(e->pages);
    sn_pool_destroy(e->threads);
    sn_free(h, SN_USE_MISC, e->calls, n_threads * sizeof *e->calls);
    sn_free(h, SN_USE_MISC, e->rows, n_rows * sizeof *e->rows);
    sn_free(h, SN_USE_MISC, e->wants, n_rows * sizeof *e->wants);
    sn_free(h, SN_USE_MISC, e->span_tokens, n_rows * sizeof *e->span_tokens);
    sn_free(h, SN_USE_MISC, e->spans, n_rows * sizeof *e->spans);
    sn_free(h, SN_USE_MISC, e->last_step, n_rows * sizeof *e->last_step);
    sn_free(h, SN_USE_MISC, e->keep, n_rows * sizeof *e->keep);
    sn_free(h, SN_USE_MISC, e->gone, n_rows * sizeof *e->gone);
    sn_free(h, SN_USE_MISC, e->uses, SN_K_COUNT * sizeof *e->uses);
    sn_free(h, SN_USE_MISC, e->use_calls, (size_t)SN_K_COUNT * n_threads * sizeof *e->use_calls);
}

static void free_last(struct sennit_engine *e)
{
    pthread_cond_destroy(&e->wake);
    pthread_mutex_destroy(&e->lock);
    struct sennit_allocator host = e->heap.host;
    host.fn(host.ctx, e, sizeof *e, 0);
}

void sn_engine_unref_locked(struct sennit_engine *e)
{
    bool last = --e->n_refs == 0;
    pthread_mutex_unlock(&e->lock);
    if (last)
        free_last(e);
}

static sennit_status make_layers(struct sennit_engine *e, struct sennit_error *err)
{
    uint32_t n = e->m->hp.n_layers;
    e->layers = sn_calloc(&e->heap, SN_USE_MISC, n, sizeof(struct sennit_cache *));
    e->fresh = sn_calloc(&e->heap, SN_USE_MISC, n, sizeof(struct sennit_cache *));
    e->proto = sn_calloc(&e->heap, SN_USE_MISC, n, sizeof(struct sennit_cache *));
    if (!e->layers || !e->fresh || !e->proto)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the caches of %u layers", n);
    struct sennit_cache_family_info info;
    if (!e->cfg.cache_external && sennit_cache_family_info(e->cfg.cache_family, &info, NULL) == SENNIT_OK)
        e->shares_columns = info.left_pads;
    for (uint32_t l = 0; l < n; l++) {
        struct sennit_cache_config c = sn_engine_cache_config(e, l);
        SN_TRY(sennit_cache_create(&e->layers[l], e->pages, &c, 0, err));
        SN_TRY(sennit_cache_create(&e->proto[l], e->pages, &c, 0, err));
    }
    return SENNIT_OK;
}

static sennit_status make_arrays(struct sennit_engine *e, struct sennit_error *err)
{
    uint32_t n = e->cfg.max_rows, n_threads = e->cfg.n_threads;
    struct sn_heap *h = &e->heap;
    e->rows = sn_calloc(h, SN_USE_MISC, n, sizeof *e->rows);
    e->wants = sn_calloc(h, SN_USE_MISC, n, sizeof *e->wants);
    e->span_tokens = sn_calloc(h, SN_USE_MISC, n, sizeof *e->span_tokens);
    e->spans = sn_calloc(h, SN_USE_MISC, n, sizeof *e->spans);
    e->last_step = sn_calloc(h, SN_USE_MISC, n, sizeof *e->last_step);
    e->keep = sn_calloc(h, SN_USE_MISC, n, sizeof *e->keep);
    e->gone = sn_calloc(h, SN_USE_MISC, n, sizeof *e->gone);
    e->uses = sn_calloc(h, SN_USE_MISC, SN_K_COUNT, sizeof *e->uses);
    e->use_calls = sn_calloc(h, SN_USE_MISC, (size_t)SN_K_COUNT * n_threads, sizeof *e->use_calls);
    if (!e->rows || !e->wants || !e->span_tokens || !e->spans || !e->last_step || !e->keep || !e->gone || !e->uses ||
        !e->use_calls)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %u rows", n);
    return SENNIT_OK;
}

static sennit_status make_machine(struct sennit_engine *e, struct sennit_error *err)
{
    const struct sn_engine_config *c = &e->cfg;
    struct sn_cpu cpu = sn_cpu_detect();
    SN_TRY(sn_kernels_init(&e->kernels, c->isa, &cpu, err));
    e->calls = sn_calloc(&e->heap, SN_USE_MISC, c->n_threads, sizeof *e->calls);
    e->samplers = sn_calloc(&e->heap, SN_USE_SCRATCH, c->n_threads, sizeof *e->samplers);
    if (!e->calls || !e->samplers)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %u threads", c->n_threads);
    SN_TRY(sn_pool_create(&e->threads, &e->heap, (int)c->n_threads, c->pin, err));
    SN_TRY(sn_cache_pool_create_on(&e->pages, &e->heap, &e->kernels, e->calls, c->n_threads, err));
    for (uint32_t i = 0; i < c->n_threads; i++)
        SN_TRY(sn_sampler_init(&e->samplers[i], &e->heap, e->m->hp.n_vocab, err));
    SN_TRY(make_arrays(e, err));
    SN_TRY(make_layers(e, err));
    uint32_t n_logits = c->max_rows + SN_SPARE_LOGITS; /* a step has no more of them than tokens */
    return sn_forward_create(&e->forward, &e->heap, e->m, &e->kernels, e->threads, e->calls, c->step_tokens,
                             n_logits < c->step_tokens ? n_logits : c->step_tokens, err);
}

static void log_in_force(const struct sennit_engine *e)
{
    const struct sn_engine_config *c = &e->cfg;
    sn_log(&c->log, SENNIT_LOG_INFO,
           "engine: %s, %u threads, %u rows, chunks of %u, steps of %u tokens, %s cache in %s, budget %llu bytes",
           sn_isa_name(c->isa), c->n_threads, c->max_rows, c->chunk, c->step_tokens, c->cache_family,
           sennit_cache_dtype(e->proto[0]), (unsigned long long)c->cache_bytes);
}

sennit_status sn_engine_create(struct sennit_engine **out, const struct sennit_model *m,
                               const struct sn_engine_config *cfg, struct sennit_error *err)
{
    struct sn_heap heap;
    sn_heap_init(&heap, &cfg->allocator);
    struct sennit_engine *e = sn_calloc(&heap, SN_USE_MISC, 1, sizeof *e);
    if (!e)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the engine");
    sn_heap_init(&e->heap, &cfg->allocator);
    e->cfg = *cfg;
    e->m = m;
    e->n_refs = 1;
    e->waiting_end = &e->waiting;
    e->inbox_end = &e->inbox;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->wake, &attr);
    pthread_condattr_destroy(&attr);
    sennit_status st = make_machine(e, err);
    if (st != SENNIT_OK) {
        release_machine(e);
        free_last(e);
        return st;
    }
    log_in_force(e);
    *out = e;
    return SENNIT_OK;
}

/* Sessions end with the engine: their state goes now, their handles when the user frees them. */
static void end_sessions(struct sennit_engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->closed = true;
    while (e->sessions) {
        struct sennit_session *s = e->sessions;
        e->sessions = s->next;
        sn_session_drop_state(e, s);
        if (s->released) {
            sn_free(&e->heap, SN_USE_MISC, s, sizeof *s);
            e->n_refs--;
        }
    }
    pthread_mutex_unlock(&e->lock);
}

void sennit_engine_free(struct sennit_engine *e)
{
    if (!e)
        return;
    sennit_engine_stop(e, true);
    sn_engine_cancel_all(e);
    end_sessions(e);
    release_machine(e);
    pthread_mutex_lock(&e->lock);
    sn_engine_unref_locked(e);
}

/* ---- running --------------------------------------------------------------------------------------------------- */

static bool has_work(const struct sennit_engine *e) /* under the lock */
{
    return e->inbox || e->poked || e->n_rows || e->waiting;
}

bool sennit_engine_wait(struct sennit_engine *e, int timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (timeout_ms > 0) {
        long ns = until.tv_nsec + (long)(timeout_ms % 1000) * 1000000;
        until.tv_sec += timeout_ms / 1000 + ns / 1000000000;
        until.tv_nsec = ns % 1000000000;
    }
    pthread_mutex_lock(&e->lock);
    while (!has_work(e) && !e->stop_thread && !e->failed && timeout_ms != 0) {
        if (timeout_ms < 0)
            pthread_cond_wait(&e->wake, &e->lock);
        else if (pthread_cond_timedwait(&e->wake, &e->lock, &until) == ETIMEDOUT)
            break;
    }
    bool work = has_work(e) || e->failed; /* a step tells the failure */
    pthread_mutex_unlock(&e->lock);
    return work;
}

static bool should_stop(struct sennit_engine *e)
{
    pthread_mutex_lock(&e->lock);
    bool stop = e->stop_thread && (e->stop_now || !has_work(e));
    pthread_mutex_unlock(&e->lock);
    return stop;
}

static void *engine_thread(void *arg)
{
    struct sennit_engine *e = arg;
    pthread_setname_np(pthread_self(), "sn-engine");
    while (!should_stop(e)) {
        bool worked;
        if (sn_engine_step(e, &worked, NULL) != SENNIT_OK)
            break;
        if (!worked)
            sennit_engine_wait(e, -1);
    }
    pthread_mutex_lock(&e->lock);
    e->thread_lives = false;
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

sennit_status sennit_engine_start(struct sennit_engine *e, struct sennit_error *err)
{
    if (!e)
        return sn_fail(err, SENNIT_INVALID, "engine must not be NULL");
    pthread_mutex_lock(&e->lock);
    sennit_status st = SENNIT_OK;
    if (e->failed)
        st = sn_engine_failed_locked(e, err);
    else if (e->has_thread)
        st = sn_fail(err, SENNIT_STATE, "the engine has its thread already");
    if (st == SENNIT_OK) {
        e->stop_thread = e->stop_now = false;
        int rc = pthread_create(&e->thread, NULL, engine_thread, e);
        if (rc != 0)
            st = sn_fail(err, SENNIT_IO, "cannot start the engine's thread: %s", strerror(rc));
        e->has_thread = e->thread_lives = rc == 0;
    }
    pthread_mutex_unlock(&e->lock);
    return st;
}

void sennit_engine_stop(struct sennit_engine *e, bool cancel)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    bool has_thread = e->has_thread;
    e->stop_thread = has_thread;
    e->stop_now = cancel;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
    if (!has_thread)
        return;
    pthread_join(e->thread, NULL);
    pthread_mutex_lock(&e->lock);
    e->has_thread = false;
    e->stop_thread = false;
    pthread_mutex_unlock(&e->lock);
    if (cancel)
        sn_engine_cancel_all(e);
}

/* ---- what was in force ----------------------------------------------------------------------------------------- */

const struct sennit_stats *sennit_engine_stats(struct sennit_engine *e)
{
    struct sennit_stats *s = &e->stats;
    const struct sn_engine_config *c = &e->cfg;
    s->isa = sn_isa_name(c->isa);
    s->n_threads = c->n_threads;
    s->max_rows = c->max_rows;
    s->chunk = c->chunk;
    s->step_tokens = c->step_tokens;
    s->cache_family = c->cache_family;
    s->kv_type = sennit_cache_dtype(e->proto[0]);
    s->cache_budget = c->cache_bytes;
    s->cache_reserved = e->reserved;
    s->cache_bytes = sennit_pool_bytes(e->pages);
    s->cache_bytes_per_token = 0;
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++)
        s->cache_bytes_per_token += sennit_cache_bytes_per_token(e->proto[l]);
    s->rows_running = e->n_rows;
    pthread_mutex_lock(&e->lock);
    s->rows_waiting = e->n_waiting;
    pthread_mutex_unlock(&e->lock);
    s->heap_bytes = atomic_load(&e->heap.total);
    s->heap_peak = atomic_load(&e->heap.peak);
    s->kernels = e->uses;
    s->n_kernels = 0;
    for (int id = 0; id < SN_K_COUNT; id++) {
        uint64_t *calls = e->use_calls + (size_t)s->n_kernels * c->n_threads, sum = 0;
        for (uint32_t t = 0; t < c->n_threads; t++)
            sum += calls[t] = e->calls[t].n[id];
        if (sum == 0)
            continue;
        e->uses[s->n_kernels++] = (struct sennit_kernel_use){.kernel = sn_kernel_name((enum sn_kernel_id)id),
                                                             .variant = e->kernels.variant[id],
                                                             .calls = calls};
    }
    return s;
}

uint32_t sennit_engine_last_step(const struct sennit_engine *e, const struct sennit_step_span **spans)
{
    *spans = e->last_step;
    return e->n_last;
}
