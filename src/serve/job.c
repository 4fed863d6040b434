/* A job's life: made, filled with a body, prepared, logged, freed. What it says on the way is in stream.c. */
#include "serve/job.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "serve/alloc.h"
#include "serve/conn.h"
#include "serve/http.h"
#include "serve/prepare.h"

enum { FIRST_BODY = 4096, DISCARD_FACTOR = 16 };

static void make_id(char *out, size_t cap, const char *prefix)
{
    unsigned char raw[12] = {0};
    size_t n = (size_t)snprintf(out, cap, "%s-", prefix);
    (void)!getrandom(raw, sizeof raw, 0);
    for (size_t i = 0; i < sizeof raw && n + 2 < cap; i++, n += 2)
        snprintf(out + n, cap - n, "%02x", raw[i]);
}

static void link_job(struct sv_job *job)
{
    struct sv_server *s = job->server;
    job->next = s->jobs;
    if (s->jobs)
        s->jobs->prev = job;
    s->jobs = job;
    s->n_jobs++;
}

static void unlink_job(struct sv_job *job)
{
    struct sv_server *s = job->server;
    if (job->prev)
        job->prev->next = job->next;
    else
        s->jobs = job->next;
    if (job->next)
        job->next->prev = job->prev;
    s->n_jobs--;
}

struct sv_job *sv_job_create(struct sv_server *s, struct sv_conn *conn, struct MHD_Connection *mhd,
                             const char *method, const char *path)
{
    struct sv_job *job = sv_calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->server = s;
    job->conn = conn;
    job->mhd = mhd;
    job->state = SV_RECEIVING;
    job->created = cli_now();
    atomic_init(&job->abandoned, false);
    make_id(job->id, sizeof job->id, sv_route_id_prefix(method, path));
    snprintf(job->method, sizeof job->method, "%s", method);
    snprintf(job->path, sizeof job->path, "%s", path);
    snprintf(job->client, sizeof job->client, "%s", conn ? conn->client : "-");
    if (conn)
        conn->job = job;
    link_job(job);
    return job;
}

/* ---- body ------------------------------------------------------------------------------------------------------ */

static void release_body(struct sv_job *job)
{
    job->server->body_bytes -= job->body_cap;
    sv_free(job->body);
    job->body = NULL;
    job->n_body = job->body_cap = 0;
}

static bool refuse_body(struct sv_job *job)
{
    struct sv_error err;
    sv_fail(&err, 413, "request_too_large", NULL,
            "the request's body is larger than %llu bytes, which is the most that this server reads (--max-body)",
            (unsigned long long)job->server->options->max_body);
    release_body(job);
    sv_job_fail(job, &err);
    return job->n_seen <= DISCARD_FACTOR * job->server->options->max_body;
}

/* Room for n more bytes, charged to the server's bound. */
static bool reserve_body(struct sv_job *job, size_t n)
{
    struct sv_server *s = job->server;
    size_t need = job->n_body + n, cap = job->body_cap ? job->body_cap * 2 : FIRST_BODY;
    if (need <= job->body_cap)
        return true;
    if (cap > s->options->max_body)
        cap = (size_t)s->options->max_body;
    if (cap < need)
        cap = need;
    if (s->body_bytes - job->body_cap + cap > s->options->body_memory)
        cap = need;
    if (s->body_bytes - job->body_cap + cap > s->options->body_memory)
        return false;
    char *body = sv_realloc(job->body, cap);
    if (!body)
        return false;
    s->body_bytes += cap - job->body_cap;
    job->body = body;
    job->body_cap = cap;
    return true;
}

bool sv_job_take_body(struct sv_job *job, const char *data, size_t n_bytes)
{
    uint64_t most = job->server->options->max_body;
    job->n_seen += n_bytes;
    if (job->n_seen > DISCARD_FACTOR * most)
        return false;
    if (job->failed || job->route->get)
        return true; /* read to its end, so that the client reads the answer, and forgotten */
    if (job->n_seen > most)
        return refuse_body(job);
    if (!reserve_body(job, n_bytes)) {
        struct sv_error err;
        sv_fail(&err, 503, "body_memory_full", NULL,
                "the server holds as many request bodies as it may (--body-memory); try again");
        err.retry_after = 1;
        release_body(job);
        sv_job_fail(job, &err);
        return true;
    }
    memcpy(job->body + job->n_body, data, n_bytes);
    job->n_body += n_bytes;
    return true;
}

/* ---- preparation ----------------------------------------------------------------------------------------------- */

