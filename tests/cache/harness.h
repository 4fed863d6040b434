/* What the cache tests share: seeded tokens, steps run in any order by any number of threads, and
 * reading back what a cache stores in one canonical form. */
#ifndef CACHE_HARNESS_H
#define CACHE_HARNESS_H

#include "base/thread.h"
#include "cache/family.h"

/* ---- random numbers
 * ------------------------------------------------------------------------------------------ */

uint64_t mix64(uint64_t x); /* splitmix64 */
struct rng {
    uint64_t state;
};
uint64_t rng_next(struct rng *r);
uint32_t rng_below(struct rng *r, uint32_t n); /* 0 .. n - 1 */
static inline bool rng_chance(struct rng *r, uint32_t percent)
{
    return rng_below(r, 100) < percent;
}
void rng_shuffle(struct rng *r, uint32_t *list, uint32_t n);

/* ---- geometry and tokens
 * ------------------------------------------------------------------------------------- */

/* One role of a step's tiles. */
struct part {
    sennit_role role; /* with SENNIT_PART in a composed cache */
    uint32_t n_heads, d;
};
enum { MAX_SUBS = 4, MAX_PARTS = 4 * MAX_SUBS };

/* A layer's attention as the tests drive it; equal for a cache and its oracles. */
struct geometry {
    struct sennit_cache_config config;
    uint32_t group; /* query heads per KV head */
    float scale, soft_cap;
    const float *sinks; /* [n_heads] or NULL */
    /* For families that are not of keys and values; zero = as the configuration says. */
    struct part parts[MAX_PARTS]; /* n_parts 0: keys and values */
    uint32_t n_parts, d_q, d_out; /* of one query head */
    uint32_t n_heads;             /* of the step; 0: from n_kv_heads and group */
    uint32_t n_index_heads, d_index;
    /* A "composed": the geometry of each part. A head of the whole is then one output of one part, a token's outputs
     * are the parts' side by side, n_heads counts them, and d_q, d_out are 1. */
    const struct geometry *sub;
    uint32_t n_subs;
    bool bounded_spans; /* in this geometry a span above max_span is refused */
};
static inline uint32_t n_heads_of(const struct geometry *g)
{
    return g->n_heads ? g->n_heads : (g->config.n_kv_heads ? g->config.n_kv_heads : 1) * g->group;
}
static inline uint32_t d_q_of(const struct geometry *g)
{
    return g->d_q ? g->d_q : g->config.d_k;
}
static inline uint32_t d_out_of(const struct geometry *g)
{
    return g->d_out ? g->d_out : g->config.d_v;
}
/* A token in part i of a composed cache: every part gets vectors of its own. */
uint64_t part_token(uint64_t token, uint32_t i);
/* The step's parts, into out; returns their number. */
uint32_t parts_of(const struct geometry *g, struct part out[MAX_PARTS]);

/* A token is a number; its vectors follow from it, all heads of a role side by side. DECAY is at most 0, BETA within
 * (0, 1), DT at least 0. */
void token_vector(uint64_t token, sennit_role role, size_t n, float *out);
void token_query(uint64_t token, size_t n, float *out);
void token_index_query(uint64_t token, size_t n, float *out);
void token_index_weight(uint64_t token, size_t n, float *out);

/* ---- steps ----------------------------------------------------------------------------------- */

struct work_span {
    uint32_t row;
    const uint64_t *tokens;
    uint32_t n_tokens;
    float *out; /* [n_tokens][n_heads * d_out], or NULL: no attention for anybody in this step */
};
struct step_options {
    struct rng *rng;         /* NULL: everything in order */
    struct sn_pool *threads; /* NULL: the calling thread */
    bool abort;              /* give the step up after the attention */
};
/* append_begin with the geometry's heads, of every part. */
sennit_status begin_step(struct sennit_cache *cache, const struct geometry *g, const struct sennit_span *spans,
                         uint32_t n_spans, struct sennit_error *err);
/* Appends and attends; tiles, items and merges in random order. On failure nothing has happened. */
sennit_status run_step(struct sennit_cache *cache, const struct geometry *g, const struct work_span *spans,
                       uint32_t n_spans, const struct step_options *options, struct sennit_error *err);

/* ---- stored state
 * -------------------------------------------------------------------------------------------- */

/* The valid state of one row in a form that depends on neither pages nor padding, as its family's line in tested.list
 * makes it from the row's spans. malloc'd, NULL when there is none. */
uint8_t *canonical_row(const struct sennit_cache *cache, uint32_t row, size_t *n_bytes);
/* From the spans of a snapshot; like: a cache of the same configuration. */
uint8_t *canonical_spans(const struct sennit_cache *like, const struct sennit_span_view *spans, size_t n_spans,
                         uint32_t row, uint64_t n_tokens, size_t *n_bytes);
/* A number for what the row, or its parts, have let go. */
uint64_t row_gone(const struct sennit_cache *cache, uint32_t row);
uint64_t cache_fingerprint(const struct sennit_cache *cache); /* over all rows, lengths and floors */

/* ---- memory streams
 * ------------------------------------------------------------------------------------------ */

struct memory {
    uint8_t *data;
    size_t n_bytes, cap, pos;
    size_t fail_at; /* byte at which moving stops; SIZE_MAX = never */
};
struct sennit_stream memory_writer(struct memory *m); /* m zeroed by the caller; free(m->data) */
struct sennit_stream memory_reader(struct memory *m); /* from the start, limit = n_bytes */

/* Prints and exits 1: tests stop at the first difference. Where a fault is expected to be found, die_status is 0. */
extern int die_status;
_Noreturn void die(const char *fmt, ...) SENNIT_PRINTF(1, 2);
void *must(void *p);
#define CHECK(cond)                                                                                                  \
    do {                                                                                                             \
        if (!(cond))                                                                                                 \
            die("%s:%d: %s", __FILE__, __LINE__, #cond);                                                             \
    } while (0)
#define OK(expr)                                                                                                     \
    do {                                                                                                             \
        struct sennit_error ok_err_ = {0};                                                                           \
        struct sennit_error *err = &ok_err_;                                                                         \
        if ((expr) != SENNIT_OK)                                                                                     \
            die("%s:%d: %s: %s", __FILE__, __LINE__, #expr, err->message);                                           \
    } while (0)
/* The call must be refused with exactly this status, and say why. */
#define REFUSED(status, expr)                                                                                        \
    do {                                                                                                             \
        struct sennit_error ref_err_ = {0};                                                                          \
        struct sennit_error *err = &ref_err_;                                                                        \
        sennit_status got_ = (expr);                                                                                 \
        if (got_ != (status) || ref_err_.code != got_ || ref_err_.message[0] == '\0')                                \
            die("%s:%d: %s: %s, expected %s (%s)", __FILE__, __LINE__, #expr, sennit_status_name(got_),              \
                sennit_status_name(status), ref_err_.message);                                                       \
    } while (0)

#endif
