/* Whole engines in what users of other engines met (docs/testing.md has the table): hundreds of turns of one
 * conversation, state that cannot be wound back, a precision that is in force or refused, codes in batches. */
#include "cache/family.h"
#include "engine/world.h"
#include "sched/engine.h"

/* ---- many turns ------------------------------------------------------------------------------------------------ */

/* 200 turns without an end of the conversation between them: some go on, some take another way from the middle. Every
 * one is answered as a cold engine answers it, from what is still there; what the session holds depends on its tokens
 * alone, and nothing is left at the end. */
static void many_turns(const struct world *w)
{
    enum { TURNS = 200, LIMIT = 200, ANSWER = 3 };
    int32_t ids[MAX_PROMPT];
    uint64_t state = 71, held[MAX_PROMPT] = {0};
    size_t n = 6, kept = 0;
    struct sennit_engine *e = engine_of(w, 2, PLENTY, 16);
    struct sennit_session *s = NULL;
    static struct answer a, cold;
    run_random_ids(&state, w->n_vocab, ids, MAX_PROMPT);
    MUST(sennit_session_create(&s, e, err));
    for (int turn = 0; turn < TURNS; turn++) {
        struct sennit_request_options o = ask(ids, n, ANSWER);
        o.session = s;
        finish(e, submit(e, &o), &a);
        alone(w, &o, &cold);
        CHECK(a.n == ANSWER && a.digest == cold.digest, "turn %d: %zu tokens, digest %s", turn, a.n,
              a.digest == cold.digest ? "right" : "wrong");
        CHECK(a.n_reused == kept, "turn %d: %zu tokens reused, not %zu", turn, a.n_reused, kept);
        size_t tokens = n + ANSWER - 1; /* the last one is pending */
        uint64_t bytes = sennit_engine_stats(e)->cache_bytes;
        CHECK(held[tokens] == 0 || held[tokens] == bytes, "turn %d: %llu bytes for %zu tokens, once %llu", turn,
              (unsigned long long)bytes, tokens, (unsigned long long)held[tokens]);
        held[tokens] = bytes;
        memcpy(ids + n, a.ids, ANSWER * sizeof *ids);
        kept = tokens;
        n += ANSWER + 5; /* the next question, of random ids that are there already */
        if (n >= LIMIT || turn % 9 == 8) {
            n = 12 + run_random(&state) % (kept - 12);
            kept = n - 2 - run_random(&state) % 9; /* the new way begins before the prompt's last token */
            ids[kept] = (ids[kept] + 1) % (int32_t)w->n_vocab;
        }
    }
    sennit_session_free(s);
    step(e);
    check_empty(e, "after 200 turns");
    sennit_engine_free(e);
    printf("turns: %d, each answered as cold, with the bytes of its tokens\n", TURNS);
}

/* ---- state that cannot be wound back --------------------------------------------------------------------------- */

static sennit_status refuse_trim(struct sennit_cache *cache, const struct sn_row *row, uint64_t n_tokens,
                                 void **spare, struct sennit_error *err)
{
    (void)cache, (void)row, (void)n_tokens;
    *spare = NULL;
    if (err)
        *err = (struct sennit_error){.code = SENNIT_RANGE, .message = "refused on purpose"};
    return SENNIT_RANGE;
}

/* The second layer refuses to be trimmed, when the first one has been already; or none can be trimmed at all. The
 * turn that needed it starts from nothing, and answers as a cold engine; the engine and the session go on. */
static void refused_rewind(const struct world *w)
{
    enum { WAYS = 3 };
    int32_t ids[80];
    uint64_t state = 72;
    static struct answer a, cold;
    run_random_ids(&state, w->n_vocab, ids, 80);
    struct sennit_engine *e = engine_of(w, 2, PLENTY, 16);
    struct sennit_session *s = NULL;
    MUST(sennit_session_create(&s, e, err));
    for (int way = 0; way < WAYS; way++) {
        struct sennit_request_options first = ask(ids, 60, 8), second = ask(ids, 50, 8);
        first.session = second.session = s;
        finish(e, submit(e, &first), &a);
        struct sn_family obstinate = *s->layers[1]->ops;
        obstinate.trim_prepare = refuse_trim;
        obstinate.trimmable = way != 1;
        const struct sn_family *usual = s->layers[1]->ops;
        if (way < 2)
            s->layers[1]->ops = &obstinate;
        ids[40 + way] = (ids[40 + way] + 1) % (int32_t)w->n_vocab; /* another text from here on */
        alone(w, &second, &cold);
        finish(e, submit(e, &second), &a);
        CHECK(a.digest == cold.digest && a.n == 8, "way %d: not as cold", way);
        CHECK(a.n_reused == (way < 2 ? 0 : 40 + (size_t)way), "way %d: %zu tokens reused", way, a.n_reused);
        for (uint32_t l = 0; l < 2; l++)
            CHECK(s->layers[l]->ops == usual && sennit_cache_row_offset(s->layers[l], 0) == 57, "layer %u", l);
    }
    sennit_session_free(s);
    step(e);
    check_empty(e, "after refused rewinds");
    sennit_engine_free(e);
    printf("rewind: a refusal in one layer, or of all trims, costs the prompt's reading and nothing else\n");
}

