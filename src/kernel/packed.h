/* Where things are in the packed weight layout of kernel.h, for the files that read it. */
#ifndef SN_PACKED_H
#define SN_PACKED_H

#include "kernel/kernel.h"

/* Parts of one packed block of 16 columns, in bytes from its start. */
enum {
    SN_Q4_1_BYTES = 320,
    SN_Q4_1_MIN = 32,
    SN_Q4_1_CODES = 64,
    SN_Q4_0_BYTES = 288,
    SN_Q4_0_CODES = 32,
    SN_Q8_0_BYTES = 544,
    SN_Q8_0_SCALE = 512
};

/* Parts of one tile block, in bytes from its start: codes of 8 rows, then d, then the third part.
 */
enum { SN_TILE_SCALE = SN_TILE_ROWS * SN_BLOCK, SN_TILE_THIRD = SN_TILE_SCALE + 4 * SN_TILE_ROWS };

/* Bytes of one packed block; 0 for the float types, which have none. */
static inline size_t sn_packed_block_bytes(sennit_type type)
{
    switch (type) {
    case SENNIT_Q4_1:
        return SN_Q4_1_BYTES;
    case SENNIT_Q4_0:
        return SN_Q4_0_BYTES;
    case SENNIT_Q8_0:
        return SN_Q8_0_BYTES;
    default:
        return 0;
    }
}

/* Blocks first .. first + n - 1 of K: one chunk. */
struct sn_chunk {
    size_t first, n;
};

static inline size_t sn_n_chunks(size_t n_blocks)
{
    return sn_div_up(n_blocks, SN_CHUNK_BLOCKS);
}

static inline struct sn_chunk sn_chunk_at(size_t n_blocks, size_t chunk)
{
    size_t first = chunk * SN_CHUNK_BLOCKS;
    return (struct sn_chunk){first, sn_min_size(SN_CHUNK_BLOCKS, n_blocks - first)};
}

/* Bytes from the start of the weights to the first block of a panel in a chunk. */
static inline size_t sn_packed_at(const struct sn_weights *w, struct sn_chunk chunk, size_t panel,
                                  size_t block_bytes)
{
    return (chunk.first * w->n_panels + panel * chunk.n) * block_bytes;
}

#endif
