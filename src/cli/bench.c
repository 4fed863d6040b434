/* sennit bench: how fast prompts are read and answers written, for each number of rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

struct bench_opts {
    struct opt_numbers rows;
    uint32_t prompt, gen, repeat;
    bool json;
};
#define B(field) offsetof(struct bench_opts, field)

static const struct opt bench_table[] = {
    {"rows", 0, OPT_NUMBERS, B(rows), "N,N,...",
     "numbers of rows to measure (default 1,2,4,8,16,32)", 1, 4096, NULL},
    {"prompt", 'p', OPT_U32, B(prompt), "N", "tokens of each prompt (default 512)", 1, 1 << 24,
     NULL},
    {"gen", 'g', OPT_U32, B(gen), "N", "steps in which all rows write (default 64)", 1, 1 << 24,
     NULL},
    {"repeat", 'r', OPT_U32, B(repeat), "N", "measurements, of which the median counts (default 3)",
     1, 1000, NULL},
    {"json", 0, OPT_FLAG, B(json), NULL, "one line of JSON", 0, 0, NULL},
    {0},
};

struct bench {
    struct bench_opts b;
    struct cli_engine_opts e;
    struct opt_result given;
    struct sennit_model *model;
    struct sennit_engine *engine;
    int32_t *ids;
    struct sennit_request **requests; /* [most rows] */
};

