/* Many clients of one running engine: submitting, reading, cancelling and freeing from several
 * threads at once. Every answer that was not cancelled is the one that the request would have had
 * alone; sessions included; a stop that lets the work finish loses nothing, one that cancels ends
 * everything.
 *
 *   threads [--requests N]    requests per client, default 60 */
#include "engine/run.h"
#include "support/tiny_model.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_CLIENTS = 6, N_PROBLEMS = 24, MAX_PROMPT = 40, MAX_ANSWER = 12, N_SLOTS = 8 };

struct problem {
    int32_t ids[MAX_PROMPT];
    struct run_job job;
    struct run_result want;
    /* the second turn of a conversation: prompt, answer, four more tokens */
    int32_t second_ids[MAX_PROMPT + MAX_ANSWER + 4];
    struct run_job second;
    struct run_result second_want;
};

struct shared {
    struct sennit_engine *engine;
    struct problem problems[N_PROBLEMS];
    uint32_t per_client;
    /* Requests that anybody may cancel while they are here. */
    pthread_mutex_t lock;
    struct sennit_request *slots[N_SLOTS];
    bool stop_killer;
    /* of all clients, under the lock */
    size_t n_whole, n_cancelled, n_dropped, n_turns, n_reused;
};

/* ---- what each answer should be
 * -------------------------------------------------------------------------------- */

static void make_problems(struct shared *s, const struct sennit_model *m)
{
    struct run_setting alone = {.isa = "scalar", .n_threads = 1, .chunk = 64, .max_rows = 1};
    struct sennit_engine *engine = run_engine(m, &alone);
    uint32_t n_vocab = sennit_model_get_info(m)->n_vocab;
    uint64_t state = 1234;
    for (int i = 0; i < N_PROBLEMS; i++) {
        struct problem *p = &s->problems[i];
        size_t n = 1 + run_random(&state) % MAX_PROMPT;
        run_random_ids(&state, n_vocab, p->ids, n);
        p->job = (struct run_job){.prompt = p->ids,
                                  .n_prompt = n,
                                  .max_tokens = 1 + (uint32_t)i % MAX_ANSWER,
                                  .cancel_step = RUN_NEVER};
        if (i % 2)
            p->job.sampling =
                (struct sennit_sampling){.temperature = 0.9f, .top_p = 0.9f, .seed = (uint64_t)i};
        run_jobs(engine, &p->job, 1, &p->want);
        memcpy(p->second_ids, p->ids, n * sizeof *p->ids);
        memcpy(p->second_ids + n, p->want.answer, p->want.n_answer * sizeof *p->ids);
        run_random_ids(&state, n_vocab, p->second_ids + n + p->want.n_answer, 4);
        p->second = p->job;
        p->second.prompt = p->second_ids;
        p->second.n_prompt = n + p->want.n_answer + 4;
        run_jobs(engine, &p->second, 1, &p->second_want);
    }
    sennit_engine_free(engine);
}

/* ---- clients --------------------------------------------------------------------------------- */

static struct sennit_request *submit(struct shared *s, const struct run_job *job,
                                     struct sennit_session *session)
{
    struct sennit_request_options o = {.prompt = job->prompt,
                                       .n_prompt = job->n_prompt,
                                       .max_tokens = job->max_tokens,
                                       .sampling = job->sampling,
                                       .ignore_eos = true,
                                       .session = session};
    struct sennit_request *r = NULL;
    MUST(sennit_engine_submit(s->engine, &o, &r, err));
    return r;
}

/* Reads to the end and checks, after n tokens were read. may_cancel: somebody may have cancelled
 * it. Returns whether it was whole. */
static bool read_answer(struct sennit_request *r, const struct run_result *want, size_t n,
                        bool may_cancel, size_t *reused)
{
    for (;;) {
        struct sennit_event ev;
        MUST(sennit_request_next_event(r, &ev, 60000, err));
        CHECK(ev.kind != SENNIT_EVENT_NONE, "no event for a minute");
        if (ev.kind == SENNIT_EVENT_TOKEN) {
            CHECK(n < want->n_answer && ev.id == want->answer[n], "token %zu is %d, alone it is %d",
                  n, ev.id, n < want->n_answer ? want->answer[n] : -1);
            n++;
        }
        if (ev.kind != SENNIT_EVENT_END)
            continue;
        if (reused)
            *reused = ev.n_reused;
        if (ev.finish == SENNIT_FINISH_CANCELLED && may_cancel)
            return false;
        CHECK(ev.finish == SENNIT_FINISH_LENGTH && ev.digest == want->digest && n == want->n_answer,
              "finish %s (%s), digest %016" PRIx64 ", alone %016" PRIx64,
              sennit_finish_name(ev.finish), ev.error.message, ev.digest, want->digest);
        return true;
    }
}

