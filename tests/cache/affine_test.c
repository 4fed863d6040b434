/* What affine codes have to get right beyond what every family has: the textbook finds wrong arithmetic that solo
 * replay cannot see, grouped heads work in any batch, and geometries that cannot be are refused at creation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/coded_bench.h"
#include "tensor/traits.h"

static struct sennit_cache_config config_of(uint32_t n_kv_heads, uint32_t d, uint32_t k_bits, uint32_t v_bits,
                                            uint32_t group)
{
    return (struct sennit_cache_config){.family = "affine",
                                        .n_kv_heads = n_kv_heads,
                                        .d_k = d,
                                        .d_v = d,
                                        .code = {.k_bits = k_bits, .v_bits = v_bits, .group = group}};
}

/* ---- wrong variants ------------------------------------------------------------------------------------------- */

static const struct sn_kernels *right; /* what the wrong ones are made of */
enum { MOST_GROUPS = 8, MOST_QUERIES = 128 };

/* Codes cut off instead of rounded. */
static void truncating_encode(const float *x, size_t n, size_t group, unsigned bits, uint8_t *codes, uint16_t *scale,
                              uint16_t *bias)
{
    right->affine_encode(x, n, group, bits, codes, scale, bias);
    for (size_t i = 0; i < n; i++) {
        float step = sn_f16_to_f32(scale[i / group]), b = sn_f16_to_f32(bias[i / group]);
        if (step > 0 && (float)codes[i] * step + b > x[i] && codes[i] > 0)
            codes[i]--;
    }
}

/* 2^bits steps to the range instead of one less. */
static void stretched_encode(const float *x, size_t n, size_t group, unsigned bits, uint8_t *codes, uint16_t *scale,
                             uint16_t *bias)
{
    right->affine_encode(x, n, group, bits, codes, scale, bias);
    float steps = (float)(1u << bits);
    for (size_t g = 0; g < n / group; g++)
        scale[g] = sn_f32_to_f16(sn_f16_to_f32(scale[g]) * (steps - 1) / steps);
}

static void truncating_query(const float *x, size_t n, size_t group, int8_t *codes, float *d, float *s)
{
    right->code_query(x, n, group, codes, d, s);
    for (size_t i = 0; i < n; i++)
        if (d[i / group] > 0)
            codes[i] = (int8_t)(x[i] / d[i / group]);
}

static void without_value_bias(const struct sn_attn_affine_args *a)
{
    static const uint16_t zeros[64 * MOST_GROUPS];
    struct sn_affine_part v[4];
    struct sn_attn_affine_args wrong = *a;
    for (size_t c = 0; c < a->a.n_chunks; c++) {
        v[c] = a->v[c];
        v[c].bias = zeros;
    }
    wrong.v = v;
    right->attn_affine(&wrong);
}

/* The sum of a query's first group for all of its groups. */
static void with_one_sum(const struct sn_attn_affine_args *a)
{
    static float sums[MOST_QUERIES * MOST_GROUPS];
    struct sn_attn_affine_args wrong = *a;
    size_t n_groups = a->a.d_k / a->group;
    for (size_t i = 0; i < a->a.n_q * n_groups; i++)
        sums[i] = a->q_s[i / n_groups * n_groups];
    wrong.q_s = sums;
    right->attn_affine(&wrong);
}

/* Scales of the keys' next group. */
static void with_neighbours_scale(const struct sn_attn_affine_args *a)
{
    static uint16_t scales[4][64 * MOST_GROUPS];
    struct sn_affine_part k[4];
    struct sn_attn_affine_args wrong = *a;
    size_t n_groups = a->a.d_k / a->group;
    for (size_t c = 0; c < a->a.n_chunks; c++) {
        k[c] = a->k[c];
        for (size_t i = 0; i < 64 * n_groups; i++)
            scales[c][i] = k[c].scale[i / 16 % n_groups + 1 < n_groups ? i + 16 : i];
        k[c].scale = scales[c];
    }
    wrong.k = k;
    right->attn_affine(&wrong);
}

/* ---- rows against the textbook ----------------------------------------------------------------------------------
 * */

