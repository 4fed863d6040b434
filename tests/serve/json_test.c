/* The reader of JSON: what it takes, what it refuses and where; what is written gives the same value when read. */
#include <math.h>
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

static size_t levels(const json_t *v)
{
    size_t most = 0, i, n;
    const char *key;
    json_t *x;
    if (!json_is_array(v) && !json_is_object(v))
        return 0;
    json_array_foreach((json_t *)v, i, x)
    {
        n = levels(x);
        most = n > most ? n : most;
    }
    json_object_foreach((json_t *)v, key, x)
    {
        n = levels(x);
        most = n > most ? n : most;
    }
    return most + 1;
}

/* What is written gives the value back, and its depth is what the reader counted. */
static void check_value(const json_t *v, const char *text, size_t n)
{
    struct sv_json_problem problem;
    struct sv_buf out = {0};
    size_t depth = levels(v);
    sv_json_write(&out, v);
    assert_false(out.failed);
    json_t *again = sv_json_read(out.data, out.n_bytes, depth, &problem);
    if (!again || !json_equal(v, again))
        fail_msg("%.*s became %s: %s", (int)n, text, out.data, problem.text);
    json_decref(again);
    sv_buf_release(&out);
    if (depth > 0) {
        assert_null(sv_json_read(text, n, depth - 1, &problem));
        assert_non_null(strstr(problem.text, "too many levels"));
    }
}

static json_t *read_and_check(const char *text, size_t n)
{
    struct sv_json_problem problem;
    json_t *v = sv_json_read(text, n, 1000, &problem);
    assert_true(!v || !memchr(text, '\0', n));
    assert_true(v || (problem.text[0] && !problem.no_memory && strstr(problem.text, " (line ")));
    assert_true(sv_utf8_valid(problem.text, strlen(problem.text)));
    for (const char *p = problem.text; *p; p++)
        assert_true((unsigned char)*p >= 0x20);
    if (v)
        check_value(v, text, n);
    return v;
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
        json_decref(read_and_check(GOOD[i], strlen(GOOD[i])));
    }
}

