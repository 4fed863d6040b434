/* UTF-8: one step of decoding, and the replacement of ill-formed bytes.
 *
 * Rule: an ill-formed sequence becomes one U+FFFD per "maximal subpart" (Unicode 15, section 3.9,
 * table 3-7 and conformance clause C10's practice). That is what Python's bytes.decode("utf-8",
 * errors="replace") does. Surrogates, overlong forms and values above U+10FFFF are ill-formed. All
 * functions are pure; any thread. */
#ifndef SN_TEXT_UTF8_H
#define SN_TEXT_UTF8_H

#include "base/base.h"

#define SN_UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

enum sn_utf8_kind {
    SN_UTF8_OK,   /* a whole character of *len bytes */
    SN_UTF8_BAD,  /* a maximal subpart of *len bytes that no continuation can make well-formed */
    SN_UTF8_SHORT /* the input ends inside a character that is well-formed so far; *len = n */
};

/* Looks at the front of s[0..n), n > 0; sets *len to 1..4. */
enum sn_utf8_kind sn_utf8_step(const char *s, size_t n, size_t *len);

/* The code point of a well-formed character of `len` bytes, as sn_utf8_step found it. */
uint32_t sn_utf8_code_point(const char *s, size_t len);

/* Writes the character to out[4]; returns its length, or 0 for surrogates and values above
 * U+10FFFF. */
size_t sn_utf8_put(char *out, uint32_t code_point);

/* Number of bytes at the front of s that are well-formed UTF-8; n when all of it is. */
size_t sn_utf8_valid_prefix(const char *s, size_t n);

/* Appends s[0..n) to `out` with each ill-formed maximal subpart replaced by U+FFFD.
 * *n_bad_bytes (may be NULL) grows by the number of input bytes that were replaced. OK, NOMEM or
 * TOO_BIG. */
sennit_status sn_utf8_replace(struct sn_buf *out, const char *s, size_t n, size_t *n_bad_bytes);

#endif
