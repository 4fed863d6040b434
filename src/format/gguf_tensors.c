/* The tensor section: descriptions, then where their data lies. */
#include "format/gguf_internal.h"

#include "tensor/traits.h"

static sennit_status read_dims(struct gguf_cursor *c, struct sn_gguf_tensor *t)
{
    SN_TRY(gguf_read_u32(c, "n_dims", &t->n_dims));
    if (t->n_dims < 1 || t->n_dims > SN_GGUF_MAX_DIMS)
        return gguf_fail(c, SENNIT_FORMAT, c->at - 4, "n_dims is %u, allowed are 1 to %d",
                         t->n_dims, SN_GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < SN_GGUF_MAX_DIMS; i++) {
        t->dims[i] = 1;
        if (i >= t->n_dims)
            continue;
        SN_TRY(gguf_read_u64(c, "dimension", &t->dims[i]));
        if (t->dims[i] == 0)
            return gguf_fail(c, SENNIT_FORMAT, c->at - 8,
                             "dimension %u is 0: a tensor without elements", i);
    }
    return SENNIT_OK;
}

/* Sets n_bytes from type and dims: whole blocks in each row, and no product that wraps. at = offset
 * of the type. */
static sennit_status size_tensor(struct gguf_cursor *c, struct sn_gguf_tensor *t, size_t at)
{
    const struct sn_traits *traits = sn_traits(t->type);
    if (!traits)
        return gguf_fail(c, SENNIT_UNSUPPORTED, at,
                         "element type %u is not one that this build knows: requantize the model, "
                         "for example to Q8_0",
                         t->type);
    if (t->dims[0] % traits->block_len != 0)
        return gguf_fail(c, SENNIT_FORMAT, at,
                         "rows of %llu elements are not whole blocks of %u, which type %s needs",
                         (unsigned long long)t->dims[0], traits->block_len, traits->name);
    size_t n_bytes =
        (size_t)t->dims[0] == t->dims[0] ? sn_row_bytes(t->type, (size_t)t->dims[0]) : 0;
    bool wraps = n_bytes == 0;
    for (uint32_t i = 1; i < t->n_dims; i++)
        wraps = wraps || __builtin_mul_overflow(n_bytes, t->dims[i], &n_bytes);
    /* Elements too: an index of an element must fit where bytes do (blocks can be smaller than
     * their count). */
    uint64_t n_elements = t->dims[0];
    for (uint32_t i = 1; i < t->n_dims; i++)
        wraps = wraps || __builtin_mul_overflow(n_elements, t->dims[i], &n_elements);
    if (wraps || n_elements > SIZE_MAX / 8)
        return gguf_fail(c, SENNIT_FORMAT, at,
                         "the product of its dimensions (%llu x %llu x %llu x %llu) is too large",
                         (unsigned long long)t->dims[0], (unsigned long long)t->dims[1],
                         (unsigned long long)t->dims[2], (unsigned long long)t->dims[3]);
    t->n_bytes = n_bytes;
    return SENNIT_OK;
}

/* One description. file_offset is left relative to the data section, whose start is known after the
 * last one. */
static sennit_status parse_tensor(struct gguf_cursor *c, size_t index)
{
    struct sn_gguf *g = c->g;
    struct sn_gguf_tensor *t = &g->tensors[index];
    size_t slot;
    c->index = index;
    c->name.data = NULL;
    SN_TRY(gguf_read_name(c, "name", SN_GGUF_MAX_TENSOR_NAME_BYTES, &t->name));
    c->name = t->name;
    if (gguf_names_find(&g->tensor_names, g, gguf_tensor_name, t->name, &slot) != SN_GGUF_NONE)
        return gguf_fail(c, SENNIT_FORMAT, c->at - t->name.len, "this tensor name occurs twice");
    g->tensor_names.slots[slot] = (uint32_t)index + 1;
    SN_TRY(read_dims(c, t));
    SN_TRY(gguf_read_u32(c, "element type", &t->type));
    SN_TRY(size_tensor(c, t, c->at - 4));
    SN_TRY(gguf_read_u64(c, "offset", &t->file_offset));
    if (t->file_offset % g->alignment != 0)
        return gguf_fail(c, SENNIT_FORMAT, c->at - 8,
                         "offset %llu is not a multiple of the file's alignment, %u",
                         (unsigned long long)t->file_offset, g->alignment);
    return SENNIT_OK;
}

