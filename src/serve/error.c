/* Errors as clients see them. */
#include "serve/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "serve/answer.h"
#include "serve/text.h"

static const char *type_of(int http)
{
    switch (http) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 429:
        return "rate_limit_error";
    case 503:
        return "service_unavailable_error";
    default:
        return http >= 500 ? "server_error" : "invalid_request_error";
    }
}

/* Makes text[n] valid UTF-8 in place: a wrong byte becomes '?', a character that was cut off goes. NUL-terminated. */
static void mend(char *text, size_t n)
{
    size_t len;
    for (size_t i = 0; i < n; i += len) {
        enum sv_utf8 kind = sv_utf8_step(text + i, n - i, &len);
        if (kind == SV_UTF8_BAD)
            memset(text + i, '?', len);
        if (kind == SV_UTF8_SHORT)
            text[i] = '\0';
    }
}

/* As mend, for a text that had no room for all of itself: its end becomes "...". */
static void mend_cut(char *text, size_t size)
{
    size_t n = size - 4;
    text[n] = '\0';
    mend(text, n);
    n = strlen(text);
    memcpy(text + n, "...", 4);
}

bool sv_fail(struct sv_error *err, int http, const char *code, const char *param, const char *fmt, ...)
{
    va_list args;
    *err = (struct sv_error){.http = http, .type = type_of(http), .code = code};
    if (param) {
        int n = snprintf(err->param, sizeof err->param, "%s", param);
        if (n >= (int)sizeof err->param)
            mend_cut(err->param, sizeof err->param);
        else
            mend(err->param, strlen(err->param));
    }
    va_start(args, fmt);
    int n = vsnprintf(err->message, sizeof err->message, fmt, args);
    va_end(args);
    if (n >= (int)sizeof err->message)
        mend_cut(err->message, sizeof err->message);
    else
        mend(err->message, strlen(err->message));
    return false;
}

bool sv_fail_status(struct sv_error *err, const struct sennit_error *from, const char *param)
{
    switch (from->code) {
    case SENNIT_RANGE:
        return sv_fail(err, 400, "context_length_exceeded", param, "%s", from->message);
    case SENNIT_INVALID:
    case SENNIT_FORMAT:
        return sv_fail(err, 400, "invalid_value", param, "%s", from->message);
    case SENNIT_UNSUPPORTED:
        return sv_fail(err, 400, "unsupported_value", param, "%s", from->message);
    case SENNIT_TOO_BIG:
        return sv_fail(err, 400, "cache_budget_exceeded", param, "%s", from->message);
    case SENNIT_BUSY:
        sv_fail(err, 429, "queue_full", param, "%s", from->message);
        err->retry_after = 1;
        return false;
    case SENNIT_NOMEM:
        sv_fail(err, 503, "no_memory", param, "%s", from->message);
        err->retry_after = 1;
        return false;
    default:
        return sv_fail(err, 500, "internal_error", param, "%s", from->message);
    }
}

json_t *sv_error_json(const struct sv_error *err)
{
    return json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", err->message, "type",
                     err->type ? err->type : type_of(err->http), "param", err->param[0] ? err->param : NULL, "code",
                     err->code);
}

static void add_member(struct sv_buf *out, const char *name, const char *value)
{
    sv_buf_puts(out, name);
    if (value && value[0])
        sv_buf_json_string(out, value, strlen(value));
    else
        sv_buf_puts(out, "null");
}

void sv_error_write(const struct sv_error *err, struct sv_buf *out)
{
    sv_buf_puts(out, "{\"error\":{\"message\":");
    sv_buf_json_string(out, err->message, strlen(err->message));
    add_member(out, ",\"type\":", err->type ? err->type : type_of(err->http));
    add_member(out, ",\"param\":", err->param);
    add_member(out, ",\"code\":", err->code);
    sv_buf_puts(out, "}}");
}
