/* What a program sees of an engine without reading events: notify (once after each step with news, and no wake-up is
 * ever lost), sennit_request_poll (what next_event will give), sennit_engine_load (from any thread at any time, right
 * at rest, never backwards), and the threads' names. */
#include "engine/world.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { N_READ = 32 };

static void count_up(void *ctx)
{
    atomic_fetch_add((_Atomic int *)ctx, 1);
}

static struct sennit_engine *telling(const struct world *w, uint32_t n_threads, void (*notify)(void *), void *ctx)
{
    struct sennit_engine_options o = {.n_threads = n_threads,
                                      .max_rows = 3,
                                      .chunk = 16,
                                      .step_tokens = 19,
                                      .cache_bytes = PLENTY,
                                      .no_pin = true,
                                      .max_waiting = 2 * N_READ,
                                      .notify = notify,
                                      .notify_ctx = ctx};
    struct sennit_engine *e = NULL;
    MUST(sennit_engine_create(&e, w->m, &o, err));
    return e;
}

static struct sennit_load load_of(struct sennit_engine *e)
{
    struct sennit_load l;
    sennit_engine_load(e, &l);
    return l;
}

/* Events of a request so far, read or not. */
struct seen {
    size_t n_read;
    bool ended;
    uint64_t time_ns; /* of the last one */
};

/* Reads all that poll promised, and checks that it was no more and no less. */
static size_t drain(struct sennit_request *r, struct seen *seen)
{
    struct sennit_request_state before, after;
    sennit_request_poll(r, &before);
    for (size_t i = 0; i < before.n_ready; i++) {
        struct sennit_event ev;
        MUST(sennit_request_next_event(r, &ev, 0, err));
        CHECK(ev.kind != SENNIT_EVENT_NONE, "poll promised %zu events, %zu came", before.n_ready, i);
        CHECK(ev.kind != SENNIT_EVENT_START || before.started, "START without poll's word");
        CHECK(ev.kind != SENNIT_EVENT_END || (before.ended && i + 1 == before.n_ready), "END without poll's word");
        CHECK(ev.time_ns > seen->time_ns || (ev.time_ns == seen->time_ns && seen->time_ns),
              "an event of %llu after one of %llu", (unsigned long long)ev.time_ns,
              (unsigned long long)seen->time_ns);
        seen->time_ns = ev.time_ns;
        seen->ended |= ev.kind == SENNIT_EVENT_END;
    }
    seen->n_read += before.n_ready;
    CHECK(!before.ended || seen->ended, "poll says ended, but no END came");
    sennit_request_poll(r, &after);
    CHECK(after.started >= before.started && after.ended >= before.ended, "poll went back");
    return before.n_ready;
}

/* ---- one thread: exactly ------------------------------------------------------------------------------------- */

static void once_per_step(const struct world *w)
{
    enum { N = 9 };
    int32_t ids[MAX_PROMPT] = {0};
    _Atomic int n_told = 0;
    struct sennit_engine *e = telling(w, 1, count_up, &n_told);
    struct sennit_request *r[N];
    struct seen seen[N] = {{0}};
    uint64_t state = 5;
    size_t n_steps = 0, n_silent = 0;
    for (int i = 0; i < N; i++) {
        struct sennit_request_options o = ask(ids, i == 0 ? 1 : 100, i % 4 == 3 ? 0 : (uint32_t)i + 1);
        r[i] = submit(e, &o);
    }
    CHECK(n_told == 0, "submitting notifies");
    for (bool worked = true; worked; n_steps++) {
        int before = n_told;
        size_t news = 0;
        if (n_steps % 7 == 6)
            sennit_request_cancel(r[run_random(&state) % N]);
        worked = step(e);
        for (int i = 0; i < N; i++) {
            struct sennit_request_state s;
            sennit_request_poll(r[i], &s);
            news += s.n_ready;
        }
        CHECK(n_told - before == (news > 0), "step %zu: %zu events, %d calls of notify", n_steps, news,
              n_told - before);
        n_silent += news == 0;
        for (int i = 0; i < N; i++)
            drain(r[i], &seen[i]);
    }
    CHECK(n_silent > 1, "no step without news"); /* chunks of a prompt, and the last one without work */
    for (int i = 0; i < N; i++) {
        CHECK(seen[i].ended, "request %d has no END", i);
        sennit_request_free(r[i]);
    }
    int before = n_told;
    step(e);
    CHECK(n_told == before, "a step without work notifies");
    struct sennit_request_options o = ask(ids, 10, 10);
    struct sennit_request *last = submit(e, &o);
    sennit_engine_free(e);
    CHECK(n_told == before + 1, "freeing the engine ended a request and called notify %d times", n_told - before);
    struct seen end = {0};
    CHECK(drain(last, &end) == 1 && end.ended, "%zu events of a request that never ran", end.n_read);
    sennit_request_free(last);
    printf("notify: once after each step with news, %zu of %zu steps had none; poll told each event\n", n_silent,
           n_steps);
}

