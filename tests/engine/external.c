/* An engine whose caches are of a family from outside the library: it keeps f32, so every answer has the digest that
 * it has with "plain" in f32, in a batch, in chunks, with a session. And what cannot be is refused at once. The same
 * with "padded", whose rows share columns, and hold no more than the engine has promised them. */
#include "engine/world.h"
#include "support/raw_family.h"

enum { N_ROWS = 3, N_TOKENS = 20 };

static const char *library_family; /* NULL: "plain", or the one from outside */

static struct sennit_engine_options options_of(const struct sennit_family *external)
{
    return (struct sennit_engine_options){.n_threads = 2,
                                          .max_rows = N_ROWS,
                                          .chunk = 7,
                                          .cache_bytes = PLENTY,
                                          .cache_external = external,
                                          .cache_family = library_family,
                                          .kv_type = SENNIT_F32,
                                          .kv_type_set = external == NULL,
                                          .no_pin = true};
}

/* Rows of several lengths together, then a second turn of the first. */
static void answers(const struct world *w, const struct sennit_family *external, uint64_t digests[N_ROWS + 1])
{
    struct sennit_engine_options o = options_of(external);
    struct sennit_engine *e = NULL;
    struct sennit_session *session = NULL;
    struct sennit_request *r[N_ROWS];
    int32_t ids[MAX_PROMPT];
    uint64_t state = 3;
    struct answer a;
    run_random_ids(&state, w->n_vocab, ids, MAX_PROMPT);
    MUST(sennit_engine_create(&e, w->m, &o, err));
    MUST(sennit_session_create(&session, e, err));
    for (int i = 0; i < N_ROWS; i++) {
        struct sennit_request_options q = ask(ids + i, 10 + 40 * (size_t)i, N_TOKENS);
        q.session = i ? NULL : session;
        r[i] = submit(e, &q);
    }
    for (int i = 0; i < N_ROWS; i++) {
        finish(e, r[i], &a);
        digests[i] = a.digest;
    }
    struct sennit_request_options q = ask(ids, 90, N_TOKENS);
    q.session = session;
    finish(e, submit(e, &q), &a);
    digests[N_ROWS] = a.digest;
    CHECK(a.n_reused >= 9, "%zu tokens were still there", a.n_reused);
    const struct sennit_stats *s = sennit_engine_stats(e);
    const char *family = external ? "raw" : library_family ? library_family : "plain";
    CHECK(strcmp(s->cache_family, family) == 0, "'%s'", s->cache_family);
    CHECK(strcmp(s->kv_type, external ? "raw as it comes" : "F32") == 0, "'%s'", s->kv_type);
    sennit_session_free(session);
    sennit_engine_free(e);
}

static void refused(const struct world *w, struct sennit_engine_options o, const char *says)
{
    struct sennit_engine *e = NULL;
    struct sennit_error err = {0};
    sennit_status status = sennit_engine_create(&e, w->m, &o, &err);
    CHECK(status == SENNIT_INVALID && !e && strstr(err.message, says), "%s: %s", sennit_status_name(status),
          err.message);
}

static bool no_geometry(const struct sennit_family_geometry *g, char *reason, size_t n_bytes)
{
    snprintf(reason, n_bytes, "%u heads are wrong", g->n_kv_heads);
    return false;
}

static void refusals(const struct world *w)
{
    struct sennit_family f = raw_family;
    struct sennit_engine_options o = options_of(&f);
    o.kv_type_set = true;
    refused(w, o, "kv_type means nothing to the cache family 'raw'");
    o = options_of(&f);
    o.kv_code.v_bits = 4;
    refused(w, o, "kv_code means nothing to the cache family 'raw'");
    o = options_of(&f);
    o.cache_family = "plain";
    refused(w, o, "cache_family is 'plain' and cache_external is 'raw'");
    o = options_of(NULL);
    o.cache_family = "affine";
    refused(w, o, "kv_type means nothing to the cache family 'affine'");
    o = options_of(NULL);
    o.kv_code.k_bits = 8;
    refused(w, o, "kv_code means nothing to the cache family 'plain'");
    o = options_of(&f);
    f.struct_bytes--;
    refused(w, o, "struct_bytes");
    f = raw_family, f.load_chunk = NULL;
    refused(w, o, "load_chunk is missing");
    f = raw_family, f.name = "affine";
    refused(w, o, "the library has a family of that name");
    f = raw_family, f.check = no_geometry;
    refused(w, o, "heads are wrong");
}

int main(void)
{
    struct world w = {0};
    char path[256];
    uint64_t plain[N_ROWS + 1], raw[N_ROWS + 1], padded[N_ROWS + 1];
    world_open(&w, path);
    refusals(&w);
    answers(&w, NULL, plain);
    answers(&w, &raw_family, raw);
    library_family = "padded";
    answers(&w, NULL, padded);
    for (int i = 0; i <= N_ROWS; i++)
        CHECK(plain[i] == raw[i], "answer %d: digest %016" PRIx64 ", %016" PRIx64, i, plain[i], raw[i]);
    for (int i = 0; i <= N_ROWS; i++)
        CHECK(plain[i] == padded[i], "answer %d: digest %016" PRIx64 ", padded %016" PRIx64, i, plain[i], padded[i]);
    printf("external: %d answers have the digests of \"plain\"\n", N_ROWS + 1);
    sennit_model_free(w.m);
    run_unlink(path);
    return 0;
}
