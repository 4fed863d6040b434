/* Families from outside the library: one that keeps f32 as it comes, through the public header alone, gives the bits
 * of "plain" in f32 whatever is done with it; and everything that an outsider can get wrong is refused by name. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cache/harness.h"
#include "support/raw_family.h"

typedef struct sennit_family_geometry geometry_t;

enum { H = 2, GROUP = 2, DK = 20, DV = 24, WIDTH = H * GROUP * DV };

/* ---- the same bits as "plain" --------------------------------------------------------------------------------- */

struct pair {
    struct sennit_pool *pool;
    struct rng rng;
    struct geometry g[2]; /* plain, raw */
    struct sennit_cache *c[2];
};

static struct sennit_cache_config config_of(const struct sennit_family *external, uint32_t page_tokens)
{
    return (struct sennit_cache_config){.family = external ? NULL : "plain",
                                        .external = external,
                                        .n_kv_heads = H,
                                        .d_k = DK,
                                        .d_v = DV,
                                        .page_tokens = page_tokens,
                                        .max_span = 300,
                                        .round_depth = 8};
}

static void open_pair(struct pair *p, uint32_t page_tokens, bool hostile)
{
    struct sennit_pool_options options = {.n_workers = 2};
    *p = (struct pair){.rng = {7}};
    OK(sennit_pool_create(&p->pool, &options, err));
    sn_cache_pool_set_poison(p->pool, true);
    sn_cache_pool_set_hostile(p->pool, hostile);
    for (int i = 0; i < 2; i++)
        p->g[i] = (struct geometry){
            .config = config_of(i ? &raw_family : NULL, page_tokens), .group = GROUP, .scale = 0.3f, .soft_cap = 5};
}

static void create_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        OK(sennit_cache_create(&p->c[i], p->pool, &p->g[i].config, 1, err));
}

static void close_pair(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        sennit_cache_dispose(&p->c[i]);
    CHECK(sennit_pool_bytes(p->pool) == 0);
    sennit_pool_free(p->pool);
}

/* n tokens from `seed` on to a row of each; every output the same. */
static void feed_both(struct pair *p, uint32_t row, uint64_t seed, uint32_t n)
{
    uint64_t *tokens = must(malloc(n * sizeof *tokens));
    float *out[2];
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = seed + i;
    for (int i = 0; i < 2; i++) {
        out[i] = must(malloc(n * sizeof(float) * WIDTH));
        struct work_span span = {.row = row, .tokens = tokens, .n_tokens = n, .out = out[i]};
        struct step_options options = {.rng = &p->rng};
        OK(run_step(p->c[i], &p->g[i], &span, 1, &options, err));
    }
    for (size_t i = 0; i < (size_t)n * WIDTH; i++)
        CHECK(memcmp(&out[0][i], &out[1][i], sizeof(float)) == 0);
    free(tokens);
    free(out[0]);
    free(out[1]);
}

/* Merges both with a second row, of other tokens. */
static void join_both(struct pair *p, uint64_t seed, uint32_t n)
{
    struct sennit_cache *first[2] = {p->c[0], p->c[1]}, *second[2];
    create_pair(p);
    feed_both(p, 0, seed, n);
    for (int i = 0; i < 2; i++) {
        second[i] = p->c[i];
        const struct sennit_cache *sources[] = {first[i], second[i]};
        OK(sennit_cache_make_empty_batch(first[i], &p->c[i], err));
        OK(sennit_cache_merge_rows(p->c[i], sources, 2, err));
        sennit_cache_dispose(&first[i]);
        sennit_cache_dispose(&second[i]);
    }
}

static void work_both(struct pair *p)
{
    static const uint64_t keep[] = {2, 0};
    create_pair(p);
    feed_both(p, 0, 1, 1);
    feed_both(p, 0, 100, 280);
    join_both(p, 1000, 67);
    feed_both(p, 1, 2000, 3);
    for (int i = 0; i < 2; i++)
        OK(sennit_cache_spec_round_begin(p->c[i], err));
    feed_both(p, 0, 3000, 5);
    feed_both(p, 1, 3100, 4);
    for (int i = 0; i < 2; i++) {
        OK(sennit_cache_spec_round_rollback(p->c[i], keep, err));
        OK(sennit_cache_trim(p->c[i], 1, false, err));
    }
    feed_both(p, 0, 4000, 40);
    feed_both(p, 1, 5000, 1);
}

