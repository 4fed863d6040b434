/* The HTTP side: libmicrohttpd's daemon, which path does what, bodies in, responses out. Loop's thread only. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include "serve/job.h"

/* A path of the API. */
struct sv_route {
    const char *path;   /* with a '*' at its end: any rest */
    const char *allow;  /* methods, but for OPTIONS */
    bool open;          /* needs no key */
    const char *prefix; /* of the request's id */
    /* GET: answers. rest: what the '*' stands for. NULL = POST of an endpoint. */
    enum MHD_Result (*get)(struct sv_job *job, const char *rest);
    enum sv_endpoint endpoint;
};
const char *sv_route_id_prefix(const char *method, const char *path);
enum { SV_METHODS_BYTES = 32 };
/* "GET, HEAD", of a job with a route; with ", OPTIONS" where browsers are let in. out: [SV_METHODS_BYTES]. */
void sv_route_methods(const struct sv_job *job, char *out, size_t cap);

/* tls_cert, tls_key: PEM texts or NULL. */
bool sv_http_start(struct sv_server *s, const char *tls_cert, const char *tls_key, struct sennit_error *err);
/* No new connections. */
void sv_http_quiesce(struct sv_server *s);
/* Every job must have been resumed; all connections are closed and all jobs end. */
void sv_http_stop(struct sv_server *s);

/* ---- responses (respond.c) ------------------------------------------------------------------------------------- */

/* Queues a whole response; takes over *body and leaves it empty. */
enum MHD_Result sv_respond(struct sv_job *job, int http, const char *type, struct sv_buf *body);
/* As sv_respond with JSON, of which it takes over the reference; NULL becomes a 503. */
enum MHD_Result sv_respond_json(struct sv_job *job, int http, json_t *value);
enum MHD_Result sv_respond_error(struct sv_job *job, const struct sv_error *err);
/* Queues the head of a stream whose bytes sv_job_read gives. */
enum MHD_Result sv_respond_stream(struct sv_job *job);
enum MHD_Result sv_respond_preflight(struct sv_job *job);
bool sv_fail_shutdown(struct sv_error *err);

/* ---- pages (pages.c) ------------------------------------------------------------------------------------------- */

enum MHD_Result sv_page_health(struct sv_job *job, const char *rest);
enum MHD_Result sv_page_metrics(struct sv_job *job, const char *rest);
enum MHD_Result sv_page_models(struct sv_job *job, const char *rest);
enum MHD_Result sv_page_model(struct sv_job *job, const char *rest);

#endif
