/* From a body's bytes to a struct: JSON, then the table of fields, then what fields must not say together. */
#include "serve/call.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/opts.h"
#include "serve/alloc.h"
#include "serve/answer.h"
#include "serve/fields.h"
#include "serve/json.h"

/* ---- errors ---------------------------------------------------------------------------------------------------- */

bool sv_no_memory(struct sv_error *err)
{
    sv_fail(err, 503, "no_memory", NULL, "the server has no memory left to read this request; try again later");
    err->retry_after = 1;
    return false;
}

static void describe(const json_t *v, char *out, size_t size)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        snprintf(out, size, "an object");
        break;
    case JSON_ARRAY:
        snprintf(out, size, json_array_size(v) ? "an array" : "an empty array");
        break;
    case JSON_STRING:
        snprintf(out, size, "the string \"%.60s%s\"", json_string_value(v), json_string_length(v) > 60 ? "..." : "");
        break;
    case JSON_INTEGER:
        snprintf(out, size, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        snprintf(out, size, "%.9g", json_real_value(v));
        if (!out[strspn(out, "-0123456789")]) /* "not 5" would puzzle who sent 5.0 for a whole number */
            snprintf(out, size, "%.1f", json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        snprintf(out, size, json_is_true(v) ? "true" : "false");
        break;
    default:
        snprintf(out, size, "null");
        break;
    }
}

bool sv_wrong_type(struct sv_error *err, const char *param, const json_t *v, const char *wanted)
{
    char what[128];
    describe(v, what, sizeof what);
    return sv_fail(err, 400, "invalid_type", param, "'%s' must be %s, not %s", param, wanted, what);
}

bool sv_wrong_value(struct sv_error *err, const char *param, const json_t *v, const char *wanted)
{
    char what[128];
    describe(v, what, sizeof what);
    return sv_fail(err, 400, "invalid_value", param, "'%s' must be %s, not %s", param, wanted, what);
}

