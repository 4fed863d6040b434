/* A row's answer is its own, on SmolLM2-135M: 16 prompts of 1 to 700 tokens; settings drawn from the cross of company,
 * chunk, threads and instruction set by a printed seed, each value of each axis among them.
 *
 *   exact_smollm2 [--seed N] [--settings N] [--full-scalar]
 *
 * Also what was in force: under scalar no vector kernel ran, both of two threads worked, eight decoding rows were one
 * step that read each weight once, chunk 7 gave ceil(n / 7) spans, and a flipped weight bit changes the digest. */
#include "engine/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROWS = 16, MAX_PROMPT = 700, N_GOLDEN = 8 };

static const uint32_t chunks[] = {1, 7, 64, 512}, threads[] = {1, 2, 3, 7}, companies[] = {1, 2, 3, 8, 16};
/* The first eight are short enough for the scalar kernels and for chunk 1. */
static const size_t lengths[N_ROWS] = {1, 5, 16, 33, 64, 63, 48, 7, 65, 100, 129, 200, 256, 257, 511, 700};

/* Digests of the first eight prompts alone, release build of gcc and clang. Made by --print. */
static const uint64_t golden[N_GOLDEN] = {
    0xcbaebcf785ef94e0,
    0xbe4d3c9e99827cbd,
    0xb21eaad4400435cf,
    0xa8c256fb6923276e,
    0x0a684a3a108a80cb,
    0x9f406d92ade6cf88,
    0xbc901871798bf8a3,
    0x38d09262d9da6ab9,
};

struct problem {
    int32_t ids[N_ROWS][MAX_PROMPT];
    struct run_job jobs[N_ROWS];
    struct run_result want[N_ROWS];
};

static void make_problem(struct problem *p, uint32_t n_vocab)
{
    uint64_t state = 135;
    for (int i = 0; i < N_ROWS; i++) {
        run_random_ids(&state, n_vocab, p->ids[i], lengths[i]);
        p->jobs[i] = (struct run_job){.prompt = p->ids[i],
                                      .n_prompt = lengths[i],
                                      .max_tokens = 5,
                                      .cancel_step = RUN_NEVER};
        if (i % 2)
            p->jobs[i].sampling = (struct sennit_sampling){.temperature = 0.8f, .seed = (uint64_t)i, .top_p = 0.95f};
    }
}

static void run_alone(const struct sennit_model *m, struct problem *p)
{
    struct run_setting s = {.n_threads = 2, .chunk = 512, .max_rows = 1};
    struct sennit_engine *engine = run_engine(m, &s);
    for (int i = 0; i < N_ROWS; i++)
        run_jobs(engine, &p->jobs[i], 1, &p->want[i]);
    sennit_engine_free(engine);
}

static void check_in_force(struct sennit_engine *engine, const struct run_setting *s, const char *where)
{
    const struct sennit_stats *stats = sennit_engine_stats(engine);
    CHECK(strcmp(stats->isa, s->isa) == 0, "%s: ran as %s", where, stats->isa);
    CHECK(stats->cache_bytes == 0 && stats->cache_reserved == 0, "%s: cache bytes left", where);
    for (uint32_t i = 0; i < stats->n_kernels; i++) {
        const struct sennit_kernel_use *u = &stats->kernels[i];
        if (strcmp(s->isa, "scalar") == 0)
            CHECK(strncmp(u->variant, "scalar", 6) == 0, "%s: %s ran as %s", where, u->kernel, u->variant);
        if (strcmp(u->kernel, "gemm_q4_1") == 0) {
            CHECK(strncmp(u->variant, s->isa, strlen(s->isa)) == 0, "%s: products ran as %s", where, u->variant);
            for (uint32_t t = 0; t < s->n_threads; t++)
                CHECK(u->calls[t] > 0, "%s: thread %u did no product", where, t);
        }
    }
}

