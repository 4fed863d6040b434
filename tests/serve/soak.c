/* A mixed load for some time: answers stay right, nothing gets stuck, memory does not grow.
 *
 *   soak [--seconds N]    default 120; a sixth of it under sanitizers
 *
 * Memory: after a quarter of the time for warming up, a straight line through the resident sizes. What a leak costs
 * grows with the number of requests; heaps that settle do not. So the line may rise by 1 MB (freed blocks that the
 * heap keeps) and 16 bytes for each request, less than the smallest block that could be forgotten. Sanitizers keep
 * freed memory on purpose, and find leaks at the end themselves: there it is only printed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/calls.h"

enum { N_CLIENTS = 8, N_PROBLEMS = 24, MOST_SAMPLES = 4096, SAMPLE_MS = 250 };

static struct {
    struct server server;
    char *bodies[N_PROBLEMS];
    struct answer want[N_PROBLEMS];
    atomic_bool enough;
    atomic_ullong n_answers, n_hangups, n_refusals;
} all;

static void make_problem(int i, uint64_t *state)
{
    json_t *ids = json_array();
    for (uint64_t n = 1 + run_random(state) % 200; n > 0; n--)
        json_array_append_new(ids, json_integer((json_int_t)(3 + run_random(state) % 290)));
    json_t *body = bodyf("{'max_tokens': %d, 'temperature': %s, 'seed': %d, 'n': %d, 'ignore_eos': true}",
                         1 + (int)(run_random(state) % 40), i % 2 ? "0.8" : "0", i, 1 + i % 3);
    with(body, "prompt", ids);
    if (i % 4 == 3)
        with(body, "logprobs", json_integer(2));
    all.bodies[i] = json_dumps(body, JSON_COMPACT);
    json_decref(body);
}

static json_t *body_of(int i, bool stream)
{
    return with(json_loads(all.bodies[i], 0, NULL), "stream", json_boolean(stream));
}

static void hang_up(uint64_t *state)
{
    struct http_conn c;
    ask_begin(&all.server, &c, body_of((int)(run_random(state) % N_PROBLEMS), run_random(state) % 2));
    if (run_random(state) % 2)
        http_wait_readable(&c, (int)(run_random(state) % 10));
    if (run_random(state) % 2)
        http_reset(&c);
    else
        http_close(&c);
    atomic_fetch_add(&all.n_hangups, 1);
}

static void wrong_request(uint64_t *state)
{
    struct answer a;
    ask(&all.server, bodyf("{'prompt': 'a', 'max_tokens': %d, 'wrong': %d}", 5, (int)(run_random(state) % 100)), &a);
    CHECK(a.http == 400, "status %d", a.http);
    answer_free(&a);
    atomic_fetch_add(&all.n_refusals, 1);
}

static void *client(void *number)
{
    uint64_t state = 1000 + *(uint64_t *)number;
    while (!atomic_load(&all.enough)) {
        uint64_t what = run_random(&state) % 10;
        if (what < 2) {
            hang_up(&state);
        } else if (what < 3) {
            wrong_request(&state);
        } else {
            struct answer a;
            int i = (int)(run_random(&state) % N_PROBLEMS);
            ask(&all.server, body_of(i, run_random(&state) % 2), &a);
            CHECK(a.http == 200 && strcmp(a.choices_text, all.want[i].choices_text) == 0,
                  "status %d; under load:\n%s\nalone:\n%s", a.http, a.choices_text, all.want[i].choices_text);
            answer_free(&a);
            atomic_fetch_add(&all.n_answers, 1);
        }
        sleep_ms((uint32_t)(run_random(&state) % 40));
    }
    return NULL;
}

/* Bytes per second, least squares over samples (t, bytes). */
static double slope(const double *t, const double *bytes, size_t n)
{
    double mean_t = 0, mean_b = 0, tt = 0, tb = 0;
    for (size_t i = 0; i < n; i++) {
        mean_t += t[i] / (double)n;
        mean_b += bytes[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        tt += (t[i] - mean_t) * (t[i] - mean_t);
        tb += (t[i] - mean_t) * (bytes[i] - mean_b);
    }
    return tb / tt;
}

static unsigned long long n_requests(void)
{
    return atomic_load(&all.n_answers) + atomic_load(&all.n_hangups) + atomic_load(&all.n_refusals);
}

static void watch(double seconds)
{
    static double t[MOST_SAMPLES], bytes[MOST_SAMPLES];
    size_t n = 0;
    double from = http_now(),
           every = seconds / MOST_SAMPLES * 1000 > SAMPLE_MS ? seconds / MOST_SAMPLES * 1000 : SAMPLE_MS;
    unsigned long long before = 0;
    for (double now = 0; now < seconds; now = http_now() - from) {
        if (now > seconds / 4 && n < MOST_SAMPLES) {
            before = n == 0 ? n_requests() : before;
            t[n] = now;
            bytes[n++] = server_gauges(&all.server).resident_bytes;
        }
        sleep_ms((uint32_t)every);
    }
    CHECK(n > 10, "only %zu samples", n);
    double rise = slope(t, bytes, n) * (t[n - 1] - t[0]), requests = (double)(n_requests() - before);
    printf("%.0f requests, resident %.1f MB, rising by %.0f bytes per s, %.1f per request\n", requests,
           bytes[n - 1] / 1e6, rise / (t[n - 1] - t[0]), rise / requests);
    CHECK(SLOW > 1 || rise < 1e6 + 16 * requests, "memory grew by %.1f MB over %.0f requests", rise / 1e6, requests);
}

int main(int argc, char **argv)
{
    double seconds = argc > 2 && strcmp(argv[1], "--seconds") == 0 ? strtod(argv[2], NULL) : 120;
    seconds /= LESS > 1 ? 6 : 1;
    uint64_t state = 7, numbers[N_CLIENTS];
    pthread_t threads[N_CLIENTS];
    server_start(&all.server, server_tiny_model(2048), "--max-rows", "6", "--threads", "1", "--quiet", NULL);
    for (int i = 0; i < N_PROBLEMS; i++) {
        make_problem(i, &state);
        ask(&all.server, body_of(i, false), &all.want[i]);
        CHECK(all.want[i].http == 200, "status %d for %s", all.want[i].http, all.bodies[i]);
    }
    for (uint64_t i = 0; i < N_CLIENTS; i++) {
        numbers[i] = i;
        CHECK(pthread_create(&threads[i], NULL, client, &numbers[i]) == 0, "no thread");
    }
    watch(seconds);
    atomic_store(&all.enough, true);
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_join(threads[i], NULL);
    printf("%llu right answers, %llu hang-ups, %llu refusals\n", atomic_load(&all.n_answers),
           atomic_load(&all.n_hangups), atomic_load(&all.n_refusals));
    CHECK(server_wait_idle(&all.server, 5000 * SLOW), "something is left");
    server_stop(&all.server);
    for (int i = 0; i < N_PROBLEMS; i++) {
        answer_free(&all.want[i]);
        free(all.bodies[i]);
    }
    return 0;
}