static sennit_status place_tensor(struct gguf_cursor *c, struct sn_gguf_tensor *t,
                                  uint64_t data_start)
{
    struct sn_gguf *g = c->g;
    uint64_t begin, end;
    c->name = t->name;
    if (__builtin_add_overflow(data_start, t->file_offset, &begin) ||
        __builtin_add_overflow(begin, t->n_bytes, &end))
        return gguf_fail(c, SENNIT_FORMAT, g->n_bytes, "offset %llu is too large",
                         (unsigned long long)t->file_offset);
    if (end > g->n_bytes)
        return gguf_fail(c, SENNIT_FORMAT, g->n_bytes,
                         "its data are bytes %llu to %llu, but the file ends at byte %zu: likely "
                         "an incomplete download, "
                         "fetch the file again",
                         (unsigned long long)begin, (unsigned long long)end, g->n_bytes);
    t->file_offset = begin;
    t->data = g->file + begin;
    return SENNIT_OK;
}

/* ---- overlaps -------------------------------------------------------------------------------- */

static bool starts_after(const struct sn_gguf *g, uint32_t a, uint32_t b)
{
    return g->tensors[a].file_offset > g->tensors[b].file_offset;
}

static void sift_down(const struct sn_gguf *g, uint32_t *heap, size_t n, size_t i)
{
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && starts_after(g, heap[child + 1], heap[child]))
            child++;
        if (!starts_after(g, heap[child], heap[i]))
            return;
        uint32_t t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
    }
}

/* Heapsort: no worst case for a hostile order of offsets, and no memory beyond the list. */
static void sort_by_offset(const struct sn_gguf *g, uint32_t *order, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(g, order, n, i);
    for (size_t last = n; last-- > 1;) {
        uint32_t t = order[0];
        order[0] = order[last];
        order[last] = t;
        sift_down(g, order, last, 0);
    }
}

static sennit_status check_overlaps(struct gguf_cursor *c)
{
    struct sn_gguf *g = c->g;
    size_t n_bytes = g->n_tensors * sizeof(uint32_t);
    uint32_t *order = sn_alloc(g->heap, SN_USE_MISC, n_bytes);
    if (!order)
        return sn_fail(c->err, SENNIT_NOMEM, "out of memory: ordering %zu tensors needs %zu bytes",
                       g->n_tensors, n_bytes);
    for (size_t i = 0; i < g->n_tensors; i++)
        order[i] = (uint32_t)i;
    sort_by_offset(g, order, g->n_tensors);
    sennit_status status = SENNIT_OK;
    for (size_t i = 1; i < g->n_tensors && status == SENNIT_OK; i++) {
        const struct sn_gguf_tensor *a = &g->tensors[order[i - 1]], *b = &g->tensors[order[i]];
        char shown[GGUF_SHOWN_NAME];
        c->name = b->name;
        if (b->file_offset - a->file_offset < a->n_bytes)
            status = gguf_fail(c, SENNIT_FORMAT, (size_t)b->file_offset,
                               "its data overlap those of tensor '%s'", gguf_shown(a->name, shown));
    }
    sn_free(g->heap, SN_USE_MISC, order, n_bytes);
    return status;
}

sennit_status gguf_parse_tensors(struct gguf_cursor *c, uint64_t n_tensors)
{
    struct sn_gguf *g = c->g;
    size_t n = (size_t)n_tensors;
    c->kind = "tensor";
    if (n == 0)
        return SENNIT_OK;
    SN_TRY(gguf_names_init(&g->tensor_names, g->heap, n, c->err));
    g->tensors = sn_calloc(g->heap, SN_USE_MISC, n, sizeof *g->tensors);
    if (!g->tensors)
        return sn_fail(c->err, SENNIT_NOMEM, "out of memory: %zu tensors need %zu bytes", n,
                       n * sizeof *g->tensors);
    g->n_tensors = n;
    for (size_t i = 0; i < n; i++)
        SN_TRY(parse_tensor(c, i));
    uint64_t data_start = ((uint64_t)c->at + g->alignment - 1) & ~((uint64_t)g->alignment - 1);
    for (size_t i = 0; i < n; i++)
        SN_TRY(place_tensor(c, &g->tensors[i], data_start));
    return check_overlaps(c);
}
