/* Errors: types by status, texts that are always UTF-8, and the two ways to write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "serve/answer.h"
#include "serve/text.h"

static void test_types(void **state)
{
    (void)state;
    static const struct {
        int http;
        const char *type;
    } CASES[] = {{400, "invalid_request_error"},     {401, "authentication_error"},  {404, "not_found_error"},
                 {405, "invalid_request_error"},     {413, "invalid_request_error"}, {429, "rate_limit_error"},
                 {503, "service_unavailable_error"}, {500, "server_error"}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct sv_error err;
        assert_false(sv_fail(&err, CASES[i].http, "c", "p", "%d", 5));
        assert_string_equal(err.type, CASES[i].type);
        assert_int_equal(err.http, CASES[i].http);
        assert_string_equal(err.message, "5");
        assert_int_equal(err.retry_after, 0);
    }
}

static void test_statuses(void **state)
{
    (void)state;
    static const struct {
        sennit_status status;
        int http;
    } CASES[] = {{SENNIT_RANGE, 400},   {SENNIT_INVALID, 400}, {SENNIT_FORMAT, 400}, {SENNIT_UNSUPPORTED, 400},
                 {SENNIT_TOO_BIG, 400}, {SENNIT_BUSY, 429},    {SENNIT_NOMEM, 503},  {SENNIT_INTERNAL, 500},
                 {SENNIT_STATE, 500},   {SENNIT_NUMERIC, 500}, {SENNIT_IO, 500},     {SENNIT_NOT_FOUND, 500}};
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        struct sennit_error from = {.code = CASES[i].status, .message = "100% of it"};
        struct sv_error err;
        assert_false(sv_fail_status(&err, &from, "prompt"));
        assert_int_equal(err.http, CASES[i].http);
        assert_string_equal(err.message, "100% of it");
        assert_string_equal(err.param, "prompt");
        assert_int_equal(err.retry_after, err.http == 429 || err.http == 503);
    }
    struct sennit_error from = {.code = SENNIT_RANGE};
    struct sv_error err;
    sv_fail_status(&err, &from, NULL);
    assert_string_equal(err.code, "context_length_exceeded");
}

/* Texts of every length around the buffers' sizes, of characters of 1 to 4 bytes, whole or broken. */
static void test_cuts(void **state)
{
    (void)state;
    static const char *const UNITS[] = {"a",    "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
                                        "\xFF", "\xE2\x82", "\xF0\x9F"};
    for (size_t u = 0; u < sizeof UNITS / sizeof *UNITS; u++) {
        char text[1200] = "";
        size_t n = 0, unit = strlen(UNITS[u]);
        for (; n + unit < sizeof text; n += unit) {
            struct sv_error err;
            struct sv_buf b = {0};
            memcpy(text + n, UNITS[u], unit + 1);
            sv_fail(&err, 400, "c", text, "%s", text);
            size_t n_message = strlen(err.message), n_param = strlen(err.param);
            assert_true(sv_utf8_valid(err.message, n_message) && sv_utf8_valid(err.param, n_param));
            if (u < 4)
                assert_true(strcmp(err.message, text) == 0 || strcmp(err.message + n_message - 3, "...") == 0);
            sv_error_write(&err, &b);
            json_t *want = sv_error_json(&err), *got = json_loads(b.data, 0, NULL);
            assert_true(got && json_equal(got, want));
            json_decref(want);
            json_decref(got);
            sv_buf_release(&b);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
