/* What the named tests of codes share: a pool whose kernels can be exchanged for wrong ones, rows held against their
 * textbook, and batches of rows of unequal lengths. */
#ifndef CACHE_CODED_BENCH_H
#define CACHE_CODED_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "cache/twin.h"

struct bench {
    struct sennit_pool *pool;
    struct geometry g;
    struct sn_kernels table; /* a copy of the pool's, to be made wrong */
};

/* Storage is poisoned. isa: as in struct sennit_pool_options. */
void open_bench(struct bench *b, struct sennit_cache_config config, uint32_t group, const char *isa);
/* The tokens to one row; returns their outputs [n][heads * d_v], malloc'd. */
float *feed(struct bench *b, struct sennit_cache *c, uint32_t row, const uint64_t *tokens, uint32_t n);
/* Largest error of the last token's outputs as a share of the textbook's bound. */
double worst_share(const struct bench *b, const uint64_t *tokens, uint32_t n, const float *out);
/* n_rows (at most 8) rows of unequal lengths, the longest of at most 130 tokens, in one step: each within the
 * textbook's bound and to the bit as alone. once: a kernel that the step must call once per query of each head;
 * SN_K_COUNT: none. */
void batch_case(struct bench *b, uint32_t n_rows, uint32_t longest, enum sn_kernel_id once);

#endif
