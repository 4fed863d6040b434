/* The heap's books, the failures it can be told to have, growable buffers, errors, names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"

static size_t used(const struct sn_heap *h, enum sn_use use) { return atomic_load(&h->used[use]); }
static size_t total(const struct sn_heap *h) { return atomic_load(&h->total); }

static void books(void **state)
{
    (void)state;
    struct sn_heap h;
    sn_heap_init(&h, NULL);
    char *a = sn_alloc(&h, SN_USE_CACHE, 100), *b = sn_calloc(&h, SN_USE_TEXT, 10, 7);
    assert_true(a && b && (uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
    for (int i = 0; i < 70; i++)
        assert_int_equal(b[i], 0);
    assert_int_equal(used(&h, SN_USE_CACHE), 100);
    assert_int_equal(used(&h, SN_USE_TEXT), 70);
    assert_int_equal(total(&h), 170);
    memset(a, 'x', 100);
    a = sn_realloc(&h, SN_USE_CACHE, a, 100, 5000);
    assert_true(a && a[0] == 'x' && a[99] == 'x' && (uintptr_t)a % 64 == 0);
    assert_int_equal(total(&h), 5070);
    a = sn_realloc(&h, SN_USE_CACHE, a, 5000, 10);
    assert_true(a && a[9] == 'x');
    assert_int_equal(total(&h), 80);
    assert_int_equal(atomic_load(&h.peak), 5070);
    assert_null(sn_realloc(&h, SN_USE_CACHE, a, 10, 0)); /* that is a free */
    sn_free(&h, SN_USE_TEXT, b, 70);
    sn_free(&h, SN_USE_TEXT, NULL, 70);
    char *s = sn_strndup(&h, SN_USE_MISC, "sennit", 3);
    assert_string_equal(s, "sen");
    assert_int_equal(used(&h, SN_USE_MISC), 4);
    sn_free(&h, SN_USE_MISC, s, 4);
    assert_int_equal(total(&h), 0);
    for (int u = 0; u < SN_USE_COUNT; u++)
        assert_int_equal(used(&h, (enum sn_use)u), 0);
}

/* Nothing is no failure, and what cannot be is not tried. */
static void odd_sizes(void **state)
{
    (void)state;
    struct sn_heap h;
    sn_heap_init(&h, NULL);
    assert_null(sn_alloc(&h, SN_USE_MISC, 0));
    assert_null(sn_calloc(&h, SN_USE_MISC, 0, 8));
    assert_int_equal(atomic_load(&h.n_calls), 0);
    assert_null(sn_calloc(&h, SN_USE_MISC, SIZE_MAX / 2, 3));
    assert_null(sn_alloc(&h, SN_USE_MISC, SIZE_MAX - 64));
    assert_int_equal(total(&h), 0);
    char *big = sn_alloc(&h, SN_USE_WEIGHTS, (size_t)5 << 20); /* the way of large blocks */
    assert_non_null(big);
    memset(big, 1, (size_t)5 << 20);
    big = sn_realloc(&h, SN_USE_WEIGHTS, big, (size_t)5 << 20, (size_t)9 << 20);
    assert_true(big && big[0] == 1 && big[((size_t)5 << 20) - 1] == 1);
    big = sn_realloc(&h, SN_USE_WEIGHTS, big, (size_t)9 << 20, 1000);
    assert_true(big && big[999] == 1);
    sn_free(&h, SN_USE_WEIGHTS, big, 1000);
    assert_int_equal(total(&h), 0);
}

static void fail_at(void **state)
{
    (void)state;
    struct sn_heap h;
    sn_heap_init(&h, NULL);
    void *a = sn_alloc(&h, SN_USE_MISC, 8);
    sn_heap_fail_at(&h, 2);
    assert_false(sn_heap_failed(&h));
    void *b = sn_alloc(&h, SN_USE_MISC, 8);
    assert_true(a && b && !sn_heap_failed(&h));
    assert_null(sn_realloc(&h, SN_USE_MISC, b, 8, 16)); /* growths count; b stays */
    assert_true(sn_heap_failed(&h));
    assert_int_equal(total(&h), 16);
    b = sn_realloc(&h, SN_USE_MISC, b, 8, 16); /* once only */
    assert_non_null(b);
    sn_heap_fail_at(&h, 1);
    b = sn_realloc(&h, SN_USE_MISC, b, 16, 4); /* shrinking does not count */
    assert_non_null(b);
    sn_heap_fail_at(&h, 0);
    void *c = sn_alloc(&h, SN_USE_MISC, 8);
    assert_non_null(c);
    assert_false(sn_heap_failed(&h));
    sn_free(&h, SN_USE_MISC, a, 8);
    sn_free(&h, SN_USE_MISC, b, 4);
    sn_free(&h, SN_USE_MISC, c, 8);
    assert_int_equal(total(&h), 0);
}

