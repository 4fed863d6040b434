/* Every allocation of a script of all operations fails in turn: the call says so, nothing has
 * changed, and the same call made again succeeds with the same result as if nothing had failed. */
#include <stdio.h>
#include <stdlib.h>

#include "cache/harness.h"
#include "cache/twin.h"

enum { H = 2, GROUP = 2, DK = 32, DV = 32, WIDTH = H * GROUP * DV, N_STEPS = 24 };

struct script {
    struct sennit_pool *pool;
    struct geometry g;
    struct sennit_cache *a, *b, *batch, *copy, *loaded;
    struct sennit_donor *donor;
    struct sennit_donor_attention *view;
    struct memory saved;
    float out[WIDTH * 80];
};

static sennit_status feed(struct script *s, struct sennit_cache *c, uint32_t row, uint64_t seed, uint32_t n,
                          struct sennit_error *err)
{
    uint64_t tokens[80], most = sennit_cache_max_append_tokens(c, row);
    n = n < most ? n : (uint32_t)most;
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = seed + i;
    struct work_span span = {.row = row, .tokens = tokens, .n_tokens = n, .out = s->out};
    struct step_options options = {0};
    return run_step(c, &s->g, &span, 1, &options, err);
}

static sennit_status save(struct script *s, struct sennit_error *err)
{
    free(s->saved.data);
    struct sennit_stream w = memory_writer(&s->saved);
    return sennit_cache_save(s->batch, 1, &w, err);
}

static sennit_status load(struct script *s, struct sennit_error *err)
{
    struct sennit_stream r = memory_reader(&s->saved);
    return sennit_cache_load(s->batch, &r, &s->loaded, err);
}

static sennit_status lease(struct script *s, struct sennit_error *err)
{
    struct sennit_state state;
    sennit_status status = sennit_cache_state(s->batch, &state, err);
    if (status == SENNIT_OK)
        sennit_state_release(&state);
    return status;
}

static sennit_status run_line(struct script *s, int line, struct sennit_error *err)
{
    const struct sennit_cache *sources[] = {s->a, s->b};
    static const uint32_t swap[] = {1, 0};
    static const uint64_t keep[] = {1, 0};
    float q[2 * H * GROUP * DK]; /* of two rows */
    token_query(1, SN_ARRAY_LEN(q), q);
    if (line == 9 && !sennit_cache_is_trimmable(s->copy))
        return SENNIT_OK;
    if (line >= 14 && line <= 16 && s->batch->ops->no_planes)
        return SENNIT_OK;
    switch (line) {
    case 0:
        return sennit_cache_create(&s->a, s->pool, &s->g.config, 1, err);
    case 1:
        return sennit_cache_create(&s->b, s->pool, &s->g.config, 1, err);
    case 2:
        return feed(s, s->a, 0, 1, 70, err);
    case 3:
        return feed(s, s->b, 0, 100, 20, err);
    case 4:
        return sennit_cache_make_empty_batch(s->a, &s->batch, err);
    case 5:
        return sennit_cache_merge_rows(s->batch, sources, 2, err);
    case 6:
        return feed(s, s->batch, 0, 200, 3, err); /* copies a shared page and table */
    case 7:
        return sennit_cache_filter_rows(s->batch, swap, 2, err);
    case 8:
        return sennit_cache_clone(s->batch, 1, &s->copy, err);
    case 9:
        return sennit_cache_trim(s->copy, precision_start(&s->g.config) < 73 ? 3 : 20, false,
                                 err); /* a shared table */
    case 10:
        return feed(s, s->copy, 0, 300, 40, err);
    case 11:
        return sennit_cache_spec_round_begin(s->batch, err);
    case 12:
        return feed(s, s->batch, 0, 400, 4, err);
    case 13:
        return sennit_cache_spec_round_rollback(s->batch, keep, err);
    case 14:
        return sennit_cache_capture_donor_rows(s->batch, &s->donor, err);
    case 15:
        return sennit_cache_capture_donor_attention(s->batch, &s->view, err);
    case 16:
        return sennit_donor_attend(s->view, q, n_heads_of(&s->g), 1, 1.0f, NULL, s->out, err);
    case 17:
        return save(s, err);
    case 18:
        return load(s, err);
    case 19:
        return lease(s, err);
    case 20:
        return feed(s, s->loaded, 0, 500, 60, err);
    case 21:
        sennit_cache_dispose(&s->a);
        return SENNIT_OK;
    case 22:
        return feed(s, s->batch, 1, 600, 70, err);
    default:
        return feed(s, s->batch, 0, 700, 2, err);
    }
}

static uint64_t fingerprint(const struct script *s)
{
    const struct sennit_cache *all[] = {s->a, s->b, s->batch, s->copy, s->loaded};
    uint64_t h = 0;
    for (size_t i = 0; i < SN_ARRAY_LEN(all); i++)
        h = mix64(h ^ (all[i] ? cache_fingerprint(all[i]) : 0));
    return h;
}

/* The n-th allocation after the pool's creation fails. Returns false when there were fewer; *result
 * = the end state. */
