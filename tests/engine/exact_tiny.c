/* A row's answer is its own: on tiny models, the full cross of
 *   company {alone, batches of 2, 3, 8, 16 with joins at different steps, shuffled, with cancels}
 *   x chunk {1, 7, 64, 512} x threads {1, 2, 3, 7} x instruction set {scalar, AVX2, AVX-512}
 * gives one digest and one list of tokens per row. Golden digests hold on every machine, compiler and build type.
 *
 *   exact_tiny [--quick] [--print]    --quick: a sixteenth of the cross, for sanitizers
 *                                     --print: the digests for exact_golden.h */
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
        p->jobs[i] = (struct run_job){.prompt = p->ids[i], .n_prompt = lengths[i], .max_tokens = 6 + (uint32_t)i % 4,
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

static void one_model(const struct exact_golden *g, bool quick, bool print)
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
    struct run_setting alone = {.isa = "scalar", .n_threads = 1, .chunk = 512, .max_rows = 1};
    struct sennit_engine *engine = run_engine(m, &alone);
    uint64_t all = 0;
    for (int i = 0; i < N_ROWS; i++) {
        run_jobs(engine, &p.jobs[i], 1, &p.want[i]);
        all = (all ^ p.want[i].digest) * 0x9E3779B97F4A7C15u;
        for (int j = 0; j < i; j++)
            CHECK(p.want[i].digest != p.want[j].digest, "rows %d and %d have one digest", i, j);
    }
    sennit_engine_free(engine);
    if (print)
        printf("    {%s, %u, %s, 0x%016" PRIx64 "},\n", g->type_name, g->head_dim, g->tied ? "true" : "false", all);
    else
        CHECK(all == g->digest, "%s, head %u: golden digest is %016" PRIx64 ", this build has %016" PRIx64
              "; if an order of operations was changed on purpose, raise SENNIT_NUMERICS and run exact_tiny --print",
              g->type_name, g->head_dim, g->digest, all);
    size_t n = 0, settings = 0;
    uint64_t state = 99;
    for (const char *const *isa = run_isas(); *isa && !print; isa++)
        for (size_t c = 0; c < 4; c++)
            for (size_t t = 0; t < 4; t++)
                for (size_t k = 0; k < 5; k++) {
                    if (quick && (c + 2 * t + 3 * k + (size_t)(isa - run_isas())) % 16 != 0)
                        continue;
                    struct run_setting s = {*isa, threads[t], chunks[c], 16};
                    n += run_company(m, &p, &s, companies[k], &state);
                    settings++;
                }
    if (!print)
        printf("%s, head %u: %zu settings, %zu rows, each equal to itself alone\n", g->type_name, g->head_dim, settings,
               n);
    sennit_model_free(m);
    run_unlink(path);
}

int main(int argc, char **argv)
{
    bool quick = false, print = false;
    for (int i = 1; i < argc; i++) {
        quick |= strcmp(argv[i], "--quick") == 0;
        print |= strcmp(argv[i], "--print") == 0;
    }
    for (size_t i = 0; i < sizeof exact_golden / sizeof *exact_golden; i++)
        one_model(&exact_golden[i], quick, print);
    return 0;
}
