/* Float product (docs/numerics.md): one fma chain per output, k ascending, from +0. */
#include "kernel/packed.h"
#include "kernel/scalar/scalar.h"
#include "tensor/traits.h"

/* w[c] = the 16 weights of one k, as f32. */
typedef void (*load_fn)(const uint8_t *src, float w[SN_PANEL]);

static void load_f32(const uint8_t *src, float w[SN_PANEL])
{
    memcpy(w, src, SN_PANEL * sizeof *w);
}

static void load_f16(const uint8_t *src, float w[SN_PANEL])
{
    uint16_t h[SN_PANEL];
    memcpy(h, src, sizeof h);
    for (size_t c = 0; c < SN_PANEL; c++)
        w[c] = sn_f16_to_f32(h[c]);
}

static void load_bf16(const uint8_t *src, float w[SN_PANEL])
{
    uint16_t h[SN_PANEL];
    memcpy(h, src, sizeof h);
    for (size_t c = 0; c < SN_PANEL; c++)
        w[c] = sn_bf16_to_f32(h[c]);
}

/* n (up to 8) rows of one panel: the weights of a k are converted once for all of them. */
static void product(const struct sn_gemm_args *a, size_t row, size_t n, size_t panel, size_t size,
                    load_fn load)
{
    size_t n_in = a->w->n_in, ld = sn_act_ld(n_in);
    const uint8_t *src = (const uint8_t *)a->w->data + (a->panel + panel) * n_in * SN_PANEL * size;
    const float *x = (const float *)a->x->data + (a->row + row) * ld;
    float acc[SN_TILE_ROWS][SN_PANEL] = {{0}}, w[SN_PANEL];
    for (size_t k = 0; k < n_in; k++) {
        load(src + k * SN_PANEL * size, w);
        for (size_t r = 0; r < n; r++)
            for (size_t c = 0; c < SN_PANEL; c++)
                acc[r][c] = fmaf(x[r * ld + k], w[c], acc[r][c]);
    }
    for (size_t r = 0; r < n; r++)
        memcpy(a->y + (row + r) * a->ldy + panel * SN_PANEL, acc[r], sizeof acc[r]);
}

static void gemm(const struct sn_gemm_args *a, size_t size, load_fn load)
{
    for (size_t p = 0; p < a->n_panels; p++)
        for (size_t r = 0; r < a->n_rows; r += SN_TILE_ROWS)
            product(a, r, sn_min_size(SN_TILE_ROWS, a->n_rows - r), p, size, load);
}

void SCALAR(sn_gemm_f32)(const struct sn_gemm_args *a)
{
    gemm(a, sizeof(float), load_f32);
}
void SCALAR(sn_gemm_f16)(const struct sn_gemm_args *a)
{
    gemm(a, sizeof(uint16_t), load_f16);
}
void SCALAR(sn_gemm_bf16)(const struct sn_gemm_args *a)
{
    gemm(a, sizeof(uint16_t), load_bf16);
}
