/* The pool: one heap, one kernel table, the pages and page tables of all caches of an engine, and
 * the scratch that their steps share.
 *
 *   SN_USE_CACHE    pages and page tables, nothing else: used[SN_USE_CACHE] == sennit_pool_bytes()
 *   SN_USE_SCRATCH  worker scratch and step scratch; grown in append_begin and sennit_donor_attend
 * only SN_USE_MISC     the objects themselves (caches, row lists, donors)
 *
 * (`struct sn_pool` of base/thread.h is the thread pool; the functions here are called
 * sn_cache_pool_*.)
 *
 * Threads: the owner's, except that the scratch and the counters of a worker belong to that worker
 * while items run. */
#ifndef SN_CACHE_POOL_H
#define SN_CACHE_POOL_H

#include "base/base.h"
#include "kernel/kernel.h"
#include "sennit/cache.h"

struct sn_scratch {
    void *data; /* 64-byte aligned */
    size_t n_bytes;
};

struct sennit_pool {
    struct sn_heap *heap; /* own_heap, or the engine's */
    const struct sn_kernels *kernels;
    struct sn_calls *calls; /* [n_workers] */
    uint32_t n_workers;
    bool owns_heap, owns_calls;
    bool poison;      /* new and freed pages are filled with NaN patterns */
    bool hostile;     /* every append and trim moves what it touches */
    uint64_t n_bytes; /* live pages and tables */
    uint64_t n_live;  /* caches, donors and views that still point here */

    struct sn_scratch *worker;          /* [n_workers] */
    struct sn_scratch step;             /* plan and partial results of the cache that planned last */
    const struct sennit_cache *planner; /* who that is, while its step is open; NULL otherwise */

    struct sn_heap own_heap;
    struct sn_kernels own_kernels;
};

/* A pool on the engine's heap and kernel table, both borrowed until sennit_pool_free. calls:
 * [n_workers], borrowed; NULL = the pool's own. n_workers >= 1. */
sennit_status sn_cache_pool_create_on(struct sennit_pool **out, struct sn_heap *heap,
                                      const struct sn_kernels *kernels, struct sn_calls *calls, uint32_t n_workers,
                                      struct sennit_error *err);

/* What the kernels called by this worker add up to. */
static inline struct sn_calls *sn_cache_pool_calls(struct sennit_pool *pool, uint32_t worker)
{
    return &pool->calls[worker];
}

/* The hostile run: every element of a new or freed page is a NaN, and so is the unused rest of a
 * page before each append, so that any read of an element that nobody wrote shows in a result. */
void sn_cache_pool_set_poison(struct sennit_pool *pool, bool on);

/* The hostile build, for tests: storage behaves as if it were always shared. Every append copies the last table
 * block and the last page first, full ones too; every trim copies the block it ends in. Whoever kept a pointer, or
 * relied on storage that stays where it is, is found out. Costs time and, while a step is open, the copied bytes. */
void sn_cache_pool_set_hostile(struct sennit_pool *pool, bool on);

/* At least n_bytes for every worker, and for the step. Contents are lost when they grow. Step
 * scratch cannot grow while a plan lives in it: SENNIT_STATE. */
sennit_status sn_cache_pool_reserve_workers(struct sennit_pool *pool, size_t n_bytes, struct sennit_error *err);
sennit_status sn_cache_pool_reserve_step(struct sennit_pool *pool, size_t n_bytes, struct sennit_error *err);

/* Storage of a family, charged to SN_USE_CACHE and to the pool's count. NULL when the heap refuses.
 */
void *sn_cache_pool_alloc(struct sennit_pool *pool, size_t n_bytes);
void *sn_cache_pool_realloc(struct sennit_pool *pool, void *ptr, size_t old_bytes, size_t new_bytes);
void sn_cache_pool_release(struct sennit_pool *pool, void *ptr, size_t n_bytes);

/* Storage that a step fills to replace what a row has: scratch until the step's end, then storage of the row (adopt).
 * What it replaced becomes scratch for the next step (retire), or is given back (drop). */
void *sn_cache_pool_alloc_next(struct sennit_pool *pool, size_t n_bytes);
void sn_cache_pool_adopt_next(struct sennit_pool *pool, size_t n_bytes);
void sn_cache_pool_retire(struct sennit_pool *pool, size_t n_bytes);
void sn_cache_pool_drop_next(struct sennit_pool *pool, void *ptr, size_t n_bytes); /* NULL is fine */

#endif
