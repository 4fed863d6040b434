/* A row's answer is its own: on tiny models, the cross of
 *   company {alone, batches of 2, 3, 8, 16 with joins at different steps, shuffled, with cancels}
 *   x chunk {1, 7, 64, 512} x threads {1, 2, 3, 7} x instruction set {scalar, AVX2, AVX-512}
 * gives one digest and one list of tokens per row. In F32 and Q4_1 it is the full cross, with a prompt of 600
 * tokens that needs three segments of attention (with the scalar kernels at 2 threads, at chunk 1 in one setting of
 * twenty); in the other types it is every second setting and prompts up to 150. Golden digests hold on every
 * machine, compiler and build type.
 *
 *   exact_tiny [--quick | --golden | --emulated LEVEL | --print]
 *      --quick     a sixteenth of the cross, of the scalar part one setting, for sanitizers
 *      --golden    only the golden digests, with every instruction set
 *      --emulated  only row 0 (16 tokens), with the best kernels, which must be LEVEL's: for CPUs that
 *                  an emulator plays
 *      --print     the digests for exact_golden.h */
#include "engine/exact_golden.h"
#include "engine/run.h"
#include "support/tiny_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Row LONG takes the place of row LONG - 1 in some settings. */
enum { N_ROWS = 16, LONG = N_ROWS, MAX_PROMPT = 600 };

static const uint32_t chunks[] = {1, 7, 64, 512}, threads[] = {1, 2, 3, 7}, companies[] = {1, 2, 3, 8, 16};

struct problem {
    int32_t ids[N_ROWS + 1][MAX_PROMPT];
    struct run_job jobs[N_ROWS + 1];
    struct run_result want[N_ROWS + 1];
    bool has_long;
};

/* Lengths around chunks, pages and segments; greedy, sampled and penalised rows. */
static void make_problem(struct problem *p, uint32_t n_vocab)
{
    static const size_t lengths[N_ROWS + 1] = {1,  2,  7,  8,  9,   63,  64,  65,        100,
                                               15, 16, 17, 33, 128, 129, 150, MAX_PROMPT};
    uint64_t state = 20240601;
    for (int i = 0; i <= LONG; i++) {
        run_random_ids(&state, n_vocab, p->ids[i], lengths[i]);
        struct sennit_sampling s = {0};
        if (i % 3 == 1)
            s = (struct sennit_sampling){.temperature = 0.8f, .seed = (uint64_t)i};
        if (i % 3 == 2)
            s = (struct sennit_sampling){.temperature = 1.1f,
                                         .seed = 7,
                                         .top_k = 40,
                                         .top_p = 0.9f,
                                         .min_p = 0.01f,
                                         .repetition_penalty = 1.1f,
                                         .presence_penalty = 0.2f,
                                         .frequency_penalty = 0.1f};
        p->jobs[i] = (struct run_job){.prompt = p->ids[i],
                                      .n_prompt = lengths[i],
                                      .max_tokens = i == 0 ? 16 : 6 + (uint32_t)i % 4,
                                      .sampling = s,
                                      .cancel_step = RUN_NEVER};
    }
}

static void check_row(const struct problem *p, int row, const struct run_result *got, const char *where)
{
    const struct run_result *want = &p->want[row];
    CHECK(got->finish == SENNIT_FINISH_LENGTH, "%s, row %d: finish %s: %s", where, row,
          sennit_finish_name(got->finish), got->error.message);
    CHECK(got->digest == want->digest, "%s, row %d: digest %016" PRIx64 ", alone %016" PRIx64, where, row,
          got->digest, want->digest);
    CHECK(got->n_answer == want->n_answer &&
              memcmp(got->answer, want->answer, want->n_answer * sizeof *want->answer) == 0 &&
              memcmp(got->logprobs, want->logprobs, want->n_answer * sizeof *want->logprobs) == 0,
          "%s, row %d: other tokens or log-probabilities", where, row);
}

/* One setting: all rows in groups of `company`, in a shuffled order, joining at different steps; every fifth group
 * has a row that is cancelled on the way. */
