/* What any thread may know of an engine at any time, who is told that there is news, and how an engine fails. */
#include "sched/engine.h"

#include <time.h>

uint64_t sn_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t sn_now_ms(void) { return sn_now_ns() / 1000000; }

/* ---- figures --------------------------------------------------------------------------------------------------- */

void sn_engine_publish(struct sennit_engine *e)
{
    uint64_t cache_bytes = sennit_pool_bytes(e->pages), now = sn_now_ms();
    pthread_mutex_lock(&e->lock);
    struct sennit_load *l = &e->load;
    l->rows_running = e->n_rows;
    l->cache_reserved = e->reserved;
    l->cache_sessions = e->held;
    l->cache_bytes = cache_bytes;
    l->n_steps = e->stats.n_steps;
    l->n_prompt_tokens = e->n_prompt_tokens;
    l->n_answer_tokens = e->n_answer_tokens;
    e->last_ms = now;
    pthread_mutex_unlock(&e->lock);
    bool told = e->told;
    e->told = false;
    if (told && e->cfg.notify)
        e->cfg.notify(e->cfg.notify_ctx);
}

/* Requests that have no END yet. Under the lock. */
static uint64_t n_open(const struct sennit_load *l)
{
    uint64_t n = l->n_requests;
    for (size_t i = 0; i < SN_ARRAY_LEN(l->n_finished); i++)
        n -= l->n_finished[i];
    return n;
}

void sn_engine_count_request_locked(struct sennit_engine *e)
{
    if (n_open(&e->load) == 0)
        e->work_ms = sn_now_ms();
    e->load.n_requests++;
}

void sennit_engine_load(struct sennit_engine *e, struct sennit_load *out)
{
    if (!out)
        return;
    *out = (struct sennit_load){0};
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    *out = e->load;
    out->rows_waiting = e->n_waiting;
    out->max_rows = e->cfg.max_rows;
    out->max_waiting = e->cfg.max_waiting;
    out->cache_budget = e->cfg.cache_bytes;
    out->failed = e->failed;
    out->failure = e->failure;
    out->has_thread = e->thread_lives;
    uint64_t since = e->last_ms > e->work_ms ? e->last_ms : e->work_ms, now = sn_now_ms();
    out->ms_in_step = n_open(out) && now > since ? now - since : 0;
    pthread_mutex_unlock(&e->lock);
    out->heap_bytes = atomic_load(&e->heap.total);
    out->heap_peak = atomic_load(&e->heap.peak);
}

/* ---- failure --------------------------------------------------------------------------------------------------- */

sennit_status sn_engine_check(const struct sennit_engine *e, struct sennit_error *err)
{
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++)
        if (sennit_cache_batch_size(e->layers[l]) != e->n_rows)
            return sn_fail(err, SENNIT_INTERNAL, "layer %u has %u rows of cache where %u run; this is a bug", l,
                           sennit_cache_batch_size(e->layers[l]), e->n_rows);
    bool work = e->n_rows || e->waiting;
    if (work && e->cfg.fail_at_step && e->stats.n_steps + 1 >= e->cfg.fail_at_step)
        return sn_fail(err, SENNIT_INTERNAL, "step %llu was told to fail", (unsigned long long)e->stats.n_steps + 1);
    return SENNIT_OK;
}

sennit_status sn_engine_failed_locked(const struct sennit_engine *e, struct sennit_error *err)
{
    return sn_fail(err, SENNIT_STATE, "the engine has failed and can only be freed: %s", e->failure.message);
}

void sn_engine_fail(struct sennit_engine *e, const struct sennit_error *failure)
{
    sn_log(&e->cfg.log, SENNIT_LOG_ERROR, "the engine has failed: %s", failure->message);
    pthread_mutex_lock(&e->lock);
    e->failed = true;
    e->failure = *failure;
    pthread_mutex_unlock(&e->lock);
    sn_engine_take_orders(e); /* the last ones: from now on there are no new ones */
    while (e->waiting)
        sn_request_finish(sn_engine_pop_waiting(e), SENNIT_FINISH_ERROR, failure);
    for (uint32_t b = 0; b < e->n_rows; b++) {
        e->reserved -= e->rows[b]->need;
        sn_request_finish(e->rows[b], SENNIT_FINISH_ERROR, failure);
    }
    e->n_rows = 0;
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++)
        sennit_cache_dispose(&e->layers[l]);
    e->told = true;
    sn_engine_publish(e);
}
