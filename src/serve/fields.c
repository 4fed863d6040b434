/* The table of fields. A field is read, or known to change nothing, or refused with the reason. */
#include "serve/fields.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "serve/alloc.h"

#define READER(name) static bool name(struct sv_reader *r, const struct sv_field *f, const json_t *v)

static void *place(const struct sv_reader *r, const struct sv_field *f)
{
    return (char *)r->call + f->offset;
}

static bool is_word(const json_t *v, const char *word)
{
    return json_is_string(v) && json_string_length(v) == strlen(word) && strcmp(json_string_value(v), word) == 0;
}

/* ---- plain kinds ----------------------------------------------------------------------------------------------- */

READER(read_bool)
{
    if (!json_is_boolean(v))
        return sv_wrong_type(r->err, f->name, v, "true or false");
    *(bool *)place(r, f) = json_is_true(v);
    return true;
}

READER(read_count)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a whole number from %.0f to %.0f", f->lo, f->hi);
    if (!json_is_integer(v))
        return sv_wrong_type(r->err, f->name, v, wanted);
    json_int_t x = json_integer_value(v);
    if (x < (json_int_t)f->lo || x > (json_int_t)f->hi)
        return sv_wrong_value(r->err, f->name, v, wanted);
    *(uint32_t *)place(r, f) = (uint32_t)x;
    return true;
}

READER(read_number)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a number from %g to %g", f->lo, f->hi);
    if (!json_is_number(v))
        return sv_wrong_type(r->err, f->name, v, wanted);
    double x = json_number_value(v);
    if (!(x >= f->lo && x <= f->hi))
        return sv_wrong_value(r->err, f->name, v, wanted);
    *(float *)place(r, f) = (float)x;
    return true;
}

READER(read_model)
{
    if (!json_is_string(v))
        return sv_wrong_type(r->err, f->name, v, "a string");
    if (strlen(json_string_value(v)) != json_string_length(v))
        return sv_fail(r->err, 400, "invalid_value", f->name, "'model' must not hold a NUL character");
    r->call->model = sv_copy(json_string_value(v), json_string_length(v));
    return r->call->model ? true : sv_no_memory(r->err);
}

/* ---- sampling -------------------------------------------------------------------------------------------------- */

READER(read_temperature)
{
    if (!read_number(r, f, v))
        return false;
    float t = r->call->sampling.temperature;
    return t == 0 || t >= 1e-4f || sv_wrong_value(r->err, f->name, v, "0 (greedy) or a number from 0.0001 to 100");
}

READER(read_top_p)
{
    static const char WANTED[] = "a number from 0 (the likeliest token alone) to 1 (off)";
    if (!json_is_number(v))
        return sv_wrong_type(r->err, f->name, v, WANTED);
    double p = json_number_value(v);
    /* To the library 0 is "off". The least share of the probability is held by the likeliest token. */
    r->call->sampling.top_p = p < (double)FLT_MIN ? FLT_MIN : (float)p;
    return (p >= 0 && p <= 1) || sv_wrong_value(r->err, f->name, v, WANTED);
}

READER(read_min_p)
{
    return read_number(r, f, v) &&
           (r->call->sampling.min_p < 1 || sv_wrong_value(r->err, f->name, v, "a number from 0 (off) to below 1"));
}

READER(read_top_k)
{
    if (json_is_integer(v) && json_integer_value(v) == -1) { /* how other servers write "off" */
        r->call->sampling.top_k = 0;
        return true;
    }
    return read_count(r, f, v);
}

READER(read_seed)
{
    if (!json_is_integer(v))
        return sv_wrong_type(r->err, f->name, v, "a whole number");
    r->call->seed = (uint64_t)json_integer_value(v);
    r->call->has_seed = true;
    return true;
}

/* A token id as a member's name: digits without sign or leading zeros. -1 when it is none. */
static int64_t bias_id(const char *key)
{
    int64_t id = 0;
    size_t n = strlen(key);
    if (n == 0 || n > 10 || (n > 1 && key[0] == '0'))
        return -1;
    for (; *key; key++) {
        if (*key < '0' || *key > '9')
            return -1;
        id = id * 10 + (*key - '0');
    }
    return id <= INT32_MAX ? id : -1;
}

