/* The daemon and its callbacks. Facts about libmicrohttpd 0.9.75 that this file relies on:
 *  - the access handler is called with the headers, with each piece of the body, with the end of the body, and again
 *    after a resume as long as no response was queued;
 *  - a response can be queued in the first of these calls (the rest of the request is then dropped and the connection
 *    closed after it) or once the body is whole, not in between;
 *  - MHD_NO closes the connection; the completed callback comes for every request of which the handler was told;
 *  - suspended connections are not watched and do not time out. */
#include "serve/http.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "serve/conn.h"

static const struct sv_route routes[] = {
    {"/v1/chat/completions", "POST", false, "chatcmpl", NULL, SV_CHAT},
    {"/v1/completions", "POST", false, "cmpl", NULL, SV_COMPLETION},
    {"/v1/models", "GET, HEAD", false, "req", sv_page_models, SV_CHAT},
    {"/v1/models/*", "GET, HEAD", false, "req", sv_page_model, SV_CHAT},
    {"/health", "GET, HEAD", true, "req", sv_page_health, SV_CHAT},
    {"/metrics", "GET, HEAD", false, "req", sv_page_metrics, SV_CHAT},
};

static const struct sv_route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        const char *p = routes[i].path;
        size_t n = strlen(p) - 1;
        if (p[n] == '*' ? strncmp(path, p, n) == 0 && path[n] : strcmp(path, p) == 0)
            return &routes[i];
    }
    return NULL;
}

const char *sv_route_id_prefix(const char *method, const char *path)
{
    const struct sv_route *r = find_route(path);
    return r && strcmp(method, "POST") == 0 ? r->prefix : "req";
}

void sv_route_methods(const struct sv_job *job, char *out, size_t cap)
{
    snprintf(out, cap, "%s%s", job->route->allow, job->server->options->cors_origin ? ", OPTIONS" : "");
}

/* ---- the first call -------------------------------------------------------------------------------------------- */

static bool is_get(const char *method)
{
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}

/* Without keys everybody on this machine may ask, but not a page from elsewhere through somebody's browser. */
static bool check_page(const struct sv_job *job, struct sv_error *err)
{
    const struct sv_server *s = job->server;
    const char *host = MHD_lookup_connection_value(job->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    const char *origin = MHD_lookup_connection_value(job->mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    if (s->keys || s->options->no_auth)
        return true;
    if (s->loopback && !sv_host_is_local(host))
        return sv_fail(err, 403, "host_not_allowed", NULL,
                       "this server was asked by the name '%s', and answers to localhost, 127.0.0.1 and [::1] alone "
                       "as long as it has no keys; to serve other names start it with --api-key-file, or --no-auth",
                       host);
    if (!sv_origin_may(origin, host, s->options->cors_origin))
        return sv_fail(err, 403, "origin_not_allowed", NULL,
                       "pages of %s may not use this server; start it with --cors-origin to let them", origin);
    return true;
}

/* May this request be handled at all? */
static bool admit(const struct sv_job *job, struct sv_error *err)
{
    const struct sv_server *s = job->server;
    const char *auth = MHD_lookup_connection_value(job->mhd, MHD_HEADER_KIND, "Authorization");
    bool open = job->route && job->route->open;
    if (s->keys && !open && !sv_keys_match(s->keys, auth))
        return sv_fail(err, 401, auth ? "invalid_api_key" : "missing_api_key", NULL,
                       auth ? "the API key is not one of this server's"
                            : "this server asks for an API key: send the header 'Authorization: Bearer KEY'");
    if (!open && !check_page(job, err))
        return false;
    if (!job->route)
        return sv_fail(err, 404, "not_found", NULL,
                       "there is no %s here; this server has POST /v1/chat/completions, POST /v1/completions, "
                       "GET /v1/models, GET /v1/models/ID, GET /health and GET /metrics",
                       job->path);
    if (job->route->get ? !is_get(job->method) : strcmp(job->method, "POST") != 0) {
        char methods[SV_METHODS_BYTES];
        sv_route_methods(job, methods, sizeof methods);
        return sv_fail(err, 405, "method_not_allowed", NULL, "%s does not take %s; it takes %s", job->path,
                       job->method, methods);
    }
    if (s->phase != SV_OPEN && !open)
        return sv_fail_shutdown(err);
    return true;
}

struct framing {
    unsigned n_lengths, n_codings, n_hosts;
    bool chunked, odd;
};

/* libmicrohttpd 0.9 joins the second line of a folded header to the header's name: "Content-Le: 5", " ngth" becomes a
 * length, and a real one is lost. It cuts a line in place, so what was one line has its value right behind its name;
 * a name that was joined lies elsewhere. */
static bool was_one_line(const char *name, const char *value)
{
    uintptr_t from = (uintptr_t)name + strlen(name) + 1, to = (uintptr_t)value;
    if (strncmp(MHD_get_version(), "0.9.", 4) != 0)
        return true;
    if (to < from || to - from > 1 << 20)
        return false;
    for (const char *p = name + strlen(name) + 1; p < value; p++)
        if (*p != ' ' && *p != '\t')
            return false;
    return true;
}

static enum MHD_Result look_at_framing(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    struct framing *f = cls;
    (void)kind;
    f->odd = f->odd || strpbrk(name, " \t") || !value || strchr(value, '\r') || !was_one_line(name, value);
    if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0)
        f->n_hosts++;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0)
        f->n_lengths++;
    if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        f->n_codings++;
        f->chunked = value && strcasecmp(value, "chunked") == 0;
    }
    return MHD_YES;
}

