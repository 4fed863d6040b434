/* Seeded mutations of a tiny model through the whole way in: any bytes are refused with a message, or open and
 * answer.
 *
 * usage: model_mutate COUNT SEED */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/edit.h"
#include "model/try_model.h"

static size_t below(uint64_t *state, size_t n) { return (size_t)(tiny_random(state) % n); }

/* Where the bytes of a key or of a tensor's name end: most of what the loader checks follows one. */
static size_t after_name(const struct gguf_bytes *b, uint64_t *state)
{
    static const char *const names[] = {
        "llama.block_count", "llama.context_length", "llama.embedding_length", "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.head_count_kv", "llama.rope.freq_base",
        "llama.attention.layer_norm_rms_epsilon", "llama.rope.dimension_count", "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.chat_template", "token_embd.weight", "blk.0.attn_q.weight", "blk.0.attn_k.weight",
        "blk.0.ffn_down.weight", "blk.0.ffn_norm.weight", "output_norm.weight"};
    const char *name = names[below(state, sizeof names / sizeof *names)];
    const uint8_t *p = memmem(b->data, b->len, name, strlen(name));
    return p ? (size_t)(p - b->data) + strlen(name) : below(state, b->len);
}

static void put(struct gguf_bytes *b, size_t at, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n && at + i < b->len; i++)
        b->data[at + i] = (uint8_t)(v >> (8 * i));
}

static void mutate_once(struct gguf_bytes *b, uint64_t *state)
{
    static const uint64_t numbers[] = {0,  1,  2,   3,   4,          5,          6,         7,
                                       8,  9,  16,  32,  64,         255,        256,       258,
                                       260, 4096, 65536, 1 << 24, 0x7FC00000, 0xBF800000, INT32_MAX, UINT32_MAX};
    size_t near = after_name(b, state), at = below(state, b->len);
    uint64_t number = numbers[below(state, sizeof numbers / sizeof *numbers)], any = tiny_random(state);
    size_t offset = below(state, 24);
    switch (below(state, 6)) {
    case 0: /* a bit, anywhere */
        b->data[at] = (uint8_t)(b->data[at] ^ 1u << (any & 7));
        break;
    case 1: /* a bit in a description */
        put(b, near + offset, b->data[(near + offset) % b->len] ^ 1ull << (any & 7), 1);
        break;
    case 2: /* a number behind a key's type */
        put(b, near + 4, number, 4);
        break;
    case 3: /* a dimension, a type or an offset of a tensor, if that is what is here */
        put(b, near + 4 * below(state, 7), number, 4);
        break;
    case 4: /* random weights */
        for (size_t i = 0; i < 64; i++)
            put(b, at + 8 * i, tiny_random(state), 8);
        break;
    default: /* four random bytes */
        put(b, at, any, 4);
    }
}

int main(int argc, char **argv)
{
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 0) : 2000, seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    uint64_t n_opened = 0;
    struct gguf_bytes original;
    struct tiny_spec spec = smallest_spec();
    edited_model(&spec, &(struct edit){0}, &original);
    if (!try_model(original.data, original.len))
        return fprintf(stderr, "the unchanged model does not open\n"), 1;
    for (uint64_t i = 1; i <= count; i++) {
        uint64_t state = seed * 1000003u + i, n_steps = i % 8 == 0 ? 3 : i % 3 == 0 ? 2 : 1;
        struct gguf_bytes b = {0};
        uint8_t *exact = malloc(original.len); /* an exact block, so that a sanitizer sees one byte too many */
        if (!exact)
            abort();
        gguf_bytes_put(&b, original.data, original.len);
        while (n_steps-- > 0)
            mutate_once(&b, &state);
        memcpy(exact, b.data, original.len);
        gguf_bytes_free(&b);
        n_opened += try_model(exact, original.len);
        free(exact);
    }
    gguf_bytes_free(&original);
    printf("%llu mutations, seed %llu: %llu opened and answered, the others were refused\n",
           (unsigned long long)count, (unsigned long long)seed, (unsigned long long)n_opened);
    return count >= 100 && (n_opened == 0 || n_opened > count * 9 / 10); /* both kinds must occur */
}
