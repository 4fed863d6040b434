#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Merges by rank. Each joins two tokens that exist by then. */
static const char *const merges[] = {
    "Ġ t",   "Ġ a",    "i n",  "h e",   "Ġ Ġ",  "r e",  "o n", "Ġt he", "e r",  "Ġ s",    "a t",
    "Ġ o",   "e n",    "Ġ c",  "i t",   "Ġ w",  "o r",  "e s", "i s",   "Ġ f",  "Ġ p",    "l l",
    "l o",   "Ġ b",    "o u",  "Ġ m",   "Ġ d",  "in g", "a n", "Ġ h",   "ll o", "he llo", "w or",
    "wor l", "worl d", "Ġa n", "Ġan d", "Ġo f", "Ġ in", "a r", "Ġ l"};
enum { N_MERGES = sizeof merges / sizeof *merges, N_BYTES = 256, TOKEN_MAX = 24 };

static const char chat_template[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + "
    "'\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

struct tiny_spec tiny_spec_default(void)
{
    return (struct tiny_spec){.seed = 1,
                              .version = 3,
                              .n_layers = 2,
                              .d_model = 64,
                              .n_heads = 4,
                              .n_kv_heads = 2,
                              .head_dim = 16,
                              .d_ff = 96,
                              .n_vocab = TINY_N_SPECIAL + N_BYTES + N_MERGES,
                              .type = SENNIT_F32,
                              .embd_type = SENNIT_F32,
                              .tied = true,
                              .rope_base = 10000.0f,
                              .eps = 1e-5f,
                              .context_length = 2048};
}

const char *tiny_spec_check(const struct tiny_spec *s)
{
    if (s->n_layers < 1 || s->n_layers > 64 || s->d_model < 1 || s->d_ff < 1)
        return "n_layers must be 1..64, d_model and d_ff at least 1";
    if (s->n_heads < 1 || s->n_kv_heads < 1 || s->n_heads % s->n_kv_heads != 0)
        return "n_heads must be a multiple of n_kv_heads";
    if (s->head_dim < 2 || s->head_dim % 2 != 0)
        return "head_dim must be even";
    if (s->n_vocab < TINY_N_SPECIAL + N_BYTES || s->n_vocab > TINY_MAX_VOCAB)
        return "n_vocab must be 259..512";
    if (tiny_type_bytes(s->type, s->d_model) == 0 || tiny_type_bytes(s->embd_type, s->d_model) == 0)
        return "d_model must be whole blocks of the weight types";
    if (tiny_type_bytes(s->type, s->d_ff) == 0)
        return "d_ff must be whole blocks of the weight type";
    if (tiny_type_bytes(s->type, (size_t)s->n_heads * s->head_dim) == 0)
        return "n_heads * head_dim must be whole blocks of the weight type";
    return NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014. */
uint64_t tiny_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

float tiny_uniform(uint64_t *state)
{
    return (float)((int32_t)(tiny_random(state) >> 40) - (1 << 23)) * 0x1p-23f;
}

struct builder {
    struct gguf_writer w;
    const struct tiny_spec *spec;
    uint64_t n_tensors; /* each tensor has its own stream of values, so adding one leaves the others
                           alone */
};

/* Values center + half_width·uniform, [rows, cols] with cols fastest. */
static void add_random(struct builder *b, const char *name, sennit_type type, uint32_t n_dims,
                       uint64_t cols, uint64_t rows, float center, float half_width)
{
    uint64_t state = b->spec->seed ^ (++b->n_tensors * 0xD1B54A32D192ED03u);
    size_t n = (size_t)(cols * rows), n_bytes = tiny_type_bytes(type, n);
    float *values = malloc(n * sizeof *values);
    void *packed = malloc(n_bytes);
    if (!values || !packed)
        abort();
    for (size_t i = 0; i < n; i++)
        values[i] = center + half_width * tiny_uniform(&state);
    tiny_quantize(type, values, n, packed);
    gw_tensor(&b->w, name, (uint32_t)type, n_dims, (uint64_t[]){cols, rows}, packed, n_bytes);
    free(packed);
    free(values);
}

static void add_norm(struct builder *b, const char *name)
{
    add_random(b, name, SENNIT_F32, 1, b->spec->d_model, 1, 1.0f, 0.1f);
}

static void add_matrix(struct builder *b, const char *name, sennit_type type, uint64_t n_in,
                       uint64_t n_out, float gain)
{
    add_random(b, name, type, 2, n_in, n_out, 0.0f, gain * sqrtf(3.0f / (float)n_in));
}

static void add_layer(struct builder *b, uint32_t layer)
{
    const struct tiny_spec *s = b->spec;
    uint64_t d = s->d_model, d_q = (uint64_t)s->n_heads * s->head_dim,
             d_kv = (uint64_t)s->n_kv_heads * s->head_dim;
    const struct {
        const char *name;
        uint64_t n_in, n_out; /* n_in 0 = a norm */
    } parts[] = {{"attn_norm", 0, 0},      {"attn_q", d, d_q},      {"attn_k", d, d_kv},
                 {"attn_v", d, d_kv},      {"attn_output", d_q, d}, {"ffn_norm", 0, 0},
                 {"ffn_gate", d, s->d_ff}, {"ffn_up", d, s->d_ff},  {"ffn_down", s->d_ff, d}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, parts[i].name);
        if (parts[i].n_in == 0)
            add_norm(b, name);
        else
            add_matrix(b, name, s->type, parts[i].n_in, parts[i].n_out, 1.0f);
    }
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void add_hyperparameters(struct builder *b)
{
    const struct tiny_spec *s = b->spec;
    gw_str(&b->w, "general.architecture", "llama");
    gw_str(&b->w, "general.type", "model");
    gw_str(&b->w, "general.name", "tiny");
    gw_u32(&b->w, "llama.block_count", s->n_layers);
    gw_u32(&b->w, "llama.context_length", s->context_length);
    gw_u32(&b->w, "llama.embedding_length", s->d_model);
    gw_u32(&b->w, "llama.feed_forward_length", s->d_ff);
    gw_u32(&b->w, "llama.attention.head_count", s->n_heads);
    gw_u32(&b->w, "llama.attention.head_count_kv", s->n_kv_heads);
    gw_f32(&b->w, "llama.rope.freq_base", s->rope_base);
    gw_f32(&b->w, "llama.attention.layer_norm_rms_epsilon", s->eps);
    if ((uint64_t)s->head_dim * s->n_heads != s->d_model) {
        gw_u32(&b->w, "llama.attention.key_length", s->head_dim);
        gw_u32(&b->w, "llama.attention.value_length", s->head_dim);
    }
    gw_u32(&b->w, "llama.vocab_size", s->n_vocab);
    gw_u32(&b->w, "llama.rope.dimension_count", s->head_dim);
}

/* GPT-2's bytes_to_unicode: printable bytes stand for themselves, the others for U+0100 onwards, in
 * order. */
static void byte_token(int byte, char *out)
{
    int code = byte;
    if (byte < '!' || (byte > '~' && byte < 0xA1) || byte == 0xAD) {
        code = 0x100;
        for (int i = 0; i < byte; i++)
            code += i < '!' || (i > '~' && i < 0xA1) || i == 0xAD;
    }
    if (code < 0x80) {
        *out++ = (char)code;
    } else {
        *out++ = (char)(0xC0 | code >> 6);
        *out++ = (char)(0x80 | (code & 63));
    }
    *out = '\0';
}

/* The text of a token id; *type is its GGUF token type: 1 normal, 3 control, 5 unused. */
static void token_text(uint32_t id, char *out, int32_t *type)
{
    static const char *const special[TINY_N_SPECIAL] = {"<|endoftext|>", "<|im_start|>",
                                                        "<|im_end|>"};
    *type = 1;
    if (id < TINY_N_SPECIAL) {
        strcpy(out, special[id]);
        *type = 3;
    } else if (id < TINY_N_SPECIAL + N_BYTES) {
        byte_token((int)(id - TINY_N_SPECIAL), out);
    } else if (id < TINY_N_SPECIAL + N_BYTES + N_MERGES) {
        const char *merge = merges[id - TINY_N_SPECIAL - N_BYTES], *space = strchr(merge, ' ');
        size_t left = (size_t)(space - merge);
        memcpy(out, merge, left);
        strcpy(out + left, space + 1);
    } else {
        snprintf(out, TOKEN_MAX, "<|reserved_%u|>", id);
        *type = 5;
    }
}

static void add_tokenizer(struct builder *b)
{
    static const uint32_t first_merged = TINY_N_SPECIAL + N_BYTES;
    char text[TINY_MAX_VOCAB][TOKEN_MAX];
    const char *tokens[TINY_MAX_VOCAB];
    int32_t types[TINY_MAX_VOCAB];
    uint32_t n_vocab = b->spec->n_vocab, n_merges = n_vocab - first_merged;
    for (uint32_t i = 0; i < n_vocab; i++) {
        token_text(i, text[i], &types[i]);
        tokens[i] = text[i];
    }
    gw_bool(&b->w, "tokenizer.ggml.add_space_prefix", false);
    gw_bool(&b->w, "tokenizer.ggml.add_bos_token", false);
    gw_str(&b->w, "tokenizer.ggml.model", "gpt2");
    gw_str(&b->w, "tokenizer.ggml.pre", "smollm");
    gw_array_str(&b->w, "tokenizer.ggml.tokens", tokens, n_vocab);
    gw_array(&b->w, "tokenizer.ggml.token_type", GW_I32, types, n_vocab);
    gw_array_str(&b->w, "tokenizer.ggml.merges", merges, n_merges < N_MERGES ? n_merges : N_MERGES);
    gw_u32(&b->w, "tokenizer.ggml.bos_token_id", TINY_IM_START);
    gw_u32(&b->w, "tokenizer.ggml.eos_token_id", TINY_IM_END);
    gw_u32(&b->w, "tokenizer.ggml.unknown_token_id", TINY_ENDOFTEXT);
    gw_u32(&b->w, "tokenizer.ggml.padding_token_id", TINY_IM_END);
    gw_str(&b->w, "tokenizer.chat_template", chat_template);
}

void tiny_model_build(const struct tiny_spec *spec, struct gguf_bytes *out)
{
    const char *wrong = tiny_spec_check(spec);
    if (wrong) {
        fprintf(stderr, "tiny_model: %s\n", wrong);
        abort();
    }
    struct builder b = {.spec = spec};
    gw_init(&b.w, spec->version);
    add_hyperparameters(&b);
    add_tokenizer(&b);
    gw_u32(&b.w, "general.quantization_version", 2);
    add_matrix(&b, "token_embd.weight", spec->embd_type, spec->d_model, spec->n_vocab, 2.0f);
    for (uint32_t i = 0; i < spec->n_layers; i++)
        add_layer(&b, i);
    add_norm(&b, "output_norm.weight");
    if (!spec->tied)
        add_matrix(&b, "output.weight", spec->embd_type, spec->d_model, spec->n_vocab, 2.0f);
    gw_finish(&b.w, out);
}

void tiny_model_write(const struct tiny_spec *spec, const char *path)
{
    struct gguf_bytes file;
    tiny_model_build(spec, &file);
    gguf_bytes_save(&file, path);
    gguf_bytes_free(&file);
}
