/* Norm, rotation, gates, sums, merging: everything that takes plain f32 rows. */
#include <math.h>

#include "kcheck/kcheck.h"

/* Sizes 0 .. 65, then some real ones. */
static size_t size_of_case(size_t i)
{
    static const size_t real[] = {80, 96, 127, 128, 256, 576, 1000, 1536, 2049};
    return i <= 65 ? i : real[i - 66];
}
enum { N_SIZES = 66 + 9 };

/* A call of any of these slots, with every operand that one of them needs. */
struct call {
    const struct sn_kernels *k;
    size_t n;
    const float *a, *b, *c; /* inputs; a and b hold n, c holds n */
    float *y;               /* 2n: output, or in and out */
    float scalar[2];        /* parameters, and results that are numbers */
};

static void call_rms_norm(struct call *t)
{
    t->k->rms_norm(t->a, t->b, t->n, t->scalar[0], t->y);
}
static void call_silu(struct call *t)
{
    t->k->silu_mul(t->a, t->b, t->n, t->y);
}
static void call_gelu_tanh(struct call *t)
{
    t->k->gelu_tanh_mul(t->a, t->b, t->n, t->y);
}
static void call_gelu_erf(struct call *t)
{
    t->k->gelu_erf_mul(t->a, t->b, t->n, t->y);
}
static void call_add(struct call *t)
{
    t->k->add(t->y, t->b, t->n);
}
static void call_soft_cap(struct call *t)
{
    t->k->soft_cap(t->y, t->n, t->scalar[0]);
}
static void call_scale(struct call *t)
{
    t->k->scale(t->y, t->n, t->scalar[0]);
}
static void call_rope_pair(struct call *t)
{
    t->k->rope_pair(t->y, t->a, t->b, t->n);
}
static void call_rope_half(struct call *t)
{
    t->k->rope_half(t->y, t->a, t->b, t->n);
}
static void call_finish(struct call *t)
{
    t->k->attn_finish(t->a, t->scalar[0], t->n, t->y);
}
static void call_max(struct call *t)
{
    t->scalar[1] = t->k->max(t->a, t->n) + 0.0f;
} /* -0 becomes +0 */
static void call_sum_exp(struct call *t)
{
    t->scalar[1] = t->k->sum_exp(t->a, t->n, t->scalar[0]);
}
static void call_finite(struct call *t)
{
    t->scalar[1] = t->k->all_finite(t->a, t->n);
}

struct row_slot {
    enum sn_kernel_id id;
    void (*call)(struct call *t);
    int n_out;        /* floats of y per n: 0, 1 or 2 */
    size_t row_bytes; /* moved per element: for the speed */
};
static const struct row_slot slots[] = {
    {SN_K_rms_norm, call_rms_norm, 1, 12},
    {SN_K_silu_mul, call_silu, 1, 12},
    {SN_K_gelu_tanh_mul, call_gelu_tanh, 1, 12},
    {SN_K_gelu_erf_mul, call_gelu_erf, 1, 12},
    {SN_K_add, call_add, 1, 12},
    {SN_K_soft_cap, call_soft_cap, 1, 8},
    {SN_K_scale, call_scale, 1, 8},
    {SN_K_rope_pair, call_rope_pair, 2, 24},
    {SN_K_rope_half, call_rope_half, 2, 24},
    {SN_K_attn_finish, call_finish, 1, 8},
    {SN_K_max, call_max, 0, 4},
    {SN_K_sum_exp, call_sum_exp, 0, 4},
    {SN_K_all_finite, call_finite, 0, 4},
};

static void one_case(struct kcheck *c, const struct row_slot *s, size_t n, enum kcheck_shape shape)
{
    size_t n_out = n * (size_t)s->n_out;
    struct call t = {.k = c->ref, .n = n};
    t.a = kcheck_in(c, kcheck_f32(c, n, shape), 4 * n, 4);
    t.b = kcheck_in(c, kcheck_f32(c, n, shape), 4 * n, 4);
    t.scalar[0] = s->id == SN_K_rms_norm   ? 1e-5f
                  : s->id == SN_K_soft_cap ? 30.0f
                                           : kcheck_unit(&c->rng) * 4;
    float *start = kcheck_f32(c, n_out, shape);
    float *want = kcheck_out(c, 4 * n_out, 4), *got = kcheck_out(c, 4 * n_out, 4);
    if (n_out) {
        memcpy(want, start, 4 * n_out);
        memcpy(got, start, 4 * n_out);
    }
    t.y = want;
    s->call(&t);
    float want_scalar = t.scalar[1];
    t.k = c->dut;
    t.y = got;
    s->call(&t);
    if (n_out)
        kcheck_same_f32(c, want, got, n_out, "n=%zu shape %d", n, (int)shape);
    else
        kcheck_same_f32(c, &want_scalar, &t.scalar[1], 1, "n=%zu shape %d", n, (int)shape);
    if (n_out && (s->id == SN_K_rms_norm || s->id == SN_K_attn_finish || s->row_bytes == 12) &&
        s->id != SN_K_add) {
        memcpy(got, t.a, 4 * n); /* the output may be the first input */
        t.a = got;
        s->call(&t);
        kcheck_same_f32(c, want, got, n, "n=%zu shape %d in place", n, (int)shape);
    }
    kcheck_end_case(c);
}

