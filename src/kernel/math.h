/* Own elementary functions: the same bits on every machine (numerics.md rule 4). Accuracy is checked against double
 * precision by kcheck; NaN in gives NaN out; the whole range is covered, exp saturates at both ends.
 * f32 forms serve the exact path (gates, softmax, sampling); double forms make tables (RoPE angles). */
#ifndef SN_MATH_H
#define SN_MATH_H

float sn_expf(float x);   /* the scalar form of the vector kernels: the same bits */
float sn_logf(float x);   /* log(0) = -inf, log(<0) = NaN */
float sn_log1pf(float x);
float sn_tanhf(float x);
float sn_erff(float x);
float sn_powf(float x, float y); /* through double; C's special cases for x >= 0 */

double sn_exp(double x);
double sn_log(double x);
double sn_pow(double x, double y); /* x > 0 */
/* |x| up to 2^40; argument reduction by a three-part pi/2, error below 1e-15 absolute for |x| < 2^30. */
void sn_sincos(double x, double *sin_out, double *cos_out);

#endif
