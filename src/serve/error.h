/* What a client is told when something is wrong: one struct, one JSON shape (OpenAI's error object). */
#ifndef SERVE_ERROR_H
#define SERVE_ERROR_H

#include <jansson.h>

#include "sennit/sennit.h"

struct sv_error {
    int http;             /* 400 ... 599 */
    const char *type;   /* "invalid_request_error", "authentication_error", "permission_error", "not_found_error",
                           "rate_limit_error", "server_error", "service_unavailable_error"; borrowed for ever */
    const char *code;     /* "context_length_exceeded", "model_not_found" ...; NULL = null */
    char param[64];       /* the field that is wrong; "" = null */
    char message[768];    /* UTF-8, complete, says what to do */
    uint32_t retry_after; /* seconds for the Retry-After header; 0 = none */
};

/* Fills *err and returns false, so that `return sv_fail(...)` reads as one thought. The type follows from http. */
bool sv_fail(struct sv_error *err, int http, const char *code, const char *param, const char *fmt, ...)
    SENNIT_PRINTF(5, 6);
/* As sv_fail, from the library's error: the status decides the HTTP status (RANGE, INVALID, FORMAT, UNSUPPORTED,
 * TOO_BIG 400; BUSY 429; NOMEM 503; others 500). */
bool sv_fail_status(struct sv_error *err, const struct sennit_error *from, const char *param);
/* {"error": {"message", "type", "param", "code"}}; a new reference, or NULL without memory. */
json_t *sv_error_json(const struct sv_error *err);
/* The same as text, appended. To be preferred: json_dumps leaves bytes out when it gets no memory, and does not say
 * so. */
struct sv_buf; /* serve/answer.h */
void sv_error_write(const struct sv_error *err, struct sv_buf *out);

#endif
