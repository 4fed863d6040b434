/* A row's answer is its own: on tiny models, the full cross of
 *   company {alone, batches of 2, 3, 8, 16 with joins at different steps, shuffled, with cancels}
 *   x chunk {1, 7, 64, 512} x threads {1, 2, 3, 7} x instruction set {scalar, AVX2, AVX-512}
 * gives one digest and one list of tokens per row. Golden digests hold on every machine, compiler and build type.
 *
 *   exact_tiny [--quick | --golden | --emulated | --print]
 *      --quick     a sixteenth of the cross, for sanitizers
 *      --golden    only the golden digests, with the scalar kernels and with the best ones
 *      --emulated  only row 0 (16 tokens), with the best kernels: for CPUs that an emulator plays
 *      --print     the digests for exact_golden.h */
#include "engine/exact_golden.h"
#include "engine/run.h"
#include "support/tiny_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROWS = 16, MAX_PROMPT = 150 };

static const uint32_t chunks[] = {1, 7, 64, 512}, threads[] = {1, 2, 3, 7}, companies[] = {1, 2, 3, 8, 16};

struct problem {
    int32_t ids[N_ROWS][MAX_PROMPT];
    struct run_job jobs[N_ROWS];
    struct run_result want[N_ROWS];
};

/* Lengths around chunks, pages and segments; greedy, sampled and penalised rows. */
static void make_problem(struct problem *p, uint32_t n_vocab)
{
    static const size_t lengths[N_ROWS] = {1, 2, 7, 8, 9, 63, 64, 65, 100, 15, 16, 17, 33, 128, 129, 150};
    uint64_t state = 20240601;
    for (int i = 0; i < N_ROWS; i++) {
        run_random_ids(&state, n_vocab, p->ids[i], lengths[i]);
        struct sennit_sampling s = {0};
        if (i % 3 == 1)
            s = (struct sennit_sampling){.temperature = 0.8f, .seed = (uint64_t)i};
        if (i % 3 == 2)
            s = (struct sennit_sampling){.temperature = 1.1f, .seed = 7, .top_k = 40, .top_p = 0.9f, .min_p = 0.01f,
                                         .repetition_penalty = 1.1f, .presence_penalty = 0.2f,
                                         .frequency_penalty = 0.1f};
        p->jobs[i] = (struct run_job){.prompt = p->ids[i], .n_prompt = lengths[i], .max_tokens = i == 0 ? 16 : 6 + (uint32_t)i % 4,
                                      .sampling = s, .cancel_step = RUN_NEVER};
    }
}

static void check_row(const struct problem *p, int row, const struct run_result *got, const char *where)
{
    const struct run_result *want = &p->want[row];
    CHECK(got->finish == SENNIT_FINISH_LENGTH, "%s, row %d: finish %s: %s", where, row,
          sennit_finish_name(got->finish), got->error.message);
    CHECK(got->digest == want->digest, "%s, row %d: digest %016" PRIx64 ", alone %016" PRIx64, where, row, got->digest,
          want->digest);
    CHECK(got->n_answer == want->n_answer &&
              memcmp(got->answer, want->answer, want->n_answer * sizeof *want->answer) == 0 &&
              memcmp(got->logprobs, want->logprobs, want->n_answer * sizeof *want->logprobs) == 0,
          "%s, row %d: other tokens or log-probabilities", where, row);
}

/* One setting: all rows in groups of `company`, in a shuffled order, joining at different steps; every fifth group has
 * a row that is cancelled on the way. */
