/* Golden digests of tiny Llama models: the same on every machine, compiler and build type. `digest` folds 16 rows,
 * and in F32 and Q4_1 a 17th of 600 tokens; `first` is row 0, one prompt token and 16 more. Made by: exact_tiny
 * --print. They may change only together with SENNIT_NUMERICS. */
#ifndef EXACT_GOLDEN_H
#define EXACT_GOLDEN_H

#include "sennit/tensor.h"

struct exact_golden {
    sennit_type type;
    const char *type_name;
    uint32_t head_dim;
    bool tied;
    uint64_t digest, first;
};

#define GOLDEN(type, head, tied, digest, first)                                                                      \
    {                                                                                                                \
        type, #type, head, tied, digest, first                                                                       \
    }
static const struct exact_golden exact_golden[] = {
    GOLDEN(SENNIT_F32, 16, true, 0x5ad0c8f19d65a3a5, 0x595781688a9bd620),
    GOLDEN(SENNIT_F16, 16, false, 0x9d6953f49561a306, 0x8a482f25fa39afce),
    GOLDEN(SENNIT_BF16, 24, true, 0x863e27b29399b148, 0xaa26abb06469119f),
    GOLDEN(SENNIT_Q8_0, 32, false, 0xd6f967366bc1a27b, 0x12ca3188e9f4fd5a),
    GOLDEN(SENNIT_Q4_0, 16, true, 0xa631bb652034e3b4, 0x1aed67da6e70f965),
    GOLDEN(SENNIT_Q4_1, 16, false, 0x8d09e01ed2aa7c7e, 0xbd955561659e5fcb),
};

#endif
