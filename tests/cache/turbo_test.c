/* What TurboQuant codes have to get right beyond what every family has: constants, sizes, every pair of bits on every
 * instruction set, groups at the edges, faults, and one rotation per query. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cache/coded_bench.h"
#include "cache/turbo.h"
#include "kernel/turbo.h"
#include "tensor/traits.h"

enum { GROUP = 32, WIDEST = 512 };
static const uint32_t key_bits[] = {2, 4, 5, 8}, value_bits[] = {2, 3, 4, 5, 8}, dims[] = {64, 128, 256, 512};

static struct sennit_cache_config config_of(uint32_t n_kv_heads, uint32_t d, uint32_t k_bits, uint32_t v_bits)
{
    return (struct sennit_cache_config){.family = "turboquant",
                                        .n_kv_heads = n_kv_heads,
                                        .d_k = d,
                                        .d_v = d,
                                        .code = {.k_bits = k_bits, .v_bits = v_bits}};
}

/* ---- constants --------------------------------------------------------------------------------------------------
 * */

static double density(double x)
{
    return exp(-x * x / 2) / sqrt(2 * acos(-1.0));
}

static double mass_above(double x)
{
    return erfc(x / sqrt(2.0)) / 2;
}

/* A level is the mean of what is nearest to it, so a shift of all levels, or one level in another's place, shows;
 * that every digit is right is what tools/turbo_tables.py --check says. */
static void levels_are_means(void **state)
{
    (void)state;
    for (size_t b = 0; b < SN_ARRAY_LEN(value_bits); b++) {
        const float *c = sn_turbo_centroids(value_bits[b]), *t = sn_turbo_thresholds(value_bits[b]);
        uint32_t n = 1u << value_bits[b];
        for (uint32_t i = 0; i < n; i++) {
            assert_true(c[i] == -c[n - 1 - i]);
            assert_true(i == 0 || c[i] > c[i - 1]);
            if (i + 1 == n) {
                assert_true(isinf(t[i]));
                continue;
            }
            double middle = ((double)c[i] + (double)c[i + 1]) / 2;
            assert_true((double)t[i] <= middle && (double)nextafterf(t[i], 10) > middle);
        }
        for (uint32_t i = n / 2; i < n; i++) { /* the positive half: no digits are lost */
            double low = ((double)c[i - 1] + (double)c[i]) / 2;
            double high = i + 1 < n ? ((double)c[i] + (double)c[i + 1]) / 2 : 40;
            double mean = (density(low) - density(high)) / (mass_above(low) - mass_above(high));
            assert_true(fabs(mean - (double)c[i]) < 3e-7);
        }
    }
    static const double three[] = {0.24509, 0.75601, 1.34391, 2.15195};
    for (size_t i = 0; i < 4; i++)
        assert_true(fabs((double)sn_turbo_centroids(3)[4 + i] - three[i]) < 1e-5);
}

static void signs_and_norms_are_fixed(void **state)
{
    (void)state;
    for (size_t k = 0; k < SN_ARRAY_LEN(dims); k++) {
        uint64_t d = dims[k], seed = d;
        for (uint64_t i = 0; i < d; i++, seed += UINT64_C(0x9E3779B97F4A7C15))
            assert_int_equal(sn_turbo_signs(d)[i / 64] >> i % 64 & 1, mix64(seed) & 1);
        assert_true(sn_turbo_norm(d) == (float)(1 / sqrt((double)d)));
    }
    for (uint32_t i = 0; i < 128; i++) {
        float c = sn_turbo_centroids(8)[128 + i];
        uint32_t bits = (uint32_t)sn_turbo_halves()[128 + i] << 16 | sn_turbo_halves()[i];
        assert_memory_equal(&bits, &c, sizeof c);
    }
}

/* ---- sizes ------------------------------------------------------------------------------------------------------
 * */

