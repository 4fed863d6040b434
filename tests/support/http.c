#include "support/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SEND_TIMEOUT_MS = 20000, MOST_LINE = 65536 };

double http_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

const char *http_result_name(enum http_result result)
{
    static const char *const names[] = {"ok", "end", "closed", "reset", "timeout", "malformed"};
    return names[result];
}

static void *grow(void *data, size_t *cap, size_t need)
{
    if (need <= *cap)
        return data;
    *cap = need < 4096 ? 4096 : need * 2;
    data = realloc(data, *cap);
    if (!data)
        abort();
    return data;
}

/* ---- the connection ------------------------------------------------------------------------------------------ */

bool http_connect(struct http_conn *c, uint16_t port)
{
    *c = (struct http_conn){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (c->fd < 0)
        return false;
    if (connect(c->fd, (struct sockaddr *)&to, sizeof to) != 0) {
        http_close(c);
        return false;
    }
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return true;
}

void http_close(struct http_conn *c)
{
    if (c->fd >= 0)
        close(c->fd);
    free(c->buf);
    *c = (struct http_conn){.fd = -1};
}

void http_reset(struct http_conn *c)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (c->fd >= 0)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    http_close(c);
}

bool http_half_close(struct http_conn *c)
{
    return c->fd >= 0 && shutdown(c->fd, SHUT_WR) == 0;
}

static int ms_left(double deadline)
{
    double left = (deadline - http_now()) * 1000;
    return left <= 0 ? 0 : left > 1e9 ? 1000000000 : (int)left + 1;
}

static bool wait_for(int fd, short what, double deadline)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = what};
        int n = poll(&p, 1, ms_left(deadline));
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

bool http_send(struct http_conn *c, const void *data, size_t n_bytes)
{
    const char *from = data;
    double deadline = http_now() + SEND_TIMEOUT_MS / 1000.0;
    while (n_bytes > 0) {
        ssize_t n = c->fd < 0 ? -1 : send(c->fd, from, n_bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            from += n;
            n_bytes -= (size_t)n;
        } else if (c->fd < 0 || (errno != EAGAIN && errno != EINTR) || !wait_for(c->fd, POLLOUT, deadline)) {
            return false;
        }
    }
    return true;
}

bool http_sendf(struct http_conn *c, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (!text)
        abort();
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    bool ok = http_send(c, text, (size_t)n);
    free(text);
    return ok;
}

