/* A cache family: one const table, one file. cache.c owns what is common to all: argument checks,
 * the state machine, the list of rows, all-or-nothing over several rows. A family owns what one row
 * stores and how a step reads it.
 *
 * Invariants of every cache, between calls:
 *   1. rows[0 .. n_rows - 1] are live, each with its own reference to its store; spare[] has the
 * same capacity.
 *   2. A round is open: n_window of each row = tokens appended since begin. Otherwise n_window = 0.
 *   3. A step is open: step.spans holds checked spans; rows' n_tokens are still those from before
 * the step.
 *
 *            begin            plan               commit, abort
 *   closed ---------> open ----------> planned ---------------> closed        (step)
 *   closed -- spec_round_begin --> open -- commit, rollback --> closed        (round; steps open
 * and close inside it)
 */
#ifndef SN_FAMILY_H
#define SN_FAMILY_H

#include "cache/lineage.h"
#include "cache/pool.h"

/* Attention constants of docs/numerics.md: part of the numbers. */
enum { SN_CHUNK_KEYS = 64, SN_SEGMENT_CHUNKS = 4, SN_SEGMENT_KEYS = SN_CHUNK_KEYS * SN_SEGMENT_CHUNKS };

struct sn_row {
    uint64_t n_tokens; /* committed by append_commit, an open round's window included */
    uint64_t floor;    /* minimum reusable offset */
    uint64_t n_window; /* tokens of the open round */
    uint64_t n_last;   /* tokens of the last append that are still there: how far `bypass` reaches */
    void *store;       /* the family's; NULL for a row without tokens, if the family likes */
    bool marked;       /* scratch of duplicate checks */
};

/* What the attention driver (attend.h) goes by: how many keys there are to attend to, of what size, and which of them
 * a query sees. Filled from the configuration; a family's init may change it. */
struct sn_attend_shape {
    uint32_t n_kv_heads, d_k, d_v;
    uint64_t window; /* a query at position p sees p - window + 1 .. p; 0 = everything before it */
    uint64_t n_kept; /* and positions 0 .. n_kept - 1, window or not */
    uint32_t
        max_selected; /* > 0: each query token sees the positions that the family selects for it, at most so many */
};

struct sn_cache_step {
    bool open, planned;
    uint32_t n_heads;           /* query heads */
    const uint32_t *part_heads; /* within append_begin: of each part, or NULL: n_heads for every one */
    struct sennit_span *spans;
    uint32_t n_spans, cap_spans;
    struct sennit_attend_inputs in;
};

struct sn_attend_ops;
struct sennit_cache {
    const struct sn_family *ops;
    struct sennit_pool *pool;
    struct sennit_cache_config config; /* family: points to ops->name; max_span >= 1; max_tokens never 0 */
    struct sn_lineage *lineage; /* shared with all caches made like this one: who they are, and the signature */
    struct sn_attend_shape shape;
    struct sn_row *rows, *spare; /* [cap_rows] each, one allocation each */
    uint32_t n_rows, cap_rows;
    bool round_open;
    bool prefill_open; /* between begin_prefill and end_prefill; of this cache, not of its rows */
    struct sn_cache_step step;
};

/* One row of a donor attention: q [n_heads][n_q][d_k], mask NULL or [n_q][width], out
 * [n_heads][n_q][d_v]. */
struct sn_donor_args {
    const float *q;
    uint32_t n_heads, n_q;
    float scale;
    const uint8_t *mask;
    uint64_t width;
    float *out;
};

/* "may be NULL" says what NULL means; every other slot is mandatory. Functions that return a status
 * leave everything unchanged when they fail. */
struct sn_family {
    const char *name;
    uint32_t takes;      /* SN_CONFIG_*: what `check` allows to be set (sn_config_only) */
    size_t object_bytes; /* size of the family's struct, whose first member is a struct sennit_cache */
    const struct sennit_cache_config *example; /* a configuration of usual size; "donor": without its source */
    bool trimmable;                            /* trim_* are present; exact down to the row's floor, or refused */
    bool no_planes;         /* there are no planes of keys and values: donors are SENNIT_UNSUPPORTED */
    bool changes_precision; /* max_append_tokens, floors and prefill maintenance are not those of a plain row */
    bool bounded_span;      /* step_begin refuses a span above max_span (in a round: or round_depth) */
    bool copies_rows;       /* row_copy copies tokens; false: references */
    const struct sn_attend_ops *attend; /* of the attention driver; NULL: its functions are not used */

