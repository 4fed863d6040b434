/* Scheduling decisions as pure functions: no clocks, no memory, no caches. */
#ifndef SN_POLICY_H
#define SN_POLICY_H

#include "base/base.h"

/* What a row could put into the next step. */
struct sn_want {
    uint64_t n_pending; /* tokens that are known and not yet in the state; >= 1 */
    uint64_t n_max;     /* most that it takes before a boundary (max_append_tokens, a group's snapshot); >= 1 */
    bool all_logits;    /* each of its tokens needs logits; else at most the last one does */
};

/* How many tokens of each row the next step takes. n_tokens[i] may be 0.
 * Rows with one pending token come first: a long prompt never holds up a running answer. Then prompts, in the order
 * of rows, each at most `chunk`, until step_tokens are used. Every row is sure of one row of logits; the rows of
 * all_logits share what is left of logit_rows (at least n_rows), which cuts their own spans and nobody else's. */
void sn_form_spans(const struct sn_want *rows, uint32_t n_rows, uint32_t chunk, uint32_t step_tokens,
                   uint32_t logit_rows, uint32_t *n_tokens);

enum sn_admission {
    SN_ADMIT,  /* now */
    SN_WAIT,   /* when rows have left */
    SN_NEVER   /* needs more than the whole budget */
};
/* `reserved`: promised to running rows and kept sessions. */
enum sn_admission sn_admit(uint64_t need, uint64_t reserved, uint64_t budget, uint32_t n_rows, uint32_t max_rows);

#endif
