/* Answers: how they end, stop strings and what may be shown before one is complete, sessions, whose
 * answer it is, and requests and sessions that outlive the engine. */
#include "engine/world.h"

#include <stdlib.h>

/* ---- how answers end
 * ------------------------------------------------------------------------------------------- */

/* An answer that says exactly `text`: its bytes forced one token each. */
static void forced_text(const struct world *w, const char *text, const char *const *stop,
                        uint32_t n_stop, struct answer *a)
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
        {"worword", {"world"}, "worword", 0},     /* begins like one, twice */
        {"hello wor", {"world"}, "hello wor", 0}, /* the end came before the stop string did */
        {"aaab", {"aab"}, "a", 4},                /* overlaps itself */
        {"say stop now",
         {"now", "stop"},
         "say ",
         8},                              /* the first to come, not the first in the list */
        {"abcx", {"abcd", "bc"}, "a", 3}, /* a shorter one inside what is held back */
        {"x", {"x"}, "", 1},              /* at once */
        {"caf\xC3\xA9 au lait", {"\xC3\xA9 au"}, "caf", 8}, /* more than one byte a character */
        {"na\xC3\xAFve \xE2\x82\xAC"
         "5",
         {"\xE2\x82\xAC"},
         "na\xC3\xAFve ",
         10},
        {"\xF0\x9F\x98\x80\xF0\x9F\x98\x81", {"\xF0\x9F\x98\x81"}, "\xF0\x9F\x98\x80", 8},
        {"cut \xE2\x82", {"zzz"}, "cut \xEF\xBF\xBD", 0}, /* ends within a character */
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
              "said '%s': gave '%s' after %zu tokens, %s; not '%s' after %zu", cases[i].said,
              a.text, a.n, sennit_finish_name(a.finish), cases[i].given, want);
    }
    printf("stop strings: %zu cases over token and character borders; never part of the text, "
           "never half a character\n",
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
    CHECK(a.n == 5 && a.finish == SENNIT_FINISH_LENGTH && a.n_text == 0,
          "past the end token: %zu, '%s'", a.n, a.text);
    o.keep_special = true;
    finish(e, submit(e, &o), &a);
    CHECK(strncmp(a.text, "<|im_end|><|im_end|>", 20) == 0, "kept special tokens give '%s'",
          a.text);
    force.id = FIRST_BYTE + 'Q';
    o.sampling.temperature = 1.5f;
    o.sampling.seed = 3;
    finish(e, submit(e, &o), &a);
    CHECK(strcmp(a.text, "QQQQQ") == 0, "a bias for Q gives '%s'", a.text);
    sennit_engine_free(e);
    printf("ends: the end token ends and is not shown; ignored, kept; a bias forces a token\n");
}