READER(read_bias)
{
    struct sennit_sampling *s = &r->call->sampling;
    const char *key;
    const json_t *x;
    size_t n = json_object_size(v);
    if (!json_is_object(v))
        return sv_wrong_type(r->err, f->name, v, "an object of token ids and numbers, such as {\"42\": -100}");
    if (n > SV_MOST_BIASES)
        return sv_fail(r->err, 400, "invalid_value", f->name, "'logit_bias' has %zu tokens; at most %d are possible",
                       n, SV_MOST_BIASES);
    struct sennit_bias *list = n ? sv_calloc(n, sizeof *list) : NULL;
    if (n && !list)
        return sv_no_memory(r->err);
    s->biases = list;
    json_object_foreach((json_t *)v, key, x)
    {
        char at[64];
        int64_t id = bias_id(key);
        double bias = json_number_value(x);
        snprintf(at, sizeof at, "logit_bias.%.40s", key);
        if (id < 0)
            return sv_fail(r->err, 400, "invalid_value", f->name,
                           "'logit_bias' has the member '%.40s'; its members must be token ids such as \"42\"", key);
        if (!json_is_number(x))
            return sv_wrong_type(r->err, at, x, "a number from -100 to 100");
        if (!(bias >= -100 && bias <= 100))
            return sv_wrong_value(r->err, at, x, "a number from -100 to 100");
        list[s->n_biases++] = (struct sennit_bias){(int32_t)id, (float)bias};
    }
    return true;
}

/* ---- length, stops, choices ------------------------------------------------------------------------------------ */

READER(read_max_tokens)
{
    r->call->has_max_tokens = true;
    return read_count(r, f, v);
}

static bool read_one_stop(struct sv_reader *r, const char *at, const json_t *v)
{
    struct sv_call *c = r->call;
    if (!json_is_string(v))
        return sv_wrong_type(r->err, at, v, "a string");
    size_t n = json_string_length(v);
    if (n == 0)
        return sv_wrong_value(r->err, at, v, "a string with at least one character");
    if (n > SV_MOST_STOP_BYTES)
        return sv_fail(r->err, 400, "invalid_value", at, "'%s' has %zu bytes; at most %d are possible", at, n,
                       SV_MOST_STOP_BYTES);
    if (strlen(json_string_value(v)) != n)
        return sv_fail(r->err, 400, "invalid_value", at, "'%s' must not hold a NUL character", at);
    if (!(c->stop[c->n_stop] = sv_copy(json_string_value(v), n)))
        return sv_no_memory(r->err);
    c->n_stop++;
    return true;
}

READER(read_stop)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1, i;
    const json_t *x;
    if (!json_is_string(v) && !json_is_array(v))
        return sv_wrong_type(r->err, f->name, v, "a string or an array of strings");
    if (n > SV_MOST_STOPS)
        return sv_fail(r->err, 400, "invalid_value", f->name, "'stop' has %zu strings; at most %d are possible", n,
                       SV_MOST_STOPS);
    if (n > 0 && !(r->call->stop = sv_calloc(n, sizeof *r->call->stop)))
        return sv_no_memory(r->err);
    if (json_is_string(v))
        return read_one_stop(r, f->name, v);
    json_array_foreach((json_t *)v, i, x)
    {
        char at[32];
        snprintf(at, sizeof at, "stop[%zu]", i);
        if (!read_one_stop(r, at, x))
            return false;
    }
    return true;
}

READER(read_best_of) /* compared with n when all fields are read */
{
    if (!json_is_integer(v))
        return sv_wrong_type(r->err, f->name, v, "a whole number");
    return true;
}

/* ---- stream, log-probabilities --------------------------------------------------------------------------------- */

