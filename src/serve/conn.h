/* Client sockets: who they are, how long they may take to ask, and whether they are still there.
 *
 * libmicrohttpd does not look at suspended connections, so every socket is also in the loop's own epoll set, which
 * reports hang-ups in whatever state the request is. A client that closes only its sending side counts as gone. */
#ifndef SERVE_CONN_H
#define SERVE_CONN_H

#include "serve/server.h"

struct sv_conn {
    struct sv_server *server;
    struct sv_conn *next, *prev; /* server->conns */
    struct sv_job *job;          /* what is being asked or answered, or NULL */
    int fd;                      /* libmicrohttpd's */
    bool peer_ended;             /* the peer will send no more */
    bool known;                  /* a request line was read: with TLS, the handshake is over */
    double deadline;             /* cli_now() by which a request must be whole; 0 = none */
    char client[64];             /* "127.0.0.1:1234" */
};

/* NULL without memory: the connection then lives without watch and limit. */
struct sv_conn *sv_conn_open(struct sv_server *s, struct MHD_Connection *mhd);
void sv_conn_close(struct sv_conn *conn); /* before libmicrohttpd closes the socket; NULL is fine */
void sv_conn_asks(struct sv_conn *conn);  /* a request line was read */
void sv_conn_asked(struct sv_conn *conn); /* the request is whole */
void sv_conn_job_done(struct sv_conn *conn, double now);
/* The loop's epoll set reported the peer's end. */
void sv_conn_hung_up(struct sv_conn *conn);
/* No more bytes in either direction; libmicrohttpd sees that and closes. NULL is fine. */
void sv_conn_shut(struct sv_conn *conn);
void sv_conn_tick(struct sv_conn *conn, double now);

#endif