bool sv_unknown(struct sv_error *err, const char *param, const char *name, const char *what, const char *const *known,
                size_t n)
{
    const char *near = opts_nearest(name, known, n);
    if (near)
        return sv_fail(err, 400, "unknown_parameter", param, "unknown %s '%.100s'; did you mean '%s'?", what, name,
                       near);
    return sv_fail(err, 400, "unknown_parameter", param,
                   "unknown %s '%.100s'; fields that would be ignored are refused, so leave it out", what, name);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

/* The body as an object, or NULL after an error. */
static json_t *parse_body(const char *body, size_t n_bytes, struct sv_error *err)
{
    struct sv_json_problem problem;
    if (n_bytes == 0) {
        sv_fail(err, 400, "invalid_json", NULL, "the body is empty; send a JSON object");
        return NULL;
    }
    json_t *v = sv_json_read(body, n_bytes, SV_MOST_DEPTH, &problem);
    if (!v) {
        if (problem.no_memory)
            sv_no_memory(err);
        else
            sv_fail(err, 400, "invalid_json", NULL, "the body is not JSON that can be read: %s", problem.text);
        return NULL;
    }
    if (!json_is_object(v)) {
        char what[128];
        describe(v, what, sizeof what);
        sv_fail(err, 400, "invalid_type", NULL, "the body must be a JSON object, not %s", what);
        json_decref(v);
        return NULL;
    }
    return v;
}

/* ---- fields together ------------------------------------------------------------------------------------------- */

static bool given(const struct sv_reader *r, const char *name)
{
    const json_t *v = json_object_get(r->body, name);
    return v && !json_is_null(v);
}

static bool check_required(struct sv_reader *r)
{
    const char *name = r->endpoint == SV_CHAT ? "messages" : "prompt";
    if (given(r, name))
        return true;
    return sv_fail(r->err, 400, "missing_required_parameter", name, "the field '%s' is missing", name);
}

static bool check_lengths(struct sv_reader *r)
{
    const json_t *a = json_object_get(r->body, "max_tokens"), *b = json_object_get(r->body, "max_completion_tokens");
    if (json_is_integer(a) && json_is_integer(b) && json_integer_value(a) != json_integer_value(b))
        return sv_fail(r->err, 400, "invalid_value", "max_completion_tokens",
                       "max_tokens is %" JSON_INTEGER_FORMAT " and max_completion_tokens is %" JSON_INTEGER_FORMAT
                       "; they are two names of one limit, so give one",
                       json_integer_value(a), json_integer_value(b));
    return true;
}

static bool check_choices(struct sv_reader *r)
{
    struct sv_call *c = r->call;
    const json_t *best = json_object_get(r->body, "best_of");
    if (json_is_integer(best) && json_integer_value(best) != c->n)
        return sv_fail(r->err, 400, "unsupported_value", "best_of",
                       "best_of is %" JSON_INTEGER_FORMAT
                       " and n is %u; answers are not ranked here, so leave best_of "
                       "out or make it equal to n",
                       json_integer_value(best), c->n);
    if (c->n_prompts > 0 && c->n > SV_MOST_CHOICES / c->n_prompts)
        return sv_fail(r->err, 400, "invalid_value", "n",
                       "%u prompts with n = %u are %" PRIu64 " answers; one request may ask for at most %d",
                       c->n_prompts, c->n, (uint64_t)c->n_prompts * c->n, SV_MOST_CHOICES);
    return true;
}

static bool check_together(struct sv_reader *r)
{
    struct sv_call *c = r->call;
    if (given(r, "stream_options") && !c->stream)
        return sv_fail(r->err, 400, "invalid_value", "stream_options",
                       "stream_options is only legal together with \"stream\": true");
    c->include_usage = r->include_usage;
    if (r->n_top_asked > 0 && !c->logprobs)
        return sv_fail(r->err, 400, "invalid_value", "top_logprobs",
                       "top_logprobs is only legal together with \"logprobs\": true");
    if (r->endpoint == SV_CHAT)
        c->n_top = r->n_top_asked;
    return check_required(r) && check_lengths(r) && check_choices(r);
}

static bool write_vars(struct sv_reader *r)
{
    struct sv_buf text = {0};
    sv_json_write(&text, r->vars);
    if (text.failed)
        sv_buf_release(&text);
    r->call->vars_json = text.data;
    return text.data ? true : sv_no_memory(r->err);
}

/* ---- public ---------------------------------------------------------------------------------------------------- */

static bool read_body(struct sv_reader *r)
{
    if (r->endpoint == SV_CHAT && !(r->vars = json_object()))
        return sv_no_memory(r->err);
    return sv_fields_read(r) && check_together(r) && (r->endpoint != SV_CHAT || write_vars(r));
}

bool sv_call_parse(enum sv_endpoint endpoint, const char *body, size_t n_bytes, bool developer_role,
                   struct sv_call *out, struct sv_error *err)
{
    *out = (struct sv_call){.endpoint = endpoint,
                            .n = 1,
                            .parse_special = true,
                            .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1}};
    json_t *object = parse_body(body, n_bytes, err);
    struct sv_reader r = {
        .endpoint = endpoint, .developer_role = developer_role, .body = object, .call = out, .err = err};
    bool ok = object && read_body(&r);
    json_decref(object);
    json_decref(r.vars);
    if (!ok)
        sv_call_release(out);
    return ok;
}

void sv_call_release(struct sv_call *call)
{
    for (uint32_t i = 0; call->prompts && i < call->n_prompts; i++) {
        sv_free(call->prompts[i].text);
        sv_free(call->prompts[i].ids);
    }
    for (uint32_t i = 0; call->stop && i < call->n_stop; i++)
        sv_free(call->stop[i]);
    sv_free(call->prompts);
    sv_free(call->stop);
    sv_free((void *)call->sampling.biases);
    sv_free(call->model);
    sv_free(call->vars_json);
    *call = (struct sv_call){0};
}