READER(read_stream_options)
{
    static const char *const MEMBERS[] = {"include_usage", "include_obfuscation"};
    const char *key;
    const json_t *x;
    if (!json_is_object(v))
        return sv_wrong_type(r->err, f->name, v, "an object");
    json_object_foreach((json_t *)v, key, x)
    {
        bool usage = strcmp(key, MEMBERS[0]) == 0;
        if (!usage && strcmp(key, MEMBERS[1]) != 0)
            return sv_unknown(r->err, f->name, key, "member of stream_options", MEMBERS, 2);
        if (json_is_null(x))
            continue;
        char at[64];
        snprintf(at, sizeof at, "stream_options.%s", key);
        if (!json_is_boolean(x))
            return sv_wrong_type(r->err, at, x, "true or false");
        if (!usage && json_is_true(x))
            return sv_fail(r->err, 400, "unsupported_value", at,
                           "'%s' must be false: this server does not pad the chunks of a stream", at);
        r->include_usage = r->include_usage || (usage && json_is_true(x));
    }
    return true;
}

READER(read_top_logprobs)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "a whole number from 0 to %d", SV_MOST_TOP_LOGPROBS);
    if (!json_is_integer(v))
        return sv_wrong_type(r->err, f->name, v, wanted);
    if (json_integer_value(v) < 0 || json_integer_value(v) > SV_MOST_TOP_LOGPROBS)
        return sv_wrong_value(r->err, f->name, v, wanted);
    r->n_top_asked = (uint32_t)json_integer_value(v);
    return true;
}

READER(read_logprob_count)
{
    if (json_is_boolean(v))
        return sv_wrong_type(r->err, f->name, v, "a whole number from 0 to 20, how many alternatives to report");
    r->call->logprobs = true;
    return read_count(r, f, v);
}

/* ---- variables of the template --------------------------------------------------------------------------------- */

READER(read_generation_prompt)
{
    if (!json_is_boolean(v))
        return sv_wrong_type(r->err, f->name, v, "true or false");
    return json_object_set(r->vars, f->name, (json_t *)v) == 0 ? true : sv_no_memory(r->err);
}

READER(read_kwargs)
{
    static const char *const OURS[] = {"messages", "add_generation_prompt", "bos_token", "eos_token"};
    const char *key;
    const json_t *x;
    if (!json_is_object(v))
        return sv_wrong_type(r->err, f->name, v, "an object of variables for the chat template");
    json_object_foreach((json_t *)v, key, x)
    {
        for (size_t i = 0; i < sizeof OURS / sizeof *OURS; i++) {
            if (strcmp(key, OURS[i]) == 0)
                return sv_fail(r->err, 400, "invalid_value", f->name, "'chat_template_kwargs' must not set '%s'%s",
                               key, i < 2 ? "; it is a field of the request" : ": that is the model's own");
        }
        if (json_object_set(r->vars, key, (json_t *)x) != 0)
            return sv_no_memory(r->err);
    }
    return true;
}

/* ---- known, and without effect on an answer -------------------------------------------------------------------- */

READER(ignore_string)
{
    return json_is_string(v) || sv_wrong_type(r->err, f->name, v, "a string");
}

READER(ignore_object)
{
    return json_is_object(v) || sv_wrong_type(r->err, f->name, v, "an object");
}

READER(ignore_bool)
{
    return json_is_boolean(v) || sv_wrong_type(r->err, f->name, v, "true or false");
}

READER(ignore_tier)
{
    return is_word(v, "auto") || is_word(v, "default") ||
           sv_wrong_value(r->err, f->name, v, "\"auto\" or \"default\": this server has one tier");
}

/* ---- refused --------------------------------------------------------------------------------------------------- */

READER(refuse)
{
    (void)v;
    return sv_fail(r->err, 400, "unsupported_parameter", f->name, "'%s' is not supported: %s", f->name, f->why);
}

READER(refuse_true)
{
    if (!json_is_boolean(v))
        return sv_wrong_type(r->err, f->name, v, "true or false");
    return json_is_false(v) || refuse(r, f, v);
}

