/* Prompts to token ids, and rows from a file of JSON lines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

/* ---- ids ------------------------------------------------------------------------------------- */

static void take_tokens(struct sennit_tokens *tokens, int32_t **ids, size_t *n_ids)
{
    if (tokens->n_replaced)
        cli_warn("%zu invalid UTF-8 sequences of the prompt were read as U+FFFD",
                 tokens->n_replaced);
    if (tokens->n_dropped)
        cli_warn("%zu bytes of the prompt have no token in this vocabulary and were left out",
                 tokens->n_dropped);
    *ids = cli_alloc(tokens->n_ids * sizeof **ids);
    if (tokens->n_ids)
        memcpy(*ids, tokens->ids, tokens->n_ids * sizeof **ids);
    *n_ids = tokens->n_ids;
    sennit_tokens_free(tokens);
}

int cli_prompt_ids(const struct sennit_model *model, const char *text, size_t n_bytes,
                   uint32_t flags, int32_t **ids, size_t *n_ids)
{
    struct sennit_error err = {0};
    struct sennit_tokens tokens = {0};
    if (sennit_tokenize(sennit_model_tokenizer(model), text, n_bytes, flags, &tokens, &err) !=
        SENNIT_OK)
        return cli_fail(&err);
    take_tokens(&tokens, ids, n_ids);
    if (*n_ids > 0)
        return CLI_OK;
    free(*ids);
    *ids = NULL;
    cli_error("the prompt has no tokens; this model needs at least one to start from");
    cli_hint("give some text with -p, or with -f a file that is not empty");
    return CLI_USAGE;
}

int cli_text_ids(const struct sennit_model *model, const struct cli_row_text *how, const char *text,
                 size_t n_bytes, int32_t **ids, size_t *n_ids)
{
    if (!how->chat)
        return cli_prompt_ids(model, text, n_bytes, how->flags, ids, n_ids);
    json_t *vars = json_object(), *messages = json_array();
    if (how->system)
        json_array_append_new(messages, cli_message("system", how->system, strlen(how->system)));
    json_array_append_new(messages, cli_message("user", text, n_bytes));
    json_object_set_new(vars, "messages", messages);
    int code = cli_chat_ids(model, vars, ids, n_ids);
    json_decref(vars);
    return code;
}

json_t *cli_message(const char *role, const char *text, size_t n_bytes)
{
    json_t *o = json_object();
    json_object_set_new(o, "role", json_string(role));
    json_object_set_new(o, "content", cli_json_text(text, n_bytes));
    return o;
}

int cli_chat_ids(const struct sennit_model *model, const json_t *vars, int32_t **ids, size_t *n_ids)
{
    struct sennit_error err = {0};
    struct sennit_tokens tokens = {0};
    char *json = json_dumps(vars, JSON_COMPACT);
    if (!json) {
        cli_error("cannot write the conversation as JSON");
        return CLI_FAILED;
    }
    sennit_status status = sennit_chat_tokenize(model, json, NULL, &tokens, &err);
    free(json);
    if (status != SENNIT_OK) {
        int code = cli_fail(&err);
        if (status == SENNIT_NOT_FOUND)
            cli_hint("without a chat template, 'sennit generate -p TEXT' completes plain text");
        return code;
    }
    take_tokens(&tokens, ids, n_ids);
    return CLI_OK;
}

/* ---- JSON lines ------------------------------------------------------------------------------ */

struct line {
    const char *path;
    size_t number;
    const struct sennit_model *model;
    const struct cli_row_text *how;
    struct cli_row *row;
};

static bool bad(const struct line *l, const char *key, const char *wanted)
{
    cli_error("%s:%zu: \"%s\" must be %s", l->path, l->number, key, wanted);
    return false;
}

static bool get_ids(const struct line *l, const char *key, const json_t *v, int32_t **ids,
                    size_t *n)
{
    size_t count = json_array_size(v);
    if (!json_is_array(v) || count == 0)
        return bad(l, key, "an array of token ids, at least one");
    free(*ids);
    *ids = cli_alloc(count * sizeof **ids);
    *n = count;
    for (size_t i = 0; i < count; i++) {
        const json_t *e = json_array_get(v, i);
        json_int_t id = json_integer_value(e);
        if (!json_is_integer(e) || id < 0 || id > INT32_MAX)
            return bad(l, key, "an array of token ids (whole numbers from 0)");
        (*ids)[i] = (int32_t)id;
    }
    return true;
}

static bool get_prompt(const struct line *l, const json_t *v)
{
    if (!json_is_string(v))
        return bad(l, "prompt", "a string");
    free(l->row->ids);
    l->row->ids = NULL;
    int code = cli_text_ids(l->model, l->how, json_string_value(v), json_string_length(v),
                            &l->row->ids, &l->row->n_ids);
    if (code != CLI_OK)
        cli_hint("this was line %zu of %s", l->number, l->path);
    return code == CLI_OK;
}

