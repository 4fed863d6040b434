/* Reads JSON by recursive descent into jansson's values, and writes them. */
#include "serve/json.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/alloc.h"
#include "serve/answer.h"
#include "serve/text.h"

struct reader {
    const char *s;
    size_t n, i, depth, most_depth;
    struct sv_buf text; /* the string or number that is being read */
    struct sv_json_problem *problem;
};

static json_t *value(struct reader *c);

/* ---- problems -------------------------------------------------------------------------------------------------- */

static json_t *no_memory(struct reader *c)
{
    c->problem->no_memory = true;
    snprintf(c->problem->text, sizeof c->problem->text, "no memory");
    return NULL;
}

/* Columns count bytes, from 1. */
static json_t *wrong(struct reader *c, const char *fmt, ...)
{
    size_t line = 1, column = 1, len;
    char what[96];
    va_list args;
    for (size_t i = 0; i < c->i; i++) {
        column = c->s[i] == '\n' ? 1 : column + 1;
        line += c->s[i] == '\n';
    }
    va_start(args, fmt);
    int n = vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    size_t n_what = n < 0 ? 0 : (size_t)n < sizeof what ? (size_t)n : sizeof what - 1;
    for (size_t i = 0; i < n_what; i += len) { /* a name in it may be cut inside of a character */
        if (sv_utf8_step(what + i, n_what - i, &len) != SV_UTF8_OK)
            memset(what + i, '?', len);
    }
    snprintf(c->problem->text, sizeof c->problem->text, "%s (line %zu, column %zu)", what, line, column);
    return NULL;
}

static int peek(const struct reader *c)
{
    return c->i < c->n ? (unsigned char)c->s[c->i] : -1;
}

/* What stands where something else was expected. */
static json_t *unexpected(struct reader *c, const char *wanted)
{
    int at = peek(c);
    if (at < 0)
        return wrong(c, "the text ends where %s is expected", wanted);
    if (at >= 0x20 && at < 0x7F)
        return wrong(c, "'%c' where %s is expected", at, wanted);
    return wrong(c, "byte 0x%02x where %s is expected", (unsigned)at, wanted);
}

/* ---- pieces ---------------------------------------------------------------------------------------------------- */

static bool take(struct reader *c, int what)
{
    if (peek(c) != what)
        return false;
    c->i++;
    return true;
}

static void skip_space(struct reader *c)
{
    while (peek(c) == ' ' || peek(c) == '\t' || peek(c) == '\n' || peek(c) == '\r')
        c->i++;
}

static bool digits(struct reader *c)
{
    size_t from = c->i;
    while (peek(c) >= '0' && peek(c) <= '9')
        c->i++;
    return c->i > from;
}

/* The four digits of \uXXXX, or -1. */
static int32_t hex4(struct reader *c)
{
    int32_t v = 0;
    for (int k = 0; k < 4; k++, c->i++) {
        int d = peek(c);
        if (d >= '0' && d <= '9')
            v = v * 16 + (d - '0');
        else if ((d >= 'a' && d <= 'f') || (d >= 'A' && d <= 'F'))
            v = v * 16 + ((d | 32) - 'a' + 10);
        else
            return -1;
    }
    return v;
}

static void put_character(struct sv_buf *b, uint32_t u)
{
    char out[4];
    size_t n = u < 0x80 ? 1 : u < 0x800 ? 2 : u < 0x10000 ? 3 : 4;
    static const unsigned char LEAD[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t k = n - 1; k > 0; k--, u >>= 6)
        out[k] = (char)(0x80 | (u & 0x3F));
    out[0] = (char)(LEAD[n] | u);
    sv_buf_add(b, out, n);
}

