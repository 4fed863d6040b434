/* Tiny random Llama models, the same bytes on every machine for the same numbers.
 *
 * Values come from splitmix64 and exact float steps (no libm but sqrt, which IEEE 754 rounds
 * exactly), so that golden digests of these models can be committed. The metadata is what the usual
 * converters write for a Llama with a byte-level BPE; the vocabulary is three special tokens (ids
 * 0..2), the 256 bytes, a few merges, then reserved tokens.
 *
 * Weights are uniform in +-sqrt(3/fan_in), so a product of unit-variance inputs has unit variance;
 * norms are 1 +- 0.1; the head is twice that, for logits that differ. */
#ifndef TINY_MODEL_H
#define TINY_MODEL_H

#include "sennit/tensor.h"
#include "support/gguf_write.h"

/* Ids of the special tokens, as in SmolLM2: bos is <|im_start|>, eos is <|im_end|>. */
enum {
    TINY_ENDOFTEXT = 0,
    TINY_IM_START = 1,
    TINY_IM_END = 2,
    TINY_N_SPECIAL = 3,
    TINY_MAX_VOCAB = 512
};

struct tiny_spec {
    uint64_t seed;
    uint32_t version; /* of GGUF: 2 or 3 */
    uint32_t n_layers, d_model, n_heads, n_kv_heads;
    uint32_t head_dim; /* even; may differ from d_model / n_heads */
    uint32_t d_ff;
    uint32_t n_vocab;      /* 259 .. TINY_MAX_VOCAB */
    sennit_type type;      /* of the layers' matrices: F32 F16 BF16 Q8_0 Q4_0 Q4_1 */
    sennit_type embd_type; /* of token_embd and output */
    bool tied;             /* no output.weight: the head is token_embd */
    float rope_base, eps;
    uint32_t context_length;
};

/* 2 layers, 64 wide, 4 heads over 2 KV heads of 16, d_ff 96, 300 tokens, F32, tied; about 350 KB.
 */
struct tiny_spec tiny_spec_default(void);

/* NULL when the numbers fit together, otherwise what is wrong with them. */
const char *tiny_spec_check(const struct tiny_spec *spec);

/* The file as bytes; the caller frees *out. Aborts when the numbers do not fit together. */
void tiny_model_build(const struct tiny_spec *spec, struct gguf_bytes *out);
void tiny_model_write(const struct tiny_spec *spec, const char *path);

/* Bytes of n values (whole blocks) in a type, and the rounding of values into it. dst holds
 * tiny_type_bytes(). */
size_t tiny_type_bytes(sennit_type type, size_t n);
void tiny_quantize(sennit_type type, const float *src, size_t n, void *dst);

/* The generator behind the values: the next 64 bits, and a float uniform in [-1, 1) with 24 bits.
 */
uint64_t tiny_random(uint64_t *state);
float tiny_uniform(uint64_t *state);

#endif
