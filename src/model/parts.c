/* The parts that graphs are made of. Each one is called by every worker; see forward.h. */
#include "model/forward.h"

#include "kernel/math.h"

/* ---- small tools ----------------------------------------------------------------------------- */

static void barrier(struct sn_forward *f, struct sn_lane *lane)
{
    sn_pool_barrier(f->threads, lane->index);
}

/* Stores n values of one row, from column `first` on, in one form. Quantized forms need whole
 * blocks. */
static void put(struct sn_forward *f, struct sn_lane *lane, const struct sn_acts *acts, size_t row,
                size_t first, size_t n, const float *values)
{
    if (acts->form == SN_ACT_F32) {
        memcpy((float *)acts->data + row * sn_act_ld(acts->n_in) + first, values,
               n * sizeof *values);
        return;
    }
    uint8_t *tile = sn_act_tile(acts, row / SN_TILE_ROWS) + first / SN_BLOCK * SN_TILE_BLOCK_BYTES;
    SN_CALL(f->k, lane->calls, act_quantize, values, n / SN_BLOCK, acts->form, tile,
            row % SN_TILE_ROWS);
}

static void put_forms(struct sn_forward *f, struct sn_lane *lane,
                      const struct sn_acts acts[SN_ACT_COUNT], uint32_t forms, size_t row, size_t n,
                      const float *values)
{
    for (int form = 0; form < SN_ACT_COUNT; form++)
        if (forms >> form & 1)
            put(f, lane, &acts[form], row, 0, n, values);
}

/* Source of row i of a stage that codes rows: normed, or as it is. */
struct rows {
    const float *data;
    size_t stride, n_in;
    const float *norm; /* RMS norm weights, or NULL */
};

static void code_row(struct sn_forward *f, struct sn_lane *lane, const struct rows *src, size_t i,
                     const struct sn_acts acts[SN_ACT_COUNT], uint32_t forms)
{
    const float *x = src->data + i * src->stride;
    if (src->norm) {
        SN_CALL(f->k, lane->calls, rms_norm, x, src->norm, src->n_in, f->m->hp.norm_eps, lane->row);
        x = lane->row;
    }
    put_forms(f, lane, acts, forms, i, src->n_in, x);
}

/* Codes n rows for the next product. Few rows: each worker codes all of them for itself; otherwise
 * the rows are split and a barrier ends the part. */
static const struct sn_acts *code_rows(struct sn_forward *f, struct sn_lane *lane,
                                       const struct rows *src, size_t n,
                                       struct sn_acts shared[SN_ACT_COUNT], uint32_t forms)
{
    if (n <= SN_PRIVATE_ROWS) {
        for (int form = 0; form < SN_ACT_COUNT; form++)
            lane->acts[form].n_in = src->n_in;
        for (size_t i = 0; i < n; i++)
            code_row(f, lane, src, i, lane->acts, forms);
        return lane->acts;
    }
    size_t first, last;
    sn_split(n, lane->index, lane->n_lanes, &first, &last);
    for (size_t i = first; i < last; i++)
        code_row(f, lane, src, i, shared, forms);
    barrier(f, lane);
    return shared;
}

/* One product: panels panel .. panel + n_panels - 1 of w over rows row .. row + n_rows - 1. */
static void product(struct sn_forward *f, struct sn_lane *lane, const struct sn_weights *w,
                    const struct sn_acts *in, size_t panel, size_t n_panels, size_t row,
                    size_t n_rows, float *y, size_t ldy)
{
    struct sn_gemm_args args = {.w = w,
                                .x = &in[sn_act_form(w->type)],
                                .panel = panel,
                                .n_panels = n_panels,
                                .row = row,
                                .n_rows = n_rows,
                                .y = y,
                                .ldy = ldy};
    sn_kernels_gemm(f->k, w->type)(&args);
    lane->calls->n[sn_kernel_gemm_id(w->type)]++;
    lane->weight_bytes += sn_weights_bytes(w->type, w->n_in, SN_PANEL) * n_panels;
}

static size_t n_row_blocks(size_t n_rows)
{
    return sn_div_up(n_rows, SN_ROW_BLOCK);
}

/* ---- embedding and rotation angles
 * ------------------------------------------------------------------------------ */

static void angles(const struct sn_forward *f, size_t token)
{
    size_t n = f->m->hp.n_rot / 2;
    const struct sennit_span *span = &f->spans[f->token_span[token]];
    double pos = (double)(span->pos + (token - span->first_token));
    for (size_t i = 0; i < n; i++) {
        double s, c;
        sn_sincos(pos * f->m->rope_freq[i], &s, &c);
        f->cos[token * n + i] = (float)c;
        f->sin[token * n + i] = (float)s;
    }
}

