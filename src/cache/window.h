/* Family "window": a query at position p sees p - W + 1 .. p (exactly W keys) and the first n_kept tokens of its row,
 * at their own positions. Pages are laid out, written and read by the inner family; rows are lists from whose front
 * pages go (page_list.h).
 *
 * After n tokens a row can give what a row of n - slack tokens sees next: positions n - slack - W + 1 and on. That
 * bound, `start`, never falls, and nothing moves it while a verify round is open. A trim to m tokens is exact when
 * what a query at m sees is still there, m - W + 1 >= start (or nothing but kept tokens lies before it), and refused
 * otherwise: slack is used up by trims and comes back with appends. `start` counts tokens, not pages, so that no page
 * size, chunk or company changes what is refused. */
#ifndef SN_CACHE_WINDOW_H
#define SN_CACHE_WINDOW_H

#include "cache/page_list.h"
#include "cache/paged.h"

enum { SN_WINDOW_SLACK = 64 }; /* where the configuration says 0 */

struct sn_window {
    struct sennit_cache base;               /* first */
    struct sennit_cache_config inner_field; /* what config.inner points to */
    struct sennit_cache *inner;             /* without rows: the layout of pages */
    struct sn_attend_ops attend;            /* the inner family's, over lists */
    struct sn_listing listing;
    uint64_t reach;              /* W + slack - 1: what stays behind a row's end */
    struct sn_list_growth *undo; /* [cap_undo], one per span of the open step */
    uint32_t cap_undo;
};

static inline const struct sn_window *sn_window_of(const struct sennit_cache *cache)
{
    return (const struct sn_window *)cache;
}

#endif
