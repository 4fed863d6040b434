/* The lexer: template text to tokens, with the whitespace rules of trim_blocks and lstrip_blocks.
 *
 * States: outside tags (root), inside a block or variable tag. The rules follow jinja2/lexer.py:
 *  - "-" beside a delimiter strips all whitespace on that side, "+" switches the automatic
 * stripping off;
 *  - the newline after a block or comment tag goes (trim_blocks), not the one after a variable;
 *  - blanks between a line's start and a block or comment tag go (lstrip_blocks);
 *  - a closing delimiter inside open brackets is an operator;
 *  - line ends become \n, and one at the very end of the template goes.
 */
#include "text/template/ast.h"

#include <errno.h>
#include <stdlib.h>

struct lexer {
    struct sn_jarena *arena;
    struct sennit_error *err;
    sennit_status status;
    const char *s;
    size_t n, i;
    size_t line_at;     /* offset whose place is `line` and `col` */
    uint32_t line, col; /* from 1 */
    bool line_starting; /* the last match ended with a newline, or nothing was matched yet */
    struct sn_jtoken *tokens;
    size_t n_tokens, cap;
};

static void place(struct lexer *x, size_t at, uint32_t *line, uint32_t *col)
{
    if (at < x->line_at) { /* only in errors that point back */
        x->line_at = 0;
        x->line = x->col = 1;
    }
    for (; x->line_at < at; x->line_at++) {
        unsigned char c = (unsigned char)x->s[x->line_at];
        x->line += c == '\n';
        x->col = c == '\n' ? 1 : x->col + ((c & 0xC0) != 0x80);
    }
    *line = x->line;
    *col = x->col;
}

static bool fail_at(struct lexer *x, size_t at, sennit_status status, const char *what)
{
    uint32_t line, col;
    place(x, at, &line, &col);
    x->status = sn_fail(x->err, status, "template line %u, column %u: %s", line, col, what);
    return false;
}

static bool no_memory(struct lexer *x)
{
    x->status = sn_fail(x->err, x->arena->over ? SENNIT_TOO_BIG : SENNIT_NOMEM, "%s",
                        x->arena->over ? "the template is too large"
                                       : "out of memory while reading a template");
    return false;
}

static struct sn_jtoken *push(struct lexer *x, enum sn_jtok type, size_t at)
{
    if (x->n_tokens == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 256;
        struct sn_jtoken *t = sn_jarena_alloc(x->arena, cap * sizeof *t);
        if (!t) {
            no_memory(x);
            return NULL;
        }
        if (x->n_tokens)
            memcpy(t, x->tokens, x->n_tokens * sizeof *t);
        x->tokens = t;
        x->cap = cap;
    }
    struct sn_jtoken *t = &x->tokens[x->n_tokens++];
    *t = (struct sn_jtoken){.type = type};
    place(x, at, &t->line, &t->col);
    return t;
}

static bool push_text(struct lexer *x, enum sn_jtok type, size_t at, const char *data, size_t len)
{
    struct sn_jtoken *t = push(x, type, at);
    struct sn_jstr *s = t ? sn_jarena_alloc(x->arena, sizeof *s) : NULL;
    if (!s)
        return no_memory(x);
    *s = (struct sn_jstr){
        .data = data, .len = len, .n_chars = sn_uni_count(data, len), .trusted = true};
    t->text = s;
    return true;
}

/* ---- whitespace
 * ---------------------------------------------------------------------------------------------- */

static size_t skip_space(const struct lexer *x, size_t i)
{
    while (i < x->n) {
        size_t at = i;
        if (!sn_uni_space(sn_uni_next(x->s, x->n, &at)))
            break;
        i = at;
    }
    return i;
}

static size_t rstrip(const char *s, size_t from, size_t to)
{
    while (to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)s[start] & 0xC0) == 0x80)
            start--;
        size_t at = start;
        if (!sn_uni_space(sn_uni_next(s, to, &at)))
            break;
        to = start;
    }
    return to;
}

static bool has(const struct lexer *x, size_t i, const char *z)
{
    size_t n = strlen(z);
    return x->n - i >= n && memcmp(x->s + i, z, n) == 0;
}