/* What is in force shows in the bytes: of a page of 64 tokens, and in every name. */
static void bytes_show_the_bits(void **state)
{
    (void)state;
    struct sennit_pool *pool;
    OK(sennit_pool_create(&pool, NULL, err));
    for (size_t i = 0; i < 4 * 5 * 16; i++) {
        uint32_t k = key_bits[i % 4], v = value_bits[i / 4 % 5];
        struct sennit_cache_config config = config_of(3, dims[i / 20 % 4], k, v);
        config.d_v = dims[i / 80];
        struct sennit_cache *c;
        char want[64];
        OK(sennit_cache_create(&c, pool, &config, 1, err));
        uint64_t key = config.d_k * k / 8 + config.d_k / 32 * 4, value = config.d_v * v / 8 + config.d_v / 32 * 2;
        assert_int_equal(sennit_cache_bytes_per_token(c), 3 * (key + value) + 1); /* 1: the page's head */
        snprintf(want, sizeof want, "turboquant k%u v%u kv 3 k %u v %u", k, v, config.d_k, config.d_v);
        assert_string_equal(sennit_cache_signature(c), want);
        sennit_cache_dispose(&c);
    }
    struct sennit_cache_config usual = config_of(1, 128, 0, 0);
    struct sennit_cache *c;
    OK(sennit_cache_create(&c, pool, &usual, 1, err));
    assert_int_equal(sennit_cache_bytes_per_token(c) - 1, 200);
    assert_string_equal(sennit_cache_signature(c), "turboquant k8 v3 kv 1 k 128 v 128");
    sennit_cache_dispose(&c);
    sennit_pool_free(pool);
}

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
    static const uint32_t other_dims[] = {0, 1, 16, 32, 63, 80, 96, 192, 320, 576, 1024, UINT32_MAX},
                          other_bits[] = {1, 3, 6, 7, 9, 16, UINT32_MAX}, groups[] = {1, 16, 31, 64, 128};
    struct sennit_pool *pool;
    OK(sennit_pool_create(&pool, NULL, err));
    struct sennit_cache_config c;
    for (size_t i = 0; i < SN_ARRAY_LEN(other_dims); i++) {
        c = config_of(2, 64, 8, 3);
        c.d_k = other_dims[i];
        refuse(pool, c, "d_k");
        c = config_of(2, 64, 8, 3);
        c.d_v = other_dims[i];
        refuse(pool, c, "d_v");
    }
    for (size_t i = 0; i < SN_ARRAY_LEN(other_bits); i++) {
        refuse(pool, config_of(2, 64, other_bits[i], 4), "code.k_bits");
        if (other_bits[i] != 3)
            refuse(pool, config_of(2, 64, 8, other_bits[i]), "code.v_bits");
    }
    refuse(pool, config_of(2, 64, 8, 0), "code.v_bits"); /* 0 means 3 only beside another 0 */
    refuse(pool, config_of(2, 64, 0, 3), "code.k_bits");
    for (size_t i = 0; i < SN_ARRAY_LEN(groups); i++) {
        c = config_of(2, 64, 8, 3);
        c.code.group = groups[i];
        refuse(pool, c, "code.group");
    }
    refuse(pool, config_of(0, 64, 8, 3), "n_kv_heads");
    c = config_of(2, 64, 8, 3);
    c.v_type = SENNIT_F16;
    refuse(pool, c, "v_type");
    c = config_of(2, 64, 8, 3);
    c.page_tokens = 3;
    refuse(pool, c, "page_tokens");
    sennit_pool_free(pool);
}

/* ---- keys at the edges ------------------------------------------------------------------------------------------
 * */

static double decoded_key(const uint8_t *codes, uint32_t bits, uint16_t scale, uint16_t zero, size_t i)
{
    unsigned code = 0;
    for (size_t bit = 0; bit < bits; bit++) {
        size_t at = i * bits + bit;
        code |= (unsigned)(codes[at / 8] >> at % 8 & 1) << bit;
    }
    return ((double)code - (bits == 8 ? 128 : 0) + (double)sn_f16_to_f32(zero)) * (double)sn_f16_to_f32(scale);
}

/* Largest error of a group as a share of its bound: half a step for the code, and what rounding the scale to f16
 * takes off the end of the range: a share of 2^-11, or half of the smallest f16. */
