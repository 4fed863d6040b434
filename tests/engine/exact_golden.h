/* Golden digests of tiny Llama models, folded over 16 rows: the same on every machine, compiler and build type.
 * Made by: exact_tiny --print. They may change only together with SENNIT_NUMERICS. */
#ifndef EXACT_GOLDEN_H
#define EXACT_GOLDEN_H

#include "sennit/tensor.h"

struct exact_golden {
    sennit_type type;
    const char *type_name;
    uint32_t head_dim;
    bool tied;
    uint64_t digest;
};

#define GOLDEN(type, head, tied, digest) {type, #type, head, tied, digest}
static const struct exact_golden exact_golden[] = {
    GOLDEN(SENNIT_F32, 16, true, 0x569a894aaf0f2b7e),  GOLDEN(SENNIT_F16, 16, false, 0xe5a78f2b41345b07), GOLDEN(SENNIT_BF16, 24, true, 0x1fa32ffcd2bf7851),
    GOLDEN(SENNIT_Q8_0, 32, false, 0x28bcd5b6c44e2cf1), GOLDEN(SENNIT_Q4_0, 16, true, 0x9f0d2fc2778ffd8b), GOLDEN(SENNIT_Q4_1, 16, false, 0xe2494f4b8cb9beac),
};

#endif
