/* Well-formed GGUF: what is written is what is read, in versions 2 and 3. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>

#include "format/gguf.h"
#include "support/gguf_walk.h"
#include "support/gguf_write.h"
#include "tensor/traits.h"

struct fixture {
    struct sn_heap heap;
    struct gguf_bytes file;
    struct sn_gguf *g;
    struct sennit_error err;
};

static void open_writer(struct fixture *f, struct gguf_writer *w)
{
    sn_heap_init(&f->heap, NULL);
    gw_finish(w, &f->file);
    sennit_status status = sn_gguf_open_memory(&f->g, &f->heap, f->file.data, f->file.len, &f->err);
    if (status != SENNIT_OK)
        fail_msg("%s", f->err.message);
}

static void finish(struct fixture *f)
{
    sn_gguf_close(f->g);
    assert_int_equal(atomic_load(&f->heap.total), 0);
    gguf_bytes_free(&f->file);
}

static const char *const words[] = {"the", "", "\xC4\xA0of", "quick\nbrown"};
static const float floats[] = {0.5f, -2.0f, 1e-30f};
static const int32_t ints[] = {-1, 0, 2000000000};
static const uint64_t longs[] = {1, UINT64_MAX};

static void write_all_types(struct gguf_writer *w)
{
    gw_u8(w, "a.u8", 200);
    gw_i8(w, "a.i8", -100);
    gw_u16(w, "a.u16", 60000);
    gw_i16(w, "a.i16", -30000);
    gw_u32(w, "a.u32", 4000000000u);
    gw_i32(w, "a.i32", -5);
    gw_u64(w, "a.u64", 1ull << 40);
    gw_i64(w, "a.i64", 77);
    gw_f32(w, "a.f32", 1e-5f);
    gw_f64(w, "a.f64", 0.25);
    gw_bool(w, "a.true", true);
    gw_bool(w, "a.false", false);
    gw_str(w, "a.str", "h\xC3\xA9llo \"you\"\n");
    gw_array_str(w, "a.words", words, 4);
    gw_array(w, "a.floats", GW_F32, floats, 3);
    gw_array(w, "a.ints", GW_I32, ints, 3);
    gw_array(w, "a.longs", GW_U64, longs, 2);
    gw_array(w, "a.bools", GW_BOOL, "\0\1\1", 3);
    gw_array(w, "a.none", GW_F32, NULL, 0);
    gw_array_str(w, "a.no_words", NULL, 0);
}

static void check_scalars(const struct fixture *f)
{
    const struct sn_gguf *g = f->g;
    uint32_t u;
    uint64_t v;
    float x;
    bool b;
    struct sn_gguf_str s;
    assert_int_equal(sn_gguf_u32(g, "a.u8", &u, NULL), SENNIT_OK);
    assert_int_equal(u, 200);
    assert_int_equal(sn_gguf_u32(g, "a.u32", &u, NULL), SENNIT_OK);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(sn_gguf_u32(g, "a.i64", &u, NULL), SENNIT_OK);
    assert_int_equal(u, 77);
    assert_int_equal(sn_gguf_u64(g, "a.u64", &v, NULL), SENNIT_OK);
    assert_int_equal(v, 1ull << 40);
    assert_int_equal(sn_gguf_u64(g, "a.u16", &v, NULL), SENNIT_OK);
    assert_int_equal(v, 60000);
    assert_int_equal(sn_gguf_f32(g, "a.f32", &x, NULL), SENNIT_OK);
    assert_true(x == 1e-5f);
    assert_int_equal(sn_gguf_f32(g, "a.f64", &x, NULL), SENNIT_OK);
    assert_true(x == 0.25f);
    assert_int_equal(sn_gguf_bool(g, "a.true", &b, NULL), SENNIT_OK);
    assert_true(b);
    assert_int_equal(sn_gguf_bool(g, "a.false", &b, NULL), SENNIT_OK);
    assert_false(b);
    assert_int_equal(sn_gguf_str(g, "a.str", &s, NULL), SENNIT_OK);
    assert_int_equal(s.len, 13);
    assert_memory_equal(s.data, "h\xC3\xA9llo \"you\"\n", 13);
}

static void check_arrays(const struct fixture *f)
{
    const struct sn_gguf *g = f->g;
    struct sn_gguf_array a;
    assert_int_equal(sn_gguf_array(g, "a.words", SN_GGUF_STRING, &a, NULL), SENNIT_OK);
    assert_int_equal(a.n, 4);
    for (size_t i = 0; i < 4; i++) {
        struct sn_gguf_str s = sn_gguf_array_str(&a, i);
        assert_int_equal(s.len, strlen(words[i]));
        assert_memory_equal(s.data, words[i], s.len);
    }
    assert_int_equal(sn_gguf_array(g, "a.floats", SN_GGUF_F32, &a, NULL), SENNIT_OK);
    for (size_t i = 0; i < 3; i++)
        assert_true(sn_gguf_array_f32(&a, i) == floats[i]);
    assert_int_equal(sn_gguf_array(g, "a.ints", SN_GGUF_I32, &a, NULL), SENNIT_OK);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sn_gguf_array_i32(&a, i), ints[i]);
        assert_int_equal(sn_gguf_array_int(&a, i), ints[i]);
    }
    assert_int_equal(sn_gguf_int_array(g, "a.longs", &a, NULL), SENNIT_OK);
    assert_int_equal(sn_gguf_array_int(&a, 1), INT64_MAX);
    assert_int_equal(sn_gguf_array(g, "a.bools", SN_GGUF_BOOL, &a, NULL), SENNIT_OK);
    assert_false(sn_gguf_array_bool(&a, 0));
    assert_true(sn_gguf_array_bool(&a, 2));
    assert_int_equal(sn_gguf_array(g, "a.none", SN_GGUF_F32, &a, NULL), SENNIT_OK);
    assert_int_equal(a.n, 0);
    assert_int_equal(sn_gguf_array(g, "a.no_words", SN_GGUF_STRING, &a, NULL), SENNIT_OK);
    assert_int_equal(a.n, 0);
}

/* ---- every type, both versions
 * -------------------------------------------------------------------------------- */

