/* TurboQuant codes: coding of queries, keys and values, the rotation, and attention over codes of all sizes, with
 * garbage in what nobody sees. */
#include <math.h>

#include "kcheck/kcheck.h"
#include "kcheck/masks.h"
#include "kernel/turbo.h"
#include "tensor/traits.h"

enum { GROUP = SN_TURBO_GROUP, MAX_QUERIES = 32, MAX_DIM = SN_TURBO_MAX_DIM };
static const unsigned all_bits[] = {2, 4, 5, 8, 3}; /* keys have the first four */
enum { KEY_BITS = 4, VALUE_BITS = 5 };

/* Code i of a group's stream whose bytes 4j .. 4j + 3 are `stride` bytes apart. */
static unsigned code_at(const uint8_t *codes, size_t stride, unsigned bits, size_t i)
{
    unsigned x = 0;
    for (size_t bit = i * bits; bit < (i + 1) * bits; bit++)
        x |= (unsigned)(codes[bit / 32 * stride + bit / 8 % 4] >> bit % 8 & 1) << (bit - i * bits);
    return x;
}

static double key_of(unsigned code, unsigned bits, uint16_t scale, uint16_t zero)
{
    return ((double)code - (bits == 8 ? 128 : 0) + (double)sn_f16_to_f32(zero)) * (double)sn_f16_to_f32(scale);
}

/* ---- coding --------------------------------------------------------------------------------------------------- */

static void query_case(struct kcheck *c, size_t n_groups, unsigned bits, enum kcheck_shape shape)
{
    size_t n = GROUP * n_groups;
    float *x = kcheck_f32(c, n, shape);
    int8_t *codes[2];
    float *d[2], *sum[2];
    for (size_t side = 0; side < 2; side++) {
        codes[side] = kcheck_out(c, n, 1);
        d[side] = kcheck_out(c, 4 * n_groups, 4);
        sum[side] = kcheck_out(c, 4 * n_groups, 4);
        (side ? c->dut : c->ref)->turbo_query(x, n, bits, codes[side], d[side], sum[side]);
    }
    kcheck_same_bytes(c, codes[0], codes[1], n, "codes: %zu groups, %u bits, shape %d", n_groups, bits, (int)shape);
    kcheck_same_f32(c, d[0], d[1], n_groups, "d: %zu groups, %u bits, shape %d", n_groups, bits, (int)shape);
    kcheck_same_f32(c, sum[0], sum[1], n_groups, "sum: %zu groups, %u bits, shape %d", n_groups, bits, (int)shape);
    for (size_t g = 0; g < n_groups && shape == KC_NORMAL; g++) {
        float total = 0;
        for (size_t i = 0; i < GROUP; i++)
            total += (float)codes[0][g * GROUP + i];
        kcheck_expect(c, sum[0][g] == total, "the sum of the codes");
    }
    kcheck_end_case(c);
}

/* Some groups of one value, of zeros of both signs, of values close together and far from zero, of nothing but tiny
 * ones. */
static float *draw_keys(struct kcheck *c, size_t n_groups, enum kcheck_shape shape)
{
    float *x = kcheck_f32(c, GROUP * n_groups, shape);
    for (size_t g = 0; g < n_groups; g++) {
        uint32_t kind = kcheck_below(&c->rng, 8);
        for (size_t i = 0; i < GROUP && kind < 4; i++) {
            float *at = x + g * GROUP + i;
            float close = kcheck_unit(&c->rng) * 0x1p-12f;
            *at = kind == 0   ? x[g * GROUP]
                  : kind == 1 ? (i % 3 ? -0.0f : 0.0f)
                  : kind == 2 ? 3.0f + close
                              : close / 4096;
        }
    }
    return x;
}

