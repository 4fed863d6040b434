/* What can be read: health, metrics, models. */
#include <string.h>

#include "serve/http.h"

static const char *sickness(const struct sv_server *s, const struct sennit_load *load)
{
    if (load->failed || s->engine_failed)
        return load->failed ? load->failure.message : s->failure.message;
    if (!load->has_thread)
        return "the engine's thread has ended";
    if (load->ms_in_step > (uint64_t)s->options->stall_timeout * 1000)
        return "the engine has work and has not finished a step for longer than --stall-timeout";
    if (s->phase != SV_OPEN)
        return "the server is shutting down";
    return NULL;
}

enum MHD_Result sv_page_health(struct sv_job *job, const char *rest)
{
    struct sennit_load load = {0};
    (void)rest;
    sennit_engine_load(job->server->facts.engine, &load);
    const char *why = sickness(job->server, &load);
    if (why)
        return sv_respond_json(job, 503, json_pack("{s:s, s:s}", "status", "unavailable", "reason", why));
    return sv_respond_json(job, 200, json_pack("{s:s}", "status", "ok"));
}

enum MHD_Result sv_page_metrics(struct sv_job *job, const char *rest)
{
    struct sv_server *s = job->server;
    struct sennit_load load = {0};
    struct sv_buf b = {0};
    (void)rest;
    sennit_engine_load(s->facts.engine, &load);
    const struct sv_gauges gauges = {
        .n_connections = s->n_conns,
        .n_jobs = s->n_jobs,
        .n_streams = s->n_streams,
        .body_bytes = s->body_bytes,
        .body_limit = s->options->body_memory,
        .healthy = sickness(s, &load) == NULL,
    };
    sv_metrics_write(s->metrics, &load, &gauges, &b);
    return sv_respond(job, 200, "text/plain; version=0.0.4; charset=utf-8", &b);
}

static json_t *model_json(const struct sv_facts *f)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:I, s:i, s:b}", "id", f->alias, "object", "model", "created",
                     (json_int_t)f->created, "owned_by", "sennit", "context_length",
                     (json_int_t)f->info->context_length, "vocabulary", (int)f->info->n_vocab, "chat_template",
                     f->info->chat_template != NULL);
}

enum MHD_Result sv_page_models(struct sv_job *job, const char *rest)
{
    (void)rest;
    return sv_respond_json(job, 200,
                           json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(&job->server->facts)));
}

enum MHD_Result sv_page_model(struct sv_job *job, const char *rest)
{
    const struct sv_facts *f = &job->server->facts;
    struct sv_error err;
    if (strcmp(rest, f->alias) == 0 || (f->info->name[0] && strcmp(rest, f->info->name) == 0))
        return sv_respond_json(job, 200, model_json(f));
    sv_fail(&err, 404, "model_not_found", "model", "there is no model '%.200s' here; this server runs '%s'", rest,
            f->alias);
    return sv_respond_error(job, &err);
}
