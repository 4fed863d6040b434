/* Clients that leave: at each phase of a request and in each way, noticed at once, and nothing stays behind. Others
 * are not disturbed, and afterwards the server does nothing at all. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/calls.h"

enum {
    N_EACH = LESS > 4 ? 40 : 200, /* hang-ups in a phase, each looked after; half as many among others */
    NOTICED_MS = 1000,            /* allowed from the hang-up until nothing is left of the request */
    CONTEXT = 16384,
    LONG_PROMPT = 6000, /* tokens: read in many steps of 16 */
    LONG_ANSWER = 10000
};

enum way { CLOSE, RESET, HALF_CLOSE, N_WAYS };
static const char *const way_names[] = {"close", "reset", "half-close"};

static struct server server;
static char *long_prompt;       /* JSON array of ids */
static double blockers_reserve; /* bytes */

struct phase {
    const char *name;
    void (*reach)(struct http_conn *c); /* connects, and gets a request into the phase */
    bool needs_blockers;
};

/* ---- the phases ------------------------------------------------------------------------------------------------ */

static void connect_to(struct http_conn *c)
{
    CHECK(http_connect(c, server.port), "cannot connect");
}

static json_t *long_answer(bool stream)
{
    return with(bodyf("{'prompt': 'hello', 'max_tokens': %d, 'ignore_eos': true}", LONG_ANSWER), "stream",
                json_boolean(stream));
}

static void in_headers(struct http_conn *c)
{
    connect_to(c);
    http_sendf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le");
    CHECK(!http_wait_readable(c, 1), "an answer before the end of the headers");
}

static void in_body(struct http_conn *c)
{
    connect_to(c);
    http_sendf(c,
               "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n{\"prompt\": \"hel");
    CHECK(!http_wait_readable(c, 1), "an answer before the end of the body");
}

static void queued(struct http_conn *c)
{
    ask_begin(&server, c, long_answer(true));
    CHECK(server_wait_rows(&server, 2, 1, 5000 * SLOW), "the request does not wait");
}

static void in_prefill(struct http_conn *c)
{
    char body[64];
    snprintf(body, sizeof body, "{\"max_tokens\": 5000, \"ignore_eos\": true, \"prompt\": ");
    connect_to(c);
    size_t n = strlen(body) + strlen(long_prompt) + 1;
    http_sendf(c, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s%s}", n, body,
               long_prompt);
    CHECK(server_wait_rows(&server, 1, 0, 5000 * SLOW), "the prompt is not being read");
}

static void in_answer(struct http_conn *c)
{
    ask_begin(&server, c, long_answer(false));
    CHECK(server_wait_rows(&server, 1, 0, 5000 * SLOW), "the request does not run");
    sleep_ms(2);
}

static void in_stream(struct http_conn *c)
{
    struct http_response r = {0};
    ask_begin(&server, c, long_answer(true));
    CHECK(http_read_head(c, &r, 5000 * SLOW) == HTTP_OK && r.status == 200, "status %d", r.status);
    CHECK(http_read_event(c, &r, 5000 * SLOW) == HTTP_OK, "no first event");
    http_response_free(&r);
}

static const struct phase phases[] = {
    {"headers", in_headers, false}, {"body", in_body, false},     {"queue", queued, true},
    {"prompt", in_prefill, false},  {"answer", in_answer, false}, {"stream", in_stream, false},
};

/* ---- hanging up ------------------------------------------------------------------------------------------------ */

static void leave(struct http_conn *c, enum way way)
{
    if (way == RESET)
        http_reset(c);
    else if (way == CLOSE)
        http_close(c);
    else
        http_half_close(c);
}

/* What is there when only the blockers are. */
static bool only_blockers(const struct server_gauges *g, uint32_t n_blockers)
{
    if (g->rows != n_blockers || g->waiting != 0 || g->connections > n_blockers + 1 || g->jobs > n_blockers + 1)
        return false;
    return n_blockers > 0 ? g->cache_reserved == blockers_reserve : g->cache_bytes == 0 && g->cache_reserved == 0;
}

