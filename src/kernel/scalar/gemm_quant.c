/* Quantized product (docs/numerics.md), per output: for blocks ascending, t = exact integer dot of
 * 32, acc = fma(t, d_w * d_x, acc); with a minimum then acc = fma(m_w, s_x, acc). The loops run
 * over the 16 columns of a panel innermost: no output sees another. */
#include "kernel/packed.h"
#include "kernel/scalar/scalar.h"
#include "tensor/traits.h"

static float half_at(const uint8_t *p, size_t i)
{
    uint16_t h;
    memcpy(&h, p + 2 * i, sizeof h);
    return sn_f16_to_f32(h);
}

static float float_at(const uint8_t *p, size_t i)
{
    float f;
    memcpy(&f, p + 4 * i, sizeof f);
    return f;
}

/* t[c] = sum over e of (code[c][e] - offset) * x[e], 4-bit codes. */
static void dot_nibbles(const uint8_t *codes, int offset, const int8_t *x, int t[SN_PANEL])
{
    for (size_t c = 0; c < SN_PANEL; c++)
        t[c] = 0;
    for (size_t i = 0; i < 4; i++)
        for (size_t c = 0; c < SN_PANEL; c++)
            for (size_t j = 0; j < 4; j++) {
                int byte = codes[64 * i + 4 * c + j];
                t[c] += ((byte & 15) - offset) * x[8 * i + j];
                t[c] += ((byte >> 4) - offset) * x[8 * i + 4 + j];
            }
}

/* The same for 8-bit codes, which are stored with 128 added. */
static void dot_bytes(const uint8_t *codes, const int8_t *x, int t[SN_PANEL])
{
    for (size_t c = 0; c < SN_PANEL; c++)
        t[c] = 0;
    for (size_t i = 0; i < 8; i++)
        for (size_t c = 0; c < SN_PANEL; c++)
            for (size_t j = 0; j < 4; j++)
                t[c] += ((int)codes[64 * i + 4 * c + j] - 128) * x[4 * i + j];
}

/* One block of one panel for one row (0..7) of the tile block x. */
typedef void (*block_fn)(const uint8_t *w, const uint8_t *x, size_t row, float acc[SN_PANEL]);

static void block_q4_1(const uint8_t *w, const uint8_t *x, size_t row, float acc[SN_PANEL])
{
    float d_x = float_at(x + SN_TILE_SCALE, row), s_x = float_at(x + SN_TILE_THIRD, row);
    int t[SN_PANEL];
    dot_nibbles(w + SN_Q4_1_CODES, 0, (const int8_t *)x + SN_BLOCK * row, t);
    for (size_t c = 0; c < SN_PANEL; c++) {
        acc[c] = fmaf((float)t[c], half_at(w, c) * d_x, acc[c]);
        acc[c] = fmaf(half_at(w + SN_Q4_1_MIN, c), s_x, acc[c]);
    }
}

static void block_q4_0(const uint8_t *w, const uint8_t *x, size_t row, float acc[SN_PANEL])
{
    float d_x = float_at(x + SN_TILE_SCALE, row);
    int t[SN_PANEL];
    dot_nibbles(w + SN_Q4_0_CODES, 8, (const int8_t *)x + SN_BLOCK * row, t);
    for (size_t c = 0; c < SN_PANEL; c++)
        acc[c] = fmaf((float)t[c], half_at(w, c) * d_x, acc[c]);
}

static void block_q8_0(const uint8_t *w, const uint8_t *x, size_t row, float acc[SN_PANEL])
{
    float d_x = float_at(x + SN_TILE_SCALE, row);
    int t[SN_PANEL];
    dot_bytes(w, (const int8_t *)x + SN_BLOCK * row, t);
    for (size_t c = 0; c < SN_PANEL; c++)
        acc[c] = fmaf((float)t[c], half_at(w + SN_Q8_0_SCALE, c) * d_x, acc[c]);
}

/* acc over all blocks of K for one row and one panel. */
static void product(const struct sn_gemm_args *a, size_t row, size_t panel, block_fn block,
                    float acc[SN_PANEL])
{
    size_t n_blocks = a->w->n_in / SN_BLOCK, block_bytes = sn_packed_block_bytes(a->w->type);
    const uint8_t *x = sn_act_tile(a->x, row / SN_TILE_ROWS);
    for (size_t c = 0; c < SN_PANEL; c++)
        acc[c] = 0;
    for (size_t c = 0; c < sn_n_chunks(n_blocks); c++) {
        struct sn_chunk chunk = sn_chunk_at(n_blocks, c);
        const uint8_t *w =
            (const uint8_t *)a->w->data + sn_packed_at(a->w, chunk, panel, block_bytes);
        for (size_t b = 0; b < chunk.n; b++)
            block(w + b * block_bytes, x + (chunk.first + b) * SN_TILE_BLOCK_BYTES,
                  row % SN_TILE_ROWS, acc);
    }
}

static void gemm(const struct sn_gemm_args *a, block_fn block)
{
    for (size_t r = 0; r < a->n_rows; r++)
        for (size_t p = 0; p < a->n_panels; p++) {
            float acc[SN_PANEL];
            product(a, a->row + r, a->panel + p, block, acc);
            memcpy(a->y + r * a->ldy + p * SN_PANEL, acc, sizeof acc);
        }
}

void SCALAR(sn_gemm_q4_1)(const struct sn_gemm_args *a)
{
    gemm(a, block_q4_1);
}
void SCALAR(sn_gemm_q4_0)(const struct sn_gemm_args *a)
{
    gemm(a, block_q4_0);
}
void SCALAR(sn_gemm_q8_0)(const struct sn_gemm_args *a)
{
    gemm(a, block_q8_0);
}