static bool run_script(const struct tested_family *tested, uint32_t page_tokens, bool hostile, uint64_t n,
                       uint64_t *result)
{
    const char *family = tested->name;
    struct script s = {.g = {.config = {.n_kv_heads = H,
                                        .d_k = DK,
                                        .d_v = DV,
                                        .k_type = SENNIT_F16,
                                        .v_type = SENNIT_F16,
                                        .page_tokens = page_tokens,
                                        .round_depth = 8},
                             .group = GROUP,
                             .scale = 0.5f}};
    small_geometry(tested, &s.g);
    if (s.g.config.window.tokens) { /* one that moves on */
        s.g.config.window.tokens = 10;
        s.g.config.window.slack = 30;
        s.g.config.window.n_kept = 3;
    }
    static struct sennit_cache_config inner; /* rows change where the first one stands when it is merged */
    if (tested->changes_precision && s.g.config.window.tokens) {
        inner = s.g.config.inner[0];
        inner.start = 70;
        s.g.config.inner = &inner;
    } else if (strcmp(family_of(tested), "delayed") == 0) {
        s.g.config.start = 70;
    }
    OK(sennit_pool_create(&s.pool, NULL, err));
    struct sn_heap *heap = s.pool->heap;
    size_t misc = atomic_load(&heap->used[SN_USE_MISC]);
    sn_cache_pool_set_poison(s.pool, true);
    sn_cache_pool_set_hostile(s.pool, hostile);
    sn_heap_fail_at(heap, n);
    bool fired = false;
    for (int line = 0; line < N_STEPS; line++) {
        struct sennit_error err = {0};
        uint64_t before = fingerprint(&s), bytes = sennit_pool_bytes(s.pool);
        sennit_status status = run_line(&s, line, &err);
        if (status != SENNIT_OK) {
            if (status != SENNIT_NOMEM || fired || err.message[0] == '\0')
                die("%s, allocation %llu, line %d: %s (%s)", family, (unsigned long long)n, line,
                    sennit_status_name(status), err.message);
            if (fingerprint(&s) != before || sennit_pool_bytes(s.pool) != bytes)
                die("%s, allocation %llu, line %d: a refused call has changed something", family,
                    (unsigned long long)n, line);
            fired = true;
            line--;
        }
    }
    *result = fingerprint(&s);
    sn_heap_fail_at(heap, 0);
    struct sennit_cache **all[] = {&s.a, &s.b, &s.batch, &s.copy, &s.loaded};
    for (size_t i = 0; i < SN_ARRAY_LEN(all); i++)
        sennit_cache_dispose(all[i]);
    sennit_donor_free(s.donor);
    sennit_donor_attention_free(s.view);
    free(s.saved.data);
    CHECK(sennit_pool_bytes(s.pool) == 0 && atomic_load(&heap->used[SN_USE_MISC]) == misc);
    sennit_pool_free(s.pool);
    return fired;
}

/* Pool creation itself, through a host that refuses one call. */
struct host {
    uint64_t calls, fail_at;
    size_t live;
};

static void *host_alloc(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    struct host *h = ctx;
    if (new_bytes == 0) {
        h->live -= old_bytes;
        free(ptr);
        return NULL;
    }
    CHECK(ptr == NULL);
    if (++h->calls == h->fail_at)
        return NULL;
    h->live += new_bytes;
    return must(aligned_alloc(64, sn_round_up(new_bytes, 64)));
}

static void pool_creation(void)
{
    for (uint64_t n = 1;; n++) {
        struct host host = {.fail_at = n};
        struct sennit_pool_options options = {.allocator = {host_alloc, &host}, .n_workers = 3};
        struct sennit_pool *pool = NULL;
        sennit_status status = sennit_pool_create(&pool, &options, NULL);
        sennit_pool_free(pool);
        CHECK(host.live == 0);
        if (status == SENNIT_OK)
            break;
        CHECK(status == SENNIT_NOMEM && !pool && n < 20);
    }
}

static void run_family(const char *family, uint32_t page_tokens, bool hostile)
{
    const struct tested_family *tested = find_tested(family);
    uint64_t want, got, n = 1;
    CHECK(!run_script(tested, page_tokens, hostile, 0, &want));
    for (; run_script(tested, page_tokens, hostile, n, &got); n++)
        if (got != want)
            die("%s: after failure %llu the script ended in another state", family, (unsigned long long)n);
    CHECK(n > 20);
    printf("%s, pages of %u%s: each of %llu allocations failed once\n", family, page_tokens ? page_tokens : 64,
           hostile ? ", hostile" : "", (unsigned long long)n - 1);
}

int main(void)
{
    pool_creation();
    all_families_are_tested();
    for (const struct tested_family *const *f = tested_families; *f; f++)
        run_family((*f)->name, 0, false);
    run_family("plain", 8, false);
    run_family("plain", 1, true);
    run_family("affine", 8, false);
    run_family("turboquant", 8, false);
    run_family("delayed", 8, false);
    run_family("delayed", 1, true);
    run_family("window", 8, false);
    run_family("window", 1, true);
    run_family("padded", 8, false);
    run_family("padded", 1, true);
    return 0;
}