/* ---- precision ------------------------------------------------------------------------------------------------- */

/* The type that was asked for is in the statistics, in the bytes of a token and in those that live: 2 layers of 2
 * heads of 16 numbers each for keys and values, and a byte of each page's head. What is no such type is refused at
 * once. */
static void precision_in_force(const struct world *w)
{
    static const struct {
        sennit_type type;
        const char *name;
        uint64_t bytes;
    } types[] = {{SENNIT_F32, "F32", 4}, {SENNIT_F16, "F16", 2}, {SENNIT_BF16, "BF16", 2}};
    static const sennit_type wrong[] = {SENNIT_Q8_0, SENNIT_Q4_0, SENNIT_I8};
    int32_t ids[70];
    uint64_t state = 73, digests[3];
    static struct answer a;
    run_random_ids(&state, w->n_vocab, ids, 70);
    struct sennit_engine_options o = {
        .n_threads = 1, .max_rows = 1, .chunk = 100, .cache_bytes = PLENTY, .no_pin = true, .kv_type_set = true};
    for (int i = 0; i < 3; i++) {
        struct sennit_engine *e = NULL;
        o.kv_type = types[i].type;
        MUST(sennit_engine_create(&e, w->m, &o, err));
        struct sennit_request_options q = ask(ids, 65, 4);
        struct sennit_request *r = submit(e, &q);
        step(e); /* the prompt is read: two pages and a block of a table, in each layer */
        const struct sennit_stats *s = sennit_engine_stats(e);
        uint64_t token = 2 * 2 * 16 * types[i].bytes, live = 2 * (2 * (64 + 64 * token) + 512);
        CHECK(strcmp(s->kv_type, types[i].name) == 0, "'%s'", s->kv_type);
        CHECK(s->cache_bytes_per_token == 2 * (token + 1), "%s: %llu bytes per token", s->kv_type,
              (unsigned long long)s->cache_bytes_per_token);
        CHECK(s->cache_bytes == live, "%s: %llu bytes live, not %llu", s->kv_type, (unsigned long long)s->cache_bytes,
              (unsigned long long)live);
        finish(e, r, &a);
        digests[i] = a.digest;
        sennit_engine_free(e);
    }
    CHECK(digests[0] != digests[1] && digests[0] != digests[2] && digests[1] != digests[2],
          "two types have the same logits");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct sennit_engine *e = NULL;
        struct sennit_error err = {0};
        o.kv_type = wrong[i];
        sennit_status status = sennit_engine_create(&e, w->m, &o, &err);
        CHECK(status == SENNIT_INVALID && !e && err.message[0], "type %d: %s", (int)wrong[i],
              sennit_status_name(status));
    }
    printf("precision: f32, f16, bf16 in force to the byte; others refused when the engine is made\n");
}

/* ---- codes in batches ------------------------------------------------------------------------------------------ */

struct kind {
    const char *family, *stored;
    sennit_type type;        /* of keys and values that are no codes */
    uint32_t k_bits, v_bits; /* of codes */
    uint64_t bytes;          /* of a token in one layer: 2 heads of 64, and a byte of the page's head */
};
static const struct kind kinds[] = {
    {"plain", "F32", SENNIT_F32, 0, 0, 2 * 2 * 64 * 4 + 1},
    {"plain", "F16", SENNIT_F16, 0, 0, 2 * 2 * 64 * 2 + 1},
    {"affine", "affine k8 v8 g32", 0, 8, 8, 2 * (64 + 64 + 16) + 1},
    {"affine", "affine k8 v4 g32", 0, 8, 4, 2 * (64 + 32 + 16) + 1},
    {"affine", "affine k4 v4 g32", 0, 4, 4, 2 * (32 + 32 + 16) + 1},
    {"turboquant", NULL, 0, 8, 3, 0},
    {"turboquant", NULL, 0, 2, 2, 0},
    {"padded", "F16", SENNIT_F16, 0, 0, 0},
};