static void limit(void **state)
{
    (void)state;
    struct sn_heap h;
    sn_heap_init(&h, NULL);
    atomic_store(&h.limit, 100);
    void *a = sn_alloc(&h, SN_USE_MISC, 60);
    assert_non_null(a);
    assert_null(sn_alloc(&h, SN_USE_TEXT, 41));
    assert_int_equal(used(&h, SN_USE_TEXT), 0);
    void *b = sn_alloc(&h, SN_USE_TEXT, 40); /* to the byte */
    assert_non_null(b);
    assert_null(sn_realloc(&h, SN_USE_TEXT, b, 40, 41));
    b = sn_realloc(&h, SN_USE_TEXT, b, 40, 30);
    assert_non_null(b);
    assert_int_equal(atomic_load(&h.peak), 100);
    sn_free(&h, SN_USE_MISC, a, 60);
    sn_free(&h, SN_USE_TEXT, b, 30);
    assert_int_equal(total(&h), 0);
}

/* The host says no, after the books said yes. */
static void *refusing(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)ctx, (void)old_bytes, (void)new_bytes;
    free(ptr);
    return NULL;
}

static void host_refuses(void **state)
{
    (void)state;
    struct sn_heap h;
    sn_heap_init(&h, &(struct sennit_allocator){.fn = refusing});
    assert_null(sn_alloc(&h, SN_USE_MISC, 8));
    assert_null(sn_strndup(&h, SN_USE_MISC, "x", 1));
    assert_int_equal(total(&h), 0);
    assert_int_equal(used(&h, SN_USE_MISC), 0);
}

static void buffer(void **state)
{
    (void)state;
    struct sn_heap h;
    struct sn_buf b;
    sn_heap_init(&h, NULL);
    sn_buf_init(&b, &h, SN_USE_TEXT, 10);
    assert_int_equal(sn_buf_append(&b, "", 0), SENNIT_OK);
    assert_int_equal(sn_buf_append(&b, "12345678", 8), SENNIT_OK);
    assert_int_equal(sn_buf_append(&b, "abc", 3), SENNIT_TOO_BIG);
    assert_string_equal(b.data, "12345678"); /* as before */
    assert_int_equal(sn_buf_append(&b, "ab", 2), SENNIT_OK);
    assert_int_equal(sn_buf_append(&b, "c", 1), SENNIT_TOO_BIG);
    assert_int_equal(sn_buf_append(&b, "c", SIZE_MAX), SENNIT_TOO_BIG);
    assert_string_equal(b.data, "12345678ab");
    assert_int_equal(b.len, 10);
    sn_buf_free(&b);
    assert_int_equal(total(&h), 0);

    sn_buf_init(&b, &h, SN_USE_TEXT, SIZE_MAX);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(sn_buf_printf(&b, "%d,", i), SENNIT_OK);
    assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4);
    assert_string_equal(b.data + b.len - 8, "998,999,");
    sn_heap_fail_at(&h, 1);
    size_t len = b.len;
    sennit_status st = SENNIT_OK;
    while (st == SENNIT_OK)
        st = sn_buf_append(&b, "0123456789", 10);
    assert_int_equal(st, SENNIT_NOMEM);
    assert_true(b.len >= len && b.data[b.len] == '\0');
    sn_buf_free(&b);
    assert_int_equal(total(&h), 0);
}

/* True when no character of the text is cut. */
static bool whole(const char *s)
{
    for (size_t i = 0; s[i];) {
        unsigned char c = (unsigned char)s[i];
        size_t n = c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
        for (size_t k = 1; k < n; k++)
            if (((unsigned char)s[i + k] & 0xC0) != 0x80)
                return false;
        i += n;
    }
    return true;
}

