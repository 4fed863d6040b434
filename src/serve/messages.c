/* A conversation, checked and brought into the one form that chat templates expect: every message has a role and a
 * content that is a string; a tool call's arguments are an object. Nothing is added that did not come from the
 * client, so all of it stays plain text to the template. */
#include <stdio.h>
#include <string.h>

#include "serve/answer.h"
#include "serve/fields.h"
#include "serve/json.h"

/* One message while it is read. `at` is its path, for errors: "messages[3]". */
struct message {
    struct sv_reader *r;
    char at[32];
    const char *role;
    const json_t *in;
    json_t *out;
};

static bool bad(const struct message *m, const char *member, const json_t *v, bool type, const char *wanted)
{
    char at[160];
    snprintf(at, sizeof at, "%s.%s", m->at, member);
    return type ? sv_wrong_type(m->r->err, at, v, wanted) : sv_wrong_value(m->r->err, at, v, wanted);
}

/* Takes `v`. */
static bool put(const struct message *m, json_t *to, const char *key, json_t *v)
{
    return json_object_set_new(to, key, v) == 0 ? true : sv_no_memory(m->r->err);
}

static bool put_text(const struct message *m, const char *key, const json_t *v)
{
    return put(m, m->out, key, json_stringn(json_string_value(v), json_string_length(v)));
}

/* ---- role ------------------------------------------------------------------------------------------------------ */

static bool read_role(struct message *m)
{
    static const char *const ROLES[] = {"system", "developer", "user", "assistant", "tool", "function"};
    const json_t *v = json_object_get(m->in, "role");
    char at[64];
    snprintf(at, sizeof at, "%s.role", m->at);
    if (!v)
        return sv_fail(m->r->err, 400, "missing_required_parameter", at, "'%s' is missing", at);
    for (size_t i = 0; json_is_string(v) && i < sizeof ROLES / sizeof *ROLES; i++) {
        if (json_string_length(v) == strlen(ROLES[i]) && strcmp(json_string_value(v), ROLES[i]) == 0)
            m->role = ROLES[i];
    }
    if (!m->role)
        return bad(m, "role", v, !json_is_string(v), "system, developer, user, assistant, tool or function");
    if (strcmp(m->role, "developer") == 0 && !m->r->developer_role)
        m->role = "system";
    return put(m, m->out, "role", json_string(m->role));
}

/* ---- content --------------------------------------------------------------------------------------------------- */

/* The text of content[i] is appended to *text. */
static bool read_part(const struct message *m, const json_t *part, size_t i, struct sv_buf *text)
{
    static const char *const MEMBERS[] = {"type", "text", "prompt_cache_breakpoint"};
    char at[96];
    const char *key, *name = json_string_value(json_object_get(part, "type"));
    const json_t *v;
    snprintf(at, sizeof at, "content[%zu]", i);
    if (!json_is_object(part))
        return bad(m, at, part, true, "an object such as {\"type\": \"text\", \"text\": \"...\"}");
    bool refusal = name && strcmp(name, "refusal") == 0 && strcmp(m->role, "assistant") == 0;
    snprintf(at, sizeof at, "%s.content[%zu].type", m->at, i);
    if (!name || (strcmp(name, "text") != 0 && !refusal))
        return sv_fail(
            m->r->err, 400, "unsupported_value", at,
            "'%s' is '%.60s'; this server reads text only, so parts must be {\"type\": \"text\", \"text\": "
            "\"...\"}",
            at, name ? name : "not a string");
    name = refusal ? "refusal" : "text";
    v = json_object_get(part, name);
    snprintf(at, sizeof at, "content[%zu].%s", i, name);
    if (!json_is_string(v))
        return bad(m, at, v ? v : json_null(), true, "a string");
    json_object_foreach((json_t *)part, key, v)
    {
        snprintf(at, sizeof at, "%s.content[%zu]", m->at, i);
        bool known = strcmp(key, "type") == 0 || strcmp(key, name) == 0;
        if (!known && strcmp(key, MEMBERS[2]) != 0) /* a hint about speed, like the field prompt_cache_options */
            return sv_unknown(m->r->err, at, key, "member of a content part", MEMBERS, 3);
    }
    v = json_object_get(part, name);
    sv_buf_add(text, json_string_value(v), json_string_length(v));
    return true;
}

