/* Recurrent layers: sizes that are no multiple of anything, states updated in place and not, faults; the state
 * updates against the formulas in double. */
#include <math.h>

#include "kcheck/kcheck.h"

static const size_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 48, 64, 65, 100, 128, 256};

static size_t n_lengths(const struct kcheck *c)
{
    return c->opts->quick ? 12 : SN_ARRAY_LEN(lengths);
}

/* ---- convolution ----------------------------------------------------------------------------------------------- */

static void conv_case(struct kcheck *c, size_t n, size_t n_taps, enum kcheck_shape shape)
{
    const float *x[8];
    size_t ldw = n + kcheck_below(&c->rng, 2) * 3;
    for (size_t j = 0; j < n_taps; j++)
        x[j] = kcheck_f32(c, n, shape);
    bool in_place = kcheck_below(&c->rng, 2), silu = kcheck_below(&c->rng, 2), bias = kcheck_below(&c->rng, 2);
    struct sn_conv_args a = {.x = x, .ldw = ldw, .n_taps = n_taps, .n = n, .silu = silu};
    a.w = kcheck_f32(c, (n_taps - 1) * ldw + n, shape == KC_BITS ? KC_BITS : KC_NORMAL);
    a.bias = kcheck_f32(c, n, KC_NORMAL);
    if (!bias)
        a.bias = NULL;
    float *y[2];
    for (size_t side = 0; side < 2; side++) {
        y[side] = kcheck_out(c, 4 * n, 4);
        a.y = y[side];
        if (in_place) {
            memcpy(a.y, x[n_taps - 1], 4 * n);
            const float *last = x[n_taps - 1];
            x[n_taps - 1] = a.y;
            (side ? c->dut : c->ref)->conv(&a);
            x[n_taps - 1] = last;
        } else {
            (side ? c->dut : c->ref)->conv(&a);
        }
    }
    kcheck_same_f32(c, y[0], y[1], n, "n=%zu taps %zu silu %d bias %d in place %d", n, n_taps, silu, bias, in_place);
    kcheck_end_case(c);
}

static void l2_case(struct kcheck *c, size_t n, enum kcheck_shape shape)
{
    float *x = kcheck_f32(c, n, shape), *want = kcheck_out(c, 4 * n, 4), *got = kcheck_out(c, 4 * n, 4);
    c->ref->l2_norm(x, n, 1e-6f, want);
    memcpy(got, x, 4 * n);
    c->dut->l2_norm(n % 2 ? got : x, n, 1e-6f, got);
    kcheck_same_f32(c, want, got, n, "n=%zu shape %d", n, (int)shape);
    kcheck_end_case(c);
}

/* ---- states ---------------------------------------------------------------------------------------------------- */

static float unit_in(struct kcheck *c) /* 0 .. 1 */
{
    return kcheck_unit(&c->rng) * 0.5f + 0.5f;
}

/* |want - got| <= 1e-4 (size + |want|). */
static void near(struct kcheck *c, double want, float got, double size, const char *what)
{
    double error = fabs(want - (double)got);
    kcheck_expect(c, error <= 1e-4 * (size + fabs(want)), "%s %g, the formula %g", what, (double)got, want);
}

static void delta_formula(struct kcheck *c, const struct sn_delta_args *a)
{
    for (size_t i = 0; i < 16; i++) {
        double e = a->v[i], o = 0, size = fabs(e);
        for (size_t j = 0; j < a->d_state; j++) {
            double part = (double)a->decay * (double)a->from[j * 16 + i] * (double)a->k[j];
            e -= part;
            size += fabs(part);
        }
        double most = 0;
        for (size_t j = 0; j < a->d_state; j++) {
            double s = (double)a->decay * (double)a->from[j * 16 + i] + (double)a->beta * e * (double)a->k[j];
            near(c, s, a->to[j * 16 + i], size, "state");
            o += s * (double)a->q[j];
            most += fabs(s * (double)a->q[j]) + size * fabs((double)a->q[j]);
        }
        near(c, o, a->out[i], most, "output");
    }
}