    /* -- one cache -- */
    sennit_status (*check)(const struct sennit_cache_config *config, struct sennit_error *err);
    /* Before init, of a cache that is not made like another one. May be NULL: init calls sn_cache_sign. */
    void (*signature)(const struct sennit_cache_config *config, char *out, size_t n_bytes);
    /* Fills the family's own fields, which are zero, from cache->config. May be NULL: there are
     * none. */
    sennit_status (*init)(struct sennit_cache *cache, struct sennit_error *err);
    /* Before init, for a cache made like another one: what they have in common beyond the configuration. Cannot fail.
     * May be NULL: nothing. */
    void (*inherit)(struct sennit_cache *cache, const struct sennit_cache *like);
    /* Releases the family's own fields, not rows, of a cache that init may have left half built.
     * May be NULL. */
    void (*release)(struct sennit_cache *cache);

    /* -- bytes -- */
    uint64_t (*storage_bytes)(const struct sennit_cache *cache, uint64_t tokens); /* saturates at UINT64_MAX */
    uint64_t (*reserve_bytes)(const struct sennit_cache *cache); /* from max_span, round_depth, n_snapshots */
    uint64_t (*bytes_per_token)(const struct sennit_cache *cache);
    uint64_t (*row_bytes)(const struct sennit_cache *cache, const struct sn_row *row); /* unshared */

    /* -- questions -- */
    uint64_t (*left_pad)(const struct sennit_cache *cache, uint32_t row);   /* may be NULL: 0 */
    uint64_t (*max_append)(const struct sennit_cache *cache, uint32_t row); /* may be NULL: no boundary */
    /* May be NULL: any length from the row's floor to its count. */
    bool (*can_publish)(const struct sennit_cache *cache, uint32_t row, uint64_t tokens);
    uint32_t (*composed)(const struct sennit_cache *cache,
                         const struct sennit_cache_part **parts); /* may be NULL: leaf */

    /* -- rows. `to` is a cache of equal signature; dst is zero and gets a store of its own (a
     * reference or a copy). -- */
    sennit_status (*row_copy)(struct sennit_cache *to, const struct sn_row *src, struct sn_row *dst,
                              struct sennit_error *err);
    void (*row_drop)(struct sennit_cache *cache,
                     struct sn_row *row); /* gives the store back; the rest is the caller's */
    /* For stores that all rows of a cache share. All may be NULL. merge, in place of row_copy (which then only makes
     * caches of one row): the stores of rows[0 .. n_rows - 1], whose lengths are set, of a cache that counts no rows
     * yet. snapshot: references to all stores of `from`, in rows that are set but for them; NULL: merge_rows of one
     * source. filtered, trimmed: the rows that are left, or shorter, are in place; neither can fail. */
    sennit_status (*merge)(struct sennit_cache *cache, const struct sennit_cache *const *sources, uint32_t n_sources,
                           uint32_t n_rows, struct sennit_error *err);
    void (*snapshot)(struct sennit_cache *to, const struct sennit_cache *from);
    void (*filtered)(struct sennit_cache *cache);
    void (*trimmed)(struct sennit_cache *cache);

    /* -- a cache made of whole caches, which have its rows as their own. NULL, both: rows are stored as above. Such a
     * cache has a merge too. take_row, into a cache without rows: a copy of the source's row in every part, or a
     * fresh one where source is NULL. keep_rows leaves the listed ones in that order, which are checked; keep NULL:
     * the first n_keep. row_copy is then not used, and row_drop has nothing to do. -- */
    sennit_status (*take_row)(struct sennit_cache *cache, const struct sennit_cache *source, uint32_t row,
                              struct sennit_error *err);
    void (*keep_rows)(struct sennit_cache *cache, const uint32_t *keep, uint32_t n_keep);

    /* May this one of a trimmable family be trimmed? May be NULL: yes. */
    bool (*can_trim)(const struct sennit_cache *cache);
    /* -- trim, in two phases so that many rows change together or not at all. NULL where not
     * trimmable. prepare reserves what apply will need (*spare, NULL if nothing); apply consumes it
     * and cannot fail; discard gives it back. prepare refuses, with SENNIT_RANGE, what the row can no
     * longer give. After an append in the open round, prepare for a
     * length at or above the round's start cannot fail. -- */
    sennit_status (*trim_prepare)(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                  void **spare, struct sennit_error *err);
    void (*trim_apply)(struct sennit_cache *cache, struct sn_row *row, uint64_t n_tokens, void *spare);
    void (*trim_discard)(struct sennit_cache *cache, void *spare);

    /* -- rounds. May be NULL, all three: the common code rolls back by trim. keep was checked; rollback cannot fail,
     * so that parts of one cache roll back together: round_begin reserves what it needs. -- */
    sennit_status (*round_begin)(struct sennit_cache *cache, struct sennit_error *err);
    void (*round_commit)(struct sennit_cache *cache);
    void (*round_rollback)(struct sennit_cache *cache, const uint64_t *keep);
    /* Before rollback: what of it can fail. May be NULL: nothing. */
    sennit_status (*round_prepare)(struct sennit_cache *cache, const uint64_t *keep, struct sennit_error *err);
    /* After either, rows at their final lengths, n_window still telling which rows grew. May be NULL: nothing was put
     * off while the round was open. */
    void (*round_closed)(struct sennit_cache *cache);

