/* Admission, ends and leftovers: who may start and when, what a refusal says, that overload waits its turn, that
 * whatever ends gives its pages back, and how answers end. */
#include "engine/run.h"
#include "support/tiny_model.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PROMPT = 300, MAX_EVENTS = 256, FIRST_BYTE = TINY_N_SPECIAL };

/* ---- small tools ----------------------------------------------------------------------------------------------- */

struct answer {
    int32_t ids[MAX_EVENTS];
    size_t n, n_reused, n_prompt;
    char text[4096];
    size_t n_text;
    uint64_t digest;
    sennit_finish finish;
    bool started, ended;
};

struct world {
    struct sennit_model *m;
    uint32_t n_vocab;
};

static struct sennit_engine *engine_of(const struct world *w, uint32_t max_rows, uint64_t budget, uint32_t chunk)
{
    struct sennit_engine_options o = {.n_threads = 1, .max_rows = max_rows, .chunk = chunk, .cache_bytes = budget,
                                      .no_pin = true};
    struct sennit_engine *e = NULL;
    MUST(sennit_engine_create(&e, w->m, &o, err));
    return e;
}

static const uint64_t PLENTY = (uint64_t)64 << 20;

static struct sennit_request *submit(struct sennit_engine *e, const struct sennit_request_options *o)
{
    struct sennit_request *r = NULL;
    MUST(sennit_engine_submit(e, o, &r, err));
    return r;
}

static struct sennit_request_options ask(const int32_t *ids, size_t n, uint32_t max_tokens)
{
    return (struct sennit_request_options){.prompt = ids, .n_prompt = n, .max_tokens = max_tokens, .ignore_eos = true};
}

/* Whole characters only? */
static bool is_utf8(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = c < 0x80 ? 1 : c >> 5 == 6 ? 2 : c >> 4 == 14 ? 3 : c >> 3 == 30 ? 4 : 0;
        if (len == 0 || i + len > n)
            return false;
        for (size_t k = 1; k < len; k++)
            if (((unsigned char)s[i + k] & 0xC0) != 0x80)
                return false;
        i += len;
    }
    return true;
}

/* Takes what is there. */
static void take(struct sennit_request *r, struct answer *a)
{
    for (;;) {
        struct sennit_event ev;
        MUST(sennit_request_next_event(r, &ev, 0, err));
        if (ev.kind == SENNIT_EVENT_NONE)
            return;
        CHECK(!a->ended, "an event after END");
        CHECK(is_utf8(ev.text, ev.n_text), "half a character in '%s'", ev.text);
        CHECK(a->n_text + ev.n_text < sizeof a->text, "too much text");
        memcpy(a->text + a->n_text, ev.text, ev.n_text);
        a->n_text += ev.n_text;
        a->text[a->n_text] = '\0';
        a->started |= ev.kind == SENNIT_EVENT_START;
        if (ev.kind == SENNIT_EVENT_TOKEN)
            a->ids[a->n++] = ev.id;
        if (ev.kind == SENNIT_EVENT_END) {
            a->ended = true;
            a->finish = ev.finish;
            a->digest = ev.digest;
            a->n_reused = ev.n_reused;
            a->n_prompt = ev.n_prompt;
            CHECK(ev.n_generated == a->n, "END says %zu tokens, %zu came", ev.n_generated, a->n);
            CHECK(ev.finish != SENNIT_FINISH_ERROR, "%s", ev.error.message);
        }
    }
}

static bool step(struct sennit_engine *e)
{
    bool worked;
    MUST(sennit_engine_step(e, &worked, err));
    const struct sennit_stats *s = sennit_engine_stats(e);
    CHECK(s->cache_bytes <= s->cache_reserved && s->cache_reserved <= s->cache_budget,
          "%llu bytes live, %llu promised, %llu budget", (unsigned long long)s->cache_bytes,
          (unsigned long long)s->cache_reserved, (unsigned long long)s->cache_budget);
    return worked;
}

