/* Models, tokenizers and chat templates.
 *
 * A model is immutable once open: any number of engines and threads may use it at once, and it must outlive them.
 * Strings given back by info structures are borrowed from the model. */
#ifndef SENNIT_MODEL_H
#define SENNIT_MODEL_H

#include "sennit/base.h"
#include "sennit/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sennit_model;
struct sennit_tokenizer;

struct sennit_model_options {
    struct sennit_allocator allocator; /* {0} = default */
    struct sennit_logger logger;
    const char *pre;    /* pre-tokenizer tag to use instead of the file's tokenizer.ggml.pre; NULL = the file's */
    uint32_t n_threads; /* for repacking; 0 = all CPUs of the process */
};

struct sennit_model_info {
    const char *architecture;  /* "llama" */
    const char *name;          /* general.name, or "" */
    uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab;
    uint64_t context_length;   /* tokens the model was made for */
    uint64_t n_parameters;
    uint64_t file_bytes, weight_bytes; /* on disk; repacked in memory */
    uint64_t step_weight_bytes; /* weight bytes that one step reads, embedding rows aside */
    uint64_t content_hash;     /* XXH3-64 of the file */
    const char *chat_template; /* Jinja text, or NULL when the file has none */
    int32_t bos_id, eos_id;    /* -1 = none */
};

/* Opens a GGUF file: checks it, repacks the weights once (peak memory: file + repacked + 64 MB), drops the file's
 * pages as it goes. *out: owned. SENNIT_IO, SENNIT_FORMAT (names the field), SENNIT_UNSUPPORTED (names the
 * architecture, tensor type or feature), SENNIT_NOMEM. */
SENNIT_API sennit_status sennit_model_open(struct sennit_model **out, const char *path,
                                           const struct sennit_model_options *options, struct sennit_error *err);
SENNIT_API void sennit_model_free(struct sennit_model *model); /* NULL is fine */
SENNIT_API const struct sennit_model_info *sennit_model_get_info(const struct sennit_model *model);
/* Borrowed from the model. */
SENNIT_API const struct sennit_tokenizer *sennit_model_tokenizer(const struct sennit_model *model);

/* A readable description of a model file, every metadata key and tensor, as one JSON object (`json`) or as text.
 * Works for files whose architecture cannot run. */
struct sennit_text {
    char *data; /* NUL-terminated; may hold NULs before the end */
    size_t n_bytes;
    void *owner; /* the library's */
};
SENNIT_API void sennit_text_free(struct sennit_text *text); /* safe on {0} and twice */
SENNIT_API sennit_status sennit_file_describe(const char *path, bool json, struct sennit_text *out,
                                              struct sennit_error *err);

/* ---- tokenizer ------------------------------------------------------------------------------------------------- */

/* The tokenizer of a GGUF file; a file with a vocabulary and no tensors is enough. *out: owned, free with
 * sennit_tokenizer_free. Options as for sennit_model_open. */
SENNIT_API sennit_status sennit_tokenizer_open(struct sennit_tokenizer **out, const char *path,
                                               const struct sennit_model_options *options, struct sennit_error *err);
SENNIT_API void sennit_tokenizer_free(struct sennit_tokenizer *tokenizer); /* NULL is fine */

enum {
    SENNIT_TOKENIZE_BOS = 1,     /* put the begin token first where the model wants one */
    SENNIT_TOKENIZE_SPECIAL = 2  /* text may name control tokens; without it their text is plain text */
};
struct sennit_tokens {
    int32_t *ids;
    size_t n_ids;
    size_t n_replaced; /* invalid UTF-8 sequences read as U+FFFD */
    size_t n_dropped;  /* bytes for which the vocabulary has no token */
    void *owner;
};
SENNIT_API void sennit_tokens_free(struct sennit_tokens *tokens); /* safe on {0} and twice */
/* Any thread. */
SENNIT_API sennit_status sennit_tokenize(const struct sennit_tokenizer *tokenizer, const char *text, size_t n_bytes,
                                         uint32_t flags, struct sennit_tokens *out, struct sennit_error *err);
/* Text of ids; incomplete characters become U+FFFD; control tokens appear only with `special`. */
SENNIT_API sennit_status sennit_detokenize(const struct sennit_tokenizer *tokenizer, const int32_t *ids, size_t n_ids,
                                           bool special, struct sennit_text *out, struct sennit_error *err);
/* The bytes that one token adds to a text, which need not be whole characters; a control token adds its name with
 * `special`, else nothing. Writes at most cap bytes (no NUL) and returns how many there are; 0 also for an id outside
 * the vocabulary. Any thread. */
SENNIT_API size_t sennit_token_bytes(const struct sennit_tokenizer *tokenizer, int32_t id, bool special, char *buf,
                                     size_t cap);
SENNIT_API uint32_t sennit_vocab_size(const struct sennit_tokenizer *tokenizer);

/* ---- chat templates -------------------------------------------------------------------------------------------- */

struct sennit_render_options {
    const char *now; /* ISO 8601 time for strftime_now, "2026-01-31T12:00:00"; NULL = the machine's clock */
    uint64_t most_bytes; /* of the rendered text: a longer one is SENNIT_RANGE, before it becomes tokens; 0 = any */
};
/* Renders a Jinja chat template. vars_json: a JSON object with `messages` and any other variable of the template.
 * SENNIT_FORMAT / SENNIT_UNSUPPORTED with line and column; SENNIT_INVALID for raise_exception and bad JSON. */
SENNIT_API sennit_status sennit_template_render(const char *template_text, const char *vars_json,
                                                const struct sennit_render_options *options, struct sennit_text *out,
                                                struct sennit_error *err);
/* The model's own template over vars_json (add_generation_prompt defaults to true, bos_token and eos_token are the
 * model's), as token ids. Text that came from the variables can never become a control token. SENNIT_NOT_FOUND when
 * the model has no template. */
SENNIT_API sennit_status sennit_chat_tokenize(const struct sennit_model *model, const char *vars_json,
                                              const struct sennit_render_options *options, struct sennit_tokens *out,
                                              struct sennit_error *err);

#ifdef __cplusplus
}
#endif
#endif
