/* Malformed GGUF: each case is refused, the message names the field, and nothing stays allocated.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>

#include "format/gguf.h"
#include "support/gguf_write.h"
#include "tensor/traits.h"

static void refused_bytes(const struct gguf_bytes *file, sennit_status status, const char *a,
                          const char *b)
{
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    struct sennit_error e = {.message = ""};
    sn_heap_init(&heap, NULL);
    sennit_status got = sn_gguf_open_memory(&g, &heap, file->data, file->len, &e);
    if (got != status || !strstr(e.message, a) || !strstr(e.message, b))
        fail_msg("got %s '%s'; expected %s with '%s' and '%s'", sennit_status_name(got), e.message,
                 sennit_status_name(status), a, b);
    assert_null(g);
    assert_int_equal(e.code, status);
    assert_int_equal(atomic_load(&heap.total), 0);
    assert_true(atomic_load(&heap.peak) <= 4 * file->len + 4096);
}

/* Finishes the writer and expects the refusal with both words in its message. */
static void refused(struct gguf_writer *w, sennit_status status, const char *a, const char *b)
{
    struct gguf_bytes file;
    gw_finish(w, &file);
    refused_bytes(&file, status, a, b);
    gguf_bytes_free(&file);
}

/* ---- header ---------------------------------------------------------------------------------- */

static void header_magic(void **state)
{
    (void)state;
    static const struct {
        const char *magic, *hint;
    } cases[] = {{"XXXX", "letters GGUF"}, {"FUGG", "big-endian"}, {"lmgg", "ggml"},
                 {"tjgg", "GGJT"},         {"vers", "Git LFS"},    {"<!DO", "web page"},
                 {"PK\3\4", "zip"}};
    for (size_t i = 0; i < SN_ARRAY_LEN(cases); i++) {
        struct gguf_writer w;
        gw_init(&w, 3);
        memcpy(w.magic, cases[i].magic, 4);
        refused(&w, SENNIT_FORMAT, "magic (byte 0)", cases[i].hint);
    }
}

static void header_version(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        const char *hint;
    } cases[] = {{0, "is 0"},
                 {1, "is 1"},
                 {4, "is 4"},
                 {UINT32_MAX, "is 4294967295"},
                 {0x03000000, "big-endian"}};
    for (size_t i = 0; i < SN_ARRAY_LEN(cases); i++) {
        struct gguf_writer w;
        gw_init(&w, cases[i].version);
        refused(&w, SENNIT_UNSUPPORTED, "version (byte 4)", cases[i].hint);
    }
}

