/* From start to end: stopping, queues and their order, keys, TLS, browsers, names, and answers that do not depend on
 * which server gave them. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/calls.h"

enum { CONTEXT = 32768 };

static const char *model(void)
{
    return server_tiny_model(CONTEXT);
}

static json_t *answer_of(int n_tokens, bool stream)
{
    return with(bodyf("{'prompt': 'hello', 'max_tokens': %d, 'ignore_eos': true}", n_tokens), "stream",
                json_boolean(stream));
}

static int get(const struct server *s, const char *method, const char *path, const char *headers,
               struct http_response *r)
{
    struct http_conn c;
    CHECK(http_connect(&c, s->port), "cannot connect");
    http_request(&c, method, path, headers, NULL, 0);
    enum http_result result = http_read(&c, r, 10000 * SLOW);
    CHECK(result == HTTP_OK, "%s %s: %s", method, path, http_result_name(result));
    http_close(&c);
    return r->status;
}

static int get_status(const struct server *s, const char *path, const char *headers)
{
    struct http_response r = {0};
    int status = get(s, "GET", path, headers, &r);
    http_response_free(&r);
    return status;
}

/* ---- stopping -------------------------------------------------------------------------------------------------- */

/* SIGTERM: what runs is finished, what waits is told to go elsewhere, what comes is refused. */
static void stop_finishes(void)
{
    enum { N = 4, TOKENS = 5000 / LESS };
    struct server s;
    struct http_conn c[N];
    server_start(&s, model(), "--max-rows", "2", "--threads", "1", "--grace", "100", NULL);
    for (int i = 0; i < N; i++)
        ask_begin(&s, &c[i], answer_of(TOKENS, i % 2));
    CHECK(server_wait_rows(&s, 2, 2, 5000 * SLOW), "they do not run");
    kill(s.pid, SIGTERM);
    sleep_ms(50);
    struct http_conn late;
    if (http_connect(&late, s.port)) { /* it may have stopped listening, too */
        struct http_response r = {0};
        http_request(&late, "POST", "/v1/completions", "", "{\"prompt\": \"a\"}", 15);
        enum http_result result = http_read(&late, &r, 10000 * SLOW);
        CHECK(result == HTTP_OK ? r.status == 503 : result != HTTP_TIMEOUT, "a request after SIGTERM: %s, status %d",
              http_result_name(result), r.status);
        http_response_free(&r);
    }
    http_close(&late);
    for (int i = 0; i < N; i++) {
        struct answer a;
        read_answer(&c[i], i % 2, &a);
        bool whole = a.http == 200 && !a.error && strcmp(answer_finish(&a, 0), "length") == 0;
        CHECK(a.result == HTTP_OK && (i < 2 ? whole && a.has_usage == (i == 0) : a.http == 503 && a.error),
              "answer %d: %s, status %d, finish %s", i, http_result_name(a.result), a.http, answer_finish(&a, 0));
        answer_free(&a);
        http_close(&c[i]);
    }
    CHECK(server_wait_exit(&s, 10000 * SLOW) == 0, "it does not end, or not well");
}

#ifdef SENNIT_TEST_HOOKS
/* A stream that still waits, and has said so, is told to go like the others that wait; not when the grace is over. */
static void stop_waiting_stream(void)
{
    struct server s;
    struct http_conn c[2];
    struct http_response r = {0};
    struct answer a;
    server_start(&s, model(), "--max-rows", "1", "--threads", "1", "--grace", "100", "--test-stall-step", "5",
                 "--test-stall-ms", "14000", NULL);
    ask_begin(&s, &c[0], answer_of(20, true));
    CHECK(server_wait_rows(&s, 1, 0, 5000 * SLOW), "it does not run");
    ask_begin(&s, &c[1], answer_of(20, true));
    CHECK(http_read_head(&c[1], &r, 13500) == HTTP_OK && r.status == 200, "no sign of life");
    kill(s.pid, SIGTERM);
    CHECK(http_read_event(&c[1], &r, 2500) == HTTP_OK && strstr(r.event, "shutting_down"), "%s", r.event);
    http_response_free(&r);
    http_close(&c[1]);
    read_answer(&c[0], true, &a);
    CHECK(a.http == 200 && !a.error && strcmp(answer_finish(&a, 0), "length") == 0, "the running one: %d", a.http);
    answer_free(&a);
    http_close(&c[0]);
    CHECK(server_wait_exit(&s, 10000 * SLOW) == 0, "it does not end, or not well");
}
#endif

