/* Sampling against a textbook twin: all candidates in a list, qsort, the written order of every sum, no shared code
 * but the scalar exp and log. */
#include "base/cpu.h"
#include "kernel/math.h"
#include "sample/philox.h"
#include "sample/sample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N = 777, N_HISTORY = 40 };

static uint64_t rng_state = 42;
static uint64_t rng(void)
{
    uint64_t z = (rng_state += 0x9E3779B97F4A7C15u);
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static float uniform(void) { return (float)(rng() >> 40) * 0x1p-24f; }

/* Known answers of the Random123 distribution (kat_vectors, philox4x32 10 rounds). */
static void philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t c[4];
        memcpy(c, cases[i].counter, sizeof c);
        sn_philox4x32(c, cases[i].key);
        assert_memory_equal(c, cases[i].want, sizeof c);
    }
    for (uint32_t step = 0; step < 1000; step++) {
        float u = sn_draw(5, 0, step);
        assert_true(u >= 0 && u < 1);
        assert_true(u != sn_draw(6, 0, step) || u != sn_draw(5, 1, step));
    }
}

struct candidate {
    float logit, p;
    uint32_t id;
};
static int by_order(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

static void twin_logits(const float *raw, const struct sn_sampling *s, const struct sn_history *h, float *x)
{
    memcpy(x, raw, N * sizeof *x);
    for (uint32_t i = 0; i < s->n_biases; i++)
        x[s->biases[i].id] += s->biases[i].bias;
    for (uint32_t id = 0; id < N; id++) {
        bool seen = false;
        float count = 0;
        for (size_t i = 0; i < h->n_prompt; i++)
            seen |= h->prompt[i] == (int32_t)id;
        for (size_t i = 0; i < h->n_answer; i++)
            if (h->answer[i] == (int32_t)id) {
                seen = true;
                count += 1;
            }
        if (seen && s->repetition_penalty != 1)
            x[id] = x[id] > 0 ? x[id] / s->repetition_penalty : x[id] * s->repetition_penalty;
        if (count > 0 && (s->presence_penalty != 0 || s->frequency_penalty != 0))
            x[id] = (x[id] - count * s->frequency_penalty) - s->presence_penalty;
    }
}

static int32_t twin_sample(const float *raw, const struct sn_sampling *s, const struct sn_history *h)
{
    static float x[N];
    static struct candidate c[N];
    twin_logits(raw, s, h, x);
    for (uint32_t i = 0; i < N; i++)
        c[i] = (struct candidate){.logit = s->temperature > 0 ? x[i] / s->temperature : x[i], .id = i};
    qsort(c, N, sizeof *c, by_order);
    if (s->temperature == 0)
        return (int32_t)c[0].id;
    uint32_t n = s->top_k && s->top_k < N ? s->top_k : N;
    float lanes[16] = {0}, max = c[0].logit;
    for (uint32_t id = 0; id < N; id++)
        for (uint32_t i = 0; i < n; i++)
            if (c[i].id == id) {
                c[i].p = sn_expf(c[i].logit - max);
                lanes[id % 16] += c[i].p;
            }
    for (int w = 8; w; w /= 2)
        for (int i = 0; i < w; i++)
            lanes[i] = lanes[i] + lanes[i + w];
    for (uint32_t i = 0; i < n; i++)
        c[i].p = c[i].p / lanes[0];
    if (s->top_p > 0 && s->top_p < 1) {
        float sum = 0;
        uint32_t keep = n;
        for (uint32_t i = 0; i < n; i++) {
            sum += c[i].p;
            if (sum >= s->top_p) {
                keep = i + 1;
                break;
            }
        }
        n = keep;
    }
    if (s->min_p > 0) {
        uint32_t keep = 0;
        while (keep < n && c[keep].p >= s->min_p * c[0].p)
            keep++;
        n = keep;
    }
    float total = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        total += c[i].p;
    float target = sn_draw(s->seed, s->choice, h->n_answer) * total;
    for (uint32_t i = 0; i < n; i++) {
        sum += c[i].p;
        if (sum > target)
            return (int32_t)c[i].id;
    }
    return (int32_t)c[n - 1].id;
}

static struct sn_sampling random_sampling(struct sn_bias *biases)
{
    struct sn_sampling s = {.repetition_penalty = 1, .seed = rng(), .choice = (uint32_t)(rng() % 3)};
    s.temperature = rng() % 4 == 0 ? 0 : 0.2f + uniform() * 1.5f;
    s.top_k = rng() % 2 ? (uint32_t)(rng() % (N + 5)) : 0;
    s.top_p = rng() % 2 ? uniform() : 0;
    s.min_p = rng() % 3 == 0 ? uniform() * 0.5f : 0;
    if (rng() % 2)
        s.repetition_penalty = 0.5f + uniform();
    if (rng() % 2)
        s.presence_penalty = uniform() * 2 - 1;
    if (rng() % 2)
        s.frequency_penalty = uniform() * 2 - 1;
    s.n_biases = (uint32_t)(rng() % 4);
    for (uint32_t i = 0; i < s.n_biases; i++)
        biases[i] = (struct sn_bias){.id = (int32_t)(rng() % N), .bias = uniform() * 10 - 5};
    s.biases = biases;
    return s;
}

static void equals_the_twin(void **state)
{
    (void)state;
    struct sn_heap heap;
    struct sn_sampler w;
    struct sn_kernels k;
    struct sn_calls calls = {0};
    struct sn_cpu cpu = sn_cpu_detect();
    sn_heap_init(&heap, NULL);
    assert_int_equal(sn_sampler_init(&w, &heap, N, NULL), SENNIT_OK);
    int distinct = 0;
    int32_t last = -1;
    for (enum sn_isa isa = SN_ISA_SCALAR; isa <= SN_ISA_AVX512; isa++) {
        if (sn_kernels_init(&k, isa, &cpu, NULL) != SENNIT_OK)
            continue;
        for (int round = 0; round < 600; round++) {
            float raw[N];
            int32_t history[N_HISTORY];
            struct sn_bias biases[4];
            bool ties = round % 3 == 0;
            for (int i = 0; i < N; i++)
                raw[i] = ties ? (float)(rng() % 9) - 4 : (uniform() - 0.5f) * 20;
            for (int i = 0; i < N_HISTORY; i++)
                history[i] = (int32_t)(rng() % N);
            struct sn_sampling s = random_sampling(biases);
            struct sn_history h = {history, rng() % 20, history + 20, rng() % 20};
            assert_int_equal(sn_sampling_check(&s, N, NULL), SENNIT_OK);
            int32_t got = sn_sample(&w, &k, &calls, raw, &s, &h), want = twin_sample(raw, &s, &h);
            assert_int_equal(got, want);
            distinct += got != last;
            last = got;
        }
    }
    assert_true(distinct > 300);
    sn_sampler_release(&w);
    assert_int_equal(atomic_load(&heap.total), 0);
}

/* Huge logits, tiny temperatures and strong penalties saturate; they never give a NaN or an id outside. */
static void extremes(void **state)
{
    (void)state;
    struct sn_heap heap;
    struct sn_sampler w;
    struct sn_kernels k;
    struct sn_calls calls = {0};
    struct sn_cpu cpu = sn_cpu_detect();
    sn_heap_init(&heap, NULL);
    assert_int_equal(sn_sampler_init(&w, &heap, N, NULL), SENNIT_OK);
    assert_int_equal(sn_kernels_init(&k, sn_isa_best(&cpu), &cpu, NULL), SENNIT_OK);
    float raw[N];
    for (int i = 0; i < N; i++)
        raw[i] = i % 2 ? 3e38f : -3e38f;
    int32_t history[2] = {1, 3};
    struct sn_sampling s = {.temperature = 1e-4f, .repetition_penalty = 1e-3f, .presence_penalty = 1e6f,
                            .frequency_penalty = -1e6f};
    for (uint64_t seed = 0; seed < 50; seed++) {
        s.seed = seed;
        struct sn_history h = {history, 1, history + 1, 1};
        int32_t id = sn_sample(&w, &k, &calls, raw, &s, &h);
        assert_in_range(id, 0, N - 1);
        assert_int_equal(id % 2, 1);
    }
    sn_sampler_release(&w);
}

static void bad_parameters_are_named(void **state)
{
    (void)state;
    struct sennit_error err;
    struct sn_bias outside = {.id = N, .bias = 1}, huge = {.id = 0, .bias = INFINITY};
    const struct sn_sampling ok = {.repetition_penalty = 1};
    struct sn_sampling bad[10];
    const char *names[10] = {"temperature", "temperature", "top_p", "top_p", "min_p", "repetition_penalty",
                             "presence_penalty", "frequency_penalty", "logit_bias", "logit_bias"};
    for (int i = 0; i < 10; i++)
        bad[i] = ok;
    bad[0].temperature = -1;
    bad[1].temperature = NAN;
    bad[2].top_p = 1.5f;
    bad[3].top_p = NAN;
    bad[4].min_p = 1;
    bad[5].repetition_penalty = 0;
    bad[6].presence_penalty = NAN;
    bad[7].frequency_penalty = INFINITY;
    bad[8].biases = &outside;
    bad[9].biases = &huge;
    bad[8].n_biases = bad[9].n_biases = 1;
    assert_int_equal(sn_sampling_check(&ok, N, &err), SENNIT_OK);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(sn_sampling_check(&bad[i], N, &err), SENNIT_INVALID);
        assert_non_null(strstr(err.message, names[i]));
    }
}

static void logprobs_sum_to_one(void **state)
{
    (void)state;
    struct sn_kernels k;
    struct sn_calls calls = {0};
    struct sn_cpu cpu = sn_cpu_detect();
    assert_int_equal(sn_kernels_init(&k, SN_ISA_SCALAR, &cpu, NULL), SENNIT_OK);
    float raw[N];
    double sum = 0;
    for (int i = 0; i < N; i++)
        raw[i] = (uniform() - 0.5f) * 12;
    struct sn_lse lse = sn_log_sum_exp(&k, &calls, raw, N);
    for (int i = 0; i < N; i++)
        sum += exp((double)sn_logprob(lse, raw[i]));
    assert_true(fabs(sum - 1) < 1e-5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers), cmocka_unit_test(equals_the_twin), cmocka_unit_test(extremes),
        cmocka_unit_test(bad_parameters_are_named), cmocka_unit_test(logprobs_sum_to_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
