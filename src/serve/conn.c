#include "serve/conn.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "serve/alloc.h"
#include "serve/job.h"

static void name_client(struct sv_conn *conn)
{
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;
    char host[INET6_ADDRSTRLEN] = "?";
    unsigned port = 0;
    bool v6 = false;
    if (getpeername(conn->fd, (struct sockaddr *)&at, &len) == 0 && at.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&at;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        port = ntohs(in->sin_port);
    } else if (at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)&at;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        port = ntohs(in->sin6_port);
        v6 = true;
    }
    snprintf(conn->client, sizeof conn->client, v6 ? "[%s]:%u" : "%s:%u", host, port);
}

/* A peer that vanishes without a word is noticed within a minute, also while it waits for a long answer. */
static void keep_alive(int fd, uint32_t idle_s)
{
    int on = 1, idle = 30, interval = 10, count = 3;
    unsigned give_up_ms = (idle_s < 60 ? 60 : idle_s > 86400 ? 86400 : idle_s) * 1000;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms, sizeof give_up_ms);
}

static void link_conn(struct sv_conn *conn)
{
    struct sv_server *s = conn->server;
    conn->next = s->conns;
    if (s->conns)
        s->conns->prev = conn;
    s->conns = conn;
    s->n_conns++;
    s->n_strangers++;
}

struct sv_conn *sv_conn_open(struct sv_server *s, struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct sv_conn *conn = info ? sv_calloc(1, sizeof *conn) : NULL;
    if (!conn)
        return NULL;
    conn->server = s;
    conn->fd = info->connect_fd;
    conn->deadline = cli_now() + s->options->request_timeout;
    name_client(conn);
    keep_alive(conn->fd, s->options->idle_timeout);
    struct epoll_event watch = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = conn};
    epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, conn->fd, &watch);
    link_conn(conn);
    return conn;
}

void sv_conn_close(struct sv_conn *conn)
{
    if (!conn)
        return;
    struct sv_server *s = conn->server;
    struct epoll_event none = {0};
    epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, conn->fd, &none);
    if (conn->prev)
        conn->prev->next = conn->next;
    else
        s->conns = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    s->n_conns--;
    s->n_strangers -= !conn->known;
    sv_free(conn);
}

void sv_conn_asks(struct sv_conn *conn)
{
    if (!conn)
        return;
    conn->server->n_strangers -= !conn->known;
    conn->known = true;
    double by = cli_now() + conn->server->options->request_timeout;
    if (conn->deadline <= 0 || conn->deadline > by)
        conn->deadline = by;
}

void sv_conn_asked(struct sv_conn *conn)
{
    if (conn)
        conn->deadline = 0;
}

/* When the next request begins is not told before its first line is whole, so between requests both limits add up. */
void sv_conn_job_done(struct sv_conn *conn, double now)
{
    if (!conn)
        return;
    conn->job = NULL;
    conn->deadline = now + conn->server->options->idle_timeout + conn->server->options->request_timeout;
    if (conn->server->phase != SV_OPEN)
        sv_conn_shut(conn);
}

void sv_conn_hung_up(struct sv_conn *conn)
{
    conn->peer_ended = true; /* reported once: a request that becomes whole after this asks here */
    if (conn->job && conn->job->received > 0)
        sv_job_hang_up(conn->job);
    else /* wakes libmicrohttpd once more, which does not see an end that comes together with bytes */
        shutdown(conn->fd, SHUT_RD);
}

void sv_conn_shut(struct sv_conn *conn)
{
    if (conn)
        shutdown(conn->fd, SHUT_RDWR);
}

void sv_conn_tick(struct sv_conn *conn, double now)
{
    if (conn->deadline <= 0 || now < conn->deadline)
        return;
    conn->deadline = 0;
    sv_conn_shut(conn);
}
