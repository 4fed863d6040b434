/* The reader of JSON: what it takes, what it refuses and where, and that it agrees with jansson on changed texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/answer.h"
#include "serve/json.h"
#include "serve/text.h"
#include "support/tiny_model.h"

enum { FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY };

/* Both readers give the same value, or both refuse; but jansson overlooks a NUL behind a number. */
static void agree(const char *text, size_t n)
{
    struct sv_json_problem problem;
    json_t *a = sv_json_read(text, n, 1000, &problem), *b = json_loadb(text, n, FLAGS, NULL);
    if (memchr(text, '\0', n))
        assert_null(a);
    else if ((a != NULL) != (b != NULL) || (a && !json_equal(a, b)))
        fail_msg("%.*s: %s", (int)n, text, a ? "jansson refuses or differs" : problem.text);
    assert_true(a || (problem.text[0] && !problem.no_memory));
    assert_true(sv_utf8_valid(problem.text, strlen(problem.text)));
    if (a) { /* and what is written gives it back */
        struct sv_buf out = {0};
        sv_json_write(&out, a);
        json_t *c = json_loadb(out.data, out.n_bytes, FLAGS, NULL);
        assert_true(c && json_equal(a, c));
        json_decref(c);
        sv_buf_release(&out);
    }
    json_decref(a);
    json_decref(b);
}

static const char *const GOOD[] = {
    "0",
    "-0",
    " [ ] ",
    "{\"a\" : [1,2.5e-3,-7,1E+2,0.0] ,\n\t\"b\":{}}",
    "[true,false,null]",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u00e9\\u20AC\\ud83d\\ude00\xF0\x9F\x98\x80\xC3\xA9\x7f\"",
    "[9223372036854775807,-9223372036854775808,1e-400,1e308]",
    "{\"\":1,\" \":2}",
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        struct sv_json_problem problem;
        json_t *v = sv_json_read(GOOD[i], strlen(GOOD[i]), 10, &problem);
        if (!v)
            fail_msg("%s: %s", GOOD[i], problem.text);
        json_decref(v);
        agree(GOOD[i], strlen(GOOD[i]));
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const char *const BAD[][2] = {
        {"", "the text ends where a value is expected (line 1, column 1)"},
        {"[1,\n 2", "the text ends where ',' or ']' is expected (line 2, column 3)"},
        {"[1,]", "']' where a value is expected (line 1, column 4)"},
        {"{\"a\" 1}", "'1' where ':' is expected (line 1, column 6)"},
        {"{\"a\":1,}", "'}' where a name in quotes is expected (line 1, column 8)"},
        {"{a:1}", "'a' where a name in quotes is expected (line 1, column 2)"},
        {"01", "'1' where the end is expected"},
        {"1.", "a digit"},
        {"-", "a digit"},
        {"1e+", "a digit"},
        {"+1", "'+' where a value"},
        {"tru", "a value"},
        {"truex", "'x' where the end"},
        {"'a'", "a value"},
        {"\"a", "ends inside of a string"},
        {"\"a\\", "the letter of an escape"},
        {"\"\\x\"", "the letter of an escape"},
        {"\"\\u12g4\"", "hexadecimal"},
        {"\"\\ud800\"", "\\ud800 is half"},
        {"\"\\ud800\\n\"", "\\ud800 is half"},
        {"\"\\ud800\\u0041\"", "\\ud800 is half"},
        {"\"\\udc00\\udc00\"", "\\udc00 is half"},
        {"\"\t\"", "byte 0x09 in a string; write \\u0009"},
        {"\"\xFF\"", "byte 0xff is not UTF-8"},
        {"\"\xC0\x80\"", "not UTF-8"},
        {"\"\xED\xA0\x80\"", "not UTF-8"},
        {"\"\xE2\x82\"", "not UTF-8"},
        {"\x01", "byte 0x01 where a value"},
        {"9223372036854775808", "9223372036854775808 does not fit"},
        {"-9223372036854775809", "does not fit"},
        {"1e309", "does not fit a double"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "the name \"a\" for the second time"},
        {"{\"\\u0000\":1}", "NUL"},
        {"[[[[[[[[[[[]]]]]]]]]]]", "more than 10 deep (line 1, column 11)"},
        {"\xEF\xBB\xBF{}", "byte order mark"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct sv_json_problem problem;
        json_t *v = sv_json_read(BAD[i][0], strlen(BAD[i][0]), 10, &problem);
        if (v || problem.no_memory || !strstr(problem.text, BAD[i][1]))
            fail_msg("%s: want %s, got %s", BAD[i][0], BAD[i][1], problem.text);
    }
}

/* A text with some bytes changed, left out or doubled. */
static size_t mutate(char *out, const char *text, uint64_t *rng)
{
    static const char SPICE[] = "{}[]\",:\\u0d9e-+.E \n\x00\x80\xE2\xFFntf";
    size_t n = 0;
    for (const char *p = text; *p; p++) {
        uint64_t what = tiny_random(rng) % 40;
        if (what == 0)
            continue;
        out[n++] = what == 1 ? SPICE[tiny_random(rng) % (sizeof SPICE - 1)] : *p;
        if (what == 2)
            out[n++] = *p;
    }
    return n;
}

static void test_same_as_jansson(void **state)
{
    (void)state;
    uint64_t rng = 11;
    for (int round = 0; round < 60000; round++) {
        char text[512];
        size_t n = mutate(text, GOOD[tiny_random(&rng) % (sizeof GOOD / sizeof *GOOD)], &rng);
        agree(text, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_same_as_jansson),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
