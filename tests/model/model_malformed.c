/* Model files that are well-formed GGUF and no model that can run: each is refused with the key or the tensor in the
 * message, before memory is taken that the file does not back, and leaves nothing behind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/edit.h"
#include "model/model.h"

enum { PEAK_BYTES = 512 << 10 }; /* the whole model, opened, takes less */

static int n_failed;

/* Keys as C statements; `w` is the writer. */
#define ADD(name, statements)                                                                                        \
    static void name(struct gguf_writer *w)                                                                          \
    {                                                                                                                \
        statements;                                                                                                  \
    }
ADD(arch, gw_str(w, "general.architecture", "gargantua"))
ADD(arch_number, gw_u32(w, "general.architecture", 3))
ADD(heads_0, gw_u32(w, "llama.attention.head_count", 0))
ADD(heads_9, gw_u32(w, "llama.attention.head_count", 9))
ADD(heads_many, gw_u32(w, "llama.attention.head_count", 70000))
ADD(heads_text, gw_str(w, "llama.attention.head_count", "2"))
ADD(kv_heads_0, gw_u32(w, "llama.attention.head_count_kv", 0))
ADD(kv_heads_3, gw_u32(w, "llama.attention.head_count_kv", 3))
ADD(key_length, gw_u32(w, "llama.attention.key_length", 5000))
ADD(value_length, gw_u32(w, "llama.attention.value_length", 0))
ADD(layers_0, gw_u32(w, "llama.block_count", 0))
ADD(layers_2, gw_u32(w, "llama.block_count", 2))
ADD(layers_4096, gw_u32(w, "llama.block_count", 4096))
ADD(layers_most, gw_u32(w, "llama.block_count", UINT32_MAX))
ADD(layers_negative, gw_i32(w, "llama.block_count", -1))
ADD(width_0, gw_u32(w, "llama.embedding_length", 0))
ADD(width_16, gw_u32(w, "llama.embedding_length", 16))
ADD(width_most, gw_u64(w, "llama.embedding_length", 1ull << 40))
ADD(ff_0, gw_u32(w, "llama.feed_forward_length", 0))
ADD(ff_16, gw_u32(w, "llama.feed_forward_length", 16))
ADD(context_0, gw_u32(w, "llama.context_length", 0))
ADD(context_most, gw_u64(w, "llama.context_length", UINT64_MAX))
ADD(eps_negative, gw_f32(w, "llama.attention.layer_norm_rms_epsilon", -1e-5f))
ADD(eps_nan, gw_f32(w, "llama.attention.layer_norm_rms_epsilon", NAN))
ADD(eps_1, gw_f32(w, "llama.attention.layer_norm_rms_epsilon", 1.0f))
ADD(rot_3, gw_u32(w, "llama.rope.dimension_count", 3))
ADD(rot_0, gw_u32(w, "llama.rope.dimension_count", 0))
ADD(rot_6, gw_u32(w, "llama.rope.dimension_count", 6))
ADD(base_0, gw_f32(w, "llama.rope.freq_base", 0.0f))
ADD(base_nan, gw_f32(w, "llama.rope.freq_base", NAN))
ADD(base_inf, gw_f32(w, "llama.rope.freq_base", INFINITY))
ADD(scaling_yarn, gw_str(w, "llama.rope.scaling.type", "yarn"))
ADD(scaling_none_given, gw_str(w, "llama.rope.scaling.type", "linear"))
ADD(scaling_0, gw_str(w, "llama.rope.scaling.type", "linear"); gw_f32(w, "llama.rope.scaling.factor", 0.0f))
ADD(scale_negative, gw_f32(w, "llama.rope.scale_linear", -2.0f))
ADD(experts, gw_u32(w, "llama.expert_count", 8))
ADD(window, gw_u32(w, "llama.attention.sliding_window", 32))
static void freqs(struct gguf_writer *w, float second)
{
    gw_tensor(w, "rope_freqs.weight", SENNIT_F32, 1, (uint64_t[]){2}, (float[]){1.0f, second}, 8);
}
ADD(freqs_0, freqs(w, 0.0f))
ADD(freqs_negative, freqs(w, -1.0f))
ADD(freqs_nan, freqs(w, NAN))
ADD(freqs_long, gw_tensor(w, "rope_freqs.weight", SENNIT_F32, 1, (uint64_t[]){3}, (float[]){1, 1, 1}, 12))
ADD(extra, gw_tensor(w, "blk.0.attn_q.bias", SENNIT_F32, 1, (uint64_t[]){2}, (float[]){0, 0}, 8))
ADD(extra_layer, gw_tensor(w, "blk.1.attn_norm.weight", SENNIT_F32, 1, (uint64_t[]){2}, (float[]){0, 0}, 8))
ADD(bos, gw_u32(w, "tokenizer.ggml.bos_token_id", 259))
ADD(types, gw_array(w, "tokenizer.ggml.token_type", GW_I32, (int32_t[]){1, 1}, 2))
ADD(tokens, gw_array(w, "tokenizer.ggml.tokens", GW_I32, (int32_t[]){1, 1}, 2))
ADD(tokenizer, gw_str(w, "tokenizer.ggml.model", "llama"))

