/* UTF-8 for the server's texts, by the rule of the library: an ill-formed sequence becomes one U+FFFD for each
 * maximal wrong part. Pure. */
#ifndef SERVE_TEXT_H
#define SERVE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

enum sv_utf8 {
    SV_UTF8_OK,   /* a whole character of *len bytes */
    SV_UTF8_BAD,  /* *len bytes that no continuation can make a character */
    SV_UTF8_SHORT /* the text ends inside a character that is right so far; *len = n */
};
/* Looks at the front of s[0..n), n > 0; sets *len to 1 ... 4. */
enum sv_utf8 sv_utf8_step(const char *s, size_t n, size_t *len);
bool sv_utf8_valid(const char *s, size_t n);

#endif
