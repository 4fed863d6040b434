/* Element types and quantized block formats as rows of one table. */
#ifndef SN_TRAITS_H
#define SN_TRAITS_H

#include "base/base.h"
#include "sennit/tensor.h"

struct sn_traits {
    const char *name;
    uint32_t block_len;   /* elements per block; 1 for plain types */
    uint32_t block_bytes; /* bytes per block as a GGUF file stores it */
    bool is_weight;       /* the matrix product can run on it */
};

/* NULL for a number that names no known type. */
const struct sn_traits *sn_traits(uint32_t type);

/* Bytes of one row of n elements, or 0 when n is not a whole number of blocks, the type is unknown, or the product
 * overflows. */
size_t sn_row_bytes(uint32_t type, size_t n);

/* IEEE 754 binary16 and bfloat16 in plain integer code: the same bits on every machine. f16 stores of the exact path
 * saturate at +-65504 and keep NaN (numerics.md rule 5); rounding is to nearest even. */
float sn_f16_to_f32(uint16_t h);
uint16_t sn_f32_to_f16(float f);     /* IEEE: overflow gives infinity */
uint16_t sn_f32_to_f16_sat(float f); /* saturating: the form that caches store */
float sn_bf16_to_f32(uint16_t h);
uint16_t sn_f32_to_bf16(float f);

/* Expands a row of n elements of any is_weight type to f32, by the value rule of the format. n must be whole blocks.
 * false when the type cannot be expanded. */
bool sn_dequantize_row(uint32_t type, const void *src, size_t n, float *dst);

#endif