static void gives_the_bits_of_plain(void **state)
{
    (void)state;
    for (uint32_t page = 1; page <= 64; page *= 2) {
        struct pair p;
        open_pair(&p, page, page == 1);
        work_both(&p);
        for (uint32_t row = 0; row < 2; row++)
            assert_int_equal(sennit_cache_current_bytes(p.c[0], row), sennit_cache_current_bytes(p.c[1], row));
        assert_int_equal(sennit_cache_projected_bytes(p.c[0], 777), sennit_cache_projected_bytes(p.c[1], 777));
        close_pair(&p);
    }
}

static void windows_are_free(void **state)
{
    (void)state;
    static const struct sennit_cache_config inner[2] = {{.family = "plain"}, {.external = &raw_family}};
    for (uint32_t page = 1; page <= 64; page *= 4) {
        struct pair p;
        open_pair(&p, page, false);
        for (int i = 0; i < 2; i++) {
            p.g[i].config.family = "window";
            p.g[i].config.external = NULL;
            p.g[i].config.window.tokens = 70;
            p.g[i].config.window.n_kept = 3;
            p.g[i].config.inner = &inner[i];
            p.g[i].config.n_inner = 1;
        }
        work_both(&p);
        char want[256];
        snprintf(want, sizeof want, "window 70 slack 64 kept 3 / raw as it comes kv 2 k 20 v 24%s%s",
                 page == 64 ? "" : " / p",
                 page == 1    ? "1"
                 : page == 4  ? "4"
                 : page == 16 ? "16"
                              : "");
        assert_string_equal(sennit_cache_signature(p.c[1]), want);
        close_pair(&p);
    }
}

/* Plain until 50 positions, then the outsider's pages; alone, and as the pages of a window. */
static void precision_can_change_to_it(void **state)
{
    (void)state;
    static const struct sennit_cache_config raw_form = {.external = &raw_family};
    static const struct sennit_cache_config delayed = {
        .family = "delayed", .start = 50, .inner = &raw_form, .n_inner = 1};
    static const struct sennit_cache_config plain = {.family = "plain"};
    for (int windowed = 0; windowed < 2; windowed++) {
        struct pair p;
        open_pair(&p, 16, false);
        for (int i = 0; i < 2; i++) {
            struct sennit_cache_config *c = &p.g[i].config;
            c->family = windowed ? "window" : i ? "delayed" : "plain";
            c->external = NULL;
            c->window.tokens = windowed ? 70 : 0;
            c->start = !windowed && i ? 50 : 0;
            c->inner = windowed ? i ? &delayed : &plain : i ? &raw_form : NULL;
            c->n_inner = windowed || i ? 1 : 0;
        }
        create_pair(&p);
        feed_both(&p, 0, 1, 50);
        feed_both(&p, 0, 100, 3);
        assert_int_equal(sennit_cache_minimum_reusable_offset(p.c[1], 0), 50);
        join_both(&p, 1000, 20);
        feed_both(&p, 1, 2000, 30);
        feed_both(&p, 1, 3000, 130);
        feed_both(&p, 0, 4000, 90);
        assert_non_null(strstr(sennit_cache_signature(p.c[1]), "delayed 50 / plain F32 / raw as it comes kv 2"));
        close_pair(&p);
    }
}

/* ---- donors, saved rows --------------------------------------------------------------------------------------- */

