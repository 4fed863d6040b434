/* Clients that are wrong, careless or mean: whatever comes, the answer is a well-formed error or the right thing, the
 * server stays small and goes on serving. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "serve/calls.h"

enum { MB = 1 << 20, MAX_BODY = 8 * MB, REQUEST_TIMEOUT_S = 2 };

static struct server server;
static double start_resident;

static const char good[] = "{\"prompt\": \"hello\", \"max_tokens\": 2}";

/* ---- asking raw ------------------------------------------------------------------------------------------------ */

static void connect_to(struct http_conn *c)
{
    CHECK(http_connect(c, server.port), "cannot connect");
}

/* The server still serves. */
static void alive(void)
{
    struct answer a;
    ask(&server, bodyf("{'prompt': 'hello', 'max_tokens': 2}"), &a);
    CHECK(a.http == 200, "it serves no more: status %d", a.http);
    answer_free(&a);
}

/* A refusal in the API's shape, or 200. */
static void check_response(const struct http_response *r, const char *what)
{
    json_t *root = NULL;
    char type[64] = "";
    http_header(r, "Content-Type", type, sizeof type);
    CHECK(r->status == 200 || (r->status >= 400 && r->status < 500), "status %d for %.300s: %.500s", r->status, what,
          r->body ? r->body : "");
    if (r->status != 200)
        error_of(r->body, r->n_body, &root);
    else if (strncmp(type, "application/json", 16) == 0)
        root = json_of(r->body, r->n_body);
    CHECK(root || strncmp(type, "text/event-stream", 17) == 0, "an answer of type '%s' for %.300s", type, what);
    json_decref(root);
}

static int post(const char *path, const void *body, size_t n_bytes)
{
    struct http_conn c;
    struct http_response r = {0};
    connect_to(&c);
    http_request(&c, "POST", path, "Connection: close\r\n", body, n_bytes);
    enum http_result result = http_read(&c, &r, 20000 * SLOW);
    CHECK(result == HTTP_OK, "%s for the body %.300s", http_result_name(result), (const char *)body);
    check_response(&r, body);
    int status = r.status;
    http_response_free(&r);
    http_close(&c);
    return status;
}

/* One request as it is written here; the status (0: the connection was closed without an answer). */
static int raw(const char *request, struct http_response *r, int timeout_ms)
{
    struct http_conn c;
    connect_to(&c);
    http_send(&c, request, strlen(request));
    r->no_body = strncmp(request, "HEAD ", 5) == 0;
    enum http_result result = http_read(&c, r, timeout_ms);
    CHECK(result != HTTP_TIMEOUT && result != HTTP_MALFORMED, "%s after %.200s", http_result_name(result), request);
    int status = result == HTTP_OK ? r->status : 0;
    http_close(&c);
    return status;
}

static int raw_status(const char *request)
{
    struct http_response r = {0};
    int status = raw(request, &r, 10000 * SLOW);
    http_response_free(&r);
    return status;
}

/* ---- bodies ---------------------------------------------------------------------------------------------------- */

