/* The queue of requests: its bound and what a refusal says, its order when clients press against the bound, and that
 * what waits in it holds its prompt and no more, however long its answer may become. */
#include "engine/world.h"

#include <stdlib.h>

static struct sennit_engine *bounded(const struct world *w, uint32_t max_rows, uint32_t max_waiting)
{
    struct sennit_engine_options o = {.n_threads = 1,
                                      .max_rows = max_rows,
                                      .chunk = 16,
                                      .cache_bytes = PLENTY,
                                      .no_pin = true,
                                      .max_waiting = max_waiting};
    struct sennit_engine *e = NULL;
    MUST(sennit_engine_create(&e, w->m, &o, err));
    return e;
}

/* ---- the bound ------------------------------------------------------------------------------- */

static void bound(const struct world *w)
{
    int32_t ids[20] = {0};
    struct sennit_engine *e = bounded(w, 2, 3);
    struct sennit_request_options o = ask(ids, 20, 4), none = ask(ids, 20, 0);
    struct sennit_request *r[8] = {NULL};
    struct answer a;
    for (int i = 0; i < 3; i++)
        r[i] = submit(e, &o);
    refuse(e, &o, SENNIT_BUSY, "full: 3 waiting", "at most 3");
    refuse(e, &none, SENNIT_BUSY, "full: 3 waiting", "at most 3"); /* nor one that asks for no tokens */
    step(e);                                                       /* two are rows and do not count, one waits */
    CHECK(sennit_engine_stats(e)->rows_running == 2 && sennit_engine_stats(e)->rows_waiting == 1, "%u run, %u wait",
          sennit_engine_stats(e)->rows_running, sennit_engine_stats(e)->rows_waiting);
    r[3] = submit(e, &none);
    r[4] = submit(e, &o);
    refuse(e, &o, SENNIT_BUSY, "full: 3 waiting", "at most 3");
    sennit_request_cancel(r[4]); /* counts until the engine has seen it */
    refuse(e, &o, SENNIT_BUSY, "full: 3 waiting", "at most 3");
    step(e);
    r[5] = submit(e, &o);
    refuse(e, &o, SENNIT_BUSY, "full: 3 waiting", "at most 3");
    for (int i = 0; i < 6; i++) {
        finish(e, r[i], &a);
        CHECK(a.finish == (i == 4 ? SENNIT_FINISH_CANCELLED : SENNIT_FINISH_LENGTH), "request %d: %s", i,
              sennit_finish_name(a.finish));
    }
    check_empty(e, "after the bound");
    for (int i = 0; i < 3; i++)
        r[i] = submit(e, &o); /* all of the queue is free again */
    sennit_engine_free(e);
    for (int i = 0; i < 3; i++)
        sennit_request_free(r[i]);
    printf(
        "bound: the fourth of three is refused with both numbers; rows do not count, cancelled ones until the next "
        "step\n");
}

/* A refused submit leaves the session free. */
static void bound_and_session(const struct world *w)
{
    int32_t ids[20] = {0};
    struct sennit_engine *e = bounded(w, 1, 1);
    struct sennit_session *s = NULL;
    struct answer a;
    MUST(sennit_session_create(&s, e, err));
    struct sennit_request_options o = ask(ids, 20, 4), with = o;
    with.session = s;
    struct sennit_request *r = submit(e, &o);
    refuse(e, &with, SENNIT_BUSY, "full: 1 waiting", "at most 1");
    finish(e, r, &a);
    finish(e, submit(e, &with), &a);
    CHECK(a.finish == SENNIT_FINISH_LENGTH, "%s", sennit_finish_name(a.finish));
    sennit_session_free(s);
    sennit_engine_free(e);
    printf("bound: a refused submit leaves its session free\n");
}

/* One client fills the queue whenever there is room; another has one request in it. Rows start in the order of
 * submission all the same, whatever the requests need. */