/* 300 tokens at once, and the same in two pieces: equal bits, and how far from the textbook. */
static double share_of(struct bench *b)
{
    enum { N = 300, CUT = 77 };
    uint64_t tokens[N];
    struct sennit_cache *one, *two;
    size_t width = (size_t)n_heads_of(&b->g) * b->g.config.d_v;
    for (uint32_t i = 0; i < N; i++)
        tokens[i] = 1000 + i;
    OK(sennit_cache_create(&one, b->pool, &b->g.config, 1, err));
    OK(sennit_cache_create(&two, b->pool, &b->g.config, 1, err));
    float *all = feed(b, one, 0, tokens, N), *first = feed(b, two, 0, tokens, CUT),
          *rest = feed(b, two, 0, tokens + CUT, N - CUT);
    assert_memory_equal(all, first, CUT * width * sizeof *all);
    assert_memory_equal(all + CUT * width, rest, (N - CUT) * width * sizeof *all);
    double share = worst_share(b, tokens, N, all + (N - 1) * width);
    free(all);
    free(first);
    free(rest);
    sennit_cache_dispose(&one);
    sennit_cache_dispose(&two);
    return share;
}

static void the_textbook_finds_wrong_arithmetic(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        sn_affine_encode_fn encode;
        sn_code_query_fn query;
        sn_attn_affine_fn attn;
    } wrong[] = {
        {"codes cut off", truncating_encode, NULL, NULL},
        {"2^bits steps", stretched_encode, NULL, NULL},
        {"query cut off", NULL, truncating_query, NULL},
        {"no bias of values", NULL, NULL, without_value_bias},
        {"one sum for all groups", NULL, NULL, with_one_sum},
        {"next group's scale", NULL, NULL, with_neighbours_scale},
    };
    for (uint32_t bits = 4; bits <= 8; bits += 4) {
        struct bench b;
        open_bench(&b, config_of(2, 64, bits, bits, 32), 2, NULL);
        double share = share_of(&b);
        assert_true(share < 1);
        right = b.pool->kernels;
        for (size_t i = 0; i < SN_ARRAY_LEN(wrong); i++) {
            b.table = *right;
            b.table.affine_encode = wrong[i].encode ? wrong[i].encode : right->affine_encode;
            b.table.code_query = wrong[i].query ? wrong[i].query : right->code_query;
            b.table.attn_affine = wrong[i].attn ? wrong[i].attn : right->attn_affine;
            b.pool->kernels = &b.table;
            share = share_of(&b);
            printf("%u bits, %s: %.0f times the bound\n", bits, wrong[i].what, share);
            assert_true(share > 2);
            b.pool->kernels = right;
        }
        sennit_pool_free(b.pool);
    }
}

/* ---- what others met ------------------------------------------------------------------------------------------- */

/* Quantized keys with grouped heads for B >= 2 fell over a mask of the wrong shape. All of B, grouping and
 * length, against what the codes stand for. Rows of unequal length count nothing that is not theirs. */
static void grouped_heads_in_batches(void **state)
{
    (void)state;
    static const uint32_t batches[] = {1, 2, 8}, lengths[] = {1, 63, 64, 65, 66, 130};
    static const struct {
        uint32_t n_heads, n_kv_heads;
    } heads[] = {{8, 2}, {8, 8}, {4, 1}, {6, 2}};
    for (size_t h = 0; h < SN_ARRAY_LEN(heads); h++) {
        struct bench b;
        uint32_t k_bits = h % 2 ? 4 : 8, v_bits = h < 2 ? 8 : 4, n_kv = heads[h].n_kv_heads;
        open_bench(&b, config_of(n_kv, 64, k_bits, v_bits, h == 2 ? 64 : 32), heads[h].n_heads / n_kv, NULL);
        for (size_t i = 0; i < SN_ARRAY_LEN(batches); i++)
            for (size_t j = 0; j < SN_ARRAY_LEN(lengths); j++)
                batch_case(&b, batches[i], lengths[j], SN_K_COUNT);
        assert_int_equal(sennit_pool_bytes(b.pool), 0);
        sennit_pool_free(b.pool);
    }
}

