/* Running rows: submits them when their step comes, steps the engine in this thread, collects what
 * they say. */
#ifndef CLI_ROWS_H
#define CLI_ROWS_H

#include "cli.h"

#define ROW_NEVER UINT64_MAX

struct cli_row {
    /* What is asked. The caller sets these; ids, forced, biases and stops belong to the row. */
    int32_t *ids;
    size_t n_ids;
    struct sennit_request_options options; /* prompt and n_prompt are set from ids */
    uint64_t join_at_step;                 /* submitted after this many steps */
    uint64_t cancel_at_token; /* cancelled when it has said this many tokens; ROW_NEVER = not */
    int32_t *forced;
    struct sennit_bias *biases;
    const char **stops;

    /* What came of it. */
    struct sennit_request *request;
    bool submitted, ended, refused;
    struct cli_text text;
    int32_t *answer; /* [n_answer] */
    size_t n_answer;
    json_t *logprobs, *prompt_logprobs; /* arrays, or NULL when none were asked for */
    sennit_finish finish;
    struct sennit_error error;
    uint64_t digest;
    size_t n_prompt, n_reused, n_generated;
    uint32_t n_prefill_spans;
};

/* What each step was. */
struct cli_steps {
    uint32_t *rows; /* [n] rows in each step */
    size_t n, cap;
    uint64_t least_weight_bytes, most_weight_bytes;
    uint64_t decode_weight_bytes; /* the most of a step in which every row had one token */
    double seconds;
};

/* How the text of a prompt becomes tokens. */
struct cli_row_text {
    bool chat;          /* a user's message of the model's chat template, after a system message */
    const char *system; /* or NULL */
    uint32_t flags;     /* SENNIT_TOKENIZE_*, without `chat` */
};

/* Called with each piece of text of a row as it comes; NULL = not wanted. */
typedef void (*cli_text_fn)(void *ctx, struct cli_row *row, const char *text, size_t n_bytes);

/* Runs all rows to their ends. A Ctrl-C cancels them all. Returns CLI_OK, CLI_FAILED (a message was
 * printed, or a row ended with an error), CLI_REFUSED (a row was refused) or CLI_INTERRUPTED. */
int cli_rows_run(struct sennit_engine *engine, struct cli_row *rows, size_t n_rows,
                 struct cli_steps *steps, cli_text_fn on_text, void *ctx);
void cli_rows_free(struct cli_row *rows, size_t n_rows);

const char *cli_row_finish(const struct cli_row *row); /* "stop" ... and "refused" */
json_t *cli_row_json(const struct cli_row *row, size_t index);
/* Adds rows_per_step and weight_bytes_per_step to an object. */
void cli_steps_json(json_t *into, const struct cli_steps *steps);

/* Rows from a file of JSON lines, each a row like `defaults` with its own fields in place of the
 * defaults. `how` is for "prompt"; "messages" say all themselves. */
int cli_rows_read(const char *path, const struct sennit_model *model,
                  const struct cli_row *defaults, const struct cli_row_text *how,
                  struct cli_row **rows, size_t *n_rows);
/* The tokens of a text, as a prompt or as a chat. CLI_OK or an exit code after a message. */
int cli_text_ids(const struct sennit_model *model, const struct cli_row_text *how, const char *text,
                 size_t n_bytes, int32_t **ids, size_t *n_ids);
/* The tokens of one prompt. CLI_OK or an exit code after a message. */
int cli_prompt_ids(const struct sennit_model *model, const char *text, size_t n_bytes,
                   uint32_t flags, int32_t **ids, size_t *n_ids);
/* The tokens of a conversation: vars is the template's object ("messages" ...). */
int cli_chat_ids(const struct sennit_model *model, const json_t *vars, int32_t **ids,
                 size_t *n_ids);
json_t *cli_message(const char *role, const char *text, size_t n_bytes);

#endif
