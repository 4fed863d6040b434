#include "kcheck/gemm_problem.h"

#include "kernel/packed.h"
#include "tensor/traits.h"

bool sn_problem_quantized(sennit_type type)
{
    return sn_packed_block_bytes(type) != 0;
}

static void store16(uint8_t *p, uint16_t h)
{
    memcpy(p, &h, sizeof h);
}

/* A block's scale or minimum. */
static uint16_t draw_scale(struct kcheck *c, enum sn_problem_style style)
{
    static const uint16_t faults[] = {0x7C00, 0xFC00, 0x7E00, 0x0000,
                                      0x8000, 0x0001, 0x7BFF, 0x83FF};
    uint32_t pick = kcheck_below(&c->rng, 64);
    if (style == SN_PROBLEM_FAULTS && pick < SN_ARRAY_LEN(faults))
        return faults[pick];
    return sn_f32_to_f16(kcheck_unit(&c->rng) * (pick < 60 ? 0.0625f : 0x1p-20f));
}

/* Element codes: any byte, or (EXTREME) all bits, no bits, or the sign alone. */
static uint8_t draw_codes(struct kcheck *c, enum sn_problem_style style, uint32_t column_habit)
{
    static const uint8_t ends[] = {0xFF, 0x00, 0x80, 0x7F, 0xF0, 0x0F, 0x81, 0x01};
    if (style != SN_PROBLEM_EXTREME)
        return (uint8_t)kcheck_below(&c->rng, 256);
    if (column_habit < 4) /* one code in the whole column: the largest sums */
        return ends[column_habit];
    return ends[kcheck_below(&c->rng, SN_ARRAY_LEN(ends))];
}

static void draw_quantized_row(struct kcheck *c, sennit_type type, uint8_t *row, size_t n_in,
                               enum sn_problem_style style)
{
    size_t block_bytes = sn_traits((uint32_t)type)->block_bytes, head = type == SENNIT_Q4_1 ? 4 : 2;
    uint32_t habit = kcheck_below(&c->rng, 8);
    for (uint8_t *b = row; b < row + n_in / SN_BLOCK * block_bytes; b += block_bytes) {
        store16(b, draw_scale(c, style));
        if (type == SENNIT_Q4_1)
            store16(b + 2, draw_scale(c, style));
        for (size_t i = head; i < block_bytes; i++)
            b[i] = draw_codes(c, style, habit);
    }
}

static void draw_float_row(struct kcheck *c, sennit_type type, uint8_t *row, size_t n_in,
                           enum sn_problem_style style)
{
    for (size_t i = 0; i < n_in; i++) {
        float v;
        kcheck_fill(&c->rng, &v, 1,
                    style == SN_PROBLEM_FAULTS    ? KC_EDGES
                    : style == SN_PROBLEM_EXTREME ? KC_WIDE
                                                  : KC_NORMAL);
        if (type == SENNIT_F32)
            memcpy(row + 4 * i, &v, sizeof v);
        else
            store16(row + 2 * i, type == SENNIT_F16 ? sn_f32_to_f16(v) : sn_f32_to_bf16(v));
    }
}

void sn_problem_weights(struct kcheck *c, struct sn_problem *p, sennit_type type, size_t n_in,
                        size_t n_out, enum sn_problem_style style)
{
    p->w = (struct sn_weights){type, n_in, n_out, sn_div_up(n_out, SN_PANEL), NULL};
    p->row_bytes = sn_row_bytes((uint32_t)type, n_in);
    p->file = kcheck_out(c, n_out * p->row_bytes, 1);
    for (size_t i = 0; i < n_out; i++) {
        uint8_t *row = p->file + i * p->row_bytes;
        if (sn_problem_quantized(type))
            draw_quantized_row(c, type, row, n_in, style);
        else
            draw_float_row(c, type, row, n_in, style);
    }
}

void sn_problem_pack(struct kcheck *c, struct sn_problem *p)
{
    size_t n_bytes = sn_weights_bytes(p->w.type, p->w.n_in, p->w.n_out);
    p->w.data = kcheck_out(c, n_bytes, 64);
    memset(p->w.data, 0, n_bytes);
    sn_weights_pack(&p->w, p->file, 0, p->w.n_out);
    p->w.data = kcheck_in(c, p->w.data, n_bytes, 64);
}