/* Length of a closing delimiter at i with what it swallows, 0 when there is none. */
static size_t closing(const struct lexer *x, size_t i, const char *end, bool is_variable)
{
    if (i < x->n && x->s[i] == '-' && has(x, i + 1, end))
        return skip_space(x, i + 3) - i;
    if (!is_variable && i < x->n && x->s[i] == '+' && has(x, i + 1, end))
        return 3;
    if (!has(x, i, end))
        return 0;
    return !is_variable && i + 2 < x->n && x->s[i + 2] == '\n' ? 3 : 2;
}

static void moved_to(struct lexer *x, size_t i)
{
    if (i > x->i)
        x->line_starting = x->s[i - 1] == '\n';
    x->i = i;
}

/* Emits the text from `from` to the tag at `to`, whose sign is '-', '+' or 0. */
static bool data_before(struct lexer *x, size_t from, size_t to, char sign, bool is_variable)
{
    size_t end = to;
    if (sign == '-') {
        end = rstrip(x->s, from, to);
    } else if (sign != '+' && !is_variable) {
        size_t line = to;
        while (line > from && x->s[line - 1] != '\n')
            line--;
        if ((line > from || x->line_starting) && rstrip(x->s, line, to) == line)
            end = line;
    }
    return end == from || push_text(x, SN_T_DATA, from, x->s + from, end - from);
}

/* ---- literals -------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One escape sequence at s[*i] == '\\'; appends to out[*n]. */
static bool unescape(struct lexer *x, size_t *i, size_t end, char *out, size_t *n)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    size_t at = *i;
    char c = x->s[at + 1];
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        out[(*n)++] = to[simple - from];
        *i = at + 2;
        return true;
    }
    if (c == '\n') {
        *i = at + 2;
        return true;
    }
    uint32_t cp = 0;
    size_t k = at + 2;
    if (c >= '0' && c <= '7') {
        for (k = at + 1; k < end && k < at + 4 && x->s[k] >= '0' && x->s[k] <= '7'; k++)
            cp = cp * 8 + (uint32_t)(x->s[k] - '0');
    } else if (c == 'x' || c == 'u' || c == 'U') {
        size_t want = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        for (; want > 0; want--, k++) {
            int d = k < end ? hex_digit(x->s[k]) : -1;
            if (d < 0)
                return fail_at(x, at, SENNIT_FORMAT, "truncated escape sequence in a string");
            cp = cp * 16 + (uint32_t)d;
        }
    } else if (c == 'N') {
        return fail_at(x, at, SENNIT_UNSUPPORTED,
                       "\\N{...} escapes are not supported; write the character itself");
    } else { /* an unknown escape stays as it is */
        out[(*n)++] = '\\';
        *i = at + 1;
        return true;
    }
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000))
        return fail_at(x, at, SENNIT_FORMAT, "an escape sequence names no character");
    *n += sn_uni_put(out + *n, cp);
    *i = k;
    return true;
}

static bool lex_string(struct lexer *x)
{
    size_t start = x->i, end = start + 1;
    while (end < x->n && x->s[end] != x->s[start])
        end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->n)
        return fail_at(x, start, SENNIT_FORMAT, "a string is not closed");
    char *out = sn_jarena_alloc(
        x->arena, end - start); /* an escape is never shorter than what it stands for */
    if (!out)
        return no_memory(x);
    size_t n = 0;
    for (size_t i = start + 1; i < end;) {
        if (x->s[i] != '\\')
            out[n++] = x->s[i++];
        else if (!unescape(x, &i, end, out, &n))
            return false;
    }
    moved_to(x, end + 1);
    return push_text(x, SN_T_STRING, start, out, n);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* (\d+_)*\d+ at i: returns the end, or i when there is none. */
static size_t digits(const struct lexer *x, size_t i)
{
    while (i < x->n && (is_digit(x->s[i]) || (x->s[i] == '_' && i + 1 < x->n &&
                                              is_digit(x->s[i + 1]) && is_digit(x->s[i - 1]))))
        i++;
    return i;
}

/* End of a float at i, or i. "1.5", "1e5", "1.5e-5"; never right after a dot. */
static size_t float_end(const struct lexer *x, size_t i)
{
    if (i > 0 && x->s[i - 1] == '.')
        return i;
    size_t whole = digits(x, i), end = whole;
    bool fraction = false;
    if (end + 1 < x->n && x->s[end] == '.' && is_digit(x->s[end + 1])) {
        end = digits(x, end + 1);
        fraction = true;
    }
    if (end < x->n && (x->s[end] | 0x20) == 'e') {
        size_t e = end + 1;
        if (e < x->n && (x->s[e] == '+' || x->s[e] == '-'))
            e++;
        if (e < x->n && is_digit(x->s[e]))
            return digits(x, e);
    }
    return fraction ? end : i;
}

