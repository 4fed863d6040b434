/* One job: who sees which key, the segments in order, the end. Which calls are made, and in which order, is decided
 * here alone: items of a step and donors differ in what they put into a job. */
#include <assert.h>
#include <math.h>

#include "cache/attend_job.h"
#include "kernel/math.h"

/* ---- who sees what -------------------------------------------------------------------------------------------- */

/* The first n of 64 keys. */
static uint64_t low_bits(uint64_t n)
{
    return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

static uint64_t below(uint64_t end, uint64_t first)
{
    return end > first ? low_bits(end - first) : 0;
}

/* First position of the window of a query at pos. */
uint64_t sn_attend_window_start(const struct sn_attend_shape *shape, uint64_t pos)
{
    return shape->window != 0 && pos >= shape->window ? pos - shape->window + 1 : 0;
}

struct sn_attend_range sn_attend_range_of(uint64_t start, uint64_t n_kept_keys, uint64_t n_keys)
{
    uint64_t kept = sn_div_up(sn_min_size(n_kept_keys, n_keys), SN_SEGMENT_KEYS), first = start / SN_SEGMENT_KEYS;
    uint64_t end = n_keys / SN_SEGMENT_KEYS + (n_keys % SN_SEGMENT_KEYS != 0);
    kept = sn_min_size(kept, first);
    return (struct sn_attend_range){.n_kept = kept, .first = first, .n = (uint32_t)(kept + end - first)};
}

uint64_t sn_attend_segment_at(const struct sn_attend_range *range, uint32_t i)
{
    return i < range->n_kept ? i : range->first + (i - range->n_kept);
}

/* Bits of one chunk for the query at pos. */
static uint64_t causal_bits(const struct sn_attend_job *job, uint64_t pos, uint64_t first)
{
    if (job->list)
        return below(job->n_keys, first);
    uint64_t bits = below(pos + 1, first);
    uint64_t hidden = below(sn_attend_window_start(job->shape, pos), first) & ~below(job->shape->n_kept, first);
    return bits & ~hidden;
}

/* Bits of one chunk for donor query t; keys outside the retained ones are hidden whatever the mask says. */
static uint64_t mask_bits(const struct sn_attend_job *job, size_t t, uint64_t first)
{
    uint64_t gap = below(job->gap_end, first) & ~below(job->gap, first);
    uint64_t bits = below(job->n_keys, first) & ~below(job->start, first) & ~gap;
    if (!job->donor->mask)
        return bits;
    const uint8_t *mask = job->donor->mask + t * job->donor->width;
    for (uint64_t left = bits; left; left &= left - 1) {
        unsigned j = (unsigned)__builtin_ctzll(left);
        if (!mask[first + j - job->start])
            bits &= ~(UINT64_C(1) << j);
    }
    return bits;
}

/* Fills in the segment's keys and their visibility. Returns false when nobody sees any. */
bool sn_attend_look(const struct sn_attend_job *job, uint64_t segment, struct sn_attend_segment *s)
{
    *s = (struct sn_attend_segment){.first = segment * SN_SEGMENT_KEYS, .visible = job->work.visible};
    s->n_chunks = (size_t)sn_min_size(SN_SEGMENT_CHUNKS, sn_div_up(job->n_keys - s->first, SN_CHUNK_KEYS));
    uint64_t *out = job->work.visible, any = 0;
    for (size_t t = 0; t < job->n_q / job->group; t++) {
        for (size_t c = 0; c < s->n_chunks; c++) {
            uint64_t first = s->first + c * SN_CHUNK_KEYS;
            out[c] = job->donor ? mask_bits(job, job->token + t, first) : causal_bits(job, job->pos + t, first);
            s->seen[c] |= out[c];
            any |= out[c];
        }
        for (size_t i = 1; i < job->group; i++)
            memcpy(out + i * s->n_chunks, out, s->n_chunks * sizeof *out);
        out += job->group * s->n_chunks;
    }
    return any != 0;
}

/* ---- jobs ----------------------------------------------------------------------------------------------------- */

static size_t panel_bytes(const struct sn_attend_shape *shape)
{
    return SN_SEGMENT_KEYS * ((size_t)shape->d_k + shape->d_v) * sizeof(float);
}

size_t sn_attend_place(const struct sn_attend_shape *shape, const struct sn_attend_source *src, size_t n,
                       uint64_t n_keys, uint8_t *base, struct sn_attend_work *w)
{
    const struct sn_attend_ops *ops = src->ops;
    size_t at = 0, f = sizeof(float), segment = 0;
    if (!ops->segment)
        segment = panel_bytes(shape);
    else if (ops->segment_bytes)
        segment = ops->segment_bytes(src, n);
    w->q = sn_attend_take(base, &at, n * shape->d_k * f);
    w->visible = sn_attend_take(base, &at, n * SN_SEGMENT_CHUNKS * sizeof(uint64_t));
    w->m = sn_attend_take(base, &at, n * f);
    w->l = sn_attend_take(base, &at, n * f);
    w->o = sn_attend_take(base, &at, n * shape->d_v * f);
    w->m2 = sn_attend_take(base, &at, n * f);
    w->l2 = sn_attend_take(base, &at, n * f);
    w->o2 = sn_attend_take(base, &at, n * shape->d_v * f);
    w->kernel = sn_attend_take(base, &at, sn_attn_scratch_bytes(n, shape->d_k, shape->d_v));
    w->prepared = sn_attend_take(base, &at, ops->prepare_bytes ? ops->prepare_bytes(src, n) : 0);
    w->segment = sn_attend_take(base, &at, segment);
    w->select = sn_attend_take(base, &at, ops->select_bytes ? ops->select_bytes(src, n_keys) : 0);
    w->list = sn_attend_take(base, &at, shape->max_selected * sizeof(uint32_t));
    return at;
}

void sn_attend_scale(const struct sn_attend_job *job, size_t i, const float *q)
{
    float *out = job->work.q + i * job->d_k;
    for (size_t d = 0; d < job->d_k; d++)
        out[d] = q[d] * job->scale;
}

struct sn_attn_args sn_attend_args(const struct sn_attend_job *job, const struct sn_attend_segment *segment)
{
    return (struct sn_attn_args){.q = job->work.q,
                                 .ldq = job->d_k,
                                 .n_q = job->n_q,
                                 .d_k = job->d_k,
                                 .d_v = job->d_v,
                                 .n_chunks = segment->n_chunks,
                                 .visible = segment->visible,
                                 .soft_cap = job->soft_cap,
                                 .m = segment->m,
                                 .l = segment->l,
                                 .o = segment->o,
                                 .ldo = job->d_v,
                                 .scratch = job->work.kernel};
}

void sn_attend_slot(const struct sn_attend_job *job, const struct sn_attend_segment *segment, sn_attn_fn fn,
                    enum sn_kernel_id id, const void **k, const void **v)
{
    size_t real = 0;
    while (!segment->seen[real])
        real++;
    for (size_t c = 0; c < segment->n_chunks; c++)
        if (!segment->seen[c])
            k[c] = k[real], v[c] = v[real];
    struct sn_attn_args args = sn_attend_args(job, segment);
    args.k_chunk = k;
    args.v_chunk = v;
    job->pool->calls[job->worker].n[id]++;
    fn(&args);
}

/* What families without a kernel of their own get. */
static void load_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    const void *k[SN_SEGMENT_CHUNKS], *v[SN_SEGMENT_CHUNKS];
    float *keys = job->work.segment, *values = keys + SN_SEGMENT_KEYS * job->d_k;
    for (size_t c = 0; c < s->n_chunks; c++) {
        k[c] = keys + c * SN_CHUNK_KEYS * job->d_k;
        v[c] = values + c * SN_CHUNK_KEYS * job->d_v;
        if (s->seen[c])
            job->src.ops->load(job, s->first + c * SN_CHUNK_KEYS, s->seen[c], keys + c * SN_CHUNK_KEYS * job->d_k,
                               values + c * SN_CHUNK_KEYS * job->d_v);
    }
    sn_attend_slot(job, s, job->pool->kernels->attn_f32, SN_K_attn_f32, k, v);
}

