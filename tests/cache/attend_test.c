/* The attention driver's hooks, each on a family made here out of "plain": windows, kept first tokens, selected keys,
 * loading through f32 panels, prepared queries, finishing, routing. The oracle is the naive family's donor attention
 * under a mask, whose bits must come out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cache/plain.h"
#include "cache/twin.h"
#include "kernel/math.h"
#include "tensor/traits.h"

enum { H = 2, GROUP = 2, HEADS = H * GROUP, DK = 24, DV = 17, N = 700, WIDTH = HEADS * DV };

struct fixture {
    struct sennit_pool *pool;
    struct sn_family family; /* plain with other attend ops */
    struct geometry g;
    struct sennit_cache *cache, *naive;
    uint64_t tokens[N];
    float *out; /* [N][WIDTH] */
};

static void open_fixture(struct fixture *f, const struct sn_attend_ops *ops, uint32_t page_tokens)
{
    *f = (struct fixture){.family = sn_family_plain};
    f->family.attend = ops;
    f->g = (struct geometry){.config = {.family = "plain",
                                        .n_kv_heads = H,
                                        .d_k = DK,
                                        .d_v = DV,
                                        .k_type = SENNIT_F16,
                                        .v_type = SENNIT_F16,
                                        .page_tokens = page_tokens},
                             .group = GROUP,
                             .scale = 0.2f};
    for (uint64_t i = 0; i < N; i++)
        f->tokens[i] = 1000 + i;
    f->out = must(calloc((size_t)N * WIDTH, sizeof *f->out));
    OK(sennit_pool_create(&f->pool, NULL, err));
    sn_cache_pool_set_poison(f->pool, true);
    OK(sennit_cache_create(&f->cache, f->pool, &f->g.config, 1, err));
    f->cache->ops = &f->family;
    struct geometry naive = f->g;
    naive.config.family = "naive";
    naive.config.page_tokens = 0;
    OK(sennit_cache_create(&f->naive, f->pool, &naive.config, 1, err));
}

static void close_fixture(struct fixture *f)
{
    sennit_cache_dispose(&f->cache);
    sennit_cache_dispose(&f->naive);
    sennit_pool_free(f->pool);
    free(f->out);
}

static void feed(struct sennit_cache *cache, const struct geometry *g, const uint64_t *tokens, uint32_t n, float *out)
{
    struct work_span span = {.tokens = tokens, .n_tokens = n, .out = out};
    struct step_options options = {0};
    OK(run_step(cache, g, &span, 1, &options, err));
}

/* All N tokens in spans of 1, 3 and many, with attention. */
static void feed_all(struct fixture *f)
{
    static const uint32_t cuts[] = {1, 3, 70, 1, 4, 200, 1, 1, 2, 130, 3, 1, 150};
    uint32_t at = 0;
    for (size_t i = 0; at < N; i++) {
        uint32_t n = i < SN_ARRAY_LEN(cuts) && cuts[i] < N - at ? cuts[i] : i % 2 && N - at > 3 ? 3 : 1;
        feed(f->cache, &f->g, f->tokens + at, n, f->out + (size_t)at * WIDTH);
        at += n;
    }
}

/* Attention of token `query` over all that `naive` holds where mask (NULL: all) says so. */
static void naive_answer(struct fixture *f, struct sennit_cache *naive, uint64_t query, const uint8_t *mask,
                         float out[WIDTH])
{
    float q[HEADS * DK];
    struct sennit_donor_attention *view;
    token_query(query, HEADS * DK, q);
    OK(sennit_cache_capture_donor_attention(naive, &view, err));
    OK(sennit_donor_attend(view, q, HEADS, 1, f->g.scale, mask, out, err));
    sennit_donor_attention_free(view);
}

/* ---- windows -------------------------------------------------------------------------------------------------- */

static struct sn_attend_ops blind; /* plain's, with the pages that no query of the step may see taken away */

static void blind_fill(const struct sn_attend_source *src, uint64_t n_tokens, void *out)
{
    const struct sn_attend_shape *shape = &src->cache->shape;
    uint64_t pos = src->row->n_tokens, size = sn_paged_of(src->cache)->paging.page_tokens;
    struct sn_page **pages = out;
    sn_family_plain.attend->row_fill(src, n_tokens, out);
    uint64_t start = pos >= shape->window ? pos - shape->window + 1 : 0;
    for (uint64_t p = 0; (p + 1) * size <= start; p++)
        if (p * size >= shape->n_kept)
            pages[p] = NULL;
}