    /* -- prefill maintenance. May be NULL: nothing changes precision. -- */
    sennit_status (*begin_prefill)(struct sennit_cache *cache, struct sennit_error *err);
    /* In two phases, so that all parts of a cache change or none: commit reserves all that apply will take; apply
     * consumes it and cannot fail; discard gives it back. */
    sennit_status (*commit_prefill)(struct sennit_cache *cache, const uint32_t *rows, uint32_t n_rows,
                                    struct sennit_error *err);
    void (*apply_prefill)(struct sennit_cache *cache, const uint32_t *rows, uint32_t n_rows);
    void (*discard_prefill)(struct sennit_cache *cache, uint32_t n_rows);
    sennit_status (*end_prefill)(struct sennit_cache *cache, struct sennit_error *err);

    /* -- storage as spans: how many a row has, and the spans themselves, positions ascending -- */
    size_t (*n_spans)(const struct sennit_cache *cache, uint32_t row);
    void (*spans)(const struct sennit_cache *cache, uint32_t row, struct sennit_span_view *out);
    /* First retained position of a row. May be NULL: 0. */
    uint64_t (*first_pos)(const struct sennit_cache *cache, uint32_t row);
    /* Positions from .. to - 1 of a row are gone, whatever is retained before them; from = to: none are. May be NULL:
     * none ever are. */
    void (*gap)(const struct sennit_cache *cache, uint32_t row, uint64_t *from, uint64_t *to);
    /* What a donor's view calls the stored type. May be NULL: the name of k_type. */
    const char *(*dtype)(const struct sennit_cache *cache);
    /* Owner's thread, worker 0's scratch. NULL in families without attention: SENNIT_UNSUPPORTED.
     */
    sennit_status (*donor_attend)(struct sennit_cache *cache, uint32_t row, const struct sn_donor_args *args,
                                  struct sennit_error *err);

    /* -- stream: the store of one row. Load gets a zero row with n_tokens set and must fill store.
     * body_bytes must be what save writes for that many tokens; load allocates no more than one
     * piece ahead of what it has read. -- */
    uint64_t (*body_bytes)(const struct sennit_cache *cache, uint64_t tokens);
    /* Where a row's floor has a say too: of a row with n_tokens and floor set, which may be any. May be NULL:
     * body_bytes answers. */
    uint64_t (*row_body_bytes)(const struct sennit_cache *cache, const struct sn_row *row);
    sennit_status (*save_body)(const struct sennit_cache *cache, const struct sn_row *row,
                               struct sennit_stream *stream, struct sennit_error *err);
    sennit_status (*load_body)(struct sennit_cache *cache, struct sn_row *row, struct sennit_stream *stream,
                               struct sennit_error *err);

    /* -- the step: cache->step holds the spans. commit and abort cannot fail; the common code then
     * moves n_tokens. -- */
    sennit_status (*step_begin)(struct sennit_cache *cache, struct sennit_error *err);
    /* After step_begin, once nothing of the step can fail any more, be it in another part of the same cache: what
     * step_abort does not undo. Cannot fail. May be NULL: nothing. */
    void (*step_begun)(struct sennit_cache *cache);
    void (*step_tile)(struct sennit_cache *cache, uint32_t span, uint32_t token, uint32_t n_tokens, sennit_role role,
                      uint32_t first_head, uint32_t n_heads, const float *data, size_t token_stride, uint32_t worker);
    void (*step_commit)(struct sennit_cache *cache);
    void (*step_abort)(struct sennit_cache *cache);
    void (*attend_plan)(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges);
    void (*attend_item)(struct sennit_cache *cache, uint32_t item, uint32_t worker);
    void (*attend_merge)(struct sennit_cache *cache, uint32_t merge, uint32_t worker);
};

/* The families, NULL-terminated. Adding one: its file and one line in families.list. */
extern const struct sn_family *const sn_families[];
#define SN_FAMILY(name) extern const struct sn_family sn_family_##name;
#include "cache/families.list"
#undef SN_FAMILY
/* Whose configuration it is, be it from outside (config->external) or by name; NULL: there is none. */
const struct sn_family *sn_family_of(const struct sennit_cache_config *config);

/* Groups of fields of a configuration, for `check`: SENNIT_INVALID, with its name, for a non-zero field of a group
 * that is not in `mask`. */