void sn_attend_run(const struct sn_attend_job *job, struct sn_attend_segment *s, float *m, float *l, float *o)
{
    s->m = m;
    s->l = l;
    s->o = o;
    if (job->src.ops->segment)
        job->src.ops->segment(job, s);
    else
        load_segment(job, s);
}

void sn_attend_clear(size_t n_q, float *m, float *l)
{
    for (size_t i = 0; i < n_q; i++) {
        m[i] = -INFINITY;
        l[i] = 0;
    }
}

/* All segments in order into work.m, l and o. */
void sn_attend_walk(const struct sn_attend_job *job, const struct sn_attend_range *range)
{
    const struct sn_attend_work *w = &job->work;
    bool fresh = true;
    for (uint32_t i = 0; i < range->n; i++) {
        struct sn_attend_segment s;
        if (!sn_attend_look(job, sn_attend_segment_at(range, i), &s))
            continue;
        if (fresh) {
            sn_attend_run(job, &s, w->m, w->l, w->o);
            fresh = false;
            continue;
        }
        sn_attend_run(job, &s, w->m2, w->l2, w->o2);
        for (size_t q = 0; q < job->n_q; q++)
            SN_CALL(job->pool->kernels, &job->pool->calls[job->worker], attn_merge, &w->m[q], &w->l[q],
                    w->o + q * job->d_v, w->m2[q], w->l2[q], w->o2 + q * job->d_v, job->d_v);
    }
    if (fresh)
        sn_attend_clear(job->n_q, w->m, w->l);
}

/* The learned sink, then o / l, then what the family has left to do. */
void sn_attend_finish(struct sennit_pool *pool, const struct sn_attend_source *src, uint32_t worker,
                      const float *sink, float m, float l, float *o, size_t d_v, float *out)
{
    if (sink) {
        float z = *sink, top = z > m ? z : m;
        float keep = sn_expf(m - top);
        l = fmaf(l, keep, sn_expf(z - top));
        for (size_t d = 0; d < d_v; d++)
            o[d] = o[d] * keep;
    }
    SN_CALL(pool->kernels, &pool->calls[worker], attn_finish, o, l, d_v, out);
    if (src->ops->finish)
        src->ops->finish(src, worker, out);
}