static void finish(struct sennit_engine *e, struct sennit_request *r, struct answer *a)
{
    *a = (struct answer){0};
    for (int i = 0; !a->ended; i++) {
        CHECK(i < 100000, "no progress");
        step(e);
        take(r, a);
    }
    sennit_request_free(r);
}

/* The whole answer of one request, alone in an engine of its own. */
static void alone(const struct world *w, const struct sennit_request_options *o, struct answer *a)
{
    struct sennit_engine *e = engine_of(w, 1, PLENTY, 64);
    struct sennit_request_options solo = *o;
    solo.session = NULL;
    finish(e, submit(e, &solo), a);
    sennit_engine_free(e);
}

static void check_empty(struct sennit_engine *e, const char *when)
{
    const struct sennit_stats *s = sennit_engine_stats(e);
    CHECK(s->cache_bytes == 0 && s->cache_reserved == 0 && s->rows_running == 0 && s->rows_waiting == 0,
          "%s: %llu bytes, %llu promised, %u rows, %u waiting", when, (unsigned long long)s->cache_bytes,
          (unsigned long long)s->cache_reserved, s->rows_running, s->rows_waiting);
}

/* What a request of n tokens in all is promised. */
static uint64_t need_of(const struct world *w, size_t n)
{
    int32_t ids[MAX_PROMPT] = {0};
    struct sennit_engine *e = engine_of(w, 1, PLENTY, 1);
    struct sennit_request_options o = ask(ids, n - 1, 1);
    struct sennit_request *r = submit(e, &o);
    step(e);
    uint64_t need = sennit_engine_stats(e)->cache_reserved;
    sennit_request_free(r);
    sennit_engine_free(e);
    return need;
}

/* ---- refusals -------------------------------------------------------------------------------------------------- */

static void refuse(struct sennit_engine *e, const struct sennit_request_options *o, sennit_status want, const char *a,
                   const char *b)
{
    struct sennit_error err = {0};
    struct sennit_request *r = NULL;
    sennit_status st = sennit_engine_submit(e, o, &r, &err);
    CHECK(st == want && err.code == want && r == NULL, "%s, not %s: %s", sennit_status_name(st),
          sennit_status_name(want), err.message);
    CHECK(strstr(err.message, a) && strstr(err.message, b), "'%s' does not say '%s' and '%s'", err.message, a, b);
}

static void refusals(const struct world *w)
{
    int32_t ids[MAX_PROMPT] = {0}, high = (int32_t)w->n_vocab;
    char need[32], budget[32], big[32];
    uint64_t bytes = need_of(w, 200);
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
    check_empty(e, "after refusals");
    sennit_engine_free(e);
    e = engine_of(w, 1, bytes, 16); /* exactly enough */
    struct answer a;
    o = ask(ids, 150, 50);
    finish(e, submit(e, &o), &a);
    CHECK(a.n == 50 && a.finish == SENNIT_FINISH_LENGTH, "%zu tokens", a.n);
    check_empty(e, "after a request of exactly the budget");
    sennit_engine_free(e);
    printf("refusals: what can never fit is refused at once with both numbers; exactly the budget runs\n");
}

/* ---- overload -------------------------------------------------------------------------------------------------- */

/* 50 requests, room for two: FIFO, never more than the budget, each as alone. A small one behind a large one that
 * does not fit now must not overtake it. */
static void overload(const struct world *w)
{
    enum { N = 50 };
    static int32_t ids[N][64];
    static struct answer got[N], want;
    struct sennit_request *r[N];
    struct sennit_request_options o[N];
    size_t order[N], n_started = 0;
    uint64_t state = 8;
    struct sennit_engine *e = engine_of(w, 16, 2 * need_of(w, 64), 16);
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
    printf("overload: %d requests on a budget for two large ones: started first in, first out, at most %u at once, each as "
           "alone\n",
           N, most);
}