static void donors_outlive_their_source(void **state)
{
    (void)state;
    struct pair p;
    float q[H * GROUP * DK], out[2][WIDTH];
    struct sennit_donor_attention *view[2];
    struct sennit_donor *donor;
    open_pair(&p, 16, false);
    create_pair(&p);
    feed_both(&p, 0, 1, 100);
    OK(sennit_cache_capture_donor_rows(p.c[1], &donor, err));
    for (int i = 0; i < 2; i++) {
        OK(sennit_cache_capture_donor_attention(p.c[i], &view[i], err));
        sennit_cache_dispose(&p.c[i]);
    }
    token_query(5, H * GROUP * DK, q);
    for (int i = 0; i < 2; i++)
        OK(sennit_donor_attend(view[i], q, H * GROUP, 1, 0.3f, NULL, out[i], err));
    assert_memory_equal(out[0], out[1], sizeof out[0]);
    assert_string_equal(view[1]->dtype, "raw as it comes");
    assert_int_equal(donor->n_planes, 2 * 7);
    assert_string_equal(donor->planes[1].name, "value");
    assert_int_equal(donor->planes[13].pos, 96);
    assert_int_equal(donor->planes[13].n_tokens, 4);
    assert_int_equal(donor->planes[13].n_bytes, sizeof(float) * 16 * H * DV);
    sennit_donor_free(donor);
    sennit_donor_attention_free(view[0]);
    sennit_donor_attention_free(view[1]);
    close_pair(&p);
}

static void rows_are_saved(void **state)
{
    (void)state;
    struct pair p;
    struct memory m;
    struct sennit_cache *loaded = NULL;
    open_pair(&p, 0, false);
    create_pair(&p);
    assert_string_equal(sennit_cache_signature(p.c[1]), "raw as it comes kv 2 k 20 v 24");
    feed_both(&p, 0, 1, 70);
    struct sennit_stream writer = memory_writer(&m);
    OK(sennit_cache_save(p.c[1], 0, &writer, err));
    struct sennit_stream reader = memory_reader(&m);
    OK(sennit_cache_load(p.c[1], &reader, &loaded, err));
    sennit_cache_dispose(&p.c[1]);
    p.c[1] = loaded;
    feed_both(&p, 0, 500, 4);
    loaded = NULL;
    reader = memory_reader(&m);
    REFUSED(SENNIT_INVALID, sennit_cache_load(p.c[0], &reader, &loaded, err)); /* of another kind */
    free(m.data);
    close_pair(&p);
}

/* ---- what an outsider can get wrong --------------------------------------------------------------------------- */

static void refused(sennit_status status, const struct sennit_cache_config *config, const char *says)
{
    struct sennit_pool *pool;
    struct sennit_cache *c = NULL;
    struct sennit_error error = {0};
    OK(sennit_pool_create(&pool, NULL, err));
    sennit_status got = sennit_cache_create(&c, pool, config, 1, &error);
    if (got != status || c || error.code != got || !strstr(error.message, says))
        die("%s instead of %s: '%s' instead of '%s'", sennit_status_name(got), sennit_status_name(status),
            error.message, says);
    sennit_pool_free(pool);
}

static void refused_family(struct sennit_family family, const char *says)
{
    struct sennit_cache_config config = config_of(&family, 0);
    refused(SENNIT_INVALID, &config, says);
    struct sennit_cache_config inner = {.external = &family}, window = config_of(NULL, 0);
    window.family = "window";
    window.window.tokens = 5;
    window.inner = &inner;
    window.n_inner = 1;
    refused(SENNIT_INVALID, &window, says);
}

static void broken_structs_are_refused(void **state)
{
    (void)state;
    struct sennit_family f = raw_family;
    f.struct_bytes = sizeof f - 1;
    refused_family(f, "struct_bytes");
    f.struct_bytes = 0;
    refused_family(f, "set it to sizeof");
    f.struct_bytes = SIZE_MAX;
    refused_family(f, "struct_bytes");
#define MISSING(slot)                                                                                                \
    f = raw_family, f.slot = NULL;                                                                                   \
    refused_family(f, #slot " is missing")
    MISSING(page_bytes);
    MISSING(spans);
    MISSING(store);
    MISSING(fill_tail);
    MISSING(load_chunk);
    f = raw_family, f.n_spans = 0;
    refused_family(f, "n_spans is 0");
    f.n_spans = 17;
    refused_family(f, "n_spans is 17");
    f = raw_family, f.fields = SENNIT_FIELDS_HEADS;
    refused_family(f, "fields is 0x1");
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "", "F8", "8f", "-x", "my family", "twenty-four-characters--"};
    struct sennit_family f = raw_family;
    for (size_t i = 0; i < SN_ARRAY_LEN(names); i++) {
        f.name = names[i];
        refused_family(f, "its name must be 1 to 23 characters");
    }
    for (const char *const *name = sennit_cache_families(); *name; name++) {
        f.name = *name;
        refused_family(f, "the library has a family of that name");
    }
    struct sennit_cache_config config = config_of(&raw_family, 0);
    config.family = "plain";
    refused(SENNIT_INVALID, &config, "family is 'plain' and external is 'raw'");
}