static void header_counts(void **state)
{
    (void)state;
    static const uint64_t counts[] = {2, 1000, UINT32_MAX, 1ull << 61, UINT64_MAX};
    for (size_t i = 0; i < SN_ARRAY_LEN(counts); i++) {
        struct gguf_writer w;
        gw_init(&w, 3);
        gw_u32(&w, "k", 1);
        w.n_kv = counts[i];
        refused(&w, SENNIT_FORMAT, "metadata_kv_count (byte 16)", "room for at most 1");
        gw_init(&w, 3);
        gw_u32(&w, "k", 1);
        w.n_tensors = counts[i];
        refused(&w, SENNIT_FORMAT, "tensor_count (byte 8)", "room for at most 0");
    }
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void key_names(void **state)
{
    (void)state;
    struct gguf_writer w;
    static char big[65536];
    gw_init(&w, 3);
    gw_raw(&w, "", 0, GW_U64, "12345678", 8);
    refused(&w, SENNIT_FORMAT, "metadata key number 0 (byte 24)", "key has 0 bytes");
    gw_init(&w, 3);
    memset(big, 'k', sizeof big);
    gw_raw(&w, big, sizeof big, GW_U8, "1", 1);
    refused(&w, SENNIT_FORMAT, "metadata key number 0", "65536 bytes");
    gw_init(&w, 3);
    gw_u32(&w, "llama.block_count", 1);
    gw_u32(&w, "other", 1);
    gw_u32(&w, "llama.block_count", 2);
    refused(&w, SENNIT_FORMAT, "metadata key 'llama.block_count' (byte", "twice");
}

static void names_are_escaped(void **state)
{
    (void)state;
    struct gguf_writer w;
    char big[300];
    gw_init(&w, 3);
    gw_raw(&w, "a'\n\x1b[2J\xFF", 8, 13, "1234", 4);
    refused(&w, SENNIT_FORMAT, "'a\\x27\\x0a\\x1b[2J\\xff'", "value type 13");
    gw_init(&w, 3);
    memset(big, 7, sizeof big);
    gw_raw(&w, big, sizeof big, 13, "1234", 4);
    refused(&w, SENNIT_FORMAT, "\\x07...'", "value type 13");
}

static void value_types(void **state)
{
    (void)state;
    static const uint32_t types[] = {13, 14, 255, UINT32_MAX};
    for (size_t i = 0; i < SN_ARRAY_LEN(types); i++) {
        struct gguf_writer w;
        struct gguf_bytes array = {0};
        char text[40];
        snprintf(text, sizeof text, "type %u does not exist", types[i]);
        gw_init(&w, 3);
        gw_raw(&w, "k", 1, types[i], "12345678", 8);
        refused(&w, SENNIT_FORMAT, "metadata key 'k' (byte 33)", text);
        gguf_bytes_u32(&array, types[i]);
        gguf_bytes_u64(&array, 0);
        gw_init(&w, 3);
        gw_raw(&w, "k", 1, GW_ARRAY, array.data, array.len);
        refused(&w, SENNIT_FORMAT, "metadata key 'k' (byte 37)", text);
        gguf_bytes_free(&array);
    }
}

static void bools(void **state)
{
    (void)state;
    struct gguf_writer w;
    gw_init(&w, 3);
    gw_raw(&w, "flag", 4, GW_BOOL, "\x02", 1);
    refused(&w, SENNIT_FORMAT, "metadata key 'flag' (byte 40)", "0 or 1, not 2");
    gw_init(&w, 3);
    gw_array(&w, "flags", GW_BOOL, "\0\1\xFF\1", 4);
    refused(&w, SENNIT_FORMAT, "metadata key 'flags' (byte 55)", "not 255");
}

static void nested_arrays(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct gguf_bytes array = {0};
    gguf_bytes_u32(&array, GW_ARRAY);
    gguf_bytes_u64(&array, 1);
    gguf_bytes_u32(&array, GW_U8);
    gguf_bytes_u64(&array, 1);
    gguf_bytes_u8(&array, 1);
    gw_init(&w, 3);
    gw_raw(&w, "nested", 6, GW_ARRAY, array.data, array.len);
    refused(&w, SENNIT_UNSUPPORTED, "metadata key 'nested'", "arrays of arrays");
    gguf_bytes_free(&array);
}

/* An array whose count or whose string's length claims more than there is. */
static void lengths(void **state)
{
    (void)state;
    static const uint64_t counts[] = {
        3, 1000, 1ull << 32, 1ull << 61, (1ull << 61) + 1, UINT64_MAX / 2, UINT64_MAX};
    static const uint32_t elems[] = {GW_U8, GW_I16, GW_F32, GW_BOOL, GW_STRING, GW_U64};
    for (size_t i = 0; i < SN_ARRAY_LEN(counts); i++) {
        struct gguf_writer w;
        struct gguf_bytes value = {0};
        gguf_bytes_u64(&value, counts[i]);
        gguf_bytes_put(&value, "ab", 2);
        gw_init(&w, 3);
        gw_raw(&w, "text", 4, GW_STRING, value.data, value.len);
        refused(&w, SENNIT_FORMAT, "metadata key 'text'", "incomplete download");
        gguf_bytes_free(&value);
        for (size_t k = 0; k < SN_ARRAY_LEN(elems); k++) {
            gguf_bytes_u32(&value, elems[k]);
            gguf_bytes_u64(&value, counts[i]);
            gguf_bytes_put(&value, "\0\1", 2);
            gw_init(&w, 3);
            gw_raw(&w, "list", 4, GW_ARRAY, value.data, value.len);
            refused(&w, SENNIT_FORMAT, "metadata key 'list'", "incomplete download");
            gguf_bytes_free(&value);
        }
    }
}

static void alignments(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0, 1, 4, 12, 33, UINT32_MAX};
    struct gguf_writer w;
    for (size_t i = 0; i < SN_ARRAY_LEN(wrong); i++) {
        gw_init(&w, 3);
        gw_u32(&w, "general.alignment", wrong[i]);
        refused(&w, SENNIT_FORMAT, "'general.alignment'", "power of two");
    }
    gw_init(&w, 3);
    gw_str(&w, "general.alignment", "32");
    refused(&w, SENNIT_FORMAT, "'general.alignment'", "string");
    gw_init(&w, 3);
    gw_i32(&w, "general.alignment", -32);
    refused(&w, SENNIT_FORMAT, "'general.alignment'", "negative");
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* One tensor 't' with these numbers and 4096 bytes of data behind. */
static void refused_tensor(uint32_t n_dims, const uint64_t *dims, uint32_t n_written, uint32_t type,
                           uint64_t offset, sennit_status status, const char *word)
{
    static const uint8_t zeros[4096];
    struct gguf_writer w;
    gw_init(&w, 3);
    gw_tensor_raw(&w, "t", 1, n_dims, dims, n_written, type, offset);
    gguf_bytes_put(&w.data, zeros, sizeof zeros);
    refused(&w, status, "tensor 't' (byte", word);
}

static void n_dims(void **state)
{
    (void)state;
    const uint64_t dims[5] = {2, 2, 2, 2, 2};
    refused_tensor(0, dims, 0, SENNIT_F32, 0, SENNIT_FORMAT, "n_dims is 0");
    refused_tensor(5, dims, 5, SENNIT_F32, 0, SENNIT_FORMAT, "n_dims is 5");
    refused_tensor(UINT32_MAX, dims, 5, SENNIT_F32, 0, SENNIT_FORMAT, "n_dims is 4294967295");
}

static void dims(void **state)
{
    (void)state;
    const struct {
        uint64_t dims[4];
        uint32_t type;
        sennit_status status;
        const char *word;
    } cases[] = {
        {{0, 1, 1, 1}, SENNIT_F32, SENNIT_FORMAT, "dimension 0 is 0"},
        {{4, 1, 0, 1}, SENNIT_F32, SENNIT_FORMAT, "dimension 2 is 0"},
        {{1ull << 32, 1ull << 32, 1, 1}, SENNIT_F32, SENNIT_FORMAT, "product"},
        {{1ull << 62, 1, 1, 1}, SENNIT_F32, SENNIT_FORMAT, "product"},
        {{1ull << 62, 1, 1, 1}, SENNIT_I8, SENNIT_FORMAT, "product"},
        {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}, SENNIT_I8, SENNIT_FORMAT, "product"},
        {{1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16}, SENNIT_Q4_0, SENNIT_FORMAT, "product"},
        {{3, 1ull << 63, 2, 1}, SENNIT_I8, SENNIT_FORMAT, "product"},
        {{33, 1, 1, 1}, SENNIT_Q8_0, SENNIT_FORMAT, "whole blocks of 32"},
        {{128, 2, 1, 1}, SENNIT_Q4_K, SENNIT_FORMAT, "whole blocks of 256"},
        {{32, 1, 1, 1}, 4, SENNIT_UNSUPPORTED, "element type 4"},
        {{32, 1, 1, 1}, 36, SENNIT_UNSUPPORTED, "element type 36"},
        {{32, 1, 1, 1}, 40, SENNIT_UNSUPPORTED, "element type 40"},
        {{32, 1, 1, 1}, UINT32_MAX, SENNIT_UNSUPPORTED, "element type 4294967295"},
        {{1025, 1, 1, 1}, SENNIT_F32, SENNIT_FORMAT, "incomplete download"},
    };
    for (size_t i = 0; i < SN_ARRAY_LEN(cases); i++)
        refused_tensor(4, cases[i].dims, 4, cases[i].type, 0, cases[i].status, cases[i].word);
}

