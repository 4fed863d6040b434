/* The attention driver: everything of a step's and a donor's attention that no family needs to write again. It plans
 * items, places scratch, scales queries, says who sees which key, walks segments in their order, merges them, adds
 * sinks and divides. A family says where keys are: by `load` alone (64 keys and values at a time as f32), or by a
 * `segment` of its own over what it stores.
 *
 * Terms. A job: n_q query vectors of one KV head of one row, token by token and, within a token, head by head of the
 * group. Keys are numbered 0 .. n_keys - 1; a key's number is its position, or, where a query token has a list, its
 * place in that ascending list: sn_attend_pos() turns it into a position. Chunks are 64 numbers, segments 256, both
 * counted from number 0 whatever is retained. A chunk that nobody in the job sees must not be touched (its page may
 * be gone); a segment like that never reaches the family.
 *
 * A family that uses the driver sets .attend in its table and, unless it has reasons not to, all of
 *     .attend_plan = sn_attend_plan, .attend_item = sn_attend_item, .attend_merge = sn_attend_merge,
 *     .donor_attend = sn_attend_donor
 * and calls sn_attend_reserve from step_begin. cache->shape is filled from the configuration before init, which may
 * change it (a window, a latent's dimensions).
 *
 * Donors see all retained keys that the mask shows: no window, no selection.
 *
 * Threads: plan, reserve and donors on the owner's; all else on workers, each in its own scratch. */
#ifndef SN_CACHE_ATTEND_H
#define SN_CACHE_ATTEND_H

#include "cache/family.h"

struct sn_attend_ops;

/* Where one row is read: normally the cache's own row. A wrapper answers with an inner cache and its row, a layer
 * that shares a donor's keys with the donor's. */
struct sn_attend_source {
    const struct sn_attend_ops *ops;
    const struct sennit_cache *cache;
    const struct sn_row *row;
};

/* A worker's scratch for one job, in this order, every part on a line of 64 bytes. */
struct sn_attend_work {
    float *q;            /* [n_q][d_k], scaled */
    uint64_t *visible;   /* [n_q][chunks of the segment] */
    float *m, *l, *o;    /* [n_q], [n_q], [n_q][d_v]: the row so far */
    float *m2, *l2, *o2; /* the next segment */
    void *kernel;        /* sn_attn_scratch_bytes(n_q, d_k, d_v) */
    void *prepared;      /* ops->prepare_bytes */
    void *segment;       /* ops->segment_bytes; where there is no `segment`: f32 panels of 4 chunks, K then V */
    void *select;        /* ops->select_bytes */
    uint32_t *list;      /* [max_selected] */
};

struct sn_attend_job {
    struct sn_attend_source src;
    struct sennit_pool *pool;
    const struct sn_attend_shape *shape; /* of the cache that attends */
    const void *row_data;                /* what ops->row_fill left for this row */
    uint32_t kv_head, group, worker;
    uint32_t n_q;
    uint32_t token;       /* the step's flat index of the first query's token; donors: index of the query */
    uint64_t pos;         /* the first query's position; donors: 0 */
    uint64_t n_keys;      /* numbers at or past it are seen by none */
    uint64_t start;       /* donors: first retained position; else 0 */
    uint64_t gap, gap_end; /* donors: positions gap .. gap_end - 1 are gone; else 0 */
    const uint32_t *list; /* [n_keys] ascending positions, or NULL: a key's number is its position */
    size_t d_k, d_v;      /* the shape's */
    float scale, soft_cap;
    const struct sennit_attend_inputs *in; /* the step's; NULL for donors */
    const struct sn_donor_args *donor;     /* NULL for steps */
    struct sn_attend_work work;
};

static inline uint64_t sn_attend_pos(const struct sn_attend_job *job, uint64_t key)
{
    return job->list ? job->list[key] : key;
}

/* One segment of a job, and where its state goes. */
struct sn_attend_segment {
    uint64_t first;                   /* number of its first key: a multiple of 256 */
    size_t n_chunks;                  /* 1 .. 4 */
    uint64_t seen[SN_SEGMENT_CHUNKS]; /* per chunk: keys that some query of the job sees; 0: do not touch the chunk */
    const uint64_t *visible;          /* [n_q][n_chunks], as kernel.h says */
    float *m, *l, *o; /* out: [n_q], [n_q], [n_q][d_v]; m = -inf, l = 0 for a query that sees nothing */
};

