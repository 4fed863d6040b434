/* sennit render: a chat template over a conversation. */
#include <string.h>

#include "cli.h"

struct render_opts {
    const char *template, *messages, *now;
    bool json;
};
#define R(field) offsetof(struct render_opts, field)

static const struct opt render_table[] = {
    {"template", 0, OPT_STRING, R(template), "FILE", "the Jinja template", 0, 0, NULL},
    {"messages", 0, OPT_STRING, R(messages), "FILE",
     "a JSON object with \"messages\" and any other variable of the template; - = standard input",
     0, 0, NULL},
    {"now", 0, OPT_STRING, R(now), "TIME", "the time for strftime_now, like 2026-01-31T12:00:00", 0,
     0, NULL},
    {"json", 0, OPT_FLAG, R(json), NULL, "print {\"text\": ...}", 0, 0, NULL},
    {0},
};

static int print(const struct render_opts *o, const struct sennit_text *text)
{
    if (!o->json) {
        cli_print_text(text->data, text->n_bytes);
        return CLI_OK;
    }
    json_t *out = json_object();
    json_object_set_new(out, "text", cli_json_text(text->data, text->n_bytes));
    return cli_print_json(out);
}

static int render(const struct render_opts *o, struct cli_text *template, struct cli_text *messages)
{
    struct sennit_error err = {0};
    struct sennit_text text = {0};
    const struct sennit_render_options options = {.now = o->now};
    int code = cli_read_file(o->template, "template", template);
    if (code == CLI_OK)
        code = cli_read_file(o->messages, "file of messages", messages);
    if (code != CLI_OK)
        return code;
    if (strlen(template->data) != template->n_bytes ||
        strlen(messages->data) != messages->n_bytes) {
        cli_error("'%s' holds a NUL byte",
                  strlen(template->data) != template->n_bytes ? o->template : o->messages);
        return CLI_FILE;
    }
    if (sennit_template_render(template->data, messages->data, &options, &text, &err) !=
        SENNIT_OK) {
        code = cli_fail(&err);
        return code == CLI_USAGE ? CLI_FILE : code;
    }
    code = print(o, &text);
    sennit_text_free(&text);
    return code;
}

static int run(const struct command *self, int argc, char **argv)
{
    struct render_opts o = {0};
    struct opt_result r;
    struct cli_text template = {0}, messages = {0};
    const struct opt_group groups[] = {{"Options", render_table, &o}};
    if (!opts_parse(self, groups, 1, argc, argv, &r))
        return CLI_USAGE;
    if (r.help)
        return CLI_OK;
    if (!o.template || !o.messages) {
        cli_error("usage: sennit render %s", self->usage);
        cli_hint("'sennit render --help' shows an example of the messages");
        return CLI_USAGE;
    }
    int code = render(&o, &template, &messages);
    cli_text_free(&template);
    cli_text_free(&messages);
    return code;
}

const struct command cmd_render = {
    .name = "render",
    .summary = "renders a chat template",
    .usage = "--template FILE --messages FILE.json [--now TIME] [--json]",
    .details = "Prints the text as it is, or with --json as {\"text\": ...}. A construct that this "
               "version does not\n"
               "know is an error with its line and column.\n",
    .examples = "  sennit render --template chat.jinja --messages talk.json --json\n"
                "  echo '{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
                "\"add_generation_prompt\": true}' |\n"
                "      sennit render --template chat.jinja --messages -\n",
    .run = run,
};
