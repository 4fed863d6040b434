#include "cache/page_list.h"

#include <assert.h>

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

uint64_t sn_list_bytes(uint32_t cap)
{
    return sizeof(struct sn_page_list) + (uint64_t)cap * sizeof(struct sn_page *);
}

uint64_t sn_listed_bytes(const struct sn_listing *g, uint64_t tokens)
{
    uint64_t pages = sn_min_size(sn_pages_of(g->paging, tokens), (uint64_t)g->n_kept + g->n_window), bytes;
    if (tokens == 0)
        return 0;
    if (__builtin_mul_overflow(pages, sn_page_bytes(g->paging), &bytes) ||
        __builtin_add_overflow(bytes, sn_list_bytes(g->cap), &bytes))
        return UINT64_MAX;
    return bytes;
}

uint64_t sn_list_own_bytes(const struct sn_page_list *list)
{
    if (!list || list->n_refs > 1)
        return 0;
    uint64_t bytes = sn_list_bytes(list->cap);
    for (uint32_t i = 0; i < list->n_pages; i++)
        bytes += list->page[i]->n_refs == 1 ? sn_page_cost(list->page[i]) : 0;
    return bytes;
}

/* ---- lists ---------------------------------------------------------------------------------------------------- */

struct sn_page_list *sn_list_new(const struct sn_listing *g)
{
    struct sn_page_list *list = sn_cache_pool_alloc(g->paging->pool, sn_list_bytes(g->cap));
    if (list)
        *list = (struct sn_page_list){.n_refs = 1, .cap = g->cap, .n_kept = g->n_kept, .first = g->n_kept};
    return list;
}

struct sn_page_list *sn_list_copy(const struct sn_listing *g, const struct sn_page_list *from, uint32_t n_pages)
{
    struct sn_page_list *list = sn_list_new(g);
    if (!list)
        return NULL;
    assert(n_pages <= list->cap);
    list->first = from->first;
    list->start = from->start;
    list->n_pages = n_pages;
    for (uint32_t i = 0; i < n_pages; i++) {
        list->page[i] = from->page[i];
        list->page[i]->n_refs++;
    }
    return list;
}

static void pop(const struct sn_listing *g, struct sn_page_list *list, uint32_t n_pages)
{
    while (list->n_pages > n_pages)
        sn_page_drop(g->paging, list->page[--list->n_pages]);
}

void sn_list_ref(struct sn_page_list *list)
{
    if (list)
        list->n_refs++;
}

void sn_list_drop(const struct sn_listing *g, struct sn_page_list *list)
{
    if (!list)
        return;
    assert(list->n_refs > 0);
    if (--list->n_refs > 0)
        return;
    pop(g, list, 0);
    sn_cache_pool_release(g->paging->pool, list, sn_list_bytes(list->cap));
}

/* The first page after the kept ones leaves the list; the caller has its reference. */
static struct sn_page *take_front(struct sn_page_list *list)
{
    struct sn_page **front = list->page + list->n_kept, *page = *front;
    list->n_pages--;
    list->first++;
    memmove(front, front + 1, (list->n_pages - list->n_kept) * sizeof *front);
    return page;
}

/* Its page lies wholly below `start`. */
static bool front_is_dead(const struct sn_listing *g, const struct sn_page_list *list)
{
    return list->n_pages > list->n_kept && list->first < list->start / g->paging->page_tokens;
}

void sn_list_advance(const struct sn_listing *g, struct sn_page_list *list, uint64_t start)
{
    assert(list->n_refs == 1);
    list->start = start > list->start ? start : list->start;
    while (list->n_pages > (uint64_t)list->n_kept + g->n_window) {
        assert(front_is_dead(g, list));
        sn_page_drop(g->paging, take_front(list));
    }
}

/* ---- growth --------------------------------------------------------------------------------------------------- */

/* The last page is partly filled and will be written. */
static bool own_last(const struct sn_listing *g, struct sn_page_list *list, struct sn_list_growth *undo)
{
    struct sn_page **last = &list->page[list->n_pages - 1];
    if ((*last)->n_refs == 1 && !g->paging->pool->hostile)
        return true;
    struct sn_page *copy = sn_page_new(g->paging);
    if (!copy)
        return false;
    memcpy(copy->data, (*last)->data, g->paging->data_bytes);
    if (undo->copied)
        sn_page_drop(g->paging, *last); /* the copied list's reference; the old one has its own */
    else
        undo->old_page = *last;
    *last = copy;
    return true;
}

static bool own_list(const struct sn_listing *g, struct sn_page_list **list, bool partial,
                     struct sn_list_growth *undo)
{
    bool hostile = g->paging->pool->hostile;
    struct sn_page_list *old = *list;
    if (!old || old->n_refs > 1 || hostile) {
        struct sn_page_list *fresh = old ? sn_list_copy(g, old, old->n_pages) : sn_list_new(g);
        if (!fresh)
            return false;
        undo->copied = true;
        *list = fresh;
    }
    if ((*list)->n_pages == 0 || !(partial || hostile))
        return true;
    return own_last(g, *list, undo);
}