/* Where does the body end? What a proxy before this server may read in another way is refused: the rest of the body
 * would be the next request to one of them, and libmicrohttpd takes the first length of several, the coding where
 * both are given, and waits for ever with a coding that it does not know. */
static bool check_framing(struct MHD_Connection *mhd, struct sv_error *err)
{
    struct framing f = {0};
    MHD_get_connection_values(mhd, MHD_HEADER_KIND, look_at_framing, &f);
    if (f.odd || f.n_hosts > 1)
        return sv_fail(
            err, 400, "invalid_framing", NULL,
            "the headers can be read in two ways: one is folded into several lines, has a blank before its "
            "colon or a carriage return in it, or there are two of Host");
    if (f.n_codings && (f.n_codings > 1 || !f.chunked))
        return sv_fail(err, 400, "invalid_framing", NULL,
                       "'chunked' is the only Transfer-Encoding that is read here");
    if (f.n_lengths + f.n_codings > 1)
        return sv_fail(err, 400, "invalid_framing", NULL,
                       "the request says more than once how long its body is (Content-Length, Transfer-Encoding)");
    return true;
}

static uint64_t content_length(struct MHD_Connection *mhd)
{
    const char *text = MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    return text ? strtoull(text, NULL, 10) : 0;
}

/* An answer to the headers alone makes libmicrohttpd close the connection, and a client that is still sending would
 * lose it. So it is for clients that wait before they send a body, and for bodies that are not worth reading; all
 * others are answered when their request is whole. */
static bool answer_now(struct MHD_Connection *mhd, uint64_t max_body)
{
    return MHD_lookup_connection_value(mhd, MHD_HEADER_KIND, MHD_HTTP_HEADER_EXPECT) ||
           content_length(mhd) / 16 > max_body;
}

static bool is_preflight(const struct sv_job *job)
{
    return job->server->options->cors_origin && job->route && strcmp(job->method, "OPTIONS") == 0;
}

static enum MHD_Result begin(struct sv_job *job)
{
    const struct sv_server *s = job->server;
    struct sv_error err;
    if (!check_framing(job->mhd, &err))
        return sv_respond_error(job, &err);
    bool ok = is_preflight(job) || admit(job, &err);
    if (ok && content_length(job->mhd) > s->options->max_body)
        ok = sv_fail(&err, 413, "request_too_large", NULL,
                     "the request's body has %llu bytes; this server reads at most %llu (--max-body)",
                     (unsigned long long)content_length(job->mhd), (unsigned long long)s->options->max_body);
    if (ok) {
        job->endpoint = job->route->endpoint;
        return MHD_YES;
    }
    if (answer_now(job->mhd, s->options->max_body))
        return sv_respond_error(job, &err);
    sv_job_fail(job, &err);
    return MHD_YES;
}

static struct sv_conn *conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* ---- later calls ----------------------------------------------------------------------------------------------- */

static enum MHD_Result answer(struct sv_job *job)
{
    if (job->failed)
        return sv_respond_error(job, &job->error);
    return sv_respond(job, 200, "application/json", &job->out);
}

static enum MHD_Result wait_for_resume(struct sv_job *job)
{
    job->suspended = true;
    MHD_suspend_connection(job->mhd);
    return MHD_YES;
}

static enum MHD_Result body_whole(struct sv_job *job, const char *url)
{
    sv_conn_asked(job->conn);
    if (job->failed)
        return answer(job);
    if (is_preflight(job))
        return sv_respond_preflight(job);
    if (job->route->get)
        return job->route->get(job, url + strcspn(job->route->path, "*"));
    if (job->conn && job->conn->peer_ended)
        return MHD_NO;
    sv_job_prepare(job);
    return job->state == SV_PREPARING ? wait_for_resume(job) : answer(job); /* `failed` is not the loop's by now */
}

static enum MHD_Result go_on(struct sv_job *job, const char *url)
{
    if (job->gone)
        return MHD_NO;
    switch (job->state) {
    case SV_RECEIVING:
        return body_whole(job, url);
    case SV_PREPARING:
    case SV_RUNNING:
        return wait_for_resume(job);
    case SV_STREAMING:
        return sv_respond_stream(job);
    case SV_ANSWERING:
        return answer(job);
    }
    return MHD_NO;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mhd, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n_data, void **con_cls)
{
    struct sv_server *s = cls;
    struct sv_job *job = *con_cls;
    (void)version;
    if (!job) {
        job = sv_job_create(s, conn_of(mhd), mhd, method, url);
        if (!job)
            return MHD_queue_response(mhd, 503, s->no_memory);
        *con_cls = job;
        job->route = find_route(url);
        return begin(job);
    }
    if (*n_data > 0) {
        size_t n = *n_data;
        *n_data = 0;
        return sv_job_take_body(job, data, n) ? MHD_YES : MHD_NO;
    }
    return go_on(job, url);
}

