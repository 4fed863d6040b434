/* Log-probabilities of the prompt's own tokens: the bits that teacher forcing gives, in order, before the first token
 * of the answer, whatever else is in the batch; and the answer is the one that it would have been without them. */
#include "engine/world.h"

enum { LONGEST = 600, N_ANSWER = 4, N_TOP = 5, N_LENGTHS = 6, N_AT_ONCE = 4 };
static const size_t lengths[N_LENGTHS] = {1, 2, 33, 256, 257, LONGEST};

struct reported {
    float logprob[LONGEST], top[LONGEST][N_TOP];
    int32_t ids[LONGEST], top_ids[LONGEST][N_TOP];
    size_t n;
};

struct run {
    struct reported prompt;
    int32_t answer[LONGEST];
    size_t n_answer;
    uint64_t digest;
    sennit_finish finish;
    bool started, ended;
};

struct problem {
    int32_t ids[LONGEST];
    size_t n_prompt;
    struct reported want;
    struct run plain; /* the same request without prompt_logprobs */
};

struct setting {
    const char *family;
    uint32_t max_rows, chunk, n_threads;
};

static struct sennit_engine *make(const struct world *w, const struct setting *s)
{
    struct sennit_engine_options o = {.n_threads = s->n_threads,
                                      .max_rows = s->max_rows,
                                      .chunk = s->chunk,
                                      .cache_bytes = PLENTY,
                                      .cache_family = s->family,
                                      .no_pin = true};
    struct sennit_engine *e = NULL;
    MUST(sennit_engine_create(&e, w->m, &o, err));
    return e;
}

static void keep(struct reported *p, const struct sennit_event *ev, uint32_t n_top)
{
    CHECK(p->n < LONGEST && ev->n_top == n_top, "token %zu: %u alternatives", p->n, ev->n_top);
    p->ids[p->n] = ev->id;
    p->logprob[p->n] = ev->logprob;
    for (uint32_t i = 0; i < n_top; i++) {
        p->top[p->n][i] = ev->top[i].logprob;
        p->top_ids[p->n][i] = ev->top[i].id;
    }
    p->n++;
}

/* n_top: alternatives asked for. */
static void read_all(struct sennit_request *r, struct run *got, uint32_t n_top)
{
    for (;;) {
        struct sennit_event ev;
        MUST(sennit_request_next_event(r, &ev, 0, err));
        switch (ev.kind) {
        case SENNIT_EVENT_NONE:
            return;
        case SENNIT_EVENT_START:
            CHECK(!got->started && got->prompt.n == 0, "START is not the first event");
            got->started = true;
            break;
        case SENNIT_EVENT_PROMPT:
            CHECK(got->started && got->n_answer == 0 && !got->ended && ev.n_text == 0, "a PROMPT event out of order");
            keep(&got->prompt, &ev, got->prompt.n ? n_top : 0);
            break;
        case SENNIT_EVENT_TOKEN:
            got->answer[got->n_answer++] = ev.id;
            break;
        case SENNIT_EVENT_END:
            got->ended = true;
            got->finish = ev.finish;
            got->digest = ev.digest;
            CHECK(ev.finish != SENNIT_FINISH_ERROR, "%s", ev.error.message);
            break;
        }
    }
}

static void finish_run(struct sennit_engine *e, const struct sennit_request_options *o, struct run *got)
{
    struct sennit_request *r = submit(e, o);
    *got = (struct run){.started = false};
    while (!got->ended) {
        CHECK(step(e), "no progress");
        read_all(r, got, o->n_logprobs);
    }
    sennit_request_free(r);
}

static struct sennit_request_options question(const struct problem *p)
{
    return (struct sennit_request_options){.prompt = p->ids,
                                           .n_prompt = p->n_prompt,
                                           .max_tokens = N_ANSWER,
                                           .ignore_eos = true,
                                           .n_logprobs = N_TOP,
                                           .prompt_logprobs = true,
                                           .sampling = {.temperature = 0.8f, .seed = 3}};
}

/* What teacher forcing says of the prompt's tokens, and the answer of a request that does not ask. */
static void solve(const struct world *w, struct problem *p, size_t n, uint64_t seed)
{
    struct sennit_engine *e = make(w, &(struct setting){"plain", 1, 64, 1});
    run_random_ids(&seed, w->n_vocab, p->ids, n);
    p->n_prompt = n;
    struct sennit_request_options o = {
        .prompt = p->ids, .n_prompt = 1, .max_tokens = (uint32_t)n - 1, .forced = p->ids + 1, .n_logprobs = N_TOP};
    struct sennit_request *r = submit(e, &o);
    p->want = (struct reported){.ids = {p->ids[0]}, .n = 1};
    for (bool ended = false; !ended;) {
        struct sennit_event ev;
        step(e);
        MUST(sennit_request_next_event(r, &ev, 0, err));
        if (ev.kind == SENNIT_EVENT_TOKEN)
            keep(&p->want, &ev, N_TOP);
        ended = ev.kind == SENNIT_EVENT_END;
    }
    sennit_request_free(r);
    o = question(p);
    o.prompt_logprobs = false;
    finish_run(e, &o, &p->plain);
    CHECK(p->plain.prompt.n == 0, "PROMPT events that nobody asked for");
    sennit_engine_free(e);
}