static size_t run_company(const struct sennit_model *m, struct problem *p, const struct run_setting *s,
                          uint32_t company, bool with_long, uint64_t *state)
{
    char where[128];
    int order[N_ROWS];
    size_t n_checked = 0;
    snprintf(where, sizeof where, "isa %s, threads %u, chunk %u, company %u", s->isa, s->n_threads, s->chunk,
             company);
    for (int i = 0; i < N_ROWS; i++)
        order[i] = with_long && i == N_ROWS - 1 ? LONG : i;
    for (int i = N_ROWS - 1; i > 0; i--) {
        int j = (int)(run_random(state) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    struct sennit_engine *engine = run_engine(m, s);
    for (uint32_t first = 0; first + company <= N_ROWS; first += company) {
        struct run_job jobs[N_ROWS];
        struct run_result results[N_ROWS];
        uint32_t victim =
            company > 1 && run_random(state) % 3 == 0 ? (uint32_t)(run_random(state) % company) : RUN_NEVER;
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
    for (int i = 0; i < N_ROWS + p->has_long; i++) {
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
    size_t n = 0, settings = 0, n_long = 0;
    uint64_t state = 99;
    for (const char *const *isa = run_isas(); *isa; isa++)
        for (size_t c = 0; c < 4; c++)
            for (size_t t = 0; t < 4; t++)
                for (size_t k = 0; k < 5; k++) {
                    size_t sum = c + 2 * t + 3 * k + (size_t)(isa - run_isas());
                    bool slow = chunks[c] == 1, scalar = isa == run_isas();
                    /* Sanitizers have time for one scalar setting: 2 threads, chunk 64, 16 rows. */
                    if (quick ? sum % 16 != 0 || (scalar && !(t == 1 && k == 4)) : !p->has_long && (sum + t) % 2 != 0)
                        continue;
                    /* What takes longest only once: a step for each token, and the scalar kernels. */
                    bool with_long = p->has_long && !(quick && (slow || scalar)) &&
                                     (!(quick || slow || scalar) || threads[t] == 2) && (!slow || companies[k] == 3);
                    struct run_setting s = {.isa = *isa, .n_threads = threads[t], .chunk = chunks[c], .max_rows = 16};
                    n += run_company(m, p, &s, companies[k], with_long, &state);
                    n_long += with_long;
                    settings++;
                }
    CHECK(n_long > 0 || !p->has_long || !run_isas()[1], "the long prompt was not met");
    printf("%s, head %u: %zu settings, %zu with a prompt of %d tokens, %zu rows, each equal to itself alone\n",
           g->type_name, g->head_dim, settings, n_long, MAX_PROMPT, n);
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

/* All rows alone, with every instruction set: one digest, the golden one. Leaves in p->want what the rows must
 * give. */
static void check_golden(const struct sennit_model *m, const struct exact_golden *g, struct problem *p,
                         enum mode mode)
{
    for (const char *const *isa = run_isas(); *isa; isa++) {
        if (mode == QUICK && isa != run_isas() && isa[1])
            continue; /* the first and the last are enough */
        struct run_setting s = {.isa = *isa, .n_threads = isa == run_isas() ? 1 : 2, .chunk = 512, .max_rows = 1};
        uint64_t all = run_alone(m, &s, p);
        if (mode != PRINT)
            CHECK(all == g->digest && p->want[0].digest == g->first,
                  "%s, head %u: golden digest is %016" PRIx64 ", this build has %016" PRIx64
                  " with %s; if an order of "
                  "operations was changed on purpose, raise SENNIT_NUMERICS and run exact_tiny --print",
                  g->type_name, g->head_dim, g->digest, all, *isa);
        else if (isa == run_isas())
            printf("    GOLDEN(%s, %u, %s, 0x%016" PRIx64 ", 0x%016" PRIx64 "),\n", g->type_name, g->head_dim,
                   g->tied ? "true" : "false", all, p->want[0].digest);
        if (mode == GOLDEN)
            printf("%s, head %u: golden digest holds with %s\n", g->type_name, g->head_dim, *isa);
    }
}

static void one_model(const struct exact_golden *g, enum mode mode, const char *best)
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
    p.has_long = g->type == SENNIT_F32 || g->type == SENNIT_Q4_1;
    struct run_setting fast = {.isa = best, .n_threads = 2, .chunk = 512, .max_rows = 1};
    if (mode == EMULATED)
        check_first(m, g, &fast, &p);
    else
        check_golden(m, g, &p, mode);
    if (mode == FULL || mode == QUICK)
        run_cross(m, &p, g, mode == QUICK);
    sennit_model_free(m);
    run_unlink(path);
}

int main(int argc, char **argv)
{
    static const char *const modes[] = {NULL, "--quick", "--golden", "--emulated", "--print"};
    const char *const *isas = run_isas(), *best = isas[0];
    enum mode mode = FULL;
    for (int i = QUICK; argc > 1 && i <= PRINT; i++)
        if (strcmp(argv[1], modes[i]) == 0)
            mode = (enum mode)i;
    if (argc != (mode == FULL ? 1 : mode == EMULATED ? 3 : 2)) {
        fprintf(stderr, "usage: exact_tiny [--quick | --golden | --emulated LEVEL | --print]\n");
        return 2;
    }
    for (size_t i = 0; isas[i]; i++)
        best = isas[i];
    if (mode == EMULATED)
        CHECK(strcmp(best, argv[2]) == 0, "this CPU's best level is %s, not %s", best, argv[2]);
    for (size_t i = 0; i < sizeof exact_golden / sizeof *exact_golden; i++)
        one_model(&exact_golden[i], mode, best);
    return 0;
}