static size_t int_end(const struct lexer *x, size_t i, int *base)
{
    *base = 10;
    if (x->s[i] == '0' && i + 1 < x->n) {
        char c = (char)(x->s[i + 1] | 0x20);
        int b = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
        size_t k = i + 2;
        while (b && k < x->n) {
            size_t d = k + (x->s[k] == '_');
            if (d >= x->n || hex_digit(x->s[d]) < 0 || hex_digit(x->s[d]) >= b)
                break;
            k = d + 1;
        }
        if (k > i + 2) {
            *base = b;
            return k;
        }
    }
    if (x->s[i] != '0')
        return digits(x, i);
    size_t k = i + 1;
    while (k < x->n && (x->s[k] == '0' || (x->s[k] == '_' && k + 1 < x->n && x->s[k + 1] == '0')))
        k++;
    return k;
}

static bool lex_number(struct lexer *x)
{
    size_t start = x->i, end = float_end(x, start);
    bool is_float = end > start;
    int base = 10;
    if (!is_float)
        end = int_end(x, start, &base);
    char text[128];
    size_t n = 0;
    for (size_t i = base == 10 ? start : start + 2; i < end; i++) {
        if (x->s[i] == '_')
            continue;
        if (n + 1 >= sizeof text)
            return fail_at(x, start, SENNIT_UNSUPPORTED, "a number is too long");
        text[n++] = x->s[i];
    }
    text[n] = '\0';
    struct sn_jtoken *t = push(x, is_float ? SN_T_FLOAT : SN_T_INT, start);
    if (!t)
        return false;
    errno = 0;
    if (is_float)
        t->f = strtod(text, NULL);
    else
        t->i = strtoll(text, NULL, base);
    if (!is_float && errno != 0)
        return fail_at(x, start, SENNIT_UNSUPPORTED, "an integer does not fit 64 bits");
    moved_to(x, end);
    return true;
}

static bool name_char(char c)
{
    return is_digit(c) || c == '_' || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
}

/* ---- inside a tag
 * -------------------------------------------------------------------------------------------- */

