#include "serve/calls.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_MS = 120000 };

json_t *bodyf(const char *fmt, ...)
{
    char text[8192], *quoted = strdup(fmt);
    for (char *p = quoted; (p = strchr(p, '\'')) != NULL;)
        *p = '"';
    va_list args;
    va_start(args, fmt);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int n = vsnprintf(text, sizeof text, quoted, args);
#pragma GCC diagnostic pop
    va_end(args);
    CHECK(n > 0 && (size_t)n < sizeof text, "a body of %d bytes", n);
    json_error_t err;
    json_t *body = json_loads(text, JSON_ALLOW_NUL, &err);
    CHECK(body, "%s in %s", err.text, text);
    free(quoted);
    return body;
}

json_t *with(json_t *body, const char *name, json_t *value)
{
    CHECK(value && json_object_set_new(body, name, value) == 0, "cannot set %s", name);
    return body;
}

json_t *with_text(json_t *body, const char *name, const char *text)
{
    return with(body, name, json_string(text));
}

json_t *json_of(const char *text, size_t n)
{
    char *copy = malloc(n + 1);
    CHECK(copy, "no memory");
    memcpy(copy, n ? text : "", n);
    for (size_t i = 0; i + 5 < n; i++)
        if (copy[i] == '\\') {
            if (memcmp(copy + i, "\\u0000", 6) == 0)
                copy[i + 2] = '2', copy[i + 3] = '4';
            i++;
        }
    json_t *value = json_loadb(copy, n, JSON_REJECT_DUPLICATES, NULL);
    free(copy);
    return value;
}

/* ---- shapes ---------------------------------------------------------------------------------------------------- */

static const char *text_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_string(value) ? json_string_value(value) : NULL;
}

json_t *error_of(const char *body, size_t n, json_t **root)
{
    *root = json_of(body, n);
    CHECK(*root, "an error's body is not JSON: %.*s", (int)n, body ? body : "");
    json_t *error = json_object_get(*root, "error");
    CHECK(text_of(error, "message") && *text_of(error, "message") && text_of(error, "type"),
          "an error without message or type: %.*s", (int)n, body);
    const json_t *param = json_object_get(error, "param"), *code = json_object_get(error, "code");
    CHECK(param && (json_is_null(param) || json_is_string(param)), "param is wrong: %.*s", (int)n, body);
    CHECK(code && (json_is_null(code) || json_is_string(code)), "code is wrong: %.*s", (int)n, body);
    return error;
}

/* Joins part's arrays (at any depth of objects) behind those of *whole. */
static void join_logprobs(json_t *whole, json_t *part)
{
    const char *name;
    json_t *value;
    json_object_foreach(part, name, value)
    {
        json_t *have = json_object_get(whole, name);
        if (json_is_array(value) && json_is_array(have))
            json_array_extend(have, value);
        else if (!have || json_is_null(have))
            json_object_set_new(whole, name, json_deep_copy(value));
    }
}

/* The choice of this index, made when it is the first to come. */
static json_t *choice_at(struct answer *a, size_t index)
{
    CHECK(index < 1024, "choice %zu", index);
    while (json_array_size(a->choices) <= index)
        json_array_append_new(a->choices, json_pack("{s:i, s:s, s:n, s:n}", "index", (int)json_array_size(a->choices),
                                                    "text", "", "finish_reason", "logprobs"));
    return json_array_get(a->choices, index);
}

static void add_text(json_t *to, const char *text)
{
    const char *old = text_of(to, "text");
    size_t n = strlen(old) + strlen(text) + 1;
    char *joined = malloc(n);
    CHECK(joined, "no memory");
    snprintf(joined, n, "%s%s", old, text);
    json_object_set_new(to, "text", json_string(joined));
    free(joined);
}