/* After the 'u' of an escape. */
static bool unicode_escape(struct reader *c)
{
    int32_t high = hex4(c), low;
    if (high < 0) {
        unexpected(c, "one of four hexadecimal digits");
        return false;
    }
    if (high >= 0xD800 && high <= 0xDFFF) {
        low = high < 0xDC00 && take(c, '\\') && take(c, 'u') ? hex4(c) : -1;
        if (low < 0xDC00 || low > 0xDFFF) {
            wrong(c, "\\u%04x is half of a surrogate pair without the other half", (unsigned)high);
            return false;
        }
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    put_character(&c->text, (uint32_t)high);
    return true;
}

/* After a backslash. */
static bool escape(struct reader *c)
{
    static const char LETTERS[] = "\"\\/bfnrt", MEANS[] = "\"\\/\b\f\n\r\t";
    int d = peek(c);
    const char *at = d > 0 ? strchr(LETTERS, d) : NULL;
    if (d != 'u' && !at) {
        unexpected(c, "the letter of an escape");
        return false;
    }
    c->i++;
    if (d == 'u')
        return unicode_escape(c);
    sv_buf_add(&c->text, &MEANS[at - LETTERS], 1);
    return true;
}

/* Bytes from c->i on that stand for themselves. */
static size_t plain_run(const struct reader *c)
{
    size_t i = c->i, len;
    while (i < c->n) {
        unsigned char b = (unsigned char)c->s[i];
        if (b < 0x20 || b == '"' || b == '\\')
            break;
        len = 1;
        if (b >= 0x80 && sv_utf8_step(c->s + i, c->n - i, &len) != SV_UTF8_OK)
            break;
        i += len;
    }
    return i - c->i;
}

/* A string into c->text. */
static bool string(struct reader *c, const char *wanted)
{
    c->text.n_bytes = 0;
    if (!take(c, '"')) {
        unexpected(c, wanted);
        return false;
    }
    for (;;) {
        size_t n = plain_run(c);
        sv_buf_add(&c->text, c->s + c->i, n);
        c->i += n;
        if (take(c, '"'))
            break;
        if (take(c, '\\')) {
            if (!escape(c))
                return false;
        } else if (peek(c) >= 0x80) {
            wrong(c, "byte 0x%02x is not UTF-8", (unsigned)peek(c));
            return false;
        } else if (peek(c) >= 0) {
            wrong(c, "byte 0x%02x in a string; write \\u%04x", (unsigned)peek(c), (unsigned)peek(c));
            return false;
        } else {
            wrong(c, "the text ends inside of a string");
            return false;
        }
    }
    if (c->text.failed)
        no_memory(c);
    return !c->text.failed;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

/* What a constructor gave, or NULL with the reason. */
static json_t *made(struct reader *c, json_t *v)
{
    return v ? v : no_memory(c);
}

/* Passes over a number; false after an error. *whole: it has neither point nor exponent. */
static bool scan_number(struct reader *c, bool *whole)
{
    size_t from = c->i;
    const char *wanted = "a digit";
    bool ok;
    *whole = true;
    take(c, '-');
    ok = take(c, '0') || digits(c);
    if (!ok && c->i == from)
        wanted = "a value";
    if (ok && take(c, '.')) {
        *whole = false;
        ok = digits(c);
    }
    if (ok && (take(c, 'e') || take(c, 'E'))) {
        *whole = false;
        if (!take(c, '+'))
            take(c, '-');
        ok = digits(c);
    }
    if (!ok)
        unexpected(c, wanted);
    return ok;
}

/* [n] characters of a whole number that is too short to overflow: lists of token ids are long. */
static json_int_t short_whole(const char *s, size_t n)
{
    json_int_t x = 0;
    bool minus = s[0] == '-';
    for (size_t i = minus; i < n; i++)
        x = x * 10 + (s[i] - '0');
    return minus ? -x : x;
}

static json_t *number(struct reader *c)
{
    size_t from = c->i;
    bool whole;
    if (!scan_number(c, &whole))
        return NULL;
    if (whole && c->i - from <= 18)
        return made(c, json_integer(short_whole(c->s + from, c->i - from)));
    c->text.n_bytes = 0;
    sv_buf_add(&c->text, c->s + from, c->i - from);
    if (c->text.failed)
        return no_memory(c);
    errno = 0;
    long long x = whole ? strtoll(c->text.data, NULL, 10) : 0;
    if (whole && errno)
        return wrong(c, "%.40s does not fit; whole numbers have 64 bits with sign", c->text.data);
    if (whole)
        return made(c, json_integer(x));
    double d = strtod(c->text.data, NULL);
    return isfinite(d) ? made(c, json_real(d)) : wrong(c, "%.40s does not fit a double", c->text.data);
}

static json_t *word(struct reader *c, const char *w, json_t *v)
{
    size_t n = strlen(w);
    if (c->n - c->i < n || memcmp(c->s + c->i, w, n) != 0)
        return unexpected(c, "a value");
    c->i += n;
    return v;
}

/* One member behind `name`, which is freed. */
static bool member(struct reader *c, json_t *object, char *name)
{
    json_t *v = NULL;
    bool ok = name != NULL;
    if (!ok)
        no_memory(c);
    skip_space(c);
    if (ok && !take(c, ':')) {
        unexpected(c, "':'");
        ok = false;
    }
    ok = ok && (v = value(c));
    if (ok && json_object_set_new_nocheck(object, name, v) != 0) {
        no_memory(c);
        ok = false;
    }
    sv_free(name);
    return ok;
}

static bool name_is_good(struct reader *c, const json_t *object)
{
    const char *name = c->text.data ? c->text.data : "";
    if (strlen(name) != c->text.n_bytes)
        wrong(c, "a name with a NUL character");
    else if (json_object_get(object, name))
        wrong(c, "the name \"%.40s\" for the second time", name);
    else
        return true;
    return false;
}

static bool members(struct reader *c, json_t *object)
{
    skip_space(c);
    if (take(c, '}'))
        return true;
    do {
        skip_space(c);
        if (!string(c, "a name in quotes") || !name_is_good(c, object) ||
            !member(c, object, sv_copy(c->text.data ? c->text.data : "", c->text.n_bytes)))
            return false;
        skip_space(c);
    } while (take(c, ','));
    if (take(c, '}'))
        return true;
    unexpected(c, "',' or '}'");
    return false;
}

static bool items(struct reader *c, json_t *array)
{
    skip_space(c);
    if (take(c, ']'))
        return true;
    do {
        json_t *v = value(c);
        if (!v)
            return false;
        if (json_array_append_new(array, v) != 0) {
            no_memory(c);
            return false;
        }
        skip_space(c);
    } while (take(c, ','));
    if (take(c, ']'))
        return true;
    unexpected(c, "',' or ']'");
    return false;
}

static json_t *container(struct reader *c)
{
    bool object = peek(c) == '{';
    if (c->depth == c->most_depth)
        return wrong(c, "arrays and objects more than %zu deep", c->most_depth);
    json_t *v = object ? json_object() : json_array();
    if (!v)
        return no_memory(c);
    c->i++;
    c->depth++;
    bool ok = object ? members(c, v) : items(c, v);
    c->depth--;
    if (ok)
        return v;
    json_decref(v);
    return NULL;
}

static json_t *value(struct reader *c)
{
    skip_space(c);
    switch (peek(c)) {
    case '{':
    case '[':
        return container(c);
    case '"':
        return string(c, "") ? made(c, json_stringn_nocheck(c->text.data ? c->text.data : "", c->text.n_bytes))
                             : NULL;
    case 't':
        return word(c, "true", json_true());
    case 'f':
        return word(c, "false", json_false());
    case 'n':
        return word(c, "null", json_null());
    default:
        return number(c);
    }
}

json_t *sv_json_read(const char *text, size_t n_bytes, size_t most_depth, struct sv_json_problem *problem)
{
    struct reader c = {.s = text, .n = n_bytes, .most_depth = most_depth, .problem = problem};
    *problem = (struct sv_json_problem){.no_memory = false};
    json_t *v = NULL;
    if (n_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        wrong(&c, "a byte order mark (EF BB BF), which JSON is sent without");
    } else if ((v = value(&c))) {
        skip_space(&c);
        if (c.i < n_bytes) {
            json_decref(v);
            v = unexpected(&c, "the end");
        }
    }
    sv_buf_release(&c.text);
    return v;
}

/* ---- writing --------------------------------------------------------------------------------------------------- */

/* Seventeen digits give a double back exactly; a point keeps it from becoming a whole number. */
static void write_real(struct sv_buf *out, double x)
{
    char text[40];
    int n = snprintf(text, sizeof text, "%.17g", x);
    sv_buf_add(out, text, n > 0 ? (size_t)n : 0);
    if (!strpbrk(text, ".e"))
        sv_buf_puts(out, ".0");
}

static void write_object(struct sv_buf *out, const json_t *object)
{
    const char *key, *before = "{";
    json_t *v;
    if (json_object_size(object) == 0)
        sv_buf_puts(out, "{");
    json_object_foreach((json_t *)object, key, v)
    {
        sv_buf_puts(out, before);
        before = ",";
        sv_buf_json_string(out, key, strlen(key));
        sv_buf_puts(out, ":");
        sv_json_write(out, v);
    }
    sv_buf_puts(out, "}");
}

static void write_array(struct sv_buf *out, const json_t *array)
{
    sv_buf_puts(out, "[");
    for (size_t i = 0; i < json_array_size(array); i++) {
        if (i)
            sv_buf_puts(out, ",");
        sv_json_write(out, json_array_get(array, i));
    }
    sv_buf_puts(out, "]");
}

void sv_json_write(struct sv_buf *out, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        write_object(out, v);
        break;
    case JSON_ARRAY:
        write_array(out, v);
        break;
    case JSON_STRING:
        sv_buf_json_string(out, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        sv_buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        break;
    case JSON_REAL:
        write_real(out, json_real_value(v));
        break;
    default:
        sv_buf_puts(out, json_is_true(v) ? "true" : json_is_false(v) ? "false" : "null");
        break;
    }
}