/* What is not finished within the grace is told so. */
static void stop_cancels(void)
{
    struct server s;
    struct http_conn c[2];
    server_start(&s, model(), "--max-rows", "1", "--threads", "1", "--grace", "1", NULL);
    for (int i = 0; i < 2; i++) {
        ask_begin(&s, &c[i], answer_of(30000, i == 0));
        CHECK(server_wait_rows(&s, 1, (uint32_t)i, 5000 * SLOW), "they do not run");
    }
    double from = http_now();
    kill(s.pid, SIGTERM);
    for (int i = 0; i < 2; i++) {
        struct answer a;
        read_answer(&c[i], i == 0, &a);
        CHECK(a.result == HTTP_OK && a.error && (i == 0 ? a.http == 200 : a.http == 503), "%s, status %d, %s error",
              http_result_name(a.result), a.http, a.error ? "an" : "no");
        answer_free(&a);
        http_close(&c[i]);
    }
    CHECK(server_wait_exit(&s, 10000 * SLOW) == 0, "it does not end, or not well");
    CHECK(http_now() - from >= 0.9, "the grace was %.2f s", http_now() - from);
}

/* Nothing to do: it ends at once, also with idle connections. */
static void stop_idle(void)
{
    struct server s;
    struct http_conn c;
    struct http_response r = {0};
    server_start(&s, model(), NULL);
    CHECK(http_connect(&c, s.port), "cannot connect");
    http_request(&c, "GET", "/health", "", NULL, 0);
    CHECK(http_read(&c, &r, 5000 * SLOW) == HTTP_OK, "no answer");
    http_response_free(&r);
    double from = http_now();
    server_stop(&s);
    CHECK(http_now() - from < 3 * SLOW, "an idle server took %.1f s to stop", http_now() - from);
    http_close(&c);
}

/* ---- queue ----------------------------------------------------------------------------------------------------- */

static void queue_full(void)
{
    struct server s;
    struct http_conn c[3];
    struct answer a;
    server_start(&s, model(), "--max-rows", "1", "--queue", "2", "--threads", "1", NULL);
    for (int i = 0; i < 3; i++) {
        ask_begin(&s, &c[i], answer_of(i == 0 ? 30000 : 3, i == 1));
        CHECK(server_wait_rows(&s, 1, (uint32_t)i, 5000 * SLOW), "request %d is not there", i);
    }
    for (int stream = 0; stream < 2; stream++) {
        ask(&s, answer_of(3, stream), &a);
        CHECK(a.http == 429 && atoi(a.retry_after) > 0, "status %d, Retry-After '%s'", a.http, a.retry_after);
        answer_free(&a);
    }
    http_close(&c[0]);
    for (int i = 1; i < 3; i++) { /* those that were let in are answered */
        read_answer(&c[i], i == 1, &a);
        CHECK(a.http == 200 && !a.error, "status %d of a request that waited", a.http);
        answer_free(&a);
        http_close(&c[i]);
    }
    ask(&s, answer_of(3, false), &a);
    CHECK(a.http == 200, "status %d when there is room again", a.http);
    answer_free(&a);
    server_stop(&s);
}

/* First come, first served: while one is answered, those after it have not begun. */
static void first_in_first_out(void)
{
    enum { N = 6 };
    struct server s;
    struct http_conn blocker, c[N];
    server_start(&s, model(), "--max-rows", "1", "--threads", "1", NULL);
    ask_begin(&s, &blocker, answer_of(30000, true));
    CHECK(server_wait_rows(&s, 1, 0, 5000 * SLOW), "the first does not run");
    for (int i = 0; i < N; i++) {
        ask_begin(&s, &c[i], answer_of(30000, true));
        CHECK(server_wait_rows(&s, 1, (uint32_t)i + 1, 5000 * SLOW), "request %d does not wait", i);
    }
    http_close(&blocker);
    for (int i = 0; i < N; i++) { /* its stream begins with its first token */
        CHECK(http_wait_readable(&c[i], 5000 * SLOW), "request %d does not run", i);
        for (int j = i + 1; j < N; j++)
            CHECK(!http_wait_readable(&c[j], 0), "request %d runs before request %d is done", j, i);
        http_close(&c[i]);
    }
    server_stop(&s);
}

