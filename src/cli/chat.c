/* sennit chat: a conversation in the terminal. The session keeps the row's state between turns, so
 * that a turn reads only the tokens that are new. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rows.h"

struct chat_opts {
    const char *system;
    bool json, digest;
};
#define C(field) offsetof(struct chat_opts, field)

static const struct opt chat_table[] = {
    {"system", 0, OPT_STRING, C(system), "TEXT", "the system message", 0, 0, NULL},
    {"json", 0, OPT_FLAG, C(json), NULL, "one line of JSON per answer", 0, 0, NULL},
    {"digest", 0, OPT_FLAG, C(digest), NULL, "print the digest of each answer's logits", 0, 0,
     NULL},
    {0},
};

struct chat {
    struct chat_opts c;
    struct cli_engine_opts e;
    struct cli_sampling_opts s;
    struct opt_result given;
    struct sennit_model *model;
    struct sennit_engine *engine;
    struct sennit_session *session;
    struct sennit_sampling sampling;
    struct sennit_bias *biases;
    json_t *messages;
    size_t turn;
    bool terminal; /* a person types */
};

static const char help_text[] = "  /clear      start the conversation afresh\n"
                                "  /system T   start afresh with the system message T\n"
                                "  /stats      what the engine has done so far\n"
                                "  /exit       leave (also Ctrl-D)\n"
                                "  Ctrl-C      stop the answer that is being written\n"
                                "  a line that ends with \\ goes on in the next one\n";

static void start_afresh(struct chat *c, const char *system)
{
    json_decref(c->messages);
    c->messages = json_array();
    if (system && *system)
        json_array_append_new(c->messages, cli_message("system", system, strlen(system)));
}

/* ---- a turn ---------------------------------------------------------------------------------- */

static void stream(void *ctx, struct cli_row *row, const char *text, size_t n_bytes)
{
    (void)ctx;
    (void)row;
    cli_print_text(text, n_bytes);
}

static int chat_ids(const struct chat *c, int32_t **ids, size_t *n_ids)
{
    json_t *vars = json_object();
    json_object_set(vars, "messages", c->messages);
    int code = cli_chat_ids(c->model, vars, ids, n_ids);
    json_decref(vars);
    return code;
}

/* Most tokens that the answer may have; 0 when the context is full. */
static uint32_t answer_room(const struct chat *c, size_t n_prompt)
{
    uint64_t context = sennit_model_get_info(c->model)->context_length;
    uint64_t left = context > n_prompt ? context - n_prompt : 0;
    uint64_t want = c->s.max_tokens == UINT32_MAX ? 1024 : c->s.max_tokens;
    return (uint32_t)(left < want ? left : want);
}

static int show(struct chat *c, const struct cli_row *row)
{
    if (c->c.json) {
        json_t *o = cli_row_json(row, 0),
               *in_force = cli_json_in_force(sennit_engine_stats(c->engine));
        json_object_set_new(o, "turn", json_integer((json_int_t)c->turn));
        json_object_set_new(o, "in_force", in_force);
        return cli_print_json(o);
    }
    putchar('\n');
    if (c->c.digest)
        printf("digest %016llx\n", (unsigned long long)row->digest);
    fflush(stdout);
    if (row->finish == SENNIT_FINISH_CANCELLED)
        fprintf(stderr, "(stopped)\n");
    else if (row->finish == SENNIT_FINISH_LENGTH)
        fprintf(stderr, "(cut at %zu tokens; -n sets the limit)\n", row->n_generated);
    if (c->e.verbose)
        fprintf(stderr, "prompt %zu tokens: %zu reused, %zu read in %u spans; %zu tokens written\n",
                row->n_prompt, row->n_reused, row->n_prompt - row->n_reused, row->n_prefill_spans,
                row->n_generated);
    return CLI_OK;
}

