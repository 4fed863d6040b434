/* Attention: every shape of visibility, sizes that are no multiple of anything, garbage in what
 * nobody sees, faults. */
#include <math.h>

#include "kcheck/kcheck.h"
#include "kcheck/masks.h"
#include "tensor/traits.h"

static const struct kv_type {
    enum sn_kernel_id id;
    size_t size;
} types[] = {{SN_K_attn_f32, 4}, {SN_K_attn_f16, 2}, {SN_K_attn_bf16, 2}};

static sn_attn_fn slot_of(const struct sn_kernels *k, enum sn_kernel_id id)
{
    return id == SN_K_attn_f32 ? k->attn_f32 : id == SN_K_attn_f16 ? k->attn_f16 : k->attn_bf16;
}

static void encode(enum sn_kernel_id id, float x, void *to, size_t index)
{
    uint16_t h = id == SN_K_attn_f16 ? sn_f32_to_f16_sat(x) : sn_f32_to_bf16(x);
    if (id == SN_K_attn_f32)
        memcpy((uint8_t *)to + 4 * index, &x, 4);
    else
        memcpy((uint8_t *)to + 2 * index, &h, 2);
}

static float decode(enum sn_kernel_id id, const void *from, size_t index)
{
    if (id == SN_K_attn_f32)
        return ((const float *)from)[index];
    uint16_t h = ((const uint16_t *)from)[index];
    return id == SN_K_attn_f16 ? sn_f16_to_f32(h) : sn_bf16_to_f32(h);
}

static uint64_t first_keys(size_t n)
{
    return n >= 64 ? ~0ull : (1ull << n) - 1;
}

/* Keys a .. b - 1 of the segment, chunk c's share. */
static uint64_t span(size_t a, size_t b, size_t c)
{
    size_t lo = a > 64 * c ? a - 64 * c : 0, hi = b > 64 * c ? b - 64 * c : 0;
    return first_keys(hi) & ~first_keys(lo);
}

void kcheck_masks(struct kcheck *c, enum kcheck_mask kind, size_t n_q, size_t n_chunks, uint64_t *visible)
{
    uint32_t n_keys = (uint32_t)(64 * n_chunks), start = kcheck_below(&c->rng, n_keys);
    for (size_t i = 0; i < n_q; i++) {
        size_t end = kind == KC_MASK_SAME_PREFIX ? start + 1 : sn_min_size(start + i + 1, n_keys);
        size_t window = 40;
        uint32_t single = kcheck_below(&c->rng, n_keys);
        for (size_t j = 0; j < n_chunks; j++) {
            uint64_t bits = kcheck_u64(&c->rng), more = kcheck_u64(&c->rng);
            visible[i * n_chunks + j] = kind == KC_MASK_ALL          ? ~0ull
                                        : kind == KC_MASK_SPARSE     ? bits & more
                                        : kind == KC_MASK_SINGLE     ? span(single, single + 1, j)
                                        : kind == KC_MASK_SOME_EMPTY ? (bits & 3 ? more | 1 : 0)
                                        : kind == KC_MASK_WINDOW
                                            ? span(end > window ? end - window : 0, end, j)
                                            : span(0, end, j);
        }
    }
}

struct shape {
    size_t n_q, d_k, d_v, n_chunks;
    float soft_cap;
    enum kcheck_mask mask;
    bool fault; /* a NaN or an infinity among the visible numbers */
};

/* Plain softmax in double: is the specification itself attention? */
static void compare_with_softmax(struct kcheck *c, const struct sn_attn_args *a,
                                 enum sn_kernel_id id)
{
    for (size_t i = 0; i < a->n_q; i++) {
        static double o[4096];
        double top = -(double)INFINITY, l = 0, s[256], worst = 0, size = 0;
        memset(o, 0, a->d_v * sizeof *o);
        for (size_t key = 0; key < 64 * a->n_chunks; key++) {
            s[key] = -(double)INFINITY;
            if (!(a->visible[i * a->n_chunks + key / 64] >> key % 64 & 1))
                continue;
            double acc = 0;
            for (size_t d = 0; d < a->d_k; d++)
                acc += (double)a->q[i * a->ldq + d] *
                       (double)decode(id, a->k_chunk[key / 64],
                                      (key % 64 / 16 * a->d_k + d) * 16 + key % 16);
            s[key] = a->soft_cap != 0 ? (double)a->soft_cap * tanh(acc / (double)a->soft_cap) : acc;
            top = s[key] > top ? s[key] : top;
        }
        for (size_t key = 0; key < 64 * a->n_chunks; key++) {
            if (s[key] == -(double)INFINITY)
                continue;
            double p = exp(s[key] - top);
            l += p;
            for (size_t d = 0; d < a->d_v; d++)
                o[d] += p * (double)decode(id, a->v_chunk[key / 64], key % 64 * a->d_v + d);
        }
        for (size_t d = 0; d < a->d_v && l > 0; d++) {
            double e = fabs(o[d] / l - (double)a->o[i * a->ldo + d] / (double)a->l[i]);
            worst = e > worst ? e : worst;
            size = fabs(o[d] / l) > size ? fabs(o[d] / l) : size;
        }
        kcheck_expect(c, worst <= 2e-4 * (size + 0.1),
                      "softmax in double within 2e-4, not %g of %g (query %zu)", worst, size, i);
        kcheck_expect(c, l > 0 || (a->m[i] == -INFINITY && a->l[i] == 0),
                      "an empty state where nothing is visible");
    }
}

