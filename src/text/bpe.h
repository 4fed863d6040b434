/* BPE merges over one word.
 *
 * The word starts as one token per byte (bytes without a token are left out first, so that their
 * neighbours meet). Then, again and again, the pair of lowest rank, leftmost among equals, is
 * joined, until no neighbours form a pair. Same order as the `tokenizers` library, including this
 * detail: a queued pair whose sides changed meanwhile still merges when the present sides give the
 * same token. Time O(n log n) in the word's bytes; memory 28 bytes per byte of the longest word, in
 * the scratch. */
#ifndef SN_TEXT_BPE_H
#define SN_TEXT_BPE_H

#include "text/tokenizer.h"

enum { SN_BPE_NONE = -1 };

struct sn_bpe_pair; /* a slot of the table: (left, right) -> rank */

/* Immutable once built. */
struct sn_bpe {
    struct sn_heap *heap;
    int32_t byte_id[256];      /* token of each single byte, SN_BPE_NONE where there is none */
    struct sn_bpe_pair *pairs; /* open addressing, n_slots = power of two, at most half full */
    size_t n_slots;
    int32_t *result; /* [n_ranks] token that the merge of this rank makes */
    size_t n_ranks;
    size_t long_word; /* words of more symbols than this take bpe_long.c's queue; same result */
};

/* Room for n_ranks merges; byte_id all NONE. */
sennit_status sn_bpe_init(struct sn_bpe *b, struct sn_heap *heap, size_t n_ranks,
                          struct sennit_error *err);
/* Sets merge `rank`. A later rank of the same pair replaces the earlier one, as in the reference.
 */
void sn_bpe_set(struct sn_bpe *b, size_t rank, int32_t left, int32_t right, int32_t result);
void sn_bpe_free(struct sn_bpe *b);

/* Scratch of one thread: grows to the longest word met. Zero to start. */
struct sn_bpe_scratch {
    struct sn_bpe_symbol *symbols; /* [cap] */
    size_t cap;
    uint64_t *queue; /* [2 * long_word]: a merge takes at least one entry out and puts at most two
                        in, and a word of n symbols has fewer than n merges */
};
void sn_bpe_scratch_free(struct sn_bpe_scratch *s, const struct sn_bpe *b);

/* Appends the tokens of word[0..n) to out; *n_dropped grows by the bytes that have no token. */
sennit_status sn_bpe_encode(const struct sn_bpe *b, struct sn_bpe_scratch *s, const char *word,
                            size_t n, struct sn_tokens *out, size_t *n_dropped,
                            struct sennit_error *err);

#endif
