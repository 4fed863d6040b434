/* sennit selftest: are the kernels on this CPU the specification, and is an answer the same in
 * every way to run it? */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "kcheck/kcheck.h"
#include "rows.h"

struct selftest_opts {
    const char *kernel;
    uint64_t seed;
    bool bench, long_run;
};
#define F(field) offsetof(struct selftest_opts, field)

static const struct opt selftest_table[] = {
    {"kernel", 0, OPT_STRING, F(kernel), "NAME", "only this kernel, such as gemm_q4_1", 0, 0, NULL},
    {"seed", 0, OPT_U64, F(seed), "N", "of the random operands (default: from the clock, and printed)", 0, 0, NULL},
    {"bench", 0, OPT_FLAG, F(bench), NULL, "print the kernels' speeds too", 0, 0, NULL},
    {"long", 0, OPT_FLAG, F(long_run), NULL, "every input of the math functions: many minutes", 0, 0, NULL},
    {0},
};

struct setting {
    const char *isa; /* NULL = the best one */
    uint32_t n_threads, chunk, n_rows;
};

/* A setting as the options narrow it; false when it is about another level than --isa. */
static bool narrow(struct setting *s, const struct cli_engine_opts *e)
{
    if (e->isa && s->isa && strcmp(e->isa, s->isa) != 0)
        return false;
    if (e->isa)
        s->isa = e->isa;
    if (e->n_threads)
        s->n_threads = e->n_threads;
    if (e->chunk)
        s->chunk = e->chunk;
    return true;
}

/* The digest of 16 tokens in one setting. CLI_OK or an exit code after a message; CLI_USAGE = not
 * on this CPU. */
static int digest_of(const struct sennit_model *model, const struct setting *s, const int32_t *ids, size_t n_ids,
                     uint64_t *digest)
{
    struct sennit_engine *engine = NULL;
    struct cli_steps steps = {0};
    struct sennit_error err = {0};
    const struct sennit_engine_options options = {
        .isa = s->isa, .n_threads = s->n_threads, .chunk = s->chunk, .max_rows = s->n_rows};
    if (sennit_engine_create(&engine, model, &options, &err) != SENNIT_OK)
        return err.code == SENNIT_UNSUPPORTED ? CLI_USAGE : cli_fail(&err);
    struct cli_row *rows = cli_alloc(s->n_rows * sizeof *rows);
    for (uint32_t r = 0; r < s->n_rows; r++) {
        rows[r].ids = cli_alloc(n_ids * sizeof *ids);
        memcpy(rows[r].ids, ids, n_ids * sizeof *ids);
        rows[r].n_ids = n_ids;
        rows[r].options.max_tokens = 16;
        rows[r].options.ignore_eos = true;
        rows[r].join_at_step = 2 * r;
        rows[r].cancel_at_token = ROW_NEVER;
    }
    int code = cli_rows_run(engine, rows, s->n_rows, &steps, NULL, NULL);
    *digest = rows[0].digest;
    for (uint32_t r = 1; code == CLI_OK && r < s->n_rows; r++)
        if (rows[r].digest != *digest) {
            cli_error("row %u of %u has another digest than row 0", r, s->n_rows);
            code = CLI_FAILED;
        }
    cli_rows_free(rows, s->n_rows);
    sennit_engine_free(engine);
    free(steps.rows);
    return code;
}

/* The same prompt in many settings: one digest. */
static int check_model(const struct cli_engine_opts *e)
{
    static const struct setting settings[] = {{NULL, 1, 512, 1}, {NULL, 2, 7, 1},       {NULL, 2, 512, 8},
                                              {NULL, 3, 64, 3},  {"avx512", 2, 512, 2}, {"avx2", 2, 512, 1},
                                              {"avx2", 1, 5, 4}, {"scalar", 2, 512, 1}};
    static const char text[] = "Many strands are braided into one, and every one of them comes out as it went in.";
    struct sennit_model *model = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    uint64_t first = 0;
    int code = cli_open_model(e, &model);
    if (code == CLI_OK)
        code = cli_prompt_ids(model, text, sizeof text - 1, SENNIT_TOKENIZE_BOS, &ids, &n_ids);
    for (size_t i = 0; code == CLI_OK && i < sizeof settings / sizeof *settings; i++) {
        struct setting narrowed = settings[i];
        const struct setting *s = &narrowed;
        uint64_t digest = 0;
        if (!narrow(&narrowed, e))
            continue;
        code = digest_of(model, s, ids, n_ids, &digest);
        if (code == CLI_USAGE) { /* this CPU has no such level */
            code = CLI_OK;
            continue;
        }
        if (code == CLI_OK && i > 0 && digest != first)
            code = CLI_FAILED;
        first = i == 0 ? digest : first;
        printf("%-8s %u threads, chunk %3u, %u rows: digest %016llx %s\n", s->isa ? s->isa : "best", s->n_threads,
               s->chunk, s->n_rows, (unsigned long long)digest, code == CLI_OK ? "ok" : "DIFFERS");
        fflush(stdout);
    }
    free(ids);
    sennit_model_free(model);
    return code;
}

