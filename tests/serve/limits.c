/* Each limit that an option sets, at work and seen by a client; the defaults; what slow readers hold up (themselves);
 * what a fingerprint tells apart; requests and the cache's budget. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/calls.h"

enum { CONTEXT = 32768 };

static const char *model(void)
{
    return server_tiny_model(CONTEXT);
}

static json_t *answer_of(int n_tokens, bool stream)
{
    return with(bodyf("{'prompt': 'hello', 'max_tokens': %d, 'ignore_eos': true, 'seed': 5}", n_tokens), "stream",
                json_boolean(stream));
}

static const char *code_of(const struct answer *a)
{
    const char *code = json_string_value(json_object_get(a->error, "code"));
    return code ? code : "none";
}

/* ---- time ------------------------------------------------------------------------------------------------------ */

/* Running, streamed, waiting: each is told, and nothing of them stays. */
static void answer_timeout(void)
{
    struct server s;
    struct http_conn c[3];
    server_start(&s, model(), "--threads", "1", "--max-rows", "2", "--answer-timeout", "1", NULL);
    double from = http_now();
    for (int i = 0; i < 3; i++) {
        ask_begin(&s, &c[i], answer_of(30000, i == 1));
        CHECK(server_wait_rows(&s, i < 2 ? (uint32_t)i + 1 : 2, i == 2, 5000 * SLOW), "request %d is not there", i);
    }
    for (int i = 0; i < 3; i++) {
        struct answer a;
        read_answer(&c[i], i == 1, &a);
        CHECK(a.result == HTTP_OK && a.http == (i == 1 ? 200 : 504) && strcmp(code_of(&a), "answer_timeout") == 0,
              "request %d: %s, status %d, code %s", i, http_result_name(a.result), a.http, code_of(&a));
        answer_free(&a);
        http_close(&c[i]);
    }
    double took = http_now() - from;
    CHECK(took >= 1 && took < 1 + 4 * SLOW, "a limit of 1 s took %.2f s", took);
    CHECK(server_wait_idle(&s, 5000 * SLOW), "something is left");
    server_stop(&s);
}

/* ---- slow readers ---------------------------------------------------------------------------------------------- */

/* So much that no socket holds it; the thread sanitizer has no time for that. */
enum { LARGE = LESS > 4 ? 600 : 6000 };

static json_t *large_answer(void)
{
    return with(answer_of(LARGE, true), "logprobs", json_integer(20));
}

/* Streams that nobody reads keep neither the engine nor other clients: their tokens are made all the same, others are
 * served meanwhile, and who reads later reads everything. */
static void slow_readers(void)
{
    enum { N = 2 };
    struct server s;
    struct http_conn c[N];
    struct answer want, a;
    server_start(&s, model(), "--threads", "1", "--max-rows", "3", "--quiet", NULL);
    ask(&s, large_answer(), &want);
    CHECK(want.http == 200 && !want.error, "status %d", want.http);
    double before = server_metric(&s, "sennit_requests_finished_total{finish=\"length\"}");
    for (int i = 0; i < N; i++)
        ask_begin(&s, &c[i], large_answer());
    CHECK(server_wait_rows(&s, N, 0, 5000 * SLOW), "they do not run");
    ask(&s, answer_of(50, false), &a);
    CHECK(a.http == 200 && a.n_completion == 50, "beside slow readers: status %d", a.http);
    answer_free(&a);
    CHECK(server_wait_rows(&s, 0, 0, 60000 * SLOW), "the rows of slow readers do not end");
    CHECK(server_metric(&s, "sennit_requests_finished_total{finish=\"length\"}") == before + N + 1,
          "the rows of slow readers did not end with all their tokens");
    CHECK(LESS > 4 || server_metric(&s, "sennit_streams") == N, "%g streams are open",
          server_metric(&s, "sennit_streams"));
    for (int i = 0; i < N; i++) {
        read_answer(&c[i], true, &a);
        CHECK(a.result == HTTP_OK && strcmp(a.choices_text, want.choices_text) == 0, "%s, status %d: %.300s",
              http_result_name(a.result), a.http, a.choices_text);
        answer_free(&a);
        http_close(&c[i]);
    }
    answer_free(&want);
    CHECK(server_wait_idle(&s, 5000 * SLOW), "something is left");
    server_stop(&s);
}