static void check_prompt(const struct problem *p, const struct reported *got, size_t n)
{
    const struct reported *want = &p->want;
    CHECK(got->n == n, "%zu PROMPT events, not %zu", got->n, n);
    for (size_t i = 0; i < n; i++)
        CHECK(got->ids[i] == want->ids[i] && memcmp(&got->logprob[i], &want->logprob[i], sizeof(float)) == 0 &&
                  memcmp(got->top[i], want->top[i], sizeof want->top[i]) == 0 &&
                  memcmp(got->top_ids[i], want->top_ids[i], sizeof want->top_ids[i]) == 0,
              "token %zu of %zu: %d with %.9g, teacher forcing says %d with %.9g", i, p->n_prompt, got->ids[i],
              (double)got->logprob[i], want->ids[i], (double)want->logprob[i]);
}

static void check_answer(const struct problem *p, const struct run *got)
{
    CHECK(got->ended && got->n_answer == N_ANSWER && got->digest == p->plain.digest &&
              memcmp(got->answer, p->plain.answer, N_ANSWER * sizeof *got->answer) == 0,
          "the answer to %zu tokens changed", p->n_prompt);
}

/* All prompts at once, every second one reported. */
static void together(const struct world *w, const struct problem *problems, const struct setting *s)
{
    static struct run got[2 * N_LENGTHS];
    struct sennit_request *r[2 * N_LENGTHS];
    struct sennit_engine *e = make(w, s);
    memset(got, 0, sizeof got);
    for (int i = 0; i < 2 * N_LENGTHS; i++) {
        struct sennit_request_options o = question(&problems[i / 2]);
        o.prompt_logprobs = i % 2 == 0;
        r[i] = submit(e, &o);
    }
    while (step(e))
        for (int i = 0; i < 2 * N_LENGTHS; i++)
            read_all(r[i], &got[i], N_TOP);
    check_empty(e, "after all prompts");
    for (int i = 0; i < 2 * N_LENGTHS; i++) {
        const struct problem *p = &problems[i / 2];
        check_prompt(p, &got[i].prompt, i % 2 == 0 ? p->n_prompt : 0);
        check_answer(p, &got[i]);
        sennit_request_free(r[i]);
    }
    sennit_engine_free(e);
}

/* ---- single moments -------------------------------------------------------------------------------------------- */

static void nothing_but_the_prompt(const struct world *w, const struct problem *problems)
{
    static struct run got;
    struct sennit_engine *e = make(w, &(struct setting){"plain", 2, 64, 2});
    uint64_t nothing = 0;
    for (int k = 0; k < N_LENGTHS; k++) {
        struct sennit_request_options o = question(&problems[k]);
        o.max_tokens = 0;
        finish_run(e, &o, &got);
        check_prompt(&problems[k], &got.prompt, o.n_prompt);
        CHECK(got.finish == SENNIT_FINISH_LENGTH && got.n_answer == 0, "%s", sennit_finish_name(got.finish));
        CHECK(k == 0 || got.digest == nothing, "a digest of no answer depends on the prompt");
        nothing = got.digest;
    }
    uint64_t before = sennit_engine_stats(e)->n_tokens;
    struct sennit_request_options o = question(&problems[2]);
    o.max_tokens = 0;
    o.prompt_logprobs = false;
    finish_run(e, &o, &got);
    CHECK(got.prompt.n == 0 && sennit_engine_stats(e)->n_tokens == before, "a prompt was read for nothing");
    sennit_engine_free(e);
}

static void without_alternatives(const struct world *w, const struct problem *p)
{
    static struct run got;
    struct sennit_engine *e = make(w, &(struct setting){"plain", 2, 64, 1});
    struct sennit_request_options o = question(p);
    o.n_logprobs = 0;
    finish_run(e, &o, &got);
    CHECK(got.prompt.n == p->n_prompt &&
              memcmp(got.prompt.logprob, p->want.logprob, p->n_prompt * sizeof(float)) == 0,
          "other values without alternatives");
    check_answer(p, &got);
    sennit_engine_free(e);
}