static int level(const char *isa)
{
    enum sn_isa level;
    return isa && sn_isa_parse(isa, &level) ? (int)level : -1;
}

static int check_kernels(const struct selftest_opts *o, const char *isa)
{
    struct kcheck_opts k = {
        .kernel = o->kernel, .isa = level(isa), .seed = o->seed, .long_run = o->long_run, .quick = !o->long_run};
    int failed = kcheck_main(&k);
    if (!failed && o->bench) {
        k.bench = true;
        failed = kcheck_main(&k);
    }
    return failed == KCHECK_CANNOT ? CLI_USAGE : failed ? CLI_FAILED : CLI_OK;
}

static int check_name(const char *kernel)
{
    enum { MAX_NAMES = 128 };
    const char *names[MAX_NAMES], *nearest;
    size_t n = 0;
    for (; n < MAX_NAMES && kcheck_name(n); n++) {
        names[n] = kcheck_name(n);
        if (strcmp(kernel, names[n]) == 0)
            return CLI_OK;
    }
    nearest = opts_nearest(kernel, names, n);
    cli_error("selftest --kernel: no kernel is called '%s'", kernel);
    if (nearest)
        cli_hint("did you mean '%s'?", nearest);
    else
        cli_hint("such as '%s' or '%s'; without --kernel all are checked", names[0], names[1]);
    return CLI_USAGE;
}

#define E(field) offsetof(struct cli_engine_opts, field)
static const struct opt setting_table[] = {
    {"isa", 0, OPT_CHOICE, E(isa), "NAME", "only this level, of kernels and model (default: all that this CPU has)",
     0, 0, "scalar|avx2|avx512"},
    {"threads", 't', OPT_U32, E(n_threads), "N", "the model's threads (default: from 1 to 3)", 1, 1024, NULL},
    {"chunk", 0, OPT_U32, E(chunk), "N", "the model's chunk (default: from 5 to 512)", 1, 1 << 20, NULL},
    {0},
};

static int run(const struct command *self, int argc, char **argv)
{
    struct selftest_opts o = {0};
    struct cli_engine_opts e = {0};
    struct opt_result r;
    const struct opt_group groups[] = {
        {"Kernels", selftest_table, &o}, {"Settings", setting_table, &e}, {"Model", cli_model_table, &e}};
    if (!opts_parse(self, groups, 3, argc, argv, &r))
        return CLI_USAGE;
    if (r.help)
        return CLI_OK;
    if (o.kernel && check_name(o.kernel) != CLI_OK)
        return CLI_USAGE;
    int code = check_kernels(&o, e.isa);
    if (code == CLI_OK && e.model)
        code = check_model(&e);
    printf("selftest: %s\n", code == CLI_OK ? "all is well" : "FAILED");
    return code;
}

const struct command cmd_selftest = {
    .name = "selftest",
    .summary = "checks every kernel on this CPU, and a model in many settings",
    .usage = "[-m FILE] [--kernel NAME] [--isa LEVEL] [--bench] [--long]",
    .details = "Every vector kernel must give the bits of its scalar specification. With -m, a "
               "prompt is also\n"
               "answered at several instruction sets, thread counts, chunk and batch sizes: one "
               "digest must come\n"
               "out.\n",
    .examples = "  sennit selftest\n"
                "  sennit selftest -m model.gguf\n"
                "  sennit selftest --kernel gemm_q4_1 --isa avx2 --bench\n",
    .run = run,
};
