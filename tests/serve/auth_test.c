/* API keys: what a key file may hold, and which headers are let in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/auth.h"

#define KEY   "sk-0123456789abcdefghijkl"
#define OTHER "another-key-of-decent-length"

static char path[64];

static void write_file(const char *text, size_t n, mode_t mode)
{
    snprintf(path, sizeof path, "/tmp/sennit-auth-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static struct sv_keys *load(const char *text, size_t n, struct sennit_error *err)
{
    write_file(text, n, 0600);
    struct sv_keys *keys = sv_keys_load(path, err);
    unlink(path);
    return keys;
}

static struct sv_keys *load_good(const char *text)
{
    struct sennit_error err = {0};
    struct sv_keys *keys = load(text, strlen(text), &err);
    if (!keys)
        fail_msg("not read: %s", err.message);
    return keys;
}

/* Refused with this in the message, and without the key in it. */
static void refused(const char *text, size_t n, sennit_status code, const char *part)
{
    struct sennit_error err = {0};
    struct sv_keys *keys = load(text, n, &err);
    assert_null(keys);
    if (err.code != code || !strstr(err.message, part) || strstr(err.message, "012345"))
        fail_msg("status %d: %s", (int)err.code, err.message);
}

static bool matches(const struct sv_keys *keys, const char *scheme, const char *key)
{
    char header[2048];
    snprintf(header, sizeof header, "%s%s", scheme, key);
    return sv_keys_match(keys, header);
}

static void test_headers(void **state)
{
    struct sv_keys *keys = load_good(KEY "\n" OTHER "\n");
    static const char *const good[] = {"Bearer " KEY,    "bearer " KEY,    "BEARER " KEY,          "bEaReR " KEY,
                                       "Bearer    " KEY, "Bearer \t " KEY, "  Bearer " KEY "  \t", "Bearer " OTHER};
    static const char *const bad[] = {"",
                                      " ",
                                      "Bearer",
                                      "Bearer ",
                                      "Bearer    ",
                                      KEY,
                                      " " KEY,
                                      "Basic " KEY,
                                      "Bearer" KEY,
                                      "Bearer: " KEY,
                                      "Bearer, " KEY,
                                      "Bear " KEY,
                                      "Bearers " KEY,
                                      "Token " KEY,
                                      "Bearer Bearer " KEY,
                                      "Bearer \"" KEY "\"",
                                      "Bearer " KEY " x",
                                      "Bearer " KEY "," OTHER,
                                      "Bearer " KEY OTHER,
                                      "Bearer " KEY "\n" OTHER};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!sv_keys_match(keys, good[i]))
            fail_msg("refused: '%s'", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (sv_keys_match(keys, bad[i]))
            fail_msg("let in: '%s'", bad[i]);
    assert_false(sv_keys_match(keys, NULL));
    sv_keys_free(keys);
    sv_keys_free(NULL);
}

/* Every byte counts, at every place, and so does the length. */
static void test_wrong_keys(void **state)
{
    char text[520], key[1100];
    static const size_t lengths[] = {16, 17, 24, 63, 64, 65, 511, 512};
    (void)state;
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        size_t n = lengths[l];
        for (size_t i = 0; i < n; i++)
            text[i] = (char)('!' + (i * 7 + 3) % 94);
        text[0] = 'k'; /* no comment */
        text[n] = '\0';
        struct sv_keys *keys = load_good(text);
        assert_true(matches(keys, "Bearer ", text));
        for (size_t i = 0; i < n; i++)
            for (int bit = 0; bit < 8; bit++) {
                snprintf(key, sizeof key, "%s", text);
                key[i] = (char)(key[i] ^ (1 << bit));
                if (matches(keys, "Bearer ", key))
                    fail_msg("length %zu: let in with another byte %zu", n, i);
            }
        for (size_t i = 0; i < n; i++) {
            snprintf(key, sizeof key, "%.*s", (int)i, text);
            assert_false(matches(keys, "Bearer ", key));
        }
        snprintf(key, sizeof key, "%sx", text);
        assert_false(matches(keys, "Bearer ", key));
        snprintf(key, sizeof key, "%s%s", text, text);
        assert_false(matches(keys, "Bearer ", key));
        assert_false(matches(keys, "Bearer ", text + 1));
        sv_keys_free(keys);
    }
}

