/* Log-probabilities of tokens as the API's JSON, item by item. Private to answers. */
#ifndef SERVE_LOGPROBS_H
#define SERVE_LOGPROBS_H

#include "serve/answer.h"

/* Where in its text, in characters, each token of a choice begins. Tokens need not be whole characters, and a control
 * token may or may not show in the echoed prompt. */
struct sv_offsets {
    uint64_t n_chars; /* whole characters so far */
    size_t n_echo;    /* bytes of the echoed text that are behind us */
    char part[4];     /* the beginning of a character */
    size_t n_part;
    bool failed; /* no memory */
};

/* Items that were not given out yet, each list without its brackets. Chat: `items` alone. */
struct sv_logprobs {
    struct sv_buf items, token_logprobs, top, text_offset;
    struct sv_offsets at;
};

/* One token. no_value: the first token of a prompt, which has no probability. */
void sv_logprobs_add(struct sv_logprobs *l, enum sv_endpoint endpoint, const struct sennit_tokenizer *tokenizer,
                     const struct sennit_event *ev, bool no_value);
/* Moves the offset over a token: of the answer, or of the prompt whose echoed text is echo[n_echo]. */
void sv_offsets_answer(struct sv_offsets *at, const struct sennit_tokenizer *tokenizer, int32_t id);
void sv_offsets_prompt(struct sv_offsets *at, const struct sennit_tokenizer *tokenizer, int32_t id, const char *echo,
                       size_t n_echo);
/* An incomplete character at the end of the prompt is one U+FFFD of the echoed text. */
void sv_offsets_end_prompt(struct sv_offsets *at);

bool sv_logprobs_any(const struct sv_logprobs *l);
size_t sv_logprobs_bytes(const struct sv_logprobs *l);
/* The object with all items, or empty lists; the items stay. */
void sv_logprobs_write(const struct sv_logprobs *l, enum sv_endpoint endpoint, struct sv_buf *out);
void sv_logprobs_clear(struct sv_logprobs *l); /* keeps memory and offset */
bool sv_logprobs_failed(const struct sv_logprobs *l);
void sv_logprobs_release(struct sv_logprobs *l);

#endif