/* Who takes nothing at all is let go after --idle-timeout. */
static void idle_timeout(void)
{
    struct server s;
    struct http_conn stuck, idle;
    struct http_response r = {0};
    server_start(&s, model(), "--threads", "1", "--idle-timeout", "1", "--request-timeout", "1", NULL);
    CHECK(http_connect(&idle, s.port), "cannot connect");
    http_request(&idle, "GET", "/health", "", NULL, 0);
    CHECK(http_read(&idle, &r, 5000 * SLOW) == HTTP_OK, "no answer");
    http_response_free(&r);
    double from = http_now();
    ask_begin(&s, &stuck, with(answer_of(30000, true), "logprobs", json_integer(20)));
    CHECK(server_wait_rows(&s, 1, 0, 5000 * SLOW), "it does not run");
    CHECK(http_wait_closed(&idle, 6000 * SLOW), "a connection between two requests is still open");
    CHECK(http_now() - from >= 0.5, "an idle connection was closed after %.2f s", http_now() - from);
    CHECK(server_wait_idle(&s, 60000 * SLOW), "a client that reads nothing is still there");
    http_close(&idle);
    http_close(&stuck);
    server_stop(&s);
}

/* ---- sizes and numbers ----------------------------------------------------------------------------------------- */

/* More connections than may be wait, and are served when there is room. */
static void max_connections(void)
{
    enum { N = 6 };
    struct server s;
    struct http_conn c[N], late;
    struct http_response r = {0};
    server_start(&s, model(), "--max-connections", "6", NULL);
    for (int i = 0; i < N; i++) {
        CHECK(http_connect(&c[i], s.port), "cannot connect");
        http_request(&c[i], "GET", "/health", "", NULL, 0);
        CHECK(http_read(&c[i], &r, 5000 * SLOW) == HTTP_OK && r.status == 200, "connection %d: status %d", i,
              r.status);
        http_response_free(&r);
    }
    CHECK(http_connect(&late, s.port), "cannot connect");
    http_request(&late, "GET", "/health", "", NULL, 0);
    CHECK(!http_wait_readable(&late, 300), "connection %d of %d is served, or refused", N + 1, N);
    http_close(&c[3]);
    CHECK(http_read(&late, &r, 5000 * SLOW) == HTTP_OK && r.status == 200, "status %d when there is room", r.status);
    http_response_free(&r);
    http_close(&late);
    for (int i = 0; i < N; i++)
        http_close(&c[i]);
    server_stop(&s);
}

static void begin_body(const struct server *s, struct http_conn *c, size_t announced, size_t sent)
{
    static const char start[] = "{\"prompt\": \"hello\", \"max_tokens\": 2";
    char *text = malloc(announced + 1);
    CHECK(text && announced > sizeof start, "no memory");
    memset(text, ' ', announced);
    text[announced] = '\0';
    memcpy(text, start, sizeof start - 1);
    text[announced - 1] = '}';
    CHECK(http_connect(c, s->port), "cannot connect");
    http_sendf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n", announced);
    http_send(c, text, sent);
    free(text);
}

