/* A request's body, read: what the endpoints' JSON says, checked as far as that can be done without a model.
 *
 * Every field that an endpoint knows is a row of one table (fields.c): its name, how it is read, or why it is
 * refused. A field that is in no table is refused too, with the name that was probably meant. Pure: no sockets, no
 * engine. */
#ifndef SERVE_CALL_H
#define SERVE_CALL_H

#include "serve/error.h"

enum sv_endpoint { SV_CHAT, SV_COMPLETION };

/* A completion's prompt: text, or token ids. */
struct sv_prompt {
    char *text;    /* NULL when ids were given */
    size_t n_text; /* bytes; may hold NULs */
    int32_t *ids;
    size_t n_ids;
};

enum {
    SV_MOST_CHOICES = 128, /* n, and prompts times n */
    SV_MOST_STOPS = 16,
    SV_MOST_STOP_BYTES = 1024,
    SV_MOST_TOP_LOGPROBS = 20,
    SV_MOST_BIASES = 1024,
    SV_MOST_ANSWER_BYTES = 512 << 20 /* of an answer that is not streamed, as foreseen */
};

struct sv_call {
    enum sv_endpoint endpoint;
    char *model;                /* NULL = absent */
    char *vars_json;            /* chat: the variables of the template, for sennit_chat_tokenize */
    struct sv_prompt *prompts;  /* completion: [n_prompts] */
    uint32_t n_prompts;         /* chat: 0 */
    uint32_t n;                 /* answers to each prompt, >= 1 */
    bool stream, include_usage, echo;
    bool parse_special;         /* completion: text may name control tokens (default true) */
    bool has_max_tokens;
    uint32_t max_tokens;
    bool has_seed;
    uint64_t seed;
    struct sennit_sampling sampling; /* without seed and choice; biases owned. OpenAI's defaults: temperature 1,
                                        top_p 1 */
    char **stop;
    uint32_t n_stop;
    bool logprobs;              /* each token's own log-probability is wanted ... */
    uint32_t n_top;             /* ... with so many alternatives */
    bool ignore_eos;            /* an extension, for measuring */
};

/* body: [n_bytes], need not be NUL-terminated, may be anything. *out is zeroed on failure; release with
 * sv_call_release. False with an error of 400 (or 503 without memory). `developer_role`: the template knows that
 * role; else developer messages become system messages. */
bool sv_call_parse(enum sv_endpoint endpoint, const char *body, size_t n_bytes, bool developer_role,
                   struct sv_call *out, struct sv_error *err);
void sv_call_release(struct sv_call *call); /* safe on {0} and twice */

#endif
