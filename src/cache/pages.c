#include "cache/pages.h"

#include <assert.h>
#include <stdio.h>

sennit_status sn_page_tokens_check(const struct sennit_cache_config *config, struct sennit_error *err)
{
    uint32_t n = sn_page_tokens(config);
    if (n <= SN_MAX_PAGE_TOKENS && (n & (n - 1)) == 0)
        return SENNIT_OK;
    return sn_fail(err, SENNIT_INVALID,
                   "cache config: page_tokens is %u; it must be 1, 2, 4, 8, 16, 32 or 64, or 0 for 64", n);
}

void sn_page_tokens_sign(const struct sennit_cache_config *config, char *signature, size_t n_bytes)
{
    size_t used = strlen(signature);
    if (sn_page_tokens(config) != SN_MAX_PAGE_TOKENS && used < n_bytes)
        snprintf(signature + used, n_bytes - used, " / p%u", config->page_tokens);
}

uint64_t sn_page_bytes(const struct sn_paging *paging)
{
    return sizeof(struct sn_page) + paging->data_bytes;
}

uint64_t sn_table_bytes(void)
{
    return sizeof(struct sn_table);
}

uint64_t sn_paged_bytes(const struct sn_paging *paging, uint64_t tokens)
{
    uint64_t pages = sn_pages_of(paging, tokens);
    uint64_t tables = pages / SN_TABLE_PAGES + (pages % SN_TABLE_PAGES != 0);
    uint64_t a, b, sum;
    if (__builtin_mul_overflow(pages, sn_page_bytes(paging), &a) ||
        __builtin_mul_overflow(tables, sn_table_bytes(), &b) || __builtin_add_overflow(a, b, &sum))
        return UINT64_MAX;
    return sum;
}

uint64_t sn_table_own_bytes(const struct sn_table *tail)
{
    uint64_t bytes = 0;
    for (; tail && tail->n_refs == 1; tail = tail->parent) {
        bytes += sn_table_bytes();
        for (uint32_t i = 0; i < tail->n_pages; i++)
            bytes += tail->page[i]->n_refs == 1 ? sn_page_cost(tail->page[i]) : 0;
    }
    return bytes;
}

/* ---- pages and blocks
 * ---------------------------------------------------------------------------------------- */

struct sn_page *sn_page_new(const struct sn_paging *paging)
{
    struct sn_page *page = sn_cache_pool_alloc(paging->pool, sn_page_bytes(paging));
    if (page) {
        page->n_refs = 1;
        page->data_bytes = paging->data_bytes;
        page->next = NULL;
    }
    return page;
}

void sn_page_drop(const struct sn_paging *paging, struct sn_page *page)
{
    assert(page->n_refs > 0);
    if (--page->n_refs == 0)
        sn_cache_pool_release(paging->pool, page, sn_page_cost(page));
}

/* Takes over the caller's reference to parent. */
static struct sn_table *table_new(const struct sn_paging *paging, struct sn_table *parent)
{
    struct sn_table *table = sn_cache_pool_alloc(paging->pool, sizeof *table);
    if (table) {
        table->parent = parent;
        table->n_refs = 1;
        table->n_pages = 0;
    }
    return table;
}

/* Fills an empty block with the first n_pages of another, and its parent; each gains a reference.
 */
static void table_share(struct sn_table *to, const struct sn_table *from, uint32_t n_pages)
{
    to->parent = from->parent;
    sn_table_ref(to->parent);
    to->n_pages = n_pages;
    for (uint32_t i = 0; i < n_pages; i++) {
        to->page[i] = from->page[i];
        to->page[i]->n_refs++;
    }
}

static void table_pop(const struct sn_paging *paging, struct sn_table *table, uint32_t n_pages)
{
    while (table->n_pages > n_pages)
        sn_page_drop(paging, table->page[--table->n_pages]);
}

void sn_table_ref(struct sn_table *tail)
{
    if (tail)
        tail->n_refs++;
}

void sn_table_drop(const struct sn_paging *paging, struct sn_table *tail)
{
    while (tail) {
        assert(tail->n_refs > 0);
        if (--tail->n_refs > 0)
            return;
        struct sn_table *parent = tail->parent;
        table_pop(paging, tail, 0);
        sn_cache_pool_release(paging->pool, tail, sizeof *tail);
        tail = parent;
    }
}

struct sn_page *sn_table_page(const struct sn_table *tail, uint64_t n_pages, uint64_t index)
{
    assert(index < n_pages);
    uint64_t steps = (n_pages - 1) / SN_TABLE_PAGES - index / SN_TABLE_PAGES;
    for (; steps > 0; steps--)
        tail = tail->parent;
    return tail->page[index % SN_TABLE_PAGES];
}

