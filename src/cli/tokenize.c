/* sennit tokenize: standard input as token ids. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"

struct tokenize_opts {
    bool json, no_bos, special;
};
#define T(field) offsetof(struct tokenize_opts, field)

static const struct opt tokenize_table[] = {
    {"json", 0, OPT_FLAG, T(json), NULL, "print {\"ids\": [...]}", 0, 0, NULL},
    {"no-bos", 0, OPT_FLAG, T(no_bos), NULL, "leave out the begin token that the model wants first",
     0, 0, NULL},
    {"special", 0, OPT_FLAG, T(special), NULL,
     "the text may name control tokens, such as <|im_start|>", 0, 0, NULL},
    {0},
};

/* One line per token: its id, and its text as a JSON string. */
static int print_table(const struct sennit_tokenizer *tokenizer, const struct sennit_tokens *tokens)
{
    struct sennit_error err = {0};
    for (size_t i = 0; i < tokens->n_ids; i++) {
        struct sennit_text piece = {0};
        if (sennit_detokenize(tokenizer, &tokens->ids[i], 1, true, &piece, &err) != SENNIT_OK)
            return cli_fail(&err);
        json_t *v = cli_json_text(piece.data, piece.n_bytes);
        char *quoted = json_dumps(v, JSON_ENCODE_ANY);
        printf("%7d  %s\n", tokens->ids[i], quoted ? quoted : "?");
        free(quoted);
        json_decref(v);
        sennit_text_free(&piece);
    }
    return CLI_OK;
}

static int tokenize(const struct tokenize_opts *o, const struct sennit_tokenizer *tokenizer)
{
    struct sennit_error err = {0};
    struct sennit_tokens tokens = {0};
    struct cli_text text = {0};
    uint32_t flags =
        (o->no_bos ? 0 : SENNIT_TOKENIZE_BOS) | (o->special ? SENNIT_TOKENIZE_SPECIAL : 0);
    int code = cli_read_file("-", "text", &text);
    if (code != CLI_OK)
        return code;
    sennit_status status =
        sennit_tokenize(tokenizer, text.data, text.n_bytes, flags, &tokens, &err);
    cli_text_free(&text);
    if (status != SENNIT_OK)
        return cli_fail(&err);
    if (tokens.n_replaced)
        cli_warn("%zu invalid UTF-8 sequences were read as U+FFFD", tokens.n_replaced);
    if (tokens.n_dropped)
        cli_warn("%zu bytes have no token in this vocabulary and were left out", tokens.n_dropped);
    if (o->json) {
        json_t *out = json_object();
        json_object_set_new(out, "ids", cli_json_ids(tokens.ids, tokens.n_ids));
        code = cli_print_json(out);
    } else {
        code = print_table(tokenizer, &tokens);
    }
    sennit_tokens_free(&tokens);
    return code;
}

static int run(const struct command *self, int argc, char **argv)
{
    struct tokenize_opts o = {0};
    struct cli_engine_opts e = {0};
    struct opt_result r;
    struct sennit_tokenizer *tokenizer = NULL;
    const struct opt_group groups[] = {{"Options", tokenize_table, &o},
                                       {"Model", cli_model_table, &e}};
    if (!opts_parse(self, groups, 2, argc, argv, &r))
        return CLI_USAGE;
    if (r.help)
        return CLI_OK;
    int code = cli_open_tokenizer(&e, &tokenizer);
    if (code == CLI_OK)
        code = tokenize(&o, tokenizer);
    sennit_tokenizer_free(tokenizer);
    return code;
}

const struct command cmd_tokenize = {
    .name = "tokenize",
    .summary = "turns standard input into token ids",
    .usage = "-m FILE [--json] [--no-bos] [--special] < TEXT",
    .details = "The text is taken as text: what looks like a control token is not one, unless "
               "--special is given.\n"
               "A GGUF file with a vocabulary and no tensors is enough.\n",
    .examples = "  echo -n \"Hello, world\" | sennit tokenize -m model.gguf\n"
                "  sennit tokenize -m model.gguf --json < book.txt\n",
    .run = run,
};
