/* Several answers to one prompt: each is, bit for bit, the one that a request of its own would have had, the prompt
 * is read once and its pages are shared, whatever becomes of the members on the way.
 *
 *   group [--quick | --threads]    a small part of the cross, for sanitizers; or none of it, and short prompts, where
 *                                  threads are what matters */
#include "engine/world.h"

#include <pthread.h>
#include <stdlib.h>

enum { LONGEST = 2100, MOST = 20, N_ANSWER = 6, N_TOP = 3, N_LENGTHS = 6 };
static const size_t lengths[N_LENGTHS] = {1, 2, 255, 256, 257, 600},
                    short_lengths[N_LENGTHS] = {1, 2, 33, 64, 65, 99};

struct member {
    int32_t ids[N_ANSWER], top_ids[N_ANSWER][N_TOP];
    float logprobs[N_ANSWER], top[N_ANSWER][N_TOP];
    size_t n, n_reused;
    uint64_t digest;
    sennit_finish finish;
    bool started, ended;
};

struct problem {
    int32_t ids[LONGEST];
    size_t n_prompt;
    struct member want[MOST];
};

struct setting {
    const char *family;
    uint32_t max_rows, chunk, n_threads;
    uint64_t budget;
};

static struct sennit_engine *make(const struct world *w, const struct setting *s)
{
    struct sennit_engine_options o = {.n_threads = s->n_threads,
                                      .max_rows = s->max_rows,
                                      .chunk = s->chunk,
                                      .cache_bytes = s->budget ? s->budget : PLENTY,
                                      .cache_family = s->family,
                                      .no_pin = true};
    struct sennit_engine *e = NULL;
    MUST(sennit_engine_create(&e, w->m, &o, err));
    return e;
}

static struct sennit_request_options question(const struct problem *p)
{
    return (struct sennit_request_options){
        .prompt = p->ids,
        .n_prompt = p->n_prompt,
        .max_tokens = N_ANSWER,
        .ignore_eos = true,
        .n_logprobs = N_TOP,
        .sampling = {.temperature = 0.9f, .top_p = 0.95f, .repetition_penalty = 1.1f, .seed = 77, .choice = 5},
    };
}

static void on_event(struct member *a, const struct sennit_event *ev)
{
    CHECK(!a->ended, "an event after END");
    a->started |= ev->kind == SENNIT_EVENT_START;
    if (ev->kind == SENNIT_EVENT_TOKEN) {
        CHECK(a->n < N_ANSWER && ev->n_top == N_TOP, "token %zu, %u alternatives", a->n, ev->n_top);
        a->ids[a->n] = ev->id;
        a->logprobs[a->n] = ev->logprob;
        for (int i = 0; i < N_TOP; i++) {
            a->top_ids[a->n][i] = ev->top[i].id;
            a->top[a->n][i] = ev->top[i].logprob;
        }
        a->n++;
    }
    if (ev->kind == SENNIT_EVENT_END) {
        a->ended = true;
        a->finish = ev->finish;
        a->digest = ev->digest;
        a->n_reused = ev->n_reused;
        CHECK(ev->finish != SENNIT_FINISH_ERROR, "%s", ev->error.message);
    }
}

static void read_all(struct sennit_request *r, struct member *a)
{
    for (;;) {
        struct sennit_event ev;
        MUST(sennit_request_next_event(r, &ev, 0, err));
        if (ev.kind == SENNIT_EVENT_NONE)
            return;
        on_event(a, &ev);
    }
}

/* Single requests, one by one, in an engine of another shape. */
static void solve(const struct world *w, struct problem *p, size_t n_prompt, uint64_t seed)
{
    struct sennit_engine *e =
        make(w, &(struct setting){.family = "plain", .max_rows = 1, .chunk = 64, .n_threads = 1});
    struct sennit_request_options o = question(p);
    p->n_prompt = o.n_prompt = n_prompt;
    run_random_ids(&seed, w->n_vocab, p->ids, n_prompt);
    for (int i = 0; i < MOST; i++, o.sampling.choice++) {
        struct sennit_request *r = submit(e, &o);
        p->want[i] = (struct member){0};
        while (!p->want[i].ended) {
            step(e);
            read_all(r, &p->want[i]);
        }
        sennit_request_free(r);
    }
    sennit_engine_free(e);
}