void sn_table_list(const struct sn_table *tail, uint64_t n_pages, struct sn_page **out)
{
    for (; tail; tail = tail->parent) {
        n_pages -= tail->n_pages;
        memcpy(out + n_pages, tail->page, tail->n_pages * sizeof *out);
    }
    assert(n_pages == 0);
}

/* ---- supplies -------------------------------------------------------------------------------- */

bool sn_supply_fill(const struct sn_paging *paging, uint64_t n_pages, uint64_t n_blocks, struct sn_supply *supply)
{
    *supply = (struct sn_supply){0};
    for (; n_pages > 0; n_pages--) {
        struct sn_page *page = sn_page_new(paging);
        if (!page)
            break;
        sn_supply_put(supply, page);
    }
    for (; n_pages == 0 && n_blocks > 0; n_blocks--) {
        struct sn_table *block = table_new(paging, supply->blocks);
        if (!block)
            break;
        supply->blocks = block;
    }
    if (n_pages == 0 && n_blocks == 0)
        return true;
    sn_supply_drop(paging, supply);
    return false;
}

struct sn_page *sn_supply_page(struct sn_supply *supply)
{
    struct sn_page *page = supply->pages;
    assert(page);
    supply->pages = page->next;
    page->next = NULL;
    return page;
}

void sn_supply_put(struct sn_supply *supply, struct sn_page *page)
{
    assert(page->n_refs == 1);
    page->next = supply->pages;
    supply->pages = page;
}

struct sn_table *sn_supply_block(struct sn_supply *supply, struct sn_table *parent)
{
    struct sn_table *block = supply->blocks;
    assert(block && block->n_pages == 0);
    supply->blocks = block->parent;
    block->parent = parent;
    return block;
}

void sn_supply_drop(const struct sn_paging *paging, struct sn_supply *supply)
{
    assert(!supply->list);
    while (supply->pages)
        sn_page_drop(paging, sn_supply_page(supply));
    sn_table_drop(paging, supply->blocks); /* a chain of empty ones */
    supply->blocks = NULL;
}

/* ---- growth ---------------------------------------------------------------------------------- */

/* The last page is partly filled and will be written: it must be ours alone. */
static bool own_last_page(const struct sn_paging *paging, struct sn_table *tail, struct sn_growth *undo)
{
    struct sn_page **last = &tail->page[tail->n_pages - 1];
    if ((*last)->n_refs == 1 && !paging->pool->hostile)
        return true;
    struct sn_page *copy = sn_page_new(paging);
    if (!copy)
        return false;
    memcpy(copy->data, (*last)->data, paging->data_bytes);
    if (undo->copied)
        sn_page_drop(paging, *last); /* the block's copy held this reference; the old block has its own */
    else
        undo->old_page = *last;
    *last = copy;
    return true;
}

/* Makes the first block writable where it will be written. */
static bool own_tail(const struct sn_paging *paging, struct sn_table **tail, bool partial, struct sn_growth *undo)
{
    bool hostile = paging->pool->hostile,
         written = *tail && (hostile || partial || (*tail)->n_pages < SN_TABLE_PAGES);
    if (!written)
        return true;
    if ((*tail)->n_refs > 1 || hostile) {
        struct sn_table *copy = table_new(paging, NULL);
        if (!copy)
            return false;
        table_share(copy, *tail, (*tail)->n_pages);
        undo->copied = true;
        *tail = copy;
    }
    return !(partial || hostile) || own_last_page(paging, *tail, undo);
}

/* supply: where the page and the block come from; NULL = from memory. */
static bool add_page(const struct sn_paging *paging, struct sn_table **tail, struct sn_supply *supply)
{
    if (!*tail || (*tail)->n_pages == SN_TABLE_PAGES) {
        struct sn_table *block = supply ? sn_supply_block(supply, *tail) : table_new(paging, *tail);
        if (!block)
            return false;
        *tail = block;
    }
    struct sn_page *page = supply ? sn_supply_page(supply) : sn_page_new(paging);
    if (!page)
        return false;
    (*tail)->page[(*tail)->n_pages++] = page;
    return true;
}

