/* Packing of weights into the layout of the products, and sizes of the activations they read. Moves
 * only: no value changes on the way in, and the gather gives back the file's own values. */
#include "kernel/packed.h"
#include "tensor/traits.h"

bool sn_weights_supported(sennit_type type)
{
    switch (type) {
    case SENNIT_F32:
    case SENNIT_F16:
    case SENNIT_BF16:
    case SENNIT_Q8_0:
    case SENNIT_Q4_0:
    case SENNIT_Q4_1:
        return true;
    default:
        return false;
    }
}

enum sn_act sn_act_form(sennit_type weight)
{
    switch (weight) {
    case SENNIT_Q4_1:
        return SN_ACT_Q8_SUM; /* the minimum multiplies s */
    case SENNIT_Q4_0:
    case SENNIT_Q8_0:
        return SN_ACT_Q8_BIAS; /* unsigned codes need their offset taken off: -128 sum, or a
                                  sixteenth of it */
    default:
        return SN_ACT_F32;
    }
}

size_t sn_act_bytes(enum sn_act form, size_t n_rows, size_t n_in)
{
    size_t rows = sn_round_up(n_rows, SN_TILE_ROWS), per_row, bytes;
    if (n_in > SIZE_MAX - 16 || rows < n_rows)
        return SIZE_MAX; /* no allocator has this much: the caller's allocation fails */
    bool bad = form == SN_ACT_F32 ? sn_mul_overflows(sn_act_ld(n_in), sizeof(float), &per_row)
                                  : sn_mul_overflows(n_in / SN_BLOCK,
                                                     SN_TILE_BLOCK_BYTES / SN_TILE_ROWS, &per_row);
    return bad || sn_mul_overflows(rows, per_row, &bytes) ? SIZE_MAX : bytes;
}

size_t sn_weights_bytes(sennit_type type, size_t n_in, size_t n_out)
{
    size_t block = sn_packed_block_bytes(type), unit, n, bytes;
    if (!sn_weights_supported(type) || n_in == 0)
        return 0;
    if (block) {
        if (n_in % SN_BLOCK != 0)
            return 0;
        unit = block;
        n = n_in / SN_BLOCK;
    } else {
        unit = SN_PANEL * (type == SENNIT_F32 ? sizeof(float) : sizeof(uint16_t));
        n = n_in;
    }
    if (sn_mul_overflows(unit, n, &bytes) ||
        sn_mul_overflows(bytes, sn_div_up(n_out, SN_PANEL), &bytes))
        return 0;
    return bytes;
}

static uint32_t load32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void store32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

/* The 16 code bytes of a 4-bit file block (byte j: element j low, j + 16 high) into 4 bytes of each
 * vector: element 8i + j low, 8i + 4 + j high. Byte-wise, so the same on any byte order. */
static void pack_nibbles(const uint8_t *src, uint8_t *dst)
{
    const uint32_t low = 0x0F0F0F0F, high = 0xF0F0F0F0;
    uint32_t a = load32(src), b = load32(src + 4), c = load32(src + 8), d = load32(src + 12);
    store32(dst, (a & low) | (b & low) << 4);
    store32(dst + 64, (c & low) | (d & low) << 4);
    store32(dst + 128, (a >> 4 & low) | (b & high));
    store32(dst + 192, (c >> 4 & low) | (d & high));
}

/* One file block into its column of a packed block. */
static void pack_block(sennit_type type, const uint8_t *src, size_t column, uint8_t *block)
{
    switch (type) {
    case SENNIT_Q4_1:
        memcpy(block + 2 * column, src, 2);
        memcpy(block + SN_Q4_1_MIN + 2 * column, src + 2, 2);
        pack_nibbles(src + 4, block + SN_Q4_1_CODES + 4 * column);
        break;
    case SENNIT_Q4_0:
        memcpy(block + 2 * column, src, 2);
        pack_nibbles(src + 2, block + SN_Q4_0_CODES + 4 * column);
        break;
    default: /* Q8_0 */
        memcpy(block + SN_Q8_0_SCALE + 2 * column, src, 2);
        for (size_t i = 0; i < 8; i++)
            store32(block + 64 * i + 4 * column, load32(src + 2 + 4 * i) ^ 0x80808080);
        break;
    }
}

static void pack_quantized(struct sn_weights *w, const uint8_t *row, size_t column)
{
    size_t n_blocks = w->n_in / SN_BLOCK, block_bytes = sn_packed_block_bytes(w->type);
    size_t file_bytes = sn_traits((uint32_t)w->type)->block_bytes;
    for (size_t c = 0; c < sn_n_chunks(n_blocks); c++) {
        struct sn_chunk chunk = sn_chunk_at(n_blocks, c);
        uint8_t *dst = (uint8_t *)w->data + sn_packed_at(w, chunk, column / SN_PANEL, block_bytes);
        const uint8_t *src = row + chunk.first * file_bytes;
        for (size_t b = 0; b < chunk.n; b++)
            pack_block(w->type, src + b * file_bytes, column % SN_PANEL, dst + b * block_bytes);
    }
}