static void test_files(void **state)
{
    static const char *const good[] = {
        KEY,
        KEY "\n",
        KEY "\r\n",
        "\xef\xbb\xbf" KEY "\r\n",
        "\xef\xbb\xbf# comment\n" KEY,
        "# a comment that is longer than sixteen bytes\n\n \t \n  " KEY " \t\n",
        "\r\n\r\n\t" KEY "\r\n  # indented\r\n",
        KEY "\n" KEY "\n",
        OTHER "\n\n\n" KEY,
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct sv_keys *keys = load_good(good[i]);
        if (!sv_keys_match(keys, "Bearer " KEY))
            fail_msg("not found in file %zu", i);
        assert_false(sv_keys_match(keys, "Bearer # a comment that is longer than sixteen bytes"));
        assert_false(sv_keys_match(keys, "Bearer "));
        sv_keys_free(keys);
    }
}

static void test_refused_files(void **state)
{
    char text[600];
    (void)state;
    refused("", 0, SENNIT_INVALID, "no key");
    refused("# only this\n\n", 13, SENNIT_INVALID, "no key");
    refused("012345678901234\n", 16, SENNIT_INVALID, ":1: a key of 15 bytes");
    refused("# x\n\n012345678901234", 20, SENNIT_INVALID, ":3: ");
    refused("0123456789 123456789", 20, SENNIT_INVALID, "byte 11");
    refused("0123456789\000123456789", 20, SENNIT_INVALID, "byte 11");
    refused("0123456789\r123456789", 20, SENNIT_INVALID, "byte 11");
    refused("0123456789\xc3\xa9"
            "123456789",
            21, SENNIT_INVALID, "byte 11");
    refused("0123456789\x7f"
            "123456789",
            20, SENNIT_INVALID, "byte 11");
    memset(text, 'k', sizeof text);
    refused(text, 513, SENNIT_INVALID, "a key of 513 bytes");
}

static void test_big_files(void **state)
{
    size_t n_line = 20, n = (SV_MOST_KEYS + 1) * n_line;
    char *text = malloc(2 << 20), header[64];
    struct sennit_error err = {0};
    (void)state;
    for (size_t i = 0; i <= SV_MOST_KEYS; i++) {
        snprintf(header, sizeof header, "many-keys-%09zu\n", i);
        memcpy(text + i * n_line, header, n_line);
    }
    refused(text, n, SENNIT_INVALID, "more than 1024 keys");
    struct sv_keys *keys = load(text, n - n_line, &err);
    assert_non_null(keys);
    assert_true(sv_keys_match(keys, "Bearer many-keys-000000000"));
    assert_true(sv_keys_match(keys, "Bearer many-keys-000001023"));
    assert_false(sv_keys_match(keys, "Bearer many-keys-000001024"));
    sv_keys_free(keys);
    memset(text, '\n', 2 << 20);
    refused(text, 2 << 20, SENNIT_INVALID, "is it the right file");
    free(text);
}

static void test_permissions(void **state)
{
    static const mode_t good[] = {0600, 0400, 0700, 0711}, bad[] = {0644, 0640, 0620, 0602, 0604, 0666};
    struct sennit_error err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        write_file(KEY, strlen(KEY), good[i]);
        struct sv_keys *keys = sv_keys_load(path, &err);
        unlink(path);
        assert_non_null(keys);
        sv_keys_free(keys);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(KEY, strlen(KEY), bad[i]);
        assert_null(sv_keys_load(path, &err));
        unlink(path);
        assert_int_equal(err.code, SENNIT_INVALID);
        assert_non_null(strstr(err.message, "chmod 600"));
    }
    assert_null(sv_keys_load(path, &err));
    assert_int_equal(err.code, SENNIT_NOT_FOUND);
    assert_null(sv_keys_load("/", &err));
    assert_int_equal(err.code, SENNIT_IO);
    assert_null(sv_keys_load(path, NULL));
}

/* A shell's <(...). */
static void test_pipe(void **state)
{
    int ends[2];
    struct sennit_error err = {0};
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], KEY "\n", sizeof KEY), sizeof KEY);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    struct sv_keys *keys = sv_keys_load(path, &err);
    if (!keys)
        fail_msg("%s", err.message);
    assert_true(sv_keys_match(keys, "Bearer " KEY));
    sv_keys_free(keys);
    close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers),       cmocka_unit_test(test_wrong_keys), cmocka_unit_test(test_files),
        cmocka_unit_test(test_refused_files), cmocka_unit_test(test_big_files),  cmocka_unit_test(test_permissions),
        cmocka_unit_test(test_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
