/* sennit/cache_trace.h: every call that changes a cache says so once, in order, with what came of it; and does the
 * same as without. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cache/harness.h"

static char lines[64][1100];
static int n_lines;

static void keep_line(void *ctx, sennit_log_level level, const char *message)
{
    assert_ptr_equal(ctx, lines);
    assert_int_equal(level, SENNIT_LOG_DEBUG);
    assert_true(n_lines < 64);
    snprintf(lines[n_lines++], sizeof lines[0], "%s", message);
}

static struct sennit_logger trace = {keep_line, lines};
static const struct sennit_logger *tracer = &trace;
#define SENNIT_CACHE_TRACE tracer
#include "sennit/cache_trace.h"

/* The messages since the last look are exactly these; NULL ends them. */
static void said(const char *const *want)
{
    int i = 0;
    for (; want[i]; i++) {
        if (i >= n_lines || strcmp(lines[i], want[i]) != 0)
            die("message %d is '%s', expected '%s'", i, i < n_lines ? lines[i] : "(none)", want[i]);
    }
    assert_int_equal(n_lines, i);
    n_lines = 0;
}
#define SAID(...) said((const char *const[]){__VA_ARGS__, NULL})

static const struct sennit_cache_config config = {
    .family = "plain", .n_kv_heads = 1, .d_k = 4, .d_v = 4, .page_tokens = 4, .round_depth = 4};
enum { PAGE = 64 + 4 * 8 * 4, TABLE = 512 };

static struct sennit_pool *open_pool(void)
{
    struct sennit_pool *pool;
    struct sennit_pool_options options = {0};
    OK(sennit_pool_create(&pool, &options, err));
    return pool;
}

static void append(struct sennit_cache *c, uint32_t row, uint32_t n)
{
    static const float numbers[64];
    struct sennit_error err = {0};
    struct sennit_span span = {.row = row, .pos = sennit_cache_row_offset(c, row), .n_tokens = n};
    const uint32_t heads[] = {1};
    if (n > 3)
        assert_int_equal(sennit_cache_append_begin(c, &span, 1, 1, &err), SENNIT_OK);
    else
        assert_int_equal(sennit_cache_append_begin_parts(c, &span, 1, heads, 1, &err), SENNIT_OK);
    for (uint32_t t = 0; t < n; t++) {
        sennit_cache_append_tile(c, 0, t, 1, SENNIT_ROLE_KEY, 0, 1, numbers, 4, 0);
        sennit_cache_append_tile(c, 0, t, 1, SENNIT_ROLE_VALUE, 0, 1, numbers, 4, 0);
    }
    sennit_cache_append_commit(c);
}

static void calls_are_told_in_order(void **state)
{
    (void)state;
    struct sennit_pool *pool = open_pool();
    struct sennit_error err = {0};
    struct sennit_cache *a, *batch, *copy;
    const uint32_t keep[] = {0};
    char own[64];
    assert_int_equal(sennit_cache_create(&a, pool, &config, 1, &err), SENNIT_OK);
    append(a, 0, 5);
    snprintf(own, sizeof own, "append_commit(c): 1 row, 5 tokens; %d bytes of their own", 2 * PAGE + TABLE);
    SAID("create(&a, pool, &config, 1, &err): 1 row, 0 tokens; 0 bytes of their own",
         "append_begin(c, &span, 1, 1, &err): row 0 + 5", own);
    const struct sennit_cache *list[] = {a, a};
    assert_int_equal(sennit_cache_make_empty_batch(a, &batch, &err), SENNIT_OK);
    assert_int_equal(sennit_cache_merge_rows(batch, list, 2, &err), SENNIT_OK);
    assert_int_equal(sennit_cache_filter_rows(batch, keep, 1, &err), SENNIT_OK);
    assert_int_equal(sennit_cache_clone(batch, 0, &copy, &err), SENNIT_OK);
    SAID("make_empty_batch(a, &batch, &err): 0 rows; 0 bytes of their own",
         "merge_rows(batch, list, 2, &err): 2 rows, 5 5 tokens; 0 bytes of their own",
         "filter_rows(batch, keep, 1, &err): 1 row, 5 tokens; 0 bytes of their own",
         "clone(batch, 0, &copy, &err): 1 row, 5 tokens; 0 bytes of their own");
    sennit_cache_dispose(&copy);
    sennit_cache_dispose(&copy);
    sennit_cache_dispose(&batch);
    sennit_cache_dispose(&a);
    assert_null(a);
    SAID("dispose(&copy): 1 row, 5 tokens; 0 bytes of their own", "dispose(&copy): no cache",
         "dispose(&batch): 1 row, 5 tokens; 0 bytes of their own",
         "dispose(&a): 1 row, 5 tokens; 896 bytes of their own");
    assert_int_equal(sennit_pool_bytes(pool), 0);
    sennit_pool_free(pool);
}

static void refusals_are_told_with_their_reason(void **state)
{
    (void)state;
    struct sennit_pool *pool = open_pool();
    struct sennit_error why = {0};
    struct sennit_cache *c;
    uint64_t keep = 9;
    OK(sennit_cache_create(&c, pool, &config, 1, err));
    n_lines = 0;
    assert_int_equal(sennit_cache_trim(c, 1, false, &why), SENNIT_RANGE);
    assert_int_equal(sennit_cache_spec_round_rollback(c, &keep, NULL), SENNIT_STATE);
    assert_int_equal(n_lines, 2);
    assert_non_null(strstr(lines[0], "trim(c, 1, false, &why): "));
    assert_non_null(strstr(lines[0], "): range: "));
    assert_non_null(strstr(lines[0], why.message));
    assert_non_null(strstr(lines[1], "no place for a reason"));
    n_lines = 0;
    assert_int_equal(sennit_cache_spec_round_begin(c, &why), SENNIT_OK);
    append(c, 0, 3);
    keep = 1;
    assert_int_equal(sennit_cache_spec_round_rollback(c, &keep, &why), SENNIT_OK);
    assert_int_equal(sennit_cache_row_offset(c, 0), 1);
    assert_int_equal(n_lines, 4);
    assert_string_equal(lines[1], "append_begin_parts(c, &span, 1, heads, 1, &err): row 0 + 3");
    assert_non_null(strstr(lines[3], "spec_round_rollback(c, &keep, &why): 1 row, 1 tokens; "));
    sennit_cache_dispose(&c);
    sennit_pool_free(pool);
    n_lines = 0;
}

static void silence_and_long_lists(void **state)
{
    (void)state;
    struct sennit_pool *pool = open_pool();
    struct sennit_cache *c, *batch;
    const struct sennit_cache *list[300];
    tracer = NULL;
    OK(sennit_cache_create(&c, pool, &config, 1, err));
    append(c, 0, 4);
    OK(sennit_cache_create(&batch, pool, &config, 0, err));
    assert_int_equal(n_lines, 0);
    tracer = &trace;
    for (size_t i = 0; i < 300; i++)
        list[i] = c;
    OK(sennit_cache_merge_rows(batch, list, 300, err));
    assert_int_equal(n_lines, 1);
    assert_non_null(strstr(lines[0], ": 300 rows, 4 4 4 4"));
    assert_non_null(strstr(lines[0], " ... tokens; 0 bytes of their own"));
    sennit_cache_dispose(&batch);
    sennit_cache_dispose(&c);
    sennit_pool_free(pool);
    n_lines = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_told_in_order),
        cmocka_unit_test(refusals_are_told_with_their_reason),
        cmocka_unit_test(silence_and_long_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
