/* The numbers of examples/own-family: every byte, every tie between two neighbours and what lies just beside it, the
 * ends of the range, and many others, against rounding in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "../examples/own-family/f8.h"
#include "cache/harness.h"

struct format {
    const struct sennit_family *family;
    int mantissa_bits, least_exponent;
    double largest;
};
static const struct format formats[] = {{&f8_e4m3, 3, -6, 448}, {&f8_e5m2, 2, -14, 57344}};

static struct sennit_family_geometry geometry_of(const struct format *f)
{
    return (struct sennit_family_geometry){
        .ctx = f->family->ctx, .n_kv_heads = 1, .d_k = 1, .d_v = 1, .page_tokens = 64};
}

/* What a byte means. */
static float meaning(const struct format *f, uint8_t byte)
{
    struct sennit_family_geometry g = geometry_of(f);
    uint8_t page[128];
    const void *pages[] = {page};
    float k[64], v[64];
    struct sennit_family_chunk chunk = {.pages = pages, .wanted = 1};
    memset(page, byte, sizeof page);
    f->family->load_chunk(&g, &chunk, k, v);
    CHECK(memcmp(&k[0], &v[0], sizeof k[0]) == 0);
    return k[0];
}

static uint8_t stored(const struct format *f, float x)
{
    struct sennit_family_geometry g = geometry_of(f);
    uint8_t page[128] = {0};
    f->family->store(&g, page, 0, SENNIT_ROLE_VALUE, 0, 1, &x);
    return page[64];
}

static double nearest(const struct format *f, float x)
{
    if (x == 0)
        return 0;
    int exponent = ilogb(x) < f->least_exponent ? f->least_exponent : ilogb(x);
    double spacing = ldexp(1, exponent - f->mantissa_bits), y = nearbyint(x / spacing) * spacing;
    return y > f->largest ? f->largest : y < -f->largest ? -f->largest : y;
}

static void check_number(const struct format *f, float x)
{
    float got = meaning(f, stored(f, x));
    if (got != nearest(f, x) || signbit(got) != signbit(x))
        die("%s: %.9g becomes %.9g, not %.9g", f->family->name, x, got, nearest(f, x));
}

static void both_signs(const struct format *f, float x)
{
    check_number(f, x);
    check_number(f, -x);
}

static void bytes_come_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < SN_ARRAY_LEN(formats); i++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            float x = meaning(&formats[i], (uint8_t)byte);
            if (isfinite(x))
                assert_int_equal(stored(&formats[i], x), byte);
        }
    assert_true(meaning(&formats[0], 0x01) == 0x1p-9f && meaning(&formats[0], 0x38) == 1.0f);
    assert_true(meaning(&formats[0], 0xFE) == -448.0f && isnan(meaning(&formats[0], 0x7F)));
    assert_true(meaning(&formats[1], 0x01) == 0x1p-16f && meaning(&formats[1], 0xBC) == -1.0f);
    assert_true(meaning(&formats[1], 0x7B) == 57344.0f && isinf(meaning(&formats[1], 0x7C)));
}

static void ties_go_to_even(void **state)
{
    (void)state;
    for (size_t i = 0; i < SN_ARRAY_LEN(formats); i++)
        for (uint32_t byte = 0; byte < 0x7B; byte++) {
            float low = meaning(&formats[i], (uint8_t)byte), high = meaning(&formats[i], (uint8_t)(byte + 1));
            float half = low + (high - low) / 2;
            assert_int_equal(stored(&formats[i], half), byte % 2 ? byte + 1 : byte);
            both_signs(&formats[i], half);
            both_signs(&formats[i], nextafterf(half, 0));
            both_signs(&formats[i], nextafterf(half, INFINITY));
        }
}

static void the_ends_of_the_range(void **state)
{
    (void)state;
    static const float ends[] = {0.0f,     1e-45f, 1e-38f, 0x1p-11f, 0x1p-10f, 0x1p-18f, 0x1p-17f, 447.0f, 448.0f,
                                 463.999f, 464.0f, 480.0f, 57344.0f, 61439.0f, 61440.0f, 65536.0f, 1e6f,   3e38f};
    for (size_t i = 0; i < SN_ARRAY_LEN(formats); i++) {
        const struct format *f = &formats[i];
        for (size_t k = 0; k < SN_ARRAY_LEN(ends); k++)
            both_signs(f, ends[k]);
        assert_true(meaning(f, stored(f, INFINITY)) == f->largest && meaning(f, stored(f, -INFINITY)) == -f->largest);
        assert_true(isnan(meaning(f, stored(f, NAN))) && isnan(meaning(f, stored(f, -NAN))));
    }
}

static void many_numbers(void **state)
{
    (void)state;
    struct rng rng = {4};
    for (int n = 0; n < 300000; n++) {
        float x = ldexpf((float)((int32_t)rng_below(&rng, 1 << 24) - (1 << 23)), (int)rng_below(&rng, 50) - 55);
        check_number(&formats[n % 2], x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_come_back),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(the_ends_of_the_range),
        cmocka_unit_test(many_numbers),
    };
    return cmocka_run_group_tests_name("cache-own-family", tests, NULL, NULL);
}