/* Bodies that are large together are refused although each alone is not; those that are there are answered. */
static void body_memory(void)
{
    enum { KB = 1 << 10, BODY = 700 * KB, PART = 650 * KB };
    struct server s;
    struct http_conn first, second;
    struct answer a;
    server_start(&s, model(), "--max-body", "1M", "--body-memory", "1M", NULL);
    begin_body(&s, &first, BODY, PART);
    double until = http_now() + 5.0 * SLOW;
    while (server_metric(&s, "sennit_body_bytes") < PART && http_now() < until)
        sleep_ms(2);
    begin_body(&s, &second, BODY, BODY);
    read_answer(&second, false, &a);
    CHECK(a.http == 503 && strcmp(code_of(&a), "body_memory_full") == 0 && atoi(a.retry_after) > 0,
          "status %d, code %s, Retry-After '%s'", a.http, code_of(&a), a.retry_after);
    answer_free(&a);
    http_close(&second);
    for (int i = PART; i < BODY; i++)
        http_send(&first, i == BODY - 1 ? "}" : " ", 1);
    read_answer(&first, false, &a);
    CHECK(a.http == 200, "the first body: status %d", a.http);
    answer_free(&a);
    http_close(&first);
    begin_body(&s, &second, BODY, BODY);
    read_answer(&second, false, &a);
    CHECK(a.http == 200, "the second body, later: status %d", a.http);
    answer_free(&a);
    http_close(&second);
    CHECK(server_metric(&s, "sennit_body_bytes") == 0, "%g bytes of bodies are left",
          server_metric(&s, "sennit_body_bytes"));
    begin_body(&s, &first, 2048 * KB, 2048 * KB);
    read_answer(&first, false, &a);
    CHECK(a.http == 413 && strcmp(code_of(&a), "request_too_large") == 0, "status %d, code %s", a.http, code_of(&a));
    answer_free(&a);
    http_close(&first);
    server_stop(&s);
}

static int status_with_header(const struct server *s, size_t n_bytes)
{
    struct http_conn c;
    struct http_response r = {0};
    char *text = malloc(n_bytes + 1);
    CHECK(text, "no memory");
    memset(text, 'a', n_bytes);
    text[n_bytes] = '\0';
    CHECK(http_connect(&c, s->port), "cannot connect");
    http_sendf(&c, "GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: %s\r\n\r\n", text);
    int status = http_read(&c, &r, 5000 * SLOW) == HTTP_OK ? r.status : 0;
    http_response_free(&r);
    http_close(&c);
    free(text);
    return status;
}

static void max_header(void)
{
    struct server s;
    server_start(&s, model(), "--max-header", "4K", NULL);
    CHECK(status_with_header(&s, 1000) == 200, "1,000 bytes: status %d", status_with_header(&s, 1000));
    CHECK(status_with_header(&s, 20000) == 431, "20,000 bytes: status %d", status_with_header(&s, 20000));
    server_stop(&s);
    server_start(&s, model(), NULL);
    CHECK(status_with_header(&s, 20000) == 200, "by default, 20,000 bytes: status %d", status_with_header(&s, 20000));
    server_stop(&s);
}

/* ---- defaults -------------------------------------------------------------------------------------------------- */

static uint64_t tokens_by_default(const struct server *s, bool chat)
{
    struct answer a;
    ask(s,
        chat ? bodyf("{'messages': [{'role': 'user', 'content': 'a'}], 'ignore_eos': true}")
             : bodyf("{'prompt': [5, 6, 7], 'ignore_eos': true}"),
        &a);
    CHECK(a.http == 200 && (chat || a.n_prompt == 3), "status %d", a.http);
    uint64_t n = a.n_completion;
    answer_free(&a);
    return n;
}

static void expect_default(uint32_t context, const char *option, const char *value, uint64_t want, uint64_t want_chat)
{
    struct server s;
    server_start(&s, server_tiny_model(context), "--quiet", option, value, NULL);
    uint64_t n = tokens_by_default(&s, false), n_chat = tokens_by_default(&s, true);
    CHECK(n == want && (want_chat == 0 || n_chat == want_chat), "without max_tokens %llu and %llu tokens",
          (unsigned long long)n, (unsigned long long)n_chat);
    server_stop(&s);
}

