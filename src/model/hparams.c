#include "model/hparams.h"

#include "kernel/math.h"
#include "tensor/traits.h"

#include <math.h>
#include <stdio.h>

/* More than any model has; keeps every product of two of them far from overflow. */
enum { MOST = 1 << 24, MOST_LAYERS = 4096 };

struct keys {
    const struct sn_gguf *g;
    const char *prefix;
    char text[128];
};

static const char *key(struct keys *k, const char *suffix)
{
    snprintf(k->text, sizeof k->text, "%s.%s", k->prefix, suffix);
    return k->text;
}

static sennit_status read_count(struct keys *k, const char *suffix, uint32_t fallback, uint32_t most, uint32_t *out,
                                struct sennit_error *err)
{
    const char *name = key(k, suffix);
    SN_TRY(fallback ? sn_gguf_u32_or(k->g, name, fallback, out, err) : sn_gguf_u32(k->g, name, out, err));
    if (*out < 1 || *out > most)
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %u; it must be between 1 and %u", name, *out, most);
    return SENNIT_OK;
}

static sennit_status read_shape(struct keys *k, struct sn_hparams *hp, struct sennit_error *err)
{
    SN_TRY(read_count(k, "block_count", 0, MOST_LAYERS, &hp->n_layers, err));
    if (hp->n_layers > sn_gguf_n_tensors(k->g)) /* before memory is taken for them */
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %u, more layers than the file's %zu tensors can make",
                       key(k, "block_count"), hp->n_layers, sn_gguf_n_tensors(k->g));
    SN_TRY(read_count(k, "embedding_length", 0, MOST, &hp->d_model, err));
    SN_TRY(read_count(k, "feed_forward_length", 0, MOST, &hp->d_ff, err));
    SN_TRY(read_count(k, "attention.head_count", 0, 65536, &hp->n_heads, err));
    SN_TRY(read_count(k, "attention.head_count_kv", hp->n_heads, 65536, &hp->n_kv_heads, err));
    if (hp->n_heads % hp->n_kv_heads != 0)
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %u, which does not divide the %u query heads",
                       key(k, "attention.head_count_kv"), hp->n_kv_heads, hp->n_heads);
    uint32_t dim = hp->d_model / hp->n_heads;
    if (dim == 0)
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %u, more than the embedding length %u",
                       key(k, "attention.head_count"), hp->n_heads, hp->d_model);
    SN_TRY(read_count(k, "attention.key_length", dim, 4096, &hp->d_k, err));
    SN_TRY(read_count(k, "attention.value_length", dim, 4096, &hp->d_v, err));
    SN_TRY(sn_gguf_u64(k->g, key(k, "context_length"), &hp->context_length, err));
    if (hp->context_length < 1 || hp->context_length > (uint64_t)1 << 31)
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %llu; it must be between 1 and 2^31", key(k, "context_length"),
                       (unsigned long long)hp->context_length);
    SN_TRY(sn_gguf_f32(k->g, key(k, "attention.layer_norm_rms_epsilon"), &hp->norm_eps, err));
    if (!(hp->norm_eps >= 0 && hp->norm_eps < 1))
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %g; it must be at least 0 and below 1",
                       key(k, "attention.layer_norm_rms_epsilon"), (double)hp->norm_eps);
    hp->attn_scale = 1.0f / sqrtf((float)hp->d_k);
    return SENNIT_OK;
}

static sennit_status refuse_unsupported(struct keys *k, const struct sn_hparams *hp, struct sennit_error *err)
{
    uint32_t n;
    SN_TRY(sn_gguf_u32_or(k->g, key(k, "expert_count"), 0, &n, err));
    if (n != 0)
        return sn_fail(err, SENNIT_UNSUPPORTED, "'%s' is %u: mixtures of experts cannot be run",
                       key(k, "expert_count"), n);
    uint64_t window;
    SN_TRY(sn_gguf_u64_or(k->g, key(k, "attention.sliding_window"), 0, &window, err));
    if (window != 0 && window < hp->context_length)
        return sn_fail(err, SENNIT_UNSUPPORTED, "'%s' is %llu: sliding windows cannot be run",
                       key(k, "attention.sliding_window"), (unsigned long long)window);
    return SENNIT_OK;
}