READER(refuse_items)
{
    if (!json_is_array(v))
        return sv_wrong_type(r->err, f->name, v, "an array");
    return json_array_size(v) == 0 || refuse(r, f, v);
}

READER(refuse_choice)
{
    return is_word(v, "none") || is_word(v, "auto") || refuse(r, f, v);
}

READER(refuse_modalities)
{
    if (!json_is_array(v))
        return sv_wrong_type(r->err, f->name, v, "an array of strings");
    return (json_array_size(v) == 1 && is_word(json_array_get(v, 0), "text")) || refuse(r, f, v);
}

READER(refuse_format)
{
    static const char *const MEMBERS[] = {"type"};
    const json_t *type = json_object_get(v, "type");
    const char *key;
    const json_t *x;
    if (!json_is_object(v))
        return sv_wrong_type(r->err, f->name, v, "an object");
    if (!json_is_string(type))
        return sv_wrong_type(r->err, "response_format.type", type ? type : json_null(), "a string");
    if (!is_word(type, "text"))
        return sv_fail(r->err, 400, "unsupported_value", "response_format.type",
                       "'response_format.type' is '%.40s': structured output is not supported yet; only \"text\" is",
                       json_string_value(type));
    json_object_foreach((json_t *)v, key, x)
    {
        if (strcmp(key, "type") != 0)
            return sv_unknown(r->err, f->name, key, "member of response_format", MEMBERS, 1);
    }
    return true;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

#define AT(member)            .offset = offsetof(struct sv_call, member)
#define SAMPLING(member)      .offset = offsetof(struct sv_call, sampling.member)
#define IS(field, in, reader) .name = field, .where = in, .read = reader

static const struct sv_field FIELDS[] = {
    {IS("messages", SV_IN_CHAT, sv_read_messages)},
    {IS("prompt", SV_IN_COMPLETION, sv_read_prompt)},
    {IS("model", SV_IN_BOTH, read_model)},
    {IS("max_tokens", SV_IN_BOTH, read_max_tokens), AT(max_tokens), .hi = UINT32_MAX},
    {IS("max_completion_tokens", SV_IN_CHAT, read_max_tokens), AT(max_tokens), .hi = UINT32_MAX},
    {IS("n", SV_IN_BOTH, read_count), AT(n), .lo = 1, .hi = SV_MOST_CHOICES},
    {IS("best_of", SV_IN_COMPLETION, read_best_of)},
    {IS("stop", SV_IN_BOTH, read_stop)},
    {IS("stream", SV_IN_BOTH, read_bool), AT(stream)},
    {IS("stream_options", SV_IN_BOTH, read_stream_options)},
    {IS("echo", SV_IN_COMPLETION, read_bool), AT(echo)},
    {IS("logprobs", SV_IN_CHAT, read_bool), AT(logprobs)},
    {IS("top_logprobs", SV_IN_CHAT, read_top_logprobs)},
    {IS("logprobs", SV_IN_COMPLETION, read_logprob_count), AT(n_top), .hi = SV_MOST_TOP_LOGPROBS},
    /* sampling */
    {IS("temperature", SV_IN_BOTH, read_temperature), SAMPLING(temperature), .hi = 100},
    {IS("top_p", SV_IN_BOTH, read_top_p)},
    {IS("top_k", SV_IN_BOTH, read_top_k), SAMPLING(top_k), .hi = UINT32_MAX},
    {IS("min_p", SV_IN_BOTH, read_min_p), SAMPLING(min_p), .hi = 1},
    {IS("repetition_penalty", SV_IN_BOTH, read_number), SAMPLING(repetition_penalty), .lo = 0.001, .hi = 1000},
    {IS("presence_penalty", SV_IN_BOTH, read_number), SAMPLING(presence_penalty), .lo = -2, .hi = 2},
    {IS("frequency_penalty", SV_IN_BOTH, read_number), SAMPLING(frequency_penalty), .lo = -2, .hi = 2},
    {IS("logit_bias", SV_IN_BOTH, read_bias)},
    {IS("seed", SV_IN_BOTH, read_seed)},
    /* extensions */
    {IS("ignore_eos", SV_IN_BOTH, read_bool), AT(ignore_eos)},
    {IS("parse_special", SV_IN_COMPLETION, read_bool), AT(parse_special)},
    {IS("add_generation_prompt", SV_IN_CHAT, read_generation_prompt)},
    {IS("chat_template_kwargs", SV_IN_CHAT, read_kwargs)},
    /* without effect on an answer */
    {IS("user", SV_IN_BOTH, ignore_string)},
    {IS("safety_identifier", SV_IN_CHAT, ignore_string)},
    {IS("prompt_cache_key", SV_IN_CHAT, ignore_string)},
    {IS("prompt_cache_retention", SV_IN_CHAT, ignore_string)},
    {IS("prompt_cache_options", SV_IN_CHAT, ignore_object)},
    {IS("metadata", SV_IN_CHAT, ignore_object)},
    {IS("service_tier", SV_IN_CHAT, ignore_tier)},
    {IS("parallel_tool_calls", SV_IN_CHAT, ignore_bool)},
    /* refused, but for the values that ask for nothing */
    {IS("store", SV_IN_CHAT, refuse_true), .why = "this server stores no answers"},
    {IS("response_format", SV_IN_CHAT, refuse_format)},
    {IS("tools", SV_IN_CHAT, refuse_items), .why = "this server does not call tools yet"},
    {IS("tool_choice", SV_IN_CHAT, refuse_choice), .why = "this server does not call tools yet"},
    {IS("functions", SV_IN_CHAT, refuse_items), .why = "this server does not call functions yet"},
    {IS("function_call", SV_IN_CHAT, refuse_choice), .why = "this server does not call functions yet"},
    {IS("modalities", SV_IN_CHAT, refuse_modalities), .why = "this server writes text only, [\"text\"]"},
    {IS("audio", SV_IN_CHAT, refuse), .why = "this server writes text only"},
    {IS("prediction", SV_IN_CHAT, refuse), .why = "this server takes no predicted output"},
    {IS("web_search_options", SV_IN_CHAT, refuse), .why = "this server does not search the web"},
    {IS("reasoning_effort", SV_IN_CHAT, refuse),
     .why = "how long a model thinks is a matter of its chat template; see chat_template_kwargs"},
    {IS("verbosity", SV_IN_CHAT, refuse), .why = "ask the model for a short or a long answer in a message"},
    {IS("moderation", SV_IN_CHAT, refuse), .why = "this server does not judge texts"},
    {IS("suffix", SV_IN_COMPLETION, refuse), .why = "this server does not fill in the middle of a text"},
};
enum { N_FIELDS = sizeof FIELDS / sizeof *FIELDS };

static bool refuse_name(const struct sv_reader *r, const char *key, uint32_t where)
{
    const char *names[N_FIELDS];
    size_t n = 0;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (strcmp(FIELDS[i].name, key) == 0)
            return sv_fail(r->err, 400, "unknown_parameter", key, "'%s' is a field of %s, not of this endpoint", key,
                           where == SV_IN_CHAT ? "/v1/completions" : "/v1/chat/completions");
        if (FIELDS[i].where & where)
            names[n++] = FIELDS[i].name;
    }
    return sv_unknown(r->err, key, key, "field", names, n);
}

static bool read_one(struct sv_reader *r, const char *key, const json_t *v)
{
    uint32_t where = r->endpoint == SV_CHAT ? SV_IN_CHAT : SV_IN_COMPLETION;
    for (size_t i = 0; i < N_FIELDS; i++) {
        const struct sv_field *f = &FIELDS[i];
        if ((f->where & where) && strcmp(f->name, key) == 0)
            return json_is_null(v) || f->read(r, f, v);
    }
    return refuse_name(r, key, where);
}

bool sv_fields_read(struct sv_reader *r)
{
    const char *key;
    const json_t *v;
    json_object_foreach((json_t *)r->body, key, v)
    {
        if (!read_one(r, key, v))
            return false;
    }
    return true;
}
