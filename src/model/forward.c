/* A step's buffers and its run. Invariants:
 *  1. Everything is allocated at creation; a step allocates nothing here.
 *  2. Between two barriers no two workers write the same element, and none reads what another one writes. */
#include "model/forward.h"

static const enum sn_use USE = SN_USE_SCRATCH;

static sennit_status acts_alloc(struct sn_heap *heap, struct sn_acts acts[SN_ACT_COUNT], uint32_t forms,
                                size_t n_rows, size_t n_in)
{
    for (int form = 0; form < SN_ACT_COUNT; form++) {
        if (!(forms >> form & 1))
            continue;
        acts[form] = (struct sn_acts){.form = (enum sn_act)form, .n_rows = n_rows, .n_in = n_in};
        acts[form].data = sn_alloc(heap, USE, sn_act_bytes((enum sn_act)form, n_rows, n_in));
        if (!acts[form].data)
            return SENNIT_NOMEM;
    }
    return SENNIT_OK;
}

static void acts_free(struct sn_heap *heap, struct sn_acts acts[SN_ACT_COUNT])
{
    for (int form = 0; form < SN_ACT_COUNT; form++)
        if (acts[form].data)
            sn_free(heap, USE, acts[form].data, sn_act_bytes(acts[form].form, acts[form].n_rows, acts[form].n_in));
}

/* Which forms each stage needs, over all layers. */
struct forms {
    uint32_t in, mid, ff, top;
};

static struct forms forms_of(const struct sennit_model *m)
{
    struct forms forms = {.top = sn_form_bit(&m->head)};
    for (uint32_t i = 0; i < m->hp.n_layers; i++) {
        const struct sn_layer *l = &m->layers[i];
        forms.in |= sn_form_bit(&l->q) | sn_form_bit(&l->k) | sn_form_bit(&l->v) | sn_form_bit(&l->gate) |
                    sn_form_bit(&l->up);
        forms.mid |= sn_form_bit(&l->o);
        forms.ff |= sn_form_bit(&l->down);
    }
    return forms;
}

/* The largest group of columns of one product call: whole heads, or 64 columns. */
static size_t tile_columns(const struct sn_hparams *hp)
{
    size_t widest = 64, dims[2] = {hp->d_k, hp->d_v};
    for (int i = 0; i < 2; i++) {
        size_t cols = dims[i];
        while (cols % SN_PANEL != 0)
            cols += dims[i];
        widest = sn_max_size(widest, cols);
    }
    return widest;
}

static sennit_status lanes_alloc(struct sn_forward *f, struct sn_calls *calls, struct forms forms)
{
    f->lanes = sn_calloc(f->heap, USE, f->n_lanes, sizeof *f->lanes);
    if (!f->lanes)
        return SENNIT_NOMEM;
    for (uint32_t i = 0; i < f->n_lanes; i++) {
        struct sn_lane *lane = &f->lanes[i];
        *lane = (struct sn_lane){.index = (int)i, .n_lanes = (int)f->n_lanes, .calls = &calls[i]};
        lane->tile = sn_alloc(f->heap, USE, SN_ROW_BLOCK * f->tile_ld * sizeof *lane->tile);
        lane->row = sn_alloc(f->heap, USE, f->widest * sizeof *lane->row);
        if (!lane->tile || !lane->row)
            return SENNIT_NOMEM;
        SN_TRY(acts_alloc(f->heap, lane->acts, forms.in | forms.mid | forms.top, SN_PRIVATE_ROWS, f->widest));
    }
    return SENNIT_OK;
}

static sennit_status buffers_alloc(struct sn_forward *f, struct forms forms)
{
    const struct sn_hparams *hp = &f->m->hp;
    size_t t = f->max_tokens, mid = (size_t)hp->n_heads * hp->d_v;
    f->ids = sn_calloc(f->heap, USE, t, sizeof *f->ids);
    f->token_span = sn_calloc(f->heap, USE, t, sizeof *f->token_span);
    f->logit_tokens = sn_calloc(f->heap, USE, f->max_logits, sizeof *f->logit_tokens);
    f->fault = sn_calloc(f->heap, USE, t, sizeof *f->fault);
    f->x = sn_alloc(f->heap, USE, t * hp->d_model * sizeof *f->x);
    f->q = sn_alloc(f->heap, USE, t * hp->n_heads * hp->d_k * sizeof *f->q);
    f->attn = sn_alloc(f->heap, USE, t * mid * sizeof *f->attn);
    f->cos = sn_alloc(f->heap, USE, t * (hp->n_rot / 2) * sizeof *f->cos);
    f->sin = sn_alloc(f->heap, USE, t * (hp->n_rot / 2) * sizeof *f->sin);
    f->logits = sn_alloc(f->heap, USE, f->max_logits * f->logits_ld * sizeof *f->logits);
    f->tickets = sn_calloc(f->heap, USE, 2 * (size_t)hp->n_layers + 1, sizeof *f->tickets);
    if (!f->ids || !f->token_span || !f->logit_tokens || !f->fault || !f->x || !f->q || !f->attn || !f->logits ||
        !f->tickets || (hp->n_rot && (!f->cos || !f->sin)))
        return SENNIT_NOMEM;
    SN_TRY(acts_alloc(f->heap, f->in, forms.in, t, hp->d_model));
    SN_TRY(acts_alloc(f->heap, f->mid, forms.mid, t, mid));
    SN_TRY(acts_alloc(f->heap, f->ff, forms.ff, t, hp->d_ff));
    return acts_alloc(f->heap, f->top, forms.top, f->max_logits, hp->d_model);
}

