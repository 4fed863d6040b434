/* sennit generate: one prompt or many, to the end, in one batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rows.h"

struct generate_opts {
    const char *prompt, *file, *prompts, *system;
    uint32_t n_rows, n_logprobs;
    bool chat, special, prompt_logprobs, json, digest;
};
#define G(field) offsetof(struct generate_opts, field)

static const struct opt generate_table[] = {
    {"prompt", 'p', OPT_STRING, G(prompt), "TEXT", "the prompt, completed as it stands", 0, 0,
     NULL},
    {"file", 'f', OPT_STRING, G(file), "FILE",
     "the prompt is this file, as it is; - = standard input", 0, 0, NULL},
    {"prompts", 0, OPT_STRING, G(prompts), "FILE",
     "many prompts: one JSON object per line (see above)", 0, 0, NULL},
    {"rows", 0, OPT_U32, G(n_rows), "N", "run the prompt as N rows of one batch", 1, 65536, NULL},
    {"chat", 0, OPT_FLAG, G(chat), NULL,
     "the prompt is a user's message for the model's chat template", 0, 0, NULL},
    {"system", 0, OPT_STRING, G(system), "TEXT", "with --chat: the system message", 0, 0, NULL},
    {"special", 0, OPT_FLAG, G(special), NULL,
     "the prompt may name control tokens, such as <|im_start|>", 0, 0, NULL},
    {"logprobs", 0, OPT_U32, G(n_logprobs), "N",
     "with --json: each token's log-probability and the N most likely", 0, 64, NULL},
    {"prompt-logprobs", 0, OPT_FLAG, G(prompt_logprobs), NULL,
     "with --json: the prompt's tokens too, as --logprobs says", 0, 0, NULL},
    {"json", 0, OPT_FLAG, G(json), NULL, "one line of JSON: rows, and what was in force", 0, 0,
     NULL},
    {"digest", 0, OPT_FLAG, G(digest), NULL, "print the digest of each row's logits after its text",
     0, 0, NULL},
    {0},
};

struct generate {
    struct generate_opts g;
    struct cli_engine_opts e;
    struct cli_sampling_opts s;
    struct opt_result given;
    struct sennit_model *model;
    struct sennit_engine *engine;
    struct cli_row defaults;
    struct cli_row *rows;
    size_t n_rows;
    struct cli_steps steps;
};

static int check(const struct generate *c)
{
    int n = (c->g.prompt != NULL) + (c->g.file != NULL) + (c->g.prompts != NULL);
    if (n != 1) {
        cli_error(n ? "-p, -f and --prompts exclude one another: give one of them"
                    : "a prompt is needed");
        if (!n)
            cli_hint("sennit generate -m FILE -p \"Once upon a time\"");
        return CLI_USAGE;
    }
    if (c->g.prompts && c->g.n_rows) {
        cli_error("--rows repeats one prompt; it does not go with --prompts");
        return CLI_USAGE;
    }
    if (c->g.system && !c->g.chat) {
        cli_error("--system needs --chat: plain text has no system message");
        return CLI_USAGE;
    }
    if (c->g.chat && c->g.special) {
        cli_error("--special does not go with --chat: in a chat only the template names control tokens");
        cli_hint("to write the whole prompt yourself, leave out --chat");
        return CLI_USAGE;
    }
    if (opts_given(&c->given, "logprobs") && !c->g.json) {
        cli_error("--logprobs needs --json, where they are printed");
        return CLI_USAGE;
    }
    if (c->g.prompt_logprobs && !c->g.json) {
        cli_error("--prompt-logprobs needs --json, where they are printed");
        return CLI_USAGE;
    }
    return CLI_OK;
}

static struct cli_row_text row_text(const struct generate_opts *g)
{
    return (struct cli_row_text){
        .chat = g->chat,
        .system = g->system,
        .flags = SENNIT_TOKENIZE_BOS | (g->special ? SENNIT_TOKENIZE_SPECIAL : 0),
    };
}

static int prompt_ids(struct generate *c, int32_t **ids, size_t *n_ids)
{
    struct cli_text text = {0};
    int code = CLI_OK;
    if (c->g.file)
        code = cli_read_file(c->g.file, "prompt", &text);
    else
        cli_text_add(&text, c->g.prompt, strlen(c->g.prompt));
    struct cli_row_text how = row_text(&c->g);
    if (code == CLI_OK)
        code = cli_text_ids(c->model, &how, text.data, text.n_bytes, ids, n_ids);
    cli_text_free(&text);
    return code;
}

static int make_defaults(struct generate *c)
{
    struct cli_row *d = &c->defaults;
    d->cancel_at_token = ROW_NEVER;
    d->options.max_tokens = c->s.max_tokens;
    d->options.ignore_eos = c->s.ignore_eos;
    d->options.keep_special = c->s.special;
    d->options.n_logprobs = c->g.n_logprobs;
    d->options.prompt_logprobs = c->g.prompt_logprobs;
    d->options.want_logprob = opts_given(&c->given, "logprobs");
    d->options.stop = c->s.stop.items;
    d->options.n_stop = c->s.stop.n;
    return cli_sampling(&c->s, &d->options.sampling, &d->biases);
}

/* Rows that all say the same: --rows, or the one. They share nothing but the text that they came
 * from. */