static void windows_see_what_they_should(void **state)
{
    (void)state;
    static const struct {
        uint32_t window, n_kept, page_tokens;
    } cases[] = {{1, 0, 64},   {5, 0, 1},    {64, 0, 64},   {65, 0, 16},
                 {100, 3, 64}, {300, 70, 8}, {7, 1000, 64}, {4, 2, 64}};
    blind = *sn_family_plain.attend;
    blind.row_fill = blind_fill;
    for (size_t c = 0; c < SN_ARRAY_LEN(cases); c++) {
        struct fixture f;
        open_fixture(&f, &blind, cases[c].page_tokens);
        f.cache->shape.window = cases[c].window;
        f.cache->shape.n_kept = cases[c].n_kept;
        feed_all(&f);
        feed(f.naive, &f.g, f.tokens, N, NULL);
        for (uint32_t p = 0; p < N; p++) {
            uint8_t mask[N] = {0};
            float want[WIDTH];
            for (uint32_t i = 0; i <= p; i++)
                mask[i] = i < cases[c].n_kept || i + cases[c].window > p;
            naive_answer(&f, f.naive, f.tokens[p], mask, want);
            if (memcmp(want, f.out + (size_t)p * WIDTH, sizeof want) != 0)
                die("window %u, kept %u: token %u differs", cases[c].window, cases[c].n_kept, p);
        }
        close_fixture(&f);
    }
}

/* ---- loading, and lists --------------------------------------------------------------------------------------- */

static void load_f16(const struct sn_attend_job *job, uint64_t first, uint64_t seen, float *k, float *v)
{
    const struct sn_kv_layout *l = &sn_plain_of(job->src.cache)->layout;
    struct sn_page *const *pages = job->row_data;
    for (unsigned j = 0; j < 64; j++) {
        if (!(seen >> j & 1))
            continue;
        uint64_t pos = sn_attend_pos(job, first + j);
        uint8_t *data = pages[pos / l->page_tokens]->data;
        const uint16_t *key = (const void *)sn_kv_key_at(l, data, job->kv_head, pos % l->page_tokens);
        const uint16_t *value = (const void *)sn_kv_value_at(l, data, job->kv_head, pos % l->page_tokens);
        for (size_t d = 0; d < DK; d++)
            k[(j / 16 * DK + d) * 16 + j % 16] = sn_f16_to_f32(key[d * l->lanes]);
        for (size_t d = 0; d < DV; d++)
            v[j * DV + d] = sn_f16_to_f32(value[d]);
    }
}

static void loading_gives_the_same_bits(void **state)
{
    (void)state;
    for (uint32_t page_tokens = 4; page_tokens <= 64; page_tokens *= 4) {
        struct sn_attend_ops loading = *sn_family_plain.attend;
        loading.segment = NULL;
        loading.load = load_f16;
        struct fixture plain, f;
        open_fixture(&plain, sn_family_plain.attend, 0);
        open_fixture(&f, &loading, page_tokens);
        feed_all(&plain);
        feed_all(&f);
        assert_memory_equal(plain.out, f.out, (size_t)N * WIDTH * sizeof(float));
        close_fixture(&f);
        close_fixture(&plain);
    }
}

static bool selected(uint64_t query_pos, uint64_t pos)
{
    return pos == query_pos || mix64(query_pos * 1000 + pos) % 8 < 5;
}

static uint32_t select_some(const struct sn_attend_job *job, uint32_t *list)
{
    uint32_t n = 0;
    uint8_t *scratch = job->work.select;
    CHECK(job->n_q == GROUP && job->n_keys == job->pos + 1);
    memset(scratch, 1, job->n_keys);
    for (uint32_t i = 0; i < job->n_keys; i++)
        if (scratch[i] && selected(job->pos, i))
            list[n++] = i;
    return n;
}

static size_t select_bytes(const struct sn_attend_source *src, uint64_t n_keys)
{
    (void)src;
    return n_keys;
}

/* As if the tokens that were not selected had never been. */
static void lists_are_rows_of_their_own(void **state)
{
    (void)state;
    struct sn_attend_ops ops = *sn_family_plain.attend;
    ops.segment = NULL;
    ops.load = load_f16;
    ops.select = select_some;
    ops.select_bytes = select_bytes;
    struct fixture f;
    open_fixture(&f, &ops, 32);
    f.cache->shape.max_selected = N;
    feed_all(&f);
    for (uint32_t p = 0; p < N; p += p < 70 ? 1 : 45) {
        struct sennit_cache *alone;
        float want[WIDTH];
        OK(sennit_cache_create(&alone, f.pool, &f.naive->config, 1, err));
        for (uint32_t i = 0; i <= p; i++)
            if (selected(p, i))
                feed(alone, &f.g, f.tokens + i, 1, NULL);
        naive_answer(&f, alone, f.tokens[p], NULL, want);
        if (memcmp(want, f.out + (size_t)p * WIDTH, sizeof want) != 0)
            die("selected keys: token %u differs", p);
        sennit_cache_dispose(&alone);
    }
    close_fixture(&f);
}

