/* Chat templates: Jinja2 text as model files carry it, rendered the way the reference library
 * renders it (trim_blocks and lstrip_blocks on, an immutable sandbox, loop controls, `{% generation
 * %}`).
 *
 * A template is parsed once and is immutable afterwards: any number of threads may render it at the
 * same time. Rendering keeps, for every byte of the result, whether it came from the template
 * (trusted) or from the caller's variables (untrusted). A tokenizer that looks for control tokens
 * inside trusted spans only makes it impossible for the text of a message to become a control
 * token.
 *
 * Errors of the language name the place as "line L, column C" of the template (both from 1, columns
 * in characters).
 */
#ifndef SN_TEXT_TEMPLATE_H
#define SN_TEXT_TEMPLATE_H

#include <jansson.h>

#include "base/base.h"

struct sn_template;

/* Bytes [start, end) of a rendered text. */
struct sn_span {
    size_t start, end;
    bool trusted;
};

/* Spans of one rendered text: in order, without gaps or overlap, neighbours differ in `trusted`. */
struct sn_span_list {
    struct sn_heap *heap;
    struct sn_span *items;
    size_t n, cap;
};
void sn_span_list_init(struct sn_span_list *list, struct sn_heap *heap);
void sn_span_list_free(struct sn_span_list *list);

/* Zero in a field means its default. */
struct sn_render_limits {
    uint64_t max_steps;      /* evaluated nodes and comparisons; default 20 million */
    size_t max_output_bytes; /* default 64 MiB; out->max holds as well */
    size_t max_memory_bytes; /* values alive during one render; default 512 MiB */
    uint32_t max_depth;      /* nested evaluation, macro calls included; default and most 1000 */
};

struct sn_render_opts {
    struct sn_render_limits limits;
    int64_t now_unix;     /* what strftime_now() formats, seconds since 1970-01-01 UTC */
    int32_t utc_offset_s; /* added to now_unix for local time */
    /* Names of top-level variables whose strings are as trusted as the template itself;
     * NULL-terminated. NULL = bos_token, eos_token, pad_token, unk_token. */
    const char *const *trusted_names;
    /* A string under the key "role" that equals one of these is trusted: templates build control
     * tokens such as
     * "<|" + role + "|>" from it. NULL-terminated; NULL = system, user, assistant, tool, function,
     * developer. */
    const char *const *trusted_roles;
};

/* Parses `source` (UTF-8). The template keeps no pointer into it.
 * SENNIT_FORMAT: malformed; SENNIT_UNSUPPORTED: a construct this build refuses, named;
 * SENNIT_TOO_BIG: nested too deeply or too long; SENNIT_NOMEM. On failure *out is NULL. Release
 * with sn_template_free. Any thread. */
sennit_status sn_template_parse(struct sn_template **out, struct sn_heap *heap, const char *source,
                                size_t n_bytes, struct sennit_error *err);
void sn_template_free(struct sn_template *t); /* NULL is fine; no render may be running */

/* Renders with `vars`, a JSON object (NULL = no variables) that is only read. Appends the text to
 * `out`; spans (may be NULL) receives the spans of the appended text, counted from its first byte,
 * after being emptied. opts NULL = defaults. On failure `out` and `spans` hold nothing new.
 * SENNIT_INVALID: the template raised an exception (the message is the template's own) or an
 * operation does not fit its values; SENNIT_UNSUPPORTED; SENNIT_TOO_BIG: a limit; SENNIT_NOMEM. Any
 * thread. */
sennit_status sn_template_render(const struct sn_template *t, const json_t *vars,
                                 const struct sn_render_opts *opts, struct sn_buf *out,
                                 struct sn_span_list *spans, struct sennit_error *err);

#endif