static const struct named {
    const char *name;
    struct edit edit;
    sennit_status status;
    const char *word; /* in the message */
} cases[] = {
#define KEY(name, key, status) {#name, {.drop = key, .add = name}, status, key}
#define NEW(name, status, word) {#name, {.add = name}, status, word}
#define GONE(thing) {"no " thing, {.drop = thing}, SENNIT_FORMAT, thing}
#define SHAPE(what, name, t, n, st, ...)                                                                             \
    {                                                                                                                \
        what, {.tensor = name, .type = t, .n_dims = n, .dims = {__VA_ARGS__}}, st, name                              \
    }
    {"arch", {.drop = "general.architecture", .add = arch}, SENNIT_UNSUPPORTED, "gargantua"},
    KEY(arch_number, "general.architecture", SENNIT_FORMAT),
    GONE("general.architecture"),
    KEY(heads_0, "llama.attention.head_count", SENNIT_FORMAT),
    KEY(heads_9, "llama.attention.head_count", SENNIT_FORMAT),
    KEY(heads_many, "llama.attention.head_count", SENNIT_FORMAT),
    KEY(heads_text, "llama.attention.head_count", SENNIT_FORMAT),
    GONE("llama.attention.head_count"),
    KEY(kv_heads_0, "llama.attention.head_count_kv", SENNIT_FORMAT),
    KEY(kv_heads_3, "llama.attention.head_count_kv", SENNIT_FORMAT),
    NEW(key_length, SENNIT_FORMAT, "llama.attention.key_length"),
    NEW(value_length, SENNIT_FORMAT, "llama.attention.value_length"),
    KEY(layers_0, "llama.block_count", SENNIT_FORMAT),
    {"layers_2", {.drop = "llama.block_count", .add = layers_2}, SENNIT_FORMAT, "blk.1.attn_norm.weight"},
    KEY(layers_4096, "llama.block_count", SENNIT_FORMAT),
    KEY(layers_most, "llama.block_count", SENNIT_FORMAT),
    KEY(layers_negative, "llama.block_count", SENNIT_FORMAT),
    GONE("llama.block_count"),
    KEY(width_0, "llama.embedding_length", SENNIT_FORMAT),
    {"width_16", {.drop = "llama.embedding_length", .add = width_16}, SENNIT_FORMAT, "token_embd.weight"},
    KEY(width_most, "llama.embedding_length", SENNIT_FORMAT),
    GONE("llama.embedding_length"),
    KEY(ff_0, "llama.feed_forward_length", SENNIT_FORMAT),
    {"ff_16", {.drop = "llama.feed_forward_length", .add = ff_16}, SENNIT_FORMAT, "blk.0.ffn_gate.weight"},
    GONE("llama.feed_forward_length"),
    KEY(context_0, "llama.context_length", SENNIT_FORMAT),
    KEY(context_most, "llama.context_length", SENNIT_FORMAT),
    GONE("llama.context_length"),
    KEY(eps_negative, "llama.attention.layer_norm_rms_epsilon", SENNIT_FORMAT),
    KEY(eps_nan, "llama.attention.layer_norm_rms_epsilon", SENNIT_FORMAT),
    KEY(eps_1, "llama.attention.layer_norm_rms_epsilon", SENNIT_FORMAT),
    GONE("llama.attention.layer_norm_rms_epsilon"),
    KEY(rot_3, "llama.rope.dimension_count", SENNIT_FORMAT),
    KEY(rot_0, "llama.rope.dimension_count", SENNIT_FORMAT),
    KEY(rot_6, "llama.rope.dimension_count", SENNIT_FORMAT),
    KEY(base_0, "llama.rope.freq_base", SENNIT_FORMAT),
    KEY(base_nan, "llama.rope.freq_base", SENNIT_FORMAT),
    KEY(base_inf, "llama.rope.freq_base", SENNIT_FORMAT),
    NEW(scaling_yarn, SENNIT_UNSUPPORTED, "llama.rope.scaling.type"),
    NEW(scaling_none_given, SENNIT_FORMAT, "llama.rope.scaling.factor"),
    NEW(scaling_0, SENNIT_FORMAT, "llama.rope.scaling.factor"),
    NEW(scale_negative, SENNIT_FORMAT, "llama.rope.scale_linear"),
    NEW(freqs_0, SENNIT_FORMAT, "rope_freqs.weight"),
    NEW(freqs_negative, SENNIT_FORMAT, "rope_freqs.weight"),
    NEW(freqs_nan, SENNIT_FORMAT, "rope_freqs.weight"),
    NEW(freqs_long, SENNIT_FORMAT, "rope_freqs.weight"),
    NEW(experts, SENNIT_UNSUPPORTED, "llama.expert_count"),
    NEW(window, SENNIT_UNSUPPORTED, "llama.attention.sliding_window"),
    NEW(extra, SENNIT_UNSUPPORTED, "blk.0.attn_q.bias"),
    NEW(extra_layer, SENNIT_UNSUPPORTED, "blk.1.attn_norm.weight"),
    KEY(bos, "tokenizer.ggml.bos_token_id", SENNIT_FORMAT),
    KEY(types, "tokenizer.ggml.token_type", SENNIT_FORMAT),
    KEY(tokens, "tokenizer.ggml.tokens", SENNIT_FORMAT),
    {"tokenizer", {.drop = "tokenizer.ggml.model", .add = tokenizer}, SENNIT_UNSUPPORTED, "tokenizer"},
    GONE("tokenizer.ggml.model"),
    GONE("tokenizer.ggml.tokens"),
    GONE("token_embd.weight"),
    GONE("output_norm.weight"),
    GONE("blk.0.attn_norm.weight"),
    GONE("blk.0.attn_q.weight"),
    GONE("blk.0.attn_k.weight"),
    GONE("blk.0.attn_v.weight"),
    GONE("blk.0.attn_output.weight"),
    GONE("blk.0.ffn_norm.weight"),
    GONE("blk.0.ffn_gate.weight"),
    GONE("blk.0.ffn_up.weight"),
    GONE("blk.0.ffn_down.weight"),
    SHAPE("transposed", "blk.0.attn_k.weight", SENNIT_F16, 2, SENNIT_FORMAT, 4, 8),
    SHAPE("a row short", "blk.0.attn_q.weight", SENNIT_F16, 2, SENNIT_FORMAT, 8, 7),
    SHAPE("three dimensions", "blk.0.ffn_up.weight", SENNIT_F16, 3, SENNIT_FORMAT, 8, 4, 2),
    SHAPE("three, the last 1", "blk.0.ffn_up.weight", SENNIT_F16, 3, SENNIT_FORMAT, 8, 8, 1),
    SHAPE("one dimension", "blk.0.ffn_up.weight", SENNIT_F16, 1, SENNIT_FORMAT, 64),
    SHAPE("norm too long", "blk.0.ffn_norm.weight", SENNIT_F16, 1, SENNIT_FORMAT, 9),
    SHAPE("norm as a matrix", "output_norm.weight", SENNIT_F16, 2, SENNIT_FORMAT, 4, 2),
    SHAPE("norm of integers", "output_norm.weight", SENNIT_I32, 1, SENNIT_UNSUPPORTED, 8),
    SHAPE("matrix of integers", "blk.0.attn_v.weight", SENNIT_I32, 2, SENNIT_UNSUPPORTED, 8, 4),
    SHAPE("matrix of doubles", "blk.0.attn_v.weight", SENNIT_F64, 2, SENNIT_UNSUPPORTED, 8, 4),
};

