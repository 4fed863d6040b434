/* What the commands share: messages, exit codes, files, JSON, and opening models and engines from
 * options. */
#ifndef CLI_H
#define CLI_H

#include <jansson.h>
#include <signal.h>

#include "opts.h"
#include "sennit/sennit.h"

enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,  /* something went wrong while running */
    CLI_USAGE = 2,   /* the command line is wrong */
    CLI_FILE = 3,    /* a file is missing, malformed or of a kind that this build cannot run */
    CLI_REFUSED = 4, /* a request is too long for the context or too big for the cache budget */
    CLI_ENGINE = 5,  /* serve --exit-on-failure: the engine failed */
    CLI_INTERRUPTED = 130
};

/* ---- messages: all on standard error
 * ------------------------------------------------------------------------- */

void cli_error(const char *fmt, ...) SENNIT_PRINTF(1, 2); /* "sennit: ..." */
void cli_warn(const char *fmt, ...) SENNIT_PRINTF(1, 2);  /* "sennit: warning: ..." */
void cli_hint(const char *fmt, ...) SENNIT_PRINTF(1, 2);  /* "  hint: ..." */
void cli_note(const char *fmt, ...) SENNIT_PRINTF(1, 2);  /* the line alone */
/* Prints the library's error and returns the exit code that belongs to it. */
int cli_fail(const struct sennit_error *err);
int cli_exit_code(sennit_status status);

/* ---- memory and text
 * ------------------------------------------------------------------------------------------ */

void *cli_alloc(size_t n_bytes); /* zeroed; never NULL: leaves the program with a message instead */
void *cli_realloc(void *ptr, size_t n_bytes);

struct cli_text {
    char *data; /* NUL-terminated once anything was added */
    size_t n_bytes, cap;
};
void cli_text_add(struct cli_text *t, const char *data, size_t n_bytes);
void cli_text_free(struct cli_text *t);
/* Adds data with every invalid UTF-8 sequence replaced by U+FFFD, one for each maximal wrong part.
 */
void cli_text_add_utf8(struct cli_text *t, const char *data, size_t n_bytes);

/* Writes text to standard output; on a terminal, control characters other than newline and tab are
 * not sent. */
void cli_print_text(const char *data, size_t n_bytes);

/* ---- files ----------------------------------------------------------------------------------- */

/* The whole file ("-" = standard input), NUL-terminated. CLI_OK, or an exit code after a message.
 */
int cli_read_file(const char *path, const char *what, struct cli_text *out);
/* A hint about a path that does not exist: a similar name beside it, the models nearby, or how to
 * get one. */
void cli_hint_missing(const char *path, bool is_model);

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Prints one line to standard output and releases the value. Returns an exit code. */
int cli_print_json(json_t *value);
json_t *cli_json_text(const char *data, size_t n_bytes);
json_t *cli_json_ids(const int32_t *ids, size_t n);
json_t *cli_json_u64(uint64_t value);
/* {"isa": ..., "threads": ..., "kernels": [{"kernel", "variant", "calls": [...]}], ...} */
json_t *cli_json_in_force(const struct sennit_stats *stats);
json_t *cli_json_model(const char *path, const struct sennit_model_info *info);

/* ---- models and engines
 * --------------------------------------------------------------------------------------- */

struct cli_engine_opts {
    const char *model, *pre, *isa, *kv;
    uint32_t n_threads, max_rows, chunk, step_tokens;
    uint64_t cache_bytes;
    bool no_pin, verbose;
};
extern const struct opt cli_model_table[];  /* -m, --pre */
extern const struct opt cli_engine_table[]; /* --isa --threads --chunk --kv ... */

struct cli_sampling_opts {
    uint32_t max_tokens; /* UINT32_MAX = not given */
    float temp, top_p, min_p, repeat, presence, frequency;
    uint32_t top_k;
    uint64_t seed;
    struct opt_list bias, stop;
    bool ignore_eos, special;
};
extern const struct opt cli_sampling_table[];

/* Fills *out; *biases (to be freed) holds what out->biases points to. CLI_OK or CLI_USAGE after a
 * message. */
int cli_sampling(const struct cli_sampling_opts *o, struct sennit_sampling *out,
                 struct sennit_bias **biases);
/* Warns about options that have no effect with greedy choice. */
void cli_warn_greedy(const struct opt_result *r, const struct cli_sampling_opts *o);

/* Opens what the options name. CLI_OK, or an exit code after a message (and a hint). */
int cli_open_model(const struct cli_engine_opts *o, struct sennit_model **out);
int cli_open_engine(const struct cli_engine_opts *o, const struct sennit_model *model,
                    struct sennit_engine **out);
/* cli_open_engine in two steps, for options that have no flag. The logger's ctx is *o, which must
 * live as long as the engine. */
void cli_engine_options(const struct cli_engine_opts *o, struct sennit_engine_options *out);
int cli_create_engine(const struct sennit_engine_options *options, const struct sennit_model *model,
                      struct sennit_engine **out);
int cli_open_tokenizer(const struct cli_engine_opts *o, struct sennit_tokenizer **out);

/* ---- time and signals
 * ------------------------------------------------------------------------------------------- */

double cli_now(void); /* seconds of a steady clock */
/* Number of Ctrl-C since it was last cleared. The first one asks; a third one ends the program at
 * once. */
extern volatile sig_atomic_t cli_interrupts;
void cli_catch_interrupt(void);

/* ---- commands -------------------------------------------------------------------------------- */

extern const struct command cmd_generate, cmd_chat, cmd_bench, cmd_inspect, cmd_tokenize,
    cmd_render, cmd_cache_families, cmd_selftest;
extern const struct command cmd_serve; /* in src/serve/ */

#endif