void sn_problem_set_codes(struct sn_acts *x, size_t row, const int8_t *codes, float d)
{
    uint8_t *tile = sn_act_tile(x, row / SN_TILE_ROWS);
    for (size_t b = 0; b < x->n_in / SN_BLOCK; b++, tile += SN_TILE_BLOCK_BYTES) {
        size_t r = row % SN_TILE_ROWS;
        int32_t sum = 0;
        for (size_t i = 0; i < SN_BLOCK; i++)
            sum += codes[b * SN_BLOCK + i];
        float s = d * (float)sum;
        int32_t bias = -128 * sum;
        memcpy(tile + r * SN_BLOCK, codes + b * SN_BLOCK, SN_BLOCK);
        memcpy(tile + SN_TILE_SCALE + 4 * r, &d, sizeof d);
        if (x->form == SN_ACT_Q8_SUM)
            memcpy(tile + SN_TILE_THIRD + 4 * r, &s, sizeof s);
        else
            memcpy(tile + SN_TILE_THIRD + 4 * r, &bias, sizeof bias);
    }
}

/* Rows of +127, -127, alternations and mixtures. */
static void draw_extreme_codes(struct kcheck *c, struct sn_problem *p)
{
    int8_t *codes = kcheck_out(c, p->w.n_in, 1);
    for (size_t r = 0; r < p->n_rows; r++) {
        uint32_t habit = kcheck_below(&c->rng, 5);
        for (size_t i = 0; i < p->w.n_in; i++) {
            uint32_t draw = kcheck_below(&c->rng, 8);
            bool minus = habit == 1 || (habit == 2 && i % 2) || (habit >= 3 && draw % 2);
            codes[i] = (int8_t)(minus ? -127 : 127);
            if (habit == 4 && draw >= 6)
                codes[i] = (int8_t)(7 - draw);
        }
        sn_problem_set_codes(&p->acts, r, codes, 0.03125f * kcheck_unit(&c->rng));
    }
}

/* F32 rows have padding up to sn_act_ld(), which no kernel may read: the last row's is left out, so
 * that its last value stands before the protected page. */
static size_t act_bytes(const struct sn_acts *x)
{
    if (x->form != SN_ACT_F32)
        return sn_act_bytes(x->form, x->n_rows, x->n_in);
    return ((x->n_rows - 1) * sn_act_ld(x->n_in) + x->n_in) * sizeof(float);
}

struct sn_acts sn_problem_code(struct kcheck *c, const struct sn_problem *p, size_t first, size_t n)
{
    struct sn_acts x = {sn_act_form(p->w.type), n, p->w.n_in, NULL};
    x.data = kcheck_out(c, act_bytes(&x), 64);
    for (size_t r = 0; r < n; r++) {
        const float *src = p->x + (first + r) * p->w.n_in;
        if (x.form == SN_ACT_F32)
            memcpy((float *)x.data + r * sn_act_ld(x.n_in), src, x.n_in * sizeof *src);
        else
            c->ref->act_quantize(src, x.n_in / SN_BLOCK, x.form, sn_act_tile(&x, r / SN_TILE_ROWS),
                                 r % SN_TILE_ROWS);
    }
    x.data = kcheck_in(c, x.data, act_bytes(&x), 64);
    return x;
}

void sn_problem_acts(struct kcheck *c, struct sn_problem *p, size_t n_rows,
                     enum sn_problem_style style)
{
    p->n_rows = n_rows;
    p->x = NULL;
    if (style == SN_PROBLEM_EXTREME && sn_problem_quantized(p->w.type)) {
        p->acts = (struct sn_acts){sn_act_form(p->w.type), n_rows, p->w.n_in, NULL};
        p->acts.data = kcheck_out(c, act_bytes(&p->acts), 64);
        draw_extreme_codes(c, p);
        p->acts.data = kcheck_in(c, p->acts.data, act_bytes(&p->acts), 64);
        return;
    }
    p->x = kcheck_f32(c, n_rows * p->w.n_in, style == SN_PROBLEM_FAULTS ? KC_EDGES : KC_NORMAL);
    p->acts = sn_problem_code(c, p, 0, n_rows);
}

void sn_problem_init(struct kcheck *c, struct sn_problem *p, sennit_type type, size_t n_in,
                     size_t n_out, size_t n_rows, enum sn_problem_style style)
{
    *p = (struct sn_problem){0};
    sn_problem_weights(c, p, type, n_in, n_out, style);
    sn_problem_pack(c, p);
    sn_problem_acts(c, p, n_rows, style);
}

float *sn_problem_run(struct kcheck *c, const struct sn_kernels *k, const struct sn_problem *p,
                      const struct sn_acts *x, size_t panel, size_t n_panels, size_t row,
                      size_t n_rows, size_t ldy)
{
    size_t n = (n_rows - 1) * ldy + SN_PANEL * n_panels;
    struct sn_gemm_args a = {.w = &p->w,
                             .x = x,
                             .panel = panel,
                             .n_panels = n_panels,
                             .row = row,
                             .n_rows = n_rows,
                             .ldy = ldy};
    a.y = kcheck_out(c, n * sizeof(float), sizeof(float));
    sn_kernels_gemm(k, p->w.type)(&a);
    return a.y;
}