static void broken_bodies(void)
{
    static const char *const bodies[] = {
        "",
        " ",
        "{",
        "}",
        "null",
        "true",
        "[]",
        "\"prompt\"",
        "12",
        "{\"prompt\"}",
        "{\"prompt\": \"a\",}",
        "{'prompt': 'a'}",
        "{\"prompt\": \"a\"} x",
        "{\"prompt\": \"a\"}{\"prompt\": \"b\"}",
        "{\"prompt\": \"a\xFF\"}",
        "{\"prompt\": \"\xC0\x80\"}",
        "{\"prompt\": \"\xED\xA0\x80\"}",
        "{\"prompt\": \"\\ud800\"}",
        "{\"prompt\": \"a\nb\"}",
        "\xEF\xBB\xBF{\"prompt\": \"a\", \"bad\": 1}",
        "{\"prompt\": \"a\", \"prompt\": \"b\"}",
        "{\"prompt\": \"a\", \"max_tokens\": 1, \"max_tokens\": 1}",
        "{\"prompt\": \"a\", \"temperature\": NaN}",
        "{\"prompt\": \"a\", \"temperature\": Infinity}",
        "{\"prompt\": \"a\", \"temperature\": 1e999}",
        "{\"prompt\": \"a\", \"temperature\": -1}",
        "{\"prompt\": \"a\", \"temperature\": \"hot\"}",
        "{\"prompt\": \"a\", \"max_tokens\": 99999999999999999999}",
        "{\"prompt\": \"a\", \"max_tokens\": 9223372036854775807}",
        "{\"prompt\": \"a\", \"max_tokens\": 1e3}",
        "{\"prompt\": \"a\", \"top_p\": -1e-9}",
        "{\"prompt\": \"a\", \"top_p\": 1.5}",
        "{\"prompt\": \"a\", \"n\": -1}",
        "{\"prompt\": \"a\", \"stream\": \"yes\"}",
        "{\"prompt\": \"a\", \"logprobs\": 100}",
        "{\"prompt\": \"a\", \"stream_options\": 1, \"stream\": true}",
        "{\"prompt\": {\"text\": \"a\"}}",
        "{\"prompt\": [[]]}",
        "{\"prompt\": [\"a\", 5]}",
        "{\"prompt\": [1.5]}",
        "{\"prompt\": \"a\", \"model\": 5}",
        "{\"prompt\": \"a\", \"nonsense\": 5}",
        "{\"prompt\": \"a\", \"messages\": []}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        int status = post("/v1/completions", bodies[i], strlen(bodies[i]));
        CHECK(status == 400, "status %d for %s", status, bodies[i]);
        status = post("/v1/chat/completions", bodies[i], strlen(bodies[i]));
        CHECK(status == 400, "status %d of the chat for %s", status, bodies[i]);
    }
    CHECK(post("/v1/completions", "{\"prompt\": \"a\0b\"}", 17) == 400, "a NUL in a string");
    alive();
}

static void nested_bodies(void)
{
    enum { DEPTH = 100000 };
    static const char *const openings[] = {"[", "{\"a\":", "{\"prompt\":[", "{\"messages\":[{\"content\":"};
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++) {
        size_t n = strlen(openings[i]), depth = MAX_BODY / n - 1 < DEPTH ? MAX_BODY / n - 1 : DEPTH;
        char *body = malloc(n * depth);
        CHECK(body, "no memory");
        for (size_t k = 0; k < depth; k++)
            memcpy(body + k * n, openings[i], n);
        CHECK(post("/v1/completions", body, n * depth) == 400, "%zu times %s", depth, openings[i]);
        CHECK(post("/v1/chat/completions", body, n * depth) == 400, "%zu times %s", depth, openings[i]);
        free(body);
    }
    alive();
}

/* 413, and what the client sends nevertheless is not kept. A body that is much too large is not even read to its end:
 * a client that does not look for the answer meanwhile may lose it with the connection. */
static void huge_body(bool chunked, size_t total)
{
    enum { PIECE = 64 << 10 };
    static char piece[PIECE + 16];
    struct http_conn c;
    struct http_response r = {0};
    connect_to(&c);
    int n_head = chunked ? snprintf(piece, sizeof piece, "%x\r\n", PIECE) : 0;
    memset(piece + n_head, 'a', PIECE);
    memcpy(piece + n_head + PIECE, "\r\n", 2);
    size_t n_piece = (size_t)n_head + PIECE + (chunked ? 2 : 0), sent = 0;
    char length[64];
    snprintf(length, sizeof length, "Content-Length: %zu\r\n", total);
    http_sendf(&c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
               chunked ? "Transfer-Encoding: chunked\r\n" : length);
    while (sent < total && http_send(&c, piece, n_piece) && !http_wait_readable(&c, 0))
        sent += PIECE;
    if (chunked && sent == total)
        http_sendf(&c, "0\r\n\r\n");
    enum http_result result = http_read(&c, &r, 20000 * SLOW);
    CHECK(result == HTTP_OK || (total > 16 * MAX_BODY && (result == HTTP_RESET || result == HTTP_CLOSED)),
          "%s after %zu bytes", http_result_name(result), sent);
    if (result == HTTP_OK)
        CHECK(r.status == 413, "status %d after %zu bytes", r.status, sent);
    if (result == HTTP_OK)
        check_response(&r, "a huge body");
    http_response_free(&r);
    http_close(&c);
}