/* Every cut position within characters of 1 to 4 bytes, for messages and for prefixes. */
static void truncation(void **state)
{
    (void)state;
    static const char *const chars[] = {"x", "\xC3\xA9", "\xE6\xBC\xA2", "\xF0\x9F\x9A\x80"};
    for (size_t c = 0; c < 4; c++)
        for (size_t shift = 0; shift < 8; shift++) {
            struct sennit_error err = {.code = SENNIT_OK};
            char text[2048] = "";
            for (size_t i = 0; i < shift; i++)
                strcat(text, "y");
            while (strlen(text) < 1500)
                strcat(text, chars[c]);
            size_t n = strlen(chars[c]), room = sizeof err.message - 1;
            assert_int_equal(sn_fail(&err, SENNIT_IO, "%s", text), SENNIT_IO);
            assert_int_equal(err.code, SENNIT_IO);
            assert_int_equal(strlen(err.message), room - (room - shift) % n);
            assert_true(whole(err.message) && strncmp(err.message, text, strlen(err.message)) == 0);
            sn_error_prefix(&err, "model.gguf");
            assert_true(whole(err.message) && strncmp(err.message, "model.gguf: ", 12) == 0);
            assert_true(strlen(err.message) > sizeof err.message - 5);
        }
    struct sennit_error err;
    sn_fail(&err, SENNIT_INVALID, "short");
    sn_fail(&err, SENNIT_FORMAT, "%s and more", err.message); /* its own message as an argument */
    sn_error_prefix(&err, "line %d", 3);
    assert_string_equal(err.message, "line 3: short and more");
    assert_int_equal(sn_fail(NULL, SENNIT_IO, "nobody listens"), SENNIT_IO);
    sn_error_prefix(NULL, "nobody");
}

static void status_names(void **state)
{
    (void)state;
    for (int a = 0; a <= SENNIT_BUSY; a++) {
        const char *name = sennit_status_name((sennit_status)a);
        assert_string_not_equal(name, "unknown");
        for (int b = 0; b < a; b++)
            assert_string_not_equal(name, sennit_status_name((sennit_status)b));
    }
    assert_string_equal(sennit_status_name(SENNIT_OK), "ok");
    assert_string_equal(sennit_status_name(SENNIT_NUMERIC), "numeric");
    assert_string_equal(sennit_status_name(SENNIT_INTERNAL), "internal");
    assert_string_equal(sennit_status_name((sennit_status)(SENNIT_BUSY + 1)), "unknown");
    assert_string_equal(sennit_status_name((sennit_status)-1), "unknown");
}

static void cpu(void **state)
{
    (void)state;
    enum sn_isa isa = SN_ISA_COUNT;
    for (int i = 0; i < SN_ISA_COUNT; i++) {
        assert_true(sn_isa_parse(sn_isa_name((enum sn_isa)i), &isa));
        assert_int_equal(isa, i);
    }
    assert_false(sn_isa_parse("avx", &isa) || sn_isa_parse("", &isa) || sn_isa_parse("AVX2", &isa));
    assert_string_equal(sn_isa_name(SN_ISA_COUNT), "unknown");
    struct sn_cpu none = {0}, all = {.fma = true, .avx2 = true, .avx512 = true}, found = sn_cpu_detect();
    assert_int_equal(sn_isa_best(&none), SN_ISA_SCALAR);
    assert_int_equal(sn_isa_best(&all), SN_ISA_AVX512);
    assert_true(sn_isa_available(&none, SN_ISA_SCALAR) && !sn_isa_available(&none, SN_ISA_AVX2));
    assert_true(sn_isa_available(&found, sn_isa_best(&found)));
    assert_true(!found.avx512 || found.avx2);
    assert_true(!found.avx2 || found.fma);
    assert_true(sn_cpu_count() >= 1);
}

static void log_line(void *ctx, sennit_log_level level, const char *message)
{
    assert_int_equal(level, SENNIT_LOG_WARN);
    assert_string_equal(message, "7 of 9");
    ++*(int *)ctx;
}

static void logging(void **state)
{
    (void)state;
    int n = 0;
    sn_log(&(struct sennit_logger){.fn = log_line, .ctx = &n}, SENNIT_LOG_WARN, "%d of %d", 7, 9);
    assert_int_equal(n, 1);
    sn_log(&(struct sennit_logger){0}, SENNIT_LOG_WARN, "silent");
    sn_log(NULL, SENNIT_LOG_WARN, "silent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(books),  cmocka_unit_test(odd_sizes),  cmocka_unit_test(fail_at),
        cmocka_unit_test(limit),  cmocka_unit_test(host_refuses), cmocka_unit_test(buffer),
        cmocka_unit_test(truncation), cmocka_unit_test(status_names), cmocka_unit_test(cpu),
        cmocka_unit_test(logging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
