/* Byte-level BPE tokenizer.
 *
 *   text ─ replace ill-formed bytes ─ cut at special tokens ─ pre-tokenizer patterns ─ BPE merges ─
 * ids
 *
 * The text room knows no file format: a tokenizer is made from a neutral description (struct
 * sn_vocab_desc) which the caller fills from a model file. Reference: the Hugging Face `tokenizers`
 * library (BPE with ByteLevel); where llama.cpp differs, the comment says so.
 *
 * Threads: a tokenizer never changes after sn_tokenizer_create, so any number of threads may use
 * one at once. struct sn_tokens and struct sn_detok belong to one thread at a time. Errors:
 * functions that fail leave their outputs unchanged, except that `out` of the tokenize functions
 * may hold the ids of the part before the failure; the caller releases it as usual. */
#ifndef SN_TEXT_TOKENIZER_H
#define SN_TEXT_TOKENIZER_H

#include "base/base.h"

/* Token types with the numbers that GGUF's tokenizer.ggml.token_type uses. */
enum sn_token_type {
    SN_TOKEN_UNDEFINED = 0,
    SN_TOKEN_NORMAL = 1,
    SN_TOKEN_UNKNOWN = 2,
    SN_TOKEN_CONTROL = 3,      /* never comes from plain text; only with SN_TOK_PARSE_SPECIAL */
    SN_TOKEN_USER_DEFINED = 4, /* its literal text always becomes this token */
    SN_TOKEN_UNUSED = 5,
    SN_TOKEN_BYTE = 6
};

enum sn_tristate { SN_UNSET = -1, SN_NO = 0, SN_YES = 1 };

/* What a tokenizer is made from. Everything is copied; nothing is kept after sn_tokenizer_create
 * returns. A zeroed description has bos = eos = ... = token 0: set absent ids to -1
 * (SN_VOCAB_DESC_INIT does). */
struct sn_vocab_desc {
    const char *model; /* tokenizer.ggml.model; only "gpt2" (byte-level BPE) is supported */
    const char *pre;   /* tokenizer.ggml.pre; NULL when the file has none */
    size_t n_tokens, n_merges;
    /* Text of token i / merge i ("left right"). Asked for i = 0, 1, 2, ... once each, tokens before
     * merges. The pointer must stay valid until the next call. NULL = malformed: creation fails
     * naming the index. */
    const char *(*token)(void *ctx, size_t i, size_t *len);
    const char *(*merge)(void *ctx, size_t i, size_t *len);
    void *ctx;
    const int32_t *types; /* [n_tokens] of enum sn_token_type; NULL = all normal */
    int32_t bos, eos, eot, unk, pad;
    int add_bos, add_eos;  /* enum sn_tristate; SN_UNSET = what the pre-tokenizer's family does */
    bool add_space_prefix; /* refused when true: byte-level BPE models do not use it */
};
#define SN_VOCAB_DESC_INIT                                                                         \
    {                                                                                              \
        .bos = -1, .eos = -1, .eot = -1, .unk = -1, .pad = -1, .add_bos = SN_UNSET,                \
        .add_eos = SN_UNSET                                                                        \
    }

struct sn_tokenizer;

/* `pre_override` (NULL = none) replaces the description's pre tag: what the command's --pre NAME
 * passes. Warnings go to `log` (may be NULL). INVALID: no token callback; FORMAT: malformed
 * vocabulary, names the index and field; UNSUPPORTED: model or pre tag that this build does not
 * know, names it and the known ones; NOMEM. */
sennit_status sn_tokenizer_create(struct sn_tokenizer **out, struct sn_heap *heap,
                                  const struct sn_vocab_desc *desc, const char *pre_override,
                                  const struct sennit_logger *log, struct sennit_error *err);
void sn_tokenizer_free(struct sn_tokenizer *t); /* NULL is fine */

/* ---- text to ids ---- */

/* Growable array of token ids. Starts as sn_tokens_init; released by sn_tokens_free. */
struct sn_tokens {
    struct sn_heap *heap;
    int32_t *ids;
    size_t n, cap;
};
void sn_tokens_init(struct sn_tokens *v, struct sn_heap *heap);
sennit_status sn_tokens_push(struct sn_tokens *v, int32_t id); /* OK or NOMEM */
void sn_tokens_free(struct sn_tokens *v);

enum sn_tok_flags {
    SN_TOK_ADD_BOS = 1, /* BOS first, if the model asks for one (sn_tokenizer_adds_bos) */
    SN_TOK_ADD_EOS = 2, /* EOS last, if the model asks for one */
    SN_TOK_PARSE_SPECIAL =
        4, /* control tokens' literal text becomes the control token: trusted text only */
};

