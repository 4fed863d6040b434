/* The k largest by (value descending, index ascending), as a heap of indices whose root is the
 * worst one kept. The order is total, so the answer does not depend on how candidates were filtered
 * before they come here. */
#ifndef SN_SELECT_H
#define SN_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* a comes before b in the result. */
static inline bool sn_select_before(const float *x, uint32_t a, uint32_t b)
{
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

/* Puts `index` into heap[at] and lets it sink: every parent comes after its children in the result.
 */
static inline void sn_select_sink(const float *x, uint32_t *heap, size_t k, size_t at,
                                  uint32_t index)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= k)
            break;
        if (child + 1 < k && sn_select_before(x, heap[child], heap[child + 1]))
            child++;
        if (!sn_select_before(x, index, heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = index;
}

/* heap[0 .. k-1] = 0 .. k-1 as a heap; k >= 1. */
static inline void sn_select_start(const float *x, uint32_t *heap, size_t k)
{
    for (size_t i = 0; i < k; i++)
        heap[i] = (uint32_t)i;
    for (size_t i = k / 2; i-- > 0;)
        sn_select_sink(x, heap, k, i, heap[i]);
}

/* Heap to sorted result. */
static inline void sn_select_finish(const float *x, uint32_t *heap, size_t k)
{
    for (size_t i = k; i-- > 1;) {
        uint32_t worst = heap[0], last = heap[i];
        sn_select_sink(x, heap, i, 0, last);
        heap[i] = worst;
    }
}

#endif