/* Divisor of all frequencies: "linear" scaling stretches positions by a factor. */
static sennit_status read_rope_scaling(struct keys *k, double *divisor, struct sennit_error *err)
{
    struct sn_gguf_str type;
    float factor, old;
    *divisor = 1;
    SN_TRY(sn_gguf_f32_or(k->g, key(k, "rope.scale_linear"), 0, &old, err));
    if (!(old >= 0 && isfinite(old)))
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %g; it must be a finite number > 0", key(k, "rope.scale_linear"),
                       (double)old);
    if (old > 0)
        *divisor = (double)old;
    SN_TRY(sn_gguf_str_or(k->g, key(k, "rope.scaling.type"), "none", &type, err));
    if (type.len == 4 && memcmp(type.data, "none", 4) == 0)
        return SENNIT_OK;
    if (type.len != 6 || memcmp(type.data, "linear", 6) != 0)
        return sn_fail(err, SENNIT_UNSUPPORTED, "'%s' is '%.*s'; only none and linear can be run",
                       key(k, "rope.scaling.type"), (int)type.len, type.data);
    SN_TRY(sn_gguf_f32(k->g, key(k, "rope.scaling.factor"), &factor, err));
    if (!(factor > 0 && isfinite(factor)))
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %g; it must be a finite number > 0",
                       key(k, "rope.scaling.factor"), (double)factor);
    *divisor = (double)factor;
    return SENNIT_OK;
}

/* freq[i] = base^(-2i / n_rot) / divisor, and / factor[i] where the file has rope_freqs (Llama 3.1). Su et al., arXiv
 * 2104.09864. */
static sennit_status read_rope(struct sennit_model *m, struct sn_loader *ld, struct keys *k, struct sennit_error *err)
{
    struct sn_hparams *hp = &m->hp;
    float base;
    double divisor;
    SN_TRY(sn_gguf_u32_or(k->g, key(k, "rope.dimension_count"), hp->d_k, &hp->n_rot, err));
    if (hp->n_rot > hp->d_k || hp->n_rot % 2 != 0 || hp->n_rot == 0)
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %u; it must be even, above 0 and at most the key length %u",
                       key(k, "rope.dimension_count"), hp->n_rot, hp->d_k);
    SN_TRY(sn_gguf_f32_or(k->g, key(k, "rope.freq_base"), 10000.0f, &base, err));
    if (!(base > 0 && isfinite(base)))
        return sn_fail(err, SENNIT_FORMAT, "'%s' is %g; it must be a finite number > 0", key(k, "rope.freq_base"),
                       (double)base);
    SN_TRY(read_rope_scaling(k, &divisor, err));
    size_t n = hp->n_rot / 2;
    m->rope_freq = sn_calloc(&m->heap, SN_USE_WEIGHTS, n, sizeof *m->rope_freq);
    if (!m->rope_freq)
        return sn_fail(err, SENNIT_NOMEM, "no memory for the rotation frequencies");
    for (size_t i = 0; i < n; i++)
        m->rope_freq[i] = sn_pow((double)base, -(double)(2 * i) / (double)hp->n_rot) / divisor;
    if (!sn_loader_has(ld, "rope_freqs.weight"))
        return SENNIT_OK;
    float *factors;
    SN_TRY(sn_load_vector(ld, "rope_freqs.weight", n, &factors, err));
    sennit_status st = SENNIT_OK;
    for (size_t i = 0; i < n && st == SENNIT_OK; i++) {
        if (!(factors[i] > 0 && isfinite(factors[i])))
            st = sn_fail(err, SENNIT_FORMAT,
                         "tensor 'rope_freqs.weight' has %g at %zu; its factors must be finite and > 0",
                         (double)factors[i], i);
        m->rope_freq[i] /= (double)factors[i];
    }
    sn_free(&m->heap, SN_USE_WEIGHTS, factors, n * sizeof *factors);
    return st;
}

sennit_status sn_hparams_read(struct sennit_model *m, struct sn_loader *ld, const char *prefix,
                              struct sennit_error *err)
{
    struct keys k = {.g = ld->gguf, .prefix = prefix};
    struct sn_hparams *hp = &m->hp;
    SN_TRY(read_shape(&k, hp, err));
    SN_TRY(refuse_unsupported(&k, hp, err));
    const struct sn_gguf_tensor *embed = sn_gguf_tensor(ld->gguf, "token_embd.weight");
    if (!embed)
        return sn_fail(err, SENNIT_FORMAT,
                       "tensor 'token_embd.weight' is missing; the file holds no model, perhaps a "
                       "vocabulary only");
    if (embed->dims[1] > MOST)
        return sn_fail(err, SENNIT_FORMAT, "tensor 'token_embd.weight' has %llu rows; at most %d are possible",
                       (unsigned long long)embed->dims[1], MOST);
    hp->n_vocab = (uint32_t)embed->dims[1];
    size_t n_tokens = sn_tokenizer_vocab_size(m->vocab.t);
    if (n_tokens != hp->n_vocab)
        return sn_fail(err, SENNIT_FORMAT,
                       "the vocabulary has %zu tokens and the embedding %u rows; they must be equal", n_tokens,
                       hp->n_vocab);
    SN_TRY(read_rope(m, ld, &k, err));
    m->layers = sn_calloc(&m->heap, SN_USE_WEIGHTS, hp->n_layers, sizeof *m->layers);
    if (!m->layers)
        return sn_fail(err, SENNIT_NOMEM, "no memory for %u layers", hp->n_layers);
    return SENNIT_OK;
}