bool http_request(struct http_conn *c, const char *method, const char *path, const char *headers, const char *body,
                  size_t n_bytes)
{
    if (!body)
        return http_sendf(c, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%s\r\n", method, path, headers);
    return http_sendf(c,
                      "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n%sContent-Type: application/json\r\n"
                      "Content-Length: %zu\r\n\r\n",
                      method, path, headers, n_bytes) &&
           http_send(c, body, n_bytes);
}

/* More bytes into the buffer. */
static enum http_result fill(struct http_conn *c, double deadline)
{
    if (c->fd < 0)
        return HTTP_CLOSED;
    if (c->at > 0) {
        memmove(c->buf, c->buf + c->at, c->n - c->at);
        c->n -= c->at;
        c->at = 0;
    }
    c->buf = grow(c->buf, &c->cap, c->n + 65536);
    for (;;) {
        if (!wait_for(c->fd, POLLIN, deadline))
            return HTTP_TIMEOUT;
        ssize_t n = recv(c->fd, c->buf + c->n, c->cap - c->n, MSG_DONTWAIT);
        if (n > 0) {
            c->n += (size_t)n;
            return HTTP_OK;
        }
        if (n == 0)
            return HTTP_CLOSED;
        if (errno != EAGAIN && errno != EINTR)
            return errno == ECONNRESET || errno == EPIPE ? HTTP_RESET : HTTP_CLOSED;
    }
}

bool http_wait_closed(struct http_conn *c, int timeout_ms)
{
    double deadline = http_now() + timeout_ms / 1000.0;
    for (;;) {
        c->at = c->n = 0;
        enum http_result result = fill(c, deadline);
        if (result == HTTP_CLOSED || result == HTTP_RESET)
            return true;
        if (result != HTTP_OK)
            return false;
    }
}

bool http_wait_readable(struct http_conn *c, int timeout_ms)
{
    return c->at < c->n || (c->fd >= 0 && wait_for(c->fd, POLLIN, http_now() + timeout_ms / 1000.0));
}

/* ---- reading a response ---------------------------------------------------------------------------------------- */

/* Waits until the buffer holds `end`; *n: bytes up to and with it. */
static enum http_result read_until(struct http_conn *c, const char *end, double deadline, size_t *n)
{
    size_t n_end = strlen(end), from = 0;
    for (;;) {
        for (; c->at + from + n_end <= c->n; from++)
            if (memcmp(c->buf + c->at + from, end, n_end) == 0) {
                *n = from + n_end;
                return HTTP_OK;
            }
        if (c->n - c->at > MOST_LINE)
            return HTTP_MALFORMED;
        enum http_result result = fill(c, deadline);
        if (result != HTTP_OK)
            return result;
    }
}

const char *http_header(const struct http_response *r, const char *name, char *out, size_t n)
{
    size_t n_name = strlen(name);
    for (const char *line = r->head; line && (line = strstr(line, "\r\n")) != NULL;) {
        line += 2;
        if (strncasecmp(line, name, n_name) != 0 || line[n_name] != ':')
            continue;
        line += n_name + 1;
        line += strspn(line, " \t");
        size_t len = strcspn(line, "\r\n");
        snprintf(out, n, "%.*s", (int)len, line);
        return out;
    }
    return NULL;
}

static enum http_result one_head(struct http_conn *c, struct http_response *r, double deadline)
{
    size_t n;
    enum http_result result = read_until(c, "\r\n\r\n", deadline, &n);
    if (result != HTTP_OK)
        return result;
    free(r->head);
    r->head = malloc(n + 1);
    if (!r->head)
        abort();
    memcpy(r->head, c->buf + c->at, n);
    r->head[n] = '\0';
    c->at += n;
    char *end;
    if (strlen(r->head) != n || (strncmp(r->head, "HTTP/1.1 ", 9) != 0 && strncmp(r->head, "HTTP/1.0 ", 9) != 0))
        return HTTP_MALFORMED;
    long status = strtol(r->head + 9, &end, 10);
    if (end != r->head + 12 || status < 100 || status > 599)
        return HTTP_MALFORMED;
    r->status = (int)status;
    return HTTP_OK;
}

enum http_result http_read_head(struct http_conn *c, struct http_response *r, int timeout_ms)
{
    double deadline = http_now() + timeout_ms / 1000.0;
    bool no_body = r->no_body;
    *r = (struct http_response){.no_body = no_body};
    do {
        enum http_result result = one_head(c, r, deadline);
        if (result != HTTP_OK)
            return result;
    } while (r->status == 100);
    char value[64];
    if (r->no_body || r->status == 204 || r->status == 304) {
        r->whole = true;
    } else if (http_header(r, "Transfer-Encoding", value, sizeof value)) {
        if (strcasecmp(value, "chunked") != 0)
            return HTTP_MALFORMED;
        r->framing = HTTP_BODY_CHUNKED;
    } else if (http_header(r, "Content-Length", value, sizeof value)) {
        char *end;
        r->left = strtoull(value, &end, 10);
        if (end == value || *end != '\0')
            return HTTP_MALFORMED;
        r->whole = r->left == 0;
    } else {
        r->framing = HTTP_BODY_CLOSE;
    }
    return HTTP_OK;
}

/* Moves up to n bytes from the connection's buffer to the body. */
static void take(struct http_conn *c, struct http_response *r, uint64_t n)
{
    size_t have = c->n - c->at, len = n < have ? (size_t)n : have;
    r->body = grow(r->body, &r->cap, r->n_body + len + 1);
    memcpy(r->body + r->n_body, c->buf + c->at, len);
    r->n_body += len;
    r->body[r->n_body] = '\0';
    c->at += len;
    if (r->framing != HTTP_BODY_CLOSE)
        r->left -= len;
}

/* The line that begins a chunk, or ends the body (with its trailers). */
static enum http_result chunk_line(struct http_conn *c, struct http_response *r, double deadline)
{
    size_t n;
    char *end;
    if (r->in_chunk) { /* the line end after the last chunk's data */
        enum http_result result = read_until(c, "\r\n", deadline, &n);
        if (result != HTTP_OK || n != 2)
            return result != HTTP_OK ? result : HTTP_MALFORMED;
        c->at += 2;
        r->in_chunk = false;
    }
    enum http_result result = read_until(c, "\r\n", deadline, &n);
    if (result != HTTP_OK)
        return result;
    r->left = strtoull(c->buf + c->at, &end, 16);
    if (end == c->buf + c->at || (*end != '\r' && *end != ';'))
        return HTTP_MALFORMED;
    c->at += n;
    r->in_chunk = r->left > 0;
    while (!r->in_chunk && !r->whole) {
        if ((result = read_until(c, "\r\n", deadline, &n)) != HTTP_OK)
            return result;
        c->at += n;
        r->whole = n == 2;
    }
    return HTTP_OK;
}

/* Some more of the body; sets whole at its end. */
static enum http_result more_body(struct http_conn *c, struct http_response *r, double deadline)
{
    if (r->framing == HTTP_BODY_CHUNKED && r->left == 0)
        return chunk_line(c, r, deadline);
    if (c->at == c->n) {
        enum http_result result = fill(c, deadline);
        if (result == HTTP_CLOSED && r->framing == HTTP_BODY_CLOSE) {
            r->whole = true;
            return HTTP_OK;
        }
        if (result != HTTP_OK)
            return result;
    }
    take(c, r, r->framing == HTTP_BODY_CLOSE ? UINT64_MAX : r->left);
    if (r->framing == HTTP_BODY_LENGTH)
        r->whole = r->left == 0;
    return HTTP_OK;
}

enum http_result http_read_body(struct http_conn *c, struct http_response *r, int timeout_ms)
{
    double deadline = http_now() + timeout_ms / 1000.0;
    r->body = grow(r->body, &r->cap, r->n_body + 1);
    r->body[r->n_body] = '\0';
    while (!r->whole) {
        enum http_result result = more_body(c, r, deadline);
        if (result != HTTP_OK)
            return result;
    }
    return HTTP_OK;
}

enum http_result http_read(struct http_conn *c, struct http_response *r, int timeout_ms)
{
    enum http_result result = http_read_head(c, r, timeout_ms);
    return result == HTTP_OK ? http_read_body(c, r, timeout_ms) : result;
}

enum http_result http_read_event(struct http_conn *c, struct http_response *r, int timeout_ms)
{
    double deadline = http_now() + timeout_ms / 1000.0;
    for (;;) {
        const char *from = r->body ? r->body + r->taken : "", *end = strstr(from, "\n\n");
        if (end && *from == ':') { /* a comment: keeps the connection alive */
            r->taken += (size_t)(end - from) + 2;
            continue;
        }
        if (end) {
            size_t n = (size_t)(end - from);
            if (n < 6 || memcmp(from, "data: ", 6) != 0 || memchr(from, '\n', n))
                return HTTP_MALFORMED;
            free(r->event);
            r->event = strndup(from + 6, n - 6);
            r->taken += n + 2;
            return HTTP_OK;
        }
        if (r->whole)
            return *from ? HTTP_MALFORMED : HTTP_END;
        enum http_result result = more_body(c, r, deadline);
        if (result != HTTP_OK)
            return result;
    }
}

void http_response_free(struct http_response *r)
{
    free(r->head);
    free(r->body);
    free(r->event);
    *r = (struct http_response){0};
}
