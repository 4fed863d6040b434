/* Random answers of a pretended engine, for tests of what a client gets. */
#ifndef SERVE_EVENTS_H
#define SERVE_EVENTS_H

#include "serve/answer.h"

enum { MOST_TOKENS = 24, MOST_TOP = 5, MOST_ANSWERS = 6 };

/* One choice: the prompt, the answer, and where the pretended engine cuts the text. */
struct script {
    int32_t prompt[MOST_TOKENS], ids[MOST_TOKENS];
    uint32_t n_prompt, n_ids, n_top;
    struct sennit_logprob prompt_lp[MOST_TOKENS], lp[MOST_TOKENS]; /* id is not used */
    struct sennit_logprob prompt_top[MOST_TOKENS][MOST_TOP], top[MOST_TOKENS][MOST_TOP];
    struct sennit_text text; /* the whole answer */
    size_t cut[MOST_TOKENS]; /* bytes of text that are out after token i; the END event has the rest */
    sennit_finish finish;
    uint32_t next; /* the event that is given next */
};

void script_make(struct script *s, const struct sennit_tokenizer *tokenizer, uint64_t *rng, bool top);
void script_release(struct script *s);
/* The next event, START, PROMPT (with want_prompt), TOKEN, END; false after END. */
bool script_next(struct script *s, bool want_prompt, struct sennit_event *ev);

/* The tokenizer of a tiny model, made once; freed by tokenizer_free. */
const struct sennit_tokenizer *tokenizer_get(void);
void tokenizer_free(void);

#endif
