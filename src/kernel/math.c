#include "kernel/math.h"

#include <stdbool.h>

#include "kernel/elementary.h"

float sn_expf(float x)
{
    return sn_exp_inline(x);
}
float sn_tanhf(float x)
{
    return sn_tanh_inline(x);
}
float sn_erff(float x)
{
    return sn_erf_inline(x);
}

/* ---- double ---------------------------------------------------------------------------------- */

static double from_bits(uint64_t u)
{
    double d;
    memcpy(&d, &u, sizeof d);
    return d;
}

static uint64_t to_bits(double d)
{
    uint64_t u;
    memcpy(&u, &d, sizeof u);
    return u;
}

/* ln 2 in two parts (fdlibm): n * LN2_HI is exact for |n| < 2^20. */
#define LN2_HI 6.93147180369123816490e-01
#define LN2_LO 1.90821492927058770002e-10

/* exp(x + lo) for |lo| far below 1. x: -746 .. 710. Taylor series of degree 13 on |r| <= ln(2) / 2.
 */
static double exp_core(double x, double lo)
{
    double n = rint(x * 1.44269504088896340736);
    double r = fma(n, -LN2_HI, x);
    double rl = fma(n, -LN2_LO, lo);
    double r0 = r;
    r = r0 + rl;
    rl = (r0 - r) + rl;
    static const double c[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800,
                               1.0 / 362880,     1.0 / 40320,     1.0 / 5040,     1.0 / 720,
                               1.0 / 120,        1.0 / 24,        1.0 / 6,        1.0 / 2};
    double p = c[0];
    for (int i = 1; i < 12; i++)
        p = fma(p, r, c[i]);
    p = fma(p, r * r, fma(r, rl, rl)); /* exp(r + rl) - 1 - r */
    p = 1.0 + (r + p);
    /* 2^n in two normal factors, so that subnormal results are rounded once. */
    int k = (int)n, half = k / 2;
    double s1 = from_bits((uint64_t)(1023 + half) << 52),
           s2 = from_bits((uint64_t)(1023 + k - half) << 52);
    return p * s1 * s2;
}

double sn_exp(double x)
{
    if (x != x)
        return x;
    if (x > 709.79)
        return (double)INFINITY;
    if (x < -745.2)
        return 0.0;
    return exp_core(x, 0.0);
}

/* hi + lo = ln(x) for finite x > 0, to about 2^-65 relative. x = 2^k m, m in [sqrt(1/2), sqrt(2)),
 * s = (m - 1) / (m + 1) as a pair, ln(m) = 2 (s + s^3/3 + s^5/5 + ...), the first two terms as
 * pairs. */