/* What came of a member must be the answer, or the beginning of it when it may have been cancelled. */
static void check_member(const struct problem *p, uint32_t i, const struct member *got, bool cancelled)
{
    const struct member *want = &p->want[i];
    CHECK(got->ended &&
              (got->finish == SENNIT_FINISH_LENGTH || (cancelled && got->finish == SENNIT_FINISH_CANCELLED)),
          "member %u: %s", i, sennit_finish_name(got->finish));
    CHECK(got->n <= want->n && memcmp(got->ids, want->ids, got->n * sizeof *got->ids) == 0 &&
              memcmp(got->logprobs, want->logprobs, got->n * sizeof *got->logprobs) == 0 &&
              memcmp(got->top, want->top, got->n * sizeof *got->top) == 0 &&
              memcmp(got->top_ids, want->top_ids, got->n * sizeof *got->top_ids) == 0,
          "member %u of a prompt of %zu tokens has another answer", i, p->n_prompt);
    CHECK(got->finish != SENNIT_FINISH_LENGTH || (got->n == N_ANSWER && got->digest == want->digest),
          "member %u of a prompt of %zu tokens: %zu tokens, digest %016" PRIx64 ", not %016" PRIx64, i, p->n_prompt,
          got->n, got->digest, want->digest);
}

static void submit_group(struct sennit_engine *e, const struct problem *p, uint32_t n, struct sennit_request **r)
{
    struct sennit_request_options o = question(p);
    MUST(sennit_engine_submit_n(e, &o, n, r, err));
    for (uint32_t i = 1; i < n; i++)
        CHECK(sennit_request_id(r[i]) == sennit_request_id(r[0]) + i, "ids are not consecutive");
}

/* Steps until all have ended; with `random`, members are cancelled or freed at random moments. */
static void drive(struct sennit_engine *e, const struct problem *p, uint32_t n, struct sennit_request **r,
                  uint64_t *random)
{
    struct member got[MOST] = {{.n = 0}};
    bool cancelled[MOST] = {false};
    for (bool worked = true; worked;) {
        for (uint32_t i = 0; random && i < n; i++) {
            uint64_t dice = run_random(random) % (8 * n);
            cancelled[i] |= dice < 2;
            if (dice == 0)
                sennit_request_cancel(r[i]);
            if (dice == 1) {
                sennit_request_free(r[i]);
                r[i] = NULL;
            }
        }
        worked = step(e);
        for (uint32_t i = 0; i < n; i++)
            if (r[i])
                read_all(r[i], &got[i]);
    }
    check_empty(e, "after a group");
    for (uint32_t i = 0; i < n; i++) {
        if (r[i])
            check_member(p, i, &got[i], cancelled[i]);
        sennit_request_free(r[i]);
    }
}

/* ---- the cross ------------------------------------------------------------------------------------------------- */

/* Every `stride`-th length from `first` on. */
static size_t in_setting(const struct world *w, const struct problem *problems, const struct setting *s, uint32_t n,
                         int first, int stride)
{
    uint64_t random = s->chunk * 31 + n;
    struct sennit_engine *e = make(w, s);
    struct sennit_request *r[MOST];
    size_t n_groups = 0;
    for (int k = first; k < N_LENGTHS; k += stride) {
        const struct problem *p = &problems[k];
        uint64_t before = sennit_engine_stats(e)->n_tokens;
        submit_group(e, p, n, r);
        drive(e, p, n, r, NULL);
        uint64_t read = sennit_engine_stats(e)->n_tokens - before, want = p->n_prompt - 1 + (uint64_t)n * N_ANSWER;
        CHECK(read == want, "%" PRIu64 " tokens were forwarded for %u answers to %zu, not %" PRIu64, read, n,
              p->n_prompt, want);
        submit_group(e, p, n, r);
        drive(e, p, n, r, &random);
        n_groups += 2;
    }
    sennit_engine_free(e);
    return n_groups;
}

