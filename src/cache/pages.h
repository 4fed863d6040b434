/* Pages and page tables: counted, copied on write. Shared by every family whose storage grows with
 * the sequence.
 *
 * A page holds a fixed number of positions of one row, counted from the row's own start: the cache's page_tokens, a
 * power of two up to 64, so that a chunk of 64 keys is a whole number of pages. A row's page
 * table is a chain of blocks of SN_TABLE_PAGES page pointers, newest first:
 *
 *      row.store --> [block 1: pages 62 .. 70] --> [block 0: pages 0 .. 61]     parent pointers,
 * each one reference
 *
 * so that merge, filter, extract, clone and capture copy one pointer per row, and a write after
 * that copies at most one block and one page however long the row is.
 *
 * Invariants:
 *   1. A block is changed only while its count is one; a page only while its count is one and its
 * block's is one.
 *   2. Only the first block of a chain may be partly filled; a row of n tokens has exactly ceil(n /
 * page_tokens) pages.
 *   3. In a hostile pool (pool.h) every grow and every cut works on copies, as if all were shared.
 *   4. Counts are plain integers: all caches of a pool belong to one thread at a time. */
#ifndef SN_PAGES_H
#define SN_PAGES_H

#include "cache/pool.h"

enum { SN_MAX_PAGE_TOKENS = 64, SN_TABLE_PAGES = 62 };

struct sn_page {
    _Alignas(64) uint32_t n_refs;
    size_t data_bytes;           /* what was allocated; at least what the row's form of pages needs */
    struct sn_page *next;        /* within a struct sn_supply */
    _Alignas(64) uint8_t data[]; /* 64-byte aligned */
};

struct sn_table {
    struct sn_table *parent;
    uint32_t n_refs, n_pages;
    struct sn_page *page[SN_TABLE_PAGES];
};

/* The geometry that the functions below need. */
struct sn_paging {
    struct sennit_pool *pool;
    size_t data_bytes; /* of a page's data */
    uint32_t page_tokens;
};

/* A configuration's page size: page_tokens, 64 for 0. */
static inline uint32_t sn_page_tokens(const struct sennit_cache_config *config)
{
    return config->page_tokens ? config->page_tokens : SN_MAX_PAGE_TOKENS;
}
/* SENNIT_INVALID unless it is 0, 1, 2, 4, 8, 16, 32 or 64. */
sennit_status sn_page_tokens_check(const struct sennit_cache_config *config, struct sennit_error *err);
/* Appends what tells stores of other page sizes apart to a signature: nothing at 64, else " / p16". */
void sn_page_tokens_sign(const struct sennit_cache_config *config, char *signature, size_t n_bytes);

static inline uint64_t sn_pages_of(const struct sn_paging *paging, uint64_t tokens)
{
    return tokens / paging->page_tokens + (tokens % paging->page_tokens != 0);
}

/* One page: NULL when memory is refused; with one reference. Dropping the last one releases it. */
struct sn_page *sn_page_new(const struct sn_paging *paging);
void sn_page_drop(const struct sn_paging *paging, struct sn_page *page);
/* What this one costs, whatever form its row has now. */
static inline uint64_t sn_page_cost(const struct sn_page *page)
{
    return sizeof *page + page->data_bytes;
}

/* Bytes that a row of that many tokens takes when nothing is shared, as the allocator counts;
 * UINT64_MAX when it does not fit 64 bits. */
uint64_t sn_paged_bytes(const struct sn_paging *paging, uint64_t tokens);
/* What one page, and one table block, cost. */
uint64_t sn_page_bytes(const struct sn_paging *paging);
uint64_t sn_table_bytes(void);
/* Bytes of a chain that nobody else holds. */
uint64_t sn_table_own_bytes(const struct sn_table *tail);

void sn_table_ref(struct sn_table *tail);                                  /* NULL is fine */
void sn_table_drop(const struct sn_paging *paging, struct sn_table *tail); /* NULL is fine */

/* Page `index` of a row with n_pages pages. */
struct sn_page *sn_table_page(const struct sn_table *tail, uint64_t n_pages, uint64_t index);
/* All pages in order into out[n_pages]. */
void sn_table_list(const struct sn_table *tail, uint64_t n_pages, struct sn_page **out);

/* Makes positions n_tokens .. n_tokens + n_new - 1 writable: copies what is shared, adds what is
 * missing. Then either settle (keep it) or undo (the chain and the bytes are as before). On failure
 * nothing has changed. */
struct sn_growth {
    struct sn_table *old_tail; /* before */
    bool copied;               /* old_tail was shared: the row's reference to it is held here */
    uint32_t old_pages;        /* pages of old_tail before */
    struct sn_page *old_page;  /* replaced by a copy within old_tail: its reference is held here; else NULL */
};
sennit_status sn_table_grow(const struct sn_paging *paging, struct sn_table **tail, uint64_t n_tokens, uint64_t n_new,
                            struct sn_growth *undo, struct sennit_error *err);
void sn_table_settle(const struct sn_paging *paging, struct sn_growth *undo);
void sn_table_undo(const struct sn_paging *paging, struct sn_table **tail, struct sn_growth *undo);

/* Pages and blocks taken in advance, for what must not fail once it has begun. Zero is empty. */
struct sn_page_list;
struct sn_supply {
    struct sn_page *pages;
    struct sn_table *blocks;
    struct sn_page_list *list; /* of a row whose pages are in a list (page_list.h) */
};
/* That many pages and blocks; false, and an empty supply, when memory is refused. */
bool sn_supply_fill(const struct sn_paging *paging, uint64_t n_pages, uint64_t n_blocks, struct sn_supply *supply);
/* There must be one. A block takes over the caller's reference to parent. */
struct sn_page *sn_supply_page(struct sn_supply *supply);
struct sn_table *sn_supply_block(struct sn_supply *supply, struct sn_table *parent);
void sn_supply_put(struct sn_supply *supply, struct sn_page *page);
/* Gives pages and blocks back; list must be NULL. */
void sn_supply_drop(const struct sn_paging *paging, struct sn_supply *supply);
/* As sn_table_grow, of a chain that is the row's alone in its first block and last page, from a supply that holds
 * what is missing: cannot fail. */
void sn_table_extend(const struct sn_paging *paging, struct sn_table **tail, uint64_t n_tokens, uint64_t n_new,
                     struct sn_supply *supply, struct sn_growth *undo);

/* Cuts a row of n_tokens back to `keep` tokens in two phases. *spare: a block that cut will need
 * because the one it ends in is shared; NULL when it needs none, which is so for every cut back to
 * where a grown row stood. */
sennit_status sn_table_cut_prepare(const struct sn_paging *paging, const struct sn_table *tail, uint64_t n_tokens,
                                   uint64_t keep, struct sn_table **spare, struct sennit_error *err);
void sn_table_cut(const struct sn_paging *paging, struct sn_table **tail, uint64_t n_tokens, uint64_t keep,
                  struct sn_table *spare);
void sn_table_spare_free(const struct sn_paging *paging, struct sn_table *spare); /* NULL is fine */

#endif