static bool read_parts(struct message *m, const json_t *parts)
{
    struct sv_buf text = {0};
    const json_t *part;
    size_t i;
    bool ok = true;
    json_array_foreach((json_t *)parts, i, part)
    {
        if (ok)
            ok = read_part(m, part, i, &text);
    }
    if (ok && text.failed)
        ok = sv_no_memory(m->r->err);
    if (ok)
        ok = put(m, m->out, "content", json_stringn(text.data ? text.data : "", text.n_bytes));
    sv_buf_release(&text);
    return ok;
}

static bool read_content(struct message *m)
{
    const json_t *v = json_object_get(m->in, "content");
    bool none = !v || json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0);
    if (none && strcmp(m->role, "assistant") == 0)
        return put(m, m->out, "content", json_string(""));
    if (!v) {
        char at[64];
        snprintf(at, sizeof at, "%s.content", m->at);
        return sv_fail(m->r->err, 400, "missing_required_parameter", at,
                       "'%s' is missing; only an assistant's message may be without content", at);
    }
    if (none)
        return bad(m, "content", v, !json_is_array(v), "a string or a list of text parts");
    if (json_is_string(v))
        return put_text(m, "content", v);
    if (json_is_array(v))
        return read_parts(m, v);
    return bad(m, "content", v, true, "a string or a list of text parts");
}

/* ---- tool calls ------------------------------------------------------------------------------------------------ */

static bool read_arguments(const struct message *m, const char *at, const json_t *v, json_t **out)
{
    struct sv_json_problem problem;
    char full[96];
    snprintf(full, sizeof full, "%s.%s", m->at, at);
    if (!json_is_string(v))
        return bad(m, at, v ? v : json_null(), true, "a string that holds a JSON object");
    *out = sv_json_read(json_string_value(v), json_string_length(v), SV_MOST_ARGUMENT_DEPTH, &problem);
    if (!*out && problem.no_memory)
        return sv_no_memory(m->r->err);
    if (!*out)
        return sv_fail(m->r->err, 400, "invalid_value", full,
                       "'%s' must be a string that holds a JSON object; it is not JSON: %s", full, problem.text);
    if (json_is_object(*out))
        return true;
    json_decref(*out);
    *out = NULL;
    return bad(m, at, v, false, "a string that holds a JSON object (no other JSON value)");
}

static bool only_members(const struct message *m, const char *at, const json_t *v, const char *const *known, size_t n)
{
    const char *key;
    const json_t *x;
    json_object_foreach((json_t *)v, key, x)
    {
        bool found = false;
        for (size_t i = 0; i < n; i++)
            found = found || strcmp(key, known[i]) == 0;
        if (!found) {
            char full[96];
            snprintf(full, sizeof full, "%s.%s", m->at, at);
            return sv_unknown(m->r->err, full, key, "member", known, n);
        }
    }
    return true;
}

/* {"name", "arguments"} of tool call j; what is made of it is owned by the caller. */
static bool read_function(const struct message *m, size_t j, const json_t *f, json_t **out)
{
    static const char *const MEMBERS[] = {"name", "arguments"};
    char at[64];
    json_t *arguments;
    snprintf(at, sizeof at, "tool_calls[%zu].function", j);
    if (!json_is_object(f))
        return bad(m, at, f ? f : json_null(), true, "an object with name and arguments");
    if (!only_members(m, at, f, MEMBERS, 2))
        return false;
    const json_t *name = json_object_get(f, "name");
    snprintf(at, sizeof at, "tool_calls[%zu].function.name", j);
    if (!json_is_string(name))
        return bad(m, at, name ? name : json_null(), true, "a string");
    snprintf(at, sizeof at, "tool_calls[%zu].function.arguments", j);
    if (!read_arguments(m, at, json_object_get(f, "arguments"), &arguments))
        return false;
    *out = json_pack("{s:O, s:o}", "name", name, "arguments", arguments);
    return *out ? true : sv_no_memory(m->r->err);
}