static int repeat_rows(struct generate *c)
{
    size_t n_ids = 0;
    int32_t *ids = NULL;
    int code = prompt_ids(c, &ids, &n_ids);
    if (code != CLI_OK)
        return code;
    c->n_rows = c->g.n_rows ? c->g.n_rows : 1;
    c->rows = cli_alloc(c->n_rows * sizeof *c->rows);
    for (size_t i = 0; i < c->n_rows; i++) {
        struct cli_row *r = &c->rows[i];
        *r = c->defaults;
        r->biases = NULL; /* the defaults keep theirs */
        r->ids = cli_alloc(n_ids * sizeof *ids);
        memcpy(r->ids, ids, n_ids * sizeof *ids);
        r->n_ids = n_ids;
    }
    free(ids);
    return CLI_OK;
}

/* Without -n an answer is as long as 256 tokens or the context allow. */
static void fit_lengths(struct generate *c)
{
    uint64_t context = sennit_model_get_info(c->model)->context_length;
    for (size_t i = 0; i < c->n_rows; i++) {
        struct cli_row *r = &c->rows[i];
        if (r->options.max_tokens != UINT32_MAX)
            continue;
        uint64_t left = context > r->n_ids ? context - r->n_ids : 0;
        r->options.max_tokens = left && left < 256 ? (uint32_t)left : 256;
    }
}

static void stream(void *ctx, struct cli_row *row, const char *text, size_t n_bytes)
{
    (void)ctx;
    (void)row;
    cli_print_text(text, n_bytes);
}

static int print_json(const struct generate *c)
{
    json_t *o = json_object(), *rows = json_array();
    json_t *in_force = cli_json_in_force(sennit_engine_stats(c->engine));
    for (size_t i = 0; i < c->n_rows; i++)
        json_array_append_new(rows, cli_row_json(&c->rows[i], i));
    json_object_set_new(o, "rows", rows);
    cli_steps_json(in_force, &c->steps);
    json_object_set_new(o, "in_force", in_force);
    json_object_set_new(o, "model", cli_json_model(c->e.model, sennit_model_get_info(c->model)));
    json_object_set_new(o, "seconds", json_real(c->steps.seconds));
    return cli_print_json(o);
}

static void print_rows(const struct generate *c)
{
    bool one = c->n_rows == 1;
    for (size_t i = 0; i < c->n_rows; i++) {
        const struct cli_row *r = &c->rows[i];
        if (!one) {
            printf("%s--- row %zu: %zu tokens, %s\n", i ? "\n" : "", i, r->n_generated,
                   cli_row_finish(r));
            cli_print_text(r->text.data ? r->text.data : "", r->text.n_bytes);
        }
        if (!r->text.n_bytes || r->text.data[r->text.n_bytes - 1] != '\n')
            putchar('\n');
        if (c->g.digest)
            printf("digest %016llx\n", (unsigned long long)r->digest);
    }
    fflush(stdout);
}

static void report(const struct generate *c)
{
    size_t n = 0;
    for (size_t i = 0; i < c->n_rows; i++) {
        const struct cli_row *r = &c->rows[i];
        n += r->n_generated;
        if (r->refused || r->finish == SENNIT_FINISH_ERROR) {
            if (c->n_rows == 1)
                cli_error("%s", r->error.message);
            else
                cli_error("row %zu: %s", i, r->error.message);
        }
    }
    if (c->e.verbose)
        fprintf(stderr, "%zu tokens of %zu rows in %zu steps, %.2f s\n", n, c->n_rows, c->steps.n,
                c->steps.seconds);
}