static size_t no_bytes(const geometry_t *g)
{
    (void)g;
    return 0;
}

static size_t all_bytes(const geometry_t *g)
{
    (void)g;
    return SIZE_MAX;
}

static void far_spans(const geometry_t *g, struct sennit_family_span *out)
{
    raw_family.spans(g, out);
    out[1].offset++;
}

static void huge_spans(const geometry_t *g, struct sennit_family_span *out)
{
    raw_family.spans(g, out);
    out[1].n_bytes = SIZE_MAX;
}

static void nameless_spans(const geometry_t *g, struct sennit_family_span *out)
{
    raw_family.spans(g, out);
    out[0].name = NULL;
}

static void long_signature(const geometry_t *g, char *out, size_t n_bytes)
{
    (void)g;
    memset(out, 'x', n_bytes);
}

static void odd_signature(const geometry_t *g, char *out, size_t n_bytes)
{
    (void)g, (void)n_bytes;
    out[0] = '\n';
}

static bool speechless_check(const geometry_t *g, char *reason, size_t n_bytes)
{
    (void)g, (void)reason, (void)n_bytes;
    return false;
}

static bool loud_check(const geometry_t *g, char *reason, size_t n_bytes)
{
    (void)g;
    memset(reason, 'x', n_bytes);
    return false;
}

static void bad_pages_are_refused(void **state)
{
    (void)state;
    struct sennit_family f = raw_family;
    f.page_bytes = no_bytes;
    refused_family(f, "page_bytes gives 0 bytes for 64 positions");
    f.page_bytes = all_bytes;
    refused_family(f, "page_bytes gives");
    f = raw_family, f.spans = far_spans;
    refused_family(f, "span 'value'");
    f = raw_family, f.spans = huge_spans;
    refused_family(f, "span 'value'");
    f = raw_family, f.spans = nameless_spans;
    refused_family(f, "span 0 has no name");
    f = raw_family, f.signature = long_signature;
    refused_family(f, "at most 23 printable characters");
    f = raw_family, f.signature = odd_signature;
    refused_family(f, "printable");
    f = raw_family, f.check = speechless_check;
    refused_family(f, "it refuses this geometry");
    f = raw_family, f.check = loud_check;
    refused_family(f, "xxxx");
}

static void bad_geometries_are_refused(void **state)
{
    (void)state;
    struct sennit_cache_config config = config_of(&raw_family, 0);
    config.d_k = 22;
    refused(SENNIT_INVALID, &config, "family 'raw': d_k is 22; it must be a multiple of 4");
    config = config_of(&raw_family, 3);
    refused(SENNIT_INVALID, &config, "page_tokens is 3");
    config = config_of(&raw_family, 0), config.n_kv_heads = 0;
    refused(SENNIT_INVALID, &config, "n_kv_heads is 0");
    config = config_of(&raw_family, 0), config.d_v = 65537;
    refused(SENNIT_INVALID, &config, "d_v is 65537");
    config = config_of(&raw_family, 0), config.k_type = SENNIT_F16;
    refused(SENNIT_INVALID, &config, "k_type means nothing to family 'raw'");
    config = config_of(&raw_family, 0), config.code.group = 32;
    refused(SENNIT_INVALID, &config, "code.group means nothing to family 'raw'");
    config = config_of(&raw_family, 0), config.window.tokens = 32;
    refused(SENNIT_INVALID, &config, "window.tokens means nothing to family 'raw'");
}