/* ---- prepare, finish, route ------------------------------------------------------------------------------------ */

static size_t copy_bytes(const struct sn_attend_source *src, size_t n_q)
{
    return n_q * src->cache->shape.d_k * sizeof(float);
}

static void copy_queries(const struct sn_attend_job *job)
{
    memcpy(job->work.prepared, job->work.q, job->n_q * job->d_k * sizeof(float));
}

static void check_segment(const struct sn_attend_job *job, const struct sn_attend_segment *s)
{
    CHECK(memcmp(job->work.prepared, job->work.q, job->n_q * job->d_k * sizeof(float)) == 0);
    sn_family_plain.attend->segment(job, s);
}

static void negate(const struct sn_attend_source *src, uint32_t worker, float *out)
{
    (void)worker;
    for (size_t d = 0; d < src->cache->shape.d_v; d++)
        out[d] = -out[d];
}

static void queries_are_prepared_and_outputs_finished(void **state)
{
    (void)state;
    struct sn_attend_ops ops = *sn_family_plain.attend;
    ops.prepare_bytes = copy_bytes;
    ops.prepare = copy_queries;
    ops.segment = check_segment;
    ops.finish = negate;
    struct fixture plain, f;
    open_fixture(&plain, sn_family_plain.attend, 0);
    open_fixture(&f, &ops, 2);
    feed_all(&plain);
    feed_all(&f);
    for (size_t i = 0; i < (size_t)N * WIDTH; i++) {
        float want = -plain.out[i];
        assert_memory_equal(&want, &f.out[i], sizeof want);
    }
    float a[WIDTH], b[WIDTH];
    naive_answer(&plain, plain.cache, 5, NULL, a);
    naive_answer(&f, f.cache, 5, NULL, b);
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(a[i] == -b[i]);
    close_fixture(&f);
    close_fixture(&plain);
}

static struct sennit_cache *donor; /* of route_to_donor */

static struct sn_attend_source route_to_donor(const struct sennit_cache *cache, uint32_t row)
{
    (void)cache;
    return (struct sn_attend_source){.ops = sn_family_plain.attend, .cache = donor, .row = &donor->rows[row]};
}

/* A row that is read somewhere else: what it stores itself plays no part. */
static void routes_are_followed(void **state)
{
    (void)state;
    struct sn_attend_ops ops = {.route = route_to_donor};
    struct fixture plain, f;
    open_fixture(&plain, sn_family_plain.attend, 0);
    open_fixture(&f, &ops, 16);
    donor = plain.cache;
    static const uint32_t cuts[] = {500, 1, 3, 196};
    for (uint32_t i = 0, at = 0; i < SN_ARRAY_LEN(cuts); at += cuts[i++]) {
        feed(plain.cache, &f.g, f.tokens + at, cuts[i], plain.out + (size_t)at * WIDTH);
        feed(f.cache, &f.g, f.tokens + at, cuts[i], f.out + (size_t)at * WIDTH);
    }
    assert_memory_equal(plain.out, f.out, (size_t)N * WIDTH * sizeof(float));
    /* With NaN in its own pages nothing changes. */
    const struct sn_paged *c = sn_paged_of(f.cache);
    for (struct sn_table *t = f.cache->rows[0].store; t; t = t->parent)
        for (uint32_t i = 0; i < t->n_pages; i++)
            memset(t->page[i]->data, 0xFF, c->paging.data_bytes);
    float a[WIDTH], b[WIDTH];
    naive_answer(&plain, plain.cache, 5, NULL, a);
    naive_answer(&f, f.cache, 5, NULL, b);
    assert_memory_equal(a, b, sizeof a);
    close_fixture(&f);
    close_fixture(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_see_what_they_should), cmocka_unit_test(loading_gives_the_same_bits),
        cmocka_unit_test(lists_are_rows_of_their_own),  cmocka_unit_test(queries_are_prepared_and_outputs_finished),
        cmocka_unit_test(routes_are_followed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
