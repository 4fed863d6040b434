/* The textbook twins: one per family, all tokens in a list, double precision, written from the
 * formula. They share no code with src/cache; only the geometry's numbers. */
#ifndef CACHE_TWIN_H
#define CACHE_TWIN_H

#include "cache/harness.h"
#include "cache/pages.h"

struct twin; /* one row */

struct twin_ops {
    struct twin *(*create)(const struct geometry *g);
    void (*release)(struct twin *t);
    void (*append)(struct twin *t, uint64_t token);
    void (*cut)(struct twin *t, uint64_t n_tokens);
    /* Output of query head `head` with query q [d_k] over keys 0 .. n_keys - 1 that mask (NULL or
     * [n_keys]) shows, into out [d_v]. Returns the largest absolute error that f32 arithmetic in
     * the specified order can explain. Depends on the first n_keys tokens alone, though the list may hold more: rows
     * that begin alike share it. */
    double (*attend)(const struct twin *t, const float *q, uint32_t head, uint64_t n_keys, const uint8_t *mask,
                     const float *sink, double *out);
    /* For what rows change into ("delayed"): a token whose keys and values come out of a store of that type. NULL:
     * rows do not change into this. */
    void (*append_stored)(struct twin *t, uint64_t token, sennit_type type);
    /* What attends next to all keys of a row that stands where its precision changes finds it changed, or not.
     * NULL: no row changes. */
    void (*change)(struct twin *t, bool changed);
};

/* What a row that once held `high` tokens has let go: positions gap .. gap_end - 1. Its trim_floor is
 * the shortest that it can be trimmed to. */
struct retention {
    uint64_t gap, gap_end, trim_floor;
};

/* What the suite must know of a family. Adding one: a file twin_<family>.c with a
 * `const struct tested_family tested_<family>`, and one line in tested.list. */
struct tested_family {
    const char *name;
    /* Of the cache under test, where several lines are of one family, each with an arrangement of its own; NULL: the
     * line's name. */
    const char *family;
    const char *also; /* another family that this line is the test of, because none of its caches stands alone */
    const struct twin_ops *twin;
    /* Draws config and group; config.family, page_tokens and what rounds and snapshots need are set by the suite.
     * large: the few worlds of real heads and dimensions. */
    void (*geometry)(struct rng *rng, struct geometry *g, sennit_type type, bool large);
    /* After the suite has set what is its own (page_tokens, bounds, scale, soft_cap, sinks), for the batch and for
     * every row alone: what follows from it in the parts of an arrangement. NULL: nothing. */
    void (*settle)(struct rng *rng, struct geometry *g);
    /* Turns the small fixtures of contract_test.c and alloc_fail_test.c (2 heads of 2 queries, f16, dimensions that
     * are multiples of 32) into ones of this family. NULL: they fit as they are. */
    void (*small)(struct geometry *g);
    /* A drawn geometry cut down for worlds of long rows. NULL: one KV head, dimensions of 1 to 3 or d_step. */
    void (*tiny)(struct rng *rng, struct geometry *g);
    bool no_keys;    /* recurrent state: no keys, types, pages or trims, so tests about those are left out */
    uint32_t d_step; /* head dimensions are multiples of it; 0 = any */
    bool paged;      /* config.page_tokens may be drawn */
    bool rectangle;  /* all rows of a cache in one tensor: they have columns, and copies instead of references */
    bool changes_precision; /* max_append_tokens and floors are not those of a plain row */
    /* Makes *family, a copy of the right one, wrong in a way that a row alone shares and only the twin can catch;
     * returns what is wrong, NULL past the last variant. variant: from 1. NULL: there are none. */
    const char *(*spoil)(unsigned variant, struct sn_family *family);
    /* The same, wrong in operations on rows: a row alone, which never sees them, may catch it too. */
    const char *(*fault)(unsigned variant, struct sn_family *family);
    const char *oracles[2]; /* whose bits it must give: its own alone in a cache, and another family's (or NULL) */
    uint32_t other_percent; /* of the rows alone that are of the other family; 0 = 12 */
    bool slow;              /* rows and large worlds are shorter, and fewer appends attend */
    /* Families whose rows let old tokens go; NULL: nothing is ever let go. */
    struct retention (*retention)(const struct geometry *g, uint64_t high);
    /* What of a row's canonical form (n_tokens, n_bytes) a later query reads; the rest becomes zeros. Goes
     * with retention. */
    void (*forget)(const struct geometry *g, uint64_t n_tokens, uint8_t *canonical, size_t n_bytes);
    bool bounded_spans; /* a span above max_span is refused */
    /* A cache of oracles[1] that gives the same bits, and its geometry into *g; NULL: the configuration with the
     * other family's name does. */
    void (*open_oracle)(struct sennit_cache **out, struct sennit_pool *pool, struct geometry *g);
    /* Calls visit for every object of one row's storage. */
    void (*walk)(const struct sennit_cache *cache, uint32_t row,
                 void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx);
    /* A row's valid state out of its spans (all of that row, as the family lists them), in a form that depends on
     * neither pages nor padding and is the same for all `oracles`. malloc'd; NULL and 0 for a row without any. */
    uint8_t *(*canonical)(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                          uint64_t n_tokens, size_t *n_bytes);
};
extern const struct tested_family *const tested_families[]; /* NULL-terminated */
const struct tested_family *find_tested(const char *name);  /* NULL: not under the suite */
/* The first line of a cache's family; dies when there is none. */
const struct tested_family *tested_of(const struct sennit_cache *cache);
/* One more line, of a family that is not the library's. */
void add_tested(const struct tested_family *f);
static inline const char *family_of(const struct tested_family *f)
{
    return f->family ? f->family : f->name;
}
/* g as the line wants the small fixtures; config.family and the bounds are set. */
void small_geometry(const struct tested_family *f, struct geometry *g);
/* Where rows of such a cache, or of a part of it, change their precision; UINT64_MAX = nowhere. */
uint64_t precision_start(const struct sennit_cache_config *config);
/* Dies unless every family of the library has a line. */
void all_families_are_tested(void);

