/* Element types of tensors, as GGUF numbers them (the ggml_type enumeration of the GGUF specification). */
#ifndef SENNIT_TENSOR_H
#define SENNIT_TENSOR_H

#include "sennit/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sennit_type {
    SENNIT_F32 = 0,
    SENNIT_F16 = 1,
    SENNIT_Q4_0 = 2,
    SENNIT_Q4_1 = 3,
    SENNIT_Q5_0 = 6,
    SENNIT_Q5_1 = 7,
    SENNIT_Q8_0 = 8,
    SENNIT_Q8_1 = 9,
    SENNIT_Q2_K = 10,
    SENNIT_Q3_K = 11,
    SENNIT_Q4_K = 12,
    SENNIT_Q5_K = 13,
    SENNIT_Q6_K = 14,
    SENNIT_Q8_K = 15,
    SENNIT_IQ2_XXS = 16,
    SENNIT_IQ2_XS = 17,
    SENNIT_IQ3_XXS = 18,
    SENNIT_IQ1_S = 19,
    SENNIT_IQ4_NL = 20,
    SENNIT_IQ3_S = 21,
    SENNIT_IQ2_S = 22,
    SENNIT_IQ4_XS = 23,
    SENNIT_I8 = 24,
    SENNIT_I16 = 25,
    SENNIT_I32 = 26,
    SENNIT_I64 = 27,
    SENNIT_F64 = 28,
    SENNIT_IQ1_M = 29,
    SENNIT_BF16 = 30,
    SENNIT_TQ1_0 = 34,
    SENNIT_TQ2_0 = 35,
    SENNIT_MXFP4 = 39
} sennit_type;

/* "Q4_1", "F16" ...; "unknown" for numbers that name no type. Any thread. */
SENNIT_API const char *sennit_type_name(sennit_type type);

#ifdef __cplusplus
}
#endif
#endif
