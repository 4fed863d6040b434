/* Affine codes: coding of queries and of new tokens, and attention over codes of all sizes, with garbage in what
 * nobody sees. */
#include <math.h>

#include "kcheck/kcheck.h"
#include "kcheck/masks.h"
#include "tensor/traits.h"

/* ---- coding --------------------------------------------------------------------------------------------------- */

static void query_case(struct kcheck *c, size_t group, size_t n_groups, enum kcheck_shape shape)
{
    size_t n = group * n_groups;
    float *x = kcheck_f32(c, n, shape);
    int8_t *codes[2];
    float *d[2], *s[2];
    for (size_t side = 0; side < 2; side++) {
        codes[side] = kcheck_out(c, n, 1);
        d[side] = kcheck_out(c, 4 * n_groups, 4);
        s[side] = kcheck_out(c, 4 * n_groups, 4);
        (side ? c->dut : c->ref)->code_query(x, n, group, codes[side], d[side], s[side]);
    }
    kcheck_same_bytes(c, codes[0], codes[1], n, "codes: %zu groups of %zu, shape %d", n_groups, group, (int)shape);
    kcheck_same_f32(c, d[0], d[1], n_groups, "d: %zu groups of %zu, shape %d", n_groups, group, (int)shape);
    kcheck_same_f32(c, s[0], s[1], n_groups, "s: %zu groups of %zu, shape %d", n_groups, group, (int)shape);
    for (size_t i = 0; i < n && shape == KC_NORMAL; i++)
        kcheck_expect(c, fabsf((float)codes[0][i] * d[0][i / group] - x[i]) <= 0.501f * d[0][i / group],
                      "a code within half a step of its number");
    kcheck_end_case(c);
}

/* Some groups of one value, or of zeros of both signs. */
static float *draw_values(struct kcheck *c, size_t group, size_t n_groups, enum kcheck_shape shape)
{
    float *x = kcheck_f32(c, group * n_groups, shape);
    for (size_t g = 0; g < n_groups; g++) {
        uint32_t kind = kcheck_below(&c->rng, 6);
        for (size_t i = 0; i < group && kind < 2; i++)
            x[g * group + i] = kind == 0 ? x[g * group] : i % 3 ? -0.0f : 0.0f;
    }
    return x;
}

static void encode_case(struct kcheck *c, size_t group, size_t n_groups, unsigned bits, enum kcheck_shape shape)
{
    size_t n = group * n_groups;
    float *x = draw_values(c, group, n_groups, shape);
    uint8_t *codes[2];
    uint16_t *scale[2], *bias[2];
    for (size_t side = 0; side < 2; side++) {
        codes[side] = kcheck_out(c, n, 1);
        scale[side] = kcheck_out(c, 2 * n_groups, 2);
        bias[side] = kcheck_out(c, 2 * n_groups, 2);
        (side ? c->dut : c->ref)->affine_encode(x, n, group, bits, codes[side], scale[side], bias[side]);
    }
    kcheck_same_bytes(c, codes[0], codes[1], n, "codes: %zu groups of %zu, %u bits, shape %d", n_groups, group, bits,
                      (int)shape);
    kcheck_same_bytes(c, scale[0], scale[1], 2 * n_groups, "scale: %zu groups of %zu, %u bits, shape %d", n_groups,
                      group, bits, (int)shape);
    kcheck_same_bytes(c, bias[0], bias[1], 2 * n_groups, "bias: %zu groups of %zu, %u bits, shape %d", n_groups,
                      group, bits, (int)shape);
    for (size_t i = 0; i < n && shape == KC_NORMAL; i++) {
        float step = sn_f16_to_f32(scale[0][i / group]), b = sn_f16_to_f32(bias[0][i / group]);
        float range = step * (bits == 8 ? 255.0f : 15.0f) + fabsf(b);
        kcheck_expect(c, fabsf((float)codes[0][i] * step + b - x[i]) <= 0.501f * step + range * 0x1p-10f + 1e-6f,
                      "a code within half a step of its number");
    }
    kcheck_end_case(c);
}

static void check_coding(struct kcheck *c)
{
    static const enum kcheck_shape shapes[] = {KC_NORMAL, KC_WIDE, KC_EDGES, KC_BITS};
    size_t n_repeats = c->opts->long_run ? 2000 : c->opts->quick ? 3 : 40;
    bool query = kcheck_begin(c, SN_K_code_query);
    for (size_t r = 0; r < n_repeats && query; r++)
        for (size_t i = 0; i < 4; i++)
            for (size_t group = 32; group <= 64; group += 32)
                query_case(c, group, 1 + (r + i) % 8, shapes[i]);
    bool encode = kcheck_begin(c, SN_K_affine_encode);
    for (size_t r = 0; r < n_repeats && encode; r++)
        for (size_t i = 0; i < 4; i++)
            for (size_t group = 32; group <= 64; group += 32)
                for (unsigned bits = 4; bits <= 8; bits += 4)
                    encode_case(c, group, 1 + (r + i) % 8, bits, shapes[i]);
}