/* Lets the killer have it for a while; false when all places are taken. */
static bool expose(struct shared *s, struct sennit_request *r, size_t *slot)
{
    bool found = false;
    pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < N_SLOTS && !found; i++)
        if (!s->slots[i]) {
            s->slots[i] = r;
            *slot = i;
            found = true;
        }
    pthread_mutex_unlock(&s->lock);
    return found;
}

static void hide(struct shared *s, size_t slot)
{
    pthread_mutex_lock(&s->lock);
    s->slots[slot] = NULL;
    pthread_mutex_unlock(&s->lock);
}

static void count(struct shared *s, size_t *what, size_t n)
{
    pthread_mutex_lock(&s->lock);
    *what += n;
    pthread_mutex_unlock(&s->lock);
}

/* A conversation of two turns. */
static void two_turns(struct shared *s, const struct problem *p)
{
    struct sennit_session *session = NULL;
    size_t reused = 0;
    MUST(sennit_session_create(&session, s->engine, err));
    struct sennit_request *r = submit(s, &p->job, session);
    read_answer(r, &p->want, 0, false, NULL);
    sennit_request_free(r);
    r = submit(s, &p->second, session);
    read_answer(r, &p->second_want, 0, false, &reused);
    sennit_session_free(session); /* while the request is still there */
    sennit_request_free(r);
    count(s, &s->n_turns, 2);
    count(s, &s->n_reused, reused);
}

static void one_request(struct shared *s, uint64_t *state)
{
    const struct problem *p = &s->problems[run_random(state) % N_PROBLEMS];
    uint64_t what = run_random(state) % 8;
    if (what == 0) {
        two_turns(s, p);
        return;
    }
    struct sennit_request *r = submit(s, &p->job, NULL);
    size_t slot;
    if (what == 1) { /* dropped without reading */
        sennit_request_free(r);
        count(s, &s->n_dropped, 1);
    } else if (what == 2) { /* cancelled here after a moment */
        size_t n = 0;
        for (uint64_t i = run_random(state) % 4; i > 0 && n + 1 < p->want.n_answer; i--) {
            struct sennit_event ev;
            MUST(sennit_request_next_event(r, &ev, 5, err));
            n += ev.kind == SENNIT_EVENT_TOKEN;
        }
        sennit_request_cancel(r);
        count(s, read_answer(r, &p->want, n, true, NULL) ? &s->n_whole : &s->n_cancelled, 1);
        sennit_request_free(r);
    } else { /* read to its end, maybe cancelled by another thread */
        bool exposed = what < 5 && expose(s, r, &slot);
        bool whole = read_answer(r, &p->want, 0, exposed, NULL);
        if (exposed)
            hide(s, slot);
        sennit_request_free(r);
        count(s, whole ? &s->n_whole : &s->n_cancelled, 1);
    }
}

struct client {
    struct shared *s;
    uint64_t seed;
};

static void *client_main(void *arg)
{
    struct client *c = arg;
    uint64_t state = c->seed;
    for (uint32_t i = 0; i < c->s->per_client; i++)
        one_request(c->s, &state);
    return NULL;
}

static void *killer_main(void *arg)
{
    struct shared *s = arg;
    uint64_t state = 42;
    for (bool stop = false; !stop;) {
        nanosleep(&(struct timespec){.tv_nsec = 300000}, NULL);
        pthread_mutex_lock(&s->lock);
        struct sennit_request *r = s->slots[run_random(&state) % N_SLOTS];
        if (r && run_random(&state) % 3 == 0)
            sennit_request_cancel(r);
        stop = s->stop_killer;
        pthread_mutex_unlock(&s->lock);
    }
    return NULL;
}

static void start_thread(pthread_t *t, void *(*fn)(void *), void *arg)
{
    int rc = pthread_create(t, NULL, fn, arg);
    CHECK(rc == 0, "pthread_create: %d", rc);
}