static int run_rows(struct generate *c)
{
    bool streams = c->n_rows == 1 && !c->g.json;
    /* Progress of many rows, where a person watches. */
    if (c->n_rows > 1 && isatty(STDERR_FILENO))
        fprintf(stderr, "running %zu rows ...\n", c->n_rows);
    int code =
        cli_rows_run(c->engine, c->rows, c->n_rows, &c->steps, streams ? stream : NULL, NULL);
    report(c);
    if (c->g.json) {
        int printed = print_json(c);
        return code == CLI_OK ? printed : code;
    }
    if (c->n_rows > 1 || !c->rows[0].refused)
        print_rows(c);
    return code;
}

static int generate(struct generate *c)
{
    int code = check(c);
    if (code == CLI_OK)
        code = make_defaults(c);
    if (code == CLI_OK)
        code = cli_open_model(&c->e, &c->model);
    if (code != CLI_OK)
        return code;
    cli_warn_greedy(&c->given, &c->s);
    struct cli_row_text how = row_text(&c->g);
    code = c->g.prompts ? cli_rows_read(c->g.prompts, c->model, &c->defaults, &how, &c->rows,
                                        &c->n_rows)
                        : repeat_rows(c);
    if (code != CLI_OK)
        return code;
    fit_lengths(c);
    if (!c->e.max_rows && c->n_rows > 16)
        c->e.max_rows = c->n_rows < 64 ? (uint32_t)c->n_rows : 64;
    code = cli_open_engine(&c->e, c->model, &c->engine);
    if (code != CLI_OK)
        return code;
    cli_catch_interrupt();
    return run_rows(c);
}

static int run(const struct command *self, int argc, char **argv)
{
    struct generate c = {.s.max_tokens = UINT32_MAX};
    const struct opt_group groups[] = {{"Prompt and output", generate_table, &c.g},
                                       {"Answer", cli_sampling_table, &c.s},
                                       {"Model", cli_model_table, &c.e},
                                       {"Engine", cli_engine_table, &c.e}};
    if (!opts_parse(self, groups, 4, argc, argv, &c.given))
        return CLI_USAGE;
    int code = c.given.help ? CLI_OK : generate(&c);
    cli_rows_free(c.rows, c.n_rows);
    sennit_engine_free(c.engine);
    sennit_model_free(c.model);
    free(c.defaults.biases);
    free(c.steps.rows);
    free(c.s.bias.items);
    free(c.s.stop.items);
    return code;
}

const struct command cmd_generate = {
    .name = "generate",
    .summary = "completes a prompt, or many in one batch",
    .usage = "-m FILE (-p TEXT | -f FILE | --prompts FILE) [options]",
    .details =
        "The prompt is plain text that the model goes on with; --chat makes it a message of a "
        "chat.\n"
        "Without sampling options the most likely token is taken each time. A row's answer and "
        "digest\n"
        "are the same, bit for bit, whatever runs beside it and whatever the engine options are\n"
        "(--kv alone is another computation).\n"
        "\n"
        "--prompts: each line is an object with \"prompt\" (text), \"messages\" (a chat) or "
        "\"ids\", and\n"
        "any of: max_tokens, temperature, top_k, top_p, min_p, seed, repetition_penalty,\n"
        "presence_penalty, frequency_penalty, choice, ignore_eos, show_special, stop [...],\n"
        "forced [ids to take as the answer], join_at_step (steps to wait before it joins the "
        "batch)\n"
        "and cancel_at_token. What a line does not say comes from the options; --chat and --system\n"
        "are for \"prompt\", while \"messages\" say all themselves.\n",
    .examples =
        "  sennit generate -m model.gguf -p \"The capital of France is\" -n 16\n"
        "  sennit generate -m model.gguf --chat -p \"Why is the sky blue?\" --temp 0.8 --seed 7\n"
        "  sennit generate -m model.gguf -p \"Once\" --rows 8 --digest --threads 2\n"
        "  sennit generate -m model.gguf --prompts rows.jsonl --json > out.json\n",
    .run = run,
};
