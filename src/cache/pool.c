#include "cache/pool.h"

#include <assert.h>

enum { POISON = 0xFF }; /* every f32, f16 and bf16 made of these bytes is a NaN */

/* What both constructors do once heap and kernels are set. */
static sennit_status pool_open(struct sennit_pool *pool, struct sn_calls *calls, uint32_t n_workers,
                               struct sennit_error *err)
{
    pool->n_workers = n_workers;
    pool->calls = calls;
    pool->owns_calls = calls == NULL;
    if (!calls)
        pool->calls = sn_calloc(pool->heap, SN_USE_MISC, n_workers, sizeof *pool->calls);
    pool->worker = sn_calloc(pool->heap, SN_USE_MISC, n_workers, sizeof *pool->worker);
    if (!pool->calls || !pool->worker)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the pool's %u workers", n_workers);
    return SENNIT_OK;
}

sennit_status sn_cache_pool_create_on(struct sennit_pool **out, struct sn_heap *heap,
                                      const struct sn_kernels *kernels, struct sn_calls *calls, uint32_t n_workers,
                                      struct sennit_error *err)
{
    struct sennit_pool *pool = sn_calloc(heap, SN_USE_MISC, 1, sizeof *pool);
    if (!pool)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a cache pool");
    pool->heap = heap;
    pool->kernels = kernels;
    sennit_status status = pool_open(pool, calls, n_workers, err);
    if (status != SENNIT_OK) {
        sennit_pool_free(pool);
        return status;
    }
    *out = pool;
    return SENNIT_OK;
}

static sennit_status options_isa(const struct sennit_pool_options *options, const struct sn_cpu *cpu,
                                 enum sn_isa *isa, struct sennit_error *err)
{
    *isa = sn_isa_best(cpu);
    if (options->isa && !sn_isa_parse(options->isa, isa))
        return sn_fail(err, SENNIT_INVALID, "isa '%s' is unknown: use scalar, avx2 or avx512, or NULL for the best",
                       options->isa);
    return SENNIT_OK;
}

sennit_status sennit_pool_create(struct sennit_pool **out, const struct sennit_pool_options *options,
                                 struct sennit_error *err)
{
    static const struct sennit_pool_options defaults;
    if (!out)
        return sn_fail(err, SENNIT_INVALID, "sennit_pool_create: out is NULL");
    if (!options)
        options = &defaults;
    struct sn_cpu cpu = sn_cpu_detect();
    enum sn_isa isa;
    SN_TRY(options_isa(options, &cpu, &isa, err));

    /* The pool lives in its host's memory but outside its own books, which it carries. */
    struct sn_heap boot;
    sn_heap_init(&boot, &options->allocator);
    struct sennit_pool *pool = sn_calloc(&boot, SN_USE_MISC, 1, sizeof *pool);
    if (!pool)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a cache pool");
    sn_heap_init(&pool->own_heap, &boot.host);
    pool->heap = &pool->own_heap;
    pool->owns_heap = true;
    pool->kernels = &pool->own_kernels;
    sennit_status status = sn_kernels_init(&pool->own_kernels, isa, &cpu, err);
    if (status == SENNIT_OK)
        status = pool_open(pool, NULL, options->n_workers ? options->n_workers : 1, err);
    if (status != SENNIT_OK) {
        sennit_pool_free(pool);
        return status;
    }
    *out = pool;
    return SENNIT_OK;
}

static void scratch_release(struct sennit_pool *pool, struct sn_scratch *s)
{
    sn_free(pool->heap, SN_USE_SCRATCH, s->data, s->n_bytes);
    *s = (struct sn_scratch){0};
}

void sennit_pool_free(struct sennit_pool *pool)
{
    if (!pool)
        return;
    assert(pool->n_live == 0 && pool->n_bytes == 0);
    for (uint32_t i = 0; pool->worker && i < pool->n_workers; i++)
        scratch_release(pool, &pool->worker[i]);
    scratch_release(pool, &pool->step);
    sn_free(pool->heap, SN_USE_MISC, pool->worker, pool->n_workers * sizeof *pool->worker);
    if (pool->owns_calls)
        sn_free(pool->heap, SN_USE_MISC, pool->calls, pool->n_workers * sizeof *pool->calls);
    if (pool->owns_heap) {
        struct sennit_allocator host = pool->own_heap.host;
        host.fn(host.ctx, pool, sizeof *pool, 0);
    } else {
        sn_free(pool->heap, SN_USE_MISC, pool, sizeof *pool);
    }
}