static void cross(const struct world *w, const struct problem *problems, bool quick)
{
    static const char *const families[] = {"plain", "naive"};
    static const uint32_t ns[] = {2, 5, 20}, rows[] = {16, 3, 1}, chunks[] = {7, 512, 1}, threads[] = {2, 1};
    size_t n_groups = 0;
    for (int f = 0; f < 2; f++)
        for (int c = 0; c < (quick ? 2 : 3); c++)
            for (int i = 0; i < 9; i++) {
                struct setting s = {families[f], rows[i % 3], chunks[c], threads[(f + i) % 2], 0};
                if (quick ? i % 4 == c : c < 2 || i % 2 == f) /* chunks of one token take long */
                    n_groups += in_setting(w, problems, &s, ns[i / 3], quick ? i % 2 : 0, quick ? 2 : 1);
            }
    printf("%zu groups: every answer as alone, every prompt read once\n", n_groups);
}

/* ---- single moments -------------------------------------------------------------------------------------------- */

static void pages_are_shared(const struct world *w)
{
    enum { N = 16 };
    static struct problem p;
    struct sennit_request *r[N];
    const struct setting s = {.family = "plain", .max_rows = N, .chunk = 512, .n_threads = 1};
    uint64_t seed = 5;
    p.n_prompt = LONGEST - N_ANSWER;
    run_random_ids(&seed, w->n_vocab, p.ids, LONGEST);
    struct sennit_request_options o = question(&p);
    uint64_t one, tail;
    struct sennit_engine *e = make(w, &s);
    r[0] = submit(e, &o);
    for (int i = 0; i < 6; i++)
        step(e);
    one = sennit_engine_stats(e)->cache_bytes;
    sennit_request_free(r[0]);
    step(e);
    o.n_prompt = 1;
    r[0] = submit(e, &o);
    step(e);
    tail = sennit_engine_stats(e)->cache_bytes;
    sennit_request_free(r[0]);
    step(e);
    check_empty(e, "before the group");
    submit_group(e, &p, N, r);
    while (sennit_engine_stats(e)->rows_running < N)
        step(e);
    step(e);
    const struct sennit_stats *st = sennit_engine_stats(e);
    printf("%d answers to %zu tokens hold %" PRIu64 " bytes; a row alone holds %" PRIu64 ", one of a token %" PRIu64
           "\n",
           N, p.n_prompt, st->cache_bytes, one, tail);
    CHECK(st->rows_running == N && st->cache_bytes <= one + N * (tail + tail / 4) && st->cache_bytes < N * one / 2,
          "%" PRIu64 " bytes for %u rows", st->cache_bytes, st->rows_running);
    for (int i = 0; i < N; i++)
        sennit_request_free(r[i]);
    step(e);
    check_empty(e, "after the group");
    sennit_engine_free(e);
}

