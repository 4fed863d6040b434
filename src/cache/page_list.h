/* A row's pages in one list from whose front pages can be dropped: what rows of a window have instead of a chain of
 * table blocks (pages.h). Counted, copied on write; pages are shared between lists like between blocks.
 *
 *     page[0 .. n_kept - 1]   the row's first pages, which never go (fewer while the row is shorter)
 *     page[n_kept .. n_pages - 1]   pages first, first + 1 ... of the row; first >= n_kept
 *
 * A list keeps the last n_window pages, so that the bytes of a row that has once filled its window do not change any
 * more: a page that comes takes the place, and the memory, of one that nobody can see. Positions below `start` that
 * are no kept tokens are dead: no query and no trim reaches them again, whether their page is still there or not, and
 * what a dead page holds means nothing.
 *
 * Invariants:
 *   1. A list is changed only while its count is one; a page only while its count is one and its list's is one.
 *   2. The list of a row of n tokens ends with page ceil(n / page_tokens) - 1; no tokens, no list.
 *   3. Dropped pages lie wholly below `start`. n_pages <= cap.
 *   4. In a hostile pool every grow and every cut works on copies, and no page is used again. */
#ifndef SN_PAGE_LIST_H
#define SN_PAGE_LIST_H

#include "cache/pages.h"

struct sn_page_list {
    uint32_t n_refs, cap, n_kept, n_pages;
    uint64_t first, start;
    struct sn_page *page[]; /* [cap] */
};

/* The geometry that the functions below need. */
struct sn_listing {
    const struct sn_paging *paging;
    uint32_t n_kept, n_window, cap; /* pages */
};

/* Bytes of a list of cap pages; of a row of that many tokens with nothing shared, UINT64_MAX when that does not fit;
 * of a list and its pages that nobody else holds. */
uint64_t sn_list_bytes(uint32_t cap);
uint64_t sn_listed_bytes(const struct sn_listing *g, uint64_t tokens);
uint64_t sn_list_own_bytes(const struct sn_page_list *list);

/* An empty list; NULL when memory is refused. */
struct sn_page_list *sn_list_new(const struct sn_listing *g);
/* A list like `from`, sharing its first n_pages pages, with this geometry's cap; NULL when memory is refused. */
struct sn_page_list *sn_list_copy(const struct sn_listing *g, const struct sn_page_list *from, uint32_t n_pages);
void sn_list_ref(struct sn_page_list *list);                              /* NULL is fine */
void sn_list_drop(const struct sn_listing *g, struct sn_page_list *list); /* NULL is fine */

/* Page `index` of the row, which must be there. */
static inline struct sn_page *sn_list_page(const struct sn_page_list *list, uint64_t index)
{
    return list->page[index < list->n_kept ? index : list->n_kept + (index - list->first)];
}

/* Makes positions n_tokens .. n_tokens + n_new - 1 writable, as sn_table_grow does; n_new at most what cap was made
 * for. Then either settle or undo: the list, the live pages and the bytes are as before. */
struct sn_list_growth {
    struct sn_page_list *old; /* before */
    bool copied;              /* old was shared, or NULL: the row's reference to it is held here */
    struct sn_page *old_page; /* replaced by a copy within old: its reference is held here; else NULL */
    uint32_t old_pages;       /* pages of old before */
    uint32_t n_reused;        /* dead pages that moved from the front to the end */
};
sennit_status sn_list_grow(const struct sn_listing *g, struct sn_page_list **list, uint64_t n_tokens, uint64_t n_new,
                           struct sn_list_growth *undo, struct sennit_error *err);
/* As sn_list_grow, of a list that is the row's alone and whose last page is, from a supply: cannot fail. */
void sn_list_extend(const struct sn_listing *g, struct sn_page_list *list, uint64_t n_tokens, uint64_t n_new,
                    struct sn_supply *supply, struct sn_list_growth *undo);
void sn_list_settle(const struct sn_listing *g, struct sn_list_growth *undo);
void sn_list_undo(const struct sn_listing *g, struct sn_page_list **list, struct sn_list_growth *undo);

/* Positions below `start` are dead from now on; pages beyond the last n_window go. The list is the row's
 * alone. */
void sn_list_advance(const struct sn_listing *g, struct sn_page_list *list, uint64_t start);

/* Cuts back to `keep` tokens, in two phases as sn_table_cut does. `keep` must be at or above `start`, unless all
 * pages are there. */
sennit_status sn_list_cut_prepare(const struct sn_listing *g, const struct sn_page_list *list, uint64_t keep,
                                  struct sn_page_list **spare, struct sennit_error *err);
void sn_list_cut(const struct sn_listing *g, struct sn_page_list **list, uint64_t keep, struct sn_page_list *spare);
void sn_list_spare_free(const struct sn_listing *g, struct sn_page_list *spare); /* NULL is fine */

#endif
