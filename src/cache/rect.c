#include "cache/rect.h"

#include <assert.h>

enum { POISON = 0xFF }; /* every f32, f16 and bf16 made of these bytes is a NaN */

/* ---- sizes ---------------------------------------------------------------------------------------------------- */

uint64_t sn_rect_width(const struct sn_kv_layout *l, uint64_t columns)
{
    uint64_t part = columns % l->page_tokens, rest = part ? l->page_tokens - part : 0;
    return rest > UINT64_MAX - columns ? UINT64_MAX : columns + rest;
}

uint64_t sn_rect_column_bytes(const struct sn_kv_layout *l)
{
    return l->n_heads * ((uint64_t)l->d_k + l->d_v) * l->element_bytes;
}

uint64_t sn_rect_bytes(const struct sn_kv_layout *l, uint32_t n_slots, uint64_t width)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(width, sn_rect_column_bytes(l), &bytes) ||
        __builtin_add_overflow(bytes, sizeof(struct sn_slot), &bytes) ||
        __builtin_mul_overflow(bytes, n_slots, &bytes))
        return UINT64_MAX;
    return bytes;
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

static struct sn_slot *rect_open(struct sn_slot *head, uint32_t n_slots, uint64_t width, size_t n_bytes)
{
    for (uint32_t i = 0; head && i < n_slots; i++)
        head[i] = (struct sn_slot){.head = head, .width = width, .n_bytes = n_bytes, .n_slots = n_slots};
    return head;
}

static bool size_of(const struct sn_kv_layout *l, uint32_t n_slots, uint64_t width, size_t *n_bytes)
{
    uint64_t bytes = sn_rect_bytes(l, n_slots, width);
    *n_bytes = (size_t)bytes;
    return bytes <= SIZE_MAX / 2;
}

struct sn_slot *sn_rect_new(struct sennit_pool *pool, const struct sn_kv_layout *l, uint32_t n_slots, uint64_t width)
{
    size_t n_bytes;
    if (!size_of(l, n_slots, width, &n_bytes))
        return NULL;
    return rect_open(sn_cache_pool_alloc(pool, n_bytes), n_slots, width, n_bytes);
}

struct sn_slot *sn_rect_new_next(struct sennit_pool *pool, const struct sn_kv_layout *l, uint32_t n_slots,
                                 uint64_t width)
{
    size_t n_bytes;
    if (!size_of(l, n_slots, width, &n_bytes))
        return NULL;
    struct sn_slot *head = sn_cache_pool_alloc_next(pool, n_bytes);
    if (head && pool->poison)
        memset(head, POISON, n_bytes);
    return rect_open(head, n_slots, width, n_bytes);
}

void sn_rect_adopt(struct sennit_pool *pool, struct sn_slot *head)
{
    sn_cache_pool_adopt_next(pool, head->n_bytes);
}

void sn_rect_discard(struct sennit_pool *pool, struct sn_slot *head)
{
    if (!head)
        return;
    size_t n_bytes = head->n_bytes;
    if (pool->poison)
        memset(head, POISON, n_bytes);
    sn_cache_pool_drop_next(pool, head, n_bytes);
}

void sn_rect_ref(struct sn_slot *slot)
{
    if (slot)
        slot->head->n_refs++;
}

void sn_rect_drop(struct sennit_pool *pool, struct sn_slot *slot)
{
    if (!slot)
        return;
    struct sn_slot *head = slot->head;
    assert(head->n_refs > 0);
    if (--head->n_refs == 0)
        sn_cache_pool_release(pool, head, head->n_bytes);
}

/* ---- columns -------------------------------------------------------------------------------------------------- */

static uint8_t *planes(const struct sn_slot *head)
{
    return (uint8_t *)(uintptr_t)(head + head->n_slots);
}

uint8_t *sn_rect_key(const struct sn_kv_layout *l, const struct sn_slot *slot, size_t head, uint64_t column)
{
    const struct sn_slot *first = slot->head;
    uint64_t at = (sn_rect_index(slot) * (uint64_t)l->n_heads + head) * first->width + column;
    return planes(first) + at * l->d_k * l->element_bytes;
}

uint8_t *sn_rect_value(const struct sn_kv_layout *l, const struct sn_slot *slot, size_t head, uint64_t column)
{
    const struct sn_slot *first = slot->head;
    uint64_t lines = first->n_slots * (uint64_t)l->n_heads * first->width;
    uint64_t at = (sn_rect_index(slot) * (uint64_t)l->n_heads + head) * first->width + column;
    return planes(first) + (lines * l->d_k + at * l->d_v) * l->element_bytes;
}

