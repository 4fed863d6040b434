/* The server's one struct: what its parts share.
 *
 * Three kinds of threads: the engine's own; the loop (the main thread, "sn-net"), which runs all HTTP code, so that
 * nothing there needs a lock; and the preparation thread ("sn-prepare"), which reads bodies, renders templates,
 * tokenizes and submits, so that a long prompt does not hold up the streams of others.
 *
 *     network  <->  libmicrohttpd  <->  loop  --jobs-->  preparation  --submit-->  engine
 *                                        ^  <--jobs--        |                       |
 *                                        +---- eventfd ------+------- eventfd -------+
 *
 * struct sv_facts does not change while the server runs and may be read by any thread; everything else in
 * struct sv_server belongs to the loop's thread. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include <microhttpd.h>

#include "serve/auth.h"
#include "serve/log.h"
#include "serve/metrics.h"
#include "serve/options.h"

struct sv_facts {
    const struct sennit_model *model; /* all borrowed */
    const struct sennit_model_info *info;
    const struct sennit_tokenizer *tokenizer;
    struct sennit_engine *engine;
    char alias[256];
    char fingerprint[96]; /* system_fingerprint */
    int64_t created;      /* when the server started, seconds since 1970 */
    bool developer_role;  /* the template knows the role "developer" */
    bool keep_prompts;    /* for the log */
    uint32_t queue, max_tokens;
    size_t longest_token; /* bytes; 0 = not known */
};

enum sv_phase {
    SV_OPEN,
    SV_DRAINING, /* no new requests; running ones finish until leave_at */
    SV_LEAVING   /* everything was cancelled; last bytes go out until leave_at */
};

struct sv_job;
struct sv_conn;
struct sv_prepare;

struct sv_server {
    const struct sv_options *options;
    struct sv_facts facts;
    struct sv_keys *keys; /* NULL = no keys are asked for */
    bool loopback;        /* only programs on this machine reach it */
    struct sv_metrics *metrics;
    struct sv_log_options log;
    struct MHD_Daemon *daemon;
    struct MHD_Response *no_memory; /* made at start: what is said when nothing can be made any more */
    struct sv_prepare *prepare;
    int listen_fd, epoll_fd, engine_fd, signal_fd; /* -1 = none */
    struct sv_job *jobs;
    struct sv_conn *conns;
    uint32_t n_jobs, n_preparing, n_streams, n_conns;
    uint32_t n_strangers; /* connections that have not asked anything yet */
    uint32_t n_idle_runs; /* runs of the daemon since anything happened */
    uint64_t body_bytes; /* buffered now, over all jobs */
    enum sv_phase phase;
    double leave_at; /* cli_now() */
    int exit_code;
    bool engine_failed, logging_daemon;
    struct sennit_error failure;
};

#endif
