/* Rows that change their form: plain until they have `start` positions, encoded from then on. What the families
 * "delayed" (rows are chains of pages) and "window" over it (rows are lists) have in common: the two forms, which of
 * them a row is in, when the change is due, and how one page becomes another.
 *
 * A row is encoded when its floor is `start`, or from its first token when start is 0. The change is due at the first
 * append of a position >= start: it is made for the whole row, in append_begin, before the step reads anything, so
 * that every query at such a position reads encoded keys, its own included, and none before does. It is due by the
 * row's own count alone.
 *
 * The forms are caches without rows, which lay pages out: what paged.h has for one cache and one of its rows works on
 * a form and a row of ours. */
#ifndef SN_CACHE_FORMS_H
#define SN_CACHE_FORMS_H

#include "cache/paged.h"
#include "cache/recode.h"

struct sn_forms {
    struct sennit_cache *plain;   /* or the only form there is */
    struct sennit_cache *encoded; /* NULL: there is one form */
    uint64_t start;
    struct sennit_cache_config inner; /* what the configuration's `inner` points to */
    bool stepping;                    /* a step begins: rows that are due are read as they are about to be */
};

enum { SN_FORMS_MAX_START = 1 << 30 };

/* geometry: heads, dimensions, types and page_tokens, and bounds if the forms shall know them. delayed: where `start`
 * and `inner` are; the same configuration for family "delayed". Check refuses, with SENNIT_INVALID, what cannot be
 * two forms of one row. */
sennit_status sn_forms_check(const struct sennit_cache_config *geometry, const struct sennit_cache_config *delayed,
                             struct sennit_error *err);
/* "delayed 100 / plain F16 / affine k8 v4 g32 kv 3 k 64 v 64" */
void sn_forms_signature(const struct sennit_cache_config *geometry, const struct sennit_cache_config *delayed,
                        char *out, size_t n_bytes);
/* Of zeros. On failure it is to be released all the same. */
sennit_status sn_forms_init(struct sn_forms *f, struct sennit_pool *pool, const struct sennit_cache_config *geometry,
                            const struct sennit_cache_config *delayed, struct sennit_error *err);
void sn_forms_release(struct sn_forms *f);

/* ---- one row -------------------------------------------------------------------------------------------------- */

static inline bool sn_form_encoded(const struct sn_forms *f, const struct sn_row *row)
{
    return f->encoded && (f->start == 0 || row->floor > 0);
}
/* The next token comes after the change, which has not been made. */
static inline bool sn_form_due(const struct sn_forms *f, const struct sn_row *row)
{
    return f->encoded && !sn_form_encoded(f, row) && row->n_tokens >= f->start;
}
/* The form of what is stored. */
static inline struct sennit_cache *sn_form(const struct sn_forms *f, const struct sn_row *row)
{
    return sn_form_encoded(f, row) ? f->encoded : f->plain;
}
/* The form that the open step, or a donor, reads. */
static inline struct sennit_cache *sn_form_read(const struct sn_forms *f, const struct sn_row *row)
{
    return f->stepping && sn_form_due(f, row) ? f->encoded : sn_form(f, row);
}
uint64_t sn_form_max_append(const struct sn_forms *f, const struct sennit_cache *cache, const struct sn_row *row);
/* A row of that many tokens that was never trimmed: its length and floor. */
struct sn_row sn_form_untrimmed(const struct sn_forms *f, uint64_t tokens);
/* Is `floor` one that a row of that many tokens can have? SENNIT_FORMAT. */
sennit_status sn_form_check_floor(const struct sn_forms *f, const struct sn_row *row, struct sennit_error *err);

/* ---- one cache ------------------------------------------------------------------------------------------------ */

/* What the next token of the costliest row, or of a new one, takes. */
uint64_t sn_forms_bytes_per_token(const struct sn_forms *f, const struct sennit_cache *cache);
/* "F16", "affine k8 v4 g32", or "mixed" when rows are in both forms. */
const char *sn_forms_dtype(const struct sn_forms *f, const struct sennit_cache *cache);
/* SENNIT_RANGE for a span of the step that crosses `start`, or that needs the change where it may not be made: while
 * it is suspended, or in a round that began before. */
sennit_status sn_forms_check_step(const struct sn_forms *f, const struct sennit_cache *cache,
                                  struct sennit_error *err);

/* ---- the change ----------------------------------------------------------------------------------------------- */

/* Scratch for it, in worker 0's; then as recode.h wants it. Between the two the scratch may grow, not shrink. */
sennit_status sn_forms_reserve(const struct sn_forms *f, struct sennit_error *err);
/* That, where anything changes, and the attention's scratch of the open step of `cache`, by the forms that the step
 * reads. */
sennit_status sn_forms_reserve_step(struct sn_forms *f, struct sennit_cache *cache, struct sennit_error *err);
struct sn_recoding sn_forms_recoding(const struct sn_forms *f);

#endif
