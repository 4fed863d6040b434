/* One line per request on standard error, as text or as JSON. Never a prompt's or an answer's text unless asked. */
#ifndef SERVE_LOG_H
#define SERVE_LOG_H

#include "serve/answer.h"

struct sv_log_options {
    bool json, prompts, quiet; /* quiet: no request lines, only messages */
    int fd;                    /* where to; 2 = standard error */
};

/* What is known of a request when it ends; a line is one write. */
struct sv_log_line {
    const char *id;          /* "chatcmpl-...", or "-" when it got none */
    const char *method, *path, *client; /* client: "127.0.0.1:1234" */
    int http;                /* status that was sent, 0 = none */
    const char *finish;      /* "stop", "length", "hangup", "error", "refused" ... */
    const char *message;     /* of an error, or NULL */
    struct sv_usage usage;
    uint32_t n_choices;
    bool stream;
    double queue_s, first_token_s, total_s; /* < 0 = did not happen */
    const char *prompt;      /* with options.prompts: its text, or NULL */
    size_t n_prompt;
};
void sv_log_request(const struct sv_log_options *o, const struct sv_log_line *line);
/* A message of the server itself. */
void sv_log_message(const struct sv_log_options *o, sennit_log_level level, const char *fmt, ...) SENNIT_PRINTF(3, 4);

#endif
