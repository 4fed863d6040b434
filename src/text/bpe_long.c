/* Merges of a long word in the same order as bpe.c's heap, at a cost that stays linear when the
 * word outgrows the CPU's caches: a heap of ten million entries misses them at every level.
 *
 *   list of each rank:  rank 0: -          the ranks are worked off in ascending order; a rank's
 * list becomes the rank 1: 3 → 9 → 4  `run` (sorted by position), and while it runs, merges append
 * to the rank 2: 7          lists of higher ranks ... heap `early`:       keys of a lower or the
 * same rank than the run's, which must come before the rest of the run
 *
 * Invariants: 1. every key in a list has a rank above the run's; 2. the next merge is the smaller
 * of the run's front and the heap's top; 3. nodes not in a list are in the free list, so 2n nodes
 * are enough (see bpe.c). */
#include "text/bpe_internal.h"

struct node {
    uint32_t at, next; /* in a list: a ring, of which the table keeps the last node */
};

#define NO_NODE UINT32_MAX
enum { SMALL_SORT = 48 };

struct queue {
    struct sn_heap *heap;
    size_t n_ranks, n_words, n;
    uint32_t *last;     /* [n_ranks] last node of the rank's ring, NO_NODE when empty */
    uint64_t *present;  /* bit per rank: the ring is not empty */
    struct node *nodes; /* [2n] */
    uint32_t free, n_nodes;
    uint32_t *run, *other; /* [2n] positions of the rank being worked off; room to sort */
    size_t run_at, run_n;
    uint32_t rank;
    uint64_t *early; /* [cap_early] */
    size_t n_early, cap_early;
};

static void queue_free(struct queue *q)
{
    sn_free(q->heap, SN_USE_TEXT, q->last, q->n_ranks * sizeof *q->last);
    sn_free(q->heap, SN_USE_TEXT, q->present, q->n_words * sizeof *q->present);
    sn_free(q->heap, SN_USE_TEXT, q->nodes, 2 * q->n * sizeof *q->nodes);
    sn_free(q->heap, SN_USE_TEXT, q->run, 2 * q->n * sizeof *q->run);
    sn_free(q->heap, SN_USE_TEXT, q->other, 2 * q->n * sizeof *q->other);
    sn_free(q->heap, SN_USE_TEXT, q->early, q->cap_early * sizeof *q->early);
}

static sennit_status no_memory(size_t n, struct sennit_error *err)
{
    return sn_fail(err, SENNIT_NOMEM, "no memory to tokenize a word of %zu bytes", n);
}

static sennit_status queue_init(struct queue *q, struct sn_heap *heap, size_t n_ranks, size_t n,
                                struct sennit_error *err)
{
    *q = (struct queue){.heap = heap, .n_ranks = n_ranks, .n = n, .free = NO_NODE};
    q->n_words = sn_div_up(n_ranks, 64);
    q->last = sn_alloc(heap, SN_USE_TEXT, n_ranks * sizeof *q->last);
    q->present = sn_calloc(heap, SN_USE_TEXT, q->n_words, sizeof *q->present);
    q->nodes = sn_alloc(heap, SN_USE_TEXT, 2 * n * sizeof *q->nodes);
    q->run = sn_alloc(heap, SN_USE_TEXT, 2 * n * sizeof *q->run);
    q->other = sn_alloc(heap, SN_USE_TEXT, 2 * n * sizeof *q->other);
    if (!q->last || !q->present || !q->nodes || !q->run || !q->other) {
        queue_free(q);
        return no_memory(n, err);
    }
    memset(q->last, 0xFF, n_ranks * sizeof *q->last);
    return SENNIT_OK;
}

static void list_append(struct queue *q, uint32_t rank, int32_t at)
{
    uint32_t i = q->free;
    if (i == NO_NODE)
        i = q->n_nodes++;
    else
        q->free = q->nodes[i].next;
    q->nodes[i] = (struct node){(uint32_t)at, i};
    uint32_t last = q->last[rank];
    if (last != NO_NODE) {
        q->nodes[i].next = q->nodes[last].next;
        q->nodes[last].next = i;
    }
    q->last[rank] = i;
    q->present[rank / 64] |= (uint64_t)1 << rank % 64;
}

static sennit_status early_push(struct queue *q, uint64_t key, struct sennit_error *err)
{
    if (q->n_early == q->cap_early) {
        size_t cap = sn_max_size(256, 2 * q->cap_early);
        uint64_t *early = sn_realloc(q->heap, SN_USE_TEXT, q->early, q->cap_early * sizeof *early,
                                     cap * sizeof *early);
        if (!early)
            return no_memory(q->n, err);
        q->early = early;
        q->cap_early = cap;
    }
    sn_bpe_queue_push(q->early, &q->n_early, key);
    return SENNIT_OK;
}