void sn_rect_copy(const struct sn_kv_layout *l, const struct sn_slot *from, const struct sn_slot *to, uint64_t n)
{
    for (size_t h = 0; n > 0 && h < l->n_heads; h++) {
        memcpy(sn_rect_key(l, to, h, to->first), sn_rect_key(l, from, h, from->first), n * l->d_k * l->element_bytes);
        memcpy(sn_rect_value(l, to, h, to->first), sn_rect_value(l, from, h, from->first),
               n * l->d_v * l->element_bytes);
    }
}

static void fill(const struct sn_kv_layout *l, const struct sn_slot *slot, uint64_t from, uint64_t to)
{
    for (size_t h = 0; h < l->n_heads; h++) {
        memset(sn_rect_key(l, slot, h, from), POISON, (to - from) * l->d_k * l->element_bytes);
        memset(sn_rect_value(l, slot, h, from), POISON, (to - from) * l->d_v * l->element_bytes);
    }
}

void sn_rect_poison(const struct sn_kv_layout *l, const struct sn_slot *slot, uint64_t n)
{
    fill(l, slot, 0, slot->first);
    fill(l, slot, slot->first + n, slot->head->width);
}

/* ---- in place ------------------------------------------------------------------------------------------------- */

static void move_bytes(uint8_t *a, uint8_t *b, size_t n, bool swap)
{
    uint8_t piece[256];
    if (!swap) {
        memcpy(a, b, n);
        return;
    }
    for (size_t at = 0; at < n; at += sizeof piece) {
        size_t k = sn_min_size(sizeof piece, n - at);
        memcpy(piece, a + at, k);
        memcpy(a + at, b + at, k);
        memcpy(b + at, piece, k);
    }
}

void sn_rect_move(const struct sn_kv_layout *l, struct sn_slot *a, struct sn_slot *b, bool swap)
{
    size_t column = (size_t)a->head->width * l->n_heads * l->element_bytes;
    uint64_t first = a->first;
    move_bytes(sn_rect_key(l, a, 0, 0), sn_rect_key(l, b, 0, 0), column * l->d_k, swap);
    move_bytes(sn_rect_value(l, a, 0, 0), sn_rect_value(l, b, 0, 0), column * l->d_v, swap);
    a->first = b->first;
    if (swap)
        b->first = first;
}

/* Every piece goes down or stays, in ascending order: nothing is overwritten that is still to be moved. */
static void squeeze(const struct sn_kv_layout *l, struct sn_slot *head, uint32_t n_slots, uint64_t from,
                    uint64_t width)
{
    const struct sn_slot old = *head;
    uint64_t n_lines = n_slots * (uint64_t)l->n_heads, k = l->d_k * l->element_bytes, v = l->d_v * l->element_bytes;
    uint8_t *old_key = planes(head), *key = (uint8_t *)(head + n_slots);
    uint8_t *old_value = old_key + old.n_slots * (uint64_t)l->n_heads * old.width * k;
    uint8_t *value = key + n_lines * width * k;
    uint64_t kept = width < old.width - from ? width : old.width - from;
    for (uint64_t i = 0; i < n_lines; i++)
        memmove(key + i * width * k, old_key + (i * old.width + from) * k, kept * k);
    for (uint64_t i = 0; i < n_lines; i++)
        memmove(value + i * width * v, old_value + (i * old.width + from) * v, kept * v);
}

struct sn_slot *sn_rect_shrink(struct sennit_pool *pool, const struct sn_kv_layout *l, struct sn_slot *head,
                               uint32_t n_slots, uint64_t from, uint64_t width)
{
    assert(n_slots >= 1 && n_slots <= head->n_slots && width <= head->width && from <= head->width);
    squeeze(l, head, n_slots, from, width);
    head->n_slots = n_slots;
    head->width = width;
    size_t n_bytes = (size_t)sn_rect_bytes(l, n_slots, width);
    struct sn_slot *fresh =
        n_bytes < head->n_bytes ? sn_cache_pool_realloc(pool, head, head->n_bytes, n_bytes) : NULL;
    if (fresh) {
        head = fresh;
        head->n_bytes = n_bytes;
    }
    for (uint32_t i = 0; i < n_slots; i++) {
        head[i].head = head;
        head[i].first -= from;
    }
    return head;
}