/* Rows in groups of `company`, shuffled, joining at different steps, every second group with a cancelled row. */
static size_t run_setting_once(const struct sennit_model *m, struct problem *p, const struct run_setting *s,
                               uint32_t company, int n_rows, uint64_t *state)
{
    char where[128];
    int order[N_ROWS];
    size_t n_checked = 0;
    snprintf(where, sizeof where, "isa %s, threads %u, chunk %u, company %u", s->isa, s->n_threads, s->chunk, company);
    for (int i = 0; i < n_rows; i++)
        order[i] = i;
    for (int i = n_rows - 1; i > 0; i--) {
        int j = (int)(run_random(state) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    struct sennit_engine *engine = run_engine(m, s);
    for (int first = 0; first < n_rows; first += (int)company) {
        uint32_t n = (uint32_t)(n_rows - first) < company ? (uint32_t)(n_rows - first) : company;
        struct run_job jobs[N_ROWS];
        struct run_result results[N_ROWS];
        uint32_t victim = n > 1 && run_random(state) % 2 ? (uint32_t)(run_random(state) % n) : RUN_NEVER;
        for (uint32_t i = 0; i < n; i++) {
            jobs[i] = p->jobs[order[first + (int)i]];
            jobs[i].join_step = (uint32_t)(run_random(state) % 4);
            if (i == victim)
                jobs[i].cancel_step = jobs[i].join_step + 1 + (uint32_t)(run_random(state) % 3);
        }
        run_jobs(engine, jobs, n, results);
        for (uint32_t i = 0; i < n; i++) {
            int row = order[first + (int)i];
            if (i == victim)
                continue;
            CHECK(results[i].finish == SENNIT_FINISH_LENGTH, "%s, row %d: %s", where, row, results[i].error.message);
            CHECK(results[i].digest == p->want[row].digest, "%s, row %d: digest %016" PRIx64 ", alone %016" PRIx64, where,
                  row, results[i].digest, p->want[row].digest);
            CHECK(memcmp(results[i].answer, p->want[row].answer, sizeof results[i].answer) == 0 &&
                      memcmp(results[i].logprobs, p->want[row].logprobs, sizeof results[i].logprobs) == 0,
                  "%s, row %d: other tokens or log-probabilities", where, row);
            size_t spans = (lengths[row] + s->chunk - 1) / s->chunk;
            if (company == 1)
                CHECK(results[i].n_prefill_spans == spans, "%s, row %d: %u prefill spans, not %zu", where, row,
                      results[i].n_prefill_spans, spans);
            n_checked++;
        }
    }
    check_in_force(engine, s, where);
    sennit_engine_free(engine);
    printf("ok: %s, %d prompts\n", where, n_rows);
    fflush(stdout);
    return n_checked;
}

/* Eight rows in one decode step: each weight is read once, and both threads work. */
static void check_one_step(const struct sennit_model *m, struct problem *p)
{
    struct run_setting s = {.n_threads = 2, .chunk = 512, .max_rows = 8};
    struct sennit_engine *engine = run_engine(m, &s);
    struct sennit_request *requests[8];
    bool worked;
    for (int i = 0; i < 8; i++) {
        struct sennit_request_options o = {
            .prompt = p->ids[i], .n_prompt = lengths[i], .max_tokens = 8, .ignore_eos = true};
        MUST(sennit_engine_submit(engine, &o, &requests[i], err));
    }
    MUST(sennit_engine_step(engine, &worked, err));
    for (int step = 0; step < 3; step++) {
        uint64_t before = sennit_engine_stats(engine)->weight_bytes_read;
        MUST(sennit_engine_step(engine, &worked, err));
        const struct sennit_step_span *spans;
        uint32_t n = sennit_engine_last_step(engine, &spans);
        CHECK(n == 8, "a step of %u rows", n);
        for (uint32_t i = 0; i < n; i++)
            CHECK(spans[i].n_tokens == 1, "span %u has %u tokens", i, spans[i].n_tokens);
        uint64_t read = sennit_engine_stats(engine)->weight_bytes_read - before;
        uint64_t want = sennit_model_get_info(m)->step_weight_bytes;
        CHECK(read == want, "eight rows read %" PRIu64 " weight bytes; the model has %" PRIu64, read, want);
    }
    for (uint32_t t = 0; t < 2; t++)
        CHECK(run_calls(engine, "gemm_q4_1", t, NULL) > 0, "thread %u did no product", t);
    for (int i = 0; i < 8; i++)
        sennit_request_free(requests[i]);
    sennit_engine_free(engine);
    puts("ok: eight decoding rows were one step that read each weight once, on two threads");
}

/* Every value of each axis comes up: the axes are walked in shuffled cycles. */
static size_t draw_settings(const struct sennit_model *m, struct problem *p, int n_settings, uint64_t seed)
{
    uint64_t state = seed;
    size_t n = 0;
    const char *const *isas = run_isas();
    uint32_t n_vector = 0;
    while (isas[n_vector + 1])
        n_vector++;
    uint32_t c0 = (uint32_t)run_random(&state), t0 = (uint32_t)run_random(&state), k0 = (uint32_t)run_random(&state);
    for (uint32_t i = 0; i < (uint32_t)n_settings; i++) {
        bool scalar = i < 2 || n_vector == 0;
        struct run_setting s = {.isa = scalar ? isas[0] : isas[1 + i % n_vector],
                                .n_threads = threads[(t0 + i + i / 4) % 4],
                                .chunk = chunks[(c0 + i + i / 16) % 4],
                                .max_rows = 16};
        uint32_t company = companies[(k0 + i) % 5];
        int n_rows = scalar ? 4 : s.chunk == 1 || s.n_threads > 2 ? 8 : N_ROWS;
        n += run_setting_once(m, p, &s, company, n_rows, &state);
    }
    return n;
}

int main(int argc, char **argv)
{
    static struct problem p;
    uint64_t seed = 20261129;
    int n_settings = 32;
    bool print = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--settings") == 0 && i + 1 < argc)
            n_settings = atoi(argv[++i]);
        print |= strcmp(argv[i], "--print") == 0;
    }
    const char *path = run_smollm2_path();
    if (!path) {
        puts("SKIPPED: no SmolLM2 file; scripts/fetch-smollm2.sh fetches it, or set SENNIT_SMOLLM2");
        return 77;
    }
    struct sennit_model *m = NULL;
    MUST(sennit_model_open(&m, path, NULL, err));
    make_problem(&p, sennit_model_get_info(m)->n_vocab);
    run_alone(m, &p);
    for (int i = 0; i < N_GOLDEN; i++) {
        if (print)
            printf("0x%016" PRIx64 ",\n", p.want[i].digest);
        else
            CHECK(p.want[i].digest == golden[i], "prompt %d: digest %016" PRIx64 ", golden %016" PRIx64, i,
                  p.want[i].digest, golden[i]);
    }
    if (!print) {
        check_one_step(m, &p);
        printf("seed %" PRIu64 ", %d settings\n", seed, n_settings);
        size_t n = draw_settings(m, &p, n_settings, seed);
        printf("%zu rows, each equal to itself alone; 8 golden digests hold\n", n);
    }
    sennit_model_free(m);
    return 0;
}
