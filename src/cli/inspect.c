/* sennit inspect: what is in a model file. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

struct inspect_opts {
    bool json;
};

static const struct opt inspect_table[] = {
    {"json", 0, OPT_FLAG, offsetof(struct inspect_opts, json), NULL, "one line of JSON", 0, 0,
     NULL},
    {0},
};

static int inspect(const char *path, bool json)
{
    struct sennit_error err = {0};
    struct sennit_text text = {0};
    if (access(path, F_OK) != 0) {
        cli_error("there is no file '%s'", path);
        cli_hint_missing(path, true);
        return CLI_FILE;
    }
    if (sennit_file_describe(path, json, &text, &err) != SENNIT_OK)
        return cli_fail(&err);
    cli_print_text(text.data, text.n_bytes);
    if (text.n_bytes == 0 || text.data[text.n_bytes - 1] != '\n')
        cli_print_text("\n", 1);
    sennit_text_free(&text);
    return CLI_OK;
}

static int run(const struct command *self, int argc, char **argv)
{
    struct inspect_opts o = {0};
    struct opt_result r;
    const struct opt_group groups[] = {{"Options", inspect_table, &o}};
    if (!opts_parse(self, groups, 1, argc, argv, &r))
        return CLI_USAGE;
    if (r.help)
        return CLI_OK;
    if (!r.operand) {
        cli_error("which file? usage: sennit inspect %s", self->usage);
        cli_hint_missing(NULL, true);
        return CLI_USAGE;
    }
    return inspect(r.operand, o.json);
}

const struct command cmd_inspect = {
    .name = "inspect",
    .summary = "shows the metadata and tensors of a model file",
    .usage = "FILE [--json]",
    .details =
        "Works for every well-formed GGUF file, also for models that this version cannot run.\n",
    .examples = "  sennit inspect model.gguf\n"
                "  sennit inspect model.gguf --json | jq .metadata\n",
    .operand = "FILE",
    .run = run,
};