static struct {
    struct server server;
    atomic_bool enough;
    atomic_uint n_answers;
} greedy;

static void *greedy_client(void *unused)
{
    while (!atomic_load(&greedy.enough)) {
        struct answer a;
        ask(&greedy.server, answer_of(100, false), &a);
        CHECK(a.http == 200, "status %d", a.http);
        answer_free(&a);
        atomic_fetch_add(&greedy.n_answers, 1);
    }
    return unused;
}

/* A client that always has requests waiting cannot hold up another for longer than those that came before. */
static void fair(void)
{
    enum { N = 5, N_TRIES = 10 };
    pthread_t threads[N];
    server_start(&greedy.server, model(), "--max-rows", "1", "--threads", "1", "--quiet", NULL);
    for (int i = 0; i < N; i++)
        CHECK(pthread_create(&threads[i], NULL, greedy_client, NULL) == 0, "no thread");
    for (int i = 0; i < N_TRIES; i++) {
        struct answer a;
        unsigned before = atomic_load(&greedy.n_answers);
        ask(&greedy.server, answer_of(2, i % 2), &a);
        unsigned others = atomic_load(&greedy.n_answers) - before;
        CHECK(a.http == 200, "status %d", a.http);
        /* those that waited, and some that came while this one was on its way; unfair, there is no end to them */
        CHECK(others <= 8 * N, "%u other requests were answered before", others);
        answer_free(&a);
    }
    atomic_store(&greedy.enough, true);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    server_stop(&greedy.server);
}

/* ---- keys and TLS ---------------------------------------------------------------------------------------------- */

static const char *write_file(const char *name, const char *text, mode_t mode)
{
    const char *path = server_file(name);
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0 && chmod(path, mode) == 0, "cannot write %s", path);
    return path;
}

static void keys(void)
{
    static const char right[] = "sk-0123456789abcdef";
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        {"", 401},
        {"Authorization: Bearer sk-0123456789abcde\r\n", 401},
        {"Authorization: Bearer sk-0123456789abcdeF\r\n", 401},
        {"Authorization: Bearer sk-0123456789abcdef0\r\n", 401},
        {"Authorization: Bearer \r\n", 401},
        {"Authorization: sk-0123456789abcdef\r\n", 401},
        {"Authorization: Basic sk-0123456789abcdef\r\n", 401},
        {"Authorization: Bearer sk-0123456789abcdef\r\n", 200},
        {"Authorization: bearer sk-another-key-of-two\r\n", 200},
    };
    char text[128], *log;
    struct server s;
    snprintf(text, sizeof text, "# keys\n\n%s\n  sk-another-key-of-two  \n", right);
    server_start(&s, model(), "--api-key-file", write_file("keys", text, 0600), "--host", "0.0.0.0", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct answer a;
        ask_with(&s, cases[i].headers, answer_of(2, false), &a);
        CHECK(a.http == cases[i].status, "status %d with '%s'", a.http, cases[i].headers);
        answer_free(&a);
        CHECK(get_status(&s, "/v1/models", cases[i].headers) == cases[i].status, "models with '%s'",
              cases[i].headers);
    }
    CHECK(get_status(&s, "/health", "") == 200, "health asks for a key");
    log = server_log(&s);
    CHECK(!strstr(log, "sk-0123"), "a key is in the log:\n%s", log);
    free(log);
    server_stop(&s);
    CHECK(server_try(model(), &log, "--host", "0.0.0.0", NULL) == 2 && strstr(log, "--api-key-file"), "%s", log);
    free(log);
    CHECK(server_try(model(), &log, "--api-key-file", write_file("open-keys", text, 0644), NULL) > 0 &&
              strstr(log, "chmod 600"),
          "%s", log);
    free(log);
    CHECK(server_try(model(), &log, "--api-key-file", "/nowhere/keys", NULL) > 0, "%s", log);
    free(log);
}

