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
    GOLDEN(SENNIT_F32, 16, true, 0x5922b9fab1d304fc),  GOLDEN(SENNIT_F16, 16, false, 0xc8dbb373a2716cc0), GOLDEN(SENNIT_BF16, 24, true, 0xfd9baeddbf6cfed2),
    GOLDEN(SENNIT_Q8_0, 32, false, 0xff82bed224ed8999), GOLDEN(SENNIT_Q4_0, 16, true, 0x9328dcccc3ea59f7), GOLDEN(SENNIT_Q4_1, 16, false, 0xb374bb52000ec552),
};

#endif