/* The leader leaves in the middle of the prompt: the next member reads it, for all that are left. */
static void leader_leaves(const struct world *w, const struct problem *p)
{
    enum { N = 5, STEPS = 3, CHUNK = 7 };
    struct sennit_request *r[N];
    struct member got[N] = {{.n = 0}};
    struct sennit_engine *e =
        make(w, &(struct setting){.family = "plain", .max_rows = 4, .chunk = CHUNK, .n_threads = 1});
    submit_group(e, p, N, r);
    for (int i = 0; i < STEPS; i++)
        step(e);
    CHECK(sennit_engine_stats(e)->rows_running == 1, "members start before the prompt is read");
    sennit_request_cancel(r[0]);
    while (step(e))
        for (int i = 0; i < N; i++)
            read_all(r[i], &got[i]);
    uint64_t want = STEPS * CHUNK + p->n_prompt - 1 + (N - 1) * N_ANSWER;
    CHECK(sennit_engine_stats(e)->n_tokens == want, "%" PRIu64 " tokens, not %" PRIu64,
          sennit_engine_stats(e)->n_tokens, want);
    for (uint32_t i = 0; i < N; i++) {
        read_all(r[i], &got[i]);
        check_member(p, i, &got[i], i == 0);
        CHECK(got[i].n_reused == (i < 2 ? 0 : p->n_prompt - 1), "member %u took over %zu tokens", i, got[i].n_reused);
        sennit_request_free(r[i]);
    }
    check_empty(e, "after a lost leader");
    sennit_engine_free(e);
}

/* The engine ends, or all requests are freed, after any number of steps. */
static void ends_any_time(const struct world *w, const struct problem *p)
{
    enum { N = 6, STEPS = 24 };
    const struct setting s = {.family = "plain", .max_rows = 3, .chunk = 40, .n_threads = 1};
    for (int n_steps = 0; n_steps < STEPS; n_steps++)
        for (int way = 0; way < 2; way++) {
            struct sennit_request *r[N];
            struct sennit_engine *e = make(w, &s);
            submit_group(e, p, N, r);
            for (int i = 0; i < n_steps; i++)
                step(e);
            if (way == 0)
                sennit_engine_free(e);
            for (uint32_t i = 0; i < N; i++) {
                struct member got = {0};
                uint32_t k = (i * 5 + 2) % N;
                if (way == 0) {
                    read_all(r[k], &got);
                    check_member(p, k, &got, true);
                }
                sennit_request_free(r[k]);
            }
            if (way == 1) {
                step(e);
                check_empty(e, "after all were freed");
                sennit_engine_free(e);
            }
        }
}

static void refuse_group(struct sennit_engine *e, const struct sennit_request_options *o, uint32_t n,
                         sennit_status want, const char *words)
{
    struct sennit_error err = {0};
    struct sennit_request *r[MOST] = {NULL};
    sennit_status st = sennit_engine_submit_n(e, o, n, r, &err);
    CHECK(st == want && strstr(err.message, words) && !r[0], "%s: '%s'", sennit_status_name(st), err.message);
}

static void refusals(const struct world *w, const struct problem *p)
{
    int32_t forced[N_ANSWER] = {0};
    struct sennit_session *session = NULL;
    struct sennit_engine *e = make(w, &(struct setting){.family = "plain", .max_rows = 2, .n_threads = 1});
    MUST(sennit_session_create(&session, e, err));
    struct sennit_request_options o = question(p);
    refuse_group(e, &o, 0, SENNIT_INVALID, "n is 0");
    o.sampling.choice = UINT32_MAX - 1;
    refuse_group(e, &o, 3, SENNIT_INVALID, "choice");
    o = question(p);
    o.forced = forced;
    refuse_group(e, &o, 2, SENNIT_INVALID, "forced");
    o = question(p);
    o.session = session;
    refuse_group(e, &o, 2, SENNIT_INVALID, "session");
    o = question(p);
    o.prompt_logprobs = true;
    refuse_group(e, &o, 2, SENNIT_INVALID, "prompt_logprobs");
    o = question(p);
    o.sampling.top_p = 2;
    refuse_group(e, &o, 2, SENNIT_INVALID, "top_p");
    CHECK(!step(e), "a refused group left work behind");
    sennit_session_free(session);
    sennit_engine_free(e);
}