static void all_types_in(uint32_t version)
{
    struct fixture f = {0};
    struct gguf_writer w;
    gw_init(&w, version);
    write_all_types(&w);
    open_writer(&f, &w);
    assert_int_equal(sn_gguf_version(f.g), version);
    assert_int_equal(sn_gguf_n_kv(f.g), 20);
    assert_int_equal(sn_gguf_n_tensors(f.g), 0);
    assert_int_equal(sn_gguf_alignment(f.g), 32);
    check_scalars(&f);
    check_arrays(&f);
    gguf_walk(f.g);
    finish(&f);
}

static void version_2(void **state)
{
    (void)state;
    all_types_in(2);
}

static void version_3(void **state)
{
    (void)state;
    all_types_in(3);
}

static void empty_file_of_24_bytes(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct gguf_writer w;
    gw_init(&w, 3);
    open_writer(&f, &w);
    assert_int_equal(sn_gguf_n_kv(f.g), 0);
    assert_int_equal(sn_gguf_find(f.g, "x"), SN_GGUF_NONE);
    assert_null(sn_gguf_tensor(f.g, "x"));
    finish(&f);
}

/* ---- errors of the getters
 * ------------------------------------------------------------------------------------ */

/* The message has all three words. */
static void expect_message(const struct sennit_error *err, sennit_status status, const char *a,
                           const char *b, const char *c)
{
    assert_int_equal(err->code, status);
    if (!strstr(err->message, a) || !strstr(err->message, b) || !strstr(err->message, c))
        fail_msg("'%s' lacks one of '%s', '%s', '%s'", err->message, a, b, c);
}