static void tls(void)
{
    struct server s;
    char *out, url[64];
    const char *cert = server_file("cert.pem"), *key = server_file("key.pem");
    const char *make[] = {"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",        "-keyout", key,
                          "-out",    cert,  "-days", "2",       "-subj",    "/CN=localhost", NULL};
    const char *fetch[] = {"curl", "-k", "-s", "-S", "-f", "-m", "60", "-d", "{\"prompt\": \"a\", \"max_tokens\": 2}",
                           url,    NULL};
    int made = server_run(make, &out);
    free(out);
    int has_curl = server_run((const char *const[]){"curl", "--version", NULL}, &out);
    free(out);
    if (made != 0 || has_curl != 0) {
        printf("SKIPPED: needs openssl and curl; ");
        return;
    }
    server_start(&s, model(), "--tls-cert", cert, "--tls-key", key, NULL);
    snprintf(url, sizeof url, "https://127.0.0.1:%u/v1/completions", s.port);
    struct http_conn silent, plain; /* one that says nothing, one that speaks plain HTTP: others are served */
    struct http_response r = {0};
    CHECK(http_connect(&silent, s.port) && http_connect(&plain, s.port), "cannot connect");
    http_sendf(&plain, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (int i = 0; i < 3; i++) {
        int code = server_run(fetch, &out);
        CHECK(code == 0 && strstr(out, "\"text_completion\""), "curl: %d, %s", code, out);
        free(out);
    }
    enum http_result result = http_read(&plain, &r, 5000 * SLOW);
    CHECK(result != HTTP_OK || r.status >= 400, "plain HTTP is answered: %d", r.status);
    http_response_free(&r);
    http_close(&silent);
    http_close(&plain);
    server_stop(&s);
}

/* ---- browsers -------------------------------------------------------------------------------------------------- */

static void cors(void)
{
    struct server s;
    struct http_response r = {0};
    char value[256];
    static const char preflight[] = "Origin: https://chat.example\r\nAccess-Control-Request-Method: POST\r\n"
                                    "Access-Control-Request-Headers: authorization, content-type\r\n";
    server_start(&s, model(), "--cors-origin", "https://chat.example", NULL);
    int status = get(&s, "OPTIONS", "/v1/chat/completions", preflight, &r);
    CHECK(status == 204 || status == 200, "status %d for a preflight", status);
    CHECK(http_header(&r, "Access-Control-Allow-Origin", value, sizeof value) &&
              strcmp(value, "https://chat.example") == 0,
          "%s", r.head);
    CHECK(http_header(&r, "Access-Control-Allow-Methods", value, sizeof value) && strstr(value, "POST"), "%s",
          r.head);
    CHECK(http_header(&r, "Access-Control-Allow-Headers", value, sizeof value), "%s", r.head);
    http_response_free(&r);
    CHECK(get(&s, "GET", "/v1/models", "Origin: https://chat.example\r\n", &r) == 200, "status %d", r.status);
    CHECK(http_header(&r, "Access-Control-Allow-Origin", value, sizeof value), "%s", r.head);
    http_response_free(&r);
    get(&s, "GET", "/v1/models", "Origin: https://other.example\r\n", &r);
    CHECK(r.status == 403, "status %d for another page", r.status);
    CHECK(!http_header(&r, "Access-Control-Allow-Origin", value, sizeof value) ||
              strcmp(value, "https://other.example") != 0,
          "any page may use it: %s", r.head);
    http_response_free(&r);
    server_stop(&s);
    server_start(&s, model(), NULL);
    get(&s, "OPTIONS", "/v1/chat/completions", preflight, &r);
    CHECK(!http_header(&r, "Access-Control-Allow-Origin", value, sizeof value), "without --cors-origin: %s", r.head);
    http_response_free(&r);
    server_stop(&s);
}

/* A page that a browser shows may not use a server without keys, by whatever name it comes. */
static void pages(void)
{
    static const struct {
        const char *headers; /* with the last one's \r\n */
        int status, status_no_auth;
    } cases[] = {
        {"Host: localhost\r\n", 200, 200},
        {"Host: LocalHost:8080\r\n", 200, 200},
        {"Host: 127.1.2.3:1\r\n", 200, 200},
        {"Host: [::1]:8080\r\n", 200, 200},
        {"Host: chat.localhost\r\n", 200, 200},
        {"Host: example.org\r\n", 403, 200},
        {"Host: localhost.example.org\r\n", 403, 200},
        {"Host: notlocalhost\r\n", 403, 200},
        {"Host: 127.0.0.1.example.org\r\n", 403, 200},
        {"Host: 10.0.0.1\r\n", 403, 200},
        {"Host: localhost:81\r\nOrigin: http://localhost:81\r\n", 200, 200},
        {"Host: localhost:81\r\nOrigin: http://localhost:82\r\n", 403, 200},
        {"Host: localhost\r\nOrigin: https://example.org\r\n", 403, 200},
        {"Host: localhost\r\nOrigin: null\r\n", 403, 200},
    };
    for (int no_auth = 0; no_auth < 2; no_auth++) {
        struct server s;
        server_start(&s, model(), no_auth ? "--no-auth" : NULL, NULL);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct http_conn c;
            struct http_response r = {0};
            int want = no_auth ? cases[i].status_no_auth : cases[i].status;
            CHECK(http_connect(&c, s.port), "connect");
            http_sendf(&c, "GET /v1/models HTTP/1.1\r\n%s\r\n", cases[i].headers);
            enum http_result got = http_read(&c, &r, 10000);
            CHECK(got == HTTP_OK && r.status == want, "%s: %s, status %d, not %d", cases[i].headers,
                  http_result_name(got), r.status, want);
            http_response_free(&r);
            http_close(&c);
        }
        server_stop(&s);
    }
}