/* The bytes of single tokens: half characters as they are, control tokens by name or not at all. */
static void token_bytes(const struct world *w)
{
    const struct sennit_tokenizer *t = sennit_model_tokenizer(w->m);
    char buf[64] = "";
    for (int b = 0; b < 256; b++)
        for (int special = 0; special < 2; special++)
            CHECK(sennit_token_bytes(t, FIRST_BYTE + b, special, buf, sizeof buf) == 1 && (unsigned char)buf[0] == b,
                  "byte %d is %d", b, (unsigned char)buf[0]);
    CHECK(sennit_token_bytes(t, TINY_IM_END, false, buf, sizeof buf) == 0, "a control token's name without special");
    CHECK(sennit_token_bytes(t, TINY_IM_END, true, buf, sizeof buf) == 10 && memcmp(buf, "<|im_end|>", 10) == 0,
          "'%.10s'", buf);
    memset(buf, 'x', sizeof buf);
    CHECK(sennit_token_bytes(t, TINY_IM_END, true, buf, 4) == 10 && memcmp(buf, "<|imxx", 6) == 0, "'%.10s'", buf);
    CHECK(sennit_token_bytes(t, TINY_IM_END, true, NULL, 0) == 10, "only the length");
    CHECK(sennit_token_bytes(t, -1, true, buf, sizeof buf) == 0 &&
              sennit_token_bytes(t, (int32_t)w->n_vocab, true, buf, sizeof buf) == 0 &&
              sennit_token_bytes(NULL, 5, true, buf, sizeof buf) == 0,
          "a token that is none");
    printf("bytes: each token's own, whole characters or not\n");
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void sessions(const struct world *w)
{
    int32_t ids[MAX_PROMPT];
    uint64_t state = 21;
    static struct answer first, second, cold, other;
    run_random_ids(&state, w->n_vocab, ids, MAX_PROMPT);
    struct sennit_engine *e = engine_of(w, 2, need_of(w, 130, 20), 16);
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
    CHECK(second.n_reused == 69 && computed == 90 - 69 + 9, "%zu reused, %llu tokens computed",
          second.n_reused, (unsigned long long)computed);
    CHECK(second.digest == cold.digest, "the second turn is not as cold");
    /* Another way on from the middle. */
    ids[40] = (ids[40] + 1) % (int32_t)w->n_vocab;
    o.n_prompt = 70;
    alone(w, &o, &cold);
    finish(e, submit(e, &o), &second);
    CHECK(second.n_reused == 40 && second.digest == cold.digest,
          "%zu reused from the middle, digest %s", second.n_reused,
          second.digest == cold.digest ? "right" : "wrong");
    /* The same again: all but one token is there, and that one gives the logits. */
    finish(e, submit(e, &o), &second);
    CHECK(second.n_reused == 69 && second.digest == cold.digest, "%zu reused of the same prompt",
          second.n_reused);
    /* Somebody needs the room: the state goes, the answer does not change. */
    CHECK(sennit_engine_stats(e)->cache_reserved > 0, "the session holds nothing");
    struct sennit_request_options large = ask(ids, 130, 20);
    finish(e, submit(e, &large), &other);
    check_empty(e, "after the large one");
    finish(e, submit(e, &o), &second);
    CHECK(second.n_reused == 0 && second.digest == cold.digest, "%zu reused after the state went",
          second.n_reused);
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
    printf("sessions: 69 of 90 tokens reused and the same digest as cold; from the middle 40; "
           "dropped for room and right\n");
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
    CHECK(a.n_reused == 48 && a.digest == cold.digest, "%zu reused after a cancel in prefill",
          a.n_reused);
    sennit_session_free(s);
    sennit_engine_free(e);
    printf("sessions: a cancelled prompt's 48 tokens are reused and right\n");
}

/* A waiting request that would not fit even without the session does not cost it its state. */
static void session_kept(const struct world *w)
{
    int32_t ids[MAX_PROMPT];
    uint64_t state = 23, large_need = need_of(w, 130, 20), held;
    static struct answer first, a, b, again;
    run_random_ids(&state, w->n_vocab, ids, MAX_PROMPT);
    struct sennit_engine *e = engine_of(w, 2, 2 * large_need - 1, 16);
    struct sennit_session *s = NULL;
    MUST(sennit_session_create(&s, e, err));
    struct sennit_request_options small = ask(ids, 10, 4), large = ask(ids, 130, 20);
    small.session = s;
    finish(e, submit(e, &small), &first);
    held = sennit_engine_stats(e)->cache_reserved;
    struct sennit_request *running = submit(e, &large), *waiting;
    step(e);
    waiting = submit(e, &large);
    for (int i = 0; i < 4; i++)
        step(e);
    const struct sennit_stats *stats = sennit_engine_stats(e);
    CHECK(held > 0 && stats->rows_waiting == 1 && stats->cache_reserved == large_need + held,
          "%u rows wait, %llu bytes are reserved, the session held %llu", stats->rows_waiting,
          (unsigned long long)stats->cache_reserved, (unsigned long long)held);
    finish(e, running, &a);
    finish(e, waiting, &b);
    finish(e, submit(e, &small), &again);
    CHECK(a.digest == b.digest && again.digest == first.digest && again.n_reused == 9, "%zu reused", again.n_reused);
    sennit_session_free(s);
    sennit_engine_free(e);
    printf("sessions: kept where dropping them would admit nobody\n");
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

/* ---- whose answer is it
 * ---------------------------------------------------------------------------------------- */

/* 16 prompts in 3 rounds, with cancelled ones among them: rounds equal, prompts distinct, each
 * marker only at home. */
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
    printf("leaks: %d prompts x %d rounds with random cancels: rounds equal, answers pairwise "
           "distinct\n",
           N, ROUNDS);
}

int main(void)
{
    struct world w = {0};
    char path[256];
    world_open(&w, path);
    token_bytes(&w);
    stop_strings(&w);
    end_tokens(&w);
    sessions(&w);
    session_cancelled(&w);
    session_kept(&w);
    lifetimes(&w);
    no_leaks(&w);
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