static double hang_up(const struct phase *phase, enum way way, uint32_t n_blockers)
{
    struct http_conn c;
    phase->reach(&c);
    double from = http_now(), took;
    leave(&c, way);
    for (;;) {
        struct server_gauges g = server_gauges(&server);
        took = http_now() - from;
        if (only_blockers(&g, n_blockers))
            break;
        CHECK(took * 1000 < NOTICED_MS * SLOW,
              "%s in %s: after %.3f s there are %g rows, %g waiting, %g cache bytes, %g reserved, %g jobs, %g "
              "connections",
              way_names[way], phase->name, took, g.rows, g.waiting, g.cache_bytes, g.cache_reserved, g.jobs,
              g.connections);
        sleep_ms(1);
    }
    if (way == HALF_CLOSE)
        CHECK(http_wait_closed(&c, NOTICED_MS * SLOW), "half-close in %s: the server's side stays open", phase->name);
    http_close(&c);
    return took;
}

/* Two streams that take the two rows for as long as they are wanted; slow readers, so they hold them. */
static void block(struct http_conn *blockers)
{
    for (int i = 0; i < 2; i++)
        ask_begin(&server, &blockers[i], long_answer(true));
    CHECK(server_wait_rows(&server, 2, 0, 5000 * SLOW), "the blockers do not run");
    blockers_reserve = server_gauges(&server).cache_reserved;
}

static void unblock(struct http_conn *blockers)
{
    for (int i = 0; i < 2; i++)
        http_close(&blockers[i]);
    CHECK(server_wait_idle(&server, 5000 * SLOW), "the blockers are still there");
}

/* Alone: everything is as before after each of them. */
static void quiet(const struct phase *phase)
{
    struct http_conn blockers[2];
    double most = 0;
    for (int i = 0; i < N_EACH; i++) {
        if (phase->needs_blockers && i % 20 == 0)
            block(blockers);
        double took = hang_up(phase, (enum way)(i % N_WAYS), phase->needs_blockers ? 2 : 0);
        most = took > most ? took : most;
        if (phase->needs_blockers && (i % 20 == 19 || i == N_EACH - 1))
            unblock(blockers);
    }
    printf("%s: noticed within %.0f ms; ", phase->name, most * 1000);
    fflush(stdout);
}

/* ---- among others ---------------------------------------------------------------------------------------------- */

static struct {
    struct answer want;
    atomic_bool enough;
    atomic_uint n_answers;
} other;

static json_t *other_body(bool stream)
{
    return with(
        bodyf("{'messages': [{'role': 'user', 'content': 'hello world'}], 'max_tokens': 40, 'temperature': 0.8,"
              " 'seed': 3, 'ignore_eos': true, 'logprobs': true, 'top_logprobs': 2}"),
        "stream", json_boolean(stream));
}

static void *others(void *unused)
{
    for (unsigned i = 0; !atomic_load(&other.enough); i++) {
        struct answer a;
        ask(&server, other_body(i % 2), &a);
        CHECK(a.http == 200 && strcmp(a.choices_text, other.want.choices_text) == 0,
              "status %d; beside hang-ups:\n%s\nbefore:\n%s", a.http, a.choices_text, other.want.choices_text);
        answer_free(&a);
        atomic_fetch_add(&other.n_answers, 1);
    }
    return unused;
}

/* The request gets somewhere about the phase, as far as can be told beside others. */
static void hang_up_among_others(const struct phase *phase, enum way way, uint64_t *state)
{
    struct http_conn c;
    if (phase->reach == in_headers || phase->reach == in_body || phase->reach == in_stream) {
        phase->reach(&c);
    } else if (phase->reach == in_prefill) {
        connect_to(&c);
        http_sendf(&c,
                   "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n{\"prompt\": %s}",
                   strlen(long_prompt) + 12, long_prompt);
    } else {
        ask_begin(&server, &c, long_answer(false));
    }
    sleep_ms((uint32_t)(run_random(state) % 6));
    leave(&c, way);
    if (way == HALF_CLOSE)
        CHECK(http_wait_closed(&c, NOTICED_MS * SLOW), "half-close in %s: the server's side stays open", phase->name);
    http_close(&c);
}