enum {
    SN_CONFIG_HEADS = SENNIT_FIELDS_HEADS,
    SN_CONFIG_TYPES = SENNIT_FIELDS_TYPES,
    SN_CONFIG_PAGES = SENNIT_FIELDS_PAGES,
    SN_CONFIG_CODE = SENNIT_FIELDS_CODE,
    SN_CONFIG_WINDOW = SENNIT_FIELDS_WINDOW,
    SN_CONFIG_START = SENNIT_FIELDS_START,
    SN_CONFIG_RECURRENT = SENNIT_FIELDS_RECURRENT,
    SN_CONFIG_MLA = SENNIT_FIELDS_MLA,
    SN_CONFIG_INDEX = SENNIT_FIELDS_INDEX,
    SN_CONFIG_INNER = SENNIT_FIELDS_INNER,
    SN_CONFIG_SOURCE = SENNIT_FIELDS_SOURCE
};
sennit_status sn_config_only(const struct sennit_cache_config *config, uint32_t mask, struct sennit_error *err);
/* SENNIT_INVALID for an inner configuration with bounds or a role of its own, where the outer family's are meant. */
sennit_status sn_config_bare(const struct sennit_cache_config *inner, const char *outer, struct sennit_error *err);

/* What save_body writes for the row. */
static inline uint64_t sn_row_body_bytes(const struct sennit_cache *cache, const struct sn_row *row)
{
    return cache->ops->row_body_bytes ? cache->ops->row_body_bytes(cache, row)
                                      : cache->ops->body_bytes(cache, row->n_tokens);
}

/* Stream primitives (stream.c): move bytes and hash them. Once failed, always failed. */
sennit_status sn_stream_write(struct sennit_stream *stream, const void *data, size_t n_bytes,
                              struct sennit_error *err);
sennit_status sn_stream_read(struct sennit_stream *stream, void *data, size_t n_bytes, struct sennit_error *err);

/* From the init of a family without a `signature`, unless the cache has a layer already. SENNIT_INVALID when it is
 * too long. */
sennit_status sn_cache_sign(struct sennit_cache *cache, const char *signature, struct sennit_error *err);
bool sn_cache_trimmable(const struct sennit_cache *cache);

/* For families made of whole caches (cache.c). The caller has checked everything. */
/* One more row, for which there is room: a copy of the source's, or a fresh one where source is NULL. */
sennit_status sn_cache_take_row(struct sennit_cache *cache, const struct sennit_cache *source, uint32_t row,
                                struct sennit_error *err);
/* merge_rows, of sources that have n_rows in all. */
sennit_status sn_cache_fill(struct sennit_cache *cache, const struct sennit_cache *const *sources, uint32_t n_sources,
                            uint32_t n_rows, struct sennit_error *err);
void sn_cache_keep_rows(struct sennit_cache *cache, const uint32_t *keep, uint32_t n_keep);
/* The last rows go; n_rows stay. */
void sn_cache_drop_rows(struct sennit_cache *cache, uint32_t n_rows);
/* trim_apply, where there is something to apply, and the row's counts. */
void sn_cache_cut_row(struct sennit_cache *cache, uint32_t row, uint64_t n_tokens, void *spare);
void sn_cache_close_round(struct sennit_cache *cache);
/* append_begin but for step_begun (step.c). part_heads: of each part, or NULL: n_heads for every one. */
sennit_status sn_cache_begin(struct sennit_cache *cache, const struct sennit_span *spans, uint32_t n_spans,
                             uint32_t n_heads, const uint32_t *part_heads, struct sennit_error *err);

/* Rows of a cache, for donors and streams (cache.c): an empty cache like `like`, and room for n
 * rows. */
sennit_status sn_cache_new_like(const struct sennit_cache *like, struct sennit_cache **out, struct sennit_error *err);
sennit_status sn_cache_reserve_rows(struct sennit_cache *cache, uint32_t n_rows, struct sennit_error *err);
/* All rows of `from` into `to`, which is like it and has none: by reference where the family can. */
sennit_status sn_cache_snapshot(struct sennit_cache *to, const struct sennit_cache *from, struct sennit_error *err);
/* SENNIT_STATE with the reason while a step or a round is open. */
sennit_status sn_cache_idle(const struct sennit_cache *cache, const char *what, struct sennit_error *err);
/* The rows that a donor or a view holds, for tests that walk all storage (donor.c). */
const struct sennit_cache *sn_donor_cache(const struct sennit_donor *donor);
const struct sennit_cache *sn_view_cache(const struct sennit_donor_attention *view);
/* Of families with `bounded_span`: the longest span there may be; SENNIT_RANGE for one of the step's above it. */
uint32_t sn_cache_longest_span(const struct sennit_cache *cache);
sennit_status sn_cache_check_bounds(const struct sennit_cache *cache, struct sennit_error *err);
/* SENNIT_RANGE when there is no such row. */
sennit_status sn_cache_check_row(const struct sennit_cache *cache, uint32_t row, struct sennit_error *err);

#endif
