/* Admission: who may start and when, what a refusal says, that overload waits its turn, that
 * whatever is cancelled gives its pages back, and the smallest and largest requests. */
#include "engine/world.h"

#include <math.h>

/* ---- refusals -------------------------------------------------------------------------------- */

static void refusals(const struct world *w)
{
    int32_t ids[MAX_PROMPT] = {0}, high = (int32_t)w->n_vocab;
    char need[32], budget[32], big[32];
    uint64_t bytes = need_of(w, 150, 50);
    struct sennit_engine *e = engine_of(w, 2, bytes - 1, 16);
    snprintf(need, sizeof need, "%" PRIu64, bytes);
    snprintf(budget, sizeof budget, "%" PRIu64, bytes - 1);
    struct sennit_request_options o = ask(ids, 150, 50);
    refuse(e, &o, SENNIT_TOO_BIG, need, budget);
    o = ask(ids, 100, 1949); /* context of 2,048 */
    snprintf(big, sizeof big, "%d", 1949);
    refuse(e, &o, SENNIT_RANGE, big, "2048");
    o = ask(ids, 100, UINT32_MAX);
    refuse(e, &o, SENNIT_RANGE, "4294967295", "2048");
    o = ask(ids, 0, 5);
    refuse(e, &o, SENNIT_INVALID, "prompt", "empty");
    o = ask(&high, 1, 5);
    refuse(e, &o, SENNIT_INVALID, "token 0", "300");
    o = ask(ids, 5, 5);
    o.sampling.temperature = NAN;
    refuse(e, &o, SENNIT_INVALID, "temperature", "");
    o = ask(ids, 5, 5);
    const char *nothing = "";
    o.stop = &nothing;
    o.n_stop = 1;
    refuse(e, &o, SENNIT_INVALID, "stop", "empty");
    const char *half = "\xA9";
    o.stop = &half;
    refuse(e, &o, SENNIT_INVALID, "stop", "UTF-8");
    o = ask(ids, 5, 5);
    o.sampling.n_biases = 3;
    refuse(e, &o, SENNIT_INVALID, "n_biases is 3", "NULL");
    check_empty(e, "after refusals");
    sennit_engine_free(e);
    e = engine_of(w, 1, bytes, 16); /* exactly enough */
    struct answer a;
    o = ask(ids, 150, 50);
    finish(e, submit(e, &o), &a);
    CHECK(a.n == 50 && a.finish == SENNIT_FINISH_LENGTH, "%zu tokens", a.n);
    check_empty(e, "after a request of exactly the budget");
    sennit_engine_free(e);
    printf("refusals: what can never fit is refused at once with both numbers; exactly the budget "
           "runs\n");
}

/* ---- overload -------------------------------------------------------------------------------- */

/* 50 requests, room for two: FIFO, never more than the budget, each as alone. A small one behind a
 * large one that does not fit now must not overtake it. */
static void overload(const struct world *w)
{
    enum { N = 50 };
    static int32_t ids[N][64];
    static struct answer got[N], want;
    struct sennit_request *r[N];
    struct sennit_request_options o[N];
    size_t order[N], n_started = 0;
    uint64_t state = 8;
    struct sennit_engine *e = engine_of(w, 16, 2 * need_of(w, 56, 8), 16);
    for (int i = 0; i < N; i++) {
        size_t n = i % 5 == 4 ? 4 : 56; /* 56 + 8: half the budget; 4 + 8: little */
        run_random_ids(&state, w->n_vocab, ids[i], n);
        o[i] = ask(ids[i], n, 8);
        o[i].sampling.temperature = i % 2 ? 0.8f : 0;
        o[i].sampling.seed = (uint64_t)i;
        r[i] = submit(e, &o[i]);
        got[i] = (struct answer){0};
    }
    while (step(e))
        for (int i = 0; i < N; i++) {
            bool before = got[i].started;
            take(r[i], &got[i]);
            if (got[i].started && !before)
                order[n_started++] = (size_t)i;
        }
    CHECK(n_started == N, "%zu of %d started", n_started, N);
    for (int i = 0; i < N; i++) {
        CHECK(order[i] == (size_t)i, "request %zu started as number %d", order[i], i);
        alone(w, &o[i], &want);
        CHECK(got[i].ended && got[i].finish == SENNIT_FINISH_LENGTH && got[i].digest == want.digest,
              "request %d: %s, not as alone", i, sennit_finish_name(got[i].finish));
        sennit_request_free(r[i]);
    }
    uint32_t most = sennit_engine_stats(e)->most_rows_in_step;
    CHECK(most >= 2, "at most %u rows", most);
    check_empty(e, "after the overload");
    sennit_engine_free(e);
    printf("overload: %d requests on a budget for two large ones: started first in, first out, at "
           "most %u at once, each as "
           "alone\n",
           N, most);
}