static bool get_messages(const struct line *l, const json_t *v)
{
    if (!json_is_array(v))
        return bad(l, "messages", "an array of {\"role\": ..., \"content\": ...}");
    free(l->row->ids);
    l->row->ids = NULL;
    json_t *vars = json_object();
    json_object_set(vars, "messages", (json_t *)(uintptr_t)v);
    int code = cli_chat_ids(l->model, vars, &l->row->ids, &l->row->n_ids);
    json_decref(vars);
    if (code != CLI_OK)
        cli_hint("this was line %zu of %s", l->number, l->path);
    return code == CLI_OK;
}

static void drop_stops(struct cli_row *row)
{
    for (uint32_t i = 0; row->stops && i < row->options.n_stop; i++)
        free((void *)(uintptr_t)row->stops[i]);
    free(row->stops);
    row->stops = NULL;
    row->options.stop = NULL;
    row->options.n_stop = 0;
}

static bool get_stop(const struct line *l, const json_t *v)
{
    size_t n = json_array_size(v);
    if (!json_is_array(v))
        return bad(l, "stop", "an array of strings");
    drop_stops(l->row);
    l->row->stops = cli_alloc(n * sizeof *l->row->stops);
    l->row->options.stop = l->row->stops;
    for (size_t i = 0; i < n; i++) {
        const json_t *e = json_array_get(v, i);
        if (!json_is_string(e) || json_string_length(e) == 0)
            return bad(l, "stop", "an array of strings that are not empty");
        l->row->stops[l->row->options.n_stop++] = strdup(json_string_value(e));
    }
    return true;
}

static bool get_forced(const struct line *l, const json_t *v)
{
    size_t n = 0;
    if (!get_ids(l, "forced", v, &l->row->forced, &n) || n > UINT32_MAX)
        return false;
    l->row->options.forced = l->row->forced;
    return true;
}

static bool get_u64(const struct line *l, const char *key, const json_t *v, uint64_t *out,
                    uint64_t most)
{
    char wanted[64];
    if (json_is_integer(v) && json_integer_value(v) >= 0 &&
        (uint64_t)json_integer_value(v) <= most) {
        *out = (uint64_t)json_integer_value(v);
        return true;
    }
    snprintf(wanted, sizeof wanted, "a whole number from 0 to %llu", (unsigned long long)most);
    return bad(l, key, wanted);
}

static bool get_float(const struct line *l, const char *key, const json_t *v, float *out)
{
    if (!json_is_number(v))
        return bad(l, key, "a number");
    *out = (float)json_number_value(v);
    return true;
}

static bool get_flag(const struct line *l, const char *key, const json_t *v, bool *out)
{
    if (!json_is_boolean(v))
        return bad(l, key, "true or false");
    *out = json_is_true(v);
    return true;
}

static const char *const keys[] = {"prompt",
                                   "ids",
                                   "messages",
                                   "max_tokens",
                                   "temperature",
                                   "top_k",
                                   "top_p",
                                   "min_p",
                                   "seed",
                                   "repetition_penalty",
                                   "presence_penalty",
                                   "frequency_penalty",
                                   "choice",
                                   "ignore_eos",
                                   "show_special",
                                   "stop",
                                   "forced",
                                   "join_at_step",
                                   "cancel_at_token"};

/* Fields that are numbers or flags; *found tells whether the key was one of them. */
static bool get_simple(const struct line *l, const char *key, const json_t *v, bool *found)
{
    struct sennit_request_options *o = &l->row->options;
    struct sennit_sampling *s = &o->sampling;
    const struct {
        const char *key;
        float *at;
    } floats[] = {{"temperature", &s->temperature},
                  {"top_p", &s->top_p},
                  {"min_p", &s->min_p},
                  {"repetition_penalty", &s->repetition_penalty},
                  {"presence_penalty", &s->presence_penalty},
                  {"frequency_penalty", &s->frequency_penalty}};
    const struct {
        const char *key;
        uint32_t *at;
    } whole[] = {{"max_tokens", &o->max_tokens}, {"top_k", &s->top_k}, {"choice", &s->choice}};
    *found = true;
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        if (strcmp(key, floats[i].key) == 0)
            return get_float(l, key, v, floats[i].at);
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
        uint64_t n = 0;
        if (strcmp(key, whole[i].key) != 0)
            continue;
        bool ok = get_u64(l, key, v, &n, 1u << 30);
        *whole[i].at = (uint32_t)n;
        return ok;
    }
    if (strcmp(key, "seed") == 0)
        return get_u64(l, key, v, &s->seed, INT64_MAX);
    if (strcmp(key, "join_at_step") == 0)
        return get_u64(l, key, v, &l->row->join_at_step, 1u << 30);
    if (strcmp(key, "cancel_at_token") == 0)
        return get_u64(l, key, v, &l->row->cancel_at_token, 1u << 30);
    if (strcmp(key, "ignore_eos") == 0)
        return get_flag(l, key, v, &o->ignore_eos);
    if (strcmp(key, "show_special") == 0)
        return get_flag(l, key, v, &o->keep_special);
    *found = false;
    return true;
}