static void huge_bodies(void)
{
    for (int chunked = 0; chunked < 2; chunked++) {
        huge_body(chunked, 100 * MB);
        huge_body(chunked, 300 * MB);
    }
    alive();
    double grown = server_metric(&server, "process_resident_memory_bytes") - start_resident;
    CHECK(grown < 64.0 * MB * (SLOW > 1 ? 8 : 1), "it grew by %.0f MB", grown / MB);
}

/* A size that is announced and refused needs no byte of the body. */
static void expect_continue(void)
{
    struct http_conn c;
    struct http_response r = {0};
    connect_to(&c);
    http_sendf(
        &c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %zu\r\n\r\n",
        strlen(good));
    CHECK(http_wait_readable(&c, 5000 * SLOW), "no 100");
    http_sendf(&c, "%s", good);
    CHECK(http_read(&c, &r, 10000 * SLOW) == HTTP_OK && r.status == 200, "status %d after 100", r.status);
    http_response_free(&r);
    http_sendf(
        &c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
        100 * MB);
    CHECK(http_read(&c, &r, 10000 * SLOW) == HTTP_OK && r.status == 413, "status %d for an announced size", r.status);
    http_response_free(&r);
    http_close(&c);
}

/* ---- HTTP ------------------------------------------------------------------------------------------------------ */

