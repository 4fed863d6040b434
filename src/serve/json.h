/* A reader and a writer of JSON for what strangers send: strict, bounded in depth, and honest about memory. jansson's
 * own leave bytes out when they get no memory, and go on; a prompt must never be changed like that. */
#ifndef SERVE_JSON_H
#define SERVE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct sv_json_problem {
    bool no_memory;
    char text[160]; /* what is wrong and where: "a comma or ']' is missing (line 1, column 5)"; UTF-8 */
};

/* text: [n_bytes], anything. RFC 8259, but: UTF-8 without a mark, no name twice in an object or with a NUL in it,
 * whole numbers of 64 bits with sign, other numbers finite, at most most_depth levels. A new reference, or NULL. */
json_t *sv_json_read(const char *text, size_t n_bytes, size_t most_depth, struct sv_json_problem *problem);

/* Appends a value as compact JSON; jansson's reader gives the same value back. Recursion is as deep as the value. */
struct sv_buf; /* serve/answer.h */
void sv_json_write(struct sv_buf *out, const json_t *v);

#endif
