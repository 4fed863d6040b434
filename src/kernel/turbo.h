/* Constants of TurboQuant values, and how codes are packed: numerics.md "TurboQuant". The tables are made by
 * tools/turbo_tables.py. */
#ifndef SN_KERNEL_TURBO_H
#define SN_KERNEL_TURBO_H

#include <string.h>

#include "base/base.h"

enum { SN_TURBO_GROUP = 32, SN_TURBO_MAX_DIM = 512 };

/* Bits that a key's, or a value's, code may have, and the head dimensions there are constants for. */
bool sn_turbo_key_bits(unsigned bits);
bool sn_turbo_value_bits(unsigned bits);
bool sn_turbo_dim(size_t d);

/* [2^bits], ascending: what a value's code stands for, before its scale. */
const float *sn_turbo_centroids(unsigned bits);
/* [2^bits], ascending, the last one infinity: the code of z is the number of thresholds below z. */
const float *sn_turbo_thresholds(unsigned bits);
/* The 128 positive ones of 8 bits as 16-bit numbers: all low halves, then all high halves. The other 128 are these,
 * negative, the other way round. */
const uint16_t *sn_turbo_halves(void);
/* [d / 64]: bit i % 64 of word i / 64 set: dimension i changes its sign. */
const uint64_t *sn_turbo_signs(size_t d);
/* 1 / sqrt(d), rounded to f32. */
float sn_turbo_norm(size_t d);

/* Packs the low `bits` bits of 32 bytes into 4 * bits bytes, a little-endian bit stream: code i is bits i * bits and
 * on. bits: 2 to 8. */
static inline void sn_turbo_pack(const uint8_t codes[32], unsigned bits, uint8_t *to)
{
    const uint64_t one = (UINT64_C(1) << bits) - 1, two = (UINT64_C(1) << 2 * bits) - 1,
                   four = (UINT64_C(1) << 4 * bits) - 1;
    for (size_t i = 0; i < 4; i++) {
        uint64_t x;
        memcpy(&x, codes + 8 * i, 8);
        x = (x & one * UINT64_C(0x0001000100010001)) |
            (x >> (8 - bits) & (one << bits) * UINT64_C(0x0001000100010001));
        x = (x & two * UINT64_C(0x0000000100000001)) |
            (x >> (16 - 2 * bits) & (two << 2 * bits) * UINT64_C(0x0000000100000001));
        x = (x & four) | (x >> (32 - 4 * bits) & four << 4 * bits);
        memcpy(to + i * bits, &x, bits);
    }
}

#endif
