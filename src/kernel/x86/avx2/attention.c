#include "kernel/x86/avx2/lanes.h"

/* 16 registers: up to 3 x 4 accumulators, 3 factors and a vector, or 6 x 2 accumulators. */
#define WIDE_SHAPES(X, T, type)                                                                    \
    X(T, type, 1, 4) X(T, type, 2, 4) X(T, type, 3, 4)                                             \
    X(T, type, 4, 2) X(T, type, 5, 2) X(T, type, 6, 2)
/* What is left of the dimensions, 16 at a time. */
#define EXTRA_SHAPES(X, T, type) X(T, type, 1, 2) X(T, type, 2, 2) X(T, type, 3, 2)
#define NARROW_SHAPES(X, T, type)                                                                  \
    EXTRA_SHAPES(X, T, type) X(T, type, 4, 2) X(T, type, 5, 2) X(T, type, 6, 2)

#include "kernel/x86/attention.inc"