static bool get_field(const struct line *l, const char *key, const json_t *v)
{
    bool found, ok = get_simple(l, key, v, &found);
    if (found)
        return ok;
    if (strcmp(key, "prompt") == 0)
        return get_prompt(l, v);
    if (strcmp(key, "messages") == 0)
        return get_messages(l, v);
    if (strcmp(key, "ids") == 0)
        return get_ids(l, key, v, &l->row->ids, &l->row->n_ids);
    if (strcmp(key, "stop") == 0)
        return get_stop(l, v);
    if (strcmp(key, "forced") == 0)
        return get_forced(l, v);
    const char *near = opts_nearest(key, keys, sizeof keys / sizeof *keys);
    cli_error("%s:%zu: a row has no field \"%s\"", l->path, l->number, key);
    if (near)
        cli_hint("did you mean \"%s\"?", near);
    else
        cli_hint("'sennit generate --help' lists the fields");
    return false;
}

/* A copy of the defaults with memory of its own. */
static struct cli_row copy_defaults(const struct cli_row *d)
{
    struct cli_row r = *d;
    uint32_t n = d->options.n_stop, n_bias = d->options.sampling.n_biases;
    r.stops = cli_alloc(n * sizeof *r.stops);
    for (uint32_t i = 0; i < n; i++)
        r.stops[i] = strdup(d->options.stop[i]);
    r.options.stop = r.stops;
    r.biases = cli_alloc(n_bias * sizeof *r.biases);
    if (n_bias)
        memcpy(r.biases, d->options.sampling.biases, n_bias * sizeof *r.biases);
    r.options.sampling.biases = r.biases;
    r.ids = NULL;
    return r;
}

/* An answer that is forced is as long as its ids, or shorter where the line says so, in whatever
 * order the two stand: the engine reads max_tokens of them. */
static void fit_forced(struct cli_row *row, const json_t *line)
{
    size_t n = json_array_size(json_object_get(line, "forced"));
    if (!json_object_get(line, "max_tokens") || row->options.max_tokens > n)
        row->options.max_tokens = (uint32_t)n;
}

static int read_line(const struct line *l, const char *text, size_t n)
{
    json_error_t e;
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    const char *key;
    json_t *v;
    if (!json_is_object(o)) {
        cli_error("%s:%zu: %s", l->path, l->number,
                  o ? "a row must be a JSON object, like {\"prompt\": \"...\"}" : e.text);
        json_decref(o);
        return CLI_FILE;
    }
    bool ok = true;
    json_object_foreach(o, key, v)
    {
        ok = ok && get_field(l, key, v);
    }
    if (ok && l->row->forced)
        fit_forced(l->row, o);
    json_decref(o);
    if (ok && !l->row->ids) {
        cli_error("%s:%zu: a row needs \"prompt\", \"messages\" or \"ids\"", l->path, l->number);
        ok = false;
    }
    return ok ? CLI_OK : CLI_FILE;
}

int cli_rows_read(const char *path, const struct sennit_model *model,
                  const struct cli_row *defaults, const struct cli_row_text *how,
                  struct cli_row **rows, size_t *n_rows)
{
    struct cli_text text = {0};
    int code = cli_read_file(path, "file of prompts", &text);
    struct line l = {.path = path, .model = model, .how = how};
    if (code == CLI_OK && strlen(text.data) != text.n_bytes) {
        cli_error("'%s' holds a NUL byte", path);
        code = CLI_FILE;
    }
    for (char *p = text.data, *next; code == CLI_OK && p && *p; p = next) {
        size_t n = strcspn(p, "\n");
        next = p + n + (p[n] == '\n');
        l.number++;
        if (strspn(p, " \t\r") >= n)
            continue;
        *rows = cli_realloc(*rows, (*n_rows + 1) * sizeof **rows);
        l.row = &(*rows)[(*n_rows)++];
        *l.row = copy_defaults(defaults);
        code = read_line(&l, p, n);
    }
    if (code == CLI_OK && *n_rows == 0) {
        cli_error("%s holds no rows", path);
        code = CLI_FILE;
    }
    cli_text_free(&text);
    return code;
}
