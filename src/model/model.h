/* An open model: weights repacked for the kernels, its graph, its tokenizer. Immutable after opening. */
#ifndef SN_MODEL_H
#define SN_MODEL_H

#include "base/base.h"
#include "base/thread.h"
#include "format/gguf.h"
#include "kernel/kernel.h"
#include "sennit/cache.h"
#include "sennit/model.h"
#include "text/template/template.h"
#include "text/tokenizer.h"

struct sn_forward;
struct sn_loader;
struct sn_lane;

/* What the graphs of the decoder-only family share. Lengths in elements. */
struct sn_hparams {
    uint32_t n_layers, d_model, n_heads, n_kv_heads, d_k, d_v, d_ff, n_vocab;
    uint32_t n_rot;         /* rotated dimensions of a head, even, <= d_k */
    uint64_t context_length;
    float norm_eps;
    float attn_scale;       /* 1 / sqrt(d_k), rounded to f32 */
};

/* One decoder layer. Norm weights are f32 [d_model]. */
struct sn_layer {
    float *attn_norm, *ffn_norm;
    struct sn_weights q, k, v; /* d_model -> heads * d_k, kv heads * d_k, kv heads * d_v */
    struct sn_weights o;       /* heads * d_v -> d_model */
    struct sn_weights gate, up, down;
};

/* One architecture: a row of the table in arch.c. */
struct sn_arch {
    const char *name; /* general.architecture */
    /* Reads hparams and weights. On failure the caller releases the model. */
    sennit_status (*load)(struct sennit_model *m, struct sn_loader *ld, struct sennit_error *err);
    /* The graph over one step; every worker of the pool runs it. */
    void (*forward)(struct sn_forward *f, struct sn_lane *lane);
};
extern const struct sn_arch *const sn_archs[]; /* NULL-terminated */

/* A tokenizer as the public interface hands it out; one of a model uses the model's heap. */
struct sennit_tokenizer {
    struct sn_heap own_heap;
    struct sn_heap *heap; /* &own_heap, or the model's */
    struct sn_tokenizer *t;
};

struct sennit_model {
    struct sn_heap heap;
    struct sennit_logger log;
    const struct sn_arch *arch;
    struct sn_hparams hp;
    void *arena; /* all matrices */
    size_t arena_bytes;
    struct sn_weights embed, head; /* head.data == embed.data when tied */
    float *out_norm;
    struct sn_layer *layers; /* [n_layers] */
    double *rope_freq;       /* [n_rot / 2] radians per position */
    struct sennit_tokenizer vocab;
    char *chat_template, *name;
    size_t chat_template_bytes, name_bytes; /* allocated, the NUL included */
    struct sn_template *parsed_template; /* NULL when there is none or it cannot be parsed */
    struct sennit_error template_error;  /* why, when chat_template is there and parsed_template is not */
    struct sennit_model_info info;
};

/* As sennit_model_open. */
sennit_status sn_model_open(struct sennit_model **out, const char *path, const struct sennit_model_options *options,
                            struct sennit_error *err);
/* Over bytes in memory, aligned to 8; only used during the call. */
sennit_status sn_model_open_memory(struct sennit_model **out, const void *data, size_t n_bytes,
                                   const struct sennit_model_options *options, struct sennit_error *err);
void sn_model_free(struct sennit_model *m);

/* The tokenizer of a GGUF file on a heap. */
sennit_status sn_vocab_load(struct sn_tokenizer **out, struct sn_heap *heap, const struct sn_gguf *g, const char *pre,
                            const struct sennit_logger *log, struct sennit_error *err);

/* A cache configuration for layer `layer` of the model. */
struct sennit_cache_config sn_model_cache_config(const struct sennit_model *m, uint32_t layer, const char *family,
                                                 sennit_type kv_type);

#endif