/* What a text scores must not depend on what is scored beside it: the sum over its own tokens, and over no
 * more than those, of a short text beside a long one is that of the short one alone. */
static void only_own_tokens_count(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, config_of(2, 32, 8, 8, 32), 4, NULL);
    size_t width = (size_t)n_heads_of(&b.g) * b.g.config.d_v;
    uint64_t text[200];
    double sum[2] = {0, 0};
    for (uint32_t i = 0; i < 200; i++)
        text[i] = 300 + i;
    struct sennit_cache *rows[2], *batch;
    for (uint32_t r = 0; r < 2; r++)
        OK(sennit_cache_create(&rows[r], b.pool, &b.g.config, 1, err));
    OK(sennit_cache_create(&batch, b.pool, &b.g.config, 0, err));
    OK(sennit_cache_merge_rows(batch, (const struct sennit_cache *const *)rows, 2, err));
    float *lengthy = must(malloc(200 * width * sizeof *lengthy)), *brief = must(malloc(9 * width * sizeof *brief));
    struct work_span spans[] = {{0, text, 200, lengthy}, {1, text + 100, 9, brief}};
    struct step_options options = {0};
    OK(run_step(batch, &b.g, spans, 2, &options, err));
    assert_int_equal(sennit_cache_row_offset(batch, 1), 9);
    float *alone = feed(&b, rows[1], 0, text + 100, 9);
    for (size_t i = 0; i < 9 * width; i++) {
        sum[0] += brief[i];
        sum[1] += alone[i];
    }
    assert_true(sum[0] == sum[1]);
    free(lengthy);
    free(brief);
    free(alone);
    sennit_cache_dispose(&batch);
    for (uint32_t r = 0; r < 2; r++)
        sennit_cache_dispose(&rows[r]);
    sennit_pool_free(b.pool);
}

/* ---- geometry ---------------------------------------------------------------------------------------------------
 * */

static void refuse(struct sennit_pool *pool, struct sennit_cache_config config, const char *named)
{
    struct sennit_cache *c = NULL;
    struct sennit_error err = {0};
    assert_int_equal(sennit_cache_create(&c, pool, &config, 1, &err), SENNIT_INVALID);
    assert_non_null(strstr(err.message, named));
    assert_null(c);
}

static void impossible_geometries_are_refused(void **state)
{
    (void)state;
    struct sennit_pool *pool;
    OK(sennit_pool_create(&pool, NULL, err));
    static const uint32_t bits[] = {0, 1, 2, 3, 5, 6, 7, 9, 16, UINT32_MAX},
                          groups[] = {0, 1, 16, 31, 33, 63, 96, 128};
    for (size_t i = 0; i < SN_ARRAY_LEN(bits); i++) {
        refuse(pool, config_of(2, 64, bits[i], 8, 32), "code.k_bits");
        refuse(pool, config_of(2, 64, 8, bits[i], 32), "code.v_bits");
    }
    for (size_t i = 0; i < SN_ARRAY_LEN(groups); i++)
        refuse(pool, config_of(2, 64, 8, 8, groups[i]), "code.group");
    struct sennit_cache_config c = config_of(2, 64, 8, 8, 64);
    c.d_k = 96;
    refuse(pool, c, "does not divide d_k 96");
    c = config_of(2, 64, 8, 8, 32);
    c.d_v = 80;
    refuse(pool, c, "does not divide d_v 80");
    c.d_v = 0;
    refuse(pool, c, "d_v");
    refuse(pool, config_of(0, 64, 8, 8, 32), "n_kv_heads");
    refuse(pool, config_of(2, 65568, 8, 8, 32), "d_k");
    c = config_of(2, 64, 8, 8, 32);
    c.k_type = SENNIT_F16;
    refuse(pool, c, "k_type");
    c = config_of(2, 64, 8, 8, 32);
    c.window.tokens = 5;
    refuse(pool, c, "window.tokens");
    c = config_of(2, 64, 8, 8, 32);
    c.start = 1;
    refuse(pool, c, "start");
    c = config_of(2, 64, 8, 8, 32);
    c.page_tokens = 24;
    refuse(pool, c, "page_tokens");
    sennit_pool_free(pool);
}