static struct sennit_engine *engine_of_kind(const struct world *w, const struct kind *k, uint32_t rows,
                                            uint32_t chunk)
{
    struct sennit_engine_options o = {.n_threads = 1,
                                      .max_rows = rows,
                                      .chunk = chunk,
                                      .cache_bytes = PLENTY,
                                      .no_pin = true,
                                      .cache_family = k->family,
                                      .kv_type = k->type,
                                      .kv_type_set = k->k_bits == 0};
    struct sennit_engine *e = NULL;
    o.kv_code.k_bits = k->k_bits;
    o.kv_code.v_bits = k->v_bits;
    o.kv_code.group = k->k_bits ? 32 : 0;
    MUST(sennit_engine_create(&e, w->m, &o, err));
    const struct sennit_stats *s = sennit_engine_stats(e);
    CHECK(strcmp(s->cache_family, k->family) == 0, "'%s', not '%s'", s->cache_family, k->family);
    CHECK(!k->stored || strcmp(s->kv_type, k->stored) == 0, "'%s', not '%s'", s->kv_type, k->stored);
    CHECK(k->bytes == 0 || s->cache_bytes_per_token == 2 * k->bytes, "%s: %llu bytes per token", s->kv_type,
          (unsigned long long)s->cache_bytes_per_token);
    return e;
}

/* Prompts of 3 to 130 tokens, more of them than rows, some given up: each answer is the one that it has alone. Then a
 * conversation that goes on, and one that takes another way. */
static uint64_t batch_of_kind(const struct world *w, const struct kind *k)
{
    enum { N = 6 };
    static const size_t lengths[N] = {12, 3, 65, 40, 64, 130};
    int32_t ids[MAX_PROMPT];
    uint64_t state = 74, first = 0;
    struct sennit_request *r[N], *noise[N];
    static struct answer a[N], cold;
    run_random_ids(&state, w->n_vocab, ids, MAX_PROMPT);
    struct sennit_engine *e = engine_of_kind(w, k, 3, 7), *alone_e = engine_of_kind(w, k, 1, 64);
    for (int i = 0; i < N; i++) {
        struct sennit_request_options o = ask(ids + i, lengths[i], 9);
        r[i] = submit(e, &o);
        noise[i] = submit(e, &o);
        a[i] = (struct answer){0};
    }
    while (step(e))
        for (int i = 0; i < N; i++) {
            take(r[i], &a[i]);
            if (run_random(&state) % 6 == 0)
                sennit_request_cancel(noise[i]);
        }
    for (int i = 0; i < N; i++) {
        struct sennit_request_options o = ask(ids + i, lengths[i], 9);
        take(r[i], &a[i]);
        finish(alone_e, submit(alone_e, &o), &cold);
        CHECK(a[i].n == 9 && a[i].digest == cold.digest, "%s: prompt of %zu tokens differs in a batch", k->family,
              lengths[i]);
        first = i == 2 ? cold.digest : first;
        sennit_request_free(r[i]);
        sennit_request_free(noise[i]);
    }
    struct sennit_session *s = NULL;
    MUST(sennit_session_create(&s, e, err));
    for (int turn = 0; turn < 3; turn++) {
        struct sennit_request_options o = ask(ids, turn == 1 ? 90 : 70, 5);
        ids[50] += turn == 2; /* another text in the middle of what is there */
        finish(alone_e, submit(alone_e, &o), &cold);
        o.session = s;
        finish(e, submit(e, &o), &a[0]);
        CHECK(a[0].digest == cold.digest && a[0].n_reused == (turn == 0   ? 0
                                                              : turn == 1 ? 70
                                                                          : 50),
              "%s: turn %d, %zu tokens reused", k->family, turn, a[0].n_reused);
    }
    sennit_session_free(s);
    step(e);
    check_empty(e, k->family);
    sennit_engine_free(e);
    sennit_engine_free(alone_e);
    return first;
}

/* Coded keys and values are served in batches as plain ones are, and each kind is in force: all have other logits but
 * those that only lie elsewhere. */
static void coded_batches(void)
{
    enum { N = sizeof kinds / sizeof *kinds };
    struct tiny_spec spec = tiny_spec_default();
    struct world w = {.n_vocab = spec.n_vocab};
    char path[256];
    uint64_t digest[N];
    spec.head_dim = 64;
    run_tiny_path(&spec, path);
    MUST(sennit_model_open(&w.m, path, NULL, err));
    for (int i = 0; i < N; i++)
        digest[i] = batch_of_kind(&w, &kinds[i]);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < i; j++) {
            bool same = kinds[i].stored && kinds[j].stored && strcmp(kinds[i].stored, kinds[j].stored) == 0;
            CHECK((digest[i] == digest[j]) == same, "kinds %d and %d", j, i);
        }
    sennit_model_free(w.m);
    run_unlink(path);
    printf("codes: %d kinds of caches in batches, each answer as alone, sessions wound back exactly\n", N);
}

int main(void)
{
    struct world w = {0};
    char path[256];
    world_open(&w, path);
    many_turns(&w);
    refused_rewind(&w);
    precision_in_force(&w);
    coded_batches();
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
