/* Attention over coded latents, and the indexer's scores: sizes that are no multiple of anything, garbage in what
 * nobody sees, faults. */
#include <math.h>

#include "kcheck/kcheck.h"
#include "tensor/traits.h"

struct shape {
    size_t n_q, n_groups, d_rope, n_chunks;
    float soft_cap;
    int mask; /* 0 all, 1 causal, 2 sparse, 3 some queries see nothing */
    bool fault;
};

static void draw_masks(struct kcheck *c, const struct shape *s, uint64_t *visible)
{
    uint32_t start = kcheck_below(&c->rng, (uint32_t)(64 * s->n_chunks));
    for (size_t i = 0; i < s->n_q; i++)
        for (size_t j = 0; j < s->n_chunks; j++) {
            uint64_t bits = kcheck_u64(&c->rng), more = kcheck_u64(&c->rng);
            size_t end = start + i + 1, from = 64 * j, n = end > from ? end - from : 0;
            visible[i * s->n_chunks + j] = s->mask == 0   ? ~0ull
                                           : s->mask == 1 ? (n >= 64 ? ~0ull : (1ull << n) - 1)
                                           : s->mask == 2 ? bits & more
                                                          : (bits & 3 ? more | 1 : 0);
        }
}

/* One chunk; numbers that no query sees are NaN or noise. */
static struct sn_latent8_chunk draw_chunk(struct kcheck *c, const struct shape *s, uint64_t seen)
{
    size_t n_codes = 64 * 64 * s->n_groups;
    uint8_t *code = kcheck_out(c, n_codes, 1);
    float *scale = kcheck_out(c, 4 * 64 * s->n_groups, 4), *bias = kcheck_out(c, 4 * 64 * s->n_groups, 4);
    float *rope = kcheck_out(c, 4 * 64 * s->d_rope, 4);
    for (size_t i = 0; i < n_codes; i++)
        code[i] = (uint8_t)kcheck_u64(&c->rng);
    for (size_t i = 0; i < 64 * s->n_groups; i++) {
        float x = kcheck_unit(&c->rng), y = kcheck_unit(&c->rng);
        bool hidden = !(seen >> i % 64 & 1);
        scale[i] = hidden ? NAN : fabsf(x) * 0.02f;
        bias[i] = hidden ? NAN : y;
    }
    for (size_t key = 0; key < 64; key++)
        for (size_t d = 0; d < s->d_rope; d++) {
            float x = kcheck_unit(&c->rng);
            rope[(key / 16 * s->d_rope + d) * 16 + key % 16] = seen >> key & 1 ? x : key % 3 ? NAN : x * 1e30f;
        }
    return (struct sn_latent8_chunk){.code = code, .scale = scale, .bias = bias, .rope = rope};
}

static float decoded(const struct sn_latent8_chunk *c, size_t n_groups, size_t key, size_t d)
{
    return (float)c->code[key * n_groups * 64 + d] * c->scale[d / 64 * 64 + key] + c->bias[d / 64 * 64 + key];
}

/* Softmax in double over decoded keys and values: is the specification itself attention? */
static void compare_with_softmax(struct kcheck *c, const struct sn_attn_latent8_args *a)
{
    size_t rank = 64 * a->n_groups;
    for (size_t i = 0; i < a->n_q; i++) {
        double s[256], top = -(double)INFINITY, l = 0, worst = 0;
        for (size_t key = 0; key < 64 * a->n_chunks; key++) {
            const struct sn_latent8_chunk *k = &a->chunk[key / 64];
            double acc = 0;
            s[key] = -(double)INFINITY;
            if (!(a->visible[i * a->n_chunks + key / 64] >> key % 64 & 1))
                continue;
            for (size_t d = 0; d < rank; d++)
                acc += (double)a->q_code[i * rank + d] * (double)a->q_d[i * a->n_groups + d / 64] *
                       (double)decoded(k, a->n_groups, key % 64, d);
            for (size_t d = 0; d < a->d_rope; d++)
                acc += (double)a->q_rope[i * a->ldq + d] *
                       (double)k->rope[(key % 64 / 16 * a->d_rope + d) * 16 + key % 16];
            s[key] = a->soft_cap != 0 ? (double)a->soft_cap * tanh(acc / (double)a->soft_cap) : acc;
            top = s[key] > top ? s[key] : top;
        }
        for (size_t key = 0; key < 64 * a->n_chunks; key++)
            l += exp(s[key] - top);
        for (size_t d = 0; d < rank && top > -(double)INFINITY; d++) {
            double o = 0;
            for (size_t key = 0; key < 64 * a->n_chunks; key++)
                if (s[key] > -(double)INFINITY)
                    o += exp(s[key] - top) / l * (double)decoded(&a->chunk[key / 64], a->n_groups, key % 64, d);
            worst = fmax(worst, fabs(o - (double)a->o[i * a->ldo + d] / (double)a->l[i]));
        }
        kcheck_expect(c, worst <= 2e-3, "softmax in double within 2e-3, not %g (query %zu)", worst, i);
    }
}