static void delta_case(struct kcheck *c, size_t d, enum kcheck_shape shape)
{
    struct sn_delta_args a = {.d_state = d, .from = kcheck_f32(c, d * 16, shape)};
    a.k = kcheck_f32(c, d, KC_NORMAL);
    a.q = kcheck_f32(c, d, KC_NORMAL);
    a.v = kcheck_f32(c, 16, shape);
    a.decay = unit_in(c);
    a.beta = unit_in(c);
    float *to[2], *out[2];
    for (size_t side = 0; side < 2; side++) {
        a.to = to[side] = kcheck_out(c, 4 * d * 16, 4);
        a.out = out[side] = kcheck_out(c, 4 * 16, 4);
        (side ? c->dut : c->ref)->delta_step(&a);
        if (side == 0 && shape == KC_NORMAL)
            delta_formula(c, &a);
    }
    kcheck_same_f32(c, to[0], to[1], d * 16, "state, d=%zu shape %d", d, (int)shape);
    kcheck_same_f32(c, out[0], out[1], 16, "out, d=%zu shape %d", d, (int)shape);
    a.to = kcheck_out(c, 4 * d * 16, 4);
    memcpy(a.to, a.from, 4 * d * 16);
    a.from = a.to; /* in place */
    c->dut->delta_step(&a);
    kcheck_same_f32(c, to[0], a.to, d * 16, "state in place, d=%zu shape %d", d, (int)shape);
    kcheck_end_case(c);
}

static void ssm_formula(struct kcheck *c, const struct sn_ssm_args *a)
{
    for (size_t i = 0; i < a->n_blocks * 16; i++) {
        size_t at = i / 16 * a->d_state * 16 + i % 16;
        double y = 0, size = 0;
        for (size_t n = 0; n < a->d_state; n++) {
            double part = (double)a->dt * (double)a->x[i] * (double)a->b[n];
            double h = (double)a->decay * (double)a->from[at + n * 16] + part;
            near(c, h, a->to[at + n * 16], fabs(part), "state");
            y += h * (double)a->c[n];
            size += (fabs(h) + fabs(part)) * fabs((double)a->c[n]);
        }
        double skip = a->skip ? (double)*a->skip * (double)a->x[i] : 0;
        near(c, y + skip, a->out[i], size + fabs(skip), "output");
    }
}

static void ssm_case(struct kcheck *c, size_t d, size_t n_blocks, enum kcheck_shape shape)
{
    size_t n = n_blocks * 16 * d;
    struct sn_ssm_args a = {.d_state = d, .n_blocks = n_blocks, .from = kcheck_f32(c, n, shape)};
    a.b = kcheck_f32(c, d, KC_NORMAL);
    a.c = kcheck_f32(c, d, KC_NORMAL);
    a.x = kcheck_f32(c, n_blocks * 16, shape);
    a.skip = kcheck_f32(c, 1, KC_NORMAL);
    if (d % 2)
        a.skip = NULL;
    a.dt = unit_in(c);
    a.decay = unit_in(c);
    float *to[2], *out[2];
    for (size_t side = 0; side < 2; side++) {
        a.to = to[side] = kcheck_out(c, 4 * n, 4);
        a.out = out[side] = kcheck_out(c, 64 * n_blocks, 4);
        (side ? c->dut : c->ref)->ssm_step(&a);
        if (side == 0 && shape == KC_NORMAL)
            ssm_formula(c, &a);
    }
    kcheck_same_f32(c, to[0], to[1], n, "state, d=%zu blocks %zu shape %d", d, n_blocks, (int)shape);
    kcheck_same_f32(c, out[0], out[1], n_blocks * 16, "out, d=%zu blocks %zu shape %d", d, n_blocks, (int)shape);
    a.to = kcheck_out(c, 4 * n, 4);
    memcpy(a.to, a.from, 4 * n);
    a.from = a.to; /* in place */
    c->dut->ssm_step(&a);
    kcheck_same_f32(c, to[0], a.to, n, "state in place, d=%zu blocks %zu shape %d", d, n_blocks, (int)shape);
    kcheck_end_case(c);
}