/* One K and one V chunk; numbers that no query sees are NaN or noise. */
static void draw_chunk(struct kcheck *c, const struct kv_type *t, const struct shape *s,
                       uint64_t seen, const void **k, const void **v)
{
    void *kk = kcheck_out(c, 64 * s->d_k * t->size, t->size),
         *vv = kcheck_out(c, 64 * s->d_v * t->size, t->size);
    for (size_t key = 0; key < 64; key++) {
        bool hidden = !(seen >> key & 1);
        for (size_t d = 0; d < s->d_k + s->d_v; d++) {
            float x = kcheck_unit(&c->rng);
            x = hidden && key % 3 ? NAN : hidden ? x * 1e30f : x;
            if (d < s->d_k)
                encode(t->id, x, kk, (key / 16 * s->d_k + d) * 16 + key % 16);
            else
                encode(t->id, x, vv, key * s->d_v + d - s->d_k);
        }
    }
    *k = kk;
    *v = vv;
}

static void plant_fault(struct kcheck *c, const struct kv_type *t, const struct shape *s,
                        const void *const *k, const void *const *v, float *q)
{
    static const float faults[] = {NAN, INFINITY, -INFINITY, 3e38f};
    float x = faults[kcheck_below(&c->rng, 4)];
    uint32_t where = kcheck_below(&c->rng, 3), at = kcheck_below(&c->rng, 64);
    if (where == 0)
        encode(t->id, x, (void *)(uintptr_t)k[0], at * s->d_k);
    else if (where == 1)
        encode(t->id, x, (void *)(uintptr_t)v[0], at * s->d_v);
    else
        q[0] = x;
}

static void one_case(struct kcheck *c, const struct kv_type *t, const struct shape *s)
{
    size_t ldq = s->d_k + kcheck_below(&c->rng, 2) * 5, ldo = s->d_v + kcheck_below(&c->rng, 2) * 3;
    size_t n_masks = s->n_q * s->n_chunks, n_out = (s->n_q - 1) * ldo + s->d_v;
    uint64_t *visible = kcheck_out(c, n_masks * 8, 8);
    kcheck_masks(c, s->mask, s->n_q, s->n_chunks, visible);
    const void *k[4], *v[4];
    for (size_t j = 0; j < s->n_chunks; j++) {
        uint64_t seen = 0;
        for (size_t i = 0; i < s->n_q; i++)
            seen |= visible[i * s->n_chunks + j];
        draw_chunk(c, t, s, seen, &k[j], &v[j]);
    }
    float *q = kcheck_f32(c, (s->n_q - 1) * ldq + s->d_k, KC_NORMAL);
    if (s->fault)
        plant_fault(c, t, s, k, v, q);
    float *state[2][3];
    struct sn_attn_args a = {.q = q,
                             .ldq = ldq,
                             .n_q = s->n_q,
                             .d_k = s->d_k,
                             .d_v = s->d_v,
                             .n_chunks = s->n_chunks,
                             .k_chunk = k,
                             .v_chunk = v,
                             .visible = visible,
                             .soft_cap = s->soft_cap,
                             .ldo = ldo};
    for (size_t side = 0; side < 2; side++) {
        a.m = state[side][0] = kcheck_out(c, 4 * s->n_q, 4);
        a.l = state[side][1] = kcheck_out(c, 4 * s->n_q, 4);
        a.o = state[side][2] = kcheck_out(c, 4 * n_out, 4);
        a.scratch = kcheck_out(c, sn_attn_scratch_bytes(s->n_q, s->d_k, s->d_v), 64);
        slot_of(side ? c->dut : c->ref, t->id)(&a);
        for (size_t i = 0; i < s->n_q; i++)
            a.m[i] = a.m[i] + 0.0f; /* the sign of a zero maximum is unspecified */
        if (side == 0 && !s->fault)
            compare_with_softmax(c, &a, t->id);
    }
    for (size_t part = 0; part < 3; part++)
        kcheck_same_f32(c, state[0][part], state[1][part], part < 2 ? s->n_q : n_out,
                        "%s: n_q=%zu d_k=%zu d_v=%zu n_chunks=%zu soft_cap=%g mask %d fault %d",
                        part == 0   ? "m"
                        : part == 1 ? "l"
                                    : "o",
                        s->n_q, s->d_k, s->d_v, s->n_chunks, (double)s->soft_cap, (int)s->mask,
                        s->fault);
    kcheck_end_case(c);
}

