/* What a job says: events out of the engine, bytes into the connection, errors in between. */
#include "serve/job.h"

#include <string.h>
#include <sys/socket.h>

#include "serve/conn.h"
#include "serve/http.h"

/* ---- errors ---------------------------------------------------------------------------------------------------- */

static void cancel_all(struct sv_job *job)
{
    for (uint32_t i = 0; i < job->n_choices; i++)
        if (job->choices[i].request && !job->choices[i].ended)
            sennit_request_cancel(job->choices[i].request);
}

void sv_job_resume(struct sv_job *job)
{
    if (!job->suspended || !job->mhd)
        return;
    job->suspended = false;
    MHD_resume_connection(job->mhd);
}

void sv_job_fail(struct sv_job *job, const struct sv_error *err)
{
    if (job->state == SV_PREPARING) {
        if (!job->failed_late)
            job->late = *err;
        job->failed_late = true;
        atomic_store(&job->abandoned, true);
        return;
    }
    if (job->failed || job->finished)
        return;
    job->failed = true;
    if (err != &job->error)
        job->error = *err;
    cancel_all(job);
    if (job->state == SV_STREAMING) {
        sv_answer_break(job->answer, err, &job->out);
        job->finished = true;
        sv_job_resume(job);
    } else if (job->state == SV_RUNNING) {
        job->state = SV_ANSWERING;
        sv_job_resume(job);
    }
}