static void defaults(void)
{
    struct server s;
    char budget[64], *log;
    expect_default(2048, NULL, NULL, 1024, 1024);
    expect_default(2048, "--max-tokens", "7", 7, 7);
    expect_default(256, NULL, NULL, 253, 0);
    server_start(&s, model(), NULL);
    CHECK(server_metric(&s, "sennit_rows_max") == 16 && server_metric(&s, "sennit_queue_limit") == 128,
          "%g rows, %g may wait", server_metric(&s, "sennit_rows_max"), server_metric(&s, "sennit_queue_limit"));
    snprintf(budget, sizeof budget, "cache: %.0f bytes", server_metric(&s, "sennit_cache_budget_bytes"));
    log = server_log(&s);
    CHECK(strstr(log, budget), "'%s' is not in\n%s", budget, log);
    free(log);
    server_stop(&s);
}

/* ---- who may, and what is said about it ------------------------------------------------------------------------ */

static void no_auth(void)
{
    struct server s;
    struct answer a;
    server_start(&s, model(), "--host", "0.0.0.0", "--no-auth", NULL);
    ask(&s, answer_of(2, false), &a);
    CHECK(a.http == 200, "status %d", a.http);
    answer_free(&a);
    server_stop(&s);
}

/* A line has the request's id, tokens, times and finish; the prompt only when asked for. */
static void log_lines(void)
{
    static const char secret[] = "quite a secret";
    for (int asked = 0; asked < 2; asked++) {
        struct server s;
        struct answer a, b;
        server_start(&s, model(), "--log-json", asked ? "--log-prompts" : NULL, NULL);
        ask(&s, with_text(answer_of(3, false), "prompt", secret), &a);
        ask(&s, bodyf("{'messages': [{'role': 'user', 'content': '%s'}], 'max_tokens': 2, 'stream': true}", secret),
            &b);
        server_stop(&s);
        char *log = server_log(&s);
        size_t n_found = 0, n_secrets = 0;
        for (const char *at = log; (at = strstr(at, secret)) != NULL; at++)
            n_secrets++;
        CHECK(n_secrets == (asked ? 2 : 0), "%zu prompts in\n%s", n_secrets, log);
        for (char *line = log, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
            json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);
            const char *id = json_string_value(json_object_get(o, "id"));
            if (id && strcmp(id, a.id) == 0) {
                CHECK(json_integer_value(json_object_get(o, "prompt_tokens")) == (json_int_t)a.n_prompt &&
                          json_integer_value(json_object_get(o, "completion_tokens")) == 3 &&
                          json_integer_value(json_object_get(o, "status")) == 200 &&
                          json_is_number(json_object_get(o, "queue_s")) &&
                          json_is_number(json_object_get(o, "first_token_s")) &&
                          json_is_number(json_object_get(o, "total_s")) &&
                          strcmp(json_string_value(json_object_get(o, "finish")), "length") == 0,
                      "%.*s", (int)(end - line), line);
                n_found++;
            }
            json_decref(o);
        }
        CHECK(n_found == 1, "%zu lines for %s in\n%s", n_found, a.id, log);
        free(log);
        answer_free(&a);
        answer_free(&b);
    }
}