/* Opens the bytes; what was not as it should be is printed. */
static void expect(const char *name, const struct gguf_bytes *file, sennit_status status, const char *word,
                   const char *word2)
{
    struct counter c = {0};
    struct sennit_model_options o = {.allocator = counting(&c), .n_threads = 1};
    struct sennit_model *m = NULL;
    struct sennit_error err = {.message = ""};
    sennit_status got = sn_model_open_memory(&m, file->data, file->len, &o, &err);
    sn_model_free(m);
    bool said = status == SENNIT_OK || (err.code == got && strstr(err.message, word) && strstr(err.message, word2));
    if (got == status && said && c.now == 0 && c.peak <= PEAK_BYTES)
        return;
    fprintf(stderr, "%s: %s instead of %s, '%s' (wanted: '%s'), peak %zu, left %zu\n", name, sennit_status_name(got),
            sennit_status_name(status), err.message, word, c.peak, c.now);
    n_failed++;
}

static void named_cases(void)
{
    struct tiny_spec spec = smallest_spec();
    struct gguf_bytes file;
    edited_model(&spec, &(struct edit){0}, &file);
    expect("unchanged", &file, SENNIT_OK, "", "");
    printf("the smallest model: %zu bytes\n", file.len);
    gguf_bytes_free(&file);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        edited_model(&spec, &cases[i].edit, &file);
        expect(cases[i].name, &file, cases[i].status, cases[i].word, "");
        gguf_bytes_free(&file);
    }
    printf("%zu changes, each refused by name\n", sizeof cases / sizeof *cases);
}

