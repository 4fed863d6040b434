/* The engine's own failure: an invariant that does not hold, or (in builds with test hooks) a step that was told to
 * fail. All requests end at once with the failure, later ones are refused in its words, the thread ends, who listens
 * is told, and everything can be freed. */
#include "engine/world.h"
#include "sched/engine.h"

#include <stdlib.h>

enum { N = 6, FAIL_AT = 3 };

struct spy {
    _Atomic size_t live;
    _Atomic int n_told;
};

static void *spy_alloc(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    struct spy *s = ctx;
    void *fresh = NULL;
    if (new_bytes && posix_memalign(&fresh, 64, new_bytes) != 0)
        return NULL;
    atomic_fetch_add(&s->live, new_bytes - old_bytes);
    if (ptr && fresh)
        memcpy(fresh, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
    free(ptr);
    return fresh;
}

static void told(void *ctx)
{
    atomic_fetch_add(&((struct spy *)ctx)->n_told, 1);
}

static struct sennit_engine *make(const struct world *w, struct spy *spy, bool hook)
{
    struct sennit_engine_options o = {.allocator = {spy_alloc, spy},
                                      .n_threads = 2,
                                      .max_rows = 2,
                                      .chunk = 16,
                                      .cache_bytes = PLENTY,
                                      .no_pin = true,
                                      .notify = told,
                                      .notify_ctx = spy,
                                      .test.fail_at_step = hook ? FAIL_AT : 0};
    struct sennit_engine *e = NULL;
    MUST(sennit_engine_create(&e, w->m, &o, err));
    return e;
}

/* What a bug would do: a layer loses its rows. */
static void damage(struct sennit_engine *e)
{
    MUST(sennit_cache_filter_rows(e->layers[1], NULL, 0, err));
}

static const char *words(bool hook)
{
    return hook ? "step 3 was told to fail" : "layer 1 has 0 rows of cache where 2 run";
}

/* Reads to the END, which must be the failure; returns the tokens before it. */
static size_t failed_end(struct sennit_request *r, bool hook, int timeout_ms)
{
    for (size_t n = 0;;) {
        struct sennit_event ev;
        MUST(sennit_request_next_event(r, &ev, timeout_ms, err));
        CHECK(ev.kind != SENNIT_EVENT_NONE, "no END");
        n += ev.kind == SENNIT_EVENT_TOKEN;
        if (ev.kind != SENNIT_EVENT_END)
            continue;
        CHECK(ev.finish == SENNIT_FINISH_ERROR && ev.error.code == SENNIT_INTERNAL &&
                  strstr(ev.error.message, words(hook)),
              "%s: %s", sennit_finish_name(ev.finish), ev.error.message);
        CHECK(ev.n_generated == n, "END says %zu tokens, %zu came", ev.n_generated, n);
        return n;
    }
}

/* What a failed engine says to everybody. */
static void says_so(struct sennit_engine *e, bool hook, const struct sennit_request_options *o, uint64_t n_ended)
{
    struct sennit_error err = {0};
    struct sennit_load l;
    bool worked;
    refuse(e, o, SENNIT_STATE, "has failed", words(hook));
    CHECK(sennit_engine_step(e, &worked, &err) == SENNIT_INTERNAL && !worked && strstr(err.message, words(hook)),
          "another step: %s", err.message);
    CHECK(sennit_engine_wait(e, -1), "a wait for the failure");
    CHECK(sennit_engine_start(e, &err) == SENNIT_STATE && strstr(err.message, words(hook)), "start: %s", err.message);
    sennit_engine_load(e, &l);
    CHECK(l.failed && l.failure.code == SENNIT_INTERNAL && strstr(l.failure.message, words(hook)), "load says '%s'",
          l.failure.message);
    CHECK(!l.has_thread && l.rows_running == 0 && l.rows_waiting == 0 && l.ms_in_step == 0 &&
              l.n_finished[SENNIT_FINISH_ERROR] == n_ended && l.cache_reserved == l.cache_sessions &&
              l.cache_bytes <= l.cache_reserved,
          "%u run, %u wait, %llu ended, %llu bytes promised", l.rows_running, l.rows_waiting,
          (unsigned long long)l.n_finished[SENNIT_FINISH_ERROR], (unsigned long long)l.cache_reserved);
    CHECK(sennit_engine_stats(e)->rows_running == 0, "stats");
}

/* ---- the caller steps ---------------------------------------------------------------------------------------- */

/* Two run (one with a session), two wait, one is in the inbox; another session holds something. */
static void stepped(const struct world *w, bool hook, bool engine_first)
{
    struct spy spy = {0};
    struct sennit_engine *e = make(w, &spy, hook);
    struct sennit_session *idle = NULL, *busy = NULL;
    struct sennit_request *r[5];
    int32_t ids[20] = {0};
    struct answer a;
    bool worked;
    struct sennit_error problem = {0};
    MUST(sennit_session_create(&idle, e, err));
    MUST(sennit_session_create(&busy, e, err));
    struct sennit_request_options o = ask(ids, 8, 20), first = ask(ids, 5, 1);
    first.session = idle;
    finish(e, submit(e, &first), &a); /* one step */
    for (int i = 0; i < 4; i++) {
        o.session = i == 0 ? busy : NULL;
        r[i] = submit(e, &o);
    }
    o.session = NULL;
    step(e);
    r[4] = submit(e, &o);
    if (!hook)
        damage(e);
    int before = spy.n_told;
    CHECK(sennit_engine_step(e, &worked, &problem) == SENNIT_INTERNAL && worked &&
              strstr(problem.message, words(hook)),
          "the failing step: %s", problem.message);
    CHECK(spy.n_told == before + 1, "notify was called %d times", spy.n_told - before);
    for (int i = 0; i < 5; i++) {
        struct sennit_request_state s;
        sennit_request_poll(r[i], &s);
        CHECK(s.ended && s.started == (i < 2), "request %d after the failure", i);
        size_t n = failed_end(r[i], hook, 0);
        CHECK(n == (i < 2 ? 1 : 0), "request %d has %zu tokens", i, n);
    }
    says_so(e, hook, &o, 5);
    sennit_request_cancel(r[0]);
    if (engine_first)
        sennit_engine_free(e);
    for (int i = 0; i < 5; i++)
        sennit_request_free(r[i]);
    sennit_session_free(idle);
    sennit_session_free(busy);
    if (!engine_first)
        sennit_engine_free(e);
    CHECK(spy.live == 0, "%zu bytes are left", (size_t)spy.live);
}

/* Nobody has a request in it, and who listens is told all the same. */
static void idle_failure(const struct world *w)
{
    struct spy spy = {0};
    struct sennit_engine *e = make(w, &spy, false);
    struct sennit_error why = {.code = SENNIT_INTERNAL, .message = "layer 1 has 0 rows of cache where 2 run"};
    int32_t id = 70;
    struct sennit_request_options o = ask(&id, 1, 3);
    sn_engine_fail(e, &why);
    CHECK(spy.n_told == 1, "notify was called %d times", spy.n_told);
    says_so(e, false, &o, 0);
    sennit_engine_free(e);
    CHECK(spy.n_told == 1 && spy.live == 0, "%d calls of notify, %zu bytes", spy.n_told, (size_t)spy.live);
}

/* ---- the engine's own thread --------------------------------------------------------------------------------- */

struct reader {
    struct sennit_request *r;
    bool hook;
};

static void *reader_main(void *arg)
{
    const struct reader *s = arg;
    failed_end(s->r, s->hook, -1);
    return NULL;
}

/* Readers sleep in next_event, and a client submits until it is refused. */
static void threaded(const struct world *w, bool hook)
{
    struct spy spy = {0};
    struct sennit_engine *e = make(w, &spy, hook);
    struct reader readers[N];
    struct sennit_request *late[1000] = {NULL};
    pthread_t threads[N];
    int32_t ids[20] = {0};
    struct sennit_request_options o = ask(ids, 10, 100);
    uint64_t n_late = 0;
    struct sennit_error problem;
    for (int i = 0; i < N; i++) {
        readers[i] = (struct reader){submit(e, &o), hook};
        CHECK(pthread_create(&threads[i], NULL, reader_main, &readers[i]) == 0, "a thread");
    }
    if (!hook) {
        step(e);
        damage(e);
    }
    MUST(sennit_engine_start(e, err));
    sennit_status st = SENNIT_OK;
    for (; n_late < 1000 && st == SENNIT_OK; n_late += st == SENNIT_OK)
        st = sennit_engine_submit(e, &o, &late[n_late], &problem);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    for (uint64_t i = 0; i < n_late; i++)
        failed_end(late[i], hook, -1);
    CHECK(st == SENNIT_OK || (st == SENNIT_STATE && strstr(problem.message, words(hook))), "a late submit: %s",
          sennit_status_name(st));
    refuse(e, &o, SENNIT_STATE, "has failed", words(hook));
    for (struct sennit_load l = {.has_thread = true}; l.has_thread;) /* ends by itself */
        sennit_engine_load(e, &l);
    says_so(e, hook, &o, N + n_late);
    CHECK(spy.n_told > 0, "notify was not called");
    sennit_engine_stop(e, false); /* has nothing to wait for */
    says_so(e, hook, &o, N + n_late);
    for (int i = 0; i < N; i++)
        sennit_request_free(readers[i].r);
    for (uint64_t i = 0; i < n_late; i++)
        sennit_request_free(late[i]);
    sennit_engine_free(e);
    CHECK(spy.live == 0, "%zu bytes are left", (size_t)spy.live);
}

/* ---- faults on purpose --------------------------------------------------------------------------------------- */

#ifdef SENNIT_TEST_HOOKS
/* An idle engine does not reach step 3, and a stall shows in the load while it lasts. */
static void stalled(const struct world *w)
{
    int32_t id = 70;
    struct sennit_engine_options eo = {.n_threads = 1,
                                       .max_rows = 2,
                                       .cache_bytes = PLENTY,
                                       .no_pin = true,
                                       .test = {.stall_at_step = 2, .stall_ms = 1000}};
    struct sennit_engine *e = NULL;
    struct sennit_request_options o = ask(&id, 1, 3);
    struct sennit_load l = {0};
    struct sennit_event ev = {0};
    MUST(sennit_engine_create(&e, w->m, &eo, err));
    MUST(sennit_engine_start(e, err));
    struct sennit_request *r = submit(e, &o);
    uint64_t most = 0;
    while (l.n_finished[SENNIT_FINISH_LENGTH] == 0) {
        sennit_engine_load(e, &l);
        most = l.ms_in_step > most ? l.ms_in_step : most;
    }
    CHECK(most >= 900 && l.n_steps >= 1, "a step that took a second longer showed %llu ms", (unsigned long long)most);
    sennit_engine_load(e, &l);
    CHECK(l.ms_in_step == 0, "%llu ms in a step without work", (unsigned long long)l.ms_in_step);
    while (ev.kind != SENNIT_EVENT_END)
        MUST(sennit_request_next_event(r, &ev, -1, err));
    CHECK(ev.finish == SENNIT_FINISH_LENGTH && ev.n_generated == 3, "%s", sennit_finish_name(ev.finish));
    sennit_request_free(r);
    sennit_engine_free(e);
    printf("stall: a step of a second shows %llu ms in the load, then 0\n", (unsigned long long)most);
}
#else
static void no_hooks(const struct world *w)
{
    const struct sennit_engine_options with[3] = {
        {.test.fail_at_step = 1}, {.test.stall_at_step = 1}, {.test.stall_ms = 1}};
    for (int i = 0; i < 3; i++) {
        struct sennit_engine *e = NULL;
        struct sennit_error err = {0};
        CHECK(sennit_engine_create(&e, w->m, &with[i], &err) == SENNIT_UNSUPPORTED && !e &&
                  strstr(err.message, "SENNIT_TEST_HOOKS"),
              "'%s'", err.message);
    }
    printf("hooks: refused in this build\n");
}
#endif

int main(void)
{
    struct world w = {0};
    char path[256];
    bool most = false;
    world_open(&w, path);
#ifdef SENNIT_TEST_HOOKS
    most = true;
    stalled(&w);
#else
    no_hooks(&w);
#endif
    idle_failure(&w);
    for (int hook = 0; hook <= most; hook++) {
        stepped(&w, hook, false);
        stepped(&w, hook, true);
        for (int i = 0; i < 5; i++)
            threaded(&w, hook);
        printf(
            "failure %s: running, waiting and new requests ended with it, later ones were refused with it, nothing "
            "is left\n",
            hook ? "on purpose" : "of an invariant");
    }
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