/* What happened on the way, for a warning. Counts add up over calls: zero it first. */
struct sn_tok_report {
    size_t n_invalid_bytes; /* ill-formed input bytes that became U+FFFD */
    size_t n_dropped_bytes; /* bytes that the vocabulary has no token for */
};

/* Longest text of one call, in bytes. */
#define SN_TOK_MAX_BYTES ((size_t)INT32_MAX)

/* Appends the ids of text[0..n_bytes) to `out`. User-defined tokens are found in every text;
 * control tokens only with SN_TOK_PARSE_SPECIAL. Both by leftmost, then longest match. `report` may
 * be NULL. Time O(n log w), w = longest word. TOO_BIG beyond SN_TOK_MAX_BYTES, NOMEM, INTERNAL when
 * PCRE2 gives up. */
sennit_status sn_tokenize(const struct sn_tokenizer *t, const char *text, size_t n_bytes,
                          unsigned flags, struct sn_tokens *out, struct sn_tok_report *report,
                          struct sennit_error *err);

/* A piece of a text of mixed origin: the template's own text is trusted, what a user wrote is not.
 */
struct sn_text_segment {
    const char *text;
    size_t n_bytes;
    bool trusted; /* control tokens are recognised here */
};

/* Like sn_tokenize of all segments joined, with the ids a single trusted text would give, except
 * that a control token is recognised only where every byte of it is trusted. SN_TOK_PARSE_SPECIAL
 * in flags is ignored. */
sennit_status sn_tokenize_segments(const struct sn_tokenizer *t,
                                   const struct sn_text_segment *segments, size_t n_segments,
                                   unsigned flags, struct sn_tokens *out,
                                   struct sn_tok_report *report, struct sennit_error *err);

/* ---- the vocabulary ---- */

size_t sn_tokenizer_vocab_size(const struct sn_tokenizer *t);
const char *sn_tokenizer_pre(const struct sn_tokenizer *t); /* name of the pre-tokenizer in force */
int32_t
sn_tokenizer_bos(const struct sn_tokenizer *t); /* -1 = the model has none; so for the next two */
int32_t sn_tokenizer_eos(const struct sn_tokenizer *t);
int32_t
sn_tokenizer_eot(const struct sn_tokenizer *t); /* end of a turn: as given, or found by name */
bool sn_tokenizer_adds_bos(const struct sn_tokenizer *t);
bool sn_tokenizer_adds_eos(const struct sn_tokenizer *t);

/* The bytes that a token stands for: byte-level decoded for ordinary tokens, the literal text for
 * control and user-defined ones. Not NUL-terminated; may be part of a character. Valid while t
 * lives. RANGE for a bad id. */
sennit_status sn_token_text(const struct sn_tokenizer *t, int32_t id, const char **text,
                            size_t *len);
enum sn_token_type sn_token_type_of(const struct sn_tokenizer *t,
                                    int32_t id);                    /* UNDEFINED for a bad id */
bool sn_token_is_control(const struct sn_tokenizer *t, int32_t id); /* control or unknown type */
/* The token with exactly this text (in the sense of sn_token_text; special tokens first), or -1. */
int32_t sn_token_find(const struct sn_tokenizer *t, const char *text, size_t len);
/* True when generation must stop after this token: EOS, EOT, and control tokens with a well-known
 * ending name such as <|im_end|> or <|eot_id|>. */
bool sn_token_ends(const struct sn_tokenizer *t, int32_t id);

/* ---- ids to text ---- */

/* Streaming decoder: tokens may hold parts of characters; what comes out is always whole
 * characters. Ill-formed bytes become U+FFFD as text/utf8.h says, so the joined output of feeds and
 * one flush equals the replacement rule applied to the joined bytes of all tokens. */
struct sn_detok {
    const struct sn_tokenizer *t;
    bool skip_control; /* control tokens give no text */
    unsigned char n_tail;
    char tail[4]; /* start of a character whose end has not come yet */
};
void sn_detok_init(struct sn_detok *d, const struct sn_tokenizer *t, bool skip_control);
/* Appends the whole characters that are complete now. RANGE for a bad id; NOMEM, TOO_BIG from
 * `out`. */
sennit_status sn_detok_feed(struct sn_detok *d, int32_t id, struct sn_buf *out,
                            struct sennit_error *err);
/* The end: a character that never became whole is given as one U+FFFD. The decoder is then as new.
 */
sennit_status sn_detok_flush(struct sn_detok *d, struct sn_buf *out, struct sennit_error *err);

#endif
