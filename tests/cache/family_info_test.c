/* sennit_cache_family_info: what it says of a family is what the calls do, for every family that there is. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../../bench/cache_feed.h"
#include "cache/harness.h"

enum { HEADS = 1, D = 64, LONG = 1500 };

static struct sennit_pool *pool;
static struct feed feed; /* of the family under test */

static void open_family(const char *name)
{
    struct sennit_pool_options options = {0};
    OK(sennit_pool_create(&pool, &options, err));
    OK(feed_open(&feed, name, pool, HEADS, D, err));
}

static void close_family(void)
{
    feed_close(&feed);
    CHECK(sennit_pool_bytes(pool) == 0);
    sennit_pool_free(pool);
}

static struct sennit_cache *row_of(uint64_t n_tokens)
{
    struct sennit_cache *c;
    OK(sennit_cache_create(&c, pool, &feed.config, 1, err));
    OK(feed_row(&feed, c, 0, n_tokens, err));
    return c;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

/* The first field of each group. */
static void set_field(struct sennit_cache_config *c, uint32_t bit)
{
    static struct sennit_cache_config inner = {.family = "plain"};
    switch (bit) {
    case SENNIT_FIELDS_HEADS:
        c->n_kv_heads = 1;
        break;
    case SENNIT_FIELDS_TYPES:
        c->k_type = SENNIT_F16;
        break;
    case SENNIT_FIELDS_PAGES:
        c->page_tokens = 8;
        break;
    case SENNIT_FIELDS_CODE:
        c->code.k_bits = 8;
        break;
    case SENNIT_FIELDS_WINDOW:
        c->window.tokens = 8;
        break;
    case SENNIT_FIELDS_START:
        c->start = 8;
        break;
    case SENNIT_FIELDS_RECURRENT:
        c->recurrent.kernel = 4;
        break;
    case SENNIT_FIELDS_MLA:
        c->mla.d_latent = 64;
        break;
    case SENNIT_FIELDS_INDEX:
        c->index.top_k = 8;
        break;
    case SENNIT_FIELDS_INNER:
        c->inner = c->inner ? c->inner : &inner;
        c->n_inner = c->n_inner ? c->n_inner : 1;
        break;
    default:
        assert_int_equal(bit, SENNIT_FIELDS_SOURCE);
        c->source = c->source ? c->source : (const struct sennit_cache *)(uintptr_t)64; /* never looked at */
    }
}

/* A field of a group that the family does not take is refused by name, one of a group that it takes is not. */
static void check_fields(void)
{
    for (uint32_t bit = 1; bit <= SENNIT_FIELDS_SOURCE; bit *= 2) {
        struct sennit_cache_config config = feed.config;
        struct sennit_error err = {0};
        struct sennit_cache *c = NULL;
        set_field(&config, bit);
        sennit_status status = sennit_cache_create(&c, pool, &config, 0, &err);
        char refusal[64];
        snprintf(refusal, sizeof refusal, "means nothing to family '%s'", feed.info.name);
        bool refused = status == SENNIT_INVALID && strstr(err.message, refusal) != NULL;
        if (refused == ((feed.info.fields & bit) != 0))
            die("family '%s': group %u of fields is %s but %s (%s)", feed.info.name, bit,
                feed.info.fields & bit ? "taken" : "not taken", refused ? "refused" : "not refused", err.message);
        sennit_cache_dispose(&c);
    }
}

static void check_example(void)
{
    const struct sennit_cache_config *example = feed.info.example;
    struct sennit_cache *c;
    assert_string_equal(example->family, feed.info.name);
    struct sennit_cache_config config = *example;
    config.source = feed.source;
    OK(sennit_cache_create(&c, pool, &config, 0, err));
    assert_non_null(strstr(sennit_cache_signature(c), feed.info.name));
    sennit_cache_dispose(&c);
    OK(sennit_cache_create(&c, pool, &feed.config, 0, err));
    sennit_cache_dispose(&c);
}

/* ---- what calls do --------------------------------------------------------------------------------------------- */

static sennit_status expected(bool able)
{
    return able ? SENNIT_OK : SENNIT_UNSUPPORTED;
}

static void check_trim_and_rounds(void)
{
    struct sennit_error why = {0};
    uint64_t keep = 1;
    feed.config.round_depth = 4;
    struct sennit_cache *c = row_of(20);
    assert_int_equal(sennit_cache_is_trimmable(c), feed.info.trimmable);
    assert_int_equal(sennit_cache_trim(c, 3, false, &why), expected(feed.info.trimmable));
    uint64_t n = sennit_cache_row_offset(c, 0);
    assert_int_equal(n, feed.info.trimmable ? 17 : 20);
    OK(sennit_cache_spec_round_begin(c, err));
    OK(feed_row(&feed, c, 0, 4, err));
    OK(sennit_cache_spec_round_rollback(c, &keep, err));
    assert_int_equal(sennit_cache_row_offset(c, 0), n + 1);
    sennit_cache_dispose(&c);
    feed.config.round_depth = 0;
}

static void check_spans(void)
{
    struct sennit_error err = {0};
    uint32_t n = FEED_SPAN + 1;
    struct sennit_cache *c = row_of(0);
    sennit_status status = feed_begin(&feed, c, &n, &err);
    assert_int_equal(status, feed.info.bounded_span ? SENNIT_RANGE : SENNIT_OK);
    if (status == SENNIT_OK)
        sennit_cache_append_abort(c);
    assert_int_equal(sennit_cache_max_append_tokens(c, 0) != SENNIT_UNBOUNDED, feed.info.precision_change);
    assert_int_equal(sennit_cache_composed(c, NULL) > 0, feed.info.composed);
    sennit_cache_dispose(&c);
}

static void check_donors(void)
{
    struct sennit_error err = {0};
    struct sennit_donor *donor = NULL;
    struct sennit_donor_attention *view = NULL;
    struct sennit_cache *c = row_of(5);
    assert_int_equal(sennit_cache_capture_donor_rows(c, &donor, &err), expected(feed.info.donor_rows));
    assert_int_equal(sennit_cache_capture_donor_attention(c, &view, &err), expected(feed.info.donor_attention));
    sennit_donor_free(donor);
    sennit_donor_attention_free(view);
    sennit_cache_dispose(&c);
}

/* Of a row that is longer than whatever lets old tokens go. */
static void check_publish(void)
{
    struct sennit_cache *c = row_of(LONG);
    uint64_t floor = sennit_cache_minimum_reusable_offset(c, 0), n_able = 0;
    for (uint64_t n = 0; n < LONG; n++)
        n_able += sennit_cache_can_publish_row(c, 0, n);
    assert_true(sennit_cache_can_publish_row(c, 0, LONG));
    assert_false(sennit_cache_can_publish_row(c, 0, LONG + 1));
    if (feed.info.publish == SENNIT_PUBLISH_ANY)
        assert_int_equal(n_able, LONG - floor);
    else if (feed.info.publish == SENNIT_PUBLISH_RETAINED)
        assert_true(n_able > 0 && n_able < LONG - floor);
    else
        assert_int_equal(n_able, 0);
    sennit_cache_dispose(&c);
}

static void check_rows(void)
{
    struct sennit_cache *rows[2] = {row_of(100), row_of(10)}, *batch, *copy;
    uint64_t before = sennit_pool_bytes(pool);
    OK(sennit_cache_clone(rows[0], 0, &copy, err));
    assert_int_equal(sennit_pool_bytes(pool) > before, feed.info.copies_rows);
    sennit_cache_dispose(&copy);
    OK(sennit_cache_create(&batch, pool, &feed.config, 0, err));
    OK(sennit_cache_merge_rows(batch, (const struct sennit_cache *const *)rows, 2, err));
    assert_int_equal(sennit_cache_left_pad(batch, 1) > 0, feed.info.left_pads);
    sennit_cache_dispose(&batch);
    sennit_cache_dispose(&rows[0]);
    sennit_cache_dispose(&rows[1]);
}

static void every_family_is_what_it_says(void **state)
{
    (void)state;
    for (const char *const *name = sennit_cache_families(); *name; name++) {
        printf("family %s\n", *name);
        open_family(*name);
        check_example();
        check_fields();
        check_trim_and_rounds();
        check_spans();
        check_donors();
        check_publish();
        check_rows();
        close_family();
    }
}

static void unknown_families_are_named(void **state)
{
    (void)state;
    struct sennit_cache_family_info info = {.name = "untouched"};
    struct sennit_error err = {0};
    assert_int_equal(sennit_cache_family_info("plane", &info, &err), SENNIT_NOT_FOUND);
    assert_string_equal(info.name, "untouched");
    for (const char *const *name = sennit_cache_families(); *name; name++)
        assert_non_null(strstr(err.message, *name));
    assert_int_equal(sennit_cache_family_info(NULL, &info, &err), SENNIT_NOT_FOUND);
    assert_int_equal(sennit_cache_family_info("plain", NULL, &err), SENNIT_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_is_what_it_says),
        cmocka_unit_test(unknown_families_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