/* A vocabulary and an embedding of different lengths, either way. */
static void vocabulary(void)
{
    struct tiny_spec spec = smallest_spec();
    static const uint64_t rows[] = {258, 260};
    for (size_t i = 0; i < 2; i++) {
        struct edit e = {.tensor = "token_embd.weight", .type = SENNIT_F16, .n_dims = 2, .dims = {8, rows[i]}};
        struct gguf_bytes file;
        edited_model(&spec, &e, &file);
        expect("vocabulary", &file, SENNIT_FORMAT, "vocabulary has 259", i ? "260 rows" : "258 rows");
        gguf_bytes_free(&file);
    }
}

/* Types whose blocks are known and whose products are not: refused by tensor and type. */
static void unsupported_types(void)
{
    static const sennit_type types[] = {SENNIT_Q2_K, SENNIT_Q3_K, SENNIT_Q4_K, SENNIT_Q5_K, SENNIT_Q6_K};
    struct tiny_spec spec = smallest_spec();
    spec.d_model = spec.d_ff = 256;
    spec.head_dim = 128;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct edit e = {.tensor = "blk.0.attn_q.weight", .type = types[i], .n_dims = 2, .dims = {256, 256}};
        struct gguf_bytes file;
        char name[32];
        snprintf(name, sizeof name, "%s", sennit_type_name(types[i]));
        edited_model(&spec, &e, &file);
        struct sennit_error err = {.message = ""};
        struct sennit_model *m = NULL;
        sennit_status st =
            sn_model_open_memory(&m, file.data, file.len, &(struct sennit_model_options){.n_threads = 1}, &err);
        if (st != SENNIT_UNSUPPORTED || !strstr(err.message, "blk.0.attn_q.weight") || !strstr(err.message, name)) {
            fprintf(stderr, "%s: %s, '%s'\n", name, sennit_status_name(st), err.message);
            n_failed++;
        }
        sn_model_free(m);
        gguf_bytes_free(&file);
    }
    printf("%zu types without kernels refused by name\n", sizeof types / sizeof *types);
}

int main(void)
{
    named_cases();
    vocabulary();
    unsupported_types();
    return n_failed != 0;
}
