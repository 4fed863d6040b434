/* Matrix products and activation blocks: same bits as the specification at every size and tail,
 * rows and panels independent of their company, exact integer dots for every code, and the
 * specification against a textbook sum in double precision. */
#include <math.h>

#include "kcheck/gemm_problem.h"
#include "kernel/packed.h"
#include "tensor/traits.h"

static const sennit_type types[] = {SENNIT_F32,  SENNIT_F16,  SENNIT_BF16,
                                    SENNIT_Q8_0, SENNIT_Q4_0, SENNIT_Q4_1};

/* ---- activation blocks
 * --------------------------------------------------------------------------------------- */

/* A tile of n_blocks blocks with one row coded; the rest keeps the poison. */
static uint8_t *code_row(struct kcheck *c, const struct sn_kernels *k, const float *x,
                         size_t n_blocks, enum sn_act form, size_t row)
{
    uint8_t *tile = kcheck_out(c, n_blocks * SN_TILE_BLOCK_BYTES, 64);
    k->act_quantize(x, n_blocks, form, tile, row);
    return tile;
}

/* Everything of two tiles except the scales of one row, which may be NaN with different payloads.
 */
static void same_tile(struct kcheck *c, uint8_t *want, uint8_t *got, size_t n_blocks,
                      enum sn_act form, size_t row)
{
    for (size_t b = 0; b < n_blocks; b++, want += SN_TILE_BLOCK_BYTES, got += SN_TILE_BLOCK_BYTES) {
        float d[2], s[2] = {0, 0};
        memcpy(&d[0], want + SN_TILE_SCALE + 4 * row, 4);
        memcpy(&d[1], got + SN_TILE_SCALE + 4 * row, 4);
        memset(want + SN_TILE_SCALE + 4 * row, 0, 4);
        memset(got + SN_TILE_SCALE + 4 * row, 0, 4);
        if (form == SN_ACT_Q8_SUM) {
            memcpy(&s[0], want + SN_TILE_THIRD + 4 * row, 4);
            memcpy(&s[1], got + SN_TILE_THIRD + 4 * row, 4);
            memset(want + SN_TILE_THIRD + 4 * row, 0, 4);
            memset(got + SN_TILE_THIRD + 4 * row, 0, 4);
        }
        kcheck_same_f32(c, &d[0], &d[1], 1, "d of block %zu, row %zu", b, row);
        kcheck_same_f32(c, &s[0], &s[1], 1, "s of block %zu, row %zu", b, row);
        kcheck_same_bytes(c, want, got, SN_TILE_BLOCK_BYTES, "codes of block %zu, row %zu", b, row);
    }
}

static void check_code(struct kcheck *c, const float *x, size_t n_blocks, enum sn_act form,
                       size_t row)
{
    uint8_t *want = code_row(c, c->ref, x, n_blocks, form, row);
    uint8_t *got = code_row(c, c->dut, x, n_blocks, form, row);
    same_tile(c, want, got, n_blocks, form, row);
}

/* The words of numerics.md restated on one coded block, in double precision. */
static void check_code_value(struct kcheck *c, const float *x, enum sn_act form, size_t row)
{
    uint8_t *tile = code_row(c, c->dut, x, 1, form, row);
    const int8_t *codes = (const int8_t *)tile + row * SN_BLOCK;
    float d, amax = 0;
    bool fault = false;
    for (size_t i = 0; i < SN_BLOCK; i++) {
        fault = fault || !isfinite(x[i]);
        amax = fabsf(x[i]) > amax ? fabsf(x[i]) : amax;
    }
    memcpy(&d, tile + SN_TILE_SCALE + 4 * row, sizeof d);
    if (fault || amax < 0x1p-100f)
        kcheck_expect(c, fault ? isnan(d) : d == 0, "scale %a of a block with %s", (double)d,
                      fault ? "a fault" : "nothing in it");
    else
        kcheck_expect(c, d == amax / 127.0f, "scale %a, largest magnitude %a", (double)d,
                      (double)amax);
    for (size_t i = 0; i < SN_BLOCK; i++) {
        if (fault || amax < 0x1p-100f)
            kcheck_expect(c, codes[i] == 0, "code %d of a block of zeros", codes[i]);
        else /* half a step, and the roundings of 127/amax, of the product and of d */
            kcheck_expect(c,
                          fabs((double)codes[i] * (double)d - (double)x[i]) <= 0.50001 * (double)d,
                          "code %d for %a at scale %a", codes[i], (double)x[i], (double)d);
    }
}