static void many_clients(struct shared *s)
{
    pthread_t clients[N_CLIENTS], killer;
    struct client args[N_CLIENTS];
    MUST(sennit_engine_start(s->engine, err));
    start_thread(&killer, killer_main, s);
    for (int i = 0; i < N_CLIENTS; i++) {
        args[i] = (struct client){s, 1000 + (uint64_t)i};
        start_thread(&clients[i], client_main, &args[i]);
    }
    for (int i = 0; i < N_CLIENTS; i++)
        pthread_join(clients[i], NULL);
    pthread_mutex_lock(&s->lock);
    s->stop_killer = true;
    pthread_mutex_unlock(&s->lock);
    pthread_join(killer, NULL);
}

/* A running engine without work waits; it does not spin. */
static double idle_share(void)
{
    struct timespec before, after;
    enum { MS = 400 };
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&(struct timespec){.tv_nsec = MS * 1000000L}, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    double used =
        (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
    CHECK(used < 0.5 * MS / 1000, "an idle engine used %.3f s of CPU in %d ms", used, MS);
    return used / (MS / 1000.0);
}

/* ---- stopping -------------------------------------------------------------------------------- */

struct reader {
    struct sennit_request *r;
    const struct run_result *want;
    bool may_cancel, whole;
};

static void *reader_main(void *arg)
{
    struct reader *w = arg;
    if (w->may_cancel && w->want->n_answer % 3 == 0) /* while the engine cancels it too */
        sennit_request_cancel(w->r);
    w->whole = read_answer(w->r, w->want, 0, w->may_cancel, NULL);
    return NULL;
}

/* Stops while many requests are on their way and each is being read by a thread of its own. */
static size_t stop_with_work(struct shared *s, bool cancel)
{
    pthread_t threads[N_PROBLEMS];
    struct reader readers[N_PROBLEMS];
    size_t whole = 0;
    for (int i = 0; i < N_PROBLEMS; i++) {
        readers[i] = (struct reader){submit(s, &s->problems[i].job, NULL), &s->problems[i].want,
                                     cancel, false};
        start_thread(&threads[i], reader_main, &readers[i]);
    }
    sennit_engine_stop(s->engine, cancel);
    for (int i = 0; i < N_PROBLEMS; i++) {
        pthread_join(threads[i], NULL);
        whole += readers[i].whole;
        sennit_request_free(readers[i].r);
    }
    return whole;
}

int main(int argc, char **argv)
{
    static struct shared s;
    s.per_client =
        argc > 2 && strcmp(argv[1], "--requests") == 0 ? (uint32_t)strtoul(argv[2], NULL, 10) : 60;
    pthread_mutex_init(&s.lock, NULL);
    struct tiny_spec spec = tiny_spec_default();
    spec.type = SENNIT_Q8_0;
    char path[256];
    run_tiny_path(&spec, path);
    struct sennit_model *m = NULL;
    MUST(sennit_model_open(&m, path, NULL, err));
    make_problems(&s, m);
    struct run_setting setting = {.isa = NULL, .n_threads = 2, .chunk = 16, .max_rows = 4};
    s.engine = run_engine(m, &setting);
    many_clients(&s);
    double idle = idle_share();
    size_t finished = stop_with_work(&s, false);
    CHECK(finished == N_PROBLEMS, "only %zu of %d requests were finished by the stop", finished,
          N_PROBLEMS);
    MUST(sennit_engine_start(s.engine, err));
    size_t survived = stop_with_work(&s, true);
    const struct sennit_stats *stats = sennit_engine_stats(s.engine);
    CHECK(stats->cache_bytes == 0 && stats->cache_reserved == 0 && stats->rows_running == 0 &&
              stats->rows_waiting == 0,
          "%llu bytes of cache, %u rows, %u waiting are left",
          (unsigned long long)stats->cache_bytes, stats->rows_running, stats->rows_waiting);
    printf("%d clients, %u requests each: %zu answers whole and as alone, %zu cancelled, %zu "
           "dropped unread, %zu turns "
           "of conversations (%zu tokens reused); at most %u rows in a step\n",
           N_CLIENTS, s.per_client, s.n_whole, s.n_cancelled, s.n_dropped, s.n_turns, s.n_reused,
           stats->most_rows_in_step);
    printf("idle: %.1f %% of one CPU\n", 100 * idle);
    printf(
        "stop: %zu of %d finished and as alone; stop with cancel: all ended, %zu of them whole\n",
        finished, N_PROBLEMS, survived);
    CHECK(s.n_whole > 0 && s.n_turns > 0 && s.n_reused > 0, "nothing was compared");
    sennit_engine_free(s.engine);
    sennit_model_free(m);
    run_unlink(path);
    pthread_mutex_destroy(&s.lock);
    return 0;
}