/* Slots get the source of the row, or a job whose src it is. "may be NULL" says what NULL means. */
struct sn_attend_ops {
    /* Which source a row of the cache is read from, asked in reserve, plan, items and merges of a step, and by
     * donors: pure, on any thread, the same throughout a step. May be NULL: the row itself. A table with a route
     * needs nothing else: the other slots are those of the source that it answers with, whose shape's d_k and d_v
     * are the cache's. Rows whose form depends on the position (spans are cut there) answer by the form that the
     * step reads; a `segment` that finds several forms within one row hands its segments on to theirs. */
    struct sn_attend_source (*route)(const struct sennit_cache *cache, uint32_t row);

    /* What items need of a row and can be found once per step: a list of page pointers, say. n_tokens includes the
     * step's. May be NULL, both: nothing. */
    size_t (*row_bytes)(const struct sn_attend_source *src, uint64_t n_tokens);
    void (*row_fill)(const struct sn_attend_source *src, uint64_t n_tokens, void *out);

    /* What follows from a job's scaled queries (codes and scales per group), into job->work.prepared; once per job.
     * May be NULL, both. */
    size_t (*prepare_bytes)(const struct sn_attend_source *src, size_t n_q);
    void (*prepare)(const struct sn_attend_job *job);

    /* Families that select keys (shape.max_selected > 0): the list of the job's one query token, ascending, 1 to
     * max_selected long; returns its length. job->n_keys is then how many positions the token may choose from.
     * Donors do not select. select_bytes may be NULL: no scratch. */
    size_t (*select_bytes)(const struct sn_attend_source *src, uint64_t n_keys);
    uint32_t (*select)(const struct sn_attend_job *job, uint32_t *list);

    /* Runs one segment in the order of numerics.md. May be NULL: `load` and the attn_f32 slot do it. segment_bytes
     * may be NULL: no scratch beyond work.kernel. */
    size_t (*segment_bytes)(const struct sn_attend_source *src, size_t n_q);
    void (*segment)(const struct sn_attend_job *job, const struct sn_attend_segment *segment);

    /* For every bit j of `seen`: key number first + j (position sn_attend_pos of it) of job->kv_head as f32 into lane
     * j: dimension d at k[(j / 16 * d_k + d) * 16 + j % 16], value at v[j * d_v]. Other lanes may be left as they
     * are. May be NULL where there is a `segment`. */
    void (*load)(const struct sn_attend_job *job, uint64_t first, uint64_t seen, float *k, float *v);

    /* What is left to do to a head's output [d_v] after o / l (an inverse rotation). May be NULL: nothing. */
    void (*finish)(const struct sn_attend_source *src, uint32_t worker, float *out);
};

/* Where a row of a cache that uses the driver is read. */
struct sn_attend_source sn_attend_source_of(const struct sennit_cache *cache, uint32_t row);
/* Everything that the open step's attention needs (step->spans and n_heads are set); from step_begin. SENNIT_NOMEM,
 * SENNIT_STATE. */
sennit_status sn_attend_reserve(struct sennit_cache *cache, struct sennit_error *err);
void sn_attend_plan(struct sennit_cache *cache, uint32_t *n_items, uint32_t *n_merges);
void sn_attend_item(struct sennit_cache *cache, uint32_t item, uint32_t worker);
void sn_attend_merge(struct sennit_cache *cache, uint32_t merge, uint32_t worker);
sennit_status sn_attend_donor(struct sennit_cache *cache, uint32_t row, const struct sn_donor_args *args,
                              struct sennit_error *err);

/* Inside `segment`: an attention slot's arguments but for where keys and values are. */
struct sn_attn_args sn_attend_args(const struct sn_attend_job *job, const struct sn_attend_segment *segment);
/* For the table of a family that uses the driver. */
/* clang-format off */
#define SN_ATTEND_SLOTS \
    .attend_plan = sn_attend_plan, \
    .attend_item = sn_attend_item, \
    .attend_merge = sn_attend_merge
/* clang-format on */

/* Inside `segment`: runs an attention slot over panels in the kernel's layout, [n_chunks] each; the pointers of
 * chunks that nobody sees are replaced. */
void sn_attend_slot(const struct sn_attend_job *job, const struct sn_attend_segment *segment, sn_attn_fn fn,
                    enum sn_kernel_id id, const void **k, const void **v);

#endif
