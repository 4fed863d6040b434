/* The tokenizer's rules one by one, on a vocabulary small enough to see through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "text/tok_support.h"
#include "text/utf8.h"

struct fixture {
    struct sn_heap heap;
    struct small_vocab vocab;
    struct sn_tokenizer *t;
    struct sn_tokens out;
    struct sn_buf buf;
};

static struct fixture fx;

static int setup(void **state)
{
    (void)state;
    struct sennit_error err;
    sn_heap_init(&fx.heap, NULL);
    small_vocab_init(&fx.vocab);
    sn_tokens_init(&fx.out, &fx.heap);
    sn_buf_init(&fx.buf, &fx.heap, SN_USE_TEXT, 1 << 24);
    CHECK(sn_tokenizer_create(&fx.t, &fx.heap, &fx.vocab.desc, NULL, NULL, &err) == SENNIT_OK, "%s",
          err.message);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sn_tokens_free(&fx.out);
    sn_buf_free(&fx.buf);
    sn_tokenizer_free(fx.t);
    assert_int_equal(atomic_load(&fx.heap.total), 0);
    return 0;
}

static int32_t id(const char *text)
{
    int32_t i = sn_token_find(fx.t, text, strlen(text));
    CHECK(i >= 0, "no token '%s'", text);
    return i;
}

static void expect_tokens(const char *const *names)
{
    size_t n = 0;
    for (; names[n]; n++)
        if (n < fx.out.n && fx.out.ids[n] != id(names[n]))
            fail_msg("token %zu is %d, not '%s'", n, fx.out.ids[n], names[n]);
    assert_int_equal(fx.out.n, n);
}
#define EXPECT(text, flags, ...)                                                                   \
    do {                                                                                           \
        encode(fx.t, text, sizeof(text) - 1, flags, &fx.out);                                      \
        expect_tokens((const char *const[]){__VA_ARGS__, NULL});                                   \
    } while (0)

/* ---- UTF-8 ---- */

static size_t unhex(const char *hex, char *out)
{
    size_t n = 0;
    for (unsigned v; hex[0] && sscanf(hex, "%2x", &v) == 1; hex += 2)
        out[n++] = (char)v;
    return n;
}

static void utf8_replacement_is_pythons(void **state)
{
    (void)state;
    json_t *golden = golden_load("utf8.json"), *cases = json_object_get(golden, "cases");
    assert_true(json_array_size(cases) > 1500);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        char in[256], want[256];
        size_t n = unhex(json_string_value(json_array_get(json_array_get(cases, i), 0)), in);
        size_t n_want = unhex(json_string_value(json_array_get(json_array_get(cases, i), 1)), want);
        size_t bad = 0;
        fx.buf.len = 0;
        assert_int_equal(sn_utf8_replace(&fx.buf, in, n, &bad), SENNIT_OK);
        if (fx.buf.len != n_want || (n_want && memcmp(fx.buf.data, want, n_want) != 0))
            fail_msg("case %zu", i);
        assert_int_equal(bad == 0, sn_utf8_valid_prefix(in, n) == n);
    }
    json_decref(golden);
}

static void utf8_every_code_point(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110000; c++) {
        char s[4];
        size_t n = sn_utf8_put(s, c), len;
        if (c >= 0xD800 && c < 0xE000) {
            assert_int_equal(n, 0);
            continue;
        }
        if (sn_utf8_step(s, n, &len) != SN_UTF8_OK || len != n || sn_utf8_code_point(s, n) != c)
            fail_msg("U+%04X", c);
        for (size_t cut = 1; cut < n; cut++)
            if (sn_utf8_step(s, cut, &len) != SN_UTF8_SHORT || len != cut)
                fail_msg("U+%04X cut to %zu bytes", c, cut);
    }
}

static void invalid_bytes_are_replaced_and_counted(void **state)
{
    (void)state;
    struct sn_tok_report report = {0};
    static const char text[] = "he\xFFllo\xE2\x82!";
    assert_int_equal(sn_tokenize(fx.t, text, sizeof text - 1, 0, &fx.out, &report, NULL),
                     SENNIT_OK);
    assert_int_equal(report.n_invalid_bytes, 3);
    decode(fx.t, fx.out.ids, fx.out.n, false, &fx.buf);
    assert_string_equal(fx.buf.data, "he\xEF\xBF\xBDllo\xEF\xBF\xBD!");
}

/* ---- merges and special tokens ---- */

static void merges(void **state)
{
    (void)state;
    EXPECT("hello", 0, "hello");
    EXPECT("hello hello", 0, "hello", " hello");
    EXPECT("hellhe", 0, "hell", "he");
    EXPECT("lllhe", 0, "ll", "l", "he");
    encode(fx.t, "", 0, 0, &fx.out);
    assert_int_equal(fx.out.n, 0);
    encode(fx.t, NULL, 0, SN_TOK_ADD_BOS, &fx.out);
    assert_int_equal(fx.out.n, 0);
}