/* The page of metrics counts what was done: two answers, two refusals, one that hung up. */
static void metrics(void)
{
    static const struct {
        const char *name;
        double value;
    } want[] = {
        {"sennit_requests_total", 3},
        {"sennit_requests_finished_total{finish=\"length\"}", 2},
        {"sennit_requests_finished_total{finish=\"cancelled\"}", 1},
        {"sennit_refusals_total{reason=\"bad_request\"}", 1},
        {"sennit_refusals_total{reason=\"not_found\"}", 1},
        {"sennit_hangups_total", 1},
        {"sennit_responses_total{status=\"400\"}", 1},
        {"sennit_responses_total{status=\"404\"}", 1},
        {"sennit_usage_tokens_total{kind=\"completion\"}", 30},
        {"sennit_request_seconds_count", 2},
        {"sennit_first_token_seconds_count", 3},
        {"sennit_queue_seconds_count", 3},
        {"sennit_per_token_seconds_count", 2},
        {"sennit_rows_running", 0},
        {"sennit_rows_waiting", 0},
        {"sennit_streams", 0},
        {"sennit_healthy", 1},
    };
    struct server s;
    struct http_conn c;
    struct http_response r = {0};
    struct answer a;
    server_start(&s, model(), "--threads", "1", NULL);
    for (int stream = 0; stream < 2; stream++) {
        ask(&s, answer_of(10 + 10 * stream, stream), &a);
        CHECK(a.http == 200, "status %d", a.http);
        answer_free(&a);
    }
    expect_refusal(&s, with(answer_of(2, false), "n", json_integer(0)), 400, "n", NULL);
    expect_refusal(&s, with_text(answer_of(2, false), "model", "another"), 404, "model", NULL);
    ask_begin(&s, &c, answer_of(30000, true));
    CHECK(http_read_head(&c, &r, 5000 * SLOW) == HTTP_OK && r.status == 200, "status %d", r.status);
    CHECK(http_read_event(&c, &r, 5000 * SLOW) == HTTP_OK, "no first event");
    http_response_free(&r);
    http_close(&c);
    CHECK(server_wait_idle(&s, 5000 * SLOW), "something is left");
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        CHECK(server_metric(&s, want[i].name) == want[i].value, "%s is %g instead of %g", want[i].name,
              server_metric(&s, want[i].name), want[i].value);
    CHECK(server_metric(&s, "sennit_tokens_total{kind=\"answer\"}") > 30, "%g tokens",
          server_metric(&s, "sennit_tokens_total{kind=\"answer\"}"));
    CHECK(server_metric(&s, "sennit_request_seconds_sum") > 0, "answers took no time");
    server_stop(&s);
}

/* All addresses of IPv6 are public too, where this machine has them. */
static void other_addresses(void)
{
    char *log;
    int code = server_try(model(), &log, "--host", "::", NULL);
    CHECK(code == 2 ? strstr(log, "--api-key-file") != NULL : code == 1 && strstr(log, "cannot listen"), "%d: %s",
          code, log);
    free(log);
    code = server_try(model(), &log, "--host", "no such host", NULL);
    CHECK(code == 1 && strstr(log, "--host"), "%d: %s", code, log);
    free(log);
}

static void fingerprint_of(char out[64], const char *path, const char *option, const char *value)
{
    struct server s;
    struct answer a;
    server_start(&s, path, "--threads", "1", option, value, NULL);
    ask(&s, answer_of(1, false), &a);
    CHECK(a.http == 200 && a.fingerprint[0], "status %d", a.http);
    snprintf(out, 64, "%s", a.fingerprint);
    answer_free(&a);
    server_stop(&s);
}

/* What answers depend on is told apart, and nothing else. */
static void fingerprints(void)
{
    char plain[64], same[64], other[4][64];
    fingerprint_of(plain, model(), NULL, NULL);
    fingerprint_of(same, model(), "--kv", "f16");
    CHECK(strcmp(plain, same) == 0, "%s, %s", plain, same);
    fingerprint_of(same, model(), "--isa", "scalar");
    CHECK(strcmp(plain, same) == 0, "%s, %s", plain, same);
    fingerprint_of(other[0], model(), "--kv", "f32");
    fingerprint_of(other[1], model(), "--kv", "bf16");
    fingerprint_of(other[2], model(), "--pre", "llama-bpe");
    fingerprint_of(other[3], server_tiny_model(256), NULL, NULL);
    for (int i = 0; i < 4; i++) {
        CHECK(strcmp(other[i], plain) != 0, "case %d has the fingerprint %s too", i, plain);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(other[i], other[j]) != 0, "cases %d and %d are both %s", i, j, other[i]);
    }
}

/* ---- the cache's budget ---------------------------------------------------------------------------------------- */

/* A request that can never fit is refused with both numbers, streamed or not; requests that fit one by one wait for
 * one another whatever was cancelled between them, and none fails. */
