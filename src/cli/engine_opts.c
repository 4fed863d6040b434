/* The options of every command that runs a model, and the objects that they open. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

#define E(field) offsetof(struct cli_engine_opts, field)
#define S(field) offsetof(struct cli_sampling_opts, field)

const struct opt cli_model_table[] = {
    {"model", 'm', OPT_STRING, E(model), "FILE", "the model, a GGUF file", 0, 0, NULL},
    {"pre", 0, OPT_STRING, E(pre), "TAG",
     "pre-tokenizer to use in place of the one that the file names (gpt-2, smollm, llama-bpe, "
     "qwen2, deepseek-coder, falcon, starcoder)",
     0, 0, NULL},
    {0},
};

const struct opt cli_engine_table[] = {
    {"isa", 0, OPT_CHOICE, E(isa), "NAME",
     "instruction set of the kernels (default: the best of this CPU). Changes the speed, never "
     "the answer",
     0, 0, "scalar|avx2|avx512"},
    {"threads", 't', OPT_U32, E(n_threads), "N", "threads (default: the CPUs of this process)", 0, 1024, NULL},
    {"chunk", 0, OPT_U32, E(chunk), "N", "most prompt tokens of a row in one step (default 512)", 1, 1 << 20, NULL},
    {"max-rows", 0, OPT_U32, E(max_rows), "N", "most rows in the batch; others wait (default 16)", 1, 65536, NULL},
    {"step-tokens", 0, OPT_U32, E(step_tokens), "N",
     "most tokens of one step over all rows (default: max-rows + chunk)", 1, 1 << 24, NULL},
    {"kv", 0, OPT_CHOICE, E(kv), "TYPE", "storage of keys and values (default f16)", 0, 0,
     "f16|bf16|f32|affine8|affine4|turboquant-k8v8|turboquant-k8v4|turboquant-k8v3|turboquant-k8v2"},
    {"cache-bytes", 0, OPT_BYTES, E(cache_bytes), "N",
     "budget for the caches of all rows, such as 512M or 4G (default: half of the free memory)", 0, 0, NULL},
    {"no-pin", 0, OPT_FLAG, E(no_pin), NULL, "do not bind the threads to CPUs", 0, 0, NULL},
    {"verbose", 'v', OPT_FLAG, E(verbose), NULL, "say more on standard error", 0, 0, NULL},
    {0},
};

const struct opt cli_sampling_table[] = {
    {"max-tokens", 'n', OPT_U32, S(max_tokens), "N",
     "most tokens of an answer (default 256, or what the context leaves)", 0, 1 << 30, NULL},
    {"temp", 0, OPT_FLOAT, S(temp), "X", "temperature; 0 = always the most likely token", 0, 1e6, NULL},
    {"top-k", 0, OPT_U32, S(top_k), "N", "choose among the N most likely tokens; 0 = all", 0, 1 << 30, NULL},
    {"top-p", 0, OPT_FLOAT, S(top_p), "X", "... among the fewest that hold X of the probability", 0, 1, NULL},
    {"min-p", 0, OPT_FLOAT, S(min_p), "X", "... among those with X times the best probability", 0, 0.999999, NULL},
    {"repeat-penalty", 0, OPT_FLOAT, S(repeat), "X", "over prompt and answer; 1 = off", 0, 1e6, NULL},
    {"presence", 0, OPT_FLOAT, S(presence), "X", "presence penalty over the answer", -1e6, 1e6, NULL},
    {"frequency", 0, OPT_FLOAT, S(frequency), "X", "frequency penalty over the answer", -1e6, 1e6, NULL},
    {"seed", 0, OPT_U64, S(seed), "N", "of the random choices (default 0): the same seed, the same answer", 0, 0,
     NULL},
    {"logit-bias", 0, OPT_LIST, S(bias), "ID=X", "adds X to a token's logit; may be given again", 0, 0, NULL},
    {"stop", 0, OPT_LIST, S(stop), "TEXT", "ends the answer before this text; may be given again", 0, 0, NULL},
    {"ignore-eos", 0, OPT_FLAG, S(ignore_eos), NULL, "go on past the model's end tokens", 0, 0, NULL},
    {"show-special", 0, OPT_FLAG, S(special), NULL, "show control tokens in the text", 0, 0, NULL},
    {0},
};

static int parse_bias(const char *text, struct sennit_bias *out)
{
    char *end, *end2;
    long long id = strtoll(text, &end, 10);
    if (end == text || *end != '=' || id < 0 || id > INT32_MAX)
        return CLI_USAGE;
    float v = strtof(end + 1, &end2);
    if (end2 == end + 1 || *end2 != '\0' || v != v || v > 3.4e38f || v < -3.4e38f)
        return CLI_USAGE;
    *out = (struct sennit_bias){(int32_t)id, v};
    return CLI_OK;
}

int cli_sampling(const struct cli_sampling_opts *o, struct sennit_sampling *out, struct sennit_bias **biases)
{
    *biases = cli_alloc(o->bias.n * sizeof **biases);
    for (uint32_t i = 0; i < o->bias.n; i++) {
        if (parse_bias(o->bias.items[i], &(*biases)[i]) != CLI_OK) {
            cli_error("--logit-bias wants ID=X with a token id and a finite number, not '%s'", o->bias.items[i]);
            cli_hint("'sennit tokenize' prints the ids of a text");
            return CLI_USAGE;
        }
    }
    *out = (struct sennit_sampling){.temperature = o->temp,
                                    .top_k = o->top_k,
                                    .top_p = o->top_p,
                                    .min_p = o->min_p,
                                    .repetition_penalty = o->repeat,
                                    .presence_penalty = o->presence,
                                    .frequency_penalty = o->frequency,
                                    .seed = o->seed,
                                    .biases = *biases,
                                    .n_biases = o->bias.n};
    return CLI_OK;
}

void cli_warn_greedy(const struct opt_result *r, const struct cli_sampling_opts *o)
{
    static const char *const names[] = {"top-k", "top-p", "min-p", "seed"};
    if (o->temp > 0)
        return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (opts_given(r, names[i])) {
            cli_warn("--%s has no effect at temperature 0 (the most likely token is taken); add "
                     "--temp, for example --temp 0.8",
                     names[i]);
            return;
        }
}

static void on_log(void *ctx, sennit_log_level level, const char *message)
{
    const struct cli_engine_opts *o = ctx;
    if (level >= SENNIT_LOG_WARN)
        cli_warn("%s", message);
    else if (o->verbose)
        cli_note("%s", message);
}

/* The logger keeps the pointer: options live as long as what they opened. */
static struct sennit_model_options model_options(const struct cli_engine_opts *o)
{
    return (struct sennit_model_options){
        .logger = {on_log, (void *)(uintptr_t)o}, .pre = o->pre, .n_threads = o->n_threads};
}