static void key_case(struct kcheck *c, size_t n_groups, unsigned bits, enum kcheck_shape shape)
{
    size_t n = GROUP * n_groups, n_bytes = n * bits / 8;
    float *x = draw_keys(c, n_groups, shape);
    uint8_t *codes[2];
    uint16_t *scale[2], *zero[2];
    for (size_t side = 0; side < 2; side++) {
        codes[side] = kcheck_out(c, n_bytes, 1);
        scale[side] = kcheck_out(c, 2 * n_groups, 2);
        zero[side] = kcheck_out(c, 2 * n_groups, 2);
        (side ? c->dut : c->ref)->turbo_keys(x, n, bits, codes[side], scale[side], zero[side]);
    }
    kcheck_same_bytes(c, codes[0], codes[1], n_bytes, "codes: %zu groups, %u bits, shape %d", n_groups, bits,
                      (int)shape);
    kcheck_same_bytes(c, scale[0], scale[1], 2 * n_groups, "scale: %zu groups, %u bits, shape %d", n_groups, bits,
                      (int)shape);
    kcheck_same_bytes(c, zero[0], zero[1], 2 * n_groups, "zero: %zu groups, %u bits, shape %d", n_groups, bits,
                      (int)shape);
    for (size_t i = 0; i < n; i++) {
        size_t g = i / GROUP;
        float z = sn_f16_to_f32(zero[0][g]), step = sn_f16_to_f32(scale[0][g]);
        kcheck_expect(c, z == rintf(z) && fabsf(z) <= 2048.0f && zero[0][g] != 0x8000, "a whole zero within 2,048");
        double got = key_of(code_at(codes[0] + g * bits * 4, 4, bits, i % GROUP), bits, scale[0][g], zero[0][g]);
        double far = fabs(got - (double)x[i]), most = 2048.0 * (double)step;
        /* Rounding the scale and the zero can put the ends of the range a little further out than half a step. */
        kcheck_expect(c, shape != KC_NORMAL || far <= 1.02 * (double)step + most * 0x1p-11 + 1e-7,
                      "a code within a step of its number, not %g of %g", far, (double)step);
    }
    kcheck_end_case(c);
}

static void value_case(struct kcheck *c, size_t d, unsigned bits, enum kcheck_shape shape)
{
    static const double distortion[] = {[2] = 0.25, [3] = 0.09, [4] = 0.025, [5] = 0.008, [8] = 0.0005};
    size_t n_groups = d / GROUP, n_bytes = d * bits / 8;
    float *x = kcheck_f32(c, d, shape);
    uint32_t kind = kcheck_below(&c->rng, 6);
    for (size_t i = 0; i < d && kind < 2; i++)
        x[i] = kind == 0 ? 0.0f : x[0];
    uint8_t *codes[2];
    uint16_t *scale[2];
    for (size_t side = 0; side < 2; side++) {
        codes[side] = kcheck_out(c, n_bytes, 1);
        scale[side] = kcheck_out(c, 2 * n_groups, 2);
        (side ? c->dut : c->ref)->turbo_values(x, d, bits, codes[side], scale[side]);
    }
    kcheck_same_bytes(c, codes[0], codes[1], n_bytes, "codes: d %zu, %u bits, shape %d", d, bits, (int)shape);
    kcheck_same_bytes(c, scale[0], scale[1], 2 * n_groups, "scale: d %zu, %u bits, shape %d", d, bits, (int)shape);
    if (shape == KC_NORMAL && kind >= 2) {
        float back[MAX_DIM];
        double error = 0, size = 0;
        for (size_t i = 0; i < d; i++)
            back[i] = sn_turbo_centroids(bits)[code_at(codes[0] + i / GROUP * bits * 4, 4, bits, i % GROUP)] *
                      sn_f16_to_f32(scale[0][i / GROUP]);
        c->ref->turbo_rotate(back, d);
        for (size_t i = 0; i < d; i++) {
            error += (double)(back[i] - x[i]) * (double)(back[i] - x[i]);
            size += (double)x[i] * (double)x[i];
        }
        kcheck_expect(c, error <= distortion[bits] * size, "%u bits come back with an error of %g of the square",
                      bits, error / size);
    }
    kcheck_end_case(c);
}