static void budget(void)
{
    enum { N = 12, TOKENS = 800 }; /* two of them fit at a time */
    struct server s;
    struct http_conn c[N];
    struct answer a, want;
    char bytes[32];
    server_start(&s, model(), "--threads", "1", "--max-rows", "8", NULL);
    ask(&s, answer_of(TOKENS, false), &want);
    server_stop(&s);
    server_start(&s, model(), "--threads", "1", "--max-rows", "8", "--cache-bytes", "512K", NULL);
    snprintf(bytes, sizeof bytes, "%d", 512 << 10);
    expect_refusal(&s, answer_of(30000, false), 400, NULL, bytes);
    expect_refusal(&s, answer_of(30000, true), 400, NULL, bytes);
    double refused = server_metric(&s, "sennit_refusals_total{reason=\"budget\"}");
    CHECK(refused == 2, "%g refusals for the budget", refused);
    double most = 0;
    for (int i = 0; i < N; i++)
        ask_begin(&s, &c[i], answer_of(i % 3 == 2 ? TOKENS / 7 : TOKENS, i % 2));
    for (double until = http_now() + SLOW; most == 0 && http_now() < until;) {
        struct server_gauges g = server_gauges(&s);
        most = g.waiting > most ? g.waiting : most;
        CHECK(g.cache_reserved <= 512 << 10, "%g bytes promised", g.cache_reserved);
    }
    for (int i = 2; i < N; i += 3)
        http_reset(&c[i]);
    for (int i = 0; i < N; i++) {
        if (i % 3 == 2)
            continue;
        read_answer(&c[i], i % 2, &a);
        CHECK(a.http == 200 && !a.error && strcmp(a.choices_text, want.choices_text) == 0, "request %d: status %d", i,
              a.http);
        answer_free(&a);
        http_close(&c[i]);
    }
    CHECK(most > 0, "nobody had to wait");
    answer_free(&want);
    CHECK(server_wait_idle(&s, 5000 * SLOW), "something is left");
    server_stop(&s);
}

/* ---- text that looks like a call of a tool --------------------------------------------------------------------- */

/* What a model writes is content, whatever it looks like. */
static void broken_calls_are_content(void)
{
    struct server s;
    server_start(&s, model(), "--threads", "1", NULL);
    for (int stream = 0; stream < 2; stream++) {
        struct answer a;
        ask(&s,
            with(bodyf("{'messages': [{'role': 'user', 'content': 'a'}, {'role': 'assistant', 'tool_calls': [{'id': "
                       "'1', 'type': 'function', 'function': {'name': 'f', 'arguments': '{}'}}]}, {'role': 'tool', "
                       "'tool_call_id': '1', 'content': 'b'}], 'tool_choice': 'none', 'max_tokens': 6, "
                       "'logit_bias': {'%d': 100}}",
                       TINY_N_SPECIAL + '{'),
                 "stream", json_boolean(stream)),
            &a);
        CHECK(a.http == 200 && strcmp(answer_text(&a, 0), "{{{{{{") == 0, "status %d", a.http);
        answer_free(&a);
    }
    server_stop(&s);
}

/* ---- TLS ------------------------------------------------------------------------------------------------------- */

/* False, and says so, where the programs for it are not there. */
static bool make_certificate(const char *cert, const char *key)
{
    char *out;
    const char *make[] = {"openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes",        "-keyout", key,
                          "-out",    cert,  "-days", "2",       "-subj",    "/CN=localhost", NULL};
    int made = server_run(make, &out);
    free(out);
    int has_curl = server_run((const char *const[]){"curl", "--version", NULL}, &out);
    free(out);
    if (made == 0 && has_curl == 0)
        return true;
    printf("SKIPPED: needs openssl and curl; ");
    return false;
}