void sv_job_hang_up(struct sv_job *job)
{
    if (job->gone || !job->mhd)
        return;
    job->gone = true;
    atomic_store(&job->abandoned, true);
    if (job->state != SV_PREPARING)
        cancel_all(job);
    sv_conn_shut(job->conn);
    sv_job_resume(job);
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static void event_failed(struct sv_job *job, const struct sennit_event *ev)
{
    struct sv_error err;
    struct sennit_load load = {0};
    sennit_engine_load(job->server->facts.engine, &load);
    if (ev->finish == SENNIT_FINISH_CANCELLED)
        sv_fail(&err, 503, "cancelled", NULL, "the request was cancelled");
    else if (load.failed)
        sv_fail(&err, 500, "engine_failed", NULL, "the engine failed: %s", load.failure.message);
    else
        sv_fail_status(&err, &ev->error, NULL);
    sv_job_fail(job, &err);
}

static void memory_failed(struct sv_job *job)
{
    struct sv_error err;
    sv_fail(&err, 503, "no_memory", NULL, "the server has no memory left for this answer; try again");
    err.retry_after = 1;
    sv_job_fail(job, &err);
}

static void note_event(struct sv_job *job, struct sv_choice *c, const struct sennit_event *ev)
{
    double when = (double)ev->time_ns * 1e-9; /* the clock of cli_now */
    if (ev->kind == SENNIT_EVENT_START) {
        c->started = true;
        if (job->admitted <= 0)
            job->admitted = when;
    } else if (ev->kind == SENNIT_EVENT_TOKEN) {
        if (job->first_token <= 0)
            job->first_token = when;
        job->last_token = when;
    } else if (ev->kind == SENNIT_EVENT_END) {
        c->ended = true;
        job->n_ended++;
        if (!job->finish)
            job->finish = sennit_finish_name(ev->finish);
    }
}

/* Takes one event of a choice. False when there is none, or the job failed over it. */
static bool take_event(struct sv_job *job, uint32_t i)
{
    struct sv_choice *c = &job->choices[i];
    struct sennit_event ev;
    if (c->ended)
        return false;
    if (sennit_request_next_event(c->request, &ev, 0, NULL) != SENNIT_OK) {
        memory_failed(job);
        return false;
    }
    if (ev.kind == SENNIT_EVENT_NONE)
        return false;
    note_event(job, c, &ev);
    if (ev.kind == SENNIT_EVENT_END && ev.finish != SENNIT_FINISH_STOP && ev.finish != SENNIT_FINISH_LENGTH) {
        event_failed(job, &ev);
        return false;
    }
    /* A stream begins with its first token, not with its admission: until then an error has an HTTP status. */
    if (ev.kind != SENNIT_EVENT_START)
        sv_answer_event(job->answer, i, &ev, job->stream ? &job->out : NULL);
    return true;
}

static size_t n_unread(const struct sv_job *job)
{
    return job->out.n_bytes - job->n_out_read;
}

/* Moves events into the answer, one of each choice in turn, until there are none or a stream has enough to send.
 * Afterwards the job has failed, or is finished, or waits for the engine. */
static void pump(struct sv_job *job)
{
    uint32_t idle = 0;
    while (!job->failed && !job->finished && idle < job->n_choices && n_unread(job) < SV_OUT_BYTES) {
        uint32_t i = job->next_choice;
        job->next_choice = (i + 1) % job->n_choices;
        idle = take_event(job, i) ? 0 : idle + 1;
    }
    if (job->failed || job->finished)
        return;
    if (job->n_ended == job->n_choices) {
        sv_answer_finish(job->answer, &job->out);
        job->finished = true;
    }
    if (job->out.failed || sv_answer_failed(job->answer)) {
        job->finished = false;
        memory_failed(job);
    }
}

/* Headers may go out: nothing that can still happen needs another status. */
static bool head_due(const struct sv_job *job)
{
    return job->finished || n_unread(job) > 0 || job->first_token > 0;
}

static void begin_stream(struct sv_job *job)
{
    job->state = SV_STREAMING;
    job->server->n_streams++;
    sv_job_resume(job);
}

static bool anything_ready(const struct sv_job *job)
{
    for (uint32_t i = 0; i < job->n_choices; i++) {
        struct sennit_request_state state;
        if (job->choices[i].ended)
            continue;
        sennit_request_poll(job->choices[i].request, &state);
        if (state.n_ready > 0)
            return true;
    }
    return false;
}

void sv_job_poll(struct sv_job *job)
{
    if (job->gone || (job->state != SV_RUNNING && job->state != SV_STREAMING) || job->failed || !job->suspended)
        return;
    if (!anything_ready(job))
        return;
    if (job->state == SV_STREAMING) {
        sv_job_resume(job);
        return;
    }
    pump(job);
    if (job->failed || job->state != SV_RUNNING)
        return;
    if (job->stream && head_due(job)) {
        begin_stream(job);
    } else if (!job->stream && job->finished) {
        job->state = SV_ANSWERING;
        sv_job_resume(job);
    }
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

ssize_t sv_job_read(struct sv_job *job, char *buf, size_t max)
{
    if (job->gone)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n_unread(job) == 0)
        pump(job);
    size_t n = n_unread(job);
    if (job->out.failed)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (n == 0 && job->finished) { /* asked for only when all before it was sent */
        job->said_all = true;
        return MHD_CONTENT_READER_END_OF_STREAM;
    }
    if (n == 0) {
        job->suspended = true;
        MHD_suspend_connection(job->mhd);
        return 0;
    }
    if (n > max)
        n = max;
    memcpy(buf, job->out.data + job->n_out_read, n);
    job->n_out_read += n;
    job->spoke = cli_now();
    if (n_unread(job) == 0)
        job->out.n_bytes = job->n_out_read = 0;
    return (ssize_t)n;
}

/* A proxy between here and the client closes connections on which it sees nothing. */
static void sign_of_life(struct sv_job *job, double now)
{
    if (!job->stream || !job->suspended || now - job->spoke < SV_WAITING_S)
        return;
    job->spoke = now;
    sv_buf_puts(&job->out, ": waiting\n\n");
    if (job->state == SV_RUNNING)
        begin_stream(job);
    else
        sv_job_resume(job);
}

void sv_job_tick(struct sv_job *job, double now)
{
    uint32_t limit = job->server->options->answer_timeout;
    if (job->received <= 0 || job->gone || (job->state != SV_PREPARING && (job->failed || job->finished)))
        return;
    if (limit && now - job->received > limit) {
        struct sv_error err;
        sv_fail(&err, 504, "answer_timeout", NULL,
                "the answer took longer than %u seconds, which is the limit of this server (--answer-timeout)",
                limit);
        sv_job_fail(job, &err);
        return;
    }
    if (job->state == SV_RUNNING || job->state == SV_STREAMING)
        sign_of_life(job, now);
}
