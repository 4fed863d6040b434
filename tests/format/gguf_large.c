/* A file of 100,000 keys, 100,000 strings and 50,000 tensors: checks do not cost what they protect
 * from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "format/gguf.h"
#include "support/gguf_write.h"
#include "tensor/traits.h"

enum { N_KEYS = 100000, N_TENSORS = 50000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void build(struct gguf_bytes *out)
{
    struct gguf_writer w;
    static char text[N_KEYS][12];
    static const char *words[N_KEYS];
    char name[40];
    gw_init(&w, 3);
    for (uint32_t i = 0; i < N_KEYS; i++) {
        snprintf(name, sizeof name, "some.key.%u", i);
        gw_u32(&w, name, i * 7);
        snprintf(text[i], sizeof text[i], "word%u", i);
        words[i] = text[i];
    }
    gw_array_str(&w, "words", words, N_KEYS);
    for (uint32_t i = 0; i < N_TENSORS; i++) { /* offsets descending: the list must be sorted */
        int len = snprintf(name, sizeof name, "t.%u", i);
        gw_tensor_raw(&w, name, (size_t)len, 1, (uint64_t[]){8}, 1, SENNIT_F32,
                      32 * (N_TENSORS - 1 - (uint64_t)i));
    }
    for (uint32_t i = 0; i < N_TENSORS; i++)
        for (uint32_t k = 0; k < 8; k++)
            gguf_bytes_u32(&w.data, N_TENSORS - 1 - i);
    gw_finish(&w, out);
}

static void check_contents(const struct sn_gguf *g)
{
    struct sn_gguf_array a;
    assert_int_equal(sn_gguf_n_kv(g), N_KEYS + 1);
    assert_int_equal(sn_gguf_array(g, "words", SN_GGUF_STRING, &a, NULL), SENNIT_OK);
    assert_int_equal(a.n, N_KEYS);
    for (uint32_t i = 0; i < N_KEYS; i++) {
        char name[40];
        uint32_t v = 0;
        snprintf(name, sizeof name, "some.key.%u", i);
        if (sn_gguf_u32(g, name, &v, NULL) != SENNIT_OK || v != i * 7)
            fail_msg("key %u", i);
        size_t len = (size_t)snprintf(name, sizeof name, "word%u", i);
        struct sn_gguf_str s = sn_gguf_array_str(&a, i);
        if (s.len != len || memcmp(s.data, name, len) != 0)
            fail_msg("word %u", i);
    }
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        char name[40];
        uint32_t v;
        snprintf(name, sizeof name, "t.%u", i);
        const struct sn_gguf_tensor *t = sn_gguf_tensor(g, name);
        if (!t || (memcpy(&v, t->data, 4), v != i))
            fail_msg("tensor %u", i);
    }
}

static void many_keys(void **state)
{
    (void)state;
    struct gguf_bytes file;
    struct sn_heap heap;
    struct sn_gguf *g;
    build(&file);
    sn_heap_init(&heap, NULL);
    double start = now();
    assert_int_equal(sn_gguf_open_memory(&g, &heap, file.data, file.len, NULL), SENNIT_OK);
    double opened = now();
    check_contents(g);
    double looked = now();
    print_message("%d keys, %d strings, %d tensors, %zu bytes: opened in %.1f ms with %zu bytes of "
                  "heap; %d lookups in "
                  "%.1f ms\n",
                  N_KEYS, N_KEYS, N_TENSORS, file.len, 1e3 * (opened - start),
                  atomic_load(&heap.peak), 2 * N_KEYS + N_TENSORS, 1e3 * (looked - opened));
    /* Far above what it takes (some 20 ms) even under a sanitizer; a quadratic check would take
     * minutes. */
    assert_true(opened - start < 10.0);
    assert_true(atomic_load(&heap.peak) <= 4 * file.len);
    sn_gguf_close(g);
    assert_int_equal(atomic_load(&heap.total), 0);
    gguf_bytes_free(&file);
}

/* The smallest possible keys and tensors: the most bookkeeping per byte of file. */
static void smallest_entries(void **state)
{
    (void)state;
    struct gguf_writer w;
    struct gguf_bytes file;
    struct sn_heap heap;
    struct sn_gguf *g;
    gw_init(&w, 3);
    for (int i = 0; i < 60000; i++) {
        char key[3] = {(char)(1 + i % 250), (char)(1 + i / 250), 0};
        if (i < 250)
            gw_raw(&w, key, 1, GW_U8, "x", 1);
        else
            gw_raw(&w, key, 2, GW_U8, "x", 1);
    }
    gw_finish(&w, &file);
    sn_heap_init(&heap, NULL);
    assert_int_equal(sn_gguf_open_memory(&g, &heap, file.data, file.len, NULL), SENNIT_OK);
    print_message("%zu bytes of tiny keys: %zu bytes of heap\n", file.len, atomic_load(&heap.peak));
    assert_true(atomic_load(&heap.peak) <= 4 * file.len);
    sn_gguf_close(g);
    gguf_bytes_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_keys),
                                       cmocka_unit_test(smallest_entries)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
