/* Declares every kernel that may exist: sn_<slot>_<level>, for example sn_gemm_q4_1_avx2. A level
 * defines the ones it has; only its filler (fill.c of its folder) refers to them, so the others
 * stay declarations. */
#ifndef SN_SLOTS_H
#define SN_SLOTS_H

#include "kernel/kernel.h"

#define SN_DECLARE(slot, level) __typeof__(*(sn_##slot##_fn)0) sn_##slot##_##level;
#define SN_KERNEL(slot)                                                                            \
    SN_DECLARE(slot, scalar)                                                                       \
    SN_DECLARE(slot, scalar_fma)                                                                   \
    SN_DECLARE(slot, avx2)                                                                         \
    SN_DECLARE(slot, avx512)
#include "kernel/kernel.list"
#undef SN_KERNEL
#undef SN_DECLARE

#endif