/* supply: where a page comes from that takes no dead one's place; NULL = from memory. */
static bool add_page(const struct sn_listing *g, struct sn_page_list *list, struct sn_supply *supply,
                     struct sn_list_growth *undo)
{
    struct sennit_pool *pool = g->paging->pool;
    struct sn_page *page;
    if (!pool->hostile && front_is_dead(g, list) && list->page[list->n_kept]->n_refs == 1) {
        page = take_front(list);
        undo->n_reused++;
        if (pool->poison)
            memset(page->data, 0xFF, g->paging->data_bytes);
    } else {
        page = supply ? sn_supply_page(supply) : sn_page_new(g->paging);
    }
    if (!page)
        return false;
    assert(list->n_pages < list->cap);
    list->page[list->n_pages++] = page;
    return true;
}

sennit_status sn_list_grow(const struct sn_listing *g, struct sn_page_list **list, uint64_t n_tokens, uint64_t n_new,
                           struct sn_list_growth *undo, struct sennit_error *err)
{
    *undo = (struct sn_list_growth){.old = *list, .old_pages = *list ? (*list)->n_pages : 0};
    bool ok = own_list(g, list, n_tokens % g->paging->page_tokens != 0, undo);
    uint64_t have = sn_pages_of(g->paging, n_tokens), need = sn_pages_of(g->paging, n_tokens + n_new);
    for (; ok && have < need; have++)
        ok = add_page(g, *list, NULL, undo);
    if (ok)
        return SENNIT_OK;
    sn_list_undo(g, list, undo);
    return sn_fail(err, SENNIT_NOMEM, "no memory for a cache page of %zu bytes", g->paging->data_bytes);
}

void sn_list_extend(const struct sn_listing *g, struct sn_page_list *list, uint64_t n_tokens, uint64_t n_new,
                    struct sn_supply *supply, struct sn_list_growth *undo)
{
    *undo = (struct sn_list_growth){.old = list, .old_pages = list->n_pages};
    uint64_t have = sn_pages_of(g->paging, n_tokens), need = sn_pages_of(g->paging, n_tokens + n_new);
    for (; have < need; have++)
        add_page(g, list, supply, undo);
}

void sn_list_settle(const struct sn_listing *g, struct sn_list_growth *undo)
{
    if (undo->copied)
        sn_list_drop(g, undo->old);
    if (undo->old_page)
        sn_page_drop(g->paging, undo->old_page);
    *undo = (struct sn_list_growth){0};
}

/* The dead pages that were used again are the first that were added: back to the front, in their order. */
static void give_back(struct sn_page_list *list, uint32_t n)
{
    for (struct sn_page **front = list->page + list->n_kept; n > 0; n--) {
        struct sn_page *last = list->page[list->n_pages - 1];
        memmove(front + 1, front, (list->n_pages - 1 - list->n_kept) * sizeof *front);
        *front = last;
        list->first--;
    }
}

void sn_list_undo(const struct sn_listing *g, struct sn_page_list **list, struct sn_list_growth *undo)
{
    if (undo->copied || !undo->old) {
        /* With no copy, *list is still the NULL that it was. */
        if (undo->copied)
            sn_list_drop(g, *list);
        *list = undo->old; /* with the reference that was kept */
    } else {
        pop(g, *list, undo->old_pages);
        give_back(*list, undo->n_reused);
        if (undo->old_page) {
            struct sn_page **last = &(*list)->page[undo->old_pages - 1];
            sn_page_drop(g->paging, *last);
            *last = undo->old_page;
        }
    }
    *undo = (struct sn_list_growth){0};
}

/* ---- cutting -------------------------------------------------------------------------------------------------- */

/* Pages of the list that a row of `keep` tokens still has. */
static uint32_t pages_left(const struct sn_listing *g, const struct sn_page_list *list, uint64_t keep)
{
    uint64_t pages = sn_pages_of(g->paging, keep);
    if (pages <= list->n_kept)
        return (uint32_t)pages;
    assert(pages >= list->first);
    return (uint32_t)(list->n_kept + (pages - list->first));
}

sennit_status sn_list_cut_prepare(const struct sn_listing *g, const struct sn_page_list *list, uint64_t keep,
                                  struct sn_page_list **spare, struct sennit_error *err)
{
    *spare = NULL;
    if (!list || keep == 0)
        return SENNIT_OK;
    uint32_t left = pages_left(g, list, keep);
    bool needed = (list->n_refs > 1 && left < list->n_pages) || g->paging->pool->hostile;
    if (!needed)
        return SENNIT_OK;
    *spare = sn_list_copy(g, list, left);
    if (!*spare)
        return sn_fail(err, SENNIT_NOMEM, "no memory for a list of pages");
    return SENNIT_OK;
}

void sn_list_cut(const struct sn_listing *g, struct sn_page_list **list, uint64_t keep, struct sn_page_list *spare)
{
    if (spare || keep == 0) {
        sn_list_drop(g, *list);
        *list = spare;
        return;
    }
    uint32_t left = *list ? pages_left(g, *list, keep) : 0;
    if (*list && left < (*list)->n_pages)
        pop(g, *list, left);
}

void sn_list_spare_free(const struct sn_listing *g, struct sn_page_list *spare)
{
    sn_list_drop(g, spare);
}