sennit_status sn_table_grow(const struct sn_paging *paging, struct sn_table **tail, uint64_t n_tokens, uint64_t n_new,
                            struct sn_growth *undo, struct sennit_error *err)
{
    *undo = (struct sn_growth){.old_tail = *tail, .old_pages = *tail ? (*tail)->n_pages : 0};
    bool ok = own_tail(paging, tail, n_tokens % paging->page_tokens != 0, undo);
    uint64_t have = sn_pages_of(paging, n_tokens), need = sn_pages_of(paging, n_tokens + n_new);
    for (; ok && have < need; have++)
        ok = add_page(paging, tail, NULL);
    if (ok)
        return SENNIT_OK;
    sn_table_undo(paging, tail, undo);
    return sn_fail(err, SENNIT_NOMEM, "no memory for a cache page of %zu bytes", paging->data_bytes);
}

void sn_table_extend(const struct sn_paging *paging, struct sn_table **tail, uint64_t n_tokens, uint64_t n_new,
                     struct sn_supply *supply, struct sn_growth *undo)
{
    *undo = (struct sn_growth){.old_tail = *tail, .old_pages = *tail ? (*tail)->n_pages : 0};
    uint64_t have = sn_pages_of(paging, n_tokens), need = sn_pages_of(paging, n_tokens + n_new);
    for (; have < need; have++)
        add_page(paging, tail, supply);
}

void sn_table_settle(const struct sn_paging *paging, struct sn_growth *undo)
{
    if (undo->copied)
        sn_table_drop(paging, undo->old_tail);
    if (undo->old_page)
        sn_page_drop(paging, undo->old_page);
    *undo = (struct sn_growth){0};
}

void sn_table_undo(const struct sn_paging *paging, struct sn_table **tail, struct sn_growth *undo)
{
    if (undo->copied) {
        sn_table_drop(paging, *tail);
        *tail = undo->old_tail; /* with the reference that was kept */
    } else {
        /* New blocks stand on the old one, which gives the row's reference back when they go. */
        while (*tail != undo->old_tail) {
            struct sn_table *block = *tail;
            *tail = block->parent;
            table_pop(paging, block, 0);
            sn_cache_pool_release(paging->pool, block, sizeof *block);
        }
        if (*tail && (*tail)->n_pages > undo->old_pages)
            table_pop(paging, *tail, undo->old_pages);
        if (undo->old_page) {
            sn_page_drop(paging, (*tail)->page[undo->old_pages - 1]);
            (*tail)->page[undo->old_pages - 1] = undo->old_page;
        }
    }
    *undo = (struct sn_growth){0};
}

/* ---- cutting --------------------------------------------------------------------------------- */

struct cut {
    struct sn_table *block; /* the one that the cut row ends in; NULL = nothing is left */
    uint32_t n_pages;       /* of it that stay */
    bool shared;            /* somebody else holds the block, or one above it on our path */
};

static struct cut find_cut(const struct sn_paging *paging, struct sn_table *tail, uint64_t n_tokens, uint64_t keep)
{
    uint64_t have = sn_pages_of(paging, n_tokens), need = sn_pages_of(paging, keep);
    struct cut c = {0};
    if (need == 0)
        return c;
    uint64_t steps = (have - 1) / SN_TABLE_PAGES - (need - 1) / SN_TABLE_PAGES;
    c.block = tail;
    for (; steps > 0; steps--) {
        c.shared |= c.block->n_refs > 1;
        c.block = c.block->parent;
    }
    c.shared |= c.block->n_refs > 1;
    c.n_pages = (uint32_t)((need - 1) % SN_TABLE_PAGES + 1);
    return c;
}

sennit_status sn_table_cut_prepare(const struct sn_paging *paging, const struct sn_table *tail, uint64_t n_tokens,
                                   uint64_t keep, struct sn_table **spare, struct sennit_error *err)
{
    *spare = NULL;
    struct cut c = find_cut(paging, (struct sn_table *)(uintptr_t)tail, n_tokens, keep);
    bool needed = c.block && ((c.shared && c.n_pages < c.block->n_pages) || paging->pool->hostile);
    if (!needed)
        return SENNIT_OK;
    *spare = table_new(paging, NULL);
    if (!*spare)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a page table block");
    return SENNIT_OK;
}

void sn_table_cut(const struct sn_paging *paging, struct sn_table **tail, uint64_t n_tokens, uint64_t keep,
                  struct sn_table *spare)
{
    struct cut c = find_cut(paging, *tail, n_tokens, keep);
    struct sn_table *old = *tail;
    if (spare) {
        table_share(spare, c.block, c.n_pages);
        *tail = spare;
        sn_table_drop(paging, old);
        return;
    }
    sn_table_ref(c.block);
    sn_table_drop(paging, old);
    if (c.block)
        table_pop(paging, c.block, c.n_pages);
    *tail = c.block;
}

void sn_table_spare_free(const struct sn_paging *paging, struct sn_table *spare)
{
    sn_cache_pool_release(paging->pool, spare, sizeof *spare);
}