static bool read_call(const struct message *m, size_t j, const json_t *call, json_t *list)
{
    static const char *const MEMBERS[] = {"id", "type", "function"};
    char at[64];
    json_t *function = NULL, *out;
    snprintf(at, sizeof at, "tool_calls[%zu]", j);
    if (!json_is_object(call))
        return bad(m, at, call, true, "an object with id, type and function");
    if (!only_members(m, at, call, MEMBERS, 3))
        return false;
    const json_t *id = json_object_get(call, "id"), *type = json_object_get(call, "type");
    snprintf(at, sizeof at, "tool_calls[%zu].id", j);
    if (!json_is_string(id))
        return bad(m, at, id ? id : json_null(), true, "a string");
    snprintf(at, sizeof at, "tool_calls[%zu].type", j);
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "function") != 0))
        return bad(m, at, type, !json_is_string(type), "\"function\"");
    if (!read_function(m, j, json_object_get(call, "function"), &function))
        return false;
    out = json_pack("{s:O, s:s, s:o}", "id", id, "type", "function", "function", function);
    return json_array_append_new(list, out) == 0 ? true : sv_no_memory(m->r->err);
}

static bool read_tool_calls(struct message *m, const json_t *v)
{
    const json_t *call;
    size_t j;
    if (!json_is_array(v))
        return bad(m, "tool_calls", v, true, "an array of tool calls");
    json_t *list = json_array();
    if (!put(m, m->out, "tool_calls", list))
        return false;
    json_array_foreach((json_t *)v, j, call)
    {
        if (!read_call(m, j, call, list))
            return false;
    }
    return true;
}

/* ---- the message ----------------------------------------------------------------------------------------------- */

static bool read_text_member(struct message *m, const char *key, const json_t *v)
{
    return json_is_string(v) ? put_text(m, key, v) : bad(m, key, v, true, "a string or null");
}

static bool empty(const json_t *v)
{
    return json_is_null(v) || (json_is_array(v) && json_array_size(v) == 0);
}

static bool read_member(struct message *m, const char *key, const json_t *v)
{
    static const char *const MEMBERS[] = {"role",        "content",           "name",    "tool_call_id",
                                          "tool_calls",  "reasoning_content", "refusal", "audio",
                                          "annotations", "function_call"};
    enum { N_TEXTS = 4 };
    static const char *const TEXTS[N_TEXTS] = {"name", "tool_call_id", "reasoning_content", "refusal"};
    if (strcmp(key, "role") == 0 || strcmp(key, "content") == 0)
        return true;
    for (size_t i = 0; i < N_TEXTS; i++) {
        if (strcmp(key, TEXTS[i]) == 0)
            return json_is_null(v) || read_text_member(m, key, v);
    }
    if (strcmp(key, "tool_calls") == 0)
        return json_is_null(v) || read_tool_calls(m, v);
    /* Clients that send an answer's message back carry these along, empty. */
    for (size_t i = 7; i < sizeof MEMBERS / sizeof *MEMBERS; i++) {
        if (strcmp(key, MEMBERS[i]) == 0)
            return empty(v) || bad(m, key, v, false, "null or absent: this server reads text and tool_calls only");
    }
    return sv_unknown(m->r->err, m->at, key, "member of a message", MEMBERS, 7);
}

static bool read_message(struct sv_reader *r, size_t i, const json_t *v, json_t *list)
{
    struct message m = {.r = r, .in = v};
    const char *key;
    const json_t *member;
    snprintf(m.at, sizeof m.at, "messages[%zu]", i);
    if (!json_is_object(v))
        return sv_wrong_type(r->err, m.at, v, "an object with role and content");
    m.out = json_object();
    if (json_array_append_new(list, m.out) != 0)
        return sv_no_memory(r->err);
    if (!read_role(&m) || !read_content(&m))
        return false;
    json_object_foreach((json_t *)v, key, member)
    {
        if (!read_member(&m, key, member))
            return false;
    }
    return true;
}

bool sv_read_messages(struct sv_reader *r, const struct sv_field *f, const json_t *v)
{
    const json_t *message;
    size_t i;
    if (!json_is_array(v))
        return sv_wrong_type(r->err, f->name, v, "an array of messages");
    if (json_array_size(v) == 0)
        return sv_wrong_value(r->err, f->name, v, "an array with at least one message");
    json_t *list = json_array();
    if (json_object_set_new(r->vars, "messages", list) != 0)
        return sv_no_memory(r->err);
    json_array_foreach((json_t *)v, i, message)
    {
        if (!read_message(r, i, message, list))
            return false;
    }
    return true;
}