/* One request and one page more than the budget: it waits until the first has gone. */
static void waits(const struct world *w)
{
    int32_t ids[3][40];
    static struct answer got[3];
    struct sennit_request *r[3];
    uint64_t state = 3, room = need_of(w, 50) + need_of(w, 1 + 1);
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
        CHECK(got[0].started && (!got[1].started || got[0].ended) && (!got[2].started || got[1].ended),
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

/* ---- cancelling ------------------------------------------------------------------------------------------------ */

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
    CHECK(a.ended && a.finish == SENNIT_FINISH_CANCELLED && a.n == n, "%s: finish %s, %zu tokens more", phase,
          sennit_finish_name(a.finish), a.n - n);
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
    printf("cancel: while waiting, in prefill, in decode: END at the next step, all pages free, engine idle\n");
}

/* ---- the smallest answers -------------------------------------------------------------------------------------- */

static void small_answers(const struct world *w)
{
    int32_t ids[30];
    uint64_t state = 6;
    struct answer a;
    run_random_ids(&state, w->n_vocab, ids, 30);
    struct sennit_engine *e = engine_of(w, 2, PLENTY, 16);
    struct sennit_request_options o = ask(ids, 30, 0);
    finish(e, submit(e, &o), &a);
    CHECK(a.started && a.n == 0 && a.n_text == 0 && a.finish == SENNIT_FINISH_LENGTH, "max_tokens 0: %zu, %s", a.n,
          sennit_finish_name(a.finish));
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
    CHECK(a.n == 14 && a.finish == SENNIT_FINISH_LENGTH, "%zu tokens, %s", a.n, sennit_finish_name(a.finish));
    o = ask(ids, 50, 15);
    refuse(e, &o, SENNIT_RANGE, "15", "64");
    o = ask(ids, 64, 0);
    finish(e, submit(e, &o), &a);
    sennit_engine_free(e);
    sennit_model_free(w.m);
    run_unlink(path);
    printf("context: 50 + 14 of 64 runs to the last token, 50 + 15 is refused\n");
}

/* ---- how answers end ------------------------------------------------------------------------------------------- */

/* An answer that says exactly `text`: its bytes forced one token each. */
static void forced_text(const struct world *w, const char *text, const char *const *stop, uint32_t n_stop,
                        struct answer *a)
{
    int32_t forced[MAX_EVENTS], prompt = 50;
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        forced[i] = FIRST_BYTE + (unsigned char)text[i];
    struct sennit_request_options o = ask(&prompt, 1, (uint32_t)n);
    o.forced = forced;
    o.stop = stop;
    o.n_stop = n_stop;
    struct sennit_engine *e = engine_of(w, 1, PLENTY, 16);
    finish(e, submit(e, &o), a);
    check_empty(e, text);
    sennit_engine_free(e);
}

static void stop_strings(const struct world *w)
{
    static const struct {
        const char *said, *stops[3], *given;
        size_t n_tokens; /* 0 = all */
    } cases[] = {
        {"hello world and more", {"world"}, "hello ", 11},
        {"hello world", {"world"}, "hello ", 11},
        {"worword", {"world"}, "worword", 0},                  /* begins like one, twice */
        {"hello wor", {"world"}, "hello wor", 0},              /* the end came before the stop string did */
        {"aaab", {"aab"}, "a", 4},                             /* overlaps itself */
        {"say stop now", {"now", "stop"}, "say ", 8},          /* the first to come, not the first in the list */
        {"abcx", {"abcd", "bc"}, "a", 3},                      /* a shorter one inside what is held back */
        {"x", {"x"}, "", 1},                                   /* at once */
        {"caf\xC3\xA9 au lait", {"\xC3\xA9 au"}, "caf", 8},    /* more than one byte a character */
        {"na\xC3\xAFve \xE2\x82\xAC" "5", {"\xE2\x82\xAC"}, "na\xC3\xAFve ", 10},
        {"\xF0\x9F\x98\x80\xF0\x9F\x98\x81", {"\xF0\x9F\x98\x81"}, "\xF0\x9F\x98\x80", 8},
        {"cut \xE2\x82", {"zzz"}, "cut \xEF\xBF\xBD", 0},      /* ends within a character */
        {"none of them", {"xyz", "noneof"}, "none of them", 0},
    };
    size_t n_cases = sizeof cases / sizeof *cases;
    for (size_t i = 0; i < n_cases; i++) {
        static struct answer a;
        uint32_t n_stop = cases[i].stops[1] ? 2 : 1;
        size_t want = cases[i].n_tokens ? cases[i].n_tokens : strlen(cases[i].said);
        sennit_finish how = cases[i].n_tokens ? SENNIT_FINISH_STOP : SENNIT_FINISH_LENGTH;
        forced_text(w, cases[i].said, cases[i].stops, n_stop, &a);
        CHECK(strcmp(a.text, cases[i].given) == 0 && a.n == want && a.finish == how,
              "said '%s': gave '%s' after %zu tokens, %s; not '%s' after %zu", cases[i].said, a.text, a.n,
              sennit_finish_name(a.finish), cases[i].given, want);
    }
    printf("stop strings: %zu cases over token and character borders; never part of the text, never half a character\n",
           n_cases);
}

/* A bias forces the end token, and any other. */
static void end_tokens(const struct world *w)
{
    int32_t ids[10];
    uint64_t state = 12;
    static struct answer a;
    run_random_ids(&state, w->n_vocab, ids, 10);
    struct sennit_bias force = {TINY_IM_END, 1e6f};
    struct sennit_engine *e = engine_of(w, 1, PLENTY, 16);
    struct sennit_request_options o = ask(ids, 10, 5);
    o.sampling.biases = &force;
    o.sampling.n_biases = 1;
    o.ignore_eos = false;
    finish(e, submit(e, &o), &a);
    CHECK(a.n == 1 && a.ids[0] == TINY_IM_END && a.finish == SENNIT_FINISH_STOP && a.n_text == 0,
          "end token: %zu tokens, %s, text '%s'", a.n, sennit_finish_name(a.finish), a.text);
    o.ignore_eos = true;
    finish(e, submit(e, &o), &a);
    CHECK(a.n == 5 && a.finish == SENNIT_FINISH_LENGTH && a.n_text == 0, "past the end token: %zu, '%s'", a.n, a.text);
    o.keep_special = true;
    finish(e, submit(e, &o), &a);
    CHECK(strncmp(a.text, "<|im_end|><|im_end|>", 20) == 0, "kept special tokens give '%s'", a.text);
    force.id = FIRST_BYTE + 'Q';
    o.sampling.temperature = 1.5f;
    o.sampling.seed = 3;
    finish(e, submit(e, &o), &a);
    CHECK(strcmp(a.text, "QQQQQ") == 0, "a bias for Q gives '%s'", a.text);
    sennit_engine_free(e);
    printf("ends: the end token ends and is not shown; ignored, kept; a bias forces a token\n");
}

/* ---- sessions -------------------------------------------------------------------------------------------------- */

static void sessions(const struct world *w)
{
    int32_t ids[MAX_PROMPT];
    uint64_t state = 21;
    static struct answer first, second, cold, other;
    run_random_ids(&state, w->n_vocab, ids, MAX_PROMPT);
    struct sennit_engine *e = engine_of(w, 2, need_of(w, 150), 16);
    struct sennit_session *s = NULL;
    MUST(sennit_session_create(&s, e, err));
    struct sennit_request_options o = ask(ids, 60, 10);
    o.session = s;
    struct sennit_request *r = submit(e, &o);
    refuse(e, &o, SENNIT_STATE, "session", "");
    finish(e, r, &first);
    CHECK(first.n_reused == 0, "%zu reused at first", first.n_reused);
    /* The last chosen token is not in the state yet: 60 + 9 are. */
    memcpy(ids + 60, first.ids, first.n * sizeof *ids);
    o.n_prompt = 90;
    uint64_t before = sennit_engine_stats(e)->n_tokens;
    alone(w, &o, &cold);
    finish(e, submit(e, &o), &second);
    uint64_t computed = sennit_engine_stats(e)->n_tokens - before;
    CHECK(second.n_reused == 69 && computed == 90 - 69 + 9, "%zu reused, %llu tokens computed", second.n_reused,
          (unsigned long long)computed);
    CHECK(second.digest == cold.digest, "the second turn is not as cold");
    /* Another way on from the middle. */
    ids[40] = (ids[40] + 1) % (int32_t)w->n_vocab;
    o.n_prompt = 70;
    alone(w, &o, &cold);
    finish(e, submit(e, &o), &second);
    CHECK(second.n_reused == 40 && second.digest == cold.digest, "%zu reused from the middle, digest %s", second.n_reused,
          second.digest == cold.digest ? "right" : "wrong");
    /* The same again: all but one token is there, and that one gives the logits. */
    finish(e, submit(e, &o), &second);
    CHECK(second.n_reused == 69 && second.digest == cold.digest, "%zu reused of the same prompt", second.n_reused);
    /* Somebody needs the room: the state goes, the answer does not change. */
    CHECK(sennit_engine_stats(e)->cache_reserved > 0, "the session holds nothing");
    struct sennit_request_options large = ask(ids, 130, 20);
    finish(e, submit(e, &large), &other);
    check_empty(e, "after the large one");
    finish(e, submit(e, &o), &second);
    CHECK(second.n_reused == 0 && second.digest == cold.digest, "%zu reused after the state went", second.n_reused);
    /* Cancelled in the middle of its prompt: what was read is kept, and right. */
    r = submit(e, &o);
    sennit_request_cancel(r);
    finish(e, r, &second);
    CHECK(second.finish == SENNIT_FINISH_CANCELLED, "%s", sennit_finish_name(second.finish));
    finish(e, submit(e, &o), &second);
    CHECK(second.digest == cold.digest, "wrong after a cancel");
    sennit_session_free(s);
    step(e);
    check_empty(e, "after the session");
    sennit_engine_free(e);
    printf("sessions: 69 of 90 tokens reused and the same digest as cold; from the middle 40; dropped for room and right\n");
}

/* A half-read prompt in a session. */
static void session_cancelled(const struct world *w)
{
    int32_t ids[100];
    uint64_t state = 22;
    static struct answer a, cold;
    run_random_ids(&state, w->n_vocab, ids, 100);
    struct sennit_engine *e = engine_of(w, 2, PLENTY, 16);
    struct sennit_session *s = NULL;
    MUST(sennit_session_create(&s, e, err));
    struct sennit_request_options o = ask(ids, 100, 6);
    o.session = s;
    alone(w, &o, &cold);
    struct sennit_request *r = submit(e, &o);
    for (int i = 0; i < 3; i++)
        step(e);
    sennit_request_cancel(r);
    finish(e, r, &a);
    CHECK(a.finish == SENNIT_FINISH_CANCELLED && a.n == 0, "%s", sennit_finish_name(a.finish));
    finish(e, submit(e, &o), &a);
    CHECK(a.n_reused == 48 && a.digest == cold.digest, "%zu reused after a cancel in prefill", a.n_reused);
    sennit_session_free(s);
    sennit_engine_free(e);
    printf("sessions: a cancelled prompt's 48 tokens are reused and right\n");
}

/* Requests and sessions freed before and after the engine, in every state. */
static void lifetimes(const struct world *w)
{
    int32_t ids[40];
    uint64_t state = 31;
    run_random_ids(&state, w->n_vocab, ids, 40);
    for (int n_steps = 0; n_steps < 8; n_steps++)
        for (int before = 0; before < 4; before++) {
            struct sennit_engine *e = engine_of(w, 1, PLENTY, 16);
            struct sennit_session *s = NULL;
            MUST(sennit_session_create(&s, e, err));
            struct sennit_request_options o = ask(ids, 40, 3), plain = ask(ids, 40, 3);
            o.session = s;
            struct sennit_request *r = submit(e, &o), *waiting = submit(e, &plain);
            for (int i = 0; i < n_steps; i++)
                step(e);
            if (before & 1)
                sennit_session_free(s);
            if (before & 2)
                sennit_request_free(r);
            sennit_engine_free(e);
            struct answer a = {0};
            take(waiting, &a);
            CHECK(a.ended, "no END after the engine was freed");
            sennit_request_free(waiting);
            if (!(before & 2))
                sennit_request_free(r);
            if (!(before & 1))
                sennit_session_free(s);
        }
    sennit_engine_free(NULL);
    sennit_request_free(NULL);
    sennit_session_free(NULL);
    printf("lifetimes: 32 orders of freeing request, session and engine\n");
}

/* ---- whose answer is it ---------------------------------------------------------------------------------------- */

/* 16 prompts in 3 rounds, with cancelled ones among them: rounds equal, prompts distinct, each marker only at home. */
static void no_leaks(const struct world *w)
{
    enum { N = 16, ROUNDS = 3 };
    static int32_t ids[N][50];
    static struct answer got[ROUNDS][N];
    struct sennit_engine *e = engine_of(w, N, PLENTY, 16);
    struct sennit_bias marker[N];
    uint64_t state = 55;
    for (int i = 0; i < N; i++) {
        run_random_ids(&state, w->n_vocab, ids[i], 50);
        marker[i] = (struct sennit_bias){FIRST_BYTE + 'A' + i, 3.0f};
    }
    for (int round = 0; round < ROUNDS; round++) {
        struct sennit_request *r[N], *noise[N];
        memset(got[round], 0, sizeof got[round]);
        for (int k = 0; k < N; k++) {
            int i = (k * 5 + round) % N; /* another order each time */
            struct sennit_request_options o = ask(ids[i], 20 + (size_t)i, 20);
            o.sampling.biases = &marker[i];
            o.sampling.n_biases = 1;
            r[i] = submit(e, &o);
            noise[i] = submit(e, &o);
        }
        for (int n = 0; step(e); n++)
            for (int i = 0; i < N; i++) {
                take(r[i], &got[round][i]);
                if (run_random(&state) % 8 == 0)
                    sennit_request_cancel(noise[i]);
            }
        for (int i = 0; i < N; i++) {
            sennit_request_free(r[i]);
            sennit_request_free(noise[i]);
        }
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            const struct answer *a = &got[0][i], *b = &got[i == j ? 1 : 0][j], *c = &got[2][j];
            if (i == j)
                CHECK(a->n == 20 && a->digest == b->digest && a->digest == c->digest &&
                          memcmp(a->ids, b->ids, 20 * sizeof *a->ids) == 0,
                      "rounds of prompt %d differ", i);
            else
                CHECK(a->digest != b->digest, "prompts %d and %d have one answer", i, j);
        }
    step(e);
    check_empty(e, "after the rounds");
    sennit_engine_free(e);
    printf("leaks: %d prompts x %d rounds with random cancels: rounds equal, answers pairwise distinct\n", N, ROUNDS);
}

/* Rows of many lengths come and go until pages lie everywhere; a large request is admitted all the same. */
static void fragments(const struct world *w)
{
    enum { N = 60 };
    static int32_t ids[N][MAX_PROMPT];
    static struct answer got, want;
    uint64_t state = 66;
    struct sennit_request *r[N];
    struct sennit_engine *e = engine_of(w, 16, need_of(w, MAX_PROMPT), 16);
    for (int i = 0; i < N; i++) {
        run_random_ids(&state, w->n_vocab, ids[i], MAX_PROMPT);
        struct sennit_request_options o = ask(ids[i], 1 + run_random(&state) % 60, 1 + (uint32_t)(run_random(&state) % 20));
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
    printf("fragments: after %d rows of mixed lengths a request of the whole budget runs, as alone\n", N);
}

int main(void)
{
    struct tiny_spec spec = tiny_spec_default();
    struct world w = {.n_vocab = spec.n_vocab};
    char path[256];
    run_tiny_path(&spec, path);
    MUST(sennit_model_open(&w.m, path, NULL, err));
    refusals(&w);
    overload(&w);
    waits(&w);
    fairness(&w);
    cancelling(&w);
    small_answers(&w);
    full_context();
    stop_strings(&w);
    end_tokens(&w);
    sessions(&w);
    session_cancelled(&w);
    lifetimes(&w);
    no_leaks(&w);
    fragments(&w);
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