static void wrong_types_are_named(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct gguf_writer w;
    struct sennit_error e;
    struct sn_gguf_array a = {0};
    uint32_t u = 42;
    uint64_t v;
    float x;
    bool b;
    struct sn_gguf_str s;
    gw_init(&w, 3);
    write_all_types(&w);
    gw_array(&w, "scores", GW_U8, "abc", 3);
    gw_f32(&w, "eps", NAN);
    open_writer(&f, &w);
    assert_int_equal(sn_gguf_u32(f.g, "no.such", &u, &e), SENNIT_FORMAT);
    expect_message(&e, SENNIT_FORMAT, "'no.such'", "missing", "an integer");
    sn_gguf_u32(f.g, "a.i32", &u, &e);
    expect_message(&e, SENNIT_FORMAT, "'a.i32'", "-5", "negative");
    sn_gguf_u32(f.g, "a.u64", &u, &e);
    expect_message(&e, SENNIT_FORMAT, "'a.u64'", "1099511627776", "4294967295");
    sn_gguf_u64(f.g, "a.i8", &v, &e);
    expect_message(&e, SENNIT_FORMAT, "'a.i8'", "-100", "negative");
    sn_gguf_u32(f.g, "a.str", &u, &e);
    expect_message(&e, SENNIT_FORMAT, "'a.str'", "an integer", "string");
    sn_gguf_f32(f.g, "a.u32", &x, &e);
    expect_message(&e, SENNIT_FORMAT, "'a.u32'", "must be f32", "has u32");
    sn_gguf_f32(f.g, "eps", &x, &e);
    expect_message(&e, SENNIT_FORMAT, "'eps'", "nan", "finite");
    sn_gguf_bool(f.g, "a.u8", &b, &e);
    expect_message(&e, SENNIT_FORMAT, "'a.u8'", "a bool", "has u8");
    sn_gguf_str(f.g, "a.words", &s, &e);
    expect_message(&e, SENNIT_FORMAT, "'a.words'", "a string", "array of string");
    /* Scores typed as bytes and read as floats were once a read past the end elsewhere. */
    assert_int_equal(sn_gguf_array(f.g, "scores", SN_GGUF_F32, &a, &e), SENNIT_FORMAT);
    expect_message(&e, SENNIT_FORMAT, "'scores'", "array of f32", "array of u8");
    assert_null(a.data);
    assert_int_equal(sn_gguf_array_or_empty(f.g, "scores", SN_GGUF_I32, &a, &e), SENNIT_FORMAT);
    sn_gguf_array(f.g, "a.u8", SN_GGUF_U8, &a, &e);
    expect_message(&e, SENNIT_FORMAT, "'a.u8'", "array of u8", "has u8");
    sn_gguf_int_array(f.g, "a.floats", &a, &e);
    expect_message(&e, SENNIT_FORMAT, "'a.floats'", "integers", "array of f32");
    assert_int_equal(u, 42); /* untouched by failures */
    finish(&f);
}

