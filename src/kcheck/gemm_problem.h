/* Matrix products to check: weights as a file has them, the packed form, activations in the form
 * the type needs. All memory belongs to the current case of kcheck. */
#ifndef SN_GEMM_PROBLEM_H
#define SN_GEMM_PROBLEM_H

#include "kcheck/kcheck.h"

enum sn_problem_style {
    SN_PROBLEM_PLAIN,   /* ordinary values */
    SN_PROBLEM_EXTREME, /* codes at the ends of their range, -128 among them, with +-127: overflow
                           shows */
    SN_PROBLEM_FAULTS /* infinities, NaN, zeros and subnormals in scales, weights and activations */
};

struct sn_problem {
    size_t n_rows, row_bytes;
    uint8_t *file; /* [n_out] rows of row_bytes, the layout of a GGUF file */
    float *x; /* [n_rows][n_in]; NULL when the codes were drawn directly (EXTREME, quantized) */
    struct sn_weights w;
    struct sn_acts acts;
};

bool sn_problem_quantized(sennit_type type);

/* Draws a problem. n_in must suit the type. Activations are coded by the reference kernels. */
void sn_problem_init(struct kcheck *c, struct sn_problem *p, sennit_type type, size_t n_in,
                     size_t n_out, size_t n_rows, enum sn_problem_style style);

/* The parts, for checks that set values of their own. */
void sn_problem_weights(struct kcheck *c, struct sn_problem *p, sennit_type type, size_t n_in,
                        size_t n_out, enum sn_problem_style style); /* fills p->file */
void sn_problem_pack(struct kcheck *c, struct sn_problem *p);
void sn_problem_acts(struct kcheck *c, struct sn_problem *p, size_t n_rows,
                     enum sn_problem_style style);
/* Activations of rows first .. first + n - 1 of p->x alone, as rows 0 .. n - 1. */
struct sn_acts sn_problem_code(struct kcheck *c, const struct sn_problem *p, size_t first,
                               size_t n);

/* Writes codes [n_blocks * 32] into one row of quantized activations, every block with scale d. */
void sn_problem_set_codes(struct sn_acts *x, size_t row, const int8_t *codes, float d);

/* Runs a product into a new guarded buffer [n_rows][ldy]. */
float *sn_problem_run(struct kcheck *c, const struct sn_kernels *k, const struct sn_problem *p,
                      const struct sn_acts *x, size_t panel, size_t n_panels, size_t row,
                      size_t n_rows, size_t ldy);

#endif