struct measure {
    double *prefill_s; /* [repeat] */
    double *step_s;    /* [repeat * gen] */
    size_t n_prefill, n_steps;
    double decode_s;
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, size_t n)
{
    if (n == 0)
        return 0;
    qsort(x, n, sizeof *x, compare);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

/* Random ids, other ones for every row and run: nothing is there to be shared. */
static void random_ids(const struct bench *c, uint64_t seed)
{
    uint32_t n_vocab = sennit_model_get_info(c->model)->n_vocab;
    uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
    for (uint32_t i = 0; i < c->b.prompt; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        c->ids[i] = (int32_t)((x >> 16) % n_vocab);
    }
}

static int submit(struct bench *c, uint32_t n_rows, uint32_t max_tokens, uint64_t seed)
{
    struct sennit_error err = {0};
    for (uint32_t r = 0; r < n_rows; r++) {
        random_ids(c, seed + r);
        const struct sennit_request_options o = {.prompt = c->ids,
                                                 .n_prompt = c->b.prompt,
                                                 .max_tokens = max_tokens,
                                                 .ignore_eos = true};
        if (sennit_engine_submit(c->engine, &o, &c->requests[r], &err) != SENNIT_OK)
            return cli_fail(&err);
    }
    return CLI_OK;
}

static void drop(struct bench *c, uint32_t n_rows)
{
    struct sennit_error err;
    bool worked = true;
    for (uint32_t r = 0; r < n_rows; r++) {
        sennit_request_free(c->requests[r]);
        c->requests[r] = NULL;
    }
    while (worked && sennit_engine_step(c->engine, &worked, &err) == SENNIT_OK)
        ;
}

/* Reads what has come; false after a message when a row failed. */
static bool drain(const struct bench *c, uint32_t n_rows)
{
    struct sennit_error err = {0};
    for (uint32_t r = 0; r < n_rows; r++) {
        struct sennit_event e = {0};
        do {
            if (sennit_request_next_event(c->requests[r], &e, 0, &err) != SENNIT_OK) {
                cli_fail(&err);
                return false;
            }
            if (e.kind == SENNIT_EVENT_END && e.finish == SENNIT_FINISH_ERROR) {
                cli_error("row %u ended with an error: %s", r, e.error.message);
                return false;
            }
        } while (e.kind != SENNIT_EVENT_NONE && e.kind != SENNIT_EVENT_END);
    }
    return true;
}

static int step(struct bench *c, bool *worked, double *seconds)
{
    struct sennit_error err = {0};
    double start = cli_now();
    if (sennit_engine_step(c->engine, worked, &err) != SENNIT_OK)
        return cli_fail(&err);
    *seconds = cli_now() - start;
    return cli_interrupts ? CLI_INTERRUPTED : CLI_OK;
}

/* All prompts read, one token each: what remains of the time is prefill. */
static int prefill(struct bench *c, uint32_t n_rows, uint64_t seed, struct measure *m)
{
    double total = 0, s = 0;
    bool worked = true;
    int code = submit(c, n_rows, 1, seed);
    while (code == CLI_OK && worked) {
        code = step(c, &worked, &s);
        total += worked ? s : 0;
        if (code == CLI_OK && !drain(c, n_rows))
            code = CLI_FAILED;
    }
    drop(c, n_rows);
    m->prefill_s[m->n_prefill++] = total;
    return code;
}

/* True when the last step was one token of each of n rows and nothing else. */
static bool pure_decode(const struct bench *c, uint32_t n_rows)
{
    const struct sennit_step_span *spans;
    uint32_t n = sennit_engine_last_step(c->engine, &spans);
    for (uint32_t i = 0; i < n; i++)
        if (spans[i].n_tokens != 1 || spans[i].pos < c->b.prompt)
            return false;
    return n == n_rows;
}

/* Tokens that rows write while the last prompts are still being read, above the ones that count. */
static uint32_t slack(const struct bench *c, uint32_t n_rows)
{
    const struct sennit_stats *s = sennit_engine_stats(c->engine);
    uint64_t n = (uint64_t)n_rows * (c->b.prompt / s->chunk + 2) + 2;
    uint64_t spare = s->step_tokens > n_rows ? s->step_tokens - n_rows : 1;
    uint64_t by_budget = (uint64_t)n_rows * c->b.prompt / spare + 2;
    return (uint32_t)(n > by_budget ? n : by_budget);
}

static int decode(struct bench *c, uint32_t n_rows, uint64_t seed, struct measure *m)
{
    uint32_t counted = 0;
    bool worked = true;
    double s = 0;
    int code = submit(c, n_rows, c->b.gen + slack(c, n_rows), seed);
    while (code == CLI_OK && worked && counted < c->b.gen) {
        code = step(c, &worked, &s);
        if (code == CLI_OK && worked && pure_decode(c, n_rows)) {
            m->step_s[m->n_steps++] = s;
            m->decode_s += s;
            counted++;
        }
        if (code == CLI_OK && !drain(c, n_rows))
            code = CLI_FAILED;
    }
    drop(c, n_rows);
    if (code == CLI_OK && counted < c->b.gen) {
        cli_error("only %u of %u steps had all %u rows in them", counted, c->b.gen, n_rows);
        cli_hint(
            "--cache-bytes is too small for that many rows, or the context for that many tokens");
        code = CLI_REFUSED;
    }
    return code;
}

static json_t *result(const struct bench *c, uint32_t n_rows, struct measure *m)
{
    double prefill_s = median(m->prefill_s, m->n_prefill),
           tokens = (double)n_rows * (double)m->n_steps;
    json_t *o = json_object();
    json_object_set_new(o, "rows", json_integer(n_rows));
    json_object_set_new(o, "prompt", json_integer(c->b.prompt));
    json_object_set_new(o, "gen", json_integer(c->b.gen));
    json_object_set_new(o, "threads", json_integer(sennit_engine_stats(c->engine)->n_threads));
    json_object_set_new(o, "prefill_ms", json_real(prefill_s * 1e3));
    json_object_set_new(o, "prefill_tok_s", json_real((double)n_rows * c->b.prompt / prefill_s));
    json_object_set_new(o, "decode_tok_s", json_real(tokens / m->decode_s));
    json_object_set_new(o, "step_ms_median", json_real(median(m->step_s, m->n_steps) * 1e3));
    return o;
}

static int one(struct bench *c, uint32_t n_rows, json_t *results)
{
    struct measure m = {.prefill_s = cli_alloc(c->b.repeat * sizeof(double)),
                        .step_s = cli_alloc((size_t)c->b.repeat * c->b.gen * sizeof(double))};
    int code = CLI_OK;
    for (uint32_t i = 0; code == CLI_OK && i < c->b.repeat; i++) {
        code = prefill(c, n_rows, i * 100003u + 1, &m);
        if (code == CLI_OK)
            code = decode(c, n_rows, i * 100003u + 50000, &m);
    }
    if (code == CLI_OK) {
        json_t *o = result(c, n_rows, &m);
        if (!c->b.json) {
            printf("%5u %12.0f %12.1f %14.1f %12.3f\n", n_rows,
                   json_real_value(json_object_get(o, "prefill_tok_s")),
                   json_real_value(json_object_get(o, "prefill_ms")),
                   json_real_value(json_object_get(o, "decode_tok_s")),
                   json_real_value(json_object_get(o, "step_ms_median")));
            fflush(stdout);
        }
        json_array_append_new(results, o);
    }
    free(m.prefill_s);
    free(m.step_s);
    return code;
}

/* The first run wakes threads and touches memory; it is not counted. */
static int warm_up(struct bench *c)
{
    double prefill_s[1], *step_s = cli_alloc(c->b.gen * sizeof *step_s);
    struct measure m = {.prefill_s = prefill_s, .step_s = step_s};
    int code = prefill(c, 1, 7, &m);
    if (code == CLI_OK)
        code = decode(c, 1, 8, &m);
    free(step_s);
    return code;
}

static int measure_all(struct bench *c)
{
    json_t *o = json_object(), *results = json_array();
    int code = warm_up(c);
    if (code == CLI_OK && !c->b.json)
        printf("%5s %12s %12s %14s %12s\n", "rows", "prefill t/s", "prefill ms", "decode t/s",
               "step ms");
    for (uint32_t i = 0; code == CLI_OK && i < c->b.rows.n; i++) {
        if (isatty(STDERR_FILENO) && c->b.json)
            fprintf(stderr, "%u rows ...\n", c->b.rows.items[i]);
        code = one(c, c->b.rows.items[i], results);
    }
    json_object_set_new(o, "results", results);
    json_object_set_new(o, "in_force", cli_json_in_force(sennit_engine_stats(c->engine)));
    json_object_set_new(o, "model", cli_json_model(c->e.model, sennit_model_get_info(c->model)));
    if (code == CLI_OK && c->b.json)
        return cli_print_json(o);
    json_decref(o);
    return code;
}

static int bench(struct bench *c)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < c->b.rows.n; i++)
        most = c->b.rows.items[i] > most ? c->b.rows.items[i] : most;
    int code = cli_open_model(&c->e, &c->model);
    if (code != CLI_OK)
        return code;
    if (c->e.max_rows && c->e.max_rows < most) {
        cli_error("--max-rows %u is below the %u rows to be measured", c->e.max_rows, most);
        return CLI_USAGE;
    }
    if (!c->e.max_rows)
        c->e.max_rows = most;
    code = cli_open_engine(&c->e, c->model, &c->engine);
    if (code != CLI_OK)
        return code;
    c->ids = cli_alloc(c->b.prompt * sizeof *c->ids);
    c->requests = cli_alloc(most * sizeof *c->requests);
    cli_catch_interrupt();
    return measure_all(c);
}

