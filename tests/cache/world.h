/* A world of caches under random operations, and what each row must be: its tokens, its solo
 * replay, its twin. */
#ifndef CACHE_WORLD_H
#define CACHE_WORLD_H

#include "cache/twin.h"

enum { MAX_ROWS = 9, MAX_SERIAL = 7, MAX_DONORS = 3, MAX_SAVED = 3, N_WORKERS = 2 };

/* A list of tokens and its textbook, which takes them when it is asked. Rows that begin alike share it; one that goes
 * on otherwise leaves it. */
struct history {
    uint64_t *tokens, n, cap;
    const struct twin_ops *ops;
    struct twin *twin;
    uint64_t n_fed; /* tokens that the twin has */
    uint32_t n_refs;
};

/* One row of the model. */
struct mrow {
    struct history *history;
    uint64_t n;      /* the row is the first n tokens of its history */
    uint64_t n_last; /* how far bypass reaches */
    uint64_t high;   /* the most tokens that the row in the batch has had outside rounds */
    /* The row alone, or its first n_solo tokens, or NULL: replayed when somebody compares (mrow_solo), from the first
     * token if it ever had one that the row no longer has. Never made from another row's. */
    struct sennit_cache *solo;
    uint64_t n_solo;
    struct geometry solo_g; /* its own page size */
};

struct mcache {
    struct sennit_cache *c;
    struct mrow *rows[MAX_ROWS];
    uint32_t n;
    uint64_t pad[MAX_ROWS]; /* columns before each row; 0 in families without */
    uint64_t stamp;         /* of the donors captured since its last append; 0: none */
};

struct mdonor {
    struct sennit_donor *rows;
    struct sennit_donor_attention *view;
    struct mrow *copy[MAX_ROWS];
    uint32_t n;
    uint64_t stamp;
};

struct msaved {
    struct memory stream;
    struct mrow *copy;
};

struct world {
    struct rng rng;
    const struct tested_family *family;
    struct geometry g;
    float sinks[64];
    struct sennit_pool *pool, *solo_pool;
    struct sn_pool *threads;
    const struct sn_family *wrong; /* instead of the family; NULL = the right one */
    struct mcache main, serial[MAX_SERIAL];
    struct mdonor donors[MAX_DONORS];
    struct msaved saved[MAX_SAVED];
    uint32_t n_serial;
    uint64_t n_stamps;
    uint64_t max_len; /* rows are kept below it */
    bool long_rows;   /* thousands of tokens, mostly without attention */
    bool segmented;   /* rows of up to four segments */
    bool large;       /* real heads and dimensions: fewer operations */
    bool hostile;     /* pages of 1, storage that moves at every write */
    size_t misc_at_start;
    /* what was checked */
    uint64_t n_outputs, n_states, n_twin;
    double worst; /* largest twin error as a share of its bound */
};

static inline bool bounded_spans(const struct world *w)
{
    return w->family->bounded_spans || w->g.bounded_spans;
}

void world_open(struct world *w, const struct tested_family *family, sennit_type type, uint64_t seed, uint32_t index,
                bool hostile, const struct sn_family *wrong, struct sn_pool *threads);
/* A cache of the world, of its wrong variant where there is one. */
struct sennit_cache *new_cache(struct world *w, struct sennit_pool *pool, const struct sennit_cache_config *config,
                               uint32_t n_rows);
/* How many operations this world gets in a run of n_ops: a short run has several worlds too, long rows and rows of
 * several segments among them. */
uint32_t world_operations(const struct world *w, uint64_t n_ops);
void world_close(struct world *w); /* dies of a leak */

struct mrow *mrow_new(struct world *w);
struct mrow *mrow_copy(const struct mrow *row);
void mrow_free(struct mrow *row);
void mrow_cut(struct mrow *row, uint64_t n_tokens);
/* The row alone, all its tokens appended. Borrowed. */
struct sennit_cache *mrow_solo(struct world *w, struct mrow *row);

/* The arithmetic of columns: rows that have just been merged; those that a filter left; rows that became shorter. */
void mcache_align(const struct world *w, struct mcache *m);
void mcache_drop_padding(struct mcache *m);
void mcache_shortened(struct mcache *m);
/* Tokens that the row may get before its precision changes. */
uint64_t span_limit(const struct sennit_cache *c, uint32_t row);
/* The row stands where its precision changes, and has not changed yet. */
bool is_due(const struct world *w, const struct mcache *m, uint32_t row);
/* A row that has changed where it stands (it was trimmed, or given a token that was taken back) reads as one alone
 * that is told to, which this does. Has it changed? */
bool match_precision(struct world *w, const struct sennit_cache *c, uint32_t r, struct mrow *row);

/* Rows stand, outside rounds, where they now do. */
void mcache_settled(struct mcache *m);

void mcache_dispose(struct mcache *m);
/* Appends to some rows and holds the outputs against solo replay and twin. Tokens per row n[i], 0 =
 * not in the step. */
void mcache_append(struct world *w, struct mcache *m, const uint32_t *n, bool with_attention, bool abort);

void check_row(struct world *w, const struct mcache *m, uint32_t row); /* stored state = solo's, to the bit */
void check_rows(struct world *w, const struct mcache *m);              /* all of them in 1 of 4 draws, else two */
void check_questions(struct world *w, const struct mcache *m);
/* No row holds more than what was projected for the most tokens that it had outside rounds; in none the reserve is
 * left alone. */
void check_within_projection(const struct world *w, const struct mcache *m, bool round);
void check_donor(struct world *w, struct mdonor *d);
void donor_free(struct mdonor *d);
void check_accounting(struct world *w);

#endif