static void special_tokens_by_trust(void **state)
{
    (void)state;
    EXPECT("<|im_end|>", SN_TOK_PARSE_SPECIAL, "<|im_end|>");
    EXPECT("a<|im_end|>xb", SN_TOK_PARSE_SPECIAL, "a", "<|im_end|>x", "b"); /* the longest wins */
    EXPECT("control me", SN_TOK_PARSE_SPECIAL, "control me");
    EXPECT("<|end|>", 0, "<|e", "n", "d", "|", ">"); /* user-defined is found in any text */
    EXPECT("<|end|>", SN_TOK_PARSE_SPECIAL, "<|end|>");
    EXPECT("<|en", SN_TOK_PARSE_SPECIAL, "<|e", "n");
    EXPECT("a  b", 0, "a", "  ", "b");
    EXPECT("[USER][USE", 0, "[USER]", "[", "U", "S", "E");
}

static void no_text_gives_a_control_token(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL_CONTROL; i++) {
        char text[128];
        for (int form = 0; form < 4; form++) {
            static const char *const forms[] = {"%s", "a %s b", "hello%s%s", " %s\n"};
            snprintf(text, sizeof text, forms[form], small_special[i], small_special[i]);
            encode(fx.t, text, strlen(text), 0, &fx.out);
            for (size_t k = 0; k < fx.out.n; k++)
                assert_false(sn_token_is_control(fx.t, fx.out.ids[k]));
            decode(fx.t, fx.out.ids, fx.out.n, true, &fx.buf);
            assert_string_equal(fx.buf.data, text);
        }
    }
}

static void expect_segments(const struct sn_text_segment *seg, size_t n, const char *const *names)
{
    fx.out.n = 0;
    assert_int_equal(sn_tokenize_segments(fx.t, seg, n, 0, &fx.out, NULL, NULL), SENNIT_OK);
    expect_tokens(names);
}

static void segments(void **state)
{
    (void)state;
    /* what a template says is trusted, what a user says is not */
    const struct sn_text_segment chat[] = {
        {"<|im_start|>", 12, true}, {"<|im_end|>", 10, false}, {"<|im_end|>", 10, true}};
    expect_segments(chat, 3,
                    (const char *const[]){"<|im_start|>", "<", "|", "i", "m", "_", "e", "n", "d",
                                          "|", ">", "<|im_end|>", NULL});
    /* neighbours of one trust are one text; words go over the border of trust; half a token is not
     * the token */
    const struct sn_text_segment joined[] = {
        {"<|im_", 5, true}, {"", 0, false}, {"end|>he", 7, true}, {"llo", 3, false}};
    expect_segments(joined, 4, (const char *const[]){"<|im_end|>", "hello", NULL});
    const struct sn_text_segment forged[] = {{"<|im_end", 8, true}, {"|>", 2, false}};
    expect_segments(forged, 2,
                    (const char *const[]){"<", "|", "i", "m", "_", "e", "n", "d", "|", ">", NULL});
    /* the longer control token reaches into user text, the shorter one does not */
    const struct sn_text_segment reach[] = {{"<|im_end|>", 10, true}, {"x", 1, false}};
    expect_segments(reach, 2, (const char *const[]){"<|im_end|>", "x", NULL});
    fx.out.n = 0;
    assert_int_equal(sn_tokenize_segments(fx.t, NULL, 0, 0, &fx.out, NULL, NULL), SENNIT_OK);
    assert_int_equal(fx.out.n, 0);
}

static void ends_and_lookups(void **state)
{
    (void)state;
    assert_int_equal(sn_tokenizer_eot(fx.t), id("<|im_end|>"));
    assert_true(sn_token_ends(fx.t, id("<|im_end|>")));
    assert_true(sn_token_ends(fx.t, id("<|end|>")));
    assert_false(sn_token_ends(fx.t, id("<|im_start|>")));
    assert_false(sn_token_ends(fx.t, id("a")));
    assert_false(sn_token_ends(fx.t, -1));
    assert_int_equal(sn_token_find(fx.t, "nothing", 7), -1);
    assert_int_equal(sn_token_find(fx.t, "", 0), -1);
    const char *text;
    size_t n;
    assert_int_equal(sn_token_text(fx.t, id(" hello"), &text, &n), SENNIT_OK);
    assert_memory_equal(text, " hello", n);
    assert_int_equal(sn_token_text(fx.t, (int32_t)sn_tokenizer_vocab_size(fx.t), &text, &n),
                     SENNIT_RANGE);
    assert_int_equal(sn_token_text(fx.t, -1, &text, &n), SENNIT_RANGE);
    for (int b = 0; b < 256; b++) { /* the byte alphabet, there and back */
        assert_int_equal(sn_token_text(fx.t, b, &text, &n), SENNIT_OK);
        assert_true(n == 1 && (unsigned char)text[0] == b);
    }
}

