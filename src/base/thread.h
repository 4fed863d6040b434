/* A thread pool that runs one function on all its threads at once (SPMD), with barriers inside.
 *
 * The split of work over threads must never change a result: work is split over outputs, and which thread computes
 * an output is free. A step is one sn_pool_run; its phases are separated by sn_pool_barrier.
 *
 * Waiting spins briefly (peers usually arrive within a microsecond), then sleeps on a futex: a spinning thread that
 * shares its CPU with the one it waits for would cost a scheduling quantum. */
#ifndef SN_THREAD_H
#define SN_THREAD_H

#include "base/base.h"

struct sn_pool;

/* Called as fn(ctx, worker, n_workers) with worker in 0 .. n_workers - 1; worker 0 is the calling thread. */
typedef void (*sn_pool_fn)(void *ctx, int worker, int n_workers);

/* n_threads >= 1, the caller included. `pin` binds each worker to one CPU of the process's mask when there are at
 * least n_threads of them, and the calling thread to the first one for the duration of each run. */
sennit_status sn_pool_create(struct sn_pool **out, struct sn_heap *heap, int n_threads, bool pin,
                             struct sennit_error *err);
void sn_pool_destroy(struct sn_pool *pool); /* NULL is fine; not while a run is in progress */
int sn_pool_threads(const struct sn_pool *pool);

/* Runs fn on every thread and returns when all have returned. One run at a time; the floating-point environment of
 * numerics.md is set on each thread for the duration. */
void sn_pool_run(struct sn_pool *pool, sn_pool_fn fn, void *ctx);

/* All workers of the current run must call it the same number of times. Orders memory like a release/acquire pair. */
void sn_pool_barrier(struct sn_pool *pool, int worker);

/* Even split of n units: worker w gets [*first, *last). */
static inline void sn_split(size_t n, int worker, int n_workers, size_t *first, size_t *last)
{
    *first = n * (size_t)worker / (size_t)n_workers;
    *last = n * (size_t)(worker + 1) / (size_t)n_workers;
}

/* A shared counter for units that differ in cost: each call takes the next one. Reset between phases by one
 * thread. */
struct sn_ticket {
    _Alignas(64) _Atomic size_t next;
};
static inline size_t sn_ticket_take(struct sn_ticket *t)
{
    return atomic_fetch_add_explicit(&t->next, 1, memory_order_relaxed);
}

#endif