/* There and back: the transform is its own inverse but for the place of the signs. */
static void rotate_case(struct kcheck *c, size_t d, enum kcheck_shape shape)
{
    float *x = kcheck_f32(c, d, shape), *out[2];
    const uint64_t *signs = sn_turbo_signs(d);
    for (size_t side = 0; side < 2; side++) {
        out[side] = kcheck_out(c, 4 * d, 4);
        memcpy(out[side], x, 4 * d);
        (side ? c->dut : c->ref)->turbo_rotate(out[side], d);
    }
    kcheck_same_f32(c, out[0], out[1], d, "d %zu, shape %d", d, (int)shape);
    float back[MAX_DIM], worst = 0;
    for (size_t i = 0; i < d; i++)
        back[i] = signs[i / 64] >> i % 64 & 1 ? -out[0][i] : out[0][i];
    c->ref->turbo_rotate(back, d);
    for (size_t i = 0; i < d && shape == KC_NORMAL; i++) {
        float y = signs[i / 64] >> i % 64 & 1 ? -back[i] : back[i];
        worst = fabsf(y - x[i]) > worst ? fabsf(y - x[i]) : worst;
    }
    kcheck_expect(c, worst <= 2e-5f, "there and back, off by %g", (double)worst);
    kcheck_end_case(c);
}