/* One request and one page more than the budget: it waits until the first has gone. */
static void waits(const struct world *w)
{
    int32_t ids[3][40];
    static struct answer got[3];
    struct sennit_request *r[3];
    uint64_t state = 3, room = need_of(w, 40, 10) + need_of(w, 1, 1);
    struct sennit_engine *e = engine_of(w, 8, room, 16);
    for (int i = 0; i < 3; i++) {
        run_random_ids(&state, w->n_vocab, ids[i], 40);
        struct sennit_request_options o = ask(ids[i], 40, 10);
        r[i] = submit(e, &o);
    }
    for (bool worked = true; worked;) {
        worked = step(e);
        for (int i = 0; i < 3; i++)
            take(r[i], &got[i]);
        CHECK(got[0].started && (!got[1].started || got[0].ended) &&
                  (!got[2].started || got[1].ended),
              "two at once in room for one");
    }
    for (int i = 0; i < 3; i++) {
        CHECK(got[i].ended && got[i].n == 10, "request %d: %zu tokens", i, got[i].n);
        sennit_request_free(r[i]);
    }
    check_empty(e, "after waiting");
    sennit_engine_free(e);
    printf("waiting: three requests in room for one and a page ran one after the other\n");
}

/* A client that keeps submitting does not starve one that came before. */
static void fairness(const struct world *w)
{
    enum { N = 40 };
    int32_t id = 70;
    struct sennit_engine *e = engine_of(w, 2, PLENTY, 16);
    struct sennit_request *r[N + 1] = {NULL};
    static struct answer got[N + 1];
    struct sennit_request_options o = ask(&id, 1, 3);
    int next = 0, victim = -1;
    for (; next < 6; next++)
        r[next] = submit(e, &o);
    victim = next;
    r[next++] = submit(e, &o);
    int after = 0;
    while (!got[victim].started) {
        step(e);
        for (int i = 0; i < next; i++)
            take(r[i], &got[i]);
        for (int k = 0; k < 2 && next <= N; k++)
            r[next++] = submit(e, &o);
        for (int i = victim + 1; i < next; i++)
            after += got[i].started && !got[victim].started;
        CHECK(next <= N, "the victim waits for ever");
    }
    CHECK(after == 0, "%d later requests started first", after);
    for (int i = 0; i < next; i++)
        sennit_request_free(r[i]);
    step(e);
    check_empty(e, "after the saturating client");
    sennit_engine_free(e);
    printf("fairness: a client that goes on submitting overtakes nobody\n");
}

/* ---- cancelling ------------------------------------------------------------------------------ */

/* Pages are free at the next step, wherever the request was; and then there is nothing to do. */
static void cancel_in(const struct world *w, int n_steps, bool other, const char *phase)
{
    int32_t ids[200];
    uint64_t state = 4;
    run_random_ids(&state, w->n_vocab, ids, 200);
    struct sennit_engine *e = engine_of(w, 1, PLENTY, 16);
    struct sennit_request_options o = ask(ids, 200, 50), first = ask(ids, 20, 100);
    struct sennit_request *running = other ? submit(e, &first) : NULL, *r = submit(e, &o);
    struct answer a = {0};
    for (int i = 0; i < n_steps; i++)
        step(e);
    take(r, &a);
    uint64_t before = sennit_engine_stats(e)->cache_bytes;
    size_t n = a.n;
    sennit_request_cancel(r);
    step(e);
    take(r, &a);
    CHECK(a.ended && a.finish == SENNIT_FINISH_CANCELLED && a.n == n,
          "%s: finish %s, %zu tokens more", phase, sennit_finish_name(a.finish), a.n - n);
    if (other) {
        CHECK(sennit_engine_stats(e)->rows_waiting == 0, "%s: still waits", phase);
        sennit_request_cancel(running);
        step(e);
    } else {
        CHECK(before > 0, "%s: nothing was held", phase);
    }
    check_empty(e, phase);
    bool worked;
    MUST(sennit_engine_step(e, &worked, err));
    CHECK(!worked && !sennit_engine_wait(e, 0), "%s: the engine is still busy", phase);
    sennit_request_cancel(r); /* once more, and after END */
    step(e);
    sennit_request_free(running);
    sennit_request_free(r);
    sennit_engine_free(e);
}

static void cancelling(const struct world *w)
{
    cancel_in(w, 2, true, "cancel while waiting");
    cancel_in(w, 3, false, "cancel in prefill");
    cancel_in(w, 20, false, "cancel in decode");
    printf("cancel: while waiting, in prefill, in decode: END at the next step, all pages free, "
           "engine idle\n");
}

/* ---- the smallest answers
 * -------------------------------------------------------------------------------------- */