/* With the smallest budget that is accepted the group runs; with a byte less it is refused. */
static void tight_budget(const struct world *w, const struct problem *p)
{
    struct setting s = {.family = "plain", .max_rows = 8, .chunk = 64, .n_threads = 1};
    struct sennit_request *r[MOST];
    struct sennit_engine *e = make(w, &s);
    submit_group(e, p, 4, r);
    step(e);
    s.budget = sennit_engine_stats(e)->cache_reserved;
    drive(e, p, 4, r, NULL);
    sennit_engine_free(e);
    e = make(w, &s);
    submit_group(e, p, 4, r);
    drive(e, p, 4, r, NULL);
    sennit_engine_free(e);
    s.budget--;
    e = make(w, &s);
    struct sennit_request_options o = question(p);
    refuse_group(e, &o, 2, SENNIT_TOO_BIG, "budget");
    sennit_engine_free(e);
}

/* Where the room for a snapshot is a byte short beside another row, the leader waits for that row. */
static void leader_waits(const struct world *w, const struct problem *p)
{
    struct setting s = {.family = "plain", .max_rows = 8, .chunk = 64, .n_threads = 1};
    struct sennit_request_options o = question(p);
    struct sennit_request *r[4], *other;
    uint64_t row, leader;
    struct sennit_engine *e = make(w, &s);
    other = submit(e, &o);
    step(e);
    row = sennit_engine_stats(e)->cache_reserved;
    submit_group(e, p, 4, r);
    step(e);
    leader = sennit_engine_stats(e)->cache_reserved - row;
    CHECK(sennit_engine_stats(e)->rows_running == 2 && leader > row, "a leader is promised no more than a row");
    drive(e, p, 4, r, NULL);
    sennit_request_free(other);
    sennit_engine_free(e);
    s.budget = row + leader - 1;
    e = make(w, &s);
    other = submit(e, &o);
    submit_group(e, p, 4, r);
    step(e);
    CHECK(sennit_engine_stats(e)->rows_running == 1, "a leader without room for the snapshot");
    drive(e, p, 4, r, NULL);
    sennit_request_free(other);
    sennit_engine_free(e);
}

/* Reads on until all of r[n] have ended, and checks them against p's first member and those after it. */
static void finish_all(struct sennit_engine *e, const struct problem *p, uint32_t n, struct sennit_request **r)
{
    struct member got[MOST] = {0};
    for (uint32_t i = 0; i < n; i++)
        while (!got[i].ended) {
            step(e);
            read_all(r[i], &got[i]);
        }
    for (uint32_t i = 0; i < n; i++) {
        check_member(p, i, &got[i], false);
        sennit_request_free(r[i]);
    }
}

static bool has_started(const struct sennit_request *r)
{
    struct sennit_request_state state;
    sennit_request_poll(r, &state);
    return state.started;
}

/* While a leader reads a long prompt, single requests behind its group are admitted; those behind a second group wait
 * for it, and nobody passes a group that has its snapshot. */
static void others_pass(const struct world *w, const struct problem *p, const struct problem *other)
{
    const struct setting s = {.family = "plain", .max_rows = 3, .chunk = 7, .n_threads = 1};
    struct sennit_engine *e = make(w, &s);
    struct sennit_request_options o = question(other);
    struct sennit_request *r[3], *passes, *second[2], *behind;
    submit_group(e, p, 3, r);
    passes = submit(e, &o);
    submit_group(e, other, 2, second);
    behind = submit(e, &o);
    step(e);
    CHECK(has_started(r[0]) && has_started(passes), "a row is free, and a short request waits for a prompt of %zu",
          p->n_prompt);
    for (int i = 0; i < 3; i++)
        step(e);
    CHECK(!has_started(r[1]) && !has_started(second[0]) && !has_started(behind), "out of turn");
    finish_all(e, other, 1, &passes);
    while (!has_started(r[1])) {
        CHECK(!has_started(second[0]) && !has_started(behind), "a second group began before the first one was done");
        step(e);
    }
    CHECK(has_started(r[2]) && !has_started(second[0]), "the group's members stand first");
    finish_all(e, p, 3, r);
    finish_all(e, other, 2, second);
    finish_all(e, other, 1, &behind);
    check_empty(e, "after all");
    sennit_engine_free(e);
}

