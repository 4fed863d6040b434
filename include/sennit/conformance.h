/* What the installed program sennit-conformance must know of a family from outside the library (sennit/family.h) to
 * try it as the library's own are tried: random operations on batches of rows, each row held to the bit against the
 * same row alone, and against the family's textbook twin, which is written from the formula in double precision.
 *
 *     sennit-conformance --load ./libown-family.so --family f8 --ops 50000 --seed 1 [--hostile]
 *
 * A shared object exports sennit_conformance_families() (SENNIT_CONFORMANCE_ENTRY). It needs these headers and no
 * library. All functions are called on one thread. docs/own-family.md goes through one. */
#ifndef SENNIT_CONFORMANCE_H
#define SENNIT_CONFORMANCE_H

#include <math.h>

#include "sennit/family.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One query vector of one head, and what it may see. */
struct sennit_twin_query {
    const float *q;      /* [d_k], as the model gives it: unscaled */
    uint32_t head;       /* query head; reads KV head `head / group` */
    uint64_t n_keys;     /* keys 0 .. n_keys - 1 of the row, though the twin may hold more */
    const uint8_t *mask; /* [n_keys], 0 = hidden; NULL = all are seen */
    float scale;         /* of every score */
    float soft_cap;      /* 0 = none; else a score s becomes soft_cap * tanh(s / soft_cap) */
    const float *sink;   /* a learned logit that takes its share of the softmax and has no value; NULL = none */
};

/* All pointers are mandatory unless their comment says what NULL means. */
struct sennit_conformance {
    size_t struct_bytes; /* sizeof(struct sennit_conformance) */
    const struct sennit_family *family;

    /* Geometries. The suite draws heads (1 to 8), groups (1 to 8), head dimensions (1 to 256) and page sizes, small
     * ones in nine draws of ten; dimensions are multiples of d_multiple (0 = any). With SENNIT_FIELDS_TYPES k_type
     * and v_type are one of F32, F16, BF16. geometry may change the heads, dimensions and types that were drawn, and
     * sets k_bits, v_bits and group; it depends on its arguments alone. Afterwards the suite may lower heads and
     * dimensions (to multiples of d_multiple). NULL: they stay as drawn. */
    uint32_t d_multiple;
    void (*geometry)(uint64_t random, struct sennit_family_geometry *g);

    /* The textbook twin: one row, all its tokens in a list. It shares no code with the family. */
    void *(*create)(const struct sennit_family_geometry *g, uint32_t group); /* g is borrowed; never NULL */
    void (*release)(void *twin);
    void (*append)(void *twin, const float *k,
                   const float *v);             /* [n_kv_heads][d_k], [n_kv_heads][d_v] of one token */
    void (*cut)(void *twin, uint64_t n_tokens); /* forgets the tokens from n_tokens on */
    /* Output of one query into out [d_v]; 0 where nothing is seen and there is no sink. Returns the largest absolute
     * error that f32 arithmetic can explain, given what the family stores. sennit_textbook_attend does both, from
     * keys and values in double. */
    double (*attend)(const void *twin, const struct sennit_twin_query *query, double *out);

    /* One token's stored state in a form that does not depend on the page size: token_bytes(g) bytes, out of the
     * spans of its page (family->n_spans, in their order) and its slot in it. No two states may look the same. */
    size_t (*token_bytes)(const struct sennit_family_geometry *g);
    void (*token)(const struct sennit_family_geometry *g, const struct sennit_span_view *spans, uint32_t slot,
                  uint8_t *out);

    /* Wrong families of the same name, which the twin alone must catch (--wrong N): variant 1, 2 ... and in *what the
     * fault; NULL past the last. At least three make sure that the twin looks. NULL: there are none. */
    const struct sennit_family *(*wrong)(unsigned variant, const char **what);
};

/* What the shared object exports: NULL-terminated. */
#define SENNIT_CONFORMANCE_EXPORT SENNIT_API
typedef const struct sennit_conformance *const *(*sennit_conformance_entry)(void);
#define SENNIT_CONFORMANCE_ENTRY "sennit_conformance_families"
SENNIT_CONFORMANCE_EXPORT const struct sennit_conformance *const *sennit_conformance_families(void);

/* softmax(scale * q K^T) V in double, for a twin's attend. Key j is at k + j * k_stride [d_k], value j at
 * v + j * v_stride [d_v]: what the family's storage makes of them, rounded as its format says.
 *
 * The bound that it returns, with u = 2^-24: a score is a chain of d_k fused steps on a query that was rounded once,
 * so its error is at most (d_k + 2) u sum|q k|; a soft cap adds a few u of the cap, and never steepens. A weight
 * exp(s - m) is off by twice that, relatively, and by 4u for exp. Sums over n keys, with a rescale per chunk and
 * segment, add (n + n / 16 + 40) u. The same again for the denominator. It is for families whose load_chunk gives the
 * stored numbers exactly; one that rounds in load_chunk adds its own share. */
static inline double sennit_textbook_attend(const struct sennit_twin_query *query, size_t d_k, size_t d_v,
                                            const double *k, size_t k_stride, const double *v, size_t v_stride,
                                            double *out)
{
    double u = ldexp(1.0, -24), cap = query->soft_cap, top = query->sink ? *query->sink : -INFINITY;
    double sum = query->sink ? 1 : 0, size = 0, largest = 0, score_error, relative;
    size_t d;
    uint64_t j;
    for (d = 0; d < d_v; d++)
        out[d] = 0;
    for (j = 0; j < query->n_keys; j++) {
        double s = 0, magnitude = 0, keep, p;
        if (query->mask && !query->mask[j])
            continue;
        for (d = 0; d < d_k; d++) {
            double x = (double)query->q[d] * query->scale * k[j * k_stride + d];
            s += x;
            magnitude += fabs(x);
        }
        s = cap != 0 ? cap * tanh(s / cap) : s;
        size = magnitude > size ? magnitude : size;
        if (s > top) { /* everything so far is measured against the largest score so far */
            keep = exp(top - s);
            sum *= keep;
            for (d = 0; d < d_v; d++)
                out[d] *= keep;
            top = s;
        }
        p = exp(s - top);
        sum += p;
        for (d = 0; d < d_v; d++) {
            double x = v[j * v_stride + d];
            out[d] += p * x;
            largest = fabs(x) > largest ? fabs(x) : largest;
        }
    }
    for (d = 0; d < d_v; d++)
        out[d] = sum > 0 ? out[d] / sum : 0;
    score_error = ((double)d_k + 2) * u * size + 8 * u * cap;
    relative = 2 * score_error + 4 * u + ((double)query->n_keys + (double)query->n_keys / 16 + 40) * u;
    return 2 * relative * (1 + relative) * largest + 1e-37;
}

#ifdef __cplusplus
}
#endif
#endif
