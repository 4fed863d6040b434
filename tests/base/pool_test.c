/* The thread pool: every worker runs each job once, barriers order memory, and sleepers wake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/cpu.h"
#include "base/thread.h"

enum { MAX_THREADS = 7, PHASES = 20 };
static const int thread_counts[] = {1, 2, 3, 7};

static void nap(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

/* Each unit belongs to one worker, in order, and shares differ by one at most. */
static void split(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 63, 64, 65, 1000, 49152};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int n = 1; n <= 17; n++) {
            size_t at = 0, least = SIZE_MAX, most = 0;
            for (int w = 0; w < n; w++) {
                size_t first, last;
                sn_split(sizes[s], w, n, &first, &last);
                assert_true(first == at && last >= first);
                at = last;
                least = sn_min_size(least, last - first);
                most = sn_max_size(most, last - first);
            }
            assert_true(at == sizes[s] && most - least <= 1);
        }
}

struct job {
    struct sn_pool *pool;
    int n_threads;
    bool nap; /* workers arrive at different times, so that some of them sleep */
    int runs[MAX_THREADS];  /* plain memory: the pool itself must order it */
    int phase[MAX_THREADS]; /* what each worker has reached */
    _Atomic int n_bad;
};

static void work(void *ctx, int worker, int n_workers)
{
    struct job *j = ctx;
    if (n_workers != j->n_threads || worker < 0 || worker >= n_workers)
        atomic_fetch_add(&j->n_bad, 1);
    j->runs[worker]++;
    for (int p = 1; p <= PHASES; p++) {
        if (j->nap && p % n_workers == worker)
            nap(1);
        j->phase[worker] = p;
        sn_pool_barrier(j->pool, worker);
        for (int w = 0; w < n_workers; w++) /* everyone's writes before the barrier are there */
            if (j->phase[w] != p)
                atomic_fetch_add(&j->n_bad, 1);
        sn_pool_barrier(j->pool, worker); /* nobody goes on while another still looks */
    }
}

static void run_many(int n_threads, int n_runs, bool naps)
{
    struct sn_heap heap;
    struct job j = {.n_threads = n_threads, .nap = naps};
    sn_heap_init(&heap, NULL);
    assert_int_equal(sn_pool_create(&j.pool, &heap, n_threads, false, NULL), SENNIT_OK);
    assert_int_equal(sn_pool_threads(j.pool), n_threads);
    for (int r = 1; r <= n_runs; r++) {
        memset(j.phase, 0, sizeof j.phase);
        sn_pool_run(j.pool, work, &j);
        for (int w = 0; w < n_threads; w++)
            assert_int_equal(j.runs[w], r); /* all have returned */
        if (naps)
            nap(3); /* longer than any spinning: the next run wakes sleepers */
    }
    assert_int_equal(atomic_load(&j.n_bad), 0);
    sn_pool_destroy(j.pool);
    assert_int_equal(atomic_load(&heap.total), 0);
}

static void runs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof thread_counts / sizeof *thread_counts; i++)
        run_many(thread_counts[i], thread_counts[i] == 2 ? 300 : 60, false);
}

static void sleepers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof thread_counts / sizeof *thread_counts; i++)
        run_many(thread_counts[i], 6, true);
}

struct units {
    struct sn_ticket ticket;
    _Atomic unsigned char taken[1000];
};

static void count_units(void *ctx, int worker, int n_workers)
{
    (void)worker, (void)n_workers;
    struct units *t = ctx;
    for (size_t u; (u = sn_ticket_take(&t->ticket)) < 1000;)
        atomic_fetch_add(&t->taken[u], 1);
}

static void tickets(void **state)
{
    (void)state;
    struct sn_heap heap;
    struct sn_pool *pool;
    static struct units t;
    sn_heap_init(&heap, NULL);
    assert_int_equal(sn_pool_create(&pool, &heap, 3, true, NULL), SENNIT_OK);
    sn_pool_run(pool, count_units, &t);
    for (int u = 0; u < 1000; u++)
        assert_int_equal(atomic_load(&t.taken[u]), 1);
    sn_pool_destroy(pool);
}

/* Pools that never run, are refused, or have no memory. */
static void ends(void **state)
{
    (void)state;
    struct sn_heap heap;
    struct sn_pool *pool = NULL;
    struct sennit_error err;
    sn_heap_init(&heap, NULL);
    sn_pool_destroy(NULL);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(sn_pool_create(&pool, &heap, 3, false, NULL), SENNIT_OK);
        if (i % 2)
            nap(1);
        sn_pool_destroy(pool);
    }
    pool = NULL;
    assert_int_equal(sn_pool_create(&pool, &heap, 0, false, &err), SENNIT_INVALID);
    assert_int_equal(sn_pool_create(&pool, &heap, 1025, false, &err), SENNIT_INVALID);
    assert_non_null(strstr(err.message, "1025"));
    for (uint64_t n = 1; n <= 2; n++) {
        sn_heap_fail_at(&heap, n);
        assert_int_equal(sn_pool_create(&pool, &heap, 2, false, &err), SENNIT_NOMEM);
        assert_null(pool);
    }
    assert_int_equal(atomic_load(&heap.total), 0);
}

struct placed {
    int n_cpus[2], first[2]; /* of each worker's affinity mask, during the run */
};

static void look(void *ctx, int worker, int n_workers)
{
    struct placed *p = ctx;
    cpu_set_t set;
    (void)n_workers;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    p->n_cpus[worker] = CPU_COUNT(&set);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_ISSET((size_t)cpu, &set); cpu++)
        p->first[worker] = cpu + 1;
}

/* A pinned pool holds the caller on a CPU of its own while a run lasts, and gives its mask back afterwards. */
static void caller_is_held(void **state)
{
    (void)state;
    struct sn_heap heap;
    struct sn_pool *pool = NULL;
    struct placed p = {0};
    cpu_set_t before, after;
    if (sn_cpu_count() < 2) {
        puts("SKIPPED: one CPU only");
        skip();
    }
    sn_heap_init(&heap, NULL);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(sn_pool_create(&pool, &heap, 2, true, NULL), SENNIT_OK);
    for (int run = 0; run < 50; run++) {
        sn_pool_run(pool, look, &p);
        assert_int_equal(p.n_cpus[0], 1);
        assert_int_equal(p.n_cpus[1], 1);
        assert_int_not_equal(p.first[0], p.first[1]);
        assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
    }
    sn_pool_destroy(pool);
    assert_int_equal(atomic_load(&heap.total), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(split),   cmocka_unit_test(runs), cmocka_unit_test(sleepers),
        cmocka_unit_test(tickets), cmocka_unit_test(ends),  cmocka_unit_test(caller_is_held),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
