/* sennit serve: its options, and from start to exit code. */
#include "cli/cli.h"

static int run(const struct command *self, int argc, char **argv)
{
    struct opt_result r;
    if (!opts_parse(self, NULL, 0, argc, argv, &r))
        return CLI_USAGE;
    cli_error("the server is not there yet");
    return CLI_FAILED;
}

const struct command cmd_serve = {
    .name = "serve",
    .summary = "answer programs that speak OpenAI's API",
    .usage = "-m FILE [options]",
    .run = run,
};
