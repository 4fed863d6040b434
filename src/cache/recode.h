/* Changing the form of a row's pages: each is written anew, smaller, from what it holds, for chains (pages.h) and for
 * lists (page_list.h). In two phases, so that many rows change together or not at all: need and fill take what memory
 * there has to be, recode then cannot fail.
 *
 * A page that the row alone holds makes room for the next one: its memory is cut to the new size and takes the next
 * page's data, so that a row that owns its pages needs one new page in all. Pages that somebody else holds too, and
 * what points to them, stay as they are, and the row gets new ones.
 *
 * An allocator that refuses to cut a block leaves a page larger than its form needs; the page knows its size
 * (sn_page.data_bytes), and the books count it. */
#ifndef SN_CACHE_RECODE_H
#define SN_CACHE_RECODE_H

#include "cache/page_list.h"

/* From which form to which, page_tokens being equal, and how: the first n_slots positions of a page. */
struct sn_recoding {
    const struct sn_paging *from, *to; /* to->data_bytes <= from->data_bytes */
    void (*page)(const void *ctx, const uint8_t *from, size_t n_slots, uint8_t *to);
    const void *ctx;
};

/* What recoding takes, and, after it, an extension by n_new tokens. */
struct sn_need {
    uint64_t n_pages, n_blocks;
    bool list;
};
struct sn_need sn_table_recode_need(const struct sn_recoding *r, const struct sn_table *tail, uint64_t n_tokens,
                                    uint64_t n_new);
struct sn_need sn_list_recode_need(const struct sn_recoding *r, const struct sn_page_list *list, uint64_t n_tokens,
                                   uint64_t n_new);

/* The row's pages in the new form. The supply has what was needed; what is left for the extension stays in it. Pages
 * of a list that lie wholly below its start are not read. */
void sn_table_recode(const struct sn_recoding *r, struct sn_table **tail, uint64_t n_tokens,
                     struct sn_supply *supply);
void sn_list_recode(const struct sn_recoding *r, const struct sn_listing *g, struct sn_page_list **list,
                    uint64_t n_tokens, struct sn_supply *supply);

#endif