/* Events come with their span, a running row moves in every step, and another prompt is read meanwhile. */
static void fair(const struct world *w, const struct problem *p, const struct problem *other)
{
    static struct run got[3];
    struct sennit_engine *e = make(w, &(struct setting){"plain", 3, 64, 1});
    struct sennit_request_options o = question(other);
    struct sennit_request *r[3];
    memset(got, 0, sizeof got);
    o.prompt_logprobs = false;
    o.n_prompt = 1;
    o.max_tokens = 40;
    r[0] = submit(e, &o);
    step(e);
    read_all(r[0], &got[0], N_TOP);
    o = question(p);
    r[1] = submit(e, &o);
    o = question(other);
    o.prompt_logprobs = false;
    r[2] = submit(e, &o);
    for (size_t n_before = 0; got[1].prompt.n < p->n_prompt; n_before = got[1].prompt.n) {
        size_t n_running = got[0].n_answer;
        step(e);
        for (int i = 0; i < 3; i++)
            read_all(r[i], &got[i], N_TOP);
        CHECK(got[0].n_answer == n_running + 1 || got[0].ended, "the running row stood still");
        CHECK(got[1].prompt.n > n_before, "the prompt stood still at %zu", n_before);
        CHECK(got[1].n_answer == 0 || got[1].prompt.n == p->n_prompt, "a token before the prompt's end");
        CHECK(got[2].n_answer <= N_ANSWER, "too many tokens");
    }
    CHECK(got[2].ended, "the other prompt was not read meanwhile");
    check_answer(other, &got[2]);
    check_prompt(p, &got[1].prompt, p->n_prompt);
    for (int i = 0; i < 3; i++)
        sennit_request_free(r[i]);
    sennit_engine_free(e);
}

static void cancelled(const struct world *w, const struct problem *p)
{
    static struct run got;
    struct sennit_engine *e = make(w, &(struct setting){"naive", 1, 512, 2});
    struct sennit_request_options o = question(p);
    struct sennit_request *r = submit(e, &o);
    memset(&got, 0, sizeof got);
    for (int i = 0; i < 3; i++)
        step(e);
    sennit_request_cancel(r);
    step(e);
    read_all(r, &got, N_TOP);
    CHECK(got.ended && got.finish == SENNIT_FINISH_CANCELLED && got.prompt.n > 3 && got.prompt.n < p->n_prompt,
          "%zu PROMPT events of %zu, %s", got.prompt.n, p->n_prompt, sennit_finish_name(got.finish));
    check_prompt(p, &got.prompt, got.prompt.n);
    sennit_request_free(r);
    check_empty(e, "after a cancel");
    sennit_engine_free(e);
}

/* The arrays of what is reported are part of what is promised. */
static void promised(const struct world *w, const struct problem *p)
{
    uint64_t reserved[2];
    struct sennit_engine *e = make(w, &(struct setting){"plain", 1, 64, 1});
    for (int k = 0; k < 2; k++) {
        struct sennit_request_options o = question(p);
        o.prompt_logprobs = k == 1;
        struct sennit_request *r = submit(e, &o);
        step(e);
        reserved[k] = sennit_engine_stats(e)->cache_reserved;
        sennit_request_free(r);
        step(e);
    }
    uint64_t want = p->n_prompt * (sizeof(float) + N_TOP * sizeof(struct sennit_logprob));
    CHECK(reserved[1] - reserved[0] == want, "%" PRIu64 " bytes more are promised, not %" PRIu64,
          reserved[1] - reserved[0], want);
    check_empty(e, "after promises");
    struct sennit_session *session = NULL;
    struct sennit_request_options o = question(p);
    MUST(sennit_session_create(&session, e, err));
    o.session = session;
    refuse(e, &o, SENNIT_INVALID, "prompt_logprobs", "session");
    sennit_session_free(session);
    sennit_engine_free(e);
}

/* --threads: short prompts, and only what runs on several threads. */
int main(int argc, char **argv)
{
    static const size_t short_lengths[N_LENGTHS] = {1, 2, 16, 17, 33, 64};
    bool threads = argc > 1 && strcmp(argv[1], "--threads") == 0;
    static struct problem problems[N_LENGTHS];
    struct world w = {0};
    char path[256];
    world_open(&w, path);
    for (int k = 0; k < N_LENGTHS; k++)
        solve(&w, &problems[k], threads ? short_lengths[k] : lengths[k], (uint64_t)k + 90);
    static const struct setting settings[] = {{"plain", 16, 512, 2}, {"plain", 3, 512, 1}, {"plain", 1, 512, 2},
                                              {"naive", 16, 7, 2},   {"plain", 3, 1, 1},   {"naive", 1, 512, 1}};
    for (size_t i = 0; i < (threads ? 1 : sizeof settings / sizeof *settings); i++)
        together(&w, problems, &settings[i]);
    if (threads) {
        sennit_model_free(w.m);
        run_unlink(path);
        return 0;
    }
    nothing_but_the_prompt(&w, problems);
    without_alternatives(&w, &problems[4]);
    fair(&w, &problems[5], &problems[3]);
    cancelled(&w, &problems[5]);
    promised(&w, &problems[3]);
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
