/* Admission: waiting requests become rows of the batch, finished rows leave it.
 *
 * Both are all or nothing over the layers: a new layout is made for every layer first, then all are swapped in. */
#include "sched/engine.h"

static void drop_fresh(struct sennit_engine *e)
{
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++)
        sennit_cache_dispose(&e->fresh[l]);
}

/* The serial cache that a new row starts from: its session's or its group's, or an empty one. *owned: dispose after
 * the merge. */
static sennit_status starting_cache(struct sennit_engine *e, const struct sennit_request *r, uint32_t layer,
                                    struct sennit_cache **out, bool *owned, struct sennit_error *err)
{
    *owned = r->n_reused == 0;
    if (!*owned) {
        *out = r->group ? r->group->layers[layer] : r->session->layers[layer];
        return SENNIT_OK;
    }
    struct sennit_cache_config c = sn_engine_cache_config(e, layer);
    return sennit_cache_create(out, e->pages, &c, 1, err);
}

static sennit_status join_layer(struct sennit_engine *e, const struct sennit_request *r, uint32_t l,
                                struct sennit_error *err)
{
    struct sennit_cache *serial = NULL;
    bool owned;
    SN_TRY(starting_cache(e, r, l, &serial, &owned, err));
    const struct sennit_cache *sources[2] = {e->layers[l], serial};
    uint32_t skip = e->n_rows == 0; /* an empty layout has nothing to bring */
    sennit_status st = sennit_cache_make_empty_batch(e->layers[l], &e->fresh[l], err);
    if (st == SENNIT_OK)
        st = sennit_cache_merge_rows(e->fresh[l], sources + skip, 2 - skip, err);
    if (owned)
        sennit_cache_dispose(&serial);
    return st;
}

static sennit_status join(struct sennit_engine *e, struct sennit_request *r, struct sennit_error *err)
{
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++) {
        sennit_status st = join_layer(e, r, l, err);
        if (st != SENNIT_OK) {
            drop_fresh(e);
            return st;
        }
    }
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++) {
        sennit_cache_dispose(&e->layers[l]);
        e->layers[l] = e->fresh[l];
        e->fresh[l] = NULL;
    }
    return SENNIT_OK;
}

static void start_row(struct sennit_engine *e, struct sennit_request *r)
{
    e->rows[e->n_rows++] = r;
    e->reserved += r->need;
    e->told = true;
    sn_group_started(e, r);
    pthread_mutex_lock(&e->lock);
    r->state = SN_REQ_RUNNING;
    r->started = true;
    r->start_ns = sn_now_ns();
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&e->lock);
}

/* Takes *at out of the waiting list. */
static struct sennit_request *unqueue(struct sennit_engine *e, struct sennit_request **at)
{
    struct sennit_request *r = *at;
    *at = r->next;
    if (!r->next)
        e->waiting_end = at;
    r->next = NULL;
    pthread_mutex_lock(&e->lock);
    e->n_waiting--;
    pthread_mutex_unlock(&e->lock);
    return r;
}

struct sennit_request *sn_engine_pop_waiting(struct sennit_engine *e)
{
    return unqueue(e, &e->waiting);
}

/* Who is next: the head, but while its group's leader reads their prompt, the first that stands behind the group.
 * That must not be of a group itself: only one group at a time may hold anything. NULL: nobody. */
static struct sennit_request **next_in_line(struct sennit_engine *e)
{
    struct sennit_request **at = &e->waiting;
    if (!*at || !sn_group_must_wait(*at))
        return *at ? at : NULL;
    const struct sn_group *g = (*at)->group;
    while (*at && (*at)->group == g)
        at = &(*at)->next;
    return *at && !(*at)->group ? at : NULL;
}

/* A request for no tokens has its answer already. */
static void finish_empty(struct sennit_request *r)
{
    pthread_mutex_lock(&r->engine->lock);
    r->started = true;
    r->start_ns = sn_now_ns();
    pthread_mutex_unlock(&r->engine->lock);
    sn_request_finish(r, SENNIT_FINISH_LENGTH, NULL);
}

/* Within the budget, but the machine has no memory for the row. */
static void refuse(struct sennit_engine *e, struct sennit_request *r, const struct sennit_error *err)
{
    sn_log(&e->cfg.log, SENNIT_LOG_WARN, "request %llu cannot join: %s", (unsigned long long)r->id, err->message);
    sn_request_finish(r, SENNIT_FINISH_ERROR, err);
}

/* How many tokens of the new row's state are there already. */
static size_t reused(struct sennit_engine *e, const struct sennit_request *r)
{
    if (r->group && r->group->layers)
        return r->group->n_tokens;
    return r->session ? sn_session_rewind(e, r->session, r->tokens, r->n_prompt) : 0;
}

/* Tries a waiting request. true: it left the queue. */
static bool admit_at(struct sennit_engine *e, struct sennit_request **at)
{
    struct sennit_request *r = *at;
    struct sennit_session *own = r->session;
    struct sennit_error err = {0};
    if (r->max_tokens == 0 && !r->prompt_logprobs) {
        unqueue(e, at);
        finish_empty(r);
        return true;
    }
    if (e->n_rows >= e->cfg.max_rows)
        return false;
    uint64_t held = own ? own->held : 0; /* becomes part of the row */
    uint64_t need = r->need + sn_group_extra_need(r);
    sn_session_make_room(e, need > held ? need - held : 0, own);
    if (sn_admit(need, e->reserved - held, e->cfg.cache_bytes, e->n_rows, e->cfg.max_rows) != SN_ADMIT)
        return false;
    unqueue(e, at);
    if (sn_request_make_room(r, &err) != SENNIT_OK) {
        refuse(e, r, &err);
        return true;
    }
    r->n_state = r->n_reused = reused(e, r);
    sennit_status st = join(e, r, &err);
    if (own)
        sn_session_drop_state(e, own);
    if (st == SENNIT_OK)
        start_row(e, r);
    else
        refuse(e, r, &err);
    return true;
}

bool sn_engine_admit(struct sennit_engine *e)
{
    bool any = false;
    struct sennit_request **at;
    while ((at = next_in_line(e)) && admit_at(e, at))
        any = true;
    return any;
}

void sn_engine_remove_rows(struct sennit_engine *e, const bool *gone)
{
    uint32_t kept = 0;
    for (uint32_t b = 0; b < e->n_rows; b++) {
        struct sennit_request *r = e->rows[b];
        if (!gone[b]) {
            e->keep[kept++] = b;
            continue;
        }
        e->reserved -= r->need;
        if (r->session && r->end_finish != SENNIT_FINISH_ERROR)
            sn_session_keep(e, r->session, b, r);
    }
    if (kept == e->n_rows)
        return;
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++)
        (void)sennit_cache_filter_rows(e->layers[l], e->keep, kept, NULL); /* valid rows: cannot fail */
    for (uint32_t b = 0; b < e->n_rows; b++) {
        struct sennit_request *r = e->rows[b];
        if (gone[b])
            sn_request_finish(r, r->end_finish, r->end_finish == SENNIT_FINISH_ERROR ? &r->end_error : NULL);
    }
    for (uint32_t i = 0; i < kept; i++)
        e->rows[i] = e->rows[e->keep[i]];
    e->n_rows = kept;
}