/* ---- answers that are too large to keep ------------------------------------------------------------------------ */

static void large_answers(void)
{
    struct server s;
    struct http_conn c;
    struct answer a;
    server_start(&s, server_tiny_model(65536), "--max-rows", "2", "--cache-bytes", "256M", NULL);
    json_t *body = bodyf("{'prompt': 'a', 'max_tokens': 60000, 'n': 128, 'logprobs': 20}");
    ask(&s, json_incref(body), &a);
    CHECK(a.http == 400 && strstr(json_string_value(json_object_get(a.error, "message")), "512 MiB"), "status %d",
          a.http);
    answer_free(&a);
    ask_begin(&s, &c, with(json_incref(body), "stream", json_true()));
    CHECK(http_wait_readable(&c, 10000 * SLOW), "no stream");
    struct http_response r = {0};
    CHECK(http_read_head(&c, &r, 10000 * SLOW) == HTTP_OK && r.status == 200, "status %d of the stream", r.status);
    http_response_free(&r);
    http_close(&c);
    json_decref(body);
    CHECK(server_wait_idle(&s, 5000 * SLOW), "something is left");
    server_stop(&s);
}

/* ---- names and logs -------------------------------------------------------------------------------------------- */

/* Bytes that are no text, in the file's name: JSON cannot carry them. */
static void odd_file_name(void)
{
    struct server s;
    struct answer a;
    struct http_response r = {0};
    char *log;
    const char *path = server_file("na\xFFme\xC3.gguf");
    CHECK(symlink(model(), path) == 0, "cannot make %s", path);
    server_start(&s, path, NULL);
    CHECK(get(&s, "GET", "/v1/models", "", &r) == 200 && strstr(r.body, "\"na?me?\""), "%s", r.body);
    http_response_free(&r);
    ask(&s, with_text(answer_of(2, false), "model", "na?me?"), &a);
    CHECK(a.http == 200 && strcmp(a.model, "na?me?") == 0, "status %d, model %s", a.http, a.model);
    answer_free(&a);
    server_stop(&s);
    CHECK(server_try(model(), &log, "--alias", "a\xFF", NULL) == 2 && strstr(log, "UTF-8"), "%s", log);
    free(log);
}