static void check_coding(struct kcheck *c)
{
    static const enum kcheck_shape shapes[] = {KC_NORMAL, KC_WIDE, KC_EDGES, KC_BITS};
    size_t n_repeats = c->opts->long_run ? 2000 : c->opts->quick ? 3 : 30;
    bool query = kcheck_begin(c, SN_K_turbo_query);
    for (size_t r = 0; r < n_repeats && query; r++)
        for (size_t i = 0; i < 4 * KEY_BITS; i++)
            query_case(c, 1 + (r + i) % 8, all_bits[i / 4], shapes[i % 4]);
    bool keys = kcheck_begin(c, SN_K_turbo_keys);
    for (size_t r = 0; r < n_repeats && keys; r++)
        for (size_t i = 0; i < 4 * KEY_BITS; i++)
            key_case(c, 2 + (r + i) % 8, all_bits[i / 4], shapes[i % 4]);
    bool values = kcheck_begin(c, SN_K_turbo_values);
    for (size_t r = 0; r < n_repeats && values; r++)
        for (size_t i = 0; i < 4 * VALUE_BITS; i++)
            value_case(c, (size_t)64 << (r + i) % 4, all_bits[i / 4], shapes[i % 4]);
    bool rotate = kcheck_begin(c, SN_K_turbo_rotate);
    for (size_t r = 0; r < n_repeats && rotate; r++)
        for (size_t i = 0; i < 16; i++)
            rotate_case(c, (size_t)64 << i / 4, shapes[i % 4]);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

struct shape {
    size_t n_q, d_k, d_v, n_chunks;
    unsigned k_bits, v_bits;
    float soft_cap;
    enum kcheck_mask mask;
    bool fault; /* a scale or zero that is no number among the visible ones, or a query */
};

static double key_value(const struct sn_attn_turbo_args *a, size_t c, size_t key, size_t d)
{
    const struct sn_turbo_part *k = &a->k[c];
    size_t at = key / 16 * (a->a.d_k / GROUP) + d / GROUP, half = at * 16 + key % 16;
    const uint8_t *codes = k->codes + at * a->k_bits * 64 + key % 16 * 4;
    return key_of(code_at(codes, 64, a->k_bits, d % GROUP), a->k_bits, k->scale[half], k->zero[half]);
}

static double value_of(const struct sn_attn_turbo_args *a, size_t c, size_t key, size_t d)
{
    const struct sn_turbo_part *v = &a->v[c];
    const uint8_t *codes = v->codes + key * (a->a.d_v * a->v_bits / 8) + d / GROUP * a->v_bits * 4;
    return (double)sn_turbo_centroids(a->v_bits)[code_at(codes, 4, a->v_bits, d % GROUP)] *
           (double)sn_f16_to_f32(v->scale[d / GROUP * 64 + key]);
}

/* The code of dimension d of query i, in whatever order they are. */
static double query_code(const struct sn_attn_turbo_args *a, size_t i, size_t d)
{
    static const size_t places[2][16] = {{0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15},
                                         {0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15}};
    size_t place = a->k_bits == 2 || a->k_bits == 4 ? places[a->k_bits / 4][d % 16] : d % 16;
    return a->q[i * a->a.d_k + d / 16 * 16 + place];
}

/* Plain softmax in double over the decoded numbers. */
static void compare_with_softmax(struct kcheck *c, const struct sn_attn_turbo_args *a)
{
    const struct sn_attn_args *s = &a->a;
    for (size_t i = 0; i < s->n_q; i++) {
        double o[MAX_DIM] = {0}, score[256], top = -(double)INFINITY, l = 0, worst = 0, size = 0;
        for (size_t key = 0; key < 64 * s->n_chunks; key++) {
            score[key] = -(double)INFINITY;
            if (!(s->visible[i * s->n_chunks + key / 64] >> key % 64 & 1))
                continue;
            double acc = 0;
            for (size_t d = 0; d < s->d_k; d++)
                acc += query_code(a, i, d) * (double)a->q_d[(i * s->d_k + d) / GROUP] *
                       key_value(a, key / 64, key % 64, d);
            score[key] = s->soft_cap != 0 ? (double)s->soft_cap * tanh(acc / (double)s->soft_cap) : acc;
            top = score[key] > top ? score[key] : top;
        }
        for (size_t key = 0; key < 64 * s->n_chunks; key++) {
            double p = score[key] == -(double)INFINITY ? 0 : exp(score[key] - top);
            l += p;
            for (size_t d = 0; d < s->d_v && p > 0; d++)
                o[d] += p * value_of(a, key / 64, key % 64, d);
        }
        for (size_t d = 0; d < s->d_v && l > 0; d++) {
            double e = fabs(o[d] / l - (double)s->o[i * s->ldo + d] / (double)s->l[i]);
            worst = e > worst ? e : worst;
            size = fabs(o[d] / l) > size ? fabs(o[d] / l) : size;
        }
        kcheck_expect(c, worst <= 2e-4 * (size + 1), "softmax in double within 2e-4, not %g of %g (query %zu)", worst,
                      size, i);
        kcheck_expect(c, l > 0 || (s->m[i] == -INFINITY && s->l[i] == 0), "an empty state where nothing is visible");
    }
}

static uint16_t half(float x)
{
    return sn_f32_to_f16_sat(x);
}

/* Random codes; scales and zeros of what nobody sees are NaN or large. */
static struct sn_turbo_part draw_part(struct kcheck *c, size_t d, unsigned bits, bool keys, uint64_t seen)
{
    size_t n_groups = d / GROUP, n_bytes = 64 * d * bits / 8;
    uint8_t *codes = kcheck_out(c, n_bytes, 1);
    uint16_t *scale = kcheck_out(c, 2 * 64 * n_groups, 2), *zero = NULL;
    if (keys)
        zero = kcheck_out(c, 2 * 64 * n_groups, 2);
    for (size_t i = 0; i < n_bytes; i++)
        codes[i] = (uint8_t)kcheck_u64(&c->rng);
    float step = !keys ? 1.0f : bits == 8 ? 1.0f / 128 : bits == 5 ? 1.0f / 16 : bits == 4 ? 1.0f / 8 : 0.5f;
    for (size_t g = 0; g < n_groups; g++)
        for (size_t key = 0; key < 64; key++) {
            size_t at = keys ? (key / 16 * n_groups + g) * 16 + key % 16 : g * 64 + key;
            bool hidden = !(seen >> key & 1);
            float x = kcheck_unit(&c->rng);
            uint32_t far = kcheck_below(&c->rng, 40), near = kcheck_below(&c->rng, 33);
            scale[at] = hidden && key % 3 ? 0x7E01 : half(fabsf(x) * (far == 0 ? step / 64 : step));
            if (keys)
                zero[at] = hidden && key % 2 ? 0xFE01 : half(far == 0 ? 2048.0f : (float)near - 16.0f);
        }
    return (struct sn_turbo_part){codes, scale, zero};
}

static void plant_fault(struct kcheck *c, const struct shape *s, const struct sn_turbo_part *k,
                        const struct sn_turbo_part *v, float *q)
{
    static const uint16_t faults[] = {0x7E00, 0x7C00, 0xFC00, 0x7BFF};
    uint16_t h = faults[kcheck_below(&c->rng, 4)];
    uint32_t where = kcheck_below(&c->rng, 3), key = kcheck_below(&c->rng, 16);
    uint16_t *at[] = {(void *)(uintptr_t)k->scale, (void *)(uintptr_t)v->scale};
    if (where < 2)
        at[where][key] = h;
    else
        q[kcheck_below(&c->rng, (uint32_t)s->d_k)] = NAN;
}

static void compare(struct kcheck *c, const struct shape *s, float *state[2][3], size_t n_out)
{
    static const char *const names[] = {"m", "l", "o"};
    for (size_t part = 0; part < 3; part++)
        kcheck_same_f32(c, state[0][part], state[1][part], part < 2 ? s->n_q : n_out,
                        "%s: n_q=%zu d_k=%zu d_v=%zu n_chunks=%zu bits %u/%u soft_cap=%g mask %d fault %d",
                        names[part], s->n_q, s->d_k, s->d_v, s->n_chunks, s->k_bits, s->v_bits, (double)s->soft_cap,
                        (int)s->mask, s->fault);
}

static void one_case(struct kcheck *c, const struct shape *s)
{
    size_t ldo = s->d_v + kcheck_below(&c->rng, 2) * 3, n_out = (s->n_q - 1) * ldo + s->d_v;
    size_t n_codes = s->n_q * s->d_k, n_scales = n_codes / GROUP;
    uint64_t *visible = kcheck_out(c, s->n_q * s->n_chunks * 8, 8);
    kcheck_masks(c, s->mask, s->n_q, s->n_chunks, visible);
    struct sn_turbo_part k[4], v[4];
    for (size_t j = 0; j < s->n_chunks; j++) {
        uint64_t seen = 0;
        for (size_t i = 0; i < s->n_q; i++)
            seen |= visible[i * s->n_chunks + j];
        k[j] = draw_part(c, s->d_k, s->k_bits, true, seen);
        v[j] = draw_part(c, s->d_v, s->v_bits, false, seen);
    }
    float *x = kcheck_f32(c, n_codes, KC_NORMAL), *state[2][3];
    if (s->fault)
        plant_fault(c, s, k, v, x);
    int8_t *q = kcheck_out(c, n_codes, 1);
    float *q_d = kcheck_out(c, 4 * n_scales, 4), *q_sum = kcheck_out(c, 4 * n_scales, 4);
    c->ref->turbo_query(x, n_codes, s->k_bits, q, q_d, q_sum);
    struct sn_attn_turbo_args a = {.a = {.n_q = s->n_q,
                                         .d_k = s->d_k,
                                         .d_v = s->d_v,
                                         .n_chunks = s->n_chunks,
                                         .visible = visible,
                                         .soft_cap = s->soft_cap,
                                         .ldo = ldo},
                                   .k = k,
                                   .v = v,
                                   .k_bits = s->k_bits,
                                   .v_bits = s->v_bits,
                                   .q = q,
                                   .q_d = q_d,
                                   .q_sum = q_sum};
    for (size_t side = 0; side < 2; side++) {
        a.a.m = state[side][0] = kcheck_out(c, 4 * s->n_q, 4);
        a.a.l = state[side][1] = kcheck_out(c, 4 * s->n_q, 4);
        a.a.o = state[side][2] = kcheck_out(c, 4 * n_out, 4);
        a.a.scratch = kcheck_out(c, sn_attn_scratch_bytes(s->n_q, s->d_k, s->d_v), 64);
        (side ? c->dut : c->ref)->attn_turbo(&a);
        for (size_t i = 0; i < s->n_q; i++)
            a.a.m[i] = a.a.m[i] + 0.0f; /* the sign of a zero maximum is unspecified */
        if (side == 0 && !s->fault)
            compare_with_softmax(c, &a);
    }
    compare(c, s, state, n_out);
    kcheck_end_case(c);
}

void kcheck_check_turbo(struct kcheck *c)
{
    static const size_t dims[] = {64, 128, 256, 512};
    static const size_t queries[] = {1, 2, 3, 4, 5, 6, 7, 9, 13, 16, 25, 32};
    check_coding(c);
    if (!kcheck_begin(c, SN_K_attn_turbo))
        return;
    size_t n_queries = c->opts->quick ? 7 : SN_ARRAY_LEN(queries), n_repeats = c->opts->long_run ? 40 : 1;
    size_t n_pairs = (size_t)KEY_BITS * VALUE_BITS;
    for (size_t r = 0; r < n_repeats; r++)
        for (size_t turn = 0; turn < n_pairs * n_queries * KC_N_MASKS; turn++) {
            if (!c->opts->long_run && turn % (c->opts->quick ? 11 : 2) != 0)
                continue;
            size_t pair = turn % n_pairs, i = turn / n_pairs % n_queries, mask = turn / n_pairs / n_queries;
            uint32_t big = kcheck_below(&c->rng, c->opts->quick ? 40 : 12);
            struct shape s = {.n_q = queries[i], .mask = (enum kcheck_mask)mask};
            s.d_k = dims[big < 2 ? 2 + big : big % 2];
            s.d_v = kcheck_below(&c->rng, 3) ? s.d_k : dims[kcheck_below(&c->rng, 2)];
            s.k_bits = all_bits[pair % KEY_BITS];
            s.v_bits = all_bits[pair / KEY_BITS];
            s.n_chunks = c->opts->quick ? 1 + turn / 11 % 2 : 1 + kcheck_below(&c->rng, 4);
            s.soft_cap = kcheck_below(&c->rng, 5) ? 0 : 20.0f;
            s.fault = kcheck_below(&c->rng, 7) == 0;
            one_case(c, &s);
        }
}

/* ---- speed ---------------------------------------------------------------------------------------------------- */

enum { PAGES = 4096 };

struct timed {
    sn_attn_turbo_fn fn;
    struct sn_attn_turbo_args a;
    struct sn_turbo_part k[PAGES], v[PAGES];
    uint64_t visible[MAX_QUERIES * 4];
    size_t n_pages, at; /* segments of four pages, in turn */
};

static void run_timed(void *arg)
{
    struct timed *t = arg;
    t->a.k = t->k + t->at;
    t->a.v = t->v + t->at;
    t->at = t->at + 4 < t->n_pages ? t->at + 4 : 0;
    t->fn(&t->a);
}

static size_t part_bytes(size_t dim, unsigned bits, bool key)
{
    return 64 * (dim * bits / 8 + (key ? 4 : 2) * dim / GROUP);
}

/* Pages of codes at `data`, each part after the one before it. */
static void lay_out(struct timed *w, uint8_t *data, size_t dim, unsigned k_bits, unsigned v_bits)
{
    for (size_t i = 0; i < 2 * w->n_pages; i++) {
        bool key = i % 2 == 0;
        size_t codes = 64 * dim * (key ? k_bits : v_bits) / 8, scales = 2 * 64 * dim / GROUP;
        struct sn_turbo_part part = {data, (void *)(data + codes), key ? (void *)(data + codes + scales) : NULL};
        *(key ? &w->k[i / 2] : &w->v[i / 2]) = part;
        data += part_bytes(dim, key ? k_bits : v_bits, key);
    }
}

static void bench_one(struct kcheck *c, size_t n_q, size_t dim, unsigned k_bits, unsigned v_bits, size_t n_pages)
{
    static struct timed w;
    static float x[MAX_QUERIES * 256], m[MAX_QUERIES], l[MAX_QUERIES], o[MAX_QUERIES * 256], d[MAX_QUERIES * 8],
        sum[MAX_QUERIES * 8];
    static int8_t q[MAX_QUERIES * 256];
    struct sn_heap heap;
    sn_heap_init(&heap, NULL);
    size_t page = part_bytes(dim, k_bits, true) + part_bytes(dim, v_bits, false);
    size_t n_scratch = sn_attn_scratch_bytes(n_q, dim, dim);
    uint8_t *data = sn_alloc(&heap, SN_USE_MISC, page * n_pages);
    void *scratch = sn_alloc(&heap, SN_USE_MISC, n_scratch);
    if (data && scratch) {
        memset(data, 0x21, page * n_pages); /* small positive scales */
        kcheck_fill(&c->rng, x, n_q * dim, KC_NORMAL);
        c->ref->turbo_query(x, n_q * dim, k_bits, q, d, sum);
        memset(w.visible, 0xFF, sizeof w.visible);
        w.fn = c->dut->attn_turbo;
        w.n_pages = n_pages;
        w.at = 0;
        lay_out(&w, data, dim, k_bits, v_bits);
        w.a = (struct sn_attn_turbo_args){.a = {.n_q = n_q,
                                                .d_k = dim,
                                                .d_v = dim,
                                                .n_chunks = 4,
                                                .visible = w.visible,
                                                .m = m,
                                                .l = l,
                                                .o = o,
                                                .ldo = dim,
                                                .scratch = scratch},
                                          .k_bits = k_bits,
                                          .v_bits = v_bits,
                                          .q = q,
                                          .q_d = d,
                                          .q_sum = sum};
        char what[64];
        snprintf(what, sizeof what, "k%u v%u, queries %zu, dim %zu, %zu KiB", k_bits, v_bits, n_q, dim,
                 page * n_pages / 1024);
        /* In what the same keys and values take in f16, so that rates compare with attn_f16's. */
        if (n_q <= 6)
            kcheck_time(c, SN_K_attn_turbo, what, 4.0 * 64 * 2 * 2 * (double)dim, "GB/s", run_timed, &w);
        else
            kcheck_time(c, SN_K_attn_turbo, what, 4.0 * 256 * (double)(n_q * dim), "GFLOPS", run_timed, &w);
    }
    sn_free(&heap, SN_USE_MISC, data, page * n_pages);
    sn_free(&heap, SN_USE_MISC, scratch, n_scratch);
}

struct coding {
    struct kcheck *c;
    const float *x;
    unsigned bits;
};

static void run_keys(void *arg)
{
    const struct coding *t = arg;
    uint8_t codes[128];
    uint16_t scale[4], zero[4];
    t->c->dut->turbo_keys(t->x, 128, t->bits, codes, scale, zero);
}

static void run_values(void *arg)
{
    const struct coding *t = arg;
    uint8_t codes[128];
    uint16_t scale[4];
    t->c->dut->turbo_values(t->x, 128, t->bits, codes, scale);
}

static void bench_coding(struct kcheck *c)
{
    float x[128];
    kcheck_fill(&c->rng, x, 128, KC_NORMAL);
    for (size_t i = 0; i < VALUE_BITS; i++) {
        struct coding t = {c, x, all_bits[i]};
        char what[32];
        snprintf(what, sizeof what, "%u bits, 128 dimensions", t.bits);
        if (i < KEY_BITS && kcheck_wanted(c, SN_K_turbo_keys))
            kcheck_time(c, SN_K_turbo_keys, what, 128, "G/s", run_keys, &t);
        if (kcheck_wanted(c, SN_K_turbo_values))
            kcheck_time(c, SN_K_turbo_values, what, 128, "G/s", run_values, &t);
    }
}

void kcheck_bench_turbo(struct kcheck *c)
{
    bench_coding(c);
    if (!kcheck_wanted(c, SN_K_attn_turbo))
        return;
    static const unsigned pairs[][2] = {{8, 8}, {8, 3}, {4, 4}, {4, 2}, {5, 5}, {2, 2}};
    for (size_t i = 0; i < SN_ARRAY_LEN(pairs); i++) {
        unsigned k = pairs[i][0], v = pairs[i][1];
        bench_one(c, 1, 64, k, v, 16);
        bench_one(c, 4, 64, k, v, 16);
        bench_one(c, 4, 64, k, v, PAGES);
        bench_one(c, 4, 128, k, v, 16);
        bench_one(c, 32, 64, k, v, 4);
        bench_one(c, 32, 128, k, v, 4);
    }
}