static void add_choice(struct answer *a, json_t *from, bool chat, bool stream)
{
    const json_t *index = json_object_get(from, "index"), *message = from;
    CHECK(json_is_integer(index), "a choice without index");
    json_t *to = choice_at(a, (size_t)json_integer_value(index));
    CHECK(json_is_null(json_object_get(to, "finish_reason")), "choice %lld goes on after its end",
          json_integer_value(index));
    if (chat) {
        message = json_object_get(from, stream ? "delta" : "message");
        CHECK(json_is_object(message), "a choice without %s", stream ? "delta" : "message");
        const char *role = text_of(message, "role");
        CHECK(role ? strcmp(role, "assistant") == 0 : stream, "the role is %s", role ? role : "absent");
    }
    const char *text = text_of(message, chat ? "content" : "text");
    CHECK(text || (chat && stream), "a choice without text");
    if (text && *text) {
        add_text(to, text);
        a->n_events++;
    }
    json_t *logprobs = json_object_get(from, "logprobs"), *have = json_object_get(to, "logprobs");
    if (json_is_object(logprobs) && json_is_object(have))
        join_logprobs(have, logprobs);
    else if (json_is_object(logprobs))
        json_object_set_new(to, "logprobs", json_deep_copy(logprobs));
    const char *finish = text_of(from, "finish_reason");
    CHECK(finish || stream, "a whole answer without finish_reason");
    if (finish)
        json_object_set_new(to, "finish_reason", json_string(finish));
}

static void add_usage(struct answer *a, const json_t *usage)
{
    const json_t *prompt = json_object_get(usage, "prompt_tokens"),
                 *completion = json_object_get(usage, "completion_tokens"),
                 *total = json_object_get(usage, "total_tokens");
    CHECK(json_is_integer(prompt) && json_is_integer(completion) && json_is_integer(total), "usage is incomplete");
    CHECK(!a->has_usage, "usage twice");
    CHECK(json_integer_value(prompt) + json_integer_value(completion) == json_integer_value(total),
          "total_tokens is not the sum");
    a->has_usage = true;
    a->n_prompt = (uint64_t)json_integer_value(prompt);
    a->n_completion = (uint64_t)json_integer_value(completion);
}

/* A whole answer, or a chunk of a stream. */
static void add_object(struct answer *a, json_t *object, bool stream)
{
    const char *kind = text_of(object, "object"), *id = text_of(object, "id"), *model = text_of(object, "model"),
               *print = text_of(object, "system_fingerprint");
    CHECK(kind && id && model && print && json_is_integer(json_object_get(object, "created")),
          "object, id, model, system_fingerprint or created is absent");
    bool chat = strncmp(kind, "chat.completion", 15) == 0;
    CHECK(strcmp(kind, chat ? (stream ? "chat.completion.chunk" : "chat.completion") : "text_completion") == 0,
          "object is %s", kind);
    CHECK(!a->id[0] || strcmp(a->id, id) == 0, "id %s in a stream of %s", id, a->id);
    snprintf(a->id, sizeof a->id, "%s", id);
    snprintf(a->model, sizeof a->model, "%s", model);
    snprintf(a->fingerprint, sizeof a->fingerprint, "%s", print);
    const json_t *seed = json_object_get(object, "seed");
    if (json_is_integer(seed))
        a->seed = json_integer_value(seed);
    json_t *choices = json_object_get(object, "choices"), *usage = json_object_get(object, "usage"), *choice;
    CHECK(json_is_array(choices), "choices is absent");
    size_t i;
    json_array_foreach(choices, i, choice)
    {
        CHECK(!a->has_usage, "choices after the usage");
        add_choice(a, choice, chat, stream);
    }
    if (json_is_object(usage)) {
        CHECK(!stream || json_array_size(choices) == 0, "usage together with choices");
        add_usage(a, usage);
    } else {
        CHECK(stream && json_array_size(choices) > 0, "neither usage nor choices");
    }
}

static void read_stream(struct http_conn *c, struct http_response *r, struct answer *a)
{
    bool done = false;
    for (;;) {
        a->result = http_read_event(c, r, ANSWER_MS);
        if (a->result == HTTP_END && (done || a->error)) {
            a->result = HTTP_OK;
            return;
        }
        CHECK(a->result != HTTP_END, "a stream that ends without [DONE]");
        if (a->result != HTTP_OK)
            return;
        CHECK(!done && !a->error, "an event after the last: %s", r->event);
        if (strcmp(r->event, "[DONE]") == 0) {
            done = true;
            continue;
        }
        json_t *object = json_of(r->event, strlen(r->event));
        CHECK(object, "a chunk is not JSON: %s", r->event);
        if (json_object_get(object, "error")) {
            json_t *root;
            a->error = json_incref(error_of(r->event, strlen(r->event), &root));
            json_decref(root);
        } else {
            add_object(a, object, true);
        }
        json_decref(object);
    }
}