/* ---- attention ------------------------------------------------------------------------------------------------ */

enum { MAX_QUERIES = 32, MAX_DIM = 512 };

struct shape {
    size_t n_q, d_k, d_v, n_chunks, group;
    unsigned k_bits, v_bits;
    float soft_cap;
    enum kcheck_mask mask;
    bool fault; /* a scale or bias that is NaN among the visible ones, or a query */
};

static double key_value(const struct sn_attn_affine_args *a, size_t c, size_t key, size_t d)
{
    const struct sn_affine_part *k = &a->k[c];
    size_t per = a->k_bits == 8 ? 4 : 8, block = (key / 16 * (a->a.d_k / per) + d / per) * 64;
    uint8_t byte = k->codes[block + key % 16 * 4 + d % 4];
    unsigned code = a->k_bits == 8 ? byte : d % 8 < 4 ? byte % 16u : byte / 16u;
    size_t at = (key / 16 * (a->a.d_k / a->group) + d / a->group) * 16 + key % 16;
    return (double)code * (double)sn_f16_to_f32(k->scale[at]) + (double)sn_f16_to_f32(k->bias[at]);
}

static double value_of(const struct sn_attn_affine_args *a, size_t c, size_t key, size_t d)
{
    const struct sn_affine_part *v = &a->v[c];
    uint8_t byte = v->codes[a->v_bits == 8 ? key * a->a.d_v + d : key * a->a.d_v / 2 + d / 32 * 16 + d % 16];
    unsigned code = a->v_bits == 8 ? byte : d % 32 < 16 ? byte % 16u : byte / 16u;
    size_t at = d / a->group * 64 + key;
    return (double)code * (double)sn_f16_to_f32(v->scale[at]) + (double)sn_f16_to_f32(v->bias[at]);
}

/* Plain softmax in double over the decoded numbers. */
static void compare_with_softmax(struct kcheck *c, const struct sn_attn_affine_args *a)
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
                acc += (double)a->q[i * s->d_k + d] * (double)a->q_d[(i * s->d_k + d) / a->group] *
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

/* Random codes; scales and biases of keys that nobody sees are NaN or large. scale_of(key, group): where it stands.
 * */
static struct sn_affine_part draw_part(struct kcheck *c, size_t d, unsigned bits, size_t group, bool keys,
                                       uint64_t seen)
{
    size_t n_groups = d / group, n_bytes = 64 * d * bits / 8;
    uint8_t *codes = kcheck_out(c, n_bytes, 1);
    uint16_t *scale = kcheck_out(c, 2 * 64 * n_groups, 2), *bias = kcheck_out(c, 2 * 64 * n_groups, 2);
    for (size_t i = 0; i < n_bytes; i++)
        codes[i] = (uint8_t)kcheck_u64(&c->rng);
    float step = bits == 8 ? 1.0f / 128 : 1.0f / 8;
    for (size_t g = 0; g < n_groups; g++)
        for (size_t key = 0; key < 64; key++) {
            size_t at = keys ? (key / 16 * n_groups + g) * 16 + key % 16 : g * 64 + key;
            float x = kcheck_unit(&c->rng), y = kcheck_unit(&c->rng);
            bool hidden = !(seen >> key & 1);
            scale[at] = hidden && key % 3 ? 0x7E01 : half(x * step);
            bias[at] = hidden && key % 2 ? 0xFE01 : half(hidden ? 6e4f : y);
        }
    return (struct sn_affine_part){codes, scale, bias};
}

static void plant_fault(struct kcheck *c, const struct shape *s, const struct sn_affine_part *k,
                        const struct sn_affine_part *v, float *q)
{
    static const uint16_t faults[] = {0x7E00, 0x7C00, 0xFC00, 0x7BFF};
    uint16_t h = faults[kcheck_below(&c->rng, 4)];
    uint32_t where = kcheck_below(&c->rng, 5), key = kcheck_below(&c->rng, 16);
    uint16_t *at[] = {(void *)(uintptr_t)k->scale, (void *)(uintptr_t)k->bias, (void *)(uintptr_t)v->scale,
                      (void *)(uintptr_t)v->bias};
    if (where < 4)
        at[where][key] = h;
    else
        q[kcheck_below(&c->rng, (uint32_t)s->d_k)] = NAN;
}

