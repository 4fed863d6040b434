/* Pre-tokenizers: the cut of a text into words, inside which BPE merges. Data, not code: a row of a
 * table names the PCRE2 patterns, applied in order; each pattern cuts every piece that the ones
 * before it left into matches and what lies between them ("isolated" split). No piece is ever
 * dropped, so the words joined are the text.
 *
 * Character properties (letter, number, ...) are those of the PCRE2 that runs: Unicode 14 in its
 * 10.42, Unicode 16 in its 10.45. A letter or number assigned between the version here and the one
 * that the reference was built with may be cut differently; every older character is cut the same.
 */
#ifndef SN_TEXT_PRETOK_H
#define SN_TEXT_PRETOK_H

#include "base/base.h"

enum { SN_PRETOK_MAX_PATTERNS = 6 };

struct sn_pretok_row {
    const char *tags; /* space-separated synonyms; the first is the name */
    const char *patterns[SN_PRETOK_MAX_PATTERNS + 1]; /* NULL ends the list */
    bool ignore_merges; /* a word that is a token as it stands is that token, whatever the merges
                           say */
    bool add_bos;       /* default where the file has no add_bos_token */
};

/* The row whose tags hold `tag` exactly, or NULL. */
const struct sn_pretok_row *sn_pretok_find(const char *tag);
/* Appends the name of every row, ", " between them, to out; always NUL-terminated, cut where it
 * does not fit. */
void sn_pretok_names(char *out, size_t size);

/* Compiled patterns. Immutable after creation; any thread. */
struct sn_pretok;
/* `tag` must be known. All PCRE2 memory comes from `heap`. `jit`: use the JIT where PCRE2 has one;
 * same words, faster. */
sennit_status sn_pretok_create(struct sn_pretok **out, struct sn_heap *heap,
                               const struct sn_pretok_row *row, bool jit, struct sennit_error *err);
void sn_pretok_free(struct sn_pretok *p);

/* One thread's match state. */
struct sn_pretok_scratch;
sennit_status sn_pretok_scratch_create(struct sn_pretok_scratch **out, const struct sn_pretok *p,
                                       struct sennit_error *err);
void sn_pretok_scratch_free(struct sn_pretok_scratch *s, const struct sn_pretok *p);

typedef sennit_status (*sn_pretok_word_fn)(void *ctx, const char *word, size_t n,
                                           struct sennit_error *err);
/* Calls `emit` for each word of text[0..n), well-formed UTF-8, in order. Stops at the first
 * failure. A match error of PCRE2 is reported (NOMEM or INTERNAL), never taken for "no match". */
sennit_status sn_pretok_split(const struct sn_pretok *p, struct sn_pretok_scratch *s,
                              const char *text, size_t n, sn_pretok_word_fn emit, void *ctx,
                              struct sennit_error *err);

#endif