static void fill_request(const struct chat *c, struct cli_row *row)
{
    row->cancel_at_token = ROW_NEVER;
    row->options.max_tokens = answer_room(c, row->n_ids);
    row->options.sampling = c->sampling;
    row->options.stop = c->s.stop.items;
    row->options.n_stop = c->s.stop.n;
    row->options.ignore_eos = c->s.ignore_eos;
    row->options.keep_special = c->s.special;
    row->options.session = c->session;
}

static int run_row(struct chat *c, struct cli_row *row)
{
    struct cli_steps steps = {0};
    cli_interrupts = 0;
    int code = cli_rows_run(c->engine, row, 1, &steps, c->c.json ? NULL : stream, NULL);
    cli_interrupts = 0;
    free(steps.rows);
    if (row->refused || row->finish == SENNIT_FINISH_ERROR) {
        putchar('\n');
        cli_error("%s", row->error.message);
        return code;
    }
    return show(c, row);
}

/* Answers `text`. A turn that fails leaves the conversation as it was before. */
static int turn(struct chat *c, const char *text, size_t n_bytes)
{
    struct cli_row *row = cli_alloc(sizeof *row);
    json_array_append_new(c->messages, cli_message("user", text, n_bytes));
    int code = chat_ids(c, &row->ids, &row->n_ids);
    if (code == CLI_OK && answer_room(c, row->n_ids) == 0 && c->s.max_tokens != 0) {
        cli_error("the conversation has %zu tokens and fills the model's context of %llu",
                  row->n_ids, (unsigned long long)sennit_model_get_info(c->model)->context_length);
        cli_hint("/clear starts afresh");
        code = CLI_REFUSED;
    }
    if (code == CLI_OK) {
        c->turn++;
        fill_request(c, row);
        code = run_row(c, row);
    }
    if (code == CLI_OK)
        json_array_append_new(
            c->messages,
            cli_message("assistant", row->text.data ? row->text.data : "", row->text.n_bytes));
    else
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    cli_rows_free(row, 1);
    return code;
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Reads a message of one line, or of several that end in a backslash. False at the end of input. */
static bool read_message(struct chat *c, struct cli_text *out)
{
    char *line = NULL;
    size_t cap = 0;
    bool more = true;
    out->n_bytes = 0;
    cli_text_add(out, "", 0);
    while (more) {
        if (c->terminal) {
            fputs(out->n_bytes ? ". " : "> ", stdout);
            fflush(stdout);
        }
        errno = 0;
        ssize_t n = getline(&line, &cap, stdin);
        if (n < 0 && errno == EINTR) { /* Ctrl-C at the prompt drops what was typed */
            clearerr(stdin);
            cli_interrupts = 0;
            out->n_bytes = 0;
            fprintf(stderr, "\n(Ctrl-D or /exit leaves)\n");
            continue;
        }
        if (n < 0) {
            free(line);
            return out->n_bytes > 0;
        }
        if (n > 0 && line[n - 1] == '\n')
            n--;
        if (n > 0 && line[n - 1] == '\r')
            n--;
        more = n > 0 && line[n - 1] == '\\';
        if (more)
            line[n - 1] = '\n';
        cli_text_add(out, line, (size_t)n);
    }
    free(line);
    return true;
}

static void show_stats(const struct chat *c)
{
    const struct sennit_stats *s = sennit_engine_stats(c->engine);
    fprintf(
        stderr,
        "  %s, %u threads, chunk %u; %llu steps, %llu tokens; cache %s %s, %.1f MB of %.1f MB\n",
        s->isa, s->n_threads, s->chunk, (unsigned long long)s->n_steps,
        (unsigned long long)s->n_tokens, s->cache_family, s->kv_type, (double)s->cache_bytes / 1e6,
        (double)s->cache_budget / 1e6);
}

/* Acts on a line that starts with a slash. False = leave. */
static bool slash(struct chat *c, const char *line)
{
    static const char *const words[] = {"/help", "/clear", "/system", "/stats", "/exit", "/quit"};
    if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0)
        return false;
    if (strcmp(line, "/help") == 0) {
        fputs(help_text, stderr);
    } else if (strcmp(line, "/clear") == 0) {
        start_afresh(c, c->c.system);
        fprintf(stderr, "(a new conversation)\n");
    } else if (strncmp(line, "/system", 7) == 0 && (line[7] == ' ' || line[7] == '\0')) {
        start_afresh(c, line + 7 + (line[7] == ' '));
        fprintf(stderr, "(a new conversation with this system message)\n");
    } else if (strcmp(line, "/stats") == 0) {
        show_stats(c);
    } else {
        const char *near = opts_nearest(line, words, sizeof words / sizeof *words);
        fprintf(stderr, "there is no command '%s'; %s%s\n", line,
                near ? "did you mean " : "/help lists them", near ? near : "");
    }
    return true;
}

