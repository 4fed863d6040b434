/* Model files whose metadata and tensors do not fit together: each is refused with the field's
 * name, and what the metadata alone give away is refused before any weight has memory. */
#include "engine/run.h"
#include "model/model.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BEFORE_WEIGHTS = 128 << 10 }; /* the tiny model's matrices are about 300 KB */

struct spy {
    size_t now, most;
};

static void *spy_alloc(void *ctx, void *ptr, size_t old_bytes, size_t new_bytes)
{
    struct spy *s = ctx;
    void *fresh = NULL;
    s->now += new_bytes;
    s->now -= old_bytes;
    s->most = s->now > s->most ? s->now : s->most;
    if (new_bytes && posix_memalign(&fresh, 64, new_bytes) != 0)
        abort();
    if (ptr && fresh)
        memcpy(fresh, ptr, old_bytes < new_bytes ? old_bytes : new_bytes);
    free(ptr);
    return fresh;
}

/* Where the 4-byte value of a key lies. */
static uint8_t *value_of(const struct gguf_bytes *file, const char *key)
{
    size_t n = strlen(key);
    for (size_t i = 8; i + n + 8 < file->len; i++)
        if (memcmp(file->data + i, key, n) == 0 && file->data[i - 8] == n && file->data[i - 7] == 0)
            return file->data + i + n + 4;
    CHECK(false, "no key %s", key);
}

/* Opens and wants `status`, the message to say `says`, and everything given back. Returns the most
 * bytes that were allocated at once. */
static size_t open_refused(const struct gguf_bytes *file, sennit_status status, const char *says)
{
    struct spy spy = {0};
    struct sennit_model_options o = {.allocator = {spy_alloc, &spy}, .n_threads = 1};
    struct sennit_model *m = NULL;
    struct sennit_error err = {0};
    sennit_status got = sn_model_open_memory(&m, file->data, file->len, &o, &err);
    CHECK(got == status && err.code == status, "%s, not %s: %s", sennit_status_name(got), sennit_status_name(status),
          err.message);
    CHECK(strstr(err.message, says), "'%s' is not in '%s'", says, err.message);
    CHECK(m == NULL && spy.now == 0, "%zu bytes left", spy.now);
    return spy.most;
}