static void draw_query(struct kcheck *c, const struct shape *s, int8_t *code, float *d, float *sum)
{
    for (size_t g = 0; g < s->n_q * s->n_groups; g++) {
        int32_t total = 0;
        for (size_t i = 0; i < 64; i++) {
            code[g * 64 + i] = (int8_t)((int)kcheck_below(&c->rng, 255) - 127);
            total += code[g * 64 + i];
        }
        float x = kcheck_unit(&c->rng);
        d[g] = fabsf(x) * 0.002f;
        sum[g] = d[g] * (float)total;
    }
    if (s->fault)
        d[0] = sum[0] = NAN;
}

static void one_case(struct kcheck *c, const struct shape *s)
{
    size_t rank = 64 * s->n_groups, ldq = s->d_rope + kcheck_below(&c->rng, 2) * 5;
    size_t ldo = rank + kcheck_below(&c->rng, 2) * 3, n_out = (s->n_q - 1) * ldo + rank;
    uint64_t *visible = kcheck_out(c, s->n_q * s->n_chunks * 8, 8);
    struct sn_latent8_chunk chunk[4];
    draw_masks(c, s, visible);
    for (size_t j = 0; j < s->n_chunks; j++) {
        uint64_t seen = 0;
        for (size_t i = 0; i < s->n_q; i++)
            seen |= visible[i * s->n_chunks + j];
        chunk[j] = draw_chunk(c, s, seen);
    }
    int8_t *code = kcheck_out(c, s->n_q * rank, 1);
    float *d = kcheck_out(c, 4 * s->n_q * s->n_groups, 4), *sum = kcheck_out(c, 4 * s->n_q * s->n_groups, 4);
    draw_query(c, s, code, d, sum);
    float *rope = kcheck_f32(c, (s->n_q - 1) * ldq + s->d_rope, KC_NORMAL), *state[2][3];
    struct sn_attn_latent8_args a = {.q_code = code,
                                     .q_d = d,
                                     .q_s = sum,
                                     .q_rope = rope,
                                     .ldq = ldq,
                                     .n_q = s->n_q,
                                     .n_groups = s->n_groups,
                                     .d_rope = s->d_rope,
                                     .n_chunks = s->n_chunks,
                                     .chunk = chunk,
                                     .visible = visible,
                                     .soft_cap = s->soft_cap,
                                     .ldo = ldo};
    for (size_t side = 0; side < 2; side++) {
        a.m = state[side][0] = kcheck_out(c, 4 * s->n_q, 4);
        a.l = state[side][1] = kcheck_out(c, 4 * s->n_q, 4);
        a.o = state[side][2] = kcheck_out(c, 4 * n_out, 4);
        (side ? c->dut : c->ref)->attn_latent8(&a);
        for (size_t i = 0; i < s->n_q; i++)
            a.m[i] = a.m[i] + 0.0f; /* the sign of a zero maximum is unspecified */
        if (side == 0 && !s->fault)
            compare_with_softmax(c, &a);
    }
    for (size_t part = 0; part < 3; part++)
        kcheck_same_f32(c, state[0][part], state[1][part], part < 2 ? s->n_q : n_out,
                        "%c: n_q=%zu groups=%zu d_rope=%zu n_chunks=%zu soft_cap=%g mask %d fault %d", "mlo"[part],
                        s -> n_q, s -> n_groups, s -> d_rope, s -> n_chunks, (double)s -> soft_cap, s -> mask,
                        s -> fault);
    kcheck_end_case(c);
}

static void check_attention(struct kcheck *c)
{
    static const size_t queries[] = {1, 2, 3, 5, 6, 7, 16}, ropes[] = {64, 1, 16, 33};
    size_t n_queries = c->opts->quick ? 4 : SN_ARRAY_LEN(queries), n_repeats = c->opts->long_run ? 20 : 1;
    for (size_t r = 0; r < n_repeats; r++)
        for (size_t groups = 1; groups <= 3; groups++)
            for (size_t i = 0; i < n_queries; i++)
                for (int mask = 0; mask < 4; mask++) {
                    size_t turn = groups + i + (size_t)mask + r;
                    struct shape s = {.n_q = queries[i],
                                      .n_groups = groups,
                                      .d_rope = ropes[turn % SN_ARRAY_LEN(ropes)],
                                      .n_chunks = 1 + turn % (c->opts->quick ? 2 : 4),
                                      .soft_cap = turn % 5 == 0 ? 20.0f : 0,
                                      .mask = mask,
                                      .fault = turn % 7 == 0};
                    one_case(c, &s);
                }
}

/* ---- the indexer ---------------------------------------------------------------------------------------------- */

