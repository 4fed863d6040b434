/* Groups: several answers to one prompt, which is read once.
 *
 * The first member that becomes a row is the leader. Its prompt is cut one token before the end, where the group
 * takes references to its state, the snapshot; the other members start from there and forward the last prompt token
 * themselves, which gives each of them the logits of its first choice. Members stand in the queue one after another,
 * so at most one group at a time holds anything: whoever waits for room at the head of the queue never waits for what
 * another group keeps. While members wait for their leader's snapshot, single requests behind them may pass.
 *
 * A snapshot is a convenience: without one (no memory, the leader gone before its prompt was read) the next member
 * leads, or reads the prompt for itself when it is the last; the answers are the same.
 *
 * Owner's thread only, once its members are queued. */
#include "sched/engine.h"

sennit_status sn_group_create(struct sn_group **out, struct sennit_engine *e, uint32_t n_members, size_t n_prompt,
                              struct sennit_error *err)
{
    struct sn_group *g = sn_calloc(&e->heap, SN_USE_MISC, 1, sizeof *g);
    if (!g)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a group of %u requests", n_members);
    g->n_refs = g->n_queued = n_members;
    g->n_tokens = n_prompt - 1;
    g->need = sn_engine_projected(e, n_prompt - 1);
    *out = g;
    return SENNIT_OK;
}

void sn_group_free(struct sennit_engine *e, struct sn_group *g)
{
    if (g)
        sn_free(&e->heap, SN_USE_MISC, g, sizeof *g);
}

/* Forgets the snapshot, or the wish for one. */
static void drop(struct sennit_engine *e, struct sn_group *g)
{
    for (uint32_t l = 0; g->layers && l < e->m->hp.n_layers; l++)
        sennit_cache_dispose(&g->layers[l]);
    sn_free(&e->heap, SN_USE_MISC, g->layers, e->m->hp.n_layers * sizeof *g->layers);
    g->layers = NULL;
    g->leader = NULL;
    e->reserved -= g->held;
    g->held = 0;
}

bool sn_group_must_wait(const struct sennit_request *r)
{
    return r->group && r->group->leader;
}

/* Will r lead when it becomes a row now? */
static bool would_lead(const struct sennit_request *r)
{
    const struct sn_group *g = r->group;
    return g && !g->layers && !g->leader && g->n_queued > 1;
}

uint64_t sn_group_extra_need(const struct sennit_request *r)
{
    return would_lead(r) ? r->group->need : 0;
}

void sn_group_started(struct sennit_engine *e, struct sennit_request *r)
{
    struct sn_group *g = r->group;
    if (!g)
        return;
    if (would_lead(r)) {
        g->leader = r;
        g->held = g->need;
        e->reserved += g->held;
    }
    if (--g->n_queued == 0)
        drop(e, g);
}

void sn_group_leave(struct sennit_engine *e, struct sennit_request *r)
{
    struct sn_group *g = r->group;
    if (!g)
        return;
    r->group = NULL;
    if (r->state == SN_REQ_WAITING)
        g->n_queued--;
    if (g->leader == r || g->n_queued == 0)
        drop(e, g);
    if (--g->n_refs == 0)
        sn_group_free(e, g);
}

uint64_t sn_group_span_limit(const struct sennit_request *r)
{
    const struct sn_group *g = r->group;
    return g && g->leader == r ? g->n_tokens - r->n_state : SENNIT_UNBOUNDED;
}

static sennit_status take_snapshot(struct sennit_engine *e, struct sn_group *g, uint32_t row)
{
    g->layers = sn_calloc(&e->heap, SN_USE_MISC, e->m->hp.n_layers, sizeof *g->layers);
    if (!g->layers)
        return SENNIT_NOMEM;
    for (uint32_t l = 0; l < e->m->hp.n_layers; l++)
        SN_TRY(sennit_cache_clone(e->layers[l], row, &g->layers[l], NULL));
    return SENNIT_OK;
}

void sn_group_after_span(struct sennit_engine *e, const struct sennit_request *r, uint32_t row)
{
    struct sn_group *g = r->group;
    if (!g || g->leader != r || r->n_state != g->n_tokens)
        return;
    g->leader = NULL;
    if (take_snapshot(e, g, row) == SENNIT_OK)
        return;
    sn_log(&e->cfg.log, SENNIT_LOG_WARN, "request %llu cannot share its prompt's %zu tokens: no memory",
           (unsigned long long)r->id, g->n_tokens);
    drop(e, g);
}
