/* Answers as the API's JSON: whole ones, and the chunks of a stream. Pure: events in, bytes out.
 *
 * A struct sv_answer lives as long as its request. Streamed, each event is written into `out` as "data: {...}\n\n".
 * Not streamed, events collect in the choices until sv_answer_write_whole writes one object. Both give the same
 * texts, log-probabilities, finish reasons and usage for the same events. */
#ifndef SERVE_ANSWER_H
#define SERVE_ANSWER_H

#include "serve/call.h"

/* A growable text; appending after a failure does nothing, so a writer is checked once, at its end. */
struct sv_buf {
    char *data;
    size_t n_bytes, cap;
    bool failed; /* no memory */
};
void sv_buf_add(struct sv_buf *b, const char *data, size_t n_bytes);
void sv_buf_puts(struct sv_buf *b, const char *text);
void sv_buf_printf(struct sv_buf *b, const char *fmt, ...) SENNIT_PRINTF(2, 3);
void sv_buf_json_string(struct sv_buf *b, const char *text, size_t n_bytes); /* with quotes; bad UTF-8 -> U+FFFD */
void sv_buf_release(struct sv_buf *b);

struct sv_answer; /* opaque */

struct sv_answer_options {
    enum sv_endpoint endpoint;
    bool stream, include_usage, echo, logprobs;
    const char *id;          /* "chatcmpl-..." */
    int64_t created;         /* seconds since 1970 */
    const char *model;       /* as reported */
    const char *fingerprint; /* system_fingerprint */
    uint64_t seed;           /* reported as "seed" */
    const struct sennit_tokenizer *tokenizer; /* borrowed: token texts of log-probabilities */
    uint32_t n_choices;      /* prompts times n */
    uint32_t n_per_prompt;   /* n: choice i answers prompt i / n */
};
/* NULL without memory. Strings are copied. */
struct sv_answer *sv_answer_create(const struct sv_answer_options *options);
void sv_answer_free(struct sv_answer *a); /* NULL is fine */
/* The prompt of choices [first, first + n_per_prompt): its ids, for echo and for usage. echo_text: what echo gives
 * back, [n_echo] (NULL without echo). */
void sv_answer_prompt(struct sv_answer *a, uint32_t prompt, const int32_t *ids, size_t n_ids, const char *echo_text,
                      size_t n_echo);
/* One event of choice i, in the order in which the engine gave them. Streamed: appends chunks to *out (a token whose
 * text is still empty appends nothing unless its log-probability is wanted). out may be NULL otherwise. */
void sv_answer_event(struct sv_answer *a, uint32_t choice, const struct sennit_event *ev, struct sv_buf *out);
/* After every choice has its END: the rest of a stream (usage if wanted, "data: [DONE]"), or the whole object. */
void sv_answer_finish(struct sv_answer *a, struct sv_buf *out);
/* A stream that breaks: "data: {"error": ...}\n\n", no [DONE]. */
void sv_answer_break(struct sv_answer *a, const struct sv_error *err, struct sv_buf *out);
bool sv_answer_failed(const struct sv_answer *a); /* no memory somewhere: the answer must not be given */

struct sv_usage {
    uint64_t n_prompt, n_completion; /* tokens; the prompt of n answers counts once */
};
struct sv_usage sv_answer_usage(const struct sv_answer *a);

#endif
