/* exp, tanh, erf as slots: equal bits, and accuracy against the C library's double forms (two equal
 * kernels can be equally wrong). The double functions against long double. */
#include <math.h>

#include "kcheck/kcheck.h"
#include "kernel/math.h"

enum { BATCH = 4096 };

/* Error in units of the last place of `want` in a format of `digits` bits and least exponent
 * `least`. */
static double ulps(long double got, long double want, int digits, int least)
{
    int e;
    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want) ? 0 : 1e9;
    if (isinf(got) || isinf(want))
        return got == want ? 0 : 1e9;
    frexpl(want, &e);
    e = e < least ? least : e;
    return (double)(fabsl(got - want) / ldexpl(1, e - digits));
}

static double ulps_f32(float got, double want)
{
    if (fabs(want) > (double)FLT_MAX && isinf(got))
        return (want > 0) == (got > 0) ? 0 : 1e9;
    return ulps((long double)got, (long double)want, 24, -125);
}

static double ulps_f64(double got, long double want)
{
    if (fabsl(want) > (long double)DBL_MAX && isinf(got))
        return (want > 0) == (got > 0) ? 0 : 1e9;
    return ulps((long double)got, want, 53, -1021);
}

static float from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static double want_exp(double x)
{
    double lo = (double)SN_EXP_LO, hi = (double)SN_EXP_HI;
    return exp(x < lo ? lo : x > hi ? hi : x);
}

struct function {
    enum sn_kernel_id id;
    double (*want)(double x);
    double bound; /* ulp */
};

static sn_unary_fn slot_of(const struct sn_kernels *k, enum sn_kernel_id id)
{
    return id == SN_K_exp ? k->exp : id == SN_K_tanh ? k->tanh : k->erf;
}

/* Equal bits, error and monotony over inputs 0, step, 2 step ... < 2^32, taken as bit patterns:
 * from +0 up to infinity, through the NaN, from -0 down. */
static void sweep(struct kcheck *c, const struct function *f, uint64_t step)
{
    static float x[BATCH], want[BATCH], got[BATCH];
    double worst = 0;
    float worst_at = 0, last = NAN;
    uint64_t n_falls = 0;
    for (uint64_t u = 0; u < 0x100000000ull;) {
        size_t n = 0;
        for (; n < BATCH && u < 0x100000000ull; u += step)
            x[n++] = from_bits((uint32_t)u);
        slot_of(c->ref, f->id)(x, n, want);
        slot_of(c->dut, f->id)(x, n, got);
        kcheck_same_f32(c, want, got, n, "bits up to 0x%08llX step %llu", (unsigned long long)u,
                        (unsigned long long)step);
        for (size_t i = 0; i < n; i++) {
            double e = ulps_f32(got[i], f->want((double)x[i]));
            if (e > worst) {
                worst = e;
                worst_at = x[i];
            }
            n_falls += signbit(x[i]) ? got[i] > last : got[i] < last;
            last = x[i] == 0 ? got[i] : got[i]; /* a NaN compares false with its neighbours */
        }
        last = n && x[n - 1] != x[n - 1] ? NAN : last;
    }
    kcheck_expect(c, worst <= f->bound, "error %.3f ulp at %a, bound %.3f", worst, (double)worst_at,
                  f->bound);
    kcheck_note(c, "error at most %.3f ulp (bound %.2f); %llu steps against the direction", worst,
                f->bound, (unsigned long long)n_falls);
    if (f->id == SN_K_exp)
        kcheck_expect(c, n_falls == 0, "exp to be monotone");
}

static void tails(struct kcheck *c, enum sn_kernel_id id)
{
    size_t n_repeats = c->opts->quick ? 1 : 10;
    for (size_t n = 0; n <= 65; n++)
        for (size_t i = 0; i < 4 * n_repeats; i++) {
            const float *x = kcheck_f32(c, n, (enum kcheck_shape)(i % 4));
            float *want = kcheck_out(c, 4 * n, 4), *got = kcheck_out(c, 4 * n, 4);
            slot_of(c->ref, id)(x, n, want);
            slot_of(c->dut, id)(x, n, got);
            kcheck_same_f32(c, want, got, n, "n=%zu", n);
            float *in_place = kcheck_out(c, 4 * n, 4);
            if (n)
                memcpy(in_place, x, 4 * n);
            slot_of(c->dut, id)(in_place, n, in_place);
            kcheck_same_f32(c, want, in_place, n, "n=%zu in place", n);
            kcheck_end_case(c);
        }
}