static bool may_prepare(struct sv_job *job, struct sv_error *err)
{
    struct sv_server *s = job->server;
    if (s->phase != SV_OPEN)
        return sv_fail_shutdown(err);
    if (s->engine_failed)
        return sv_fail(err, 503, "engine_failed", NULL, "the engine failed: %s", s->failure.message);
    if (s->n_preparing >= s->options->queue) {
        sv_fail(err, 429, "queue_full", NULL, "%u requests are waiting, and no more may (--queue); try again",
                s->n_preparing);
        err->retry_after = 1;
        return false;
    }
    return true;
}

void sv_job_prepare(struct sv_job *job)
{
    struct sv_error err;
    job->received = job->spoke = cli_now();
    if (!may_prepare(job, &err)) {
        sv_job_fail(job, &err);
        return;
    }
    job->state = SV_PREPARING;
    job->server->n_preparing++;
    sv_prepare_push(job->server->prepare, job);
}

void sv_job_prepared(struct sv_job *job)
{
    job->server->n_preparing--;
    job->state = SV_RUNNING;
    release_body(job);
    if (!job->mhd) {
        sv_job_detach(job, false);
        return;
    }
    if (job->gone)
        return; /* resumed already; libmicrohttpd is about to let go */
    if (job->failed_late)
        sv_job_fail(job, &job->late);
    if (job->failed) {
        job->state = SV_ANSWERING;
        sv_job_resume(job);
        return;
    }
    sv_job_poll(job);
}

/* ---- end ------------------------------------------------------------------------------------------------------- */

static void free_job(struct sv_job *job)
{
    unlink_job(job);
    release_body(job);
    for (uint32_t i = 0; i < job->n_choices; i++)
        sennit_request_free(job->choices[i].request);
    sv_free(job->choices);
    sv_call_release(&job->call);
    sv_answer_free(job->answer);
    sv_buf_release(&job->out);
    sv_free(job->prompt_text);
    sv_free(job);
}

static double since(double from, double to)
{
    return from > 0 && to > 0 ? to - from : -1;
}

static const char *finish_word(const struct sv_job *job, bool whole)
{
    if (job->failed)
        return job->http >= 500 || job->state == SV_STREAMING ? "error" : "refused";
    if (!whole)
        return "hangup";
    return job->finish ? job->finish : "ok";
}

static void log_job(const struct sv_job *job, bool whole, double now)
{
    const struct sv_log_line line = {
        .id = job->id,
        .method = job->method,
        .path = job->path,
        .client = job->client,
        .http = job->http,
        .finish = finish_word(job, whole),
        .message = job->failed ? job->error.message : NULL,
        .usage = job->answer ? sv_answer_usage(job->answer) : (struct sv_usage){0},
        .n_choices = job->n_choices,
        .stream = job->stream,
        .queue_s = since(job->received, job->admitted),
        .first_token_s = since(job->received, job->first_token),
        .total_s = now - job->created,
        .prompt = job->prompt_text,
        .n_prompt = job->n_prompt_text,
    };
    sv_log_request(&job->server->log, &line);
}

static void count_job(const struct sv_job *job, bool whole, double now)
{
    struct sv_metrics *m = job->server->metrics;
    if (!whole && job->received > 0 && !job->failed)
        sv_metrics_hangup(m);
    if (job->admitted > 0)
        sv_metrics_queue(m, job->admitted - job->received);
    if (job->first_token > 0)
        sv_metrics_first_token(m, job->first_token - job->received);
    if (!whole || job->failed || !job->answer)
        return;
    struct sv_usage usage = sv_answer_usage(job->answer);
    uint64_t per_choice = usage.n_completion / job->n_choices;
    sv_metrics_request(m, now - job->received, usage);
    if (per_choice > 1)
        sv_metrics_per_token(m, (job->last_token - job->first_token) / (double)(per_choice - 1));
}

void sv_job_detach(struct sv_job *job, bool whole)
{
    double now = cli_now();
    whole = whole || job->said_all; /* clients close at `data: [DONE]`, before the encoding has ended */
    if (job->mhd) {
        if (job->state == SV_STREAMING)
            job->server->n_streams--;
        sv_conn_job_done(job->conn, now);
        job->mhd = NULL;
        job->conn = NULL;
        job->ended = now;
    }
    if (job->state == SV_PREPARING) {
        atomic_store(&job->abandoned, true);
        return; /* sv_job_prepared comes back here */
    }
    count_job(job, whole, job->ended);
    log_job(job, whole, job->ended);
    free_job(job);
}
