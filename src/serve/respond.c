/* Responses: status, headers, body. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/alloc.h"
#include "serve/http.h"

bool sv_fail_shutdown(struct sv_error *err)
{
    return sv_fail(err, 503, "shutting_down", NULL, "the server is shutting down");
}

static enum sv_refusal refusal_of(const struct sv_error *err)
{
    const char *code = err->code ? err->code : "";
    if (strcmp(code, "context_length_exceeded") == 0)
        return SV_REFUSED_CONTEXT;
    if (strcmp(code, "cache_budget_exceeded") == 0)
        return SV_REFUSED_BUDGET;
    if (strcmp(code, "shutting_down") == 0)
        return SV_REFUSED_SHUTDOWN;
    switch (err->http) {
    case 401:
    case 403:
        return SV_REFUSED_AUTH;
    case 404:
    case 405:
        return SV_REFUSED_NOT_FOUND;
    case 413:
        return SV_REFUSED_TOO_LARGE;
    case 429:
        return SV_REFUSED_QUEUE_FULL;
    case 503:
        return strcmp(code, "engine_failed") == 0 ? SV_REFUSED_ENGINE : SV_REFUSED_MEMORY;
    default:
        return err->http >= 500 ? SV_REFUSED_ENGINE : SV_REFUSED_BAD_REQUEST;
    }
}

static void add_cors(const struct sv_server *s, struct MHD_Response *r)
{
    const char *origin = s->options->cors_origin;
    if (!origin)
        return;
    MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
    MHD_add_response_header(r, "Access-Control-Expose-Headers", "x-request-id, retry-after");
    if (strcmp(origin, "*") != 0)
        MHD_add_response_header(r, "Vary", "Origin");
}

/* What is said when not even a response can be made. */
static enum MHD_Result queue_no_memory(struct sv_job *job)
{
    if (!job->failed)
        sv_fail(&job->error, 503, "no_memory", NULL, "the server has no memory left for this answer");
    job->failed = true;
    job->http = 503;
    sv_metrics_http(job->server->metrics, 503);
    return MHD_queue_response(job->mhd, 503, job->server->no_memory);
}

/* Queues r and lets go of it; r may be NULL for want of memory. */
static enum MHD_Result queue(struct sv_job *job, int http, const char *type, struct MHD_Response *r)
{
    struct sv_server *s = job->server;
    if (!r)
        return queue_no_memory(job);
    if (type)
        MHD_add_response_header(r, "Content-Type", type);
    MHD_add_response_header(r, "x-request-id", job->id);
    add_cors(s, r);
    if (s->phase != SV_OPEN)
        MHD_add_response_header(r, "Connection", "close");
    enum MHD_Result result = MHD_queue_response(job->mhd, (unsigned)http, r);
    MHD_destroy_response(r);
    if (result == MHD_YES) {
        job->http = http;
        sv_metrics_http(s->metrics, http);
    }
    return result;
}

static struct MHD_Response *from_buf(struct sv_buf *body)
{
    struct MHD_Response *r = NULL;
    if (!body->failed && body->n_bytes == 0)
        r = MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    else if (!body->failed)
        r = MHD_create_response_from_buffer_with_free_callback(body->n_bytes, body->data, sv_free);
    if (r && body->n_bytes > 0)
        *body = (struct sv_buf){0};
    else
        sv_buf_release(body);
    return r;
}

enum MHD_Result sv_respond(struct sv_job *job, int http, const char *type, struct sv_buf *body)
{
    return queue(job, http, type, from_buf(body));
}

static void add_json(struct sv_buf *b, json_t *value)
{
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    if (text) {
        sv_buf_puts(b, text);
        sv_buf_puts(b, "\n");
    } else {
        b->failed = true;
    }
    free(text);
    json_decref(value);
}

enum MHD_Result sv_respond_json(struct sv_job *job, int http, json_t *value)
{
    struct sv_buf b = {0};
    add_json(&b, value);
    return sv_respond(job, http, "application/json", &b);
}

enum MHD_Result sv_respond_error(struct sv_job *job, const struct sv_error *err)
{
    struct sv_buf b = {0};
    char seconds[16], methods[SV_METHODS_BYTES];
    job->failed = true;
    if (err != &job->error)
        job->error = *err;
    sv_metrics_refused(job->server->metrics, refusal_of(err));
    sv_error_write(err, &b);
    sv_buf_puts(&b, "\n");
    struct MHD_Response *r = from_buf(&b);
    snprintf(seconds, sizeof seconds, "%u", err->retry_after);
    if (r && err->retry_after)
        MHD_add_response_header(r, "Retry-After", seconds);
    if (r && err->http == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (r && err->http == 405 && job->route) {
        sv_route_methods(job, methods, sizeof methods);
        MHD_add_response_header(r, "Allow", methods);
    }
    return queue(job, err->http, "application/json", r);
}

static ssize_t read_job(void *cls, uint64_t pos, char *buf, size_t max)
{
    (void)pos;
    return sv_job_read(cls, buf, max);
}

enum MHD_Result sv_respond_stream(struct sv_job *job)
{
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16 << 10, read_job, job, NULL);
    if (r) {
        MHD_add_response_header(r, "Cache-Control", "no-cache");
        MHD_add_response_header(r, "X-Accel-Buffering", "no");
    }
    return queue(job, 200, "text/event-stream", r);
}

enum MHD_Result sv_respond_preflight(struct sv_job *job)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    if (r) {
        char methods[SV_METHODS_BYTES];
        sv_route_methods(job, methods, sizeof methods);
        MHD_add_response_header(r, "Access-Control-Allow-Methods", methods);
        MHD_add_response_header(r, "Access-Control-Allow-Headers", "authorization, content-type");
        MHD_add_response_header(r, "Access-Control-Max-Age", "600");
    }
    return queue(job, 204, NULL, r);
}