static void optional_keys(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct gguf_writer w;
    uint32_t u = 0, each[3];
    uint64_t v;
    float x;
    bool b;
    struct sn_gguf_str s;
    struct sn_gguf_array a;
    struct sennit_error e;
    gw_init(&w, 3);
    write_all_types(&w);
    gw_array(&w, "three", GW_U32, (uint32_t[]){4, 5, 6}, 3);
    open_writer(&f, &w);
    assert_int_equal(sn_gguf_u32_or(f.g, "x", 9, &u, NULL), SENNIT_OK);
    assert_int_equal(u, 9);
    assert_int_equal(sn_gguf_u32_or(f.g, "a.u8", 9, &u, NULL), SENNIT_OK);
    assert_int_equal(u, 200);
    assert_int_equal(sn_gguf_u32_or(f.g, "a.str", 9, &u, NULL), SENNIT_FORMAT);
    assert_int_equal(sn_gguf_u64_or(f.g, "x", 1ull << 60, &v, NULL), SENNIT_OK);
    assert_int_equal(v, 1ull << 60);
    assert_int_equal(sn_gguf_f32_or(f.g, "x", 10000.0f, &x, NULL), SENNIT_OK);
    assert_true(x == 10000.0f);
    assert_int_equal(sn_gguf_bool_or(f.g, "x", true, &b, NULL), SENNIT_OK);
    assert_true(b);
    assert_int_equal(sn_gguf_str_or(f.g, "x", "gpt2", &s, NULL), SENNIT_OK);
    assert_int_equal(s.len, 4);
    assert_int_equal(sn_gguf_str_or(f.g, "x", NULL, &s, NULL), SENNIT_OK);
    assert_null(s.data);
    assert_int_equal(sn_gguf_array_or_empty(f.g, "x", SN_GGUF_F32, &a, NULL), SENNIT_OK);
    assert_int_equal(a.n, 0);
    assert_int_equal(sn_gguf_u32_each(f.g, "three", 3, each, NULL), SENNIT_OK);
    assert_int_equal(each[2], 6);
    assert_int_equal(sn_gguf_u32_each(f.g, "a.u8", 3, each, NULL), SENNIT_OK);
    assert_int_equal(each[0] + each[2], 400);
    assert_int_equal(sn_gguf_u32_each(f.g, "three", 2, each, &e), SENNIT_FORMAT);
    expect_message(&e, SENNIT_FORMAT, "'three'", "3 values", "2 layers");
    assert_int_equal(sn_gguf_u32_each(f.g, "a.ints", 3, each, &e), SENNIT_FORMAT);
    assert_int_equal(each[0], 200); /* nothing stored by the failure */
    finish(&f);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void tensors_are_found(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct gguf_writer w;
    uint8_t data[3 * 34];
    float row[5] = {1, 2, 3, 4, 5};
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7);
    gw_init(&w, 3);
    w.alignment = 64;
    gw_u32(&w, "general.alignment", 64);
    gw_tensor(&w, "q8", SENNIT_Q8_0, 2, (uint64_t[]){32, 3}, data, sizeof data);
    gw_tensor(&w, "row", SENNIT_F32, 1, (uint64_t[]){5}, row, sizeof row);
    gw_tensor(&w, "cube", SENNIT_I8, 4, (uint64_t[]){2, 3, 1, 4}, data, 24);
    open_writer(&f, &w);
    assert_int_equal(sn_gguf_n_tensors(f.g), 3);
    assert_int_equal(sn_gguf_alignment(f.g), 64);
    const struct sn_gguf_tensor *t = sn_gguf_tensor(f.g, "q8");
    assert_non_null(t);
    assert_ptr_equal(t, sn_gguf_tensor_at(f.g, 0));
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 32);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->dims[2], 1);
    assert_int_equal(t->type, SENNIT_Q8_0);
    assert_int_equal(t->n_bytes, sizeof data);
    assert_memory_equal(t->data, data, sizeof data);
    t = sn_gguf_tensor(f.g, "row");
    assert_memory_equal(t->data, row, sizeof row);
    assert_int_equal(t->file_offset % 64, 0);
    assert_int_equal(sn_gguf_tensor(f.g, "cube")->n_bytes, 24);
    assert_null(sn_gguf_tensor(f.g, "Row"));
    assert_null(sn_gguf_tensor(f.g, ""));
    sn_gguf_drop_pages(f.g, t->data, t->n_bytes); /* a buffer: nothing happens */
    assert_memory_equal(t->data, row, sizeof row);
    gguf_walk(f.g);
    finish(&f);
}

