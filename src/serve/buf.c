/* Growable text, its memory, and UTF-8. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/alloc.h"
#include "serve/answer.h"
#include "serve/text.h"

/* ---- memory ---------------------------------------------------------------------------------------------------- */

bool (*sv_alloc_hook)(size_t n_bytes);

static bool allowed(size_t n_bytes)
{
    return !sv_alloc_hook || sv_alloc_hook(n_bytes);
}

void *sv_alloc(size_t n_bytes)
{
    return allowed(n_bytes) ? malloc(n_bytes) : NULL;
}

void *sv_calloc(size_t n, size_t size)
{
    return allowed(n) ? calloc(n, size) : NULL;
}

void *sv_realloc(void *ptr, size_t n_bytes)
{
    return allowed(n_bytes) ? realloc(ptr, n_bytes) : NULL;
}

void sv_free(void *ptr)
{
    free(ptr);
}

char *sv_copy(const char *data, size_t n_bytes)
{
    char *copy = sv_alloc(n_bytes + 1);
    if (!copy)
        return NULL;
    memcpy(copy, data, n_bytes);
    copy[n_bytes] = '\0';
    return copy;
}

/* ---- UTF-8 ----------------------------------------------------------------------------------------------------- */

/* Bytes of the character that begins with `lead` (0: none can), and the bounds of its second byte. */
static size_t lead_length(unsigned char lead, unsigned char *lo, unsigned char *hi)
{
    *lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    *hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    return lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

enum sv_utf8 sv_utf8_step(const char *s, size_t n, size_t *len)
{
    unsigned char lo, hi;
    size_t need = lead_length((unsigned char)s[0], &lo, &hi);
    *len = 1;
    if (need == 0)
        return SV_UTF8_BAD;
    for (; *len < need; ++*len) {
        if (*len == n)
            return SV_UTF8_SHORT;
        unsigned char c = (unsigned char)s[*len];
        if (c < lo || c > hi)
            return SV_UTF8_BAD;
        lo = 0x80;
        hi = 0xBF;
    }
    return SV_UTF8_OK;
}

bool sv_utf8_valid(const char *s, size_t n)
{
    size_t len;
    for (size_t i = 0; i < n; i += len) {
        if (sv_utf8_step(s + i, n - i, &len) != SV_UTF8_OK)
            return false;
    }
    return true;
}

/* ---- appending ------------------------------------------------------------------------------------------------- */

/* Room for n_bytes more and a NUL. */
static bool reserve(struct sv_buf *b, size_t n_bytes)
{
    if (b->failed)
        return false;
    if (n_bytes < b->cap - b->n_bytes && b->cap > 0)
        return true;
    size_t want = b->n_bytes + n_bytes + 1, cap = b->cap ? b->cap : 256;
    if (want <= n_bytes) {
        b->failed = true;
        return false;
    }
    while (cap < want)
        cap = cap > SIZE_MAX / 2 ? want : cap * 2;
    char *data = sv_realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void sv_buf_add(struct sv_buf *b, const char *data, size_t n_bytes)
{
    if (!reserve(b, n_bytes))
        return;
    if (n_bytes)
        memcpy(b->data + b->n_bytes, data, n_bytes);
    b->n_bytes += n_bytes;
    b->data[b->n_bytes] = '\0';
}

void sv_buf_puts(struct sv_buf *b, const char *text)
{
    sv_buf_add(b, text, strlen(text));
}

void sv_buf_printf(struct sv_buf *b, const char *fmt, ...)
{
    for (size_t room = 128;;) {
        if (!reserve(b, room))
            return;
        va_list args;
        va_start(args, fmt);
        int n = vsnprintf(b->data + b->n_bytes, room + 1, fmt, args);
        va_end(args);
        if (n < 0) {
            b->data[b->n_bytes] = '\0';
            b->failed = true;
            return;
        }
        if ((size_t)n <= room) {
            b->n_bytes += (size_t)n;
            return;
        }
        room = (size_t)n;
    }
}

static void add_escape(struct sv_buf *b, unsigned char c)
{
    static const char HEX[] = "0123456789abcdef";
    static const char NAMED[] = "\"\\\b\f\n\r\t", LETTERS[] = "\"\\bfnrt";
    const char *at = c ? strchr(NAMED, c) : NULL;
    if (at) {
        sv_buf_add(b, (const char[]){'\\', LETTERS[at - NAMED]}, 2);
    } else {
        sv_buf_add(b, (const char[]){'\\', 'u', '0', '0', HEX[c >> 4], HEX[c & 15]}, 6);
    }
}

void sv_buf_json_string(struct sv_buf *b, const char *text, size_t n_bytes)
{
    size_t done = 0, i = 0, len = 1;
    text = text ? text : "";
    sv_buf_add(b, "\"", 1);
    while (i < n_bytes) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
            i++;
            continue;
        }
        bool plain = c >= 0x7F && sv_utf8_step(text + i, n_bytes - i, &len) == SV_UTF8_OK;
        if (plain) {
            i += len;
            continue;
        }
        sv_buf_add(b, text + done, i - done);
        if (c < 0x7F) {
            len = 1;
            add_escape(b, c);
        } else {
            sv_buf_add(b, "\xEF\xBF\xBD", 3);
        }
        i += len;
        done = i;
    }
    sv_buf_add(b, text + done, n_bytes - done);
    sv_buf_add(b, "\"", 1);
}

void sv_buf_release(struct sv_buf *b)
{
    sv_free(b->data);
    *b = (struct sv_buf){0};
}
