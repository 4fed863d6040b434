#include "serve/loop.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "serve/conn.h"
#include "serve/http.h"
#include "serve/prepare.h"

enum { TICK_MS = 250, MOST_EVENTS = 64, FLUSH_S = 2, FAILED_GRACE_S = 5 };

/* ---- descriptors ----------------------------------------------------------------------------------------------- */

static bool watch(struct sv_server *s, int fd, void *tag)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = tag};
    return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev) == 0;
}

static int signal_descriptor(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

bool sv_loop_open(struct sv_server *s, struct sennit_error *err)
{
    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->engine_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    s->signal_fd = signal_descriptor();
    if (s->epoll_fd >= 0 && s->engine_fd >= 0 && s->signal_fd >= 0 && watch(s, s->engine_fd, &s->engine_fd) &&
        watch(s, s->signal_fd, &s->signal_fd))
        return true;
    *err = (struct sennit_error){.code = SENNIT_IO};
    snprintf(err->message, sizeof err->message, "cannot make the server's descriptors: %s", strerror(errno));
    return false;
}

void sv_loop_close(struct sv_server *s)
{
    int *const fds[] = {&s->epoll_fd, &s->engine_fd, &s->signal_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        if (*fds[i] >= 0)
            close(*fds[i]);
        *fds[i] = -1;
    }
}

void sv_loop_notify(void *ctx)
{
    const struct sv_server *s = ctx;
    uint64_t one = 1;
    (void)!write(s->engine_fd, &one, sizeof one);
}

static void drain_counter(int fd)
{
    uint64_t n;
    (void)!read(fd, &n, sizeof n);
}

/* ---- leaving --------------------------------------------------------------------------------------------------- */

static bool has_started(const struct sv_job *job)
{
    for (uint32_t i = 0; i < job->n_choices; i++) {
        struct sennit_request_state state;
        sennit_request_poll(job->choices[i].request, &state);
        if (state.started || state.ended)
            return true;
    }
    return false;
}

static bool is_submitted(const struct sv_job *job)
{
    return job->state == SV_RUNNING || job->state == SV_STREAMING; /* which may still wait, and have said so */
}

/* Stops listening; waiting requests are told to go, running ones get grace_s seconds. */
static void begin_drain(struct sv_server *s, double grace_s)
{
    struct sv_error err;
    s->phase = SV_DRAINING;
    s->leave_at = cli_now() + grace_s;
    sv_http_quiesce(s);
    sv_fail_shutdown(&err);
    for (struct sv_job *job = s->jobs; job; job = job->next)
        if (job->state == SV_PREPARING || (is_submitted(job) && !has_started(job)))
            sv_job_fail(job, &err);
    for (struct sv_conn *conn = s->conns; conn; conn = conn->next)
        if (!conn->job)
            sv_conn_shut(conn);
}

/* Cancels everything; what is left is to send what was said. */
static void begin_leaving(struct sv_server *s)
{
    struct sv_error err;
    if (s->phase == SV_OPEN)
        sv_http_quiesce(s);
    s->phase = SV_LEAVING;
    s->leave_at = cli_now() + FLUSH_S;
    sv_fail_shutdown(&err);
    for (struct sv_job *job = s->jobs; job; job = job->next) {
        if (job->state == SV_RECEIVING)
            sv_conn_shut(job->conn);
        else
            sv_job_fail(job, &err);
    }
}

static bool may_leave(struct sv_server *s)
{
    if (s->phase == SV_OPEN)
        return false;
    if (s->n_jobs == 0)
        return true;
    if (cli_now() < s->leave_at)
        return false;
    if (s->phase == SV_LEAVING)
        return true;
    begin_leaving(s);
    return false;
}

static void on_signal(struct sv_server *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == sizeof info) {
        if (s->phase == SV_OPEN) {
            sv_log_message(&s->log, SENNIT_LOG_INFO,
                           "%s: finishing the running requests, at most %u seconds; once more ends at once",
                           info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM", s->options->grace);
            begin_drain(s, s->options->grace);
        } else {
            if (s->phase != SV_LEAVING)
                begin_leaving(s);
            s->leave_at = 0;
            if (info.ssi_signo == SIGINT && s->exit_code == CLI_OK)
                s->exit_code = CLI_INTERRUPTED;
        }
    }
}

/* ---- events ---------------------------------------------------------------------------------------------------- */

static void on_prepared(struct sv_server *s)
{
    struct sv_job *next;
    for (struct sv_job *job = sv_prepare_take(s->prepare); job; job = next) {
        next = job->queued;
        job->queued = NULL;
        sv_job_prepared(job);
    }
}

static void look_for_failure(struct sv_server *s)
{
    struct sennit_load load = {0};
    if (s->engine_failed)
        return;
    sennit_engine_load(s->facts.engine, &load);
    if (!load.failed)
        return;
    s->engine_failed = true;
    s->failure = load.failure;
    sv_log_message(&s->log, SENNIT_LOG_ERROR, "the engine failed: %s", load.failure.message);
    if (s->options->exit_on_failure) {
        s->exit_code = CLI_ENGINE;
        if (s->phase == SV_OPEN)
            begin_drain(s, FAILED_GRACE_S);
    }
}

static void on_engine(struct sv_server *s)
{
    drain_counter(s->engine_fd);
    for (struct sv_job *job = s->jobs; job; job = job->next)
        sv_job_poll(job);
    look_for_failure(s);
}

static void handle(struct sv_server *s, void *tag)
{
    if (tag == &s->daemon)
        return; /* MHD_run follows in any case */
    if (tag == &s->engine_fd)
        on_engine(s);
    else if (tag == &s->prepare)
        on_prepared(s);
    else if (tag == &s->signal_fd)
        on_signal(s);
    else
        sv_conn_hung_up(tag);
}

static void tick(struct sv_server *s, double *last)
{
    double now = cli_now();
    if (now - *last < TICK_MS / 1000.0)
        return;
    *last = now;
    for (struct sv_job *job = s->jobs; job; job = job->next)
        sv_job_tick(job, now);
    for (struct sv_conn *conn = s->conns; conn; conn = conn->next)
        sv_conn_tick(conn, now);
}

/* Is there a request whose bytes may be under way although no descriptor says so? */
static bool anything_moves(const struct sv_server *s)
{
    for (const struct sv_job *job = s->jobs; job; job = job->next)
        if (!job->suspended)
            return true;
    return false;
}

/* libmicrohttpd 0.9.75 does not see that a handshake of TLS has nothing to read, and wants to be run again at once,
 * as long as the peer likes. So while there are strangers, runs that follow nothing are spaced; what happens
 * meanwhile ends the wait. */
static int pause_ms(const struct sv_server *s)
{
    enum { FREE_RUNS = 2, MOST_SHIFT = 6 };
    if (!s->options->tls_cert || s->n_strangers == 0 || s->n_idle_runs < FREE_RUNS)
        return 0;
    uint32_t shift = s->n_idle_runs - FREE_RUNS;
    return anything_moves(s) ? 1 : 1 << (shift < MOST_SHIFT ? shift : MOST_SHIFT);
}

static int wait_ms(const struct sv_server *s)
{
    MHD_UNSIGNED_LONG_LONG ms;
    int most = s->n_conns || s->phase != SV_OPEN ? TICK_MS : -1;
    if (MHD_get_timeout(s->daemon, &ms) == MHD_YES && (most < 0 || ms < (MHD_UNSIGNED_LONG_LONG)most))
        most = ms > 60000 ? 60000 : (int)ms;
    return most == 0 ? pause_ms(s) : most;
}

/* May free connections and jobs: comes after all events of a batch. A daemon that is full has stopped to accept, and
 * begins again in the run after the one in which a connection ended. */
static void run_daemon(struct sv_server *s)
{
    uint32_t n_before = s->n_conns;
    MHD_run(s->daemon);
    if (s->n_conns < n_before)
        MHD_run(s->daemon);
}

/* Everything that still hangs on a connection is let go, so that the daemon may stop. */
static void end_jobs(struct sv_server *s)
{
    sv_prepare_stop(s->prepare);
    on_prepared(s);
    for (struct sv_job *job = s->jobs; job; job = job->next)
        sv_job_hang_up(job);
    MHD_run(s->daemon);
    sv_http_stop(s);
}

int sv_loop_run(struct sv_server *s)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    struct epoll_event events[MOST_EVENTS];
    double last_tick = 0;
    pthread_setname_np(pthread_self(), "sn-net");
    if (!info || !watch(s, info->epoll_fd, &s->daemon) || !watch(s, sv_prepare_fd(s->prepare), &s->prepare)) {
        sv_log_message(&s->log, SENNIT_LOG_ERROR, "cannot watch the server's descriptors: %s", strerror(errno));
        s->exit_code = CLI_FAILED;
    } else {
        while (!may_leave(s)) {
            int n = epoll_wait(s->epoll_fd, events, MOST_EVENTS, wait_ms(s));
            s->n_idle_runs = n > 0 ? 0 : s->n_idle_runs + 1;
            for (int i = 0; i < n; i++)
                handle(s, events[i].data.ptr);
            run_daemon(s);
            tick(s, &last_tick);
        }
    }
    end_jobs(s);
    return s->exit_code;
}