/* Offsets need not ascend with the list of tensors. */
static void tensors_in_any_order(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct gguf_writer w;
    gw_init(&w, 3);
    for (uint32_t i = 0; i < 40; i++) {
        char name[16];
        int len = snprintf(name, sizeof name, "t%u", i);
        gw_tensor_raw(&w, name, (size_t)len, 1, (uint64_t[]){32}, 1, SENNIT_I8,
                      32 * ((i * 17 + 5) % 40));
    }
    for (int i = 0; i < 40 * 32; i++)
        gguf_bytes_u8(&w.data, (uint8_t)(i / 32));
    open_writer(&f, &w);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(*(const uint8_t *)sn_gguf_tensor_at(f.g, i)->data, (i * 17 + 5) % 40);
    finish(&f);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void expect_text(const struct fixture *f, const char *key, size_t max_items,
                        const char *plain, const char *json)
{
    struct sn_heap heap;
    struct sn_buf b;
    sn_heap_init(&heap, NULL);
    sn_buf_init(&b, &heap, SN_USE_TEXT, 4096);
    assert_int_equal(sn_gguf_format_value(f->g, sn_gguf_find(f->g, key), &b, max_items), SENNIT_OK);
    assert_string_equal(b.data, plain);
    b.len = 0;
    assert_int_equal(sn_gguf_json_value(f->g, sn_gguf_find(f->g, key), &b, max_items), SENNIT_OK);
    assert_string_equal(b.data, json);
    sn_buf_free(&b);
}

static void values_as_text(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct gguf_writer w;
    char longer[301] = "";
    memset(longer, 'x', 300);
    gw_init(&w, 3);
    write_all_types(&w);
    gw_str(&w, "bad", "a\xFFz\x01");
    gw_str(&w, "surrogate", "\xED\xA0\x80");
    gw_str(&w, "overlong", "\xC0\x80\xE0\x80\x80");
    gw_str(&w, "cut", "\xF0\x9F\x98");
    gw_f32(&w, "inf", INFINITY);
    gw_str(&w, "long", longer);
    open_writer(&f, &w);
    expect_text(&f, "a.i16", 4, "-30000", "-30000");
    expect_text(&f, "a.u64", 4, "1099511627776", "1099511627776");
    expect_text(&f, "a.f32", 4, "1e-05", "1e-05");
    expect_text(&f, "a.f64", 4, "0.25", "0.25");
    expect_text(&f, "a.true", 4, "true", "true");
    expect_text(&f, "a.str", 4, "\"h\xC3\xA9llo \\\"you\\\"\\n\"",
                "\"h\xC3\xA9llo \\\"you\\\"\\n\"");
    expect_text(&f, "a.ints", 2, "[-1, 0, ... 3 in all]", "[-1, 0]");
    expect_text(&f, "a.longs", 2, "[1, 18446744073709551615]", "[1, 18446744073709551615]");
    expect_text(&f, "a.words", 9, "[\"the\", \"\", \"\xC4\xA0of\", \"quick\\nbrown\"]",
                "[\"the\", \"\", \"\xC4\xA0of\", \"quick\\nbrown\"]");
    expect_text(&f, "a.none", 9, "[]", "[]");
    expect_text(&f, "bad", 9, "\"a\\xffz\\x01\"", "\"a\xEF\xBF\xBDz\\u0001\"");
    expect_text(&f, "surrogate", 9, "\"\\xed\\xa0\\x80\"",
                "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_text(&f, "overlong", 9, "\"\\xc0\\x80\\xe0\\x80\\x80\"",
                "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_text(&f, "cut", 9, "\"\\xf0\\x9f\\x98\"", "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_text(&f, "inf", 9, "inf", "null");
    struct sn_buf b;
    sn_buf_init(&b, &f.heap, SN_USE_TEXT, 4096);
    assert_int_equal(sn_gguf_format_value(f.g, sn_gguf_find(f.g, "long"), &b, 1), SENNIT_OK);
    assert_string_equal(b.data + 201, "...\" (300 bytes)");
    sn_buf_free(&b);
    finish(&f);
}

/* ---- odd but right
 * -------------------------------------------------------------------------------------------- */

static void odd_keys(void **state)
{
    (void)state;
    struct fixture f = {0};
    struct gguf_writer w;
    char *key = test_malloc(65536);
    memset(key, 'k', 65535);
    key[65535] = '\0';
    gw_init(&w, 3);
    gw_raw(&w, key, 65535, GW_U8, "\x07", 1);
    gw_raw(&w, "sp ace\xFF", 7, GW_U8, "\x08", 1);
    gw_raw(&w, "", 0, GW_U8, "\x08", 1);
    w.n_kv = 2; /* the third is beyond what the header counts, and never looked at */
    open_writer(&f, &w);
    uint32_t u = 0;
    assert_int_equal(sn_gguf_u32(f.g, key, &u, NULL), SENNIT_OK);
    assert_int_equal(u, 7);
    assert_int_equal(sn_gguf_u32(f.g, "sp ace\xFF", &u, NULL), SENNIT_OK);
    assert_int_equal(u, 8);
    finish(&f);
    test_free(key);
}

static void misaligned_buffer_is_refused(void **state)
{
    (void)state;
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    struct sennit_error e;
    _Alignas(8) uint8_t data[64] = "xGGUF";
    sn_heap_init(&heap, NULL);
    assert_int_equal(sn_gguf_open_memory(&g, &heap, data + 1, 40, &e), SENNIT_INVALID);
    assert_null(g);
    assert_int_equal(sn_gguf_open_memory(&g, &heap, NULL, 0, &e), SENNIT_FORMAT);
    expect_message(&e, SENNIT_FORMAT, "0 bytes", "24", "incomplete");
    sn_gguf_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_2),
        cmocka_unit_test(version_3),
        cmocka_unit_test(empty_file_of_24_bytes),
        cmocka_unit_test(wrong_types_are_named),
        cmocka_unit_test(optional_keys),
        cmocka_unit_test(tensors_are_found),
        cmocka_unit_test(tensors_in_any_order),
        cmocka_unit_test(values_as_text),
        cmocka_unit_test(odd_keys),
        cmocka_unit_test(misaligned_buffer_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
