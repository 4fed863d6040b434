/* Inside of the tokenizer, shared by tok_vocab.c (creation, lookups), tok_encode.c and tok_detok.c.
 */
#ifndef SN_TEXT_TOK_INTERNAL_H
#define SN_TEXT_TOK_INTERNAL_H

#include "text/bpe.h"
#include "text/pretok.h"
#include "text/tokenizer.h"

/* Invariants after creation (nothing changes later):
 *  1. text[id] are the bytes that the token stands for, all inside `blob`.
 *  2. `table` finds a byte-level token (flag BYTES) by its bytes; no control or unknown token is in
 * it, so neither merges nor whole words can ever make one of those.
 *  3. `special` holds the ids of control, unknown and user-defined tokens with text, sorted by
 * text. */
struct sn_tokenizer {
    struct sn_heap *heap;
    size_t n_tokens;
    struct sn_token {
        uint32_t at, len; /* blob[at .. at + len) */
        uint8_t type;     /* enum sn_token_type */
        uint8_t flags;    /* SN_TOKEN_* below */
    } * tokens;
    char *blob;
    size_t blob_bytes, blob_cap;

    int32_t *table; /* [n_slots], open addressing, -1 = free, at most half full */
    size_t n_slots;

    int32_t *special; /* [n_special] */
    size_t n_special;
    bool special_first[256]; /* some special token starts with this byte */

    struct sn_bpe bpe;
    const struct sn_pretok_row *row;
    struct sn_pretok *pretok;
    int32_t bos, eos, eot;
    bool add_bos, add_eos;
};

enum {
    SN_TOKEN_BYTES = 1, /* written in the byte alphabet; its text is decoded */
    SN_TOKEN_ENDS = 2,  /* generation stops after it */
};

static inline const char *sn_tok_text(const struct sn_tokenizer *t, int32_t id)
{
    return t->blob + t->tokens[id].at;
}

/* The byte-level token with exactly these bytes, or -1. */
int32_t sn_tok_find_bytes(const struct sn_tokenizer *t, const char *bytes, size_t n);

/* The longest special token at the front of s[0..n), -1 if there is none. Control and unknown
 * tokens count only up to `trusted` bytes; user-defined ones up to n. */
int32_t sn_tok_match_special(const struct sn_tokenizer *t, const char *s, size_t n, size_t trusted);

/* Decodes a token's name from the byte alphabet to out (at least n bytes). False when a character
 * is not in it. */
bool sn_tok_decode_name(const char *name, size_t n, char *out, size_t *n_out);

#endif
