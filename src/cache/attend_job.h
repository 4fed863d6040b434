/* What attend.c and attend_job.c share; families include attend.h. */
#ifndef SN_CACHE_ATTEND_JOB_H
#define SN_CACHE_ATTEND_JOB_H

#include "cache/attend.h"

enum { SN_ATTEND_LINE = 64 };

/* Places a part at *at, or only counts it when base is NULL. */
static inline void *sn_attend_take(uint8_t *base, size_t *at, size_t n_bytes)
{
    void *part = base ? base + *at : NULL;
    *at += sn_round_up(n_bytes, SN_ATTEND_LINE);
    return part;
}

/* Segments that some query of a job can see: 0 .. n_kept - 1, then `first` and those after it; n in all. */
struct sn_attend_range {
    uint64_t n_kept, first;
    uint32_t n;
};

/* First position of the window of a query at pos. */
uint64_t sn_attend_window_start(const struct sn_attend_shape *shape, uint64_t pos);
/* For keys 0 .. n_kept_keys - 1 and start .. n_keys - 1. */
struct sn_attend_range sn_attend_range_of(uint64_t start, uint64_t n_kept_keys, uint64_t n_keys);
uint64_t sn_attend_segment_at(const struct sn_attend_range *range, uint32_t i);

/* Lays a job of n query vectors over at most n_keys keys out at base, or only returns its bytes when base is NULL. */
size_t sn_attend_place(const struct sn_attend_shape *shape, const struct sn_attend_source *src, size_t n,
                       uint64_t n_keys, uint8_t *base, struct sn_attend_work *w);
/* Query vector i of the job: q [d_k] times the scale. */
void sn_attend_scale(const struct sn_attend_job *job, size_t i, const float *q);

/* Fills in the segment's keys and their visibility. Returns false when nobody sees any. */
bool sn_attend_look(const struct sn_attend_job *job, uint64_t segment, struct sn_attend_segment *s);
/* One segment that was looked at, into (m, l, o). */
void sn_attend_run(const struct sn_attend_job *job, struct sn_attend_segment *s, float *m, float *l, float *o);
/* The state of queries that see nothing. */
void sn_attend_clear(size_t n_q, float *m, float *l);
/* All segments in order into work.m, l and o. */
void sn_attend_walk(const struct sn_attend_job *job, const struct sn_attend_range *range);
/* The learned sink, then o / l, then what the family has left to do. */
void sn_attend_finish(struct sennit_pool *pool, const struct sn_attend_source *src, uint32_t worker,
                      const float *sink, float m, float l, float *o, size_t d_v, float *out);

#endif