/* A client that leaves is noticed behind TLS too. */
static void tls_hangup(void)
{
    struct server s;
    char *out, url[64], metrics[64];
    const char *cert = server_file("cert.pem"), *key = server_file("key.pem");
    const char *look[] = {"curl", "-k", "-s", "-S", "-f", "-m", "60", metrics, NULL};
    if (!make_certificate(cert, key))
        return;
    server_start(&s, model(), "--threads", "1", "--tls-cert", cert, "--tls-key", key, NULL);
    snprintf(url, sizeof url, "https://127.0.0.1:%u/v1/completions", s.port);
    snprintf(metrics, sizeof metrics, "https://127.0.0.1:%u/metrics", s.port);
    for (int stream = 0; stream < 2; stream++) {
        char body[128];
        snprintf(body, sizeof body,
                 "{\"prompt\": \"a\", \"max_tokens\": 30000, \"ignore_eos\": true, \"stream\": %s}",
                 stream ? "true" : "false");
        const char *leave[] = {"curl", "-k", "-s", "-m", SLOW > 1 ? "6" : "1", "-d", body, url, NULL};
        int code = server_run(leave, &out);
        CHECK(code == 28, "curl: %d, %.300s", code, out); /* it gave up waiting */
        CHECK(!stream || strstr(out, "data: {"), "no stream: %.300s", out);
        free(out);
        double from = http_now();
        for (bool gone = false; !gone;) {
            code = server_run(look, &out);
            CHECK(code == 0, "curl: %d, %s", code, out);
            gone = strstr(out, "\nsennit_rows_running 0\n") && strstr(out, "\nsennit_cache_bytes{use=\"live\"} 0\n");
            CHECK(gone || http_now() - from < 1.0 * SLOW, "after %.2f s the request still runs", http_now() - from);
            CHECK(strstr(out, "\nsennit_requests_finished_total{finish=\"length\"} 0\n"), "it had ended by itself");
            free(out);
        }
    }
    server_stop(&s);
}

static double cpu_seconds(const char *const *look)
{
    char *out;
    int code = server_run(look, &out);
    const char *at = strstr(out, "\nprocess_cpu_seconds_total ");
    CHECK(code == 0 && at, "curl: %d, %.300s", code, out);
    double seconds = strtod(strchr(at + 1, ' '), NULL);
    free(out);
    return seconds;
}

/* A handshake that stops in its middle costs no time, and nobody else waits for it. */
static void tls_silence(void)
{
    static const char beginning[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01};
    struct server s;
    struct http_conn c[8];
    char metrics[64];
    const char *cert = server_file("cert2.pem"), *key = server_file("key2.pem");
    const char *look[] = {"curl", "-k", "-s", "-S", "-f", "-m", "60", metrics, NULL};
    if (!make_certificate(cert, key))
        return;
    server_start(&s, model(), "--threads", "1", "--tls-cert", cert, "--tls-key", key, NULL);
    snprintf(metrics, sizeof metrics, "https://127.0.0.1:%u/metrics", s.port);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        CHECK(http_connect(&c[i], s.port) && http_send(&c[i], beginning, i < 6 ? i + 1 : sizeof beginning),
              "connect");
    double from = http_now(), cpu = cpu_seconds(look);
    sleep_ms(2000);
    cpu = cpu_seconds(look) - cpu;
    double passed = http_now() - from;
    CHECK(cpu < passed / 4, "%.2f s of CPU in %.2f s for handshakes that stand still", cpu, passed);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++)
        http_close(&c[i]);
    server_stop(&s);
}

int main(int argc, char **argv)
{
    RUN_TEST(answer_timeout);
    RUN_TEST(slow_readers);
    RUN_TEST(idle_timeout);
    RUN_TEST(max_connections);
    RUN_TEST(body_memory);
    RUN_TEST(max_header);
    RUN_TEST(defaults);
    RUN_TEST(no_auth);
    RUN_TEST(log_lines);
    RUN_TEST(metrics);
    RUN_TEST(other_addresses);
    RUN_TEST(fingerprints);
    RUN_TEST(budget);
    RUN_TEST(broken_calls_are_content);
    RUN_TEST(tls_hangup);
    RUN_TEST(tls_silence);
    return 0;
}
