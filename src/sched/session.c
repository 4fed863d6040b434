/* Sessions: rows' state kept between turns. What a session holds is a convenience that may be dropped at any time
 * when nobody uses it: the next turn then reads its whole prompt, and gives the same answer. */
#include "sched/engine.h"

void sn_session_drop_state(struct sennit_engine *e, struct sennit_session *s)
{
    for (uint32_t l = 0; s->layers && l < e->m->hp.n_layers; l++)
        sennit_cache_dispose(&s->layers[l]);
    sn_free(&e->heap, SN_USE_MISC, s->layers, e->m->hp.n_layers * sizeof *s->layers);
    sn_free(&e->heap, SN_USE_MISC, s->tokens, s->n_tokens * sizeof *s->tokens);
    s->layers = NULL;
    s->tokens = NULL;
    s->n_tokens = 0;
    e->reserved -= s->held;
    e->held -= s->held;
    s->held = 0;
}

void sn_session_sweep(struct sennit_engine *e)
{
    struct sennit_session **at = &e->sessions;
    while (*at) {
        struct sennit_session *s = *at;
        pthread_mutex_lock(&e->lock);
        bool dead = s->released && !s->busy;
        pthread_mutex_unlock(&e->lock);
        if (!dead) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        sn_session_drop_state(e, s);
        sn_free(&e->heap, SN_USE_MISC, s, sizeof *s);
        pthread_mutex_lock(&e->lock);
        sn_engine_unref_locked(e);
    }
}

void sn_session_make_room(struct sennit_engine *e, uint64_t need, const struct sennit_session *but)
{
    uint64_t idle = 0;
    for (struct sennit_session *s = e->sessions; s; s = s->next)
        idle += s != but ? s->held : 0;
    if (need > e->cfg.cache_bytes - (e->reserved - idle))
        return; /* the rows themselves are in the way: nothing is won by forgetting */
    while (e->reserved > e->cfg.cache_bytes || need > e->cfg.cache_bytes - e->reserved) {
        struct sennit_session *oldest = NULL;
        for (struct sennit_session *s = e->sessions; s; s = s->next)
            if (s != but && s->held && (!oldest || s->last_use < oldest->last_use))
                oldest = s;
        if (!oldest)
            return;
        sn_log(&e->cfg.log, SENNIT_LOG_INFO,
               "a session's state of %zu tokens (%llu bytes) was dropped to make room for %llu", oldest->n_tokens,
               (unsigned long long)oldest->held, (unsigned long long)need);
        sn_session_drop_state(e, oldest);
    }
}

static size_t common_prefix(const int32_t *a, size_t n_a, const int32_t *b, size_t n_b)
{
    size_t n = sn_min_size(n_a, n_b), i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

size_t sn_session_rewind(struct sennit_engine *e, struct sennit_session *s, const int32_t *prompt, size_t n_prompt)
{
    if (!s->layers)
        return 0;
    size_t keep = common_prefix(s->tokens, s->n_tokens, prompt, n_prompt - 1);
    bool exact = keep > 0;
    for (uint32_t l = 0; exact && l < e->m->hp.n_layers; l++)
        exact = keep >= sennit_cache_minimum_reusable_offset(s->layers[l], 0) &&
                (keep == s->n_tokens ||
                 sennit_cache_trim(s->layers[l], s->n_tokens - keep, false, NULL) == SENNIT_OK);
    if (exact)
        return keep;
    sn_session_drop_state(e, s);
    return 0;
}

static sennit_status extract_all(struct sennit_engine *e, struct sennit_session *s, uint32_t row)
{
    s->layers = sn_calloc(&e->heap, SN_USE_MISC, e->m->hp.n_layers, sizeof *s->layers);
    if (!s->layers)
        return SENNIT_NOMEM;
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++)
        SN_TRY(sennit_cache_extract_row(e->layers[l], row, &s->layers[l], NULL));
    return SENNIT_OK;
}

void sn_session_keep(struct sennit_engine *e, struct sennit_session *s, uint32_t row, const struct sennit_request *r)
{
    sn_session_drop_state(e, s);
    if (r->n_state == 0)
        return;
    sennit_status st = extract_all(e, s, row);
    if (st == SENNIT_OK) {
        s->tokens = sn_calloc(&e->heap, SN_USE_MISC, r->n_state, sizeof *s->tokens);
        st = s->tokens ? SENNIT_OK : SENNIT_NOMEM;
    }
    if (st != SENNIT_OK) {
        sn_log(&e->cfg.log, SENNIT_LOG_WARN, "a session keeps nothing of its turn: no memory for %zu tokens",
               r->n_state);
        sn_session_drop_state(e, s);
        return;
    }
    memcpy(s->tokens, r->tokens, r->n_state * sizeof *s->tokens);
    s->n_tokens = r->n_state;
    s->held = sn_engine_projected(e, s->n_tokens);
    s->last_use = ++e->clock;
    e->reserved += s->held;
    e->held += s->held;
}

/* ---- the user's side (any thread) ------------------------------------------------------------------------------ */

sennit_status sennit_session_create(struct sennit_session **out, struct sennit_engine *e, struct sennit_error *err)
{
    if (!out || !e)
        return sn_fail(err, SENNIT_INVALID, "out and engine must not be NULL");
    struct sennit_session *s = sn_calloc(&e->heap, SN_USE_MISC, 1, sizeof *s);
    if (!s)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a session");
    s->engine = e;
    pthread_mutex_lock(&e->lock);
    e->n_refs++;
    s->next = e->new_sessions;
    e->new_sessions = s;
    pthread_mutex_unlock(&e->lock);
    *out = s;
    return SENNIT_OK;
}

void sennit_session_free(struct sennit_session *s)
{
    if (!s)
        return;
    struct sennit_engine *e = s->engine;
    pthread_mutex_lock(&e->lock);
    if (e->closed) { /* the engine has dropped its state; only the handle is left */
        sn_free(&e->heap, SN_USE_MISC, s, sizeof *s);
        sn_engine_unref_locked(e);
        return;
    }
    s->released = true;
    e->poked = true;
    pthread_cond_broadcast(&e->wake);
    pthread_mutex_unlock(&e->lock);
}