static void metadata(const struct gguf_bytes *file)
{
    const struct {
        const char *key;
        uint32_t value;
        sennit_status status;
        const char *says;
        bool early; /* before weights have memory */
    } cases[] = {
        {"llama.block_count", 0, SENNIT_FORMAT, "llama.block_count", true},
        {"llama.block_count", 5000, SENNIT_FORMAT, "llama.block_count", true},
        {"llama.block_count", UINT32_MAX, SENNIT_FORMAT, "llama.block_count", true},
        {"llama.block_count", 3, SENNIT_FORMAT, "blk.2.attn_norm.weight", false},
        {"llama.block_count", 1, SENNIT_UNSUPPORTED, "blk.1.", false},
        {"llama.context_length", 0, SENNIT_FORMAT, "llama.context_length", true},
        {"llama.context_length", UINT32_MAX, SENNIT_FORMAT, "llama.context_length", true},
        {"llama.embedding_length", 0, SENNIT_FORMAT, "llama.embedding_length", true},
        {"llama.embedding_length", 3, SENNIT_FORMAT, "llama.attention.head_count", true},
        {"llama.embedding_length", 128, SENNIT_FORMAT, "token_embd.weight", false},
        {"llama.embedding_length", UINT32_MAX, SENNIT_FORMAT, "llama.embedding_length", true},
        {"llama.feed_forward_length", 95, SENNIT_FORMAT, "ffn_gate", false},
        {"llama.feed_forward_length", 0, SENNIT_FORMAT, "llama.feed_forward_length", true},
        {"llama.attention.head_count", 0, SENNIT_FORMAT, "llama.attention.head_count", true},
        {"llama.attention.head_count", 3, SENNIT_FORMAT, "does not divide", true},
        {"llama.attention.head_count", 8, SENNIT_FORMAT, "rope.dimension_count", true},
        {"llama.attention.head_count", UINT32_MAX, SENNIT_FORMAT, "head_count", true},
        {"llama.attention.head_count_kv", 0, SENNIT_FORMAT, "head_count_kv", true},
        {"llama.attention.head_count_kv", 3, SENNIT_FORMAT, "does not divide", true},
        {"llama.attention.head_count_kv", 4, SENNIT_FORMAT, "attn_k", false},
        {"llama.rope.dimension_count", 0, SENNIT_FORMAT, "rope.dimension_count", true},
        {"llama.rope.dimension_count", 15, SENNIT_FORMAT, "rope.dimension_count", true},
        {"llama.rope.dimension_count", 18, SENNIT_FORMAT, "rope.dimension_count", true},
        {"llama.rope.freq_base", 0x00000000, SENNIT_FORMAT, "rope.freq_base", true},
        {"llama.rope.freq_base", 0xBF800000, SENNIT_FORMAT, "rope.freq_base", true},
        {"llama.rope.freq_base", 0x7F800000, SENNIT_FORMAT, "rope.freq_base", true},
        {"llama.rope.freq_base", 0x7FC00000, SENNIT_FORMAT, "rope.freq_base", true},
        {"llama.attention.layer_norm_rms_epsilon", 0xBF800000, SENNIT_FORMAT, "epsilon", true},
        {"llama.attention.layer_norm_rms_epsilon", 0x3F800000, SENNIT_FORMAT, "epsilon", true},
        {"llama.attention.layer_norm_rms_epsilon", 0x7FC00000, SENNIT_FORMAT, "epsilon", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t *at = value_of(file, cases[i].key), was[4];
        memcpy(was, at, sizeof was);
        memcpy(at, &cases[i].value, sizeof was);
        size_t most = open_refused(file, cases[i].status, cases[i].says);
        memcpy(at, was, sizeof was);
        CHECK(!cases[i].early || most < BEFORE_WEIGHTS, "%s: %zu bytes before the refusal", cases[i].key, most);
    }
    printf("metadata: %zu files that do not fit together are refused by name, with no memory for "
           "weights where the metadata are enough\n",
           sizeof cases / sizeof *cases);
}

/* The tiny model with one more tensor. */
static void with_tensor(const char *name, uint32_t n_dims, uint64_t n, const float *data, struct gguf_bytes *out)
{
    struct tiny_spec spec = tiny_spec_default();
    struct gguf_bytes tiny;
    tiny_model_build(&spec, &tiny);
    struct gguf_bytes more = {0};
    struct gguf_writer w;
    gw_init(&w, 3);
    gw_tensor(&w, name, SENNIT_F32, n_dims, (uint64_t[]){n, 1}, data, n * sizeof *data);
    /* The new description goes to the end of the list, its data behind all others. */
    size_t list_end = 0, alignment = 32;
    struct sn_heap heap;
    struct sn_gguf *g = NULL;
    sn_heap_init(&heap, NULL);
    MUST(sn_gguf_open_memory(&g, &heap, tiny.data, tiny.len, err));
    size_t data_start = tiny.len, n_tensors = sn_gguf_n_tensors(g);
    for (size_t i = 0; i < n_tensors; i++) {
        const struct sn_gguf_tensor *t = sn_gguf_tensor_at(g, i);
        size_t at = (size_t)((const uint8_t *)t->data - tiny.data);
        size_t end =
            (size_t)(t->name.data - (const char *)tiny.data) + t->name.len + 4 + 8 * (size_t)t->n_dims + 4 + 8;
        data_start = at < data_start ? at : data_start;
        list_end = end > list_end ? end : list_end;
    }
    sn_gguf_close(g);
    size_t data_bytes = (tiny.len - data_start + alignment - 1) / alignment * alignment;
    uint64_t offset = data_bytes;
    memcpy(w.infos.data + w.infos.len - 8, &offset, 8);
    uint64_t count = n_tensors + 1;
    memcpy(tiny.data + 8, &count, 8);
    gguf_bytes_put(&more, tiny.data, list_end);
    gguf_bytes_put(&more, w.infos.data, w.infos.len);
    while (more.len % alignment)
        gguf_bytes_u8(&more, 0);
    gguf_bytes_put(&more, tiny.data + data_start, tiny.len - data_start);
    for (size_t i = tiny.len - data_start; i < data_bytes; i++)
        gguf_bytes_u8(&more, 0);
    gguf_bytes_put(&more, data, n * sizeof *data);
    gw_free(&w);
    gguf_bytes_free(&tiny);
    *out = more;
}

static void rope_factors(void)
{
    const struct {
        float bad;
        const char *says;
    } cases[] = {{0, "rope_freqs.weight"},
                 {-1, "rope_freqs.weight"},
                 {NAN, "rope_freqs.weight"},
                 {INFINITY, "rope_freqs.weight"}};
    float factors[8] = {1, 1, 1, 2, 4, 8, 8, 8};
    struct gguf_bytes file;
    with_tensor("rope_freqs.weight", 1, 8, factors, &file);
    struct sennit_model *m = NULL;
    MUST(sn_model_open_memory(&m, file.data, file.len, NULL, err));
    sennit_model_free(m);
    gguf_bytes_free(&file);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        factors[5] = cases[i].bad;
        with_tensor("rope_freqs.weight", 1, 8, factors, &file);
        open_refused(&file, SENNIT_FORMAT, cases[i].says);
        gguf_bytes_free(&file);
    }
    with_tensor("blk.0.attn_q.bias", 1, 8, factors, &file);
    open_refused(&file, SENNIT_UNSUPPORTED, "blk.0.attn_q.bias");
    gguf_bytes_free(&file);
    printf("tensors: rotation factors that are no factors, and a tensor without a place, are "
           "refused\n");
}

/* What the vocabulary alone gives away. */
static void vocabulary(const struct gguf_bytes *file)
{
    uint8_t *model = value_of(file, "tokenizer.ggml.model") + 8, /* behind the string's length */
        *rows = value_of(file, "token_embd.weight") + 8;         /* the second dimension */
    CHECK(memcmp(model, "gpt2", 4) == 0 && rows[0] == 300 % 256 && rows[1] == 300 / 256,
          "the tiny model has changed");
    model[3] = '3';
    size_t most = open_refused(file, SENNIT_UNSUPPORTED, "tokenizer.ggml.model is 'gpt3'");
    model[3] = '2';
    CHECK(most < BEFORE_WEIGHTS, "%zu bytes before the refusal of a tokenizer", most);
    rows[0]--;
    most = open_refused(file, SENNIT_FORMAT, "300 tokens and the embedding 299 rows");
    rows[0]++;
    CHECK(most < BEFORE_WEIGHTS, "%zu bytes before the refusal of a vocabulary", most);
    printf("vocabulary: another tokenizer, or another size than the embedding's, is refused before "
           "weights have memory\n");
}

int main(void)
{
    struct tiny_spec spec = tiny_spec_default();
    struct gguf_bytes file;
    tiny_model_build(&spec, &file);
    metadata(&file);
    vocabulary(&file);
    gguf_bytes_free(&file);
    rope_factors();
    return 0;
}