static double error_share(const struct sn_kernels *kernels, const float x[GROUP], uint32_t bits)
{
    uint8_t codes[GROUP];
    uint16_t scale, zero;
    double worst = 0, top = bits == 8 ? 254 : (1u << bits) - 1;
    kernels->turbo_keys(x, GROUP, bits, codes, &scale, &zero);
    for (size_t i = 0; i < GROUP; i++)
        worst = fmax(worst, fabs(decoded_key(codes, bits, scale, zero, i) - (double)x[i]));
    double z = (double)sn_f16_to_f32(zero), step = (double)sn_f16_to_f32(scale);
    if (z != rint(z) || fabs(z) > 2048 || zero == 0x8000)
        return INFINITY;
    return worst / ((0.51 + top * ldexp(1, -11)) * step + top * ldexp(1, -25));
}

/* Without the floor: the scale of the range alone, and the zero that follows, in f16 too. */
static void floorless_keys(const float *x, size_t n, unsigned bits, uint8_t *codes, uint16_t *scale, uint16_t *zero)
{
    float low = x[0], high = x[0], top = bits == 8 ? 254.0f : (float)((1u << bits) - 1);
    uint8_t bytes[GROUP];
    for (size_t i = 0; i < n; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    *scale = sn_f32_to_f16_sat((high - low) / top);
    float s = sn_f16_to_f32(*scale);
    *zero = sn_f32_to_f16_sat(rintf(bits == 8 ? (high + low) / (2 * s) : low / s));
    float z = fminf(fmaxf(sn_f16_to_f32(*zero), -2048.0f), 2048.0f);
    *zero = sn_f32_to_f16_sat(z);
    for (size_t i = 0; i < GROUP; i++) {
        float code = rintf(x[i] / s - z);
        code = bits == 8 ? fminf(fmaxf(code, -127), 127) + 128 : fminf(fmaxf(code, 0), top);
        bytes[i] = (uint8_t)code;
    }
    sn_turbo_pack(bytes, bits, codes);
}

static void fill_group(float x[GROUP], float base, float range, uint64_t seed)
{
    for (size_t i = 0; i < GROUP; i++)
        x[i] = base + range * (float)(mix64(seed + i) >> 40) * 0x1p-24f;
}

static void keys_far_from_zero(void **state)
{
    (void)state;
    struct sennit_pool *pool;
    OK(sennit_pool_create(&pool, NULL, err));
    struct sn_kernels without = *pool->kernels;
    without.turbo_keys = floorless_keys;
    static const float bases[] = {1, -1, 0.001f, -300, 6000, 1e-6f, -3e-5f}, ranges[] = {2, 0.5f, 1e-3f, 1e-5f};
    double worst = 0, wrong = INFINITY;
    float x[GROUP];
    for (size_t b = 0; b < SN_ARRAY_LEN(bases); b++)
        for (size_t r = 0; r < SN_ARRAY_LEN(ranges); r++)
            for (size_t k = 0; k < 4; k++) {
                fill_group(x, bases[b], fabsf(bases[b]) * ranges[r], 100 * b + r);
                worst = fmax(worst, error_share(pool->kernels, x, key_bits[k]));
            }
    for (size_t k = 0; k < 4; k++) { /* the same test finds a scale without its floor */
        fill_group(x, 6000, 0.3f, 7);
        wrong = fmin(wrong, error_share(&without, x, key_bits[k]));
    }
    printf("keys far from zero: %.2f of the bound; without a floor at least %.0f times\n", worst, wrong);
    assert_true(worst <= 1 && wrong > 2);
    sennit_pool_free(pool);
}

static void groups_at_the_edges(void **state)
{
    (void)state;
    struct sennit_pool *pool;
    OK(sennit_pool_create(&pool, NULL, err));
    static const float constants[] = {0.0f, -0.0f, 1, -1, 0.3f, -77, 65504, 1e-7f};
    for (size_t k = 0; k < 4; k++) {
        uint32_t bits = key_bits[k];
        uint8_t codes[GROUP], none[GROUP];
        uint16_t scale, zero;
        float x[GROUP];
        memset(none, bits == 8 ? 128 : 0, sizeof none);
        for (size_t i = 0; i < SN_ARRAY_LEN(constants); i++) { /* max = min: f16 of it, with no code at all */
            for (size_t j = 0; j < GROUP; j++)
                x[j] = constants[i];
            pool->kernels->turbo_keys(x, GROUP, bits, codes, &scale, &zero);
            assert_memory_equal(codes, none, bits * 4);
            double sign = constants[i] > 0 ? 1 : constants[i] < 0 ? -1 : 0;
            assert_true((double)sn_f16_to_f32(zero) == sign);
            assert_int_equal(scale, sn_f32_to_f16_sat(fabsf(constants[i])));
        }
        for (size_t j = 0; j < GROUP; j++)
            x[j] = j % 2 ? -0.0f : 0.0f; /* zeros of both signs are one value */
        pool->kernels->turbo_keys(x, GROUP, bits, codes, &scale, &zero);
        assert_true(scale == 0 && zero == 0);
        for (size_t j = 0; j < GROUP; j++)
            x[j] = j == 5 ? 3e38f : j == 6 ? -3e38f : 1e-30f; /* what no f16 can tell: the largest there is */
        pool->kernels->turbo_keys(x, GROUP, bits, codes, &scale, &zero);
        assert_int_equal(scale, 0x7BFF);
        for (size_t j = 0; j < GROUP; j++)
            assert_true(isfinite(decoded_key(codes, bits, scale, zero, j)));
        for (size_t j = 0; j < GROUP; j++)
            x[j] = j == 9 ? 1000.0f : 0.001f * (float)j; /* an outlier: the others keep within a step */
        assert_true(error_share(pool->kernels, x, bits) <= 1);
    }
    sennit_pool_free(pool);
}

/* A value of zeros, of one number, and one whose transform no f32 holds. */
static void values_at_the_edges(void **state)
{
    (void)state;
    struct sennit_pool *pool;
    OK(sennit_pool_create(&pool, NULL, err));
    for (size_t i = 0; i < 4 * SN_ARRAY_LEN(value_bits); i++) {
        uint32_t d = dims[i % 4], bits = value_bits[i / 4];
        float x[WIDEST] = {0};
        uint8_t codes[WIDEST];
        uint16_t scale[WIDEST / GROUP];
        pool->kernels->turbo_values(x, d, bits, codes, scale);
        for (size_t g = 0; g < d / GROUP; g++)
            assert_int_equal(scale[g], 0);
        for (size_t j = 0; j < d; j++)
            x[j] = 3e38f;
        pool->kernels->turbo_values(x, d, bits, codes, scale);
        bool fault = false;
        for (size_t g = 0; g < d / GROUP; g++)
            fault |= scale[g] == 0x7E00;
        assert_true(fault);
        x[0] = 1;
        for (size_t j = 1; j < d; j++)
            x[j] = 0;
        pool->kernels->turbo_values(x, d, bits, codes, scale);
        for (size_t g = 0; g < d / GROUP; g++) /* spread evenly: all of one size */
            assert_int_equal(scale[g], sn_f32_to_f16_sat(sn_turbo_norm(d)));
    }
    sennit_pool_free(pool);
}

/* ---- rows against the textbook -----------------------------------------------------------------------------------
 * */

/* 290 tokens at once, in two segments; the share of the bound, and the outputs. */
static float *run_alone(struct bench *b, double *share)
{
    enum { N = 290 };
    uint64_t tokens[N];
    struct sennit_cache *c;
    for (uint32_t i = 0; i < N; i++)
        tokens[i] = 1000 + i;
    OK(sennit_cache_create(&c, b->pool, &b->g.config, 1, err));
    float *out = feed(b, c, 0, tokens, N);
    *share = worst_share(b, tokens, N, out + (N - 1) * (size_t)n_heads_of(&b->g) * b->g.config.d_v);
    sennit_cache_dispose(&c);
    return out;
}

/* Each pair of bits keeps within the bound, and every instruction set gives the same bits. */
static void every_pair_on_every_level(void **state)
{
    (void)state;
    struct sn_cpu cpu = sn_cpu_detect();
    for (size_t i = 0; i < 4 * 5; i++) {
        struct sennit_cache_config config = config_of(1, 64, key_bits[i % 4], value_bits[i / 4]);
        float *first = NULL;
        for (int isa = 0; isa < SN_ISA_COUNT; isa++) {
            struct bench b;
            double share;
            if (!sn_isa_available(&cpu, (enum sn_isa)isa))
                continue;
            config.page_tokens = isa == SN_ISA_SCALAR ? 16 : 0;
            config.d_k = i % 3 == 1 ? 128 : 64;
            config.d_v = i % 3 == 2 ? 128 : 64;
            open_bench(&b, config, 2, sn_isa_name((enum sn_isa)isa));
            float *out = run_alone(&b, &share);
            assert_true(share < 1);
            if (first)
                assert_memory_equal(first, out, 290 * 2 * config.d_v * sizeof *out);
            free(first);
            first = out;
            assert_int_equal(sennit_pool_bytes(b.pool), 0);
            sennit_pool_free(b.pool);
        }
        free(first);
    }
}

/* ---- wrong arithmetic --------------------------------------------------------------------------------------------
 * */

static const struct sn_kernels *right;

/* Rounded down instead of to the nearest; for 8 bits, whose codes are bytes. */
static void truncating_keys(const float *x, size_t n, unsigned bits, uint8_t *codes, uint16_t *scale, uint16_t *zero)
{
    right->turbo_keys(x, n, bits, codes, scale, zero);
    for (size_t i = 0; i < n; i++) {
        double got = decoded_key(codes + i / GROUP * GROUP, bits, scale[i / GROUP], zero[i / GROUP], i % GROUP);
        codes[i] = (uint8_t)(codes[i] - (got > (double)x[i] && codes[i] > 1));
    }
}

/* As where the mean is taken over one number too few. */
static void peaked_values(const float *x, size_t d, unsigned bits, uint8_t *codes, uint16_t *scale)
{
    right->turbo_values(x, d, bits, codes, scale);
    for (size_t g = 0; g < d / GROUP; g++)
        scale[g] = sn_f32_to_f16(sn_f16_to_f32(scale[g]) * 1.01f);
}

static void unordered_query(const float *x, size_t n, unsigned bits, int8_t *codes, float *d, float *sum)
{
    right->turbo_query(x, n, bits == 8 ? 4 : 8, codes, d, sum);
}

static void half_the_sum(const float *x, size_t n, unsigned bits, int8_t *codes, float *d, float *sum)
{
    right->turbo_query(x, n, bits, codes, d, sum);
    for (size_t g = 0; g < n / GROUP; g++)
        sum[g] = 0.5f * sum[g];
}

/* Stages the other way round give the same matrix; a missing last one does not. */
static void short_rotate(float *x, size_t d)
{
    right->turbo_rotate(x, d);
    for (size_t i = 0; i < d / 2; i++) {
        float a = x[i], b = x[i + d / 2];
        x[i] = 0.5f * (a + b);
        x[i + d / 2] = 0.5f * (a - b);
    }
}

static void normless_rotate(float *x, size_t d)
{
    right->turbo_rotate(x, d);
    for (size_t i = 0; i < d; i++)
        x[i] = x[i] / sn_turbo_norm(d) / (float)sqrt((double)d + 1);
}

static void the_textbook_finds_wrong_arithmetic(void **state)
{
    (void)state;
    static const struct {
        const char *what;
        sn_turbo_keys_fn keys;
        sn_turbo_values_fn values;
        sn_turbo_query_fn query;
        sn_turbo_rotate_fn rotate;
    } wrong[] = {
        {"keys cut off", truncating_keys, NULL, NULL, NULL},
        {"scales of values 1 % up", NULL, peaked_values, NULL, NULL},
        {"query in another order", NULL, NULL, unordered_query, NULL},
        {"half of the query's sum", NULL, NULL, half_the_sum, NULL},
        {"a stage taken back", NULL, NULL, NULL, short_rotate},
        {"norm of d + 1", NULL, NULL, NULL, normless_rotate},
    };
    struct bench b;
    double share;
    open_bench(&b, config_of(1, 64, 8, 3), 2, NULL);
    free(run_alone(&b, &share));
    assert_true(share < 1);
    right = b.pool->kernels;
    for (size_t i = 0; i < SN_ARRAY_LEN(wrong); i++) {
        b.table = *right;
        b.table.turbo_keys = wrong[i].keys ? wrong[i].keys : right->turbo_keys;
        b.table.turbo_values = wrong[i].values ? wrong[i].values : right->turbo_values;
        b.table.turbo_query = wrong[i].query ? wrong[i].query : right->turbo_query;
        b.table.turbo_rotate = wrong[i].rotate ? wrong[i].rotate : right->turbo_rotate;
        b.pool->kernels = &b.table;
        free(run_alone(&b, &share));
        printf("%s: %.1f times the bound\n", wrong[i].what, share);
        assert_true(share > 2);
        b.pool->kernels = right;
    }
    sennit_pool_free(b.pool);
}

/* ---- batches -----------------------------------------------------------------------------------------------------
 * */

/* Quantized keys with grouped heads for B >= 2 have fallen over masks of the wrong shape elsewhere. */
static void grouped_heads_in_batches(void **state)
{
    (void)state;
    static const uint32_t batches[] = {1, 2, 8}, lengths[] = {1, 63, 64, 65, 130};
    static const struct {
        uint32_t n_heads, n_kv_heads, k_bits, v_bits;
    } heads[] = {{8, 2, 8, 3}, {4, 4, 5, 5}, {4, 1, 4, 2}, {6, 2, 2, 8}};
    for (size_t h = 0; h < SN_ARRAY_LEN(heads); h++) {
        struct bench b;
        uint32_t n_kv = heads[h].n_kv_heads;
        open_bench(&b, config_of(n_kv, 64, heads[h].k_bits, heads[h].v_bits), heads[h].n_heads / n_kv, NULL);
        for (size_t i = 0; i < SN_ARRAY_LEN(batches); i++)
            for (size_t j = 0; j < SN_ARRAY_LEN(lengths); j++)
                batch_case(&b, batches[i], lengths[j], SN_K_turbo_rotate);
        assert_int_equal(sennit_pool_bytes(b.pool), 0);
        sennit_pool_free(b.pool);
    }
}

/* A donor's query that sees one key gets that key's value: its levels, rotated back, to the bit. The textbook's
 * canonical form is read here: a key's codes, scales and zeros, a value's codes and scales. */
static void one_key_gives_its_value(void **state)
{
    (void)state;
    enum { D = 128, N = 70, K = D + D / 32 * 4, V = D * 3 / 8 + D / 32 * 2 };
    struct bench b;
    open_bench(&b, config_of(1, D, 8, 3), 1, NULL);
    struct sennit_cache *c;
    struct sennit_donor *d;
    struct sennit_donor_attention *view;
    uint64_t tokens[N];
    float q[D], out[D], want[D];
    uint8_t mask[N] = {0};
    size_t n_bytes;
    for (uint32_t i = 0; i < N; i++)
        tokens[i] = 40 + i;
    OK(sennit_cache_create(&c, b.pool, &b.g.config, 1, err));
    free(feed(&b, c, 0, tokens, N));
    OK(sennit_cache_capture_donor_rows(c, &d, err));
    OK(sennit_cache_capture_donor_attention(c, &view, err));
    assert_string_equal(view->dtype, "turboquant k8 v3");
    uint8_t *stored = canonical_spans(sn_donor_cache(d), d->planes, d->n_planes, 0, N, &n_bytes);
    assert_int_equal(n_bytes, N * (K + V));
    token_query(3, D, q);
    for (size_t t = 0; t < N; t += 23) {
        const uint8_t *value = stored + t * (K + V) + K;
        memset(mask, 0, sizeof mask);
        mask[t] = 1;
        OK(sennit_donor_attend(view, q, 1, 1, 0.25f, mask, out, err));
        for (size_t i = 0; i < D; i++) {
            uint16_t scale;
            size_t bit = i * 3;
            unsigned code = value[bit / 8], next = bit % 8 > 5 ? value[bit / 8 + 1] : 0;
            code = (code | next << 8) >> bit % 8;
            memcpy(&scale, value + D * 3 / 8 + i / GROUP * 2, 2);
            want[i] = sn_turbo_centroids(3)[code & 7] * sn_f16_to_f32(scale);
        }
        b.pool->kernels->turbo_rotate(want, D);
        assert_memory_equal(out, want, sizeof out);
    }
    free(stored);
    sennit_donor_free(d);
    sennit_donor_attention_free(view);
    sennit_cache_dispose(&c);
    sennit_pool_free(b.pool);
}

/* ---- faults ------------------------------------------------------------------------------------------------------
 * */

/* Three tokens with a number of one's key or value replaced; their outputs. */
static void attend_three(struct sennit_cache *c, bool key, float with, float out[3][64])
{
    float k[3][64], v[3][64], q[3][64];
    for (size_t t = 0; t < 3; t++) {
        token_vector(t, SENNIT_ROLE_KEY, 64, k[t]);
        token_vector(t, SENNIT_ROLE_VALUE, 64, v[t]);
        token_query(t, 64, q[t]);
    }
    (key ? k : v)[1][37] = with;
    struct sennit_span span = {.n_tokens = 3};
    struct sennit_attend_inputs in = {.query = q[0], .query_stride = 64, .scale = 1, .out = out[0], .out_stride = 64};
    uint32_t items, merges;
    OK(sennit_cache_append_begin(c, &span, 1, 1, err));
    sennit_cache_append_tile(c, 0, 0, 3, SENNIT_ROLE_KEY, 0, 1, k[0], 64, 0);
    sennit_cache_append_tile(c, 0, 0, 3, SENNIT_ROLE_VALUE, 0, 1, v[0], 64, 0);
    sennit_cache_attend_plan(c, &in, &items, &merges);
    for (uint32_t item = 0; item < items; item++)
        sennit_cache_attend_item(c, item, 0);
    for (uint32_t merge = 0; merge < merges; merge++)
        sennit_cache_attend_merge(c, merge, 0);
    sennit_cache_append_commit(c);
}

/* A NaN or an infinity in a token's key or value reaches all outputs of whoever sees it, and nobody else's; a large
 * finite number reaches nobody as a fault. */
static void faults_reach_the_output(void **state)
{
    (void)state;
    static const float faults[] = {NAN, INFINITY, -INFINITY, 1e6f};
    for (size_t i = 0; i < 8 * 20; i++) {
        float fault = faults[i % 4], out[3][64];
        struct bench b;
        open_bench(&b, config_of(1, 64, key_bits[i / 8 % 4], value_bits[i / 32]), 1, NULL);
        struct sennit_cache *c;
        OK(sennit_cache_create(&c, b.pool, &b.g.config, 1, err));
        attend_three(c, i / 4 % 2, fault, out);
        for (size_t d = 0; d < 64; d++)
            assert_true(isfinite(out[0][d]) && isnan(out[1][d]) == !isfinite(fault) &&
                        isnan(out[2][d]) == !isfinite(fault));
        sennit_cache_dispose(&c);
        sennit_pool_free(b.pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_are_means),
        cmocka_unit_test(signs_and_norms_are_fixed),
        cmocka_unit_test(bytes_show_the_bits),
        cmocka_unit_test(impossible_geometries_are_refused),
        cmocka_unit_test(keys_far_from_zero),
        cmocka_unit_test(groups_at_the_edges),
        cmocka_unit_test(values_at_the_edges),
        cmocka_unit_test(every_pair_on_every_level),
        cmocka_unit_test(the_textbook_finds_wrong_arithmetic),
        cmocka_unit_test(grouped_heads_in_batches),
        cmocka_unit_test(one_key_gives_its_value),
        cmocka_unit_test(faults_reach_the_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
