/* JSON for what strangers send: jansson's reader and writer, made strict, bounded in depth, and honest about memory.
 *
 * jansson 2.14 does not look whether the buffer of its reader could grow: it then leaves bytes of the text out, reads
 * past a string's end, or aborts. A prompt must never be changed like that, and the server must not end. So jansson's
 * memory comes through here, and whatever was read while memory ran short is thrown away. */
#ifndef SERVE_JSON_H
#define SERVE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Once, before anything else calls jansson and before there are threads; again is harmless. */
void sv_json_init(void);

/* Around a call that lets jansson read JSON on this thread: after sv_json_watch the first allocation that fails makes
 * all others fail, so that the reader stops without harm; sv_json_starved ends the watch, true = what the call gave
 * must not be used, and its values were freed by it. The text's numbers and words: at most SV_MOST_BARE bytes; no
 * control characters in its strings. What sv_json_write gives is such a text. No watch within a watch. */
enum { SV_MOST_BARE = 30 };
void sv_json_watch(void);
bool sv_json_starved(void);

/* Values may need about so many bytes of memory, and so many more for each byte of the text. */
enum { SV_JSON_BYTES = 64 << 20, SV_JSON_FACTOR = 8 };

struct sv_json_problem {
    bool no_memory;
    char text[160]; /* what is wrong and where: "unexpected token near ']' (line 1, column 5)"; UTF-8, printable */
};

/* text: [n_bytes], anything. RFC 8259, but: UTF-8 without a mark, no name twice in an object or with a NUL in it,
 * whole numbers of 64 bits with sign, other numbers finite, no number longer than SV_MOST_BARE, at most most_depth
 * (<= 2000) levels, no more values than SV_JSON_BYTES allows. A new reference, or NULL. Watches. */
json_t *sv_json_read(const char *text, size_t n_bytes, size_t most_depth, struct sv_json_problem *problem);

/* Appends a value as compact JSON; sv_json_read gives the same value back. Its strings are valid UTF-8. */
struct sv_buf; /* serve/answer.h */
void sv_json_write(struct sv_buf *out, const json_t *v);

#endif