/* Ties of rint, both signs of zero, and amax around its threshold. */
static void check_code_edges(struct kcheck *c)
{
    static const float tops[] = {
        127.0f, 0x1p-100f, 0x0.ffffffp-100f, 0x1.000002p-100f, 0x1p-126f, 0x1p-149f,
        0.0f,   FLT_MAX,   INFINITY,         -INFINITY,        NAN};
    for (size_t t = 0; t < SN_ARRAY_LEN(tops); t++)
        for (size_t at = 0; at < SN_BLOCK; at += t < 2 ? 1 : 11) {
            float values[SN_BLOCK];
            for (size_t i = 0; i < SN_BLOCK; i++)
                values[i] = t == 0 ? (float)i - 15.5f : i % 3 ? 0.0f : -0.0f;
            values[at] = at % 2 ? tops[t] : -tops[t];
            const float *x = kcheck_in(c, values, sizeof values, 4);
            check_code(c, x, 1, SN_ACT_Q8_SUM, at % SN_TILE_ROWS);
            check_code(c, x, 1, SN_ACT_Q8_BIAS, at % SN_TILE_ROWS);
            check_code_value(c, x, SN_ACT_Q8_SUM, at % SN_TILE_ROWS);
            kcheck_end_case(c);
        }
}

static void check_act_quantize(struct kcheck *c)
{
    if (!kcheck_begin(c, SN_K_act_quantize))
        return;
    size_t n_rounds = c->opts->long_run ? 200 : c->opts->quick ? 2 : 20;
    for (size_t round = 0; round < n_rounds; round++)
        for (enum kcheck_shape shape = KC_NORMAL; shape <= KC_BITS; shape++)
            for (size_t row = 0; row < SN_TILE_ROWS; row++) {
                size_t n_blocks = 1 + kcheck_below(&c->rng, 5);
                const float *x = kcheck_f32(c, n_blocks * SN_BLOCK, shape);
                check_code(c, x, n_blocks, SN_ACT_Q8_SUM, row);
                check_code(c, x, n_blocks, SN_ACT_Q8_BIAS, row);
                check_code_value(c, x, SN_ACT_Q8_BIAS, row);
                kcheck_end_case(c);
            }
    check_code_edges(c);
}

/* ---- packing --------------------------------------------------------------------------------- */

/* What is packed comes back from the gather as the file's own values, whatever the order and split
 * of the calls. */
