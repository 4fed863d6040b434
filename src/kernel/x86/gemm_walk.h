/* The order in which quantized products visit weights and activations. It changes speed alone: each
 * output's chain goes through the chunks in rising order whatever the walk. Included by one file
 * per instruction set. */
#ifndef SN_GEMM_WALK_H
#define SN_GEMM_WALK_H

#include "kernel/packed.h"

/* One panel's blocks of one chunk for some rows of a tile from `row` on: w is the first block of
 * the piece, x the first block of the tile. y [rows][ldy] holds the chains of the chunks before,
 * unless first. */
typedef void (*sn_piece_fn)(const uint8_t *w, const uint8_t *x, size_t row, size_t n_blocks,
                            float *y, size_t ldy, bool first);

/* A group of rows keeps its activations (80 KB per chunk at most) and its chains in the
 * second-level cache while the panels of a group pass; within both, chunk by chunk, so that a
 * panel's piece and a tile's piece share the first level; and panel by panel, so that a weight read
 * once serves every row of the group. */
enum { SN_GROUP_ROWS = 64, SN_GROUP_PANELS = 16 };

struct sn_gemm_group {
    size_t row, n_rows, panel, n_panels; /* relative to the call's */
};

static inline void sn_gemm_walk_group(const struct sn_gemm_args *a, struct sn_gemm_group g,
                                      const sn_piece_fn *pieces, size_t max_rows,
                                      size_t block_bytes)
{
    size_t n_blocks = a->w->n_in / SN_BLOCK, tile_bytes = n_blocks * SN_TILE_BLOCK_BYTES;
    const uint8_t *tiles = sn_act_tile(a->x, (a->row + g.row) / SN_TILE_ROWS);
    for (size_t c = 0; c < sn_n_chunks(n_blocks); c++) {
        struct sn_chunk chunk = sn_chunk_at(n_blocks, c);
        const uint8_t *x = tiles + chunk.first * SN_TILE_BLOCK_BYTES;
        const uint8_t *w = (const uint8_t *)a->w->data +
                           sn_packed_at(a->w, chunk, a->panel + g.panel, block_bytes);
        float *y = a->y + g.row * a->ldy + g.panel * SN_PANEL;
        for (size_t p = 0; p < g.n_panels; p++, w += chunk.n * block_bytes, y += SN_PANEL)
            for (size_t r = 0; r < g.n_rows; r += max_rows)
                pieces[sn_min_size(max_rows, g.n_rows - r) - 1](
                    w, x + r / SN_TILE_ROWS * tile_bytes, r % SN_TILE_ROWS, chunk.n, y + r * a->ldy,
                    a->ldy, c == 0);
    }
}

/* pieces[n - 1] does n rows, 1 .. max_rows; max_rows divides the rows of a tile. */
static inline void sn_gemm_walk(const struct sn_gemm_args *a, const sn_piece_fn *pieces,
                                size_t max_rows, size_t block_bytes)
{
    for (size_t r = 0; r < a->n_rows; r += SN_GROUP_ROWS)
        for (size_t p = 0; p < a->n_panels; p += SN_GROUP_PANELS)
            sn_gemm_walk_group(
                a,
                (struct sn_gemm_group){.row = r,
                                       .n_rows = sn_min_size(SN_GROUP_ROWS, a->n_rows - r),
                                       .panel = p,
                                       .n_panels = sn_min_size(SN_GROUP_PANELS, a->n_panels - p)},
                pieces, max_rows, block_bytes);
}

#endif
