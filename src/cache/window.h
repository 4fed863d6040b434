/* Family "window": a query at position p sees p - W + 1 .. p (exactly W keys) and the first n_kept tokens of its row,
 * at their own positions. Pages are laid out, written and read by the inner family; rows are lists from whose front
 * pages go (page_list.h). Over "delayed" a row's pages, kept ones too, are plain until it has `start` tokens, and
 * then encoded (forms.h).
 *
 * After n tokens a row can give what a row of n - slack tokens sees next: positions n - slack - W + 1 and on. That
 * bound, `start`, never falls, and nothing moves it while a verify round is open. A trim to m tokens is exact when
 * what a query at m sees is still there, m - W + 1 >= start (or nothing but kept tokens lies before it), and refused
 * otherwise: slack is used up by trims and comes back with appends. `start` counts tokens, not pages, so that no page
 * size, chunk or company changes what is refused. */
#ifndef SN_CACHE_WINDOW_H
#define SN_CACHE_WINDOW_H

#include "cache/forms.h"

enum { SN_WINDOW_SLACK = 64 }; /* where the configuration says 0 */

/* What becomes of one row in the open step. */
struct sn_window_change {
    bool due;                   /* the supply is there for the row's change of form, which has not been made */
    struct sn_supply supply;    /* else empty */
    struct sn_list_growth undo; /* of a row that is not due */
};

/* How rows of one form are stored and read. */
struct sn_window_form {
    struct sn_listing listing;
    struct sn_attend_ops attend; /* the form's, over lists */
};

struct sn_window {
    struct sennit_cache base;               /* first */
    struct sennit_cache_config inner_field; /* what config.inner points to */
    struct sn_forms forms;                  /* one, or two over "delayed" */
    struct sn_window_form plain, encoded;   /* of each; bounds of their listings are equal */
    uint64_t reach;                         /* W + slack - 1: what stays behind a row's end */
    struct sn_window_change *changes;       /* [cap_changes], one per span of the open step */
    uint32_t cap_changes;
};

static inline const struct sn_window *sn_window_of(const struct sennit_cache *cache)
{
    return (const struct sn_window *)cache;
}

#endif