/* Values first .. first + n - 1 of the columns `column`.. (one panel's) of a float matrix: 64 at a
 * time, so that the part of the panel that is written stays in the first cache while the columns
 * pass. */
static void pack_float(struct sn_weights *w, const uint8_t *rows, size_t column, size_t n)
{
    enum { STEP = 64 };
    size_t size = w->type == SENNIT_F32 ? 4 : 2, row_bytes = w->n_in * size;
    uint8_t *panel = (uint8_t *)w->data + column / SN_PANEL * w->n_in * SN_PANEL * size;
    for (size_t k = 0; k < w->n_in; k += STEP) {
        size_t k_end = sn_min_size(k + STEP, w->n_in);
        for (size_t c = 0; c < n; c++)
            for (size_t i = k; i < k_end; i++)
                memcpy(panel + (i * SN_PANEL + column % SN_PANEL + c) * size,
                       rows + c * row_bytes + i * size, size);
    }
}

void sn_weights_pack(struct sn_weights *w, const void *rows, size_t first, size_t n)
{
    size_t row_bytes = sn_row_bytes((uint32_t)w->type, w->n_in);
    const uint8_t *row = rows;
    while (n > 0) {
        size_t part = sn_min_size(n, SN_PANEL - first % SN_PANEL);
        if (sn_packed_block_bytes(w->type) == 0)
            pack_float(w, row, first, part);
        else
            for (size_t i = 0; i < part; i++)
                pack_quantized(w, row + i * row_bytes, first + i);
        row += part * row_bytes;
        first += part;
        n -= part;
    }
}

static float load_f16(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return sn_f16_to_f32(h);
}

/* Element e (0..31) of a column's codes: vector e / 8, low half for its first four elements. */
static int nibble(const uint8_t *codes, size_t column, size_t e)
{
    uint8_t byte = codes[e / 8 * 64 + 4 * column + e % 4];
    return e % 8 < 4 ? byte & 15 : byte >> 4;
}

static void gather_block(sennit_type type, const uint8_t *block, size_t column, float out[32])
{
    float d = load_f16(block + (type == SENNIT_Q8_0 ? SN_Q8_0_SCALE : 0) + 2 * column);
    switch (type) {
    case SENNIT_Q4_1: {
        float m = load_f16(block + SN_Q4_1_MIN + 2 * column);
        for (size_t e = 0; e < SN_BLOCK; e++)
            out[e] = (float)nibble(block + SN_Q4_1_CODES, column, e) * d + m;
        break;
    }
    case SENNIT_Q4_0:
        for (size_t e = 0; e < SN_BLOCK; e++)
            out[e] = (float)(nibble(block + SN_Q4_0_CODES, column, e) - 8) * d;
        break;
    default: /* Q8_0 */
        for (size_t e = 0; e < SN_BLOCK; e++)
            out[e] = (float)((int)block[e / 4 * 64 + 4 * column + e % 4] - 128) * d;
        break;
    }
}

static void gather_quantized(const struct sn_weights *w, size_t column, float *out)
{
    size_t n_blocks = w->n_in / SN_BLOCK, block_bytes = sn_packed_block_bytes(w->type);
    for (size_t c = 0; c < sn_n_chunks(n_blocks); c++) {
        struct sn_chunk chunk = sn_chunk_at(n_blocks, c);
        const uint8_t *src =
            (const uint8_t *)w->data + sn_packed_at(w, chunk, column / SN_PANEL, block_bytes);
        for (size_t b = 0; b < chunk.n; b++)
            gather_block(w->type, src + b * block_bytes, column % SN_PANEL,
                         out + (chunk.first + b) * SN_BLOCK);
    }
}

void sn_weights_gather(const struct sn_weights *w, size_t column, float *out)
{
    if (sn_packed_block_bytes(w->type) != 0) {
        gather_quantized(w, column, out);
        return;
    }
    size_t size = w->type == SENNIT_F32 ? 4 : 2;
    const uint8_t *panel = (const uint8_t *)w->data + column / SN_PANEL * w->n_in * SN_PANEL * size;
    for (size_t k = 0; k < w->n_in; k++)
        (void)sn_dequantize_row((uint32_t)w->type,
                                panel + (k * SN_PANEL + column % SN_PANEL) * size, 1, out + k);
}