void kcheck_check_recur(struct kcheck *c)
{
    static const enum kcheck_shape shapes[] = {KC_NORMAL, KC_NORMAL, KC_EDGES, KC_WIDE};
    size_t n_repeats = c->opts->long_run ? 30 : 1;
    for (int slot = 0; slot < 4; slot++) {
        static const enum sn_kernel_id ids[] = {SN_K_conv, SN_K_l2_norm, SN_K_delta_step, SN_K_ssm_step};
        if (!kcheck_begin(c, ids[slot]))
            continue;
        for (size_t r = 0; r < n_repeats; r++)
            for (size_t i = 0; i < n_lengths(c); i++)
                for (size_t s = 0; s < SN_ARRAY_LEN(shapes); s++) {
                    for (size_t taps = 1; slot == 0 && taps <= 5; taps++)
                        conv_case(c, lengths[i], taps, shapes[s]);
                    if (slot == 1)
                        l2_case(c, lengths[i], shapes[s]);
                    if (slot == 2)
                        delta_case(c, lengths[i], shapes[s]);
                    if (slot == 3)
                        ssm_case(c, lengths[i], 1 + (i + s) % 9, shapes[s]);
                }
    }
}

/* ---- speed ----------------------------------------------------------------------------------------------------- */

enum { D = 128, N_HEADS = 64, N_CHANNELS = 8192 };

struct timed {
    const struct sn_kernels *k;
    size_t at, n_states;
    _Alignas(64) float state[N_HEADS][4 * D * 16];
    _Alignas(64) float vectors[5][N_CHANNELS];
};

static void run_delta(void *arg)
{
    struct timed *t = arg;
    float *s = t->state[t->at = (t->at + 1) % t->n_states];
    t->k->delta_step(&(struct sn_delta_args){.from = s,
                                             .to = s,
                                             .d_state = D,
                                             .k = t->vectors[0],
                                             .q = t->vectors[1],
                                             .v = t->vectors[2],
                                             .decay = 0.5f,
                                             .beta = 0.5f,
                                             .out = t->vectors[3]});
}

static void run_ssm(void *arg)
{
    struct timed *t = arg;
    float *s = t->state[t->at = (t->at + 1) % t->n_states];
    t->k->ssm_step(&(struct sn_ssm_args){.from = s,
                                         .to = s,
                                         .n_blocks = 4,
                                         .d_state = D,
                                         .b = t->vectors[0],
                                         .c = t->vectors[1],
                                         .x = t->vectors[2],
                                         .dt = 0.5f,
                                         .decay = 0.5f,
                                         .out = t->vectors[3]});
}

static void run_conv(void *arg)
{
    struct timed *t = arg;
    const float *x[] = {t->vectors[0], t->vectors[1], t->vectors[2], t->vectors[3]};
    t->k->conv(&(struct sn_conv_args){
        .x = x, .w = t->state[0], .ldw = 1024, .n_taps = 4, .n = 1024, .silu = true, .y = t->vectors[4]});
}

static void run_l2(void *arg)
{
    struct timed *t = arg;
    t->k->l2_norm(t->vectors[0], D, 1e-6f, t->vectors[4]);
}

void kcheck_bench_recur(struct kcheck *c)
{
    static struct timed t;
    t.k = c->dut;
    kcheck_fill(&c->rng, t.vectors[0], 5 * N_CHANNELS, KC_NORMAL);
    for (t.n_states = 1; t.n_states <= N_HEADS; t.n_states += N_HEADS - 1) {
        const char *what = t.n_states == 1 ? "d 128, state in cache" : "d 128, 64 states in turn";
        if (kcheck_wanted(c, SN_K_delta_step))
            kcheck_time(c, SN_K_delta_step, what, 7.0 * D * 16, "GFLOPS", run_delta, &t);
        if (kcheck_wanted(c, SN_K_ssm_step))
            kcheck_time(c, SN_K_ssm_step, what, 5.0 * 4 * D * 16, "GFLOPS", run_ssm, &t);
    }
    if (kcheck_wanted(c, SN_K_conv))
        kcheck_time(c, SN_K_conv, "4 taps, 1024 channels, SiLU", 1024, "G/s", run_conv, &t);
    if (kcheck_wanted(c, SN_K_l2_norm))
        kcheck_time(c, SN_K_l2_norm, "n=128", D, "G/s", run_l2, &t);
}
