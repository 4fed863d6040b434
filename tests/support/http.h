/* A small blocking HTTP/1.1 client for tests, on a raw socket, so that a test decides about every byte and every
 * way of leaving: requests in pieces, half-closed connections, resets, pipelines, streams of server-sent events.
 *
 *     struct http_conn c;
 *     struct http_response r;
 *     http_connect(&c, port);
 *     http_sendf(&c, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
 *     if (http_read(&c, &r, 1000) == HTTP_OK && r.status == 200) ...
 *     http_response_free(&r);
 *     http_close(&c);
 *
 * Only 127.0.0.1. Every wait has an end: timeouts are milliseconds for the whole call. One thread per connection.
 * Running out of memory ends the program. */
#ifndef TEST_HTTP_H
#define TEST_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_result {
    HTTP_OK,
    HTTP_END,    /* http_read_event: the body is over, in the way that the protocol says */
    HTTP_CLOSED, /* the peer closed in the middle, or before the first byte */
    HTTP_RESET,  /* the peer reset the connection */
    HTTP_TIMEOUT,
    HTTP_MALFORMED /* not HTTP */
};
const char *http_result_name(enum http_result result);

struct http_conn {
    int fd;    /* -1 = closed */
    char *buf; /* received and not yet taken: [at, n) */
    size_t at, n, cap;
};

bool http_connect(struct http_conn *c, uint16_t port);
void http_close(struct http_conn *c);      /* in order; safe twice */
void http_reset(struct http_conn *c);      /* with a reset: nothing that is under way arrives */
bool http_half_close(struct http_conn *c); /* no more to send; may still read */

/* All of it, or false: the peer is gone, or did not take it in 20 s. */
bool http_send(struct http_conn *c, const void *data, size_t n_bytes);
bool http_sendf(struct http_conn *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A whole request; headers: lines that each end with \r\n, or "". body NULL = none; else Content-Length is added. */
bool http_request(struct http_conn *c, const char *method, const char *path, const char *headers, const char *body,
                  size_t n_bytes);

struct http_response {
    int status;
    char *head; /* status line and headers, NUL-terminated */
    char *body; /* what was read of the body, NUL-terminated */
    size_t n_body;
    bool no_body; /* set before http_read_head: the answer to HEAD */
    /* the reader's */
    enum { HTTP_BODY_LENGTH, HTTP_BODY_CHUNKED, HTTP_BODY_CLOSE } framing;
    uint64_t left; /* of the body or of the chunk */
    bool in_chunk, whole;
    size_t cap, taken; /* taken: bytes of the body given as events */
    char *event;
};
/* Interim answers (100) are skipped. *r is zeroed but no_body; free it whatever the result. */
enum http_result http_read_head(struct http_conn *c, struct http_response *r, int timeout_ms);
/* The rest of the body after the head. */
enum http_result http_read_body(struct http_conn *c, struct http_response *r, int timeout_ms);
enum http_result http_read(struct http_conn *c, struct http_response *r, int timeout_ms); /* both */
/* After the head: the next event of a stream of server-sent events, its data in r->event. */
enum http_result http_read_event(struct http_conn *c, struct http_response *r, int timeout_ms);
/* A header's value in out (cut to n bytes), or NULL. Names in any case. */
const char *http_header(const struct http_response *r, const char *name, char *out, size_t n);
void http_response_free(struct http_response *r);

/* True when the peer has ended the connection (closed or reset) within the time; what it sends until then is read
 * and dropped. */
bool http_wait_closed(struct http_conn *c, int timeout_ms);
/* True when there is something to read (or the peer is gone) within the time. */
bool http_wait_readable(struct http_conn *c, int timeout_ms);

double http_now(void); /* seconds of a steady clock */

#endif