static void test_bad(void **state)
{
    (void)state;
    static const char *const BAD[][2] = {
        {"", "end of file (line 1, column 0)"},
        {"[1,\n 2", "']' expected near end of file (line 2, column 2)"},
        {"[1,]", "unexpected token near ']' (line 1, column 4)"},
        {"{\"a\" 1}", "':' expected near '1' (line 1, column 6)"},
        {"{\"a\":1,}", "string or '}' expected near '}' (line 1, column 8)"},
        {"{a:1}", "string or '}' expected near 'a' (line 1, column 2)"},
        {"01", "invalid token near '0'"},
        {"1.", "invalid token near '1.'"},
        {"-", "invalid token near '-'"},
        {"1e+", "invalid token near '1e+'"},
        {"+1", "invalid token near '+'"},
        {"tru", "invalid token near 'tru'"},
        {"truex", "invalid token near 'truex'"},
        {"{} x", "end of file expected near 'x'"},
        {"'a'", "invalid token near ''"},
        {"\"a", "premature end of input"},
        {"\"a\\", "invalid escape"},
        {"\"\\x\"", "invalid escape"},
        {"\"\\u12g4\"", "invalid escape"},
        {"\"\\ud800\"", "invalid Unicode '\\uD800'"},
        {"\"\\ud800\\n\"", "invalid Unicode"},
        {"\"\\ud800\\u0041\"", "invalid Unicode"},
        {"\"\\udc00\\udc00\"", "invalid Unicode"},
        {"\"\t\"", "a control character in a string; write it as an escape (line 1, column 2)"},
        {"\n[\"\xC3\xA9\xC3\xA9\n\"", "a control character in a string; write it as an escape (line 2, column 5)"},
        {"\"\xFF\"", "unable to decode byte 0xff"},
        {"\"\xC0\x80\"", "unable to decode"},
        {"\"\xED\xA0\x80\"", "unable to decode"},
        {"\"\xE2\x82\"", "unable to decode"},
        {"\x01", "invalid token near '?'"},
        {"9223372036854775808", "too big integer"},
        {"-9223372036854775809", "too big negative integer"},
        {"1e309", "real number overflow"},
        {"[1,1234567890123456789012345678901]", "too long: the most is 30 bytes (line 1, column 35)"},
        {"[truetruetruetruetruetruetruetrue]", "too long"},
        {"{\"a\":1,\"b\":2,\"a\":3}", "duplicate object key near '\"a\"' (line 1, column 16)"},
        {"{\"\\u0000\":1}", "NUL"},
        {"[[[[[[[[[[[]]]]]]]]]]]", "too many levels of arrays and objects: the most is 10 (line 1, column 11)"},
        {"\xEF\xBB\xBF{}", "byte order mark"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        struct sv_json_problem problem;
        json_t *v = sv_json_read(BAD[i][0], strlen(BAD[i][0]), 10, &problem);
        if (v || problem.no_memory || !strstr(problem.text, BAD[i][1]))
            fail_msg("%s: want %s, got %s", BAD[i][0], BAD[i][1], problem.text);
    }
}

static void test_nul(void **state)
{
    (void)state;
    static const struct {
        char text[8];
        size_t n;
    } TEXTS[] = {{"[1\0]", 4},   {"[1\0,2]", 6}, {"\0", 1},      {"[]\0", 3},
                 {"\"a\0\"", 4}, {"true\0", 5},  {"\"\\\0\"", 4}};
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        assert_null(read_and_check(TEXTS[i].text, TEXTS[i].n));
}

/* Doubles keep all their bits; whole numbers stay whole. */
static void test_numbers(void **state)
{
    (void)state;
    uint64_t rng = 5;
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = tiny_random(&rng);
        double x;
        memcpy(&x, &bits, sizeof x);
        if (!isfinite(x))
            continue;
        struct sv_json_problem problem;
        struct sv_buf out = {0};
        json_t *v = json_pack("[f, I]", x, (json_int_t)bits);
        sv_json_write(&out, v);
        json_t *w = sv_json_read(out.data, out.n_bytes, 1, &problem);
        if (!w)
            fail_msg("%s: %s", out.data, problem.text);
        double y = json_real_value(json_array_get(w, 0));
        assert_memory_equal(&x, &y, sizeof x);
        assert_true(json_is_real(json_array_get(w, 0)) && json_equal(v, w));
        json_decref(v);
        json_decref(w);
        sv_buf_release(&out);
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

static void test_changed_texts(void **state)
{
    (void)state;
    uint64_t rng = 11;
    int n_read = 0;
    for (int round = 0; round < 60000; round++) {
        char text[512];
        size_t n = mutate(text, GOOD[tiny_random(&rng) % (sizeof GOOD / sizeof *GOOD)], &rng);
        json_t *v = read_and_check(text, n);
        n_read += v != NULL;
        json_decref(v);
    }
    assert_in_range(n_read, 1000, 59000);
}

/* Small texts of many values are refused before they are read: values need up to 80 times the size of their text. */
static void test_many_values(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        size_t n;
        bool good;
    } cases[] = {
        {"1,", 1000000, true},   {"{},", 100000, true},   {"12345,", 1500000, true}, {"1,", 4000000, false},
        {"{},", 1000000, false}, {"[],", 1000000, false}, {"\"\",", 4000000, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n_value = strlen(cases[i].value), n = 1;
        char *text = malloc(n_value * cases[i].n + 3);
        struct sv_json_problem problem;
        assert_non_null(text);
        text[0] = '[';
        for (size_t k = 0; k < cases[i].n; k++, n += n_value)
            memcpy(text + n, cases[i].value, n_value);
        text[n++] = '0';
        text[n++] = ']';
        json_t *v = sv_json_read(text, n, 10, &problem);
        assert_int_equal(cases[i].good, v != NULL);
        assert_true(v || (!problem.no_memory && strstr(problem.text, "too many values")));
        json_decref(v);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),    cmocka_unit_test(test_bad),           cmocka_unit_test(test_nul),
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_changed_texts), cmocka_unit_test(test_many_values),
    };
    sv_json_init();
    sv_json_init(); /* twice is fine */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