/* The same name and signature do not make the same family. */
static void refuse_to_merge(const struct sennit_cache_config *config, const struct sennit_cache_config *other)
{
    struct sennit_pool *pool;
    struct sennit_cache *a, *b, *batch;
    struct sennit_error error = {0};
    OK(sennit_pool_create(&pool, NULL, err));
    OK(sennit_cache_create(&a, pool, config, 1, err));
    OK(sennit_cache_create(&b, pool, other, 1, err));
    assert_string_equal(sennit_cache_signature(a), sennit_cache_signature(b));
    OK(sennit_cache_make_empty_batch(a, &batch, err));
    const struct sennit_cache *const sources[] = {a, b};
    CHECK(sennit_cache_merge_rows(batch, sources, 2, &error) == SENNIT_INVALID);
    CHECK(strstr(error.message, "of another family that is called 'raw' too"));
    CHECK(sennit_cache_batch_size(batch) == 0);
    sennit_cache_dispose(&a);
    sennit_cache_dispose(&b);
    sennit_cache_dispose(&batch);
    sennit_pool_free(pool);
}

/* Two objects of one name are two families: alone, and as what a window, or rows that change, are stored as. */
static void namesakes_do_not_merge(void **state)
{
    (void)state;
    struct sennit_family namesake = raw_family;
    struct sennit_cache_config config[2], inner[2], delayed[2];
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < 2; i++) {
            inner[i] = (struct sennit_cache_config){.external = i ? &namesake : &raw_family};
            delayed[i] =
                (struct sennit_cache_config){.family = "delayed", .start = 3, .inner = &inner[i], .n_inner = 1};
            config[i] = config_of(kind == 0 ? inner[i].external : NULL, 0);
            if (kind == 0)
                continue;
            config[i].family = kind == 1 ? "delayed" : "window";
            config[i].start = kind == 1 ? 3 : 0;
            config[i].window.tokens = kind == 1 ? 0 : 5;
            config[i].inner = kind == 3 ? &delayed[i] : &inner[i];
            config[i].n_inner = 1;
        }
        refuse_to_merge(&config[0], &config[1]);
    }
}

/* ---- what stands in a struct's other fields ------------------------------------------------------------------- */

static void fields_that_mean_something(void **state)
{
    (void)state;
    struct sennit_pool *pool;
    struct sennit_cache *c;
    struct sennit_family f = raw_family;
    f.fields = SENNIT_FIELDS_TYPES | SENNIT_FIELDS_CODE;
    f.signature = NULL;
    f.name = "a-name-of-23-characters";
    struct sennit_cache_config config = config_of(&f, 8);
    config.family = "a-name-of-23-characters";
    config.k_type = SENNIT_BF16;
    config.code.k_bits = 5;
    config.code.group = 16;
    OK(sennit_pool_create(&pool, NULL, err));
    OK(sennit_cache_create(&c, pool, &config, 1, err));
    assert_string_equal(sennit_cache_signature(c), "a-name-of-23-characters BF16 F32 k5 v0 g16 kv 2 k 20 v 24 / p8");
    sennit_cache_dispose(&c);
    sennit_pool_free(pool);
}

/* A struct of a later library: fields behind those of today, as long as they are zero. */
static void longer_structs(void **state)
{
    (void)state;
    struct {
        struct sennit_family now;
        void (*later)(void);
    } f = {.now = raw_family};
    struct sennit_pool *pool;
    struct sennit_cache *c;
    f.now.struct_bytes = sizeof f;
    struct sennit_cache_config config = config_of(&f.now, 0);
    OK(sennit_pool_create(&pool, NULL, err));
    OK(sennit_cache_create(&c, pool, &config, 1, err));
    sennit_cache_dispose(&c);
    sennit_pool_free(pool);
    f.later = (void (*)(void))far_spans;
    refused(SENNIT_UNSUPPORTED, &config, "built for a later library");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_the_bits_of_plain),
        cmocka_unit_test(windows_are_free),
        cmocka_unit_test(precision_can_change_to_it),
        cmocka_unit_test(donors_outlive_their_source),
        cmocka_unit_test(rows_are_saved),
        cmocka_unit_test(broken_structs_are_refused),
        cmocka_unit_test(bad_names_are_refused),
        cmocka_unit_test(bad_pages_are_refused),
        cmocka_unit_test(bad_geometries_are_refused),
        cmocka_unit_test(fields_that_mean_something),
        cmocka_unit_test(namesakes_do_not_merge),
        cmocka_unit_test(longer_structs),
    };
    return cmocka_run_group_tests_name("cache-external", tests, NULL, NULL);
}