/* The queue's bound counts every member, and takes all or none. */
static void full_queue(const struct world *w, const struct problem *p)
{
    struct sennit_engine_options eo = {
        .n_threads = 1, .max_rows = 1, .cache_bytes = PLENTY, .no_pin = true, .max_waiting = 5};
    struct sennit_request_options o = question(p);
    struct sennit_request *r[MOST];
    struct sennit_engine *e = NULL;
    MUST(sennit_engine_create(&e, w->m, &eo, err));
    refuse_group(e, &o, 6, SENNIT_BUSY, "6");
    submit_group(e, p, 3, r);
    refuse_group(e, &o, 3, SENNIT_BUSY, "3");
    submit_group(e, p, 2, r + 3);
    refuse(e, &o, SENNIT_BUSY, "5", "5");
    while (step(e)) {
    }
    for (uint32_t i = 0; i < 5; i++) {
        struct member got = {0};
        struct sennit_request_state state;
        sennit_request_poll(r[i], &state);
        CHECK(state.started && state.ended && state.n_ready == N_ANSWER + 2, "%zu events are ready", state.n_ready);
        read_all(r[i], &got);
        check_member(p, i < 3 ? i : i - 3, &got, false);
        sennit_request_free(r[i]);
    }
    check_empty(e, "after two groups");
    sennit_engine_free(e);
}

/* The engine fails with a group in every state: all members end with the failure. */
static void engine_fails(const struct world *w, const struct problem *p)
{
    for (uint64_t at = 1; at < 16; at++) {
        struct sennit_engine_options eo = {.n_threads = 1,
                                           .max_rows = 3,
                                           .chunk = 60,
                                           .cache_bytes = PLENTY,
                                           .no_pin = true,
                                           .test = {.fail_at_step = at}};
        struct sennit_error problem = {0};
        struct sennit_request *r[6];
        struct sennit_engine *e = NULL;
        sennit_status st = sennit_engine_create(&e, w->m, &eo, &problem);
        if (st == SENNIT_UNSUPPORTED)
            return; /* built without test hooks */
        CHECK(st == SENNIT_OK, "%s", problem.message);
        submit_group(e, p, 6, r);
        for (bool worked = true; st == SENNIT_OK && worked;)
            st = sennit_engine_step(e, &worked, &problem);
        CHECK(st == SENNIT_INTERNAL, "step %" PRIu64 " did not fail", at);
        struct sennit_request_options o = question(p);
        refuse_group(e, &o, 3, SENNIT_STATE, "failed");
        for (int i = 0; i < 6; i++) {
            struct sennit_event ev = {0};
            while (ev.kind != SENNIT_EVENT_END)
                MUST(sennit_request_next_event(r[i], &ev, 0, err));
            CHECK(ev.finish == SENNIT_FINISH_ERROR || ev.finish == SENNIT_FINISH_LENGTH, "%s",
                  sennit_finish_name(ev.finish));
            sennit_request_free(r[i]);
        }
        struct sennit_load load;
        sennit_engine_load(e, &load);
        CHECK(load.failed && load.cache_bytes == 0 && load.cache_reserved == 0,
              "%" PRIu64 " bytes, %" PRIu64 " promised", load.cache_bytes, load.cache_reserved);
        sennit_engine_free(e);
    }
}

static void no_tokens(const struct world *w, const struct problem *p)
{
    struct sennit_request *r[3];
    struct sennit_engine *e = make(w, &(struct setting){.family = "plain", .max_rows = 2, .n_threads = 1});
    struct sennit_request_options o = question(p);
    o.max_tokens = 0;
    MUST(sennit_engine_submit_n(e, &o, 3, r, err));
    step(e);
    for (int i = 0; i < 3; i++) {
        struct member got = {0};
        read_all(r[i], &got);
        CHECK(got.ended && got.finish == SENNIT_FINISH_LENGTH && got.n == 0, "%s", sennit_finish_name(got.finish));
        sennit_request_free(r[i]);
    }
    check_empty(e, "after no tokens");
    sennit_engine_free(e);
}