/* The retention of a row of the family, all zero where nothing is let go. */
struct retention retention_of(const struct tested_family *family, const struct geometry *g, uint64_t high);

/* Largest error of the outputs [heads][d_out] of the last of n tokens, as a share of the textbook's bound. */
double textbook_share(const struct twin_ops *ops, const struct geometry *g, const uint64_t *tokens, uint32_t n,
                      const float *out);

/* ---- for families of keys and values (kv_common.c) ------------------------------------------------------------ */

extern const struct twin_ops twin_plain;
/* Heads 1-3 (large: 1-8), groups 1-4 (1-8), dimensions small and odd (32-256), rows bounded in 3 of 10. */
void kv_geometry(struct rng *rng, struct geometry *g, sennit_type type, bool large);
/* Pages and page tables of a family whose store is a chain of table blocks. */
void walk_pages(const struct sennit_cache *cache, uint32_t row, const struct sn_paging *paging,
                void (*visit)(void *ctx, const void *p, size_t bytes), void *ctx);
/* K [heads][d_k], V [heads][d_v] of each token in the storage type, from "key" and "value" spans of a page each, from
 * one of each with columns, or from one "key_value" span. */
uint8_t *kv_canonical(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                      uint64_t n_tokens, size_t *n_bytes);
/* Wrong variants of any family whose queries, scale, soft cap and sinks come through attend_plan. */
const char *kv_spoil(unsigned variant, struct sn_family *family);
/* n elements of e bytes, `step` elements apart where they come from. */
void copy_elements(uint8_t *to, const uint8_t *from, size_t step, size_t n, size_t e);
size_t kv_canonical_token_bytes(const struct sennit_cache_config *config);
/* Plain tokens in kv_canonical's form, in the canonical form of what they change into (twin_delayed.c). */
struct sn_forms;
uint8_t *changed_canonical(const struct sn_forms *f, const uint8_t *plain, uint64_t n_tokens, size_t *n_bytes);
/* Wrong variants 1 .. 5 of families whose rows change: where they do so. */
const char *spoil_start(unsigned variant, struct sn_family *family, const struct sn_family *right);
/* Of families of codes: pages of n_names spans each, the first n_key of them the key's. copy puts a page part, whose
 * spans s points to, into the records of its tokens, token_bytes apart; a value's begin at value_at. */
struct coded_form {
    const char *const *names;
    size_t n_names, n_key, token_bytes, value_at;
    void (*copy)(const struct sennit_cache_config *c, const struct sennit_span_view *s, bool key, uint8_t *out);
};
uint8_t *coded_canonical(const struct sennit_cache_config *c, const struct coded_form *form,
                         const struct sennit_span_view *spans, size_t n_spans, uint64_t n_tokens, size_t *n_bytes);
/* What a store of that type makes of x: f32, f16 or bf16, by arithmetic. */
double stored_as(float x, sennit_type type);

/* ---- for arrangements of several families -------------------------------------------------------------------- */

/* What the harness must know of a geometry of "mla" or "mla-dsa" whose configuration has changed. */
void mla_finish_geometry(struct geometry *g);
/* Marks, in seen [n_keys], the keys that the query at n_keys - 1 of a twin of "mla-dsa" selects. */
void mla_twin_selects(const struct twin *t, uint64_t n_keys, uint8_t *seen);

#endif