/* ---- the run of one rank ---- */

static bool is_sorted(const uint32_t *v, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (v[i - 1] > v[i])
            return false;
    return true;
}

/* One pass of a radix sort by the byte at `shift`. */
static void radix_pass(const uint32_t *from, uint32_t *to, size_t n, unsigned shift)
{
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[(from[i] >> shift & 255) + 1]++;
    for (size_t i = 1; i < 257; i++)
        start[i] += start[i - 1];
    for (size_t i = 0; i < n; i++)
        to[start[from[i] >> shift & 255]++] = from[i];
}

static void sort_run(struct queue *q)
{
    uint32_t *v = q->run;
    if (is_sorted(v, q->run_n))
        return;
    if (q->run_n > SMALL_SORT) {
        for (unsigned shift = 0; shift < 32; shift += 16) {
            radix_pass(q->run, q->other, q->run_n, shift);
            radix_pass(q->other, q->run, q->run_n, shift + 8);
        }
        return;
    }
    for (size_t i = 1; i < q->run_n; i++) {
        uint32_t x = v[i];
        size_t k = i;
        for (; k > 0 && v[k - 1] > x; k--)
            v[k] = v[k - 1];
        v[k] = x;
    }
}

/* Makes the next rank that has entries the run. False when there is none. */
static bool start_run(struct queue *q)
{
    size_t w = q->rank / 64;
    while (w < q->n_words && q->present[w] == 0)
        w++;
    if (w == q->n_words)
        return false;
    q->rank = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(q->present[w]);
    q->present[w] &= q->present[w] - 1;
    uint32_t last = q->last[q->rank], first = q->nodes[last].next;
    q->last[q->rank] = NO_NODE;
    q->run_n = q->run_at = 0;
    for (uint32_t i = first;; i = q->nodes[i].next) {
        q->run[q->run_n++] = q->nodes[i].at;
        if (i == last)
            break;
    }
    q->nodes[last].next = q->free;
    q->free = first;
    sort_run(q);
    return true;
}

static bool queue_next(struct queue *q, uint64_t *key)
{
    if (q->run_at == q->run_n && q->n_early == 0 && !start_run(q))
        return false;
    bool have_run = q->run_at < q->run_n;
    uint64_t front = have_run ? (uint64_t)q->rank << 32 | q->run[q->run_at] : UINT64_MAX;
    if (q->n_early > 0 && q->early[0] < front) {
        *key = sn_bpe_queue_pop(q->early, &q->n_early);
        return true;
    }
    q->run_at++;
    *key = front;
    return true;
}

/* ---- merging ---- */

static sennit_status queue_pair(const struct sn_bpe *b, const struct sn_bpe_symbol *sym,
                                struct queue *q, int32_t left, struct sennit_error *err)
{
    const struct sn_bpe_pair *p = sn_bpe_find(b, sym[left].id, sym[sym[left].next].id);
    if (p->left == SN_BPE_NONE)
        return SENNIT_OK;
    if (p->rank <= q->rank)
        return early_push(q, sn_bpe_key(p->rank, left), err);
    list_append(q, p->rank, left);
    return SENNIT_OK;
}

static sennit_status merge_all(const struct sn_bpe *b, struct sn_bpe_symbol *sym, struct queue *q,
                               struct sennit_error *err)
{
    uint64_t key;
    while (queue_next(q, &key)) {
        if (!sn_bpe_merge(b, sym, key))
            continue;
        int32_t at = (int32_t)(uint32_t)key;
        if (sym[at].prev != SN_BPE_NONE)
            SN_TRY(queue_pair(b, sym, q, sym[at].prev, err));
        if (sym[at].next != SN_BPE_NONE)
            SN_TRY(queue_pair(b, sym, q, at, err));
    }
    return SENNIT_OK;
}

sennit_status sn_bpe_merge_long(const struct sn_bpe *b, struct sn_bpe_symbol *sym, size_t n,
                                struct sennit_error *err)
{
    if (b->n_ranks == 0 || n < 2)
        return SENNIT_OK;
    struct queue q;
    SN_TRY(queue_init(&q, b->heap, b->n_ranks, n, err));
    for (size_t i = 0; i + 1 < n; i++) { /* nothing runs yet: rank 0 goes to a list too */
        const struct sn_bpe_pair *p = sn_bpe_find(b, sym[i].id, sym[i + 1].id);
        if (p->left != SN_BPE_NONE)
            list_append(&q, p->rank, (int32_t)i);
    }
    sennit_status status = merge_all(b, sym, &q, err);
    queue_free(&q);
    return status;
}