static int need_model(const struct cli_engine_opts *o)
{
    if (!o->model) {
        cli_error("a model is needed: -m FILE");
        cli_hint_missing(NULL, true);
        return CLI_USAGE;
    }
    if (access(o->model, F_OK) != 0) {
        cli_error("there is no file '%s'", o->model);
        cli_hint_missing(o->model, true);
        return CLI_FILE;
    }
    return CLI_OK;
}

static int model_failed(const struct sennit_error *err)
{
    int code = cli_fail(err);
    return code == CLI_USAGE || code == CLI_REFUSED ? CLI_FILE : code;
}

int cli_open_model(const struct cli_engine_opts *o, struct sennit_model **out)
{
    struct sennit_error err = {0};
    struct sennit_model_options options = model_options(o);
    int code = need_model(o);
    if (code != CLI_OK)
        return code;
    double start = cli_now();
    if (sennit_model_open(out, o->model, &options, &err) != SENNIT_OK)
        return model_failed(&err);
    if (o->verbose)
        fprintf(stderr, "opened %s in %.2f s\n", o->model, cli_now() - start);
    return CLI_OK;
}

int cli_open_tokenizer(const struct cli_engine_opts *o, struct sennit_tokenizer **out)
{
    struct sennit_error err = {0};
    struct sennit_model_options options = model_options(o);
    int code = need_model(o);
    if (code != CLI_OK)
        return code;
    if (sennit_tokenizer_open(out, o->model, &options, &err) != SENNIT_OK)
        return model_failed(&err);
    return CLI_OK;
}

/* --kv: a type of "plain", or codes. */
static const struct kv_choice {
    const char *name, *family;
    sennit_type type;
    uint32_t k_bits, v_bits, group;
} kv_choices[] = {
    {"f16", "plain", SENNIT_F16, 0, 0, 0},
    {"bf16", "plain", SENNIT_BF16, 0, 0, 0},
    {"f32", "plain", SENNIT_F32, 0, 0, 0},
    {"affine8", "affine", 0, 8, 8, 32},
    {"affine4", "affine", 0, 4, 4, 32},
    {"turboquant-k8v8", "turboquant", 0, 8, 8, 32},
    {"turboquant-k8v4", "turboquant", 0, 8, 4, 32},
    {"turboquant-k8v3", "turboquant", 0, 8, 3, 32},
    {"turboquant-k8v2", "turboquant", 0, 8, 2, 32},
};

static void choose_kv(const char *name, struct sennit_engine_options *out)
{
    for (size_t i = 0; i < sizeof kv_choices / sizeof *kv_choices; i++) {
        const struct kv_choice *c = &kv_choices[i];
        if (strcmp(c->name, name) != 0)
            continue;
        out->cache_family = c->family;
        out->kv_type = c->type;
        out->kv_type_set = c->k_bits == 0;
        out->kv_code.k_bits = c->k_bits;
        out->kv_code.v_bits = c->v_bits;
        out->kv_code.group = c->group;
    }
}

void cli_engine_options(const struct cli_engine_opts *o, struct sennit_engine_options *out)
{
    *out = (struct sennit_engine_options){.logger = {on_log, (void *)(uintptr_t)o},
                                          .isa = o->isa,
                                          .n_threads = o->n_threads,
                                          .max_rows = o->max_rows,
                                          .chunk = o->chunk,
                                          .step_tokens = o->step_tokens,
                                          .cache_bytes = o->cache_bytes,
                                          .no_pin = o->no_pin};
    if (o->kv)
        choose_kv(o->kv, out);
}

int cli_create_engine(const struct sennit_engine_options *options, const struct sennit_model *model,
                      struct sennit_engine **out)
{
    struct sennit_error err = {0};
    if (sennit_engine_create(out, model, options, &err) == SENNIT_OK)
        return CLI_OK;
    int code = cli_fail(&err);
    /* What the engine refuses comes from the options, not from a file. */
    return err.code == SENNIT_UNSUPPORTED ? CLI_USAGE : code;
}

int cli_open_engine(const struct cli_engine_opts *o, const struct sennit_model *model, struct sennit_engine **out)
{
    struct sennit_engine_options options;
    cli_engine_options(o, &options);
    return cli_create_engine(&options, model, out);
}