static void bos_and_eos(void **state)
{
    (void)state;
    struct sn_vocab_desc d = fx.vocab.desc;
    struct sn_tokenizer *t;
    d.bos = 65;
    d.eos = 66;
    d.add_bos = d.add_eos = SN_YES;
    assert_int_equal(sn_tokenizer_create(&t, &fx.heap, &d, NULL, NULL, NULL), SENNIT_OK);
    encode(t, "z", 1, SN_TOK_ADD_BOS | SN_TOK_ADD_EOS, &fx.out);
    assert_true(fx.out.n == 3 && fx.out.ids[0] == 65 && fx.out.ids[1] == 'z' &&
                fx.out.ids[2] == 66);
    assert_true(sn_token_ends(t, 66));
    encode(t, "z", 1, 0, &fx.out);
    assert_int_equal(fx.out.n, 1);
    sn_tokenizer_free(t);
    d.add_bos = SN_UNSET; /* then the family decides */
    assert_int_equal(sn_tokenizer_create(&t, &fx.heap, &d, "llama-bpe", NULL, NULL), SENNIT_OK);
    assert_true(sn_tokenizer_adds_bos(t));
    sn_tokenizer_free(t);
    assert_int_equal(sn_tokenizer_create(&t, &fx.heap, &d, NULL, NULL, NULL), SENNIT_OK);
    assert_false(sn_tokenizer_adds_bos(t));
    sn_tokenizer_free(t);
}

/* ---- errors ---- */

static void expect_refused(const struct sn_vocab_desc *d, const char *override,
                           sennit_status status, const char *a, const char *b)
{
    struct sn_tokenizer *t = NULL;
    struct sennit_error err;
    size_t before = atomic_load(&fx.heap.total);
    assert_int_equal(sn_tokenizer_create(&t, &fx.heap, d, override, NULL, &err), status);
    assert_int_equal(err.code, status);
    if (!strstr(err.message, a) || !strstr(err.message, b))
        fail_msg("'%s' does not name %s and %s", err.message, a, b);
    assert_null(t);
    assert_int_equal(atomic_load(&fx.heap.total), before);
}

static void pre_tokenizer_tag(void **state)
{
    (void)state;
    struct sn_vocab_desc d = fx.vocab.desc;
    d.pre = "no-such-thing";
    expect_refused(&d, NULL, SENNIT_UNSUPPORTED, "no-such-thing", "--pre NAME");
    expect_refused(&d, NULL, SENNIT_UNSUPPORTED, "tokenizer.ggml.pre", "smollm");
    d.pre = "gpt-";
    expect_refused(&d, NULL, SENNIT_UNSUPPORTED, "gpt-", "--pre NAME");
    d.pre = "gpt-2 gpt2";
    expect_refused(&d, NULL, SENNIT_UNSUPPORTED, "gpt-2 gpt2", "--pre NAME");
    d.pre = NULL;
    expect_refused(&d, NULL, SENNIT_UNSUPPORTED, "no tokenizer.ggml.pre", "--pre NAME");
    d.pre = "gpt-2";
    expect_refused(&d, "nope", SENNIT_UNSUPPORTED, "--pre 'nope'", "llama-bpe");
    d.pre = "no-such-thing";
    struct sn_tokenizer *t;
    assert_int_equal(sn_tokenizer_create(&t, &fx.heap, &d, "llama3", NULL, NULL), SENNIT_OK);
    assert_memory_equal(sn_tokenizer_pre(t), "llama-bpe", 9);
    sn_tokenizer_free(t);
    d.model = "llama";
    expect_refused(&d, "gpt-2", SENNIT_UNSUPPORTED, "tokenizer.ggml.model", "llama");
}

static const char *bad_merge;
static const char *one_merge(void *ctx, size_t i, size_t *len)
{
    (void)ctx;
    (void)i;
    *len = bad_merge ? strlen(bad_merge) : 0;
    return bad_merge;
}

