#include "text/bpe.h"

struct sn_bpe_pair {
    int32_t left, right; /* left == SN_BPE_NONE: free slot */
    uint32_t rank;
};

/* One token of the word being merged, in a doubly linked list over an array. Invariants during
 * merging:
 *  - positions in list order are ascending; symbol 0 is always alive (merges keep the left side);
 *  - a dead symbol has id SN_BPE_NONE and no neighbour points to it;
 *  - every adjacent pair of live symbols that has a rank was queued with that rank. */
struct sn_bpe_symbol {
    int32_t id;
    int32_t prev, next; /* SN_BPE_NONE at the ends */
};

/* ---- table of pairs
 * ------------------------------------------------------------------------------ */

static size_t pair_slot(const struct sn_bpe *b, int32_t left, int32_t right)
{
    uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (size_t)(h >> 20 ^ h >> 44) & (b->n_slots - 1);
}

/* The slot that holds the pair, or the free one where it would go. */
static struct sn_bpe_pair *find_pair(const struct sn_bpe *b, int32_t left, int32_t right)
{
    size_t i = pair_slot(b, left, right);
    while (b->pairs[i].left != SN_BPE_NONE &&
           (b->pairs[i].left != left || b->pairs[i].right != right))
        i = (i + 1) & (b->n_slots - 1);
    return &b->pairs[i];
}

sennit_status sn_bpe_init(struct sn_bpe *b, struct sn_heap *heap, size_t n_ranks,
                          struct sennit_error *err)
{
    *b = (struct sn_bpe){.heap = heap, .n_ranks = n_ranks, .n_slots = 16};
    for (size_t i = 0; i < SN_ARRAY_LEN(b->byte_id); i++)
        b->byte_id[i] = SN_BPE_NONE;
    while (b->n_slots < 2 * n_ranks)
        b->n_slots *= 2;
    b->pairs = sn_calloc(heap, SN_USE_TEXT, b->n_slots, sizeof *b->pairs);
    b->result = sn_calloc(heap, SN_USE_TEXT, sn_max_size(n_ranks, 1), sizeof *b->result);
    if (!b->pairs || !b->result) {
        sn_bpe_free(b);
        return sn_fail(err, SENNIT_NOMEM, "no memory for the table of %zu merges", n_ranks);
    }
    for (size_t i = 0; i < b->n_slots; i++)
        b->pairs[i].left = SN_BPE_NONE;
    return SENNIT_OK;
}

void sn_bpe_set(struct sn_bpe *b, size_t rank, int32_t left, int32_t right, int32_t result)
{
    *find_pair(b, left, right) = (struct sn_bpe_pair){left, right, (uint32_t)rank};
    b->result[rank] = result;
}

void sn_bpe_free(struct sn_bpe *b)
{
    if (b->pairs)
        sn_free(b->heap, SN_USE_TEXT, b->pairs, b->n_slots * sizeof *b->pairs);
    if (b->result)
        sn_free(b->heap, SN_USE_TEXT, b->result, sn_max_size(b->n_ranks, 1) * sizeof *b->result);
    b->pairs = NULL;
    b->result = NULL;
}

/* ---- queue: a heap with four children per node, smallest (rank, position) first
 * ------------------ */

static void sift_down(uint64_t *q, size_t n, size_t i, uint64_t key)
{
    for (size_t child = 4 * i + 1; child < n; child = 4 * i + 1) {
        size_t end = sn_min_size(child + 4, n);
        size_t least = child;
        for (size_t c = child + 1; c < end; c++)
            least = q[c] < q[least] ? c : least;
        if (q[least] >= key)
            break;
        q[i] = q[least];
        i = least;
    }
    q[i] = key;
}