static void compare(struct kcheck *c, const struct shape *s, float *state[2][3], size_t n_out)
{
    static const char *const names[] = {"m", "l", "o"};
    for (size_t part = 0; part < 3; part++)
        kcheck_same_f32(c, state[0][part], state[1][part], part < 2 ? s->n_q : n_out,
                        "%s: n_q=%zu d_k=%zu d_v=%zu n_chunks=%zu group=%zu bits %u/%u soft_cap=%g mask %d fault %d",
                        names[part], s->n_q, s->d_k, s->d_v, s->n_chunks, s->group, s->k_bits, s->v_bits,
                        (double)s->soft_cap, (int)s->mask, s->fault);
}

static void one_case(struct kcheck *c, const struct shape *s)
{
    size_t ldo = s->d_v + kcheck_below(&c->rng, 2) * 3, n_out = (s->n_q - 1) * ldo + s->d_v;
    size_t n_codes = s->n_q * s->d_k, n_scales = n_codes / s->group;
    uint64_t *visible = kcheck_out(c, s->n_q * s->n_chunks * 8, 8);
    kcheck_masks(c, s->mask, s->n_q, s->n_chunks, visible);
    struct sn_affine_part k[4], v[4];
    for (size_t j = 0; j < s->n_chunks; j++) {
        uint64_t seen = 0;
        for (size_t i = 0; i < s->n_q; i++)
            seen |= visible[i * s->n_chunks + j];
        k[j] = draw_part(c, s->d_k, s->k_bits, s->group, true, seen);
        v[j] = draw_part(c, s->d_v, s->v_bits, s->group, false, seen);
    }
    float *x = kcheck_f32(c, n_codes, KC_NORMAL), *state[2][3];
    if (s->fault)
        plant_fault(c, s, k, v, x);
    int8_t *q = kcheck_out(c, n_codes, 1);
    float *q_d = kcheck_out(c, 4 * n_scales, 4), *q_s = kcheck_out(c, 4 * n_scales, 4);
    c->ref->code_query(x, n_codes, s->group, q, q_d, q_s);
    struct sn_attn_affine_args a = {.a = {.n_q = s->n_q,
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
                                    .group = s->group,
                                    .q = q,
                                    .q_d = q_d,
                                    .q_s = q_s};
    for (size_t side = 0; side < 2; side++) {
        a.a.m = state[side][0] = kcheck_out(c, 4 * s->n_q, 4);
        a.a.l = state[side][1] = kcheck_out(c, 4 * s->n_q, 4);
        a.a.o = state[side][2] = kcheck_out(c, 4 * n_out, 4);
        a.a.scratch = kcheck_out(c, sn_attn_scratch_bytes(s->n_q, s->d_k, s->d_v), 64);
        (side ? c->dut : c->ref)->attn_affine(&a);
        for (size_t i = 0; i < s->n_q; i++)
            a.a.m[i] = a.a.m[i] + 0.0f; /* the sign of a zero maximum is unspecified */
        if (side == 0 && !s->fault)
            compare_with_softmax(c, &a);
    }
    compare(c, s, state, n_out);
    kcheck_end_case(c);
}

void kcheck_check_affine(struct kcheck *c)
{
    static const size_t dims[] = {32, 64, 96, 128, 160, 192, 256, 512};
    static const size_t queries[] = {1, 2, 3, 4, 5, 6, 7, 9, 13, 16, 25, 32};
    check_coding(c);
    if (!kcheck_begin(c, SN_K_attn_affine))
        return;
    size_t n_dims = c->opts->quick ? 3 : SN_ARRAY_LEN(dims), n_queries = c->opts->quick ? 7 : SN_ARRAY_LEN(queries);
    size_t n_repeats = c->opts->long_run ? 40 : 1;
    for (size_t r = 0; r < n_repeats; r++)
        for (size_t d = 0; d < n_dims; d++)
            for (size_t i = 0; i < n_queries; i++)
                for (int mask = 0; mask < KC_N_MASKS; mask++) {
                    size_t turn = d * n_queries * KC_N_MASKS + i * KC_N_MASKS + (size_t)mask + r;
                    if (!c->opts->long_run && (c->opts->quick || dims[d] > 128) && turn % 3 != 0)
                        continue;
                    struct shape s = {.n_q = queries[i], .d_k = dims[d], .mask = (enum kcheck_mask)mask};
                    s.d_v = kcheck_below(&c->rng, 3) ? dims[d] : dims[kcheck_below(&c->rng, (uint32_t)n_dims)];
                    s.k_bits = kcheck_below(&c->rng, 2) ? 8 : 4;
                    s.v_bits = kcheck_below(&c->rng, 2) ? 8 : 4;
                    s.group = s.d_k % 64 == 0 && s.d_v % 64 == 0 && kcheck_below(&c->rng, 2) ? 64 : 32;
                    s.n_chunks = c->opts->quick ? 1 + turn % 2 : 1 + kcheck_below(&c->rng, 4);
                    s.soft_cap = kcheck_below(&c->rng, 5) ? 0 : 20.0f;
                    s.fault = kcheck_below(&c->rng, 7) == 0;
                    one_case(c, &s);
                }
}

/* ---- speed ---------------------------------------------------------------------------------------------------- */

enum { PAGES = 4096 };

struct timed {
    sn_attn_affine_fn fn;
    struct sn_attn_affine_args a;
    struct sn_affine_part k[PAGES], v[PAGES];
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

/* Pages of codes at `data`, each part after the one before it. */
static void lay_out(struct timed *w, uint8_t *data, size_t dim, unsigned bits, size_t group)
{
    size_t codes = 64 * dim * bits / 8, scales = 2 * 64 * dim / group;
    for (size_t i = 0; i < 2 * w->n_pages; i++, data += codes + 2 * scales) {
        struct sn_affine_part part = {data, (void *)(data + codes), (void *)(data + codes + scales)};
        *(i % 2 ? &w->v[i / 2] : &w->k[i / 2]) = part;
    }
}

static void bench_one(struct kcheck *c, size_t n_q, size_t dim, unsigned bits, size_t n_pages)
{
    static struct timed w;
    static float x[MAX_QUERIES * 256], m[MAX_QUERIES], l[MAX_QUERIES], o[MAX_QUERIES * 256], d[MAX_QUERIES * 8],
        s[MAX_QUERIES * 8];
    static int8_t q[MAX_QUERIES * 256];
    enum { GROUP = 32 };
    struct sn_heap heap;
    sn_heap_init(&heap, NULL);
    size_t page = 2 * 64 * (dim * bits / 8 + 4 * dim / GROUP), n_scratch = sn_attn_scratch_bytes(n_q, dim, dim);
    uint8_t *data = sn_alloc(&heap, SN_USE_MISC, page * n_pages);
    void *scratch = sn_alloc(&heap, SN_USE_MISC, n_scratch);
    if (data && scratch) {
        memset(data, 0x21, page * n_pages); /* small positive scales */
        kcheck_fill(&c->rng, x, n_q * dim, KC_NORMAL);
        c->ref->code_query(x, n_q * dim, GROUP, q, d, s);
        memset(w.visible, 0xFF, sizeof w.visible);
        w.fn = c->dut->attn_affine;
        w.n_pages = n_pages;
        w.at = 0;
        lay_out(&w, data, dim, bits, GROUP);
        w.a = (struct sn_attn_affine_args){.a = {.n_q = n_q,
                                                 .d_k = dim,
                                                 .d_v = dim,
                                                 .n_chunks = 4,
                                                 .visible = w.visible,
                                                 .m = m,
                                                 .l = l,
                                                 .o = o,
                                                 .ldo = dim,
                                                 .scratch = scratch},
                                           .k_bits = bits,
                                           .v_bits = bits,
                                           .group = GROUP,
                                           .q = q,
                                           .q_d = d,
                                           .q_s = s};
        char what[64];
        snprintf(what, sizeof what, "%u bits, queries %zu, dim %zu, %zu KiB", bits, n_q, dim, page * n_pages / 1024);
        /* In what the same keys and values take in f16, so that rates compare with attn_f16's. */
        if (n_q <= 6)
            kcheck_time(c, SN_K_attn_affine, what, 4.0 * 64 * 2 * 2 * (double)dim, "GB/s", run_timed, &w);
        else
            kcheck_time(c, SN_K_attn_affine, what, 4.0 * 256 * (double)(n_q * dim), "GFLOPS", run_timed, &w);
    }
    sn_free(&heap, SN_USE_MISC, data, page * n_pages);
    sn_free(&heap, SN_USE_MISC, scratch, n_scratch);
}

void kcheck_bench_affine(struct kcheck *c)
{
    if (!kcheck_wanted(c, SN_K_attn_affine))
        return;
    for (unsigned bits = 4; bits <= 8; bits += 4) {
        bench_one(c, 1, 64, bits, 16);
        bench_one(c, 4, 64, bits, 16);
        bench_one(c, 4, 64, bits, PAGES);
        bench_one(c, 4, 128, bits, 16);
        bench_one(c, 32, 64, bits, 4);
        bench_one(c, 32, 128, bits, 4);
    }
}
