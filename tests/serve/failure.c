/* An engine that fails or hangs: health says so, nobody waits for an answer that cannot come, and with
 * --exit-on-failure the program ends. Needs a library with test hooks. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "serve/calls.h"

#ifndef SENNIT_TEST_HOOKS
int main(void)
{
    puts("SKIPPED: built without SENNIT_TEST_HOOKS (debug and sanitizer builds have them)");
    return 77;
}
#else

enum { N_CLIENTS = 6, AT_ONCE_MS = 1000 };

static struct server server;
static double told[N_CLIENTS]; /* when each client had its error */

static int health(void)
{
    struct http_conn c;
    struct http_response r = {0};
    CHECK(http_connect(&c, server.port), "cannot connect");
    http_request(&c, "GET", "/health", "Connection: close\r\n", NULL, 0);
    enum http_result result = http_read(&c, &r, 5000 * SLOW);
    CHECK(result == HTTP_OK, "/health: %s", http_result_name(result));
    int status = r.status;
    http_response_free(&r);
    http_close(&c);
    return status;
}

static json_t *endless(bool stream)
{
    return with(bodyf("{'prompt': 'hello', 'max_tokens': 15000, 'ignore_eos': true}"), "stream",
                json_boolean(stream));
}

/* Running and waiting, streamed and not: each ends with an error of its own. */
static void *client(void *when)
{
    struct answer a;
    bool stream = ((double *)when - told) % 2;
    ask(&server, endless(stream), &a);
    *(double *)when = http_now();
    CHECK(a.result == HTTP_OK && a.error, "%s, status %d without an error", http_result_name(a.result), a.http);
    CHECK(a.http >= 500 || (stream && a.http == 200), "status %d", a.http);
    answer_free(&a);
    return NULL;
}

static void fail(const char *exit_on_failure)
{
    pthread_t threads[N_CLIENTS];
    char step[16];
    double first = 0, last = 0;
    snprintf(step, sizeof step, "%d", 4000 / LESS);
    server_start(&server, server_tiny_model(16384), "--max-rows", "2", "--threads", "1", "--test-fail-step", step,
                 exit_on_failure, NULL);
    for (int i = 0; i < N_CLIENTS; i++)
        CHECK(pthread_create(&threads[i], NULL, client, &told[i]) == 0, "no thread");
    CHECK(server_wait_rows(&server, 2, N_CLIENTS - 2, 5000 * SLOW), "two do not run, or the others do not wait");
    for (int i = 0; i < N_CLIENTS; i++) {
        pthread_join(threads[i], NULL);
        first = i == 0 || told[i] < first ? told[i] : first;
        last = told[i] > last ? told[i] : last;
    }
    CHECK((last - first) * 1000 < AT_ONCE_MS * SLOW, "the last client was told %.2f s after the first", last - first);
}

static void engine_fails(void)
{
    fail(NULL);
    double from = http_now();
    CHECK(health() == 503, "/health says %d", health());
    for (int stream = 0; stream < 2; stream++) {
        struct answer a;
        ask(&server, endless(stream), &a);
        CHECK(a.http >= 500 && a.error, "a new request gets %d", a.http);
        answer_free(&a);
    }
    CHECK((http_now() - from) * 1000 < AT_ONCE_MS * SLOW, "refusals took %.1f s", http_now() - from);
    CHECK(server_metric(&server, "sennit_healthy") == 0, "the metric says healthy");
    server_stop(&server);
}

static void exits_on_failure(void)
{
    fail("--exit-on-failure");
    int code = server_wait_exit(&server, 10000 * SLOW);
    CHECK(code == 5, "exit code %d", code);
}

/* A new request is taken, and its end noticed, while the engine is in a step. */
static void leave_meanwhile(void)
{
    struct http_conn c;
    ask_begin(&server, &c, endless(true));
    CHECK(server_wait_rows(&server, 1, 1, 1000 * SLOW), "a request is not taken beside a step that hangs");
    http_half_close(&c);
    CHECK(http_wait_closed(&c, 1000 * SLOW), "a hang-up is not noticed beside a step that hangs");
    CHECK(health() == 503, "the step has ended too early for this test");
    http_close(&c);
}

/* Health fails while a step hangs, and recovers; the answer comes as if nothing had been. */
static void engine_stalls(void)
{
    struct http_conn c;
    struct answer a;
    server_start(&server, server_tiny_model(16384), "--threads", "1", "--stall-timeout", "1", "--test-stall-step",
                 "20", "--test-stall-ms", "4000", NULL);
    ask_begin(&server, &c, bodyf("{'prompt': 'hello', 'max_tokens': 100, 'ignore_eos': true}"));
    double from = http_now(), failed = 0, longest = 0;
    while (failed <= 0 && http_now() - from < 4 * SLOW) {
        double asked = http_now();
        int status = health();
        longest = http_now() - asked > longest ? http_now() - asked : longest;
        if (status == 503)
            failed = http_now() - from;
        sleep_ms(10);
    }
    CHECK(failed >= 1, "/health failed %.2f s after the start of a step that hangs", failed);
    CHECK(longest < 0.5 * SLOW, "/health took %.2f s beside a step that hangs", longest);
    leave_meanwhile();
    read_answer(&c, false, &a);
    CHECK(a.http == 200 && a.n_completion == 100, "status %d, %llu tokens", a.http,
          (unsigned long long)a.n_completion);
    CHECK(health() == 200, "/health says %d after the stall", health());
    answer_free(&a);
    http_close(&c);
    server_stop(&server);
}

int main(int argc, char **argv)
{
    RUN_TEST(engine_fails);
    RUN_TEST(exits_on_failure);
    RUN_TEST(engine_stalls);
    return 0;
}
#endif