static void methods_and_paths(void)
{
    static const struct {
        const char *line;
        int status, other;
    } cases[] = {
        {"GET /health", 200, 0},
        {"GET /health?x=1", 200, 0},
        {"GET /v1/models", 200, 0},
        {"GET /metrics", 200, 0},
        {"HEAD /health", 200, 0},
        {"GET /", 404, 200},
        {"GET /v1", 404, 0},
        {"GET /nothing", 404, 0},
        {"GET /v1/completions", 405, 0},
        {"GET /v1/chat/completions", 405, 0},
        {"PUT /v1/completions", 405, 0},
        {"DELETE /v1/models", 405, 0},
        {"BREW /health", 405, 501},
        {"GET /../../etc/passwd", 404, 400},
        {"GET /%2e%2e/%2e%2e/etc/passwd", 404, 400},
        {"GET /v1/models/%00", 404, 400},
        {"GET /health%00", 404, 400},
        {"GET /%ff%fe", 404, 400},
        {"GET /%zz", 404, 400},
        {"GET /v1/models/tiny%2e", 404, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[256];
        struct http_response r = {0};
        snprintf(request, sizeof request, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                 cases[i].line);
        int status = raw(request, &r, 10000 * SLOW);
        CHECK(status == cases[i].status || (cases[i].other && status == cases[i].other), "status %d for %s", status,
              cases[i].line);
        if (status >= 400 && !r.no_body) {
            json_t *root;
            error_of(r.body, r.n_body, &root);
            json_decref(root);
        }
        char allow[64] = "";
        CHECK(status != 405 || http_header(&r, "Allow", allow, sizeof allow), "405 without Allow for %s",
              cases[i].line);
        http_response_free(&r);
    }
}

static void old_and_odd_http(void)
{
    char request[512];
    snprintf(request, sizeof request, "POST /v1/completions HTTP/1.0\r\nContent-Length: %zu\r\n\r\n%s", strlen(good),
             good);
    CHECK(raw_status(request) == 200, "HTTP/1.0");
    static const char stream[] = "{\"prompt\": \"hello\", \"max_tokens\": 2, \"stream\": true}";
    snprintf(request, sizeof request, "POST /v1/completions HTTP/1.0\r\nContent-Length: %zu\r\n\r\n%s",
             strlen(stream), stream);
    CHECK(raw_status(request) == 200, "a stream for HTTP/1.0");
    static const char *const wrong[] = {
        "\r\n\r\n\r\n",
        "hello\r\n\r\n",
        "GET\r\n\r\n",
        "GET /health HTTP/9.9\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n", /* no Host */
        "GET /health HTTP/1.1\r\nHost : a\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length : 2\r\n\r\n{}",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
        "chunked\r\n\r\nffffffffffffffffff\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: bogus\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
        "2\r\n{}\r\n0\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct http_response r = {0};
        struct http_conn c;
        connect_to(&c);
        http_send(&c, wrong[i], strlen(wrong[i]));
        enum http_result result = http_read(&c, &r, 10000 * SLOW);
        CHECK(result != HTTP_TIMEOUT && result != HTTP_MALFORMED && (result != HTTP_OK || r.status >= 400),
              "%s, status %d for %s", http_result_name(result), r.status, wrong[i]);
        http_response_free(&r);
        http_close(&c);
    }
    alive();
}

/* A request whose body ends in two ways must not get an answer, and nothing behind it may count as a request. */
static void two_ends_of_a_body(void)
{
    static const char *const headers[] = {
        "Content-Length: 36\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 36\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 0\r\n",
        "Content-Length: 0\r\nContent-Length: 36\r\n",
        "Content-Length: 36\r\nContent-Length: 36\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding:\r\n chunked\r\n",
        "Content-Length:\r\n 36\r\n",
        "Content-Le: 36\r\n ngth\r\n",
        "X-One: two\r\n\tthree\r\n",
        "Transfer-Encoding : chunked\r\nContent-Length: 36\r\n",
        "X: a\rContent-Length: 0\r\nContent-Length: 36\r\n",
        "Host: example.org\r\nContent-Length: 36\r\n",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        struct http_conn c;
        struct http_response r = {0}, second = {0};
        json_t *root;
        connect_to(&c);
        http_sendf(&c,
                   "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%s\r\n%zx\r\n%s\r\n0\r\n\r\n"
                   "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                   headers[i], strlen(good), good);
        CHECK(http_read(&c, &r, 5000 * SLOW) == HTTP_OK && r.status == 400, "status %d for %s", r.status, headers[i]);
        json_t *error = error_of(r.body, r.n_body, &root);
        const char *code = json_string_value(json_object_get(error, "code"));
        CHECK(code && strcmp(code, "invalid_framing") == 0, "%s for %s", r.body, headers[i]);
        json_decref(root);
        CHECK(http_read(&c, &second, 5000 * SLOW) != HTTP_OK, "a second answer behind %s", headers[i]);
        http_response_free(&second);
        http_response_free(&r);
        http_close(&c);
    }
    alive();
}

/* Without --cors-origin nothing says that OPTIONS would be answered. */
static void no_options(void)
{
    struct http_response r = {0};
    char allow[64] = "";
    int status = raw("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", &r, 5000 * SLOW);
    CHECK(status == 405 && http_header(&r, "Allow", allow, sizeof allow) && strcmp(allow, "GET, HEAD") == 0,
          "status %d, allowed '%s'", status, allow);
    http_response_free(&r);
}

static void big_headers(void)
{
    enum { N = 200 << 10 };
    char *request = malloc(N + 512);
    CHECK(request, "no memory");
    for (int where = 0; where < 3; where++) { /* one long header, a long path, many headers */
        size_t n =
            (size_t)snprintf(request, 512, where == 1 ? "GET /" : "GET /health HTTP/1.1\r\nHost: localhost\r\n");
        while (n < N)
            n += (size_t)snprintf(request + n, 64,
                                  where == 2 ? "X-Header-%zu: value\r\n" : "aaaaaaaaaaaaaaaaaaaaaaaaaaa", n);
        struct http_conn c;
        struct http_response r = {0};
        connect_to(&c);
        http_send(&c, request, n);
        http_sendf(&c, where == 1 ? " HTTP/1.1\r\nHost: localhost\r\n\r\n" : "\r\n\r\n");
        enum http_result result = http_read(&c, &r, 10000 * SLOW);
        CHECK(result == HTTP_RESET || result == HTTP_CLOSED ||
                  (result == HTTP_OK && (r.status == 431 || r.status == 414 || r.status == 413 || r.status == 400)),
              "%s, status %d, for %zu bytes of headers", http_result_name(result), r.status, n);
        http_response_free(&r);
        http_close(&c);
    }
    free(request);
    alive();
}

/* Several requests at once on one connection are answered in their order. */
static void pipelined(void)
{
    enum { N = 6 };
    struct http_conn c;
    connect_to(&c);
    for (int i = 0; i < N; i++) {
        char body[128];
        int n =
            snprintf(body, sizeof body, "{\"prompt\": \"hello\", \"max_tokens\": %d, \"ignore_eos\": true}", i + 1);
        http_sendf(&c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", n, body);
        http_sendf(&c, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for (int i = 0; i < N; i++) {
        struct answer a;
        struct http_response r = {0};
        read_answer(&c, false, &a);
        CHECK(a.http == 200 && a.n_completion == (uint64_t)i + 1, "request %d: status %d, %llu tokens", i, a.http,
              (unsigned long long)a.n_completion);
        answer_free(&a);
        CHECK(http_read(&c, &r, 10000 * SLOW) == HTTP_OK && r.status == 200, "health after request %d: %d", i,
              r.status);
        http_response_free(&r);
    }
    http_close(&c);
}

/* In pieces of one byte, it is the same request. */
static void in_pieces(void)
{
    struct http_conn c;
    struct answer a;
    char request[512];
    int n = snprintf(request, sizeof request,
                     "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(good), good);
    connect_to(&c);
    for (int i = 0; i < n; i++)
        http_send(&c, request + i, 1);
    read_answer(&c, false, &a);
    CHECK(a.http == 200, "status %d", a.http);
    answer_free(&a);
    http_sendf(&c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (const char *p = good; *p; p++)
        http_sendf(&c, "1\r\n%c\r\n", *p);
    http_sendf(&c, "0\r\n\r\n");
    read_answer(&c, false, &a);
    CHECK(a.http == 200, "status %d in chunks", a.http);
    answer_free(&a);
    http_close(&c);
}

/* ---- slow clients and many of them ----------------------------------------------------------------------------- */

static void slow_clients(void)
{
    struct http_conn in_head, in_body, silent;
    connect_to(&silent);
    connect_to(&in_head);
    connect_to(&in_body);
    http_sendf(&in_body, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n");
    const char *head = "GET /health HTTP/1.1\r\nHost: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    double from = http_now();
    bool open = true;
    for (int i = 0; open && http_now() - from < (REQUEST_TIMEOUT_S + 3) * SLOW; i++) {
        http_send(&in_head, head + i % (int)strlen(head), 1);
        http_send(&in_body, "{", 1);
        alive(); /* others are served all the while */
        open = !(http_wait_closed(&in_head, 200) && http_wait_closed(&in_body, 200));
    }
    double took = http_now() - from;
    CHECK(!open, "a client that sends a byte now and then is still there after %.1f s", took);
    CHECK(took > REQUEST_TIMEOUT_S - 1, "closed after %.1f s already", took);
    CHECK(http_wait_closed(&silent, (REQUEST_TIMEOUT_S + 3) * 1000 * SLOW),
          "a client that says nothing is still there");
    http_close(&in_head);
    http_close(&in_body);
    http_close(&silent);
}

static void many_connections(void)
{
    enum { N = 1000 };
    static struct http_conn conns[N];
    struct rlimit limit;
    struct server s;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < N + 100) {
        printf("SKIPPED: the hard limit of open files is %llu; %d are needed; ", (unsigned long long)limit.rlim_max,
               N + 100);
        return;
    }
    /* its default: 1,024 connections */
    server_start(&s, server_tiny_model(512), "--threads", "1", "--quiet", "--request-timeout", "600",
                 "--idle-timeout", "600", NULL);
    for (int i = 0; i < N; i++) {
        CHECK(http_connect(&conns[i], s.port), "connection %d", i);
        http_sendf(&conns[i], i % 2 ? "GET /hea" : "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for (int i = 0; i < N; i += 2) {
        struct http_response r = {0};
        CHECK(http_read(&conns[i], &r, 20000 * SLOW) == HTTP_OK && r.status == 200, "connection %d: status %d", i,
              r.status);
        http_response_free(&r);
    }
    /* all of them are open at once, and others are served: the one that asks makes one more */
    double n = server_metric(&s, "sennit_connections");
    CHECK(n == N + 1, "%g connections instead of %d", n, N + 1);
    struct answer a;
    ask(&s, bodyf("{'prompt': 'hello', 'max_tokens': 2}"), &a);
    CHECK(a.http == 200, "beside %d connections: status %d", N, a.http);
    answer_free(&a);
    for (int i = 1; i < N; i += 2) { /* those that were slow are served when they go on */
        struct http_response r = {0};
        http_sendf(&conns[i], "lth HTTP/1.1\r\nHost: localhost\r\n\r\n");
        CHECK(http_read(&conns[i], &r, 20000 * SLOW) == HTTP_OK && r.status == 200, "connection %d: status %d", i,
              r.status);
        http_response_free(&r);
    }
    for (int i = 0; i < N; i++)
        http_close(&conns[i]);
    CHECK(server_wait_idle(&s, 5000 * SLOW), "connections are left");
    server_stop(&s);
}

/* ---- what clients of the API get wrong ------------------------------------------------------------------------- */

static json_t *chat(const char *messages)
{
    return with(bodyf("{'max_tokens': 2}"), "messages", json_loads(messages, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL));
}

/* Tool calls in a history: arguments that are no JSON object are the client's mistake. */
static void tool_calls(void)
{
    static const char *const broken[] = {"\"{\"",
                                         "\"}\"",
                                         "\"\"",
                                         "\"{\\\"a\\\": }\"",
                                         "\"{'a': 1}\"",
                                         "\"[1, 2\"",
                                         "\"{\\\"a\\\": 1}}\"",
                                         "\"\\u0000\"",
                                         "\"{\\\"a\\\": \\\"\"",
                                         "\"null x\"",
                                         "5",
                                         "true",
                                         "[]",
                                         "\"{\\\"a\\\": NaN}\""};
    char text[1024];
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        snprintf(
            text, sizeof text,
            "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
            "[{\"id\": \"1\", \"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": %s}}]}, "
            "{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"b\"}]",
            broken[i]);
        expect_refusal(&server, chat(text), 400, "messages", NULL);
    }
    static const char *const shapes[] = {
        "[{\"role\": \"assistant\", \"tool_calls\": {}}]",
        "[{\"role\": \"assistant\", \"tool_calls\": [5]}]",
        "[{\"role\": \"assistant\", \"tool_calls\": [{}]}]",
        "[{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": 5}]}]",
        "[{\"role\": \"assistant\", \"tool_calls\": [{\"id\": \"1\", \"type\": \"function\", \"function\": "
        "{\"name\": 5, "
        "\"arguments\": \"{}\"}}]}]",
        "[5]",
        "[null]",
        "[{}]",
        "[{\"role\": 5, \"content\": \"a\"}]",
        "[{\"role\": \"nobody\", \"content\": \"a\"}]",
        "[{\"role\": \"user\"}]",
        "[{\"role\": \"user\", \"content\": 5}]",
        "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", \"image_url\": {\"url\": \"x\"}}]}]",
        "[{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]",
        "{}",
        "\"hello\""};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        expect_refusal(&server, chat(shapes[i]), 400, "messages", NULL);
}