static size_t run_company(const struct sennit_model *m, struct problem *p, const struct run_setting *s,
                          uint32_t company, uint64_t *state)
{
    char where[128];
    int order[N_ROWS];
    size_t n_checked = 0;
    snprintf(where, sizeof where, "isa %s, threads %u, chunk %u, company %u", s->isa, s->n_threads, s->chunk, company);
    for (int i = 0; i < N_ROWS; i++)
        order[i] = i;
    for (int i = N_ROWS - 1; i > 0; i--) {
        int j = (int)(run_random(state) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    struct sennit_engine *engine = run_engine(m, s);
    for (uint32_t first = 0; first + company <= N_ROWS; first += company) {
        struct run_job jobs[N_ROWS];
        struct run_result results[N_ROWS];
        uint32_t victim = company > 1 && run_random(state) % 3 == 0 ? (uint32_t)(run_random(state) % company) : RUN_NEVER;
        for (uint32_t i = 0; i < company; i++) {
            jobs[i] = p->jobs[order[first + i]];
            jobs[i].join_step = (uint32_t)(run_random(state) % 4);
            if (i == victim)
                jobs[i].cancel_step = jobs[i].join_step + 1 + (uint32_t)(run_random(state) % 3);
        }
        run_jobs(engine, jobs, company, results);
        for (uint32_t i = 0; i < company; i++)
            if (i != victim) {
                check_row(p, order[first + i], &results[i], where);
                n_checked++;
            }
    }
    const struct sennit_stats *stats = sennit_engine_stats(engine);
    CHECK(stats->cache_bytes == 0 && stats->cache_reserved == 0, "%s: %llu bytes left", where,
          (unsigned long long)stats->cache_bytes);
    if (strcmp(s->isa, "scalar") == 0)
        for (uint32_t i = 0; i < stats->n_kernels; i++)
            CHECK(strncmp(stats->kernels[i].variant, "scalar", 6) == 0, "%s: %s ran as %s", where,
                  stats->kernels[i].kernel, stats->kernels[i].variant);
    sennit_engine_free(engine);
    return n_checked;
}

/* Digests of all rows alone, folded. */
static uint64_t run_alone(const struct sennit_model *m, const struct run_setting *s, struct problem *p)
{
    struct sennit_engine *engine = run_engine(m, s);
    uint64_t all = 0;
    for (int i = 0; i < N_ROWS; i++) {
        run_jobs(engine, &p->jobs[i], 1, &p->want[i]);
        all = (all ^ p->want[i].digest) * 0x9E3779B97F4A7C15u;
        for (int j = 0; j < i; j++)
            CHECK(p->want[i].digest != p->want[j].digest, "rows %d and %d have one digest", i, j);
    }
    sennit_engine_free(engine);
    return all;
}

static void run_cross(const struct sennit_model *m, struct problem *p, const struct exact_golden *g, bool quick)
{
    size_t n = 0, settings = 0;
    uint64_t state = 99;
    for (const char *const *isa = run_isas(); *isa; isa++)
        for (size_t c = 0; c < 4; c++)
            for (size_t t = 0; t < 4; t++)
                for (size_t k = 0; k < 5; k++) {
                    if (quick && (c + 2 * t + 3 * k + (size_t)(isa - run_isas())) % 16 != 0)
                        continue;
                    struct run_setting s = {*isa, threads[t], chunks[c], 16};
                    n += run_company(m, p, &s, companies[k], &state);
                    settings++;
                }
    printf("%s, head %u: %zu settings, %zu rows, each equal to itself alone\n", g->type_name, g->head_dim, settings, n);
    fflush(stdout);
}

static void check_first(const struct sennit_model *m, const struct exact_golden *g, const struct run_setting *s,
                        struct problem *p)
{
    struct sennit_engine *engine = run_engine(m, s);
    run_jobs(engine, p->jobs, 1, p->want);
    sennit_engine_free(engine);
    CHECK(p->want[0].digest == g->first, "%s, head %u, %s: golden digest is %016" PRIx64 ", this run has %016" PRIx64,
          g->type_name, g->head_dim, s->isa, g->first, p->want[0].digest);
    printf("%s, head %u: golden digest of row 0, %zu tokens, holds with %s\n", g->type_name, g->head_dim,
           p->want[0].n_answer, s->isa);
}

enum mode { FULL, QUICK, GOLDEN, EMULATED, PRINT };

static void one_model(const struct exact_golden *g, enum mode mode)
{
    static struct problem p;
    struct tiny_spec spec = tiny_spec_default();
    spec.type = spec.embd_type = g->type;
    spec.n_layers = 2;
    spec.head_dim = g->head_dim;
    spec.tied = g->tied;
    char path[256];
    run_tiny_path(&spec, path);
    struct sennit_model *m = NULL;
    MUST(sennit_model_open(&m, path, NULL, err));
    make_problem(&p, sennit_model_get_info(m)->n_vocab);
    const char *const *isas = run_isas(), *best = isas[0];
    for (size_t i = 0; isas[i]; i++)
        best = isas[i];
    struct run_setting fast = {best, 2, 512, 1}, alone = {"scalar", 1, 512, 1};
    if (mode == EMULATED) {
        check_first(m, g, &fast, &p);
        sennit_model_free(m);
        run_unlink(path);
        return;
    }
    uint64_t vector = run_alone(m, &fast, &p), all = run_alone(m, &alone, &p);
    if (mode == PRINT)
        printf("    {%s, %u, %s, 0x%016" PRIx64 ", 0x%016" PRIx64 "},\n", g->type_name, g->head_dim,
               g->tied ? "true" : "false", all, p.want[0].digest);
    else
        CHECK(all == g->digest && vector == all,
              "%s, head %u: golden digest is %016" PRIx64 ", this build has %016" PRIx64 ", with %s %016" PRIx64
              "; if an order of operations was changed on purpose, raise SENNIT_NUMERICS and run exact_tiny --print",
              g->type_name, g->head_dim, g->digest, all, best, vector);
    if (mode == GOLDEN)
        printf("%s, head %u: golden digest holds with scalar and %s\n", g->type_name, g->head_dim, best);
    if (mode == FULL || mode == QUICK)
        run_cross(m, &p, g, mode == QUICK);
    sennit_model_free(m);
    run_unlink(path);
}

int main(int argc, char **argv)
{
    const char *arg = argc > 1 ? argv[1] : "";
    enum mode mode = strcmp(arg, "--quick") == 0    ? QUICK
                     : strcmp(arg, "--golden") == 0 ? GOLDEN
                     : strcmp(arg, "--emulated") == 0 ? EMULATED
                     : strcmp(arg, "--print") == 0  ? PRINT
                                                    : FULL;
    for (size_t i = 0; i < sizeof exact_golden / sizeof *exact_golden; i++)
        one_model(&exact_golden[i], mode);
    return 0;
}