void kcheck_check_math(struct kcheck *c)
{
    static const struct function functions[] = {
        {SN_K_exp, want_exp, 1.5}, {SN_K_tanh, tanh, 2.0}, {SN_K_erf, erf, 1.5}};
    for (size_t i = 0; i < SN_ARRAY_LEN(functions); i++) {
        if (!kcheck_begin(c, functions[i].id))
            continue;
        tails(c, functions[i].id);
        uint64_t step = c->opts->long_run ? 1 : c->opts->quick ? 60013 : 1009;
        if (strcmp(c->level, "golden") != 0)
            sweep(c, &functions[i], step);
    }
}

/* ---- functions that are not slots
 * ------------------------------------------------------------------------------ */

static double unit(struct kcheck_rng *r)
{
    return (double)(kcheck_u64(r) >> 11) * 0x1p-53;
}

static void worst_of(double *worst, double *at, double e, double x)
{
    if (e > *worst) {
        *worst = e;
        *at = x;
    }
}

static void report(struct kcheck *c, const char *name, double worst, double at, double bound,
                   const char *unit_name)
{
    kcheck_expect(c, worst <= bound, "%s error %.3g %s at %a, bound %.3g", name, worst, unit_name,
                  at, bound);
    fprintf(c->opts->out ? c->opts->out : stdout,
            "  %-18s %-11s error at most %.3g %s (bound %.3g)\n", name, c->level, worst, unit_name,
            bound);
}

static void accuracy_f64(struct kcheck *c, size_t n)
{
    double e_exp = 0, e_ln = 0, e_pow = 0, e_sin = 0, at[4] = {0};
    for (size_t i = 0; i < n; i++) {
        double x = unit(&c->rng) * 1460 - 748;
        worst_of(&e_exp, &at[0], ulps_f64(sn_exp(x), expl((long double)x)), x);
        uint64_t u = kcheck_u64(&c->rng) >> 1;
        memcpy(&x, &u, sizeof x);
        if (i % 2)
            x = 0.5 + unit(&c->rng);
        if (isfinite(x) && x > 0) {
            worst_of(&e_ln, &at[1], ulps_f64(sn_ln(x), logl((long double)x)), x);
            double y = (unit(&c->rng) * 2 - 1) * (i % 4 < 2 ? 720 / fabs(log(x)) : 10);
            worst_of(&e_pow, &at[2], ulps_f64(sn_pow(x, y), powl((long double)x, (long double)y)),
                     x);
        }
        x = (unit(&c->rng) - 0.5) * ldexp(1, (int)kcheck_below(&c->rng, 42));
        if (i % 2)
            x = rint(x) * 1.57079632679489661923; /* next to the zeros */
        if (fabs(x) < 0x1p40) {
            double s, k;
            sn_sincos(x, &s, &k);
            worst_of(&e_sin, &at[3], (double)fabsl((long double)s - sinl((long double)x)), x);
            worst_of(&e_sin, &at[3], (double)fabsl((long double)k - cosl((long double)x)), x);
        }
    }
    report(c, "sn_exp", e_exp, at[0], 1.5, "ulp");
    report(c, "sn_ln", e_ln, at[1], 1.0, "ulp");
    report(c, "sn_pow", e_pow, at[2], 2.0, "ulp");
    report(c, "sn_sincos", e_sin, at[3], 1e-15, "absolute");
}

static void accuracy_f32(struct kcheck *c, uint64_t step)
{
    double e[6] = {0}, at[6] = {0};
    for (uint64_t u = 0; u < 0x100000000ull; u += step) {
        float x = from_bits((uint32_t)u);
        double d = (double)x;
        worst_of(&e[0], &at[0], ulps_f32(sn_expf(x), want_exp(d)), d);
        worst_of(&e[1], &at[1], ulps_f32(sn_tanhf(x), tanh(d)), d);
        worst_of(&e[2], &at[2], ulps_f32(sn_erff(x), erf(d)), d);
        worst_of(&e[3], &at[3], ulps_f32(sn_logf(x), log(d)), d);
        worst_of(&e[4], &at[4], ulps_f32(sn_log1pf(x), log1p(d)), d);
        float y = kcheck_unit(&c->rng) * 20;
        if (!(x < 0) && !signbit(x))
            worst_of(&e[5], &at[5], ulps_f32(sn_powf(x, y), pow(d, (double)y)), d);
    }
    static const char *const names[] = {"sn_expf", "sn_tanhf",  "sn_erff",
                                        "sn_logf", "sn_log1pf", "sn_powf"};
    static const double bounds[] = {1.5, 2.0, 1.5, 0.51, 0.51, 0.51};
    for (size_t i = 0; i < SN_ARRAY_LEN(names); i++)
        report(c, names[i], e[i], at[i], bounds[i], "ulp");
}