static void order(const struct world *w)
{
    enum { N = 120, MOST = 8 };
    static int32_t ids[200];
    static struct answer got[N];
    struct sennit_request *r[N] = {NULL};
    struct sennit_engine *e = bounded(w, 3, MOST);
    int n = 0, started = 0, n_busy = 0;
    uint64_t state = 76;
    for (bool worked = true; worked || n < N;) {
        while (n < N) {
            struct sennit_request_options o =
                ask(ids, 1 + run_random(&state) % 150, 1 + (uint32_t)(run_random(&state) % 12));
            struct sennit_error err;
            sennit_status st = sennit_engine_submit(e, &o, &r[n], &err);
            CHECK(st == SENNIT_OK || st == SENNIT_BUSY, "%s", err.message);
            n_busy += st == SENNIT_BUSY;
            if (st == SENNIT_BUSY)
                break;
            n++;
        }
        if (run_random(&state) % 4 == 0)
            sennit_request_cancel(r[run_random(&state) % (uint64_t)n]);
        worked = step(e);
        CHECK(sennit_engine_stats(e)->rows_waiting <= MOST, "%u wait", sennit_engine_stats(e)->rows_waiting);
        for (int i = 0; i < n; i++) {
            bool before = got[i].started;
            take(r[i], &got[i]);
            if (!got[i].started || before)
                continue;
            for (int k = started; k < i; k++) /* who came before has started, or was cancelled while it waited */
                CHECK(got[k].started || got[k].finish == SENNIT_FINISH_CANCELLED, "request %d started before %d", i,
                      k);
            started = i;
        }
    }
    for (int i = 0; i < N; i++) {
        CHECK(got[i].ended, "request %d has no end", i);
        sennit_request_free(r[i]);
    }
    CHECK(n_busy > 0, "the queue was never full");
    step(e);
    check_empty(e, "after the pressing clients");
    sennit_engine_free(e);
    printf("order: %d requests against a queue of %d, %d times full: started in the order of submission\n", N, MOST,
           n_busy);
}

/* ---- what waiting costs ---------------------------------------------------------------------- */

static struct sennit_load load_of(struct sennit_engine *e)
{
    struct sennit_load l;
    sennit_engine_load(e, &l);
    return l;
}

static void memory(const struct world *w)
{
    enum { N = 1000, N_PROMPT = 64, CONSTANT = 4096 };
    static struct sennit_request *r[N];
    int32_t ids[N_PROMPT] = {0};
    uint32_t context = (uint32_t)sennit_model_get_info(w->m)->context_length, max_tokens = context - N_PROMPT;
    struct sennit_engine *e = bounded(w, 1, N);
    struct sennit_request_options o = ask(ids, N_PROMPT, max_tokens);
    o.n_logprobs = 64;
    struct sennit_request *first = submit(e, &o);
    step(e); /* a row now */
    uint64_t before = load_of(e).heap_bytes, reserved = load_of(e).cache_reserved;
    CHECK(reserved > (uint64_t)max_tokens * 64 * sizeof(struct sennit_logprob),
          "the answer's arrays are not in the %llu bytes that are promised", (unsigned long long)reserved);
    for (int i = 0; i < N; i++)
        r[i] = submit(e, &o);
    refuse(e, &o, SENNIT_BUSY, "full: 1000 waiting", "at most 1000");
    uint64_t each = (load_of(e).heap_bytes - before) / N;
    CHECK(each >= N_PROMPT * sizeof *ids && each <= N_PROMPT * sizeof *ids + CONSTANT,
          "a waiting request holds %llu bytes", (unsigned long long)each);
    for (int i = 0; i < 5; i++)
        step(e);
    CHECK((load_of(e).heap_bytes - before) / N <= N_PROMPT * sizeof *ids + CONSTANT,
          "the queue holds more once the engine has seen it");
    sennit_request_free(first);
    for (int i = 0; i < N; i++)
        sennit_request_free(r[i]);
    step(e);
    check_empty(e, "after the long queue");
    sennit_engine_free(e);
    printf("memory: each of %d waiting requests with up to %u tokens and 64 log-probabilities of each holds %llu "
           "bytes\n",
           N, max_tokens, (unsigned long long)each);
}

/* The answer's arrays are part of what must fit, to the byte. */
static void answers_count(const struct world *w)
{
    int32_t ids[10] = {0};
    struct sennit_request_options plain = ask(ids, 10, 30), rich = plain;
    rich.n_logprobs = 64;
    uint64_t least = need_of(w, 10, 30), more = 64 * 30 * sizeof(struct sennit_logprob);
    struct answer a;
    struct sennit_engine *e = engine_of(w, 2, least + more, 16);
    char budget[32];
    snprintf(budget, sizeof budget, "%" PRIu64, least + more);
    refuse(e, &rich, SENNIT_TOO_BIG, budget, "10 prompt tokens and 30 more");
    finish(e, submit(e, &plain), &a);
    sennit_engine_free(e);
    e = engine_of(w, 2, least + more + (uint64_t)2 * 64 * sizeof(struct sennit_logprob),
                  16); /* a step's, a reader's */
    finish(e, submit(e, &rich), &a);
    CHECK(a.n == 30, "%zu tokens", a.n);
    check_empty(e, "after a rich answer");
    sennit_engine_free(e);
    printf("budget: an answer's log-probabilities count, to the byte\n");
}

int main(void)
{
    struct world w = {0};
    char path[256];
    world_open(&w, path);
    bound(&w);
    bound_and_session(&w);
    order(&w);
    memory(&w);
    answers_count(&w);
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
