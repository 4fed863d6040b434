#include "cache/recode.h"

#include <assert.h>

/* ---- pages ---------------------------------------------------------------------------------------------------- */

/* Filled positions of page `index` of a row. */
static size_t slots_of(const struct sn_recoding *r, uint64_t n_tokens, uint64_t index)
{
    uint64_t left = n_tokens - index * r->to->page_tokens;
    return (size_t)(left < r->to->page_tokens ? left : r->to->page_tokens);
}

/* The page's memory as one of the new form; what it held is lost. */
static void cut_page(const struct sn_recoding *r, struct sn_page **page)
{
    struct sennit_pool *pool = r->to->pool;
    size_t old_bytes = (size_t)sn_page_cost(*page), new_bytes = sizeof **page + r->to->data_bytes;
    if (new_bytes < old_bytes) {
        struct sn_page *smaller = sn_cache_pool_realloc(pool, *page, old_bytes, new_bytes);
        if (smaller) {
            smaller->data_bytes = r->to->data_bytes;
            *page = smaller;
        }
    }
    if (pool->poison)
        memset((*page)->data, 0xFF, r->to->data_bytes);
}

/* Puts the page's new form in its place. `ours`: nobody else reaches the page, and its memory goes into the supply.
 * Otherwise the caller's reference to it remains the caller's. */
static void recode_page(const struct sn_recoding *r, struct sn_page **place, size_t n_slots, bool ours,
                        struct sn_supply *supply)
{
    struct sn_page *old = *place, *page = sn_supply_page(supply);
    r->page(r->ctx, old->data, n_slots, page->data);
    *place = page;
    if (ours) {
        cut_page(r, &old);
        sn_supply_put(supply, old);
    }
}

/* A page in a block or list that is the row's alone. */
static void recode_own(const struct sn_recoding *r, struct sn_page **place, size_t n_slots, struct sn_supply *supply)
{
    struct sn_page *old = *place;
    bool ours = old->n_refs == 1;
    recode_page(r, place, n_slots, ours, supply);
    if (!ours)
        sn_page_drop(r->from, old);
}

/* Pages for those that cannot make room, and for what comes after; at least one for those that can. */
static uint64_t pages_needed(const struct sn_recoding *r, uint64_t n_shared, bool any_own, uint64_t n_tokens,
                             uint64_t n_new)
{
    uint64_t after = sn_pages_of(r->to, n_tokens + n_new) - sn_pages_of(r->to, n_tokens);
    return n_shared + (after == 0 && any_own ? 1 : after);
}

/* ---- chains --------------------------------------------------------------------------------------------------- */

/* Is the block, reached by way of blocks that are the row's alone, the row's alone? */
static bool own_block(const struct sn_recoding *r, const struct sn_table *block)
{
    return block && block->n_refs == 1 && !r->to->pool->hostile;
}

struct sn_need sn_table_recode_need(const struct sn_recoding *r, const struct sn_table *tail, uint64_t n_tokens,
                                    uint64_t n_new)
{
    struct sn_need need = {0};
    uint64_t n_shared = 0;
    bool any_own = false;
    for (; own_block(r, tail); tail = tail->parent)
        for (uint32_t i = 0; i < tail->n_pages; i++) {
            n_shared += tail->page[i]->n_refs > 1;
            any_own |= tail->page[i]->n_refs == 1;
        }
    for (; tail; tail = tail->parent) {
        n_shared += tail->n_pages;
        need.n_blocks++;
    }
    need.n_pages = pages_needed(r, n_shared, any_own, n_tokens, n_new);
    need.n_blocks += sn_div_up(sn_pages_of(r->to, n_tokens + n_new), SN_TABLE_PAGES) -
                     sn_div_up(sn_pages_of(r->to, n_tokens), SN_TABLE_PAGES);
    return need;
}

/* A block like this one, its pages in the new form, and nothing before it. */
static struct sn_table *recoded_block(const struct sn_recoding *r, const struct sn_table *old, uint64_t first_page,
                                      uint64_t n_tokens, struct sn_supply *supply)
{
    struct sn_table *block = sn_supply_block(supply, NULL);
    block->n_pages = old->n_pages;
    for (uint32_t i = 0; i < old->n_pages; i++) {
        block->page[i] = old->page[i];
        recode_page(r, &block->page[i], slots_of(r, n_tokens, first_page + i), false, supply);
    }
    return block;
}

void sn_table_recode(const struct sn_recoding *r, struct sn_table **tail, uint64_t n_tokens, struct sn_supply *supply)
{
    uint64_t first_page = sn_pages_of(r->from, n_tokens);
    for (; own_block(r, *tail); tail = &(*tail)->parent) {
        first_page -= (*tail)->n_pages;
        for (uint32_t i = 0; i < (*tail)->n_pages; i++)
            recode_own(r, &(*tail)->page[i], slots_of(r, n_tokens, first_page + i), supply);
    }
    struct sn_table *shared = *tail;
    for (const struct sn_table *old = shared; old; old = old->parent) {
        first_page -= old->n_pages;
        *tail = recoded_block(r, old, first_page, n_tokens, supply);
        tail = &(*tail)->parent;
    }
    sn_table_drop(r->from, shared);
    assert(first_page == 0);
}

/* ---- lists ---------------------------------------------------------------------------------------------------- */

static bool own_list(const struct sn_recoding *r, const struct sn_page_list *list)
{
    return list->n_refs == 1 && !r->to->pool->hostile;
}

struct sn_need sn_list_recode_need(const struct sn_recoding *r, const struct sn_page_list *list, uint64_t n_tokens,
                                   uint64_t n_new)
{
    struct sn_need need = {.list = !own_list(r, list)};
    uint64_t n_shared = 0;
    bool any_own = false;
    for (uint32_t i = 0; i < list->n_pages; i++) {
        bool shared = need.list || list->page[i]->n_refs > 1;
        n_shared += shared;
        any_own |= !shared;
    }
    need.n_pages = pages_needed(r, n_shared, any_own, n_tokens, n_new);
    return need;
}

/* A list with this one's pages: it has a reference of its own to each. */
static struct sn_page_list *take_list(const struct sn_page_list *old, struct sn_supply *supply)
{
    struct sn_page_list *list = supply->list;
    supply->list = NULL;
    assert(list && list->cap >= old->n_pages && list->n_kept == old->n_kept);
    list->first = old->first;
    list->start = old->start;
    list->n_pages = old->n_pages;
    for (uint32_t i = 0; i < list->n_pages; i++) {
        list->page[i] = old->page[i];
        list->page[i]->n_refs++;
    }
    return list;
}

void sn_list_recode(const struct sn_recoding *r, const struct sn_listing *g, struct sn_page_list **place,
                    uint64_t n_tokens, struct sn_supply *supply)
{
    struct sn_page_list *list = *place, *old = NULL;
    if (!own_list(r, list)) {
        old = list;
        *place = list = take_list(old, supply);
    }
    for (uint32_t i = 0; i < list->n_pages; i++) {
        uint64_t index = i < list->n_kept ? i : list->first + (i - list->n_kept);
        bool dead = i >= list->n_kept && index < list->start / r->to->page_tokens;
        if (dead && list->page[i]->n_refs == 1)
            cut_page(r, &list->page[i]);
        else
            recode_own(r, &list->page[i], dead ? 0 : slots_of(r, n_tokens, index), supply);
    }
    if (old)
        sn_list_drop(g, old);
}