/* A fault must be found wherever it is. */
static void finite_everywhere(struct kcheck *c)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t n = 1; n <= 65; n++)
        for (size_t i = 0; i < n; i++) {
            float *x = kcheck_f32(c, n, KC_WIDE);
            kcheck_expect(c, c->dut->all_finite(x, n), "all_finite of n=%zu finite numbers", n);
            x[i] = bad[(n + i) % 3];
            kcheck_expect(c, !c->dut->all_finite(x, n), "a fault at %zu of %zu to be found", i, n);
            kcheck_end_case(c);
        }
}

/* merge: ordinary segments, empty ones on either side, NaN. */
static void check_merge(struct kcheck *c)
{
    for (size_t i = 0; i < N_SIZES; i++)
        for (size_t kind = 0; kind < (c->opts->quick ? 6u : 24u); kind++) {
            size_t n = size_of_case(i);
            const float *o2 = kcheck_in(c, kcheck_f32(c, n, KC_NORMAL), 4 * n, 4);
            float *want = kcheck_f32(c, n, kind % 6 == 5 ? KC_EDGES : KC_NORMAL),
                  *got = kcheck_out(c, 4 * n, 4);
            float m = kcheck_unit(&c->rng) * 50, m2 = kcheck_unit(&c->rng) * 50;
            float l = 1 + kcheck_unit(&c->rng), l2 = 1 + kcheck_unit(&c->rng);
            if (kind % 6 == 1 || kind % 6 == 3)
                m = -INFINITY, l = 0;
            if (kind % 6 == 2 || kind % 6 == 3)
                m2 = -INFINITY, l2 = 0;
            if (kind % 6 == 4)
                m2 = -INFINITY, l2 = NAN;
            if (n)
                memcpy(got, want, 4 * n);
            float a[2] = {m, l}, b[2] = {m, l};
            c->ref->attn_merge(&a[0], &a[1], want, m2, l2, o2, n);
            c->dut->attn_merge(&b[0], &b[1], got, m2, l2, o2, n);
            kcheck_same_f32(c, a, b, 2, "m and l, n=%zu kind %zu", n, kind);
            kcheck_same_f32(c, want, got, n, "o, n=%zu kind %zu", n, kind);
            if (kind % 6 == 4)
                kcheck_expect(c, isnan(b[1]), "a NaN segment to leave l NaN");
            kcheck_end_case(c);
        }
}

void kcheck_check_rows(struct kcheck *c)
{
    size_t n_repeats = c->opts->long_run ? 50 : c->opts->quick ? 1 : 5;
    for (size_t s = 0; s < SN_ARRAY_LEN(slots); s++) {
        if (!kcheck_begin(c, slots[s].id))
            continue;
        for (size_t r = 0; r < n_repeats; r++)
            for (size_t i = slots[s].id == SN_K_rms_norm; i < N_SIZES; i++)
                for (int shape = KC_NORMAL; shape <= KC_BITS; shape++)
                    one_case(c, &slots[s], size_of_case(i), (enum kcheck_shape)shape);
        if (slots[s].id == SN_K_all_finite)
            finite_everywhere(c);
    }
    if (kcheck_begin(c, SN_K_attn_merge))
        check_merge(c);
}

/* ---- speed ----------------------------------------------------------------------------------- */

struct timed {
    struct call call;
    void (*fn)(struct call *t);
};

static void run_timed(void *arg)
{
    struct timed *t = arg;
    t->fn(&t->call);
}

void kcheck_bench_rows(struct kcheck *c)
{
    enum { N = 1536 };
    static float a[N], b[N], y[2 * N];
    for (size_t s = 0; s < SN_ARRAY_LEN(slots); s++) {
        if (!kcheck_wanted(c, slots[s].id))
            continue;
        kcheck_fill(&c->rng, a, N, KC_NORMAL);
        kcheck_fill(&c->rng, b, N, KC_NORMAL);
        memset(y, 0, sizeof y);
        struct timed t = {{.k = c->dut, .n = N, .a = a, .b = b, .y = y, .scalar = {1.0f, 0}},
                          slots[s].call};
        kcheck_time(c, slots[s].id, "n=1536", (double)slots[s].row_bytes * N, "GB/s", run_timed,
                    &t);
    }
}