static void offsets(void **state)
{
    (void)state;
    const uint64_t dims[1] = {32};
    refused_tensor(1, dims, 1, SENNIT_F32, 16, SENNIT_FORMAT,
                   "offset 16 is not a multiple of the file's alignment, 32");
    refused_tensor(1, dims, 1, SENNIT_F32, 4096, SENNIT_FORMAT, "incomplete download");
    refused_tensor(1, dims, 1, SENNIT_F32, 4000, SENNIT_FORMAT, "incomplete download");
    refused_tensor(1, dims, 1, SENNIT_F32, UINT64_MAX - 31, SENNIT_FORMAT, "too large");
    refused_tensor(1, dims, 1, SENNIT_F32, 1ull << 63, SENNIT_FORMAT, "incomplete download");
}

static void tensor_names(void **state)
{
    (void)state;
    char name[65];
    struct gguf_writer w;
    memset(name, 'n', sizeof name);
    gw_init(&w, 3);
    gw_tensor_raw(&w, name, 65, 1, (uint64_t[]){1}, 1, SENNIT_F32, 0);
    refused(&w, SENNIT_FORMAT, "tensor number 0", "65 bytes");
    gw_init(&w, 3);
    gw_tensor_raw(&w, "", 0, 1, (uint64_t[]){1}, 1, SENNIT_F32, 0);
    gguf_bytes_u32(&w.data, 0); /* room for one tensor at least */
    refused(&w, SENNIT_FORMAT, "tensor number 0", "0 bytes");
    gw_init(&w, 3);
    gw_tensor(&w, "blk.0.w", SENNIT_F32, 1, (uint64_t[]){1}, "1234", 4);
    gw_tensor(&w, "blk.0.w", SENNIT_F32, 1, (uint64_t[]){1}, "1234", 4);
    refused(&w, SENNIT_FORMAT, "tensor 'blk.0.w'", "twice");
}