static void ln_pair(double x, double *hi, double *lo)
{
    int k = 0;
    if (x < 0x1p-1022) {
        x *= 0x1p54;
        k = -54;
    }
    uint64_t u = to_bits(x);
    k += (int)(u >> 52) - 1023;
    double m = from_bits((u & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
    if (m > 1.41421356237309504880) {
        m *= 0.5;
        k++;
    }
    double f = m - 1.0, g = m + 1.0, g_lo = m - (g - 1.0);
    double s = f / g, s_lo = (fma(-s, g, f) - s * g_lo) / g;
    double z = s * s, z_lo = fma(s, s, -z) + 2.0 * s * s_lo;
    double t = 1.0 / 29;
    for (int i = 27; i >= 5; i -= 2)
        t = fma(t, z, 1.0 / i);
    t *= z * z;
    const double third = 1.0 / 3, third_lo = 1.0 / 3 * 0x1p-54; /* 1/3 = third * (1 + 2^-54) */
    double q = z * third, q_lo = fma(z, third, -q) + (z * third_lo + z_lo * third) + t;
    double w = s * q, w_lo = fma(s, q, -w) + (s * q_lo + s_lo * q);
    double a = s + w, a_lo = ((s - a) + w) + (w_lo + s_lo);
    double n = (double)k, h = n * LN2_HI, b = 2.0 * a;
    double sum = h + b, v = sum - h;
    double sum_lo = (h - (sum - v)) + (b - v);
    sum_lo += 2.0 * a_lo + n * LN2_LO;
    *hi = sum + sum_lo;
    *lo = (sum - *hi) + sum_lo;
}

double sn_ln(double x)
{
    if (x != x || x == (double)INFINITY)
        return x;
    if (x < 0)
        return (double)NAN;
    if (x == 0)
        return -(double)INFINITY;
    double hi, lo;
    ln_pair(x, &hi, &lo);
    return hi;
}

double sn_pow(double x, double y)
{
    if (y == 0 || x == 1)
        return 1.0;
    if (x != x || y != y)
        return x != x ? x : y;
    if (x < 0)
        return (double)NAN;
    if (x == 0 || x == (double)INFINITY)
        return (x == 0) == (y < 0) ? (double)INFINITY : 0.0;
    double hi, lo;
    if (y == (double)INFINITY || y == -(double)INFINITY)
        return (x > 1) == (y > 0) ? (double)INFINITY : 0.0;
    ln_pair(x, &hi, &lo);
    double p = y * hi;
    if (p > 709.79)
        return (double)INFINITY;
    if (p < -745.2)
        return 0.0;
    return exp_core(p, fma(y, hi, -p) + y * lo);
}

/* fdlibm's kernels on |x| <= pi/4 with a tail. */
static double sin_core(double x, double tail)
{
    double z = x * x, v = z * x;
    double r = fma(z, 1.58969099521155010221e-10, -2.50507602534068634195e-08);
    r = fma(z, r, 2.75573137070700676789e-06);
    r = fma(z, r, -1.98412698298579493134e-04);
    r = fma(z, r, 8.33333333332248946124e-03);
    return x - ((z * (0.5 * tail - v * r) - tail) - v * -1.66666666666666324348e-01);
}

static double cos_core(double x, double tail)
{
    double z = x * x;
    double r = fma(z, -1.13596475577881948265e-11, 2.08757232129817482790e-09);
    r = fma(z, r, -2.75573143513906633035e-07);
    r = fma(z, r, 2.48015872894767294178e-05);
    r = fma(z, r, -1.38888888888741095749e-03);
    r = fma(z, r, 4.16666666666666019037e-02);
    double h = 0.5 * z, w = 1.0 - h;
    return w + (((1.0 - w) - h) + (z * (z * r) - x * tail));
}

void sn_sincos(double x, double *sin_out, double *cos_out)
{
    if (!(fabs(x) <= 0x1p40)) {
        *sin_out = *cos_out = (double)NAN;
        return;
    }
    /* pi/2 = P1 + P2 + P3. n * P1 and x are multiples of the same power of two and cancel exactly
     * in the fma. */
    const double P1 = 0x1.921fb54442d18p+0, P2 = 0x1.1a62633145c07p-54,
                 P3 = -0x1.f1976b7ed8fbcp-110;
    double n = rint(x * 0.63661977236758134308);
    double a = fma(-n, P1, x), w = n * P2, w_lo = fma(n, P2, -w) + n * P3;
    double r = a - w, v = a - r;
    double tail = ((a - (r + v)) + (v - w)) - w_lo;
    double h = r + tail;
    tail = (r - h) + tail;
    double s = sin_core(h, tail), c = cos_core(h, tail);
    switch ((long long)n & 3) {
    case 0:
        *sin_out = s, *cos_out = c;
        break;
    case 1:
        *sin_out = c, *cos_out = -s;
        break;
    case 2:
        *sin_out = -s, *cos_out = -c;
        break;
    default:
        *sin_out = -c, *cos_out = s;
    }
}

/* ---- f32 through double
 * ------------------------------------------------------------------------------------------ */

float sn_logf(float x)
{
    return (float)sn_ln((double)x);
}

float sn_log1pf(float x)
{
    if (!(x > -1.0f) || x == INFINITY)
        return x != x || x == INFINITY ? x : x == -1.0f ? -INFINITY : NAN;
    double d = (double)x, u = 1.0 + d;
    if (u == 1.0)
        return x;
    return (float)(sn_ln(u) * (d / (u - 1.0))); /* the factor undoes the rounding of 1 + x */
}

float sn_powf(float x, float y)
{
    return (float)sn_pow((double)x, (double)y);
}
