/* What the tokenizer's tests share: vocabularies from golden files, from GGUF files, and a small
 * one made by hand. */
#ifndef TESTS_TEXT_TOK_SUPPORT_H
#define TESTS_TEXT_TOK_SUPPORT_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "format/gguf.h"
#include "text/tokenizer.h"

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond);                             \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { TEST_SKIPPED = 77 };

/* tests/text/golden/<name>; the caller json_decref()s it. */
json_t *golden_load(const char *name);

/* A description over a golden twin's "tokens", "merges" and "pre"; borrows from `twin`. */
struct sn_vocab_desc golden_desc(json_t *twin);
struct sn_tokenizer *golden_tokenizer(struct sn_heap *heap, json_t *twin);

/* A description over an open GGUF file. It borrows from the file; `types` and the strings are owned
 * by it. */
struct gguf_vocab {
    struct sn_gguf *gguf;
    struct sn_gguf_array tokens, merges;
    int32_t *types;
    char *model, *pre;
    struct sn_vocab_desc desc;
};
void gguf_vocab_open(struct gguf_vocab *v, struct sn_heap *heap, const char *path);
void gguf_vocab_close(struct gguf_vocab *v);

/* Path of SmolLM2-135M-Instruct's file, or NULL when it is not on this machine. Static storage. */
const char *smollm2_path(void);
/* $SENNIT_SHARED/name, or the directory beside the source; NULL when the file is not there. Static
 * storage. */
const char *shared_path(const char *name);

/* A vocabulary of all 256 bytes (ids 0..255 in the order of the byte), merges "h e", "l l", "he
 * ll", "hell o", the token " 1"... see the file; special tokens as small_special names them. */
extern const char
    *const small_special[]; /* NULL at the end; the first SMALL_CONTROL are control tokens */
enum { SMALL_CONTROL = 6 };
struct small_vocab {
    char names[300][32];
    int32_t types[300];
    struct sn_vocab_desc desc;
};
void small_vocab_init(struct small_vocab *v);

/* Tokenizes or fails the test. */
void encode(const struct sn_tokenizer *t, const char *text, size_t n, unsigned flags,
            struct sn_tokens *out);
/* Joined text of all ids through the streaming decoder. */
void decode(const struct sn_tokenizer *t, const int32_t *ids, size_t n, bool skip_control,
            struct sn_buf *out);

#endif