static void check_type(struct kcheck *c, const struct kv_type *t)
{
    static const size_t dims[] = {64, 128, 80, 96, 16, 32, 48, 256, 1, 3, 17, 33, 65, 100};
    static const size_t queries[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 18, 25, 32};
    size_t n_dims = c->opts->quick ? 6 : SN_ARRAY_LEN(dims),
           n_queries = c->opts->quick ? 10 : SN_ARRAY_LEN(queries);
    size_t n_repeats = c->opts->long_run ? 20 : 1;
    for (size_t r = 0; r < n_repeats; r++)
        for (size_t d = 0; d < n_dims; d++)
            for (size_t i = 0; i < n_queries; i++)
                for (int mask = 0; mask < KC_N_MASKS; mask++) {
                    size_t turn = d + i + (size_t)mask + r;
                    if (c->opts->quick && (i * KC_N_MASKS + (size_t)mask) % 6 != d)
                        continue;
                    if (!c->opts->quick && !c->opts->long_run &&
                        (turn % 3 != 0 || (dims[d] > 128 && i % 4)))
                        continue;
                    struct shape s = {
                        .n_q = queries[i], .d_k = dims[d], .mask = (enum kcheck_mask)mask};
                    s.d_v = turn % 4 == 0 ? dims[(d + i) % n_dims] : dims[d];
                    s.n_chunks = c->opts->quick ? 1 + turn % 2 : 1 + turn % 4;
                    s.soft_cap = turn % 5 == 0 ? 20.0f : 0;
                    s.fault = turn % 7 == 0;
                    one_case(c, t, &s);
                }
}

void kcheck_check_attention(struct kcheck *c)
{
    for (size_t t = 0; t < SN_ARRAY_LEN(types); t++)
        if (kcheck_begin(c, types[t].id))
            check_type(c, &types[t]);
}

/* ---- speed ----------------------------------------------------------------------------------- */

enum { MAX_Q = 32, MAX_D = 256, PAGES = 4096 };

struct timed {
    sn_attn_fn fn;
    struct sn_attn_args a;
    const void *k[PAGES], *v[PAGES];
    uint64_t visible[MAX_Q * 4];
    size_t n_pages, at; /* segments of four pages, in turn */
};

static void run_timed(void *arg)
{
    struct timed *t = arg;
    t->a.k_chunk = t->k + t->at;
    t->a.v_chunk = t->v + t->at;
    t->at = t->at + 4 < t->n_pages ? t->at + 4 : 0;
    t->fn(&t->a);
}

static void bench_one(struct kcheck *c, const struct kv_type *t, size_t n_q, size_t dim,
                      size_t n_pages)
{
    static struct timed w;
    static float q[MAX_Q * MAX_D], m[MAX_Q], l[MAX_Q], o[MAX_Q * MAX_D];
    struct sn_heap heap;
    sn_heap_init(&heap, NULL);
    size_t page = 64 * dim * t->size, n_scratch = sn_attn_scratch_bytes(n_q, dim, dim);
    uint8_t *data = sn_alloc(&heap, SN_USE_MISC, 2 * page * n_pages);
    void *scratch = sn_alloc(&heap, SN_USE_MISC, n_scratch);
    if (data && scratch) {
        memset(data, 0x31, 2 * page * n_pages); /* small positive numbers in every type */
        kcheck_fill(&c->rng, q, n_q * dim, KC_NORMAL);
        for (size_t i = 0; i < n_pages; i++) {
            w.k[i] = data + 2 * page * i;
            w.v[i] = data + 2 * page * i + page;
        }
        memset(w.visible, 0xFF, sizeof w.visible);
        w.fn = slot_of(c->dut, t->id);
        w.n_pages = n_pages;
        w.at = 0;
        w.a = (struct sn_attn_args){.q = q,
                                    .ldq = dim,
                                    .n_q = n_q,
                                    .d_k = dim,
                                    .d_v = dim,
                                    .n_chunks = 4,
                                    .visible = w.visible,
                                    .m = m,
                                    .l = l,
                                    .o = o,
                                    .ldo = dim,
                                    .scratch = scratch};
        char what[64];
        snprintf(what, sizeof what, "queries %zu, dim %zu, %zu KiB", n_q, dim,
                 2 * page * n_pages / 1024);
        if (n_q <= 6)
            kcheck_time(c, t->id, what, 8.0 * (double)page, "GB/s", run_timed, &w);
        else
            kcheck_time(c, t->id, what, 4.0 * 256 * (double)(n_q * dim), "GFLOPS", run_timed, &w);
    }
    sn_free(&heap, SN_USE_MISC, data, 2 * page * n_pages);
    sn_free(&heap, SN_USE_MISC, scratch, n_scratch);
}

void kcheck_bench_attention(struct kcheck *c)
{
    for (size_t t = 0; t < SN_ARRAY_LEN(types); t++) {
        if (!kcheck_wanted(c, types[t].id))
            continue;
        bench_one(c, &types[t], 1, 64, 16);
        bench_one(c, &types[t], 3, 64, 16);
        bench_one(c, &types[t], 3, 64, PAGES);
        bench_one(c, &types[t], 4, 128, 16);
        bench_one(c, &types[t], 32, 64, 4);
        bench_one(c, &types[t], 32, 128, 4);
    }
}