/* An assistant's turn that only called a tool has no content. */
static void no_content(void)
{
    static const char *const contents[] = {"", "\"content\": null, ", "\"content\": \"\", "};
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        char text[1024];
        struct answer a;
        snprintf(
            text, sizeof text,
            "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", %s\"tool_calls\": [{\"id\": \"1\", "
            "\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}}]}, "
            "{\"role\": \"tool\", \"tool_call_id\": \"1\", \"content\": \"b\"}]",
            contents[i]);
        ask(&server, chat(text), &a);
        CHECK(a.http == 200, "status %d (%s) for %s", a.http,
              a.error ? json_string_value(json_object_get(a.error, "message")) : "", text);
        answer_free(&a);
    }
}

/* What is not done is refused by its name, never dropped. */
static void unsupported_fields(void)
{
    static const char *const fields[][2] = {
        {"response_format", "{\"type\": \"json_object\"}"},
        {"response_format", "{\"type\": \"json_schema\", \"json_schema\": {\"name\": \"a\", \"strict\": true}}"},
        {"tools", "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"},
        {"tool_choice", "\"required\""},
        {"functions", "[{\"name\": \"f\"}]"},
        {"function_call", "{\"name\": \"f\"}"},
        {"audio", "{\"voice\": \"x\"}"},
        {"modalities", "[\"audio\"]"},
        {"max_token", "5"},
        {"temprature", "0.5"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *body = bodyf("{'messages': [{'role': 'user', 'content': 'a'}], 'max_tokens': 2}");
        with(body, fields[i][0], json_loads(fields[i][1], JSON_DECODE_ANY, NULL));
        expect_refusal(&server, body, 400, fields[i][0], fields[i][0]);
    }
    expect_refusal(&server, bodyf("{'prompt': 'a', 'suffix': 'b'}"), 400, "suffix", "suffix");
    expect_refusal(&server, bodyf("{'prompt': 'a', 'best_of': 5}"), 400, "best_of", "best_of");
}

/* Text that is too long whatever its tokens are is not tokenized; one that may fit is, and is told its length. */
static void too_much_text(void)
{
    static char text[1 << 20];
    memset(text, 'a', sizeof text - 1);
    for (int chat_too = 0; chat_too < 2; chat_too++) {
        const char *name = chat_too ? "messages" : "prompt";
        for (int huge = 0; huge < 2; huge++) {
            json_t *value = json_stringn(text, huge ? sizeof text - 1 : 600);
            json_t *body = json_object();
            with(body, name, chat_too ? json_pack("[{s:s, s:o}]", "role", "user", "content", value) : value);
            expect_refusal(&server, body, 400, name, huge ? "bytes, which no tokens" : "the prompt has 6");
        }
    }
}

/* ---- random bodies --------------------------------------------------------------------------------------------- */

static json_t *random_value(uint64_t *state, int depth)
{
    static const char *const words[] = {"",         "a",           "text", "user", "none",
                                        "\xC3\xA9", "json_object", "-1",   "{",    "null"};
    static const double numbers[] = {0, -1, 1, 0.5, 1e308, -1e-308, 4294967296.0, 2147483648.0};
    switch (run_random(state) % (depth > 2 ? 6 : 8)) {
    case 0:
        return json_null();
    case 1:
        return json_boolean((int)(run_random(state) % 2));
    case 2:
        return json_integer((json_int_t)(run_random(state) % 10) - 2);
    case 3:
        return json_real(numbers[run_random(state) % (sizeof numbers / sizeof *numbers)]);
    case 4:
        return json_string(words[run_random(state) % (sizeof words / sizeof *words)]);
    case 5:
        return json_integer((json_int_t)run_random(state));
    case 6:
        return json_pack("[o]", random_value(state, depth + 1));
    default:
        return json_pack("{s:o}", words[run_random(state) % (sizeof words / sizeof *words)],
                         random_value(state, depth + 1));
    }
}

static json_t *valid_body(uint64_t *state)
{
    if (run_random(state) % 2)
        return bodyf(
            "{'prompt': 'hello', 'max_tokens': 2, 'temperature': 0.5, 'top_p': 0.9, 'top_k': 3, 'min_p': 0.1,"
            " 'seed': 1, 'n': 2, 'stop': ['a', 'b'], 'logprobs': 2, 'echo': true, 'logit_bias': {'5': 1},"
            " 'stream': false, 'presence_penalty': 0.1, 'frequency_penalty': 0.1, 'repetition_penalty': 1.1,"
            " 'ignore_eos': true, 'parse_special': false, 'user': 'me', 'stream_options': null}");
    return bodyf(
        "{'messages': [{'role': 'system', 'content': 'a'}, {'role': 'user', 'content': [{'type': 'text',"
        " 'text': 'b'}]}, {'role': 'assistant', 'content': null, 'tool_calls': [{'id': '1', 'type': 'function',"
        " 'function': {'name': 'f', 'arguments': '{}'}}]}, {'role': 'tool', 'tool_call_id': '1',"
        " 'content': 'c'}], 'max_tokens': 2, 'temperature': 0.5, 'seed': 1, 'n': 2, 'stop': 'a',"
        " 'logprobs': true, 'top_logprobs': 2, 'stream': true, 'stream_options': {'include_usage': true},"
        " 'response_format': {'type': 'text'}, 'metadata': {'a': 'b'}}");
}

/* Changes one thing at a random depth: a member's value, its absence, or one more. */
static void mutate(json_t *value, uint64_t *state)
{
    for (int depth = 0;; depth++) {
        json_t *child = NULL;
        size_t n = json_is_object(value) ? json_object_size(value) : json_array_size(value), k = 0;
        const char *name = NULL;
        if (n == 0)
            return;
        size_t pick = run_random(state) % n;
        if (json_is_object(value)) {
            void *at = json_object_iter(value);
            while (k++ < pick)
                at = json_object_iter_next(value, at);
            name = json_object_iter_key(at);
            child = json_object_iter_value(at);
        } else {
            child = json_array_get(value, pick);
        }
        if ((json_is_object(child) || json_is_array(child)) && run_random(state) % 3) {
            value = child;
            continue;
        }
        uint64_t what = run_random(state) % 8;
        if (what == 0 && name)
            json_object_del(value, name);
        else if (what == 1 && name)
            json_object_set_new(value, "extra", random_value(state, 0));
        else if (name)
            json_object_set_new(value, name, random_value(state, 0));
        else
            json_array_set_new(value, pick, random_value(state, 0));
        return;
    }
}

/* Bytes changed in the text itself. */
static void mutate_text(char *text, size_t n, uint64_t *state)
{
    static const char bytes[] = "{}[]\",:0e-\\ \x80\xFF";
    for (uint64_t k = 1 + run_random(state) % 3; k > 0 && n > 0; k--)
        text[run_random(state) % n] = bytes[run_random(state) % (sizeof bytes - 1)];
}

static void random_bodies(void)
{
    enum { N = 3000 / LESS };
    uint64_t state = 83;
    int n_ok = 0;
    for (int i = 0; i < N; i++) {
        json_t *body = valid_body(&state);
        bool is_chat = json_object_get(body, "messages") != NULL;
        for (uint64_t k = run_random(&state) % 3; k > 0; k--)
            mutate(body, &state);
        char *text = json_dumps(body, JSON_COMPACT);
        if (i % 4 == 0)
            mutate_text(text, strlen(text), &state);
        n_ok += post(is_chat ? "/v1/chat/completions" : "/v1/completions", text, strlen(text)) == 200;
        free(text);
        json_decref(body);
    }
    CHECK(n_ok > N / 20 && n_ok < N, "%d of %d random bodies were answered", n_ok, N);
    printf("%d of %d answered; ", n_ok, N);
    alive();
}

int main(int argc, char **argv)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max == RLIM_INFINITY || files.rlim_max > 8192 ? 8192 : files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    char timeout[16], body[16];
    snprintf(timeout, sizeof timeout, "%d", REQUEST_TIMEOUT_S);
    snprintf(body, sizeof body, "%d", MAX_BODY);
    server_start(&server, server_tiny_model(512), "--threads", "1", "--max-rows", "4", "--max-body", body,
                 "--request-timeout", timeout, "--idle-timeout", timeout, "--quiet", NULL);
    alive();
    start_resident = server_metric(&server, "process_resident_memory_bytes");
    RUN_TEST(broken_bodies);
    RUN_TEST(nested_bodies);
    RUN_TEST(huge_bodies);
    RUN_TEST(expect_continue);
    RUN_TEST(methods_and_paths);
    RUN_TEST(old_and_odd_http);
    RUN_TEST(two_ends_of_a_body);
    RUN_TEST(no_options);
    RUN_TEST(big_headers);
    RUN_TEST(pipelined);
    RUN_TEST(in_pieces);
    RUN_TEST(tool_calls);
    RUN_TEST(no_content);
    RUN_TEST(unsupported_fields);
    RUN_TEST(too_much_text);
    RUN_TEST(random_bodies);
    RUN_TEST(slow_clients);
    RUN_TEST(many_connections);
    CHECK(server_wait_idle(&server, 5000 * SLOW), "something is left");
    server_stop(&server);
    return 0;
}