static void special_values(struct kcheck *c)
{
    double s, k, inf = (double)INFINITY, nan = (double)NAN;
    sn_sincos(inf, &s, &k);
    kcheck_expect(c, isnan(s) && isnan(k), "sincos(inf) to be NaN");
    sn_sincos(nan, &s, &k);
    kcheck_expect(c, isnan(s) && isnan(k), "sincos(NaN) to be NaN");
    sn_sincos(0, &s, &k);
    kcheck_expect(c, s == 0 && k == 1, "sincos(0) to be 0, 1");
    kcheck_expect(c, sn_ln(0) == -inf && isnan(sn_ln(-1)) && isnan(sn_ln(nan)) && sn_ln(inf) == inf,
                  "ln's edges");
    kcheck_expect(c, sn_exp(-inf) == 0 && sn_exp(inf) == inf && isnan(sn_exp(nan)), "exp's edges");
    kcheck_expect(c,
                  sn_pow(0, 2) == 0 && sn_pow(0, -1) == inf && sn_pow(2, 10) == 1024 &&
                      sn_pow(inf, -1) == 0 && sn_pow(0.5, inf) == 0 && sn_pow(0.5, -inf) == inf &&
                      sn_pow(nan, 0) == 1 && isnan(sn_pow(nan, 1)) && isnan(sn_pow(2, nan)) &&
                      isnan(sn_pow(-1, 2)),
                  "pow's edges");
    kcheck_expect(c,
                  sn_logf(0) == -INFINITY && isnan(sn_logf(-1)) && sn_log1pf(-1) == -INFINITY &&
                      isnan(sn_log1pf(-2)) && isnan(sn_log1pf(NAN)) &&
                      sn_log1pf(INFINITY) == INFINITY,
                  "logf's and log1pf's edges");
    kcheck_expect(c,
                  sn_expf(0) == 1 && sn_expf(-0.0f) == 1 && sn_expf(1e30f) == sn_expf(INFINITY) &&
                      sn_expf(-1e30f) == sn_expf(-INFINITY) && sn_expf(-INFINITY) > 0 &&
                      isfinite(sn_expf(INFINITY)) && isnan(sn_expf(NAN)) && isnan(sn_expf(-NAN)),
                  "expf to saturate at both ends and to keep NaN");
    kcheck_expect(c,
                  sn_tanhf(INFINITY) == 1 && sn_tanhf(-INFINITY) == -1 && isnan(sn_tanhf(NAN)) &&
                      sn_erff(INFINITY) == 1 && sn_erff(-INFINITY) == -1 && isnan(sn_erff(NAN)) &&
                      signbit(sn_tanhf(-0.0f)) && signbit(sn_erff(-0.0f)),
                  "tanhf's and erff's edges");
    float g[3] = {-100, -INFINITY, NAN}, one[3] = {1, 1, 1}, y[3];
    c->dut->silu_mul(g, one, 3, y);
    kcheck_expect(c, y[0] <= 0 && y[0] > -1e-30f, "SiLU(-100) to be about 0, not %g", (double)y[0]);
    kcheck_expect(c, !isfinite(y[1]) && isnan(y[2]), "SiLU of a fault to stay a fault");
}

void kcheck_accuracy(struct kcheck *c)
{
    if (!kcheck_begin(c, SN_K_exp))
        return;
    special_values(c);
    accuracy_f64(c, c->opts->long_run ? 20000000 : c->opts->quick ? 5000 : 300000);
    accuracy_f32(c, c->opts->long_run ? 7 : c->opts->quick ? 600011 : 10007);
}

/* ---- speed ----------------------------------------------------------------------------------- */

struct timed {
    sn_unary_fn fn;
    float x[BATCH], y[BATCH];
};

static void run_timed(void *arg)
{
    struct timed *t = arg;
    t->fn(t->x, BATCH, t->y);
}

void kcheck_bench_math(struct kcheck *c)
{
    static const enum sn_kernel_id ids[] = {SN_K_exp, SN_K_tanh, SN_K_erf};
    static struct timed t;
    kcheck_fill(&c->rng, t.x, BATCH, KC_NORMAL);
    for (size_t i = 0; i < SN_ARRAY_LEN(ids); i++) {
        t.fn = slot_of(c->dut, ids[i]);
        if (kcheck_wanted(c, ids[i]))
            kcheck_time(c, ids[i], "n=4096", BATCH, "G/s", run_timed, &t);
    }
}
