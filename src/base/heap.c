/* The heap. Invariants:
 *  1. used[u] = sum of the sizes of live blocks charged to use u; total = sum over u; peak >= total.
 *  2. A refused allocation changes nothing.
 *  3. fail_at counts allocations and growths, in the order in which they were tried. */
#include "base/base.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

/* Default host. Blocks of at least two huge pages are aligned to one: streaming weights from 4 KiB pages costs
 * about 7 % of the memory bandwidth. */
static void *default_host(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)ctx;
    if (new_bytes == 0) {
        free(ptr);
        return NULL;
    }
    size_t align = new_bytes >= 2 * (size_t)HUGE_PAGE ? (size_t)HUGE_PAGE : (size_t)ALIGN;
    void *fresh = NULL;
    if (new_bytes > SIZE_MAX - align || posix_memalign(&fresh, align, sn_round_up(new_bytes, ALIGN)) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (align == (size_t)HUGE_PAGE)
        (void)madvise(fresh, new_bytes, MADV_HUGEPAGE);
#endif
    if (ptr) {
        memcpy(fresh, ptr, sn_min_size(old_bytes, new_bytes));
        free(ptr);
    }
    return fresh;
}

void sn_heap_init(struct sn_heap *heap, const struct sennit_allocator *host)
{
    memset(heap, 0, sizeof *heap);
    if (host && host->fn)
        heap->host = *host;
    else
        heap->host.fn = default_host;
}

void sn_heap_fail_at(struct sn_heap *heap, uint64_t n)
{
    atomic_store(&heap->fail_at, n == 0 ? 0 : atomic_load(&heap->n_calls) + n);
}

bool sn_heap_failed(const struct sn_heap *heap)
{
    uint64_t at = atomic_load(&heap->fail_at);
    return at != 0 && atomic_load(&heap->n_calls) >= at;
}

/* Reserves `grow` bytes in the books before the host is asked, so that two threads cannot pass the limit together. */
static bool charge(struct sn_heap *heap, enum sn_use use, size_t grow)
{
    uint64_t call = atomic_fetch_add(&heap->n_calls, 1) + 1;
    if (call == atomic_load(&heap->fail_at))
        return false;
    size_t total = atomic_fetch_add(&heap->total, grow) + grow;
    size_t limit = atomic_load(&heap->limit);
    if (total < grow || (limit != 0 && total > limit)) {
        atomic_fetch_sub(&heap->total, grow);
        return false;
    }
    atomic_fetch_add(&heap->used[use], grow);
    size_t peak = atomic_load(&heap->peak);
    while (peak < total && !atomic_compare_exchange_weak(&heap->peak, &peak, total)) {
    }
    return true;
}

static void discharge(struct sn_heap *heap, enum sn_use use, size_t n)
{
    size_t before = atomic_fetch_sub(&heap->used[use], n);
    assert(before >= n);
    (void)before;
    atomic_fetch_sub(&heap->total, n);
}

void *sn_alloc(struct sn_heap *heap, enum sn_use use, size_t n_bytes)
{
    if (n_bytes == 0)
        return NULL;
    if (!charge(heap, use, n_bytes))
        return NULL;
    void *p = heap->host.fn(heap->host.ctx, NULL, 0, n_bytes);
    if (!p)
        discharge(heap, use, n_bytes);
    return p;
}

void *sn_calloc(struct sn_heap *heap, enum sn_use use, size_t n, size_t size)
{
    size_t bytes;
    if (sn_mul_overflows(n, size, &bytes))
        return NULL;
    void *p = sn_alloc(heap, use, bytes);
    if (p)
        memset(p, 0, bytes);
    return p;
}

void *sn_realloc(struct sn_heap *heap, enum sn_use use, void *ptr, size_t old_bytes, size_t new_bytes)
{
    if (!ptr)
        return sn_alloc(heap, use, new_bytes);
    if (new_bytes == 0) {
        sn_free(heap, use, ptr, old_bytes);
        return NULL;
    }
    if (new_bytes > old_bytes && !charge(heap, use, new_bytes - old_bytes))
        return NULL;
    void *p = heap->host.fn(heap->host.ctx, ptr, old_bytes, new_bytes);
    if (!p) {
        if (new_bytes > old_bytes)
            discharge(heap, use, new_bytes - old_bytes);
        return NULL;
    }
    if (new_bytes < old_bytes)
        discharge(heap, use, old_bytes - new_bytes);
    return p;
}

void sn_free(struct sn_heap *heap, enum sn_use use, void *ptr, size_t n_bytes)
{
    if (!ptr)
        return;
    heap->host.fn(heap->host.ctx, ptr, n_bytes, 0);
    discharge(heap, use, n_bytes);
}

char *sn_strndup(struct sn_heap *heap, enum sn_use use, const char *s, size_t n)
{
    char *p = sn_alloc(heap, use, n + 1);
    if (p) {
        memcpy(p, s, n);
        p[n] = '\0';
    }
    return p;
}

/* ---- growable buffer ----------------------------------------------------------------------------------------- */

void sn_buf_init(struct sn_buf *b, struct sn_heap *heap, enum sn_use use, size_t max)
{
    *b = (struct sn_buf){.heap = heap, .use = use, .max = max};
}

static sennit_status buf_reserve(struct sn_buf *b, size_t more)
{
    if (more > b->max || b->len > b->max - more)
        return SENNIT_TOO_BIG;
    size_t need = b->len + more + 1;
    if (need <= b->cap)
        return SENNIT_OK;
    size_t cap = sn_max_size(need, sn_max_size(64, b->cap * 2));
    char *data = sn_realloc(b->heap, b->use, b->data, b->cap, cap);
    if (!data)
        return SENNIT_NOMEM;
    b->data = data;
    b->cap = cap;
    return SENNIT_OK;
}

sennit_status sn_buf_append(struct sn_buf *b, const void *data, size_t n)
{
    SN_TRY(buf_reserve(b, n));
    if (n)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
    return SENNIT_OK;
}

sennit_status sn_buf_printf(struct sn_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return SENNIT_INTERNAL;
    SN_TRY(buf_reserve(b, (size_t)n));
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return SENNIT_OK;
}

void sn_buf_free(struct sn_buf *b)
{
    sn_free(b->heap, b->use, b->data, b->cap);
    b->data = NULL;
    b->len = b->cap = 0;
}
