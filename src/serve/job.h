/* A job: one HTTP request, from its headers to the last byte of its answer.
 *
 *          headers read: sv_job_create
 *                      |
 *                  RECEIVING -------------- refused, or an endpoint without a body ----------+
 *                      | body whole: sv_job_prepare                                          |
 *                  PREPARING  belongs to the preparation thread                              |
 *                      | handed back: sv_job_prepared                                        |
 *                      +----------------------- refused -------------------------------------+
 *                  RUNNING    the engine has its requests; no header was sent                |
 *                      |                                                                     |
 *          +-----------+---- all choices ended (not streamed), or an error: sv_job_poll -----+
 *          | first token, or ten seconds (streamed)                                          |
 *      STREAMING  headers are out; sv_job_read feeds the connection                      ANSWERING
 *          |                                                                                 |
 *          +------------------ request completed: sv_job_detach -> sv_job_free --------------+
 *
 * Invariants:
 *  1. Only the loop's thread touches a job. In PREPARING call, answer, requests, prompt_text and error belong to the
 *     preparation thread, body is read-only, and the loop may touch the other fields; `abandoned` is for both.
 *  2. `suspended` says what libmicrohttpd thinks; it is set where the connection is suspended and cleared by
 *     sv_job_resume alone.
 *  3. A job is freed when its connection is done with it (mhd == NULL) and it is not in PREPARING.
 *  4. Events of a stream stay in the engine's requests until the connection can take them: out holds at most
 *     SV_OUT_BYTES and one event more.
 *  5. A job with an error has no running requests: sv_job_fail cancels them. */
#ifndef SERVE_JOB_H
#define SERVE_JOB_H

#include <stdatomic.h>

#include "serve/server.h"

enum { SV_OUT_BYTES = 64 << 10 };
enum { SV_WAITING_S = 10 }; /* a stream that has nothing to say says so this often */

enum sv_job_state { SV_RECEIVING, SV_PREPARING, SV_RUNNING, SV_STREAMING, SV_ANSWERING };

struct sv_route;

struct sv_choice {
    struct sennit_request *request;
    bool started, ended;
};

struct sv_job {
    struct sv_server *server;
    struct sv_job *next, *prev; /* server->jobs */
    struct sv_job *queued;      /* preparation's lists */
    struct sv_conn *conn;
    struct MHD_Connection *mhd; /* NULL = the connection is done with the job */
    const struct sv_route *route;
    enum sv_job_state state;
    bool suspended;
    bool gone;             /* the client hung up */
    atomic_bool abandoned; /* the preparation need not go on */

    char id[40]; /* "chatcmpl-...", "cmpl-...", "req-..." */
    char method[16], path[128], client[64];

    char *body;
    size_t n_body, body_cap;
    uint64_t n_seen; /* bytes of body that came, kept or not */

    enum sv_endpoint endpoint;
    struct sv_call call; /* released when the preparation ends */
    bool stream;
    struct sv_answer *answer;
    struct sv_choice *choices;
    uint32_t n_choices, n_ended, next_choice;
    char *prompt_text; /* for the log */
    size_t n_prompt_text;

    bool failed;
    struct sv_error error;
    bool failed_late; /* in PREPARING: what the loop has to say once the job is back */
    struct sv_error late;
    struct sv_buf out; /* a stream's bytes that were not taken yet, or a whole answer */
    size_t n_out_read;
    bool finished;      /* out holds the last bytes */
    bool said_all;      /* a stream's last byte was sent, if not yet the end of the chunked encoding after it */
    int http;           /* status that was sent, 0 = none */
    const char *finish; /* for the log */

    /* cli_now(); 0 = not yet */
    double created, received, admitted, first_token, last_token, ended, spoke;
};

/* NULL without memory. */
struct sv_job *sv_job_create(struct sv_server *s, struct sv_conn *conn, struct MHD_Connection *mhd,
                             const char *method, const char *path);
/* Takes bytes of the body. False: too many, close the connection. */
bool sv_job_take_body(struct sv_job *job, const char *data, size_t n_bytes);
/* Body whole: hands the job to the preparation, or fails it (queue full, draining, engine failed). The caller
 * suspends the connection when the job is in PREPARING afterwards. */
void sv_job_prepare(struct sv_job *job);
/* The preparation gave the job back. May free it. */
void sv_job_prepared(struct sv_job *job);
/* Looks whether the job can go on, in RUNNING and STREAMING; resumes its connection if so. */
void sv_job_poll(struct sv_job *job);
/* The next bytes of a stream: as MHD_ContentReaderCallback. */
ssize_t sv_job_read(struct sv_job *job, char *buf, size_t max);
/* Ends the job with an error: an HTTP answer, or the break of a stream. Nothing when it has one already. In PREPARING
 * the job is only abandoned, and fails when it is handed back. */
void sv_job_fail(struct sv_job *job, const struct sv_error *err);
/* The client is gone: cancels, and lets libmicrohttpd close the connection. */
void sv_job_hang_up(struct sv_job *job);
void sv_job_resume(struct sv_job *job);
/* The connection is done with the job. Frees it unless the preparation has it. whole: everything was sent. */
void sv_job_detach(struct sv_job *job, bool whole);
/* Once in a while: time limits, and a sign of life for streams. */
void sv_job_tick(struct sv_job *job, double now);

#endif