/* ---- asking ---------------------------------------------------------------------------------------------------- */

static void begin(const struct server *s, struct http_conn *c, const char *headers, json_t *body)
{
    const char *path = json_object_get(body, "messages") ? "/v1/chat/completions" : "/v1/completions";
    char *text = json_dumps(body, JSON_COMPACT);
    CHECK(text, "cannot write the body");
    CHECK(http_connect(c, s->port), "cannot connect");
    http_request(c, "POST", path, headers, text, strlen(text));
    free(text);
}

void ask_begin(const struct server *s, struct http_conn *c, json_t *body)
{
    begin(s, c, "", body);
    json_decref(body);
}

void read_answer(struct http_conn *c, bool stream, struct answer *a)
{
    struct http_response r = {0};
    char type[64];
    *a = (struct answer){.seed = -1, .choices = json_array()};
    a->result = http_read_head(c, &r, ANSWER_MS);
    a->http = r.status;
    if (a->result == HTTP_OK) {
        http_header(&r, "Retry-After", a->retry_after, sizeof a->retry_after);
        CHECK(http_header(&r, "Content-Type", type, sizeof type), "no content type:\n%s", r.head);
        bool is_stream = strncmp(type, "text/event-stream", 17) == 0;
        CHECK(is_stream ? stream && r.status == 200 : strncmp(type, "application/json", 16) == 0,
              "status %d with type %s", r.status, type);
        CHECK(!stream || is_stream || r.status != 200, "not a stream");
        if (is_stream)
            read_stream(c, &r, a);
        else if ((a->result = http_read_body(c, &r, ANSWER_MS)) == HTTP_OK) {
            json_t *root;
            if (r.status != 200) {
                a->error = json_incref(error_of(r.body, r.n_body, &root));
            } else {
                root = json_of(r.body, r.n_body);
                CHECK(root, "not JSON: %s", r.body);
                add_object(a, root, false);
            }
            json_decref(root);
        }
    }
    a->choices_text = json_dumps(a->choices, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    http_response_free(&r);
}

void ask_with(const struct server *s, const char *headers, json_t *body, struct answer *a)
{
    struct http_conn c;
    bool stream = json_is_true(json_object_get(body, "stream"));
    begin(s, &c, headers, body);
    json_decref(body);
    read_answer(&c, stream, a);
    http_close(&c);
}

void ask(const struct server *s, json_t *body, struct answer *a)
{
    ask_with(s, "", body, a);
}

void answer_free(struct answer *a)
{
    json_decref(a->error);
    json_decref(a->choices);
    free(a->choices_text);
    *a = (struct answer){0};
}

const char *answer_text(const struct answer *a, size_t choice)
{
    const char *text = text_of(json_array_get(a->choices, choice), "text");
    CHECK(text, "status %d, no choice %zu: %s", a->http, choice,
          a->error ? json_string_value(json_object_get(a->error, "message")) : "");
    return text;
}

const char *answer_finish(const struct answer *a, size_t choice)
{
    const char *finish = text_of(json_array_get(a->choices, choice), "finish_reason");
    return finish ? finish : "none";
}

size_t answer_n_logprobs(const struct answer *a, size_t choice)
{
    const json_t *l = json_object_get(json_array_get(a->choices, choice), "logprobs");
    const json_t *content = json_object_get(l, "content");
    return json_array_size(content ? content : json_object_get(l, "tokens"));
}

/* "stop" names "stop" and its parts, "stop[1]" and "stop.x". */
static bool names(const char *param, const char *got)
{
    size_t n = strlen(param);
    return got && strncmp(got, param, n) == 0 && (got[n] == '\0' || got[n] == '.' || got[n] == '[');
}

void expect_refusal(const struct server *s, json_t *body, int http, const char *param, const char *message)
{
    struct answer a;
    char *text = json_dumps(body, JSON_COMPACT);
    ask(s, body, &a);
    CHECK(a.http == http && a.error, "status %d instead of %d for %.300s", a.http, http, text);
    const char *got = text_of(a.error, "param"), *said = text_of(a.error, "message");
    CHECK(!param || names(param, got), "param is %s instead of %s (%s) for %.300s", got ? got : "null", param, said,
          text);
    CHECK(!message || strstr(said, message), "'%s' is not in '%s' for %.300s", message, said, text);
    free(text);
    answer_free(&a);
}
