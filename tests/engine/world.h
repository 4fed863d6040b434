/* Short tools for tests that talk to one engine: submit, step with the books checked, read an
 * answer whole. */
#ifndef ENGINE_WORLD_H
#define ENGINE_WORLD_H

#include "engine/run.h"
#include "support/tiny_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PROMPT = 300, MAX_EVENTS = 256, FIRST_BYTE = TINY_N_SPECIAL };

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

static inline struct sennit_engine *engine_of(const struct world *w, uint32_t max_rows,
                                              uint64_t budget, uint32_t chunk)
{
    struct sennit_engine_options o = {.n_threads = 1,
                                      .max_rows = max_rows,
                                      .chunk = chunk,
                                      .cache_bytes = budget,
                                      .no_pin = true};
    struct sennit_engine *e = NULL;
    MUST(sennit_engine_create(&e, w->m, &o, err));
    return e;
}

static const uint64_t PLENTY = (uint64_t)64 << 20;

static inline struct sennit_request *submit(struct sennit_engine *e,
                                            const struct sennit_request_options *o)
{
    struct sennit_request *r = NULL;
    MUST(sennit_engine_submit(e, o, &r, err));
    return r;
}

static inline struct sennit_request_options ask(const int32_t *ids, size_t n, uint32_t max_tokens)
{
    return (struct sennit_request_options){
        .prompt = ids, .n_prompt = n, .max_tokens = max_tokens, .ignore_eos = true};
}

/* Whole characters only? */
static inline bool is_utf8(const char *s, size_t n)
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
static inline void take(struct sennit_request *r, struct answer *a)
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

static inline bool step(struct sennit_engine *e)
{
    bool worked;
    MUST(sennit_engine_step(e, &worked, err));
    const struct sennit_stats *s = sennit_engine_stats(e);
    CHECK(s->cache_bytes <= s->cache_reserved && s->cache_reserved <= s->cache_budget,
          "%llu bytes live, %llu promised, %llu budget", (unsigned long long)s->cache_bytes,
          (unsigned long long)s->cache_reserved, (unsigned long long)s->cache_budget);
    return worked;
}

static inline void finish(struct sennit_engine *e, struct sennit_request *r, struct answer *a)
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
static inline void alone(const struct world *w, const struct sennit_request_options *o,
                         struct answer *a)
{
    struct sennit_engine *e = engine_of(w, 1, PLENTY, 64);
    struct sennit_request_options solo = *o;
    solo.session = NULL;
    finish(e, submit(e, &solo), a);
    sennit_engine_free(e);
}

static inline void check_empty(struct sennit_engine *e, const char *when)
{
    const struct sennit_stats *s = sennit_engine_stats(e);
    CHECK(s->cache_bytes == 0 && s->cache_reserved == 0 && s->rows_running == 0 &&
              s->rows_waiting == 0,
          "%s: %llu bytes, %llu promised, %u rows, %u waiting", when,
          (unsigned long long)s->cache_bytes, (unsigned long long)s->cache_reserved,
          s->rows_running, s->rows_waiting);
}

/* What a request is promised: caches for all its tokens, and the arrays of its answer. */
static inline uint64_t need_of(const struct world *w, size_t n_prompt, uint32_t max_tokens)
{
    int32_t ids[MAX_PROMPT] = {0};
    struct sennit_engine *e = engine_of(w, 1, PLENTY, 1);
    struct sennit_request_options o = ask(ids, n_prompt, max_tokens);
    struct sennit_request *r = submit(e, &o);
    step(e);
    uint64_t need = sennit_engine_stats(e)->cache_reserved;
    sennit_request_free(r);
    sennit_engine_free(e);
    return need;
}

/* A submit that must be refused with `want`, in words that contain a and b. */
static inline void refuse(struct sennit_engine *e, const struct sennit_request_options *o,
                          sennit_status want, const char *a, const char *b)
{
    struct sennit_error err = {0};
    struct sennit_request *r = NULL;
    sennit_status st = sennit_engine_submit(e, o, &r, &err);
    CHECK(st == want && err.code == want && r == NULL, "%s, not %s: %s", sennit_status_name(st),
          sennit_status_name(want), err.message);
    CHECK(strstr(err.message, a) && strstr(err.message, b), "'%s' does not say '%s' and '%s'",
          err.message, a, b);
}

static inline void world_open(struct world *w, char path[256])
{
    struct tiny_spec spec = tiny_spec_default();
    run_tiny_path(&spec, path);
    MUST(sennit_model_open(&w->m, path, NULL, err));
    w->n_vocab = spec.n_vocab;
}

#endif
