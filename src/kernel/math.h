/* Own elementary functions: the same bits on every machine (numerics.md rule 4). Accuracy is
 * checked against double precision by kcheck; NaN in gives NaN out; the whole range is covered. f32
 * forms serve the exact path (gates, softmax, sampling); double forms make tables (RoPE angles).
 *
 * The f32 exp saturates: below SN_EXP_LO it gives exp(SN_EXP_LO), the smallest normal number
 * (1.18e-38), never 0; above SN_EXP_HI it gives exp(SN_EXP_HI) = 3.4028e38, never infinity. It is
 * monotone over all inputs. */
#ifndef SN_MATH_H
#define SN_MATH_H

#define SN_EXP_LO (-87.33654022f)
#define SN_EXP_HI 88.72283173f

float sn_expf(float x); /* the scalar form of the vector kernels: the same bits */
float sn_tanhf(float x);
float sn_erff(float x);
float sn_logf(float x);   /* through double; log(0) = -inf, log(<0) = NaN */
float sn_log1pf(float x); /* through double; -inf at -1, NaN below */
float sn_powf(
    float x,
    float y); /* through double; C's special cases for x >= 0, NaN for x < 0 (1 for y = 0) */

/* Below 2 ulp, subnormal results included. */
double sn_exp(double x);           /* 0 below -745.2, infinity above 709.8 */
double sn_ln(double x);            /* natural logarithm; ln(0) = -inf, ln(<0) = NaN */
double sn_pow(double x, double y); /* C's special cases for x >= 0, NaN for x < 0 (1 for y = 0) */
/* |x| up to 2^40: error below 1e-15 absolute. NaN beyond, and for infinities and NaN. */
void sn_sincos(double x, double *sin_out, double *cos_out);

#endif