void sn_part_embed(struct sn_forward *f, struct sn_lane *lane)
{
    size_t first, last, d = f->m->hp.d_model;
    sn_split(f->n_tokens, lane->index, lane->n_lanes, &first, &last);
    for (size_t t = first; t < last; t++) {
        sn_weights_gather(&f->m->embed, (size_t)f->ids[t], f->x + t * d);
        angles(f, t);
    }
    barrier(f, lane);
}

const struct sn_acts *sn_part_norm(struct sn_forward *f, struct sn_lane *lane, const float *weight,
                                   uint32_t forms)
{
    size_t d = f->m->hp.d_model;
    struct rows src = {.data = f->x, .stride = d, .n_in = d, .norm = weight};
    return code_rows(f, lane, &src, f->n_rows, f->in, forms);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* q, k or v of one layer, cut into groups of whole heads that are also whole panels. */
struct head_group {
    const struct sn_weights *w;
    sennit_role role; /* SENNIT_ROLE_COUNT for queries */
    size_t dim, n_heads, heads_per_group, n_groups;
};

static struct head_group group_heads(const struct sn_weights *w, sennit_role role, size_t dim,
                                     size_t n_heads)
{
    struct head_group g = {
        .w = w, .role = role, .dim = dim, .n_heads = n_heads, .heads_per_group = 1};
    while (g.heads_per_group * dim % SN_PANEL != 0)
        g.heads_per_group++;
    g.n_groups = sn_div_up(n_heads, g.heads_per_group);
    return g;
}

static void rotate(struct sn_forward *f, struct sn_lane *lane, float *head, size_t token, bool half)
{
    size_t n = f->m->hp.n_rot / 2;
    const float *cos = f->cos + token * n, *sin = f->sin + token * n;
    if (half)
        SN_CALL(f->k, lane->calls, rope_half, head, cos, sin, n);
    else
        SN_CALL(f->k, lane->calls, rope_pair, head, cos, sin, n);
}

/* Keys or values of rows row .. row + n_rows - 1 to the cache, one call per span. An infinity is
 * noted here, because a 16-bit store would turn it into a large finite number and hide the fault.
 */
static void append(struct sn_forward *f, struct sn_lane *lane, uint32_t layer,
                   const struct head_group *g, size_t head, size_t n_heads, size_t row,
                   size_t n_rows)
{
    for (size_t r = row; r < row + n_rows;) {
        const struct sennit_span *span = &f->spans[f->token_span[r]];
        size_t end = sn_min_size(row + n_rows, (size_t)span->first_token + span->n_tokens);
        sennit_cache_append_tile(
            f->caches[layer], f->token_span[r], (uint32_t)(r - span->first_token),
            (uint32_t)(end - r), g->role, (uint32_t)head, (uint32_t)n_heads,
            lane->tile + (r - row) * f->tile_ld, f->tile_ld, (uint32_t)lane->index);
        r = end;
    }
    for (size_t i = 0; i < n_rows; i++)
        if (!SN_CALL(f->k, lane->calls, all_finite, lane->tile + i * f->tile_ld, n_heads * g->dim))
            atomic_store_explicit(&f->fault[row + i], 1, memory_order_relaxed);
}

static void project_heads(struct sn_forward *f, struct sn_lane *lane, uint32_t layer,
                          const struct sn_acts *in, const struct head_group *g, size_t group,
                          size_t row, size_t n_rows, bool half)
{
    size_t head = group * g->heads_per_group,
           n_heads = sn_min_size(g->heads_per_group, g->n_heads - head);
    size_t panels = g->heads_per_group * g->dim / SN_PANEL, panel = group * panels;
    panels = sn_min_size(panels, g->w->n_panels - panel);
    bool query = g->role == SENNIT_ROLE_COUNT,
         in_place = query && panels * SN_PANEL == n_heads * g->dim;
    float *q = query ? f->q + (row * g->n_heads + head) * g->dim : NULL, *y = in_place ? q : lane->tile;
    size_t ldq = g->n_heads * g->dim, ldy = in_place ? ldq : f->tile_ld;
    product(f, lane, g->w, in, panel, panels, row, n_rows, y, ldy);
    if (g->role != SENNIT_ROLE_VALUE)
        for (size_t i = 0; i < n_rows; i++)
            for (size_t h = 0; h < n_heads; h++)
                rotate(f, lane, y + i * ldy + h * g->dim, row + i, half);
    if (!query)
        append(f, lane, layer, g, head, n_heads, row, n_rows);
    for (size_t i = 0; query && !in_place && i < n_rows;
         i++) /* columns past the last head stay behind */
        memcpy(q + i * ldq, y + i * ldy, n_heads * g->dim * sizeof(float));
}

/* The plan only needs to know where queries and results lie, so worker 0 makes it while the
 * products run. */
static void plan_attention(struct sn_forward *f, uint32_t layer)
{
    const struct sn_hparams *hp = &f->m->hp;
    struct sennit_attend_inputs in = {
        .query = f->q,
        .query_stride = (size_t)hp->n_heads * hp->d_k,
        .scale = hp->attn_scale,
        .out = f->attn,
        .out_stride = (size_t)hp->n_heads * hp->d_v,
    };
    sennit_cache_attend_plan(f->caches[layer], &in, &f->n_items, &f->n_merges);
}

void sn_part_qkv(struct sn_forward *f, struct sn_lane *lane, uint32_t layer,
                 const struct sn_acts *in, bool half)
{
    const struct sn_hparams *hp = &f->m->hp;
    const struct sn_layer *l = &f->m->layers[layer];
    const struct head_group groups[3] = {
        group_heads(&l->q, SENNIT_ROLE_COUNT, hp->d_k, hp->n_heads),
        group_heads(&l->k, SENNIT_ROLE_KEY, hp->d_k, hp->n_kv_heads),
        group_heads(&l->v, SENNIT_ROLE_VALUE, hp->d_v, hp->n_kv_heads),
    };
    size_t per_block = groups[0].n_groups + groups[1].n_groups + groups[2].n_groups, first, last;
    if (lane->index == 0)
        plan_attention(f, layer);
    sn_split(per_block * n_row_blocks(f->n_tokens), lane->index, lane->n_lanes, &first, &last);
    for (size_t unit = first; unit < last; unit++) {
        size_t row = unit / per_block * SN_ROW_BLOCK, g = unit % per_block, which = 0;
        while (g >= groups[which].n_groups)
            g -= groups[which++].n_groups;
        project_heads(f, lane, layer, in, &groups[which], g, row,
                      sn_min_size(SN_ROW_BLOCK, f->n_tokens - row), half);
    }
    barrier(f, lane);
}

void sn_part_attend(struct sn_forward *f, struct sn_lane *lane, uint32_t layer)
{
    struct sennit_cache *cache = f->caches[layer];
    uint32_t n_items = f->n_items, n_merges = f->n_merges;
    for (size_t i; (i = sn_ticket_take(&f->tickets[2 * layer])) < n_items;)
        sennit_cache_attend_item(cache, (uint32_t)i, (uint32_t)lane->index);
    barrier(f, lane);
    if (n_merges == 0)
        return;
    for (size_t i; (i = sn_ticket_take(&f->tickets[2 * layer + 1])) < n_merges;)
        sennit_cache_attend_merge(cache, (uint32_t)i, (uint32_t)lane->index);
    barrier(f, lane);
}

void sn_part_narrow(struct sn_forward *f, struct sn_lane *lane)
{
    size_t d = f->m->hp.d_model, mid = (size_t)f->m->hp.n_heads * f->m->hp.d_v;
    if (f->n_logits == f->n_tokens)
        return;
    if (lane->index == 0) {
        for (size_t i = 0; i < f->n_logits;
             i++) { /* ascending tokens: no row is overwritten before it is read */
            memmove(f->x + i * d, f->x + f->logit_tokens[i] * d, d * sizeof *f->x);
            memmove(f->attn + i * mid, f->attn + f->logit_tokens[i] * mid, mid * sizeof *f->attn);
        }
        f->n_rows = f->n_logits;
    }
    barrier(f, lane);
}

/* ---- products that end in the residual stream
 * ------------------------------------------------------------------- */

enum { COLUMNS = 64, PANELS = COLUMNS / SN_PANEL };

static void add_product(struct sn_forward *f, struct sn_lane *lane, const struct sn_weights *w,
                        const struct sn_acts *in)
{
    size_t per_block = sn_div_up(w->n_panels, PANELS), d = f->m->hp.d_model, first, last;
    sn_split(per_block * n_row_blocks(f->n_rows), lane->index, lane->n_lanes, &first, &last);
    for (size_t unit = first; unit < last; unit++) {
        size_t row = unit / per_block * SN_ROW_BLOCK, panel = unit % per_block * PANELS;
        size_t n_rows = sn_min_size(SN_ROW_BLOCK, f->n_rows - row),
               n_panels = sn_min_size(PANELS, w->n_panels - panel);
        size_t column = panel * SN_PANEL, n = sn_min_size(n_panels * SN_PANEL, d - column);
        product(f, lane, w, in, panel, n_panels, row, n_rows, lane->tile, f->tile_ld);
        for (size_t i = 0; i < n_rows; i++)
            SN_CALL(f->k, lane->calls, add, f->x + (row + i) * d + column,
                    lane->tile + i * f->tile_ld, n);
    }
    barrier(f, lane);
}

void sn_part_attn_out(struct sn_forward *f, struct sn_lane *lane, const struct sn_weights *o)
{
    size_t n = (size_t)f->m->hp.n_heads * f->m->hp.d_v;
    struct rows src = {.data = f->attn, .stride = n, .n_in = n};
    add_product(f, lane, o, code_rows(f, lane, &src, f->n_rows, f->mid, sn_form_bit(o)));
}

static void gate_values(struct sn_forward *f, struct sn_lane *lane, enum sn_kernel_id gate,
                        float *g, const float *u, size_t n)
{
    if (gate == SN_K_gelu_tanh_mul)
        SN_CALL(f->k, lane->calls, gelu_tanh_mul, g, u, n, g);
    else if (gate == SN_K_gelu_erf_mul)
        SN_CALL(f->k, lane->calls, gelu_erf_mul, g, u, n, g);
    else
        SN_CALL(f->k, lane->calls, silu_mul, g, u, n, g);
}

void sn_part_mlp(struct sn_forward *f, struct sn_lane *lane, const struct sn_layer *l,
                 const struct sn_acts *in, enum sn_kernel_id gate)
{
    enum {
        HALF = COLUMNS / 2,
        HALF_PANELS = HALF / SN_PANEL
    }; /* one block of 32 gated values per unit */
    size_t per_block = sn_div_up(l->gate.n_panels, HALF_PANELS), d_ff = f->m->hp.d_ff, first, last;
    const struct sn_acts *out = &f->ff[sn_act_form(l->down.type)];
    sn_split(per_block * n_row_blocks(f->n_rows), lane->index, lane->n_lanes, &first, &last);
    for (size_t unit = first; unit < last; unit++) {
        size_t row = unit / per_block * SN_ROW_BLOCK, panel = unit % per_block * HALF_PANELS;
        size_t n_rows = sn_min_size(SN_ROW_BLOCK, f->n_rows - row);
        size_t n_panels = sn_min_size(HALF_PANELS, l->gate.n_panels - panel);
        size_t column = panel * SN_PANEL, n = sn_min_size(HALF, d_ff - column);
        product(f, lane, &l->gate, in, panel, n_panels, row, n_rows, lane->tile, f->tile_ld);
        product(f, lane, &l->up, in, panel, n_panels, row, n_rows, lane->tile + HALF, f->tile_ld);
        for (size_t i = 0; i < n_rows; i++) {
            float *g = lane->tile + i * f->tile_ld;
            gate_values(f, lane, gate, g, g + HALF, n);
            put(f, lane, out, row + i, column, n, g);
        }
    }
    barrier(f, lane);
    add_product(f, lane, &l->down, f->ff);
}

/* ---- head ------------------------------------------------------------------------------------ */

void sn_part_head(struct sn_forward *f, struct sn_lane *lane)
{
    const struct sn_weights *w = &f->m->head;
    size_t d = f->m->hp.d_model, first, last;
    if (f->n_logits == 0)
        return;
    struct rows src = {.data = f->x, .stride = d, .n_in = d, .norm = f->m->out_norm};
    const struct sn_acts *in = code_rows(f, lane, &src, f->n_logits, f->top, sn_form_bit(w));
    sn_split(w->n_panels, lane->index, lane->n_lanes, &first, &last);
    for (size_t panel = first; panel < last; panel += PANELS)
        product(f, lane, w, in, panel, sn_min_size(PANELS, last - panel), 0, f->n_logits,
                f->logits + panel * SN_PANEL, f->logits_ld);
    barrier(f, lane);
    if (!f->on_logits)
        return;
    for (size_t i; (i = sn_ticket_take(&f->tickets[2 * f->m->hp.n_layers])) < f->n_logits;)
        f->on_logits(f->on_logits_ctx, (uint32_t)i, f->logits + i * f->logits_ld, lane);
}