static int run(const struct command *self, int argc, char **argv)
{
    struct bench c = {
        .b = {.rows = {{1, 2, 4, 8, 16, 32}, 6}, .prompt = 512, .gen = 64, .repeat = 3}};
    const struct opt_group groups[] = {{"Measurement", bench_table, &c.b},
                                       {"Model", cli_model_table, &c.e},
                                       {"Engine", cli_engine_table, &c.e}};
    if (!opts_parse(self, groups, 3, argc, argv, &c.given))
        return CLI_USAGE;
    int code = c.given.help ? CLI_OK : bench(&c);
    sennit_engine_free(c.engine);
    sennit_model_free(c.model);
    free(c.requests);
    free(c.ids);
    return code;
}

const struct command cmd_bench = {
    .name = "bench",
    .summary = "measures reading (prefill) and writing (decode) at several batch sizes",
    .usage = "-m FILE [--rows 1,2,4,8] [--prompt N] [--gen N] [options]",
    .details = "Prompts are random tokens, answers the most likely ones. Reading: all rows' "
               "prompts from nothing to\n"
               "the first token. Writing: steps in which every row writes one token; tokens per "
               "second over all\n"
               "rows, and the median step. One uncounted run comes first.\n",
    .examples =
        "  sennit bench -m model.gguf\n"
        "  sennit bench -m model.gguf --rows 1,8 --prompt 128 --gen 128 --threads 2 --json\n",
    .run = run,
};