/* ---- many threads ---------------------------------------------------------------------------------------------- */

struct client {
    struct sennit_engine *engine;
    const struct problem *problems;
    uint64_t random;
    uint32_t n_groups;
};

static void *client_thread(void *arg)
{
    struct client *c = arg;
    for (uint32_t g = 0; g < c->n_groups; g++) {
        const struct problem *p = &c->problems[run_random(&c->random) % N_LENGTHS];
        struct sennit_request *r[MOST];
        uint32_t n = 2 + (uint32_t)(run_random(&c->random) % 5);
        submit_group(c->engine, p, n, r);
        for (uint32_t i = 0; i < n; i++) {
            uint64_t dice = run_random(&c->random) % 6;
            struct member got = {0};
            if (dice == 0)
                sennit_request_cancel(r[i]);
            while (dice != 1 && !got.ended) {
                struct sennit_event ev;
                MUST(sennit_request_next_event(r[i], &ev, 60000, err));
                CHECK(ev.kind != SENNIT_EVENT_NONE, "no event for a minute");
                on_event(&got, &ev);
            }
            if (dice != 1)
                check_member(p, i, &got, dice == 0);
            sennit_request_free(r[i]);
        }
    }
    return NULL;
}

static void many_clients(const struct world *w, const struct problem *problems, uint32_t n_groups)
{
    enum { N = 4 };
    pthread_t threads[N];
    struct client clients[N];
    struct sennit_request *left[5];
    struct sennit_engine *e =
        make(w, &(struct setting){.family = "plain", .max_rows = 6, .chunk = 50, .n_threads = 2});
    MUST(sennit_engine_start(e, err));
    for (uint32_t i = 0; i < N; i++) {
        clients[i] = (struct client){e, problems, i + 1, n_groups};
        CHECK(pthread_create(&threads[i], NULL, client_thread, &clients[i]) == 0, "no thread");
    }
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    submit_group(e, &problems[N_LENGTHS - 1], 5, left);
    sennit_engine_stop(e, true);
    check_empty(e, "after a stop");
    for (uint32_t i = 0; i < 5; i++) {
        struct member got = {0};
        read_all(left[i], &got);
        check_member(&problems[N_LENGTHS - 1], i, &got, true);
        sennit_request_free(left[i]);
    }
    sennit_engine_free(e);
}

static void one_thread(const struct world *w, const struct problem *problems, bool quick)
{
    cross(w, problems, quick);
    pages_are_shared(w);
    leader_leaves(w, &problems[2]);
    ends_any_time(w, &problems[2]);
    refusals(w, &problems[2]);
    tight_budget(w, &problems[5]);
    leader_waits(w, &problems[5]);
    others_pass(w, &problems[5], &problems[1]);
    no_tokens(w, &problems[2]);
    full_queue(w, &problems[2]);
    engine_fails(w, &problems[2]);
}

int main(int argc, char **argv)
{
    bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0, threads = argc > 1 && strcmp(argv[1], "--threads") == 0;
    static struct problem problems[N_LENGTHS];
    struct world w = {0};
    struct tiny_spec spec = tiny_spec_default();
    char path[256];
    spec.context_length = LONGEST;
    run_tiny_path(&spec, path);
    MUST(sennit_model_open(&w.m, path, NULL, err));
    w.n_vocab = sennit_model_get_info(w.m)->n_vocab;
    for (int k = 0; k < N_LENGTHS; k++)
        solve(&w, &problems[k], threads ? short_lengths[k] : lengths[k], (uint64_t)k + 40);
    if (!threads)
        one_thread(&w, problems, quick);
    many_clients(&w, problems, quick || threads ? 6 : 60);
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