static void bad_merges(void **state)
{
    (void)state;
    static const char *const malformed[] = {"", " ", "he", "h  e", "h e l", " e", "h ", NULL};
    struct sn_vocab_desc d = fx.vocab.desc;
    d.n_merges = 1;
    d.merge = one_merge;
    for (size_t i = 0; i < SN_ARRAY_LEN(malformed); i++) {
        bad_merge = malformed[i];
        expect_refused(&d, NULL, SENNIT_FORMAT, "tokenizer.ggml.merges[0]", "");
    }
    bad_merge = "zz e";
    expect_refused(&d, NULL, SENNIT_FORMAT, "merges[0]", "left part");
    bad_merge = "h \xE2\x96\x81";
    expect_refused(&d, NULL, SENNIT_FORMAT, "merges[0]", "right part");
    bad_merge = "q q";
    expect_refused(&d, NULL, SENNIT_FORMAT, "merges[0]", "joined");
    /* a merge that would turn plain text into a control token is left out */
    struct sn_tokenizer *t;
    strcpy(fx.vocab.names[256], "qq");
    fx.vocab.types[256] = SN_TOKEN_CONTROL;
    bad_merge = "q q";
    assert_int_equal(sn_tokenizer_create(&t, &fx.heap, &d, NULL, NULL, NULL), SENNIT_OK);
    encode(t, "qq", 2, 0, &fx.out);
    assert_int_equal(fx.out.n, 2);
    sn_tokenizer_free(t);
}

static void bad_tokens(void **state)
{
    (void)state;
    struct sn_vocab_desc d = fx.vocab.desc;
    d.n_tokens = 0;
    expect_refused(&d, NULL, SENNIT_FORMAT, "tokenizer.ggml.tokens", "0 tokens");
    d = fx.vocab.desc;
    d.eos = (int32_t)d.n_tokens;
    expect_refused(&d, NULL, SENNIT_FORMAT, "eos_token_id", "");
    d = fx.vocab.desc;
    d.add_bos = SN_YES;
    expect_refused(&d, NULL, SENNIT_FORMAT, "add_bos_token", "bos_token_id");
    d.add_bos = SN_UNSET;
    d.add_space_prefix = true;
    expect_refused(&d, NULL, SENNIT_UNSUPPORTED, "add_space_prefix", "");
    fx.vocab.types[7] = 9;
    expect_refused(&fx.vocab.desc, NULL, SENNIT_FORMAT, "token_type[7]", "9");
    fx.vocab.types[7] = SN_TOKEN_NORMAL;
    strcpy(fx.vocab.names[65], fx.vocab.names[66]);
    expect_refused(&fx.vocab.desc, NULL, SENNIT_FORMAT, "65 and 66", "'B'");
}

/* ---- streaming ---- */

static void streaming_never_splits_a_character(void **state)
{
    (void)state;
    json_t *golden = golden_load("utf8.json"), *cases = json_object_get(golden, "cases");
    for (size_t i = 0; i < json_array_size(cases);
         i++) { /* each byte is a token: every split at once */
        char in[256], want[256];
        size_t n = unhex(json_string_value(json_array_get(json_array_get(cases, i), 0)), in);
        size_t n_want = unhex(json_string_value(json_array_get(json_array_get(cases, i), 1)), want);
        struct sn_detok d;
        sn_detok_init(&d, fx.t, false);
        fx.buf.len = 0;
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(sn_detok_feed(&d, (unsigned char)in[k], &fx.buf, NULL), SENNIT_OK);
            assert_int_equal(sn_utf8_valid_prefix(fx.buf.data, fx.buf.len), fx.buf.len);
        }
        assert_int_equal(sn_detok_flush(&d, &fx.buf, NULL), SENNIT_OK);
        assert_int_equal(fx.buf.len, n_want);
        assert_memory_equal(fx.buf.data ? fx.buf.data : "", want, n_want);
    }
    json_decref(golden);
}

static void streaming_control_tokens(void **state)
{
    (void)state;
    const int32_t ids[] = {0xE2, id("<|im_end|>"), 0x82, 0xAC, id("[USER]"), 0xE2, id("a")};
    decode(fx.t, ids, SN_ARRAY_LEN(ids), true, &fx.buf);
    assert_string_equal(fx.buf.data, "\xE2\x82\xAC[USER]\xEF\xBF\xBD"
                                     "a");
    decode(fx.t, ids, SN_ARRAY_LEN(ids), false, &fx.buf);
    assert_string_equal(fx.buf.data,
                        "\xEF\xBF\xBD<|im_end|>\xEF\xBF\xBD\xEF\xBF\xBD[USER]\xEF\xBF\xBD"
                        "a");
    struct sn_detok d;
    struct sennit_error err;
    sn_detok_init(&d, fx.t, true);
    assert_int_equal(sn_detok_feed(&d, 100000, &fx.buf, &err), SENNIT_RANGE);
    assert_non_null(strstr(err.message, "100000"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(utf8_replacement_is_pythons),
        T(utf8_every_code_point),
        T(invalid_bytes_are_replaced_and_counted),
        T(merges),
        T(special_tokens_by_trust),
        T(no_text_gives_a_control_token),
        T(segments),
        T(ends_and_lookups),
        T(bos_and_eos),
        T(pre_tokenizer_tag),
        T(bad_merges),
        T(bad_tokens),
        T(streaming_never_splits_a_character),
        T(streaming_control_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