static void on_completed(void *cls, struct MHD_Connection *mhd, void **con_cls, enum MHD_RequestTerminationCode why)
{
    struct sv_job *job = *con_cls;
    (void)cls;
    (void)mhd;
    *con_cls = NULL;
    if (job)
        sv_job_detach(job, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
}

static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *context = sv_conn_open(cls, mhd);
        return;
    }
    sv_conn_close(*context);
    *context = NULL;
}

static void *on_request_line(void *cls, const char *uri, struct MHD_Connection *mhd)
{
    (void)cls;
    (void)uri;
    sv_conn_asks(conn_of(mhd));
    return NULL;
}

/* A path with a NUL would end there: it stays as it was written, and is not found. */
static size_t unescape(void *cls, struct MHD_Connection *mhd, char *text)
{
    (void)cls;
    (void)mhd;
    return strstr(text, "%00") ? strlen(text) : MHD_http_unescape(text);
}

/* ---- the daemon ------------------------------------------------------------------------------------------------ */

/* libmicrohttpd reports every broken connection; only what it says while it starts is worth a line. */
static void on_daemon_log(void *cls, const char *fmt, va_list args)
{
    struct sv_server *s = cls;
    char text[512];
    int n = vsnprintf(text, sizeof text, fmt, args);
    while (n > 0 && n < (int)sizeof text && text[n - 1] == '\n')
        text[--n] = '\0';
    if (s->logging_daemon || s->options->engine.verbose)
        sv_log_message(&s->log, s->logging_daemon ? SENNIT_LOG_ERROR : SENNIT_LOG_DEBUG, "http: %s", text);
}

static bool make_no_memory(struct sv_server *s)
{
    static const char text[] = "{\"error\": {\"message\": \"the server has no memory left; try again\", \"type\": "
                               "\"service_unavailable_error\", \"param\": null, \"code\": \"no_memory\"}}\n";
    s->no_memory = MHD_create_response_from_buffer(sizeof text - 1, (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
    return s->no_memory && MHD_add_response_header(s->no_memory, "Content-Type", "application/json") == MHD_YES &&
           MHD_add_response_header(s->no_memory, "Retry-After", "1") == MHD_YES;
}

static struct MHD_Daemon *start_daemon(struct sv_server *s, const char *cert, const char *key)
{
    const struct sv_options *o = s->options;
    const bool tls = cert != NULL;
    unsigned flags = MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG | (tls ? MHD_USE_TLS : 0u);
    struct MHD_OptionItem with_tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)key},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER, on_daemon_log, s,
                            MHD_OPTION_LISTEN_SOCKET, s->listen_fd, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)o->max_header + (8 << 10), MHD_OPTION_CONNECTION_LIMIT, o->max_connections,
                            MHD_OPTION_CONNECTION_TIMEOUT, o->idle_timeout, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
                            s, MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_URI_LOG_CALLBACK,
                            on_request_line, s, MHD_OPTION_UNESCAPE_CALLBACK, unescape, NULL,
                            MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_ARRAY,
                            tls ? with_tls : plain, MHD_OPTION_END);
}

bool sv_http_start(struct sv_server *s, const char *cert, const char *key, struct sennit_error *err)
{
    const char *why = "the HTTP library could not start";
    *err = (struct sennit_error){.code = SENNIT_IO};
    if (cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES) {
        why = "the HTTP library of this machine was built without TLS";
    } else if (make_no_memory(s)) {
        s->logging_daemon = true;
        s->daemon = start_daemon(s, cert, key);
        s->logging_daemon = false;
        if (!s->daemon && cert) {
            err->code = SENNIT_FORMAT;
            why = "the HTTP library could not start; are --tls-cert and --tls-key PEM files that belong together?";
        }
    }
    if (!s->daemon)
        snprintf(err->message, sizeof err->message, "%s", why);
    return s->daemon != NULL;
}

void sv_http_quiesce(struct sv_server *s)
{
    if (!s->daemon || s->listen_fd < 0)
        return;
    MHD_quiesce_daemon(s->daemon);
    close(s->listen_fd);
    s->listen_fd = -1;
}

void sv_http_stop(struct sv_server *s)
{
    if (s->daemon) {
        MHD_stop_daemon(s->daemon); /* closes the socket that it listens on */
        s->listen_fd = -1;
    }
    s->daemon = NULL;
    if (s->no_memory)
        MHD_destroy_response(s->no_memory);
    s->no_memory = NULL;
}