static void small_answers(const struct world *w)
{
    int32_t ids[30];
    uint64_t state = 6;
    struct answer a;
    run_random_ids(&state, w->n_vocab, ids, 30);
    struct sennit_engine *e = engine_of(w, 2, PLENTY, 16);
    struct sennit_request_options o = ask(ids, 30, 0);
    finish(e, submit(e, &o), &a);
    CHECK(a.started && a.n == 0 && a.n_text == 0 && a.finish == SENNIT_FINISH_LENGTH,
          "max_tokens 0: %zu, %s", a.n, sennit_finish_name(a.finish));
    CHECK(sennit_engine_stats(e)->n_steps == 0, "max_tokens 0 computed something");
    o.max_tokens = 1;
    finish(e, submit(e, &o), &a);
    CHECK(a.n == 1 && a.finish == SENNIT_FINISH_LENGTH, "max_tokens 1: %zu", a.n);
    o = ask(ids, 1, 1);
    finish(e, submit(e, &o), &a);
    CHECK(a.n == 1 && a.finish == SENNIT_FINISH_LENGTH, "one and one: %zu", a.n);
    check_empty(e, "after small answers");
    sennit_engine_free(e);
    printf("small answers: max_tokens 0 and 1, a prompt of one token\n");
}

/* A context that is used to its last token. */
static void full_context(void)
{
    struct tiny_spec spec = tiny_spec_default();
    struct world w = {0};
    char path[256];
    int32_t ids[64];
    uint64_t state = 2;
    struct answer a;
    spec.context_length = 64;
    run_tiny_path(&spec, path);
    MUST(sennit_model_open(&w.m, path, NULL, err));
    run_random_ids(&state, 300, ids, 64);
    struct sennit_engine *e = engine_of(&w, 2, PLENTY, 16);
    struct sennit_request_options o = ask(ids, 50, 14);
    finish(e, submit(e, &o), &a);
    CHECK(a.n == 14 && a.finish == SENNIT_FINISH_LENGTH, "%zu tokens, %s", a.n,
          sennit_finish_name(a.finish));
    o = ask(ids, 50, 15);
    refuse(e, &o, SENNIT_RANGE, "15", "64");
    o = ask(ids, 64, 0);
    finish(e, submit(e, &o), &a);
    sennit_engine_free(e);
    sennit_model_free(w.m);
    run_unlink(path);
    printf("context: 50 + 14 of 64 runs to the last token, 50 + 15 is refused\n");
}

/* Rows of many lengths come and go until pages lie everywhere; a large request is admitted all the
 * same. */
static void fragments(const struct world *w)
{
    enum { N = 60 };
    static int32_t ids[N][MAX_PROMPT];
    static struct answer got, want;
    uint64_t state = 66;
    struct sennit_request *r[N];
    struct sennit_engine *e = engine_of(w, 16, need_of(w, MAX_PROMPT - 10, 10), 16);
    for (int i = 0; i < N; i++) {
        run_random_ids(&state, w->n_vocab, ids[i], MAX_PROMPT);
        struct sennit_request_options o =
            ask(ids[i], 1 + run_random(&state) % 60, 1 + (uint32_t)(run_random(&state) % 20));
        r[i] = submit(e, &o);
    }
    for (int n = 0; n < 40; n++) {
        step(e);
        sennit_request_cancel(r[run_random(&state) % N]);
    }
    struct sennit_request_options o = ask(ids[0], MAX_PROMPT - 10, 10);
    struct sennit_request *large = submit(e, &o);
    finish(e, large, &got);
    alone(w, &o, &want);
    CHECK(got.digest == want.digest && got.n == 10, "the large one is not as alone");
    for (int i = 0; i < N; i++)
        sennit_request_free(r[i]);
    step(e);
    check_empty(e, "after the fragments");
    sennit_engine_free(e);
    printf(
        "fragments: after %d rows of mixed lengths a request of the whole budget runs, as alone\n",
        N);
}

/* The strings of the options are the caller's again after the call, though each admission asks for
 * the family. */
static void borrowed_strings(const struct world *w)
{
    char family[] = "plain", isa[] = "scalar";
    int32_t ids[MAX_PROMPT] = {0};
    struct sennit_engine_options o = {
        .n_threads = 1, .isa = isa, .cache_family = family, .cache_bytes = PLENTY, .no_pin = true};
    struct sennit_engine *e = NULL;
    MUST(sennit_engine_create(&e, w->m, &o, err));
    memset(family, 'x', sizeof family - 1);
    memset(isa, 'x', sizeof isa - 1);
    struct sennit_request_options q = ask(ids, 5, 5);
    struct answer a;
    finish(e, submit(e, &q), &a);
    CHECK(a.finish == SENNIT_FINISH_LENGTH && a.n == 5, "%s, %zu tokens",
          sennit_finish_name(a.finish), a.n);
    const struct sennit_stats *s = sennit_engine_stats(e);
    CHECK(strcmp(s->cache_family, "plain") == 0 && strcmp(s->isa, "scalar") == 0, "'%s' and '%s'",
          s->cache_family, s->isa);
    sennit_engine_free(e);
    printf("options: the engine needs none of the caller's strings after it was made\n");
}

int main(void)
{
    struct world w = {0};
    char path[256];
    world_open(&w, path);
    refusals(&w);
    borrowed_strings(&w);
    overload(&w);
    waits(&w);
    fairness(&w);
    cancelling(&w);
    small_answers(&w);
    full_context();
    fragments(&w);
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