static void queue_push(uint64_t *q, size_t *n, uint64_t key)
{
    size_t i = (*n)++;
    while (i > 0 && q[(i - 1) / 4] > key) {
        q[i] = q[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    q[i] = key;
}

static uint64_t queue_pop(uint64_t *q, size_t *n)
{
    uint64_t top = q[0];
    uint64_t last = q[--*n];
    if (*n > 0)
        sift_down(q, *n, 0, last);
    return top;
}

/* ---- merging
 * ------------------------------------------------------------------------------------- */

void sn_bpe_scratch_free(struct sn_bpe_scratch *s, struct sn_heap *heap)
{
    if (s->symbols)
        sn_free(heap, SN_USE_TEXT, s->symbols, s->cap * sizeof *s->symbols);
    if (s->queue)
        sn_free(heap, SN_USE_TEXT, s->queue, 2 * s->cap * sizeof *s->queue);
    *s = (struct sn_bpe_scratch){0};
}

/* A merge takes at least one entry out of the queue and puts at most two in, and a word of n
 * symbols has fewer than n merges: 2n entries are enough. */
static sennit_status reserve(struct sn_bpe_scratch *s, struct sn_heap *heap, size_t n,
                             struct sennit_error *err)
{
    if (n <= s->cap)
        return SENNIT_OK;
    size_t cap = sn_max_size(n, sn_max_size(256, s->cap * 2));
    sn_bpe_scratch_free(s, heap);
    s->symbols = sn_alloc(heap, SN_USE_TEXT, cap * sizeof *s->symbols);
    s->queue = sn_alloc(heap, SN_USE_TEXT, 2 * cap * sizeof *s->queue);
    s->cap = cap;
    if (s->symbols && s->queue)
        return SENNIT_OK;
    sn_bpe_scratch_free(s, heap);
    return sn_fail(err, SENNIT_NOMEM, "no memory to tokenize a word of %zu bytes", n);
}

static size_t fill_symbols(const struct sn_bpe *b, struct sn_bpe_symbol *sym, const char *word,
                           size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t id = b->byte_id[(unsigned char)word[i]];
        if (id == SN_BPE_NONE)
            continue;
        sym[k] = (struct sn_bpe_symbol){id, (int32_t)k - 1, (int32_t)k + 1};
        k++;
    }
    if (k > 0)
        sym[k - 1].next = SN_BPE_NONE;
    return k;
}

static void queue_pair(const struct sn_bpe *b, const struct sn_bpe_symbol *sym, int32_t left,
                       uint64_t *q, size_t *n_queue)
{
    const struct sn_bpe_pair *p = find_pair(b, sym[left].id, sym[sym[left].next].id);
    if (p->left != SN_BPE_NONE)
        queue_push(q, n_queue, (uint64_t)p->rank << 32 | (uint32_t)left);
}

static size_t queue_initial(const struct sn_bpe *b, const struct sn_bpe_symbol *sym, size_t n,
                            uint64_t *q)
{
    size_t n_queue = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct sn_bpe_pair *p = find_pair(b, sym[i].id, sym[i + 1].id);
        if (p->left != SN_BPE_NONE)
            q[n_queue++] = (uint64_t)p->rank << 32 | i;
    }
    if (n_queue > 1)
        for (size_t i = (n_queue - 2) / 4 + 1; i-- > 0;)
            sift_down(q, n_queue, i, q[i]);
    return n_queue;
}

static void merge_all(const struct sn_bpe *b, struct sn_bpe_symbol *sym, size_t n, uint64_t *q)
{
    size_t n_queue = queue_initial(b, sym, n, q);
    while (n_queue > 0) {
        uint64_t key = queue_pop(q, &n_queue);
        int32_t at = (int32_t)(uint32_t)key;
        int32_t next = sym[at].next;
        if (sym[at].id == SN_BPE_NONE || next == SN_BPE_NONE)
            continue;
        int32_t result = b->result[key >> 32];
        const struct sn_bpe_pair *p = find_pair(b, sym[at].id, sym[next].id);
        if (p->left == SN_BPE_NONE || b->result[p->rank] != result)
            continue; /* a neighbour changed since this was queued */
        sym[at].id = result;
        sym[at].next = sym[next].next;
        sym[next].id = SN_BPE_NONE;
        if (sym[at].next != SN_BPE_NONE) {
            sym[sym[at].next].prev = at;
            queue_pair(b, sym, at, q, &n_queue);
        }
        if (sym[at].prev != SN_BPE_NONE)
            queue_pair(b, sym, sym[at].prev, q, &n_queue);
    }
}

sennit_status sn_bpe_encode(const struct sn_bpe *b, struct sn_bpe_scratch *s, const char *word,
                            size_t n, struct sn_tokens *out, size_t *n_dropped,
                            struct sennit_error *err)
{
    SN_TRY(reserve(s, b->heap, n, err));
    size_t k = fill_symbols(b, s->symbols, word, n);
    *n_dropped += n - k;
    if (k == 0)
        return SENNIT_OK;
    merge_all(b, s->symbols, k, s->queue);
    for (int32_t i = 0; i != SN_BPE_NONE; i = s->symbols[i].next)
        if (sn_tokens_push(out, s->symbols[i].id) != SENNIT_OK)
            return sn_fail(err, SENNIT_NOMEM, "no memory for %zu token ids", out->n + 1);
    return SENNIT_OK;
}