static void index_case(struct kcheck *c, bool half, size_t n_heads, size_t d, uint64_t wanted,
                       enum kcheck_shape shape)
{
    size_t n = 64 * d;
    float *q = kcheck_f32(c, n_heads * d, shape), *w = kcheck_f32(c, n_heads, KC_NORMAL);
    float *keys = kcheck_f32(c, n, shape), *out[2];
    uint16_t *halves = kcheck_out(c, 2 * n, 2);
    for (size_t i = 0; i < n; i++)
        halves[i] = sn_f32_to_f16_sat(keys[i]);
    struct sn_index_args a = {.q = q, .w = w, .n_heads = n_heads, .d = d, .wanted = wanted};
    a.k = half ? (const void *)halves : keys;
    for (size_t side = 0; side < 2; side++) {
        const struct sn_kernels *k = side ? c->dut : c->ref;
        a.out = out[side] = kcheck_out(c, 4 * 64, 4);
        (half ? k->index_f16 : k->index_f32)(&a);
        for (size_t j = 0; j < 64; j++)
            if (!(wanted >> j & 1))
                out[side][j] = 0;
    }
    kcheck_same_f32(c, out[0], out[1], 64, "heads=%zu d=%zu wanted=%llx", n_heads, d, (unsigned long long)wanted);
    kcheck_end_case(c);
}

static void check_index(struct kcheck *c, bool half)
{
    static const size_t heads[] = {1, 2, 3, 4, 5, 8, 64}, dims[] = {1, 2, 7, 16, 33, 64, 128};
    size_t n = c->opts->quick ? 4 : SN_ARRAY_LEN(heads);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < SN_ARRAY_LEN(dims); j++)
            for (int kind = 0; kind < 3; kind++) {
                uint64_t bits = kcheck_u64(&c->rng);
                index_case(c, half, heads[i], dims[j],
                           kind == 0   ? ~0ull
                           : kind == 1 ? 1 + (bits & 0xFFFF)
                                       : bits,
                           kind == 2 ? KC_EDGES : KC_NORMAL);
            }
}

void kcheck_check_latent(struct kcheck *c)
{
    if (kcheck_begin(c, SN_K_attn_latent8))
        check_attention(c);
    if (kcheck_begin(c, SN_K_index_f32))
        check_index(c, false);
    if (kcheck_begin(c, SN_K_index_f16))
        check_index(c, true);
}

/* ---- speed ---------------------------------------------------------------------------------------------------- */

enum { Q = 16, GROUPS = 8, ROPE = 64, HEADS = 64, DIM = 128 };

struct timed {
    const struct sn_kernels *k;
    struct sn_attn_latent8_args a;
    struct sn_index_args index;
};

static void run_attention(void *arg)
{
    struct timed *t = arg;
    t->k->attn_latent8(&t->a);
}

static void run_index_f32(void *arg)
{
    struct timed *t = arg;
    t->k->index_f32(&t->index);
}

static void run_index_f16(void *arg)
{
    struct timed *t = arg;
    t->k->index_f16(&t->index);
}

void kcheck_bench_latent(struct kcheck *c)
{
    static uint8_t code[64 * GROUPS * 64];
    static int8_t q_code[Q * GROUPS * 64];
    static float ones[Q * GROUPS * 64], q[HEADS * DIM], keys[64 * DIM], out[Q * GROUPS * 64], m[64], l[64];
    static uint64_t visible[Q * 4];
    for (size_t i = 0; i < SN_ARRAY_LEN(ones); i++)
        ones[i] = 0.01f;
    memset(code, 3, sizeof code);
    memset(q_code, 5, sizeof q_code);
    memset(visible, 0xFF, sizeof visible);
    memset(keys, 0x31, sizeof keys); /* small positive numbers in every type */
    kcheck_fill(&c->rng, q, SN_ARRAY_LEN(q), KC_NORMAL);
    struct sn_latent8_chunk chunk = {code, ones, ones, keys}, chunks[4] = {chunk, chunk, chunk, chunk};
    struct timed t = {.k = c->dut,
                      .a = {.q_code = q_code,
                            .q_d = ones,
                            .q_s = ones,
                            .q_rope = q,
                            .ldq = ROPE,
                            .n_q = Q,
                            .n_groups = GROUPS,
                            .d_rope = ROPE,
                            .n_chunks = 4,
                            .chunk = chunks,
                            .visible = visible,
                            .m = m,
                            .l = l,
                            .o = out,
                            .ldo = GROUPS * 64},
                      .index = {.q = q, .w = ones, .n_heads = HEADS, .d = DIM, .k = keys, .wanted = ~0ull, .out = m}};
    if (kcheck_wanted(c, SN_K_attn_latent8))
        kcheck_time(c, SN_K_attn_latent8, "queries 16, rank 512, rope 64", 2.0 * 256 * Q * (1024 + ROPE), "GFLOPS",
                    run_attention, &t);
    if (kcheck_wanted(c, SN_K_index_f32))
        kcheck_time(c, SN_K_index_f32, "heads 64, dim 128", 2.0 * 64 * HEADS * DIM, "GFLOPS", run_index_f32, &t);
    if (kcheck_wanted(c, SN_K_index_f16))
        kcheck_time(c, SN_K_index_f16, "heads 64, dim 128", 2.0 * 64 * HEADS * DIM, "GFLOPS", run_index_f16, &t);
}