uint64_t sennit_pool_bytes(const struct sennit_pool *pool)
{
    return pool->n_bytes;
}

void sn_cache_pool_set_poison(struct sennit_pool *pool, bool on)
{
    pool->poison = on;
}

void sn_cache_pool_set_hostile(struct sennit_pool *pool, bool on)
{
    pool->hostile = on;
}

static sennit_status scratch_grow(struct sennit_pool *pool, struct sn_scratch *s, size_t n_bytes,
                                  struct sennit_error *err)
{
    if (s->n_bytes >= n_bytes)
        return SENNIT_OK;
    size_t rounded = sn_round_up(n_bytes, 4096);
    void *data = sn_alloc(pool->heap, SN_USE_SCRATCH, rounded);
    if (!data)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %zu bytes of attention scratch", rounded);
    scratch_release(pool, s);
    *s = (struct sn_scratch){.data = data, .n_bytes = rounded};
    return SENNIT_OK;
}

sennit_status sn_cache_pool_reserve_workers(struct sennit_pool *pool, size_t n_bytes, struct sennit_error *err)
{
    for (uint32_t i = 0; i < pool->n_workers; i++)
        SN_TRY(scratch_grow(pool, &pool->worker[i], n_bytes, err));
    return SENNIT_OK;
}

sennit_status sn_cache_pool_reserve_step(struct sennit_pool *pool, size_t n_bytes, struct sennit_error *err)
{
    if (pool->step.n_bytes >= n_bytes)
        return SENNIT_OK;
    if (pool->planner)
        return sn_fail(err, SENNIT_STATE,
                       "the attention of another cache of this pool is planned: begin all steps "
                       "before the first plan, or end that step first");
    return scratch_grow(pool, &pool->step, n_bytes, err);
}

void *sn_cache_pool_alloc(struct sennit_pool *pool, size_t n_bytes)
{
    void *p = sn_alloc(pool->heap, SN_USE_CACHE, n_bytes);
    if (!p)
        return NULL;
    pool->n_bytes += n_bytes;
    if (pool->poison)
        memset(p, POISON, n_bytes);
    return p;
}

void *sn_cache_pool_realloc(struct sennit_pool *pool, void *ptr, size_t old_bytes, size_t new_bytes)
{
    void *p = sn_realloc(pool->heap, SN_USE_CACHE, ptr, old_bytes, new_bytes);
    if (!p)
        return NULL;
    pool->n_bytes += new_bytes;
    pool->n_bytes -= old_bytes;
    if (pool->poison && new_bytes > old_bytes)
        memset((uint8_t *)p + old_bytes, POISON, new_bytes - old_bytes);
    return p;
}

void sn_cache_pool_release(struct sennit_pool *pool, void *ptr, size_t n_bytes)
{
    if (!ptr)
        return;
    if (pool->poison)
        memset(ptr, POISON, n_bytes);
    assert(pool->n_bytes >= n_bytes);
    pool->n_bytes -= n_bytes;
    sn_free(pool->heap, SN_USE_CACHE, ptr, n_bytes);
}

void *sn_cache_pool_alloc_next(struct sennit_pool *pool, size_t n_bytes)
{
    return sn_alloc(pool->heap, SN_USE_SCRATCH, n_bytes);
}

void sn_cache_pool_adopt_next(struct sennit_pool *pool, size_t n_bytes)
{
    atomic_fetch_sub(&pool->heap->used[SN_USE_SCRATCH], n_bytes);
    atomic_fetch_add(&pool->heap->used[SN_USE_CACHE], n_bytes);
    pool->n_bytes += n_bytes;
}

void sn_cache_pool_retire(struct sennit_pool *pool, size_t n_bytes)
{
    assert(pool->n_bytes >= n_bytes);
    atomic_fetch_sub(&pool->heap->used[SN_USE_CACHE], n_bytes);
    atomic_fetch_add(&pool->heap->used[SN_USE_SCRATCH], n_bytes);
    pool->n_bytes -= n_bytes;
}

void sn_cache_pool_drop_next(struct sennit_pool *pool, void *ptr, size_t n_bytes)
{
    sn_free(pool->heap, SN_USE_SCRATCH, ptr, n_bytes);
}