static void overlaps(void **state)
{
    (void)state;
    static const uint8_t zeros[512];
    static const uint64_t places[][2] = {{0, 0}, {0, 32}, {32, 0}, {64, 96}};
    for (size_t i = 0; i < SN_ARRAY_LEN(places); i++) {
        struct gguf_writer w;
        gw_init(&w, 3);
        gw_tensor_raw(&w, "far", 3, 1, (uint64_t[]){8}, 1, SENNIT_F32, 256);
        gw_tensor_raw(&w, "a", 1, 1, (uint64_t[]){16}, 1, SENNIT_F32, places[i][0]);
        gw_tensor_raw(&w, "b", 1, 1, (uint64_t[]){16}, 1, SENNIT_F32, places[i][1]);
        gguf_bytes_put(&w.data, zeros, sizeof zeros);
        refused(&w, SENNIT_FORMAT, "overlap", "tensor '");
    }
}

/* Without the padding before the data section, the last tensor ends past the file. */
static void missing_padding(void **state)
{
    (void)state;
    struct gguf_writer w;
    gw_init(&w, 3);
    w.no_padding = true;
    gw_tensor(&w, "t", SENNIT_F32, 1, (uint64_t[]){1}, "1234", 4);
    refused(&w, SENNIT_FORMAT, "tensor 't'", "incomplete download");
}

/* ---- truncation ------------------------------------------------------------------------------ */

/* Cut anywhere, the file is refused, and the message says what it probably is. */
static void every_truncation(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct gguf_bytes file, cut = {0};
    gw_init(&w, 3);
    gw_str(&w, "general.name", "tiny");
    gw_array_str(&w, "words", (const char *const[]){"a", "bb", ""}, 3);
    gw_array(&w, "numbers", GW_I32, (int32_t[]){1, 2, 3}, 3);
    gw_bool(&w, "flag", true);
    gw_tensor(&w, "t", SENNIT_F32, 2, (uint64_t[]){4, 2}, "0123456789abcdef0123456789abcdef", 32);
    gw_finish(&w, &file);
    for (size_t n = 0; n < file.len; n++) {
        gguf_bytes_put(&cut, file.data,
                       n); /* an exact block, so that a sanitizer sees one byte too many */
        refused_bytes(&cut, SENNIT_FORMAT, "incomplete download", "byte");
        gguf_bytes_free(&cut);
    }
    gguf_bytes_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(header_magic),
        cmocka_unit_test(header_version),
        cmocka_unit_test(header_counts),
        cmocka_unit_test(key_names),
        cmocka_unit_test(names_are_escaped),
        cmocka_unit_test(value_types),
        cmocka_unit_test(bools),
        cmocka_unit_test(nested_arrays),
        cmocka_unit_test(lengths),
        cmocka_unit_test(alignments),
        cmocka_unit_test(n_dims),
        cmocka_unit_test(dims),
        cmocka_unit_test(offsets),
        cmocka_unit_test(tensor_names),
        cmocka_unit_test(overlaps),
        cmocka_unit_test(missing_padding),
        cmocka_unit_test(every_truncation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