static void busy(const struct phase *phase, uint64_t *state)
{
    pthread_t threads[2];
    atomic_store(&other.enough, false);
    atomic_store(&other.n_answers, 0);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, others, NULL) == 0, "no thread");
    for (int i = 0; i < N_EACH / 2; i++)
        hang_up_among_others(phase, (enum way)(i % N_WAYS), state);
    atomic_store(&other.enough, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(server_wait_idle(&server, NOTICED_MS * SLOW), "something is left of hang-ups in %s", phase->name);
    printf("%u whole answers beside the others\n", atomic_load(&other.n_answers));
}

/* ---- with the answer in hand -------------------------------------------------------------------------------- */

/* Who closes at `data: [DONE]`, as the openai packages do, has the whole answer and did not hang up. */
static void satisfied(void)
{
    CHECK(server_wait_idle(&server, 5000 * SLOW), "not idle");
    double hangups = server_metric(&server, "sennit_hangups_total");
    double answers = server_metric(&server, "sennit_request_seconds_count");
    for (int i = 0; i < N_EACH; i++) {
        struct http_conn c;
        struct http_response r = {0};
        ask_begin(&server, &c, bodyf("{'prompt': 'hello', 'max_tokens': 3, 'stream': true}"));
        CHECK(http_read_head(&c, &r, 5000 * SLOW) == HTTP_OK && r.status == 200, "status %d", r.status);
        do
            CHECK(http_read_event(&c, &r, 5000 * SLOW) == HTTP_OK, "a stream without [DONE]");
        while (strcmp(r.event, "[DONE]") != 0);
        leave(&c, (enum way)(i % N_WAYS));
        http_response_free(&r);
        http_close(&c);
    }
    CHECK(server_wait_idle(&server, 5000 * SLOW), "not idle");
    hangups = server_metric(&server, "sennit_hangups_total") - hangups;
    answers = server_metric(&server, "sennit_request_seconds_count") - answers;
    CHECK(hangups == 0 && answers == N_EACH, "%d whole streams were counted as %g answers and %g hang-ups", N_EACH,
          answers, hangups);
}

/* ---- afterwards ------------------------------------------------------------------------------------------------ */

static double cpu_seconds(void)
{
    return server_metric(&server, "process_cpu_seconds_total");
}

/* Asking costs time too: the idle second is compared with what two questions in a row take. */
static void check_idle_cpu(void)
{
    double first = cpu_seconds(), second = cpu_seconds(), asking = second - first, from = http_now();
    sleep_ms(2000);
    double used = cpu_seconds() - second, share = (used - asking) / (http_now() - from);
    CHECK(share < 0.03 * SLOW, "idle, it uses %.1f %% of a CPU", share * 100);
    printf("idle: %.2f %% of a CPU\n", share * 100);
}

int main(void)
{
    uint64_t state = 44;
    json_t *ids = json_array();
    for (int i = 0; i < LONG_PROMPT; i++)
        json_array_append_new(ids, json_integer((json_int_t)(3 + run_random(&state) % 290)));
    long_prompt = json_dumps(ids, JSON_COMPACT);
    json_decref(ids);
    server_start(&server, server_tiny_model(CONTEXT), "--max-rows", "2", "--threads", "1", "--chunk", "16", "--grace",
                 "5", "--quiet", NULL);
    ask(&server, other_body(false), &other.want);
    CHECK(other.want.http == 200, "status %d", other.want.http);
    CHECK(server_wait_idle(&server, 5000 * SLOW), "not idle");
    for (size_t i = 0; i < sizeof phases / sizeof *phases; i++) {
        quiet(&phases[i]);
        busy(&phases[i], &state);
    }
    satisfied();
    check_idle_cpu();
    server_stop(&server);
    answer_free(&other.want);
    free(long_prompt);
    return 0;
}
