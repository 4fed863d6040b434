#include "kernel/x86/avx512/lanes.h"

/* 64 keys or dimensions at a time: 6 x 4 accumulators, 6 factors and a vector of K or V fill 31 of the 32
 * registers. */
#define WIDE_SHAPES(X, T, type)                                                                    \
    X(T, type, 1, 4) X(T, type, 2, 4) X(T, type, 3, 4)                                             \
    X(T, type, 4, 4) X(T, type, 5, 4) X(T, type, 6, 4)
/* What is left of the dimensions, 16 at a time. */
#define NARROW_SHAPES(X, T, type)                                                                  \
    X(T, type, 1, 1) X(T, type, 2, 1) X(T, type, 3, 1)                                             \
    X(T, type, 4, 1) X(T, type, 5, 1) X(T, type, 6, 1)
#define EXTRA_SHAPES(X, T, type) NARROW_SHAPES(X, T, type)

#include "kernel/x86/attention.inc"