/* What is in force shows in the bytes: pages of 64 tokens of 2 heads of 64 dimensions. */
static void bytes_show_the_bits(void **state)
{
    (void)state;
    static const struct {
        uint32_t k_bits, v_bits, group;
        uint64_t data; /* of a token and head: codes, then scale and bias of each group */
    } kinds[] = {
        {8, 8, 32, 64 + 64 + 16}, {8, 4, 32, 64 + 32 + 16}, {4, 4, 32, 32 + 32 + 16}, {4, 4, 64, 32 + 32 + 8}};
    struct sennit_pool *pool;
    OK(sennit_pool_create(&pool, NULL, err));
    for (size_t i = 0; i < SN_ARRAY_LEN(kinds); i++) {
        struct sennit_cache_config config = config_of(2, 64, kinds[i].k_bits, kinds[i].v_bits, kinds[i].group);
        struct sennit_cache *c;
        char want[64];
        OK(sennit_cache_create(&c, pool, &config, 1, err));
        assert_int_equal(sennit_cache_bytes_per_token(c), 2 * kinds[i].data + 1); /* 1: the page's head */
        snprintf(want, sizeof want, "affine k%u v%u g%u kv 2 k 64 v 64", kinds[i].k_bits, kinds[i].v_bits,
                 kinds[i].group);
        assert_string_equal(sennit_cache_signature(c), want);
        sennit_cache_dispose(&c);
    }
    sennit_pool_free(pool);
}

/* ---- faults -----------------------------------------------------------------------------------------------------
 * */

/* A NaN or an infinity in a token's key or value reaches the outputs of whoever sees it, and nobody else's. */
static void faults_reach_the_output(void **state)
{
    (void)state;
    static const float faults[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 2 * SN_ARRAY_LEN(faults); i++) {
        struct bench b;
        open_bench(&b, config_of(1, 32, 8, 8, 32), 1, NULL);
        struct sennit_cache *c;
        OK(sennit_cache_create(&c, b.pool, &b.g.config, 1, err));
        float k[3][32], v[3][32], q[3][32], out[3][32];
        for (size_t t = 0; t < 3; t++) {
            token_vector(t, SENNIT_ROLE_KEY, 32, k[t]);
            token_vector(t, SENNIT_ROLE_VALUE, 32, v[t]);
            token_query(t, 32, q[t]);
        }
        (i % 2 ? k : v)[1][7] = faults[i / 2];
        struct sennit_span span = {.n_tokens = 3};
        struct sennit_attend_inputs in = {
            .query = q[0], .query_stride = 32, .scale = 1, .out = out[0], .out_stride = 32};
        uint32_t items, merges;
        OK(sennit_cache_append_begin(c, &span, 1, 1, err));
        sennit_cache_append_tile(c, 0, 0, 3, SENNIT_ROLE_KEY, 0, 1, k[0], 32, 0);
        sennit_cache_append_tile(c, 0, 0, 3, SENNIT_ROLE_VALUE, 0, 1, v[0], 32, 0);
        sennit_cache_attend_plan(c, &in, &items, &merges);
        for (uint32_t item = 0; item < items; item++)
            sennit_cache_attend_item(c, item, 0);
        for (uint32_t merge = 0; merge < merges; merge++)
            sennit_cache_attend_merge(c, merge, 0);
        sennit_cache_append_commit(c);
        for (size_t d = 0; d < 32; d++)
            assert_true(isfinite(out[0][d]) && isnan(out[1][d]) && isnan(out[2][d]));
        sennit_cache_dispose(&c);
        sennit_pool_free(b.pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_textbook_finds_wrong_arithmetic),
        cmocka_unit_test(grouped_heads_in_batches),
        cmocka_unit_test(only_own_tokens_count),
        cmocka_unit_test(impossible_geometries_are_refused),
        cmocka_unit_test(bytes_show_the_bits),
        cmocka_unit_test(faults_reach_the_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