sennit_status sn_forward_create(struct sn_forward **out, struct sn_heap *heap, const struct sennit_model *m,
                                const struct sn_kernels *k, struct sn_pool *threads, struct sn_calls *calls,
                                uint32_t max_tokens, uint32_t max_logits, struct sennit_error *err)
{
    struct sn_forward *f = sn_calloc(heap, USE, 1, sizeof *f);
    if (!f)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a step");
    f->m = m;
    f->k = k;
    f->threads = threads;
    f->heap = heap;
    f->max_tokens = max_tokens;
    f->max_logits = max_logits;
    f->n_lanes = (uint32_t)sn_pool_threads(threads);
    f->logits_ld = m->head.n_panels * SN_PANEL;
    f->tile_ld = tile_columns(&m->hp);
    f->widest = sn_max_size(m->hp.d_model, (size_t)m->hp.n_heads * m->hp.d_v);
    struct forms forms = forms_of(m);
    if (lanes_alloc(f, calls, forms) != SENNIT_OK || buffers_alloc(f, forms) != SENNIT_OK) {
        sn_forward_free(f);
        return sn_fail(err, SENNIT_NOMEM,
                       "no memory for steps of %u tokens and %u logits rows; lower the chunk or the number of rows",
                       max_tokens, max_logits);
    }
    *out = f;
    return SENNIT_OK;
}

void sn_forward_free(struct sn_forward *f)
{
    if (!f)
        return;
    const struct sn_hparams *hp = &f->m->hp;
    size_t t = f->max_tokens, mid = (size_t)hp->n_heads * hp->d_v;
    for (uint32_t i = 0; f->lanes && i < f->n_lanes; i++) {
        sn_free(f->heap, USE, f->lanes[i].tile, SN_ROW_BLOCK * f->tile_ld * sizeof(float));
        sn_free(f->heap, USE, f->lanes[i].row, f->widest * sizeof(float));
        for (int form = 0; form < SN_ACT_COUNT; form++)
            f->lanes[i].acts[form].n_in = f->widest; /* as allocated; stages narrow it */
        acts_free(f->heap, f->lanes[i].acts);
    }
    sn_free(f->heap, USE, f->lanes, f->n_lanes * sizeof *f->lanes);
    sn_free(f->heap, USE, f->ids, t * sizeof *f->ids);
    sn_free(f->heap, USE, f->token_span, t * sizeof *f->token_span);
    sn_free(f->heap, USE, f->logit_tokens, f->max_logits * sizeof *f->logit_tokens);
    sn_free(f->heap, USE, (void *)f->fault, t * sizeof *f->fault);
    sn_free(f->heap, USE, f->x, t * hp->d_model * sizeof *f->x);
    sn_free(f->heap, USE, f->q, t * hp->n_heads * hp->d_k * sizeof *f->q);
    sn_free(f->heap, USE, f->attn, t * mid * sizeof *f->attn);
    sn_free(f->heap, USE, f->cos, t * (hp->n_rot / 2) * sizeof *f->cos);
    sn_free(f->heap, USE, f->sin, t * (hp->n_rot / 2) * sizeof *f->sin);
    sn_free(f->heap, USE, f->logits, f->max_logits * f->logits_ld * sizeof *f->logits);
    sn_free(f->heap, USE, f->tickets, (2 * (size_t)hp->n_layers + 1) * sizeof *f->tickets);
    acts_free(f->heap, f->in);
    acts_free(f->heap, f->mid);
    acts_free(f->heap, f->ff);
    acts_free(f->heap, f->top);
    sn_free(f->heap, USE, f, sizeof *f);
}

static void run_worker(void *ctx, int worker, int n_workers)
{
    struct sn_forward *f = ctx;
    (void)n_workers;
    f->m->arch->forward(f, &f->lanes[worker]);
}

void sn_forward_run(struct sn_forward *f)
{
    f->n_rows = f->n_tokens;
    for (uint32_t i = 0; i < f->n_tokens; i++)
        f->fault[i] = 0;
    for (uint32_t i = 0; i < 2 * f->m->hp.n_layers + 1; i++)
        f->tickets[i].next = 0;
    for (uint32_t i = 0; i < f->n_lanes; i++)
        f->lanes[i].weight_bytes = 0;
    sn_pool_run(f->threads, run_worker, f);
    for (uint32_t l = 0; l < f->m->hp.n_layers; l++)
        sennit_cache_append_commit(f->caches[l]);
}