static bool lex_operator(struct lexer *x, char *brackets, size_t *n_open)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t len = 0;
    for (size_t k = 0; k < SN_ARRAY_LEN(two); k++)
        if (has(x, x->i, two[k]))
            len = 2;
    char c = x->s[x->i];
    if (len == 0 && c != '\0' && strchr("+-/*%~[](){}><=.:|,;", c))
        len = 1;
    if (len == 0)
        return fail_at(x, x->i, SENNIT_FORMAT,
                       "unexpected character in a tag (names must be ASCII)");
    if (len == 1 && strchr("([{", c)) {
        if (*n_open == 255)
            return fail_at(x, x->i, SENNIT_TOO_BIG, "brackets are nested more than 255 deep");
        brackets[(*n_open)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (len == 1 && strchr(")]}", c)) {
        if (*n_open == 0 || brackets[*n_open - 1] != c)
            return fail_at(x, x->i, SENNIT_FORMAT,
                           *n_open ? "a bracket closes another kind of bracket"
                                   : "unexpected closing bracket");
        --*n_open;
    }
    size_t at = x->i;
    moved_to(x, at + len);
    return push_text(x, SN_T_OP, at, x->s + at, len);
}

static bool lex_tag(struct lexer *x, bool is_variable)
{
    char brackets[256];
    size_t n_open = 0, tag = x->i;
    while (x->i < x->n) {
        size_t at = x->i, n = n_open ? 0 : closing(x, at, is_variable ? "}}" : "%}", is_variable);
        if (n) {
            moved_to(x, at + n);
            return push(x, is_variable ? SN_T_VAR_END : SN_T_BLOCK_END, at) != NULL;
        }
        size_t space = skip_space(x, at);
        char c = x->s[at];
        if (space > at) {
            moved_to(x, space);
        } else if (is_digit(c)) {
            if (!lex_number(x))
                return false;
        } else if (name_char(c)) {
            size_t end = at;
            while (end < x->n && name_char(x->s[end]))
                end++;
            moved_to(x, end);
            if (!push_text(x, SN_T_NAME, at, x->s + at, end - at))
                return false;
        } else if (c == '"' || c == '\'') {
            if (!lex_string(x))
                return false;
        } else if (!lex_operator(x, brackets, &n_open)) {
            return false;
        }
    }
    return fail_at(x, tag, SENNIT_FORMAT,
                   is_variable ? "this {{ is never closed by }}" : "this {% is never closed by %}");
}

static bool lex_comment(struct lexer *x, size_t tag)
{
    for (size_t i = x->i; i < x->n; i++) {
        size_t n = closing(x, i, "#}", false);
        if (n) {
            moved_to(x, i + n);
            return true;
        }
    }
    return fail_at(x, tag, SENNIT_FORMAT, "this {# is never closed by #}");
}

/* `{% raw %}` at i (just behind "{%" and its sign): the offset behind it, or 0. */
static size_t raw_begin(const struct lexer *x, size_t i)
{
    i = skip_space(x, i);
    if (!has(x, i, "raw"))
        return 0;
    i = skip_space(x, i + 3);
    if (has(x, i, "-%}"))
        return skip_space(x, i + 3);
    return has(x, i, "%}") ? i + 2 : 0;
}

static char sign_at(const struct lexer *x, size_t i)
{
    return i < x->n && (x->s[i] == '-' || x->s[i] == '+') ? x->s[i] : '\0';
}

static bool lex_raw(struct lexer *x, size_t tag)
{
    size_t from = x->i;
    for (size_t i = from; i < x->n; i++) {
        if (!has(x, i, "{%"))
            continue;
        char sign = sign_at(x, i + 2);
        size_t k = skip_space(x, i + 2 + (sign != 0));
        if (!has(x, k, "endraw"))
            continue;
        k = skip_space(x, k + 6);
        size_t n = closing(x, k, "%}", false);
        if (!n)
            continue;
        if (!data_before(x, from, i, sign, false))
            return false;
        moved_to(x, k + n);
        return true;
    }
    return fail_at(x, tag, SENNIT_FORMAT, "this {% raw %} is never closed by {% endraw %}");
}

/* ---- outside tags
 * -------------------------------------------------------------------------------------------- */

static size_t find_tag(const struct lexer *x, size_t i)
{
    for (; i + 1 < x->n; i++)
        if (x->s[i] == '{' && (x->s[i + 1] == '{' || x->s[i + 1] == '%' || x->s[i + 1] == '#'))
            return i;
    return x->n;
}

static bool lex_root(struct lexer *x)
{
    while (x->i < x->n) {
        size_t tag = find_tag(x, x->i);
        if (tag == x->n)
            return push_text(x, SN_T_DATA, x->i, x->s + x->i, x->n - x->i);
        char kind = x->s[tag + 1], sign = sign_at(x, tag + 2);
        if (!data_before(x, x->i, tag, sign, kind == '{'))
            return false;
        size_t inside = tag + 2 + (sign != 0), raw = kind == '%' ? raw_begin(x, inside) : 0;
        moved_to(x, raw ? raw : inside);
        if (raw) {
            if (!lex_raw(x, tag))
                return false;
        } else if (kind == '#') {
            if (!lex_comment(x, tag))
                return false;
        } else if (!push(x, kind == '{' ? SN_T_VAR_BEGIN : SN_T_BLOCK_BEGIN, tag) ||
                   !lex_tag(x, kind == '{')) {
            return false;
        }
    }
    return true;
}

static size_t normalise_newlines(char *s, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\r' && i + 1 < n && s[i + 1] == '\n')
            continue;
        s[out++] = s[i] == '\r' ? '\n' : s[i];
    }
    return out > 0 && s[out - 1] == '\n' ? out - 1 : out;
}

sennit_status sn_jinja_lex(struct sn_jarena *arena, char *source, size_t n_bytes,
                           struct sn_jtoken **tokens, size_t *n_tokens, struct sennit_error *err)
{
    struct lexer x = {
        .arena = arena, .err = err, .line = 1, .col = 1, .line_starting = true, .s = source};
    x.n = normalise_newlines(source, n_bytes);
    if (!lex_root(&x) || !push(&x, SN_T_EOF, x.n))
        return x.status;
    *tokens = x.tokens;
    *n_tokens = x.n_tokens;
    return SENNIT_OK;
}
