/* Spelled-out repetition for kernels that keep one accumulator per row in a named variable: arrays
 * of vectors indexed in loops get spilled to the stack, these do not. ROWS_n(X, p) is X(0, p) ...
 * X(n - 1, p). */
#ifndef SN_ROWS_H
#define SN_ROWS_H

#define ROWS_1(X, p) X(0, p)
#define ROWS_2(X, p) ROWS_1(X, p) X(1, p)
#define ROWS_3(X, p) ROWS_2(X, p) X(2, p)
#define ROWS_4(X, p) ROWS_3(X, p) X(3, p)
#define ROWS_5(X, p) ROWS_4(X, p) X(4, p)
#define ROWS_6(X, p) ROWS_5(X, p) X(5, p)
#define ROWS_7(X, p) ROWS_6(X, p) X(6, p)
#define ROWS_8(X, p) ROWS_7(X, p) X(7, p)

/* For each of n vectors of columns: every row. */
#define LANES_1(ROWS, X) ROWS(X, 0)
#define LANES_2(ROWS, X) LANES_1(ROWS, X) ROWS(X, 1)
#define LANES_4(ROWS, X) LANES_2(ROWS, X) ROWS(X, 2) ROWS(X, 3)
#define LANES_8(ROWS, X) LANES_4(ROWS, X) ROWS(X, 4) ROWS(X, 5) ROWS(X, 6) ROWS(X, 7)
/* For each of n vectors of columns, once. */
#define EACH_1(X) X(0)
#define EACH_2(X) EACH_1(X) X(1)
#define EACH_4(X) EACH_2(X) X(2) X(3)
#define EACH_8(X) EACH_4(X) X(4) X(5) X(6) X(7)

/* Weights are read once per call and in order: ask for them this far ahead, into the second-level
 * cache (the first has too few miss buffers). 2 KB reached the memory's limit on Zen 4; Sapphire
 * Rapids, with its longer latency, gained 20 % from 4 KB and nothing from more. A prefetch past the
 * end does nothing. */
enum { SN_PREFETCH_AHEAD = 4096 };

#endif