/* ---- figures ------------------------------------------------------------------------------------------------- */

static void at_rest(const struct world *w)
{
    int32_t ids[MAX_PROMPT];
    uint64_t state = 9;
    struct answer a;
    run_random_ids(&state, w->n_vocab, ids, MAX_PROMPT);
    struct sennit_engine *e = telling(w, 1, NULL, NULL);
    struct sennit_load l = load_of(e);
    CHECK(l.max_rows == 3 && l.max_waiting == 2 * N_READ && l.cache_budget == PLENTY && l.n_requests == 0 &&
              l.ms_in_step == 0 && !l.failed && !l.has_thread && l.heap_bytes > 0,
          "a new engine's figures");
    struct sennit_session *s = NULL;
    MUST(sennit_session_create(&s, e, err));
    struct sennit_request_options o = ask(ids, 50, 10), other = ask(ids, 30, 5);
    o.session = s;
    struct sennit_request *r = submit(e, &o), *waits[4];
    for (int i = 0; i < 4; i++)
        waits[i] = submit(e, &other);
    l = load_of(e);
    CHECK(l.rows_waiting == 5 && l.n_requests == 5 && l.rows_running == 0, "%u wait before a step", l.rows_waiting);
    step(e);
    l = load_of(e);
    CHECK(l.rows_running == 3 && l.rows_waiting == 2 && l.n_steps == 1 && l.n_prompt_tokens == 19 &&
              l.n_answer_tokens == 0 && l.cache_reserved > 0 && l.cache_bytes > 0 && l.cache_sessions == 0,
          "%u run, %u wait, %llu prompt tokens", l.rows_running, l.rows_waiting,
          (unsigned long long)l.n_prompt_tokens);
    finish(e, r, &a);
    for (int i = 0; i < 4; i++)
        finish(e, waits[i], &a);
    l = load_of(e);
    CHECK(l.n_prompt_tokens == 50 + 4 * 30 && l.n_answer_tokens == 10 + 4 * 5, "%llu prompt tokens, %llu chosen",
          (unsigned long long)l.n_prompt_tokens, (unsigned long long)l.n_answer_tokens);
    CHECK(l.cache_sessions > 0 && l.cache_sessions == l.cache_reserved, "the session holds %llu of %llu",
          (unsigned long long)l.cache_sessions, (unsigned long long)l.cache_reserved);
    o.n_prompt = 80; /* 50 of them are there */
    finish(e, submit(e, &o), &a);
    CHECK(a.n_reused >= 50 && load_of(e).n_prompt_tokens == 170 + 80 - a.n_reused, "%zu reused, %llu prompt tokens",
          a.n_reused, (unsigned long long)load_of(e).n_prompt_tokens);
    r = submit(e, &other);
    sennit_request_cancel(r);
    finish(e, r, &a);
    sennit_session_free(s);
    step(e);
    l = load_of(e);
    CHECK(l.n_requests == 7 && l.n_finished[SENNIT_FINISH_LENGTH] == 6 &&
              l.n_finished[SENNIT_FINISH_CANCELLED] == 1 && l.n_finished[SENNIT_FINISH_ERROR] == 0,
          "%llu requests", (unsigned long long)l.n_requests);
    CHECK(l.rows_running == 0 && l.rows_waiting == 0 && l.cache_reserved == 0 && l.cache_bytes == 0 &&
              l.cache_sessions == 0 && l.ms_in_step == 0,
          "something is left at rest");
    sennit_engine_free(e);
    printf("load: rows, tokens read and chosen, bytes of sessions and ends are right at every rest\n");
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ms_in_step counts from the later of the last step's end and the work's arrival. Against this clock, not against an
 * expectation of speed. */
static void time_in_step(const struct world *w)
{
    enum { REST = 40 };
    int32_t ids[40] = {0};
    struct sennit_request_options o = ask(ids, 40, 2);
    struct sennit_engine *e = telling(w, 1, NULL, NULL);
    struct answer a;
    for (int turn = 0; turn < 2; turn++) {
        usleep(REST * 1000);
        CHECK(load_of(e).ms_in_step == 0, "time passes without work");
        uint64_t start = now_ms(), ms;
        struct sennit_request *r = submit(e, &o);
        ms = load_of(e).ms_in_step;
        CHECK(ms <= now_ms() - start, "%llu ms since the work came", (unsigned long long)ms);
        usleep(REST * 1000);
        ms = load_of(e).ms_in_step;
        CHECK(ms >= REST - 1 && ms <= now_ms() - start, "%llu ms without a step", (unsigned long long)ms);
        start = now_ms();
        step(e);
        ms = load_of(e).ms_in_step;
        CHECK(ms <= now_ms() - start, "%llu ms since a step", (unsigned long long)ms);
        usleep(REST * 1000);
        CHECK(load_of(e).ms_in_step >= REST - 1, "no time passes between steps");
        finish(e, r, &a);
    }
    CHECK(load_of(e).ms_in_step == 0, "time passes at the end");
    sennit_engine_free(e);
    printf("load: the time in a step begins with the work or with the last step's end\n");
}

/* ---- many threads -------------------------------------------------------------------------------------------- */

struct reader {
    struct sennit_engine *engine;
    int fd;
    pthread_mutex_t lock;
    struct sennit_request *requests[N_READ]; /* under the lock until it is all there */
    int n;
    _Atomic bool stop;
};

static void ring(void *ctx)
{
    uint64_t one = 1;
    const struct reader *s = ctx;
    CHECK(write(s->fd, &one, sizeof one) == sizeof one, "the eventfd");
}

/* Half of the requests, a few at a time. */
static void *submit_half(void *arg)
{
    struct reader *s = arg;
    int32_t ids[60] = {0};
    for (int i = 0; i < N_READ / 2; i++) {
        struct sennit_request_options o = ask(ids, 1 + (size_t)i * 3, 1 + (uint32_t)i % 7);
        pthread_mutex_lock(&s->lock); /* the reader sees a request before the news of it */
        s->requests[s->n++] = submit(s->engine, &o);
        pthread_mutex_unlock(&s->lock);
        if (i % 4 == 3)
            usleep(500);
    }
    return NULL;
}

static void *watch(void *arg)
{
    struct reader *s = arg;
    struct sennit_load last = {0};
    size_t *n_looks = calloc(1, sizeof *n_looks);
    for (; !atomic_load(&s->stop); ++*n_looks) {
        struct sennit_load l = load_of(s->engine);
        uint64_t ended = l.n_finished[SENNIT_FINISH_LENGTH];
        CHECK(l.n_steps >= last.n_steps && l.n_prompt_tokens >= last.n_prompt_tokens &&
                  l.n_answer_tokens >= last.n_answer_tokens && l.n_requests >= last.n_requests &&
                  ended >= last.n_finished[SENNIT_FINISH_LENGTH] && l.heap_peak >= last.heap_peak,
              "a figure went back");
        CHECK(ended <= l.n_requests && l.rows_running <= l.max_rows && l.cache_bytes <= l.cache_reserved &&
                  l.cache_reserved <= l.cache_budget && l.cache_sessions <= l.cache_reserved && !l.failed,
              "figures that do not fit together");
        last = l;
    }
    return n_looks;
}

/* Sleeps on the eventfd alone: after each wake-up it reads what there is, and never looks without one. */
static void read_all(struct reader *s)
{
    struct seen seen[N_READ] = {{0}};
    int n_ended = 0, n_wakes = 0;
    while (n_ended < N_READ) {
        struct pollfd p = {.fd = s->fd, .events = POLLIN};
        uint64_t n;
        CHECK(poll(&p, 1, 60000) == 1, "no wake-up for a minute; %d of %d ended", n_ended, N_READ);
        CHECK(read(s->fd, &n, sizeof n) == sizeof n, "the eventfd");
        n_wakes++;
        pthread_mutex_lock(&s->lock);
        for (int i = 0; i < s->n; i++) {
            bool before = seen[i].ended;
            drain(s->requests[i], &seen[i]);
            n_ended += seen[i].ended && !before;
        }
        pthread_mutex_unlock(&s->lock);
    }
    for (int i = 0; i < N_READ; i++)
        CHECK(seen[i].n_read > 2, "request %d had %zu events", i, seen[i].n_read);
    printf("reader: every event of %d requests in %d wake-ups\n", N_READ, n_wakes);
}

/* How many threads of this process have the name. */
static int n_named(const char *name)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;
    CHECK(dir != NULL, "/proc/self/task");
    for (struct dirent *d; (d = readdir(dir));) {
        char path[300], comm[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
        FILE *in = fopen(path, "r");
        if (!in)
            continue;
        if (fgets(comm, sizeof comm, in))
            comm[strcspn(comm, "\n")] = '\0';
        n += strcmp(comm, name) == 0;
        fclose(in);
    }
    closedir(dir);
    return n;
}

static void sleeping_reader(const struct world *w)
{
    struct reader s = {.fd = eventfd(0, 0), .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t clients[2], watcher;
    void *looks;
    bool worked;
    struct sennit_error problem = {0};
    CHECK(s.fd >= 0, "no eventfd");
    s.engine = telling(w, 3, ring, &s);
    MUST(sennit_engine_start(s.engine, err));
    CHECK(load_of(s.engine).has_thread, "the engine's thread is not told");
    CHECK(sennit_engine_step(s.engine, &worked, &problem) == SENNIT_STATE && strstr(problem.message, "own thread"),
          "a step beside the engine's own thread: %s", problem.message);
    CHECK(pthread_create(&watcher, NULL, watch, &s) == 0, "a thread");
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&clients[i], NULL, submit_half, &s) == 0, "a thread");
    read_all(&s);
    CHECK(n_named("sn-engine") == 1 && n_named("sn-worker") == 2, "%d threads sn-engine, %d sn-worker",
          n_named("sn-engine"), n_named("sn-worker"));
    for (int i = 0; i < 2; i++)
        pthread_join(clients[i], NULL);
    atomic_store(&s.stop, true);
    pthread_join(watcher, &looks);
    sennit_engine_stop(s.engine, false);
    struct sennit_load l = load_of(s.engine);
    CHECK(l.n_finished[SENNIT_FINISH_LENGTH] == N_READ && l.rows_running == 0 && !l.has_thread && l.ms_in_step == 0,
          "%llu ended", (unsigned long long)l.n_finished[SENNIT_FINISH_LENGTH]);
    printf("watcher: %zu looks at the load meanwhile, never backwards\n", *(size_t *)looks);
    free(looks);
    for (int i = 0; i < N_READ; i++)
        sennit_request_free(s.requests[i]);
    sennit_engine_free(s.engine);
    close(s.fd);
}

int main(void)
{
    struct world w = {0};
    char path[256];
    world_open(&w, path);
    once_per_step(&w);
    at_rest(&w);
    time_in_step(&w);
    for (int i = 0; i < 3; i++)
        sleeping_reader(&w);
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
