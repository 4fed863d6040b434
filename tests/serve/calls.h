/* Asking a server, and answers in one shape whichever way they came. */
#ifndef SERVE_CALLS_H
#define SERVE_CALLS_H

#include <jansson.h>

#include "serve/server_fixture.h"

/* A body from a format in which ' stands for ": bodyf("{'prompt': 'a', 'max_tokens': %d}", n). Owned. */
json_t *bodyf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* body with one field set; takes the value. Returns body. */
json_t *with(json_t *body, const char *name, json_t *value);
json_t *with_text(json_t *body, const char *name, const char *text);

/* choices: an array with one object for each choice, by index: "index", "text", "finish_reason", and "logprobs"
 * (null, or what the endpoint gives, the parts of a stream joined). */
struct answer {
    int http;
    enum http_result result; /* HTTP_OK unless the connection broke */
    char retry_after[16];    /* the header, or "" */
    json_t *error;           /* the error object of the body or of a broken stream, or NULL */
    json_t *choices;
    char *choices_text; /* choices as JSON, always written in the same way */
    bool has_usage;
    uint64_t n_prompt, n_completion;
    char id[64], model[128], fingerprint[64];
    json_int_t seed; /* -1 = none given */
    size_t n_events; /* of a stream, with text */
};

/* JSON of the server, or NULL. Its NUL characters are read as U+2400: they are right, but the reader of JSON used
 * here does not take them in the names of members. */
json_t *json_of(const char *text, size_t n);

/* POST to the endpoint that the body is for (messages: chat), on a connection of its own. Takes a reference of body.
 * The shape of whole answers and of every chunk is checked on the way. */
void ask(const struct server *s, json_t *body, struct answer *a);
/* The same, with headers (lines ended by \r\n). */
void ask_with(const struct server *s, const char *headers, json_t *body, struct answer *a);
/* Sends and leaves the answer to be read by read_answer, or not at all. */
void ask_begin(const struct server *s, struct http_conn *c, json_t *body);
void read_answer(struct http_conn *c, bool stream, struct answer *a);
void answer_free(struct answer *a);

const char *answer_text(const struct answer *a, size_t choice);
const char *answer_finish(const struct answer *a, size_t choice);
/* Entries of a choice's log-probabilities. */
size_t answer_n_logprobs(const struct answer *a, size_t choice);
/* Checks for a refusal of this status whose "param" is as said or a part of that (NULL: any), and whose message has
 * this in it (NULL: any). */
void expect_refusal(const struct server *s, json_t *body, int http, const char *param, const char *message);
/* The error object of a response, checked for its shape: {"error": {"message", "type", "param", "code"}}. Borrowed
 * from *root, which the caller releases. */
json_t *error_of(const char *body, size_t n, json_t **root);

#endif