static void names(void)
{
    struct server s;
    struct answer a;
    struct http_response r = {0};
    server_start(&s, model(), "--alias", "small-talk", "--log-json", NULL);
    expect_refusal(&s, with_text(answer_of(2, false), "model", "gpt-x"), 404, NULL, "small-talk");
    expect_refusal(&s, with_text(answer_of(2, true), "model", "gpt-x"), 404, NULL, "small-talk");
    ask(&s, with_text(answer_of(2, false), "model", "small-talk"), &a);
    CHECK(a.http == 200 && strcmp(a.model, "small-talk") == 0, "status %d, model %s", a.http, a.model);
    answer_free(&a);
    CHECK(get(&s, "GET", "/v1/models", "", &r) == 200 && strstr(r.body, "\"small-talk\""), "%s", r.body);
    http_response_free(&r);
    CHECK(get_status(&s, "/v1/models/small-talk", "") == 200, "the model's own page");
    CHECK(get_status(&s, "/v1/models/gpt-x", "") == 404, "another model's page");
    /* One line of JSON for each, and no word of what was said. */
    ask(&s, bodyf("{'prompt': 'a very secret question', 'max_tokens': 2}"), &a);
    answer_free(&a);
    server_stop(&s);
    char *log = server_log(&s);
    size_t n_lines = 0;
    CHECK(!strstr(log, "secret"), "the prompt is in the log:\n%s", log);
    for (char *line = log, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        json_t *object = json_loadb(line, (size_t)(end - line), 0, NULL);
        CHECK(json_is_object(object), "not JSON: %.*s", (int)(end - line), line);
        json_decref(object);
        n_lines++;
    }
    CHECK(n_lines >= 5, "only %zu lines:\n%s", n_lines, log);
    free(log);
}

/* ---- the same answer everywhere -------------------------------------------------------------------------------- */

/* The same request to servers with other rows, threads and chunks, the first thing they do or after others: the same
 * answer, and the same fingerprint. */
static void same_everywhere(void)
{
    static const char *const settings[][3] = {
        {"1", "1", "512"}, {"1", "1", "512"}, {"2", "1", "7"}, {"8", "2", "64"}, {"16", "2", "512"}};
    struct answer first = {0};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct server s;
        server_start(&s, model(), "--max-rows", settings[i][0], "--threads", settings[i][1], "--chunk",
                     settings[i][2], NULL);
        for (int warm = 0; warm < 4; warm++) {
            struct answer a, between;
            ask(&s,
                bodyf("{'messages': [{'role': 'user', 'content': 'hello world, the of and hello'}], 'max_tokens': 50,"
                      " 'temperature': %s, 'seed': 6, 'logprobs': true, 'top_logprobs': 4, 'ignore_eos': true,"
                      " 'stream': %s}",
                      "0", warm % 2 ? "true" : "false"),
                &a);
            CHECK(a.http == 200, "status %d", a.http);
            if (!first.choices) {
                first = a;
                continue;
            }
            CHECK(strcmp(a.choices_text, first.choices_text) == 0, "with %s rows, request %d:\n%s\nbefore:\n%s",
                  settings[i][0], warm, a.choices_text, first.choices_text);
            CHECK(strcmp(a.fingerprint, first.fingerprint) == 0, "fingerprint %s, before %s", a.fingerprint,
                  first.fingerprint);
            answer_free(&a);
            ask(&s, answer_of(20, false), &between);
            answer_free(&between);
        }
        server_stop(&s);
    }
    answer_free(&first);
}

int main(int argc, char **argv)
{
    RUN_TEST(stop_finishes);
#ifdef SENNIT_TEST_HOOKS
    RUN_TEST(stop_waiting_stream);
#endif
    RUN_TEST(stop_cancels);
    RUN_TEST(stop_idle);
    RUN_TEST(queue_full);
    RUN_TEST(first_in_first_out);
    RUN_TEST(fair);
    RUN_TEST(keys);
    RUN_TEST(tls);
    RUN_TEST(cors);
    RUN_TEST(pages);
    RUN_TEST(large_answers);
    RUN_TEST(odd_file_name);
    RUN_TEST(names);
    RUN_TEST(same_everywhere);
    return 0;
}
