/* The table of pairs, and merging with a heap. */
#include "text/bpe_internal.h"

sennit_status sn_bpe_init(struct sn_bpe *b, struct sn_heap *heap, size_t n_ranks,
                          struct sennit_error *err)
{
    *b = (struct sn_bpe){.heap = heap, .n_ranks = n_ranks, .n_slots = 16, .long_word = 2048};
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
    *sn_bpe_find(b, left, right) = (struct sn_bpe_pair){left, right, (uint32_t)rank};
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

/* ---- queue: a heap with four children per node, smallest (rank, position) first ---- */

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

void sn_bpe_queue_push(uint64_t *q, size_t *n, uint64_t key)
{
    size_t i = (*n)++;
    while (i > 0 && q[(i - 1) / 4] > key) {
        q[i] = q[(i - 1) / 4];
        i = (i - 1) / 4;
    }
    q[i] = key;
}

uint64_t sn_bpe_queue_pop(uint64_t *q, size_t *n)
{
    uint64_t top = q[0];
    uint64_t last = q[--*n];
    if (*n > 0)
        sift_down(q, *n, 0, last);
    return top;
}

/* ---- merging ---- */

void sn_bpe_scratch_free(struct sn_bpe_scratch *s, const struct sn_bpe *b)
{
    sn_free(b->heap, SN_USE_TEXT, s->symbols, s->cap * sizeof *s->symbols);
    sn_free(b->heap, SN_USE_TEXT, s->queue, 2 * b->long_word * sizeof *s->queue);
    *s = (struct sn_bpe_scratch){0};
}

static sennit_status reserve(struct sn_bpe_scratch *s, struct sn_heap *heap, size_t n,
                             struct sennit_error *err)
{
    if (n <= s->cap)
        return SENNIT_OK;
    size_t cap = sn_max_size(n, sn_max_size(256, s->cap * 2));
    struct sn_bpe_symbol *fresh = sn_alloc(heap, SN_USE_TEXT, cap * sizeof *fresh);
    if (!fresh)
        return sn_fail(err, SENNIT_NOMEM, "no memory to tokenize a word of %zu bytes", n);
    sn_free(heap, SN_USE_TEXT, s->symbols, s->cap * sizeof *fresh);
    s->symbols = fresh;
    s->cap = cap;
    return SENNIT_OK;
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
    const struct sn_bpe_pair *p = sn_bpe_find(b, sym[left].id, sym[sym[left].next].id);
    if (p->left != SN_BPE_NONE)
        sn_bpe_queue_push(q, n_queue, sn_bpe_key(p->rank, left));
}

static size_t queue_initial(const struct sn_bpe *b, const struct sn_bpe_symbol *sym, size_t n,
                            uint64_t *q)
{
    size_t n_queue = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const struct sn_bpe_pair *p = sn_bpe_find(b, sym[i].id, sym[i + 1].id);
        if (p->left != SN_BPE_NONE)
            q[n_queue++] = sn_bpe_key(p->rank, (int32_t)i);
    }
    if (n_queue > 1)
        for (size_t i = (n_queue - 2) / 4 + 1; i-- > 0;)
            sift_down(q, n_queue, i, q[i]);
    return n_queue;
}

static void merge_short(const struct sn_bpe *b, struct sn_bpe_symbol *sym, size_t n, uint64_t *q)
{
    size_t n_queue = queue_initial(b, sym, n, q);
    while (n_queue > 0) {
        uint64_t key = sn_bpe_queue_pop(q, &n_queue);
        if (!sn_bpe_merge(b, sym, key))
            continue;
        int32_t at = (int32_t)(uint32_t)key;
        if (sym[at].prev != SN_BPE_NONE)
            queue_pair(b, sym, sym[at].prev, q, &n_queue);
        if (sym[at].next != SN_BPE_NONE)
            queue_pair(b, sym, at, q, &n_queue);
    }
}

static sennit_status merge_word(const struct sn_bpe *b, struct sn_bpe_scratch *s, const char *word,
                                size_t n, size_t *n_symbols, struct sennit_error *err)
{
    SN_TRY(reserve(s, b->heap, n, err));
    *n_symbols = fill_symbols(b, s->symbols, word, n);
    if (*n_symbols > b->long_word)
        return sn_bpe_merge_long(b, s->symbols, *n_symbols, err);
    /* The queue is only needed here: a long word has its own. */
    if (!s->queue)
        s->queue = sn_alloc(b->heap, SN_USE_TEXT, 2 * b->long_word * sizeof *s->queue);
    if (!s->queue)
        return sn_fail(err, SENNIT_NOMEM, "no memory to tokenize a word of %zu bytes", n);
    merge_short(b, s->symbols, *n_symbols, s->queue);
    return SENNIT_OK;
}

sennit_status sn_bpe_encode(const struct sn_bpe *b, struct sn_bpe_scratch *s, const char *word,
                            size_t n, struct sn_tokens *out, size_t *n_dropped,
                            struct sennit_error *err)
{
    size_t k;
    SN_TRY(merge_word(b, s, word, n, &k, err));
    *n_dropped += n - k;
    if (k == 0)
        return SENNIT_OK;
    for (int32_t i = 0; i != SN_BPE_NONE; i = s->symbols[i].next)
        if (sn_tokens_push(out, s->symbols[i].id) != SENNIT_OK)
            return sn_fail(err, SENNIT_NOMEM, "no memory for %zu token ids", out->n + 1);
    return SENNIT_OK;
}