static int converse(struct chat *c)
{
    struct cli_text line = {0};
    int code = CLI_OK;
    if (c->terminal)
        cli_note("%s. /help lists the commands, /exit leaves.",
                 sennit_model_get_info(c->model)->name);
    while (read_message(c, &line)) {
        if (line.n_bytes == 0)
            continue;
        if (line.data[0] == '/') {
            if (!slash(c, line.data))
                break;
            continue;
        }
        int failed = turn(c, line.data, line.n_bytes);
        if (failed != CLI_OK && !c->terminal) { /* a person can go on; a script must see it */
            code = failed;
            break;
        }
    }
    cli_text_free(&line);
    return code;
}

static int chat(struct chat *c)
{
    struct sennit_error err = {0};
    int code = cli_sampling(&c->s, &c->sampling, &c->biases);
    if (code == CLI_OK)
        code = cli_open_model(&c->e, &c->model);
    if (code != CLI_OK)
        return code;
    if (!sennit_model_get_info(c->model)->chat_template) {
        cli_error("'%s' has no chat template, so it cannot chat", c->e.model);
        cli_hint("'sennit generate -p TEXT' completes plain text");
        return CLI_FILE;
    }
    cli_warn_greedy(&c->given, &c->s);
    code = cli_open_engine(&c->e, c->model, &c->engine);
    if (code != CLI_OK)
        return code;
    if (sennit_session_create(&c->session, c->engine, &err) != SENNIT_OK)
        return cli_fail(&err);
    c->terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    start_afresh(c, c->c.system);
    cli_catch_interrupt();
    return converse(c);
}

static int run(const struct command *self, int argc, char **argv)
{
    struct chat c = {.s = {.max_tokens = UINT32_MAX}};
    const struct opt_group groups[] = {{"Conversation", chat_table, &c.c},
                                       {"Answers", cli_sampling_table, &c.s},
                                       {"Model", cli_model_table, &c.e},
                                       {"Engine", cli_engine_table, &c.e}};
    if (!opts_parse(self, groups, 4, argc, argv, &c.given))
        return CLI_USAGE;
    int code = c.given.help ? CLI_OK : chat(&c);
    sennit_session_free(c.session);
    sennit_engine_free(c.engine);
    sennit_model_free(c.model);
    json_decref(c.messages);
    free(c.biases);
    free(c.s.bias.items);
    free(c.s.stop.items);
    return code;
}

const struct command cmd_chat = {
    .name = "chat",
    .summary = "a conversation in the terminal",
    .usage = "-m FILE [options]",
    .details = "Each line is a message (a \\ at its end continues it on the next line). Ctrl-C "
               "stops the answer,\n"
               "not the program; what was said until then stays part of the conversation. The "
               "model's state is\n"
               "kept between turns: a turn reads only what is new (--verbose shows how much). An "
               "answer has at\n"
               "most 1024 tokens unless -n says otherwise. Without a terminal, lines come from "
               "standard input.\n",
    .examples =
        "  sennit chat -m model.gguf\n"
        "  sennit chat -m model.gguf --system \"Answer in one sentence.\" --temp 0.7 --top-p 0.9\n"
        "  printf 'Hello\\nWhat did I say?\\n' | sennit chat -m model.gguf --json\n",
    .run = run,
};
