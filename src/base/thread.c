/* Thread pool. States of a pool, by the sequence number `go`:
 *
 *      idle --sn_pool_run: job set, go++--> running --every worker done--> idle
 *                                              |  ^
 *                                              +--+ sn_pool_barrier: phase++
 *
 * Invariants:
 *  1. job and job_ctx change only while every worker waits on `go`.
 *  2. arrived < n_threads; the last one to arrive resets it and raises `phase`.
 *  3. A sleeper counts itself in `sleepers` before its last look at the word it sleeps on, so that a waker that
 *     sees 0 may skip the system call. */
#include "base/thread.h"

#include "base/cpu.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Looks before sleeping: 50 to 100 microseconds of pause. With more threads than CPUs the one that is waited for
 * needs this CPU, so waiting threads go to sleep nearly at once. */
enum { SPINS = 1500, SPINS_CROWDED = 10 };

struct worker {
    struct sn_pool *pool;
    pthread_t thread;
    int index;
};

struct sn_pool {
    struct sn_heap *heap;
    int n_threads, n_spins;
    bool pin, stop;
    sn_pool_fn job;
    void *job_ctx;
    struct worker *workers; /* [n_threads]; entry 0 is the caller and has no thread */
    int n_started;
    _Alignas(64) _Atomic uint32_t go;
    _Alignas(64) _Atomic uint32_t phase;
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) _Atomic uint32_t sleepers;
};

static inline void cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void sleep_on(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void wake_all(struct sn_pool *pool, _Atomic uint32_t *word)
{
    if (atomic_load(&pool->sleepers) != 0)
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void wait_change(struct sn_pool *pool, _Atomic uint32_t *word, uint32_t seen)
{
    for (int i = 0; i < pool->n_spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != seen)
            return;
        cpu_pause();
    }
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(word) == seen)
        sleep_on(word, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
}

void sn_pool_barrier(struct sn_pool *pool, int worker)
{
    (void)worker;
    if (pool->n_threads == 1)
        return;
    uint32_t seen = atomic_load_explicit(&pool->phase, memory_order_relaxed);
    if (atomic_fetch_add(&pool->arrived, 1) + 1 == (uint32_t)pool->n_threads) {
        atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
        atomic_store(&pool->phase, seen + 1);
        wake_all(pool, &pool->phase);
    } else {
        wait_change(pool, &pool->phase, seen);
    }
}

static void run_job(struct sn_pool *pool, int index)
{
    struct sn_fpenv env = sn_fp_enter();
    pool->job(pool->job_ctx, index, pool->n_threads);
    sn_fp_leave(env);
    sn_pool_barrier(pool, index);
}

/* Binds the calling thread to the index-th CPU of the process's mask. Failure is not an error: pinning is advice. */
static void pin_self(int index)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, &all) || seen++ != index)
            continue;
        CPU_ZERO(&one);
        CPU_SET((size_t)cpu, &one);
        pthread_setaffinity_np(pthread_self(), sizeof one, &one);
        return;
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct sn_pool *pool = w->pool;
    pthread_setname_np(pthread_self(), "sn-worker");
    if (pool->pin)
        pin_self(w->index);
    uint32_t seen = 0; /* workers start before the first run, when go is 0 */
    for (;;) {
        wait_change(pool, &pool->go, seen);
        seen++;
        if (pool->stop)
            return NULL;
        run_job(pool, w->index);
    }
}

sennit_status sn_pool_create(struct sn_pool **out, struct sn_heap *heap, int n_threads, bool pin,
                             struct sennit_error *err)
{
    if (n_threads < 1 || n_threads > 1024)
        return sn_fail(err, SENNIT_INVALID, "threads must be between 1 and 1024, not %d", n_threads);
    struct sn_pool *pool = sn_calloc(heap, SN_USE_MISC, 1, sizeof *pool);
    if (!pool)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the thread pool");
    pool->heap = heap;
    pool->n_threads = n_threads;
    bool crowded = sn_cpu_count() < n_threads;
    pool->n_spins = crowded ? SPINS_CROWDED : SPINS;
    pool->pin = pin && !crowded;
    pool->workers = sn_calloc(heap, SN_USE_MISC, (size_t)n_threads, sizeof *pool->workers);
    if (!pool->workers) {
        sn_pool_destroy(pool);
        return sn_fail(err, SENNIT_NOMEM, "no memory for %d threads", n_threads);
    }
    for (int i = 1; i < n_threads; i++) {
        pool->workers[i] = (struct worker){.pool = pool, .index = i};
        int rc = pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i]);
        if (rc != 0) {
            sn_pool_destroy(pool);
            return sn_fail(err, SENNIT_IO, "cannot start thread %d of %d: %s", i + 1, n_threads, strerror(rc));
        }
        pool->n_started++;
    }
    *out = pool;
    return SENNIT_OK;
}

void sn_pool_destroy(struct sn_pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    atomic_fetch_add(&pool->go, 1);
    wake_all(pool, &pool->go);
    for (int i = 1; i <= pool->n_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    sn_free(pool->heap, SN_USE_MISC, pool->workers, (size_t)pool->n_threads * sizeof *pool->workers);
    sn_free(pool->heap, SN_USE_MISC, pool, sizeof *pool);
}

int sn_pool_threads(const struct sn_pool *pool) { return pool->n_threads; }

/* While a run lasts the caller stays on the CPU that was kept for it: a spinning worker that is pinned to the CPU on
 * which the caller happens to be would cost whole scheduling quanta. */
static bool hold_caller(const struct sn_pool *pool, cpu_set_t *saved)
{
    if (!pool->pin || pool->n_threads == 1 || sched_getaffinity(0, sizeof *saved, saved) != 0)
        return false;
    pin_self(0);
    return true;
}

void sn_pool_run(struct sn_pool *pool, sn_pool_fn fn, void *ctx)
{
    cpu_set_t saved;
    bool held = hold_caller(pool, &saved);
    pool->job = fn;
    pool->job_ctx = ctx;
    if (pool->n_threads > 1) {
        atomic_fetch_add(&pool->go, 1);
        wake_all(pool, &pool->go);
    }
    run_job(pool, 0);
    if (held)
        sched_setaffinity(0, sizeof saved, &saved);
}
