/* The tiny models that other rooms' tests stand on: they open, hold what their description says,
 * and are the same bytes on every machine (hashes below; a change of the generator changes golden
 * digests elsewhere too). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "format/gguf.h"
#include "support/gguf_walk.h"
#include "support/tiny_model.h"
#include "tensor/traits.h"

static void fixed_bytes(void **state)
{
    (void)state;
    static const struct {
        sennit_type type;
        uint64_t hash;
    } cases[] = {{SENNIT_F32, 0x3CAB0DE7E89618C1},  {SENNIT_F16, 0xA2AEAAE9FE041005},
                 {SENNIT_BF16, 0xCEFC9E1EC7445001}, {SENNIT_Q8_0, 0xA2FE17662ABECE88},
                 {SENNIT_Q4_0, 0x256585DE32BE504E}, {SENNIT_Q4_1, 0xC4F894E0AAF052A6}};
    bool same = true;
    for (size_t i = 0; i < SN_ARRAY_LEN(cases); i++) {
        struct tiny_spec spec = tiny_spec_default();
        struct gguf_bytes file;
        spec.type = spec.embd_type = cases[i].type;
        tiny_model_build(&spec, &file);
        uint64_t hash = XXH3_64bits(file.data, file.len);
        if (hash != cases[i].hash)
            print_message("%s: %zu bytes, hash is 0x%016llX\n", sennit_type_name(cases[i].type),
                          file.len, (unsigned long long)hash);
        same = same && hash == cases[i].hash;
        gguf_bytes_free(&file);
    }
    assert_true(same);
}

/* Every shape that the description allows gives a file whose tensors have that shape. */
static void shapes(void **state)
{
    (void)state;
    struct tiny_spec spec = tiny_spec_default();
    struct gguf_bytes file;
    struct sn_heap heap;
    struct sn_gguf *g;
    struct sennit_error e;
    uint32_t head_dim = 0;
    spec.version = 2;
    spec.n_layers = 3;
    spec.d_model = 96;
    spec.n_heads = 6;
    spec.n_kv_heads = 2;
    spec.head_dim = 32; /* 6 * 32 is not 96 */
    spec.d_ff = 128;
    spec.n_vocab = TINY_MAX_VOCAB;
    spec.type = SENNIT_Q4_1;
    spec.embd_type = SENNIT_Q8_0;
    spec.tied = false;
    tiny_model_build(&spec, &file);
    sn_heap_init(&heap, NULL);
    if (sn_gguf_open_memory(&g, &heap, file.data, file.len, &e) != SENNIT_OK)
        fail_msg("%s", e.message);
    assert_int_equal(sn_gguf_n_tensors(g), 3 + 3 * 9);
    assert_int_equal(sn_gguf_u32(g, "llama.attention.key_length", &head_dim, NULL), SENNIT_OK);
    assert_int_equal(head_dim, 32);
    const struct sn_gguf_tensor *t = sn_gguf_tensor(g, "blk.2.attn_q.weight");
    assert_int_equal(t->dims[0], 96);
    assert_int_equal(t->dims[1], 192);
    assert_int_equal(t->type, SENNIT_Q4_1);
    t = sn_gguf_tensor(g, "blk.2.attn_output.weight");
    assert_int_equal(t->dims[0], 192);
    assert_int_equal(t->dims[1], 96);
    assert_int_equal(sn_gguf_tensor(g, "blk.0.attn_k.weight")->dims[1], 64);
    assert_int_equal(sn_gguf_tensor(g, "output.weight")->dims[1], TINY_MAX_VOCAB);
    assert_int_equal(sn_gguf_tensor(g, "output.weight")->type, SENNIT_Q8_0);
    gguf_walk(g);
    sn_gguf_close(g);
    gguf_bytes_free(&file);
}

/* The quantizer's error is at most half a step of the block's scale (a whole one at the open end of
 * Q4_0). */
static void quantizer(void **state)
{
    (void)state;
    static const struct {
        sennit_type type;
        float bound; /* of |error| / amax of the block */
    } cases[] = {{SENNIT_F32, 0},        {SENNIT_F16, 0x1p-11f}, {SENNIT_BF16, 0x1p-8f},
                 {SENNIT_Q8_0, 0.0045f}, {SENNIT_Q4_0, 0.13f},   {SENNIT_Q4_1, 0.07f}};
    uint64_t random = 7;
    for (size_t i = 0; i < SN_ARRAY_LEN(cases); i++) {
        float x[256], y[256];
        uint8_t packed[1024];
        for (size_t k = 0; k < 256; k++)
            x[k] = k / 32 == 3 ? 0.0f : tiny_uniform(&random);
        tiny_quantize(cases[i].type, x, 256, packed);
        assert_true(sn_dequantize_row((uint32_t)cases[i].type, packed, 256, y));
        for (size_t k = 0; k < 256; k++) {
            float error = x[k] < y[k] ? y[k] - x[k] : x[k] - y[k];
            if (!(error <= cases[i].bound))
                fail_msg("%s: %g became %g", sennit_type_name(cases[i].type), (double)x[k],
                         (double)y[k]);
        }
    }
}

static void impossible_descriptions(void **state)
{
    (void)state;
    struct tiny_spec s = tiny_spec_default();
    assert_null(tiny_spec_check(&s));
    s.n_kv_heads = 3;
    assert_non_null(tiny_spec_check(&s));
    s = tiny_spec_default();
    s.n_vocab = 258;
    assert_non_null(tiny_spec_check(&s));
    s = tiny_spec_default();
    s.type = SENNIT_Q8_0;
    s.d_model = 48;
    assert_non_null(tiny_spec_check(&s));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(fixed_bytes), cmocka_unit_test(shapes),
                                       cmocka_unit_test(quantizer),
                                       cmocka_unit_test(impossible_descriptions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
