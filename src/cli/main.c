/* sennit: the command line. One file per command; this one finds it. */
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

static const struct command *const commands[] = {
    &cmd_generate, &cmd_chat,   &cmd_bench,          &cmd_inspect,
    &cmd_tokenize, &cmd_render, &cmd_cache_families, &cmd_selftest,
#ifdef SENNIT_SERVER
    &cmd_serve,
#endif
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *out)
{
    fprintf(out,
            "sennit %s: language models on CPUs, many conversations in one batch, each with the "
            "answer that it\n"
            "would have had alone, bit for bit.\n\n"
            "usage: sennit COMMAND [options]\n\nCommands:\n",
            sennit_version());
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-14s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(
        out,
        "\n'sennit COMMAND --help' explains a command. --version prints the version.\n\n"
        "Examples:\n"
        "  sennit chat -m model.gguf\n"
        "  sennit generate -m model.gguf -p \"The capital of France is\" -n 16\n"
        "  sennit generate -m model.gguf --prompts rows.jsonl --json\n"
        "  sennit bench -m model.gguf --rows 1,8\n"
        "  sennit inspect model.gguf\n"
        "  sennit tokenize -m model.gguf < text.txt\n"
        "  sennit render --template chat.jinja --messages talk.json\n"
        "  sennit cache-families\n"
        "  sennit selftest\n\n"
        "Exit codes:\n"
        "  0    done\n"
        "  1    failed while running\n"
        "  2    wrong usage: an unknown option, a bad value, something missing\n"
        "  3    a file is missing, malformed, or of a kind that this version cannot use\n"
        "  4    refused: a request is too long for the context or too big for the cache budget\n"
        "  5    serve --exit-on-failure: the engine failed\n"
        "  130  interrupted with Ctrl-C\n");
}

static int unknown(const char *word)
{
    const char *names[N_COMMANDS + 2];
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i]->name;
    names[N_COMMANDS] = "--help";
    names[N_COMMANDS + 1] = "--version";
    const char *near = opts_nearest(word, names, N_COMMANDS + 2);
    cli_error("there is no command '%s'", word);
    if (near)
        cli_hint("did you mean 'sennit %s'? 'sennit --help' lists all", near);
    else
        cli_hint("'sennit --help' lists the commands");
    return CLI_USAGE;
}

/* What was printed and did not arrive, on a full disk for example, is a failure too. */
static int finished(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (code == CLI_OK)
        cli_error("cannot write to standard output");
    return code == CLI_OK ? CLI_FAILED : code;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    static char help_word[] = "--help";
    const char *word = argv[1];
    if (strcmp(word, "help") == 0 && argc > 2) { /* sennit help COMMAND */
        argv[1] = argv[2];
        argv[2] = help_word;
        word = argv[1];
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        help(stdout);
        return CLI_OK;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("sennit %s (numerics %d)\n", sennit_version(), SENNIT_NUMERICS);
        return CLI_OK;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(word, commands[i]->name) == 0)
            return commands[i]->run(commands[i], argc - 2, argv + 2);
    return unknown(word);
}

int main(int argc, char **argv)
{
    return finished(dispatch(argc, argv));
}
