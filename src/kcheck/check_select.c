/* top_k: the total order, also with many equal values, zeros of both signs and infinities. */
#include <math.h>

#include "kcheck/kcheck.h"

enum { VOCABULARY = 49152 };

static void one_case(struct kcheck *c, size_t n, size_t k, int kind)
{
    float *x = kcheck_f32(c, n, kind == 0 ? KC_WIDE : KC_NORMAL);
    for (size_t i = 0; i < n && kind > 1; i++)
        x[i] = kind == 2   ? (float)(int)(x[i] * 2)
               : kind == 3 ? (float)i
               : kind == 4 ? -(float)i
                           : x[i];
    if (kind == 5 && n) {
        x[kcheck_below(&c->rng, (uint32_t)n)] = INFINITY;
        x[kcheck_below(&c->rng, (uint32_t)n)] = -INFINITY;
    }
    uint32_t *want = kcheck_out(c, 4 * k, 4), *got = kcheck_out(c, 4 * k, 4);
    c->ref->top_k(x, n, k, want);
    c->dut->top_k(x, n, k, got);
    kcheck_same_bytes(c, want, got, 4 * k, "n=%zu k=%zu kind %d", n, k, kind);
    for (size_t i = 1; i < k; i++)
        kcheck_expect(c,
                      x[want[i - 1]] > x[want[i]] ||
                          (x[want[i - 1]] == x[want[i]] && want[i - 1] < want[i]),
                      "the total order at %zu of n=%zu k=%zu", i, n, k);
    size_t n_better = 0; /* nothing that was left out beats the last one */
    for (size_t i = 0; i < n && k; i++)
        n_better += x[i] > x[want[k - 1]] || (x[i] == x[want[k - 1]] && i < want[k - 1]);
    kcheck_expect(c, k == 0 || n_better == k - 1, "exactly k - 1 before the last of n=%zu k=%zu", n,
                  k);
    kcheck_end_case(c);
}

void kcheck_check_select(struct kcheck *c)
{
    if (!kcheck_begin(c, SN_K_top_k))
        return;
    for (int kind = 0; kind < 6; kind++) {
        for (size_t n = 0; n <= 65; n++)
            for (size_t k = 0; k <= n; k += c->opts->quick ? 7 : 1)
                one_case(c, n, k, kind);
        static const size_t ks[] = {1, 2, 40, 64, 1000};
        for (size_t i = 0; i < (c->opts->quick ? 3 : SN_ARRAY_LEN(ks)); i++)
            one_case(c, c->opts->quick ? 2000 : VOCABULARY + i, ks[i], kind);
    }
    if (!c->opts->quick)
        one_case(c, VOCABULARY, VOCABULARY, 2);
}

struct timed {
    const struct sn_kernels *k;
    size_t n_best;
    float x[VOCABULARY];
    uint32_t out[64];
};

static void run_timed(void *arg)
{
    struct timed *t = arg;
    t->k->top_k(t->x, VOCABULARY, t->n_best, t->out);
}

void kcheck_bench_select(struct kcheck *c)
{
    static struct timed t;
    if (!kcheck_wanted(c, SN_K_top_k))
        return;
    kcheck_fill(&c->rng, t.x, VOCABULARY, KC_NORMAL);
    t.k = c->dut;
    t.n_best = 1;
    kcheck_time(c, SN_K_top_k, "n=49152 k=1", VOCABULARY * 4.0, "GB/s", run_timed, &t);
    t.n_best = 40;
    kcheck_time(c, SN_K_top_k, "n=49152 k=40", VOCABULARY * 4.0, "GB/s", run_timed, &t);
}