static void check_packing(struct kcheck *c, sennit_type type)
{
    static const size_t units[] = {1, 2, 31, 32, 33, 65};
    for (size_t i = 0; i < SN_ARRAY_LEN(units); i++) {
        struct sn_problem p;
        size_t n_in = units[i] * (sn_problem_quantized(type) ? SN_BLOCK : 1);
        size_t n_out = 1 + kcheck_below(&c->rng, 50),
               half = kcheck_below(&c->rng, (uint32_t)n_out + 1);
        sn_problem_weights(c, &p, type, n_in, n_out, SN_PROBLEM_FAULTS);
        sn_problem_pack(c, &p);
        size_t n_bytes = sn_weights_bytes(type, n_in, n_out);
        struct sn_weights parts = p.w;
        parts.data = kcheck_out(c, n_bytes, 64);
        memset(parts.data, 0, n_bytes);
        sn_weights_pack(&parts, p.file + half * p.row_bytes, half, n_out - half);
        sn_weights_pack(&parts, p.file, 0, half);
        kcheck_same_bytes(c, p.w.data, parts.data, n_bytes,
                          "packed in two parts, split at %zu of %zu", half, n_out);
        for (size_t column = 0; column < n_out; column++) {
            float *want = kcheck_out(c, n_in * sizeof(float), 4),
                  *got = kcheck_out(c, n_in * sizeof(float), 4);
            kcheck_expect(
                c, sn_dequantize_row((uint32_t)type, p.file + column * p.row_bytes, n_in, want),
                "%s has no values", sennit_type_name(type));
            sn_weights_gather(&p.w, column, got);
            kcheck_same_f32(c, want, got, n_in, "gather of column %zu, n_in=%zu", column, n_in);
        }
        kcheck_end_case(c);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* The whole product on both sides; the gaps between the rows of y must keep their poison. */
static void compare(struct kcheck *c, const struct sn_problem *p, size_t gap)
{
    size_t width = p->w.n_panels * SN_PANEL, ldy = width + gap;
    const float *want = sn_problem_run(c, c->ref, p, &p->acts, 0, p->w.n_panels, 0, p->n_rows, ldy);
    const float *got = sn_problem_run(c, c->dut, p, &p->acts, 0, p->w.n_panels, 0, p->n_rows, ldy);
    for (size_t r = 0; r < p->n_rows; r++) {
        kcheck_same_f32(c, want + r * ldy, got + r * ldy, width,
                        "%s n_in=%zu n_out=%zu, row %zu of %zu", sennit_type_name(p->w.type),
                        p->w.n_in, p->w.n_out, r, p->n_rows);
        if (r + 1 < p->n_rows)
            kcheck_same_bytes(c, want + r * ldy + width, got + r * ldy + width, gap * sizeof(float),
                              "gap after row %zu", r);
    }
}

static void check_size(struct kcheck *c, sennit_type type, size_t units, size_t n_out,
                       size_t n_rows, enum sn_problem_style style)
{
    struct sn_problem p;
    size_t gap = kcheck_below(&c->rng, 3);
    sn_problem_init(c, &p, type, units * (sn_problem_quantized(type) ? SN_BLOCK : 1), n_out, n_rows,
                    style);
    compare(c, &p, gap);
    kcheck_end_case(c);
}

/* Every length up to 70 (blocks, or elements for the float types) with drawn columns and rows, then
 * every number of columns and of rows up to 65 with a drawn length. */
static void check_sizes(struct kcheck *c, sennit_type type)
{
    static const size_t few[] = {1, 2, 7, 31, 32, 33, 64, 65};
    bool all = !c->opts->quick;
    for (size_t i = 1; i <= (all ? 70 : SN_ARRAY_LEN(few)); i++) {
        enum sn_problem_style style = (enum sn_problem_style)(i % 3);
        size_t n_out = 1 + kcheck_below(&c->rng, all ? 65 : 35);
        size_t n_rows = 1 + kcheck_below(&c->rng, all ? 33 : 12);
        check_size(c, type, all ? i : few[i - 1], n_out, n_rows, style);
    }
    for (size_t n = 1; n <= 65; n += all ? 1 : 8) {
        size_t units = 1 + kcheck_below(&c->rng, 4), other = 1 + kcheck_below(&c->rng, 20);
        check_size(c, type, units, n, other, SN_PROBLEM_PLAIN);
        check_size(c, type, units, other, n, SN_PROBLEM_PLAIN);
        check_size(c, type, units, other, n, SN_PROBLEM_FAULTS);
        check_size(c, type, units, n, other, SN_PROBLEM_EXTREME);
    }
}

/* A row's numbers are its own: M rows equal M single rows, a later tile alone equals itself in
 * company, and any split of the panels equals the whole. */
static void check_independence(struct kcheck *c, sennit_type type, size_t units, size_t n_out,
                               size_t n_rows)
{
    struct sn_problem p;
    size_t n_in = units * (sn_problem_quantized(type) ? SN_BLOCK : 1);
    sn_problem_init(c, &p, type, n_in, n_out, n_rows, SN_PROBLEM_PLAIN);
    size_t n_panels = p.w.n_panels, ldy = n_panels * SN_PANEL;
    const float *whole = sn_problem_run(c, c->dut, &p, &p.acts, 0, n_panels, 0, n_rows, ldy);
    for (size_t r = 0; r < n_rows; r++) {
        struct sn_acts one = sn_problem_code(c, &p, r, 1);
        const float *y = sn_problem_run(c, c->dut, &p, &one, 0, n_panels, 0, 1, ldy);
        kcheck_same_f32(c, whole + r * ldy, y, ldy, "row %zu of %zu alone", r, n_rows);
    }
    for (size_t row = 0; row < n_rows; row += SN_TILE_ROWS) {
        size_t n = 1 + kcheck_below(&c->rng, (uint32_t)(n_rows - row));
        const float *y = sn_problem_run(c, c->dut, &p, &p.acts, 0, n_panels, row, n, ldy);
        for (size_t r = 0; r < n; r++)
            kcheck_same_f32(c, whole + (row + r) * ldy, y + r * ldy, ldy,
                            "row %zu of a call from row %zu", r, row);
    }
    for (size_t panel = 0; panel < n_panels;) {
        size_t n = 1 + kcheck_below(&c->rng, (uint32_t)(n_panels - panel)), width = n * SN_PANEL;
        const float *y = sn_problem_run(c, c->dut, &p, &p.acts, panel, n, 0, n_rows, width);
        for (size_t r = 0; r < n_rows; r++)
            kcheck_same_f32(c, whole + r * ldy + panel * SN_PANEL, y + r * width, width,
                            "panels %zu to %zu alone, row %zu", panel, panel + n - 1, r);
        panel += n;
    }
    kcheck_end_case(c);
}

/* Weights of one block: row i of the file has code_of(i, e) at element e, scale 1, minimum 0. Raw
 * codes as the file stores them: 0..15, or -128..127. */
static void set_file_codes(struct sn_problem *p, size_t column, const int codes[SN_BLOCK])
{
    const uint16_t one = 0x3C00, zero = 0;
    uint8_t *row = p->file + column * p->row_bytes;
    memcpy(row, &one, sizeof one);
    if (p->w.type == SENNIT_Q4_1)
        memcpy(row + 2, &zero, sizeof zero);
    uint8_t *dst = row + (p->w.type == SENNIT_Q4_1 ? 4 : 2);
    for (size_t e = 0; e < SN_BLOCK; e++) {
        if (p->w.type == SENNIT_Q8_0)
            dst[e] = (uint8_t)codes[e];
        else if (e < 16)
            dst[e] = (uint8_t)(codes[e] | codes[e + 16] << 4);
    }
}

/* Every pair of codes, and every pair next to its opposite: with scales of 1 the output is the
 * integer dot itself. */
static void check_every_code(struct kcheck *c, sennit_type type)
{
    struct sn_problem p = {0};
    bool wide = type == SENNIT_Q8_0;
    int n_codes = wide ? 256 : 16,
        offset = type == SENNIT_Q4_0 ? 8
                 : wide              ? 128
                                     : 0,
        w[256][SN_BLOCK];
    int8_t x[SN_BLOCK];
    sn_problem_weights(c, &p, type, SN_BLOCK, (size_t)n_codes, SN_PROBLEM_PLAIN);
    for (int i = 0; i < n_codes; i++) {
        for (int e = 0; e < SN_BLOCK;
             e++) /* odd elements vary with another stride: unlike neighbours */
            w[i][e] = (e % 2 ? i * 7 + e / 2 : i) % n_codes - (wide ? 128 : 0);
        set_file_codes(&p, (size_t)i, w[i]);
    }
    sn_problem_pack(c, &p);
    p.n_rows = 255;
    p.acts = (struct sn_acts){sn_act_form(type), p.n_rows, SN_BLOCK, NULL};
    p.acts.data = kcheck_out(c, sn_act_bytes(p.acts.form, p.n_rows, SN_BLOCK), 64);
    for (int r = 0; r < 255; r++) {
        for (int e = 0; e < SN_BLOCK; e++)
            x[e] = (int8_t)(e % 4 < 2 ? r - 127 : 127 - r);
        sn_problem_set_codes(&p.acts, (size_t)r, x, 1.0f);
    }
    size_t ldy = p.w.n_panels * SN_PANEL;
    const float *y = sn_problem_run(c, c->dut, &p, &p.acts, 0, p.w.n_panels, 0, p.n_rows, ldy);
    for (int r = 0; r < 255; r++)
        for (int i = 0; i < n_codes; i++) {
            int t = 0;
            for (int e = 0; e < SN_BLOCK; e++)
                t += (w[i][e] - (type == SENNIT_Q4_0 ? offset : 0)) *
                     (e % 4 < 2 ? r - 127 : 127 - r);
            kcheck_expect(c, y[(size_t)r * ldy + (size_t)i] == (float)t,
                          "%s: dot of code %d by %d is %d, not %g", sennit_type_name(type), i,
                          r - 127, t, (double)y[(size_t)r * ldy + (size_t)i]);
        }
    kcheck_end_case(c);
}

/* Row r of the activations as the product sees them, in double precision: x[k] = code * d. */
static void decode_row(const struct sn_problem *p, size_t r, double *x)
{
    for (size_t k = 0; k < p->w.n_in; k++) {
        if (p->acts.form == SN_ACT_F32) {
            x[k] = (double)((const float *)p->acts.data)[r * sn_act_ld(p->w.n_in) + k];
            continue;
        }
        const uint8_t *block =
            sn_act_tile(&p->acts, r / SN_TILE_ROWS) + k / SN_BLOCK * SN_TILE_BLOCK_BYTES;
        float d;
        memcpy(&d, block + SN_TILE_SCALE + 4 * (r % SN_TILE_ROWS), sizeof d);
        x[k] =
            (double)((const int8_t *)block)[r % SN_TILE_ROWS * SN_BLOCK + k % SN_BLOCK] * (double)d;
    }
}

/* The textbook: sum of w * x in double precision, w from the file by the format's own rule in f32.
 * The bound is the classical one for a chain of n operations, (n + 4) u * sum |w x| with u = 2^-24:
 * each of the n fma rounds once, and the 4 covers d_w * d_x, s, and the rounding of code * d and +
 * m in the file's values. A minimum does not cancel inside the bound, so |code * d| and |m| count
 * apart: 3 times the sum of |w x| would not do, their own sum does. */
static void check_textbook(struct kcheck *c, sennit_type type, size_t n_in)
{
    struct sn_problem p;
    sn_problem_init(c, &p, type, n_in, 19, 9, SN_PROBLEM_PLAIN);
    size_t ldy = p.w.n_panels * SN_PANEL;
    const float *y = sn_problem_run(c, c->dut, &p, &p.acts, 0, p.w.n_panels, 0, p.n_rows, ldy);
    float *w = kcheck_out(c, n_in * sizeof *w, 4);
    double *x = kcheck_out(c, n_in * sizeof *x, 8), worst = 0;
    double n = (double)(sn_problem_quantized(type) ? 2 * n_in / SN_BLOCK : n_in);
    for (size_t column = 0; column < p.w.n_out; column++) {
        (void)sn_dequantize_row((uint32_t)type, p.file + column * p.row_bytes, n_in, w);
        for (size_t r = 0; r < p.n_rows; r++) {
            double sum = 0, size = 0;
            decode_row(&p, r, x);
            for (size_t k = 0; k < n_in; k++) {
                double m = 0;
                if (type == SENNIT_Q4_1) {
                    uint16_t h;
                    memcpy(&h, p.file + column * p.row_bytes + k / SN_BLOCK * 20 + 2, sizeof h);
                    m = (double)sn_f16_to_f32(h);
                }
                sum += (double)w[k] * x[k];
                size += (fabs((double)w[k] - m) + fabs(m)) * fabs(x[k]);
            }
            double error = fabs((double)y[r * ldy + column] - sum),
                   bound = (n + 4) * 0x1p-24 * size;
            worst = bound > 0 && error / bound > worst ? error / bound : worst;
            kcheck_expect(c, error <= bound, "%s n_in=%zu: error %g, bound %g, value %g",
                          sennit_type_name(type), n_in, error, bound, sum);
        }
    }
    kcheck_note(c, "n_in=%zu: worst error %.3f of the bound", n_in, worst);
    kcheck_end_case(c);
}

void kcheck_check_gemm(struct kcheck *c)
{
    check_act_quantize(c);
    for (size_t i = 0; i < SN_ARRAY_LEN(types); i++) {
        sennit_type type = types[i];
        if (!kcheck_begin(c, sn_kernel_gemm_id(type)))
            continue;
        size_t n_rounds = c->opts->long_run ? 50 : 1;
        check_packing(c, type);
        for (size_t round = 0; round < n_rounds; round++) {
            check_sizes(c, type);
            size_t n_out = 1 + kcheck_below(&c->rng, 150), n_rows = 1 + kcheck_below(&c->rng, 40);
            check_independence(c, type, 2, n_out, n_rows);
            check_independence(c, type, 33, n_rows, n_out);
            check_independence(c, type, 65, n_out, n_rows);
            check_independence(c, type, 1, 273,
                               66); /* past a group of the kernels' walk in both directions */
        }
        if (sn_problem_quantized(type))
            check_every_code(c, type);
        check_textbook(c, type, 64);
        check_textbook(c, type, c->opts->quick ? 576 : 2080);
    }
}

/* ---- speed ----------------------------------------------------------------------------------- */

struct speed {
    const struct sn_kernels *k;
    const struct sn_problem *p;
    float *y;
};

static void run_product(void *arg)
{
    const struct speed *s = arg;
    struct sn_gemm_args a = {.w = &s->p->w,
                             .x = &s->p->acts,
                             .n_panels = s->p->w.n_panels,
                             .n_rows = s->p->n_rows,
                             .y = s->y,
                             .ldy = s->p->w.n_panels * SN_PANEL};
    sn_kernels_gemm(s->k, s->p->w.type)(&a);
}

static void run_code(void *arg)
{
    const struct speed *s = arg;
    struct sn_acts x = s->p->acts;
    x.data = s->y;
    for (size_t r = 0; r < s->p->n_rows; r++)
        s->k->act_quantize(s->p->x + r * x.n_in, x.n_in / SN_BLOCK, x.form,
                           sn_act_tile(&x, r / SN_TILE_ROWS), r % SN_TILE_ROWS);
}

static void bench_type(struct kcheck *c, sennit_type type, size_t n_in, size_t n_out)
{
    static const size_t rows[] = {1, 4, 8, 32};
    struct sn_problem p;
    sn_problem_weights(c, &p, type, n_in, n_out, SN_PROBLEM_PLAIN);
    sn_problem_pack(c, &p);
    for (size_t i = 0; i < SN_ARRAY_LEN(rows); i++) {
        char what[64];
        sn_problem_acts(c, &p, rows[i], SN_PROBLEM_PLAIN);
        struct speed s = {c->dut, &p,
                          kcheck_out(c, rows[i] * p.w.n_panels * SN_PANEL * sizeof(float), 64)};
        (void)snprintf(what, sizeof what, "%zux%zu, %zu rows", n_in, n_out, rows[i]);
        (void)kcheck_time(c, sn_kernel_gemm_id(type), what, 2.0 * (double)(rows[i] * n_in * n_out),
                          "Gop/s", run_product, &s);
    }
    kcheck_end_case(c);
}

void kcheck_bench_gemm(struct kcheck *c)
{
    struct sn_problem p;
    if (kcheck_wanted(c, SN_K_act_quantize)) {
        sn_problem_init(c, &p, SENNIT_Q4_1, 1536, 16, 8, SN_PROBLEM_PLAIN);
        struct speed s = {c->dut, &p, kcheck_out(c, sn_act_bytes(p.acts.form, 8, 1536), 64)};
        (void)kcheck_time(c, SN_K_act_quantize, "1536 x 8 rows", 8 * 1536, "G/s", run_code, &s);
        kcheck_end_case(c);
    }
    for (size_t i = 0; i < SN_ARRAY_LEN(types); i++) {
        if (!kcheck_wanted(c, sn_kernel_gemm_id(types[i])))
            continue;
        bench_type(c, types[i], 576, 1536);
        bench_type(c, types[i], 1536, 576);
        if (types[i] == SENNIT_Q4_1)
            bench_type(c, types[i], 4096, 1024);
        if (types[i] == SENNIT_Q8_0)
            bench_type(c, types[i], 576, 49152);
    }
}
